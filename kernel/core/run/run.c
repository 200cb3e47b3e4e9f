// SPDX-License-Identifier: GPL-2.0
/*
 * run.c - running ranks: who does it, where, and for how long.
 *
 * Who puts an event into a rank's inbox and finds RANK_SCHED clear sets it and has to
 * run the rank (npulink_run()), in a loop, never by recursion. The sequencer (seq.c)
 * does, under rank->lock, what the events ask for.
 * In interrupts a run only does the book-keeping: payload is left to the rank's own
 * process (a waiter, or the worker of its file). In task context small requests of
 * any rank are done on the spot.
 */
#include <linux/sched/signal.h>
#include <npulink/compat.h>
#include "base/clock.h"
#include "comm/comm.h"
#include "device/device_core.h"
#include "file/file.h"
#include "file/mapping.h"
#include "observe/trace.h"
#include "run/checksum.h"
#include "run/event.h"
#include "run/op.h"
#include "run/round.h"
#include "run/run.h"
#include "run/seq.h"

const struct npulink_remote_ops *npulink_remote_ops;
void (*npulink_waiting)(struct npulink_file *file);
static struct workqueue_struct *npulink_resume_wq;

/* ---- running ranks -------------------------------------------------------- */

/*
 * May this task run @rank? Users who let others into their communicators need not pay for them:
 * a rank of somebody else is handed to its own tasks.
 */
static bool npulink_run_may(const struct npulink_run *run, const struct npulink_rank *rank)
{
	const struct npulink_file *file = rank->file;

	return likely(!rank->comm->any_uid) || !run->task || run->anyones ||
	       file->mm == current->mm || uid_eq(file->cred->fsuid, current_fsuid());
}

/* RANK_SCHED is set, and the reference comes along. A file that is being closed has no tasks. */
static void npulink_rank_hand(struct npulink_rank *rank)
{
	struct npulink_file *file = rank->file;
	bool handed;

	spin_lock_irq(&file->lock);
	handed = !file->closing;
	if (handed) {
		list_add_tail(&rank->run_node, &file->handed);
		npulink_file_wake_ready(file, false);
	}
	spin_unlock_irq(&file->lock);
	if (handed)
		return;
	clear_bit(RANK_SCHED, &rank->flags);
	smp_mb__after_atomic();	/* pairs with llist_add before test_and_set_bit */
	if (!queue_work(npulink_resume_wq, &rank->resume_work))
		npulink_rank_put(rank);
}

/* Make sure that somebody runs @rank; if that is us, by npulink_run(@run). */
void npulink_rank_kick(struct npulink_rank *rank, struct npulink_run *run)
{
	if (test_and_set_bit(RANK_SCHED, &rank->flags))
		return;
	/* None left: somebody else has run it to its end since we left our event there. */
	if (kref_get_unless_zero(&rank->obj.kref))
		list_add_tail(&rank->run_node, &run->ranks);
}

static int npulink_req_submit(struct npulink_req *req)
{
	if (unlikely(req->core.check))
		return npulink_check_submit(req);
	return npulink_engine_submit(req);
}

/*
 * A transport leaves what it sends to a softirq, which in a task would be for ksoftirqd, and come
 * when this task sleeps. With softirqs held off, the task does it as it lets go of the lock.
 */
struct npulink_rank_flags {
	unsigned long irq;
	bool bh;
};

static void npulink_rank_lock(struct npulink_rank *rank, struct npulink_rank_flags *flags,
			      struct npulink_run *run)
	__acquires(&rank->lock)
{
	/*
	 * A backend may call with its own lock held. PREEMPT_RT lets softirqs in nevertheless, and
	 * holding them off is a lock there, which one that waits for the backend's may have.
	 */
	flags->bh = !IS_ENABLED(CONFIG_PREEMPT_RT) && READ_ONCE(rank->net) && in_task() &&
		    !irqs_disabled();
	if (flags->bh)
		local_bh_disable();
	spin_lock_irqsave(&rank->lock, flags->irq);
	/* In an interrupt none have been let in meanwhile. */
	if (run->task)
		run->room = NPULINK_HOLD_UNITS;
}

static void npulink_rank_unlock(struct npulink_rank *rank, struct npulink_rank_flags *flags)
	__releases(&rank->lock)
{
	spin_unlock_irqrestore(&rank->lock, flags->irq);
	if (flags->bh)
		local_bh_enable();
}

