// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * coll_share.c - large collectives that all ranks' tasks run together: the results are the same
 * with and without, in and out of place, whoever works on them: waiters that get signals, workers
 * of processes that compute or are stopped; when a rank is killed in the middle, the others are
 * told so, and nothing is written to their memory afterwards.
 *
 * npulink-test: timeout=300
 */
#include <sys/random.h>
#include "coll_ranks.h"
#include "lib/run/comm.h"
#include "lib/run/request.h"
#include "links.h"
#include "raw.h"
#include "graphs.h"

#define RANKS	4
#define MOST	(600 << 10)	/* elements of a buffer */

/* Elements of all ranks; the debug kernel has time for the first ones. */
static const size_t totals[] = { 160000, 399960, 262144, MOST };

static bool slow(void)
{
	return getenv("NPULINK_SLOW");
}

/* Rounds of what does the same again. */
static unsigned int rounds(unsigned int usual, unsigned int soak)
{
	return getenv("NPULINK_SOAK") ? soak : usual;
}

static void pause_us(unsigned int us)
{
	struct timespec ts = { .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000L };

	nanosleep(&ts, NULL);
}

static uint64_t hash(uint64_t h, const void *data, size_t len)
{
	const uint32_t *word = data;

	for (size_t i = 0; i < len / 4; i++)
		h = (h ^ word[i]) * 1099511628211ULL;
	return h;
}

/* ---- the same results, and no bells ---- */

struct buffers {
	float *in, *out;
};

static struct buffers buffers_new(void)
{
	struct buffers b = { malloc(MOST * sizeof(float)), malloc(MOST * sizeof(float)) };

	if (!b.in || !b.out)
		abort();
	return b;
}

/* Emulators are slow to divide. */
static void fill(float *to, size_t n, unsigned int rank, unsigned int round)
{
	unsigned int k = (rank * 13 + round) % 1000;
	float third[1000];

	for (unsigned int i = 0; i < 1000; i++)
		third[i] = (float)i / 3;
	for (size_t i = 0; i < n; i++) {
		to[i] = third[k];
		k = k + 7 < 1000 ? k + 7 : k - 993;
	}
}

/* One call of each kind, in place or not. Returns a hash of what came out. */
static int one_round(struct coll_comm *comm, const struct buffers *b, size_t count,
		     unsigned int round, bool in_place, uint64_t *h)
{
	unsigned int rank = coll_comm_rank(comm), n = coll_comm_size(comm);
	void *send = in_place ? COLL_IN_PLACE : b->in;
	float *in = in_place ? b->out : b->in;
	size_t all = count * n;
	int rc;

	fill(in, all, rank, round);
	rc = coll_allreduce(comm, send, b->out, all, COLL_FLOAT32, COLL_SUM);
	*h = hash(*h, b->out, all * sizeof(float));
	fill(in, all, rank, round + 1);
	if (!rc)
		rc = coll_allreduce(comm, send, b->out, all, COLL_FLOAT32, COLL_AVG);
	*h = hash(*h, b->out, all * sizeof(float));
	fill(in_place ? in + rank * count : in, count, rank, round + 2);
	if (!rc)
		rc = coll_allgather(comm, send, b->out, count, COLL_FLOAT32);
	*h = hash(*h, b->out, all * sizeof(float));
	fill(in, all, rank, round + 3);
	if (!rc)
		rc = coll_alltoall(comm, send, b->out, count, COLL_FLOAT32);
	*h = hash(*h, b->out, all * sizeof(float));
	fill(in, all, rank, round + 4);
	if (!rc)
		rc = coll_reduce_scatter(comm, send, b->out, count, COLL_FLOAT32, COLL_MAX);
	*h = hash(*h, in_place ? b->out + rank * count : b->out, count * sizeof(float));
	fill(in, all, rank, round + 5);
	if (!rc)
		rc = coll_barrier(comm);
	if (!rc)
		rc = coll_broadcast(comm, send, b->out, all, COLL_FLOAT32, 1);
	*h = hash(*h, b->out, all * sizeof(float));
	fill(in, all, rank, round + 6);
	if (!rc)
		rc = coll_barrier(comm);
	if (!rc)
		rc = coll_reduce(comm, send, b->out, all, COLL_FLOAT32, COLL_SUM, 1);
	if (rank == 1)
		*h = hash(*h, b->out, all * sizeof(float));
	return rc;
}

