// SPDX-License-Identifier: GPL-2.0
/*
 * cm.c - the life of a connection. The lower rank calls, again and again as long as the
 * other one is not ready; the other one waits to be called. What has gone wrong before
 * the peer has proved that it knows the secret is nobody's failure, but the end of that try; how
 * long that goes on is alive.c's business. All is taken down by the connection's worker, which
 * waits for everything else.
 */
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/log2.h>
#include "rdma.h"

#define RDMA_RETRY_MIN	10	/* ms */
#define RDMA_RETRY_MAX	500

LIST_HEAD(rdma_conns);

static int rdma_conn_event(struct rdma_cm_id *id, struct rdma_cm_event *event);

static void rdma_conn_release(struct kref *kref)
{
	struct rdma_conn *conn = container_of(kref, struct rdma_conn, kref);

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

/* Have the core begin nothing more, if there will be no connection any more. */
void rdma_conn_lost(struct rdma_conn *conn)
{
	if (conn->state == RDMA_CONN_FAILED || conn->state == RDMA_CONN_CLOSED)
		npulink_put_lost(conn->put, conn->status);
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
void rdma_conn_tell(struct rdma_conn *conn)
{
	if (conn->state != RDMA_CONN_FAILED && conn->state != RDMA_CONN_CLOSED)
		return;
	if (!conn->told)
		npulink_put_down(conn->put, conn->status);
	conn->told = true;
}

/* So that a peer which does not answer is given up in time, whatever is lost on the way. */
static void rdma_conn_timeouts(const struct rdma_conn *conn, struct rdma_cm_id *id)
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

/* Find the way to the peer. */
int rdma_conn_resolve(struct rdma_conn *conn, struct rdma_cm_id *id)
{
	const struct npulink_addr *addr = &conn->put->addr;
	struct sockaddr_storage ss = {};

	if (ipv6_addr_v4mapped((const struct in6_addr *)addr->ip)) {
		struct sockaddr_in *sin = (struct sockaddr_in *)&ss;

		sin->sin_family = AF_INET;
		sin->sin_port = addr->port;
		memcpy(&sin->sin_addr, addr->ip + 12, 4);
	} else {
		struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)&ss;

		sin6->sin6_family = AF_INET6;
		sin6->sin6_port = addr->port;
		memcpy(&sin6->sin6_addr, addr->ip, 16);
	}
	return rdma_resolve_addr(id, NULL, (struct sockaddr *)&ss, RDMA_RESOLVE_MS);
}

static int rdma_conn_call(struct rdma_conn *conn)
{
	struct rdma_cm_id *id;

	lockdep_assert_held(&conn->setup);
	id = rdma_create_id(conn->put->net, rdma_conn_event, conn, RDMA_PS_TCP, IB_QPT_RC);
	if (IS_ERR(id))
		return PTR_ERR(id);
	conn->id = id;
	conn->tried = jiffies;
	conn->state = RDMA_CONN_TRYING;
	rdma_auth_hello(conn, &conn->hello);
	rdma_conn_timeouts(conn, id);
	return rdma_conn_resolve(conn, id);
}

static int rdma_conn_resolved(struct rdma_conn *conn, struct rdma_cm_id *id)
{
	int rc;

	if (!rdma_port_allowed(conn->put->dev, conn->put->net, id->device, id->port_num))
		return -EHOSTUNREACH;
	rc = rdma_conn_setup(conn, id);
	return rc ?: rdma_resolve_route(id, RDMA_RESOLVE_MS);
}

static int rdma_conn_connect(struct rdma_conn *conn, struct rdma_cm_id *id)
{
	struct rdma_conn_param param;

	rdma_conn_param(&param, &conn->hello, sizeof(conn->hello));
	return rdma_connect_locked(id, &param);
}

/* The peer has answered our call. */
static int rdma_conn_established(struct rdma_conn *conn, const struct rdma_cm_event *event)
{
	struct npulink_wire_auth auth;
	int rc;

	if (!conn->active)
		return 0;
	if (event->param.conn.private_data_len < sizeof(conn->welcome))
		return -EPROTO;
	memcpy(&conn->welcome, event->param.conn.private_data, sizeof(conn->welcome));
	if (!rdma_auth_check_welcome(conn))
		return -EACCES;
	rdma_auth_make(conn, &auth);
	conn->state = RDMA_CONN_OPEN;
	/* Pairs with rdma_recv_done(): the answer may be here before we are done. */
	smp_store_release(&conn->up, true);
	rc = rdma_send_auth(conn, &auth);
	if (!rc)
		npulink_put_up(conn->put);
	return rc;
}

static int rdma_conn_rejected(struct rdma_conn *conn, struct rdma_cm_id *id,
			      struct rdma_cm_event *event)
{
	const u8 *reason;
	u8 len;

	reason = rdma_consumer_reject_data(id, event, &len);
	/* Who has called us has changed its mind: that may be a stranger, so it says nothing. */
	if (conn->active && reason && len)
		rdma_alive_answer(conn, *reason);
	return -ECONNREFUSED;
}

static int rdma_conn_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct rdma_conn *conn = id->context;
	int rc = 0;

	mutex_lock(&conn->setup);
	if (conn->id != id ||
	    (conn->state != RDMA_CONN_TRYING && conn->state != RDMA_CONN_OPEN))
		goto out;
	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		rc = rdma_conn_resolved(conn, id);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		rc = rdma_conn_connect(conn, id);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		rc = rdma_conn_established(conn, event);
		break;
	case RDMA_CM_EVENT_REJECTED:
		rc = rdma_conn_rejected(conn, id, event);
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
	if (rc)
		rdma_conn_fail(conn, rc);
out:
	mutex_unlock(&conn->setup);
	return 0;
}

