/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * coll_board.h - what tests of calls that meet on the board have in common.
 */
#ifndef SELFTESTS_COLL_BOARD_H
#define SELFTESTS_COLL_BOARD_H

#include "coll_ranks.h"

#define HOT	300	/* calls until the board is there, and has been used */

static inline void pause_us(unsigned int us)
{
	struct timespec ts = { us / 1000000, us % 1000000 * 1000L };

	nanosleep(&ts, NULL);
}

/* A number that all ranks agree on, unless the rank is among the ingredients. */
static inline unsigned int mix(unsigned int a, unsigned int b)
{
	a = a * 2654435761U + b * 40503U;
	return (a ^ a >> 15) * 2246822519U >> 16;
}

static inline uint64_t met(struct coll_comm *comm)
{
	struct coll_comm_info info = COLL_COMM_INFO_INIT;

	coll_comm_info(comm, &info);
	return info.met;
}

/* Until calls are met there, or never will be. */
static inline int warm_up(struct coll_comm *comm)
{
	int rc = 0;

	for (int i = 0; i < HOT && !rc; i++)
		rc = coll_barrier(comm);
	return rc;
}

#endif /* SELFTESTS_COLL_BOARD_H */
