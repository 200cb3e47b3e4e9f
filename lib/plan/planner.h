/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * planner.h - what planners are written with: places, shards, and one function
 * for each kind of step.
 *
 * Functions that append a step return its index, to be named by plan_after()
 * later. Errors stick to the plan and are looked at once, by coll_plan_make(), so
 * planners need not check each call. A step of 0 bytes is left out: both
 * ends know the length, so both leave it out.
 */
#ifndef COLL_PLANNER_H
#define COLL_PLANNER_H

#include "base/base.h"
#include "plan/plan.h"

#ifndef __printf
#define __printf(fmt, args)	__attribute__((__format__(__printf__, fmt, args)))
#endif

/* Part of the set id: ranks with planners that differ must not meet. */
#define PLANNER_VERSION		3

#define PLAN_NONE		0xffffffffU

/* Bytes of a window through which a long step passes on its way. */
#define PLAN_WINDOW		(256 * 1024)

/*
 * A place in a slot. @plain: one rank's input is there as it was, to be scaled in a mean of
 * floats.
 */
struct plan_at {
	uint32_t slot;
	uint64_t off;
	bool plain;
};

static inline struct plan_at at_send(uint64_t off)
{
	return (struct plan_at){ .slot = NPULINK_SLOT_SEND, .off = off };
}

static inline struct plan_at at_recv(uint64_t off)
{
	return (struct plan_at){ .slot = NPULINK_SLOT_RECV, .off = off };
}

static inline struct plan_at at_plus(struct plan_at at, uint64_t off)
{
	at.off += off;
	return at;
}

/* Reserve scratch memory. */
struct plan_at plan_scratch(struct coll_plan *plan, uint64_t len);

/*
 * The next step appended starts after step @on has ended (PLAN_NONE: no matter),
 * or after all steps so far, or after those from @first on. More than three meet in
 * nops.
 */
void plan_after(struct coll_plan *plan, uint32_t on);
void plan_after_all(struct coll_plan *plan);
void plan_after_since(struct coll_plan *plan, uint32_t first);

uint32_t plan_nop(struct coll_plan *plan);
uint32_t plan_copy(struct coll_plan *plan, struct plan_at src, struct plan_at dst, uint64_t len);
/* The same of inputs, which are no longer plain in @dst. It may be @src. */
uint32_t plan_copy_scaled(struct coll_plan *plan, struct plan_at src, struct plan_at dst,
			  uint64_t len);
uint32_t plan_copy_send(struct coll_plan *plan, uint32_t to, struct plan_at src,
			struct plan_at dst, uint64_t len);
uint32_t plan_reduce(struct coll_plan *plan, struct plan_at src, struct plan_at src2,
		     struct plan_at dst, uint64_t len);
uint32_t plan_send(struct coll_plan *plan, uint32_t to, struct plan_at src, uint64_t len);
uint32_t plan_recv(struct coll_plan *plan, uint32_t from, struct plan_at dst, uint64_t len);
uint32_t plan_recv_send(struct coll_plan *plan, uint32_t from, uint32_t to,
			struct plan_at dst, uint64_t len);
uint32_t plan_recv_reduce(struct coll_plan *plan, uint32_t from, struct plan_at src,
			  struct plan_at dst, uint64_t len);
uint32_t plan_recv_reduce_send(struct coll_plan *plan, uint32_t from, uint32_t to,
			       struct plan_at src, struct plan_at dst, uint64_t len);

/*
 * Is it the mean of floats? Their sum may be infinite where the mean is not: each input is scaled
 * by a power of two where it is first added, and the last step divides by what is left. Sums are
 * therefore never plain, and who adds what comes says whether that is.
 */
bool plan_scales(const struct coll_plan *plan);

/* Messages without payload: not left out. */
uint32_t plan_signal(struct coll_plan *plan, uint32_t to);
uint32_t plan_await(struct coll_plan *plan, uint32_t from);

/* What is true of the step just appended; @step may be PLAN_NONE. */
void plan_transient(struct coll_plan *plan, uint32_t step, uint64_t window);
void plan_final(struct coll_plan *plan, uint32_t step);	/* AVG divides here */
/* The step adds an input. */
void plan_recv_plain(struct coll_plan *plan, uint32_t step, bool plain);
void plan_chain(struct coll_plan *plan, uint32_t step);	/* continues the one before */
void plan_channel(struct coll_plan *plan, uint32_t step, uint32_t channel);

