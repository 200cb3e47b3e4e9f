/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * coll_board.h - what tests of calls that meet on the board have in common.
 */
#ifndef SELFTESTS_COLL_BOARD_H
#define SELFTESTS_COLL_BOARD_H

#include <fcntl.h>
#include <linux/npulink.h>
#include <sys/syscall.h>
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

/* Which ioctl a process sleeps in; -1: none. */
static inline long sleeps_in(pid_t pid)
{
	char path[64], text[128] = "";
	unsigned long cmd = -1;
	long nr = -1;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/syscall", pid);
	fd = open(path, O_RDONLY);
	if (fd >= 0) {
		if (read(fd, text, sizeof(text) - 1) > 0 &&
		    sscanf(text, "%ld %*s 0x%lx", &nr, &cmd) != 2)
			nr = -1;
		close(fd);
	}
	return nr == SYS_ioctl ? (long)cmd : -1;
}

/*
 * Rank 0 of two that run @late waits for long: in the end in ioctl @cmd, where everybody can see it.
 * The other one comes when number[0] is set.
 */
static inline bool waits_in(int (*late)(struct ranks *, struct coll_comm *), unsigned long cmd)
{
	struct ranks *ranks = ranks_new(2);
	unsigned int same = 0, tries;
	pid_t pid[2];
	int bad = 0;

	for (unsigned int i = 0; i < 2; i++)
		pid[i] = rank_start(ranks, i, late);
	for (tries = 0; tries < 3000 && same < 10; tries++) {
		pause_us(10000);
		same = sleeps_in(pid[0]) == (long)cmd && ranks->number[2] ? same + 1 : 0;
	}
	__atomic_store_n(&ranks->number[0], 1, __ATOMIC_SEQ_CST);
	for (unsigned int i = 0; i < 2; i++)
		bad += rank_join_end(ranks, i, pid[i]);
	ranks_free(ranks);
	return !bad && same == 10;
}

#endif /* SELFTESTS_COLL_BOARD_H */
