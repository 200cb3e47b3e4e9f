// SPDX-License-Identifier: GPL-2.0
/*
 * mismatch - ranks that call different things are told so, with both calls, before data
 * moves between them: another collective, count, type, reduction, root or order, messages
 * that do not fit, steps that do not fit, ranks that are far apart.
 */
#include "team.h"
#include "harness.h"

#define LEN	(256 << 10)
#define MS	1000000ULL

/* What one rank calls instead. */
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
	unsigned int who;	/* calls it; 0: rank 1 */
	bool late;		/* and posts last */
};

FIXTURE_VARIANT_ADD(mismatch, count) { .which = 0 };
FIXTURE_VARIANT_ADD(mismatch, reduction) { .which = 1 };
FIXTURE_VARIANT_ADD(mismatch, type) { .which = 2 };
FIXTURE_VARIANT_ADD(mismatch, collective) { .which = 3 };
FIXTURE_VARIANT_ADD(mismatch, root) { .which = 4 };
FIXTURE_VARIANT_ADD(mismatch, algorithm) { .which = 5 };
FIXTURE_VARIANT_ADD(mismatch, count_late) { .which = 0, .late = true };
FIXTURE_VARIANT_ADD(mismatch, root_late) { .which = 4, .late = true };
FIXTURE_VARIANT_ADD(mismatch, count_of_the_last) { .which = 0, .who = 2 };

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
	unsigned int who = variant->who ? variant->who : 1, r;
	uint8_t secret[16];

	raw_secret(secret);
	for (r = 0; r < 3; r++) {
		ASSERT_EQ(0, member_join(&self->m[r], r, secret, r, 3, LEN));
		self->mine[r] = usual;
		if (r == who)
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
	unsigned int who = variant->who ? variant->who : 1;
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
		EXPECT_TRUE(st.out_rank == who || st.out_peer == who);
		EXPECT_NE(st.out_rank, st.out_peer);
		EXPECT_EQ(0, memcmp(&self->mine[st.out_rank], &st.out_calls[0],
				    sizeof(st.out_calls[0])));
		EXPECT_EQ(0, memcmp(&self->mine[st.out_peer], &st.out_calls[1],
				    sizeof(st.out_calls[1])));
	}
	/* Not a byte has moved to the one that differs, or from it, which is to the next one. */
	for (i = 0; i < LEN / 4; i++) {
		ASSERT_EQ(0x11111111, self->m[who].recv[i]);
		ASSERT_EQ(0x11111111, self->m[(who + 1) % 3].recv[i]);
	}
}

