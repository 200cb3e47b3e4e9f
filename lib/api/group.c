// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * group.c - calls that are collected and started with one system call.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <npulink/verify.h>
#include "api/group.h"
#include "base/base.h"
#include "coll.h"
#include "run/board.h"
#include "run/comm.h"
#include "run/dev.h"
#include "run/drv.h"
#include "run/error.h"
#include "run/group_kept.h"
#include "run/op.h"
#include "run/repeat.h"
#include "run/request.h"

/* ---- opening */

/*
 * The groups that this thread has open, of whichever communicators: all of them end with the last
 * one. They have nothing else in common than their thread.
 */
static __thread struct coll_group *opened;

/* The one that calls of this thread in @comm go into, or NULL. */
COLL_HOT struct coll_group *coll_group_mine(const struct coll_comm *comm)
{
	if (!atomic_load_explicit(&comm->collecting, memory_order_relaxed))
		return NULL;
	for (struct coll_group *g = opened; g; g = g->later)
		if (atomic_load_explicit(&g->comm, memory_order_relaxed) == comm)
			return g;
	return NULL;
}

static void free_arrays(struct coll_group *g)
{
	free(g->v);
	free(g->kernels);
	free(g->posts);
}

static void free_group(struct coll_group *g)
{
	free_arrays(g);
	free(g);
}

/* Those whose communicators another thread has destroyed, or that the parent had before fork(). */
static void forget_strange(void)
{
	struct coll_group **p = &opened, *g;

	while ((g = *p)) {
		/* Another thread may be destroying it: it is not looked at. */
		struct coll_comm *comm = atomic_load(&g->comm);

		if (comm && g->process == getpid()) {
			p = &g->later;
			continue;
		}
		*p = g->later;
		if (!comm)
			free_group(g);
	}
}

/* One for this thread, rather that which it had before. Lock held. */
static struct coll_group *get_group(struct coll_comm *comm)
{
	struct coll_group *g, *found = NULL;

	for (g = comm->groups; g; g = g->next)
		if (!g->open && !g->running && (!found || pthread_equal(g->owner, pthread_self())))
			found = g;
	if (found)
		return found;
	g = calloc(1, sizeof(*g));
	if (!g)
		return NULL;
	atomic_store(&g->comm, comm);
	g->next = comm->groups;
	comm->groups = g;
	return g;
}

int coll_group_start(struct coll_comm *comm)
{
	struct coll_group *g, **last;
	int rc = coll_comm_enter(comm);

	if (rc)
		return rc;
	g = coll_group_mine(comm);
	if (g) {
		g->depth++;
		return 0;
	}
	forget_strange();
	pthread_mutex_lock(&comm->dev->lock);
	g = get_group(comm);
	if (g) {
		g->owner = pthread_self();
		g->process = comm->dev->process;
		g->open = true;
		g->depth = 1;
		g->n = 0;
		g->refused = 0;
		g->later = NULL;
		for (last = &opened; *last; last = &(*last)->later)
			;
		*last = g;
		atomic_fetch_add(&comm->collecting, 1);
	}
	pthread_mutex_unlock(&comm->dev->lock);
	return g ? 0 : coll_fail(comm, -ENOMEM, "out of memory");
}

/*
 * A call that belongs to the open group is refused with @rc. Then all of it is, by the end of the
 * group: without that call the next ones would meet what others called before theirs.
 */
int coll_group_refuse(struct coll_comm *comm, int rc)
{
	struct coll_group *g = coll_group_mine(comm);

	if (g && !g->refused)
		g->refused = rc;
	return rc;
}

/* The communicator goes. A thread that has still a group open is to find that out by itself. */
void coll_group_free_all(struct coll_comm *comm)
{
	struct coll_group *g, **p;

	while ((g = comm->groups)) {
		comm->groups = g->next;
		for (p = &opened; *p && *p != g; p = &(*p)->later)
			;
		/* One that another thread has open is that thread's from here on. */
		if (!*p && g->open) {
			atomic_store(&g->comm, NULL);
			continue;
		}
		if (*p)
			*p = g->later;
		free_group(g);
	}
}

