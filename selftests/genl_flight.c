// SPDX-License-Identifier: GPL-2.0
/*
 * genl_flight.c - flight recorders: what they hold, of whom, for how long, and to whom
 * they are shown; and what the dump refuses.
 *
 * npulink-test: ndev=4
 */
#include <limits.h>
#include <sys/stat.h>
#include "harness.h"
#include "nl.h"
#include "raw.h"
#include "timens.h"

#define PARAMS	"/sys/module/npulink/parameters/"
#define STEPS	512	/* of the default ring */

/* One recorder, as the dump gave it. */
struct recorder {
	uint32_t comm, rank, nranks, dev, pid, uid;
	bool left;
	uint64_t ops_done, steps_done, now;
	uint32_t nops, nsteps, npeers;
	struct npulink_flight_op ops[256];
	struct npulink_flight_step steps[2 * STEPS];
	struct npulink_flight_peer peers[16];
};

static struct recorder recorders[64];
static unsigned int nrecorders;

static uint32_t copy_array(struct nlattr *attr, void *to, uint32_t n, size_t size, uint32_t max)
{
	uint32_t more = (attr->nla_len - NLA_HDRLEN) / size;

	if (n + more > max)
		more = max - n;
	memcpy((char *)to + n * size, nl_value(attr), more * size);
	return n + more;
}

static void take_message(struct nlmsghdr *nlh)
{
	struct nlattr *attrs[NL_ATTRS];
	struct recorder *r;

	nl_parse((char *)nlh + NLMSG_HDRLEN + GENL_HDRLEN,
		 nlh->nlmsg_len - NLMSG_HDRLEN - GENL_HDRLEN, attrs);
	if (attrs[NPULINK_A_FLIGHT_COMM] && nrecorders < ARRAY_SIZE(recorders)) {
		r = &recorders[nrecorders++];
		memset(r, 0, sizeof(*r));
		r->comm = nl_u32(attrs[NPULINK_A_FLIGHT_COMM]);
		r->rank = nl_u32(attrs[NPULINK_A_FLIGHT_RANK]);
		r->nranks = nl_u32(attrs[NPULINK_A_FLIGHT_NRANKS]);
		r->dev = nl_u32(attrs[NPULINK_A_FLIGHT_DEV]);
		r->pid = nl_u32(attrs[NPULINK_A_FLIGHT_PID]);
		r->uid = nl_u32(attrs[NPULINK_A_FLIGHT_UID]);
		r->left = attrs[NPULINK_A_FLIGHT_LEFT];
		r->ops_done = nl_u64(attrs[NPULINK_A_FLIGHT_OPS_DONE]);
		r->steps_done = nl_u64(attrs[NPULINK_A_FLIGHT_STEPS_DONE]);
		r->now = nl_u64(attrs[NPULINK_A_FLIGHT_NOW_MONOTONIC]);
	}
	if (!nrecorders)
		return;
	r = &recorders[nrecorders - 1];
	if (attrs[NPULINK_A_FLIGHT_OPS])
		r->nops = copy_array(attrs[NPULINK_A_FLIGHT_OPS], r->ops, r->nops,
				     sizeof(*r->ops), ARRAY_SIZE(r->ops));
	if (attrs[NPULINK_A_FLIGHT_STEPS])
		r->nsteps = copy_array(attrs[NPULINK_A_FLIGHT_STEPS], r->steps, r->nsteps,
				       sizeof(*r->steps), ARRAY_SIZE(r->steps));
	if (attrs[NPULINK_A_FLIGHT_PEERS])
		r->npeers = copy_array(attrs[NPULINK_A_FLIGHT_PEERS], r->peers, r->npeers,
				       sizeof(*r->peers), ARRAY_SIZE(r->peers));
}

/* Read all recorders, with that much of room at a time. */
static int dump(uint32_t what, size_t buf_size)
{
	static char buf[65536];
	int sock = nl_open(), family = nl_family(sock, NULL), rc = family;
	struct nl_request rq;

	nrecorders = 0;
	close(sock);
	sock = nl_open();
	if (sock < 0 || family < 0)
		return rc;
	nl_begin(&rq, family, NPULINK_GENL_CMD_FLIGHT_GET, NLM_F_DUMP);
	if (what)
		nl_put_u32(&rq, NPULINK_A_FLIGHT_WHAT, what);
	rc = send(sock, &rq, rq.nlh.nlmsg_len, 0) < 0 ? -errno : 1;
	while (rc > 0) {
		ssize_t n = recv(sock, buf, buf_size, 0);
		struct nlmsghdr *nlh = (void *)buf;

		if (n < 0)
			rc = -errno;
		for (; rc > 0 && NLMSG_OK(nlh, n); nlh = NLMSG_NEXT(nlh, n)) {
			if (nlh->nlmsg_type == NLMSG_ERROR || nlh->nlmsg_type == NLMSG_DONE)
				rc = *(int *)NLMSG_DATA(nlh);
			else
				take_message(nlh);
		}
	}
	close(sock);
	return rc;
}

