// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * group.c - calls that are collected and started with one system call, and
 * sends to the own rank, which the kernel never sees.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <npulink/verify.h>
#include "internal.h"

/* ---- own rank to own rank */

static void self_end(struct coll_request *req, int status)
{
	req->op.status = status;
	atomic_store_explicit(&req->state, COLL_REQ_DONE, memory_order_release);
}

/* Meets the oldest counterpart, or waits for one. Lock held. */
void coll_self_start(struct coll_request *req)
{
	struct coll_comm *comm = req->op.comm;
	bool sends = req->op.args.send;
	struct coll_request *other, **list = sends ? &comm->self_recvs : &comm->self_sends;
	const struct coll_operation *from, *to;
	int rc = 0;

	other = *list;
	if (!other) {
		list = sends ? &comm->self_sends : &comm->self_recvs;
		while (*list)
			list = &(*list)->next;
		*list = req;
		req->next = NULL;
		atomic_store(&req->state, COLL_REQ_SELF);
		return;
	}
	*list = other->next;
	other->next = NULL;
	from = sends ? &req->op : &other->op;
	to = sends ? &other->op : &req->op;
	if (from->args.count != to->args.count || from->args.dtype != to->args.dtype)
		rc = -EPROTO;
	else if (from->args.count)
		memmove(to->buf[NPULINK_SLOT_RECV], from->buf[NPULINK_SLOT_SEND],
			from->args.count * npulink_dtype_size(from->args.dtype));
	self_end(req, rc);
	self_end(other, rc);
}

/* Takes one back that has no counterpart. Lock held. */
void coll_self_cancel(struct coll_request *req, int status)
{
	struct coll_comm *comm = req->op.comm;
	struct coll_request **list = req->op.args.send ? &comm->self_sends : &comm->self_recvs;

	while (*list != req)
		list = &(*list)->next;
	*list = req->next;
	req->next = NULL;
	self_end(req, status);
}

/* ---- collecting */

COLL_HOT bool coll_group_mine(struct coll_comm *comm)
{
	struct coll_group *g = &comm->group;

	return atomic_load_explicit(&g->open, memory_order_acquire) &&
	       pthread_equal(g->owner, pthread_self());
}

int coll_group_start(struct coll_comm *comm)
{
	struct coll_group *g;
	int rc = coll_comm_enter(comm);

	if (rc)
		return rc;
	g = &comm->group;
	pthread_mutex_lock(&comm->dev->lock);
	if (g->open || g->running) {
		rc = -EBUSY;
	} else {
		g->owner = pthread_self();
		g->n = 0;
		g->refused = 0;
		atomic_store_explicit(&g->open, true, memory_order_release);
	}
	pthread_mutex_unlock(&comm->dev->lock);
	return rc ? coll_fail(comm, rc, "%s: a group is open already", __func__) : 0;
}

/*
 * A call that belongs to the open group is refused with @rc. Then all of it is, by the end of the
 * group: without that call the next ones would meet what others called before theirs.
 */
int coll_group_refuse(struct coll_comm *comm, int rc)
{
	struct coll_group *g = &comm->group;

	if (coll_group_mine(comm) && !g->refused)
		g->refused = rc;
	return rc;
}

/* Only what was collected is kept; the other arrays are for group_run(). */
static bool grow(struct coll_group *g)
{
	unsigned int cap = g->cap ? 2 * g->cap : 16;
	struct coll_request **v = malloc(cap * sizeof(*v));
	struct coll_request **kernels = malloc(cap * sizeof(*kernels));
	struct npulink_post *posts = malloc(cap * sizeof(*posts));

	if (!v || !kernels || !posts) {
		free(v);
		free(kernels);
		free(posts);
		return false;
	}
	if (g->n)
		memcpy(v, g->v, g->n * sizeof(*v));
	free(g->v);
	free(g->kernels);
	free(g->posts);
	g->v = v;
	g->kernels = kernels;
	g->posts = posts;
	g->cap = cap;
	return true;
}

static int add(struct coll_comm *comm, struct coll_group *g, struct coll_request *req)
{
	int idle = COLL_REQ_IDLE;

	if (g->n == g->cap && !grow(g))
		return coll_fail(comm, -ENOMEM, "out of memory");
	/* Another thread may be starting it, too. */
	if (!atomic_compare_exchange_strong(&req->state, &idle, COLL_REQ_QUEUED))
		return coll_fail(comm, -EBUSY, "a request has been started and not waited for");
	g->v[g->n++] = req;
	return 0;
}

