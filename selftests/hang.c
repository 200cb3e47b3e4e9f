// SPDX-License-Identifier: GPL-2.0
/*
 * hang.c - npulink hang names the culprit: a rank that never calls, is stopped, is dead,
 * calls something else; a link that is slow or down. Each rank is a process. Also
 * who has not even joined, or not called for what a communicator is shrunk to.
 *
 * npulink-test: ndev=8 timeout=300
 */
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include "harness.h"
#include "team.h"

#define N	4
#define LEN	65536

enum how {
	NEVER, THREAD, STOPPED, ALL_STOPPED, LATE, DEAD, MISMATCH, SLOW_LINK, LINK_DOWN, SHRINK,
};

static void *pauses(void *arg)
{
	for (;;)
		pause();
	return arg;
}

/* Rank 3 goes, the first two go on in what is left, and rank 2 does neither. */
static void shrink(struct member *m, uint32_t r)
{
	uint32_t map[N];
	struct npulink_comm_shrink shrunk = {
		.size = sizeof(shrunk), .comm_id = m->comm, .map = (uintptr_t)map,
	};

	if (r == 3)
		_exit(0);
	if (r == 2)
		return;
	member_run(m, NULL);
	RAW_CHECK(!raw_ioctl(m->fd, NPULINK_COMM_SHRINK, &shrunk));
	m->comm = shrunk.out_id;
	m->rank = shrunk.out_rank;
	m->nranks = shrunk.out_nranks;
	RAW_CHECK(!member_plan(m));
	member_run(m, NULL);
}

static void rank_main(enum how how, uint32_t r, const uint8_t secret[16], int ready, int go)
{
	bool odd = r == 2;
	struct member m;
	struct npulink_result res;
	pthread_t thread;
	uint64_t seq;
	char c;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	RAW_CHECK(!member_join(&m, r, secret, r, N, LEN));
	if (odd && how == MISMATCH) {
		RAW_CHECK(!raw_destroy(m.fd, m.plan));
		m.len = LEN / 2;
		RAW_CHECK(!member_plan(&m));
	}
	RAW_CHECK(write(ready, "", 1) == 1 && read(go, &c, 1) == 1);
	/* A process may call itself anything. */
	if (odd && how == STOPPED)
		prctl(PR_SET_NAME, "\033]0;X\a\xff");
	if ((odd && (how == STOPPED || how == LATE)) || how == ALL_STOPPED)
		raise(SIGSTOP);
	/* The first thread ends, and another one goes on, though not with this. */
	if (odd && how == THREAD && !pthread_create(&thread, NULL, pauses, NULL))
		pthread_exit(NULL);
	if (odd && how == DEAD)
		raise(SIGKILL);
	if (how == SHRINK)
		shrink(&m, r);
	else if (how == LATE && !member_start(&m, 200000000, &seq))
		raw_wait(m.fd, seq, &res);
	else if (!odd || (how != NEVER && how != THREAD))
		member_run(&m, NULL);
	/* The communicator stays for those who want to look at it. */
	for (;;)
		pause();
}

static bool start(pid_t pids[N], enum how how)
{
	int ready[2], go[2];
	uint8_t secret[16];
	uint32_t r;
	char c;

	raw_secret(secret);
	if (pipe(ready) || pipe(go))
		return false;
	for (r = 0; r < N; r++) {
		pids[r] = fork();
		if (!pids[r])
			rank_main(how, r, secret, ready[1], go[0]);
	}
	close(ready[1]);
	for (r = 0; r < N; r++)
		if (read(ready[0], &c, 1) != 1)
			return false;
	return write(go[1], "....", N) == N;
}

static void end(const pid_t pids[N])
{
	uint32_t r;

	for (r = 0; r < N; r++)
		kill(pids[r], SIGKILL);
	for (r = 0; r < N; r++)
		raw_reap(pids[r]);
}

/* Does the report on the newest communicator satisfy this? Exit status in *status. */
static bool hang_is(const char *as, const char *filter, int *status)
{
	char command[1024];
	int rc;

	snprintf(command, sizeof(command), "%s npulink -j hang -t 0 >/tmp/hang.json; s=$?; "
		 "jq -e '.[-1] | %s' /tmp/hang.json >/dev/null && exit $s; exit 99", as, filter);
	rc = system(command);
	*status = WIFEXITED(rc) ? WEXITSTATUS(rc) : -1;
	return *status != 99;
}

