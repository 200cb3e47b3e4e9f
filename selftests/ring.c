// SPDX-License-Identifier: GPL-2.0
/*
 * ring - the completion ring: records, overflow, wrapping around, what a careless or
 * malicious user writes into it; eventfd, poll and epoll; results in the ring and held
 * ones side by side.
 */
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include "team.h"
#include "harness.h"

#define LEN	64

FIXTURE(ring) {
	struct member m, peer;
	struct npulink_ring *ring;
	size_t len;
	int eventfd;
	uint32_t entries;
};

FIXTURE_VARIANT(ring) {
	uint32_t entries;
};

FIXTURE_VARIANT_ADD(ring, one) { .entries = 1 };
FIXTURE_VARIANT_ADD(ring, eight) { .entries = 8 };
FIXTURE_VARIANT_ADD(ring, many) { .entries = 1024 };

static int setup_ring(int fd, uint32_t entries, int efd, uint64_t *len)
{
	struct npulink_ring_setup cmd = {
		.size = sizeof(cmd), .entries = entries, .eventfd = efd,
	};
	int rc = raw_ioctl(fd, NPULINK_RING_SETUP, &cmd);

	*len = cmd.out_len;
	return rc;
}

FIXTURE_SETUP(ring)
{
	uint8_t secret[16];
	uint64_t len;

	self->entries = variant->entries;
	raw_secret(secret);
	ASSERT_EQ(0, member_join(&self->m, 0, secret, 0, 2, LEN));
	ASSERT_EQ(0, member_join(&self->peer, 1, secret, 1, 2, LEN));
	self->eventfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ASSERT_GE(self->eventfd, 0);
	ASSERT_EQ(0, setup_ring(self->m.fd, variant->entries, self->eventfd, &len));
	self->len = len;
	self->ring = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, self->m.fd,
			  NPULINK_MMAP_RING);
	ASSERT_NE(MAP_FAILED, self->ring);
}

FIXTURE_TEARDOWN(ring)
{
	munmap(self->ring, self->len);
	member_leave(&self->m);
	member_leave(&self->peer);
	close(self->eventfd);
}

static int ring_post(struct member *m, uint64_t cookie, uint64_t *seq)
{
	struct npulink_post post = member_post_cmd(m, 0);
	int rc;

	post.cookie = cookie;
	rc = raw_ioctl(m->fd, NPULINK_POST, &post);
	if (seq)
		*seq = post.out_seq;
	return rc;
}

static uint32_t ring_head(struct npulink_ring *ring)
{
	return __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE);
}

static void ring_consume(struct npulink_ring *ring, uint32_t n)
{
	__atomic_store_n(&ring->tail, ring->tail + n, __ATOMIC_RELEASE);
}

TEST_F(ring, records)
{
	uint64_t seq, i;

	EXPECT_EQ(self->entries, self->ring->entries);
	EXPECT_EQ(0, ring_head(self->ring));
	/* Often enough to go around. */
	for (i = 0; i < 40; i++) {
		struct npulink_result *rec = &self->ring->records[i % self->entries];

		ASSERT_EQ(0, ring_post(&self->m, 1000 + i, &seq));
		ASSERT_EQ(0, member_run(&self->peer, NULL));
		/* Who was waited for may be ahead by the interrupt that tells us. */
		ASSERT_TRUE(RAW_EVENTUALLY(ring_head(self->ring) == i + 1));
		EXPECT_EQ(seq, rec->seq);
		EXPECT_EQ(1000 + i, rec->cookie);
		EXPECT_EQ(0, rec->status);
		EXPECT_EQ(NPULINK_CAUSE_NONE, rec->cause);
		EXPECT_EQ(self->m.comm, (int)rec->comm_id);
		EXPECT_EQ(0, rec->rank);
		EXPECT_EQ(NPULINK_NO_PEER, rec->peer);
		EXPECT_EQ(i, rec->number);
		EXPECT_GT(rec->ns, 0);
		EXPECT_EQ(0, rec->reserved);
		ring_consume(self->ring, 1);
	}
}

