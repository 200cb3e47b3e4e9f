// SPDX-License-Identifier: GPL-2.0
/*
 * ioctl.c - what a process can do with an open device: the system calls, and the table of ioctls.
 */
#include <linux/compat.h>
#include <linux/fs.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/nospec.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>
#include <linux/npulink_board.h>
#include <npulink/compat.h>
#include <npulink/verify.h>
#include "base/hot.h"
#include "comm/comm.h"
#include "device/device_core.h"
#include "file/buf.h"
#include "file/devmem.h"
#include "file/file.h"
#include "file/port.h"
#include "observe/deadlock.h"
#include "plan/plan.h"
#include "run/board.h"
#include "run/event.h"
#include "run/failure.h"
#include "run/graph.h"
#include "run/op.h"
#include "run/worker.h"
#include "ioctl.h"

/* ---- open, close -------------------------------------------------------------------- */

static int npulink_open(struct inode *inode, struct file *filp)
{
	struct npulink_device *dev = container_of(inode->i_cdev, struct npulink_device, cdev);
	struct npulink_file *file;
	int rc;

	if (!current->mm)
		return -EPERM;
	if (in_compat_syscall())
		return -EOPNOTSUPP;
	file = npulink_file_new(dev);
	if (IS_ERR(file))
		return PTR_ERR(file);
	file->mapping = filp->f_mapping;
	npulink_watchdog_init(file);
	npulink_worker_init_file(file);
	INIT_WORK(&file->death_work, npulink_file_death_work);
	rc = npulink_file_publish(file);
	if (rc) {
		npulink_slots_free(file);
		npulink_file_put(file);
		return rc;
	}
	filp->private_data = file;
	return nonseekable_open(inode, filp);
}

static bool npulink_file_idle(struct npulink_file *file)
{
	bool idle;

	spin_lock_irq(&file->lock);
	idle = !file->inflight;
	spin_unlock_irq(&file->lock);
	return idle;
}

static int npulink_release(struct inode *inode, struct file *filp)
{
	struct npulink_file *file = filp->private_data;

	npulink_file_hide(file);
	npulink_file_kill(file, NPULINK_CAUSE_DEATH);
	npulink_worker_drain(file);
	/* All have failed; engines let go of cancelled requests in bounded time. */
	wait_event(file->poll_wq, npulink_file_idle(file));
	npulink_watchdog_stop(file);
	npulink_file_unlink(file);
	npulink_slots_free(file);
	npulink_objects_destroy(file, &npulink_plan_type);
	npulink_objects_destroy(file, &npulink_rank_type);
	npulink_objects_destroy(file, &npulink_buf_type);
	npulink_port_unuse(file);
	npulink_worker_end(file);
	/* It is seen to be closing by now: nobody watches it again. */
	npulink_deadlock_forget(file);
	if (file->arena) {
		npulink_buf_drop_base(file->arena);
		npulink_object_put(&file->arena->obj);
	}
	npulink_ring_free(file);
	npulink_file_put(file);
	return 0;
}

/*
 * The process may die while its address space lives on: a child has it, too, as after vfork().
 * Then nothing else tells us.
 */
static int npulink_flush(struct file *filp, fl_owner_t id)
{
	struct npulink_file *file = filp->private_data;

	if (current->flags & PF_EXITING && task_tgid(current) == file->tgid &&
	    !atomic_read(&current->signal->live))
		npulink_file_kill(file, NPULINK_CAUSE_DEATH);
	return 0;
}

/* ---- ioctls ------------------------------------------------------------------------ */

