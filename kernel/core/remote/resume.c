// SPDX-License-Identifier: GPL-2.0
/*
 * resume.c - when the connection under a session is lost, and another one, over other
 * ports, follows it: what is repeated, and what is not.
 *
 * Why nothing is applied twice, and nothing is missed:
 *
 * - No two connections of a session are alive at a time. Before a rank says where it is
 *   (npulink_put_where()), its queue pair of the old connection is in its error state, all that
 *   had been acknowledged over it was handled, and its keys are worth nothing: the transport calls
 *   npulink_put_halted() after that, and a rank is called, or calls, only then. So what is under
 *   way on the old one reaches nothing.
 * - Messages have numbers, and are taken in their order, each once: a rank says how many it has
 *   taken, the other one repeats from there, with the same numbers. A message is kept in its slot
 *   until the peer's device has acknowledged it; as the peer handles all that its device has
 *   acknowledged before it says where it is, what it lacks is still there. If it is not, that is
 *   seen (npulink_resume_messages()), and the session fails.
 * - A chunk that was granted has arrived when its last write, with its number, has. Then it is
 *   shown to the sequencer, once, since the grant's state changes with that. Until then nobody
 *   reads it, so that it may be written again, in whole or in part. A rank says which
 *   grants are not filled; what was written to others has arrived, acknowledged or not. Those
 *   that are not are granted anew, with another key and another number, the old key having gone
 *   with the connection.
 * - Who sends lets go of the bytes of a chunk only when its last write was acknowledged, so what
 *   may have to be written again is unchanged, also in place. Only out of a window, which is used
 *   again before a chunk is complete, they go as each write is acknowledged; then only
 *   the rest is written again, to the same memory. This relies on a device's not acknowledging a
 *   write that it then does not carry out. If a rank asks for what the other one has let go of, the
 *   session fails (npulink_remote_released()).
 * - All else (credits, what was asked for, checksums that are due) is said in messages.
 *
 * session.pml is a model of it.
 */
#include "base/notify.h"
#include "comm/comm.h"
#include "file/buf.h"
#include "remote/remote.h"
#include "run/op.h"
#include "run/run.h"

/*
 * The connection of @rank and @peer at @ip over @port is lost, and another one is looked for, or
 * it was found there. Any context but NMI.
 */
static void npulink_notify_port(const struct npulink_rank *rank, u32 peer, const u8 *ip,
				const char *port, bool lost)
{
	struct npulink_notice notice = NPULINK_NOTICE(lost ? NPULINK_EVENT_PORT_LOST :
							     NPULINK_EVENT_PORT_NEXT);

	notice.dev = rank->dev->id;
	notice.comm = rank->comm->serial;
	notice.rank = rank->rank;
	notice.peer = peer;
	memcpy(notice.ip, ip, sizeof(notice.ip));
	strscpy(notice.port, port, sizeof(notice.port));
	notice.place_net = npulink_rank_net(rank);
	npulink_comm_notify(rank->comm, &notice);
}

/* ---- the connection is lost ------------------------------------------------------------- */

bool npulink_remote_put_broken(struct npulink_put *put, int status)
{
	struct npulink_remote *remote = to_remote(put);
	struct npulink_rank *rank = remote->rank;
	unsigned long flags;
	bool again;

	spin_lock_irqsave(&rank->lock, flags);
	/* Of a communicator that has failed, others will tell the peer. */
	again = (remote->state == NPULINK_REMOTE_UP ||
		 remote->state == NPULINK_REMOTE_RESUMING) && !READ_ONCE(rank->comm->failed);
	if (again && remote->state == NPULINK_REMOTE_UP) {
		npulink_remote_set_state(remote, NPULINK_REMOTE_RESUMING);
		memcpy(remote->lost_ip, put->addr.ip, sizeof(remote->lost_ip));
		strscpy(remote->lost_port, put->via, sizeof(remote->lost_port));
		dev_warn_ratelimited(&rank->dev->dev,
				     "rank %u has lost rank %u at %pI6c over %s, error %d, and tries other ports\n",
				     rank->rank, put->peer, remote->lost_ip, remote->lost_port,
				     -status);
	}
	spin_unlock_irqrestore(&rank->lock, flags);
	return again;
}

