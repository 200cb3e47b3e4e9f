// SPDX-License-Identifier: GPL-2.0
/*
 * soft_device - software NPUs themselves: interrupts, fault knobs, the timing model,
 * devices that come and go, and every variant of the engine inside the kernel.
 */
#include <sys/mount.h>
#include "raw.h"
#include "harness.h"

#ifndef ARRAY_SIZE
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#endif

#define DEBUG "/sys/kernel/debug/npulink_soft/"
#define ROOT "/sys/devices/npulink_soft/"
#define PARAM "/sys/module/npulink_soft/parameters/"

static int put_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY), rc;

	if (fd < 0)
		return -errno;
	rc = write(fd, text, strlen(text)) < 0 ? -errno : 0;
	close(fd);
	return rc;
}

static int knob(unsigned int npu, const char *name, unsigned long value)
{
	char path[96], text[24];

	snprintf(path, sizeof(path), DEBUG "npu%u/%s", npu, name);
	snprintf(text, sizeof(text), "%lu", value);
	return put_text(path, text);
}

static long knob_get(unsigned int npu, const char *name)
{
	char path[96];
	long value = -1;
	FILE *f;

	snprintf(path, sizeof(path), DEBUG "npu%u/%s", npu, name);
	f = fopen(path, "r");
	if (!f || fscanf(f, "%ld", &value) != 1)
		value = -1;
	if (f)
		fclose(f);
	return value;
}

/* Until a knob reads as expected, at most twenty seconds. */
static bool knob_becomes(unsigned int npu, const char *name, long value)
{
	int i;

	for (i = 0; i < 20000; i++) {
		if (knob_get(npu, name) == value)
			return true;
		usleep(1000);
	}
	return false;
}

static long irq_count(const char *name)
{
	FILE *f = fopen("/proc/interrupts", "r");
	char line[4096], *p, *end;
	long sum = 0;

	while (f && fgets(line, sizeof(line), f)) {
		if (!strstr(line, name))
			continue;
		p = strchr(line, ':') + 1;
		for (;;) {
			long n = strtol(p, &end, 10);

			if (end == p)
				break;
			sum += n;
			p = end;
		}
		/* The last number was that of the interrupt in its domain. */
	}
	if (f)
		fclose(f);
	return sum;
}

/* Two ranks of one process that sum up their vectors. */
struct pair {
	size_t len;
	int fd[2], comm[2], plan[2], in[2], out[2];
	int32_t *src[2], *dst[2];
	uint64_t seq[2];
};

FIXTURE(soft) {
	struct pair pair;
};

FIXTURE_SETUP(soft)
{
	struct pair *p = &self->pair;
	uint8_t secret[16];
	size_t i;
	int r;

	mount("none", "/sys/kernel/debug", "debugfs", 0, NULL);
	if (access(DEBUG, X_OK))
		SKIP_CASE("no debugfs, or no npulink_soft");
	raw_secret(secret);
	p->len = 64 << 10;
	for (r = 0; r < 2; r++) {
		struct npulink_slot slots[] = {
			{ .min_len = p->len, .access = NPULINK_SLOT_READ },
			{ .min_len = p->len, .access = NPULINK_SLOT_WRITE },
		};
		struct npulink_step steps[2];

		p->fd[r] = raw_open(r);
		ASSERT_GE(p->fd[r], 0);
		p->comm[r] = raw_comm(p->fd[r], secret, r, 2);
		ASSERT_GT(p->comm[r], 0);
		p->src[r] = aligned_alloc(4096, p->len);
		p->dst[r] = aligned_alloc(4096, p->len);
		for (i = 0; i < p->len / 4; i++)
			p->src[r][i] = (r + 1) * i;
		p->in[r] = raw_register(p->fd[r], p->src[r], p->len, NPULINK_BUF_READONLY);
		ASSERT_GT(p->in[r], 0);
		p->out[r] = raw_register(p->fd[r], p->dst[r], p->len, 0);
		ASSERT_GT(p->out[r], 0);
		steps[0] = raw_step(NPULINK_STEP_SEND, p->len);
		steps[0].send_peer = !r;
		steps[1] = raw_step(NPULINK_STEP_RECV | NPULINK_STEP_REDUCE, p->len);
		steps[1].recv_peer = !r;
		steps[1].dst_slot = 1;
		p->plan[r] = raw_plan(p->fd[r], p->comm[r], slots, 2, steps, 2);
		ASSERT_GT(p->plan[r], 0);
	}
}

