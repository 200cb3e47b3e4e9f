// SPDX-License-Identifier: GPL-2.0
/*
 * board_wait.c - ranks that sleep until all others have come to the board: no request, no
 * operation, nobody else to be told. Not for long: then they have to post, which everybody sees.
 */
#include <linux/sched/clock.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>
#include <linux/sched/task.h>
#include "base/hot.h"
#include "base/pass.h"
#include "comm/comm.h"
#include "file/file.h"
#include "run/board.h"
#include "run/wait.h"

#define BOARD_LATE	msecs_to_jiffies(10)

/* Is there a reason to look? @rank's flag is the one that is most likely not there. */
static bool npulink_board_is_over(const struct npulink_board *board, u64 number, u32 rank)
{
	return READ_ONCE(board->comm->off[number % NPULINK_BOARD_SLOTS]) > number ||
	       READ_ONCE(board->comm->failed) ||
	       (npulink_board_flag(board, rank, number) && npulink_board_all(board, number));
}

/* @rank sleeps, or does not any more. */
static void npulink_board_set_waiting(struct npulink_board *board, u32 rank, bool waits)
{
	lockdep_assert_held(&board->lock);
	/* For those who have no lock: npulink_board_wake(), npulink_board_awake(), and ranks. */
	WRITE_ONCE(board->waiting, waits ? board->waiting | BIT_ULL(rank) :
					   board->waiting & ~BIT_ULL(rank));
	WRITE_ONCE(board->comm->waiting, hweight64(board->waiting));
}

/* Ranks that are not known to sleep. */
static u32 npulink_board_awake(const struct npulink_board *board)
{
	u32 asleep = hweight64(READ_ONCE(board->waiting)) + READ_ONCE(board->turns->held);

	return asleep < board->nranks ? board->nranks - asleep : 0;
}

/* Those for whom it is over; with -ETIME, those who have slept for too long. */
static u64 npulink_board_over(struct npulink_board *board, int rc)
{
	u64 number = ~0ULL, all = 0;
	unsigned long now = jiffies;
	bool over = false;
	u32 rank;

	for (rank = 0; rank < board->nranks; rank++) {
		const struct npulink_board_waiter *w = &board->waiters[rank];

		if (!(board->waiting & BIT_ULL(rank)))
			continue;
		if (rc == -ETIME) {
			over = !time_before(now, w->since + BOARD_LATE);
		} else if (w->number != number) {
			/* Most of them sleep for the same. */
			number = w->number;
			over = npulink_board_is_over(board, number, 0);
		}
		if (over)
			all |= BIT_ULL(rank);
	}
	return all;
}

/*
 * Those for whom it is over get @rc. They are woken after the lock, as the first of them would
 * run, and wait for it. Those who have met, and share processors, take turns: see pass.c.
 */
static npulink_hot void npulink_board_wake_some(struct npulink_board *board, int rc)
{
	u32 rank, i, n = 0, awake, processors = npulink_pass_processors();
	struct task_struct *tasks[NPULINK_BOARD_RANKS];
	unsigned long flags;
	bool hold;
	u64 over;

	spin_lock_irqsave(&board->lock, flags);
	awake = npulink_board_awake(board);
	over = npulink_board_over(board, rc);
	hold = over && rc > 0 && board->nranks > processors && npulink_pass_may_hold(board->turns);
	for (rank = 0; rank < board->nranks; rank++) {
		struct npulink_board_waiter *w = &board->waiters[rank];

		if (!(over & BIT_ULL(rank)))
			continue;
		npulink_board_set_waiting(board, rank, false);
		w->rc = rc;
		if (hold && npulink_pass_hold(&w->pass, board->turns))
			continue;
		tasks[n++] = get_task_struct(w->pass.task);
		/* Pairs with npulink_board_sleep(). */
		smp_store_release(&w->pass.go, true);
	}
	if (rc == -ETIME && board->waiting)
		mod_timer(&board->timer, jiffies + BOARD_LATE);
	spin_unlock_irqrestore(&board->lock, flags);
	for (i = 0; i < n; i++) {
		wake_up_process(tasks[i]);
		put_task_struct(tasks[i]);
	}
	awake += n;
	if (hold && awake < processors)
		npulink_pass_some(board->turns, processors - awake);
}

/*
 * Who has a reason to look: they get @by. Any context but NMI, with a full barrier behind that
 * reason.
 */
npulink_hot void npulink_board_wake(struct npulink_board *board, int by)
{
	if (READ_ONCE(board->waiting))
		npulink_board_wake_some(board, by);
}

static void npulink_board_timer(struct timer_list *timer)
{
	npulink_board_wake_some(container_of(timer, struct npulink_board, timer), -ETIME);
}

void npulink_board_wait_init(struct npulink_board *board)
{
	u32 rank;

	spin_lock_init(&board->lock);
	for (rank = 0; rank < board->nranks; rank++)
		INIT_LIST_HEAD(&board->waiters[rank].pass.node);
	timer_setup(&board->timer, npulink_board_timer, 0);
}

