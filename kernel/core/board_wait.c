// SPDX-License-Identifier: GPL-2.0
/*
 * board_wait.c - ranks that wait until all others have come to the board: no request, no
 * operation, nobody else to be told. Not for long: then they have to post, which everybody sees.
 *
 * To sleep and to be woken is most of what a small collective costs where ranks share
 * processors. But they need each other's arrival only, so who waits can as well give the
 * processor to one that is to come yet: then all come, one after the other, and nobody has slept.
 * Only the kernel knows who that is and where; with sched_yield() it is anybody, so as well one
 * who waits, too.
 */
#include <linux/sched/clock.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include "core.h"
#include "board.h"

#define BOARD_LATE	msecs_to_jiffies(10)
/* For so long a rank gives its processor to others, before it sleeps. */
#define BOARD_PASS	2	/* jiffies */
/* For so long it looks for the next of those who are at work elsewhere: switches of theirs. */
#define BOARD_LOOK_NS	50000
/* Processor time that it loses so that others come first, at once and in a row: see below. */
#define BOARD_BURN_NS		200000
#define BOARD_BURN_MAX_NS	8000000

/* A task that sleeps in BOARD_WAIT, one for each rank; under board->lock. */
struct npulink_board_waiter {
	struct task_struct *task;
	u64 number;
	unsigned long since;
	bool late;
};

/* It will not be met here. */
static bool npulink_board_is_off(const struct npulink_board *board, u64 number)
{
	return READ_ONCE(board->comm->off[number % NPULINK_BOARD_SLOTS]) > number ||
	       READ_ONCE(board->comm->failed);
}

