// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * rdma_machines.c - four machines: every collective, with one to four ranks on each of two to
 * four of them; random traffic; what two machines tell the third; one that is cut off from half
 * of the others; and machines that die, in the middle of an operation, and before they were ever
 * connected.
 *
 * npulink-test: machines=4 mem=512 modules=none timeout=300 named
 */
#include <sys/mman.h>
#include "lib/run/comm.h"
#include "lib/run/request.h"
#include "remote_deaths.h"
#include "remote_random.h"

#define MACHINES	4
#define LONG		240000000000ULL
#define PATIENCE	4		/* a machine that waits for others is waited for in turn */

static int random_traffic(struct coll_comm *comm, unsigned int rank)
{
	unsigned int n = coll_comm_size(comm);

	return random_operations(getenv("NPULINK_SOAK") ? 2000 : 100, rank, n, n / MACHINES,
				 RANDOM_SEED);
}

/*
 * Chains that take from three machines at once, many of them, and no two machines send what they
 * have in the same order.
 */
static int many_meshes(struct coll_comm *comm, unsigned int rank)
{
	enum { MESHES = 12 };
	const size_t count = 1 << 20;
	unsigned int n = coll_comm_size(comm), seed = rank;
	struct coll_request *reqs[MESHES];
	uint8_t *in = malloc(count), *out = calloc(MESHES, count);
	int bad = 0;

	for (size_t k = 0; k < count; k++)
		in[k] = k / 4096 + rank;
	for (int i = 0; i < MESHES && !bad; i++) {
		usleep(rand_r(&seed) % 30000);
		bad = remote_check(coll_iallreduce(comm, in, out + i * count, count, COLL_UINT8,
						   COLL_SUM, &reqs[i]), comm, rank, "mesh");
	}
	bad = bad || remote_check(coll_waitall(MESHES, reqs), comm, rank, "meshes");
	for (size_t k = 0; k < MESHES * count && !bad; k++)
		if (out[k] != (uint8_t)(n * (k % count / 4096) + n * (n - 1) / 2))
			bad = remote_fail("rank %u: element %zu: %d", rank, k, out[k]);
	free(in);
	free(out);
	return bad;
}

static int all_meshes(unsigned int per)
{
	int bad;

	setenv("COLL_ALGORITHM", "allreduce:mesh", 1);
	bad = remote_ranks_on(MACHINES, per, many_meshes);
	unsetenv("COLL_ALGORITHM");
	return bad;
}

/* Rank 2 gives up; 0 and 1 may have nothing to do with it at that moment. */
static int abort_reaches_all(struct coll_comm *comm, unsigned int rank)
{
	static char in[200000], out[200000];
	struct coll_state state = COLL_STATE_INIT;
	int rc = 0;

	while (!rc) {
		rc = coll_allreduce(comm, in, out, sizeof(in), COLL_INT8, COLL_SUM);
		if (rank == 2 && !rc)
			rc = coll_comm_abort(comm, 7) ? 1 : -ECANCELED;
	}
	if (rc != -ECANCELED || coll_comm_status(comm, &state) || state.rank != 2 ||
	    state.code != 7)
		return remote_fail("rank %u: %d: %s", rank, rc, coll_comm_last_error(comm));
	return 0;
}

/* ---- machines that die */

static volatile double *killed;		/* when a machine was, 0: not yet */

#define EVENTS	"/tmp/events"

/* Does npulink monitor say of a lost link to machine @where? */
static int check_event(unsigned int where)
{
	for (int i = 0; i < 300; i++) {
		if (!run("grep -q ' link .* on 10.77.0.%u over port rxe.* step ' " EVENTS,
			 where + 1))
			return 0;
		usleep(100000);
	}
	run("sed 's/^/# /' " EVENTS);
	return remote_fail("no event");
}

static int listen_to_events(void)
{
	run("timeout 600 build/tools/npulink monitor >" EVENTS " &");
	for (int i = 0; i < 300; i++) {
		if (!run("grep -q listening " EVENTS))
			return 0;
		usleep(100000);
	}
	return remote_fail("npulink monitor does not listen");
}

/* The last machine dies while all are at it. */
static int dies_at_work(struct coll_comm *comm, unsigned int rank)
{
	static char in[100000], out[100000];
	int rc;

	if (listen_to_events())
		return 1;
	remote_watch_kill(MACHINES - 1, killed);
	rc = coll_barrier(comm);
	if (!rank && !fork()) {
		sleep(1);
		_exit(!!remote_kill(MACHINES - 1));
	}
	while (!rc)
		rc = coll_allreduce(comm, in, out, sizeof(in), COLL_INT8, COLL_SUM);
	return remote_check_death(comm, rank, rc, MACHINES - 1, 1, MACHINES - 1, killed) |
	       check_event(MACHINES - 1);
}

/* A rank of a communicator whose rank @dead has died before anybody called anything. */
static int bereaved(unsigned int rank, unsigned int n, unsigned int port, unsigned int where,
		    unsigned int dead, int joined)
{
	struct coll_comm *comm = remote_join_at(rank, n, port, where);
	int x = 1, y, rc;

	if (!comm)
		return 1;
	if (rank == dead) {
		if (write(joined, "", 1) != 1)
			return 1;
		for (;;)
			pause();
	}
	rc = coll_allreduce(comm, &x, &y, 1, COLL_INT32, COLL_SUM);
	rc = remote_check_death(comm, rank, rc, dead, 1, n - 1, killed);
	return rc | !!coll_comm_destroy(comm);
}

