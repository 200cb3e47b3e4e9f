// SPDX-License-Identifier: GPL-2.0
/*
 * verify.c - fuzz target: the kernel's plan verifier.
 *
 * Any bytes are a plan. A second verifier, written down from the header's words step
 * by step and pair by pair, must come to the same answer: no plan that breaks a
 * promise gets through, and none is refused that keeps them all.
 */
#include <stdbool.h>
#include <string.h>
#include <npulink/verify.h>
#include "fuzz.h"
#include "gen.h"

#define RECV	NPULINK_STEP_RECV
#define REDUCE	NPULINK_STEP_REDUCE
#define SEND	NPULINK_STEP_SEND
#define COPY	NPULINK_STEP_COPY

#define SMALL	128	/* steps that are compared pair by pair */

/* What the input begins with; slots and steps follow. */
struct head {
	uint32_t nranks, rank;
	struct npulink_call call;
	uint8_t nslots;		/* more than there may be: no slots follow */
	uint8_t many;		/* not 0: say that there are too many steps */
	uint8_t pad[6];
};

/* ---- the second verifier */

struct range {
	uint64_t from, to;	/* empty: not used */
	uint32_t slot;
	bool write;
};

enum { SRC, SRC2, DST, RANGES };

static bool overlap(const struct range *a, const struct range *b)
{
	return a->from < a->to && b->from < b->to && a->slot == b->slot &&
	       a->from < b->to && b->from < a->to;
}

/* The operands of a step by the table in npulink_step.h; false if one wraps around. */
static bool ranges_of(const struct npulink_step *s, struct range r[RANGES])
{
	uint64_t dst_len = s->len;
	uint32_t i;

	memset(r, 0, RANGES * sizeof(*r));
	if (s->flags & NPULINK_STEP_F_TRANSIENT && s->src2_off)
		dst_len = s->src2_off;
	switch (s->op) {
	case COPY:
	case COPY | SEND:
	case RECV | REDUCE:
	case RECV | REDUCE | SEND:
	case REDUCE:
	case REDUCE | SEND:
	case SEND:
		r[SRC] = (struct range) { s->src_off, s->src_off + s->len, s->src_slot, false };
	}
	if (s->op == REDUCE || s->op == (REDUCE | SEND))
		r[SRC2] = (struct range) { s->src2_off, s->src2_off + s->len, s->src2_slot, false };
	if (s->op && s->op != SEND)
		r[DST] = (struct range) { s->dst_off, s->dst_off + dst_len, s->dst_slot, true };
	for (i = 0; i < RANGES; i++)
		if (r[i].to < r[i].from)
			return false;
	return true;
}

static bool op_known(uint8_t op)
{
	switch (op) {
	case 0:
	case COPY:
	case REDUCE:
	case SEND:
	case RECV:
	case RECV | REDUCE:
	case RECV | SEND:
	case RECV | REDUCE | SEND:
	case COPY | SEND:
	case REDUCE | SEND:
		return true;
	}
	return false;
}

static bool reduces(uint32_t c)
{
	return c == NPULINK_COLL_ALLREDUCE || c == NPULINK_COLL_REDUCE ||
	       c == NPULINK_COLL_REDUCE_SCATTER || c == NPULINK_COLL_REDUCE_SCATTERV;
}

static bool call_good(const struct npulink_plan_desc *d)
{
	const struct npulink_call *c = d->call;
	bool rooted = c->collective >= NPULINK_COLL_REDUCE &&
		      c->collective <= NPULINK_COLL_GATHERV;
	bool counted = true;

	switch (c->collective) {
	case NPULINK_COLL_SCATTERV:
	case NPULINK_COLL_GATHERV:
	case NPULINK_COLL_ALLGATHERV:
	case NPULINK_COLL_REDUCE_SCATTERV:
	case NPULINK_COLL_ALLTOALLV:
	case NPULINK_COLL_BARRIER:
		counted = false;
	}
	return c->collective < NPULINK_COLLS && c->dtype < NPULINK_DTYPES &&
	       (reduces(c->collective) ? c->redop <= NPULINK_CALL_AVG : !c->redop) &&
	       (rooted ? c->root < d->nranks : !c->root) && (counted || !c->count);
}