/* Can this go on? Others may have it run ranks for ever. */
bool npulink_run_lasts(const struct npulink_run *run)
{
	return run->task && !fatal_signal_pending(current) && !time_after(jiffies, run->until);
}

/* The small request at the head of the todo list, in this context or by its owner. */
static void npulink_todo_one(struct npulink_rank *rank, struct npulink_run *run,
			     struct npulink_rank_flags *flags)
{
	struct npulink_req *req = list_first_entry(&rank->todo, struct npulink_req, core.node);
	int rc;

	list_del(&req->core.node);
	if (run->budget <= 0) {
		npulink_req_ready(req, run);
		return;
	}
	npulink_run_spent(run);
	req->core.start_ns = npulink_run_now(run);
	req->core.state = NPULINK_REQ_RUNNING;
	npulink_rank_unlock(rank, flags);
	rc = npulink_req_submit(req);
	run->now = 0;
	npulink_rank_lock(rank, flags, run);
	if (rc != -EINPROGRESS)
		npulink_req_complete(req, rc, run);
}

/*
 * Interrupts have been off for as long as is good: let some in. False if this is one, or a task
 * that is to die, or has done enough: a worker goes on then.
 */
static noinline bool npulink_rank_breathe(struct npulink_rank *rank, struct npulink_run *run,
					  struct npulink_rank_flags *flags)
{
	if (!npulink_run_lasts(run))
		return false;
	npulink_rank_unlock(rank, flags);
	cond_resched();
	run->now = 0;
	npulink_rank_lock(rank, flags, run);
	return true;
}

/* Go on with an operation that has more to start. False if it is left to others. */
static noinline bool npulink_resume_one(struct npulink_rank *rank, struct npulink_run *run,
					struct npulink_rank_flags *flags)
{
	struct npulink_op *op;

	if (run->room <= 0 && !npulink_rank_breathe(rank, run, flags))
		return false;
	op = list_first_entry_or_null(&rank->resume, struct npulink_op, resume_node);
	if (op) {
		list_del_init(&op->resume_node);
		if (op->state == NPULINK_OP_RUNNING)
			npulink_op_advance(op, run);
		npulink_op_put(op);
	}
	return true;
}

/*
 * Events, in any order: each only says that there is something to look at. False if some are left
 * to others.
 */
static __always_inline bool npulink_events_handle(struct llist_node *list,
						  struct npulink_rank *rank,
						  struct npulink_run *run,
						  struct npulink_rank_flags *flags)
{
	struct npulink_event *ev, *next;

	llist_for_each_entry_safe(ev, next, list, node) {
		struct npulink_op *op = npulink_event_op(ev);
		bool bell = ev->kind != NPULINK_EV_REQ;

		if (unlikely(--run->room < 0) && !npulink_rank_breathe(rank, run, flags)) {
			rank->left = &ev->node;
			return false;
		}
		npulink_event_handle(ev, run);
		if (bell)
			npulink_op_put(op);
	}
	return true;
}

/* What whoever ran the rank last has left of an inbox. */
static noinline bool npulink_left_handle(struct npulink_rank *rank, struct npulink_run *run,
					 struct npulink_rank_flags *flags)
{
	struct llist_node *list = rank->left;

	rank->left = NULL;
	return npulink_events_handle(list, rank, run, flags);
}

/* In the order in which they came: what was offered first is handed on first. */
static __always_inline bool npulink_inbox_handle(struct npulink_rank *rank, struct npulink_run *run,
						 struct npulink_rank_flags *flags)
{
	struct llist_node *list = llist_del_all(&rank->inbox);

	if (list && list->next)
		list = llist_reverse_order(list);
	return npulink_events_handle(list, rank, run, flags);
}

