// SPDX-License-Identifier: GPL-2.0
/*
 * comm - who may join a communicator, what the ranks know of each other, and what
 * happens when they leave.
 */
#include <grp.h>
#include <sched.h>
#include <sys/stat.h>
#include "team.h"
#include "harness.h"

#define LEN	4096

FIXTURE(comm) {
	uint8_t secret[16];
	int fd[4];
};

FIXTURE_SETUP(comm)
{
	int i;

	raw_secret(self->secret);
	for (i = 0; i < 4; i++) {
		self->fd[i] = raw_open(i % 2);
		ASSERT_GE(self->fd[i], 0);
	}
}

FIXTURE_TEARDOWN(comm)
{
	int i;

	for (i = 0; i < 4; i++)
		close(self->fd[i]);
}

static int join(int fd, const uint8_t *secret, uint32_t rank, uint32_t nranks, uint32_t flags)
{
	struct npulink_comm_create cmd = {
		.size = sizeof(cmd), .rank = rank, .nranks = nranks, .flags = flags,
	};
	int rc;

	memcpy(cmd.secret, secret, 16);
	rc = raw_ioctl(fd, NPULINK_COMM_CREATE, &cmd);
	return rc ? rc : (int)cmd.out_id;
}

TEST_F(comm, err_rank_out_of_range)
{
	EXPECT_EQ(-EINVAL, join(self->fd[0], self->secret, 0, 0, 0));
	EXPECT_EQ(-EINVAL, join(self->fd[0], self->secret, 2, 2, 0));
	EXPECT_EQ(-EINVAL, join(self->fd[0], self->secret, -1, 2, 0));
	EXPECT_EQ(-EINVAL, join(self->fd[0], self->secret, 0, (1 << 20) + 1, 0));
	EXPECT_EQ(-EINVAL, join(self->fd[0], self->secret, 0, -1, 0));
	EXPECT_GT(join(self->fd[0], self->secret, (1 << 20) - 1, 1 << 20, 0), 0);
}

static int join_timeout(int fd, uint8_t *secret, uint32_t ms)
{
	struct npulink_comm_create cmd = {
		.size = sizeof(cmd), .nranks = 1, .peer_timeout_ms = ms,
	};
	int rc;

	secret[15]++;
	memcpy(cmd.secret, secret, 16);
	rc = raw_ioctl(fd, NPULINK_COMM_CREATE, &cmd);
	return rc ? rc : (int)cmd.out_id;
}

TEST_F(comm, err_peer_timeout_out_of_range)
{
	EXPECT_EQ(-EINVAL, join_timeout(self->fd[0], self->secret, 1));
	EXPECT_EQ(-EINVAL, join_timeout(self->fd[0], self->secret, NPULINK_PEER_TIMEOUT_MIN - 1));
	EXPECT_EQ(-EINVAL, join_timeout(self->fd[0], self->secret, NPULINK_PEER_TIMEOUT_MAX + 1));
	EXPECT_EQ(-EINVAL, join_timeout(self->fd[0], self->secret, -1));
	EXPECT_GT(join_timeout(self->fd[0], self->secret, 0), 0);
	EXPECT_GT(join_timeout(self->fd[0], self->secret, NPULINK_PEER_TIMEOUT_MIN), 0);
	EXPECT_GT(join_timeout(self->fd[0], self->secret, NPULINK_PEER_TIMEOUT_MAX), 0);
}

TEST_F(comm, err_rank_is_taken)
{
	int a = join(self->fd[0], self->secret, 0, 3, 0);

	ASSERT_GT(a, 0);
	EXPECT_EQ(-EEXIST, join(self->fd[1], self->secret, 0, 3, 0));
	EXPECT_GT(join(self->fd[1], self->secret, 1, 3, 0), 0);
	/* Also after it has left: others may have talked to the first one. */
	EXPECT_EQ(0, raw_destroy(self->fd[0], a));
	EXPECT_EQ(-EEXIST, join(self->fd[2], self->secret, 0, 3, 0));
}

