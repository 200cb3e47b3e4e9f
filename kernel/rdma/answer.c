// SPDX-License-Identifier: GPL-2.0
/*
 * answer.c - being called: who is meant, and may it be so? Otherwise the caller is refused, with
 * a byte that says why.
 */
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/siphash.h>
#include <net/ipv6.h>
#include "rdma.h"

/* Where a session is in rdma_called: strangers call, and must not make us look at many. */
u64 rdma_called_hash(const u8 *tag, u32 rank, u32 peer)
{
	static siphash_key_t key __aligned(8);
	u64 which;

	get_random_once(&key, sizeof(key));
	memcpy(&which, tag, sizeof(which));
	return siphash_2u64(which, (u64)rank << 32 | peer, &key);
}

static int rdma_refuse(struct rdma_cm_id *id, u8 reason)
{
	rdma_reject(id, &reason, sizeof(reason), IB_CM_REJ_CONSUMER_DEFINED);
	/* The caller destroys the id. */
	return -ECONNREFUSED;
}

/*
 * The lane for a call: the session's if that waits for one, or the other one, if it may be that
 * the peer has lost the first and tries another port. Or NULL.
 */
static struct rdma_lane *rdma_answer_lane(struct rdma_conn *conn)
{
	struct rdma_lane *other = rdma_lane_other(conn);

	lockdep_assert_held(&conn->setup);
	if (conn->final)
		return NULL;
	if (conn->state == RDMA_CONN_IDLE)
		return conn->failing ? NULL : conn->lane;
	if (conn->state != RDMA_CONN_OPEN || !conn->several || other->used)
		return NULL;
	other->used = true;
	return other;
}

/* Which of its addresses the peer calls from, for people. */
void rdma_answer_addr(struct rdma_conn *conn, const struct rdma_cm_id *id)
{
	const struct sockaddr *sa = (const struct sockaddr *)&id->route.addr.dst_addr;
	struct in6_addr ip;
	u32 i;

	if (sa->sa_family == AF_INET)
		ipv6_addr_set_v4mapped(((const struct sockaddr_in *)sa)->sin_addr.s_addr, &ip);
	else
		ip = ((const struct sockaddr_in6 *)sa)->sin6_addr;
	for (i = 0; i < conn->put->naddrs; i++)
		if (!memcmp(conn->put->addrs[i].ip, &ip, sizeof(ip)))
			conn->put->addr = conn->put->addrs[i];
}

/* Take the call if @conn is the one that is meant, and waits. */
static bool rdma_answer(struct rdma_conn *conn, struct rdma_cm_id *id,
			const struct npulink_wire_hello *hello)
{
	struct rdma_conn_param param;
	struct rdma_lane *lane;
	int rc;

	mutex_lock(&conn->setup);
	lane = rdma_answer_lane(conn);
	if (!lane) {
		mutex_unlock(&conn->setup);
		return false;
	}
	/* From here on the id is ours. */
	id->context = lane;
	id->event_handler = rdma_conn_event;
	lane->id = id;
	lane->since = jiffies;
	lane->hello = *hello;
	if (lane == conn->lane) {
		conn->state = RDMA_CONN_OPEN;
		rdma_conn_name(conn, id);
		rdma_answer_addr(conn, id);
	} else {
		/* It looks after those who say no more. */
		mod_delayed_work(rdma_wq, &conn->watch, 0);
	}
	rdma_conn_timeouts(conn, id);
	rdma_auth_welcome(lane);
	rc = rdma_lane_setup(lane, id);
	rdma_conn_param(&param, &lane->welcome, sizeof(lane->welcome));
	if (!rc)
		rc = rdma_accept(id, &param);
	if (rc)
		rdma_lane_fail(lane, rc);
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
	u32 flags;
	u64 key;

	if (event->param.conn.private_data_len < sizeof(hello))
		return rdma_refuse(id, NPULINK_WIRE_VERSIONS);
	memcpy(&hello, event->param.conn.private_data, sizeof(hello));
	if (!rdma_auth_limits(&hello))
		return rdma_refuse(id, NPULINK_WIRE_VERSIONS);
	flags = le32_to_cpu(hello.flags);
	mutex_lock(&rdma_lock);
	key = rdma_called_hash(hello.tag, le32_to_cpu(hello.peer), le32_to_cpu(hello.rank));
	hash_for_each_possible(rdma_called, conn, hash, key) {
		if (conn->put->net != listener->net || !rdma_auth_check_hello(conn, &hello) ||
		    !rdma_port_allowed(conn->put->dev, listener->net, id->device, id->port_num))
			continue;
		if (flags & NPULINK_WIRE_LOST)
			rdma_alive_suspect(conn);
		if (flags & NPULINK_WIRE_KNOCK || conn->active)
			continue;
		taken = rdma_answer(conn, id, &hello);
		if (taken)
			break;
	}
	mutex_unlock(&rdma_lock);
	return taken ? 0 : rdma_refuse(id, rdma_refusal(listener, &hello));
}
