// SPDX-License-Identifier: GPL-2.0
/*
 * fault.c - a device that misbehaves, for tests of everything above it, and the
 * parking of requests that this and the timing model need.
 *
 * All of it is behind soft_dev.special, which the fast path looks at once. Knobs
 * count requests and interrupts, never time or chance, so that a test with one
 * rank per device sees the same fault at the same step each time.
 */
#include "soft.h"

void soft_fault_init(struct soft_dev *sd)
{
	raw_spin_lock_init(&sd->lock);
	INIT_LIST_HEAD(&sd->held);
	INIT_LIST_HEAD(&sd->lost);
	sd->knobs[SOFT_HOLD] = SOFT_HOLD_OFF;
	sd->knobs[SOFT_DELAY] = SOFT_DELAY_ALL;
}

/* What a knob holds when it does nothing; SOFT_DELAY and SOFT_SKIP only change others. */
static u32 soft_fault_idle(struct soft_dev *sd, enum soft_knob knob)
{
	switch (knob) {
	case SOFT_HOLD:
		return SOFT_HOLD_OFF;
	case SOFT_DELAY:
	case SOFT_SKIP:
		return sd->knobs[knob];
	default:
		return 0;
	}
}

/* A knob or model has changed: may the fast path be used? */
void soft_fault_update(struct soft_dev *sd)
{
	bool special = soft_timing_active(sd);
	unsigned int i;

	lockdep_assert_held(&sd->lock);
	for (i = 0; i < SOFT_KNOBS; i++)
		special |= sd->knobs[i] != soft_fault_idle(sd, i);
	WRITE_ONCE(sd->special, special);
	npulink_device_set_special(sd->dev, special);
}

/* Use up one of a knob's count, on @req if that is known; or of what it lets pass first. */
static bool soft_fault_hit(struct soft_dev *sd, enum soft_knob knob, const struct npulink_req *req)
{
	lockdep_assert_held(&sd->lock);
	if (!sd->knobs[knob])
		return false;
	if (sd->knobs[SOFT_SKIP]) {
		sd->knobs[SOFT_SKIP]--;
		return false;
	}
	if (!--sd->knobs[knob])
		soft_fault_update(sd);
	if (req) {
		WRITE_ONCE(sd->hit_step, req->step);
		WRITE_ONCE(sd->hit_from, req->link ? req->link->dev->id : SOFT_HIT_LOCAL);
	}
	return true;
}

u32 soft_fault_get(struct soft_dev *sd, enum soft_knob knob)
{
	return READ_ONCE(sd->knobs[knob]);
}

void soft_fault_set(struct soft_dev *sd, enum soft_knob knob, u32 value)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&sd->lock, flags);
	WRITE_ONCE(sd->knobs[knob], value);
	soft_fault_update(sd);
	raw_spin_unlock_irqrestore(&sd->lock, flags);
	if (knob == SOFT_HOLD && value == SOFT_HOLD_OFF)
		soft_fault_release(sd, U32_MAX);
}

/* Before the work: shall it fail, shall its result be wrong? */
int soft_fault_submit(struct soft_dev *sd, const struct npulink_req *req, bool *corrupt)
{
	unsigned long flags;
	int rc = 0;

	raw_spin_lock_irqsave(&sd->lock, flags);
	if (soft_fault_hit(sd, SOFT_FAIL_POST, req))
		rc = -EIO;
	else
		*corrupt = soft_fault_hit(sd, SOFT_CORRUPT, req) ||
			   (req->link && soft_fault_hit(sd, SOFT_CORRUPT_LINK, req));
	raw_spin_unlock_irqrestore(&sd->lock, flags);
	return rc;
}

/* How much later than otherwise a request completes. */
u64 soft_fault_delay(struct soft_dev *sd, const struct npulink_req *req)
{
	u32 ns = sd->knobs[SOFT_DELAY_NS];

	lockdep_assert_held(&sd->lock);
	if (!ns || sd->knobs[SOFT_DELAY] == SOFT_DELAY_ALL)
		return ns;
	return soft_fault_hit(sd, SOFT_DELAY, req) ? ns : 0;
}

