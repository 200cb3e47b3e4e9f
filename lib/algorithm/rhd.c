// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * rhd.c - recursive halving and doubling, for any number of ranks.
 *
 * p' = 2^k ranks form a block; each of the other r folds into a neighbour, which
 * acts for both. Position j of the block owns one rank or two adjacent ones,
 * spread evenly, or as HCCL has it with the pairs first. See "RHD" in ALGORITHMS.md.
 */
#include <errno.h>
#include <stdlib.h>
#include "algorithm/algorithms.h"
#include "plan/planner.h"

struct rhd {
	uint32_t p, k, block, r;	/* p' is block */
	uint32_t rank, pos;
	uint32_t second;	/* 1: the second of each pair is in the block, 0: the first */
	uint32_t other;		/* the other one of the own pair, or NPULINK_NO_PEER */
	bool folded;		/* not in the block */
	bool hccl;
	uint64_t es;
};

/* The first rank that position @j owns; also for the position behind the last. */
static uint32_t first_of(const struct rhd *h, uint32_t j)
{
	if (h->hccl)
		return j < h->r ? 2 * j : j + h->r;
	return ((uint64_t)j * h->p + h->block - 1) >> h->k;
}

static bool is_pair(const struct rhd *h, uint32_t j)
{
	return first_of(h, j + 1) - first_of(h, j) == 2;
}

/* The rank that acts for position @j. */
static uint32_t rep(const struct rhd *h, uint32_t j)
{
	return first_of(h, j) + (is_pair(h, j) ? h->second : 0);
}

static uint32_t pos_of(const struct rhd *h, uint32_t rank)
{
	if (h->hccl)
		return rank < 2 * h->r ? rank / 2 : rank - h->r;
	return ((uint64_t)rank << h->k) / h->p;	/* the last j with j p / p' <= rank */
}

/* With a root, it is its pair's one in the block, and so in all other pairs. */
static struct rhd rhd_of(const struct coll_args *args, bool hccl)
{
	struct rhd h = {
		.p = args->nranks, .k = lg_floor(args->nranks), .rank = args->rank,
		.other = NPULINK_NO_PEER, .hccl = hccl,
		.es = npulink_dtype_size(args->dtype),
	};
	uint32_t root;

	h.block = 1U << h.k;
	h.r = h.p - h.block;
	root = pos_of(&h, args->root);
	h.second = args->root - first_of(&h, root);
	h.pos = pos_of(&h, h.rank);
	if (is_pair(&h, h.pos))
		h.other = first_of(&h, h.pos) * 2 + 1 - h.rank;
	h.folded = rep(&h, h.pos) != h.rank;
	return h;
}

/* ---- reduce_scatter: the half of the range that is kept is summed up */

static int reduce_scatter(const struct coll_args *args, struct coll_plan *plan, bool hccl)
{
	struct rhd h = rhd_of(args, hccl);
	uint64_t m = args->count * h.es, own = h.rank * m;
	bool in_place = plan_in_place(args), pair = is_pair(&h, h.pos);
	struct plan_at result = at_recv(in_place ? own : 0), cur = plan_input(args, 0), acc;
	uint32_t lo = 0, hi = h.block, d, step = PLAN_NONE;

	if (h.folded) {
		step = plan_send(plan, h.other, cur, h.p * m);
		if (in_place)
			plan_after(plan, step);
		plan_recv(plan, h.other, result, m);
		return 0;
	}
	/* The same offsets in scratch as in the input: a little is not used. */
	acc = in_place ? at_recv(0) : plan_scratch(plan, h.p * m);
	if (pair) {
		step = plan_recv_reduce(plan, h.other, cur, acc, h.p * m);
		plan_recv_plain(plan, step, true);
		cur = acc;
	}
	for (d = h.block / 2; d; d /= 2) {
		uint32_t mid = lo + d, peer = rep(&h, h.pos ^ d);
		bool upper = h.pos & d, last = d == 1;
		uint64_t low = first_of(&h, lo) * m, cut = first_of(&h, mid) * m;
		uint64_t high = first_of(&h, hi) * m;
		uint64_t keep = upper ? cut : low, give = upper ? low : cut;
		uint64_t keep_len = upper ? high - cut : cut - low;

		plan_after(plan, step);
		plan_send(plan, peer, at_plus(cur, give), high - low - keep_len);
		plan_after(plan, step);
		step = plan_recv_reduce(plan, peer, at_plus(cur, keep),
					last && !pair ? result : at_plus(acc, keep), keep_len);
		plan_recv_plain(plan, step, d == h.block / 2 && !is_pair(&h, h.pos ^ d));
		if (last)
			plan_final(plan, step);
		cur = acc;
		if (upper)
			lo = mid;
		else
			hi = mid;
	}
	if (pair) {
		plan_after(plan, step);
		plan_send(plan, h.other, at_plus(acc, h.other * m), m);
		if (!in_place) {
			plan_after(plan, step);
			plan_copy(plan, at_plus(acc, own), result, m);
		}
	}
	return 0;
}

