// SPDX-License-Identifier: GPL-2.0
/*
 * isolation - two users on one device: neither sees, addresses, stalls or starves the
 * other, nothing of one's memory reaches the other, and what a user makes grow is
 * limited or charged. Prints the death notice and the latency beside a flood as figures.
 *
 * npulink-test: timeout=100
 */
#include <grp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <linux/userfaultfd.h>
#include "team.h"
#include "harness.h"

#define PAGE	4096UL
#define ALICE	60001
#define BOB	60002
#define CGROUP	"/sys/fs/cgroup"

/* Become an ordinary user who may open the devices. */
static void become(uid_t uid)
{
	struct stat st;

	RAW_CHECK(!stat("/dev/npulink/npu0", &st));
	RAW_CHECK(!setgroups(0, NULL));
	RAW_CHECK(!setresgid(st.st_gid, st.st_gid, st.st_gid));
	RAW_CHECK(!setresuid(uid, uid, uid));
	RAW_CHECK(!prctl(PR_SET_PDEATHSIG, SIGKILL));
}

/* A process of each user, and a way to talk. */
FIXTURE(isolation) {
	int sk[2];
	pid_t bob;
};

FIXTURE_SETUP(isolation)
{
	if (getuid())
		SKIP(return, "only root can be two users");
	raw_knobs_reset(4);
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_SEQPACKET, 0, self->sk));
}

FIXTURE_TEARDOWN(isolation)
{
	close(self->sk[0]);
	close(self->sk[1]);
}

static void tell(int sk, int word)
{
	RAW_CHECK(send(sk, &word, sizeof(word), 0) == sizeof(word));
}

static int hear(int sk)
{
	int word = -1;

	RAW_CHECK(recv(sk, &word, sizeof(word), 0) == sizeof(word));
	return word;
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

/* Called with every byte set to @fill beyond what is input; the same must come back. */
#define OUT_SAME(fd, cmd, type, ...) do { \
	type a_, b_; \
	memset(&a_, 0x00, sizeof(a_)); \
	memset(&b_, 0xff, sizeof(b_)); \
	type in_ = { .size = sizeof(in_), __VA_ARGS__ }; \
	memcpy(&a_, &in_, offsetof(type, OUT_FIRST)); \
	memcpy(&b_, &in_, offsetof(type, OUT_FIRST)); \
	ASSERT_EQ(0, raw_ioctl(fd, cmd, &a_)); \
	ASSERT_EQ(0, raw_ioctl(fd, cmd, &b_)); \
	EXPECT_EQ(0, memcmp(&a_, &b_, sizeof(a_))); \
} while (0)

/* All that a call writes is meant, up to the last byte: no padding, no stale stack. */
TEST_F(isolation, results_have_no_holes)
{
	struct npulink_device_info info;
	struct {
		struct npulink_post post;
		uint8_t after[64];
	} p;
	struct npulink_result res[2];
	struct team t;
	int i;

	ASSERT_EQ(0, team_open(&t, 2, 2, 8192));
#define OUT_FIRST out_abi_version
	OUT_SAME(t.m[0].fd, NPULINK_DEVICE_INFO, struct npulink_device_info);
#undef OUT_FIRST
#define OUT_FIRST out_joined
	OUT_SAME(t.m[0].fd, NPULINK_COMM_STATUS, struct npulink_comm_status,
		 .comm_id = t.m[0].comm);
#undef OUT_FIRST
	ASSERT_EQ(0, raw_info(t.m[0].fd, &info));
	/* Strings are zero to their end. */
	EXPECT_TRUE(all_bytes(info.out_name + strlen(info.out_name),
			      sizeof(info.out_name) - strlen(info.out_name), 0));
	EXPECT_TRUE(all_bytes(info.out_backend + strlen(info.out_backend),
			      sizeof(info.out_backend) - strlen(info.out_backend), 0));
	EXPECT_TRUE(all_bytes(info.out_engine + strlen(info.out_engine),
			      sizeof(info.out_engine) - strlen(info.out_engine), 0));
	EXPECT_TRUE(all_bytes(info.out_version + strlen(info.out_version),
			      sizeof(info.out_version) - strlen(info.out_version), 0));
	/* Results: every byte is written, and nothing after them. */
	for (i = 0; i < 2; i++) {
		uint8_t fill = i ? 0xff : 0;

		ASSERT_EQ(0, member_start(&t.m[1], 0, &t.seq[1]));
		memset(&p, fill, sizeof(p));
		p.post = member_post_cmd(&t.m[0], NPULINK_POST_WAIT);
		memset(&p.post.out_seq, fill,
		       sizeof(p.post) - offsetof(struct npulink_post, out_seq));
		ASSERT_EQ(0, raw_ioctl(t.m[0].fd, NPULINK_POST, &p.post));
		EXPECT_TRUE(all_bytes(p.after, sizeof(p.after), fill));
		EXPECT_EQ(0, p.post.out_result.status);
		EXPECT_EQ(p.post.out_seq, p.post.out_result.seq);
		EXPECT_EQ(t.m[0].comm, (int)p.post.out_result.comm_id);
		EXPECT_EQ(0, (int)p.post.out_result.rank);
		EXPECT_EQ(NPULINK_NO_PEER, p.post.out_result.peer);
		EXPECT_EQ(~0U, p.post.out_result.step);
		EXPECT_EQ(0ULL, p.post.out_result.reserved);
		EXPECT_EQ(0ULL, p.post.out_result.cookie);
		memset(&res[1], fill, sizeof(res[1]));
		ASSERT_EQ(0, raw_wait(t.m[1].fd, t.seq[1], &res[1]));
		EXPECT_EQ(0ULL, res[1].reserved);
	}
	team_close(&t);
}

