// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * self.c - sends to the own rank, which the kernel never sees.
 */
#include <errno.h>
#include <string.h>
#include <npulink/verify.h>
#include "run/comm.h"
#include "run/op.h"
#include "run/request.h"

/* It is done. */
void coll_self_end(struct coll_request *req, int status)
{
	req->op.status = status;
	atomic_store_explicit(&req->state, COLL_REQ_DONE, memory_order_release);
}

/* Meets the oldest counterpart, or waits for one. Lock held. */
void coll_self_start(struct coll_request *req)
{
	struct coll_comm *comm = req->op.comm;
	bool sends = req->op.args.send;
	struct coll_request *other, **list = sends ? &comm->self_recvs : &comm->self_sends;
	const struct coll_operation *from, *to;
	int rc = 0;

	other = *list;
	if (!other) {
		list = sends ? &comm->self_sends : &comm->self_recvs;
		while (*list)
			list = &(*list)->next;
		*list = req;
		req->next = NULL;
		atomic_store(&req->state, COLL_REQ_SELF);
		return;
	}
	*list = other->next;
	other->next = NULL;
	from = sends ? &req->op : &other->op;
	to = sends ? &other->op : &req->op;
	if (from->args.count != to->args.count || from->args.dtype != to->args.dtype)
		rc = -EPROTO;
	else if (coll_reg_touch(comm->dev, from->buf[NPULINK_SLOT_SEND]) == COLL_TOUCH_NEVER ||
		 coll_reg_touch(comm->dev, to->buf[NPULINK_SLOT_RECV]) == COLL_TOUCH_NEVER)
		rc = -EOPNOTSUPP;
	else if (from->args.count)
		memmove(to->buf[NPULINK_SLOT_RECV], from->buf[NPULINK_SLOT_SEND],
			from->args.count * npulink_dtype_size(from->args.dtype));
	coll_self_end(req, rc);
	coll_self_end(other, rc);
}

/* Takes one back that has no counterpart. Lock held. */
void coll_self_cancel(struct coll_request *req, int status)
{
	struct coll_comm *comm = req->op.comm;
	struct coll_request **list = req->op.args.send ? &comm->self_sends : &comm->self_recvs;

	while (*list != req)
		list = &(*list)->next;
	*list = req->next;
	req->next = NULL;
	coll_self_end(req, status);
}
