// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * nhr.c - HCCL's NHR: ceil(lg p) messages per rank for any number of ranks,
 * the longest distance first, and most bytes with the shortest.
 *
 * In step s of allgather, delta = 2^(L-1-s), rank q sends the shards q, q - 2 delta,
 * q - 4 delta, .. that it has by then to q + delta; reduce_scatter is the mirror
 * image. See "NHR and NB" in ALGORITHMS.md.
 *
 * Shards lie in memory so that those which travel together are one range, by
 * their distance from the own rank. A rank begins with its own shard; what comes
 * is put to the left or to the right of what is there, and of what is there all
 * goes on, or all but the farthest shard, which is kept at the right end: if it
 * does not go on, it stays the farthest and what comes goes to the left; else
 * what comes ends with the new farthest one and goes to the right.
 *
 * For 2^L ranks all of it always goes on, and one order does for all ranks, that of
 * reversed bits. So where the vector may be cut at will, as in allreduce and
 * broadcast, nothing has to be moved inside a rank.
 */
#include <errno.h>
#include <stdlib.h>
#include "algorithm/algorithms.h"
#include "plan/planner.h"

#define LEVELS	32

/*
 * Before the step at distance @delta a rank has places [lo, hi), sends the first @n
 * of them and gets as many, for the places from @block on.
 */
struct level {
	uint32_t delta, n, lo, hi, block;
	uint32_t sent;		/* step after which the block may be overwritten, if any */
};

struct nhr {
	struct coll_plan *plan;
	uint32_t p, rank, nlevels;
	bool tree;		/* shards are in the order of scatter's tree from @root */
	uint32_t root;
	struct plan_shards s;
	struct level levels[LEVELS];	/* the longest distance first */
	uint32_t *dist;		/* by place: distance of the shard's rank; NULL: bits reversed */
	uint64_t *off;		/* by place: bytes before it; with @dist */
};

/* ---- the tree of scatter, in which the distance from the root doubles */

/* How many distances a, a + step, .. are below p. */
static uint32_t distances(uint32_t a, uint32_t step, uint32_t p)
{
	return a < p ? (p - 1 - a) / step + 1 : 0;
}

/*
 * Distances from the root are listed so that what is given away is one range in each
 * round: those that stay come first, in each half again. Where in the list of all of
 * them do a, a + step, .. begin, if a is below @step, a power of 2?
 */
static uint32_t tree_place(uint32_t a, uint32_t step, uint32_t p)
{
	uint32_t place = 0, first = 0, s;

	for (s = 1; s < step; s *= 2) {
		if ((a - first) % (2 * s) == 0)
			continue;
		place += distances(first, 2 * s, p);
		first += s;
	}
	return place;
}

/* The shard of rank @r. In broadcast the vector is cut into shards in the list's order. */
static uint32_t shard_of(const struct nhr *h, uint32_t r)
{
	return h->tree ? tree_place(mod_sub(h->root, r, h->p), 1U << h->nlevels, h->p) : r;
}

/* ---- where shards lie */

static void nhr_end(struct nhr *h)
{
	free(h->dist);
	free(h->off);
}

/* How many shards go together at distance @delta. */
static uint32_t together(const struct nhr *h, uint32_t delta)
{
	return (h->p - 1 + delta) / (2 * delta);
}

static void lay_out(struct nhr *h)
{
	uint32_t lo = 0, hi, l, i;

	for (l = 0, i = 1; l < h->nlevels; l++) {
		struct level *v = &h->levels[l];

		if (v->n < i)
			lo += v->n;
		i += v->n;
	}
	hi = lo + 1;
	h->dist[lo] = 0;
	for (l = 0; l < h->nlevels; l++) {
		struct level *v = &h->levels[l];

		v->lo = lo;
		v->hi = hi;
		v->block = v->n < hi - lo ? lo - v->n : hi;
		for (i = 0; i < v->n; i++)
			h->dist[v->block + i] = h->dist[lo + i] + v->delta;
		if (v->n < hi - lo)
			lo -= v->n;
		else
			hi += v->n;
	}
	for (i = 0; i < h->p; i++)
		h->off[i + 1] = h->off[i] + shard_len(&h->s, shard_of(h, mod_sub(h->rank,
								h->dist[i], h->p)));
}

/* The lowest @bits bits of @i, the other way round. */
static uint32_t reversed(uint32_t i, uint32_t bits)
{
	uint32_t r = 0;

	for (; bits; bits--, i >>= 1)
		r = r << 1 | (i & 1);
	return r;
}

