// SPDX-License-Identifier: GPL-2.0
/*
 * genl_objects.c - communicators, ranks, operations, files, buffers and totals over
 * netlink: what is told, to whom, and what is refused. Dumps go on where they stopped.
 *
 * npulink-test: ndev=8
 */
#include <sched.h>
#include "harness.h"
#include "nl.h"
#include "team.h"

#define N	4
#define LEN	4096

struct dump {
	int family;
	struct nl_request rq;
	struct nl_reply reply;
	size_t off;
	struct nlattr *attrs[NL_ATTRS];
};

/* Ask, with a fresh socket; @attr 0: all of them. Returns the error of the dump. */
static int dump(struct dump *d, int cmd, int attr, uint32_t id, size_t buf_size)
{
	int sock = nl_open(), rc;

	nl_begin(&d->rq, d->family, cmd, NLM_F_DUMP);
	if (attr)
		nl_put_u32(&d->rq, attr, id);
	d->off = 0;
	rc = nl_talk(sock, &d->rq, &d->reply, buf_size);
	close(sock);
	return rc ? rc : d->reply.error;
}

static bool dump_next(struct dump *d)
{
	return nl_next(&d->reply, &d->off, d->attrs);
}

/* One of the things that the operation just read waits for; false: not for that. */
static bool find_wait(struct dump *d, uint32_t kind, uint32_t peer, struct nlattr *w[NL_ATTRS])
{
	struct nlmsghdr *nlh = (void *)((char *)d->attrs[NPULINK_A_OP_COMM] - NLMSG_HDRLEN -
					GENL_HDRLEN);
	char *at = (char *)nlh + NLMSG_HDRLEN + GENL_HDRLEN, *end = (char *)nlh + nlh->nlmsg_len;

	while (at < end) {
		struct nlattr *attr = (void *)at;

		at += NLA_ALIGN(attr->nla_len);
		if ((attr->nla_type & NLA_TYPE_MASK) != NPULINK_A_OP_WAIT)
			continue;
		nl_parse(nl_value(attr), attr->nla_len - NLA_HDRLEN, w);
		if (nl_u32(w[NPULINK_A_WAIT_KIND]) == kind && w[NPULINK_A_WAIT_PEER] &&
		    nl_u32(w[NPULINK_A_WAIT_PEER]) == peer)
			return true;
	}
	return false;
}

FIXTURE(objects) {
	struct dump d;
	struct team team;
	uint32_t comm;		/* serial of its communicator */
};

FIXTURE_SETUP(objects)
{
	int sock = nl_open();

	memset(self, 0, sizeof(*self));
	self->d.family = nl_family(sock, NULL);
	close(sock);
	ASSERT_LT(0, self->d.family);
	ASSERT_EQ(0, team_open(&self->team, N, N, LEN));
	/* The newest is ours. */
	ASSERT_EQ(0, dump(&self->d, NPULINK_GENL_CMD_COMM_GET, 0, 0, 32768));
	while (dump_next(&self->d))
		self->comm = nl_u32(self->d.attrs[NPULINK_A_COMM_ID]);
	ASSERT_NE(0, self->comm);
}

FIXTURE_TEARDOWN(objects)
{
	raw_knobs_reset(N);
	team_close(&self->team);
}

TEST_F(objects, communicator)
{
	struct nlattr **a = self->d.attrs;
	bool found = false;

	ASSERT_EQ(0, dump(&self->d, NPULINK_GENL_CMD_COMM_GET, 0, 0, 32768));
	while (dump_next(&self->d)) {
		if (nl_u32(a[NPULINK_A_COMM_ID]) != self->comm)
			continue;
		found = true;
		EXPECT_EQ(N, nl_u32(a[NPULINK_A_COMM_NRANKS]));
		EXPECT_EQ(N, nl_u32(a[NPULINK_A_COMM_JOINED]));
		EXPECT_EQ(0, nl_u32(a[NPULINK_A_COMM_LEFT]));
		EXPECT_EQ(getuid(), nl_u32(a[NPULINK_A_COMM_UID]));
		EXPECT_EQ(NULL, a[NPULINK_A_COMM_ANY_UID]);
		EXPECT_EQ(NULL, a[NPULINK_A_COMM_PARENT]);
		EXPECT_EQ(NULL, a[NPULINK_A_COMM_CAUSE]);
	}
	EXPECT_TRUE(found);
}

