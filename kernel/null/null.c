// SPDX-License-Identifier: GPL-2.0
/*
 * null.c - the smallest backend: two devices that copy and cannot reduce, linked to each other. It
 * is there to be copied by whoever writes a backend; kernel/README.md walks through it. It is
 * built and tested, but not installed.
 */
#include <linux/err.h>
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/string.h>
#include <npulink/compat.h>
#include <npulink/device.h>

#define NULL_DEVICES	2

static struct npulink_device *null_devices[NULL_DEVICES];
static const char null_fabric;	/* only its address counts */

/* Address of byte @at of an operand, and how many bytes follow it in one piece. */
static void *null_at(const struct npulink_operand *o, u64 at, u64 *left)
{
	const struct npulink_buf_mem *mem = npulink_buf_mem(o->buf);
	const struct npulink_range *r = &mem->ranges[npulink_mem_range(mem, o->off + at)];

	*left = r[1].off - (o->off + at);
	return r->va + (o->off + at - r->off);
}

/* The engine: it has done its work when it returns. */
static int null_submit(struct npulink_device *dev, struct npulink_req *req)
{
	u64 at, n, from_left, to_left;

	/* The core asks for no reduction, since dtypes is 0. */
	if (WARN_ON_ONCE(req->nsrc != 1))
		return -EOPNOTSUPP;
	for (at = 0; at < req->len; at += n) {
		const void *from = null_at(&req->src[0], at, &from_left);
		void *to = null_at(&req->dst, at, &to_left);

		n = min3(req->len - at, from_left, to_left);
		memmove(to, from, n);
	}
	atomic64_inc(&dev->stats.requests);
	atomic64_inc(&dev->stats.inline_done);
	atomic64_add(req->len, &dev->stats.bytes_read);
	atomic64_add(req->len, &dev->stats.bytes_written);
	return 0;
}

static const struct npulink_device_ops null_device_ops = {
	.submit = null_submit,
};

/* The far end's doorbell: the core may deliver the event itself. */
static int null_ring(struct npulink_link *link, struct npulink_event *ev, u64 bytes)
{
	return 0;
}

static const struct npulink_link_ops null_link_ops = {
	.publish = null_ring,
	.credit = null_ring,
};

static void null_del(struct npulink_device *dev)
{
	npulink_device_unregister(dev);
	npulink_device_put(dev);
}

static struct npulink_device *null_add(void)
{
	struct npulink_device *dev = npulink_device_alloc(THIS_MODULE, &null_device_ops, NULL, 0);
	int rc;

	if (IS_ERR(dev))
		return dev;
	dev->link_ops = &null_link_ops;
	dev->fabric = &null_fabric;
	strscpy(dev->backend, "null", sizeof(dev->backend));
	strscpy(dev->engine, "memmove", sizeof(dev->engine));
	rc = npulink_device_register(dev);
	if (rc) {
		npulink_device_put(dev);
		return ERR_PTR(rc);
	}
	return dev;
}

static void null_exit(void)
{
	int i;

	for (i = 0; i < NULL_DEVICES && null_devices[i]; i++)
		null_del(null_devices[i]);
}

static int __init null_init(void)
{
	struct npulink_device *dev;
	int i;

	for (i = 0; i < NULL_DEVICES; i++) {
		dev = null_add();
		if (IS_ERR(dev)) {
			null_exit();
			return PTR_ERR(dev);
		}
		null_devices[i] = dev;
	}
	return 0;
}

module_init(null_init);
module_exit(null_exit);
MODULE_DESCRIPTION("npulink backend to copy: devices that only copy");
MODULE_LICENSE("GPL");
NPULINK_IMPORT_NS(NPULINK);
