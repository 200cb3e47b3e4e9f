// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * tree.c - binomial trees, and the dissemination barrier.
 *
 * Ranks are counted from the root: v = rank - root. Node v's parent is v without
 * its lowest set bit, so a subtree is the range [v, v + lowest bit), cut at p.
 * Broadcast and scatter serve the most distant child first, reduce and gather
 * the nearest, which for root 0 also keeps the operands in the order of ranks.
 * See "Trees and chains" in ALGORITHMS.md.
 */
#include <errno.h>
#include <stdlib.h>
#include "algorithm/algorithms.h"
#include "plan/planner.h"

struct tree {
	uint32_t p, root, v, parent;
	uint32_t span;		/* the subtree is [v, v + span), uncut */
	struct plan_shards s;
};

static uint32_t rank_of(const struct tree *t, uint32_t v)
{
	return mod_add(v, t->root, t->p);
}

static struct tree tree_of(const struct coll_args *args)
{
	uint32_t p = args->nranks, v = mod_sub(args->rank, args->root, p);
	struct tree t = { .p = p, .root = args->root, .v = v, .s = plan_shards(args) };

	t.span = v ? v & -v : 1U << lg_ceil(p);
	t.parent = v ? rank_of(&t, v - t.span) : NPULINK_NO_PEER;
	return t;
}

/* ---- broadcast and reduce */

/*
 * An only child gets it slice by slice. Several do not wait for one another: they
 * all take it from here as soon as it is here.
 */
static int binomial_broadcast(const struct coll_args *args, struct coll_plan *plan)
{
	struct tree t = tree_of(args);
	uint64_t n = args->count * t.s.esize;
	struct plan_at src = t.v ? at_recv(0) : plan_input(args, 0);
	uint32_t d, got = PLAN_NONE;

	if (t.v && t.p - t.v > 1 && (t.span == 2 || (t.span > 2 && t.p - t.v == 2))) {
		plan_recv_send(plan, t.parent, rank_of(&t, t.v + 1), src, n);
		return 0;
	}
	if (t.v)
		got = plan_recv(plan, t.parent, src, n);
	for (d = t.span / 2; d; d /= 2) {
		if (d >= t.p - t.v)
			continue;
		plan_after(plan, got);
		plan_send(plan, rank_of(&t, t.v + d), src, n);
	}
	if (!t.v && !plan_in_place(args))
		plan_copy(plan, at_send(0), at_recv(0), n);
	return 0;
}

static int binomial_reduce(const struct coll_args *args, struct coll_plan *plan)
{
	struct tree t = tree_of(args);
	uint64_t n = args->count * t.s.esize;
	struct plan_at src = plan_input(args, 0), sum = at_recv(0);
	uint32_t d, last = 0, step = PLAN_NONE;

	for (d = 1; d < t.span && d < t.p - t.v; d *= 2)
		last = d;
	if (!last) {
		plan_send(plan, t.parent, src, n);
		return 0;
	}
	if (t.v)
		sum = plan_scratch(plan, last == 1 ? min_u64(n, PLAN_WINDOW) : n);
	for (d = 1; d <= last; d *= 2) {
		uint32_t child = rank_of(&t, t.v + d);

		plan_after(plan, step);
		if (t.v && d == last) {
			step = plan_recv_reduce_send(plan, child, t.parent, src, sum, n);
			plan_transient(plan, step, last == 1 ? PLAN_WINDOW : UINT64_MAX);
		} else {
			step = plan_recv_reduce(plan, child, src, sum, n);
		}
		/* A leaf is odd, or the last. */
		plan_recv_plain(plan, step, d == 1 || t.v + d == t.p - 1);
		src = sum;
	}
	if (!t.v)
		plan_final(plan, step);
	return 0;
}

/* ---- scatter and gather */

/* Bytes of the shards of the nodes [a, b). */
static uint64_t bytes_between(const struct tree *t, uint32_t a, uint32_t b)
{
	uint64_t sum = 0;

	for (; a < b; a++)
		sum += shard_len(&t->s, rank_of(t, a));
	return sum;
}

static uint32_t cut(const struct tree *t, uint32_t v)
{
	return v < t->p ? v : t->p;
}

/*
 * The shards of nodes [a, b) in the root's buffer, one run of adjacent shards at
 * a time: *a moves to the end of the run.
 */
static uint64_t next_run(const struct tree *t, uint32_t *a, uint32_t b, uint64_t *off)
{
	uint64_t len = 0;

	for (; *a < b; ++*a) {
		uint32_t r = rank_of(t, *a);

		if (!shard_len(&t->s, r))
			continue;
		if (!len)
			*off = shard_off(&t->s, r);
		else if (*off + len != shard_off(&t->s, r))
			break;
		len += shard_len(&t->s, r);
	}
	return len;
}

