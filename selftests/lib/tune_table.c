// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * tune_table.c - is what the tuner picks the best row? Every row of a collective is simulated
 * on a network, and the time of the pick compared with that of the best: at 98 of 100
 * points it must be within 1.1 of it, and never above 1.5.
 *
 * Without arguments, a few networks. With --all, 40 networks, 13 collectives, 9 sizes and 6
 * numbers of ranks, or what --net PART, --collective NAME, --ranks N leave of them; a line for
 * each network and collective, with --bad also one for each point above 1.1. With --choose N,
 * how long the choice itself takes on N ranks.
 *
 * npulink-test: timeout=300 san-soak
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kselftest.h"
#include "lib/algorithm/algorithms.h"
#include "lib/plan/planner.h"
#include "lib/simulate/sim.h"
#include "lib/tune/topo.h"
#include "lib/tune/tune.h"

#define GOOD	1.1
#define BAD	1.5

/* What messages cost: alpha, seconds per byte, and per byte reduced; between servers the same. */
static const struct costs {
	const char *name;
	double alpha, beta, gamma, far_alpha, far_beta;
} costs[] = {
	{ "soft", 2e-6, 1 / 4e9, 1 / 4e9, 20e-6, 1 / 2e9 },
	{ "hccs", 1.5e-6, 1 / 56e9, 1 / 512e9, 5e-6, 1 / 25e9 },
	{ "rdma", 5e-6, 1 / 25e9, 1 / 512e9, 10e-6, 1 / 12.5e9 },
	{ "card", 10e-6, 1 / 12e9, 1 / 100e9, 30e-6, 1 / 6e9 },
};

/* R, C: rows and columns, as square as can be; H, Q: half and a quarter of the ranks. */
static const struct shape {
	const char *name, *text;
	bool all_ports;
} shapes[] = {
	{ "full", "full", false },
	{ "links", "full", true },
	{ "ring", "ring", false },
	{ "mesh", "mesh:RxC", false },
	{ "torus", "torus:RxC", false },
	{ "tree", "tree:4:2", false },
	{ "fat tree", "tree:4", false },
	{ "servers", "servers:4", true },
	{ "one-port servers", "servers:4", false },
	{ "unequal servers", "servers:H,Q,rest", true },
};

static const uint32_t all_ranks[] = { 4, 6, 12, 16, 24, 32 };
static const uint64_t all_bytes[] = {
	64, 1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20,
};

struct tally {
	uint32_t points, good, over;
	double worst;
	char where[160];
};

static void tally_add(struct tally *t, double ratio, const char *where)
{
	t->points++;
	t->good += ratio <= GOOD;
	t->over += ratio > BAD;
	if (ratio <= t->worst)
		return;
	t->worst = ratio;
	snprintf(t->where, sizeof(t->where), "%s", where);
}

static void tally_merge(struct tally *sum, const struct tally *t)
{
	sum->points += t->points;
	sum->good += t->good;
	sum->over += t->over;
	if (t->worst <= sum->worst)
		return;
	sum->worst = t->worst;
	memcpy(sum->where, t->where, sizeof(sum->where));
}

/* A network of so many ranks, what planners and the tuner know of it. */
struct place {
	struct coll_net net;
	struct coll_topo topo;
	struct coll_tune tune;
	char text[64];
};

static void shape_text(const struct shape *s, uint32_t p, char *text, size_t size)
{
	uint32_t rows = sqrt(p), half = p / 2, quarter = (p + 3) / 4;

	while (p % rows)
		rows--;
	if (strchr(s->text, 'R'))
		snprintf(text, size, "%.*s%ux%u", (int)(strchr(s->text, 'R') - s->text), s->text,
			 rows, p / rows);
	else if (strchr(s->text, 'H') && p - half - quarter)
		snprintf(text, size, "servers:%u,%u,%u", half, quarter, p - half - quarter);
	else if (strchr(s->text, 'H'))
		snprintf(text, size, "servers:%u,%u", half, quarter);
	else
		snprintf(text, size, "%s", s->text);
}

