// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * request.c - operations that outlive their call: the pool of requests, the
 * completion ring, starting and leaving.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/base.h"
#include "run/board.h"
#include "run/comm.h"
#include "run/dev.h"
#include "run/drv.h"
#include "run/error.h"
#include "run/group_kept.h"
#include "run/op.h"
#include "run/request.h"

#define CHUNK	32U

/* ---- pool; lock held */

static bool pool_grow(struct coll_dev *dev)
{
	struct coll_request **chunks, *chunk = calloc(CHUNK, sizeof(*chunk));

	if (!chunk)
		return false;
	chunks = realloc(dev->chunks, (dev->nchunks + 1) * sizeof(*chunks));
	if (!chunks) {
		free(chunk);
		return false;
	}
	dev->chunks = chunks;
	for (unsigned int i = CHUNK; i--;) {
		chunk[i].dev = dev;
		chunk[i].index = dev->nchunks * CHUNK + i;
		chunk[i].next = dev->free;
		dev->free = &chunk[i];
	}
	dev->chunks[dev->nchunks++] = chunk;
	return true;
}

/* Whose operation the caller fills in. */
struct coll_request *coll_request_get(struct coll_dev *dev)
{
	struct coll_request *req;

	if (!dev->free && !pool_grow(dev))
		return NULL;
	req = dev->free;
	dev->free = req->next;
	req->next = NULL;
	req->prev = NULL;
	req->seq = 0;
	req->persistent = false;
	req->blocking = false;
	req->prepared = false;
	req->met = false;
	atomic_store_explicit(&req->state, COLL_REQ_IDLE, memory_order_relaxed);
	return req;
}

void coll_request_put(struct coll_request *req)
{
	coll_op_unplan(&req->op);
	req->op.comm = NULL;
	req->generation++;
	atomic_store_explicit(&req->state, COLL_REQ_FREE, memory_order_relaxed);
	req->next = req->dev->free;
	req->dev->free = req;
}

uint64_t coll_request_cookie(const struct coll_request *req)
{
	return (uint64_t)req->generation << 32 | req->index;
}

/* NULL: there are not so many. */
struct coll_request *coll_request_of(const struct coll_dev *dev, unsigned int index)
{
	return index / CHUNK < dev->nchunks ? &dev->chunks[index / CHUNK][index % CHUNK] : NULL;
}

/* ---- in flight; lock held */

/* Before it is posted: its record may come before POST returns. */
void coll_request_launch(struct coll_request *req)
{
	struct coll_dev *dev = req->dev;

	req->generation++;
	req->seq = 0;
	req->op.post.cookie = coll_request_cookie(req);
	atomic_store_explicit(&req->state, COLL_REQ_INFLIGHT, memory_order_relaxed);
	if (req->blocking)
		return;
	req->next = NULL;
	req->prev = dev->inflight_last;
	*(req->prev ? &req->prev->next : &dev->inflight_first) = req;
	dev->inflight_last = req;
}

/* It has ended, or could not be posted. */
void coll_request_land(struct coll_request *req, int state)
{
	struct coll_dev *dev = req->dev;

	if (!req->blocking) {
		*(req->prev ? &req->prev->next : &dev->inflight_first) = req->next;
		*(req->next ? &req->next->prev : &dev->inflight_last) = req->prev;
		req->next = NULL;
		req->prev = NULL;
	}
	atomic_store_explicit(&req->state, state, memory_order_release);
}

void coll_request_done(struct coll_request *req, int status)
{
	/* Whoever waits for it copies: the others do not wait for that. */
	if (!status && coll_op_is_staged(&req->op)) {
		coll_request_land(req, COLL_REQ_LANDED);
		return;
	}
	coll_op_finish(&req->op, status);
	coll_request_land(req, COLL_REQ_DONE);
}

