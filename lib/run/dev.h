/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * dev.h - an open device.
 */
#ifndef COLL_RUN_DEV_H
#define COLL_RUN_DEV_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <linux/npulink.h>
#include "run/drv.h"
#include "run/reg.h"

#define COLL_DEV_DIR	"/dev/npulink"
#define COLL_ARENA_DEFAULT	65536
#define COLL_ARENA_GRAIN	64

struct coll_config;
struct coll_request;
struct coll_tune;

/* A buffer for intermediate results, or for a copy of what cannot be pinned; then @map is its. */
struct coll_scratch {
	struct coll_scratch *next;
	uint32_t id;
	size_t len;
	uint64_t offset;
	void *map;
	bool device;	/* in the memory of the device */
};

/**
 * struct coll_dev - an open file of a device, shared by communicators
 * @lock: protects all of it, and all that belongs to its communicators
 * @refs: communicators
 * @marker: a byte that is 1 here and 0 in a forked child
 * @process: that opened it
 * @arena: shared memory, buffer 0
 * @arena_used: one bit per grain
 * @idle_max: how much memory may stay pinned that no operation uses
 * @ring: completion ring, NULL until the first request
 * @chunks: all requests ever made, so that a cookie can be looked up
 * @free: requests not in use
 * @inflight: requests in flight, oldest first
 * @kept: bytes of the arena that calls have which may come again
 * @on_board: requests that are on the boards of its communicators
 * @polled: somebody waits for results of requests by poll()
 * @copied: operations whose payload went through the arena
 */
struct coll_dev {
	struct coll_drv drv;
	pthread_mutex_t lock;
	unsigned int refs;
	unsigned char *marker;
	pid_t process;
	struct npulink_device_info info;
	unsigned char *arena;
	size_t arena_size;
	uint64_t *arena_used;
	struct coll_regs regs;
	struct coll_scratch *scratch;
	uint64_t scratch_bytes, scratch_idle;
	uint64_t idle_max;
	struct npulink_ring *ring;
	size_t ring_len;
	unsigned int ring_entries;
	struct coll_request **chunks;
	unsigned int nchunks;
	struct coll_request *free;
	struct coll_request *inflight_first, *inflight_last;
	unsigned int inflight;
	size_t kept;
	_Atomic unsigned int on_board;
	_Atomic bool polled;
	_Atomic uint64_t copied;
};

int coll_dev_open(struct coll_dev **dev, const struct coll_config *config, unsigned int index,
		  char *text, size_t size);
void coll_dev_free(struct coll_dev *dev);
void coll_dev_put(struct coll_dev *dev);
void coll_dev_check(struct coll_dev *dev);
/* What the choice of algorithms has to know of the device. */
void coll_dev_costs(const struct npulink_device_info *info, struct coll_tune *tune,
		    uint32_t nranks);
void coll_dev_limit(struct coll_dev *dev, unsigned int nranks);
bool coll_dev_is_child(const struct coll_dev *dev);
ptrdiff_t coll_arena_get(struct coll_dev *dev, size_t len);
void coll_arena_put(struct coll_dev *dev, size_t off, size_t len);
int coll_scratch_get(struct coll_dev *dev, size_t len, bool device, struct coll_scratch **scratch);

/* Is one of two buffers, each of which may be NULL, for devices only? Without the lock. */
static inline bool coll_mem_on_device(struct coll_dev *dev, const void *send, const void *recv)
{
	return atomic_load_explicit(&dev->regs.ndevice, memory_order_relaxed) &&
	       coll_reg_is_device(dev, send, recv);
}

int coll_scratch_map(struct coll_dev *dev, struct coll_scratch *scratch);
void coll_scratch_put(struct coll_dev *dev, struct coll_scratch *scratch);
bool coll_scratch_trim(struct coll_dev *dev);

#endif /* COLL_RUN_DEV_H */