TEST_F(objects, ranks)
{
	struct nlattr **a = self->d.attrs;
	uint32_t rank = 0;

	ASSERT_EQ(0, team_allreduce(&self->team, 1));
	ASSERT_EQ(0, dump(&self->d, NPULINK_GENL_CMD_RANK_GET, NPULINK_A_RANK_COMM, self->comm,
			  32768));
	ASSERT_EQ(N, self->d.reply.nmessages);
	for (; dump_next(&self->d); rank++) {
		EXPECT_EQ(self->comm, nl_u32(a[NPULINK_A_RANK_COMM]));
		EXPECT_EQ(rank, nl_u32(a[NPULINK_A_RANK_RANK]));
		EXPECT_EQ(rank, nl_u32(a[NPULINK_A_RANK_DEV]));
		EXPECT_EQ(NPULINK_RANK_STATE_JOINED, nl_u32(a[NPULINK_A_RANK_STATE]));
		EXPECT_EQ(getpid(), nl_u32(a[NPULINK_A_RANK_PID]));
		EXPECT_EQ(getuid(), nl_u32(a[NPULINK_A_RANK_UID]));
		EXPECT_EQ(1, nl_u64(a[NPULINK_A_RANK_NEXT]));
		EXPECT_EQ(0, nl_u32(a[NPULINK_A_RANK_OPS]));
		EXPECT_EQ(1, nl_u64(a[NPULINK_A_RANK_DONE]));
		EXPECT_EQ(0, nl_u64(a[NPULINK_A_RANK_FAILED]));
		EXPECT_LE(LEN, nl_u64(a[NPULINK_A_RANK_BYTES]));
		EXPECT_LT(0, nl_u64(a[NPULINK_A_RANK_BUSY]));
	}
}

/* A ring: each has got all from the one before it. */
TEST_F(objects, connections)
{
	struct nlattr **a = self->d.attrs;
	uint32_t n = 0, i;

	for (i = 0; i < 3; i++)
		ASSERT_EQ(0, team_allreduce(&self->team, i));
	ASSERT_EQ(0, dump(&self->d, NPULINK_GENL_CMD_CONN_GET, NPULINK_A_CONN_COMM, self->comm,
			  4096));
	EXPECT_EQ(2 * N, self->d.reply.nmessages);
	for (; dump_next(&self->d); n++) {
		uint32_t rank = nl_u32(a[NPULINK_A_CONN_RANK]);
		uint32_t peer = nl_u32(a[NPULINK_A_CONN_PEER]);
		uint64_t steps = peer == (rank + N - 1) % N ? 3 * 2 * (N - 1) : 0;

		EXPECT_EQ(n / 2, rank);
		EXPECT_EQ(self->comm, nl_u32(a[NPULINK_A_CONN_COMM]));
		EXPECT_EQ(rank, nl_u32(a[NPULINK_A_CONN_DEV]));
		EXPECT_EQ(peer, nl_u32(a[NPULINK_A_CONN_PEER_DEV]));
		EXPECT_EQ(steps, nl_u64(a[NPULINK_A_CONN_STEPS]));
		EXPECT_EQ(steps * LEN / N, nl_u64(a[NPULINK_A_CONN_BYTES]));
		for (i = NPULINK_A_CONN_IP; i <= NPULINK_A_CONN_MAX; i++)
			EXPECT_EQ(NULL, a[i]);
	}
}

/* Has each of the first three ranks waited for some time for what rank 3 keeps from it? */
static bool all_wait(FIXTURE_DATA(objects) *self)
{
	struct nlattr **a = self->d.attrs, *w[NL_ATTRS];
	uint32_t rank = 0;

	if (dump(&self->d, NPULINK_GENL_CMD_OP_GET, NPULINK_A_OP_COMM, self->comm, 32768))
		return false;
	for (; dump_next(&self->d); rank++) {
		if (nl_u64(a[NPULINK_A_OP_AGE]) < 50000000ULL)
			return false;
		if (rank == 2 ? !find_wait(&self->d, NPULINK_WAIT_SEND, N - 1, w) :
		    !find_wait(&self->d, NPULINK_WAIT_RECV, rank ? 0 : N - 1, w))
			return false;
		if (nl_u64(w[NPULINK_A_WAIT_SINCE]) < 30000000ULL)
			return false;
	}
	return rank == N - 1;
}

