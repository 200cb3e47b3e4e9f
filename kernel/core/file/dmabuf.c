// SPDX-License-Identifier: GPL-2.0
/*
 * dmabuf.c - buffers that are shared with other drivers: our pages as a dma-buf, and
 * dma-bufs as buffers. A processor uses those of other drivers through their kernel mapping, so
 * exporters that have none are refused then; a device has them mapped for it (mapping.c).
 */
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/file.h>
#include <linux/iosys-map.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <npulink/compat.h>
#include "file/buf.h"
#include "file/devmem.h"
#include "file/file.h"

NPULINK_IMPORT_NS(DMA_BUF);

/* ---- export ------------------------------------------------------------------------- */

/* Memory of a device has no pages that others could be given. */
static int npulink_dmabuf_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *att)
{
	const struct npulink_buf *buf = dmabuf->priv;

	return buf->memory_of ? -EOPNOTSUPP : 0;
}

static struct sg_table *npulink_dmabuf_map(struct dma_buf_attachment *att,
					   enum dma_data_direction dir)
{
	struct npulink_buf *buf = att->dmabuf->priv;
	const struct npulink_buf_mem *mem = &buf->mem;
	struct scatterlist *sg;
	struct sg_table *sgt;
	u32 i;
	int rc;

	sgt = kzalloc(sizeof(*sgt), GFP_KERNEL);
	if (!sgt)
		return ERR_PTR(-ENOMEM);
	rc = sg_alloc_table(sgt, mem->nranges, GFP_KERNEL);
	if (rc)
		goto err_free;
	for_each_sgtable_sg(sgt, sg, i)
		sg_set_buf(sg, mem->ranges[i].va, mem->ranges[i + 1].off - mem->ranges[i].off);
	rc = dma_map_sgtable(att->dev, sgt, dir, 0);
	if (rc)
		goto err_table;
	return sgt;

err_table:
	sg_free_table(sgt);
err_free:
	kfree(sgt);
	return ERR_PTR(rc);
}

static void npulink_dmabuf_unmap(struct dma_buf_attachment *att, struct sg_table *sgt,
				 enum dma_data_direction dir)
{
	dma_unmap_sgtable(att->dev, sgt, dir, 0);
	sg_free_table(sgt);
	kfree(sgt);
}

static void npulink_dmabuf_release(struct dma_buf *dmabuf)
{
	npulink_buf_unuse(dmabuf->priv);
}

static int npulink_dmabuf_mmap(struct dma_buf *dmabuf, struct vm_area_struct *vma)
{
	if (vma->vm_pgoff)
		return -EINVAL;
	return npulink_buf_mmap(dmabuf->priv, vma);
}

static int npulink_dmabuf_vmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	struct npulink_buf *buf = dmabuf->priv;
	unsigned long npages = buf->mem.len >> PAGE_SHIFT, n = 0;
	struct page **pages;
	void *va;
	u32 i;

	if (buf->opaque)
		return -EOPNOTSUPP;
	if (buf->mem.nranges == 1) {
		iosys_map_set_vaddr(map, buf->mem.ranges[0].va);
		return 0;
	}
	pages = kvmalloc_array(npages, sizeof(*pages), GFP_KERNEL);
	if (!pages)
		return -ENOMEM;
	for (i = 0; i < buf->mem.nranges; i++) {
		u64 off;

		for (off = buf->mem.ranges[i].off; off < buf->mem.ranges[i + 1].off;
		     off += PAGE_SIZE)
			pages[n++] = virt_to_page(buf->mem.ranges[i].va +
						  (off - buf->mem.ranges[i].off));
	}
	va = vmap(pages, npages, VM_MAP, PAGE_KERNEL);
	kvfree(pages);
	if (!va)
		return -ENOMEM;
	iosys_map_set_vaddr(map, va);
	return 0;
}

static void npulink_dmabuf_vunmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	if (is_vmalloc_addr(map->vaddr))
		vunmap(map->vaddr);
}

static const struct dma_buf_ops npulink_dmabuf_ops = {
	.attach = npulink_dmabuf_attach,
	.map_dma_buf = npulink_dmabuf_map,
	.unmap_dma_buf = npulink_dmabuf_unmap,
	.release = npulink_dmabuf_release,
	.mmap = npulink_dmabuf_mmap,
	.vmap = npulink_dmabuf_vmap,
	.vunmap = npulink_dmabuf_vunmap,
};

