// SPDX-License-Identifier: GPL-2.0
/*
 * interrupts - the inline path switched off: the same results bit for bit, and every
 * step and every doorbell went through an interrupt, as the kernel itself counts them, or
 * through the worker to which interrupts leave what takes them too long.
 */
#include "team.h"
#include "harness.h"

#define RANKS	4

FIXTURE(irq) {
	struct team t;
	size_t len;
};

FIXTURE_VARIANT(irq) {
	size_t len;
};

FIXTURE_VARIANT_ADD(irq, tiny) { .len = 16 };
FIXTURE_VARIANT_ADD(irq, small) { .len = 4000 };
FIXTURE_VARIANT_ADD(irq, large) { .len = 1 << 20 };

static void set_inline_max(unsigned int n)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", n);
	raw_write(RAW_INLINE_MAX, text);
}

/* Interrupts of a device so far, "done" or "bell", on all processors. */
static long irq_count(unsigned int dev, const char *what)
{
	char line[1024], name[32], *p, *end;
	FILE *f = fopen("/proc/interrupts", "re");
	long sum = 0, n;

	snprintf(name, sizeof(name), "npu%u-%s\n", dev, what);
	while (f && fgets(line, sizeof(line), f)) {
		p = strstr(line, name);
		if (!p || p + strlen(p) != line + strlen(line))
			continue;
		p = strchr(line, ':');
		if (!p)
			continue;
		for (p++; n = strtol(p, &end, 10), end != p; p = end)
			sum += n;
		break;
	}
	if (f)
		fclose(f);
	return sum;
}

FIXTURE_SETUP(irq)
{
	self->len = variant->len;
	ASSERT_EQ(0, team_open(&self->t, RANKS, RANKS, variant->len));
}

FIXTURE_TEARDOWN(irq)
{
	raw_knobs_reset(RANKS);
	set_inline_max(16384);
	team_close(&self->t);
}

TEST_F(irq, same_results_by_interrupt)
{
	static int32_t expect[1 << 18];
	long done[RANKS], bell[RANKS], slices;
	struct npulink_device_info info;
	uint64_t seen;
	uint32_t r;

	ASSERT_EQ(0, team_allreduce(&self->t, 9));
	memcpy(expect, self->t.m[1].recv, self->len);

	set_inline_max(0);
	ASSERT_EQ(0, raw_info(self->t.m[0].fd, &info));
	EXPECT_EQ(0, info.out_inline_max);
	for (r = 0; r < RANKS; r++) {
		done[r] = irq_count(r, "done");
		bell[r] = irq_count(r, "bell");
	}
	ASSERT_EQ(0, team_allreduce(&self->t, 9));
	for (r = 0; r < RANKS; r++)
		EXPECT_EQ(0, memcmp(expect, self->t.m[r].recv, self->len));

	/* 2n - 2 steps of a rank move bytes, each slice by slice. */
	slices = (self->len / RANKS + info.out_slice - 1) / info.out_slice;
	for (r = 0; r < RANKS; r++) {
		done[r] = irq_count(r, "done") - done[r];
		bell[r] = irq_count(r, "bell") - bell[r];
		/* One may report several that came at the same time. */
		EXPECT_GE(done[r], 1);
		EXPECT_LE(done[r], slices * (2 * RANKS - 2));
		EXPECT_GE(bell[r], 1);
		TH_LOG("npu%u: %ld requests, %ld completion interrupts, %ld doorbells", r,
		       slices * (2 * RANKS - 2), done[r], bell[r]);
	}
	seen = irq_count(0, "done");

	/* With the inline path, small ones need none. */
	set_inline_max(1 << 20);
	ASSERT_EQ(0, team_allreduce(&self->t, 9));
	for (r = 0; r < RANKS; r++)
		EXPECT_EQ(0, memcmp(expect, self->t.m[r].recv, self->len));
	EXPECT_EQ(seen, (uint64_t)irq_count(0, "done"));
}

