// SPDX-License-Identifier: GPL-2.0
/*
 * errno_post - POST, POST_BATCH and WAIT: every errno that npulink.h lists for them, and
 * that a refused post leaves nothing behind.
 */
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include "team.h"
#include "timens.h"
#include "harness.h"

#define LEN	4096

/* Rank 0 of 2, whose peer never does anything unless a test makes it; a plan that waits
 * for the peer, and one that only copies.
 */
FIXTURE(post) {
	struct member m, peer;
	int copy;
	int readonly;
	char *ro;
};

static int copy_plan(int fd, uint32_t comm)
{
	struct npulink_slot slots[3] = {
		{ .min_len = LEN, .access = NPULINK_SLOT_READ },
		{ .min_len = LEN, .access = NPULINK_SLOT_WRITE },
		{ .min_len = 1ULL << 30 },	/* no step uses it */
	};
	struct npulink_step step = raw_step(NPULINK_STEP_COPY, LEN);
	struct npulink_plan_create cmd = raw_plan_cmd(comm, slots, 2, &step, 1);
	int rc;

	step.dst_slot = 1;
	cmd.call.collective = NPULINK_COLL_ALLTOALLV;
	rc = raw_ioctl(fd, NPULINK_PLAN_CREATE, &cmd);
	return rc ? rc : (int)cmd.out_id;
}

FIXTURE_SETUP(post)
{
	uint8_t secret[16];

	raw_secret(secret);
	ASSERT_EQ(0, member_join(&self->m, 0, secret, 0, 2, LEN));
	ASSERT_EQ(0, member_join(&self->peer, 1, secret, 1, 2, LEN));
	self->copy = copy_plan(self->m.fd, self->m.comm);
	ASSERT_GT(self->copy, 0);
	self->ro = raw_anon(2 * LEN);
	self->readonly = raw_register(self->m.fd, self->ro, 2 * LEN, NPULINK_BUF_READONLY);
	ASSERT_GT(self->readonly, 0);
}

FIXTURE_TEARDOWN(post)
{
	close(self->m.fd);
	close(self->peer.fd);
}

static struct npulink_post copy_post(struct _test_data_post *self, uint32_t flags)
{
	struct npulink_post post = raw_post_cmd(self->copy, flags);

	raw_bind(&post, self->m.buf, 0, LEN);
	raw_bind(&post, self->m.buf, LEN, LEN);
	return post;
}

/* The refusal, and then that nothing stayed of it: all slots can still be used. */
#define REFUSED(_errno, _post) do { \
	struct npulink_post good_ = copy_post(self, NPULINK_POST_WAIT); \
	EXPECT_EQ(-(_errno), raw_ioctl(self->m.fd, NPULINK_POST, _post)); \
	EXPECT_EQ(0, raw_ioctl(self->m.fd, NPULINK_POST, &good_)); \
	EXPECT_EQ(0, good_.out_result.status); \
} while (0)

TEST_F(post, err_fences_are_not_there_yet)
{
	struct npulink_post post = copy_post(self, NPULINK_POST_WAIT);

	post.in_fence = 0;
	REFUSED(EOPNOTSUPP, &post);
	post.in_fence = -1;
	post.out_fence = 3;
	REFUSED(EOPNOTSUPP, &post);
}

TEST_F(post, err_no_ring)
{
	struct npulink_post post = copy_post(self, 0);

	REFUSED(ENOTCONN, &post);
}

TEST_F(post, err_number_of_bindings)
{
	struct npulink_post post = copy_post(self, NPULINK_POST_WAIT);
	uint32_t n;

	for (n = 0; n < 40; n++) {
		post.nbinds = n;
		if (n == 2)
			continue;
		REFUSED(EINVAL, &post);
	}
	post.nbinds = 0xffffffff;
	REFUSED(EINVAL, &post);
}

TEST_F(post, err_bindings_at_both_places)
{
	struct npulink_post post = copy_post(self, NPULINK_POST_WAIT);

	post.binds = (uintptr_t)post.inline_binds;
	REFUSED(EINVAL, &post);
}

