/* SPDX-License-Identifier: GPL-2.0 */
/*
 * soft_env.h - what kernel/soft's loops need of the kernel, for reduce.c. The
 * structures are those of kernel/include/npulink/device.h.
 */
#ifndef SOFT_ENV_H
#define SOFT_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <linux/types.h>

#define likely(x)	__builtin_expect(!!(x), 1)
#define unlikely(x)	__builtin_expect(!!(x), 0)

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s8 s8;
typedef __s16 s16;
typedef __s32 s32;
typedef __s64 s64;

struct npulink_range {
	void *va;
	u64 off;
};

struct npulink_buf_mem {
	u64 len;
	u32 nranges;
	struct npulink_range *ranges;
};

struct npulink_buf {
	struct npulink_buf_mem mem;
};

struct npulink_operand {
	struct npulink_buf *buf;
	u64 off;
	bool scaled;
};

static inline const struct npulink_buf_mem *npulink_buf_mem(const struct npulink_buf *buf)
{
	return &buf->mem;
}

static inline u32 npulink_mem_range(const struct npulink_buf_mem *mem, u64 off)
{
	u32 i = 0;

	while (i + 1 < mem->nranges && mem->ranges[i + 1].off <= off)
		i++;
	return i;
}

#endif /* SOFT_ENV_H */
