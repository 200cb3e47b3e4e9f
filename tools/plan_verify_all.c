// SPDX-License-Identifier: GPL-2.0
/*
 * plan_verify_all.c - npulink plan verify --all: every algorithm is proved for each
 * number of ranks up to 64 and for some up to 4,096, by two processes.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <coll.h>
#include "query.h"

#define WORKERS		2
#define MAX_RANKS	4096
#define LARGE		1000
/* Steps of all ranks that the full proof holds in less than 2 GiB. */
#define MAX_STEPS	10000000ULL

static const uint32_t larger[] = { 100, 127, 128, 1000, 1024, 4095, 4096 };

struct row {
	const struct coll_algorithm *alg;
	uint32_t sets, turned;
	uint64_t steps, messages;
	char left[100], bad[300];
};

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

static uint64_t steps_of(const struct coll_set *set, uint32_t rank)
{
	struct coll_args args = { };
	struct coll_plan plan;
	uint64_t n;

	if (set->get(set->ctx, rank, &args, &plan))
		return 0;
	n = plan.nsteps;
	coll_plan_free(&plan);
	return n;
}

static void prove(struct row *row, const struct coll_args *args)
{
	struct coll_verify_report report = { };
	struct coll_planned planned;
	uint32_t p = args->nranks;
	struct coll_set set;
	size_t n = strlen(row->left);
	int rc;

	if (row->alg->supports && row->alg->supports(args))
		return;
	rc = coll_planned_init(&planned, row->alg, args, &set);
	if (!rc && p >= LARGE) {
		rc = coll_verify_rotation(&set, &report);
		row->turned += !rc;
	}
	if (!rc && p < LARGE)
		rc = coll_verify_set(&set, &report);
	if (rc == -EOPNOTSUPP && p >= LARGE) {
		/* Not all ranks' plans are one, turned. */
		rc = 0;
		if (steps_of(&set, p / 2 + 1) * p > MAX_STEPS)
			snprintf(row->left + n, sizeof(row->left) - n, " %u", p);
		else
			rc = coll_verify_set(&set, &report);
	}
	coll_planned_free(&planned);
	row->sets += !rc;
	row->steps += report.steps;
	row->messages += report.messages;
	if (rc)
		snprintf(row->bad, sizeof(row->bad), "%u ranks, root %u: rank %u: %s", p, args->root,
			 report.rank, rc == -EINVAL ? report.reason : coll_strerror(rc));
}

static void prove_ranks(struct row *row, uint32_t p)
{
	struct coll_topo topo = wire(p);
	struct coll_args args = {
		.collective = row->alg->collective, .dtype = NPULINK_FLOAT32, .nranks = p,
		.redop = NPULINK_SUM, .counts = counts, .topo = &topo, .count = 1,
	};

	if (args.collective == NPULINK_COLL_P2P && p != 2)
		return;
	if (args.collective <= NPULINK_COLL_BROADCAST)
		args.count = p;
	if (args.collective == NPULINK_COLL_BARRIER)
		args.count = 0;
	args.root = npulink_coll_has_root(args.collective) ? p / 2 : 0;
	prove(row, &args);
	if (p >= LARGE || row->bad[0])
		return;
	args.in_place = true;
	args.count += args.collective <= NPULINK_COLL_BROADCAST;
	prove(row, &args);
}

static bool prove_row(const struct coll_algorithm *alg)
{
	struct row row = { .alg = alg };

	for (uint32_t p = 1; p <= 64 && !row.bad[0]; p++)
		prove_ranks(&row, p);
	for (uint32_t i = 0; i < ARRAY_SIZE(larger) && !row.bad[0]; i++)
		prove_ranks(&row, larger[i]);
	if (row.bad[0])
		printf("%-15s %-18s WRONG: %s\n", coll_collective_name(alg->collective), alg->name,
		       row.bad);
	else
		printf("%-15s %-18s %4u sets, %11" PRIu64 " messages%s%s%s\n",
		       coll_collective_name(alg->collective), alg->name, row.sets, row.messages,
		       row.turned ? "; from 1000 ranks on by symmetry" : "",
		       row.left[0] ? "; too large to prove:" : "", row.left);
	fflush(stdout);
	return !row.bad[0];
}

static int work(uint32_t *next)
{
	const struct coll_algorithm *alg = NULL;
	uint32_t i = 0, mine = __atomic_fetch_add(next, 1, __ATOMIC_RELAXED);
	bool good = true;

	while ((alg = coll_algorithm_next(~0U, alg))) {
		if (i++ != mine)
			continue;
		good &= prove_row(alg);
		mine = __atomic_fetch_add(next, 1, __ATOMIC_RELAXED);
	}
	return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

int plan_verify_all(void)
{
	uint32_t *next = mmap(NULL, sizeof(*next), PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid[WORKERS];
	bool good = true;
	int status;

	/* Every rank's shard has one element; alltoallv reads a row for each sender. */
	counts = malloc((size_t)MAX_RANKS * MAX_RANKS * sizeof(*counts));
	if (!counts || next == MAP_FAILED)
		return fail("not enough memory");
	for (size_t i = 0; i < (size_t)MAX_RANKS * MAX_RANKS; i++)
		counts[i] = 1;
	fflush(stdout);
	for (int i = 0; i < WORKERS; i++) {
		pid[i] = fork();
		if (!pid[i])
			_exit(work(next));
	}
	for (int i = 0; i < WORKERS; i++)
		good &= pid[i] > 0 && waitpid(pid[i], &status, 0) == pid[i] &&
			WIFEXITED(status) && !WEXITSTATUS(status);
	free(counts);
	munmap(next, sizeof(*next));
	return good ? EXIT_SUCCESS : fail("not every algorithm is proved");
}
