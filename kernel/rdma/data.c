// SPDX-License-Identifier: GPL-2.0
/*
 * data.c - what goes over a connection: messages from slot to slot, writes into memory
 * that the peer has granted, keys for memory that we grant.
 *
 * The send queue holds all that the slots, writes and keys of a connection can ask for, so
 * it is never full; only those run out. Completions come in softirq context.
 */
#include <linux/log2.h>
#include "rdma.h"

/* ---- pieces of memory ------------------------------------------------------------- */

/* Bytes at @o that lie in one piece, at most @len; for a device that works by pages. */
static u32 rdma_piece(const struct npulink_operand *o, u64 done, u32 len, struct page **page,
		      u32 *offset)
{
	const struct npulink_buf_mem *mem = npulink_buf_mem(o->buf);
	u32 i = npulink_mem_range(mem, o->off + done);
	const struct npulink_range *r = &mem->ranges[i];
	void *va = r->va + (o->off + done - r->off);

	len = min_t(u64, len, r[1].off - (o->off + done));
	*offset = offset_in_page(va);
	if (is_vmalloc_addr(va)) {
		*page = vmalloc_to_page(va);
		return min_t(u32, len, PAGE_SIZE - *offset);
	}
	*page = virt_to_page(va);
	return len;
}

static void rdma_copy(void *to, const struct npulink_operand *from, u32 len)
{
	const struct npulink_buf_mem *mem;
	u32 done = 0, i, n;

	if (!len)
		return;
	mem = npulink_buf_mem(from->buf);
	for (i = npulink_mem_range(mem, from->off); done < len; i++, done += n) {
		const struct npulink_range *r = &mem->ranges[i];

		n = min_t(u64, len - done, r[1].off - (from->off + done));
		memcpy(to + done, r->va + (from->off + done - r->off), n);
	}
}

/* ---- messages ---------------------------------------------------------------------- */

int rdma_rx_post(struct rdma_conn *conn, u32 slot)
{
	struct ib_sge sge = {
		.addr = conn->rx[slot].dma, .length = NPULINK_WIRE_SLOT,
		.lkey = conn->pd->local_dma_lkey,
	};
	struct ib_recv_wr wr = { .wr_cqe = &conn->rx[slot].cqe, .sg_list = &sge, .num_sge = 1 };

	ib_dma_sync_single_for_device(conn->ibdev, sge.addr, sge.length, DMA_FROM_DEVICE);
	return ib_post_recv(conn->id->qp, &wr, NULL);
}

void rdma_recycle(struct npulink_put *put, u32 slot)
{
	struct rdma_conn *conn = put->priv;

	if (READ_ONCE(conn->up) && rdma_rx_post(conn, slot))
		rdma_conn_fail(conn, -EIO);
}

void rdma_recv_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct rdma_rx *rx = container_of(wc->wr_cqe, struct rdma_rx, cqe);
	struct rdma_conn *conn = wc->qp->qp_context;
	u32 slot = rx - conn->rx;
	bool keep = false;

	if (wc->status != IB_WC_SUCCESS) {
		if (wc->status != IB_WC_WR_FLUSH_ERR)
			rdma_conn_fail(conn, -EIO);
		return;
	}
	ib_dma_sync_single_for_cpu(conn->ibdev, rx->dma, NPULINK_WIRE_SLOT, DMA_FROM_DEVICE);
	/* Pairs with rdma_conn_set_up(). */
	if (smp_load_acquire(&conn->up)) {
		if (wc->opcode == IB_WC_RECV_RDMA_WITH_IMM)
			npulink_put_arrived(conn->put, be32_to_cpu(wc->ex.imm_data));
		else
			keep = npulink_put_recv(conn->put, slot, wc->byte_len);
	} else if (wc->opcode == IB_WC_RECV) {
		rdma_conn_authenticated(conn, rdma_slot_va(conn->put, slot), wc->byte_len);
	} else {
		rdma_conn_fail(conn, -EPROTO);
	}
	if (!keep && rdma_rx_post(conn, slot))
		rdma_conn_fail(conn, -EIO);
}

/* Something has become free: tell the core if it was refused before. Called unlocked. */
static void rdma_freed(struct rdma_conn *conn, unsigned long *mask, u32 bit)
{
	unsigned long flags;
	bool tell;

	spin_lock_irqsave(&conn->lock, flags);
	*mask |= BIT(bit);
	tell = conn->starved && conn->up;
	conn->starved = false;
	spin_unlock_irqrestore(&conn->lock, flags);
	if (tell)
		npulink_put_room(conn->put);
}

