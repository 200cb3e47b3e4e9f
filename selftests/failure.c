// SPDX-License-Identifier: GPL-2.0
/*
 * failure - every operation ends, and says why: abort, deadline, a link that goes down, a
 * device that fails, is late, or loses interrupts. All ranks are told the same cause,
 * and what is told names who and where. Different calls: see mismatch.c.
 */
#include <pthread.h>
#include "team.h"
#include "harness.h"

#define LEN	(256 << 10)
#define MS	1000000ULL
/* Of what does not end by itself; long enough for all to be posted. */
#define DEADLINE	((getenv("NPULINK_SLOW") ? 5000 : 2000) * MS)

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

static void *might_post(void *arg)
{
	pause();
	return NULL;
}

/* A thread that is not in a call: without one, a rank of ours that never posts is a deadlock. */
static pthread_t other_thread(struct __test_metadata *_metadata)
{
	pthread_t thread;

	ASSERT_EQ(0, pthread_create(&thread, NULL, might_post, NULL));
	return thread;
}

static void other_thread_ends(pthread_t thread)
{
	pthread_cancel(thread);
	pthread_join(thread, NULL);
}

TEST_F(failure, one_never_posts)
{
	pthread_t thread = other_thread(_metadata);
	uint32_t absent = self->t.n / 2;
	uint64_t begin = raw_now(), longest = 0;
	struct npulink_comm_status st;
	struct npulink_result res;
	uint32_t r;

	/* Long enough for all to post before it has passed for the first. */
	ASSERT_EQ(0, start_but(&self->t, absent, DEADLINE));
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
		/* It ends for all when it has passed for the first of them. */
		longest = res.ns > longest ? res.ns : longest;
	}
	EXPECT_GE(longest, DEADLINE - 10 * MS);
	EXPECT_GE(raw_now() - begin, DEADLINE);
	ASSERT_EQ(0, raw_status(self->t.m[absent].fd, self->t.m[absent].comm, &st));
	EXPECT_EQ(-ETIMEDOUT, st.out_status);
	EXPECT_EQ(absent, st.out_peer);
	EXPECT_EQ(-ETIMEDOUT, member_run(&self->t.m[absent], NULL));
	other_thread_ends(thread);
}

/* Only the shortest deadline counts, whoever has it, and 0 means none. */
TEST_F(failure, one_has_a_deadline)
{
	pthread_t thread = other_thread(_metadata);
	struct npulink_result res;
	uint64_t begin = raw_now();
	uint32_t r;

	ASSERT_EQ(0, member_start(&self->t.m[0], 0, &self->t.seq[0]));
	raw_sleep_ms(100);
	/* The one with the short one last: when it has passed, nobody may post any more. */
	for (r = self->t.n - 2; r > 0; r--)
		ASSERT_EQ(0, member_start(&self->t.m[r], r == 1 ? 100 * MS : 3600000 * MS,
					  &self->t.seq[r]));
	if (self->t.n == 2) {
		struct npulink_wait wait = { .size = sizeof(wait), .seq = self->t.seq[0] };

		wait.wait_until_ns = raw_now() + 200 * MS;
		EXPECT_EQ(-ETIME, raw_ioctl(self->t.m[0].fd, NPULINK_WAIT, &wait));
		other_thread_ends(thread);
		return;
	}
	ASSERT_EQ(0, raw_wait(self->t.m[0].fd, self->t.seq[0], &res));
	EXPECT_EQ(-ETIMEDOUT, res.status);
	EXPECT_EQ(self->t.n - 1, res.peer);
	EXPECT_LT(raw_now() - begin, 60000 * MS);
	other_thread_ends(thread);
}

