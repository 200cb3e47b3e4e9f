// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * bounds.c - what no algorithm can beat, whatever it does, under the cost rule.
 *
 * With d ports, what one rank knows reaches at most d + 1 times as many in each
 * round; bytes that have to leave or enter a rank go through d ports at a time;
 * and the least loaded of p ranks reduces a p-th of what must be reduced. See the
 * end of "Trees and chains" in ALGORITHMS.md. A shard of 0 bytes needs no message.
 */
#include <stdlib.h>
#include "plan/planner.h"
#include "simulate/sim.h"

/* ceil(log_{d+1} n): rounds until n ranks know. */
static double rounds(uint32_t n, uint32_t d)
{
	uint64_t known = 1;
	uint32_t r = 0;

	for (; known < n; known *= d + 1ULL)
		r++;
	return r;
}

static double larger(double a, double b)
{
	return a > b ? a : b;
}

/* Bytes of all shards, and of the smallest; how many ranks but @except have one. */
static double all_shards(const struct coll_args *args, uint32_t except, double *least,
			 uint32_t *some)
{
	struct plan_shards s = plan_shards(args);
	double sum = 0;
	uint32_t i;

	*some = 0;
	for (i = 0; i < args->nranks; i++) {
		double len = shard_len(&s, i);

		sum += len;
		if (!i || len < *least)
			*least = len;
		*some += len && i != except;
	}
	return sum;
}

/* Bytes that the rank sends to others, or receives if that is more. */
static double exchanged(const struct coll_args *args, uint32_t *peers)
{
	const uint64_t *out = args->in_place ? args->rcounts : args->counts;
	uint32_t i, from = 0, to = 0;
	double sent = 0, got = 0;

	for (i = 0; i < args->nranks; i++) {
		if (i == args->rank)
			continue;
		sent += out[i];
		got += args->rcounts[i];
		from += !!args->rcounts[i];
		to += !!out[i];
	}
	*peers = from > to ? from : to;
	return larger(sent, got) * npulink_dtype_size(args->dtype);
}

/* Of alltoallv: that of the busiest rank. */
static struct coll_bounds busiest(const struct coll_args *args,
				  const struct coll_cost_params *params)
{
	struct coll_bounds most = { 0 }, b;
	struct coll_args own = *args;
	uint32_t p = args->nranks;
	uint64_t *in = calloc(p, sizeof(*in));

	if (!in)
		return (struct coll_bounds) { .latency = -1 };
	own.in_place = false;
	own.rcounts = in;
	for (uint32_t r = 0; r < p; r++) {
		own.rank = r;
		own.counts = args->counts + (size_t)r * p;
		for (uint32_t k = 0; k < p; k++)
			in[k] = args->counts[(size_t)k * p + r];
		b = coll_bounds(&own, params);
		if (b.best > most.best)
			most = b;
	}
	free(in);
	return most;
}

struct coll_bounds coll_bounds_on(const struct coll_args *args, const struct coll_net *net)
{
	struct coll_cost_params params = {
		.alpha = net->alpha[0], .beta = net->beta[0], .gamma = net->gamma,
		.ports = net->ports > 1 ? args->nranks - 1 : 1,
	};

	if (net->kind == COLL_NET_SERVERS || net->kind == COLL_NET_TREE) {
		params.alpha = net->alpha[1] < params.alpha ? net->alpha[1] : params.alpha;
		params.beta = net->beta[1] < params.beta ? net->beta[1] : params.beta;
	}
	if (net->kind == COLL_NET_SERVERS)
		params.ports++;
	return coll_has_rcounts(args->collective) ? busiest(args, &params) :
						    coll_bounds(args, &params);
}

struct coll_bounds coll_bounds(const struct coll_args *args, const struct coll_cost_params *params)
{
	uint32_t p = args->nranks, d = params->ports > 1 ? params->ports : 1, some;
	const struct coll_kind *k = coll_kind(args->collective);
	struct plan_shards s;
	double n, least, bytes = 0, reduced = 0, reach = p;
	struct coll_bounds b = { 0 };

	if (p == 1)
		return b;
	n = k->gives ? (double)args->count * npulink_dtype_size(args->dtype) : 0;
	if (coll_has_rcounts(args->collective)) {
		bytes = exchanged(args, &some);
		reach = some + 1;
	} else if (npulink_coll_is_v(args->collective) && npulink_coll_has_root(args->collective)) {
		s = plan_shards(args);
		bytes = all_shards(args, args->root, &least, &some);
		bytes -= args->counts[args->root] * s.esize;
		reach = some + 1;
	} else if (npulink_coll_is_v(args->collective)) {
		n = all_shards(args, ~0U, &least, &some);
		bytes = n - least;
		reduced = n;
	} else if (npulink_coll_has_blocks(args->collective)) {
		bytes = (p - 1) * n;
		reduced = p * n;
	} else {
		/* If all get the sum, it is as if it were scattered and gathered. */
		bytes = k->whose == NPULINK_WHOSE_SUM && k->getters == NPULINK_WHO_EVERY ?
			2 * (p - 1.) / p * n : n;
		reduced = n;
	}
	if (k->whose != NPULINK_WHOSE_SUM)
		reduced = 0;
	if (bytes || args->collective == NPULINK_COLL_BARRIER ||
	    args->collective == NPULINK_COLL_P2P)
		b.latency = rounds(reach, d) * params->alpha;
	b.bandwidth = bytes / d * params->beta;
	b.compute = (p - 1.) / p * reduced * params->gamma;
	b.best = larger(b.latency, larger(b.bandwidth, b.compute));
	return b;
}
