// SPDX-License-Identifier: GPL-2.0
/*
 * op.c - operations with remote peers: the mirror that plays their part to the
 * sequencer, and which step of ours a message is about.
 */
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include "base/number.h"
#include "comm/comm.h"
#include "file/file.h"
#include "plan/plan.h"
#include "remote/remote.h"
#include "run/op.h"
#include "run/run.h"

/*
 * How many steps of a chain receive from one remote peer: each needs a landing at the same
 * time, and others may have some, and wait for this.
 */
static u32 npulink_remote_needs(const struct npulink_plan *plan, const struct npulink_unit *un)
{
	u32 most = 0, i, k, n;

	for (i = un->first; i < un->first + un->nsteps; i++) {
		if (!(plan->steps[i].op & NPULINK_STEP_RECV))
			continue;
		for (k = i, n = 0; k < un->first + un->nsteps; k++)
			n += plan->steps[k].op & NPULINK_STEP_RECV &&
			     plan->steps[k].recv_peer == plan->steps[i].recv_peer;
		if (plan->peers[plan->streams[plan->pos[i].recv_stream].peer].conn->far)
			most = max(most, n);
	}
	return most;
}

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
	for (i = 0; i < plan->nunits; i++) {
		if (npulink_remote_needs(plan, &plan->units[i]) > 1)
			return -EOPNOTSUPP;
		if (!(i & 0xfff)) {
			cond_resched();
			if (fatal_signal_pending(current))
				return -EINTR;
		}
	}
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
	op->far->mirror = kvzalloc(npulink_op_size(plan), GFP_KERNEL_ACCOUNT);
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
		rs->direct = !op->rank->comm->checksum &&
			     st->op & NPULINK_STEP_RECV && !(st->op & NPULINK_STEP_REDUCE) &&
			     un->nsteps == 1 && st->len > NPULINK_WIRE_EAGER &&
			     !(st->flags & NPULINK_STEP_F_TRANSIENT && st->src2_off) &&
			     !(st->flags & NPULINK_STEP_F_DIV);
		/* But the engine waits for the room of a window. */
		rs->kept = op->rank->comm->checksum && st->len &&
			   !(st->flags & NPULINK_STEP_F_TRANSIENT && st->src2_off);
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

/* Will step @rs, received from a peer that has left, never be complete? */
static bool npulink_remote_missing(const struct npulink_remote *remote,
				   const struct npulink_remote_step *rs, u64 len)
{
	u64 landed = 0;
	u32 i;

	if (rs->slot >= 0 || rs->op->far->mirror->cells[rs->step].avail == len + 1)
		return false;
	if (!len || rs->granted < len)
		return true;
	for (i = 0; i < NPULINK_WIRE_GRANTS; i++) {
		const struct npulink_grant *grant = &remote->grants[i];

		if (!grant->state || grant->step != rs)
			continue;
		if (grant->state == NPULINK_GRANT_OUT || grant->state == NPULINK_GRANT_AGAIN ||
		    grant->state == NPULINK_GRANT_RENEW || (remote->check && !grant->summed))
			return true;
		if (grant->state == NPULINK_GRANT_LANDED && (grant->good || !remote->check) &&
		    grant->off >= rs->shown)
			landed += grant->len;
	}
	/* Of a connection that is gone, what has not landed by now never will. */
	return remote->state == NPULINK_REMOTE_DOWN && rs->shown + landed < len;
}

/*
 * Does @op need a peer that has left for more than what it has done? If it is still to be connected
 * with it, what has come for it is not its own yet: then it is looked at again.
 */
bool npulink_remote_missed(const struct npulink_remote *remote, struct npulink_op *op)
{
	const struct npulink_plan *plan = op->plan;
	u32 i, k;

	for (i = 0; i < plan->nstreams; i++) {
		const struct npulink_stream *s = &plan->streams[i];

		if (plan->peers[s->peer].conn != remote->conn || !op->streams[i].peer)
			continue;
		for (k = 0; k < s->count; k++) {
			u32 step = plan->stream_steps[s->start + k];
			const struct npulink_remote_step *rs = &op->far->steps[step];
			u64 len = plan->steps[step].len;

			if (op->units[plan->pos[step].unit].phase == NPULINK_UNIT_DONE)
				continue;
			if (s->send ? !rs->done : npulink_remote_missing(remote, rs, len))
				return true;
		}
	}
	return false;
}

