// SPDX-License-Identifier: GPL-2.0
/*
 * pass.c - ranks that share processors. Who may go on is not woken at once if each processor has
 * one of its kind already, but by the next of them that goes to sleep there: he wakes all that
 * are to run on his processor, as waking costs little once one has been woken.
 *
 * If they were woken before, the scheduler would often take the processor from whoever wakes them,
 * as those who have slept have more right to it: then that one has to be switched to once more,
 * only in order to sleep.
 *
 * No processor gets more than its share at once. Where none of them ran last, one of the rest
 * moves there: the scheduler often leaves three on one processor and five on the other for long.
 *
 * Who does not sleep computes, and then those who wait for the processor had to wait anyway; or
 * sleeps elsewhere, and then nobody would be woken: so who is held while for two ticks of the
 * backstop none of his kind was woken is woken by that, and where it has to do it again and
 * again, nobody is held for a while.
 *
 * Only those take turns who may run on the same processors: others have processors of their own.
 */
#include <linux/cpumask.h>
#include <linux/hrtimer.h>
#include <linux/moduleparam.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/sched/task.h>
#include <linux/spinlock.h>
#include <linux/topology.h>
#include <linux/wait.h>
#include <npulink/compat.h>
#include "base/hot.h"
#include "base/pass.h"

static bool npulink_deferred_wakes = true;
module_param_named(deferred_wakes, npulink_deferred_wakes, bool, 0644);
MODULE_PARM_DESC(deferred_wakes, "ranks that share processors are woken by the next of them that goes to sleep there");

#define BACKSTOP_NS	(200 * NSEC_PER_USEC)
#define BACKSTOP_WAKES	16	/* at a time, as it is an interrupt */
#define PASS_WALK	64	/* that are looked at for those who ran here */
#define PASS_SHARE	16	/* that one wakes, with interrupts off */
#define PASS_HELD	256	/* of all users: the list is walked with interrupts off */
#define PASS_OLD	2	/* ticks, if none of its kind was woken .. */
#define PASS_TOO_OLD	50	/* .. or whatever happened */
/* Who had to wait for it costs so many times without, and twice as many as before. */
#define PAUSE_FIRST	8
#define PAUSE_MAX	512

LIST_HEAD(npulink_passes);
/* Inside all others of npulink. */
static DEFINE_SPINLOCK(npulink_pass_lock);
static struct hrtimer npulink_backstop;
static u32 npulink_backstop_tick;
static bool npulink_backstop_armed;
static bool npulink_backstop_more;
static u32 npulink_pass_held;

/*
 * struct npulink_pass_coming - of a processor: who was woken for it
 * @n: how many that have not run yet, there or elsewhere
 * @group: of the last one; only compared
 * @tick: by the backstop's, when
 */
struct npulink_pass_coming {
	atomic_t n;
	const struct npulink_pass_group *group;
	u32 tick;
};

static DEFINE_PER_CPU(struct npulink_pass_coming, npulink_pass_coming);

static void npulink_pass_unlist(struct npulink_pass *pass)
{
	lockdep_assert_held(&npulink_pass_lock);
	list_del_init(&pass->node);
	/* For those who look without the lock. */
	WRITE_ONCE(npulink_pass_held, npulink_pass_held - 1);
	WRITE_ONCE(pass->group->held, pass->group->held - 1);
}

/*
 * To this processor, whose task is about to sleep. That is a hint, without which those who sleep
 * and wake often stay where they are.
 */
static noinline void npulink_pass_pull(struct task_struct *task)
{
	DECLARE_WAIT_QUEUE_HEAD_ONSTACK(head);
	wait_queue_entry_t entry;

	init_waitqueue_entry(&entry, task);
	__add_wait_queue(&head, &entry);
	wake_up_interruptible_sync(&head);
}

/*
 * To run on @cpu. Under the lock: who is not on the list any more is woken by then, whatever
 * becomes of the task that does it; it may be preempted as soon as somebody else may run.
 */
static npulink_hot void npulink_pass_wake(struct npulink_pass *pass, int cpu)
{
	struct npulink_pass_coming *coming = per_cpu_ptr(&npulink_pass_coming, cpu);
	struct task_struct *task = get_task_struct(pass->task);
	bool moves = pass->cpu != cpu;

	npulink_pass_unlist(pass);
	pass->group->tick = npulink_backstop_tick;
	coming->group = pass->group;
	coming->tick = npulink_backstop_tick;
	atomic_inc(&coming->n);
	/* Its task may be awake for another reason, and look. */
	WRITE_ONCE(pass->to, cpu);
	/* Pairs with who sleeps, and may then be gone. */
	smp_store_release(&pass->go, true);
	if (moves)
		npulink_pass_pull(task);
	else
		wake_up_process(task);
	put_task_struct(task);
}

