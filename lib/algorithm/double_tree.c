// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * double_tree.c - the double binary tree: even chunks along one tree, odd chunks
 * along another, so that who passes chunks on in one is a leaf of the other and
 * all ports are busy (Sanders, Speck, Traeff: Two-tree algorithms for full
 * bandwidth broadcast, reduction and scan, 2009).
 *
 * Both trees are over all ranks but the root, which feeds them. Edges have two
 * colours: those by which a node receives in the two trees differ, and so do those
 * to its two children. Edges of one colour are used in even slots of time, those of
 * the other in odd ones; so nobody sends or receives twice in a slot, and each
 * edge carries a chunk of its tree in every second one.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include "algorithm/algorithms.h"
#include "plan/planner.h"

/* ---- trees: nodes are 1 .. n, 0 is none */

/* In order: even nodes have children, odd ones are leaves. */
static uint32_t parent_of(uint32_t v, uint32_t n)
{
	uint32_t bit = v & -v, up = (v ^ bit) | bit << 1;

	if (v == 1U << lg_floor(n))
		return 0;
	return up <= n ? up : v ^ bit;
}

static uint32_t child_of(uint32_t v, uint32_t n, uint32_t right)
{
	uint32_t down = (v & -v) / 2;

	if (!right)
		return down ? v - down : 0;
	while (down && v + down > n)
		down /= 2;
	return down ? v + down : 0;
}

/*
 * Where a node is in the second tree, which is the first one mirrored if n is even,
 * else shifted by one; and the node that is there.
 */
static uint32_t to_second(uint32_t v, uint32_t n)
{
	if (!v || n % 2 == 0)
		return v ? n + 1 - v : 0;
	return v == 1 ? n : v - 1;
}

static uint32_t of_second(uint32_t v, uint32_t n)
{
	if (!v || n % 2 == 0)
		return v ? n + 1 - v : 0;
	return v == n ? 1 : v + 1;
}

static uint32_t tree_parent(uint32_t v, uint32_t n, uint32_t tree)
{
	return tree ? of_second(parent_of(to_second(v, n), n), n) : parent_of(v, n);
}

static uint32_t tree_child(uint32_t v, uint32_t n, uint32_t tree, uint32_t right)
{
	return tree ? of_second(child_of(to_second(v, n), n, right), n) : child_of(v, n, right);
}

static uint32_t tree_top(uint32_t n, uint32_t tree)
{
	uint32_t top = 1U << lg_floor(n);

	return tree ? of_second(top, n) : top;
}

static uint32_t sibling(uint32_t v, uint32_t n, uint32_t tree)
{
	uint32_t up = tree_parent(v, n, tree), left;

	if (!up)
		return 0;
	left = tree_child(up, n, tree, 0);
	return left == v ? tree_child(up, n, tree, 1) : left;
}

/* ---- colours */

/*
 * The colour of the edge to @v in the first tree; that in the second one is the
 * other colour. So siblings in either tree differ, and as each node has one in
 * each, the nodes form chains and rings in which colours alternate. They are
 * counted from a node that all on the chain agree on: a top, which has to get 0 (two
 * tops on one chain agree: it leaves one by the second tree and comes to the other
 * by the first), else the lower end, or the lowest of a ring.
 */
static uint32_t colour(uint32_t v, uint32_t n)
{
	uint32_t lowest = v, at = 0, end[2], far[2];

	for (uint32_t way = 0; way < 2; way++) {
		uint32_t tree = way, now = v, i = 0, next;

		while ((next = sibling(now, n, tree)) && next != v) {
			now = next;
			i++;
			tree = !tree;
			if (now < lowest) {
				lowest = now;
				at = i;
			}
		}
		if (next)
			return at % 2;
		end[way] = now;
		far[way] = i;
	}
	for (uint32_t way = 0; way < 2; way++)
		if (end[way] == tree_top(n, 0) || end[way] == tree_top(n, 1))
			return far[way] % 2;
	return far[end[1] < end[0]] % 2;
}

/* The slot in which @v receives the first chunk of a tree. */
static uint32_t first_slot(uint32_t v, uint32_t n, uint32_t tree)
{
	uint32_t path[64], len = 0, slot;

	for (; v; v = tree_parent(v, n, tree))
		path[len++] = v;
	slot = colour(path[--len], n) ^ tree;
	while (len--)
		slot += ((slot + 1) % 2) == (colour(path[len], n) ^ tree) ? 1 : 2;
	return slot;
}