/* ---- being called ------------------------------------------------------------------------ */

static int rdma_refuse(struct rdma_cm_id *id, u8 reason)
{
	rdma_reject(id, &reason, sizeof(reason), IB_CM_REJ_CONSUMER_DEFINED);
	/* The caller destroys the id. */
	return -ECONNREFUSED;
}

/* Take the call if @conn is the one that is meant, and waits. */
static bool rdma_conn_answer(struct rdma_conn *conn, const struct rdma_listener *listener,
			     struct rdma_cm_id *id, const struct npulink_wire_hello *hello)
{
	struct rdma_conn_param param;
	int rc;

	if (conn->active || conn->put->net != listener->net ||
	    !rdma_auth_check_hello(conn, hello))
		return false;
	mutex_lock(&conn->setup);
	if (conn->state != RDMA_CONN_IDLE || conn->failing) {
		mutex_unlock(&conn->setup);
		return false;
	}
	/* From here on the id is ours. */
	id->context = conn;
	id->event_handler = rdma_conn_event;
	conn->id = id;
	conn->tried = jiffies;
	conn->state = RDMA_CONN_OPEN;
	conn->hello = *hello;
	rdma_conn_timeouts(conn, id);
	rdma_auth_welcome(conn);
	rc = rdma_conn_setup(conn, id);
	rdma_conn_param(&param, &conn->welcome, sizeof(conn->welcome));
	if (!rc)
		rc = rdma_accept(id, &param);
	if (rc)
		rdma_conn_fail(conn, rc);
	mutex_unlock(&conn->setup);
	return true;
}

/* Why a call is not taken. */
static u8 rdma_refusal(const struct rdma_listener *listener,
		       const struct npulink_wire_hello *hello)
{
	switch (npulink_put_expected(listener->net, hello->tag, le32_to_cpu(hello->peer))) {
	case 0:
		return NPULINK_WIRE_LATER;
	case -ECONNABORTED:
		return NPULINK_WIRE_FAILED;
	default:
		return NPULINK_WIRE_NOBODY;
	}
}

