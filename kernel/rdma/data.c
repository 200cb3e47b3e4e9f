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

int rdma_rx_post(struct rdma_lane *lane, u32 slot)
{
	struct ib_sge sge = {
		.addr = lane->rx[slot].dma, .length = NPULINK_WIRE_SLOT,
		.lkey = lane->pd->local_dma_lkey,
	};
	struct ib_recv_wr wr = { .wr_cqe = &lane->rx[slot].cqe, .sg_list = &sge, .num_sge = 1 };

	ib_dma_sync_single_for_device(lane->ibdev, sge.addr, sge.length, DMA_FROM_DEVICE);
	return ib_post_recv(lane->id->qp, &wr, NULL);
}

void rdma_recycle(struct npulink_put *put, u32 slot)
{
	struct rdma_conn *conn = put->priv;
	unsigned long flags;
	int rc = 0;

	/* Without a connection, it is there for the next one. */
	spin_lock_irqsave(&conn->lock, flags);
	conn->rx_kept &= ~BIT(slot);
	if (conn->rx_live)
		rc = rdma_rx_post(conn->lane, slot);
	spin_unlock_irqrestore(&conn->lock, flags);
	if (rc)
		rdma_conn_fail(conn, -EIO);
}

/* Before the core is asked, as it may be done with the slot at once. */
static void rdma_rx_keep(struct rdma_conn *conn, u32 slot, bool keep)
{
	unsigned long flags;

	spin_lock_irqsave(&conn->lock, flags);
	if (keep)
		conn->rx_kept |= BIT(slot);
	else
		conn->rx_kept &= ~BIT(slot);
	spin_unlock_irqrestore(&conn->lock, flags);
}

void rdma_recv_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct rdma_slot *rx = container_of(wc->wr_cqe, struct rdma_slot, cqe);
	struct rdma_lane *lane = wc->qp->qp_context;
	struct rdma_conn *conn = lane->conn;
	u32 slot = rx - lane->rx;

	if (wc->status != IB_WC_SUCCESS) {
		if (wc->status != IB_WC_WR_FLUSH_ERR)
			rdma_conn_fail(conn, -EIO);
		return;
	}
	ib_dma_sync_single_for_cpu(lane->ibdev, rx->dma, NPULINK_WIRE_SLOT, DMA_FROM_DEVICE);
	/* Pairs with rdma_lane_up(). */
	if (!smp_load_acquire(&conn->up)) {
		/* It is failing; or the peer has not waited for our answer. */
		rdma_lane_fail(lane, -EPROTO);
	} else if (wc->opcode == IB_WC_RECV_RDMA_WITH_IMM) {
		npulink_put_arrived(conn->put, be32_to_cpu(wc->ex.imm_data));
	} else {
		rdma_rx_keep(conn, slot, true);
		if (npulink_put_recv(conn->put, slot, wc->byte_len))
			return;
		rdma_rx_keep(conn, slot, false);
	}
	if (rdma_rx_post(lane, slot))
		rdma_conn_fail(conn, -EIO);
}

/* Something has become free: tell the core if it was refused before. Called unlocked. */
static void rdma_freed(struct rdma_conn *conn, unsigned long *mask, unsigned long bits)
{
	unsigned long flags;
	bool tell;

	spin_lock_irqsave(&conn->lock, flags);
	*mask |= bits;
	tell = conn->starved && conn->up;
	conn->starved = false;
	spin_unlock_irqrestore(&conn->lock, flags);
	if (tell)
		npulink_put_room(conn->put);
}

static int rdma_take(struct rdma_conn *conn, unsigned long *mask)
{
	unsigned long flags, free;
	int bit = -EAGAIN;

	spin_lock_irqsave(&conn->lock, flags);
	free = *mask;
	/* One is left for the last message, see rdma_send_last(). */
	if (mask == &conn->put->tx_free)
		free &= free - 1;
	if (free) {
		bit = __ffs(free);
		*mask &= ~BIT(bit);
		if (mask == &conn->put->tx_free)
			conn->tx_last &= ~BIT(bit);
	} else {
		conn->starved = true;
	}
	spin_unlock_irqrestore(&conn->lock, flags);
	return bit;
}

