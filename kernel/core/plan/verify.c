// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * verify.c - is this list of steps safe to run?
 *
 * npulink_verify() looks at each step once: what the kernel must know before it
 * lets a device loose on the bytes.  npulink_verify_races() proves that no two
 * steps which may run at the same time touch the same bytes with one of them
 * writing.  The same file is part of npulink.ko, libcoll and the fuzzers; what
 * differs between kernel and userspace is at its head.
 */
#ifdef __KERNEL__
#include <linux/errno.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/string.h>
#define verify_alloc(n, size)	kvcalloc(n, size, GFP_KERNEL_ACCOUNT)
#define verify_free(p)		kvfree(p)
#define verify_yield()		({ cond_resched(); fatal_signal_pending(current); })
#else
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#define verify_alloc(n, size)	calloc(n, size)
#define verify_free(p)		free(p)
#define verify_yield()		0
#define ARRAY_SIZE(a)		(sizeof(a) / sizeof((a)[0]))
#endif
#include <npulink/verify.h>

#define YIELD_STEPS	4096	/* look for signals every so many steps */
#define NONE		(~0U)

static const char * const bad_reasons[] = {
	[NPULINK_BAD_NONE] = "nothing wrong",
	[NPULINK_BAD_OP] = "no such combination of operations",
	[NPULINK_BAD_FLAGS] = "unknown flag, or one that does not fit the operation",
	[NPULINK_BAD_RESERVED] = "an unused member is not zero",
	[NPULINK_BAD_DTYPE] = "unknown data type or reduction",
	[NPULINK_BAD_PEER] = "peer is out of range, or the own rank",
	[NPULINK_BAD_CHANNEL] = "channel out of range",
	[NPULINK_BAD_SLOT] = "slot out of range, or without the access",
	[NPULINK_BAD_RANGE] = "operand exceeds its slot, or is too long",
	[NPULINK_BAD_ALIGN] = "offset or length is no multiple of the data type",
	[NPULINK_BAD_OVERLAP] = "operands of the step overlap",
	[NPULINK_BAD_DEP] = "dependency on a step before the first",
	[NPULINK_BAD_CHAIN] = "cannot continue the step before it as a chain",
	[NPULINK_BAD_WINDOW] = "window larger than the step, or not whole elements",
	[NPULINK_BAD_RACE] = "not ordered after an earlier step on the same bytes",
	[NPULINK_BAD_CALL] = "malformed call, or a step that does not belong to it",
	[NPULINK_BAD_SELF] = "point-to-point plan without exactly one peer and direction",
};

const char *npulink_bad_reason(__u32 reason)
{
	if (reason >= ARRAY_SIZE(bad_reasons))
		return "unknown reason";
	return bad_reasons[reason];
}

/* ---- one step at a time */

/* Bit n is set if n is an op of the table in npulink_step.h. */
#define VALID_OPS	0x11ff

static __u32 check_plan(const struct npulink_plan_desc *d)
{
	const struct npulink_call *call = d->call;
	__u32 i;

	if (!d->nranks || d->nranks > NPULINK_MAX_RANKS || d->rank >= d->nranks ||
	    d->nslots > NPULINK_MAX_SLOTS || d->nsteps > NPULINK_MAX_STEPS)
		return NPULINK_BAD_CALL;
	if (call->collective >= NPULINK_COLLS)
		return NPULINK_BAD_CALL;
	if (call->dtype >= NPULINK_DTYPES ||
	    call->redop > (npulink_coll_reduces(call->collective) ? NPULINK_CALL_AVG : 0))
		return NPULINK_BAD_DTYPE;
	if (call->root >= (npulink_coll_has_root(call->collective) ? d->nranks : 1))
		return NPULINK_BAD_CALL;
	if (call->count && (npulink_coll_is_v(call->collective) ||
			    call->collective == NPULINK_COLL_BARRIER))
		return NPULINK_BAD_CALL;

	for (i = 0; i < d->nslots; i++) {
		if (d->slots[i].reserved)
			return NPULINK_BAD_RESERVED;
		if (d->slots[i].access & ~(NPULINK_SLOT_READ | NPULINK_SLOT_WRITE))
			return NPULINK_BAD_SLOT;
		if (d->slots[i].min_len > NPULINK_MAX_LEN)
			return NPULINK_BAD_RANGE;
	}
	return NPULINK_BAD_NONE;
}

