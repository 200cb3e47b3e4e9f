// SPDX-License-Identifier: GPL-2.0
/*
 * object.c - ids of a file and what they stand for, in two phases: an id is reserved,
 * the object made and the caller told, and only then can others find it.
 */
#include "core.h"

static const struct npulink_object_type_ops npulink_object_ops[NPULINK_OBJ_TYPES] = {
	[NPULINK_OBJ_BUF] = {
		.destroy = npulink_buf_destroy,
		.release = npulink_buf_release,
	},
	[NPULINK_OBJ_RANK] = {
		.reserve = npulink_worker_reserve,
		.abort = npulink_worker_unreserve,
		.busy = npulink_rank_busy,
		.destroy = npulink_rank_destroy,
		.release = npulink_rank_release,
	},
	[NPULINK_OBJ_PLAN] = {
		.busy = npulink_plan_busy,
		.destroy = npulink_plan_destroy,
		.release = npulink_plan_release,
	},
};

/* An id that nobody finds yet. The caller's reference becomes the id's. */
int npulink_object_reserve(struct npulink_file *file, struct npulink_object *obj, u8 type)
{
	const struct npulink_object_type_ops *ops = &npulink_object_ops[type];
	int rc;

	obj->type = type;
	rc = npulink_quota_take(file->quota);
	if (rc)
		return rc;
	rc = ops->reserve ? ops->reserve(file) : 0;
	if (rc)
		goto err_quota;
	if (!xa_alloc(&file->objects, &obj->id, NULL, XA_LIMIT(1, NPULINK_MAX_OBJECTS),
		      GFP_KERNEL_ACCOUNT))
		return 0;
	rc = -ENOMEM;
	if (ops->abort)
		ops->abort(file);
err_quota:
	npulink_quota_give(file->quota);
	return rc;
}

/* Cannot fail: the place was reserved. */
void npulink_object_publish(struct npulink_file *file, struct npulink_object *obj)
{
	xa_store(&file->objects, obj->id, obj, GFP_KERNEL_ACCOUNT);
}

/* Instead of publish: give the id back, and its reference. */
void npulink_object_abort(struct npulink_file *file, struct npulink_object *obj)
{
	const struct npulink_object_type_ops *ops = &npulink_object_ops[obj->type];

	xa_erase(&file->objects, obj->id);
	if (ops->abort)
		ops->abort(file);
	npulink_quota_give(file->quota);
	npulink_object_put(obj);
}

npulink_hot struct npulink_object *npulink_object_get(struct npulink_file *file, u32 id, u8 type)
{
	struct npulink_object *obj;

	xa_lock(&file->objects);
	obj = xa_load(&file->objects, id);
	if (obj && type != NPULINK_OBJ_ANY && obj->type != type)
		obj = NULL;
	if (obj)
		kref_get(&obj->kref);
	xa_unlock(&file->objects);
	return obj ?: ERR_PTR(-ENOENT);
}

/* The first object of @type with an id of at least *id, referenced; sets *id. */
struct npulink_object *npulink_object_next(struct npulink_file *file, unsigned long *id, u8 type)
{
	struct npulink_object *obj;

	xa_lock(&file->objects);
	for (obj = xa_find(&file->objects, id, ULONG_MAX, XA_PRESENT); obj;
	     obj = xa_find_after(&file->objects, id, ULONG_MAX, XA_PRESENT)) {
		if (type == NPULINK_OBJ_ANY || obj->type == type) {
			kref_get(&obj->kref);
			break;
		}
	}
	xa_unlock(&file->objects);
	return obj;
}

void npulink_object_put(struct npulink_object *obj)
{
	kref_put(&obj->kref, npulink_object_ops[obj->type].release);
}

int npulink_object_destroy(struct npulink_file *file, u32 id)
{
	struct npulink_object *obj = npulink_object_get(file, id, NPULINK_OBJ_ANY);
	const struct npulink_object_type_ops *ops;
	int rc = 0;

	if (IS_ERR(obj))
		return PTR_ERR(obj);
	ops = &npulink_object_ops[obj->type];
	if (ops->busy && ops->busy(obj)) {
		rc = -EBUSY;
	} else if (xa_cmpxchg(&file->objects, id, obj, NULL, 0) == obj) {
		npulink_quota_give(file->quota);
		ops->destroy(obj);
		npulink_object_put(obj);	/* the id's */
	} else {
		rc = -ENOENT;
	}
	npulink_object_put(obj);
	return rc;
}
