/* SPDX-License-Identifier: GPL-2.0 */
/*
 * account.h - what users have taken: pages (account.c) and objects (quota.c).
 */
#ifndef NPULINK_ACCOUNT_H
#define NPULINK_ACCOUNT_H

#include <linux/cred.h>
#include <linux/llist.h>
#include <linux/mm_types.h>
#include <linux/refcount.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

struct npulink_file;

struct npulink_charge {
	struct mm_struct *mm;		/* grabbed */
	struct user_struct *user;
	unsigned long npages;
};

extern atomic64_t npulink_pinned;	/* pages charged on this node */

void npulink_note_limit(struct npulink_file *file);
int npulink_charge(struct npulink_charge *c, struct npulink_file *file, unsigned long npages,
		   bool wait);
void npulink_uncharge(struct npulink_charge *c);

/* A user with open files, or with buffers that are still needed. */
struct npulink_quota {
	struct hlist_node node;
	kuid_t uid;
	refcount_t refs;
	atomic_t objects;	/* files among them */
	atomic_t workers;
	atomic_t sessions;
	/* Memory that nobody needs any more: freed by one worker for each user. */
	struct llist_head freed;
	struct work_struct free_work;
	/* The same of plans and ranks, see free.c. */
	struct llist_head deferred;
	struct work_struct deferred_work;
	atomic_t returning;	/* on the list, or about to be */
	wait_queue_head_t returned;
};

static inline struct npulink_quota *npulink_quota_get(struct npulink_quota *q)
{
	refcount_inc(&q->refs);
	return q;
}

kuid_t npulink_quota_uid(void);
struct npulink_quota *npulink_quota_open(void);
void npulink_quota_close(struct npulink_quota *q);
void npulink_quota_put(struct npulink_quota *q);
void npulink_quota_returning(struct npulink_quota *q);
void npulink_quota_returned(struct npulink_quota *q);
int npulink_quota_take(struct npulink_quota *q);
void npulink_quota_give(struct npulink_quota *q);
int npulink_quota_take_worker(struct npulink_quota *q);
void npulink_quota_give_worker(struct npulink_quota *q);
int npulink_quota_take_session(struct npulink_file *file);
void npulink_quota_give_session(struct npulink_file *file);
void npulink_quota_init(void);

#endif /* NPULINK_ACCOUNT_H */
