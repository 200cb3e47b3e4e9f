// SPDX-License-Identifier: GPL-2.0
/*
 * msg.c - messages: what we say, and what to do about what the peer says. Nothing of
 * that is believed before it was checked.
 */
#include <npulink/verify.h>
#include "base/clock.h"
#include "comm/comm.h"
#include "comm/cause.h"
#include "file/buf.h"
#include "file/file.h"
#include "plan/plan.h"
#include "remote/remote.h"
#include "run/op.h"
#include "run/run.h"

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
	msg->number = npulink_number_to_wire(rs->op->number);
	npulink_call_to_wire(&msg->call, &plan->call);
	msg->len = cpu_to_le64(plan->steps[rs->step].len);
	msg->pos = cpu_to_le32(send ? pos->send_pos : pos->recv_pos);
	msg->channel = cpu_to_le16(plan->steps[rs->step].channel);
}

/* What every message says besides. */
void npulink_remote_stamp(struct npulink_remote *remote, struct npulink_wire_msg *msg)
{
	msg->seq = cpu_to_le32(remote->tx_seq);
	/* There is room for as many answers as there are credits. */
	msg->credits = cpu_to_le16(remote->nanswers ? 0 : remote->owed);
}

static void npulink_remote_stamped(struct npulink_remote *remote,
				   const struct npulink_wire_msg *msg)
{
	remote->tx_seq++;
	remote->owed -= le16_to_cpu(msg->credits);
}

int npulink_remote_post(struct npulink_remote *remote, struct npulink_wire_msg *msg,
			const struct npulink_operand *from, u32 len)
{
	int rc;

	lockdep_assert_held(&remote->rank->lock);
	if (remote->full || remote->state == NPULINK_REMOTE_RESUMING)
		return -EAGAIN;
	npulink_remote_stamp(remote, msg);
	msg->size = cpu_to_le32(len);
	rc = remote->put.transport->send(&remote->put, msg, from, len);
	if (rc) {
		remote->full = true;
		return -EAGAIN;
	}
	npulink_remote_stamped(remote, msg);
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
	npulink_remote_stamped(remote, msg);
	return 0;
}

/* Go on with whatever can go on. */
void npulink_remote_pump(struct npulink_remote *remote, struct npulink_run *run)
{
	struct npulink_wire_msg msg;

	lockdep_assert_held(&remote->rank->lock);
	if (remote->state != NPULINK_REMOTE_UP || remote->full)
		return;
	if (!npulink_remote_renew(remote) || (remote->check && !npulink_check_pump(remote)))
		return;
	npulink_remote_rx(remote, run);
	npulink_remote_tx(remote, run);
	if (remote->owed >= NPULINK_WIRE_CREDITS / 2) {
		npulink_remote_msg(remote, &msg, NPULINK_WIRE_CREDIT, NULL, false);
		npulink_remote_post(remote, &msg, NULL, 0);
	}
}