FIXTURE_TEARDOWN(soft)
{
	static const char *const knobs[] = {
		"drop_irq", "dup_irq", "fail_post", "corrupt", "corrupt_link", "delay_ns",
	};
	unsigned int i;
	int r;

	for (r = 0; r < 2; r++) {
		for (i = 0; i < ARRAY_SIZE(knobs); i++)
			knob(r, knobs[i], 0);
		knob(r, "hold", 0xffffffff);
		close(self->pair.fd[r]);
		EXPECT_TRUE(knob_becomes(r, "held", 0));
		EXPECT_TRUE(knob_becomes(r, "lost", 0));
	}
	put_text(DEBUG "npu0/timing", "all 0 0 0");
	put_text(PARAM "inline_max", "16384");
}

static int start(struct pair *p, uint64_t deadline_ns)
{
	int r, rc;

	for (r = 0; r < 2; r++) {
		struct npulink_post post = raw_post_cmd(p->plan[r], NPULINK_POST_HELD);

		memset(p->dst[r], 0, p->len);
		post.deadline_ns = deadline_ns;
		raw_bind(&post, p->in[r], 0, p->len);
		raw_bind(&post, p->out[r], 0, p->len);
		rc = raw_ioctl(p->fd[r], NPULINK_POST, &post);
		if (rc)
			return rc;
		p->seq[r] = post.out_seq;
	}
	return 0;
}

/* Number of bits that are not as they should be. */
static int wrong(struct pair *p)
{
	int r, bits = 0;
	size_t i;

	for (r = 0; r < 2; r++) {
		for (i = 0; i < p->len / 4; i++)
			bits += __builtin_popcount(p->dst[r][i] ^ (int)(3 * i));
	}
	return bits;
}

#define START(deadline) ASSERT_EQ(0, start(&self->pair, deadline))

#define EXPECT_STATUS(want)						\
do {									\
	struct npulink_result res_;					\
	int r_;								\
									\
	for (r_ = 0; r_ < 2; r_++) {					\
		ASSERT_EQ(0, raw_wait(self->pair.fd[r_], self->pair.seq[r_], &res_)); \
		EXPECT_EQ(want, res_.status);				\
	}								\
} while (0)

TEST_F(soft, every_step_by_interrupt)
{
	long done, bell;
	int i;

	ASSERT_EQ(0, put_text(PARAM "inline_max", "0"));
	for (i = 0; i < 10; i++) {
		done = irq_count("npu0-done");
		bell = irq_count("npu0-bell");
		START(0);
		EXPECT_STATUS(0);
		EXPECT_EQ(0, wrong(&self->pair));
		EXPECT_EQ(done + 1, irq_count("npu0-done"));
		/* The peer's offer, or that it took ours; whoever comes second need not ring. */
		EXPECT_TRUE(RAW_EVENTUALLY(bell < irq_count("npu0-bell")));
	}
}

TEST_F(soft, inline_without_interrupt)
{
	long done = irq_count("npu0-done");

	ASSERT_EQ(0, put_text(PARAM "inline_max", "1000000"));
	START(0);
	EXPECT_STATUS(0);
	EXPECT_EQ(0, wrong(&self->pair));
	EXPECT_EQ(done, irq_count("npu0-done"));
}

TEST_F(soft, held_until_released)
{
	struct npulink_wait look = { .size = sizeof(look) };

	ASSERT_EQ(0, knob(0, "hold", 0));
	START(0);
	EXPECT_TRUE(knob_becomes(0, "held", 1));
	look.seq = self->pair.seq[0];
	EXPECT_EQ(-ETIME, raw_ioctl(self->pair.fd[0], NPULINK_WAIT, &look));
	ASSERT_EQ(0, knob(0, "release", 1));
	EXPECT_STATUS(0);
	EXPECT_EQ(0, wrong(&self->pair));

	/* One is let through, the next one held, until all are. */
	ASSERT_EQ(0, knob(0, "hold", 1));
	START(0);
	EXPECT_STATUS(0);
	EXPECT_EQ(0, knob_get(0, "hold"));
	START(0);
	EXPECT_TRUE(knob_becomes(0, "held", 1));
	ASSERT_EQ(0, knob(0, "hold", 0xffffffff));
	EXPECT_STATUS(0);
	EXPECT_EQ(0, wrong(&self->pair));
}

TEST_F(soft, abort_takes_out_what_is_held)
{
	struct npulink_comm_abort cmd = { .size = sizeof(cmd), .comm_id = self->pair.comm[1] };

	ASSERT_EQ(0, knob(0, "hold", 0));
	START(0);
	EXPECT_TRUE(knob_becomes(0, "held", 1));
	ASSERT_EQ(0, raw_ioctl(self->pair.fd[1], NPULINK_COMM_ABORT, &cmd));
	EXPECT_STATUS(-ECANCELED);
	EXPECT_EQ(0, knob_get(0, "held"));
}

