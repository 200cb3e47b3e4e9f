// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * coll_failures.c - what applications see when something goes wrong: a rank that never
 * comes, dies, leaves, aborts, or calls something else. Always in time, always the
 * same cause on all ranks, always with a text that says who.
 */
#include <limits.h>
#include "coll_ranks.h"
#include "lib/run/comm.h"
#include "lib/run/request.h"

#define RANKS	4

static int data[2][100000];

static int expect(struct ranks *ranks, struct coll_comm *comm, int rc, int want, const char *words)
{
	unsigned int rank = coll_comm_rank(comm);

	if (rc == want && strstr(coll_comm_last_error(comm), words))
		return 0;
	return rank_fail(ranks, rank, "%d instead of %d: \"%s\" has no \"%s\"", rc, want,
			 coll_comm_last_error(comm), words);
}

static int allreduce(struct coll_comm *comm, size_t count)
{
	return coll_allreduce(comm, data[0], data[1], count, COLL_INT32, COLL_SUM);
}

/* Everybody is there, has a link to everybody, and nothing more to do so far. */
static int warm_up(struct ranks *ranks, struct coll_comm *comm)
{
	int rc = coll_barrier(comm);

	rc = rc ? rc : allreduce(comm, 1000);
	pthread_barrier_wait(&ranks->barrier);
	return rc;
}

/* ---- a rank never comes */

/* Wait until @n ranks have said by number[0] that they are through. */
static void wait_for(struct ranks *ranks, int n)
{
	while (__atomic_load_n(&ranks->number[0], __ATOMIC_SEQ_CST) < n)
		usleep(1000);
}

static void say(struct ranks *ranks)
{
	__atomic_add_fetch(&ranks->number[0], 1, __ATOMIC_SEQ_CST);
}

/* Long enough for a busy machine to come to the first call in time. */
#define DEADLINE_MS	(getenv("NPULINK_SLOW") ? 15000 : 3000)

/* Nothing but the deadline ends what the others do: rank 2 comes when they are through. */
static int never_comes(struct ranks *ranks, struct coll_comm *comm)
{
	uint64_t start;
	int rc, took;

	/* Comes to the first call, then computes for too long. */
	rc = coll_barrier(comm);
	if (coll_comm_rank(comm) == 2) {
		wait_for(ranks, RANKS - 1);
		return rc ? rc : expect(ranks, comm, coll_barrier(comm), -ETIMEDOUT, "this rank (2)");
	}
	start = now_ms();
	rc = rc ? rc : allreduce(comm, 1000);
	took = now_ms() - start;
	ranks->number[1 + coll_comm_rank(comm)] = took;
	say(ranks);
	return expect(ranks, comm, rc, -ETIMEDOUT, "deadline");
}

static void test_deadline(void)
{
	struct ranks *ranks = ranks_new(RANKS);
	int bad, longest = 0;

	ranks->config.deadline_ns = DEADLINE_MS * 1000000ULL;
	bad = ranks_run(ranks, never_comes);
	/* Of who came first: others may have come late, and it ends for all. */
	for (int i = 0; i < RANKS; i++)
		if (ranks->number[1 + i] > longest)
			longest = ranks->number[1 + i];
	ksft_print_msg("ended after %d ms\n", longest);
	ksft_test_result(!bad && longest >= DEADLINE_MS * 9 / 10,
			 "deadline: a rank is late\n");
	ranks_free(ranks);
}

/* What applications have that choose nothing: a minute at least (coll_deadline). */
static void test_default_deadline(void)
{
	struct ranks *ranks;
	int bad, longest = 0;

	if (!getenv("NPULINK_SOAK")) {
		ksft_test_result_skip("deadline: the default one: takes a minute, only in make soak\n");
		return;
	}
	ranks = ranks_new(RANKS);
	ranks->config.deadline_ns = COLL_DEADLINE_AUTO;
	bad = ranks_run(ranks, never_comes);
	for (int i = 0; i < RANKS; i++)
		if (ranks->number[1 + i] > longest)
			longest = ranks->number[1 + i];
	ksft_print_msg("ended after %d ms\n", longest);
	ksft_test_result(!bad && longest >= 54000, "deadline: the default one\n");
	ranks_free(ranks);
}

