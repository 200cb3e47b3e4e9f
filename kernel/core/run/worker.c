// SPDX-License-Identifier: GPL-2.0
/*
 * worker.c - who runs the requests of a file while no task of its process waits.
 *
 * That is a thread of the kernel, but as if it were one of the process's: in its cgroups, with its
 * credentials, on its processors, in its scheduling class, and counted by RLIMIT_NPROC and by the
 * pids controller. It begins when there is something to run, goes where the process goes, and
 * ends when there was nothing for a second, so that it keeps no cgroup that the process has left.
 *
 * A user who may have no more threads still has his requests run, else others would wait for
 * them: all such users share one thread, which gets what time the others leave.
 *
 * vhost_task_create() makes the caller's thread. Here nobody calls: a peer, an interrupt has made
 * a request ready.
 */
#include <linux/cgroup.h>
#include <linux/completion.h>
#include <linux/cred.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pid.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/user_namespace.h>
#include <uapi/linux/sched/types.h>
#include "file/account.h"
#include "file/file.h"
#include "run/run.h"
#include "run/worker.h"

#define NPULINK_WORKER_IDLE	HZ		/* then it ends */
#define NPULINK_WORKER_FOLLOW	(HZ / 10)	/* so often it looks where the process is */

static DEFINE_MUTEX(npulink_worker_lock);	/* what a limit counts, and a thread that counts */
static struct workqueue_struct *npulink_worker_wq;
static struct kthread_worker *npulink_spare;

/* ---- as if it were the process's */

/* The thread that opened @file, or another one of its process; referenced. NULL: it has died. */
static struct task_struct *npulink_worker_model(const struct npulink_file *file)
{
	struct task_struct *leader, *task, *t;

	rcu_read_lock();
	task = pid_task(file->opener, PIDTYPE_PID);
	if (!task || task->flags & PF_EXITING) {
		task = NULL;
		leader = pid_task(file->tgid, PIDTYPE_TGID);
		if (leader) {
			for_each_thread(leader, t)
				if (!(t->flags & PF_EXITING))
					task = t;
		}
	}
	if (task)
		get_task_struct(task);
	rcu_read_unlock();
	return task;
}

/* May @model's user have one more thread? As fork() sees it. */
static bool npulink_worker_nproc(struct task_struct *model, const struct cred *cred)
{
	unsigned long limit = task_rlimit(model, RLIMIT_NPROC);
	long max = min_t(unsigned long, limit, LONG_MAX);
	struct ucounts *iter;

	if (uid_eq(cred->user->uid, GLOBAL_ROOT_UID) ||
	    has_capability_noaudit(model, CAP_SYS_RESOURCE) ||
	    has_capability_noaudit(model, CAP_SYS_ADMIN))
		return true;
	for (iter = cred->ucounts; iter; iter = iter->ns->ucounts) {
		long n = get_rlimit_value(iter, UCOUNT_RLIMIT_NPROC);

		if (n < 0 || n >= max)
			return false;
		max = get_userns_rlimit_max(iter->ns, UCOUNT_RLIMIT_NPROC);
	}
	return true;
}

/* May @model's cgroup have one more? To move there is never refused: ask as fork() does. */
static bool npulink_worker_pids(struct task_struct *model)
{
	bool may = true;
#ifdef CONFIG_CGROUP_PIDS
	struct cgroup_subsys *ss;
	struct css_set *cset;

	rcu_read_lock();
	cset = task_css_set(model);
	ss = cset->subsys[pids_cgrp_id]->ss;
	may = !ss->can_fork(model, cset);
	if (may)
		ss->cancel_fork(model, cset);
	rcu_read_unlock();
#endif
	return may;
}

/* What a thread of the kernel has, and @model has otherwise. */
static void npulink_worker_schedule(struct task_struct *task, struct task_struct *model)
{
	struct sched_attr attr = {
		.size = sizeof(attr),
		.sched_policy = READ_ONCE(model->policy),
		.sched_nice = task_nice(model),
		.sched_priority = READ_ONCE(model->rt_priority),
	};

	if (!cpumask_equal(&task->cpus_mask, &model->cpus_mask))
		set_cpus_allowed_ptr(task, &model->cpus_mask);
	/* What a deadline task has reserved is its own. */
	if (attr.sched_policy == SCHED_DEADLINE)
		attr.sched_policy = SCHED_NORMAL;
	if (attr.sched_policy != task->policy || attr.sched_nice != task_nice(task) ||
	    attr.sched_priority != task->rt_priority)
		sched_setattr_nocheck(task, &attr);
}

