// SPDX-License-Identifier: GPL-2.0
/*
 * wait.c - how tasks wait for operations, and meanwhile run the requests of their file. While
 * nobody waits, the file's worker does (worker.c).
 */
#include <linux/hrtimer.h>
#include <linux/moduleparam.h>
#include <linux/sched/clock.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>
#include "base/clock.h"
#include "file/file.h"
#include "run/event.h"
#include "run/op.h"
#include "run/run.h"
#include "run/wait.h"
#include "run/worker.h"

unsigned int npulink_spin_ns = 20000;
module_param_named(spin_ns, npulink_spin_ns, uint, 0644);
MODULE_PARM_DESC(spin_ns, "nanoseconds that a waiter spins before it sleeps, while its CPU is idle otherwise");

/*
 * A request has been put on file->ready, or a rank on file->handed: get somebody to run it. A
 * waiter of the own process costs no extra switch, the worker is for those who do not wait.
 * @waits: the caller is about to, and will look.
 */
void npulink_file_wake_ready(struct npulink_file *file, bool waits)
{
	struct npulink_waiter *w;
	bool awake = waits;

	lockdep_assert_held(&file->lock);
	list_for_each_entry(w, &file->waiters, node) {
		if (!w->helper)
			continue;
		if (!w->woken) {
			w->woken = true;
			wake_up_process(w->task);
			return;
		}
		awake = true;
	}
	if (!awake)
		npulink_worker_wake(file);
}

/* Spin a little: a peer on another CPU is often about to complete the operation. */
static void npulink_spin(struct npulink_file *file, struct npulink_op *op)
{
	u64 end;

	if (!npulink_spin_ns || !single_task_running())
		return;
	end = local_clock() + READ_ONCE(npulink_spin_ns);
	do {
		int i;

		for (i = 0; i < 32; i++) {
			/* Pairs with npulink_op_wake(). */
			if (smp_load_acquire(&op->done) || npulink_file_has_work(file))
				return;
			cpu_relax();
		}
	} while (!need_resched() && single_task_running() && !signal_pending(current) &&
		 local_clock() < end);
}

/* What this task was about to run, and will not. */
static void npulink_hand_over(struct npulink_file *file)
{
	if (!npulink_file_has_work(file))
		return;
	spin_lock_irq(&file->lock);
	if (npulink_file_has_work(file))
		npulink_file_wake_ready(file, false);
	spin_unlock_irq(&file->lock);
}

/* To be woken when its operation is done, unless too many are already. Under file->lock. */
static void npulink_waiter_list(struct npulink_file *file, struct npulink_waiter *w)
{
	if (w->listed || file->nwaiters == NPULINK_MAX_WAITERS)
		return;
	w->listed = true;
	file->nwaiters++;
	list_add_tail(&w->node, &file->waiters);
}

static void npulink_waiter_unlist(struct npulink_file *file, struct npulink_waiter *w)
{
	if (!w->listed)
		return;
	list_del(&w->node);
	file->nwaiters--;
}

/* Until somebody wakes us; or if nobody will, for a moment. Returns 0 or -ETIME. */
static int npulink_waiter_sleep(const struct npulink_waiter *w, ktime_t until)
{
	if (!w->listed) {
		schedule_timeout(1);
		return !w->forever && ktime_compare(ktime_get(), until) >= 0 ? -ETIME : 0;
	}
	if (!w->forever)
		return schedule_hrtimeout_range(&until, 50000, HRTIMER_MODE_ABS) ? 0 : -ETIME;
	npulink_waiting(w->op->rank->file);
	schedule();
	return 0;
}

/* On the kernel's clock. A time that the caller's can never have shown is over. */
static ktime_t npulink_until(u64 until_ns)
{
	s64 until = min_t(u64, until_ns, KTIME_MAX);

	if (check_sub_overflow(until, npulink_clock_offset(), &until))
		until = KTIME_MAX;
	return ns_to_ktime(max(until, 0LL));
}

/*
 * Sleep until @op is done, running the file's own requests meanwhile. @until_ns is
 * the caller's CLOCK_MONOTONIC, 0: only look, ~0: no limit. Returns 0, -EINTR, -ETIME.
 */
int npulink_op_wait(struct npulink_file *file, struct npulink_op *op, u64 until_ns)
{
	struct npulink_waiter w = {
		.task = current, .mm = current->mm, .op = op, .since = jiffies,
		.helper = file->mm == current->mm, .forever = until_ns == ~0ULL,
	};
	ktime_t until = npulink_until(until_ns);
	bool spun = false, late, done;
	int rc = 0;

	/* Pairs with npulink_op_wake(). */
	done = smp_load_acquire(&op->done);
	if (done || !until_ns) {
		npulink_hand_over(file);
		return done ? 0 : -ETIME;
	}
	spin_lock_irq(&file->lock);
	w.id = ++file->waits;
	for (;;) {
		struct npulink_req *req;

		/* Others may have gone. */
		npulink_waiter_list(file, &w);
		set_current_state(TASK_INTERRUPTIBLE);
		if (op->done)
			break;
		w.woken = false;
		req = w.helper ? npulink_ready_pop(file) : NULL;
		if (!req && w.helper && !list_empty(&file->handed)) {
			w.woken = true;
			spin_unlock_irq(&file->lock);
			__set_current_state(TASK_RUNNING);
			npulink_file_run_handed(file, until_ns);
			late = !w.forever && ktime_compare(ktime_get(), until) >= 0;
			spin_lock_irq(&file->lock);
			if (!late && !signal_pending(current))
				continue;
			rc = op->done ? 0 : late ? -ETIME : -EINTR;
			break;
		}
		if (req || !spun) {
			w.woken = true;	/* awake: need not be woken */
			spin_unlock_irq(&file->lock);
			__set_current_state(TASK_RUNNING);
			if (req)
				npulink_req_run(req, op, until_ns);
			else
				npulink_spin(file, op);
			spun = !req;
			cond_resched();
			/* Others may post so much that there is always something to run. */
			late = req && !w.forever && ktime_compare(ktime_get(), until) >= 0;
			spin_lock_irq(&file->lock);
			if (late) {
				rc = op->done ? 0 : -ETIME;
				break;
			}
			if (!signal_pending(current))
				continue;
		}
		if (signal_pending(current)) {
			rc = op->done ? 0 : -EINTR;
			break;
		}
		spin_unlock_irq(&file->lock);
		rc = npulink_waiter_sleep(&w, until);
		spin_lock_irq(&file->lock);
		if (rc) {
			if (op->done)
				rc = 0;
			break;
		}
		spun = true;
	}
	__set_current_state(TASK_RUNNING);
	npulink_waiter_unlist(file, &w);
	/* What this task would have run is somebody else's now. */
	if (npulink_file_has_work(file))
		npulink_file_wake_ready(file, false);
	spin_unlock_irq(&file->lock);
	return rc;
}
