// SPDX-License-Identifier: GPL-2.0
/*
 * isolation - two users on one device: neither sees or addresses the other, and nothing of
 * one's memory reaches the other. Prints the death notice as a figure. What a user makes grow
 * is in user_limits.c; that they do not stall or starve each other, in stalls.c and floods.c.
 *
 * npulink-test: timeout=100
 */
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/socket.h>
#include "team.h"
#include "users.h"
#include "harness.h"

#define PAGE	4096UL

/* A process of each user, and a way to talk. */
FIXTURE(isolation) {
	int sk[2];
	pid_t bob;
};

FIXTURE_SETUP(isolation)
{
	if (getuid())
		SKIP_CASE("only root can be two users");
	raw_knobs_reset(4);
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_SEQPACKET, 0, self->sk));
}

FIXTURE_TEARDOWN(isolation)
{
	close(self->sk[0]);
	close(self->sk[1]);
}

static void send_fd(int sk, int fd)
{
	union { struct cmsghdr h; char b[CMSG_SPACE(sizeof(int))]; } c = {};
	struct iovec iov = { "f", 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c,
			    .msg_controllen = sizeof(c) };

	c.h.cmsg_len = CMSG_LEN(sizeof(int));
	c.h.cmsg_level = SOL_SOCKET;
	c.h.cmsg_type = SCM_RIGHTS;
	memcpy(CMSG_DATA(&c.h), &fd, sizeof(fd));
	RAW_CHECK(sendmsg(sk, &m, 0) == 1);
}

static int recv_fd(int sk)
{
	union { struct cmsghdr h; char b[CMSG_SPACE(sizeof(int))]; } c = {};
	char byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c,
			    .msg_controllen = sizeof(c) };
	int fd;

	RAW_CHECK(recvmsg(sk, &m, 0) == 1);
	memcpy(&fd, CMSG_DATA(&c.h), sizeof(fd));
	return fd;
}

/* Everything that takes an id, with @id; how many did not say @want. */
static int all_ids(int fd, uint32_t id, int want)
{
	struct npulink_slot slot = { .min_len = 4, .access = NPULINK_SLOT_READ };
	struct npulink_buf_export exp = { .size = sizeof(exp), .id = id };
	struct npulink_comm_peers peers = { .size = sizeof(peers), .comm_id = id };
	struct npulink_comm_shrink shr = { .size = sizeof(shr), .comm_id = id };
	struct npulink_post post = raw_post_cmd(id, NPULINK_POST_HELD);
	struct npulink_comm_status st;
	struct npulink_step step = raw_step(0, 0);

	return (raw_destroy(fd, id) != want) + (raw_ioctl(fd, NPULINK_BUF_EXPORT, &exp) != want) +
	       (raw_ioctl(fd, NPULINK_COMM_PEERS, &peers) != want) +
	       (raw_ioctl(fd, NPULINK_COMM_SHRINK, &shr) != want) +
	       (raw_ioctl(fd, NPULINK_POST, &post) != want) + (raw_abort(fd, id, 1) != want) +
	       (raw_status(fd, id, &st) != want) + (raw_plan(fd, id, &slot, 1, &step, 1) != want);
}

TEST_F(isolation, ids_of_others)
{
	struct team t;
	int id;

	/* Alice's objects have the ids 1 .. 3 in her file. */
	ASSERT_EQ(0, team_open(&t, 2, 2, 8192));
	self->bob = fork();
	if (!self->bob) {
		int fd;

		become(BOB);
		fd = raw_open(0);
		RAW_CHECK(fd >= 0);
		for (id = 0; id < 70; id++)
			RAW_CHECK(!all_ids(fd, id, -ENOENT));
		RAW_CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, NPULINK_MMAP_RING) ==
			  MAP_FAILED && errno == ENOENT);
		_exit(0);
	}
	EXPECT_EQ(0, raw_reap(self->bob));
	EXPECT_EQ(0, team_allreduce(&t, 1));
	team_close(&t);
}