int npulink_buf_export_ioctl(struct npulink_ucmd *ucmd)
{
	struct npulink_buf_export *cmd = ucmd->cmd;
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct npulink_object *obj;
	struct npulink_buf *buf;
	struct dma_buf *dmabuf;
	int fd, rc;

	if (cmd->flags)
		return -EOPNOTSUPP;
	obj = npulink_object_get(ucmd->file, cmd->id, &npulink_buf_type);
	if (IS_ERR(obj))
		return PTR_ERR(obj);
	buf = container_of(obj, struct npulink_buf, obj);
	rc = -EOPNOTSUPP;
	if (buf->kind != NPULINK_BUF_KERNEL && buf->kind != NPULINK_BUF_DEVMEM)
		goto out_put;
	rc = -ENOENT;
	if (!npulink_buf_tryget(buf))
		goto out_put;
	info.ops = &npulink_dmabuf_ops;
	info.size = buf->mem.len;
	info.flags = O_RDWR;
	info.priv = buf;
	dmabuf = dma_buf_export(&info);
	if (IS_ERR(dmabuf)) {
		npulink_buf_unuse(buf);
		rc = PTR_ERR(dmabuf);
		goto out_put;
	}
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0) {
		rc = fd;
		goto err_dmabuf;
	}
	cmd->out_fd = fd;
	rc = npulink_ucmd_respond(ucmd, sizeof(*cmd));
	if (rc) {
		put_unused_fd(fd);
		goto err_dmabuf;
	}
	fd_install(fd, dmabuf->file);
	goto out_put;

err_dmabuf:
	dma_buf_put(dmabuf);
out_put:
	npulink_object_put(obj);
	return rc;
}

/* ---- import --------------------------------------------------------------------------- */

/* Also undoes half an import. */
void npulink_buf_dmabuf_release(struct npulink_buf *buf)
{
	struct iosys_map map = IOSYS_MAP_INIT_VADDR(buf->dmabuf_va);

	if (buf->dmabuf_va)
		npulink_dma_buf_vunmap(buf->dmabuf, &map);
	if (buf->dmabuf)
		dma_buf_put(buf->dmabuf);
}

/* What is read and written wholly or in parts; @access: NPULINK_SLOT_*. */
static enum dma_data_direction npulink_cpu_direction(u32 access)
{
	return access & NPULINK_SLOT_WRITE ? DMA_BIDIRECTIONAL : DMA_FROM_DEVICE;
}

/* Waits for what devices do with it. May sleep. */
int npulink_buf_begin_cpu(struct npulink_buf *buf, u32 access)
{
	return dma_buf_begin_cpu_access(buf->dmabuf, npulink_cpu_direction(access));
}

/* May sleep. */
void npulink_buf_end_cpu(struct npulink_buf *buf, u32 access)
{
	dma_buf_end_cpu_access(buf->dmabuf, npulink_cpu_direction(access));
}

static int npulink_buf_import(struct npulink_buf *buf)
{
	struct dma_buf *dmabuf = buf->dmabuf;
	struct iosys_map map;
	int rc;

	/* Ours needs no mapping. And dma_buf_vmap() warns if there is no memory for one. */
	if (buf->ours) {
		const struct npulink_buf *from = dmabuf->priv;

		return from->memory_of ? npulink_devmem_share(buf, from) :
					 npulink_buf_from_buf(buf, from);
	}
	/* A device needs no kernel addresses: mapping.c attaches it. */
	if (buf->dev->dma_dev) {
		buf->mem.len = dmabuf->size;
		buf->opaque = true;
		return 0;
	}
	rc = npulink_dma_buf_vmap(dmabuf, &map);
	if (rc)
		return rc == -EINVAL ? -EOPNOTSUPP : rc;
	if (map.is_iomem) {
		npulink_dma_buf_vunmap(dmabuf, &map);
		return -EOPNOTSUPP;
	}
	buf->dmabuf_va = map.vaddr;
	return npulink_buf_from_va(buf, map.vaddr, dmabuf->size);
}

int npulink_buf_import_ioctl(struct npulink_ucmd *ucmd)
{
	struct npulink_buf_import *cmd = ucmd->cmd;
	struct npulink_buf *buf;
	struct dma_buf *dmabuf;
	int rc;

	if (cmd->flags & ~NPULINK_BUF_READONLY)
		return -EOPNOTSUPP;
	dmabuf = dma_buf_get(cmd->fd);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	buf = npulink_buf_new(ucmd->file, NPULINK_BUF_DMABUF);
	if (!buf) {
		dma_buf_put(dmabuf);
		return -ENOMEM;
	}
	buf->dmabuf = dmabuf;
	buf->ours = dmabuf->ops == &npulink_dmabuf_ops;
	buf->readonly = cmd->flags & NPULINK_BUF_READONLY;
	rc = npulink_object_reserve(ucmd->file, &buf->obj, &npulink_buf_type);
	if (rc) {
		npulink_buf_drop_base(buf);
		npulink_object_put(&buf->obj);
		return rc;
	}
	rc = npulink_buf_import(buf);
	if (rc)
		goto err_abort;
	cmd->out_id = buf->obj.id;
	cmd->out_len = dmabuf->size;
	rc = npulink_ucmd_respond(ucmd, sizeof(*cmd));
	if (rc)
		goto err_abort;
	npulink_object_publish(ucmd->file, &buf->obj);
	return 0;

err_abort:
	npulink_buf_drop_base(buf);
	npulink_object_abort(ucmd->file, &buf->obj);
	return rc;
}