/* The caller's, and LANDED at least: its results go where they belong. Without the lock. */
void coll_request_settle(struct coll_request *req)
{
	bool landed;

	pthread_mutex_lock(&req->dev->lock);
	landed = req->state == COLL_REQ_LANDED;
	req->settling = landed;
	pthread_mutex_unlock(&req->dev->lock);
	if (!landed)
		return;
	coll_op_copy_out(&req->op, 0);
	pthread_mutex_lock(&req->dev->lock);
	req->settling = false;
	coll_op_end(&req->op, 0);
	atomic_store_explicit(&req->state, COLL_REQ_DONE, memory_order_release);
	pthread_mutex_unlock(&req->dev->lock);
}

/* The same with the lock held, for one that nobody waits for. False: it is not like that. */
bool coll_request_settle_now(struct coll_request *req)
{
	if (req->state != COLL_REQ_LANDED || req->settling)
		return false;
	coll_op_finish(&req->op, 0);
	atomic_store_explicit(&req->state, COLL_REQ_DONE, memory_order_release);
	return true;
}

/* Memory is needed: give back what results are in. False: there are none. */
bool coll_requests_settle(struct coll_dev *dev)
{
	bool some = false;

	for (unsigned int i = 0; i < dev->nchunks * CHUNK; i++)
		some |= coll_request_settle_now(&dev->chunks[i / CHUNK][i % CHUNK]);
	return some;
}

/* ---- ring; lock held */

int coll_ring_setup(struct coll_dev *dev)
{
	void *map;
	int rc;

	if (dev->ring)
		return 0;
	if (!dev->ring_len) {
		rc = coll_drv_ring_setup(&dev->drv, dev->ring_entries, &dev->ring_len);
		if (rc)
			return rc;
	}
	rc = coll_drv_map(&dev->drv, NPULINK_MMAP_RING, dev->ring_len, &map);
	if (!rc)
		dev->ring = map;
	return rc;
}

bool coll_ring_has_records(const struct coll_dev *dev)
{
	const struct npulink_ring *ring = dev->ring;

	return ring && __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE) !=
	       __atomic_load_n(&ring->tail, __ATOMIC_RELAXED);
}

/* Takes all records. Returns how many there were. */
unsigned int coll_ring_drain(struct coll_dev *dev)
{
	struct npulink_ring *ring = dev->ring;
	unsigned int n = 0;

	while (coll_ring_has_records(dev)) {
		const struct npulink_result *r =
			&ring->records[ring->tail & (dev->ring_entries - 1)];
		uint32_t index = r->cookie, generation = r->cookie >> 32;
		int status = r->status;
		struct coll_request *req;

		__atomic_store_n(&ring->tail, ring->tail + 1, __ATOMIC_RELEASE);
		n++;
		if (index / CHUNK >= dev->nchunks)
			continue;
		req = &dev->chunks[index / CHUNK][index % CHUNK];
		if (req->generation == generation && req->state == COLL_REQ_INFLIGHT)
			coll_request_done(req, status);
	}
	return n;
}

/* ---- starting */

static int start_error(struct coll_request *req, int rc)
{
	return rc ? coll_fail_op(&req->op, rc) : 0;
}

/* @fallen: it was on the board, has a number, and is posted at any rate. */
static int post_request(struct coll_request *req, bool fallen)
{
	struct coll_dev *dev = req->dev;
	struct coll_operation *op = &req->op;
	bool stale = false, copy = true;
	int rc;

	for (;;) {
		coll_request_launch(req);
		pthread_mutex_unlock(&dev->lock);
		if (copy)
			coll_op_copy_in(op);
		copy = false;
		op->post.flags = 0;
		op->post.wait_until_ns = 0;
		rc = fallen ? coll_board_post_fallen(op, req->number) : coll_board_post(op);
		pthread_mutex_lock(&dev->lock);
		if (!rc) {
			req->seq = op->post.out_seq;
			if (!req->seq)
				coll_request_done(req, 0);
			return 0;
		}
		coll_request_land(req, COLL_REQ_IDLE);
		if (rc == -EINTR)
			continue;
		if (rc == -EBUSY && coll_make_room(dev, fallen))
			continue;
		if (rc != -ESTALE || stale)
			break;
		stale = true;
		rc = coll_op_rebind(op);
		if (rc)
			return rc;
		copy = true;
	}
	coll_op_finish(op, rc);
	return rc;
}

