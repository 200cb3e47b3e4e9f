// SPDX-License-Identifier: GPL-2.0
/*
 * steps - what the sequencer makes of steps: each kind of step, dependencies, drains,
 * chains, windows, channels, empty messages, more at once than an operation has
 * requests; point-to-point matching; batches. Two or three ranks in one process.
 */
#include <pthread.h>
#include "team.h"
#include "harness.h"

#define SLOT	(1 << 20)
#define MAX	3

/* Ranks with one buffer for each of two slots, and plans made of given steps. */
struct bench {
	int n;
	struct {
		int fd, comm, buf[2], plan;
		char *mem[2];
		uint64_t seq;
	} r[MAX];
	struct npulink_call call;
};

static int bench_open(struct bench *b, int n)
{
	uint8_t secret[16];
	int r, i;

	memset(b, 0, sizeof(*b));
	b->n = n;
	b->call = (struct npulink_call) {
		.collective = NPULINK_COLL_REDUCE_SCATTERV, .dtype = NPULINK_INT32,
	};
	raw_secret(secret);
	for (r = 0; r < n; r++) {
		b->r[r].fd = raw_open(r);
		if (b->r[r].fd < 0)
			return -errno;
		b->r[r].comm = raw_comm(b->r[r].fd, secret, r, n);
		if (b->r[r].comm < 0)
			return b->r[r].comm;
		for (i = 0; i < 2; i++) {
			b->r[r].mem[i] = raw_anon(SLOT + 64);
			/* Not even aligned to their type. */
			b->r[r].mem[i] += r * 8 + i;
			b->r[r].buf[i] = raw_register(b->r[r].fd, b->r[r].mem[i], SLOT, 0);
			if (b->r[r].buf[i] < 0)
				return b->r[r].buf[i];
		}
	}
	return 0;
}

static void bench_close(struct bench *b)
{
	int r;

	for (r = 0; r < b->n; r++)
		close(b->r[r].fd);
}

static int bench_plan(struct bench *b, int r, struct npulink_step *steps, int n)
{
	struct npulink_slot slots[2] = {
		{ .min_len = SLOT, .access = NPULINK_SLOT_READ | NPULINK_SLOT_WRITE },
		{ .min_len = SLOT, .access = NPULINK_SLOT_READ | NPULINK_SLOT_WRITE },
	};
	struct npulink_plan_create cmd = raw_plan_cmd(b->r[r].comm, slots, 2, steps, n);
	int rc;

	cmd.call = b->call;
	rc = raw_ioctl(b->r[r].fd, NPULINK_PLAN_CREATE, &cmd);
	b->r[r].plan = cmd.out_id;
	if (rc)
		fprintf(stderr, "# rank %d: step %d refused, reason %u\n", r, cmd.out_bad_step,
			cmd.out_reason);
	return rc;
}

static struct npulink_post bench_post(struct bench *b, int r, uint32_t flags)
{
	struct npulink_post post = raw_post_cmd(b->r[r].plan, flags);

	raw_bind(&post, b->r[r].buf[0], 0, SLOT);
	raw_bind(&post, b->r[r].buf[1], 0, SLOT);
	post.deadline_ns = 20000000000ULL;
	return post;
}

/* Post all, in the order of @first, and wait for all. */
static int bench_run(struct bench *b, int first)
{
	struct npulink_result res;
	int i, rc, bad = 0;

	for (i = 0; i < b->n; i++) {
		int r = (first + i) % b->n;
		struct npulink_post post = bench_post(b, r, NPULINK_POST_HELD);

		rc = raw_ioctl(b->r[r].fd, NPULINK_POST, &post);
		if (rc)
			return rc;
		b->r[r].seq = post.out_seq;
	}
	for (i = 0; i < b->n; i++) {
		rc = raw_wait(b->r[i].fd, b->r[i].seq, &res);
		if (rc || res.status) {
			fprintf(stderr, "# rank %d: %d %d cause %u rank %u peer %u step %u\n", i,
				rc, res.status, res.cause, res.rank, res.peer, res.step);
			bad = rc ? rc : res.status;
		}
	}
	return bad;
}

static void bench_fill(struct bench *b)
{
	int r, i, k;

	for (r = 0; r < b->n; r++)
		for (k = 0; k < 2; k++)
			for (i = 0; i < SLOT / 4; i++) {
				int32_t v = (r + 1) * 1000003 + k * 77 + i * 13;

				memcpy(b->r[r].mem[k] + 4 * i, &v, 4);
			}
}

