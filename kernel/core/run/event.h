/* SPDX-License-Identifier: GPL-2.0 */
/*
 * event.h - what has ended is told to the file, its ring and its waiters; deadlines: event.c.
 */
#ifndef NPULINK_EVENT_H
#define NPULINK_EVENT_H

#include "run/op.h"

int npulink_ring_setup_ioctl(struct npulink_ucmd *ucmd);
int npulink_ring_mmap(struct npulink_file *file, struct vm_area_struct *vma);
void npulink_ring_free(struct npulink_file *file);
bool npulink_ring_pending(struct npulink_file *file);
int npulink_slot_take(struct npulink_file *file, struct npulink_op *op, bool held);
void npulink_slot_give(struct npulink_file *file, struct npulink_op *op);
struct npulink_op *npulink_slot_find(struct npulink_file *file, u64 seq);
void npulink_slots_free(struct npulink_file *file);
void npulink_op_deliver(struct npulink_op *op);
void npulink_file_wake_ready(struct npulink_file *file, bool waits);
void npulink_watchdog_arm(struct npulink_file *file, struct npulink_op *op);
void npulink_watchdog_init(struct npulink_file *file);
void npulink_watchdog_stop(struct npulink_file *file);
void npulink_blame(struct npulink_op *op, struct npulink_cause *cause);

#endif /* NPULINK_EVENT_H */