static int npulink_device_info_ioctl(struct npulink_ucmd *ucmd)
{
	struct npulink_device_info *cmd = ucmd->cmd;
	struct npulink_device *dev = ucmd->file->dev;

	if (cmd->flags)
		return -EOPNOTSUPP;
	*cmd = (struct npulink_device_info) {
		.size = cmd->size,
		.out_abi_version = NPULINK_ABI_VERSION,
		.out_device_id = dev->id,
		.out_max_steps = NPULINK_MAX_STEPS,
		.out_max_ranks = NPULINK_MAX_RANKS,
		.out_max_channels = NPULINK_MAX_CHANNELS,
		.out_max_inflight = NPULINK_MAX_INFLIGHT,
		.out_max_arena = NPULINK_MAX_ARENA,
		.out_slice = dev->slice,
		.out_dtypes = dev->dtypes,
		.out_redops = dev->redops,
		.out_caps = NPULINK_CAP_BOARD | (dev->ndoorbells ? NPULINK_CAP_DOORBELL : 0),
		.out_inline_max = READ_ONCE(dev->inline_max),
		.out_version = NPULINK_VERSION,
		.out_processors = dev->processors,
		.out_graph_bytes = npulink_graph_bytes,
		.out_gathers = NPULINK_COLLS_ALWAYS,
		.out_gathers_large = NPULINK_COLLS_LARGE,
		.out_memory = dev->memory,
	};
	memcpy(cmd->out_node_id, npulink_node_id, sizeof(cmd->out_node_id));
	strscpy(cmd->out_name, dev_name(&dev->dev), sizeof(cmd->out_name));
	strscpy(cmd->out_backend, dev->backend, sizeof(cmd->out_backend));
	strscpy(cmd->out_engine, dev->engine, sizeof(cmd->out_engine));
	return npulink_ucmd_respond(ucmd, sizeof(*cmd));
}

static int npulink_destroy_ioctl(struct npulink_ucmd *ucmd)
{
	struct npulink_destroy *cmd = ucmd->cmd;

	return npulink_object_destroy(ucmd->file, cmd->id);
}

#define NPULINK_ANYONE	1	/* also for processes that do not own the file */
#define NPULINK_GONE_OK	2	/* also when the device has gone */

struct npulink_ioctl_op {
	u32 size;
	u32 min_size;
	u32 cmd;
	u32 flags;
	int (*fn)(struct npulink_ucmd *ucmd);
};

#define IOCTL_OP(_cmd, _fn, _struct, _last, _flags) \
	[_IOC_NR(_cmd)] = { \
		.size = sizeof(struct _struct) + \
			BUILD_BUG_ON_ZERO(sizeof(union npulink_ucmd_buffer) < \
					  sizeof(struct _struct)), \
		.min_size = offsetofend(struct _struct, _last), \
		.cmd = _cmd, \
		.flags = _flags, \
		.fn = _fn, \
	}

union npulink_ucmd_buffer {
	struct npulink_device_info info;
	struct npulink_comm_create comm_create;
	struct npulink_comm_status comm_status;
	struct npulink_plan_create plan_create;
	struct npulink_post post;
	struct npulink_wait wait;
};

/* min_size is that of the first version of each structure, for good. */
static const struct npulink_ioctl_op npulink_ioctl_ops[] = {
	IOCTL_OP(NPULINK_DEVICE_INFO, npulink_device_info_ioctl, npulink_device_info,
		 out_version, NPULINK_ANYONE),
	IOCTL_OP(NPULINK_BUF_REGISTER, npulink_buf_register_ioctl, npulink_buf_register,
		 reserved, 0),
	IOCTL_OP(NPULINK_BUF_ALLOC, npulink_buf_alloc_ioctl, npulink_buf_alloc, reserved, 0),
	IOCTL_OP(NPULINK_BUF_IMPORT, npulink_buf_import_ioctl, npulink_buf_import, out_len, 0),
	IOCTL_OP(NPULINK_BUF_EXPORT, npulink_buf_export_ioctl, npulink_buf_export, out_fd, 0),
	IOCTL_OP(NPULINK_COMM_CREATE, npulink_comm_create_ioctl, npulink_comm_create,
		 peer_timeout_ms, 0),
	IOCTL_OP(NPULINK_COMM_PEERS, npulink_comm_peers_ioctl, npulink_comm_peers, peers, 0),
	IOCTL_OP(NPULINK_COMM_ABORT, npulink_comm_abort_ioctl, npulink_comm_abort, code,
		 NPULINK_GONE_OK),
	IOCTL_OP(NPULINK_COMM_STATUS, npulink_comm_status_ioctl, npulink_comm_status, out_calls,
		 NPULINK_GONE_OK),
	IOCTL_OP(NPULINK_PLAN_CREATE, npulink_plan_create_ioctl, npulink_plan_create,
		 out_reason, 0),
	IOCTL_OP(NPULINK_POST, npulink_post_ioctl, npulink_post, out_result, 0),
	IOCTL_OP(NPULINK_POST_BATCH, npulink_post_batch_ioctl, npulink_post_batch,
		 wait_until_ns, 0),
	IOCTL_OP(NPULINK_WAIT, npulink_wait_ioctl, npulink_wait, out_result,
		 NPULINK_ANYONE | NPULINK_GONE_OK),
	IOCTL_OP(NPULINK_RING_SETUP, npulink_ring_setup_ioctl, npulink_ring_setup, out_len, 0),
	IOCTL_OP(NPULINK_DESTROY, npulink_destroy_ioctl, npulink_destroy, id, NPULINK_GONE_OK),
	IOCTL_OP(NPULINK_COMM_SHRINK, npulink_comm_shrink_ioctl, npulink_comm_shrink, out_nranks,
		 0),
	IOCTL_OP(NPULINK_PORT_INFO, npulink_port_info_ioctl, npulink_port_info, out_addr, 0),
};