TEST_F(soft, dropped_interrupt)
{
	ASSERT_EQ(0, knob(0, "drop_irq", 1));
	/* Long enough to look meanwhile. */
	START(3000 * 1000000ULL);
	EXPECT_TRUE(knob_becomes(0, "lost", 1));
	EXPECT_STATUS(-ETIMEDOUT);
	EXPECT_EQ(0, knob_get(0, "lost"));
	EXPECT_EQ(0, knob_get(0, "drop_irq"));
}

TEST_F(soft, duplicated_interrupt)
{
	int i;

	ASSERT_EQ(0, knob(0, "dup_irq", 1000));
	ASSERT_EQ(0, knob(1, "dup_irq", 1000));
	for (i = 0; i < 20; i++) {
		START(0);
		EXPECT_STATUS(0);
		EXPECT_EQ(0, wrong(&self->pair));
	}
	EXPECT_LE(knob_get(0, "dup_irq"), 980);
}

TEST_F(soft, refused_request)
{
	ASSERT_EQ(0, knob(0, "fail_post", 1));
	START(0);
	EXPECT_STATUS(-EIO);
	EXPECT_EQ(0, knob_get(0, "fail_post"));
}

TEST_F(soft, corrupted_result)
{
	ASSERT_EQ(0, knob(1, "corrupt", 1));
	START(0);
	EXPECT_STATUS(0);
	EXPECT_EQ(1, wrong(&self->pair));
	START(0);
	EXPECT_STATUS(0);
	EXPECT_EQ(0, wrong(&self->pair));
}

TEST_F(soft, delayed_completion)
{
	struct npulink_result res;
	int i;

	ASSERT_EQ(0, knob(0, "delay_ns", 20000000));
	for (i = 0; i < 3; i++) {
		START(0);
		ASSERT_EQ(0, raw_wait(self->pair.fd[0], self->pair.seq[0], &res));
		EXPECT_EQ(0, res.status);
		EXPECT_GE(res.ns, 20000000);
		ASSERT_EQ(0, raw_wait(self->pair.fd[1], self->pair.seq[1], &res));
		EXPECT_EQ(0, wrong(&self->pair));
	}
	/* Out of the timer's queue. */
	ASSERT_EQ(0, knob(0, "delay_ns", 4000000000));
	START(1500 * 1000000ULL);
	EXPECT_STATUS(-ETIMEDOUT);
}

TEST_F(soft, timing_model)
{
	struct npulink_result res;

	EXPECT_EQ(-ENODEV, put_text(DEBUG "npu0/timing", "npu9999 1 1 1"));
	EXPECT_EQ(-EINVAL, put_text(DEBUG "npu0/timing", "npu1 1 1"));
	EXPECT_EQ(-ERANGE, put_text(DEBUG "npu0/timing", "npu1 99999999999 1 1"));
	/* 5 ms, 100 and 50 ns per byte: 5 + 6.55 + 3.28 */
	ASSERT_EQ(0, put_text(DEBUG "npu0/timing", "npu1 5000000 100000 50000"));
	START(0);
	ASSERT_EQ(0, raw_wait(self->pair.fd[0], self->pair.seq[0], &res));
	EXPECT_EQ(0, res.status);
	EXPECT_GE(res.ns, 14830400);
	ASSERT_EQ(0, raw_wait(self->pair.fd[1], self->pair.seq[1], &res));
	EXPECT_EQ(0, wrong(&self->pair));
}

TEST_F(soft, removed_while_working)
{
	struct npulink_device_info info = { .size = sizeof(info) };
	char name[16];

	EXPECT_EQ(-ENOENT, put_text(ROOT "del_device", "npu9999"));
	EXPECT_EQ(-EINVAL, put_text(ROOT "del_device", "npux"));
	EXPECT_EQ(-EINVAL, put_text(ROOT "new_device", "0"));
	EXPECT_EQ(-EINVAL, put_text(ROOT "new_device", "65"));
	ASSERT_EQ(0, raw_ioctl(self->pair.fd[1], NPULINK_DEVICE_INFO, &info));
	snprintf(name, sizeof(name), "%s", info.out_name);
	ASSERT_EQ(0, knob(1, "hold", 0));
	START(0);
	EXPECT_TRUE(knob_becomes(1, "held", 1));
	ASSERT_EQ(0, put_text(ROOT "del_device", name));
	EXPECT_STATUS(-ENODEV);
	EXPECT_EQ(-ENODEV, raw_ioctl(self->pair.fd[1], NPULINK_DEVICE_INFO, &info));
	ASSERT_EQ(0, put_text(ROOT "new_device", "1"));
	EXPECT_EQ(0, access("/dev/npulink/npu1", R_OK | W_OK));
}

