// SPDX-License-Identifier: GPL-2.0
/*
 * buffers_changed - the application changes the mappings of memory that it has registered,
 * idle and in flight: nobody reads or writes pages that are no longer what was registered.
 */
#include "copier.h"

/* ---- while nothing is in flight --------------------------------------------------------- */

TEST_F(bufs, err_unmapped)
{
	char *mem = raw_anon(LEN);
	int buf = raw_register(self->fd, mem, LEN, 0);
	long before = pinned();

	ASSERT_EQ(0, copy_out(self, buf));
	munmap(mem, LEN);
	EXPECT_EQ(-ESTALE, copy_out(self, buf));
	EXPECT_TRUE(RAW_EVENTUALLY(pinned() == before - 8));
	EXPECT_EQ(0, raw_destroy(self->fd, buf));
	EXPECT_EQ(before - 8, pinned());
}

TEST_F(bufs, err_one_page_unmapped)
{
	char *mem = raw_anon(LEN);
	int buf = raw_register(self->fd, mem, LEN, 0);

	munmap(mem + 5 * PAGE, PAGE);
	EXPECT_EQ(-ESTALE, copy_out(self, buf));
}

TEST_F(bufs, unmapping_a_neighbour_does_not_matter)
{
	char *mem = raw_anon(LEN + 2 * PAGE);
	int buf = raw_register(self->fd, mem + PAGE + 10, LEN - 20, 0), whole;

	whole = raw_register(self->fd, mem + PAGE, LEN, 0);
	munmap(mem, PAGE);
	munmap(mem + PAGE + LEN, PAGE);
	pattern(mem + PAGE, LEN, 2);
	EXPECT_EQ(0, copy_out(self, whole));
	EXPECT_EQ(0, differs(self->out, LEN, 2));
	EXPECT_EQ(0, raw_destroy(self->fd, buf));
}

TEST_F(bufs, err_mapped_again_at_the_same_address)
{
	char *mem = raw_anon(LEN), *again;
	int buf = raw_register(self->fd, mem, LEN, 0);

	munmap(mem, LEN);
	again = mmap(mem, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		     -1, 0);
	ASSERT_EQ(mem, again);
	pattern(mem, LEN, 1);
	EXPECT_EQ(-ESTALE, copy_out(self, buf));
	buf = raw_register(self->fd, mem, LEN, 0);
	EXPECT_EQ(0, copy_out(self, buf));
	EXPECT_EQ(0, differs(self->out, LEN, 1));
	/* Over it, without munmap. */
	again = mmap(mem, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		     -1, 0);
	ASSERT_EQ(mem, again);
	EXPECT_EQ(-ESTALE, copy_out(self, buf));
}

TEST_F(bufs, err_moved)
{
	char *mem = raw_anon(LEN), *moved;
	int buf = raw_register(self->fd, mem, LEN, 0);
	char *to = raw_anon(LEN);

	moved = mremap(mem, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	ASSERT_EQ(to, moved);
	EXPECT_EQ(-ESTALE, copy_out(self, buf));
}

FIXTURE(advice) {
	FIXTURE_DATA(bufs) b;
};

FIXTURE_VARIANT(advice) {
	int advice;
	int shared;
	int want;
};

/* Pages of a private mapping are dropped; of shared memory they stay in the file. */
FIXTURE_VARIANT_ADD(advice, dontneed) { .advice = MADV_DONTNEED, .want = -ESTALE };
FIXTURE_VARIANT_ADD(advice, dontneed_shared) {
	.advice = MADV_DONTNEED, .shared = 1, .want = 0,
};
FIXTURE_VARIANT_ADD(advice, remove) { .advice = MADV_REMOVE, .shared = 1, .want = -ESTALE };
FIXTURE_VARIANT_ADD(advice, cold) { .advice = MADV_COLD, .want = 0 };
FIXTURE_VARIANT_ADD(advice, pageout) { .advice = MADV_PAGEOUT, .want = 0 };
FIXTURE_VARIANT_ADD(advice, mergeable) { .advice = MADV_MERGEABLE, .want = 0 };

FIXTURE_SETUP(advice)
{
	ASSERT_EQ(0, open_copier(&self->b, LEN));
}

FIXTURE_TEARDOWN(advice)
{
	close(self->b.fd);
}

TEST_F(advice, is_noticed)
{
	char *mem = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_ANONYMOUS |
			 (variant->shared ? MAP_SHARED : MAP_PRIVATE), -1, 0);
	int buf = raw_register(self->b.fd, mem, LEN, 0);
	long before = pinned();

	ASSERT_GT(buf, 0);
	pattern(mem, LEN, 3);
	ASSERT_EQ(0, copy_out(&self->b, buf));
	if (madvise(mem + PAGE, 3 * PAGE, variant->advice))
		SKIP(return, "this kernel has no such advice");
	EXPECT_EQ(variant->want, copy_out(&self->b, buf));
	/* What is stale stays stale, what is not can be used again. */
	EXPECT_EQ(variant->want, copy_out(&self->b, buf));
	if (!variant->want)
		EXPECT_EQ(0, differs(self->b.out, LEN, 3));
	EXPECT_EQ(before, pinned());
	EXPECT_EQ(0, raw_destroy(self->b.fd, buf));
	EXPECT_TRUE(RAW_EVENTUALLY(pinned() == before - 8));
}

