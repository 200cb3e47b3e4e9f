// SPDX-License-Identifier: GPL-2.0
/*
 * connect.c - how the operations of ranks that work together find each other.
 *
 * Each is put into its rank's table first and then looks for those of its peers, so of
 * any two at least the later one finds the other, and gives both a pointer. Here ranks
 * that called different things are told apart, before a byte moves between them.
 */
#include "base/number.h"
#include "comm/comm.h"
#include "file/file.h"
#include "plan/plan.h"
#include "run/op.h"

#define NONE	0xffffffffU

/* The operation of @peer that belongs to @op, or NULL; *passed if it is over. */
static struct npulink_op *npulink_peer_op(struct npulink_rank *peer, struct npulink_op *op,
					  bool *passed)
{
	struct npulink_op *p;

	lockdep_assert_held(&peer->lock);
	*passed = false;
	if (op->plan->p2p) {
		bool send = !op->plan->p2p_send;
		struct npulink_conn *conn = xa_load(&peer->conns, op->rank->rank);

		if (!conn)
			return NULL;
		list_for_each_entry(p, &conn->p2p[send], p2p_node)
			if (p->number == op->number)
				return p;
		*passed = npulink_number_before(op->number, conn->p2p_next[send]);
		return NULL;
	}
	p = peer->table[op->number % NPULINK_MAX_INFLIGHT];
	if (p && p->number == op->number)
		return p;
	*passed = npulink_number_before(op->number, peer->next);
	return NULL;
}

/*
 * Has @peer called what @op meets there? Two that both have may not know of each other
 * yet: others may be in the middle of starting the one or the other. No locks held.
 */
bool npulink_peer_has_called(struct npulink_rank *peer, struct npulink_op *op)
{
	struct npulink_op *pop;
	bool passed;

	spin_lock_irq(&peer->lock);
	pop = npulink_peer_op(peer, op, &passed);
	spin_unlock_irq(&peer->lock);
	return pop || passed;
}

/* What @peer called when @op was its turn, which is over; false if that is forgotten. */
static bool npulink_peer_call(struct npulink_op *op, struct npulink_rank *peer,
			      struct npulink_call *call)
{
	struct npulink_comm *comm = op->rank->comm;
	u32 i = op->number % NPULINK_HISTORY;
	struct npulink_called *e;
	bool known;

	lockdep_assert_held(&peer->lock);
	if (op->plan->p2p)
		return false;
	if (peer->history[i].used && peer->history[i].number == op->number) {
		*call = peer->history[i].call;
		return true;
	}
	/* It has been compared with the first one's, as all have. */
	e = &comm->calls[op->number % NPULINK_CALL_TABLE];
	spin_lock(&comm->lock);
	known = e->used && e->number == op->number;
	if (known)
		*call = e->call;
	spin_unlock(&comm->lock);
	return known;
}

/* @call is NULL if it is forgotten: then say how many calls the peer has made. */
static int npulink_mismatch(struct npulink_op *op, struct npulink_rank *peer,
			    const struct npulink_call *call, struct npulink_cause *cause)
{
	*cause = (struct npulink_cause) {
		.cause = NPULINK_CAUSE_MISMATCH, .rank = op->rank->rank, .peer = peer->rank,
		.step = ~0U, .number = npulink_told(op->number), .calls[0] = op->plan->call,
	};
	if (call)
		cause->calls[1] = *call;
	else
		cause->calls[1] = (struct npulink_call) {
			.collective = ~0U, .count = npulink_told(peer->next),
		};
	return -EPROTO;
}

static void npulink_left(struct npulink_op *op, u32 peer, struct npulink_cause *cause)
{
	*cause = (struct npulink_cause) {
		.cause = NPULINK_CAUSE_LEFT, .rank = op->rank->rank, .peer = peer,
		.step = ~0U, .number = npulink_told(op->number),
	};
}

/* The stream of @plan's peer @index that has @channel and direction @send. */
u32 npulink_find_stream(const struct npulink_plan *plan, u32 index, u16 channel, bool send)
{
	const struct npulink_plan_peer *p = &plan->peers[index];
	u32 i;

	for (i = p->stream; i < p->stream + p->nstreams; i++)
		if (plan->streams[i].channel == channel && plan->streams[i].send == send)
			return i;
	return NONE;
}