static npulink_hot long npulink_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	struct npulink_file *file = filp->private_data;
	const struct npulink_ioctl_op *op;
	union npulink_ucmd_buffer buf;
	struct npulink_ucmd ucmd = { .file = file, .ubuffer = (void __user *)arg, .cmd = &buf };
	unsigned int nr = _IOC_NR(cmd);
	int rc;

	if (nr >= ARRAY_SIZE(npulink_ioctl_ops))
		return -ENOTTY;
	op = &npulink_ioctl_ops[array_index_nospec(nr, ARRAY_SIZE(npulink_ioctl_ops))];
	if (op->cmd != cmd)
		return -ENOTTY;
	if (!(op->flags & NPULINK_ANYONE) && file->mm != current->mm)
		return -EPERM;
	if (get_user(ucmd.user_size, (u32 __user *)ucmd.ubuffer))
		return -EFAULT;
	if (ucmd.user_size < op->min_size)
		return -EINVAL;
	/* As openat2(): nobody looks through gigabytes for a byte that is not zero. */
	if (ucmd.user_size > PAGE_SIZE)
		return -E2BIG;
	rc = copy_struct_from_user(&buf, op->size, ucmd.ubuffer, ucmd.user_size);
	if (rc)
		return rc;
	*(u32 *)&buf = ucmd.user_size;
	if (!(op->flags & NPULINK_GONE_OK) && READ_ONCE(file->dev->gone))
		return -ENODEV;
	return op->fn(&ucmd);
}

/* mmap2() cannot say where most things are, see NPULINK_MMAP_BUF(): told at once, not halfway. */
static long npulink_compat_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	return -EOPNOTSUPP;
}

/* ---- mmap, poll ---------------------------------------------------------------------- */

static int npulink_arena_mmap(struct npulink_file *file, struct vm_area_struct *vma)
{
	unsigned long len = vma->vm_end - vma->vm_start;
	struct npulink_buf *arena;
	int rc;

	if (!len || len > NPULINK_MAX_ARENA)
		return -EINVAL;
	/* mmap_lock is held: never wait for somebody who may want it. */
	if (!mutex_trylock(&file->mutex))
		return -EAGAIN;
	arena = file->arena;
	if (!arena) {
		arena = npulink_buf_alloc_pages(file, len, false);
		if (IS_ERR(arena)) {
			rc = PTR_ERR(arena);
			goto out;
		}
		WRITE_ONCE(file->arena_len, arena->mem.len);
		/* Pairs with npulink_bind_one(). */
		smp_store_release(&file->arena, arena);
	}
	rc = npulink_buf_mmap(arena, vma);
out:
	mutex_unlock(&file->mutex);
	return rc;
}

/*
 * The page that rings for @file only; each file gets another one. Without a lock: mmap_lock is
 * held, and whoever has another one may want that.
 */