/* The three operands of a step, as byte ranges of slots. */
enum { SRC, SRC2, DST, OPERANDS };

struct operand {
	__u64 off, len;		/* len 0: not used */
	__u32 slot;
};

static void step_operands(const struct npulink_step *s, struct operand *o)
{
	bool reduce = s->op & NPULINK_STEP_REDUCE;
	bool local = reduce && !(s->op & NPULINK_STEP_RECV);

	memset(o, 0, OPERANDS * sizeof(*o));
	if (reduce || (s->op & NPULINK_STEP_COPY) || s->op == NPULINK_STEP_SEND) {
		o[SRC].slot = s->src_slot;
		o[SRC].off = s->src_off;
		o[SRC].len = s->len;
	}
	if (local) {
		o[SRC2].slot = s->src2_slot;
		o[SRC2].off = s->src2_off;
		o[SRC2].len = s->len;
	}
	if (s->op && s->op != NPULINK_STEP_SEND) {
		o[DST].slot = s->dst_slot;
		o[DST].off = s->dst_off;
		o[DST].len = s->len;
		/* A window wraps around, so it is all that is touched. */
		if ((s->flags & NPULINK_STEP_F_TRANSIENT) && s->src2_off)
			o[DST].len = s->src2_off;
	}
}

static bool operands_overlap(const struct operand *a, const struct operand *b)
{
	return a->len && b->len && a->slot == b->slot &&
	       a->off < b->off + b->len && b->off < a->off + a->len;
}

static __u32 check_operands(const struct npulink_plan_desc *d, const struct npulink_step *s)
{
	struct operand o[OPERANDS];
	__u32 i, access[OPERANDS] = {
		[SRC] = NPULINK_SLOT_READ,
		[SRC2] = NPULINK_SLOT_READ,
		[DST] = NPULINK_SLOT_WRITE,
	};
	bool transient = s->flags & NPULINK_STEP_F_TRANSIENT;

	step_operands(s, o);
	if (!o[SRC].len && (s->src_slot || s->src_off))
		return NPULINK_BAD_RESERVED;
	if (!o[DST].len && (s->dst_slot || s->dst_off))
		return NPULINK_BAD_RESERVED;
	if (!o[SRC2].len && (s->src2_slot || (s->src2_off && !transient)))
		return NPULINK_BAD_RESERVED;
	if (transient && s->src2_off > s->len)
		return NPULINK_BAD_WINDOW;

	if (s->op & NPULINK_STEP_SEND)
		access[DST] |= NPULINK_SLOT_READ;	/* it is offered from there */
	for (i = 0; i < OPERANDS; i++) {
		const struct npulink_slot *slot;

		if (!o[i].len)
			continue;
		if (o[i].slot >= d->nslots)
			return NPULINK_BAD_SLOT;
		slot = &d->slots[o[i].slot];
		if ((slot->access & access[i]) != access[i])
			return NPULINK_BAD_SLOT;
		if (o[i].off > slot->min_len || o[i].len > slot->min_len - o[i].off)
			return NPULINK_BAD_RANGE;
	}

	if (s->op & NPULINK_STEP_REDUCE || s->flags & NPULINK_STEP_F_SCALES) {
		__u64 mask = npulink_dtype_size(s->dtype) - 1;

		if ((s->len | o[SRC].off | o[SRC2].off | o[DST].off) & mask)
			return NPULINK_BAD_ALIGN;
		if (transient && (s->src2_off & mask))
			return NPULINK_BAD_WINDOW;
	}

	if (operands_overlap(&o[SRC], &o[SRC2]) || operands_overlap(&o[SRC2], &o[DST]))
		return NPULINK_BAD_OVERLAP;
	if (operands_overlap(&o[SRC], &o[DST]) &&
	    (o[SRC].off != o[DST].off || o[SRC].len != o[DST].len))
		return NPULINK_BAD_OVERLAP;
	return NPULINK_BAD_NONE;
}

static __u32 check_peer(const struct npulink_plan_desc *d, __u32 peer, bool used)
{
	if (!used)
		return peer == NPULINK_NO_PEER ? NPULINK_BAD_NONE : NPULINK_BAD_RESERVED;
	return peer < d->nranks && peer != d->rank ? NPULINK_BAD_NONE : NPULINK_BAD_PEER;
}

