// SPDX-License-Identifier: GPL-2.0
/*
 * failure - every operation ends, and says why: abort, deadline, different calls, a
 * device that fails, is late, or loses interrupts. All ranks are told the same cause,
 * and what is told names who and where.
 */
#include <pthread.h>
#include "team.h"
#include "harness.h"

#define LEN	(256 << 10)
#define MS	1000000ULL

FIXTURE(failure) {
	struct team t;
};

FIXTURE_VARIANT(failure) {
	uint32_t nranks;
	size_t len;
};

FIXTURE_VARIANT_ADD(failure, two) { .nranks = 2, .len = LEN };
FIXTURE_VARIANT_ADD(failure, eight) { .nranks = 8, .len = LEN };
FIXTURE_VARIANT_ADD(failure, tiny) { .nranks = 5, .len = 20 };

FIXTURE_SETUP(failure)
{
	raw_knobs_reset(8);
	ASSERT_EQ(0, team_open(&self->t, variant->nranks, 8, variant->len));
}

FIXTURE_TEARDOWN(failure)
{
	raw_knobs_reset(8);
	team_close(&self->t);
}

/* Each of the posted operations and each communicator tells the same. */
#define ALL_TOLD(_cause, _errno, _posted) do { \
	struct npulink_result res_; \
	struct npulink_comm_status st_; \
	uint32_t r_; \
	for (r_ = 0; r_ < self->t.n; r_++) { \
		const struct member *m_ = &self->t.m[r_]; \
		if (_posted) \
			ASSERT_EQ(0, raw_wait(m_->fd, self->t.seq[r_], &res_)); \
		ASSERT_EQ(0, raw_status(m_->fd, m_->comm, &st_)); \
		EXPECT_EQ(_cause, st_.out_cause); \
		EXPECT_EQ(-(_errno), st_.out_status); \
		if (!(_posted)) \
			continue; \
		EXPECT_EQ(-(_errno), res_.status); \
		EXPECT_EQ(_cause, res_.cause); \
		EXPECT_EQ(st_.out_rank, res_.rank); \
		EXPECT_EQ(st_.out_peer, res_.peer); \
		EXPECT_EQ(st_.out_step, res_.step); \
		EXPECT_EQ(st_.out_number, res_.number); \
		EXPECT_EQ(m_->comm, (int)res_.comm_id); \
		EXPECT_EQ(self->t.seq[r_], res_.seq); \
		EXPECT_EQ(-(_errno), member_run(m_, NULL)); \
	} \
} while (0)

static int start_but(struct team *t, uint32_t absent, uint64_t deadline_ns)
{
	uint32_t r;
	int rc = 0;

	for (r = 0; !rc && r < t->n; r++)
		if (r != absent)
			rc = member_start(&t->m[r], deadline_ns, &t->seq[r]);
	return rc;
}

TEST_F(failure, aborted)
{
	uint32_t last = self->t.n - 1;
	struct npulink_comm_status st;
	struct npulink_result res;
	uint32_t r;

	ASSERT_EQ(0, team_allreduce(&self->t, 1));
	ASSERT_EQ(0, start_but(&self->t, last, 0));
	ASSERT_EQ(0, raw_abort(self->t.m[last].fd, self->t.m[last].comm, 4711));
	for (r = 0; r < last; r++) {
		ASSERT_EQ(0, raw_wait(self->t.m[r].fd, self->t.seq[r], &res));
		EXPECT_EQ(-ECANCELED, res.status);
		EXPECT_EQ(last, res.rank);
	}
	ALL_TOLD(NPULINK_CAUSE_ABORT, ECANCELED, false);
	ASSERT_EQ(0, raw_status(self->t.m[0].fd, self->t.m[0].comm, &st));
	EXPECT_EQ(4711, st.out_code);
	EXPECT_EQ(last, st.out_rank);
	EXPECT_EQ(2, st.out_next);
	/* The first cause stays. */
	ASSERT_EQ(0, raw_abort(self->t.m[0].fd, self->t.m[0].comm, 1));
	ASSERT_EQ(0, raw_status(self->t.m[0].fd, self->t.m[0].comm, &st));
	EXPECT_EQ(4711, st.out_code);
	EXPECT_EQ(last, st.out_rank);
}

