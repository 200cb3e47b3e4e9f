// SPDX-License-Identifier: GPL-2.0
/*
 * genl_op.c - operations in flight over netlink, and what they wait for.
 *
 * An operation is held by a reference, not by a lock: its units are looked through
 * without any, and only for one that waits is its rank's lock taken, to copy what it
 * waits for. So the picture may be a mixture of moments, which does not matter to
 * people: what hangs does not move.
 */
#include "base/clock.h"
#include "base/notify.h"
#include "base/number.h"
#include "comm/comm.h"
#include "observe/genl.h"
#include "plan/plan.h"
#include "run/op.h"
#include "run/round.h"

#define NPULINK_GENL_WAITS	8	/* shown of one operation */

struct npulink_op_info {
	u64 number;
	u64 seq;
	u64 age_ns;
	u64 left_ns;
	bool has_deadline;
	u8 state;
	u32 units_left;
	u64 bytes;
};

/* ---- what a unit waits for -------------------------------------------------------- */

static struct npulink_req *npulink_unit_req(struct npulink_op *op, u32 unit)
{
	u32 i;

	for (i = 0; i < op->plan->nreqs; i++) {
		struct npulink_req *req = npulink_op_req(op, i);

		if (req->core.state != NPULINK_REQ_FREE && req->core.unit == unit)
			return req;
	}
	return NULL;
}

/* Over which link bytes come to, or with @send leave for, the peer of a stream. */
static void npulink_wait_link(const struct npulink_op *op, u32 stream, bool send,
			      struct npulink_wait_info *w)
{
	const struct npulink_conn *conn = op->plan->peers[op->plan->streams[stream].peer].conn;
	const struct npulink_link *link = send ? conn->link : conn->back;

	w->peer = conn->rank;
	w->met = op->streams[stream].peer;
	w->remote = conn->far;
	/* The far end of a connection to another machine is no device of ours. */
	if (conn->far && send) {
		w->dev = op->rank->dev->id;
	} else if (conn->far) {
		w->peer_dev = op->rank->dev->id;
	} else if (link) {
		w->dev = link->dev->id;
		w->peer_dev = link->peer->id;
	}
}

static void npulink_wait_engine(struct npulink_op *op, u32 unit, struct npulink_wait_info *w)
{
	const struct npulink_unit *un = &op->plan->units[unit];
	const struct npulink_req *req = npulink_unit_req(op, unit);
	u32 i;

	w->kind = req && (req->core.state == NPULINK_REQ_READY ||
			  req->core.state == NPULINK_REQ_TODO) ?
		  NPULINK_WAIT_WORKER : NPULINK_WAIT_ENGINE;
	w->dev = op->rank->dev->id;
	w->peer_dev = op->rank->dev->id;
	for (i = 0; i < un->nsteps; i++) {
		u32 k = un->first + i;

		if (op->plan->steps[k].op & NPULINK_STEP_RECV) {
			w->step = k;
			npulink_wait_link(op, op->plan->pos[k].recv_stream, false, w);
			break;
		}
	}
}

/* Has the peer offered bytes that member @k of @unit has not taken? */
static bool npulink_wait_arrived(struct npulink_op *op, u32 unit, u32 k)
{
	const struct npulink_op_stream *os = &op->streams[op->plan->pos[k].recv_stream];
	u32 ps;

	if (!os->peer)
		return false;
	ps = npulink_peer_step(op, op->plan->pos[k].recv_stream, op->plan->pos[k].recv_pos);
	return READ_ONCE(os->peer->cells[ps].avail) > op->units[unit].done + 1;
}

/* What @unit waits for, at most @max things; 0: nothing any more. */
static u32 npulink_unit_waits(struct npulink_op *op, u32 unit, struct npulink_wait_info *w, u32 max)
{
	const struct npulink_unit *un = &op->plan->units[unit];
	const struct npulink_unit_state *us = &op->units[unit];
	u32 last = un->first + un->nsteps - 1, k, n = 0;
	struct npulink_wait_info base = {
		.step = last, .peer = NPULINK_NO_PEER, .dev = NPULINK_NO_DEV,
		.peer_dev = NPULINK_NO_DEV, .done = us->done, .len = op->plan->steps[last].len,
		.since_ns = jiffies_to_nsecs((u32)jiffies - us->since),
	};

	lockdep_assert_held(&op->rank->lock);
	switch (us->phase) {
	case NPULINK_UNIT_BUSY:
		*w = base;
		npulink_wait_engine(op, unit, w);
		return 1;
	case NPULINK_UNIT_ACTIVE:
		for (k = un->first; k <= last && n < max; k++) {
			if (!(op->plan->steps[k].op & NPULINK_STEP_RECV) ||
			    npulink_wait_arrived(op, unit, k))
				continue;
			w[n] = base;
			w[n].kind = NPULINK_WAIT_RECV;
			w[n].step = k;
			npulink_wait_link(op, op->plan->pos[k].recv_stream, false, &w[n]);
			n++;
		}
		/* All is there: then it is the window that is full. */
		if (n || !un->send)
			return n;
		fallthrough;
	case NPULINK_UNIT_SENT:
		*w = base;
		w->kind = NPULINK_WAIT_SEND;
		npulink_wait_link(op, op->plan->pos[last].send_stream, true, w);
		return 1;
	}
	return 0;
}

