// SPDX-License-Identifier: GPL-2.0
/*
 * qp.c - what a connection consists of: queue pair, completion queue, keys, slots.
 */
#include "rdma.h"

/* ---- the session's slots, as the device sees them ------------------------------------------ */

static void rdma_slots_unmap(struct rdma_lane *lane)
{
	u32 i;

	for (i = 0; i < NPULINK_PUT_RX; i++)
		if (lane->rx[i].dma)
			ib_dma_unmap_single(lane->ibdev, lane->rx[i].dma, NPULINK_WIRE_SLOT,
					    DMA_FROM_DEVICE);
	for (i = 0; i < NPULINK_PUT_TX; i++)
		if (lane->tx[i].dma)
			ib_dma_unmap_single(lane->ibdev, lane->tx[i].dma, NPULINK_WIRE_SLOT,
					    DMA_TO_DEVICE);
	for (i = 0; i < NPULINK_PUT_RX; i++)
		lane->rx[i].dma = 0;
	for (i = 0; i < NPULINK_PUT_TX; i++)
		lane->tx[i].dma = 0;
}

static int rdma_slots_map(struct rdma_lane *lane)
{
	u64 dma;
	u32 i;

	for (i = 0; i < NPULINK_PUT_RX + NPULINK_PUT_TX; i++) {
		bool rx = i < NPULINK_PUT_RX;

		dma = ib_dma_map_single(lane->ibdev, rdma_slot_va(lane->conn->put, i),
					NPULINK_WIRE_SLOT, rx ? DMA_FROM_DEVICE : DMA_TO_DEVICE);
		/* Taken down with the rest. */
		if (ib_dma_mapping_error(lane->ibdev, dma))
			return -ENOMEM;
		if (rx) {
			lane->rx[i].dma = dma;
			lane->rx[i].cqe.done = rdma_recv_done;
		} else {
			lane->tx[i - NPULINK_PUT_RX].dma = dma;
			lane->tx[i - NPULINK_PUT_RX].cqe.done = rdma_tx_done;
		}
	}
	return 0;
}

/*
 * Give @lane the session's slots, but for those that the core keeps: these follow when it is done
 * with them. Only the session's own lane has them, so the other one was taken down before.
 */
