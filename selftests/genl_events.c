// SPDX-License-Identifier: GPL-2.0
/*
 * genl_events.c - the netlink group "events": each event that there is, in another
 * network namespace, too; and what happens when there are too many.
 *
 * npulink-test: ndev=8
 */
#include <pthread.h>
#include <sched.h>
#include "harness.h"
#include "nl.h"
#include "team.h"
#include "users.h"

#define N	3
#define LEN	4096
#define MANY	600

FIXTURE(events) {
	int sock, family;
	uint32_t group;
	struct team team;
	bool open;
	char buf[8192];
	struct nlattr *attrs[NL_ATTRS];
};

FIXTURE_SETUP(events)
{
	struct timeval tv = { .tv_sec = 20 };

	memset(self, 0, sizeof(*self));
	self->sock = nl_open();
	self->family = nl_family(self->sock, &self->group);
	ASSERT_LT(0, self->family);
	ASSERT_EQ(0, setsockopt(self->sock, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &self->group,
				sizeof(self->group)));
	ASSERT_EQ(0, setsockopt(self->sock, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
	ASSERT_EQ(0, team_open(&self->team, N, N, LEN));
	self->open = true;
}

FIXTURE_TEARDOWN(events)
{
	raw_knobs_reset(N);
	if (self->open)
		team_close(&self->team);
	close(self->sock);
}

/* The next event of any kind; false: none came. */
static bool event_any(FIXTURE_DATA(events) *self)
{
	struct nlmsghdr *nlh = (void *)self->buf;
	ssize_t n = recv(self->sock, self->buf, sizeof(self->buf), 0);

	if (n < (ssize_t)(NLMSG_HDRLEN + GENL_HDRLEN))
		return false;
	nl_parse((char *)nlh + NLMSG_HDRLEN + GENL_HDRLEN,
		 nlh->nlmsg_len - NLMSG_HDRLEN - GENL_HDRLEN, self->attrs);
	return true;
}

/* The next of that type; those of others are passed over. */
static bool event(FIXTURE_DATA(events) *self, uint32_t type)
{
	while (event_any(self))
		if (nl_u32(self->attrs[NPULINK_A_EVENT_TYPE]) == type)
			return true;
	return false;
}

static bool fail_event(FIXTURE_DATA(events) *self, uint32_t cause)
{
	while (event(self, NPULINK_EVENT_FAIL))
		if (nl_u32(self->attrs[NPULINK_A_EVENT_CAUSE]) == cause)
			return true;
	return false;
}

TEST_F(events, devices)
{
	uint64_t serial;

	ASSERT_EQ(0, raw_write(RAW_SOFT "/new_device", "1"));
	ASSERT_TRUE(event(self, NPULINK_EVENT_DEV_ADD));
	EXPECT_EQ(8, nl_u32(self->attrs[NPULINK_A_EVENT_DEV]));
	EXPECT_EQ(NULL, self->attrs[NPULINK_A_EVENT_COMM]);
	EXPECT_EQ(NULL, self->attrs[NPULINK_A_EVENT_CAUSE]);
	serial = nl_u64(self->attrs[NPULINK_A_EVENT_SERIAL]);
	ASSERT_EQ(0, raw_write(RAW_SOFT "/del_device", "8"));
	ASSERT_TRUE(event(self, NPULINK_EVENT_DEV_DEL));
	EXPECT_EQ(8, nl_u32(self->attrs[NPULINK_A_EVENT_DEV]));
	EXPECT_EQ(serial + 1, nl_u64(self->attrs[NPULINK_A_EVENT_SERIAL]));
	EXPECT_NE(0, nl_u64(self->attrs[NPULINK_A_EVENT_TIME]));
}

TEST_F(events, abort)
{
	ASSERT_EQ(0, raw_abort(self->team.m[1].fd, self->team.m[1].comm, 5));
	ASSERT_TRUE(fail_event(self, NPULINK_CAUSE_ABORT));
	EXPECT_EQ(1, nl_u32(self->attrs[NPULINK_A_EVENT_RANK]));
	EXPECT_EQ(5, nl_u32(self->attrs[NPULINK_A_EVENT_CODE]));
	EXPECT_NE(0, nl_u32(self->attrs[NPULINK_A_EVENT_COMM]));
	EXPECT_EQ(NULL, self->attrs[NPULINK_A_EVENT_NUMBER]);
}

TEST_F(events, death)
{
	uint8_t secret[16];
	pid_t pid = fork();

	if (!pid) {
		struct member m;

		raw_secret(secret);
		RAW_CHECK(!member_join(&m, 0, secret, 0, 1, LEN));
		raise(SIGKILL);
	}
	ASSERT_EQ(-SIGKILL, raw_reap(pid));
	ASSERT_TRUE(fail_event(self, NPULINK_CAUSE_DEATH));
	EXPECT_EQ(0, nl_u32(self->attrs[NPULINK_A_EVENT_RANK]));
	EXPECT_EQ(SIGKILL, (int)nl_u32(self->attrs[NPULINK_A_EVENT_CODE]));
}

TEST_F(events, mismatch)
{
	struct member *m = &self->team.m[1];
	uint64_t seq;

	ASSERT_EQ(0, member_start(&self->team.m[0], 0, &seq));
	ASSERT_EQ(0, raw_destroy(m->fd, m->plan));
	m->len = LEN / 2;
	ASSERT_EQ(0, member_plan(m));
	EXPECT_EQ(-EPROTO, member_start(m, 0, &seq));
	m->len = LEN;
	ASSERT_TRUE(fail_event(self, NPULINK_CAUSE_MISMATCH));
	EXPECT_EQ(1, nl_u32(self->attrs[NPULINK_A_EVENT_RANK]));
	EXPECT_EQ(0, nl_u32(self->attrs[NPULINK_A_EVENT_PEER]));
	EXPECT_EQ(0, nl_u64(self->attrs[NPULINK_A_EVENT_NUMBER]));
}

TEST_F(events, stuck)
{
	uint64_t seq;

	ASSERT_EQ(0, member_start(&self->team.m[0], 1000000, &seq));
	ASSERT_TRUE(fail_event(self, NPULINK_CAUSE_DEADLINE));
	EXPECT_EQ(0, nl_u32(self->attrs[NPULINK_A_EVENT_RANK]));
	/* It receives from the last one, and sends to the next one. */
	EXPECT_NE(NULL, self->attrs[NPULINK_A_EVENT_PEER]);
}

static int slow_start(struct team *t, uint32_t r, uint64_t slow_ns)
{
	struct npulink_post post = member_post_cmd(&t->m[r], NPULINK_POST_HELD);
	int rc;

	post.slow_ns = slow_ns;
	rc = raw_ioctl(t->m[r].fd, NPULINK_POST, &post);
	t->seq[r] = post.out_seq;
	return rc;
}

/* Found while it is in flight, once; it is an event, not an error. */
TEST_F(events, slow)
{
	uint32_t r, slow = 0, ended = 0;

	ASSERT_EQ(0, slow_start(&self->team, 0, 20000000));
	ASSERT_TRUE(event(self, NPULINK_EVENT_SLOW));
	EXPECT_EQ(0, nl_u32(self->attrs[NPULINK_A_EVENT_RANK]));
	EXPECT_EQ(0, nl_u64(self->attrs[NPULINK_A_EVENT_NUMBER]));
	EXPECT_EQ(20000000, nl_u64(self->attrs[NPULINK_A_EVENT_LIMIT]));
	EXPECT_LT(20000000, nl_u64(self->attrs[NPULINK_A_EVENT_AGE]));
	EXPECT_NE(NULL, self->attrs[NPULINK_A_EVENT_PEER]);
	/*
	 * What ends late, but before anybody looked, is told when it ends; and that the first one
	 * has. Nobody else was slow, nor twice.
	 */
	for (r = 1; r < N; r++)
		ASSERT_EQ(0, slow_start(&self->team, r, r == 1 ? 1 : 3600000000000ULL));
	ASSERT_EQ(0, team_finish(&self->team));
	ASSERT_EQ(0, raw_write(RAW_SOFT "/new_device", "1"));
	ASSERT_EQ(0, raw_write(RAW_SOFT "/del_device", "8"));
	while (event_any(self)) {
		uint32_t type = nl_u32(self->attrs[NPULINK_A_EVENT_TYPE]);

		if (type == NPULINK_EVENT_DEV_DEL)
			break;
		if (type != NPULINK_EVENT_SLOW && type != NPULINK_EVENT_SLOW_END)
			continue;
		(type == NPULINK_EVENT_SLOW ? &slow : &ended)[0]++;
		EXPECT_EQ(type == NPULINK_EVENT_SLOW ? 1 : 0,
			  nl_u32(self->attrs[NPULINK_A_EVENT_RANK]));
		EXPECT_LT(nl_u64(self->attrs[NPULINK_A_EVENT_LIMIT]),
			  nl_u64(self->attrs[NPULINK_A_EVENT_AGE]));
	}
	EXPECT_EQ(1, slow);
	EXPECT_EQ(1, ended);
}

/* One of which was told that it is slow, and that then fails: that is told, not that it ended. */
TEST_F(events, slow_fails)
{
	ASSERT_EQ(0, slow_start(&self->team, 0, 20000000));
	ASSERT_TRUE(event(self, NPULINK_EVENT_SLOW));
	ASSERT_EQ(0, raw_abort(self->team.m[1].fd, self->team.m[1].comm, 1));
	ASSERT_EQ(0, raw_write(RAW_SOFT "/new_device", "1"));
	ASSERT_EQ(0, raw_write(RAW_SOFT "/del_device", "8"));
	while (event_any(self) &&
	       nl_u32(self->attrs[NPULINK_A_EVENT_TYPE]) != NPULINK_EVENT_DEV_DEL)
		EXPECT_NE(NPULINK_EVENT_SLOW_END, nl_u32(self->attrs[NPULINK_A_EVENT_TYPE]));
}

static void *run_first(void *arg)
{
	struct npulink_result res;

	return (void *)(long)member_run(arg, &res);
}

/* A thread waits for what its own process has not posted: it still may, and does. */
TEST_F(events, suspect)
{
	struct nlattr *edge[NL_ATTRS];
	struct npulink_result res;
	pthread_t thread;
	void *rc;
	uint32_t r;

	ASSERT_EQ(0, pthread_create(&thread, NULL, run_first, &self->team.m[0]));
	ASSERT_TRUE(event(self, NPULINK_EVENT_SUSPECT));
	EXPECT_EQ(NPULINK_CAUSE_DEADLOCK, nl_u32(self->attrs[NPULINK_A_EVENT_CAUSE]));
	EXPECT_EQ(0, nl_u32(self->attrs[NPULINK_A_EVENT_RANK]));
	EXPECT_NE(0, nl_u32(self->attrs[NPULINK_A_EVENT_PEER]));
	EXPECT_EQ(0, nl_u64(self->attrs[NPULINK_A_EVENT_NUMBER]));
	/* A process that waits for itself. */
	EXPECT_EQ(1, nl_u32(self->attrs[NPULINK_A_EVENT_NCIRCLE]));
	ASSERT_NE(NULL, self->attrs[NPULINK_A_EVENT_CIRCLE]);
	nl_parse(nl_value(self->attrs[NPULINK_A_EVENT_CIRCLE]),
		 self->attrs[NPULINK_A_EVENT_CIRCLE]->nla_len - NLA_HDRLEN, edge);
	EXPECT_EQ(nl_u32(self->attrs[NPULINK_A_EVENT_COMM]), nl_u32(edge[NPULINK_A_CIRCLE_COMM]));
	EXPECT_EQ(0, nl_u32(edge[NPULINK_A_CIRCLE_RANK]));
	EXPECT_EQ(nl_u32(self->attrs[NPULINK_A_EVENT_PEER]), nl_u32(edge[NPULINK_A_CIRCLE_PEER]));
	EXPECT_EQ(0, nl_u64(edge[NPULINK_A_CIRCLE_NUMBER]));
	for (r = 1; r < N; r++)
		ASSERT_EQ(0, member_start(&self->team.m[r], 0, &self->team.seq[r]));
	pthread_join(thread, &rc);
	EXPECT_EQ(0, (long)rc);
	for (r = 1; r < N; r++)
		EXPECT_EQ(0, raw_wait(self->team.m[r].fd, self->team.seq[r], &res));
}

static uint32_t link_state(FIXTURE_DATA(events) *self, uint32_t dev, uint32_t peer,
			   uint64_t *errors)
{
	static struct nl_request rq;
	static struct nl_reply reply;
	struct nlattr *attrs[NL_ATTRS];
	int sock = nl_open();
	uint32_t state = 0;
	size_t off = 0;

	nl_begin(&rq, self->family, NPULINK_GENL_CMD_LINK_GET, NLM_F_DUMP);
	nl_put_u32(&rq, NPULINK_A_LINK_DEV, dev);
	if (!nl_talk(sock, &rq, &reply, 32768))
		while (nl_next(&reply, &off, attrs))
			if (nl_u32(attrs[NPULINK_A_LINK_PEER]) == peer) {
				state = nl_u32(attrs[NPULINK_A_LINK_STATE]);
				*errors = nl_u64(attrs[NPULINK_A_LINK_ERRORS]);
			}
	close(sock);
	return state;
}

/* A link that goes down fails those who use it, and only those. */
TEST_F(events, link)
{
	struct npulink_comm_status st;
	uint64_t errors, before = 0;
	struct team other;
	uint32_t r;

	/* Two ranks on devices 4 and 5 have nothing to do with it. */
	ASSERT_EQ(0, team_open(&other, 2, 2, LEN));
	EXPECT_EQ(NPULINK_LINK_STATE_UP, link_state(self, 1, 2, &before));
	ASSERT_EQ(0, raw_write(RAW_KNOBS "/npu1/link", "npu2 down"));
	ASSERT_TRUE(event(self, NPULINK_EVENT_LINK_DOWN));
	EXPECT_EQ(1, nl_u32(self->attrs[NPULINK_A_EVENT_DEV]));
	EXPECT_EQ(2, nl_u32(self->attrs[NPULINK_A_EVENT_PEER_DEV]));
	ASSERT_TRUE(fail_event(self, NPULINK_CAUSE_LINK));
	EXPECT_EQ(1, nl_u32(self->attrs[NPULINK_A_EVENT_RANK]));
	EXPECT_EQ(2, nl_u32(self->attrs[NPULINK_A_EVENT_PEER]));
	EXPECT_EQ(NPULINK_LINK_STATE_DOWN, link_state(self, 1, 2, &errors));
	EXPECT_EQ(before + 1, errors);
	for (r = 0; r < N; r++) {
		ASSERT_EQ(0, raw_status(self->team.m[r].fd, self->team.m[r].comm, &st));
		EXPECT_EQ(NPULINK_CAUSE_LINK, st.out_cause);
		EXPECT_EQ(1, st.out_rank);
		EXPECT_EQ(2, st.out_peer);
	}
	ASSERT_EQ(0, raw_status(other.m[0].fd, other.m[0].comm, &st));
	EXPECT_EQ(NPULINK_CAUSE_NONE, st.out_cause);
	EXPECT_EQ(0, team_allreduce(&other, 3));
	team_close(&other);
	team_close(&self->team);

	/* Whoever comes later learns it when it tries. */
	ASSERT_EQ(0, team_open(&self->team, N, N, LEN));
	EXPECT_EQ(-ENOLINK, team_allreduce(&self->team, 1));
	team_close(&self->team);
	self->open = false;
	ASSERT_EQ(0, raw_write(RAW_KNOBS "/npu1/link", "all up"));
	ASSERT_TRUE(event(self, NPULINK_EVENT_LINK_UP));
	ASSERT_EQ(0, team_open(&self->team, N, N, LEN));
	self->open = true;
	EXPECT_EQ(0, team_allreduce(&self->team, 2));
	EXPECT_EQ(NPULINK_LINK_STATE_UP, link_state(self, 1, 2, &errors));
}

TEST_F(events, err_link_knob)
{
	EXPECT_EQ(-EINVAL, raw_write(RAW_KNOBS "/npu1/link", "npu2"));
	EXPECT_EQ(-EINVAL, raw_write(RAW_KNOBS "/npu1/link", "npu2 sideways"));
	EXPECT_EQ(-ENODEV, raw_write(RAW_KNOBS "/npu1/link", "npu1 down"));
	EXPECT_EQ(-ENODEV, raw_write(RAW_KNOBS "/npu1/link", "npu77 down"));
	EXPECT_EQ(-EINVAL, raw_write(RAW_KNOBS "/npu1/link",
				     "npu2 down, and more than there is room for"));
}

/*
 * In a network namespace where the communicator has nobody, only what kind of event there was is
 * told; of one of its own, all is.
 */
static int listen_elsewhere(FIXTURE_DATA(events) *self, int ready)
{
	uint8_t secret[16];
	int fd, comm;

	if (unshare(CLONE_NEWNET))
		return 77;
	self->sock = nl_open();
	RAW_CHECK(!setsockopt(self->sock, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &self->group,
			      sizeof(self->group)));
	RAW_CHECK(!setgid(65534) && !setuid(65534));
	RAW_CHECK(write(ready, "", 1) == 1);
	RAW_CHECK(fail_event(self, NPULINK_CAUSE_ABORT));
	if (self->attrs[NPULINK_A_EVENT_COMM] || self->attrs[NPULINK_A_EVENT_RANK] ||
	    self->attrs[NPULINK_A_EVENT_CODE] || self->attrs[NPULINK_A_EVENT_IP] ||
	    self->attrs[NPULINK_A_EVENT_PORT])
		return 2;
	raw_secret(secret);
	fd = raw_open(0);
	comm = raw_comm(fd, secret, 0, 1);
	RAW_CHECK(comm > 0 && !raw_abort(fd, comm, 7));
	RAW_CHECK(fail_event(self, NPULINK_CAUSE_ABORT));
	return !self->attrs[NPULINK_A_EVENT_COMM] ||
	       nl_u32(self->attrs[NPULINK_A_EVENT_CODE]) != 7 ? 3 : 0;
}

TEST_F(events, other_network_namespace)
{
	int ready[2], status;
	char c;
	pid_t pid;

	ASSERT_EQ(0, chmod("/dev/npulink/npu0", 0666));
	ASSERT_EQ(0, pipe(ready));
	pid = fork();
	if (!pid) {
		close(ready[0]);
		_exit(listen_elsewhere(self, ready[1]));
	}
	close(ready[1]);
	if (read(ready[0], &c, 1) == 1)
		EXPECT_EQ(0, raw_abort(self->team.m[0].fd, self->team.m[0].comm, 1));
	status = raw_reap(pid);
	if (status == 77)
		SKIP(return, "no network namespaces here");
	EXPECT_EQ(0, status);
	/* The machine's own namespace hears of all. */
	EXPECT_TRUE(fail_event(self, NPULINK_CAUSE_ABORT));
	EXPECT_EQ(1, nl_u32(self->attrs[NPULINK_A_EVENT_CODE]));
	EXPECT_TRUE(fail_event(self, NPULINK_CAUSE_ABORT));
	EXPECT_EQ(7, nl_u32(self->attrs[NPULINK_A_EVENT_CODE]));
}

/* More in a second than are sent: they are counted, and other kinds get through. */
TEST_F(events, too_many)
{
	uint64_t lost = 0, first = 0;
	uint8_t secret[16];
	unsigned int i, n = 0;
	int size = 4 << 20;

	ASSERT_EQ(0, setsockopt(self->sock, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)));
	for (i = 0; i < MANY; i++) {
		int fd = raw_open(i % 8), comm;

		raw_secret(secret);
		comm = raw_comm(fd, secret, 0, 1);
		ASSERT_LT(0, comm);
		ASSERT_EQ(0, raw_abort(fd, comm, i));
		close(fd);
	}
	ASSERT_EQ(0, raw_write(RAW_SOFT "/new_device", "1"));
	ASSERT_EQ(0, raw_write(RAW_SOFT "/del_device", "8"));
	while (event_any(self)) {
		if (!n++)
			first = nl_u64(self->attrs[NPULINK_A_EVENT_LOST]);
		lost = nl_u64(self->attrs[NPULINK_A_EVENT_LOST]) - first;
		if (nl_u32(self->attrs[NPULINK_A_EVENT_TYPE]) == NPULINK_EVENT_DEV_DEL)
			break;
	}
	EXPECT_EQ(NPULINK_EVENT_DEV_DEL, nl_u32(self->attrs[NPULINK_A_EVENT_TYPE]));
	/* A machine that is very slow needs several seconds for them. */
	if (n < MANY)
		EXPECT_LT(0, lost);
	EXPECT_EQ(MANY + 2, n + lost);
}

/* A communicator that is aborted with this code: an event of the caller. */
static void fail_one(int fd, uint32_t code)
{
	uint8_t secret[16];
	int comm;

	raw_secret(secret);
	comm = raw_comm(fd, secret, 0, 1);
	RAW_CHECK(comm > 0 && !raw_abort(fd, comm, code) && !raw_destroy(fd, comm));
}

/* What one user's failures leave no room for are that user's, not those of another one. */
TEST_F(events, of_each_user)
{
	unsigned int i, mine = 0, others = 0;
	int size = 16 << 20, sk[2], fd;
	pid_t pid;

	if (getuid())
		SKIP(return, "only root can be two users");
	ASSERT_EQ(0, setsockopt(self->sock, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)));
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sk));
	pid = fork();
	if (!pid) {
		become(BOB);
		fd = raw_open(0);
		for (i = 0;; i++) {
			fail_one(fd, 1);
			if (i == 200)
				tell(sk[1], 1);
		}
	}
	hear(sk[0]);
	/* The test before this one may have used up what we may tell in a second. */
	raw_sleep_ms(1200);
	fd = raw_open(1);
	for (i = 0; i < 30; i++) {
		fail_one(fd, 1000 + i);
		raw_sleep_ms(50);
	}
	close(fd);
	kill(pid, SIGKILL);
	EXPECT_EQ(-SIGKILL, raw_reap(pid));
	ASSERT_EQ(0, raw_write(RAW_SOFT "/new_device", "1"));
	ASSERT_EQ(0, raw_write(RAW_SOFT "/del_device", "8"));
	while (event_any(self) &&
	       nl_u32(self->attrs[NPULINK_A_EVENT_TYPE]) != NPULINK_EVENT_DEV_DEL) {
		if (nl_u32(self->attrs[NPULINK_A_EVENT_TYPE]) != NPULINK_EVENT_FAIL)
			continue;
		i = nl_u32(self->attrs[NPULINK_A_EVENT_CODE]);
		EXPECT_TRUE(i == 1 || i == 1000 + mine || i == SIGKILL)
			TH_LOG("code %u", i);
		mine += i >= 1000;
		others += i == 1;
	}
	TH_LOG("%u events of another user, and %u of 30 of our own", others, mine);
	EXPECT_EQ(30, mine);
	EXPECT_LT(0, others);
	close(sk[0]);
	close(sk[1]);
}