TEST_F(bufs, err_file_was_cut)
{
	int fd = memory_file("bufs", 0), buf;
	char *mem;

	mem = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	buf = raw_register(self->fd, mem, LEN, 0);
	ASSERT_EQ(0, copy_out(self, buf));
	ASSERT_EQ(0, ftruncate(fd, LEN / 2));
	EXPECT_EQ(-ESTALE, copy_out(self, buf));
	ASSERT_EQ(0, ftruncate(fd, LEN));
	EXPECT_EQ(-ESTALE, copy_out(self, buf));
}

/* After fork, who writes first gets a copy; it must not be the one who registered. */
TEST_F(bufs, write_after_fork)
{
	char *mem = raw_anon(LEN);
	int pipefd[2], buf, i;
	pid_t pid;
	char c;

	pattern(mem, LEN, 1);
	buf = raw_register(self->fd, mem, LEN, 0);
	ASSERT_GT(buf, 0);
	for (i = 0; i < 3; i++) {
		ASSERT_EQ(0, pipe(pipefd));
		pid = fork();
		if (!pid) {
			close(pipefd[1]);
			if (i == 1)
				memset(mem, 0x11, LEN);
			RAW_CHECK(read(pipefd[0], &c, 1) == 0);
			/* The child's memory is its own. */
			_exit(i == 1 ? mem[100] != 0x11 : !!differs(mem, LEN, 1 + i));
		}
		close(pipefd[0]);
		pattern(mem, LEN, 2 + i);
		EXPECT_EQ(0, copy_out(self, buf));
		EXPECT_EQ(0, differs(self->out, LEN, 2 + i));
		/* Written by the device: seen here, not there. */
		pattern(self->out, LEN, 2 + i);
		EXPECT_EQ(0, copy_between(self, self->dst, 0, buf, 0));
		EXPECT_EQ(0, differs(mem, LEN, 2 + i));
		close(pipefd[1]);
		EXPECT_EQ(0, raw_reap(pid));
	}
}

/* ---- while an operation is in flight ---------------------------------------------------- */

static int copy_start(struct _test_data_bufs *self, int src, int dst, uint64_t *seq)
{
	struct npulink_post post = raw_post_cmd(self->plan, NPULINK_POST_HELD);
	int rc;

	raw_bind(&post, src, 0, LEN);
	raw_bind(&post, dst, 0, LEN);
	rc = raw_ioctl(self->fd, NPULINK_POST, &post);
	*seq = post.out_seq;
	return rc;
}

/* The device is through with the bytes, but has not said so. */
static int start_held(struct _test_data_bufs *self, int src, int dst, uint64_t *seq)
{
	int rc = raw_knob(0, "hold", 0);

	if (rc)
		return rc;
	rc = copy_start(self, src, dst, seq);
	if (rc)
		return rc;
	return RAW_EVENTUALLY(raw_knob_get(0, "held") == 1) ? 0 : -ETIME;
}

TEST_F(bufs, unmapped_in_flight)
{
	char *mem = raw_anon(LEN), *again;
	int buf = raw_register(self->fd, mem, LEN, 0);
	struct npulink_result res;
	long before = pinned();
	uint64_t seq;

	ASSERT_EQ(0, start_held(self, self->dst, buf, &seq));
	munmap(mem, LEN);
	again = mmap(mem, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		     -1, 0);
	ASSERT_EQ(mem, again);
	memset(mem, 0x77, LEN);
	raw_sleep_ms(50);
	EXPECT_EQ(before, pinned());	/* the operation keeps its pages */
	EXPECT_EQ(0, raw_knob(0, "hold", RAW_HOLD_OFF));
	EXPECT_EQ(0, raw_wait(self->fd, seq, &res));
	EXPECT_EQ(0, res.status);
	EXPECT_EQ(0x77, mem[0]);
	EXPECT_EQ(0x77, mem[LEN - 1]);
	EXPECT_TRUE(RAW_EVENTUALLY(pinned() == before - 8));
	EXPECT_EQ(-ESTALE, copy_out(self, buf));
}

TEST_F(bufs, destroyed_in_flight)
{
	char *mem = raw_anon(LEN);
	int buf = raw_register(self->fd, mem, LEN, 0);
	struct npulink_result res;
	long before = pinned();
	uint64_t seq;

	pattern(self->out, LEN, 8);
	ASSERT_EQ(0, start_held(self, self->dst, buf, &seq));
	EXPECT_EQ(0, raw_destroy(self->fd, buf));
	EXPECT_EQ(-ENOENT, raw_destroy(self->fd, buf));
	raw_sleep_ms(50);
	EXPECT_EQ(before, pinned());
	EXPECT_EQ(0, raw_knob(0, "hold", RAW_HOLD_OFF));
	EXPECT_EQ(0, raw_wait(self->fd, seq, &res));
	EXPECT_EQ(0, res.status);
	EXPECT_EQ(0, differs(mem, LEN, 8));
	EXPECT_TRUE(RAW_EVENTUALLY(pinned() == before - 8));
}

TEST_F(bufs, closed_in_flight)
{
	char *mem = raw_anon(LEN);
	int buf = raw_register(self->fd, mem, LEN, 0);
	uint64_t seq;

	ASSERT_EQ(0, start_held(self, self->dst, buf, &seq));
	close(self->fd);
	EXPECT_TRUE(RAW_EVENTUALLY(pinned() == 0));
	EXPECT_EQ(0, raw_knob_get(0, "held"));
	self->fd = -1;
}

TEST_HARNESS_MAIN