/* The same two collectives, but in another order; what they differ in. */
TEST(mismatch_of_order)
{
	static const struct npulink_call first = {
		NPULINK_COLL_ALLREDUCE, NPULINK_INT32, NPULINK_SUM, .count = 2,
	};
	static const struct npulink_call seconds[] = {
		{ NPULINK_COLL_ALLREDUCE, NPULINK_INT32, NPULINK_SUM, .count = 3 },
		{ NPULINK_COLL_ALLREDUCE, NPULINK_INT32, NPULINK_SUM, .count = 2, .set_id = 99 },
		{ NPULINK_COLL_ALLREDUCE, NPULINK_INT32, NPULINK_PROD, .count = 2 },
		{ NPULINK_COLL_ALLREDUCE, NPULINK_FLOAT32, NPULINK_SUM, .count = 2 },
		{ NPULINK_COLL_ALLGATHER, NPULINK_INT32, .count = 2 },
		{ .collective = NPULINK_COLL_BARRIER },
	};
	struct npulink_comm_status st;
	struct npulink_result res;
	uint8_t secret[16];
	struct member m[2];
	uint64_t seq[2];
	unsigned int c;
	int r, second;

	for (c = 0; c < ARRAY_SIZE(seconds); c++) {
		raw_secret(secret);
		for (r = 0; r < 2; r++) {
			ASSERT_EQ(0, member_join(&m[r], r, secret, r, 2, 8));
			struct npulink_plan_create cmd = raw_plan_cmd(m[r].comm, NULL, 0, NULL, 0);

			cmd.call = seconds[c];
			ASSERT_EQ(0, raw_ioctl(m[r].fd, NPULINK_PLAN_CREATE, &cmd));
			second = cmd.out_id;
		}
		memset(m[1].recv, 0x11, 8);
		ASSERT_EQ(0, member_start(&m[0], 0, &seq[0]));
		struct npulink_post post = raw_post_cmd(second, NPULINK_POST_HELD);

		EXPECT_EQ(-EPROTO, raw_ioctl(m[1].fd, NPULINK_POST, &post));
		ASSERT_EQ(0, raw_wait(m[0].fd, seq[0], &res));
		EXPECT_EQ(-EPROTO, res.status);
		for (r = 0; r < 2; r++) {
			ASSERT_EQ(0, raw_status(m[r].fd, m[r].comm, &st));
			EXPECT_EQ(NPULINK_CAUSE_MISMATCH, st.out_cause);
			EXPECT_EQ(1, st.out_rank);
			EXPECT_EQ(0, st.out_peer);
			EXPECT_EQ(0, st.out_number);
			EXPECT_EQ(0, memcmp(&seconds[c], &st.out_calls[0], sizeof(first)));
			EXPECT_EQ(0, memcmp(&first, &st.out_calls[1], sizeof(first)));
		}
		/* Too late for the one that would have been right. */
		EXPECT_EQ(-EPROTO, member_run(&m[1], NULL));
		EXPECT_EQ(0x11111111, m[1].recv[0]);
		member_leave(&m[0]);
		member_leave(&m[1]);
	}
}

