// SPDX-License-Identifier: GPL-2.0
/*
 * qp.c - what a connection consists of: queue pair, completion queue, keys, slots.
 */
#include "rdma.h"

static void rdma_slots_unmap(struct rdma_conn *conn)
{
	u32 i;

	for (i = 0; i < NPULINK_PUT_RX; i++)
		if (conn->rx[i].dma)
			ib_dma_unmap_single(conn->ibdev, conn->rx[i].dma, NPULINK_WIRE_SLOT,
					    DMA_FROM_DEVICE);
	for (i = 0; i < NPULINK_PUT_TX; i++)
		if (conn->tx[i].dma)
			ib_dma_unmap_single(conn->ibdev, conn->tx[i].dma, NPULINK_WIRE_SLOT,
					    DMA_TO_DEVICE);
	for (i = 0; i < NPULINK_PUT_RX; i++)
		conn->rx[i].dma = 0;
	for (i = 0; i < NPULINK_PUT_TX; i++)
		conn->tx[i].dma = 0;
}

static int rdma_slots_map(struct rdma_conn *conn)
{
	u64 dma;
	u32 i;

	for (i = 0; i < NPULINK_PUT_RX + NPULINK_PUT_TX; i++) {
		bool rx = i < NPULINK_PUT_RX;

		dma = ib_dma_map_single(conn->ibdev, rdma_slot_va(conn->put, i),
					NPULINK_WIRE_SLOT, rx ? DMA_FROM_DEVICE : DMA_TO_DEVICE);
		if (ib_dma_mapping_error(conn->ibdev, dma)) {
			rdma_slots_unmap(conn);
			return -ENOMEM;
		}
		if (rx) {
			conn->rx[i].dma = dma;
			conn->rx[i].cqe.done = rdma_recv_done;
		} else {
			conn->tx[i - NPULINK_PUT_RX].dma = dma;
			conn->tx[i - NPULINK_PUT_RX].cqe.done = rdma_tx_done;
		}
	}
	return 0;
}

/* Unmapping may write to the memory, so it comes before the core gives that back. */
static void rdma_keys_unmap(struct rdma_conn *conn)
{
	u32 i;

	for (i = 0; i < NPULINK_WIRE_GRANTS; i++)
		rdma_key_unmap(conn, &conn->keys[i]);
}

static void rdma_keys_free(struct rdma_conn *conn)
{
	u32 i;

	for (i = 0; i < NPULINK_WIRE_GRANTS; i++) {
		struct rdma_key *key = &conn->keys[i];

		if (key->mr)
			ib_dereg_mr(key->mr);
		key->mr = NULL;
	}
}

static int rdma_keys_alloc(struct rdma_conn *conn)
{
	u32 i;

	for (i = 0; i < NPULINK_WIRE_GRANTS; i++) {
		/* One page more than needed: rxe of 6.1 looks at the one behind the last. */
		struct ib_mr *mr = ib_alloc_mr(conn->pd, IB_MR_TYPE_MEM_REG, RDMA_PAGES + 1);

		if (IS_ERR(mr)) {
			rdma_keys_free(conn);
			return PTR_ERR(mr);
		}
		conn->keys[i].mr = mr;
		conn->keys[i].cqe.done = rdma_revoke_done;
	}
	return 0;
}

/* The port over which @id leads to the peer, for people. */
void rdma_conn_name(struct rdma_conn *conn, const struct rdma_cm_id *id)
{
	snprintf(conn->put->via, sizeof(conn->put->via), "%s/%u", dev_name(&id->device->dev),
		 id->port_num);
}

/* Everything that @id needs to be connected. Under conn->setup. */
int rdma_conn_setup(struct rdma_conn *conn, struct rdma_cm_id *id)
{
	struct ib_qp_init_attr attr = {
		.event_handler = NULL, .qp_context = conn, .qp_type = IB_QPT_RC,
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.cap.max_recv_wr = NPULINK_PUT_RX + 1, .cap.max_recv_sge = 1,
	};
	u32 i, wrs;
	int rc;

	lockdep_assert_held(&conn->setup);
	conn->ibdev = id->device;
	rdma_conn_name(conn, id);
	conn->sge = min_t(u32, RDMA_SGE, id->device->attrs.max_send_sge);
	wrs = DIV_ROUND_UP(RDMA_PAGES, conn->sge);
	/* Messages, each maybe with a registration; revocations; writes; probes; drains. */
	attr.cap.max_send_wr = 2 * NPULINK_PUT_TX + NPULINK_WIRE_GRANTS + RDMA_WRITES * wrs +
			       RDMA_PROBES + 2;
	attr.cap.max_send_sge = conn->sge;
	conn->pd = ib_alloc_pd(id->device, 0);
	if (IS_ERR(conn->pd)) {
		rc = PTR_ERR(conn->pd);
		conn->pd = NULL;
		return rc;
	}
	conn->cq = ib_alloc_cq_any(id->device, conn, attr.cap.max_send_wr + attr.cap.max_recv_wr,
				   IB_POLL_SOFTIRQ);
	if (IS_ERR(conn->cq)) {
		rc = PTR_ERR(conn->cq);
		goto err_pd;
	}
	attr.send_cq = conn->cq;
	attr.recv_cq = conn->cq;
	rc = rdma_create_qp(id, conn->pd, &attr);
	if (rc)
		goto err_cq;
	rc = rdma_keys_alloc(conn);
	if (rc)
		goto err_qp;
	rc = rdma_slots_map(conn);
	if (rc)
		goto err_keys;
	for (i = 0; i < RDMA_WRITES; i++)
		conn->writes[i].cqe.done = rdma_write_done;
	conn->probe_cqe.done = rdma_probe_done;
	atomic_set(&conn->probes, 0);
	conn->tx_free = BIT(NPULINK_PUT_TX) - 1;
	conn->writes_free = BIT(RDMA_WRITES) - 1;
	conn->starved = false;
	conn->id = id;
	for (i = 0; !rc && i < NPULINK_PUT_RX; i++)
		rc = rdma_rx_post(conn, i);
	/* Taken down like any other, since some have been posted. */
	return rc;

err_keys:
	rdma_keys_free(conn);
err_qp:
	rdma_destroy_qp(id);
err_cq:
	ib_free_cq(conn->cq);
err_pd:
	ib_dealloc_pd(conn->pd);
	conn->pd = NULL;
	return rc;
}

/* Undo it, with the id. Waits for completions and CM handlers, so no locks are held. */
void rdma_conn_teardown(struct rdma_conn *conn)
{
	struct rdma_cm_id *id = conn->id;

	if (conn->pd) {
		rdma_disconnect(id);
		ib_drain_qp(id->qp);
		/*
		 * All that the peer has said was heard. From here on the core begins nothing;
		 * what it has begun meanwhile comes back as well.
		 */
		WRITE_ONCE(conn->up, false);
		rdma_conn_lost(conn);
		ib_drain_qp(id->qp);
		rdma_keys_unmap(conn);
		rdma_conn_tell(conn);
		rdma_destroy_qp(id);
		rdma_keys_free(conn);
		rdma_slots_unmap(conn);
		ib_free_cq(conn->cq);
		ib_dealloc_pd(conn->pd);
		conn->pd = NULL;
	}
	if (id)
		rdma_destroy_id(id);
	conn->id = NULL;
	conn->ibdev = NULL;
}
