// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * def.c - what each collective is defined to do, for the set verifier:
 * which bytes of which buffer are whose input, and what must be where in the end.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "verify/run.h"

/* Bytes [off, off + len) of @slot are place @base of the input of rank @who. */
struct span {
	uint64_t off, len, base;
	uint32_t slot, who;
};

struct spans {
	struct span *s;
	uint32_t n;
};

static void add(struct spans *spans, uint32_t slot, uint64_t off, uint64_t len,
		uint64_t base, uint32_t who)
{
	if (len)
		spans->s[spans->n++] = (struct span){
			.slot = slot, .off = off, .len = len, .who = who, .base = base,
		};
}

/*
 * Places of the large buffer are those of its shards one after another, wherever a rank
 * may have them, so that shards that have the same done to them make one piece. Only
 * in alltoallv, no rank knows how long the others' shards are.
 */
static uint64_t place_of(const struct coll_args *args, const struct plan_shards *s, uint32_t shard)
{
	uint64_t place = 0;
	uint32_t i;

	if (coll_has_rcounts(args->collective))
		return (uint64_t)shard << PLACE_BITS;
	if (!s->counts)
		return shard_off(s, shard);
	for (i = 0; i < shard; i++)
		place += shard_len(s, i);
	return place;
}

/* All shards of the large buffer in @slot; the contents of shard i is rank who's, or i's. */
static void add_large(struct spans *spans, const struct coll_args *args, uint32_t slot,
		      const uint32_t *who)
{
	struct plan_shards s = plan_shards(args);
	bool apart = coll_has_rcounts(args->collective);
	uint64_t place = 0;
	uint32_t i;

	for (i = 0; i < s.n; i++) {
		add(spans, slot, shard_off(&s, i), shard_len(&s, i),
		    apart ? place_of(args, &s, i) : place, who ? *who : i);
		place += shard_len(&s, i);
	}
}

static void inputs(const struct coll_args *args, struct spans *in)
{
	struct plan_shards s = plan_shards(args);
	bool in_place = plan_in_place(args);
	uint32_t slot = in_place ? NPULINK_SLOT_RECV : NPULINK_SLOT_SEND, me = args->rank;

	if (!coll_gives(args))
		return;
	switch (coll_kind(args->collective)->gives) {
	case NPULINK_PART_NONE:
		return;
	case NPULINK_PART_WHOLE:
		add(in, slot, 0, args->count * s.esize, 0, me);
		return;
	case NPULINK_PART_BLOCK:
		add(in, slot, in_place ? shard_off(&s, me) : 0, shard_len(&s, me),
		    place_of(args, &s, me), me);
		return;
	case NPULINK_PART_BLOCKS:
		add_large(in, args, slot, &me);
		return;
	}
}

/* A block from each rank, of the input that it has for me. */
static void add_exchanged(struct spans *out, const struct coll_args *args)
{
	bool own = coll_has_rcounts(args->collective);
	struct plan_shards s = plan_shards(args);
	uint32_t i;

	for (i = 0; i < args->nranks; i++)
		add(out, NPULINK_SLOT_RECV, own ? args->rdispls[i] * s.esize : shard_off(&s, i),
		    own ? args->rcounts[i] * s.esize : shard_len(&s, i),
		    place_of(args, &s, args->rank), coll_whose(args, i));
}

static void outputs(const struct coll_args *args, struct spans *out)
{
	const struct coll_kind *k = coll_kind(args->collective);
	struct plan_shards s = plan_shards(args);
	bool in_place = plan_in_place(args);
	uint32_t slot = NPULINK_SLOT_RECV, me = args->rank;
	uint64_t n = args->count * s.esize;

	if (!coll_gets(args)) {
		/* An input that is where others have their result stays. */
		if (in_place)
			add(out, slot, 0, n, 0, me);
		return;
	}
	switch (k->gets) {
	case NPULINK_PART_NONE:
		return;
	case NPULINK_PART_WHOLE:
		add(out, slot, 0, n, 0, coll_whose(args, me));
		return;
	case NPULINK_PART_BLOCK:
		/* So does all of what only the root has. */
		if (in_place && k->givers == NPULINK_WHO_ROOT)
			add_large(out, args, slot, &me);
		else
			add(out, slot, in_place ? shard_off(&s, me) : 0, shard_len(&s, me),
			    place_of(args, &s, me), coll_whose(args, me));
		return;
	case NPULINK_PART_BLOCKS:
		if (k->gives == NPULINK_PART_BLOCKS)
			add_exchanged(out, args);
		else
			add_large(out, args, slot, NULL);
		return;
	}
}

