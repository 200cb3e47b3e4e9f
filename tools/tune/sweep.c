// SPDX-License-Identifier: GPL-2.0
/*
 * sweep.c - npulink tune sweep: measures every algorithm over collectives, sizes
 * and numbers of ranks, and compares the fastest with the one that libcoll would take.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <coll.h>
#include "cli/aliases.h"
#include "cli/npulink.h"
#include "lib/algorithm/algorithms.h"
#include "lib/tune/topo.h"
#include "lib/tune/tune.h"
#include "plan/net.h"
#include "state/calibration.h"
#include "tune/job.h"

#define MAX_LIST	16
#define MAX_JOBS	4096
#define GOOD		1.10

static const char usage[] =
	"Usage: npulink [-j] tune sweep [OPTION]...\n"
	"\n"
	"Measures every algorithm at each point of a sweep (collective x size x ranks), and\n"
	"compares the fastest with the one that libcoll takes by the calibration that\n"
	"programs use, too.\n"
	"\n"
	"  -c, --collectives NAME,...  these (allreduce,broadcast,reduce,allgather,\n"
	"                              reduce_scatter,alltoall)\n"
	"  -b, --bytes SIZE,...        sizes as npulink bench counts them (64,4K,64K,1M)\n"
	"  -p, --ranks N,...           numbers of ranks (2,4,8)\n"
	"  -d, --datatype TYPE         type of elements (float)\n"
	"  -t, --topology WIRING       as COLL_TOPOLOGY, for algorithms that need it\n"
	"  -C, --calibration FILE      instead of what COLL_CALIBRATION says\n"
	"      --rounds N              measure each so often, in turn; the best counts (5)\n"
	"      --time SECONDS          for each time (0.01)\n"
	"  -j, --json                  JSON\n"
	"\n"
	"Exit status: 0 if the choice is within 10 % of the best at 9 of 10 points, else 1.\n";

struct sweep {
	uint32_t collectives[MAX_LIST], ncollectives;
	uint64_t bytes[MAX_LIST];
	uint32_t nbytes;
	uint32_t ranks[MAX_LIST], nranks;
	uint32_t dtype;
	const char *calibration;
	struct tune_opts opts;
	uint32_t points, good;
	double worst;
	struct json_object *rows;
};

/* ---- the command line */

/* Calls @add for each word between commas. */
static bool parse_list(char *text, struct sweep *s, bool (*add)(struct sweep *s, char *word))
{
	char *word, *save;

	for (word = strtok_r(text, ",", &save); word; word = strtok_r(NULL, ",", &save))
		if (!add(s, word))
			return false;
	return true;
}

static bool add_collective(struct sweep *s, char *word)
{
	int c = coll_collective_parse(word);

	if (c < 0 || npulink_coll_is_v(c) || c == NPULINK_COLL_P2P || s->ncollectives == MAX_LIST)
		return false;
	s->collectives[s->ncollectives++] = c;
	return true;
}

static bool add_bytes(struct sweep *s, char *word)
{
	return s->nbytes < MAX_LIST && parse_size(word, &s->bytes[s->nbytes]) &&
	       s->bytes[s->nbytes] <= 1ULL << 32 && s->bytes[s->nbytes++];
}

static bool add_ranks(struct sweep *s, char *word)
{
	uint64_t n;

	if (s->nranks == MAX_LIST || !parse_u64(word, TUNE_MAX_RANKS, &n) || n < 2)
		return false;
	s->ranks[s->nranks++] = n;
	return true;
}

static bool set_option(struct sweep *s, int c, char *arg)
{
	uint64_t n;
	char *end;

	switch (c) {
	case 'c':
		s->ncollectives = 0;
		return parse_list(arg, s, add_collective) && s->ncollectives;
	case 'b':
		s->nbytes = 0;
		return parse_list(arg, s, add_bytes) && s->nbytes;
	case 'p':
		s->nranks = 0;
		return parse_list(arg, s, add_ranks) && s->nranks;
	case 'd':
		return parse_dtype(arg, &s->dtype);
	case 't':
		s->opts.topology = arg;
		return true;
	case 'C':
		s->calibration = arg;
		return true;
	case 'R':
		if (!parse_u64(arg, 1000, &n) || !n)
			return false;
		s->opts.rounds = n;
		return true;
	case 'T':
		s->opts.budget = strtod(arg, &end);
		return end != arg && !*end && s->opts.budget > 0 && s->opts.budget < 1000;
	}
	return false;
}