TEST_F(post, err_binding_reserved)
{
	struct npulink_post post = copy_post(self, NPULINK_POST_WAIT);

	post.inline_binds[1].reserved = 1;
	REFUSED(EOPNOTSUPP, &post);
}

TEST_F(post, err_bindings_not_readable)
{
	struct npulink_slot slots[5] = {};
	int plan = raw_plan(self->m.fd, self->m.comm, slots, 5, NULL, 0);
	struct npulink_post post = raw_post_cmd(plan, NPULINK_POST_WAIT);
	struct npulink_bind binds[5] = {};

	ASSERT_GT(plan, 0);
	post.nbinds = 5;
	REFUSED(EFAULT, &post);
	post.binds = -16ULL;
	REFUSED(EFAULT, &post);
	/* Slots that no step uses need no buffer. */
	binds[4].buf_id = 4711;
	post.binds = (uintptr_t)binds;
	EXPECT_EQ(0, raw_ioctl(self->m.fd, NPULINK_POST, &post));
}

TEST_F(post, err_no_such_buffer)
{
	struct npulink_post post = copy_post(self, NPULINK_POST_WAIT);
	const uint32_t wrong[] = { 4711, self->m.comm, self->m.plan, 0xffffffff };
	unsigned int i;

	for (i = 0; i < 4; i++) {
		post.inline_binds[0].buf_id = wrong[i];
		REFUSED(ENOENT, &post);
	}
	/* 0 is the arena, of which there is none. */
	post.inline_binds[0].buf_id = 0;
	REFUSED(ENOENT, &post);
}

TEST_F(post, err_buffer_was_destroyed)
{
	struct npulink_post post = copy_post(self, NPULINK_POST_WAIT);
	int buf = raw_register(self->m.fd, self->ro, LEN, NPULINK_BUF_READONLY);

	post.inline_binds[0].buf_id = buf;
	ASSERT_EQ(0, raw_ioctl(self->m.fd, NPULINK_POST, &post));
	ASSERT_EQ(0, raw_destroy(self->m.fd, buf));
	REFUSED(ENOENT, &post);
}

TEST_F(post, err_binding_out_of_range)
{
	struct npulink_post post = copy_post(self, NPULINK_POST_WAIT);
	struct npulink_bind *b = &post.inline_binds[0];
	static const uint64_t bad[][2] = {	/* off, len; the buffer has 2 LEN + 1 */
		{ 0, LEN - 1 }, { 0, 0 }, { 0, 2 * LEN + 2 }, { LEN + 2, LEN },
		{ 2 * LEN + 1, 0 }, { 2 * LEN + 1, LEN }, { 2 * LEN + 2, LEN },
		{ -1ULL, LEN }, { -1ULL * LEN, LEN }, { -1ULL * LEN, 2 * LEN }, { 0, -1ULL },
		{ 1, -1ULL }, { 1ULL << 63, 1ULL << 63 },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		b->off = bad[i][0];
		b->len = bad[i][1];
		REFUSED(ERANGE, &post);
	}
	/* The last place where it fits. */
	post.inline_binds[1].off = 0;
	b->off = LEN + 1;
	b->len = LEN;
	EXPECT_EQ(0, raw_ioctl(self->m.fd, NPULINK_POST, &post));
	/* Longer than needed is fine. */
	b->off = LEN;
	b->len = LEN + 1;
	EXPECT_EQ(0, raw_ioctl(self->m.fd, NPULINK_POST, &post));
}

TEST_F(post, err_write_to_readonly)
{
	struct npulink_post post = copy_post(self, NPULINK_POST_WAIT);

	post.inline_binds[1].buf_id = self->readonly;
	REFUSED(EACCES, &post);
	post.inline_binds[1].buf_id = self->m.buf;
	post.inline_binds[0].buf_id = self->readonly;
	EXPECT_EQ(0, raw_ioctl(self->m.fd, NPULINK_POST, &post));
}