/* The peer has left: those who need more of it will not get it. */
void npulink_remote_fail_missed(struct npulink_remote *remote)
{
	struct npulink_rank *rank = remote->rank;
	struct npulink_op *op;

	list_for_each_entry(op, &rank->ops, node) {
		struct npulink_cause cause = {
			.cause = NPULINK_CAUSE_LEFT, .rank = rank->rank,
			.peer = remote->conn->rank, .step = ~0U, .number = npulink_told(op->number),
		};

		if (op->state != NPULINK_OP_RUNNING || !op->far ||
		    !npulink_remote_missed(remote, op))
			continue;
		npulink_comm_fail(rank->comm, &cause);
		break;
	}
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
	*cause = (struct npulink_cause) {
		.rank = rank->rank, .peer = p->conn->rank, .step = ~0U,
		.number = npulink_told(op->number),
	};
	if (remote->state == NPULINK_REMOTE_DOWN && !remote->left) {
		cause->cause = NPULINK_CAUSE_LINK;
		cause->step = op->plan->stream_steps[op->plan->streams[p->stream].start];
		npulink_remote_place(remote, cause);
		rc = -ENOLINK;
		goto out;
	}
	for (i = p->stream; i < p->stream + p->nstreams; i++) {
		npulink_op_get(op->far->mirror);
		op->streams[i].stream = i;
		op->streams[i].peer = op->far->mirror;
	}
	npulink_remote_catch_up(remote, op);
	/* It may have done its part, and left it with us, before we came. */
	if (remote->left && npulink_remote_missed(remote, op)) {
		cause->cause = NPULINK_CAUSE_LEFT;
		rc = -ESHUTDOWN;
	}
	npulink_remote_look(remote);
out:
	spin_unlock_irqrestore(&rank->lock, flags);
	return rc;
}

/* What the peer has said of collectives that we have not posted yet; @call: of @number. */
static void npulink_remote_early(const struct npulink_remote *remote, u64 number,
				 const struct npulink_call **call, bool *others)
{
	u32 i;

	for (i = 0; i < NPULINK_PUT_RX; i++) {
		const struct npulink_held *held = &remote->held[i];

		if (!held->used || held->step || held->p2p)
			continue;
		if (held->number == number)
			*call = &held->call;
		else if (!((held->number - number) % NPULINK_MAX_INFLIGHT))
			*others = true;
	}
	for (i = 0; i < NPULINK_WIRE_GRANTS; i++) {
		const struct npulink_offer *offer = &remote->offers[i];

		if (offer->state != NPULINK_OFFER_HELD || offer->step || offer->p2p)
			continue;
		if (offer->number == number)
			*call = &offer->call;
		else if (!((offer->number - number) % NPULINK_MAX_INFLIGHT))
			*others = true;
	}
}

/*
 * Has a peer with whom @op, a collective, has no steps said something about a step of it? Those
 * who have steps with each other see by themselves whether they have called the same. This is
 * about what came before @op was published: what comes later finds it. It takes no longer than
 * the plan of somebody who talks to all of them would.
 */
int npulink_remote_op_strangers(struct npulink_op *op, struct npulink_cause *cause)
{
	u32 bit = op->number % NPULINK_MAX_INFLIGHT;
	struct npulink_rank *rank = op->rank;
	struct npulink_conn *conn;
	unsigned long flags, id;
	bool others = false;
	int rc = 0;

	/* Set under the lock that @op was published under, before that. */
	if (likely(!test_bit(bit, rank->early)))
		return 0;
	spin_lock_irqsave(&rank->lock, flags);
	clear_bit(bit, rank->early);
	xa_for_each(&rank->conns, id, conn) {
		const struct npulink_call *theirs = NULL;

		if (!conn->remote)
			continue;
		npulink_remote_early(conn->remote, op->number, &theirs, &others);
		if (theirs && op->state == NPULINK_OP_RUNNING &&
		    npulink_find_peer(op->plan, conn->rank) == NPULINK_NO_INDEX) {
			*cause = (struct npulink_cause) {
				.cause = NPULINK_CAUSE_MISMATCH, .rank = rank->rank,
				.peer = conn->rank, .step = ~0U,
				.number = npulink_told(op->number),
				.calls = { op->plan->call, *theirs },
			};
			rc = -EPROTO;
			break;
		}
	}
	if (others)
		set_bit(bit, rank->early);
	spin_unlock_irqrestore(&rank->lock, flags);
	return rc;
}