FIXTURE(hang) {
	pid_t pids[N];
};

FIXTURE_VARIANT(hang) {
	enum how how;
	const char *filter;
};

FIXTURE_VARIANT_ADD(hang, never_calls) {
	NEVER, ".state == \"hangs\" and ([.culprits[].rank] == [2]) and"
	       " (.culprits[0] | .why == \"never-called\" and .process_state == \"S\" and .pid > 1)"
	       " and (.chain | length > 0) and (.chain[0].waits | length > 0)"
	       " and .call.collective == \"allreduce\" and .number == 0"
};

FIXTURE_VARIANT_ADD(hang, first_thread_ended) {
	THREAD, ".state == \"hangs\" and ([.culprits[].rank] == [2]) and"
		" (.culprits[0] | .why == \"never-called\" and .process_state == \"S\")"
};

FIXTURE_VARIANT_ADD(hang, stopped) {
	STOPPED, ".state == \"hangs\" and ([.culprits[].rank] == [2]) and"
		 " (.culprits[0] | .why == \"stopped\" and .process_state == \"T\" and"
		 " .process == \"?]0;X??\" and"
		 " .to_do == \"kill -CONT \\(.pid)\")"
};

FIXTURE_VARIANT_ADD(hang, all_stopped) {
	ALL_STOPPED, ".state == \"stopped\" and ([.culprits[].rank] == [0, 1, 2, 3]) and"
		     " (.culprits | all(.why == \"stopped\" and .text == \"its process is stopped"
		     " by a signal\" and .to_do == \"kill -CONT \\(.pid)\"))"
};

FIXTURE_VARIANT_ADD(hang, late) {
	LATE, ".state == \"failed\" and .cause.cause == \"deadline\" and"
	      " ([.culprits[].rank] == [2]) and .also_stopped == [2]"
};

FIXTURE_VARIANT_ADD(hang, dead) {
	DEAD, ".state == \"failed\" and ([.culprits[].rank] == [2]) and"
	      " .culprits[0].why == \"death\" and .cause.code == 9"
};

FIXTURE_VARIANT_ADD(hang, mismatch) {
	MISMATCH, ".state == \"failed\" and ([.culprits[].rank] | index(2) != null) and"
		  " .cause.cause == \"mismatch\" and ([.cause.calls[].count] | sort == [8192, 16384])"
};

FIXTURE_VARIANT_ADD(hang, slow_link) {
	SLOW_LINK, ".state == \"hangs\" and ([.culprits[].rank] == [1]) and (.culprits[0] |"
		   " .why == \"link\" and .wait.from == \"npu0\" and .wait.to == \"npu1\" and"
		   " .wait.done < .wait.len)"
};

FIXTURE_VARIANT_ADD(hang, link_down) {
	LINK_DOWN, ".state == \"failed\" and .cause.cause == \"link\" and .cause.rank == 1 and"
		   " .cause.peer == 2 and ([.culprits[].rank] | sort == [1, 2])"
};

FIXTURE_SETUP(hang)
{
	if (variant->how == SLOW_LINK)
		ASSERT_EQ(0, raw_write(RAW_KNOBS "/npu1/timing", "npu0 10000000000 1000000000 0"));
	ASSERT_TRUE(start(self->pids, variant->how));
	if (variant->how == LINK_DOWN)
		ASSERT_EQ(0, raw_write(RAW_KNOBS "/npu1/link", "npu2 down"));
}

FIXTURE_TEARDOWN(hang)
{
	end(self->pids);
	raw_write(RAW_KNOBS "/npu1/timing", "all 0 0 0");
	raw_write(RAW_KNOBS "/npu1/link", "all up");
}

