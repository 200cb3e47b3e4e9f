// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * verify_scale.c - means of floats, whose inputs are scaled as they are added: of every
 * algorithm, the proof misses no step that scales too little or too much.
 *
 * npulink-test: san-soak
 */
#include <stdlib.h>
#include <string.h>
#include "kselftest.h"
#include "lib/algorithm/algorithms.h"
#include "lib/plan/plan.h"
#include "lib/verify/set.h"

#define MOST		9
#define ELEMENTS	(2 * MOST + 1)

/* Plans of all ranks, of which that of @rank has step @step with other flags. */
struct set {
	const struct coll_algorithm *alg;
	struct coll_args args;
	uint64_t counts[MOST];
	uint32_t servers[MOST];
	struct coll_topo topo;
	uint32_t in_place;	/* no rank, all, every second */
	uint32_t rank, step, toggle;
};

static int set_get(void *ctx, uint32_t rank, struct coll_args *args, struct coll_plan *plan)
{
	struct set *set = ctx;
	int rc;

	set->args.rank = rank;
	set->args.in_place = set->in_place == 1 || (set->in_place == 2 && rank % 2);
	*args = set->args;
	rc = coll_plan_make(set->alg, args, plan);
	if (!rc && set->toggle && rank == set->rank) {
		struct npulink_step *s = &plan->steps[set->step];

		s->flags ^= set->toggle;
		if (s->op & NPULINK_STEP_COPY)
			s->dtype = s->flags & NPULINK_STEP_F_SCALE ? plan->call.dtype : 0;
	}
	return rc;
}

static int prove(struct set *set)
{
	struct coll_set all = {
		.nranks = set->args.nranks, .get = set_get, .ctx = set, .seed = 42,
	};
	struct coll_verify_report report;

	return coll_verify_set(&all, &report);
}

/* What a step could do and does not, or does and could leave out. */
static bool may_toggle(const struct npulink_step *s, uint32_t flag)
{
	if (s->flags & NPULINK_STEP_F_CHAIN && flag == NPULINK_STEP_F_SCALE)
		return false;
	switch (flag) {
	case NPULINK_STEP_F_SCALE:
		return s->op & (NPULINK_STEP_REDUCE | NPULINK_STEP_COPY);
	case NPULINK_STEP_F_SCALE2:
		return s->op & NPULINK_STEP_REDUCE;
	default:
		return s->flags & NPULINK_STEP_F_DIV;
	}
}

/* Adds to @tried and @missed for each step of a rank of which one flag is another. */
static void damage(struct set *set, uint32_t rank, uint32_t *tried, uint32_t *missed)
{
	static const uint32_t flags[] = {
		NPULINK_STEP_F_SCALE, NPULINK_STEP_F_SCALE2, NPULINK_STEP_F_REST,
	};
	struct coll_args args;
	struct coll_plan plan;

	set->toggle = 0;
	if (set_get(set, rank, &args, &plan))
		return;
	set->rank = rank;
	for (set->step = 0; set->step < plan.nsteps; set->step++) {
		for (unsigned int i = 0; i < 3; i++) {
			set->toggle = flags[i];
			if (!may_toggle(&plan.steps[set->step], set->toggle))
				continue;
			++*tried;
			*missed += !prove(set);
		}
	}
	set->toggle = 0;
	coll_plan_free(&plan);
}

static void test_algorithm(const struct coll_algorithm *alg)
{
	static const uint32_t sizes[] = { 2, 3, 6, 8, 9 };
	uint32_t tried = 0, missed = 0, sets = 0;
	/* It carries sums along that nobody reads. */
	bool idle = alg->collective == NPULINK_COLL_REDUCE_SCATTER &&
		    !strcmp(alg->name, "recursive-doubling");
	bool ok = true;

	for (unsigned int i = 0; i < 3 * (sizeof(sizes) / sizeof(sizes[0])); i++) {
		uint32_t p = sizes[i / 3];
		struct set set = {
			.alg = alg,
			.topo = { .rows = p % 2 ? 1 : 2, .cols = p % 2 ? p : p / 2,
				  .nservers = p / 2, .server_of = set.servers },
			.args = { .collective = alg->collective, .dtype = NPULINK_FLOAT16,
				  .redop = NPULINK_CALL_AVG, .nranks = p, .count = 2 * p + 1,
				  .chunks = 2, .topo = &set.topo },
			.in_place = i % 3,
		};

		/* Servers of one rank, of two, and the last one of the rest. */
		for (uint32_t r = 0; r < p; r++) {
			set.counts[r] = (r + 1) % 4;
			set.servers[r] = (r + 1) / 2 < p / 2 ? (r + 1) / 2 : p / 2 - 1;
		}
		if (npulink_coll_is_v(alg->collective))
			set.args.counts = set.counts;
		if (npulink_coll_has_root(alg->collective))
			set.args.root = p / 3;
		if (alg->supports && alg->supports(&set.args))
			continue;
		sets++;
		ok &= !prove(&set);
		for (uint32_t rank = 0; rank < p; rank++)
			damage(&set, rank, &tried, &missed);
	}
	if (idle && tried > 8 * missed)
		missed = 0;
	ksft_test_result(ok && sets && tried && !missed, "%s %s: %u steps damaged, %u missed\n",
			 coll_collective_name(alg->collective), alg->name, tried, missed);
}

int main(void)
{
	const struct coll_algorithm *alg = NULL;
	unsigned int n = 0;

	while ((alg = coll_algorithm_next(~0U, alg)))
		n += npulink_coll_reduces(alg->collective);
	ksft_print_header();
	ksft_set_plan(n);
	while ((alg = coll_algorithm_next(~0U, alg)))
		if (npulink_coll_reduces(alg->collective))
			test_algorithm(alg);
	ksft_finished();
}
