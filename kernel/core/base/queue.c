// SPDX-License-Identifier: GPL-2.0
/*
 * queue.c - the workqueue of what fails or frees objects.
 */
#include <linux/errno.h>
#include "base/queue.h"

static struct workqueue_struct *npulink_wq;

/* Any context but NMI. False: it is queued already. */
bool npulink_queue(struct work_struct *work)
{
	return queue_work(npulink_wq, work);
}

/* Wait until what was queued has been done. */
void npulink_queue_flush(void)
{
	flush_workqueue(npulink_wq);
}

int npulink_queue_init(void)
{
	npulink_wq = alloc_workqueue("npulink_comm", WQ_HIGHPRI | WQ_UNBOUND, 0);
	return npulink_wq ? 0 : -ENOMEM;
}

void npulink_queue_exit(void)
{
	destroy_workqueue(npulink_wq);
}
