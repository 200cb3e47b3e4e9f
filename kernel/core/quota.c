// SPDX-License-Identifier: GPL-2.0
/*
 * quota.c - how many files and objects a user may have. Their memory is charged to the
 * memory cgroup anyway; this is for machines that have none, and for ids.
 */
#include <linux/capability.h>
#include <linux/hashtable.h>
#include <linux/moduleparam.h>
#include <linux/uidgid.h>
#include "core.h"

static unsigned int npulink_max_user_objects = 1 << 20;
module_param_named(max_user_objects, npulink_max_user_objects, uint, 0644);
MODULE_PARM_DESC(max_user_objects, "open files and objects of a user without CAP_SYS_RESOURCE");

static DEFINE_HASHTABLE(npulink_quotas, 6);
static DEFINE_SPINLOCK(npulink_quotas_lock);	/* npulink_quotas, and npulink_quota.files */

static struct npulink_quota *npulink_quota_find(kuid_t uid)
{
	struct npulink_quota *q;

	lockdep_assert_held(&npulink_quotas_lock);
	hash_for_each_possible(npulink_quotas, q, node, __kuid_val(uid))
		if (uid_eq(q->uid, uid))
			return q;
	return NULL;
}

/* One more, of the caller. */
int npulink_quota_take(struct npulink_quota *q)
{
	bool free = capable(CAP_SYS_RESOURCE);

	if (atomic_inc_return(&q->objects) <= READ_ONCE(npulink_max_user_objects) || free)
		return 0;
	atomic_dec(&q->objects);
	return -EDQUOT;
}

void npulink_quota_give(struct npulink_quota *q)
{
	atomic_dec(&q->objects);
}

/* The caller's, for a file, which counts as one. */
struct npulink_quota *npulink_quota_open(void)
{
	struct npulink_quota *q, *fresh;
	int rc;

	fresh = kzalloc(sizeof(*fresh), GFP_KERNEL_ACCOUNT);
	if (!fresh)
		return ERR_PTR(-ENOMEM);
	fresh->uid = current_uid();
	spin_lock(&npulink_quotas_lock);
	q = npulink_quota_find(fresh->uid);
	if (!q) {
		q = fresh;
		fresh = NULL;
		hash_add(npulink_quotas, &q->node, __kuid_val(q->uid));
	}
	q->files++;
	spin_unlock(&npulink_quotas_lock);
	kfree(fresh);
	rc = npulink_quota_take(q);
	if (!rc)
		return q;
	atomic_inc(&q->objects);	/* what close takes off */
	npulink_quota_close(q);
	return ERR_PTR(rc);
}

void npulink_quota_close(struct npulink_quota *q)
{
	npulink_quota_give(q);
	spin_lock(&npulink_quotas_lock);
	if (--q->files)
		q = NULL;
	else
		hash_del(&q->node);
	spin_unlock(&npulink_quotas_lock);
	kfree(q);
}
