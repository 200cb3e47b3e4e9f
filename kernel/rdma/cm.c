// SPDX-License-Identifier: GPL-2.0
/*
 * cm.c - the life of a session. The lower rank calls, again and again as long as the
 * other one is not ready; the other one waits to be called (answer.c). What has gone wrong before
 * the peer has proved that it knows the secret is nobody's failure, but the end of that try; how
 * long that goes on is alive.c's business. A connection that was up and is lost is followed by
 * another one, if there are other ports, and the core agrees. All is taken down by the session's
 * worker, which waits for everything else.
 */
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/log2.h>
#include <linux/sched/signal.h>
#include "rdma.h"

#define RDMA_RETRY_MIN	10	/* ms */
#define RDMA_RETRY_MAX	500
#define RDMA_LEAVE_MIN	1000	/* for the last message to arrive, .. */
#define RDMA_LEAVE_MAX	5000	/* .. over another port if need be */

LIST_HEAD(rdma_conns);
DEFINE_HASHTABLE(rdma_called, RDMA_CALLED_BITS);

static void rdma_conn_release(struct kref *kref)
{
	struct rdma_conn *conn = container_of(kref, struct rdma_conn, kref);

	kfree(conn->lanes[0].first);
	kfree(conn->lanes[1].first);
	kvfree(conn);
}

/* It goes no further: the worker will see to it. Any context but NMI. */
void rdma_conn_fail(struct rdma_conn *conn, int status)
{
	unsigned long flags;

	spin_lock_irqsave(&conn->lock, flags);
	if (!conn->failing) {
		conn->failing = true;
		conn->status = status;
	}
	spin_unlock_irqrestore(&conn->lock, flags);
	mod_delayed_work(rdma_wq, &conn->work, 0);
}

/* Have the core begin nothing more, as there will be no connection any more, or another one. */
static void rdma_conn_lost(struct rdma_conn *conn)
{
	unsigned long flags;

	if (conn->resuming && conn->state == RDMA_CONN_RESET) {
		/* It may have been told meanwhile that the peer has left. */
		if (npulink_put_broken(conn->put, conn->status))
			return;
		conn->resuming = false;
		/* Unless it was closed just now. */
		spin_lock_irqsave(&conn->lock, flags);
		if (conn->state == RDMA_CONN_RESET)
			conn->state = RDMA_CONN_FAILED;
		spin_unlock_irqrestore(&conn->lock, flags);
	}
	if (conn->state == RDMA_CONN_FAILED || conn->state == RDMA_CONN_CLOSED)
		npulink_put_lost(conn->put, conn->status);
}

/* What had come over the connection was handled. */
void rdma_conn_drained(struct rdma_conn *conn)
{
	unsigned long flags;

	spin_lock_irqsave(&conn->lock, flags);
	conn->was_up = conn->up;
	conn->up = false;
	conn->rx_live = false;
	conn->tx_live = false;
	spin_unlock_irqrestore(&conn->lock, flags);
	rdma_conn_lost(conn);
}

/* It will not be tried again. The same. */
void rdma_conn_give_up(struct rdma_conn *conn, int status)
{
	unsigned long flags;

	spin_lock_irqsave(&conn->lock, flags);
	if (!conn->final)
		conn->status = status;
	conn->final = true;
	conn->failing = true;
	spin_unlock_irqrestore(&conn->lock, flags);
	mod_delayed_work(rdma_wq, &conn->work, 0);
}

/* Tell the core that there will be no connection (any more), if that is so. */
static void rdma_conn_tell(struct rdma_conn *conn)
{
	if (conn->state != RDMA_CONN_FAILED && conn->state != RDMA_CONN_CLOSED)
		return;
	if (!conn->told)
		npulink_put_down(conn->put, conn->status);
	conn->told = true;
}

/* Nothing is in flight any more, and no key is worth anything. */
void rdma_conn_ended(struct rdma_conn *conn)
{
	if (conn->was_up && conn->state == RDMA_CONN_RESET)
		npulink_put_halted(conn->put);
	conn->was_up = false;
	rdma_conn_tell(conn);
}

