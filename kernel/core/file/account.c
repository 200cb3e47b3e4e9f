// SPDX-License-Identifier: GPL-2.0
/*
 * account.c - memory that an application makes us keep is charged as io_uring and
 * RDMA do it: to the user against RLIMIT_MEMLOCK, and to the mm for people to see.
 */
#include <linux/capability.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/user.h>
#include "file/account.h"
#include "file/file.h"

atomic64_t npulink_pinned;

static int npulink_charge_user(struct npulink_file *file, unsigned long npages)
{
	unsigned long limit = READ_ONCE(file->lock_limit);
	unsigned long old = atomic_long_read(&file->user->locked_vm), new;

	do {
		if (check_add_overflow(old, npages, &new) || new > limit)
			return -ENOMEM;
	} while (!atomic_long_try_cmpxchg(&file->user->locked_vm, &old, new));
	return 0;
}

/*
 * How many pages the caller, the owner of @file, may have: also for those who work for it, whose
 * own capabilities and limits are others.
 */
void npulink_note_limit(struct npulink_file *file)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK);

	if (limit == RLIM_INFINITY || capable(CAP_IPC_LOCK))
		limit = ULONG_MAX;
	WRITE_ONCE(file->lock_limit, limit >> PAGE_SHIFT);
}

/* Has it come to an end: is there room, or will there be none by what is on its way back? */
static bool npulink_charge_settled(struct npulink_file *file, unsigned long npages, int *rc)
{
	/* Looked at first: what has come back by then is there to be had. */
	int returning = atomic_read_acquire(&file->quota->returning);

	*rc = npulink_charge_user(file, npages);
	return !*rc || !returning;
}

/*
 * Called by the owner of @file, or on its behalf by a worker or another rank, before anything is
 * pinned or allocated. What the same user has just freed may be on its way back. With @wait, which
 * is for an owner who holds no lock, that is waited for, else it is -EAGAIN.
 */
int npulink_charge(struct npulink_charge *c, struct npulink_file *file, unsigned long npages,
		   bool wait)
{
	bool owner = current->mm == file->mm;
	int rc;

	c->npages = 0;
	if (!npages)
		return 0;
	if (owner)
		npulink_note_limit(file);
	if (!npulink_charge_settled(file, npages, &rc)) {
		if (!owner)
			return rc;
		if (!wait)
			return -EAGAIN;
		if (wait_event_killable(file->quota->returned,
					npulink_charge_settled(file, npages, &rc)))
			return -EINTR;
	}
	if (rc)
		return rc;
	atomic64_add(npages, &file->mm->pinned_vm);
	atomic64_add(npages, &npulink_pinned);
	mmgrab(file->mm);
	c->mm = file->mm;
	c->user = get_uid(file->user);
	c->npages = npages;
	return 0;
}

void npulink_uncharge(struct npulink_charge *c)
{
	if (!c->npages)
		return;
	atomic_long_sub(c->npages, &c->user->locked_vm);
	atomic64_sub(c->npages, &c->mm->pinned_vm);
	atomic64_sub(c->npages, &npulink_pinned);
	mmdrop(c->mm);
	free_uid(c->user);
	c->npages = 0;
}