static int spans_alloc(struct spans *spans, uint32_t nranks)
{
	spans->n = 0;
	spans->s = malloc((nranks + 1) * sizeof(*spans->s));
	return spans->s ? 0 : -ENOMEM;
}

static int span_cmp(const void *a, const void *b)
{
	const struct span *x = a, *y = b;

	return x->off < y->off ? -1 : x->off > y->off;
}

static int put(struct verify_run *run, struct image *img, uint64_t off, uint64_t len,
	       uint64_t base, struct value v)
{
	int rc = image_append(&run->value, len, base, v, ~0U);

	if (!rc && len)
		rc = image_write(img, off, len, &run->value);
	return rc;
}

uint64_t verify_shard(const struct coll_args *args)
{
	struct plan_shards s = plan_shards(args);

	return coll_has_rcounts(args->collective) ? 1ULL << PLACE_BITS : shard_len(&s, 0);
}

/*
 * An input for the proof by symmetry: an expression says how far its ranks are
 * from the shard, so that it stays the same if both are turned.
 */
static int put_turning(struct verify_run *run, const struct span *span, uint32_t rank)
{
	const struct coll_args *args = &run->ranks[rank].args;
	bool whole = args->collective == NPULINK_COLL_ALLREDUCE;
	uint32_t n = whole ? run->nranks : 1, i;
	uint64_t len = span->len / n;
	int rc = 0;

	for (i = 0; i < n && !rc; i++) {
		uint32_t shard = whole ? i : span->base / verify_shard(args);
		uint32_t far = run->flips ? rank ^ shard : mod_sub(rank, shard, run->nranks);
		struct value v = value_of_rank(run->set->seed, far);

		v.sum = 0;
		v.lo = rank;
		v.hi = rank;
		v.wrap = run->nranks;
		rc = put(run, &run->ranks[rank].slots[span->slot], span->off + i * len, len,
			 span->base + i * len, v);
	}
	return rc;
}

/* A slot seldom has more pieces than it is written to, or than there are shards. */
static int reserve(struct verify_run *run, uint32_t rank)
{
	const struct coll_plan *plan = &run->ranks[rank].plan;
	uint32_t writes[NPULINK_MAX_SLOTS] = { }, i;
	int rc = 0;

	for (i = 0; i < plan->nsteps; i++)
		if (plan->steps[i].op && plan->steps[i].op != NPULINK_STEP_SEND)
			writes[plan->steps[i].dst_slot]++;
	for (i = 0; i < NPULINK_MAX_SLOTS && !rc; i++)
		rc = image_reserve(&run->ranks[rank].slots[i],
				   min_u32(writes[i], run->nranks) + 2);
	return rc;
}

/*
 * First everything is the caller's, then the place of the results is empty, then
 * the inputs are put in: what is left of the first must be there in the end.
 */
