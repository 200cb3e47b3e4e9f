// SPDX-License-Identifier: GPL-2.0
/*
 * check.c - checksums between machines, for communicators that ask for them: what
 * a remote peer sent lies in memory of our own until its CRC32C was compared with that of
 * the bytes at their source. Damaged bytes are sent once more, which is why the sender keeps
 * its own until it is told that they are good. See npulink/wire.h.
 */
#include <linux/moduleparam.h>
#include "base/notify.h"
#include "base/number.h"
#include "comm/comm.h"
#include "file/buf.h"
#include "plan/plan.h"
#include "remote/remote.h"
#include "run/checksum.h"
#include "run/op.h"
#include "run/run.h"

/* ---- what is said about it ---------------------------------------------------------- */

/* As many as can be due: one for each DATA and each grant that the peer may use. */
static void npulink_check_answer(struct npulink_remote *remote, const struct npulink_wire_msg *msg)
{
	if (remote->nanswers == ARRAY_SIZE(remote->answers)) {
		npulink_remote_violation(remote, "more DATA than it has credits for");
		return;
	}
	remote->answers[remote->nanswers++] = *msg;
}

/* The bytes of @rs that have been shown are good. */
void npulink_check_good(struct npulink_remote *remote, const struct npulink_remote_step *rs)
{
	struct npulink_wire_msg msg;

	npulink_remote_msg(remote, &msg, NPULINK_WIRE_GOOD, rs, false);
	msg.off = cpu_to_le64(rs->shown);
	npulink_check_answer(remote, &msg);
}

/* The same step as @data's. */
static void npulink_check_answer_data(struct npulink_remote *remote, u8 type,
				      const struct npulink_wire_msg *data)
{
	struct npulink_wire_msg msg;

	npulink_remote_msg(remote, &msg, type, NULL, false);
	msg.flags = data->flags & NPULINK_WIRE_P2P;
	msg.number = data->number;
	msg.call = data->call;
	msg.len = data->len;
	msg.pos = data->pos;
	msg.channel = data->channel;
	if (type == NPULINK_WIRE_GOOD)
		msg.off = data->len;
	npulink_check_answer(remote, &msg);
}

/* Ask for damaged chunks once more, in the grants that they had. */
static bool npulink_check_grant_again(struct npulink_remote *remote)
{
	u32 i;

	for (i = 0; i < NPULINK_WIRE_GRANTS; i++) {
		struct npulink_grant *grant = &remote->grants[i];

		if (grant->state != NPULINK_GRANT_AGAIN ||
		    grant->step->op->state != NPULINK_OP_RUNNING)
			continue;
		if (npulink_remote_grant_send(remote, grant))
			return false;
	}
	return true;
}

/* Whatever is due. False: the transport is full. */
bool npulink_check_pump(struct npulink_remote *remote)
{
	u32 i, n = remote->nanswers;

	for (i = 0; i < n; i++)
		if (npulink_remote_post(remote, &remote->answers[i], NULL, 0))
			break;
	memmove(remote->answers, &remote->answers[i], (n - i) * sizeof(remote->answers[0]));
	remote->nanswers = n - i;
	return i == n && npulink_check_grant_again(remote);
}

/* ---- the receiver ------------------------------------------------------------------ */

#ifdef NPULINK_TESTS
/* So many of the payloads that come next have a bit flipped before they are checked. */
static atomic_t npulink_corrupt_far = ATOMIC_INIT(0);

static int npulink_corrupt_far_set(const char *val, const struct kernel_param *kp)
{
	int n, rc = kstrtoint(val, 0, &n);

	if (rc || n < 0)
		return rc ?: -EINVAL;
	atomic_set(&npulink_corrupt_far, n);
	return 0;
}

static int npulink_corrupt_far_get(char *buf, const struct kernel_param *kp)
{
	return sysfs_emit(buf, "%d\n", atomic_read(&npulink_corrupt_far));
}

static const struct kernel_param_ops npulink_corrupt_far_ops = {
	.set = npulink_corrupt_far_set,
	.get = npulink_corrupt_far_get,
};
module_param_cb(corrupt_far, &npulink_corrupt_far_ops, NULL, 0600);
MODULE_PARM_DESC(corrupt_far, "for tests: damage so many checksummed payloads from other machines");

static void npulink_check_damage(const struct npulink_operand *at, u32 len)
{
	if (len && atomic_dec_if_positive(&npulink_corrupt_far) >= 0)
		*(u8 *)npulink_operand_va(at) ^= 1;
}
#else
static inline void npulink_check_damage(const struct npulink_operand *at, u32 len)
{
}
#endif