/* Rank 3 is not there: what the others wait for, step by step. */
TEST_F(objects, operations)
{
	struct nlattr **a = self->d.attrs, *w[NL_ATTRS], *c[NL_ATTRS];
	uint32_t r, rank = 0;

	for (r = 0; r < N - 1; r++)
		ASSERT_EQ(0, member_start(&self->team.m[r], r == 1 ? 60000000000ULL : 0,
					  &self->team.seq[r]));
	ASSERT_TRUE(RAW_EVENTUALLY(all_wait(self)));
	ASSERT_EQ(0, dump(&self->d, NPULINK_GENL_CMD_OP_GET, NPULINK_A_OP_COMM, self->comm, 32768));
	ASSERT_EQ(N - 1, self->d.reply.nmessages);
	for (; dump_next(&self->d); rank++) {
		EXPECT_EQ(rank, nl_u32(a[NPULINK_A_OP_RANK]));
		EXPECT_EQ(0, nl_u64(a[NPULINK_A_OP_NUMBER]));
		EXPECT_EQ(self->team.seq[rank], nl_u64(a[NPULINK_A_OP_SEQ]));
		EXPECT_EQ(NPULINK_OP_STATE_RUNNING, nl_u32(a[NPULINK_A_OP_STATE]));
		EXPECT_EQ(2 * N - 1, nl_u32(a[NPULINK_A_OP_STEPS]));
		EXPECT_EQ(2 * N - 1, nl_u32(a[NPULINK_A_OP_UNITS]));
		EXPECT_LT(0, nl_u32(a[NPULINK_A_OP_UNITS_LEFT]));
		EXPECT_LE(50000000ULL, nl_u64(a[NPULINK_A_OP_AGE]));
		EXPECT_GT(60000000000ULL, nl_u64(a[NPULINK_A_OP_AGE]));
		EXPECT_LT(nl_u64(a[NPULINK_A_OP_BYTES_DONE]), nl_u64(a[NPULINK_A_OP_BYTES]));
		EXPECT_EQ(rank == 1, !!a[NPULINK_A_OP_LEFT]);
		EXPECT_EQ(NULL, a[NPULINK_A_OP_SLOW]);
		if (rank == 1)
			EXPECT_GT(60000000000ULL, nl_u64(a[NPULINK_A_OP_LEFT]));
		ASSERT_NE(NULL, a[NPULINK_A_OP_CALL]);
		nl_parse(nl_value(a[NPULINK_A_OP_CALL]),
			 a[NPULINK_A_OP_CALL]->nla_len - NLA_HDRLEN, c);
		EXPECT_EQ(NPULINK_COLL_ALLREDUCE, nl_u32(c[NPULINK_A_CALL_COLLECTIVE]));
		EXPECT_EQ(LEN / 4, nl_u64(c[NPULINK_A_CALL_COUNT]));
		if (rank == 0) {
			ASSERT_TRUE(find_wait(&self->d, NPULINK_WAIT_RECV, N - 1, w));
			EXPECT_EQ(NULL, w[NPULINK_A_WAIT_MET]);
			EXPECT_EQ(1, nl_u32(w[NPULINK_A_WAIT_STEP]));
			EXPECT_EQ(0, nl_u64(w[NPULINK_A_WAIT_DONE]));
			EXPECT_EQ(LEN / N, nl_u64(w[NPULINK_A_WAIT_LEN]));
		} else if (rank == 1) {
			ASSERT_TRUE(find_wait(&self->d, NPULINK_WAIT_RECV, 0, w));
			EXPECT_NE(NULL, w[NPULINK_A_WAIT_MET]);
		} else {
			ASSERT_TRUE(find_wait(&self->d, NPULINK_WAIT_SEND, N - 1, w));
			EXPECT_EQ(NULL, w[NPULINK_A_WAIT_MET]);
			EXPECT_EQ(N - 2, nl_u32(w[NPULINK_A_WAIT_DEV]));
			EXPECT_EQ(N - 1, nl_u32(w[NPULINK_A_WAIT_PEER_DEV]));
		}
		/* Counted in ticks, which lag behind while the processor that counts is away. */
		EXPECT_LE(30000000ULL, nl_u64(w[NPULINK_A_WAIT_SINCE]));
		EXPECT_GE(nl_u64(a[NPULINK_A_OP_AGE]) + 2000000000,
			  nl_u64(w[NPULINK_A_WAIT_SINCE]));
	}
	ASSERT_EQ(0, member_start(&self->team.m[N - 1], 0, &self->team.seq[N - 1]));
	ASSERT_EQ(0, team_finish(&self->team));
	ASSERT_EQ(0, dump(&self->d, NPULINK_GENL_CMD_OP_GET, NPULINK_A_OP_COMM, self->comm, 32768));
	EXPECT_EQ(0, self->d.reply.nmessages);
}

