/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * board_meet.h - what those who meet on the board (board.c), leave requests there
 * (board_request.c) or post beside it (board_post.c) look at.
 */
#ifndef COLL_BOARD_MEET_H
#define COLL_BOARD_MEET_H

#include <string.h>
#include "run/board.h"
#include "run/board_layout.h"
#include "run/comm.h"

static inline uint64_t get(const uint64_t *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static inline void set(uint64_t *p, uint64_t value)
{
	__atomic_store_n(p, value, __ATOMIC_RELEASE);
}

/* What this process alone has, all threads of it. */
static inline uint64_t kept(const _Atomic uint64_t *p)
{
	return atomic_load_explicit(p, memory_order_relaxed);
}

static inline void keep(_Atomic uint64_t *p, uint64_t value)
{
	atomic_store_explicit(p, value, memory_order_relaxed);
}

/* Of what is a hint only, and where a barrier is near. */
static inline uint32_t peek(const uint32_t *p)
{
	return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}

static inline void hint(uint32_t *p, uint32_t value)
{
	__atomic_store_n(p, value, __ATOMIC_RELAXED);
}

static inline struct board_rank *rank_of(const struct coll_board *b, uint32_t rank)
{
	return &b->memory->ranks[rank];
}

static inline struct board_slot *slot_of(const struct coll_board *b, uint64_t number)
{
	return &b->memory->slots[number % COLL_BOARD_SLOTS];
}

/* ---- numbers */

/* All before @next have one. */
static inline void raise_next(struct coll_board *b, uint64_t next)
{
	uint64_t now = kept(&b->next);

	while (now < next)
		if (atomic_compare_exchange_weak_explicit(&b->next, &now, next,
							  memory_order_relaxed,
							  memory_order_relaxed))
			return;
}

/* ---- the word of a slot */

enum state { FALLEN, OPEN, MET, BOUND };

/* ---- who may */

/*
 * From here on nobody else of this process has collectives on the board, or posts one, so that the
 * next number is the one that it seems to be.
 */
static inline bool claim(struct coll_comm *comm)
{
	int none = 0;

	/* Who makes one call after the other would not let them in. */
	if (atomic_load_explicit(&comm->posters, memory_order_relaxed))
		return false;
	return atomic_compare_exchange_strong_explicit(&comm->posting, &none, -1,
						       memory_order_acquire, memory_order_relaxed);
}

static inline void let_go(struct coll_comm *comm)
{
	atomic_store_explicit(&comm->posting, 0, memory_order_release);
}

/* ---- one operation */

static inline bool has_failed(const struct coll_board *b)
{
	return __atomic_load_n(&b->comm->failed, __ATOMIC_RELAXED);
}

/* Mostly a number or two, for which a call takes longer than to copy them. */
static inline void copy(void *to, const void *from, size_t len)
{
	if (len == 8)
		memcpy(to, from, 8);
	else if (len == 4)
		memcpy(to, from, 4);
	else if (len)
		memcpy(to, from, len);
}

/* Does it not fit into slots? The same on all ranks. */
static inline bool is_wide(const struct coll_board_call *call)
{
	return call->len > BOARD_BYTES;
}

/* Where a rank puts what it brings. */
static inline unsigned char *data_of(struct board_rank *rank, const struct coll_board_call *call,
				     uint64_t number)
{
	return is_wide(call) ? rank->wide[number % COLL_BOARD_WIDES] :
	       rank->slots[number % COLL_BOARD_SLOTS].data;
}

/* Is what is bound this call? */
static inline bool is_bound(const struct coll_board *b, const struct coll_board_call *call,
			    uint64_t number)
{
	return __atomic_load_n(&slot_of(b, number)->code, __ATOMIC_RELAXED) == call->code;
}

/* board.c */
bool coll_board_is_open(struct coll_comm *comm);
enum state coll_board_put(struct coll_comm *comm, const struct coll_board_call *call,
			  uint64_t number);
enum state coll_board_look(const struct coll_comm *comm, uint64_t number);
enum state coll_board_meet(struct coll_comm *comm, uint64_t number, uint64_t until);
enum state coll_board_sleep(struct coll_comm *comm, uint64_t number, uint64_t until);
bool coll_board_end(struct coll_comm *comm, const struct coll_board_call *call, uint64_t number,
		    enum state state);
unsigned int coll_board_longer(unsigned int *pause);
enum state coll_board_leave(struct coll_comm *comm, uint64_t number);
void coll_board_make_way(struct coll_comm *comm, uint64_t number, uint32_t share);

/* board_request.c */
enum state coll_board_await(struct coll_comm *comm, uint64_t number, uint64_t until);
bool coll_board_try_beside(struct coll_comm *comm, const struct coll_board_call *call);

#endif /* COLL_BOARD_MEET_H */