static int32_t filled(int r, int k, int i)
{
	return (r + 1) * 1000003 + k * 77 + i * 13;
}

static int32_t at(struct bench *b, int r, int k, int i)
{
	int32_t v;

	memcpy(&v, b->r[r].mem[k] + 4 * i, 4);
	return v;
}

static struct npulink_step send_step(int peer, uint64_t len, uint64_t off)
{
	struct npulink_step s = raw_step(NPULINK_STEP_SEND, len);

	s.send_peer = peer;
	s.src_off = off;
	return s;
}

static struct npulink_step recv_step(int peer, uint64_t len, uint64_t off)
{
	struct npulink_step s = raw_step(NPULINK_STEP_RECV, len);

	s.recv_peer = peer;
	s.dst_slot = len ? 1 : 0;
	s.dst_off = off;
	return s;
}

/* ---- each kind of step, at sizes around those that matter ------------------------- */

FIXTURE(step) {
	struct bench b;
	size_t len;
};

FIXTURE_VARIANT(step) {
	size_t len;
	unsigned int inline_max;
};

FIXTURE_VARIANT_ADD(step, one_element) { .len = 4, .inline_max = 16384 };
FIXTURE_VARIANT_ADD(step, small) { .len = 4092, .inline_max = 16384 };
FIXTURE_VARIANT_ADD(step, small_by_interrupt) { .len = 4092, .inline_max = 0 };
FIXTURE_VARIANT_ADD(step, slice_less) { .len = (128 << 10) - 4, .inline_max = 16384 };
FIXTURE_VARIANT_ADD(step, slice) { .len = 128 << 10, .inline_max = 16384 };
FIXTURE_VARIANT_ADD(step, slice_more) { .len = (128 << 10) + 4, .inline_max = 16384 };
FIXTURE_VARIANT_ADD(step, slices) { .len = (512 << 10) + 20, .inline_max = 16384 };
FIXTURE_VARIANT_ADD(step, slices_by_interrupt) { .len = (512 << 10) + 20, .inline_max = 0 };

static void set_inline_max(unsigned int n)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", n);
	raw_write(RAW_INLINE_MAX, text);
}

FIXTURE_SETUP(step)
{
	set_inline_max(variant->inline_max);
	self->len = variant->len;
	ASSERT_EQ(0, bench_open(&self->b, 3));
	bench_fill(&self->b);
}

FIXTURE_TEARDOWN(step)
{
	set_inline_max(16384);
	bench_close(&self->b);
}

/* Rank 0 sends, rank 1 does something and passes it on, rank 2 receives. */
static int pipeline(struct bench *b, struct npulink_step middle, size_t len, int first)
{
	struct npulink_step s0 = send_step(1, len, 4), s2 = recv_step(1, len, 8);
	int rc;

	middle.recv_peer = middle.op & NPULINK_STEP_RECV ? 0 : NPULINK_NO_PEER;
	middle.send_peer = 2;
	rc = bench_plan(b, 0, &s0, !!(middle.op & NPULINK_STEP_RECV));
	if (!rc)
		rc = bench_plan(b, 1, &middle, 1);
	if (!rc)
		rc = bench_plan(b, 2, &s2, 1);
	return rc ? rc : bench_run(b, first);
}

#define FOR_ALL(_i, _len, _want, _got) do { \
	size_t bad_ = 0; \
	for (size_t _i = 0; _i < (_len) / 4; _i++) \
		bad_ += (_want) != (_got); \
	EXPECT_EQ(0, bad_); \
} while (0)

TEST_F(step, recv_send)
{
	struct npulink_step s = raw_step(NPULINK_STEP_RECV | NPULINK_STEP_SEND, self->len);
	int first;

	s.dst_slot = 1;
	for (first = 0; first < 3; first++) {
		bench_fill(&self->b);
		ASSERT_EQ(0, pipeline(&self->b, s, self->len, first));
		FOR_ALL(i, self->len, filled(0, 0, i + 1), at(&self->b, 2, 1, i + 2));
		FOR_ALL(i, self->len, filled(0, 0, i + 1), at(&self->b, 1, 1, i));
		/* And nothing beside it. */
		EXPECT_EQ(filled(2, 1, 1), at(&self->b, 2, 1, 1));
		EXPECT_EQ(filled(2, 1, self->len / 4 + 2), at(&self->b, 2, 1, self->len / 4 + 2));
	}
}