/* A device that does not answer. */
TEST_F(objects, engine)
{
	struct nlattr **a = self->d.attrs, *w[NL_ATTRS];
	bool found = false;

	ASSERT_EQ(0, raw_knob(1, "hold", 0));
	ASSERT_EQ(0, team_start(&self->team, 0));
	ASSERT_TRUE(RAW_EVENTUALLY(raw_knob_get(1, "held") > 0));
	ASSERT_EQ(0, dump(&self->d, NPULINK_GENL_CMD_OP_GET, NPULINK_A_OP_COMM, self->comm, 32768));
	while (dump_next(&self->d)) {
		if (nl_u32(a[NPULINK_A_OP_RANK]) != 1)
			continue;
		ASSERT_TRUE(find_wait(&self->d, NPULINK_WAIT_ENGINE, 0, w));
		EXPECT_EQ(0, nl_u32(w[NPULINK_A_WAIT_DEV]));
		EXPECT_EQ(1, nl_u32(w[NPULINK_A_WAIT_PEER_DEV]));
		found = true;
	}
	EXPECT_TRUE(found);
	ASSERT_EQ(0, raw_knob(1, "hold", RAW_HOLD_OFF));
	EXPECT_EQ(0, team_finish(&self->team));
}

TEST_F(objects, files_and_buffers)
{
	struct nlattr **a = self->d.attrs;
	uint64_t offset, pinned = 0;
	uint32_t file = 0;
	int fd = raw_open(7), sock, bufs[3];
	void *arena;

	ASSERT_LE(0, fd);
	bufs[0] = raw_register(fd, raw_anon(8 * LEN), 8 * LEN, NPULINK_BUF_READONLY);
	bufs[1] = raw_buf_alloc(fd, 3 * LEN, &offset);
	arena = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, NPULINK_MMAP_ARENA);
	ASSERT_LT(0, bufs[0]);
	ASSERT_LT(0, bufs[1]);
	ASSERT_NE(MAP_FAILED, arena);
	ASSERT_EQ(0, dump(&self->d, NPULINK_GENL_CMD_FILE_GET, 0, 0, 32768));
	while (dump_next(&self->d)) {
		if (nl_u32(a[NPULINK_A_FILE_DEV]) != 7)
			continue;
		file = nl_u32(a[NPULINK_A_FILE_ID]);
		EXPECT_EQ(getpid(), nl_u32(a[NPULINK_A_FILE_PID]));
		EXPECT_EQ(getuid(), nl_u32(a[NPULINK_A_FILE_UID]));
		EXPECT_EQ(2, nl_u32(a[NPULINK_A_FILE_BUFS]));
		EXPECT_EQ(8 * LEN, nl_u64(a[NPULINK_A_FILE_REGISTERED]));
		EXPECT_EQ(3 * LEN, nl_u64(a[NPULINK_A_FILE_ALLOCATED]));
		EXPECT_EQ(0, nl_u64(a[NPULINK_A_FILE_IMPORTED]));
		EXPECT_EQ(65536, nl_u64(a[NPULINK_A_FILE_ARENA]));
		EXPECT_EQ(0, nl_u64(a[NPULINK_A_FILE_RING]));
		pinned = nl_u64(a[NPULINK_A_FILE_PINNED]);
		EXPECT_EQ(65536 + 11 * LEN, pinned);
	}
	ASSERT_NE(0, file);
	ASSERT_EQ(0, dump(&self->d, NPULINK_GENL_CMD_BUF_GET, NPULINK_A_BUF_FILE, file, 32768));
	ASSERT_EQ(2, self->d.reply.nmessages);
	ASSERT_TRUE(dump_next(&self->d));
	EXPECT_EQ(bufs[0], (int)nl_u32(a[NPULINK_A_BUF_ID]));
	EXPECT_EQ(NPULINK_BUF_KIND_USER, nl_u32(a[NPULINK_A_BUF_KIND]));
	EXPECT_EQ(8 * LEN, nl_u64(a[NPULINK_A_BUF_LEN]));
	EXPECT_NE(NULL, a[NPULINK_A_BUF_READONLY]);
	EXPECT_EQ(NULL, a[NPULINK_A_BUF_UNMAPPED]);
	ASSERT_TRUE(dump_next(&self->d));
	EXPECT_EQ(NPULINK_BUF_KIND_KERNEL, nl_u32(a[NPULINK_A_BUF_KIND]));
	EXPECT_EQ(NULL, a[NPULINK_A_BUF_READONLY]);

	sock = nl_open();
	nl_begin(&self->d.rq, self->d.family, NPULINK_GENL_CMD_STAT_GET, 0);
	ASSERT_EQ(0, nl_talk(sock, &self->d.rq, &self->d.reply, 32768));
	self->d.off = 0;
	ASSERT_TRUE(dump_next(&self->d));
	EXPECT_LE(pinned, nl_u64(a[NPULINK_A_STAT_PINNED]));
	EXPECT_EQ(8, nl_u32(a[NPULINK_A_STAT_DEVS]));
	EXPECT_LE(N + 1, nl_u32(a[NPULINK_A_STAT_FILES]));
	EXPECT_LE(1, nl_u32(a[NPULINK_A_STAT_COMMS]));
	EXPECT_LE(N, nl_u32(a[NPULINK_A_STAT_RANKS]));
	EXPECT_NE(NULL, a[NPULINK_A_STAT_FAILURES]);
	close(sock);
	munmap(arena, 65536);
	close(fd);
}

