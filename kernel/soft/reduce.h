/* SPDX-License-Identifier: GPL-2.0 */
/*
 * reduce.h - the reduction loops and their interface.
 *
 * The loops are plain C without any kernel service, written once over "lanes"
 * (lanes.h) and compiled several times: portable, in 64-bit words, with SSE2, with
 * AVX2, with AVX-512. selftests/lib/reduce.c compiles the same files in user space and
 * compares them bit for bit.
 *
 * What all variants agree on: integers wrap around; floats are rounded to nearest
 * even after each input; MIN and MAX give NaN if either is NaN and take -0 as
 * smaller than +0; every NaN that an operation produces is the type's one quiet
 * NaN, because which payload survives an addition depends on the operand
 * order that a compiler happens to choose.
 */
#ifndef NPULINK_SOFT_REDUCE_H
#define NPULINK_SOFT_REDUCE_H

#include <linux/types.h>
#include <linux/npulink_step.h>
#ifdef __KERNEL__
#include <linux/compiler.h>
#include <linux/string.h>
#include <npulink/device.h>
#else
#include "lib/soft_env.h"	/* of the selftests */
#endif

#define SOFT_NAN16	0x7e00U
#define SOFT_NANBF	0x7fc0U
#define SOFT_NAN32	0x7fc00000U
#define SOFT_NAN64	0x7ff8000000000000ULL

#define SOFT_LINE	64	/* bytes of a cache line */
#define SOFT_STREAM_RATE	8000	/* see select.c */
#define SOFT_SCRATCH	4096	/* bytes of a result that are made before they are stored */

/* Divisors up to here are exact in a float. Communicators are smaller. */
#define SOFT_DIV_MAX	0xffffff

/* A divisor by / 2^k. What is divided by it may have been scaled by 2^-k. */
#define SOFT_DIV_BY(by, k)	((by) | (u32)(k) << 24)

/* Powers of two by which two inputs are scaled, a by 2^-ka. */
#define SOFT_SCALES(ka, kb)	((ka) | (u32)(kb) << 8)

/**
 * struct soft_variant - one way to compile the loops
 * @reduce: dst[i] = a[i] (+) b[i] for n elements; dst may be a or b
 * @scaled: dst[i] = a[i] / 2^ka + b[i] / 2^kb, rounded once, for n floats; see SOFT_SCALES()
 * @div: dst[i] /= by for n elements, where by may be a SOFT_DIV_BY() for floats
 * @stream: copies n bytes by non-temporal stores; both addresses and n are multiples of
 *	    SOFT_LINE. NULL in those without vector registers
 * @name: for people
 * @fpu: uses vector or floating point registers
 *
 * Addresses may have any alignment. NULL: this variant does not have it.
 */
struct soft_variant {
	void (*reduce[NPULINK_DTYPES][NPULINK_REDOPS])(void *dst, const void *a,
						       const void *b, size_t n);
	void (*scaled[NPULINK_DTYPES])(void *dst, const void *a, const void *b, size_t n,
				       u32 scales);
	void (*div[NPULINK_DTYPES])(void *dst, size_t n, u32 by);
	void (*stream)(void *dst, const void *src, size_t n);
	const char *name;
	bool fpu;
};

extern const struct soft_variant soft_int_scalar;
extern const struct soft_variant soft_int_swar;
extern const struct soft_variant soft_fp_scalar;
extern const struct soft_variant soft_fp_sse2;
extern const struct soft_variant soft_fp_avx2;
extern const struct soft_variant soft_fp_avx512;

/* Half precision by any divisor, in fp_scalar.c; the loops do small ones. */
#define SOFT_HALF_DIV_MAX	2048
void soft_float16_div(void *dst, size_t n, u32 by);
void soft_bfloat16_div(void *dst, size_t n, u32 by);

/*
 * One reduction as chosen: what walk.c needs to know. With @stream, the result is made in @scratch
 * (SOFT_SCRATCH bytes at a multiple of SOFT_LINE), and stored past the cache.
 */
struct soft_kernel {
	void (*reduce)(void *dst, const void *a, const void *b, size_t n);
	void (*scaled)(void *dst, const void *a, const void *b, size_t n, u32 scales);
	void (*div)(void *dst, size_t n, u32 by);
	void (*stream)(void *dst, const void *src, size_t n);
	void *scratch;
	u32 by;			/* for div; 0 or 1: no division */
	u32 scale;		/* of inputs that are scaled */
	u32 shift;		/* log2 of the element size */
};

/* Adds n elements of input @i, at @b, to what is at @a: input 0, or the sum of those before. */
static inline void soft_add(const struct soft_kernel *k, const struct npulink_operand *src,
			    unsigned int i, void *dst, const void *a, const void *b, size_t n)
{
	u32 scales = 0;

	if (unlikely(k->scale))
		scales = SOFT_SCALES(i == 1 && src[0].scaled ? k->scale : 0,
				     src[i].scaled ? k->scale : 0);
	if (likely(!scales))
		k->reduce(dst, a, b, n);
	else
		k->scaled(dst, a, b, n, scales);
}

void soft_walk_reduce(const struct soft_kernel *k, const struct npulink_operand *dst,
		      const struct npulink_operand *src, unsigned int nsrc,
		      u64 at, u32 len, u32 *hint);
void soft_walk_copy(const struct npulink_operand *dst, const struct npulink_operand *src,
		    u64 at, u32 len, u32 *hint);

/* After non-temporal stores, before anybody is told of them. */
static inline void soft_stream_fence(void)
{
#ifdef __x86_64__
	asm volatile("sfence" : : : "memory");
#endif
}

static inline u32 soft_dtype_shift(unsigned int dtype)
{
	static const u8 shift[NPULINK_DTYPES] = { 0, 0, 1, 1, 2, 2, 3, 3, 1, 1, 2, 3 };

	return shift[dtype];
}

#endif /* NPULINK_SOFT_REDUCE_H */
