/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * mock.h - a device for tests of libcoll that need no module: open() and ioctl() of
 * the test program.
 *
 * All ranks live in one process. An operation runs when the last of its ranks has
 * posted it, by plain loops over all their steps; a file is a memfd, so the
 * library's mappings are real. Any ioctl can be made to fail, or a waiting one to be
 * interrupted, a number of times.
 */
#ifndef MOCK_H
#define MOCK_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <linux/npulink.h>
#include <npulink/verify.h>
#include "mock_files.h"
#include "mock_ranks.h"

/* ---- objects */

static inline int mock_destroy(struct mock_file *file, struct npulink_destroy *arg)
{
	void *object = arg->id && arg->id < MOCK_IDS ? file->id[arg->id].object : NULL;

	if (!object)
		return -ENOENT;
	switch (file->id[arg->id].type) {
	case MOCK_BUF: {
		struct mock_buf *buf = object;

		if (buf->registered)
			mock.locked -= buf->len;
		break;	/* leaked if in use */
	}
	case MOCK_PLAN: {
		struct mock_plan *plan = object;

		if (plan->inflight)
			return -EBUSY;
		plan->rank->plans--;
		free(plan->slots);
		free(plan->steps);
		break;
	}
	case MOCK_RANK: {
		struct mock_rank *rank = object;

		if (rank->plans)
			return -EBUSY;
		rank->comm->ranks[rank->rank] = NULL;
		rank->comm->joined--;
		break;
	}
	}
	file->id[arg->id].type = 0;
	file->id[arg->id].object = NULL;
	free(object);
	return 0;
}

/* ---- operations */

static inline int mock_bind(struct mock_file *file, struct mock_op *op,
			    const struct npulink_post *post)
{
	for (uint32_t i = 0; i < post->nbinds; i++) {
		const struct npulink_bind *b = &post->inline_binds[i];
		const struct npulink_slot *s = &op->plan->slots[i];
		struct mock_buf *buf = NULL;

		if (!s->access)
			continue;
		if (b->buf_id) {
			buf = mock_object(file, b->buf_id, MOCK_BUF);
			if (!buf)
				return -ENOENT;
			if (b->len < s->min_len || b->off + b->len > buf->len)
				return -ERANGE;
			if (buf->stale)
				return -ESTALE;
			if (buf->readonly && s->access & NPULINK_SLOT_WRITE)
				return -EACCES;
			op->slot[i] = buf->mem + b->off;
			op->buf[i] = buf;
		} else {
			op->slot[i] = file->arena + b->off;
		}
	}
	return 0;
}

static inline int mock_post(struct mock_file *file, struct npulink_post *post, bool held,
			    struct mock_op **opp)
{
	struct mock_plan *plan = mock_object(file, post->plan_id, MOCK_PLAN);
	struct mock_op *op = NULL;
	int rc;

	if (!plan)
		return -ENOENT;
	if (post->size != sizeof(*post) || post->nbinds != plan->nslots || post->in_fence != -1 ||
	    post->out_fence != -1 || (post->nbinds <= 3 && post->binds))
		return -EINVAL;
	if (plan->rank->comm->cause)
		return plan->rank->comm->status;
	if (!held && !file->ring)
		return -ENOTCONN;
	if (file->inflight >= mock.max_inflight)
		return -EBUSY;
	if (!held && file->inflight + file->ring->head - file->ring->tail >= file->ring->entries)
		return -EBUSY;
	for (int i = 0; i < MOCK_OPS && !op; i++)
		if (!mock.ops[i].live)
			op = &mock.ops[i];
	if (!op)
		return -EBUSY;
	*op = (struct mock_op) { .file = file, .plan = plan, .cookie = post->cookie, .held = held };
	rc = mock_bind(file, op, post);
	if (rc)
		return rc;
	op->live = true;
	for (uint32_t i = 0; i < plan->nslots; i++)
		if (op->buf[i])
			op->buf[i]->users++;
	op->seq = ++file->seq;
	post->out_seq = op->seq;
	mock.deadline_ns = post->deadline_ns;
	mock.slow_ns = post->slow_ns;
	op->number = plan->p2p ? plan->rank->p2p[plan->p2p_send][plan->peer]++ : plan->rank->next++;
	plan->inflight++;
	file->inflight++;
	mock_try(op);
	*opp = op;
	return 0;
}

