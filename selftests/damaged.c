// SPDX-License-Identifier: GPL-2.0
/*
 * damaged - data that comes damaged over a link of a communicator with checksums: which
 * rank, step, peer and device are named, in plans where it is known what the knob hit,
 * and what the link counts. Once damaged, it is sent again and right.
 */
#include "team.h"
#include "links.h"
#include "harness.h"

#define N	4
#define SLICE	(128 << 10)	/* what the device does at a time */
#define LEN	(2 * SLICE)

/* Rank 0 receives from 1, 2 and 3; rank r is not on device r. */
#define DEV(r)	(N - 1 - (r))

enum form {
	ONE_BY_ONE,	/* into a place for each, one after the other */
	CHAIN,		/* to be reduced, all in one request, whose first input is its own */
	MESSAGE,	/* one message, from rank 2 */
};

FIXTURE(damaged) {
	struct member m[N];
	uint64_t seq[N];
	struct links before;
};

FIXTURE_VARIANT(damaged) {
	enum form form;
	uint64_t len;		/* that each one sends */
};

FIXTURE_VARIANT_ADD(damaged, one_by_one) { .form = ONE_BY_ONE, .len = LEN };
FIXTURE_VARIANT_ADD(damaged, one_by_one_small) { .form = ONE_BY_ONE, .len = 64 };
FIXTURE_VARIANT_ADD(damaged, chain) { .form = CHAIN, .len = LEN };
FIXTURE_VARIANT_ADD(damaged, chain_small) { .form = CHAIN, .len = 64 };
FIXTURE_VARIANT_ADD(damaged, message) { .form = MESSAGE, .len = LEN };
FIXTURE_VARIANT_ADD(damaged, message_small) { .form = MESSAGE, .len = 64 };

static int make_plan(struct member *m, uint64_t len, enum form form)
{
	struct npulink_slot slots[2] = {
		{ .min_len = LEN, .access = NPULINK_SLOT_READ },
		{ .min_len = 3 * LEN, .access = NPULINK_SLOT_READ | NPULINK_SLOT_WRITE },
	};
	struct npulink_step st[N];
	struct npulink_plan_create cmd;
	int i, n = 0, rc;

	if (m->rank) {
		st[n] = raw_step(NPULINK_STEP_SEND, len);
		st[n++].send_peer = 0;
	}
	for (i = 0; !m->rank && i < (form == MESSAGE ? 1 : 3); i++) {
		struct npulink_step *s = &st[n++];

		*s = raw_step(NPULINK_STEP_RECV | (form == CHAIN ? NPULINK_STEP_REDUCE : 0), len);
		s->recv_peer = form == MESSAGE ? 2 : i + 1;
		s->dst_slot = 1;
		if (form == ONE_BY_ONE)
			s->dst_off = i * len;
		if (i && form == ONE_BY_ONE)
			s->dep[0] = 1;
		if (i && form == CHAIN) {
			s->flags = NPULINK_STEP_F_CHAIN;
			s->src_slot = 1;
		}
	}
	cmd = raw_plan_cmd(m->comm, slots, 2, st, n);
	cmd.call.count = len / 4;
	if (form == ONE_BY_ONE)
		cmd.call.collective = NPULINK_COLL_GATHER;
	if (form == MESSAGE)
		cmd.call.collective = NPULINK_COLL_P2P;
	rc = raw_ioctl(m->fd, NPULINK_PLAN_CREATE, &cmd);
	m->plan = cmd.out_id;
	return rc;
}

static int join(struct member *m, const uint8_t secret[16], uint32_t rank)
{
	struct npulink_comm_create cmd = {
		.size = sizeof(cmd), .flags = NPULINK_COMM_CHECKSUM, .rank = rank, .nranks = N,
	};
	uint64_t i;
	int rc;

	*m = (struct member) { .rank = rank, .nranks = N, .len = 2 * LEN };
	m->send = raw_anon(2 * m->len + 1);
	m->recv = m->send + LEN / 4;
	for (i = 0; i < LEN / 4; i++)
		m->send[i] = (rank + 1) * (i + 7);
	m->fd = raw_open(DEV(rank));
	memcpy(cmd.secret, secret, 16);
	rc = raw_ioctl(m->fd, NPULINK_COMM_CREATE, &cmd);
	m->comm = cmd.out_id;
	m->buf = rc ? rc : raw_register(m->fd, m->send, 4 * LEN, 0);
	return m->buf < 0 ? m->buf : 0;
}

/* Post all; 0, or -errno of rank 0. */
static int run(FIXTURE_DATA(damaged) *self, enum form form)
{
	struct npulink_result res;
	uint32_t r;
	int rc = 0;

	memset(self->m[0].recv, 0, 3 * LEN);
	for (r = 0; r < N; r++) {
		struct npulink_post post = raw_post_cmd(self->m[r].plan, NPULINK_POST_HELD);

		if (form == MESSAGE && r % 2)
			continue;
		raw_bind(&post, self->m[r].buf, 0, LEN);
		raw_bind(&post, self->m[r].buf, LEN, 3 * LEN);
		post.deadline_ns = 60000000000ULL;
		rc = raw_ioctl(self->m[r].fd, NPULINK_POST, &post);
		self->seq[r] = post.out_seq;
		if (rc)
			return rc;
	}
	for (r = N; r--; ) {
		if (form == MESSAGE && r % 2)
			continue;
		rc = raw_wait(self->m[r].fd, self->seq[r], &res);
		rc = rc ? rc : res.status;
	}
	return rc;
}