int rdma_conn_request(const struct rdma_listener *listener, struct rdma_cm_id *id,
		      struct rdma_cm_event *event)
{
	struct npulink_wire_hello hello;
	struct rdma_conn *conn;
	bool taken = false;

	if (event->param.conn.private_data_len < sizeof(hello))
		return rdma_refuse(id, NPULINK_WIRE_VERSIONS);
	memcpy(&hello, event->param.conn.private_data, sizeof(hello));
	if (!rdma_auth_limits(&hello))
		return rdma_refuse(id, NPULINK_WIRE_VERSIONS);
	mutex_lock(&rdma_lock);
	list_for_each_entry(conn, &rdma_conns, node) {
		if (!rdma_port_allowed(conn->put->dev, listener->net, id->device, id->port_num))
			continue;
		taken = rdma_conn_answer(conn, listener, id, &hello);
		if (taken)
			break;
	}
	mutex_unlock(&rdma_lock);
	return taken ? 0 : rdma_refuse(id, rdma_refusal(listener, &hello));
}

/* The caller's first message. Softirq context. */
void rdma_conn_authenticated(struct rdma_conn *conn, const void *msg, u32 len)
{
	struct npulink_wire_auth auth;
	unsigned long flags;
	bool up;

	if (conn->active || len != sizeof(auth)) {
		rdma_conn_fail(conn, -EPROTO);
		return;
	}
	memcpy(&auth, msg, sizeof(auth));
	if (!rdma_auth_check(conn, &auth)) {
		rdma_conn_fail(conn, -EACCES);
		return;
	}
	/* One that is failing is taken down as what was never up, see rdma_conn_work(). */
	spin_lock_irqsave(&conn->lock, flags);
	up = !conn->failing;
	if (up)
		/* After what the handshake wrote: who sees it up may use it without the lock. */
		smp_store_release(&conn->up, true);
	spin_unlock_irqrestore(&conn->lock, flags);
	if (up)
		npulink_put_up(conn->put);
}

/* ---- the worker ----------------------------------------------------------------------------- */

static void rdma_conn_work(struct work_struct *work)
{
	struct rdma_conn *conn = container_of(to_delayed_work(work), struct rdma_conn, work);
	unsigned long flags;
	bool again = false;
	int rc;

	mutex_lock(&conn->setup);
	if (conn->state >= RDMA_CONN_FAILED)
		goto out;
	if (!READ_ONCE(conn->failing)) {
		rc = conn->active && conn->state == RDMA_CONN_IDLE ? rdma_conn_call(conn) : 0;
		if (!rc)
			goto out;
		rdma_conn_fail(conn, rc);
	}
	spin_lock_irqsave(&conn->lock, flags);
	conn->state = conn->up || conn->final ? RDMA_CONN_FAILED : RDMA_CONN_RESET;
	spin_unlock_irqrestore(&conn->lock, flags);
	mutex_unlock(&conn->setup);

	/*
	 * Nobody sets anything up now. Others need not wait until it is taken down to hear of
	 * it; but of a peer that hangs up, what it has said before comes first.
	 */
	if (conn->status != -ECONNRESET)
		rdma_conn_lost(conn);
	rdma_conn_teardown(conn);
	rdma_conn_tell(conn);

	mutex_lock(&conn->setup);
	if (conn->state == RDMA_CONN_RESET) {
		spin_lock_irqsave(&conn->lock, flags);
		conn->failing = false;
		spin_unlock_irqrestore(&conn->lock, flags);
		conn->state = RDMA_CONN_IDLE;
		again = conn->active;
		/* Shut or given up meanwhile: that was overwritten just now. */
		if (conn->final)
			rdma_conn_fail(conn, conn->status);
	}
	if (again) {
		queue_delayed_work(rdma_wq, &conn->work, msecs_to_jiffies(conn->delay));
		conn->delay = min3(conn->delay * 2, conn->put->timeout_ms / 8,
				   (unsigned int)RDMA_RETRY_MAX);
	}
out:
	mutex_unlock(&conn->setup);
}

