// SPDX-License-Identifier: GPL-2.0
/*
 * seq.c - the sequencer: runs the steps of operations, whoever completes what.
 *
 * All state of a rank's operations changes under rank->lock, which those who run the
 * rank (run.c) hold when they call what is here. What concerns another rank goes as an
 * event into that rank's inbox.
 */
#include "base/number.h"
#include "comm/comm.h"
#include "device/device_core.h"
#include "file/buf.h"
#include "file/file.h"
#include "file/mapping.h"
#include "observe/trace.h"
#include "plan/plan.h"
#include "run/checksum.h"
#include "run/event.h"
#include "run/flight_record.h"
#include "run/op.h"
#include "run/run.h"
#include "run/seq.h"

#define NONE	0xffffffffU

/* ---- bells ------------------------------------------------------------------ */

static void npulink_link_failed(struct npulink_op *op, struct npulink_link *link, u32 peer,
				u32 step)
{
	struct npulink_cause cause = {
		.cause = NPULINK_CAUSE_LINK, .rank = op->rank->rank, .peer = peer,
		.step = step, .number = npulink_told(op->number),
	};

	npulink_link_set_lost(link, true);
	npulink_comm_fail(op->rank->comm, &cause);
}

/* Tell @peer_op that its @step has something to look at. */
static void npulink_bell(struct npulink_op *op, u32 stream, u32 step, bool credit, u64 bytes,
			 struct npulink_run *run)
{
	const struct npulink_stream *s = &op->plan->streams[stream];
	struct npulink_conn *conn = op->plan->peers[s->peer].conn;
	struct npulink_op *peer_op = op->streams[stream].peer;
	struct npulink_link *link = conn->link;
	int (*ring)(struct npulink_link *link, struct npulink_event *ev, u64 bytes);
	struct npulink_event *ev;
	int rc = 0;

	if (!peer_op)
		return;	/* it will look when it is posted */
	if (peer_op->is_mirror) {
		npulink_remote_ops->bell(op, step, credit, run);
		return;
	}
	ev = &peer_op->cells[step].ev;
	if (atomic_xchg(&ev->pending, 1))
		return;	/* has not looked yet at the last one */
	npulink_op_get(peer_op);
	/* If its device is going, so is the operation. */
	if (likely(!READ_ONCE(link->down))) {
		ring = credit ? link->ops->credit : link->ops->publish;
		if (ring)
			rc = ring(link, ev, bytes);
	}
	if (likely(!rc)) {
		npulink_deliver(ev, peer_op, run);
	} else if (rc != -EINPROGRESS) {
		const struct npulink_step_pos *pos = &peer_op->plan->pos[step];
		u32 k = credit ? pos->send_pos : pos->recv_pos;

		atomic_set(&ev->pending, 0);
		npulink_link_failed(op, link, conn->rank, op->plan->stream_steps[s->start + k]);
		npulink_op_put(peer_op);
	}
}

/* ---- requests -------------------------------------------------------------- */

static void npulink_req_put_bufs(struct npulink_req *req)
{
	u32 i;

	if (unlikely(req->core.check) && npulink_check_put_bufs(req))
		return;
	for (i = 0; i < req->nsrc; i++)
		npulink_operand_put(&req->src[i]);
}

void npulink_req_free(struct npulink_req *req)
{
	struct npulink_op *op = req->core.op;

	npulink_req_put_bufs(req);
	npulink_req_give(op, req);
	op->inflight--;
}

/* The operation has its buffers until nothing of it is in flight any more. */
static void npulink_operand_own(const struct npulink_op *op, struct npulink_operand *o, u8 slot,
				u64 off)
{
	o->buf = op->binds[slot].buf;
	o->off = op->binds[slot].off + off;
	o->held = false;
}

/*
 * What the sender of what @step receives offers, as the next input of @req. The sender's
 * operation may be failing and let go of its buffers meanwhile: then there is nothing to do any
 * more, the abort is on its way to us.
 */
