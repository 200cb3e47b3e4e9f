// SPDX-License-Identifier: GPL-2.0
/*
 * send.c - from what the own rank publishes to the memory of a remote peer.
 */
#include "comm/comm.h"
#include "file/file.h"
#include "plan/plan.h"
#include "remote/remote.h"
#include "run/checksum.h"
#include "run/op.h"
#include "run/run.h"

/* Does a step send out of a window, which is used again as the peer gets what is in it? */
static bool npulink_send_windowed(const struct npulink_remote_step *rs)
{
	const struct npulink_step *st = &rs->op->plan->steps[rs->step];

	return st->op != NPULINK_STEP_SEND && st->flags & NPULINK_STEP_F_TRANSIENT &&
	       st->src2_off;
}

/* Where byte @off of what a step sends is, and up to where it lies in one piece. */
static void npulink_send_operand(const struct npulink_remote_step *rs, u64 off,
				 struct npulink_operand *o, u64 *piece)
{
	const struct npulink_step *st = &rs->op->plan->steps[rs->step];
	u8 slot = st->dst_slot;
	u64 base = st->dst_off;

	*piece = st->len - off;
	if (st->op == NPULINK_STEP_SEND) {
		slot = st->src_slot;
		base = st->src_off;
	} else if (npulink_send_windowed(rs)) {
		*piece = min(*piece, st->src2_off - off % st->src2_off);
		off %= st->src2_off;
	}
	/* The operation keeps its buffers as long as it has something in flight. */
	o->buf = rs->op->binds[slot].buf;
	o->off = rs->op->binds[slot].off + base + off;
}

/* The peer may have all bytes of @rs out of a window, but not yet the sum of the last of them. */
static bool npulink_send_owes(const struct npulink_remote *remote,
			      const struct npulink_remote_step *rs)
{
	u32 i;

	/* Who has left in good order has needed no more. */
	if (!remote->check || rs->kept || remote->left)
		return false;
	for (i = 0; i < NPULINK_WIRE_GRANTS; i++) {
		const struct npulink_offer *offer = &remote->offers[i];

		if (offer->state && offer->step == rs && offer->sent == offer->len)
			return true;
	}
	return false;
}

/* How far the engine may overwrite what was sent; the step ends when nothing is owed, either. */
void npulink_remote_send_show(struct npulink_remote *remote, struct npulink_remote_step *rs,
			      struct npulink_run *run)
{
	u64 len = rs->op->plan->steps[rs->step].len;
	bool over = rs->acked == len && !npulink_send_owes(remote, rs);

	remote->sent_steps += over;
	/* They have been read: the engine may overwrite them. */
	smp_store_release(&rs->op->cells[rs->step].taken, over ? len + 1 : rs->acked);
	npulink_remote_ring(rs, run);
}

void npulink_remote_send_acked(struct npulink_remote *remote, struct npulink_remote_step *rs,
			       u64 bytes, struct npulink_run *run)
{
	rs->acked += bytes;
	remote->sent_bytes += bytes;
	npulink_remote_send_show(remote, rs, run);
}

static struct npulink_offer *npulink_send_offer(struct npulink_remote *remote,
						const struct npulink_remote_step *rs)
{
	struct npulink_offer *found = NULL;
	u32 i;

	for (i = 0; i < NPULINK_WIRE_GRANTS; i++) {
		struct npulink_offer *offer = &remote->offers[i];

		if (!offer->state || offer->step != rs)
			continue;
		/* A sum that is missing, or what is sent again; else the next bytes. */
		if (offer->twice || offer->sent == offer->len)
			return offer;
		if (offer->off + offer->sent == rs->sent)
			found = offer;
	}
	return found;
}

static struct npulink_write *npulink_send_record(struct npulink_remote *remote)
{
	u32 i;

	for (i = 0; i < NPULINK_PUT_WRITES; i++)
		if (!remote->writes[i].step)
			return &remote->writes[i];
	return NULL;
}