TEST_F(step, recv_reduce_send)
{
	struct npulink_step s = raw_step(NPULINK_STEP_RECV | NPULINK_STEP_REDUCE |
					 NPULINK_STEP_SEND, self->len);
	int first;

	s.dst_slot = 1;
	s.src_off = 16;
	for (first = 0; first < 3; first++) {
		bench_fill(&self->b);
		ASSERT_EQ(0, pipeline(&self->b, s, self->len, first));
		FOR_ALL(i, self->len, filled(0, 0, i + 1) + filled(1, 0, i + 4),
			at(&self->b, 2, 1, i + 2));
	}
}

/* In place: src is dst. */
TEST_F(step, recv_reduce_send_in_place)
{
	struct npulink_step s = raw_step(NPULINK_STEP_RECV | NPULINK_STEP_REDUCE |
					 NPULINK_STEP_SEND, self->len);

	ASSERT_EQ(0, pipeline(&self->b, s, self->len, 2));
	FOR_ALL(i, self->len, filled(0, 0, i + 1) + filled(1, 0, i), at(&self->b, 2, 1, i + 2));
	FOR_ALL(i, self->len, filled(0, 0, i + 1) + filled(1, 0, i), at(&self->b, 1, 0, i));
}

TEST_F(step, copy_send)
{
	struct npulink_step s = raw_step(NPULINK_STEP_COPY | NPULINK_STEP_SEND, self->len);

	s.dst_slot = 1;
	ASSERT_EQ(0, pipeline(&self->b, s, self->len, 0));
	FOR_ALL(i, self->len, filled(1, 0, i), at(&self->b, 2, 1, i + 2));
	FOR_ALL(i, self->len, filled(1, 0, i), at(&self->b, 1, 1, i));
}

TEST_F(step, reduce_send)
{
	struct npulink_step s = raw_step(NPULINK_STEP_REDUCE | NPULINK_STEP_SEND, self->len);

	s.src2_slot = 1;
	ASSERT_EQ(0, pipeline(&self->b, s, self->len, 1));
	FOR_ALL(i, self->len, filled(1, 0, i) + filled(1, 1, i), at(&self->b, 2, 1, i + 2));
}

/* A window smaller than the message, down to one element. */
TEST_F(step, window)
{
	static const size_t windows[] = { 4, 12, 100, 4096, 5000, 65532, 131072, 200000 };
	struct npulink_step s = raw_step(NPULINK_STEP_RECV | NPULINK_STEP_REDUCE |
					 NPULINK_STEP_SEND, self->len);
	unsigned int w;

	s.dst_slot = 1;
	s.flags = NPULINK_STEP_F_TRANSIENT;
	for (w = 0; w < ARRAY_SIZE(windows); w++) {
		/* One element at a time takes its time. */
		if (windows[w] > self->len || self->len / windows[w] > 400)
			continue;
		bench_fill(&self->b);
		s.src2_off = windows[w];
		ASSERT_EQ(0, pipeline(&self->b, s, self->len, w % 3));
		FOR_ALL(i, self->len, filled(0, 0, i + 1) + filled(1, 0, i),
			at(&self->b, 2, 1, i + 2));
		EXPECT_EQ(filled(1, 1, windows[w] / 4), at(&self->b, 1, 1, windows[w] / 4));
	}
}

/* Windows behind windows, of sizes that do not go into each other. */
TEST_F(step, window_into_window)
{
	struct npulink_step s = raw_step(NPULINK_STEP_RECV | NPULINK_STEP_SEND, self->len);
	struct npulink_step back = s, steps[2];
	size_t w1 = self->len > 1000 ? 777 : self->len, w2 = self->len > 1000 ? 1001 : self->len;

	/* 0 sends to 1, 1 through a window to 2, 2 through another one back to 0. */
	if (self->len > 130 << 10)
		w1 = 77777, w2 = 100001;
	s.recv_peer = 0;
	s.send_peer = 2;
	s.dst_slot = 1;
	s.flags = NPULINK_STEP_F_TRANSIENT;
	s.src2_off = w1;
	back.recv_peer = 1;
	back.send_peer = 0;
	back.dst_slot = 1;
	back.dst_off = 3;
	back.flags = NPULINK_STEP_F_TRANSIENT;
	back.src2_off = w2;
	steps[0] = send_step(1, self->len, 0);
	steps[1] = recv_step(2, self->len, 1);
	ASSERT_EQ(0, bench_plan(&self->b, 0, steps, 2));
	ASSERT_EQ(0, bench_plan(&self->b, 1, &s, 1));
	ASSERT_EQ(0, bench_plan(&self->b, 2, &back, 1));
	ASSERT_EQ(0, bench_run(&self->b, 1));
	EXPECT_EQ(0, memcmp(self->b.r[0].mem[0], self->b.r[0].mem[1] + 1, self->len));
}