int verify_put_inputs(struct verify_run *run, uint32_t rank)
{
	struct verify_rank *r = &run->ranks[rank];
	uint64_t sizes[2] = { 0, 0 }, end = 0;
	struct value foreign = value_foreign(rank), own = value_of_rank(run->set->seed, rank);
	struct spans in, out;
	uint32_t i;
	int rc;

	rc = plan_buffers(&r->args, &sizes[NPULINK_SLOT_SEND], &sizes[NPULINK_SLOT_RECV]);
	if (!rc)
		rc = reserve(run, rank);
	if (rc)
		return rc;
	for (i = 0; i < 2; i++) {
		if (r->plan.slots[i].min_len > sizes[i])
			return verify_fail(run, rank, ~0U, i, sizes[i],
					   r->plan.slots[i].min_len - sizes[i],
					   "the caller's buffer is smaller than the plan thinks");
		rc = put(run, &r->slots[i], 0, sizes[i], 0, foreign);
		if (rc)
			return rc;
	}
	if (spans_alloc(&in, run->nranks))
		return -ENOMEM;
	if (spans_alloc(&out, run->nranks)) {
		free(in.s);
		return -ENOMEM;
	}
	inputs(&r->args, &in);
	outputs(&r->args, &out);
	for (i = 0; i < out.n && !rc; i++)
		rc = image_erase(&r->slots[out.s[i].slot], out.s[i].off, out.s[i].len);
	qsort(in.s, in.n, sizeof(*in.s), span_cmp);
	for (i = 0; i < in.n && !rc; i++) {
		if (in.s[i].off < end)
			rc = verify_fail(run, rank, ~0U, in.s[i].slot, in.s[i].off, in.s[i].len,
					 "shards overlap: cannot tell whose bytes these are");
		else if (run->turns)
			rc = put_turning(run, &in.s[i], rank);
		else
			rc = put(run, &r->slots[in.s[i].slot], in.s[i].off, in.s[i].len,
				 in.s[i].base, own);
		end = in.s[i].off + in.s[i].len;
	}
	free(in.s);
	free(out.s);
	return rc;
}

static const char *wrong(struct verify_run *run, const struct image *img, const struct piece *p,
			 const struct span *span, const struct value *all)
{
	const struct coll_args *args = &run->ranks[0].args;
	bool divided = span->who == NPULINK_ALL_RANKS && args->redop == NPULINK_CALL_AVG &&
		       run->nranks > 1;
	bool scaled = divided && npulink_dtype_is_float(args->dtype);
	const struct value *v = piece_value(img, p);
	struct value one;

	if (v->flags & VALUE_FOREIGN)
		return "holds bytes that are no input of the collective";
	if (v->flags & VALUE_MIXED)
		return "holds a sum of bytes of different places";
	if (p->base != span->base + (p->off - span->off))
		return "holds bytes that belong elsewhere";
	one = span->who == NPULINK_ALL_RANKS ? *all : value_of_rank(run->set->seed, span->who);
	if (run->turns) {
		/* Neighbours, as many as there should be, and the first one: no sum needed. */
		run->unsure = v->flags & VALUE_DISORDER;
		if (run->unsure)
			return "is a sum of ranks that are no neighbours: symmetry cannot prove it";
		one.sum = span->who != NPULINK_ALL_RANKS && v->lo != span->who;
	}
	if (v->count < one.count)
		return span->who == NPULINK_ALL_RANKS ? "does not hold the inputs of all ranks" :
		       "holds too little";
	if (v->count > one.count)
		return span->who == NPULINK_ALL_RANKS ? "holds an input more than once" :
		       "holds a sum instead of one rank's input";
	if (v->sum != one.sum)
		return span->who == NPULINK_ALL_RANKS ?
		       "holds one input twice, and another not at all" :
		       "holds the input of another rank";
	if (v->flags & VALUE_LATE)
		return "was divided before the sum was complete, or twice";
	if (divided != !!(v->flags & VALUE_DIVIDED))
		return divided ? "was not divided for the average" : "was divided";
	if (v->flags & VALUE_UNEVEN)
		return "was not scaled as a whole, or not once";
	if (scaled != !!(v->flags & VALUE_SCALED))
		return scaled ? "was not scaled, and may be infinite where the mean is not" :
		       "was scaled";
	if ((v->flags & VALUE_DISORDER) || (run->turns && span->who == NPULINK_ALL_RANKS) ||
	    (span->who == NPULINK_ALL_RANKS && v->hi - v->lo + 1 != run->nranks))
		run->report->in_order = false;
	return NULL;
}

/* A byte of @span on @rank is not what it should be. */
static int fail_at(struct verify_run *run, uint32_t rank, const struct piece *p, uint32_t slot,
		   const char *why)
{
	return verify_fail(run, rank, p->step, slot, p->off, p->len, "%s", why);
}

