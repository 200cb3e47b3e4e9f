// SPDX-License-Identifier: GPL-2.0
/*
 * long_plans - plans with very many steps that need no engine: they end, by themselves and by an
 * abort, and whoever runs them lets interrupts in meanwhile. Else the kernel says so in its log.
 *
 * npulink-test: timeout=120
 */
#include "raw.h"
#include "harness.h"

#define OPS	4

FIXTURE(long_plans) {
	int fd[2], comm[2];
	long long inline_max;
	uint32_t n;
	struct npulink_step *steps;
};

FIXTURE_SETUP(long_plans)
{
	uint8_t secret[16];
	int r;

	self->inline_max = raw_read(RAW_INLINE_MAX);
	self->n = getenv("NPULINK_SLOW") ? 1 << 15 : 1 << 18;
	self->steps = calloc(self->n, sizeof(*self->steps));
	ASSERT_NE(NULL, self->steps);
	raw_secret(secret);
	for (r = 0; r < 2; r++) {
		self->fd[r] = raw_open(r);
		ASSERT_GE(self->fd[r], 0);
		self->comm[r] = raw_comm(self->fd[r], secret, r, 2);
		ASSERT_GT(self->comm[r], 0);
	}
}

FIXTURE_TEARDOWN(long_plans)
{
	char text[32];

	snprintf(text, sizeof(text), "%lld", self->inline_max);
	raw_write(RAW_INLINE_MAX, text);
	close(self->fd[0]);
	close(self->fd[1]);
	free(self->steps);
}

/* Rank 0's, of n steps: it receives nothing, and many a step comes behind that, or not. */
static int many(struct __test_metadata *_metadata, FIXTURE_DATA(long_plans) *self, bool drains)
{
	uint32_t i;

	self->steps[0] = raw_step(NPULINK_STEP_RECV, 0);
	self->steps[0].recv_peer = 1;
	for (i = 1; i < self->n; i++) {
		self->steps[i] = raw_step(0, 0);
		if (!drains)
			self->steps[i].dep[0] = i;
		else if (i < self->n / 2)
			self->steps[i].flags = NPULINK_STEP_F_DRAIN;
	}
	i = raw_plan(self->fd[0], self->comm[0], NULL, 0, self->steps, self->n);
	EXPECT_GT((int)i, 0);
	return i;
}

static int sender(FIXTURE_DATA(long_plans) *self)
{
	struct npulink_step step = raw_step(NPULINK_STEP_SEND, 0);

	step.send_peer = 0;
	return raw_plan(self->fd[1], self->comm[1], NULL, 0, &step, 1);
}

/* Steps that end while what they drain is still waited for. */
TEST_F(long_plans, drains)
{
	int plan = many(_metadata, self, true), peer = sender(self);
	struct npulink_post post = raw_post_cmd(plan, NPULINK_POST_HELD);
	struct npulink_post send = raw_post_cmd(peer, NPULINK_POST_WAIT);
	struct npulink_result res;

	ASSERT_EQ(0, raw_ioctl(self->fd[0], NPULINK_POST, &post));
	ASSERT_EQ(0, raw_ioctl(self->fd[1], NPULINK_POST, &send));
	ASSERT_EQ(0, raw_wait(self->fd[0], post.out_seq, &res));
	EXPECT_EQ(0, res.status);
}

/* One call of the peer has several of them go on. */
TEST_F(long_plans, several_at_once)
{
	int plan = many(_metadata, self, false), peer = sender(self), i;
	struct npulink_post post[OPS], send[OPS];
	struct npulink_post_batch batch = {
		.size = sizeof(batch), .nposts = OPS, .posts = (uintptr_t)send,
	};
	struct npulink_result res;

	for (i = 0; i < OPS; i++) {
		post[i] = raw_post_cmd(plan, NPULINK_POST_HELD);
		send[i] = raw_post_cmd(peer, NPULINK_POST_HELD);
		ASSERT_EQ(0, raw_ioctl(self->fd[0], NPULINK_POST, &post[i]));
	}
	ASSERT_EQ(0, raw_ioctl(self->fd[1], NPULINK_POST_BATCH, &batch));
	for (i = 0; i < OPS; i++) {
		ASSERT_EQ(0, raw_wait(self->fd[0], post[i].out_seq, &res));
		EXPECT_EQ(0, res.status);
		ASSERT_EQ(0, raw_wait(self->fd[1], send[i].out_seq, &res));
		EXPECT_EQ(0, res.status);
	}
}

static struct npulink_step copy_step(void)
{
	struct npulink_step step = raw_step(NPULINK_STEP_COPY, 4096);

	step.dst_slot = 1;
	return step;
}

static const struct npulink_slot two_slots[] = {
	{ .min_len = 4096, .access = NPULINK_SLOT_READ },
	{ .min_len = 4096, .access = NPULINK_SLOT_WRITE },
};

static struct npulink_post post_copy(int plan, int buf, uint32_t flags)
{
	struct npulink_post post = raw_post_cmd(plan, flags);