/* @pos: position of step @i in its chain, 1 for the second. */
static __u32 check_chain(const struct npulink_step *s, __u32 i, __u32 pos)
{
	const struct npulink_step *prev = s - 1;
	__u32 k;

	if (!i || pos >= NPULINK_CHAIN_MAX)
		return NPULINK_BAD_CHAIN;
	if (!(s->op & NPULINK_STEP_REDUCE) || !(prev->op & NPULINK_STEP_REDUCE))
		return NPULINK_BAD_CHAIN;
	if (s->flags & (NPULINK_STEP_F_DRAIN | NPULINK_STEP_F_SCALE))
		return NPULINK_BAD_CHAIN;
	if ((prev->op & NPULINK_STEP_SEND) ||
	    (prev->flags & (NPULINK_STEP_F_DIV | NPULINK_STEP_F_TRANSIENT)))
		return NPULINK_BAD_CHAIN;
	if (s->src_slot != s->dst_slot || s->src_off != s->dst_off ||
	    s->dst_slot != prev->dst_slot || s->dst_off != prev->dst_off ||
	    s->len != prev->len || s->dtype != prev->dtype || s->redop != prev->redop)
		return NPULINK_BAD_CHAIN;
	for (k = 0; k < NPULINK_STEP_DEPS; k++)
		if (s->dep[k] && s->dep[k] <= pos)
			return NPULINK_BAD_CHAIN;
	return NPULINK_BAD_NONE;
}

/* Only floats are scaled, for their mean: inputs of sums, and what is copied; the rest divides. */
static bool scales_well(const struct npulink_plan_desc *d, const struct npulink_step *s)
{
	if (d->call->redop != NPULINK_CALL_AVG || !npulink_dtype_is_float(d->call->dtype))
		return false;
	if (s->flags & NPULINK_STEP_F_SCALE &&
	    !(s->op & NPULINK_STEP_REDUCE) && !(s->op & NPULINK_STEP_COPY))
		return false;
	if (s->flags & NPULINK_STEP_F_SCALE2 && !(s->op & NPULINK_STEP_REDUCE))
		return false;
	return !(s->flags & NPULINK_STEP_F_REST) || s->flags & NPULINK_STEP_F_DIV;
}

static __u32 check_step(const struct npulink_plan_desc *d, __u32 i, __u32 pos)
{
	const struct npulink_step *s = &d->steps[i];
	bool recv = s->op & NPULINK_STEP_RECV, send = s->op & NPULINK_STEP_SEND;
	bool reduce = s->op & NPULINK_STEP_REDUCE;
	__u32 k, bad;

	if (s->op > NPULINK_STEP_OPS || !(VALID_OPS >> s->op & 1))
		return NPULINK_BAD_OP;
	if (s->flags & ~NPULINK_STEP_FLAGS)
		return NPULINK_BAD_FLAGS;
	if ((s->flags & NPULINK_STEP_F_TRANSIENT) && !(recv && send))
		return NPULINK_BAD_FLAGS;
	if ((s->flags & NPULINK_STEP_F_DIV) &&
	    (!reduce || d->call->redop != NPULINK_CALL_AVG))
		return NPULINK_BAD_FLAGS;
	if (s->flags & NPULINK_STEP_F_SCALES && !scales_well(d, s))
		return NPULINK_BAD_FLAGS;
	if (s->reserved[0] || s->reserved[1] || s->reserved[2])
		return NPULINK_BAD_RESERVED;

	if (reduce || s->flags & NPULINK_STEP_F_SCALES) {
		if (s->dtype >= NPULINK_DTYPES || s->redop >= NPULINK_REDOPS)
			return NPULINK_BAD_DTYPE;
		if (!npulink_coll_reduces(d->call->collective) || s->dtype != d->call->dtype)
			return NPULINK_BAD_CALL;
		if (s->redop != (d->call->redop == NPULINK_CALL_AVG ?
				 NPULINK_SUM : d->call->redop))
			return NPULINK_BAD_CALL;
	} else if (s->dtype || s->redop) {
		return NPULINK_BAD_RESERVED;
	}

	bad = check_peer(d, s->recv_peer, recv);
	if (!bad)
		bad = check_peer(d, s->send_peer, send);
	if (bad)
		return bad;
	if (s->channel && !(recv || send))
		return NPULINK_BAD_RESERVED;
	if (s->channel >= NPULINK_MAX_CHANNELS)
		return NPULINK_BAD_CHANNEL;

	if (!s->op && s->len)
		return NPULINK_BAD_RESERVED;
	if (s->len > NPULINK_MAX_LEN)
		return NPULINK_BAD_RANGE;
	bad = check_operands(d, s);
	if (bad)
		return bad;

	for (k = 0; k < NPULINK_STEP_DEPS; k++)
		if (s->dep[k] > i)
			return NPULINK_BAD_DEP;
	if (s->flags & NPULINK_STEP_F_CHAIN)
		return check_chain(s, i, pos);
	return NPULINK_BAD_NONE;
}

