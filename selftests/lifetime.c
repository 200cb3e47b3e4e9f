// SPDX-License-Identifier: GPL-2.0
/*
 * lifetime - files, processes and devices that go while something still needs them:
 * close, dup, passing a file on, exec, fork, waiting threads, removal of a device with
 * operations in flight. At the end of each test all pages are back.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include "nl.h"
#include "team.h"
#include "harness.h"

#define LEN	(256 << 10)

FIXTURE(life) {
	struct member m, peer;
	long pinned;
};

FIXTURE_SETUP(life)
{
	uint8_t secret[16];

	self->pinned = raw_pages_pinned();
	raw_secret(secret);
	ASSERT_EQ(0, member_join(&self->m, 0, secret, 0, 2, LEN));
	ASSERT_EQ(0, member_join(&self->peer, 1, secret, 1, 2, LEN));
}

FIXTURE_TEARDOWN(life)
{
	raw_knobs_reset(8);
	close(self->m.fd);
	close(self->peer.fd);
	EXPECT_TRUE(RAW_EVENTUALLY(raw_pages_pinned() <= self->pinned));
}

TEST_F(life, close_while_running)
{
	struct npulink_result res;
	uint64_t seq, mine;

	/* Both are in it, and a device holds its bytes. */
	ASSERT_EQ(0, raw_knob(0, "hold", 0));
	ASSERT_EQ(0, member_start(&self->m, 0, &mine));
	ASSERT_EQ(0, member_start(&self->peer, 0, &seq));
	ASSERT_TRUE(RAW_EVENTUALLY(raw_knob_get(0, "held") > 0));
	ASSERT_EQ(0, close(self->m.fd));
	EXPECT_EQ(0, raw_knob_get(0, "held"));
	ASSERT_EQ(0, raw_wait(self->peer.fd, seq, &res));
	EXPECT_EQ(-EOWNERDEAD, res.status);
	EXPECT_EQ(0, res.peer);
	self->m.fd = -1;
}

/* A duplicate is the same file: it lives until the last one is closed. */
TEST_F(life, duplicate)
{
	int fd = dup(self->m.fd);
	struct npulink_comm_status st;

	ASSERT_GE(fd, 0);
	close(self->m.fd);
	self->m.fd = fd;
	ASSERT_EQ(0, raw_status(self->peer.fd, self->peer.comm, &st));
	EXPECT_EQ(0, st.out_cause);
	uint64_t seq;

	ASSERT_EQ(0, member_start(&self->m, 0, &seq));
	EXPECT_EQ(0, member_run(&self->peer, NULL));
}

static int send_fd(int sock, int fd)
{
	char c = 0, control[CMSG_SPACE(sizeof(int))] = {};
	struct iovec iov = { &c, 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cmsg), &fd, sizeof(int));
	return sendmsg(sock, &msg, 0) == 1 ? 0 : -1;
}

static int recv_fd(int sock)
{
	char c, control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { &c, 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
		.msg_controllen = sizeof(control),
	};
	int fd;

	if (recvmsg(sock, &msg, 0) != 1)
		return -1;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(int));
	return fd;
}