/* A deadline that is not reached costs nothing, however many there are. */
TEST_F(failure, deadlines_that_hold)
{
	int i;

	for (i = 0; i < 20; i++) {
		ASSERT_EQ(0, team_start(&self->t, 60000 * MS + i));
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
	ASSERT_EQ(0, team_start(&self->t, DEADLINE));
	ALL_TOLD(NPULINK_CAUSE_DEADLINE, ETIMEDOUT, true);
	ASSERT_EQ(0, raw_status(self->t.m[0].fd, self->t.m[0].comm, &st));
	/* Noticed by itself, or by who waits for it. */
	EXPECT_EQ(hung, st.out_peer == NPULINK_NO_PEER ? st.out_rank : st.out_peer);
	/* The device has been made to let go of everything. */
	EXPECT_EQ(0, raw_knob_get(hung, "held"));
}

/*
 * Who is to blame is followed from rank to rank, and here in a circle, in a communicator that
 * has room for very many, past many steps that are done.
 */
TEST(deadline_in_a_circle)
{
	enum { NOPS = 20000 };
	struct npulink_slot slot = {
		.min_len = 8, .access = NPULINK_SLOT_READ | NPULINK_SLOT_WRITE,
	};
	static struct npulink_step steps[NOPS + 2];
	struct npulink_result res;
	uint8_t secret[16];
	uint64_t seq[2];
	int fd[2], r;
	uint32_t i;

	raw_secret(secret);
	for (i = 0; i < NOPS; i++)
		steps[i] = raw_step(0, 0);
	steps[NOPS] = raw_step(NPULINK_STEP_RECV, 4);
	steps[NOPS + 1] = raw_step(NPULINK_STEP_SEND, 4);
	steps[NOPS + 1].src_off = 4;
	steps[NOPS + 1].dep[0] = 1;
	for (r = 1; r >= 0; r--) {
		struct npulink_post post;
		int comm, buf, plan;

		fd[r] = raw_open(r);
		comm = raw_comm(fd[r], secret, r, 1 << 20);
		buf = raw_register(fd[r], raw_anon(4096), 4096, 0);
		steps[NOPS].recv_peer = 1 - r;
		steps[NOPS + 1].send_peer = 1 - r;
		plan = raw_plan(fd[r], comm, &slot, 1, steps, NOPS + 2);
		ASSERT_LT(0, plan);
		post = raw_post_cmd(plan, NPULINK_POST_HELD);
		post.deadline_ns = r ? 0 : 500 * MS;
		raw_bind(&post, buf, 0, 8);
		ASSERT_EQ(0, raw_ioctl(fd[r], NPULINK_POST, &post));
		seq[r] = post.out_seq;
	}
	for (r = 0; r < 2; r++) {
		ASSERT_EQ(0, raw_wait(fd[r], seq[r], &res));
		EXPECT_EQ(-ETIMEDOUT, res.status);
		EXPECT_EQ(NPULINK_CAUSE_DEADLINE, res.cause);
		EXPECT_GT(2, res.rank);
		EXPECT_EQ(1 - res.rank, res.peer);
		EXPECT_EQ(NOPS, res.step);
	}
	close(fd[0]);
	close(fd[1]);
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

/* Wait until the device @n holds what it will be given: for longer than a host is away. */
static bool settles(uint32_t n)
{
	long long held, last = 0;
	int tries, same = 0;

	for (tries = 0; tries < 4000 && same < 80; tries++, last = held) {
		held = raw_knob_get(n, "held");
		same = held && held == last ? same + 1 : 0;
		raw_sleep_ms(5);
	}
	return same == 80;
}

/* It says so itself: everybody who uses it is told, and what it was in the middle of. */
TEST_F(failure, device_that_is_broken)
{
	uint32_t bad = self->t.n - 1, r;
	struct npulink_comm_status st;
	struct team other, far;

	ASSERT_EQ(0, team_allreduce(&self->t, 1));
	ASSERT_EQ(0, team_open(&other, self->t.n, 8, variant->len));
	ASSERT_EQ(0, team_open(&far, 1, 8, variant->len));
	ASSERT_EQ(0, raw_knob(bad, "hold", 0));
	ASSERT_EQ(0, team_start(&self->t, 0));
	ASSERT_TRUE(settles(bad));
	EXPECT_EQ(-ERANGE, raw_knob(bad, "fault", 0));
	EXPECT_EQ(-ERANGE, raw_knob(bad, "fault", 4096));
	ASSERT_EQ(0, raw_knob(bad, "fault", EREMOTEIO));
	ALL_TOLD(NPULINK_CAUSE_DEVICE, EIO, true);
	ASSERT_EQ(0, raw_status(self->t.m[0].fd, self->t.m[0].comm, &st));
	EXPECT_EQ(bad, st.out_rank);
	EXPECT_EQ(NPULINK_NO_PEER, st.out_peer);
	EXPECT_EQ(EREMOTEIO, st.out_code);
	EXPECT_EQ(1, st.out_number);
	/* What it sends has been taken; what it receives is held. */
	EXPECT_EQ(1, st.out_step);
	EXPECT_EQ(0, raw_knob_get(bad, "held"));
	/* Those who do nothing just now, too, in turn, but not those who are elsewhere. */
	for (r = 0; r < other.n; r++) {
		ASSERT_TRUE(RAW_EVENTUALLY(!raw_status(other.m[r].fd, other.m[r].comm, &st) &&
					   st.out_cause));
		EXPECT_EQ(NPULINK_CAUSE_DEVICE, st.out_cause);
		EXPECT_EQ(bad, st.out_rank);
		EXPECT_EQ(-1ULL, st.out_number);
		EXPECT_EQ(~0U, st.out_step);
	}
	ASSERT_EQ(0, raw_status(far.m[0].fd, far.m[0].comm, &st));
	EXPECT_EQ(NPULINK_CAUSE_NONE, st.out_cause);
	team_close(&far);
	team_close(&other);
	/* It may have been mended. */
	raw_knobs_reset(8);
	ASSERT_EQ(0, team_open(&other, self->t.n, 8, variant->len));
	EXPECT_EQ(0, team_allreduce(&other, 2));
	team_close(&other);
}

static int link_knob(uint32_t from, uint32_t to, const char *state)
{
	char path[128], text[32];

	snprintf(path, sizeof(path), RAW_KNOBS "/npu%u/link", from);
	snprintf(text, sizeof(text), "npu%u %s", to, state);
	return raw_write(path, text);
}

#define LINK_TOLD(_rank, _peer, _step, _number) do { \
	struct npulink_comm_status link_; \
	ASSERT_EQ(0, raw_status(self->t.m[0].fd, self->t.m[0].comm, &link_)); \
	EXPECT_EQ(NPULINK_CAUSE_LINK, link_.out_cause); \
	EXPECT_EQ(-ENOLINK, link_.out_status); \
	EXPECT_EQ(_rank, link_.out_rank); \
	EXPECT_EQ(_peer, link_.out_peer); \
	EXPECT_EQ(_step, link_.out_step); \
	EXPECT_EQ(_number, link_.out_number); \
} while (0)

/* Whose end it is, to whom, and which of the steps with that rank is not done. */
static void link_goes_down(struct __test_metadata *_metadata, FIXTURE_DATA(failure) *self,
			   bool to_hung)
{
	uint32_t hung = self->t.n - 1, left = hung - 1;

	ASSERT_EQ(0, team_allreduce(&self->t, 1));
	ASSERT_EQ(0, raw_knob(hung, "hold", 0));
	ASSERT_EQ(0, team_start(&self->t, 0));
	ASSERT_TRUE(settles(hung));
	ASSERT_EQ(0, link_knob(to_hung ? left : hung, to_hung ? hung : left, "down"));
	ALL_TOLD(NPULINK_CAUSE_LINK, ENOLINK, true);
	/* The first that the left one sends has not been taken. */
	if (to_hung)
		LINK_TOLD(left, hung, 0, 1);
	else
		LINK_TOLD(hung, left, 1, 1);
	ASSERT_EQ(0, link_knob(to_hung ? left : hung, to_hung ? hung : left, "up"));
}

TEST_F(failure, link_goes_down_in_flight)
{
	link_goes_down(_metadata, self, true);
}

TEST_F(failure, link_back_goes_down_in_flight)
{
	link_goes_down(_metadata, self, false);
}

/* Also if the ranks only wait for each other (round.c), and no step has begun. */
TEST(link_goes_down_while_ranks_gather)
{
	struct { struct team t; } team, *self = &team;
	uint32_t r, last = 4;

	raw_knobs_reset(8);
	ASSERT_EQ(0, team_open(&self->t, last + 1, 8, 20));
	for (r = 0; r < 3; r++)
		ASSERT_EQ(0, team_allreduce(&self->t, r));
	ASSERT_EQ(0, start_but(&self->t, last, 0));
	ASSERT_EQ(0, link_knob(0, 1, "down"));
	for (r = 0; r < last; r++) {
		struct npulink_result res;

		ASSERT_EQ(0, raw_wait(self->t.m[r].fd, self->t.seq[r], &res));
		EXPECT_EQ(-ENOLINK, res.status);
		EXPECT_EQ(3, res.number);
	}
	LINK_TOLD(0, 1, 0, 3);
	ASSERT_EQ(0, link_knob(0, 1, "up"));
	team_close(&self->t);
}

/* Who comes when it is down learns it from the first step that has something to tell. */
TEST_F(failure, link_that_is_down)
{
	struct npulink_comm_status st;
	uint8_t secret[16];
	uint32_t r;

	for (r = 0; r < self->t.n; r++)
		member_leave(&self->t.m[r]);
	ASSERT_EQ(0, link_knob(0, 1, "down"));
	raw_secret(secret);
	for (r = 0; r < self->t.n; r++)
		ASSERT_EQ(0, member_join(&self->t.m[r], r, secret, r, self->t.n, variant->len));
	ASSERT_EQ(0, start_but(&self->t, self->t.n - 1, 0));
	member_start(&self->t.m[r - 1], 0, &self->t.seq[r - 1]);
	EXPECT_EQ(-ENOLINK, team_finish(&self->t));
	/*
	 * Nobody was there to be told of what step 0 sends. The later steps wait for the last
	 * rank, which comes when all others are ready: where they are not carried out one after
	 * the other, any of them may be the first.
	 */
	ASSERT_EQ(0, raw_status(self->t.m[0].fd, self->t.m[0].comm, &st));
	LINK_TOLD(0, 1, st.out_step, 0);
	EXPECT_LE(1, st.out_step);
	EXPECT_GE(variant->len < 100 ? 1 : self->t.n, st.out_step);
	ASSERT_EQ(0, link_knob(0, 1, "up"));
}

/* A lost interrupt ends in a deadline, not in a hang, and the device is clean. */
TEST_F(failure, interrupt_that_is_lost)
{
	uint32_t r;
	long rc;

	for (r = 0; r < self->t.n; r++)
		ASSERT_EQ(0, raw_knob(r, "drop_irq", 1000));
	ASSERT_EQ(0, team_start(&self->t, DEADLINE));
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