static int parse(struct sweep *s, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "collectives", required_argument, NULL, 'c' },
		{ "bytes", required_argument, NULL, 'b' },
		{ "ranks", required_argument, NULL, 'p' },
		{ "datatype", required_argument, NULL, 'd' },
		{ "topology", required_argument, NULL, 't' },
		{ "calibration", required_argument, NULL, 'C' },
		{ "rounds", required_argument, NULL, 'R' },
		{ "time", required_argument, NULL, 'T' },
		CMD_OPTION_END
	};
	char collectives[] = "allreduce,broadcast,reduce,allgather,reduce_scatter,alltoall";
	char bytes[] = "64,4K,64K,1M", ranks[] = "2,4,8";
	int c;

	*s = (struct sweep) {
		.dtype = NPULINK_FLOAT32, .opts = { .rounds = 5, .budget = 0.01 }, .worst = 1,
	};
	parse_list(collectives, s, add_collective);
	parse_list(bytes, s, add_bytes);
	parse_list(ranks, s, add_ranks);
	while ((c = cmd_option(argc, argv, "c:b:p:d:t:C:", longs, usage)) != -1) {
		if (c == 'h')
			return EXIT_SUCCESS;
		if (c == ':')
			return EXIT_USAGE;
		if (!set_option(s, c, optarg))
			return usage_error("tune sweep: \"%s\" makes no sense there, see --help",
					   optarg);
	}
	if (optind < argc)
		return usage_error("tune sweep: unknown word \"%s\"", argv[optind]);
	return -1;
}

/* ---- one number of ranks */

static struct coll_args args_of(const struct sweep *s, uint32_t collective, uint64_t bytes,
				uint32_t nranks, const struct coll_topo *topo)
{
	return (struct coll_args){
		.collective = collective, .dtype = s->dtype, .nranks = nranks,
		.count = tune_count(collective, s->dtype, bytes, nranks),
		.topo = topo->rows || topo->nservers > 1 ? topo : NULL,
	};
}

/* All jobs of that number of ranks, point by point. */
static uint32_t list_jobs(const struct sweep *s, uint32_t nranks, const struct coll_topo *topo,
			  struct tune_job *jobs)
{
	uint32_t n = 0;

	for (uint32_t c = 0; c < s->ncollectives; c++) {
		for (uint32_t b = 0; b < s->nbytes; b++) {
			struct coll_args args = args_of(s, s->collectives[c], s->bytes[b], nranks,
							topo);
			const struct coll_algorithm *alg = NULL;

			while ((alg = coll_algorithm_next(args.collective, alg))) {
				if ((alg->supports && alg->supports(&args)) || n == MAX_JOBS)
					continue;
				jobs[n++] = (struct tune_job){
					.alg = alg, .dtype = s->dtype, .count = args.count,
				};
			}
		}
	}
	return n;
}

static void put_point(struct sweep *s, const struct coll_args *args, uint64_t bytes,
		      const struct tune_job *jobs, uint32_t n, const struct tune_job *best,
		      const struct tune_job *pick, const struct coll_tune *tune)
{
	double ratio = pick->seconds / best->seconds;
	char size[16], t1[16], t2[16], t3[16];

	s->points++;
	s->good += ratio <= GOOD;
	s->worst = ratio > s->worst ? ratio : s->worst;
	if (opts.json) {
		struct json_object *row = json_object_new_object();
		struct json_object *all = json_object_new_array();

		put_str(row, "collective", coll_collective_name(args->collective));
		put_u64(row, "ranks", args->nranks);
		put_u64(row, "bytes", bytes);
		put_str(row, "choice", pick->alg->name);
		put_str(row, "best", best->alg->name);
		put_double(row, "ratio", ratio);
		for (uint32_t i = 0; i < n; i++) {
			struct json_object *one = json_object_new_object();

			put_str(one, "algorithm", jobs[i].alg->name);
			put_double(one, "seconds", jobs[i].seconds);
			put_double(one, "predicted", coll_tune_predict(tune, jobs[i].alg, args));
			json_object_array_add(all, one);
		}
		json_object_object_add(row, "algorithms", all);
		json_object_array_add(s->rows, row);
		return;
	}
	printf("%-15s %5u %7s  %-18s %10s  %-18s %10s %6.2f%s\n",
	       coll_collective_name(args->collective), args->nranks, human_bytes(bytes, size),
	       pick->alg->name, human_time(pick->seconds, t1), best->alg->name,
	       human_time(best->seconds, t2), ratio, ratio > GOOD ? " *" : "");
	for (uint32_t i = 0; i < n && opts.details; i++)
		printf("%30s %-18s %10s  predicted %10s\n", "", jobs[i].alg->name,
		       human_time(jobs[i].seconds, t1),
		       human_time(coll_tune_predict(tune, jobs[i].alg, args), t3));
	fflush(stdout);
}