/*
 * Which slots there are, and their access, from the steps; slots that no step
 * touches get length 0.
 */
void plan_fill_slots(struct coll_plan *plan);

/*
 * How a buffer is cut into one shard per rank: by counts (v forms), into shards
 * of equal size, or a given number of elements as evenly as can be: n / p each
 * and one more for the first n % p. All in bytes.
 */
struct plan_shards {
	const uint64_t *counts, *displs;
	uint64_t count, extra;
	uint64_t esize;
	uint32_t n;
};

/* The shards of the collective's large buffer. */
struct plan_shards plan_shards(const struct coll_args *args);
/* @count elements in @n parts. */
struct plan_shards plan_split(uint64_t count, uint32_t n, uint64_t esize);

static inline uint64_t shard_len(const struct plan_shards *s, uint32_t i)
{
	return (s->counts ? s->counts[i] : s->count + (i < s->extra)) * s->esize;
}

static inline uint64_t shard_off(const struct plan_shards *s, uint32_t i)
{
	if (s->counts)
		return s->displs[i] * s->esize;
	return (i * s->count + (i < s->extra ? i : s->extra)) * s->esize;
}

/* The largest shard: what the closed forms count with. */
uint64_t shard_max(const struct plan_shards *s);

/*
 * Chunks that a pipelined algorithm takes: what the caller says, else the best for
 * the network at hand, at least 1 and at most one per element.
 */
uint32_t plan_chunks(const struct coll_args *args,
		     uint32_t (*best)(const struct coll_args *args,
				      const struct coll_cost_params *params));

/* A root of a closed form as a number of chunks. */
uint32_t chunks_of(double k, const struct coll_args *args);

/*
 * What a round takes longer than its form says since its messages share links: of @bytes, by
 * all ranks to the one 2^@i above, or whose number differs in bit i.
 */
static inline double crowded(double load, const struct coll_cost_params *c, double bytes)
{
	return (load - 1) * (c->alpha + bytes * c->beta);
}

static inline double crowd_shift(const struct coll_cost_params *c, uint32_t i, double bytes)
{
	return c->wires ? crowded(c->wires->shift[i], c, bytes) : 0;
}

static inline double crowd_exchange(const struct coll_cost_params *c, uint32_t i, double bytes)
{
	return c->wires ? crowded(c->wires->exchange[i], c, bytes) : 0;
}

/* How many times longer it takes to send to each of the others. */
static inline double crowd_each(const struct coll_cost_params *c)
{
	return c->wires ? c->wires->each : 1;
}

/* Does the own rank really have but one buffer where others may have two? */
bool plan_in_place(const struct coll_args *args);

/* Own input: byte @off of the large buffer, or of the own shard if that is all. */
struct plan_at plan_input(const struct coll_args *args, uint64_t off);

/* Sizes of the caller's buffers. Return 0 or -EOVERFLOW. */
int plan_buffers(const struct coll_args *args, uint64_t *send, uint64_t *recv);

/*
 * A copy of the arguments in which displacements are filled in; @mem is to be
 * freed. Return 0 or -ENOMEM.
 */
int plan_args_fill(const struct coll_args *in, struct coll_args *out, uint64_t **mem);

/* Arithmetic modulo the number of ranks, of numbers below it. */
static inline uint32_t mod_add(uint32_t a, uint32_t b, uint32_t p)
{
	return a >= p - b ? a - (p - b) : a + b;
}

static inline uint32_t mod_sub(uint32_t a, uint32_t b, uint32_t p)
{
	return a >= b ? a - b : a + (p - b);
}

/* ceil(lg p), floor(lg p) */
static inline uint32_t lg_ceil(uint32_t p)
{
	return p > 1 ? 32 - __builtin_clz(p - 1) : 0;
}

static inline uint32_t lg_floor(uint32_t p)
{
	return 31 - __builtin_clz(p);
}

static inline uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

#endif /* COLL_PLANNER_H */
