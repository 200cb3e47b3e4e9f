// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * shrink.c - going on after a failure: the communicator of the survivors. The kernel
 * decides who they are; here is only the library's side of the new communicator.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "internal.h"

/*
 * Join the survivors of id. If another one has died meanwhile, what was joined has
 * failed already: go on from there. map, and then for the next ones, spare, of as many ranks as
 * id has: the ranks in id of those who are left.
 */
static int join(struct coll_drv *drv, uint32_t id, uint32_t *map, uint32_t *spare,
		struct npulink_comm_shrink *new)
{
	struct npulink_comm_status st;
	int rc = coll_drv_comm_shrink(drv, id, map, new);

	while (!rc && !coll_drv_comm_status(drv, new->out_id, &st) && st.out_cause) {
		uint32_t failed = new->out_id;

		rc = coll_drv_comm_shrink(drv, failed, spare, new);
		coll_drv_destroy(drv, failed);
		/* In order, so none is overwritten that is still needed. */
		for (uint32_t i = 0; !rc && i < new->out_nranks; i++)
			map[i] = map[spare[i]];
	}
	return rc;
}

/* Which machine is whose, of those who are left, and what the network costs. */
static int inherit_machines(struct coll_comm *new, const struct coll_comm *old,
			    const uint32_t *map)
{
	uint32_t nmachines = 0;
	float costs[COLL_COSTS];

	if (!old->machine)
		return 0;
	/* All went by the numbers of one of them, and still do. */
	coll_calibration_pack(&old->tune, costs);
	coll_calibration_unpack(&new->tune, costs, new->nranks);
	new->machine = calloc(new->nranks, sizeof(*new->machine));
	new->hosts = calloc(new->nranks, sizeof(*new->hosts));
	if (!new->machine || !new->hosts)
		return -ENOMEM;
	for (uint32_t i = 0; i < new->nranks; i++) {
		uint32_t k = 0;

		while (k < i && old->machine[map[k]] != old->machine[map[i]])
			k++;
		new->machine[i] = k < i ? new->machine[k] : nmachines++;
		memcpy(new->hosts[new->machine[i]], old->hosts[old->machine[map[i]]],
		       sizeof(*new->hosts));
	}
	return nmachines > 1 ? coll_topo_machines(&new->topo, new->machine, new->nranks) : 0;
}

static int shrink_text(struct coll_comm *comm, int rc)
{
	switch (rc) {
	case -EINVAL:
		return coll_fail(comm, rc,
				 "coll_comm_shrink: the communicator has not failed, so there is nobody to go on without");
	case -EEXIST:
		return coll_fail(comm, rc,
				 "coll_comm_shrink: this rank has been given its place among the survivors before");
	case -ESHUTDOWN:
		return coll_fail(comm, rc,
				 "coll_comm_shrink: the others go on without this rank, as its machine could not reach all of theirs when they agreed");
	default:
		return coll_fail(comm, rc, "coll_comm_shrink: %s (%s)", coll_strerror(rc),
				 strerror(-rc));
	}
}

int coll_comm_shrink(struct coll_comm *comm, struct coll_comm **shrunk,
		     const struct coll_config *user)
{
	char text[COLL_TEXT] = "";
	struct npulink_comm_shrink new;
	struct coll_config config;
	struct coll_comm *made;
	struct coll_dev *dev;
	uint32_t *map;
	int rc;

	if (!shrunk)
		return -EINVAL;
	*shrunk = NULL;
	rc = coll_comm_enter(comm);
	if (rc)
		return rc;
	rc = coll_config_get(&config, user);
	if (rc)
		return coll_fail(comm, rc, "coll_comm_shrink: the configuration is malformed");
	/* What the environment says is true of all ranks, not of those that are left. */
	if (!config.topology)
		config.topology = "";
	map = calloc(comm->nranks, 2 * sizeof(*map));
	if (!map)
		return coll_fail(comm, -ENOMEM, "coll_comm_shrink: out of memory");
	dev = comm->dev;
	rc = join(&dev->drv, comm->id, map, map + comm->nranks, &new);
	if (rc) {
		free(map);
		return shrink_text(comm, rc);
	}
	rc = coll_comm_new(&made, dev, new.out_nranks, new.out_rank, &config, text, sizeof(text));
	if (!rc) {
		made->id = new.out_id;
		rc = inherit_machines(made, comm, map);
		if (rc) {
			coll_comm_discard(made);
			coll_text(text, sizeof(text), rc, "out of memory");
		}
	}
	free(map);
	if (rc) {
		coll_drv_destroy(&dev->drv, new.out_id);
		return coll_fail(comm, rc, "coll_comm_shrink: %s", text);
	}
	pthread_mutex_lock(&dev->lock);
	dev->refs++;
	pthread_mutex_unlock(&dev->lock);
	*shrunk = made;
	return 0;
}