/* Is there a reason to look? */
static bool npulink_board_is_over(const struct npulink_board *board, u64 number)
{
	return npulink_board_is_off(board, number) || npulink_board_all(board, number);
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

/* ---- before that -------------------------------------------------------------------------- */

void npulink_board_set_task(struct npulink_board *board, u32 rank, struct task_struct *task)
{
	struct npulink_board_place *place = &board->places[rank];
	struct task_struct *old;

	if (READ_ONCE(place->task) == task)
		return;
	if (task)
		get_task_struct(task);
	spin_lock_irq(&board->lock);
	old = place->task;
	WRITE_ONCE(place->task, task);
	spin_unlock_irq(&board->lock);
	if (old)
		put_task_struct(old);
}

/* What a rank looks for, and what it finds. */
struct npulink_board_look {
	struct npulink_board *board;
	u32 me;
	u64 number, flag;
	u32 first;		/* all ranks before have come */
	bool at_work;		/* those that have not run, or are about to */
};

/*
 * Who waits has come, and to look at that is cheaper than at the flag: those lie in a page each. If
 * it is not true, whoever believes it has looked in vain, and is back soon to sleep.
 */
static bool npulink_board_waits(const struct npulink_board_look *l, u32 rank)
{
	/* Pairs with npulink_board_wait(): then its flag is seen as well. */
	return smp_load_acquire(&l->board->places[rank].number) > l->number;
}

static bool npulink_board_has_come(const struct npulink_board_look *l, u32 rank)
{
	return npulink_board_waits(l, rank) ||
	       npulink_board_flag(l->board, rank, l->number) == l->flag;
}

/* Is there a reason to return? */
static bool npulink_board_is_found(struct npulink_board_look *l)
{
	if (npulink_board_is_off(l->board, l->number))
		return true;
	while (l->first < l->board->nranks && npulink_board_has_come(l, l->first))
		l->first++;
	return l->first == l->board->nranks;
}

/* Who is to come yet and waits for this processor, with a reference; NULL: nobody. */
static struct task_struct *npulink_board_to_come(struct npulink_board_look *l)
{
	struct npulink_board *board = l->board;
	struct task_struct *next = NULL;
	u32 i, r = l->me;

	l->at_work = true;
	spin_lock_irq(&board->lock);
	for (i = 1; i < board->nranks && !next; i++) {
		struct npulink_board_place *place;

		r = r + 1 < board->nranks ? r + 1 : 0;
		if (npulink_board_waits(l, r))
			continue;
		place = &board->places[r];
		if (!place->task || place->task == current || !task_is_running(place->task))
			l->at_work &= npulink_board_has_come(l, r);
		else if (task_cpu(place->task) == raw_smp_processor_id())
			next = get_task_struct(place->task);
	}
	spin_unlock_irq(&board->lock);
	return next;
}

/* Looks until nobody has come for @ns. */
static bool npulink_board_look(struct npulink_board_look *l, u64 ns)
{
	u64 until = local_clock() + ns;
	u32 r, n, ncome = 0;

	do {
		cpu_relax();
		if (npulink_board_is_found(l))
			return true;
		for (n = r = l->first; r < l->board->nranks; r++)
			n += npulink_board_has_come(l, r);
		if (n != ncome)
			until = local_clock() + ns;
		ncome = n;
	} while (!need_resched() && local_clock() < until);
	return false;
}

/*
 * The scheduler does not follow a hint against those to whom it owes some milliseconds: whoever
 * has slept comes first until that is made up for. That is us, so use up some of it, after
 * which nobody has to sleep for many calls; but after the beginning no more than a 16th of our
 * time, as it may be that somebody sleeps before all have made up for it, and then it was for
 * nothing.
 */
static bool npulink_board_burn(struct npulink_board_look *l, bool *found)
{
	struct npulink_board_place *place = &l->board->places[l->me];
	u64 used = current->se.sum_exec_runtime;

	/* Another thread may have used more. */
	if (!place->used)
		place->spare = BOARD_BURN_MAX_NS;
	else if (used > place->used)
		place->spare = min_t(u64, place->spare + (used - place->used) / 16,
				     BOARD_BURN_MAX_NS);
	place->used = used;
	if (place->spare < BOARD_BURN_NS)
		return false;
	place->spare -= BOARD_BURN_NS;
	*found = npulink_board_look(l, BOARD_BURN_NS);
	return true;
}

/* Gives the processor to those who are to come. False: that leads to nothing. */
static bool npulink_board_pass(struct npulink_board_look *l)
{
	unsigned long end = jiffies + BOARD_PASS;
	bool again = false, found = false;
	struct task_struct *task;
	int rc = 1;

	for (; (task = npulink_board_to_come(l)); again = true) {
		/* The second time we have it back, and he, who waits for it yet, has not had it. */
		if (signal_pending(current) || time_after(jiffies, end) ||
		    (again && !npulink_board_burn(l, &found)))
			rc = 0;
		else if (!found)
			rc = yield_to(task, false);
		put_task_struct(task);
		if (found || npulink_board_is_found(l))
			return true;
		if (rc <= 0) {
			/* Or so, and we have waited for long enough. */
			l->at_work = false;
			break;
		}
	}
	return false;
}

/* ---- the call ----------------------------------------------------------------------------- */

static int npulink_board_sleep(struct npulink_rank *rank, struct npulink_board *board, u64 number,
			       unsigned long since)
{
	struct npulink_board_waiter w = { .task = current, .number = number, .since = since };
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
			rc = -EINTR;
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

static int npulink_board_wait(struct npulink_rank *rank, struct npulink_board *board, u64 number,
			      bool pass)
{
	struct npulink_board_place *place = &board->places[rank->rank];
	struct npulink_board_look l = {
		.board = board, .me = rank->rank, .number = number,
		.flag = npulink_board_flag(board, rank->rank, number),
	};
	unsigned long since = jiffies;
	bool over;
	int rc;

	npulink_board_set_task(board, rank->rank, current);
	/* Pairs with npulink_board_waits(). */
	smp_store_release(&place->number, number + 1);
	/* With another flag there is nothing to compare with. */
	pass &= npulink_board_is_of(l.flag, number);
	if (pass)
		over = npulink_board_is_found(&l) || npulink_board_pass(&l) ||
		       (l.at_work && npulink_board_look(&l, BOARD_LOOK_NS));
	else
		over = npulink_board_is_over(board, number);
	if (over)
		return 0;
	rc = npulink_board_sleep(rank, board, number, since);
	return rc ?: pass;
}

int npulink_board_wait_ioctl(struct npulink_ucmd *ucmd)
{
	struct npulink_board_wait *cmd = ucmd->cmd;
	struct npulink_board *board;
	struct npulink_rank *rank;
	int rc = 0;

	if (cmd->flags & ~(NPULINK_BOARD_WAKE | NPULINK_BOARD_PASS) || cmd->reserved)
		return -EOPNOTSUPP;
	if (cmd->flags & NPULINK_BOARD_WAKE && (cmd->number || cmd->flags & NPULINK_BOARD_PASS))
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
		rc = npulink_board_wait(rank, board, cmd->number,
					cmd->flags & NPULINK_BOARD_PASS);
	npulink_rank_put(rank);
	return rc;
}
