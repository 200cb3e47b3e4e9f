// SPDX-License-Identifier: GPL-2.0
/*
 * fp_vec_avx2.c - all loops compiled for AVX2, and F16C for float16.
 */
#include "reduce.h"

#undef VARIANT
#undef VBYTES
#define VARIANT	avx2
#define VBYTES	32
#define SOFT_F16C
#include "lanes.h"
#include "instance_int.h"
#include "instance_float.h"
#include "tmpl_stream.h"

const struct soft_variant soft_fp_avx2 = {
	.name = "avx2",
	.stream = SOFT_FN(u64, stream),
	.fpu = true,
	.reduce = {
		SOFT_INT_TABLE,
		[NPULINK_FLOAT16] = { SOFT_FLOAT_ROW(float16), SOFT_FMINMAX_ROW(f16bits) },
		[NPULINK_BFLOAT16] = { SOFT_FLOAT_ROW(bfloat16), SOFT_FMINMAX_ROW(bf16bits) },
		[NPULINK_FLOAT32] = { SOFT_FLOAT_ROW(f32), SOFT_FMINMAX_ROW(f32) },
		[NPULINK_FLOAT64] = { SOFT_FLOAT_ROW(f64), SOFT_FMINMAX_ROW(f64) },
	},
	.scaled = { SOFT_FLOAT_SCALED },
	.div = { SOFT_FLOAT_DIVS },
};
