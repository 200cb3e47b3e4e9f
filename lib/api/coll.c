// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * coll.c - the collectives, each in its three forms.
 *
 * Every entry point writes down what was called and hands it to call(), which
 * lets the operation run (run/op.c), makes a request of it (run/request.c) or puts it into the
 * open group (group.c).
 */
#include <errno.h>
#include <string.h>
#include <npulink/verify.h>
#include "api/group.h"
#include "base/base.h"
#include "coll.h"
#include "run/comm.h"
#include "run/dev.h"
#include "run/error.h"
#include "run/group_kept.h"
#include "run/op.h"
#include "run/repeat.h"
#include "run/request.h"

enum form { BLOCKING, REQUEST, PERSISTENT };

#define SAME(coll, npulink) _Static_assert((int)(coll) == (int)(npulink), "coll.h has the kernel's")

SAME(COLL_INT8, NPULINK_INT8);
SAME(COLL_FLOAT16, NPULINK_FLOAT16);
SAME(COLL_FLOAT64, NPULINK_FLOAT64);
SAME(COLL_MAX, NPULINK_MAX);
SAME(COLL_AVG, NPULINK_CALL_AVG);
SAME(COLL_NO_RANK, NPULINK_NO_PEER);

size_t coll_dtype_size(enum coll_dtype dtype)
{
	return npulink_dtype_size(dtype);
}

/* ---- what was called */

/* One rank: the only shard, wherever it lies, is the whole of it. */
static void flatten(struct coll_operation *op)
{
	struct coll_args *a = &op->args;
	size_t size = npulink_dtype_size(a->dtype);
	const struct coll_kind *k = coll_kind(a->collective);
	const uint64_t *from = NULL, *to = NULL;

	if (!npulink_coll_is_v(a->collective))
		return;
	if (k->gives == NPULINK_PART_BLOCKS)
		from = a->displs;
	if (k->gets == NPULINK_PART_BLOCKS)
		to = coll_has_rcounts(a->collective) ? a->rdispls : a->displs;
	a->count = a->rcounts ? a->rcounts[0] : a->counts[0];
	if (from && op->buf[NPULINK_SLOT_SEND])
		op->buf[NPULINK_SLOT_SEND] = (char *)op->buf[NPULINK_SLOT_SEND] + from[0] * size;
	if (to && op->buf[NPULINK_SLOT_RECV])
		op->buf[NPULINK_SLOT_RECV] = (char *)op->buf[NPULINK_SLOT_RECV] + to[0] * size;
	a->counts = NULL;
	a->displs = NULL;
	a->rcounts = NULL;
	a->rdispls = NULL;
}

static bool is_self(const struct coll_args *a)
{
	return a->collective == NPULINK_COLL_P2P && a->peer == a->rank;
}

/* What is wrong with a call that no planner will see, because it needs no plan. */
static const char *check_local(const struct coll_operation *op)
{
	struct coll_args a = op->args;

	if (!is_self(&a))
		return coll_args_check(&a);
	if (a.count > NPULINK_MAX_LEN / npulink_dtype_size(a.dtype))
		return "too large";
	return a.count && !op->buf[!a.send] ? "the buffer is NULL" : NULL;
}

/*
 * With one rank nobody else is concerned, and there is nothing to wait for, unless only devices can
 * touch the buffers. Without the lock.
 */
static bool is_local(struct coll_comm *comm, const struct coll_args *args, const void *send,
		     const void *recv)
{
	return comm->nranks == 1 && args->collective != NPULINK_COLL_P2P &&
	       !coll_mem_on_device(comm->dev, send, recv);
}