/* ---- collecting */

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
	int rc = add(comm, coll_group_mine(comm), req);

	return rc ? coll_group_refuse(comm, rc) : 0;
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
			coll_self_end(req, coll_op_local(&req->op));
		else
			coll_self_start(req);
	}
	for (unsigned int i = 0; i < g->n; i++)
		if (g->v[i]->state == COLL_REQ_SELF && g->v[i]->blocking)
			coll_self_cancel(g->v[i], -EDEADLK);
}

/* And what is sent is copied. Drops the lock meanwhile. */
static int bind_all(struct coll_dev *dev, struct coll_request **v, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		int rc = coll_op_bind(&v[i]->op);

		if (!rc)
			continue;
		while (i--)
			coll_op_finish(&v[i]->op, rc);
		return rc;
	}
	pthread_mutex_unlock(&dev->lock);
	for (unsigned int i = 0; i < n; i++)
		coll_op_copy_in(&v[i]->op);
	pthread_mutex_lock(&dev->lock);
	return 0;
}

static void fail_all(struct coll_request **v, unsigned int n, int rc)
{
	for (unsigned int i = 0; i < n; i++)
		coll_self_end(v[i], rc);
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
 * Numbers for a batch: those that the board has given them, or the next ones. Gives how many come
 * before one that is bound to the board.
 */
static unsigned int number_all(struct coll_comm *comm, struct npulink_post *posts,
			       struct coll_request **v, unsigned int n, bool claimed)
{
	uint64_t number = coll_board_next(comm);
	unsigned int i;

	for (i = 0; i < n; i++) {
		if (coll_board_number(&v[i]->op, &posts[i], claimed ? v[i]->number : number))
			break;
		number += !!coll_op_numbered(&v[i]->op);
	}
	return i;
}

/*
 * Posts what the kernel gets. A batch that is refused part of the way has started
 * what comes before; the rest is tried again if there is a reason to. Drops the lock meanwhile.
 * @claimed: the board has given them numbers.
 */
static int post_all(struct coll_comm *comm, struct npulink_post *posts, struct coll_request **v,
		    unsigned int n, bool wait, bool claimed)
{
	struct coll_dev *dev = comm->dev;
	struct coll_comm *posting = NULL;
	unsigned int done = 0, len, some, stale = n;
	uint32_t posted;
	int rc;

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
		coll_board_flush_all(dev);
		coll_board_begin_post(posting);
		some = number_all(comm, posts, v + done, len, claimed);
		if (some) {
			rc = coll_drv_post_batch(&dev->drv, posts, some, wait && done + some == n ?
						 NPULINK_POST_WAIT : 0, &posted);
		} else {
			some = 1;
			rc = coll_board_follow(&v[done]->op, posts[0].number);
			posted = !rc;
			posts[0].out_seq = 0;
			posts[0].out_result.status = 0;
		}
		for (unsigned int i = 0; i < posted; i++)
			coll_board_posted(comm, &posts[i], 0);
		if (rc == -EALREADY && posted < len)
			coll_board_posted(comm, &posts[posted], rc);
		coll_board_end_post(posting);
		pthread_mutex_lock(&dev->lock);
		for (unsigned int i = 0; i < len; i++) {
			struct coll_request *req = v[done + i];

			if (i >= posted) {
				coll_request_land(req, COLL_REQ_QUEUED);
				continue;
			}
			/* It may be done by now, and even fetched if another thread knows it. */
			req->seq = posts[i].out_seq;
			if (!req->seq || (req->blocking && posts[i].out_result.seq))
				coll_request_done(req, posts[i].out_result.status);
		}
		done += posted;
		if (posted == some)
			continue;	/* rc is about waiting, which goes on below */
		if (rc == -ESTALE && stale != done) {
			stale = done;
			rc = coll_op_rebind(&v[done]->op);
			if (!rc) {
				coll_op_copy_in(&v[done]->op);
				continue;
			}
			if (claimed)
				coll_board_withdraw(comm, v[done]->number, rc);
			/* That has its own text, and the buffers of the others are still bound. */
			coll_self_end(v[done], rc);
			while (++done < n) {
				coll_op_finish(&v[done]->op, rc);
				coll_self_end(v[done], rc);
			}
			return rc;
		}
		if (rc == -EBUSY) {
			make_room(dev, v, done);
			continue;
		}
		if (rc == -EINTR || (rc == -EALREADY && !claimed))
			continue;
		if (claimed)
			coll_board_withdraw(comm, v[done]->number, rc);
		for (unsigned int i = done; i < n; i++) {
			coll_op_finish(&v[i]->op, rc);
			coll_self_end(v[i], rc);
		}
		return coll_fail_op(&v[done]->op, rc);
	}
	return 0;
}

