// SPDX-License-Identifier: GPL-2.0
/*
 * alive.c - is the peer's machine alive, as long as there is no connection to it? Both sides
 * want to know: a rank whose peer is late waits, a rank whose peer's machine has died is told.
 * So whoever has not heard of the peer for a while knocks: a call that is always refused, and
 * that only a machine refuses that is there. Once there is a connection, probes go over that
 * (rdma_probe()).
 *
 * The watch does not wait for the connection manager, whose own timeouts add up to a minute.
 */
#include "rdma.h"

#define RDMA_PATIENCE_MAX	10000	/* ms, of one try */

/* @proved: a member says so. Anybody may say the rest, and may delay us, but ends nothing. */
static void rdma_alive_answer(struct rdma_conn *conn, u8 reason, bool proved)
{
	switch (reason) {
	case NPULINK_WIRE_LATER:
		if (!proved)
			break;
		WRITE_ONCE(conn->absent, 0);
		/* Who was here already is not waited for longer, as others wait meanwhile. */
		if (!conn->resuming)
			WRITE_ONCE(conn->heard_of, jiffies);
		break;
	case NPULINK_WIRE_NOBODY:
		/* It may not have joined yet, but does not keep us waiting for ever. */
		WRITE_ONCE(conn->absent, -ESRCH);
		if (proved && conn->put->agree)
			rdma_conn_give_up(conn, -ESRCH);
		break;
	case NPULINK_WIRE_FAILED:
		if (proved)
			rdma_conn_give_up(conn, -ECONNABORTED);
		break;
	case NPULINK_WIRE_VERSIONS:
		/* Who has another one cannot prove it to us. */
		WRITE_ONCE(conn->absent, -EPROTONOSUPPORT);
		break;
	}
}

/* The peer's machine has refused a call, or a knock. */
void rdma_alive_refused(struct rdma_conn *conn, struct rdma_cm_id *id, struct rdma_cm_event *event,
			const struct npulink_wire_ends *ends,
			const struct npulink_wire_hello *hello)
{
	struct npulink_wire_refusal refusal = {};
	const void *data;
	u8 len = 0;

	data = rdma_consumer_reject_data(id, event, &len);
	if (data)
		memcpy(&refusal, data, min_t(size_t, len, sizeof(refusal)));
	/* No rank there takes calls (any more). */
	if (event->status == IB_CM_REJ_INVALID_SERVICE_ID)
		refusal.reason = NPULINK_WIRE_NOBODY;
	rdma_alive_answer(conn, refusal.reason,
			  rdma_auth_check_refusal(conn->put->secret, ends, hello, &refusal));
}

/* ---- knocking --------------------------------------------------------------------------- */

static int rdma_knock_connect(struct rdma_conn *conn, struct rdma_cm_id *id)
{
	struct npulink_wire_hello *hello = &conn->knock_hello;
	struct rdma_conn_param param;

	rdma_auth_ends(&conn->knock_ends, id, true, 0);
	rdma_auth_hello(conn, &conn->knock_ends,
			NPULINK_WIRE_KNOCK | (conn->resuming ? NPULINK_WIRE_LOST : 0), hello);
	rdma_conn_param(&param, hello, sizeof(*hello));
	return rdma_connect_locked(id, &param);
}

/* Everything but the id's end, which is the watch's. */
static int rdma_knock_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct rdma_conn *conn = id->context;
	int rc = -EIO;

	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (!rdma_port_allowed(conn->put->dev, conn->put->net, id->device, id->port_num))
			break;
		if (!*conn->put->via)
			rdma_conn_name(conn, id);
		rc = rdma_resolve_route(id, RDMA_RESOLVE_MS);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		rc = rdma_knock_connect(conn, id);
		break;
	case RDMA_CM_EVENT_REJECTED:
		rdma_alive_refused(conn, id, event, &conn->knock_ends, &conn->knock_hello);
		break;
	default:
		break;
	}
	if (rc) {
		WRITE_ONCE(conn->knock_over, true);
		mod_delayed_work(rdma_wq, &conn->watch, 0);
	}
	return 0;
}

static void rdma_knock_end(struct rdma_conn *conn)
{
	if (conn->knock)
		rdma_destroy_id(conn->knock);
	conn->knock = NULL;
}

/* At one of its addresses after the other. */
static void rdma_knock(struct rdma_conn *conn)
{
	struct rdma_cm_id *id;
	struct rdma_aim aim;

	conn->knocked = jiffies;
	rdma_aim(conn, conn->target + conn->knocks++, &aim);
	id = rdma_create_id(conn->put->net, rdma_knock_event, conn, RDMA_PS_TCP, IB_QPT_RC);
	if (IS_ERR(id))
		return;
	conn->knock_over = false;
	conn->knock = id;
	if (rdma_conn_resolve(id, &aim))
		rdma_knock_end(conn);
}

/* ---- the watch -------------------------------------------------------------------------- */

