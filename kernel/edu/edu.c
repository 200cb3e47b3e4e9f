// SPDX-License-Identifier: GPL-2.0
/*
 * edu.c - a backend for QEMU's edu device, a PCI function that is there to be programmed: its
 * engine copies up to 2 KiB between memory and a buffer of its own, and interrupts. That makes it an NPU
 * which copies and cannot reduce, as null.c, but one that reads and writes memory by itself: below
 * an IOMMU, with few address bits, by bounce buffers. It is slow (0.1 s a copy), and not installed.
 */
#include <linux/dma-mapping.h>
#include <linux/err.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <npulink/compat.h>
#include <npulink/device.h>

#define EDU_VENDOR	0x1234
#define EDU_DEVICE	0x11e8

/* Registers. */
#define EDU_ID		0x00
#define   EDU_ID_LOW		0xed
#define EDU_IRQ_STATUS	0x24
#define EDU_IRQ_ACK	0x64
#define EDU_DMA_SRC	0x80
#define EDU_DMA_DST	0x88
#define EDU_DMA_COUNT	0x90
#define EDU_DMA_CMD	0x98
#define   EDU_DMA_START		BIT(0)
#define   EDU_DMA_OUT		BIT(1)	/* from its buffer to memory */
#define   EDU_DMA_IRQ		BIT(2)
#define EDU_BUFFER	0x40000		/* its address for the engine */
#define EDU_BYTES	2048U		/* QEMU's check refuses the last byte of its 4 KiB */

static unsigned int dma_bits = 28;
module_param(dma_bits, uint, 0444);
MODULE_PARM_DESC(dma_bits, "bits of an address, as in QEMU's -device edu,dma_mask=.. (28)");

/*
 * struct edu_dev - an edu device
 * @lock: all below
 * @first: requests, the oldest first, which is the one that runs
 * @last: where the next one is hung
 * @done: bytes of the first request that are done
 * @piece: bytes that are under way, ..
 * @out: .. on their second way, out of the buffer
 */
struct edu_dev {
	struct npulink_device *dev;
	void __iomem *regs;
	spinlock_t lock;	/* see above */
	struct npulink_req *first, **last;
	u64 done;
	u32 piece;
	bool out;
};

static const char edu_fabric;	/* only its address counts */

static struct npulink_req **edu_next(struct npulink_req *req)
{
	return (struct npulink_req **)&req->priv[0];
}

/* Address of byte @at of an operand, and how many bytes follow it in one piece. */
static dma_addr_t edu_at(const struct npulink_req *req, const struct npulink_operand *o, u64 at,
			 u64 *left)
{
	const struct npulink_buf_mem *mem = npulink_buf_dma(o->buf, req->dev);
	const struct npulink_range *r = &mem->ranges[npulink_mem_range(mem, o->off + at)];

	*left = r[1].off - (o->off + at);
	return r->dma + (o->off + at - r->off);
}

/* The next piece of the first request, on its first or its second way. Under the lock. */
static void edu_start(struct edu_dev *ed)
{
	const struct npulink_req *req = ed->first;
	u64 from_left, to_left;
	dma_addr_t from = edu_at(req, &req->src[0], ed->done, &from_left);
	dma_addr_t to = edu_at(req, &req->dst, ed->done, &to_left);

	ed->piece = min3(req->len - ed->done, min(from_left, to_left), (u64)EDU_BYTES);
	writeq(ed->out ? EDU_BUFFER : from, ed->regs + EDU_DMA_SRC);
	writeq(ed->out ? to : EDU_BUFFER, ed->regs + EDU_DMA_DST);
	writeq(ed->piece, ed->regs + EDU_DMA_COUNT);
	writeq(EDU_DMA_START | EDU_DMA_IRQ | (ed->out ? EDU_DMA_OUT : 0), ed->regs + EDU_DMA_CMD);
}

/* What comes after a piece. Returns the request if that was its last. Under the lock. */
static struct npulink_req *edu_advance(struct edu_dev *ed)
{
	struct npulink_req *req = ed->first;

	ed->out = !ed->out;
	if (!ed->out)
		ed->done += ed->piece;
	if (ed->done < req->len && !READ_ONCE(req->cancelled)) {
		edu_start(ed);
		return NULL;
	}
	ed->first = *edu_next(req);
	if (!ed->first)
		ed->last = &ed->first;
	ed->done = 0;
	ed->out = false;
	if (ed->first)
		edu_start(ed);
	return req;
}

