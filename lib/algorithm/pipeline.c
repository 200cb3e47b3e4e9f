// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * pipeline.c - broadcast and reduce in chunks, along a chain or down a tree.
 *
 * A node passes a chunk on while it receives the next. Ranks are counted from the
 * root; reduce is broadcast with the arrows and the children's order reversed.
 * See "Trees and chains" in ALGORITHMS.md for the forms and the best number of
 * chunks, and plan_chunks() for how many are taken if the caller does not say.
 */
#include <math.h>
#include "algorithm/algorithms.h"
#include "plan/planner.h"

#define MAX_CHILDREN	32

struct node {
	uint32_t v, parent;		/* NPULINK_NO_PEER: none */
	uint32_t child[MAX_CHILDREN];	/* in the order in which a broadcast serves them */
	uint32_t nchildren;
};

static struct node chain(uint32_t v, uint32_t p)
{
	struct node n = { .v = v, .parent = v ? v - 1 : NPULINK_NO_PEER };

	if (v + 1 < p)
		n.child[n.nchildren++] = v + 1;
	return n;
}

/* As in a heap: 2v + 1 and 2v + 2. */
static struct node binary(uint32_t v, uint32_t p)
{
	struct node n = { .v = v, .parent = v ? (v - 1) / 2 : NPULINK_NO_PEER };

	if (2 * v + 1 < p)
		n.child[n.nchildren++] = 2 * v + 1;
	if (2 * v + 2 < p)
		n.child[n.nchildren++] = 2 * v + 2;
	return n;
}

static struct node binomial(uint32_t v, uint32_t p)
{
	uint32_t span = v ? v & -v : 1U << lg_ceil(p), d;
	struct node n = { .v = v, .parent = v ? v - span : NPULINK_NO_PEER };

	for (d = span / 2; d; d /= 2)
		if (d < p - v)
			n.child[n.nchildren++] = v + d;
	return n;
}

/* ---- plans */

static int broadcast(const struct coll_args *args, struct coll_plan *plan,
		     struct node (*shape)(uint32_t v, uint32_t p), uint32_t chunks)
{
	uint32_t p = args->nranks, root = args->root, c, i, got;
	struct node n = shape(mod_sub(args->rank, root, p), p);
	struct plan_shards s = plan_split(args->count, chunks, npulink_dtype_size(args->dtype));

	for (c = 0; c < chunks; c++) {
		uint64_t off = shard_off(&s, c), len = shard_len(&s, c);
		struct plan_at at = n.v ? at_recv(off) : plan_input(args, off);

		got = PLAN_NONE;
		if (n.v && n.nchildren == 1) {
			plan_recv_send(plan, mod_add(n.parent, root, p),
				       mod_add(n.child[0], root, p), at, len);
			continue;
		}
		if (n.v)
			got = plan_recv(plan, mod_add(n.parent, root, p), at, len);
		for (i = 0; i < n.nchildren; i++) {
			plan_after(plan, got);
			plan_send(plan, mod_add(n.child[i], root, p), at, len);
		}
	}
	if (!n.v && !plan_in_place(args))
		plan_copy(plan, at_send(0), at_recv(0), args->count * s.esize);
	return 0;
}

/* Sums on their way up have room for two chunks. */
static int reduce(const struct coll_args *args, struct coll_plan *plan,
		  struct node (*shape)(uint32_t v, uint32_t p), uint32_t chunks)
{
	uint32_t p = args->nranks, root = args->root, c, i, step;
	uint32_t busy[2] = { PLAN_NONE, PLAN_NONE };
	struct node n = shape(mod_sub(args->rank, root, p), p);
	struct plan_shards s = plan_split(args->count, chunks, npulink_dtype_size(args->dtype));
	struct plan_at room[2] = { { 0 } };

