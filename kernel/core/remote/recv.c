// SPDX-License-Identifier: GPL-2.0
/*
 * recv.c - from a remote peer's bytes to what the sequencer is shown of them.
 */
#include "comm/comm.h"
#include "file/buf.h"
#include "file/file.h"
#include "plan/plan.h"
#include "remote/remote.h"
#include "run/op.h"
#include "run/run.h"

void npulink_remote_grant_free(struct npulink_remote *remote, struct npulink_grant *grant)
{
	if (grant->landing >= 0)
		remote->landings &= ~BIT(grant->landing);
	grant->state = NPULINK_GRANT_FREE;
	grant->step = NULL;
}

/* The message in @slot has been taken. */
void npulink_remote_slot_free(struct npulink_remote *remote, u32 slot)
{
	remote->held[slot].used = false;
	remote->held[slot].step = NULL;
	remote->held_count--;
	remote->owed++;
	if (remote->state == NPULINK_REMOTE_UP || remote->state == NPULINK_REMOTE_RESUMING)
		remote->put.transport->recycle(&remote->put, slot);
}

static void npulink_recv_show(struct npulink_remote_step *rs, u64 bytes, struct npulink_run *run)
{
	rs->shown = bytes;
	/* Pairs with npulink_member_arrived(). */
	smp_store_release(&rs->op->far->mirror->cells[rs->step].avail, bytes + 1);
	npulink_remote_ring(rs, run);
}

/* Show the next chunk that has landed, if it is the next of its step. */
void npulink_remote_recv_next(struct npulink_remote *remote, struct npulink_remote_step *rs,
			      struct npulink_run *run)
{
	u32 i;

	if (rs->grant >= 0)
		return;
	for (i = 0; i < NPULINK_WIRE_GRANTS; i++) {
		struct npulink_grant *grant = &remote->grants[i];

		if (grant->state == NPULINK_GRANT_LANDED && grant->step == rs &&
		    grant->off == rs->shown && (!remote->check || grant->good)) {
			rs->grant = i;
			npulink_recv_show(rs, grant->off + grant->len, run);
			if (remote->check)
				npulink_check_good(remote, rs);
			return;
		}
	}
}

/* Where byte @done of a received step is; with a reference to the buffer. */
bool npulink_remote_operand(struct npulink_op *op, u32 step, u64 done, struct npulink_operand *o)
{
	struct npulink_remote *remote = npulink_remote_of(op, step, false);
	const struct npulink_remote_step *rs = &op->far->steps[step];

	if (WARN_ON_ONCE(rs->slot < 0 && rs->grant < 0) || !npulink_buf_tryget(remote->put.buf))
		return false;
	if (rs->slot >= 0) {
		o->buf = remote->put.buf;
		o->off = rs->slot * NPULINK_WIRE_SLOT + sizeof(struct npulink_wire_msg) + done;
	} else {
		const struct npulink_grant *grant = &remote->grants[rs->grant];

		*o = npulink_landing(remote, grant->landing);
		o->off += done - grant->off;
	}
	o->held = true;
	return true;
}

/* The engine has taken what it was shown, or some of it. */
void npulink_remote_taken(struct npulink_remote *remote, struct npulink_remote_step *rs,
			  struct npulink_run *run)
{
	u64 taken = rs->op->far->mirror->cells[rs->step].taken;
	u64 len = rs->op->plan->steps[rs->step].len;

	if (rs->slot >= 0) {
		if (taken == len + 1) {
			npulink_remote_slot_free(remote, rs->slot);
			rs->slot = -1;
		}
	} else if (rs->grant >= 0) {
		struct npulink_grant *grant = &remote->grants[rs->grant];

		if (taken >= grant->off + grant->len) {
			npulink_remote_grant_free(remote, grant);
			rs->grant = -1;
			npulink_remote_recv_next(remote, rs, run);
		}
	}
}

