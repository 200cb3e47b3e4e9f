/* SPDX-License-Identifier: GPL-2.0 */
/*
 * tmpl_half.h - SUM, PROD and division of float16 and bfloat16, two to each 32-bit
 * lane: widened to float, operated upon, rounded back.
 *
 * Rounding twice, first to float's 24 bits, gives what rounding once would. Sums: a
 * format of p bits may be rounded through one of 2p + 2 bits, here p is 11 or
 * 8. Products are exact in a float, except for those of bfloat16 below
 * 2^-134, which are 0 either way. Quotients by n: one that is not half way
 * between two halves is off by more than 2^-(p + 1) / n of itself, which a
 * float resolves up to SOFT_HALF_DIV_MAX. Inputs that are scaled by 2^-k are exact
 * in a float up to k = 16, and where the sum is below the normal halves, so is that, up to 14.
 */
#define HWORD	LANES(u32)
#define HSIGNED	LANES(s32)
#define HFLOAT	LANES(float)

static __always_inline HFLOAT SOFT_FN(half, as_float)(HWORD x)
{
	HFLOAT f;

	__builtin_memcpy(&f, &x, sizeof(f));
	return f;
}

static __always_inline HWORD SOFT_FN(half, as_bits)(HFLOAT f)
{
	HWORD x;

	__builtin_memcpy(&x, &f, sizeof(x));
	return x;
}

static __always_inline HFLOAT SOFT_FN(half, calc)(HFLOAT f, HFLOAT g, enum soft_op op, u32 by)
{
	if (op == SOFT_SUM)
		return f + g;
	if (op == SOFT_PROD)
		return f * g;
	if (op == SOFT_SCALED)
		return f * SOFT_FN(f32, power)(by & 0xff) + g * SOFT_FN(f32, power)(by >> 8);
	return f / ((float)(by & SOFT_DIV_MAX) * SOFT_FN(f32, power)(by >> 24));
}

/* The upper half of each lane is the result. */
static __always_inline HWORD SOFT_FN(half, round_bf)(HFLOAT f)
{
	HWORD x = SOFT_FN(half, as_bits)(f);
	HWORD rounded = x + 0x7fff + ((x >> 16) & 1);

	return SEL(u32, IS_NAN(f, x, 0x7f800000U), SOFT_NANBF << 16, rounded);
}

#define SOFT_ROLLED
#define TYPE	bfloat16
#define WORD	HWORD

static __always_inline WORD SOFT_NAME(apply)(WORD x, WORD y, enum soft_op op, u32 by)
{
	HFLOAT lo = SOFT_FN(half, calc)(SOFT_FN(half, as_float)(x << 16),
					SOFT_FN(half, as_float)(y << 16), op, by);
	HFLOAT hi = SOFT_FN(half, calc)(SOFT_FN(half, as_float)(x & 0xffff0000U),
					SOFT_FN(half, as_float)(y & 0xffff0000U), op, by);

	return (SOFT_FN(half, round_bf)(lo) >> 16) |
	       (SOFT_FN(half, round_bf)(hi) & 0xffff0000U);
}

#include "tmpl_loop.h"

static void SOFT_NAME(sum)(void *dst, const void *a, const void *b, size_t n)
{
	SOFT_NAME(loop)(dst, a, b, 2 * n, SOFT_SUM, 0);
}

static void SOFT_NAME(prod)(void *dst, const void *a, const void *b, size_t n)
{
	SOFT_NAME(loop)(dst, a, b, 2 * n, SOFT_PROD, 0);
}

static void SOFT_NAME(scaled)(void *dst, const void *a, const void *b, size_t n, u32 scales)
{
	SOFT_NAME(loop)(dst, a, b, 2 * n, SOFT_SCALED, scales);
}

static void SOFT_NAME(div)(void *dst, size_t n, u32 by)
{
	if ((by & SOFT_DIV_MAX) > SOFT_HALF_DIV_MAX)
		soft_bfloat16_div(dst, n, by);
	else
		SOFT_NAME(loop)(dst, dst, dst, 2 * n, SOFT_DIV, by);
}

#undef TYPE
#define TYPE	float16

#ifdef SOFT_F16C
/* The conversion instructions take half a register of halves. */
#define WORD	u16 __attribute__((__vector_size__(VBYTES / 2)))

static __always_inline HFLOAT SOFT_NAME(widen)(WORD x)
{
	HFLOAT f;

	asm("vcvtph2ps %1, %0" : "=v" (f) : "vm" (x));
	return f;
}

