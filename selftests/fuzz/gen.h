/* SPDX-License-Identifier: GPL-2.0 */
/*
 * gen.h - random numbers and random plans, for all fuzzers: plans that the verifier
 * should take, and ways to bend them. What comes out depends on the seed only.
 */
#ifndef FUZZ_GEN_H
#define FUZZ_GEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/npulink.h>

struct rnd {
	uint64_t s;
};

/* splitmix64 */
static inline uint64_t rnd_next(struct rnd *r)
{
	uint64_t z = r->s += 0x9e3779b97f4a7c15ULL;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

/* 0 .. n - 1; 0 if n is 0. */
static inline uint32_t rnd_below(struct rnd *r, uint32_t n)
{
	return n ? (rnd_next(r) >> 32) % n : 0;
}

static inline bool rnd_one_in(struct rnd *r, uint32_t n)
{
	return !rnd_below(r, n);
}

/* Numbers at which things tend to break. */
uint64_t rnd_odd(struct rnd *r);

void gen_call(struct rnd *r, struct npulink_call *call, uint32_t nranks);
void gen_slots(struct rnd *r, struct npulink_slot *slots, uint32_t nslots);

/* Step @i of a plan of that call and these slots: nearly always a valid one. */
void gen_step(struct rnd *r, const struct npulink_call *call, uint32_t nranks, uint32_t rank,
	      const struct npulink_slot *slots, uint32_t nslots, uint32_t i,
	      const struct npulink_step *prev, struct npulink_step *s);

/* Change something, within reason or not. */
void gen_bend_step(struct rnd *r, struct npulink_step *s);
void gen_bend_call(struct rnd *r, struct npulink_call *call);
void gen_bend_bytes(struct rnd *r, void *p, size_t n);

#endif /* FUZZ_GEN_H */