static bool npulink_operand_peer(struct npulink_op *op, struct npulink_req *req, u32 step,
				 u64 done)
{
	const struct npulink_step_pos *pos = &op->plan->pos[step];
	struct npulink_op *peer = op->streams[pos->recv_stream].peer;
	struct npulink_operand *o = &req->src[req->nsrc];
	const struct npulink_step *st;
	struct npulink_link *link;
	struct npulink_buf *buf;
	u64 off = done;
	u8 slot;

	if (peer->is_mirror)
		return npulink_remote_ops->operand(op, step, done, o);
	st = &peer->plan->steps[npulink_peer_step(op, pos->recv_stream, pos->recv_pos)];
	/* A sender offers its dst, or src if it only sends. */
	if (st->op == NPULINK_STEP_SEND) {
		slot = st->src_slot;
		off += st->src_off;
	} else {
		slot = st->dst_slot;
		if (st->flags & NPULINK_STEP_F_TRANSIENT && st->src2_off)
			off = done % st->src2_off;
		off += st->dst_off;
	}
	rcu_read_lock();
	buf = READ_ONCE(peer->binds[slot].buf);
	o->held = buf && npulink_buf_tryget(buf);
	rcu_read_unlock();
	if (!o->held)
		return false;
	o->buf = buf;
	o->off = peer->binds[slot].off + off;
	link = op->plan->peers[op->plan->streams[pos->recv_stream].peer].conn->back;
	if (!req->link) {
		req->remote = req->nsrc;
		req->link = link;
	}
	if (unlikely(req->core.check))
		npulink_check_input(req, req->nsrc, link, step);
	return true;
}

/* Which inputs of @req, of a unit whose steps begin at @st, are scaled. */
static noinline void npulink_req_scale(struct npulink_req *req, const struct npulink_unit *un,
				       const struct npulink_step *st)
{
	u32 i, n = 0;

	req->rest = st[un->nsteps - 1].flags & NPULINK_STEP_F_REST;
	if (st->op & (NPULINK_STEP_REDUCE | NPULINK_STEP_COPY))
		req->src[n++].scaled = st->flags & NPULINK_STEP_F_SCALE;
	for (i = 0; i < un->nsteps && n < req->nsrc; i++)
		req->src[n++].scaled = st[i].flags & NPULINK_STEP_F_SCALE2;
}

/* Describe bytes [done, done + n) of a unit as one request; see npulink_operand_peer(). */
static bool npulink_req_fill(struct npulink_op *op, struct npulink_req *req, u32 unit, u64 n)
{
	const struct npulink_unit *un = &op->plan->units[unit];
	const struct npulink_step *st = &op->plan->steps[un->first];
	const struct npulink_step *last = st + un->nsteps - 1;
	u64 done = op->units[unit].done;
	u64 dst_off = done;
	u32 i;

	if (unlikely(req->core.check))
		npulink_check_reset(req);
	req->nsrc = 0;
	req->remote = NPULINK_CHAIN_MAX + 1;
	req->link = NULL;
	req->len = n;
	req->cancelled = false;
	req->dtype = last->dtype;
	req->redop = last->redop;
	req->scale = un->scale;
	req->div = last->flags & NPULINK_STEP_F_DIV ? op->rank->comm->nranks : 0;
	req->step = un->first;
	req->core.unit = unit;
	if (last->flags & NPULINK_STEP_F_TRANSIENT && last->src2_off)
		dst_off = done % last->src2_off;
	npulink_operand_own(op, &req->dst, last->dst_slot, last->dst_off + dst_off);
	/* A chained step's src is the dst of the one before. */
	if (st->op & (NPULINK_STEP_REDUCE | NPULINK_STEP_COPY))
		npulink_operand_own(op, &req->src[req->nsrc++], st->src_slot, st->src_off + done);
	for (i = 0; i < un->nsteps; i++, st++) {
		if (st->op & NPULINK_STEP_RECV) {
			if (!npulink_operand_peer(op, req, un->first + i, done)) {
				npulink_req_put_bufs(req);
				return false;
			}
			req->nsrc++;
		} else if (st->op & NPULINK_STEP_REDUCE) {
			npulink_operand_own(op, &req->src[req->nsrc++], st->src2_slot,
					    st->src2_off + done);
		}
	}
	if (unlikely(un->scale))
		npulink_req_scale(req, un, st - un->nsteps);
	return true;
}