static int never_joins(struct ranks *ranks, struct coll_comm *comm)
{
	return expect(ranks, comm, coll_barrier(comm), -ETIMEDOUT, "waited");
}

static void test_never_joins(void)
{
	struct ranks *ranks = ranks_new(3);
	pid_t pid[2];
	int bad = 0;

	ranks->config.deadline_ns = 500000000;
	for (int i = 0; i < 2; i++)
		pid[i] = rank_start(ranks, i, never_joins);
	for (int i = 0; i < 2; i++)
		bad += rank_join_end(ranks, i, pid[i]);
	ksft_test_result(!bad, "deadline: a rank never joins\n");
	ranks_free(ranks);
}

static int no_deadline(struct ranks *ranks, struct coll_comm *comm)
{
	if (coll_comm_rank(comm) == 1)
		usleep(1200000);
	return coll_barrier(comm);
}

static void test_no_deadline(void)
{
	struct ranks *ranks = ranks_new(2);

	ranks->config.deadline_ns = 0;
	ksft_test_result(!ranks_run(ranks, no_deadline), "deadline: 0 is none\n");
	ranks_free(ranks);
}

static int wait_deadline(struct ranks *ranks, struct coll_comm *comm)
{
	struct coll_request *req;
	struct timespec ts;
	int rc = coll_barrier(comm);

	if (rc)
		return rc;
	if (coll_comm_rank(comm) == 1) {
		wait_for(ranks, 1);
		return coll_barrier(comm);
	}
	rc = coll_ibarrier(comm, &req);
	if (rc)
		return rc;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	rc = coll_wait_deadline(&req, ts.tv_sec * 1000000000ULL + ts.tv_nsec + 100000000);
	say(ranks);
	if (rc != -EINPROGRESS)
		return rank_fail(ranks, 0, "coll_wait_deadline: %d", rc);
	return coll_wait(&req);
}

/* ---- abort */

static int aborts(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	struct coll_state state = COLL_STATE_INIT;
	int rc = warm_up(ranks, comm);

	if (rc)
		return rc;
	if (rank == 1) {
		usleep(200000);
		rc = coll_comm_abort(comm, 4711);
		if (rc)
			return rc;
	}
	rc = expect(ranks, comm, allreduce(comm, 50000), -ECANCELED,
		    rank == 1 ? "this rank (1) aborted the communicator (code 4711)" :
		    "rank 1 aborted the communicator (code 4711)");
	if (rc)
		return rc;
	rc = coll_comm_status(comm, &state);
	if (rc || state.status != -ECANCELED || state.rank != 1 || state.code != 4711 ||
	    strcmp(state.cause, "abort"))
		return rank_fail(ranks, rank, "status %d, rank %u, code %u", state.status,
				 state.rank, state.code);
	return expect(ranks, comm, coll_barrier(comm), -ECANCELED, "4711");
}

/* ---- mismatch */

static int calls_differ(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	int rc = warm_up(ranks, comm);

	if (rc)
		return rc;
	if (rank == 3)
		rc = coll_broadcast(comm, data[0], data[1], 77, COLL_FLOAT32, 3);
	else
		rc = allreduce(comm, 1000);
	rc = expect(ranks, comm, rc, -EPROTO, "rank 3 broadcast of 77 float32, root 3");
	return rc ? rc : expect(ranks, comm, coll_barrier(comm), -EPROTO,
				"allreduce of 1000 int32 (sum)");
}

