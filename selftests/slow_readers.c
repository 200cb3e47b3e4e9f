// SPDX-License-Identifier: GPL-2.0
/*
 * slow_readers - of netlink, who do not read on: what a dump has come to may go, the device, too,
 * and the dump ends all the same; events get to all others, in each network namespace, and the
 * slow one sees how many it has missed.
 *
 * npulink-test: ndev=8
 */
#include <sched.h>
#include "nl.h"
#include "team.h"
#include "users.h"
#include "harness.h"

#define MANY	240	/* communicators, so that each dump has several parts */

FIXTURE(readers) {
	int family;
	uint32_t group;
	struct team many[MANY];
	uint32_t n;		/* of them, are open */
};

FIXTURE_SETUP(readers)
{
	struct rlimit files = { 4096, 4096 };
	int sock = nl_open();

	self->family = nl_family(sock, &self->group);
	close(sock);
	ASSERT_LT(0, self->family);
	if (getuid())
		SKIP_CASE("only root can remove devices");
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &files));
}

FIXTURE_TEARDOWN(readers)
{
	while (self->n)
		team_close(&self->many[--self->n]);
}

static const int dumps[] = {
	NPULINK_GENL_CMD_DEV_GET, NPULINK_GENL_CMD_LINK_GET, NPULINK_GENL_CMD_COMM_GET,
	NPULINK_GENL_CMD_RANK_GET, NPULINK_GENL_CMD_OP_GET, NPULINK_GENL_CMD_FILE_GET,
	NPULINK_GENL_CMD_BUF_GET, NPULINK_GENL_CMD_CONN_GET, NPULINK_GENL_CMD_FLIGHT_GET,
};

/* One read of a dump: 1 if there is more, else how it ended. Messages are added to *n. */
static int read_part(int sock, unsigned int *n)
{
	static char buf[32768];
	ssize_t len = recv(sock, buf, sizeof(buf), 0);
	struct nlmsghdr *nlh = (void *)buf;

	if (len < 0)
		return -errno;
	for (; NLMSG_OK(nlh, len); nlh = NLMSG_NEXT(nlh, len), ++*n)
		if (nlh->nlmsg_type == NLMSG_DONE || nlh->nlmsg_type == NLMSG_ERROR)
			return *(int *)NLMSG_DATA(nlh);
	return 1;
}

/* In a child, for the case that it does not end: 0, if it does in time. */
static int remove_device(const char *name)
{
	unsigned int ms = getenv("NPULINK_SLOW") ? 60000 : 10000;
	pid_t pid = fork();
	int status, rc = 0;

	if (!pid)
		_exit(raw_write(RAW_SOFT "/del_device", name) ? 1 : 0);
	while (!rc && ms--) {
		raw_sleep_ms(1);
		rc = waitpid(pid, &status, WNOHANG);
	}
	if (!rc)
		kill(pid, SIGKILL);
	return rc == pid ? status : -ETIME;
}

/* Two ranks, of which the one on the new device waits for the other. */
static int pair_open(struct team *t, unsigned int i)
{
	uint8_t secret[16];

	raw_secret(secret);
	t->n = 2;
	return member_join(&t->m[0], 8, secret, 0, 2, 4096) ?:
	       member_join(&t->m[1], i % 8, secret, 1, 2, 4096) ?:
	       member_start(&t->m[0], 0, &t->seq[0]);
}

/* Each dump stands in the middle, while all that it has not come to goes, and others work. */
TEST_F(readers, what_a_dump_has_come_to_goes)
{
	unsigned int i, n[ARRAY_SIZE(dumps)] = {};
	int socks[ARRAY_SIZE(dumps)], rc;
	struct nl_request rq;
	struct team other;

	ASSERT_EQ(0, raw_write(RAW_SOFT "/new_device", "1"));
	while (self->n < MANY) {
		ASSERT_EQ(0, pair_open(&self->many[self->n], self->n));
		self->n++;
	}
	for (i = 0; i < ARRAY_SIZE(dumps); i++) {
		socks[i] = nl_open();
		nl_begin(&rq, self->family, dumps[i], NLM_F_DUMP);
		/* The first part is made at once, each other one when that before it is read. */
		ASSERT_LT(0, send(socks[i], &rq, rq.nlh.nlmsg_len, 0));
	}
	while (self->n > MANY / 2)
		team_close(&self->many[--self->n]);
	ASSERT_EQ(0, team_open(&other, 4, 8, 4096));
	EXPECT_EQ(0, team_allreduce(&other, 1));
	EXPECT_EQ(0, remove_device("npu8"));
	EXPECT_EQ(0, team_allreduce(&other, 2));
	EXPECT_LT(MANY / 2, nl_comms());
	team_close(&other);
	while (self->n)
		team_close(&self->many[--self->n]);
	for (i = 0; i < ARRAY_SIZE(dumps); i++) {
		do {
			rc = read_part(socks[i], &n[i]);
		} while (rc == 1);
		EXPECT_EQ(0, rc)
			TH_LOG("command %d", dumps[i]);
		EXPECT_LT(0, n[i]);
		if (dumps[i] == NPULINK_GENL_CMD_COMM_GET || dumps[i] == NPULINK_GENL_CMD_OP_GET)
			EXPECT_GT(MANY, n[i]);
		close(socks[i]);
	}
}

/* Nor is anything kept by one that hangs up, or dies, there. */
TEST_F(readers, dump_is_given_up)
{
	int sock, comms = nl_comms();
	unsigned int i, n = 0;
	struct nl_request rq;

	while (self->n < MANY / 2) {
		ASSERT_EQ(0, team_open(&self->many[self->n], 2, 8, 4096));
		self->n++;
	}
	for (i = 0; i < ARRAY_SIZE(dumps); i++) {
		sock = nl_open();
		nl_begin(&rq, self->family, dumps[i], NLM_F_DUMP);
		ASSERT_LT(0, send(sock, &rq, rq.nlh.nlmsg_len, 0));
		read_part(sock, &n);
		close(sock);
	}
	while (self->n)
		team_close(&self->many[--self->n]);
	EXPECT_TRUE(RAW_EVENTUALLY(nl_comms() <= comms));
}

