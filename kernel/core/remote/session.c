// SPDX-License-Identifier: GPL-2.0
/*
 * session.c - connections to ranks on other machines, from the first plan that needs one to
 * the rank's leaving, or to what breaks them. See remote.h, and npulink/wire.h for what
 * is said over them.
 */
#include <linux/mutex.h>
#include <linux/nsproxy.h>
#include <linux/slab.h>
#include "base/clock.h"
#include "base/number.h"
#include "comm/agree.h"
#include "comm/comm.h"
#include "comm/cause.h"
#include "file/account.h"
#include "file/buf.h"
#include "file/file.h"
#include "file/port.h"
#include "plan/plan.h"
#include "remote/remote.h"
#include "run/op.h"
#include "run/run.h"

/* ---- small things --------------------------------------------------------------- */

/* The only place that changes remote->state. */
void npulink_remote_set_state(struct npulink_remote *remote, u8 state)
{
	bool ok = false;

	lockdep_assert_held(&remote->rank->lock);
	switch (state) {
	case NPULINK_REMOTE_NEW:
		break;
	case NPULINK_REMOTE_CONNECTING:
		ok = remote->state == NPULINK_REMOTE_NEW || remote->not_opened;
		break;
	case NPULINK_REMOTE_UP:
		ok = remote->state == NPULINK_REMOTE_CONNECTING ||
		     remote->state == NPULINK_REMOTE_RESUMING;
		break;
	case NPULINK_REMOTE_RESUMING:
		ok = remote->state == NPULINK_REMOTE_UP;
		break;
	case NPULINK_REMOTE_LEFT:
		ok = remote->state == NPULINK_REMOTE_UP ||
		     remote->state == NPULINK_REMOTE_RESUMING;
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

/* Say in @cause where it went wrong between this rank and the peer. */
void npulink_remote_place(const struct npulink_remote *remote, struct npulink_cause *cause)
{
	bool resuming = remote->state == NPULINK_REMOTE_RESUMING;

	/* Of several that were tried, what was lost first. */
	memcpy(cause->ip, resuming ? remote->lost_ip : remote->put.addr.ip, sizeof(cause->ip));
	strscpy(cause->port, resuming ? remote->lost_port : remote->put.via,
		sizeof(cause->port));
}

void npulink_remote_fail(struct npulink_remote *remote, u32 code)
{
	struct npulink_cause cause = {
		.cause = NPULINK_CAUSE_LINK, .rank = remote->rank->rank,
		.peer = remote->conn->rank, .step = ~0U, .number = ~0ULL, .code = code,
	};

	/* Name what it was needed for, else what is going on. */
	npulink_blame_step_locked(remote->rank, remote->conn->rank, &cause);
	if (cause.step == ~0U)
		npulink_blame_step_locked(remote->rank, NPULINK_NO_PEER, &cause);
	npulink_remote_place(remote, &cause);
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
		.peer = remote->conn->rank, .step = step, .number = npulink_told(number),
		.calls = { *ours, *theirs },
	};

	npulink_comm_fail(remote->rank->comm, &cause);
}

/* ---- what the transport says ------------------------------------------------------ */

static void npulink_remote_put_room(struct npulink_put *put)
{
	struct npulink_remote *remote = to_remote(put);
	unsigned long flags;
	NPULINK_DEFINE_RUN_IRQ(run);

	spin_lock_irqsave(&remote->rank->lock, flags);
	remote->full = remote->shut;
	npulink_remote_pump(remote, &run);
	spin_unlock_irqrestore(&remote->rank->lock, flags);
	npulink_run(&run);
}

static void npulink_remote_lost(struct npulink_remote *remote, int status)
{
	struct npulink_rank *rank = remote->rank;
	struct npulink_put *put = &remote->put;
	struct npulink_cause where = {};

	lockdep_assert_held(&rank->lock);
	if (status && remote->state != NPULINK_REMOTE_LEFT && !rank->closed &&
	    !READ_ONCE(rank->comm->failed)) {
		npulink_remote_place(remote, &where);
		dev_warn_ratelimited(&rank->dev->dev,
				     "rank %u has lost rank %u at %pI6c over %s: error %d\n",
				     rank->rank, put->peer, where.ip,
				     *where.port ? where.port : "no port", -status);
		npulink_remote_fail(remote, -status);
	}
}

/*
 * The connection is lost, or was never made. What it holds is still in use until
 * npulink_put_down(), but others need not wait for that to hear of it.
 */
static void npulink_remote_put_lost(struct npulink_put *put, int status)
{
	struct npulink_remote *remote = to_remote(put);
	unsigned long flags;

	spin_lock_irqsave(&remote->rank->lock, flags);
	if (remote->state != NPULINK_REMOTE_DOWN)
		npulink_remote_lost(remote, status);
	/* Nothing more is begun on it. */
	remote->full = true;
	remote->shut = true;
	spin_unlock_irqrestore(&remote->rank->lock, flags);
}

static void npulink_remote_put_down(struct npulink_put *put, int status)
{
	struct npulink_remote *remote = to_remote(put);
	struct npulink_rank *rank = remote->rank;
	unsigned long flags;
	u32 i;
	NPULINK_DEFINE_RUN_IRQ(run);

	spin_lock_irqsave(&rank->lock, flags);
	if (remote->state == NPULINK_REMOTE_DOWN)
		goto out;
	npulink_remote_lost(remote, status);
	npulink_remote_set_state(remote, NPULINK_REMOTE_DOWN);
	npulink_remote_unlist(remote);
	/* Who leaves need not wait until we are done with what it has given us. */
	if (remote->left)
		npulink_remote_land(remote, &run);
	for (i = 0; i < NPULINK_WIRE_GRANTS; i++) {
		struct npulink_offer *offer = &remote->offers[i];
		struct npulink_grant *grant = &remote->grants[i];
		struct npulink_op *op;

		offer->state = NPULINK_OFFER_FREE;
		if (grant->state == NPULINK_GRANT_OUT || grant->state == NPULINK_GRANT_REVOKING) {
			op = grant->step->op;
			npulink_remote_grant_free(remote, grant);
			npulink_remote_op_less(op, &run);
		} else if (grant->state == NPULINK_GRANT_RENEW) {
			npulink_remote_grant_free(remote, grant);
		}
	}
	npulink_remote_writes_down(remote, &run);
	/* It may have left with something under way that will not land now. */
	if (remote->left && !rank->closed)
		npulink_remote_fail_missed(remote);
out:
	spin_unlock_irqrestore(&rank->lock, flags);
	npulink_run(&run);
}

static bool npulink_remote_needed(const struct npulink_remote *remote)
{
	struct npulink_op *op;

	lockdep_assert_held(&remote->rank->lock);
	list_for_each_entry(op, &remote->rank->ops, node)
		if (op->state == NPULINK_OP_RUNNING &&
		    npulink_find_peer(op->plan, remote->conn->rank) != ~0U)
			return true;
	return false;
}

static bool npulink_remote_put_needed(struct npulink_put *put)
{
	struct npulink_remote *remote = to_remote(put);
	bool needed;

	spin_lock_irq(&remote->rank->lock);
	needed = npulink_remote_needed(remote);
	spin_unlock_irq(&remote->rank->lock);
	return needed;
}

/* Often enough to notice in time that the peer has gone. */
static unsigned long npulink_remote_tick_len(const struct npulink_remote *remote)
{
	return msecs_to_jiffies(min_t(u32, remote->put.timeout_ms / 12, NPULINK_TICK_MS));
}

/* An operation has begun. */
void npulink_remote_look(struct npulink_remote *remote)
{
	schedule_delayed_work(&remote->tick, npulink_remote_tick_len(remote));
}

/* Something takes long: see whether the peer is there, and say what we wait for. */
static void npulink_remote_tick(struct work_struct *work)
{
	struct npulink_remote *remote = container_of(to_delayed_work(work), struct npulink_remote,
						     tick);
	u64 long_ago = npulink_clock() - NPULINK_TICK_MS * NSEC_PER_MSEC;
	struct npulink_rank *rank = remote->rank;
	struct npulink_op *op;
	bool asked = false;
	u32 n = 0;
	NPULINK_DEFINE_RUN_TASK(run);

	spin_lock_irq(&rank->lock);
	if (remote->state == NPULINK_REMOTE_DOWN || !npulink_remote_needed(remote))
		goto out;
	npulink_remote_look(remote);
	if (remote->state == NPULINK_REMOTE_CONNECTING ||
	    remote->state == NPULINK_REMOTE_RESUMING || remote->shut)
		goto out;
	/* Who has said goodbye may still owe us what it has taken. */
	remote->put.transport->probe(&remote->put);
	if (remote->state == NPULINK_REMOTE_LEFT ||
	    time_before(jiffies, remote->told + msecs_to_jiffies(NPULINK_TICK_MS)))
		goto out;
	remote->told = jiffies;
	list_for_each_entry(op, &rank->ops, node) {
		if (op->start_ns > long_ago)
			break;
		if (!op->far || op->state != NPULINK_OP_RUNNING ||
		    npulink_find_peer(op->plan, remote->conn->rank) == ~0U)
			continue;
		if (!asked)
			npulink_remote_ask(remote, op);
		asked = true;
		if (op->plan->p2p && op->plan->p2p_send)
			continue;
		/* Each is told once: what waits for a credit cannot come otherwise. */
		if (npulink_remote_has_told(remote, op) && n++ >= NPULINK_TICK_AGAIN)
			continue;
		if (npulink_remote_open(remote, op))
			break;
	}
	npulink_remote_pump(remote, &run);
out:
	spin_unlock_irq(&rank->lock);
	npulink_run(&run);
}

/* ---- life --------------------------------------------------------------------------- */

/* The communicator has failed: tell the other machines. */
void npulink_remote_abort(struct npulink_rank *rank)
{
	struct npulink_wire_cause body;
	struct npulink_conn *conn;
	unsigned long id;

	npulink_cause_to_wire(&body, &rank->comm->cause);
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
		} else if (remote->opened_once && remote->state != NPULINK_REMOTE_DOWN) {
			/* What a peer that has left was granted is in use as long as it is open. */
			remote->shut = true;
			remote->put.transport->shut(&remote->put, NULL, NULL, 0);
		}
		spin_unlock_irq(&rank->lock);
		cond_resched();
	}
}

