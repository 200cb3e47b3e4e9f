// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * wait.c - what applications do with requests: start them again, test, wait, free.
 *
 * coll_test() looks at the ring without a system call. Who waits sleeps in WAIT, which returns the
 * result as well; the record that the ring then still holds has an old generation in its cookie
 * and is skipped.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "api/group.h"
#include "base/base.h"
#include "coll.h"
#include "run/comm.h"
#include "run/dev.h"
#include "run/drv.h"
#include "run/error.h"
#include "run/request.h"

/* ---- persistent requests */

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
	if (atomic_load_explicit(&req->state, memory_order_acquire) == COLL_REQ_BOARD)
		coll_board_test(req);
	/* Whoever holds the lock may be taking the records: look again next time. */
	if (atomic_load_explicit(&req->state, memory_order_acquire) == COLL_REQ_INFLIGHT &&
	    coll_ring_has_records(dev) && !pthread_mutex_trylock(&dev->lock)) {
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

	/* This thread may sleep for long. */
	coll_board_flush_all(dev);
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
	/* It is on the board, and what has not met there is in flight then. */
	if (atomic_load_explicit(&req->state, memory_order_acquire) == COLL_REQ_BOARD)
		rc = coll_board_wait(req, until_ns);
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
	coll_board_test(req);
	pthread_mutex_lock(&req->dev->lock);
	coll_ring_drain(req->dev);
	coll_request_settle_now(req);
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