/* The receiver may wait for what the owner has posted, and look at the result. */
TEST_F(life, passed_to_another_process)
{
	struct npulink_result res;
	int sock[2], fd = self->m.fd;
	uint64_t seq;
	pid_t pid;

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, sock));
	pid = fork();
	if (!pid) {
		struct npulink_device_info info;
		struct npulink_post post;

		/* What it has by fork is not what it gets. */
		close(self->m.fd);
		fd = recv_fd(sock[1]);
		RAW_CHECK(fd >= 0);
		RAW_CHECK(read(sock[1], &seq, sizeof(seq)) == sizeof(seq));
		RAW_CHECK(raw_wait(fd, seq, &res) == 0 && res.status == 0);
		/* Only looked at. */
		RAW_CHECK(raw_wait(fd, seq, &res) == 0 && res.status == 0);
		RAW_CHECK(raw_info(fd, &info) == 0);
		post = raw_post_cmd(1, NPULINK_POST_WAIT);
		RAW_CHECK(raw_ioctl(fd, NPULINK_POST, &post) == -EPERM);
		RAW_CHECK(raw_destroy(fd, self->m.buf) == -EPERM);
		RAW_CHECK(raw_abort(fd, self->m.comm, 0) == -EPERM);
		RAW_CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, NPULINK_MMAP_ARENA) ==
			  MAP_FAILED && errno == EPERM);
		_exit(0);
	}
	ASSERT_EQ(0, member_start(&self->m, 0, &seq));
	ASSERT_EQ(0, send_fd(sock[0], fd));
	ASSERT_EQ((ssize_t)sizeof(seq), write(sock[0], &seq, sizeof(seq)));
	raw_sleep_ms(50);
	ASSERT_EQ(0, member_run(&self->peer, NULL));
	EXPECT_EQ(0, raw_reap(pid));
	EXPECT_EQ(0, raw_wait(self->m.fd, seq, &res));
}

/* A file in flight in a socket that nobody reads is still a file. */
TEST_F(life, left_in_a_socket)
{
	struct npulink_comm_status st;
	int sock[2];

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, sock));
	ASSERT_EQ(0, send_fd(sock[0], self->m.fd));
	close(self->m.fd);
	self->m.fd = -1;
	ASSERT_EQ(0, raw_status(self->peer.fd, self->peer.comm, &st));
	EXPECT_EQ(0, st.out_cause);
	close(sock[0]);
	close(sock[1]);
	EXPECT_TRUE(RAW_EVENTUALLY(!raw_status(self->peer.fd, self->peer.comm, &st) &&
				   st.out_cause == NPULINK_CAUSE_DEATH));
	EXPECT_EQ(0, st.out_peer);
}

/* The program that is executed has the file, but it is not its own. */
TEST_F(life, exec)
{
	struct npulink_comm_status st;
	int pipefd[2];
	uint8_t secret[16];
	struct member a;
	pid_t pid;
	char c;

	raw_secret(secret);
	ASSERT_EQ(0, member_join(&a, 0, secret, 0, 2, LEN));
	ASSERT_EQ(0, pipe(pipefd));
	pid = fork();
	if (!pid) {
		struct member b;

		close(a.fd);
		close(pipefd[1]);
		RAW_CHECK(!member_join(&b, 1, secret, 1, 2, LEN));
		fcntl(b.fd, F_SETFD, 0);
		dup2(pipefd[0], 0);
		execl("/bin/cat", "cat", NULL);
		_exit(1);
	}
	close(pipefd[0]);
	EXPECT_TRUE(RAW_EVENTUALLY(!raw_status(a.fd, a.comm, &st) &&
				   st.out_cause == NPULINK_CAUSE_DEATH));
	EXPECT_EQ(1, st.out_peer);
	close(pipefd[1]);
	EXPECT_EQ(0, raw_reap(pid));
	member_leave(&a);
	(void)c;
}

/* A child that is forked while operations run, and exits, changes nothing. */
TEST_F(life, fork_while_running)
{
	struct npulink_result res;
	uint64_t seq;
	int i;

	for (i = 0; i < 5; i++) {
		pid_t pid;

		member_fill(&self->m, i);
		member_fill(&self->peer, i);
		ASSERT_EQ(0, member_start(&self->m, 0, &seq));
		pid = fork();
		if (!pid) {
			memset(self->m.send, 0xff, 2 * LEN);
			_exit(0);
		}
		EXPECT_EQ(0, raw_reap(pid));
		ASSERT_EQ(0, member_run(&self->peer, NULL));
		ASSERT_EQ(0, raw_wait(self->m.fd, seq, &res));
		EXPECT_EQ(0, res.status);
		EXPECT_EQ(0, member_wrong(&self->m, i));
		EXPECT_EQ(0, member_wrong(&self->peer, i));
	}
}

