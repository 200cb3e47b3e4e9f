// SPDX-License-Identifier: GPL-2.0
/*
 * sim.c - processor time that the simulator takes: whole runs, with planning, each in
 * a process of its own so that its memory can be told. For comparison (natively, a
 * 1 MiB ring allreduce): LogGOPSim takes 1.5 s and 589 MB for 1,024 ranks, 38 s and
 * 9.4 GB for 4,096 and 111 s to write the schedule; SimGrid SMPI 41.6 s for 1,024.
 *
 * Usage: sim [CASE]...; exit status 1 if a goal is missed.
 *
 * 2026-11-22, a quiet machine, better of two runs: cost rule, 24.0 million steps a
 * second in ring-4096 (1.4 s, 2 MiB), 12.7 in rhd-65536 (0.33 s), 27.5 in nhr-65536
 * (0.19 s). Executor's rule: 7.2 in ring-1024, 7.1 in ring-4096 (4.7 s, 516 MiB), 8.1 in
 * nhr-65536 (0.65 s), 6.0 in rhd-65536 (0.7 s), which has 2.6 slices for each message.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "lib/algorithm/algorithms.h"
#include "lib/simulate/sim.h"

/**
 * struct bench - one run
 * @name: for the command line
 * @collective: NPULINK_COLL_*
 * @algorithm: its name
 * @ranks: ranks
 * @count: elements, as coll_args has it
 * @net: network, NULL: full
 * @opts: rule and engine
 * @goal: seconds that it may take, 0: no matter
 */
struct bench {
	const char *name;
	uint32_t collective;
	const char *algorithm;
	uint32_t ranks;
	uint64_t count;
	const char *net;
	struct coll_sim_opts opts;
	double goal;
};

static const struct bench benches[] = {
	{ "ring-1024", NPULINK_COLL_ALLREDUCE, "ring", 1024, 1 << 18, NULL, {}, 0 },
	{ "ring-4096", NPULINK_COLL_ALLREDUCE, "ring", 4096, 1 << 20, NULL, {}, 10 },
	{ "ring-4096-uneven", NPULINK_COLL_ALLREDUCE, "ring", 4096, (1 << 20) + 5, NULL, {}, 10 },
	{ "rhd-65536", NPULINK_COLL_ALLREDUCE, "rhd", 65536, 1 << 20, NULL, {}, 10 },
	{ "rhd-65535", NPULINK_COLL_ALLREDUCE, "rhd", 65535, 1 << 20, NULL, {}, 10 },
	{ "nhr-65536", NPULINK_COLL_ALLREDUCE, "nhr", 65536, 1 << 20, NULL, {}, 10 },
	{ "nb-65536", NPULINK_COLL_ALLREDUCE, "nb", 65536, 1 << 20, NULL, {}, 10 },
	{ "pairwise-4096", NPULINK_COLL_ALLTOALL, "pairwise", 4096, 64, NULL, {}, 10 },
	{ "ring-1024-events", NPULINK_COLL_ALLREDUCE, "ring", 1024, 1 << 18, NULL,
	  { .by_events = true }, 0 },
	{ "ring-1024-exec", NPULINK_COLL_ALLREDUCE, "ring", 1024, 1 << 18, NULL,
	  { .rule = COLL_RULE_EXEC }, 0 },
	{ "ring-4096-exec", NPULINK_COLL_ALLREDUCE, "ring", 4096, 1 << 20, NULL,
	  { .rule = COLL_RULE_EXEC }, 10 },
	{ "rhd-65536-exec", NPULINK_COLL_ALLREDUCE, "rhd", 65536, 1 << 20, NULL,
	  { .rule = COLL_RULE_EXEC }, 10 },
	{ "nhr-65536-exec", NPULINK_COLL_ALLREDUCE, "nhr", 65536, 1 << 20, NULL,
	  { .rule = COLL_RULE_EXEC }, 10 },
	{ "ring-1024-ring", NPULINK_COLL_ALLREDUCE, "ring", 1024, 1 << 18, "ring", {}, 0 },
	{ "alltoall-mesh-16x16", NPULINK_COLL_ALLTOALL, "isend-irecv", 256, 256, "mesh:16x16",
	  {}, 0 },
};

#define NBENCHES	(sizeof(benches) / sizeof(benches[0]))
#define GOAL_MEMORY	(1L << 20)	/* KiB */
#define GOAL_STEPS	5e6

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* In the child. Returns the exit status: 0, 1 too slow, 2 failed. */
static int run(const struct bench *b)
{
	static const struct coll_cost_params params = {
		.alpha = 1e-6, .beta = 1 / 64e9, .gamma = 1 / 512e9, .ports = 1,
	};
	const struct coll_algorithm *alg = coll_algorithm_find(b->collective, b->algorithm);
	struct coll_args args = {
		.collective = b->collective, .nranks = b->ranks, .count = b->count,
		.dtype = NPULINK_FLOAT32,
	};
	struct coll_net net = coll_net_of(&params, b->ranks);
	struct coll_sim_result r;
	struct rusage usage;
	const char *error;
	double took, steps;
	bool slow;
	int rc;

	if (!alg) {
		printf("%-20s there is no such algorithm yet\n", b->name);
		return 0;
	}
	if (b->net && coll_net_parse(b->net, b->ranks, &net, &error)) {
		printf("%-20s %s\n", b->name, error);
		return 2;
	}
	took = now();
	rc = coll_sim_algorithm(alg, &args, &net, &b->opts, &r);
	took = now() - took;
	if (rc) {
		printf("%-20s failed: %s %s\n", b->name, strerror(-rc), r.text);
		return 2;
	}
	getrusage(RUSAGE_SELF, &usage);
	/* Plans that were not made do not count. */
	steps = r.sampled ? r.messages : r.steps;
	slow = b->goal > 0 && (took > b->goal || usage.ru_maxrss > GOAL_MEMORY);
	printf("%-20s %9u %11llu %11llu %9.2f %9.2f %9ld  %s\n", b->name, b->ranks,
	       (unsigned long long)r.steps, (unsigned long long)r.messages, took,
	       steps / took / 1e6, usage.ru_maxrss >> 10,
	       slow ? "TOO SLOW" : r.sampled ? "some ranks planned" :
	       steps / took < GOAL_STEPS ? "" : ">= 5M steps/s");
	return slow;
}

static bool wanted(const struct bench *b, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], b->name))
			return true;
	return argc < 2;
}

int main(int argc, char **argv)
{
	int status, rc = 0;
	pid_t pid;

	printf("%-20s %9s %11s %11s %9s %9s %9s\n", "CASE", "RANKS", "STEPS", "MESSAGES", "SECONDS",
	       "MSTEPS/S", "RSS_MIB");
	fflush(stdout);
	for (size_t i = 0; i < NBENCHES; i++) {
		if (!wanted(&benches[i], argc, argv))
			continue;
		pid = fork();
		if (!pid) {
			status = run(&benches[i]);
			fflush(stdout);
			_exit(status);
		}
		if (pid < 0 || waitpid(pid, &status, 0) < 0) {
			perror("fork");
			return 2;
		}
		rc = status ? 1 : rc;
	}
	return rc;
}
