// SPDX-License-Identifier: GPL-2.0
/*
 * races - threads that do everything at the same time: post on one communicator, wait,
 * abort, destroy, close, register and unmap, remove. What each call may answer is
 * known; what must not happen is a hang, a wrong result, or a word in the kernel log.
 * Each test runs for a fixed time, ten times as long in make soak.
 *
 * npulink-test: timeout=170
 */
#include <pthread.h>
#include <signal.h>
#include "team.h"
#include "harness.h"

static uint64_t span_ns;

static void span_init(void)
{
	span_ns = 2000000000ULL * (getenv("NPULINK_SOAK") ? 10 : 1);
}

static bool over(uint64_t begin)
{
	return raw_now() - begin > span_ns;
}

/* ---- threads of two ranks post on the same communicator ------------------------------- */

struct poster {
	pthread_t thread;
	struct member *m;
	unsigned int seed;
	uint32_t ops;		/* how many to run */
	int rc;
	uint32_t bad;
};

/* The same plan for all, so whose post meets whose does not matter. */
static void *poster_run(void *arg)
{
	struct npulink_result res = {};
	struct poster *p = arg;
	uint32_t i;

	for (i = 0; i < p->ops && !p->rc; i++) {
		uint64_t seq;

		if (rand_r(&p->seed) % 2) {
			p->rc = member_run(p->m, &res);
			continue;
		}
		p->rc = member_start(p->m, 0, &seq);
		if (rand_r(&p->seed) % 3 == 0)
			sched_yield();
		if (!p->rc)
			p->rc = raw_wait(p->m->fd, seq, &res);
		if (!p->rc)
			p->rc = res.status;
		p->bad += res.seq != seq;
	}
	return NULL;
}

FIXTURE(post_race) {
	struct member m[2];
};

FIXTURE_VARIANT(post_race) {
	size_t len;
	uint32_t ops;
};

FIXTURE_VARIANT_ADD(post_race, tiny) { .len = 16, .ops = 400 };
FIXTURE_VARIANT_ADD(post_race, medium) { .len = 40000, .ops = 100 };
FIXTURE_VARIANT_ADD(post_race, large) { .len = 600000, .ops = 12 };

FIXTURE_SETUP(post_race)
{
	uint8_t secret[16];

	raw_secret(secret);
	ASSERT_EQ(0, member_join(&self->m[0], 0, secret, 0, 2, variant->len));
	ASSERT_EQ(0, member_join(&self->m[1], 1, secret, 1, 2, variant->len));
	member_fill(&self->m[0], 1);
	member_fill(&self->m[1], 1);
}

FIXTURE_TEARDOWN(post_race)
{
	member_leave(&self->m[0]);
	member_leave(&self->m[1]);
}

TEST_F(post_race, threads_of_both_ranks)
{
	struct npulink_comm_status st;
	struct poster p[8] = {};
	int i;

	for (i = 0; i < 8; i++) {
		p[i].m = &self->m[i & 1];
		p[i].seed = raw_now() + i;
		p[i].ops = variant->ops;
		pthread_create(&p[i].thread, NULL, poster_run, &p[i]);
	}
	for (i = 0; i < 8; i++) {
		pthread_join(p[i].thread, NULL);
		EXPECT_EQ(0, p[i].rc);
		EXPECT_EQ(0, p[i].bad);
	}
	EXPECT_EQ(0, member_wrong(&self->m[0], 1));
	EXPECT_EQ(0, member_wrong(&self->m[1], 1));
	ASSERT_EQ(0, raw_status(self->m[0].fd, self->m[0].comm, &st));
	EXPECT_EQ(4 * variant->ops, st.out_next);
}

/* ---- something ends it while others are at it ------------------------------------------- */

enum how { ABORT, CLOSE, DESTROY, UNMAP, KILL };

FIXTURE(end_race) {
	int unused;
};

FIXTURE_VARIANT(end_race) {
	enum how how;
	size_t len;
};

FIXTURE_VARIANT_ADD(end_race, abort_tiny) { .how = ABORT, .len = 16 };
FIXTURE_VARIANT_ADD(end_race, abort_large) { .how = ABORT, .len = 600000 };
FIXTURE_VARIANT_ADD(end_race, close_tiny) { .how = CLOSE, .len = 16 };
FIXTURE_VARIANT_ADD(end_race, close_large) { .how = CLOSE, .len = 600000 };
FIXTURE_VARIANT_ADD(end_race, destroy_tiny) { .how = DESTROY, .len = 16 };
FIXTURE_VARIANT_ADD(end_race, unmap) { .how = UNMAP, .len = 100000 };
FIXTURE_VARIANT_ADD(end_race, kill) { .how = KILL, .len = 100000 };