TEST_F(isolation, who_may_join)
{
	uint8_t secret[16], other[16];
	int fd, comm;

	raw_secret(secret);
	fd = raw_open(0);
	comm = raw_comm(fd, secret, 0, 2);
	ASSERT_GT(comm, 0);
	self->bob = fork();
	if (!self->bob) {
		struct npulink_comm_create any = {
			.size = sizeof(any), .flags = NPULINK_COMM_ANY_UID, .rank = 1, .nranks = 2,
		};
		struct npulink_comm_status st;
		int bob, bit, mine;

		become(BOB);
		bob = raw_open(0);
		/* With the secret but as somebody else: whatever rank, size, flag. */
		RAW_CHECK(raw_comm(bob, secret, 1, 2) == -EACCES);
		RAW_CHECK(raw_comm(bob, secret, 0, 2) == -EACCES);
		RAW_CHECK(raw_comm(bob, secret, 2, 3) == -EACCES);
		memcpy(any.secret, secret, 16);
		RAW_CHECK(raw_ioctl(bob, NPULINK_COMM_CREATE, &any) == -EACCES);
		/* Without: as if Alice's did not exist, however near the guess is. */
		for (bit = 0; bit < 128; bit += 9) {
			memcpy(other, secret, 16);
			other[bit / 8] ^= 1 << bit % 8;
			mine = raw_comm(bob, other, 0, 2);
			RAW_CHECK(mine > 0 && !raw_status(bob, mine, &st));
			RAW_CHECK(st.out_joined == 1 && !st.out_cause);
			RAW_CHECK(!raw_destroy(bob, mine));
		}
		_exit(0);
	}
	EXPECT_EQ(0, raw_reap(self->bob));
	close(fd);
}

TEST_F(isolation, all_may_join_if_all_want_that)
{
	struct npulink_comm_create any = {
		.size = sizeof(any), .flags = NPULINK_COMM_ANY_UID, .rank = 0, .nranks = 2,
	};
	struct npulink_comm_status st;
	int fd = raw_open(0);

	raw_secret(any.secret);
	ASSERT_EQ(0, raw_ioctl(fd, NPULINK_COMM_CREATE, &any));
	self->bob = fork();
	if (!self->bob) {
		int bob;

		become(BOB);
		bob = raw_open(0);
		RAW_CHECK(raw_comm(bob, any.secret, 1, 2) == -EACCES);
		any.rank = 1;
		RAW_CHECK(!raw_ioctl(bob, NPULINK_COMM_CREATE, &any));
		tell(self->sk[1], 1);
		hear(self->sk[1]);
		_exit(0);
	}
	EXPECT_EQ(1, hear(self->sk[0]));
	ASSERT_EQ(0, raw_status(fd, any.out_id, &st));
	EXPECT_EQ(2, (int)st.out_joined);
	tell(self->sk[0], 1);
	EXPECT_EQ(0, raw_reap(self->bob));
	close(fd);
}

/* ---- who pays */

#define COPIES	4000U
#define BYTES	16384UL

/* Joins a communicator that is open to all users. */
static int join_any(const uint8_t secret[16], uint32_t rank, uint32_t *comm)
{
	struct npulink_comm_create any = {
		.size = sizeof(any), .flags = NPULINK_COMM_ANY_UID, .rank = rank, .nranks = 2,
	};
	int fd = raw_open(rank);

	memcpy(any.secret, secret, 16);
	RAW_CHECK(!raw_ioctl(fd, NPULINK_COMM_CREATE, &any));
	*comm = any.out_id;
	return fd;
}

static uint32_t plan_of(int fd, uint32_t comm, const struct npulink_step *steps, uint32_t n)
{
	const struct npulink_slot slots[2] = {
		{ .min_len = BYTES, .access = NPULINK_SLOT_READ },
		{ .min_len = BYTES, .access = NPULINK_SLOT_WRITE },
	};
	struct npulink_plan_create cmd = raw_plan_cmd(comm, slots, n > 2 ? 2 : 0, steps, n);

	cmd.call = (struct npulink_call) { .collective = NPULINK_COLL_ALLTOALLV };
	RAW_CHECK(!raw_ioctl(fd, NPULINK_PLAN_CREATE, &cmd));
	return cmd.out_id;
}

