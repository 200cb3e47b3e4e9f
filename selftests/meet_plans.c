// SPDX-License-Identifier: GPL-2.0
/*
 * meet_plans.c - what the last rank carries out for all ranks (kernel/core/run/round.c) is what the
 * plans of these very operations say, though plans come and go meanwhile: a script that is gone
 * may leave its place to one that was made for other plans. On one processor, where what was
 * freed last is given out first.
 *
 * npulink-test: cpus=1
 */
#include "harness.h"
#include "raw.h"

#define LEN	64
#define FAR	4096		/* where the other plan writes, and memory of the same buffer */
#define TO	8192		/* where the result is to be */
#define SIZE	65536

FIXTURE(plans) {
	int fd[2], comm[2], buf[2];
	unsigned char *mem[2];
};

FIXTURE_SETUP(plans)
{
	uint8_t secret[16];

	raw_secret(secret);
	for (int r = 0; r < 2; r++) {
		self->fd[r] = raw_open(r);
		self->comm[r] = raw_comm(self->fd[r], secret, r, 2);
		self->mem[r] = raw_anon(SIZE);
		self->buf[r] = raw_register(self->fd[r], self->mem[r], SIZE, 0);
		ASSERT_LT(0, self->comm[r]);
		ASSERT_LT(0, self->buf[r]);
	}
}

FIXTURE_TEARDOWN(plans)
{
	for (int r = 0; r < 2; r++) {
		close(self->fd[r]);
		munmap(self->mem[r], SIZE);
	}
}

/* Each sends to the other one; what comes is written at @off of the second slot. */
static int exchange(FIXTURE_DATA(plans) *p, int r, uint64_t off)
{
	const struct npulink_slot slots[] = {
		{ .min_len = LEN, .access = NPULINK_SLOT_READ },
		{ .min_len = off + LEN, .access = NPULINK_SLOT_WRITE },
	};
	struct npulink_step steps[] = {
		raw_step(NPULINK_STEP_SEND, LEN), raw_step(NPULINK_STEP_RECV, LEN),
	};
	struct npulink_plan_create cmd;

	steps[0].send_peer = !r;
	steps[1].recv_peer = !r;
	steps[1].dst_slot = 1;
	steps[1].dst_off = off;
	cmd = raw_plan_cmd(p->comm[r], slots, 2, steps, 2);
	cmd.call.count = LEN / 4;
	return raw_ioctl(p->fd[r], NPULINK_PLAN_CREATE, &cmd) ? -1 : (int)cmd.out_id;
}

static uint64_t start(FIXTURE_DATA(plans) *p, int r, int plan, uint64_t off)
{
	struct npulink_post post = raw_post_cmd(plan, NPULINK_POST_HELD);

	raw_bind(&post, p->buf[r], 0, LEN);
	raw_bind(&post, p->buf[r], TO, off + LEN);
	return raw_ioctl(p->fd[r], NPULINK_POST, &post) ? 0 : post.out_seq;
}

static bool ends(FIXTURE_DATA(plans) *p, int r, uint64_t seq)
{
	struct npulink_result result;

	return seq && !raw_wait(p->fd[r], seq, &result) && !result.status;
}

TEST_F(plans, graph_of_others)
{
	for (unsigned int i = 1; i <= 20; i++) {
		int a = exchange(self, 0, 0), b = exchange(self, 1, 0), b2, c, far;
		uint64_t s[5];

		/* a and b have a script. */
		s[0] = start(self, 0, a, 0);
		s[1] = start(self, 1, b, 0);
		ASSERT_TRUE(ends(self, 0, s[0]) && ends(self, 1, s[1]));
		b2 = exchange(self, 1, 0);
		c = exchange(self, 1, 0);
		far = exchange(self, 0, FAR);
		/* a comes a second and a third time. The third has a's script, */
		s[0] = start(self, 0, a, 0);
		s[1] = start(self, 0, far, FAR);
		s[2] = start(self, 0, a, 0);
		/* .. the second time a gets another one, with b2, .. */
		s[3] = start(self, 1, b2, 0);
		ASSERT_TRUE(ends(self, 0, s[0]) && ends(self, 1, s[3]));
		/* .. and the old one goes with b. In its place is far's and c's, .. */
		ASSERT_EQ(0, raw_destroy(self->fd[1], b));
		raw_sleep_ms(30);
		s[4] = start(self, 1, c, 0);
		ASSERT_TRUE(ends(self, 0, s[1]) && ends(self, 1, s[4]));
		memset(self->mem[0] + TO, 0xee, SIZE - TO);
		memset(self->mem[1], i, LEN);
		/* .. and c meets the third a. */
		s[4] = start(self, 1, c, 0);
		ASSERT_TRUE(ends(self, 0, s[2]) && ends(self, 1, s[4]));
		EXPECT_EQ(i, self->mem[0][TO]);
		EXPECT_EQ(0xee, self->mem[0][TO + FAR]);
		raw_destroy(self->fd[0], a);
		raw_destroy(self->fd[0], far);
		raw_destroy(self->fd[1], b2);
		raw_destroy(self->fd[1], c);
		raw_sleep_ms(10);
	}
}

TEST_HARNESS_MAIN