/* For 2^L ranks: shard @i lies at place reversed(i), and those of a class side by side. */
static void lay_out_reversed(struct nhr *h, uint32_t i)
{
	uint32_t l;

	for (l = 0; l < h->nlevels; l++) {
		struct level *v = &h->levels[l];
		uint32_t class = 2 * v->delta;

		v->lo = reversed(i % class, h->nlevels);
		v->hi = v->lo + v->n;
		v->block = reversed((i + v->delta) % class, h->nlevels);
	}
}

/* @number: NULL, or the own shard's, where shards may lie in any order. 0 or -ENOMEM. */
static int nhr_begin(struct nhr *h, const struct coll_args *args, struct coll_plan *plan,
		     const uint32_t *number)
{
	uint32_t delta;

	*h = (struct nhr){
		.plan = plan, .p = args->nranks, .rank = args->rank, .s = plan_shards(args),
		.tree = args->collective == NPULINK_COLL_BROADCAST, .root = args->root,
	};
	for (delta = 1U << lg_ceil(h->p) >> 1; delta; delta /= 2)
		h->levels[h->nlevels++] = (struct level){
			.delta = delta, .n = together(h, delta), .sent = PLAN_NONE,
		};
	if (number && !(h->p & (h->p - 1))) {
		lay_out_reversed(h, *number);
		return 0;
	}
	h->dist = calloc(h->p, sizeof(*h->dist));
	h->off = calloc(h->p + 1, sizeof(*h->off));
	if (!h->dist || !h->off) {
		nhr_end(h);
		return -ENOMEM;
	}
	lay_out(h);
	return 0;
}

/* Bytes before a place. */
static uint64_t off_of(const struct nhr *h, uint32_t place)
{
	return h->dist ? h->off[place] : shard_off(&h->s, place);
}

static uint64_t bytes_of(const struct nhr *h, uint32_t place, uint32_t n)
{
	return off_of(h, place + n) - off_of(h, place);
}

/* Where the own shard is, before the first step of allgather. */
static uint32_t own_place(const struct nhr *h)
{
	return h->levels[0].lo;
}

/*
 * Allgather among what lies at @base; the own shard is there after step @own. Rank
 * @root, if that is one, has everything and needs no more. Returns a step after which
 * all is there.
 */
static uint32_t gather_steps(struct nhr *h, struct plan_at base, uint32_t own, uint32_t root)
{
	uint32_t there = own, l;

	for (l = 0; l < h->nlevels; l++) {
		const struct level *v = &h->levels[l];
		uint32_t to = mod_add(h->rank, v->delta, h->p), got;
		uint32_t from = mod_sub(h->rank, v->delta, h->p);

		if (to != root) {
			plan_after(h->plan, there);
			plan_send(h->plan, to, at_plus(base, off_of(h, v->lo)),
				  bytes_of(h, v->lo, v->n));
		}
		if (h->rank == root)
			continue;
		plan_after(h->plan, v->sent);
		got = plan_recv(h->plan, from, at_plus(base, off_of(h, v->block)),
				bytes_of(h, v->block, v->n));
		if (there != PLAN_NONE && got != PLAN_NONE) {
			plan_after(h->plan, there);
			plan_after(h->plan, got);
			got = plan_nop(h->plan);
		}
		there = got == PLAN_NONE ? there : got;
	}
	return there;
}

/*
 * Backwards: give partial sums away, and add what comes for the others. The input
 * lies at @in, plain or all of it scaled, after step @there, what is summed at @base, the
 * result goes to *result, or to its place. Returns the last step.
 */
static uint32_t reduce_steps(struct nhr *h, struct plan_at in, struct plan_at base,
			     const struct plan_at *result, uint32_t there)
{
	bool moves = in.slot != base.slot || in.off != base.off;
	uint32_t l, got = there;

	for (l = h->nlevels; l-- > 0;) {
		struct level *v = &h->levels[l];
		uint64_t at = off_of(h, v->lo);
		struct plan_at to = at_plus(base, at);

		plan_after(h->plan, there);
		v->sent = plan_send(h->plan, mod_sub(h->rank, v->delta, h->p),
				    at_plus(in, off_of(h, v->block)),
				    bytes_of(h, v->block, v->n));
		if (moves)
			v->sent = PLAN_NONE;
		if (!l && result)
			to = *result;
		plan_after(h->plan, there);
		got = plan_recv_reduce(h->plan, mod_add(h->rank, v->delta, h->p),
				       at_plus(in, at), to, bytes_of(h, v->lo, v->n));
		plan_recv_plain(h->plan, got, in.plain);
		there = got == PLAN_NONE ? there : got;
		/* All that is kept was added to, if it is to move: bits are reversed. */
		in = base;
		moves = false;
	}
	plan_final(h->plan, got);
	return there;
}

