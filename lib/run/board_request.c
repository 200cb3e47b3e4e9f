// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * board_request.c - requests on the board, see board.c: who starts one leaves there what it brings,
 * and goes. The last rank to come makes it met for all; each finds that out when it tests, waits,
 * or makes another call in this communicator.
 *
 * Requests are there in the order of their numbers, a few at a time. What falls is posted, and
 * as the kernel takes numbers in their order, what is there under lower ones falls with it. So does
 * all that is there before this rank posts anything, or sleeps in the kernel: from there on, nobody
 * but the kernel knows when it comes back.
 *
 * Whoever is away, and does not look, would learn late that another rank does not wait any longer.
 * So a rank says how far it has left something on the board, and others wait longer for what is
 * there; and if requests fall, no rank leaves any for a while.
 *
 * All of it with a claim, coll_board.requests as well.
 */
#include <errno.h>
#include <time.h>
#include "base/base.h"
#include "run/board.h"
#include "run/board_layout.h"
#include "run/board_meet.h"
#include "run/comm.h"
#include "run/dev.h"
#include "run/drv.h"
#include "run/op.h"
#include "run/request.h"

/* How many a rank has there at a time: others may be as far behind. */
#define REQUESTS_MAX	(COLL_BOARD_SLOTS / 2)
/* For how long others wait for what a rank has left that is away: until it is told to be slow. */
#define AWAY_NS		1000000000ULL
/* For how long a request is tested until it is posted: as long as others would sleep. */
#define TESTED_NS	10000000ULL

/* ---- who is away */

/* What this rank has on the board up to its last request, it does not look at from here on. */
static void set_away(struct coll_board *b)
{
	set(&b->own->away, b->newest ? b->newest->number + 1 : 0);
}

static void set_back(struct coll_board *b)
{
	if (b->own->away)
		set(&b->own->away, 0);
}

/* Has a rank left what it brings to @number, and gone? */
static bool is_left(const struct coll_comm *comm, uint64_t number)
{
	for (uint32_t r = 0; r < comm->nranks; r++)
		if (r != comm->rank && get(&rank_of(&comm->board, r)->away) > number)
			return true;
	return false;
}

/* The first number that falls if this rank posts @number. */
static uint64_t first_of(const struct coll_board *b, uint64_t number)
{
	return b->oldest && b->oldest->number < number ? b->oldest->number : number;
}

/* ---- getting on */

static void insert(struct coll_comm *comm, struct coll_request *req)
{
	struct coll_board *b = &comm->board;

	req->next = NULL;
	*(b->oldest ? &b->newest->next : &b->oldest) = req;
	b->newest = req;
	atomic_fetch_add_explicit(&b->requests, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&comm->dev->on_board, 1, memory_order_relaxed);
}

static void remove_after(struct coll_comm *comm, struct coll_request *req,
			 struct coll_request *before)
{
	struct coll_board *b = &comm->board;

	*(before ? &before->next : &b->oldest) = req->next;
	if (b->newest == req)
		b->newest = before;
	req->next = NULL;
	atomic_fetch_sub_explicit(&b->requests, 1, memory_order_relaxed);
	atomic_fetch_sub_explicit(&comm->dev->on_board, 1, memory_order_relaxed);
}

/* Those after @number, for all ranks: what one of them posts falls for the others, too. */
static void post_next(struct board_memory *m, uint64_t number)
{
	unsigned int pause = peek(&m->requests_pause);

	if (get(&m->requests_from) > number)
		return;
	set(&m->requests_from, number + coll_board_longer(&pause));
	hint(&m->requests_pause, pause);
}

/* It has met, or has fallen and is posted now: its caller learns of that. */
static void settle(struct coll_comm *comm, struct coll_request *req, enum state state)
{
	struct coll_board *b = &comm->board;

	if (coll_board_end(comm, &req->board, req->number, state)) {
		if (peek(&b->memory->requests_pause))
			hint(&b->memory->requests_pause, 0);
		coll_request_met(req, 0);
	} else if (state == BOUND) {
		coll_request_met(req, coll_board_differs(comm, req->number));
	} else {
		post_next(b->memory, req->number);
		coll_request_fell(req);
	}
}

