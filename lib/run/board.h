/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * board.h - ranks of one machine meet without a system call.
 */
#ifndef COLL_RUN_BOARD_H
#define COLL_RUN_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/npulink_board.h>
#include "plan/plan.h"

struct coll_cached;
struct coll_comm;
struct coll_operation;
struct coll_request;

/**
 * struct coll_board_call - what is done on the board, see run/board.c
 * @code: of the call; 0: nothing
 * @len: bytes that each rank brings; 0: it only comes
 * @from: where in these those are that this rank needs
 * @part: how many
 * @in: the own
 * @out: result
 * @count: elements
 * @shared: bytes of the result that all ranks need, or parts of them; 0: each its own, or none
 * @elements: of these
 * @reduce: adds one more rank's to the result; NULL: they are put one after the other
 */
struct coll_board_call {
	uint32_t code;
	uint32_t len, from, part;
	const void *in;
	void *out;
	size_t count;
	uint32_t shared, elements;
	void (*reduce)(void *out, const void *x, const void *y, size_t n);
};

/**
 * struct coll_board - a rank's part in it
 * @never: there is none
 * @spins: ranks have a processor each
 * @skip: calls that are not to be tried
 * @rest: calls that are not to spin
 * @pause: how many were not, last time
 * @misses: times that a rank has spun in vain, one after the other
 * @warm: calls that came before there was one
 * @all: what all can read, NULL until every rank has come here; with @len bytes
 * @machine: of it
 * @comm: of it
 * @ranks: of it, one each @stride bytes
 * @own: what this rank writes
 * @done: all ranks have done with collectives of lower numbers
 * @used: 1 + the number that each slot was last used for
 * @used_wide: the same of what is beside slots
 * @late: the rank that was not there when we came, the last time that there was one
 * @number: of the last operation that was put there
 * @met: operations
 */
struct coll_board {
	bool never, spins;
	unsigned int skip, rest, pause, misses, warm;
	unsigned char *all;
	size_t len, stride;
	const struct npulink_board_machine *machine;
	const struct npulink_board_comm *comm;
	const unsigned char *ranks;
	struct npulink_board_rank *own;
	uint64_t done, used[NPULINK_BOARD_SLOTS], used_wide[NPULINK_BOARD_WIDES], number;
	uint32_t late;
	_Atomic uint64_t met;
};

enum coll_board_state {
	COLL_BOARD_NOT,
	COLL_BOARD_PUT,
	COLL_BOARD_MET,
};

void coll_board_close(struct coll_board *board);
bool coll_board_takes(const struct coll_algorithm *alg, const struct coll_args *args,
		      struct coll_board_call *call);
void coll_board_plan(struct coll_cached *plan);
void coll_board_prepare(const struct coll_operation *op, struct coll_board_call *call);
enum coll_board_state coll_board_try(struct coll_comm *comm, const struct coll_board_call *call);
void coll_board_end(struct coll_comm *comm, const struct coll_board_call *call);
unsigned int coll_board_group(struct coll_comm *comm, struct coll_request **v, unsigned int n);
bool coll_board_end_request(struct coll_request *req);
bool coll_board_claim(struct coll_comm *comm);
void coll_board_let_go(struct coll_comm *comm);
void coll_board_begin_post(struct coll_comm *comm);
void coll_board_end_post(struct coll_comm *comm);
bool coll_board_patience(unsigned int *pauses);
void coll_board_unmet(unsigned int *looks);
void coll_board_withdraw(struct coll_comm *comm, struct coll_request **v, unsigned int n, int rc);

#endif /* COLL_RUN_BOARD_H */