struct waiter {
	pthread_t thread;
	pid_t tid;
	int fd, rc;
	uint64_t seq;
	struct npulink_result res;
};

static void *waiter_run(void *arg)
{
	struct waiter *w = arg;

	__atomic_store_n(&w->tid, syscall(SYS_gettid), __ATOMIC_RELEASE);
	w->rc = raw_wait(w->fd, w->seq, &w->res);
	return NULL;
}

/* Threads that wait hold the file, so close in another one does not end it. */
TEST_F(life, close_while_threads_wait)
{
	struct waiter w[4];
	int i;

	for (i = 0; i < 4; i++) {
		w[i].fd = self->m.fd;
		w[i].tid = 0;
		ASSERT_EQ(0, member_start(&self->m, 0, &w[i].seq));
	}
	for (i = 0; i < 4; i++)
		pthread_create(&w[i].thread, NULL, waiter_run, &w[i]);
	for (i = 0; i < 4; i++) {
		ASSERT_TRUE(RAW_EVENTUALLY(__atomic_load_n(&w[i].tid, __ATOMIC_ACQUIRE)));
		ASSERT_TRUE(raw_comes_to_wait(w[i].tid));
	}
	ASSERT_EQ(0, close(self->m.fd));
	self->m.fd = -1;
	for (i = 0; i < 4; i++)
		ASSERT_EQ(0, member_run(&self->peer, NULL));
	for (i = 0; i < 4; i++) {
		pthread_join(w[i].thread, NULL);
		EXPECT_EQ(0, w[i].rc);
		EXPECT_EQ(0, w[i].res.status);
	}
	/* Now it has gone. */
	EXPECT_TRUE(RAW_EVENTUALLY(member_run(&self->peer, NULL) == -EOWNERDEAD));
}

/* Several threads wait for the same operation; one fetches, all are told. */
TEST_F(life, threads_wait_for_the_same)
{
	struct waiter w[8];
	uint64_t seq;
	int i, told = 0;

	ASSERT_EQ(0, member_start(&self->m, 0, &seq));
	for (i = 0; i < 8; i++) {
		w[i].fd = self->m.fd;
		w[i].seq = seq;
		pthread_create(&w[i].thread, NULL, waiter_run, &w[i]);
	}
	raw_sleep_ms(200);
	ASSERT_EQ(0, member_run(&self->peer, NULL));
	for (i = 0; i < 8; i++) {
		pthread_join(w[i].thread, NULL);
		EXPECT_TRUE(w[i].rc == 0 || w[i].rc == -ENOENT);
		told += w[i].rc == 0;
	}
	EXPECT_GE(told, 1);
	EXPECT_EQ(-ENOENT, raw_wait(self->m.fd, seq, &w[0].res));
}

#define WOKEN	1024	/* of the threads that wait in a file; more look for themselves */

struct crowd {
	struct waiter *w;
	unsigned int n;
};

static int crowd_add(struct crowd *crowd, int fd, uint64_t seq, void *(*run)(void *arg))
{
	struct waiter *w = &crowd->w[crowd->n++];
	pthread_attr_t attr;
	int rc;

	w->fd = fd;
	w->seq = seq;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 32 << 10);
	rc = pthread_create(&w->thread, &attr, run, w);
	pthread_attr_destroy(&attr);
	return rc;
}

/* It has come so far as to sleep there, be it for a moment. */
static bool crowd_waits(const struct crowd *crowd, unsigned int i)
{
	const struct waiter *w = &crowd->w[i];
	char path[64];

	if (!RAW_EVENTUALLY(__atomic_load_n(&w->tid, __ATOMIC_ACQUIRE)))
		return false;
	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", w->tid);
	return RAW_EVENTUALLY(raw_read(path) == SYS_ioctl);
}