/*
 * Break the connections of a device of ours over one of theirs (NULL: any), and wait until
 * nothing of them is left. No locks held.
 */
void rdma_conns_break(const struct npulink_device *dev, const struct ib_device *ibdev, int status)
{
	struct rdma_conn *conn, *found;

	do {
		found = NULL;
		mutex_lock(&rdma_lock);
		list_for_each_entry(conn, &rdma_conns, node) {
			if (READ_ONCE(conn->ibdev) != ibdev)
				continue;
			/* One of no device may use the ports of others, but not this one. */
			if (dev && conn->put->dev != dev && (conn->put->dev || !ibdev))
				continue;
			if (!ibdev && conn->state >= RDMA_CONN_FAILED)
				continue;
			found = conn;
			kref_get(&conn->kref);
			break;
		}
		mutex_unlock(&rdma_lock);
		if (found) {
			if (ibdev)
				rdma_conn_fail(found, status);
			else
				rdma_conn_give_up(found, status);
			flush_delayed_work(&found->work);
			kref_put(&found->kref, rdma_conn_release);
		}
	} while (found);
}

/* ---- what the core calls --------------------------------------------------------------- */

int rdma_open(struct npulink_put *put)
{
	struct rdma_conn *conn = kvzalloc(sizeof(*conn), GFP_KERNEL_ACCOUNT);

	if (!conn)
		return -ENOMEM;
	kref_init(&conn->kref);
	if (!put->timeout_ms)
		put->timeout_ms = READ_ONCE(rdma_peer_timeout);
	conn->put = put;
	conn->active = put->rank < put->peer;
	conn->delay = RDMA_RETRY_MIN;
	conn->heard_of = jiffies;
	conn->knocked = jiffies;
	/* A call that was lost is repeated; who has been called had to be there. */
	conn->patience = conn->active ? put->timeout_ms / 2 : put->timeout_ms;
	mutex_init(&conn->setup);
	spin_lock_init(&conn->lock);
	init_completion(&conn->last_sent);
	INIT_DELAYED_WORK(&conn->work, rdma_conn_work);
	INIT_DELAYED_WORK(&conn->watch, rdma_alive_watch);
	put->priv = conn;
	atomic_inc(&rdma_nconns);
	mutex_lock(&rdma_lock);
	list_add_tail(&conn->node, &rdma_conns);
	mutex_unlock(&rdma_lock);
	if (conn->active)
		queue_delayed_work(rdma_wq, &conn->work, 0);
	mod_delayed_work(rdma_wq, &conn->watch, msecs_to_jiffies(put->timeout_ms / 8));
	return 0;
}

void rdma_close(struct npulink_put *put, const struct npulink_wire_msg *msg)
{
	struct rdma_conn *conn = put->priv;

	if (msg) {
		mutex_lock(&conn->setup);
		if (conn->up && conn->state == RDMA_CONN_OPEN &&
		    !rdma_send_last(conn, msg, NULL, 0)) {
			mutex_unlock(&conn->setup);
			wait_for_completion_timeout(&conn->last_sent, HZ);
		} else {
			mutex_unlock(&conn->setup);
		}
	}
	/* What the peer is to be told of a failure goes before the connection does. */
	if (READ_ONCE(conn->shutting))
		wait_for_completion_timeout(&conn->last_sent, HZ);
	mutex_lock(&rdma_lock);
	list_del(&conn->node);
	mutex_unlock(&rdma_lock);
	mutex_lock(&conn->setup);
	conn->state = RDMA_CONN_CLOSED;
	conn->status = 0;
	mutex_unlock(&conn->setup);
	rdma_alive_end(conn);
	cancel_delayed_work_sync(&conn->work);
	rdma_conn_teardown(conn);
	rdma_conn_tell(conn);
	/* A completion may have failed it once more. */
	cancel_delayed_work_sync(&conn->work);
	atomic_dec(&rdma_nconns);
	kref_put(&conn->kref, rdma_conn_release);
}
