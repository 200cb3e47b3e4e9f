// SPDX-License-Identifier: GPL-2.0
/*
 * user_limits - what a user makes grow on a device is limited, by file or by user, or charged to
 * the memory cgroup.
 *
 * npulink-test: timeout=100
 */
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include "team.h"
#include "users.h"
#include "worker.h"
#include "harness.h"

#define PAGE	4096UL
#define CGROUP	"/sys/fs/cgroup"

/* A process of each user, and a way to talk. */
FIXTURE(user_limits) {
	int sk[2];
	pid_t bob;
};

FIXTURE_SETUP(user_limits)
{
	if (getuid())
		SKIP_CASE("only root can be two users");
	raw_knobs_reset(4);
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_SEQPACKET, 0, self->sk));
}

FIXTURE_TEARDOWN(user_limits)
{
	close(self->sk[0]);
	close(self->sk[1]);
}

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

TEST_F(user_limits, operations_in_flight)
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

TEST_F(user_limits, objects_of_a_file)
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
TEST_F(user_limits, objects_of_a_user)
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

/* Up to @n buffers; how many there may be. */
static int take_buffers(int fd, int n)
{
	void *page = raw_anon(PAGE);
	int i, rc = 0;

	for (i = 0; i < n && rc >= 0; i++)
		rc = raw_register(fd, page, PAGE, 0);
	if (rc >= 0)
		return n;
	RAW_CHECK(rc == -EDQUOT);
	return i - 1;
}

/* Whoever has many uids in a user namespace of his own is one user with all of them. */
TEST_F(user_limits, uids_of_a_user)
{
	char text[24];
	pid_t other;

	snprintf(text, sizeof(text), "%lld", (long long)raw_read(USER_LIMIT));
	ASSERT_EQ(0, raw_write(USER_LIMIT, "12"));
	self->bob = fork();
	if (!self->bob) {
		int fd;

		become(BOB);
		/* The file is his from before. */
		fd = raw_open(0);
		RAW_CHECK(fd >= 0 && take_buffers(fd, 4) == 4);
		RAW_CHECK(!unshare(CLONE_NEWUSER));
		tell(self->sk[1], 1);
		RAW_CHECK(hear(self->sk[1]) == 2);
		other = fork();
		if (!other) {
			/* Nobody outside has this one. */
			RAW_CHECK(!setresuid(5, 5, 5));
			/* 5 are there: that leaves this file, and 6 more. */
			fd = raw_open(1);
			RAW_CHECK(fd >= 0 && take_buffers(fd, 16) == 6);
			RAW_CHECK(!unshare(CLONE_NEWUSER));
			RAW_CHECK(raw_open(1) < 0 && errno == EDQUOT);
			_exit(0);
		}
		RAW_CHECK(!raw_reap(other));
		_exit(take_buffers(fd, 16) != 7);
	}
	ASSERT_EQ(1, hear(self->sk[0]));
	write_maps(self->bob, "0 60002 1\n1 70001 9");
	tell(self->sk[0], 2);
	EXPECT_EQ(0, raw_reap(self->bob));
	/* In a namespace that root has made, each is a user by himself. */
	self->bob = fork();
	if (!self->bob) {
		gid_t gid = node_group();
		int uid;

		RAW_CHECK(!setresgid(gid, gid, gid));
		RAW_CHECK(!unshare(CLONE_NEWUSER));
		tell(self->sk[1], 1);
		RAW_CHECK(hear(self->sk[1]) == 2);
		for (uid = 1; uid < 3; uid++) {
			other = fork();
			if (!other) {
				RAW_CHECK(!setresuid(uid, uid, uid));
				_exit(take_buffers(raw_open(0), 16) != 11);
			}
			RAW_CHECK(!raw_reap(other));
		}
		_exit(0);
	}
	ASSERT_EQ(1, hear(self->sk[0]));
	write_maps(self->bob, "0 0 1\n1 70001 9");
	tell(self->sk[0], 2);
	EXPECT_EQ(0, raw_reap(self->bob));
	EXPECT_EQ(0, raw_write(USER_LIMIT, text));
}