/**
 * soft_fault_finish() - after the work: park the request?
 * @sd: device
 * @req: request
 * @start: when it was submitted
 *
 * Return: 0: no, go on; -EINPROGRESS: yes, it is not to be touched any more;
 * -ECANCELED: it has failed meanwhile, and nobody would come for it.
 */
int soft_fault_finish(struct soft_dev *sd, struct npulink_req *req, ktime_t start)
{
	struct soft_req *sr = to_soft_req(req);
	unsigned long flags;
	int rc = -EINPROGRESS;
	ktime_t end;

	raw_spin_lock_irqsave(&sd->lock, flags);
	end = soft_timing_end(sd, req, start);
	if (READ_ONCE(req->cancelled)) {
		rc = -ECANCELED;
	} else if (!sd->knobs[SOFT_HOLD]) {
		sr->parked = SOFT_PARKED_HELD;
		list_add_tail(&sr->node, &sd->held);
		WRITE_ONCE(sd->nheld, sd->nheld + 1);
	} else {
		if (sd->knobs[SOFT_HOLD] != SOFT_HOLD_OFF)
			sd->knobs[SOFT_HOLD]--;
		if (end > ktime_get()) {
			soft_timing_park(sd, req, end);
		} else if (!req->small && soft_fault_hit(sd, SOFT_DROP_IRQ, req)) {
			sr->parked = SOFT_PARKED_LOST;
			list_add_tail(&sr->node, &sd->lost);
			WRITE_ONCE(sd->nlost, sd->nlost + 1);
		} else {
			rc = 0;
		}
	}
	raw_spin_unlock_irqrestore(&sd->lock, flags);
	return rc;
}

bool soft_fault_dup(struct soft_dev *sd)
{
	unsigned long flags;
	bool dup;

	raw_spin_lock_irqsave(&sd->lock, flags);
	dup = soft_fault_hit(sd, SOFT_DUP_IRQ, NULL);
	raw_spin_unlock_irqrestore(&sd->lock, flags);
	return dup;
}

/* An interrupt after all: it finds also those whose own was dropped. */
void soft_fault_take_lost(struct soft_dev *sd, struct list_head *list)
{
	struct soft_req *sr;
	unsigned long flags;

	raw_spin_lock_irqsave(&sd->lock, flags);
	list_for_each_entry(sr, &sd->lost, node)
		sr->parked = SOFT_NOT_PARKED;
	list_splice_init(&sd->lost, list);
	WRITE_ONCE(sd->nlost, 0);
	raw_spin_unlock_irqrestore(&sd->lock, flags);
}

/* Let @n of the held requests go, the oldest first. */
void soft_fault_release(struct soft_dev *sd, u32 n)
{
	struct soft_req *sr, *next;
	unsigned long flags;

	raw_spin_lock_irqsave(&sd->lock, flags);
	list_for_each_entry_safe(sr, next, &sd->held, node) {
		if (!n--)
			break;
		list_del(&sr->node);
		sr->parked = SOFT_NOT_PARKED;
		WRITE_ONCE(sd->nheld, sd->nheld - 1);
		soft_irq_raise(sd, SOFT_VECTOR_DONE, &from_soft_req(sr)->ev);
	}
	raw_spin_unlock_irqrestore(&sd->lock, flags);
}

/**
 * soft_cancel() - npulink_device_ops.cancel
 * @dev: device
 * @req: request; its cancelled flag is set already, so if it is not parked now it
 *	 will not be
 */
bool soft_cancel(struct npulink_device *dev, struct npulink_req *req)
{
	struct soft_dev *sd = to_soft_dev(dev);
	struct soft_req *sr = to_soft_req(req);
	unsigned long flags;
	bool out = true;

	raw_spin_lock_irqsave(&sd->lock, flags);
	switch (sr->parked) {
	case SOFT_PARKED_HELD:
		list_del(&sr->node);
		WRITE_ONCE(sd->nheld, sd->nheld - 1);
		break;
	case SOFT_PARKED_LOST:
		list_del(&sr->node);
		WRITE_ONCE(sd->nlost, sd->nlost - 1);
		break;
	case SOFT_PARKED_TIMED:
		soft_timing_unpark(sd, req);
		break;
	default:
		out = false;
	}
	sr->parked = SOFT_NOT_PARKED;
	raw_spin_unlock_irqrestore(&sd->lock, flags);
	return out;
}
