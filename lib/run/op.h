/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * op.h - one operation.
 */
#ifndef COLL_RUN_OP_H
#define COLL_RUN_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/npulink.h>
#include "plan/plan.h"
#include "run/cache.h"

struct coll_dev;
struct coll_reg;
struct coll_repeat;
struct coll_scratch;

/**
 * struct coll_operation - one call, from its arguments to its result
 * @comm: communicator
 * @args: as the planner wants them; the arrays are the plan's once it is there
 * @called: the buffers as the caller gave them
 * @buf: the caller's send and receive buffer, by slot
 * @plan: the plan, a reference held
 * @reg: pinned ranges bound to the slots
 * @staged: buffers bound to the slots in place of the caller's, to copy by
 * @scratch: buffer bound to the scratch slot, if it is not in the arena
 * @arena_off: place in the arena, if @arena_len
 * @arena_len: bytes there
 * @copied: the payload is in the arena
 * @scratched: so is scratch
 * @local: nobody else is concerned, and a processor can do it
 * @slot_off: where in the arena the payload of each slot is
 * @post: what the kernel gets
 * @status: result
 *
 * plan -> bind -> copy_in -> post -> finish -> unplan; a persistent request goes
 * from bind to finish any number of times.
 */
struct coll_operation {
	struct coll_comm *comm;
	struct coll_args args;
	const void *called[2];
	void *buf[2];
	struct coll_cached *plan;
	struct coll_reg *reg[2];
	struct coll_scratch *staged[2], *scratch;
	size_t arena_off, arena_len;
	bool copied, scratched, local;
	size_t slot_off[2];
	struct npulink_post post;
	int status;
};

void coll_buffers_sort(struct coll_operation *op, const void *send, void *recv);
bool coll_buffers_fit(const struct coll_operation *op, const size_t len[2]);
int coll_buffers_check(const struct coll_operation *op, size_t nsend, size_t nrecv);
bool coll_buffers_replace(struct coll_operation *op, const void *send, const void *recv);

/* Is the same called again, but for buffers? For those that coll_op_may_repeat(). */
static inline bool coll_op_is_call(const struct coll_operation *op, const struct coll_args *args)
{
	const struct coll_args *a = &op->args;

	return a->count == args->count && a->collective == args->collective &&
	       a->dtype == args->dtype && a->redop == args->redop && a->root == args->root &&
	       a->peer == args->peer && a->send == args->send;
}

static inline bool coll_op_has(const struct coll_operation *op, const void *send,
			       const void *recv)
{
	return op->called[0] == send && op->called[1] == recv;
}

/*
 * For coll_board_begin_post(): collectives have numbers, by which those of all ranks meet. Asked
 * before it is posted, as then it may be another thread's.
 */
static inline struct coll_comm *coll_op_numbered(const struct coll_operation *op)
{
	return op->args.collective == NPULINK_COLL_P2P ? NULL : op->comm;
}

/* One of no bytes is none. */
struct coll_copy {
	void *to;
	const void *from;
	size_t len;
};

/* Nothing that it has bound lies outside of the arena. */
static inline bool coll_op_in_arena(const struct coll_operation *op)
{
	return !op->reg[0] && !op->reg[1] && !op->staged[0] && !op->staged[1] && !op->scratch;
}

int coll_op_plan(struct coll_operation *op);
void coll_op_unplan(struct coll_operation *op);
bool coll_op_may_repeat(const struct coll_operation *op);
bool coll_op_is_small(const struct coll_operation *op);
int coll_op_bind(struct coll_operation *op);
int coll_op_rebind(struct coll_operation *op);
void coll_op_copy_in(struct coll_operation *op);
void coll_op_unbind(struct coll_operation *op);
void coll_op_copies(const struct coll_operation *op, struct coll_copy *in, struct coll_copy *out);
bool coll_op_is_staged(const struct coll_operation *op);
void coll_op_copy_out(const struct coll_operation *op, int status);
void coll_op_end(struct coll_operation *op, int status);
void coll_op_finish(struct coll_operation *op, int status);
int coll_op_run_again(struct coll_repeat *repeat);
int coll_op_run(struct coll_operation *op);
int coll_op_local(struct coll_operation *op);
bool coll_make_room(struct coll_dev *dev, bool wait);

static inline bool coll_op_is_local(const struct coll_operation *op)
{
	return op->local;
}

#endif /* COLL_RUN_OP_H */