static int rhd_reduce_scatter(const struct coll_args *args, struct coll_plan *plan)
{
	return reduce_scatter(args, plan, false);
}

static int hccl_reduce_scatter(const struct coll_args *args, struct coll_plan *plan)
{
	return reduce_scatter(args, plan, true);
}

/* ---- allgather, its mirror image */

static int allgather(const struct coll_args *args, struct coll_plan *plan, bool hccl)
{
	struct rhd h = rhd_of(args, hccl);
	uint64_t m = args->count * h.es, own = h.rank * m;
	bool in_place = plan_in_place(args);
	uint32_t got = PLAN_NONE, copied = PLAN_NONE, d, lo = h.pos, hi = h.pos + 1;
	struct plan_at shard = in_place ? at_recv(own) : at_send(0);

	if (h.folded) {
		got = plan_send(plan, h.other, shard, m);
		if (in_place)
			plan_after(plan, got);
		plan_recv(plan, h.other, at_recv(0), h.p * m);
		return 0;
	}
	if (!in_place)
		copied = plan_copy(plan, shard, at_recv(own), m);
	if (h.other != NPULINK_NO_PEER)
		got = plan_recv(plan, h.other, at_recv(h.other * m), m);
	for (d = 1; d < h.block; d *= 2) {
		uint32_t peer = rep(&h, h.pos ^ d);
		uint64_t low = first_of(&h, lo) * m, high = first_of(&h, hi) * m;
		uint32_t first = lo & ~(2 * d - 1);

		/* Receives in order: one dependency then stands for all before. */
		plan_after(plan, got);
		plan_after(plan, copied);
		plan_send(plan, peer, at_recv(low), high - low);
		plan_after(plan, got);
		if (h.pos & d) {
			got = plan_recv(plan, peer, at_recv(first_of(&h, first) * m),
					low - first_of(&h, first) * m);
			lo = first;
		} else {
			hi = first + 2 * d;
			got = plan_recv(plan, peer, at_recv(high), first_of(&h, hi) * m - high);
		}
	}
	if (h.other != NPULINK_NO_PEER) {
		plan_after(plan, got);
		plan_after(plan, copied);
		plan_send(plan, h.other, at_recv(0), h.p * m);
	}
	return 0;
}

static int rhd_allgather(const struct coll_args *args, struct coll_plan *plan)
{
	return allgather(args, plan, false);
}

static int hccl_allgather(const struct coll_args *args, struct coll_plan *plan)
{
	return allgather(args, plan, true);
}

/* ---- allreduce and reduce: halving with growing distance over p' chunks */

struct halving {
	struct plan_shards chunks;	/* of the vector, one per position */
	uint32_t lo, n;			/* chunks [lo, lo + n) are held */
	uint32_t sent[32];		/* round: the step that gave its half away */
	uint32_t step;			/* the last one that changed what is held */
};

static uint64_t chunk_off(const struct halving *v, uint32_t i)
{
	return i < v->chunks.n ? shard_off(&v->chunks, i) :
	       shard_off(&v->chunks, i - 1) + shard_len(&v->chunks, i - 1);
}

static uint64_t chunk_bytes(const struct halving *v, uint32_t lo, uint32_t n)
{
	return chunk_off(v, lo + n) - chunk_off(v, lo);
}

/* @own: the rank's own input, @acc: where sums go; after a fold these are one. */
static void halve(const struct rhd *h, struct coll_plan *plan, struct plan_at own,
		  struct plan_at acc, uint64_t n, struct halving *v)
{
	bool own_is_acc = own.slot == acc.slot && own.off == acc.off;
	struct plan_at cur = own;
	uint32_t i;

