// SPDX-License-Identifier: GPL-2.0
/*
 * int_swar.c - sums of small integers in 64-bit words: the carry out of each
 * element is held back by adding without the highest bits and putting these
 * in by exclusive or. Needs no vector unit, and beats an emulated one.
 */
#include "reduce.h"

#undef VARIANT
#undef VBYTES
#define VARIANT	swar
#define VBYTES	0
#include "lanes.h"

static __always_inline u64 swar_add(u64 x, u64 y, u64 high)
{
	return ((x & ~high) + (y & ~high)) ^ ((x ^ y) & high);
}

#define TYPE	u8
#define WORD	u64
static __always_inline u64 swar_u8_apply(u64 x, u64 y, enum soft_op op, u32 by)
{
	return swar_add(x, y, 0x8080808080808080ULL);
}

#include "tmpl_loop.h"

static void swar_u8_sum(void *dst, const void *a, const void *b, size_t n)
{
	swar_u8_loop(dst, a, b, n, SOFT_SUM, 0);
}

#undef TYPE
#define TYPE	u16
#define WORD	u64
static __always_inline u64 swar_u16_apply(u64 x, u64 y, enum soft_op op, u32 by)
{
	return swar_add(x, y, 0x8000800080008000ULL);
}

#include "tmpl_loop.h"

static void swar_u16_sum(void *dst, const void *a, const void *b, size_t n)
{
	swar_u16_loop(dst, a, b, 2 * n, SOFT_SUM, 0);
}

#undef TYPE
#define TYPE	u32
#define WORD	u64
static __always_inline u64 swar_u32_apply(u64 x, u64 y, enum soft_op op, u32 by)
{
	return swar_add(x, y, 0x8000000080000000ULL);
}

#include "tmpl_loop.h"

static void swar_u32_sum(void *dst, const void *a, const void *b, size_t n)
{
	swar_u32_loop(dst, a, b, 4 * n, SOFT_SUM, 0);
}

#undef TYPE

const struct soft_variant soft_int_swar = {
	.name = "swar",
	.reduce = {
		[NPULINK_INT8] = { [NPULINK_SUM] = swar_u8_sum },
		[NPULINK_UINT8] = { [NPULINK_SUM] = swar_u8_sum },
		[NPULINK_INT16] = { [NPULINK_SUM] = swar_u16_sum },
		[NPULINK_UINT16] = { [NPULINK_SUM] = swar_u16_sum },
		[NPULINK_INT32] = { [NPULINK_SUM] = swar_u32_sum },
		[NPULINK_UINT32] = { [NPULINK_SUM] = swar_u32_sum },
	},
};
