// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * board_call.c - which calls are done on the board, see board.c, and what ranks bring there.
 */
#include "plan/plan.h"
#include "run/board.h"
#include "run/board_layout.h"
#include "run/board_reduce.h"
#include "run/cache.h"
#include "run/op.h"

/* Bytes of all ranks together that one of them, or each, adds up or copies. */
#define BYTES_MAX	16384
#define INTEGERS_MAX	65536

/*
 * What all ranks have to agree in, for calls that coll_board_takes(): other calls have other
 * codes, as nothing else would notice that they differ. Never 0.
 */
static uint32_t code(const struct coll_args *args)
{
	_Static_assert(BOARD_WIDE < 1 << 14 && NPULINK_DTYPES <= 1 << 4 &&
		       NPULINK_REDOPS <= 1 << 2 && NPULINK_BOARD_RANKS <= 1 << 6 &&
		       NPULINK_COLLS < 1 << 4, "30 bits are enough");
	return ((((args->collective + 1) << 6 | args->root) << 2 | args->redop) << 4 |
		args->dtype) << 14 | args->count;
}

/* What a root has bound, where a rank has aborted with @code; false if that is none of ours. */
bool coll_board_decode(uint32_t code, struct coll_args *args)
{
	*args = (struct coll_args) {
		.count = code & 0x3fff, .dtype = code >> 14 & 0xf, .root = code >> 20 & 0x3f,
		.collective = (code >> 26 & 0x1f) - 1,
	};
	return code & BOARD_DIFFERS && args->dtype < NPULINK_DTYPES &&
	       (args->collective == NPULINK_COLL_BROADCAST ||
		args->collective == NPULINK_COLL_SCATTER);
}

/* How much each rank brings, and what of it is for whom; false if it is nothing for us. */
static bool layout(const struct coll_args *a, struct coll_board_call *call)
{
	call->part = a->count * npulink_dtype_size(a->dtype);
	call->len = call->part;
	call->root = a->root;
	switch (a->collective) {
	case NPULINK_COLL_BROADCAST:
		call->led = true;
		return true;
	case NPULINK_COLL_ALLREDUCE:
	case NPULINK_COLL_ALLGATHER:
	case NPULINK_COLL_REDUCE:
	case NPULINK_COLL_GATHER:
		return true;
	case NPULINK_COLL_SCATTER:
		call->led = true;
		/* fallthrough */
	case NPULINK_COLL_REDUCE_SCATTER:
	case NPULINK_COLL_ALLTOALL:
		call->from = a->rank * call->part;
		call->len *= a->nranks;
		return true;
	default:
		return false;
	}
}

/* There is the large buffer only, with the own part at its place. */
static void set_in_place(const struct coll_args *a, struct coll_board_call *call)
{
	if (a->collective == NPULINK_COLL_ALLGATHER || a->collective == NPULINK_COLL_GATHER)
		call->in = (const char *)call->out + a->rank * call->part;
	else
		call->in = call->out;
	if (a->collective == NPULINK_COLL_REDUCE_SCATTER)
		call->out = (char *)call->out + call->from;
	if (call->led)
		call->out = NULL;
}

/*
 * Is it for the board, if the ranks have one? More than fits into a slot only if it is reduced, or
 * there is a root, as what is only copied is copied once by a round, and twice here. Sums of floats
 * depend on the order: here it is that of ranks, and of two, all are the same. Equal on all ranks.
 */
bool coll_board_takes(const struct coll_algorithm *alg, const struct coll_args *a,
		      struct coll_board_call *call)
{
	bool reduces = npulink_coll_reduces(a->collective);
	bool wide = reduces || npulink_coll_has_root(a->collective);

	if (a->nranks > NPULINK_BOARD_RANKS || (a->topo && a->topo->nservers > 1))
		return false;
	if (a->collective == NPULINK_COLL_BARRIER)
		return true;
	/* Before anything is multiplied. */
	if (!a->count || a->count > BOARD_WIDE || !layout(a, call) ||
	    call->len > (wide ? BOARD_WIDE : BOARD_BYTES) ||
	    (reduces ? call->len : call->part) * a->nranks >
	    (reduces && !coll_board_is_float(a->dtype) ? INTEGERS_MAX : BYTES_MAX))
		return false;
	if (reduces) {
		call->reduce = coll_board_reduce(a->dtype, a->redop,
						 a->nranks == 2 || alg->ordered);
		/* What only the root needs it works out by itself. */
		call->shared = a->collective == NPULINK_COLL_REDUCE ? 0 : call->len;
		call->elements = call->len / call->part * a->count;
		return call->reduce;
	}
	if (a->collective == NPULINK_COLL_ALLGATHER &&
	    call->part * a->nranks <= BOARD_BYTES)
		call->shared = call->part * a->nranks;
	return true;
}

/* What the board has to know of all such calls; false: it does not take them. */
bool coll_board_describe(const struct coll_algorithm *alg, const struct coll_args *args,
			 struct coll_board_call *call)
{
	*call = (struct coll_board_call) { .count = args->count };
	if (coll_board_takes(alg, args, call))
		call->code = code(args);
	return call->code;
}

/* The same of @op, which has a plan. */
void coll_board_prepare(const struct coll_operation *op, struct coll_board_call *call)
{
	*call = op->plan->board;
	if (call->code)
		coll_board_bind(op, call);
}

/* Where @op has its buffers. */
void coll_board_bind(const struct coll_operation *op, struct coll_board_call *call)
{
	call->in = op->buf[NPULINK_SLOT_SEND];
	call->out = op->buf[NPULINK_SLOT_RECV];
	if (op->args.in_place && op->args.collective != NPULINK_COLL_BARRIER)
		set_in_place(&op->args, call);
}