static int npulink_doorbell_index(struct npulink_file *file)
{
	struct npulink_device *dev = file->dev;
	int index = READ_ONCE(file->doorbell), old;

	if (index >= 0)
		return index;
	index = ida_alloc_max(&dev->doorbells, dev->ndoorbells - 1, GFP_KERNEL);
	if (index < 0)
		return index;
	old = cmpxchg(&file->doorbell, -1, index);
	if (old < 0)
		return index;
	ida_free(&dev->doorbells, index);	/* another thread was faster */
	return old;
}

static int npulink_doorbell_mmap(struct npulink_file *file, struct vm_area_struct *vma)
{
	struct npulink_device *dev = file->dev;
	phys_addr_t pa;
	int rc = -ENXIO, index;

	if (vma->vm_end - vma->vm_start != PAGE_SIZE || !(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	if (!percpu_ref_tryget_live(&dev->users))
		return -ENODEV;
	if (!dev->ndoorbells || !dev->ops->doorbell) {
		rc = -EOPNOTSUPP;
		goto out;
	}
	index = npulink_doorbell_index(file);
	pa = index < 0 ? 0 : dev->ops->doorbell(dev, index);
	if (!pa)
		goto out;
	npulink_vma_flags_set(vma, VM_IO | VM_PFNMAP | VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	vma->vm_page_prot = pgprot_noncached(vma->vm_page_prot);
	rc = io_remap_pfn_range(vma, vma->vm_start, pa >> PAGE_SHIFT, PAGE_SIZE,
				vma->vm_page_prot);
out:
	percpu_ref_put(&dev->users);
	return rc;
}

static int npulink_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct npulink_file *file = filp->private_data;
	u64 off = (u64)vma->vm_pgoff << PAGE_SHIFT;
	bool devmem = off & NPULINK_MMAP_DEVMEM;
	struct npulink_object *obj;
	struct npulink_buf *buf;
	u32 id;
	int rc;

	if (file->mm != current->mm)
		return -EPERM;
	if (in_compat_syscall())
		return -EOPNOTSUPP;
	if (READ_ONCE(file->dev->gone))
		return -ENODEV;
	if (!(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	switch (off) {
	case NPULINK_MMAP_ARENA:
		return npulink_arena_mmap(file, vma);
	case NPULINK_MMAP_RING:
		return npulink_ring_mmap(file, vma);
	case NPULINK_MMAP_DOORBELL:
		return npulink_doorbell_mmap(file, vma);
	}
	if (off >= NPULINK_MMAP_BOARD(0) && off < NPULINK_MMAP_BUF(0ULL))
		return npulink_board_mmap(file, off, vma);
	off &= ~NPULINK_MMAP_DEVMEM;
	if (off < NPULINK_MMAP_BUF(0ULL))
		return -EINVAL;
	id = (off - NPULINK_MMAP_BUF(0ULL)) >> NPULINK_MMAP_BUF_SHIFT;
	if (off != NPULINK_MMAP_BUF((u64)id))
		return -EINVAL;
	obj = npulink_object_get(file, id, &npulink_buf_type);
	if (IS_ERR(obj))
		return PTR_ERR(obj);
	buf = container_of(obj, struct npulink_buf, obj);
	if (buf->kind == NPULINK_BUF_DEVMEM)
		rc = devmem ? npulink_devmem_mmap(buf, vma) : -EINVAL;
	else
		rc = devmem ? -EINVAL : npulink_buf_mmap(buf, vma);
	npulink_object_put(obj);
	return rc;
}

static __poll_t npulink_poll(struct file *filp, poll_table *wait)
{
	struct npulink_file *file = filp->private_data;
	__poll_t mask = 0;

	poll_wait(filp, &file->poll_wq, wait);
	if (npulink_ring_pending(file))
		mask |= EPOLLIN | EPOLLRDNORM;
	if (READ_ONCE(file->dev->gone))
		mask |= EPOLLERR | EPOLLHUP;
	return mask;
}

const struct file_operations npulink_fops = {
	.owner = THIS_MODULE,
	.open = npulink_open,
	.flush = npulink_flush,
	.release = npulink_release,
	.unlocked_ioctl = npulink_ioctl,
	.compat_ioctl = npulink_compat_ioctl,
	.mmap = npulink_mmap,
	.poll = npulink_poll,
};
