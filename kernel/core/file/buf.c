// SPDX-License-Identifier: GPL-2.0
/*
 * buf.c - buffers: memory of the application, pinned, or pages of our own.
 *
 * A pinned buffer never writes to memory that is not the application's any more: a
 * notifier marks it suspect when something was unmapped or cleared, and the next POST
 * compares its pages with what is mapped now. Operations in flight keep their pages,
 * so what they write after an munmap is lost, never somebody else's. That is
 * what lets libcoll cache registrations without watching malloc.
 */
#include <linux/highmem.h>
#include <linux/hugetlb.h>
#include <linux/magic.h>
#include <linux/mutex.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <npulink/compat.h>
#include <npulink/verify.h>
#include "file/account.h"
#include "file/buf.h"
#include "file/devmem.h"
#include "file/file.h"
#include "file/mapping.h"

#define NPULINK_PIN_BATCH	64

static struct workqueue_struct *npulink_buf_wq;

const struct npulink_buf_mem *npulink_buf_mem(const struct npulink_buf *buf)
{
	return WARN_ON_ONCE(buf->opaque) ? NULL : &buf->mem;
}
EXPORT_SYMBOL_NPULINK(npulink_buf_mem);

/* ---- ranges --------------------------------------------------------------------- */

/* Ranges while they are collected; one entry is kept free for the end. */
struct npulink_ranges {
	struct npulink_range *r;
	u32 n, cap;
	u64 len;
};

static int npulink_ranges_add(struct npulink_ranges *rs, void *va, u64 len)
{
	struct npulink_range *last = rs->n ? &rs->r[rs->n - 1] : NULL;

	/* Not without end: scatterlists count in 32 bits. */
	if (last && last->va + (rs->len - last->off) == va && rs->len - last->off < SZ_1G) {
		rs->len += len;
		return 0;
	}
	if (rs->n + 2 > rs->cap) {
		u32 cap = rs->cap ? rs->cap * 2 : 8;
		struct npulink_range *r = kvmalloc_array(cap, sizeof(*r), GFP_KERNEL_ACCOUNT);

		if (!r)
			return -ENOMEM;
		if (rs->r)
			memcpy(r, rs->r, rs->n * sizeof(*r));
		kvfree(rs->r);
		rs->r = r;
		rs->cap = cap;
	}
	rs->r[rs->n++] = (struct npulink_range) { .va = va, .off = rs->len };
	rs->len += len;
	return 0;
}

static void npulink_ranges_finish(struct npulink_ranges *rs, struct npulink_buf_mem *mem)
{
	if (rs->r)
		rs->r[rs->n] = (struct npulink_range) { .off = rs->len };
	mem->ranges = rs->r;
	mem->nranges = rs->n;
	mem->len = rs->len;
}

static u64 npulink_range_len(const struct npulink_buf_mem *mem, u32 i)
{
	return mem->ranges[i + 1].off - mem->ranges[i].off;
}

/* The whole pages of range i. */
static struct page *npulink_range_pages(const struct npulink_buf_mem *mem, u32 i,
					unsigned long *npages)
{
	unsigned long va = (unsigned long)mem->ranges[i].va;

	*npages = (offset_in_page(va) + npulink_range_len(mem, i) + PAGE_SIZE - 1) >> PAGE_SHIFT;
	return virt_to_page((void *)(va & PAGE_MASK));
}

/* ---- life ------------------------------------------------------------------------ */

static void npulink_buf_free_memory(struct npulink_buf *buf)
{
	unsigned long n, k;
	struct page *page;
	u32 i;

	for (i = 0; i < buf->mem.nranges; i++) {
		if (buf->kind != NPULINK_BUF_USER && buf->kind != NPULINK_BUF_KERNEL)
			break;
		page = npulink_range_pages(&buf->mem, i, &n);
		if (buf->kind == NPULINK_BUF_USER) {
			unpin_user_page_range_dirty_lock(page, n, !buf->readonly);
		} else {
			for (k = 0; k < n; k++)
				__free_page(page + k);
		}
		cond_resched();
	}
	kvfree(buf->mem.ranges);
	buf->mem.ranges = NULL;
	buf->mem.nranges = 0;
}

