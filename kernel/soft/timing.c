// SPDX-License-Identifier: GPL-2.0
/*
 * timing.c - how long a real device would take. Off unless a model is set, it
 * delays the completion of requests; it never makes anything faster.
 *
 * The way from a peer takes one transfer at a time: n bytes occupy it for
 * n beta, arrive alpha later, and take n gamma to reduce. That is the model
 * by which libcoll chooses algorithms, so the two can be compared.
 */
#include <linux/math64.h>
#include "soft.h"

static bool soft_model_set(const struct soft_model *m)
{
	return m->alpha_ns || m->beta_ps || m->gamma_ps;
}

bool soft_timing_active(struct soft_dev *sd)
{
	unsigned int i;

	lockdep_assert_held(&sd->lock);
	for (i = 0; i < SOFT_MAX_DEVICES; i++) {
		if (soft_model_set(&sd->models[i]))
			return true;
	}
	return false;
}

/* When a request that was submitted at @start is to complete; may have passed. */
ktime_t soft_timing_end(struct soft_dev *sd, struct npulink_req *req, ktime_t start)
{
	struct npulink_link *link = req->link;
	struct soft_dev *from = sd;
	struct soft_model *m;
	ktime_t end = start;

	lockdep_assert_held(&sd->lock);
	if (link)
		from = to_soft_dev(link->dev == sd->dev ? link->peer : link->dev);
	m = &sd->models[from->index];
	if (soft_model_set(m)) {
		if (link) {
			u64 bytes = req->len * (req->nsrc - req->remote);

			m->busy = max(m->busy, start) + div_u64(bytes * m->beta_ps, 1000);
			end = m->busy + m->alpha_ns;
		}
		end += div_u64(req->len * (req->nsrc - 1) * m->gamma_ps, 1000);
	}
	return end + soft_fault_delay(sd, req);
}

static void soft_timing_arm(struct soft_dev *sd)
{
	struct timerqueue_node *first = timerqueue_getnext(&sd->queue);

	lockdep_assert_held(&sd->lock);
	if (first)
		hrtimer_start(&sd->timer, first->expires, HRTIMER_MODE_ABS_HARD);
}

void soft_timing_park(struct soft_dev *sd, struct npulink_req *req, ktime_t end)
{
	struct soft_req *sr = to_soft_req(req);

	lockdep_assert_held(&sd->lock);
	sr->parked = SOFT_PARKED_TIMED;
	timerqueue_init(&sr->timer);
	sr->timer.expires = end;
	if (timerqueue_add(&sd->queue, &sr->timer))
		soft_timing_arm(sd);
}

/* The timer is left to run: finding nothing to do is cheaper than stopping it. */
void soft_timing_unpark(struct soft_dev *sd, struct npulink_req *req)
{
	lockdep_assert_held(&sd->lock);
	timerqueue_del(&sd->queue, &to_soft_req(req)->timer);
}

static enum hrtimer_restart soft_timer(struct hrtimer *timer)
{
	struct soft_dev *sd = container_of(timer, struct soft_dev, timer);
	struct timerqueue_node *first;
	unsigned long flags;

	raw_spin_lock_irqsave(&sd->lock, flags);
	while ((first = timerqueue_getnext(&sd->queue)) && first->expires <= ktime_get()) {
		struct soft_req *sr = container_of(first, struct soft_req, timer);

		timerqueue_del(&sd->queue, first);
		sr->parked = SOFT_NOT_PARKED;
		soft_irq_raise(sd, SOFT_VECTOR_DONE, &from_soft_req(sr)->ev);
	}
	/* Not by returning RESTART: others start the timer under the lock, too. */
	soft_timing_arm(sd);
	raw_spin_unlock_irqrestore(&sd->lock, flags);
	return HRTIMER_NORESTART;
}

void soft_timing_set(struct soft_dev *sd, struct soft_dev *peer, const struct soft_model *model)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&sd->lock, flags);
	sd->models[peer->index] = *model;
	soft_fault_update(sd);
	raw_spin_unlock_irqrestore(&sd->lock, flags);
}

void soft_timing_init(struct soft_dev *sd)
{
	timerqueue_init_head(&sd->queue);
	npulink_hrtimer_setup(&sd->timer, soft_timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_HARD);
}

void soft_timing_quiesce(struct soft_dev *sd)
{
	hrtimer_cancel(&sd->timer);
}