static inline void mock_result(struct mock_op *op, struct npulink_result *result)
{
	*result = (struct npulink_result) {
		.seq = op->seq, .cookie = op->cookie, .status = op->status,
	};
	if (op->held) {
		op->live = false;
		op->file->inflight--;
	}
}

/* Waits until it is done, or until the time. */
/* -ENOENT: somebody else had the result, and the place may be another operation's by now. */
static inline int mock_wait_op(struct mock_op *op, const struct mock_file *file, uint64_t seq,
			       uint64_t until_ns)
{
	struct timespec ts;

	while (op->file == file && op->seq == seq && op->live && !op->done) {
		if (!until_ns)
			return -ETIME;
		if (until_ns == ~0ULL) {
			pthread_cond_wait(&mock.cond, &mock.lock);
			continue;
		}
		clock_gettime(CLOCK_MONOTONIC, &ts);
		if (ts.tv_sec * 1000000000ULL + ts.tv_nsec >= until_ns)
			return -ETIME;
		pthread_mutex_unlock(&mock.lock);
		usleep(1000);
		pthread_mutex_lock(&mock.lock);
	}
	return op->file == file && op->seq == seq && op->live ? 0 : -ENOENT;
}

static inline int mock_wait(struct mock_file *file, struct npulink_wait *arg)
{
	struct mock_op *op = NULL;
	int rc;

	for (int i = 0; i < MOCK_OPS; i++)
		if (mock.ops[i].live && mock.ops[i].file == file && mock.ops[i].seq == arg->seq)
			op = &mock.ops[i];
	if (!op)
		return -ENOENT;
	rc = mock_wait_op(op, file, arg->seq, arg->wait_until_ns);
	if (!rc)
		mock_result(op, &arg->out_result);
	return rc;
}

static inline int mock_post_ioctl(struct mock_file *file, struct npulink_post *post,
				  int interrupt)
{
	bool wait = post->flags & NPULINK_POST_WAIT;
	struct mock_op *op;
	int rc = mock_post(file, post, post->flags & (NPULINK_POST_WAIT | NPULINK_POST_HELD), &op);

	if (rc || !wait)
		return rc;
	if (interrupt)
		return interrupt;
	rc = mock_wait_op(op, file, post->out_seq, post->wait_until_ns);
	if (!rc)
		mock_result(op, &post->out_result);
	return rc;
}

static inline int mock_batch_ioctl(struct mock_file *file, struct npulink_post_batch *arg,
				   int interrupt)
{
	struct npulink_post *posts = (void *)arg->posts;
	bool wait = arg->flags & NPULINK_POST_WAIT;
	struct mock_op *ops[NPULINK_MAX_BATCH];
	int rc = 0;
	uint32_t i;

	for (i = 0; i < arg->nposts; i++) {
		/* Scripted refusals of single posts count as well. */
		if (mock.fail[31].times && !mock.fail[31].skip--) {
			mock.fail[31].times--;
			rc = mock.fail[31].rc;
			break;
		}
		rc = mock_post(file, &posts[i], wait || posts[i].flags & NPULINK_POST_HELD,
			       &ops[i]);
		if (rc)
			break;
	}
	arg->out_posted = i;
	if (rc || !wait)
		return rc;
	if (interrupt)
		return interrupt;
	for (i = 0; i < arg->nposts; i++) {
		mock_wait_op(ops[i], file, posts[i].out_seq, ~0ULL);
		mock_result(ops[i], &posts[i].out_result);
	}
	return 0;
}

static inline int mock_dispatch(struct mock_file *file, unsigned long cmd, void *arg, int interrupt)
{
	if (file->pid != getpid() && cmd != NPULINK_WAIT && cmd != NPULINK_DEVICE_INFO)
		return -EPERM;
	switch (cmd) {
	case NPULINK_DEVICE_INFO:
		*(struct npulink_device_info *)arg = (struct npulink_device_info) {
			.size = sizeof(struct npulink_device_info),
			.out_abi_version = mock.abi,
			.out_max_steps = NPULINK_MAX_STEPS,
			.out_max_ranks = 64,
			.out_max_channels = 64,
			.out_max_inflight = mock.max_inflight,
			.out_max_arena = 1 << 20,
			.out_dtypes = (1 << NPULINK_DTYPES) - 1,
			.out_redops = (1 << NPULINK_REDOPS) - 1,
			.out_name = "npu0",
			.out_backend = "mock",
			.out_version = "0.0.1",
		};
		return 0;
	case NPULINK_BUF_REGISTER:
		return mock_buf_register(file, arg);
	case NPULINK_BUF_ALLOC:
		return mock_buf_alloc(file, arg);
	case NPULINK_COMM_CREATE:
		return mock_comm_create(file, arg);
	case NPULINK_COMM_ABORT:
		return mock_abort(file, arg);
	case NPULINK_COMM_SHRINK:
		return mock_comm_shrink(file, arg);
	case NPULINK_COMM_STATUS:
		return mock_comm_status(file, arg);
	case NPULINK_PLAN_CREATE:
		return mock_plan_create(file, arg);
	case NPULINK_POST:
		return mock_post_ioctl(file, arg, interrupt);
	case NPULINK_POST_BATCH:
		return mock_batch_ioctl(file, arg, interrupt);
	case NPULINK_WAIT:
		return mock_wait(file, arg);
	case NPULINK_RING_SETUP:
		return mock_ring_setup(file, arg);
	case NPULINK_DESTROY:
		return mock_destroy(file, arg);
	default:
		return -ENOTTY;
	}
}

