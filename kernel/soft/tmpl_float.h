/* SPDX-License-Identifier: GPL-2.0 */
/*
 * tmpl_float.h - SUM, PROD and division of float or double, and MIN and MAX where
 * there are instructions for them. Expects TYPE (a name other than that of
 * tmpl_fminmax.h), FTYPE, UTYPE (unsigned of its size), FSUFFIX (how instructions for it
 * end), INFINITE (the bits of +infinity) and NAN_BITS.
 */
#define WORD	LANES(UTYPE)
#define FWORD	LANES(FTYPE)

#if VBYTES == 64
/* The instruction knows that -0 is less than +0; of a number and a NaN it gives the number. */
static __always_inline WORD SOFT_NAME(pick)(FWORD f, FWORD g, enum soft_op op)
{
	const WORD nan = (WORD){0} + (UTYPE)NAN_BITS;
	u16 unordered;
	FWORD z;

	if (op == SOFT_MIN)
		z = LANES_INSN("vrangep" FSUFFIX " $4,", f, g);
	else
		z = LANES_INSN("vrangep" FSUFFIX " $5,", f, g);
	asm("vcmpunordp" FSUFFIX " %2, %1, %0" : "=Yk" (unordered) : "v" (f), "vm" (g));
	asm("vmovap" FSUFFIX " %2, %0 %{%1%}" : "+v" (z) : "Yk" (unordered), "v" (nan));
	return (WORD)z;
}
#elif VBYTES == 32
/* The instruction gives its second operand if both are 0, and if one is NaN. */
static __always_inline WORD SOFT_NAME(pick)(FWORD f, FWORD g, enum soft_op op)
{
	FWORD unordered = LANES_INSN("vcmpunordp" FSUFFIX, f, g);
	WORD z;

	if (op == SOFT_MIN)
		z = (WORD)LANES_INSN("vminp" FSUFFIX, f, g) |
		    (WORD)LANES_INSN("vminp" FSUFFIX, g, f);
	else
		z = (WORD)LANES_INSN("vmaxp" FSUFFIX, f, g) &
		    (WORD)LANES_INSN("vmaxp" FSUFFIX, g, f);
	return SEL(UTYPE, unordered, (UTYPE)NAN_BITS, z);
}
#endif

static __always_inline WORD SOFT_NAME(apply)(WORD x, WORD y, enum soft_op op, u32 by)
{
	FWORD f, g;
	WORD z;

	__builtin_memcpy(&f, &x, sizeof(f));
	__builtin_memcpy(&g, &y, sizeof(g));
	if (op == SOFT_SUM)
		f = f + g;
	else if (op == SOFT_PROD)
		f = f * g;
#if VBYTES >= 32
	else if (op != SOFT_DIV)
		return SOFT_NAME(pick)(f, g, op);
#endif
	else
		f = f / (FTYPE)by;
	__builtin_memcpy(&z, &f, sizeof(z));
	return SEL(UTYPE, IS_NAN(f, z, (UTYPE)INFINITE), (UTYPE)NAN_BITS, z);
}

#include "tmpl_loop.h"

static void SOFT_NAME(sum)(void *dst, const void *a, const void *b, size_t n)
{
	SOFT_NAME(loop)(dst, a, b, n * sizeof(UTYPE), SOFT_SUM, 0);
}

static void SOFT_NAME(prod)(void *dst, const void *a, const void *b, size_t n)
{
	SOFT_NAME(loop)(dst, a, b, n * sizeof(UTYPE), SOFT_PROD, 0);
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

#undef FWORD
#undef TYPE
#undef FTYPE
#undef UTYPE
#undef FSUFFIX
#undef INFINITE
#undef NAN_BITS