/* ---- two ranks in this process, of which rank 1 sends to rank 0 */

struct pair {
	int fd[2];
	uint32_t comm[2], plan[2], buf[2];
	uint64_t seq[2];
};

#define LEN	4096

static int pair_open(struct pair *p)
{
	uint8_t secret[16];
	uint64_t off;

	raw_secret(secret);
	for (int r = 0; r < 2; r++) {
		struct npulink_slot slot = { .min_len = LEN };
		struct npulink_plan_create cmd;
		struct npulink_step step = raw_step(r ? NPULINK_STEP_SEND : NPULINK_STEP_RECV, LEN);
		int rc;

		slot.access = r ? NPULINK_SLOT_READ : NPULINK_SLOT_WRITE;
		if (r)
			step.send_peer = 0;
		else
			step.recv_peer = 1;
		p->fd[r] = raw_open(r);
		rc = raw_comm(p->fd[r], secret, r, 2);
		if (rc < 0)
			return rc;
		p->comm[r] = rc;
		p->buf[r] = raw_buf_alloc(p->fd[r], LEN, &off);
		cmd = raw_plan_cmd(p->comm[r], &slot, 1, &step, 1);
		cmd.call = (struct npulink_call){ .collective = NPULINK_COLL_BROADCAST,
			.dtype = NPULINK_INT32, .root = 1, .count = LEN / 4 };
		strcpy(cmd.algorithm, "by-hand");
		rc = raw_ioctl(p->fd[r], NPULINK_PLAN_CREATE, &cmd);
		if (rc)
			return rc;
		p->plan[r] = cmd.out_id;
	}
	return 0;
}

static void pair_close(struct pair *p)
{
	close(p->fd[0]);
	close(p->fd[1]);
}

static int pair_post(struct pair *p, int rank)
{
	struct npulink_post post = raw_post_cmd(p->plan[rank], NPULINK_POST_HELD);
	int rc;

	raw_bind(&post, p->buf[rank], 0, LEN);
	rc = raw_ioctl(p->fd[rank], NPULINK_POST, &post);
	p->seq[rank] = post.out_seq;
	return rc;
}

static int pair_wait(struct pair *p, int rank)
{
	struct npulink_result result;
	int rc = raw_wait(p->fd[rank], p->seq[rank], &result);

	return rc ? rc : result.status;
}

static int pair_run(struct pair *p, unsigned int late_ms)
{
	int rc = pair_post(p, 0);

	if (rc)
		return rc;
	raw_sleep_ms(late_ms);
	rc = pair_post(p, 1);
	if (rc)
		return rc;
	rc = pair_wait(p, 0);
	return rc ? rc : pair_wait(p, 1);
}

/* The newest recorder of a rank of this process. */
static struct recorder *mine(uint32_t rank)
{
	for (unsigned int i = nrecorders; i-- > 0;)
		if (recorders[i].pid == (uint32_t)getpid() && recorders[i].rank == rank)
			return &recorders[i];
	return NULL;
}

FIXTURE(flight) {
	struct pair pair;
};

FIXTURE_SETUP(flight)
{
	ASSERT_EQ(0, pair_open(&self->pair));
}

FIXTURE_TEARDOWN(flight)
{
	pair_close(&self->pair);
}

