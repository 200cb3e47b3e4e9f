// SPDX-License-Identifier: GPL-2.0
/*
 * shrink - the survivors of a failed communicator agree on who they are, keep their
 * order, and can run collectives again; those who die or leave meanwhile are missed.
 */
#include <signal.h>
#include <sys/wait.h>
#include "harness.h"
#include "nl.h"
#include "raw.h"

#define RANKS 4

FIXTURE(shrink) {
	int fd[RANKS];
	int comm[RANKS];
};

FIXTURE_SETUP(shrink)
{
	uint8_t secret[16];
	int r;

	raw_secret(secret);
	for (r = 0; r < RANKS; r++) {
		self->fd[r] = raw_open(r);
		ASSERT_GE(self->fd[r], 0);
		self->comm[r] = raw_comm(self->fd[r], secret, r, RANKS);
		ASSERT_GT(self->comm[r], 0);
	}
}

FIXTURE_TEARDOWN(shrink)
{
	int r;

	for (r = 0; r < RANKS; r++)
		close(self->fd[r]);
}

static int shrink(int fd, int comm, struct npulink_comm_shrink *cmd)
{
	*cmd = (struct npulink_comm_shrink) { .size = sizeof(*cmd), .comm_id = comm };
	return raw_ioctl(fd, NPULINK_COMM_SHRINK, cmd);
}

static int status(int fd, int comm, struct npulink_comm_status *st)
{
	*st = (struct npulink_comm_status) { .size = sizeof(*st), .comm_id = comm };
	return raw_ioctl(fd, NPULINK_COMM_STATUS, st);
}

/* All ranks of a communicator pass a message of no bytes around: 0, or what it ended with. */
static int ring(const int *fd, const int *comm, int n)
{
	struct npulink_post post[RANKS];
	int rc = 0, r, got;

	for (r = 0; r < n; r++) {
		struct npulink_step steps[2] = {
			raw_step(NPULINK_STEP_SEND, 0), raw_step(NPULINK_STEP_RECV, 0),
		};
		struct npulink_plan_create plan = raw_plan_cmd(comm[r], NULL, 0, steps, 2);

		plan.call = (struct npulink_call) { .collective = NPULINK_COLL_BARRIER };
		steps[0].send_peer = (r + 1) % n;
		steps[1].recv_peer = (r + n - 1) % n;
		rc = raw_ioctl(fd[r], NPULINK_PLAN_CREATE, &plan);
		if (rc)
			return rc;
		post[r] = raw_post_cmd(plan.out_id, NPULINK_POST_HELD);
		rc = raw_ioctl(fd[r], NPULINK_POST, &post[r]);
		if (rc) {
			raw_destroy(fd[r], plan.out_id);
			return rc;
		}
	}
	for (r = 0; r < n; r++) {
		struct npulink_result res;

		got = raw_wait(fd[r], post[r].out_seq, &res);
		rc = rc ?: got ?: res.status;
		raw_destroy(fd[r], post[r].plan_id);
	}
	return rc;
}

TEST_F(shrink, a_healthy_communicator_is_not_shrunk)
{
	struct npulink_comm_shrink cmd;

	EXPECT_EQ(-EINVAL, shrink(self->fd[0], self->comm[0], &cmd));
	EXPECT_EQ(-ENOENT, shrink(self->fd[0], 4711, &cmd));
	cmd = (struct npulink_comm_shrink) { .size = sizeof(cmd), .flags = 2 };
	EXPECT_EQ(-EOPNOTSUPP, raw_ioctl(self->fd[0], NPULINK_COMM_SHRINK, &cmd));
}

TEST_F(shrink, survivors_go_on_in_order)
{
	int fd[] = { self->fd[0], self->fd[2], self->fd[3] }, comm[3];
	struct npulink_comm_shrink cmd;
	int i;

	ASSERT_EQ(0, ring(self->fd, self->comm, RANKS));
	close(self->fd[1]);
	EXPECT_EQ(-EOWNERDEAD, ring(self->fd, self->comm, RANKS - 1));
	for (i = 0; i < 3; i++) {
		ASSERT_EQ(0, shrink(fd[i], self->comm[i ? i + 1 : 0], &cmd));
		EXPECT_EQ(i, (int)cmd.out_rank);
		EXPECT_EQ(3, (int)cmd.out_nranks);
		comm[i] = cmd.out_id;
		EXPECT_EQ(-EEXIST, shrink(fd[i], self->comm[i ? i + 1 : 0], &cmd));
	}
	/* The old one can go before the new one is used. */
	EXPECT_EQ(0, raw_destroy(fd[0], self->comm[0]));
	EXPECT_EQ(0, ring(fd, comm, 3));
	EXPECT_EQ(0, ring(fd, comm, 3));
	self->fd[1] = -1;
}