/* Is what lies at @at undamaged? */
static bool npulink_check_arrived(struct npulink_remote *remote, const struct npulink_operand *at,
				  u32 len, u32 sum)
{
	npulink_check_damage(at, len);
	if (npulink_operand_crc(at, len) == sum)
		return true;
	atomic64_inc(&remote->link.stats.damaged);
	return false;
}

static void npulink_check_fail(struct npulink_remote *remote, u64 number, u32 step)
{
	struct npulink_cause cause = {
		.cause = NPULINK_CAUSE_CHECKSUM, .rank = remote->rank->rank,
		.peer = remote->conn->rank, .step = step, .number = npulink_told(number),
		.code = NPULINK_NO_DEV,
	};

	npulink_remote_place(remote, &cause);
	npulink_comm_fail(remote->rank->comm, &cause);
}

/* The peer got something damaged that we have no more. */
void npulink_check_lost(struct npulink_remote *remote, u64 number)
{
	struct npulink_cause cause = {
		.cause = NPULINK_CAUSE_CHECKSUM, .rank = remote->conn->rank,
		.peer = remote->rank->rank, .step = ~0U, .number = npulink_told(number),
		.code = NPULINK_NO_DEV,
	};

	npulink_comm_fail(remote->rank->comm, &cause);
}

/* Returns whether the payload of DATA in @slot is good; if not, it will come again. */
bool npulink_check_data(struct npulink_remote *remote, u32 slot,
			const struct npulink_wire_msg *msg, const struct npulink_remote_step *rs)
{
	struct npulink_operand at = {
		.buf = remote->put.buf, .off = slot * NPULINK_WIRE_SLOT + sizeof(*msg),
	};
	bool good = npulink_check_arrived(remote, &at, le32_to_cpu(msg->size),
					  le32_to_cpu(msg->sum));

	if (!good && msg->flags & NPULINK_WIRE_TWICE)
		npulink_check_fail(remote, npulink_number_from_wire(msg->number),
				   rs ? rs->step : ~0U);
	else
		npulink_check_answer_data(remote, good ? NPULINK_WIRE_GOOD : NPULINK_WIRE_AGAIN,
					  msg);
	return good;
}

/* A chunk is here, its key revoked, and its sum known. */
void npulink_check_chunk(struct npulink_remote *remote, struct npulink_grant *grant,
			 struct npulink_run *run)
{
	struct npulink_operand at = npulink_landing(remote, grant->landing);
	struct npulink_remote_step *rs = grant->step;

	if (npulink_check_arrived(remote, &at, grant->len, grant->sum)) {
		grant->good = true;
		npulink_remote_recv_next(remote, rs, run);
	} else if (grant->twice || remote->state >= NPULINK_REMOTE_LEFT) {
		npulink_check_fail(remote, rs->op->number, rs->step);
	} else {
		grant->twice = true;
		grant->state = NPULINK_GRANT_AGAIN;
	}
}

/* The sum of a chunk: it follows the last write. */
void npulink_check_sum(struct npulink_remote *remote, const struct npulink_wire_msg *msg,
		       struct npulink_run *run)
{
	u32 imm = le32_to_cpu(msg->imm), index = imm % NPULINK_WIRE_GRANTS;
	struct npulink_grant *grant = &remote->grants[index];

	/* That of an operation that has failed is free. */
	if (!grant->state && READ_ONCE(remote->rank->comm->failed))
		return;
	if ((grant->state != NPULINK_GRANT_REVOKING && grant->state != NPULINK_GRANT_LANDED) ||
	    grant->summed || imm != ((u32)grant->generation << 16 | index)) {
		npulink_remote_violation(remote, "sum");
		return;
	}
	grant->summed = true;
	grant->sum = le32_to_cpu(msg->sum);
	if (grant->state == NPULINK_GRANT_LANDED)
		npulink_check_chunk(remote, grant, run);
}

/* ---- the sender ---------------------------------------------------------------------- */

/* An offer has been filled: say what should be there. -EAGAIN: the transport is full. */
int npulink_check_send_sum(struct npulink_remote *remote, const struct npulink_offer *offer)
{
	struct npulink_wire_msg msg;

	npulink_remote_msg(remote, &msg, NPULINK_WIRE_SUM, NULL, false);
	msg.imm = cpu_to_le32(offer->imm);
	msg.sum = cpu_to_le32(offer->crc);
	return npulink_remote_post(remote, &msg, NULL, 0);
}

