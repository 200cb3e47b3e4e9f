/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * repeat.h - blocking calls that come again.
 */
#ifndef COLL_RUN_REPEAT_H
#define COLL_RUN_REPEAT_H

#include <stdatomic.h>
#include <stdbool.h>
#include "run/board.h"
#include "run/op.h"

#define COLL_KEPT	8	/* that are: of a loop over more calls, some */
/* Calls that are not kept for want of room until those go that have not come meanwhile. */
#define COLL_PATIENCE	256

/**
 * struct coll_repeat - a call that is ready to be posted
 * @op: planned and bound
 * @in: into the arena
 * @out: out of it
 * @board: if it need not be posted
 * @seen: what coll_repeats.refused was when it last came
 */
struct coll_repeat {
	struct coll_operation op;
	struct coll_copy in, out;
	struct coll_board_call board;
	unsigned int seen;
};

/**
 * struct coll_repeats - those of a communicator
 * @busy: somebody runs or changes one; who does that holds all of them
 * @hits: calls that were there
 * @refused: calls for which there was no room
 * @n: how many there are
 * @v: oldest first
 */
struct coll_repeats {
	_Atomic bool busy;
	_Atomic uint64_t hits;
	unsigned int refused, n;
	struct coll_repeat v[COLL_KEPT];
};

struct coll_repeat *coll_repeat_get(struct coll_comm *comm, const struct coll_args *args,
				    const void *send, const void *recv);
void coll_repeat_end(struct coll_repeat *repeat);
void coll_repeat_give(struct coll_repeat *repeat, struct coll_operation *op);
bool coll_repeat_keep(const struct coll_operation *op);
bool coll_repeats_drop(struct coll_comm *comm);

#endif /* COLL_RUN_REPEAT_H */
