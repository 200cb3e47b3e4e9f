// SPDX-License-Identifier: GPL-2.0
/*
 * event.c - how operations report their end: slots that name them, the completion
 * ring and its eventfd, held results, and the watchdog of deadlines.
 */
#include <linux/eventfd.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <npulink/compat.h>
#include "base/number.h"
#include "comm/comm.h"
#include "file/account.h"
#include "file/file.h"
#include "run/event.h"
#include "run/op.h"

#define SLOT(seq)	((seq) % NPULINK_MAX_INFLIGHT)

/* Name an operation, and make sure that there will be room for its record. */
int npulink_slot_take(struct npulink_file *file, struct npulink_op *op, bool held)
{
	u32 i, slot;
	int rc = -EBUSY;

	spin_lock_irq(&file->lock);
	if (!held) {
		struct npulink_cq *cq = &file->cq;

		if (!cq->ring) {
			rc = -ENOTCONN;
			goto out;
		}
		/* A wrong tail hurts only the user who wrote it. */
		if (cq->head - READ_ONCE(cq->ring->tail) + cq->reserved >= cq->entries)
			goto out;
	}
	for (i = 0; i < NPULINK_MAX_INFLIGHT; i++) {
		slot = SLOT(file->slot_hint + i);
		if (!file->slots[slot])
			break;
	}
	if (i == NPULINK_MAX_INFLIGHT)
		goto out;
	file->slot_hint = slot + 1;
	file->slots[slot] = op;
	file->inflight++;
	/* To users 0 is no operation. */
	do
		op->seq = ++file->seq * NPULINK_MAX_INFLIGHT + slot;
	while (!op->seq);
	op->held = held;
	if (held)
		refcount_inc(&op->refs);	/* the slot's */
	else
		file->cq.reserved++;
	rc = 0;
out:
	spin_unlock_irq(&file->lock);
	return rc;
}

/* Who waits for @op is woken. */
static void npulink_op_wake(struct npulink_file *file, struct npulink_op *op)
{
	struct npulink_waiter *w;

	/* Whoever sees it sees the result. */
	smp_store_release(&op->done, true);
	list_for_each_entry(w, &file->waiters, node) {
		if (w->op == op)
			wake_up_process(w->task);
	}
}

/* Undo npulink_slot_take(), or fetch what was held. */
void npulink_slot_give(struct npulink_file *file, struct npulink_op *op)
{
	bool mine;

	spin_lock_irq(&file->lock);
	mine = file->slots[SLOT(op->seq)] == op;
	if (mine) {
		file->slots[SLOT(op->seq)] = NULL;
		if (!op->held)
			file->cq.reserved--;
		if (!op->done) {
			/* Never started; somebody may have guessed its name. */
			file->inflight--;
			op->result.status = -ECANCELED;
			npulink_op_wake(file, op);
		}
	}
	spin_unlock_irq(&file->lock);
	if (mine && op->held)
		npulink_op_put(op);
}

/* The operation of that name, referenced, or NULL. */
struct npulink_op *npulink_slot_find(struct npulink_file *file, u64 seq)
{
	struct npulink_op *op;

	spin_lock_irq(&file->lock);
	op = file->slots ? file->slots[SLOT(seq)] : NULL;
	if (op && op->seq == seq)
		refcount_inc(&op->refs);
	else
		op = NULL;
	spin_unlock_irq(&file->lock);
	return op;
}

/* Nothing is in flight any more: throw away results that nobody fetched. */
void npulink_slots_free(struct npulink_file *file)
{
	u32 i;

	for (i = 0; file->slots && i < NPULINK_MAX_INFLIGHT; i++)
		if (file->slots[i])
			npulink_slot_give(file, file->slots[i]);
	kvfree(file->slots);
	file->slots = NULL;
}

/* op->result is complete: hand it over, wake who waits. Under rank->lock. */
void npulink_op_deliver(struct npulink_op *op)
{
	struct npulink_file *file = op->rank->file;
	struct npulink_cq *cq = &file->cq;

	spin_lock(&file->lock);
	file->inflight--;
	if (!op->held) {
		struct npulink_ring *ring = cq->ring;

		ring->records[cq->head & (cq->entries - 1)] = op->result;
		/* Pairs with the user's acquire: the record is whole. */
		smp_store_release(&ring->head, ++cq->head);
		cq->reserved--;
		file->slots[SLOT(op->seq)] = NULL;
		if (cq->eventfd)
			npulink_eventfd_signal(cq->eventfd);
	}
	npulink_op_wake(file, op);
	/* Who polls looks at the ring; npulink_release(), at what is in flight. */
	if ((!op->held || READ_ONCE(file->dead)) && wq_has_sleeper(&file->poll_wq))
		wake_up(&file->poll_wq);
	spin_unlock(&file->lock);
}

