/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * collectives.h - what each collective is, a row each. Everything that must know that asks this
 * table: npulink.ko the functions below, libcoll and the command also lib/plan/collectives.c. So
 * a new collective is a number in npulink_step.h and a row here.
 *
 * The columns of a row:
 *
 *  - id: NPULINK_COLL_*, without the prefix, and name: the same for people
 *  - v: COUNTS if the ranks give a count for each block, SAME if all blocks are of the same length
 *  - givers, gives: who has an input, and how much of it
 *  - getters, gets: who has a result, and how much of it
 *  - whose: what is in the result
 *  - gathers: if all its ranks are on one node, does the last one to post have it run as a whole
 *    (kernel/core/run/round.c)? LARGE: only if it is much
 *
 * Givers and getters are EVERY rank, only the ROOT, only the SENDER or the RECEIVER, or NOBODY.
 * An input or a result is a WHOLE buffer, which is of the same length on all ranks that have one;
 * one BLOCK; or BLOCKS, one per rank; or NONE. Whose is one of
 *
 *  - SUM: of all ranks' inputs, by the call's reduction
 *  - ROOT: the root's input
 *  - EACH: block i is rank i's input, or, of an input of several blocks, the one that is for me
 *  - PEER: the other rank's input
 *
 * A BLOCK of BLOCKS is the one with the own rank's number.
 *
 * All of a collective that always gathers depend on each other: no rank waits that would not have
 * to wait anyway. Of a large one little is lost if a rank that could be done waits for the last
 * one, and much is won if no rank that waits is idle.
 */
#ifndef NPULINK_COLLECTIVES_H
#define NPULINK_COLLECTIVES_H

#include <linux/npulink.h>
#ifndef __KERNEL__
#include <stdbool.h>
#endif

#define NPULINK_COLLECTIVES(X) \
	X(ALLREDUCE, "allreduce", SAME, EVERY, WHOLE, EVERY, WHOLE, SUM, ALWAYS) \
	X(REDUCE, "reduce", SAME, EVERY, WHOLE, ROOT, WHOLE, SUM, LARGE) \
	X(BROADCAST, "broadcast", SAME, ROOT, WHOLE, EVERY, WHOLE, ROOT, LARGE) \
	X(SCATTER, "scatter", SAME, ROOT, BLOCKS, EVERY, BLOCK, ROOT, NEVER) \
	X(SCATTERV, "scatterv", COUNTS, ROOT, BLOCKS, EVERY, BLOCK, ROOT, NEVER) \
	X(GATHER, "gather", SAME, EVERY, BLOCK, ROOT, BLOCKS, EACH, NEVER) \
	X(GATHERV, "gatherv", COUNTS, EVERY, BLOCK, ROOT, BLOCKS, EACH, NEVER) \
	X(ALLGATHER, "allgather", SAME, EVERY, BLOCK, EVERY, BLOCKS, EACH, ALWAYS) \
	X(ALLGATHERV, "allgatherv", COUNTS, EVERY, BLOCK, EVERY, BLOCKS, EACH, NEVER) \
	X(REDUCE_SCATTER, "reduce_scatter", SAME, EVERY, BLOCKS, EVERY, BLOCK, SUM, ALWAYS) \
	X(REDUCE_SCATTERV, "reduce_scatterv", COUNTS, EVERY, BLOCKS, EVERY, BLOCK, SUM, NEVER) \
	X(ALLTOALL, "alltoall", SAME, EVERY, BLOCKS, EVERY, BLOCKS, EACH, ALWAYS) \
	X(ALLTOALLV, "alltoallv", COUNTS, EVERY, BLOCKS, EVERY, BLOCKS, EACH, NEVER) \
	X(BARRIER, "barrier", SAME, NOBODY, NONE, NOBODY, NONE, EACH, ALWAYS) \
	X(P2P, "p2p", SAME, SENDER, WHOLE, RECEIVER, WHOLE, PEER, NEVER)

enum {
	NPULINK_V_SAME, NPULINK_V_COUNTS,
};

enum npulink_who {
	NPULINK_WHO_NOBODY, NPULINK_WHO_EVERY, NPULINK_WHO_ROOT, NPULINK_WHO_SENDER,
	NPULINK_WHO_RECEIVER,
};

/* In the order of their length. */
enum npulink_part {
	NPULINK_PART_NONE, NPULINK_PART_WHOLE, NPULINK_PART_BLOCK, NPULINK_PART_BLOCKS,
};

enum npulink_whose {
	NPULINK_WHOSE_SUM, NPULINK_WHOSE_ROOT, NPULINK_WHOSE_EACH, NPULINK_WHOSE_PEER,
};

enum {
	NPULINK_GATHERS_NEVER, NPULINK_GATHERS_LARGE, NPULINK_GATHERS_ALWAYS,
};

