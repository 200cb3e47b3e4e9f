// SPDX-License-Identifier: GPL-2.0
/*
 * mapping.c - buffers as devices see them: a mapping holds the addresses that one device uses for
 * one buffer. The DMA API gives them, which knows of IOMMUs, of what a device can address, and of
 * memory that has to be copied to a place where it can (bounce buffers).
 *
 * A mapping is made when the buffer is first used with the device, and goes with either. It does
 * not own the bytes: what a processor or another device wrote is made visible to the device before
 * each request, and what it wrote itself after each (npulink_req_sync_*), so a buffer may be mapped
 * for several devices at a time. Most machines need none of that.
 */
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/mutex.h>
#include <linux/percpu-refcount.h>
#include <linux/rculist.h>
#include <linux/scatterlist.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <npulink/compat.h>
#include "file/account.h"
#include "file/devmem.h"
#include "file/mapping.h"

/*
 * struct npulink_mapping - a buffer as one device sees it
 * @buf_node: in npulink_buf.mappings, which readers walk under RCU
 * @dev_node: in npulink_device.mappings
 * @mem: what the device is told
 * @sgt: what the DMA API was asked for; without entries if @foreign is set
 * @att: of a dma-buf of another driver, ..
 * @foreign: .. and what that driver gave
 * @mapped: the DMA API gave addresses for @sgt
 * @sync: the DMA API wants to know who is about to use the bytes
 */
struct npulink_mapping {
	struct npulink_device *dev;
	struct npulink_buf *buf;
	struct list_head buf_node;
	struct list_head dev_node;
	struct npulink_buf_mem mem;
	struct sg_table sgt;
	struct dma_buf_attachment *att;
	struct sg_table *foreign;
	bool mapped;
	bool sync;
	struct rcu_head rcu;
};

static enum dma_data_direction npulink_dma_dir(const struct npulink_buf *buf)
{
	return buf->readonly ? DMA_TO_DEVICE : DMA_BIDIRECTIONAL;
}

/* ---- making one ---------------------------------------------------------------------- */

/* Bytes of a range, from @va on, that a segment can hold which ends with a page. */
static u64 npulink_segment(const void *va, u64 left, size_t max)
{
	return min_t(u64, left, max - offset_in_page(va));
}