static uint64_t cpu_time(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

/* Waits for a word of the other one, copies a lot, and answers. */
static void copies_a_lot(const uint8_t secret[16], int sk)
{
	struct npulink_step *steps = calloc(COPIES + 2, sizeof(*steps));
	struct npulink_post post;
	uint64_t mmap_offset;
	uint32_t comm, i;
	int fd, buf;

	become(ALICE);
	fd = join_any(secret, 1, &comm);
	buf = raw_buf_alloc(fd, 2 * BYTES, &mmap_offset);
	RAW_CHECK(buf > 0);
	steps[0] = raw_step(NPULINK_STEP_RECV, 0);
	steps[0].recv_peer = 0;
	for (i = 1; i <= COPIES; i++) {
		steps[i] = raw_step(NPULINK_STEP_COPY, BYTES);
		steps[i].dst_slot = 1;
		steps[i].dep[0] = 1;
	}
	steps[i] = raw_step(NPULINK_STEP_SEND, 0);
	steps[i].send_peer = 0;
	steps[i].dep[0] = 1;
	post = raw_post_cmd(plan_of(fd, comm, steps, COPIES + 2), NPULINK_POST_HELD);
	raw_bind(&post, buf, 0, BYTES);
	raw_bind(&post, buf, BYTES, BYTES);
	while (hear(sk)) {
		RAW_CHECK(!raw_ioctl(fd, NPULINK_POST, &post));
		tell(sk, 1);
	}
	_exit(0);
}

/* A word sent to a rank of another user does not cost what that one does when it has come. */
TEST_F(isolation, work_is_on_the_account_of_its_owner)
{
	struct npulink_step steps[2] = { raw_step(NPULINK_STEP_SEND, 0),
					 raw_step(NPULINK_STEP_RECV, 0) };
	const struct timeval limit = { .tv_sec = 60 };
	struct npulink_result res;
	struct npulink_post post;
	uint64_t cpu = 0, wait = 0;
	bool cheap = false;
	uint8_t secret[16];
	uint32_t comm;
	pid_t alice;
	int fd, i;

	/* The one ends if the other has failed. */
	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, setsockopt(self->sk[i], SOL_SOCKET, SO_RCVTIMEO, &limit,
					sizeof(limit)));
	raw_secret(secret);
	alice = fork();
	if (!alice)
		copies_a_lot(secret, self->sk[1]);
	self->bob = fork();
	if (self->bob) {
		EXPECT_EQ(0, raw_reap(self->bob));
		tell(self->sk[0], 0);
		EXPECT_EQ(0, raw_reap(alice));
		return;
	}
	become(BOB);
	fd = join_any(secret, 0, &comm);
	steps[0].send_peer = 1;
	steps[1].recv_peer = 1;
	post = raw_post_cmd(plan_of(fd, comm, steps, 2), NPULINK_POST_HELD);
	/* A busy host takes processor time from whoever has it: the best of some tries counts. */
	for (i = 0; i < 10 && !cheap; i++) {
		tell(self->sk[0], 1);
		hear(self->sk[0]);
		cpu = cpu_time();
		RAW_CHECK(!raw_ioctl(fd, NPULINK_POST, &post));
		cpu = cpu_time() - cpu;
		wait = raw_now();
		RAW_CHECK(!raw_wait(fd, post.out_seq, &res) && !res.status);
		wait = raw_now() - wait;
		cheap = cpu < wait / 4;
	}
	if (!cheap)
		ksft_print_msg("POST %llu us of processor time, then %llu us to wait\n",
			       (unsigned long long)cpu / 1000, (unsigned long long)wait / 1000);
	RAW_CHECK(cheap);
	_exit(0);
}

/* ---- files */

