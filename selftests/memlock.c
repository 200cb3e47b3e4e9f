// SPDX-License-Identifier: GPL-2.0
/*
 * memlock - RLIMIT_MEMLOCK holds for all memory that npulink keeps for a user, whatever
 * it is kept for, counted over all processes of that user; and every page comes
 * back exactly once.
 *
 * npulink-test: unprivileged
 */
#include <sys/resource.h>
#include "team.h"
#include "harness.h"

#define PAGE	4096UL
#define LIMIT	(256 * PAGE)

/* Pages that this user can still have, found by trying. */
static long room(int fd)
{
	uint64_t off;
	long lo = 0, hi = LIMIT / PAGE + 1, before = raw_pinned_kb(getpid());

	while (hi - lo > 1) {
		long mid = (lo + hi) / 2;
		int id = raw_buf_alloc(fd, mid * PAGE, &off);

		if (id < 0) {
			hi = mid;
			continue;
		}
		lo = mid;
		raw_destroy(fd, id);
		/* Freed by a worker. */
		while (raw_pinned_kb(getpid()) > before)
			raw_sleep_ms(1);
	}
	return lo;
}

FIXTURE(memlock) {
	int fd;
};

FIXTURE_SETUP(memlock)
{
	struct rlimit limit = { LIMIT, LIMIT };

	if (!getuid())
		SKIP_CASE("root has no limit");
	self->fd = raw_open(0);
	ASSERT_GE(self->fd, 0);
	ASSERT_EQ(0, setrlimit(RLIMIT_MEMLOCK, &limit));
	/* What the test before this one had may still be on its way back. */
	ASSERT_TRUE(RAW_EVENTUALLY(room(self->fd) == LIMIT / PAGE));
}

FIXTURE_TEARDOWN(memlock)
{
	close(self->fd);
}

TEST_F(memlock, err_registered)
{
	char *mem = raw_anon(LIMIT + PAGE);
	int a, b;

	EXPECT_EQ(-ENOMEM, raw_register(self->fd, mem, LIMIT + 1, 0));
	/* The same number of bytes, but one page more. */
	EXPECT_EQ(-ENOMEM, raw_register(self->fd, mem + 1, LIMIT, 0));
	a = raw_register(self->fd, mem, LIMIT - PAGE, NPULINK_BUF_READONLY);
	ASSERT_GT(a, 0);
	EXPECT_EQ((LIMIT - PAGE) / 1024, raw_pinned_kb(getpid()));
	EXPECT_EQ(-ENOMEM, raw_register(self->fd, mem, PAGE + 1, 0));
	b = raw_register(self->fd, mem, PAGE, 0);
	ASSERT_GT(b, 0);
	EXPECT_EQ(-ENOMEM, raw_register(self->fd, mem, 1, 0));
	EXPECT_EQ(0, raw_destroy(self->fd, a));
	EXPECT_EQ(0, raw_destroy(self->fd, b));
	EXPECT_TRUE(RAW_EVENTUALLY(raw_pinned_kb(getpid()) == 0));
	EXPECT_EQ(LIMIT / PAGE, room(self->fd));
}

TEST_F(memlock, err_allocated)
{
	uint64_t off;
	int id;

	EXPECT_EQ(-ENOMEM, raw_buf_alloc(self->fd, LIMIT + 1, &off));
	id = raw_buf_alloc(self->fd, LIMIT, &off);
	ASSERT_GT(id, 0);
	EXPECT_EQ(-ENOMEM, raw_buf_alloc(self->fd, 1, &off));
	EXPECT_EQ(0, raw_destroy(self->fd, id));
	EXPECT_TRUE(RAW_EVENTUALLY(room(self->fd) == LIMIT / PAGE));
}

