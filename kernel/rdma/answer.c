// SPDX-License-Identifier: GPL-2.0
/*
 * answer.c - being called: who is meant, and may it be so? Otherwise the caller is refused, and
 * told why. Who cannot prove what it says holds nothing, and learns nothing but the version.
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

static int rdma_refuse(struct rdma_cm_id *id, const struct npulink_wire_refusal *refusal)
{
	rdma_reject(id, refusal, sizeof(*refusal), IB_CM_REJ_CONSUMER_DEFINED);
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
			const struct npulink_wire_ends *ends,
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
	lane->ends = *ends;
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
	rc = rdma_lane_setup(lane, id);
	if (!rc) {
		lane->ends.called_qp = cpu_to_le32(id->qp->qp_num);
		rdma_auth_welcome(lane);
		rdma_conn_param(&param, &lane->welcome, sizeof(lane->welcome));
		rc = rdma_accept(id, &param);
	}
	if (rc)
		rdma_lane_fail(lane, rc);
	mutex_unlock(&conn->setup);
	return true;
}

/* Why a call is not taken. A stranger hears that nobody is here. */
static void rdma_refusal(const struct rdma_listener *listener, const struct npulink_wire_ends *ends,
			 const struct npulink_wire_hello *hello,
			 struct npulink_wire_refusal *refusal)
{
	u8 secret[16];
	bool known;
	int rc;

	rc = npulink_put_expected(listener->net, hello->tag, le32_to_cpu(hello->peer), secret,
				  &known);
	*refusal = (struct npulink_wire_refusal) { .reason = NPULINK_WIRE_NOBODY };
	if (known && rdma_auth_check_hello(secret, ends, hello)) {
		if (!rc)
			refusal->reason = NPULINK_WIRE_LATER;
		else if (rc == -ECONNABORTED)
			refusal->reason = NPULINK_WIRE_FAILED;
		rdma_auth_refusal(secret, ends, hello, refusal);
	}
	memzero_explicit(secret, sizeof(secret));
}

/* Was it said by who is at the other end of @conn, and now, and not by who has listened? */
static bool rdma_hello_good(struct rdma_conn *conn, const struct npulink_wire_ends *ends,
			    const struct npulink_wire_hello *hello)
{
	u64 when = le64_to_cpu(hello->when);

	lockdep_assert_held(&rdma_lock);
	if (when <= conn->their_when || !rdma_auth_check_hello(conn->put->secret, ends, hello))
		return false;
	conn->their_when = when;
	return true;
}

int rdma_conn_request(const struct rdma_listener *listener, struct rdma_cm_id *id,
		      struct rdma_cm_event *event)
{
	struct npulink_wire_refusal refusal = { .reason = NPULINK_WIRE_VERSIONS };
	struct npulink_wire_hello hello;
	struct npulink_wire_ends ends;
	struct rdma_conn *conn;
	bool taken = false;
	u16 flags;
	u64 key;

	if (event->param.conn.private_data_len < sizeof(hello))
		return rdma_refuse(id, &refusal);
	memcpy(&hello, event->param.conn.private_data, sizeof(hello));
	if (!rdma_auth_version(&hello))
		return rdma_refuse(id, &refusal);
	rdma_auth_ends(&ends, id, false, event->param.conn.qp_num);
	flags = le16_to_cpu(hello.flags);
	key = rdma_called_hash(hello.tag, le32_to_cpu(hello.peer), le32_to_cpu(hello.rank));
	mutex_lock(&rdma_lock);
	hash_for_each_possible(rdma_called, conn, hash, key) {
		if (conn->put->net != listener->net || !rdma_auth_means(conn, &hello) ||
		    !rdma_port_allowed(conn->put->dev, listener->net, id->device, id->port_num) ||
		    !rdma_hello_good(conn, &ends, &hello))
			continue;
		if (flags & NPULINK_WIRE_LOST)
			rdma_alive_suspect(conn);
		if (flags & NPULINK_WIRE_KNOCK || conn->active)
			continue;
		taken = rdma_answer(conn, id, &ends, &hello);
		if (taken)
			break;
	}
	mutex_unlock(&rdma_lock);
	if (taken)
		return 0;
	rdma_refusal(listener, &ends, &hello, &refusal);
	return rdma_refuse(id, &refusal);
}
