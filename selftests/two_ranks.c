// SPDX-License-Identifier: GPL-2.0
/*
 * two_ranks - the smallest collective there is: two files of one process, each sends
 * to the other and reduces what it receives, inline and through interrupts.
 */
#include "raw.h"
#include "harness.h"

FIXTURE(two_ranks) {
	int fd[2];
	int comm[2];
	int plan[2];
	int in[2], out[2];
	int32_t *src[2], *dst[2];
	size_t len;
};

FIXTURE_VARIANT(two_ranks) {
	size_t len;
};

FIXTURE_VARIANT_ADD(two_ranks, tiny) { .len = 8 };
FIXTURE_VARIANT_ADD(two_ranks, inlined) { .len = 4096 };
FIXTURE_VARIANT_ADD(two_ranks, one_slice) { .len = 64 << 10 };
FIXTURE_VARIANT_ADD(two_ranks, many_slices) { .len = 3 << 20 };

FIXTURE_SETUP(two_ranks)
{
	uint8_t secret[16];
	int r;

	raw_secret(secret);
	self->len = variant->len;
	for (r = 0; r < 2; r++) {
		struct npulink_slot slots[] = {
			{ .min_len = self->len, .access = NPULINK_SLOT_READ },
			{ .min_len = self->len, .access = NPULINK_SLOT_WRITE },
		};
		struct npulink_step steps[2];
		size_t i;

		self->fd[r] = raw_open(r);
		ASSERT_GE(self->fd[r], 0);
		self->comm[r] = raw_comm(self->fd[r], secret, r, 2);
		ASSERT_GT(self->comm[r], 0);
		self->src[r] = mmap(NULL, self->len, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		self->dst[r] = mmap(NULL, self->len, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		for (i = 0; i < self->len / 4; i++)
			self->src[r][i] = (r + 1) * i;
		self->in[r] = raw_register(self->fd[r], self->src[r], self->len,
					   NPULINK_BUF_READONLY);
		ASSERT_GT(self->in[r], 0);
		self->out[r] = raw_register(self->fd[r], self->dst[r], self->len, 0);
		ASSERT_GT(self->out[r], 0);
		steps[0] = raw_step(NPULINK_STEP_SEND, self->len);
		steps[0].send_peer = !r;
		steps[1] = raw_step(NPULINK_STEP_RECV | NPULINK_STEP_REDUCE, self->len);
		steps[1].recv_peer = !r;
		steps[1].dst_slot = 1;
		self->plan[r] = raw_plan(self->fd[r], self->comm[r], slots, 2, steps, 2);
		ASSERT_GT(self->plan[r], 0);
	}
}

FIXTURE_TEARDOWN(two_ranks)
{
	int r;

	for (r = 0; r < 2; r++) {
		EXPECT_EQ(-EBUSY, raw_destroy(self->fd[r], self->comm[r]));
		EXPECT_EQ(0, raw_destroy(self->fd[r], self->plan[r]));
		EXPECT_EQ(0, raw_destroy(self->fd[r], self->comm[r]));
		EXPECT_EQ(0, raw_destroy(self->fd[r], self->in[r]));
		EXPECT_EQ(-ENOENT, raw_destroy(self->fd[r], self->in[r]));
		EXPECT_EQ(0, close(self->fd[r]));
	}
}

static void two_ranks_bind(struct npulink_post *post, int in, int out, size_t len)
{
	raw_bind(post, in, 0, len);
	raw_bind(post, out, 0, len);
}

TEST_F(two_ranks, allreduce)
{
	int round, r;

	for (round = 0; round < 10; round++) {
		struct npulink_post a = raw_post_cmd(self->plan[0], NPULINK_POST_HELD);
		struct npulink_post b = raw_post_cmd(self->plan[1], NPULINK_POST_WAIT);
		struct npulink_result res;
		size_t i, bad = 0;

		memset(self->dst[0], 0, self->len);
		memset(self->dst[1], 0, self->len);
		a.cookie = 17;
		two_ranks_bind(&a, self->in[0], self->out[0], self->len);
		two_ranks_bind(&b, self->in[1], self->out[1], self->len);
		ASSERT_EQ(0, raw_ioctl(self->fd[0], NPULINK_POST, &a));
		ASSERT_NE(0, a.out_seq);
		ASSERT_EQ(0, raw_ioctl(self->fd[1], NPULINK_POST, &b));
		EXPECT_EQ(b.out_seq, b.out_result.seq);
		EXPECT_EQ(0, b.out_result.status);
		ASSERT_EQ(0, raw_wait(self->fd[0], a.out_seq, &res));
		EXPECT_EQ(0, res.status);
		EXPECT_EQ(17, res.cookie);
		EXPECT_EQ(-ENOENT, raw_wait(self->fd[0], a.out_seq, &res));
		for (r = 0; r < 2; r++)
			for (i = 0; i < self->len / 4; i++)
				bad += self->dst[r][i] != (int32_t)(3 * i);
		ASSERT_EQ(0, bad);
	}
}

TEST_HARNESS_MAIN