/* ---- the part of one rank */

/* An edge of its own: a chunk of its tree every second slot. */
struct edge {
	uint32_t peer;		/* PLAN_NONE: no such edge */
	uint32_t tree, slot;
};

/*
 * @up: by which it receives when chunks come down, one for each tree; @down: by which
 * it passes them on. The root has none up, and the tops are its children.
 */
struct part {
	const struct coll_args *args;
	struct coll_plan *plan;
	struct plan_shards s;
	uint32_t root, n;
	struct edge up[2], down[2];
	uint32_t slots;		/* all first slots are below it; even */
	uint32_t *ready;	/* by chunk: the step after which it is here, */
	uint32_t *left;		/* and that after which its place may be overwritten */
};

static uint32_t rank_of(const struct part *part, uint32_t v)
{
	return mod_add(part->root, v, part->n + 1);
}

static int part_of(struct part *part, const struct coll_args *args, struct coll_plan *plan,
		   uint32_t root)
{
	uint32_t p = args->nranks, n = p - 1, v = mod_sub(args->rank, root, p), i, e = 0;

	*part = (struct part){
		.args = args, .plan = plan, .root = root, .n = n,
		.s = plan_split(args->count, args->chunks, npulink_dtype_size(args->dtype)),
		.slots = 2 * lg_ceil(p) + 2,
	};
	for (i = 0; i < 2; i++) {
		part->up[i] = (struct edge){ PLAN_NONE, i, 0 };
		part->down[i] = (struct edge){ PLAN_NONE, i, 0 };
	}
	part->ready = malloc(2 * (size_t)args->chunks * sizeof(*part->ready));
	if (!part->ready)
		return -ENOMEM;
	part->left = part->ready + args->chunks;
	for (i = 0; i < 2 * args->chunks; i++)
		part->ready[i] = PLAN_NONE;
	for (uint32_t tree = 0; tree < 2; tree++) {
		if (!v) {
			i = tree_top(n, tree);
			part->down[tree] = (struct edge){ rank_of(part, i), tree,
							  first_slot(i, n, tree) };
			continue;
		}
		part->up[tree] = (struct edge){ rank_of(part, tree_parent(v, n, tree)), tree,
						first_slot(v, n, tree) };
		for (uint32_t right = 0; right < 2; right++) {
			i = tree_child(v, n, tree, right);
			if (i)
				part->down[e++] = (struct edge){ rank_of(part, i), tree,
								 first_slot(i, n, tree) };
		}
	}
	return 0;
}

/* The chunk that an edge carries in a slot, if any; @first: the first slot that it does. */
static bool carries(const struct part *part, const struct edge *e, uint32_t first, uint32_t slot,
		    uint32_t *chunk)
{
	if (e->peer == PLAN_NONE || slot < first || (slot - first) % 2)
		return false;
	*chunk = slot - first + e->tree;
	return *chunk < part->args->chunks;
}

/* Slots of a whole way, up or down. */
static uint32_t last_slot(const struct part *part)
{
	return part->slots + part->args->chunks + 1;
}

/* Down: chunks are at @from at the root. */
static void chunks_down(struct part *part, struct plan_at from)
{
	bool root = part->up[0].peer == PLAN_NONE;
	struct plan_at at = root ? from : at_recv(0);
	uint32_t slot, i, c;

	for (slot = 0; slot < last_slot(part); slot++) {
		for (i = 0; i < 2; i++) {
			if (!carries(part, &part->up[i], part->up[i].slot, slot, &c))
				continue;
			plan_after(part->plan, part->left[c]);
			part->ready[c] = plan_recv(part->plan, part->up[i].peer,
						   at_recv(shard_off(&part->s, c)),
						   shard_len(&part->s, c));
		}
		for (i = 0; i < 2; i++) {
			if (!carries(part, &part->down[i], part->down[i].slot, slot, &c))
				continue;
			plan_after(part->plan, part->ready[c]);
			plan_send(part->plan, part->down[i].peer,
				  at_plus(at, shard_off(&part->s, c)), shard_len(&part->s, c));
		}
	}
}

/* Has the child at the other end of @e no children of its own in that tree? */
static bool is_leaf(const struct part *part, const struct edge *e)
{
	uint32_t v = mod_sub(e->peer, part->root, part->n + 1);

	return !tree_child(v, part->n, e->tree, 0) && !tree_child(v, part->n, e->tree, 1);
}

