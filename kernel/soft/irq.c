// SPDX-License-Identifier: GPL-2.0
/*
 * irq.c - the interrupts of a software NPU: one for completions, one for
 * doorbells. They are real ones as far as the kernel is concerned: allocated
 * from an interrupt domain, requested, counted in /proc/interrupts, handled in hard
 * interrupt context. What raises them is an irq_work, which has the CPU that
 * works on a request interrupt itself. What would keep a processor in them for long is
 * left to a worker.
 */
#include <linux/interrupt.h>
#include <linux/irq.h>
#include <linux/sched/clock.h>
#include "soft.h"

static void soft_irq_nop(struct irq_data *d)
{
}

/* A disabled interrupt is kept pending by the edge handler, so there is no mask. */
static struct irq_chip soft_irq_chip = {
	.name = "soft",
	.irq_mask = soft_irq_nop,
	.irq_unmask = soft_irq_nop,
	.irq_ack = soft_irq_nop,
};

static int soft_irq_map(struct irq_domain *domain, unsigned int virq, irq_hw_number_t hwirq)
{
	irq_set_chip_and_handler(virq, &soft_irq_chip, handle_edge_irq);
	irq_set_chip_data(virq, domain->host_data);
	/*
	 * It comes where the work is done; there is nothing to balance. No hardware raises it,
	 * which could do so without a reason.
	 */
	irq_modify_status(virq, IRQ_NOREQUEST | IRQ_NOAUTOEN,
			  IRQ_NOPROBE | IRQ_NO_BALANCING | IRQ_IS_POLLED);
	return 0;
}

static const struct irq_domain_ops soft_irq_domain_ops = {
	.map = soft_irq_map,
};

/*
 * The time that a processor is in an interrupt. Whoever raises one that is being handled already
 * has that processor handle it once more, and so may others without end.
 */
struct soft_stay {
	u32 events;	/* reported by now */
	u64 since;	/* local_clock() when they were SOFT_STAY_EVENTS */
};

#define SOFT_STAY_EVENTS	4	/* before the clock is looked at, as it hardly ever is */

/* Of the own processor, in hard interrupts, which do not nest: no lock. */
static DEFINE_PER_CPU(struct soft_stay, soft_stay);

/* Before each event: has this processor been here for too long? */
static bool soft_stay_over(u32 limit)
{
	/* A thread that handles interrupts may get another processor's: then it is a guess. */
	struct soft_stay *stay = raw_cpu_ptr(&soft_stay);

	if (likely(stay->events < SOFT_STAY_EVENTS)) {
		stay->events++;
		return !limit;
	}
	if (stay->events == SOFT_STAY_EVENTS) {
		stay->events++;
		stay->since = local_clock();
	}
	return local_clock() - stay->since >= limit;
}

static void soft_irq_work(struct irq_work *work)
{
	struct soft_vector *vec = container_of(work, struct soft_vector, work);

	this_cpu_write(soft_stay.events, 0);
	generic_handle_domain_irq(vec->sd->domain, vec->hwirq);
	if (unlikely(READ_ONCE(vec->sd->special)) && soft_fault_dup(vec->sd))
		generic_handle_domain_irq(vec->sd->domain, vec->hwirq);
}

/* Tell the core; the event must not be touched any more. */
static void soft_report(struct soft_vector *vec, struct llist_node *node)
{
	struct npulink_event *ev = llist_entry(node, struct npulink_event, node);

	atomic64_inc(&vec->sd->dev->stats.interrupts);
	if (vec->hwirq == SOFT_VECTOR_DONE)
		npulink_step_done(container_of(ev, struct npulink_req, ev), 0);
	else
		npulink_link_event(NULL, NPULINK_LINK_BELL, ev);
}

static bool soft_has_lost(const struct soft_vector *vec)
{
	return READ_ONCE(vec->sd->nlost) && vec->hwirq == SOFT_VECTOR_DONE;
}

/* What the knob has lost until now. */
static noinline void soft_report_lost(struct soft_vector *vec)
{
	struct soft_req *sr, *next;
	LIST_HEAD(lost);

	soft_fault_take_lost(vec->sd, &lost);
	list_for_each_entry_safe(sr, next, &lost, node)
		soft_report(vec, &from_soft_req(sr)->ev.node);
}

/*
 * Not called twice at a time (IRQD_IRQ_INPROGRESS, or a thread), so nobody else sets polled.
 * A thread has not been in an interrupt since one was raised on its processor, which may be long
 * ago: its time begins here.
 */
static irqreturn_t soft_irq_handler(int irq, void *data)
{
	struct soft_vector *vec = data;
	struct llist_node *node, *next;

	/* The worker will find what we were raised for. Pairs with its release: rest is ours. */
	if (unlikely(smp_load_acquire(&vec->polled)))
		return IRQ_HANDLED;
	if (in_task())
		raw_cpu_write(soft_stay.events, 0);
	/* An empty list is one that the previous interrupt has taken, too. */
	for (node = llist_reverse_order(llist_del_all(&vec->events)); node; node = next) {
		if (unlikely(soft_stay_over(READ_ONCE(vec->sd->irq_ns)))) {
			vec->rest = node;
			WRITE_ONCE(vec->polled, true);
			queue_work(soft_wq, &vec->poll);
			return IRQ_HANDLED;
		}
		next = node->next;
		soft_report(vec, node);
	}
	if (unlikely(soft_has_lost(vec)))
		soft_report_lost(vec);
	return IRQ_HANDLED;
}

