/* SPDX-License-Identifier: GPL-2.0 */
/*
 * buf.h - memory that plans can be run on (buf.c, dmabuf.c).
 */
#ifndef NPULINK_BUF_H
#define NPULINK_BUF_H

#include "file/file.h"

enum npulink_buf_kind {
	NPULINK_BUF_USER, NPULINK_BUF_KERNEL, NPULINK_BUF_DMABUF, NPULINK_BUF_DEVMEM,
	NPULINK_BUF_KINDS
};

/*
 * struct npulink_buf - memory that plans can be run on
 * @users: who needs the memory: the id, each operation, each request, each
 *	   mapping, each dma-buf made of it. The last one frees it (by npulink_buf_free_work())
 * @opaque: it has no kernel addresses: only devices can touch it
 * @memory_of: device whose own memory it is, at @memory; NULL: the host's
 * @suspect: the notifier saw an unmap or clear: compare pages before use
 * @mutex: revalidation, adding to @mappings
 */
struct npulink_buf {
	struct npulink_object obj;
	struct npulink_buf_mem mem;
	refcount_t users;
	u8 kind;
	bool opaque;
	bool readonly;
	bool suspect;
	bool unmapped;
	struct npulink_device *dev;
	struct npulink_device *memory_of;
	struct npulink_device_memory memory;
	spinlock_t mappings_lock;	/* mappings */
	struct list_head mappings;	/* for devices (mapping.c) */
	struct npulink_charge charge;
	struct mutex mutex;		/* see above */
	unsigned long uaddr;
	struct mmu_interval_notifier mn;
	struct npulink_quota *quota;
	struct llist_node freed;	/* quota->freed */
	atomic_t base;		/* 1 while the id's user reference is held */
	struct dma_buf *dmabuf;
	bool ours;		/* @dmabuf was exported by this module */
	void *dmabuf_va;
	struct rcu_head rcu;
};

/* Offsets of mmap(). A device's memory has its own, so that all can be found when it goes. */
#define NPULINK_MMAP_BUF_SHIFT	41
#define NPULINK_MMAP_BUF(id)	(0x1000000000000ULL + ((id) << NPULINK_MMAP_BUF_SHIFT))
#define NPULINK_MMAP_DEVMEM	BIT_ULL(62)

extern const struct npulink_object_type npulink_buf_type;

struct npulink_buf *npulink_buf_alloc_pages(struct npulink_file *file, u64 len, bool wait);
int npulink_buf_use(struct npulink_buf *buf);
int npulink_buf_check(struct npulink_buf *buf);
static inline bool npulink_buf_tryget(struct npulink_buf *buf)
{
	return refcount_inc_not_zero(&buf->users);
}

void npulink_buf_unuse(struct npulink_buf *buf);

/* Of a request that is not needed any more. */
static inline void npulink_operand_put(const struct npulink_operand *o)
{
	if (o->held)
		npulink_buf_unuse(o->buf);
}

/* Where bytes that are known to lie in one piece are. */
static inline void *npulink_operand_va(const struct npulink_operand *o)
{
	const struct npulink_range *r;

	r = &o->buf->mem.ranges[npulink_mem_range(&o->buf->mem, o->off)];
	return r->va + (o->off - r->off);
}

void npulink_buf_drop_base(struct npulink_buf *buf);
struct npulink_buf *npulink_buf_new(struct npulink_file *file, u8 kind);
void npulink_buf_discard(struct npulink_buf *buf);
int npulink_buf_mmap(struct npulink_buf *buf, struct vm_area_struct *vma);
void npulink_buf_vm_open(struct vm_area_struct *vma);
void npulink_buf_vm_close(struct vm_area_struct *vma);
int npulink_buf_from_dma(struct npulink_buf *buf, dma_addr_t dma, u64 len);
int npulink_buf_from_va(struct npulink_buf *buf, void *va, u64 len);
int npulink_buf_from_buf(struct npulink_buf *buf, const struct npulink_buf *from);
void npulink_buf_dmabuf_release(struct npulink_buf *buf);
int npulink_buf_begin_cpu(struct npulink_buf *buf, u32 access);
void npulink_buf_end_cpu(struct npulink_buf *buf, u32 access);

/* Another driver's memory: it has to know when a processor looks at it. */
static inline bool npulink_buf_is_foreign(const struct npulink_buf *buf)
{
	return buf->dmabuf && !buf->ours;
}

int npulink_buf_register_ioctl(struct npulink_ucmd *ucmd);
int npulink_buf_alloc_ioctl(struct npulink_ucmd *ucmd);
int npulink_buf_import_ioctl(struct npulink_ucmd *ucmd);
int npulink_buf_export_ioctl(struct npulink_ucmd *ucmd);
void npulink_buf_free_work(struct work_struct *work);
int npulink_buf_init(void);
void npulink_buf_exit(void);

#endif /* NPULINK_BUF_H */