TEST_F(comm, err_file_is_in_it)
{
	EXPECT_GT(join(self->fd[0], self->secret, 0, 3, 0), 0);
	EXPECT_EQ(-EEXIST, join(self->fd[0], self->secret, 1, 3, 0));
	EXPECT_EQ(-EEXIST, join(self->fd[0], self->secret, 0, 3, 0));
	/* But it may be in any number of others. */
	self->secret[15]++;
	EXPECT_GT(join(self->fd[0], self->secret, 1, 3, 0), 0);
}

TEST_F(comm, err_other_number_of_ranks)
{
	EXPECT_GT(join(self->fd[0], self->secret, 0, 3, 0), 0);
	EXPECT_EQ(-EINVAL, join(self->fd[1], self->secret, 1, 4, 0));
	EXPECT_EQ(-EINVAL, join(self->fd[1], self->secret, 1, 2, 0));
	EXPECT_GT(join(self->fd[1], self->secret, 1, 3, 0), 0);
}

/* Everybody has left: the secret is free again, for a communicator of any size. */
TEST_F(comm, secret_can_be_used_again)
{
	int a = join(self->fd[0], self->secret, 0, 2, 0);
	int b = join(self->fd[1], self->secret, 1, 2, 0), i;

	EXPECT_EQ(0, raw_destroy(self->fd[0], a));
	EXPECT_EQ(0, raw_destroy(self->fd[1], b));
	for (i = 0; i < 3; i++) {
		a = join(self->fd[i], self->secret, i, 5, 0);
		EXPECT_GT(a, 0);
	}
}

/* A failed attempt leaves nothing: the rank can still join. */
TEST_F(comm, err_joins_all_or_not_at_all)
{
	struct npulink_comm_create *cmd = raw_anon(4096);

	*cmd = (struct npulink_comm_create) { .size = sizeof(*cmd), .nranks = 2 };
	memcpy(cmd->secret, self->secret, 16);
	mprotect(cmd, 4096, PROT_READ);
	EXPECT_EQ(-EFAULT, raw_ioctl(self->fd[0], NPULINK_COMM_CREATE, cmd));
	EXPECT_EQ(-EFAULT, raw_ioctl(self->fd[0], NPULINK_COMM_CREATE, cmd));
	EXPECT_GT(join(self->fd[0], self->secret, 0, 2, 0), 0);
}

static int as_user(uid_t uid, bool new_userns, int fd_dev, const uint8_t *secret,
		   uint32_t flags)
{
	pid_t pid = fork();

	if (!pid) {
		int fd, rc;

		if (new_userns && unshare(CLONE_NEWUSER))
			_exit(99);
		fd = raw_open(fd_dev);
		if (uid && (setgroups(0, NULL) || setresuid(uid, uid, uid)))
			_exit(98);
		if (fd < 0)
			_exit(97);
		rc = join(fd, secret, 1, 3, flags);
		_exit(rc < 0 ? -rc : 0);
	}
	return raw_reap(pid);
}

TEST_F(comm, err_another_user)
{
	ASSERT_GT(join(self->fd[0], self->secret, 0, 3, 0), 0);
	EXPECT_EQ(EACCES, as_user(1000, false, 0, self->secret, 0));
	/* Asking alone is not enough. */
	EXPECT_EQ(EACCES, as_user(1000, false, 0, self->secret, NPULINK_COMM_ANY_UID));
	EXPECT_EQ(EACCES, as_user(0, false, 0, self->secret, NPULINK_COMM_ANY_UID));
	/* Nor does a wrong number of ranks tell a stranger more. */
	EXPECT_EQ(0, as_user(0, false, 0, self->secret, 0));
}

TEST_F(comm, err_another_user_namespace)
{
	int rc;

	ASSERT_GT(join(self->fd[0], self->secret, 0, 3, 0), 0);
	rc = as_user(0, true, 0, self->secret, 0);
	if (rc == 99)
		SKIP(return, "no user namespaces");
	if (rc == 97)
		SKIP(return, "the device cannot be opened there");
	EXPECT_EQ(EACCES, rc);
}