/* Leave a request to a task of its file. */
void npulink_req_ready(struct npulink_req *req, const struct npulink_run *run)
{
	struct npulink_file *file = req->core.op->rank->file;

	spin_lock(&file->lock);
	req->core.state = NPULINK_REQ_READY;
	list_add_tail(&req->core.node, &file->ready);
	npulink_file_wake_ready(file, run->waits == file);
	spin_unlock(&file->lock);
}

/* A request could not be carried out. */
static void npulink_req_failed(struct npulink_op *op, struct npulink_req *req, int status)
{
	struct npulink_cause cause = {
		.cause = NPULINK_CAUSE_DEVICE, .rank = op->rank->rank,
		.peer = NPULINK_NO_PEER, .step = req->step, .number = npulink_told(op->number),
		.code = -status,
	};

	if (unlikely(req->core.check))
		npulink_check_cause(req, &cause);
	npulink_comm_fail(op->rank->comm, &cause);
}

/*
 * Carry out bytes [done, done + n) of a unit here and now, if they are so few that a request of
 * its own would take longer than they do. Return: 0; -EAGAIN: it is not like that; other: it
 * failed.
 */
static __always_inline int npulink_unit_direct(struct npulink_op *op, u32 unit,
					       const struct npulink_unit *un,
					       struct npulink_unit_state *us, u64 n,
					       struct npulink_run *run)
{
	struct npulink_device *dev = op->rank->dev;
	/* It stays free. */
	struct npulink_req *req = op->free_req;
	int rc;

	/* That there is no more room ends this for a while: nothing else would. */
	if (n * (un->nsteps + 1) > min(READ_ONCE(dev->inline_max), NPULINK_DIRECT_BYTES) ||
	    run->budget <= 0 || run->room < 0 || !npulink_device_runs(dev) ||
	    unlikely(op->plan->check) || unlikely(!req) || !npulink_req_fill(op, req, unit, n))
		return -EAGAIN;
	req->dev = dev;
	req->nontemporal = false;
	req->small = true;
	trace_npulink_issue(req);
	npulink_flight_waited(op, us, run);
	rc = dev->ops->run(dev, req);
	if (un->recv)
		npulink_req_put_bufs(req);
	npulink_run_spent(run);
	run->room -= NPULINK_HOLD_DIRECT + un->nsteps;
	run->now = 0;
	us->since = jiffies;
	if (likely(!rc)) {
		npulink_flight_engine(op, us, run);
		op->bytes += n;
	} else if (rc != -EAGAIN) {
		us->phase = NPULINK_UNIT_BUSY;
		npulink_req_failed(op, req, rc);
	}
	return rc;
}

/* Put it on the device's ring, in whatever context this is. */
static void npulink_req_queue(struct npulink_req *req, struct npulink_run *run)
{
	struct npulink_op *op = req->core.op;
	int rc;

	req->core.start_ns = npulink_run_now(run);
	req->core.state = NPULINK_REQ_RUNNING;
	npulink_req_sync_for_device(req);
	rc = req->dev->ops->queue(req->dev, req);
	if (likely(rc == -EINPROGRESS))
		return;
	npulink_req_free(req);
	npulink_req_failed(op, req, rc);
}

