// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * twolevel_root.c - two levels, with a root: broadcast and reduce.
 *
 * A chunk is cut into as many parts as the smallest server has ranks; the i-th
 * rank of each server owns part i. Owners of a part form a chain through all
 * servers; the root deals parts to, or gets them from, the owners of its own
 * server. While one chunk is given to all inside, the next is in the chain.
 */
#include <errno.h>
#include <stdlib.h>
#include "algorithm/twolevel.h"

struct rooted {
	struct servers s;
	struct coll_plan *plan;
	uint32_t root_server;
	bool with_root;		/* the root is in the own server */
};

static int rooted_of(const struct coll_args *args, struct coll_plan *plan, struct rooted *b)
{
	int rc = servers_of(args, &b->s);

	if (rc)
		return rc;
	b->plan = plan;
	b->root_server = args->topo->server_of[args->root];
	b->with_root = b->s.server == b->root_server;
	return 0;
}

/* The own part of a chunk: receive it, pass it on, give it to all inside. */
static void broadcast_own(struct rooted *b, const struct part *part, bool root)
{
	const struct coll_args *args = b->s.args;
	struct plan_at at = root ? plan_input(args, part->off) : at_recv(part->off);
	uint32_t next = mod_add(b->s.server, 1, b->s.m), got = PLAN_NONE, k;

	if (!b->with_root)
		got = plan_recv(b->plan, b->s.first[mod_sub(b->s.server, 1, b->s.m)] + b->s.local,
				at, part->len);
	else if (!root)
		got = plan_recv(b->plan, args->root, at, part->len);
	if (next != b->root_server) {
		plan_after(b->plan, got);
		plan_send(b->plan, b->s.first[next] + b->s.local, at, part->len);
	}
	for (k = 1; k < b->s.n; k++) {
		uint32_t to = b->s.base + mod_add(b->s.local, k, b->s.n);

		if (to == args->root)
			continue;
		plan_after(b->plan, got);
		plan_send(b->plan, to, at, part->len);
	}
}

int two_level_broadcast(const struct coll_args *args, struct coll_plan *plan)
{
	uint64_t es = npulink_dtype_size(args->dtype);
	struct plan_shards chunks = plan_split(args->count, args->chunks, es);
	bool root = args->rank == args->root;
	struct rooted b;
	uint32_t c, i, k;
	int rc;

	rc = rooted_of(args, plan, &b);
	if (rc)
		return rc;
	for (c = 0; c < args->chunks; c++) {
		struct part part;

		for (i = 0; root && i < b.s.fewest; i++) {
			if (i == b.s.local)
				continue;
			part = part_of(&chunks, c, b.s.fewest, i, b.s.m);
			plan_send(plan, b.s.base + i, plan_input(args, part.off), part.len);
		}
		if (b.s.local < b.s.fewest) {
			part = part_of(&chunks, c, b.s.fewest, b.s.local, b.s.m);
			broadcast_own(&b, &part, root);
		}
		for (k = 1; k < b.s.n && !root; k++) {
			i = mod_sub(b.s.local, k, b.s.n);
			if (i >= b.s.fewest)
				continue;
			part = part_of(&chunks, c, b.s.fewest, i, b.s.m);
			plan_recv(plan, b.s.base + i, at_recv(part.off), part.len);
		}
	}
	if (root && !plan_in_place(args))
		plan_copy(plan, at_send(0), at_recv(0), args->count * es);
	free(b.s.first);
	return 0;
}