TEST_F(flight, what_happened)
{
	uint64_t before = raw_now(), took;
	struct npulink_flight_step *s;
	struct npulink_flight_op *op;
	struct recorder *r;
	unsigned int late = 0;

	ASSERT_EQ(0, pair_run(&self->pair, 60));
	took = raw_now() - before;
	ASSERT_EQ(0, dump(0, 32768));
	r = mine(0);
	ASSERT_NE(NULL, r);
	EXPECT_EQ(2, r->nranks);
	EXPECT_EQ(0, r->dev);
	EXPECT_EQ(getuid(), r->uid);
	EXPECT_FALSE(r->left);
	ASSERT_EQ(1, r->nops);
	op = &r->ops[0];
	EXPECT_EQ(NPULINK_COLL_BROADCAST, op->call.collective);
	EXPECT_EQ(LEN / 4, op->call.count);
	EXPECT_STREQ("by-hand", op->algorithm);
	EXPECT_EQ(1, op->nsteps);
	EXPECT_EQ(0, op->status);
	EXPECT_LE(60000000, op->end - op->start);
	EXPECT_GE(took, op->end - op->start);

	ASSERT_EQ(1, r->nsteps);
	s = &r->steps[0];
	EXPECT_EQ(op->serial, s->serial);
	EXPECT_EQ(NPULINK_STEP_RECV, s->op);
	EXPECT_EQ(1, s->recv_peer);
	EXPECT_EQ(NPULINK_NO_PEER, s->send_peer);
	EXPECT_EQ(LEN, s->len);
	/* It was the peer that was late. */
	EXPECT_LE(55000000, npulink_flight_ns(s->wait));
	EXPECT_EQ(0, npulink_flight_ns(s->take));
	EXPECT_LE(op->start, s->start);
	EXPECT_GE(op->end, s->start + npulink_flight_ns(s->wait) + npulink_flight_ns(s->queue) +
			   npulink_flight_ns(s->engine));
	EXPECT_EQ(op->wait, npulink_flight_ns(s->wait));

	ASSERT_EQ(1, r->npeers);
	EXPECT_EQ(1, r->peers[0].peer);
	EXPECT_EQ(1, r->peers[0].dev);
	EXPECT_EQ(1, r->peers[0].waits);
	EXPECT_EQ(op->wait, r->peers[0].wait_ns);
	while (late < NPULINK_FLIGHT_BUCKETS && !r->peers[0].late[late])
		late++;
	/* 60 ms lie between 1024 ns << 15 and << 16; more is the machine's fault. */
	EXPECT_LE(16, late);

	r = mine(1);
	ASSERT_NE(NULL, r);
	ASSERT_EQ(1, r->nsteps);
	EXPECT_EQ(NPULINK_STEP_SEND, r->steps[0].op);
	EXPECT_EQ(0, r->steps[0].send_peer);
	EXPECT_EQ(1, r->peers[0].takes);
	/* Who came late did not wait. */
	EXPECT_GT(55000000, npulink_flight_ns(r->steps[0].wait));
}

TEST_F(flight, what_is_in_flight_and_how_it_failed)
{
	struct recorder *r;

	ASSERT_EQ(0, pair_post(&self->pair, 0));
	ASSERT_EQ(0, dump(NPULINK_FLIGHT_OPS, 32768));
	r = mine(0);
	ASSERT_NE(NULL, r);
	ASSERT_EQ(1, r->nops);
	EXPECT_EQ(0, r->ops[0].end);
	EXPECT_EQ(0, r->nsteps);
	EXPECT_EQ(0, r->npeers);

	ASSERT_EQ(0, raw_abort(self->pair.fd[1], self->pair.comm[1], 7));
	EXPECT_EQ(-ECANCELED, pair_wait(&self->pair, 0));
	ASSERT_EQ(0, dump(NPULINK_FLIGHT_OPS, 32768));
	r = mine(0);
	ASSERT_NE(NULL, r);
	ASSERT_EQ(1, r->nops);
	EXPECT_LT(0, r->ops[0].end);
	EXPECT_EQ(-ECANCELED, r->ops[0].status);
	EXPECT_EQ(NPULINK_CAUSE_ABORT, r->ops[0].cause);
}

/* The oldest are forgotten, the others are whole, in order, and once in every dump. */
TEST_F(flight, the_last_steps)
{
	static const size_t sizes[] = { 32768, 8192, 4096 };
	struct recorder *r;

	for (int i = 0; i < STEPS + 100; i++)
		ASSERT_EQ(0, pair_run(&self->pair, 0));
	for (int k = 0; k < 3; k++) {
		ASSERT_EQ(0, dump(0, sizes[k]));
		r = mine(0);
		ASSERT_NE(NULL, r);
		EXPECT_EQ(STEPS + 100, r->steps_done);
		EXPECT_EQ(STEPS + 100, r->ops_done);
		/* The oldest is where the next one will be written. */
		EXPECT_EQ(STEPS - 1, r->nsteps);
		EXPECT_EQ(STEPS / 8 - 1, r->nops);
		for (uint32_t i = 0; i < r->nsteps; i++)
			EXPECT_EQ(STEPS + 100 - r->nsteps + i, r->steps[i].serial);
		for (uint32_t i = 0; i < r->nops; i++)
			EXPECT_EQ(STEPS + 100 - r->nops + i, r->ops[i].serial);
		EXPECT_EQ(STEPS + 100, r->peers[0].waits);
	}
}

