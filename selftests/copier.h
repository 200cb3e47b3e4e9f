/* SPDX-License-Identifier: GPL-2.0 */
/*
 * copier.h - a communicator of one rank that copies from one buffer to another, so that what a
 * device reads and writes can be looked at.
 */
#ifndef SELFTESTS_COPIER_H
#define SELFTESTS_COPIER_H

#include "raw.h"
#include "harness.h"

#define PAGE	4096UL
#define LEN	(8 * PAGE)

/* Kernel-wide sum of what is pinned for this process, in pages. */
static inline long pinned(void)
{
	return raw_pinned_kb(getpid()) / 4;
}

FIXTURE(bufs) {
	int fd, comm, plan;
	int dst;
	char *out;
};

static inline int open_copier(struct _test_data_bufs *self, size_t len)
{
	struct npulink_slot slots[2] = {
		{ .min_len = len, .access = NPULINK_SLOT_READ },
		{ .min_len = len, .access = NPULINK_SLOT_WRITE },
	};
	struct npulink_step step = raw_step(NPULINK_STEP_COPY, len);
	uint8_t secret[16];

	self->fd = raw_open(0);
	if (self->fd < 0)
		return -errno;
	raw_secret(secret);
	self->comm = raw_comm(self->fd, secret, 0, 1);
	if (self->comm < 0)
		return self->comm;
	step.dst_slot = 1;
	self->plan = raw_plan(self->fd, self->comm, slots, 2, &step, 1);
	if (self->plan < 0)
		return self->plan;
	self->out = raw_anon(len);
	self->dst = raw_register(self->fd, self->out, len, 0);
	return self->dst < 0 ? self->dst : 0;
}

FIXTURE_SETUP(bufs)
{
	ASSERT_EQ(0, open_copier(self, LEN));
}

FIXTURE_TEARDOWN(bufs)
{
	raw_knobs_reset(1);
	close(self->fd);
}

/* Copy from one buffer to another: 0 or -errno, also of the operation. */
static inline int copy_between(struct _test_data_bufs *self, int src, uint64_t src_off, int dst,
			       uint64_t dst_off)
{
	struct npulink_post post = raw_post_cmd(self->plan, NPULINK_POST_WAIT);
	int rc;

	raw_bind(&post, src, src_off, LEN);
	raw_bind(&post, dst, dst_off, LEN);
	rc = raw_ioctl(self->fd, NPULINK_POST, &post);
	return rc ? rc : post.out_result.status;
}

static inline int copy_out(struct _test_data_bufs *self, int src)
{
	memset(self->out, 0xee, LEN);
	return copy_between(self, src, 0, self->dst, 0);
}

static inline void pattern(char *p, size_t len, unsigned int seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		p[i] = i * 7 + seed + i / PAGE;
}

static inline size_t differs(const char *p, size_t len, unsigned int seed)
{
	size_t i, bad = 0;

	for (i = 0; i < len; i++)
		bad += p[i] != (char)(i * 7 + seed + i / PAGE);
	return bad;
}

static inline int memory_file(const char *name, unsigned int flags)
{
	int fd = memfd_create(name, MFD_CLOEXEC | flags);

	return fd < 0 || ftruncate(fd, flags & MFD_HUGETLB ? 2 << 20 : LEN) ? -1 : fd;
}

#endif /* SELFTESTS_COPIER_H */
