/* SPDX-License-Identifier: GPL-2.0 */
/*
 * tmpl_int.h - integers of one size. Expects TYPE (the unsigned type), STYPE and
 * BITS. Signed and unsigned differ in MIN and MAX only.
 */
#define WORD	LANES(TYPE)

/* AVX-512 has instructions for all of them, AVX2 for all but the longest. */
#if VBYTES == 64 || (VBYTES == 32 && BITS < 64)
#define PICK(insn, cond)	LANES_INSN("vp" insn SOFT_SUFFIX(BITS), x, y)
#else
#define PICK(insn, cond)	SEL(TYPE, cond, x, y)
#endif

static __always_inline WORD SOFT_NAME(apply)(WORD x, WORD y, enum soft_op op, u32 by)
{
	switch (op) {
	case SOFT_PROD:
		return 1U * x * y;	/* not in int: 16 bits would overflow it */
	case SOFT_MIN:
		return PICK("mins", (LANES(STYPE))x < (LANES(STYPE))y);
	case SOFT_MAX:
		return PICK("maxs", (LANES(STYPE))x > (LANES(STYPE))y);
	case SOFT_UMIN:
		return PICK("minu", x < y);
	case SOFT_UMAX:
		return PICK("maxu", x > y);
	default:
		return x + y;
	}
}

#include "tmpl_loop.h"

static void SOFT_NAME(sum)(void *dst, const void *a, const void *b, size_t n)
{
	SOFT_NAME(loop)(dst, a, b, n * sizeof(TYPE), SOFT_SUM, 0);
}

static void SOFT_NAME(prod)(void *dst, const void *a, const void *b, size_t n)
{
	SOFT_NAME(loop)(dst, a, b, n * sizeof(TYPE), SOFT_PROD, 0);
}

static void SOFT_NAME(min)(void *dst, const void *a, const void *b, size_t n)
{
	SOFT_NAME(loop)(dst, a, b, n * sizeof(TYPE), SOFT_MIN, 0);
}

static void SOFT_NAME(max)(void *dst, const void *a, const void *b, size_t n)
{
	SOFT_NAME(loop)(dst, a, b, n * sizeof(TYPE), SOFT_MAX, 0);
}

static void SOFT_NAME(umin)(void *dst, const void *a, const void *b, size_t n)
{
	SOFT_NAME(loop)(dst, a, b, n * sizeof(TYPE), SOFT_UMIN, 0);
}

static void SOFT_NAME(umax)(void *dst, const void *a, const void *b, size_t n)
{
	SOFT_NAME(loop)(dst, a, b, n * sizeof(TYPE), SOFT_UMAX, 0);
}

#undef PICK
#undef TYPE
#undef STYPE
#undef BITS