/* All of them, or none. */
static int add_all(struct coll_comm *comm, struct coll_group *g, unsigned int n,
		   struct coll_request **requests)
{
	unsigned int before = g->n;
	int rc = 0;

	for (unsigned int i = 0; i < n && !rc; i++)
		rc = add(comm, g, requests[i]);
	while (rc && g->n > before)
		atomic_store(&g->v[--g->n]->state, COLL_REQ_IDLE);
	return rc;
}

int coll_group_add(struct coll_comm *comm, struct coll_request *req)
{
	int rc = add(comm, &comm->group, req);

	return rc ? coll_group_refuse(comm, rc) : 0;
}

/* ---- groups that come again */

/*
 * The call that was at this place of the last group is planned already. True if it is the same
 * again: then it is in this one. For the owner of an open group, without the lock.
 */
COLL_HOT bool coll_group_again(struct coll_comm *comm, const struct coll_args *args,
			       const void *send, const void *recv)
{
	struct coll_group *g = &comm->group;
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

static void drop(struct coll_group *g, unsigned int i)
{
	if (g->kept[i])
		coll_request_put(g->kept[i]);
	g->kept[i] = NULL;
}

/* Call @i has ended: for the next group, or back to the pool. Lock held. */
static void keep(struct coll_group *g, unsigned int i, struct coll_request *req)
{
	if (i < COLL_GROUP_KEPT)
		drop(g, i);
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
 * Somebody needs what they hold, or it is the end. False if there is nothing, or another thread may
 * be looking at them. Lock held.
 */
bool coll_group_forget(struct coll_comm *comm)
{
	struct coll_group *g = &comm->group;

	if (!g->nkept || (atomic_load(&g->open) && !coll_group_mine(comm)))
		return false;
	while (g->nkept)
		drop(g, --g->nkept);
	return true;
}

void coll_group_free(struct coll_group *g)
{
	free(g->v);
	free(g->kernels);
	free(g->posts);
}

/* ---- starting; lock held */

static bool is_kernels(const struct coll_request *req)
{
	return req->op.plan;
}

/* What needs no kernel is done at once; the rest goes to @v. */
static void run_local(struct coll_group *g, struct coll_request **v)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < g->n; i++) {
		struct coll_request *req = g->v[i];

		if (is_kernels(req))
			v[n++] = req;
		else if (coll_op_is_local(&req->op))
			self_end(req, coll_op_local(&req->op));
		else
			coll_self_start(req);
	}
	for (unsigned int i = 0; i < g->n; i++)
		if (g->v[i]->state == COLL_REQ_SELF && g->v[i]->blocking)
			coll_self_cancel(g->v[i], -EDEADLK);
}

static int bind_all(struct coll_request **v, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		int rc = coll_op_bind(&v[i]->op);

		if (!rc) {
			coll_op_copy_in(&v[i]->op);
			continue;
		}
		while (i--)
			coll_op_finish(&v[i]->op, rc);
		return rc;
	}
	return 0;
}

static void fail_all(struct coll_request **v, unsigned int n, int rc)
{
	for (unsigned int i = 0; i < n; i++)
		self_end(v[i], rc);
}

/* A held result. Drops the lock meanwhile. False: it has not ended by then. */
static bool fetch_held(struct coll_dev *dev, struct coll_request *req, uint64_t until_ns)
{
	struct npulink_result result;
	int rc;

	pthread_mutex_unlock(&dev->lock);
	rc = coll_drv_wait(&dev->drv, req->seq, until_ns, &result);
	pthread_mutex_lock(&dev->lock);
	if (rc == -ETIME || rc == -EINTR)
		return false;
	coll_request_done(req, rc ? rc : result.status);
	return true;
}

/*
 * The kernel takes no more operations. Those of ours that have ended, and whose results nobody has
 * fetched, count, too; so do those of other groups, which do the same.
 */
static void make_room(struct coll_dev *dev, struct coll_request **v, unsigned int n)
{
	bool some = false;

	for (unsigned int i = 0; i < n; i++)
		if (v[i]->blocking && v[i]->state == COLL_REQ_INFLIGHT)
			some |= fetch_held(dev, v[i], 0);
	if (!some)
		coll_make_room(dev, true);
}

/*
 * Posts what the kernel gets. A batch that is refused part of the way has started
 * what comes before; the rest is tried again if there is a reason to. Drops the lock meanwhile.
 * @claimed: they are on the board.
 */
