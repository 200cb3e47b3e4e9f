// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * agree_pick.c - which machines go on together, see agree_pick.h. What differs between kernel
 * and userspace is at its head.
 */
#ifdef __KERNEL__
#include <linux/bitops.h>
#include <linux/sched.h>
#define pick_weight(word)	hweight_long(word)
#define pick_first(word)	__ffs(word)
#define pick_yield()		cond_resched()
#else
#define pick_weight(word)	((u32)__builtin_popcountl(word))
#define pick_first(word)	((u32)__builtin_ctzl(word))
#define pick_yield()		((void)0)
#endif
#include "agree_pick.h"

#define PICK_OUT	(~0U)		/* was a candidate */

/* The first of @set & @also that is not below @i, or @n. */
static u32 pick_next(const unsigned long *set, const unsigned long *also, u32 n, u32 i)
{
	u32 w = i / NPULINK_PICK_BITS, words = npulink_pick_words(n);
	unsigned long word = i < n ? (set[w] & also[w]) >> (i % NPULINK_PICK_BITS) : 0;

	if (word)
		return i + pick_first(word);
	while (++w < words) {
		word = set[w] & also[w];
		if (word)
			return w * NPULINK_PICK_BITS + pick_first(word);
	}
	return n;
}

static unsigned long *pick_row(unsigned long *cut, u32 n, u32 i)
{
	return cut + (size_t)i * npulink_pick_words(n);
}

static void pick_remove(unsigned long *set, u32 i)
{
	set[i / NPULINK_PICK_BITS] &= ~(1UL << (i % NPULINK_PICK_BITS));
}

/* Candidates only, and either end's word counts for both. */
static void pick_symmetric(unsigned long *cut, u32 n, const unsigned long *set)
{
	u32 i, k;

	for (i = 0; i < n; i++) {
		unsigned long *row = pick_row(cut, n, i);

		pick_remove(row, i);
		if (!npulink_picked(set, i))
			continue;
		for (k = pick_next(row, set, n, 0); k < n; k = pick_next(row, set, n, k + 1))
			npulink_pick_add(pick_row(cut, n, k), i);
		pick_yield();
	}
}

static u32 pick_count(const unsigned long *row, const unsigned long *set, u32 words)
{
	u32 n = 0, w;

	for (w = 0; w < words; w++)
		n += pick_weight(row[w] & set[w]);
	return n;
}

/* The candidate that is cut from most others, the last of several; @n: none is from any. */
static u32 pick_worst(const u32 *cuts, u32 n)
{
	u32 worst = n, most = 1, i;

	for (i = 0; i < n; i++) {
		if (cuts[i] >= most && cuts[i] != PICK_OUT) {
			most = cuts[i];
			worst = i;
		}
	}
	return worst;
}

u32 npulink_pick(unsigned long *cut, u32 *cuts, u32 n, unsigned long *set)
{
	u32 words = npulink_pick_words(n), left = 0, i, k;

	pick_symmetric(cut, n, set);
	for (i = 0; i < n; i++) {
		cuts[i] = 0;
		if (!npulink_picked(set, i))
			continue;
		cuts[i] = pick_count(pick_row(cut, n, i), set, words);
		left++;
		pick_yield();
	}
	while ((i = pick_worst(cuts, n)) < n) {
		const unsigned long *row = pick_row(cut, n, i);

		pick_remove(set, i);
		cuts[i] = PICK_OUT;
		left--;
		for (k = pick_next(row, set, n, 0); k < n; k = pick_next(row, set, n, k + 1))
			cuts[k]--;
		pick_yield();
	}
	for (i = 0; i < n; i++) {
		if (cuts[i] != PICK_OUT || pick_count(pick_row(cut, n, i), set, words))
			continue;
		npulink_pick_add(set, i);
		left++;
		pick_yield();
	}
	return left;
}