int rdma_lane_slots(struct rdma_lane *lane)
{
	struct rdma_conn *conn = lane->conn;
	unsigned long flags, kept;
	int rc;
	u32 i;

	rc = rdma_slots_map(lane);
	if (rc)
		return rc;
	spin_lock_irqsave(&conn->lock, flags);
	kept = conn->rx_kept;
	conn->rx_live = true;
	spin_unlock_irqrestore(&conn->lock, flags);
	for (i = 0; !rc && i < NPULINK_PUT_RX; i++)
		if (!(kept & BIT(i)))
			rc = rdma_rx_post(lane, i);
	return rc;
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* Unmapping may write to the memory, so it comes before the core gives that back. */
static void rdma_keys_unmap(struct rdma_lane *lane)
{
	u32 i;

	for (i = 0; i < NPULINK_WIRE_GRANTS; i++)
		rdma_key_unmap(lane, &lane->keys[i]);
}

static void rdma_keys_free(struct rdma_lane *lane)
{
	u32 i;

	for (i = 0; i < NPULINK_WIRE_GRANTS; i++) {
		struct rdma_key *key = &lane->keys[i];

		if (key->mr)
			ib_dereg_mr(key->mr);
		key->mr = NULL;
	}
}

static int rdma_keys_alloc(struct rdma_lane *lane)
{
	u32 i;

	for (i = 0; i < NPULINK_WIRE_GRANTS; i++) {
		/* One page more than needed: rxe of 6.1 looks at the one behind the last. */
		struct ib_mr *mr = ib_alloc_mr(lane->pd, IB_MR_TYPE_MEM_REG, RDMA_PAGES + 1);

		if (IS_ERR(mr)) {
			rdma_keys_free(lane);
			return PTR_ERR(mr);
		}
		lane->keys[i].mr = mr;
		lane->keys[i].cqe.done = rdma_revoke_done;
	}
	return 0;
}

/* ---- the first messages ------------------------------------------------------------------ */

/* Ours lies behind the peer's. */
static int rdma_first_map(struct rdma_lane *lane)
{
	struct ib_sge sge = { .length = RDMA_FIRST_LEN, .lkey = lane->pd->local_dma_lkey };
	struct ib_recv_wr wr = { .wr_cqe = &lane->first_cqe, .sg_list = &sge, .num_sge = 1 };
	u64 dma;
	int rc;

	BUILD_BUG_ON(sizeof(struct npulink_wire_auth) > RDMA_FIRST_LEN);
	dma = ib_dma_map_single(lane->ibdev, lane->first, 2 * RDMA_FIRST_LEN, DMA_BIDIRECTIONAL);
	if (ib_dma_mapping_error(lane->ibdev, dma))
		return -ENOMEM;
	sge.addr = dma;
	lane->first_dma = dma;
	lane->first_cqe.done = rdma_lane_first_done;
	lane->said_cqe.done = rdma_lane_said_done;
	rc = ib_post_recv(lane->id->qp, &wr, NULL);
	return rc;
}

static void rdma_first_unmap(struct rdma_lane *lane)
{
	if (lane->first_dma)
		ib_dma_unmap_single(lane->ibdev, lane->first_dma, 2 * RDMA_FIRST_LEN,
				    DMA_BIDIRECTIONAL);
	lane->first_dma = 0;
}

/* ---- all of it --------------------------------------------------------------------------- */

/* The port over which @id leads to the peer, for people. */
void rdma_conn_name(struct rdma_conn *conn, const struct rdma_cm_id *id)
{
	snprintf(conn->put->via, sizeof(conn->put->via), "%s/%u", dev_name(&id->device->dev),
		 id->port_num);
}

/* Everything that @id needs to be connected, but the session's slots. Under conn->setup. */
int rdma_lane_setup(struct rdma_lane *lane, struct rdma_cm_id *id)
{
	struct ib_qp_init_attr attr = {
		.event_handler = NULL, .qp_context = lane, .qp_type = IB_QPT_RC,
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.cap.max_recv_wr = NPULINK_PUT_RX + 2, .cap.max_recv_sge = 1,
	};
	u32 i, wrs;
	int rc;

	lockdep_assert_held(&lane->conn->setup);
	WRITE_ONCE(lane->port, id->port_num);
	/* Whoever sees the device sees which port of it, see rdma_conns_break(). */
	smp_store_release(&lane->ibdev, id->device);
	lane->sge = min_t(u32, RDMA_SGE, id->device->attrs.max_send_sge);
	wrs = DIV_ROUND_UP(RDMA_PAGES, lane->sge);
	/* Messages, each maybe with rdma_grant()'s; revocations; writes; probes; first; drains. */
	attr.cap.max_send_wr = 3 * NPULINK_PUT_TX + NPULINK_WIRE_GRANTS + RDMA_WRITES * wrs +
			       RDMA_PROBES + 3;
	attr.cap.max_send_sge = lane->sge;
	lane->pd = ib_alloc_pd(id->device, 0);
	if (IS_ERR(lane->pd)) {
		rc = PTR_ERR(lane->pd);
		lane->pd = NULL;
		return rc;
	}
	lane->cq = ib_alloc_cq_any(id->device, lane, attr.cap.max_send_wr + attr.cap.max_recv_wr,
				   IB_POLL_SOFTIRQ);
	if (IS_ERR(lane->cq)) {
		rc = PTR_ERR(lane->cq);
		goto err_pd;
	}
	attr.send_cq = lane->cq;
	attr.recv_cq = lane->cq;
	rc = rdma_create_qp(id, lane->pd, &attr);
	if (rc)
		goto err_cq;
	rc = rdma_keys_alloc(lane);
	if (rc)
		goto err_qp;
	for (i = 0; i < RDMA_WRITES; i++)
		lane->writes[i].cqe.done = rdma_write_done;
	lane->probe_cqe.done = rdma_probe_done;
	atomic_set(&lane->probes, 0);
	lane->heard = jiffies;
	lane->writes_free = BIT(RDMA_WRITES) - 1;
	lane->tx_quiet = 0;
	lane->id = id;
	/* Taken down like any other, since something may have been posted. */
	return rdma_first_map(lane);

err_qp:
	rdma_destroy_qp(id);
err_cq:
	ib_free_cq(lane->cq);
err_pd:
	ib_dealloc_pd(lane->pd);
	lane->pd = NULL;
	return rc;
}

/* Undo it, with the id. Waits for completions and CM handlers, so no locks are held. */
void rdma_lane_teardown(struct rdma_lane *lane)
{
	struct rdma_conn *conn = lane->conn;
	struct rdma_cm_id *id = lane->id;

	if (lane->pd) {
		rdma_disconnect(id);
		ib_drain_qp(id->qp);
		/*
		 * All that the peer has said was heard. From here on the core begins nothing;
		 * what it has begun meanwhile comes back as well.
		 */
		if (lane == conn->lane)
			rdma_conn_drained(conn);
		ib_drain_qp(id->qp);
		rdma_keys_unmap(lane);
		if (lane == conn->lane)
			rdma_conn_ended(conn);
		rdma_destroy_qp(id);
		rdma_keys_free(lane);
		rdma_slots_unmap(lane);
		rdma_first_unmap(lane);
		ib_free_cq(lane->cq);
		ib_dealloc_pd(lane->pd);
		lane->pd = NULL;
	}
	if (id)
		rdma_destroy_id(id);
	lane->id = NULL;
	lane->ibdev = NULL;
	lane->proved = false;
	lane->failing = false;
}
