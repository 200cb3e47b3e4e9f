// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * memory.c - memory that the kernel has for us: the host's, a device's, or another driver's. It is
 * a registered range (reg.c) from the start. What only devices are to touch is one, too: calls
 * know it by its addresses.
 */
#include <errno.h>
#include <stdlib.h>
#include "coll.h"
#include "run/comm.h"
#include "run/dev.h"
#include "run/drv.h"
#include "run/error.h"
#include "run/reg.h"

#define PAGE	4096UL

/* Lists @reg, a buffer that is mapped at @map. Lock held. */
static int list(struct coll_dev *dev, struct coll_reg *reg, void *map, size_t len)
{
	int rc;

	reg->start = (uintptr_t)map;
	reg->end = reg->start + len;
	reg->alloc = true;
	/* What is left of memory that the caller has unmapped. */
	coll_reg_clear(dev, reg->start, reg->end);
	rc = coll_reg_list(dev, reg);
	if (rc)
		coll_drv_unmap(map, len);
	return rc;
}

static int alloc(struct coll_dev *dev, struct coll_reg *reg, size_t len, void **map)
{
	uint32_t flags = reg->device ? NPULINK_BUF_DEVICE : 0;
	unsigned int tries = 0;
	uint64_t offset;
	int rc;

	do
		rc = coll_drv_buf_alloc(&dev->drv, flags, len, &reg->id, &offset);
	while (rc == -ENOMEM && !reg->device && coll_reg_reclaim(dev, &tries));
	if (rc)
		return rc;
	rc = coll_drv_map(&dev->drv, offset, len, map);
	if (rc == -EOPNOTSUPP && reg->device) {
		reg->hidden = true;
		rc = coll_drv_reserve(len, map);
	}
	if (!rc)
		rc = list(dev, reg, *map, len);
	if (rc)
		coll_drv_destroy(&dev->drv, reg->id);
	return rc;
}

static int fail_device(struct coll_comm *comm, size_t len, int rc)
{
	const struct npulink_device_info *info = &comm->dev->info;

	if (rc == -EOPNOTSUPP)
		return coll_fail(comm, rc, "%.16s (%.16s) has no memory of its own",
				 info->out_name, info->out_backend);
	return coll_fail(comm, rc, "%zu bytes in the memory of %.16s: not so many of its %llu are free in one piece (npulink buf show tells who has them)",
			 len, info->out_name, (unsigned long long)info->out_memory);
}

int coll_mem_alloc(struct coll_comm *comm, enum coll_memory kind, size_t len, void **addr)
{
	struct coll_dev *dev;
	struct coll_reg *reg;
	int rc = coll_comm_enter(comm);

	if (rc)
		return rc;
	dev = comm->dev;
	*addr = NULL;
	if (!len || len > SIZE_MAX / 2)
		return coll_fail(comm, -EINVAL, "%s: %zu bytes", __func__, len);
	if (kind != COLL_MEMORY_HOST && kind != COLL_MEMORY_DEVICE)
		return coll_fail(comm, -EINVAL, "%s: no such kind of memory", __func__);
	reg = calloc(1, sizeof(*reg));
	if (!reg)
		return coll_fail(comm, -ENOMEM, "out of memory");
	len = (len + PAGE - 1) & ~(PAGE - 1);
	reg->device = kind == COLL_MEMORY_DEVICE;
	pthread_mutex_lock(&dev->lock);
	rc = alloc(dev, reg, len, addr);
	pthread_mutex_unlock(&dev->lock);
	if (!rc)
		return 0;
	*addr = NULL;
	free(reg);
	return kind == COLL_MEMORY_DEVICE && (rc == -EOPNOTSUPP || rc == -ENOMEM) ?
	       fail_device(comm, len, rc) : coll_fail_pin(comm, NULL, NULL, len, rc);
}

static int import(struct coll_dev *dev, struct coll_reg *reg, int fd, void **map, size_t *len)
{
	int rc = coll_drv_buf_import(&dev->drv, reg->readonly ? NPULINK_BUF_READONLY : 0, fd,
				     &reg->id, len);

	if (rc)
		return rc;
	rc = coll_drv_map_dmabuf(fd, *len, reg->readonly, map);
	if (rc) {
		reg->hidden = true;
		rc = coll_drv_reserve(*len, map);
	}
	if (!rc)
		rc = list(dev, reg, *map, *len);
	if (rc)
		coll_drv_destroy(&dev->drv, reg->id);
	return rc;
}

int coll_mem_import(struct coll_comm *comm, int fd, int readonly, void **addr, size_t *len)
{
	struct coll_dev *dev;
	struct coll_reg *reg;
	size_t bytes = 0;
	int rc = coll_comm_enter(comm);

	if (rc)
		return rc;
	dev = comm->dev;
	*addr = NULL;
	reg = calloc(1, sizeof(*reg));
	if (!reg)
		return coll_fail(comm, -ENOMEM, "out of memory");
	reg->device = true;
	reg->readonly = readonly;
	pthread_mutex_lock(&dev->lock);
	rc = import(dev, reg, fd, addr, &bytes);
	pthread_mutex_unlock(&dev->lock);
	if (rc) {
		*addr = NULL;
		free(reg);
		if (rc == -EOPNOTSUPP)
			return coll_fail(comm, rc, "%s: the driver that made descriptor %d gives %.16s no access to its memory",
					 __func__, fd, dev->info.out_name);
		return coll_fail(comm, rc, "%s: descriptor %d: %s", __func__, fd,
				 rc == -EINVAL || rc == -EBADF ? "not a dma-buf" :
				 coll_strerror(rc));
	}
	if (len)
		*len = bytes;
	return 0;
}

int coll_mem_free(struct coll_comm *comm, void *addr)
{
	int rc = coll_comm_enter(comm);

	if (rc || !addr)
		return rc;
	pthread_mutex_lock(&comm->dev->lock);
	rc = coll_reg_free(comm->dev, addr);
	pthread_mutex_unlock(&comm->dev->lock);
	if (rc == -EBUSY)
		return coll_fail(comm, rc, "%s: a request still uses %p", __func__, addr);
	return rc ? coll_fail(comm, rc, "%s: %p is not from coll_mem_alloc() or coll_mem_import()",
			      __func__, addr) : 0;
}
