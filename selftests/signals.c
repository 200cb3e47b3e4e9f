// SPDX-License-Identifier: GPL-2.0
/*
 * signals - a storm of signals at every call that can wait: none is carried out twice, none
 * is lost, and what EINTR says is true. Stopped processes keep nobody waiting whose
 * operations they have posted.
 *
 * npulink-test: timeout=120
 */
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include "team.h"
#include "harness.h"

#define LEN	(192 << 10)
#define SMALL	256
#define MS	1000000ULL

static volatile sig_atomic_t alarms;

static void on_alarm(int sig)
{
	alarms++;
}

static void alarms_every(unsigned int us, int flags)
{
	struct sigaction sa = { .sa_handler = on_alarm, .sa_flags = flags };
	struct itimerval it = { { 0, us }, { 0, us } };

	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &it, NULL);
}

/* Without SA_RESTART: every interrupted call comes back. */
static void storm(unsigned int us)
{
	alarms_every(us, 0);
}

static void calm(void)
{
	struct itimerval it = {};

	setitimer(ITIMER_REAL, &it, NULL);
}

/* Pages pinned, once the workers that unpin have come to rest. */
static long settled(void)
{
	long now = -1, last;
	int i;

	for (i = 0; i < 50; i++) {
		last = now;
		/* Counters of each processor are added up. */
		raw_write("/proc/sys/vm/stat_refresh", "1");
		now = raw_pages_pinned();
		if (now == last)
			break;
		raw_sleep_ms(300);
	}
	return now;
}

/* A hundred times as many in make soak, on either kernel. */
static unsigned int rounds(unsigned int n)
{
	if (getenv("NPULINK_SLOW"))
		n = (n + 9) / 10;
	return getenv("NPULINK_SOAK") ? 100 * n : n;
}

/*
 * Shall there be round @i? No more than @n, but that some calls must have been
 * interrupted, or the test has shown nothing.
 */
static bool more(unsigned int i, unsigned int n, unsigned int interrupted)
{
	return i < n || (!interrupted && i < 20 * n);
}

/*
 * Post as a careful program does: EINTR with a seq means posted, without one means not.
 * Counts how often each happened.
 */
static int post_until(const struct member *m, unsigned int *early, unsigned int *late)
{
	struct npulink_post post = member_post_cmd(m, NPULINK_POST_WAIT);
	struct npulink_result res;
	int rc;

	do {
		post.out_seq = 0;
		rc = raw_ioctl(m->fd, NPULINK_POST, &post);
		*early += rc == -EINTR && !post.out_seq;
	} while (rc == -EINTR && !post.out_seq);
	res = post.out_result;
	while (rc == -EINTR) {
		++*late;
		rc = raw_wait(m->fd, post.out_seq, &res);
	}
	return rc ? rc : res.seq != post.out_seq ? -EBADE : res.status;
}

static void rank_main(uint32_t rank, const uint8_t *secret, unsigned int n, size_t len,
		      unsigned int *interrupted)
{
	unsigned int i, early = 0, late = 0;
	struct member m;
	int rc;

	RAW_CHECK(!member_join(&m, rank, secret, rank, 4, len));
	storm(700 + 130 * rank);
	for (i = 0; i < n; i++) {
		member_fill(&m, i);
		rc = post_until(&m, &early, &late);
		if (rc)
			fprintf(stderr, "# rank %u, round %u: %d\n", rank, i, rc);
		RAW_CHECK(!rc);
		/* One operation too many or too few, and this is another round's sum. */
		RAW_CHECK(!member_wrong(&m, i));
	}
	calm();
	/* Leave: to exit would be a failure for those who are not done yet. */
	RAW_CHECK(!raw_destroy(m.fd, m.plan) && !raw_destroy(m.fd, m.comm));
	if (!rank)
		printf("# %u operations of %zu bytes: %d signals at rank 0, %u calls interrupted before, %u after posting\n",
		       n, len, (int)alarms, early, late);
	fflush(stdout);
	__atomic_add_fetch(interrupted, early + late, __ATOMIC_RELAXED);
	_exit(0);
}

FIXTURE(storms) {
};

FIXTURE_VARIANT(storms) {
	size_t len;
	unsigned int n;
};

FIXTURE_VARIANT_ADD(storms, small) { .len = SMALL, .n = 1000 };
FIXTURE_VARIANT_ADD(storms, large) { .len = LEN, .n = 200 };

FIXTURE_SETUP(storms)
{
	raw_knobs_reset(8);
}

FIXTURE_TEARDOWN(storms)
{
	raw_knobs_reset(8);
}

