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

/* Rank @root, if that is one, has everything and needs no more. */
static void gather_steps(struct nhr *h, uint32_t root)
{
	uint32_t delta, first, end, from, to, step;

	for (delta = 1U << lg_ceil(h->p) >> 1; delta; delta /= 2) {
		struct plan_at in;

		to = mod_add(h->rank, delta, h->p);
		if (to != root) {
			struct plan_at out = pack(h, h->rank, delta, false, &first, &end);

			after_range(h, first, end);
			plan_send(h->plan, to, out, bytes_of(h, h->rank, delta));
		}
		if (h->rank == root)
			continue;
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
	gather_steps(&h, PLAN_NONE);
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
	gather_steps(&h, PLAN_NONE);
	if (plan_in_place(args)) {
		/* Shards are put where the input was sent from. */
		plan_after_all(plan);
		all = plan_nop(plan);
	}
	put_in_place(&h, all);
	free(h.places);
	return 0;
}

/* ---- scatter: a tree in which the distance from the root doubles */

/* How many distances a, a + step, .. are below p. */
static uint32_t distances(uint32_t a, uint32_t step, uint32_t p)
{
	return a < p ? (p - 1 - a) / step + 1 : 0;
}

/*
 * Distances a, a + step, .. in the order in which they travel: those of the half
 * that stays come first, so that what is given away is one range in each round.
 */
static uint32_t list_distances(uint32_t a, uint32_t step, uint32_t p, uint32_t *list)
{
	uint32_t n;

	if (a >= p)
		return 0;
	if (distances(a, step, p) == 1) {
		list[0] = a;
		return 1;
	}
	n = list_distances(a, 2 * step, p, list);
	return n + list_distances(a + step, 2 * step, p, list + n);
}

/*
 * Rank root - a gets the shards of the ranks root - a, root - a - 2d, root - a - 4d,
 * .. from root - a + d, d being the highest power of two in a. Nothing is sent
 * farther than to distance p - 1. Leaves places of the shards that stay here.
 */
static int scatter_steps(struct nhr *h, uint32_t root)
{
	uint32_t a = mod_sub(root, h->rank, h->p), d = 1, n, i, step = PLAN_NONE;
	uint32_t *list = malloc(h->p * sizeof(*list));
	struct plan_at at;
	uint64_t len = 0;

	if (!list)
		return -ENOMEM;
	if (a) {
		d = 2U << lg_floor(a);
		n = list_distances(a, d, h->p, list);
		for (i = 0; i < n; i++)
			len += shard_len(&h->s, mod_sub(root, list[i], h->p));
		at = h->places[h->rank].at;
		if (n > 1)
			at = plan_scratch(h->plan, len);
		step = plan_recv(h->plan, mod_add(h->rank, d / 2, h->p), at, len);
		for (i = 0; i < n; i++) {
			uint32_t c = mod_sub(root, list[i], h->p);

			h->places[c] = (struct place){ at, step };
			at.off += shard_len(&h->s, c);
		}
	}
	for (; a + d < h->p; d *= 2) {
		struct plan_at from;
		uint32_t first = h->plan->nsteps;

		n = list_distances(a + d, 2 * d, h->p, list);
		for (len = i = 0; i < n; i++)
			len += shard_len(&h->s, mod_sub(root, list[i], h->p));
		from = h->places[mod_sub(root, list[0], h->p)].at;
		if (!a && n > 1) {
			/* Only the root has them in the order of ranks. */
			at = from;
			from = plan_scratch(h->plan, len);
			for (len = i = 0; i < n; i++) {
				uint32_t c = mod_sub(root, list[i], h->p);

				plan_copy(h->plan, h->places[c].at, at_plus(from, len),
					  shard_len(&h->s, c));
				len += shard_len(&h->s, c);
			}
			after_range(h, first, h->plan->nsteps);
		}
		plan_after(h->plan, step);
		plan_send(h->plan, mod_sub(h->rank, d, h->p), from, len);
	}
	free(list);
	return 0;
}

static int nhr_scatter(const struct coll_args *args, struct coll_plan *plan)
{
	bool root = args->rank == args->root;
	struct nhr h;
	int rc = nhr_begin(&h, args, plan);

	if (rc)
		return rc;
	if (root)
		places_of_input(&h, args);
	else
		h.places[h.rank] = (struct place){ at_recv(0), PLAN_NONE };
	rc = scatter_steps(&h, args->root);
	if (root ? !plan_in_place(args) : h.places[h.rank].at.slot != NPULINK_SLOT_RECV) {
		plan_after(plan, h.places[h.rank].step);
		plan_copy(plan, h.places[h.rank].at, at_recv(0), shard_len(&h.s, h.rank));
	}
	free(h.places);
	return rc;
}

/* Scatter, then allgather. */
static int nhr_broadcast(const struct coll_args *args, struct coll_plan *plan)
{
	bool root = args->rank == args->root;
	struct nhr h;
	int rc = nhr_begin(&h, args, plan);

	if (rc)
		return rc;
	if (root)
		places_of_input(&h, args);
	else
		h.places[h.rank] = (struct place){ at_recv(shard_off(&h.s, h.rank)), PLAN_NONE };
	rc = scatter_steps(&h, args->root);
	gather_steps(&h, args->root);
	if (!root)
		put_in_place(&h, PLAN_NONE);
	else if (!plan_in_place(args))
		plan_copy(plan, at_send(0), at_recv(0), args->count * h.s.esize);
	free(h.places);
	return rc;
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

static double cost_broadcast(const struct coll_args *args, const struct coll_cost_params *c)
{
	return 2 * cost_allgather(args, c);
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
	ROW(SCATTER, "L alpha + (p-1)/p n beta", nhr_scatter, cost_allgather,
	    .desc = "HCCL's between servers: a tree in which the distance doubles"),
	ROW(BROADCAST, "2L alpha + 2(p-1)/p n beta", nhr_broadcast, cost_broadcast,
	    .desc = "HCCL's between servers: scatter, then allgather"),
	{ .name = NULL },
};
