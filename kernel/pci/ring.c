// SPDX-License-Identifier: GPL-2.0
/*
 * ring.c - requests on their way to a card and back.
 *
 * An operand may lie in several ranges, while the card wants one address. So a request goes to
 * the card in pieces, each as long as all of its operands are in one range, and is done
 * when the last one is. An element that lies across two ranges is a piece of its own.
 *
 * The card reports in the order of the ring. What it writes is copied once, and what cannot be
 * is the end of the card.
 */
#include <linux/io.h>
#include <linux/minmax.h>
#include <linux/slab.h>
#include <npulink/verify.h>
#include "pci.h"

/* At npulink_req.priv. */
struct pci_work {
	struct list_head node;	/* of pci_card.waiting, then of those that are done */
	u64 at;			/* bytes that were put on the ring */
	u32 pieces;		/* that are on the ring */
	int status;
	bool queued;
};

static struct pci_work *to_work(struct npulink_req *req)
{
	BUILD_BUG_ON(sizeof(struct pci_work) > sizeof(req->priv));
	return (struct pci_work *)req->priv;
}

static struct npulink_req *to_req(struct pci_work *work)
{
	return container_of((unsigned long (*)[8])work, struct npulink_req, priv);
}

/* Nothing but bytes, of no type. */
static bool pci_copies(const struct npulink_req *req)
{
	return req->nsrc == 1 && !(req->scale && req->src[0].scaled);
}

/* Bytes of an element. */
static u32 pci_unit(const struct npulink_req *req)
{
	return pci_copies(req) ? 1 : npulink_dtype_size(req->dtype);
}

/* Address of byte @at of an operand, and how many bytes follow it in one piece. */
static u64 pci_at(const struct npulink_device *ndev, const struct npulink_operand *o, u64 at,
		  u64 *left)
{
	const struct npulink_buf_mem *mem = npulink_buf_dma(o->buf, ndev);
	const struct npulink_range *r = &mem->ranges[npulink_mem_range(mem, o->off + at)];

	*left = r[1].off - (o->off + at);
	return r->dma + (o->off + at - r->off);
}

static u64 pci_left(const struct npulink_device *ndev, const struct npulink_operand *o, u64 at)
{
	u64 left;

	pci_at(ndev, o, at, &left);
	return left;
}

static void pci_operand(const struct npulink_device *ndev, struct card_operand *to,
			const struct npulink_operand *o, u64 at, u32 len)
{
	u64 addr, left;

	addr = pci_at(ndev, o, at, &left);
	to->addr = cpu_to_le64(addr);
	to->first = cpu_to_le32(min_t(u64, left, len));
	to->next = 0;
	if (left < len)
		to->next = cpu_to_le64(pci_at(ndev, o, at + left, &left));
	to->flags = cpu_to_le32(o->scaled ? CARD_OPERAND_SCALED : 0);
}

/* The next piece of @req, into the ring's next entry. */
static void pci_put_piece(struct pci_card *card, struct npulink_req *req)
{
	struct card_desc *desc = &card->sq[card->sq_tail & (card->entries - 1)];
	struct pci_work *work = to_work(req);
	u32 unit = pci_unit(req), len, i;
	u64 n = min_t(u64, req->len - work->at, card->max_len);

	if (n) {
		n = min(n, pci_left(card->ndev, &req->dst, work->at));
		for (i = 0; i < req->nsrc; i++)
			n = min(n, pci_left(card->ndev, &req->src[i], work->at));
		n = max_t(u64, n / unit * unit, unit);
	}
	len = n;
	desc->tag = cpu_to_le32(card->sq_tail);
	desc->op = pci_copies(req) ? CARD_OP_COPY : CARD_OP_REDUCE;
	desc->flags = req->rest ? CARD_F_REST : 0;
	desc->dtype = req->dtype;
	desc->redop = req->redop;
	desc->len = cpu_to_le32(len);
	desc->div = cpu_to_le32(req->div);
	desc->scale = req->scale;
	desc->nsrc = cpu_to_le16(req->nsrc);
	if (len) {
		pci_operand(card->ndev, &desc->dst, &req->dst, work->at, len);
		for (i = 0; i < req->nsrc; i++)
			pci_operand(card->ndev, &desc->src[i], &req->src[i], work->at, len);
	} else {
		memset(&desc->dst, 0, sizeof(desc->dst));
		memset(desc->src, 0, req->nsrc * sizeof(desc->src[0]));
	}
	work->at += len;
	work->pieces++;
	card->slots[card->sq_tail++ & (card->entries - 1)] = req;
	/* The last one of a request, or of a full ring, interrupts. */
	if (work->at == req->len || card->sq_tail - card->cq_head == card->entries)
		desc->flags |= CARD_F_INTERRUPT;
}