/* Fill what the peer has offered. 0: no more for now; -EAGAIN: the transport is full. */
static int npulink_send_write(struct npulink_remote *remote, struct npulink_remote_step *rs,
			      u64 avail, struct npulink_run *run)
{
	u64 len_all = rs->op->plan->steps[rs->step].len;
	struct npulink_offer *offer;
	struct npulink_operand from;
	struct npulink_write *w;
	u64 piece;
	bool last;
	int rc;

	while ((offer = npulink_send_offer(remote, rs))) {
		u64 at = offer->off + offer->sent;

		last = offer->sent == offer->len;
		if (last) {
			if (npulink_check_send_sum(remote, offer))
				return -EAGAIN;
			offer->state = NPULINK_OFFER_FREE;
			/* It may have been all that was missing. */
			if (!rs->kept && rs->acked == len_all)
				npulink_remote_send_show(remote, rs, run);
			continue;
		}
		if (avail <= at)
			break;
		w = npulink_send_record(remote);
		/* The end of one of those under way brings us back. */
		if (!w)
			return -EAGAIN;
		npulink_send_operand(rs, at, &from, &piece);
		piece = min3(piece, avail - at, (u64)offer->len - offer->sent);
		last = offer->sent + piece == offer->len;
		rc = remote->put.transport->write(&remote->put, w, &from, piece,
						  offer->addr + offer->sent, offer->rkey, last,
						  offer->imm);
		if (rc) {
			remote->full = true;
			return -EAGAIN;
		}
		if (remote->check)
			offer->crc = npulink_operand_crc_add(offer->crc, &from, piece);
		*w = (struct npulink_write) {
			.step = rs, .end = at + piece, .len = piece, .imm = offer->imm,
			.crc = offer->crc, .last = last,
		};
		rs->op->inflight++;
		rs->writes++;
		offer->sent += piece;
		if (!offer->twice)
			rs->sent += piece;
		rs->done = rs->sent == len_all;
		/* Its number comes back to us no earlier than the peer has got all. */
		if (last && !remote->check)
			offer->state = NPULINK_OFFER_FREE;
	}
	return 0;
}

/*
 * Send what there is of a step. 0: wait for its next bell, grant or REQ; -EBUSY: wait
 * for credits; -EAGAIN: the transport is full.
 */
static int npulink_send_step(struct npulink_remote *remote, struct npulink_remote_step *rs,
			     struct npulink_run *run)
{
	const struct npulink_op *op = rs->op;
	const struct npulink_plan *plan = op->plan;
	u64 len = plan->steps[rs->step].len;
	u64 avail = op->cells[rs->step].avail;
	struct npulink_wire_msg msg;
	struct npulink_operand from;
	bool opened;
	u64 piece;
	int rc;

	if (!avail || op->state != NPULINK_OP_RUNNING || (rs->done && !remote->check))
		return 0;
	avail--;
	rc = npulink_send_write(remote, rs, avail, run);
	if (rc || rs->done)
		return rc;
	opened = npulink_marks_have(&remote->opened[plan->p2p], op->number);
	if (rs->sent) {
		/* It has been given all that it was granted, and what it was given has arrived. */
		if (!opened || rs->writes || avail <= rs->sent)
			return 0;
	} else if (len <= NPULINK_WIRE_EAGER && !rs->reqed) {
		npulink_send_operand(rs, 0, &from, &piece);
		if (avail == len && piece == len && remote->credits) {
			npulink_remote_msg(remote, &msg, NPULINK_WIRE_DATA, rs, true);
			if (remote->check)
				msg.sum = cpu_to_le32(npulink_operand_crc(&from, len));
			if (rs->twice)
				msg.flags |= NPULINK_WIRE_TWICE;
			rc = npulink_remote_post(remote, &msg, &from, len);
			if (rc)
				return rc;
			remote->credits--;
			rs->sent = len;
			rs->done = true;
			if (!rs->kept)
				npulink_remote_send_acked(remote, rs, len, run);
			return 0;
		}
		if (avail == len && piece == len && !opened)
			return -EBUSY;
	} else if (!opened) {
		return 0;
	}
	if (rs->asked)
		return 0;
	npulink_remote_msg(remote, &msg, NPULINK_WIRE_REQ, rs, true);
	rc = npulink_remote_post(remote, &msg, NULL, 0);
	if (rc)
		return rc;
	rs->asked = true;
	rs->reqed = true;
	/* Of no bytes, this is all there is to say. */
	if (!len) {
		rs->done = true;
		npulink_remote_send_acked(remote, rs, 0, run);
	}
	return 0;
}

