// SPDX-License-Identifier: GPL-2.0
/*
 * quota.c - how many files and objects a user may have. Their memory is charged to the
 * memory cgroup anyway; this is for machines that have none, and for ids. And how many workers,
 * for those whose threads no other limit counts: the machine has only so many. And sessions with
 * other machines, which take what the network device has only so many of.
 *
 * A user may have many uids, each of them in a user namespace of his: all of them are he. Those
 * of a namespace that root has made, for a container, are users like any other.
 */
#include <linux/capability.h>
#include <linux/hashtable.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/slab.h>
#include <linux/uidgid.h>
#include <linux/user_namespace.h>
#include "file/account.h"
#include "file/buf.h"
#include "file/file.h"
#include "file/free.h"

static unsigned int npulink_max_user_objects = 1 << 20;
module_param_named(max_user_objects, npulink_max_user_objects, uint, 0644);
MODULE_PARM_DESC(max_user_objects, "open files and objects of a user without CAP_SYS_RESOURCE");

static unsigned int npulink_max_user_workers;
module_param_named(max_user_workers, npulink_max_user_workers, uint, 0644);
MODULE_PARM_DESC(max_user_workers, "open files with a communicator of a user without CAP_SYS_RESOURCE; each may have a thread (0 at load: one per MiB of memory, 256 to 8192)");

static unsigned int npulink_max_user_sessions;
module_param_named(max_user_sessions, npulink_max_user_sessions, uint, 0644);
MODULE_PARM_DESC(max_user_sessions, "connections of the ranks of a user without CAP_SYS_RESOURCE to ranks on other nodes (0 at load: one per MiB of memory, 1024 to 32768)");

static DEFINE_HASHTABLE(npulink_quotas, 6);
static DEFINE_SPINLOCK(npulink_quotas_lock);	/* npulink_quotas; those in it have references */

static struct npulink_quota *npulink_quota_find(kuid_t uid)
{
	struct npulink_quota *q;

	lockdep_assert_held(&npulink_quotas_lock);
	hash_for_each_possible(npulink_quotas, q, node, __kuid_val(uid))
		if (uid_eq(q->uid, uid))
			return q;
	return NULL;
}

static int npulink_quota_count(atomic_t *n, unsigned int max)
{
	/* Asked last: to be refused may be logged. */
	if (atomic_inc_return(n) <= max || capable(CAP_SYS_RESOURCE))
		return 0;
	atomic_dec(n);
	return -EDQUOT;
}

/* One more, of the caller. */
int npulink_quota_take(struct npulink_quota *q)
{
	return npulink_quota_count(&q->objects, READ_ONCE(npulink_max_user_objects));
}

void npulink_quota_give(struct npulink_quota *q)
{
	atomic_dec(&q->objects);
}

int npulink_quota_take_worker(struct npulink_quota *q)
{
	return npulink_quota_count(&q->workers, READ_ONCE(npulink_max_user_workers));
}

void npulink_quota_give_worker(struct npulink_quota *q)
{
	atomic_dec(&q->workers);
}

/*
 * A session, for the owner of @file, as whom others work, too. Network devices have a limited
 * number of what it consists of.
 */
int npulink_quota_take_session(struct npulink_file *file)
{
	const struct cred *old = override_creds(file->cred);
	int rc;

	rc = npulink_quota_count(&file->quota->sessions, READ_ONCE(npulink_max_user_sessions));
	revert_creds(old);
	return rc;
}

void npulink_quota_give_session(struct npulink_file *file)
{
	atomic_dec(&file->quota->sessions);
}

/*
 * An eighth of the threads that the kernel allows by default, and a quarter of the ids that it
 * has for them.
 */
void npulink_quota_init(void)
{
	if (!npulink_max_user_workers)
		npulink_max_user_workers = clamp(totalram_pages() >> (20 - PAGE_SHIFT), 256UL,
						 8192UL);
	if (!npulink_max_user_sessions)
		npulink_max_user_sessions = clamp(totalram_pages() >> (20 - PAGE_SHIFT), 1024UL,
						  32768UL);
}

/* Who made the outermost user namespace that is not root's, else the caller. */
kuid_t npulink_quota_uid(void)
{
	kuid_t uid = current_uid();
	struct user_namespace *ns;

	for (ns = current_user_ns(); ns != &init_user_ns; ns = ns->parent)
		if (!uid_eq(ns->owner, GLOBAL_ROOT_UID))
			uid = ns->owner;
	return uid;
}

/* The caller's, for a file, which counts as one. */
struct npulink_quota *npulink_quota_open(void)
{
	struct npulink_quota *q, *fresh;
	int rc;

	fresh = kzalloc(sizeof(*fresh), GFP_KERNEL_ACCOUNT);
	if (!fresh)
		return ERR_PTR(-ENOMEM);
	fresh->uid = npulink_quota_uid();
	refcount_set(&fresh->refs, 1);
	INIT_WORK(&fresh->free_work, npulink_buf_free_work);
	INIT_WORK(&fresh->deferred_work, npulink_deferred_work);
	init_waitqueue_head(&fresh->returned);
	spin_lock_irq(&npulink_quotas_lock);
	q = npulink_quota_find(fresh->uid);
	if (q) {
		npulink_quota_get(q);
	} else {
		q = fresh;
		fresh = NULL;
		hash_add(npulink_quotas, &q->node, __kuid_val(q->uid));
	}
	spin_unlock_irq(&npulink_quotas_lock);
	kfree(fresh);
	rc = npulink_quota_take(q);
	if (!rc)
		return q;
	atomic_inc(&q->objects);	/* what close takes off */
	npulink_quota_close(q);
	return ERR_PTR(rc);
}

/* The file's one, and its reference. */
void npulink_quota_close(struct npulink_quota *q)
{
	npulink_quota_give(q);
	npulink_quota_put(q);
}

/* Any context. */
void npulink_quota_put(struct npulink_quota *q)
{
	unsigned long flags;
	bool last;

	if (refcount_dec_not_one(&q->refs))
		return;
	spin_lock_irqsave(&npulink_quotas_lock, flags);
	last = refcount_dec_and_test(&q->refs);
	if (last)
		hash_del(&q->node);
	spin_unlock_irqrestore(&npulink_quotas_lock, flags);
	if (last)
		kfree(q);
}

/* From here on until npulink_quota_returned(), memory of this user is on its way back. */
void npulink_quota_returning(struct npulink_quota *q)
{
	npulink_quota_get(q);
	atomic_inc(&q->returning);
}

/* It is back, see npulink_charge(). Any context. */
void npulink_quota_returned(struct npulink_quota *q)
{
	atomic_dec_return_release(&q->returning);
	if (wq_has_sleeper(&q->returned))
		wake_up_all(&q->returned);
	npulink_quota_put(q);
}
