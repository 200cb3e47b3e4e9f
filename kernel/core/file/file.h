/* SPDX-License-Identifier: GPL-2.0 */
/*
 * file.h - an open device: its objects by id, its users, who waits in it.
 * Objects: object.c; files: file.c, mm.c.
 */
#ifndef NPULINK_FILE_H
#define NPULINK_FILE_H

#include <linux/cred.h>
#include <linux/kref.h>
#include <linux/kthread.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/rbtree.h>
#include <linux/spinlock.h>
#include <linux/timer.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>
#include <npulink/device.h>
#include "file/account.h"
#include "base/number.h"

#define NPULINK_MAX_INFLIGHT	512	/* operations of one file; a power of two */
#define NPULINK_MAX_ARENA	(1024 * 1024)
#define NPULINK_MAX_OBJECTS	65536	/* of one file */
#define NPULINK_MAX_WAITERS	1024	/* of one file: with interrupts off, all are looked at */

struct npulink_file;
struct npulink_object;
struct npulink_op;
struct npulink_quota;

/* ---- objects ------------------------------------------------------------ */

/* What an id stands for, and what is done with it. One for each kind of object. */
struct npulink_object_type {
	/* What such an object needs of its file, and what undoes that. May sleep. */
	int (*reserve)(struct npulink_file *file);
	void (*abort)(struct npulink_file *file);
	/* May the id be taken away? May sleep. */
	bool (*busy)(struct npulink_object *obj);
	/* The id has gone: stop using whatever others see of it. May sleep. */
	void (*destroy)(struct npulink_object *obj);
	/* The last reference has gone. Any context but NMI. */
	void (*release)(struct kref *kref);
};

/* Something that has an id in a file. The id holds one reference. */
struct npulink_object {
	struct kref kref;
	u32 id;
	const struct npulink_object_type *type;
};

int npulink_object_reserve(struct npulink_file *file, struct npulink_object *obj,
			   const struct npulink_object_type *type);
void npulink_object_publish(struct npulink_file *file, struct npulink_object *obj);
void npulink_object_abort(struct npulink_file *file, struct npulink_object *obj);
struct npulink_object *npulink_object_get(struct npulink_file *file, u32 id,
					  const struct npulink_object_type *type);
struct npulink_object *npulink_object_next(struct npulink_file *file, unsigned long *id,
					   const struct npulink_object_type *type);
void npulink_object_put(struct npulink_object *obj);
int npulink_object_destroy(struct npulink_file *file, u32 id);
void npulink_objects_destroy(struct npulink_file *file, const struct npulink_object_type *type);

/* ---- file.c ------------------------------------------------------ */

/*
 * A task that sleeps in POST or WAIT; on npulink_file.waiters if it is one of the first
 * NPULINK_MAX_WAITERS. The others look for themselves, every other tick, whether it is over, and a
 * deadlock that they are part of is suspected, but not broken.
 */
struct npulink_waiter {
	struct list_head node;
	struct task_struct *task;
	struct mm_struct *mm;	/* the task's; only compared */
	struct npulink_op *op;
	u64 id;			/* of this wait, in its file */
	unsigned long since;	/* jiffies */
	bool helper;		/* owner: may be woken to run ready requests */
	bool woken;
	bool listed;
	bool forever;		/* no limit but the operation's deadline */
};

/* The address space that a file belongs to; shared by all its files. */
struct npulink_mm {
	struct mmu_notifier mn;
	spinlock_t lock;		/* files */
	struct list_head files;
};

/* The completion ring. @ring is written by the user too: never read it back. */
struct npulink_cq {
	struct npulink_ring *ring;
	u32 entries;
	u32 head;
	u32 reserved;		/* operations in flight that will need a record */
	u64 len;
	struct eventfd_ctx *eventfd;
	struct npulink_charge charge;
};

/*
 * struct npulink_file - one open file
 * @lock: ready, handed, closing, worker, waiters, slots, cq
 * @mutex: set-up of arena, ring; worker_users
 * @slots: operations in flight or held, found by seq % NPULINK_MAX_INFLIGHT
 */
