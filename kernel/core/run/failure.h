/* SPDX-License-Identifier: GPL-2.0 */
/*
 * failure.h - what ends communicators from outside: failure.c.
 */
#ifndef NPULINK_FAILURE_H
#define NPULINK_FAILURE_H

#include <linux/workqueue.h>

struct npulink_cause;
struct npulink_comm;
struct npulink_file;
struct npulink_rank;

void npulink_comm_flood(struct npulink_comm *comm);
bool npulink_rank_is_missed(struct npulink_rank *by, u32 gone, struct npulink_cause *cause);
void npulink_file_kill(struct npulink_file *file, u32 cause);
void npulink_file_death_work(struct work_struct *work);
void npulink_device_fail_work(struct work_struct *work);
void npulink_link_fail_work(struct work_struct *work);

#endif /* NPULINK_FAILURE_H */