/* What could not be begun. */
static void rdma_give(struct rdma_conn *conn, unsigned long *mask, u32 bit)
{
	unsigned long flags;

	spin_lock_irqsave(&conn->lock, flags);
	*mask |= BIT(bit);
	spin_unlock_irqrestore(&conn->lock, flags);
}

void rdma_tx_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct rdma_slot *tx = container_of(wc->wr_cqe, struct rdma_slot, cqe);
	struct rdma_lane *lane = wc->qp->qp_context;
	struct rdma_conn *conn = lane->conn;
	u32 slot = tx - lane->tx;

	/* Without that the message is kept: there may be another connection. */
	if (wc->status == IB_WC_SUCCESS)
		WRITE_ONCE(lane->heard, jiffies);
	else if (wc->status != IB_WC_WR_FLUSH_ERR)
		rdma_conn_fail(conn, wc->status == IB_WC_RETRY_EXC_ERR ? -EHOSTDOWN : -EIO);
	if (READ_ONCE(conn->tx_last) & BIT(slot) &&
	    (wc->status == IB_WC_SUCCESS || conn->final || !conn->several)) {
		complete(&conn->last_sent);
		rdma_conn_fail(conn, 0);
	}
	if (wc->status == IB_WC_SUCCESS)
		rdma_freed(conn, &conn->put->tx_free, BIT(slot) | lane->tx_before[slot]);
}

void *rdma_tx_va(struct rdma_conn *conn, u32 slot)
{
	return rdma_slot_va(conn->put, NPULINK_PUT_RX + slot);
}

/*
 * Whether the completion of @slot's message is asked for: of one in RDMA_QUIET, which then frees
 * the slots of those before it, too, as a queue pair completes in order; and of a last message,
 * which others may be posted beside. Else those who post to a connection take turns.
 */
static bool rdma_tx_signal(struct rdma_conn *conn, u32 slot)
{
	struct rdma_lane *lane = conn->lane;

	/* Those that are not asked for may not be all that there are. */
	BUILD_BUG_ON(RDMA_QUIET > NPULINK_PUT_TX - 1);
	lane->tx_before[slot] = 0;
	if (READ_ONCE(conn->tx_last) & BIT(slot))
		return true;
	if (hweight_long(lane->tx_quiet) < RDMA_QUIET - 1) {
		lane->tx_quiet |= BIT(slot);
		return false;
	}
	lane->tx_before[slot] = lane->tx_quiet;
	lane->tx_quiet = 0;
	return true;
}

/* A slot's message, behind what else is to be done before it, the last of which is @last. */
int rdma_tx_post(struct rdma_conn *conn, u32 slot, struct ib_send_wr *first,
		 struct ib_send_wr *last)
{
	struct rdma_lane *lane = conn->lane;
	struct rdma_slot *tx = &lane->tx[slot];
	u32 len = conn->tx_len[slot];
	struct ib_sge sge = { .addr = tx->dma, .length = len, .lkey = lane->pd->local_dma_lkey };
	struct ib_send_wr wr = {
		.wr_cqe = &tx->cqe, .sg_list = &sge, .num_sge = 1, .opcode = IB_WR_SEND,
		.send_flags = rdma_tx_signal(conn, slot) ? IB_SEND_SIGNALED : 0,
	};
	int rc;

	ib_dma_sync_single_for_device(lane->ibdev, tx->dma, len, DMA_TO_DEVICE);
	if (last)
		last->next = &wr;
	rc = ib_post_send(lane->id->qp, first ?: &wr, NULL);
	if (rc && !(READ_ONCE(conn->tx_last) & BIT(slot)))
		lane->tx_quiet = (lane->tx_quiet | lane->tx_before[slot]) & ~BIT(slot);
	return rc;
}

