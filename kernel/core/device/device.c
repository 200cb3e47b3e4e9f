// SPDX-License-Identifier: GPL-2.0
/*
 * device.c - devices: from a backend's alloc to /dev/npulink/npuN and back. The core
 * owns all memory that an open file can touch; when a backend takes a device away,
 * work is refused, failed and drained, then its callbacks are forgotten. Files that
 * are still open answer -ENODEV.
 */
#include <linux/idr.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <npulink/compat.h>
#include "base/queue.h"
#include "device/device_core.h"

const struct npulink_device_events *npulink_device_events;
static dev_t npulink_devt;
static struct class *npulink_class;
static DEFINE_XARRAY_ALLOC(npulink_devices);	/* registered, by id */
u8 npulink_node_id[16];

/* The first device with an id of at least *id, with a reference; sets *id. */
struct npulink_device *npulink_device_next(u32 *id)
{
	struct npulink_device *dev;
	unsigned long i = *id;

	xa_lock(&npulink_devices);
	dev = xa_find(&npulink_devices, &i, NPULINK_MAX_DEVICES, XA_PRESENT);
	if (dev)
		get_device(&dev->dev);
	xa_unlock(&npulink_devices);
	*id = i;
	return dev;
}

struct npulink_device *npulink_device_get_by_minor(unsigned int minor)
{
	struct npulink_device *dev;

	xa_lock(&npulink_devices);
	dev = xa_load(&npulink_devices, minor);
	if (dev)
		get_device(&dev->dev);
	xa_unlock(&npulink_devices);
	return dev;
}

static void npulink_device_drained(struct percpu_ref *ref)
{
	complete(&container_of(ref, struct npulink_device, users)->drained);
}

static void npulink_device_release(struct device *d)
{
	struct npulink_device *dev = container_of(d, struct npulink_device, dev);

	if (!dev->gone)
		xa_erase(&npulink_devices, dev->id);
	npulink_device_set_special(dev, false);
	xa_destroy(&dev->links);
	ida_destroy(&dev->doorbells);
	percpu_ref_exit(&dev->users);
	kfree(dev->priv);
	kfree(dev);
}

struct npulink_device *npulink_device_alloc(struct module *owner,
					    const struct npulink_device_ops *ops,
					    struct device *parent, size_t priv_size)
{
	struct npulink_device *dev = kzalloc(sizeof(*dev), GFP_KERNEL);

	if (!dev)
		return ERR_PTR(-ENOMEM);
	dev->priv = kzalloc(priv_size, GFP_KERNEL);
	if (!dev->priv || percpu_ref_init(&dev->users, npulink_device_drained, 0, GFP_KERNEL))
		goto err_free;
	/* Only reserve the number; the backend names its interrupts by it. */
	if (xa_alloc(&npulink_devices, &dev->id, NULL, XA_LIMIT(0, NPULINK_MAX_DEVICES - 1),
		     GFP_KERNEL))
		goto err_ref;
	dev->owner = owner;
	dev->ops = ops;
	dev->slice = 128 << 10;
	init_completion(&dev->drained);
	INIT_WORK(&dev->fail_work, npulink_device_events->fail);
	mutex_init(&dev->lock);
	INIT_LIST_HEAD(&dev->files);
	mutex_init(&dev->mappings_lock);
	INIT_LIST_HEAD(&dev->mappings);
	ida_init(&dev->doorbells);
	xa_init(&dev->links);
	INIT_LIST_HEAD(&dev->ports);
	device_initialize(&dev->dev);
	dev->dev.class = npulink_class;
	dev->dev.parent = parent;
	dev->dev.release = npulink_device_release;
	dev->dev.devt = MKDEV(MAJOR(npulink_devt), dev->id);
	cdev_init(&dev->cdev, npulink_device_events->fops);
	dev->cdev.owner = THIS_MODULE;
	if (dev_set_name(&dev->dev, "npu%u", dev->id)) {
		put_device(&dev->dev);
		return ERR_PTR(-ENOMEM);
	}
	return dev;

err_ref:
	percpu_ref_exit(&dev->users);
err_free:
	kfree(dev->priv);
	kfree(dev);
	return ERR_PTR(-ENOMEM);
}
EXPORT_SYMBOL_NPULINK(npulink_device_alloc);

