// SPDX-License-Identifier: GPL-2.0
/*
 * remote.c - connections to ranks on other machines: their life, the mirror that plays
 * their part to the sequencer, and what goes to whom of what comes in. See remote.h, and
 * npulink/wire.h for what is said.
 */
#include <linux/net.h>
#include "remote.h"

#define NPULINK_TICK_MS		250

static void npulink_remote_tick(struct work_struct *work);

/* ---- small things --------------------------------------------------------------- */

/* The only place that changes remote->state. */
static void npulink_remote_set_state(struct npulink_remote *remote, u8 state)
{
	bool ok = false;

	lockdep_assert_held(&remote->rank->lock);
	switch (state) {
	case NPULINK_REMOTE_NEW:
		break;
	case NPULINK_REMOTE_CONNECTING:
		ok = remote->state == NPULINK_REMOTE_NEW;
		break;
	case NPULINK_REMOTE_UP:
		ok = remote->state == NPULINK_REMOTE_CONNECTING;
		break;
	case NPULINK_REMOTE_LEFT:
		ok = remote->state == NPULINK_REMOTE_UP;
		break;
	case NPULINK_REMOTE_DOWN:
		ok = true;
		break;
	}
	WARN_ON_ONCE(!ok);
	remote->state = state;
}

/* The connection over which step @step of @op is received, or sent. */
struct npulink_remote *npulink_remote_of(const struct npulink_op *op, u32 step, bool send)
{
	const struct npulink_step_pos *pos = &op->plan->pos[step];
	u32 stream = send ? pos->send_stream : pos->recv_stream;

	return op->plan->peers[op->plan->streams[stream].peer].conn->remote;
}

/* Have the sequencer look at a step. */
void npulink_remote_ring(struct npulink_remote_step *rs, struct npulink_run *run)
{
	struct npulink_event *ev = &rs->op->cells[rs->step].ev;

	/* Without @run, the operation has not started yet: it will look. */
	if (!run || atomic_xchg(&ev->pending, 1))
		return;
	npulink_op_get(rs->op);
	npulink_deliver(ev, rs->op, run);
}

/* Something of @op that went on elsewhere has ended. */
void npulink_remote_op_less(struct npulink_op *op, struct npulink_run *run)
{
	lockdep_assert_held(&op->rank->lock);
	op->inflight--;
	if (op->state == NPULINK_OP_FAILING && !op->inflight)
		npulink_op_finish(op, run);
}

static void npulink_remote_fail(struct npulink_remote *remote, u32 code)
{
	struct npulink_cause cause = {
		.cause = NPULINK_CAUSE_LINK, .rank = remote->rank->rank,
		.peer = remote->conn->rank, .step = ~0U, .number = ~0ULL, .code = code,
	};
	struct npulink_op *op;

	/* Name what it was needed for, if it was. */
	list_for_each_entry(op, &remote->rank->ops, node) {
		u32 peer, step;

		if (op->state == NPULINK_OP_RUNNING && npulink_op_waits_for(op, &peer, &step) &&
		    peer == remote->conn->rank) {
			cause.step = step;
			cause.number = op->number;
			break;
		}
	}
	npulink_comm_fail(remote->rank->comm, &cause);
}

/* The peer does what no peer does: have no more to do with it. */
void npulink_remote_violation(struct npulink_remote *remote, const char *what)
{
	dev_warn_ratelimited(&remote->rank->dev->dev,
			     "rank %u at %pI6c broke the protocol towards rank %u: %s\n",
			     remote->conn->rank, remote->put.addr.ip, remote->rank->rank, what);
	npulink_remote_fail(remote, EPROTO);
	remote->full = true;
	remote->shut = true;
	remote->put.transport->shut(&remote->put, NULL, NULL, 0);
}

void npulink_remote_mismatch(struct npulink_remote *remote, u64 number, u32 step,
			     const struct npulink_call *ours, const struct npulink_call *theirs)
{
	struct npulink_cause cause = {
		.cause = NPULINK_CAUSE_MISMATCH, .rank = remote->rank->rank,
		.peer = remote->conn->rank, .step = step, .number = number,
		.calls = { *ours, *theirs },
	};

	npulink_comm_fail(remote->rank->comm, &cause);
}

/* ---- messages ---------------------------------------------------------------------- */

static void npulink_call_to_wire(struct npulink_wire_call *w, const struct npulink_call *c)
{
	w->collective = cpu_to_le32(c->collective);
	w->dtype = cpu_to_le32(c->dtype);
	w->redop = cpu_to_le32(c->redop);
	w->root = cpu_to_le32(c->root);
	w->count = cpu_to_le64(c->count);
	w->set_id = cpu_to_le64(c->set_id);
}

static void npulink_call_from_wire(struct npulink_call *c, const struct npulink_wire_call *w)
{
	c->collective = le32_to_cpu(w->collective);
	c->dtype = le32_to_cpu(w->dtype);
	c->redop = le32_to_cpu(w->redop);
	c->root = le32_to_cpu(w->root);
	c->count = le64_to_cpu(w->count);
	c->set_id = le64_to_cpu(w->set_id);
}