/* ---- the engine inside the kernel --------------------------------------------- */

static const uint8_t sizes[NPULINK_DTYPES] = { 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8 };

/* dst = src (+) src2 by one device; a communicator of one rank. */
struct engine {
	int fd, comm, buf;
	uint8_t *mem;
};

FIXTURE(engine) {
	struct engine e;
};

#define ENGINE_LEN 40000UL	/* not a multiple of blocks */
#define ENGINE_SRC2 40960UL
#define ENGINE_DST 81920UL
#define ENGINE_SIZE 131072UL

FIXTURE_SETUP(engine)
{
	uint8_t secret[16];

	mount("none", "/sys/kernel/debug", "debugfs", 0, NULL);
	if (access(DEBUG, X_OK))
		SKIP_CASE("no debugfs, or no npulink_soft");
	raw_secret(secret);
	self->e.fd = raw_open(0);
	ASSERT_GE(self->e.fd, 0);
	self->e.comm = raw_comm(self->e.fd, secret, 0, 1);
	ASSERT_GT(self->e.comm, 0);
	/* An odd address: each page boundary goes through an element. */
	self->e.mem = (uint8_t *)aligned_alloc(4096, ENGINE_SIZE + 4096) + 1;
	self->e.buf = raw_register(self->e.fd, self->e.mem, ENGINE_SIZE, 0);
	ASSERT_GT(self->e.buf, 0);
}

FIXTURE_TEARDOWN(engine)
{
	put_text(DEBUG "engine", "auto");
	close(self->e.fd);
}

static int engine_run(struct __test_metadata *_metadata, struct engine *e,
		      uint8_t dtype, uint8_t redop, size_t len)
{
	struct npulink_slot slot = {
		.min_len = ENGINE_SIZE, .access = NPULINK_SLOT_READ | NPULINK_SLOT_WRITE,
	};
	struct npulink_step step = raw_step(NPULINK_STEP_REDUCE, len);
	struct npulink_plan_create cmd;
	struct npulink_post post;
	int rc;

	step.dtype = dtype;
	step.redop = redop;
	step.src2_off = ENGINE_SRC2;
	step.dst_off = ENGINE_DST;
	cmd = raw_plan_cmd(e->comm, &slot, 1, &step, 1);
	cmd.call.dtype = dtype;
	cmd.call.redop = redop;
	rc = raw_ioctl(e->fd, NPULINK_PLAN_CREATE, &cmd);
	if (rc) {
		TH_LOG("plan refused: reason %u", cmd.out_reason);
		return rc;
	}
	post = raw_post_cmd(cmd.out_id, NPULINK_POST_WAIT);
	raw_bind(&post, e->buf, 0, ENGINE_SIZE);
	rc = raw_ioctl(e->fd, NPULINK_POST, &post);
	return rc ? rc : post.out_result.status ? post.out_result.status :
	       raw_destroy(e->fd, cmd.out_id);
}

TEST_F(engine, variants_agree)
{
	static const char *const variants[] = {
		"scalar", "swar", "sse2", "avx2", "avx512", "auto"
	};
	static const size_t lens[] = { 8, 504, 520, ENGINE_LEN };
	uint8_t *first = malloc(ENGINE_LEN);
	unsigned int v, d, op, l;
	size_t i;

	ASSERT_EQ(-EINVAL, put_text(DEBUG "engine", "mmx"));
	for (d = 0; d < NPULINK_DTYPES; d++) {
		for (op = 0; op < NPULINK_REDOPS; op++) {
			for (l = 0; l < ARRAY_SIZE(lens); l++) {
				size_t len = lens[l] / sizes[d] * sizes[d];

				/* Random bits: all kinds of numbers, NaN too. */
				for (i = 0; i < ENGINE_DST; i++)
					self->e.mem[i] = random() >> 8;
				for (v = 0; v < ARRAY_SIZE(variants); v++) {
					/* A CPU without AVX has no such variant. */
					if (put_text(DEBUG "engine", variants[v]))
						continue;
					memset(self->e.mem + ENGINE_DST, 0x55, ENGINE_LEN + 8);
					ASSERT_EQ(0, engine_run(_metadata, &self->e, d, op, len));
					if (!v)
						memcpy(first, self->e.mem + ENGINE_DST, len);
					ASSERT_EQ(0, memcmp(first, self->e.mem + ENGINE_DST, len)) {
						TH_LOG("%s differs: type %u op %u len %zu",
						       variants[v], d, op, len);
					}
					for (i = 0; i < 8; i++)
						ASSERT_EQ(0x55, self->e.mem[ENGINE_DST + len + i]);
				}
			}
		}
	}
	free(first);
}

TEST_HARNESS_MAIN