/* One that failed, one rank of which has left. */
TEST_F(objects, cause)
{
	struct nlattr **a = self->d.attrs, *c[NL_ATTRS];
	bool found = false;
	uint32_t left = 0;

	ASSERT_EQ(0, raw_abort(self->team.m[2].fd, self->team.m[2].comm, 77));
	ASSERT_EQ(0, raw_destroy(self->team.m[1].fd, self->team.m[1].plan));
	ASSERT_EQ(0, raw_destroy(self->team.m[1].fd, self->team.m[1].comm));
	ASSERT_EQ(0, dump(&self->d, NPULINK_GENL_CMD_COMM_GET, 0, 0, 32768));
	while (dump_next(&self->d)) {
		if (nl_u32(a[NPULINK_A_COMM_ID]) != self->comm)
			continue;
		found = true;
		EXPECT_EQ(N - 1, nl_u32(a[NPULINK_A_COMM_JOINED]));
		EXPECT_EQ(1, nl_u32(a[NPULINK_A_COMM_LEFT]));
		ASSERT_NE(NULL, a[NPULINK_A_COMM_CAUSE]);
		nl_parse(nl_value(a[NPULINK_A_COMM_CAUSE]),
			 a[NPULINK_A_COMM_CAUSE]->nla_len - NLA_HDRLEN, c);
		EXPECT_EQ(NPULINK_CAUSE_ABORT, nl_u32(c[NPULINK_A_CAUSE_CAUSE]));
		EXPECT_EQ(ECANCELED, nl_u32(c[NPULINK_A_CAUSE_ERRNO]));
		EXPECT_EQ(2, nl_u32(c[NPULINK_A_CAUSE_RANK]));
		EXPECT_EQ(77, nl_u32(c[NPULINK_A_CAUSE_CODE]));
		EXPECT_EQ(NULL, c[NPULINK_A_CAUSE_PEER]);
		EXPECT_EQ(NULL, c[NPULINK_A_CAUSE_CALLS]);
	}
	EXPECT_TRUE(found);
	ASSERT_EQ(0, dump(&self->d, NPULINK_GENL_CMD_RANK_GET, NPULINK_A_RANK_COMM, self->comm,
			  32768));
	EXPECT_EQ(N, self->d.reply.nmessages);
	while (dump_next(&self->d))
		if (nl_u32(a[NPULINK_A_RANK_STATE]) == NPULINK_RANK_STATE_LEFT) {
			EXPECT_EQ(1, nl_u32(a[NPULINK_A_RANK_RANK]));
			EXPECT_EQ(NULL, a[NPULINK_A_RANK_PID]);
			left++;
		}
	EXPECT_EQ(1, left);
}

/* ---- dumps of more than fits into one message ----------------------------------------- */

#define MANY	120

TEST_F(objects, resume)
{
	static const size_t sizes[] = { 32768, 4096 };
	struct nlattr **a = self->d.attrs;
	uint8_t secret[16];
	int fd[MANY], i;
	size_t s;

	for (i = 0; i < MANY; i++) {
		fd[i] = raw_open(i % 8);
		raw_secret(secret);
		ASSERT_LT(0, raw_comm(fd[i], secret, 1, 3));
		ASSERT_LT(0, raw_register(fd[i], raw_anon(LEN), LEN, 0));
	}
	for (s = 0; s < ARRAY_SIZE(sizes); s++) {
		static const struct {
			int cmd, attr;
		} dumps[] = {
			{ NPULINK_GENL_CMD_COMM_GET, NPULINK_A_COMM_ID },
			{ NPULINK_GENL_CMD_RANK_GET, NPULINK_A_RANK_COMM },
			{ NPULINK_GENL_CMD_FILE_GET, NPULINK_A_FILE_ID },
			{ NPULINK_GENL_CMD_BUF_GET, NPULINK_A_BUF_FILE },
		};
		size_t k;

		for (k = 0; k < ARRAY_SIZE(dumps); k++) {
			unsigned int last = 0, n = 0;

			ASSERT_EQ(0, dump(&self->d, dumps[k].cmd, 0, 0, sizes[s]));
			while (dump_next(&self->d)) {
				unsigned int id = nl_u32(a[dumps[k].attr]);

				/* The team's ranks are four of one communicator. */
				EXPECT_LE(last, id);
				n += id != last;
				last = id;
			}
			EXPECT_LE(MANY + 1, n);
			if (sizes[s] == 4096)
				EXPECT_LT(2, self->d.reply.nreads);
		}
	}
	for (i = 0; i < MANY; i++)
		close(fd[i]);
}

