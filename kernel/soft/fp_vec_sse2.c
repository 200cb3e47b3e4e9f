// SPDX-License-Identifier: GPL-2.0
/*
 * fp_vec_sse2.c - all loops compiled for SSE2.
 */
#include "reduce.h"

#undef VARIANT
#undef VBYTES
#define VARIANT	sse2
#define VBYTES	16
#include "lanes.h"
#include "instance_int.h"
#include "instance_float.h"
#include "tmpl_stream.h"

const struct soft_variant soft_fp_sse2 = {
	.name = "sse2",
	.stream = SOFT_FN(u64, stream),
	.fpu = true,
	.reduce = {
		SOFT_INT_TABLE,
		[NPULINK_FLOAT16] = { SOFT_FLOAT_ROW(float16), SOFT_FMINMAX_ROW(f16bits) },
		[NPULINK_BFLOAT16] = { SOFT_FLOAT_ROW(bfloat16), SOFT_FMINMAX_ROW(bf16bits) },
		[NPULINK_FLOAT32] = { SOFT_FLOAT_ROW(f32), SOFT_FMINMAX_ROW(f32bits) },
		[NPULINK_FLOAT64] = { SOFT_FLOAT_ROW(f64), SOFT_FMINMAX_ROW(f64bits) },
	},
	.scaled = { SOFT_FLOAT_SCALED },
	.div = { SOFT_FLOAT_DIVS },
};
