// SPDX-License-Identifier: GPL-2.0
/*
 * notify.c - what the netlink group "events" is told. Failures are decided in any
 * context, so a notice is only put into a ring there, and sent by a worker. The ring is
 * bounded, and so is what one kind of notice may put into it in a second, so that links
 * that flap do not drown the death of a rank; what is left out is counted.
 */
#include <linux/npulink_genl.h>
#include "core.h"

#define NPULINK_NOTICES		256	/* in the ring; a power of two */
#define NPULINK_NOTICE_RATE	128	/* of one type, in a second */
#define NPULINK_NOTICE_TYPES	(NPULINK_EVENT_SUSPECT + 1)

struct npulink_totals npulink_totals;

static DEFINE_SPINLOCK(npulink_notices_lock);	/* all below */
static struct npulink_notice npulink_notices[NPULINK_NOTICES];
static u32 npulink_notices_head, npulink_notices_tail;
static struct {
	unsigned long start;
	u32 count;
} npulink_notice_rates[NPULINK_NOTICE_TYPES];

static bool npulink_notice_take(struct npulink_notice *notice)
{
	bool any;

	spin_lock_irq(&npulink_notices_lock);
	any = npulink_notices_tail != npulink_notices_head;
	if (any)
		*notice = npulink_notices[npulink_notices_tail++ % NPULINK_NOTICES];
	spin_unlock_irq(&npulink_notices_lock);
	return any;
}

static void npulink_notices_send(struct work_struct *work)
{
	struct npulink_notice notice;

	while (npulink_notice_take(&notice)) {
		if (npulink_genl_multicast(&notice))
			atomic64_inc(&npulink_totals.lost);
		cond_resched();
	}
}

static DECLARE_WORK(npulink_notices_work, npulink_notices_send);

static bool npulink_notice_allowed(u32 type)
{
	unsigned long now = jiffies;

	lockdep_assert_held(&npulink_notices_lock);
	if (npulink_notices_head - npulink_notices_tail >= NPULINK_NOTICES)
		return false;
	if (time_after_eq(now, npulink_notice_rates[type].start + HZ)) {
		npulink_notice_rates[type].start = now;
		npulink_notice_rates[type].count = 0;
	}
	return ++npulink_notice_rates[type].count <= NPULINK_NOTICE_RATE;
}

/* Any context but NMI. */
void npulink_notify(const struct npulink_notice *notice)
{
	unsigned long flags;
	bool allowed;

	spin_lock_irqsave(&npulink_notices_lock, flags);
	allowed = npulink_notice_allowed(notice->type);
	if (allowed) {
		struct npulink_notice *n = &npulink_notices[npulink_notices_head++ %
							    NPULINK_NOTICES];

		*n = *notice;
		n->time_ns = ktime_get_real_ns();
		n->serial = atomic64_inc_return(&npulink_totals.events);
		n->lost = atomic64_read(&npulink_totals.lost);
	} else {
		atomic64_inc(&npulink_totals.lost);
	}
	spin_unlock_irqrestore(&npulink_notices_lock, flags);
	if (allowed)
		schedule_work(&npulink_notices_work);
}

/* @comm has failed. Any context but NMI. */
void npulink_notify_cause(const struct npulink_comm *comm, const struct npulink_cause *cause)
{
	struct npulink_notice notice = NPULINK_NOTICE(NPULINK_EVENT_FAIL);

	atomic64_inc(&npulink_totals.failures[cause->cause]);
	notice.comm = comm->serial;
	notice.rank = cause->rank;
	notice.peer = cause->peer;
	notice.step = cause->step;
	notice.number = cause->number;
	notice.cause = cause->cause;
	notice.code = cause->code;
	if (cause->cause == NPULINK_CAUSE_DEADLOCK)
		notice.circle = comm->circle;
	npulink_notify(&notice);
}

void npulink_notify_dev(const struct npulink_device *dev, bool added)
{
	struct npulink_notice notice = NPULINK_NOTICE(added ? NPULINK_EVENT_DEV_ADD :
							      NPULINK_EVENT_DEV_DEL);

	notice.dev = dev->id;
	npulink_notify(&notice);
}

/* Any context but NMI. */
void npulink_notify_link(const struct npulink_link *link, bool up)
{
	struct npulink_notice notice = NPULINK_NOTICE(up ? NPULINK_EVENT_LINK_UP :
							   NPULINK_EVENT_LINK_DOWN);

	notice.dev = link->dev->id;
	notice.peer_dev = link->peer->id;
	npulink_notify(&notice);
}

/* Nobody notifies any more. */
void npulink_notify_exit(void)
{
	flush_work(&npulink_notices_work);
}
