// SPDX-License-Identifier: GPL-2.0
/*
 * account.c - memory that an application makes us keep is charged as io_uring and
 * RDMA do it: to the user against RLIMIT_MEMLOCK, and to the mm for people to see.
 */
#include <linux/capability.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/user.h>
#include "core.h"

/* Called by the owner of @file, before anything is pinned or allocated. */
int npulink_charge(struct npulink_charge *c, struct npulink_file *file, unsigned long npages)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	unsigned long old, new;

	c->npages = 0;
	if (!npages)
		return 0;
	if (capable(CAP_IPC_LOCK) || rlimit(RLIMIT_MEMLOCK) == RLIM_INFINITY) {
		atomic_long_add(npages, &file->user->locked_vm);
	} else {
		old = atomic_long_read(&file->user->locked_vm);
		do {
			if (check_add_overflow(old, npages, &new) || new > limit)
				return -ENOMEM;
		} while (!atomic_long_try_cmpxchg(&file->user->locked_vm, &old, new));
	}
	atomic64_add(npages, &file->mm->pinned_vm);
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
	mmdrop(c->mm);
	free_uid(c->user);
	c->npages = 0;
}