static int post_all(struct coll_comm *comm, struct npulink_post *posts, struct coll_request **v,
		    unsigned int n, bool wait, bool claimed)
{
	struct coll_dev *dev = comm->dev;
	struct coll_comm *posting = NULL;
	unsigned int done = 0, len, stale = n, pauses = 0, looks = 0;
	uint32_t posted;
	bool again;
	int rc = 0;

	for (unsigned int i = 0; i < n && !claimed && !posting; i++)
		posting = coll_op_numbered(&v[i]->op);
	while (done < n) {
		len = n - done < NPULINK_MAX_BATCH ? n - done : NPULINK_MAX_BATCH;
		for (unsigned int i = 0; i < len; i++) {
			struct coll_request *req = v[done + i];

			coll_request_launch(req);
			posts[i] = req->op.post;
			posts[i].flags = req->blocking ? NPULINK_POST_HELD : 0;
			posts[i].wait_until_ns = 0;
		}
		pthread_mutex_unlock(&dev->lock);
		if (rc == -EALREADY)
			coll_board_unmet(&looks);
		coll_board_begin_post(posting);
		rc = coll_drv_post_batch(&dev->drv, posts, len,
					 wait && done + len == n ? NPULINK_POST_WAIT : 0, &posted);
		coll_board_end_post(posting);
		pthread_mutex_lock(&dev->lock);
		for (unsigned int i = 0; i < len; i++) {
			struct coll_request *req = v[done + i];

			if (i >= posted) {
				coll_request_land(req, COLL_REQ_QUEUED);
				continue;
			}
			req->put = 0;
			/* It may be done by now, and even fetched if another thread knows it. */
			req->seq = posts[i].out_seq;
			if (req->blocking && posts[i].out_result.seq)
				coll_request_done(req, posts[i].out_result.status);
		}
		done += posted;
		if (posted == len)
			continue;	/* rc is about waiting, which goes on below */
		if (rc == -ESTALE && stale != done) {
			stale = done;
			rc = coll_op_rebind(&v[done]->op);
			if (!rc)
				continue;
			coll_board_withdraw(comm, v + done, n - done, rc);
			/* That has its own text, and the buffers of the others are still bound. */
			self_end(v[done], rc);
			while (++done < n) {
				coll_op_finish(&v[done]->op, rc);
				self_end(v[done], rc);
			}
			return rc;
		}
		if (rc == -EBUSY) {
			make_room(dev, v, done);
			continue;
		}
		if (rc == -EALREADY && coll_board_end_request(v[done])) {
			coll_op_unbind(&v[done]->op);
			self_end(v[done++], 0);
			rc = 0;
			continue;
		}
		if (rc == -EINTR || rc == -EALREADY)
			continue;
		/* What others may have met cannot be withdrawn. */
		if (v[done]->put && rc == -ENOMEM) {
			pthread_mutex_unlock(&dev->lock);
			again = coll_board_patience(&pauses);
			pthread_mutex_lock(&dev->lock);
			if (again)
				continue;
		}
		coll_board_withdraw(comm, v + done, n - done, rc);
		for (unsigned int i = done; i < n; i++) {
			coll_op_finish(&v[i]->op, rc);
			self_end(v[i], rc);
		}
		return coll_fail_op(&v[done]->op, rc);
	}
	return 0;
}

/* The board, for several calls: neither who makes one nor who posts some may come between. */
static bool claim(struct coll_comm *comm)
{
	if (!coll_repeats_hold(comm))
		return false;
	if (coll_board_claim(comm))
		return true;
	coll_repeats_release(comm);
	return false;
}

static void let_go(struct coll_comm *comm)
{
	coll_board_let_go(comm);
	coll_repeats_release(comm);
}

/*
 * Calls, none of them a request, that need no kernel because all ranks meet on the board: these
 * come first, and their number is returned. The lock is dropped meanwhile.
 */
static unsigned int meet_all(struct coll_comm *comm, struct coll_request **v, unsigned int n)
{
	struct coll_dev *dev = comm->dev;
	unsigned int met = 0, some;

	pthread_mutex_unlock(&dev->lock);
	/* There is room for some at a time. What was put and not met has to be posted next. */
	do {
		some = coll_board_group(comm, v + met, n - met);
		met += some;
	} while (some && met < n && !v[met]->put);
	pthread_mutex_lock(&dev->lock);
	for (unsigned int i = 0; i < met; i++)
		self_end(v[i], 0);
	return met;
}