TEST_F(failure, one_never_posts)
{
	uint32_t absent = self->t.n / 2;
	uint64_t begin = raw_now();
	struct npulink_comm_status st;
	struct npulink_result res;
	uint32_t r;

	ASSERT_EQ(0, start_but(&self->t, absent, 300 * MS));
	for (r = 0; r < self->t.n; r++) {
		if (r == absent)
			continue;
		ASSERT_EQ(0, raw_wait(self->t.m[r].fd, self->t.seq[r], &res));
		EXPECT_EQ(-ETIMEDOUT, res.status);
		EXPECT_EQ(NPULINK_CAUSE_DEADLINE, res.cause);
		/* Whoever found out, it was a rank that waited for the absent one. */
		EXPECT_EQ(absent, res.peer);
		EXPECT_NE(absent, res.rank);
		EXPECT_LT(res.step, 2 * self->t.n);
		EXPECT_EQ(0, res.number);
		EXPECT_GE(res.ns, 290 * MS);
	}
	EXPECT_GE(raw_now() - begin, 300 * MS);
	ASSERT_EQ(0, raw_status(self->t.m[absent].fd, self->t.m[absent].comm, &st));
	EXPECT_EQ(-ETIMEDOUT, st.out_status);
	EXPECT_EQ(absent, st.out_peer);
	EXPECT_EQ(-ETIMEDOUT, member_run(&self->t.m[absent], NULL));
}

/* Only the shortest deadline counts, whoever has it, and 0 means none. */
TEST_F(failure, one_has_a_deadline)
{
	struct npulink_result res;
	uint64_t begin = raw_now();
	uint32_t r;

	ASSERT_EQ(0, member_start(&self->t.m[0], 0, &self->t.seq[0]));
	raw_sleep_ms(100);
	for (r = 1; r + 1 < self->t.n; r++)
		ASSERT_EQ(0, member_start(&self->t.m[r], r == 1 ? 100 * MS : 3600000 * MS,
					  &self->t.seq[r]));
	if (self->t.n == 2) {
		struct npulink_wait wait = { .size = sizeof(wait), .seq = self->t.seq[0] };

		wait.wait_until_ns = raw_now() + 200 * MS;
		EXPECT_EQ(-ETIME, raw_ioctl(self->t.m[0].fd, NPULINK_WAIT, &wait));
		return;
	}
	ASSERT_EQ(0, raw_wait(self->t.m[0].fd, self->t.seq[0], &res));
	EXPECT_EQ(-ETIMEDOUT, res.status);
	EXPECT_EQ(self->t.n - 1, res.peer);
	EXPECT_LT(raw_now() - begin, 5000 * MS);
}

/* A deadline that is not reached costs nothing, however many there are. */
TEST_F(failure, deadlines_that_hold)
{
	int i;

	for (i = 0; i < 20; i++) {
		ASSERT_EQ(0, team_start(&self->t, 20000 * MS + i));
		ASSERT_EQ(0, team_finish(&self->t));
	}
	ASSERT_EQ(0, team_start(&self->t, -1ULL));
	ASSERT_EQ(0, team_finish(&self->t));
	ASSERT_EQ(0, team_start(&self->t, 1ULL << 63));
	ASSERT_EQ(0, team_finish(&self->t));
}

TEST_F(failure, deadline_of_a_device_that_hangs)
{
	uint32_t hung = self->t.n - 1;
	struct npulink_comm_status st;

	ASSERT_EQ(0, raw_knob(hung, "hold", 0));
	ASSERT_EQ(0, team_start(&self->t, 400 * MS));
	ALL_TOLD(NPULINK_CAUSE_DEADLINE, ETIMEDOUT, true);
	ASSERT_EQ(0, raw_status(self->t.m[0].fd, self->t.m[0].comm, &st));
	/* Noticed by itself, or by who waits for it. */
	EXPECT_EQ(hung, st.out_peer == NPULINK_NO_PEER ? st.out_rank : st.out_peer);
	/* The device has been made to let go of everything. */
	EXPECT_EQ(0, raw_knob_get(hung, "held"));
}

