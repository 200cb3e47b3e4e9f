/* SPDX-License-Identifier: GPL-2.0 */
/*
 * checksum.h - sums of what comes over links: checksum.c.
 */
#ifndef NPULINK_CHECKSUM_H
#define NPULINK_CHECKSUM_H

#include "run/op.h"

#define NPULINK_CRC_INIT	(~0U)
u32 npulink_operand_crc_add(u32 crc, const struct npulink_operand *o, u64 len);
static inline u32 npulink_operand_crc(const struct npulink_operand *o, u64 len)
{
	return npulink_operand_crc_add(NPULINK_CRC_INIT, o, len);
}

struct npulink_check *npulink_check_alloc(struct npulink_plan *plan);
void npulink_check_free(struct npulink_check *ck);
void npulink_check_reset(struct npulink_req *req);
void npulink_check_input(struct npulink_req *req, u32 i, struct npulink_link *link, u32 step);
int npulink_check_submit(struct npulink_req *req);
bool npulink_check_landed(struct npulink_req *req);
void npulink_check_cause(const struct npulink_req *req, struct npulink_cause *cause);
bool npulink_check_put_bufs(struct npulink_req *req);

#endif /* NPULINK_CHECKSUM_H */