/* Can all of them be in flight? */
static int has_room(struct coll_comm *comm, unsigned int n, unsigned int requests)
{
	struct coll_dev *dev = comm->dev;
	int rc;

	if (n > dev->info.out_max_inflight || requests > dev->ring_entries)
		return coll_fail(comm, -EBUSY,
				 "a group of %u calls, %u of them requests: at most %u and %u (coll_config.inflight) can be in flight",
				 n, requests, dev->info.out_max_inflight, dev->ring_entries);
	rc = requests ? coll_ring_setup(dev) : 0;
	if (rc)
		coll_fail_pin(comm, NULL, NULL,
			      dev->ring_entries * sizeof(struct npulink_result), rc);
	return rc;
}

/* Everything that was collected. Lock held. */
static int group_run(struct coll_comm *comm, struct coll_group *g)
{
	struct coll_request **v = g->kernels;
	unsigned int n = 0, requests = 0, messages = 0, met;
	bool claimed = false;
	int rc;

	for (unsigned int i = 0; i < g->n; i++) {
		const struct coll_request *req = g->v[i];

		if (!is_kernels(req))
			continue;
		n++;
		requests += !req->blocking;
		messages += !coll_op_numbered(&req->op);
	}
	rc = has_room(comm, n, requests);
	if (rc) {
		fail_all(g->v, g->n, rc);
		return rc;
	}
	run_local(g, v);
	/* Others may call what is on the board only when they have a message of this group. */
	if (n && !requests && !messages)
		claimed = claim(comm);
	if (claimed) {
		met = meet_all(comm, v, n);
		v += met;
		n -= met;
	}
	if (claimed && !(n && v[0]->put)) {
		let_go(comm);
		claimed = false;
	}
	rc = bind_all(v, n);
	if (rc) {
		coll_board_withdraw(comm, v, n, rc);
		fail_all(v, n, rc);
	} else if (n) {
		rc = post_all(comm, g->posts, v, n, !requests && !claimed, claimed);
	}
	/* They have their numbers: others need not wait for their end. */
	if (claimed)
		let_go(comm);
	for (unsigned int i = 0; i < n; i++)
		while (v[i]->blocking && v[i]->state == COLL_REQ_INFLIGHT)
			fetch_held(comm->dev, v[i], COLL_NEVER);
	return rc;
}

int coll_group_end(struct coll_comm *comm)
{
	struct coll_group *g;
	bool told;
	int rc = coll_comm_enter(comm);

	if (rc)
		return rc;
	g = &comm->group;
	if (!coll_group_mine(comm))
		return coll_fail(comm, -EINVAL, "%s: this thread has opened no group", __func__);
	pthread_mutex_lock(&comm->dev->lock);
	/* Closed for new calls, but nobody else's until its memory is not needed. */
	g->running = true;
	atomic_store_explicit(&g->open, false, memory_order_release);
	rc = g->refused;
	if (rc)
		fail_all(g->v, g->n, rc);
	else
		rc = group_run(comm, g);
	told = rc;
	for (unsigned int i = 0; i < g->n; i++) {
		struct coll_request *req = g->v[i];

		if (req->blocking && req->op.status && !rc)
			rc = req->op.status;
		if (req->blocking && req->op.status && !told) {
			told = true;
			coll_fail_op(&req->op, req->op.status);
		}
		keep(g, i, req);
	}
	while (g->nkept > g->n)
		drop(g, --g->nkept);
	g->nkept = g->n < COLL_GROUP_KEPT ? g->n : COLL_GROUP_KEPT;
	g->running = false;
	pthread_mutex_unlock(&comm->dev->lock);
	return rc;
}

/*
 * Idle requests, with one system call, unless they go into the group that this thread has open.
 * Otherwise they are no group of the communicator: other threads may have theirs, or start some.
 */
int coll_group_start_all(struct coll_comm *comm, unsigned int n, struct coll_request **requests)
{
	struct coll_group own = { };
	int rc;

	if (coll_group_mine(comm)) {
		rc = add_all(comm, &comm->group, n, requests);
		return rc ? coll_group_refuse(comm, rc) : 0;
	}
	rc = add_all(comm, &own, n, requests);
	if (!rc) {
		pthread_mutex_lock(&comm->dev->lock);
		rc = group_run(comm, &own);
		pthread_mutex_unlock(&comm->dev->lock);
	}
	coll_group_free(&own);
	return rc;
}