TEST_F(storms, post_and_wait)
{
	unsigned int *interrupted, tries;
	uint8_t secret[16];
	pid_t pid[4];
	uint32_t r;

	interrupted = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, interrupted);
	for (tries = 0; more(tries, 1, *interrupted); tries++) {
		raw_secret(secret);
		for (r = 0; r < 4; r++) {
			pid[r] = fork();
			if (!pid[r])
				rank_main(r, secret, rounds(variant->n), variant->len, interrupted);
		}
		for (r = 0; r < 4; r++)
			EXPECT_EQ(0, raw_reap(pid[r]));
	}
	TH_LOG("%u calls interrupted, on all ranks", *interrupted);
	EXPECT_LT(0, (int)*interrupted);
	munmap(interrupted, 4096);
}

/* ---- one process, calls that fail with EINTR have done nothing */

FIXTURE(signals) {
};

FIXTURE_SETUP(signals)
{
	raw_knobs_reset(8);
}

FIXTURE_TEARDOWN(signals)
{
	calm();
	raw_knobs_reset(8);
}

static void *start_later(void *arg)
{
	struct team *t = arg;
	int before = alarms;

	/* Not before some signals have come. */
	while (alarms < before + 5)
		raw_sleep_ms(5);
	RAW_CHECK(!member_start(&t->m[1], 0, &t->seq[1]));
	return NULL;
}

#define RETRY(expr) ({ \
	long rc_; \
	do { \
		rc_ = (expr); \
	} while (rc_ == -EINTR || rc_ == -EAGAIN); \
	rc_; \
})

TEST_F(signals, batches)
{
	unsigned int i, k, n = rounds(60), interrupted = 0;
	struct npulink_post post[2][8];
	struct npulink_result res;
	struct team t;

	ASSERT_EQ(0, team_open(&t, 2, 2, 40000));
	storm(500);
	for (i = 0; i < n; i++) {
		/* In every sixth round, nothing but a signal ends rank 0's wait. */
		bool late = i % 6 == 0;
		struct npulink_post_batch b = {
			.size = sizeof(b), .flags = NPULINK_POST_WAIT, .nposts = 8,
			.posts = (uintptr_t)post[0], .wait_until_ns = RAW_FOREVER,
		};
		uint32_t done = 0;
		int rc;

		for (k = 0; k < 8; k++) {
			post[0][k] = member_post_cmd(&t.m[0], NPULINK_POST_HELD);
			post[1][k] = member_post_cmd(&t.m[1], NPULINK_POST_HELD);
			if (k == 7 && late)
				break;
			ASSERT_EQ(0, RETRY(raw_ioctl(t.m[1].fd, NPULINK_POST, &post[1][k])));
		}
		do {
			rc = raw_ioctl(t.m[0].fd, NPULINK_POST_BATCH, &b);
			interrupted += rc == -EINTR;
			/* What was posted is not posted again. */
			done += b.out_posted;
			b.posts = (uintptr_t)&post[0][done];
			b.nposts = 8 - done;
			b.out_posted = 0;
		} while (rc == -EINTR && done < 8);
		ASSERT_TRUE(rc == -EINTR || (!rc && !late));
		if (late)
			ASSERT_EQ(0, RETRY(raw_ioctl(t.m[1].fd, NPULINK_POST, &post[1][7])));
		for (k = 0; k < 8; k++) {
			if (!post[0][k].out_result.seq)
				ASSERT_EQ(0, RETRY(raw_wait(t.m[0].fd, post[0][k].out_seq,
							    &post[0][k].out_result)));
			EXPECT_EQ(0, post[0][k].out_result.status);
			EXPECT_EQ(post[0][k].out_seq, post[0][k].out_result.seq);
			/* Each was fetched once. */
			EXPECT_EQ(-ENOENT, RETRY(raw_wait(t.m[0].fd, post[0][k].out_seq, &res)));
			ASSERT_EQ(0, RETRY(raw_wait(t.m[1].fd, post[1][k].out_seq, &res)));
		}
	}
	calm();
	TH_LOG("%u batches of 8, %u interruptions", n, interrupted);
	EXPECT_LE((n + 5) / 6, interrupted);
	EXPECT_EQ(0, team_allreduce(&t, 1));
	team_close(&t);
}

/* A wait that nothing but a signal ends. */
TEST_F(signals, waits)
{
	struct npulink_result res;
	uint64_t seq, from;
	struct team t;
	int i;

	ASSERT_EQ(0, team_open(&t, 2, 2, SMALL));
	member_fill(&t.m[0], 1);
	member_fill(&t.m[1], 1);
	ASSERT_EQ(0, member_start(&t.m[0], 0, &seq));
	storm(5000);
	for (i = 0; i < 20; i++) {
		from = raw_now();
		EXPECT_EQ(-EINTR, raw_wait(t.m[0].fd, seq, &res));
		EXPECT_GT(20000 * MS, raw_now() - from);
	}
	calm();
	ASSERT_EQ(0, member_start(&t.m[1], 0, &t.seq[1]));
	EXPECT_EQ(0, raw_wait(t.m[0].fd, seq, &res));
	EXPECT_EQ(0, res.status);
	EXPECT_EQ(0, (int)member_wrong(&t.m[0], 1));
	team_close(&t);
}