TEST_F(post, err_bindings_overlap)
{
	struct npulink_post post = copy_post(self, NPULINK_POST_WAIT);
	uint64_t off;

	for (off = 0; off < LEN; off += 1365) {
		post.inline_binds[1].off = off;
		REFUSED(ENOTUNIQ, &post);
	}
	post.inline_binds[0].off = LEN;
	post.inline_binds[1].off = 1;
	REFUSED(ENOTUNIQ, &post);
	post.inline_binds[1].off = 0;
	EXPECT_EQ(0, raw_ioctl(self->m.fd, NPULINK_POST, &post));
}

TEST_F(post, readers_may_share_bytes)
{
	struct npulink_slot slots[3] = {
		{ .min_len = LEN, .access = NPULINK_SLOT_READ },
		{ .min_len = LEN, .access = NPULINK_SLOT_READ },
		{ .min_len = LEN, .access = NPULINK_SLOT_WRITE },
	};
	struct npulink_step step = raw_step(NPULINK_STEP_REDUCE, LEN);
	struct npulink_post post;
	int plan, i;

	step.src2_slot = 1;
	step.dst_slot = 2;
	plan = raw_plan(self->m.fd, self->m.comm, slots, 3, &step, 1);
	ASSERT_GT(plan, 0);
	for (i = 0; i < LEN / 4; i++)
		self->m.send[i] = i;
	post = raw_post_cmd(plan, NPULINK_POST_WAIT);
	raw_bind(&post, self->m.buf, 0, LEN);
	raw_bind(&post, self->m.buf, 0, LEN);
	raw_bind(&post, self->m.buf, LEN, LEN);
	ASSERT_EQ(0, raw_ioctl(self->m.fd, NPULINK_POST, &post));
	for (i = 0; i < LEN / 4; i++)
		ASSERT_EQ(2 * i, self->m.recv[i]);
}

TEST_F(post, err_offset_does_not_suit_the_type)
{
	struct npulink_post post = member_post_cmd(&self->m, NPULINK_POST_WAIT);
	unsigned int off;

	/* The ring's plan reduces int32. */
	for (off = 1; off < 4; off++) {
		post.inline_binds[0].buf_id = self->readonly;
		post.inline_binds[0].off = off;
		REFUSED(EINVAL, &post);
	}
}

TEST_F(post, err_memory_was_unmapped)
{
	struct npulink_post post = copy_post(self, NPULINK_POST_WAIT);
	char *mem = raw_anon(LEN);
	int buf = raw_register(self->m.fd, mem, LEN, 0);

	ASSERT_GT(buf, 0);
	post.inline_binds[0].buf_id = buf;
	ASSERT_EQ(0, raw_ioctl(self->m.fd, NPULINK_POST, &post));
	munmap(mem, LEN);
	REFUSED(ESTALE, &post);
	EXPECT_EQ(0, raw_destroy(self->m.fd, buf));
	REFUSED(ENOENT, &post);
}

TEST_F(post, err_ring_is_full)
{
	struct npulink_ring_setup setup = { .size = sizeof(setup), .entries = 4, .eventfd = -1 };
	struct npulink_post post = member_post_cmd(&self->m, 0);
	struct npulink_post copy = copy_post(self, 0);
	struct npulink_ring *ring;
	uint64_t seq;
	int i;

	ASSERT_EQ(0, raw_ioctl(self->m.fd, NPULINK_RING_SETUP, &setup));
	ring = mmap(NULL, setup.out_len, PROT_READ | PROT_WRITE, MAP_SHARED, self->m.fd,
		    NPULINK_MMAP_RING);
	ASSERT_NE(MAP_FAILED, ring);
	/* Operations in flight need a record, too. */
	for (i = 0; i < 4; i++)
		ASSERT_EQ(0, raw_ioctl(self->m.fd, NPULINK_POST, &post));
	EXPECT_EQ(-EBUSY, raw_ioctl(self->m.fd, NPULINK_POST, &post));
	REFUSED(EBUSY, &copy);
	EXPECT_EQ(0, raw_abort(self->m.fd, self->m.comm, 0));
	ASSERT_TRUE(RAW_EVENTUALLY(__atomic_load_n(&ring->head, __ATOMIC_ACQUIRE) == 4));
	ring->tail = 4;
	/* The refusals used up neither records nor names. */
	EXPECT_EQ(-ECANCELED, raw_ioctl(self->m.fd, NPULINK_POST, &post));
	(void)seq;
}

