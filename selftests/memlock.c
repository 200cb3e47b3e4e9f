// SPDX-License-Identifier: GPL-2.0
/*
 * memlock - RLIMIT_MEMLOCK holds for all memory that npulink keeps for a user, whatever
 * it is kept for, counted over all processes of that user; and every page comes
 * back exactly once.
 *
 * npulink-test: unprivileged
 */
#include <sys/resource.h>
#include "raw.h"
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
		SKIP(return, "root has no limit");
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

TEST_HARNESS_MAIN
