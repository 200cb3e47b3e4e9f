// SPDX-License-Identifier: GPL-2.0
/*
 * wait.c - who runs the requests of a file: the task that waits for an operation, or,
 * while nobody waits, the file's worker; and how they sleep and are woken.
 */
#include <linux/cgroup.h>
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/moduleparam.h>
#include <linux/sched/clock.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>
#include "core.h"
#include "pass.h"

unsigned int npulink_spin_ns = 20000;
module_param_named(spin_ns, npulink_spin_ns, uint, 0644);
MODULE_PARM_DESC(spin_ns, "nanoseconds that a waiter spins before it sleeps, while its CPU is idle otherwise");

/* Is there something for a task of @file to run? */
static bool npulink_file_has_work(const struct npulink_file *file)
{
	return !list_empty_careful(&file->ready) || !list_empty_careful(&file->handed);
}

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
	if (!awake && file->worker)
		wake_up_process(file->worker);
}


static int npulink_worker(void *data)
{
	struct npulink_file *file = data;
	const struct cred *old = override_creds(file->cred);

	for (;;) {
		struct npulink_req *req;

		set_current_state(TASK_IDLE);
		if (kthread_should_stop())
			break;
		spin_lock_irq(&file->lock);
		req = npulink_ready_pop(file);
		spin_unlock_irq(&file->lock);
		if (!req && !list_empty_careful(&file->handed)) {
			__set_current_state(TASK_RUNNING);
			npulink_file_run_handed(file);
			cond_resched();
			continue;
		}
		if (!req) {
			npulink_pass();
			schedule();
			continue;
		}
		__set_current_state(TASK_RUNNING);
		npulink_req_run(req, NULL, ~0ULL);
		cond_resched();
	}
	__set_current_state(TASK_RUNNING);
	revert_creds(old);
	return 0;
}

static struct task_struct *npulink_worker_new(struct npulink_file *file)
{
	struct task_struct *task;
	int rc;

	rc = npulink_quota_take_worker(file->quota);
	if (rc)
		return ERR_PTR(rc);
	task = kthread_create(npulink_worker, file, "npulink-%d", task_tgid_vnr(current));
	if (IS_ERR(task))
		goto err_quota;
	rc = cgroup_attach_task_all(current, task);
	if (rc) {
		kthread_stop(task);
		task = ERR_PTR(rc);
		goto err_quota;
	}
	set_user_nice(task, task_nice(current));
	wake_up_process(task);
	return task;

err_quota:
	npulink_quota_give_worker(file->quota);
	return task;
}

/*
 * A rank is about to be made: it needs the worker, which the first one gets, in the cgroup of the
 * caller, who is the opener.
 */
int npulink_file_start_worker(struct npulink_file *file)
{
	struct task_struct *task;
	int rc;

	rc = npulink_lock(&file->mutex);
	if (rc)
		return rc;
	if (!file->worker) {
		task = npulink_worker_new(file);
		rc = PTR_ERR_OR_ZERO(task);
		if (rc)
			goto out;
		spin_lock_irq(&file->lock);
		file->worker = task;
		spin_unlock_irq(&file->lock);
	}
	file->worker_users++;
out:
	mutex_unlock(&file->mutex);
	return rc;
}

/* Nothing is left for it to run, and nothing will be. */
void npulink_file_end_worker(struct npulink_file *file)
{
	struct task_struct *task = file->worker;

	if (!task)
		return;
	spin_lock_irq(&file->lock);
	file->worker = NULL;
	spin_unlock_irq(&file->lock);
	kthread_stop(task);
	npulink_quota_give_worker(file->quota);
	/* From now on nothing is handed to it. */
	while (npulink_file_run_handed(file))
		cond_resched();
}

/* That rank was not made. One that was keeps the worker until the file goes. */
void npulink_file_unstart_worker(struct npulink_file *file)
{
	mutex_lock(&file->mutex);
	if (!--file->worker_users)
		npulink_file_end_worker(file);
	mutex_unlock(&file->mutex);
}

/* Spin a little: a peer on another CPU is often about to complete the operation. */
static void npulink_spin(struct npulink_file *file, struct npulink_op *op)
{
	const struct npulink_pass_group *turns = &op->rank->comm->turns;
	u64 end;

	if (!npulink_spin_ns || READ_ONCE(turns->held) || !single_task_running())
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
	} while (!need_resched() && single_task_running() && !READ_ONCE(turns->held) &&
		 !signal_pending(current) && local_clock() < end);
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
	npulink_pass();
	if (!w->listed) {
		schedule_timeout(1);
		return !w->forever && ktime_compare(ktime_get(), until) >= 0 ? -ETIME : 0;
	}
	if (!w->forever)
		return schedule_hrtimeout_range(&until, 50000, HRTIMER_MODE_ABS) ? 0 : -ETIME;
	npulink_deadlock_arm();
	schedule();
	return 0;
}

/*
 * Sleep until @op is done, running the file's own requests meanwhile. @until_ns is
 * CLOCK_MONOTONIC, 0: only look, ~0: no limit. Returns 0, -EINTR, -ETIME.
 */
int npulink_op_wait(struct npulink_file *file, struct npulink_op *op, u64 until_ns)
{
	struct npulink_waiter w = {
		.task = current, .mm = current->mm, .op = op, .since = jiffies,
		.helper = file->mm == current->mm, .forever = until_ns == ~0ULL,
	};
	ktime_t until = ns_to_ktime(min_t(u64, until_ns, KTIME_MAX));
	bool spun = false, late, done;
	int rc = 0;

	/* Pairs with npulink_op_wake(). */
	done = smp_load_acquire(&op->done);
	if (done || !until_ns) {
		npulink_hand_over(file);
		return done ? 0 : -ETIME;
	}
	INIT_LIST_HEAD(&w.pass.node);
	w.pass.task = current;
	w.pass.to = -1;
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
			npulink_file_run_handed(file);
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
		w.pass.cpu = smp_processor_id();
		spin_unlock_irq(&file->lock);
		rc = npulink_waiter_sleep(&w, until);
		npulink_pass_came(&w.pass);
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
	if (w.held)
		npulink_pass_withdraw(&w.pass);
	npulink_pass_came(&w.pass);
	/* What this task would have run is somebody else's now. */
	if (npulink_file_has_work(file))
		npulink_file_wake_ready(file, false);
	spin_unlock_irq(&file->lock);
	return rc;
}