TEST_F(memlock, err_ring_and_arena)
{
	struct npulink_ring_setup ring = { .size = sizeof(ring), .entries = 32768, .eventfd = -1 };
	uint64_t off;
	int id;

	EXPECT_EQ(-ENOMEM, raw_ioctl(self->fd, NPULINK_RING_SETUP, &ring));
	id = raw_buf_alloc(self->fd, LIMIT - 8 * PAGE, &off);
	ASSERT_GT(id, 0);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, 9 * PAGE, PROT_READ, MAP_SHARED, self->fd,
				   NPULINK_MMAP_ARENA));
	EXPECT_EQ(ENOMEM, errno);
	EXPECT_NE(MAP_FAILED, mmap(NULL, 8 * PAGE, PROT_READ, MAP_SHARED, self->fd,
				   NPULINK_MMAP_ARENA));
	ring.entries = 1;
	EXPECT_EQ(-ENOMEM, raw_ioctl(self->fd, NPULINK_RING_SETUP, &ring));
	EXPECT_EQ(0, raw_destroy(self->fd, id));
	EXPECT_TRUE(RAW_EVENTUALLY(!raw_ioctl(self->fd, NPULINK_RING_SETUP, &ring)));
	EXPECT_EQ(LIMIT / PAGE - 8 - 1, room(self->fd));
}

/* The limit is the user's, not the process's or the file's. */
TEST_F(memlock, err_other_processes_count)
{
	int up[2], down[2];
	uint64_t off;
	pid_t pid;
	char c;

	ASSERT_EQ(0, pipe(up));
	ASSERT_EQ(0, pipe(down));
	pid = fork();
	if (!pid) {
		int fd = raw_open(1);

		close(self->fd);
		RAW_CHECK(fd >= 0);
		RAW_CHECK(raw_register(fd, raw_anon(LIMIT / 2), LIMIT / 2, 0) > 0);
		RAW_CHECK(write(up[1], "x", 1) == 1);
		close(down[1]);
		RAW_CHECK(read(down[0], &c, 1) == 0);
		_exit(0);
	}
	ASSERT_EQ(1, read(up[0], &c, 1));
	EXPECT_EQ(-ENOMEM, raw_buf_alloc(self->fd, LIMIT / 2 + 1, &off));
	EXPECT_EQ(LIMIT / PAGE / 2, room(self->fd));
	kill(pid, SIGKILL);
	EXPECT_EQ(-SIGKILL, raw_reap(pid));
	EXPECT_TRUE(RAW_EVENTUALLY(room(self->fd) == LIMIT / PAGE));
}

/* ... also while somebody else still has the dead process's file. */
TEST_F(memlock, file_that_outlives_its_process)
{
	int up[2], down[2];
	pid_t pid, child;
	char c;

	ASSERT_EQ(0, pipe(up));
	ASSERT_EQ(0, pipe(down));
	pid = fork();
	if (!pid) {
		int fd = raw_open(1);

		RAW_CHECK(raw_register(fd, raw_anon(LIMIT), LIMIT, 0) > 0);
		child = fork();
		if (!child) {
			close(down[1]);
			RAW_CHECK(read(down[0], &c, 1) == 0);
			_exit(0);
		}
		RAW_CHECK(write(up[1], &child, sizeof(child)) == sizeof(child));
		pause();
	}
	ASSERT_EQ((ssize_t)sizeof(child), read(up[0], &child, sizeof(child)));
	EXPECT_EQ(0, room(self->fd));
	kill(pid, SIGKILL);
	EXPECT_EQ(-SIGKILL, raw_reap(pid));
	EXPECT_TRUE(RAW_EVENTUALLY(room(self->fd) == LIMIT / PAGE));
	close(down[1]);
	while (!kill(child, 0))
		raw_sleep_ms(10);
}