TEST_F(post, err_too_many_in_flight)
{
	struct npulink_device_info info;
	struct npulink_result res;
	uint64_t *seq, other;
	uint32_t i;

	ASSERT_EQ(0, raw_info(self->m.fd, &info));
	seq = calloc(info.out_max_inflight, sizeof(*seq));
	for (i = 0; i < info.out_max_inflight; i++)
		ASSERT_EQ(0, member_start(&self->m, 0, &seq[i]));
	EXPECT_EQ(-EBUSY, member_start(&self->m, 0, &other));
	/* The peer has not so many files: it takes part in all of them. */
	for (i = 0; i < info.out_max_inflight; i++)
		ASSERT_EQ(0, member_run(&self->peer, &res));
	EXPECT_EQ(-EBUSY, member_start(&self->m, 0, &other));
	for (i = 0; i < info.out_max_inflight; i++) {
		ASSERT_EQ(0, raw_wait(self->m.fd, seq[i], &res));
		ASSERT_EQ(0, res.status);
		ASSERT_EQ(i, res.number);
	}
	EXPECT_EQ(0, member_start(&self->m, 0, &other));
	EXPECT_EQ(0, member_run(&self->peer, &res));
}

static void on_signal(int sig)
{
}

/* A thread that interrupts another one until told to stop. */
struct storm {
	pthread_t victim, self;
	bool stop;
};

static void *storm_run(void *arg)
{
	struct storm *s = arg;

	while (!__atomic_load_n(&s->stop, __ATOMIC_RELAXED)) {
		raw_sleep_ms(20);
		pthread_kill(s->victim, SIGUSR1);
	}
	return NULL;
}

static void storm_start(struct storm *s)
{
	struct sigaction sa = { .sa_handler = on_signal };

	sigaction(SIGUSR1, &sa, NULL);
	s->stop = false;
	s->victim = pthread_self();
	pthread_create(&s->self, NULL, storm_run, s);
}

static void storm_end(struct storm *s)
{
	__atomic_store_n(&s->stop, true, __ATOMIC_RELAXED);
	pthread_join(s->self, NULL);
}

TEST_F(post, err_interrupted_goes_on_as_held)
{
	struct npulink_post post = member_post_cmd(&self->m, NPULINK_POST_WAIT);
	struct npulink_wait wait = { .size = sizeof(wait), .wait_until_ns = RAW_FOREVER };
	struct npulink_result res;
	struct storm storm;
	int rc;

	storm_start(&storm);
	/* Without a name it was interrupted before it was accepted, and has done nothing. */
	do {
		rc = raw_ioctl(self->m.fd, NPULINK_POST, &post);
	} while (rc == -EINTR && !post.out_seq);
	EXPECT_EQ(-EINTR, rc);
	EXPECT_NE(0, post.out_seq);
	wait.seq = post.out_seq;
	EXPECT_EQ(-EINTR, raw_ioctl(self->m.fd, NPULINK_WAIT, &wait));
	storm_end(&storm);
	wait.wait_until_ns = 0;
	EXPECT_EQ(-ETIME, raw_ioctl(self->m.fd, NPULINK_WAIT, &wait));
	EXPECT_EQ(0, member_run(&self->peer, NULL));
	EXPECT_EQ(0, raw_wait(self->m.fd, post.out_seq, &res));
	EXPECT_EQ(0, res.status);
	/* It ran once. */
	EXPECT_EQ(0, res.number);
	EXPECT_EQ(-ENOENT, raw_wait(self->m.fd, post.out_seq, &res));
}