/* Nobody needs the memory any more. */
static void npulink_buf_free(struct npulink_buf *buf)
{
	struct npulink_quota *q = buf->quota;

	if (buf->mn.mm)
		mmu_interval_notifier_remove(&buf->mn);
	npulink_buf_unmap_dma(buf);
	if (buf->kind == NPULINK_BUF_DMABUF)
		npulink_buf_dmabuf_release(buf);
	if (buf->kind == NPULINK_BUF_DEVMEM)
		npulink_devmem_free(buf);
	npulink_buf_free_memory(buf);
	npulink_uncharge(&buf->charge);
	npulink_object_put(&buf->obj);
	npulink_quota_returned(q);
	npulink_quota_put(q);
}

/*
 * All buffers of a user, one after the other: others who are about to free theirs do not wait for
 * a user who has very many.
 */
void npulink_buf_free_work(struct work_struct *work)
{
	struct npulink_quota *q = container_of(work, struct npulink_quota, free_work);
	struct llist_node *list = llist_del_all(&q->freed);
	struct npulink_buf *buf, *next;

	llist_for_each_entry_safe(buf, next, llist_reverse_order(list), freed) {
		npulink_buf_free(buf);
		cond_resched();
	}
	npulink_quota_put(q);
}

/* Any context. */
void npulink_buf_unuse(struct npulink_buf *buf)
{
	struct npulink_quota *q = buf->quota;

	if (!refcount_dec_and_test(&buf->users))
		return;
	npulink_quota_returning(q);
	/* Who is queued may find that another one has freed all, and has a reference of its own. */
	npulink_quota_get(q);
	if (!llist_add(&buf->freed, &q->freed) || !queue_work(npulink_buf_wq, &q->free_work))
		npulink_quota_put(q);
}

/* The reference of the id, given up by DESTROY or when the memory was unmapped. */
void npulink_buf_drop_base(struct npulink_buf *buf)
{
	if (atomic_xchg(&buf->base, 0))
		npulink_buf_unuse(buf);
}

static void npulink_buf_destroy(struct npulink_object *obj)
{
	npulink_buf_drop_base(container_of(obj, struct npulink_buf, obj));
}

static void npulink_buf_release(struct kref *kref)
{
	struct npulink_buf *buf = container_of(kref, struct npulink_buf, obj.kref);

	put_device(&buf->dev->dev);
	kfree_rcu(buf, rcu);
}

const struct npulink_object_type npulink_buf_type = {
	.destroy = npulink_buf_destroy,
	.release = npulink_buf_release,
};

/* An empty buffer: one reference for the id, one for its memory. */
struct npulink_buf *npulink_buf_new(struct npulink_file *file, u8 kind)
{
	struct npulink_buf *buf = kzalloc(sizeof(*buf), GFP_KERNEL_ACCOUNT);

	if (!buf)
		return NULL;
	kref_init(&buf->obj.kref);
	kref_get(&buf->obj.kref);
	buf->obj.type = &npulink_buf_type;
	refcount_set(&buf->users, 1);
	atomic_set(&buf->base, 1);
	buf->kind = kind;
	buf->dev = file->dev;
	get_device(&buf->dev->dev);
	spin_lock_init(&buf->mappings_lock);
	INIT_LIST_HEAD(&buf->mappings);
	mutex_init(&buf->mutex);
	buf->quota = npulink_quota_get(file->quota);
	return buf;
}

/* Undo npulink_buf_new() and what was done since. */
void npulink_buf_discard(struct npulink_buf *buf)
{
	npulink_buf_drop_base(buf);
	npulink_object_put(&buf->obj);
}

/* ---- memory of the application ----------------------------------------------------- */

static bool npulink_buf_invalidate(struct mmu_interval_notifier *mn,
				   const struct mmu_notifier_range *range, unsigned long seq)
{
	struct npulink_buf *buf = container_of(mn, struct npulink_buf, mn);

	mmu_interval_set_seq(mn, seq);
	smp_wmb();	/* see npulink_buf_check() */
	switch (range->event) {
	case MMU_NOTIFY_UNMAP:
	case MMU_NOTIFY_RELEASE:
		WRITE_ONCE(buf->unmapped, true);
		/* Freed, it waits for us. */
		npulink_buf_drop_base(buf);
		fallthrough;
	case MMU_NOTIFY_CLEAR:
		/* Also for pages that stay (reclaim, KSM): POST will look. */
		WRITE_ONCE(buf->suspect, true);
		break;
	default:
		break;
	}
	return true;
}