static int counts_differ(struct ranks *ranks, struct coll_comm *comm)
{
	size_t counts[RANKS] = { 1, 2, 3, coll_comm_rank(comm) == 2 ? 5 : 4 };
	int rc = warm_up(ranks, comm);

	if (rc)
		return rc;
	rc = coll_allgatherv(comm, data[0], data[1], counts, NULL, COLL_INT32);
	return expect(ranks, comm, rc, -EPROTO, "planned it differently");
}

static int sizes_differ(struct ranks *ranks, struct coll_comm *comm)
{
	int rc = warm_up(ranks, comm);

	if (rc)
		return rc;
	if (coll_comm_rank(comm) == 0)
		rc = coll_send(comm, data[0], 10, COLL_INT32, 1);
	else if (coll_comm_rank(comm) == 1)
		rc = coll_recv(comm, data[0], 11, COLL_INT32, 0);
	else
		rc = coll_barrier(comm);
	return expect(ranks, comm, rc, -EPROTO, "message of 1");
}

/* ---- a rank leaves, exits, is killed */

static int leaves(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	int rc = warm_up(ranks, comm);

	if (rc || rank == 2)
		return rc;
	return expect(ranks, comm, allreduce(comm, 1000), -ESHUTDOWN, "rank 2 left");
}

/* The root alone is wrong, is told so, and gives up, while the others wait for it. */
static int root_is_refused(struct ranks *ranks, struct coll_comm *comm)
{
	static const size_t counts[RANKS] = { 100, 20000, 300, 400 };
	bool gathers = ranks->number[1];
	int rc, *root;

	pthread_barrier_wait(&ranks->barrier);
	root = coll_comm_rank(comm) ? data[1] : NULL;
	if (root)
		say(ranks);
	else
		wait_for(ranks, RANKS - 1);
	rc = gathers ? coll_gatherv(comm, data[0], root, counts, NULL, COLL_INT32, 0) :
	     coll_scatterv(comm, root, data[0], counts, NULL, COLL_INT32, 0);
	return root ? expect(ranks, comm, rc, -ESHUTDOWN, "rank 0 left") :
	       expect(ranks, comm, rc, -EINVAL, "buffer is NULL");
}

static void test_root_is_refused(void)
{
	int bad = 0;

	for (int gathers = 0; gathers < 2; gathers++) {
		struct ranks *ranks = ranks_new(RANKS);

		ranks->number[1] = gathers;
		bad += ranks_run(ranks, root_is_refused);
		ranks_free(ranks);
	}
	ksft_test_result(!bad, "a root is refused and leaves\n");
}

static int exits(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	int rc = warm_up(ranks, comm);

	if (rank == 2)
		_exit(0);
	return rc ? rc : expect(ranks, comm, allreduce(comm, 1000), -EOWNERDEAD, "rank 2");
}

/* Calls one collective after the other until it hears of the death. */
static int hears_of_death(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	int rc = warm_up(ranks, comm);

	if (rc)
		return rc;
	while (!rc) {
		rc = allreduce(comm, 100);
		__atomic_store_n(&ranks->number[0], 1, __ATOMIC_RELAXED);
	}
	ranks->number[1 + rank] = now_ms() - ranks->time_ms;
	rc = expect(ranks, comm, rc, -EOWNERDEAD, "rank 2 was killed by signal 9");
	return rc ? rc : expect(ranks, comm, coll_barrier(comm), -EOWNERDEAD, "rank 2");
}