TEST_F(post, err_time_is_up)
{
	struct npulink_post post = member_post_cmd(&self->m, NPULINK_POST_WAIT);
	struct npulink_wait wait = { .size = sizeof(wait) };
	uint64_t before = raw_now();
	struct npulink_result res;

	post.wait_until_ns = before + 50000000;
	EXPECT_EQ(-ETIME, raw_ioctl(self->m.fd, NPULINK_POST, &post));
	EXPECT_GE(raw_now(), before + 50000000);
	EXPECT_NE(0, post.out_seq);
	wait.seq = post.out_seq;
	wait.wait_until_ns = 1;		/* long ago */
	EXPECT_EQ(-ETIME, raw_ioctl(self->m.fd, NPULINK_WAIT, &wait));
	wait.wait_until_ns = raw_now() + 50000000;
	EXPECT_EQ(-ETIME, raw_ioctl(self->m.fd, NPULINK_WAIT, &wait));
	EXPECT_GE(raw_now(), wait.wait_until_ns);
	EXPECT_EQ(0, member_run(&self->peer, NULL));
	EXPECT_EQ(0, raw_wait(self->m.fd, post.out_seq, &res));
	EXPECT_EQ(0, res.status);
}

/* All that wait until some time, and do so not until another one. */
static void waits_end(struct __test_metadata *_metadata)
{
	struct npulink_wait wait = { .size = sizeof(wait) };
	struct npulink_post post, posts[1];
	struct npulink_post_batch batch = {
		.size = sizeof(batch), .flags = NPULINK_POST_WAIT, .nposts = 1,
		.posts = (uintptr_t)posts,
	};
	struct member m, peer;
	uint8_t secret[16];

	/* What waits for much too long dies of it. */
	alarm(20);
	raw_secret(secret);
	RAW_CHECK(!member_join(&m, 0, secret, 0, 2, LEN));
	RAW_CHECK(!member_join(&peer, 1, secret, 1, 2, LEN));
	post = member_post_cmd(&m, NPULINK_POST_WAIT);
	posts[0] = member_post_cmd(&m, 0);
	post.wait_until_ns = raw_now() + 50000000;
	EXPECT_EQ(-ETIME, raw_ioctl(m.fd, NPULINK_POST, &post));
	EXPECT_GE(raw_now(), post.wait_until_ns);
	batch.wait_until_ns = raw_now() + 50000000;
	EXPECT_EQ(-ETIME, raw_ioctl(m.fd, NPULINK_POST_BATCH, &batch));
	EXPECT_GE(raw_now(), batch.wait_until_ns);
	wait.seq = post.out_seq;
	wait.wait_until_ns = raw_now() + 50000000;
	EXPECT_EQ(-ETIME, raw_ioctl(m.fd, NPULINK_WAIT, &wait));
	EXPECT_GE(raw_now(), wait.wait_until_ns);
	wait.wait_until_ns = 1;
	EXPECT_EQ(-ETIME, raw_ioctl(m.fd, NPULINK_WAIT, &wait));
	/* Neither of these is a time. */
	wait.wait_until_ns = 0;
	EXPECT_EQ(-ETIME, raw_ioctl(m.fd, NPULINK_WAIT, &wait));
	EXPECT_EQ(0, member_run(&peer, NULL));
	wait.wait_until_ns = RAW_FOREVER;
	EXPECT_EQ(0, raw_ioctl(m.fd, NPULINK_WAIT, &wait));
}

TEST_F(post, time_is_that_of_the_callers_namespace)
{
	static const int ahead[] = { 1000, -2 };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(ahead); i++) {
		pid_t pid = fork_in_time(ahead[i]);
		int rc;

		if (!pid) {
			waits_end(_metadata);
			_exit(!_metadata->passed);
		}
		rc = raw_reap(pid);
		if (rc == NO_TIME_NAMESPACES)
			SKIP(return, "no time namespaces");
		EXPECT_EQ(0, rc);
	}
}

TEST_F(post, err_look_only)
{
	struct npulink_post post = member_post_cmd(&self->m, NPULINK_POST_WAIT);
	struct npulink_wait wait = { .size = sizeof(wait) };

	post.wait_until_ns = 0;
	EXPECT_EQ(-ETIME, raw_ioctl(self->m.fd, NPULINK_POST, &post));
	EXPECT_EQ(0, member_run(&self->peer, NULL));
	wait.seq = post.out_seq;
	EXPECT_EQ(0, raw_ioctl(self->m.fd, NPULINK_WAIT, &wait));
	EXPECT_EQ(post.out_seq, wait.out_result.seq);
}