/* Has the peer been told that we are at @op? */
bool npulink_remote_has_told(const struct npulink_remote *remote, const struct npulink_op *op)
{
	return npulink_marks_have(&remote->open_sent[op->plan->p2p], op->number);
}

/* In the order in which they come, but those that the peer has data for already before all. */
static void npulink_recv_queue(struct npulink_remote *remote, struct npulink_remote_step *rs)
{
	if (rs->requested) {
		list_add(&rs->rx_node, &remote->rx);
		return;
	}
	/* Of an operation that the peer was not told of, it has to be looked at once. */
	rs->idle = !list_empty(&remote->rx_idle) && npulink_remote_has_told(remote, rs->op);
	list_add_tail(&rs->rx_node, rs->idle ? &remote->rx_idle : &remote->rx);
}

/* An active unit waits for bytes of step @step: if a remote peer has them, it may send them. */
static void npulink_recv_want(struct npulink_op *op, u32 step, struct npulink_run *run)
{
	const struct npulink_step *st = &op->plan->steps[step];
	struct npulink_remote_step *rs = &op->far->steps[step];
	struct npulink_remote *remote;
	struct npulink_op *peer;

	if (!(st->op & NPULINK_STEP_RECV))
		return;
	peer = op->streams[op->plan->pos[step].recv_stream].peer;
	if (!peer || !peer->is_mirror)
		return;
	if (rs->granted == st->len || rs->slot >= 0 ||
	    (!list_empty(&rs->rx_node) && !rs->needs) ||
	    (st->len <= NPULINK_WIRE_EAGER && !rs->requested))
		return;
	remote = npulink_remote_of(op, step, false);
	if (remote->state >= NPULINK_REMOTE_LEFT)
		return;
	if (list_empty(&rs->rx_node))
		npulink_recv_queue(remote, rs);
	else if (rs->idle)
		npulink_remote_wake_idle(remote, rs);
	npulink_remote_pump(remote, run);
}

/* A unit waits for bytes: see to it that its remote peers may send them. */
void npulink_remote_want(struct npulink_op *op, u32 unit, struct npulink_run *run)
{
	const struct npulink_unit *un = &op->plan->units[unit];
	u32 i;

	if (op->units[unit].phase != NPULINK_UNIT_ACTIVE &&
	    op->units[unit].phase != NPULINK_UNIT_BUSY)
		return;
	for (i = un->first; i < un->first + un->nsteps; i++)
		npulink_recv_want(op, i, run);
}

/*
 * Something has come of what an active unit waits for, and it waits for more. Only one of its steps
 * may have the last landing because of that, see npulink_recv_in_turn().
 */
void npulink_remote_want_next(struct npulink_op *op, u32 unit, struct npulink_run *run)
{
	const struct npulink_unit *un = &op->plan->units[unit];
	const struct npulink_step *steps = op->plan->steps;
	u32 end = un->first + un->nsteps, next = end, i;

	/* What has come of more than the unit has done waits for others, and wants nothing more. */
	for (i = un->first; i < end; i++)
		if (op->far->steps[i].needs && op->far->steps[i].granted <= op->units[unit].done &&
		    (next == end || steps[i].recv_peer < steps[next].recv_peer))
			next = i;
	if (next != end)
		npulink_recv_want(op, next, run);
}

/* The peer of step @step has more for it, for which others of its unit may have waited. */
void npulink_remote_want_step(struct npulink_op *op, u32 step, struct npulink_run *run)
{
	u32 unit = op->plan->pos[step].unit;

	if (op->units[unit].phase != NPULINK_UNIT_ACTIVE &&
	    op->units[unit].phase != NPULINK_UNIT_BUSY)
		return;
	npulink_recv_want(op, step, run);
	npulink_remote_want_next(op, unit, run);
}

/*
 * How much of @rs is granted next: no more than there is room for where the engine has to write it,
 * or what is left in the landing waits for the window's next reader.
 */
