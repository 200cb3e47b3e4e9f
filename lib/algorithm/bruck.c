// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * bruck.c - Bruck's algorithms: ceil(lg p) rounds for any number of ranks.
 *
 * Shards are kept in the order in which they lie ahead of the own rank, so that
 * each round moves one range (alltoall: every other range, packed). Rotating them
 * into place is local. See "The classic set" in ALGORITHMS.md; the reducing
 * mirror image is what HCCL calls NB, a relative of its NHR.
 */
#include <errno.h>
#include <stdlib.h>
#include "algorithm/algorithms.h"
#include "plan/planner.h"

struct bruck {
	uint32_t p, rank;
	struct plan_shards s;
	struct plan_at t;	/* shard rank + i is at offset rot_off(i) of it */
	bool shared;		/* rank 0 needs no rotation: t is the buffer itself */
};

/* The shard at rotated position @i. */
static uint32_t ahead(const struct bruck *b, uint32_t i)
{
	return mod_add(b->rank, i, b->p);
}

/* Bytes of the rotated positions before @i; shards adjoin in the large buffer. */
static uint64_t rot_off(const struct bruck *b, uint32_t i)
{
	uint64_t all = shard_off(&b->s, b->p - 1) + shard_len(&b->s, b->p - 1);
	uint64_t base = shard_off(&b->s, b->rank);

	if (i < b->p - b->rank)
		return shard_off(&b->s, b->rank + i) - base;
	if (i == b->p)
		return all;
	return all - base + shard_off(&b->s, b->rank + i - b->p);
}

static uint64_t rot_len(const struct bruck *b, uint32_t from, uint32_t to)
{
	return rot_off(b, to) - rot_off(b, from);
}

static struct bruck bruck_of(const struct coll_args *args)
{
	return (struct bruck){
		.p = args->nranks, .rank = args->rank, .s = plan_shards(args),
		.shared = !args->rank,
	};
}

/*
 * allgather on rotated positions. Position 0 is in @first, and in t after step
 * @copied. @left[]: steps that must have ended before round i overwrites what it
 * receives, or NULL. Receives go in order, so that one dependency stands for all.
 */
static void gather_rounds(const struct bruck *b, struct coll_plan *plan, struct plan_at first,
			  uint32_t copied, uint32_t last, const uint32_t *left)
{
	uint32_t d, i, step;

	for (d = 1, i = 0; d < b->p; d *= 2, i++) {
		uint32_t n = min_u32(d, b->p - d);

		plan_after(plan, last);
		if (d > 1)
			plan_after(plan, copied);
		plan_send(plan, mod_sub(b->rank, d, b->p), d > 1 ? b->t : first,
			  rot_len(b, 0, n));
		plan_after(plan, last);
		if (left)
			plan_after(plan, left[i]);
		step = plan_recv(plan, mod_add(b->rank, d, b->p), at_plus(b->t, rot_off(b, d)),
				 rot_len(b, d, d + n));
		if (step != PLAN_NONE)
			last = step;
	}
}

/* When all is done: rotated positions from @from on into the large buffer. */
static void unrotate(const struct bruck *b, struct coll_plan *plan, uint32_t from)
{
	uint32_t wrap = b->p - b->rank, all;

	if (b->shared)
		return;
	plan_after_all(plan);
	all = plan_nop(plan);
	plan_after(plan, all);
	plan_copy(plan, at_plus(b->t, rot_off(b, from)), at_recv(shard_off(&b->s, ahead(b, from))),
		  rot_len(b, from, from > wrap ? b->p : wrap));
	plan_after(plan, all);
	if (from < wrap)
		plan_copy(plan, at_plus(b->t, rot_off(b, wrap)), at_recv(0),
			  rot_len(b, wrap, b->p));
}

static int bruck_allgather(const struct coll_args *args, struct coll_plan *plan)
{
	struct bruck b = bruck_of(args);
	bool in_place = plan_in_place(args);
	uint64_t own = shard_off(&b.s, b.rank), len = shard_len(&b.s, b.rank);
	struct plan_at src = in_place ? at_recv(own) : at_send(0);
	uint32_t copied = PLAN_NONE;

	b.t = b.shared ? at_recv(0) : plan_scratch(plan, rot_off(&b, b.p));
	if (!b.shared || !in_place)
		copied = plan_copy(plan, src, b.t, len);
	gather_rounds(&b, plan, src, copied, PLAN_NONE, NULL);
	/* In place the own shard is where it belongs. */
	unrotate(&b, plan, in_place && b.rank + 1 < b.p ? 1 : 0);
	return 0;
}