	*v = (struct halving){
		.chunks = plan_split(n / h->es, h->block, h->es),
		.n = h->block, .step = PLAN_NONE,
	};
	if (h->other != NPULINK_NO_PEER) {
		v->step = plan_recv_reduce(plan, h->other, own, acc, n);
		plan_recv_plain(plan, v->step, true);
		cur = acc;
		own_is_acc = true;
	}
	for (i = 0; i < h->k; i++) {
		uint32_t peer = rep(h, h->pos ^ 1U << i), half = v->n / 2;
		bool upper = h->pos >> i & 1;
		uint32_t keep = v->lo + (upper ? half : 0), give = v->lo + (upper ? 0 : half);

		plan_after(plan, v->step);
		v->sent[i] = plan_send(plan, peer, at_plus(cur, chunk_off(v, give)),
				       chunk_bytes(v, give, half));
		if (!own_is_acc)
			v->sent[i] = PLAN_NONE;
		plan_after(plan, v->step);
		v->step = plan_recv_reduce(plan, peer, at_plus(cur, chunk_off(v, keep)),
					   at_plus(acc, chunk_off(v, keep)),
					   chunk_bytes(v, keep, half));
		plan_recv_plain(plan, v->step, !i && !is_pair(h, h->pos ^ 1));
		if (i == h->k - 1)
			plan_final(plan, v->step);
		cur = acc;
		own_is_acc = true;
		v->lo = keep;
		v->n = half;
	}
}

static int allreduce(const struct coll_args *args, struct coll_plan *plan, bool hccl)
{
	struct rhd h = rhd_of(args, hccl);
	uint64_t n = args->count * h.es;
	struct plan_at own = plan_input(args, 0), acc = at_recv(0);
	struct halving v;
	uint32_t i, step;

	if (h.folded) {
		step = plan_send(plan, h.other, own, n);
		if (plan_in_place(args))
			plan_after(plan, step);
		plan_recv(plan, h.other, acc, n);
		return 0;
	}
	halve(&h, plan, own, acc, n, &v);
	for (i = h.k; i-- > 0;) {
		uint32_t peer = rep(&h, h.pos ^ 1U << i);
		uint32_t theirs = h.pos >> i & 1 ? v.lo - v.n : v.lo + v.n;

		plan_after(plan, v.step);
		plan_send(plan, peer, at_plus(acc, chunk_off(&v, v.lo)),
			  chunk_bytes(&v, v.lo, v.n));
		plan_after(plan, v.step);
		plan_after(plan, v.sent[i]);
		step = plan_recv(plan, peer, at_plus(acc, chunk_off(&v, theirs)),
				 chunk_bytes(&v, theirs, v.n));
		if (step != PLAN_NONE)
			v.step = step;
		v.lo = v.lo < theirs ? v.lo : theirs;
		v.n *= 2;
	}
	if (h.other != NPULINK_NO_PEER) {
		plan_after(plan, v.step);
		plan_send(plan, h.other, acc, n);
	}
	return 0;
}

static int rhd_allreduce(const struct coll_args *args, struct coll_plan *plan)
{
	return allreduce(args, plan, false);
}

static int hccl_allreduce(const struct coll_args *args, struct coll_plan *plan)
{
	return allreduce(args, plan, true);
}

/* reduce_scatter, then each half goes to the side on which the root is. */
static int rhd_reduce(const struct coll_args *args, struct coll_plan *plan)
{
	struct rhd h = rhd_of(args, false);
	uint64_t n = args->count * h.es;
	uint32_t root = pos_of(&h, args->root), i, step;
	struct plan_at own = plan_input(args, 0), acc;
	struct halving v;

	if (h.folded) {
		plan_send(plan, h.other, own, n);
		return 0;
	}
	acc = h.rank == args->root ? at_recv(0) : plan_scratch(plan, n);
	halve(&h, plan, own, acc, n, &v);
	for (i = h.k; i-- > 0;) {
		uint32_t peer = rep(&h, h.pos ^ 1U << i);
		uint32_t theirs = h.pos >> i & 1 ? v.lo - v.n : v.lo + v.n;

		plan_after(plan, v.step);
		if ((h.pos ^ root) >> i & 1) {
			plan_send(plan, peer, at_plus(acc, chunk_off(&v, v.lo)),
				  chunk_bytes(&v, v.lo, v.n));
			break;
		}
		plan_after(plan, v.sent[i]);
		step = plan_recv(plan, peer, at_plus(acc, chunk_off(&v, theirs)),
				 chunk_bytes(&v, theirs, v.n));
		if (step != PLAN_NONE)
			v.step = step;
		v.lo = v.lo < theirs ? v.lo : theirs;
		v.n *= 2;
	}
	return 0;
}