#define UIDS		8
#define UID_FAILS	140	/* more than is told of a user in a second */
#define RATE		128	/* that is */

/* All uids of a user's own namespace share what that user may tell. */
TEST_F(events, of_all_uids_of_a_user)
{
	uint64_t first = 0, last = 0, told = 0;
	int size = 16 << 20, sk[2], uid, i;
	pid_t pid, other;

	if (getuid())
		SKIP(return, "only root gives uids away");
	ASSERT_EQ(0, setsockopt(self->sock, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)));
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sk));
	pid = fork();
	if (!pid) {
		become(BOB);
		RAW_CHECK(!unshare(CLONE_NEWUSER));
		tell(sk[1], 1);
		RAW_CHECK(hear(sk[1]) == 2);
		for (uid = 1; uid <= UIDS; uid++) {
			other = fork();
			if (!other) {
				int fd;

				RAW_CHECK(!setresuid(uid, uid, uid));
				fd = raw_open(0);
				RAW_CHECK(fd >= 0);
				for (i = 0; i < UID_FAILS; i++)
					fail_one(fd, 77);
				_exit(0);
			}
			RAW_CHECK(!raw_reap(other));
		}
		_exit(0);
	}
	ASSERT_EQ(1, hear(sk[0]));
	write_maps(pid, "0 60002 1\n1 70001 9");
	tell(sk[0], 2);
	EXPECT_EQ(0, raw_reap(pid));
	ASSERT_EQ(0, raw_write(RAW_SOFT "/new_device", "1"));
	ASSERT_EQ(0, raw_write(RAW_SOFT "/del_device", "8"));
	while (event_any(self) &&
	       nl_u32(self->attrs[NPULINK_A_EVENT_TYPE]) != NPULINK_EVENT_DEV_DEL) {
		if (nl_u32(self->attrs[NPULINK_A_EVENT_TYPE]) != NPULINK_EVENT_FAIL ||
		    nl_u32(self->attrs[NPULINK_A_EVENT_CODE]) != 77)
			continue;
		last = nl_u64(self->attrs[NPULINK_A_EVENT_TIME]);
		first = first ?: last;
		told++;
	}
	TH_LOG("%llu of %u events in %llu ms", (unsigned long long)told, UIDS * UID_FAILS,
	       (unsigned long long)(last - first) / 1000000);
	EXPECT_LT(0, told);
	EXPECT_GE(RATE * ((last - first) / 1000000000 + 2), told);
	close(sk[0]);
	close(sk[1]);
}

TEST_HARNESS_MAIN
