/* SPDX-License-Identifier: GPL-2.0 */
/*
 * seq.h - what an operation does next: seq.c.
 */
#ifndef NPULINK_SEQ_H
#define NPULINK_SEQ_H

#include "run/op.h"

void npulink_req_free(struct npulink_req *req);
void npulink_req_ready(struct npulink_req *req, const struct npulink_run *run);
void npulink_req_complete(struct npulink_req *req, int status, struct npulink_run *run);
void npulink_event_handle(struct npulink_event *ev, struct npulink_run *run);
void npulink_unit_blocked_less(struct npulink_op *op, u32 unit);
void npulink_op_advance(struct npulink_op *op, struct npulink_run *run);

#endif /* NPULINK_SEQ_H */