/* What a user has just freed he can have again at once, however he has freed it. */
TEST_F(memlock, freed_is_there_at_once)
{
	unsigned int round;
	uint64_t off;
	void *mem;
	int id;

	for (round = 0; round < 40; round++) {
		id = raw_buf_alloc(self->fd, LIMIT, &off);
		ASSERT_LT(0, id);
		ASSERT_EQ(0, raw_destroy(self->fd, id));
		mem = raw_anon(LIMIT);
		id = raw_register(self->fd, mem, LIMIT, 0);
		ASSERT_LT(0, id);
		if (round & 1)
			ASSERT_EQ(0, raw_destroy(self->fd, id));
		munmap(mem, LIMIT);
		if (~round & 1)
			continue;
		close(self->fd);
		self->fd = raw_open(0);
	}
	/* An arena is made while others may not touch their memory: it is to be asked for again. */
	id = raw_buf_alloc(self->fd, LIMIT, &off);
	ASSERT_LT(0, id);
	ASSERT_EQ(0, raw_destroy(self->fd, id));
	do {
		mem = mmap(NULL, 8 * PAGE, PROT_READ, MAP_SHARED, self->fd, NPULINK_MMAP_ARENA);
	} while (mem == MAP_FAILED && errno == EAGAIN);
	EXPECT_NE(MAP_FAILED, mem);
}

/* ---- what plans of communicators with checksums need */

#define CHECKED	(64UL << 10)	/* of an allreduce */

static int checked_rank(struct member *m, int fd, const uint8_t *secret, uint32_t rank,
			uint32_t flags)
{
	struct npulink_comm_create cmd = {
		.size = sizeof(cmd), .flags = flags, .rank = rank, .nranks = 2,
	};
	int rc;

	*m = (struct member) { .fd = fd, .rank = rank, .nranks = 2, .len = CHECKED };
	m->send = raw_anon(2 * CHECKED);
	m->recv = m->send + CHECKED / 4;
	memcpy(cmd.secret, secret, 16);
	rc = raw_ioctl(fd, NPULINK_COMM_CREATE, &cmd);
	if (rc)
		return rc;
	m->comm = cmd.out_id;
	m->buf = raw_register(fd, m->send, 2 * CHECKED, 0);
	return m->buf < 0 ? m->buf : member_plan(m);
}

/* One allreduce, right or wrong; 0 or -errno. */
static int checked_run(struct member *m)
{
	struct npulink_result res;
	uint64_t seq;
	int r, rc;

	for (r = 0; r < 2; r++)
		member_fill(&m[r], 1);
	rc = member_start(&m[0], 0, &seq);
	if (!rc)
		rc = member_run(&m[1], NULL);
	if (!rc)
		rc = raw_wait(m[0].fd, seq, &res) ? -EBADE : res.status;
	for (r = 0; !rc && r < 2; r++)
		rc = member_wrong(&m[r], 1) ? -EILSEQ : 0;
	return rc;
}

/* Without checksums, nothing; with them, what a request lands in before it is looked at. */
TEST_F(memlock, err_landing_of_checksums)
{
	/* 2 requests at a time of each rank, 2 inputs each, half of the bytes in a chunk. */
	static const long costs[2] = { 0, 2 * 2 * 2 * (CHECKED / 2) / PAGE };
	int fd = raw_open(1), r, id, checked;
	struct member m[2];
	uint8_t secret[16];
	uint64_t off;
	long before;

	ASSERT_GE(fd, 0);
	for (checked = 0; checked < 2; checked++) {
		raw_secret(secret);
		for (r = 0; r < 2; r++)
			ASSERT_EQ(0, checked_rank(&m[r], r ? fd : self->fd, secret, r,
						  checked ? NPULINK_COMM_CHECKSUM : 0));
		before = room(self->fd);
		ASSERT_EQ(0, checked_run(m));
		EXPECT_EQ(costs[checked], before - room(self->fd));
		/* Once for a plan, however often it runs. */
		for (r = 0; r < 5; r++)
			ASSERT_EQ(0, checked_run(m));
		EXPECT_EQ(costs[checked], before - room(self->fd));
		for (r = 0; r < 2; r++)
			ASSERT_EQ(0, raw_destroy(m[r].fd, m[r].plan));
		EXPECT_TRUE(RAW_EVENTUALLY(room(self->fd) == before));
		if (checked)
			break;
		for (r = 0; r < 2; r++) {
			EXPECT_EQ(0, raw_destroy(m[r].fd, m[r].comm));
			EXPECT_EQ(0, raw_destroy(m[r].fd, m[r].buf));
		}
		EXPECT_TRUE(RAW_EVENTUALLY(room(self->fd) == LIMIT / PAGE));
	}
	/* No room for it: nothing is posted, nothing is kept, and it works when there is some. */
	for (r = 0; r < 2; r++)
		ASSERT_EQ(0, member_plan(&m[r]));
	id = raw_buf_alloc(self->fd, (before - 10) * PAGE, &off);
	ASSERT_GT(id, 0);
	EXPECT_EQ(-ENOMEM, member_start(&m[0], 0, &off));
	EXPECT_TRUE(RAW_EVENTUALLY(room(self->fd) == 10));
	ASSERT_EQ(0, raw_destroy(self->fd, id));
	EXPECT_EQ(0, checked_run(m));
	EXPECT_EQ(costs[1], before - room(self->fd));
	close(fd);
	for (r = 0; r < 2; r++)
		munmap(m[r].send, 2 * CHECKED);
}

