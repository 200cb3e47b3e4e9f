/* SPDX-License-Identifier: GPL-2.0 */
/*
 * tmpl_float.h - SUM, PROD and division of float or double. Expects TYPE (a
 * name other than that of tmpl_fminmax.h), FTYPE, UTYPE (unsigned of its size),
 * INFINITE (the bits of +infinity) and NAN_BITS.
 */
#define WORD	LANES(UTYPE)
#define FWORD	LANES(FTYPE)

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

#undef FWORD
#undef TYPE
#undef FTYPE
#undef UTYPE
#undef INFINITE
#undef NAN_BITS