/* So that a peer which does not answer is given up in time, whatever is lost on the way. */
void rdma_conn_timeouts(const struct rdma_conn *conn, struct rdma_cm_id *id)
{
	/* 4.096 us * 2^n, eight times. */
	u64 n = (u64)conn->put->timeout_ms * 1000000 / 4096 / 8;

	rdma_set_ack_timeout(id, clamp_t(int, n ? ilog2(n) : 0, 8, 21));
	rdma_set_min_rnr_timer(id, 12);		/* 0.64 ms; 0 would be 655 ms */
}

void rdma_conn_param(struct rdma_conn_param *param, const void *data, u8 len)
{
	*param = (struct rdma_conn_param) {
		.private_data = data, .private_data_len = len,
		.responder_resources = 1, .initiator_depth = 1,
		.retry_count = 7, .rnr_retry_count = 7,
	};
}

/* ---- calling ---------------------------------------------------------------------------- */

static void rdma_sockaddr(struct sockaddr_storage *ss, const u8 *ip, __be16 port)
{
	struct sockaddr_in *sin = (struct sockaddr_in *)ss;
	struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)ss;

	memset(ss, 0, sizeof(*ss));
	if (ipv6_addr_v4mapped((const struct in6_addr *)ip)) {
		sin->sin_family = AF_INET;
		sin->sin_port = port;
		memcpy(&sin->sin_addr, ip + 12, 4);
	} else {
		sin6->sin6_family = AF_INET6;
		sin6->sin6_port = port;
		memcpy(&sin6->sin6_addr, ip, 16);
	}
}

/*
 * Pair number @target of those of ports that may lead to the peer: its addresses one after the
 * other, as the routing table says; now and then from one of our own addresses, as that table may
 * lead to one of our ports only.
 */
void rdma_aim(const struct rdma_conn *conn, u32 target, struct rdma_aim *aim)
{
	const struct npulink_put *put = conn->put;
	u32 round = target / put->naddrs, every = put->naddrs == 1 ? 2 : 4, own;

	memset(aim, 0, sizeof(*aim));
	aim->to = put->addrs[target % put->naddrs];
	own = rdma_own_addr(put->dev, put->net, round / every, aim->from);
	aim->bound = own > 1 && round % every == every - 1 &&
		     (put->naddrs == 1 || conn->resuming);
}

/* Find the way to the peer. */
int rdma_conn_resolve(struct rdma_cm_id *id, const struct rdma_aim *aim)
{
	struct sockaddr_storage to, from;

	rdma_sockaddr(&to, aim->to.ip, aim->to.port);
	rdma_sockaddr(&from, aim->from, 0);
	return rdma_resolve_addr(id, aim->bound ? (struct sockaddr *)&from : NULL,
				 (struct sockaddr *)&to, RDMA_RESOLVE_MS);
}

static int rdma_conn_call(struct rdma_conn *conn)
{
	struct rdma_lane *lane = conn->lane;
	struct rdma_cm_id *id;
	struct rdma_aim aim;

	lockdep_assert_held(&conn->setup);
	id = rdma_create_id(conn->put->net, rdma_conn_event, lane, RDMA_PS_TCP, IB_QPT_RC);
	if (IS_ERR(id))
		return PTR_ERR(id);
	lane->id = id;
	lane->since = jiffies;
	conn->state = RDMA_CONN_TRYING;
	rdma_aim(conn, conn->target, &aim);
	conn->put->addr = aim.to;
	rdma_conn_timeouts(conn, id);
	return rdma_conn_resolve(id, &aim);
}

/* Does @lane go over a port of @ibdev that its session may not use (any more)? */
static bool rdma_lane_stranded(const struct rdma_lane *lane, const struct ib_device *ibdev)
{
	const struct npulink_put *put = lane->conn->put;

	/* Pairs with rdma_lane_setup(). */
	return smp_load_acquire(&lane->ibdev) == ibdev &&
	       !rdma_port_allowed(put->dev, put->net, ibdev, READ_ONCE(lane->port));
}