/*
 * From the order of ranks at @ranks, after step @after, to that of places at @places, or back. An
 * input is not plain then.
 */
static void move_shards(struct nhr *h, struct plan_at ranks, struct plan_at places, bool back,
			uint32_t after, bool but_own)
{
	uint32_t i;

	for (i = 0; i < h->p; i++) {
		uint32_t c = shard_of(h, mod_sub(h->rank, h->dist[i], h->p));
		struct plan_at a = at_plus(ranks, shard_off(&h->s, c));
		struct plan_at b = at_plus(places, h->off[i]);

		if (but_own && !h->dist[i])
			continue;
		plan_after(h->plan, after);
		if (a.plain)
			plan_copy_scaled(h->plan, a, b, shard_len(&h->s, c));
		else
			plan_copy(h->plan, back ? b : a, back ? a : b, shard_len(&h->s, c));
	}
}

static uint32_t join_all(struct coll_plan *plan)
{
	plan_after_all(plan);
	return plan_nop(plan);
}

static int nhr_allgather(const struct coll_args *args, struct coll_plan *plan)
{
	struct plan_at base, own, place;
	uint64_t m;
	struct nhr h;
	int rc = nhr_begin(&h, args, plan, NULL);

	if (rc)
		return rc;
	m = shard_len(&h.s, h.rank);
	place = at_recv(shard_off(&h.s, h.rank));
	own = plan_in_place(args) ? place : at_send(0);
	base = plan_scratch(plan, h.off[h.p]);
	gather_steps(&h, base, plan_copy(plan, own, at_plus(base, off_of(&h, own_place(&h))), m),
		     PLAN_NONE);
	move_shards(&h, at_recv(0), base, true, join_all(plan), true);
	if (!plan_in_place(args))
		plan_copy(plan, own, place, m);
	nhr_end(&h);
	return 0;
}

static int nhr_reduce_scatter(const struct coll_args *args, struct coll_plan *plan)
{
	struct plan_at base, result;
	struct nhr h;
	int rc = nhr_begin(&h, args, plan, NULL);

	if (rc)
		return rc;
	result = at_recv(plan_in_place(args) ? shard_off(&h.s, h.rank) : 0);
	base = plan_scratch(plan, h.off[h.p]);
	move_shards(&h, plan_input(args, 0), base, false, PLAN_NONE, false);
	reduce_steps(&h, base, base, &result, join_all(plan));
	nhr_end(&h);
	return 0;
}

static int nhr_allreduce(const struct coll_args *args, struct coll_plan *plan)
{
	struct plan_at base = at_recv(0);
	struct nhr h;
	int rc = nhr_begin(&h, args, plan, &args->rank);

	if (rc)
		return rc;
	if (!h.dist) {
		uint32_t sum = reduce_steps(&h, plan_input(args, 0), base, NULL, PLAN_NONE);

		gather_steps(&h, base, sum, PLAN_NONE);
		return 0;
	}
	base = plan_scratch(plan, h.off[h.p]);
	move_shards(&h, plan_input(args, 0), base, false, PLAN_NONE, false);
	gather_steps(&h, base, reduce_steps(&h, base, base, NULL, join_all(plan)), PLAN_NONE);
	move_shards(&h, at_recv(0), base, true, join_all(plan), false);
	nhr_end(&h);
	return 0;
}

/* ---- scatter */

/* That part of the list; returns its length. */
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

/* Rank root - a gets the shards for distances a, a + d, .., which it finds in the list. */
static uint32_t tree_step(uint32_t a)
{
	return a ? 2U << lg_floor(a) : 1;
}