/* An operation of what was called. */
static int prepare(struct coll_operation *op, struct coll_comm *comm,
		   const struct coll_args *args, const void *send, void *recv, bool local)
{
	const struct coll_args *a = &op->args;
	const char *bad = NULL;
	char what[128];

	*op = (struct coll_operation) {
		.comm = comm, .args = *args, .called = { send, recv }, .local = local,
	};
	op->args.nranks = comm->nranks;
	op->args.rank = comm->rank;

	/* The rest of the arguments is looked at when a plan is made, not in each call. */
	if (a->dtype >= NPULINK_DTYPES)
		bad = "no such data type";
	else if (a->root >= a->nranks)
		bad = "the root is not below the number of ranks";
	else if (a->peer >= a->nranks)
		bad = "the peer is not below the number of ranks";
	else
		coll_buffers_sort(op, send, recv);
	if (!bad && (op->buf[0] == COLL_IN_PLACE || op->buf[1] == COLL_IN_PLACE))
		bad = "COLL_IN_PLACE is not for this buffer, or not at this rank (see coll.h)";
	if (!bad && (is_self(a) || coll_op_is_local(op)))
		bad = check_local(op);
	if (bad) {
		coll_describe(a, what, sizeof(what));
		return coll_fail(op->comm, -EINVAL, "%s: %s", what, bad);
	}
	if (coll_op_is_local(op))
		flatten(op);
	return 0;
}

/* ---- the three forms */

static int plan_locked(struct coll_operation *op)
{
	return is_self(&op->args) || coll_op_is_local(op) ? 0 : coll_op_plan(op);
}

/* A call that is not waited for here: a request, or one that joins the group. */
static int call_later(struct coll_comm *comm, const struct coll_args *args, const void *send,
		      void *recv, enum form form, struct coll_request **request)
{
	bool grouped = form != PERSISTENT && coll_group_mine(comm);
	bool local = is_local(comm, args, send, recv);
	struct coll_request *req;
	char what[128];
	int rc;

	if (form != BLOCKING && !request) {
		coll_describe(args, what, sizeof(what));
		rc = coll_fail(comm, -EINVAL, "%s: the request pointer is NULL", what);
		return grouped ? coll_group_refuse(comm, rc) : rc;
	}
	pthread_mutex_lock(&comm->dev->lock);
	req = coll_request_get(comm->dev);
	if (!req) {
		rc = coll_fail(comm, -ENOMEM, "out of memory");
	} else {
		req->persistent = form == PERSISTENT;
		req->blocking = form == BLOCKING;
		rc = prepare(&req->op, comm, args, send, recv, local);
		if (!rc)
			rc = plan_locked(&req->op);
		if (rc)
			coll_request_put(req);
	}
	pthread_mutex_unlock(&comm->dev->lock);
	if (rc)
		return grouped ? coll_group_refuse(comm, rc) : rc;
	if (grouped)
		rc = coll_group_add(comm, req);
	else if (form == REQUEST)
		rc = coll_request_start(req);
	if (rc) {
		pthread_mutex_lock(&comm->dev->lock);
		coll_request_put(req);
		pthread_mutex_unlock(&comm->dev->lock);
	} else if (request) {
		*request = req;
	}
	return rc;
}

/* Blocking, to or from the own rank: works if the counterpart is there already. */
static int call_self(struct coll_operation *op, const struct coll_args *args)
{
	struct coll_comm *comm = op->comm;
	struct coll_dev *dev = comm->dev;
	struct coll_request *req;
	int rc = call_later(comm, args, op->called[0], (void *)op->called[1], REQUEST, &req);

	if (rc)
		return rc;
	pthread_mutex_lock(&dev->lock);
	if (req->state == COLL_REQ_SELF)
		coll_self_cancel(req, -EDEADLK);
	rc = req->op.status;
	coll_request_put(req);
	pthread_mutex_unlock(&dev->lock);
	if (rc == -EDEADLK)
		return coll_fail(comm, rc,
				 "a %s the own rank would wait for ever: put both into a group, or use a request for the first",
				 args->send ? "send to" : "receive from");
	return rc ? coll_fail_op(op, rc) : 0;
}