static int rdma_take(struct rdma_conn *conn, unsigned long *mask)
{
	unsigned long flags;
	int bit = -EAGAIN;

	spin_lock_irqsave(&conn->lock, flags);
	if (*mask) {
		bit = __ffs(*mask);
		*mask &= ~BIT(bit);
	} else {
		conn->starved = true;
	}
	spin_unlock_irqrestore(&conn->lock, flags);
	return bit;
}

void rdma_tx_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct rdma_tx *tx = container_of(wc->wr_cqe, struct rdma_tx, cqe);
	struct rdma_conn *conn = wc->qp->qp_context;

	if (wc->status == IB_WC_SUCCESS)
		WRITE_ONCE(conn->heard, jiffies);
	else if (wc->status != IB_WC_WR_FLUSH_ERR)
		rdma_conn_fail(conn, wc->status == IB_WC_RETRY_EXC_ERR ? -EHOSTDOWN : -EIO);
	if (tx->last) {
		complete(&conn->last_sent);
		rdma_conn_fail(conn, 0);
	}
	rdma_freed(conn, &conn->tx_free, tx - conn->tx);
}

/* A slot's message, behind what else is to be done before it. */
static int rdma_tx_post(struct rdma_conn *conn, u32 slot, u32 len, struct ib_send_wr *first)
{
	struct rdma_tx *tx = &conn->tx[slot];
	struct ib_sge sge = { .addr = tx->dma, .length = len, .lkey = conn->pd->local_dma_lkey };
	struct ib_send_wr wr = {
		.wr_cqe = &tx->cqe, .sg_list = &sge, .num_sge = 1, .opcode = IB_WR_SEND,
		.send_flags = IB_SEND_SIGNALED,
	};

	ib_dma_sync_single_for_device(conn->ibdev, tx->dma, len, DMA_TO_DEVICE);
	if (first)
		first->next = &wr;
	return ib_post_send(conn->id->qp, first ?: &wr, NULL);
}

static void *rdma_tx_va(struct rdma_conn *conn, u32 slot)
{
	return rdma_slot_va(conn->put, NPULINK_PUT_RX + slot);
}

int rdma_send(struct npulink_put *put, const struct npulink_wire_msg *msg,
	      const struct npulink_operand *from, u32 len)
{
	struct rdma_conn *conn = put->priv;
	int slot = rdma_take(conn, &conn->tx_free);
	void *va;
	int rc;

	if (slot < 0)
		return -EAGAIN;
	va = rdma_tx_va(conn, slot);
	memcpy(va, msg, sizeof(*msg));
	rdma_copy(va + sizeof(*msg), from, len);
	conn->tx[slot].last = false;
	rc = rdma_tx_post(conn, slot, sizeof(*msg) + len, NULL);
	if (rc) {
		rdma_conn_fail(conn, rc);
		return -EAGAIN;
	}
	return 0;
}

/* The last message, from memory of the kernel. -EAGAIN: there is no slot for it. */
int rdma_send_last(struct rdma_conn *conn, const struct npulink_wire_msg *msg,
		   const void *payload, u32 len)
{
	int slot = rdma_take(conn, &conn->tx_free);
	void *va;
	int rc;

	if (slot < 0)
		return -EAGAIN;
	va = rdma_tx_va(conn, slot);
	memcpy(va, msg, sizeof(*msg));
	memcpy(va + sizeof(*msg), payload, len);
	conn->tx[slot].last = true;
	rc = rdma_tx_post(conn, slot, sizeof(*msg) + len, NULL);
	if (rc)
		rdma_conn_fail(conn, rc);
	return rc;
}

int rdma_send_auth(struct rdma_conn *conn, const struct npulink_wire_auth *auth)
{
	int slot = rdma_take(conn, &conn->tx_free);

	if (slot < 0)
		return -EAGAIN;
	memcpy(rdma_tx_va(conn, slot), auth, sizeof(*auth));
	conn->tx[slot].last = false;
	return rdma_tx_post(conn, slot, sizeof(*auth), NULL);
}

/* ---- keys ------------------------------------------------------------------------------ */

void rdma_key_unmap(struct rdma_conn *conn, struct rdma_key *key)
{
	if (!key->nents)
		return;
	ib_dma_unmap_sg(conn->ibdev, key->sg, key->nents, DMA_FROM_DEVICE);
	key->nents = 0;
	atomic_dec(&rdma_keys);
}