/* ---- the ring ------------------------------------------------------------------ */

int npulink_ring_setup_ioctl(struct npulink_ucmd *ucmd)
{
	struct npulink_ring_setup *cmd = ucmd->cmd;
	struct npulink_file *file = ucmd->file;
	struct eventfd_ctx *eventfd = NULL;
	struct npulink_charge charge = {};
	struct npulink_ring *ring;
	size_t len;
	int rc;

	if (cmd->flags)
		return -EOPNOTSUPP;
	if (!is_power_of_2(cmd->entries) || cmd->entries > NPULINK_MAX_RING || cmd->eventfd < -1)
		return -EINVAL;
	len = PAGE_ALIGN(struct_size(ring, records, cmd->entries));
	if (cmd->eventfd >= 0) {
		eventfd = eventfd_ctx_fdget(cmd->eventfd);
		if (IS_ERR(eventfd))
			return -EBADF;
	}
	/* Before the lock, which mmap() wants. */
	rc = npulink_charge(&charge, file, len >> PAGE_SHIFT, true);
	if (rc)
		goto err_eventfd;
	rc = npulink_lock(&file->mutex);
	if (rc)
		goto err_uncharge;
	rc = -EEXIST;
	if (file->cq.ring)
		goto err_unlock;
	rc = -ENOMEM;
	ring = __vmalloc(len, GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!ring)
		goto err_unlock;
	ring->entries = cmd->entries;
	cmd->out_len = len;
	rc = npulink_ucmd_respond(ucmd, sizeof(*cmd));
	if (rc)
		goto err_ring;
	spin_lock_irq(&file->lock);
	file->cq.entries = cmd->entries;
	file->cq.len = len;
	file->cq.eventfd = eventfd;
	file->cq.charge = charge;
	file->cq.ring = ring;
	spin_unlock_irq(&file->lock);
	mutex_unlock(&file->mutex);
	return 0;

err_ring:
	vfree(ring);
err_unlock:
	mutex_unlock(&file->mutex);
err_uncharge:
	npulink_uncharge(&charge);
err_eventfd:
	if (eventfd)
		eventfd_ctx_put(eventfd);
	return rc;
}

