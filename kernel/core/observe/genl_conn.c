// SPDX-License-Identifier: GPL-2.0
/*
 * genl_conn.c - what ranks exchange with their peers, over netlink: bytes from each, and of
 * peers on other machines where they are and how the connection is.
 */
#include "base/clock.h"
#include "base/notify.h"
#include "comm/comm.h"
#include "observe/genl.h"
#include "remote/remote.h"

/* As the connection was at one moment. */
struct npulink_remote_info {
	u8 state;
	u32 switches;
	char via[32];
	struct npulink_addr addr;
	u64 sent_steps;
	u64 sent_bytes;
	u64 answered_ns;
	struct npulink_wire_msg answer;
	u64 asked_ns;
	struct npulink_wire_msg asked;
};

static u32 npulink_genl_conn_state(u8 state)
{
	switch (state) {
	case NPULINK_REMOTE_UP:
		return NPULINK_CONN_STATE_UP;
	case NPULINK_REMOTE_RESUMING:
		return NPULINK_CONN_STATE_RESUMING;
	case NPULINK_REMOTE_LEFT:
		return NPULINK_CONN_STATE_LEFT;
	case NPULINK_REMOTE_DOWN:
		return NPULINK_CONN_STATE_DOWN;
	default:
		return NPULINK_CONN_STATE_CONNECTING;
	}
}

