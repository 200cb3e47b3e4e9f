/* SPDX-License-Identifier: GPL-2.0 */
/*
 * board.h - a team's board, for tests that write on it themselves: who maps it, sleeps at it, and
 * puts flags.
 */
#ifndef SELFTESTS_BOARD_H
#define SELFTESTS_BOARD_H

#include <linux/npulink_board.h>
#include "team.h"

#define HASH	0xabcdef

static inline size_t page_up(size_t len)
{
	size_t page = getpagesize();

	return (len + page - 1) / page * page;
}

static inline size_t own_len(void)
{
	return page_up(sizeof(struct npulink_board_rank));
}

static inline size_t all_len(uint32_t nranks)
{
	return getpagesize() + page_up(sizeof(struct npulink_board_comm)) + nranks * own_len();
}

static inline void *map_own(const struct member *m)
{
	return mmap(NULL, own_len(), PROT_READ | PROT_WRITE, MAP_SHARED, m->fd,
		    NPULINK_MMAP_BOARD_OWN(m->comm));
}

static inline void *map_all(const struct member *m)
{
	return mmap(NULL, all_len(m->nranks), PROT_READ, MAP_SHARED, m->fd,
		    NPULINK_MMAP_BOARD(m->comm));
}

/* As that says: 1 + who has woken us. */
static inline int board_wait_for(int fd, uint32_t comm, uint32_t flags, uint64_t number,
				 uint32_t rank)
{
	struct npulink_board_wait cmd = {
		.size = sizeof(cmd), .flags = flags, .comm_id = comm, .number = number,
		.rank = rank,
	};
	int rc = ioctl(fd, NPULINK_BOARD_WAIT, &cmd);

	return rc < 0 ? -errno : rc;
}

static inline int board_wait(int fd, uint32_t comm, uint32_t flags, uint64_t number)
{
	return board_wait_for(fd, comm, flags, number, 0);
}

static inline void put_flag(struct npulink_board_rank *own, uint64_t number, uint32_t hash)
{
	__atomic_store_n(&own->slots[number % NPULINK_BOARD_SLOTS].flag,
			 NPULINK_BOARD_FLAG(number, hash), __ATOMIC_SEQ_CST);
}

#endif /* SELFTESTS_BOARD_H */