TEST_F(shrink, who_dies_before_joining_is_missed_and_shrunk_away)
{
	int fd[] = { self->fd[0], self->fd[3] }, comm[2];
	struct npulink_comm_shrink cmd;
	struct npulink_comm_status st;

	close(self->fd[1]);
	ASSERT_EQ(0, shrink(self->fd[0], self->comm[0], &cmd));
	EXPECT_EQ(3, (int)cmd.out_nranks);
	comm[0] = cmd.out_id;
	ASSERT_EQ(0, status(self->fd[0], comm[0], &st));
	EXPECT_EQ(NPULINK_CAUSE_NONE, (int)st.out_cause);
	/* Rank 2, which would have been 1 of the new one, goes, too. */
	close(self->fd[2]);
	ASSERT_EQ(0, status(self->fd[0], comm[0], &st));
	EXPECT_EQ(NPULINK_CAUSE_DEATH, (int)st.out_cause);
	EXPECT_EQ(1, (int)st.out_rank);
	/* Rank 3 joins what has failed, and both go on from there. */
	ASSERT_EQ(0, shrink(self->fd[3], self->comm[3], &cmd));
	EXPECT_EQ(2, (int)cmd.out_rank);
	comm[1] = cmd.out_id;
	ASSERT_EQ(0, shrink(self->fd[3], comm[1], &cmd));
	EXPECT_EQ(1, (int)cmd.out_rank);
	EXPECT_EQ(2, (int)cmd.out_nranks);
	comm[1] = cmd.out_id;
	ASSERT_EQ(0, shrink(self->fd[0], comm[0], &cmd));
	EXPECT_EQ(0, (int)cmd.out_rank);
	comm[0] = cmd.out_id;
	EXPECT_EQ(0, ring(fd, comm, 2));
	self->fd[1] = -1;
	self->fd[2] = -1;
}

TEST_F(shrink, who_leaves_instead_of_joining_is_missed)
{
	struct npulink_comm_shrink cmd;
	struct npulink_comm_status st;

	close(self->fd[1]);
	ASSERT_EQ(0, shrink(self->fd[0], self->comm[0], &cmd));
	ASSERT_EQ(0, raw_destroy(self->fd[3], self->comm[3]));
	ASSERT_EQ(0, status(self->fd[0], cmd.out_id, &st));
	EXPECT_EQ(NPULINK_CAUSE_LEFT, (int)st.out_cause);
	EXPECT_EQ(-ESHUTDOWN, st.out_status);
	EXPECT_EQ(2, (int)st.out_rank);
	self->fd[1] = -1;
}

/* Rank 2 of a communicator in a process that dies; a child of that one still has its file. */
static void die_with_heir(const uint8_t *secret, int up, int down)
{
	int fd = raw_open(3);
	char c;

	RAW_CHECK(raw_comm(fd, secret, 2, 3) > 0);
	if (!fork()) {
		RAW_CHECK(write(up, "j", 1) == 1);
		/* Until the test is over. */
		_exit(read(down, &c, 1) != 0);
	}
	pause();
}

/* A rank that has joined the new one may leave the old one: others are further on already. */
TEST_F(shrink, who_has_joined_may_leave_what_was_before)
{
	int next[RANKS], last[RANKS], r;
	struct npulink_comm_status st;
	struct npulink_comm_shrink cmd;

	ASSERT_EQ(0, raw_abort(self->fd[0], self->comm[0], 1));
	for (r = 0; r < RANKS; r++) {
		ASSERT_EQ(0, shrink(self->fd[r], self->comm[r], &cmd));
		next[r] = cmd.out_id;
	}
	ASSERT_EQ(0, raw_abort(self->fd[0], next[0], 2));
	ASSERT_EQ(0, shrink(self->fd[0], next[0], &cmd));
	last[0] = cmd.out_id;
	ASSERT_EQ(0, raw_destroy(self->fd[1], self->comm[1]));
	ASSERT_EQ(0, status(self->fd[0], last[0], &st));
	EXPECT_EQ(0, (int)st.out_cause);
	for (r = 1; r < RANKS; r++) {
		ASSERT_EQ(0, shrink(self->fd[r], next[r], &cmd));
		last[r] = cmd.out_id;
	}
	EXPECT_EQ(0, ring(self->fd, last, RANKS));
}

