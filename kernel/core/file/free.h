/* SPDX-License-Identifier: GPL-2.0 */
/*
 * free.h - objects that are freed later, where that may sleep and take long (free.c).
 */
#ifndef NPULINK_FREE_H
#define NPULINK_FREE_H

#include <linux/llist.h>

struct npulink_quota;
struct work_struct;

/* In an object: @free gives it back. Task context, may sleep. */
struct npulink_deferred {
	struct llist_node node;
	void (*free)(struct npulink_deferred *d);
};

void npulink_free_later(struct npulink_quota *q, struct npulink_deferred *d,
			void (*free)(struct npulink_deferred *d));
void npulink_deferred_work(struct work_struct *work);
void npulink_free_flush(void);
int npulink_free_init(void);
void npulink_free_exit(void);

#endif /* NPULINK_FREE_H */
