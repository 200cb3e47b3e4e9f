// SPDX-License-Identifier: GPL-2.0
/*
 * object.c - ids of a file and what they stand for, in two phases: an id is reserved,
 * the object made and the caller told, and only then can others find it.
 */
#include "base/hot.h"
#include "file/account.h"
#include "file/file.h"

/* An id that nobody finds yet. The caller's reference becomes the id's. */
int npulink_object_reserve(struct npulink_file *file, struct npulink_object *obj,
			   const struct npulink_object_type *type)
{
	int rc;

	obj->type = type;
	rc = npulink_quota_take(file->quota);
	if (rc)
		return rc;
	rc = type->reserve ? type->reserve(file) : 0;
	if (rc)
		goto err_quota;
	if (!xa_alloc(&file->objects, &obj->id, NULL, XA_LIMIT(1, NPULINK_MAX_OBJECTS),
		      GFP_KERNEL_ACCOUNT))
		return 0;
	rc = -ENOMEM;
	if (type->abort)
		type->abort(file);
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
	xa_erase(&file->objects, obj->id);
	if (obj->type->abort)
		obj->type->abort(file);
	npulink_quota_give(file->quota);
	npulink_object_put(obj);
}

npulink_hot struct npulink_object *npulink_object_get(struct npulink_file *file, u32 id,
						      const struct npulink_object_type *type)
{
	struct npulink_object *obj;

	xa_lock(&file->objects);
	obj = xa_load(&file->objects, id);
	if (obj && type && obj->type != type)
		obj = NULL;
	if (obj)
		kref_get(&obj->kref);
	xa_unlock(&file->objects);
	return obj ?: ERR_PTR(-ENOENT);
}

/* The first object of @type, or NULL of any, with an id of at least *id, referenced; sets *id. */
struct npulink_object *npulink_object_next(struct npulink_file *file, unsigned long *id,
					   const struct npulink_object_type *type)
{
	struct npulink_object *obj;

	xa_lock(&file->objects);
	for (obj = xa_find(&file->objects, id, ULONG_MAX, XA_PRESENT); obj;
	     obj = xa_find_after(&file->objects, id, ULONG_MAX, XA_PRESENT)) {
		if (!type || obj->type == type) {
			kref_get(&obj->kref);
			break;
		}
	}
	xa_unlock(&file->objects);
	return obj;
}

void npulink_object_put(struct npulink_object *obj)
{
	kref_put(&obj->kref, obj->type->release);
}

int npulink_object_destroy(struct npulink_file *file, u32 id)
{
	struct npulink_object *obj = npulink_object_get(file, id, NULL);
	int rc = 0;

	if (IS_ERR(obj))
		return PTR_ERR(obj);
	if (obj->type->busy && obj->type->busy(obj)) {
		rc = -EBUSY;
	} else if (xa_cmpxchg(&file->objects, id, obj, NULL, 0) == obj) {
		npulink_quota_give(file->quota);
		obj->type->destroy(obj);
		npulink_object_put(obj);	/* the id's */
	} else {
		rc = -ENOENT;
	}
	npulink_object_put(obj);
	return rc;
}

/* All of @type, none of which is busy. */
void npulink_objects_destroy(struct npulink_file *file,
			     const struct npulink_object_type *type)
{
	struct npulink_object *obj;
	unsigned long id;

	for (id = 0; (obj = npulink_object_next(file, &id, type)); id++) {
		WARN_ON_ONCE(npulink_object_destroy(file, obj->id));
		npulink_object_put(obj);
		cond_resched();
	}
}
