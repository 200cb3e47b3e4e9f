// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * verify_rotation.c - the proof by symmetry against the one that executes all
 * ranks: they agree on every algorithm, and on plans that have been broken in the
 * same way on all ranks.
 *
 * npulink-test: san-soak
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kselftest.h"
#include "lib/algorithm/algorithms.h"
#include "lib/plan/planner.h"
#include "lib/verify/set.h"

#define KINDS	8

struct mutant {
	struct coll_set set;
	uint32_t step, kind, p;
	uint64_t m;
};

static uint64_t counts[33 * 33];

/* The next shard, counted around. */
static void turn(const struct mutant *mu, __u64 *off)
{
	*off = (*off + mu->m) % (mu->p * mu->m);
}

static int get(void *ctx, uint32_t rank, struct coll_args *args, struct coll_plan *plan)
{
	struct mutant *mu = ctx;
	struct npulink_step *s;
	int rc = mu->set.get(mu->set.ctx, rank, args, plan);

	if (rc || mu->step >= plan->nsteps)
		return rc;
	s = &plan->steps[mu->step];
	switch (mu->kind) {
	case 0:
		memset(s->dep, 0, sizeof(s->dep));
		break;
	case 1:
		turn(mu, &s->src_off);
		break;
	case 2:
		turn(mu, &s->dst_off);
		break;
	case 3:
		s->flags ^= NPULINK_STEP_F_DIV;
		break;
	case 4:
		s->op ^= NPULINK_STEP_REDUCE;
		break;
	case 5:
		if (s->op & NPULINK_STEP_SEND)
			s->send_peer = (s->send_peer + 1) % mu->p;
		break;
	case 6:
		if (s->op & NPULINK_STEP_RECV)
			s->recv_peer = (s->recv_peer + 1) % mu->p;
		break;
	case 7:
		if (mu->step + 1 < plan->nsteps) {
			uint32_t peer = s->recv_peer;

			s->recv_peer = s[1].recv_peer;
			s[1].recv_peer = peer;
		}
	}
	return 0;
}

struct tally {
	uint32_t proved, refused, unlike, wrong;
	char text[500];
};

static void agree(const struct coll_set *set, struct tally *t)
{
	struct coll_verify_report by_turn, by_all;
	int rc = coll_verify_rotation(set, &by_turn), full;

	if (rc == -EOPNOTSUPP) {
		t->unlike++;
		return;
	}
	full = coll_verify_set(set, &by_all);
	t->proved += !rc;
	t->refused += rc == -EINVAL;
	if (!rc == !full && (rc || (by_turn.messages == by_all.messages &&
				    by_turn.bytes == by_all.bytes &&
				    by_turn.steps == by_all.steps)))
		return;
	t->wrong++;
	snprintf(t->text, sizeof(t->text), "%d %s, by all ranks %d %s", rc, by_turn.reason, full,
		 by_all.reason);
}

static void try(const struct coll_algorithm *alg, uint32_t p, bool in_place, struct tally *good,
		struct tally *bad)
{
	struct coll_args args = {
		.collective = alg->collective, .nranks = p, .dtype = NPULINK_FLOAT32,
		.redop = NPULINK_CALL_AVG, .counts = counts, .in_place = in_place,
		.count = alg->collective == NPULINK_COLL_ALLREDUCE ? 2 * p : 2,
	};
	struct mutant mu = { .p = p, .m = 8 };
	struct coll_set set = { .nranks = p, .get = get, .ctx = &mu, .seed = 1 };
	struct coll_planned planned;

	if (alg->supports && alg->supports(&args))
		return;
	if (!coll_planned_init(&planned, alg, &args, &mu.set)) {
		mu.step = ~0U;
		agree(&set, good);
		for (mu.step = 0; p > 2 && mu.step < 3 * p; mu.step++)
			for (mu.kind = 0; mu.kind < KINDS; mu.kind++)
				agree(&set, bad);
	}
	coll_planned_free(&planned);
}

int main(void)
{
	static const uint32_t ranks[] = { 2, 3, 5, 8, 9 };
	const struct coll_algorithm *alg = NULL;
	struct tally bad = { 0 };
	uint32_t n = 1, i;

	for (i = 0; i < ARRAY_SIZE(counts); i++)
		counts[i] = 2;
	while ((alg = coll_algorithm_next(~0U, alg)))
		n += alg->rotation;
	ksft_print_header();
	ksft_set_plan(n);
	while ((alg = coll_algorithm_next(~0U, alg))) {
		struct tally good = { 0 };

		if (alg->collective == NPULINK_COLL_P2P)
			continue;
		for (i = 0; i < 2 * ARRAY_SIZE(ranks); i++)
			try(alg, ranks[i / 2], i % 2, &good, &bad);
		/* In place, alltoall's exchanges are ordered by rank. */
		if (alg->rotation)
			ksft_test_result(good.proved && !good.refused && !good.wrong &&
					 (!good.unlike || alg->collective == NPULINK_COLL_ALLTOALL),
					 "%s %s: %u sets proved by symmetry %s\n",
					 coll_collective_name(alg->collective), alg->name,
					 good.proved, good.text);
		else
			bad.wrong += good.wrong + good.refused;
	}
	if (bad.wrong)
		ksft_print_msg("%s\n", bad.text);
	ksft_test_result(!bad.wrong && bad.refused > 1000,
			 "broken plans: %u refused, %u right all the same, %u without symmetry, %u not agreed on\n",
			 bad.refused, bad.proved, bad.unlike, bad.wrong);
	ksft_finished();
}
