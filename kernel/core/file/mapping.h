/* SPDX-License-Identifier: GPL-2.0 */
/*
 * mapping.h - buffers as devices see them (mapping.c).
 */
#ifndef NPULINK_MAPPING_H
#define NPULINK_MAPPING_H

#include "file/buf.h"

int npulink_buf_map_dma(struct npulink_buf *buf, struct npulink_device *dev);
void npulink_buf_unmap_dma(struct npulink_buf *buf);
u32 npulink_buf_count_dma(const struct npulink_buf *buf);
void npulink_device_unmap_dma(struct npulink_device *dev);

bool npulink_req_mapped(const struct npulink_req *req);
int npulink_req_map(struct npulink_req *req);
void npulink_req_sync_for_device(const struct npulink_req *req);
void npulink_req_sync_for_cpu(const struct npulink_req *req);

#endif /* NPULINK_MAPPING_H */
