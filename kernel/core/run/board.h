/* SPDX-License-Identifier: GPL-2.0 */
/*
 * board.h - a communicator's board, see linux/npulink_board.h: board.c, board_wait.c.
 */
#ifndef NPULINK_BOARD_H
#define NPULINK_BOARD_H

#include <linux/npulink_board.h>
#include <linux/spinlock.h>
#include <linux/timer.h>
#include "base/pass.h"
#include "file/file.h"

struct npulink_comm;
struct npulink_file;
struct npulink_rank;
struct npulink_ucmd;
struct vm_area_struct;

/*
 * struct npulink_board_waiter - a rank in BOARD_WAIT
 * @used: somebody is; until he has seen pass.go, or left
 * @rc: what he is to return
 * @number: of what he waits for
 * @since: jiffies
 * @pass: while he sleeps
 *
 * They are the board's and not on the stacks of those who sleep, as others look at all of them.
 */
struct npulink_board_waiter {
	bool used;
	int rc;
	u64 number;
	unsigned long since;
	struct npulink_pass pass;
};

/*
 * struct npulink_board - of a communicator; made by the first rank that maps its own part
 * @nranks: its ranks
 * @comm: what all ranks read
 * @off: @comm's, which nobody else can write
 * @met: of those, which are met on the board
 * @refused: the last number, + 1, of as many as a rank may have in flight, that is not, though
 *	there may be flags; all three under comm->lock
 * @nareas: ranks that have theirs
 * @areas: by rank
 * @lock: the rest; inside all others
 * @timer: for those who sleep too long
 * @waiting: by rank: sleeps, and nothing is known yet
 * @turns: the communicator's
 * @waiters: by rank
 */
struct npulink_board {
	u32 nranks;
	struct npulink_board_comm *comm;
	u64 off[NPULINK_BOARD_SLOTS];
	bool met[NPULINK_BOARD_SLOTS];
	u64 refused[NPULINK_MAX_INFLIGHT];
	u32 nareas;
	struct npulink_board_rank *areas[NPULINK_BOARD_RANKS];
	spinlock_t lock;	/* see above */
	struct timer_list timer;
	u64 waiting;
	struct npulink_pass_group *turns;
	struct npulink_board_waiter waiters[NPULINK_BOARD_RANKS];
};

extern const struct kernel_param_ops npulink_board_param_ops;
extern bool npulink_scripts;

int npulink_board_sync(struct npulink_rank *rank);
u64 npulink_board_next(struct npulink_rank *rank);
bool npulink_board_met(struct npulink_rank *rank, u64 number);
void npulink_board_posted(struct npulink_rank *rank);
void npulink_board_failed(struct npulink_comm *comm);
void npulink_board_drop(struct npulink_comm *comm);
int npulink_board_mmap(struct npulink_file *file, u64 off, struct vm_area_struct *vma);
int npulink_board_wait_ioctl(struct npulink_ucmd *ucmd);
void npulink_board_special(bool special);
int npulink_board_init(void);
void npulink_board_exit(void);

/* While somebody traces: the tracepoints call these. */
int npulink_trace_begin(void);
void npulink_trace_end(void);

/* ---- of those who are met on it */

struct npulink_board *npulink_board_of(struct npulink_comm *comm);
u64 npulink_board_flag(const struct npulink_board *board, u32 rank, u64 number);
bool npulink_board_all(const struct npulink_board *board, u64 number);

/* ---- board_wait.c */

void npulink_board_wait_init(struct npulink_board *board);
void npulink_board_wake(struct npulink_board *board, int by);

#endif /* NPULINK_BOARD_H */
