// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * buffers.c - the caller's buffers: which one is which, and what can be wrong with them.
 */
#include <errno.h>
#include <string.h>
#include <npulink/verify.h>
#include "coll.h"
#include "run/error.h"
#include "run/op.h"

/* ---- which is which */

/* Where the own shard or block begins in the large buffer, in bytes. */
static size_t own_offset(const struct coll_args *a)
{
	uint64_t off = a->rank * a->count;

	if (a->counts) {
		off = 0;
		for (uint32_t i = 0; i < a->rank && !a->displs; i++)
			off += a->counts[i];
		if (a->displs)
			off = a->displs[a->rank];
	}
	return off * npulink_dtype_size(a->dtype);
}

static bool at(const void *buf, const void *large, size_t off)
{
	return large && large != COLL_IN_PLACE && buf == (const char *)large + off;
}

static void in_place(struct coll_operation *op, const void *large)
{
	op->args.in_place = true;
	op->buf[NPULINK_SLOT_SEND] = NULL;
	op->buf[NPULINK_SLOT_RECV] = (void *)large;
}

/*
 * Fills in buf[] and in_place as planners want them, from COLL_IN_PLACE or from
 * equal addresses. Ranks that have only one buffer count as out of place.
 */
void coll_buffers_sort(struct coll_operation *op, const void *send, void *recv)
{
	struct coll_args *a = &op->args;
	const struct coll_kind *k = coll_kind(a->collective);
	bool gives = coll_gives(a), gets = coll_gets(a);

	op->buf[NPULINK_SLOT_SEND] = (void *)send;
	op->buf[NPULINK_SLOT_RECV] = recv;
	if (!gives) {
		op->buf[NPULINK_SLOT_SEND] = NULL;
	} else if (!gets) {
		/* Of the same length as the root's: the input of the others may be there, too. */
		if (k->gives == k->gets && k->getters == NPULINK_WHO_ROOT &&
		    (send == COLL_IN_PLACE || at(send, recv, 0)))
			op->buf[NPULINK_SLOT_SEND] = recv;
		op->buf[NPULINK_SLOT_RECV] = NULL;
	} else if (k->gives > k->gets) {
		if (send == COLL_IN_PLACE && k->givers == NPULINK_WHO_EVERY)
			in_place(op, recv);
		else if (recv == COLL_IN_PLACE || at(recv, send, own_offset(a)))
			in_place(op, send);
	} else if (send == COLL_IN_PLACE ||
		   at(send, recv, k->gives == k->gets ? 0 : own_offset(a))) {
		in_place(op, recv);
	}
}

/* ---- what can be said about them before anybody touches them */

enum wrong { FINE, IS_NULL, UNALIGNED, OVERLAP };

/* @len: bytes of the two slots that are used. *slot: which one it is about. */
static enum wrong look(const struct coll_operation *op, const size_t len[2], unsigned int *slot)
{
	uintptr_t send = (uintptr_t)op->buf[0], recv = (uintptr_t)op->buf[1];
	bool reduces = npulink_coll_reduces(op->args.collective);
	/* A power of two. */
	size_t align = reduces ? npulink_dtype_size(op->args.dtype) : 1;

	for (*slot = 0; *slot < 2; ++*slot) {
		if (!len[*slot])
			continue;
		if (!op->buf[*slot])
			return IS_NULL;
		if ((uintptr_t)op->buf[*slot] & (align - 1))
			return UNALIGNED;
	}
	if (len[0] && len[1] && send < recv + len[1] && recv < send + len[0])
		return OVERLAP;
	return FINE;
}

/* Is nothing wrong with them? */
bool coll_buffers_fit(const struct coll_operation *op, const size_t len[2])
{
	unsigned int slot;

	return !look(op, len, &slot);
}

/* Of which @nsend and @nrecv bytes are used. Leaves an error text. */
int coll_buffers_check(const struct coll_operation *op, size_t nsend, size_t nrecv)
{
	const size_t len[2] = { nsend, nrecv };
	unsigned int slot;
	enum wrong wrong = look(op, len, &slot);
	const char *name;
	char what[128];

	if (!wrong)
		return 0;
	coll_describe(&op->args, what, sizeof(what));
	if (wrong == OVERLAP)
		return coll_fail(op->comm, -EINVAL,
				 "%s: send and receive buffer overlap: make them disjoint, or use COLL_IN_PLACE",
				 what);
	name = slot == NPULINK_SLOT_SEND ? "send" : "receive";
	if (wrong == IS_NULL)
		return coll_fail(op->comm, -EINVAL, "%s: the %s buffer is NULL", what, name);
	return coll_fail(op->comm, -EINVAL,
			 "%s: the %s buffer at %p is not aligned to its type (%u bytes)", what,
			 name, op->buf[slot], npulink_dtype_size(op->args.dtype));
}

/*
 * The same call as @op, which has its plan, but with these buffers. False, and it is as it was:
 * in place where that one was not or the other way round, which is another plan, or they are
 * wrong, which coll_buffers_check() tells.
 */
bool coll_buffers_replace(struct coll_operation *op, const void *send, const void *recv)
{
	void *const had[2] = { op->buf[0], op->buf[1] };
	const bool in_place = op->args.in_place;
	unsigned int slot;

	op->args.in_place = false;
	coll_buffers_sort(op, send, (void *)recv);
	if (op->args.in_place == in_place && op->buf[0] != COLL_IN_PLACE &&
	    op->buf[1] != COLL_IN_PLACE && !look(op, op->plan->len, &slot)) {
		op->called[0] = send;
		op->called[1] = recv;
		return true;
	}
	op->args.in_place = in_place;
	op->buf[0] = had[0];
	op->buf[1] = had[1];
	return false;
}