FIXTURE_SETUP(end_race)
{
	span_init();
}

FIXTURE_TEARDOWN(end_race)
{
}

static void *until_error(void *arg)
{
	struct poster *p = arg;

	/* Not for ever, in case what should end it does not. */
	for (p->ops = 0; !p->rc && p->ops < 1000000; p->ops++) {
		p->rc = member_run(p->m, NULL);
		/* Where one thread gets no processor, the others come to the end of the room. */
		if (p->rc == -EBUSY) {
			p->rc = 0;
			usleep(100);
		}
	}
	return NULL;
}

static void end_it(struct member *m, enum how how)
{
	switch (how) {
	case ABORT:
		raw_abort(m->fd, m->comm, 1);
		break;
	case CLOSE:
	case KILL:
		close(m->fd);
		break;
	case DESTROY:
		/* Possible only between two operations; then posts fail. */
		while (raw_destroy(m->fd, m->plan) == -EBUSY)
			;
		while (raw_destroy(m->fd, m->comm) == -EBUSY)
			;
		break;
	case UNMAP:
		munmap(m->send, m->len);
		break;
	}
}

static bool ended_well(enum how how, bool own, int rc)
{
	switch (how) {
	case ABORT:
		return rc == -ECANCELED;
	case CLOSE:
	case KILL:
		return rc == -EOWNERDEAD || (own && rc == -EBADF);
	case DESTROY:
		return rc == -ESHUTDOWN || (own && rc == -ENOENT);
	case UNMAP:
		return rc == (own ? -ESTALE : -ECANCELED);
	}
	return false;
}

/* The rank that ends is in a process of its own, and killed in the midst of it. */
static void kill_round(struct __test_metadata *_metadata, size_t len, unsigned int us)
{
	struct poster p = {};
	uint8_t secret[16];
	struct member m;
	int pipefd[2];
	pid_t pid;
	char c;

	raw_secret(secret);
	ASSERT_EQ(0, pipe(pipefd));
	pid = fork();
	if (!pid) {
		RAW_CHECK(!member_join(&m, 1, secret, 1, 2, len));
		RAW_CHECK(write(pipefd[1], "x", 1) == 1);
		while (!member_run(&m, NULL))
			;
		_exit(1);
	}
	ASSERT_EQ(0, member_join(&m, 0, secret, 0, 2, len));
	ASSERT_EQ(1, read(pipefd[0], &c, 1));
	p.m = &m;
	pthread_create(&p.thread, NULL, until_error, &p);
	usleep(us);
	kill(pid, SIGKILL);
	EXPECT_EQ(-SIGKILL, raw_reap(pid));
	pthread_join(p.thread, NULL);
	EXPECT_EQ(-EOWNERDEAD, p.rc);
	member_leave(&m);
	close(pipefd[0]);
	close(pipefd[1]);
}

TEST_F(end_race, ends)
{
	unsigned int seed = raw_now();
	uint64_t begin = raw_now();
	uint32_t rounds, ops = 0;

	for (rounds = 0; rounds < 2 || !over(begin); rounds++) {
		uint8_t secret[16];
		struct member m[2];
		struct poster p[4] = {};
		int i, r;

		if (variant->how == KILL) {
			kill_round(_metadata, variant->len, rand_r(&seed) % 20000);
			continue;
		}
		raw_secret(secret);
		for (r = 0; r < 2; r++)
			ASSERT_EQ(0, member_join(&m[r], r, secret, r, 2, variant->len));
		for (i = 0; i < 4; i++) {
			p[i].m = &m[i & 1];
			pthread_create(&p[i].thread, NULL, until_error, &p[i]);
		}
		usleep(rand_r(&seed) % 20000);
		end_it(&m[1], variant->how);
		/* ESTALE concerns only the rank itself: end the other, too, when it is out. */
		if (variant->how == UNMAP) {
			pthread_join(p[1].thread, NULL);
			pthread_join(p[3].thread, NULL);
			raw_abort(m[1].fd, m[1].comm, 2);
		}
		for (i = 0; i < 4; i++) {
			if (!(variant->how == UNMAP && i & 1))
				pthread_join(p[i].thread, NULL);
			EXPECT_TRUE(ended_well(variant->how, i & 1, p[i].rc))
				TH_LOG("round %u, thread %d: %d", rounds, i, p[i].rc);
			ops += p[i].ops;
		}
		close(m[0].fd);
		if (variant->how != CLOSE)
			close(m[1].fd);
		munmap(m[0].send, 2 * m[0].len + 1);
		munmap(m[1].send, 2 * m[1].len + 1);
	}
	TH_LOG("%u rounds, %u operations", rounds, ops);
}

