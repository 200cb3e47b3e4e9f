// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * pairwise.c - alltoall(v) by direct exchange, and point-to-point.
 *
 * Each pair of ranks has one message in each direction, whatever the algorithm;
 * what differs is when a rank takes which. See "Pairwise" and "The classic set"
 * in ALGORITHMS.md. In place, the blocks are sent from a copy, since each is
 * overwritten by one that may come before it has left.
 */
#include <stdlib.h>
#include "algorithm/algorithms.h"
#include "plan/planner.h"

struct blocks {
	const struct coll_args *args;
	uint64_t esize;
	struct plan_shards out;
	struct plan_at src;	/* of block 0 of the layout */
	uint32_t saved;		/* in place: the step that copies */
};

static uint64_t in_off(const struct blocks *b, uint32_t i)
{
	return (b->args->rdispls ? b->args->rdispls[i] : i * b->args->count) * b->esize;
}

static uint64_t in_len(const struct blocks *b, uint32_t i)
{
	return (b->args->rcounts ? b->args->rcounts[i] : b->args->count) * b->esize;
}

static struct blocks blocks_begin(const struct coll_args *args, struct coll_plan *plan)
{
	struct blocks b = {
		.args = args, .esize = npulink_dtype_size(args->dtype),
		.out = plan_shards(args), .src = at_send(0), .saved = PLAN_NONE,
	};
	uint32_t own = args->rank;

	if (plan_in_place(args)) {
		uint64_t all = plan->slots[NPULINK_SLOT_RECV].min_len;

		b.src = plan_scratch(plan, all);
		b.saved = plan_copy(plan, at_recv(0), b.src, all);
	} else {
		plan_copy(plan, at_send(shard_off(&b.out, own)), at_recv(in_off(&b, own)),
			  in_len(&b, own));
	}
	return b;
}

static void block_send(const struct blocks *b, struct coll_plan *plan, uint32_t to)
{
	plan_after(plan, b->saved);
	plan_send(plan, to, at_plus(b->src, shard_off(&b->out, to)), shard_len(&b->out, to));
}

static uint32_t block_recv(const struct blocks *b, struct coll_plan *plan, uint32_t from)
{
	plan_after(plan, b->saved);
	return plan_recv(plan, from, at_recv(in_off(b, from)), in_len(b, from));
}

/*
 * In step k send to rank + k and take from rank - k. Only the taking is ordered:
 * an offer costs nothing, so it may lie there until its turn comes.
 */
static int pairwise_alltoall(const struct coll_args *args, struct coll_plan *plan)
{
	struct blocks b = blocks_begin(args, plan);
	uint32_t k, step, before = PLAN_NONE;

	for (k = 1; k < args->nranks; k++) {
		block_send(&b, plan, mod_add(args->rank, k, args->nranks));
		plan_after(plan, before);
		step = block_recv(&b, plan, mod_sub(args->rank, k, args->nranks));
		if (step != PLAN_NONE)
			before = step;
	}
	return 0;
}

/* The same with partner rank ^ k: both directions of a pair in one step. */
static int xor_alltoall(const struct coll_args *args, struct coll_plan *plan)
{
	struct blocks b = blocks_begin(args, plan);
	uint32_t k, step, before = PLAN_NONE;

	for (k = 1; k < args->nranks; k++) {
		block_send(&b, plan, args->rank ^ k);
		plan_after(plan, before);
		step = block_recv(&b, plan, args->rank ^ k);
		if (step != PLAN_NONE)
			before = step;
	}
	return 0;
}

/* Everything at once; the order of the list only spreads the load. */
static int spread_alltoall(const struct coll_args *args, struct coll_plan *plan)
{
	struct blocks b = blocks_begin(args, plan);
	uint32_t k;

	for (k = 1; k < args->nranks; k++)
		block_send(&b, plan, mod_add(args->rank, k, args->nranks));
	for (k = 1; k < args->nranks; k++)
		block_recv(&b, plan, mod_sub(args->rank, k, args->nranks));
	return 0;
}

/*
 * reduce_scatter in the same order. Unlike Mesh's chain it needs one input at a
 * time, so it bears ranks that come late, but goes over its sum p - 1 times.
 */
static int pairwise_reduce_scatter(const struct coll_args *args, struct coll_plan *plan)
{
	struct plan_shards s = plan_shards(args);
	uint32_t p = args->nranks, r = args->rank, k, to, step = PLAN_NONE;
	uint64_t own = shard_off(&s, r);
	struct plan_at src = plan_input(args, own);
	struct plan_at dst = at_recv(plan_in_place(args) ? own : 0);

	for (k = 1; k < p; k++) {
		to = mod_add(r, k, p);
		plan_send(plan, to, plan_input(args, shard_off(&s, to)), shard_len(&s, to));
		plan_after(plan, step);
		step = plan_recv_reduce(plan, mod_sub(r, k, p), src, dst, shard_len(&s, r));
		plan_recv_plain(plan, step, true);
		src = dst;
	}
	plan_final(plan, step);
	return 0;
}

/* A message of 0 bytes is sent as well: the pair counts its operations. */
static int p2p(const struct coll_args *args, struct coll_plan *plan)
{
	uint64_t n = args->count * npulink_dtype_size(args->dtype);

	if (args->send)
		n ? plan_send(plan, args->peer, at_send(0), n) : plan_signal(plan, args->peer);
	else
		n ? plan_recv(plan, args->peer, at_recv(0), n) : plan_await(plan, args->peer);
	return 0;
}