/*
 * The last machine that is left dies when all have met. In one communicator it has the highest
 * rank, which the others call, in the other one the lowest, which they wait to be called by.
 */
static int dies_early(void)
{
	unsigned int n = MACHINES - 1, last = n - 1;
	int joined[2], status, bad = 0;
	char byte;

	remote_port += 4;
	if (machine == MACHINES - 1 || pipe(joined))
		return 1;
	remote_watch_kill(last, killed);
	for (unsigned int first = 0; first < 2; first++) {
		if (fork())
			continue;
		remote_alarm();
		_exit(bereaved(first ? last - machine : machine, n, remote_port - 2 * first,
			       first ? last : 0, first ? 0 : last, joined[1]));
	}
	if (machine == last) {
		for (int i = 0; i < 2; i++)
			bad |= read(joined[0], &byte, 1) != 1;
		if (!bad && !remote_kill(last))
			pause();
	}
	while (wait(&status) > 0)
		bad |= status;
	return bad;
}

/* What is made for ranks that share machines, whether it is the fastest here or not. */
static int two_levels(void)
{
	int bad;

	setenv("COLL_ALGORITHM",
	       "allreduce:two-level;allgather:two-level;allgatherv:two-level;"
	       "reduce_scatter:two-level;reduce_scatterv:two-level;broadcast:two-level;"
	       "reduce:two-level;scatter:two-level;scatterv:two-level;gather:two-level;"
	       "gatherv:two-level;alltoall:two-level;barrier:two-level-leaders", 1);
	bad = remote_ranks_on(2, 3, remote_collectives);
	setenv("COLL_ALGORITHM", "allreduce:two-level-leaders", 1);
	bad += remote_ranks_on(3, 2, remote_collectives);
	unsetenv("COLL_ALGORITHM");
	return bad;
}

/*
 * The first machine does not reach the last two any more, and the second one all: the first is
 * left out, though it is the first, and the other three go on.
 */
static int half_cut(struct coll_comm *comm, unsigned int rank)
{
	static char in[20000], out[20000];
	struct coll_comm *shrunk;
	int rc, bad;

	rc = coll_allreduce(comm, in, out, sizeof(in), COLL_INT8, COLL_SUM);
	if (!rank && (remote_cable(2, true) || remote_cable(3, true)))
		return remote_fail("no netem");
	while (!rc)
		rc = coll_allreduce(comm, in, out, sizeof(in), COLL_INT8, COLL_SUM);
	if (rc != -ENOLINK)
		return remote_check(rc, comm, rank, "two cables that are cut");
	if (machine) {
		shrunk = remote_go_on(comm, rank, 0xfc, 0, LONG, PATIENCE * remote_latest());
		return !shrunk || remote_collectives(shrunk, coll_comm_rank(shrunk)) ||
		       coll_comm_destroy(shrunk);
	}
	rc = coll_comm_shrink(comm, &shrunk, NULL);
	bad = rc != -ESHUTDOWN && remote_check(rc ?: 1, comm, rank, "half cut off");
	return bad | (!rank && (remote_cable(2, false) || remote_cable(3, false)));
}

int main(void)
{
	bool soak = getenv("NPULINK_SOAK");

	remote_setup(2, 20000);
	killed = mmap(NULL, sizeof(*killed), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	ksft_print_header();
	ksft_set_plan(14);
	run("modprobe sch_netem");
	if (soak) {
		ksft_test_result(!remote_ranks_on(2, 4, remote_collectives),
				 "all collectives, 2 x 4\n");
		ksft_test_result(!remote_ranks_on(3, 1, remote_collectives),
				 "all collectives, 3 x 1\n");
	} else {
		ksft_test_result_skip("all collectives, 2 x 4: only in make soak\n");
		ksft_test_result_skip("all collectives, 3 x 1: only in make soak\n");
	}
	ksft_test_result(!remote_ranks_on(3, 2, remote_collectives), "all collectives, 3 x 2\n");
	ksft_test_result(!remote_ranks_on(4, 1, remote_collectives), "all collectives, 4 x 1\n");
	ksft_test_result(!two_levels(), "all collectives on two levels, 2 x 3 and 3 x 2\n");
	ksft_test_result(!all_meshes(1), "many meshes at a time, 4 x 1\n");
	if (soak)
		ksft_test_result(!all_meshes(2), "many meshes at a time, 4 x 2\n");
	else
		ksft_test_result_skip("many meshes at a time, 4 x 2: only in make soak\n");
	ksft_test_result(!remote_ranks_on(3, 1, abort_reaches_all), "an abort reaches all\n");
	ksft_test_result(!remote_ranks_on(4, 1, random_traffic), "random traffic\n");
	setenv("COLL_PEER_TIMEOUT", remote_bound(), 1);
	ksft_test_result(!remote_ranks_on(4, 2, half_cut), "one of four is half cut off\n");
	/* What has failed on a machine that is killed would be forgotten. */
	if (machine >= MACHINES - 2 && ksft_get_fail_cnt())
		ksft_exit_fail_msg("this machine has failed, and is not there to be killed\n");
	ksft_test_result(!remote_ranks_on(4, 1, dies_at_work), "a machine dies\n");
	ksft_test_result(!dies_early(), "a machine dies before it is connected\n");
	ksft_test_result(remote_clean(), "no key, no connection and no memory is left\n");
	ksft_test_result(remote_teardown(), "the modules can be removed\n");
	ksft_finished();
}
