/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The plan verifier's kernel part: is this list of steps safe to run? Pure C,
 * compiled into npulink.ko, libcoll and the fuzzers alike.
 */
#ifndef NPULINK_VERIFY_H
#define NPULINK_VERIFY_H

#include <npulink/collectives.h>

#define NPULINK_MAX_STEPS	(1U << 20)
#define NPULINK_MAX_RANKS	(1U << 20)
#define NPULINK_MAX_CHANNELS	64
/* Of a plan: with interrupts off, all are gone through. 32,000 peers have one either way. */
#define NPULINK_MAX_STREAMS	65536
#define NPULINK_MAX_LEN		(1ULL << 40)

/**
 * struct npulink_plan_desc - a plan as the verifier sees it
 * @call: what was called
 * @nranks: ranks of the communicator
 * @rank: the rank that runs the plan
 * @nslots: entries of @slots
 * @slots: operand slots
 * @nsteps: entries of @steps
 * @steps: the list
 */
struct npulink_plan_desc {
	const struct npulink_call *call;
	__u32 nranks;
	__u32 rank;
	__u32 nslots;
	__u32 nsteps;
	const struct npulink_slot *slots;
	const struct npulink_step *steps;
};

/**
 * struct npulink_verdict - why a plan was refused
 * @step: index of the offending step, ~0 if it is not about one
 * @reason: NPULINK_BAD_*
 * @other: with NPULINK_BAD_RACE, the earlier step it conflicts with, else ~0
 */
struct npulink_verdict {
	__u32 step;
	__u32 reason;
	__u32 other;
};

/**
 * npulink_verify() - check a plan for everything but races
 * @d: the plan
 * @v: verdict, always written
 *
 * O(nsteps). May sleep (calls npulink_verify_yield() now and then).
 *
 * Return: 0; -EINVAL with @v filled in; -EINTR if the caller was killed.
 */
int npulink_verify(const struct npulink_plan_desc *d, struct npulink_verdict *v);

/**
 * npulink_verify_races() - prove that no two unordered steps touch the same
 * bytes of a slot with one of them writing
 * @d: a plan that npulink_verify() accepted
 * @v: verdict, always written
 *
 * An offered range (SEND) counts as read until the step is done. Allocates
 * (O(nsteps) memory times a small factor) and may sleep.
 *
 * Return: 0; -EINVAL with @v filled in; -ENOMEM; -EINTR.
 */
int npulink_verify_races(const struct npulink_plan_desc *d, struct npulink_verdict *v);

/**
 * npulink_bad_reason() - text for NPULINK_BAD_*
 * @reason: the number
 */
const char *npulink_bad_reason(__u32 reason);

/* Size of an element of @dtype in bytes, 0 if there is no such type. */
static inline bool npulink_dtype_is_float(__u32 dtype)
{
	return dtype >= NPULINK_FLOAT16 && dtype <= NPULINK_FLOAT64;
}

static inline __u32 npulink_dtype_size(__u32 dtype)
{
	static const __u8 size[NPULINK_DTYPES] = {
		[NPULINK_INT8] = 1, [NPULINK_UINT8] = 1,
		[NPULINK_INT16] = 2, [NPULINK_UINT16] = 2,
		[NPULINK_INT32] = 4, [NPULINK_UINT32] = 4,
		[NPULINK_INT64] = 8, [NPULINK_UINT64] = 8,
		[NPULINK_FLOAT16] = 2, [NPULINK_BFLOAT16] = 2,
		[NPULINK_FLOAT32] = 4, [NPULINK_FLOAT64] = 8,
	};

	return dtype < NPULINK_DTYPES ? size[dtype] : 0;
}

#endif /* NPULINK_VERIFY_H */
