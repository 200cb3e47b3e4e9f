// SPDX-License-Identifier: GPL-2.0
/*
 * deadlock_read.c - who waits without limit, in which process, and which of them can have to do
 * with each other at all; see deadlock.c.
 */
#include <linux/bsearch.h>
#include <linux/mutex.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include "comm/comm.h"
#include "device/device_core.h"
#include "file/file.h"
#include "observe/deadlock.h"
#include "run/op.h"

/* Make room for @more elements of a growing array. */
bool dl_room(void **array, u32 n, u32 *max, u32 more, size_t size)
{
	void *bigger;
	u32 want;

	if (n + more <= *max)
		return true;
	want = max(n + more, *max * 2);
	bigger = kvcalloc(want, size, GFP_KERNEL);
	if (!bigger)
		return false;
	if (n)
		memcpy(bigger, *array, n * size);
	kvfree(*array);
	*array = bigger;
	*max = want;
	return true;
}

/* Of the file that was added last. */
static int dl_add_waits(struct dl *dl, struct npulink_file *file, unsigned long before)
{
	struct npulink_waiter *w;
	u32 n;

	for (;;) {
		n = 0;
		spin_lock_irq(&file->lock);
		list_for_each_entry(w, &file->waiters, node)
			n += w->forever;
		if (n <= dl->max_waits - dl->nwaits)
			break;
		spin_unlock_irq(&file->lock);
		if (!dl_room((void **)&dl->waits, dl->nwaits, &dl->max_waits, n,
			     sizeof(*dl->waits)))
			return -ENOMEM;
	}
	list_for_each_entry(w, &file->waiters, node) {
		if (!w->forever)
			continue;
		if (time_after(w->since, before)) {
			dl->young = true;
			continue;
		}
		npulink_op_get(w->op);
		dl->waits[dl->nwaits++] = (struct dl_wait) {
			.mm = w->mm, .file = npulink_file_get(file), .op = w->op, .id = w->id,
			.at = dl->nfiles - 1, .threads = atomic_read(&w->mm->mm_users),
		};
	}
	spin_unlock_irq(&file->lock);
	return 0;
}

static int dl_read_device(struct dl *dl, struct npulink_device *dev, unsigned long before)
{
	struct npulink_file *file;
	int rc = 0;

	mutex_lock(&dev->lock);
	list_for_each_entry(file, &dev->files, dev_node) {
		if (!kref_get_unless_zero(&file->kref))
			continue;
		if (!dl_room((void **)&dl->files, dl->nfiles, &dl->max_files, 1,
			     sizeof(*dl->files))) {
			npulink_file_put(file);
			rc = -ENOMEM;
			break;
		}
		dl->files[dl->nfiles++] = file;
		rc = dl_add_waits(dl, file, before);
		if (rc)
			break;
	}
	mutex_unlock(&dev->lock);
	return rc;
}

/* Everybody's files, and who waits in them since before @before. */
int dl_read(struct dl *dl, unsigned long before)
{
	struct npulink_device *dev;
	int rc = 0;
	u32 id;

	for (id = 0; !rc && (dev = npulink_device_next(&id)); id++) {
		rc = dl_read_device(dl, dev, before);
		put_device(&dev->dev);
	}
	return rc;
}

/* ---- what can have to do with each other ------------------------------------------------ */

/* Of the file @i; of all that belong together it is the same. */
u32 dl_part(const struct dl *dl, u32 i)
{
	while (dl->part[i] != i)
		i = dl->part[i];
	return i;
}

/* File @i has @key: so it belongs together with others that have it. */
static int dl_join(struct dl *dl, struct xarray *seen, const void *key, u32 i)
{
	unsigned long index = (unsigned long)key / sizeof(void *);
	void *other = xa_load(seen, index);
	u32 a, b;

	if (!other)
		return xa_err(xa_store(seen, index, xa_mk_value(i), GFP_KERNEL));
	a = dl_part(dl, xa_to_value(other));
	b = dl_part(dl, i);
	/* The lower one, so that chains stay short: files come in the order of their devices. */
	dl->part[max(a, b)] = min(a, b);
	dl->part[i] = min(a, b);
	return 0;
}

/*
 * Parts of all that is there, which share neither a process nor a communicator. What one
 * of them holds that is too much to be searched is then no harm to the others.
 */