/* The peer has steps that it could not grant for: tell it which of them have data. */
static void npulink_remote_opened(struct npulink_remote *remote, const struct npulink_wire_msg *msg,
				  const struct npulink_call *call, struct npulink_run *run)
{
	bool p2p = msg->flags & NPULINK_WIRE_P2P;
	u64 number = npulink_number_from_wire(msg->number), now;
	u32 at = number % NPULINK_MAX_INFLIGHT, i, k;
	struct npulink_marks *opened = &remote->opened[p2p];
	struct npulink_remote_step *rs;
	const struct npulink_plan *plan;
	struct npulink_op *op;
	bool later, bad, again;
	u64 next;

	rs = npulink_remote_find(remote, p2p, number, 0, ~0U, 0, call, true, &later, &bad);
	/* Too far ahead to be noted: when those before it are over, it asks again. */
	next = p2p ? remote->conn->p2p_next[true] : remote->rank->next;
	if (!rs && later && number - next >= NPULINK_MAX_INFLIGHT)
		return;
	/* Nobody comes back to what is over for it. */
	if ((!rs && !later) || npulink_marks_passed(opened, number))
		return;
	again = npulink_marks_have(opened, number);
	npulink_marks_set(opened, number);
	if (!rs)
		return;
	/* Looking costs time, and what has data says so by itself once it was asked for. */
	now = npulink_clock();
	if (again && now - remote->opened_ns[p2p][at] < NPULINK_TICK_MS * NSEC_PER_MSEC / 4)
		return;
	remote->opened_ns[p2p][at] = now;
	op = rs->op;
	plan = op->plan;
	for (i = 0; i < plan->nstreams; i++) {
		const struct npulink_stream *s = &plan->streams[i];

		if (!s->send || plan->peers[s->peer].conn != remote->conn)
			continue;
		for (k = 0; k < s->count; k++) {
			rs = &op->far->steps[plan->stream_steps[s->start + k]];
			rs->asked = false;
			if (!op->cells[rs->step].avail || rs->done)
				continue;
			/* Also those that have waited for credits: they may ask now. */
			if (list_empty(&rs->tx_node) ||
			    (!rs->reqed && plan->steps[rs->step].len <= NPULINK_WIRE_EAGER))
				list_move_tail(&rs->tx_node, &remote->tx);
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

	rs = npulink_remote_find(remote, msg->flags & NPULINK_WIRE_P2P,
				 npulink_number_from_wire(msg->number),
				 le16_to_cpu(msg->channel), le32_to_cpu(msg->pos),
				 le64_to_cpu(msg->len), call, false, &later, &bad);
	if (!rs || rs->slot >= 0)
		return;
	if (!msg->len) {
		/* Nothing to grant: it has come, without a credit for a message. */
		npulink_remote_arrived_empty(remote, rs, run);
		return;
	}
	rs->requested = true;
	/* One that is on its way to the peer may be what it asks for. If not, it asks again. */
	rs->needs = !npulink_recv_granted(remote, rs);
	if (rs->idle && !list_empty(&rs->rx_node))
		npulink_remote_wake_idle(remote, rs);
	npulink_remote_want_step(rs->op, rs->step, run);
}

static void npulink_remote_aborted(struct npulink_remote *remote, const void *payload, u32 size)
{
	struct npulink_cause cause;
	const char *wrong = "size of ABORT";

	if (size == sizeof(struct npulink_wire_cause))
		wrong = npulink_cause_from_wire(&cause, payload, remote->rank->comm->nranks);
	if (wrong)
		npulink_remote_violation(remote, wrong);
	else
		npulink_comm_fail(remote->rank->comm, &cause);
}

static void npulink_remote_bye(struct npulink_remote *remote, struct npulink_run *run)
{
	npulink_remote_set_state(remote, NPULINK_REMOTE_LEFT);
	remote->left = true;
	if (remote->check)
		npulink_check_bye(remote, run);
	npulink_remote_fail_missed(remote);
}

/* Is @msg, which came with @size bytes behind it, what a message may be? */
static const char *npulink_remote_check(const struct npulink_remote *remote,
					const struct npulink_wire_msg *msg, u32 size)
{
	bool asks = msg->type == NPULINK_WIRE_ASK || msg->type == NPULINK_WIRE_STATUS;
	bool check = msg->type >= NPULINK_WIRE_GOOD && msg->type <= NPULINK_WIRE_SUM;
	bool step = msg->type <= NPULINK_WIRE_AGAIN;
	u8 flags = step ? NPULINK_WIRE_P2P : asks ? NPULINK_WIRE_P2P | NPULINK_WIRE_SENDS : 0;

	if (!msg->type || msg->type >= NPULINK_WIRE_TYPES || (check && !remote->check))
		return "type";
	if (remote->check && (msg->type == NPULINK_WIRE_DATA || msg->type == NPULINK_WIRE_GRANT))
		flags |= NPULINK_WIRE_TWICE;
	if (msg->type == NPULINK_WIRE_GRANT)
		flags |= NPULINK_WIRE_RENEWED;
	if (msg->flags & ~flags)
		return "flags";
	if (le32_to_cpu(msg->seq) != remote->rx_seq)
		return "sequence number";
	if (remote->credits + le16_to_cpu(msg->credits) > NPULINK_WIRE_CREDITS)
		return "credits";
	if (asks)
		return size ? "payload" : npulink_remote_check_ask(remote, msg);
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
	} else if (msg->addr || msg->rkey || (msg->off && msg->type != NPULINK_WIRE_GOOD) ||
		   (msg->imm && msg->type != NPULINK_WIRE_SUM)) {
		return "unused members";
	}
	if (msg->sum && !(remote->check && (msg->type == NPULINK_WIRE_DATA ||
					    msg->type == NPULINK_WIRE_SUM)))
		return "unused members";
	if (step && le64_to_cpu(msg->len) > NPULINK_MAX_LEN)
		return "length";
	/* That is how we ask for an operation as a whole, see npulink_remote_find(). */
	if (step && le32_to_cpu(msg->pos) == ~0U)
		return "position";
	return NULL;
}

bool npulink_remote_put_recv(struct npulink_put *put, u32 slot, u32 len)
{
	struct npulink_remote *remote = to_remote(put);
	struct npulink_rank *rank = remote->rank;
	struct npulink_operand at = { .buf = put->buf, .off = slot * NPULINK_WIRE_SLOT };
	const void *bytes = npulink_operand_va(&at);
	struct npulink_wire_msg msg;
	struct npulink_call call;
	unsigned long flags;
	const char *wrong;
	bool keep = false;
	NPULINK_DEFINE_RUN_IRQ(run);

	spin_lock_irqsave(&rank->lock, flags);
	/* What had come over a connection that is lost, but was acknowledged, is taken as well. */
	if (remote->state != NPULINK_REMOTE_UP && remote->state != NPULINK_REMOTE_RESUMING)
		goto out;
	/* We are leaving: it is only counted, for the case that our goodbye has to be repeated. */
	if (remote->shut) {
		remote->rx_seq++;
		goto out;
	}
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
	case NPULINK_WIRE_GOOD:
		npulink_check_was_good(remote, &msg, &call, &run);
		break;
	case NPULINK_WIRE_AGAIN:
		npulink_check_was_bad(remote, &msg, &call);
		break;
	case NPULINK_WIRE_SUM:
		npulink_check_sum(remote, &msg, &run);
		break;
	case NPULINK_WIRE_CREDIT:
		break;
	case NPULINK_WIRE_ABORT:
		npulink_remote_aborted(remote, bytes + sizeof(msg), len - sizeof(msg));
		break;
	case NPULINK_WIRE_BYE:
		npulink_remote_bye(remote, &run);
		break;
	case NPULINK_WIRE_ASK:
		npulink_remote_asked(remote, &msg);
		break;
	case NPULINK_WIRE_STATUS:
		npulink_remote_answered(remote, &msg);
		break;
	}
	npulink_remote_pump(remote, &run);
out:
	spin_unlock_irqrestore(&rank->lock, flags);
	npulink_run(&run);
	return keep;
}
