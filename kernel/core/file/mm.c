// SPDX-License-Identifier: GPL-2.0
/*
 * mm.c - notices that the process behind a file is dying: the release of its address
 * space. Closing its files comes later, and not at all while a forked child has them.
 */
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include "base/queue.h"
#include "file/file.h"

static struct mmu_notifier *npulink_mm_alloc(struct mm_struct *mm)
{
	struct npulink_mm *nmm = kzalloc(sizeof(*nmm), GFP_KERNEL);

	if (!nmm)
		return ERR_PTR(-ENOMEM);
	spin_lock_init(&nmm->lock);
	INIT_LIST_HEAD(&nmm->files);
	return &nmm->mn;
}

static void npulink_mm_free(struct mmu_notifier *mn)
{
	kfree(container_of(mn, struct npulink_mm, mn));
}

/*
 * Every address space of the machine that ends meanwhile waits for this: it notes who has died, and
 * workers tell the others, if the process itself does not come to it first (npulink_flush()).
 */
static void npulink_mm_release(struct mmu_notifier *mn, struct mm_struct *mm)
{
	struct npulink_mm *nmm = container_of(mn, struct npulink_mm, mn);
	struct npulink_file *file;

	spin_lock(&nmm->lock);
	while ((file = list_first_entry_or_null(&nmm->files, struct npulink_file, mm_node))) {
		list_del_init(&file->mm_node);
		if (kref_get_unless_zero(&file->kref)) {
			npulink_file_note_death(file);
			npulink_queue(&file->death_work);
		}
		cond_resched_lock(&nmm->lock);
	}
	spin_unlock(&nmm->lock);
}

static const struct mmu_notifier_ops npulink_mm_ops = {
	.alloc_notifier = npulink_mm_alloc,
	.free_notifier = npulink_mm_free,
	.release = npulink_mm_release,
};

/* Watch current->mm for @file. May sleep. */
struct npulink_mm *npulink_mm_attach(struct npulink_file *file)
{
	struct mmu_notifier *mn = mmu_notifier_get(&npulink_mm_ops, current->mm);
	struct npulink_mm *nmm;

	if (IS_ERR(mn))
		return ERR_PTR(npulink_notifier_error(PTR_ERR(mn)));
	nmm = container_of(mn, struct npulink_mm, mn);
	spin_lock(&nmm->lock);
	list_add_tail(&file->mm_node, &nmm->files);
	spin_unlock(&nmm->lock);
	return nmm;
}

void npulink_mm_detach(struct npulink_file *file)
{
	struct npulink_mm *nmm = file->nmm;

	spin_lock(&nmm->lock);
	list_del_init(&file->mm_node);
	spin_unlock(&nmm->lock);
	mmu_notifier_put(&nmm->mn);
	/* Whoever closes the file does it himself. */
	if (cancel_work_sync(&file->death_work))
		npulink_file_put(file);
}