static int nhr_scatter(const struct coll_args *args, struct coll_plan *plan)
{
	uint32_t p = args->nranks, a = mod_sub(args->root, args->rank, p), d = tree_step(a);
	uint64_t m = args->count * npulink_dtype_size(args->dtype);
	uint32_t lo = tree_place(a, d, p), got = PLAN_NONE, n, i;
	struct plan_at at = at_recv(0);
	uint32_t *list = malloc(p * sizeof(*list));

	if (!list)
		return -ENOMEM;
	if (a) {
		n = distances(a, d, p);
		if (n > 1)
			at = plan_scratch(plan, n * m);
		got = plan_recv(plan, mod_add(args->rank, d / 2, p), at, n * m);
	}
	for (; a + d < p; d *= 2) {
		struct plan_at from = at_plus(at, (tree_place(a + d, 2 * d, p) - lo) * m);

		n = list_distances(a + d, 2 * d, p, list);
		if (!a) {
			/* Only the root has them in the order of ranks. */
			from = plan_input(args, mod_sub(args->root, list[0], p) * m);
			if (n > 1)
				from = plan_scratch(plan, n * m);
			for (i = 0; i < n && n > 1; i++)
				plan_copy(plan, plan_input(args, m * mod_sub(args->root, list[i],
									     p)),
					  at_plus(from, i * m), m);
			got = n > 1 ? join_all(plan) : PLAN_NONE;
		}
		plan_after(plan, got);
		plan_send(plan, mod_sub(args->rank, d, p), from, n * m);
	}
	if (!a) {
		if (!plan_in_place(args))
			plan_copy(plan, at_send(args->rank * m), at_recv(0), m);
	} else if (at.slot != NPULINK_SLOT_RECV) {
		plan_after(plan, got);
		plan_copy(plan, at, at_recv(0), m);
	}
	free(list);
	return 0;
}

/* Broadcast's scatter: the vector is cut into shards in the order of the list. */
static uint32_t scatter_vector(struct nhr *h, struct plan_at base, uint32_t a)
{
	uint32_t p = h->p, d = tree_step(a), got = PLAN_NONE, lo, n;

	if (a) {
		lo = tree_place(a, d, p);
		n = distances(a, d, p);
		got = plan_recv(h->plan, mod_add(h->rank, d / 2, p),
				at_plus(base, shard_off(&h->s, lo)),
				shard_off(&h->s, lo + n) - shard_off(&h->s, lo));
	}
	for (; a + d < p; d *= 2) {
		lo = tree_place(a + d, 2 * d, p);
		n = distances(a + d, 2 * d, p);
		plan_after(h->plan, got);
		plan_send(h->plan, mod_sub(h->rank, d, p), at_plus(base, shard_off(&h->s, lo)),
			  shard_off(&h->s, lo + n) - shard_off(&h->s, lo));
	}
	return got;
}

/* Scatter, then allgather. */
static int nhr_broadcast(const struct coll_args *args, struct coll_plan *plan)
{
	bool root = args->rank == args->root;
	uint32_t a = mod_sub(args->root, args->rank, args->nranks), got;
	struct plan_at vector = root ? plan_input(args, 0) : at_recv(0), base;
	struct nhr h;
	int rc = nhr_begin(&h, args, plan, &a);

	if (rc)
		return rc;
	got = scatter_vector(&h, vector, a);
	if (!h.dist) {
		/* What comes now lies where shards were sent from. */
		got = root ? got : join_all(plan);
		for (uint32_t l = 0; l < h.nlevels; l++)
			h.levels[l].sent = got;
		gather_steps(&h, vector, got, args->root);
	} else {
		base = plan_scratch(plan, h.off[h.p]);
		if (root) {
			move_shards(&h, vector, base, false, PLAN_NONE, false);
			got = join_all(plan);
		} else {
			uint32_t c = shard_of(&h, h.rank);

			plan_after(plan, got);
			got = plan_copy(plan, at_plus(vector, shard_off(&h.s, c)),
					at_plus(base, off_of(&h, own_place(&h))),
					shard_len(&h.s, c));
		}
		gather_steps(&h, base, got, args->root);
		if (!root)
			move_shards(&h, vector, base, true, join_all(plan), true);
	}
	if (root && !plan_in_place(args))
		plan_copy(plan, at_send(0), at_recv(0), args->count * h.s.esize);
	nhr_end(&h);
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
	double all = shards_bytes(args), t = lg_ceil(args->nranks) * c->alpha + all * c->beta;
	uint32_t p = args->nranks;

	for (uint32_t i = 0; 1U << i < p; i++)
		t += crowd_shift(c, i, all / (p - 1) * ((p - 1 + (1U << i)) >> (i + 1)));
	return t;
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