/* ---- limits */

/* Empties @fd of something until it is refused; the last error. */
static int fill_inflight(struct member *m, unsigned int *n)
{
	uint64_t seq;
	int rc;

	for (*n = 0; *n < 100000; ++*n) {
		rc = member_start(m, 0, &seq);
		if (rc)
			return rc;
	}
	return 0;
}

TEST_F(isolation, operations_in_flight)
{
	struct npulink_device_info info;
	struct team alice, bob;
	unsigned int n;

	ASSERT_EQ(0, team_open(&alice, 2, 1, 4096));
	ASSERT_EQ(0, raw_info(alice.m[0].fd, &info));
	EXPECT_EQ(-EBUSY, fill_inflight(&alice.m[0], &n));
	EXPECT_EQ(info.out_max_inflight, n);
	/* The same device, at the same time. */
	ASSERT_EQ(0, team_open(&bob, 2, 1, 4096));
	EXPECT_EQ(0, team_allreduce(&bob, 1));
	team_close(&bob);
	team_close(&alice);
}

TEST_F(isolation, objects_of_a_file)
{
	uint8_t secret[16];
	int fd, comm, other, n, rc = 0;

	if (getenv("NPULINK_SLOW"))
		SKIP(return, "65,536 objects take too long here");
	raw_secret(secret);
	fd = raw_open(0);
	comm = raw_comm(fd, secret, 0, 1);
	ASSERT_GT(comm, 0);
	for (n = 1; n < 70000; n++) {
		rc = raw_plan(fd, comm, NULL, 0, NULL, 0);
		if (rc < 0)
			break;
	}
	EXPECT_EQ(-ENOMEM, rc);
	EXPECT_EQ(65536, n);
	other = raw_open(0);
	EXPECT_LT(0, raw_register(other, raw_anon(PAGE), PAGE, 0));
	close(other);
	close(fd);
}

#define USER_LIMIT	"/sys/module/npulink/parameters/max_user_objects"

/* Files count, objects count, others do not, and what is closed comes back. */
TEST_F(isolation, objects_of_a_user)
{
	char text[24];
	int fd;

	snprintf(text, sizeof(text), "%lld", (long long)raw_read(USER_LIMIT));
	ASSERT_EQ(0, raw_write(USER_LIMIT, "12"));
	fd = raw_open(0);
	EXPECT_LE(0, fd)
		TH_LOG("root is limited, too");
	close(fd);
	self->bob = fork();
	if (!self->bob) {
		int files[2], bufs[16], n, round;
		void *page = raw_anon(PAGE);

		become(BOB);
		for (round = 0; round < 3; round++) {
			files[0] = raw_open(0);
			files[1] = raw_open(1);
			RAW_CHECK(files[0] >= 0 && files[1] >= 0);
			for (n = 0; n < 16; n++) {
				bufs[n] = raw_register(files[n & 1], page, PAGE, 0);
				if (bufs[n] < 0)
					break;
			}
			RAW_CHECK(n == 10 && bufs[n] == -EDQUOT);
			RAW_CHECK(raw_open(0) < 0 && errno == EDQUOT);
			RAW_CHECK(!raw_destroy(files[0], bufs[0]));
			RAW_CHECK(raw_register(files[1], page, PAGE, 0) > 0);
			RAW_CHECK(raw_register(files[0], page, PAGE, 0) == -EDQUOT);
			close(files[0]);
			close(files[1]);
		}
		_exit(0);
	}
	EXPECT_EQ(0, raw_reap(self->bob));
	EXPECT_EQ(0, raw_write(USER_LIMIT, text));
}

