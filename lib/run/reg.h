/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * reg.h - buffers that the kernel knows.
 */
#ifndef COLL_RUN_REG_H
#define COLL_RUN_REG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct coll_dev;

/**
 * struct coll_reg - a range of memory that is a buffer of the file
 * @start: first byte, page aligned
 * @end: byte after the last
 * @id: buffer id
 * @refs: operations that use it
 * @pins: ranges that coll_register() was called for and that lie in it: not to be dropped
 * @readonly: no step may write to it
 * @alloc: made by coll_mem_alloc() or coll_mem_import(): not to be dropped, either
 * @device: only devices are to touch it
 * @hidden: nor could a processor
 * @listed: in the index; if not, it goes with its last reference
 * @used: for LRU
 */
struct coll_reg {
	uintptr_t start, end;
	uint32_t id;
	uint32_t refs;
	uint32_t pins;
	bool readonly, alloc, device, hidden, listed;
	uint64_t used;
};

/* A range that coll_register() was called for, @calls times, pinned or not. */
struct coll_asked {
	uintptr_t start, end;
	unsigned int calls;
};

/**
 * struct coll_regs - the ranges of a file
 * @v: sorted, without overlaps
 * @asked: by start, then by end
 * @ndevice: those with &coll_reg.device; changed with the lock held, read without
 */
struct coll_regs {
	struct coll_reg **v;
	unsigned int n, cap;
	struct coll_asked *asked;
	unsigned int nasked, asked_cap;
	uint64_t clock, bytes;
	uint64_t hits, misses, stale;
	_Atomic unsigned int ndevice;
};

int coll_reg_get(struct coll_dev *dev, const void *addr, size_t len, bool write,
		 struct coll_reg **reg);
bool coll_reg_has(const struct coll_dev *dev, const void *addr, size_t len);
/* What a processor can do with memory. */
enum coll_touch { COLL_TOUCH_FREELY, COLL_TOUCH_SLOWLY, COLL_TOUCH_NEVER };

enum coll_touch coll_reg_touch(const struct coll_dev *dev, const void *addr);
bool coll_reg_is_device(struct coll_dev *dev, const void *send, const void *recv);
void coll_reg_put(struct coll_dev *dev, struct coll_reg *reg);
void coll_reg_stale(struct coll_dev *dev, struct coll_reg *reg);
bool coll_reg_evict(struct coll_dev *dev);
bool coll_reg_reclaim(struct coll_dev *dev, unsigned int *tries);
int coll_reg_list(struct coll_dev *dev, struct coll_reg *reg);
void coll_reg_clear(struct coll_dev *dev, uintptr_t start, uintptr_t end);
int coll_reg_free(struct coll_dev *dev, void *addr);
void coll_reg_free_all(struct coll_dev *dev, bool unmap);

#endif /* COLL_RUN_REG_H */
