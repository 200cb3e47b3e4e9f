/* SPDX-License-Identifier: GPL-2.0 */
/*
 * failnth.h - every allocation and every copy from or to the user that a call makes is
 * failed in turn, the first, the second, .. until one run sees no failure. A call that
 * fails says ENOMEM or EFAULT, leaves nothing pinned, charged, counted or open behind, and
 * works when it is made again on the same objects. Prints the rows of ROBUSTNESS.md.
 */
#ifndef SELFTESTS_FAILNTH_H
#define SELFTESTS_FAILNTH_H

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <linux/capability.h>
#include "raw.h"

#define PAGE	4096UL
#define LEN	(20UL << 10)	/* more than is done inline: through interrupts */
#define SMALL	64UL
#define LIMIT	(8UL << 20)	/* locked memory of all tests */
#define FAULT	"/sys/kernel/debug/"
#define NTH_MAX	1000
#define NTH_CALM	2	/* runs without a failure, until that is believed to be all */

/* ---- the knob of the kernel */

static int nth_fd = -1;

static inline int nth_init(void)
{
	static const char * const kinds[] = { "failslab", "fail_page_alloc", "fail_usercopy" };
	char path[96];
	unsigned int i;

	for (i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), FAULT "%s/verbose", kinds[i]);
		if (raw_write(path, "0"))
			return -ENOENT;
		snprintf(path, sizeof(path), FAULT "%s/task-filter", kinds[i]);
		raw_write(path, "Y");
		snprintf(path, sizeof(path), FAULT "%s/probability", kinds[i]);
		raw_write(path, "0");
		snprintf(path, sizeof(path), FAULT "%s/ignore-gfp-wait", kinds[i]);
		raw_write(path, "N");
	}
	raw_write(FAULT "failslab/cache-filter", "N");
	raw_write(FAULT "fail_page_alloc/ignore-gfp-highmem", "N");
	raw_write(FAULT "fail_page_alloc/min-order", "0");
	nth_fd = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	return nth_fd < 0 ? -errno : 0;
}

static inline void nth_arm(unsigned int n)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%u", n);

	RAW_CHECK(pwrite(nth_fd, text, len, 0) == len);
}

/* True if the failure has happened. Reading the counter, and clearing it, may be what fails. */
static inline bool nth_disarm(void)
{
	char text[16] = "";
	bool hit;

	hit = pread(nth_fd, text, sizeof(text) - 1, 0) > 0 && text[0] == '0';
	while (pwrite(nth_fd, "0", 1, 0) != 1)
		hit = false;
	return hit;
}

/* ---- what calls need: two ranks of this process, each with a file */

struct scene {
	int fd[2], comm[2], buf[2], plan[2], tiny[2];
	char *mem[2];		/* LEN sent, LEN received */
	uint8_t secret[16];
	uint64_t off;
	void *map;
	size_t map_len;
	int id, efd, dmabuf, file;
	struct npulink_post post[2], many[3];
	struct npulink_comm_shrink shrunk;
};

enum level { NOTHING, FILES, COMMS, PLANS };

static const struct npulink_slot slots[2] = {
	{ .min_len = 1, .access = NPULINK_SLOT_READ },
	{ .min_len = 1, .access = NPULINK_SLOT_READ | NPULINK_SLOT_WRITE },
};

/* An exchange with reduction: send the own, reduce what comes into the result. */
static inline int plan_exchange(int fd, int comm, int rank, uint64_t len)
{
	struct npulink_slot s[2] = { slots[0], slots[1] };
	struct npulink_step steps[4] = {
		raw_step(NPULINK_STEP_SEND, len),
		raw_step(NPULINK_STEP_RECV | NPULINK_STEP_REDUCE, len),
		raw_step(0, 0),
		raw_step(NPULINK_STEP_REDUCE, len),
	};
	struct npulink_plan_create cmd;
	int rc;

	s[0].min_len = len;
	s[1].min_len = len;
	steps[0].send_peer = !rank;
	steps[1].recv_peer = !rank;
	steps[1].dst_slot = 1;
	steps[2].flags = NPULINK_STEP_F_DRAIN;
	/* dst = dst + own, once more */
	steps[3].src_slot = 1;
	steps[3].dst_slot = 1;
	steps[3].src2_slot = 0;
	steps[3].dep[0] = 1;
	cmd = raw_plan_cmd(comm, s, 2, steps, 4);
	cmd.call.count = len / 4;
	rc = raw_ioctl(fd, NPULINK_PLAN_CREATE, &cmd);
	return rc ? rc : (int)cmd.out_id;
}

