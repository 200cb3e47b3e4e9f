/* SPDX-License-Identifier: GPL-2.0 */
/*
 * trace.h - tracepoints, for perf, bpftrace and tracefs. Names and members are meant
 * to stay; tools/examples/ has scripts that use them.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM npulink

#if !defined(NPULINK_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define NPULINK_TRACE_H

#include <linux/tracepoint.h>
#include <npulink/collectives.h>
#include "run/board.h"
#include "run/op.h"

/* The value and its names become arguments before __print_symbolic() is looked at. */
#define NPULINK_SHOW_ROW(id, name, ...) , { NPULINK_COLL_##id, name }
#define npulink_show_symbolic(args...) __print_symbolic(args)
#define npulink_show_collective(collective) \
	npulink_show_symbolic(collective NPULINK_COLLECTIVES(NPULINK_SHOW_ROW))

#define npulink_show_cause(cause) \
	__print_symbolic(cause, \
			 { NPULINK_CAUSE_ABORT, "abort" }, \
			 { NPULINK_CAUSE_DEADLINE, "deadline" }, \
			 { NPULINK_CAUSE_DEATH, "death" }, \
			 { NPULINK_CAUSE_LEFT, "left" }, \
			 { NPULINK_CAUSE_MISMATCH, "mismatch" }, \
			 { NPULINK_CAUSE_LINK, "link" }, \
			 { NPULINK_CAUSE_DEVICE, "device" }, \
			 { NPULINK_CAUSE_CHECKSUM, "checksum" }, \
			 { NPULINK_CAUSE_DEADLOCK, "deadlock" }, \
			 { NPULINK_CAUSE_REMOVED, "removed" })

/* A rank has posted an operation; it is about to start. */
TRACE_EVENT_FN(npulink_post,
	TP_PROTO(const struct npulink_op *op),
	TP_ARGS(op),
	TP_STRUCT__entry(
		__field(u32, comm)
		__field(u32, rank)
		__field(u64, number)
		__field(u64, count)
		__field(u32, collective)
		__field(u32, dtype)
		__field(u32, nsteps)
		__array(char, algorithm, NPULINK_ALGORITHM_LEN)
	),
	TP_fast_assign(
		__entry->comm = op->rank->comm->serial;
		__entry->rank = op->rank->rank;
		__entry->number = npulink_told(op->number);
		__entry->count = op->plan->call.count;
		__entry->collective = op->plan->call.collective;
		__entry->dtype = op->plan->call.dtype;
		__entry->nsteps = op->plan->nsteps;
		memcpy(__entry->algorithm, op->plan->algorithm, NPULINK_ALGORITHM_LEN);
	),
	TP_printk("comm=%u rank=%u number=%lld %s count=%llu dtype=%u algorithm=%s nsteps=%u",
		  __entry->comm, __entry->rank, __entry->number,
		  npulink_show_collective(__entry->collective), __entry->count, __entry->dtype,
		  __entry->algorithm, __entry->nsteps),

	npulink_trace_begin, npulink_trace_end
);

/* A step's bytes, or a slice of them, go to the engine. */
TRACE_EVENT_FN(npulink_issue,
	TP_PROTO(const struct npulink_req *req),
	TP_ARGS(req),
	TP_STRUCT__entry(
		__field(u32, comm)
		__field(u32, rank)
		__field(u64, number)
		__field(u64, bytes)
		__field(u32, step)
		__field(u32, recv_peer)
		__field(u16, nsrc)
		__field(bool, small)
	),
	TP_fast_assign(
		__entry->comm = req->core.op->rank->comm->serial;
		__entry->rank = req->core.op->rank->rank;
		__entry->number = npulink_told(req->core.op->number);
		__entry->bytes = req->len;
		__entry->step = req->step;
		__entry->recv_peer = req->core.op->plan->steps[req->step].recv_peer;
		__entry->nsrc = req->nsrc;
		__entry->small = req->small;
	),
	TP_printk("comm=%u rank=%u number=%lld step=%u bytes=%llu from=%d nsrc=%u small=%d",
		  __entry->comm, __entry->rank, __entry->number, __entry->step, __entry->bytes,
		  (int)__entry->recv_peer, __entry->nsrc, __entry->small),

	npulink_trace_begin, npulink_trace_end
);