/* The members that name a step, or with @rs NULL, none. */
void npulink_remote_msg(struct npulink_remote *remote, struct npulink_wire_msg *msg, u8 type,
			const struct npulink_remote_step *rs, bool send)
{
	const struct npulink_step_pos *pos;
	const struct npulink_plan *plan;

	memset(msg, 0, sizeof(*msg));
	msg->type = type;
	if (!rs)
		return;
	plan = rs->op->plan;
	pos = &plan->pos[rs->step];
	msg->flags = plan->p2p ? NPULINK_WIRE_P2P : 0;
	msg->number = cpu_to_le64(rs->op->number);
	npulink_call_to_wire(&msg->call, &plan->call);
	msg->len = cpu_to_le64(plan->steps[rs->step].len);
	msg->pos = cpu_to_le32(send ? pos->send_pos : pos->recv_pos);
	msg->channel = cpu_to_le16(plan->steps[rs->step].channel);
}

/* What every message says besides. */
static void npulink_remote_stamp(struct npulink_remote *remote, struct npulink_wire_msg *msg)
{
	msg->seq = cpu_to_le32(remote->tx_seq);
	msg->credits = cpu_to_le16(remote->owed);
}

static void npulink_remote_stamped(struct npulink_remote *remote)
{
	remote->tx_seq++;
	remote->owed = 0;
}

int npulink_remote_post(struct npulink_remote *remote, struct npulink_wire_msg *msg,
			const struct npulink_operand *from, u32 len)
{
	int rc;

	lockdep_assert_held(&remote->rank->lock);
	if (remote->full)
		return -EAGAIN;
	npulink_remote_stamp(remote, msg);
	msg->size = cpu_to_le32(len);
	rc = remote->put.transport->send(&remote->put, msg, from, len);
	if (rc) {
		remote->full = true;
		return -EAGAIN;
	}
	npulink_remote_stamped(remote);
	return 0;
}

/* The same for a message that goes with a grant. */
int npulink_remote_post_grant(struct npulink_remote *remote, u32 grant,
			      const struct npulink_operand *to, u32 len,
			      struct npulink_wire_msg *msg)
{
	int rc;

	if (remote->full)
		return -EAGAIN;
	npulink_remote_stamp(remote, msg);
	msg->size = cpu_to_le32(len);
	rc = remote->put.transport->grant(&remote->put, grant, to, len, msg);
	if (rc) {
		remote->full = true;
		return -EAGAIN;
	}
	npulink_remote_stamped(remote);
	return 0;
}

/* Go on with whatever can go on. */
void npulink_remote_pump(struct npulink_remote *remote, struct npulink_run *run)
{
	struct npulink_wire_msg msg;

	lockdep_assert_held(&remote->rank->lock);
	if (remote->state != NPULINK_REMOTE_UP || remote->full)
		return;
	npulink_remote_rx(remote, run);
	npulink_remote_tx(remote, run);
	if (remote->owed >= NPULINK_WIRE_CREDITS / 2) {
		npulink_remote_msg(remote, &msg, NPULINK_WIRE_CREDIT, NULL, false);
		npulink_remote_post(remote, &msg, NULL, 0);
	}
}

/* ---- the sequencer's side ------------------------------------------------------------ */

/* What remote peers do, as far as the sequencer looks at it: they send each step whole. */
int npulink_remote_plan(struct npulink_plan *plan)
{
	struct npulink_plan *mirror;
	bool far = false;
	u32 i;

	for (i = 0; i < plan->npeers; i++)
		far |= plan->peers[i].conn->far;
	if (!far)
		return 0;
	mirror = kzalloc(sizeof(*mirror), GFP_KERNEL_ACCOUNT);
	if (!mirror)
		return -ENOMEM;
	plan->mirror = mirror;
	mirror->steps = kvcalloc(plan->nsteps, sizeof(*mirror->steps), GFP_KERNEL_ACCOUNT);
	if (!mirror->steps)
		return -ENOMEM;
	mirror->call = plan->call;
	mirror->nsteps = plan->nsteps;
	/* Step i meets the mirror's step i. */
	mirror->streams = plan->streams;
	mirror->stream_steps = plan->stream_steps;
	for (i = 0; i < plan->nsteps; i++) {
		mirror->steps[i].op = NPULINK_STEP_SEND;
		/* Have us told of every slice that was taken. */
		mirror->steps[i].flags = NPULINK_STEP_F_TRANSIENT;
		mirror->steps[i].len = plan->steps[i].len;
	}
	return 0;
}

void npulink_remote_plan_free(struct npulink_plan *plan)
{
	if (!plan->mirror)
		return;
	kvfree(plan->mirror->steps);
	kfree(plan->mirror);
}

int npulink_remote_op_alloc(struct npulink_op *op, const struct npulink_plan *plan)
{
	op->far = kvzalloc(struct_size(op->far, steps, plan->nsteps), GFP_KERNEL_ACCOUNT);
	if (!op->far)
		return -ENOMEM;
	op->far->mirror = kvzalloc(plan->op_size, GFP_KERNEL_ACCOUNT);
	return op->far->mirror ? 0 : -ENOMEM;
}

void npulink_remote_op_free(struct npulink_op *op)
{
	if (!op->far)
		return;
	kvfree(op->far->mirror);
	kvfree(op->far);
}

