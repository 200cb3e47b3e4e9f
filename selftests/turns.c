// SPDX-License-Identifier: GPL-2.0
/*
 * turns - ranks that wait in POST and share processors: none is forgotten, while signals and deaths
 * come at any time.
 *
 * npulink-test: timeout=180
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include "harness.h"
#include "team.h"

#define RANKS	8
#define ROUNDS	500

static struct team team;

struct seat {
	pthread_t thread;
	uint32_t rank;
	uint64_t rounds;
	int rc;			/* of what should not have come */
	_Atomic uint64_t done;	/* rounds */
};

static struct seat seats[RANKS];
static _Atomic unsigned int left;	/* have come back from the first round */

/* Two processors, however many there are. */
static int crowd(void)
{
	cpu_set_t all, two;
	int cpu;

	CPU_ZERO(&two);
	if (sched_getaffinity(0, sizeof(all), &all))
		return -errno;
	for (cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&two) < 2; cpu++)
		if (CPU_ISSET(cpu, &all))
			CPU_SET(cpu, &two);
	return sched_setaffinity(0, sizeof(two), &two) ? -errno : 0;
}

static int open_team(void)
{
	int r, rc;

	memset(seats, 0, sizeof(seats));
	left = 0;
	rc = crowd();
	if (!rc)
		rc = team_open(&team, RANKS, 2, 64);
	for (r = 0; !rc && r < RANKS; r++)
		seats[r].rank = r;
	return rc;
}

/* One collective; signals may come. 0 or what should not have come. */
static int meet(const struct seat *s)
{
	const struct member *m = &team.m[s->rank];
	struct npulink_post post = member_post_cmd(m, NPULINK_POST_WAIT);
	int rc = raw_ioctl(m->fd, NPULINK_POST, &post);

	while (rc == -EINTR)
		rc = raw_wait(m->fd, post.out_seq, &post.out_result);
	return rc ? rc : post.out_result.status;
}

static void *rounds_fn(void *arg)
{
	struct seat *s = arg;
	uint64_t i;

	for (i = 0; i < s->rounds && !s->rc; i++) {
		s->rc = meet(s);
		s->done = i + 1;
	}
	return NULL;
}

static int start_all(uint64_t rounds)
{
	int r, rc = 0;

	for (r = 0; !rc && r < RANKS; r++) {
		seats[r].rounds = rounds;
		rc = pthread_create(&seats[r].thread, NULL, rounds_fn, &seats[r]);
	}
	return rc;
}

static void on_signal(int nr)
{
}

/* ---- nobody is held for long */

static void *once_fn(void *arg)
{
	struct seat *s = arg;

	s->rc = meet(s);
	left++;
	/* Awake, so that nobody has this processor from us. */
	while (left < RANKS)
		;
	return NULL;
}

TEST(none_is_forgotten)
{
	const struct sigaction sa = { .sa_handler = on_signal };
	bool all = true;
	uint64_t until, seq;
	int i, r;

	ASSERT_EQ(0, sigaction(SIGUSR1, &sa, NULL));
	for (i = 0; i < 10 && all; i++) {
		ASSERT_EQ(0, open_team());
		for (r = 1; r < RANKS; r++)
			ASSERT_EQ(0, pthread_create(&seats[r].thread, NULL, once_fn, &seats[r]));
		/* Until they sleep. */
		raw_sleep_ms(50);
		EXPECT_EQ(0, member_start(&team.m[0], 0, &seq));
		until = raw_now() + 5000000000ULL;
		while (left < RANKS - 1 && raw_now() < until)
			;
		all = left == RANKS - 1;
		EXPECT_TRUE(all);
		for (r = 1; left < RANKS - 1 && r < RANKS; r++)
			pthread_kill(seats[r].thread, SIGUSR1);
		left = RANKS;
		for (r = 1; r < RANKS; r++) {
			pthread_join(seats[r].thread, NULL);
			EXPECT_EQ(0, seats[r].rc);
		}
		team_close(&team);
	}
}

/* ---- whatever comes */

static void all_rounds_done(struct __test_metadata *_metadata)
{
	int r;

	for (r = 0; r < RANKS; r++) {
		pthread_join(seats[r].thread, NULL);
		EXPECT_EQ(0, seats[r].rc);
		EXPECT_EQ(ROUNDS, seats[r].done);
	}
	team_close(&team);
}

TEST(rounds)
{
	ASSERT_EQ(0, open_team());
	ASSERT_EQ(0, start_all(ROUNDS));
	all_rounds_done(_metadata);
}

static bool all_done(void)
{
	int r;

	for (r = 0; r < RANKS; r++)
		if (!seats[r].rc && seats[r].done < seats[r].rounds)
			return false;
	return true;
}

TEST(signals_meanwhile)
{
	const struct sigaction sa = { .sa_handler = on_signal };
	unsigned int i;

	ASSERT_EQ(0, open_team());
	ASSERT_EQ(0, sigaction(SIGUSR1, &sa, NULL));
	ASSERT_EQ(0, start_all(ROUNDS));
	for (i = 0; !all_done(); i++)
		pthread_kill(seats[i * 5 % RANKS].thread, SIGUSR1);
	all_rounds_done(_metadata);
}

/* Who has other processors takes no turns; and that changes at any time. */
TEST(moved_meanwhile)
{
	cpu_set_t two, one;
	unsigned int i;
	int cpu;

	ASSERT_EQ(0, open_team());
	ASSERT_EQ(0, sched_getaffinity(0, sizeof(two), &two));
	ASSERT_EQ(0, start_all(ROUNDS));
	for (i = 0, cpu = 0; !all_done(); i++, cpu = (cpu + 1) % CPU_SETSIZE) {
		const pthread_t thread = seats[i * 5 % RANKS].thread;

		while (!CPU_ISSET(cpu, &two))
			cpu = (cpu + 1) % CPU_SETSIZE;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		pthread_setaffinity_np(thread, sizeof(one), i % 3 ? &one : &two);
	}
	all_rounds_done(_metadata);
}

/* Whoever is killed may be held; the next ones have nothing of it. */
TEST(killed_meanwhile)
{
	int i, status;
	pid_t pid;

	for (i = 0; i < 30; i++) {
		pid = fork();
		ASSERT_LE(0, pid);
		if (!pid) {
			if (open_team() || start_all(~0ULL))
				_exit(1);
			for (;;)
				pause();
		}
		raw_sleep_ms(20 + i);
		kill(pid, SIGKILL);
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		EXPECT_TRUE(WIFSIGNALED(status));
	}
	ASSERT_EQ(0, open_team());
	EXPECT_EQ(0, start_all(10));
	for (i = 0; i < RANKS; i++) {
		pthread_join(seats[i].thread, NULL);
		EXPECT_EQ(10, seats[i].done);
	}
	team_close(&team);
}

TEST_HARNESS_MAIN
