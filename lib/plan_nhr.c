// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * plan_nhr.c - HCCL's NHR: ceil(lg p) messages per rank for any number of ranks,
 * the longest distance first, and most bytes with the shortest.
 *
 * In step s of allgather, delta = 2^(L-1-s), rank q sends the shards q, q - 2 delta,
 * q - 4 delta, .. that it has by then to q + delta; reduce_scatter is the mirror
 * image. Shards that travel together are packed through scratch memory. See
 * "Beyond the seeds" in ALGORITHMS.md.
 */
#include <errno.h>
#include <stdlib.h>
#include "planner.h"

/* Where a shard, or the partial sum of one, lies, and since which step. */
struct place {
	struct plan_at at;
	uint32_t step;
};

struct nhr {
	struct coll_plan *plan;
	uint32_t p, rank;
	struct plan_shards s;
	struct place *places;	/* by shard */
};

static int nhr_begin(struct nhr *h, const struct coll_args *args, struct coll_plan *plan)
{
	*h = (struct nhr){
		.plan = plan, .p = args->nranks, .rank = args->rank, .s = plan_shards(args),
		.places = calloc(args->nranks, sizeof(*h->places)),
	};
	return h->places ? 0 : -ENOMEM;
}

/* How many shards go together at distance @delta. */
static uint32_t together(const struct nhr *h, uint32_t delta)
{
	return (h->p - 1 + delta) / (2 * delta);
}

/* The i-th shard that rank @q sends at distance @delta. */
static uint32_t shard_of(const struct nhr *h, uint32_t q, uint32_t delta, uint32_t i)
{
	return mod_sub(q, (uint64_t)2 * delta * i % h->p, h->p);
}

static uint64_t bytes_of(const struct nhr *h, uint32_t q, uint32_t delta)
{
	uint64_t len = 0;
	uint32_t i;

	for (i = 0; i < together(h, delta); i++)
		len += shard_len(&h->s, shard_of(h, q, delta, i));
	return len;
}

/*
 * Copy what rank @q sends at that distance to one range. The copies are the steps
 * [*first, *end), *one the place if there is nothing to pack.
 */
static struct plan_at pack(struct nhr *h, uint32_t q, uint32_t delta, bool always,
			   uint32_t *first, uint32_t *end)
{
	uint32_t n = together(h, delta), i;
	struct plan_at to, at;

	if (n == 1 && !always) {
		const struct place *one = &h->places[shard_of(h, q, delta, 0)];

		*first = one->step;
		*end = one->step == PLAN_NONE ? PLAN_NONE : one->step + 1;
		return one->at;
	}
	to = plan_scratch(h->plan, bytes_of(h, q, delta));
	at = to;
	*first = h->plan->nsteps;
	for (i = 0; i < n; i++) {
		uint32_t c = shard_of(h, q, delta, i);

		plan_after(h->plan, h->places[c].step);
		plan_copy(h->plan, h->places[c].at, at, shard_len(&h->s, c));
		at.off += shard_len(&h->s, c);
	}
	*end = h->plan->nsteps;
	return to;
}

static void after_range(struct nhr *h, uint32_t first, uint32_t end)
{
	for (; first < end; first++)
		plan_after(h->plan, first);
}

/* The shards that rank @q sends at that distance lie at @at since @step. */
static void settle(struct nhr *h, uint32_t q, uint32_t delta, struct plan_at at, uint32_t step)
{
	uint32_t i;

	for (i = 0; i < together(h, delta); i++) {
		uint32_t c = shard_of(h, q, delta, i);

		h->places[c] = (struct place){ at, step };
		at.off += shard_len(&h->s, c);
	}
}

static void gather_steps(struct nhr *h)
{
	uint32_t delta, first, end, from, step;

	for (delta = 1U << lg_ceil(h->p) >> 1; delta; delta /= 2) {
		struct plan_at out = pack(h, h->rank, delta, false, &first, &end), in;

		after_range(h, first, end);
		plan_send(h->plan, mod_add(h->rank, delta, h->p), out,
			  bytes_of(h, h->rank, delta));
		from = mod_sub(h->rank, delta, h->p);
		in = plan_scratch(h->plan, bytes_of(h, from, delta));
		step = plan_recv(h->plan, from, in, bytes_of(h, from, delta));
		settle(h, from, delta, in, step);
	}
}

/* Everything but what is in its place already. */
static void put_in_place(struct nhr *h, uint32_t after)
{
	uint32_t c;

	for (c = 0; c < h->p; c++) {
		struct plan_at to = at_recv(shard_off(&h->s, c));

		if (h->places[c].at.slot == to.slot && h->places[c].at.off == to.off)
			continue;
		plan_after(h->plan, after == PLAN_NONE ? h->places[c].step : after);
		plan_copy(h->plan, h->places[c].at, to, shard_len(&h->s, c));
	}
}

