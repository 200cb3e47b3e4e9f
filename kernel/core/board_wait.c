// SPDX-License-Identifier: GPL-2.0
/*
 * board_wait.c - ranks that sleep until all others have come to the board: no request, no
 * operation, nobody else to be told. Not for long: then they have to post, which everybody sees.
 */
#include <linux/sched/signal.h>
#include "core.h"
#include "board.h"

#define BOARD_LATE	msecs_to_jiffies(10)

/* A task that sleeps in BOARD_WAIT, one for each rank; under board->lock. */
struct npulink_board_waiter {
	struct task_struct *task;
	u64 number;
	unsigned long since;
	bool late;
};

/* Is there a reason to look? */
static bool npulink_board_is_over(const struct npulink_board *board, u64 number)
{
	return READ_ONCE(board->comm->off[number % NPULINK_BOARD_SLOTS]) > number ||
	       READ_ONCE(board->comm->failed) || npulink_board_all(board, number);
}

/* Those for whom it is over, or who have slept for too long. */
static void npulink_board_wake_some(struct npulink_board *board, bool late)
{
	unsigned long now = jiffies;
	u64 number = ~0ULL;
	bool over = false;
	u32 i;

	lockdep_assert_held(&board->lock);
	for (i = 0; board->nwaiters && i < board->nranks; i++) {
		struct npulink_board_waiter *w = board->waiters[i];

		if (!w)
			continue;
		if (late) {
			over = !time_before(now, w->since + BOARD_LATE);
		} else if (w->number != number) {
			/* Most of them sleep for the same. */
			number = w->number;
			over = npulink_board_is_over(board, number);
		}
		if (!over)
			continue;
		/* It takes the lock before it goes. */
		w->late = late;
		board->waiters[i] = NULL;
		board->nwaiters--;
		wake_up_process(w->task);
	}
	WRITE_ONCE(board->comm->waiting, board->nwaiters);
}

/* Who has a reason to look. Any context but NMI, with a full barrier behind that reason. */
void npulink_board_wake(struct npulink_board *board)
{
	unsigned long flags;

	if (!READ_ONCE(board->nwaiters))
		return;
	spin_lock_irqsave(&board->lock, flags);
	npulink_board_wake_some(board, false);
	spin_unlock_irqrestore(&board->lock, flags);
}

static void npulink_board_timer(struct timer_list *timer)
{
	struct npulink_board *board = container_of(timer, struct npulink_board, timer);
	unsigned long flags;

	spin_lock_irqsave(&board->lock, flags);
	npulink_board_wake_some(board, true);
	if (board->nwaiters)
		mod_timer(timer, jiffies + BOARD_LATE);
	spin_unlock_irqrestore(&board->lock, flags);
}

void npulink_board_wait_init(struct npulink_board *board)
{
	spin_lock_init(&board->lock);
	timer_setup(&board->timer, npulink_board_timer, 0);
}

static int npulink_board_sleep(struct npulink_rank *rank, struct npulink_board *board, u64 number)
{
	struct npulink_board_waiter w = { .task = current, .number = number, .since = jiffies };
	int rc = 0;

	spin_lock_irq(&board->lock);
	for (;;) {
		if (!board->waiters[rank->rank]) {
			board->waiters[rank->rank] = &w;
			WRITE_ONCE(board->nwaiters, board->nwaiters + 1);
			WRITE_ONCE(board->comm->waiting, board->nwaiters);
			if (!timer_pending(&board->timer))
				mod_timer(&board->timer, jiffies + BOARD_LATE);
		} else if (board->waiters[rank->rank] != &w) {
			rc = -EBUSY;
			break;
		}
		/* Pairs with the barriers of those who then look whether somebody sleeps. */
		set_current_state(TASK_INTERRUPTIBLE);
		if (npulink_board_is_over(board, number))
			break;
		if (w.late)
			rc = -ETIME;
		else if (signal_pending(current))
			rc = -EINTR;	/* never restarted: see struct npulink_board_wait */
		if (rc)
			break;
		spin_unlock_irq(&board->lock);
		schedule();
		spin_lock_irq(&board->lock);
	}
	__set_current_state(TASK_RUNNING);
	if (board->waiters[rank->rank] == &w) {
		board->waiters[rank->rank] = NULL;
		WRITE_ONCE(board->nwaiters, board->nwaiters - 1);
		WRITE_ONCE(board->comm->waiting, board->nwaiters);
	}
	spin_unlock_irq(&board->lock);
	return rc;
}

int npulink_board_wait_ioctl(struct npulink_ucmd *ucmd)
{
	struct npulink_board_wait *cmd = ucmd->cmd;
	struct npulink_board *board;
	struct npulink_rank *rank;
	int rc = 0;

	if (cmd->flags & ~NPULINK_BOARD_WAKE || cmd->reserved)
		return -EOPNOTSUPP;
	if (cmd->flags & NPULINK_BOARD_WAKE && cmd->number)
		return -EINVAL;
	rank = npulink_rank_lookup(ucmd->file, cmd->comm_id);
	if (IS_ERR(rank))
		return PTR_ERR(rank);
	board = npulink_board_of(rank->comm);
	if (!board)
		rc = -ENOTCONN;
	else if (cmd->flags & NPULINK_BOARD_WAKE)
		npulink_board_wake(board);
	else
		rc = npulink_board_sleep(rank, board, cmd->number);
	npulink_rank_put(rank);
	return rc;
}