/* A rank is elsewhere. May sleep. */
int npulink_remote_describe(struct npulink_rank *rank, u32 peer, const struct npulink_where *at)
{
	struct net *net = current->nsproxy->net_ns;
	struct npulink_conn *conn;
	struct npulink_port *port;
	u8 tag[NPULINK_TAG_LEN], agree_tag[NPULINK_TAG_LEN], secret[16];
	int rc = 0;
	u32 i;

	for (i = 0; i < at->naddrs; i++)
		if (!at->addrs[i].port ||
		    !memchr_inv(at->addrs[i].ip, 0, sizeof(at->addrs[i].ip)))
			return -EINVAL;
	if (peer == rank->rank)
		return -EINVAL;
	mutex_lock(&npulink_ports_lock);
	port = npulink_port_at(rank->dev, 0, net);
	if (port) {
		port->transport->tag(rank->comm->secret, tag);
		npulink_agree_secret(rank->comm->secret, secret);
		port->transport->tag(secret, agree_tag);
	}
	mutex_unlock(&npulink_ports_lock);
	if (!port)
		return -EHOSTUNREACH;
	rc = npulink_port_use(rank->file, net);
	if (rc)
		return rc;
	mutex_lock(&rank->comm->mutex);
	/* One that was shrunk knows where its ranks are: all are here, or it was agreed on. */
	if (rank->comm->map && !rank->comm->agree)
		rc = -EINVAL;
	else if (rank->net && rank->net != net)
		rc = -EHOSTUNREACH;
	else if (rcu_access_pointer(rank->comm->ranks[peer]))
		rc = -EBUSY;
	if (!rc) {
		if (!rank->net)
			rank->net = get_net(net);
		if (!rank->comm->far) {
			memcpy(rank->comm->tag, tag, sizeof(tag));
			memcpy(rank->comm->agree_secret, secret, sizeof(secret));
			memcpy(rank->comm->agree_tag, agree_tag, sizeof(agree_tag));
			npulink_comm_name(rank->comm);
		}
		WRITE_ONCE(rank->comm->far, true);
	}
	mutex_unlock(&rank->comm->mutex);
	memzero_explicit(secret, sizeof(secret));
	if (rc)
		return rc;
	conn = npulink_conn_get(rank, peer, at);
	if (IS_ERR(conn))
		return PTR_ERR(conn);
	/* It was there before, as that of a plan that took it for a local one, or elsewhere. */
	return conn->far && !memcmp(&conn->at, at, sizeof(*at)) ? 0 : -EBUSY;
}