/* ---- different calls ------------------------------------------------------------------ */

/* What rank 1 calls instead. */
struct differ {
	const char *what;
	struct npulink_call call;
};

static const struct differ differs[] = {
	{ "count",	{ NPULINK_COLL_ALLREDUCE, NPULINK_INT32, .count = LEN / 4 - 1 } },
	{ "reduction",	{ NPULINK_COLL_ALLREDUCE, NPULINK_INT32, NPULINK_MAX, .count = LEN / 4 } },
	{ "type",	{ NPULINK_COLL_ALLREDUCE, NPULINK_UINT32, .count = LEN / 4 } },
	{ "collective",	{ NPULINK_COLL_REDUCE_SCATTER, NPULINK_INT32, .count = LEN / 4 } },
	{ "root",	{ NPULINK_COLL_REDUCE, NPULINK_INT32, .root = 1, .count = LEN / 4 } },
	{ "algorithm",	{ NPULINK_COLL_ALLREDUCE, NPULINK_INT32, .count = LEN / 4, .set_id = 7 } },
};

FIXTURE(mismatch) {
	struct member m[3];
	struct npulink_call mine[3];
};

FIXTURE_VARIANT(mismatch) {
	unsigned int which;
	bool late;	/* the differing rank posts last */
};

FIXTURE_VARIANT_ADD(mismatch, count) { .which = 0 };
FIXTURE_VARIANT_ADD(mismatch, reduction) { .which = 1 };
FIXTURE_VARIANT_ADD(mismatch, type) { .which = 2 };
FIXTURE_VARIANT_ADD(mismatch, collective) { .which = 3 };
FIXTURE_VARIANT_ADD(mismatch, root) { .which = 4 };
FIXTURE_VARIANT_ADD(mismatch, algorithm) { .which = 5 };
FIXTURE_VARIANT_ADD(mismatch, count_late) { .which = 0, .late = true };
FIXTURE_VARIANT_ADD(mismatch, root_late) { .which = 4, .late = true };

static int plan_of_call(struct member *m, const struct npulink_call *call)
{
	struct npulink_slot slots[2] = {
		{ .min_len = LEN, .access = NPULINK_SLOT_READ },
		{ .min_len = LEN, .access = NPULINK_SLOT_READ | NPULINK_SLOT_WRITE },
	};
	struct npulink_step steps[2 * 3];
	struct npulink_plan_create cmd;
	int i, rc;

	ring_steps(steps, m->rank, m->nranks, LEN);
	for (i = 0; i < 5; i++) {
		if (!(steps[i].op & NPULINK_STEP_REDUCE))
			continue;
		steps[i].dtype = call->dtype;
		steps[i].redop = call->redop;
	}
	cmd = raw_plan_cmd(m->comm, slots, 2, steps, 5);
	cmd.call = *call;
	rc = raw_ioctl(m->fd, NPULINK_PLAN_CREATE, &cmd);
	m->plan = cmd.out_id;
	return rc;
}

FIXTURE_SETUP(mismatch)
{
	static const struct npulink_call reduce = {
		NPULINK_COLL_REDUCE, NPULINK_INT32, .count = LEN / 4,
	};
	static const struct npulink_call usual = {
		NPULINK_COLL_ALLREDUCE, NPULINK_INT32, .count = LEN / 4,
	};
	uint8_t secret[16];
	int r;

	raw_secret(secret);
	for (r = 0; r < 3; r++) {
		ASSERT_EQ(0, member_join(&self->m[r], r, secret, r, 3, LEN));
		self->mine[r] = usual;
		if (r == 1)
			self->mine[r] = differs[variant->which].call;
		else if (variant->which == 4)
			self->mine[r] = reduce;
		ASSERT_EQ(0, plan_of_call(&self->m[r], &self->mine[r]));
	}
}

FIXTURE_TEARDOWN(mismatch)
{
	int r;

	for (r = 0; r < 3; r++)
		member_leave(&self->m[r]);
}

