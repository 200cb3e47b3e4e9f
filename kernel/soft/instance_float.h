/* SPDX-License-Identifier: GPL-2.0 */
/*
 * instance_float.h - all loops that compute with floats, for the VARIANT at hand,
 * and their rows of a table.
 */
#define TYPE	f32
#define FTYPE	float
#define UTYPE	u32
#define STYPE	s32
#define FSUFFIX	"s"
#define MANTISSA 23
#define INFINITE 0x7f800000
#define NAN_BITS SOFT_NAN32
#include "tmpl_float.h"

#define TYPE	f64
#define FTYPE	double
#define UTYPE	u64
#define STYPE	s64
#define FSUFFIX	"d"
#define MANTISSA 52
#define INFINITE 0x7ff0000000000000LL
#define NAN_BITS SOFT_NAN64
#include "tmpl_float.h"

#include "tmpl_half.h"

#ifndef SOFT_FLOAT_ROW
#define SOFT_FLOAT_ROW(type)							\
	[NPULINK_SUM] = SOFT_FN(type, sum),					\
	[NPULINK_PROD] = SOFT_FN(type, prod)

#define SOFT_FLOAT_SCALED							\
	[NPULINK_FLOAT16] = SOFT_FN(float16, scaled),				\
	[NPULINK_BFLOAT16] = SOFT_FN(bfloat16, scaled),				\
	[NPULINK_FLOAT32] = SOFT_FN(f32, scaled),				\
	[NPULINK_FLOAT64] = SOFT_FN(f64, scaled)

#define SOFT_FLOAT_DIVS								\
	[NPULINK_FLOAT16] = SOFT_FN(float16, div),				\
	[NPULINK_BFLOAT16] = SOFT_FN(bfloat16, div),				\
	[NPULINK_FLOAT32] = SOFT_FN(f32, div),					\
	[NPULINK_FLOAT64] = SOFT_FN(f64, div)
#endif