void npulink_remote_tx(struct npulink_remote *remote, struct npulink_run *run)
{
	struct npulink_remote_step *rs, *next;

	list_for_each_entry_safe(rs, next, &remote->tx, tx_node) {
		int rc = npulink_send_step(remote, rs, run);

		if (rc == -EAGAIN)
			return;
		if (rc)
			list_move_tail(&rs->tx_node, &remote->tx_credit);
		else
			list_del_init(&rs->tx_node);
	}
	/* There may be very many: those who wait for the same are not asked one by one. */
	list_for_each_entry_safe(rs, next, &remote->tx_credit, tx_node) {
		if (!remote->credits || npulink_send_step(remote, rs, run))
			return;
		list_del_init(&rs->tx_node);
	}
}

/* Have we all that the peer has no more been given, as its connection was lost? */
static bool npulink_send_may_renew(const struct npulink_remote_step *rs,
				   const struct npulink_wire_msg *msg, bool twice)
{
	u64 off = le64_to_cpu(msg->off);

	if (!rs)
		return false;
	if (twice)
		return true;
	return npulink_send_windowed(rs) ? off + le32_to_cpu(msg->size) > rs->acked :
					   off >= rs->acked;
}

/*
 * Send the bytes of @offer again: all of them; or out of a window, from where they may have
 * been overwritten on, for which the peer's device has acknowledged those before.
 */
static void npulink_send_rewind(struct npulink_remote_step *rs, struct npulink_offer *offer)
{
	rs->sent = min(rs->sent, offer->off);
	if (npulink_send_windowed(rs) && rs->acked > offer->off) {
		rs->sent = rs->acked;
		offer->sent = rs->acked - offer->off;
		offer->crc = rs->crc;
	}
	rs->done = false;
}

/* The peer has granted us memory. */
void npulink_remote_offer(struct npulink_remote *remote, const struct npulink_wire_msg *msg,
			  const struct npulink_call *call, struct npulink_run *run)
{
	u32 imm = le32_to_cpu(msg->imm);
	u32 index = imm % NPULINK_WIRE_GRANTS;
	struct npulink_offer *offer = &remote->offers[index];
	bool p2p = msg->flags & NPULINK_WIRE_P2P;
	u64 offer_end = le64_to_cpu(msg->off) + le32_to_cpu(msg->size);
	u64 number = npulink_number_from_wire(msg->number);
	bool twice = msg->flags & NPULINK_WIRE_TWICE;
	bool renewed = msg->flags & NPULINK_WIRE_RENEWED;
	struct npulink_remote_step *rs;
	bool later, bad;

	if (offer->state) {
		npulink_remote_violation(remote, "grant that is in use");
		return;
	}
	rs = npulink_remote_find(remote, p2p, number, le16_to_cpu(msg->channel),
				 le32_to_cpu(msg->pos), le64_to_cpu(msg->len), call, true,
				 &later, &bad);
	/* Damaged, and what was not kept may be over already. */
	if (twice && !later && !bad && (!rs || !rs->kept)) {
		npulink_check_lost(remote, number);
		return;
	}
	if (renewed && !later && !bad && !npulink_send_may_renew(rs, msg, twice)) {
		npulink_remote_released(remote);
		return;
	}
	if (!rs && !later)
		return;
	if (rs && !twice && !renewed && le64_to_cpu(msg->off) < rs->sent) {
		npulink_remote_violation(remote, "grant for what was sent");
		return;
	}
	/* What was sent to it went over a connection that is no more: how far is known. */
	if (renewed && !twice && rs && !rs->kept && rs->writes &&
	    le64_to_cpu(msg->off) < rs->sent) {
		npulink_remote_violation(remote, "renewed grant");
		return;
	}
	if (twice && (!rs || offer_end > rs->sent || le64_to_cpu(msg->off) < rs->good)) {
		npulink_remote_violation(remote, "grant for what was not sent");
		return;
	}
	*offer = (struct npulink_offer) {
		.state = NPULINK_OFFER_HELD, .p2p = p2p, .twice = twice,
		.crc = NPULINK_CRC_INIT, .channel = le16_to_cpu(msg->channel),
		.pos = le32_to_cpu(msg->pos), .imm = imm, .rkey = le32_to_cpu(msg->rkey),
		.len = le32_to_cpu(msg->size), .number = number,
		.addr = le64_to_cpu(msg->addr), .off = le64_to_cpu(msg->off),
		.step_len = le64_to_cpu(msg->len), .call = *call, .step = rs,
	};
	if (!rs && !p2p)
		set_bit(offer->number % NPULINK_MAX_INFLIGHT, remote->rank->early);
	if (renewed && rs && !twice && offer->off < rs->sent)
		npulink_send_rewind(rs, offer);
	if (rs) {
		/* When this is full, too, it asks again. */
		rs->asked = false;
		list_move_tail(&rs->tx_node, &remote->tx);
	}
}