TEST_F(post, err_wait_for_nothing)
{
	struct npulink_post post = copy_post(self, NPULINK_POST_HELD);
	struct npulink_result res;
	const uint64_t wrong[] = { 0, 1, 511, 512, 513, 1ULL << 32, -1ULL };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(wrong); i++)
		EXPECT_EQ(-ENOENT, raw_wait(self->m.fd, wrong[i], &res));
	ASSERT_EQ(0, raw_ioctl(self->m.fd, NPULINK_POST, &post));
	EXPECT_EQ(-ENOENT, raw_wait(self->m.fd, post.out_seq + 1, &res));
	EXPECT_EQ(-ENOENT, raw_wait(self->m.fd, post.out_seq + 512, &res));
	EXPECT_EQ(-ENOENT, raw_wait(self->peer.fd, post.out_seq, &res));
	EXPECT_EQ(0, raw_wait(self->m.fd, post.out_seq, &res));
}

/* A result that cannot be written stays where it is. */
TEST_F(post, err_result_not_writable)
{
	struct npulink_post post = copy_post(self, NPULINK_POST_HELD);
	size_t page = getpagesize();
	char *mem = raw_anon(2 * page);
	struct npulink_wait *wait;
	struct npulink_post *bad;
	struct npulink_result res;

	ASSERT_EQ(0, raw_ioctl(self->m.fd, NPULINK_POST, &post));
	mprotect(mem + page, page, PROT_READ);
	wait = (void *)(mem + page - offsetof(struct npulink_wait, out_result));
	*(uint32_t *)wait = sizeof(*wait);
	wait->seq = post.out_seq;
	EXPECT_EQ(-EFAULT, raw_ioctl(self->m.fd, NPULINK_WAIT, wait));
	EXPECT_EQ(0, raw_wait(self->m.fd, post.out_seq, &res));

	/* With WAIT the operation has run, and its name was written. */
	bad = (void *)(mem + page - offsetof(struct npulink_post, out_result));
	mprotect(mem + page, page, PROT_READ | PROT_WRITE);
	*bad = copy_post(self, NPULINK_POST_WAIT);
	mprotect(mem + page, page, PROT_READ);
	EXPECT_EQ(-EFAULT, raw_ioctl(self->m.fd, NPULINK_POST, bad));
	EXPECT_NE(0, bad->out_seq);
	EXPECT_EQ(0, raw_wait(self->m.fd, bad->out_seq, &res));
	EXPECT_EQ(0, res.status);

	/* If even that cannot be written, nothing is started. */
	bad = (void *)(mem + page - offsetof(struct npulink_post, out_seq));
	mprotect(mem + page, page, PROT_READ | PROT_WRITE);
	*bad = member_post_cmd(&self->m, NPULINK_POST_WAIT);
	mprotect(mem + page, page, PROT_READ);
	EXPECT_EQ(-EFAULT, raw_ioctl(self->m.fd, NPULINK_POST, bad));
	EXPECT_EQ(0, raw_destroy(self->m.fd, self->m.plan));
}