TEST_F(flight, read_while_it_is_written)
{
	pid_t pid = fork();

	if (!pid) {
		struct pair p;

		RAW_CHECK(!pair_open(&p));
		for (;;)
			RAW_CHECK(!pair_run(&p, 0));
	}
	for (int i = 0; i < 50; i++) {
		ASSERT_EQ(0, dump(0, 16384));
		for (unsigned int k = 0; k < nrecorders; k++) {
			struct recorder *r = &recorders[k];

			if (r->pid != (uint32_t)pid)
				continue;
			for (uint32_t s = 1; s < r->nsteps; s++) {
				ASSERT_EQ(r->steps[s - 1].serial + 1, r->steps[s].serial);
				ASSERT_EQ(LEN, r->steps[s].len);
			}
		}
	}
	kill(pid, SIGKILL);
	EXPECT_EQ(-SIGKILL, raw_reap(pid));
}

/* Recorders of a process. */
static unsigned int count(pid_t pid, bool left)
{
	unsigned int n = 0;

	if (dump(NPULINK_FLIGHT_OPS, 32768))
		return 0;
	for (unsigned int i = 0; i < nrecorders; i++)
		n += recorders[i].pid == (uint32_t)pid && recorders[i].left == left;
	return n;
}

/* A process that has two ranks, has run something, and is killed. */
static pid_t victim(uid_t uid)
{
	int to[2];
	pid_t pid;
	char c;

	if (pipe(to))
		return -1;
	pid = fork();
	if (!pid) {
		struct pair p;

		RAW_CHECK(!chmod("/dev/npulink/npu0", 0666) && !chmod("/dev/npulink/npu1", 0666));
		RAW_CHECK(!setresgid(uid, uid, uid) && !setresuid(uid, uid, uid));
		RAW_CHECK(!pair_open(&p) && !pair_run(&p, 0));
		RAW_CHECK(write(to[1], "x", 1) == 1);
		pause();
	}
	close(to[1]);
	if (read(to[0], &c, 1) != 1)
		fprintf(stderr, "# the child could not run anything\n");
	close(to[0]);
	return pid;
}

TEST(on_the_readers_clock)
{
	struct pair p;
	pid_t pid;
	int rc;

	ASSERT_EQ(0, pair_open(&p));
	pid = fork_in_time(1000);
	if (!pid) {
		uint64_t before = raw_now();

		RAW_CHECK(!dump(0, 32768) && nrecorders);
		_exit(recorders[0].now < before || recorders[0].now > raw_now());
	}
	rc = raw_reap(pid);
	if (rc == NO_TIME_NAMESPACES)
		SKIP(return, "no time namespaces");
	EXPECT_EQ(0, rc);
	pair_close(&p);
}

TEST(after_death)
{
	pid_t pid = victim(0);

	EXPECT_EQ(2, count(pid, false));
	kill(pid, SIGKILL);
	raw_reap(pid);
	EXPECT_TRUE(RAW_EVENTUALLY(count(pid, true) == 2));
	EXPECT_EQ(0, count(pid, false));
	for (unsigned int i = 0; i < nrecorders; i++)
		if (recorders[i].pid == (uint32_t)pid)
			EXPECT_EQ(1, recorders[i].nops);
}

/* In namespaces of its own: runs something, and dies. Its number here, or -1. */
static pid_t victim_in_namespaces(void)
{
	pid_t pid, inner = -1;
	int to[2];

	if (pipe(to))
		return -1;
	pid = fork();
	if (!pid) {
		struct pair p;

		/* Those of the last try go a moment after their process. */
		RAW_CHECK(RAW_EVENTUALLY(!unshare(CLONE_NEWUSER | CLONE_NEWPID)));
		inner = fork();
		if (!inner) {
			RAW_CHECK(!pair_open(&p) && !pair_run(&p, 0));
			_exit(0);
		}
		RAW_CHECK(!raw_reap(inner));
		RAW_CHECK(write(to[1], &inner, sizeof(inner)) == sizeof(inner));
		_exit(0);
	}
	close(to[1]);
	if (read(to[0], &inner, sizeof(inner)) != sizeof(inner))
		inner = -1;
	close(to[0]);
	raw_reap(pid);
	return inner;
}