/* Out of the way of call(), which would have to clear that much stack. */
static __attribute__((noinline)) int call_now(struct coll_comm *comm,
					      const struct coll_args *args, const void *send,
					      void *recv)
{
	struct coll_operation op;
	int rc = prepare(&op, comm, args, send, recv, is_local(comm, args, send, recv));

	if (rc)
		return rc;
	if (coll_op_is_local(&op))
		return coll_op_local(&op);
	if (is_self(&op.args))
		return call_self(&op, args);
	return coll_op_run(&op);
}

/* Nor is this in the way: with it, gcc would not make call() part of its callers. */
static __attribute__((noinline)) int call_grouped(struct coll_group *group,
						  const struct coll_args *args, const void *send,
						  void *recv)
{
	return coll_group_again(group, args, send, recv) ? 0 :
	       call_later(group->comm, args, send, recv, BLOCKING, NULL);
}

static COLL_HOT int call(struct coll_comm *comm, const struct coll_args *args,
			 const void *send, void *recv, enum form form,
			 struct coll_request **request)
{
	struct coll_repeat *repeat;
	struct coll_group *group;
	int rc;

	if (request)
		*request = NULL;
	rc = coll_comm_enter(comm);
	if (rc)
		return rc;
	if (form != BLOCKING)
		return call_later(comm, args, send, recv, form, request);
	group = coll_group_mine(comm);
	if (group)
		return call_grouped(group, args, send, recv);
	repeat = coll_repeat_get(comm, args, send, recv);
	return repeat ? coll_op_run_again(repeat) : call_now(comm, args, send, recv);
}

/*
 * The entry points. UNPACK strips the parentheses of a parameter list; the
 * arguments of ARGS are members of struct coll_args.
 */
#define UNPACK(...)	__VA_ARGS__
#define ARGS(...)	(&(const struct coll_args) { __VA_ARGS__ })

#define THREE_FORMS(name, iname, params, args, send, recv)				\
	COLL_HOT int coll_##name(struct coll_comm *comm, UNPACK params)			\
	{										\
		return call(comm, args, send, recv, BLOCKING, NULL);			\
	}										\
	int coll_##iname(struct coll_comm *comm, UNPACK params,				\
			 struct coll_request **request)					\
	{										\
		return call(comm, args, send, recv, REQUEST, request);			\
	}										\
	int coll_##name##_init(struct coll_comm *comm, UNPACK params,			\
			       struct coll_request **request)				\
	{										\
		return call(comm, args, send, recv, PERSISTENT, request);		\
	}

THREE_FORMS(allreduce, iallreduce,
	    (const void *send, void *recv, size_t count, enum coll_dtype dtype, enum coll_op op),
	    ARGS(.collective = NPULINK_COLL_ALLREDUCE, .count = count, .dtype = dtype,
		 .redop = op), send, recv)

THREE_FORMS(reduce, ireduce,
	    (const void *send, void *recv, size_t count, enum coll_dtype dtype, enum coll_op op,
	     unsigned int root),
	    ARGS(.collective = NPULINK_COLL_REDUCE, .count = count, .dtype = dtype, .redop = op,
		 .root = root), send, recv)

THREE_FORMS(broadcast, ibroadcast,
	    (const void *send, void *recv, size_t count, enum coll_dtype dtype,
	     unsigned int root),
	    ARGS(.collective = NPULINK_COLL_BROADCAST, .count = count, .dtype = dtype,
		 .root = root), send, recv)

THREE_FORMS(scatter, iscatter,
	    (const void *send, void *recv, size_t count, enum coll_dtype dtype,
	     unsigned int root),
	    ARGS(.collective = NPULINK_COLL_SCATTER, .count = count, .dtype = dtype,
		 .root = root), send, recv)

THREE_FORMS(scatterv, iscatterv,
	    (const void *send, void *recv, const size_t *counts, const size_t *displs,
	     enum coll_dtype dtype, unsigned int root),
	    ARGS(.collective = NPULINK_COLL_SCATTERV, .counts = counts, .displs = displs,
		 .dtype = dtype, .root = root), send, recv)