static void *waiter_with_limit(void *arg)
{
	struct waiter *w = arg;
	struct npulink_wait wait = {
		.size = sizeof(wait), .seq = w->seq, .wait_until_ns = raw_now() + 100000000,
	};

	__atomic_store_n(&w->tid, syscall(SYS_gettid), __ATOMIC_RELEASE);
	w->rc = raw_ioctl(w->fd, NPULINK_WAIT, &wait);
	if (raw_now() < wait.wait_until_ns)
		w->rc = -ERANGE;
	return NULL;
}

static void do_nothing(int sig)
{
}

/* They are told, too, that it is over, have a limit, and are interrupted. */
TEST_F(life, more_threads_wait_than_are_woken)
{
	unsigned int n = getenv("NPULINK_SLOW") ? WOKEN + 50 : WOKEN + 500, i, told = 0;
	struct sigaction sa = { .sa_handler = do_nothing };
	struct crowd crowd = { .w = calloc(n + 2, sizeof(struct waiter)) };
	uint64_t seq, from;

	ASSERT_NE(NULL, crowd.w);
	ASSERT_EQ(0, sigaction(SIGUSR1, &sa, NULL));
	ASSERT_EQ(0, member_start(&self->m, 0, &seq));
	for (i = 0; i < n; i++)
		ASSERT_EQ(0, crowd_add(&crowd, self->m.fd, seq, waiter_run));
	for (i = 0; i < n; i++)
		ASSERT_TRUE(crowd_waits(&crowd, i));
	ASSERT_EQ(0, crowd_add(&crowd, self->m.fd, seq, waiter_with_limit));
	pthread_join(crowd.w[n].thread, NULL);
	EXPECT_EQ(-ETIME, crowd.w[n].rc);
	ASSERT_EQ(0, crowd_add(&crowd, self->m.fd, seq, waiter_run));
	ASSERT_TRUE(crowd_waits(&crowd, n + 1));
	ASSERT_EQ(0, pthread_kill(crowd.w[n + 1].thread, SIGUSR1));
	pthread_join(crowd.w[n + 1].thread, NULL);
	EXPECT_EQ(-EINTR, crowd.w[n + 1].rc);
	from = raw_now();
	ASSERT_EQ(0, member_run(&self->peer, NULL));
	for (i = 0; i < n; i++) {
		pthread_join(crowd.w[i].thread, NULL);
		told += !crowd.w[i].rc && !crowd.w[i].res.status && crowd.w[i].res.seq == seq;
	}
	EXPECT_EQ(n, told);
	TH_LOG("%u threads are told within %.1f ms", n, (raw_now() - from) * 1e-6);
	free(crowd.w);
}

#define COPY	(512 << 10)	/* not inline: left to whoever waits */

struct limited {
	int fd, rc;
	uint64_t seq;
	bool over;
};

static void *limited_run(void *arg)
{
	struct limited *l = arg;
	struct npulink_wait wait = {
		.size = sizeof(wait), .seq = l->seq, .wait_until_ns = raw_now() + 200000000,
	};

	l->rc = raw_ioctl(l->fd, NPULINK_WAIT, &wait);
	__atomic_store_n(&l->over, true, __ATOMIC_RELEASE);
	return NULL;
}

