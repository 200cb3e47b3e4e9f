// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * rdma_shrink.c - three machines whose ranks go on after a failure, in a communicator of those
 * who are left: ranks are killed, one never asks, one is late, machines cannot reach each other,
 * and the machine that decides is killed while they agree. What all who go on then compute is
 * right.
 *
 * npulink-test: machines=3 mem=512 modules=none timeout=300
 */
#include "lib/run/comm.h"
#include "remote_deaths.h"

#define MACHINES	3

/* ---- small things ------------------------------------------------------------------ */

/* Tell the other machines, in a directory that all have, that we have come so far. */
static void mark_path(char path[256], const char *what, unsigned int of)
{
	snprintf(path, 256, "%s/../shrink-%s-%u", getenv("NPULINK_RESULTS"), what, of);
}

static void mark(const char *what)
{
	char path[256];
	int fd;

	mark_path(path, what, machine);
	fd = open(path, O_CREAT | O_WRONLY, 0644);
	if (fd >= 0)
		close(fd);
}

static bool marked(const char *what, unsigned int of)
{
	char path[256];

	mark_path(path, what, of);
	for (int i = 0; i < 3000; i++) {
		if (!access(path, F_OK))
			return true;
		usleep(20000);
	}
	remote_fail("machine %u has not come to \"%s\"", of, what);
	return false;
}

/* Some operations until it fails; 0 if it does not. */
static int use(struct coll_comm *comm, int times)
{
	static char in[20000], out[20000];
	int rc = 0;

	for (int i = 0; i < times && !rc; i++)
		rc = coll_allreduce(comm, in, out, sizeof(in), COLL_INT8, COLL_SUM);
	return rc;
}

#define UNTIL_IT_FAILS	1000000

static int check_all(struct coll_comm *comm)
{
	return remote_collectives(comm, coll_comm_rank(comm));
}

/* How many times that may be waited for until it is known who is left; the host may be busy. */
#define PATIENCE	4

static struct coll_comm *go_on(struct coll_comm *comm, unsigned int rank, unsigned int left,
			       uint64_t deadline_ns)
{
	return remote_go_on(comm, rank, left, 0, deadline_ns, PATIENCE * atof(remote_bound()));
}

#define LONG	240000000000ULL

/* ---- ranks that are killed ----------------------------------------------------------- */

static int dies(void)
{
	kill(getpid(), SIGKILL);
	return 1;
}

/* The last of six, and then the first. */
static int two_deaths(struct coll_comm *comm, unsigned int rank)
{
	struct coll_comm *five, *four = NULL;
	int rc;

	rc = use(comm, 2);
	if (rank == 5 && !rc)
		return dies();
	rc = rc ?: use(comm, UNTIL_IT_FAILS);
	if (rc != -EOWNERDEAD)
		return remote_check(rc ?: 1, comm, rank, "the first death");
	five = go_on(comm, rank, 0x1f, LONG);
	if (!five)
		return 1;
	rc = check_all(five) ?: use(five, 2);
	if (!rank && !rc)
		return dies();
	rc = rc ?: use(five, UNTIL_IT_FAILS);
	if (rc == -EOWNERDEAD)
		four = go_on(five, rank, 0x1e, LONG);
	else
		remote_check(rc ?: 1, five, rank, "the second death");
	rc = !four || check_all(four) || coll_comm_destroy(four);
	return rc | !!coll_comm_destroy(five);
}

/* ---- who is late, and who is left out -------------------------------------------------- */