/* Making things: an EINTR leaves nothing behind, so that the second try is the first. */
TEST_F(signals, objects)
{
	unsigned int i, n = rounds(150), interrupted = 0;
	struct npulink_comm_shrink shrink[2];
	long before = raw_pinned_kb(getpid());
	uint8_t secret[16];
	struct member m[2];
	int r, rc, child;
	uint64_t off;
	char *p;

	storm(400);
	for (i = 0; more(i, n, interrupted); i++) {
		raw_secret(secret);
		for (r = 0; r < 2; r++) {
			memset(&m[r], 0, sizeof(m[r]));
			m[r].rank = r;
			m[r].nranks = 2;
			m[r].len = 40000;
			m[r].send = raw_anon(2 * 40000 + 1);
			m[r].recv = m[r].send + 10000;
			do {
				m[r].fd = raw_open(r);
				interrupted += m[r].fd < 0;
			} while (m[r].fd < 0 && errno == EINTR);
			ASSERT_GE(m[r].fd, 0);
			do {
				rc = raw_comm(m[r].fd, secret, r, 2);
				interrupted += rc == -EINTR;
			} while (rc == -EINTR);
			ASSERT_GT(rc, 0);
			m[r].comm = rc;
			do {
				rc = raw_register(m[r].fd, m[r].send, 80001, 0);
				interrupted += rc == -EINTR;
			} while (rc == -EINTR);
			ASSERT_GT(rc, 0);
			m[r].buf = rc;
			ASSERT_EQ(0, RETRY(member_plan(&m[r])));
			rc = RETRY(raw_buf_alloc(m[r].fd, 100000, &off));
			ASSERT_GT(rc, 0);
			do {
				p = mmap(NULL, 102400, PROT_READ, MAP_SHARED, m[r].fd, off);
			} while (p == MAP_FAILED && errno == EINTR);
			ASSERT_NE(MAP_FAILED, p);
			munmap(p, 102400);
			ASSERT_EQ(0, RETRY(raw_destroy(m[r].fd, rc)));
		}
		ASSERT_EQ(0, RETRY(raw_abort(m[0].fd, m[0].comm, 1)));
		for (r = 0; r < 2; r++) {
			shrink[r] = (struct npulink_comm_shrink) {
				.size = sizeof(shrink[r]), .comm_id = m[r].comm,
			};
			do {
				rc = raw_ioctl(m[r].fd, NPULINK_COMM_SHRINK, &shrink[r]);
				interrupted += rc == -EINTR;
			} while (rc == -EINTR);
			ASSERT_EQ(0, rc);
			EXPECT_EQ(r, (int)shrink[r].out_rank);
		}
		for (r = 0; r < 2; r++) {
			child = shrink[r].out_id;
			ASSERT_EQ(0, RETRY(raw_destroy(m[r].fd, child)));
			ASSERT_EQ(0, RETRY(raw_destroy(m[r].fd, m[r].plan)));
			ASSERT_EQ(0, RETRY(raw_destroy(m[r].fd, m[r].comm)));
			member_leave(&m[r]);
		}
	}
	calm();
	TH_LOG("%u rounds, %u calls interrupted", i, interrupted);
	EXPECT_LT(0, (int)interrupted);
	EXPECT_TRUE(RAW_EVENTUALLY(raw_pinned_kb(getpid()) == before));
}

/* With SA_RESTART, as with SIGSTOP, only WAIT of a POST that was accepted is interrupted. */
TEST_F(signals, restarted)
{
	unsigned int i, n = rounds(150);
	struct team t;

	alarms = 0;
	for (i = 0; i < n; i++) {
		alarms_every(400, SA_RESTART);
		/* The first file of a process takes all of its memory's locks. */
		memset(&t, 0, sizeof(t));
		ASSERT_EQ(0, team_open(&t, 2, 2, i % 2 ? SMALL : 40000)) {
			for (i = 0; i < 2; i++)
				TH_LOG("fd %d, comm %d, buf %d, plan %d", t.m[i].fd,
				       (int)t.m[i].comm, (int)t.m[i].buf, (int)t.m[i].plan);
		}
		ASSERT_EQ(0, team_allreduce(&t, i));
		team_close(&t);
		calm();
	}
	TH_LOG("%u rounds, %d signals", n, (int)alarms);
	EXPECT_GT((int)alarms, (int)n / 10);
}