TEST_F(shrink, who_died_is_gone_though_its_file_lives_on)
{
	int up[2], down[2], fd[] = { self->fd[0], self->fd[1] }, comm[2], i;
	struct npulink_comm_shrink cmd;
	uint8_t secret[16];
	pid_t pid;
	char c;

	raw_secret(secret);
	ASSERT_EQ(0, pipe(up) | pipe(down));
	for (i = 0; i < 2; i++) {
		comm[i] = raw_comm(fd[i], secret, i, 3);
		ASSERT_LT(0, comm[i]);
	}
	pid = fork();
	if (!pid) {
		close(down[1]);
		die_with_heir(secret, up[1], down[0]);
	}
	ASSERT_EQ(1, read(up[0], &c, 1));
	kill(pid, SIGKILL);
	EXPECT_EQ(-SIGKILL, raw_reap(pid));
	EXPECT_EQ(-EOWNERDEAD, ring(fd, comm, 2));
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, shrink(fd[i], comm[i], &cmd));
		EXPECT_EQ(i, (int)cmd.out_rank);
		EXPECT_EQ(2, (int)cmd.out_nranks);
		comm[i] = cmd.out_id;
	}
	EXPECT_EQ(0, ring(fd, comm, 2));
	close(down[1]);
}

TEST_F(shrink, after_an_abort_all_survive)
{
	struct npulink_comm_abort abort = { .size = sizeof(abort), .comm_id = self->comm[2] };
	struct npulink_comm_shrink cmd;
	int comm[RANKS], i;

	ASSERT_EQ(0, raw_ioctl(self->fd[2], NPULINK_COMM_ABORT, &abort));
	for (i = 0; i < RANKS; i++) {
		ASSERT_EQ(0, shrink(self->fd[i], self->comm[i], &cmd));
		EXPECT_EQ(RANKS, (int)cmd.out_nranks);
		comm[i] = cmd.out_id;
	}
	EXPECT_EQ(0, ring(self->fd, comm, RANKS));
}

/* Shrink again and again what only @fd's rank has ever joined: how often that was possible. */
static int chain(int fd, int comm, int times, int *last)
{
	struct npulink_comm_shrink cmd;
	int i, rc;

	for (i = 0; i < times; i++) {
		if (raw_abort(fd, comm, 1))
			return -1;
		rc = shrink(fd, comm, &cmd);
		*last = rc;
		if (rc || raw_destroy(fd, comm))
			break;
		comm = cmd.out_id;
	}
	return i;
}

/* Nobody holds what all have left for the next one. */
TEST_F(shrink, a_thousand_times)
{
	uint8_t secret[16];
	int comm, last = -1;

	raw_secret(secret);
	comm = raw_comm(self->fd[0], secret, 0, 1);
	ASSERT_GT(comm, 0);
	EXPECT_EQ(1000, chain(self->fd[0], comm, 1000, &last));
	EXPECT_EQ(0, last);
	/* The fixture's, and the last of them. */
	EXPECT_TRUE(RAW_EVENTUALLY(nl_comms() == 2))
		TH_LOG("%d communicators", nl_comms());
}

/* As long as somebody may still come, all in between are there; so that has an end. */
TEST_F(shrink, not_for_ever_without_the_others)
{
	struct npulink_comm_shrink cmd;
	int last = -1;

	EXPECT_EQ(32, chain(self->fd[0], self->comm[0], 100, &last));
	EXPECT_EQ(-EMLINK, last);
	/* The others find the way through the one before. */
	EXPECT_EQ(0, shrink(self->fd[1], self->comm[1], &cmd));
	EXPECT_EQ(4, (int)cmd.out_nranks);
}

TEST_HARNESS_MAIN