/* Those that have not posted what @op, which is gathered, waits for. */
static u32 npulink_gathered_waits(const struct npulink_op *op, struct npulink_wait_info *w, u32 max)
{
	const struct npulink_comm *comm = op->rank->comm;
	const u64 since = max_t(s64, npulink_clock() - op->start_ns, 0);
	u32 n = 0, i, k;

	for (i = 0; n < max && (i = npulink_round_missing(op, i)) < comm->nranks; i++, n++) {
		w[n] = (struct npulink_wait_info) {
			.kind = NPULINK_WAIT_RECV, .step = npulink_op_first_with(op, i),
			.peer = i, .dev = NPULINK_NO_DEV, .peer_dev = NPULINK_NO_DEV,
			.since_ns = since, .len = op->plan->bytes,
		};
		k = npulink_find_peer(op->plan, i);
		if (k != ~0U) {
			const u32 stream = op->plan->peers[k].stream;

			npulink_wait_link(op, stream, op->plan->streams[stream].send, &w[n]);
		}
	}
	return n;
}

/* One that a round runs, or will run, waits for its own part, or for who has not come. */
static u32 npulink_round_waits(struct npulink_op *op, struct npulink_wait_info *w, u32 max)
{
	const struct npulink_req *part;
	u32 n;

	spin_lock_irq(&op->rank->lock);
	part = op->part;
	n = part ? 1 : npulink_gathered_waits(op, w, max);
	if (part)
		*w = (struct npulink_wait_info) {
			.kind = part->core.state == NPULINK_REQ_READY ? NPULINK_WAIT_WORKER :
									NPULINK_WAIT_ENGINE,
			.peer = NPULINK_NO_PEER, .dev = op->rank->dev->id,
			.peer_dev = op->rank->dev->id, .done = op->bytes, .len = op->plan->bytes,
			.since_ns = max_t(s64, npulink_clock() - op->start_ns, 0),
		};
	spin_unlock_irq(&op->rank->lock);
	return n;
}

static u32 npulink_op_waits(struct npulink_op *op, struct npulink_wait_info *w, u32 max)
{
	u32 i, n = 0;

	if (READ_ONCE(op->part) || READ_ONCE(op->state) == NPULINK_OP_GATHERED)
		return npulink_round_waits(op, w, max);
	for (i = 0; i < op->plan->nunits && n < max; i++) {
		u8 phase = READ_ONCE(op->units[i].phase);

		if (!(i & 0xfff))
			cond_resched();
		if (phase == NPULINK_UNIT_BLOCKED || phase == NPULINK_UNIT_DONE)
			continue;
		spin_lock_irq(&op->rank->lock);
		if (op->state == NPULINK_OP_RUNNING || op->state == NPULINK_OP_FAILING)
			n += npulink_unit_waits(op, i, w + n, max - n);
		spin_unlock_irq(&op->rank->lock);
	}
	return n;
}

/* ---- messages --------------------------------------------------------------------- */