/* @task, a worker, goes where @model is. */
static int npulink_worker_join(struct task_struct *task, struct task_struct *model)
{
	bool there = true;
	int rc = 0;

#ifdef CONFIG_CGROUPS
	rcu_read_lock();
	there = task_css_set(model) == task_css_set(task);
	rcu_read_unlock();
#endif
	if (!there)
		rc = cgroup_attach_task_all(model, task);
	npulink_worker_schedule(task, model);
	return rc;
}

static void npulink_worker_follow(const struct npulink_file *file)
{
	struct task_struct *model = npulink_worker_model(file);

	if (!model)
		return;
	npulink_worker_join(current, model);
	put_task_struct(model);
}

/* ---- the worker */

/* Freed by the worker. */
struct npulink_worker_start {
	struct npulink_file *file;
	struct cred *cred;
	struct completion counted;
	struct completion go;
	int rc;
};

/*
 * The next request; NULL: there was none, but there may be a rank to run. False if this is the
 * end.
 */
static bool npulink_worker_next(struct npulink_file *file, bool idle, struct npulink_req **req)
{
	bool on;

	spin_lock_irq(&file->lock);
	on = file->worker == current;
	*req = on ? npulink_ready_pop(file) : NULL;
	if (on && idle && !*req && list_empty(&file->handed)) {
		file->worker = NULL;
		on = false;
	}
	spin_unlock_irq(&file->lock);
	return on;
}

static void npulink_worker_loop(struct npulink_file *file)
{
	unsigned long follow = jiffies + NPULINK_WORKER_FOLLOW;
	struct npulink_req *req;
	bool idle = false;

	for (;;) {
		if (time_after_eq(jiffies, follow)) {
			npulink_worker_follow(file);
			follow = jiffies + NPULINK_WORKER_FOLLOW;
		}
		set_current_state(TASK_IDLE);
		if (!npulink_worker_next(file, idle, &req))
			break;
		if (!req && npulink_file_has_work(file)) {
			__set_current_state(TASK_RUNNING);
			npulink_file_run_handed(file, ~0ULL);
			cond_resched();
			continue;
		}
		if (!req) {
			idle = !schedule_timeout(NPULINK_WORKER_IDLE);
			continue;
		}
		__set_current_state(TASK_RUNNING);
		idle = false;
		npulink_req_run(req, NULL, ~0ULL);
		cond_resched();
	}
	__set_current_state(TASK_RUNNING);
}

static int npulink_worker(void *data)
{
	struct npulink_worker_start *start = data;
	struct npulink_file *file = start->file;
	int rc;

	commit_creds(start->cred);
	complete(&start->counted);
	wait_for_completion(&start->go);
	rc = start->rc;
	kfree(start);
	if (!rc)
		npulink_worker_loop(file);
	npulink_file_put(file);
	module_put_and_kthread_exit(0);
}

/*
 * One at a time, or two would be counted as one. Nothing here waits for the worker once it is in
 * the class and the cgroup of its user, where it may be long until it runs.
 */
static int npulink_worker_new(struct npulink_file *file, struct task_struct *model)
{
	struct npulink_worker_start *start;
	struct task_struct *task;
	int rc = -ENOMEM;

	start = kzalloc(sizeof(*start), GFP_KERNEL);
	if (!start)
		return rc;
	start->cred = prepare_kernel_cred(model);
	if (!start->cred)
		goto err_start;
	init_completion(&start->counted);
	init_completion(&start->go);
	start->file = npulink_file_get(file);
	__module_get(THIS_MODULE);
	mutex_lock(&npulink_worker_lock);
	rc = -EAGAIN;
	if (!npulink_worker_nproc(model, start->cred) || !npulink_worker_pids(model))
		goto err_lock;
	task = kthread_run(npulink_worker, start, "npulink-%d", pid_nr(file->tgid));
	rc = PTR_ERR_OR_ZERO(task);
	if (rc)
		goto err_lock;
	wait_for_completion(&start->counted);
	rc = npulink_worker_join(task, model);
	if (!rc) {
		spin_lock_irq(&file->lock);
		file->worker = task;
		spin_unlock_irq(&file->lock);
	}
	start->rc = rc;
	complete(&start->go);
	mutex_unlock(&npulink_worker_lock);
	return rc;

err_lock:
	mutex_unlock(&npulink_worker_lock);
	module_put(THIS_MODULE);
	npulink_file_put(file);
	put_cred(start->cred);
err_start:
	kfree(start);
	return rc;
}