static u32 npulink_recv_piece(const struct npulink_remote_step *rs)
{
	const struct npulink_plan *plan = rs->op->plan;
	const struct npulink_unit *un = &plan->units[plan->pos[rs->step].unit];
	const struct npulink_step *last = &plan->steps[un->first + un->nsteps - 1];
	u64 len = min_t(u64, NPULINK_WIRE_CHUNK, last->len - rs->granted);

	if (last->flags & NPULINK_STEP_F_TRANSIENT && last->src2_off)
		len = min(len, last->src2_off);
	return len;
}

/*
 * Will the engine take what is granted next as soon as it is there? Not if it has to write it to a
 * window whose next reader has to take something first.
 */
static bool npulink_recv_fits(const struct npulink_remote_step *rs)
{
	const struct npulink_op *op = rs->op;
	const struct npulink_unit *un = &op->plan->units[op->plan->pos[rs->step].unit];
	u32 step = un->first + un->nsteps - 1;
	const struct npulink_step *last = &op->plan->steps[step];
	u64 taken;

	if (!(last->flags & NPULINK_STEP_F_TRANSIENT && last->src2_off))
		return true;
	/* Pairs with npulink_unit_credit(). */
	taken = min(smp_load_acquire(&op->cells[step].taken), last->len);
	return rs->granted + npulink_recv_piece(rs) - taken <= last->src2_off;
}

/*
 * Will its chain take what is granted to @rs next as soon as it is there? What comes from others
 * is there, or remote peers have it and send it after this. The last of the first peer is got
 * before that of the second, so no two chains wait for what the other one has.
 */
static bool npulink_recv_in_turn(const struct npulink_remote_step *rs)
{
	const struct npulink_op *op = rs->op;
	const struct npulink_unit *un = &op->plan->units[op->plan->pos[rs->step].unit];
	u32 first = op->plan->steps[rs->step].recv_peer, i;

	for (i = un->first; i < un->first + un->nsteps; i++) {
		const struct npulink_step *st = &op->plan->steps[i];
		const struct npulink_step_pos *pos = &op->plan->pos[i];
		const struct npulink_op *peer;
		u32 ps;

		if (i == rs->step || !(st->op & NPULINK_STEP_RECV))
			continue;
		peer = op->streams[pos->recv_stream].peer;
		if (!peer)
			return false;
		ps = npulink_peer_step(op, pos->recv_stream, pos->recv_pos);
		/* Pairs with npulink_unit_publish(). Nothing that was granted to @rs is left. */
		if (smp_load_acquire(&peer->cells[ps].avail) > rs->granted + 1)
			continue;
		if (!peer->is_mirror || !op->far->steps[i].needs || st->recv_peer < first)
			return false;
	}
	return true;
}

/*
 * May @rs have the last grant, and the last landing? Only a step whose peer has data now and
 * nowhere to put it: what is granted to others may wait for data that comes out of that step, the
 * other way round the ring.
 */
static bool npulink_recv_last(const struct npulink_remote_step *rs)
{
	return rs->needs && npulink_recv_fits(rs) && npulink_recv_in_turn(rs);
}

/* A free grant that @rs may have. Half of them are for steps that were asked for. */
static struct npulink_grant *npulink_recv_grant(struct npulink_remote *remote,
						const struct npulink_remote_step *rs)
{
	u32 landings = NPULINK_LANDINGS - hweight32(remote->landings);
	struct npulink_grant *found = NULL;
	u32 unasked = 0, free = 0, i;
	bool has = false;

	for (i = 0; i < NPULINK_WIRE_GRANTS; i++) {
		struct npulink_grant *grant = &remote->grants[i];

		if (grant->state) {
			unasked += !grant->requested;
			has |= grant->step == rs;
		} else {
			found = grant;
			free++;
		}
	}
	if (!rs->requested && unasked >= NPULINK_WIRE_GRANTS / 2)
		return NULL;
	/* What it has will come free, or waits for others, as this would. */
	if ((free == 1 || (!rs->direct && landings == 1)) && (has || !npulink_recv_last(rs)))
		return NULL;
	return rs->direct || landings ? found : NULL;
}