TEST_F(mismatch, both_calls_are_named)
{
	static const int usual[3] = { 0, 1, 2 }, last[3] = { 0, 2, 1 };
	const int *order = variant->late ? last : usual;
	struct npulink_comm_status st;
	struct npulink_result res;
	uint64_t seq[3];
	int i, rc, posted = 0;

	for (i = 0; i < 3; i++) {
		struct member *m = &self->m[order[i]];

		memset(m->recv, 0x11, LEN);
		rc = member_start(m, 0, &seq[order[i]]);
		if (rc) {
			EXPECT_EQ(-EPROTO, rc);
			continue;
		}
		posted |= 1 << order[i];
	}
	/* Who comes second finds out. */
	EXPECT_NE(7, posted);
	for (i = 0; i < 3; i++) {
		if (posted & 1 << i) {
			ASSERT_EQ(0, raw_wait(self->m[i].fd, seq[i], &res));
			EXPECT_EQ(-EPROTO, res.status);
			EXPECT_EQ(NPULINK_CAUSE_MISMATCH, res.cause);
			EXPECT_EQ(0, res.number);
		}
		ASSERT_EQ(0, raw_status(self->m[i].fd, self->m[i].comm, &st));
		EXPECT_EQ(-EPROTO, st.out_status);
		EXPECT_EQ(0, st.out_number);
		ASSERT_LT(st.out_rank, 3);
		ASSERT_LT(st.out_peer, 3);
		EXPECT_TRUE(st.out_rank == 1 || st.out_peer == 1);
		EXPECT_NE(st.out_rank, st.out_peer);
		EXPECT_EQ(0, memcmp(&self->mine[st.out_rank], &st.out_calls[0],
				    sizeof(st.out_calls[0])));
		EXPECT_EQ(0, memcmp(&self->mine[st.out_peer], &st.out_calls[1],
				    sizeof(st.out_calls[1])));
	}
	/* Not a byte has moved to or from the one that differs. */
	for (i = 0; i < LEN / 4; i++)
		ASSERT_EQ(0x11111111, self->m[1].recv[i]);
}

/* The same two collectives, but in another order. */
TEST(mismatch_of_order)
{
	struct npulink_call call = {
		NPULINK_COLL_ALLREDUCE, NPULINK_INT32, .count = LEN / 4,
	};
	struct npulink_comm_status st;
	struct npulink_result res;
	uint8_t secret[16];
	struct member m[2];
	uint64_t seq[2];
	int r, plan[2][2], rc;

	raw_secret(secret);
	for (r = 0; r < 2; r++) {
		ASSERT_EQ(0, member_join(&m[r], r, secret, r, 2, 8));
		plan[r][0] = m[r].plan;
		call.count = 2;
		call.set_id = 99;
		struct npulink_plan_create cmd = raw_plan_cmd(m[r].comm, NULL, 0, NULL, 0);

		cmd.call = call;
		ASSERT_EQ(0, raw_ioctl(m[r].fd, NPULINK_PLAN_CREATE, &cmd));
		plan[r][1] = cmd.out_id;
	}
	ASSERT_EQ(0, member_start(&m[0], 0, &seq[0]));
	struct npulink_post post = raw_post_cmd(plan[1][1], NPULINK_POST_HELD);

	rc = raw_ioctl(m[1].fd, NPULINK_POST, &post);
	EXPECT_EQ(-EPROTO, rc);
	ASSERT_EQ(0, raw_wait(m[0].fd, seq[0], &res));
	EXPECT_EQ(-EPROTO, res.status);
	ASSERT_EQ(0, raw_status(m[0].fd, m[0].comm, &st));
	EXPECT_EQ(1, st.out_rank);
	EXPECT_EQ(0, st.out_peer);
	EXPECT_EQ(99, st.out_calls[0].set_id);
	EXPECT_EQ(0, st.out_calls[1].set_id);
	member_leave(&m[0]);
	member_leave(&m[1]);
}