TEST_F(ring, err_full)
{
	uint32_t i, n = self->entries > 512 ? 512 : self->entries;

	for (i = 0; i < n; i++)
		ASSERT_EQ(0, ring_post(&self->m, i, NULL));
	EXPECT_EQ(-EBUSY, ring_post(&self->m, i, NULL));
	for (i = 0; i < n; i++)
		ASSERT_EQ(0, member_run(&self->peer, NULL));
	ASSERT_TRUE(RAW_EVENTUALLY(ring_head(self->ring) == n));
	if (n < self->entries)
		return;
	/* As full of records as it was of operations; each that is read makes room. */
	EXPECT_EQ(-EBUSY, ring_post(&self->m, i, NULL));
	ring_consume(self->ring, 1);
	EXPECT_EQ(0, ring_post(&self->m, i, NULL));
	EXPECT_EQ(-EBUSY, ring_post(&self->m, i, NULL));
	/* The one that was read is only written over when its successor has ended. */
	for (i = 0; i < n; i++)
		EXPECT_EQ(i, self->ring->records[i].cookie);
}

/* Held results do not need the ring. */
TEST_F(ring, held_beside_the_ring)
{
	uint64_t seq, held;
	struct npulink_result res;

	ASSERT_EQ(0, ring_post(&self->m, 1, &seq));
	ASSERT_EQ(0, member_start(&self->m, 0, &held));
	ASSERT_EQ(0, member_run(&self->peer, NULL));
	ASSERT_EQ(0, member_run(&self->peer, NULL));
	EXPECT_EQ(0, raw_wait(self->m.fd, held, &res));
	EXPECT_EQ(1, res.number);
	ASSERT_TRUE(RAW_EVENTUALLY(ring_head(self->ring) == 1));
	EXPECT_EQ(seq, self->ring->records[0].seq);
	/* Delivered to the ring, so WAIT does not know it any more. */
	EXPECT_EQ(-ENOENT, raw_wait(self->m.fd, seq, &res));
	EXPECT_EQ(1, ring_head(self->ring));
}

static void *run_peer_later(void *arg)
{
	raw_sleep_ms(100);
	return (void *)(long)member_run(arg, NULL);
}

/* WAIT on one that is in flight gives its result; the record is written as well. */
TEST_F(ring, wait_for_one_that_goes_to_the_ring)
{
	struct npulink_result res;
	pthread_t thread;
	uint64_t seq;
	void *rc;

	ASSERT_EQ(0, ring_post(&self->m, 77, &seq));
	pthread_create(&thread, NULL, run_peer_later, &self->peer);
	EXPECT_EQ(0, raw_wait(self->m.fd, seq, &res));
	EXPECT_EQ(77, res.cookie);
	pthread_join(thread, &rc);
	EXPECT_EQ(NULL, rc);
	EXPECT_TRUE(RAW_EVENTUALLY(ring_head(self->ring) == 1));
	EXPECT_EQ(0, memcmp(&res, &self->ring->records[0], sizeof(res)));
}

TEST_F(ring, failures_are_records_too)
{
	uint32_t i, n = self->entries > 16 ? 16 : self->entries;

	for (i = 0; i < n; i++)
		ASSERT_EQ(0, ring_post(&self->m, i, NULL));
	ASSERT_EQ(0, raw_abort(self->peer.fd, self->peer.comm, 3));
	ASSERT_TRUE(RAW_EVENTUALLY(ring_head(self->ring) == n));
	for (i = 0; i < n; i++) {
		EXPECT_EQ(-ECANCELED, self->ring->records[i].status);
		EXPECT_EQ(NPULINK_CAUSE_ABORT, self->ring->records[i].cause);
		EXPECT_EQ(1, self->ring->records[i].rank);
		EXPECT_EQ(i, self->ring->records[i].cookie);
	}
	EXPECT_EQ(-ECANCELED, ring_post(&self->m, i, NULL));
}

TEST_F(ring, eventfd_and_poll)
{
	struct pollfd p[2] = {
		{ .fd = self->m.fd, .events = POLLIN }, { .fd = self->eventfd, .events = POLLIN },
	};
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };
	int ep = epoll_create1(EPOLL_CLOEXEC), i;
	pthread_t thread;
	eventfd_t count;

	ASSERT_EQ(0, epoll_ctl(ep, EPOLL_CTL_ADD, self->m.fd, &ev));
	EXPECT_EQ(0, poll(p, 2, 0));
	for (i = 1; i <= 3; i++) {
		ASSERT_EQ(0, ring_post(&self->m, i, NULL));
		pthread_create(&thread, NULL, run_peer_later, &self->peer);
		EXPECT_EQ(1, epoll_wait(ep, &ev, 1, 20000));
		EXPECT_TRUE(RAW_EVENTUALLY(poll(p, 2, 0) == 2));
		EXPECT_EQ(POLLIN, p[0].revents);
		pthread_join(thread, NULL);
		EXPECT_EQ(0, eventfd_read(self->eventfd, &count));
		EXPECT_EQ(1, count);
		ring_consume(self->ring, 1);
		EXPECT_EQ(0, poll(p, 2, 0));
	}
	close(ep);
}