/* Hand bytes [done, done + n) of a unit to the engine. */
static void npulink_unit_issue(struct npulink_op *op, u32 unit, u64 n, struct npulink_run *run)
{
	struct npulink_unit_state *us = &op->units[unit];
	struct npulink_device *dev = op->rank->dev;
	struct npulink_req *req;

	npulink_flight_waited(op, us, run);
	us->phase = NPULINK_UNIT_BUSY;
	us->since = jiffies;
	req = op->free_req;
	if (!req) {
		/* The next request that comes back goes on with it. */
		us->next = NONE;
		if (op->starved_first == NONE)
			op->starved_first = unit;
		else
			op->units[op->starved_last].next = unit;
		op->starved_last = unit;
		return;
	}
	if (!npulink_req_fill(op, req, unit, n)) {
		/* Nor will there be anything for the others to do. */
		op->starved_first = NONE;
		return;
	}
	op->free_req = req->core.next;
	op->inflight++;
	req->dev = dev;
	req->nontemporal = false;
	req->small = n * req->nsrc <= READ_ONCE(dev->inline_max);
	trace_npulink_issue(req);
	if (dev->ops->queue && likely(!req->core.check) && likely(npulink_req_mapped(req))) {
		npulink_req_queue(req, run);
	} else if (req->small && !dev->dma_dev) {
		req->core.state = NPULINK_REQ_TODO;
		list_add_tail(&req->core.node, &op->rank->todo);
		npulink_rank_kick(op->rank, run);
	} else {
		npulink_req_ready(req, run);
	}
}

/* ---- units ------------------------------------------------------------------ */

void npulink_unit_blocked_less(struct npulink_op *op, u32 unit)
{
	struct npulink_unit_state *us = &op->units[unit];

	if (--us->deps)
		return;
	us->next = op->starting;
	op->starting = unit;
}

/* Of a unit that is done, and that very many wait for, tell some of them. */
static noinline void npulink_unit_release(struct npulink_op *op, struct npulink_run *run)
{
	u32 unit = op->releasing;
	struct npulink_unit_state *us = &op->units[unit];
	const struct npulink_unit *un = &op->plan->units[unit];
	u32 n = min_t(u32, un[1].out - un->out - us->deps, NPULINK_HOLD_OUTS), i;

	for (i = 0; i < n; i++)
		npulink_unit_blocked_less(op, op->plan->out[un->out + us->deps++]);
	run->room -= n / NPULINK_HOLD_OUT;
	if (un->out + us->deps == un[1].out)
		op->releasing = us->next;
}

static __always_inline void npulink_unit_done(struct npulink_op *op, u32 unit,
					      const struct npulink_unit *un,
					      struct npulink_unit_state *us,
					      struct npulink_run *run)
{
	const struct npulink_plan *plan = op->plan;
	u32 i, end;

	if (op->rank->flight)
		npulink_flight_step(op, un, us, run);
	trace_npulink_step(op, unit);
	us->phase = NPULINK_UNIT_DONE;
	op->units_left--;
	i = un[0].out;
	end = un[1].out;
	if (unlikely(end - i > NPULINK_HOLD_OUT)) {
		/* npulink_op_advance(), which follows, does the rest. */
		us->next = op->releasing;
		op->releasing = unit;
		npulink_unit_release(op, run);
	} else {
		for (; i < end; i++)
			npulink_unit_blocked_less(op, plan->out[i]);
	}
	if (op->drain < plan->ndrains) {
		/* drain_left[d]: units from the drain before it up to this one. */
		if (un->drain < plan->ndrains)
			op->drain_left[un->drain]--;
		while (op->drain < plan->ndrains && !op->drain_left[op->drain])
			npulink_unit_blocked_less(op, plan->drains[op->drain++]);
	}
}

/* Does what @from sends suit what @to receives? */
static bool npulink_steps_fit(const struct npulink_step *to, const struct npulink_step *from,
			      u32 esize)
{
	return to->len == from->len &&
	       (!(from->flags & NPULINK_STEP_F_TRANSIENT) || !(from->src2_off % esize));
}

static noinline void npulink_misfit(struct npulink_op *op, struct npulink_op *peer, u32 step)
{
	struct npulink_cause cause = {
		.cause = NPULINK_CAUSE_MISMATCH, .rank = op->rank->rank,
		.peer = peer->rank->rank, .step = step, .number = npulink_told(op->number),
		.calls = { op->plan->call, peer->plan->call },
	};

	npulink_comm_fail(op->rank->comm, &cause);
}

/*
 * Has the peer of a unit's member @i offered bytes beyond those done? If so, lowers *n
 * to what of them lies in one piece.
 */