/* ---- slow subscribers */

#define EVENTS	60	/* fewer than are told of a user in a second */

struct subscriber {
	int sock;
	unsigned int got, missed, overruns;
	uint64_t serial;	/* of the last event */
};

static void subscribe(struct subscriber *s, uint32_t group, int size)
{
	memset(s, 0, sizeof(*s));
	s->sock = nl_open();
	RAW_CHECK(!setsockopt(s->sock, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)));
	RAW_CHECK(!setsockopt(s->sock, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof(group)));
}

/* Aborts with a code from @first on, until that with @last, or none comes for so long. */
static bool hear_aborts(struct subscriber *s, uint32_t first, uint32_t last, unsigned int ms)
{
	struct timeval tv = { ms / 1000, ms % 1000 * 1000 };
	struct nlattr *attrs[NL_ATTRS];
	uint32_t code = 0;
	uint64_t serial;
	char buf[8192];
	ssize_t n;

	RAW_CHECK(!setsockopt(s->sock, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
	while (code != last) {
		n = recv(s->sock, buf, sizeof(buf), 0);
		if (n < 0 && errno == ENOBUFS) {
			s->overruns++;
			continue;
		}
		if (n < (ssize_t)(NLMSG_HDRLEN + GENL_HDRLEN))
			return false;
		nl_parse(buf + NLMSG_HDRLEN + GENL_HDRLEN, n - NLMSG_HDRLEN - GENL_HDRLEN, attrs);
		serial = nl_u64(attrs[NPULINK_A_EVENT_SERIAL]);
		s->missed += s->serial ? serial - s->serial - 1 : 0;
		s->serial = serial;
		if (nl_u32(attrs[NPULINK_A_EVENT_TYPE]) != NPULINK_EVENT_FAIL ||
		    nl_u32(attrs[NPULINK_A_EVENT_CAUSE]) != NPULINK_CAUSE_ABORT)
			continue;
		/* In another network namespace it is not said which; they come in their order. */
		code = attrs[NPULINK_A_EVENT_CODE] ? nl_u32(attrs[NPULINK_A_EVENT_CODE]) :
		       first + s->got;
		s->got += code >= first;
	}
	return true;
}

static void abort_some(uint32_t base, uint32_t n)
{
	int fd = raw_open(0), comm;
	uint8_t secret[16];

	while (n--) {
		raw_secret(secret);
		comm = raw_comm(fd, secret, 0, 1);
		RAW_CHECK(comm > 0 && !raw_abort(fd, comm, base++) && !raw_destroy(fd, comm));
	}
	close(fd);
}

/* In a network namespace that is younger than the lazy one's. */
static void elsewhere_main(int sk, uint32_t group, uint32_t first)
{
	struct subscriber s;

	RAW_CHECK(!prctl(PR_SET_PDEATHSIG, SIGKILL));
	if (unshare(CLONE_NEWNET)) {
		tell(sk, -1);
		_exit(0);
	}
	subscribe(&s, group, 1 << 20);
	tell(sk, 1);
	RAW_CHECK(hear_aborts(&s, first, first + EVENTS - 1, 20000) && s.got == EVENTS);
	_exit(0);
}

/*
 * One that does not read is told that it has missed some, and sees by their numbers how many. It
 * keeps them from nobody, also if it asks that senders be told of what it misses.
 */
TEST_F(readers, subscriber_does_not_read)
{
	uint32_t first = 1000, last = first + EVENTS - 1;
	struct subscriber lazy, eager;
	int one = 1, sk[2];
	pid_t pid;

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sk));
	/* The test before may have used up what is told in a second. */
	raw_sleep_ms(1200);
	subscribe(&lazy, self->group, 4096);
	subscribe(&eager, self->group, 1 << 20);
	ASSERT_EQ(0, setsockopt(lazy.sock, SOL_NETLINK, NETLINK_BROADCAST_ERROR, &one,
				sizeof(one)));
	pid = fork();
	if (!pid)
		elsewhere_main(sk[1], self->group, first);
	if (hear(sk[0]) < 0)
		TH_LOG("no network namespaces here");
	abort_some(first, EVENTS);
	EXPECT_TRUE(hear_aborts(&eager, first, last, 20000));
	EXPECT_EQ(EVENTS, eager.got);
	EXPECT_EQ(0, raw_reap(pid));
	/* What it has room for, and that there were more. */
	EXPECT_FALSE(hear_aborts(&lazy, first, last, 200));
	EXPECT_LT(0, lazy.got);
	EXPECT_EQ(1, lazy.overruns);
	EXPECT_EQ(0, lazy.missed);
	abort_some(last + 1, 1);
	EXPECT_TRUE(hear_aborts(&eager, first, last + 1, 20000));
	EXPECT_TRUE(hear_aborts(&lazy, first, last + 1, 20000));
	EXPECT_EQ(EVENTS + 1, eager.got);
	EXPECT_EQ(0, eager.missed + eager.overruns);
	EXPECT_EQ(EVENTS + 1, lazy.got + lazy.missed);
	EXPECT_EQ(eager.serial, lazy.serial);
	TH_LOG("%u events, of which the lazy one got %u and missed %u", eager.got, lazy.got,
	       lazy.missed);
	close(lazy.sock);
	close(eager.sock);
	close(sk[0]);
	close(sk[1]);
}

TEST_HARNESS_MAIN