/* A step, or a chain of steps, is done. Times are 0 without flight recorder. */
TRACE_EVENT_FN(npulink_step,
	TP_PROTO(const struct npulink_op *op, u32 unit),
	TP_ARGS(op, unit),
	TP_STRUCT__entry(
		__field(u32, comm)
		__field(u32, rank)
		__field(u64, number)
		__field(u64, bytes)
		__field(u64, wait)
		__field(u64, queue)
		__field(u64, engine)
		__field(u64, take)
		__field(u32, step)
		__field(u32, recv_peer)
		__field(u32, send_peer)
	),
	TP_fast_assign(
		const struct npulink_unit *un = &op->plan->units[unit];
		const struct npulink_unit_state *us = &op->units[unit];
		const struct npulink_step *st = &op->plan->steps[un->first];
		bool timed = op->rank->flight;

		__entry->comm = op->rank->comm->serial;
		__entry->rank = op->rank->rank;
		__entry->number = npulink_told(op->number);
		__entry->bytes = st->len;
		__entry->wait = timed ? us->wait : 0;
		__entry->queue = timed ? us->queue : 0;
		__entry->engine = timed ? us->engine : 0;
		__entry->take = timed ? us->mark - us->start - us->wait - us->queue -
					us->engine : 0;
		__entry->step = un->first;
		__entry->recv_peer = st->recv_peer;
		__entry->send_peer = st[un->nsteps - 1].send_peer;
	),
	TP_printk("comm=%u rank=%u number=%lld step=%u bytes=%llu from=%d to=%d wait=%llu queue=%llu engine=%llu take=%llu",
		  __entry->comm, __entry->rank, __entry->number, __entry->step, __entry->bytes,
		  (int)__entry->recv_peer, (int)__entry->send_peer, __entry->wait,
		  __entry->queue, __entry->engine, __entry->take),

	npulink_trace_begin, npulink_trace_end
);

/* An operation is over, well or not. */
TRACE_EVENT_FN(npulink_done,
	TP_PROTO(const struct npulink_op *op),
	TP_ARGS(op),
	TP_STRUCT__entry(
		__field(u32, comm)
		__field(u32, rank)
		__field(u64, number)
		__field(u64, count)
		__field(u64, ns)
		__field(u64, wait)
		__field(u64, queue)
		__field(u64, engine)
		__field(u64, take)
		__field(u32, collective)
		__field(u32, dtype)
		__field(int, status)
		__array(char, algorithm, NPULINK_ALGORITHM_LEN)
	),
	TP_fast_assign(
		__entry->comm = op->rank->comm->serial;
		__entry->rank = op->rank->rank;
		__entry->number = npulink_told(op->number);
		__entry->count = op->plan->call.count;
		__entry->ns = op->result.ns;
		__entry->wait = op->wait_ns;
		__entry->queue = op->queue_ns;
		__entry->engine = op->engine_ns;
		__entry->take = op->take_ns;
		__entry->collective = op->plan->call.collective;
		__entry->dtype = op->plan->call.dtype;
		__entry->status = op->result.status;
		memcpy(__entry->algorithm, op->plan->algorithm, NPULINK_ALGORITHM_LEN);
	),
	TP_printk("comm=%u rank=%u number=%lld %s count=%llu dtype=%u algorithm=%s status=%d ns=%llu wait=%llu queue=%llu engine=%llu take=%llu",
		  __entry->comm, __entry->rank, __entry->number,
		  npulink_show_collective(__entry->collective), __entry->count, __entry->dtype,
		  __entry->algorithm, __entry->status, __entry->ns, __entry->wait,
		  __entry->queue, __entry->engine, __entry->take),

	npulink_trace_begin, npulink_trace_end
);

/* A communicator has failed, for this first cause. */
TRACE_EVENT(npulink_abort,
	TP_PROTO(const struct npulink_comm *comm, const struct npulink_cause *cause),
	TP_ARGS(comm, cause),
	TP_STRUCT__entry(
		__field(u32, comm)
		__field(u32, cause)
		__field(u32, rank)
		__field(u32, peer)
		__field(u32, step)
		__field(u32, code)
		__field(u64, number)
	),
	TP_fast_assign(
		__entry->comm = comm->serial;
		__entry->cause = cause->cause;
		__entry->rank = cause->rank;
		__entry->peer = cause->peer;
		__entry->step = cause->step;
		__entry->code = cause->code;
		__entry->number = cause->number;
	),
	TP_printk("comm=%u %s rank=%u peer=%d number=%lld step=%d code=%u", __entry->comm,
		  npulink_show_cause(__entry->cause), __entry->rank, (int)__entry->peer,
		  __entry->number, (int)__entry->step, __entry->code)
);

/* A link is there (up), has failed (down), or has gone with one of its devices. */
TRACE_EVENT(npulink_link,
	TP_PROTO(const struct npulink_link *link, const char *what),
	TP_ARGS(link, what),
	TP_STRUCT__entry(
		__field(u32, dev)
		__field(u32, peer)
		__field(u64, bytes)
		__array(char, what, 8)
	),
	TP_fast_assign(
		__entry->dev = link->dev->id;
		__entry->peer = link->peer->id;
		__entry->bytes = atomic64_read(&link->stats.bytes);
		strscpy(__entry->what, what, sizeof(__entry->what));
	),
	TP_printk("npu%u -> npu%u %s bytes=%llu", __entry->dev, __entry->peer, __entry->what,
		  __entry->bytes)
);

#endif /* NPULINK_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH observe
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