/* Every rank leaves a hash of all its results. */
static int all_kinds(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm), n = coll_comm_size(comm), round = 0;
	struct buffers b = buffers_new();
	uint64_t h = 14695981039346656037ULL;
	int rc = 0;

	for (size_t i = 0; i < (slow() || n != 3 ? 2 : sizeof(totals) / sizeof(*totals)); i++)
		/* In place or not: the first time it is found out how, then it is done. */
		for (unsigned int k = 0; k < rounds(4, 6) && !rc; k++)
			rc = one_round(comm, &b, totals[i] / n, round++, k & 1, &h);
	memcpy(&ranks->number[2 * rank], &h, sizeof(h));
	free(b.in);
	free(b.out);
	return rc;
}

static int measure(unsigned int n, const char *graphs, struct links *links, int *result)
{
	struct ranks *ranks = ranks_new(n);
	struct links before;
	int bad;

	bad = set_graphs(graphs) || links_read(&before);
	bad = bad || ranks_run(ranks, all_kinds) || links_read(links);
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

static void with_and_without(unsigned int n)
{
	static struct links with, without;
	int a[64], b[64], bad;

	bad = measure(n, "N", &without, a) || measure(n, "Y", &with, b);
	ksft_test_result(!bad && !memcmp(a, b, sizeof(a)), "%u ranks: the same, bit for bit\n", n);
	ksft_test_result(!bad && !memcmp(with.steps, without.steps, sizeof(with.steps)) &&
			 !memcmp(with.bytes, without.bytes, sizeof(with.bytes)),
			 "%u ranks: the same on the links\n", n);
	ksft_print_msg("%llu bells without, %llu with\n", (unsigned long long)without.bells,
		       (unsigned long long)with.bells);
	ksft_test_result(!bad && with.bells * 3 < without.bells * 2, "%u ranks: with fewer bells\n",
			 n);
}

#define NONTEMPORAL	"/sys/module/npulink/parameters/nontemporal_kib"
#define ENGINE		"/sys/kernel/debug/npulink_soft/engine"

/* Blocks of results that were stored past the cache. */
static unsigned long stores(void)
{
	FILE *f = fopen(ENGINE, "re");
	unsigned long n = 0;
	char line[256];

	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "stores %lu", &n);
	if (f)
		fclose(f);
	return n;
}

/* What is read and written together counts as more than a cache has, or as less. */
static void past_the_cache(unsigned int n, const char *engine)
{
	struct links links;
	unsigned long none, some;
	int a[64], b[64], bad;

	if (access(ENGINE, W_OK) || raw_write(ENGINE, engine)) {
		ksft_test_result_skip("past the cache: no %s\n", engine);
		return;
	}
	none = stores();
	bad = measure(n, "Y", &links, a);
	none = stores() - none;
	some = stores();
	bad = bad || raw_write(NONTEMPORAL, "0") || measure(n, "Y", &links, b);
	some = stores() - some;
	raw_write(NONTEMPORAL, "65536");
	raw_write(ENGINE, "auto");
	ksft_test_result(!bad && !memcmp(a, b, sizeof(a)) && !none && some,
			 "past the cache: the same, with %s\n", engine);
}

/* ---- who works ---- */

/* Integers, so that every element can be foretold. */
static unsigned int sums_wrong(const int *out, size_t n, unsigned int ranks, int round)
{
	unsigned int wrong = 0;

	for (size_t i = 0; i < n; i++)
		wrong += out[i] != (int)(ranks * (ranks - 1) / 2 + ranks * (i + round));
	return wrong;
}

static void sums_fill(int *in, size_t n, unsigned int rank, int round)
{
	for (size_t i = 0; i < n; i++)
		in[i] = rank + i + round;
}

static void nothing(int sig)
{
	(void)sig;
}

static int with_signals(struct ranks *ranks, struct coll_comm *comm)
{
	const struct itimerspec often = { .it_value.tv_nsec = 3000000,
					  .it_interval.tv_nsec = 3000000 };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
	unsigned int rank = coll_comm_rank(comm), n = coll_comm_size(comm), wrong = 0;
	struct sigaction sa = { .sa_handler = nothing };
	int *in = malloc(2 * MOST * sizeof(*in)), *out = in + MOST, rc = 0;
	timer_t timer;

	sigaction(SIGUSR1, &sa, NULL);
	if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &often, NULL))
		return rank_fail(ranks, rank, "timer: %m");
	for (unsigned int round = 0; round < rounds(6, 20) && !rc; round++) {
		sums_fill(in, MOST, rank, round);
		rc = coll_allreduce(comm, in, out, MOST, COLL_INT32, COLL_SUM);
		wrong += sums_wrong(out, MOST, n, round);
	}
	timer_delete(timer);
	free(in);
	return rc ? rc : wrong ? rank_fail(ranks, rank, "%u sums are wrong", wrong) : 0;
}

