// SPDX-License-Identifier: GPL-2.0
/*
 * irq.c - the interrupts of a software NPU: one for completions, one for
 * doorbells. They are real ones as far as the kernel is concerned: allocated
 * from an interrupt domain, requested, counted in /proc/interrupts, handled in hard
 * interrupt context. What raises them is an irq_work, which has the CPU that
 * works on a request interrupt itself.
 */
#include <linux/interrupt.h>
#include <linux/irq.h>
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
	/* It comes where the work is done; there is nothing to balance. */
	irq_modify_status(virq, IRQ_NOREQUEST | IRQ_NOAUTOEN, IRQ_NOPROBE | IRQ_NO_BALANCING);
	return 0;
}

static const struct irq_domain_ops soft_irq_domain_ops = {
	.map = soft_irq_map,
};

static void soft_irq_work(struct irq_work *work)
{
	struct soft_vector *vec = container_of(work, struct soft_vector, work);

	generic_handle_domain_irq(vec->sd->domain, vec->hwirq);
	if (unlikely(READ_ONCE(vec->sd->special)) && soft_fault_dup(vec->sd))
		generic_handle_domain_irq(vec->sd->domain, vec->hwirq);
}

static irqreturn_t soft_done_handler(int irq, void *data)
{
	struct soft_vector *vec = data;
	struct soft_dev *sd = vec->sd;
	struct npulink_req *req, *next;
	struct soft_req *sr, *snext;
	struct llist_node *events;
	LIST_HEAD(lost);

	events = llist_reverse_order(llist_del_all(&vec->events));
	llist_for_each_entry_safe(req, next, events, ev.node) {
		atomic64_inc(&sd->dev->stats.interrupts);
		npulink_step_done(req, 0);
	}
	if (unlikely(READ_ONCE(sd->nlost))) {
		soft_fault_take_lost(sd, &lost);
		list_for_each_entry_safe(sr, snext, &lost, node) {
			atomic64_inc(&sd->dev->stats.interrupts);
			npulink_step_done(from_soft_req(sr), 0);
		}
	}
	/* An empty list is one that the previous interrupt has taken, too. */
	return IRQ_HANDLED;
}

static irqreturn_t soft_bell_handler(int irq, void *data)
{
	struct soft_vector *vec = data;
	struct npulink_event *ev, *next;
	struct llist_node *events;

	events = llist_reverse_order(llist_del_all(&vec->events));
	llist_for_each_entry_safe(ev, next, events, node) {
		atomic64_inc(&vec->sd->dev->stats.interrupts);
		npulink_link_event(NULL, NPULINK_LINK_BELL, ev);
	}
	return IRQ_HANDLED;
}

/**
 * soft_irq_raise() - have an interrupt report an event
 * @sd: device
 * @vector: SOFT_VECTOR_*
 * @ev: event, which is the handler's from now on
 *
 * Any context but NMI. The interrupt is raised also when others wait to be reported:
 * whoever put them there may have been preempted before raising it.
 *
 * Return: whether it was raised; false: one that is still pending does for both.
 */
bool soft_irq_raise(struct soft_dev *sd, unsigned int vector, struct npulink_event *ev)
{
	llist_add(&ev->node, &sd->vec[vector].events);
	return irq_work_queue(&sd->vec[vector].work);
}

static int soft_vector_init(struct soft_dev *sd, unsigned int vector, const char *what,
			    irq_handler_t handler)
{
	struct soft_vector *vec = &sd->vec[vector];
	int rc;

	vec->sd = sd;
	vec->hwirq = vector;
	init_llist_head(&vec->events);
	vec->work = IRQ_WORK_INIT_HARD(soft_irq_work);
	snprintf(vec->name, sizeof(vec->name), "npulink-soft npu%u-%s", sd->dev->id, what);
	vec->virq = irq_create_mapping(sd->domain, vector);
	if (!vec->virq)
		return -ENOMEM;
	rc = request_irq(vec->virq, handler, 0, vec->name, vec);
	if (rc)
		irq_dispose_mapping(vec->virq);
	return rc;
}

static void soft_vector_exit(struct soft_vector *vec)
{
	free_irq(vec->virq, vec);
	irq_dispose_mapping(vec->virq);
}

int soft_irq_init(struct soft_dev *sd)
{
	char name[32];
	int rc;

	snprintf(name, sizeof(name), "npulink-soft-%u", sd->index);
	sd->fwnode = irq_domain_alloc_named_fwnode(name);
	if (!sd->fwnode)
		return -ENOMEM;
	sd->domain = irq_domain_create_linear(sd->fwnode, SOFT_VECTORS, &soft_irq_domain_ops, sd);
	if (!sd->domain) {
		rc = -ENOMEM;
		goto err_fwnode;
	}
	rc = soft_vector_init(sd, SOFT_VECTOR_DONE, "done", soft_done_handler);
	if (rc)
		goto err_domain;
	rc = soft_vector_init(sd, SOFT_VECTOR_BELL, "bell", soft_bell_handler);
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
		irq_work_sync(&sd->vec[i].work);
		synchronize_irq(sd->vec[i].virq);
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