TEST_F(isolation, a_file_that_was_passed)
{
	struct npulink_post post;
	struct npulink_result res;
	struct team t;
	int fd;

	ASSERT_EQ(0, team_open(&t, 2, 2, 8192));
	member_fill(&t.m[0], 1);
	member_fill(&t.m[1], 1);
	ASSERT_EQ(0, team_start(&t, 0));
	self->bob = fork();
	if (!self->bob) {
		struct npulink_ring_setup ring = {
			.size = sizeof(ring), .entries = 1, .eventfd = -1,
		};
		struct npulink_buf_import imp = { .size = sizeof(imp), .fd = 0 };
		struct npulink_post_batch batch = { .size = sizeof(batch), .nposts = 1 };
		struct npulink_device_info info;
		uint8_t secret[16] = {};
		struct pollfd p;
		uint64_t off;
		int id;

		close(t.m[0].fd);
		become(BOB);
		fd = recv_fd(self->sk[1]);
		for (id = 0; id < 5; id++)
			RAW_CHECK(!all_ids(fd, id, -EPERM));
		RAW_CHECK(raw_register(fd, raw_anon(PAGE), PAGE, 0) == -EPERM);
		RAW_CHECK(raw_buf_alloc(fd, PAGE, &off) == -EPERM);
		RAW_CHECK(raw_ioctl(fd, NPULINK_BUF_IMPORT, &imp) == -EPERM);
		RAW_CHECK(raw_ioctl(fd, NPULINK_RING_SETUP, &ring) == -EPERM);
		RAW_CHECK(raw_ioctl(fd, NPULINK_POST_BATCH, &batch) == -EPERM);
		RAW_CHECK(raw_comm(fd, secret, 0, 1) == -EPERM);
		RAW_CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, NPULINK_MMAP_ARENA) ==
			  MAP_FAILED && errno == EPERM);
		/* Looking is allowed, as often as one likes, and takes nothing away. */
		RAW_CHECK(!raw_info(fd, &info));
		RAW_CHECK(!raw_wait(fd, t.seq[0], &res) && !res.status);
		RAW_CHECK(!raw_wait(fd, t.seq[0], &res) && res.seq == t.seq[0]);
		p = (struct pollfd) { .fd = fd, .events = POLLIN };
		RAW_CHECK(!poll(&p, 1, 0));
		_exit(0);
	}
	send_fd(self->sk[0], t.m[0].fd);
	EXPECT_EQ(0, raw_reap(self->bob));
	/* Still there for its owner, and his alone to fetch. */
	EXPECT_EQ(0, team_finish(&t));
	EXPECT_EQ(-ENOENT, raw_wait(t.m[0].fd, t.seq[0], &res));
	post = member_post_cmd(&t.m[0], NPULINK_POST_HELD);
	EXPECT_EQ(0, raw_ioctl(t.m[0].fd, NPULINK_POST, &post));
	team_close(&t);
}

static bool all_bytes(const void *p, size_t n, uint8_t value)
{
	const uint8_t *b = p;

	while (n && *b == value) {
		b++;
		n--;
	}
	return !n;
}

/* Memory that is given out is zero, whoever had it before. */
TEST_F(isolation, memory_of_others)
{
	struct npulink_ring_setup ring = { .size = sizeof(ring), .entries = 2048, .eventfd = -1 };
	size_t len = 4 << 20, arena = 512 << 10;
	int round, fd, id;
	uint64_t off;
	char *p;

	for (round = 0; round < 3; round++) {
		fd = raw_open(0);
		id = raw_buf_alloc(fd, len, &off);
		ASSERT_GT(id, 0);
		p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, off);
		ASSERT_NE(MAP_FAILED, p);
		EXPECT_TRUE(all_bytes(p, len, 0));
		memset(p, 0x5a, len);
		munmap(p, len);
		p = mmap(NULL, arena, PROT_READ | PROT_WRITE, MAP_SHARED, fd, NPULINK_MMAP_ARENA);
		ASSERT_NE(MAP_FAILED, p);
		EXPECT_TRUE(all_bytes(p, arena, 0));
		memset(p, 0x5a, arena);
		munmap(p, arena);
		ASSERT_EQ(0, raw_ioctl(fd, NPULINK_RING_SETUP, &ring));
		p = mmap(NULL, ring.out_len, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			 NPULINK_MMAP_RING);
		ASSERT_NE(MAP_FAILED, p);
		((struct npulink_ring *)p)->entries = 0;
		EXPECT_TRUE(all_bytes(p, ring.out_len, 0));
		memset(p, 0x5a, ring.out_len);
		munmap(p, ring.out_len);
		close(fd);
	}
}