static int verdict(struct npulink_verdict *v, __u32 step, __u32 reason, __u32 other)
{
	v->step = step;
	v->reason = reason;
	v->other = other;
	return reason ? -EINVAL : 0;
}

int npulink_verify(const struct npulink_plan_desc *d, struct npulink_verdict *v)
{
	__u32 i, bad, pos = 0, to = NPULINK_NO_PEER, from = NPULINK_NO_PEER;

	bad = check_plan(d);
	if (bad)
		return verdict(v, NONE, bad, NONE);

	for (i = 0; i < d->nsteps; i++) {
		const struct npulink_step *s = &d->steps[i];

		pos = s->flags & NPULINK_STEP_F_CHAIN ? pos + 1 : 0;
		bad = check_step(d, i, pos);
		if (bad)
			return verdict(v, i, bad, NONE);

		/* The pair's numbering needs one pair, and one direction. */
		if (d->call->collective == NPULINK_COLL_P2P) {
			if (s->op & NPULINK_STEP_SEND) {
				if (to != NPULINK_NO_PEER && to != s->send_peer)
					return verdict(v, i, NPULINK_BAD_SELF, NONE);
				to = s->send_peer;
			}
			if (s->op & NPULINK_STEP_RECV) {
				if (from != NPULINK_NO_PEER && from != s->recv_peer)
					return verdict(v, i, NPULINK_BAD_SELF, NONE);
				from = s->recv_peer;
			}
			if (to != NPULINK_NO_PEER && from != NPULINK_NO_PEER)
				return verdict(v, i, NPULINK_BAD_SELF, NONE);
		}

		if (i % YIELD_STEPS == YIELD_STEPS - 1 && verify_yield()) {
			verdict(v, i, NPULINK_BAD_NONE, NONE);
			return -EINTR;
		}
	}
	if (d->call->collective == NPULINK_COLL_P2P &&
	    to == NPULINK_NO_PEER && from == NPULINK_NO_PEER)
		return verdict(v, NONE, NPULINK_BAD_SELF, NONE);
	return verdict(v, NONE, NPULINK_BAD_NONE, NONE);
}

/* ---- which steps are ordered */

/*
 * A chain is one request to the device, so the unit of order is a chain, or a
 * step that is in none; it goes by the index of its first step.  Up to
 * MATRIX_STEPS the whole order is kept as a bit matrix, so that even a hostile
 * plan takes bounded time.  Longer lists (never in the kernel unless the caller
 * asks) are searched backwards from the later unit, never past the earlier one.
 */
#define MATRIX_STEPS	4096

struct order {
	const struct npulink_plan_desc *d;
	__u32 *unit;		/* [nsteps] first step of the chain */
	__u64 *before;		/* [nsteps][words] bit e: unit e is done before */
	__u32 words;
	__u32 *drained;		/* [nsteps] last unit with DRAIN that is done before, or it */
	__u32 *seen, *stack;	/* [nsteps] of the search */
	__u32 stamp;
	__u64 work;		/* steps visited, to yield now and then */
	bool killed;
};

static void order_free(struct order *o)
{
	verify_free(o->unit);
	verify_free(o->before);
	verify_free(o->drained);
	verify_free(o->seen);
	verify_free(o->stack);
}

static bool order_yield(struct order *o, __u32 work)
{
	o->work += work;
	if (o->work >= YIELD_STEPS) {
		o->work = 0;
		if (verify_yield())
			o->killed = true;
	}
	return o->killed;
}

