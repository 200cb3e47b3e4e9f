// SPDX-License-Identifier: GPL-2.0
/*
 * link.c - HCCS between software NPUs: all of them see each other's memory, so
 * bytes are not sent but fetched by the receiver's engine. What goes over the
 * link by itself is the doorbell.
 */
#include "soft.h"

/* Both ends ring alike: bytes are there to be fetched, or have been. */
static int soft_link_ring(struct npulink_link *link, struct npulink_event *ev, u64 bytes)
{
	u32 inline_max = READ_ONCE(link->peer->inline_max);

	if (inline_max && bytes <= inline_max) {
		atomic64_inc(&link->stats.inline_bells);
		return 0;
	}
	if (soft_irq_raise(to_soft_dev(link->peer), SOFT_VECTOR_BELL, ev))
		atomic64_inc(&link->stats.doorbells);
	return -EINPROGRESS;
}

const struct npulink_link_ops soft_link_ops = {
	.publish = soft_link_ring,
	.credit = soft_link_ring,
};