/* Who waits runs what others of its process post, but not for longer than it wants to wait. */
TEST_F(life, limit_while_others_post)
{
	struct npulink_step step = raw_step(NPULINK_STEP_COPY, COPY);
	struct npulink_slot slots[2] = {
		{ .min_len = COPY, .access = NPULINK_SLOT_READ },
		{ .min_len = COPY, .access = NPULINK_SLOT_WRITE },
	};
	struct limited l = { .fd = self->m.fd };
	uint64_t seqs[512], first = 0, last = 0;
	struct npulink_post post;
	uint8_t secret[16];
	pthread_t thread;
	int comm, plan, buf, rc;

	raw_secret(secret);
	step.dst_slot = 1;
	comm = raw_comm(l.fd, secret, 0, 1);
	plan = raw_plan(l.fd, comm, slots, 2, &step, 1);
	buf = raw_register(l.fd, raw_anon(2 * COPY), 2 * COPY, 0);
	ASSERT_LT(0, plan);
	ASSERT_LT(0, buf);
	/* Its peer never posts. */
	ASSERT_EQ(0, member_start(&self->m, 0, &l.seq));
	ASSERT_EQ(0, pthread_create(&thread, NULL, limited_run, &l));
	while (!__atomic_load_n(&l.over, __ATOMIC_ACQUIRE)) {
		struct npulink_wait wait = { .size = sizeof(wait) };

		post = raw_post_cmd(plan, NPULINK_POST_HELD);
		raw_bind(&post, buf, 0, COPY);
		raw_bind(&post, buf, COPY, COPY);
		rc = last - first < ARRAY_SIZE(seqs) ? raw_ioctl(l.fd, NPULINK_POST, &post) :
						       -EBUSY;
		if (!rc) {
			seqs[last++ % ARRAY_SIZE(seqs)] = post.out_seq;
			continue;
		}
		ASSERT_EQ(-EBUSY, rc);
		wait.seq = seqs[first % ARRAY_SIZE(seqs)];
		rc = raw_ioctl(l.fd, NPULINK_WAIT, &wait);
		if (!rc)
			first++;
		else
			ASSERT_EQ(-ETIME, rc);
	}
	pthread_join(thread, NULL);
	EXPECT_EQ(-ETIME, l.rc);
}

static void *destroyer(void *arg)
{
	struct waiter *w = arg;

	w->rc = raw_destroy(w->fd, w->seq);
	return NULL;
}

/* Only one of several threads destroys an object. */
TEST_F(life, destroyed_by_several_threads)
{
	struct waiter w[4];
	int i, round, ok, kind;

	for (round = 0; round < 60; round++) {
		uint64_t off;
		int id = 0;

		kind = round % 3;
		if (kind == 0)
			id = raw_buf_alloc(self->m.fd, 4096, &off);
		if (kind == 1)
			id = raw_plan(self->m.fd, self->m.comm, NULL, 0, NULL, 0);
		if (kind == 2) {
			uint8_t secret[16];

			raw_secret(secret);
			id = raw_comm(self->m.fd, secret, 0, 2);
		}
		ASSERT_GT(id, 0);
		for (i = 0; i < 4; i++) {
			w[i].fd = self->m.fd;
			w[i].seq = id;
			pthread_create(&w[i].thread, NULL, destroyer, &w[i]);
		}
		for (ok = 0, i = 0; i < 4; i++) {
			pthread_join(w[i].thread, NULL);
			EXPECT_TRUE(w[i].rc == 0 || w[i].rc == -ENOENT);
			ok += !w[i].rc;
		}
		EXPECT_EQ(1, ok);
	}
}

/* Posts, whatever comes of it, until it is told to stop. */
struct poster {
	pthread_t thread;
	int fd, comm, peer;
	bool stop;
};

static void *poster(void *arg)
{
	struct poster *p = arg;
	int plan;

	while (!__atomic_load_n(&p->stop, __ATOMIC_ACQUIRE)) {
		struct npulink_step step = raw_step(NPULINK_STEP_SEND, 0);
		struct npulink_post post;

		step.send_peer = p->peer;
		plan = raw_plan(p->fd, __atomic_load_n(&p->comm, __ATOMIC_ACQUIRE), NULL, 0, &step,
				1);
		if (plan <= 0)
			continue;
		post = raw_post_cmd(plan, 0);
		raw_ioctl(p->fd, NPULINK_POST, &post);
		raw_destroy(p->fd, plan);
	}
	return NULL;
}

/*
 * Ranks that go while threads make plans with each other and post them: nobody follows a pointer
 * to one that has gone, and none stays because another one found it too late.
 */