/* Rank 2 lives, and never asks: it is counted, and what waits for it ends by its deadline. */
static int never_asks(struct coll_comm *comm, unsigned int rank)
{
	struct coll_comm *shrunk;
	int rc;

	rc = use(comm, 1);
	if (rank == 1)
		coll_comm_abort(comm, 1);
	rc = rc ?: use(comm, UNTIL_IT_FAILS);
	if (rc != -ECANCELED)
		return remote_check(rc ?: 1, comm, rank, "an abort");
	if (rank == 2)
		return !marked("missed", 0) || !marked("missed", 1);
	/* Longer than a rank that is not there is waited for: this one is expected. */
	shrunk = go_on(comm, rank, 7, atof(remote_bound()) * 1.25e9);
	if (!shrunk)
		return 1;
	rc = use(shrunk, 1);
	mark("missed");
	if (rc != -ETIMEDOUT)
		return remote_check(rc ?: 1, shrunk, rank, "a rank that does not come");
	return !!coll_comm_destroy(shrunk);
}

#define LATE	3U

/*
 * One of several on its machine does not come to an allreduce, in which all wait for each other in
 * the end: those on each machine find out by themselves, and name that one.
 */
static int is_late(struct coll_comm *comm, unsigned int rank)
{
	unsigned int n = coll_comm_size(comm);
	struct coll_state state = COLL_STATE_INIT;
	int in[3] = { }, out[3], rc, bad;
	struct coll_comm *shrunk;

	rc = use(comm, 1);
	if (rank == 1)
		coll_comm_abort(comm, 1);
	rc = rc ?: use(comm, UNTIL_IT_FAILS);
	if (rc != -ECANCELED)
		return remote_check(rc ?: 1, comm, rank, "an abort");
	shrunk = go_on(comm, rank, (1U << n) - 1, atof(remote_bound()) * 1.25e9);
	if (!shrunk)
		return 1;
	rc = coll_allreduce(shrunk, in, out, 3, COLL_INT32, COLL_SUM);
	bad = remote_check(rc, shrunk, rank, "nobody is late");
	while (rank == LATE && !bad && !state.status) {
		bad = !!coll_comm_status(shrunk, &state);
		usleep(10000);
	}
	rc = coll_allreduce(shrunk, in, out, 3, COLL_INT32, COLL_SUM);
	if (rc != -ETIMEDOUT || coll_comm_status(shrunk, &state) ||
	    strcmp(state.cause, "deadline") || state.peer != LATE)
		bad |= remote_check(rc ?: 1, shrunk, rank, "somebody is late");
	return bad | !!coll_comm_destroy(shrunk);
}

/* 1 and 2 do not reach each other, and both reach 0: with which the lower one goes on. */
static int left_out(struct coll_comm *comm, unsigned int rank)
{
	struct coll_comm *shrunk = comm;
	struct coll_state state = COLL_STATE_INIT;
	int rc = use(comm, 1), bad = 0;

	if (rank && remote_cable(3 - rank, true))
		return remote_fail("no netem");
	mark("cut");
	for (unsigned int i = 0; i < MACHINES; i++)
		bad |= !marked("cut", i);
	if (!rank)
		coll_comm_abort(comm, 1);
	while (!rc && !bad && !state.status) {
		rc = coll_comm_status(comm, &state);
		usleep(10000);
	}
	if (rank == 2) {
		rc = coll_comm_shrink(comm, &shrunk, NULL);
		if (rc != -ESHUTDOWN || shrunk ||
		    !strstr(coll_comm_last_error(comm), "without this rank"))
			bad = remote_check(rc ?: 1, comm, rank, "left out");
	} else {
		shrunk = go_on(comm, rank, 3, LONG);
		bad |= !shrunk || check_all(shrunk) || coll_comm_destroy(shrunk);
	}
	return bad | (rank ? remote_cable(3 - rank, false) : 0);
}

/* ---- machines that are killed, or cut off ------------------------------------------------ */

