/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * request.h - operations that outlive their call.
 */
#ifndef COLL_RUN_REQUEST_H
#define COLL_RUN_REQUEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "run/board.h"
#include "run/dev.h"
#include "run/op.h"

enum coll_request_state {
	COLL_REQ_FREE,		/* in the pool */
	COLL_REQ_IDLE,		/* persistent, not started */
	COLL_REQ_QUEUED,	/* collected by a group */
	COLL_REQ_SELF,		/* to or from the own rank, not matched yet */
	COLL_REQ_BOARD,		/* has left on the board what it brings */
	COLL_REQ_INFLIGHT,	/* posted */
	COLL_REQ_LANDED,	/* has ended, but its results are in memory of our own */
	COLL_REQ_DONE,		/* has a result that was not fetched */
};

/**
 * struct coll_request - an operation that outlives its call
 * @op: the operation
 * @dev: whose pool it is from
 * @state: written under the lock, read without
 * @index: in the pool
 * @generation: counts its uses, so that an old record of the ring is not taken for a new one
 * @seq: the kernel's name for it
 * @persistent: started by coll_start(), freed by coll_request_free()
 * @blocking: made by a blocking call in a group
 * @settling: its results are being copied to where they belong, without the lock
 * @prepared: @board says what it is on the board
 * @board: that
 * @met: it was done there
 * @number: its number, if it is there, or was not met and others of the group were tried
 * @asked_ns: when it was first tested there
 * @next: of the pool, of the list in flight or on the board, or of the self list
 * @prev: of the list in flight
 */
struct coll_request {
	struct coll_operation op;
	struct coll_dev *dev;
	_Atomic int state;
	uint32_t index;
	uint32_t generation;
	uint64_t seq;
	bool persistent, blocking, settling, prepared, met;
	struct coll_board_call board;
	uint64_t number;
	uint64_t asked_ns;
	struct coll_request *next, *prev;
};

struct coll_request *coll_request_get(struct coll_dev *dev);
void coll_request_put(struct coll_request *req);
uint64_t coll_request_cookie(const struct coll_request *req);
void coll_request_launch(struct coll_request *req);
void coll_request_land(struct coll_request *req, int state);
void coll_request_done(struct coll_request *req, int status);
void coll_request_settle(struct coll_request *req);
bool coll_request_settle_now(struct coll_request *req);
bool coll_requests_settle(struct coll_dev *dev);
void coll_request_met(struct coll_request *req, int status);
void coll_request_fell(struct coll_request *req);
struct coll_request *coll_request_of(const struct coll_dev *dev, unsigned int index);
int coll_request_start(struct coll_request *req);
int coll_ring_setup(struct coll_dev *dev);
bool coll_ring_has_records(const struct coll_dev *dev);
unsigned int coll_ring_drain(struct coll_dev *dev);
int coll_requests_leave(struct coll_comm *comm, bool force);

/* Sends to the own rank, see self.c. */
void coll_self_end(struct coll_request *req, int status);
void coll_self_start(struct coll_request *req);
void coll_self_cancel(struct coll_request *req, int status);

#endif /* COLL_RUN_REQUEST_H */