static const struct mmu_interval_notifier_ops npulink_buf_mn_ops = {
	.invalidate = npulink_buf_invalidate,
};

/* How a buffer's memory is pinned, up to the end of the mapping that it was asked for last. */
struct npulink_pinning {
	unsigned long end;
	unsigned int flags;
};

/*
 * Who only reads takes the pages that are there, a file's, too: if they are exchanged at a write,
 * the notifier hears of it. But not a page of zeros that stands for memory without any.
 */
static unsigned int npulink_pin_flags_readonly(struct vm_area_struct *vma)
{
	if (vma->vm_flags & VM_MAYSHARE)
		return FOLL_LONGTERM;
	if (vma_is_anonymous(vma))
		return NPULINK_PIN_ANON;
	if (is_vm_hugetlb_page(vma))
		return FOLL_LONGTERM | (vma->vm_flags & VM_WRITE ? FOLL_WRITE : 0);
	return NPULINK_PIN_FILE;
}

static int npulink_pinning_at(struct npulink_pinning *p, const struct npulink_buf *buf,
			      unsigned long addr)
{
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;
	int rc;

	if (addr < p->end)
		return 0;
	if (!buf->readonly) {
		*p = (struct npulink_pinning) { ULONG_MAX, FOLL_LONGTERM | FOLL_WRITE };
		return 0;
	}
	rc = mmap_read_lock_killable(mm);
	if (rc)
		return rc;
	vma = find_vma(mm, addr);
	if (vma && vma->vm_start <= addr)
		*p = (struct npulink_pinning) { vma->vm_end, npulink_pin_flags_readonly(vma) };
	else
		rc = -EFAULT;
	mmap_read_unlock(mm);
	return rc;
}

/* Pin some of the pages up to @end. Returns how many, or -errno. */
static int npulink_pin_pages(const struct npulink_buf *buf, struct npulink_pinning *p,
			     unsigned long addr, unsigned long end, struct page **pages)
{
	int rc = npulink_pinning_at(p, buf, addr);
	unsigned long n;

	if (rc)
		return rc;
	n = DIV_ROUND_UP(min(end, p->end) - addr, PAGE_SIZE);
	rc = pin_user_pages_fast(addr, min_t(unsigned long, n, NPULINK_PIN_BATCH), p->flags, pages);
	return rc ?: -EFAULT;
}

/* Pages of a file that somebody else may truncate or write back are not for DMA. */
static int npulink_check_vmas(unsigned long start, unsigned long end)
{
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;
	int rc = 0;

	rc = mmap_read_lock_killable(mm);
	if (rc)
		return rc;
	while (!rc && start < end) {
		vma = find_vma(mm, start);
		if (!vma || vma->vm_start > start) {
			rc = -EFAULT;
			break;
		}
		/* Not VM_SHARED: that goes if the file was not opened for writing. */
		if (vma->vm_file && vma->vm_flags & VM_MAYSHARE && !is_vm_hugetlb_page(vma)) {
			struct inode *inode = file_inode(vma->vm_file);

			/* devtmpfs has the same magic. */
			if (!S_ISREG(inode->i_mode) || inode->i_sb->s_magic != TMPFS_MAGIC)
				rc = -EOPNOTSUPP;
		}
		start = vma->vm_end;
	}
	mmap_read_unlock(mm);
	return rc;
}

