// SPDX-License-Identifier: GPL-2.0
/*
 * file.c - an open device: made, found by others, hidden and freed. What is done with it is
 * in ioctl.c.
 */
#include <linux/mutex.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/user.h>
#include <linux/slab.h>
#include "base/number.h"
#include "file/account.h"
#include "file/file.h"

static DEFINE_XARRAY_ALLOC1(npulink_files);	/* open ones, by id */

static void npulink_file_release(struct kref *kref)
{
	struct npulink_file *file = container_of(kref, struct npulink_file, kref);

	put_device(&file->dev->dev);
	npulink_quota_close(file->quota);
	put_cred(file->cred);
	put_pid(file->opener);
	put_pid(file->tgid);
	free_uid(file->user);
	mmdrop(file->mm);
	xa_destroy(&file->objects);
	/* Who has found its rank looks at @mm under RCU only. */
	kfree_rcu(file, rcu);
}

/* May sleep. */
void npulink_file_put(struct npulink_file *file)
{
	kref_put(&file->kref, npulink_file_release);
}

/* The first open file with an id of at least *id, referenced; sets *id. */
struct npulink_file *npulink_file_next(unsigned long *id)
{
	struct npulink_file *file;

	xa_lock(&npulink_files);
	/* In the table its opener still has a reference. */
	file = xa_find(&npulink_files, id, ULONG_MAX, XA_PRESENT);
	if (file)
		kref_get(&file->kref);
	xa_unlock(&npulink_files);
	return file;
}

/* A file of the caller's on @dev, which nobody finds yet; or ERR_PTR. May sleep. */
struct npulink_file *npulink_file_new(struct npulink_device *dev)
{
	struct npulink_file *file;
	int rc = -ENOMEM;

	file = kzalloc(sizeof(*file), GFP_KERNEL_ACCOUNT);
	if (!file)
		return ERR_PTR(-ENOMEM);
	file->slots = kvcalloc(NPULINK_MAX_INFLIGHT, sizeof(*file->slots), GFP_KERNEL_ACCOUNT);
	if (!file->slots)
		goto err_file;
	file->quota = npulink_quota_open();
	if (IS_ERR(file->quota)) {
		rc = PTR_ERR(file->quota);
		goto err_slots;
	}
	kref_init(&file->kref);
	INIT_LIST_HEAD(&file->dev_node);
	INIT_LIST_HEAD(&file->mm_node);
	INIT_LIST_HEAD(&file->ready);
	INIT_LIST_HEAD(&file->handed);
	INIT_LIST_HEAD(&file->waiters);
	INIT_LIST_HEAD(&file->wait_node);
	mutex_init(&file->mutex);
	spin_lock_init(&file->lock);
	init_waitqueue_head(&file->poll_wq);
	xa_init_flags(&file->objects, XA_FLAGS_ALLOC1);
	file->waits = NPULINK_FIRST_OF(u64, 20);
	file->seq = NPULINK_FIRST_OF(u64, 20);
	file->dev = dev;
	file->doorbell = -1;
	get_device(&dev->dev);
	mmgrab(current->mm);
	file->mm = current->mm;
	file->user = get_uid(current_user());
	npulink_note_limit(file);
	file->cred = get_current_cred();
	file->tgid = get_pid(task_tgid(current));
	file->opener = get_pid(task_pid(current));
	return file;

err_slots:
	kvfree(file->slots);
err_file:
	kfree(file);
	return ERR_PTR(rc);
}

/* From here on others see it. An error leaves it as it was; the caller puts it. */
int npulink_file_publish(struct npulink_file *file)
{
	static u32 next_id = NPULINK_FIRST_OF(u32, 50) >> 1;
	struct npulink_device *dev = file->dev;
	int rc;

	file->nmm = npulink_mm_attach(file);
	if (IS_ERR(file->nmm))
		return PTR_ERR(file->nmm);
	mutex_lock(&dev->lock);
	rc = dev->gone ? -ENODEV : 0;
	/*
	 * Whoever sees the file by its id sees all of it. Not charged: under a lock that others
	 * want, too, a memory cgroup is not to make us wait.
	 */
	if (!rc)
		rc = xa_alloc_cyclic(&npulink_files, &file->id, file, xa_limit_31b, &next_id,
				     GFP_KERNEL);
	if (rc > 0)
		rc = 0;		/* the numbers have begun anew */
	if (!rc)
		list_add_tail(&file->dev_node, &dev->files);
	mutex_unlock(&dev->lock);
	if (rc)
		npulink_mm_detach(file);
	return rc;
}

/* It is being closed: nobody finds it by its id, and the end of its process is not looked for. */
void npulink_file_hide(struct npulink_file *file)
{
	xa_erase(&npulink_files, file->id);
	npulink_mm_detach(file);
}

/* Nothing of it is in flight: the device does not find it, either. */
void npulink_file_unlink(struct npulink_file *file)
{
	struct npulink_device *dev = file->dev;

	mutex_lock(&dev->lock);
	list_del(&file->dev_node);
	mutex_unlock(&dev->lock);
	if (file->doorbell >= 0)
		ida_free(&dev->doorbells, file->doorbell);
}

/* Nobody counts on it any more. By what it was killed is known if this is its own end. */
void npulink_file_note_death(struct npulink_file *file)
{
	if (current->flags & PF_EXITING && task_tgid(current) == file->tgid)
		WRITE_ONCE(file->death_code, current->exit_code & 0x7f);
	WRITE_ONCE(file->dead, true);
}

void npulink_files_exit(void)
{
	xa_destroy(&npulink_files);
}
