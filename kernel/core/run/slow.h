/* SPDX-License-Identifier: GPL-2.0 */
/*
 * slow.h - operations that take longer than their poster expected: slow.c.
 */
#ifndef NPULINK_SLOW_H
#define NPULINK_SLOW_H

#include <linux/types.h>

struct npulink_op;

void npulink_slow_told(struct npulink_op *op, u64 ns);
void npulink_slow_init(void);
void npulink_slow_exit(void);

#endif /* NPULINK_SLOW_H */