/* A POST that was accepted is not made again, although the handler wants calls to be restarted. */
TEST_F(signals, post_is_not_restarted)
{
	struct npulink_comm_status st;
	struct npulink_result res;
	struct npulink_post post;
	struct team t;

	ASSERT_EQ(0, team_open(&t, 2, 2, SMALL));
	member_fill(&t.m[0], 1);
	member_fill(&t.m[1], 1);
	post = member_post_cmd(&t.m[0], NPULINK_POST_WAIT);
	alarms_every(5000, SA_RESTART);
	/* Nothing but a signal ends it. */
	EXPECT_EQ(-EINTR, raw_ioctl(t.m[0].fd, NPULINK_POST, &post));
	calm();
	ASSERT_EQ(0, raw_status(t.m[0].fd, t.m[0].comm, &st));
	EXPECT_EQ(1, st.out_next);
	ASSERT_EQ(0, member_start(&t.m[1], 0, &t.seq[1]));
	EXPECT_EQ(0, raw_wait(t.m[0].fd, post.out_seq, &res));
	EXPECT_EQ(0, res.status);
	EXPECT_EQ(0, (int)member_wrong(&t.m[0], 1));
	team_close(&t);
}

/* WAIT goes on after signals until its operation is done. */
TEST_F(signals, wait_restarted)
{
	struct npulink_result res;
	struct team t;
	pthread_t thread;
	sigset_t set;
	int before;

	ASSERT_EQ(0, team_open(&t, 2, 2, SMALL));
	member_fill(&t.m[0], 1);
	member_fill(&t.m[1], 1);
	ASSERT_EQ(0, member_start(&t.m[0], 0, &t.seq[0]));
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	/* The other thread shall not take the signals. */
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	ASSERT_EQ(0, pthread_create(&thread, NULL, start_later, &t));
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	before = alarms;
	alarms_every(5000, SA_RESTART);
	EXPECT_EQ(0, raw_wait(t.m[0].fd, t.seq[0], &res));
	EXPECT_EQ(0, res.status);
	calm();
	pthread_join(thread, NULL);
	EXPECT_GT((int)alarms, before);
	EXPECT_EQ(0, (int)member_wrong(&t.m[0], 1));
	team_close(&t);
}

/* ---- stopped processes */

/* Both ranks' operations are posted; then rank 1's process is stopped in its wait. */
TEST_F(signals, stopped_in_wait)
{
	unsigned int i, n = rounds(10);
	uint8_t secret[16];
	int up[2], down[2];
	struct member m;
	pid_t pid;
	char c;

	ASSERT_EQ(0, pipe(up));
	ASSERT_EQ(0, pipe(down));
	raw_secret(secret);
	pid = fork();
	if (!pid) {
		unsigned int early = 0, late = 0;

		RAW_CHECK(!member_join(&m, 1, secret, 1, 2, LEN));
		for (i = 0; i < n; i++) {
			member_fill(&m, i);
			RAW_CHECK(write(up[1], "r", 1) == 1);
			RAW_CHECK(!post_until(&m, &early, &late));
			RAW_CHECK(!member_wrong(&m, i));
			RAW_CHECK(read(down[0], &c, 1) == 1);
		}
		_exit(0);
	}
	ASSERT_EQ(0, member_join(&m, 0, secret, 0, 2, LEN));
	for (i = 0; i < n; i++) {
		ASSERT_EQ(1, read(up[0], &c, 1));
		ASSERT_TRUE(raw_comes_to_wait(pid));
		ASSERT_EQ(0, kill(pid, SIGSTOP));
		ASSERT_EQ(pid, waitpid(pid, NULL, WUNTRACED));
		/* Its worker goes on without it. */
		member_fill(&m, i);
		EXPECT_EQ(0, member_run(&m, NULL));
		EXPECT_EQ(0, (int)member_wrong(&m, i));
		ASSERT_EQ(0, kill(pid, SIGCONT));
		ASSERT_EQ(1, write(down[1], "g", 1));
	}
	EXPECT_EQ(0, raw_reap(pid));
	member_leave(&m);
}

/* ---- killed at any moment: nothing of it is left */

TEST_F(signals, killed_in_any_call)
{
	unsigned int i, n = rounds(60), seed = raw_now();
	long before = settled();

	TH_LOG("seed %u", seed);
	for (i = 0; i < n; i++) {
		pid_t pid = fork();

		if (!pid) {
			struct team t;
			unsigned int k;

			for (k = 0;; k++) {
				RAW_CHECK(!team_open(&t, 3, 3, k % 2 ? SMALL : LEN));
				RAW_CHECK(!team_allreduce(&t, k));
				team_close(&t);
			}
		}
		usleep(rand_r(&seed) % 40000);
		kill(pid, SIGKILL);
		EXPECT_EQ(-SIGKILL, raw_reap(pid));
	}
	EXPECT_TRUE(RAW_EVENTUALLY(raw_pages_pinned() <= before));
}

TEST_HARNESS_MAIN
