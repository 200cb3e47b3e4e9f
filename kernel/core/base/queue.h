/* SPDX-License-Identifier: GPL-2.0 */
/*
 * queue.h - the workqueue of what fails or frees objects: queue.c.
 */
#ifndef NPULINK_QUEUE_H
#define NPULINK_QUEUE_H

#include <linux/workqueue.h>

bool npulink_queue(struct work_struct *work);
void npulink_queue_flush(void);
int npulink_queue_init(void);
void npulink_queue_exit(void);

#endif /* NPULINK_QUEUE_H */