int rdma_send(struct npulink_put *put, const struct npulink_wire_msg *msg,
	      const struct npulink_operand *from, u32 len)
{
	struct rdma_conn *conn = put->priv;
	int slot = rdma_take(conn, &put->tx_free);
	void *va;
	int rc;

	if (slot < 0)
		return -EAGAIN;
	va = rdma_tx_va(conn, slot);
	memcpy(va, msg, sizeof(*msg));
	rdma_copy(va + sizeof(*msg), from, len);
	conn->tx_len[slot] = sizeof(*msg) + len;
	rc = rdma_tx_post(conn, slot, NULL, NULL);
	if (rc) {
		rdma_give(conn, &put->tx_free, slot);
		rdma_conn_fail(conn, rc);
		return -EAGAIN;
	}
	return 0;
}

/*
 * The last message, from memory of the kernel. Without a connection it waits for the next one.
 * -EAGAIN: there is no slot for it.
 */
int rdma_send_last(struct rdma_conn *conn, const struct npulink_wire_msg *msg,
		   const void *payload, u32 len)
{
	struct npulink_put *put = conn->put;
	unsigned long flags;
	int rc = 0, slot;
	bool live;
	void *va;

	/* It is whole when it is seen, since the next connection may be there at any time. */
	spin_lock_irqsave(&conn->lock, flags);
	slot = put->tx_free ? __ffs(put->tx_free) : -1;
	if (slot >= 0) {
		va = rdma_tx_va(conn, slot);
		memcpy(va, msg, sizeof(*msg));
		memcpy(va + sizeof(*msg), payload, len);
		conn->tx_len[slot] = sizeof(*msg) + len;
		conn->tx_last |= BIT(slot);
		put->tx_free &= ~BIT(slot);
	}
	live = conn->tx_live;
	spin_unlock_irqrestore(&conn->lock, flags);
	if (slot < 0)
		return -EAGAIN;
	/*
	 * What is being taken down is not posted to: the message waits for the next connection; and
	 * to a new one rdma_resend() posts it, behind those before it.
	 */
	if (!READ_ONCE(conn->up) || READ_ONCE(conn->state) != RDMA_CONN_OPEN)
		rc = conn->final ? -EAGAIN : 0;	/* there will be none */
	else if (live)
		rc = rdma_tx_post(conn, slot, NULL, NULL);
	if (rc) {
		rdma_give(conn, &conn->put->tx_free, slot);
		rdma_conn_fail(conn, rc);
	}
	return rc;
}

/* ---- keys ------------------------------------------------------------------------------ */

void rdma_key_unmap(struct rdma_lane *lane, struct rdma_key *key)
{
	if (!key->nents)
		return;
	ib_dma_unmap_sg(lane->ibdev, key->sg, key->nents, DMA_FROM_DEVICE);
	key->nents = 0;
	atomic_dec(&rdma_keys);
}

static int rdma_key_map(struct rdma_lane *lane, struct rdma_key *key,
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
	mapped = ib_dma_map_sg(lane->ibdev, key->sg, n, DMA_FROM_DEVICE);
	if (!mapped)
		return -ENOMEM;
	key->nents = n;
	atomic_inc(&rdma_keys);
	if (ib_map_mr_sg(key->mr, key->sg, mapped, NULL, PAGE_SIZE) != mapped ||
	    key->mr->length != len) {
		rdma_key_unmap(lane, key);
		return -EINVAL;
	}
	ib_update_fast_reg_key(key->mr, ib_inc_rkey(key->mr->rkey));
	return 0;
}

/*
 * When rxe sends something again, it also does again what it has done for itself since then, and
 * to register a key twice is an error. It invalidates a key only when all that came before is
 * acknowledged; then a registration behind that is done once. It takes that of a key that is free.
 */
static bool rdma_repeats(const struct rdma_lane *lane)
{
	return lane->ibdev->ops.driver_id == RDMA_DRIVER_RXE;
}

