// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * twolevel_packed.c - two levels: scatter and gather.
 *
 * One rank of each other server, its leader, has one message with all that its
 * server gets from the root, or gives to it.
 */
#include <stdlib.h>
#include "algorithm/twolevel.h"

struct packed {
	struct servers s;
	struct plan_shards shards;
	struct coll_plan *plan;
	uint32_t root_server, leader;	/* the own server's: the root of its */
};

/* Who speaks for @server: leaders are where the root is, so that roots share the work. */
static uint32_t leader_of(const struct packed *g, uint32_t server)
{
	uint32_t root = g->s.args->root;

	return server == g->root_server ? root :
	       on_rail(&g->s, server, root - g->s.first[g->root_server]);
}

static int packed_of(const struct coll_args *args, struct coll_plan *plan, struct packed *g)
{
	int rc = servers_of(args, &g->s);

	if (rc)
		return rc;
	g->shards = plan_shards(args);
	g->plan = plan;
	g->root_server = args->topo->server_of[args->root];
	g->leader = leader_of(g, g->s.server);
	return 0;
}

/* Bytes of the shards of ranks [a, b). */
static uint64_t bytes_of(const struct packed *g, uint32_t a, uint32_t b)
{
	uint64_t sum = 0;

	for (; a < b; a++)
		sum += shard_len(&g->shards, a);
	return sum;
}

/* Do the shards of @server lie one behind the other? *off is where the first one does. */
static bool in_one_piece(const struct packed *g, uint32_t server, uint64_t *off)
{
	uint64_t end = 0;
	bool any = false;

	for (uint32_t r = g->s.first[server]; r < g->s.first[server + 1]; r++) {
		uint64_t at = shard_off(&g->shards, r), len = shard_len(&g->shards, r);

		if (!len)
			continue;
		if (any && at != end)
			return false;
		if (!any)
			*off = at;
		any = true;
		end = at + len;
	}
	return true;
}

/* The root sends to, or gets from, another server's leader. */
static void root_passes(const struct packed *g, uint32_t server, bool scatter)
{
	uint32_t first = g->s.first[server], end = g->s.first[server + 1], to, step, r;
	uint64_t off = 0, all = bytes_of(g, first, end);
	struct coll_plan *plan = g->plan;
	struct plan_at block, at;

	to = leader_of(g, server);
	if (in_one_piece(g, server, &off)) {
		if (scatter)
			plan_send(plan, to, plan_input(g->s.args, off), all);
		else
			plan_recv(plan, to, at_recv(off), all);
		return;
	}
	block = plan_scratch(plan, all);
	step = scatter ? plan->nsteps : plan_recv(plan, to, block, all);
	for (r = first, at = block; r < end; at.off += shard_len(&g->shards, r++)) {
		if (scatter) {
			plan_copy(plan, plan_input(g->s.args, shard_off(&g->shards, r)), at,
				  shard_len(&g->shards, r));
			continue;
		}
		plan_after(plan, step);
		plan_copy(plan, at, at_recv(shard_off(&g->shards, r)), shard_len(&g->shards, r));
	}
	if (scatter) {
		plan_after_since(plan, step);
		plan_send(plan, to, block, all);
	}
}

static void root_scatters(const struct packed *g)
{
	const struct coll_args *args = g->s.args;
	uint32_t t, r;

	for (t = 1; t < g->s.m; t++)
		root_passes(g, mod_add(g->root_server, t, g->s.m), true);
	for (r = g->s.base; r < g->s.base + g->s.n; r++) {
		uint64_t off = shard_off(&g->shards, r);

		if (r != args->root)
			plan_send(g->plan, r, plan_input(args, off), shard_len(&g->shards, r));
		else if (!plan_in_place(args))
			plan_copy(g->plan, at_send(off), at_recv(0), shard_len(&g->shards, r));
	}
}