/* Has the peer somewhere to put data of @rs? */
bool npulink_recv_granted(const struct npulink_remote *remote, const struct npulink_remote_step *rs)
{
	u32 i;

	for (i = 0; i < NPULINK_WIRE_GRANTS; i++) {
		const struct npulink_grant *grant = &remote->grants[i];

		if (grant->step == rs &&
		    (grant->state == NPULINK_GRANT_OUT || grant->state == NPULINK_GRANT_AGAIN ||
		     grant->state == NPULINK_GRANT_RENEW))
			return true;
	}
	return false;
}

/* Let the peer write to a grant that is filled in. -EAGAIN: the transport is full. */
int npulink_remote_grant_send(struct npulink_remote *remote, struct npulink_grant *grant)
{
	const struct npulink_remote_step *rs = grant->step;
	const struct npulink_step *st = &rs->op->plan->steps[rs->step];
	u32 index = grant - remote->grants;
	struct npulink_wire_msg msg;
	struct npulink_operand to;
	int rc;

	if (grant->landing >= 0) {
		to = npulink_landing(remote, grant->landing);
	} else {
		to.buf = rs->op->binds[st->dst_slot].buf;
		to.off = rs->op->binds[st->dst_slot].off + st->dst_off + grant->off;
	}
	npulink_remote_msg(remote, &msg, NPULINK_WIRE_GRANT, rs, false);
	if (grant->twice)
		msg.flags |= NPULINK_WIRE_TWICE;
	if (grant->state == NPULINK_GRANT_RENEW)
		msg.flags |= NPULINK_WIRE_RENEWED;
	msg.off = cpu_to_le64(grant->off);
	msg.imm = cpu_to_le32((u32)(u16)(grant->generation + 1) << 16 | index);
	rc = npulink_remote_post_grant(remote, index, &to, grant->len, &msg);
	if (rc)
		return rc;
	grant->generation++;
	grant->summed = false;
	grant->state = NPULINK_GRANT_OUT;
	rs->op->inflight++;
	return 0;
}

/* Grant chunks of a step. -EAGAIN: the transport is full; -EBUSY: wait. */
static int npulink_recv_step(struct npulink_remote *remote, struct npulink_remote_step *rs)
{
	const struct npulink_step *st = &rs->op->plan->steps[rs->step];

	while (rs->granted < st->len) {
		struct npulink_grant *grant = npulink_recv_grant(remote, rs);
		int rc;

		if (!grant)
			return -EBUSY;
		grant->requested = rs->requested;
		grant->step = rs;
		grant->off = rs->granted;
		grant->len = npulink_recv_piece(rs);
		grant->landing = rs->direct ? -1 : ffz(remote->landings);
		grant->good = false;
		grant->twice = false;
		rc = npulink_remote_grant_send(remote, grant);
		if (rc)
			return rc;
		if (grant->landing >= 0)
			remote->landings |= BIT(grant->landing);
		rs->granted += grant->len;
		rs->needs = false;
	}
	return 0;
}

/* Let the peer say what it has data for. -EAGAIN: the transport is full. */
int npulink_remote_open(struct npulink_remote *remote, struct npulink_op *op)
{
	struct npulink_wire_msg msg;
	int rc;

	npulink_remote_msg(remote, &msg, NPULINK_WIRE_OPEN, &op->far->steps[0], false);
	msg.len = 0;
	msg.pos = 0;
	msg.channel = 0;
	rc = npulink_remote_post(remote, &msg, NULL, 0);
	if (!rc)
		npulink_marks_set(&remote->open_sent[op->plan->p2p], op->number);
	return rc;
}