static bool rdma_since(unsigned long when, unsigned int ms)
{
	return time_after_eq(jiffies, when + msecs_to_jiffies(ms));
}

/* A try that gets nowhere makes room for the next one. */
static void rdma_alive_try(struct rdma_conn *conn)
{
	/* Who holds it sets something up just now. */
	if (!mutex_trylock(&conn->setup))
		return;
	if ((conn->state == RDMA_CONN_TRYING || conn->state == RDMA_CONN_OPEN) &&
	    !READ_ONCE(conn->up) && rdma_since(conn->lane->since, conn->patience)) {
		if (!conn->resuming)
			conn->patience = min_t(u32, conn->patience * 2, conn->several ?
					       conn->put->timeout_ms / 2 : RDMA_PATIENCE_MAX);
		rdma_conn_fail(conn, -ETIMEDOUT);
	}
	mutex_unlock(&conn->setup);
}

/* The same on the other lane. Returns whether somebody is there. */
static bool rdma_alive_other(struct rdma_conn *conn)
{
	struct rdma_lane *lane;
	bool used = true;

	if (!mutex_trylock(&conn->setup))
		return true;
	lane = rdma_lane_other(conn);
	used = lane->used;
	if (used && rdma_since(lane->since, conn->patience))
		rdma_lane_fail(lane, -ETIMEDOUT);
	mutex_unlock(&conn->setup);
	return used;
}

/*
 * The peer's machine, or a stranger, says that the connection is lost. If nothing is under way, we
 * would not notice. That costs a probe or two.
 */
void rdma_alive_suspect(struct rdma_conn *conn)
{
	WRITE_ONCE(conn->suspect, true);
	mod_delayed_work(rdma_wq, &conn->watch, 0);
}

/* Returns whether that is not known yet. */
static bool rdma_alive_probe(struct rdma_conn *conn)
{
	if (!READ_ONCE(conn->suspect) || !mutex_trylock(&conn->setup))
		return READ_ONCE(conn->suspect);
	/* It is not taken down as long as we hold that. */
	if (conn->state == RDMA_CONN_OPEN && READ_ONCE(conn->up)) {
		int probes = atomic_read(&conn->lane->probes);

		conn->suspect = !conn->suspected || probes;
		if (conn->suspect)
			rdma_probe(conn->put);
		conn->suspected = conn->suspect;
	} else {
		conn->suspect = false;
		conn->suspected = false;
	}
	mutex_unlock(&conn->setup);
	return conn->suspect;
}

void rdma_alive_watch(struct work_struct *work)
{
	struct rdma_conn *conn = container_of(to_delayed_work(work), struct rdma_conn, watch);
	u32 bound = conn->put->timeout_ms;
	bool other, early;
	int why;

	if (READ_ONCE(conn->state) == RDMA_CONN_CLOSED)
		return;		/* see rdma_alive_end() */
	if (conn->knock && (READ_ONCE(conn->knock_over) || READ_ONCE(conn->up) || conn->final ||
			    rdma_since(conn->knocked, conn->several ? bound / 8 : bound / 2)))
		rdma_knock_end(conn);
	if (conn->final) {
		/* Its last message was not acknowledged. */
		rdma_conn_fail(conn, 0);
		return;
	}
	if (conn->state == RDMA_CONN_FAILED)
		return;
	other = rdma_alive_other(conn);
	if (READ_ONCE(conn->up)) {
		if (rdma_alive_probe(conn) || other)
			queue_delayed_work(rdma_wq, &conn->watch, msecs_to_jiffies(bound / 12));
		return;
	}
	/*
	 * Who has left is not missed by those who need nothing of it. We look at it now and then
	 * only, and others have to be told, too: all within the bound.
	 */
	if (rdma_since(READ_ONCE(conn->heard_of), bound / 4 * 3) && npulink_put_needed(conn->put)) {
		why = READ_ONCE(conn->absent) ?: conn->resuming ? conn->lost : -EHOSTDOWN;
		/* Before it is taken down, for which it may have to wait. */
		npulink_put_lost(conn->put, why);
		rdma_conn_give_up(conn, why);
		rdma_knock_end(conn);
		return;
	}
	rdma_alive_try(conn);
	/* An agreement begins on machines that have heard of it; who is to call may not have. */
	early = conn->resuming || (conn->put->agree && !conn->active);
	if (!conn->knock && (early || rdma_since(READ_ONCE(conn->heard_of), bound / 4)) &&
	    rdma_since(conn->knocked, bound / 8))
		rdma_knock(conn);
	queue_delayed_work(rdma_wq, &conn->watch,
			   msecs_to_jiffies(bound / (conn->several ? 24 : 8)));
}

/* No more of it: the connection is closed, and its watch looks at nothing any more. */
void rdma_alive_end(struct rdma_conn *conn)
{
	cancel_delayed_work_sync(&conn->watch);
	rdma_knock_end(conn);
	/* A knock may have been answered in between. */
	cancel_delayed_work_sync(&conn->watch);
}
