/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * agree_pick.h - which machines go on together, from whom each of them cannot reach.
 *
 * The same file is part of npulink.ko and of its test.
 */
#ifndef NPULINK_AGREE_PICK_H
#define NPULINK_AGREE_PICK_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
typedef unsigned int u32;
#endif

#define NPULINK_PICK_BITS	(8 * sizeof(unsigned long))

/* Words of a set of @n machines. */
static inline u32 npulink_pick_words(u32 n)
{
	return (n + NPULINK_PICK_BITS - 1) / NPULINK_PICK_BITS;
}

static inline bool npulink_picked(const unsigned long *set, u32 i)
{
	return set[i / NPULINK_PICK_BITS] >> (i % NPULINK_PICK_BITS) & 1;
}

static inline void npulink_pick_add(unsigned long *set, u32 i)
{
	set[i / NPULINK_PICK_BITS] |= 1UL << (i % NPULINK_PICK_BITS);
}

/*
 * npulink_pick() - a large set of machines that all reach each other
 * @cut: @n rows of npulink_pick_words(@n): whom each says that it cannot reach; overwritten
 * @cuts: room for @n
 * @set: the candidates; what is left of them is the set
 *
 * A connection counts as cut if either end says so: who says that of many is cut from many, and
 * each of those from one. The candidate that is cut from most is left out, of several the last,
 * until none is cut from another; then each that fits after all is taken back, the first ones
 * first. That is the largest set where some machines are cut from others, or parts from each
 * other; to find it in any case takes too long. Equal @cut and @set give equal sets.
 *
 * May sleep; takes some @n * @n steps.
 *
 * Return: machines in @set.
 */
u32 npulink_pick(unsigned long *cut, u32 *cuts, u32 n, unsigned long *set);

#endif /* NPULINK_AGREE_PICK_H */