static void place_make(struct place *w, const struct costs *c, const struct shape *s, uint32_t p)
{
	struct coll_cost_params params = {
		.alpha = c->alpha, .beta = c->beta, .gamma = c->gamma,
		.ports = s->all_ports ? p - 1 : 1,
	};
	const char *why;
	char text[300];
	bool far;

	shape_text(s, p, w->text, sizeof(w->text));
	w->net = coll_net_of(&params, p);
	far = !strncmp(w->text, "servers", 7);
	if (coll_net_parse(w->text, p, &w->net, &why))
		ksft_exit_fail_msg("%s: %s\n", w->text, why);
	if (far) {
		w->net.alpha[1] = c->far_alpha;
		w->net.beta[1] = c->far_beta;
	}
	if (coll_topo_init(&w->topo, strcmp(w->text, "full") ? w->text : "", p, text,
			   sizeof(text)) ||
	    coll_tune_init(&w->tune, "", "", p, text, sizeof(text)))
		ksft_exit_fail_msg("%s\n", text);
	w->tune.params = params;
	for (uint32_t t = 0; t < NPULINK_DTYPES; t++)
		w->tune.gamma[t] = c->gamma;
	if (far) {
		w->tune.far_alpha = c->far_alpha;
		w->tune.far_beta = c->far_beta * w->topo.nservers / p;
	}
}

static void place_free(struct place *w)
{
	free((void *)w->net.server_of);
	coll_topo_free(&w->topo);
	coll_tune_free(&w->tune);
}

/* Shards of half as much and of half as much again, in turn. */
static void set_count(struct coll_args *args, uint64_t bytes, uint64_t *counts)
{
	uint32_t p = args->nranks;

	coll_set_whole(args, bytes / 4);
	if (!npulink_coll_is_v(args->collective))
		return;
	for (uint32_t i = 0; i < p; i++)
		counts[i] = bytes / 4 / p * (i % 2 ? 3 : 1) / 2;
	args->count = 0;
	args->counts = counts;
}

/* One point: how many times longer the pick takes than the best row. */
static double point(const struct place *w, struct coll_args *args, char *picked, char *best)
{
	struct coll_cost_params network = coll_tune_network(&w->tune, args);
	const struct coll_algorithm *pick, *alg = NULL;
	struct coll_sim_result result;
	double least = INFINITY, took = INFINITY, seconds;
	char text[300];

	if (coll_tune_choose(&w->tune, args, &pick, &seconds, text, sizeof(text)))
		ksft_exit_fail_msg("%s\n", text);
	args->network = &network;
	while ((alg = coll_algorithm_next(args->collective, alg))) {
		if (alg->supports && alg->supports(args))
			continue;
		if (coll_sim_algorithm(alg, args, &w->net, NULL, &result))
			ksft_exit_fail_msg("%s on %s: %s\n", alg->name, w->text, result.text);
		if (alg == pick)
			took = result.seconds;
		if (result.seconds < least) {
			least = result.seconds;
			snprintf(best, 64, "%s %.4gus", alg->name, least * 1e6);
		}
	}
	args->network = NULL;
	snprintf(picked, 64, "%s %.4gus (%.4g)", pick->name, took * 1e6, seconds * 1e6);
	return least > 0 ? took / least : 1;
}

static bool is_shown;

static void points(const struct place *w, const struct costs *c, uint32_t collective, uint32_t p,
		   const uint64_t *bytes, uint32_t nbytes, struct tally *tally)
{
	char where[160], picked[64], best[64];
	uint64_t counts[64];

	for (uint32_t b = 0; b < nbytes; b++) {
		struct coll_args args = {
			.collective = collective, .dtype = NPULINK_FLOAT32, .nranks = p,
			.root = p / 3,
			.topo = coll_topo_known(&w->topo) ? &w->topo : NULL,
		};
		double ratio;

		if (bytes[b] / 4 < 2 * p && collective != NPULINK_COLL_BARRIER)
			continue;
		if (b && collective == NPULINK_COLL_BARRIER)
			break;
		set_count(&args, bytes[b], counts);
		ratio = point(w, &args, picked, best);
		snprintf(where, sizeof(where), "%s %s p=%u n=%u %.3f: %s, best %s", c->name,
			 coll_collective_name(collective), p, (unsigned int)bytes[b], ratio,
			 picked, best);
		tally_add(tally, ratio, where);
		if (is_shown && ratio > GOOD)
			printf("# %s %s\n", w->text, where);
	}
}