TEST_F(comm, any_user_if_all_agree)
{
	ASSERT_GT(join(self->fd[0], self->secret, 0, 3, NPULINK_COMM_ANY_UID), 0);
	EXPECT_EQ(EACCES, as_user(0, false, 0, self->secret, 0));
	EXPECT_EQ(0, as_user(1000, false, 0, self->secret, NPULINK_COMM_ANY_UID));
}

TEST_F(comm, err_has_failed)
{
	struct npulink_comm_status st;
	int a = join(self->fd[0], self->secret, 0, 3, 0);

	ASSERT_GT(join(self->fd[1], self->secret, 1, 3, 0), 0);
	ASSERT_EQ(0, raw_abort(self->fd[0], a, 77));
	EXPECT_EQ(-ECANCELED, join(self->fd[2], self->secret, 2, 3, 0));
	EXPECT_EQ(0, raw_status(self->fd[0], a, &st));
	EXPECT_EQ(2, st.out_joined);
	EXPECT_EQ(77, st.out_code);
}

TEST_F(comm, status_of_a_healthy_one)
{
	struct npulink_comm_status st;
	struct npulink_call none[2] = {};
	int a = join(self->fd[0], self->secret, 2, 3, 0);

	ASSERT_EQ(0, raw_status(self->fd[0], a, &st));
	EXPECT_EQ(1, st.out_joined);
	EXPECT_EQ(NPULINK_CAUSE_NONE, st.out_cause);
	EXPECT_EQ(0, st.out_status);
	EXPECT_EQ(NPULINK_NO_PEER, st.out_peer);
	EXPECT_EQ(0xffffffff, st.out_step);
	EXPECT_EQ(-1ULL, st.out_number);
	EXPECT_EQ(0, st.out_next);
	EXPECT_EQ(0, memcmp(none, st.out_calls, sizeof(none)));
	ASSERT_GT(join(self->fd[1], self->secret, 1, 3, 0), 0);
	ASSERT_EQ(0, raw_status(self->fd[0], a, &st));
	EXPECT_EQ(2, st.out_joined);
}

TEST_F(comm, err_peers)
{
	struct npulink_peer peer[3] = {};
	struct npulink_comm_peers cmd = {
		.size = sizeof(cmd), .npeers = 3, .peers = (uintptr_t)peer,
	};
	struct npulink_device_info info;
	int i;

	cmd.comm_id = join(self->fd[0], self->secret, 0, 3, 0);
	ASSERT_EQ(0, raw_info(self->fd[0], &info));
	for (i = 0; i < 3; i++)
		memcpy(peer[i].node_id, info.out_node_id, 16);
	EXPECT_EQ(0, raw_ioctl(self->fd[0], NPULINK_COMM_PEERS, &cmd));
	EXPECT_EQ(0, raw_ioctl(self->fd[0], NPULINK_COMM_PEERS, &cmd));
	cmd.first = 1;
	EXPECT_EQ(-EINVAL, raw_ioctl(self->fd[0], NPULINK_COMM_PEERS, &cmd));
	cmd.first = -1;
	EXPECT_EQ(-EINVAL, raw_ioctl(self->fd[0], NPULINK_COMM_PEERS, &cmd));
	cmd.first = 0;
	cmd.peers = 8;
	EXPECT_EQ(-EFAULT, raw_ioctl(self->fd[0], NPULINK_COMM_PEERS, &cmd));
	cmd.peers = (uintptr_t)peer;
	peer[1].node_id[15] ^= 1;
	EXPECT_EQ(-EADDRNOTAVAIL, raw_ioctl(self->fd[0], NPULINK_COMM_PEERS, &cmd));
	peer[1].node_id[15] ^= 1;
	peer[2].kind = 200;
	EXPECT_EQ(-EOPNOTSUPP, raw_ioctl(self->fd[0], NPULINK_COMM_PEERS, &cmd));
	peer[2].kind = 0;
	peer[2].reserved = 1;
	EXPECT_EQ(-EOPNOTSUPP, raw_ioctl(self->fd[0], NPULINK_COMM_PEERS, &cmd));
	peer[2].reserved = 0;
	peer[0].addr.reserved[21] = 1;
	EXPECT_EQ(-EOPNOTSUPP, raw_ioctl(self->fd[0], NPULINK_COMM_PEERS, &cmd));
	peer[0].addr.reserved[21] = 0;
	peer[2].kind = NPULINK_PEER_RDMA;
	EXPECT_EQ(-EADDRNOTAVAIL, raw_ioctl(self->fd[0], NPULINK_COMM_PEERS, &cmd));
	peer[2].node_id[15] ^= 1;
	EXPECT_EQ(-EINVAL, raw_ioctl(self->fd[0], NPULINK_COMM_PEERS, &cmd));
	peer[2].addr.ip[15] = 1;
	EXPECT_EQ(-EINVAL, raw_ioctl(self->fd[0], NPULINK_COMM_PEERS, &cmd));
	peer[2].addr.port = 1;
	/* No port is bound to the device. */
	EXPECT_EQ(-EHOSTUNREACH, raw_ioctl(self->fd[0], NPULINK_COMM_PEERS, &cmd));
}