/* Many operations of one rank, read in small pieces. */
TEST_F(objects, resume_operations)
{
	struct nlattr **a = self->d.attrs;
	struct team *t = &self->team;
	uint64_t seq[64], expect = 0;
	uint32_t r, i;

	for (i = 0; i < 64; i++)
		ASSERT_EQ(0, member_start(&t->m[0], 0, &seq[i]));
	ASSERT_EQ(0, dump(&self->d, NPULINK_GENL_CMD_OP_GET, NPULINK_A_OP_COMM, self->comm, 4096));
	EXPECT_EQ(64, self->d.reply.nmessages);
	EXPECT_LT(2, self->d.reply.nreads);
	while (dump_next(&self->d))
		EXPECT_EQ(expect++, nl_u64(a[NPULINK_A_OP_NUMBER]));
	for (r = 1; r < N; r++)
		for (i = 0; i < 64; i++)
			ASSERT_EQ(0, r < N - 1 ? member_start(&t->m[r], 0, &seq[i]) :
						 member_run(&t->m[r], NULL));
}

/* ---- who sees what --------------------------------------------------------------------- */

struct seen {
	unsigned int comms, uids, ranks, pids, ops, files, bufs, stat_comms;
};

static void look(struct dump *d, struct seen *seen)
{
	int sock = nl_open();

	memset(seen, 0, sizeof(*seen));
	RAW_CHECK(!dump(d, NPULINK_GENL_CMD_COMM_GET, 0, 0, 32768));
	seen->comms = d->reply.nmessages;
	while (dump_next(d))
		seen->uids += !!d->attrs[NPULINK_A_COMM_UID];
	RAW_CHECK(!dump(d, NPULINK_GENL_CMD_RANK_GET, 0, 0, 32768));
	seen->ranks = d->reply.nmessages;
	while (dump_next(d))
		seen->pids += d->attrs[NPULINK_A_RANK_PID] && nl_u32(d->attrs[NPULINK_A_RANK_PID]);
	RAW_CHECK(!dump(d, NPULINK_GENL_CMD_OP_GET, 0, 0, 32768));
	seen->ops = d->reply.nmessages;
	RAW_CHECK(!dump(d, NPULINK_GENL_CMD_FILE_GET, 0, 0, 32768));
	seen->files = d->reply.nmessages;
	RAW_CHECK(!dump(d, NPULINK_GENL_CMD_BUF_GET, 0, 0, 32768));
	seen->bufs = d->reply.nmessages;
	nl_begin(&d->rq, d->family, NPULINK_GENL_CMD_STAT_GET, 0);
	RAW_CHECK(!nl_talk(sock, &d->rq, &d->reply, 32768) && !d->reply.error);
	d->off = 0;
	RAW_CHECK(dump_next(d));
	seen->stat_comms = nl_u32(d->attrs[NPULINK_A_STAT_COMMS]);
	close(sock);
}

TEST_F(objects, other_user)
{
	struct seen seen;
	pid_t pid;

	ASSERT_EQ(0, member_start(&self->team.m[0], 0, &self->team.seq[0]));
	pid = fork();
	if (!pid) {
		RAW_CHECK(!setgid(65534) && !setuid(65534));
		look(&self->d, &seen);
		RAW_CHECK(!seen.comms && !seen.ranks && !seen.ops && !seen.files && !seen.bufs);
		RAW_CHECK(seen.stat_comms >= 1);
		/* As if it did not exist. */
		RAW_CHECK(dump(&self->d, NPULINK_GENL_CMD_RANK_GET, NPULINK_A_RANK_COMM,
			       self->comm, 32768) == -ENOENT);
		RAW_CHECK(dump(&self->d, NPULINK_GENL_CMD_OP_GET, NPULINK_A_OP_COMM,
			       self->comm, 32768) == -ENOENT);
		RAW_CHECK(dump(&self->d, NPULINK_GENL_CMD_BUF_GET, NPULINK_A_BUF_FILE,
			       1, 32768) == -ENOENT);
		RAW_CHECK(dump(&self->d, NPULINK_GENL_CMD_CONN_GET, NPULINK_A_CONN_COMM,
			       self->comm, 32768) == -ENOENT);
		RAW_CHECK(!dump(&self->d, NPULINK_GENL_CMD_CONN_GET, 0, 0, 32768) &&
			  !self->d.reply.nmessages);
		_exit(0);
	}
	EXPECT_EQ(0, raw_reap(pid));
	/* And all capabilities in a namespace of his own do not help. */
	pid = fork();
	if (!pid) {
		RAW_CHECK(!setgid(65534) && !setuid(65534));
		if (unshare(CLONE_NEWUSER))
			_exit(77);
		look(&self->d, &seen);
		RAW_CHECK(!seen.comms && !seen.ranks && !seen.ops && !seen.files && !seen.bufs);
		_exit(0);
	}
	pid = raw_reap(pid);
	EXPECT_TRUE(pid == 0 || pid == 77);
}

