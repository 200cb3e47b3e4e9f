/* SPDX-License-Identifier: GPL-2.0 */
/*
 * tmpl_fminmax.h - MIN and MAX of floats by their bits. Expects TYPE (a name),
 * UTYPE and STYPE (integers of its size), INFINITE (the bits of +infinity)
 * and NAN_BITS.
 *
 * With the magnitude of negative numbers inverted, floats order as signed
 * integers do, -0 just below +0. That needs no floating point unit.
 */
#define WORD	LANES(UTYPE)
#define SWORD	LANES(STYPE)
#define SBITS	(8 * sizeof(UTYPE) - 1)

static __always_inline SWORD SOFT_NAME(key)(WORD x)
{
	const UTYPE magnitude = (UTYPE)-1 / 2;
	WORD negative = (WORD)((SWORD)x >> SBITS);

	return (SWORD)(x ^ (negative & magnitude));
}

static __always_inline WORD SOFT_NAME(apply)(WORD x, WORD y, enum soft_op op, u32 by)
{
	const STYPE magnitude = (UTYPE)-1 / 2;
	SWORD kx = SOFT_NAME(key)(x), ky = SOFT_NAME(key)(y);
	WORD z;

	if (op == SOFT_MIN)
		z = SEL(UTYPE, kx < ky, x, y);
	else
		z = SEL(UTYPE, kx > ky, x, y);
	z = SEL(UTYPE, ((SWORD)x & magnitude) > (STYPE)INFINITE, (UTYPE)NAN_BITS, z);
	return SEL(UTYPE, ((SWORD)y & magnitude) > (STYPE)INFINITE, (UTYPE)NAN_BITS, z);
}

#include "tmpl_loop.h"

static void SOFT_NAME(min)(void *dst, const void *a, const void *b, size_t n)
{
	SOFT_NAME(loop)(dst, a, b, n * sizeof(UTYPE), SOFT_MIN, 0);
}

static void SOFT_NAME(max)(void *dst, const void *a, const void *b, size_t n)
{
	SOFT_NAME(loop)(dst, a, b, n * sizeof(UTYPE), SOFT_MAX, 0);
}

#undef SBITS
#undef SWORD
#undef TYPE
#undef UTYPE
#undef STYPE
#undef INFINITE
#undef NAN_BITS