static void test_kill(void)
{
	int bad = 0, best = INT_MAX, allowed = getenv("NPULINK_SLOW") ? 10000 : 1000;

	for (int round = 0; round < 5; round++) {
		struct ranks *ranks = ranks_new(RANKS);
		pid_t pid[RANKS];
		int slowest = 0;

		for (int i = 0; i < RANKS; i++)
			pid[i] = rank_start(ranks, i, hears_of_death);
		while (!__atomic_load_n(&ranks->number[0], __ATOMIC_RELAXED))
			usleep(1000);
		usleep(20000 + 7000 * round);
		ranks->time_ms = now_ms();
		kill(pid[2], SIGKILL);
		waitpid(pid[2], NULL, 0);
		for (int i = 0; i < RANKS; i++) {
			if (i == 2)
				continue;
			bad += rank_join_end(ranks, i, pid[i]);
			if (ranks->number[1 + i] > slowest)
				slowest = ranks->number[1 + i];
		}
		ksft_print_msg("the slowest rank heard of it after %d ms\n", slowest);
		best = slowest < best ? slowest : best;
		ranks_free(ranks);
	}
	/* A busy machine may hold up a rank, though not in each round. */
	ksft_test_result(!bad && best <= allowed, "kill -9: all others name the dead rank\n");
}

/* ---- descriptors and processes */

static int forks(struct ranks *ranks, struct coll_comm *comm)
{
	int rc = warm_up(ranks, comm), status;
	pid_t pid;

	if (rc)
		return rc;
	pid = fork();
	if (!pid) {
		rc = expect(ranks, comm, coll_barrier(comm), -EPERM, "forked");
		_exit(rc || coll_comm_destroy(comm));
	}
	waitpid(pid, &status, 0);
	if (status)
		return rank_fail(ranks, coll_comm_rank(comm), "child: %s",
				 coll_comm_last_error(comm));
	return allreduce(comm, 50000);
}

/* Who closes all descriptors closes ours; another communicator's file gets the number. */
static int descriptor_taken(struct ranks *ranks, struct coll_comm *comm)
{
	struct coll_config config = COLL_CONFIG_INIT;
	struct coll_state state = COLL_STATE_INIT;
	struct coll_comm *comms[2];
	struct coll_unique_id id;
	void *mem;
	int fd = -1, rc = 0;

	config.device = "0";
	for (int i = 0; i < 2 && !rc; i++) {
		coll_get_unique_id(&id);
		rc = coll_comm_init_rank(&comms[i], 1, &id, 0, &config);
		if (rc)
			break;
		if (i && coll_comm_fd(comms[1]) != fd)
			return rank_fail(ranks, 0, "it has another number");
		fd = coll_comm_fd(comms[i]);
		if (!i)
			close(fd);
	}
	rc = rc ? rc : coll_mem_alloc(comms[1], COLL_MEMORY_HOST, 4096, &mem);
	rc = rc ? rc : coll_comm_destroy(comms[0]);
	rc = rc ? rc : coll_comm_status(comms[1], &state);
	rc = rc ? rc : coll_mem_free(comms[1], mem);
	return rc ? rank_fail(ranks, 0, "%d", rc) : coll_comm_destroy(comms[1]);
}

int main(void)
{
	ksft_print_header();
	if (!have_device())
		ksft_exit_skip("no /dev/npulink/npu0\n");
	ksft_set_plan(15);
	test_deadline();
	test_default_deadline();
	test_never_joins();
	test_no_deadline();
	ksft_test_result(!ranks_of(2, wait_deadline), "deadline: only the wait ends\n");
	ksft_test_result(!ranks_of(RANKS, aborts), "abort: all ranks learn who and why\n");
	ksft_test_result(!ranks_of(RANKS, calls_differ), "mismatch: different collectives\n");
	ksft_test_result(!ranks_of(RANKS, counts_differ), "mismatch: different counts\n");
	ksft_test_result(!ranks_of(RANKS, sizes_differ), "mismatch: send and receive\n");
	ksft_test_result(!ranks_of(RANKS, leaves), "a rank leaves\n");
	test_root_is_refused();
	ksft_test_result(!ranks_of(RANKS, exits), "a rank exits\n");
	test_kill();
	ksft_test_result(!ranks_of(1, descriptor_taken),
			 "descriptor: another communicator has got its number\n");
	ksft_test_result(!ranks_of(RANKS, forks), "fork: the child may not, the parent goes on\n");
	ksft_finished();
}