/* In round i, who has it gives it to the position that differs in bit k - i. */
static int rhd_broadcast(const struct coll_args *args, struct coll_plan *plan)
{
	struct rhd h = rhd_of(args, false);
	uint64_t n = args->count * h.es;
	uint32_t root = pos_of(&h, args->root), v = h.pos ^ root, d, got = PLAN_NONE;
	uint32_t span = v ? v & -v : h.block;
	struct plan_at src = h.rank == args->root ? plan_input(args, 0) : at_recv(0);

	if (h.folded) {
		plan_recv(plan, h.other, src, n);
		return 0;
	}
	if (v)
		got = plan_recv(plan, rep(&h, (v - span) ^ root), src, n);
	for (d = span / 2; d; d /= 2) {
		plan_after(plan, got);
		plan_send(plan, rep(&h, (v + d) ^ root), src, n);
	}
	if (h.other != NPULINK_NO_PEER) {
		plan_after(plan, got);
		plan_send(plan, h.other, src, n);
	}
	if (!v && !plan_in_place(args))
		plan_copy(plan, at_send(0), at_recv(0), n);
	return 0;
}

/*
 * Recursive doubling: in each round the whole vector is exchanged. What is
 * offered must stay as it is meanwhile, so sums change between two buffers; the
 * last one lands where the result belongs.
 */
static int doubling_allreduce(const struct coll_args *args, struct coll_plan *plan)
{
	struct rhd h = rhd_of(args, false);
	uint64_t n = args->count * h.es;
	struct plan_at cur = plan_input(args, 0), buf[2] = { at_recv(0) };
	uint32_t i, step = PLAN_NONE, offered[2] = { PLAN_NONE, PLAN_NONE };

	if (h.folded) {
		step = plan_send(plan, h.other, cur, n);
		if (plan_in_place(args))
			plan_after(plan, step);
		plan_recv(plan, h.other, buf[0], n);
		return 0;
	}
	/* Round i writes buf[w]: the last round, buf[0]. */
	if (h.k > 1 || h.other != NPULINK_NO_PEER || plan_in_place(args))
		buf[1] = plan_scratch(plan, n);
	if (h.other != NPULINK_NO_PEER) {
		step = plan_recv_reduce(plan, h.other, cur, buf[h.k & 1], n);
		plan_recv_plain(plan, step, true);
		cur = buf[h.k & 1];
	} else if (plan_in_place(args) && (h.k & 1)) {
		step = plan_copy(plan, cur, buf[1], n);
		cur = buf[1];
		cur.plain = true;
	}
	for (i = 0; i < h.k; i++) {
		uint32_t peer = rep(&h, h.pos ^ 1U << i), w = (h.k - 1 - i) & 1, offer;

		plan_after(plan, step);
		offer = plan_send(plan, peer, cur, n);
		plan_after(plan, step);
		plan_after(plan, offered[w]);
		step = plan_recv_reduce(plan, peer, cur, buf[w], n);
		plan_recv_plain(plan, step, !i && !is_pair(&h, h.pos ^ 1));
		offered[w ^ 1] = offer;
		cur = buf[w];
	}
	plan_final(plan, step);
	if (h.other != NPULINK_NO_PEER) {
		plan_after(plan, step);
		plan_send(plan, h.other, cur, n);
	}
	return 0;
}

/* ---- reduce_scatter by doubling: only neighbours are added up, so order is kept */

/* Where a shard's sum lies, and since which step. */
struct place {
	struct plan_at at;
	uint32_t step;
};

/*
 * Shards from @first on, @n of them counted around, as one range: where they lie
 * if that is one already, else copied to @to. The last copy is *@step, which
 * comes after what it copies.
 */
static struct plan_at in_one(struct coll_plan *plan, const struct place *places, uint32_t p,
			     uint64_t m, uint32_t first, uint32_t n, struct plan_at to,
			     bool always, uint32_t *step)
{
	struct plan_at begin = places[first].at;
	uint32_t i = 0, last = PLAN_NONE;

	while (i < n) {
		const struct place *a = &places[(first + i) % p];
		uint32_t run = 1;

		for (; i + run < n; run++) {
			const struct place *b = &places[(first + i + run) % p];

			if (b->at.slot != a->at.slot || b->at.off != a->at.off + run * m ||
			    b->step != a->step)
				break;
		}
		if (run == n && !always) {
			*step = a->step;
			return begin;
		}
		plan_after(plan, a->step);
		plan_after(plan, last);
		last = plan_copy(plan, a->at, at_plus(to, i * m), run * m);
		i += run;
	}
	*step = last;
	return to;
}

