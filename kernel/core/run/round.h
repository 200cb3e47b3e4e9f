/* SPDX-License-Identifier: GPL-2.0 */
/*
 * round.h - the operations of all ranks of a node under one number: round.c.
 */
#ifndef NPULINK_ROUND_H
#define NPULINK_ROUND_H

#include "run/op.h"

enum npulink_round_state {
	NPULINK_ROUND_GATHERS,	/* until all ranks have posted */
	NPULINK_ROUND_APART,	/* each operation is run by itself */
	NPULINK_ROUND_FULL,	/* all have posted: it is run as a whole, or linked for next time */
};

enum npulink_arrival_kind {
	NPULINK_ARRIVAL_ALONE,	/* to be run by itself */
	NPULINK_ARRIVAL_LINKS,	/* the same; and the plans of all can be linked for next time */
	NPULINK_ARRIVAL_WAITS,	/* for those that are not there yet */
	NPULINK_ARRIVAL_RUNS,	/* the last one: to be run with all */
};

/*
 * struct npulink_arrival - what an operation has found when it was posted
 * @kind: enum npulink_arrival_kind
 * @others: operations that have waited in vain, and are to be run by themselves; by op->chain,
 *	referenced
 */
struct npulink_arrival {
	u8 kind;
	struct npulink_op *others;
};

void npulink_round_arrive(struct npulink_op *op, struct npulink_arrival *a);
void npulink_round_go(struct npulink_op *op, const struct npulink_arrival *a,
		      struct npulink_run *run);
bool npulink_round_leave(struct npulink_op *op);
void npulink_round_part(struct npulink_req *req, const struct npulink_op *waits, u64 until_ns);
u32 npulink_round_missing(const struct npulink_op *op, u32 first);

#endif /* NPULINK_ROUND_H */