void npulink_remote_op_reset(struct npulink_op *op)
{
	struct npulink_op *mirror = op->far->mirror;
	const struct npulink_plan *plan = op->plan;
	u32 i;

	refcount_set(&mirror->refs, 1);
	mirror->plan = plan->mirror;
	mirror->rank = op->rank;
	mirror->is_mirror = true;
	for (i = 0; i < plan->nsteps; i++) {
		const struct npulink_unit *un = &plan->units[plan->pos[i].unit];
		const struct npulink_step *st = &plan->steps[i];
		struct npulink_remote_step *rs = &op->far->steps[i];

		memset(rs, 0, sizeof(*rs));
		INIT_LIST_HEAD(&rs->tx_node);
		INIT_LIST_HEAD(&rs->rx_node);
		rs->op = op;
		rs->step = i;
		rs->grant = -1;
		rs->slot = -1;
		/* A window is filled as the next rank takes from it: that is the engine's job. */
		rs->direct = st->op & NPULINK_STEP_RECV && !(st->op & NPULINK_STEP_REDUCE) &&
			     un->nsteps == 1 && st->len > NPULINK_WIRE_EAGER &&
			     !(st->flags & NPULINK_STEP_F_TRANSIENT && st->src2_off) &&
			     !(st->flags & NPULINK_STEP_F_DIV);
		mirror->cells[i].avail = 0;
		mirror->cells[i].taken = 0;
	}
}

/* Are bytes that have arrived for this unit already where they belong? */
bool npulink_remote_landed(const struct npulink_op *op, u32 unit)
{
	const struct npulink_unit *un = &op->plan->units[unit];
	u32 step = un->first;

	if (!op->far->steps[step].direct)
		return false;
	return op->streams[op->plan->pos[step].recv_stream].peer->is_mirror;
}

/* @op publishes bytes of a step to a remote peer, or has taken some of the mirror's. */
void npulink_remote_bell(struct npulink_op *op, u32 step, bool credit, struct npulink_run *run)
{
	struct npulink_remote *remote = npulink_remote_of(op, step, !credit);
	struct npulink_remote_step *rs = &op->far->steps[step];

	lockdep_assert_held(&op->rank->lock);
	if (credit) {
		npulink_remote_taken(remote, rs, run);
	} else if (list_empty(&rs->tx_node)) {
		if (remote->state >= NPULINK_REMOTE_LEFT)
			return;
		list_add_tail(&rs->tx_node, &remote->tx);
	}
	npulink_remote_pump(remote, run);
}

/* The messages that came before the operation was posted. */
static void npulink_remote_catch_up(struct npulink_remote *remote, struct npulink_op *op)
{
	const struct npulink_call *call = &op->plan->call;
	struct npulink_remote_step *rs;
	bool later, bad;
	u32 i;

	for (i = 0; i < NPULINK_PUT_RX; i++) {
		struct npulink_held *held = &remote->held[i];

		if (!held->used || held->step || held->number != op->number ||
		    held->p2p != op->plan->p2p || (held->p2p && op->plan->p2p_send))
			continue;
		rs = npulink_remote_find(remote, held->p2p, held->number, held->channel, held->pos,
					 held->len, &held->call, false, &later, &bad);
		if (!rs)
			return;
		if (rs->slot >= 0 || rs->granted) {
			npulink_remote_mismatch(remote, op->number, rs->step, call, &held->call);
			return;
		}
		held->step = rs;
		rs->slot = i;
		op->far->mirror->cells[rs->step].avail = held->size + 1;
	}
	for (i = 0; i < NPULINK_WIRE_GRANTS; i++) {
		struct npulink_offer *offer = &remote->offers[i];

		if (offer->state != NPULINK_OFFER_HELD || offer->step ||
		    offer->number != op->number || offer->p2p != op->plan->p2p ||
		    (offer->p2p && !op->plan->p2p_send))
			continue;
		rs = npulink_remote_find(remote, offer->p2p, offer->number, offer->channel,
					 offer->pos, offer->step_len, &offer->call, true, &later,
					 &bad);
		if (!rs)
			return;
		offer->step = rs;
	}
}

static bool npulink_remote_missed(const struct npulink_remote *remote, struct npulink_op *op)
{
	const struct npulink_plan *plan = op->plan;
	u32 i, k;

	for (i = 0; i < plan->nstreams; i++) {
		const struct npulink_stream *s = &plan->streams[i];

		if (plan->peers[s->peer].conn != remote->conn)
			continue;
		for (k = 0; k < s->count; k++) {
			u32 step = plan->stream_steps[s->start + k];
			const struct npulink_remote_step *rs = &op->far->steps[step];
			u64 len = plan->steps[step].len;

			if (s->send && (op->units[plan->pos[step].unit].phase !=
					NPULINK_UNIT_DONE) && rs->sent < len + !len)
				return true;
			if (!s->send && !op->far->mirror->cells[step].avail &&
			    op->units[plan->pos[step].unit].phase != NPULINK_UNIT_DONE &&
			    !rs->granted)
				return true;
		}
	}
	return false;
}

