/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * event.h - the list of entries that lower.c makes and event.c runs.
 *
 * Words of the shape: the number of entries, the number of edges, then the entries
 * of struct sim_entry, then the edges' targets. Peers and lengths are by entry.
 */
#ifndef COLL_SIM_EVENT_H
#define COLL_SIM_EVENT_H

#include <stdint.h>

#define SIM_SEND	(1 << 0)
#define SIM_RECV	(1 << 1)
#define SIM_REDUCE	(1 << 2)
#define SIM_FUSED	(1 << 3)	/* SIM_SEND: passes on what the entry before receives */
					/* SIM_RECV: the entry after passes it on */

/**
 * struct sim_entry - one end of a message, or something local
 * @flags: SIM_*, channel << 8
 * @step: index of the step
 * @turn: how many entries of this direction, peer and channel are before it
 * @waits: edges that lead here
 * @first: first edge that starts here; they end where those of the next one start
 */
struct sim_entry {
	uint32_t flags, step, turn, waits, first;
};

#define SIM_ENTRY_WORDS	(sizeof(struct sim_entry) / sizeof(uint32_t))

#endif /* COLL_SIM_EVENT_H */