/* A chain of receives is one request, and gives what the steps one by one give. */
TEST_F(step, chain)
{
	struct npulink_step s[4], send = send_step(0, self->len, 0);
	int chained;

	for (chained = 0; chained < 2; chained++) {
		struct npulink_result unused;
		int k;

		(void)unused;
		s[0] = raw_step(NPULINK_STEP_RECV | NPULINK_STEP_REDUCE, self->len);
		s[0].recv_peer = 1;
		s[0].dst_slot = 1;
		s[1] = s[0];
		s[1].recv_peer = 2;
		s[1].src_slot = 1;
		s[2] = raw_step(NPULINK_STEP_REDUCE, self->len);
		s[2].src_slot = 1;
		s[2].dst_slot = 1;
		s[2].src2_slot = 0;
		s[3] = s[2];
		for (k = 1; k < 4; k++) {
			s[k].flags = chained ? NPULINK_STEP_F_CHAIN : 0;
			s[k].dep[0] = !chained;
		}
		bench_fill(&self->b);
		ASSERT_EQ(0, bench_plan(&self->b, 0, s, 4));
		ASSERT_EQ(0, bench_plan(&self->b, 1, &send, 1));
		ASSERT_EQ(0, bench_plan(&self->b, 2, &send, 1));
		ASSERT_EQ(0, bench_run(&self->b, chained));
		FOR_ALL(i, self->len, 3 * filled(0, 0, i) + filled(1, 0, i) + filled(2, 0, i),
			at(&self->b, 0, 1, i));
	}
}

TEST_F(step, average)
{
	struct npulink_step s[2], send = send_step(0, self->len, 0);

	self->b.call.redop = NPULINK_CALL_AVG;
	s[0] = raw_step(NPULINK_STEP_RECV | NPULINK_STEP_REDUCE, self->len);
	s[0].recv_peer = 1;
	s[0].dst_slot = 1;
	s[1] = s[0];
	s[1].recv_peer = 2;
	s[1].src_slot = 1;
	s[1].flags = NPULINK_STEP_F_CHAIN | NPULINK_STEP_F_DIV;
	ASSERT_EQ(0, bench_plan(&self->b, 0, s, 2));
	ASSERT_EQ(0, bench_plan(&self->b, 1, &send, 1));
	ASSERT_EQ(0, bench_plan(&self->b, 2, &send, 1));
	ASSERT_EQ(0, bench_run(&self->b, 0));
	FOR_ALL(i, self->len, (filled(0, 0, i) + filled(1, 0, i) + filled(2, 0, i)) / 3,
		at(&self->b, 0, 1, i));
}

/* ---- order --------------------------------------------------------------------------- */

FIXTURE(order) {
	struct bench b;
};

FIXTURE_SETUP(order)
{
	ASSERT_EQ(0, bench_open(&self->b, 2));
	bench_fill(&self->b);
}

FIXTURE_TEARDOWN(order)
{
	bench_close(&self->b);
}

/* Each step overwrites what the one before has read: any disorder shows. */
TEST_F(order, dependencies)
{
	enum { N = 300 };
	struct npulink_step s[N];
	int i, how;

	for (how = 0; how < 3; how++) {
		for (i = 0; i < N; i++) {
			s[i] = raw_step(NPULINK_STEP_COPY, how == 2 ? 65536 : 64);
			s[i].src_slot = i & 1;
			s[i].dst_slot = !(i & 1);
			s[i].dst_off = i * 64;
			s[i].src_off = i ? (i - 1) * 64 : 0;
			if (!i)
				continue;
			if (how == 1)
				s[i].flags = NPULINK_STEP_F_DRAIN;
			else
				s[i].dep[i % 3] = 1;
		}
		if (how == 2) {
			for (i = 0; i < N; i++) {
				s[i].src_off = 0;
				s[i].dst_off = 0;
			}
		}
		bench_fill(&self->b);
		ASSERT_EQ(0, bench_plan(&self->b, 0, s, N));
		ASSERT_EQ(0, bench_plan(&self->b, 1, NULL, 0));
		ASSERT_EQ(0, bench_run(&self->b, 0));
		for (i = 0; i < 16; i++)
			ASSERT_EQ(filled(0, 0, i),
				  at(&self->b, 0, 0, how == 2 ? i : (N - 1) * 16 + i));
	}
}

