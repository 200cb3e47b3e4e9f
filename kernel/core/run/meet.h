/* SPDX-License-Identifier: GPL-2.0 */
/*
 * meet.h - what the last rank to post carries out for all: meet.c.
 */
#ifndef NPULINK_RUN_MEET_H
#define NPULINK_RUN_MEET_H

#include "run/op.h"

extern unsigned int npulink_script_bytes;

void npulink_script_put(struct npulink_script *s);
void npulink_meet_arrive(struct npulink_op *op);
bool npulink_meet_leave(struct npulink_op *op);
void npulink_meet_go(struct npulink_op *op, struct npulink_run *run);
void npulink_meet_dissolve(struct npulink_op *op);

#endif /* NPULINK_RUN_MEET_H */
