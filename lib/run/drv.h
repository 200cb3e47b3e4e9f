/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * drv.h - the ioctls.
 */
#ifndef COLL_RUN_DRV_H
#define COLL_RUN_DRV_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <linux/npulink.h>
#include "plan/plan.h"

/**
 * struct coll_drv - the open file
 * @fd: descriptor, or -1
 * @node: inode of what was opened
 * @node_dev: where that is
 * @calls: ioctls made
 */
struct coll_drv {
	int fd;
	ino_t node;
	dev_t node_dev;
	_Atomic uint64_t calls;
};

int coll_drv_open(struct coll_drv *drv, const char *path);
bool coll_drv_is_ours(const struct coll_drv *drv, unsigned char *arena, size_t len,
		      ptrdiff_t mark);
void coll_drv_close(struct coll_drv *drv);
int coll_drv_device(const char *name, unsigned int index, char *path, size_t size);
int coll_drv_map(struct coll_drv *drv, uint64_t offset, size_t len, void **addr);
int coll_drv_map_read(struct coll_drv *drv, uint64_t offset, size_t len, void **addr);
void coll_drv_unmap(void *addr, size_t len);
int coll_drv_marker(unsigned char **marker);
void coll_drv_marker_free(unsigned char *marker);
int coll_drv_info(struct coll_drv *drv, struct npulink_device_info *info);
int coll_drv_buf_register(struct coll_drv *drv, uintptr_t addr, size_t len, bool readonly,
			  uint32_t *id);
int coll_drv_buf_alloc(struct coll_drv *drv, uint32_t flags, size_t len, uint32_t *id,
		       uint64_t *offset);
int coll_drv_buf_import(struct coll_drv *drv, uint32_t flags, int fd, uint32_t *id, size_t *len);
int coll_drv_map_dmabuf(int fd, size_t len, bool readonly, void **addr);
int coll_drv_reserve(size_t len, void **addr);
int coll_drv_comm_create(struct coll_drv *drv, const uint8_t *secret, uint32_t rank,
			 uint32_t nranks, uint32_t flags, uint32_t peer_timeout_ms, uint32_t *id);
int coll_drv_port(struct coll_drv *drv, uint32_t index, struct npulink_port_info *port);
int coll_drv_comm_peers(struct coll_drv *drv, uint32_t id, const struct npulink_peer *peers,
			uint32_t n, const struct npulink_addr *more, uint32_t nmore);
int coll_drv_comm_abort(struct coll_drv *drv, uint32_t id, uint32_t code);
int coll_drv_comm_shrink(struct coll_drv *drv, uint32_t id, uint32_t flags, uint32_t *map,
			 struct npulink_comm_shrink *out);
int coll_drv_comm_status(struct coll_drv *drv, uint32_t id, struct npulink_comm_status *st);
int coll_drv_plan_create(struct coll_drv *drv, uint32_t comm_id, const struct coll_plan *plan,
			 struct npulink_plan_create *out);
int coll_drv_post(struct coll_drv *drv, struct npulink_post *post);
int coll_drv_post_batch(struct coll_drv *drv, struct npulink_post *posts, uint32_t n,
			uint32_t flags, uint32_t *posted);
int coll_drv_wait(struct coll_drv *drv, uint64_t seq, uint64_t until_ns,
		  struct npulink_result *result);
int coll_drv_sleep(struct coll_drv *drv, const uint32_t *word, uint32_t value, uint64_t ns);
uint32_t coll_drv_wake(struct coll_drv *drv, const uint32_t *word, uint32_t n);
int coll_drv_ring_setup(struct coll_drv *drv, uint32_t entries, size_t *len);
int coll_drv_destroy(struct coll_drv *drv, uint32_t id);

#endif /* COLL_RUN_DRV_H */