/* ---- everything ------------------------------------------------------------------------- */

/*
 * Threads with a few shared files, doing at random what the interface offers, with ids
 * that are mostly right. Nothing is known about the results but that every call returns.
 */
#define FILES	4
#define CHAOS	6

struct chaos {
	pthread_t thread;
	unsigned int seed;
	uint64_t begin;
	uint32_t calls;
};

static int chaos_fd[FILES];
static char *chaos_mem;

#define CHAOS_MEM	(1 << 20)

static void chaos_post(int fd, unsigned int *seed)
{
	struct npulink_post post = raw_post_cmd(rand_r(seed) % 16 + 1,
						rand_r(seed) % 2 ? NPULINK_POST_HELD :
						NPULINK_POST_WAIT);
	int i, n = rand_r(seed) % 3;

	for (i = 0; i < n; i++)
		raw_bind(&post, rand_r(seed) % 16, rand_r(seed) % 4 * 4096,
			 rand_r(seed) % 2 ? 4096 : 65536);
	post.deadline_ns = 1000000ULL * (rand_r(seed) % 50 + 1);
	post.wait_until_ns = raw_now() + 1000000ULL * (rand_r(seed) % 20);
	raw_ioctl(fd, NPULINK_POST, &post);
}

static void chaos_plan(int fd, unsigned int *seed)
{
	struct npulink_slot slots[2] = {
		{ .min_len = 4096, .access = 3 }, { .min_len = 4096, .access = 3 },
	};
	static const uint8_t ops[] = { 0, 1, 3, 4, 5, 7, 8, 12, 6, 2 };
	struct npulink_step st[6];
	struct npulink_plan_create cmd;
	int i, n = rand_r(seed) % 7;

	for (i = 0; i < n; i++) {
		st[i] = raw_step(ops[rand_r(seed) % sizeof(ops)], 512);
		if (!st[i].op)
			st[i].len = 0;
		if (st[i].op & NPULINK_STEP_RECV)
			st[i].recv_peer = rand_r(seed) % FILES;
		if (st[i].op & NPULINK_STEP_SEND)
			st[i].send_peer = rand_r(seed) % FILES;
		if (st[i].op && st[i].op != NPULINK_STEP_SEND) {
			st[i].dst_slot = 1;
			st[i].dst_off = 512 * i;
		}
		if (st[i].op & (NPULINK_STEP_REDUCE | NPULINK_STEP_COPY) ||
		    st[i].op == NPULINK_STEP_SEND)
			st[i].src_off = 512 * i;
		if ((st[i].op & 3) == 2)
			st[i].src2_off = 2048;
		if (i && rand_r(seed) % 2)
			st[i].flags = NPULINK_STEP_F_DRAIN;
		st[i].channel = st[i].op & 5 ? rand_r(seed) % 2 : 0;
	}
	cmd = raw_plan_cmd(rand_r(seed) % 16 + 1, slots, 2, st, n);
	cmd.call.set_id = rand_r(seed) % 4 ? 0 : 1;
	raw_ioctl(fd, NPULINK_PLAN_CREATE, &cmd);
}