/* What can be granted for a step that wants chunks, else -EBUSY. -EAGAIN: the transport is full. */
static int npulink_recv_look(struct npulink_remote *remote, struct npulink_remote_step *rs)
{
	int rc = rs->op->state == NPULINK_OP_RUNNING ? npulink_recv_step(remote, rs) : 0;

	if (!rc)
		list_del_init(&rs->rx_node);
	else if (rc == -EBUSY && !rs->requested && !npulink_remote_has_told(remote, rs->op) &&
		 npulink_remote_open(remote, rs->op))
		rc = -EAGAIN;
	return rc;
}

/*
 * In the order of remote->rx, so that a step which others wait for keeps what it has been granted.
 * There may be very many: those beyond the first are idle until the peer asks for them, or until
 * there is room for what it has asked for.
 */
void npulink_remote_rx(struct npulink_remote *remote, struct npulink_run *run)
{
	struct npulink_remote_step *rs, *next;
	u32 asked = 0, unasked = 0;
	int rc;

	list_for_each_entry_safe(rs, next, &remote->rx, rx_node) {
		rc = npulink_recv_look(remote, rs);
		if (rc == -EAGAIN)
			return;
		if (!rc)
			continue;
		if (rs->requested ? ++asked <= NPULINK_RX_LOOKS : ++unasked <= NPULINK_RX_LOOKS)
			continue;
		if (npulink_recv_last(rs))
			return;
		rs->idle = true;
		list_move_tail(&rs->rx_node, &remote->rx_idle);
	}
	while (unasked < NPULINK_RX_LOOKS) {
		if (list_empty(&remote->rx_idle))
			return;
		rs = list_first_entry(&remote->rx_idle, struct npulink_remote_step, rx_node);
		npulink_remote_wake_idle(remote, rs);
		rc = npulink_recv_look(remote, rs);
		if (rc == -EAGAIN)
			return;
		unasked += rc == -EBUSY;
	}
}

/* It is looked at from now on. */
void npulink_remote_wake_idle(struct npulink_remote *remote, struct npulink_remote_step *rs)
{
	rs->idle = false;
	list_move_tail(&rs->rx_node, &remote->rx);
}

/* A step without bytes came as a REQ. */
void npulink_remote_arrived_empty(struct npulink_remote *remote, struct npulink_remote_step *rs,
				  struct npulink_run *run)
{
	if (rs->op->far->mirror->cells[rs->step].avail)
		npulink_remote_violation(remote, "step that was sent before");
	else
		npulink_recv_show(rs, 0, run);
}

/* A step came as a message. Returns whether it is kept. */
bool npulink_remote_data(struct npulink_remote *remote, u32 slot,
			 const struct npulink_wire_msg *msg, const struct npulink_call *call,
			 struct npulink_run *run)
{
	bool p2p = msg->flags & NPULINK_WIRE_P2P;
	u64 number = npulink_number_from_wire(msg->number);
	u32 size = le32_to_cpu(msg->size);
	struct npulink_held *held = &remote->held[slot];
	struct npulink_remote_step *rs;
	bool later, bad;

	if (le64_to_cpu(msg->len) != size || remote->held_count == NPULINK_WIRE_CREDITS) {
		npulink_remote_violation(remote, "DATA");
		return false;
	}
	rs = npulink_remote_find(remote, p2p, number, le16_to_cpu(msg->channel),
				 le32_to_cpu(msg->pos), size, call, false, &later, &bad);
	if (!rs && !later) {
		remote->owed++;
		return false;
	}
	/* The same step twice, or as DATA after it was granted. */
	if (rs && (rs->slot >= 0 || rs->granted || rs->op->far->mirror->cells[rs->step].avail)) {
		npulink_remote_violation(remote, "step that was sent before");
		return false;
	}
	if (remote->check && !npulink_check_data(remote, slot, msg, rs)) {
		remote->owed++;
		return false;
	}
	*held = (struct npulink_held) {
		.used = true, .size = size, .len = size, .number = number,
		.pos = le32_to_cpu(msg->pos), .channel = le16_to_cpu(msg->channel), .p2p = p2p,
		.call = *call, .step = rs,
	};
	remote->held_count++;
	if (!rs && !p2p)
		set_bit(number % NPULINK_MAX_INFLIGHT, remote->rank->early);
	if (rs) {
		/* It may have waited for a grant. */
		list_del_init(&rs->rx_node);
		rs->slot = slot;
		npulink_recv_show(rs, size, run);
	}
	return true;
}

