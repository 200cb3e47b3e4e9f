/* SPDX-License-Identifier: GPL-2.0 */
/*
 * tmpl_float.h - SUM, PROD and division of float or double, and MIN and MAX where
 * there are instructions for them. Expects TYPE (a name other than that of
 * tmpl_fminmax.h), FTYPE, UTYPE (unsigned of its size), FSUFFIX (how instructions for it
 * end), MANTISSA (bits of it that are stored), INFINITE (the bits of +infinity) and
 * NAN_BITS.
 */
#define WORD	LANES(UTYPE)
#define FWORD	LANES(FTYPE)

#if VBYTES == 64
/* The instruction knows that -0 is less than +0; of a number and a NaN it gives the number. */
static __always_inline FWORD SOFT_NAME(pick)(FWORD f, FWORD g, enum soft_op op)
{
	if (op == SOFT_MIN)
		return LANES_INSN("vrangep" FSUFFIX " $4,", f, g);
	return LANES_INSN("vrangep" FSUFFIX " $5,", f, g);
}
#elif VBYTES == 32
/* The instruction gives its second operand if both are 0, and if one is NaN. */
static __always_inline FWORD SOFT_NAME(pick)(FWORD f, FWORD g, enum soft_op op)
{
	WORD z;

	if (op == SOFT_MIN)
		z = (WORD)LANES_INSN("vminp" FSUFFIX, f, g) |
		    (WORD)LANES_INSN("vminp" FSUFFIX, g, f);
	else
		z = (WORD)LANES_INSN("vmaxp" FSUFFIX, f, g) &
		    (WORD)LANES_INSN("vmaxp" FSUFFIX, g, f);
	return (FWORD)z;
}
#endif

/* 2^-k */
static __always_inline FTYPE SOFT_NAME(power)(u32 k)
{
	UTYPE bits = (UTYPE)INFINITE / 2 >> MANTISSA << MANTISSA;
	FTYPE f;

	bits -= (UTYPE)k << MANTISSA;
	__builtin_memcpy(&f, &bits, sizeof(f));
	return f;
}

/* Right where no NaN has to do with it. */
static __always_inline FWORD SOFT_NAME(calc)(FWORD f, FWORD g, enum soft_op op, u32 by)
{
	switch (op) {
	case SOFT_SUM:
		return f + g;
	case SOFT_PROD:
		return f * g;
	case SOFT_DIV:
		return f / ((FTYPE)(by & SOFT_DIV_MAX) * SOFT_NAME(power)(by >> 24));
	case SOFT_SCALED:
		return f * SOFT_NAME(power)(by & 0xff) + g * SOFT_NAME(power)(by >> 8);
	default:
#if VBYTES >= 32
		return SOFT_NAME(pick)(f, g, op);
#else
		return f;
#endif
	}
}

static __always_inline WORD SOFT_NAME(apply)(WORD x, WORD y, enum soft_op op, u32 by)
{
	FWORD f, g, h;
	WORD z;

	__builtin_memcpy(&f, &x, sizeof(f));
	__builtin_memcpy(&g, &y, sizeof(g));
	h = SOFT_NAME(calc)(f, g, op, by);
	__builtin_memcpy(&z, &h, sizeof(z));
	z = SEL(UTYPE, IS_NAN(h, z, (UTYPE)INFINITE), (UTYPE)NAN_BITS, z);
#if VBYTES >= 32
	/* These may give the number of a number and a NaN. */
	if (op == SOFT_MIN || op == SOFT_MAX) {
		z = SEL(UTYPE, f != f, (UTYPE)NAN_BITS, z);
		z = SEL(UTYPE, g != g, (UTYPE)NAN_BITS, z);
	}
#endif
	return z;
}

#if VBYTES
#define SOFT_QUAD

/* Lanes of which either has a NaN: ANY() of them, or of several, is 0 if there are none. */
#if VBYTES == 64
#define UNORDERED(f, g)								\
({										\
	u16 m_;									\
										\
	asm("vcmpunordp" FSUFFIX " %2, %1, %0" : "=Yk" (m_) : "v" (f), "vm" (g)); \
	m_;									\
})
#define ANY(m)	(m)
#else
#if VBYTES == 32
#define UNORDERED(f, g)	((WORD)LANES_INSN("vcmpunordp" FSUFFIX, f, g))
/* Comparing integers is not slower, and of 32 bits faster where the unit is emulated. */
#define ABS_BITS(f)	((LANES(STYPE))((WORD)(f) & (UTYPE)-1 >> 1))
#define NANS(f, g)								\
	(sizeof(UTYPE) > 4 ? UNORDERED(f, g) :					\
	 (WORD)((ABS_BITS(f) > (STYPE)INFINITE) | (ABS_BITS(g) > (STYPE)INFINITE)))