static __always_inline WORD SOFT_NAME(apply)(WORD x, WORD y, enum soft_op op, u32 by)
{
	HFLOAT f = SOFT_FN(half, calc)(SOFT_NAME(widen)(x), SOFT_NAME(widen)(y), op, by);
	/* Quiet, and its upper bits are those of the half precision one. */
	HFLOAT quiet = SOFT_FN(half, as_float)(SEL(u32, f != f, SOFT_NAN32,
						   SOFT_FN(half, as_bits)(f)));

	asm("vcvtps2ph $0, %1, %0" : "=v" (x) : "v" (quiet));
	return x;
}
#else
#define WORD	HWORD

/*
 * A half's bits, moved to a float's place, are off by a factor of 2^112, also
 * where it is subnormal. Scalar code adds that to the exponent where it can.
 */
static __always_inline HFLOAT SOFT_NAME(widen)(HWORD x)
{
	HWORD em = (x & 0x7fff) << 13;
	HWORD bits;

#if !VBYTES
	if (likely(em >= 0x00800000 && em < 0x0f800000))
		return SOFT_FN(half, as_float)((em + 0x38000000) | ((x & 0x8000) << 16));
#endif
	bits = SOFT_FN(half, as_bits)(SOFT_FN(half, as_float)(em) * 0x1p112f);
	bits = SEL(u32, (HSIGNED)em >= 0x0f800000, em | 0x7f800000, bits);
	return SOFT_FN(half, as_float)(bits | ((x & 0x8000) << 16));
}

/* The lower half of each lane is the result. */
static __always_inline HWORD SOFT_NAME(narrow)(HFLOAT f)
{
	HWORD x = SOFT_FN(half, as_bits)(f);
	HWORD sign = (x >> 16) & 0x8000;
	HWORD em = x & 0x7fffffff;
	/* Rebias, and round what is cut off; a carry into the exponent is right. */
	HWORD normal = (em - 0x38000000 + 0x0fff + ((em >> 13) & 1)) >> 13;
	HWORD tiny;

#if !VBYTES
	if (likely(em >= 0x38800000 && em < 0x47800000))
		return normal | sign;
#endif
	/* Adding 0.5 has the unit round at the last place of a subnormal half. */
	tiny = SOFT_FN(half, as_bits)(SOFT_FN(half, as_float)(em) + 0.5f) - 0x3f000000;
	normal = SEL(u32, (HSIGNED)em < 0x38800000, tiny, normal);
	normal = SEL(u32, (HSIGNED)em >= 0x47800000, 0x7c00U, normal);
	return SEL(u32, IS_NAN(f, x, 0x7f800000U), SOFT_NAN16, normal | sign);
}

static __always_inline WORD SOFT_NAME(apply)(WORD x, WORD y, enum soft_op op, u32 by)
{
	HFLOAT lo = SOFT_FN(half, calc)(SOFT_NAME(widen)(x & 0xffff),
					SOFT_NAME(widen)(y & 0xffff), op, by);
	HFLOAT hi = SOFT_FN(half, calc)(SOFT_NAME(widen)(x >> 16),
					SOFT_NAME(widen)(y >> 16), op, by);

	return SOFT_NAME(narrow)(lo) | (SOFT_NAME(narrow)(hi) << 16);
}
#endif

#include "tmpl_loop.h"

static void SOFT_NAME(sum)(void *dst, const void *a, const void *b, size_t n)
{
	SOFT_NAME(loop)(dst, a, b, 2 * n, SOFT_SUM, 0);
}

static void SOFT_NAME(prod)(void *dst, const void *a, const void *b, size_t n)
{
	SOFT_NAME(loop)(dst, a, b, 2 * n, SOFT_PROD, 0);
}

static void SOFT_NAME(scaled)(void *dst, const void *a, const void *b, size_t n, u32 scales)
{
	SOFT_NAME(loop)(dst, a, b, 2 * n, SOFT_SCALED, scales);
}

static void SOFT_NAME(div)(void *dst, size_t n, u32 by)
{
	if ((by & SOFT_DIV_MAX) > SOFT_HALF_DIV_MAX)
		soft_float16_div(dst, n, by);
	else
		SOFT_NAME(loop)(dst, dst, dst, 2 * n, SOFT_DIV, by);
}

#undef TYPE
#undef SOFT_ROLLED
#undef HFLOAT
#undef HSIGNED
#undef HWORD
