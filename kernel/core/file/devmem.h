/* SPDX-License-Identifier: GPL-2.0 */
/*
 * devmem.h - memory of a device's own (devmem.c).
 */
#ifndef NPULINK_DEVMEM_H
#define NPULINK_DEVMEM_H

#include "file/buf.h"

struct npulink_buf *npulink_devmem_alloc(struct npulink_file *file, u64 len);
void npulink_devmem_free(struct npulink_buf *buf);
int npulink_devmem_share(struct npulink_buf *buf, const struct npulink_buf *from);
int npulink_devmem_mmap(struct npulink_buf *buf, struct vm_area_struct *vma);
void npulink_device_unmap_devmem(struct npulink_device *dev);

/* Is it memory that @dev can reach as it reaches its own? */
static inline bool npulink_devmem_reaches(const struct npulink_buf *buf,
					  const struct npulink_device *dev)
{
	const struct npulink_device *of = buf->memory_of;

	return of && (of == dev || (of->fabric && of->fabric == dev->fabric));
}

#endif /* NPULINK_DEVMEM_H */
