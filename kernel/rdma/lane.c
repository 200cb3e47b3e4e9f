// SPDX-License-Identifier: GPL-2.0
/*
 * lane.c - from two queue pairs that are connected to a connection that the core may use: each
 * side's first message, in which it proves itself and says where it is.
 *
 * Who has called says so first; who was called answers when it has nothing left of an earlier
 * connection. That it may still have one, and think that all is well, is why there are two lanes:
 * only when the caller has proved itself on the one is the other one taken down. A stranger who
 * calls disturbs nobody.
 */
#include "rdma.h"

/* The one that is not the session's. Under conn->setup, or its worker. */
struct rdma_lane *rdma_lane_other(struct rdma_conn *conn)
{
	return conn->lane == &conn->lanes[0] ? &conn->lanes[1] : &conn->lanes[0];
}

/* It goes no further: the worker will see to it. Any context but NMI. */
void rdma_lane_fail(struct rdma_lane *lane, int status)
{
	struct rdma_conn *conn = lane->conn;
	unsigned long flags;

	spin_lock_irqsave(&conn->lock, flags);
	if (lane != conn->lane) {
		lane->failing = true;
	} else if (!conn->failing) {
		conn->failing = true;
		conn->status = status;
	}
	spin_unlock_irqrestore(&conn->lock, flags);
	mod_delayed_work(rdma_wq, &conn->work, 0);
}

/*
 * The session's lane has been taken down: it has failed no more, and if somebody has called on
 * the other one, that is now the session's. Under conn->setup.
 */
bool rdma_lane_next(struct rdma_conn *conn)
{
	struct rdma_lane *lane = rdma_lane_other(conn);
	unsigned long flags;
	bool next;

	lockdep_assert_held(&conn->setup);
	spin_lock_irqsave(&conn->lock, flags);
	conn->failing = false;
	next = lane->used && !lane->failing;
	if (next) {
		lane->used = false;
		conn->lane = lane;
	}
	spin_unlock_irqrestore(&conn->lock, flags);
	return next;
}

/* Our first message, which is behind the place for the peer's. */
int rdma_lane_say(struct rdma_lane *lane)
{
	struct ib_sge sge = {
		.addr = lane->first_dma + RDMA_FIRST_LEN,
		.length = sizeof(struct npulink_wire_auth), .lkey = lane->pd->local_dma_lkey,
	};
	struct ib_send_wr wr = {
		.wr_cqe = &lane->said_cqe, .sg_list = &sge, .num_sge = 1, .opcode = IB_WR_SEND,
		.send_flags = IB_SEND_SIGNALED,
	};

	ib_dma_sync_single_for_device(lane->ibdev, sge.addr, sge.length, DMA_BIDIRECTIONAL);
	return ib_post_send(lane->id->qp, &wr, NULL);
}

static void rdma_lane_prepare(struct rdma_lane *lane)
{
	struct npulink_wire_auth *auth = (void *)(lane->first + RDMA_FIRST_LEN);

	npulink_put_where(lane->conn->put, &auth->place);
	rdma_auth_make(lane, auth);
}

void rdma_lane_said_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct rdma_lane *lane = wc->qp->qp_context;

	if (wc->status != IB_WC_SUCCESS && wc->status != IB_WC_WR_FLUSH_ERR)
		rdma_lane_fail(lane, -EIO);
}

/* The core may use it, unless it has failed already: then it is taken down as what was never up. */
static void rdma_lane_begin(struct rdma_lane *lane)
{
	struct rdma_conn *conn = lane->conn;
	unsigned long flags;
	bool up;

	spin_lock_irqsave(&conn->lock, flags);
	up = !conn->failing;
	if (up) {
		/* With the lock: who finds it up and takes it down sets this again. */
		conn->resuming = false;
		/* After what the handshake wrote: who sees it up may use it without the lock. */
		smp_store_release(&conn->up, true);
	}
	spin_unlock_irqrestore(&conn->lock, flags);
	if (!up)
		return;
	npulink_put_up(conn->put, &lane->theirs);
}

