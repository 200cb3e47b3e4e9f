// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * check.c - does an algorithm take as long as its closed form says?
 *
 * Runs the very plans on the simulator over numbers of ranks, roots, sizes, chunks
 * and shapes, with counts that divide as the forms want it, and keeps the largest
 * difference. An exact form must be met, an upper bound kept; a form that changes
 * with the number of ports claims to be right for all links at once, too.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "simulate/check.h"
#include "simulate/core.h"

/* Chunks that are tried; their least common multiple divides the counts. */
static const uint32_t chunks_tried[] = { 1, 2, 5, 8 };

#define CHUNKS_LCM	40

struct check {
	const struct coll_algorithm *alg;
	struct coll_sim_check *report;
	bool brief;
	uint64_t *counts, *row;		/* of the v forms */
	uint32_t *servers;
	int rc;
};

static void describe(const struct coll_args *args, const struct coll_cost_params *params,
		     char *text, size_t size)
{
	size_t n = snprintf(text, size, "p=%u", args->nranks);

	if (npulink_coll_has_root(args->collective))
		n += snprintf(text + n, size - n, " root=%u", args->root);
	if (!npulink_coll_is_v(args->collective) && args->collective != NPULINK_COLL_BARRIER)
		n += snprintf(text + n, size - n, " count=%llu", (unsigned long long)args->count);
	if (args->chunks)
		n += snprintf(text + n, size - n, " chunks=%u", args->chunks);
	if (args->topo && args->topo->rows)
		n += snprintf(text + n, size - n, " mesh=%ux%u", args->topo->rows,
			      args->topo->cols);
	if (args->topo && args->topo->nservers > 1)
		n += snprintf(text + n, size - n, " servers=%u", args->topo->nservers);
	if (params->ports > 1)
		snprintf(text + n, size - n, " ports=%u", params->ports);
}

/* What the closed form says, and the lower bound. */
static double form_of(const struct check *c, const struct coll_args *args,
		      const struct coll_cost_params *params, double *bound)
{
	struct coll_net net = coll_net_of(params, args->nranks);

	*bound = coll_bounds_on(args, &net).best;
	return coll_form(c->alg, args, params);
}

static void check_point(struct check *c, struct coll_args *args,
			const struct coll_cost_params *params, const struct coll_net *net,
			bool exact)
{
	struct coll_sim_check *report = c->report;
	struct coll_sim_result result;
	double form, bound, diff;

	if (c->rc || (c->alg->supports && c->alg->supports(args)))
		return;
	form = form_of(c, args, params, &bound);
	if (form < 0) {
		c->rc = -ENOMEM;
		return;
	}
	c->rc = coll_sim_algorithm(c->alg, args, net, NULL, &result);
	if (c->rc == -EDEADLK) {
		report->stuck++;
		c->rc = 0;
		if (!*report->text)
			snprintf(report->text, sizeof(report->text), "%s", result.text);
		return;
	}
	if (c->rc)
		return;
	report->points++;
	report->messages += result.messages;
	if (bound > result.seconds * (1 + COLL_SIM_CLOSE)) {
		report->below++;
		describe(args, params, report->where_below, sizeof(report->where_below));
	}
	if (form == result.seconds)
		return;
	diff = (result.seconds - form) / (form > 0 ? form : result.seconds);
	if (!exact && diff < 0) {
		if (diff < report->slack)
			report->slack = diff;
		return;
	}
	if (fabs(diff) <= fabs(report->worst))
		return;
	report->worst = diff;
	report->form = form;
	report->simulated = result.seconds;
	describe(args, params, report->where, sizeof(report->where));
}

/* One and many ports; the second only counts as exact if the form knows of it. */
static void check_ports(struct check *c, struct coll_args *args, bool exact)
{
	struct coll_cost_params one = {
		.alpha = 1 / 1e6, .beta = 1 / 64e9, .gamma = 1 / 512e9, .ports = 1,
	}, all = one;
	uint32_t p = args->nranks;
	double bound;
	bool knows;
	struct coll_net net = coll_net_of(&one, p);

	check_point(c, args, &one, &net, exact);
	if (p < 3 || c->rc || (c->alg->supports && c->alg->supports(args)))
		return;
	all.ports = p - 1;
	net.ports = p - 1;
	knows = form_of(c, args, &one, &bound) != form_of(c, args, &all, &bound);
	if (knows || p < 20)
		check_point(c, args, &all, &net, exact && knows);
}

static bool uses_chunks(const struct check *c, const struct coll_args *args)
{
	struct coll_cost_params params = {
		.alpha = 1 / 1e6, .beta = 1 / 1e9, .gamma = 1 / 1e9, .ports = 1,
	};
	struct coll_args two = *args, five = *args;

	two.chunks = 2;
	five.chunks = 5;
	return args->collective != NPULINK_COLL_ALLTOALLV && args->nranks > 2 &&
	       !(c->alg->supports && c->alg->supports(args)) &&
	       c->alg->cost(&two, &params) != c->alg->cost(&five, &params);
}

