// SPDX-License-Identifier: GPL-2.0
/*
 * fp_scalar.c - portable loops that need the floating point unit. Called
 * only between soft_fpu_begin() and soft_fpu_end(), like all of fp_*.c.
 */
#include "reduce.h"

#undef VARIANT
#undef VBYTES
#define VARIANT	scalar
#define VBYTES	0
#include "lanes.h"
#include "instance_float.h"

/*
 * The bits of x / by, a SOFT_DIV_BY(), as a float, rounded to odd: its last bit is set if
 * anything was cut off, so that rounding it again to a shorter format is exact.
 * A double resolves quotients of halves by any 32-bit number.
 */
static u32 scalar_div_to_odd(float x, u32 by)
{
	double q = (double)x / ((by & SOFT_DIV_MAX) * scalar_f64_power(by >> 24));
	float f = (float)q;
	double back = f;
	u32 bits;

	__builtin_memcpy(&bits, &f, sizeof(bits));
	if (back != q && q == q) {
		if (back > q ? q >= 0 : q < 0)
			bits--;
		bits |= 1;
	}
	return bits;
}

void soft_float16_div(void *dst, size_t n, u32 by)
{
	u32 bits;
	u16 x;

	for (; n; n--, dst += sizeof(x)) {
		__builtin_memcpy(&x, dst, sizeof(x));
		bits = scalar_div_to_odd(scalar_float16_widen(x), by);
		x = scalar_float16_narrow(scalar_half_as_float(bits));
		__builtin_memcpy(dst, &x, sizeof(x));
	}
}

void soft_bfloat16_div(void *dst, size_t n, u32 by)
{
	u32 bits;
	u16 x;

	for (; n; n--, dst += sizeof(x)) {
		__builtin_memcpy(&x, dst, sizeof(x));
		bits = scalar_div_to_odd(scalar_half_as_float((u32)x << 16), by);
		x = scalar_half_round_bf(scalar_half_as_float(bits)) >> 16;
		__builtin_memcpy(dst, &x, sizeof(x));
	}
}

const struct soft_variant soft_fp_scalar = {
	.name = "scalar",
	.fpu = true,
	.reduce = {
		[NPULINK_FLOAT16] = { SOFT_FLOAT_ROW(float16) },
		[NPULINK_BFLOAT16] = { SOFT_FLOAT_ROW(bfloat16) },
		[NPULINK_FLOAT32] = { SOFT_FLOAT_ROW(f32) },
		[NPULINK_FLOAT64] = { SOFT_FLOAT_ROW(f64) },
	},
	.scaled = { SOFT_FLOAT_SCALED },
	.div = { SOFT_FLOAT_DIVS },
};
