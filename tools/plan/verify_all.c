// SPDX-License-Identifier: GPL-2.0
/*
 * verify_all.c - npulink plan verify --all: every algorithm is proved for each
 * number of ranks up to 64 and for some up to 4,096, by several processes.
 *
 * A job is one row of the table with one number of ranks (or all the small ones).
 * Those with the most steps go first, so that all processes end at about the same
 * time, and as many at a time as fit in what memory is free.
 */
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <coll.h>
#include "lib/algorithm/algorithms.h"
#include "plan/options.h"

#define MAX_RANKS	4096
#define MAX_ROWS	256
#define LARGE		1000
/* What a proof holds for each step of all ranks, at most. */
#define STEP_BYTES	20

/* 0: each number up to 64. */
#define SMALL		0
#define MAX_NUMBERS	32
static uint32_t ranks[MAX_NUMBERS] = { 4096, 4095, 1024, 1000, 128, 127, 100, SMALL };
static uint32_t nnumbers = 8;

struct row {
	uint32_t sets, turned, jobs;	/* jobs that are not done */
	uint64_t steps, messages;
	double seconds;
	char bad[300];
};

struct job {
	const struct coll_algorithm *alg;
	uint32_t row, which;
	uint64_t steps, bytes;	/* of memory */
};

/* What all processes share. */
struct shared {
	pthread_mutex_t lock;
	uint64_t memory, used;
	double seconds;		/* of all processors */
	uint32_t bad;
	uint64_t sets, turned, kib;	/* proofs; of which by symmetry; most memory */
	struct row rows[MAX_ROWS];
	bool taken[MAX_ROWS * MAX_NUMBERS];
};

static struct job jobs[MAX_ROWS * MAX_NUMBERS];
static uint32_t njobs;
static struct shared *shared;
static uint32_t servers[MAX_RANKS];
static uint64_t *counts;

/* The mesh nearest to a square; its rows are servers. */
static struct coll_topo wire(uint32_t p)
{
	struct coll_topo t = { .rows = 1, .server_of = servers };

	for (uint32_t r = 1; r * r <= p; r++)
		if (p % r == 0)
			t.rows = r;
	t.cols = p / t.rows;
	t.nservers = t.rows;
	for (uint32_t i = 0; i < p; i++)
		servers[i] = i / t.cols;
	return t;
}

static struct coll_args call_of(const struct coll_algorithm *alg, uint32_t p,
				const struct coll_topo *topo)
{
	struct coll_args args = {
		.collective = alg->collective, .dtype = NPULINK_FLOAT32, .nranks = p,
		.redop = NPULINK_SUM, .counts = counts, .rcounts = counts, .topo = topo,
		.count = 1,
	};

	if (coll_splits(args.collective))
		args.count = p;
	if (args.collective == NPULINK_COLL_BARRIER)
		args.count = 0;
	args.root = npulink_coll_has_root(args.collective) ? p / 2 : 0;
	return args;
}

/* ---- one job */

static void prove(struct row *row, const struct coll_algorithm *alg, const struct coll_args *args)
{
	struct coll_verify_report report = { };
	struct coll_planned planned;
	uint32_t p = args->nranks;
	struct coll_set set;
	int rc;

	if (alg->supports && alg->supports(args))
		return;
	rc = coll_planned_init(&planned, alg, args, &set);
	if (!rc && p >= LARGE) {
		rc = coll_verify_rotation(&set, &report);
		row->turned += !rc;
	}
	/* Or not all ranks' plans are one, turned. */
	if ((!rc && p < LARGE) || (rc == -EOPNOTSUPP && p >= LARGE))
		rc = coll_verify_set(&set, &report);
	coll_planned_free(&planned);
	row->sets += !rc;
	row->steps += report.steps;
	row->messages += report.messages;
	if (rc)
		snprintf(row->bad, sizeof(row->bad), "%u ranks, root %u: rank %u: %s", p,
			 args->root, report.rank,
			 rc == -EINVAL ? report.reason : coll_strerror(rc));
}