/* The current task, whose @pass it is, does not sleep any more. */
npulink_hot void npulink_pass_came(struct npulink_pass *pass)
{
	int cpu = xchg(&pass->to, -1);

	if (cpu >= 0)
		atomic_dec(&per_cpu_ptr(&npulink_pass_coming, cpu)->n);
}

/*
 * Whose tasks come to @cpu anyway. Not for long: they may be where the scheduler has put them, and
 * wait there.
 */
static const struct npulink_pass_group *npulink_pass_comes(int cpu)
{
	const struct npulink_pass_coming *coming = per_cpu_ptr(&npulink_pass_coming, cpu);

	lockdep_assert_held(&npulink_pass_lock);
	return atomic_read(&coming->n) > 0 && npulink_backstop_tick - coming->tick < PASS_OLD ?
	       coming->group : NULL;
}

/* So many of a group are woken by one of them on each processor. */
static u32 npulink_pass_share(const struct npulink_pass_group *group)
{
	return clamp_t(u32, DIV_ROUND_UP(group->size, npulink_pass_processors()) - 1, 1,
		       PASS_SHARE);
}

/*
 * Those of a group that ran last on this processor, or else one that did not, which moves if it is
 * not far. Nobody of whose group some come already.
 */
npulink_hot void npulink_pass_next(void)
{
	const struct npulink_pass_group *comes, *group = NULL;
	struct npulink_pass *pass, *next, *other = NULL;
	u32 walked = 0, woken = 0, share = 0;
	unsigned long flags;
	int cpu;

	spin_lock_irqsave(&npulink_pass_lock, flags);
	cpu = smp_processor_id();
	comes = npulink_pass_comes(cpu);
	list_for_each_entry_safe(pass, next, &npulink_passes, node) {
		if (walked++ == PASS_WALK)
			break;
		if (pass->group == comes || !cpumask_test_cpu(cpu, &pass->task->cpus_mask))
			continue;
		if (pass->cpu != cpu) {
			other = other ?: pass;
			continue;
		}
		if (!group) {
			group = pass->group;
			share = npulink_pass_share(group);
		} else if (pass->group != group) {
			continue;
		}
		pass->group->pause -= !!pass->group->pause;
		npulink_pass_wake(pass, cpu);
		if (++woken == share)
			break;
	}
	if (!woken && other) {
		bool near = cpumask_test_cpu(other->cpu, topology_core_cpumask(cpu));

		other->group->pause -= !!other->group->pause;
		npulink_pass_wake(other, near ? cpu : other->cpu);
	}
	spin_unlock_irqrestore(&npulink_pass_lock, flags);
}

/* One of @group, if possible one that did not run where others of them do: @taken. */
static struct npulink_pass *npulink_pass_of(const struct npulink_pass_group *group, u64 taken)
{
	struct npulink_pass *pass, *next = NULL;

	lockdep_assert_held(&npulink_pass_lock);
	list_for_each_entry(pass, &npulink_passes, node) {
		if (pass->group != group)
			continue;
		if (!(BIT_ULL(pass->cpu % 64) & taken))
			return pass;
		next = next ?: pass;
	}
	return next;
}

/* Up to @n of @group, for whom there are processors. The others stay in the backstop's care. */
void npulink_pass_some(struct npulink_pass_group *group, u32 n)
{
	struct npulink_pass *pass;
	unsigned long flags;
	u64 taken = 0;

	while (n-- && READ_ONCE(group->held)) {
		spin_lock_irqsave(&npulink_pass_lock, flags);
		taken |= BIT_ULL(smp_processor_id() % 64);
		pass = npulink_pass_of(group, taken);
		if (pass) {
			taken |= BIT_ULL(pass->cpu % 64);
			npulink_pass_wake(pass, pass->cpu);
		}
		spin_unlock_irqrestore(&npulink_pass_lock, flags);
	}
}

/* That ranks have, as far as the one that asks knows: each may have one of its own. */
npulink_hot u32 npulink_pass_processors(void)
{
	u32 own = READ_ONCE(current->nr_cpus_allowed), all = num_online_cpus();

	return own > 1 && own < all ? own : all;
}

