/* SPDX-License-Identifier: GPL-2.0 */
/*
 * worker.h - work that nobody waits for, so that the worker of its file does it, and how to find
 * those workers.
 */
#ifndef SELFTESTS_WORKER_H
#define SELFTESTS_WORKER_H

#include <dirent.h>
#include "raw.h"

#define ASIDE_BYTES	(1 << 20)	/* more than a task does on the spot */

/* A file with a communicator of one rank, which copies from one half of a buffer to the other. */
struct aside {
	int fd;
	struct npulink_post post;
};

static inline int aside_open(struct aside *a, unsigned int dev)
{
	struct npulink_slot slot = {
		.min_len = 2 * ASIDE_BYTES, .access = NPULINK_SLOT_READ | NPULINK_SLOT_WRITE,
	};
	struct npulink_step step = raw_step(NPULINK_STEP_COPY, ASIDE_BYTES);
	int comm, plan, buf;
	uint8_t secret[16];
	uint64_t off;

	step.dst_off = ASIDE_BYTES;
	raw_secret(secret);
	a->fd = raw_open(dev);
	if (a->fd < 0)
		return -errno;
	comm = raw_comm(a->fd, secret, 0, 1);
	if (comm < 0)
		return comm;
	plan = raw_plan(a->fd, comm, &slot, 1, &step, 1);
	if (plan < 0)
		return plan;
	buf = raw_buf_alloc(a->fd, 2 * ASIDE_BYTES, &off);
	a->post = raw_post_cmd(plan, NPULINK_POST_HELD);
	raw_bind(&a->post, buf, 0, 2 * ASIDE_BYTES);
	return buf < 0 ? buf : 0;
}

static inline int aside_post(struct aside *a)
{
	return raw_ioctl(a->fd, NPULINK_POST, &a->post);
}

/* Looks only: who waits would do it himself. */
static inline bool aside_done(struct aside *a)
{
	struct npulink_wait wait = { .size = sizeof(wait), .seq = a->post.out_seq };

	return !raw_ioctl(a->fd, NPULINK_WAIT, &wait);
}

/* How many workers the files of a process have; *@last: one of them, 0: there is none. */
static inline unsigned int workers_of(pid_t pid, pid_t *last)
{
	char want[32], path[64], comm[32];
	unsigned int n = 0;
	struct dirent *e;
	FILE *f;
	DIR *d;

	*last = 0;
	snprintf(want, sizeof(want), "npulink-%d\n", pid);
	d = opendir("/proc");
	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "/proc/%.20s/comm", e->d_name);
		f = fopen(path, "re");
		if (f && fgets(comm, sizeof(comm), f) && !strcmp(comm, want)) {
			*last = atoi(e->d_name);
			n++;
		}
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	return n;
}

/* The worker of a process's only file; 0: it has none now. */
static inline pid_t worker_of(pid_t pid)
{
	pid_t worker;

	workers_of(pid, &worker);
	return worker;
}

#endif /* SELFTESTS_WORKER_H */