int npulink_remote_op_connect(struct npulink_op *op, u32 index, struct npulink_cause *cause)
{
	const struct npulink_plan_peer *p = &op->plan->peers[index];
	struct npulink_remote *remote = p->conn->remote;
	struct npulink_rank *rank = op->rank;
	unsigned long flags;
	int rc = 0;
	u32 i;

	spin_lock_irqsave(&rank->lock, flags);
	if (op->state != NPULINK_OP_RUNNING)
		goto out;
	if (remote->state >= NPULINK_REMOTE_LEFT) {
		*cause = (struct npulink_cause) {
			.cause = remote->state == NPULINK_REMOTE_LEFT ? NPULINK_CAUSE_LEFT :
				 NPULINK_CAUSE_LINK,
			.rank = rank->rank, .peer = p->conn->rank, .step = ~0U,
			.number = op->number,
		};
		rc = -ESHUTDOWN;
		goto out;
	}
	for (i = p->stream; i < p->stream + p->nstreams; i++) {
		npulink_op_get(op->far->mirror);
		op->streams[i].stream = i;
		op->streams[i].peer = op->far->mirror;
	}
	npulink_remote_catch_up(remote, op);
	schedule_delayed_work(&remote->tick, msecs_to_jiffies(NPULINK_TICK_MS));
out:
	spin_unlock_irqrestore(&rank->lock, flags);
	return rc;
}

/* @op is over: nothing of it is with a transport any more. */
void npulink_remote_op_finish(struct npulink_op *op, struct npulink_run *run)
{
	u32 i, k;

	lockdep_assert_held(&op->rank->lock);
	if (op->state == NPULINK_OP_FAILING) {
		for (i = 0; i < op->plan->nsteps; i++) {
			list_del_init(&op->far->steps[i].tx_node);
			list_del_init(&op->far->steps[i].rx_node);
		}
	}
	for (k = 0; k < op->plan->npeers; k++) {
		struct npulink_remote *remote = op->plan->peers[k].conn->remote;

		if (!remote)
			continue;
		for (i = 0; i < NPULINK_WIRE_GRANTS; i++) {
			struct npulink_grant *grant = &remote->grants[i];
			struct npulink_offer *offer = &remote->offers[i];

			if (grant->state && grant->step->op == op) {
				WARN_ON_ONCE(grant->state != NPULINK_GRANT_LANDED);
				npulink_remote_grant_free(remote, grant);
			}
			if (offer->state && offer->step && offer->step->op == op)
				offer->state = NPULINK_OFFER_FREE;
		}
		for (i = 0; i < NPULINK_PUT_RX; i++)
			if (remote->held[i].used && remote->held[i].step &&
			    remote->held[i].step->op == op)
				npulink_remote_slot_free(remote, i);
	}
}

/* ---- what the peer says ------------------------------------------------------------------ */

/*
 * The step of ours that a message is about; we are its sender, or receiver. NULL: *later, it
 * is not posted yet; *bad, it never will be, and the communicator has failed; neither: it
 * is over.
 */
struct npulink_remote_step *npulink_remote_find(struct npulink_remote *remote, bool p2p,
						u64 number, u16 channel, u32 pos, u64 len,
						const struct npulink_call *call, bool send,
						bool *later, bool *bad)
{
	struct npulink_rank *rank = remote->rank;
	struct npulink_conn *conn = remote->conn;
	struct npulink_op *op = NULL, *p;
	const struct npulink_plan *plan;
	u32 index, s, step;
	u64 next;

	*later = false;
	*bad = false;
	if (p2p) {
		next = conn->p2p_next[send];
		list_for_each_entry(p, &conn->p2p[send], p2p_node)
			if (p->number == number)
				op = p;
	} else {
		next = rank->next;
		op = rank->table[number % NPULINK_MAX_INFLIGHT];
		if (op && op->number != number)
			op = NULL;
	}
	if (!op) {
		*later = number >= next && number - next < NPULINK_MAX_INFLIGHT;
		if (!*later && number >= next) {
			*bad = true;
			npulink_remote_violation(remote, "operation number");
		}
		if (number < next && !p2p) {
			u32 i = number % NPULINK_HISTORY;

			if (rank->history[i].number == number + 1 &&
			    memcmp(&rank->history[i].call, call, sizeof(*call))) {
				*bad = true;
				npulink_remote_mismatch(remote, number, ~0U,
							&rank->history[i].call, call);
			}
		}
		return NULL;
	}
	if (op->state != NPULINK_OP_RUNNING)
		return NULL;
	plan = op->plan;
	index = npulink_find_peer(plan, conn->rank);
	if (index == ~0U || memcmp(&plan->call, call, sizeof(*call)))
		goto mismatch;
	/* About the operation as a whole. */
	if (pos == ~0U)
		return &op->far->steps[0];
	s = npulink_find_stream(plan, index, channel, send);
	if (s == ~0U || pos >= plan->streams[s].count)
		goto mismatch;
	step = plan->stream_steps[plan->streams[s].start + pos];
	if (plan->steps[step].len != len)
		goto mismatch;
	return &op->far->steps[step];

mismatch:
	*bad = true;
	npulink_remote_mismatch(remote, number, ~0U, &plan->call, call);
	return NULL;
}