static bool npulink_member_arrived(struct npulink_op *op, u32 unit, u32 i, u64 *n)
{
	const struct npulink_unit *un = &op->plan->units[unit];
	const struct npulink_step *st = &op->plan->steps[un->first + i];
	const struct npulink_step_pos *pos = &op->plan->pos[un->first + i];
	u64 done = op->units[unit].done, avail;
	const struct npulink_step *from;
	struct npulink_op *peer;
	u32 ps;

	if (!(st->op & NPULINK_STEP_RECV))
		return true;
	peer = op->streams[pos->recv_stream].peer;
	if (!peer)
		return false;
	ps = npulink_peer_step(op, pos->recv_stream, pos->recv_pos);
	from = &peer->plan->steps[ps];
	if (unlikely(!npulink_steps_fit(st, from, un->esize))) {
		npulink_misfit(op, peer, un->first + i);
		return false;
	}
	/* Pairs with npulink_unit_publish(): the bytes are there. */
	avail = smp_load_acquire(&peer->cells[ps].avail);
	if (!avail || (st->len && avail - 1 == done))
		return false;
	*n = min(*n, avail - 1 - done);
	if (from->flags & NPULINK_STEP_F_TRANSIENT && from->src2_off)
		*n = min(*n, from->src2_off - done % from->src2_off);
	return true;
}

/* What of the next @n bytes all members' peers have offered, in one piece; -1: nothing yet. */
static noinline s64 npulink_unit_arrived(struct npulink_op *op, u32 unit, u64 n,
					 struct npulink_run *run)
{
	const struct npulink_unit *un = &op->plan->units[unit];
	struct npulink_unit_state *us = &op->units[unit];
	u32 seen = us->waits, i;

	/* Each member of a long chain is looked at when it rings, not at every bell. */
	us->missing = true;
	for (; us->waits < un->nsteps; us->waits++) {
		if (!npulink_member_arrived(op, unit, us->waits, &n))
			return -1;
		if (op->rank->flight)
			npulink_flight_arrived(op, unit, us->waits, run);
	}
	us->missing = false;
	us->waits = 0;
	for (i = 0; i < seen; i++)
		npulink_member_arrived(op, unit, i, &n);
	return n;
}

/* Bytes of a unit that could go through the engine now; -1: empty, and arrived. */
static __always_inline s64 npulink_unit_avail(struct npulink_op *op, u32 unit,
					      const struct npulink_unit *un,
					      struct npulink_unit_state *us, u32 step,
					      struct npulink_run *run)
{
	const struct npulink_step *last = &op->plan->steps[step];
	u64 len = last->len, done = us->done;
	s64 n = min_t(u64, len - done, op->rank->dev->slice);

	if (un->recv) {
		n = npulink_unit_arrived(op, unit, n, run);
		if (n < 0)
			return 0;
	}
	if (!len)
		return -1;
	if (last->flags & NPULINK_STEP_F_TRANSIENT && last->src2_off) {
		u64 window = last->src2_off;
		/* Pairs with npulink_unit_credit(): they may be overwritten. */
		u64 taken = min(smp_load_acquire(&op->cells[step].taken), len);

		n = min_t(u64, n, window - (done - taken));
		n = min_t(u64, n, window - done % window);
	}
	/* Elements are not divided; the rest comes with the next bytes. */
	return done + n == len ? n : rounddown(n, un->esize);
}

/*
 * The last n of the peers' bytes up to units[unit].done have been taken: count them, and
 * tell those who wait for it.
 */
static void npulink_unit_credit(struct npulink_op *op, u32 unit, u64 n, struct npulink_run *run)
{
	const struct npulink_unit *un = &op->plan->units[unit];
	const struct npulink_step *steps = &op->plan->steps[un->first];
	u64 done = op->units[unit].done, len = steps[0].len;
	u32 i;

	for (i = 0; i < un->nsteps; i++) {
		const struct npulink_step_pos *pos = &op->plan->pos[un->first + i];
		const struct npulink_op_stream *os = &op->streams[pos->recv_stream];
		struct npulink_conn *conn;
		struct npulink_op *peer;
		u32 from, ps;

		if (!(steps[i].op & NPULINK_STEP_RECV))
			continue;
		peer = os->peer;
		ps = npulink_peer_step(op, pos->recv_stream, pos->recv_pos);
		from = op->plan->streams[pos->recv_stream].peer;
		conn = op->plan->peers[from].conn;
		atomic64_add(n, &conn->bytes);
		atomic64_add(n, &conn->back->stats.bytes);
		if (done == len) {
			atomic64_inc(&conn->steps);
			atomic64_inc(&conn->back->stats.steps);
		}
		/* Our engine has read them: the peer may overwrite them. */
		smp_store_release(&peer->cells[ps].taken, done == len ? len + 1 : done);
		/* Before the end, only who sends through a window waits for credit. */
		if (done == len || peer->plan->steps[ps].flags & NPULINK_STEP_F_TRANSIENT)
			npulink_bell(op, pos->recv_stream, ps, true, done, run);
	}
}