/* Wide: a thousand independent steps between two drains, far more than requests. */
TEST_F(order, drains)
{
	enum { W = 1000 };
	static struct npulink_step s[2 * W + 2];
	int i;

	s[0] = raw_step(NPULINK_STEP_COPY, 4);
	s[0].dst_off = SLOT - 4;
	for (i = 0; i < W; i++) {
		s[1 + i] = raw_step(NPULINK_STEP_COPY, 256);
		s[1 + i].src_off = 256 * i;
		s[1 + i].dst_slot = 1;
		s[1 + i].dst_off = 256 * i;
		s[2 + W + i] = raw_step(NPULINK_STEP_COPY, 256);
		s[2 + W + i].src_slot = 1;
		s[2 + W + i].src_off = 256 * i;
		s[2 + W + i].dst_off = 256 * (W - 1 - i);
		s[2 + W + i].dep[0] = 1 + i;
	}
	s[W + 1] = raw_step(0, 0);
	s[W + 1].flags = NPULINK_STEP_F_DRAIN;
	ASSERT_EQ(0, bench_plan(&self->b, 0, s, 2 * W + 2));
	ASSERT_EQ(0, bench_plan(&self->b, 1, NULL, 0));
	ASSERT_EQ(0, bench_run(&self->b, 0));
	for (i = 0; i < W * 64; i++)
		ASSERT_EQ(filled(0, 0, i), at(&self->b, 0, 0, (W - 1 - i / 64) * 64 + i % 64));
}

/* A drain waits for sends, which wait for the peer. */
TEST_F(order, drain_after_sends)
{
	struct npulink_step a[3], b[3];

	a[0] = send_step(1, 4096, 0);
	a[1] = send_step(1, 4096, 4096);
	a[2] = raw_step(NPULINK_STEP_COPY, 8192);
	a[2].src_slot = 1;
	a[2].flags = NPULINK_STEP_F_DRAIN;	/* overwrites what was sent */
	b[0] = raw_step(NPULINK_STEP_COPY, 4096);
	b[0].dst_off = 65536;
	b[1] = recv_step(0, 4096, 0);
	b[1].flags = NPULINK_STEP_F_DRAIN;
	b[2] = recv_step(0, 4096, 4096);
	ASSERT_EQ(0, bench_plan(&self->b, 0, a, 3));
	ASSERT_EQ(0, bench_plan(&self->b, 1, b, 3));
	ASSERT_EQ(0, bench_run(&self->b, 0));
	FOR_ALL(i, 8192, filled(0, 0, i), at(&self->b, 1, 1, i));
	FOR_ALL(i, 8192, filled(0, 1, i), at(&self->b, 0, 0, i));
}

/*
 * The k-th send meets the k-th receive of a channel in list order, even though they
 * become ready in another order: the first one waits for the last.
 */
TEST_F(order, matching_is_by_list_order)
{
	struct npulink_step a[5], b[6];
	int i;

	a[0] = raw_step(NPULINK_STEP_COPY, 4096);
	a[0].src_slot = 1;
	a[0].dst_off = 65536;
	for (i = 1; i < 5; i++)
		a[i] = send_step(1, 1024, i * 1024);
	a[1].dep[0] = 1;
	for (i = 0; i < 4; i++)
		b[i] = recv_step(0, 1024, i * 1024);
	/* Channel 5 is a world of its own. */
	a[4].channel = 5;
	b[0].channel = 5;
	ASSERT_EQ(0, bench_plan(&self->b, 0, a, 5));
	ASSERT_EQ(0, bench_plan(&self->b, 1, b, 4));
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, bench_run(&self->b, i));
		FOR_ALL(k, 1024, filled(0, 0, 1024 + k), at(&self->b, 1, 1, k));
		FOR_ALL(k, 1024 * 3, filled(0, 0, 256 + k), at(&self->b, 1, 1, 256 + k));
	}
}

