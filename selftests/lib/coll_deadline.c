// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * coll_deadline.c - how long libcoll gives an operation, as the kernel is told by POST: a
 * generous multiple of the prediction, more where ranks share processors, and what the
 * caller or COLL_DEADLINE say instead. Against the mock, on as many processors as we like.
 */
#include "lib/run/comm.h"
#include "lib/run/request.h"
#include "mock.h"
#include "coll.h"
#include "comms.h"
#include "kselftest.h"

#define SECOND	1000000000ULL
#define RANKS	8

static long processors;

long __sysconf(int name);

/* Called by sanitizers, too, before they are up. */
__attribute__((no_sanitize("address", "undefined")))
long sysconf(int name)
{
	return name == _SC_NPROCESSORS_ONLN && processors ? processors : __sysconf(name);
}

static struct coll_comm *comms[RANKS];
static char *memory[RANKS];

static int make_comms(unsigned int n, uint64_t deadline_ns)
{
	struct coll_config config = COLL_CONFIG_INIT;

	config.deadline_ns = deadline_ns;
	return comms_make(comms, n, config);
}

/* What the kernel is told of an allreduce of so many bytes. 0, or what went wrong. */
static int told(unsigned int n, size_t len, uint64_t *deadline, uint64_t *slow)
{
	struct coll_request *req[RANKS];
	int rc = 0;

	mock.deadline_ns = 1;
	mock.slow_ns = 1;
	for (unsigned int i = 0; i < n && !rc; i++) {
		rc = coll_iallreduce(comms[i], COLL_IN_PLACE, memory[i], len, COLL_UINT8, COLL_SUM,
				     &req[i]);
		/* All ranks say the same. */
		if (i && (mock.deadline_ns != *deadline || mock.slow_ns != *slow))
			rc = 1;
		*deadline = mock.deadline_ns;
		*slow = mock.slow_ns;
	}
	return rc ? rc : coll_waitall(n, req);
}

/* On so many processors, with a fresh plan: 0, or what went wrong. */
static int told_on(long cpus, unsigned int n, size_t len, uint64_t *deadline, uint64_t *slow)
{
	int rc;

	processors = cpus;
	rc = make_comms(n, COLL_DEADLINE_AUTO);
	if (!rc)
		rc = told(n, len, deadline, slow) | comms_free(comms, n);
	processors = 0;
	return rc;
}

/* In ns, by the same tables that the plan was chosen by. */
static double predicted(size_t len)
{
	const char *name;
	double seconds = 0;

	if (coll_comm_algorithm(comms[0], "allreduce", len, COLL_INT8, COLL_SUM, &name, &seconds))
		return 0;
	return seconds * SECOND;
}

static void test_prediction(void)
{
	static const size_t sizes[] = { 1, 4096, 1 << 20, 16 << 20 };
	uint64_t deadline[4], slow[4], last = 0;
	bool generous = true, before = true, grows = true;
	int rc = 0;

	processors = RANKS;
	rc |= make_comms(2, COLL_DEADLINE_AUTO);
	for (unsigned int i = 0; i < 4; i++) {
		double ns = predicted(sizes[i]);

		rc |= told(2, sizes[i], &deadline[i], &slow[i]);
		ksft_print_msg("%zu bytes: predicted %.0f us, slow %.3f s, stuck %.3f s\n",
			       sizes[i], ns / 1e3, slow[i] / 1e9, deadline[i] / 1e9);
		/* A page fault, a stop of the scheduler and a cold start are no failure. */
		rc |= !(ns > 0);
		generous &= deadline[i] >= 30 * SECOND && deadline[i] >= 500 * ns &&
			    slow[i] >= SECOND / 2 && slow[i] >= 10 * ns;
		/* Yet who is stuck is told the same day. */
		generous &= deadline[i] <= 120 * SECOND + 2000 * ns &&
			    slow[i] <= 2 * SECOND + 40 * ns;
		before &= slow[i] < deadline[i];
		grows &= deadline[i] > last;
		last = deadline[i];
	}
	grows &= slow[0] < slow[3] && slow[2] < slow[3];
	rc |= comms_free(comms, 2);
	processors = 0;
	ksft_test_result(!rc && generous, "a generous multiple of the prediction\n");
	ksft_test_result(!rc && before, "slow comes before stuck\n");
	ksft_test_result(!rc && grows, "more bytes get more time\n");
}