int npulink_ring_mmap(struct npulink_file *file, struct vm_area_struct *vma)
{
	struct npulink_ring *ring;
	u64 len, off;
	int rc;

	spin_lock_irq(&file->lock);
	ring = file->cq.ring;
	len = file->cq.len;
	spin_unlock_irq(&file->lock);
	if (!ring)
		return -ENOENT;
	if (vma->vm_end - vma->vm_start != len)
		return -EINVAL;
	/* remap_vmalloc_range() takes only vmalloc_user()'s, which is charged to nobody. */
	npulink_vma_flags_set(vma, VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	for (off = 0; off < len; off += PAGE_SIZE) {
		rc = vm_insert_page(vma, vma->vm_start + off, vmalloc_to_page((void *)ring + off));
		if (rc)
			return rc;
	}
	return 0;
}

bool npulink_ring_pending(struct npulink_file *file)
{
	bool pending;

	spin_lock_irq(&file->lock);
	pending = file->cq.ring && file->cq.head != READ_ONCE(file->cq.ring->tail);
	spin_unlock_irq(&file->lock);
	return pending;
}

void npulink_ring_free(struct npulink_file *file)
{
	if (!file->cq.ring)
		return;
	if (file->cq.eventfd)
		eventfd_ctx_put(file->cq.eventfd);
	vfree(file->cq.ring);
	npulink_uncharge(&file->cq.charge);
	file->cq.ring = NULL;
}

/* ---- deadlines ------------------------------------------------------------------- */

/*
 * One timer for all operations of a file. It is moved only when a deadline comes
 * before it, and not at all when operations end, so it costs nearly nothing.
 */
void npulink_watchdog_arm(struct npulink_file *file, struct npulink_op *op)
{
	spin_lock_irq(&file->lock);
	if (!timer_pending(&file->watchdog) || time_before(op->deadline, file->watchdog_at)) {
		file->watchdog_at = op->deadline;
		mod_timer(&file->watchdog, op->deadline);
	}
	spin_unlock_irq(&file->lock);
}

static struct npulink_op *npulink_overdue(struct npulink_file *file)
{
	unsigned long next = 0;
	struct npulink_op *late = NULL;
	bool any = false;
	u32 i;

	spin_lock_irq(&file->lock);
	for (i = 0; file->slots && i < NPULINK_MAX_INFLIGHT; i++) {
		struct npulink_op *op = file->slots[i];

		if (!op || op->done || !op->has_deadline)
			continue;
		if (time_after_eq(jiffies, op->deadline)) {
			late = late ?: op;
		} else if (!any || time_before(op->deadline, next)) {
			next = op->deadline;
			any = true;
		}
	}
	if (late)
		refcount_inc(&late->refs);
	if (any) {
		file->watchdog_at = next;
		mod_timer(&file->watchdog, next);
	}
	spin_unlock_irq(&file->lock);
	return late;
}

/*
 * A user can make a chain of ranks as long as he likes. One that is longer, or has more units
 * altogether, is followed no further.
 */
#define NPULINK_BLAME_HOPS	1024
#define NPULINK_BLAME_WORK	(64 * NPULINK_BLAME_UNITS)
#define NPULINK_BLAME_FAR	16	/* ranks elsewhere, perhaps in a circle */

/* What @rank waits for in @op, or in its own part of the same collective; NULL: nothing. */
static struct npulink_op *npulink_blame_op(struct npulink_rank *rank, struct npulink_op *op,
					   struct npulink_cause *cause)
{
	struct npulink_op *it;
	u32 peer, step;

	lockdep_assert_held(&rank->lock);
	list_for_each_entry(it, &rank->ops, node) {
		if (it != op &&
		    (it->plan->p2p || op->plan->p2p || it->number != op->number))
			continue;
		if (!npulink_op_waits_for(it, &peer, &step))
			break;
		cause->rank = rank->rank;
		cause->peer = peer;
		cause->step = step;
		return it;
	}
	return NULL;
}

/* The same of those elsewhere, from the one that @op waits for on, as far as it is known here. */
static void npulink_blame_far(const struct npulink_op *op, struct npulink_cause *cause)
{
	u32 first = cause->peer, peer = first, step, hops;

	for (hops = 0; hops < NPULINK_BLAME_FAR; hops++) {
		/* Of a circle each is as good as any, and always the same one is better. */
		if (!npulink_remote_ops->waits_for(op, &peer, &step) || peer == first)
			return;
		cause->rank = cause->peer;
		cause->peer = peer;
		cause->step = step;
	}
}

/*
 * Follow who waits for whom on this node to the one that everything hangs on; and on others, as
 * far as they have said so.
 */
void npulink_blame(struct npulink_op *op, struct npulink_cause *cause)
{
	struct npulink_comm *comm = op->rank->comm;
	struct npulink_rank *rank = npulink_rank_get(op->rank);
	u32 first = rank->rank, been = first, hops, work = 0;

	for (hops = 1; hops <= NPULINK_BLAME_HOPS && work < NPULINK_BLAME_WORK; hops++) {
		struct npulink_rank *next = NULL;
		struct npulink_op *o;

		spin_lock_irq(&rank->lock);
		o = npulink_blame_op(rank, op, cause);
		if (o) {
			work += min_t(u32, o->plan->nunits, NPULINK_BLAME_UNITS);
			npulink_blame_far(o, cause);
		}
		spin_unlock_irq(&rank->lock);
		/* They wait in a circle: each of them is as good as any (Brent's way to see it). */
		if (!o || cause->peer == first || cause->peer == been)
			break;
		if (is_power_of_2(hops))
			been = cause->peer;
		rcu_read_lock();
		next = rcu_dereference(comm->ranks[cause->peer]);
		if (next && !kref_get_unless_zero(&next->obj.kref))
			next = NULL;
		rcu_read_unlock();
		if (!next)
			break;
		npulink_rank_put(rank);
		rank = next;
		cond_resched();
	}
	npulink_rank_put(rank);
}

static void npulink_deadline_work(struct work_struct *work)
{
	struct npulink_file *file = container_of(work, struct npulink_file, deadline_work);
	struct npulink_op *op;

	while ((op = npulink_overdue(file))) {
		struct npulink_cause cause = {
			.cause = NPULINK_CAUSE_DEADLINE, .rank = op->rank->rank,
			.peer = NPULINK_NO_PEER, .step = ~0U, .number = npulink_told(op->number),
		};

		/* All ranks may be late at a time, and only one need tell the others. */
		if (!READ_ONCE(op->rank->comm->failed)) {
			npulink_blame(op, &cause);
			npulink_comm_fail(op->rank->comm, &cause);
		}
		/* If its engine is still at it, it ends when the engine has let go. */
		op->has_deadline = false;
		npulink_op_put(op);
	}
}

static void npulink_watchdog(struct timer_list *t)
{
	struct npulink_file *file = container_of(t, struct npulink_file, watchdog);

	schedule_work(&file->deadline_work);
}

void npulink_watchdog_init(struct npulink_file *file)
{
	timer_setup(&file->watchdog, npulink_watchdog, 0);
	INIT_WORK(&file->deadline_work, npulink_deadline_work);
}

void npulink_watchdog_stop(struct npulink_file *file)
{
	timer_shutdown_sync(&file->watchdog);
	cancel_work_sync(&file->deadline_work);
}
