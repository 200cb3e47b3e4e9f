// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * request.c - operations that outlive their call: the pool of requests, the
 * completion ring, testing and waiting, persistent requests.
 *
 * Results come by the ring, which coll_test() can look at without a system call.
 * Who waits sleeps in WAIT, which returns the result as well; the record that
 * the ring then still holds has an old generation in its cookie and is skipped.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "internal.h"

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
static bool settle_now(struct coll_request *req)
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
		some |= settle_now(&dev->chunks[i / CHUNK][i % CHUNK]);
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

static bool ring_has_records(const struct coll_dev *dev)
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

	while (ring_has_records(dev)) {
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

static int post_request(struct coll_request *req)
{
	struct coll_dev *dev = req->dev;
	struct coll_operation *op = &req->op;
	struct coll_comm *posting = coll_op_numbered(op);
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
		coll_board_begin_post(posting);
		do {
			coll_board_number(op, &op->post, coll_board_next(op->comm));
			rc = coll_drv_post(&dev->drv, &op->post);
		} while ((!rc || rc == -EALREADY) && coll_board_posted(op->comm, &op->post, rc));
		coll_board_end_post(posting);
		pthread_mutex_lock(&dev->lock);
		if (!rc) {
			req->seq = op->post.out_seq;
			return 0;
		}
		coll_request_land(req, COLL_REQ_IDLE);
		if (rc == -EINTR)
			continue;
		if (rc == -EBUSY && coll_make_room(dev, false))
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
			rc = start_error(req, post_request(req));
	}
	pthread_mutex_unlock(&dev->lock);
	return rc;
}

int coll_start(struct coll_request *req)
{
	int rc;

	if (!req)
		return -EINVAL;
	rc = coll_comm_enter(req->op.comm);
	if (rc)
		return rc;
	if (!req->persistent) {
		rc = coll_fail(req->op.comm, -EINVAL, "%s: not a persistent request", __func__);
		return coll_group_refuse(req->op.comm, rc);
	}
	if (atomic_load(&req->state) != COLL_REQ_IDLE) {
		rc = coll_fail(req->op.comm, -EBUSY,
			       "%s: the request has been started and not waited for", __func__);
		return coll_group_refuse(req->op.comm, rc);
	}
	if (coll_group_mine(req->op.comm))
		return coll_group_add(req->op.comm, req);
	return coll_request_start(req);
}

/*
 * Starting them has failed with @rc. The caller knows it by that of those that were not started,
 * and need not wait for them to be told once more. (Nor of one that was, and has failed so.)
 */
static void forget_failed(struct coll_dev *dev, unsigned int n, struct coll_request **requests,
			  int rc)
{
	pthread_mutex_lock(&dev->lock);
	for (unsigned int i = 0; i < n; i++)
		if (requests[i]->state == COLL_REQ_DONE && requests[i]->op.status == rc)
			atomic_store(&requests[i]->state, COLL_REQ_IDLE);
	pthread_mutex_unlock(&dev->lock);
}

int coll_startall(unsigned int n, struct coll_request **requests)
{
	struct coll_comm *comm = NULL;
	int rc;

	if (!n)
		return 0;
	for (unsigned int i = 0; requests && i < n && !comm; i++)
		comm = requests[i] ? requests[i]->op.comm : NULL;
	if (!comm)
		return -EINVAL;
	rc = coll_comm_enter(comm);
	if (rc)
		return rc;
	for (unsigned int i = 0; i < n; i++)
		if (!requests[i] || !requests[i]->persistent || requests[i]->op.comm != comm)
			return coll_group_refuse(comm, coll_fail(comm, -EINVAL,
						 "%s: not a persistent request of this communicator",
						 __func__));
	rc = coll_group_start_all(comm, n, requests);
	if (rc)
		forget_failed(comm->dev, n, requests, rc);
	return rc;
}

/* ---- ending */

/* The result of one that is done. */
static int fetch(struct coll_request **request)
{
	struct coll_request *req = *request;
	int rc = req->op.status;

	if (rc)
		coll_fail_op(&req->op, rc);
	if (req->persistent) {
		atomic_store(&req->state, COLL_REQ_IDLE);
		return rc;
	}
	*request = NULL;
	pthread_mutex_lock(&req->dev->lock);
	coll_request_put(req);
	pthread_mutex_unlock(&req->dev->lock);
	return rc;
}

