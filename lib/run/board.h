/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * board.h - ranks of one node meet without a system call.
 */
#ifndef COLL_RUN_BOARD_H
#define COLL_RUN_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "plan/plan.h"

struct coll_comm;
struct coll_dev;
struct coll_operation;
struct coll_request;

/**
 * struct coll_board_call - what is done on the board, see run/board.c
 * @code: of the call; 0: nothing
 * @len: bytes that each rank brings; 0: it only comes
 * @from: where in these those are that this rank needs
 * @part: how many
 * @in: the own
 * @out: result; NULL: this rank gets none
 * @count: elements
 * @shared: bytes of the result that all ranks need, or parts of them; 0: each its own, or none
 * @elements: of these
 * @reduce: adds one more rank's to the result; NULL: they are put one after the other
 * @led: only @root brings anything, and waits for nobody
 * @root: where there is one
 */
struct coll_board_call {
	uint32_t code;
	uint32_t len, from, part;
	const void *in;
	void *out;
	size_t count;
	uint32_t shared, elements;
	void (*reduce)(void *out, const void *x, const void *y, size_t n);
	bool led;
	uint32_t root;
};

#define COLL_BOARD_SLOTS	16
#define COLL_BOARD_WIDES	4

struct board_memory;
struct board_rank;

/**
 * struct coll_board - a rank's part in it
 * @never: there is none
 * @open: there is one, which all ranks know
 * @crowded: ranks share processors
 * @processors: that they have
 * @skip: calls that are not to be tried
 * @rest: calls that are not to spin
 * @pause: how many were not, last time
 * @misses: times that a rank has spun in vain, one after the other
 * @warm: calls that came before there was one
 * @machine: what the kernel says of all communicators, and ..
 * @comm: .. of this one
 * @memory: what all ranks share, @len bytes
 * @own: what only this rank writes of it
 * @done: all ranks have done with collectives of lower numbers
 * @used: 1 + the number that each slot was last used for
 * @used_wide: the same of what is beside slots
 * @oldest: request that is there, and ..
 * @newest: .. the last of them
 * @requests: how many are there
 * @next: the number of the next collective
 * @left: 1 + the last number of which the others know that this rank posts it
 * @swept: nobody was left asleep under lower numbers
 * @met: operations
 *
 * @next, @left, @swept and @requests belong to those who post as well, the rest to who has a claim.
 */
struct coll_board {
	bool never, open, crowded;
	unsigned int processors, skip, rest, pause, misses, warm;
	const struct npulink_board_machine *machine;
	const struct npulink_board_comm *comm;
	struct board_memory *memory;
	struct board_rank *own;
	size_t len;
	uint64_t done, used[COLL_BOARD_SLOTS], used_wide[COLL_BOARD_WIDES];
	struct coll_request *oldest, *newest;
	_Atomic unsigned int requests;
	_Atomic uint64_t next, left, swept, met;
};

void coll_board_close(struct coll_board *board);
bool coll_board_takes(const struct coll_algorithm *alg, const struct coll_args *args,
		      struct coll_board_call *call);
bool coll_board_describe(const struct coll_algorithm *alg, const struct coll_args *args,
			 struct coll_board_call *call);
void coll_board_bind(const struct coll_operation *op, struct coll_board_call *call);
void coll_board_prepare(const struct coll_operation *op, struct coll_board_call *call);
bool coll_board_decode(uint32_t code, struct coll_args *args);
bool coll_board_try(struct coll_comm *comm, const struct coll_board_call *call);
unsigned int coll_board_group(struct coll_comm *comm, struct coll_request **v, unsigned int n);
bool coll_board_claim(struct coll_comm *comm);
void coll_board_let_go(struct coll_comm *comm);
void coll_board_begin_post(struct coll_comm *comm);
void coll_board_end_post(struct coll_comm *comm);
uint64_t coll_board_next(const struct coll_comm *comm);
int coll_board_post(struct coll_operation *op);
bool coll_board_number(const struct coll_operation *op, struct npulink_post *post, uint64_t number);
int coll_board_follow(const struct coll_operation *op, uint64_t number);
bool coll_board_posted(struct coll_comm *comm, const struct npulink_post *post, int rc);
int coll_board_differs(struct coll_comm *comm, uint64_t number);
int coll_board_post_fallen(struct coll_operation *op, uint64_t number);
bool coll_board_start(struct coll_request *req);
void coll_board_test(struct coll_request *req);
int coll_board_wait(struct coll_request *req, uint64_t until);
void coll_board_flush(struct coll_comm *comm);
void coll_board_flush_all(struct coll_dev *dev);
void coll_board_leave_all(struct coll_comm *comm, bool all);
void coll_board_withdraw(struct coll_comm *comm, uint64_t number, int rc);

#endif /* COLL_RUN_BOARD_H */