/* What call of a kind returns: what lies between two members, and what may differ in it. */
struct output {
	size_t from, to;
	size_t id_at;		/* a number that is another one each time, 0: none */
};

/*
 * Twice, with the output filled with zeros and with ones: what comes back is the same, so
 * all of it was written, and nothing behind it was.
 */
static int called_twice(int fd, unsigned long cmd, const void *in, size_t size,
			struct output out, int want, uint32_t id[2])
{
	uint8_t arg[2][512];
	int i, rc;

	for (i = 0; i < 2; i++) {
		memset(arg[i], i ? 0xff : 0, sizeof(arg[i]));
		memcpy(arg[i], in, size);
		memset(arg[i] + out.from, i ? 0xff : 0, out.to - out.from);
		*(uint32_t *)arg[i] = size;
		rc = raw_ioctl(fd, cmd, arg[i]);
		if (rc != want)
			return rc ? rc : -EBADE;
		if (!all_bytes(arg[i] + size, sizeof(arg[i]) - size, i ? 0xff : 0))
			return -EMSGSIZE;
		if (out.id_at) {
			memcpy(&id[i], arg[i] + out.id_at, 4);
			memset(arg[i] + out.id_at, 0, 4);
		}
	}
	return memcmp(arg[0], arg[1], size) ? -ENOTUNIQ : 0;
}

#define BETWEEN(type, first, last) \
	.from = offsetof(struct type, first), \
	.to = offsetof(struct type, last) + sizeof(((struct type *)0)->last)

#define TWICE(fd, cmd, in, want, ...) \
	called_twice(fd, cmd, &(in), sizeof(in), (struct output) { __VA_ARGS__ }, want, id)