TEST_F(life, ranks_go_while_others_find_them)
{
	struct poster p[4] = {};
	uint8_t secret[16];
	int round, i;

	for (i = 0; i < 4; i++) {
		p[i].fd = i < 2 ? raw_open(i) : p[i - 2].fd;
		p[i].peer = !(i % 2);
		ASSERT_GE(p[i].fd, 0);
		pthread_create(&p[i].thread, NULL, poster, &p[i]);
	}
	for (round = 0; round < (getenv("NPULINK_SLOW") ? 100 : 600); round++) {
		int comm[2], tries;

		raw_secret(secret);
		for (i = 0; i < 2; i++) {
			comm[i] = raw_comm(p[i].fd, secret, i, 2);
			ASSERT_GT(comm[i], 0);
			__atomic_store_n(&p[i].comm, comm[i], __ATOMIC_RELEASE);
			__atomic_store_n(&p[i + 2].comm, comm[i], __ATOMIC_RELEASE);
		}
		if (round % 3)
			sched_yield();
		raw_abort(p[round % 2].fd, comm[round % 2], 1);
		/* A plan may be in somebody's hands just now. */
		for (i = 0; i < 2; i++)
			for (tries = 0; raw_destroy(p[i].fd, comm[i]) && tries < 100000; tries++)
				sched_yield();
	}
	for (i = 0; i < 4; i++) {
		__atomic_store_n(&p[i].stop, true, __ATOMIC_RELEASE);
		pthread_join(p[i].thread, NULL);
	}
	close(p[0].fd);
	close(p[1].fd);
	/* The fixture's alone. */
	EXPECT_TRUE(RAW_EVENTUALLY(nl_comms() == 1))
		TH_LOG("%d communicators", nl_comms());
}

/* ---- a device goes ------------------------------------------------------------------- */

/* Devices of their own, so that others are not disturbed. Their numbers, or -errno. */
static int new_devices(unsigned int n)
{
	char text[16];
	int i, rc;

	snprintf(text, sizeof(text), "%u", n);
	rc = raw_write(RAW_SOFT "/new_device", text);
	if (rc)
		return rc;
	for (i = 8; i < 64; i++) {
		int fd = raw_open(i);

		if (fd >= 0) {
			close(fd);
			return i;
		}
	}
	return -ENODEV;
}

static int remove_device(int n)
{
	char text[16];

	snprintf(text, sizeof(text), "npu%d", n);
	return raw_write(RAW_SOFT "/del_device", text);
}

TEST_F(life, device_removed_with_open_file)
{
	struct pollfd p = { .events = POLLIN };
	int dev = new_devices(1), fd;
	uint64_t off;
	char *mem;
	int id;

	ASSERT_GE(dev, 8);
	fd = raw_open(dev);
	id = raw_buf_alloc(fd, 4096, &off);
	mem = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, off);
	ASSERT_NE(MAP_FAILED, mem);
	EXPECT_EQ(0, remove_device(dev));
	EXPECT_EQ(-ENOENT, remove_device(dev));
	EXPECT_LT(raw_open(dev), 0);
	p.fd = fd;
	EXPECT_EQ(1, poll(&p, 1, 0));
	EXPECT_EQ(POLLERR | POLLHUP, p.revents);
	EXPECT_EQ(-ENODEV, raw_buf_alloc(fd, 4096, &off));
	EXPECT_EQ(MAP_FAILED, mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, off));
	EXPECT_EQ(ENODEV, errno);
	/* The memory is the file's, not the device's. */
	mem[0] = 1;
	EXPECT_EQ(0, raw_destroy(fd, id));
	mem[1] = 1;
	munmap(mem, 4096);
	EXPECT_EQ(0, close(fd));
}

static void *remover(void *arg)
{
	raw_sleep_ms(100);
	return (void *)(long)remove_device((long)arg);
}