/* The own part of a chunk: add it up, here and along the chain, which ends at the root's. */
static void reduce_own(struct rooted *b, const struct part *part, bool root)
{
	const struct coll_args *args = b->s.args;
	struct plan_at sum = plan_input(args, part->off), to = at_recv(part->off);
	uint32_t prev = mod_sub(b->s.server, 1, b->s.m), step = PLAN_NONE;

	if (!root && (b->s.n > 1 || prev != b->root_server))
		to = plan_scratch(b->plan, part->len);
	if (b->s.n > 1) {
		step = sum_inside(&b->s, b->plan, sum, to, part->len);
		sum = to;
	}
	if (prev != b->root_server) {
		plan_after(b->plan, step);
		step = plan_recv_reduce(b->plan, b->s.first[prev] + b->s.local, sum, to, part->len);
		plan_recv_plain(b->plan, step, size_of(&b->s, prev) == 1 &&
				mod_sub(prev, 1, b->s.m) == b->root_server);
		sum = to;
	}
	if (b->with_root)
		plan_final(b->plan, step);
	if (root)
		return;
	plan_after(b->plan, step);
	plan_send(b->plan, b->with_root ? args->root :
		  b->s.first[mod_add(b->s.server, 1, b->s.m)] + b->s.local, sum, part->len);
}

int two_level_reduce(const struct coll_args *args, struct coll_plan *plan)
{
	struct plan_shards chunks = plan_split(args->count, args->chunks,
					       npulink_dtype_size(args->dtype));
	bool root = args->rank == args->root;
	uint32_t c, i, k, *left;
	struct rooted b;
	int rc;

	rc = rooted_of(args, plan, &b);
	if (rc)
		return rc;
	left = malloc(b.s.fewest * sizeof(*left));
	if (!left) {
		free(b.s.first);
		return -ENOMEM;
	}
	for (c = 0; c < args->chunks; c++) {
		struct part part;

		for (k = 1; k < b.s.n; k++) {
			i = mod_add(b.s.local, k, b.s.n);
			if (i >= b.s.fewest)
				continue;
			part = part_of(&chunks, c, b.s.fewest, i, b.s.m);
			left[i] = plan_send(plan, b.s.base + i, plan_input(args, part.off),
					    part.len);
		}
		if (b.s.local < b.s.fewest) {
			part = part_of(&chunks, c, b.s.fewest, b.s.local, b.s.m);
			reduce_own(&b, &part, root);
		}
		for (i = 0; root && i < b.s.fewest; i++) {
			if (i == b.s.local)
				continue;
			part = part_of(&chunks, c, b.s.fewest, i, b.s.m);
			if (plan_in_place(args))
				plan_after(plan, left[i]);
			plan_recv(plan, b.s.base + i, at_recv(part.off), part.len);
		}
	}
	free(left);
	free(b.s.first);
	return 0;
}

/* ---- forms: chunks in turn, which is an upper bound */

static double cost_rooted(const struct coll_args *args, const struct coll_cost_params *c,
			  double gamma)
{
	struct plan_shards chunks, part;
	uint32_t k = plan_chunks(args, servers_chunks), most, fewest;
	double near, far, sum, chain, turn;

	if (args->nranks == 1)
		return 0;
	server_sizes(args, &most, &fewest);
	chunks = plan_split(args->count, k, npulink_dtype_size(args->dtype));
	part = plan_split(shard_len(&chunks, 0) / chunks.esize, fewest, chunks.esize);
	near = message_near(c, shard_len(&part, 0));
	sum = shard_len(&part, 0) * gamma;
	far = message_far(c, shard_len(&part, 0)) + sum;
	chain = (args->topo->nservers - 1) * far;
	if (c->ports > 1)
		return chain + 2 * near + most * sum + (k - 1) * larger(far, 2 * near + most * sum);
	turn = (fewest + 2.0 * most) * near + most * sum;
	/* Where the levels differ, so do their ports. */
	if (levels_known(c))
		return chain + turn + (k - 1) * larger((most + 1) * near + most * sum, far);
	return chain + turn + (k - 1) * ((fewest + most) * near + most * sum + far);
}

double two_level_cost_broadcast(const struct coll_args *args, const struct coll_cost_params *c)
{
	return cost_rooted(args, c, 0);
}

double two_level_cost_reduce(const struct coll_args *args, const struct coll_cost_params *c)
{
	return cost_rooted(args, c, c->gamma);
}
