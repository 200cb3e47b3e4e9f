// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * bounds.c - what no algorithm can beat, whatever it does, under the cost rule.
 *
 * With d ports, what one rank knows reaches at most d + 1 times as many in each
 * round; bytes that have to leave or enter a rank go through d ports at a time;
 * and the least loaded of p ranks reduces a p-th of what must be reduced. See the
 * end of "Trees and chains" in ALGORITHMS.md. A shard of 0 bytes needs no message.
 */
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

struct coll_bounds coll_bounds(const struct coll_args *args, const struct coll_cost_params *params)
{
	uint32_t p = args->nranks, d = params->ports > 1 ? params->ports : 1, some;
	struct plan_shards s;
	double n, least, bytes = 0, reduced = 0, reach = p;
	struct coll_bounds b = { 0 };

	if (p == 1)
		return b;
	n = (double)args->count * npulink_dtype_size(args->dtype);
	switch (args->collective) {
	case NPULINK_COLL_ALLREDUCE:
		bytes = 2 * (p - 1.) / p * n;
		reduced = n;
		break;
	case NPULINK_COLL_REDUCE:
		reduced = n;
		bytes = n;
		break;
	case NPULINK_COLL_BROADCAST:
		bytes = n;
		break;
	case NPULINK_COLL_SCATTER:
	case NPULINK_COLL_GATHER:
	case NPULINK_COLL_ALLGATHER:
	case NPULINK_COLL_ALLTOALL:
		bytes = (p - 1) * n;
		break;
	case NPULINK_COLL_REDUCE_SCATTER:
		bytes = (p - 1) * n;
		reduced = p * n;
		break;
	case NPULINK_COLL_SCATTERV:
	case NPULINK_COLL_GATHERV:
		s = plan_shards(args);
		bytes = all_shards(args, args->root, &least, &some);
		bytes -= args->counts[args->root] * s.esize;
		reach = some + 1;
		break;
	case NPULINK_COLL_ALLGATHERV:
	case NPULINK_COLL_REDUCE_SCATTERV:
		n = all_shards(args, ~0U, &least, &some);
		bytes = n - least;
		if (args->collective == NPULINK_COLL_REDUCE_SCATTERV)
			reduced = n;
		break;
	case NPULINK_COLL_ALLTOALLV:
		bytes = exchanged(args, &some);
		reach = some + 1;
		break;
	case NPULINK_COLL_P2P:
		bytes = n;
		break;
	}
	if (bytes || args->collective == NPULINK_COLL_BARRIER ||
	    args->collective == NPULINK_COLL_P2P)
		b.latency = rounds(reach, d) * params->alpha;
	b.bandwidth = bytes / d * params->beta;
	b.compute = (p - 1.) / p * reduced * params->gamma;
	b.best = larger(b.latency, larger(b.bandwidth, b.compute));
	return b;
}