static int npulink_genl_put_status(struct sk_buff *skb, const struct npulink_remote_info *info)
{
	static const u32 called[] = {
		[NPULINK_WIRE_NOT_CALLED] = NPULINK_CALLED_NOT,
		[NPULINK_WIRE_RUNNING] = NPULINK_CALLED_RUNNING,
		[NPULINK_WIRE_OVER] = NPULINK_CALLED_OVER,
	};
	const struct npulink_wire_status *st = &info->answer.status;
	u64 age = max_t(s64, npulink_clock() - info->answered_ns, 0);
	struct npulink_wait_info wait = {
		.kind = st->kind, .step = le32_to_cpu(st->step), .peer = le32_to_cpu(st->peer),
		.dev = NPULINK_NO_DEV, .peer_dev = NPULINK_NO_DEV,
		.since_ns = le64_to_cpu(st->since), .done = le64_to_cpu(st->done),
		.len = le64_to_cpu(st->len),
	};
	struct nlattr *nest = nla_nest_start(skb, NPULINK_A_CONN_STATUS);

	if (!nest || nla_put_u64_64bit(skb, NPULINK_A_STATUS_AGE, age, NPULINK_A_STATUS_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_STATUS_NEXT, le64_to_cpu(st->next),
			      NPULINK_A_STATUS_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_STATUS_NUMBER, le64_to_cpu(info->answer.number),
			      NPULINK_A_STATUS_PAD) ||
	    (info->answer.flags & NPULINK_WIRE_P2P && nla_put_flag(skb, NPULINK_A_STATUS_P2P)) ||
	    nla_put_u32(skb, NPULINK_A_STATUS_CALLED, called[st->called]) ||
	    nla_put_u32(skb, NPULINK_A_STATUS_TASK, st->task) ||
	    (st->kind && npulink_genl_put_wait(skb, NPULINK_A_STATUS_WAIT, &wait)))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

static int npulink_genl_put_asked(struct sk_buff *skb, const struct npulink_remote_info *info)
{
	u64 age = max_t(s64, npulink_clock() - info->asked_ns, 0);

	if (nla_put_u64_64bit(skb, NPULINK_A_CONN_ASKED, age, NPULINK_A_CONN_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_CONN_ASKED_NUMBER, le64_to_cpu(info->asked.number),
			      NPULINK_A_CONN_PAD) ||
	    (info->asked.flags & NPULINK_WIRE_P2P &&
	     nla_put_flag(skb, NPULINK_A_CONN_ASKED_P2P)) ||
	    nla_put_u64_64bit(skb, NPULINK_A_CONN_ASKED_SINCE,
			      le64_to_cpu(info->asked.status.since), NPULINK_A_CONN_PAD))
		return -EMSGSIZE;
	return 0;
}

static int npulink_genl_put_addr(struct sk_buff *skb, const struct npulink_addr *addr)
{
	if (nla_put(skb, NPULINK_A_CONN_IP, sizeof(addr->ip), addr->ip) ||
	    nla_put_u16(skb, NPULINK_A_CONN_CM, be16_to_cpu(addr->port)))
		return -EMSGSIZE;
	return 0;
}

static int npulink_genl_fill_remote(struct sk_buff *skb, struct npulink_remote *remote)
{
	struct npulink_remote_info info = {};

	spin_lock_irq(&remote->rank->lock);
	info.state = remote->state;
	info.switches = remote->switches;
	info.sent_steps = remote->sent_steps;
	info.sent_bytes = remote->sent_bytes;
	info.answered_ns = remote->answered_ns;
	info.answer = remote->answer;
	info.asked_ns = remote->asked_ns;
	info.asked = remote->asked;
	spin_unlock_irq(&remote->rank->lock);
	/* The transport writes it while nobody may have to wait for us; its last byte stays 0. */
	memcpy(info.via, remote->put.via, sizeof(info.via) - 1);
	info.addr = remote->put.addr;

	if (npulink_genl_put_addr(skb, &info.addr) ||
	    nla_put_u32(skb, NPULINK_A_CONN_SWITCHES, info.switches) ||
	    nla_put_u32(skb, NPULINK_A_CONN_STATE, npulink_genl_conn_state(info.state)) ||
	    nla_put_string(skb, NPULINK_A_CONN_KIND, remote->put.transport->name) ||
	    (*info.via && nla_put_string(skb, NPULINK_A_CONN_VIA, info.via)) ||
	    nla_put_u64_64bit(skb, NPULINK_A_CONN_SENT_STEPS, info.sent_steps,
			      NPULINK_A_CONN_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_CONN_SENT_BYTES, info.sent_bytes,
			      NPULINK_A_CONN_PAD))
		return -EMSGSIZE;
	if (info.answered_ns && npulink_genl_put_status(skb, &info))
		return -EMSGSIZE;
	return info.asked_ns ? npulink_genl_put_asked(skb, &info) : 0;
}

static int npulink_genl_fill_conn(struct sk_buff *skb, struct npulink_rank *rank,
				  struct npulink_conn *conn)
{
	struct npulink_remote *remote = READ_ONCE(conn->remote);
	u32 peer_dev = READ_ONCE(conn->dev);

	if (nla_put_u32(skb, NPULINK_A_CONN_COMM, rank->comm->serial) ||
	    nla_put_u32(skb, NPULINK_A_CONN_RANK, rank->rank) ||
	    nla_put_u32(skb, NPULINK_A_CONN_PEER, conn->rank) ||
	    nla_put_u32(skb, NPULINK_A_CONN_DEV, rank->dev->id) ||
	    (peer_dev != NPULINK_NO_DEV && nla_put_u32(skb, NPULINK_A_CONN_PEER_DEV, peer_dev)) ||
	    nla_put_u64_64bit(skb, NPULINK_A_CONN_STEPS, atomic64_read(&conn->steps),
			      NPULINK_A_CONN_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_CONN_BYTES, atomic64_read(&conn->bytes),
			      NPULINK_A_CONN_PAD))
		return -EMSGSIZE;
	if (remote)
		return npulink_genl_fill_remote(skb, remote);
	return conn->far ? npulink_genl_put_addr(skb, &conn->at.addrs[0]) : 0;
}

/* Goes on with the peer args[2] of rank args[1]. They stay as long as the rank. */
static int npulink_genl_dump_conns(struct sk_buff *skb, struct netlink_callback *cb, void *obj)
{
	struct npulink_comm *comm = obj;
	unsigned long i = cb->args[1], peer = cb->args[2];
	struct npulink_conn *conn;
	struct npulink_rank *rank;
	void *header;
	int rc = 0;

	for (; !rc && (rank = npulink_genl_rank(comm, &i)); i++) {
		if (i != cb->args[1])
			peer = 0;
		xa_for_each_start(&rank->conns, peer, conn, peer) {
			header = npulink_genl_put(skb, cb, NPULINK_GENL_CMD_CONN_GET);
			rc = header ? npulink_genl_fill_conn(skb, rank, conn) : -EMSGSIZE;
			npulink_genl_done(skb, header, rc);
			if (rc) {
				cb->args[1] = i;
				cb->args[2] = peer;
				break;
			}
		}
		npulink_rank_put(rank);
	}
	return rc;
}

int npulink_genl_conn_start(struct netlink_callback *cb)
{
	return npulink_genl_start(cb, &npulink_genl_comms, NPULINK_A_CONN_COMM);
}

int npulink_genl_conn_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	return npulink_genl_dump(skb, cb, &npulink_genl_comms, NPULINK_A_CONN_COMM,
				 npulink_genl_dump_conns);
}