/* A row's bit in the masks below, if what it says is so. */
#define NPULINK_COLL_IF(id, is) | ((is) ? 1U << NPULINK_COLL_##id : 0)

#define NPULINK_COLL_V(id, name, v, ...) NPULINK_COLL_IF(id, NPULINK_V_##v)
#define NPULINK_COLL_ROOT(id, name, v, givers, gives, getters, ...) \
	NPULINK_COLL_IF(id, NPULINK_WHO_##givers == NPULINK_WHO_ROOT || \
			    NPULINK_WHO_##getters == NPULINK_WHO_ROOT)
#define NPULINK_COLL_SUM(id, name, v, givers, gives, getters, gets, whose, gathers) \
	NPULINK_COLL_IF(id, NPULINK_WHOSE_##whose == NPULINK_WHOSE_SUM)
#define NPULINK_COLL_BLOCKS(id, name, v, givers, gives, getters, gets, whose, gathers) \
	NPULINK_COLL_IF(id, NPULINK_PART_##gives >= NPULINK_PART_BLOCK || \
			    NPULINK_PART_##gets >= NPULINK_PART_BLOCK)
#define NPULINK_COLL_ALWAYS(id, name, v, givers, gives, getters, gets, whose, gathers) \
	NPULINK_COLL_IF(id, NPULINK_GATHERS_##gathers == NPULINK_GATHERS_ALWAYS)
#define NPULINK_COLL_LARGE(id, name, v, givers, gives, getters, gets, whose, gathers) \
	NPULINK_COLL_IF(id, NPULINK_GATHERS_##gathers == NPULINK_GATHERS_LARGE)

/* The columns as masks, a bit for each collective. */
enum {
	NPULINK_COLLS_V = 0 NPULINK_COLLECTIVES(NPULINK_COLL_V),
	NPULINK_COLLS_ROOT = 0 NPULINK_COLLECTIVES(NPULINK_COLL_ROOT),
	NPULINK_COLLS_SUM = 0 NPULINK_COLLECTIVES(NPULINK_COLL_SUM),
	NPULINK_COLLS_BLOCKS = 0 NPULINK_COLLECTIVES(NPULINK_COLL_BLOCKS),
	NPULINK_COLLS_ALWAYS = 0 NPULINK_COLLECTIVES(NPULINK_COLL_ALWAYS),
	NPULINK_COLLS_LARGE = 0 NPULINK_COLLECTIVES(NPULINK_COLL_LARGE),
};

static inline bool npulink_coll_in(__u32 mask, __u32 collective)
{
	return collective < NPULINK_COLLS && mask >> collective & 1;
}

/* Do the ranks give counts, one per rank? */
static inline bool npulink_coll_is_v(__u32 collective)
{
	return npulink_coll_in(NPULINK_COLLS_V, collective);
}

/* Is one rank not like the others? */
static inline bool npulink_coll_has_root(__u32 collective)
{
	return npulink_coll_in(NPULINK_COLLS_ROOT, collective);
}

/* Is a reduction part of the call? */
static inline bool npulink_coll_reduces(__u32 collective)
{
	return npulink_coll_in(NPULINK_COLLS_SUM, collective);
}

/* Is there a large buffer with a block for each rank, and is the call's count that of a block? */
static inline bool npulink_coll_has_blocks(__u32 collective)
{
	return npulink_coll_in(NPULINK_COLLS_BLOCKS, collective);
}

#ifndef __KERNEL__
/* Who has what: a call, as one of its ranks sees it. */
struct npulink_place {
	__u32 rank, nranks, root, peer;
	bool sends;
};

static inline bool npulink_is_one_of(enum npulink_who who, const struct npulink_place *at)
{
	switch (who) {
	case NPULINK_WHO_NOBODY:
		return false;
	case NPULINK_WHO_EVERY:
		return true;
	case NPULINK_WHO_ROOT:
		return at->rank == at->root;
	case NPULINK_WHO_SENDER:
		return at->sends;
	case NPULINK_WHO_RECEIVER:
		return !at->sends;
	}
	return false;
}

#define NPULINK_ALL_RANKS	(~0U)

/* The rank whose input is in that block of the result, or NPULINK_ALL_RANKS for their sum. */
static inline __u32 npulink_whose(enum npulink_whose whose, const struct npulink_place *at,
				  __u32 block)
{
	switch (whose) {
	case NPULINK_WHOSE_SUM:
		return NPULINK_ALL_RANKS;
	case NPULINK_WHOSE_ROOT:
		return at->root;
	case NPULINK_WHOSE_EACH:
		return block;
	case NPULINK_WHOSE_PEER:
		return at->peer;
	}
	return block;
}
#endif /* __KERNEL__ */

#endif /* NPULINK_COLLECTIVES_H */
