// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * fresh.c - blocking calls that have not come before, and may not come again.
 *
 * Programs with ragged batches have another count in each call. What the board takes needs no plan
 * if it meets there, so none is made for a call before it comes a second time: the board wants to
 * know how much each rank brings and how it is added up, which the arguments say. Only sums of
 * floats depend on the algorithm, whose choice is remembered for counts of one class.
 */
#include "plan/planner.h"
#include "run/board.h"
#include "run/comm.h"
#include "run/dev.h"
#include "run/fpu.h"
#include "run/fresh.h"
#include "run/op.h"

/* True, and it is so from now on, if @op has been here lately. */
static bool came_before(struct coll_fresh *fresh, const struct coll_operation *op)
{
	const struct coll_args *a = &op->args;
	uint64_t hash = coll_hash_add(COLL_HASH_INIT, a->count), *seen;

	hash = coll_hash_add(hash, (uint64_t)a->root << 32 | a->collective << 16 |
				   a->dtype << 8 | a->redop << 1 | a->in_place);
	seen = &fresh->seen[hash % COLL_FRESH_SEEN];
	if (*seen == hash)
		return true;
	*seen = hash;
	return false;
}

/* The algorithm whose results it would have. NULL: coll_plan_get() says why there is none. */
static const struct coll_algorithm *algorithm(struct coll_comm *comm, const struct coll_args *args)
{
	struct coll_args wired = *args;
	const struct coll_algorithm *alg = NULL;
	struct coll_fpu had = coll_fpu_begin();
	double seconds;
	char why[320];

	wired.topo = coll_comm_topo(comm);
	if (coll_choices_get(&comm->choices, &comm->tune, &wired, &alg, &seconds, why, sizeof(why)))
		alg = NULL;
	coll_fpu_end(had);
	return alg;
}

/* Is it one for the board, whose buffers are such that they would be copied by way of the arena? */
static bool suits(const struct coll_operation *op)
{
	uint64_t send, recv;
	size_t len[2];

	if (coll_mem_on_device(op->comm->dev, op->buf[0], op->buf[1]) ||
	    npulink_coll_is_v(op->args.collective) || op->args.collective == NPULINK_COLL_P2P ||
	    coll_args_check(&op->args) || plan_buffers(&op->args, &send, &recv) ||
	    send + recv > op->comm->copy_max)
		return false;
	len[NPULINK_SLOT_SEND] = send;
	len[NPULINK_SLOT_RECV] = recv;
	return coll_buffers_fit(op, len);
}

/* Tries one that has no plan on the board. Whatever is wrong with it is left to coll_op_plan(). */
enum coll_fresh_is coll_fresh_try(struct coll_operation *op)
{
	struct coll_comm *comm = op->comm;
	struct coll_board_call call = { };
	const struct coll_algorithm *alg;
	bool again;

	if (comm->board.never || !suits(op))
		return COLL_FRESH_NOT;
	pthread_mutex_lock(&comm->dev->lock);
	again = came_before(&comm->fresh, op);
	alg = again ? NULL : algorithm(comm, &op->args);
	pthread_mutex_unlock(&comm->dev->lock);
	if (again)
		return COLL_FRESH_AGAIN;
	if (!alg || !coll_board_describe(alg, &op->args, &call))
		return COLL_FRESH_NOT;
	coll_board_bind(op, &call);
	return coll_board_try(comm, &call) ? COLL_FRESH_MET : COLL_FRESH_FELL;
}
