// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * forms.c - closed forms of whole calls, and when they are exact.
 *
 * Planners give the form that one rank can work out. Here are those that need the counts of
 * all, for who compares them with what is simulated.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan/planner.h"
#include "simulate/sim.h"

/* In step k of alltoallv: the most that any rank sends. */
static uint64_t most_in_step(const struct coll_args *args, uint32_t k, bool xor)
{
	uint32_t p = args->nranks;
	uint64_t most = 0;

	for (uint32_t i = 0; i < p; i++) {
		uint64_t n = args->counts[(size_t)i * p + (xor ? i ^ k : mod_add(i, k, p))];

		most = n > most ? n : most;
	}
	return most;
}

double coll_form(const struct coll_algorithm *alg, const struct coll_args *args,
		 const struct coll_cost_params *params)
{
	bool xor = !strcmp(alg->name, "pairwise-xor");
	struct coll_args largest = *args;
	uint32_t p = args->nranks;
	uint64_t *mem, *in;
	double seconds;

	if (!coll_has_rcounts(args->collective))
		return alg->cost(args, params);
	mem = calloc(2 * (size_t)p, sizeof(*mem));
	if (!mem)
		return -1;
	in = mem + p;
	/* A rank 0 that has all of the largest. */
	for (uint32_t k = 1; k < p; k++) {
		mem[k] = most_in_step(args, k, xor);
		in[xor ? k : p - k] = mem[k];
	}
	largest.rank = 0;
	largest.in_place = false;
	largest.counts = mem;
	largest.rcounts = in;
	seconds = alg->cost(&largest, params);
	free(mem);
	return seconds;
}

bool coll_form_exact(const struct coll_algorithm *alg, const struct coll_args *args,
		     const struct coll_cost_params *params)
{
	struct coll_cost_params one = *params, all = *params, finer = *params;
	uint32_t p = args->nranks;
	struct coll_args many = *args;
	double factor = (double)p * (1U << lg_floor(p)), a, b;

	if (!alg->exact || coll_has_rcounts(args->collective))
		return false;
	/* A form that does not know of ports is about one. */
	one.ports = 1;
	all.ports = p - 1;
	if (params->ports > 1 && p > 2 && alg->cost(args, &one) == alg->cost(args, &all))
		return false;
	if (npulink_coll_is_v(args->collective) || !coll_splits(args->collective))
		return true;
	/* Is it the same for so many smaller elements that all parts are alike? */
	if (alg->chunks)
		many.chunks = plan_chunks(args, alg->chunks);
	factor *= many.chunks ? many.chunks : 1;
	if (factor * args->count > 1e18)
		return false;
	many.count *= factor;
	finer.beta /= factor;
	finer.gamma /= factor;
	if (alg->chunks && args->count < many.chunks)
		return false;
	a = alg->cost(args, params);
	b = alg->cost(&many, &finer);
	return fabs(a - b) <= 1e-9 * a;
}