#define WORKER_LIMIT	"/sys/module/npulink/parameters/max_user_workers"

/*
 * A file may have a thread from its first communicator on until it is closed. A communicator
 * that could not be made costs none.
 */
TEST_F(user_limits, workers_of_a_user)
{
	char text[24];

	ASSERT_LE(256, raw_read(WORKER_LIMIT));
	snprintf(text, sizeof(text), "%lld", (long long)raw_read(WORKER_LIMIT));
	ASSERT_EQ(0, raw_write(WORKER_LIMIT, "2"));
	self->bob = fork();
	if (!self->bob) {
		uint8_t secret[16], other[16];
		int files[4], n, round;

		become(BOB);
		for (round = 0; round < 3; round++) {
			raw_secret(secret);
			for (n = 0; n < 4; n++) {
				files[n] = raw_open(n);
				RAW_CHECK(files[n] >= 0);
			}
			RAW_CHECK(raw_comm(files[0], secret, 0, 2) > 0);
			/* The rank is taken. */
			for (n = 0; n < 4; n++)
				RAW_CHECK(raw_comm(files[1], secret, 0, 2) == -EEXIST);
			RAW_CHECK(raw_comm(files[2], secret, 1, 2) > 0);
			raw_secret(other);
			RAW_CHECK(raw_comm(files[1], other, 0, 1) == -EDQUOT);
			/* No other one is needed for it. */
			RAW_CHECK(raw_comm(files[0], other, 0, 1) > 0);
			RAW_CHECK(raw_comm(files[0], other, 0, 1) == -EEXIST);
			close(files[2]);
			raw_secret(other);
			RAW_CHECK(raw_comm(files[1], other, 0, 1) > 0);
			RAW_CHECK(raw_comm(files[3], other, 0, 1) == -EDQUOT);
			close(files[0]);
			close(files[1]);
			close(files[3]);
		}
		_exit(0);
	}
	EXPECT_EQ(0, raw_reap(self->bob));
	/* root is not limited. */
	EXPECT_EQ(0, raw_write(WORKER_LIMIT, "0"));
	self->bob = fork();
	if (!self->bob) {
		uint8_t secret[16];

		raw_secret(secret);
		RAW_CHECK(raw_comm(raw_open(0), secret, 0, 1) > 0);
		_exit(0);
	}
	EXPECT_EQ(0, raw_reap(self->bob));
	EXPECT_EQ(0, raw_write(WORKER_LIMIT, text));
}

#define FILES	6	/* that have work at a time */

/* All of it is done, by no more than so many threads. */
static void work_aside(unsigned int threads)
{
	struct aside a[FILES];
	unsigned int i, round, most = 0, n;
	pid_t last;

	for (i = 0; i < FILES; i++)
		RAW_CHECK(!aside_open(&a[i], i));
	/* Nothing to do, no threads. */
	RAW_CHECK(!workers_of(getpid(), &last));
	for (round = 0; round < 4; round++) {
		for (i = 0; i < FILES; i++)
			RAW_CHECK(!aside_post(&a[i]));
		for (i = 0; i < FILES; i++)
			RAW_CHECK(RAW_EVENTUALLY(aside_done(&a[i])));
		n = workers_of(getpid(), &last);
		most = n > most ? n : most;
	}
	printf("# %u files have work, and %u threads at most\n", FILES, most);
	fflush(stdout);
	RAW_CHECK(most <= threads);
}