static void npulink_worker_start(struct work_struct *work)
{
	struct npulink_file *file = container_of(work, struct npulink_file, start_work);
	struct task_struct *model;
	bool needed;
	int rc = -ESRCH;

	spin_lock_irq(&file->lock);
	needed = !file->worker && npulink_file_has_work(file);
	spin_unlock_irq(&file->lock);
	if (!needed)
		return;
	model = npulink_worker_model(file);
	if (model) {
		rc = npulink_worker_new(file, model);
		put_task_struct(model);
	}
	if (!rc)
		return;
	spin_lock_irq(&file->lock);
	file->refused = jiffies + NPULINK_WORKER_IDLE;
	npulink_worker_wake(file);
	spin_unlock_irq(&file->lock);
}

/* One request, or one rank, and then it is the next file's turn. */
static void npulink_worker_spare(struct kthread_work *work)
{
	struct npulink_file *file = container_of(work, struct npulink_file, spare_work);
	struct npulink_req *req;

	spin_lock_irq(&file->lock);
	req = file->worker ? NULL : npulink_ready_pop(file);
	spin_unlock_irq(&file->lock);
	if (req)
		npulink_req_run(req, NULL, ~0ULL);
	else if (!npulink_file_run_handed(file, ~0ULL))
		return;
	spin_lock_irq(&file->lock);
	if (npulink_file_has_work(file))
		npulink_worker_wake(file);
	spin_unlock_irq(&file->lock);
}

/* Something is ready, and no waiter will run it. Under file->lock. */
void npulink_worker_wake(struct npulink_file *file)
{
	lockdep_assert_held(&file->lock);
	/* npulink_worker_end() runs what is left. */
	if (file->closing)
		return;
	if (file->worker)
		wake_up_process(file->worker);
	else if (time_before(jiffies, file->refused))
		kthread_queue_work(npulink_spare, &file->spare_work);
	else
		queue_work(npulink_worker_wq, &file->start_work);
}

void npulink_worker_init_file(struct npulink_file *file)
{
	INIT_WORK(&file->start_work, npulink_worker_start);
	kthread_init_work(&file->spare_work, npulink_worker_spare);
	file->refused = jiffies;
}

/* All there is, by the caller: its process may be about to end, and has no threads any more. */
void npulink_worker_drain(struct npulink_file *file)
{
	struct npulink_req *req;

	do {
		spin_lock_irq(&file->lock);
		req = npulink_ready_pop(file);
		spin_unlock_irq(&file->lock);
		if (req)
			npulink_req_run(req, NULL, ~0ULL);
	} while (req || npulink_file_run_handed(file, ~0ULL));
}

/* Nothing is left for it to run, and nothing will be. */
void npulink_worker_end(struct npulink_file *file)
{
	struct task_struct *task;

	spin_lock_irq(&file->lock);
	/* Read without the lock by dl_watch(). */
	WRITE_ONCE(file->closing, true);
	spin_unlock_irq(&file->lock);
	cancel_work_sync(&file->start_work);
	kthread_cancel_work_sync(&file->spare_work);
	spin_lock_irq(&file->lock);
	task = file->worker;
	if (task)
		get_task_struct(task);
	file->worker = NULL;
	spin_unlock_irq(&file->lock);
	if (task) {
		kthread_stop(task);
		put_task_struct(task);
	}
	while (npulink_file_run_handed(file, ~0ULL))
		cond_resched();
	if (file->worker_users)
		npulink_quota_give_worker(file->quota);
}

/* ---- how many */

/* A rank is about to be made: the first one may need a worker. */
int npulink_worker_reserve(struct npulink_file *file)
{
	int rc;

	rc = npulink_lock(&file->mutex);
	if (rc)
		return rc;
	if (!file->worker_users)
		rc = npulink_quota_take_worker(file->quota);
	if (!rc)
		file->worker_users++;
	mutex_unlock(&file->mutex);
	return rc;
}

/* That rank was not made. One that was keeps the right to a worker until the file goes. */
void npulink_worker_unreserve(struct npulink_file *file)
{
	mutex_lock(&file->mutex);
	if (!--file->worker_users)
		npulink_quota_give_worker(file->quota);
	mutex_unlock(&file->mutex);
}

int npulink_worker_init(void)
{
	npulink_worker_wq = alloc_workqueue("npulink_worker", WQ_UNBOUND, 0);
	if (!npulink_worker_wq)
		return -ENOMEM;
	npulink_spare = kthread_create_worker(0, "npulink_spare");
	if (IS_ERR(npulink_spare)) {
		destroy_workqueue(npulink_worker_wq);
		return PTR_ERR(npulink_spare);
	}
	set_user_nice(npulink_spare->task, MAX_NICE);
	return 0;
}

void npulink_worker_exit(void)
{
	destroy_workqueue(npulink_worker_wq);
	kthread_destroy_worker(npulink_spare);
}