static bool peer_good(const struct npulink_plan_desc *d, uint32_t peer, bool used)
{
	return used ? peer < d->nranks && peer != d->rank : peer == NPULINK_NO_PEER;
}

static bool operands_good(const struct npulink_plan_desc *d, const struct npulink_step *s)
{
	struct range r[RANGES];
	bool transient = s->flags & NPULINK_STEP_F_TRANSIENT;
	uint32_t i;

	if (!ranges_of(s, r))
		return false;
	/* "Operands that a step does not use have slot and offset 0." */
	if (r[SRC].from == r[SRC].to && (s->src_slot || s->src_off))
		return false;
	if (r[DST].from == r[DST].to && (s->dst_slot || s->dst_off))
		return false;
	if (r[SRC2].from == r[SRC2].to && (s->src2_slot || (!transient && s->src2_off)))
		return false;
	if (transient && s->src2_off > s->len)
		return false;
	for (i = 0; i < RANGES; i++) {
		uint32_t access = i == DST ? NPULINK_SLOT_WRITE : NPULINK_SLOT_READ;

		if (r[i].from == r[i].to)
			continue;
		if (i == DST && s->op & SEND)
			access |= NPULINK_SLOT_READ;
		if (r[i].slot >= d->nslots || access & ~d->slots[r[i].slot].access ||
		    r[i].to > d->slots[r[i].slot].min_len)
			return false;
	}
	if (s->op & REDUCE || s->flags & NPULINK_STEP_F_SCALES) {
		uint32_t size = npulink_dtype_size(s->dtype);

		if (s->len % size || s->src_off % size || s->dst_off % size ||
		    s->src2_off % size)
			return false;
	}
	/* "src may be the same range as dst; any other overlap is refused." */
	if (overlap(&r[SRC], &r[SRC2]) || overlap(&r[SRC2], &r[DST]))
		return false;
	return !overlap(&r[SRC], &r[DST]) ||
	       (r[SRC].from == r[DST].from && r[SRC].to == r[DST].to);
}

static bool chain_good(const struct npulink_plan_desc *d, uint32_t i)
{
	const struct npulink_step *s = &d->steps[i], *prev = s - 1;
	uint32_t first = i, k;

	if (!i)
		return false;
	while (first && d->steps[first].flags & NPULINK_STEP_F_CHAIN)
		first--;
	if (i - first >= NPULINK_CHAIN_MAX)
		return false;
	if (!(s->op & REDUCE) || !(prev->op & REDUCE) || prev->op & SEND ||
	    prev->flags & (NPULINK_STEP_F_DIV | NPULINK_STEP_F_TRANSIENT) ||
	    s->flags & (NPULINK_STEP_F_DRAIN | NPULINK_STEP_F_SCALE))
		return false;
	if (s->src_slot != s->dst_slot || s->src_off != s->dst_off ||
	    s->dst_slot != prev->dst_slot || s->dst_off != prev->dst_off ||
	    s->len != prev->len || s->dtype != prev->dtype || s->redop != prev->redop)
		return false;
	for (k = 0; k < NPULINK_STEP_DEPS; k++)
		if (s->dep[k] && i - s->dep[k] >= first)
			return false;
	return true;
}