TEST_F_TIMEOUT(hang, culprit, 100)
{
	int status, tries = 400;

	/* It takes them a moment to get there. */
	while (!hang_is("", variant->filter, &status) && --tries)
		raw_sleep_ms(50);
	EXPECT_EQ(3, status);
	if (status != 3)
		system("sed 's/^/# /' /tmp/hang.json; npulink hang -t 0 | sed 's/^/# /'");
	EXPECT_EQ(3, WEXITSTATUS(system("npulink hang -t 0 | grep -q -e '-> rank' && exit 3")));
	if (variant->how == STOPPED) {
		ASSERT_EQ(0, kill(self->pids[1], SIGSTOP));
		for (tries = 400; !hang_is("", ".also_stopped == [1]", &status) && --tries;)
			raw_sleep_ms(50);
		EXPECT_EQ(3, status);
		EXPECT_EQ(0, WEXITSTATUS(system("npulink hang -t 0 | grep -q "
						"'rank 1, too, is stopped.* kill -CONT [0-9]'")));
	}
	EXPECT_EQ(0, WEXITSTATUS(system("setpriv --reuid=65534 --regid=65534 --clear-groups "
					"npulink hang | grep -q 'no communicators'")));
}

FIXTURE(shrunk) {
	pid_t pids[N];
};

FIXTURE_SETUP(shrunk)
{
	ASSERT_TRUE(start(self->pids, SHRINK));
}

FIXTURE_TEARDOWN(shrunk)
{
	end(self->pids);
}

TEST(who_has_not_joined_is_named)
{
	struct member m[2] = { };
	uint8_t secret[16];
	int status;

	raw_secret(secret);
	m[0].fd = raw_open(0);
	m[1].fd = raw_open(1);
	ASSERT_LE(0, m[0].fd);
	ASSERT_LE(0, m[1].fd);
	ASSERT_LE(0, raw_comm(m[0].fd, secret, 0, 5));
	EXPECT_TRUE(hang_is("", ".state == \"joining\" and .not_joined == [1, 2, 3, 4]", &status));
	EXPECT_EQ(0, status);
	ASSERT_LE(0, raw_comm(m[1].fd, secret, 3, 5));
	EXPECT_TRUE(hang_is("", ".state == \"joining\" and .not_joined == [1, 2, 4]", &status));
	EXPECT_EQ(0, WEXITSTATUS(system("npulink hang | grep -q 'not joined yet: rank 1-2, 4$'")));
	close(m[1].fd);
	close(m[0].fd);
}

static int hang_becomes(const char *filter)
{
	int status, tries = 400;

	while (!hang_is("", filter, &status) && --tries)
		raw_sleep_ms(50);
	return status;
}

/* Of the last communicator. */
static bool comm_is(const char *filter)
{
	char command[512];

	snprintf(command, sizeof(command), "npulink -j comm show | jq -e '%s' >/dev/null", filter);
	return !system(command);
}

/* Of four ranks the last one has gone, and the first two have shrunk: they wait for rank 2. */
TEST_F(shrunk, who_has_not_shrunk_is_named)
{
	EXPECT_EQ(3, hang_becomes(".state == \"hangs\" and .not_joined == [2] and"
				  " ([.culprits[].rank] == [2]) and (.culprits[0] |"
				  " .why == \"not-shrunk\" and .pid > 1 and"
				  " .process_state == \"S\")"));
	EXPECT_EQ(0, system("npulink hang -t 0 | grep -q 'has not called coll_comm_shrink yet'"));
	EXPECT_TRUE(comm_is(".[-1].ranks | length == 3 and (.[2] | .state == \"awaited\" and"
			    " .before == 2 and .pid > 1 and .dev == \"npu2\")"));
	EXPECT_TRUE(comm_is(".[-1].ranks[2].before_comm == .[-2].id and"
			    " .[-1].parent == .[-2].id"));
	EXPECT_EQ(0, system("npulink comm show | grep -qE '^ +2  awaited npu2 +[0-9]+ S '"));
	/* It is known also when it is stopped, and no more when it cannot come. */
	ASSERT_EQ(0, kill(self->pids[2], SIGSTOP));
	EXPECT_EQ(3, hang_becomes(".culprits[0].why == \"stopped\""));
	ASSERT_EQ(0, kill(self->pids[2], SIGKILL));
	EXPECT_EQ(3, hang_becomes(".state == \"failed\" and .cause.cause == \"death\""));
	EXPECT_TRUE(comm_is("[.[-1].ranks[].rank] == [0, 1]"));
}

TEST_HARNESS_MAIN
