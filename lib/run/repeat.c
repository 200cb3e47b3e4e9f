// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * repeat.c - blocking calls that are made again and again.
 *
 * What a loop does is one call, or a few. What was found out for it stays: that its arguments are
 * fine, its plan, its place in the arena. The next one, with whatever buffers, meets the others'
 * on the board, or is copy, system call, copy. Only for payloads that go through the arena, and
 * calls that succeed: whatever else happens is left to op.c.
 */
#include <string.h>
#include "base/base.h"
#include "run/board.h"
#include "run/comm.h"
#include "run/dev.h"
#include "run/op.h"
#include "run/repeat.h"

/* Parts of the arena that one call may keep, and all of them. */
#define KEEP_ONE	4
#define KEEP_ALL	2

static bool take(struct coll_repeats *r)
{
	return !atomic_exchange_explicit(&r->busy, true, memory_order_acquire);
}

static void release(struct coll_repeats *r)
{
	atomic_store_explicit(&r->busy, false, memory_order_release);
}

/* What depends on buffers. */
static void set_buffers(struct coll_repeat *repeat)
{
	coll_op_copies(&repeat->op, &repeat->in, &repeat->out);
	coll_board_prepare(&repeat->op, &repeat->board);
}

/* False: nothing has changed, see coll_buffers_replace(). */
static __attribute__((noinline)) bool move(struct coll_repeat *repeat, const void *send,
					   const void *recv)
{
	if (!coll_buffers_replace(&repeat->op, send, recv))
		return false;
	set_buffers(repeat);
	return true;
}

/*
 * The call, if it was kept, with these buffers; then it belongs to the caller until
 * coll_repeat_end() or coll_repeat_give(). No lock is needed.
 */
COLL_HOT struct coll_repeat *coll_repeat_get(struct coll_comm *comm, const struct coll_args *args,
					     const void *send, const void *recv)
{
	struct coll_repeats *r = &comm->repeats;

	/* It may be at the place of what was kept. */
	if (coll_mem_on_device(comm->dev, send, recv) || !take(r))
		return NULL;
	for (unsigned int i = 0; i < r->n; i++) {
		struct coll_repeat *repeat = &r->v[i];

		if (coll_op_is_call(&repeat->op, args) &&
		    (coll_op_has(&repeat->op, send, recv) || move(repeat, send, recv))) {
			atomic_store_explicit(&r->hits, r->hits + 1, memory_order_relaxed);
			repeat->seen = r->refused;
			return repeat;
		}
	}
	release(r);
	return NULL;
}

COLL_HOT void coll_repeat_end(struct coll_repeat *repeat)
{
	release(&repeat->op.comm->repeats);
}

static void drop(struct coll_repeats *r, unsigned int i)
{
	struct coll_operation *op = &r->v[i].op;

	op->comm->dev->kept -= op->arena_len;
	coll_op_unbind(op);
	coll_op_unplan(op);
	memmove(&r->v[i], &r->v[i + 1], (--r->n - i) * sizeof(*r->v));
}

/* It is not what it was: @op has it now, as if it had never been kept. Lock held. */
void coll_repeat_give(struct coll_repeat *repeat, struct coll_operation *op)
{
	struct coll_repeats *r = &repeat->op.comm->repeats;

	*op = repeat->op;
	op->comm->dev->kept -= op->arena_len;
	memmove(repeat, repeat + 1, (&r->v[--r->n] - repeat) * sizeof(*repeat));
	release(r);
}

static bool has_room(const struct coll_repeats *r, const struct coll_dev *dev, size_t len)
{
	return r->n < ARRAY_SIZE(r->v) && dev->kept + len <= dev->arena_size / KEEP_ALL;
}

/* It has not come again for as long as others would have liked its place. */
static bool is_over(const struct coll_repeats *r, unsigned int i)
{
	return r->refused - r->v[i].seen > COLL_PATIENCE;
}

/*
 * For one more. A loop over more calls than can be kept keeps some of them, instead of none as if
 * the oldest always went; those of a loop that has ended go.
 */
static bool make_room(struct coll_repeats *r, struct coll_dev *dev, size_t len)
{
	size_t over = 0;
	unsigned int n = 0, i = 0;

	if (has_room(r, dev, len))
		return true;
	r->refused++;
	for (unsigned int k = 0; k < r->n; k++) {
		if (!is_over(r, k))
			continue;
		over += r->v[k].op.arena_len;
		n++;
	}
	/* Not in vain, if other communicators have too much. */
	if (!n || dev->kept - over + len > dev->arena_size / KEEP_ALL)
		return false;
	while (!has_room(r, dev, len)) {
		while (!is_over(r, i))
			i++;
		drop(r, i);
	}
	return true;
}

/* While another thread had those that are kept, this one was not found there. */
static bool is_kept(const struct coll_repeats *r, const struct coll_operation *op)
{
	for (unsigned int i = 0; i < r->n; i++)
		if (r->v[i].op.plan == op->plan)
			return true;
	return false;
}

/*
 * @op has succeeded. True if it is kept, with all that it holds, because the same call came
 * before. Lock held.
 */
bool coll_repeat_keep(const struct coll_operation *op)
{
	struct coll_repeats *r = &op->comm->repeats;
	struct coll_dev *dev = op->comm->dev;
	struct coll_repeat *keep;

	if (!op->plan->blocked) {
		op->plan->blocked = true;
		return false;
	}
	if (!coll_op_in_arena(op) || !coll_op_may_repeat(op) ||
	    op->arena_len > dev->arena_size / KEEP_ONE || !take(r))
		return false;
	if (is_kept(r, op) || !make_room(r, dev, op->arena_len)) {
		release(r);
		return false;
	}
	dev->kept += op->arena_len;
	keep = &r->v[r->n++];
	keep->op = *op;
	keep->seen = r->refused;
	set_buffers(keep);
	release(r);
	return true;
}

/*
 * Gives back what is kept: the arena or plans are needed for something else. False if there is
 * nothing. Lock held.
 */
bool coll_repeats_drop(struct coll_comm *comm)
{
	struct coll_repeats *r = &comm->repeats;
	bool some;

	if (!take(r))
		return false;
	some = r->n;
	while (r->n)
		drop(r, r->n - 1);
	release(r);
	return some;
}