/* Who only polls is woken. */
TEST_F(life, device_removed_while_polling)
{
	long dev = new_devices(1);
	struct pollfd p = { .events = POLLIN };
	pthread_t thread;

	ASSERT_GE(dev, 8);
	p.fd = raw_open(dev);
	ASSERT_GE(p.fd, 0);
	pthread_create(&thread, NULL, remover, (void *)dev);
	EXPECT_EQ(1, poll(&p, 1, 20000));
	pthread_join(thread, NULL);
	close(p.fd);
}

TEST_F(life, device_removed_while_running)
{
	static const bool held[] = { false, true };
	unsigned int i;

	for (i = 0; i < 2; i++) {
		int dev = new_devices(1), r;
		struct npulink_comm_status st;
		struct npulink_result res;
		struct member m[3];
		uint8_t secret[16];
		uint64_t seq[3];

		ASSERT_GE(dev, 8);
		raw_secret(secret);
		for (r = 0; r < 3; r++)
			ASSERT_EQ(0, member_join(&m[r], r == 1 ? dev : r, secret, r, 3, LEN));
		if (held[i])
			ASSERT_EQ(0, raw_knob(dev, "hold", 1));
		/* Without the hold, one that never ends as nobody posts the third. */
		for (r = 0; r < 2 + held[i]; r++)
			ASSERT_EQ(0, member_start(&m[r], 0, &seq[r]));
		if (held[i])
			ASSERT_TRUE(RAW_EVENTUALLY(raw_knob_get(dev, "held") > 0));
		ASSERT_EQ(0, remove_device(dev));
		for (r = 0; r < 2 + held[i]; r++) {
			ASSERT_EQ(0, raw_wait(m[r].fd, seq[r], &res));
			EXPECT_EQ(-ENODEV, res.status);
			EXPECT_EQ(NPULINK_CAUSE_REMOVED, res.cause);
			EXPECT_EQ(1, res.rank);
			ASSERT_EQ(0, raw_status(m[r].fd, m[r].comm, &st));
			EXPECT_EQ(-ENODEV, st.out_status);
		}
		EXPECT_EQ(-ENODEV, member_run(&m[0], NULL));
		EXPECT_EQ(-ENODEV, member_run(&m[1], NULL));
		/* Everything can still be taken apart. */
		EXPECT_EQ(0, raw_destroy(m[1].fd, m[1].plan));
		EXPECT_EQ(0, raw_destroy(m[1].fd, m[1].comm));
		EXPECT_EQ(0, raw_destroy(m[1].fd, m[1].buf));
		for (r = 0; r < 3; r++)
			member_leave(&m[r]);
	}
}

/* A page whose first write waits until the test lets it through. */
struct gate {
	int fd;
	char *page;
};

static int gate_open(struct gate *g)
{
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_WP };

	g->page = raw_anon(4096);
	if (g->page == MAP_FAILED)
		return -ENOMEM;
	g->fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (g->fd < 0)
		return -errno;
	reg.range.start = (uintptr_t)g->page;
	reg.range.len = 4096;
	if (ioctl(g->fd, UFFDIO_API, &api) || ioctl(g->fd, UFFDIO_REGISTER, &reg))
		return -errno;
	/* Only what is there can be protected. */
	g->page[0] = 0;
	return 0;
}

static int gate_protect(struct gate *g, bool on)
{
	struct uffdio_writeprotect wp = {
		.range = { (uintptr_t)g->page, 4096 },
		.mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : 0,
	};

	return ioctl(g->fd, UFFDIO_WRITEPROTECT, &wp) ? -errno : 0;
}

struct slow_post {
	int fd, rc;
	struct npulink_post *post;
};

static void *post_slowly(void *arg)
{
	struct slow_post *p = arg;

	p->rc = raw_ioctl(p->fd, NPULINK_POST, p->post);
	return NULL;
}

