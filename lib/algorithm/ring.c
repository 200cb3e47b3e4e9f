// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * ring.c - the Ring family: every rank talks to its two neighbours only.
 *
 * Bytes go from rank r to r + 1. Nothing is staged: what is passed on is read by
 * the next rank where this one has put it. See "Ring" in ALGORITHMS.md, whose
 * forms are exact for any number of ranks.
 */
#include <errno.h>
#include <stdlib.h>
#include "algorithm/algorithms.h"
#include "plan/planner.h"

struct ring {
	uint32_t p, rank, next, prev;
	struct plan_shards s;
};

static struct ring ring_of(const struct coll_args *args)
{
	uint32_t p = args->nranks, r = args->rank;

	return (struct ring){
		.p = p, .rank = r, .next = mod_add(r, 1, p), .prev = mod_sub(r, 1, p),
		.s = plan_shards(args),
	};
}

/*
 * Two buffers used in turn by steps that pass something on. Each holds a whole
 * message: with smaller windows, p messages on their way around a ring of p
 * ranks would all wait for room in front of them.
 */
struct relay {
	struct plan_at at[2];
	uint32_t busy[2];
	uint32_t turn;
};

static struct relay relay_of(struct coll_plan *plan, uint64_t len)
{
	return (struct relay){
		.at = { plan_scratch(plan, len), plan_scratch(plan, len) },
		.busy = { PLAN_NONE, PLAN_NONE },
	};
}

static struct plan_at relay_get(struct relay *relay, struct coll_plan *plan)
{
	plan_after(plan, relay->busy[relay->turn]);
	return relay->at[relay->turn];
}

static void relay_put(struct relay *relay, struct coll_plan *plan, uint32_t step)
{
	plan_transient(plan, step, UINT64_MAX);
	if (step == PLAN_NONE)
		return;
	relay->busy[relay->turn] = step;
	relay->turn ^= 1;
}

/*
 * The five phases, see ALGORITHMS.md. Shard c starts at rank c, is complete at c - 1,
 * and goes round once more. With one buffer, a shard must have left before its
 * sum comes back; with two the same holds for the partial sums.
 */
static int ring_allreduce(const struct coll_args *args, struct coll_plan *plan)
{
	struct ring g = ring_of(args);
	uint32_t *left = malloc(g.p * sizeof(*left));
	uint32_t i, c, step;
	uint64_t off;

	if (!left)
		return -ENOMEM;
	c = g.rank;
	step = plan_send(plan, g.next, plan_input(args, shard_off(&g.s, c)),
			 shard_len(&g.s, c));
	left[c] = plan_in_place(args) ? step : PLAN_NONE;
	for (i = 1; i + 1 < g.p; i++) {
		c = mod_sub(g.rank, i, g.p);
		off = shard_off(&g.s, c);
		left[c] = plan_recv_reduce_send(plan, g.prev, g.next, plan_input(args, off),
						at_recv(off), shard_len(&g.s, c));
		plan_recv_plain(plan, left[c], i == 1);
	}
	c = g.next;
	off = shard_off(&g.s, c);
	step = plan_recv_reduce_send(plan, g.prev, g.next, plan_input(args, off),
				     at_recv(off), shard_len(&g.s, c));
	plan_recv_plain(plan, step, g.p == 2);
	plan_final(plan, step);
	for (i = 0; i + 2 < g.p; i++) {
		c = mod_sub(g.rank, i, g.p);
		plan_after(plan, left[c]);
		plan_recv_send(plan, g.prev, g.next, at_recv(shard_off(&g.s, c)),
			       shard_len(&g.s, c));
	}
	c = mod_add(g.rank, 2 % g.p, g.p);
	plan_after(plan, left[c]);
	plan_recv(plan, g.prev, at_recv(shard_off(&g.s, c)), shard_len(&g.s, c));
	free(left);
	return 0;
}

/*
 * Shard c starts at rank c + 1 and ends at c. Partial sums pass through scratch,
 * so the send buffer is only read, in place as well.
 */
static int ring_reduce_scatter(const struct coll_args *args, struct coll_plan *plan)
{
	struct ring g = ring_of(args);
	uint64_t own = shard_off(&g.s, g.rank);
	struct relay relay = { 0 };
	uint32_t i, c, step;

	if (g.p > 2)
		relay = relay_of(plan, shard_max(&g.s));
	plan_send(plan, g.next, plan_input(args, shard_off(&g.s, g.prev)),
		  shard_len(&g.s, g.prev));
	for (i = 1; i + 1 < g.p; i++) {
		c = mod_sub(g.prev, i, g.p);
		step = plan_recv_reduce_send(plan, g.prev, g.next,
					     plan_input(args, shard_off(&g.s, c)),
					     relay_get(&relay, plan), shard_len(&g.s, c));
		plan_recv_plain(plan, step, i == 1);
		relay_put(&relay, plan, step);
	}
	step = plan_recv_reduce(plan, g.prev, plan_input(args, own),
				at_recv(plan_in_place(args) ? own : 0),
				shard_len(&g.s, g.rank));
	plan_recv_plain(plan, step, g.p == 2);
	plan_final(plan, step);
	return 0;
}

