// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * coll_meet.c - small collectives that the last rank to post runs for all: the results are
 * the same with and without, whatever plans the ranks come with and whenever they come;
 * ranks that wait for such a meeting are told of failures and deadlines like others.
 *
 * npulink-test: timeout=180
 */
#include <sched.h>
#include <sys/time.h>
#include <time.h>
#include "coll_ranks.h"
#include "lib/run/comm.h"
#include "lib/run/request.h"
#include "links.h"
#include "graphs.h"

#define RANKS	4

static void pause_us(unsigned int us)
{
	struct timespec ts = { .tv_nsec = us * 1000L };

	nanosleep(&ts, NULL);
}

/* A number that all ranks agree on, unless the rank is among the ingredients. */
static unsigned int mix(unsigned int a, unsigned int b)
{
	a = a * 2654435761U + b * 40503U;
	return (a ^ a >> 15) * 2246822519U >> 16;
}

/* ---- the same results, and no bells ---- */

static int sums(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	double in[32], out[32];
	int rc = 0, i;

	for (i = 0; i < 32; i++)
		in[i] = (rank + 1) / (3.0 + i);
	for (i = 0; i < 20 && !rc; i++) {
		rc = coll_allreduce(comm, in, out, 32, COLL_FLOAT64, COLL_SUM);
		rc = rc ? rc : coll_barrier(comm);
	}
	/* Rank 0 leaves what came out. */
	if (!rc && !rank)
		memcpy(ranks->number, out, sizeof(ranks->number));
	if (!rc && rank) {
		rc = coll_barrier(comm);
		if (!rc && memcmp(ranks->number, out, sizeof(ranks->number)))
			return rank_fail(ranks, rank, "not what rank 0 has");
	} else if (!rc) {
		rc = coll_barrier(comm);
	}
	return rc;
}

static int measure(const char *graphs, struct links *links, int *result)
{
	struct ranks *ranks = ranks_new(RANKS);
	struct links before;
	int bad;

	bad = set_graphs(graphs) || links_read(&before);
	bad = bad || ranks_run(ranks, sums) || links_read(links);
	links->bells -= before.bells;
	for (int from = 0; from < LINKS_DEVS; from++) {
		for (int to = 0; to < LINKS_DEVS; to++) {
			links->steps[from][to] -= before.steps[from][to];
			links->bytes[from][to] -= before.bytes[from][to];
		}
	}
	memcpy(result, ranks->number, sizeof(ranks->number));
	ranks_free(ranks);
	return bad;
}

static void with_and_without(void)
{
	static struct links with, without;
	int a[64], b[64], bad;

	bad = measure("N", &without, a) || measure("Y", &with, b);
	ksft_test_result(!bad && !memcmp(a, b, sizeof(a)), "the same sums, bit for bit\n");
	ksft_test_result(!bad && !memcmp(with.steps, without.steps, sizeof(with.steps)) &&
			 !memcmp(with.bytes, without.bytes, sizeof(with.bytes)),
			 "the same on the links\n");
	ksft_print_msg("%llu bells without, %llu with\n", (unsigned long long)without.bells,
		       (unsigned long long)with.bells);
	ksft_test_result(!bad && with.bells * 4 < without.bells, "with fewer bells\n");
}

/* ---- how much: the last one alone, or all of them, or by steps ---- */

#define MANY	16

/* A mesh of so many touches 47 times that; one alone 2 * 256 KiB * 16 / 2 with 2 processors. */
static size_t many_count;

static int many_sums(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm), wrong = 0;
	int *buf = malloc(2 * many_count * sizeof(*buf)), *out = buf + many_count, rc = 0;

	for (size_t i = 0; i < many_count; i++)
		buf[i] = rank + i;
	for (int n = 0; n < 20 && !rc; n++) {
		memset(out, 0, many_count * sizeof(*out));
		rc = coll_allreduce(comm, buf, out, many_count, COLL_INT32, COLL_SUM);
		for (size_t i = 0; i < many_count && !rc; i++)
			wrong += out[i] != (int)(MANY * i + MANY * (MANY - 1) / 2);
	}
	free(buf);
	return rc ? rc : wrong ? rank_fail(ranks, rank, "%u sums are wrong", wrong) : 0;
}

/* Bells of that; ~0: it failed. */
static uint64_t many_bells(const char *algorithm, size_t bytes)
{
	struct ranks *ranks = ranks_new(MANY);
	struct links before, after;
	int bad;

	many_count = bytes / sizeof(int);
	ranks->config.algorithm = algorithm;
	bad = links_read(&before) || ranks_run(ranks, many_sums) || links_read(&after);
	ranks_free(ranks);
	return bad ? ~0ULL : after.bells - before.bells;
}