static bool namespaces_to_be_had(void)
{
	pid_t pid = fork();

	if (!pid)
		_exit(unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0);
	return !raw_reap(pid);
}

/* What is kept of a process keeps none of its namespaces. */
TEST(namespaces_of_the_dead_go)
{
	static const char * const limits[] = {
		"/proc/sys/user/max_user_namespaces", "/proc/sys/user/max_pid_namespaces",
	};
	char was[ARRAY_SIZE(limits)][32] = {};
	unsigned int i;
	pid_t pid;

	for (i = 0; i < ARRAY_SIZE(limits); i++) {
		FILE *f = fopen(limits[i], "re");

		if (!f || !fgets(was[i], sizeof(was[i]), f) || raw_write(limits[i], "1"))
			SKIP(return, "no limits of namespaces");
		fclose(f);
	}
	if (namespaces_to_be_had()) {
		pid = victim_in_namespaces();
		EXPECT_GT(pid, 0);
		EXPECT_TRUE(RAW_EVENTUALLY(count(pid, true) == 2));
		/* There is room for one of each. */
		EXPECT_TRUE(RAW_EVENTUALLY(namespaces_to_be_had()));
		EXPECT_EQ(2, count(pid, true));
	} else {
		TH_LOG("others have namespaces");
	}
	for (i = 0; i < ARRAY_SIZE(limits); i++)
		EXPECT_EQ(0, raw_write(limits[i], was[i]));
}

/* What is seen of @pid by a user without privileges. */
static int seen_by(uid_t uid, pid_t pid, bool left)
{
	pid_t child = fork();

	if (!child) {
		RAW_CHECK(!setresgid(uid, uid, uid) && !setresuid(uid, uid, uid));
		_exit(count(pid, left));
	}
	return raw_reap(child);
}

TEST(only_own_ones)
{
	pid_t pid = victim(1234), of_root = victim(0);

	EXPECT_EQ(2, seen_by(1234, pid, false));
	EXPECT_EQ(0, seen_by(1235, pid, false));
	EXPECT_EQ(2, seen_by(0, pid, false));
	EXPECT_EQ(0, seen_by(1234, of_root, false));
	kill(pid, SIGKILL);
	kill(of_root, SIGKILL);
	raw_reap(pid);
	raw_reap(of_root);
	EXPECT_TRUE(RAW_EVENTUALLY(seen_by(1234, pid, true) == 2));
	EXPECT_EQ(0, seen_by(1235, pid, true));
	EXPECT_EQ(0, seen_by(1234, of_root, true));
}

/* A user cannot drive out what is kept of others, and what is kept is bounded. */
TEST(kept_within_bounds)
{
	unsigned int kept = 0;
	pid_t other, pid;

	ASSERT_EQ(0, raw_write(PARAMS "flight_keep", "400"));
	other = victim(1234);
	kill(other, SIGKILL);
	raw_reap(other);
	EXPECT_TRUE(RAW_EVENTUALLY(count(other, true) == 2));
	for (int i = 0; i < 10; i++) {
		pid = victim(1235);
		kill(pid, SIGKILL);
		raw_reap(pid);
		EXPECT_TRUE(RAW_EVENTUALLY(count(pid, true) == 2));
	}
	EXPECT_EQ(2, count(other, true));
	for (unsigned int i = 0; i < nrecorders; i++)
		kept += recorders[i].left;
	/* 400 KiB of recorders of 36 KiB. */
	EXPECT_LE(kept, 11);
	EXPECT_GE(kept, 6);
	/* Larger than what all others left, it is the first that is forgotten. */
	ASSERT_EQ(0, raw_write(PARAMS "flight_steps", "16384"));
	pid = victim(1236);
	ASSERT_EQ(0, raw_write(PARAMS "flight_steps", "512"));
	ASSERT_EQ(0, raw_write(PARAMS "flight_keep", "0"));
	kill(pid, SIGKILL);
	raw_reap(pid);
	EXPECT_TRUE(RAW_EVENTUALLY(!count(pid, false)));
	EXPECT_EQ(0, count(pid, true));
	EXPECT_EQ(0, count(other, true));
	ASSERT_EQ(0, raw_write(PARAMS "flight_keep", "8192"));
}