/* Offer all up to @bytes of a unit that sends. */
static void npulink_unit_publish(struct npulink_op *op, u32 unit, u64 bytes,
				 struct npulink_run *run)
{
	const struct npulink_unit *un = &op->plan->units[unit];
	u32 step = un->first + un->nsteps - 1;
	const struct npulink_step_pos *pos = &op->plan->pos[step];
	struct npulink_op *peer = op->streams[pos->send_stream].peer;

	/* Our engine has written them: the peer may read them. */
	smp_store_release(&op->cells[step].avail, bytes + 1);
	if (peer) {
		u32 k = pos->send_pos;

		npulink_bell(op, pos->send_stream,
			     npulink_peer_step(op, pos->send_stream, k), false, bytes, run);
	}
}

/* The next @n bytes of a unit are where they belong. */
static __always_inline void npulink_unit_moved(struct npulink_op *op, u32 unit,
					       const struct npulink_unit *un,
					       struct npulink_unit_state *us, u64 n,
					       struct npulink_run *run)
{
	us->done += n;
	if (un->recv)
		npulink_unit_credit(op, unit, n, run);
	if (un->send)
		npulink_unit_publish(op, unit, us->done, run);
}

/* Go on with a unit as far as it goes without waiting. */
static void npulink_unit_advance(struct npulink_op *op, u32 unit, struct npulink_run *run)
{
	const struct npulink_unit *un = &op->plan->units[unit];
	struct npulink_unit_state *us = &op->units[unit];
	u32 step = un->first + un->nsteps - 1;
	u64 len = op->plan->steps[step].len;

	if (us->phase == NPULINK_UNIT_ACTIVE) {
		while (un->engine && (us->done < len || !len)) {
			s64 n = npulink_unit_avail(op, unit, un, us, step, run);

			if (n <= 0 && op->far)
				npulink_remote_ops->want(op, unit, run);
			if (!n)
				return;
			if (n > 0) {
				int rc = 0;

				if (!op->far || !npulink_remote_ops->landed(op, unit))
					rc = npulink_unit_direct(op, unit, un, us, n, run);
				if (!rc) {
					npulink_unit_moved(op, unit, un, us, n, run);
					continue;
				}
				if (rc == -EAGAIN)
					npulink_unit_issue(op, unit, n, run);
				return;
			}
			if (un->recv)
				npulink_unit_credit(op, unit, 0, run);
			break;
		}
		if (!un->send)
			goto done;
		npulink_flight_waited(op, us, run);
		us->phase = NPULINK_UNIT_SENT;
		us->since = jiffies;
		if (!un->engine || !len)
			npulink_unit_publish(op, unit, len, run);
	}
	/* Pairs with npulink_unit_credit(): they may be overwritten. */
	if (us->phase != NPULINK_UNIT_SENT || smp_load_acquire(&op->cells[step].taken) != len + 1)
		return;
done:
	npulink_unit_done(op, unit, un, us, run);
}

/* Whoever runs the rank goes on with it, when interrupts have been on in between. */
static noinline void npulink_op_postpone(struct npulink_op *op, struct npulink_run *run)
{
	if (list_empty(&op->resume_node)) {
		npulink_op_get(op);
		list_add_tail(&op->resume_node, &op->rank->resume);
	}
	npulink_rank_kick(op->rank, run);
}