static long cgroup_read(const char *group, const char *file)
{
	char path[128];

	snprintf(path, sizeof(path), CGROUP "/%s/%s", group, file);
	return raw_read(path);
}

static int cgroup_write(const char *group, const char *file, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), CGROUP "/%s/%s", group, file);
	return raw_write(path, text);
}

/* What objects cost is charged to who made them; a group at its limit gets no more. */
TEST_F(isolation, memory_cgroup)
{
	struct team t;
	long base, full;

	if (raw_write(CGROUP "/cgroup.subtree_control", "+memory") ||
	    (mkdir(CGROUP "/npulink-test", 0755) && errno != EEXIST))
		SKIP(return, "no memory cgroup");
	ASSERT_EQ(0, cgroup_write("npulink-test", "memory.max", "67108864"));
	self->bob = fork();
	if (!self->bob) {
		static struct npulink_step steps[2000];
		uint8_t secret[16];
		int fd, comm, i, rc;
		uint64_t off;

		RAW_CHECK(!cgroup_write("npulink-test", "cgroup.procs", "0"));
		for (i = 0; i < 2000; i++)
			steps[i] = raw_step(0, 0);
		base = cgroup_read("npulink-test", "memory.current");
		fd = raw_open(0);
		raw_secret(secret);
		comm = raw_comm(fd, secret, 0, 1);
		RAW_CHECK(comm > 0);
		/* 4 MiB of pages, then 20 plans of 2,000 steps. */
		RAW_CHECK(raw_buf_alloc(fd, 4 << 20, &off) > 0);
		full = cgroup_read("npulink-test", "memory.current") - base;
		RAW_CHECK(full >= 4 << 20);
		for (i = 0; i < 20; i++)
			RAW_CHECK(raw_plan(fd, comm, NULL, 0, steps, 2000) > 0);
		full = cgroup_read("npulink-test", "memory.current") - base;
		RAW_CHECK(full >= (4 << 20) + 20 * 2000 * 64);
		/* Now too much: refused, or killed, and by nobody else's fault. */
		do {
			rc = raw_buf_alloc(fd, 8 << 20, &off);
		} while (rc > 0);
		RAW_CHECK(rc == -ENOMEM);
		_exit(0);
	}
	full = raw_reap(self->bob);
	EXPECT_TRUE(full == 0 || full == -SIGKILL)
		TH_LOG("the process in the group: %ld", full);
	/* It has all come back, but for caches. */
	EXPECT_TRUE(RAW_EVENTUALLY(cgroup_read("npulink-test", "memory.current") < 3 << 20))
		TH_LOG("still %ld", cgroup_read("npulink-test", "memory.current"));
	rmdir(CGROUP "/npulink-test");
	ASSERT_EQ(0, team_open(&t, 2, 2, 8192));
	EXPECT_EQ(0, team_allreduce(&t, 1));
	team_close(&t);
}

/* ---- stalling: a user whose memory is slow keeps nobody else waiting */

static void *slow_call(void *arg)
{
	struct npulink_post *post = ((void **)arg)[1];
	struct member *m = ((void **)arg)[0];
	unsigned long cmd = (uintptr_t)((void **)arg)[2];

	ioctl(m->fd, cmd, post);
	return NULL;
}

/* Others' whole life beside a call that hangs in a page fault. */
TEST_F(isolation, memory_that_does_not_come)
{
	static const unsigned long cmds[] = {
		NPULINK_DEVICE_INFO, NPULINK_BUF_ALLOC, NPULINK_COMM_CREATE, NPULINK_COMM_STATUS,
		NPULINK_PLAN_CREATE, NPULINK_POST, NPULINK_RING_SETUP, NPULINK_COMM_SHRINK,
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(cmds); i++) {
		struct uffdio_api api = { .api = UFFD_API };
		struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
		int uffd = syscall(SYS_userfaultfd, O_CLOEXEC);
		struct team alice, bob;
		pthread_t thread;
		void *arg[3];
		char *mem;
		pid_t pid;

		if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api))
			SKIP(return, "no userfaultfd");
		close(uffd);
		pid = fork();
		if (!pid) {
			/* The structure begins at the end of a page; the next one never comes. */
			mem = raw_anon(2 * PAGE);
			uffd = syscall(SYS_userfaultfd, O_CLOEXEC);
			RAW_CHECK(uffd >= 0 && !ioctl(uffd, UFFDIO_API, &api));
			mem[0] = 1;
			reg.range.start = (uintptr_t)mem + PAGE;
			reg.range.len = PAGE;
			RAW_CHECK(!ioctl(uffd, UFFDIO_REGISTER, &reg));
			RAW_CHECK(!team_open(&alice, 2, 2, 8192));
			arg[0] = &alice.m[0];
			arg[1] = mem + PAGE - 8;
			arg[2] = (void *)cmds[i];
			*(uint32_t *)(mem + PAGE - 8) = 500;
			pthread_create(&thread, NULL, slow_call, arg);
			raw_sleep_ms(20);
			tell(self->sk[1], 1);
			pause();
		}
		hear(self->sk[0]);
		ASSERT_EQ(0, team_open(&bob, 2, 2, 8192));
		EXPECT_EQ(0, team_allreduce(&bob, 1));
		team_close(&bob);
		kill(pid, SIGKILL);
		EXPECT_EQ(-SIGKILL, raw_reap(pid));
	}
}