/* The grant of those in @state whose bytes come first. */
static struct npulink_grant *npulink_resume_first(struct npulink_remote *remote, u8 state)
{
	struct npulink_grant *first = NULL;
	u32 i;

	for (i = 0; i < NPULINK_WIRE_GRANTS; i++) {
		struct npulink_grant *grant = &remote->grants[i];

		if (grant->state == state && (!first || grant->off < first->off))
			first = grant;
	}
	return first;
}

/* What had arrived, and waited for its key to be taken back: the connection has gone with that. */
void npulink_remote_land(struct npulink_remote *remote, struct npulink_run *run)
{
	struct npulink_grant *grant;

	/* In the order of their bytes: the sequencer is shown how far they go. */
	while ((grant = npulink_resume_first(remote, NPULINK_GRANT_REVOKING)))
		npulink_remote_grant_landed(remote, grant, run);
}

void npulink_remote_put_halted(struct npulink_put *put)
{
	struct npulink_remote *remote = to_remote(put);
	struct npulink_rank *rank = remote->rank;
	struct npulink_grant *grant;
	unsigned long flags;
	u32 i;
	NPULINK_DEFINE_RUN_IRQ(run);

	spin_lock_irqsave(&rank->lock, flags);
	if (remote->state != NPULINK_REMOTE_RESUMING)
		goto out;
	npulink_notify_port(rank, put->peer, remote->lost_ip, remote->lost_port, true);
	npulink_remote_land(remote, &run);
	while ((grant = npulink_resume_first(remote, NPULINK_GRANT_OUT))) {
		grant->state = NPULINK_GRANT_RENEW;
		remote->renew = true;
		npulink_remote_op_less(grant->step->op, &run);
	}
	/* The peer's keys have gone as well. What is filled may still owe a sum. */
	for (i = 0; i < NPULINK_WIRE_GRANTS; i++)
		if (!remote->check || remote->offers[i].sent < remote->offers[i].len)
			remote->offers[i].state = NPULINK_OFFER_FREE;
out:
	spin_unlock_irqrestore(&rank->lock, flags);
	npulink_run(&run);
}

/* ---- where the two are ------------------------------------------------------------------- */

void npulink_remote_put_where(struct npulink_put *put, struct npulink_wire_place *place)
{
	struct npulink_remote *remote = to_remote(put);
	unsigned long flags;
	u16 out = 0;
	u32 i;

	memset(place, 0, sizeof(*place));
	spin_lock_irqsave(&remote->rank->lock, flags);
	place->seq = cpu_to_le32(remote->rx_seq);
	for (i = 0; i < NPULINK_WIRE_GRANTS; i++) {
		place->generation[i] = cpu_to_le16(remote->grants[i].generation);
		if (remote->grants[i].state == NPULINK_GRANT_RENEW)
			out |= BIT(i);
	}
	place->out = cpu_to_le16(out);
	spin_unlock_irqrestore(&remote->rank->lock, flags);
}

/* Has all that was written to the grant with that number arrived? */
static bool npulink_resume_landed(const struct npulink_wire_place *place, u32 imm)
{
	u32 i = imm % NPULINK_WIRE_GRANTS;

	return !(le16_to_cpu(place->out) & BIT(i)) ||
	       le16_to_cpu(place->generation[i]) != imm >> 16;
}

/* The message in slot @slot of those to send from. */
static struct npulink_wire_msg *npulink_resume_slot(struct npulink_remote *remote, u32 slot)
{
	struct npulink_operand at = {
		.buf = remote->put.buf, .off = (NPULINK_PUT_RX + slot) * NPULINK_WIRE_SLOT,
	};

	return npulink_operand_va(&at);
}

/*
 * Prepare what is to be repeated: what is worth nothing any more is replaced by what says nothing.
 * False: the peer lacks what we have no more, or claims to have what was never sent.
 */