static int rdma_conn_resolved(struct rdma_lane *lane, struct rdma_cm_id *id)
{
	struct rdma_conn *conn = lane->conn;
	int rc;

	if (!rdma_port_allowed(conn->put->dev, conn->put->net, id->device, id->port_num))
		return -EHOSTUNREACH;
	rdma_conn_name(conn, id);
	rc = rdma_lane_setup(lane, id);
	/* It may have been unbound before the lane was seen to use it. */
	if (!rc && rdma_lane_stranded(lane, id->device))
		rc = -EHOSTUNREACH;
	return rc ?: rdma_resolve_route(id, RDMA_RESOLVE_MS);
}

static int rdma_conn_connect(struct rdma_lane *lane, struct rdma_cm_id *id)
{
	struct rdma_conn_param param;

	rdma_auth_ends(&lane->ends, id, true, id->qp->qp_num);
	rdma_auth_hello(lane->conn, &lane->ends, 0, &lane->hello);
	rdma_conn_param(&param, &lane->hello, sizeof(lane->hello));
	return rdma_connect_locked(id, &param);
}

/* The peer has answered our call. */
static int rdma_conn_established(struct rdma_lane *lane, const struct rdma_cm_event *event)
{
	if (!lane->conn->active)
		return 0;
	if (event->param.conn.private_data_len < sizeof(lane->welcome))
		return -EPROTO;
	memcpy(&lane->welcome, event->param.conn.private_data, sizeof(lane->welcome));
	lane->ends.called_qp = cpu_to_le32(event->param.conn.qp_num);
	if (!rdma_auth_check_welcome(lane))
		return -EACCES;
	lane->conn->state = RDMA_CONN_OPEN;
	return rdma_lane_up(lane);
}

static int rdma_conn_rejected(const struct rdma_lane *lane, struct rdma_cm_id *id,
			      struct rdma_cm_event *event)
{
	/* Who has called us has changed its mind: that may be a stranger, so it says nothing. */
	if (lane->conn->active)
		rdma_alive_refused(lane->conn, id, event, &lane->ends, &lane->hello);
	return -ECONNREFUSED;
}

int rdma_conn_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct rdma_lane *lane = id->context;
	struct rdma_conn *conn = lane->conn;
	int rc = 0;

	mutex_lock(&conn->setup);
	if (lane->id != id || (lane == conn->lane && conn->state != RDMA_CONN_TRYING &&
			       conn->state != RDMA_CONN_OPEN))
		goto out;
	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		rc = rdma_conn_resolved(lane, id);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		rc = rdma_conn_connect(lane, id);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		rc = rdma_conn_established(lane, event);
		break;
	case RDMA_CM_EVENT_REJECTED:
		rc = rdma_conn_rejected(lane, id, event);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		rc = -ECONNRESET;
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		rc = -ENODEV;
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		rc = -EHOSTUNREACH;
		break;
	default:
		break;
	}
	/* What gets on, if slowly, is not given up for another try that would be as slow. */
	lane->since = jiffies;
	if (rc)
		rdma_lane_fail(lane, rc);
out:
	mutex_unlock(&conn->setup);
	return 0;
}

/* ---- the worker ----------------------------------------------------------------------------- */

/* What there is to do as long as nothing has failed. Under conn->setup. */
static int rdma_conn_go_on(struct rdma_conn *conn)
{
	if (conn->state == RDMA_CONN_IDLE)
		return conn->active ? rdma_conn_call(conn) : 0;
	if (conn->state == RDMA_CONN_OPEN && !conn->active && !READ_ONCE(conn->up) &&
	    READ_ONCE(conn->lane->proved))
		return rdma_lane_up(conn->lane);
	return 0;
}

/* A call that was lost is repeated; who has been called had to be there. */
static unsigned int rdma_conn_patience(const struct rdma_conn *conn)
{
	u32 bound = conn->put->timeout_ms;

	if (conn->several)
		return max(bound / (conn->active ? 10 : 4), bound > 400 ? 200 : bound / 2);
	return conn->active ? bound / 2 : bound;
}

