// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * board_reduce.c - SUM, PROD, MIN and MAX by the caller's processor, bit for bit as devices do
 * it: integers wrap around, whatever is no number is the type's one quiet NaN, MIN and MAX give
 * it if either is, and -0 is less than +0.
 */
#include "run/board_reduce.h"
#include "run/fpu.h"

/*
 * One reduction: what becomes of x[i] and y[i], read as @type, and what is done to all of it then.
 * Out is x or beside it, and beside y, so an element depends on no other: without a test of that
 * for each call, which takes longer than a few elements.
 */
#define REDUCE(name, type, value, then)						\
	static void name(void *out, const void *in, const void *other, size_t n)	\
	{									\
		const type *x = in, *y = other;					\
		type *r = out;							\
										\
		_Pragma("GCC ivdep")						\
		for (size_t i = 0; i < n; i++)					\
			r[i] = (value);						\
		then;								\
	}

#define NOTHING	/* is done to integers */

/* Sums and products wrap around, which is defined for unsigned types only. */
#define WRAPS(name, type)							\
	REDUCE(name##_sum, type, x[i] + y[i], NOTHING)					\
	REDUCE(name##_prod, type, 1ULL * x[i] * y[i], NOTHING)

#define ORDERS(name, type)							\
	REDUCE(name##_min, type, y[i] < x[i] ? y[i] : x[i], NOTHING)			\
	REDUCE(name##_max, type, y[i] > x[i] ? y[i] : x[i], NOTHING)

WRAPS(int8, uint8_t)
ORDERS(int8, int8_t)
WRAPS(uint8, uint8_t)
ORDERS(uint8, uint8_t)
WRAPS(int16, uint16_t)
ORDERS(int16, int16_t)
WRAPS(uint16, uint16_t)
ORDERS(uint16, uint16_t)
WRAPS(int32, uint32_t)
ORDERS(int32, int32_t)
WRAPS(uint32, uint32_t)
ORDERS(uint32, uint32_t)
WRAPS(int64, uint64_t)
ORDERS(int64, int64_t)
WRAPS(uint64, uint64_t)
ORDERS(uint64, uint64_t)

/*
 * Floats as words, whose order is that of the numbers if those of negative ones are turned over;
 * without tests for each, which compilers do not make vectors of.
 */
#define WORD(bits, infinity, quiet)					\
	typedef uint##bits##_t __attribute__((may_alias)) word##bits;	\
									\
	static bool is_nan##bits(word##bits w)				\
	{								\
		return (w << 1) > (word##bits)(infinity) << 1;		\
	}								\
									\
	static int##bits##_t order##bits(word##bits w)			\
	{								\
		/* Ones below the sign of negative ones. */		\
		return w ^ -(w >> ((bits) - 1)) >> 1;			\
	}								\
									\
	/* Whatever is no number becomes the one that is. */		\
	static void one_nan##bits(void *data, size_t n)			\
	{								\
		word##bits *w = data, any = 0;				\
									\
		for (size_t i = 0; i < n; i++)				\
			any |= is_nan##bits(w[i]);			\
		for (size_t i = 0; any && i < n; i++)			\
			w[i] = is_nan##bits(w[i]) ? (quiet) : w[i];	\
	}

WORD(32, 0x7f800000, 0x7fc00000)
WORD(64, 0x7ff0000000000000, 0x7ff8000000000000)

/* The first of them, or what is no number, of which one_nan() makes the one. */
#define EXTREME(bits, first)							\
	is_nan##bits(x[i]) || is_nan##bits(y[i]) ? (word##bits)~0ULL : (first) ? y[i] : x[i]

/* The caller may have another rounding, or other ranks may. */
#define ROUNDS(name, inner)							\
	static void name(void *out, const void *in, const void *other, size_t n)	\
	{									\
		struct coll_fpu had = coll_fpu_begin();			\
										\
		inner(out, in, other, n);					\
		coll_fpu_end(had);						\
	}

#define FLOAT(name, type, bits)							\
	REDUCE(name##_add, type, x[i] + y[i], one_nan##bits(out, n))		\
	REDUCE(name##_multiply, type, x[i] * y[i], one_nan##bits(out, n))	\
	ROUNDS(name##_sum, name##_add)						\
	ROUNDS(name##_prod, name##_multiply)					\
	REDUCE(name##_min, word##bits,						\
	       EXTREME(bits, order##bits(y[i]) < order##bits(x[i])), one_nan##bits(out, n))	\
	REDUCE(name##_max, word##bits,						\
	       EXTREME(bits, order##bits(y[i]) > order##bits(x[i])), one_nan##bits(out, n))

FLOAT(float32, float, 32)
FLOAT(float64, double, 64)

#define ROW(name)	{ name##_sum, name##_prod, name##_min, name##_max }

/*
 * NULL: not here. Of more than two ranks' floats, sums and products depend on the order in
 * which they are formed: only if that is right, @ordered.
 */
coll_board_reduce_fn *coll_board_reduce(uint32_t dtype, uint32_t redop, bool ordered)
{
	static coll_board_reduce_fn * const table[NPULINK_DTYPES][4] = {
		[NPULINK_INT8] = ROW(int8),
		[NPULINK_UINT8] = ROW(uint8),
		[NPULINK_INT16] = ROW(int16),
		[NPULINK_UINT16] = ROW(uint16),
		[NPULINK_INT32] = ROW(int32),
		[NPULINK_UINT32] = ROW(uint32),
		[NPULINK_INT64] = ROW(int64),
		[NPULINK_UINT64] = ROW(uint64),
		[NPULINK_FLOAT32] = ROW(float32),
		[NPULINK_FLOAT64] = ROW(float64),
	};
	const bool sums = redop == NPULINK_SUM || redop == NPULINK_PROD;

	if (dtype >= NPULINK_DTYPES || redop > NPULINK_MAX)
		return NULL;
	if (sums && !ordered && coll_board_is_float(dtype))
		return NULL;
	return table[dtype][redop];
}