/* The peer has steps that it could not grant for: tell it which of them have data. */
static void npulink_remote_opened(struct npulink_remote *remote, const struct npulink_wire_msg *msg,
				  const struct npulink_call *call, struct npulink_run *run)
{
	bool p2p = msg->flags & NPULINK_WIRE_P2P;
	u64 number = le64_to_cpu(msg->number);
	struct npulink_remote_step *rs;
	const struct npulink_plan *plan;
	struct npulink_op *op;
	bool later, bad;
	u32 i, k;

	rs = npulink_remote_find(remote, p2p, number, 0, ~0U, 0, call, true, &later, &bad);
	if (rs || later)
		remote->opened[p2p][number % NPULINK_MAX_INFLIGHT] = number + 1;
	if (!rs)
		return;
	op = rs->op;
	plan = op->plan;
	for (i = 0; i < plan->nstreams; i++) {
		const struct npulink_stream *s = &plan->streams[i];

		if (!s->send || plan->peers[s->peer].conn != remote->conn)
			continue;
		for (k = 0; k < s->count; k++) {
			rs = &op->far->steps[plan->stream_steps[s->start + k]];
			rs->asked = false;
			if (op->cells[rs->step].avail && list_empty(&rs->tx_node) &&
			    rs->sent < plan->steps[rs->step].len)
				list_add_tail(&rs->tx_node, &remote->tx);
		}
	}
}

/* The peer has data for a step that we have not granted it memory for. */
static void npulink_remote_requested(struct npulink_remote *remote,
				     const struct npulink_wire_msg *msg,
				     const struct npulink_call *call, struct npulink_run *run)
{
	struct npulink_remote_step *rs;
	bool later, bad;

	rs = npulink_remote_find(remote, msg->flags & NPULINK_WIRE_P2P, le64_to_cpu(msg->number),
				 le16_to_cpu(msg->channel), le32_to_cpu(msg->pos),
				 le64_to_cpu(msg->len), call, false, &later, &bad);
	if (!rs || rs->slot >= 0)
		return;
	rs->requested = true;
	npulink_remote_want(rs->op, rs->op->plan->pos[rs->step].unit, run);
}

static void npulink_remote_aborted(struct npulink_remote *remote, const void *payload, u32 size)
{
	const struct npulink_wire_cause *w = payload;
	struct npulink_cause cause;
	u32 nranks = remote->rank->comm->nranks;
	u32 i;

	if (size != sizeof(*w)) {
		npulink_remote_violation(remote, "size of ABORT");
		return;
	}
	cause = (struct npulink_cause) {
		.cause = le32_to_cpu(w->cause), .rank = le32_to_cpu(w->rank),
		.peer = le32_to_cpu(w->peer), .step = le32_to_cpu(w->step),
		.number = le64_to_cpu(w->number), .code = le32_to_cpu(w->code),
	};
	if (cause.cause < NPULINK_CAUSE_ABORT || cause.cause > NPULINK_CAUSE_REMOVED ||
	    cause.rank >= nranks || (cause.peer >= nranks && cause.peer != NPULINK_NO_PEER)) {
		npulink_remote_violation(remote, "cause of ABORT");
		return;
	}
	for (i = 0; i < 2; i++)
		npulink_call_from_wire(&cause.calls[i], &w->calls[i]);
	npulink_comm_fail(remote->rank->comm, &cause);
}

static void npulink_remote_bye(struct npulink_remote *remote)
{
	struct npulink_rank *rank = remote->rank;
	struct npulink_op *op;

	npulink_remote_set_state(remote, NPULINK_REMOTE_LEFT);
	list_for_each_entry(op, &rank->ops, node) {
		struct npulink_cause cause = {
			.cause = NPULINK_CAUSE_LEFT, .rank = rank->rank,
			.peer = remote->conn->rank, .step = ~0U, .number = op->number,
		};

		if (op->state != NPULINK_OP_RUNNING || !op->far ||
		    !npulink_remote_missed(remote, op))
			continue;
		npulink_comm_fail(rank->comm, &cause);
		break;
	}
}

/* Is @msg, which came with @size bytes behind it, what a message may be? */
static const char *npulink_remote_check(const struct npulink_remote *remote,
					const struct npulink_wire_msg *msg, u32 size)
{
	bool step = msg->type <= NPULINK_WIRE_REQ;

	if (!msg->type || msg->type >= NPULINK_WIRE_TYPES)
		return "type";
	if (msg->flags & ~(step ? NPULINK_WIRE_P2P : 0))
		return "flags";
	if (le32_to_cpu(msg->seq) != remote->rx_seq)
		return "sequence number";
	if (remote->credits + le16_to_cpu(msg->credits) > NPULINK_WIRE_CREDITS)
		return "credits";
	if (memchr_inv(msg->reserved, 0, sizeof(msg->reserved)))
		return "reserved bytes";
	if (msg->type == NPULINK_WIRE_DATA || msg->type == NPULINK_WIRE_ABORT) {
		if (le32_to_cpu(msg->size) != size)
			return "payload";
	} else if (size) {
		return "payload";
	}
	if (msg->type == NPULINK_WIRE_GRANT) {
		u64 len = le64_to_cpu(msg->len), off = le64_to_cpu(msg->off);
		u32 chunk = le32_to_cpu(msg->size);

		if (!chunk || chunk > NPULINK_WIRE_CHUNK || off > len || chunk > len - off)
			return "grant";
	} else if (msg->off || msg->addr || msg->rkey || msg->imm) {
		return "unused members";
	}
	if (step && le64_to_cpu(msg->len) > NPULINK_MAX_LEN)
		return "length";
	return NULL;
}