TEST_F(comm, err_checksum)
{
	struct npulink_peer peer[2] = {};
	struct npulink_comm_peers cmd = {
		.size = sizeof(cmd), .npeers = 2, .peers = (uintptr_t)peer,
	};
	struct npulink_device_info info;

	cmd.comm_id = join(self->fd[0], self->secret, 0, 2, NPULINK_COMM_CHECKSUM);
	ASSERT_LT(0, (int)cmd.comm_id);
	EXPECT_EQ(-EINVAL, join(self->fd[1], self->secret, 1, 2, 0));
	ASSERT_EQ(0, raw_info(self->fd[0], &info));
	memcpy(peer[0].node_id, info.out_node_id, 16);
	peer[1] = peer[0];
	EXPECT_EQ(0, raw_ioctl(self->fd[0], NPULINK_COMM_PEERS, &cmd));
}

TEST_F(comm, test_err_port_info)
{
	struct npulink_port_info cmd = { .size = sizeof(cmd) };

	EXPECT_EQ(-ENOENT, raw_ioctl(self->fd[0], NPULINK_PORT_INFO, &cmd));
	cmd.index = ~0U;
	EXPECT_EQ(-ENOENT, raw_ioctl(self->fd[0], NPULINK_PORT_INFO, &cmd));
	cmd.flags = 1;
	EXPECT_EQ(-EOPNOTSUPP, raw_ioctl(self->fd[0], NPULINK_PORT_INFO, &cmd));
	cmd.flags = 0;
	cmd.size = sizeof(cmd) - 1;
	EXPECT_EQ(-EINVAL, raw_ioctl(self->fd[0], NPULINK_PORT_INFO, &cmd));
}

/* ---- operations come, and ranks come and go, in any order ------------------------- */

TEST(plans_and_posts_before_the_peers_have_joined)
{
	uint8_t secret[16];
	struct member m[3];
	struct npulink_result res;
	uint64_t seq[3];
	int r;

	raw_secret(secret);
	for (r = 0; r < 3; r++) {
		ASSERT_EQ(0, member_join(&m[r], r, secret, r, 3, LEN));
		member_fill(&m[r], 1);
		ASSERT_EQ(0, member_start(&m[r], 0, &seq[r]));
	}
	for (r = 0; r < 3; r++) {
		ASSERT_EQ(0, raw_wait(m[r].fd, seq[r], &res));
		EXPECT_EQ(0, res.status);
		EXPECT_EQ(0, member_wrong(&m[r], 1));
		member_leave(&m[r]);
	}
}