static void order_fill_matrix(struct order *o)
{
	const struct npulink_step *s = o->d->steps;
	__u32 i, k, w;

	for (i = 0; i < o->d->nsteps && !order_yield(o, 8); i++) {
		__u64 *row = o->before + (size_t)o->unit[i] * o->words;

		if (s[i].flags & NPULINK_STEP_F_DRAIN) {
			memset(row, 0xff, i / 64 * sizeof(*row));
			if (i % 64)
				row[i / 64] |= ~0ULL >> (64 - i % 64);
			continue;
		}
		for (k = 0; k < NPULINK_STEP_DEPS; k++) {
			__u32 e = o->unit[i - s[i].dep[k]];
			const __u64 *early = o->before + (size_t)e * o->words;

			if (!s[i].dep[k])
				continue;
			for (w = 0; w <= e / 64; w++)
				row[w] |= early[w];
			row[e / 64] |= 1ULL << e % 64;
		}
	}
}

/* All that is listed before a unit with DRAIN is done before what comes after that. */
static void order_fill_drained(struct order *o)
{
	const struct npulink_step *s = o->d->steps;
	__u32 i, k;

	for (i = 0; i < o->d->nsteps && !order_yield(o, 1); i++) {
		__u32 *last = &o->drained[o->unit[i]];

		if (s[i].flags & NPULINK_STEP_F_DRAIN)
			*last = i;
		for (k = 0; k < NPULINK_STEP_DEPS; k++) {
			__u32 e = o->unit[i - s[i].dep[k]];

			if (s[i].dep[k] && o->drained[e] > *last)
				*last = o->drained[e];
		}
	}
}

static int order_init(struct order *o, const struct npulink_plan_desc *d)
{
	__u32 i, n = d->nsteps;

	memset(o, 0, sizeof(*o));
	o->d = d;
	o->unit = verify_alloc(n, sizeof(*o->unit));
	if (!o->unit)
		return -ENOMEM;
	for (i = 0; i < n; i++)
		o->unit[i] = d->steps[i].flags & NPULINK_STEP_F_CHAIN ? o->unit[i - 1] : i;

	if (n <= MATRIX_STEPS) {
		o->words = (n + 63) / 64;
		o->before = verify_alloc((size_t)n * o->words, sizeof(*o->before));
		if (!o->before)
			return -ENOMEM;
		order_fill_matrix(o);
		return o->killed ? -EINTR : 0;
	}
	o->drained = verify_alloc(n, sizeof(*o->drained));
	o->seen = verify_alloc(n, sizeof(*o->seen));
	o->stack = verify_alloc(n, sizeof(*o->stack));
	if (!o->drained || !o->seen || !o->stack)
		return -ENOMEM;
	order_fill_drained(o);
	return o->killed ? -EINTR : 0;
}

/* Is unit @early done before unit @late starts? */
static bool ordered(struct order *o, __u32 late, __u32 early)
{
	const struct npulink_step *s = o->d->steps;
	__u32 top = 0, i, k;

	if (o->before)
		return o->before[(size_t)late * o->words + early / 64] >> early % 64 & 1;
	if (early < o->drained[late])
		return true;

	if (!++o->stamp) {
		memset(o->seen, 0, o->d->nsteps * sizeof(*o->seen));
		o->stamp = 1;
	}
	o->stack[top++] = late;
	while (top && !order_yield(o, 1)) {
		i = o->stack[--top];
		if (s[i].flags & NPULINK_STEP_F_DRAIN)
			return true;
		do {
			for (k = 0; k < NPULINK_STEP_DEPS; k++) {
				__u32 e = o->unit[i - s[i].dep[k]];

				if (!s[i].dep[k] || e < early || o->seen[e] == o->stamp)
					continue;
				if (e == early)
					return true;
				o->seen[e] = o->stamp;
				o->stack[top++] = e;
			}
			i++;
		} while (i < o->d->nsteps && (s[i].flags & NPULINK_STEP_F_CHAIN));
	}
	return false;
}

/* ---- sets of units, with the next and the previous member in O(1) */

#define LEVELS	4	/* 64^4 > NPULINK_MAX_STEPS */

struct set {
	__u64 *level[LEVELS];
	__u32 words[LEVELS];
	__u64 *mem;
};

static int set_init(struct set *set, __u32 n)
{
	__u32 l, total = 0;

	for (l = 0; l < LEVELS; l++) {
		n = (n + 63) / 64;
		set->words[l] = n;
		total += n;
	}
	set->mem = verify_alloc(total, sizeof(*set->mem));
	if (!set->mem)
		return -ENOMEM;
	for (l = 0, total = 0; l < LEVELS; total += set->words[l++])
		set->level[l] = set->mem + total;
	return 0;
}

static void set_add(struct set *set, __u32 i)
{
	__u32 l;

	for (l = 0; l < LEVELS; l++, i /= 64)
		set->level[l][i / 64] |= 1ULL << i % 64;
}