bool npulink_put_recv(struct npulink_put *put, u32 slot, u32 len)
{
	struct npulink_remote *remote = to_remote(put);
	struct npulink_rank *rank = remote->rank;
	struct npulink_operand at = { .buf = put->buf, .off = slot * NPULINK_WIRE_SLOT };
	const void *bytes = npulink_operand_va(&at);
	struct npulink_wire_msg msg;
	struct npulink_call call;
	NPULINK_RUN_IRQ(run);
	unsigned long flags;
	const char *wrong;
	bool keep = false;

	spin_lock_irqsave(&rank->lock, flags);
	/* It may come before npulink_put_up() has. */
	if (remote->state == NPULINK_REMOTE_CONNECTING)
		npulink_remote_set_state(remote, NPULINK_REMOTE_UP);
	if (remote->state != NPULINK_REMOTE_UP || remote->shut)
		goto out;
	if (len < sizeof(msg) || len > NPULINK_WIRE_SLOT) {
		npulink_remote_violation(remote, "size");
		goto out;
	}
	memcpy(&msg, bytes, sizeof(msg));
	wrong = npulink_remote_check(remote, &msg, len - sizeof(msg));
	if (wrong) {
		npulink_remote_violation(remote, wrong);
		goto out;
	}
	remote->rx_seq++;
	remote->credits += le16_to_cpu(msg.credits);
	npulink_call_from_wire(&call, &msg.call);
	switch (msg.type) {
	case NPULINK_WIRE_DATA:
		keep = npulink_remote_data(remote, slot, &msg, &call, &run);
		break;
	case NPULINK_WIRE_GRANT:
		npulink_remote_offer(remote, &msg, &call, &run);
		break;
	case NPULINK_WIRE_OPEN:
		npulink_remote_opened(remote, &msg, &call, &run);
		break;
	case NPULINK_WIRE_REQ:
		npulink_remote_requested(remote, &msg, &call, &run);
		break;
	case NPULINK_WIRE_CREDIT:
		break;
	case NPULINK_WIRE_ABORT:
		npulink_remote_aborted(remote, bytes + sizeof(msg), len - sizeof(msg));
		break;
	case NPULINK_WIRE_BYE:
		npulink_remote_bye(remote);
		break;
	}
	npulink_remote_pump(remote, &run);
out:
	spin_unlock_irqrestore(&rank->lock, flags);
	npulink_run(&run);
	return keep;
}
EXPORT_SYMBOL_NPULINK(npulink_put_recv);

void npulink_put_room(struct npulink_put *put)
{
	struct npulink_remote *remote = to_remote(put);
	NPULINK_RUN_IRQ(run);
	unsigned long flags;

	spin_lock_irqsave(&remote->rank->lock, flags);
	remote->full = remote->shut;
	npulink_remote_pump(remote, &run);
	spin_unlock_irqrestore(&remote->rank->lock, flags);
	npulink_run(&run);
}
EXPORT_SYMBOL_NPULINK(npulink_put_room);

void npulink_put_up(struct npulink_put *put)
{
	struct npulink_remote *remote = to_remote(put);
	struct npulink_rank *rank = remote->rank;
	NPULINK_RUN_IRQ(run);
	unsigned long flags;

	spin_lock_irqsave(&rank->lock, flags);
	if (remote->state == NPULINK_REMOTE_CONNECTING)
		npulink_remote_set_state(remote, NPULINK_REMOTE_UP);
	npulink_remote_pump(remote, &run);
	spin_unlock_irqrestore(&rank->lock, flags);
	npulink_run(&run);
	/* It may have failed before there was anybody to tell. */
	if (READ_ONCE(rank->comm->failed))
		npulink_remote_abort(rank);
}
EXPORT_SYMBOL_NPULINK(npulink_put_up);

