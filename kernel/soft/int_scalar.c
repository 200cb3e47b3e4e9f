// SPDX-License-Identifier: GPL-2.0
/*
 * int_scalar.c - portable loops that need no floating point unit: integers,
 * and MIN and MAX of floats. They may run anywhere, and are the best for a few
 * elements, where saving the unit's registers would cost more than the work.
 */
#include "reduce.h"

#undef VARIANT
#undef VBYTES
#define VARIANT	plain
#define VBYTES	0
#include "lanes.h"
#include "instance_int.h"

/* by is below 2^31, so a quotient never overflows. */
#define DEFINE_DIV(type, wide)							\
static void plain_ ## type ## _div(void *dst, size_t n, u32 by)		\
{										\
	type x;									\
										\
	for (; n; n--, dst += sizeof(x)) {					\
		__builtin_memcpy(&x, dst, sizeof(x));				\
		x = x / (wide)by;						\
		__builtin_memcpy(dst, &x, sizeof(x));				\
	}									\
}

DEFINE_DIV(s8, s32)
DEFINE_DIV(u8, u32)
DEFINE_DIV(s16, s32)
DEFINE_DIV(u16, u32)
DEFINE_DIV(s32, s32)
DEFINE_DIV(u32, u32)
DEFINE_DIV(s64, s64)
DEFINE_DIV(u64, u64)
#undef DEFINE_DIV

const struct soft_variant soft_int_scalar = {
	.name = "scalar",
	.reduce = { SOFT_INT_TABLE, SOFT_FMINMAX_TABLE },
	.div = {
		[NPULINK_INT8] = plain_s8_div,
		[NPULINK_UINT8] = plain_u8_div,
		[NPULINK_INT16] = plain_s16_div,
		[NPULINK_UINT16] = plain_u16_div,
		[NPULINK_INT32] = plain_s32_div,
		[NPULINK_UINT32] = plain_u32_div,
		[NPULINK_INT64] = plain_s64_div,
		[NPULINK_UINT64] = plain_u64_div,
	},
};