static bool step_good(const struct npulink_plan_desc *d, uint32_t i)
{
	const struct npulink_step *s = &d->steps[i];
	const struct npulink_call *c = d->call;
	uint32_t k;

	if (!op_known(s->op) || s->flags & ~NPULINK_STEP_FLAGS || s->reserved[0] ||
	    s->reserved[1] || s->reserved[2])
		return false;
	if (s->flags & NPULINK_STEP_F_TRANSIENT && (s->op & (RECV | SEND)) != (RECV | SEND))
		return false;
	if (s->flags & NPULINK_STEP_F_DIV && (!(s->op & REDUCE) || c->redop != NPULINK_CALL_AVG))
		return false;
	if (s->flags & NPULINK_STEP_F_SCALES &&
	    (c->redop != NPULINK_CALL_AVG || c->dtype < NPULINK_FLOAT16))
		return false;
	if (s->flags & NPULINK_STEP_F_SCALE && !(s->op & (REDUCE | COPY)))
		return false;
	if (s->flags & NPULINK_STEP_F_SCALE2 && !(s->op & REDUCE))
		return false;
	if (s->flags & NPULINK_STEP_F_REST && !(s->flags & NPULINK_STEP_F_DIV))
		return false;
	if (s->op & REDUCE || s->flags & NPULINK_STEP_F_SCALES) {
		uint32_t redop = c->redop == NPULINK_CALL_AVG ? NPULINK_SUM : c->redop;

		if (!reduces(c->collective) || s->dtype != c->dtype || s->redop != redop)
			return false;
	} else if (s->dtype || s->redop) {
		return false;
	}
	if (!peer_good(d, s->recv_peer, s->op & RECV) || !peer_good(d, s->send_peer, s->op & SEND))
		return false;
	if (s->channel >= (s->op & (RECV | SEND) ? NPULINK_MAX_CHANNELS : 1))
		return false;
	if (s->len > NPULINK_MAX_LEN || (!s->op && s->len) || !operands_good(d, s))
		return false;
	for (k = 0; k < NPULINK_STEP_DEPS; k++)
		if (s->dep[k] > i)
			return false;
	return !(s->flags & NPULINK_STEP_F_CHAIN) || chain_good(d, i);
}

static bool p2p_good(const struct npulink_plan_desc *d)
{
	uint32_t peer = NPULINK_NO_PEER, ways = 0, i;

	for (i = 0; i < d->nsteps; i++) {
		const struct npulink_step *s = &d->steps[i];
		uint32_t other = s->op & SEND ? s->send_peer : s->recv_peer;

		if (!(s->op & (RECV | SEND)))
			continue;
		ways |= s->op & (RECV | SEND);
		if (peer != NPULINK_NO_PEER && peer != other)
			return false;
		peer = other;
	}
	return ways == RECV || ways == SEND;
}

static bool plan_good(const struct npulink_plan_desc *d)
{
	uint32_t i;

	if (!d->nranks || d->nranks > NPULINK_MAX_RANKS || d->rank >= d->nranks ||
	    d->nslots > NPULINK_MAX_SLOTS || d->nsteps > NPULINK_MAX_STEPS || !call_good(d))
		return false;
	for (i = 0; i < d->nslots; i++)
		if (d->slots[i].reserved || d->slots[i].access > 3 ||
		    d->slots[i].min_len > NPULINK_MAX_LEN)
			return false;
	for (i = 0; i < d->nsteps; i++)
		if (!step_good(d, i))
			return false;
	return d->call->collective != NPULINK_COLL_P2P || p2p_good(d);
}

/* ---- races, pair by pair */

static bool touches(const struct npulink_step *a, const struct npulink_step *b)
{
	struct range ra[RANGES], rb[RANGES];
	uint32_t i, k;

	ranges_of(a, ra);
	ranges_of(b, rb);
	for (i = 0; i < RANGES; i++)
		for (k = 0; k < RANGES; k++)
			if ((ra[i].write || rb[k].write) && overlap(&ra[i], &rb[k]))
				return true;
	return false;
}

struct races {
	uint32_t unit[SMALL];
	bool before[SMALL][SMALL];	/* [late][early], by first step of the unit */
};