static irqreturn_t edu_irq(int irq, void *data)
{
	struct edu_dev *ed = data;
	u32 status = readl(ed->regs + EDU_IRQ_STATUS);
	struct npulink_req *req = NULL;
	struct npulink_device_stats *stats;
	int rc;

	if (!status)
		return IRQ_NONE;
	writel(status, ed->regs + EDU_IRQ_ACK);
	spin_lock(&ed->lock);
	if (ed->first)
		req = edu_advance(ed);
	spin_unlock(&ed->lock);
	if (!req)
		return IRQ_HANDLED;
	stats = &req->dev->stats;
	atomic64_inc(&stats->requests);
	atomic64_inc(&stats->interrupts);
	atomic64_add(req->len, &stats->bytes_read);
	atomic64_add(req->len, &stats->bytes_written);
	rc = READ_ONCE(req->cancelled) ? -ECANCELED : 0;
	npulink_step_done(req, rc);
	return IRQ_HANDLED;
}

/* The core may be in an interrupt: of this device, as well. */
static int edu_queue(struct npulink_device *dev, struct npulink_req *req)
{
	struct edu_dev *ed = dev->priv;
	unsigned long flags;

	/* The core asks for no reduction, since dtypes is 0. */
	if (WARN_ON_ONCE(req->nsrc != 1))
		return -EOPNOTSUPP;
	*edu_next(req) = NULL;
	spin_lock_irqsave(&ed->lock, flags);
	*ed->last = req;
	ed->last = edu_next(req);
	if (ed->first == req)
		edu_start(ed);
	spin_unlock_irqrestore(&ed->lock, flags);
	return -EINPROGRESS;
}

static const struct npulink_device_ops edu_device_ops = {
	.queue = edu_queue,
};

static int edu_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct npulink_device *dev;
	struct edu_dev *ed;
	int rc;

	rc = pcim_enable_device(pdev);
	rc = rc ?: pcim_iomap_regions(pdev, BIT(0), "npulink_edu");
	if (rc)
		return rc;
	if ((readl(pcim_iomap_table(pdev)[0] + EDU_ID) & 0xff) != EDU_ID_LOW)
		return -ENODEV;
	rc = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(dma_bits));
	if (rc)
		return rc;
	dev = npulink_device_alloc(THIS_MODULE, &edu_device_ops, &pdev->dev, sizeof(*ed));
	if (IS_ERR(dev))
		return PTR_ERR(dev);
	ed = dev->priv;
	ed->dev = dev;
	ed->regs = pcim_iomap_table(pdev)[0];
	spin_lock_init(&ed->lock);
	ed->last = &ed->first;
	dev->slice = EDU_BYTES;
	dev->dma_dev = &pdev->dev;
	dev->fabric = &edu_fabric;
	strscpy(dev->backend, "edu", sizeof(dev->backend));
	strscpy(dev->engine, "edu", sizeof(dev->engine));
	pci_set_master(pdev);
	rc = pci_alloc_irq_vectors(pdev, 1, 1, PCI_IRQ_ALL_TYPES);
	if (rc < 0)
		goto err_put;
	rc = request_irq(pci_irq_vector(pdev, 0), edu_irq, IRQF_SHARED, "npulink_edu", ed);
	if (rc)
		goto err_vectors;
	rc = npulink_device_register(dev);
	if (rc)
		goto err_irq;
	pci_set_drvdata(pdev, ed);
	return 0;

err_irq:
	free_irq(pci_irq_vector(pdev, 0), ed);
err_vectors:
	pci_free_irq_vectors(pdev);
err_put:
	npulink_device_put(dev);
	return rc;
}

static void edu_remove(struct pci_dev *pdev)
{
	struct edu_dev *ed = pci_get_drvdata(pdev);

	npulink_device_unregister(ed->dev);
	free_irq(pci_irq_vector(pdev, 0), ed);
	pci_free_irq_vectors(pdev);
	npulink_device_put(ed->dev);
}

static const struct pci_device_id edu_ids[] = {
	{ PCI_DEVICE(EDU_VENDOR, EDU_DEVICE) },
	{}
};
MODULE_DEVICE_TABLE(pci, edu_ids);

static struct pci_driver edu_driver = {
	.name = "npulink_edu",
	.id_table = edu_ids,
	.probe = edu_probe,
	.remove = edu_remove,
};

module_pci_driver(edu_driver);
MODULE_DESCRIPTION("npulink backend for QEMU's edu device");
MODULE_LICENSE("GPL");
NPULINK_IMPORT_NS(NPULINK);