void npulink_put_down(struct npulink_put *put, int status)
{
	struct npulink_remote *remote = to_remote(put);
	struct npulink_rank *rank = remote->rank;
	NPULINK_RUN_IRQ(run);
	unsigned long flags;
	u32 i;

	spin_lock_irqsave(&rank->lock, flags);
	if (remote->state == NPULINK_REMOTE_DOWN)
		goto out;
	if (status && remote->state != NPULINK_REMOTE_LEFT && !rank->closed &&
	    !READ_ONCE(rank->comm->failed)) {
		dev_warn_ratelimited(&rank->dev->dev,
				     "rank %u has lost rank %u at %pI6c over %s: error %d\n",
				     rank->rank, put->peer, put->addr.ip,
				     *put->via ? put->via : "no port", -status);
		npulink_remote_fail(remote, -status);
	}
	npulink_remote_set_state(remote, NPULINK_REMOTE_DOWN);
	while (!list_empty(&remote->tx))
		list_del_init(remote->tx.next);
	while (!list_empty(&remote->rx))
		list_del_init(remote->rx.next);
	for (i = 0; i < NPULINK_WIRE_GRANTS; i++) {
		struct npulink_offer *offer = &remote->offers[i];
		struct npulink_grant *grant = &remote->grants[i];
		struct npulink_op *op;

		offer->state = NPULINK_OFFER_FREE;
		if (grant->state == NPULINK_GRANT_OUT || grant->state == NPULINK_GRANT_REVOKING) {
			op = grant->step->op;
			npulink_remote_grant_free(remote, grant);
			npulink_remote_op_less(op, &run);
		}
	}
out:
	spin_unlock_irqrestore(&rank->lock, flags);
	npulink_run(&run);
}
EXPORT_SYMBOL_NPULINK(npulink_put_down);

/* Something takes long: see whether the peer is there, and say what we wait for. */
static void npulink_remote_tick(struct work_struct *work)
{
	struct npulink_remote *remote = container_of(to_delayed_work(work), struct npulink_remote,
						     tick);
	u64 long_ago = ktime_get_ns() - NPULINK_TICK_MS * NSEC_PER_MSEC;
	struct npulink_rank *rank = remote->rank;
	NPULINK_RUN_TASK(run);
	struct npulink_wire_msg msg;
	struct npulink_op *op;
	u32 n = 0;

	spin_lock_irq(&rank->lock);
	if (list_empty(&rank->ops) || remote->state >= NPULINK_REMOTE_LEFT)
		goto out;
	schedule_delayed_work(&remote->tick, msecs_to_jiffies(NPULINK_TICK_MS));
	if (remote->state != NPULINK_REMOTE_UP || remote->shut)
		goto out;
	remote->put.transport->probe(&remote->put);
	list_for_each_entry(op, &rank->ops, node) {
		if (op->start_ns > long_ago || n++ == 4)
			break;
		if (!op->far || op->state != NPULINK_OP_RUNNING ||
		    npulink_find_peer(op->plan, remote->conn->rank) == ~0U ||
		    (op->plan->p2p && op->plan->p2p_send))
			continue;
		npulink_remote_msg(remote, &msg, NPULINK_WIRE_OPEN, &op->far->steps[0], false);
		msg.len = 0;
		msg.pos = 0;
		msg.channel = 0;
		npulink_remote_post(remote, &msg, NULL, 0);
	}
	npulink_remote_pump(remote, &run);
out:
	spin_unlock_irq(&rank->lock);
	npulink_run(&run);
}

/* ---- life ------------------------------------------------------------------------------------ */

/* The communicator has failed: tell the other machines. */
void npulink_remote_abort(struct npulink_rank *rank)
{
	const struct npulink_cause *cause = &rank->comm->cause;
	struct npulink_wire_cause body = {
		.cause = cpu_to_le32(cause->cause), .rank = cpu_to_le32(cause->rank),
		.peer = cpu_to_le32(cause->peer), .step = cpu_to_le32(cause->step),
		.number = cpu_to_le64(cause->number), .code = cpu_to_le32(cause->code),
	};
	struct npulink_conn *conn;
	unsigned long id;
	u32 i;

	for (i = 0; i < 2; i++)
		npulink_call_to_wire(&body.calls[i], &cause->calls[i]);
	xa_for_each(&rank->conns, id, conn) {
		struct npulink_wire_msg msg;
		struct npulink_remote *remote = conn->remote;

		if (!remote)
			continue;
		spin_lock_irq(&rank->lock);
		if (remote->shut) {
			/* Told already. */
		} else if (remote->state == NPULINK_REMOTE_UP) {
			npulink_remote_msg(remote, &msg, NPULINK_WIRE_ABORT, NULL, false);
			npulink_remote_stamp(remote, &msg);
			msg.size = cpu_to_le32(sizeof(body));
			remote->put.transport->shut(&remote->put, &msg, &body, sizeof(body));
			remote->full = true;
			remote->shut = true;
		} else if (remote->state == NPULINK_REMOTE_CONNECTING) {
			remote->shut = true;
			remote->put.transport->shut(&remote->put, NULL, NULL, 0);
		}
		spin_unlock_irq(&rank->lock);
	}
}

/* A rank is elsewhere. May sleep. */
int npulink_remote_describe(struct npulink_rank *rank, u32 peer, const struct npulink_addr *addr)
{
	struct net *net = current->nsproxy->net_ns;
	struct npulink_conn *conn;
	struct npulink_port *port;
	int rc = 0;

	if (peer == rank->rank || !addr->port || !memchr_inv(addr->ip, 0, sizeof(addr->ip)))
		return -EINVAL;
	mutex_lock(&npulink_ports_lock);
	port = npulink_port_at(rank->dev, 0, net);
	mutex_unlock(&npulink_ports_lock);
	if (!port)
		return -EHOSTUNREACH;
	conn = npulink_conn_get(rank, peer);
	if (IS_ERR(conn))
		return PTR_ERR(conn);
	mutex_lock(&rank->comm->mutex);
	if (rank->net && rank->net != net)
		rc = -EHOSTUNREACH;
	else if (conn->far ? memcmp(&conn->addr, addr, sizeof(*addr)) : conn->peer ||
		 rcu_access_pointer(rank->comm->ranks[peer]))
		rc = -EBUSY;
	if (!rc) {
		if (!rank->net)
			rank->net = get_net(net);
		rank->comm->far = true;
		conn->addr = *addr;
		conn->far = true;
	}
	mutex_unlock(&rank->comm->mutex);
	return rc;
}