	for (i = 0; i < 2 && n.v && n.nchildren; i++)
		room[i] = plan_scratch(plan, shard_max(&s));
	for (c = 0; c < chunks; c++) {
		uint64_t off = shard_off(&s, c), len = shard_len(&s, c);
		struct plan_at src = plan_input(args, off), sum = n.v ? room[c % 2] : at_recv(off);

		step = PLAN_NONE;
		if (!n.nchildren)
			plan_send(plan, mod_add(n.parent, root, p), src, len);
		for (i = n.nchildren; i-- > 0; src = sum) {
			uint32_t child = mod_add(n.child[i], root, p);
			bool leaf = !shape(n.child[i], p).nchildren;

			plan_after(plan, step);
			if (step == PLAN_NONE)
				plan_after(plan, busy[c % 2]);
			if (!n.v || i) {
				step = plan_recv_reduce(plan, child, src, sum, len);
				plan_recv_plain(plan, step, leaf);
				continue;
			}
			step = plan_recv_reduce_send(plan, child, mod_add(n.parent, root, p),
						     src, sum, len);
			plan_recv_plain(plan, step, leaf);
			plan_transient(plan, step, UINT64_MAX);
		}
		if (!n.v)
			plan_final(plan, step);
		else
			busy[c % 2] = step;
	}
	return 0;
}

/* ---- closed forms: "Trees and chains" in ALGORITHMS.md */

static double bytes(const struct coll_args *args)
{
	return (double)args->count * npulink_dtype_size(args->dtype);
}

static bool reduces(const struct coll_args *args)
{
	return args->collective == NPULINK_COLL_REDUCE;
}

/* Seconds per byte of one hop. */
static double per_byte(const struct coll_args *args, const struct coll_cost_params *c)
{
	return c->beta + (reduces(args) ? c->gamma : 0);
}

/* alpha + n beta/k [+ n gamma/k], with the largest chunk. */
static double hop(const struct coll_args *args, const struct coll_cost_params *c, uint32_t chunks)
{
	struct plan_shards s = plan_split(args->count, chunks, npulink_dtype_size(args->dtype));

	return c->alpha + shard_max(&s) * per_byte(args, c);
}

/* The same where a tree's messages share links. */
static double hop_heap(const struct coll_args *args, const struct coll_cost_params *c,
		       uint32_t chunks)
{
	return hop(args, c, chunks) * (c->wires ? c->wires->heap : 1);
}

static uint32_t chain_chunks(const struct coll_args *args, const struct coll_cost_params *c)
{
	double p2 = args->nranks > 2 ? args->nranks - 2 : 0;

	return chunks_of(sqrt(p2 * bytes(args) * per_byte(args, c) / c->alpha), args);
}

static double cost_chain(const struct coll_args *args, const struct coll_cost_params *c)
{
	return (args->nranks - 1) * hop(args, c, 1);
}

static double cost_chain_pipe(const struct coll_args *args, const struct coll_cost_params *c)
{
	uint32_t k = plan_chunks(args, chain_chunks);

	if (args->nranks == 1)
		return 0;
	return (args->nranks + k - 2.0) * hop(args, c, k);
}

/* When the last node has the first chunk, the i-th of the heap counted from 1. */
static uint32_t heap_depth(uint32_t p)
{
	uint32_t i, d, most = 0;

	for (i = 1; i <= p; i++) {
		d = lg_floor(i) + __builtin_popcount(i) - 1;
		if (d > most)
			most = d;
	}
	return most;
}

static uint32_t binary_chunks(const struct coll_args *args, const struct coll_cost_params *c)
{
	double d = heap_depth(args->nranks);

	if (d <= 2)
		return 1;
	return chunks_of(sqrt((d - 2) * bytes(args) * per_byte(args, c) / (2 * c->alpha)), args);
}

static double cost_binary(const struct coll_args *args, const struct coll_cost_params *c)
{
	uint32_t k = plan_chunks(args, binary_chunks), p = args->nranks;

	if (p == 1)
		return 0;
	if (p == 2)
		return k * hop_heap(args, c, k);
	if (c->ports > 1 && !reduces(args))
		return (k + lg_floor(p) - 1.0) * hop_heap(args, c, k);
	return (2.0 * (k - 1) + heap_depth(p)) * hop_heap(args, c, k);
}

static uint32_t binomial_chunks(const struct coll_args *args, const struct coll_cost_params *c)
{
	double m = lg_floor(args->nranks);

	/* With one port, never better than one chunk. */
	if (c->ports < 2 || m <= 1)
		return 1;
	return chunks_of(sqrt((m - 1) * bytes(args) * per_byte(args, c) / c->alpha), args);
}