static void root_gathers(const struct packed *g)
{
	const struct coll_args *args = g->s.args;
	uint32_t t, r;

	for (r = g->s.base; r < g->s.base + g->s.n; r++) {
		uint64_t off = shard_off(&g->shards, r);

		if (r != args->root)
			plan_recv(g->plan, r, at_recv(off), shard_len(&g->shards, r));
		else if (!plan_in_place(args))
			plan_copy(g->plan, at_send(0), at_recv(off), shard_len(&g->shards, r));
	}
	for (t = 1; t < g->s.m; t++)
		root_passes(g, mod_add(g->root_server, t, g->s.m), false);
}

/* A leader deals out what the root sends it. */
static void leader_scatters(const struct packed *g, uint32_t first, uint32_t end, uint64_t all)
{
	const struct coll_args *args = g->s.args;
	struct plan_at at = plan_scratch(g->plan, all), own = at;
	uint32_t got = plan_recv(g->plan, args->root, at, all), r;

	for (r = first; r < end; at.off += shard_len(&g->shards, r++)) {
		if (r == args->rank) {
			own = at;
			continue;
		}
		plan_after(g->plan, got);
		plan_send(g->plan, r, at, shard_len(&g->shards, r));
	}
	plan_after(g->plan, got);
	plan_copy(g->plan, own, at_recv(0), shard_len(&g->shards, args->rank));
}

static void leader_gathers(const struct packed *g, uint32_t first, uint32_t end, uint64_t all)
{
	const struct coll_args *args = g->s.args;
	struct plan_at block = plan_scratch(g->plan, all), at = block;
	uint32_t begin = g->plan->nsteps, r;

	for (r = first; r < end; at.off += shard_len(&g->shards, r++)) {
		if (r == args->rank)
			plan_copy(g->plan, at_send(0), at, shard_len(&g->shards, r));
		else
			plan_recv(g->plan, r, at, shard_len(&g->shards, r));
	}
	plan_after_since(g->plan, begin);
	plan_send(g->plan, args->root, block, all);
}

static int pass(const struct coll_args *args, struct coll_plan *plan, bool scatter)
{
	uint32_t first, end, with;
	struct packed g;
	uint64_t own, all;
	int rc;

	rc = packed_of(args, plan, &g);
	if (rc)
		return rc;
	first = g.s.base;
	end = first + g.s.n;
	own = shard_len(&g.shards, args->rank);
	all = bytes_of(&g, first, end);
	with = args->rank == g.leader ? args->root : g.leader;
	if (args->rank == args->root)
		(scatter ? root_scatters : root_gathers)(&g);
	else if (args->rank == g.leader && all != own)
		(scatter ? leader_scatters : leader_gathers)(&g, first, end, all);
	else if (scatter)
		plan_recv(plan, with, at_recv(0), own);
	else
		plan_send(plan, with, at_send(0), own);
	free(g.s.first);
	return 0;
}

int two_level_scatter(const struct coll_args *args, struct coll_plan *plan)
{
	return pass(args, plan, true);
}

int two_level_gather(const struct coll_args *args, struct coll_plan *plan)
{
	return pass(args, plan, false);
}

/* All that goes through the root's port, and what the slowest leader has to do beside it. */
double two_level_cost_packed(const struct coll_args *args, const struct coll_cost_params *c)
{
	double root = 0, slowest = 0;
	struct packed g;

	if (args->nranks == 1 || servers_of(args, &g.s))
		return 0;
	g.shards = plan_shards(args);
	for (uint32_t t = 0; t < g.s.m; t++) {
		double inside = 0, all = 0;

		for (uint32_t r = g.s.first[t]; r < g.s.first[t + 1]; r++) {
			uint64_t len = shard_len(&g.shards, r);

			inside += len ? c->alpha + len * c->beta : 0;
			all += len;
		}
		if (args->topo->server_of[args->root] == t) {
			root += inside;
			continue;
		}
		root += all ? message_far(c, all) : 0;
		if (inside > slowest)
			slowest = inside;
	}
	free(g.s.first);
	return root + slowest;
}
