// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * shrink.c - going on after a failure: the communicator of the survivors. The kernel
 * decides who they are; here is only the library's side of the new communicator.
 */
#include <errno.h>
#include <string.h>
#include "internal.h"

/*
 * Join the survivors of id. If another one has died meanwhile, what was joined has
 * failed already: go on from there.
 */
static int join(struct coll_drv *drv, uint32_t id, struct npulink_comm_shrink *new)
{
	struct npulink_comm_status st;
	int rc = coll_drv_comm_shrink(drv, id, new);

	while (!rc && !coll_drv_comm_status(drv, new->out_id, &st) && st.out_cause) {
		uint32_t failed = new->out_id;

		rc = coll_drv_comm_shrink(drv, failed, new);
		coll_drv_destroy(drv, failed);
	}
	return rc;
}

int coll_comm_shrink(struct coll_comm *comm, struct coll_comm **shrunk,
		     const struct coll_config *user)
{
	char text[COLL_TEXT] = "";
	struct npulink_comm_shrink new;
	struct coll_config config;
	struct coll_dev *dev;
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
	dev = comm->dev;
	rc = join(&dev->drv, comm->id, &new);
	if (rc == -EINVAL)
		return coll_fail(comm, rc,
				 "coll_comm_shrink: the communicator has not failed, so there is nobody to go on without");
	if (rc == -EEXIST)
		return coll_fail(comm, rc,
				 "coll_comm_shrink: this rank has been given its place among the survivors before");
	if (rc)
		return coll_fail(comm, rc, "coll_comm_shrink: %s (%s)", coll_strerror(rc),
				 strerror(-rc));
	rc = coll_comm_new(shrunk, dev, new.out_nranks, new.out_rank, &config, text, sizeof(text));
	if (rc) {
		coll_drv_destroy(&dev->drv, new.out_id);
		return coll_fail(comm, rc, "coll_comm_shrink: %s", text);
	}
	(*shrunk)->id = new.out_id;
	pthread_mutex_lock(&dev->lock);
	dev->refs++;
	pthread_mutex_unlock(&dev->lock);
	return 0;
}