static void find_order(const struct npulink_plan_desc *d, struct races *w)
{
	uint32_t i, k, e;

	memset(w->before, 0, sizeof(w->before));
	for (i = 0; i < d->nsteps; i++) {
		const struct npulink_step *s = &d->steps[i];

		w->unit[i] = s->flags & NPULINK_STEP_F_CHAIN ? w->unit[i - 1] : i;
		for (k = 0; k < i; k++)
			if (s->flags & NPULINK_STEP_F_DRAIN)
				w->before[w->unit[i]][w->unit[k]] = true;
		for (k = 0; k < NPULINK_STEP_DEPS; k++)
			if (s->dep[k])
				w->before[w->unit[i]][w->unit[i - s->dep[k]]] = true;
	}
	/* Edges lead backwards, so one pass over the later ones closes them. */
	for (i = 0; i < d->nsteps; i++)
		for (k = 0; k < i; k++)
			for (e = 0; w->before[i][k] && e < k; e++)
				if (w->before[k][e])
					w->before[i][e] = true;
}

static bool race(const struct npulink_plan_desc *d, const struct races *w, uint32_t a, uint32_t b)
{
	return w->unit[a] != w->unit[b] && !w->before[w->unit[b]][w->unit[a]] &&
	       touches(&d->steps[a], &d->steps[b]);
}

static void check_races(const struct npulink_plan_desc *d)
{
	static struct races w;
	struct npulink_verdict v;
	int rc = npulink_verify_races(d, &v);
	uint32_t a, b;

	FUZZ_ASSERT(!rc || (rc == -22 && v.reason == NPULINK_BAD_RACE), "rc %d, reason %u", rc,
		    v.reason);
	if (d->nsteps > SMALL)
		return;
	find_order(d, &w);
	if (rc) {
		FUZZ_ASSERT(v.step < d->nsteps && v.other < v.step, "%u, %u", v.step, v.other);
		FUZZ_ASSERT(race(d, &w, v.other, v.step), "refused for steps %u and %u", v.other,
			    v.step);
		return;
	}
	for (b = 0; b < d->nsteps; b++)
		for (a = 0; a < b; a++)
			FUZZ_ASSERT(!race(d, &w, a, b), "missed steps %u and %u", a, b);
}

/* ---- input */

/* A copy of exactly that size, so that whoever reads beyond it is caught. */
static void *exact(const void *p, size_t n)
{
	void *copy = malloc(n ? n : 1);

	FUZZ_ASSERT(copy, "out of memory");
	return n ? memcpy(copy, p, n) : copy;
}

void fuzz_verify(const uint8_t *data, size_t size)
{
	struct npulink_plan_desc d;
	struct npulink_verdict v;
	void *slots, *steps;
	struct head head;
	uint32_t nslots;
	int rc;

	if (size < sizeof(head))
		return;
	memcpy(&head, data, sizeof(head));
	data += sizeof(head);
	size -= sizeof(head);
	nslots = head.nslots <= NPULINK_MAX_SLOTS ? head.nslots : 0;
	if (size < nslots * sizeof(struct npulink_slot))
		return;
	slots = exact(data, nslots * sizeof(struct npulink_slot));
	data += nslots * sizeof(struct npulink_slot);
	size -= nslots * sizeof(struct npulink_slot);
	steps = exact(data, size / sizeof(struct npulink_step) * sizeof(struct npulink_step));
	d = (struct npulink_plan_desc) {
		.call = &head.call, .nranks = head.nranks, .rank = head.rank,
		.nslots = head.nslots, .slots = slots,
		.nsteps = head.many ? NPULINK_MAX_STEPS + head.many :
			  size / sizeof(struct npulink_step),
		.steps = steps,
	};
	rc = npulink_verify(&d, &v);
	FUZZ_ASSERT(!rc == plan_good(&d), "rc %d, step %u: %s", rc, v.step,
		    npulink_bad_reason(v.reason));
	FUZZ_ASSERT(!rc == !v.reason && (!rc || rc == -22) && v.other == ~0U,
		    "rc %d, reason %u, other %u", rc, v.reason, v.other);
	FUZZ_ASSERT(v.step == ~0U || v.step < d.nsteps, "step %u", v.step);
	if (!rc)
		check_races(&d);
	free(slots);
	free(steps);
}

