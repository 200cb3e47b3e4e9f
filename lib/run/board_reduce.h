/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * board_reduce.h - reductions by the caller's processor, for a few bytes.
 */
#ifndef COLL_BOARD_REDUCE_H
#define COLL_BOARD_REDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/npulink.h>

/* out[i] = x[i] op y[i], all aligned to the type; out may be x. */
typedef void coll_board_reduce_fn(void *out, const void *x, const void *y, size_t n);

/* Their sums depend on the order, and results are looked through for what is no number. */
static inline bool coll_board_is_float(uint32_t dtype)
{
	return dtype == NPULINK_FLOAT32 || dtype == NPULINK_FLOAT64;
}

coll_board_reduce_fn *coll_board_reduce(uint32_t dtype, uint32_t redop, bool ordered);

#endif /* COLL_BOARD_REDUCE_H */