/*
 * Calls, none of them a request, that need no kernel because all ranks meet on the board. Others
 * stay in @v, with the numbers that they have to be posted with, and how many they are is returned.
 * With a claim. The lock is dropped meanwhile.
 */
static unsigned int meet_all(struct coll_comm *comm, struct coll_request **v, unsigned int n)
{
	struct coll_dev *dev = comm->dev;
	unsigned int at = 0, left = 0, tried;

	pthread_mutex_unlock(&dev->lock);
	for (unsigned int i = 0; i < n; i++)
		v[i]->met = false;
	/* There is room for some at a time. What has not met has to be posted next. */
	do {
		tried = n - at - coll_board_group(comm, v + at, n - at);
		at += tried;
	} while (tried && at < n && v[at - 1]->met && coll_board_next(comm) == v[at]->number);
	pthread_mutex_lock(&dev->lock);
	for (unsigned int i = 0; i < n; i++) {
		if (v[i]->met)
			coll_self_end(v[i], 0);
		else
			v[left++] = v[i];
	}
	return left;
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

/* How many calls the kernel gets; of them, requests, and messages. */
static unsigned int tally(const struct coll_group *g, unsigned int *requests,
			  unsigned int *messages)
{
	unsigned int n = 0;

	*requests = 0;
	*messages = 0;
	for (unsigned int i = 0; i < g->n; i++) {
		const struct coll_request *req = g->v[i];

		if (!is_kernels(req))
			continue;
		n++;
		*requests += !req->blocking;
		*messages += !coll_op_numbered(&req->op);
	}
	return n;
}

static void await(struct coll_dev *dev, struct coll_request **v, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		while (v[i]->blocking && v[i]->state == COLL_REQ_INFLIGHT)
			fetch_held(dev, v[i], COLL_NEVER);
		if (!v[i]->blocking || v[i]->state != COLL_REQ_LANDED)
			continue;
		pthread_mutex_unlock(&dev->lock);
		coll_request_settle(v[i]);
		pthread_mutex_lock(&dev->lock);
	}
}

/* Everything that was collected. Lock held. */
static int group_run(struct coll_comm *comm, struct coll_group *g)
{
	struct coll_request **v = g->kernels;
	unsigned int requests, messages, n = tally(g, &requests, &messages);
	bool claimed = false;
	int rc = has_room(comm, n, requests);

	if (rc) {
		fail_all(g->v, g->n, rc);
		return rc;
	}
	run_local(g, v);
	/* Others may call what is on the board only when they have a message of this group. */
	if (n && !requests && !messages && coll_board_claim(comm)) {
		n = meet_all(comm, v, n);
		claimed = n;
		if (!n)
			coll_board_let_go(comm);
	}
	rc = bind_all(comm->dev, v, n);
	if (rc) {
		if (claimed)
			coll_board_withdraw(comm, v[0]->number, rc);
		fail_all(v, n, rc);
	} else if (n) {
		rc = post_all(comm, g->posts, v, n, !requests && !claimed, claimed);
	}
	/* They have their numbers: others need not wait for their end. */
	if (claimed)
		coll_board_let_go(comm);
	await(comm->dev, v, n);
	return rc;
}

/* ---- of several communicators, which may wait for each other: first start all, then wait */

