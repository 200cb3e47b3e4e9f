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

/* ---- who waits -------------------------------------------------------------------------- */

/*
 * Files in which somebody waits without limit, or did when they were looked at last: nobody else's
 * are looked at.
 */
static LIST_HEAD(dl_waiting);
static DEFINE_SPINLOCK(dl_waiting_lock);

/* Somebody is on the list of its waiters. Who takes it off looks there after that. */
void dl_watch(struct npulink_file *file)
{
	if (!list_empty_careful(&file->wait_node))
		return;
	spin_lock(&dl_waiting_lock);
	/* npulink_deadlock_forget() comes after that: or it would be freed while it is here. */
	if (list_empty(&file->wait_node) && !READ_ONCE(file->closing))
		list_add_tail(&file->wait_node, &dl_waiting);
	spin_unlock(&dl_waiting_lock);
}

/* Nobody waits in @file any more, which is about to go. */
void npulink_deadlock_forget(struct npulink_file *file)
{
	spin_lock(&dl_waiting_lock);
	list_del_init(&file->wait_node);
	spin_unlock(&dl_waiting_lock);
}

/* One that is not watched any more, referenced. */
static struct npulink_file *dl_next_file(struct list_head *files)
{
	struct npulink_file *file;

	spin_lock(&dl_waiting_lock);
	file = list_first_entry_or_null(files, struct npulink_file, wait_node);
	if (file) {
		list_del_init(&file->wait_node);
		/* On the list it has the reference of its opener. */
		npulink_file_get(file);
	}
	spin_unlock(&dl_waiting_lock);
	return file;
}

/* Those in @file that do so since before @before. Sets *any if there are any at all. */
static int dl_add_waits(struct dl *dl, struct npulink_file *file, unsigned long before, bool *any)
{
	struct npulink_waiter *w;
	u32 n;

	for (;;) {
		n = 0;
		spin_lock_irq(&file->lock);
		list_for_each_entry(w, &file->waiters, node)
			n += w->forever;
		*any = n;
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
			.threads = atomic_read(&w->mm->mm_users),
		};
	}
	spin_unlock_irq(&file->lock);
	return 0;
}

int dl_read(struct dl *dl, unsigned long before)
{
	struct npulink_file *file;
	LIST_HEAD(files);
	int rc = 0;

	spin_lock(&dl_waiting_lock);
	list_splice_init(&dl_waiting, &files);
	spin_unlock(&dl_waiting_lock);
	while (!rc && (file = dl_next_file(&files))) {
		bool any = true;

		rc = dl_add_waits(dl, file, before, &any);
		if (any)
			dl_watch(file);
		npulink_file_put(file);
		cond_resched();
	}
	spin_lock(&dl_waiting_lock);
	list_splice_init(&files, &dl_waiting);
	spin_unlock(&dl_waiting_lock);
	return rc;
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

/* ---- what can have to do with each other ------------------------------------------------ */

static u32 dl_part(struct dl *dl, u32 i)
{
	struct dl_proc *procs = dl->procs;

	while (procs[i].part != i) {
		procs[i].part = procs[procs[i].part].part;
		i = procs[i].part;
	}
	return i;
}

/* Process @proc has to do with what is waited for in @c. */
static void dl_join(struct dl *dl, struct dl_comm *c, const struct dl_proc *proc)
{
	u32 a = dl_part(dl, proc - dl->procs), b;

	if (c->part == DL_NONE)
		c->part = a;
	b = dl_part(dl, c->part);
	dl->procs[max(a, b)].part = min(a, b);
}

static int dl_cmp_comms(const void *a, const void *b)
{
	const struct dl_comm *x = a, *y = b;

	return x->comm < y->comm ? -1 : x->comm > y->comm;
}

/* The communicators that are waited in, each once. */
static int dl_read_comms(struct dl *dl)
{
	u32 i;

	dl->comms = kvcalloc(dl->nwaits, sizeof(*dl->comms), GFP_KERNEL);
	if (!dl->comms)
		return -ENOMEM;
	for (i = 0; i < dl->nwaits; i++)
		dl->comms[i].comm = dl->waits[i].op->rank->comm;
	sort(dl->comms, dl->nwaits, sizeof(*dl->comms), dl_cmp_comms, NULL);
	for (i = 0; i < dl->nwaits; i++) {
		if (i && dl->comms[i].comm == dl->comms[dl->ncomms - 1].comm)
			continue;
		dl->comms[dl->ncomms++] = (struct dl_comm) {
			.comm = dl->comms[i].comm, .part = DL_NONE,
		};
	}
	return 0;
}

/*
 * Parts of those who wait, which share neither a process nor a communicator. What one of them
 * holds that is too much to be searched is then no harm to the others.
 */
static int dl_split(struct dl *dl)
{
	struct npulink_rank *rank;
	struct dl_proc *proc;
	u32 i, k;
	int rc;

	rc = dl_read_comms(dl);
	if (rc)
		return rc;
	for (i = 0; i < dl->ncomms; i++) {
		struct dl_comm *c = &dl->comms[i];

		for (k = 0; (rank = npulink_comm_get_next_rank(c->comm, &k));) {
			proc = dl_proc(dl, rank->file->mm);
			if (proc)
				dl_join(dl, c, proc);
			npulink_rank_put(rank);
			cond_resched();
		}
	}
	/* Whoever waits for an operation need not be who has the rank. */
	for (i = 0; i < dl->nwaits; i++) {
		struct dl_comm key = { .comm = dl->waits[i].op->rank->comm };

		dl_join(dl, bsearch(&key, dl->comms, dl->ncomms, sizeof(key), dl_cmp_comms),
			dl_proc(dl, dl->waits[i].mm));
	}
	return 0;
}

/* Each part is searched by itself, so each gets lists, in the order of the arrays. */
static void dl_list_parts(struct dl *dl)
{
	u32 i;

	for (i = dl->nprocs; i--;) {
		struct dl_proc *proc = &dl->procs[i], *first;

		proc->part = dl_part(dl, i);
		first = &dl->procs[proc->part];
		if (first == proc)
			continue;
		proc->next = first->next;
		first->next = i;
	}
	for (i = dl->ncomms; i--;) {
		struct dl_proc *first = &dl->procs[dl_part(dl, dl->comms[i].part)];

		dl->comms[i].next = first->comms;
		first->comms = i;
	}
}

/*
 * The processes of those who wait, and how many threads there are that could post, in whatever
 * process has the memory. Whoever else looks at that for a moment counts as one, too: then there is
 * no circle until the next search.
 */
int dl_read_procs(struct dl *dl)
{
	int rc;
	u32 i;

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
			.part = dl->nprocs, .next = DL_NONE, .comms = DL_NONE,
			.threads = dl->waits[i].threads,
		};
		dl->nprocs++;
	}
	rc = dl_split(dl);
	if (!rc)
		dl_list_parts(dl);
	return rc;
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
	kvfree(dl->waits);
	kvfree(dl->procs);
	kvfree(dl->comms);
	kvfree(dl->marks);
	kvfree(dl);
}