/* ---- mutation */

static size_t start_over(struct rnd *r, uint8_t *data, size_t max)
{
	struct head head = { .nranks = 1 + rnd_below(r, 5), .nslots = 1 + rnd_below(r, 4) };
	uint32_t nsteps = rnd_below(r, rnd_one_in(r, 4) ? 70 : 10), i;
	struct npulink_slot slots[4];
	struct npulink_step *steps;
	size_t size = sizeof(head) + head.nslots * sizeof(slots[0]);

	if (max < size)
		return 0;
	if (nsteps > (max - size) / sizeof(*steps))
		nsteps = (max - size) / sizeof(*steps);
	head.rank = rnd_below(r, head.nranks);
	gen_call(r, &head.call, head.nranks);
	gen_slots(r, slots, head.nslots);
	memcpy(data, &head, sizeof(head));
	memcpy(data + sizeof(head), slots, head.nslots * sizeof(slots[0]));
	steps = calloc(nsteps + 1, sizeof(*steps));
	for (i = 0; steps && i < nsteps; i++)
		gen_step(r, &head.call, head.nranks, head.rank, slots, head.nslots, i,
			 i ? &steps[i - 1] : NULL, &steps[i]);
	if (steps)
		memcpy(data + size, steps, nsteps * sizeof(*steps));
	free(steps);
	return size + nsteps * sizeof(*steps);
}

/* Continue the last step as a chain, about as long as one may be. */
static size_t make_chain(struct rnd *r, uint8_t *p, size_t n, size_t max)
{
	size_t more = rnd_one_in(r, 4) ? NPULINK_CHAIN_MAX - 2 + rnd_below(r, 4) :
		      rnd_below(r, 8);
	struct npulink_step s;

	memcpy(&s, p + (n - 1) * sizeof(s), sizeof(s));
	if (!(s.op & REDUCE))
		return n;
	s.src_slot = s.dst_slot;
	s.src_off = s.dst_off;
	memset(s.dep, 0, sizeof(s.dep));
	s.flags = NPULINK_STEP_F_CHAIN;
	while (more-- && n < max)
		memcpy(p + n++ * sizeof(s), &s, sizeof(s));
	return n;
}

/* One change to a list of steps, as bytes: returns the new number of steps. */
static size_t mutate_steps(struct rnd *r, uint8_t *p, size_t n, size_t max,
			   const struct npulink_call *call, uint32_t nranks, uint32_t rank,
			   const struct npulink_slot *slots, uint32_t nslots)
{
	const size_t size = sizeof(struct npulink_step);
	size_t i = rnd_below(r, n), k = rnd_below(r, n);
	struct npulink_step s, prev;

	if (n && rnd_one_in(r, 16))
		return make_chain(r, p, n, max);
	switch (n ? rnd_below(r, 6) : 0) {
	case 0:		/* append */
		if (n == max)
			return n;
		if (n)
			memcpy(&prev, p + (n - 1) * size, size);
		gen_step(r, call, nranks, rank, slots, nslots, n, n ? &prev : NULL, &s);
		memcpy(p + n * size, &s, size);
		return n + 1;
	case 1:		/* remove */
		memmove(p + i * size, p + (i + 1) * size, (n - i - 1) * size);
		return n - 1;
	case 2:		/* repeat somewhere */
		memcpy(p + k * size, p + i * size, size);
		return n;
	case 3:		/* another one */
		if (i)
			memcpy(&prev, p + (i - 1) * size, size);
		gen_step(r, call, nranks, rank, slots, nslots, i, i ? &prev : NULL, &s);
		memcpy(p + i * size, &s, size);
		return n;
	default:
		memcpy(&s, p + i * size, size);
		gen_bend_step(r, &s);
		memcpy(p + i * size, &s, size);
		return n;
	}
}