/* Is it worth while? Asked each time; by one at a time. */
npulink_hot bool npulink_pass_may_hold(struct npulink_pass_group *group)
{
	u32 rest = READ_ONCE(group->rest);

	/* The backstop may write it meanwhile: then it is a little more or less. */
	if (rest)
		WRITE_ONCE(group->rest, rest - 1);
	return !rest && READ_ONCE(npulink_deferred_wakes);
}

/*
 * @pass sleeps and may go on: after whom the current task makes room for, if they have the same
 * processors. False: it is to be woken at once. With interrupts off.
 */
npulink_hot bool npulink_pass_hold(struct npulink_pass *pass, struct npulink_pass_group *group)
{
	if (READ_ONCE(npulink_pass_held) == PASS_HELD ||
	    !cpumask_equal(&pass->task->cpus_mask, &current->cpus_mask))
		return false;
	spin_lock(&npulink_pass_lock);
	if (npulink_pass_held == PASS_HELD) {
		spin_unlock(&npulink_pass_lock);
		return false;
	}
	WRITE_ONCE(npulink_pass_held, npulink_pass_held + 1);
	pass->tick = npulink_backstop_tick;
	pass->group = group;
	/* For those who look without the lock. */
	WRITE_ONCE(group->held, group->held + 1);
	list_add_tail(&pass->node, &npulink_passes);
	if (!npulink_backstop_armed) {
		npulink_backstop_armed = true;
		hrtimer_start(&npulink_backstop, BACKSTOP_NS, HRTIMER_MODE_REL);
	}
	spin_unlock(&npulink_pass_lock);
	return true;
}

/* True if it was held, and is not any more: it will not be woken. With interrupts off. */
bool npulink_pass_withdraw(struct npulink_pass *pass)
{
	bool held;

	spin_lock(&npulink_pass_lock);
	held = !list_empty(&pass->node);
	if (held)
		npulink_pass_unlist(pass);
	spin_unlock(&npulink_pass_lock);
	return held;
}

static void npulink_pass_pause(struct npulink_pass_group *group)
{
	lockdep_assert_held(&npulink_pass_lock);
	/* Once for all that have waited together. */
	if (READ_ONCE(group->rest))
		return;
	group->pause = min(2 * group->pause + PAUSE_FIRST, PAUSE_MAX);
	WRITE_ONCE(group->rest, group->pause);
}

static bool npulink_pass_is_old(const struct npulink_pass *pass)
{
	const struct npulink_pass_group *group = pass->group;
	u32 ticks = npulink_backstop_tick - pass->tick;

	/* Those that it wakes itself do not count: all are to go on. */
	return ticks >= PASS_TOO_OLD ||
	       (ticks >= PASS_OLD && (READ_ONCE(group->rest) ||
				      npulink_backstop_tick - group->tick >= PASS_OLD));
}

static enum hrtimer_restart npulink_backstop_fn(struct hrtimer *timer)
{
	struct npulink_pass *pass, *next;
	unsigned long flags;
	bool armed;
	u32 n = 0;

	spin_lock_irqsave(&npulink_pass_lock, flags);
	/* Not when it comes at once for those that were left. */
	npulink_backstop_tick += !npulink_backstop_more;
	list_for_each_entry_safe(pass, next, &npulink_passes, node) {
		if (n == BACKSTOP_WAKES || npulink_backstop_tick - pass->tick < PASS_OLD)
			break;
		if (!npulink_pass_is_old(pass))
			continue;
		npulink_pass_pause(pass->group);
		npulink_pass_wake(pass, pass->cpu);
		n++;
	}
	armed = npulink_pass_any();
	npulink_backstop_armed = armed;
	npulink_backstop_more = armed && n == BACKSTOP_WAKES;
	/* From now on, as waking takes time: others have interrupts, too. */
	if (armed)
		hrtimer_forward_now(timer, npulink_backstop_more ? BACKSTOP_NS / 8 : BACKSTOP_NS);
	spin_unlock_irqrestore(&npulink_pass_lock, flags);
	return armed ? HRTIMER_RESTART : HRTIMER_NORESTART;
}

void npulink_pass_init(void)
{
	npulink_hrtimer_setup(&npulink_backstop, npulink_backstop_fn, CLOCK_MONOTONIC,
			      HRTIMER_MODE_REL);
}

void npulink_pass_exit(void)
{
	hrtimer_cancel(&npulink_backstop);
}
