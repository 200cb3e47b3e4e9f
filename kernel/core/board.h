/* SPDX-License-Identifier: GPL-2.0 */
/*
 * board.h - a communicator's board, see linux/npulink_board.h: board.c, board_wait.c.
 */
#ifndef NPULINK_BOARD_H
#define NPULINK_BOARD_H

#include <linux/npulink_board.h>
#include <linux/spinlock.h>
#include <linux/timer.h>

struct npulink_comm;
struct npulink_board_waiter;

/*
 * struct npulink_board_place - of a rank that may wait
 * @task: who has last come here for it, or mapped its part; with a reference. Under board->lock
 * @number: + 1, of the last collective it has waited for: it has come to that, or says so
 * @used: nanoseconds that the task had run when @spare was last looked at
 * @spare: nanoseconds that it may lose, see npulink_board_burn()
 */
struct npulink_board_place {
	struct task_struct *task;
	u64 number;
	u64 used, spare;
};

/*
 * struct npulink_board - of a communicator; made by the first rank that maps its own part
 * @nranks: its ranks
 * @comm: what all ranks read
 * @off: @comm's, which nobody else can write
 * @met: of those, which are met on the board; both under comm->lock
 * @nareas: ranks that have theirs
 * @areas: by rank
 * @lock: the rest; inside all others
 * @timer: for those who sleep too long
 * @nwaiters: those who sleep
 * @waiters: they, by rank
 * @places: by rank
 */
struct npulink_board {
	u32 nranks;
	struct npulink_board_comm *comm;
	u64 off[NPULINK_BOARD_SLOTS];
	bool met[NPULINK_BOARD_SLOTS];
	u32 nareas;
	struct npulink_board_rank *areas[NPULINK_BOARD_RANKS];
	spinlock_t lock;	/* see above */
	struct timer_list timer;
	u32 nwaiters;
	struct npulink_board_waiter *waiters[NPULINK_BOARD_RANKS];
	struct npulink_board_place places[NPULINK_BOARD_RANKS];
};

/* Of @rank, in the slot of @number. */
static inline u64 npulink_board_flag(const struct npulink_board *board, u32 rank, u64 number)
{
	return READ_ONCE(board->areas[rank]->slots[number % NPULINK_BOARD_SLOTS].flag);
}

static inline bool npulink_board_is_of(u64 flag, u64 number)
{
	return flag && flag >> 24 == NPULINK_BOARD_FLAG(number, 0) >> 24;
}

struct npulink_board *npulink_board_of(struct npulink_comm *comm);
bool npulink_board_all(const struct npulink_board *board, u64 number);

/* ---- board_wait.c */

void npulink_board_wait_init(struct npulink_board *board);
void npulink_board_wake(struct npulink_board *board);
void npulink_board_set_task(struct npulink_board *board, u32 rank, struct task_struct *task);

#endif /* NPULINK_BOARD_H */