TEST_F(order, many_streams_at_once)
{
	enum { N = 64 };
	struct npulink_step a[N], b[N];
	int i, round;

	/* All channels, all at once, each in several slices. */
	for (i = 0; i < N; i++) {
		a[i] = send_step(1, 16380, i * 16380);
		a[i].channel = i;
		b[N - 1 - i] = recv_step(0, 16380, i * 16380);
		b[N - 1 - i].channel = i;
	}
	ASSERT_EQ(0, bench_plan(&self->b, 0, a, N));
	ASSERT_EQ(0, bench_plan(&self->b, 1, b, N));
	for (round = 0; round < 4; round++) {
		memset(self->b.r[1].mem[1], 0, SLOT);
		ASSERT_EQ(0, bench_run(&self->b, round % 2));
		FOR_ALL(k, N * 16380, filled(0, 0, k), at(&self->b, 1, 1, k));
	}
}

TEST_F(order, empty_messages)
{
	enum { N = 50 };
	struct npulink_step a[2 * N], b[2 * N];
	int i;

	/* Ping-pong without payload, then nothing at all. */
	for (i = 0; i < N; i++) {
		a[2 * i] = send_step(1, 0, 0);
		a[2 * i + 1] = recv_step(1, 0, 0);
		b[2 * i] = recv_step(0, 0, 0);
		b[2 * i + 1] = send_step(0, 0, 0);
	}
	for (i = 1; i < 2 * N; i++) {
		a[i].dep[0] = 1;
		b[i].dep[0] = 1;
	}
	ASSERT_EQ(0, bench_plan(&self->b, 0, a, 2 * N));
	ASSERT_EQ(0, bench_plan(&self->b, 1, b, 2 * N));
	for (i = 0; i < 20; i++)
		ASSERT_EQ(0, bench_run(&self->b, i % 2));
	ASSERT_EQ(0, bench_plan(&self->b, 0, NULL, 0));
	ASSERT_EQ(0, bench_plan(&self->b, 1, NULL, 0));
	for (i = 0; i < 20; i++)
		ASSERT_EQ(0, bench_run(&self->b, i % 2));
}

/* An empty message passed on, and reduced with nothing. */
TEST_F(order, empty_messages_of_all_kinds)
{
	static const uint8_t ops[] = {
		NPULINK_STEP_RECV, NPULINK_STEP_RECV | NPULINK_STEP_REDUCE,
		NPULINK_STEP_RECV | NPULINK_STEP_SEND,
		NPULINK_STEP_RECV | NPULINK_STEP_REDUCE | NPULINK_STEP_SEND,
		NPULINK_STEP_COPY | NPULINK_STEP_SEND, NPULINK_STEP_REDUCE | NPULINK_STEP_SEND,
		NPULINK_STEP_COPY, NPULINK_STEP_REDUCE, NPULINK_STEP_SEND,
	};
	struct npulink_step a[2], b[1];
	unsigned int i;

	for (i = 0; i < sizeof(ops); i++) {
		int n = 0;

		b[0] = raw_step(ops[i], 0);
		if (ops[i] & NPULINK_STEP_RECV) {
			b[0].recv_peer = 0;
			a[n++] = send_step(1, 0, 0);
		}
		if (ops[i] & NPULINK_STEP_SEND) {
			b[0].send_peer = 0;
			a[n++] = recv_step(1, 0, 0);
		}
		ASSERT_EQ(0, bench_plan(&self->b, 0, a, n));
		ASSERT_EQ(0, bench_plan(&self->b, 1, b, 1));
		ASSERT_EQ(0, bench_run(&self->b, i % 2));
	}
}

/* ---- point to point, batches ------------------------------------------------------------- */

static int p2p_plan(struct bench *b, int r, bool send, uint64_t len, uint64_t off)
{
	struct npulink_step s = send ? send_step(!r, len, off) : recv_step(!r, len, off);

	b->call = (struct npulink_call) { .collective = NPULINK_COLL_P2P, .count = len };
	return bench_plan(b, r, &s, 1) ? -1 : b->r[r].plan;
}