/* One at a time, nothing can be reported together: an interrupt for each request. */
TEST_F(irq, one_for_each_request)
{
	struct npulink_slot slots[2] = {
		{ .min_len = self->len, .access = NPULINK_SLOT_READ },
		{ .min_len = self->len, .access = NPULINK_SLOT_WRITE },
	};
	struct npulink_step step = raw_step(NPULINK_STEP_COPY, self->len);
	struct member *m = &self->t.m[0];
	struct npulink_device_info info;
	struct npulink_post post;
	long before, slices;
	uint8_t secret[16];
	int comm, plan, i;

	set_inline_max(0);
	ASSERT_EQ(0, raw_info(m->fd, &info));
	raw_secret(secret);
	comm = raw_comm(m->fd, secret, 0, 1);
	step.dst_slot = 1;
	plan = raw_plan(m->fd, comm, slots, 2, &step, 1);
	ASSERT_GT(plan, 0);
	before = irq_count(0, "done");
	for (i = 0; i < 10; i++) {
		post = raw_post_cmd(plan, NPULINK_POST_WAIT);
		raw_bind(&post, m->buf, 0, self->len);
		raw_bind(&post, m->buf, self->len, self->len);
		ASSERT_EQ(0, raw_ioctl(m->fd, NPULINK_POST, &post));
		ASSERT_EQ(0, post.out_result.status);
	}
	slices = (self->len + info.out_slice - 1) / info.out_slice;
	EXPECT_EQ(10 * slices, irq_count(0, "done") - before);
}

static long long polled(void)
{
	long long sum = 0;
	uint32_t r;

	for (r = 0; r < RANKS; r++)
		sum += raw_knob_get(r, "polled");
	return sum;
}

/* Interrupts that may take no time: their worker reports every event, none is left behind. */
TEST_F(irq, left_to_the_worker)
{
	long done[RANKS], interrupts = 0;
	struct npulink_device_info info;
	long long before, slices, events;
	uint32_t r, k;

	set_inline_max(0);
	ASSERT_EQ(0, raw_info(self->t.m[0].fd, &info));
	slices = (self->len / RANKS + info.out_slice - 1) / info.out_slice;
	for (r = 0; r < RANKS; r++) {
		ASSERT_EQ(0, raw_knob(r, "irq_ns", 0));
		done[r] = irq_count(r, "done");
	}
	before = polled();
	for (k = 0; k < 100; k++)
		ASSERT_EQ(0, team_allreduce(&self->t, k));
	events = polled() - before;
	/* Each completion, and doorbells beside them. */
	EXPECT_GT(events, 100 * RANKS * slices * (2 * RANKS - 2));
	for (r = 0; r < RANKS; r++) {
		/* It is still an interrupt that the worker is woken by. */
		EXPECT_GE(irq_count(r, "done") - done[r], 1);
		interrupts += irq_count(r, "done") - done[r];
	}
	TH_LOG("%lld events, %ld completion interrupts", events, interrupts);

	/* To and fro. */
	for (k = 0; k < 100; k++) {
		ASSERT_EQ(0, raw_knob(k % RANKS, "irq_ns", k / RANKS % 2 ? 0 : RAW_IRQ_NS));
		ASSERT_EQ(0, team_allreduce(&self->t, k));
	}

	/* And none again. */
	for (r = 0; r < RANKS; r++)
		ASSERT_EQ(0, raw_knob(r, "irq_ns", 4000000000));
	/* Bells that nobody waits for may still be on their way. */
	do {
		before = polled();
		raw_sleep_ms(200);
	} while (polled() != before);
	ASSERT_EQ(0, team_allreduce(&self->t, k));
	EXPECT_EQ(before, polled());
}

/* It finds also what was lost before. */
TEST_F(irq, lost_and_left_to_the_worker)
{
	struct team rescue;
	uint32_t r;

	ASSERT_EQ(0, team_open(&rescue, RANKS, RANKS, self->len));
	set_inline_max(0);
	for (r = 0; r < RANKS; r++)
		ASSERT_EQ(0, raw_knob(r, "irq_ns", 0));
	ASSERT_EQ(0, raw_knob(0, "drop_irq", 1));
	ASSERT_EQ(0, team_start(&self->t, 0));
	ASSERT_TRUE(RAW_EVENTUALLY(!raw_knob_get(0, "drop_irq")));
	EXPECT_EQ(0, team_allreduce(&rescue, 1));
	EXPECT_EQ(0, team_finish(&self->t));
	EXPECT_EQ(0, raw_knob_get(0, "lost"));
	team_close(&rescue);
}

TEST_HARNESS_MAIN