static void check_chunks(struct check *c, struct coll_args *args)
{
	uint32_t i;

	args->chunks = 0;
	if (!uses_chunks(c, args)) {
		check_ports(c, args, c->alg->exact);
		return;
	}
	/* The best number of chunks need not divide the count. */
	check_ports(c, args, false);
	for (i = 0; i < sizeof(chunks_tried) / sizeof(*chunks_tried); i++) {
		args->chunks = chunks_tried[i];
		check_ports(c, args, c->alg->exact);
	}
	args->chunks = 0;
}

/* Uneven, some empty; or all alike. */
static void fill_counts(struct check *c, struct coll_args *args, uint64_t unit, bool even)
{
	uint32_t p = args->nranks, i, j;

	args->counts = c->counts;
	for (i = 0; i < p; i++) {
		c->counts[i] = even ? unit : (i * 7 + 3) % 5 * unit / 2;
		for (j = 0; j < p && args->collective == NPULINK_COLL_ALLTOALLV; j++)
			c->counts[(size_t)i * p + j] = even ? unit : (i * 7 + j * 3) % 5 * unit / 2;
	}
}

static void check_sizes(struct check *c, struct coll_args *args)
{
	static const uint64_t units[] = { 1, 1 << 10 };
	uint32_t p = args->nranks, i;
	uint64_t count = (uint64_t)p * (1U << lg_floor(p)) * CHUNKS_LCM;

	for (i = c->brief; i < 2; i++) {
		if (args->collective == NPULINK_COLL_BARRIER) {
			check_chunks(c, args);
			return;
		}
		if (npulink_coll_is_v(args->collective)) {
			fill_counts(c, args, CHUNKS_LCM * units[i], false);
			check_chunks(c, args);
			fill_counts(c, args, CHUNKS_LCM * units[i], true);
			check_chunks(c, args);
			continue;
		}
		args->count = count * units[i];
		if (!coll_splits(args->collective))
			args->count = CHUNKS_LCM * units[i] * (1U << lg_floor(p));
		check_chunks(c, args);
	}
}

static void check_roots(struct check *c, struct coll_args *args)
{
	uint32_t p = args->nranks;
	const uint32_t roots[] = { 0, p / 2, 1, p - 1 };
	uint32_t i, n = p < 4 ? p : c->brief || p > 40 ? 2 : 4;

	args->root = 0;
	if (!npulink_coll_has_root(args->collective)) {
		check_sizes(c, args);
		return;
	}
	for (i = 0; i < n; i++) {
		args->root = p < 4 ? i : roots[i];
		check_sizes(c, args);
	}
}

/* Servers of a few sizes, the last or the first one with what is left. */
static void check_servers(struct check *c, struct coll_args *args, struct coll_topo *topo)
{
	static const uint32_t sizes[] = { 1, 2, 3, 4, 8 };
	uint32_t p = args->nranks, i, r;

	topo->server_of = c->servers;
	for (i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		if (sizes[i] >= p || p > 16 * sizes[i])
			continue;
		for (r = 0; r < p; r++)
			c->servers[r] = r / sizes[i];
		topo->nservers = c->servers[p - 1] + 1;
		check_roots(c, args);
		if (p % sizes[i] == 0)
			continue;
		for (r = 0; r < p; r++)
			c->servers[r] = (r + sizes[i] - p % sizes[i]) / sizes[i];
		check_roots(c, args);
	}
}

/* Algorithms that want to know the wiring get every shape that p has. */
static void check_shapes(struct check *c, uint32_t p)
{
	struct coll_args args = {
		.collective = c->alg->collective, .nranks = p, .dtype = NPULINK_FLOAT32,
		.redop = NPULINK_SUM, .count = p, .counts = c->counts, .rcounts = c->counts,
	};
	struct coll_topo topo = { 0 };
	uint32_t r;

	if (args.collective == NPULINK_COLL_P2P && p != 2)
		return;
	if (!c->alg->supports || !c->alg->supports(&args)) {
		check_roots(c, &args);
		return;
	}
	args.topo = &topo;
	for (r = 1; r <= p; r++) {
		if (p % r)
			continue;
		topo.rows = r;
		topo.cols = p / r;
		check_roots(c, &args);
	}
	topo.rows = 0;
	topo.cols = 0;
	check_servers(c, &args, &topo);
}

int coll_sim_check(const struct coll_algorithm *alg, uint32_t max_ranks, bool brief,
		   struct coll_sim_check *report)
{
	static const uint32_t some[] = { 48, 63, 64, 100, 127, 128 };
	struct check c = { .alg = alg, .report = report, .brief = brief };
	uint32_t p, i;

	memset(report, 0, sizeof(*report));
	c.counts = calloc((size_t)max_ranks * max_ranks + 1, sizeof(*c.counts));
	c.row = calloc(max_ranks + 1, sizeof(*c.row));
	c.servers = calloc(max_ranks + 1, sizeof(*c.servers));
	if (!c.counts || !c.row || !c.servers)
		c.rc = -ENOMEM;
	for (p = 1; p <= 33 && p <= max_ranks && !c.rc; p++)
		check_shapes(&c, p);
	c.brief = true;
	for (i = 0; i < sizeof(some) / sizeof(*some) && some[i] <= max_ranks && !c.rc; i++)
		check_shapes(&c, some[i]);
	free(c.counts);
	free(c.row);
	free(c.servers);
	return c.rc;
}