static void more_for_all(void)
{
	unsigned long long little = many_bells("allreduce:mesh", 64 << 10);
	unsigned long long much = many_bells("allreduce:mesh", 128 << 10);
	unsigned long long steps = many_bells("allreduce:rhd", 128 << 10);

	ksft_print_msg("16 ranks, mesh: %llu bells with 64 KiB, %llu with 128, rhd %llu\n",
		       little, much, steps);
	ksft_test_result(steps != ~0ULL && little * 2 < steps && much * 2 < steps,
			 "with much data, too, but only where nothing depends on anything\n");
}

/* ---- ranks with plans of all kinds, early and late ---- */

static int one_round(struct ranks *ranks, struct coll_comm *comm, unsigned int round, bool odd)
{
	unsigned int rank = coll_comm_rank(comm), n = coll_comm_size(comm), i, p;
	size_t count = 1 + mix(round, 1) % 200;
	static int in[200 * RANKS], out[200 * RANKS];
	int rc = 0, wrong = 0;
	void *send = in;

	/* Each rank has its own mind: plans that differ make a meeting impossible. */
	odd = odd && mix(round, 100 + rank) & 1;
	for (i = 0; i < count * n; i++)
		in[i] = rank * 1000 + i + round;
	switch (mix(round, 2) % 5) {
	case 0:
		if (odd) {
			memcpy(out, in, count * sizeof(*in));
			send = COLL_IN_PLACE;
		}
		rc = coll_allreduce(comm, send, out, count, COLL_INT32, COLL_SUM);
		for (i = 0; i < count; i++)
			wrong += out[i] != (int)(1000 * n * (n - 1) / 2 + n * (i + round));
		break;
	case 1:
		rc = coll_barrier(comm);
		break;
	case 2:
		if (odd) {
			memcpy(out + rank * count, in, count * sizeof(*in));
			send = COLL_IN_PLACE;
		}
		rc = coll_allgather(comm, send, out, count, COLL_INT32);
		for (p = 0; p < n; p++)
			for (i = 0; i < count; i++)
				wrong += out[p * count + i] != (int)(p * 1000 + i + round);
		break;
	case 3:
		if (odd) {
			memcpy(out, in, n * count * sizeof(*in));
			send = COLL_IN_PLACE;
		}
		rc = coll_alltoall(comm, send, out, count, COLL_INT32);
		for (p = 0; p < n; p++)
			for (i = 0; i < count; i++)
				wrong += out[p * count + i] !=
					 (int)(p * 1000 + rank * count + i + round);
		break;
	case 4:
		rc = coll_reduce_scatter(comm, in, out, count, COLL_INT32, COLL_MAX);
		for (i = 0; i < count; i++)
			wrong += out[i] != (int)((n - 1) * 1000 + rank * count + i + round);
		break;
	}
	return rc ? rc : wrong ? rank_fail(ranks, rank, "round %u: wrong data", round) : 0;
}

static int rounds(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm), round;
	int rc = 0;

	for (round = 0; round < 600 && !rc; round++) {
		/* The same few calls again and again, so that graphs are made and used. */
		rc = one_round(ranks, comm, round % 60, round % 120 >= 60);
		if (mix(round, 7 + rank) % 16 == 0)
			pause_us(mix(round, 11) % 500);
	}
	return rc;
}

/* Requests: several meetings of the same plans at a time. */
static int requests(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm), n = coll_comm_size(comm);
	struct coll_request *req[16];
	int in[16], out[16], rc = 0;

	for (int round = 0; round < 40 && !rc; round++) {
		for (int i = 0; i < 16 && !rc; i++) {
			in[i] = rank + i + round;
			rc = coll_iallreduce(comm, &in[i], &out[i], 1, COLL_INT32, COLL_SUM,
					     &req[i]);
			if (mix(round * 16 + i, rank) % 8 == 0)
				pause_us(100);
		}
		for (int i = 0; i < 16 && !rc; i++) {
			rc = coll_wait(&req[i]);
			if (!rc && out[i] != (int)(n * (n - 1) / 2 + n * (i + round)))
				return rank_fail(ranks, rank, "%d is wrong", out[i]);
		}
	}
	return rc;
}

/* ---- failures of ranks that wait for the last one ---- */

static int warm(struct coll_comm *comm)
{
	int rc = 0;

	for (int i = 0; i < 5 && !rc; i++)
		rc = coll_barrier(comm);
	return rc;
}

static int expect(struct ranks *ranks, struct coll_comm *comm, int rc, int want, const char *text)
{
	const char *error = coll_comm_last_error(comm);

	if (rc == want && strstr(error, text))
		return 0;
	return rank_fail(ranks, coll_comm_rank(comm), "%d instead of %d: %s", rc, want, error);
}