int coll_test(struct coll_request **request)
{
	struct coll_request *req = *request;
	struct coll_dev *dev;

	if (!req)
		return 0;
	dev = req->dev;
	if (coll_dev_is_child(dev))
		return coll_comm_enter(req->op.comm);
	/* Whoever holds the lock may be taking the records: look again next time. */
	if (atomic_load_explicit(&req->state, memory_order_acquire) == COLL_REQ_INFLIGHT &&
	    ring_has_records(dev) && !pthread_mutex_trylock(&dev->lock)) {
		coll_ring_drain(dev);
		pthread_mutex_unlock(&dev->lock);
	}
	switch (atomic_load_explicit(&req->state, memory_order_acquire)) {
	case COLL_REQ_LANDED:
		coll_request_settle(req);
		return fetch(request);
	case COLL_REQ_DONE:
		return fetch(request);
	case COLL_REQ_IDLE:
		return 0;
	default:
		return -EINPROGRESS;
	}
}

/* Sleeps for one in flight. -EINPROGRESS: not done at that time. */
static int wait_inflight(struct coll_request *req, uint64_t until_ns)
{
	struct coll_dev *dev = req->dev;
	struct npulink_result result;
	bool inflight;
	int rc;

	pthread_mutex_lock(&dev->lock);
	coll_ring_drain(dev);
	inflight = req->state == COLL_REQ_INFLIGHT;
	pthread_mutex_unlock(&dev->lock);
	if (!inflight)
		return 0;
	rc = coll_drv_wait(&dev->drv, req->seq, until_ns, &result);
	pthread_mutex_lock(&dev->lock);
	coll_ring_drain(dev);
	if (req->state == COLL_REQ_INFLIGHT && rc != -ETIME) {
		/* ENOENT, and not in the ring either, cannot be; do not wait for ever. */
		coll_request_done(req, !rc ? result.status : rc == -ENOENT ? -EIO : rc);
	}
	inflight = req->state == COLL_REQ_INFLIGHT;
	pthread_mutex_unlock(&dev->lock);
	return inflight ? -EINPROGRESS : 0;
}

int coll_wait_deadline(struct coll_request **request, uint64_t until_ns)
{
	struct coll_request *req = *request;
	int rc;

	if (!req)
		return 0;
	rc = coll_comm_enter(req->op.comm);
	if (rc)
		return rc;
	switch (atomic_load_explicit(&req->state, memory_order_acquire)) {
	case COLL_REQ_INFLIGHT:
		rc = wait_inflight(req, until_ns);
		if (rc)
			return rc;
		coll_request_settle(req);
		return fetch(request);
	case COLL_REQ_LANDED:
		coll_request_settle(req);
		return fetch(request);
	case COLL_REQ_DONE:
		return fetch(request);
	case COLL_REQ_QUEUED:
		return coll_fail(req->op.comm, -EDEADLK,
				 "the request belongs to a group that is open: call coll_group_end first");
	case COLL_REQ_SELF:
		return coll_fail(req->op.comm, -EDEADLK,
				 "a %s the own rank has no counterpart: call that first",
				 req->op.args.send ? "send to" : "receive from");
	default:
		return 0;
	}
}

int coll_wait(struct coll_request **request)
{
	return coll_wait_deadline(request, COLL_NEVER);
}

int coll_waitall(unsigned int n, struct coll_request **requests)
{
	int rc = 0, one;

	for (unsigned int i = 0; i < n; i++) {
		one = coll_wait(&requests[i]);
		rc = rc ? rc : one;
	}
	return rc;
}

int coll_request_free(struct coll_request **request)
{
	struct coll_request *req = *request;
	int rc;

	if (!req)
		return 0;
	rc = coll_comm_enter(req->op.comm);
	if (rc)
		return rc;
	pthread_mutex_lock(&req->dev->lock);
	coll_ring_drain(req->dev);
	settle_now(req);
	if (req->state == COLL_REQ_IDLE || req->state == COLL_REQ_DONE)
		coll_request_put(req);
	else
		rc = -EBUSY;
	pthread_mutex_unlock(&req->dev->lock);
	if (rc)
		return coll_fail(req->op.comm, rc, "%s: the request is in flight", __func__);
	*request = NULL;
	return 0;
}

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
	for (int pass = force; pass < 2; pass++) {
		for (unsigned int i = 0; i < dev->nchunks * CHUNK; i++) {
			struct coll_request *req = &dev->chunks[i / CHUNK][i % CHUNK];

			if (req->op.comm != comm || req->state == COLL_REQ_FREE)
				continue;
			settle_now(req);
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
				settle_now(req);
			}
			coll_request_put(req);
		}
	}
	return 0;
}