static void set_del(struct set *set, __u32 i)
{
	__u32 l;

	for (l = 0; l < LEVELS; l++, i /= 64) {
		set->level[l][i / 64] &= ~(1ULL << i % 64);
		if (set->level[l][i / 64])
			break;
	}
}

/* The smallest member above @i. */
static __u32 set_next(const struct set *set, __u32 i)
{
	__u32 l;

	for (l = 0, i++; l < LEVELS; l++, i = i / 64 + 1) {
		__u64 w;

		if (i / 64 >= set->words[l])
			return NONE;
		w = set->level[l][i / 64] & ~0ULL << i % 64;
		if (!w)
			continue;
		i = i / 64 * 64 + __builtin_ctzll(w);
		while (l--)
			i = i * 64 + __builtin_ctzll(set->level[l][i]);
		return i;
	}
	return NONE;
}

/* The largest member below @i. */
static __u32 set_prev(const struct set *set, __u32 i)
{
	__u32 l;

	for (l = 0; l < LEVELS && i; l++, i /= 64) {
		__u64 w;

		i--;
		w = set->level[l][i / 64] & ~0ULL >> (63 - i % 64);
		if (!w)
			continue;
		i = i / 64 * 64 + 63 - __builtin_clzll(w);
		while (l--)
			i = i * 64 + 63 - __builtin_clzll(set->level[l][i]);
		return i;
	}
	return NONE;
}

/* ---- the sweep */

/* A range of bytes begins or ends to be accessed. */
struct event {
	__u64 key;		/* slot, address, begin: ends sort before begins */
	__u32 unit;
	__u32 write;
};

#define KEY(slot, addr, begin)	((__u64)(slot) << 42 | (addr) << 1 | (begin))
#define KEY_SLOT(key)		((__u32)((key) >> 42))
#define KEY_ADDR(key)		((key) >> 1 & ((1ULL << 41) - 1))

/*
 * Which operands of step @i count: within a chain everybody's dst is that of
 * the first, and a src that is the dst is covered by it.
 */
static __u32 step_accesses(const struct npulink_step *s, struct operand *o)
{
	__u32 i, n = 0;

	step_operands(s, o);
	if (s->flags & NPULINK_STEP_F_CHAIN)
		o[DST].len = 0;
	if (s->src_slot == s->dst_slot && s->src_off == s->dst_off &&
	    s->op != NPULINK_STEP_SEND)
		o[SRC].len = 0;
	for (i = 0; i < OPERANDS; i++)
		n += !!o[i].len;
	return n;
}

/* Bottom-up merge sort: stable, so that equal keys stay in list order. */
static bool sort_events(struct event *ev, struct event *tmp, size_t n, struct order *o)
{
	struct event *a = ev, *b = tmp, *t;
	size_t width, lo;

	for (width = 1; width < n; width *= 2) {
		for (lo = 0; lo < n; lo += 2 * width) {
			size_t mid = lo + width < n ? lo + width : n;
			size_t hi = mid + width < n ? mid + width : n;
			size_t i = lo, j = mid, k;

			for (k = lo; k < hi; k++)
				b[k] = i < mid && (j == hi || a[i].key <= a[j].key) ?
				       a[i++] : a[j++];
			if (order_yield(o, (hi - lo) / 8 + 1))
				return false;
		}
		t = a;
		a = b;
		b = t;
	}
	if (a != ev)
		memcpy(ev, a, n * sizeof(*ev));
	return true;
}

struct sweep {
	struct order order;
	struct event *events, *tmp;
	size_t nevents;
	struct set writers, readers;
	__u16 *nreads;		/* [nsteps] ranges that a unit reads here */
};

static void sweep_free(struct sweep *w)
{
	order_free(&w->order);
	verify_free(w->events);
	verify_free(w->tmp);
	verify_free(w->writers.mem);
	verify_free(w->readers.mem);
	verify_free(w->nreads);
}