int npulink_genl_put_wait(struct sk_buff *skb, int attr, const struct npulink_wait_info *w)
{
	struct nlattr *nest = nla_nest_start(skb, attr);

	if (!nest || nla_put_u32(skb, NPULINK_A_WAIT_KIND, w->kind) ||
	    nla_put_u32(skb, NPULINK_A_WAIT_STEP, w->step) ||
	    (w->peer != NPULINK_NO_PEER && nla_put_u32(skb, NPULINK_A_WAIT_PEER, w->peer)) ||
	    nla_put_u64_64bit(skb, NPULINK_A_WAIT_SINCE, w->since_ns, NPULINK_A_WAIT_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_WAIT_DONE, w->done, NPULINK_A_WAIT_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_WAIT_LEN, w->len, NPULINK_A_WAIT_PAD) ||
	    (w->dev != NPULINK_NO_DEV && nla_put_u32(skb, NPULINK_A_WAIT_DEV, w->dev)) ||
	    (w->peer_dev != NPULINK_NO_DEV &&
	     nla_put_u32(skb, NPULINK_A_WAIT_PEER_DEV, w->peer_dev)) ||
	    (w->met && nla_put_flag(skb, NPULINK_A_WAIT_MET)) ||
	    (w->remote && nla_put_flag(skb, NPULINK_A_WAIT_REMOTE)))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

static int npulink_genl_fill_op(struct sk_buff *skb, struct npulink_op *op,
				const struct npulink_op_info *info)
{
	struct npulink_wait_info waits[NPULINK_GENL_WAITS];
	const struct npulink_plan *plan = op->plan;
	u32 i, n;
	int rc;

	if (nla_put_u32(skb, NPULINK_A_OP_COMM, op->rank->comm->serial) ||
	    nla_put_u32(skb, NPULINK_A_OP_RANK, op->rank->rank) ||
	    nla_put_u64_64bit(skb, NPULINK_A_OP_NUMBER, info->number, NPULINK_A_OP_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_OP_SEQ, info->seq, NPULINK_A_OP_PAD) ||
	    npulink_genl_put_call(skb, NPULINK_A_OP_CALL, &plan->call) ||
	    (plan->p2p && nla_put_flag(skb, NPULINK_A_OP_P2P)) ||
	    nla_put_u32(skb, NPULINK_A_OP_STATE, info->state == NPULINK_OP_FAILING ?
			NPULINK_OP_STATE_FAILING : NPULINK_OP_STATE_RUNNING) ||
	    nla_put_u32(skb, NPULINK_A_OP_STEPS, plan->nsteps) ||
	    nla_put_u32(skb, NPULINK_A_OP_UNITS, plan->nunits) ||
	    nla_put_u32(skb, NPULINK_A_OP_UNITS_LEFT, info->units_left) ||
	    nla_put_u64_64bit(skb, NPULINK_A_OP_BYTES, plan->bytes, NPULINK_A_OP_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_OP_BYTES_DONE, info->bytes, NPULINK_A_OP_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_OP_AGE, info->age_ns, NPULINK_A_OP_PAD) ||
	    (info->has_deadline && nla_put_u64_64bit(skb, NPULINK_A_OP_LEFT, info->left_ns,
						     NPULINK_A_OP_PAD)) ||
	    (op->slow_ns && nla_put_u64_64bit(skb, NPULINK_A_OP_SLOW, op->slow_ns,
					      NPULINK_A_OP_PAD)))
		return -EMSGSIZE;
	if (plan->algorithm[0] &&
	    nla_put_string(skb, NPULINK_A_OP_ALGORITHM, plan->algorithm))
		return -EMSGSIZE;
	n = npulink_op_waits(op, waits, ARRAY_SIZE(waits));
	for (i = 0; i < n; i++) {
		rc = npulink_genl_put_wait(skb, NPULINK_A_OP_WAIT, &waits[i]);
		if (rc)
			return rc;
	}
	return 0;
}

/* The first operation of @rank from *seq on, 0: of all, referenced; sets *seq. They may wrap. */
static struct npulink_op *npulink_rank_op(struct npulink_rank *rank, u64 *seq,
					  struct npulink_op_info *info)
{
	struct npulink_op *op, *found = NULL;

	spin_lock_irq(&rank->lock);
	list_for_each_entry(op, &rank->ops, node)
		if ((!*seq || !npulink_number_before(op->seq, *seq)) &&
		    (!found || npulink_number_before(op->seq, found->seq)))
			found = op;
	if (found) {
		npulink_op_get(found);
		*seq = found->seq;
		*info = (struct npulink_op_info) {
			.number = npulink_told(found->number), .seq = found->seq,
			.state = found->state,
			.age_ns = max_t(s64, npulink_clock() - found->start_ns, 0),
			.has_deadline = found->has_deadline,
			.units_left = found->state < NPULINK_OP_RUNNING ? found->plan->nunits :
								   found->units_left,
			.bytes = found->bytes,
		};
		if (found->has_deadline && time_after(found->deadline, jiffies))
			info->left_ns = jiffies_to_nsecs(found->deadline - jiffies);
	}
	spin_unlock_irq(&rank->lock);
	return found;
}

/* Operations of @rank from *seq on; with an error, *seq is the first left. */
static int npulink_genl_dump_rank_ops(struct sk_buff *skb, struct netlink_callback *cb,
				      struct npulink_rank *rank, u64 *seq)
{
	struct npulink_op_info info;
	struct npulink_op *op;
	void *header;
	int rc;

	/* No operation has seq 0, which is where it begins. */
	for (; (op = npulink_rank_op(rank, seq, &info)); *seq += *seq == ~0ULL ? 2 : 1) {
		header = npulink_genl_put(skb, cb, NPULINK_GENL_CMD_OP_GET);
		rc = header ? npulink_genl_fill_op(skb, op, &info) : -EMSGSIZE;
		npulink_op_put(op);
		npulink_genl_done(skb, header, rc);
		if (rc)
			return rc;
	}
	return 0;
}

/* Goes on with the operation args[2] of rank args[1]. */
static int npulink_genl_dump_ops(struct sk_buff *skb, struct netlink_callback *cb, void *obj)
{
	struct npulink_comm *comm = obj;
	unsigned long i = cb->args[1];
	struct npulink_rank *rank;
	u64 seq = cb->args[2];
	int rc;

	for (; (rank = npulink_genl_rank(comm, &i)); i++) {
		if (i != cb->args[1])
			seq = 0;
		rc = npulink_genl_dump_rank_ops(skb, cb, rank, &seq);
		npulink_rank_put(rank);
		if (rc) {
			cb->args[1] = i;
			cb->args[2] = seq;
			return rc;
		}
	}
	return 0;
}

int npulink_genl_op_start(struct netlink_callback *cb)
{
	return npulink_genl_start(cb, &npulink_genl_comms, NPULINK_A_OP_COMM);
}

int npulink_genl_op_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	return npulink_genl_dump(skb, cb, &npulink_genl_comms, NPULINK_A_OP_COMM,
				 npulink_genl_dump_ops);
}