/* Numbered for each pair and direction: the order of posting decides, nothing else. */
TEST_F(order, p2p)
{
	int send[4], recv[4], i, round;
	struct npulink_result res;
	uint64_t seq[8];

	for (i = 0; i < 4; i++) {
		send[i] = p2p_plan(&self->b, 0, true, 4096 + i, i * 8192);
		recv[i] = p2p_plan(&self->b, 1, false, 4096 + i, i * 8192);
		ASSERT_GT(send[i], 0);
		ASSERT_GT(recv[i], 0);
	}
	for (round = 0; round < 3; round++) {
		/* All sends first, all receives first, alternating. */
		for (i = 0; i < 8; i++) {
			bool s = round == 0 ? i < 4 : round == 1 ? i >= 4 : i & 1;
			int k = round == 2 ? i / 2 : i % 4, r = !s;
			struct npulink_post post;

			self->b.r[r].plan = s ? send[k] : recv[k];
			post = bench_post(&self->b, r, NPULINK_POST_HELD);
			ASSERT_EQ(0, raw_ioctl(self->b.r[r].fd, NPULINK_POST, &post));
			seq[2 * k + r] = post.out_seq;
		}
		for (i = 0; i < 8; i++) {
			ASSERT_EQ(0, raw_wait(self->b.r[i & 1].fd, seq[i], &res));
			ASSERT_EQ(0, res.status);
		}
	}
	for (i = 0; i < 4; i++)
		EXPECT_EQ(0, memcmp(self->b.r[0].mem[0] + i * 8192, self->b.r[1].mem[1] + i * 8192,
				    4096 + i));
}

/* A first step that neither sends nor receives says nothing about the direction. */
TEST_F(order, p2p_that_begins_with_something_else)
{
	struct npulink_step s[2];
	struct npulink_post post;
	struct npulink_result res;
	uint64_t seq;
	int recv;

	recv = p2p_plan(&self->b, 1, false, 64, 0);
	s[0] = raw_step(NPULINK_STEP_COPY, 64);
	s[0].src_slot = 1;
	s[1] = send_step(1, 64, 0);
	s[1].dep[0] = 1;
	ASSERT_EQ(0, bench_plan(&self->b, 0, s, 2));
	post = bench_post(&self->b, 0, NPULINK_POST_HELD);
	ASSERT_EQ(0, raw_ioctl(self->b.r[0].fd, NPULINK_POST, &post));
	seq = post.out_seq;
	self->b.r[1].plan = recv;
	post = bench_post(&self->b, 1, NPULINK_POST_WAIT);
	ASSERT_EQ(0, raw_ioctl(self->b.r[1].fd, NPULINK_POST, &post));
	EXPECT_EQ(0, post.out_result.status);
	EXPECT_EQ(0, raw_wait(self->b.r[0].fd, seq, &res));
	EXPECT_EQ(0, memcmp(self->b.r[0].mem[1], self->b.r[1].mem[1], 64));
}

/* Collectives and point-to-point operations are counted independently. */
TEST_F(order, p2p_beside_collectives)
{
	int send = p2p_plan(&self->b, 0, true, 64, 0);
	int recv = p2p_plan(&self->b, 1, false, 64, 0);
	struct npulink_post post;
	struct npulink_result res;
	uint64_t seq;
	int coll[2], i;

	self->b.call = (struct npulink_call) { .collective = NPULINK_COLL_BARRIER };
	for (i = 0; i < 2; i++) {
		struct npulink_step s[2] = { send_step(!i, 0, 0), recv_step(!i, 0, 0) };

		ASSERT_EQ(0, bench_plan(&self->b, i, s, 2));
		coll[i] = self->b.r[i].plan;
	}
	/* 0: send, barrier. 1: barrier (not waited for), receive. */
	self->b.r[0].plan = send;
	post = bench_post(&self->b, 0, NPULINK_POST_HELD);
	ASSERT_EQ(0, raw_ioctl(self->b.r[0].fd, NPULINK_POST, &post));
	seq = post.out_seq;
	self->b.r[0].plan = coll[0];
	self->b.r[1].plan = coll[1];
	ASSERT_EQ(0, bench_run(&self->b, 1));
	self->b.r[1].plan = recv;
	post = bench_post(&self->b, 1, NPULINK_POST_WAIT);
	ASSERT_EQ(0, raw_ioctl(self->b.r[1].fd, NPULINK_POST, &post));
	EXPECT_EQ(0, post.out_result.status);
	EXPECT_EQ(-1ULL, post.out_result.number);
	EXPECT_EQ(0, raw_wait(self->b.r[0].fd, seq, &res));
}