static double cost_binomial(const struct coll_args *args, const struct coll_cost_params *c)
{
	uint32_t k = plan_chunks(args, binomial_chunks), p = args->nranks;

	if (p == 1)
		return 0;
	if (c->ports > 1 && !reduces(args))
		return (k + lg_floor(p) - 1.0) * hop(args, c, k);
	return (double)k * lg_ceil(p) * hop(args, c, k);
}

/* ---- rows */

static int chain_broadcast(const struct coll_args *args, struct coll_plan *plan)
{
	return broadcast(args, plan, chain, 1);
}

static int chain_reduce(const struct coll_args *args, struct coll_plan *plan)
{
	return reduce(args, plan, chain, 1);
}

static int chain_pipe_broadcast(const struct coll_args *args, struct coll_plan *plan)
{
	return broadcast(args, plan, chain, args->chunks);
}

static int chain_pipe_reduce(const struct coll_args *args, struct coll_plan *plan)
{
	return reduce(args, plan, chain, args->chunks);
}

static int binary_broadcast(const struct coll_args *args, struct coll_plan *plan)
{
	return broadcast(args, plan, binary, args->chunks);
}

static int binary_reduce(const struct coll_args *args, struct coll_plan *plan)
{
	return reduce(args, plan, binary, args->chunks);
}

static int binomial_pipe_broadcast(const struct coll_args *args, struct coll_plan *plan)
{
	return broadcast(args, plan, binomial, args->chunks);
}

static int binomial_pipe_reduce(const struct coll_args *args, struct coll_plan *plan)
{
	return reduce(args, plan, binomial, args->chunks);
}

#define FORM_CHAIN	"(p+k-2)(alpha + n beta/k"
#define FORM_BINARY	"(2(k-1)+D)(alpha + n beta/k"
#define D_IS		", D = max_{1<=i<=p} (floor(lg i) + popcount(i) - 1); p = 2: k steps"
#define FORM_BINOMIAL	"k L (alpha + n beta/k"

#define ROW(coll, name_, form, plan_, cost_, ...)				\
	{ .collective = NPULINK_COLL_##coll, .name = name_, .exact = true,	\
	  .formula = form, .plan = plan_, .cost = cost_, __VA_ARGS__ }

const struct coll_algorithm coll_pipe_algorithms[] = {
	ROW(BROADCAST, "chain", "(p-1)(alpha + n beta)", chain_broadcast, cost_chain,
	    .desc = "everything is passed on from rank to rank"),
	ROW(BROADCAST, "chain-pipelined", FORM_CHAIN ")", chain_pipe_broadcast, cost_chain_pipe,
	    .chunks = chain_chunks, .desc = "the same in k chunks"),
	ROW(BROADCAST, "binary-pipelined", FORM_BINARY ")" D_IS
	    "; p-1 ports: (k + floor(lg p) - 1)(alpha + n beta/k)",
	    binary_broadcast, cost_binary, .chunks = binary_chunks,
	    .desc = "in k chunks down a binary tree"),
	ROW(BROADCAST, "binomial-pipelined", FORM_BINOMIAL
	    "); p-1 ports: (k + floor(lg p) - 1)(alpha + n beta/k)",
	    binomial_pipe_broadcast, cost_binomial, .chunks = binomial_chunks,
	    .desc = "in k chunks down a binomial tree; needs a port per child"),
	ROW(REDUCE, "chain", "(p-1)(alpha + n beta + n gamma)", chain_reduce, cost_chain,
	    .commutative = true, .desc = "the sum grows from rank to rank up to the root"),
	ROW(REDUCE, "chain-pipelined", FORM_CHAIN " + n gamma/k)", chain_pipe_reduce,
	    cost_chain_pipe, .commutative = true, .chunks = chain_chunks,
	    .desc = "the same in k chunks"),
	ROW(REDUCE, "binary-pipelined", FORM_BINARY " + n gamma/k)" D_IS, binary_reduce,
	    cost_binary, .commutative = true, .chunks = binary_chunks,
	    .desc = "in k chunks up a binary tree"),
	ROW(REDUCE, "binomial-pipelined", FORM_BINOMIAL " + n gamma/k)",
	    binomial_pipe_reduce, cost_binomial, .commutative = true,
	    .chunks = binomial_chunks, .desc = "in k chunks up a binomial tree"),
	{ .name = NULL },
};
