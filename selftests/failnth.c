// SPDX-License-Identifier: GPL-2.0
/*
 * failnth - every allocation and every copy from or to the user that a call makes is
 * failed in turn, the first, the second, .. until one run sees no failure. A call that
 * fails says ENOMEM or EFAULT, leaves nothing pinned or charged behind, and works when it
 * is made again on the same objects.
 *
 * npulink-test: debug timeout=60
 */
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <linux/capability.h>
#include "raw.h"
#include "harness.h"

#define PAGE	4096UL
#define LEN	(20UL << 10)	/* more than is done inline: through interrupts */
#define SMALL	64UL
#define LIMIT	(8UL << 20)	/* locked memory of all tests */
#define FAULT	"/sys/kernel/debug/"
#define NTH_MAX	400

/* ---- the knob of the kernel */

static int nth_fd = -1;

static int nth_init(void)
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

static void nth_arm(unsigned int n)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%u", n);

	RAW_CHECK(pwrite(nth_fd, text, len, 0) == len);
}

/* True if the failure has happened. Reading the counter, and clearing it, may be what fails. */
static bool nth_disarm(void)
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
	int id, efd, dmabuf;
	struct npulink_post post[2], many[3];
	struct npulink_comm_shrink shrunk;
};

enum level { NOTHING, FILES, COMMS, PLANS };

static const struct npulink_slot slots[2] = {
	{ .min_len = 1, .access = NPULINK_SLOT_READ },
	{ .min_len = 1, .access = NPULINK_SLOT_READ | NPULINK_SLOT_WRITE },
};

/* An exchange with reduction: send the own, reduce what comes into the result. */
static int plan_exchange(int fd, int comm, int rank, uint64_t len)
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

static void scene_setup(struct scene *s, enum level level)
{
	int r;

	memset(s, 0, sizeof(*s));
	s->fd[0] = -1;
	s->fd[1] = -1;
	s->efd = -1;
	s->dmabuf = -1;
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
	for (r = 0; r < 2 && level >= COMMS; r++) {
		s->comm[r] = raw_comm(s->fd[r], s->secret, r, 2);
		RAW_CHECK(s->comm[r] > 0);
	}
	for (r = 0; r < 2 && level >= PLANS; r++) {
		s->buf[r] = raw_register(s->fd[r], s->mem[r], 2 * LEN, 0);
		RAW_CHECK(s->buf[r] > 0);
		s->plan[r] = plan_exchange(s->fd[r], s->comm[r], r, LEN);
		s->tiny[r] = plan_exchange(s->fd[r], s->comm[r], r, SMALL);
		RAW_CHECK(s->plan[r] > 0 && s->tiny[r] > 0);
	}
}

static void scene_teardown(struct scene *s)
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
}

static struct npulink_post exchange_cmd(const struct scene *s, int r, bool tiny, uint32_t flags)
{
	struct npulink_post post = raw_post_cmd(tiny ? s->tiny[r] : s->plan[r], flags);

	raw_bind(&post, s->buf[r], 0, LEN);
	raw_bind(&post, s->buf[r], LEN, LEN);
	return post;
}

/* Both ranks have posted (or the other one has, and this one now): is the sum right? */
static void check_sum(const struct scene *s, int r, bool tiny)
{
	const uint8_t *got = (const uint8_t *)s->mem[r] + LEN;
	size_t i, n = tiny ? SMALL : LEN;

	for (i = 0; i < n; i++)
		RAW_CHECK(got[i] == 3 + r + 1);
}

static void post_peer(struct scene *s, bool tiny)
{
	s->post[1] = exchange_cmd(s, 1, tiny, NPULINK_POST_HELD);
	RAW_CHECK(!raw_ioctl(s->fd[1], NPULINK_POST, &s->post[1]));
}

static void wait_peer(struct scene *s, bool tiny)
{
	struct npulink_result res;

	RAW_CHECK(!raw_wait(s->fd[1], s->post[1].out_seq, &res) && !res.status);
	check_sum(s, 1, tiny);
}

/* ---- the calls: prepare, run (0 or -errno), check */

struct call {
	const char *name;
	enum level level;
	void (*prepare)(struct scene *s);
	int (*run)(struct scene *s);
	void (*check)(struct scene *s);
};