u32 npulink_find_peer(const struct npulink_plan *plan, u32 rank)
{
	u32 guess = rank - (rank > plan->rank->rank), lo = 0, hi = plan->npeers;

	/* Where it is if those before it are peers, too. */
	if (guess < hi && plan->peers[guess].conn->rank == rank)
		return guess;

	while (lo < hi) {
		u32 mid = lo + (hi - lo) / 2;

		if (plan->peers[mid].conn->rank < rank)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < plan->npeers && plan->peers[lo].conn->rank == rank ? lo : NONE;
}

/*
 * Have the operation of @peer that belongs to @op, if it is there, know @op, and put it with a
 * reference into *found. Else NULL: it will look for us.
 */
static int npulink_op_introduce(struct npulink_op *op, const struct npulink_plan_peer *me,
				struct npulink_rank *peer, struct npulink_op **found,
				struct npulink_cause *cause)
{
	const struct npulink_plan *pp;
	const struct npulink_conn *conn;
	struct npulink_call call;
	struct npulink_op *pop;
	bool passed;
	u32 i, other;

	lockdep_assert_held(&peer->lock);
	*found = NULL;
	pop = npulink_peer_op(peer, op, &passed);
	if (!pop && passed)
		return npulink_mismatch(op, peer, npulink_peer_call(op, peer, &call) ?
						  &call : NULL, cause);
	if (!pop && peer->closed) {
		npulink_left(op, peer->rank, cause);
		return -ESHUTDOWN;
	}
	/* One that is not running yet will look for us when it starts. */
	if (!pop || pop->state != NPULINK_OP_RUNNING)
		return 0;
	pp = pop->plan;
	other = npulink_find_peer(pp, op->rank->rank);
	if (memcmp(&pp->call, &op->plan->call, sizeof(pp->call)) || other == NONE ||
	    pp->peers[other].nstreams != me->nstreams)
		return npulink_mismatch(op, peer, &pp->call, cause);
	/*
	 * Its rank gets the links before ours is seen to know it, unless it has yet to ask for
	 * them, and will look for us after that.
	 */
	conn = pp->peers[other].conn;
	if (!READ_ONCE(conn->link) || !READ_ONCE(conn->back))
		return 0;
	for (i = me->stream; i < me->stream + me->nstreams; i++) {
		const struct npulink_stream *s = &op->plan->streams[i];
		u32 k = npulink_find_stream(pp, other, s->channel, !s->send);

		if (k == NONE || pp->streams[k].count != s->count)
			return npulink_mismatch(op, peer, &pp->call, cause);
		if (!pop->streams[k].peer) {
			npulink_op_get(op);
			pop->streams[k].stream = i;
			pop->streams[k].peer = op;
		}
	}
	npulink_op_get(pop);
	*found = pop;
	return 0;
}

static int npulink_op_connect_peer(struct npulink_op *op, u32 index, struct npulink_cause *cause)
{
	const struct npulink_plan_peer *me = &op->plan->peers[index];
	struct npulink_rank *rank = op->rank, *peer;
	struct npulink_op *pop = NULL;
	unsigned long flags;
	u32 i, other;
	int rc;

	if (me->conn->far)
		return npulink_remote_ops->connect(op, index, cause);
	rc = npulink_conn_resolve(rank, me->conn);
	if (rc == -ENOENT)
		return 0;	/* has not joined yet */
	if (rc) {
		npulink_left(op, me->conn->rank, cause);
		/* It is there, but no link to it could be had. */
		if (rc != -ESHUTDOWN)
			cause->cause = NPULINK_CAUSE_LINK;
		return rc;
	}
	/* If our rank has left, by another thread, it has let go of the peer, and @op is over. */
	rcu_read_lock();
	peer = READ_ONCE(me->conn->peer);
	if (peer) {
		spin_lock_irqsave(&peer->lock, flags);
		if (!peer->gone)
			rc = npulink_op_introduce(op, me, peer, &pop, cause);
		spin_unlock_irqrestore(&peer->lock, flags);
	}
	rcu_read_unlock();
	if (!pop)
		return rc;
	other = npulink_find_peer(pop->plan, rank->rank);
	spin_lock_irqsave(&rank->lock, flags);
	if (op->state == NPULINK_OP_RUNNING) {
		for (i = me->stream; i < me->stream + me->nstreams; i++) {
			const struct npulink_stream *s = &op->plan->streams[i];

			if (op->streams[i].peer)
				continue;
			npulink_op_get(pop);
			op->streams[i].stream = npulink_find_stream(pop->plan, other, s->channel,
								    !s->send);
			op->streams[i].peer = pop;
		}
	}
	spin_unlock_irqrestore(&rank->lock, flags);
	npulink_op_put(pop);
	return 0;
}

/*
 * Meet the peers' operations that are posted already; peers that come later do the same
 * with us. Returns -errno with @cause filled in if one of them called something else,
 * or has left.
 */
int npulink_op_connect(struct npulink_op *op, struct npulink_cause *cause)
{
	u32 i;
	int rc;

	for (i = 0; i < op->plan->npeers; i++) {
		rc = npulink_op_connect_peer(op, i, cause);
		if (rc)
			return rc;
	}
	return op->rank->comm->far && !op->plan->p2p ? npulink_remote_ops->strangers(op, cause) : 0;
}