/* ---- starving: a figure, and that there is progress at all */

static void flood(int sk)
{
	struct team t;
	unsigned int i;

	RAW_CHECK(!team_open(&t, 2, 2, 4 << 20));
	tell(sk, 1);
	for (i = 0;; i++)
		RAW_CHECK(!team_start(&t, 0) && !team_finish(&t));
}

/* The middle one of some small allreduces, in ns. */
static uint64_t latency(struct team *t, unsigned int n, uint64_t *worst)
{
	uint64_t ns[64], from, tmp;
	unsigned int i, k;

	for (i = 0; i < n; i++) {
		from = raw_now();
		RAW_CHECK(!team_allreduce(t, i));
		ns[i] = raw_now() - from;
		for (k = i; k && ns[k] < ns[k - 1]; k--) {
			tmp = ns[k];
			ns[k] = ns[k - 1];
			ns[k - 1] = tmp;
		}
	}
	*worst = ns[n - 1];
	return ns[n / 2];
}

TEST_F(isolation, beside_a_flood)
{
	unsigned int n = getenv("NPULINK_SLOW") ? 10 : 60, i;
	uint64_t alone, beside, worst[2];
	pid_t pid[2];
	struct team t;

	ASSERT_EQ(0, team_open(&t, 2, 2, 64));
	alone = latency(&t, n, &worst[0]);
	for (i = 0; i < 2; i++) {
		pid[i] = fork();
		if (!pid[i]) {
			struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };

			RAW_CHECK(!setrlimit(RLIMIT_MEMLOCK, &limit));
			become(BOB);
			flood(self->sk[1]);
		}
		hear(self->sk[0]);
	}
	beside = latency(&t, n, &worst[1]);
	for (i = 0; i < 2; i++) {
		kill(pid[i], SIGKILL);
		EXPECT_EQ(-SIGKILL, raw_reap(pid[i]));
	}
	TH_LOG("64 B, 2 ranks: median %llu us, beside 2 floods of 4 MiB %llu us; worst %llu, %llu us",
	       (unsigned long long)alone / 1000, (unsigned long long)beside / 1000,
	       (unsigned long long)worst[0] / 1000, (unsigned long long)worst[1] / 1000);
	EXPECT_GT(20000000000ULL, worst[1]);
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

TEST_F(isolation, death_notice)
{
	unsigned int rounds = getenv("NPULINK_SOAK") ? 1000 : getenv("NPULINK_SLOW") ? 5 : 20;
	uint64_t worst = 0, sum = 0, killed, when;
	unsigned int round, r, seed = raw_now();
	uint8_t secret[16];
	char c;

	for (round = 0; round < rounds; round++) {
		int p[4][2];
		pid_t pid[4];

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
		usleep(rand_r(&seed) % 30000);
		killed = raw_now();
		kill(pid[3], SIGKILL);
		for (r = 0; r < 3; r++) {
			ASSERT_EQ((ssize_t)sizeof(when), read(p[r][0], &when, sizeof(when)));
			if (when > killed && when - killed > worst)
				worst = when - killed;
			if (when > killed)
				sum += when - killed;
		}
		for (r = 0; r < 4; r++) {
			kill(pid[r], SIGKILL);
			EXPECT_EQ(-SIGKILL, raw_reap(pid[r]));
			close(p[r][0]);
		}
	}
	TH_LOG("%u kills; from kill() to the return of 3 peers: mean %llu us, worst %llu us",
	       rounds, (unsigned long long)sum / rounds / 3000, (unsigned long long)worst / 1000);
	EXPECT_GT(getenv("NPULINK_SLOW") ? 20000000000ULL : 1000000000ULL, worst);
}

TEST_HARNESS_MAIN