static int run_open(struct scene *s)
{
	s->fd[0] = raw_open(0);
	return s->fd[0] < 0 ? -errno : 0;
}

static int run_close(struct scene *s)
{
	int fd = s->fd[0];

	/* Closed even if it fails, which it must not. */
	s->fd[0] = -1;
	return fd >= 0 && close(fd) ? -errno : 0;
}

static int run_info(struct scene *s)
{
	struct npulink_device_info info;

	return raw_info(s->fd[0], &info);
}

static int map(struct scene *s, size_t len, uint64_t off)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd[0], off);

	if (p == MAP_FAILED)
		return -errno;
	s->map = p;
	s->map_len = len;
	return 0;
}

static int run_mmap_arena(struct scene *s)
{
	return map(s, 256 << 10, NPULINK_MMAP_ARENA);
}

static void check_map(struct scene *s)
{
	size_t i;

	for (i = 0; i < s->map_len; i += PAGE)
		((volatile char *)s->map)[i] = 1;
}

static int run_register(struct scene *s)
{
	s->id = raw_register(s->fd[0], s->mem[0] + 5, 2 * LEN - 5, 0);
	return s->id < 0 ? s->id : 0;
}

/* Pages that the kernel has to make first. */
static void prepare_untouched(struct scene *s)
{
	RAW_CHECK(!madvise(s->mem[0], 2 * LEN, MADV_DONTNEED));
}

static int run_register_readonly(struct scene *s)
{
	s->id = raw_register(s->fd[0], s->mem[0], 2 * LEN, NPULINK_BUF_READONLY);
	return s->id < 0 ? s->id : 0;
}

static void check_destroy(struct scene *s)
{
	RAW_CHECK(!raw_destroy(s->fd[0], s->id));
}

static int run_alloc(struct scene *s)
{
	s->id = raw_buf_alloc(s->fd[0], 3 * LEN, &s->off);
	return s->id < 0 ? s->id : 0;
}

static void prepare_alloc(struct scene *s)
{
	RAW_CHECK(!run_alloc(s));
}

static int run_mmap_buf(struct scene *s)
{
	return map(s, 3 * LEN, s->off);
}

static int run_export(struct scene *s)
{
	struct npulink_buf_export cmd = { .size = sizeof(cmd), .id = s->id };
	int rc = raw_ioctl(s->fd[0], NPULINK_BUF_EXPORT, &cmd);

	if (!rc)
		s->dmabuf = cmd.out_fd;
	return rc;
}

static void prepare_import(struct scene *s)
{
	prepare_alloc(s);
	RAW_CHECK(!run_export(s));
}

static int run_import(struct scene *s)
{
	struct npulink_buf_import cmd = { .size = sizeof(cmd), .fd = s->dmabuf };
	int rc = raw_ioctl(s->fd[1], NPULINK_BUF_IMPORT, &cmd);

	s->id = cmd.out_id;
	return rc;
}

static void check_import(struct scene *s)
{
	RAW_CHECK(!raw_destroy(s->fd[1], s->id));
}

static void prepare_ring(struct scene *s)
{
	s->efd = eventfd(0, EFD_CLOEXEC);
}

static int run_ring(struct scene *s)
{
	struct npulink_ring_setup cmd = {
		.size = sizeof(cmd), .entries = 1024, .eventfd = s->efd,
	};
	int rc = raw_ioctl(s->fd[0], NPULINK_RING_SETUP, &cmd);

	s->off = cmd.out_len;
	return rc;
}

static void prepare_mmap_ring(struct scene *s)
{
	prepare_ring(s);
	RAW_CHECK(!run_ring(s));
}

static int run_mmap_ring(struct scene *s)
{
	return map(s, s->off, NPULINK_MMAP_RING);
}

static int run_comm_first(struct scene *s)
{
	s->comm[0] = raw_comm(s->fd[0], s->secret, 0, 2);
	return s->comm[0] < 0 ? s->comm[0] : 0;
}

static void check_comm_first(struct scene *s)
{
	s->comm[1] = raw_comm(s->fd[1], s->secret, 1, 2);
	RAW_CHECK(s->comm[1] > 0);
}

static void prepare_comm_second(struct scene *s)
{
	check_comm_first(s);
}