/* Nothing more is sent, and nothing is granted. */
void npulink_remote_unlist(struct npulink_remote *remote)
{
	struct list_head *sends[] = { &remote->tx, &remote->tx_credit };
	struct list_head *receives[] = { &remote->rx, &remote->rx_idle };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(sends); i++) {
		while (!list_empty(sends[i]))
			list_del_init(sends[i]->next);
		while (!list_empty(receives[i]))
			list_del_init(receives[i]->next);
	}
}

/*
 * The same for @op. Also if it has ended well: what was sent may wait on a list for a look that
 * finds nothing to do, or for the room to say so.
 */
static void npulink_remote_unlist_op(struct npulink_op *op)
{
	const struct npulink_plan *plan = op->plan;
	u32 i, k;

	for (i = 0; i < plan->nstreams; i++) {
		const struct npulink_stream *s = &plan->streams[i];

		if (!plan->peers[s->peer].conn->remote)
			continue;
		for (k = 0; k < s->count; k++) {
			struct npulink_remote_step *rs;

			rs = &op->far->steps[plan->stream_steps[s->start + k]];
			list_del_init(s->send ? &rs->tx_node : &rs->rx_node);
		}
	}
}

/* @op is over: nothing of it is with a transport any more. */
void npulink_remote_op_finish(struct npulink_op *op, struct npulink_run *run)
{
	u32 i, k;

	lockdep_assert_held(&op->rank->lock);
	npulink_remote_unlist_op(op);
	for (k = 0; k < op->plan->npeers; k++) {
		struct npulink_remote *remote = op->plan->peers[k].conn->remote;

		if (!remote)
			continue;
		for (i = 0; i < NPULINK_WIRE_GRANTS; i++) {
			struct npulink_grant *grant = &remote->grants[i];
			struct npulink_offer *offer = &remote->offers[i];

			if (grant->state && grant->step->op == op) {
				WARN_ON_ONCE(grant->state == NPULINK_GRANT_OUT ||
					     grant->state == NPULINK_GRANT_REVOKING);
				npulink_remote_grant_free(remote, grant);
			}
			if (offer->state && offer->step && offer->step->op == op)
				offer->state = NPULINK_OFFER_FREE;
		}
		for (i = 0; i < NPULINK_PUT_WRITES; i++) {
			struct npulink_write *w = &remote->writes[i];

			if (w->step && w->step->op == op) {
				WARN_ON_ONCE(!w->unsure);
				w->step = NULL;
			}
		}
		for (i = 0; i < NPULINK_PUT_RX; i++)
			if (remote->held[i].used && remote->held[i].step &&
			    remote->held[i].step->op == op)
				npulink_remote_slot_free(remote, i);
	}
}

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
		/*
		 * By how many it can be ahead has no bound: those in which it has nothing to do
		 * with us end without us. How much of them is held has, see held and offers.
		 */
		*later = !npulink_number_before(number, next);
		if (!*later && !p2p) {
			u32 i = number % NPULINK_HISTORY;

			if (rank->history[i].used && rank->history[i].number == number &&
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

const struct npulink_conn_events npulink_remote_conn_events = {
	.describe = npulink_remote_describe,
	.resolve = npulink_remote_resolve,
	.abort = npulink_remote_abort,
	.leave = npulink_remote_leave,
	.close = npulink_remote_close,
	.free = npulink_remote_free,
};

const struct npulink_remote_ops npulink_remote_op_ops = {
	.alloc = npulink_remote_op_alloc,
	.free = npulink_remote_op_free,
	.reset = npulink_remote_op_reset,
	.connect = npulink_remote_op_connect,
	.strangers = npulink_remote_op_strangers,
	.has_called = npulink_remote_has_called,
	.waits_for = npulink_remote_waits_for,
	.finish = npulink_remote_op_finish,
	.bell = npulink_remote_bell,
	.want = npulink_remote_want,
	.want_next = npulink_remote_want_next,
	.landed = npulink_remote_landed,
	.operand = npulink_remote_operand,
};