/*
 * The queue pairs are connected, and we have called: say who we are, and where. Or we were called,
 * and the caller has said so: we answer by rdma_resend(). Under conn->setup, and nothing is left
 * of an earlier connection.
 */
int rdma_lane_up(struct rdma_lane *lane)
{
	int rc;

	lockdep_assert_held(&lane->conn->setup);
	rc = rdma_lane_slots(lane);
	if (rc)
		return rc;
	rdma_lane_prepare(lane);
	if (lane->conn->active)
		return rdma_lane_say(lane);
	rdma_conn_name(lane->conn, lane->id);
	rdma_lane_begin(lane);
	return 0;
}

/* The peer's first message. Softirq context. */
static int rdma_lane_first(struct rdma_lane *lane, const struct ib_wc *wc)
{
	struct rdma_conn *conn = lane->conn;
	struct npulink_wire_auth auth;
	unsigned long flags;

	if (wc->opcode != IB_WC_RECV || wc->byte_len != sizeof(auth))
		return -EPROTO;
	memcpy(&auth, lane->first, sizeof(auth));
	if (!rdma_auth_check(lane, &auth))
		return -EACCES;
	lane->theirs = auth.place;
	if (conn->active) {
		rdma_lane_begin(lane);
		return 0;
	}
	spin_lock_irqsave(&conn->lock, flags);
	lane->proved = true;
	/* The peer has hung up on the one before, if we have not heard of it yet. */
	if (lane != conn->lane && !conn->failing) {
		conn->failing = true;
		conn->status = -ECONNRESET;
	}
	spin_unlock_irqrestore(&conn->lock, flags);
	mod_delayed_work(rdma_wq, &conn->work, 0);
	return 0;
}

void rdma_lane_first_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct rdma_lane *lane = wc->qp->qp_context;
	int rc = 0;

	if (wc->status == IB_WC_SUCCESS) {
		ib_dma_sync_single_for_cpu(lane->ibdev, lane->first_dma, RDMA_FIRST_LEN,
					   DMA_BIDIRECTIONAL);
		rc = rdma_lane_first(lane, wc);
	} else if (wc->status != IB_WC_WR_FLUSH_ERR) {
		rc = -EIO;
	}
	if (rc)
		rdma_lane_fail(lane, rc);
}

/* The slot whose message has number @seq, which is to be sent again; or -1. */
static int rdma_resend_slot(struct rdma_conn *conn, u32 seq)
{
	const struct npulink_wire_msg *msg;
	u32 i;

	for (i = 0; i < NPULINK_PUT_TX; i++) {
		if (conn->put->tx_free & BIT(i))
			continue;
		msg = rdma_tx_va(conn, i);
		if (le32_to_cpu(msg->seq) == seq)
			return i;
	}
	return -1;
}

void rdma_resend(struct npulink_put *put, u32 seq)
{
	struct rdma_conn *conn = put->priv;
	const struct npulink_wire_msg *msg;
	unsigned long flags;
	int rc = 0, slot;
	u32 i;

	/* Nothing of ours is under way yet, and none but we begin anything. */
	spin_lock_irqsave(&conn->lock, flags);
	for (i = 0; i < NPULINK_PUT_TX; i++) {
		msg = rdma_tx_va(conn, i);
		if ((s32)(le32_to_cpu(msg->seq) - seq) < 0)
			put->tx_free |= BIT(i);
	}
	conn->starved = false;
	spin_unlock_irqrestore(&conn->lock, flags);
	if (!conn->active)
		rc = rdma_lane_say(conn->lane);
	while (!rc) {
		/* A last message waits here for its turn, or finds that all before it are sent. */
		spin_lock_irqsave(&conn->lock, flags);
		slot = rdma_resend_slot(conn, seq++);
		conn->tx_live = slot < 0;
		spin_unlock_irqrestore(&conn->lock, flags);
		if (slot < 0)
			break;
		rc = rdma_tx_post(conn, slot, NULL, NULL);
	}
	if (rc)
		rdma_conn_fail(conn, rc);
}
