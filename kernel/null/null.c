// SPDX-License-Identifier: GPL-2.0
/*
 * null.c - the smallest backend: two devices that copy and cannot reduce, linked to each other. It
 * is there to be copied by whoever writes a backend; kernel/README.md walks through it. It is
 * built and tested, but not installed.
 *
 * An interrupt plays the engine: it takes what is on the device's ring, copies, and reports.
 */
#include <linux/err.h>
#include <linux/irq_work.h>
#include <linux/llist.h>
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/string.h>
#include <npulink/compat.h>
#include <npulink/device.h>

#define NULL_DEVICES	2
#define NULL_SLICE	(64 << 10)	/* bytes that an interrupt copies for a request */

/* A device: what is on its ring, the last request first, and its interrupt. */
struct null_dev {
	struct llist_head ring;
	struct irq_work irq;
};

static struct npulink_device *null_devices[NULL_DEVICES];
static const char null_fabric;	/* only its address counts */

/* Address of byte @at of an operand, and how many bytes follow it in one piece. */
static void *null_at(const struct npulink_operand *o, u64 at, u64 *left)
{
	const struct npulink_buf_mem *mem = npulink_buf_mem(o->buf);
	const struct npulink_range *r = &mem->ranges[npulink_mem_range(mem, o->off + at)];

	*left = r[1].off - (o->off + at);
	return r->va + (o->off + at - r->off);
}

static void null_copy(struct npulink_req *req)
{
	u64 at, n, from_left, to_left;

	for (at = 0; at < req->len; at += n) {
		const void *from = null_at(&req->src[0], at, &from_left);
		void *to = null_at(&req->dst, at, &to_left);

		n = min3(req->len - at, from_left, to_left);
		memmove(to, from, n);
	}
}

/* The engine. Once a request is reported, it may be used again. */
static void null_irq(struct irq_work *irq)
{
	struct null_dev *nd = container_of(irq, struct null_dev, irq);
	struct llist_node *list = llist_reverse_order(llist_del_all(&nd->ring));
	struct npulink_req *req, *next;

	llist_for_each_entry_safe(req, next, list, ev.node) {
		struct npulink_device_stats *stats = &req->dev->stats;

		null_copy(req);
		atomic64_inc(&stats->requests);
		atomic64_inc(&stats->interrupts);
		atomic64_add(req->len, &stats->bytes_read);
		atomic64_add(req->len, &stats->bytes_written);
		npulink_step_done(req, 0);
	}
}

/* The core may be in an interrupt: of this device, as well. */
static int null_queue(struct npulink_device *dev, struct npulink_req *req)
{
	struct null_dev *nd = dev->priv;

	/* The core asks for no reduction, since dtypes is 0. */
	if (WARN_ON_ONCE(req->nsrc != 1))
		return -EOPNOTSUPP;
	llist_add(&req->ev.node, &nd->ring);
	irq_work_queue(&nd->irq);
	return -EINPROGRESS;
}

static void null_quiesce(struct npulink_device *dev)
{
	struct null_dev *nd = dev->priv;

	irq_work_sync(&nd->irq);
}

static const struct npulink_device_ops null_device_ops = {
	.queue = null_queue,
	.quiesce = null_quiesce,
};

static void null_del(struct npulink_device *dev)
{
	npulink_device_unregister(dev);
	npulink_device_put(dev);
}

static struct npulink_device *null_add(void)
{
	struct npulink_device *dev = npulink_device_alloc(THIS_MODULE, &null_device_ops, NULL,
							  sizeof(struct null_dev));
	struct null_dev *nd;
	int rc;

	if (IS_ERR(dev))
		return dev;
	nd = dev->priv;
	init_llist_head(&nd->ring);
	init_irq_work(&nd->irq, null_irq);
	dev->slice = NULL_SLICE;
	dev->fabric = &null_fabric;
	strscpy(dev->backend, "null", sizeof(dev->backend));
	strscpy(dev->engine, "memmove", sizeof(dev->engine));
	rc = npulink_device_register(dev);
	if (rc) {
		npulink_device_put(dev);
		return ERR_PTR(rc);
	}
	return dev;
}

static void null_exit(void)
{
	int i;

	for (i = 0; i < NULL_DEVICES && null_devices[i]; i++)
		null_del(null_devices[i]);
}

static int __init null_init(void)
{
	struct npulink_device *dev;
	int i;

	for (i = 0; i < NULL_DEVICES; i++) {
		dev = null_add();
		if (IS_ERR(dev)) {
			null_exit();
			return PTR_ERR(dev);
		}
		null_devices[i] = dev;
	}
	return 0;
}

module_init(null_init);
module_exit(null_exit);
MODULE_DESCRIPTION("npulink backend to copy: devices that only copy");
MODULE_LICENSE("GPL");
NPULINK_IMPORT_NS(NPULINK);