static void npulink_rank_run(struct npulink_rank *rank, struct npulink_run *run)
{
	struct npulink_rank_flags flags;
	bool more = true;	/* false: the rest is left to a worker */

	npulink_rank_lock(rank, &flags, run);
	if (unlikely(rank->left))
		more = npulink_left_handle(rank, run, &flags);
	do {
		while (more) {
			while (more && (!llist_empty(&rank->inbox) || !list_empty(&rank->todo))) {
				more = npulink_inbox_handle(rank, run, &flags);
				if (!list_empty(&rank->todo))
					npulink_todo_one(rank, run, &flags);
			}
			if (likely(list_empty(&rank->resume)))
				break;
			more = more && npulink_resume_one(rank, run, &flags);
		}
		clear_bit(RANK_SCHED, &rank->flags);
		smp_mb__after_atomic();	/* pairs with llist_add before test_and_set_bit */
	} while (more && !llist_empty(&rank->inbox) &&
		 !test_and_set_bit(RANK_SCHED, &rank->flags));
	/* Not before: it leaves the rank alone if RANK_SCHED is set. */
	if (unlikely(!more)) {
		npulink_rank_get(rank);
		if (!queue_work(npulink_resume_wq, &rank->resume_work))
			npulink_rank_put(rank);
	}
	npulink_rank_unlock(rank, &flags);
}

/*
 * Remote peers are the business of @remote_ops; @waiting is called by a task that begins to wait
 * in @file without a limit of its own. The workqueue is for what those who run ranks leave: users
 * can make it much, and it is not before others' work.
 */
int npulink_run_init(const struct npulink_remote_ops *remote_ops,
		     void (*waiting)(struct npulink_file *file))
{
	npulink_remote_ops = remote_ops;
	npulink_waiting = waiting;
	npulink_resume_wq = alloc_workqueue("npulink_resume", WQ_UNBOUND, 0);
	return npulink_resume_wq ? 0 : -ENOMEM;
}

/* Wait until the workers have had their turn. */
void npulink_run_flush(void)
{
	flush_workqueue(npulink_resume_wq);
}

/* Nobody runs a rank any more. */
void npulink_run_exit(void)
{
	destroy_workqueue(npulink_resume_wq);
}

/* What an interrupt has left, and the dead. Payload is moved by the rank's own tasks only. */
static void npulink_rank_resume_work(struct work_struct *work)
{
	struct npulink_rank *rank = container_of(work, struct npulink_rank, resume_work);
	NPULINK_DEFINE_RUN_TASK(run);

	run.budget = 0;
	run.anyones = true;
	run.until = jiffies + NPULINK_WORK_JIFFIES;
	npulink_rank_kick(rank, &run);
	npulink_run(&run);
	npulink_rank_put(rank);
}

/* Nobody sees it yet. */
void npulink_run_rank_new(struct npulink_rank *rank)
{
	INIT_WORK(&rank->resume_work, npulink_rank_resume_work);
}

/* Run all ranks that were kicked, and those they kick in turn. No locks held. */
void npulink_run(struct npulink_run *run)
{
	while (!list_empty(&run->ranks)) {
		struct npulink_rank *rank = list_first_entry(&run->ranks, struct npulink_rank,
							     run_node);

		list_del(&rank->run_node);
		if (unlikely(!npulink_run_may(run, rank))) {
			npulink_rank_hand(rank);
			continue;
		}
		npulink_rank_run(rank, run);
		npulink_rank_put(rank);
		if (!run->task)
			continue;
		if (unlikely(signal_pending(current) || !(++run->turns % NPULINK_RUN_TURNS))) {
			run->task = npulink_run_lasts(run);
			if (signal_pending(current) || !run->task)
				run->budget = 0;
		}
		if (cond_resched())
			run->now = 0;
	}
}

/* One of its ranks that others have left to a task of @file, which this is. False: none. */
bool npulink_file_run_handed(struct npulink_file *file, u64 until_ns)
{
	NPULINK_DEFINE_RUN_TASK(run);
	struct npulink_rank *rank;

	if (likely(list_empty_careful(&file->handed)))
		return false;
	spin_lock_irq(&file->lock);
	rank = list_first_entry_or_null(&file->handed, struct npulink_rank, run_node);
	if (rank)
		list_del(&rank->run_node);
	spin_unlock_irq(&file->lock);
	if (!rank)
		return false;
	npulink_run_limit(&run, until_ns);
	npulink_rank_run(rank, &run);
	npulink_rank_put(rank);
	npulink_run(&run);
	return true;
}

/* Until @until_ns on the caller's clock at most, and then a worker goes on. ~0: no limit. */
void npulink_run_limit(struct npulink_run *run, u64 until_ns)
{
	unsigned long until = jiffies;
	u64 now;

	if (until_ns == ~0ULL)
		return;
	now = ktime_get_ns() + npulink_clock_offset();
	if (until_ns >= now + jiffies_to_nsecs(NPULINK_RUN_JIFFIES))
		return;
	if (until_ns > now)
		until += nsecs_to_jiffies(until_ns - now);
	if (time_before(until, run->until))
		run->until = until;
}