static int npulink_buf_pin(struct npulink_buf *buf, u64 len)
{
	unsigned long addr = buf->uaddr & PAGE_MASK;
	unsigned long end = buf->uaddr + len;
	struct page *pages[NPULINK_PIN_BATCH];
	struct npulink_pinning pinning = {};
	struct npulink_ranges rs = {};
	int i, n, rc = 0;

	while (!rc && addr < end) {
		n = npulink_pin_pages(buf, &pinning, addr, end, pages);
		if (n < 0) {
			rc = n;
			break;
		}
		for (i = 0; i < n; i++) {
			unsigned long from = max(addr, buf->uaddr);
			unsigned long to = min(addr + PAGE_SIZE, end);

			if (!rc)
				rc = npulink_ranges_add(&rs, page_address(pages[i]) +
							offset_in_page(from), to - from);
			if (rc)
				unpin_user_page(pages[i]);
			addr += PAGE_SIZE;
		}
		if (!rc && fatal_signal_pending(current))
			rc = -EINTR;
		cond_resched();
	}
	npulink_ranges_finish(&rs, &buf->mem);
	return rc;
}

/* Are the pages that are mapped now those that we have pinned? */
static int npulink_buf_compare(struct npulink_buf *buf)
{
	unsigned long addr = buf->uaddr & PAGE_MASK;
	unsigned long end = buf->uaddr + buf->mem.len;
	struct page *pages[NPULINK_PIN_BATCH];
	struct npulink_pinning pinning = {};
	int i, n, rc = 0;

	while (!rc && addr < end) {
		n = npulink_pin_pages(buf, &pinning, addr, end, pages);
		if (n < 0)
			return n == -EINTR || n == -ENOMEM ? n : -ESTALE;
		for (i = 0; i < n; i++) {
			u64 off = max(addr, buf->uaddr) - buf->uaddr;
			u32 r = npulink_mem_range(&buf->mem, off);
			void *va = buf->mem.ranges[r].va + (off - buf->mem.ranges[r].off);

			if (page_address(pages[i]) != (void *)((unsigned long)va & PAGE_MASK))
				rc = -ESTALE;
			addr += PAGE_SIZE;
		}
		unpin_user_pages(pages, n);
		if (!rc && fatal_signal_pending(current))
			rc = -EINTR;
		cond_resched();
	}
	return rc;
}

/*
 * A reference for an operation. 1: only if npulink_buf_check() finds that the memory is still what
 * was registered.
 */
int npulink_buf_use(struct npulink_buf *buf)
{
	if (!npulink_buf_tryget(buf))
		return -ESTALE;
	return unlikely(READ_ONCE(buf->suspect));
}

/* Is it? May take as long as the user likes; hold nothing that others want. */
int npulink_buf_check(struct npulink_buf *buf)
{
	int rc = npulink_lock(&buf->mutex);

	if (rc)
		return rc;
	if (READ_ONCE(buf->suspect)) {
		/*
		 * What begins to be invalidated from here on marks it again; what has
		 * begun, and still shows the old pages, is waited for.
		 */
		WRITE_ONCE(buf->suspect, false);
		smp_mb();	/* before what is mapped now is looked at */
		mmu_interval_read_begin(&buf->mn);
		rc = READ_ONCE(buf->unmapped) ? -ESTALE : npulink_buf_compare(buf);
		if (rc)
			WRITE_ONCE(buf->suspect, true);
	}
	mutex_unlock(&buf->mutex);
	return rc;
}