/* What has met ends. All up to @last fall unless they have met. */
static void get_on(struct coll_comm *comm, const struct coll_request *last)
{
	struct coll_request *req = comm->board.oldest, *before = NULL, *next;
	enum state state;
	bool falls = last;

	for (; req; req = next) {
		next = req->next;
		state = falls ? coll_board_leave(comm, req->number) :
				coll_board_look(comm, req->number);
		if (req == last)
			falls = false;
		if (state == OPEN) {
			before = req;
			continue;
		}
		remove_after(comm, req, before);
		settle(comm, req, state);
	}
}

/* As far as others have decided. */
static void progress(struct coll_comm *comm)
{
	struct coll_board *b = &comm->board;
	const struct coll_request *last = NULL;

	for (struct coll_request *req = b->oldest; req; req = req->next)
		if (has_failed(b) || coll_board_look(comm, req->number) == FALLEN)
			last = req;
	get_on(comm, last);
}

/*
 * Some of those who have come to @number have gone, and learn late if it falls, or what falls with
 * it. So this rank waits longer for the others. For board.c.
 */
enum state coll_board_await(struct coll_comm *comm, uint64_t number, uint64_t until)
{
	struct coll_board *b = &comm->board;
	uint64_t end = 0, now;
	enum state state;

	while (!has_failed(b) && is_left(comm, first_of(b, number))) {
		now = coll_now_ns();
		if (!end)
			end = now + AWAY_NS;
		if (now >= end || now >= until)
			break;
		/* Others may be in the kernel for what has fallen. */
		if (b->oldest)
			progress(comm);
		state = coll_board_sleep(comm, number, until);
		if (state != OPEN)
			return state;
	}
	return OPEN;
}

/* ---- starting */

/* With a claim. FALLEN: it has to be posted. */
static enum state start(struct coll_comm *comm, struct coll_request *req)
{
	struct coll_board *b = &comm->board;
	enum state state;

	if (!coll_board_is_open(comm) || get(&b->memory->requests_from) > coll_board_next(comm))
		return FALLEN;
	if (b->oldest)
		progress(comm);
	if (b->requests == REQUESTS_MAX)
		return FALLEN;
	if (!req->prepared)
		coll_board_prepare(&req->op, &req->board);
	req->prepared = true;
	req->number = coll_board_next(comm);
	state = coll_board_put(comm, &req->board, req->number);
	if (state == OPEN) {
		raise_next(b, req->number + 1);
		req->asked_ns = 0;
		atomic_store_explicit(&req->state, COLL_REQ_BOARD, memory_order_relaxed);
		insert(comm, req);
		set_away(b);
	} else if (coll_board_end(comm, &req->board, req->number, state)) {
		coll_request_met(req, 0);
	} else {
		return FALLEN;
	}
	return state;
}

/* Leaves @req on the board, or finds it met: true. False: it has to be posted. Without the lock. */
bool coll_board_start(struct coll_request *req)
{
	struct coll_comm *comm = req->op.comm;
	bool started;

	if (!req->op.plan->board.code || comm->board.never || !coll_op_is_small(&req->op) ||
	    coll_mem_on_device(comm->dev, req->op.buf[0], req->op.buf[1]) ||
	    atomic_load_explicit(&comm->dev->polled, memory_order_relaxed) || !claim(comm))
		return false;
	started = start(comm, req) != FALLEN;
	let_go(comm);
	return started;
}

/* ---- waiting */

/* A claim, also before those who post: they wait for what is on the board. */
static bool claim_now(struct coll_comm *comm)
{
	int none = 0;

	return atomic_compare_exchange_strong_explicit(&comm->posting, &none, -1,
						       memory_order_acquire, memory_order_relaxed);
}

static bool is_there(const struct coll_request *req)
{
	return atomic_load_explicit(&req->state, memory_order_acquire) == COLL_REQ_BOARD;
}

/* Has it been asked for so long that it is to be posted? */
static bool is_overdue(const struct coll_comm *comm, struct coll_request *req)
{
	uint64_t now = coll_now_ns();

	if (!req->asked_ns)
		req->asked_ns = now;
	return now - req->asked_ns >=
	       (is_left(comm, comm->board.oldest->number) ? AWAY_NS : TESTED_NS);
}

/* Looks whether it has ended; if that takes long, it is posted. */
void coll_board_test(struct coll_request *req)
{
	struct coll_comm *comm = req->op.comm;

	if (!is_there(req) || !claim_now(comm))
		return;
	progress(comm);
	if (is_there(req) && is_overdue(comm, req))
		get_on(comm, req);
	set_away(&comm->board);
	let_go(comm);
}