static void prove_ranks(struct row *row, const struct coll_algorithm *alg, uint32_t p)
{
	struct coll_topo topo = wire(p);
	struct coll_args args = call_of(alg, p, &topo);

	if (args.collective == NPULINK_COLL_P2P && p != 2)
		return;
	prove(row, alg, &args);
	if (p >= LARGE || row->bad[0])
		return;
	args.in_place = true;
	args.count += coll_splits(args.collective);
	prove(row, alg, &args);
}

static double seconds(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static void report(const struct coll_algorithm *alg, const struct row *row)
{
	if (row->bad[0])
		printf("%-15s %-18s WRONG: %s\n", coll_collective_name(alg->collective), alg->name,
		       row->bad);
	else
		printf("%-15s %-18s %4u sets, %11" PRIu64 " messages, %3.0f s%s\n",
		       coll_collective_name(alg->collective), alg->name, row->sets, row->messages,
		       row->seconds, row->turned ? "; from 1000 ranks on by symmetry" : "");
	fflush(stdout);
}

static void run(const struct job *job)
{
	struct row mine = { }, *row = &shared->rows[job->row];
	double start = seconds(CLOCK_PROCESS_CPUTIME_ID);

	if (ranks[job->which] != SMALL)
		prove_ranks(&mine, job->alg, ranks[job->which]);
	for (uint32_t p = 1; p <= 64 && ranks[job->which] == SMALL && !mine.bad[0]; p++)
		prove_ranks(&mine, job->alg, p);
	pthread_mutex_lock(&shared->lock);
	row->sets += mine.sets;
	row->turned += mine.turned;
	row->steps += mine.steps;
	row->messages += mine.messages;
	row->seconds += seconds(CLOCK_PROCESS_CPUTIME_ID) - start;
	shared->seconds += seconds(CLOCK_PROCESS_CPUTIME_ID) - start;
	shared->sets += mine.sets;
	shared->turned += mine.turned;
	if (mine.bad[0]) {
		memcpy(row->bad, mine.bad, sizeof(row->bad));
		shared->bad++;
	}
	shared->used -= job->bytes;
	if (!--row->jobs)
		report(job->alg, row);
	pthread_mutex_unlock(&shared->lock);
}

/* ---- all of them */

/* Steps of all ranks, about. */
static uint64_t steps_of(const struct coll_algorithm *alg, uint32_t p)
{
	struct coll_topo topo = wire(p);
	struct coll_args args = call_of(alg, p, &topo);
	struct coll_plan plan;
	uint64_t n = 0;

	if (p == SMALL || args.collective == NPULINK_COLL_P2P ||
	    (alg->supports && alg->supports(&args)))
		return 0;
	for (uint32_t i = 0; i < 8; i++) {
		args.rank = (uint64_t)i * (p - 1) / 7;
		if (!coll_plan_make(alg, &args, &plan))
			n += plan.nsteps;
		coll_plan_free(&plan);
	}
	return n * p / 8;
}

static int job_cmp(const void *a, const void *b)
{
	const struct job *x = a, *y = b;

	if (x->steps != y->steps)
		return x->steps < y->steps ? 1 : -1;
	return x->row != y->row ? (x->row > y->row) - (x->row < y->row) :
	       (x->which > y->which) - (x->which < y->which);
}

static void list_jobs(void)
{
	const struct coll_algorithm *alg = NULL;
	uint32_t row = 0;

	for (; (alg = coll_algorithm_next(~0U, alg)) && row < MAX_ROWS; row++) {
		for (uint32_t i = 0; i < nnumbers; i++) {
			uint64_t steps = steps_of(alg, ranks[i]);

			jobs[njobs++] = (struct job) {
				.alg = alg, .row = row, .which = i, .steps = steps,
				.bytes = steps * STEP_BYTES,
			};
		}
		shared->rows[row].jobs = nnumbers;
	}
	qsort(jobs, njobs, sizeof(*jobs), job_cmp);
}

/*
 * The largest job left that fits in the memory left; one that never would is tried
 * when it can have all. NULL: none; *wait: but there will be.
 */
static struct job *next_job(bool *wait)
{
	uint32_t i;

	*wait = false;
	pthread_mutex_lock(&shared->lock);
	for (i = 0; i < njobs; i++) {
		if (shared->taken[i])
			continue;
		if (!shared->used || shared->used + jobs[i].bytes <= shared->memory)
			break;
		*wait = true;
	}
	if (i < njobs) {
		shared->taken[i] = true;
		shared->used += jobs[i].bytes;
	}
	pthread_mutex_unlock(&shared->lock);
	return i < njobs ? &jobs[i] : NULL;
}

static int work(void)
{
	struct rusage usage = { };
	const struct job *job;
	bool wait;

	/* What images have room for and do not use shall cost nothing. */
	mallopt(M_MMAP_THRESHOLD, 64 * 1024);
	while ((job = next_job(&wait)) || wait) {
		if (job)
			run(job);
		else
			usleep(100000);
		/* What a large job leaves free in the heap belongs to the others now. */
		if (job && job->steps > 1 << 20)
			malloc_trim(0);
	}
	getrusage(RUSAGE_SELF, &usage);
	pthread_mutex_lock(&shared->lock);
	shared->kib += usage.ru_maxrss;
	pthread_mutex_unlock(&shared->lock);
	return EXIT_SUCCESS;
}

/* Most of what is free. */
static uint64_t free_memory(void)
{
	FILE *f = fopen("/proc/meminfo", "re");
	unsigned long long kib = 0;
	char line[200];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib * 1024 / 4 * 3;
}

static bool prepare(void)
{
	pthread_mutexattr_t attr;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	/* Every rank's shard has one element; alltoallv reads a row for each sender. */
	counts = malloc((size_t)MAX_RANKS * MAX_RANKS * sizeof(*counts));
	if (shared == MAP_FAILED || !counts)
		return false;
	for (size_t i = 0; i < (size_t)MAX_RANKS * MAX_RANKS; i++)
		counts[i] = 1;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&shared->lock, &attr);
	shared->memory = free_memory();
	list_jobs();
	return true;
}