int npulink_buf_register_ioctl(struct npulink_ucmd *ucmd)
{
	struct npulink_buf_register *cmd = ucmd->cmd;
	unsigned long npages;
	struct npulink_buf *buf;
	u64 end;
	int rc;

	if (cmd->flags & ~NPULINK_BUF_READONLY || cmd->reserved)
		return -EOPNOTSUPP;
	if (!cmd->len || cmd->len > NPULINK_MAX_LEN ||
	    check_add_overflow(cmd->addr, cmd->len, &end) || end > TASK_SIZE)
		return -EINVAL;
	npages = (PAGE_ALIGN(end) - (cmd->addr & PAGE_MASK)) >> PAGE_SHIFT;
	rc = npulink_check_vmas(cmd->addr, end);
	if (rc)
		return rc;
	buf = npulink_buf_new(ucmd->file, NPULINK_BUF_USER);
	if (!buf)
		return -ENOMEM;
	buf->readonly = cmd->flags & NPULINK_BUF_READONLY;
	buf->uaddr = cmd->addr;
	rc = npulink_object_reserve(ucmd->file, &buf->obj, &npulink_buf_type);
	if (rc)
		goto err_discard;
	rc = npulink_charge(&buf->charge, ucmd->file, npages, true);
	if (rc)
		goto err_abort;
	/* Unmapped at once, it must not go before we are through with it. */
	refcount_inc(&buf->users);
	/* The notifier first: what changes while we pin is then noticed. */
	rc = mmu_interval_notifier_insert(&buf->mn, current->mm, cmd->addr & PAGE_MASK,
					  npages << PAGE_SHIFT, &npulink_buf_mn_ops);
	if (rc) {
		rc = npulink_notifier_error(rc);
		buf->mn.mm = NULL;
		goto err_unuse;
	}
	/* What had begun to change before is not told to us: let it end. */
	mmu_interval_read_begin(&buf->mn);
	rc = npulink_buf_pin(buf, cmd->len);
	if (rc)
		goto err_unuse;
	/* It may have been exchanged before; if it is from now on, that is noticed. */
	rc = npulink_check_vmas(cmd->addr, end);
	if (rc)
		goto err_unuse;
	cmd->out_id = buf->obj.id;
	rc = npulink_ucmd_respond(ucmd, sizeof(*cmd));
	if (rc)
		goto err_unuse;
	npulink_object_publish(ucmd->file, &buf->obj);
	npulink_buf_unuse(buf);
	return 0;

err_unuse:
	npulink_buf_unuse(buf);
err_abort:
	npulink_buf_drop_base(buf);
	npulink_object_abort(ucmd->file, &buf->obj);
	return rc;
err_discard:
	npulink_buf_discard(buf);
	return rc;
}

/* ---- memory of our own --------------------------------------------------------------- */

/*
 * Zeroed pages, in blocks as large as can be had. Reference for the caller. @wait: as for
 * npulink_charge().
 */
struct npulink_buf *npulink_buf_alloc_pages(struct npulink_file *file, u64 len, bool wait)
{
	struct npulink_ranges rs = {};
	struct npulink_buf *buf;
	unsigned int order = 9;
	struct page *page;
	unsigned int k;
	int rc;

	len = PAGE_ALIGN(len);
	buf = npulink_buf_new(file, NPULINK_BUF_KERNEL);
	if (!buf)
		return ERR_PTR(-ENOMEM);
	rc = npulink_charge(&buf->charge, file, len >> PAGE_SHIFT, wait);
	while (!rc && rs.len < len) {
		gfp_t gfp = GFP_KERNEL_ACCOUNT | __GFP_ZERO;

		while (order && (PAGE_SIZE << order) > len - rs.len)
			order--;
		if (order)
			gfp |= __GFP_NORETRY | __GFP_NOWARN;
		page = alloc_pages(gfp, order);
		if (!page) {
			rc = order ? 0 : -ENOMEM;
			order -= !!order;
			continue;
		}
		split_page(page, order);
		rc = npulink_ranges_add(&rs, page_address(page), PAGE_SIZE << order);
		for (k = 0; rc && k < 1U << order; k++)
			__free_page(page + k);
		if (fatal_signal_pending(current))
			rc = -EINTR;
		cond_resched();
	}
	npulink_ranges_finish(&rs, &buf->mem);
	if (!rc)
		return buf;
	npulink_buf_discard(buf);
	return ERR_PTR(rc);
}

/* Memory that is kept by somebody else (a dma-buf), at a kernel address. */
int npulink_buf_from_va(struct npulink_buf *buf, void *va, u64 len)
{
	struct npulink_ranges rs = {};
	int rc = npulink_ranges_add(&rs, va, len);

	npulink_ranges_finish(&rs, &buf->mem);
	return rc;
}

/* Memory that devices see at one address. */
int npulink_buf_from_dma(struct npulink_buf *buf, dma_addr_t dma, u64 len)
{
	struct npulink_range *r = kvmalloc_array(2, sizeof(*r), GFP_KERNEL_ACCOUNT);

	if (!r)
		return -ENOMEM;
	r[0] = (struct npulink_range) { .dma = dma };
	r[1] = (struct npulink_range) { .off = len };
	buf->mem = (struct npulink_buf_mem) { .len = len, .nranges = 1, .ranges = r };
	buf->opaque = true;
	return 0;
}