static int last_one_dies(struct ranks *ranks, struct coll_comm *comm)
{
	int rc = warm(comm);

	if (!rc && coll_comm_rank(comm) == RANKS - 1) {
		pause_us(200000);
		raise(SIGKILL);
	}
	return rc ? rc : expect(ranks, comm, coll_barrier(comm), -EOWNERDEAD, "rank 3");
}

static int last_one_is_late(struct ranks *ranks, struct coll_comm *comm)
{
	int rc = warm(comm);

	/* Not before the others have given up. */
	while (!rc && coll_comm_rank(comm) == RANKS - 1 &&
	       __atomic_load_n(&ranks->number[0], __ATOMIC_SEQ_CST) < RANKS - 1)
		pause_us(1000);
	if (!rc)
		rc = coll_barrier(comm);
	__atomic_add_fetch(&ranks->number[0], 1, __ATOMIC_SEQ_CST);
	return expect(ranks, comm, rc, -ETIMEDOUT,
		      coll_comm_rank(comm) == RANKS - 1 ? "this rank (3)" : "rank 3");
}

/* Long enough for the search for deadlocks to look at those who wait, twice. */
static int last_one_computes(struct ranks *ranks, struct coll_comm *comm)
{
	int rc = warm(comm);

	if (!rc && coll_comm_rank(comm) == RANKS - 1)
		sleep(getenv("NPULINK_SLOW") ? 12 : 2);
	rc = rc ? rc : coll_barrier(comm);
	return rc ? rc : warm(comm);
}

static void on_signal(int nr)
{
}

/* Who may go on waits for a processor, and is got out of that by signals now and then. */
static int signals(struct ranks *ranks, struct coll_comm *comm)
{
	const struct sigaction sa = { .sa_handler = on_signal };
	const struct itimerval often = { { 0, 700 }, { 0, 700 } }, never = {};
	int i, k, rc = 0, v[2048];

	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	for (i = 0; i < 300 && !rc; i++) {
		for (k = 0; k < 2048; k++)
			v[k] = i + k + coll_comm_rank(comm);
		rc = coll_allreduce(comm, COLL_IN_PLACE, v, 2048, COLL_INT32, COLL_SUM);
		for (k = 0; k < 2048 && !rc; k++)
			if (v[k] != 8 * (i + k) + 28)
				rc = rank_fail(ranks, coll_comm_rank(comm), "%d, not %d: %d", v[k],
					       8 * (i + k) + 28, i);
	}
	setitimer(ITIMER_REAL, &never, NULL);
	return rc;
}

/* Ranks on two processors, however many there are. */
static int crowded(int (*fn)(struct ranks *, struct coll_comm *))
{
	cpu_set_t all, two;
	int cpu, bad;

	CPU_ZERO(&two);
	sched_getaffinity(0, sizeof(all), &all);
	for (cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&two) < 2; cpu++)
		if (CPU_ISSET(cpu, &all))
			CPU_SET(cpu, &two);
	sched_setaffinity(0, sizeof(two), &two);
	bad = ranks_of(8, fn);
	sched_setaffinity(0, sizeof(all), &all);
	return bad;
}

int main(void)
{
	struct ranks *ranks;
	pid_t pid[RANKS];
	int bad = 0;

	ksft_print_header();
	/* What ranks do by themselves is in coll_board. */
	if (!have_device() || set_boards("N"))
		ksft_exit_skip("no device, or not root\n");
	ksft_set_plan(10);
	with_and_without();
	more_for_all();
	ksft_test_result(!ranks_of(RANKS, rounds), "plans that fit together, and that do not\n");
	ksft_test_result(!ranks_of(RANKS, requests), "many meetings at a time\n");
	ksft_test_result(!crowded(signals), "8 ranks on 2 processors, and signals\n");

	ranks = ranks_new(RANKS);
	for (unsigned int i = 0; i < RANKS; i++)
		pid[i] = rank_start(ranks, i, last_one_dies);
	for (unsigned int i = 0; i < RANKS - 1; i++)
		bad += rank_join_end(ranks, i, pid[i]);
	waitpid(pid[RANKS - 1], NULL, 0);
	ksft_test_result(!bad, "the last one dies\n");
	ranks_free(ranks);

	ranks = ranks_new(RANKS);
	/* Long enough for a busy machine to get as far as that. */
	ranks->config.deadline_ns = getenv("NPULINK_SLOW") ? 15000000000 : 3000000000;
	ksft_test_result(!ranks_run(ranks, last_one_is_late), "the last one is late\n");
	ranks_free(ranks);

	ranks = ranks_new(RANKS);
	ranks->config.deadline_ns = 0;
	ksft_test_result(!ranks_run(ranks, last_one_computes),
			 "the last one takes its time, and nobody is accused\n");
	ranks_free(ranks);
	set_boards("Y");
	ksft_finished();
}