/* One that is killed takes memory with it that the others would wait for. */
static bool run_workers(uint32_t n)
{
	pid_t pid[n], ended;
	bool good = true;
	int status;

	fflush(stdout);
	for (uint32_t i = 0; i < n; i++) {
		pid[i] = fork();
		if (!pid[i])
			_exit(work());
		good &= pid[i] > 0;
	}
	while ((ended = wait(&status)) > 0) {
		bool ok = WIFEXITED(status) && !WEXITSTATUS(status);

		for (uint32_t i = 0; i < n; i++) {
			if (pid[i] == ended)
				pid[i] = -1;
			else if (!ok && pid[i] > 0)
				kill(pid[i], SIGTERM);
		}
		good &= ok;
	}
	return good;
}

/* "100,128": those instead of the others. */
static bool parse_ranks(const char *text)
{
	char *end;

	for (nnumbers = 0; nnumbers < MAX_NUMBERS; text = end + 1) {
		unsigned long n = strtoul(text, &end, 10);

		if (*text < '0' || *text > '9' || !n || n > MAX_RANKS || (*end && *end != ','))
			return false;
		ranks[nnumbers++] = n;
		if (!*end)
			return true;
	}
	return false;
}

int plan_verify_all(uint32_t workers, const char *numbers)
{
	double start = seconds(CLOCK_MONOTONIC);
	bool good = true;

	if (numbers && !parse_ranks(numbers))
		return usage_error("plan verify: --ranks \"%s\" are not up to %u numbers from 1 to %u",
				   numbers, MAX_NUMBERS, MAX_RANKS);
	if (!prepare())
		return fail("not enough memory");
	good = run_workers(workers) && !shared->bad;
	if (good)
		printf("proved: every algorithm, with %s ranks\n"
		       "%" PRIu64 " proofs, of which %" PRIu64 " by symmetry, in %.0f s;\n"
		       "%.0f s of processors' time, at most %" PRIu64 " MiB\n",
		       numbers ? numbers : "1..64, 100, 127, 128, 1000, 1024, 4095 and 4096",
		       shared->sets, shared->turned, seconds(CLOCK_MONOTONIC) - start,
		       shared->seconds, shared->kib >> 10);
	free(counts);
	munmap(shared, sizeof(*shared));
	return good ? EXIT_SUCCESS : fail("not every algorithm is proved");
}