TEST(err_busy)
{
	uint8_t secret[16];
	struct member m[2];
	struct npulink_result res;
	uint64_t seq;

	raw_secret(secret);
	ASSERT_EQ(0, member_join(&m[0], 0, secret, 0, 2, LEN));
	ASSERT_EQ(0, member_join(&m[1], 1, secret, 1, 2, LEN));
	EXPECT_EQ(-EBUSY, raw_destroy(m[0].fd, m[0].comm));
	ASSERT_EQ(0, member_start(&m[0], 0, &seq));
	EXPECT_EQ(-EBUSY, raw_destroy(m[0].fd, m[0].comm));
	EXPECT_EQ(-EBUSY, raw_destroy(m[0].fd, m[0].plan));
	ASSERT_EQ(0, member_run(&m[1], NULL));
	/* Done, even if nobody has fetched the result yet. */
	EXPECT_EQ(0, raw_destroy(m[0].fd, m[0].plan));
	EXPECT_EQ(0, raw_destroy(m[0].fd, m[0].comm));
	EXPECT_EQ(-ENOENT, raw_destroy(m[0].fd, m[0].comm));
	EXPECT_EQ(0, raw_wait(m[0].fd, seq, &res));
	EXPECT_EQ(0, res.status);
	member_leave(&m[0]);
	member_leave(&m[1]);
}

/* Leaving is no failure for those who do not need the rank any more. */
TEST(a_rank_that_has_done_its_part_may_leave)
{
	struct npulink_comm_status st;
	struct npulink_result res;
	uint8_t secret[16];
	struct member m[3];
	uint64_t seq[3];
	int r, round;

	raw_secret(secret);
	for (r = 0; r < 3; r++)
		ASSERT_EQ(0, member_join(&m[r], r, secret, r, 3, LEN));
	for (round = 0; round < 3; round++) {
		for (r = 0; r < 3; r++)
			ASSERT_EQ(0, member_start(&m[r], 0, &seq[r]));
		for (r = 0; r < 3; r++) {
			ASSERT_EQ(0, raw_wait(m[r].fd, seq[r], &res));
			ASSERT_EQ(0, res.status);
			ASSERT_EQ(round, res.number);
		}
	}
	ASSERT_EQ(0, raw_destroy(m[1].fd, m[1].plan));
	ASSERT_EQ(0, raw_destroy(m[1].fd, m[1].comm));
	member_leave(&m[1]);
	ASSERT_EQ(0, raw_status(m[0].fd, m[0].comm, &st));
	EXPECT_EQ(NPULINK_CAUSE_NONE, st.out_cause);
	EXPECT_EQ(2, st.out_joined);
	EXPECT_EQ(3, st.out_next);
	/* But now it is missed. */
	EXPECT_EQ(-ESHUTDOWN, member_run(&m[0], &res));
	EXPECT_EQ(NPULINK_CAUSE_LEFT, res.cause);
	EXPECT_EQ(0, res.rank);
	EXPECT_EQ(1, res.peer);
	EXPECT_EQ(3, res.number);
	ASSERT_EQ(0, raw_status(m[2].fd, m[2].comm, &st));
	EXPECT_EQ(-ESHUTDOWN, st.out_status);
	EXPECT_EQ(1, st.out_peer);
	EXPECT_EQ(-ESHUTDOWN, member_run(&m[2], NULL));
	member_leave(&m[0]);
	member_leave(&m[2]);
}

TEST(a_rank_that_is_waited_for_leaves)
{
	struct npulink_result res;
	uint8_t secret[16];
	struct member m[3];
	uint64_t seq[2];
	int r;

	raw_secret(secret);
	for (r = 0; r < 3; r++)
		ASSERT_EQ(0, member_join(&m[r], r, secret, r, 3, LEN));
	ASSERT_EQ(0, member_start(&m[0], 0, &seq[0]));
	ASSERT_EQ(0, member_start(&m[1], 0, &seq[1]));
	ASSERT_EQ(0, raw_destroy(m[2].fd, m[2].plan));
	ASSERT_EQ(0, raw_destroy(m[2].fd, m[2].comm));
	for (r = 0; r < 2; r++) {
		ASSERT_EQ(0, raw_wait(m[r].fd, seq[r], &res));
		EXPECT_EQ(-ESHUTDOWN, res.status);
		EXPECT_EQ(NPULINK_CAUSE_LEFT, res.cause);
		EXPECT_EQ(2, res.peer);
		EXPECT_EQ(0, res.number);
	}
	for (r = 0; r < 3; r++)
		member_leave(&m[r]);
}

