/* SPDX-License-Identifier: GPL-2.0 */
/*
 * instance_int.h - all loops that compute with integers, for the VARIANT at hand,
 * and their rows of a table.
 */
#define TYPE	u8
#define STYPE	s8
#define BITS	8
#include "tmpl_int.h"

#define TYPE	u16
#define STYPE	s16
#define BITS	16
#include "tmpl_int.h"

#define TYPE	u32
#define STYPE	s32
#define BITS	32
#include "tmpl_int.h"

#define TYPE	u64
#define STYPE	s64
#define BITS	64
#include "tmpl_int.h"

#define TYPE	f16bits
#define UTYPE	u16
#define STYPE	s16
#define INFINITE 0x7c00
#define NAN_BITS SOFT_NAN16
#include "tmpl_fminmax.h"

#define TYPE	bf16bits
#define UTYPE	u16
#define STYPE	s16
#define INFINITE 0x7f80
#define NAN_BITS SOFT_NANBF
#include "tmpl_fminmax.h"

/* Longer registers have instructions for these, see tmpl_float.h. */
#if VBYTES < 32
#define TYPE	f32bits
#define UTYPE	u32
#define STYPE	s32
#define INFINITE 0x7f800000
#define NAN_BITS SOFT_NAN32
#include "tmpl_fminmax.h"

#define TYPE	f64bits
#define UTYPE	u64
#define STYPE	s64
#define INFINITE 0x7ff0000000000000LL
#define NAN_BITS SOFT_NAN64
#include "tmpl_fminmax.h"
#endif

#ifndef SOFT_INT_TABLE
#define SOFT_INT_ROW(type, mini, maxi) {					\
	[NPULINK_SUM] = SOFT_FN(type, sum),					\
	[NPULINK_PROD] = SOFT_FN(type, prod),					\
	[NPULINK_MIN] = SOFT_FN(type, mini),					\
	[NPULINK_MAX] = SOFT_FN(type, maxi),					\
}

#define SOFT_INT_TABLE								\
	[NPULINK_INT8] = SOFT_INT_ROW(u8, min, max),				\
	[NPULINK_UINT8] = SOFT_INT_ROW(u8, umin, umax),				\
	[NPULINK_INT16] = SOFT_INT_ROW(u16, min, max),				\
	[NPULINK_UINT16] = SOFT_INT_ROW(u16, umin, umax),			\
	[NPULINK_INT32] = SOFT_INT_ROW(u32, min, max),				\
	[NPULINK_UINT32] = SOFT_INT_ROW(u32, umin, umax),			\
	[NPULINK_INT64] = SOFT_INT_ROW(u64, min, max),				\
	[NPULINK_UINT64] = SOFT_INT_ROW(u64, umin, umax)

#define SOFT_FMINMAX_ROW(type)							\
	[NPULINK_MIN] = SOFT_FN(type, min),					\
	[NPULINK_MAX] = SOFT_FN(type, max)

#define SOFT_FMINMAX_TABLE							\
	[NPULINK_FLOAT16] = { SOFT_FMINMAX_ROW(f16bits) },			\
	[NPULINK_BFLOAT16] = { SOFT_FMINMAX_ROW(bf16bits) },			\
	[NPULINK_FLOAT32] = { SOFT_FMINMAX_ROW(f32bits) },			\
	[NPULINK_FLOAT64] = { SOFT_FMINMAX_ROW(f64bits) }
#endif
