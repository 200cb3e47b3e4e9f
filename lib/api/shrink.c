// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * shrink.c - going on after a failure: the communicator of the survivors. The kernel
 * decides who they are; here is only the library's side of the new communicator.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "api/join.h"
#include "base/base.h"
#include "coll.h"
#include "run/comm.h"
#include "run/drv.h"
#include "run/error.h"
#include "tune/calibration.h"
#include "tune/topo.h"

/* Join the survivors of @comm; with the flags of its configuration. */
static int join(struct coll_comm *comm, uint32_t flags, struct coll_survivors **survivors)
{
	struct coll_survivors *s = calloc(1, sizeof(*s) + comm->nranks * sizeof(*s->map));
	struct npulink_comm_shrink new;
	int rc;

	if (!s)
		return -ENOMEM;
	rc = coll_drv_comm_shrink(&comm->dev->drv, comm->id, flags, s->map, &new);
	if (rc) {
		free(s);
		return rc;
	}
	s->id = new.out_id;
	s->rank = new.out_rank;
	s->nranks = new.out_nranks;
	*survivors = s;
	return 0;
}

/* If another one has died meanwhile, what was joined has failed already: go on from there. */
static int follow(struct coll_drv *drv, uint32_t flags, struct coll_survivors *s)
{
	uint32_t *spare = calloc(s->nranks, sizeof(*spare));
	struct npulink_comm_shrink new;
	struct npulink_comm_status st;
	int rc = 0;

	if (!spare)
		return -ENOMEM;
	while (!coll_drv_comm_status(drv, s->id, &st) && st.out_cause) {
		rc = coll_drv_comm_shrink(drv, s->id, flags, spare, &new);
		if (rc)
			break;
		coll_drv_destroy(drv, s->id);
		/* In order, so none is overwritten that is still needed. */
		for (uint32_t i = 0; i < new.out_nranks; i++)
			s->map[i] = s->map[spare[i]];
		s->id = new.out_id;
		s->rank = new.out_rank;
		s->nranks = new.out_nranks;
	}
	free(spare);
	return rc;
}

/* All went by the numbers of one of them, and still do: files of others may say something else. */
static void inherit_costs(struct coll_comm *new, const struct coll_comm *old)
{
	float costs[COLL_COSTS];

	coll_calibration_pack(&old->tune, costs);
	coll_calibration_unpack(&new->tune, costs, new->nranks);
}

/* Which machine is whose, of those who are left. */
static int inherit_machines(struct coll_comm *new, const struct coll_comm *old,
			    const uint32_t *map)
{
	uint32_t nmachines = 0;

	if (!old->machine)
		return 0;
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
	char words[128];

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
	case -ENOLINK:
		return coll_fail(comm, rc,
				 "coll_comm_shrink: the machines that can reach each other are half of all or fewer; if others cannot have gone on, call it again with COLL_MINORITY");
	default:
		return coll_fail(comm, rc, "coll_comm_shrink: %s",
				 coll_words(rc, words, sizeof(words)));
	}
}

/* Whether @config is of any use, as far as that does not depend on who survives. */
static int check_config(struct coll_comm *comm, const struct coll_config *config)
{
	struct coll_config unwired = *config;
	char text[COLL_TEXT] = "";
	struct coll_comm *trial;
	int rc;

	unwired.topology = "";
	rc = coll_comm_new(&trial, comm->dev, comm->nranks, comm->rank, &unwired, text,
			   sizeof(text));
	if (rc)
		return coll_fail(comm, rc, "coll_comm_shrink: %s", text);
	coll_comm_discard(trial);
	return 0;
}

/* The library's side of what was joined. */
static int make(struct coll_comm *comm, const struct coll_survivors *s,
		const struct coll_config *config, struct coll_comm **made)
{
	char text[COLL_TEXT] = "";
	int rc;

	rc = coll_comm_new(made, comm->dev, s->nranks, s->rank, config, text, sizeof(text));
	if (!rc) {
		(*made)->id = s->id;
		inherit_costs(*made, comm);
		rc = inherit_machines(*made, comm, s->map);
		if (rc) {
			coll_comm_discard(*made);
			coll_text(text, sizeof(text), rc, "out of memory");
		}
	}
	return rc ? coll_fail(comm, rc, "coll_comm_shrink: %s", text) : 0;
}

/* Each rank can join the survivors once: what a call joined that failed then is the next one's. */
static struct coll_survivors *swap_joined(struct coll_comm *comm, struct coll_survivors *joined)
{
	struct coll_survivors *before;

	pthread_mutex_lock(&comm->dev->lock);
	before = comm->survivors;
	comm->survivors = joined;
	pthread_mutex_unlock(&comm->dev->lock);
	return before;
}

int coll_comm_shrink(struct coll_comm *comm, struct coll_comm **shrunk,
		     const struct coll_config *user)
{
	struct coll_survivors *joined;
	struct coll_config config;
	char text[COLL_TEXT];
	struct coll_comm *made;
	int rc;

	if (!shrunk)
		return -EINVAL;
	*shrunk = NULL;
	rc = coll_comm_enter(comm);
	if (rc)
		return rc;
	rc = coll_config_get(&config, user, text, sizeof(text));
	if (rc)
		return coll_fail(comm, rc, "coll_comm_shrink: %s", text);
	/* What the environment says is true of all ranks, not of those that are left. */
	if (!config.topology)
		config.topology = "";
	/* Nor is any file looked at: see inherit_costs(). */
	config.calibration = "";
	rc = check_config(comm, &config);
	if (rc)
		return rc;
	joined = swap_joined(comm, NULL);
	rc = joined ? 0 : join(comm, config.flags, &joined);
	if (!rc)
		rc = follow(&comm->dev->drv, config.flags, joined);
	if (rc)
		shrink_text(comm, rc);
	else
		rc = make(comm, joined, &config, &made);
	if (rc) {
		if (joined)
			swap_joined(comm, joined);
		return rc;
	}
	free(joined);
	pthread_mutex_lock(&comm->dev->lock);
	comm->dev->refs++;
	pthread_mutex_unlock(&comm->dev->lock);
	*shrunk = made;
	return 0;
}
