// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * agree_pick.c - who goes on if some machines cannot reach each other (core/comm/agree_pick.c):
 * of a thousand that are cut in one way or another the most that can be, of some that are cut at
 * random hardly ever fewer than can be, and in each case machines that all reach each other.
 */
#include <stdlib.h>
#include <string.h>
#include "../../kernel/core/comm/agree_pick.h"
#include "kselftest.h"

#define MANY	1000U
#define FEW	12U
#define ROUNDS	4000

struct machines {
	u32 n;
	unsigned long *cut, *set;
	bool *is_cut;			/* [n * n], whoever says so */
};

static void machines_init(struct machines *m, u32 n)
{
	u32 words = npulink_pick_words(n);

	m->n = n;
	m->cut = calloc((size_t)n * words, sizeof(*m->cut));
	m->set = calloc(words, sizeof(*m->set));
	m->is_cut = calloc((size_t)n * n, sizeof(*m->is_cut));
	if (!m->cut || !m->set || !m->is_cut)
		ksft_exit_fail_msg("no memory\n");
	for (u32 i = 0; i < n; i++)
		npulink_pick_add(m->set, i);
}

static void machines_free(struct machines *m)
{
	free(m->cut);
	free(m->set);
	free(m->is_cut);
}

/* @i says so. */
static void says(struct machines *m, u32 i, u32 k)
{
	npulink_pick_add(m->cut + (size_t)i * npulink_pick_words(m->n), k);
	m->is_cut[i * m->n + k] = true;
	m->is_cut[k * m->n + i] = true;
}

static void cut(struct machines *m, u32 i, u32 k)
{
	says(m, i, k);
	says(m, k, i);
}

/* Do all of the set reach each other, and is nobody else of @from who could be with them? */
static bool is_whole(const struct machines *m, const unsigned long *from)
{
	for (u32 i = 0; i < m->n; i++) {
		bool fits = true;

		for (u32 k = 0; k < m->n; k++)
			if (k != i && npulink_picked(m->set, k) && m->is_cut[i * m->n + k])
				fits = false;
		if (npulink_picked(m->set, i) ? !fits || !npulink_picked(from, i) :
		    fits && npulink_picked(from, i))
			return false;
	}
	return true;
}

/* How many are picked, from those in the set; ~0U: some that cannot be, or others the next time. */
static u32 picked(struct machines *m)
{
	u32 words = npulink_pick_words(m->n), n, again;
	size_t bytes = (size_t)m->n * words * sizeof(*m->cut);
	unsigned long *was = malloc(bytes), *from = malloc(words * sizeof(*from));
	unsigned long *first = malloc(words * sizeof(*first));
	u32 *cuts = malloc(m->n * sizeof(*cuts));
	bool ok;

	if (!was || !from || !first || !cuts)
		ksft_exit_fail_msg("no memory\n");
	memcpy(was, m->cut, bytes);
	memcpy(from, m->set, words * sizeof(*from));
	n = npulink_pick(m->cut, cuts, m->n, m->set);
	memcpy(first, m->set, words * sizeof(*first));
	ok = is_whole(m, from);
	memcpy(m->cut, was, bytes);
	memcpy(m->set, from, words * sizeof(*from));
	memset(cuts, 0x5a, m->n * sizeof(*cuts));
	again = npulink_pick(m->cut, cuts, m->n, m->set);
	ok = ok && again == n && !memcmp(first, m->set, words * sizeof(*first));
	free(was);
	free(from);
	free(first);
	free(cuts);
	return ok ? n : ~0U;
}

/* ---- a thousand ---------------------------------------------------------------------- */

static void first_reaches_second(struct machines *m)
{
	for (u32 i = 2; i < m->n; i++)
		cut(m, 0, i);
}

static void second_reaches_first(struct machines *m)
{
	for (u32 i = 2; i < m->n; i++)
		cut(m, 1, i);
}

static void no_uplink(struct machines *m)
{
	for (u32 i = 16; i < m->n; i++)
		cut(m, 1, i);
}

static void one_cable(struct machines *m)
{
	cut(m, 0, m->n - 1);
}

static void halves(struct machines *m)
{
	for (u32 i = 0; i < m->n / 2; i++)
		for (u32 k = m->n / 2; k < m->n; k++)
			cut(m, i, k);
}

