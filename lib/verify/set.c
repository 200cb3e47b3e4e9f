// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * set.c - prove the plans of all ranks correct together.
 *
 * Each plan by itself must be safe and free of races (kernel/core/plan/verify.c).
 * Then sends are paired with receives, all plans are executed on symbolic
 * buffers, and what is in these is compared with the collective's definition.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "verify/run.h"

int verify_fail(struct verify_run *run, uint32_t rank, uint32_t step, uint32_t slot,
		uint64_t off, uint64_t len, const char *fmt, ...)
{
	struct coll_verify_report *report = run->report;
	va_list ap;

	report->rank = rank;
	report->step = step;
	report->slot = slot;
	report->off = off;
	report->len = len;
	va_start(ap, fmt);
	vsnprintf(report->reason, sizeof(report->reason), fmt, ap);
	va_end(ap);
	return -EINVAL;
}

/* ---- each plan by itself */

static int check_alone(struct verify_run *run, uint32_t rank)
{
	const struct verify_rank *r = &run->ranks[rank];
	const struct coll_args *args = &r->args;
	struct npulink_plan_desc d = coll_plan_desc(&r->plan);
	const struct npulink_call *call = d.call, *call0 = &run->ranks[0].plan.call;
	const uint64_t *counts0 = run->ranks[0].args.counts;
	struct npulink_verdict v;
	int rc;

	if (r->plan.nranks != run->nranks || r->plan.rank != rank || args->rank != rank ||
	    args->nranks != run->nranks)
		return verify_fail(run, rank, ~0U, ~0U, 0, 0,
				   "the plan is for rank %u of %u", r->plan.rank, r->plan.nranks);
	if (call->collective != args->collective || call->dtype != args->dtype ||
	    call->redop != args->redop || call->root != args->root ||
	    call->count != args->count)
		return verify_fail(run, rank, ~0U, ~0U, 0, 0, "the plan is for another call");
	if (memcmp(call, call0, sizeof(*call)))
		return verify_fail(run, rank, ~0U, ~0U, 0, 0,
				   "the call is not that of rank 0");
	if (args->counts && args->collective != NPULINK_COLL_ALLTOALLV && counts0 &&
	    counts0 != args->counts &&
	    memcmp(args->counts, counts0, run->nranks * sizeof(*counts0)))
		return verify_fail(run, rank, ~0U, ~0U, 0, 0, "the counts are not those of rank 0");
	rc = npulink_verify(&d, &v);
	if (!rc)
		rc = npulink_verify_races(&d, &v);
	if (rc != -EINVAL)
		return rc;
	if (v.reason == NPULINK_BAD_RACE)
		return verify_fail(run, rank, v.step, ~0U, 0, 0,
				   "not ordered after step %u, which touches the same bytes",
				   v.other);
	return verify_fail(run, rank, v.step, ~0U, 0, 0, "%s", npulink_bad_reason(v.reason));
}

/* There may be very many of them. */
static void trim(struct coll_plan *plan)
{
	void *steps = plan->nsteps ? realloc(plan->steps, plan->nsteps * sizeof(*plan->steps)) :
		      NULL;

	if (!steps)
		return;
	plan->steps = steps;
	plan->cap = plan->nsteps;
}

int verify_init(struct verify_run *run)
{
	uint32_t r, i;

	values_init(&run->values);
	run->value.values = &run->values;
	run->src.values = &run->values;
	run->sum.values = &run->values;
	run->ranks = calloc(run->nranks, sizeof(*run->ranks));
	if (!run->ranks)
		return -ENOMEM;
	for (r = 0; r < run->nranks; r++)
		for (i = 0; i < NPULINK_MAX_SLOTS; i++)
			run->ranks[r].slots[i].values = &run->values;
	return 0;
}