static int run_peers(struct scene *s)
{
	struct npulink_comm_peers cmd = {
		.size = sizeof(cmd), .comm_id = s->comm[0], .npeers = 2,
		.peers = (uintptr_t)s->mem[0],
	};

	return raw_ioctl(s->fd[0], NPULINK_COMM_PEERS, &cmd);
}

static void prepare_peers(struct scene *s)
{
	struct npulink_peer *peers = (void *)s->mem[0];
	struct npulink_device_info info;
	int r;

	RAW_CHECK(!raw_info(s->fd[0], &info));
	for (r = 0; r < 2; r++) {
		peers[r] = (struct npulink_peer) { .kind = NPULINK_PEER_LOCAL };
		memcpy(peers[r].node_id, info.out_node_id, sizeof(info.out_node_id));
	}
}

static int run_status(struct scene *s)
{
	struct npulink_comm_status st;

	return raw_status(s->fd[0], s->comm[0], &st);
}

static int run_plan(struct scene *s)
{
	s->plan[0] = plan_exchange(s->fd[0], s->comm[0], 0, LEN);
	return s->plan[0] < 0 ? s->plan[0] : 0;
}

/* The plan works, and so does the peer's, which was made before or after. */
static void check_plan(struct scene *s)
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

static void prepare_plan_second(struct scene *s)
{
	s->plan[1] = plan_exchange(s->fd[1], s->comm[1], 1, LEN);
	RAW_CHECK(s->plan[1] > 0);
}

/* A chain of 32 reductions with scratch in a third slot, a window, 2 channels. */
static int run_plan_large(struct scene *s)
{
	struct npulink_slot three[3] = { slots[0], slots[1], slots[1] };
	struct npulink_step steps[300];
	struct npulink_plan_create cmd;
	unsigned int i;
	int rc;

	for (i = 0; i < 300; i++) {
		bool send = i % 2;

		steps[i] = raw_step(send ? NPULINK_STEP_SEND : NPULINK_STEP_RECV, 4);
		steps[i].channel = i % 4 / 2;
		if (send) {
			steps[i].send_peer = 1;
		} else {
			steps[i].recv_peer = 1;
			steps[i].dst_slot = 1;
			steps[i].dst_off = 4 * i;
		}
		if (i % 50 == 49)
			steps[i].flags = NPULINK_STEP_F_DRAIN;
		else if (i)
			steps[i].dep[0] = 1;
	}
	three[0].min_len = 4;
	three[1].min_len = 4 * 300;
	cmd = raw_plan_cmd(s->comm[0], three, 3, steps, 300);
	cmd.call.count = 1;
	rc = raw_ioctl(s->fd[0], NPULINK_PLAN_CREATE, &cmd);
	s->id = cmd.out_id;
	return rc;
}

/*
 * A post that fails may have been accepted: out_seq says so. Then its result can still
 * be had, and a second post would be one too many.
 */
static int post_or_wait(struct scene *s, struct npulink_post *post)
{
	struct npulink_result res;
	int rc;

	if (post->out_seq) {
		rc = raw_wait(s->fd[0], post->out_seq, &res);
		if (rc != -ENOENT)
			return rc ? rc : res.status;
		post->out_seq = 0;
	}
	rc = raw_ioctl(s->fd[0], NPULINK_POST, post);
	return rc ? rc : post->flags & NPULINK_POST_WAIT ? post->out_result.status : 0;
}

static int run_post(struct scene *s)
{
	return post_or_wait(s, &s->post[0]);
}

static void prepare_post_wait(struct scene *s)
{
	post_peer(s, false);
	s->post[0] = exchange_cmd(s, 0, false, NPULINK_POST_WAIT);
}

static void check_post_wait(struct scene *s)
{
	wait_peer(s, false);
	check_sum(s, 0, false);
}

static void prepare_post_tiny(struct scene *s)
{
	post_peer(s, true);
	s->post[0] = exchange_cmd(s, 0, true, NPULINK_POST_WAIT);
}

static void check_post_tiny(struct scene *s)
{
	wait_peer(s, true);
	check_sum(s, 0, true);
}

static void prepare_post_held(struct scene *s)
{
	s->post[0] = exchange_cmd(s, 0, false, NPULINK_POST_HELD);
}