/* An unprivileged owner sees his own, root sees his too. */
TEST_F(objects, owner)
{
	struct seen seen, all;
	uint8_t secret[16];
	int ready[2], go[2], fd;
	pid_t pid;

	raw_secret(secret);
	fd = raw_open(7);
	ASSERT_EQ(0, pipe(ready));
	ASSERT_EQ(0, pipe(go));
	look(&self->d, &all);
	pid = fork();
	if (!pid) {
		char c;

		/* What root opened is root's, whoever has it now. */
		RAW_CHECK(!setgid(65534) && !setuid(65534));
		look(&self->d, &seen);
		RAW_CHECK(!seen.files);
		fd = raw_open(6);
		if (fd < 0)
			_exit(77);
		RAW_CHECK(raw_comm(fd, secret, 0, 2) > 0);
		look(&self->d, &seen);
		RAW_CHECK(seen.comms == 1 && seen.ranks == 1 && seen.pids == 1 && seen.files == 1);
		RAW_CHECK(write(ready[1], "", 1) == 1 && read(go[0], &c, 1) == 1);
		_exit(0);
	}
	close(ready[1]);
	if (read(ready[0], secret, 1) == 1) {
		look(&self->d, &seen);
		EXPECT_EQ(all.comms + 1, seen.comms);
		EXPECT_EQ(all.ranks + 1, seen.ranks);
		EXPECT_EQ(1, write(go[1], "", 1));
	}
	pid = raw_reap(pid);
	close(fd);
	if (pid == 77)
		SKIP(return, "the device nodes are for root only");
	EXPECT_EQ(0, pid);
}

/* Ranks of two users in one communicator see each other, but neither pids nor users. */
TEST_F(objects, any_uid)
{
	struct npulink_comm_create cmd = {
		.size = sizeof(cmd), .flags = NPULINK_COMM_ANY_UID, .nranks = 2,
	};
	int fd = raw_open(7), ready[2], go[2];
	struct seen seen;
	pid_t pid;
	char c;

	raw_secret(cmd.secret);
	ASSERT_EQ(0, pipe(ready));
	ASSERT_EQ(0, pipe(go));
	ASSERT_EQ(0, raw_ioctl(fd, NPULINK_COMM_CREATE, &cmd));
	pid = fork();
	if (!pid) {
		RAW_CHECK(!setgid(65534) && !setuid(65534));
		fd = raw_open(6);
		if (fd < 0)
			_exit(77);
		look(&self->d, &seen);
		RAW_CHECK(!seen.comms);
		cmd.rank = 1;
		RAW_CHECK(!raw_ioctl(fd, NPULINK_COMM_CREATE, &cmd));
		look(&self->d, &seen);
		RAW_CHECK(seen.comms == 1 && seen.ranks == 2 && seen.pids == 1 && seen.files == 1);
		RAW_CHECK(!seen.uids);
		RAW_CHECK(write(ready[1], "", 1) == 1 && read(go[0], &c, 1) == 1);
		_exit(0);
	}
	close(ready[1]);
	if (read(ready[0], &c, 1) == 1) {
		look(&self->d, &seen);
		EXPECT_EQ(seen.comms, seen.uids);
		EXPECT_EQ(1, write(go[1], "", 1));
	}
	pid = raw_reap(pid);
	close(fd);
	if (pid == 77)
		SKIP(return, "the device nodes are for root only");
	EXPECT_EQ(0, pid);
}