static void *batch_thread(void *arg)
{
	struct bench *b = arg;
	struct npulink_post_batch cmd = {
		.size = sizeof(cmd), .flags = NPULINK_POST_WAIT, .nposts = 2,
		.wait_until_ns = RAW_FOREVER, .posts = (uintptr_t)b->r[0].mem[0],
	};

	return (void *)(long)raw_ioctl(b->r[0].fd, NPULINK_POST_BATCH, &cmd);
}


/* Both sides give a send and a receive, one in this order, one in the other. */
TEST_F(order, batch_of_send_and_recv)
{
	int plan[2][2], r, round;
	pthread_t thread;
	void *rc;

	for (r = 0; r < 2; r++) {
		plan[r][0] = p2p_plan(&self->b, r, true, 200000, 65536);
		plan[r][1] = p2p_plan(&self->b, r, false, 200000, 0);
	}
	for (round = 0; round < 4; round++) {
		struct npulink_post posts[2][2];
		struct npulink_post_batch cmd = {
			.size = sizeof(cmd), .flags = NPULINK_POST_WAIT, .nposts = 2,
			.wait_until_ns = RAW_FOREVER, .posts = (uintptr_t)posts[1],
		};
		int k;

		bench_fill(&self->b);
		for (r = 0; r < 2; r++)
			for (k = 0; k < 2; k++) {
				self->b.r[r].plan = plan[r][r ^ k ^ (round & 1)];
				posts[r][k] = bench_post(&self->b, r, 0);
				posts[r][k].cookie = 10 * r + k;
			}
		memcpy(self->b.r[0].mem[0], posts[0], sizeof(posts[0]));
		pthread_create(&thread, NULL, batch_thread, &self->b);
		ASSERT_EQ(0, raw_ioctl(self->b.r[1].fd, NPULINK_POST_BATCH, &cmd));
		pthread_join(thread, &rc);
		EXPECT_EQ(NULL, rc);
		EXPECT_EQ(2, cmd.out_posted);
		for (k = 0; k < 2; k++) {
			EXPECT_EQ(0, posts[1][k].out_result.status);
			EXPECT_EQ(10 + k, posts[1][k].out_result.cookie);
			EXPECT_EQ(posts[1][k].out_seq, posts[1][k].out_result.seq);
		}
		FOR_ALL(i, 200000, filled(0, 0, 16384 + i), at(&self->b, 1, 1, i));
		FOR_ALL(i, 200000, filled(1, 0, 16384 + i), at(&self->b, 0, 1, i));
	}
}

/* As many as a batch may have, of which 512 can be in flight. */
TEST_F(order, largest_batch)
{
	static struct npulink_post posts[NPULINK_MAX_BATCH];
	struct npulink_post_batch cmd = {
		.size = sizeof(cmd), .nposts = NPULINK_MAX_BATCH, .posts = (uintptr_t)posts,
		.flags = NPULINK_POST_WAIT, .wait_until_ns = RAW_FOREVER,
	};
	struct npulink_device_info info;
	struct npulink_step s;
	uint32_t i;
	int rc;

	ASSERT_EQ(0, raw_info(self->b.r[0].fd, &info));
	s = raw_step(NPULINK_STEP_COPY, 64);
	s.dst_slot = 1;
	ASSERT_EQ(0, bench_plan(&self->b, 0, &s, 1));
	for (i = 0; i < NPULINK_MAX_BATCH; i++) {
		posts[i] = bench_post(&self->b, 0, 0);
		posts[i].cookie = i;
	}
	rc = raw_ioctl(self->b.r[0].fd, NPULINK_POST_BATCH, &cmd);
	EXPECT_EQ(-EBUSY, rc);
	EXPECT_EQ(info.out_max_inflight, cmd.out_posted);
	/* One was refused, so the others were not waited for. */
	for (i = 0; i < cmd.out_posted; i++) {
		struct npulink_result res;

		ASSERT_EQ(0, raw_wait(self->b.r[0].fd, posts[i].out_seq, &res));
		ASSERT_EQ(0, res.status);
		ASSERT_EQ(i, res.cookie);
	}
	/* All were fetched: there is room again. */
	cmd.nposts = info.out_max_inflight;
	EXPECT_EQ(0, raw_ioctl(self->b.r[0].fd, NPULINK_POST_BATCH, &cmd));
	for (i = 0; i < cmd.nposts; i++)
		ASSERT_EQ(i, posts[i].out_result.cookie);
}

TEST_HARNESS_MAIN