/* Plans that say they are the same call, but do not fit together. */
TEST(mismatch_of_steps)
{
	static const struct {
		uint8_t op[2];
		uint64_t len[2];
		uint16_t channel[2];
		int n[2];
	} cases[] = {
		{ { NPULINK_STEP_SEND, NPULINK_STEP_RECV }, { 64, 128 }, { 0, 0 }, { 1, 1 } },
		{ { NPULINK_STEP_SEND, NPULINK_STEP_RECV }, { 128, 64 }, { 0, 0 }, { 1, 1 } },
		{ { NPULINK_STEP_SEND, NPULINK_STEP_RECV }, { 64, 0 }, { 0, 0 }, { 1, 1 } },
		{ { NPULINK_STEP_SEND, NPULINK_STEP_RECV }, { 64, 64 }, { 0, 1 }, { 1, 1 } },
		{ { NPULINK_STEP_SEND, NPULINK_STEP_RECV }, { 64, 64 }, { 0, 0 }, { 2, 1 } },
		{ { NPULINK_STEP_SEND, NPULINK_STEP_RECV }, { 64, 64 }, { 0, 0 }, { 1, 2 } },
		{ { NPULINK_STEP_SEND, NPULINK_STEP_SEND }, { 64, 64 }, { 0, 0 }, { 1, 1 } },
		{ { NPULINK_STEP_RECV, NPULINK_STEP_RECV }, { 64, 64 }, { 0, 0 }, { 1, 1 } },
	};
	unsigned int c;

	for (c = 0; c < ARRAY_SIZE(cases); c++) {
		uint8_t secret[16];
		struct member m[2];
		struct npulink_comm_status st;
		uint64_t seq[2];
		int r, i, rc[2];

		raw_secret(secret);
		for (r = 0; r < 2; r++) {
			struct npulink_slot slot = {
				.min_len = 1024, .access = NPULINK_SLOT_READ | NPULINK_SLOT_WRITE,
			};
			struct npulink_step st[2];
			struct npulink_plan_create cmd;
			int n = cases[c].n[r];

			ASSERT_EQ(0, member_join(&m[r], r, secret, r, 2, 1024));
			for (i = 0; i < n; i++) {
				st[i] = raw_step(cases[c].op[r], cases[c].len[r]);
				st[i].channel = cases[c].channel[r];
				if (st[i].op == NPULINK_STEP_SEND)
					st[i].send_peer = !r;
				else
					st[i].recv_peer = !r;
				st[i].dep[0] = i;
			}
			cmd = raw_plan_cmd(m[r].comm, &slot, 1, st, n);
			cmd.call.collective = NPULINK_COLL_ALLGATHERV;
			ASSERT_EQ(0, raw_ioctl(m[r].fd, NPULINK_PLAN_CREATE, &cmd));
			m[r].plan = cmd.out_id;
		}
		for (r = 0; r < 2; r++) {
			struct npulink_post post = raw_post_cmd(m[r].plan, NPULINK_POST_HELD);

			raw_bind(&post, m[r].buf, 0, 1024);
			post.deadline_ns = 5000 * MS;
			rc[r] = raw_ioctl(m[r].fd, NPULINK_POST, &post);
			seq[r] = post.out_seq;
		}
		for (r = 0; r < 2; r++) {
			struct npulink_result res;

			if (!rc[r]) {
				ASSERT_EQ(0, raw_wait(m[r].fd, seq[r], &res));
				rc[r] = res.status;
			}
			EXPECT_EQ(-EPROTO, rc[r]) TH_LOG("case %u rank %d", c, r);
		}
		ASSERT_EQ(0, raw_status(m[0].fd, m[0].comm, &st));
		EXPECT_EQ(NPULINK_CAUSE_MISMATCH, st.out_cause);
		member_leave(&m[0]);
		member_leave(&m[1]);
	}
}