#define MOVMSK	"vmovmskp"
#else
#define UNORDERED(f, g)								\
({										\
	FWORD m_ = (f);								\
										\
	asm("cmpunordp" FSUFFIX " %1, %0" : "+x" (m_) : "x" (g));		\
	(WORD)m_;								\
})
#define MOVMSK	"movmskp"
#endif
#define ANY(m)									\
({										\
	u32 any_;								\
										\
	asm(MOVMSK FSUFFIX " %1, %0" : "=r" (any_) : "x" (m));			\
	any_;									\
})
#endif

static __always_inline FWORD SOFT_NAME(load)(const void *p, unsigned int nth)
{
	FWORD f;

	__builtin_memcpy(&f, p + nth * sizeof(f), sizeof(f));
	return f;
}

#ifndef NANS
#define NANS(f, g)	UNORDERED(f, g)
#endif

/* Four words without a NaN, as is to be expected: they are looked at together. */
static __always_inline bool SOFT_NAME(quad)(void *dst, const void *a, const void *b,
					    enum soft_op op, u32 by)
{
	FWORD f0 = SOFT_NAME(load)(a, 0), g0 = SOFT_NAME(load)(b, 0);
	FWORD f1 = SOFT_NAME(load)(a, 1), g1 = SOFT_NAME(load)(b, 1);
	FWORD f2 = SOFT_NAME(load)(a, 2), g2 = SOFT_NAME(load)(b, 2);
	FWORD f3 = SOFT_NAME(load)(a, 3), g3 = SOFT_NAME(load)(b, 3);
	FWORD z0, z1, z2, z3;

	if (op == SOFT_DIV)
		return false;
	z0 = SOFT_NAME(calc)(f0, g0, op, by);
	z1 = SOFT_NAME(calc)(f1, g1, op, by);
	z2 = SOFT_NAME(calc)(f2, g2, op, by);
	z3 = SOFT_NAME(calc)(f3, g3, op, by);
	if (op == SOFT_SUM || op == SOFT_PROD || op == SOFT_SCALED) {
		if (unlikely(ANY(NANS(z0, z1) | NANS(z2, z3))))
			return false;
	} else if (unlikely(ANY(UNORDERED(f0, g0) | UNORDERED(f1, g1) |
				UNORDERED(f2, g2) | UNORDERED(f3, g3)))) {
		return false;
	}
	__builtin_memcpy(dst, &z0, sizeof(z0));
	__builtin_memcpy(dst + sizeof(z0), &z1, sizeof(z1));
	__builtin_memcpy(dst + 2 * sizeof(z0), &z2, sizeof(z2));
	__builtin_memcpy(dst + 3 * sizeof(z0), &z3, sizeof(z3));
	return true;
}
#endif

#include "tmpl_loop.h"

static void SOFT_NAME(sum)(void *dst, const void *a, const void *b, size_t n)
{
	SOFT_NAME(loop)(dst, a, b, n * sizeof(UTYPE), SOFT_SUM, 0);
}

static void SOFT_NAME(prod)(void *dst, const void *a, const void *b, size_t n)
{
	SOFT_NAME(loop)(dst, a, b, n * sizeof(UTYPE), SOFT_PROD, 0);
}

static void SOFT_NAME(scaled)(void *dst, const void *a, const void *b, size_t n, u32 scales)
{
	SOFT_NAME(loop)(dst, a, b, n * sizeof(UTYPE), SOFT_SCALED, scales);
}

static void SOFT_NAME(div)(void *dst, size_t n, u32 by)
{
	SOFT_NAME(loop)(dst, dst, dst, n * sizeof(UTYPE), SOFT_DIV, by);
}

#if VBYTES >= 32
static void SOFT_NAME(min)(void *dst, const void *a, const void *b, size_t n)
{
	SOFT_NAME(loop)(dst, a, b, n * sizeof(UTYPE), SOFT_MIN, 0);
}

static void SOFT_NAME(max)(void *dst, const void *a, const void *b, size_t n)
{
	SOFT_NAME(loop)(dst, a, b, n * sizeof(UTYPE), SOFT_MAX, 0);
}
#endif

#undef SOFT_QUAD
#undef UNORDERED
#undef ABS_BITS
#undef NANS
#undef ANY
#undef MOVMSK
#undef FWORD
#undef TYPE
#undef FTYPE
#undef UTYPE
#undef STYPE
#undef FSUFFIX
#undef MANTISSA
#undef INFINITE
#undef NAN_BITS