static bool npulink_resume_messages(struct npulink_remote *remote,
				    const struct npulink_wire_place *place)
{
	u32 seq = le32_to_cpu(place->seq), found = 0, i;

	for (i = 0; i < NPULINK_PUT_TX; i++) {
		struct npulink_wire_msg *msg = npulink_resume_slot(remote, i);
		u32 n;

		if (remote->put.tx_free & BIT(i))
			continue;
		n = le32_to_cpu(msg->seq);
		if ((s32)(n - seq) < 0)
			continue;
		/* A goodbye that waits has the number that is next. */
		found += n != remote->tx_seq;
		if (msg->type == NPULINK_WIRE_GRANT ||
		    (msg->type == NPULINK_WIRE_SUM &&
		     !npulink_resume_landed(place, le32_to_cpu(msg->imm))))
			*msg = (struct npulink_wire_msg) {
				.type = NPULINK_WIRE_CREDIT, .credits = msg->credits,
				.seq = msg->seq,
			};
	}
	return found == remote->tx_seq - seq;
}

static void npulink_resume_writes(struct npulink_remote *remote,
				  const struct npulink_wire_place *place, struct npulink_run *run)
{
	u32 i;

	for (i = 0; i < NPULINK_PUT_WRITES; i++) {
		struct npulink_write *w = &remote->writes[i];

		if (!w->step)
			continue;
		if (npulink_resume_landed(place, w->imm))
			npulink_remote_write_arrived(remote, w, run);
		w->step = NULL;
	}
	/* Of those that are filled, for which the sum is due. */
	for (i = 0; i < NPULINK_WIRE_GRANTS; i++)
		if (!npulink_resume_landed(place, remote->offers[i].imm))
			remote->offers[i].state = NPULINK_OFFER_FREE;
}

/* ---- it goes on ---------------------------------------------------------------------------- */

/* The peer lacks bytes that we have let go of. */
void npulink_remote_released(struct npulink_remote *remote)
{
	if (READ_ONCE(remote->rank->comm->failed))
		return;
	npulink_remote_violation(remote, "grant for what it has");
}

/* Grant anew what was not filled. False: the transport is full. */
bool npulink_remote_renew(struct npulink_remote *remote)
{
	struct npulink_grant *grant;

	if (likely(!remote->renew))
		return true;
	/* By their bytes, as each step's are sent in that order. */
	while ((grant = npulink_resume_first(remote, NPULINK_GRANT_RENEW))) {
		if (grant->step->op->state != NPULINK_OP_RUNNING)
			return true;
		if (npulink_remote_grant_send(remote, grant))
			return false;
	}
	remote->renew = false;
	return true;
}

void npulink_remote_put_up(struct npulink_put *put, const struct npulink_wire_place *place)
{
	struct npulink_remote *remote = to_remote(put);
	struct npulink_rank *rank = remote->rank;
	struct npulink_wire_msg bye;
	bool resuming;
	unsigned long flags;
	NPULINK_DEFINE_RUN_IRQ(run);

	spin_lock_irqsave(&rank->lock, flags);
	resuming = remote->state == NPULINK_REMOTE_RESUMING;
	if (!resuming && remote->state != NPULINK_REMOTE_CONNECTING) {
		/* It has failed meanwhile. The peer can be told, behind what it has not got. */
		put->transport->resend(put, le32_to_cpu(place->seq));
		goto out;
	}
	npulink_remote_set_state(remote, NPULINK_REMOTE_UP);
	if (!npulink_resume_messages(remote, place)) {
		npulink_remote_violation(remote, "place");
		goto out;
	}
	npulink_resume_writes(remote, place, &run);
	remote->full = remote->shut;
	put->transport->resend(put, le32_to_cpu(place->seq));
	if (resuming) {
		remote->switches++;
		dev_notice_ratelimited(&rank->dev->dev,
				       "rank %u goes on with rank %u at %pI6c over %s\n",
				       rank->rank, put->peer, put->addr.ip, put->via);
		npulink_notify_port(rank, put->peer, put->addr.ip, put->via, false);
	} else if (remote->shut && !READ_ONCE(rank->comm->failed)) {
		/* We left while it came up: without a word that is a lost connection to it. */
		npulink_remote_msg(remote, &bye, NPULINK_WIRE_BYE, NULL, false);
		npulink_remote_stamp(remote, &bye);
		put->transport->shut(put, &bye, NULL, 0);
	}
	npulink_remote_pump(remote, &run);
out:
	spin_unlock_irqrestore(&rank->lock, flags);
	npulink_run(&run);
	/* It may have failed before there was anybody to tell. */
	if (READ_ONCE(rank->comm->failed))
		npulink_remote_abort(rank);
}
