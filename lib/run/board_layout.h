/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * board_layout.h - what is in the memory that the ranks of a communicator on one node share, see
 * linux/npulink_board.h: the library's own matter, and of this version of it only.
 *
 * For each collective one word decides whether all ranks meet: struct board_slot.word. It says how
 * many ranks have come, or that one of them does not wait any longer, and then all post. Each of
 * both excludes the other for good, so a collective that somebody has posted is not found to be
 * met, and one that has been met is posted by nobody. What only the root brings is bound to the
 * board by it, likewise for good: the others come for it when they like.
 */
#ifndef COLL_BOARD_LAYOUT_H
#define COLL_BOARD_LAYOUT_H

#include <stdint.h>
#include <linux/npulink_board.h>
#include "run/board.h"

/*
 * Whatever changes in this file, or in what ranks do with it, changes this number. Ranks whose
 * libraries differ in it do not meet.
 */
#define BOARD_LAYOUT	0x6e70756c626f0003ULL

#define BOARD_BYTES	1024	/* that each of COLL_BOARD_SLOTS has for what a rank brings */
#define BOARD_WIDE	8192	/* that COLL_BOARD_WIDES of them have beside them */

/* Of struct board_slot.word: the number of the collective, + 1, BOUND or FELL, and a count. */
#define BOARD_SHIFT	9
#define BOARD_BOUND	0x100
#define BOARD_FELL	0x80
#define BOARD_COUNT	0x7f

/* Beside struct board_slot.code: why a rank that finds another call bound aborts. */
#define BOARD_DIFFERS	(1U << 31)

_Static_assert(NPULINK_BOARD_RANKS + 1 <= BOARD_COUNT, "the count can say one more than all ranks");

/**
 * struct board_slot - what all ranks write about a collective
 * @word: its number, + 1; how many ranks have come, and one more: all have, with the same call;
 *	  or BOUND, by its root; or FELL. Only grows. Its lower half is a futex
 * @fell: 1 + the last number of this slot that a rank is known to have posted. For a rank
 *	  that could not use @word, as it still said something else. Only grows
 * @result: a number, + 1, and 1 + the rank that has worked out the result for all, likewise
 * @swept: a number, + 1: somebody wakes all of its ranks that are still asleep
 * @code: of the call that is BOUND
 * @sleepers: ranks that sleep until @word changes
 * @reserved: each slot has a cache line of its own
 */
struct board_slot {
	uint64_t word;
	uint64_t fell;
	uint64_t result;
	uint64_t swept;
	uint64_t code;
	uint32_t sleepers;
	uint32_t reserved[5];
};

/**
 * struct board_data - what a rank brings, or has worked out
 * @code: of its call; calls that differ have codes that differ
 * @data: as the ranks agree to read it
 * @reserved: each has cache lines of its own
 */
struct board_data {
	uint64_t code;
	unsigned char data[BOARD_BYTES];
	unsigned char reserved[56];
};

/**
 * struct board_rank - what only one rank writes
 * @done: it has done with all collectives of lower numbers
 * @away: 1 + the last number for which it has left something there, while it does something else
 * @reserved: a cache line of its own
 * @slots: by number: what it brings
 * @results: by number: what is for all, or parts of it for each
 * @wide: by number: what it brings, instead of what a slot would hold
 * @wide_results: by number: the same for results
 */
struct board_rank {
	uint64_t done;
	uint64_t away;
	uint64_t reserved[6];
	struct board_data slots[COLL_BOARD_SLOTS];
	struct board_data results[COLL_BOARD_SLOTS];
	unsigned char wide[COLL_BOARD_WIDES][BOARD_WIDE];
	unsigned char wide_results[COLL_BOARD_WIDES][BOARD_WIDE];
};

/**
 * struct board_memory - all of it
 * @layout: by rank: BOARD_LAYOUT of its library, 0 until it is there. Comes first in all versions
 * @rest: how often from now on all who sleep are woken at once
 * @pause: how often that was, the last time
 * @requests_from: number from which on requests are left here, and ..
 * @requests_pause: .. how many before it were not
 * @reserved: a cache line
 * @slots: by number
 * @reserved2: ranks begin with a page
 * @ranks: by rank
 */
struct board_memory {
	uint64_t layout[NPULINK_BOARD_RANKS];
	uint32_t rest;
	uint32_t pause;
	uint64_t requests_from;
	uint32_t requests_pause;
	uint32_t reserved[11];
	struct board_slot slots[COLL_BOARD_SLOTS];
	unsigned char reserved2[2496];
	struct board_rank ranks[];
};

_Static_assert(sizeof(struct board_slot) == 64 && sizeof(struct board_memory) == 4096,
	       "cache lines and pages");
_Static_assert(sizeof(struct board_memory) + 2 * sizeof(struct board_rank) <=
	       2 * NPULINK_BOARD_BYTES, "there is room");

#endif /* COLL_BOARD_LAYOUT_H */