static inline void scene_comms(struct scene *s, uint32_t flags)
{
	int r;

	for (r = 0; r < 2; r++) {
		struct npulink_comm_create cmd = {
			.size = sizeof(cmd), .flags = flags, .rank = r, .nranks = 2,
		};

		memcpy(cmd.secret, s->secret, sizeof(cmd.secret));
		RAW_CHECK(!raw_ioctl(s->fd[r], NPULINK_COMM_CREATE, &cmd));
		s->comm[r] = cmd.out_id;
	}
}

static inline void scene_plans(struct scene *s)
{
	int r;

	for (r = 0; r < 2; r++) {
		s->buf[r] = raw_register(s->fd[r], s->mem[r], 2 * LEN, 0);
		RAW_CHECK(s->buf[r] > 0);
		s->plan[r] = plan_exchange(s->fd[r], s->comm[r], r, LEN);
		s->tiny[r] = plan_exchange(s->fd[r], s->comm[r], r, SMALL);
		RAW_CHECK(s->plan[r] > 0 && s->tiny[r] > 0);
	}
}

static inline void scene_setup(struct scene *s, enum level level)
{
	int r;

	memset(s, 0, sizeof(*s));
	s->fd[0] = -1;
	s->fd[1] = -1;
	s->efd = -1;
	s->dmabuf = -1;
	s->file = -1;
	raw_secret(s->secret);
	for (r = 0; r < 2; r++) {
		s->mem[r] = raw_anon(2 * LEN);
		RAW_CHECK(s->mem[r] != MAP_FAILED);
		memset(s->mem[r], r + 1, LEN);
	}
	if (level < FILES)
		return;
	for (r = 0; r < 2; r++) {
		s->fd[r] = raw_open(r);
		RAW_CHECK(s->fd[r] >= 0);
	}
	if (level >= COMMS)
		scene_comms(s, 0);
	if (level >= PLANS)
		scene_plans(s);
}

static inline void scene_teardown(struct scene *s)
{
	int r;

	if (s->map)
		munmap(s->map, s->map_len);
	for (r = 0; r < 2; r++) {
		if (s->fd[r] >= 0)
			close(s->fd[r]);
		munmap(s->mem[r], 2 * LEN);
	}
	if (s->efd >= 0)
		close(s->efd);
	if (s->dmabuf >= 0)
		close(s->dmabuf);
	if (s->file >= 0)
		close(s->file);
}

static inline struct npulink_post exchange_cmd(const struct scene *s, int r, bool tiny,
					       uint32_t flags)
{
	struct npulink_post post = raw_post_cmd(tiny ? s->tiny[r] : s->plan[r], flags);

	raw_bind(&post, s->buf[r], 0, LEN);
	raw_bind(&post, s->buf[r], LEN, LEN);
	return post;
}

/* Both ranks have posted (or the other one has, and this one now): is the sum right? */
static inline void check_sum(const struct scene *s, int r, bool tiny)
{
	const uint8_t *got = (const uint8_t *)s->mem[r] + LEN;
	size_t i, n = tiny ? SMALL : LEN;

	for (i = 0; i < n; i++)
		RAW_CHECK(got[i] == 3 + r + 1);
}

static inline void post_peer(struct scene *s, bool tiny)
{
	s->post[1] = exchange_cmd(s, 1, tiny, NPULINK_POST_HELD);
	RAW_CHECK(!raw_ioctl(s->fd[1], NPULINK_POST, &s->post[1]));
}

static inline void wait_peer(struct scene *s, bool tiny)
{
	struct npulink_result res;

	RAW_CHECK(!raw_wait(s->fd[1], s->post[1].out_seq, &res) && !res.status);
	check_sum(s, 1, tiny);
}

/* ---- what calls of several programs begin or end with */

static inline int map(struct scene *s, size_t len, uint64_t off)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd[0], off);

	if (p == MAP_FAILED)
		return -errno;
	s->map = p;
	s->map_len = len;
	return 0;
}

static inline void prepare_ring(struct scene *s)
{
	s->efd = eventfd(0, EFD_CLOEXEC);
}

