/* SPDX-License-Identifier: GPL-2.0 */
/*
 * raw.h - the ioctl interface without libcoll, for tests of the kernel itself.
 */
#ifndef SELFTESTS_RAW_H
#define SELFTESTS_RAW_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <linux/npulink.h>

#define RAW_FOREVER	(~0ULL)

static inline int raw_open(unsigned int n)
{
	char path[32];

	snprintf(path, sizeof(path), "/dev/npulink/npu%u", n);
	return open(path, O_RDWR | O_CLOEXEC);
}

/* 0 or -errno, as the library does it. */
static inline int raw_ioctl(int fd, unsigned long cmd, void *arg)
{
	return ioctl(fd, cmd, arg) < 0 ? -errno : 0;
}

static inline void raw_secret(uint8_t secret[16])
{
	static uint32_t serial;

	memset(secret, 0, 16);
	serial++;
	memcpy(secret, &serial, sizeof(serial));
	*(uint32_t *)(secret + 4) = getpid();
}

static inline int raw_comm(int fd, const uint8_t secret[16], uint32_t rank, uint32_t nranks)
{
	struct npulink_comm_create cmd = {
		.size = sizeof(cmd), .rank = rank, .nranks = nranks,
	};
	int rc;

	memcpy(cmd.secret, secret, 16);
	rc = raw_ioctl(fd, NPULINK_COMM_CREATE, &cmd);
	return rc ? rc : (int)cmd.out_id;
}

static inline int raw_register(int fd, void *addr, size_t len, uint32_t flags)
{
	struct npulink_buf_register cmd = {
		.size = sizeof(cmd), .flags = flags, .addr = (uintptr_t)addr, .len = len,
	};
	int rc = raw_ioctl(fd, NPULINK_BUF_REGISTER, &cmd);

	return rc ? rc : (int)cmd.out_id;
}

static inline int raw_destroy(int fd, uint32_t id)
{
	struct npulink_destroy cmd = { .size = sizeof(cmd), .id = id };

	return raw_ioctl(fd, NPULINK_DESTROY, &cmd);
}

static inline struct npulink_plan_create raw_plan_cmd(uint32_t comm, const struct npulink_slot *slots,
						      uint32_t nslots,
						      const struct npulink_step *steps,
						      uint32_t nsteps)
{
	return (struct npulink_plan_create) {
		.size = sizeof(struct npulink_plan_create), .comm_id = comm,
		.nslots = nslots, .slots = (uintptr_t)slots,
		.nsteps = nsteps, .steps = (uintptr_t)steps,
		.call = { .collective = NPULINK_COLL_ALLREDUCE, .dtype = NPULINK_INT32 },
	};
}

static inline int raw_plan(int fd, uint32_t comm, const struct npulink_slot *slots,
			   uint32_t nslots, const struct npulink_step *steps, uint32_t nsteps)
{
	struct npulink_plan_create cmd = raw_plan_cmd(comm, slots, nslots, steps, nsteps);
	int rc = raw_ioctl(fd, NPULINK_PLAN_CREATE, &cmd);

	return rc ? rc : (int)cmd.out_id;
}

static inline struct npulink_post raw_post_cmd(uint32_t plan, uint32_t flags)
{
	return (struct npulink_post) {
		.size = sizeof(struct npulink_post), .flags = flags, .plan_id = plan,
		.wait_until_ns = RAW_FOREVER, .in_fence = -1, .out_fence = -1,
	};
}

static inline void raw_bind(struct npulink_post *post, uint32_t buf, uint64_t off, uint64_t len)
{
	post->inline_binds[post->nbinds++] = (struct npulink_bind) {
		.buf_id = buf, .off = off, .len = len,
	};
}

static inline int raw_wait(int fd, uint64_t seq, struct npulink_result *result)
{
	struct npulink_wait cmd = { .size = sizeof(cmd), .seq = seq, .wait_until_ns = RAW_FOREVER };
	int rc = raw_ioctl(fd, NPULINK_WAIT, &cmd);

	*result = cmd.out_result;
	return rc;
}

/* A step with what tests always want. */
static inline struct npulink_step raw_step(uint8_t op, uint64_t len)
{
	return (struct npulink_step) {
		.op = op, .recv_peer = NPULINK_NO_PEER, .send_peer = NPULINK_NO_PEER, .len = len,
		.dtype = op & NPULINK_STEP_REDUCE ? NPULINK_INT32 : 0,
	};
}

#endif /* SELFTESTS_RAW_H */