/* Where the buffer ends among what is in flight, nothing is shown but what is. */
TEST(many_in_flight)
{
	static struct pair pairs[30];
	unsigned int wrong = 0, seen = 0;

	/* Nobody else's. */
	ASSERT_EQ(0, raw_write(PARAMS "flight_keep", "0"));
	ASSERT_EQ(0, pair_open(&pairs[0]));
	pair_close(&pairs[0]);
	for (unsigned int i = 0; i < ARRAY_SIZE(pairs); i++) {
		ASSERT_EQ(0, pair_open(&pairs[i]));
		ASSERT_EQ(0, pair_post(&pairs[i], 0));
	}
	for (size_t size = 8192; size <= 65536; size *= 2) {
		ASSERT_EQ(0, dump(0, size));
		for (unsigned int i = 0; i < nrecorders; i++) {
			const struct recorder *r = &recorders[i];

			if (r->left || r->pid != (uint32_t)getpid())
				continue;
			seen++;
			wrong += r->nops != !r->rank ||
				 (!r->rank && (r->ops[0].end || r->ops[0].call.count != LEN / 4));
		}
	}
	EXPECT_EQ(0, wrong);
	EXPECT_EQ(4 * 2 * ARRAY_SIZE(pairs), seen);
	for (unsigned int i = 0; i < ARRAY_SIZE(pairs); i++)
		pair_close(&pairs[i]);
	ASSERT_EQ(0, raw_write(PARAMS "flight_keep", "8192"));
}

TEST(turned_off)
{
	struct pair p;

	ASSERT_EQ(0, raw_write(PARAMS "flight_steps", "0"));
	ASSERT_EQ(0, pair_open(&p));
	EXPECT_EQ(0, pair_run(&p, 0));
	EXPECT_EQ(0, count(getpid(), false));
	pair_close(&p);
	/* The smallest, and as many as there may be at most. */
	ASSERT_EQ(0, raw_write(PARAMS "flight_steps", "1"));
	ASSERT_EQ(0, pair_open(&p));
	for (int i = 0; i < 40; i++)
		EXPECT_EQ(0, pair_run(&p, 0));
	EXPECT_EQ(2, count(getpid(), false));
	EXPECT_EQ(15, mine(0)->nops);
	pair_close(&p);
	ASSERT_EQ(0, raw_write(PARAMS "flight_steps", "4294967295"));
	ASSERT_EQ(0, pair_open(&p));
	EXPECT_EQ(0, pair_run(&p, 0));
	EXPECT_EQ(2, count(getpid(), false));
	pair_close(&p);
	ASSERT_EQ(0, raw_write(PARAMS "flight_steps", "512"));
}

/* ---- what is refused */

static int refused(int type, const void *data, size_t len, int flags)
{
	static struct nl_reply reply;
	int sock = nl_open(), rc;
	struct nl_request rq;

	nl_begin(&rq, nl_family(sock, NULL), NPULINK_GENL_CMD_FLIGHT_GET, flags);
	if (type >= 0)
		nl_put(&rq, type, data, len);
	rc = nl_talk(sock, &rq, &reply, 32768);
	close(sock);
	return rc ? rc : reply.error;
}

TEST(err_bad_attributes)
{
	uint32_t what = NPULINK_FLIGHT_ALL + 1;
	uint64_t wide = 1;

	EXPECT_EQ(-EINVAL, refused(NPULINK_A_FLIGHT_WHAT, &what, 4, NLM_F_DUMP));
	what = UINT_MAX;
	EXPECT_EQ(-EINVAL, refused(NPULINK_A_FLIGHT_WHAT, &what, 4, NLM_F_DUMP));
	what = 1;
	EXPECT_NE(0, refused(NPULINK_A_FLIGHT_WHAT, &what, 2, NLM_F_DUMP));
	EXPECT_NE(0, refused(NPULINK_A_FLIGHT_WHAT, &what, 0, NLM_F_DUMP));
	EXPECT_NE(0, refused(NPULINK_A_FLIGHT_WHAT, &wide, 8, NLM_F_DUMP));
	for (int type = 0; type < 32; type++)
		if (type != NPULINK_A_FLIGHT_WHAT)
			EXPECT_EQ(-EINVAL, refused(type, &what, 4, NLM_F_DUMP));
	EXPECT_EQ(0, refused(NPULINK_A_FLIGHT_WHAT, &what, 4, NLM_F_DUMP));
}

TEST(err_not_a_dump)
{
	EXPECT_EQ(-EOPNOTSUPP, refused(-1, NULL, 0, 0));
}

TEST_HARNESS_MAIN