static int check_span(struct verify_run *run, uint32_t rank, const struct span *span,
		      const struct value *all)
{
	struct verify_rank *r = &run->ranks[rank];
	struct image *is = &run->value;
	uint64_t bad = 0;
	uint32_t i;
	int rc;

	rc = image_read(&r->slots[span->slot], span->off, span->len, is, &bad);
	if (rc == -ENODATA)
		rc = verify_fail(run, rank, ~0U, span->slot, bad, span->off + span->len - bad,
				 "a result was never written");
	for (i = 0; i < is->n && !rc; i++) {
		const char *why;

		is->p[i].off += span->off;
		why = wrong(run, is, &is->p[i], span, all);
		if (why)
			rc = fail_at(run, rank, &is->p[i], span->slot, why);
	}
	image_clear(is);
	return rc;
}

/* What belongs to the caller and is neither input nor output is as before. */
static int check_gap(struct verify_run *run, uint32_t rank, uint32_t slot, uint64_t off,
		     uint64_t end)
{
	struct verify_rank *r = &run->ranks[rank];
	struct image *is = &run->value;
	uint64_t bad = 0;
	uint32_t i;
	int rc;

	if (off >= end)
		return 0;
	rc = image_read(&r->slots[slot], off, end - off, is, &bad);
	if (rc == -ENODATA)
		rc = verify_fail(run, rank, ~0U, slot, bad, end - bad,
				 "bytes of the caller that are no result were used");
	for (i = 0; i < is->n && !rc; i++) {
		const struct value *v = piece_value(is, &is->p[i]);

		is->p[i].off += off;
		if (v->flags != VALUE_FOREIGN || v->lo != rank ||
		    is->p[i].base != is->p[i].off)
			rc = fail_at(run, rank, &is->p[i], slot,
				     "overwrites bytes of the caller that are no result");
	}
	image_clear(is);
	return rc;
}

/* All ranks of an allreduce must get the same bits: the same expression. */
static int check_same_bits(struct verify_run *run, uint32_t rank)
{
	struct image *a = &run->ranks[0].slots[NPULINK_SLOT_RECV];
	struct image *b = &run->ranks[rank].slots[NPULINK_SLOT_RECV];
	size_t i = 0, j = 0;

	image_close(a);
	image_close(b);

	/* Rank r's shard c has the expression of rank 0's shard c - r: all the same. */
	for (; run->turns && i < a->n; i++)
		if (piece_value(a, &a->p[i])->expr != piece_value(a, &a->p[0])->expr)
			return fail_at(run, rank, &a->p[i], NPULINK_SLOT_RECV,
				       "adds up in another order than other ranks");
	while (i < a->n && j < b->n) {
		const struct piece *p = &a->p[i], *q = &b->p[j];

		if (piece_value(a, p)->expr != piece_value(b, q)->expr)
			return fail_at(run, rank, q, NPULINK_SLOT_RECV,
				       "adds up in another order than rank 0: results may differ in rounding");
		if (p->off + p->len <= q->off + q->len)
			i++;
		if (p->off + p->len >= q->off + q->len)
			j++;
	}
	return 0;
}

int verify_check_outputs(struct verify_run *run, uint32_t rank, const struct value *all)
{
	struct verify_rank *r = &run->ranks[rank];
	uint64_t send, recv, end = 0;
	struct spans out;
	uint32_t i, first;
	int rc;

	rc = plan_buffers(&r->args, &send, &recv);
	if (rc)
		return rc;
	if (spans_alloc(&out, 2 * run->nranks))
		return -ENOMEM;
	outputs(&r->args, &out);
	for (i = 0; i < out.n && !rc; i++)
		rc = check_span(run, rank, &out.s[i], all);

	/* The rest of an in-place reduce_scatter's input may be anything. */
	first = out.n;
	inputs(&r->args, &out);
	for (i = first; i < out.n; i++)
		if (out.s[i].slot == NPULINK_SLOT_RECV)
			out.s[first++] = out.s[i];
	out.n = first;
	qsort(out.s, out.n, sizeof(*out.s), span_cmp);
	for (i = 0; i < out.n && !rc; i++) {
		rc = check_gap(run, rank, NPULINK_SLOT_RECV, end, out.s[i].off);
		if (out.s[i].off + out.s[i].len > end)
			end = out.s[i].off + out.s[i].len;
	}
	if (!rc)
		rc = check_gap(run, rank, NPULINK_SLOT_RECV, end, recv);
	if (!rc && r->args.collective == NPULINK_COLL_ALLREDUCE)
		rc = check_same_bits(run, rank);
	free(out.s);
	return rc;
}