/*
 * In round i, positions that differ in bit i exchange their groups' sums of all
 * shards but those of the sender's group. Nobody reads the sums of shards that
 * are other ranks' of the own group, but they come along in the one message.
 */
static int doubling_reduce_scatter(const struct coll_args *args, struct coll_plan *plan)
{
	struct rhd h = rhd_of(args, false);
	uint64_t m = args->count * h.es, n = h.p * m;
	struct plan_at own = plan_input(args, 0), sum, send, mine;
	struct plan_at result = at_recv(plan_in_place(args) ? h.rank * m : 0);
	struct place *places;
	uint32_t step = PLAN_NONE, ready, d, i, pending = PLAN_NONE;

	if (h.folded) {
		step = plan_send(plan, h.other, own, n);
		if (plan_in_place(args))
			plan_after(plan, step);
		plan_recv(plan, h.other, result, m);
		return 0;
	}
	places = malloc(h.p * sizeof(*places));
	if (!places)
		return -ENOMEM;
	if (h.other != NPULINK_NO_PEER) {
		sum = plan_scratch(plan, n);
		step = plan_recv_reduce(plan, h.other, own, sum, n);
		plan_recv_plain(plan, step, true);
		own = sum;
	}
	for (i = 0; i < h.p; i++)
		places[i] = (struct place){ at_plus(own, i * m), step };
	for (d = 1; d < h.block; d *= 2) {
		uint32_t peer = rep(&h, h.pos ^ d), lo = h.pos & ~(d - 1), plo = lo ^ d;
		uint32_t first = first_of(&h, lo), end = first_of(&h, lo + d);
		uint32_t pfirst = first_of(&h, plo), pend = first_of(&h, plo + d);
		uint32_t out = h.p - (end - first), in = h.p - (pend - pfirst);

		send = plan_scratch(plan, out * m);
		send = in_one(plan, places, h.p, m, end % h.p, out, send, false, &ready);
		plan_after(plan, ready);
		plan_send(plan, peer, send, out * m);
		sum = plan_scratch(plan, in * m);
		mine = in_one(plan, places, h.p, m, pend % h.p, in, sum, false, &ready);
		/* Later there are sums at all places that somebody reads. */
		mine.plain = d == 1 && own.plain;
		plan_after(plan, ready);
		step = plan_recv_reduce(plan, peer, mine, sum, in * m);
		plan_recv_plain(plan, step, d == 1 && !is_pair(&h, h.pos ^ 1));
		for (i = 0; i < in; i++)
			places[(pend + i) % h.p] = (struct place){ at_plus(sum, i * m), step };
		pending = step;
	}
	plan_final(plan, pending);
	if (h.other != NPULINK_NO_PEER) {
		plan_after(plan, step);
		plan_send(plan, h.other, places[h.other].at, m);
	}
	/* In place, the input may still be on offer. */
	if (plan_in_place(args))
		plan_after_all(plan);
	else
		plan_after(plan, step);
	if (h.p > 1 || !plan_in_place(args))
		plan_copy(plan, places[h.rank].at, result, m);
	free(places);
	return 0;
}

/* ---- closed forms: "RHD" in ALGORITHMS.md */

static double bytes(const struct coll_args *args)
{
	return (double)args->count * npulink_dtype_size(args->dtype);
}

static bool power_of_two(uint32_t p)
{
	return !(p & (p - 1));
}

static const char *supports_powers(const struct coll_args *args)
{
	return power_of_two(args->nranks) ? NULL : "the number of ranks is not a power of two";
}

/* Shards sent and received in the rounds of the block. */
static double sum_shards(uint32_t p, bool hccl)
{
	uint32_t k = lg_floor(p), block = 1U << k, r = p - block, i;
	double s = 0;

	for (i = 1; i <= k; i++)
		s += hccl ? (block >> i) + min_u32(r, block >> i) :
		     (p + (1U << i) - 1) >> i;
	return s;
}

