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

/* Each @i of @set & @also, in order. */
#define for_each_both(i, word, set, also, words) \
	for (u32 w_ = 0; w_ < (words); w_++) \
		for (word = (set)[w_] & (also)[w_]; \
		     word && (i = w_ * NPULINK_PICK_BITS + pick_first(word), true); \
		     word &= word - 1)

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
	u32 words = npulink_pick_words(n), i, k;
	unsigned long word;

	for (i = 0; i < n; i++) {
		unsigned long *row = pick_row(cut, n, i);

		pick_remove(row, i);
		if (!npulink_picked(set, i))
			continue;
		for_each_both(k, word, row, set, words)
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
	unsigned long word;

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
		pick_remove(set, i);
		cuts[i] = PICK_OUT;
		left--;
		for_each_both(k, word, pick_row(cut, n, i), set, words)
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
