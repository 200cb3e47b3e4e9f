// SPDX-License-Identifier: GPL-2.0
/*
 * charge.c - what a session takes of a network device is charged to the rdma cgroup of the process
 * that opens it, as ib_uverbs charges what programs make (hca_object in rdma.max).
 *
 * The kernel charges whoever runs, and connections are made by workers and by calls of the peer.
 * So a session is charged when it is opened, by its process: on each device that its ports have,
 * for one connection. The second one, of a peer that has called again, is there only until the
 * first is taken down. Agreements (core/comm/agree.c), which workers open, are not charged, nor is a
 * device that appears later.
 */
#include <linux/cgroup_rdma.h>
#include <linux/sched.h>
#include "rdma.h"

#ifdef CONFIG_CGROUP_RDMA

/* Protection domain, completion queue, queue pair, keys. */
#define RDMA_OBJECTS	(3 + NPULINK_WIRE_GRANTS)

static LIST_HEAD(rdma_charged);		/* sessions that are; under rdma_lock */

static void rdma_charge_undo(struct rdma_charge *c)
{
	while (c->n)
		rdmacg_uncharge(c->cgroups[--c->n], &c->ibdev->cg_device,
				RDMACG_RESOURCE_HCA_OBJECT);
	c->ibdev = NULL;
}

/* All or nothing. */
static int rdma_charge_one(struct rdma_charge *c, struct ib_device *ibdev)
{
	int rc;

	BUILD_BUG_ON(ARRAY_SIZE(c->cgroups) < RDMA_OBJECTS);
	c->ibdev = ibdev;
	while (c->n < RDMA_OBJECTS) {
		/* The process may be moved meanwhile: each goes back to where it came from. */
		rc = rdmacg_try_charge(&c->cgroups[c->n], &ibdev->cg_device,
				       RDMACG_RESOURCE_HCA_OBJECT);
		if (rc) {
			rdma_charge_undo(c);
			return rc == -EAGAIN ? -EDQUOT : rc;
		}
		c->n++;
	}
	return 0;
}

static void rdma_charges_undo(struct rdma_conn *conn)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(conn->charges); i++)
		rdma_charge_undo(&conn->charges[i]);
}

/* -EDQUOT: the cgroup has its share of them. */
int rdma_charge(struct rdma_conn *conn)
{
	struct ib_device *ibdevs[ARRAY_SIZE(conn->charges)];
	u32 n, i;
	int rc = 0;

	if (conn->put->agree || current->flags & PF_KTHREAD)
		return 0;
	mutex_lock(&rdma_lock);
	n = rdma_own_devices(conn->put->dev, conn->put->net, ibdevs, ARRAY_SIZE(ibdevs));
	for (i = 0; i < n && !rc; i++)
		rc = rdma_charge_one(&conn->charges[i], ibdevs[i]);
	if (rc)
		rdma_charges_undo(conn);
	else
		list_add_tail(&conn->charged, &rdma_charged);
	mutex_unlock(&rdma_lock);
	return rc;
}

/* Nothing is left of it. */
void rdma_uncharge(struct rdma_conn *conn)
{
	mutex_lock(&rdma_lock);
	if (!list_empty(&conn->charged)) {
		list_del_init(&conn->charged);
		rdma_charges_undo(conn);
	}
	mutex_unlock(&rdma_lock);
}

/* The device goes, and with it what was charged there. */
void rdma_uncharge_device(const struct ib_device *ibdev)
{
	struct rdma_conn *conn;
	u32 i;

	lockdep_assert_held(&rdma_lock);
	list_for_each_entry(conn, &rdma_charged, charged)
		for (i = 0; i < ARRAY_SIZE(conn->charges); i++)
			if (conn->charges[i].ibdev == ibdev)
				rdma_charge_undo(&conn->charges[i]);
}

#else

int rdma_charge(struct rdma_conn *conn)
{
	return 0;
}

void rdma_uncharge(struct rdma_conn *conn)
{
}

void rdma_uncharge_device(const struct ib_device *ibdev)
{
}

#endif