/* Is that one run? Then it needs no packing. */
static bool one_run(const struct tree *t, uint32_t a, uint32_t b, uint64_t *off)
{
	next_run(t, &a, b, off);
	return a == b;
}

static void root_scatter(const struct coll_args *args, struct coll_plan *plan,
			 const struct tree *t)
{
	uint64_t off = 0, len, own = shard_off(&t->s, args->rank);
	uint32_t d, a, end, first;

	for (d = t->span / 2; d; d /= 2) {
		struct plan_at src, at;

		end = cut(t, 2 * d);
		if (one_run(t, d, end, &off)) {
			plan_send(plan, rank_of(t, d), plan_input(args, off),
				  bytes_between(t, d, end));
			continue;
		}
		src = plan_scratch(plan, bytes_between(t, d, end));
		at = src;
		first = plan->nsteps;
		for (a = d; a < end; at.off += len) {
			len = next_run(t, &a, end, &off);
			plan_copy(plan, plan_input(args, off), at, len);
		}
		plan_after_since(plan, first);
		plan_send(plan, rank_of(t, d), src, bytes_between(t, d, end));
	}
	if (!plan_in_place(args))
		plan_copy(plan, at_send(own), at_recv(0), shard_len(&t->s, args->rank));
}

static int binomial_scatter(const struct coll_args *args, struct coll_plan *plan)
{
	struct tree t = tree_of(args);
	uint64_t own = shard_len(&t.s, args->rank), all;
	uint32_t d, got, end = cut(&t, t.v + t.span);
	struct plan_at block;

	if (!t.v) {
		root_scatter(args, plan, &t);
		return 0;
	}
	all = bytes_between(&t, t.v, end);
	if (all == own) {
		plan_recv(plan, t.parent, at_recv(0), own);
		return 0;
	}
	block = plan_scratch(plan, all);
	got = plan_recv(plan, t.parent, block, all);
	for (d = t.span / 2; d; d /= 2) {
		if (d >= t.p - t.v)
			continue;
		plan_after(plan, got);
		plan_send(plan, rank_of(&t, t.v + d),
			  at_plus(block, bytes_between(&t, t.v, t.v + d)),
			  bytes_between(&t, t.v + d, cut(&t, t.v + 2 * d)));
	}
	plan_after(plan, got);
	plan_copy(plan, block, at_recv(0), own);
	return 0;
}

static void root_gather(const struct coll_args *args, struct coll_plan *plan,
			const struct tree *t)
{
	uint64_t off = 0, len, own = shard_off(&t->s, args->rank);
	uint32_t d, a, end, got;

	for (d = 1; d < t->span; d *= 2) {
		struct plan_at at;

		end = cut(t, 2 * d);
		if (one_run(t, d, end, &off)) {
			plan_recv(plan, rank_of(t, d), at_recv(off),
				  bytes_between(t, d, end));
			continue;
		}
		at = plan_scratch(plan, bytes_between(t, d, end));
		got = plan_recv(plan, rank_of(t, d), at, bytes_between(t, d, end));
		for (a = d; a < end; at.off += len) {
			len = next_run(t, &a, end, &off);
			plan_after(plan, got);
			plan_copy(plan, at, at_recv(off), len);
		}
	}
	if (!plan_in_place(args))
		plan_copy(plan, at_send(0), at_recv(own), shard_len(&t->s, args->rank));
}

static int binomial_gather(const struct coll_args *args, struct coll_plan *plan)
{
	struct tree t = tree_of(args);
	uint64_t own = shard_len(&t.s, args->rank), all;
	uint32_t d, first, end = cut(&t, t.v + t.span);
	struct plan_at block;

	if (!t.v) {
		root_gather(args, plan, &t);
		return 0;
	}
	all = bytes_between(&t, t.v, end);
	if (all == own) {
		plan_send(plan, t.parent, at_send(0), own);
		return 0;
	}
	block = plan_scratch(plan, all);
	first = plan->nsteps;
	for (d = 1; d < t.span && d < t.p - t.v; d *= 2)
		plan_recv(plan, rank_of(&t, t.v + d),
			  at_plus(block, bytes_between(&t, t.v, t.v + d)),
			  bytes_between(&t, t.v + d, cut(&t, t.v + 2 * d)));
	plan_copy(plan, at_send(0), block, own);
	plan_after_since(plan, first);
	plan_send(plan, t.parent, block, all);
	return 0;
}

/* ---- barrier */

/*
 * In round k signal rank + 2^k and await rank - 2^k. Awaiting in order makes one
 * dependency enough for a signal to mean all that came before it.
 */
static int dissemination_barrier(const struct coll_args *args, struct coll_plan *plan)
{
	uint32_t p = args->nranks, got = PLAN_NONE, d;

	for (d = 1; d < p; d *= 2) {
		plan_after(plan, got);
		plan_signal(plan, mod_add(args->rank, d, p));
		plan_after(plan, got);
		got = plan_await(plan, mod_sub(args->rank, d, p));
	}
	return 0;
}