/* All that a call writes is meant, up to the last byte: no padding, no stale stack. */
TEST_F(isolation, results_have_no_holes)
{
	struct npulink_device_info info = {};
	struct npulink_comm_status st = {};
	struct npulink_buf_register reg = {};
	struct npulink_buf_alloc alloc = { .len = PAGE };
	struct npulink_buf_export exp = {};
	struct npulink_buf_import imp = {};
	struct npulink_comm_create join = { .nranks = 1 };
	struct npulink_comm_shrink shr = {};
	struct npulink_plan_create plan;
	struct npulink_step step = raw_step(0x80, 0);
	uint32_t id[2];
	struct team t;
	int fd, i;

	ASSERT_EQ(0, team_open(&t, 2, 2, 8192));
	fd = t.m[0].fd;
	EXPECT_EQ(0, TWICE(fd, NPULINK_DEVICE_INFO, info, 0,
			   BETWEEN(npulink_device_info, out_abi_version, out_version)));
	reg.addr = (uintptr_t)t.m[0].send;
	reg.len = 64;
	EXPECT_EQ(0, TWICE(fd, NPULINK_BUF_REGISTER, reg, 0,
			   BETWEEN(npulink_buf_register, out_id, out_id),
			   .id_at = offsetof(struct npulink_buf_register, out_id)));
	EXPECT_NE(id[0], id[1]);
	for (i = 0; i < 2; i++) {
		alloc.size = sizeof(alloc);
		memset(&alloc.out_mmap_offset, i ? 0xff : 0, sizeof(alloc.out_mmap_offset));
		memset(&alloc.out_id, i ? 0xff : 0, sizeof(alloc.out_id));
		ASSERT_EQ(0, raw_ioctl(fd, NPULINK_BUF_ALLOC, &alloc));
		EXPECT_LT(0, (int)alloc.out_id);
		EXPECT_EQ(0, alloc.reserved);
		EXPECT_NE(MAP_FAILED, mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd,
					   alloc.out_mmap_offset));
	}
	exp.id = alloc.out_id;
	EXPECT_EQ(0, TWICE(fd, NPULINK_BUF_EXPORT, exp, 0,
			   BETWEEN(npulink_buf_export, out_fd, out_fd),
			   .id_at = offsetof(struct npulink_buf_export, out_fd)));
	imp.fd = id[0];
	close(id[1]);
	EXPECT_EQ(0, TWICE(fd, NPULINK_BUF_IMPORT, imp, 0,
			   BETWEEN(npulink_buf_import, out_id, out_len),
			   .id_at = offsetof(struct npulink_buf_import, out_id)));
	close(imp.fd);
	/* A secret serves once in a file. */
	for (i = 0; i < 2; i++) {
		struct npulink_comm_create one = join;

		raw_secret(one.secret);
		memset(&one.out_id, i ? 0xff : 0, sizeof(one.out_id));
		one.size = sizeof(one);
		ASSERT_EQ(0, raw_ioctl(fd, NPULINK_COMM_CREATE, &one));
		EXPECT_LT(0, (int)one.out_id);
		EXPECT_EQ(0, (int)one.peer_timeout_ms);
	}
	st.comm_id = t.m[0].comm;
	EXPECT_EQ(0, TWICE(fd, NPULINK_COMM_STATUS, st, 0,
			   BETWEEN(npulink_comm_status, out_joined, out_port)));
	/* A plan that is taken, and one that is refused. */
	plan = raw_plan_cmd(t.m[0].comm, NULL, 0, NULL, 0);
	EXPECT_EQ(0, TWICE(fd, NPULINK_PLAN_CREATE, plan, 0,
			   BETWEEN(npulink_plan_create, out_id, out_id),
			   .id_at = offsetof(struct npulink_plan_create, out_id)));
	memset(&plan.out_bad_step, 0xff, 8);
	EXPECT_EQ(0, TWICE(fd, NPULINK_PLAN_CREATE, plan, 0,
			   BETWEEN(npulink_plan_create, out_bad_step, out_reason),
			   .id_at = offsetof(struct npulink_plan_create, out_id)));
	plan = raw_plan_cmd(t.m[0].comm, NULL, 0, &step, 1);
	EXPECT_EQ(0, TWICE(fd, NPULINK_PLAN_CREATE, plan, -EINVAL,
			   BETWEEN(npulink_plan_create, out_bad_step, out_reason)));
	ASSERT_EQ(0, raw_abort(t.m[1].fd, t.m[1].comm, 77));
	EXPECT_EQ(0, TWICE(fd, NPULINK_COMM_STATUS, st, 0,
			   BETWEEN(npulink_comm_status, out_joined, out_port)));
	for (i = 0; i < 2; i++) {
		shr.size = sizeof(shr);
		shr.comm_id = t.m[i].comm;
		memset(&shr.out_id, i ? 0xff : 0,
		       offsetof(typeof(shr), map) - offsetof(typeof(shr), out_id));
		ASSERT_EQ(0, raw_ioctl(t.m[i].fd, NPULINK_COMM_SHRINK, &shr));
		EXPECT_LT(0, (int)shr.out_id);
		EXPECT_EQ(i, (int)shr.out_rank);
		EXPECT_EQ(2, (int)shr.out_nranks);
	}
	team_close(&t);
}

/* Names are zero to their end. */
TEST_F(isolation, strings_have_no_tails)
{
	struct npulink_port_info port = { .size = sizeof(port), .out_name = "untouched" };
	struct npulink_device_info info;
	int fd = raw_open(0);

	memset(&info, 0xff, sizeof(info));
	info.size = sizeof(info);
	info.flags = 0;
	ASSERT_EQ(0, raw_ioctl(fd, NPULINK_DEVICE_INFO, &info));
	EXPECT_TRUE(all_bytes(info.out_name + strlen(info.out_name),
			      sizeof(info.out_name) - strlen(info.out_name), 0));
	EXPECT_TRUE(all_bytes(info.out_backend + strlen(info.out_backend),
			      sizeof(info.out_backend) - strlen(info.out_backend), 0));
	EXPECT_TRUE(all_bytes(info.out_engine + strlen(info.out_engine),
			      sizeof(info.out_engine) - strlen(info.out_engine), 0));
	EXPECT_TRUE(all_bytes(info.out_version + strlen(info.out_version),
			      sizeof(info.out_version) - strlen(info.out_version), 0));
	/* There is no such port, and nothing is said of it. */
	port.index = 4711;
	EXPECT_EQ(-ENOENT, raw_ioctl(fd, NPULINK_PORT_INFO, &port));
	EXPECT_STREQ("untouched", port.out_name);
	close(fd);
}