static int ring_allgather(const struct coll_args *args, struct coll_plan *plan)
{
	struct ring g = ring_of(args);
	uint64_t own = shard_off(&g.s, g.rank), len = shard_len(&g.s, g.rank);
	uint32_t i, c;

	if (plan_in_place(args)) {
		plan_send(plan, g.next, at_recv(own), len);
	} else {
		plan_send(plan, g.next, at_send(0), len);
		plan_copy(plan, at_send(0), at_recv(own), len);
	}
	for (i = 1; i + 1 < g.p; i++) {
		c = mod_sub(g.rank, i, g.p);
		plan_recv_send(plan, g.prev, g.next, at_recv(shard_off(&g.s, c)),
			       shard_len(&g.s, c));
	}
	plan_recv(plan, g.prev, at_recv(shard_off(&g.s, g.next)), shard_len(&g.s, g.next));
	return 0;
}

/* Everything goes once around, slice by slice. */
static int ring_broadcast(const struct coll_args *args, struct coll_plan *plan)
{
	struct ring g = ring_of(args);
	uint64_t n = args->count * g.s.esize;

	if (g.rank == args->root) {
		plan_send(plan, g.next, plan_input(args, 0), n);
		if (!plan_in_place(args))
			plan_copy(plan, at_send(0), at_recv(0), n);
	} else if (g.next == args->root) {
		plan_recv(plan, g.prev, at_recv(0), n);
	} else {
		plan_recv_send(plan, g.prev, g.next, at_recv(0), n);
	}
	return 0;
}

/* A line ends at the root, so a window is enough: the root always takes. */
static int ring_reduce(const struct coll_args *args, struct coll_plan *plan)
{
	struct ring g = ring_of(args);
	uint64_t n = args->count * g.s.esize;
	uint32_t step;

	if (g.rank == args->root) {
		step = plan_recv_reduce(plan, g.prev, plan_input(args, 0), at_recv(0), n);
		plan_recv_plain(plan, step, g.p == 2);
		plan_final(plan, step);
	} else if (g.prev == args->root) {
		plan_send(plan, g.next, plan_input(args, 0), n);
	} else {
		step = plan_recv_reduce_send(plan, g.prev, g.next, plan_input(args, 0),
					     plan_scratch(plan, min_u64(n, PLAN_WINDOW)), n);
		plan_recv_plain(plan, step, mod_sub(g.prev, 1, g.p) == args->root);
		plan_transient(plan, step, PLAN_WINDOW);
	}
	return 0;
}

/* The root sends what has the longest way first. */
static int ring_scatter(const struct coll_args *args, struct coll_plan *plan)
{
	struct ring g = ring_of(args);
	uint32_t d = mod_sub(g.rank, args->root, g.p), j, c, step;
	uint64_t own = shard_off(&g.s, g.rank), len = shard_len(&g.s, g.rank);
	struct relay relay = { 0 };

	if (!d) {
		for (j = g.p - 1; j; j--) {
			c = mod_add(args->root, j, g.p);
			plan_send(plan, g.next, plan_input(args, shard_off(&g.s, c)),
				  shard_len(&g.s, c));
		}
		if (!plan_in_place(args))
			plan_copy(plan, at_send(own), at_recv(0), len);
		return 0;
	}
	if (d < g.p - 1)
		relay = relay_of(plan, shard_max(&g.s));
	for (j = g.p - 1; j > d; j--) {
		c = mod_add(args->root, j, g.p);
		step = plan_recv_send(plan, g.prev, g.next, relay_get(&relay, plan),
				      shard_len(&g.s, c));
		relay_put(&relay, plan, step);
	}
	plan_recv(plan, g.prev, at_recv(0), len);
	return 0;
}