/* Sizes that differ between ranks cannot count for the choice, but do for the time. */
static void test_counts(const char *calibration)
{
	enum { N = RANKS / 2 };	/* as there are two buffers for each */
	const size_t each = 4 << 20, counts[N] = { each, each, each, each };
	uint64_t deadline[2], slow[2];
	struct coll_request *req[N];
	int rc;

	setenv("COLL_CALIBRATION", calibration, 1);
	rc = make_comms(N, COLL_DEADLINE_AUTO);
	unsetenv("COLL_CALIBRATION");
	processors = RANKS;
	for (unsigned int v = 0; v < 2; v++) {
		for (unsigned int i = 0; i < N && !rc; i++) {
			if (v)
				rc = coll_ialltoallv(comms[i], memory[2 * i], counts, NULL,
						     memory[2 * i + 1], counts, NULL, COLL_UINT8,
						     &req[i]);
			else
				rc = coll_ialltoall(comms[i], memory[2 * i], memory[2 * i + 1],
						    each, COLL_UINT8, &req[i]);
		}
		deadline[v] = mock.deadline_ns;
		slow[v] = mock.slow_ns;
		if (!rc)
			rc = coll_waitall(N, req);
	}
	rc |= comms_free(comms, N);
	processors = 0;
	ksft_print_msg("alltoall: slow %.3f s, stuck %.3f s; alltoallv: %.3f s, %.3f s\n",
		       slow[0] / 1e9, deadline[0] / 1e9, slow[1] / 1e9, deadline[1] / 1e9);
	/* What is above a second and a minute, but for rounding. */
	ksft_test_result(!rc && deadline[1] - 60 * SECOND >= (deadline[0] - 60 * SECOND) / 2 &&
			 slow[1] - SECOND >= (slow[0] - SECOND) / 2,
			 "alltoallv gets as much time as alltoall of that size%s\n",
			 *calibration ? ", on all ports" : "");
}

static void test_processors(void)
{
	uint64_t many[2], enough[2], few[2], one[2];
	int rc = 0;

	rc |= told_on(64, RANKS, 1 << 20, &many[0], &many[1]);
	rc |= told_on(RANKS, RANKS, 1 << 20, &enough[0], &enough[1]);
	rc |= told_on(2, RANKS, 1 << 20, &few[0], &few[1]);
	rc |= told_on(1, RANKS, 1 << 20, &one[0], &one[1]);
	ksft_print_msg("%u ranks: stuck after %.6f s on %u processors, %.6f s on 2, %.6f s on 1\n",
		       RANKS, enough[0] / 1e9, RANKS, few[0] / 1e9, one[0] / 1e9);
	ksft_test_result(!rc && many[0] == enough[0] && many[1] == enough[1],
			 "idle processors change nothing\n");
	/* The part that is predicted takes so many times longer: a minute and a second do not. */
	ksft_test_result(!rc && one[0] > few[0] && few[0] > enough[0] &&
			 llabs((long long)(one[0] - few[0]) -
			       (long long)(few[0] - enough[0]) * 4 / 3) < 10000,
			 "stuck: as much more as ranks share a processor\n");
	ksft_test_result(!rc && one[1] > few[1] && few[1] > enough[1] &&
			 llabs((long long)(one[1] - few[1]) -
			       (long long)(few[1] - enough[1]) * 4 / 3) < 10000,
			 "slow: as much more as ranks share a processor\n");
}

/* Deadline of a small allreduce with that configuration and environment; 1: it failed. */
static uint64_t chosen(uint64_t deadline_ns, const char *environment, uint64_t *slow)
{
	uint64_t deadline = 1;
	int rc;

	if (environment)
		setenv("COLL_DEADLINE", environment, 1);
	rc = make_comms(2, deadline_ns);
	/* Taken when the communicator is made. */
	unsetenv("COLL_DEADLINE");
	if (!rc)
		rc = told(2, 64, &deadline, slow) | comms_free(comms, 2);
	return rc ? 1 : deadline;
}

