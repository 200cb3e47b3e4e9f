// SPDX-License-Identifier: GPL-2.0
/*
 * link.c - links between the devices of this node. A link exists from the first plan
 * that uses it, is found by the device it leads to, and is counted (see npulink link).
 */
#include <linux/mutex.h>
#include <linux/slab.h>
#include "base/clock.h"
#include "base/queue.h"
#include "device/device_core.h"
#include "observe/trace.h"

static void npulink_link_close(struct npulink_link *link)
{
	if (link->ops && link->ops->close)
		link->ops->close(link);
	link->ops = NULL;
}

static void npulink_link_free(struct npulink_link *link)
{
	npulink_link_close(link);
	put_device(&link->dev->dev);
	put_device(&link->peer->dev);
	kfree(link);
}

/* May sleep. NULL and ERR_PTR are ignored. */
void npulink_link_put(struct npulink_link *link)
{
	if (!IS_ERR_OR_NULL(link) && refcount_dec_and_test(&link->refs))
		npulink_link_free(link);
}

/* The backend says so, or nothing goes over it. Any context but NMI. */
void npulink_link_set_lost(struct npulink_link *link, bool lost)
{
	if (xchg(&link->lost, lost) == lost)
		return;
	if (lost)
		atomic64_inc(&link->stats.errors);
	npulink_device_events->link_changed(link, !lost);
}

/* The backend says that @link is down. Any context but NMI. */
void npulink_link_fail(struct npulink_link *link)
{
	npulink_link_set_lost(link, true);
	WRITE_ONCE(link->lost_ns, npulink_clock());
	refcount_inc(&link->refs);
	if (!npulink_queue(&link->fail_work))
		refcount_dec(&link->refs);
}

/* The core delivers events itself. */
static const struct npulink_link_ops npulink_plain_link;

static struct npulink_link *npulink_link_new(struct npulink_device *dev,
					     struct npulink_device *peer)
{
	struct npulink_link *link;
	int rc = 0;

	if (!dev->fabric || dev->fabric != peer->fabric)
		return ERR_PTR(-EHOSTUNREACH);
	link = kzalloc(sizeof(*link), GFP_KERNEL);
	if (!link)
		return ERR_PTR(-ENOMEM);
	link->ops = dev->link_ops ?: &npulink_plain_link;
	link->dev = dev;
	link->peer = peer;
	refcount_set(&link->refs, 1);
	INIT_WORK(&link->fail_work, npulink_device_events->link_lost);
	if (link->ops->open)
		rc = link->ops->open(link);
	if (rc) {
		kfree(link);
		return ERR_PTR(rc);
	}
	get_device(&dev->dev);
	get_device(&peer->dev);
	trace_npulink_link(link, "up");
	return link;
}

/*
 * The link from @dev to @peer with a reference, or ERR_PTR. Sleeps only if it has to
 * be made.
 */
struct npulink_link *npulink_link_get(struct npulink_device *dev, struct npulink_device *peer,
				      bool create)
{
	struct npulink_link *link;

	xa_lock(&dev->links);
	link = xa_load(&dev->links, peer->id);
	if (link)
		refcount_inc(&link->refs);
	xa_unlock(&dev->links);
	if (link || !create)
		return link ?: ERR_PTR(-ENOENT);
	mutex_lock(&dev->lock);
	link = xa_load(&dev->links, peer->id);
	if (!link) {
		if (READ_ONCE(dev->gone) || READ_ONCE(peer->gone))
			link = ERR_PTR(-ENODEV);
		else
			link = npulink_link_new(dev, peer);
		if (!IS_ERR(link)) {
			int rc = xa_err(xa_store(&dev->links, peer->id, link, GFP_KERNEL));

			if (rc) {
				/* The backend may have called npulink_link_fail() already. */
				npulink_link_put(link);
				link = ERR_PTR(rc);
			}
		}
	}
	if (!IS_ERR(link))
		refcount_inc(&link->refs);
	mutex_unlock(&dev->lock);
	return link;
}

/* The first link of @dev to a device with an id of at least *id, referenced. */
struct npulink_link *npulink_link_next(struct npulink_device *dev, unsigned long *id)
{
	struct npulink_link *link;

	xa_lock(&dev->links);
	link = xa_find(&dev->links, id, ULONG_MAX, XA_PRESENT);
	if (link)
		refcount_inc(&link->refs);
	xa_unlock(&dev->links);
	return link;
}

/*
 * @dev is going: ring none of its links any more, and have nobody find them. They are
 * put on @dropped, with their reference. May sleep.
 */
void npulink_links_drop(struct npulink_device *dev, struct list_head *dropped)
{
	struct npulink_device *other;
	struct npulink_link *link;
	unsigned long i;
	u32 id = 0;

	for (id = 0; (other = npulink_device_next(&id)); id++) {
		mutex_lock(&other->lock);
		link = other == dev ? NULL : xa_erase(&other->links, dev->id);
		if (link) {
			WRITE_ONCE(link->down, true);
			list_add_tail(&link->dropped, dropped);
		}
		mutex_unlock(&other->lock);
		put_device(&other->dev);
	}
	mutex_lock(&dev->lock);
	xa_for_each(&dev->links, i, link) {
		xa_erase(&dev->links, i);
		WRITE_ONCE(link->down, true);
		list_add_tail(&link->dropped, dropped);
	}
	mutex_unlock(&dev->lock);
}

/*
 * Nobody rings them any more. Ranks may have them for as long as their files are
 * open, when the backend's module may have gone. May sleep.
 */
void npulink_links_close(struct list_head *dropped)
{
	struct npulink_link *link, *next;

	list_for_each_entry_safe(link, next, dropped, dropped) {
		npulink_link_close(link);
		trace_npulink_link(link, "gone");
		npulink_link_put(link);
	}
}
