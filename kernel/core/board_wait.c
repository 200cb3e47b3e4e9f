// SPDX-License-Identifier: GPL-2.0
/*
 * board_wait.c - ranks that sleep until all others have come to the board: no request, no
 * operation, nobody else to be told. Not for long: then they have to post, which everybody sees.
 */
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include "core.h"
#include "board.h"

#define BOARD_LATE	msecs_to_jiffies(10)

/*
 * A task that sleeps in BOARD_WAIT, one for each rank; under board->lock until @woken, after which
 * it is its own again.
 */
struct npulink_board_waiter {
	struct task_struct *task;
	u64 number;
	unsigned long since;
	int rc;
	bool woken;
};

/* Is there a reason to look? @rank's flag is the one that is most likely not there. */
static bool npulink_board_is_over(const struct npulink_board *board, u64 number, u32 rank)
{
	return READ_ONCE(board->comm->off[number % NPULINK_BOARD_SLOTS]) > number ||
	       READ_ONCE(board->comm->failed) ||
	       (npulink_board_flag(board, rank, number) && npulink_board_all(board, number));
}

static void npulink_board_set_waiter(struct npulink_board *board, u32 rank,
				     struct npulink_board_waiter *w)
{
	lockdep_assert_held(&board->lock);
	board->waiters[rank] = w;
	/* For those who have no lock: npulink_board_wake(), and ranks. */
	WRITE_ONCE(board->nwaiters, board->nwaiters + (w ? 1 : -1));
	WRITE_ONCE(board->comm->waiting, board->nwaiters);
}

/*
 * Those for whom it is over get @rc; with -ETIME, those who have slept for too long. They are
 * woken after the lock, as the first of them would run, and wait for it.
 */
static void npulink_board_wake_some(struct npulink_board *board, int rc)
{
	struct task_struct *tasks[NPULINK_BOARD_RANKS];
	unsigned long flags, now = jiffies;
	u32 i, n = 0;
	u64 number = ~0ULL;
	bool over = false;

	spin_lock_irqsave(&board->lock, flags);
	for (i = 0; board->nwaiters && i < board->nranks; i++) {
		struct npulink_board_waiter *w = board->waiters[i];

		if (!w)
			continue;
		if (rc == -ETIME) {
			over = !time_before(now, w->since + BOARD_LATE);
		} else if (w->number != number) {
			/* Most of them sleep for the same. */
			number = w->number;
			over = npulink_board_is_over(board, number, 0);
		}
		if (!over)
			continue;
		npulink_board_set_waiter(board, i, NULL);
		tasks[n++] = get_task_struct(w->task);
		w->rc = rc;
		/* Pairs with npulink_board_sleep(). */
		smp_store_release(&w->woken, true);
	}
	if (rc == -ETIME && board->nwaiters)
		mod_timer(&board->timer, now + BOARD_LATE);
	spin_unlock_irqrestore(&board->lock, flags);
	for (i = 0; i < n; i++) {
		wake_up_process(tasks[i]);
		put_task_struct(tasks[i]);
	}
}

/*
 * Who has a reason to look: they get @by. Any context but NMI, with a full barrier behind that
 * reason.
 */
void npulink_board_wake(struct npulink_board *board, int by)
{
	if (READ_ONCE(board->nwaiters))
		npulink_board_wake_some(board, by);
}

static void npulink_board_timer(struct timer_list *timer)
{
	npulink_board_wake_some(container_of(timer, struct npulink_board, timer), -ETIME);
}

void npulink_board_wait_init(struct npulink_board *board)
{
	spin_lock_init(&board->lock);
	timer_setup(&board->timer, npulink_board_timer, 0);
}

/* Begins to wait; 0 if there is nothing to wait for, or 1. */
static int npulink_board_begin(struct npulink_board *board, struct npulink_board_waiter *w,
			       u32 rank, u32 missing)
{
	int rc = 1;

	spin_lock_irq(&board->lock);
	if (board->waiters[rank]) {
		spin_unlock_irq(&board->lock);
		return -EBUSY;
	}
	npulink_board_set_waiter(board, rank, w);
	if (!timer_pending(&board->timer))
		mod_timer(&board->timer, jiffies + BOARD_LATE);
	/* With the barriers of those who then look whether somebody sleeps. */
	smp_mb();
	if (npulink_board_is_over(board, w->number, missing)) {
		npulink_board_set_waiter(board, rank, NULL);
		rc = 0;
	}
	spin_unlock_irq(&board->lock);
	return rc;
}

/* A signal. Never restarted: see struct npulink_board_wait. */
static int npulink_board_interrupted(struct npulink_board *board, struct npulink_board_waiter *w,
				     u32 rank)
{
	int rc = -EINTR;

	spin_lock_irq(&board->lock);
	if (w->woken)
		rc = w->rc;
	else
		npulink_board_set_waiter(board, rank, NULL);
	spin_unlock_irq(&board->lock);
	return rc;
}

static int npulink_board_sleep(struct npulink_board *board, u64 number, u32 rank, u32 missing)
{
	struct npulink_board_waiter w = { .task = current, .number = number, .since = jiffies };
	int rc = npulink_board_begin(board, &w, rank, missing);

	if (rc <= 0)
		return rc;
	for (;;) {
		set_current_state(TASK_INTERRUPTIBLE);
		/* Pairs with npulink_board_wake_some(). */
		if (smp_load_acquire(&w.woken) || signal_pending(current))
			break;
		schedule();
	}
	__set_current_state(TASK_RUNNING);
	/* Without the lock: whoever woke us may still be waking the others. */
	if (smp_load_acquire(&w.woken))
		return w.rc;
	return npulink_board_interrupted(board, &w, rank);
}

int npulink_board_wait_ioctl(struct npulink_ucmd *ucmd)
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
