/* SPDX-License-Identifier: GPL-2.0 */
/*
 * wait.h - a task waits for an operation: wait.c.
 */
#ifndef NPULINK_WAIT_H
#define NPULINK_WAIT_H

#include "run/op.h"

int npulink_op_wait(struct npulink_file *file, struct npulink_op *op, u64 until_ns);

extern unsigned int npulink_spin_ns;

#endif /* NPULINK_WAIT_H */