/* All steps are done, but not what the engine, or a peer, has been asked for. */
static noinline void npulink_op_inconsistent(struct npulink_op *op)
{
	struct npulink_cause cause = {
		.cause = NPULINK_CAUSE_LINK, .rank = op->rank->rank, .peer = NPULINK_NO_PEER,
		.step = NONE, .number = npulink_told(op->number), .code = EPROTO,
	};

	npulink_comm_fail(op->rank->comm, &cause);
}

/* Start what has become startable, then see whether the operation is over. */
void npulink_op_advance(struct npulink_op *op, struct npulink_run *run)
{
	while (op->starting != NONE || unlikely(op->releasing != NONE)) {
		u32 unit = op->starting;

		if (unlikely(run->room < 0)) {
			npulink_op_postpone(op, run);
			return;
		}
		if (unlikely(unit == NONE)) {
			npulink_unit_release(op, run);
			continue;
		}
		run->room -= op->plan->units[unit].nsteps;
		op->starting = op->units[unit].next;
		op->units[unit].phase = NPULINK_UNIT_ACTIVE;
		npulink_flight_start(op, &op->units[unit], run);
		op->units[unit].since = jiffies;
		npulink_unit_advance(op, unit, run);
	}
	if (op->units_left)
		return;
	/* It has to be given back first, by the failure; only a peer that lies does that. */
	if (unlikely(op->inflight))
		npulink_op_inconsistent(op);
	else
		npulink_op_finish(op, run);
}

void npulink_req_complete(struct npulink_req *req, int status, struct npulink_run *run)
{
	struct npulink_op *op = req->core.op;
	struct npulink_unit_state *us = &op->units[req->core.unit];
	u32 unit = req->core.unit;
	u64 n = req->len;

	lockdep_assert_held(&op->rank->lock);
	if (unlikely(req->core.check) && !status && op->state == NPULINK_OP_RUNNING &&
	    npulink_check_landed(req)) {
		npulink_req_ready(req, run);
		return;
	}
	if (op->rank->flight)
		npulink_flight_worked(op, req, run);
	npulink_req_free(req);
	if (op->state == NPULINK_OP_FAILING) {
		if (!op->inflight)
			npulink_op_finish(op, run);
		return;
	}
	if (unlikely(status)) {
		npulink_req_failed(op, req, status);
		return;
	}
	op->bytes += n;
	us->phase = NPULINK_UNIT_ACTIVE;
	us->since = jiffies;
	npulink_unit_moved(op, unit, &op->plan->units[unit], us, n, run);
	npulink_unit_advance(op, unit, run);
	while (op->starved_first != NONE && op->free_req) {
		unit = op->starved_first;
		op->starved_first = op->units[unit].next;
		npulink_flight_queued(op, &op->units[unit], run);
		op->units[unit].phase = NPULINK_UNIT_ACTIVE;
		npulink_unit_advance(op, unit, run);
	}
	npulink_op_advance(op, run);
}

void npulink_event_handle(struct npulink_event *ev, struct npulink_run *run)
{
	struct npulink_op *op = npulink_event_op(ev);

	if (ev->kind == NPULINK_EV_REQ) {
		struct npulink_req *req = container_of(ev, struct npulink_req, ev);

		npulink_req_complete(req, req->core.status, run);
		return;
	}
	/* From here on whoever has more for us rings again. */
	atomic_xchg(&ev->pending, 0);
	if (op->state == NPULINK_OP_RUNNING) {
		u32 unit = op->plan->pos[ev->kind].unit;
		const struct npulink_unit *un = &op->plan->units[unit];
		const struct npulink_unit_state *us = &op->units[unit];

		if (us->phase != NPULINK_UNIT_ACTIVE && us->phase != NPULINK_UNIT_SENT)
			return;
		if (us->phase == NPULINK_UNIT_ACTIVE && us->missing &&
		    ev->kind != un->first + us->waits) {
			/* It may be what a remote peer's data had to wait for. */
			if (op->far)
				npulink_remote_ops->want_next(op, unit, run);
			return;
		}
		npulink_unit_advance(op, unit, run);
		npulink_op_advance(op, run);
	}
}