static int rdma_key_map(struct rdma_conn *conn, struct rdma_key *key,
			const struct npulink_operand *to, u32 len)
{
	u32 done = 0, n = 0, offset, piece;
	struct page *page;
	int mapped;

	sg_init_table(key->sg, RDMA_PAGES);
	while (done < len) {
		if (WARN_ON_ONCE(n == RDMA_PAGES))
			return -EINVAL;
		piece = rdma_piece(to, done, len - done, &page, &offset);
		sg_set_page(&key->sg[n++], page, piece, offset);
		done += piece;
	}
	sg_mark_end(&key->sg[n - 1]);
	mapped = ib_dma_map_sg(conn->ibdev, key->sg, n, DMA_FROM_DEVICE);
	if (!mapped)
		return -ENOMEM;
	key->nents = n;
	atomic_inc(&rdma_keys);
	if (ib_map_mr_sg(key->mr, key->sg, mapped, NULL, PAGE_SIZE) != mapped ||
	    key->mr->length != len) {
		rdma_key_unmap(conn, key);
		return -EINVAL;
	}
	ib_update_fast_reg_key(key->mr, ib_inc_rkey(key->mr->rkey));
	return 0;
}

int rdma_grant(struct npulink_put *put, u32 grant, const struct npulink_operand *to, u32 len,
	       struct npulink_wire_msg *msg)
{
	struct rdma_conn *conn = put->priv;
	struct rdma_key *key = &conn->keys[grant];
	struct ib_reg_wr reg = {
		.wr.opcode = IB_WR_REG_MR, .wr.wr_cqe = &key->cqe, .mr = key->mr,
		.access = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE,
	};
	int slot = rdma_take(conn, &conn->tx_free);
	int rc;

	if (slot < 0)
		return -EAGAIN;
	rc = rdma_key_map(conn, key, to, len);
	if (!rc) {
		reg.key = key->mr->rkey;
		msg->addr = cpu_to_le64(key->mr->iova);
		msg->rkey = cpu_to_le32(key->mr->rkey);
		memcpy(rdma_tx_va(conn, slot), msg, sizeof(*msg));
		conn->tx[slot].last = false;
		rc = rdma_tx_post(conn, slot, sizeof(*msg), &reg.wr);
	}
	if (rc) {
		rdma_conn_fail(conn, rc);
		return -EAGAIN;
	}
	return 0;
}

void rdma_revoke(struct npulink_put *put, u32 grant)
{
	struct rdma_conn *conn = put->priv;
	struct rdma_key *key = &conn->keys[grant];
	struct ib_send_wr wr = {
		.wr_cqe = &key->cqe, .opcode = IB_WR_LOCAL_INV, .send_flags = IB_SEND_SIGNALED,
		.ex.invalidate_rkey = key->mr->rkey,
	};
	int rc = ib_post_send(conn->id->qp, &wr, NULL);

	if (rc)
		rdma_conn_fail(conn, rc);
}

void rdma_revoke_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct rdma_key *key = container_of(wc->wr_cqe, struct rdma_key, cqe);
	struct rdma_conn *conn = wc->qp->qp_context;

	/* Keys of a connection that is broken go with it. */
	if (wc->status != IB_WC_SUCCESS) {
		if (wc->status != IB_WC_WR_FLUSH_ERR)
			rdma_conn_fail(conn, -EIO);
		return;
	}
	rdma_key_unmap(conn, key);
	npulink_put_revoked(conn->put, key - conn->keys);
}

/* ---- writes ------------------------------------------------------------------------------ */

void rdma_write_unmap(struct rdma_conn *conn, struct rdma_write *w)
{
	while (w->n) {
		w->n--;
		ib_dma_unmap_page(conn->ibdev, w->sge[w->n].addr, w->sge[w->n].length,
				  DMA_TO_DEVICE);
	}
}

static int rdma_write_map(struct rdma_conn *conn, struct rdma_write *w,
			  const struct npulink_operand *from, u32 len)
{
	u32 done = 0, offset, piece;
	struct page *page;
	u64 dma;

	w->n = 0;
	while (done < len) {
		if (WARN_ON_ONCE(w->n == RDMA_PAGES))
			goto err;
		piece = rdma_piece(from, done, len - done, &page, &offset);
		dma = ib_dma_map_page(conn->ibdev, page, offset, piece, DMA_TO_DEVICE);
		if (ib_dma_mapping_error(conn->ibdev, dma))
			goto err;
		w->sge[w->n++] = (struct ib_sge) {
			.addr = dma, .length = piece, .lkey = conn->pd->local_dma_lkey,
		};
		done += piece;
	}
	return 0;
err:
	rdma_write_unmap(conn, w);
	return -ENOMEM;
}