void pci_card_ring(struct pci_card *card)
{
	card->doorbells++;
	writel(CARD_PEER << 16 | card->index, card->fn->bar + PCI_DOORBELL);
}

/* Fill the ring, and tell the card. */
static void pci_pump(struct pci_card *card)
{
	u32 before = card->sq_tail;
	struct pci_work *work;

	if (card->held)
		return;
	if (before == card->cq_head)
		card->since = jiffies;
	while (!list_empty(&card->waiting) && card->sq_tail - card->cq_head < card->entries) {
		work = list_first_entry(&card->waiting, struct pci_work, node);
		pci_put_piece(card, to_req(work));
		if (work->at == to_req(work)->len) {
			list_del(&work->node);
			work->queued = false;
		}
	}
	if (card->sq_tail == before)
		return;
	/* The requests before their number, the number before the doorbell. */
	smp_store_release(&card->regs->sq_tail, cpu_to_le32(card->sq_tail));
	pci_card_ring(card);
}

static int pci_queue(struct npulink_device *ndev, struct npulink_req *req)
{
	struct pci_card *card = ndev->priv;
	struct pci_work *work = to_work(req);
	unsigned long flags;
	int rc = -EINPROGRESS;

	if (WARN_ON_ONCE(!req->nsrc || req->nsrc > CARD_MAX_SRC ||
			 (!pci_copies(req) && req->dtype >= NPULINK_DTYPES)))
		return -EINVAL;
	work->at = 0;
	work->pieces = 0;
	work->status = 0;
	work->queued = true;
	spin_lock_irqsave(&card->lock, flags);
	if (card->dead) {
		rc = -EIO;
	} else {
		list_add_tail(&work->node, &card->waiting);
		pci_pump(card);
	}
	spin_unlock_irqrestore(&card->lock, flags);
	return rc;
}

/* What the card has not begun need not go on. */
static bool pci_cancel(struct npulink_device *ndev, struct npulink_req *req)
{
	struct pci_card *card = ndev->priv;
	struct pci_work *work = to_work(req);
	unsigned long flags;
	bool out = false;

	spin_lock_irqsave(&card->lock, flags);
	if (work->queued) {
		list_del(&work->node);
		work->queued = false;
		out = !work->pieces;
		work->at = req->len;
		work->status = -ECANCELED;
	}
	spin_unlock_irqrestore(&card->lock, flags);
	return out;
}

static void pci_report(struct list_head *done)
{
	struct pci_work *work, *next;

	list_for_each_entry_safe(work, next, done, node) {
		struct npulink_req *req = to_req(work);
		struct npulink_device_stats *stats = &req->dev->stats;
		int status = work->status;

		atomic64_inc(&stats->requests);
		atomic64_add(req->len * req->nsrc, &stats->bytes_read);
		atomic64_add(req->len, &stats->bytes_written);
		npulink_step_done(req, status);
	}
}

/* It was started, or could not be. */
void pci_card_open(struct pci_card *card, int rc)
{
	unsigned long flags;

	spin_lock_irqsave(&card->lock, flags);
	card->dead = rc;
	card->held = false;
	card->sq_tail = 0;
	card->cq_head = 0;
	card->seen = 0;
	card->since = jiffies;
	if (!rc)
		pci_pump(card);
	spin_unlock_irqrestore(&card->lock, flags);
}

void pci_card_close(struct pci_card *card)
{
	unsigned long flags;

	spin_lock_irqsave(&card->lock, flags);
	card->dead = true;
	spin_unlock_irqrestore(&card->lock, flags);
}