THREE_FORMS(gather, igather,
	    (const void *send, void *recv, size_t count, enum coll_dtype dtype,
	     unsigned int root),
	    ARGS(.collective = NPULINK_COLL_GATHER, .count = count, .dtype = dtype,
		 .root = root), send, recv)

THREE_FORMS(gatherv, igatherv,
	    (const void *send, void *recv, const size_t *counts, const size_t *displs,
	     enum coll_dtype dtype, unsigned int root),
	    ARGS(.collective = NPULINK_COLL_GATHERV, .counts = counts, .displs = displs,
		 .dtype = dtype, .root = root), send, recv)

THREE_FORMS(allgather, iallgather,
	    (const void *send, void *recv, size_t count, enum coll_dtype dtype),
	    ARGS(.collective = NPULINK_COLL_ALLGATHER, .count = count, .dtype = dtype), send, recv)

THREE_FORMS(allgatherv, iallgatherv,
	    (const void *send, void *recv, const size_t *counts, const size_t *displs,
	     enum coll_dtype dtype),
	    ARGS(.collective = NPULINK_COLL_ALLGATHERV, .counts = counts, .displs = displs,
		 .dtype = dtype), send, recv)

THREE_FORMS(reduce_scatter, ireduce_scatter,
	    (const void *send, void *recv, size_t count, enum coll_dtype dtype, enum coll_op op),
	    ARGS(.collective = NPULINK_COLL_REDUCE_SCATTER, .count = count, .dtype = dtype,
		 .redop = op), send, recv)

THREE_FORMS(reduce_scatterv, ireduce_scatterv,
	    (const void *send, void *recv, const size_t *counts, const size_t *displs,
	     enum coll_dtype dtype, enum coll_op op),
	    ARGS(.collective = NPULINK_COLL_REDUCE_SCATTERV, .counts = counts,
		 .displs = displs, .dtype = dtype, .redop = op), send, recv)

THREE_FORMS(alltoall, ialltoall,
	    (const void *send, void *recv, size_t count, enum coll_dtype dtype),
	    ARGS(.collective = NPULINK_COLL_ALLTOALL, .count = count, .dtype = dtype), send, recv)

THREE_FORMS(alltoallv, ialltoallv,
	    (const void *send, const size_t *scounts, const size_t *sdispls, void *recv,
	     const size_t *rcounts, const size_t *rdispls, enum coll_dtype dtype),
	    ARGS(.collective = NPULINK_COLL_ALLTOALLV,
		 .counts = send == COLL_IN_PLACE ? NULL : scounts,
		 .displs = send == COLL_IN_PLACE ? NULL : sdispls,
		 .rcounts = rcounts, .rdispls = rdispls, .dtype = dtype), send, recv)

THREE_FORMS(send, isend,
	    (const void *buf, size_t count, enum coll_dtype dtype, unsigned int peer),
	    ARGS(.collective = NPULINK_COLL_P2P, .count = count, .dtype = dtype, .peer = peer,
		 .send = true), buf, NULL)

THREE_FORMS(recv, irecv,
	    (void *buf, size_t count, enum coll_dtype dtype, unsigned int peer),
	    ARGS(.collective = NPULINK_COLL_P2P, .count = count, .dtype = dtype, .peer = peer),
	    NULL, buf)

static const struct coll_args barrier = { .collective = NPULINK_COLL_BARRIER };

int coll_barrier(struct coll_comm *comm)
{
	return call(comm, &barrier, NULL, NULL, BLOCKING, NULL);
}

int coll_ibarrier(struct coll_comm *comm, struct coll_request **request)
{
	return call(comm, &barrier, NULL, NULL, REQUEST, request);
}

int coll_barrier_init(struct coll_comm *comm, struct coll_request **request)
{
	return call(comm, &barrier, NULL, NULL, PERSISTENT, request);
}