/* Workers are counted with the user's own threads, and what they did not get is done, too. */
TEST_F(user_limits, workers_are_processes)
{
	self->bob = fork();
	if (!self->bob) {
		struct rlimit limit = { 3, 3 };

		unlimit_memlock();
		RAW_CHECK(!setrlimit(RLIMIT_NPROC, &limit));
		become(BOB);
		work_aside(limit.rlim_cur - 1);
		_exit(0);
	}
	EXPECT_EQ(0, raw_reap(self->bob));
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

/* What was charged to the group since @base, which moves on. */
static long grown(long *base)
{
	long now = cgroup_read("npulink-test", "memory.current"), n = now - *base;

	*base = now;
	return n;
}

/* ... and by the cgroup, where nobody is limited by who he is. */
TEST_F(user_limits, workers_are_in_the_pids_cgroup)
{
	if (raw_write(CGROUP "/cgroup.subtree_control", "+pids") ||
	    (mkdir(CGROUP "/npulink-test", 0755) && errno != EEXIST))
		SKIP(return, "no pids cgroup");
	ASSERT_EQ(0, cgroup_write("npulink-test", "pids.max", "3"));
	self->bob = fork();
	if (!self->bob) {
		RAW_CHECK(!cgroup_write("npulink-test", "cgroup.procs", "0"));
		work_aside(2);
		RAW_CHECK(cgroup_read("npulink-test", "pids.current") <= 3);
		_exit(0);
	}
	EXPECT_EQ(0, raw_reap(self->bob));
	EXPECT_TRUE(RAW_EVENTUALLY(!rmdir(CGROUP "/npulink-test")));
}

/* At least that much, but for what processors had taken in advance. */
static bool charged(const char *what, long *base, long want)
{
	long got = grown(base);

	printf("# %s: %ld KiB charged, %ld are needed\n", what, got / 1024, want / 1024);
	fflush(stdout);
	return got >= want * 7 / 8;
}

static void spend_in_group(int up)
{
	struct npulink_ring_setup ring = {
		.size = sizeof(ring), .entries = NPULINK_MAX_RING, .eventfd = -1,
	};
	static struct npulink_step steps[2000];
	uint32_t nranks = 1 << 20;
	int fd, comm, i, rc;
	uint8_t secret[16];
	uint64_t off;
	long base;

	RAW_CHECK(!cgroup_write("npulink-test", "cgroup.procs", "0"));
	for (i = 0; i < 2000; i++)
		steps[i] = raw_step(0, 0);
	fd = raw_open(0);
	raw_secret(secret);
	comm = raw_comm(fd, secret, 0, 1);
	RAW_CHECK(comm > 0);
	base = cgroup_read("npulink-test", "memory.current");
	RAW_CHECK(raw_buf_alloc(fd, 4 << 20, &off) > 0);
	RAW_CHECK(charged("buffer", &base, 4 << 20));
	for (i = 0; i < 20; i++)
		RAW_CHECK(raw_plan(fd, comm, NULL, 0, steps, 2000) > 0);
	RAW_CHECK(charged("20 plans of 2,000 steps", &base, 20 * 2000 * 64));
	RAW_CHECK(!raw_ioctl(fd, NPULINK_RING_SETUP, &ring));
	RAW_CHECK(charged("ring", &base, NPULINK_MAX_RING * 64));
	/* A pointer for each rank. */
	raw_secret(secret);
	RAW_CHECK(raw_comm(fd, secret, 0, nranks) > 0);
	RAW_CHECK(charged("communicator of a million ranks", &base, 8L * nranks));
	for (i = 0; i < 64; i++)
		RAW_CHECK(raw_open(i % 8) >= 0);
	RAW_CHECK(charged("64 files", &base, 64 * 512 * 8));
	RAW_CHECK(write(up, "c", 1) == 1);
	/* Now too much: refused, or killed, and by nobody else's fault. */
	do {
		rc = raw_buf_alloc(fd, 8 << 20, &off);
	} while (rc > 0);
	RAW_CHECK(rc == -ENOMEM);
	_exit(0);
}

/* What objects cost is charged to who made them; a group at its limit gets no more. */
TEST_F(user_limits, memory_cgroup)
{
	struct team t;
	int up[2];
	char c;
	long status;

	if (raw_write(CGROUP "/cgroup.subtree_control", "+memory") ||
	    (mkdir(CGROUP "/npulink-test", 0755) && errno != EEXIST))
		SKIP(return, "no memory cgroup");
	ASSERT_EQ(0, cgroup_write("npulink-test", "memory.max", "134217728"));
	ASSERT_EQ(0, pipe(up));
	self->bob = fork();
	if (!self->bob)
		spend_in_group(up[1]);
	close(up[1]);
	status = raw_reap(self->bob);
	/* All was charged before it was too much. */
	EXPECT_EQ(1, read(up[0], &c, 1));
	close(up[0]);
	EXPECT_TRUE(status == 0 || status == -SIGKILL)
		TH_LOG("the process in the group: %ld", status);
	/* It has all come back, but for caches. */
	EXPECT_TRUE(RAW_EVENTUALLY(cgroup_read("npulink-test", "memory.current") < 3 << 20))
		TH_LOG("still %ld", cgroup_read("npulink-test", "memory.current"));
	rmdir(CGROUP "/npulink-test");
	ASSERT_EQ(0, team_open(&t, 2, 2, 8192));
	EXPECT_EQ(0, team_allreduce(&t, 1));
	team_close(&t);
}

#define MUCH	(256UL << 20)	/* takes a while to be given back */

/* Somebody who has so much registered, and then lets go of it. */
static pid_t let_go_of_much(int sk, int from_alice)
{
	pid_t pid = fork();
	void *mem;
	int fd, id;

	if (pid)
		return pid;
	unlimit_memlock();
	become(ALICE);
	fd = raw_open(1);
	mem = raw_anon(MUCH);
	RAW_CHECK(!madvise(mem, MUCH, MADV_NOHUGEPAGE));
	id = raw_register(fd, mem, MUCH, 0);
	RAW_CHECK(id > 0 && !raw_destroy(fd, id));
	/* From here on all is on its way. */
	tell(sk, 1);
	RAW_CHECK(write(from_alice, "d", 1) == 1);
	pause();
	_exit(0);
}

/* Who is at his limit is refused at once, whoever else has memory that is on its way back. */
TEST_F(user_limits, nobody_waits_for_memory_of_another)
{
	long pinned = raw_pages_pinned();
	unsigned int try, seen = 0;
	pid_t alice;
	int up[2];
	char c;

	ASSERT_EQ(0, pipe(up));
	self->bob = fork();
	if (!self->bob) {
		struct rlimit limit = { 16 * PAGE, 16 * PAGE };
		uint64_t off;
		int fd;

		RAW_CHECK(!setrlimit(RLIMIT_MEMLOCK, &limit));
		become(BOB);
		fd = raw_open(0);
		RAW_CHECK(raw_buf_alloc(fd, 16 * PAGE, &off) > 0);
		while (hear(self->sk[1])) {
			RAW_CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd,
				       NPULINK_MMAP_ARENA) == MAP_FAILED && errno == ENOMEM);
			RAW_CHECK(raw_buf_alloc(fd, PAGE, &off) == -ENOMEM);
			tell(self->sk[1], 2);
		}
		_exit(0);
	}
	for (try = 0; try < 6 && !seen; try++) {
		alice = let_go_of_much(self->sk[0], up[1]);
		ASSERT_EQ(2, hear(self->sk[0]));
		/* Is something still on its way when he has been refused? */
		seen += raw_pages_pinned() > pinned + (long)(MUCH / PAGE / 16);
		ASSERT_EQ(1, read(up[0], &c, 1));
		kill(alice, SIGKILL);
		ASSERT_EQ(-SIGKILL, raw_reap(alice));
		EXPECT_TRUE(RAW_EVENTUALLY(raw_pages_pinned() <= pinned));
	}
	close(up[0]);
	close(up[1]);
	tell(self->sk[0], 0);
	EXPECT_EQ(0, raw_reap(self->bob));
	EXPECT_LT(0, seen);
}

TEST_HARNESS_MAIN
