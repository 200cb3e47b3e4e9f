/* SPDX-License-Identifier: GPL-2.0 */
/*
 * board.h - a team's board, for tests that map it themselves.
 */
#ifndef SELFTESTS_BOARD_H
#define SELFTESTS_BOARD_H

#include <linux/npulink_board.h>
#include "team.h"

static inline size_t told_len(void)
{
	return 2 * getpagesize();
}

static inline size_t shared_len(uint32_t nranks)
{
	return nranks * NPULINK_BOARD_BYTES;
}

/* What the kernel says: struct npulink_board_machine, and a page behind it npulink_board_comm. */
static inline void *map_told(const struct member *m)
{
	return mmap(NULL, told_len(), PROT_READ, MAP_SHARED, m->fd, NPULINK_MMAP_BOARD(m->comm));
}

static inline void *map_shared(const struct member *m)
{
	return mmap(NULL, shared_len(m->nranks), PROT_READ | PROT_WRITE, MAP_SHARED, m->fd,
		    NPULINK_MMAP_BOARD_SHARED(m->comm));
}

/* As member_start(), under that number. */
static inline int member_start_as(const struct member *m, uint64_t number, uint64_t deadline_ns,
				  uint64_t *seq)
{
	struct npulink_post post = member_post_cmd(m, NPULINK_POST_HELD | NPULINK_POST_NUMBER);
	int rc;

	post.number = number;
	post.deadline_ns = deadline_ns;
	rc = raw_ioctl(m->fd, NPULINK_POST, &post);
	*seq = post.out_seq;
	return rc;
}

#endif /* SELFTESTS_BOARD_H */