static void check_post_held(struct scene *s)
{
	struct npulink_result res;

	post_peer(s, false);
	wait_peer(s, false);
	RAW_CHECK(!raw_wait(s->fd[0], s->post[0].out_seq, &res) && !res.status);
	check_sum(s, 0, false);
}

/* Shared memory whose pages have been taken out of the page table: they are the same ones. */
static void prepare_post_suspect(struct scene *s)
{
	char *mem = mmap(NULL, 2 * LEN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	RAW_CHECK(mem != MAP_FAILED && !munmap(s->mem[0], 2 * LEN));
	s->mem[0] = mem;
	memset(mem, 1, LEN);
	s->buf[0] = raw_register(s->fd[0], mem, 2 * LEN, 0);
	RAW_CHECK(s->buf[0] > 0 && !madvise(mem, 2 * LEN, MADV_DONTNEED));
	prepare_post_wait(s);
}

static void prepare_post_ring(struct scene *s)
{
	prepare_mmap_ring(s);
	RAW_CHECK(!run_mmap_ring(s));
	s->post[0] = exchange_cmd(s, 0, false, 0);
}

static void check_post_ring(struct scene *s)
{
	struct npulink_ring *ring = s->map;

	post_peer(s, false);
	wait_peer(s, false);
	RAW_CHECK(RAW_EVENTUALLY(__atomic_load_n(&ring->head, __ATOMIC_ACQUIRE) == 1));
	RAW_CHECK(!ring->records[0].status && ring->records[0].seq == s->post[0].out_seq);
	check_sum(s, 0, false);
}

/* All in flight at a time, so each has a result of its own. */
static void prepare_batch(struct scene *s)
{
	struct npulink_post post;
	unsigned int i;

	for (i = 0; i < 3; i++) {
		s->many[i] = exchange_cmd(s, 0, true, NPULINK_POST_HELD);
		s->many[i].inline_binds[1] = (struct npulink_bind) {
			.buf_id = s->buf[0], .off = LEN + i * SMALL, .len = SMALL,
		};
		post = exchange_cmd(s, 1, true, NPULINK_POST_HELD);
		post.inline_binds[1] = (struct npulink_bind) {
			.buf_id = s->buf[1], .off = LEN + i * SMALL, .len = SMALL,
		};
		RAW_CHECK(!raw_ioctl(s->fd[1], NPULINK_POST, &post));
		s->post[1] = post;
	}
}

/* What was posted is not posted again, what has ended is fetched. */
static int run_batch(struct scene *s)
{
	struct npulink_post_batch cmd = {
		.size = sizeof(cmd), .flags = NPULINK_POST_WAIT, .wait_until_ns = RAW_FOREVER,
	};
	struct npulink_result res;
	unsigned int i;
	int rc;

	for (i = 0; i < 3 && s->many[i].out_seq; i++) {
		if (s->many[i].out_result.seq)
			continue;
		rc = raw_wait(s->fd[0], s->many[i].out_seq, &res);
		/* Its result was fetched by the call that failed at something later. */
		if (rc == -ENOENT)
			break;
		if (rc || res.status)
			return rc ? rc : res.status;
	}
	if (i == 3)
		return 0;
	s->many[i].out_seq = 0;
	cmd.nposts = 3 - i;
	cmd.posts = (uintptr_t)&s->many[i];
	return raw_ioctl(s->fd[0], NPULINK_POST_BATCH, &cmd);
}

static void check_batch(struct scene *s)
{
	unsigned int i;

	wait_peer(s, true);
	for (i = 0; i < 3 * SMALL; i++)
		RAW_CHECK(s->mem[0][LEN + i] == 4 && s->mem[1][LEN + i] == 5);
}

static void prepare_wait(struct scene *s)
{
	prepare_post_held(s);
	RAW_CHECK(!run_post(s));
	post_peer(s, false);
	wait_peer(s, false);
}

static int run_wait(struct scene *s)
{
	struct npulink_result res;
	int rc = raw_wait(s->fd[0], s->post[0].out_seq, &res);

	return rc ? rc : res.status;
}

static int run_abort(struct scene *s)
{
	return raw_abort(s->fd[0], s->comm[0], 7);
}

/* In flight on both ranks. */
static void prepare_abort(struct scene *s)
{
	post_peer(s, false);
}

static void check_abort(struct scene *s)
{
	struct npulink_result res;

	RAW_CHECK(!raw_wait(s->fd[1], s->post[1].out_seq, &res));
	RAW_CHECK(res.status == -ECANCELED && res.cause == NPULINK_CAUSE_ABORT);
}

static void prepare_shrink_first(struct scene *s)
{
	RAW_CHECK(!raw_abort(s->fd[0], s->comm[0], 7));
}

static int shrink(struct scene *s, int r)
{
	s->shrunk = (struct npulink_comm_shrink) {
		.size = sizeof(s->shrunk), .comm_id = s->comm[r],
	};
	return raw_ioctl(s->fd[r], NPULINK_COMM_SHRINK, &s->shrunk);
}

static int run_shrink(struct scene *s)
{
	return shrink(s, 0);
}

/* The new communicator works on both. */
static void check_shrink_first(struct scene *s)
{
	int id = s->shrunk.out_id;

	RAW_CHECK(s->shrunk.out_rank == 0 && s->shrunk.out_nranks == 2);
	if (!s->id) {
		RAW_CHECK(!shrink(s, 1));
		s->id = s->shrunk.out_id;
	}
	RAW_CHECK(s->id > 0);
	s->comm[0] = id;
	s->comm[1] = s->id;
	s->plan[0] = 0;
	s->plan[1] = 0;
	check_plan(s);
}

static void prepare_shrink_second(struct scene *s)
{
	prepare_shrink_first(s);
	RAW_CHECK(!shrink(s, 1));
	s->id = s->shrunk.out_id;
}

static int run_destroy_plan(struct scene *s)
{
	int rc = s->tiny[0] ? raw_destroy(s->fd[0], s->tiny[0]) : 0;

	s->tiny[0] = rc ? s->tiny[0] : 0;
	return rc ? rc : raw_destroy(s->fd[0], s->plan[0]);
}

static int run_destroy_buf(struct scene *s)
{
	return raw_destroy(s->fd[0], s->buf[0]);
}

static int run_destroy_comm(struct scene *s)
{
	return raw_destroy(s->fd[0], s->comm[0]);
}

static const struct call calls[] = {
	{ "open", NOTHING, NULL, run_open, NULL },
	{ "close", PLANS, NULL, run_close, NULL },
	{ "close in flight", PLANS, prepare_abort, run_close, NULL },
	{ "DEVICE_INFO", FILES, NULL, run_info, NULL },
	{ "mmap arena", FILES, NULL, run_mmap_arena, check_map },
	{ "BUF_REGISTER", FILES, NULL, run_register, check_destroy },
	{ "BUF_REGISTER untouched", FILES, prepare_untouched, run_register, check_destroy },
	{ "BUF_REGISTER read-only", FILES, prepare_untouched, run_register_readonly,
	  check_destroy },
	{ "BUF_ALLOC", FILES, NULL, run_alloc, check_destroy },
	{ "mmap buffer", FILES, prepare_alloc, run_mmap_buf, check_map },
	{ "BUF_EXPORT", FILES, prepare_alloc, run_export, NULL },
	{ "BUF_IMPORT", FILES, prepare_import, run_import, check_import },
	{ "RING_SETUP", FILES, prepare_ring, run_ring, NULL },
	{ "mmap ring", FILES, prepare_mmap_ring, run_mmap_ring, check_map },
	{ "COMM_CREATE first", FILES, NULL, run_comm_first, check_comm_first },
	{ "COMM_CREATE second", FILES, prepare_comm_second, run_comm_first, NULL },
	{ "COMM_PEERS", COMMS, prepare_peers, run_peers, NULL },
	{ "COMM_STATUS", COMMS, NULL, run_status, NULL },
	{ "PLAN_CREATE first", COMMS, NULL, run_plan, check_plan },
	{ "PLAN_CREATE second", COMMS, prepare_plan_second, run_plan, check_plan },
	{ "PLAN_CREATE of 300 steps", COMMS, NULL, run_plan_large, check_destroy },
	{ "POST held", PLANS, prepare_post_held, run_post, check_post_held },
	{ "POST ring", PLANS, prepare_post_ring, run_post, check_post_ring },
	{ "POST wait", PLANS, prepare_post_wait, run_post, check_post_wait },
	{ "POST wait inline", PLANS, prepare_post_tiny, run_post, check_post_tiny },
	{ "POST wait suspect", PLANS, prepare_post_suspect, run_post, check_post_wait },
	{ "POST_BATCH wait", PLANS, prepare_batch, run_batch, check_batch },
	{ "WAIT", PLANS, prepare_wait, run_wait, NULL },
	{ "COMM_ABORT", PLANS, prepare_abort, run_abort, check_abort },
	{ "COMM_SHRINK first", COMMS, prepare_shrink_first, run_shrink, check_shrink_first },
	{ "COMM_SHRINK second", COMMS, prepare_shrink_second, run_shrink, check_shrink_first },
	{ "DESTROY plan", PLANS, NULL, run_destroy_plan, NULL },
	{ "DESTROY buffer", PLANS, NULL, run_destroy_buf, NULL },
	{ "DESTROY communicator", COMMS, NULL, run_destroy_comm, NULL },
};

#define NCALLS (sizeof(calls) / sizeof(calls[0]))

/* ---- the sweep */

static int open_files(void)
{
	int fd, n = 0;

	for (fd = 0; fd < 64; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Locked memory counts for this process, although it is root's. */
static void drop_ipc_lock(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];
	struct rlimit limit = { LIMIT, LIMIT };

	RAW_CHECK(!syscall(SYS_capget, &head, data));
	data[0].effective &= ~(1U << CAP_IPC_LOCK);
	RAW_CHECK(!syscall(SYS_capset, &head, data));
	RAW_CHECK(!setrlimit(RLIMIT_MEMLOCK, &limit));
}

/* All of the limit can be had: nothing is charged any more. */
static bool all_uncharged(void)
{
	int fd = raw_open(0);
	uint64_t off;
	int id = raw_buf_alloc(fd, LIMIT, &off);

	close(fd);
	return id > 0;
}

static void sweep(const struct call *call)
{
	unsigned int nth, hits = 0, failed = 0, other = 0;
	int files = open_files(), rc;
	struct scene s;
	bool hit = true;

	for (nth = 1; hit && nth < NTH_MAX; nth++) {
		scene_setup(&s, call->level);
		if (call->prepare)
			call->prepare(&s);
		nth_arm(nth);
		rc = call->run(&s);
		hit = nth_disarm();
		hits += hit;
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
		if (open_files() != files) {
			fprintf(stderr, "# %s: failure %u leaves a file open\n", call->name, nth);
			other++;
			break;
		}
	}
	printf("# %-26s %3u injected, %3u of them reported\n", call->name, hits, failed);
	fflush(stdout);
	RAW_CHECK(!hit || other);	/* the last run was not disturbed */
	RAW_CHECK(RAW_EVENTUALLY(all_uncharged()));
	/* The next sweep's limit is the same user's. */
	RAW_CHECK(RAW_EVENTUALLY(raw_pinned_kb(getpid()) == 0));
	_exit(other ? 1 : 0);
}

FIXTURE(failnth) {
};

FIXTURE_SETUP(failnth)
{
	if (nth_init())
		SKIP(return, "the kernel cannot inject failures");
	raw_knobs_reset(2);
}

FIXTURE_TEARDOWN(failnth)
{
}

#define SWEEP(from, to) do { \
	unsigned int i_; \
	for (i_ = (from); i_ < (to); i_++) { \
		pid_t pid_ = fork(); \
		if (!pid_) { \
			RAW_CHECK(!nth_init()); \
			drop_ipc_lock(); \
			sweep(&calls[i_]); \
		} \
		EXPECT_EQ(0, raw_reap(pid_)) \
			TH_LOG("%s", calls[i_].name); \
	} \
} while (0)

TEST_F(failnth, files_and_memory)
{
	SWEEP(0, 14);
}

TEST_F(failnth, communicators_and_plans)
{
	SWEEP(14, 21);
}

TEST_F(failnth, operations)
{
	SWEEP(21, 28);
}

TEST_F(failnth, failure_and_destruction)
{
	SWEEP(28, NCALLS);
}

TEST_HARNESS_MAIN