/* In a pid namespace of his own root sees everything, but numbers of his namespace only. */
TEST_F(objects, other_pid_namespace)
{
	struct seen seen, all;
	pid_t pid;

	look(&self->d, &all);
	EXPECT_LE(N, all.pids);
	pid = fork();
	if (!pid) {
		if (unshare(CLONE_NEWPID))
			_exit(77);
		pid = fork();
		if (!pid) {
			look(&self->d, &seen);
			RAW_CHECK(seen.ranks == all.ranks && !seen.pids);
			_exit(0);
		}
		_exit(raw_reap(pid));
	}
	pid = raw_reap(pid);
	if (pid == 77)
		SKIP(return, "no pid namespaces here");
	EXPECT_EQ(0, pid);
}

/* ---- refusals ---------------------------------------------------------------------------- */

TEST_F(objects, err_no_such_object)
{
	EXPECT_EQ(-ENOENT, dump(&self->d, NPULINK_GENL_CMD_RANK_GET, NPULINK_A_RANK_COMM,
				4000000000U, 32768));
	EXPECT_EQ(-ENOENT, dump(&self->d, NPULINK_GENL_CMD_RANK_GET, NPULINK_A_RANK_COMM,
				0, 32768));
	EXPECT_EQ(-ENOENT, dump(&self->d, NPULINK_GENL_CMD_OP_GET, NPULINK_A_OP_COMM,
				self->comm + 1, 32768));
	EXPECT_EQ(-ENOENT, dump(&self->d, NPULINK_GENL_CMD_BUF_GET, NPULINK_A_BUF_FILE,
				0x7fffffff, 32768));
	EXPECT_EQ(-ENOENT, dump(&self->d, NPULINK_GENL_CMD_CONN_GET, NPULINK_A_CONN_COMM,
				self->comm + 1, 32768));
}

TEST_F(objects, err_attribute)
{
	static const int cmds[] = {
		NPULINK_GENL_CMD_COMM_GET, NPULINK_GENL_CMD_RANK_GET, NPULINK_GENL_CMD_OP_GET,
		NPULINK_GENL_CMD_FILE_GET, NPULINK_GENL_CMD_BUF_GET, NPULINK_GENL_CMD_STAT_GET,
		NPULINK_GENL_CMD_CONN_GET,
	};
	int sock = nl_open();
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cmds); i++) {
		int flags = cmds[i] == NPULINK_GENL_CMD_STAT_GET ? 0 : NLM_F_DUMP;
		int attr;

		/* Known only in answers, or not at all; 2 may be the one that is allowed. */
		for (attr = 1; attr < 30; attr += attr == 1 ? 2 : 1) {
			nl_begin(&self->d.rq, self->d.family, cmds[i], flags);
			nl_put_u32(&self->d.rq, attr, self->comm);
			ASSERT_EQ(0, nl_talk(sock, &self->d.rq, &self->d.reply, 32768));
			EXPECT_EQ(-EINVAL, self->d.reply.error) {
				TH_LOG("command %d, attribute %d", cmds[i], attr);
			}
		}
		/* Too short, too long; or any, where there is none. */
		nl_begin(&self->d.rq, self->d.family, cmds[i], flags);
		nl_put(&self->d.rq, 2, "\0\0\0\0\0\0\0", 8);
		ASSERT_EQ(0, nl_talk(sock, &self->d.rq, &self->d.reply, 32768));
		EXPECT_EQ(-EINVAL, self->d.reply.error);
		nl_begin(&self->d.rq, self->d.family, cmds[i], flags);
		nl_put(&self->d.rq, 2, "\0\0", 2);
		ASSERT_EQ(0, nl_talk(sock, &self->d.rq, &self->d.reply, 32768));
		EXPECT_EQ(-EINVAL, self->d.reply.error);
		/* The other way of asking. */
		nl_begin(&self->d.rq, self->d.family, cmds[i], flags ^ NLM_F_DUMP);
		ASSERT_EQ(0, nl_talk(sock, &self->d.rq, &self->d.reply, 32768));
		EXPECT_EQ(-EOPNOTSUPP, self->d.reply.error);
	}
	/* Nobody asks for events. */
	nl_begin(&self->d.rq, self->d.family, NPULINK_GENL_CMD_EVENT, 0);
	ASSERT_EQ(0, nl_talk(sock, &self->d.rq, &self->d.reply, 32768));
	EXPECT_EQ(-EOPNOTSUPP, self->d.reply.error);
	nl_begin(&self->d.rq, self->d.family, NPULINK_GENL_CMD_EVENT, NLM_F_DUMP);
	ASSERT_EQ(0, nl_talk(sock, &self->d.rq, &self->d.reply, 32768));
	EXPECT_EQ(-EOPNOTSUPP, self->d.reply.error);
	close(sock);
}

TEST_HARNESS_MAIN