static const struct npulink_put_events npulink_remote_events = {
	.needed = npulink_remote_put_needed,
	.where = npulink_remote_put_where,
	.up = npulink_remote_put_up,
	.broken = npulink_remote_put_broken,
	.halted = npulink_remote_put_halted,
	.recv = npulink_remote_put_recv,
	.arrived = npulink_remote_put_arrived,
	.revoked = npulink_remote_put_revoked,
	.written = npulink_remote_put_written,
	.room = npulink_remote_put_room,
	.lost = npulink_remote_put_lost,
	.down = npulink_remote_put_down,
};

static void npulink_remote_delete(struct npulink_remote *remote)
{
	if (remote->put.buf) {
		npulink_buf_drop_base(remote->put.buf);
		npulink_object_put(&remote->put.buf->obj);
	}
	module_put(remote->put.transport->owner);
	npulink_quota_give_session(remote->rank->file);
	kvfree(remote);
}

static struct npulink_remote *npulink_remote_new(struct npulink_rank *rank,
						 struct npulink_conn *conn)
{
	const struct npulink_transport *transport = NULL;
	struct npulink_remote *remote;
	char via[sizeof(remote->put.via)] = "";
	struct npulink_port *port;
	int rc;

	mutex_lock(&npulink_ports_lock);
	port = npulink_port_at(rank->dev, 0, rank->net);
	if (port && try_module_get(port->transport->owner)) {
		transport = port->transport;
		/* Which one of several it will be is not known yet. */
		if (!npulink_port_at(rank->dev, 1, rank->net))
			strscpy(via, port->name, sizeof(via));
	}
	mutex_unlock(&npulink_ports_lock);
	if (!transport)
		return ERR_PTR(-EHOSTUNREACH);
	rc = npulink_quota_take_session(rank->file);
	if (rc)
		goto err_module;
	rc = -ENOMEM;
	remote = kvzalloc(sizeof(*remote), GFP_KERNEL_ACCOUNT);
	if (!remote)
		goto err_session;
	remote->put.transport = transport;
	remote->put.events = &npulink_remote_events;
	remote->rank = rank;
	remote->conn = conn;
	remote->credits = NPULINK_WIRE_CREDITS;
	remote->told = jiffies - HZ;
	INIT_LIST_HEAD(&remote->tx);
	INIT_LIST_HEAD(&remote->tx_credit);
	INIT_LIST_HEAD(&remote->rx);
	INIT_LIST_HEAD(&remote->rx_idle);
	INIT_DELAYED_WORK(&remote->tick, npulink_remote_tick);
	remote->put.dev = rank->dev;
	remote->put.net = rank->net;
	remote->put.secret = rank->comm->secret;
	remote->put.tag = rank->comm->tag;
	remote->put.timeout_ms = rank->peer_timeout_ms;
	remote->check = rank->comm->checksum;
	remote->put.checksum = remote->check;
	remote->put.rank = rank->rank;
	remote->put.peer = conn->rank;
	memcpy(remote->put.addrs, conn->at.addrs, sizeof(conn->at.addrs));
	remote->put.naddrs = conn->at.naddrs;
	remote->put.addr = conn->at.addrs[0];
	memcpy(remote->put.via, via, sizeof(via));
	remote->put.buf = npulink_buf_alloc_pages(rank->file, NPULINK_MESSAGE_BYTES +
						  NPULINK_LANDING_BYTES, true);
	if (IS_ERR(remote->put.buf)) {
		rc = PTR_ERR(remote->put.buf);
		remote->put.buf = NULL;
		npulink_remote_delete(remote);
		return ERR_PTR(rc);
	}
	return remote;

err_session:
	npulink_quota_give_session(rank->file);
err_module:
	module_put(transport->owner);
	return ERR_PTR(rc);
}