static const char *power_of_two(const struct coll_args *args)
{
	return args->nranks & (args->nranks - 1) ?
	       "the number of ranks is not a power of two" : NULL;
}

/* ---- closed forms: "Pairwise" in ALGORITHMS.md */

static double cost_alltoall(const struct coll_args *args, const struct coll_cost_params *c)
{
	struct plan_shards s = plan_shards(args);

	return (args->nranks - 1) * crowd_each(c) * (c->alpha + shard_max(&s) * c->beta);
}

static double cost_spread(const struct coll_args *args, const struct coll_cost_params *c)
{
	struct plan_shards s = plan_shards(args);

	if (c->ports > 1 && args->nranks > 1 && !c->wires)
		return c->alpha + shard_max(&s) * c->beta;
	return cost_alltoall(args, c);
}

/*
 * The form takes, in each step, the largest message of any rank. A rank knows
 * its own only, and predicts with those.
 */
static double cost_alltoallv(const struct coll_args *args, const struct coll_cost_params *c,
			     bool xor)
{
	const uint64_t *counts = args->in_place ? args->rcounts : args->counts;
	uint32_t p = args->nranks, r = args->rank, k;
	double bytes = 0;

	for (k = 1; k < p; k++) {
		uint64_t out = counts[xor ? r ^ k : mod_add(r, k, p)];
		uint64_t in = args->rcounts[xor ? r ^ k : mod_sub(r, k, p)];

		bytes += out > in ? out : in;
	}
	return (p - 1) * c->alpha + bytes * npulink_dtype_size(args->dtype) * c->beta;
}

static double cost_pairwise_v(const struct coll_args *args, const struct coll_cost_params *c)
{
	return cost_alltoallv(args, c, false);
}

static double cost_xor_v(const struct coll_args *args, const struct coll_cost_params *c)
{
	return cost_alltoallv(args, c, true);
}

static double cost_spread_v(const struct coll_args *args, const struct coll_cost_params *c)
{
	struct plan_shards in = { .n = args->nranks, .counts = args->rcounts, .esize = 1 };
	struct plan_shards out = { .n = args->nranks, .counts = args->counts, .esize = 1 };
	uint64_t a = shard_max(&in), b = args->in_place ? 0 : shard_max(&out);

	if (c->ports > 1 && args->nranks > 1)
		return c->alpha +
		       (double)(a > b ? a : b) * npulink_dtype_size(args->dtype) * c->beta;
	return cost_alltoallv(args, c, false);
}

static double cost_reduce_scatter(const struct coll_args *args, const struct coll_cost_params *c)
{
	struct plan_shards s = plan_shards(args);

	return (args->nranks - 1) * (crowd_each(c) * (c->alpha + shard_max(&s) * c->beta) +
				     shard_max(&s) * c->gamma);
}

static double cost_p2p(const struct coll_args *args, const struct coll_cost_params *c)
{
	return c->alpha + (double)args->count * npulink_dtype_size(args->dtype) * c->beta;
}

#define FORM	"(p-1) alpha + (p-1)/p n beta"
#define FORM_RS	"(p-1) alpha + (p-1)/p n (beta + gamma)"
#define FORM_V	"(p-1) alpha + beta sum_k max_i n(i, i+k)"
#define FORM_X	"(p-1) alpha + beta sum_k max_i n(i, i xor k)"
#define FORM_S	"one port: as pairwise; p-1 ports: alpha + n beta/p"

#define ROW(coll, name_, exact_, form, plan_, cost_, ...)			\
	{ .collective = NPULINK_COLL_##coll, .name = name_, .exact = exact_,	\
	  .formula = form, .plan = plan_, .cost = cost_, __VA_ARGS__ }

const struct coll_algorithm coll_pairwise_algorithms[] = {
	ROW(ALLTOALL, "pairwise", true, FORM, pairwise_alltoall, cost_alltoall, .rotation = true,
	    .together = true, .desc = "in step k send to rank + k, take from rank - k"),
	ROW(ALLTOALL, "pairwise-xor", true, FORM, xor_alltoall, cost_alltoall,
	    .supports = power_of_two, .desc = "in step k exchange with rank xor k"),
	ROW(ALLTOALL, "isend-irecv", true, FORM_S, spread_alltoall, cost_spread,
	    .rotation = true, .together = true, .desc = "everything at once"),
	ROW(ALLTOALLV, "pairwise", false, FORM_V, pairwise_alltoall, cost_pairwise_v,
	    .desc = "in step k send to rank + k, take from rank - k"),
	ROW(ALLTOALLV, "pairwise-xor", false, FORM_X, xor_alltoall, cost_xor_v,
	    .supports = power_of_two, .desc = "in step k exchange with rank xor k"),
	ROW(ALLTOALLV, "isend-irecv", false, FORM_S, spread_alltoall, cost_spread_v,
	    .desc = "everything at once"),
	ROW(REDUCE_SCATTER, "pairwise", true, FORM_RS, pairwise_reduce_scatter,
	    cost_reduce_scatter, .commutative = true, .rotation = true,
	    .desc = "in step k send to rank + k, add what rank - k sends"),
	ROW(REDUCE_SCATTERV, "pairwise", false, FORM_RS, pairwise_reduce_scatter,
	    cost_reduce_scatter, .commutative = true,
	    .desc = "in step k send to rank + k, add what rank - k sends"),
	ROW(P2P, "direct", true, "alpha + n beta", p2p, cost_p2p,
	    .desc = "one message"),
	{ .name = NULL },
};
