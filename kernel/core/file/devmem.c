// SPDX-License-Identifier: GPL-2.0
/*
 * devmem.c - buffers in memory of a device's own. The backend gives it; it has an address for
 * devices of one fabric, may have one that processors can map, and has neither a struct page nor a
 * kernel address. It counts against what the device has, not against locked memory.
 *
 * When the device goes, its memory goes: what processes have mapped of it is taken away, and their
 * next touch is SIGBUS. Buffers stay, as ids do, but nothing can be done with them.
 */
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/percpu-refcount.h>
#include <npulink/compat.h>
#include "file/devmem.h"

/* So many pages at a time: a processor that looks at one will look at the next. */
#define NPULINK_FAULT_PAGES	64UL

/* Zeroed. Reference for the caller. */
struct npulink_buf *npulink_devmem_alloc(struct npulink_file *file, u64 len)
{
	struct npulink_device *dev = file->dev;
	struct npulink_buf *buf;
	int rc = -EOPNOTSUPP;

	buf = npulink_buf_new(file, NPULINK_BUF_DEVMEM);
	if (!buf)
		return ERR_PTR(-ENOMEM);
	if (!percpu_ref_tryget_live(&dev->users)) {
		rc = -ENODEV;
		goto err_discard;
	}
	buf->memory.len = PAGE_ALIGN(len);
	if (dev->ops->memory_alloc)
		rc = dev->ops->memory_alloc(dev, &buf->memory);
	if (!rc) {
		buf->memory_of = dev;
		atomic64_add(buf->memory.len, &dev->memory_used);
		rc = npulink_buf_from_dma(buf, buf->memory.dma, buf->memory.len);
	}
	percpu_ref_put(&dev->users);
	if (!rc)
		return buf;
err_discard:
	npulink_buf_discard(buf);
	return ERR_PTR(rc);
}

void npulink_devmem_free(struct npulink_buf *buf)
{
	struct npulink_device *dev = buf->memory_of;

	/* If the device goes, all of it does. */
	if (!dev || !percpu_ref_tryget_live(&dev->users))
		return;
	atomic64_sub(buf->memory.len, &dev->memory_used);
	dev->ops->memory_free(dev, &buf->memory);
	percpu_ref_put(&dev->users);
}

/* The memory of @from, which the caller keeps, for another file. */
int npulink_devmem_share(struct npulink_buf *buf, const struct npulink_buf *from)
{
	if (!npulink_devmem_reaches(from, buf->dev))
		return -EOPNOTSUPP;
	buf->memory_of = from->memory_of;
	return npulink_buf_from_dma(buf, from->memory.dma, from->memory.len);
}

/* ---- for processors ------------------------------------------------------------------ */

static vm_fault_t npulink_devmem_fault(struct vm_fault *vmf)
{
	const unsigned long mask = (1UL << (NPULINK_MMAP_BUF_SHIFT - PAGE_SHIFT)) - 1;
	struct vm_area_struct *vma = vmf->vma;
	struct npulink_buf *buf = vma->vm_private_data;
	struct npulink_device *dev = buf->memory_of;
	unsigned long pfn = PHYS_PFN(buf->memory.phys) + (vmf->pgoff & mask);
	unsigned long addr = vmf->address & PAGE_MASK, n;
	vm_fault_t rc;

	/* Whoever takes the device away waits for us, then takes the page. */
	if (!percpu_ref_tryget_live(&dev->users))
		return VM_FAULT_SIGBUS;
	n = min(NPULINK_FAULT_PAGES, (vma->vm_end - addr) >> PAGE_SHIFT);
	rc = vmf_insert_pfn(vma, addr, pfn);
	/* What fails now can fail when it is touched. */
	while (rc == VM_FAULT_NOPAGE && --n) {
		addr += PAGE_SIZE;
		if (vmf_insert_pfn(vma, addr, ++pfn) != VM_FAULT_NOPAGE)
			break;
	}
	percpu_ref_put(&dev->users);
	return rc;
}

static const struct vm_operations_struct npulink_devmem_vm_ops = {
	.open = npulink_buf_vm_open,
	.close = npulink_buf_vm_close,
	.fault = npulink_devmem_fault,
};

int npulink_devmem_mmap(struct npulink_buf *buf, struct vm_area_struct *vma)
{
	if (!buf->memory.phys)
		return -EOPNOTSUPP;
	if (vma->vm_end - vma->vm_start != buf->memory.len)
		return -EINVAL;
	if (!npulink_buf_tryget(buf))
		return -ESTALE;
	npulink_vma_flags_set(vma, VM_IO | VM_PFNMAP | VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	if (!buf->memory.cached)
		vma->vm_page_prot = pgprot_writecombine(vma->vm_page_prot);
	vma->vm_private_data = buf;
	vma->vm_ops = &npulink_devmem_vm_ops;
	return 0;
}

/* @dev is going: nobody maps more of its memory, and what is mapped goes now. */
void npulink_device_unmap_devmem(struct npulink_device *dev)
{
	struct npulink_file *file;

	if (!dev->memory)
		return;
	mutex_lock(&dev->lock);
	list_for_each_entry(file, &dev->files, dev_node)
		unmap_mapping_range(file->mapping, NPULINK_MMAP_DEVMEM, 0, 1);
	mutex_unlock(&dev->lock);
}