/* After two that were left found that they are alone: the first goes on, the other if it may. */
static int alone(struct coll_comm *comm, unsigned int rank)
{
	struct coll_comm *shrunk;
	int rc;

	if (use(comm, 1) || remote_cable(3 - machine, true))
		return remote_fail("rank %u: no netem", rank);
	rc = use(comm, UNTIL_IT_FAILS);
	if (rc != -ENOLINK)
		return remote_check(rc ?: 1, comm, rank, "a cable that is cut");
	if (rank) {
		rc = coll_comm_shrink(comm, &shrunk, NULL);
		if (rc != -ENOLINK || !strstr(coll_comm_last_error(comm), "COLL_MINORITY"))
			return remote_check(rc ?: 1, comm, rank, "half of the machines");
	}
	shrunk = remote_go_on(comm, rank, 1 << rank, rank ? COLL_MINORITY : 0, LONG,
			      PATIENCE * atof(remote_bound()));
	return !shrunk || check_all(shrunk) || coll_comm_destroy(shrunk);
}

/*
 * All abort and shrink it again and again, and machine 0, which decides, is killed meanwhile.
 * Whatever it was doing, the others find out, and agree.
 */
static int decider_dies(struct coll_comm *comm, unsigned int rank)
{
	struct coll_comm *now_it = comm, *shrunk;
	unsigned int n = MACHINES, times = 0;
	int rc, bad = 0;

	if (!rank && !fork()) {
		usleep(getenv("NPULINK_SOAK") ? 60000000 : 1500000);
		_exit(!!remote_kill(0));
	}
	while (n == MACHINES && !bad) {
		struct coll_config config = COLL_CONFIG_INIT;

		config.deadline_ns = LONG;
		rc = use(now_it, 1);
		if (!rc && rank)
			rc = use(now_it, UNTIL_IT_FAILS);
		else if (!rc)
			rc = coll_comm_abort(now_it, 1) ?: -ECANCELED;
		if (rc != -ECANCELED && rc != -ENOLINK)
			bad = remote_check(rc ?: 1, now_it, rank, "while the machine dies");
		rc = coll_comm_shrink(now_it, &shrunk, &config);
		if (rc)
			return remote_check(rc, now_it, rank, "shrink");
		if (now_it != comm)
			bad |= !!coll_comm_destroy(now_it);
		now_it = shrunk;
		n = coll_comm_size(shrunk);
		times++;
	}
	ksft_print_msg("rank %u: %u of %u after the %uth time\n", rank, coll_comm_rank(now_it), n,
		       times);
	if (n != 2 || coll_comm_rank(now_it) != rank - 1)
		bad = remote_fail("rank %u: that is wrong", rank);
	bad = bad || check_all(now_it) || alone(now_it, rank - 1);
	if (now_it != comm)
		bad |= !!coll_comm_destroy(now_it);
	return bad;
}

int main(void)
{
	remote_setup(2, 20000);
	run("modprobe sch_netem");
	ksft_print_header();
	ksft_set_plan(7);
	ksft_test_result(!remote_ranks_dying(MACHINES, 2, 0x21, two_deaths),
			 "a rank is killed, and another one\n");
	/* Only where it is waited for: the host may be busy. */
	setenv("COLL_PEER_TIMEOUT", remote_bound(), 1);
	ksft_test_result(!remote_ranks(1, never_asks), "a rank does not ask\n");
	setenv("COLL_ALGORITHM", "allreduce:mesh", 1);
	ksft_test_result(!remote_ranks(2, is_late), "a rank is late, and all name it\n");
	unsetenv("COLL_ALGORITHM");
	ksft_test_result(!remote_ranks(1, left_out), "two machines cannot reach each other\n");
	/* What has failed on a machine that is killed would be forgotten. */
	if (!machine && ksft_get_fail_cnt())
		ksft_exit_fail_msg("this machine has failed, and is not there to be killed\n");
	ksft_test_result(!remote_ranks(1, decider_dies),
			 "the machine that decides is killed, and the others are cut off\n");
	ksft_test_result(remote_clean(), "no key, no connection and no memory is left\n");
	ksft_test_result(remote_teardown(), "the modules can be removed\n");
	ksft_finished();
}