/* Nobody else has been there when it leaves, so the communicator is gone before they come. */
TEST(a_rank_leaves_before_the_others_come)
{
	struct npulink_result res;
	uint8_t secret[16];
	struct member m[3];
	uint64_t seq;
	int r;

	raw_secret(secret);
	ASSERT_EQ(0, member_join(&m[2], 2, secret, 2, 3, LEN));
	ASSERT_EQ(0, raw_destroy(m[2].fd, m[2].plan));
	ASSERT_EQ(0, raw_destroy(m[2].fd, m[2].comm));
	member_leave(&m[2]);
	for (r = 0; r < 2; r++)
		ASSERT_EQ(0, member_join(&m[r], r, secret, r, 3, LEN));
	/* One of them needs it, all of them fail. */
	ASSERT_EQ(-ESHUTDOWN, member_run(&m[0], &res));
	EXPECT_EQ(NPULINK_CAUSE_LEFT, res.cause);
	EXPECT_EQ(2, res.peer);
	EXPECT_EQ(0, res.number);
	EXPECT_EQ(-ESHUTDOWN, member_start(&m[1], 0, &seq));
	for (r = 0; r < 2; r++)
		member_leave(&m[r]);
}

static int tombstone_ms(const char *ms)
{
	return raw_write("/sys/module/npulink/parameters/tombstone_ms", ms);
}

/* As a rank that has failed and left, of @nranks. */
static void fail_alone(struct __test_metadata *_metadata, const uint8_t *secret, uint32_t nranks)
{
	int fd = raw_open(0);
	int id = join(fd, secret, 0, nranks, 0);

	ASSERT_GT(id, 0);
	ASSERT_EQ(0, raw_abort(fd, id, 7));
	ASSERT_EQ(0, raw_destroy(fd, id));
	close(fd);
}

TEST_F(comm, err_failed_before_the_others_came)
{
	struct npulink_comm_status st;
	int id;

	fail_alone(_metadata, self->secret, 3);
	EXPECT_EQ(-ECANCELED, join(self->fd[1], self->secret, 1, 3, 0));
	EXPECT_EQ(-ECANCELED, join(self->fd[2], self->secret, 2, 3, 0));
	EXPECT_EQ(-ECANCELED, join(self->fd[2], self->secret, 2, 3, 0));
	/* Of another one, or of other users, it says nothing. */
	EXPECT_EQ(0, as_user(1000, false, 0, self->secret, 0));
	EXPECT_GT(join(self->fd[3], self->secret, 1, 4, 0), 0);
	/* It starts again, so they may, too. */
	close(self->fd[3]);
	self->fd[3] = raw_open(1);
	fail_alone(_metadata, self->secret, 3);
	id = join(self->fd[0], self->secret, 0, 3, 0);
	ASSERT_GT(id, 0);
	EXPECT_GT(join(self->fd[1], self->secret, 1, 3, 0), 0);
	EXPECT_GT(join(self->fd[2], self->secret, 2, 3, 0), 0);
	ASSERT_EQ(0, raw_status(self->fd[0], id, &st));
	EXPECT_EQ(0, st.out_status);
	EXPECT_EQ(3, st.out_joined);
}

/* However many have left: each may come again, and then all may. */
TEST_F(comm, many_left_before_the_others_came)
{
	int last = join(self->fd[0], self->secret, 99, 100, 0), id, r;

	ASSERT_GT(last, 0);
	for (r = 0; r < 70; r++) {
		id = join(self->fd[1], self->secret, r, 100, 0);
		ASSERT_GT(id, 0);
		ASSERT_EQ(0, raw_destroy(self->fd[1], id));
	}
	ASSERT_EQ(0, raw_destroy(self->fd[0], last));
	EXPECT_GT(join(self->fd[1], self->secret, 69, 100, 0), 0);
	EXPECT_GT(join(self->fd[0], self->secret, 0, 100, 0), 0);
}