/* The memory of @from, which the caller keeps. */
int npulink_buf_from_buf(struct npulink_buf *buf, const struct npulink_buf *from)
{
	struct npulink_ranges rs = {};
	int rc = 0;
	u32 i;

	for (i = 0; !rc && i < from->mem.nranges; i++)
		rc = npulink_ranges_add(&rs, from->mem.ranges[i].va,
					npulink_range_len(&from->mem, i));
	npulink_ranges_finish(&rs, &buf->mem);
	return rc;
}

int npulink_buf_alloc_ioctl(struct npulink_ucmd *ucmd)
{
	struct npulink_buf_alloc *cmd = ucmd->cmd;
	struct npulink_buf *buf;
	int rc;

	if (cmd->flags & ~NPULINK_BUF_DEVICE || cmd->reserved)
		return -EOPNOTSUPP;
	if (!cmd->len || cmd->len > NPULINK_MAX_LEN)
		return -EINVAL;
	if (cmd->flags & NPULINK_BUF_DEVICE)
		buf = npulink_devmem_alloc(ucmd->file, cmd->len);
	else
		buf = npulink_buf_alloc_pages(ucmd->file, cmd->len, true);
	if (IS_ERR(buf))
		return PTR_ERR(buf);
	rc = npulink_object_reserve(ucmd->file, &buf->obj, &npulink_buf_type);
	if (rc) {
		npulink_buf_discard(buf);
		return rc;
	}
	cmd->out_id = buf->obj.id;
	cmd->out_mmap_offset = NPULINK_MMAP_BUF((u64)buf->obj.id);
	if (cmd->flags & NPULINK_BUF_DEVICE)
		cmd->out_mmap_offset |= NPULINK_MMAP_DEVMEM;
	rc = npulink_ucmd_respond(ucmd, sizeof(*cmd));
	if (rc) {
		npulink_buf_drop_base(buf);
		npulink_object_abort(ucmd->file, &buf->obj);
		return rc;
	}
	npulink_object_publish(ucmd->file, &buf->obj);
	return 0;
}

void npulink_buf_vm_open(struct vm_area_struct *vma)
{
	struct npulink_buf *buf = vma->vm_private_data;

	refcount_inc(&buf->users);
}

void npulink_buf_vm_close(struct vm_area_struct *vma)
{
	npulink_buf_unuse(vma->vm_private_data);
}

/* Each mapping keeps the memory, and its charge, whole. */
static const struct vm_operations_struct npulink_buf_vm_ops = {
	.open = npulink_buf_vm_open,
	.close = npulink_buf_vm_close,
};

int npulink_buf_mmap(struct npulink_buf *buf, struct vm_area_struct *vma)
{
	unsigned long addr = vma->vm_start;
	u32 i;
	int rc;

	if (buf->kind != NPULINK_BUF_KERNEL)
		return -EOPNOTSUPP;
	if (vma->vm_end - vma->vm_start != buf->mem.len)
		return -EINVAL;
	if (!npulink_buf_tryget(buf))
		return -ESTALE;
	npulink_vma_flags_set(vma, VM_DONTEXPAND | VM_DONTDUMP | VM_DONTCOPY);
	for (i = 0; i < buf->mem.nranges; i++) {
		unsigned long n, k;
		struct page *page = npulink_range_pages(&buf->mem, i, &n);

		for (k = 0; k < n; k++, addr += PAGE_SIZE) {
			rc = vm_insert_page(vma, addr, page + k);
			/* A range may be a gigabyte. */
			if (!rc && !(k & 0xfff) && fatal_signal_pending(current))
				rc = -EINTR;
			if (rc) {
				npulink_buf_unuse(buf);
				return rc;
			}
			if (!(k & 0xfff))
				cond_resched();
		}
	}
	vma->vm_private_data = buf;
	vma->vm_ops = &npulink_buf_vm_ops;
	return 0;
}

int npulink_buf_init(void)
{
	npulink_buf_wq = alloc_workqueue("npulink_buf", WQ_UNBOUND, 0);
	return npulink_buf_wq ? 0 : -ENOMEM;
}

void npulink_buf_exit(void)
{
	destroy_workqueue(npulink_buf_wq);
}