/* Several at a time, and nobody waits at first: then it is the workers'. */
static int requests(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm), n = coll_comm_size(comm), wrong = 0;
	int *in = malloc(2 * MOST * sizeof(*in)), *out = in + MOST, rc = 0;
	struct coll_request *req[6];
	size_t each = MOST / 6;

	for (int round = 0; round < 10 && !rc; round++) {
		for (int i = 0; i < 6 && !rc; i++) {
			sums_fill(in + i * each, each, rank, round + i);
			rc = coll_iallreduce(comm, in + i * each, out + i * each, each, COLL_INT32,
					     COLL_SUM, &req[i]);
		}
		if (round & 1)
			pause_us(rank * 5000);
		for (int i = 0; i < 6 && !rc; i++) {
			rc = coll_wait(&req[i]);
			wrong += sums_wrong(out + i * each, each, n, round + i);
		}
	}
	free(in);
	return rc ? rc : wrong ? rank_fail(ranks, rank, "%u sums are wrong", wrong) : 0;
}

/* Rank 0 stops as soon as it has called; the others tell when they are through. */
static int one_stops(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm), n = coll_comm_size(comm), wrong = 0;
	int *in = malloc(2 * MOST * sizeof(*in)), *out = in + MOST, rc = 0;
	struct coll_request *req;

	for (int round = 0; round < 6 && !rc; round++) {
		sums_fill(in, MOST, rank, round);
		rc = coll_iallreduce(comm, in, out, MOST, COLL_INT32, COLL_SUM, &req);
		if (!rc && round == 5 && !rank)
			raise(SIGSTOP);
		rc = rc ? rc : coll_wait(&req);
		wrong += sums_wrong(out, MOST, n, round);
	}
	__atomic_add_fetch(&ranks->number[0], 1, __ATOMIC_SEQ_CST);
	free(in);
	return rc ? rc : wrong ? rank_fail(ranks, rank, "%u sums are wrong", wrong) : 0;
}

static void stopped(void)
{
	struct ranks *ranks = ranks_new(RANKS);
	uint64_t end = now_ms() + 60000;
	pid_t pid[RANKS];
	int bad = 0, n;

	for (unsigned int i = 0; i < RANKS; i++)
		pid[i] = rank_start(ranks, i, one_stops);
	do {
		pause_us(1000);
		n = __atomic_load_n(&ranks->number[0], __ATOMIC_SEQ_CST);
	} while (n < RANKS - 1 && now_ms() < end);
	kill(pid[0], SIGCONT);
	for (unsigned int i = 0; i < RANKS; i++)
		bad += rank_join_end(ranks, i, pid[i]);
	ksft_test_result(!bad && n == RANKS - 1, "the others do not need one that is stopped\n");
	ranks_free(ranks);
}

/* In place, too, where the root only sends: then nothing is rung at all once it is known how. */
static int in_place_broadcasts(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm), wrong = 0;
	int *buf = malloc(MOST * sizeof(*buf)), rc = 0;

	for (int round = 0; round < 20 && !rc; round++) {
		for (size_t i = 0; i < MOST; i++)
			buf[i] = rank == 2 ? (int)i + round : -1;
		/* How is found out when all are at it: those who need not wait for all do not. */
		rc = coll_barrier(comm);
		if (!rc)
			rc = coll_broadcast(comm, rank == 2 ? COLL_IN_PLACE : NULL, buf, MOST,
					    COLL_INT32, 2);
		for (size_t i = 0; i < MOST; i++)
			wrong += buf[i] != (int)i + round;
	}
	free(buf);
	return rc ? rc : wrong ? rank_fail(ranks, rank, "%u are wrong", wrong) : 0;
}

static void broadcasts(void)
{
	static struct links before, between, after;
	unsigned long long without, with;
	int bad, try = 0;

	/* How is found out only when all happen to be at it at a time. */
	do {
		bad = set_graphs("N") || links_read(&before) ||
		      ranks_of(RANKS, in_place_broadcasts);
		bad = bad || links_read(&between) || set_graphs("Y") ||
		      ranks_of(RANKS, in_place_broadcasts) || links_read(&after);
		without = between.bells - before.bells;
		with = after.bells - between.bells;
		ksft_print_msg("%llu bells without, %llu with\n", without, with);
	} while (!bad && with * 4 >= without && ++try < 3);
	ksft_test_result(!bad && with * 4 < without, "broadcasts in place\n");
}

/* ---- failures ---- */