/* Ranks further apart than the kernel remembers calls still find out. */
TEST(mismatch_far_behind)
{
	struct npulink_result res;
	uint8_t secret[16];
	struct member m[2];
	struct npulink_plan_create cmd;
	struct npulink_post post;
	int i, rc, barrier;
	uint64_t seq;

	raw_secret(secret);
	ASSERT_EQ(0, member_join(&m[0], 0, secret, 0, 2, 8));
	ASSERT_EQ(0, member_join(&m[1], 1, secret, 1, 2, 8));
	/* Rank 0 is through with 300 of a collective in which it has nothing to do. */
	cmd = raw_plan_cmd(m[0].comm, NULL, 0, NULL, 0);
	cmd.call.count = 2;
	ASSERT_EQ(0, raw_ioctl(m[0].fd, NPULINK_PLAN_CREATE, &cmd));
	barrier = cmd.out_id;
	for (i = 0; i < 300; i++) {
		post = raw_post_cmd(barrier, NPULINK_POST_WAIT);
		ASSERT_EQ(0, raw_ioctl(m[0].fd, NPULINK_POST, &post));
	}
	/* Rank 1 means the first of them, and expects it to take part. */
	rc = member_start(&m[1], 5000 * MS, &seq);
	if (!rc) {
		ASSERT_EQ(0, raw_wait(m[1].fd, seq, &res));
		rc = res.status;
	}
	EXPECT_EQ(-EPROTO, rc);
	member_leave(&m[0]);
	member_leave(&m[1]);
}

/* ---- a device that misbehaves --------------------------------------------------------- */

TEST_F(failure, device_refuses_a_request)
{
	uint32_t bad = self->t.n - 1;
	struct npulink_comm_status st;

	ASSERT_EQ(0, raw_knob(bad, "fail_post", 1));
	ASSERT_EQ(0, team_start(&self->t, 0));
	ALL_TOLD(NPULINK_CAUSE_DEVICE, EIO, true);
	ASSERT_EQ(0, raw_status(self->t.m[0].fd, self->t.m[0].comm, &st));
	EXPECT_EQ(bad, st.out_rank);
	EXPECT_LT(st.out_step, 2 * self->t.n);
	EXPECT_EQ(EIO, st.out_code);
	EXPECT_EQ(0, st.out_number);
}

TEST_F(failure, device_that_is_late)
{
	uint32_t r;

	for (r = 0; r < self->t.n; r++)
		ASSERT_EQ(0, raw_knob(r, "delay_ns", 3 * MS));
	EXPECT_EQ(0, team_allreduce(&self->t, 3));
}

TEST_F(failure, interrupts_that_come_twice)
{
	uint32_t r;

	for (r = 0; r < self->t.n; r++)
		ASSERT_EQ(0, raw_knob(r, "dup_irq", 1000));
	EXPECT_EQ(0, team_allreduce(&self->t, 4));
	EXPECT_EQ(0, team_allreduce(&self->t, 5));
}

/* A lost interrupt ends in a deadline, not in a hang, and the device is clean. */
TEST_F(failure, interrupt_that_is_lost)
{
	uint32_t r;
	long rc;

	for (r = 0; r < self->t.n; r++)
		ASSERT_EQ(0, raw_knob(r, "drop_irq", 1000));
	ASSERT_EQ(0, team_start(&self->t, 500 * MS));
	rc = team_finish(&self->t);
	/* Small requests need none. */
	EXPECT_EQ(variant->len < 100 ? 0 : -ETIMEDOUT, rc);
	for (r = 0; r < self->t.n; r++)
		EXPECT_EQ(0, raw_knob_get(r, "lost"));
}

/* Damage is found by who looks at the data; no checksums yet. */
TEST_F(failure, device_that_corrupts)
{
	ASSERT_EQ(0, raw_knob(0, "corrupt", 1));
	EXPECT_GT(team_allreduce(&self->t, 6), 0);
	EXPECT_EQ(0, team_allreduce(&self->t, 7));
}

/* One communicator fails while another, on the same devices, goes on. */
TEST_F(failure, is_contained)
{
	struct team other;
	uint32_t r;

	ASSERT_EQ(0, team_open(&other, self->t.n, 8, variant->len));
	ASSERT_EQ(0, start_but(&self->t, 0, 0));
	ASSERT_EQ(0, raw_abort(self->t.m[0].fd, self->t.m[0].comm, 0));
	for (r = 0; r < 5; r++)
		EXPECT_EQ(0, team_allreduce(&other, r));
	ALL_TOLD(NPULINK_CAUSE_ABORT, ECANCELED, false);
	team_close(&other);
}

TEST_HARNESS_MAIN