/* Up, to the root: the same backwards, what comes is added. */
static void chunks_up(struct part *part)
{
	bool root = part->up[0].peer == PLAN_NONE;
	struct coll_plan *plan = part->plan;
	uint32_t slot, i, c, first;

	for (slot = 0; slot < last_slot(part); slot++) {
		for (i = 0; i < 2; i++) {
			uint64_t off;
			bool begun;

			first = part->slots - part->down[i].slot;
			if (!carries(part, &part->down[i], first, slot, &c))
				continue;
			off = shard_off(&part->s, c);
			begun = part->ready[c] != PLAN_NONE;
			plan_after(plan, part->ready[c]);
			part->ready[c] = plan_recv_reduce(plan, part->down[i].peer,
							  begun ? at_recv(off) :
							  plan_input(part->args, off),
							  at_recv(off), shard_len(&part->s, c));
			plan_recv_plain(plan, part->ready[c], is_leaf(part, &part->down[i]));
			if (root)
				plan_final(plan, part->ready[c]);
		}
		for (i = 0; i < 2; i++) {
			uint64_t off;
			bool sum;

			first = part->slots - part->up[i].slot;
			if (!carries(part, &part->up[i], first, slot, &c))
				continue;
			off = shard_off(&part->s, c);
			sum = part->ready[c] != PLAN_NONE;
			plan_after(plan, part->ready[c]);
			part->left[c] = plan_send(plan, part->up[i].peer,
						  sum ? at_recv(off) : plan_input(part->args, off),
						  shard_len(&part->s, c));
			/* A leaf's own input stays as it is unless it is in place. */
			if (!sum && !plan_in_place(part->args))
				part->left[c] = PLAN_NONE;
		}
	}
}

static int double_broadcast(const struct coll_args *args, struct coll_plan *plan)
{
	struct part part;
	int rc = part_of(&part, args, plan, args->root);

	if (rc)
		return rc;
	chunks_down(&part, plan_input(args, 0));
	if (args->rank == args->root && !plan_in_place(args))
		plan_copy(plan, at_send(0), at_recv(0), args->count * part.s.esize);
	free(part.ready);
	return 0;
}

/* Up to rank 0, and down again. In the list, all that goes up stands first. */
static int double_allreduce(const struct coll_args *args, struct coll_plan *plan)
{
	struct part part;
	int rc = part_of(&part, args, plan, 0);

	if (rc)
		return rc;
	chunks_up(&part);
	chunks_down(&part, at_recv(0));
	free(part.ready);
	return 0;
}

/* ---- forms: what the plans are under */

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

	return chunks_of(sqrt(depth * bytes(args) * (c->beta + c->gamma / 2) / c->alpha), args);
}

/*
 * One way, in slots: two for each level, and one for each chunk, in which messages share links
 * once chunks follow each other.
 */
static double slots(const struct coll_args *args, const struct coll_cost_params *c, uint32_t k)
{
	double follow = c->wires ? (k - 1) * (c->wires->trees - 1) : 0;

	return k + 2.0 * lg_ceil(args->nranks) + follow;
}

static double cost_broadcast(const struct coll_args *args, const struct coll_cost_params *c)
{
	uint32_t k = plan_chunks(args, broadcast_chunks);

	if (args->nranks == 1)
		return 0;
	return slots(args, c, k) * hop(args, c, k, c->beta);
}

static double cost_allreduce(const struct coll_args *args, const struct coll_cost_params *c)
{
	uint32_t k = plan_chunks(args, allreduce_chunks);

	if (args->nranks == 1)
		return 0;
	return slots(args, c, k) * (hop(args, c, k, c->beta + c->gamma) + hop(args, c, k, c->beta));
}

#define ROW(coll, form, plan_, cost_, ...)					\
	{ .collective = NPULINK_COLL_##coll, .name = "double-binary",		\
	  .formula = form, .plan = plan_, .cost = cost_, __VA_ARGS__ }

const struct coll_algorithm coll_double_algorithms[] = {
	ROW(BROADCAST, "(k + 2L)(alpha + n beta/k)", double_broadcast, cost_broadcast,
	    .chunks = broadcast_chunks, .desc = "in k chunks, even and odd ones down two trees"),
	ROW(ALLREDUCE, "(k + 2L)(2 alpha + 2 n beta/k + n gamma/k)", double_allreduce,
	    cost_allreduce, .commutative = true, .chunks = allreduce_chunks,
	    .desc = "in k chunks, even and odd ones up and down two trees"),
	{ .name = NULL },
};