static void *chaos_run(void *arg)
{
	struct chaos *c = arg;
	unsigned int *seed = &c->seed;

	for (; !over(c->begin); c->calls++) {
		int f = rand_r(seed) % FILES, fd = chaos_fd[f];
		struct npulink_comm_status st;
		struct npulink_wait wait = { .size = sizeof(wait) };
		uint8_t secret[16] = { 42 };
		uint64_t off;

		switch (rand_r(seed) % 40) {
		case 0:
			/* All others go on with the number meanwhile. */
			close(fd);
			dup3(chaos_fd[FILES - 1], fd, O_CLOEXEC);
			break;
		case 1: {
			int fresh = raw_open(f);

			if (fresh >= 0) {
				dup3(fresh, fd, O_CLOEXEC);
				close(fresh);
			}
			break;
		}
		case 2 ... 4:
			secret[1] = rand_r(seed) % 3;
			raw_comm(fd, secret, f, FILES);
			break;
		case 5 ... 8:
			raw_register(fd, chaos_mem + rand_r(seed) % 64 * 4096 + rand_r(seed) % 8,
				     4096 << rand_r(seed) % 5, rand_r(seed) % 2);
			break;
		case 9:
			raw_buf_alloc(fd, 65536, &off);
			break;
		case 10: {
			char *p = chaos_mem + rand_r(seed) % 128 * 4096;

			madvise(p, 8 * 4096, MADV_DONTNEED);
			break;
		}
		case 11: {
			char *p = chaos_mem + rand_r(seed) % 128 * 4096;

			mmap(p, 4 * 4096, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
			break;
		}
		case 12:
			raw_abort(fd, rand_r(seed) % 16 + 1, 9);
			break;
		case 13 ... 15:
			raw_destroy(fd, rand_r(seed) % 16 + 1);
			break;
		case 16 ... 20:
			chaos_plan(fd, seed);
			break;
		case 21:
			raw_status(fd, rand_r(seed) % 16 + 1, &st);
			break;
		case 22:
			wait.seq = rand_r(seed) % 2000;
			wait.wait_until_ns = raw_now() + 1000000;
			raw_ioctl(fd, NPULINK_WAIT, &wait);
			break;
		default:
			chaos_post(fd, seed);
		}
	}
	return NULL;
}

TEST(chaos)
{
	unsigned int seed = raw_now();
	struct chaos c[CHAOS] = {};
	long before = raw_pages_pinned();
	uint32_t calls = 0;
	int i;

	span_init();
	TH_LOG("seed %u", seed);
	chaos_mem = raw_anon(CHAOS_MEM);
	for (i = 0; i < FILES; i++) {
		chaos_fd[i] = raw_open(i);
		ASSERT_GE(chaos_fd[i], 0);
	}
	for (i = 0; i < CHAOS; i++) {
		c[i].seed = seed + i;
		c[i].begin = raw_now();
		pthread_create(&c[i].thread, NULL, chaos_run, &c[i]);
	}
	for (i = 0; i < CHAOS; i++) {
		pthread_join(c[i].thread, NULL);
		calls += c[i].calls;
	}
	TH_LOG("%u calls", calls);
	for (i = 0; i < FILES; i++)
		close(chaos_fd[i]);
	EXPECT_TRUE(RAW_EVENTUALLY(raw_pages_pinned() <= before));
}

/* A thread maps something else where another one is about to register memory. */
static void *mapper_run(void *arg)
{
	struct chaos *c = arg;

	for (; !over(c->begin); c->calls++) {
		if (mmap(chaos_mem, CHAOS_MEM, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
			break;
		usleep(c->calls % 2000);
	}
	return NULL;
}

TEST(register_and_unmap)
{
	struct chaos c = { .begin = raw_now() };
	long before = raw_pages_pinned();
	uint32_t ok = 0, n;
	int fd = raw_open(0);

	span_init();
	ASSERT_GE(fd, 0);
	chaos_mem = raw_anon(CHAOS_MEM);
	pthread_create(&c.thread, NULL, mapper_run, &c);
	for (n = 0; !over(c.begin); n++) {
		int id = raw_register(fd, chaos_mem, CHAOS_MEM, n % 2);

		ASSERT_TRUE(id > 0 || id == -EFAULT) TH_LOG("%d", id);
		if (id < 0)
			continue;
		ok++;
		if (n % 3)
			ASSERT_EQ(0, raw_destroy(fd, id));
	}
	pthread_join(c.thread, NULL);
	TH_LOG("%u of %u registered, %u times unmapped", ok, n, c.calls);
	/* Those that were not destroyed were unmapped in the end, too. */
	munmap(chaos_mem, CHAOS_MEM);
	EXPECT_TRUE(RAW_EVENTUALLY(raw_pages_pinned() <= before));
	close(fd);
}

/* Ranks join, run a little, and leave again, on the same few secrets. */
static void *joiner_run(void *arg)
{
	struct chaos *c = arg;

	for (; !over(c->begin); c->calls++) {
		uint8_t secret[16] = { 43, c->calls };
		struct member m;
		uint64_t seq;
		int rc;

		rc = member_join(&m, c->seed % 8, secret, c->seed % 2, 2, 4096);
		if (!rc)
			rc = member_start(&m, 200000000, &seq);
		if (!rc && c->calls % 3 == 0) {
			struct npulink_result res;

			raw_wait(m.fd, seq, &res);
		}
		member_leave(&m);
	}
	return NULL;
}

TEST(join_and_leave)
{
	long before = raw_pages_pinned();
	struct chaos c[4] = {};
	uint32_t calls = 0;
	int i;

	span_init();
	for (i = 0; i < 4; i++) {
		c[i].seed = i;
		c[i].begin = raw_now();
		pthread_create(&c[i].thread, NULL, joiner_run, &c[i]);
	}
	for (i = 0; i < 4; i++) {
		pthread_join(c[i].thread, NULL);
		calls += c[i].calls;
	}
	TH_LOG("%u times", calls);
	EXPECT_TRUE(RAW_EVENTUALLY(raw_pages_pinned() <= before));
}

TEST_HARNESS_MAIN