int verify_load(struct verify_run *run, uint32_t r)
{
	const struct coll_set *set = run->set;
	struct verify_rank *rank = &run->ranks[r];
	struct coll_args args;
	const char *why;
	int rc;

	memset(&args, 0, sizeof(args));
	rc = set->get(set->ctx, r, &args, &rank->plan);
	if (rc)
		return rc;
	trim(&rank->plan);
	why = coll_args_check(&args);
	if (why)
		return verify_fail(run, r, ~0U, ~0U, 0, 0, "%s", why);
	rc = plan_args_fill(&args, &rank->args, &rank->mem);
	if (rc)
		return rc;
	if (rank->plan.slots[NPULINK_SLOT_SCRATCH].min_len > run->report->scratch)
		run->report->scratch = rank->plan.slots[NPULINK_SLOT_SCRATCH].min_len;
	return check_alone(run, r);
}

static int load(struct verify_run *run)
{
	uint64_t nsteps = 0;
	uint32_t r;
	int rc;

	for (r = 0; r < run->nranks; r++) {
		rc = verify_load(run, r);
		if (rc)
			return rc;
		run->ranks[r].base = nsteps;
		nsteps += run->ranks[r].plan.nsteps;
		if (nsteps >= UINT32_MAX)
			return -EOVERFLOW;
	}
	run->nsteps = nsteps;
	run->report->steps = nsteps;
	return 0;
}

int verify_alloc_steps(struct verify_run *run)
{
	size_t n = run->nsteps + 1;
	uint32_t r, i;

	run->owner = malloc(n * sizeof(*run->owner));
	run->unit = malloc(n * sizeof(*run->unit));
	run->from = malloc(n * sizeof(*run->from));
	run->to = malloc(n * sizeof(*run->to));
	run->need = calloc(n, sizeof(*run->need));
	run->done = calloc(n, sizeof(*run->done));
	run->first = calloc(n + 1, sizeof(*run->first));
	run->stack = malloc(n * sizeof(*run->stack));
	if (!run->owner || !run->unit || !run->from || !run->to || !run->need || !run->done ||
	    !run->first || !run->stack)
		return -ENOMEM;
	memset(run->from, 0xff, n * sizeof(*run->from));
	memset(run->to, 0xff, n * sizeof(*run->to));
	for (r = 0; r < run->nranks; r++) {
		const struct verify_rank *rank = &run->ranks[r];

		for (i = 0; i < rank->plan.nsteps; i++) {
			uint32_t me = rank->base + i;
			bool chain = rank->plan.steps[i].flags & NPULINK_STEP_F_CHAIN;

			run->owner[me] = r;
			run->unit[me] = chain ? run->unit[me - 1] : me;
		}
	}
	return 0;
}

void verify_free(struct verify_run *run)
{
	uint32_t r, i;

	for (r = 0; run->ranks && r < run->nranks; r++) {
		struct verify_rank *rank = &run->ranks[r];

		coll_plan_free(&rank->plan);
		free(rank->mem);
		for (i = 0; i < NPULINK_MAX_SLOTS; i++)
			image_free(&rank->slots[i]);
	}
	image_free(&run->value);
	image_free(&run->src);
	image_free(&run->sum);
	values_free(&run->values);
	free(run->ranks);
	free(run->owner);
	free(run->unit);
	free(run->from);
	free(run->to);
	free(run->need);
	free(run->done);
	free(run->first);
	free(run->late);
	free(run->stack);
	free(run->knows);
}

/* Nobody may leave a barrier before everybody has entered it. */
static int check_barrier(struct verify_run *run)
{
	uint32_t r, i, w, q, words = run->knows_words;
	uint64_t *all = calloc(words + 1, sizeof(*all));
	int rc = 0;

	if (!all)
		return -ENOMEM;
	for (r = 0; r < run->nranks && !rc; r++) {
		const struct verify_rank *rank = &run->ranks[r];

		memset(all, 0, words * sizeof(*all));
		all[r / 64] |= 1ULL << r % 64;
		for (i = 0; i < rank->plan.nsteps; i++)
			for (w = 0; w < words; w++)
				all[w] |= run->knows[(size_t)(rank->base + i) * words + w];
		for (q = 0; q < run->nranks && !rc; q++)
			if (!(all[q / 64] >> q % 64 & 1))
				rc = verify_fail(run, r, ~0U, ~0U, 0, 0,
						 "may leave before rank %u has entered", q);
	}
	free(all);
	return rc;
}

