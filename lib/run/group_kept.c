// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * group_kept.c - groups that come again: their calls are kept from one to the next.
 */
#include <pthread.h>
#include "base/base.h"
#include "run/comm.h"
#include "run/group_kept.h"
#include "run/op.h"
#include "run/request.h"

/*
 * The call that was at this place of the last group is planned already. True if it is the same
 * again: then it is in this one. For the owner of an open group, without the lock.
 */
COLL_HOT bool coll_group_again(struct coll_group *g, const struct coll_args *args,
			       const void *send, const void *recv)
{
	struct coll_request *req = g->n < g->nkept ? g->kept[g->n] : NULL;

	if (!req || !coll_op_is_call(&req->op, args))
		return false;
	if (!coll_op_has(&req->op, send, recv)) {
		if (!coll_buffers_replace(&req->op, send, recv))
			return false;
		req->prepared = false;
	}
	g->kept[g->n] = NULL;
	atomic_store_explicit(&g->hits, g->hits + 1, memory_order_relaxed);
	atomic_store_explicit(&req->state, COLL_REQ_QUEUED, memory_order_relaxed);
	/* That there was room for the last group's. */
	g->v[g->n++] = req;
	return true;
}

/* The call that is kept at place @i, if one is, goes. Lock held. */
void coll_group_drop(struct coll_group *g, unsigned int i)
{
	if (g->kept[i])
		coll_request_put(g->kept[i]);
	g->kept[i] = NULL;
}

/* Call @i has ended: for the next group, or back to the pool. Lock held. */
void coll_group_keep(struct coll_group *g, unsigned int i, struct coll_request *req)
{
	if (i < COLL_GROUP_KEPT)
		coll_group_drop(g, i);
	if (!req->blocking)
		return;
	if (i >= COLL_GROUP_KEPT || req->op.status || !coll_op_may_repeat(&req->op)) {
		coll_request_put(req);
		return;
	}
	atomic_store_explicit(&req->state, COLL_REQ_IDLE, memory_order_relaxed);
	g->kept[i] = req;
}

/*
 * Somebody needs what they hold, or it is the end. False if there is nothing, or other threads may
 * be looking at them. Lock held.
 */
bool coll_group_forget(struct coll_comm *comm)
{
	bool some = false;

	for (struct coll_group *g = comm->groups; g; g = g->next) {
		if (g->open && !pthread_equal(g->owner, pthread_self()))
			continue;
		some |= g->nkept;
		while (g->nkept)
			coll_group_drop(g, --g->nkept);
	}
	return some;
}

/* Lock held. */
uint64_t coll_group_hits(const struct coll_comm *comm)
{
	uint64_t hits = 0;

	for (const struct coll_group *g = comm->groups; g; g = g->next)
		hits += atomic_load_explicit(&g->hits, memory_order_relaxed);
	return hits;
}