int npulink_device_register(struct npulink_device *dev)
{
	int rc;

	if (!dev->ops->submit == !dev->ops->queue || (dev->dma_dev && !dev->ops->queue) ||
	    !dev->slice || dev->slice & (dev->slice - 1))
		return -EINVAL;
	/*
	 * It is whole. Found first, then opened: who opens it can make links from it, which
	 * npulink_links_drop() has to find when their other end goes.
	 */
	xa_store(&npulink_devices, dev->id, dev, GFP_KERNEL);
	rc = cdev_device_add(&dev->cdev, &dev->dev);
	if (rc) {
		WRITE_ONCE(dev->gone, true);
		xa_erase(&npulink_devices, dev->id);
		/* Somebody may have found it, and bound a port to it. */
		npulink_device_events->removed(dev);
		return rc;
	}
	npulink_device_events->added(dev);
	return 0;
}
EXPORT_SYMBOL_NPULINK(npulink_device_register);

void npulink_device_unregister(struct npulink_device *dev)
{
	LIST_HEAD(links);

	/* No new files, plans, links. */
	cdev_device_del(&dev->cdev, &dev->dev);
	mutex_lock(&dev->lock);
	WRITE_ONCE(dev->gone, true);
	mutex_unlock(&dev->lock);
	percpu_ref_kill(&dev->users);
	/* End what is running, here and on the peers of those who run here. */
	npulink_links_drop(dev, &links);
	xa_erase(&npulink_devices, dev->id);
	npulink_device_events->removed(dev);
	npulink_device_fail(dev, NPULINK_CAUSE_REMOVED, -ENODEV);
	npulink_device_events->flush();
	wait_for_completion(&dev->drained);
	/* Those who were about to join have joined, or been refused. */
	npulink_device_fail(dev, NPULINK_CAUSE_REMOVED, -ENODEV);
	/* A peer that read link->down before it was set has rung by now. */
	synchronize_rcu();
	if (dev->ops->quiesce)
		dev->ops->quiesce(dev);
	npulink_device_events->drained();
	npulink_links_close(&links);
	npulink_device_events->unmap(dev);
	npulink_device_set_special(dev, false);
	if (dev->ops->release)
		dev->ops->release(dev);
	dev->ops = NULL;
}
EXPORT_SYMBOL_NPULINK(npulink_device_unregister);

/*
 * All communicators that have a rank on @dev. The first of several failures at a time
 * is reported for all of them. Any context but NMI.
 */
void npulink_device_fail(struct npulink_device *dev, u32 cause, int status)
{
	atomic64_cmpxchg(&dev->failure, 0, (u64)cause << 32 | (u32)-status);
	get_device(&dev->dev);
	if (!npulink_queue(&dev->fail_work))
		put_device(&dev->dev);
}

/**
 * npulink_device_set_special() - say whether requests are to be seen one by one
 * @dev: the device
 * @special: see struct npulink_device
 *
 * For a backend that has run. As long as one of its devices is special, no collective of the
 * node is carried out without requests. One call at a time for each device. Any context but NMI.
 */
void npulink_device_set_special(struct npulink_device *dev, bool special)
{
	WRITE_ONCE(dev->special, special);
	if (dev->closes_boards != special) {
		dev->closes_boards = special;
		npulink_device_events->special(special);
	}
}
EXPORT_SYMBOL_NPULINK(npulink_device_set_special);

void npulink_device_put(struct npulink_device *dev)
{
	put_device(&dev->dev);
}
EXPORT_SYMBOL_NPULINK(npulink_device_put);

static char *npulink_devnode(NPULINK_DEVNODE_CONST struct device *d, umode_t *mode)
{
	if (mode)
		*mode = 0660;
	return kasprintf(GFP_KERNEL, "npulink/%s", dev_name(d));
}

int npulink_device_init(const struct npulink_device_events *events)
{
	int rc = alloc_chrdev_region(&npulink_devt, 0, NPULINK_MAX_DEVICES, "npulink");

	if (rc)
		return rc;
	npulink_device_events = events;
	get_random_bytes(npulink_node_id, sizeof(npulink_node_id));
	npulink_class = npulink_class_create("npulink");
	if (IS_ERR(npulink_class)) {
		unregister_chrdev_region(npulink_devt, NPULINK_MAX_DEVICES);
		return PTR_ERR(npulink_class);
	}
	npulink_class->devnode = npulink_devnode;
	return 0;
}

void npulink_device_exit(void)
{
	class_destroy(npulink_class);
	xa_destroy(&npulink_devices);
	unregister_chrdev_region(npulink_devt, NPULINK_MAX_DEVICES);
}
