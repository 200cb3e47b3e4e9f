/* SPDX-License-Identifier: GPL-2.0 */
/*
 * tmpl_loop.h - the loop around SOFT_NAME(apply)(x, y, op, by), which works on
 * one WORD. Everything is inlined, so op is a constant in each instance. Four words
 * at a time, unless SOFT_ROLLED says that apply() is long; with SOFT_QUAD, SOFT_NAME(quad)(dst,
 * a, b, op, by) is another way for four, which may give up before it has stored anything.
 *
 * Copies of constant size become single load and store instructions, which is how
 * C spells an access of any alignment. The last, partial word is padded with
 * zeros: no operation traps, and the surplus lanes are not stored.
 */
static __always_inline void SOFT_NAME(word)(void *dst, const void *a, const void *b,
					    enum soft_op op, u32 by)
{
	WORD x, y;

	__builtin_memcpy(&x, a, sizeof(x));
	__builtin_memcpy(&y, b, sizeof(y));
	x = SOFT_NAME(apply)(x, y, op, by);
	__builtin_memcpy(dst, &x, sizeof(x));
}

static __always_inline void SOFT_NAME(loop)(void *dst, const void *a, const void *b,
					    size_t bytes, enum soft_op op, u32 by)
{
	const size_t w = sizeof(WORD);
	size_t i = 0;

#ifndef SOFT_ROLLED
	for (; i + 4 * w <= bytes; i += 4 * w) {
#ifdef SOFT_QUAD
		if (likely(SOFT_NAME(quad)(dst + i, a + i, b + i, op, by)))
			continue;
#endif
		SOFT_NAME(word)(dst + i, a + i, b + i, op, by);
		SOFT_NAME(word)(dst + i + w, a + i + w, b + i + w, op, by);
		SOFT_NAME(word)(dst + i + 2 * w, a + i + 2 * w, b + i + 2 * w, op, by);
		SOFT_NAME(word)(dst + i + 3 * w, a + i + 3 * w, b + i + 3 * w, op, by);
	}
#endif
	for (; i + w <= bytes; i += w)
		SOFT_NAME(word)(dst + i, a + i, b + i, op, by);
	if (i < bytes) {
		WORD x = {0}, y = {0};

		__builtin_memcpy(&x, a + i, bytes - i);
		__builtin_memcpy(&y, b + i, bytes - i);
		x = SOFT_NAME(apply)(x, y, op, by);
		__builtin_memcpy(dst + i, &x, bytes - i);
	}
}

#undef WORD