/* What becomes of a session whose connection fails. */
static void rdma_conn_failing(struct rdma_conn *conn)
{
	unsigned long flags;

	lockdep_assert_held(&conn->setup);
	spin_lock_irqsave(&conn->lock, flags);
	conn->state = RDMA_CONN_RESET;
	if (conn->final || (conn->up && (!conn->several || !conn->status)))
		conn->state = RDMA_CONN_FAILED;
	else if (conn->up)
		conn->resuming = true;
	spin_unlock_irqrestore(&conn->lock, flags);
	if (conn->state == RDMA_CONN_FAILED)
		return;
	conn->target++;
	if (!conn->up)
		return;
	conn->lost = conn->status;
	conn->absent = 0;
	conn->delay = RDMA_RETRY_MIN;
	conn->patience = rdma_conn_patience(conn);
	/* Its silence counts, but only as far as we listened. */
	conn->heard_of = jiffies;
	if (conn->status == -EHOSTDOWN)
		conn->heard_of -= min(jiffies - READ_ONCE(conn->lane->heard),
				      msecs_to_jiffies(conn->put->timeout_ms) / 2);
	conn->knocked = jiffies - HZ * 3600;
}

/* It has been taken down. Is it to be tried again? */
static bool rdma_conn_again(struct rdma_conn *conn)
{
	lockdep_assert_held(&conn->setup);
	if (conn->state != RDMA_CONN_RESET)
		return false;
	if (rdma_lane_next(conn)) {
		conn->state = RDMA_CONN_OPEN;
		rdma_answer_addr(conn, conn->lane->id);
	} else {
		conn->state = RDMA_CONN_IDLE;
	}
	if (conn->resuming)
		mod_delayed_work(rdma_wq, &conn->watch, 0);
	/* Shut or given up meanwhile: that was overwritten just now. */
	if (conn->final)
		rdma_conn_fail(conn, conn->status);
	return conn->state == RDMA_CONN_OPEN || conn->active;
}

/* The other lane, if that has failed, or is for nobody any more. */
static void rdma_conn_other(struct rdma_conn *conn)
{
	struct rdma_lane *lane;
	bool over;

	mutex_lock(&conn->setup);
	lane = rdma_lane_other(conn);
	/* Once it is closed, rdma_close() takes both down. */
	over = lane->used && conn->state != RDMA_CONN_CLOSED &&
	       (READ_ONCE(lane->failing) || conn->state >= RDMA_CONN_FAILED);
	mutex_unlock(&conn->setup);
	if (!over)
		return;
	rdma_lane_teardown(lane);
	mutex_lock(&conn->setup);
	lane->used = false;
	mutex_unlock(&conn->setup);
}

static void rdma_conn_work(struct work_struct *work)
{
	struct rdma_conn *conn = container_of(to_delayed_work(work), struct rdma_conn, work);
	unsigned int delay;
	int rc;

	mutex_lock(&conn->setup);
	if (conn->state >= RDMA_CONN_FAILED)
		goto out;
	if (!READ_ONCE(conn->failing)) {
		rc = rdma_conn_go_on(conn);
		if (!rc)
			goto out;
		rdma_conn_fail(conn, rc);
	}
	rdma_conn_failing(conn);
	mutex_unlock(&conn->setup);

	/*
	 * Nobody sets anything up now. Others need not wait until it is taken down to hear of
	 * it; but of a peer that hangs up, what it has said before comes first.
	 */
	if (conn->status != -ECONNRESET)
		rdma_conn_lost(conn);
	rdma_lane_teardown(conn->lane);
	rdma_conn_ended(conn);

	mutex_lock(&conn->setup);
	if (rdma_conn_again(conn)) {
		delay = conn->state == RDMA_CONN_OPEN ? 0 : conn->delay;
		queue_delayed_work(rdma_wq, &conn->work, msecs_to_jiffies(delay));
		conn->delay = min3(conn->delay * 2, conn->put->timeout_ms / 8,
				   (unsigned int)RDMA_RETRY_MAX);
	}
out:
	mutex_unlock(&conn->setup);
	rdma_conn_other(conn);
}

static void rdma_conn_flush(struct rdma_conn *conn)
{
	flush_delayed_work(&conn->work);
	kref_put(&conn->kref, rdma_conn_release);
}

/*
 * Ports of theirs have been unbound, or have gone: break the connections that went over them, and
 * wait until nothing of them is left. No locks held.
 */