/* The peer has all of @rs: what it has granted for that besides is not filled any more. */
static void npulink_check_forget(struct npulink_remote *remote,
				 const struct npulink_remote_step *rs)
{
	u32 i;

	for (i = 0; i < NPULINK_WIRE_GRANTS; i++)
		if (remote->offers[i].state && remote->offers[i].step == rs)
			remote->offers[i].state = NPULINK_OFFER_FREE;
}

/*
 * What the peer has said is good may be overwritten, once the device has let go of it, too:
 * the peer may have got it, and say so, before a write is known to have ended.
 */
void npulink_check_settle(struct npulink_remote *remote, struct npulink_remote_step *rs,
			  struct npulink_run *run)
{
	if (!rs->said || rs->writes)
		return;
	rs->said = false;
	npulink_remote_send_acked(remote, rs, rs->good - rs->acked, run);
	if (rs->acked == rs->op->plan->steps[rs->step].len)
		npulink_check_forget(remote, rs);
}

static struct npulink_remote_step *npulink_check_find(struct npulink_remote *remote,
						      const struct npulink_wire_msg *msg,
						      const struct npulink_call *call, bool *over)
{
	struct npulink_remote_step *rs;
	bool later, bad;

	rs = npulink_remote_find(remote, msg->flags & NPULINK_WIRE_P2P,
				 npulink_number_from_wire(msg->number),
				 le16_to_cpu(msg->channel), le32_to_cpu(msg->pos),
				 le64_to_cpu(msg->len), call, true, &later, &bad);
	if (later)
		npulink_remote_violation(remote, "answer to what was not sent");
	*over = !rs && !later && !bad;
	return rs;
}

void npulink_check_was_good(struct npulink_remote *remote, const struct npulink_wire_msg *msg,
			    const struct npulink_call *call, struct npulink_run *run)
{
	u64 good = le64_to_cpu(msg->off), len = le64_to_cpu(msg->len);
	struct npulink_remote_step *rs;
	bool over;

	rs = npulink_check_find(remote, msg, call, &over);
	if (!rs || !rs->kept)
		return;
	if (!rs->op->cells[rs->step].avail || good > rs->sent || good < rs->good ||
	    (len ? good == rs->good : !rs->done)) {
		npulink_remote_violation(remote, "answer to what was not sent");
		return;
	}
	rs->good = good;
	rs->said = true;
	npulink_check_settle(remote, rs, run);
}

void npulink_check_was_bad(struct npulink_remote *remote, const struct npulink_wire_msg *msg,
			   const struct npulink_call *call)
{
	u64 len = le64_to_cpu(msg->len);
	struct npulink_remote_step *rs;
	bool over;

	rs = npulink_check_find(remote, msg, call, &over);
	/* What was not kept may be over already. */
	if (over || (rs && rs->done && !rs->kept))
		npulink_check_lost(remote, npulink_number_from_wire(msg->number));
	if (!rs || !rs->kept)
		return;
	if (!rs->done || rs->good || rs->twice || rs->reqed || !len || len > NPULINK_WIRE_EAGER) {
		npulink_remote_violation(remote, "AGAIN");
		return;
	}
	rs->twice = true;
	rs->done = false;
	rs->sent = 0;
	list_move_tail(&rs->tx_node, &remote->tx);
}

/* The peer has left in good order: it has got all that it needed, and that undamaged. */
void npulink_check_bye(struct npulink_remote *remote, struct npulink_run *run)
{
	struct npulink_op *op, *next;
	u32 i, k;

	list_for_each_entry_safe(op, next, &remote->rank->ops, node) {
		const struct npulink_plan *plan = op->plan;

		if (!op->far || op->state != NPULINK_OP_RUNNING)
			continue;
		for (i = 0; i < plan->nstreams; i++) {
			const struct npulink_stream *s = &plan->streams[i];

			if (!s->send || plan->peers[s->peer].conn != remote->conn)
				continue;
			for (k = 0; k < s->count; k++) {
				u32 step = plan->stream_steps[s->start + k];
				struct npulink_remote_step *rs = &op->far->steps[step];
				u64 len = plan->steps[step].len;

				if (!rs->done || op->cells[step].taken == len + 1)
					continue;
				if (!rs->kept) {
					/* Nobody waits for its sum any more. */
					if (rs->acked == len)
						npulink_remote_send_show(remote, rs, run);
					continue;
				}
				rs->good = len;
				rs->said = true;
				npulink_check_settle(remote, rs, run);
			}
		}
	}
}
