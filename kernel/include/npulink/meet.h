/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Which collectives are run as a whole when the last rank has posted (kernel/core/run/round.c), by
 * its task or by those of all ranks, so that libcoll can count on it when
 * it chooses an algorithm.
 */
#ifndef NPULINK_MEET_H
#define NPULINK_MEET_H

#include <linux/npulink.h>
#ifndef __KERNEL__
#include <stdbool.h>
#endif

/* Those whose ranks all depend on each other: nobody waits who would not have to anyway. */
static inline bool npulink_coll_meets(__u32 collective)
{
	switch (collective) {
	case NPULINK_COLL_BARRIER:
	case NPULINK_COLL_ALLREDUCE:
	case NPULINK_COLL_ALLGATHER:
	case NPULINK_COLL_ALLTOALL:
	case NPULINK_COLL_REDUCE_SCATTER:
		return true;
	}
	return false;
}

/*
 * The same for much data only: then little is lost if who could be done waits for the last one,
 * and much is won if nobody who waits is idle.
 */
static inline bool npulink_coll_meets_large(__u32 collective)
{
	return collective == NPULINK_COLL_BROADCAST || collective == NPULINK_COLL_REDUCE;
}

/*
 * Bytes that all ranks together may read and write; for more it is all of them, if their plans
 * allow that. It is one processor that works, where
 * there could be several; but where ranks share processors, each round of messages that is not
 * needed saves a process switch of each rank, and the others would not have worked much sooner.
 */
static inline __u64 npulink_meet_bytes(__u32 script_bytes, __u32 nranks, __u32 processors)
{
	if (!processors || nranks <= processors)
		return script_bytes;
	return 2ULL * nranks * (script_bytes / processors);
}

#endif /* NPULINK_MEET_H */