static int sweep_init(struct sweep *w, const struct npulink_plan_desc *d)
{
	struct operand o[OPERANDS];
	struct event *ev;
	size_t n = 0;
	__u32 i, k;
	int rc;

	rc = order_init(&w->order, d);
	if (rc)
		return rc;
	for (i = 0; i < d->nsteps; i++)
		n += 2 * step_accesses(&d->steps[i], o);
	w->nevents = n;
	w->events = verify_alloc(n + 1, sizeof(*w->events));
	w->tmp = verify_alloc(n + 1, sizeof(*w->tmp));
	w->nreads = verify_alloc(d->nsteps, sizeof(*w->nreads));
	if (!w->events || !w->tmp || !w->nreads ||
	    set_init(&w->writers, d->nsteps) || set_init(&w->readers, d->nsteps))
		return -ENOMEM;

	ev = w->events;
	for (i = 0; i < d->nsteps; i++) {
		step_accesses(&d->steps[i], o);
		for (k = 0; k < OPERANDS; k++) {
			__u64 end = o[k].off + o[k].len;

			if (!o[k].len)
				continue;
			*ev++ = (struct event){ KEY(o[k].slot, o[k].off, 1),
						w->order.unit[i], k == DST };
			*ev++ = (struct event){ KEY(o[k].slot, end, 0),
						w->order.unit[i], k == DST };
		}
	}
	return sort_events(w->events, w->tmp, n, &w->order) ? 0 : -EINTR;
}

/* Not ordered? Then the pair is a race. */
static bool conflict(struct sweep *w, __u32 a, __u32 b, __u32 *early, __u32 *late)
{
	*early = a < b ? a : b;
	*late = a < b ? b : a;
	return !ordered(&w->order, *late, *early);
}

/*
 * What is in the sets is pairwise ordered wherever one of the pair writes, so
 * for a newcomer it suffices to look at its neighbours: the nearest writer on
 * either side and, if it writes itself, the readers in between.  All others
 * follow, order being transitive, and for the same reason nothing has to be
 * looked at when a range ends.
 */
static bool sweep_begin(struct sweep *w, __u32 unit, bool write, __u32 *early, __u32 *late)
{
	__u32 prev = set_prev(&w->writers, unit), next = set_next(&w->writers, unit);
	__u32 r;

	if (prev != NONE && conflict(w, prev, unit, early, late))
		return false;
	if (next != NONE && conflict(w, next, unit, early, late))
		return false;
	if (!write)
		return true;

	for (r = set_prev(&w->readers, unit); r != NONE && (prev == NONE || r > prev);
	     r = set_prev(&w->readers, r))
		if (conflict(w, r, unit, early, late))
			return false;
	for (r = set_next(&w->readers, unit); r != NONE && r < next;
	     r = set_next(&w->readers, r))
		if (conflict(w, r, unit, early, late))
			return false;
	return true;
}

/* The step of a unit that touches the byte where the sweep found the race. */
static __u32 culprit(const struct npulink_plan_desc *d, __u32 unit, __u64 key)
{
	struct operand o[OPERANDS];
	__u32 i = unit, k;

	do {
		step_accesses(&d->steps[i], o);
		for (k = 0; k < OPERANDS; k++)
			if (o[k].len && o[k].slot == KEY_SLOT(key) &&
			    KEY_ADDR(key) >= o[k].off && KEY_ADDR(key) - o[k].off < o[k].len)
				return i;
		i++;
	} while (i < d->nsteps && (d->steps[i].flags & NPULINK_STEP_F_CHAIN));
	return unit;
}

int npulink_verify_races(const struct npulink_plan_desc *d, struct npulink_verdict *v)
{
	struct sweep w = {};
	__u32 early, late;
	size_t i;
	int rc;

	verdict(v, NONE, NPULINK_BAD_NONE, NONE);
	if (!d->nsteps)
		return 0;
	rc = sweep_init(&w, d);
	for (i = 0; !rc && i < w.nevents; i++) {
		const struct event *ev = &w.events[i];

		if (!(ev->key & 1)) {
			if (ev->write)
				set_del(&w.writers, ev->unit);
			else if (!--w.nreads[ev->unit])
				set_del(&w.readers, ev->unit);
			continue;
		}
		if (!sweep_begin(&w, ev->unit, ev->write, &early, &late)) {
			rc = w.order.killed ? -EINTR :
			     verdict(v, culprit(d, late, ev->key), NPULINK_BAD_RACE,
				     culprit(d, early, ev->key));
			break;
		}
		if (ev->write)
			set_add(&w.writers, ev->unit);
		else if (!w.nreads[ev->unit]++)
			set_add(&w.readers, ev->unit);
		if (order_yield(&w.order, 1))
			rc = -EINTR;
	}
	sweep_free(&w);
	return rc;
}