/* A POST that waits for its own process's page fault does not keep a device from going. */
TEST_F(life, device_removed_while_post_faults)
{
	struct pollfd waiting = { .events = POLLIN };
	struct slow_post p = { .rc = 1 };
	struct uffd_msg msg;
	struct member m[2];
	uint8_t secret[16];
	pthread_t thread;
	struct gate g;
	int dev, r;

	r = gate_open(&g);
	if (r == -ENOSYS || r == -EINVAL)
		SKIP(return, "this kernel has no userfaultfd that protects");
	ASSERT_EQ(0, r);
	dev = new_devices(1);
	ASSERT_GE(dev, 8);
	raw_secret(secret);
	for (r = 0; r < 2; r++)
		ASSERT_EQ(0, member_join(&m[r], r ? dev : 0, secret, r, 2, LEN));
	p.fd = m[1].fd;
	p.post = (struct npulink_post *)g.page;
	*p.post = member_post_cmd(&m[1], NPULINK_POST_HELD);
	ASSERT_EQ(0, gate_protect(&g, true));
	ASSERT_EQ(0, pthread_create(&thread, NULL, post_slowly, &p));
	waiting.fd = g.fd;
	ASSERT_EQ(1, poll(&waiting, 1, 20000)) {
		TH_LOG("not even POST's answer waits: %d", p.rc);
	}
	ASSERT_EQ(sizeof(msg), read(g.fd, &msg, sizeof(msg)));
	EXPECT_EQ(UFFD_EVENT_PAGEFAULT, msg.event);
	EXPECT_EQ(0, remove_device(dev));
	ASSERT_EQ(0, gate_protect(&g, false));
	pthread_join(thread, NULL);
	EXPECT_EQ(-ENODEV, p.rc);
	for (r = 0; r < 2; r++)
		member_leave(&m[r]);
	close(g.fd);
	munmap(g.page, 4096);
}

struct traffic {
	struct member m[2];
	pthread_t thread[2];
	int rc[2];
	bool stop;
};

struct traffic_end {
	struct traffic *t;
	int r;
};

static void *traffic_run(void *arg)
{
	struct traffic_end *e = arg;
	int rc = 0;

	while (!rc && !__atomic_load_n(&e->t->stop, __ATOMIC_RELAXED))
		rc = member_run(&e->t->m[e->r], NULL);
	e->t->rc[e->r] = rc;
	return NULL;
}

/* Devices come and go under load, five times; each has been there before by number. */
TEST_F(life, device_removed_under_load)
{
	static const size_t sizes[] = { 64, 8192, 300 << 10 };
	int i, r, s;

	for (i = 0; i < 6; i++) {
		struct traffic t[3] = {};
		struct traffic_end e[3][2];
		int dev = new_devices(2);
		uint8_t secret[16];

		ASSERT_GE(dev, 8);
		for (s = 0; s < 3; s++) {
			raw_secret(secret);
			for (r = 0; r < 2; r++) {
				/* On both, between them and an old one, both on one. */
				ASSERT_EQ(0, member_join(&t[s].m[r], s == 1 && r ? 0 : s == 2 ?
							 dev : dev + r, secret, r, 2, sizes[s]));
			}
			for (r = 0; r < 2; r++) {
				e[s][r] = (struct traffic_end) { &t[s], r };
				pthread_create(&t[s].thread[r], NULL, traffic_run, &e[s][r]);
			}
		}
		raw_sleep_ms(100 + 20 * i);
		ASSERT_EQ(0, remove_device(dev + (i & 1)));
		ASSERT_EQ(0, remove_device(dev + !(i & 1)));
		for (s = 0; s < 3; s++) {
			for (r = 0; r < 2; r++) {
				pthread_join(t[s].thread[r], NULL);
				EXPECT_EQ(-ENODEV, t[s].rc[r]);
			}
			member_leave(&t[s].m[0]);
			member_leave(&t[s].m[1]);
		}
	}
}

TEST_HARNESS_MAIN