/* Together with what others of @groups have of the same device. Lock held. */
static int check(struct coll_group *g, struct coll_group *groups)
{
	unsigned int n = 0, requests = 0, some, messages;

	for (struct coll_group *o = groups; o; o = o->later) {
		if (o->comm->dev != g->comm->dev)
			continue;
		n += tally(o, &some, &messages);
		requests += some;
	}
	return g->refused ?: has_room(g->comm, n, requests);
}

static int prepare(struct coll_group *g, struct coll_group *groups)
{
	(void)groups;
	for (unsigned int i = 0; i < g->n; i++)
		g->nkernels += is_kernels(g->v[i]);
	run_local(g, g->kernels);
	return 0;
}

static int bind(struct coll_group *g, struct coll_group *groups)
{
	(void)groups;
	return bind_all(g->comm->dev, g->kernels, g->nkernels);
}

static int post(struct coll_group *g, struct coll_group *groups)
{
	int rc = post_all(g->comm, g->posts, g->kernels, g->nkernels, false, false);

	/* Each call of a communicator that has failed says so; the others are none the worse. */
	if (!rc || coll_is_failure(rc))
		return 0;
	/* What is in flight may wait for that for ever. */
	for (struct coll_group *o = groups; o != g; o = o->later)
		if (o->nkernels)
			coll_drv_comm_abort(&o->comm->dev->drv, o->comm->id, -rc);
	return rc;
}

/* One thing for each group, until it fails for *culprit. */
static int each(struct coll_group *groups, struct coll_group **culprit,
		int (*step)(struct coll_group *g, struct coll_group *groups))
{
	int rc = 0;

	for (struct coll_group *g = groups; g && !rc; g = g->later) {
		pthread_mutex_lock(&g->comm->dev->lock);
		rc = step(g, groups);
		pthread_mutex_unlock(&g->comm->dev->lock);
		*culprit = g;
	}
	return rc;
}

/* Everything that was collected: is started, or nothing is unless it is refused by the kernel. */
static int start_several(struct coll_group *groups, struct coll_group **culprit)
{
	struct coll_group *first = groups;
	int rc = each(groups, culprit, check);

	if (!rc) {
		each(groups, culprit, prepare);
		rc = each(groups, culprit, bind);
		if (!rc) {
			rc = each(groups, culprit, post);
			first = (*culprit)->later;
		}
		for (struct coll_group *g = first; rc && g; g = g->later) {
			pthread_mutex_lock(&g->comm->dev->lock);
			for (unsigned int i = 0; i < g->nkernels; i++)
				coll_op_finish(&g->kernels[i]->op, rc);
			fail_all(g->kernels, g->nkernels, rc);
			pthread_mutex_unlock(&g->comm->dev->lock);
		}
		return rc;
	}
	for (struct coll_group *g = groups; g; g = g->later) {
		pthread_mutex_lock(&g->comm->dev->lock);
		fail_all(g->v, g->n, rc);
		pthread_mutex_unlock(&g->comm->dev->lock);
	}
	return rc;
}

/* ---- ending */

/* For new calls, but it is nobody else's until its memory is not needed. Lock held. */
static void close_group(struct coll_group *g)
{
	g->running = true;
	g->open = false;
	g->nkernels = 0;
	atomic_fetch_sub(&g->comm->collecting, 1);
}

/* All of it has ended. Returns @rc, or the first error in the order of the calls. Lock held. */
static int end_group(struct coll_group *g, int rc)
{
	bool told = rc;

	for (unsigned int i = 0; i < g->n; i++) {
		struct coll_request *req = g->v[i];

		if (req->blocking && req->op.status && !rc)
			rc = req->op.status;
		if (req->blocking && req->op.status && !told) {
			told = true;
			coll_fail_op(&req->op, req->op.status);
		}
		coll_group_keep(g, i, req);
	}
	while (g->nkept > g->n)
		coll_group_drop(g, --g->nkept);
	g->nkept = g->n < COLL_GROUP_KEPT ? g->n : COLL_GROUP_KEPT;
	g->running = false;
	return rc;
}