/*
 * Has the peer filled @grant before one of the same step whose bytes come earlier? What lands
 * beside its destination waits for those; what is written to it straight is shown as it comes.
 */
static bool npulink_recv_skips(const struct npulink_remote *remote,
			       const struct npulink_grant *grant)
{
	u32 i;

	if (!grant->step->direct)
		return false;
	for (i = 0; i < NPULINK_WIRE_GRANTS; i++) {
		const struct npulink_grant *other = &remote->grants[i];

		if ((other->state == NPULINK_GRANT_OUT || other->state == NPULINK_GRANT_RENEW) &&
		    other->step == grant->step && other->off < grant->off)
			return true;
	}
	return false;
}

void npulink_remote_put_arrived(struct npulink_put *put, u32 imm)
{
	struct npulink_remote *remote = to_remote(put);
	struct npulink_grant *grant = &remote->grants[imm % NPULINK_WIRE_GRANTS];
	struct npulink_rank *rank = remote->rank;
	unsigned long flags;

	spin_lock_irqsave(&rank->lock, flags);
	if (remote->state == NPULINK_REMOTE_UP || remote->state == NPULINK_REMOTE_RESUMING) {
		if (grant->state != NPULINK_GRANT_OUT ||
		    imm != ((u32)grant->generation << 16 | (imm % NPULINK_WIRE_GRANTS))) {
			npulink_remote_violation(remote, "immediate");
		} else if (npulink_recv_skips(remote, grant)) {
			/* Its key is worth something until the connection has gone. */
			npulink_remote_violation(remote, "write that skips bytes");
		} else {
			grant->state = NPULINK_GRANT_REVOKING;
			/* The key of a connection that is lost goes with it. */
			if (remote->state == NPULINK_REMOTE_UP)
				put->transport->revoke(put, imm % NPULINK_WIRE_GRANTS);
		}
	}
	spin_unlock_irqrestore(&rank->lock, flags);
}

/* All bytes of a grant are there, and its key is worth nothing. */
void npulink_remote_grant_landed(struct npulink_remote *remote, struct npulink_grant *grant,
				 struct npulink_run *run)
{
	struct npulink_remote_step *rs = grant->step;

	grant->state = NPULINK_GRANT_LANDED;
	if (rs->direct) {
		u64 shown = grant->off + grant->len;

		npulink_remote_grant_free(remote, grant);
		npulink_recv_show(rs, shown, run);
	} else if (!remote->check) {
		npulink_remote_recv_next(remote, rs, run);
	} else if (grant->summed) {
		npulink_check_chunk(remote, grant, run);
	}
	npulink_remote_op_less(rs->op, run);
}

void npulink_remote_put_revoked(struct npulink_put *put, u32 index)
{
	struct npulink_remote *remote = to_remote(put);
	struct npulink_grant *grant = &remote->grants[index];
	struct npulink_rank *rank = remote->rank;
	unsigned long flags;
	NPULINK_DEFINE_RUN_IRQ(run);

	spin_lock_irqsave(&rank->lock, flags);
	if (grant->state == NPULINK_GRANT_REVOKING)
		npulink_remote_grant_landed(remote, grant, &run);
	npulink_remote_pump(remote, &run);
	spin_unlock_irqrestore(&rank->lock, flags);
	npulink_run(&run);
}