/*
 * Where ranks share processors, looks a little for those who are missing, if each of them has a
 * processor now, and nobody else is to have this one.
 */
static void npulink_board_spin(const struct npulink_board *board, u64 number, u32 missing)
{
	u32 processors = npulink_pass_processors(), i;
	u64 end;

	if (board->nranks <= processors || !READ_ONCE(npulink_spin_ns))
		return;
	end = local_clock() + READ_ONCE(npulink_spin_ns);
	for (i = 0; !npulink_board_is_over(board, number, missing); i++) {
		if (READ_ONCE(board->turns->held) || npulink_board_awake(board) > processors ||
		    !single_task_running() || need_resched() || signal_pending(current) ||
		    local_clock() > end)
			return;
		/* Seldom: an emulator takes longer for that than for all the rest. */
		if (!(i % 8))
			cpu_relax();
	}
}

/* Begins to wait; 0 if there is nothing to wait for, or 1. */
static int npulink_board_begin(struct npulink_board *board, u64 number, u32 rank, u32 missing)
{
	struct npulink_board_waiter *w = &board->waiters[rank];
	int rc = 1;

	spin_lock_irq(&board->lock);
	/* Pairs with npulink_board_sleep(). */
	if (smp_load_acquire(&w->used)) {
		spin_unlock_irq(&board->lock);
		return npulink_board_is_over(board, number, missing) ? 0 : -EBUSY;
	}
	w->number = number;
	w->since = jiffies;
	w->pass.task = current;
	w->pass.cpu = smp_processor_id();
	w->pass.to = -1;
	w->pass.go = false;
	npulink_board_set_waiting(board, rank, true);
	if (!timer_pending(&board->timer))
		mod_timer(&board->timer, w->since + BOARD_LATE);
	/* With the barriers of those who then look whether somebody sleeps. */
	smp_mb();
	if (npulink_board_is_over(board, number, missing)) {
		npulink_board_set_waiting(board, rank, false);
		rc = 0;
	}
	w->used = rc;
	spin_unlock_irq(&board->lock);
	return rc;
}

/* A signal. Never restarted: see struct npulink_board_wait. */
static int npulink_board_interrupted(struct npulink_board *board, u32 rank)
{
	struct npulink_board_waiter *w = &board->waiters[rank];
	int rc = -EINTR;

	spin_lock_irq(&board->lock);
	if (npulink_pass_withdraw(&w->pass) || w->pass.go)
		rc = w->rc;
	else
		npulink_board_set_waiting(board, rank, false);
	spin_unlock_irq(&board->lock);
	return rc;
}

static npulink_hot int npulink_board_sleep(struct npulink_board *board, u64 number, u32 rank,
					   u32 missing)
{
	struct npulink_board_waiter *w = &board->waiters[rank];
	int rc;

	npulink_board_spin(board, number, missing);
	rc = npulink_board_begin(board, number, rank, missing);
	if (rc <= 0)
		return rc;
	for (;;) {
		set_current_state(TASK_INTERRUPTIBLE);
		/* Pairs with npulink_board_wake_some(), npulink_pass_next(). */
		if (smp_load_acquire(&w->pass.go) || signal_pending(current))
			break;
		npulink_pass();
		schedule();
	}
	__set_current_state(TASK_RUNNING);
	/* Without the lock: whoever woke us may still be waking the others. */
	if (smp_load_acquire(&w->pass.go))
		rc = w->rc;
	else
		rc = npulink_board_interrupted(board, rank);
	npulink_pass_came(&w->pass);
	/* Pairs with npulink_board_begin(). */
	smp_store_release(&w->used, false);
	return rc;
}

npulink_hot int npulink_board_wait_ioctl(struct npulink_ucmd *ucmd)
{
	struct npulink_board_wait *cmd = ucmd->cmd;
	struct npulink_board *board;
	struct npulink_rank *rank;
	int rc = 0;

	if (cmd->flags & ~NPULINK_BOARD_WAKE)
		return -EOPNOTSUPP;
	if (cmd->flags & NPULINK_BOARD_WAKE && (cmd->number || cmd->rank))
		return -EINVAL;
	rank = npulink_rank_lookup(ucmd->file, cmd->comm_id);
	if (IS_ERR(rank))
		return PTR_ERR(rank);
	board = npulink_board_of(rank->comm);
	if (!board)
		rc = -ENOTCONN;
	else if (cmd->rank >= board->nranks)
		rc = -EINVAL;
	else if (cmd->flags & NPULINK_BOARD_WAKE)
		npulink_board_wake(board, rank->rank + 1);
	else
		rc = npulink_board_sleep(board, cmd->number, rank->rank, cmd->rank);
	npulink_rank_put(rank);
	return rc;
}