	raw_bind(&post, buf, 0, 4096);
	raw_bind(&post, buf, 4096, 4096);
	return post;
}

/* The last step of many moves something, when all others are done. */
TEST_F(long_plans, and_then_a_copy)
{
	int32_t *mem = raw_anon(8192);
	struct npulink_post post;
	int buf, plan, i;

	buf = raw_register(self->fd[0], mem, 8192, 0);
	ASSERT_GT(buf, 0);
	for (i = 0; i < (int)self->n - 1; i++)
		self->steps[i] = raw_step(0, 0);
	self->steps[i] = copy_step();
	self->steps[i].flags = NPULINK_STEP_F_DRAIN;
	plan = raw_plan(self->fd[0], self->comm[0], two_slots, 2, self->steps, self->n);
	ASSERT_GT(plan, 0);
	for (i = 0; i < 3; i++) {
		mem[0] = i + 1;
		mem[1024] = 0;
		post = post_copy(plan, buf, NPULINK_POST_WAIT);
		ASSERT_EQ(0, raw_ioctl(self->fd[0], NPULINK_POST, &post));
		EXPECT_EQ(0, post.out_result.status);
		EXPECT_EQ(i + 1, mem[1024]);
	}
}

/* An interrupt has more steps start than it may look at: somebody else goes on. */
TEST_F(long_plans, begun_by_an_interrupt)
{
	const uint32_t n = 5000, rounds = getenv("NPULINK_SLOW") ? 30 : 200;
	struct npulink_result res;
	uint32_t i, round;
	int plan, buf;

	ASSERT_EQ(0, raw_write(RAW_INLINE_MAX, "0"));
	buf = raw_register(self->fd[0], raw_anon(8192), 8192, 0);
	ASSERT_GT(buf, 0);
	self->steps[0] = copy_step();
	for (i = 1; i < n; i++) {
		self->steps[i] = raw_step(0, 0);
		self->steps[i].dep[0] = i;
	}
	plan = raw_plan(self->fd[0], self->comm[0], two_slots, 2, self->steps, n);
	ASSERT_GT(plan, 0);
	for (round = 0; round < rounds; round++) {
		struct npulink_post post[OPS];

		for (i = 0; i < OPS; i++) {
			post[i] = post_copy(plan, buf, NPULINK_POST_HELD);
			ASSERT_EQ(0, raw_ioctl(self->fd[0], NPULINK_POST, &post[i]));
		}
		for (i = 0; i < OPS; i++) {
			ASSERT_EQ(0, raw_wait(self->fd[0], post[i].out_seq, &res));
			EXPECT_EQ(0, res.status);
		}
	}
}

/* An interrupt begins what two ranks pass to each other over and over, which needs no engine. */
TEST_F(long_plans, to_and_fro)
{
	uint32_t n = self->n / 4, i;
	struct npulink_result res;
	struct npulink_post post[2];
	int plan, buf, r;

	ASSERT_EQ(0, raw_write(RAW_INLINE_MAX, "0"));
	for (r = 0; r < 2; r++) {
		buf = raw_register(self->fd[r], raw_anon(8192), 8192, 0);
		ASSERT_GT(buf, 0);
		self->steps[0] = copy_step();
		for (i = 1; i < n; i++) {
			bool send = i % 2 != (uint32_t)r;

			self->steps[i] = raw_step(send ? NPULINK_STEP_SEND : NPULINK_STEP_RECV, 0);
			*(send ? &self->steps[i].send_peer : &self->steps[i].recv_peer) = !r;
			self->steps[i].dep[0] = 1;
		}
		plan = raw_plan(self->fd[r], self->comm[r], two_slots, 2, self->steps, n);
		ASSERT_GT(plan, 0);
		post[r] = post_copy(plan, buf, NPULINK_POST_HELD);
	}
	for (r = 0; r < 2; r++)
		ASSERT_EQ(0, raw_ioctl(self->fd[r], NPULINK_POST, &post[r]));
	for (r = 0; r < 2; r++) {
		ASSERT_EQ(0, raw_wait(self->fd[r], post[r].out_seq, &res));
		EXPECT_EQ(0, res.status);
	}
}

TEST_F(long_plans, aborted)
{
	int plan = many(_metadata, self, true), i;
	struct npulink_post post[OPS];
	struct npulink_result res;

	for (i = 0; i < OPS; i++) {
		post[i] = raw_post_cmd(plan, NPULINK_POST_HELD);
		ASSERT_EQ(0, raw_ioctl(self->fd[0], NPULINK_POST, &post[i]));
	}
	ASSERT_EQ(0, raw_abort(self->fd[1], self->comm[1], 7));
	for (i = 0; i < OPS; i++) {
		ASSERT_EQ(0, raw_wait(self->fd[0], post[i].out_seq, &res));
		EXPECT_EQ(-ECANCELED, res.status);
	}
}

TEST_HARNESS_MAIN
