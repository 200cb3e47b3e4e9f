// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * plan_double.c - the double binary tree: even chunks along one tree, odd chunks
 * along another, so that who passes chunks on in one is a leaf of the other and
 * all ports are busy (Sanders, Speck, Traeff: Two-tree algorithms for full
 * bandwidth broadcast, reduction and scan, 2009; the trees are those of NCCL).
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include "planner.h"

struct node {
	uint32_t parent, child[2];	/* NPULINK_NO_PEER: none */
};

/* In-order binary tree over 0 .. n - 1, whose root 0 has one child. */
static struct node in_order(uint32_t v, uint32_t n)
{
	struct node t = { NPULINK_NO_PEER, { NPULINK_NO_PEER, NPULINK_NO_PEER } };
	uint32_t bit = v & -v, down;

	if (!v) {
		if (n > 1)
			t.child[0] = 1U << lg_floor(n - 1);
		return t;
	}
	t.parent = (v ^ bit) | bit << 1;
	if (t.parent >= n)
		t.parent = v ^ bit;
	down = bit / 2;
	if (down)
		t.child[0] = v - down;
	while (down && v + down >= n)
		down /= 2;
	if (down)
		t.child[1] = v + down;
	return t;
}

/* The second tree: mirrored if n is even, else shifted by one. */
static uint32_t other_side(uint32_t v, uint32_t n, bool there)
{
	if (v == NPULINK_NO_PEER)
		return v;
	if (n % 2 == 0)
		return n - 1 - v;
	return there ? mod_sub(v, 1 % n, n) : mod_add(v, 1 % n, n);
}

static struct node tree_node(uint32_t v, uint32_t n, uint32_t which)
{
	struct node t;

	if (!which)
		return in_order(v, n);
	t = in_order(other_side(v, n, true), n);
	t.parent = other_side(t.parent, n, false);
	t.child[0] = other_side(t.child[0], n, false);
	t.child[1] = other_side(t.child[1], n, false);
	return t;
}

/*
 * Broadcast: the trees are over all ranks but the root, which feeds both. Nodes
 * are counted from the rank behind the root.
 */
static int double_broadcast(const struct coll_args *args, struct coll_plan *plan)
{
	uint32_t p = args->nranks, n = p - 1, base = mod_add(args->root, 1, p), c, i, got;
	uint32_t v = mod_sub(args->rank, base, p);
	struct plan_shards s = plan_split(args->count, args->chunks,
					  npulink_dtype_size(args->dtype));

	for (c = 0; c < args->chunks; c++) {
		uint64_t off = shard_off(&s, c), len = shard_len(&s, c);
		uint32_t top = c % 2 ? other_side(0, n, false) : 0;
		struct node t;

		if (args->rank == args->root) {
			plan_send(plan, mod_add(base, top, p), plan_input(args, off), len);
			continue;
		}
		t = tree_node(v, n, c % 2);
		got = plan_recv(plan, v == top ? args->root : mod_add(base, t.parent, p),
				at_recv(off), len);
		for (i = 0; i < 2; i++) {
			if (t.child[i] == NPULINK_NO_PEER)
				continue;
			plan_after(plan, got);
			plan_send(plan, mod_add(base, t.child[i], p), at_recv(off), len);
		}
	}
	if (args->rank == args->root && !plan_in_place(args))
		plan_copy(plan, at_send(0), at_recv(0), args->count * s.esize);
	return 0;
}

/* One chunk up its tree; returns the step after which its place may be written. */
static uint32_t chunk_up(const struct coll_args *args, struct coll_plan *plan,
			 const struct node *t, uint64_t off, uint64_t len, uint32_t *sum)
{
	struct plan_at src = plan_input(args, off), dst = at_recv(off);
	uint32_t i, step = PLAN_NONE;

	for (i = 0; i < 2; i++) {
		if (t->child[i] == NPULINK_NO_PEER)
			continue;
		plan_after(plan, step);
		step = plan_recv_reduce(plan, t->child[i], src, dst, len);
		src = dst;
	}
	*sum = step;
	if (t->parent == NPULINK_NO_PEER) {
		plan_final(plan, step);
		return step;
	}
	plan_after(plan, step);
	return plan_send(plan, t->parent, src, len);
}

static void chunk_down(struct coll_plan *plan, const struct node *t, uint64_t off, uint64_t len,
		       uint32_t after)
{
	uint32_t i, got = after;

	if (t->parent != NPULINK_NO_PEER) {
		plan_after(plan, after);
		got = plan_recv(plan, t->parent, at_recv(off), len);
	}
	for (i = 0; i < 2; i++) {
		if (t->child[i] == NPULINK_NO_PEER)
			continue;
		plan_after(plan, got);
		plan_send(plan, t->child[i], at_recv(off), len);
	}
}