/* ---- memory that is needed when its buffer has gone */

static int exported(int fd, int id)
{
	struct npulink_buf_export cmd = { .size = sizeof(cmd), .id = id };
	int rc = raw_ioctl(fd, NPULINK_BUF_EXPORT, &cmd);

	return rc ? rc : cmd.out_fd;
}

/* Charged as long as anybody can have it: by a dma-buf, another buffer, a mapping. */
TEST_F(memlock, err_exported_and_destroyed)
{
	struct npulink_buf_import imp = { .size = sizeof(imp) };
	const long full = LIMIT / PAGE, half = full / 2;
	int id, fd = raw_open(1);
	uint64_t off;
	char *p;

	ASSERT_GE(fd, 0);
	id = raw_buf_alloc(self->fd, LIMIT / 2, &off);
	ASSERT_GT(id, 0);
	p = mmap(NULL, LIMIT / 2, PROT_READ | PROT_WRITE, MAP_SHARED, self->fd, off);
	ASSERT_NE(MAP_FAILED, p);
	imp.fd = exported(self->fd, id);
	ASSERT_GE(imp.fd, 0);
	/* To have it twice costs nothing more. */
	ASSERT_EQ(0, raw_ioctl(fd, NPULINK_BUF_IMPORT, &imp));
	EXPECT_EQ(half, room(self->fd));
	ASSERT_EQ(0, raw_destroy(self->fd, id));
	raw_sleep_ms(50);
	EXPECT_EQ(half, room(self->fd));
	EXPECT_EQ(-ENOMEM, raw_buf_alloc(self->fd, LIMIT / 2 + 1, &off));
	munmap(p, LIMIT / 2);
	raw_sleep_ms(50);
	EXPECT_EQ(half, room(self->fd));
	close(imp.fd);
	raw_sleep_ms(50);
	EXPECT_EQ(half, room(self->fd));
	ASSERT_EQ(0, raw_destroy(fd, imp.out_id));
	EXPECT_TRUE(RAW_EVENTUALLY(room(self->fd) == full));
	/* The last one may be the mapping, or the dma-buf of a file that was closed. */
	id = raw_buf_alloc(self->fd, LIMIT / 2, &off);
	ASSERT_GT(id, 0);
	p = mmap(NULL, LIMIT / 2, PROT_READ | PROT_WRITE, MAP_SHARED, self->fd, off);
	ASSERT_NE(MAP_FAILED, p);
	ASSERT_EQ(0, raw_destroy(self->fd, id));
	raw_sleep_ms(50);
	EXPECT_EQ(half, room(self->fd));
	munmap(p, LIMIT / 2);
	EXPECT_TRUE(RAW_EVENTUALLY(room(self->fd) == full));
	id = raw_buf_alloc(fd, LIMIT / 2, &off);
	imp.fd = exported(fd, id);
	ASSERT_GE(imp.fd, 0);
	close(fd);
	raw_sleep_ms(50);
	EXPECT_EQ(half, room(self->fd));
	close(imp.fd);
	EXPECT_TRUE(RAW_EVENTUALLY(room(self->fd) == full));
}

TEST_HARNESS_MAIN