/* ---- operations --------------------------------------------------------------- */

/* Start a connected operation that is in its rank's table. */
void npulink_op_start(struct npulink_op *op, struct npulink_run *run)
{
	struct npulink_rank *rank = op->rank;
	struct npulink_rank_flags flags;
	u32 i, first = NPULINK_NO_INDEX;

	/* Nobody else links units before one of them has started. */
	for (i = op->plan->nunits; i--; ) {
		if (op->plan->units[i].ndeps)
			continue;
		op->units[i].next = first;
		first = i;
	}
	npulink_rank_lock(rank, &flags, run);
	if (op->state == NPULINK_OP_RUNNING) {
		op->starting = first;
		while (op->drain < op->plan->ndrains && !op->drain_left[op->drain])
			npulink_unit_blocked_less(op, op->plan->drains[op->drain++]);
		npulink_op_advance(op, run);
	}
	npulink_rank_unlock(rank, &flags);
}

/* ---- requests that are not small, and what backends call ------------------------ */

struct npulink_req *npulink_ready_pop(struct npulink_file *file)
{
	struct npulink_req *req;

	lockdep_assert_held(&file->lock);
	req = list_first_entry_or_null(&file->ready, struct npulink_req, core.node);
	if (req) {
		list_del(&req->core.node);
		req->core.state = NPULINK_REQ_RUNNING;
	}
	return req;
}

/* A request that has come back at once: its operation is still there. */
static noinline void npulink_req_returned(struct npulink_req *req, int status, u64 until_ns)
{
	struct npulink_rank *rank = npulink_rank_get(req->core.op->rank);
	NPULINK_DEFINE_RUN_TASK(run);
	struct npulink_rank_flags flags;

	npulink_run_limit(&run, until_ns);

	npulink_rank_lock(rank, &flags, &run);
	npulink_req_complete(req, status, &run);
	npulink_rank_unlock(rank, &flags);
	npulink_run(&run);
	npulink_rank_put(rank);
}

/*
 * Run a request that npulink_ready_pop() gave. The task waits for @waits, or for nothing in
 * particular, and not beyond @until_ns (~0: for ever). Task context, no locks held.
 */
void npulink_req_run(struct npulink_req *req, const struct npulink_op *waits, u64 until_ns)
{
	int rc;

	if (unlikely(req == READ_ONCE(req->core.op->part))) {
		struct npulink_rank *rank = npulink_rank_get(req->core.op->rank);

		npulink_round_part(req, waits, until_ns);
		npulink_rank_put(rank);
		return;
	}
	req->core.start_ns = npulink_clock();
	rc = npulink_req_submit(req);
	if (rc != -EINPROGRESS)
		npulink_req_returned(req, rc, until_ns);
}

void npulink_step_done(struct npulink_req *req, int status)
{
	NPULINK_DEFINE_RUN_IRQ(run);

	npulink_req_sync_for_cpu(req);
	req->core.status = status;
	rcu_read_lock();
	npulink_deliver(&req->ev, req->core.op, &run);
	rcu_read_unlock();
	npulink_run(&run);
}
EXPORT_SYMBOL_NPULINK(npulink_step_done);

void npulink_link_event(struct npulink_link *link, int event, struct npulink_event *ev)
{
	NPULINK_DEFINE_RUN_IRQ(run);

	switch (event) {
	case NPULINK_LINK_BELL:
		rcu_read_lock();
		npulink_deliver(ev, npulink_event_op(ev), &run);
		rcu_read_unlock();
		npulink_run(&run);
		break;
	case NPULINK_LINK_DOWN:
		trace_npulink_link(link, "down");
		npulink_link_fail(link);
		break;
	case NPULINK_LINK_UP:
		npulink_link_set_lost(link, false);
		break;
	}
}
EXPORT_SYMBOL_NPULINK(npulink_link_event);

void npulink_fault(struct npulink_device *dev, int status)
{
	npulink_device_fail(dev, NPULINK_CAUSE_DEVICE, status);
}
EXPORT_SYMBOL_NPULINK(npulink_fault);