/* Goes on where the handler has stopped, until there is nothing left. */
static void soft_poll(struct work_struct *work)
{
	struct soft_vector *vec = container_of(work, struct soft_vector, poll);
	struct llist_node *node = vec->rest, *next;

	vec->rest = NULL;
	do {
		for (; node; node = next) {
			next = node->next;
			atomic_inc(&vec->sd->polled);
			soft_report(vec, node);
			cond_resched();
		}
		if (soft_has_lost(vec))
			soft_report_lost(vec);
		node = llist_reverse_order(llist_del_all(&vec->events));
	} while (node);
	/* From here on the handler may leave us the next ones. */
	smp_store_release(&vec->polled, false);
	/*
	 * Pairs with llist_add() in soft_irq_raise(): either it sees that polled is clear, or we
	 * see what it has added. The same for a handler that has seen polled.
	 */
	smp_mb();
	if (!llist_empty(&vec->events))
		irq_work_queue(&vec->work);
}

/**
 * soft_irq_raise() - have an interrupt report an event
 * @sd: device
 * @vector: SOFT_VECTOR_*
 * @ev: event, which is the handler's from now on
 *
 * Any context but NMI. The interrupt is raised also when others wait to be reported:
 * whoever put them there may have been preempted before raising it. Not while the worker
 * looks for events by itself: that is what ends a handler that others keep busy.
 *
 * Return: whether it was raised; false: one that is still pending does for both, or the worker.
 */
bool soft_irq_raise(struct soft_dev *sd, unsigned int vector, struct npulink_event *ev)
{
	struct soft_vector *vec = &sd->vec[vector];
	bool raised = false;

	/* Others may report the event at once, and the device go before we have raised it. */
	rcu_read_lock();
	llist_add(&ev->node, &vec->events);
	/* That was a full barrier, see soft_poll(). */
	if (likely(!READ_ONCE(vec->polled)))
		raised = irq_work_queue(&vec->work);
	rcu_read_unlock();
	return raised;
}

static int soft_vector_init(struct soft_dev *sd, unsigned int vector, const char *what)
{
	struct soft_vector *vec = &sd->vec[vector];
	int rc;

	vec->sd = sd;
	vec->hwirq = vector;
	init_llist_head(&vec->events);
	vec->work = IRQ_WORK_INIT_HARD(soft_irq_work);
	INIT_WORK(&vec->poll, soft_poll);
	snprintf(vec->name, sizeof(vec->name), "npulink-soft npu%u-%s", sd->dev->id, what);
	vec->virq = irq_create_mapping(sd->domain, vector);
	if (!vec->virq)
		return -ENOMEM;
	rc = request_irq(vec->virq, soft_irq_handler, 0, vec->name, vec);
	if (rc)
		irq_dispose_mapping(vec->virq);
	return rc;
}

/* After soft_irq_quiesce(), or never raised. */
static void soft_vector_exit(struct soft_vector *vec)
{
	WARN_ON_ONCE(!llist_empty(&vec->events) || work_busy(&vec->poll));
	free_irq(vec->virq, vec);
	irq_dispose_mapping(vec->virq);
}

int soft_irq_init(struct soft_dev *sd)
{
	char name[32];
	int rc;

	sd->irq_ns = SOFT_IRQ_NS;
	snprintf(name, sizeof(name), "npulink-soft-%u", sd->index);
	sd->fwnode = irq_domain_alloc_named_fwnode(name);
	if (!sd->fwnode)
		return -ENOMEM;
	sd->domain = irq_domain_create_linear(sd->fwnode, SOFT_VECTORS, &soft_irq_domain_ops, sd);
	if (!sd->domain) {
		rc = -ENOMEM;
		goto err_fwnode;
	}
	rc = soft_vector_init(sd, SOFT_VECTOR_DONE, "done");
	if (rc)
		goto err_domain;
	rc = soft_vector_init(sd, SOFT_VECTOR_BELL, "bell");
	if (rc)
		goto err_done;
	return 0;

err_done:
	soft_vector_exit(&sd->vec[SOFT_VECTOR_DONE]);
err_domain:
	irq_domain_remove(sd->domain);
err_fwnode:
	irq_domain_free_fwnode(sd->fwnode);
	return rc;
}

/* Nothing raises them any more; wait for what was raised. May sleep. */
void soft_irq_quiesce(struct soft_dev *sd)
{
	unsigned int i;

	for (i = 0; i < SOFT_VECTORS; i++) {
		struct soft_vector *vec = &sd->vec[i];

		irq_work_sync(&vec->work);
		synchronize_irq(vec->virq);
		flush_work(&vec->poll);
		/* The worker raises one if somebody was about to, which finds nothing any more. */
		irq_work_sync(&vec->work);
		synchronize_irq(vec->virq);
	}
}

void soft_irq_exit(struct soft_dev *sd)
{
	soft_irq_quiesce(sd);
	soft_vector_exit(&sd->vec[SOFT_VECTOR_BELL]);
	soft_vector_exit(&sd->vec[SOFT_VECTOR_DONE]);
	irq_domain_remove(sd->domain);
	irq_domain_free_fwnode(sd->fwnode);
}