struct npulink_file {
	struct kref kref;
	struct rcu_head rcu;
	u32 id;			/* for people, see npulink_file_next() */
	struct npulink_device *dev;
	struct list_head dev_node;
	struct list_head mm_node;
	struct npulink_mm *nmm;
	struct mm_struct *mm;		/* the opener's, grabbed; only compared */
	struct user_struct *user;
	unsigned long lock_limit;	/* of its owner, in pages, see npulink_note_limit() */
	const struct cred *cred;
	struct npulink_quota *quota;
	struct net *net;		/* where it may be called; under npulink_ports_lock */
	struct address_space *mapping;	/* that its mmap()s are found by */
	struct pid *tgid;
	struct pid *opener;		/* the thread */
	bool dead;
	u32 death_code;		/* the signal that killed its process, if known */
	struct work_struct death_work;
	int doorbell;			/* index of its doorbell page, -1: none yet */
	struct mutex mutex;		/* see above */
	struct xarray objects;
	struct rb_root ranks;		/* that have joined by a secret; under npulink_comms_lock */
	struct npulink_buf *arena;
	u64 arena_len;		/* for people, who have no reference to it */
	u64 worker_users;	/* ranks that have been made, or are about to be */
	struct work_struct start_work;
	struct kthread_work spare_work;

	spinlock_t lock ____cacheline_aligned;
	struct list_head ready;
	struct list_head handed;	/* ranks that others have left to our tasks */
	bool closing;			/* and then it has none any more */
	struct task_struct *worker;
	unsigned long refused;		/* jiffies, until when it can have no worker */
	struct list_head waiters;
	u32 nwaiters;			/* that are on it */
	u64 waits;			/* id of the last waiter */
	struct list_head wait_node;	/* while somebody waits without limit (deadlock_read.c) */
	struct npulink_op **slots;
	u32 slot_hint;
	u32 inflight;
	u64 seq;
	struct npulink_cq cq;
	wait_queue_head_t poll_wq;
	struct timer_list watchdog;
	unsigned long watchdog_at;
	struct work_struct deadline_work;
};

/* A lock that is taken before anything is done: after a signal the call may be made again. */
static inline int npulink_lock(struct mutex *lock)
{
	return mutex_lock_interruptible(lock) ? -ERESTARTSYS : 0;
}

/* The first notifier of a kind takes all locks of a process, and gives up at a signal. */
static inline int npulink_notifier_error(int rc)
{
	return rc == -EINTR ? -ERESTARTSYS : rc;
}

/* Is there something for a task of @file to run? */
static inline bool npulink_file_has_work(const struct npulink_file *file)
{
	return !list_empty_careful(&file->ready) || !list_empty_careful(&file->handed);
}

static inline struct npulink_file *npulink_file_get(struct npulink_file *file)
{
	kref_get(&file->kref);
	return file;
}

struct npulink_file *npulink_file_new(struct npulink_device *dev);
int npulink_file_publish(struct npulink_file *file);
void npulink_file_hide(struct npulink_file *file);
void npulink_file_unlink(struct npulink_file *file);
void npulink_file_put(struct npulink_file *file);
void npulink_files_exit(void);
struct npulink_file *npulink_file_next(unsigned long *id);
struct npulink_mm *npulink_mm_attach(struct npulink_file *file);
void npulink_mm_detach(struct npulink_file *file);
void npulink_file_note_death(struct npulink_file *file);

/* One ioctl in progress. */
struct npulink_ucmd {
	struct npulink_file *file;
	void __user *ubuffer;
	u32 user_size;
	void *cmd;
};

static inline int npulink_ucmd_respond(struct npulink_ucmd *ucmd, size_t len)
{
	if (copy_to_user(ucmd->ubuffer, ucmd->cmd, min_t(size_t, ucmd->user_size, len)))
		return -EFAULT;
	return 0;
}

#endif /* NPULINK_FILE_H */