/* ---- with a reduction: the same rounds backwards */

/*
 * The own input in rotated order, none of it plain, as sums and inputs go together; copies[]: the
 * steps that put it there.
 */
static void rotate_input(struct bruck *b, const struct coll_args *args, struct coll_plan *plan,
			 bool may_share, uint32_t *copies)
{
	uint64_t all = rot_off(b, b->p), own = shard_off(&b->s, b->rank);

	copies[0] = PLAN_NONE;
	copies[1] = PLAN_NONE;
	b->shared = b->shared && may_share;
	if (!b->shared) {
		b->t = plan_scratch(plan, all);
	} else {
		b->t = at_recv(0);
		if (plan_in_place(args)) {
			if (plan_scales(plan))
				copies[0] = plan_copy_scaled(plan, b->t, b->t, all);
			return;
		}
	}
	copies[0] = plan_copy_scaled(plan, plan_input(args, own), b->t, all - own);
	copies[1] = plan_copy_scaled(plan, plan_input(args, 0), at_plus(b->t, all - own), own);
}

/* @left[]: by round of the way back, the steps that gave positions away. */
static uint32_t reduce_rounds(const struct bruck *b, struct coll_plan *plan,
			      struct plan_at result, const uint32_t *copies, uint32_t *left)
{
	uint32_t d, i, last = PLAN_NONE, step;

	for (i = lg_ceil(b->p); i-- > 0;) {
		uint32_t n;

		d = 1U << i;
		n = min_u32(d, b->p - d);
		plan_after(plan, last);
		plan_after(plan, copies[0]);
		plan_after(plan, copies[1]);
		left[i] = plan_send(plan, mod_add(b->rank, d, b->p), at_plus(b->t, rot_off(b, d)),
				    rot_len(b, d, d + n));
		plan_after(plan, last);
		plan_after(plan, copies[0]);
		plan_after(plan, copies[1]);
		step = plan_recv_reduce(plan, mod_sub(b->rank, d, b->p), b->t,
					d > 1 ? b->t : result, rot_len(b, 0, n));
		if (d == 1)
			plan_final(plan, step);
		if (step != PLAN_NONE)
			last = step;
	}
	return last;
}

static int nb_reduce_scatter(const struct coll_args *args, struct coll_plan *plan)
{
	struct bruck b = bruck_of(args);
	bool in_place = plan_in_place(args);
	uint32_t copies[2], left[32];

	rotate_input(&b, args, plan, in_place, copies);
	reduce_rounds(&b, plan, at_recv(in_place ? shard_off(&b.s, b.rank) : 0), copies, left);
	return 0;
}

static int nb_allreduce(const struct coll_args *args, struct coll_plan *plan)
{
	struct bruck b = bruck_of(args);
	uint32_t copies[2], left[32], last;

	rotate_input(&b, args, plan, true, copies);
	last = reduce_rounds(&b, plan, b.t, copies, left);
	gather_rounds(&b, plan, b.t, PLAN_NONE, last, left);
	unrotate(&b, plan, 0);
	return 0;
}

/* ---- alltoall */

/* Where the block for rank + i (later: from rank - i) is, after which step. */
struct block {
	struct plan_at at;
	uint32_t step;
};

/* Blocks [i, *end) lie next to each other after the same step: one copy. */
static uint32_t run_end(const struct block *blocks, uint32_t i, uint32_t end, uint64_t m)
{
	uint32_t k = i + 1;

	while (k < end && blocks[k].step == blocks[i].step &&
	       blocks[k].at.slot == blocks[i].at.slot &&
	       blocks[k].at.off == blocks[i].at.off + (k - i) * m)
		k++;
	return k;
}

