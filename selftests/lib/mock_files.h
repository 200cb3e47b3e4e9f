/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * mock_files.h - a file of the mock device: its ids, its memory, and its ring.
 */
#ifndef MOCK_FILES_H
#define MOCK_FILES_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "mock_state.h"

static inline uint32_t mock_id(struct mock_file *file, int type, void *object)
{
	for (uint32_t n = 0; n < MOCK_IDS; n++) {
		uint32_t id = file->next_id++ % (MOCK_IDS - 1) + 1;

		if (!file->id[id].type) {
			file->id[id].type = type;
			file->id[id].object = object;
			return id;
		}
	}
	abort();
}

static inline void *mock_object(struct mock_file *file, uint32_t id, int type)
{
	return id < MOCK_IDS && file->id[id].type == type ? file->id[id].object : NULL;
}

/* Is any of it mapped from the device? The kernel refuses that, as other files' mappings. */
static inline bool mock_mapped(uint64_t from, uint64_t to)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned long start, end;
	bool mapped = false;
	char line[512];

	while (maps && !mapped && fgets(line, sizeof(line), maps))
		mapped = sscanf(line, "%lx-%lx", &start, &end) == 2 && start < to && end > from &&
			 strstr(line, "/memfd:npu ");
	if (maps)
		fclose(maps);
	return mapped;
}

static inline int mock_buf_register(struct mock_file *file, struct npulink_buf_register *arg)
{
	struct mock_buf *buf;
	unsigned char vec[1];

	if (!arg->len)
		return -EINVAL;
	if (mincore((void *)(arg->addr & ~4095ULL), 1, vec))
		return -EFAULT;
	if (mock_mapped(arg->addr, arg->addr + arg->len))
		return -EOPNOTSUPP;
	if (mock.locked + arg->len > mock.memlock)
		return -ENOMEM;
	mock.locked += arg->len;
	buf = calloc(1, sizeof(*buf));
	buf->mem = (unsigned char *)arg->addr;
	buf->len = arg->len;
	buf->registered = true;
	buf->readonly = arg->flags & NPULINK_BUF_READONLY;
	arg->out_id = mock_id(file, MOCK_BUF, buf);
	return 0;
}

static inline int mock_buf_alloc(struct mock_file *file, struct npulink_buf_alloc *arg)
{
	size_t len = (arg->len + 4095) & ~4095ULL;
	struct mock_buf *buf = calloc(1, sizeof(*buf));

	if (!file->alloc)
		file->alloc = mmap(NULL, 1UL << 30, PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_NORESERVE, file->fd, MOCK_ALLOC_AT);
	buf->mem = file->alloc + file->alloc_used;
	buf->len = len;
	arg->out_mmap_offset = MOCK_ALLOC_AT + file->alloc_used;
	file->alloc_used += len;
	arg->out_id = mock_id(file, MOCK_BUF, buf);
	return 0;
}

static inline int mock_ring_setup(struct mock_file *file, struct npulink_ring_setup *arg)
{
	size_t len = sizeof(struct npulink_ring) + arg->entries * sizeof(struct npulink_result);

	if (file->ring)
		return -EEXIST;
	len = (len + 4095) & ~4095UL;
	file->ring = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd,
			  NPULINK_MMAP_RING);
	file->ring->entries = arg->entries;
	file->ring_len = len;
	arg->out_len = len;
	return 0;
}

#endif /* MOCK_FILES_H */