static int verify_any_order(const struct coll_set *set, struct coll_verify_report *report)
{
	struct verify_run run = { .set = set, .report = report, .nranks = set->nranks };
	struct value all;
	uint32_t r;
	int rc;

	memset(report, 0, sizeof(*report));
	report->in_order = true;
	if (!set->nranks || set->nranks > NPULINK_MAX_RANKS)
		return verify_fail(&run, 0, ~0U, ~0U, 0, 0, "there are no ranks, or too many");
	rc = verify_init(&run);
	if (!rc)
		rc = load(&run);
	if (!rc)
		rc = verify_alloc_steps(&run);
	if (!rc)
		rc = verify_match(&run);
	for (r = 0; r < run.nranks && !rc; r++)
		rc = verify_put_inputs(&run, r);
	if (!rc)
		rc = verify_execute(&run);
	if (!rc && run.knows_words)
		rc = check_barrier(&run);
	all = value_all(set->seed, set->nranks);
	for (r = 0; r < run.nranks && !rc; r++)
		rc = verify_check_outputs(&run, r, &all);
	verify_free(&run);
	return rc;
}

/* From so many ranks on, there may be too many steps to be kept. */
#define MANY_RANKS	512

int coll_verify_set(const struct coll_set *set, struct coll_verify_report *report)
{
	int rc = -EOPNOTSUPP;

	if (set->nranks >= MANY_RANKS)
		rc = coll_verify_flow(set, report);
	return rc == -EOPNOTSUPP ? verify_any_order(set, report) : rc;
}

/* ---- what an algorithm plans */

static int get_planned(void *ctx, uint32_t rank, struct coll_args *args, struct coll_plan *plan)
{
	const struct coll_planned *p = ctx;

	*args = p->args;
	args->rank = rank;
	if (args->collective == NPULINK_COLL_P2P) {
		args->peer = 1 - rank;
		args->send = !rank;
	}
	if (args->collective == NPULINK_COLL_ALLTOALLV) {
		args->counts += (size_t)rank * args->nranks;
		args->rcounts = p->rcounts + (size_t)rank * args->nranks;
	}
	return coll_plan_make(p->alg, args, plan);
}

int coll_planned_init(struct coll_planned *p, const struct coll_algorithm *alg,
		      const struct coll_args *args, struct coll_set *set)
{
	size_t i, j, n = args->nranks;

	*p = (struct coll_planned){ .alg = alg, .args = *args };
	*set = (struct coll_set){
		.nranks = args->nranks, .get = get_planned, .ctx = p,
		.seed = 0x6e70756c696e6bULL,
	};
	if (args->collective == NPULINK_COLL_P2P && n != 2)
		return -EOPNOTSUPP;
	if (args->collective != NPULINK_COLL_ALLTOALLV)
		return 0;
	p->rcounts = malloc(n * n * sizeof(*p->rcounts));
	if (!p->rcounts)
		return -ENOMEM;
	for (i = 0; i < n; i++)
		for (j = 0; j < n; j++)
			p->rcounts[i * n + j] = args->counts[j * n + i];
	return 0;
}

void coll_planned_free(struct coll_planned *p)
{
	free(p->rcounts);
}

int coll_verify_algorithm(const struct coll_algorithm *alg, const struct coll_args *args,
			  struct coll_verify_report *report)
{
	struct coll_planned planned;
	struct coll_set set;
	int rc;

	rc = coll_planned_init(&planned, alg, args, &set);
	if (!rc)
		rc = coll_verify_set(&set, report);
	coll_planned_free(&planned);
	return rc;
}