/* What was on the board has ended: nothing is bound. */
void coll_request_met(struct coll_request *req, int status)
{
	req->op.status = status;
	if (coll_is_failure(status))
		atomic_store_explicit(&req->op.comm->failed, status, memory_order_relaxed);
	atomic_store_explicit(&req->state, COLL_REQ_DONE, memory_order_release);
}

/* It has fallen there. If it cannot be posted, who waits for it learns why. */
void coll_request_fell(struct coll_request *req)
{
	struct coll_comm *comm = req->op.comm;
	struct coll_dev *dev = req->dev;
	int rc;

	pthread_mutex_lock(&dev->lock);
	rc = coll_ring_setup(dev);
	rc = rc ? rc : coll_op_bind(&req->op);
	rc = rc ? rc : post_request(req, true);
	pthread_mutex_unlock(&dev->lock);
	if (!rc)
		return;
	coll_board_withdraw(comm, req->number, rc);
	coll_request_met(req, rc);
}

/* Starts one that is idle: by the kernel, or on the spot if nobody else is concerned. */
int coll_request_start(struct coll_request *req)
{
	struct coll_dev *dev = req->dev;
	int rc;

	if (coll_op_is_local(&req->op)) {
		req->op.status = coll_op_local(&req->op);
		if (!req->op.status)
			atomic_store(&req->state, COLL_REQ_DONE);
		return req->op.status;
	}
	if (req->op.plan && coll_board_start(req))
		return 0;
	pthread_mutex_lock(&dev->lock);
	if (!req->op.plan) {
		coll_self_start(req);
		pthread_mutex_unlock(&dev->lock);
		return 0;
	}
	rc = coll_ring_setup(dev);
	if (rc) {
		coll_fail_pin(req->op.comm, &req->op.args, NULL,
			      dev->ring_entries * sizeof(struct npulink_result), rc);
	} else {
		rc = coll_op_bind(&req->op);
		if (!rc)
			rc = start_error(req, post_request(req, false));
	}
	pthread_mutex_unlock(&dev->lock);
	return rc;
}

/* ---- leaving */

/* Is there nothing that its user has to wait for, or may be about to? */
static bool may_leave(const struct coll_request *req)
{
	return req->state == COLL_REQ_IDLE || (req->state == COLL_REQ_DONE && req->persistent);
}

/*
 * Frees all requests of a communicator; force: also waits for those in flight,
 * which is bounded because it has failed. Lock held; dropped to wait.
 */
int coll_requests_leave(struct coll_comm *comm, bool force)
{
	struct coll_dev *dev = comm->dev;
	struct npulink_result result;

	coll_ring_drain(dev);
	coll_group_forget(comm);
	coll_board_leave_all(comm, force);
	for (int pass = force; pass < 2; pass++) {
		for (unsigned int i = 0; i < dev->nchunks * CHUNK; i++) {
			struct coll_request *req = &dev->chunks[i / CHUNK][i % CHUNK];

			if (req->op.comm != comm || req->state == COLL_REQ_FREE)
				continue;
			coll_request_settle_now(req);
			if (!pass && !may_leave(req))
				return -EBUSY;
			if (!pass)
				continue;
			while (req->state == COLL_REQ_INFLIGHT) {
				uint64_t seq = req->seq;
				int rc;

				pthread_mutex_unlock(&dev->lock);
				rc = coll_drv_wait(&dev->drv, seq, COLL_NEVER, &result);
				pthread_mutex_lock(&dev->lock);
				coll_ring_drain(dev);
				if (req->state == COLL_REQ_INFLIGHT)
					coll_request_done(req, rc ? rc : result.status);
				coll_request_settle_now(req);
			}
			coll_request_put(req);
		}
	}
	return 0;
}