static int npulink_mapping_table(struct npulink_mapping *m)
{
	const struct npulink_buf_mem *mem = &m->buf->mem;
	struct device *dma_dev = m->dev->dma_dev;
	struct scatterlist *sg;
	u64 left, n, count = 0;
	size_t max;
	void *va;
	u32 i;
	int rc;

	max = min3((size_t)dma_get_max_seg_size(dma_dev), dma_max_mapping_size(dma_dev),
		   (size_t)SZ_1G) & PAGE_MASK;
	if (!max)
		return -EOPNOTSUPP;
	for (i = 0; i < mem->nranges; i++)
		count += DIV_ROUND_UP_ULL(offset_in_page(mem->ranges[i].va) +
					  mem->ranges[i + 1].off - mem->ranges[i].off, max);
	if (count > INT_MAX)
		return -EFBIG;
	rc = sg_alloc_table(&m->sgt, count, GFP_KERNEL_ACCOUNT);
	if (rc)
		return rc;
	sg = m->sgt.sgl;
	for (i = 0; i < mem->nranges; i++) {
		va = mem->ranges[i].va;
		left = mem->ranges[i + 1].off - mem->ranges[i].off;
		for (; left; left -= n, va += n, sg = sg_next(sg)) {
			n = npulink_segment(va, left, max);
			sg_set_buf(sg, va, n);
		}
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	/* Who may look at the bytes is said for each request. */
	rc = dma_map_sgtable(dma_dev, &m->sgt, npulink_dma_dir(m->buf), DMA_ATTR_SKIP_CPU_SYNC);
	m->mapped = !rc;
	return rc;
}

/* Its driver has pinned it, and keeps it in order for all devices. */
static int npulink_mapping_foreign(struct npulink_mapping *m)
{
	struct dma_buf_attachment *att = dma_buf_attach(m->buf->dmabuf, m->dev->dma_dev);
	struct sg_table *sgt;

	if (IS_ERR(att))
		return PTR_ERR(att);
	m->att = att;
	sgt = dma_buf_map_attachment_unlocked(att, npulink_dma_dir(m->buf));
	if (IS_ERR(sgt))
		return PTR_ERR(sgt);
	m->foreign = sgt;
	return 0;
}

/* What the DMA API gave, as few ranges as there can be. */
static int npulink_mapping_ranges(struct npulink_mapping *m)
{
	const struct sg_table *sgt = m->foreign ?: &m->sgt;
	struct npulink_range *last = NULL;
	struct scatterlist *sg;
	u64 off = 0;
	u32 i;

	m->mem.ranges = kvmalloc_array((size_t)sgt->nents + 1, sizeof(*m->mem.ranges),
				       GFP_KERNEL_ACCOUNT);
	if (!m->mem.ranges)
		return -ENOMEM;
	for_each_sgtable_dma_sg(sgt, sg, i) {
		dma_addr_t addr = sg_dma_address(sg);

		if (!m->foreign && dma_need_sync(m->dev->dma_dev, addr))
			m->sync = true;
		if (!last || last->dma + (off - last->off) != addr) {
			last = &m->mem.ranges[m->mem.nranges++];
			*last = (struct npulink_range) { .dma = addr, .off = off };
		}
		off += sg_dma_len(sg);
		if (!(i & 0xfff))
			cond_resched();
	}
	if (off < m->buf->mem.len)
		return -EIO;
	m->mem.len = m->buf->mem.len;
	m->mem.ranges[m->mem.nranges].off = m->mem.len;
	return 0;
}

/* Also what has been made in part. Its lists do not know it any more; a reader of them may. */
static void npulink_mapping_free(struct npulink_mapping *m)
{
	enum dma_data_direction dir = npulink_dma_dir(m->buf);

	if (m->foreign)
		dma_buf_unmap_attachment_unlocked(m->att, m->foreign, dir);
	if (m->att)
		dma_buf_detach(m->buf->dmabuf, m->att);
	if (m->mapped)
		dma_unmap_sgtable(m->dev->dma_dev, &m->sgt, dir, DMA_ATTR_SKIP_CPU_SYNC);
	sg_free_table(&m->sgt);
	kvfree(m->mem.ranges);
	kfree_rcu(m, rcu);
}

/* ---- finding them ---------------------------------------------------------------------- */

/* Under RCU; the mapping stays as long as @buf and @dev are in use. */
static struct npulink_mapping *npulink_mapping_find(const struct npulink_buf *buf,
						    const struct npulink_device *dev)
{
	struct npulink_mapping *m;

	list_for_each_entry_rcu(m, &buf->mappings, buf_node)
		if (m->dev == dev)
			return m;
	return NULL;
}

static struct npulink_mapping *npulink_mapping_get(const struct npulink_buf *buf,
						   const struct npulink_device *dev)
{
	struct npulink_mapping *m;

	rcu_read_lock();
	m = npulink_mapping_find(buf, dev);
	rcu_read_unlock();
	return m;
}

const struct npulink_buf_mem *npulink_buf_dma(const struct npulink_buf *buf,
					      const struct npulink_device *dev)
{
	struct npulink_mapping *m;

	if (npulink_devmem_reaches(buf, dev))
		return &buf->mem;
	m = npulink_mapping_get(buf, dev);
	return m ? &m->mem : NULL;
}
EXPORT_SYMBOL_NPULINK(npulink_buf_dma);

u32 npulink_buf_count_dma(const struct npulink_buf *buf)
{
	struct npulink_mapping *m;
	u32 n = 0;

	rcu_read_lock();
	list_for_each_entry_rcu(m, &buf->mappings, buf_node)
		n++;
	rcu_read_unlock();
	return n;
}

/* ---- coming and going ------------------------------------------------------------------ */

static struct npulink_mapping *npulink_mapping_new(struct npulink_buf *buf,
						   struct npulink_device *dev)
{
	struct npulink_mapping *m = kzalloc(sizeof(*m), GFP_KERNEL_ACCOUNT);
	int rc;

	if (!m)
		return ERR_PTR(-ENOMEM);
	m->buf = buf;
	m->dev = dev;
	rc = npulink_buf_is_foreign(buf) ? npulink_mapping_foreign(m) : npulink_mapping_table(m);
	rc = rc ?: npulink_mapping_ranges(m);
	if (!rc)
		return m;
	npulink_mapping_free(m);
	return ERR_PTR(rc);
}

/*
 * Map @buf, which the caller uses, for @dev, if it is not. Task context, may sleep, as long as the
 * memory is large; hold nothing that others want.
 */
int npulink_buf_map_dma(struct npulink_buf *buf, struct npulink_device *dev)
{
	struct npulink_mapping *m;
	int rc = 0;

	if (buf->memory_of)
		return npulink_devmem_reaches(buf, dev) ? 0 : -EOPNOTSUPP;
	if (!dev->dma_dev || npulink_mapping_get(buf, dev))
		return 0;
	/* Whoever takes the device away waits for us. */
	if (!percpu_ref_tryget_live(&dev->users))
		return -ENODEV;
	rc = npulink_lock(&buf->mutex);
	if (rc)
		goto out_put;
	if (npulink_mapping_get(buf, dev))
		goto out_unlock;
	m = npulink_mapping_new(buf, dev);
	if (IS_ERR(m)) {
		rc = PTR_ERR(m);
		goto out_unlock;
	}
	if (m->sync)
		WRITE_ONCE(dev->dma_sync, true);
	mutex_lock(&dev->mappings_lock);
	list_add_tail(&m->dev_node, &dev->mappings);
	spin_lock(&buf->mappings_lock);
	list_add_tail_rcu(&m->buf_node, &buf->mappings);
	spin_unlock(&buf->mappings_lock);
	mutex_unlock(&dev->mappings_lock);
out_unlock:
	mutex_unlock(&buf->mutex);
out_put:
	percpu_ref_put(&dev->users);
	return rc;
}

/* Under the device's mappings_lock: it stays until the DMA API has been told. */
static void npulink_mapping_delete(struct npulink_mapping *m)
{
	lockdep_assert_held(&m->dev->mappings_lock);
	list_del(&m->dev_node);
	spin_lock(&m->buf->mappings_lock);
	list_del_rcu(&m->buf_node);
	spin_unlock(&m->buf->mappings_lock);
	npulink_mapping_free(m);
}

/* Nobody uses @buf any more. */
void npulink_buf_unmap_dma(struct npulink_buf *buf)
{
	struct npulink_mapping *m;
	struct npulink_device *dev;

	for (;;) {
		spin_lock(&buf->mappings_lock);
		m = list_first_entry_or_null(&buf->mappings, struct npulink_mapping, buf_node);
		dev = m ? m->dev : NULL;
		if (dev)
			get_device(&dev->dev);
		spin_unlock(&buf->mappings_lock);
		if (!dev)
			return;
		mutex_lock(&dev->mappings_lock);
		/* The device may be going, and have done it. */
		rcu_read_lock();
		m = npulink_mapping_find(buf, dev);
		rcu_read_unlock();
		if (m)
			npulink_mapping_delete(m);
		mutex_unlock(&dev->mappings_lock);
		put_device(&dev->dev);
	}
}

/* @dev is going, nothing is in flight on it. */
void npulink_device_unmap_dma(struct npulink_device *dev)
{
	struct npulink_mapping *m, *next;

	mutex_lock(&dev->mappings_lock);
	list_for_each_entry_safe(m, next, &dev->mappings, dev_node) {
		npulink_mapping_delete(m);
		cond_resched();
	}
	mutex_unlock(&dev->mappings_lock);
}

/* ---- requests ---------------------------------------------------------------------------- */

/* Can it be given to its device? Any context. */
bool npulink_req_mapped(const struct npulink_req *req)
{
	bool mapped;
	u32 i;

	if (!req->dev->dma_dev)
		return true;
	mapped = npulink_buf_dma(req->dst.buf, req->dev);
	for (i = 0; mapped && i < req->nsrc; i++)
		mapped = npulink_buf_dma(req->src[i].buf, req->dev);
	return mapped;
}

/* Make it so. Task context, no locks held; its operation is in flight on the device. */
int npulink_req_map(struct npulink_req *req)
{
	int rc = npulink_buf_map_dma(req->dst.buf, req->dev);
	u32 i;

	for (i = 0; !rc && i < req->nsrc; i++)
		rc = npulink_buf_map_dma(req->src[i].buf, req->dev);
	return rc;
}

typedef void (*npulink_sync_fn)(struct device *dev, dma_addr_t addr, size_t size,
				enum dma_data_direction dir);

/* A page at a time: an IOMMU may have joined pages that are not neighbours. */
static void npulink_operand_sync(const struct npulink_req *req, const struct npulink_operand *o,
				 npulink_sync_fn sync)
{
	const struct npulink_mapping *m = npulink_mapping_get(o->buf, req->dev);
	u64 off = o->off, end = o->off + req->len, n;
	const struct npulink_range *r;
	dma_addr_t addr;

	if (!m || !m->sync)
		return;
	r = &m->mem.ranges[npulink_mem_range(&m->mem, off)];
	for (; off < end; off += n) {
		while (r[1].off <= off)
			r++;
		addr = r->dma + (off - r->off);
		n = min3(end - off, r[1].off - off, (u64)PAGE_SIZE - offset_in_page(addr));
		sync(m->dev->dma_dev, addr, n, npulink_dma_dir(o->buf));
	}
}

/* Before the device gets it. Any context. */
void npulink_req_sync_for_device(const struct npulink_req *req)
{
	u32 i;

	if (likely(!READ_ONCE(req->dev->dma_sync)))
		return;
	for (i = 0; i < req->nsrc; i++)
		npulink_operand_sync(req, &req->src[i], dma_sync_single_for_device);
	npulink_operand_sync(req, &req->dst, dma_sync_single_for_device);
}

/* The device has done it. Any context. */
void npulink_req_sync_for_cpu(const struct npulink_req *req)
{
	if (unlikely(READ_ONCE(req->dev->dma_sync)))
		npulink_operand_sync(req, &req->dst, dma_sync_single_for_cpu);
}
