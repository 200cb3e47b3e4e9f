// SPDX-License-Identifier: GPL-2.0
/*
 * neighbours - what somebody has very much of costs others no time: failures of many communicators
 * do not hold up who opens the device, plans that are freed take one thread, and the search
 * for deadlocks looks only at what is waited for.
 *
 * npulink-test: timeout=120
 */
#include <pthread.h>
#include <sched.h>
#include "team.h"
#include "users.h"
#include "harness.h"

#define TRIES	5	/* until one is good: the host has other work, too */

static bool slow(void)
{
	return getenv("NPULINK_SLOW");
}

/* ---- a device that fails */

#define SLOTS	(1U << 17)	/* ranks of a communicator: all are told, one after the other */

struct opener {
	bool stop;
	uint64_t longest;
};

static void *open_and_close(void *arg)
{
	struct opener *o = arg;

	while (!__atomic_load_n(&o->stop, __ATOMIC_ACQUIRE)) {
		uint64_t from = raw_now();
		int fd = raw_open(0);

		RAW_CHECK(fd >= 0);
		close(fd);
		from = raw_now() - from;
		if (from > o->longest)
			o->longest = from;
	}
	return NULL;
}

/* Returns whether who opened it waited for less than a third of the time that the failure took. */
static bool open_beside_failure(struct __test_metadata *_metadata)
{
	struct opener opener = {};
	struct npulink_comm_status st;
	int fd = raw_open(0), comm = 0, i;
	uint8_t secret[16];
	pthread_t thread;
	uint64_t from;

	for (i = 0; i < (slow() ? 20 : 100); i++) {
		raw_secret(secret);
		comm = raw_comm(fd, secret, 0, SLOTS);
		RAW_CHECK(comm > 0);
	}
	RAW_CHECK(!pthread_create(&thread, NULL, open_and_close, &opener));
	raw_sleep_ms(20);
	opener.longest = 0;
	from = raw_now();
	RAW_CHECK(!raw_knob(0, "fault", EREMOTEIO));
	RAW_CHECK(RAW_EVENTUALLY(!raw_status(fd, comm, &st) && st.out_cause));
	from = raw_now() - from;
	__atomic_store_n(&opener.stop, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	close(fd);
	TH_LOG("all were told in %.1f ms, opened in %.1f ms", 1e-6 * from, 1e-6 * opener.longest);
	return opener.longest < from / 3;
}

TEST(opening_waits_for_no_failure)
{
	bool good = false;
	int i;

	raw_knobs_reset(1);
	for (i = 0; i < TRIES && !good; i++)
		good = open_beside_failure(_metadata);
	EXPECT_TRUE(good);
}

/* ---- plans that are freed */

#define PLANS	40
#define STEPS	60000
#define THREADS	6	/* that run at a time: we, one who frees, and what else a kernel has */

static void plans_main(int sk)
{
	static struct npulink_step steps[STEPS];
	uint8_t secret[16];
	int fd, comm, i;

	become(ALICE);
	for (i = 0; i < STEPS; i++)
		steps[i] = raw_step(0, 0);
	fd = raw_open(0);
	raw_secret(secret);
	comm = raw_comm(fd, secret, 0, 1);
	RAW_CHECK(comm > 0);
	for (i = 0; i < PLANS; i++)
		RAW_CHECK(raw_plan(fd, comm, NULL, 0, steps, STEPS) > 0);
	tell(sk, 1);
	hear(sk);
	close(fd);
	_exit(0);
}

/* How many threads run, or would like to. */
static int running(void)
{
	FILE *f = fopen("/proc/loadavg", "re");
	int n = 0;

	RAW_CHECK(f && fscanf(f, "%*s %*s %*s %d/", &n) == 1);
	fclose(f);
	return n;
}

/* The most that do while somebody else's plans are freed. */
static int running_beside_frees(void)
{
	struct sched_param first = { .sched_priority = 1 }, usual = {};
	int sk[2], n, most = 0;
	uint64_t end;
	pid_t pid;

	RAW_CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sk));
	pid = fork();
	if (!pid)
		plans_main(sk[1]);
	hear(sk[0]);
	/* Before all who free. */
	RAW_CHECK(!sched_setscheduler(0, SCHED_FIFO, &first));
	tell(sk[0], 1);
	for (end = raw_now() + 400000000; raw_now() < end; usleep(100)) {
		n = running();
		if (n > most)
			most = n;
	}
	RAW_CHECK(!sched_setscheduler(0, SCHED_OTHER, &usual));
	RAW_CHECK(!raw_reap(pid));
	close(sk[0]);
	close(sk[1]);
	return most;
}

TEST(freeing_takes_one_thread)
{
	int i, n, least = 1000;

	if (getuid())
		SKIP(return, "only root can be two users");
	for (i = 0; i < TRIES && least > THREADS; i++) {
		n = running_beside_frees();
		TH_LOG("%d threads ran", n);
		if (n < least)
			least = n;
	}
	EXPECT_GE(THREADS, least);
}

/* ---- the search for deadlocks */

#define IDLE	12000	/* ranks that wait for nothing */

static int deadlock_ms(const char *ms)
{
	return raw_write("/sys/module/npulink/parameters/deadlock_ms", ms);
}

static void *run_first(void *arg)
{
	return (void *)(long)member_run(arg, NULL);
}

/* What the machine has done so far, in ms of one processor. */
static uint64_t busy_ms(void)
{
	unsigned long long user, nice, system, idle, wait, irq, softirq;
	FILE *f = fopen("/proc/stat", "re");

	RAW_CHECK(f && fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system,
			      &idle, &wait, &irq, &softirq) == 7);
	fclose(f);
	return (user + nice + system + irq + softirq) * 1000 / sysconf(_SC_CLK_TCK);
}

/* The least of some seconds, in ms. */
static uint64_t busy(void)
{
	uint64_t before, one, least = ~0ULL;
	int i;

	for (i = 0; i < 3; i++) {
		raw_sleep_ms(100);
		before = busy_ms();
		raw_sleep_ms(1000);
		one = busy_ms() - before;
		if (one < least)
			least = one;
	}
	return least;
}

TEST(who_waits_for_nothing_is_not_searched)
{
	uint64_t alone, beside;
	uint8_t secret[16];
	pthread_t thread;
	int fd[4], i, n;
	struct team t;
	void *rc;

	for (i = 0; i < 4; i++)
		fd[i] = raw_open(i % 2);
	n = slow() ? IDLE / 8 : IDLE;
	ASSERT_EQ(0, team_open(&t, 2, 2, 4096));
	ASSERT_EQ(0, deadlock_ms("1"));
	ASSERT_EQ(0, pthread_create(&thread, NULL, run_first, &t.m[0]));
	/* It waits in vain, and nobody else does anything. */
	alone = busy();
	for (i = 0; i < n; i++) {
		raw_secret(secret);
		ASSERT_GT(raw_comm(fd[i % 4], secret, 0, 2), 0);
	}
	beside = busy();
	TH_LOG("busy for %llu ms of a second, beside %d ranks for %llu ms",
	       (unsigned long long)alone, n, (unsigned long long)beside);
	ASSERT_EQ(0, deadlock_ms("500"));
	ASSERT_EQ(0, raw_abort(t.m[1].fd, t.m[1].comm, 1));
	pthread_join(thread, &rc);
	EXPECT_EQ(-ECANCELED, (long)rc);
	if (!slow())
		EXPECT_GT(alone + 150, beside);
	team_close(&t);
	for (i = 0; i < 4; i++)
		close(fd[i]);
}

TEST_HARNESS_MAIN