static int dl_split(struct dl *dl)
{
	struct npulink_object *obj;
	struct npulink_rank *rank;
	struct xarray seen;
	unsigned long id;
	int rc = 0;
	u32 i;

	dl->part = kvcalloc(dl->nfiles, sizeof(*dl->part), GFP_KERNEL);
	if (!dl->part)
		return -ENOMEM;
	xa_init(&seen);
	for (i = 0; i < dl->nfiles; i++)
		dl->part[i] = i;
	for (i = 0; !rc && i < dl->nfiles; i++) {
		rc = dl_join(dl, &seen, dl->files[i]->mm, i);
		for (id = 0; !rc && (obj = npulink_object_next(dl->files[i], &id,
							       &npulink_rank_type)); id++) {
			rank = container_of(obj, struct npulink_rank, obj);
			rc = dl_join(dl, &seen, rank->comm, i);
			npulink_object_put(obj);
			cond_resched();
		}
	}
	/* Whoever waits in a file need not be who opened it. */
	for (i = 0; !rc && i < dl->nwaits; i++)
		rc = dl_join(dl, &seen, dl->waits[i].mm, dl->waits[i].at);
	xa_destroy(&seen);
	return rc;
}

/* Each part is searched by itself, and there may be as many as files: so each gets lists. */
static int dl_list_parts(struct dl *dl)
{
	u32 *first, i;

	dl->next = kvcalloc(dl->nfiles, sizeof(*dl->next), GFP_KERNEL);
	dl->first = kvcalloc(dl->nfiles, sizeof(*dl->first), GFP_KERNEL);
	if (!dl->next || !dl->first)
		return -ENOMEM;
	first = dl->first;
	for (i = 0; i < dl->nfiles; i++) {
		/* Those before it have theirs by now. */
		dl->part[i] = dl->part[dl->part[i]];
		first[i] = DL_NONE;
	}
	for (i = dl->nfiles; i--;) {
		dl->next[i] = first[dl->part[i]];
		first[dl->part[i]] = i;
	}
	for (i = 0; i < dl->nfiles; i++)
		first[i] = DL_NONE;
	for (i = dl->nprocs; i--;) {
		dl->procs[i].next = first[dl->procs[i].part];
		first[dl->procs[i].part] = i;
	}
	return 0;
}

/* ---- processes ---------------------------------------------------------------------------- */

static int dl_cmp_waits(const void *a, const void *b)
{
	const struct dl_wait *x = a, *y = b;

	return x->mm < y->mm ? -1 : x->mm > y->mm;
}

static int dl_cmp_procs(const void *key, const void *elem)
{
	const struct mm_struct *mm = key;
	const struct dl_proc *proc = elem;

	return mm < proc->mm ? -1 : mm > proc->mm;
}

struct dl_proc *dl_proc(const struct dl *dl, const struct mm_struct *mm)
{
	return bsearch(mm, dl->procs, dl->nprocs, sizeof(*dl->procs), dl_cmp_procs);
}

/*
 * The processes of those who wait, and how many threads there are that could post, in whatever
 * process has the memory. Whoever else looks at that for a moment counts as one, too: then there is
 * no circle until the next search.
 */
int dl_read_procs(struct dl *dl)
{
	int rc = dl_split(dl);
	u32 i;

	if (rc)
		return rc;
	sort(dl->waits, dl->nwaits, sizeof(*dl->waits), dl_cmp_waits, NULL);
	dl->procs = kvcalloc(dl->nwaits, sizeof(*dl->procs), GFP_KERNEL);
	if (!dl->procs)
		return -ENOMEM;
	for (i = 0; i < dl->nwaits; i++) {
		struct dl_proc *proc = &dl->procs[dl->nprocs];

		if (i && dl->waits[i].mm == proc[-1].mm) {
			proc[-1].nwaits++;
			proc[-1].threads = max(proc[-1].threads, dl->waits[i].threads);
			continue;
		}
		*proc = (struct dl_proc) {
			.mm = dl->waits[i].mm, .first = i, .nwaits = 1,
			.part = dl_part(dl, dl->waits[i].at), .threads = dl->waits[i].threads,
		};
		dl->nprocs++;
	}
	return dl_list_parts(dl);
}

/* Does everybody who is left still wait, undisturbed? */
bool dl_still_wait(struct dl *dl)
{
	bool all = true;
	u32 i;

	for (i = 0; all && i < dl->nwaits; i++) {
		const struct dl_wait *wait = &dl->waits[i];
		struct npulink_waiter *w;

		if (!dl_proc(dl, wait->mm)->in)
			continue;
		all = false;
		spin_lock_irq(&wait->file->lock);
		list_for_each_entry(w, &wait->file->waiters, node)
			if (w->id == wait->id && !signal_pending(w->task))
				all = true;
		spin_unlock_irq(&wait->file->lock);
	}
	return all;
}

void dl_free(struct dl *dl)
{
	u32 k;

	dl_forget(dl);
	for (k = 0; k < dl->nwaits; k++) {
		npulink_op_put(dl->waits[k].op);
		npulink_file_put(dl->waits[k].file);
	}
	for (k = 0; k < dl->nfiles; k++)
		npulink_file_put(dl->files[k]);
	kvfree(dl->waits);
	kvfree(dl->procs);
	kvfree(dl->part);
	kvfree(dl->next);
	kvfree(dl->first);
	kvfree(dl->files);
	kvfree(dl->marks);
	kvfree(dl);
}