/* Elements of rank 0 that are wrong. */
static uint64_t wrong(FIXTURE_DATA(damaged) *self, enum form form, uint64_t len)
{
	const int32_t *in = self->m[0].recv;
	uint64_t i, n = len / 4, bad = 0;
	int r;

	for (i = 0; i < n; i++) {
		int32_t x = i + 7;

		if (form == CHAIN)
			bad += in[i] != (1 + 2 + 3 + 4) * x;
		if (form == MESSAGE)
			bad += in[i] != 3 * x;
		for (r = 1; form == ONE_BY_ONE && r < N; r++)
			bad += in[(r - 1) * n + i] != (r + 1) * x;
	}
	return bad;
}

FIXTURE_SETUP(damaged)
{
	uint8_t secret[16];
	int r;

	raw_knobs_reset(N);
	raw_secret(secret);
	for (r = 0; r < N; r++) {
		ASSERT_EQ(0, join(&self->m[r], secret, r));
		if (variant->form == MESSAGE && r % 2)
			continue;
		ASSERT_EQ(0, make_plan(&self->m[r], variant->len, variant->form));
	}
	/* Operation 0 is one that works. */
	ASSERT_EQ(0, run(self, variant->form));
	ASSERT_EQ(0, wrong(self, variant->form, variant->len));
	ASSERT_EQ(0, links_read(&self->before));
}

FIXTURE_TEARDOWN(damaged)
{
	int r;

	raw_knobs_reset(N);
	for (r = 0; r < N; r++)
		close(self->m[r].fd);
}

/* What transfer k of rank 0 is of: input @i, in slices; in a chain, slice by slice. */
static uint32_t input_of(enum form form, uint64_t len, uint32_t k)
{
	uint32_t slices = len > SLICE ? len / SLICE : 1;

	return form == CHAIN ? k % 3 : k / slices;
}

static uint32_t transfers(enum form form, uint64_t len)
{
	return (form == MESSAGE ? 1 : 3) * (len > SLICE ? len / SLICE : 1);
}

#define LINKS_COUNTED(_from, _n) do { \
	struct links now_; \
	uint32_t i_, j_; \
	ASSERT_EQ(0, links_read(&now_)); \
	for (i_ = 0; i_ < N; i_++) \
		for (j_ = 0; j_ < N; j_++) \
			EXPECT_EQ(i_ == (_from) && j_ == DEV(0) ? (_n) : 0, \
				  now_.damaged[i_][j_] - self->before.damaged[i_][j_]) \
				TH_LOG("npu%u -> npu%u", i_, j_); \
	self->before = now_; \
} while (0)

/* Each transfer in turn, once: the link counts one, and nobody else notices. */
TEST_F(damaged, sent_again)
{
	uint32_t k, peer;

	for (k = 0; k < transfers(variant->form, variant->len); k++) {
		peer = variant->form == MESSAGE ? 2 : 1 + input_of(variant->form, variant->len, k);
		ASSERT_EQ(0, raw_knob(DEV(0), "skip", k));
		ASSERT_EQ(0, raw_knob(DEV(0), "corrupt_link", 1));
		EXPECT_EQ(0, run(self, variant->form));
		EXPECT_EQ(0, wrong(self, variant->form, variant->len));
		EXPECT_EQ(0, raw_knob_get(DEV(0), "corrupt_link"));
		LINKS_COUNTED(DEV(peer), 1);
	}
	/* Beyond the last there is nothing to hit. */
	ASSERT_EQ(0, raw_knob(DEV(0), "skip", k));
	ASSERT_EQ(0, raw_knob(DEV(0), "corrupt_link", 1));
	EXPECT_EQ(0, run(self, variant->form));
	EXPECT_EQ(0, wrong(self, variant->form, variant->len));
	EXPECT_EQ(1, raw_knob_get(DEV(0), "corrupt_link"));
	LINKS_COUNTED(0, 0);
}

/* Twice: everybody is told whose step received it, who sent it, and from which device. */
static void twice(struct __test_metadata *_metadata, FIXTURE_DATA(damaged) *self,
		  const FIXTURE_VARIANT(damaged) *variant, uint32_t k)
{
	uint32_t input = input_of(variant->form, variant->len, k), r;
	uint32_t peer = variant->form == MESSAGE ? 2 : 1 + input;
	struct npulink_comm_status st;

	if (k >= transfers(variant->form, variant->len))
		return;
	ASSERT_EQ(0, raw_knob(DEV(0), "skip", k));
	ASSERT_EQ(0, raw_knob(DEV(0), "corrupt_link", 2));
	EXPECT_EQ(-EBADMSG, run(self, variant->form));
	EXPECT_EQ(0, raw_knob_get(DEV(0), "corrupt_link"));
	for (r = 0; r < N; r++) {
		ASSERT_EQ(0, raw_status(self->m[r].fd, self->m[r].comm, &st));
		EXPECT_EQ(-EBADMSG, st.out_status);
		EXPECT_EQ(NPULINK_CAUSE_CHECKSUM, st.out_cause);
		EXPECT_EQ(0, st.out_rank);
		EXPECT_EQ(peer, st.out_peer);
		EXPECT_EQ(input, st.out_step);
		EXPECT_EQ(DEV(peer), st.out_code);
		EXPECT_EQ(1, st.out_number);
	}
	LINKS_COUNTED(DEV(peer), 2);
}

TEST_F(damaged, twice_the_first) { twice(_metadata, self, variant, 0); }
TEST_F(damaged, twice_the_second) { twice(_metadata, self, variant, 1); }
TEST_F(damaged, twice_the_third) { twice(_metadata, self, variant, 2); }
TEST_F(damaged, twice_the_fourth) { twice(_metadata, self, variant, 3); }
TEST_F(damaged, twice_the_last)
{
	twice(_metadata, self, variant, transfers(variant->form, variant->len) - 1);
}

TEST_HARNESS_MAIN