/* The larger part has the later numbers. */
static void two_fifths(struct machines *m)
{
	for (u32 i = 0; i < m->n * 2 / 5; i++)
		for (u32 k = m->n * 2 / 5; k < m->n; k++)
			cut(m, i, k);
}

static void dead_ones(struct machines *m)
{
	for (u32 i = 0; i < m->n; i += 3)
		for (u32 k = 0; k < m->n; k++)
			if (k != i)
				says(m, k, i);
}

/* The first says that it reaches nobody, or hardly anybody. */
static void liar(struct machines *m)
{
	for (u32 i = 1; i < m->n; i++)
		says(m, 0, i);
}

static void liars(struct machines *m)
{
	for (u32 l = 0; l < 3; l++)
		for (u32 i = 10; i < 20; i++)
			says(m, l, i);
}

static const struct {
	const char *what;
	void (*make)(struct machines *m);
	u32 n, first, without;
} cases[] = {
	{ "none is cut", NULL, 1000, 0, ~0U },
	{ "the first reaches the second only", first_reaches_second, 999, 1, 0 },
	{ "the second reaches the first only", second_reaches_first, 999, 0, 1 },
	{ "the second has lost its uplink", no_uplink, 999, 0, 1 },
	{ "one cable is cut", one_cable, 999, 0, 999 },
	{ "they are cut into halves", halves, 500, 0, 500 },
	{ "into two parts", two_fifths, 600, 400, 399 },
	{ "each third is dead", dead_ones, 666, 1, 999 },
	{ "one says that all others are", liar, 999, 1, 0 },
	{ "three say that ten are", liars, 997, 3, 2 },
};

static void test_many(void)
{
	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct machines m;
		u32 n, first = 0;

		machines_init(&m, MANY);
		if (cases[i].make)
			cases[i].make(&m);
		n = picked(&m);
		while (first < MANY && !npulink_picked(m.set, first))
			first++;
		ksft_print_msg("%u go on, from machine %u on\n", n, first);
		ksft_test_result(n == cases[i].n && first == cases[i].first &&
				 (cases[i].without == ~0U ||
				  !npulink_picked(m.set, cases[i].without)),
				 "of %u %s\n", MANY, cases[i].what);
		machines_free(&m);
	}
}

/* ---- at random ----------------------------------------------------------------------- */

/* The most of them that all reach each other. */
static u32 most(const struct machines *m, unsigned long from)
{
	u32 best = 0;

	for (unsigned long set = 0; set < 1UL << m->n; set++) {
		bool ok = !(set & ~from);

		if ((u32)__builtin_popcountl(set) <= best)
			continue;
		for (u32 i = 0; i < m->n && ok; i++)
			for (u32 k = 0; k < i && ok; k++)
				ok = !((set >> i) & (set >> k) & 1) || !m->is_cut[i * m->n + k];
		if (ok)
			best = __builtin_popcountl(set);
	}
	return best;
}

/* Of up to twelve, each pair is cut with a probability of its own, or said so by one end. */
static void test_random(void)
{
	unsigned int wrong = 0, fewer = 0, far = 0;

	srandom(44);
	for (int round = 0; round < ROUNDS; round++) {
		u32 n = 2 + random() % (FEW - 1), odds = random() % 100, best, got;
		struct machines m;

		machines_init(&m, n);
		if (!(random() % 4))
			m.set[0] = random() % (1UL << n);
		for (u32 i = 0; i < n; i++)
			for (u32 k = 0; k < n; k++)
				if (i != k && random() % 200 < odds)
					says(&m, i, k);
		best = most(&m, m.set[0]);
		got = picked(&m);
		wrong += got > best;
		fewer += got < best;
		far += got + 1 < best;
		machines_free(&m);
	}
	ksft_print_msg("%u wrong; of %u, %u fewer than can be, %u by more than one\n", wrong,
		       ROUNDS, fewer, far);
	ksft_test_result(!wrong && fewer < ROUNDS / 20 && far < ROUNDS / 1000,
			 "some that are cut at random\n");
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(sizeof(cases) / sizeof(cases[0]) + 1);
	test_many();
	test_random();
	ksft_finished();
}