/* Rank 3 leaves in good order; the others find that out without waiting for it. */
static int one_leaves(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	int *buf = malloc(MOST * sizeof(*buf)), rc = 0;
	uint64_t end = now_ms() + 20000;
	struct coll_request *req;

	memset(buf, 0, MOST * sizeof(*buf));
	for (int i = 0; i < 5 && !rc; i++)
		rc = coll_broadcast(comm, COLL_IN_PLACE, buf, MOST, COLL_INT32, 0);
	if (rc || rank == 3) {
		free(buf);
		return rc;
	}
	pause_us(300000);
	/* It does not wait, so that no search for deadlocks helps it. */
	rc = coll_ibroadcast(comm, COLL_IN_PLACE, buf, MOST, COLL_INT32, 0, &req);
	if (!rc)
		rc = -EINPROGRESS;
	while (rc == -EINPROGRESS && now_ms() < end) {
		rc = coll_test(&req);
		pause_us(1000);
	}
	/* A rank whose own steps are over before may end well, but its end is not the others'. */
	__atomic_add_fetch(&ranks->number[0], 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&ranks->number[0], __ATOMIC_SEQ_CST) < RANKS - 1 && now_ms() < end)
		pause_us(1000);
	if (rc && rc != -ESHUTDOWN)
		return rank_fail(ranks, rank, "%d: %s", rc, coll_comm_last_error(comm));
	_exit(0);
}

#define KILLS	rounds(4, 24)

/* Over and over, until rank 0 is killed; then nothing may change any more. */
static int until_killed(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	int *out = malloc(MOST * sizeof(*out)), rc = 0;
	size_t i;

	memset(out, 0, MOST * sizeof(*out));
	while (!rc) {
		rc = coll_allreduce(comm, COLL_IN_PLACE, out, MOST, COLL_INT32, COLL_SUM);
		if (!rank)
			__atomic_add_fetch(&ranks->number[0], 1, __ATOMIC_SEQ_CST);
	}
	memset(out, 0x5a, MOST * sizeof(*out));
	pause_us(20000);
	for (i = 0; i < MOST && out[i] == 0x5a5a5a5a; i++)
		;
	free(out);
	if (rc != -EOWNERDEAD || !strstr(coll_comm_last_error(comm), "rank 0"))
		return rank_fail(ranks, rank, "%d: %s", rc, coll_comm_last_error(comm));
	return i < MOST ? rank_fail(ranks, rank, "written after the end") : 0;
}

static void killed(void)
{
	int bad = 0;

	for (unsigned int k = 0; k < KILLS && !bad; k++) {
		struct ranks *ranks = ranks_new(RANKS);
		unsigned int us = 0;
		pid_t pid[RANKS];

		for (unsigned int i = 0; i < RANKS; i++)
			pid[i] = rank_start(ranks, i, until_killed);
		while (__atomic_load_n(&ranks->number[0], __ATOMIC_SEQ_CST) < 5)
			pause_us(200);
		if (getrandom(&us, sizeof(us), 0) < 0)
			us = k * 1000;
		pause_us(us % 20000);
		kill(pid[0], SIGKILL);
		waitpid(pid[0], NULL, 0);
		for (unsigned int i = 1; i < RANKS; i++)
			bad += rank_join_end(ranks, i, pid[i]);
		ranks_free(ranks);
	}
	ksft_test_result(!bad, "one is killed, and nothing is written after that\n");
}

/* A deadline that is shorter than the work; what it is told is none of our business here. */
static int too_late(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	int *out = malloc(MOST * sizeof(*out)), rc = 0;

	memset(out, 0, MOST * sizeof(*out));
	/* It has to be there before the others' time is over. */
	pthread_barrier_wait(&ranks->barrier);
	for (int i = 0; i < 2000 && !rc; i++)
		rc = coll_allreduce(comm, COLL_IN_PLACE, out, MOST, COLL_INT32, COLL_SUM);
	free(out);
	if (rc && rc != -ETIMEDOUT)
		return rank_fail(ranks, rank, "%d", rc);
	return 0;
}

static void deadlines(void)
{
	struct ranks *ranks = ranks_new(RANKS);

	ranks->config.deadline_ns = 4000000;
	ksft_test_result(!ranks_run(ranks, too_late), "deadlines in the middle\n");
	ranks_free(ranks);
}

int main(void)
{
	struct ranks *ranks;

	ksft_print_header();
	/* What ranks do by themselves is in coll_board. */
	if (!have_device() || set_boards("N"))
		ksft_exit_skip("no device, or not root\n");
	ksft_set_plan(18);
	with_and_without(2);
	with_and_without(3);
	with_and_without(8);
	past_the_cache(3, "sse2");
	past_the_cache(3, "avx2");
	ksft_test_result(!ranks_of(RANKS, with_signals), "signals all the time\n");
	ksft_test_result(!ranks_of(RANKS, requests), "several at a time\n");
	broadcasts();
	stopped();
	ranks = ranks_new(RANKS);
	ranks->config.deadline_ns = 0;
	ksft_test_result(!ranks_run(ranks, one_leaves), "one leaves\n");
	ranks_free(ranks);
	killed();
	deadlines();
	set_boards("Y");
	ksft_finished();
}
