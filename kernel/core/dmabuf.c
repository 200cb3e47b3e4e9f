// SPDX-License-Identifier: GPL-2.0
/*
 * dmabuf.c - buffers that are shared with other drivers as dma-bufs.
 */
#include "core.h"

void npulink_buf_dmabuf_release(struct npulink_buf *buf)
{
}

int npulink_buf_import_ioctl(struct npulink_ucmd *ucmd)
{
	return -EOPNOTSUPP;
}

int npulink_buf_export_ioctl(struct npulink_ucmd *ucmd)
{
	return -EOPNOTSUPP;
}