/*
 * A write has arrived. The peer's device says so of each, but only the last one of a grant is told
 * to the peer itself; until then all of the grant may have to be sent again, and is kept, as far
 * as there is room.
 */
void npulink_remote_write_arrived(struct npulink_remote *remote, struct npulink_write *w,
				  struct npulink_run *run)
{
	struct npulink_remote_step *rs = w->step;

	if (rs->kept) {
		npulink_check_settle(remote, rs, run);
	} else if (npulink_send_windowed(rs)) {
		rs->crc = w->crc;
		npulink_remote_send_acked(remote, rs, w->len, run);
	} else if (w->last && w->end > rs->acked) {
		npulink_remote_send_acked(remote, rs, w->end - rs->acked, run);
	}
}

/* A peer that has left in good order has got all, if it could not say so any more. */
static void npulink_send_left(struct npulink_remote *remote, struct npulink_remote_step *rs,
			      struct npulink_run *run)
{
	u64 rest = rs->sent - rs->acked;

	if (remote->left && !rs->kept && rs->done && !rs->writes && rest)
		npulink_remote_send_acked(remote, rs, rest, run);
}

/* There will be no connection any more that says what has become of them. */
void npulink_remote_writes_down(struct npulink_remote *remote, struct npulink_run *run)
{
	u32 i;

	for (i = 0; i < NPULINK_PUT_WRITES; i++) {
		struct npulink_remote_step *rs = remote->writes[i].step;

		remote->writes[i].step = NULL;
		if (rs)
			npulink_send_left(remote, rs, run);
	}
}

void npulink_remote_put_written(struct npulink_put *put, void *cookie, u32 len)
{
	struct npulink_remote *remote = to_remote(put);
	struct npulink_rank *rank = remote->rank;
	struct npulink_write *w = cookie;
	struct npulink_remote_step *rs;
	struct npulink_op *op;
	unsigned long flags;
	NPULINK_DEFINE_RUN_IRQ(run);

	spin_lock_irqsave(&rank->lock, flags);
	/* Who posts it fills it in afterwards, under this lock, when it may have ended. */
	rs = w->step;
	op = rs->op;
	rs->writes--;
	if (len) {
		npulink_remote_write_arrived(remote, w, &run);
		w->step = NULL;
	} else {
		w->unsure = true;
		if (rs->kept)
			npulink_check_settle(remote, rs, &run);
		npulink_send_left(remote, rs, &run);
	}
	/* It may have to ask for more. */
	if (!rs->writes && !rs->done && list_empty(&rs->tx_node) &&
	    (remote->state == NPULINK_REMOTE_UP || remote->state == NPULINK_REMOTE_RESUMING))
		list_add_tail(&rs->tx_node, &remote->tx);
	npulink_remote_op_less(op, &run);
	npulink_remote_pump(remote, &run);
	spin_unlock_irqrestore(&rank->lock, flags);
	npulink_run(&run);
}