/* @gamma is 0 for allgather. */
/* Messages of halving rounds that share links: half of n goes the longest way, or the shortest. */
static double crowd_halving(const struct coll_args *args, const struct coll_cost_params *c,
			    double n, bool longest)
{
	uint32_t k = lg_floor(args->nranks);
	double t = 0;

	for (uint32_t i = 0; i < k; i++, n /= 2)
		t += crowd_exchange(c, longest ? k - 1 - i : i, n / 2);
	/* Who is folded sends nothing. */
	return t * (1U << k) / args->nranks;
}

static double cost_shards(const struct coll_args *args, const struct coll_cost_params *c,
			  double gamma, bool hccl)
{
	uint32_t p = args->nranks, k = lg_floor(p);
	double m = bytes(args), t;

	t = k * c->alpha + sum_shards(p, hccl) * m * (c->beta + gamma);
	t += crowd_halving(args, c, p * m, true);
	if (!power_of_two(p))
		t += 2 * c->alpha + (p + 1.0) * m * c->beta + p * m * gamma;
	return t;
}

static double cost_reduce_scatter(const struct coll_args *args, const struct coll_cost_params *c)
{
	return cost_shards(args, c, c->gamma, false);
}

static double cost_reduce_scatter_hccl(const struct coll_args *args,
				       const struct coll_cost_params *c)
{
	return cost_shards(args, c, c->gamma, true);
}

static double cost_allgather(const struct coll_args *args, const struct coll_cost_params *c)
{
	return cost_shards(args, c, 0, false);
}

static double cost_allgather_hccl(const struct coll_args *args, const struct coll_cost_params *c)
{
	return cost_shards(args, c, 0, true);
}

/* Bytes that leave a rank in the halving rounds, with the largest chunks. */
static double halving_bytes(const struct coll_args *args)
{
	uint32_t block = 1U << lg_floor(args->nranks);
	struct plan_shards s = plan_split(args->count, block, npulink_dtype_size(args->dtype));

	return (block - 1.0) * shard_max(&s);
}

static double cost_allreduce(const struct coll_args *args, const struct coll_cost_params *c)
{
	double n = bytes(args), half = halving_bytes(args);
	double t = 2 * lg_floor(args->nranks) * c->alpha + half * (2 * c->beta + c->gamma);

	t += 2 * crowd_halving(args, c, n, false);
	if (!power_of_two(args->nranks))
		t += 2 * c->alpha + n * (2 * c->beta + c->gamma);
	return t;
}

static double cost_doubling(const struct coll_args *args, const struct coll_cost_params *c)
{
	double n = bytes(args), t = c->alpha + n * (c->beta + c->gamma);

	t *= lg_floor(args->nranks);
	for (uint32_t i = 0; i < lg_floor(args->nranks); i++)
		t += crowd_exchange(c, i, n);
	if (!power_of_two(args->nranks))
		t += 2 * c->alpha + n * (2 * c->beta + c->gamma);
	return t;
}

/* In round i all but the shards of 2^i positions, at least floor(p 2^i / p'), move. */
static double cost_doubling_scatter(const struct coll_args *args,
				    const struct coll_cost_params *c)
{
	uint32_t p = args->nranks, k = lg_floor(p), i;
	double m = bytes(args), t = 0;

	for (i = 0; i < k; i++)
		t += c->alpha + (p - ((uint64_t)p << i >> k)) * m * (c->beta + c->gamma) +
		     crowd_exchange(c, i, (p - ((uint64_t)p << i >> k)) * m);
	if (!power_of_two(p))
		t += 2 * c->alpha + (p + 1.0) * m * c->beta + p * m * c->gamma;
	return t;
}

static double cost_reduce(const struct coll_args *args, const struct coll_cost_params *c)
{
	double n = bytes(args), half = halving_bytes(args);
	double t = 2 * lg_floor(args->nranks) * c->alpha + half * (2 * c->beta + c->gamma);

	t += 2 * crowd_halving(args, c, n, false);
	if (!power_of_two(args->nranks))
		t += c->alpha + n * (c->beta + c->gamma);
	return t;
}

static double cost_broadcast(const struct coll_args *args, const struct coll_cost_params *c)
{
	return lg_ceil(args->nranks) * (c->alpha + bytes(args) * c->beta);
}

#define FORM_ALL	"p = 2^k: 2k alpha + 2(p-1)/p n beta + (p-1)/p n gamma; else " \
			"(2k+2) alpha + (2(p'-1)/p' + 2) n beta + ((p'-1)/p' + 1) n gamma"