TEST_F(comm, tombstones_go)
{
	uint8_t first[16], secret[16];
	int i;

	/* After their time, whatever the next one has, .. */
	raw_secret(secret);
	fail_alone(_metadata, secret, 2);
	ASSERT_EQ(0, tombstone_ms("50"));
	fail_alone(_metadata, self->secret, 2);
	ASSERT_EQ(0, tombstone_ms("60000"));
	usleep(500000);
	EXPECT_GT(join(self->fd[1], self->secret, 1, 2, 0), 0);
	/* .. at once if there are none, .. */
	ASSERT_EQ(0, tombstone_ms("0"));
	raw_secret(secret);
	fail_alone(_metadata, secret, 2);
	ASSERT_EQ(0, tombstone_ms("60000"));
	EXPECT_GT(join(self->fd[1], secret, 1, 2, 0), 0);
	/* .. and when the user has enough others. */
	raw_secret(first);
	fail_alone(_metadata, first, 2);
	for (i = 0; i < 63; i++) {
		raw_secret(secret);
		fail_alone(_metadata, secret, 2);
	}
	EXPECT_EQ(-ECANCELED, join(self->fd[2], first, 1, 2, 0));
	raw_secret(secret);
	fail_alone(_metadata, secret, 2);
	EXPECT_EQ(-ECANCELED, join(self->fd[2], secret, 1, 2, 0));
	EXPECT_GT(join(self->fd[2], first, 1, 2, 0), 0);
}

/* Many communicators of the same files at once, one plan each, all in flight. */
TEST(many_communicators_of_the_same_files)
{
	enum { N = 100 };
	static struct member m[2][N];
	static uint64_t seq[N];
	struct npulink_result res;
	uint8_t secret[16];
	int i, r;

	for (r = 0; r < 2; r++)
		m[r][0].fd = raw_open(r);
	for (i = 0; i < N; i++) {
		raw_secret(secret);
		for (r = 0; r < 2; r++) {
			struct member *x = &m[r][i];

			x->fd = m[r][0].fd;
			x->rank = r;
			x->nranks = 2;
			x->len = LEN;
			x->send = raw_anon(2 * LEN);
			x->recv = x->send + LEN / 4;
			x->comm = raw_comm(x->fd, secret, r, 2);
			ASSERT_GT(x->comm, 0);
			x->buf = raw_register(x->fd, x->send, 2 * LEN, 0);
			ASSERT_GT(x->buf, 0);
			ASSERT_EQ(0, member_plan(x));
			member_fill(x, i);
		}
	}
	for (i = 0; i < N; i++)
		ASSERT_EQ(0, member_start(&m[0][i], 0, &seq[i]));
	/* In the opposite order. */
	for (i = N - 1; i >= 0; i--)
		ASSERT_EQ(0, member_run(&m[1][i], NULL));
	for (i = 0; i < N; i++) {
		ASSERT_EQ(0, raw_wait(m[0][i].fd, seq[i], &res));
		ASSERT_EQ(m[0][i].comm, (int)res.comm_id);
		ASSERT_EQ(0, member_wrong(&m[0][i], i) + member_wrong(&m[1][i], i));
	}
	/* One that fails does not touch the others. */
	ASSERT_EQ(0, raw_abort(m[0][7].fd, m[0][7].comm, 0));
	ASSERT_EQ(0, member_start(&m[0][8], 0, &seq[8]));
	EXPECT_EQ(0, member_run(&m[1][8], NULL));
	EXPECT_EQ(-ECANCELED, member_run(&m[1][7], NULL));
	close(m[0][0].fd);
	close(m[1][0].fd);
}

TEST_HARNESS_MAIN
