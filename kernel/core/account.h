/* SPDX-License-Identifier: GPL-2.0 */
/*
 * account.h - what users have taken: pages (account.c) and objects (quota.c).
 */
#ifndef NPULINK_ACCOUNT_H
#define NPULINK_ACCOUNT_H

#include <linux/cred.h>
#include <linux/mm_types.h>
#include <linux/types.h>

struct npulink_file;

struct npulink_charge {
	struct mm_struct *mm;		/* grabbed */
	struct user_struct *user;
	unsigned long npages;
};

extern atomic64_t npulink_pinned;	/* pages charged on this node */

void npulink_note_limit(struct npulink_file *file);
int npulink_charge(struct npulink_charge *c, struct npulink_file *file, unsigned long npages);
void npulink_uncharge(struct npulink_charge *c);

/* A user with open files. */
struct npulink_quota {
	struct hlist_node node;
	kuid_t uid;
	unsigned int files;
	atomic_t objects;	/* files among them */
	atomic_t workers;
};

struct npulink_quota *npulink_quota_open(void);
void npulink_quota_close(struct npulink_quota *q);
int npulink_quota_take(struct npulink_quota *q);
void npulink_quota_give(struct npulink_quota *q);
int npulink_quota_take_worker(struct npulink_quota *q);
void npulink_quota_give_worker(struct npulink_quota *q);
void npulink_quota_init(void);

#endif /* NPULINK_ACCOUNT_H */