static inline int run_ring(struct scene *s)
{
	struct npulink_ring_setup cmd = {
		.size = sizeof(cmd), .entries = 1024, .eventfd = s->efd,
	};
	int rc = raw_ioctl(s->fd[0], NPULINK_RING_SETUP, &cmd);

	s->off = cmd.out_len;
	return rc;
}

static inline void prepare_mmap_ring(struct scene *s)
{
	prepare_ring(s);
	RAW_CHECK(!run_ring(s));
}

static inline int run_mmap_ring(struct scene *s)
{
	return map(s, s->off, NPULINK_MMAP_RING);
}

/* The plan works, and so does the peer's, which was made before or after. */
static inline void check_plan(struct scene *s)
{
	struct npulink_result res;
	int r;

	for (r = 0; r < 2; r++) {
		s->buf[r] = raw_register(s->fd[r], s->mem[r], 2 * LEN, 0);
		RAW_CHECK(s->buf[r] > 0);
		if (!s->plan[r])
			s->plan[r] = plan_exchange(s->fd[r], s->comm[r], r, LEN);
		RAW_CHECK(s->plan[r] > 0);
		s->post[r] = exchange_cmd(s, r, false, NPULINK_POST_HELD);
		RAW_CHECK(!raw_ioctl(s->fd[r], NPULINK_POST, &s->post[r]));
	}
	for (r = 0; r < 2; r++) {
		RAW_CHECK(!raw_wait(s->fd[r], s->post[r].out_seq, &res) && !res.status);
		check_sum(s, r, false);
	}
}

/* ---- a call: prepare, run (0 or -errno), check */

struct call {
	const char *name;
	unsigned long cmd;	/* 0: no ioctl */
	enum level level;
	void (*prepare)(struct scene *s);
	int (*run)(struct scene *s);
	void (*check)(struct scene *s);
};

/* ---- the sweep */

static inline int open_files(void)
{
	int fd, n = 0;

	for (fd = 0; fd < 64; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Locked memory and objects count for this process, although it is root's. */
static inline void drop_privileges(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];
	struct rlimit limit = { LIMIT, LIMIT };

	RAW_CHECK(!syscall(SYS_capget, &head, data));
	data[0].effective &= ~(1U << CAP_IPC_LOCK | 1U << CAP_SYS_RESOURCE);
	RAW_CHECK(!syscall(SYS_capset, &head, data));
	RAW_CHECK(!setrlimit(RLIMIT_MEMLOCK, &limit));
}

/* All of the limit can be had: nothing is charged any more. */
static inline bool all_uncharged(void)
{
	int fd = raw_open(0);
	uint64_t off;
	int id = raw_buf_alloc(fd, LIMIT, &off);

	close(fd);
	return id > 0;
}

#define USER_LIMIT	"/sys/module/npulink/parameters/max_user_objects"

/*
 * A user who has a file, and may have two objects, can open another one: nothing else counts. With
 * the last file, what a user has is forgotten, and what was not given back as well.
 */
static inline bool none_counted(void)
{
	char text[24];
	int fd;

	snprintf(text, sizeof(text), "%lld", (long long)raw_read(USER_LIMIT));
	RAW_CHECK(!raw_write(USER_LIMIT, "2"));
	fd = raw_open(0);
	if (fd >= 0)
		close(fd);
	RAW_CHECK(!raw_write(USER_LIMIT, text));
	return fd >= 0;
}

static inline void sweep(const struct call *call)
{
	unsigned int nth, last = 0, again = 0, hits = 0, failed = 0, other = 0;
	int files = open_files(), rc;
	struct scene s;
	bool hit;

	/*
	 * Two runs do not make the same number of allocations, and what comes last, an answer
	 * that cannot be written, is the most telling: the end is gone over once more.
	 */
	for (nth = 1; nth < NTH_MAX; nth++) {
		scene_setup(&s, call->level);
		if (call->prepare)
			call->prepare(&s);
		nth_arm(nth);
		rc = call->run(&s);
		hit = nth_disarm();
		hits += hit;
		last = hit ? nth : last;
		if (rc) {
			failed++;
			if (!hit || (rc != -ENOMEM && rc != -EFAULT)) {
				fprintf(stderr, "# %s: failure %u gives %d\n", call->name, nth, rc);
				other++;
			}
			rc = call->run(&s);
			if (rc) {
				fprintf(stderr, "# %s: again, after failure %u: %d\n", call->name,
					nth, rc);
				other++;
			}
		}
		if (!rc && call->check)
			call->check(&s);
		scene_teardown(&s);
		/* Unpinned and uncharged by workers. */
		if (!RAW_EVENTUALLY(raw_pinned_kb(getpid()) == 0)) {
			fprintf(stderr, "# %s: failure %u leaves %ld kB pinned\n", call->name, nth,
				raw_pinned_kb(getpid()));
			other++;
			break;
		}
		if (!RAW_EVENTUALLY(none_counted())) {
			fprintf(stderr, "# %s: failure %u leaves an object counted\n", call->name,
				nth);
			other++;
			break;
		}
		if (open_files() != files) {
			fprintf(stderr, "# %s: failure %u leaves a file open\n", call->name, nth);
			other++;
			break;
		}
		if (nth <= last + NTH_CALM)
			continue;
		if (again++)
			break;
		nth = last > NTH_CALM ? last - NTH_CALM : 0;
	}
	printf("# | %s | %u | %u |\n", call->name, hits, failed);
	fflush(stdout);
	RAW_CHECK(nth < NTH_MAX);	/* the last runs were not disturbed */
	RAW_CHECK(RAW_EVENTUALLY(all_uncharged()));
	/* The next sweep's limit is the same user's. */
	RAW_CHECK(RAW_EVENTUALLY(raw_pinned_kb(getpid()) == 0));
	_exit(other ? 1 : 0);
}

/* In a process of its own, which has the limits for itself. Returns its exit status. */
static inline int sweep_apart(const struct call *call)
{
	/* For none_counted(). Not the child's, whose first file allocates more than others. */
	int witness = raw_open(0), rc;
	pid_t pid = fork();

	if (!pid) {
		RAW_CHECK(witness >= 0 && !nth_init());
		drop_privileges();
		sweep(call);
	}
	rc = raw_reap(pid);
	close(witness);
	return rc;
}

#define SWEEP(calls) do { \
	unsigned int i_; \
	for (i_ = 0; i_ < ARRAY_SIZE(calls); i_++) { \
		EXPECT_EQ(0, sweep_apart(&(calls)[i_])) \
			TH_LOG("%s", (calls)[i_].name); \
	} \
} while (0)