/* The mirror image: the own shard first, then what comes from behind. */
static int ring_gather(const struct coll_args *args, struct coll_plan *plan)
{
	struct ring g = ring_of(args);
	uint32_t d = mod_sub(args->root, g.rank, g.p), j, c, step;
	uint64_t own = shard_off(&g.s, g.rank), len = shard_len(&g.s, g.rank);
	struct relay relay = { 0 };

	if (!d) {
		for (j = 1; j < g.p; j++) {
			c = mod_sub(args->root, j, g.p);
			plan_recv(plan, g.prev, at_recv(shard_off(&g.s, c)),
				  shard_len(&g.s, c));
		}
		if (!plan_in_place(args))
			plan_copy(plan, at_send(0), at_recv(own), len);
		return 0;
	}
	plan_send(plan, g.next, at_send(0), len);
	if (d < g.p - 1)
		relay = relay_of(plan, shard_max(&g.s));
	for (j = d + 1; j < g.p; j++) {
		c = mod_sub(args->root, j, g.p);
		step = plan_recv_send(plan, g.prev, g.next, relay_get(&relay, plan),
				      shard_len(&g.s, c));
		relay_put(&relay, plan, step);
	}
	return 0;
}

/* ---- closed forms: "Ring" in ALGORITHMS.md */

static double cost_shards(const struct coll_args *args, const struct coll_cost_params *c)
{
	struct plan_shards s = plan_shards(args);

	return (args->nranks - 1) * (c->alpha + shard_max(&s) * c->beta);
}

static double cost_reduce_shards(const struct coll_args *args, const struct coll_cost_params *c)
{
	struct plan_shards s = plan_shards(args);

	return (args->nranks - 1) * (c->alpha + shard_max(&s) * (c->beta + c->gamma));
}

static double cost_allreduce(const struct coll_args *args, const struct coll_cost_params *c)
{
	return cost_shards(args, c) + cost_reduce_shards(args, c);
}

static double cost_broadcast(const struct coll_args *args, const struct coll_cost_params *c)
{
	double n = (double)args->count * npulink_dtype_size(args->dtype);

	return (args->nranks - 1) * (c->alpha + n * c->beta);
}

static double cost_reduce(const struct coll_args *args, const struct coll_cost_params *c)
{
	double n = (double)args->count * npulink_dtype_size(args->dtype);

	return (args->nranks - 1) * (c->alpha + n * (c->beta + c->gamma));
}

#define FORM_SHARDS	"(p-1) alpha + (p-1)/p n beta"
#define FORM_REDUCE	"(p-1) alpha + (p-1)/p n (beta + gamma)"

#define ROW(coll, exact_, form, plan_, cost_, ...)				\
	{ .collective = NPULINK_COLL_##coll, .name = "ring", .exact = exact_,	\
	  .formula = form, .plan = plan_, .cost = cost_, __VA_ARGS__ }

const struct coll_algorithm coll_ring_algorithms[] = {
	ROW(ALLREDUCE, true,
	    "2(p-1) alpha + 2(p-1)/p n beta + (p-1)/p n gamma",
	    ring_allreduce, cost_allreduce, .commutative = true, .rotation = true,
	    .desc = "shards go around to be summed, and around again complete"),
	ROW(REDUCE, true, "(p-1)(alpha + n beta + n gamma)", ring_reduce, cost_reduce,
	    .commutative = true, .desc = "the sum grows from rank to rank up to the root"),
	ROW(BROADCAST, true, "(p-1)(alpha + n beta)", ring_broadcast, cost_broadcast,
	    .desc = "everything is passed on from rank to rank"),
	ROW(SCATTER, true, FORM_SHARDS, ring_scatter, cost_shards,
	    .desc = "shards are passed on, those with the longest way first"),
	ROW(SCATTERV, false, FORM_SHARDS, ring_scatter, cost_shards,
	    .desc = "shards are passed on, those with the longest way first"),
	ROW(GATHER, true, FORM_SHARDS, ring_gather, cost_shards,
	    .desc = "each rank sends its shard and passes on those behind it"),
	ROW(GATHERV, false, FORM_SHARDS, ring_gather, cost_shards,
	    .desc = "each rank sends its shard and passes on those behind it"),
	ROW(ALLGATHER, true, FORM_SHARDS, ring_allgather, cost_shards, .rotation = true,
	    .desc = "each shard goes once around"),
	ROW(ALLGATHERV, false, FORM_SHARDS, ring_allgather, cost_shards,
	    .desc = "each shard goes once around"),
	ROW(REDUCE_SCATTER, true, FORM_REDUCE, ring_reduce_scatter, cost_reduce_shards,
	    .commutative = true, .rotation = true,
	    .desc = "each shard goes once around and is summed on its way"),
	ROW(REDUCE_SCATTERV, false, FORM_REDUCE, ring_reduce_scatter, cost_reduce_shards,
	    .commutative = true, .desc = "each shard goes once around and is summed on its way"),
	{ .name = NULL },
};