/* What could not be opened is tried once more by the caller, unless another one does it already. */
static bool npulink_remote_again(struct npulink_remote *remote)
{
	bool again;

	spin_lock_irq(&remote->rank->lock);
	again = remote->not_opened;
	if (again)
		npulink_remote_set_state(remote, NPULINK_REMOTE_CONNECTING);
	remote->not_opened = false;
	spin_unlock_irq(&remote->rank->lock);
	return again;
}

/* The transport did not take it. Whoever has made a plan since then and waits, waits in vain. */
static void npulink_remote_unopened(struct npulink_remote *remote, int status)
{
	bool needed;

	spin_lock_irq(&remote->rank->lock);
	needed = npulink_remote_needed(remote);
	if (!needed) {
		npulink_remote_set_state(remote, NPULINK_REMOTE_DOWN);
		remote->not_opened = true;
	}
	spin_unlock_irq(&remote->rank->lock);
	if (needed)
		npulink_remote_put_down(&remote->put, status);
}

/* Have a connection to a remote peer, or one that is being made. May sleep. */
int npulink_remote_resolve(struct npulink_rank *rank, struct npulink_conn *conn)
{
	struct npulink_remote *remote = READ_ONCE(conn->remote);
	int rc;

	if (remote) {
		/* One that left in good order may have left us what we need. */
		if (READ_ONCE(remote->state) != NPULINK_REMOTE_DOWN || READ_ONCE(remote->left))
			return 0;
		/* It may be down because of what the communicator failed of. */
		if (smp_load_acquire(&rank->comm->failed))
			return rank->comm->cause.status;
		if (!npulink_remote_again(remote))
			return -ENOLINK;
		goto open;
	}
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
open:
	rc = remote->put.transport->open(&remote->put);
	if (rc) {
		npulink_remote_unopened(remote, rc);
		return rc;
	}
	spin_lock_irq(&rank->lock);
	remote->opened_once = true;
	spin_unlock_irq(&rank->lock);
	/* It may have failed before there was anything to shut. */
	if (READ_ONCE(rank->comm->failed))
		npulink_remote_abort(rank);
	return 0;
}