int rdma_grant(struct npulink_put *put, u32 grant, const struct npulink_operand *to, u32 len,
	       struct npulink_wire_msg *msg)
{
	struct rdma_conn *conn = put->priv;
	struct rdma_lane *lane = conn->lane;
	struct rdma_key *key = &lane->keys[grant];
	struct ib_reg_wr reg = {
		.wr.opcode = IB_WR_REG_MR, .wr.wr_cqe = &key->cqe, .mr = key->mr,
		.access = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE,
	};
	struct ib_send_wr free = {
		.wr_cqe = &key->cqe, .opcode = IB_WR_LOCAL_INV, .next = &reg.wr,
		.ex.invalidate_rkey = key->mr->rkey,
	};
	int slot = rdma_take(conn, &put->tx_free);
	int rc;

	if (slot < 0)
		return -EAGAIN;
	/* What could not be posted stays mapped, and goes with the connection, which has failed. */
	rc = key->nents ? -EIO : rdma_key_map(lane, key, to, len);
	if (!rc) {
		reg.key = key->mr->rkey;
		msg->addr = cpu_to_le64(key->mr->iova);
		msg->rkey = cpu_to_le32(key->mr->rkey);
		memcpy(rdma_tx_va(conn, slot), msg, sizeof(*msg));
		conn->tx_len[slot] = sizeof(*msg);
		rc = rdma_tx_post(conn, slot, rdma_repeats(lane) ? &free : &reg.wr, &reg.wr);
	}
	if (rc) {
		rdma_give(conn, &put->tx_free, slot);
		rdma_conn_fail(conn, rc);
		return -EAGAIN;
	}
	return 0;
}

void rdma_revoke(struct npulink_put *put, u32 grant)
{
	struct rdma_conn *conn = put->priv;
	struct rdma_lane *lane = conn->lane;
	struct rdma_key *key = &lane->keys[grant];
	struct ib_send_wr wr = {
		.wr_cqe = &key->cqe, .opcode = IB_WR_LOCAL_INV, .send_flags = IB_SEND_SIGNALED,
		.ex.invalidate_rkey = key->mr->rkey,
	};
	int rc = ib_post_send(lane->id->qp, &wr, NULL);

	if (rc)
		rdma_conn_fail(conn, rc);
}

void rdma_revoke_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct rdma_key *key = container_of(wc->wr_cqe, struct rdma_key, cqe);
	struct rdma_lane *lane = wc->qp->qp_context;

	/* Keys of a connection that is broken go with it. */
	if (wc->status != IB_WC_SUCCESS) {
		if (wc->status != IB_WC_WR_FLUSH_ERR)
			rdma_conn_fail(lane->conn, -EIO);
		return;
	}
	rdma_key_unmap(lane, key);
	npulink_put_revoked(lane->conn->put, key - lane->keys);
}

/* ---- writes ------------------------------------------------------------------------------ */

void rdma_write_unmap(struct rdma_lane *lane, struct rdma_write *w)
{
	while (w->n) {
		w->n--;
		ib_dma_unmap_page(lane->ibdev, w->sge[w->n].addr, w->sge[w->n].length,
				  DMA_TO_DEVICE);
	}
}

static int rdma_write_map(struct rdma_lane *lane, struct rdma_write *w,
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
		dma = ib_dma_map_page(lane->ibdev, page, offset, piece, DMA_TO_DEVICE);
		if (ib_dma_mapping_error(lane->ibdev, dma))
			goto err;
		w->sge[w->n++] = (struct ib_sge) {
			.addr = dma, .length = piece, .lkey = lane->pd->local_dma_lkey,
		};
		done += piece;
	}
	return 0;
err:
	rdma_write_unmap(lane, w);
	return -ENOMEM;
}