/* A message that is sent as something else than what is received. */
TEST(mismatch_of_messages)
{
	static const struct npulink_call sent = {
		NPULINK_COLL_P2P, NPULINK_INT32, .count = 16,
	};
	static const struct npulink_call received[] = {
		{ NPULINK_COLL_P2P, NPULINK_FLOAT32, .count = 16 },
		{ NPULINK_COLL_P2P, NPULINK_INT64, .count = 8 },
		{ NPULINK_COLL_P2P, NPULINK_INT32, .count = 15 },
		{ NPULINK_COLL_P2P, NPULINK_INT32, .count = 17 },
	};
	unsigned int c, first;

	for (c = 0; c < 2 * ARRAY_SIZE(received); c++) {
		const struct npulink_call *calls[2] = { &sent, &received[c / 2] };
		struct npulink_comm_status st;
		struct npulink_result res;
		uint8_t secret[16];
		struct member m[2];
		uint64_t seq[2], esize;
		int i, rc[2];

		raw_secret(secret);
		for (i = 0; i < 2; i++) {
			struct npulink_slot slot = {
				.min_len = 1024, .access = NPULINK_SLOT_READ | NPULINK_SLOT_WRITE,
			};
			struct npulink_plan_create cmd;
			struct npulink_step step;

			ASSERT_EQ(0, member_join(&m[i], i, secret, i, 2, 1024));
			esize = calls[i]->dtype == NPULINK_INT64 ? 8 : 4;
			step = raw_step(i ? NPULINK_STEP_RECV : NPULINK_STEP_SEND,
					calls[i]->count * esize);
			*(i ? &step.recv_peer : &step.send_peer) = !i;
			cmd = raw_plan_cmd(m[i].comm, &slot, 1, &step, 1);
			cmd.call = *calls[i];
			ASSERT_EQ(0, raw_ioctl(m[i].fd, NPULINK_PLAN_CREATE, &cmd));
			m[i].plan = cmd.out_id;
			memset(m[i].send, 0x11 + i, 1024);
		}
		for (i = 0, first = c % 2; i < 2; i++) {
			struct member *who = &m[first ^ i];
			struct npulink_post post = raw_post_cmd(who->plan, NPULINK_POST_HELD);

			raw_bind(&post, who->buf, 0, 1024);
			post.deadline_ns = 5000 * MS;
			rc[first ^ i] = raw_ioctl(who->fd, NPULINK_POST, &post);
			seq[first ^ i] = post.out_seq;
		}
		for (i = 0; i < 2; i++) {
			if (!rc[i]) {
				ASSERT_EQ(0, raw_wait(m[i].fd, seq[i], &res));
				rc[i] = res.status;
			}
			EXPECT_EQ(-EPROTO, rc[i]) TH_LOG("case %u rank %d", c, i);
			ASSERT_EQ(0, raw_status(m[i].fd, m[i].comm, &st));
			EXPECT_EQ(NPULINK_CAUSE_MISMATCH, st.out_cause);
			ASSERT_EQ(1, st.out_rank + st.out_peer);
			EXPECT_EQ(0, memcmp(calls[st.out_rank], &st.out_calls[0], sizeof(sent)));
			EXPECT_EQ(0, memcmp(calls[st.out_peer], &st.out_calls[1], sizeof(sent)));
		}
		for (i = 0; i < 1024 / 4; i++)
			ASSERT_EQ(0x12121212, m[1].send[i]);
		member_leave(&m[0]);
		member_leave(&m[1]);
	}
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

/*
 * Ranks that are far apart find out, too. What the one ahead called is known for a while,
 * then at least how many calls it has made.
 */
TEST(mismatch_far_behind)
{
	static const struct {
		uint32_t ahead;
		uint64_t count;		/* 2: rank 1 calls the same */
		bool known;
	} cases[] = {
		{ 20, 2, true }, { 20, 3, true }, { 50, 2, true }, { 50, 3, true },
		{ 300, 2, false }, { 300, 3, false },
	};
	unsigned int c, i;

	for (c = 0; c < ARRAY_SIZE(cases); c++) {
		struct npulink_comm_status st;
		struct npulink_plan_create cmd;
		struct npulink_result res;
		struct npulink_post post;
		uint8_t secret[16];
		struct member m[2];
		uint64_t seq;
		int rc;

		raw_secret(secret);
		ASSERT_EQ(0, member_join(&m[0], 0, secret, 0, 2, 8));
		ASSERT_EQ(0, member_join(&m[1], 1, secret, 1, 2, 8));
		/* Rank 0 is through with many of a collective in which it has nothing to do. */
		cmd = raw_plan_cmd(m[0].comm, NULL, 0, NULL, 0);
		cmd.call.count = cases[c].count;
		ASSERT_EQ(0, raw_ioctl(m[0].fd, NPULINK_PLAN_CREATE, &cmd));
		for (i = 0; i < cases[c].ahead; i++) {
			post = raw_post_cmd(cmd.out_id, NPULINK_POST_WAIT);
			ASSERT_EQ(0, raw_ioctl(m[0].fd, NPULINK_POST, &post));
		}
		/* Rank 1 means the first of them, and expects it to take part. */
		rc = member_start(&m[1], 5000 * MS, &seq);
		if (!rc) {
			ASSERT_EQ(0, raw_wait(m[1].fd, seq, &res));
			rc = res.status;
		}
		EXPECT_EQ(-EPROTO, rc);
		for (i = 0; i < 2; i++) {
			ASSERT_EQ(0, raw_status(m[i].fd, m[i].comm, &st));
			EXPECT_EQ(NPULINK_CAUSE_MISMATCH, st.out_cause);
			EXPECT_EQ(1, st.out_rank);
			EXPECT_EQ(0, st.out_peer);
			EXPECT_EQ(0, st.out_number);
			EXPECT_EQ(NPULINK_COLL_ALLREDUCE, st.out_calls[0].collective);
			EXPECT_EQ(2, st.out_calls[0].count);
			if (cases[c].known) {
				EXPECT_EQ(0, memcmp(&cmd.call, &st.out_calls[1], sizeof(cmd.call)));
				continue;
			}
			EXPECT_EQ(~0U, st.out_calls[1].collective);
			EXPECT_EQ(cases[c].ahead, st.out_calls[1].count);
		}
		member_leave(&m[0]);
		member_leave(&m[1]);
	}
}

TEST_HARNESS_MAIN
