// SPDX-License-Identifier: GPL-2.0
/*
 * free.c - plans and ranks that nobody needs any more are freed by a worker, since their last
 * reference goes in any context.
 *
 * Each user has one work for all of them, so that one who has very many takes one thread, and time
 * like any other; it is not the workqueue that tells failures, so that these wait for none of it.
 */
#include <linux/sched.h>
#include <linux/workqueue.h>
#include "file/account.h"
#include "file/free.h"

#define NPULINK_FREE_ROUNDS	2	/* plans, then the ranks that these have put */

static struct workqueue_struct *npulink_free_wq;

void npulink_deferred_work(struct work_struct *work)
{
	struct npulink_quota *q = container_of(work, struct npulink_quota, deferred_work);
	struct npulink_deferred *d, *next;
	struct llist_node *list;
	u32 i;

	for (i = 0; i < NPULINK_FREE_ROUNDS && (list = llist_del_all(&q->deferred)); i++) {
		llist_for_each_entry_safe(d, next, llist_reverse_order(list), node) {
			d->free(d);
			cond_resched();
		}
	}
	npulink_quota_put(q);
}

/* Of the user @q, whom the object refers to until then. Any context but NMI. */
void npulink_free_later(struct npulink_quota *q, struct npulink_deferred *d,
			void (*free)(struct npulink_deferred *d))
{
	d->free = free;
	/* A work that is queued may find that an earlier one has freed all: it has its own. */
	npulink_quota_get(q);
	if (!llist_add(&d->node, &q->deferred) || !queue_work(npulink_free_wq, &q->deferred_work))
		npulink_quota_put(q);
}

/* What was freed before is given back. */
void npulink_free_flush(void)
{
	flush_workqueue(npulink_free_wq);
}

int npulink_free_init(void)
{
	npulink_free_wq = alloc_workqueue("npulink_free", WQ_UNBOUND, 0);
	return npulink_free_wq ? 0 : -ENOMEM;
}

void npulink_free_exit(void)
{
	destroy_workqueue(npulink_free_wq);
}