static int end_one(struct coll_group *g)
{
	struct coll_comm *comm = g->comm;
	int rc = g->refused;

	pthread_mutex_lock(&comm->dev->lock);
	close_group(g);
	if (rc)
		fail_all(g->v, g->n, rc);
	else
		rc = group_run(comm, g);
	rc = end_group(g, rc);
	pthread_mutex_unlock(&comm->dev->lock);
	return rc;
}

/* @comm is to be told about it. */
static int end_several(struct coll_comm *comm, struct coll_group *groups)
{
	struct coll_group *g, *later, *culprit = NULL;
	struct coll_comm *failed;
	int rc, one;

	for (g = groups; g; g = g->later) {
		pthread_mutex_lock(&g->comm->dev->lock);
		close_group(g);
		pthread_mutex_unlock(&g->comm->dev->lock);
	}
	rc = start_several(groups, &culprit);
	failed = rc ? culprit->comm : NULL;
	for (g = groups; g; g = g->later) {
		pthread_mutex_lock(&g->comm->dev->lock);
		await(g->comm->dev, g->kernels, g->nkernels);
		pthread_mutex_unlock(&g->comm->dev->lock);
	}
	for (g = groups; g; g = later) {
		struct coll_comm *its = g->comm;

		later = g->later;
		pthread_mutex_lock(&its->dev->lock);
		one = end_group(g, its == failed ? rc : 0);
		pthread_mutex_unlock(&its->dev->lock);
		if (one && !rc) {
			rc = one;
			failed = its;
		}
	}
	if (failed && failed != comm)
		coll_fail(comm, rc, "rank %u of another communicator of the group: %s",
			  failed->rank, coll_comm_last_error(failed));
	return rc;
}

int coll_group_end(struct coll_comm *comm)
{
	struct coll_group *g, *o, *groups;
	int rc = coll_comm_enter(comm);

	if (rc)
		return rc;
	g = coll_group_mine(comm);
	/* One alone is what the caller knows. */
	if (opened != g || (g && g->later))
		forget_strange();
	/* It was ended before, and is over now if what kept it open has gone. */
	for (o = opened; o && g && !g->depth; o = o->later)
		if (o->depth)
			g = NULL;
	if (!g)
		return coll_fail(comm, -EINVAL, "%s: this thread has opened no group", __func__);
	if (g->depth)
		g->depth--;
	for (g = opened; g; g = g->later)
		if (g->depth)
			return 0;
	groups = opened;
	opened = NULL;
	return groups->later ? end_several(comm, groups) : end_one(groups);
}

/* May all of them be on the board? If one has to be posted, the others fall. */
static bool are_small(unsigned int n, struct coll_request **requests)
{
	for (unsigned int i = 0; i < n; i++)
		if (!requests[i]->op.plan || !requests[i]->op.plan->board.code)
			return false;
	return n <= COLL_BOARD_SLOTS / 2;
}

/*
 * Idle requests, with one system call or none, unless they go into the group that this thread has
 * open. Otherwise they are no group of the communicator: other threads may have theirs, or start
 * some.
 */
int coll_group_start_all(struct coll_comm *comm, unsigned int n, struct coll_request **requests)
{
	struct coll_group own = { }, *mine = coll_group_mine(comm);
	unsigned int first = 0;
	int rc;

	if (mine) {
		rc = add_all(comm, mine, n, requests);
		return rc ? coll_group_refuse(comm, rc) : 0;
	}
	rc = add_all(comm, &own, n, requests);
	/* If the board takes not all of them after all, those behind have the next numbers. */
	while (!rc && first < n && are_small(n, requests) && coll_board_start(own.v[first]))
		first++;
	own.n -= first;
	if (!rc && own.n) {
		memmove(own.v, own.v + first, own.n * sizeof(*own.v));
		pthread_mutex_lock(&comm->dev->lock);
		rc = group_run(comm, &own);
		pthread_mutex_unlock(&comm->dev->lock);
	}
	free_arrays(&own);
	return rc;
}