static int nhr_allgather(const struct coll_args *args, struct coll_plan *plan)
{
	struct nhr h;
	int rc = nhr_begin(&h, args, plan);

	if (rc)
		return rc;
	h.places[h.rank] = (struct place){
		plan_in_place(args) ? at_recv(shard_off(&h.s, h.rank)) : at_send(0), PLAN_NONE,
	};
	gather_steps(&h);
	put_in_place(&h, PLAN_NONE);
	free(h.places);
	return 0;
}

/* Backwards: give partial sums away, and add what comes for the others. */
static void reduce_steps(struct nhr *h, struct plan_at result)
{
	uint32_t delta, first, end, to, step;

	for (delta = 1; delta < h->p; delta *= 2) {
		bool last = 2 * delta >= h->p;
		struct plan_at out, own;
		uint64_t len = bytes_of(h, h->rank, delta);

		to = mod_sub(h->rank, delta, h->p);
		out = pack(h, to, delta, false, &first, &end);
		after_range(h, first, end);
		plan_send(h->plan, to, out, bytes_of(h, to, delta));

		own = pack(h, h->rank, delta, !last, &first, &end);
		after_range(h, first, end);
		step = plan_recv_reduce(h->plan, mod_add(h->rank, delta, h->p), own,
					last ? result : own, len);
		settle(h, h->rank, delta, last ? result : own, step);
		if (last)
			plan_final(h->plan, step);
	}
}

static void places_of_input(struct nhr *h, const struct coll_args *args)
{
	uint32_t c;

	for (c = 0; c < h->p; c++)
		h->places[c] = (struct place){
			plan_input(args, shard_off(&h->s, c)), PLAN_NONE,
		};
}

static int nhr_reduce_scatter(const struct coll_args *args, struct coll_plan *plan)
{
	struct nhr h;
	int rc = nhr_begin(&h, args, plan);

	if (rc)
		return rc;
	places_of_input(&h, args);
	reduce_steps(&h, at_recv(plan_in_place(args) ? shard_off(&h.s, h.rank) : 0));
	free(h.places);
	return 0;
}

static int nhr_allreduce(const struct coll_args *args, struct coll_plan *plan)
{
	uint32_t all = PLAN_NONE;
	struct nhr h;
	int rc = nhr_begin(&h, args, plan);

	if (rc)
		return rc;
	places_of_input(&h, args);
	reduce_steps(&h, at_recv(shard_off(&h.s, h.rank)));
	gather_steps(&h);
	if (plan_in_place(args)) {
		/* Shards are put where the input was sent from. */
		plan_after_all(plan);
		all = plan_nop(plan);
	}
	put_in_place(&h, all);
	free(h.places);
	return 0;
}

/* ---- closed forms */

static double shards_bytes(const struct coll_args *args)
{
	struct plan_shards s = plan_shards(args);

	return (args->nranks - 1.0) * shard_max(&s);
}

static double cost_allgather(const struct coll_args *args, const struct coll_cost_params *c)
{
	return lg_ceil(args->nranks) * c->alpha + shards_bytes(args) * c->beta;
}

static double cost_reduce_scatter(const struct coll_args *args, const struct coll_cost_params *c)
{
	return cost_allgather(args, c) + shards_bytes(args) * c->gamma;
}

static double cost_allreduce(const struct coll_args *args, const struct coll_cost_params *c)
{
	return cost_allgather(args, c) + cost_reduce_scatter(args, c);
}

#define ROW(coll, form, plan_, cost_, ...)					\
	{ .collective = NPULINK_COLL_##coll, .name = "nhr", .exact = true,	\
	  .formula = form, .plan = plan_, .cost = cost_, __VA_ARGS__ }

const struct coll_algorithm coll_nhr_algorithms[] = {
	ROW(ALLREDUCE, "2L alpha + 2(p-1)/p n beta + (p-1)/p n gamma", nhr_allreduce,
	    cost_allreduce, .commutative = true,
	    .desc = "HCCL's between servers: most bytes over the shortest distance"),
	ROW(REDUCE_SCATTER, "L alpha + (p-1)/p n (beta + gamma)", nhr_reduce_scatter,
	    cost_reduce_scatter, .commutative = true,
	    .desc = "HCCL's between servers: the distance doubles"),
	ROW(ALLGATHER, "L alpha + (p-1)/p n beta", nhr_allgather, cost_allgather,
	    .desc = "HCCL's between servers: the distance halves"),
	{ .name = NULL },
};
