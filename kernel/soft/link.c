// SPDX-License-Identifier: GPL-2.0
/*
 * link.c - HCCS between software NPUs: all of them see each other's memory, so
 * bytes are not sent but fetched by the receiver's engine. What goes over the
 * link by itself is the doorbell.
 */
#include "soft.h"

static DEFINE_MUTEX(soft_links_lock);	/* soft_dev.links and .cut; nothing below it */

static int soft_link_open(struct npulink_link *link)
{
	struct soft_dev *sd = to_soft_dev(link->dev);
	unsigned int peer = to_soft_dev(link->peer)->index;

	mutex_lock(&soft_links_lock);
	sd->links[peer] = link;
	if (test_bit(peer, sd->cut))
		npulink_link_event(link, NPULINK_LINK_DOWN, NULL);
	mutex_unlock(&soft_links_lock);
	return 0;
}

static void soft_link_close(struct npulink_link *link)
{
	struct soft_dev *sd = to_soft_dev(link->dev);
	unsigned int peer = to_soft_dev(link->peer)->index;

	mutex_lock(&soft_links_lock);
	if (sd->links[peer] == link)
		sd->links[peer] = NULL;
	mutex_unlock(&soft_links_lock);
}

/* For tests: nothing goes over the link from @sd to @peer, or does again. */
void soft_link_cut(struct soft_dev *sd, struct soft_dev *peer, bool down)
{
	struct npulink_link *link;

	mutex_lock(&soft_links_lock);
	if (test_bit(peer->index, sd->cut) != down) {
		change_bit(peer->index, sd->cut);
		link = sd->links[peer->index];
		if (link)
			npulink_link_event(link, down ? NPULINK_LINK_DOWN : NPULINK_LINK_UP, NULL);
	}
	mutex_unlock(&soft_links_lock);
}

/* Both ends ring alike: bytes are there to be fetched, or have been. */
static int soft_link_ring(struct npulink_link *link, struct npulink_event *ev, u64 bytes)
{
	u32 inline_max = READ_ONCE(link->peer->inline_max);

	if (unlikely(test_bit(to_soft_dev(link->peer)->index, to_soft_dev(link->dev)->cut)))
		return -ENOLINK;
	if (inline_max && bytes <= inline_max) {
		atomic64_inc(&link->stats.inline_bells);
		return 0;
	}
	if (soft_irq_raise(to_soft_dev(link->peer), SOFT_VECTOR_BELL, ev))
		atomic64_inc(&link->stats.doorbells);
	return -EINPROGRESS;
}

const struct npulink_link_ops soft_link_ops = {
	.open = soft_link_open,
	.close = soft_link_close,
	.publish = soft_link_ring,
	.credit = soft_link_ring,
};