/* Put nothing more on the ring. Is it empty? */
bool pci_card_pause(struct pci_card *card)
{
	unsigned long flags;
	bool idle;

	spin_lock_irqsave(&card->lock, flags);
	card->held = true;
	idle = card->dead || card->cq_head == card->sq_tail;
	spin_unlock_irqrestore(&card->lock, flags);
	return idle;
}

/* When it is closed, and writes nowhere any more: its requests fail. */
void pci_card_end(struct pci_card *card)
{
	struct pci_work *work;
	unsigned long flags;
	LIST_HEAD(done);

	spin_lock_irqsave(&card->lock, flags);
	while (!list_empty(&card->waiting)) {
		work = list_first_entry(&card->waiting, struct pci_work, node);
		list_del(&work->node);
		work->queued = false;
		work->status = -EIO;
		/* Those with pieces on the ring come below. */
		if (!work->pieces)
			list_add_tail(&work->node, &done);
	}
	while (card->cq_head != card->sq_tail) {
		work = to_work(card->slots[card->cq_head++ & (card->entries - 1)]);
		work->status = -EIO;
		if (--work->pieces == 0)
			list_add_tail(&work->node, &done);
	}
	spin_unlock_irqrestore(&card->lock, flags);
	pci_report(&done);
}

/* All that the card has reported. False: it is lost. */
static bool pci_take(struct pci_card *card, struct list_head *done)
{
	/* Completions are read after their number. */
	u32 tail = le32_to_cpu(smp_load_acquire(&card->regs->cq_tail));

	if (READ_ONCE(card->regs->error) || tail - card->cq_head > card->sq_tail - card->cq_head)
		return false;
	while (card->cq_head != tail) {
		u32 slot = card->cq_head & (card->entries - 1);
		u32 tag = le32_to_cpu(READ_ONCE(card->cq[slot].tag));
		u32 status = le32_to_cpu(READ_ONCE(card->cq[slot].status));
		struct npulink_req *req = card->slots[slot];
		struct pci_work *work = to_work(req);

		if (tag != card->cq_head || status > CARD_BAD_ADDR)
			return false;
		card->cq_head++;
		work->pieces--;
		if (status != CARD_OK) {
			work->status = -EIO;
			if (work->queued)
				list_del(&work->node);
			work->queued = false;
			work->at = req->len;
		}
		if (!work->pieces && work->at == req->len)
			list_add_tail(&work->node, done);
	}
	/* They may be overwritten. */
	smp_store_release(&card->regs->cq_head, cpu_to_le32(card->cq_head));
	return true;
}

static void pci_serve(struct pci_card *card, unsigned int timeout_ms, const char *lost)
{
	LIST_HEAD(done);
	unsigned long flags;

	spin_lock_irqsave(&card->lock, flags);
	/* One that was stopped knows nothing of its rings any more. */
	if (card->dead || (card->held && card->cq_head == card->sq_tail)) {
		lost = NULL;
	} else {
		if (!lost && !pci_take(card, &done))
			lost = "has stopped, or writes nonsense";
		if (card->cq_head != card->seen || card->cq_head == card->sq_tail) {
			card->seen = card->cq_head;
			card->since = jiffies;
		} else if (timeout_ms &&
			   time_after(jiffies, card->since + msecs_to_jiffies(timeout_ms))) {
			lost = "does not answer";
		}
		if (lost)
			card->dead = true;
		else
			pci_pump(card);
	}
	spin_unlock_irqrestore(&card->lock, flags);
	if (lost)
		pci_card_fail(card, lost);
	pci_report(&done);
}

irqreturn_t pci_card_irq(int irq, void *arg)
{
	struct pci_card *card = arg;

	atomic64_inc(&card->ndev->stats.interrupts);
	pci_serve(card, 0, NULL);
	return IRQ_HANDLED;
}

/* Interrupts may be lost, and cards hang. */
void pci_card_watch(struct pci_card *card, unsigned int ms, const char *gone)
{
	pci_serve(card, ms, gone);
}

const struct npulink_device_ops pci_device_ops = {
	.queue = pci_queue,
	.cancel = pci_cancel,
	.memory_alloc = pci_memory_alloc,
	.memory_free = pci_memory_free,
};