static void npulink_remote_delete(struct npulink_remote *remote)
{
	if (remote->put.buf) {
		npulink_buf_drop_base(remote->put.buf);
		npulink_object_put(&remote->put.buf->obj);
	}
	module_put(remote->put.transport->owner);
	kvfree(remote);
}

static struct npulink_remote *npulink_remote_new(struct npulink_rank *rank,
						 struct npulink_conn *conn)
{
	const struct npulink_transport *transport = NULL;
	struct npulink_remote *remote;
	struct npulink_port *port;

	mutex_lock(&npulink_ports_lock);
	port = npulink_port_at(rank->dev, 0, rank->net);
	if (port && try_module_get(port->transport->owner))
		transport = port->transport;
	mutex_unlock(&npulink_ports_lock);
	if (!transport)
		return ERR_PTR(-EHOSTUNREACH);
	remote = kvzalloc(sizeof(*remote), GFP_KERNEL_ACCOUNT);
	if (!remote) {
		module_put(transport->owner);
		return ERR_PTR(-ENOMEM);
	}
	remote->put.transport = transport;
	remote->rank = rank;
	remote->conn = conn;
	remote->credits = NPULINK_WIRE_CREDITS;
	INIT_LIST_HEAD(&remote->tx);
	INIT_LIST_HEAD(&remote->rx);
	INIT_DELAYED_WORK(&remote->tick, npulink_remote_tick);
	remote->put.dev = rank->dev;
	remote->put.net = rank->net;
	remote->put.secret = rank->comm->secret;
	remote->put.rank = rank->rank;
	remote->put.peer = conn->rank;
	remote->put.addr = conn->addr;
	remote->put.buf = npulink_buf_alloc_pages(rank->file, NPULINK_MESSAGE_BYTES +
						  NPULINK_LANDING_BYTES);
	if (IS_ERR(remote->put.buf)) {
		int rc = PTR_ERR(remote->put.buf);

		remote->put.buf = NULL;
		npulink_remote_delete(remote);
		return ERR_PTR(rc);
	}
	return remote;
}

/* Have a connection to a remote peer, or one that is being made. May sleep. */
int npulink_remote_resolve(struct npulink_rank *rank, struct npulink_conn *conn)
{
	struct npulink_remote *remote = READ_ONCE(conn->remote);
	int rc;

	if (remote)
		return READ_ONCE(remote->state) == NPULINK_REMOTE_DOWN ? -ENOLINK : 0;
	remote = npulink_remote_new(rank, conn);
	if (IS_ERR(remote))
		return PTR_ERR(remote);
	spin_lock_irq(&rank->lock);
	if (conn->remote) {
		spin_unlock_irq(&rank->lock);
		npulink_remote_delete(remote);
		return 0;
	}
	npulink_remote_set_state(remote, NPULINK_REMOTE_CONNECTING);
	conn->back = &remote->link;
	WRITE_ONCE(conn->remote, remote);
	spin_unlock_irq(&rank->lock);
	rc = remote->put.transport->open(&remote->put);
	if (rc) {
		spin_lock_irq(&rank->lock);
		npulink_remote_set_state(remote, NPULINK_REMOTE_DOWN);
		spin_unlock_irq(&rank->lock);
		return rc;
	}
	smp_store_release(&remote->opened_once, true);
	return 0;
}

/* The rank leaves; nothing of it is in flight. May sleep. */
void npulink_remote_close(struct npulink_conn *conn)
{
	struct npulink_remote *remote = conn->remote;
	struct npulink_wire_msg bye;
	bool up;

	if (!remote)
		return;
	conn->back = NULL;
	if (!xchg(&remote->opened_once, false))
		return;
	/* Before we are seen to have left. */
	if (smp_load_acquire(&remote->rank->comm->failed))
		npulink_remote_abort(remote->rank);
	spin_lock_irq(&remote->rank->lock);
	up = remote->state == NPULINK_REMOTE_UP && !remote->rank->comm->failed;
	npulink_remote_msg(remote, &bye, NPULINK_WIRE_BYE, NULL, false);
	npulink_remote_stamp(remote, &bye);
	/* Nothing may follow it. */
	remote->full = true;
	remote->shut = true;
	spin_unlock_irq(&remote->rank->lock);
	cancel_delayed_work_sync(&remote->tick);
	remote->put.transport->close(&remote->put, up ? &bye : NULL);
}

/* Nobody uses the connection any more. May sleep. */
void npulink_remote_free(struct npulink_conn *conn)
{
	if (!conn->remote)
		return;
	cancel_delayed_work_sync(&conn->remote->tick);
	npulink_remote_delete(conn->remote);
	conn->remote = NULL;
}