/* ---- closed forms: "Trees and chains" in ALGORITHMS.md */

static double bytes(const struct coll_args *args)
{
	return (double)args->count * npulink_dtype_size(args->dtype);
}

static double cost_broadcast(const struct coll_args *args, const struct coll_cost_params *c)
{
	/* No number below p has more bits set than this. */
	if (c->ports > 1)
		return lg_floor(args->nranks) * (c->alpha + bytes(args) * c->beta);
	return lg_ceil(args->nranks) * (c->alpha + bytes(args) * c->beta);
}

static double cost_reduce(const struct coll_args *args, const struct coll_cost_params *c)
{
	return lg_ceil(args->nranks) * (c->alpha + bytes(args) * (c->beta + c->gamma));
}

static double cost_scatter(const struct coll_args *args, const struct coll_cost_params *c)
{
	return lg_ceil(args->nranks) * c->alpha + (args->nranks - 1) * bytes(args) * c->beta;
}

static double cost_barrier(const struct coll_args *args, const struct coll_cost_params *c)
{
	double t = lg_ceil(args->nranks) * c->alpha;

	for (uint32_t i = 0; 1U << i < args->nranks; i++)
		t += crowd_shift(c, i, 0);
	return t;
}

/* T(v) of a subtree whose shards are given, from the leaves up. */
static double cost_v(const struct coll_args *args, const struct coll_cost_params *c, bool gather)
{
	struct tree t = tree_of(args);
	uint32_t p = args->nranks, v, d;
	double *sum = malloc((p + 1) * sizeof(*sum)), *when = malloc(p * sizeof(*when));
	double now, result = -1;

	if (!sum || !when)
		goto out;
	for (sum[0] = 0, v = 0; v < p; v++)
		sum[v + 1] = sum[v] + shard_len(&t.s, rank_of(&t, v));
	for (v = p; v-- > 0;) {
		uint32_t span = v ? v & -v : 1U << lg_ceil(p);

		now = 0;
		when[v] = 0;
		for (d = 1; gather && d < span && d < p - v; d *= 2) {
			double w = sum[cut(&t, v + 2 * d)] - sum[v + d];

			if (w > 0)
				now = (now > when[v + d] ? now : when[v + d]) +
				      c->alpha + w * c->beta;
			when[v] = now;
		}
		for (d = span / 2; !gather && d; d /= 2) {
			double w;

			if (d >= p - v)
				continue;
			w = sum[cut(&t, v + 2 * d)] - sum[v + d];
			if (w > 0)
				now += c->alpha + w * c->beta;
			if (now + when[v + d] > when[v])
				when[v] = now + when[v + d];
		}
	}
	result = when[0];
out:
	free(sum);
	free(when);
	return result;
}

static double cost_scatterv(const struct coll_args *args, const struct coll_cost_params *c)
{
	return cost_v(args, c, false);
}

static double cost_gatherv(const struct coll_args *args, const struct coll_cost_params *c)
{
	return cost_v(args, c, true);
}

#define ROW(coll, name_, form, plan_, cost_, ...)				\
	{ .collective = NPULINK_COLL_##coll, .name = name_, .exact = true,	\
	  .formula = form, .plan = plan_, .cost = cost_, __VA_ARGS__ }

const struct coll_algorithm coll_tree_algorithms[] = {
	ROW(BROADCAST, "binomial", "L (alpha + n beta); p-1 ports: floor(lg p) (alpha + n beta)",
	    binomial_broadcast, cost_broadcast, .together = true,
	    .desc = "whoever has it gives it to one more rank, in each of L rounds"),
	ROW(REDUCE, "binomial", "L (alpha + n beta + n gamma)", binomial_reduce, cost_reduce,
	    .commutative = true,
	    .desc = "broadcast with the arrows reversed; keeps rank order if the root is 0"),
	ROW(SCATTER, "binomial", "L alpha + (p-1)/p n beta", binomial_scatter, cost_scatter,
	    .desc = "each rank keeps its shard and passes half of the others on"),
	ROW(SCATTERV, "binomial", "T(v) = max_i [sum_{j<=i} (alpha + W(c_j) beta) + T(c_i)]",
	    binomial_scatter, cost_scatterv,
	    .desc = "each rank keeps its shard and passes half of the others on"),
	ROW(GATHER, "binomial", "L alpha + (p-1)/p n beta", binomial_gather, cost_scatter,
	    .desc = "scatter with the arrows reversed"),
	ROW(GATHERV, "binomial",
	    "T(v): children c nearest first, t = max(t, T(c)) + alpha + W(c) beta",
	    binomial_gather, cost_gatherv,
	    .desc = "scatter with the arrows reversed"),
	ROW(BARRIER, "dissemination", "L alpha", dissemination_barrier, cost_barrier,
	    .desc = "in round k signal rank + 2^k and await rank - 2^k"),
	{ .name = NULL },
};
