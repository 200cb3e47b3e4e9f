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
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <linux/npulink.h>

#define RAW_FOREVER	(~0ULL)

#ifndef ARRAY_SIZE
#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
#endif

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

/* @ms: how long a machine that does not answer is waited for. */
static inline int raw_comm_timeout(int fd, const uint8_t secret[16], uint32_t rank,
				   uint32_t nranks, uint32_t ms)
{
	struct npulink_comm_create cmd = {
		.size = sizeof(cmd), .rank = rank, .nranks = nranks, .peer_timeout_ms = ms,
	};
	int rc;

	memcpy(cmd.secret, secret, 16);
	rc = raw_ioctl(fd, NPULINK_COMM_CREATE, &cmd);
	return rc ? rc : (int)cmd.out_id;
}

static inline int raw_comm(int fd, const uint8_t secret[16], uint32_t rank, uint32_t nranks)
{
	return raw_comm_timeout(fd, secret, rank, nranks, 0);
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

static inline struct npulink_plan_create
raw_plan_cmd(uint32_t comm, const struct npulink_slot *slots, uint32_t nslots,
	     const struct npulink_step *steps, uint32_t nsteps)
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

static inline int raw_status(int fd, uint32_t comm, struct npulink_comm_status *st)
{
	*st = (struct npulink_comm_status) { .size = sizeof(*st), .comm_id = comm };
	return raw_ioctl(fd, NPULINK_COMM_STATUS, st);
}

static inline int raw_abort(int fd, uint32_t comm, uint32_t code)
{
	struct npulink_comm_abort cmd = { .size = sizeof(cmd), .comm_id = comm, .code = code };

	return raw_ioctl(fd, NPULINK_COMM_ABORT, &cmd);
}

static inline int raw_info(int fd, struct npulink_device_info *info)
{
	*info = (struct npulink_device_info) { .size = sizeof(*info) };
	return raw_ioctl(fd, NPULINK_DEVICE_INFO, info);
}

static inline int raw_buf_alloc(int fd, size_t len, uint64_t *mmap_offset)
{
	struct npulink_buf_alloc cmd = { .size = sizeof(cmd), .len = len };
	int rc = raw_ioctl(fd, NPULINK_BUF_ALLOC, &cmd);

	*mmap_offset = cmd.out_mmap_offset;
	return rc ? rc : (int)cmd.out_id;
}

static inline void *raw_anon(size_t len)
{
	return mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static inline uint64_t raw_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

static inline void raw_sleep_ms(unsigned int ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000L };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

/* Poll for something that workers do in the background. */
#define RAW_EVENTUALLY(cond) ({ \
	unsigned int tries_ = 1000; \
	while (!(cond) && --tries_) \
		raw_sleep_ms(10); \
	tries_ != 0; \
})

/* ---- files of /proc, /sys and debugfs that hold one number or line */

static inline int raw_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int rc;

	if (fd < 0)
		return -errno;
	rc = write(fd, text, strlen(text)) < 0 ? -errno : 0;
	close(fd);
	return rc;
}

static inline long long raw_read(const char *path)
{
	char text[64] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (read(fd, text, sizeof(text) - 1) < 0)
		text[0] = 0;
	close(fd);
	return atoll(text);
}

/* Wait until a thread sleeps in an ioctl, and not for a moment only. */
static inline bool raw_comes_to_wait(pid_t tid)
{
	unsigned int tries, same = 0;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/syscall", tid);
	for (tries = 0; tries < 3000 && same < 5; tries++) {
		/* It says "running" of one that does not sleep. */
		same = raw_read(path) == SYS_ioctl ? same + 1 : 0;
		raw_sleep_ms(10);
	}
	return same == 5;
}

#define RAW_SOFT	"/sys/devices/npulink_soft"
#define RAW_KNOBS	"/sys/kernel/debug/npulink_soft"
#define RAW_INLINE_MAX	"/sys/module/npulink_soft/parameters/inline_max"
#define RAW_HOLD_OFF	4294967295ULL
#define RAW_IRQ_NS	100000

static inline int raw_knob(unsigned int n, const char *name, unsigned long long value)
{
	char path[128], text[32];

	snprintf(path, sizeof(path), RAW_KNOBS "/npu%u/%s", n, name);
	snprintf(text, sizeof(text), "%llu", value);
	return raw_write(path, text);
}

static inline long long raw_knob_get(unsigned int n, const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), RAW_KNOBS "/npu%u/%s", n, name);
	return raw_read(path);
}

/* A test that has failed half way must not disturb the next one. */
static inline void raw_knobs_reset(unsigned int ndev)
{
	static const char * const knobs[] = {
		"drop_irq", "dup_irq", "fail_post", "corrupt", "corrupt_link", "delay_ns", "skip",
	};
	unsigned int n, i;

	for (n = 0; n < ndev; n++) {
		for (i = 0; i < ARRAY_SIZE(knobs); i++)
			raw_knob(n, knobs[i], 0);
		raw_knob(n, "irq_ns", RAW_IRQ_NS);
		raw_knob(n, "delay", RAW_HOLD_OFF);
		raw_knob(n, "hold", RAW_HOLD_OFF);
	}
}

/* Pages of a process that are pinned, from /proc/PID/status; -1: no such process. */
static inline long raw_pinned_kb(pid_t pid)
{
	char path[64], line[256];
	long kb = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmPin: %ld", &kb) == 1)
			break;
	if (f)
		fclose(f);
	return kb;
}

/*
 * Pages that are pinned on this machine, by whomever. Those of a test before may still
 * be on their way back, so expect at most what was seen at the beginning.
 */
static inline long raw_pages_pinned(void)
{
	long acquired = 0, released = 0;
	char line[128];
	FILE *f;

	/* Processors count by themselves, and idle ones keep it for themselves. */
	raw_write("/proc/sys/vm/stat_refresh", "1");
	f = fopen("/proc/vmstat", "re");
	while (f && fgets(line, sizeof(line), f)) {
		sscanf(line, "nr_foll_pin_acquired %ld", &acquired);
		sscanf(line, "nr_foll_pin_released %ld", &released);
	}
	if (f)
		fclose(f);
	return acquired - released;
}

/* ---- helpers of tests that need several processes */

/* Exit status of a child; -signal if it was killed. */
static inline int raw_reap(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid)
		return -1000;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* In a child: give up, and say where. */
#define RAW_CHECK(cond) do { \
	if (!(cond)) { \
		fprintf(stderr, "# %s:%d: %s (errno %d)\n", __FILE__, __LINE__, #cond, errno); \
		_exit(1); \
	} \
} while (0)

#endif /* SELFTESTS_RAW_H */