static void test_chosen(void)
{
	uint64_t slow, other, deadline = chosen(COLL_DEADLINE_AUTO, NULL, &slow);

	ksft_test_result(chosen(COLL_DEADLINE_AUTO, "2.5", &other) == 5 * SECOND / 2,
			 "COLL_DEADLINE in seconds\n");
	ksft_test_result(other == slow && slow > 1, "it does not change what is slow\n");
	ksft_test_result(chosen(COLL_DEADLINE_AUTO, "0", &other) == 0, "COLL_DEADLINE=0: none\n");
	ksft_test_result(chosen(COLL_DEADLINE_AUTO, "", &other) == deadline && deadline > SECOND,
			 "COLL_DEADLINE= is as without\n");
	ksft_test_result(chosen(7 * SECOND, "2.5", &other) == 7 * SECOND,
			 "the configuration comes before the environment\n");
	ksft_test_result(chosen(0, "2.5", &other) == 0, "the configuration's 0: none\n");
	ksft_test_result(chosen(3, NULL, &other) == 3, "as little as one likes\n");
}

/* Whatever way it is posted, it is posted with that. */
static void test_forms(void)
{
	uint64_t deadline[4], want = 4 * SECOND;
	struct coll_request *req[2];
	int rc = make_comms(2, want), x = 1, y = 0;

	rc |= coll_isend(comms[0], &x, 1, COLL_INT32, 1, &req[0]);
	deadline[0] = mock.deadline_ns;
	rc |= coll_irecv(comms[1], &y, 1, COLL_INT32, 0, &req[1]);
	deadline[1] = mock.deadline_ns;
	rc |= coll_waitall(2, req);
	ksft_test_result(!rc && deadline[0] == want && deadline[1] == want, "messages\n");

	mock.deadline_ns = 0;
	rc = coll_isend(comms[0], &x, 1, COLL_INT32, 1, &req[0]);
	mock.deadline_ns = 0;
	rc |= coll_group_start(comms[1]);
	rc |= coll_recv(comms[1], &y, 1, COLL_INT32, 0);
	rc |= coll_group_end(comms[1]);
	deadline[0] = mock.deadline_ns;
	rc |= coll_wait(&req[0]);
	ksft_test_result(!rc && deadline[0] == want, "groups\n");

	rc = coll_allreduce_init(comms[0], COLL_IN_PLACE, &x, 1, COLL_INT32, COLL_SUM, &req[0]);
	rc |= coll_allreduce_init(comms[1], COLL_IN_PLACE, &y, 1, COLL_INT32, COLL_SUM, &req[1]);
	for (unsigned int i = 0; i < 4; i++) {
		mock.deadline_ns = 0;
		rc |= coll_start(req[i % 2]);
		deadline[i] = mock.deadline_ns;
		if (i % 2)
			rc |= coll_waitall(2, req);
	}
	rc |= coll_request_free(&req[0]) | coll_request_free(&req[1]);
	ksft_test_result(!rc && deadline[0] == want && deadline[1] == want && deadline[2] == want &&
			 deadline[3] == want, "persistent requests, each time\n");
	comms_free(comms, 2);
}

int main(void)
{
	char path[] = "/tmp/coll_deadline.XXXXXX";
	int fd;

	ksft_print_header();
	ksft_set_plan(3 + 2 + 3 + 7 + 3);
	unsetenv("COLL_DEADLINE");
	unsetenv("COLL_CALIBRATION");
	for (unsigned int i = 0; i < RANKS; i++)
		memory[i] = calloc(16, 1 << 20);
	test_prediction();
	test_counts("");
	fd = mkstemp(path);
	if (fd < 0 || dprintf(fd, "ports = all\n") < 0)
		ksft_exit_fail_msg("no temporary file\n");
	test_counts(path);
	close(fd);
	unlink(path);
	test_processors();
	test_chosen();
	test_forms();
	for (unsigned int i = 0; i < RANKS; i++)
		free(memory[i]);
	ksft_finished();
}