void rdma_conns_break(const struct ib_device *ibdev, int status)
{
	struct rdma_conn *conn, *found;
	u32 i;

	do {
		found = NULL;
		mutex_lock(&rdma_lock);
		list_for_each_entry(conn, &rdma_conns, node) {
			for (i = 0; i < ARRAY_SIZE(conn->lanes); i++) {
				if (!rdma_lane_stranded(&conn->lanes[i], ibdev))
					continue;
				found = conn;
				rdma_lane_fail(&conn->lanes[i], status);
			}
			if (found)
				break;
		}
		if (found)
			kref_get(&found->kref);
		mutex_unlock(&rdma_lock);
		if (found)
			rdma_conn_flush(found);
	} while (found);
}

/* @dev has no port in @net any more: those who wait for a connection there wait in vain. */
void rdma_conns_give_up(const struct npulink_device *dev, const struct net *net, int status)
{
	struct rdma_conn *conn, *found;

	do {
		found = NULL;
		mutex_lock(&rdma_lock);
		list_for_each_entry(conn, &rdma_conns, node) {
			if (conn->put->dev != dev || conn->put->net != net ||
			    READ_ONCE(conn->lane->ibdev) || conn->state >= RDMA_CONN_FAILED)
				continue;
			found = conn;
			kref_get(&conn->kref);
			break;
		}
		mutex_unlock(&rdma_lock);
		if (found) {
			rdma_conn_give_up(found, status);
			rdma_conn_flush(found);
		}
	} while (found);
}

/* ---- what the core calls --------------------------------------------------------------- */

int rdma_open(struct npulink_put *put)
{
	struct rdma_conn *conn = kvzalloc(sizeof(*conn), GFP_KERNEL_ACCOUNT);
	u8 ip[16];
	int rc;
	u32 i;

	if (!conn)
		return -ENOMEM;
	kref_init(&conn->kref);
	if (!put->timeout_ms)
		put->timeout_ms = READ_ONCE(rdma_peer_timeout);
	conn->put = put;
	conn->active = put->rank < put->peer;
	/* An agreement is begun anew, with whoever is there. */
	conn->several = !put->agree &&
			(put->naddrs > 1 || rdma_own_addr(put->dev, put->net, 0, ip) > 1);
	conn->delay = RDMA_RETRY_MIN;
	conn->heard_of = jiffies;
	conn->knocked = jiffies;
	conn->patience = rdma_conn_patience(conn);
	conn->lane = &conn->lanes[0];
	put->tx_free = BIT(NPULINK_PUT_TX) - 1;
	mutex_init(&conn->setup);
	spin_lock_init(&conn->lock);
	init_completion(&conn->last_sent);
	INIT_DELAYED_WORK(&conn->work, rdma_conn_work);
	INIT_DELAYED_WORK(&conn->watch, rdma_alive_watch);
	/* Both now, and not when the second one is needed: they are charged to who is here. */
	for (i = 0; i < ARRAY_SIZE(conn->lanes); i++) {
		conn->lanes[i].conn = conn;
		conn->lanes[i].first = kzalloc(2 * RDMA_FIRST_LEN, GFP_KERNEL_ACCOUNT);
		if (!conn->lanes[i].first) {
			kref_put(&conn->kref, rdma_conn_release);
			return -ENOMEM;
		}
	}
	INIT_LIST_HEAD(&conn->charged);
	rc = rdma_charge(conn);
	if (rc) {
		kref_put(&conn->kref, rdma_conn_release);
		return rc;
	}
	put->priv = conn;
	atomic_inc(&rdma_nconns);
	mutex_lock(&rdma_lock);
	list_add_tail(&conn->node, &rdma_conns);
	hash_add(rdma_called, &conn->hash, rdma_called_hash(put->tag, put->rank, put->peer));
	mutex_unlock(&rdma_lock);
	if (conn->active)
		queue_delayed_work(rdma_wq, &conn->work, 0);
	mod_delayed_work(rdma_wq, &conn->watch, msecs_to_jiffies(put->timeout_ms / 8));
	return 0;
}

/*
 * Send @msg; if the connection is lost just now, over the next one. How long it may take until it
 * has arrived is counted from here, for all connections that are left at a time.
 */