/* A result in which each member is what it must be, of an operation that went well. */
static int result_wrong(const struct npulink_result *res, const struct member *m, uint64_t seq)
{
	return (res->seq != seq) + (res->cookie != 0) + (res->status != 0) + (res->cause != 0) +
	       (res->comm_id != (uint32_t)m->comm) + (res->rank != m->rank) +
	       (res->peer != NPULINK_NO_PEER) + (res->step != ~0U) + (res->reserved != 0) +
	       (res->number > 1000) + (res->ns > 100000000000ULL);
}

/* Those of POST, POST_BATCH, WAIT and the ring: every byte is written, and nothing behind. */
TEST_F(isolation, records_have_no_holes)
{
	struct npulink_ring_setup setup = { .size = sizeof(setup), .entries = 8, .eventfd = -1 };
	struct {
		struct npulink_post post;
		uint8_t after[64];
	} p;
	struct npulink_post_batch batch = { .size = sizeof(batch), .nposts = 1 };
	struct npulink_ring *ring;
	struct npulink_wait wait;
	struct npulink_result *res;
	uint64_t seq;
	struct team t;
	int i;

	ASSERT_EQ(0, team_open(&t, 2, 2, 8192));
	memset(&setup.out_len, 0xff, sizeof(setup.out_len));
	ASSERT_EQ(0, raw_ioctl(t.m[0].fd, NPULINK_RING_SETUP, &setup));
	EXPECT_EQ(PAGE, setup.out_len);
	ring = mmap(NULL, setup.out_len, PROT_READ | PROT_WRITE, MAP_SHARED, t.m[0].fd,
		    NPULINK_MMAP_RING);
	ASSERT_NE(MAP_FAILED, ring);
	for (i = 0; i < 6; i++) {
		uint8_t fill = i % 2 ? 0xff : 0;

		ASSERT_EQ(0, member_start(&t.m[1], 0, &seq));
		memset(&p, fill, sizeof(p));
		p.post = member_post_cmd(&t.m[0], i < 2 ? NPULINK_POST_WAIT : 0);
		memset(&p.post.out_seq, fill, offsetof(struct npulink_post, slow_ns) -
					      offsetof(struct npulink_post, out_seq));
		res = &p.post.out_result;
		if (i < 2) {
			ASSERT_EQ(0, raw_ioctl(t.m[0].fd, NPULINK_POST, &p.post));
		} else if (i < 4) {
			batch.flags = NPULINK_POST_WAIT;
			batch.posts = (uintptr_t)&p.post;
			batch.wait_until_ns = RAW_FOREVER;
			memset(&batch.out_posted, fill, sizeof(batch.out_posted));
			ASSERT_EQ(0, raw_ioctl(t.m[0].fd, NPULINK_POST_BATCH, &batch));
			EXPECT_EQ(1, (int)batch.out_posted);
		} else {
			uint32_t head = __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE);

			memset(ring->records, fill, 8 * sizeof(ring->records[0]));
			ASSERT_EQ(0, raw_ioctl(t.m[0].fd, NPULINK_POST, &p.post));
			ASSERT_TRUE(RAW_EVENTUALLY(__atomic_load_n(&ring->head,
								   __ATOMIC_ACQUIRE) != head));
			EXPECT_EQ(head + 1, ring->head);
			/* Not where nobody asked for it. */
			EXPECT_TRUE(all_bytes(res, sizeof(*res), fill));
			res = &ring->records[head % 8];
			EXPECT_TRUE(all_bytes(&ring->records[(head + 1) % 8], sizeof(*res), fill));
			EXPECT_TRUE(all_bytes(ring->reserved0, sizeof(ring->reserved0), 0));
			EXPECT_TRUE(all_bytes(ring->reserved1, sizeof(ring->reserved1), 0));
			EXPECT_TRUE(all_bytes(ring->reserved, sizeof(ring->reserved), 0));
			ring->tail++;
		}
		EXPECT_TRUE(all_bytes(p.after, sizeof(p.after), fill));
		EXPECT_EQ(0, result_wrong(res, &t.m[0], p.post.out_seq));
		memset(&wait, fill, sizeof(wait));
		wait.size = sizeof(wait);
		wait.flags = 0;
		wait.seq = seq;
		ASSERT_EQ(0, raw_ioctl(t.m[1].fd, NPULINK_WAIT, &wait));
		EXPECT_EQ(0, result_wrong(&wait.out_result, &t.m[1], seq));
	}
	munmap(ring, setup.out_len);
	team_close(&t);
}