TEST_F(post, err_batch)
{
	struct npulink_post posts[3];
	struct npulink_post_batch cmd = {
		.size = sizeof(cmd), .posts = (uintptr_t)posts, .nposts = 3,
		.wait_until_ns = RAW_FOREVER,
	};
	struct npulink_result res;
	int i;

	cmd.nposts = 0;
	EXPECT_EQ(-EINVAL, raw_ioctl(self->m.fd, NPULINK_POST_BATCH, &cmd));
	cmd.nposts = NPULINK_MAX_BATCH + 1;
	EXPECT_EQ(-EINVAL, raw_ioctl(self->m.fd, NPULINK_POST_BATCH, &cmd));
	cmd.nposts = 3;
	cmd.flags = NPULINK_POST_HELD;
	EXPECT_EQ(-EOPNOTSUPP, raw_ioctl(self->m.fd, NPULINK_POST_BATCH, &cmd));
	cmd.flags = 0;
	cmd.posts = 16;
	cmd.out_posted = 7;
	EXPECT_EQ(-EFAULT, raw_ioctl(self->m.fd, NPULINK_POST_BATCH, &cmd));
	EXPECT_EQ(0, cmd.out_posted);
	cmd.posts = (uintptr_t)posts;

	/* The second is refused: one was started. */
	for (i = 0; i < 3; i++)
		posts[i] = copy_post(self, NPULINK_POST_HELD);
	posts[1].plan_id = 4711;
	EXPECT_EQ(-ENOENT, raw_ioctl(self->m.fd, NPULINK_POST_BATCH, &cmd));
	EXPECT_EQ(1, cmd.out_posted);
	EXPECT_EQ(0, raw_wait(self->m.fd, posts[0].out_seq, &res));
	EXPECT_EQ(0, posts[2].out_seq);

	posts[1] = copy_post(self, NPULINK_POST_WAIT);
	EXPECT_EQ(-EINVAL, raw_ioctl(self->m.fd, NPULINK_POST_BATCH, &cmd));
	EXPECT_EQ(1, cmd.out_posted);
	EXPECT_EQ(0, raw_wait(self->m.fd, posts[0].out_seq, &res));
	posts[1] = copy_post(self, NPULINK_POST_HELD);
	posts[1].size--;
	EXPECT_EQ(-EINVAL, raw_ioctl(self->m.fd, NPULINK_POST_BATCH, &cmd));
	EXPECT_EQ(1, cmd.out_posted);
	EXPECT_EQ(0, raw_wait(self->m.fd, posts[0].out_seq, &res));
}

TEST_F(post, err_batch_interrupted)
{
	struct npulink_post posts[3];
	struct npulink_post_batch cmd = {
		.size = sizeof(cmd), .posts = (uintptr_t)posts, .nposts = 3,
		.wait_until_ns = RAW_FOREVER, .flags = NPULINK_POST_WAIT,
	};
	struct npulink_result res;
	struct storm storm;

	posts[0] = copy_post(self, 0);
	posts[1] = member_post_cmd(&self->m, 0);
	posts[2] = copy_post(self, 0);
	storm_start(&storm);
	EXPECT_EQ(-EINTR, raw_ioctl(self->m.fd, NPULINK_POST_BATCH, &cmd));
	storm_end(&storm);
	EXPECT_EQ(3, cmd.out_posted);
	EXPECT_EQ(posts[0].out_seq, posts[0].out_result.seq);
	EXPECT_EQ(0, posts[1].out_result.seq);
	EXPECT_EQ(0, posts[2].out_result.seq);
	/* The fetched one is gone, the others are held. */
	EXPECT_EQ(-ENOENT, raw_wait(self->m.fd, posts[0].out_seq, &res));
	EXPECT_EQ(0, raw_wait(self->m.fd, posts[2].out_seq, &res));
	EXPECT_EQ(0, raw_abort(self->m.fd, self->m.comm, 1));
	EXPECT_EQ(0, raw_wait(self->m.fd, posts[1].out_seq, &res));
	EXPECT_EQ(-ECANCELED, res.status);
}

TEST_F(post, err_communicator_has_failed)
{
	struct npulink_post post = copy_post(self, NPULINK_POST_WAIT);
	struct npulink_plan_create cmd = raw_plan_cmd(self->m.comm, NULL, 0, NULL, 0);

	ASSERT_EQ(0, raw_abort(self->peer.fd, self->peer.comm, 5));
	EXPECT_EQ(-ECANCELED, raw_ioctl(self->m.fd, NPULINK_POST, &post));
	/* Until it is destroyed. */
	EXPECT_EQ(-ECANCELED, raw_ioctl(self->m.fd, NPULINK_POST, &post));
	(void)cmd;
}

TEST_HARNESS_MAIN