/* With a claim. */
static void wait_claimed(struct coll_comm *comm, struct coll_request *req, uint64_t until)
{
	struct coll_board *b = &comm->board;
	enum state state;

	progress(comm);
	if (!is_there(req))
		return;
	set_back(b);
	state = coll_board_meet(comm, req->number, until);
	if (state == OPEN && (until == COLL_NEVER || is_overdue(comm, req)))
		get_on(comm, req);
	else
		progress(comm);
}

/* Until it has ended, or is posted: 0. -EINPROGRESS: neither at @until. Without the lock. */
int coll_board_wait(struct coll_request *req, uint64_t until)
{
	const struct timespec pause = { .tv_nsec = 50000 };
	struct coll_comm *comm = req->op.comm;

	while (is_there(req)) {
		if (!claim_now(comm)) {
			nanosleep(&pause, NULL);
		} else {
			if (is_there(req))
				wait_claimed(comm, req, until);
			set_away(&comm->board);
			let_go(comm);
		}
		if (until != COLL_NEVER && is_there(req) && coll_now_ns() >= until)
			return -EINPROGRESS;
	}
	return 0;
}

/* ---- beside other calls */

/* A blocking call while requests are there. With a claim, as coll_board_try(). */
__attribute__((noinline))
bool coll_board_try_beside(struct coll_comm *comm, const struct coll_board_call *call)
{
	uint64_t number;
	enum state state;
	bool met;

	progress(comm);
	set_back(&comm->board);
	number = coll_board_next(comm);
	state = coll_board_put(comm, call, number);
	if (state == OPEN) {
		state = coll_board_meet(comm, number, COLL_NEVER);
		if (state == OPEN)
			state = coll_board_leave(comm, number);
	}
	met = coll_board_end(comm, call, number, state);
	progress(comm);
	set_away(&comm->board);
	return met;
}

/* This rank posts, or sleeps in the kernel: nothing stays there. Without the lock. */
void coll_board_flush(struct coll_comm *comm)
{
	const struct timespec pause = { .tv_nsec = 50000 };

	while (atomic_load_explicit(&comm->board.requests, memory_order_relaxed)) {
		if (!claim_now(comm)) {
			nanosleep(&pause, NULL);
			continue;
		}
		get_on(comm, comm->board.newest);
		set_back(&comm->board);
		let_go(comm);
	}
}

/* The same for all communicators of @dev, but for those where another thread is at it. */
void coll_board_flush_all(struct coll_dev *dev)
{
	struct coll_request *req;
	struct coll_comm *comm;

	if (!atomic_load_explicit(&dev->on_board, memory_order_relaxed))
		return;
	pthread_mutex_lock(&dev->lock);
	for (unsigned int i = 0; (req = coll_request_of(dev, i)); i++) {
		if (req->state != COLL_REQ_BOARD || !claim_now(req->op.comm))
			continue;
		/* With a claim of it, it stays. */
		comm = req->op.comm;
		pthread_mutex_unlock(&dev->lock);
		get_on(comm, comm->board.newest);
		set_back(&comm->board);
		let_go(comm);
		pthread_mutex_lock(&dev->lock);
	}
	pthread_mutex_unlock(&dev->lock);
}

/* @comm goes: what has met has ended, and (@all) the rest ends as well. Lock held; dropped. */
void coll_board_leave_all(struct coll_comm *comm, bool all)
{
	const struct timespec pause = { .tv_nsec = 50000 };
	struct coll_board *b = &comm->board;
	struct coll_request *req;

	/* Another thread may be about to let go of it. */
	if (!atomic_load_explicit(&b->requests, memory_order_relaxed) &&
	    atomic_load_explicit(&comm->posting, memory_order_relaxed) >= 0)
		return;
	pthread_mutex_unlock(&comm->dev->lock);
	while (!claim_now(comm))
		nanosleep(&pause, NULL);
	progress(comm);
	while (all && (req = b->oldest)) {
		remove_after(comm, req, NULL);
		coll_request_met(req, -ECANCELED);
	}
	if (b->open)
		set_away(b);
	let_go(comm);
	pthread_mutex_lock(&comm->dev->lock);
}
