// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * board_post.c - posting beside the board, see board.c: who posts takes the next number, tells
 * those who wait there, and finds out what a root has bound.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include "base/base.h"
#include "run/board.h"
#include "run/board_layout.h"
#include "run/board_meet.h"
#include "run/comm.h"
#include "run/drv.h"
#include "run/error.h"
#include "run/op.h"

/* Not while requests are there: what they cannot meet has to be posted before the rest. */
bool coll_board_claim(struct coll_comm *comm)
{
	if (!claim(comm))
		return false;
	if (!comm->board.oldest)
		return true;
	let_go(comm);
	return false;
}

void coll_board_let_go(struct coll_comm *comm)
{
	let_go(comm);
}

static bool begin_post(struct coll_comm *comm)
{
	int n = atomic_load_explicit(&comm->posting, memory_order_relaxed);

	while (n >= 0)
		if (atomic_compare_exchange_weak_explicit(&comm->posting, &n, n + 1,
							  memory_order_acquire,
							  memory_order_relaxed))
			return true;
	return false;
}

static void wait_to_post(struct coll_comm *comm)
{
	const struct timespec pause = { .tv_nsec = 50000 };

	atomic_fetch_add_explicit(&comm->posters, 1, memory_order_relaxed);
	do
		nanosleep(&pause, NULL);
	while (!begin_post(comm));
	atomic_fetch_sub_explicit(&comm->posters, 1, memory_order_relaxed);
}

/*
 * Waits until what another thread has on the board has met, or is posted; what requests have there
 * is posted before. NULL: a message, for which others may wait before they call what is there.
 * Without the lock.
 */
void coll_board_begin_post(struct coll_comm *comm)
{
	if (!comm)
		return;
	for (;;) {
		if (!begin_post(comm))
			wait_to_post(comm);
		/* While somebody posts, no request gets there. */
		if (!atomic_load_explicit(&comm->board.requests, memory_order_relaxed))
			return;
		coll_board_end_post(comm);
		coll_board_flush(comm);
	}
}

void coll_board_end_post(struct coll_comm *comm)
{
	if (comm)
		atomic_fetch_sub_explicit(&comm->posting, 1, memory_order_release);
}

/*
 * @op is posted under @number, and those who wait for this rank on the board are told. True: it is
 * not, as its root has bound it, see coll_board_follow(). Between coll_board_begin_post() and
 * coll_board_end_post(), or with a claim.
 */
bool coll_board_number(const struct coll_operation *op, struct npulink_post *post, uint64_t number)
{
	struct coll_comm *comm = op->comm;
	struct coll_board *b = &comm->board;

	post->flags &= ~NPULINK_POST_NUMBER;
	post->number = 0;
	if (!b->open || !coll_op_numbered(op))
		return false;
	post->flags |= NPULINK_POST_NUMBER;
	post->number = number;
	/* What came before is posted, unless another thread takes it from the board. */
	if (abs(atomic_load_explicit(&comm->posting, memory_order_acquire)) == 1 &&
	    b->own->done < number)
		set(&b->own->done, number);
	if (kept(&b->left) != number + 1 && coll_board_leave(comm, number) == BOUND &&
	    !has_failed(b))
		return true;
	if (b->crowded)
		coll_board_make_way(comm, number, UINT32_MAX);
	return false;
}

/* Its root has bound something else, and gone on: the others learn of that by this rank. */
int coll_board_differs(struct coll_comm *comm, uint64_t number)
{
	coll_drv_comm_abort(&comm->dev->drv, comm->id,
			    BOARD_DIFFERS | slot_of(&comm->board, number)->code);
	return -EPROTO;
}

/*
 * What was to be posted is bound to the board, under the next number: its result goes to where the
 * kernel would have put it. -EALREADY: to another thread, so post this one with the next number.
 * -EPROTO: see coll_board_differs().
 */
int coll_board_follow(const struct coll_operation *op, uint64_t number)
{
	struct coll_comm *comm = op->comm;
	struct coll_board *b = &comm->board;
	struct coll_board_call call;
	struct coll_copy in, out;

	coll_board_prepare(op, &call);
	if (!is_bound(b, &call, number))
		return coll_board_differs(comm, number);
	if (!atomic_compare_exchange_strong_explicit(&b->next, &(uint64_t) { number }, number + 1,
						     memory_order_relaxed, memory_order_relaxed))
		return -EALREADY;
	coll_op_copies(op, &in, &out);
	copy(out.len ? (void *)out.from : call.out,
	     data_of(rank_of(b, call.root), &call, number) + call.from, call.part);
	atomic_fetch_add_explicit(&b->met, 1, memory_order_relaxed);
	return 0;
}

/*
 * Posts @op, which is not in a group: as POST gives it, whose out_seq is 0 if it has ended, as it
 * was bound.
 */
int coll_board_post(struct coll_operation *op)
{
	struct coll_comm *posting = coll_op_numbered(op), *comm = op->comm;
	bool again, runs;
	int rc;

	coll_board_begin_post(posting);
	do {
		if (coll_board_number(op, &op->post, coll_board_next(comm))) {
			rc = coll_board_follow(op, op->post.number);
			op->post.out_seq = 0;
			op->post.out_result.status = 0;
			again = rc == -EALREADY;
			continue;
		}
		rc = coll_drv_post(&comm->dev->drv, &op->post);
		runs = !rc || ((rc == -EINTR || rc == -ETIME) && op->post.out_seq);
		again = (runs || rc == -EALREADY) && coll_board_posted(comm, &op->post, rc);
	} while (again);
	coll_board_end_post(posting);
	return rc;
}

/* The same for a request that was on the board under @number, and has fallen. With a claim. */
int coll_board_post_fallen(struct coll_operation *op, uint64_t number)
{
	if (coll_board_number(op, &op->post, number))
		return coll_board_differs(op->comm, number);
	return coll_drv_post(&op->comm->dev->drv, &op->post);
}

/*
 * It was posted, or an operation with that number had been (EALREADY): another thread may not be
 * back from its POST yet. True: the number was another one's, so post it with the next one.
 */
bool coll_board_posted(struct coll_comm *comm, const struct npulink_post *post, int rc)
{
	if (!(post->flags & NPULINK_POST_NUMBER))
		return false;
	raise_next(&comm->board, post->number + 1);
	return rc == -EALREADY;
}

/*
 * The call with @number cannot be posted, for want of something. If all ranks have met later ones,
 * this rank has another idea of what comes next than others, so that is the end.
 */
void coll_board_withdraw(struct coll_comm *comm, uint64_t number, int rc)
{
	if (comm->board.open && coll_board_next(comm) > number && !coll_is_failure(rc))
		coll_drv_comm_abort(&comm->dev->drv, comm->id, -rc);
}