static int bruck_alltoall(const struct coll_args *args, struct coll_plan *plan)
{
	uint32_t p = args->nranks, r = args->rank, i, k, d, run, first, step = PLAN_NONE;
	uint64_t m = args->count * npulink_dtype_size(args->dtype);
	struct block *blocks = malloc(p * sizeof(*blocks));
	bool in_place = plan_in_place(args);

	if (!blocks)
		return -ENOMEM;
	for (i = 0; i < p; i++)
		blocks[i] = (struct block){ plan_input(args, mod_add(r, i, p) * m), PLAN_NONE };
	for (d = 1; d < p; d *= 2) {
		struct plan_at out = plan_scratch(plan, p / 2 * m + m), in, to = out;

		/* What has bit d of the way still before it goes that way. */
		first = plan->nsteps;
		for (run = d; run < p; run += 2 * d) {
			uint32_t end = min_u32(run + d, p);

			for (i = run; i < end; i = k) {
				k = run_end(blocks, i, end, m);
				plan_after(plan, blocks[i].step);
				plan_copy(plan, blocks[i].at, to, (k - i) * m);
				to.off += (k - i) * m;
			}
		}
		k = plan->nsteps;
		for (i = first; i < k; i++)
			plan_after(plan, i);
		plan_send(plan, mod_add(r, d, p), out, to.off - out.off);
		in = plan_scratch(plan, to.off - out.off);
		step = plan_recv(plan, mod_sub(r, d, p), in, to.off - out.off);
		for (i = d; i < p; i++) {
			if (!(i & d))
				continue;
			blocks[i] = (struct block){ in, step };
			in.off += m;
		}
	}
	if (in_place) {
		plan_after_all(plan);
		step = plan_nop(plan);
	}
	for (i = in_place; i < p; i++) {
		plan_after(plan, in_place ? step : blocks[i].step);
		plan_copy(plan, blocks[i].at, at_recv(mod_sub(r, i, p) * m), m);
	}
	free(blocks);
	return 0;
}

/* ---- closed forms: "The classic set" and "NHR and NB" in ALGORITHMS.md */

static double cost_gather(const struct coll_args *args, const struct coll_cost_params *c)
{
	struct plan_shards s = plan_shards(args);
	uint32_t p = args->nranks;
	double m = shard_max(&s), t = lg_ceil(p) * c->alpha + (p - 1) * m * c->beta;

	for (uint32_t i = 0; 1U << i < p; i++)
		t += crowd_shift(c, i, min_u32(1U << i, p - (1U << i)) * m);
	return t;
}

static double cost_reduce(const struct coll_args *args, const struct coll_cost_params *c)
{
	struct plan_shards s = plan_shards(args);

	return cost_gather(args, c) + (args->nranks - 1) * (double)shard_max(&s) * c->gamma;
}

static double cost_allreduce(const struct coll_args *args, const struct coll_cost_params *c)
{
	return cost_gather(args, c) + cost_reduce(args, c);
}

static double cost_alltoall(const struct coll_args *args, const struct coll_cost_params *c)
{
	double m = (double)args->count * npulink_dtype_size(args->dtype), t = 0;
	uint32_t p = args->nranks, d;

	for (d = 1; d < p; d *= 2) {
		uint32_t rest = p % (2 * d);

		double bytes = (p / (2 * d) * d + (rest > d ? rest - d : 0)) * m;

		t += c->alpha + bytes * c->beta + crowd_shift(c, lg_floor(d), bytes);
	}
	return t;
}

#define FORM_ALLTOALL							\
	"sum_{b<L} (alpha + c_b n beta/p), "				\
	"c_b = floor(p/2^(b+1)) 2^b + max(0, (p mod 2^(b+1)) - 2^b)"

#define ROW(coll, name_, form, plan_, cost_, ...)				\
	{ .collective = NPULINK_COLL_##coll, .name = name_, .exact = true,	\
	  .formula = form, .plan = plan_, .cost = cost_, __VA_ARGS__ }

const struct coll_algorithm coll_bruck_algorithms[] = {
	ROW(ALLGATHER, "bruck", "L alpha + (p-1)/p n beta", bruck_allgather, cost_gather,
	    .desc = "in each round take as much as is there from the ranks ahead"),
	ROW(REDUCE_SCATTER, "nb", "L alpha + (p-1)/p n (beta + gamma)", nb_reduce_scatter,
	    cost_reduce, .commutative = true, .desc = "Bruck's allgather with the arrows reversed"),
	ROW(ALLREDUCE, "nb", "2L alpha + 2(p-1)/p n beta + (p-1)/p n gamma", nb_allreduce,
	    cost_allreduce, .commutative = true,
	    .desc = "Bruck's allgather, there and back; no folding for any p"),
	ROW(ALLTOALL, "bruck", FORM_ALLTOALL, bruck_alltoall, cost_alltoall,
	    .desc = "a block goes along the binary digits of its distance; for small n"),
	{ .name = NULL },
};