static void table(const char *net, const char *collective, uint32_t only, struct tally *sum)
{
	for (size_t s = 0; s < ARRAY_SIZE(shapes); s++) {
		for (size_t k = 0; k < ARRAY_SIZE(costs); k++) {
			struct tally of_net = { };
			char name[64];

			snprintf(name, sizeof(name), "%s, %s", shapes[s].name, costs[k].name);
			if (net && !strstr(name, net))
				continue;
			for (uint32_t c = 0; c < NPULINK_COLLS; c++) {
				struct tally t = { };

				if (c == NPULINK_COLL_P2P || c == NPULINK_COLL_ALLTOALLV ||
				    (collective && strcmp(collective, coll_collective_name(c))))
					continue;
				for (size_t r = 0; r < ARRAY_SIZE(all_ranks); r++) {
					struct place w;

					if (only && only != all_ranks[r])
						continue;
					place_make(&w, &costs[k], &shapes[s], all_ranks[r]);
					points(&w, &costs[k], c, all_ranks[r], all_bytes,
					       ARRAY_SIZE(all_bytes), &t);
					place_free(&w);
				}
				printf("%-24s %-16s %4u of %4u, worst %.2f\n", name,
				       coll_collective_name(c), t.good, t.points, t.worst);
				fflush(stdout);
				tally_merge(&of_net, &t);
			}
			printf("%-24s %-16s %4u of %4u, %u above 1.5, worst %s\n", name, "all",
			       of_net.good, of_net.points, of_net.over, of_net.where);
			tally_merge(sum, &of_net);
		}
	}
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* Seconds of processor time that choosing takes, of each network the longest. */
static void choose(uint32_t p)
{
	uint64_t *counts = calloc(p, sizeof(*counts));

	for (size_t s = 0; counts && s < ARRAY_SIZE(shapes); s++) {
		const struct coll_algorithm *alg;
		double longest = 0, seconds;
		uint32_t which = 0;
		char text[300];
		struct place w;

		place_make(&w, &costs[1], &shapes[s], p);
		for (uint32_t c = 0; c < NPULINK_COLLS; c++) {
			for (size_t b = 0; b < ARRAY_SIZE(all_bytes); b++) {
				struct coll_args args = {
					.collective = c, .dtype = NPULINK_FLOAT32, .nranks = p,
					.topo = coll_topo_known(&w.topo) ? &w.topo : NULL,
				};
				double begin;

				if (c == NPULINK_COLL_P2P || c == NPULINK_COLL_ALLTOALLV)
					continue;
				set_count(&args, all_bytes[b], counts);
				begin = now();
				if (coll_tune_choose(&w.tune, &args, &alg, &seconds, text,
						     sizeof(text)))
					ksft_exit_fail_msg("%s\n", text);
				if (now() - begin < longest)
					continue;
				longest = now() - begin;
				which = c;
			}
		}
		printf("%-20s at most %4.0f us, for %s\n", w.text, longest * 1e6,
		       coll_collective_name(which));
		place_free(&w);
	}
	free(counts);
}

/* A few networks, which differ in kind. */
static void quick(void)
{
	static const uint64_t bytes[] = { 1 << 10, 64 << 10, 4 << 20 };

	for (size_t s = 0; s < ARRAY_SIZE(shapes); s++) {
		const struct costs *c = &costs[s % ARRAY_SIZE(costs)];
		struct tally t = { };
		struct place w;

		place_make(&w, c, &shapes[s], 12);
		for (uint32_t k = 0; k < NPULINK_COLLS; k++)
			if (k != NPULINK_COLL_P2P && k != NPULINK_COLL_ALLTOALLV)
				points(&w, c, k, 12, bytes, ARRAY_SIZE(bytes), &t);
		place_free(&w);
		ksft_print_msg("%u of %u within 1.1; worst %s\n", t.good, t.points, t.where);
		ksft_test_result(t.good * 100 >= t.points * 98 && !t.over, "%s: picks\n",
				 shapes[s].name);
	}
}

int main(int argc, char **argv)
{
	const char *net = NULL, *collective = NULL;
	struct tally sum = { };
	uint32_t ranks = 0, chosen = 0;
	bool all = false;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--all"))
			all = true;
		else if (!strcmp(argv[i], "--bad"))
			is_shown = true;
		else if (!strcmp(argv[i], "--choose") && i + 1 < argc)
			chosen = atoi(argv[++i]);
		else if (!strcmp(argv[i], "--net") && i + 1 < argc)
			net = argv[++i];
		else if (!strcmp(argv[i], "--collective") && i + 1 < argc)
			collective = argv[++i];
		else if (!strcmp(argv[i], "--ranks") && i + 1 < argc)
			ranks = atoi(argv[++i]);
	}
	if (chosen) {
		choose(chosen);
		return 0;
	}
	if (all) {
		table(net, collective, ranks, &sum);
		printf("%u of %u within 1.1 (%.2f %%), %u above 1.5; worst %s\n", sum.good,
		       sum.points, 100. * sum.good / sum.points, sum.over, sum.where);
		return 0;
	}
	ksft_print_header();
	ksft_set_plan(ARRAY_SIZE(shapes));
	quick();
	ksft_finished();
}