int rdma_write(struct npulink_put *put, void *cookie, const struct npulink_operand *from, u32 len,
	       u64 addr, u32 rkey, bool last, u32 imm)
{
	struct rdma_conn *conn = put->priv;
	struct rdma_lane *lane = conn->lane;
	int index = rdma_take(conn, &lane->writes_free);
	struct rdma_write *w;
	u32 i, k, sge = 0;
	int rc;

	if (index < 0)
		return -EAGAIN;
	w = &lane->writes[index];
	w->cookie = cookie;
	w->len = len;
	rc = rdma_write_map(lane, w, from, len);
	if (rc)
		goto err;
	for (i = 0; sge < w->n; i++) {
		struct ib_rdma_wr *wr = &w->wr[i];

		memset(wr, 0, sizeof(*wr));
		wr->remote_addr = addr;
		wr->rkey = rkey;
		wr->wr.opcode = IB_WR_RDMA_WRITE;
		wr->wr.sg_list = &w->sge[sge];
		wr->wr.num_sge = min(w->n - sge, lane->sge);
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
	rc = ib_post_send(lane->id->qp, &w->wr[0].wr, NULL);
	if (!rc)
		return 0;
	rdma_write_unmap(lane, w);
err:
	rdma_give(conn, &lane->writes_free, index);
	rdma_conn_fail(conn, rc);
	return -EAGAIN;
}

void rdma_write_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct rdma_write *w = container_of(wc->wr_cqe, struct rdma_write, cqe);
	struct rdma_lane *lane = wc->qp->qp_context;
	struct rdma_conn *conn = lane->conn;
	void *cookie = w->cookie;
	u32 len = w->len;

	rdma_write_unmap(lane, w);
	if (wc->status == IB_WC_SUCCESS) {
		WRITE_ONCE(lane->heard, jiffies);
	} else {
		len = 0;
		if (wc->status != IB_WC_WR_FLUSH_ERR)
			rdma_conn_fail(conn, wc->status == IB_WC_RETRY_EXC_ERR ? -EHOSTDOWN : -EIO);
	}
	rdma_freed(conn, &lane->writes_free, BIT(w - lane->writes));
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
	struct rdma_lane *lane = conn->lane;
	struct ib_rdma_wr wr = {
		.wr.wr_cqe = &lane->probe_cqe, .wr.opcode = IB_WR_RDMA_WRITE,
		.wr.send_flags = IB_SEND_SIGNALED,
	};
	int probes = atomic_read(&lane->probes);
	unsigned long bound = msecs_to_jiffies(put->timeout_ms);

	/* With another one, there must be time left to go on over that. */
	if (!probes) {
		WRITE_ONCE(lane->heard, jiffies);
	} else if (time_after(jiffies, READ_ONCE(lane->heard) +
			      (conn->several ? bound / 3 : bound * 2 / 3))) {
		rdma_conn_fail(conn, -EHOSTDOWN);
		return;
	}
	if (probes == RDMA_PROBES)
		return;
	atomic_inc(&lane->probes);
	if (ib_post_send(lane->id->qp, &wr.wr, NULL))
		rdma_conn_fail(conn, -EIO);
}

void rdma_probe_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct rdma_lane *lane = wc->qp->qp_context;

	if (wc->status == IB_WC_SUCCESS) {
		WRITE_ONCE(lane->heard, jiffies);
		atomic_dec(&lane->probes);
	} else if (wc->status != IB_WC_WR_FLUSH_ERR) {
		rdma_conn_fail(lane->conn, -EHOSTDOWN);
	}
}

/* ---- the end ---------------------------------------------------------------------------- */

void rdma_shut(struct npulink_put *put, const struct npulink_wire_msg *msg, const void *payload,
	       u32 len)
{
	struct rdma_conn *conn = put->priv;
	unsigned long delay = msecs_to_jiffies(clamp_t(u32, put->timeout_ms / 2,
						       RDMA_SHUT_MIN, RDMA_SHUT_MAX));

	/*
	 * Gone when that message has been acknowledged; if it never is, soon. But what is under way
	 * before it may be megabytes, and without it the peer learns of a lost connection only.
	 */
	conn->final = true;
	if (!msg || !READ_ONCE(conn->up) || rdma_send_last(conn, msg, payload, len))
		delay = 0;
	if (!delay)
		rdma_conn_fail(conn, 0);
	else
		mod_delayed_work(rdma_wq, &conn->watch, delay);
	conn->shutting = delay;
}