/* Another process that has the file may look, but not take. */
TEST_F(ring, poll_of_another_process)
{
	struct pollfd p = { .fd = self->m.fd, .events = POLLIN };
	pid_t pid;

	ASSERT_EQ(0, ring_post(&self->m, 1, NULL));
	pid = fork();
	if (!pid) {
		RAW_CHECK(poll(&p, 1, 20000) == 1 && p.revents == POLLIN);
		RAW_CHECK(mmap(NULL, self->len, PROT_READ, MAP_SHARED, self->m.fd,
			       NPULINK_MMAP_RING) == MAP_FAILED && errno == EPERM);
		_exit(0);
	}
	raw_sleep_ms(50);
	ASSERT_EQ(0, member_run(&self->peer, NULL));
	EXPECT_EQ(0, raw_reap(pid));
}

/* Whatever is written there harms only who wrote it. */
TEST_F(ring, scribbled_over)
{
	static const uint32_t tails[] = { 1, 7, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff };
	unsigned int i;
	int rc;

	for (i = 0; i < ARRAY_SIZE(tails); i++) {
		memset(self->ring, i * 51, self->len);
		self->ring->tail = tails[i];
		rc = ring_post(&self->m, i, NULL);
		EXPECT_TRUE(rc == 0 || rc == -EBUSY);
		if (!rc)
			ASSERT_EQ(0, member_run(&self->peer, NULL));
	}
	/* The kernel's own count is what it goes on with. */
	raw_sleep_ms(50);
	self->ring->tail = 0;
	for (i = 0; i < 20; i++) {
		self->ring->tail = ring_head(self->ring);
		rc = ring_post(&self->m, i, NULL);
		EXPECT_TRUE(rc == 0 || rc == -EBUSY);
		if (!rc)
			ASSERT_EQ(0, member_run(&self->peer, NULL));
		raw_sleep_ms(1);
	}
}

TEST_F(ring, err_setup)
{
	uint8_t secret[16];
	uint64_t len;
	int fd = raw_open(0), pipefd[2];

	raw_secret(secret);
	EXPECT_EQ(-EEXIST, setup_ring(self->m.fd, 8, -1, &len));
	EXPECT_EQ(-EINVAL, setup_ring(fd, 0, -1, &len));
	EXPECT_EQ(-EINVAL, setup_ring(fd, 3, -1, &len));
	EXPECT_EQ(-EINVAL, setup_ring(fd, 2 * NPULINK_MAX_RING, -1, &len));
	EXPECT_EQ(-EINVAL, setup_ring(fd, 0x80000000, -1, &len));
	EXPECT_EQ(-EINVAL, setup_ring(fd, 8, -2, &len));
	EXPECT_EQ(-EBADF, setup_ring(fd, 8, 4711, &len));
	ASSERT_EQ(0, pipe(pipefd));
	EXPECT_EQ(-EBADF, setup_ring(fd, 8, pipefd[0], &len));
	EXPECT_EQ(-EBADF, setup_ring(fd, 8, fd, &len));
	/* None of it left a ring behind. */
	EXPECT_EQ(MAP_FAILED, mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, NPULINK_MMAP_RING));
	EXPECT_EQ(ENOENT, errno);
	EXPECT_EQ(0, setup_ring(fd, NPULINK_MAX_RING, -1, &len));
	EXPECT_GE(len, sizeof(struct npulink_ring) +
		  NPULINK_MAX_RING * sizeof(struct npulink_result));
	EXPECT_EQ(MAP_FAILED, mmap(NULL, len + 4096, PROT_READ, MAP_SHARED, fd,
				   NPULINK_MMAP_RING));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, NPULINK_MMAP_RING));
	EXPECT_EQ(EINVAL, errno);
	close(fd);
	close(pipefd[0]);
	close(pipefd[1]);
}

TEST_F(ring, mapping_is_not_inherited)
{
	unsigned char vec[1];
	pid_t pid = fork();

	if (!pid) {
		RAW_CHECK(mincore(self->ring, 4096, vec) < 0 && errno == ENOMEM);
		_exit(0);
	}
	EXPECT_EQ(0, raw_reap(pid));
}

TEST_HARNESS_MAIN