void rdma_leave(struct npulink_put *put, const struct npulink_wire_msg *msg)
{
	struct rdma_conn *conn = put->priv;
	unsigned int ms = RDMA_LEAVE_MIN;
	unsigned long flags;
	bool lives;

	if (!msg)
		return;
	if (conn->several)
		ms = clamp_t(unsigned int, put->timeout_ms, RDMA_LEAVE_MIN, RDMA_LEAVE_MAX);
	conn->leave_end = jiffies + msecs_to_jiffies(ms);
	mutex_lock(&conn->setup);
	/* A new connection is up, and resumes nothing more, at one time. */
	spin_lock_irqsave(&conn->lock, flags);
	lives = (conn->up && conn->state == RDMA_CONN_OPEN) || conn->resuming;
	spin_unlock_irqrestore(&conn->lock, flags);
	if (lives)
		conn->leaving = !rdma_send_last(conn, msg, NULL, 0);
	mutex_unlock(&conn->setup);
}

/*
 * Wait until it has arrived, unless the peer's machine says that nobody waits for it, or our
 * process is killed.
 */
static void rdma_close_last(struct rdma_conn *conn)
{
	while (time_before(jiffies, conn->leave_end) &&
	       READ_ONCE(conn->state) < RDMA_CONN_FAILED &&
	       !(READ_ONCE(conn->resuming) && READ_ONCE(conn->absent)) &&
	       !fatal_signal_pending(current) &&
	       !wait_for_completion_timeout(&conn->last_sent, HZ / 20))
		;
}

/*
 * Has one end just told the other who it is? Then the connection comes up in a moment, and then our
 * last message is sent. One that broke off without a word would be a lost one for the peer.
 */
static bool rdma_conn_opening(const struct rdma_conn *conn)
{
	return READ_ONCE(conn->state) == RDMA_CONN_OPEN &&
	       (conn->active || READ_ONCE(conn->lane->proved)) && !READ_ONCE(conn->failing) &&
	       !READ_ONCE(conn->shutting);
}

static void rdma_close_opening(const struct rdma_conn *conn, unsigned long end)
{
	while (time_before(jiffies, end) && rdma_conn_opening(conn))
		usleep_range(500, 1000);
}

void rdma_close(struct npulink_put *put)
{
	struct rdma_conn *conn = put->priv;
	unsigned long flags, end = jiffies + msecs_to_jiffies(RDMA_LEAVE_MIN);
	struct rdma_lane *other;
	bool told;

	if (conn->leaving)
		rdma_close_last(conn);
	if (put->opening)
		rdma_close_opening(conn, end);
	/* What the peer is to be told of a failure goes before the connection does. */
	told = READ_ONCE(conn->shutting);
	if (told && READ_ONCE(conn->state) < RDMA_CONN_FAILED)
		wait_for_completion_timeout(&conn->last_sent, RDMA_SHUT_WAIT);
	mutex_lock(&rdma_lock);
	list_del(&conn->node);
	hash_del(&conn->hash);
	mutex_unlock(&rdma_lock);
	mutex_lock(&conn->setup);
	/* A call of ours may have been answered since. */
	while (put->opening && time_before(jiffies, end) && rdma_conn_opening(conn)) {
		mutex_unlock(&conn->setup);
		rdma_close_opening(conn, end);
		mutex_lock(&conn->setup);
	}
	/* It may have come up since, with something to be told. */
	if (!told && READ_ONCE(conn->shutting) && conn->state < RDMA_CONN_FAILED)
		wait_for_completion_timeout(&conn->last_sent, RDMA_SHUT_WAIT);
	spin_lock_irqsave(&conn->lock, flags);
	conn->state = RDMA_CONN_CLOSED;
	conn->status = 0;
	spin_unlock_irqrestore(&conn->lock, flags);
	mutex_unlock(&conn->setup);
	rdma_alive_end(conn);
	cancel_delayed_work_sync(&conn->work);
	rdma_lane_teardown(conn->lane);
	rdma_conn_tell(conn);
	other = rdma_lane_other(conn);
	if (other->used)
		rdma_lane_teardown(other);
	/* A completion may have failed it once more. */
	cancel_delayed_work_sync(&conn->work);
	rdma_uncharge(conn);
	atomic_dec(&rdma_nconns);
	kref_put(&conn->kref, rdma_conn_release);
}