/* ---- what the library calls */

int open(const char *path, int flags, ...)
{
	struct mock_file *file = NULL;
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
	va_end(ap);
	if (strncmp(path, "/dev/npulink/npu", 16))
		return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
	if (mock.fail_open) {
		errno = mock.fail_open;
		return -1;
	}
	pthread_mutex_lock(&mock.lock);
	for (int i = 0; i < MOCK_FILES && !file; i++)
		if (!mock.files[i].pid)
			file = &mock.files[i];
	memset(file, 0, sizeof(*file));
	file->fd = memfd_create("npu", MFD_CLOEXEC);
	file->pid = getpid();
	if (ftruncate(file->fd, MOCK_FILE_LEN))
		abort();
	file->arena = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
	pthread_mutex_unlock(&mock.lock);
	return file->fd;
}

/* All files are of one device. */
int fstat(int fd, struct stat *st)
{
	if (syscall(SYS_fstat, fd, st))
		return -1;
	for (int i = 0; i < MOCK_FILES && S_ISREG(st->st_mode); i++)
		if (mock.files[i].pid && mock.files[i].fd == fd)
			st->st_ino = 4711;
	return 0;
}

/* What the kernel does when a file goes. */
int close(int fd)
{
	pthread_mutex_lock(&mock.lock);
	for (int i = 0; i < MOCK_FILES; i++) {
		struct mock_file *file = &mock.files[i];

		if (!file->pid || file->fd != fd || file->pid != getpid())
			continue;
		for (uint32_t type = MOCK_PLAN; type; type--) {
			for (uint32_t id = 1; id < MOCK_IDS; id++) {
				struct npulink_destroy arg = { .id = id };

				if (file->id[id].type == (int)type)
					mock_destroy(file, &arg);
			}
		}
		munmap(file->arena, 1 << 20);
		if (file->alloc)
			munmap(file->alloc, 1UL << 30);
		if (file->ring)
			munmap(file->ring, file->ring_len);
		memset(file, 0, sizeof(*file));
	}
	pthread_mutex_unlock(&mock.lock);
	return syscall(SYS_close, fd);
}

int ioctl(int fd, unsigned long cmd, ...)
{
	unsigned int nr = _IOC_NR(cmd);
	struct mock_file *file = NULL;
	int rc = 0, interrupt = 0;
	va_list ap;
	void *arg;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	/* Other libraries are in the program, too. */
	if (_IOC_TYPE(cmd) != NPULINK_TYPE)
		return syscall(SYS_ioctl, fd, cmd, arg);
	pthread_mutex_lock(&mock.lock);
	mock.calls[nr]++;
	for (int i = 0; i < MOCK_FILES; i++)
		if (mock.files[i].pid && mock.files[i].fd == fd)
			file = &mock.files[i];
	if (mock.fail[nr].times && (!mock.fail[nr].skip || !mock.fail[nr].skip--)) {
		mock.fail[nr].times--;
		if (mock.fail[nr].after)
			interrupt = mock.fail[nr].rc;
		else
			rc = mock.fail[nr].rc;
	}
	if (!rc)
		rc = file ? mock_dispatch(file, cmd, arg, interrupt) :
		     syscall(SYS_ioctl, fd, cmd, arg) < 0 ? -errno : 0;
	pthread_mutex_unlock(&mock.lock);
	errno = -rc;
	return rc ? -1 : 0;
}

#endif /* MOCK_H */