/* ---- the death notice */

/* A rank that runs allreduces until one fails, then says when. */
static void mourner(uint32_t rank, const uint8_t *secret, int up)
{
	struct npulink_result res;
	struct member m;
	uint64_t when;
	int rc;

	RAW_CHECK(!member_join(&m, rank, secret, rank, 4, 40000));
	RAW_CHECK(write(up, "r", 1) == 1);
	do {
		rc = member_run(&m, &res);
	} while (!rc);
	when = raw_now();
	RAW_CHECK(rc == -EOWNERDEAD && (res.peer == 3 || !res.seq));
	RAW_CHECK(write(up, &when, sizeof(when)) == sizeof(when));
	pause();
	_exit(0);
}

/* The slowest of three peers that hear of a death, and their @sum, in ns. */
static uint64_t one_death(struct __test_metadata *_metadata, unsigned int *seed, uint64_t *sum)
{
	uint64_t worst = 0, killed, when;
	uint8_t secret[16];
	pid_t pid[4];
	int p[4][2];
	uint32_t r;
	char c;

	raw_secret(secret);
	for (r = 0; r < 4; r++) {
		ASSERT_EQ(0, pipe(p[r]));
		pid[r] = fork();
		if (!pid[r])
			mourner(r, secret, p[r][1]);
		close(p[r][1]);
	}
	for (r = 0; r < 4; r++)
		ASSERT_EQ(1, read(p[r][0], &c, 1));
	usleep(rand_r(seed) % 30000);
	killed = raw_now();
	kill(pid[3], SIGKILL);
	for (r = 0; r < 3; r++) {
		ASSERT_EQ((ssize_t)sizeof(when), read(p[r][0], &when, sizeof(when)));
		if (when > killed && when - killed > worst)
			worst = when - killed;
		if (when > killed)
			*sum += when - killed;
	}
	for (r = 0; r < 4; r++) {
		kill(pid[r], SIGKILL);
		EXPECT_EQ(-SIGKILL, raw_reap(pid[r]));
		close(p[r][0]);
	}
	return worst;
}

/* A busy machine may hold up a peer, though not each time. */
#define DEATH_TRIES	4

TEST_F(isolation, death_notice)
{
	unsigned int rounds = getenv("NPULINK_SOAK") ? 1000 : getenv("NPULINK_SLOW") ? 5 : 20;
	uint64_t bound = getenv("NPULINK_SLOW") ? 20000000000ULL : 1000000000ULL;
	uint64_t worst = 0, sum, all = 0, one;
	unsigned int round, try, seed = raw_now();

	for (round = 0; round < rounds; round++) {
		one = bound;
		for (try = 0; try < DEATH_TRIES && one >= bound; try++) {
			sum = 0;
			one = one_death(_metadata, &seed, &sum);
		}
		ASSERT_GT(bound, one);
		worst = one > worst ? one : worst;
		all += sum;
	}
	TH_LOG("%u kills; from kill() to the return of 3 peers: mean %llu us, worst %llu us",
	       rounds, (unsigned long long)all / rounds / 3000, (unsigned long long)worst / 1000);
}

TEST_HARNESS_MAIN