/* The rank leaves; nothing of it is in flight. Say so, but wait for nobody. May sleep. */
void npulink_remote_leave(struct npulink_conn *conn)
{
	struct npulink_remote *remote = conn->remote;
	struct npulink_wire_msg bye;
	bool up;

	if (!remote || !xchg(&remote->opened_once, false))
		return;
	/* Before we are seen to have left; one time is for all. */
	if (smp_load_acquire(&remote->rank->comm->failed) && !READ_ONCE(remote->shut))
		npulink_remote_abort(remote->rank);
	spin_lock_irq(&remote->rank->lock);
	up = (remote->state == NPULINK_REMOTE_UP || remote->state == NPULINK_REMOTE_RESUMING) &&
	     !remote->rank->comm->failed;
	npulink_remote_msg(remote, &bye, NPULINK_WIRE_BYE, NULL, false);
	npulink_remote_stamp(remote, &bye);
	/* Nothing may follow it. */
	remote->full = true;
	remote->shut = true;
	remote->put.opening = remote->state == NPULINK_REMOTE_CONNECTING &&
			      !remote->rank->comm->failed;
	spin_unlock_irq(&remote->rank->lock);
	remote->put.transport->leave(&remote->put, up ? &bye : NULL);
	remote->leaving = true;
}

/* The same, and then wait until it has arrived, within a bounded time. */
void npulink_remote_close(struct npulink_conn *conn)
{
	struct npulink_remote *remote = conn->remote;

	if (!remote)
		return;
	conn->back = NULL;
	npulink_remote_leave(conn);
	if (!remote->leaving)
		return;
	remote->leaving = false;
	cancel_delayed_work_sync(&remote->tick);
	remote->put.transport->close(&remote->put);
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