/*
 * Chunks come down while others are still going up. In the list, a chunk's way down
 * stands behind the way up of those that have started by the time it is complete.
 */
static int double_allreduce(const struct coll_args *args, struct coll_plan *plan)
{
	uint32_t p = args->nranks, k = args->chunks, lag = 2 * lg_ceil(p), c, sum;
	uint32_t *left = malloc(k * sizeof(*left));
	struct plan_shards s = plan_split(args->count, k, npulink_dtype_size(args->dtype));

	if (!left)
		return -ENOMEM;
	for (c = 0; c < k + lag; c++) {
		if (c < k) {
			struct node t = tree_node(args->rank, p, c % 2);

			left[c] = chunk_up(args, plan, &t, shard_off(&s, c),
					   shard_len(&s, c), &sum);
			/* A leaf's own input stays as it is unless it is in place. */
			if (sum == PLAN_NONE && !plan_in_place(args))
				left[c] = PLAN_NONE;
		}
		if (c >= lag) {
			struct node t = tree_node(args->rank, p, (c - lag) % 2);

			chunk_down(plan, &t, shard_off(&s, c - lag), shard_len(&s, c - lag),
				   left[c - lag]);
		}
	}
	free(left);
	return 0;
}

/* ---- forms: what the plans are under, with the depth and rate of the paper */

static double bytes(const struct coll_args *args)
{
	return (double)args->count * npulink_dtype_size(args->dtype);
}

static double hop(const struct coll_args *args, const struct coll_cost_params *c, uint32_t k,
		  double per_byte)
{
	struct plan_shards s = plan_split(args->count, k, npulink_dtype_size(args->dtype));

	return c->alpha + shard_max(&s) * per_byte;
}

static uint32_t broadcast_chunks(const struct coll_args *args, const struct coll_cost_params *c)
{
	double depth = 2.0 * lg_ceil(args->nranks);

	return chunks_of(sqrt(depth * bytes(args) * c->beta / c->alpha), args);
}

static uint32_t allreduce_chunks(const struct coll_args *args, const struct coll_cost_params *c)
{
	double depth = 2.0 * lg_ceil(args->nranks);

	return chunks_of(sqrt(depth * bytes(args) * (c->beta + c->gamma) / c->alpha), args);
}

/*
 * One way. The paper's k + 2L with one port needs a schedule in two colours that
 * tells each port whom to serve next; in list order a rank waits for its turn at
 * each level. With a port for each link nobody does.
 */
static double steps(const struct coll_args *args, const struct coll_cost_params *c, uint32_t k)
{
	double l = lg_ceil(args->nranks), turn = l + 4;

	/* p = 2^L - 1 is the worst: both ways down are full. */
	if (turn < 2 * l - 1)
		turn = 2 * l - 1;
	return c->ports > 1 ? k + 2 * l : (k + 1) * turn;
}

static double cost_broadcast(const struct coll_args *args, const struct coll_cost_params *c)
{
	uint32_t k = plan_chunks(args, broadcast_chunks);

	if (args->nranks == 1)
		return 0;
	return steps(args, c, k) * hop(args, c, k, c->beta);
}

static double cost_allreduce(const struct coll_args *args, const struct coll_cost_params *c)
{
	uint32_t k = plan_chunks(args, allreduce_chunks);

	if (args->nranks == 1)
		return 0;
	return 2 * steps(args, c, k) * hop(args, c, k, c->beta + c->gamma);
}

#define ROW(coll, form, plan_, cost_, ...)					\
	{ .collective = NPULINK_COLL_##coll, .name = "double-binary",		\
	  .formula = form, .plan = plan_, .cost = cost_, __VA_ARGS__ }

const struct coll_algorithm coll_double_algorithms[] = {
	ROW(BROADCAST, "one port: (k+1) max(L+4, 2L-1) (alpha + n beta/k); p-1 ports: (k + 2L)(..)",
	    double_broadcast, cost_broadcast,
	    .chunks = broadcast_chunks, .desc = "in k chunks, even and odd ones down two trees"),
	ROW(ALLREDUCE, "one port: 2 (k+1) max(L+4, 2L-1) (alpha + n beta/k + n gamma/k); "
	    "p-1 ports: 2 (k + 2L)(..)", double_allreduce,
	    cost_allreduce, .commutative = true, .chunks = allreduce_chunks,
	    .desc = "in k chunks, even and odd ones up and down two trees"),
	{ .name = NULL },
};