static int points(struct sweep *s, uint32_t nranks, const struct coll_topo *topo,
		  const struct coll_tune *tune, struct tune_job *jobs)
{
	uint32_t n = list_jobs(s, nranks, topo, jobs), i = 0;
	int rc = tune_team(nranks, jobs, n, &s->opts);

	for (uint32_t c = 0; c < s->ncollectives && !rc; c++) {
		for (uint32_t b = 0; b < s->nbytes && !rc; b++) {
			struct coll_args args = args_of(s, s->collectives[c], s->bytes[b], nranks,
							topo);
			const struct tune_job *first = &jobs[i], *best = first, *pick = NULL;
			const struct coll_algorithm *alg;
			char text[256];
			double seconds;

			if (coll_tune_choose(tune, &args, &alg, &seconds, text, sizeof(text)))
				return fail("%s", text);
			for (; i < n && jobs[i].alg->collective == args.collective &&
			     jobs[i].count == args.count &&
			     (jobs + i == first || jobs[i].alg != first->alg); i++) {
				if (jobs[i].seconds < best->seconds)
					best = &jobs[i];
				if (jobs[i].alg == alg)
					pick = &jobs[i];
			}
			if (!pick)
				return fail("%s: %s was not measured",
					    coll_collective_name(args.collective), alg->name);
			put_point(s, &args, s->bytes[b], first, &jobs[i] - first, best, pick, tune);
		}
	}
	return rc;
}

static int sweep_ranks(struct sweep *s, uint32_t nranks, struct tune_job *jobs)
{
	char text[400] = "";
	struct coll_topo topo;
	struct coll_tune tune;
	int rc;

	if (coll_topo_init(&topo, s->opts.topology ? s->opts.topology : "", nranks, text,
			   sizeof(text)))
		return fail("%s", text);
	rc = coll_tune_init(&tune, s->calibration, "", nranks, text, sizeof(text));
	if (rc) {
		coll_topo_free(&topo);
		return fail("%s", text);
	}
	calibration_guess(&tune, nranks);
	rc = points(s, nranks, &topo, &tune, jobs);
	coll_tune_free(&tune);
	coll_topo_free(&topo);
	return rc;
}

int tune_sweep(int argc, char **argv)
{
	struct tune_job *jobs;
	struct sweep s;
	int rc = parse(&s, argc, argv);

	if (rc >= 0)
		return rc;
	jobs = calloc(MAX_JOBS, sizeof(*jobs));
	if (!jobs)
		return fail("not enough memory");
	s.rows = json_object_new_array();
	if (!opts.json)
		printf("%-15s %5s %7s  %-18s %10s  %-18s %10s %6s\n", "COLLECTIVE", "RANKS",
		       "BYTES", "CHOICE", "TIME", "BEST", "TIME", "RATIO");
	rc = 0;
	for (uint32_t i = 0; i < s.nranks && !rc; i++)
		rc = sweep_ranks(&s, s.ranks[i], jobs);
	free(jobs);
	if (rc) {
		json_object_put(s.rows);
		return rc;
	}
	if (opts.json) {
		struct json_object *obj = json_object_new_object();

		put_u64(obj, "points", s.points);
		put_u64(obj, "good", s.good);
		put_double(obj, "worst", s.worst);
		json_object_object_add(obj, "rows", s.rows);
		json_print(obj);
	} else {
		json_object_put(s.rows);
		printf("%u of %u choices are within 10 %% of the best; the worst takes %.2f times\n"
		       "as long\n", s.good, s.points, s.worst);
	}
	return s.good * 10 >= s.points * 9 ? EXIT_SUCCESS : EXIT_FAILURE;
}