/* Of what an ioctl does, or 0. */
#define HAS(calls, nr) ({ \
	unsigned int i_, n_ = 0; \
	for (i_ = 0; i_ < ARRAY_SIZE(calls); i_++) \
		n_ += (calls)[i_].cmd && _IOC_NR((calls)[i_].cmd) == (nr); \
	n_; \
})

/* The program that an ioctl is in. */
enum program { NOWHERE, OBJECTS, OPERATIONS, RDMA };

static const uint8_t where[256] = {
	[NPULINK_CMD_DEVICE_INFO] = OBJECTS,
	[NPULINK_CMD_BUF_REGISTER] = OBJECTS,
	[NPULINK_CMD_BUF_ALLOC] = OBJECTS,
	[NPULINK_CMD_BUF_IMPORT] = OBJECTS,
	[NPULINK_CMD_BUF_EXPORT] = OBJECTS,
	[NPULINK_CMD_COMM_CREATE] = OBJECTS,
	[NPULINK_CMD_COMM_PEERS] = OBJECTS,
	[NPULINK_CMD_COMM_ABORT] = OPERATIONS,
	[NPULINK_CMD_COMM_STATUS] = OBJECTS,
	[NPULINK_CMD_PLAN_CREATE] = OBJECTS,
	[NPULINK_CMD_POST] = OPERATIONS,
	[NPULINK_CMD_POST_BATCH] = OPERATIONS,
	[NPULINK_CMD_WAIT] = OPERATIONS,
	[NPULINK_CMD_RING_SETUP] = OBJECTS,
	[NPULINK_CMD_DESTROY] = OPERATIONS,
	[NPULINK_CMD_COMM_SHRINK] = OPERATIONS,
	[NPULINK_CMD_PORT_INFO] = RDMA,
};

/* Does the kernel know it? Too small a structure is EINVAL, no such ioctl ENOTTY. */
static inline bool is_ioctl(int fd, unsigned int nr)
{
	uint32_t arg[64] = { 1 };

	return raw_ioctl(fd, _IO(NPULINK_TYPE, nr), arg) != -ENOTTY;
}

#endif /* SELFTESTS_FAILNTH_H */