static size_t mutate_plan(struct rnd *r, uint8_t *data, size_t size, size_t max, size_t at,
			  struct npulink_call *call, uint32_t nranks, uint32_t rank,
			  uint32_t nslots)
{
	struct npulink_slot slots[NPULINK_MAX_SLOTS];
	size_t n, begin = at + nslots * sizeof(slots[0]);

	memcpy(slots, data + at, nslots * sizeof(slots[0]));
	if (rnd_one_in(r, 16)) {
		if (nslots && rnd_one_in(r, 2))
			gen_bend_bytes(r, &slots[rnd_below(r, nslots)], sizeof(slots[0]));
		else
			gen_slots(r, slots, nslots);
		memcpy(data + at, slots, nslots * sizeof(slots[0]));
	}
	for (n = 0; n < nslots; n++)
		if (slots[n].min_len > 4096)
			slots[n].min_len = 4096;
	if (!nranks || call->dtype >= NPULINK_DTYPES)
		return size;
	n = mutate_steps(r, data + begin, (size - begin) / sizeof(struct npulink_step),
			 (max - begin) / sizeof(struct npulink_step), call, nranks, rank, slots,
			 nslots);
	return begin + n * sizeof(struct npulink_step);
}

size_t fuzz_mutate_verify(uint8_t *data, size_t size, size_t max, unsigned int seed)
{
	struct rnd r = { seed };
	struct head head;

	if (size >= sizeof(head))
		memcpy(&head, data, sizeof(head));
	if (size < sizeof(head) || head.nslots > NPULINK_MAX_SLOTS ||
	    size < sizeof(head) + head.nslots * sizeof(struct npulink_slot) || rnd_one_in(&r, 64))
		return start_over(&r, data, max);
	if (rnd_one_in(&r, 16)) {
		gen_bend_call(&r, &head.call);
		if (rnd_one_in(&r, 4))
			gen_bend_bytes(&r, &head, sizeof(head));
		memcpy(data, &head, sizeof(head));
		return size;
	}
	return mutate_plan(&r, data, size, max, sizeof(head), &head.call, head.nranks, head.rank,
			   head.nslots);
}

/* The same for lib/plan_text.c's file: "npuplan1", ranks, slots, steps, call. */
size_t fuzz_mutate_plan_file(uint8_t *data, size_t size, size_t max, unsigned int seed)
{
	struct file_head {
		char magic[8];
		uint32_t nranks, rank, nslots, nsteps;
		struct npulink_call call;
	} head = { .nranks = 2, .nslots = 0 };
	struct rnd r = { seed };

	if (max < sizeof(head))
		return 0;
	if (size >= sizeof(head))
		memcpy(&head, data, sizeof(head));
	else
		size = sizeof(head);
	if (head.nslots > NPULINK_MAX_SLOTS ||
	    size < sizeof(head) + head.nslots * sizeof(struct npulink_slot))
		head.nslots = 0;
	memcpy(head.magic, "npuplan1", sizeof(head.magic));
	if (rnd_one_in(&r, 8))
		gen_bend_call(&r, &head.call);
	if (rnd_one_in(&r, 8) && max >= sizeof(head) + 4 * sizeof(struct npulink_slot)) {
		head.nslots = rnd_below(&r, 5);
		if (size < sizeof(head) + head.nslots * sizeof(struct npulink_slot)) {
			memset(data + size, 0, sizeof(head) +
			       head.nslots * sizeof(struct npulink_slot) - size);
			size = sizeof(head) + head.nslots * sizeof(struct npulink_slot);
		}
	}
	size = mutate_plan(&r, data, size, max, sizeof(head), &head.call, head.nranks, head.rank,
			   head.nslots);
	head.nsteps = (size - sizeof(head) - head.nslots * sizeof(struct npulink_slot)) /
		      sizeof(struct npulink_step);
	if (rnd_one_in(&r, 16))
		gen_bend_bytes(&r, &head, sizeof(head));
	memcpy(data, &head, sizeof(head));
	return size;
}