#define FORM_RED	"p = 2^k: 2k alpha + 2(p-1)/p n beta + (p-1)/p n gamma; else " \
			"(2k+1) alpha + (2(p'-1)/p' + 1) n beta + ((p'-1)/p' + 1) n gamma"
#define FORM_RS		"p = 2^k: k alpha + (p-1)/p n (beta + gamma); else (alpha + n beta + " \
			"n gamma) + (k alpha + S n (beta + gamma)/p) + (alpha + n beta/p), S = "
#define FORM_AG		"p = 2^k: k alpha + (p-1)/p n beta; else (alpha + n beta/p) + " \
			"(k alpha + S n beta/p) + (alpha + n beta), S = "
#define FORM_DOUBLING_SCATTER							\
	"p = 2^k, then exact: k alpha + (k - (p-1)/p) n (beta + gamma); else "	\
	"(alpha + n beta + n gamma) + (k alpha + S n (beta + gamma)/p) + "	\
	"(alpha + n beta/p), S = sum_{i=0..k-1} (p - floor(p 2^i/p'))"
#define S_SPREAD	"sum_{i=1..k} ceil(p/2^i)"
#define S_HCCL		"sum_{i=1..k} (p'/2^i + min(r, p'/2^i))"

#define ROW(coll, name_, form, plan_, cost_, ...)				\
	{ .collective = NPULINK_COLL_##coll, .name = name_, .exact = true,	\
	  .formula = form, .plan = plan_, .cost = cost_, __VA_ARGS__ }

const struct coll_algorithm coll_rhd_algorithms[] = {
	ROW(ALLREDUCE, "rhd", FORM_ALL, rhd_allreduce, cost_allreduce,
	    .desc = "halve the vector and double the distance, then back"),
	ROW(ALLREDUCE, "rhd-hccl", FORM_ALL, hccl_allreduce, cost_allreduce,
	    .desc = "the same, folding the first ranks as HCCL does"),
	ROW(ALLREDUCE, "recursive-doubling",
	    "k (alpha + n beta + n gamma); p not 2^k: + 2 alpha + 2 n beta + n gamma",
	    doubling_allreduce, cost_doubling,
	    .desc = "exchange everything with a rank twice as far in each round; for small n"),
	ROW(REDUCE, "rhd", FORM_RED, rhd_reduce, cost_reduce, .commutative = true,
	    .desc = "halve the vector and double the distance, then gather"),
	ROW(BROADCAST, "rhd", "L (alpha + n beta)", rhd_broadcast, cost_broadcast,
	    .desc = "whoever has it gives it to the opposite position, in each of L rounds"),
	ROW(REDUCE_SCATTER, "rhd", FORM_RS S_SPREAD, rhd_reduce_scatter, cost_reduce_scatter,
	    .commutative = true, .desc = "halve the vector and the distance"),
	ROW(REDUCE_SCATTER, "rhd-hccl", FORM_RS S_HCCL, hccl_reduce_scatter,
	    cost_reduce_scatter_hccl, .commutative = true,
	    .desc = "the same, folding the first ranks as HCCL does"),
	ROW(ALLGATHER, "rhd", FORM_AG S_SPREAD, rhd_allgather, cost_allgather,
	    .desc = "double the vector and the distance"),
	ROW(ALLGATHER, "rhd-hccl", FORM_AG S_HCCL, hccl_allgather, cost_allgather_hccl,
	    .desc = "the same, folding the first ranks as HCCL does"),
	ROW(ALLGATHER, "recursive-doubling", "lg p alpha + (p-1)/p n beta", rhd_allgather,
	    cost_allgather, .supports = supports_powers,
	    .desc = "in each round exchange what is there with a rank twice as far"),
	ROW(REDUCE_SCATTER, "recursive-halving", FORM_RS S_SPREAD, rhd_reduce_scatter,
	    cost_reduce_scatter, .commutative = true,
	    .desc = "the name that MPI libraries have for rhd"),
	{
		.collective = NPULINK_COLL_REDUCE_SCATTER, .name = "recursive-doubling",
		.plan = doubling_reduce_scatter, .cost = cost_doubling_scatter,
		.formula = FORM_DOUBLING_SCATTER,
		.desc = "exchange all sums with a rank twice as far in each round; keeps order",
	},
	{ .name = NULL },
};