int rdma_write(struct npulink_put *put, void *cookie, const struct npulink_operand *from, u32 len,
	       u64 addr, u32 rkey, bool last, u32 imm)
{
	struct rdma_conn *conn = put->priv;
	int index = rdma_take(conn, &conn->writes_free);
	struct rdma_write *w;
	u32 i, k, sge = 0;
	int rc;

	if (index < 0)
		return -EAGAIN;
	w = &conn->writes[index];
	w->cookie = cookie;
	w->len = len;
	rc = rdma_write_map(conn, w, from, len);
	if (rc)
		goto err;
	for (i = 0; sge < w->n; i++) {
		struct ib_rdma_wr *wr = &w->wr[i];

		memset(wr, 0, sizeof(*wr));
		wr->remote_addr = addr;
		wr->rkey = rkey;
		wr->wr.opcode = IB_WR_RDMA_WRITE;
		wr->wr.sg_list = &w->sge[sge];
		wr->wr.num_sge = min(w->n - sge, conn->sge);
		for (k = 0; k < wr->wr.num_sge; k++)
			addr += w->sge[sge++].length;
		if (i)
			w->wr[i - 1].wr.next = &wr->wr;
		if (sge < w->n)
			continue;
		wr->wr.wr_cqe = &w->cqe;
		wr->wr.send_flags = IB_SEND_SIGNALED;
		if (last) {
			wr->wr.opcode = IB_WR_RDMA_WRITE_WITH_IMM;
			wr->wr.ex.imm_data = cpu_to_be32(imm);
		}
	}
	rc = ib_post_send(conn->id->qp, &w->wr[0].wr, NULL);
	if (!rc)
		return 0;
	rdma_write_unmap(conn, w);
err:
	rdma_conn_fail(conn, rc);
	return -EAGAIN;
}

void rdma_write_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct rdma_write *w = container_of(wc->wr_cqe, struct rdma_write, cqe);
	struct rdma_conn *conn = wc->qp->qp_context;
	void *cookie = w->cookie;
	u32 len = w->len;

	rdma_write_unmap(conn, w);
	if (wc->status == IB_WC_SUCCESS) {
		WRITE_ONCE(conn->heard, jiffies);
	} else {
		len = 0;
		if (wc->status != IB_WC_WR_FLUSH_ERR)
			rdma_conn_fail(conn, wc->status == IB_WC_RETRY_EXC_ERR ? -EHOSTDOWN : -EIO);
	}
	rdma_freed(conn, &conn->writes_free, w - conn->writes);
	npulink_put_written(conn->put, cookie, len);
}

/* ---- is the peer alive? --------------------------------------------------------------------- */

/*
 * A write of nothing needs no key and disturbs nobody, but is acknowledged. As long as none
 * has been, each next look posts one more, since a device may have gone to sleep over its send
 * queue (rxe of 6.1 does now and then) and is woken by that. Only what comes back from that
 * queue counts as a sign of life: messages that arrive say nothing about our own.
 */
void rdma_probe(struct npulink_put *put)
{
	struct rdma_conn *conn = put->priv;
	struct ib_rdma_wr wr = {
		.wr.wr_cqe = &conn->probe_cqe, .wr.opcode = IB_WR_RDMA_WRITE,
		.wr.send_flags = IB_SEND_SIGNALED,
	};
	int probes = atomic_read(&conn->probes);

	if (!probes) {
		conn->heard = jiffies;
	} else if (time_after(jiffies, READ_ONCE(conn->heard) +
			      msecs_to_jiffies(put->timeout_ms) * 2 / 3)) {
		rdma_conn_fail(conn, -EHOSTDOWN);
		return;
	}
	if (probes == RDMA_PROBES)
		return;
	atomic_inc(&conn->probes);
	if (ib_post_send(conn->id->qp, &wr.wr, NULL))
		rdma_conn_fail(conn, -EIO);
}

void rdma_probe_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct rdma_conn *conn = wc->qp->qp_context;

	if (wc->status == IB_WC_SUCCESS) {
		WRITE_ONCE(conn->heard, jiffies);
		atomic_dec(&conn->probes);
	} else if (wc->status != IB_WC_WR_FLUSH_ERR) {
		rdma_conn_fail(conn, -EHOSTDOWN);
	}
}

/* ---- the end ---------------------------------------------------------------------------- */

void rdma_shut(struct npulink_put *put, const struct npulink_wire_msg *msg, const void *payload,
	       u32 len)
{
	struct rdma_conn *conn = put->priv;
	unsigned long delay = msecs_to_jiffies(200);

	/* Gone when that message has been acknowledged; if it never is, soon. */
	conn->final = true;
	if (!msg || !READ_ONCE(conn->up) || rdma_send_last(conn, msg, payload, len))
		delay = 0;
	if (!delay)
		rdma_conn_fail(conn, 0);
	else
		mod_delayed_work(rdma_wq, &conn->watch, delay);
	conn->shutting = delay;
}
