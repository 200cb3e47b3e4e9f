// SPDX-License-Identifier: GPL-2.0
/*
 * cost.c - npulink plan cost: what each algorithm takes by its closed form,
 * beside the bounds that none can beat; and whether the forms are right, by running
 * the very plans on the simulator.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "coll.h"
#include "lib/algorithm/algorithms.h"
#include "lib/simulate/check.h"
#include "lib/simulate/sim.h"
#include "lib/tune/tune.h"
#include "plan/options.h"

static const char cost_usage[] =
	"Usage: npulink [-j] plan cost [COLLECTIVE | all] [OPTION]...\n"
	"       npulink [-j] plan cost --check [COLLECTIVE | all] [-a NAME]\n"
	"\n"
	"Prints what each algorithm takes by its closed form (see plan list), and how many\n"
	"times the lower bound that is: the largest of what latency, bandwidth and reductions\n"
	"take at least. For one collective, --count is what libcoll calls so: elements of one\n"
	"rank's shard, if there are shards. For all, it is the elements of all shards together, so\n"
	"that they can be compared. The first line says how many bytes that is. In the forms:\n"
	"\n"
	FORMS_HELP
	"\n"
	"With --check, runs the plans of all ranks on the simulator (1 to 33, 48, 63, 64, 100,\n"
	"127 and 128 ranks, several roots, sizes, chunks, one port and all) and compares: a form\n"
	"called exact must be met to 1e-9, an upper bound must not be exceeded.\n"
	"\n"
	OPTIONS_HELP
	NET_SHAPE_HELP
	NET_COST_HELP
	"      --check           check the forms\n"
	"  -j, --json            JSON\n"
	"\n"
	"Exit status: 1 if a form is wrong.\n";

/* ---- the forms */

static void put_bounds(struct json_object *obj, const struct coll_bounds *bounds)
{
	put_double(obj, "bound", bounds->best);
	put_double(obj, "bound_latency", bounds->latency);
	put_double(obj, "bound_bandwidth", bounds->bandwidth);
	put_double(obj, "bound_reductions", bounds->compute);
}

/* The n of the forms. Of alltoallv it is what this rank sends, since ranks differ. */
static uint64_t form_bytes(const struct coll_args *args)
{
	uint64_t n = 0;

	if (args->collective != NPULINK_COLL_ALLTOALLV)
		return coll_args_bytes(args);
	for (uint32_t i = 0; i < args->nranks; i++)
		n += args->counts[i];
	return n * npulink_dtype_size(args->dtype);
}

static void cost_row(const struct coll_algorithm *alg, const struct coll_args *args,
		     const struct coll_cost_params *params, struct json_object *array)
{
	const char *why = alg->supports ? alg->supports(args) : NULL;
	double seconds = why ? 0 : alg->cost(args, params);
	struct coll_bounds bounds = coll_bounds(args, params);
	bool exact = !why && coll_form_exact(alg, args, params);
	struct json_object *obj;
	char t1[16], t2[16], ratio[16] = "-";

	if (array) {
		obj = json_object_new_object();
		put_str(obj, "collective", coll_collective_name(alg->collective));
		put_str(obj, "algorithm", alg->name);
		put_str(obj, "cost", alg->formula);
		put_bool(obj, "exact", exact);
		put_u64(obj, "bytes", form_bytes(args));
		json_object_object_add(obj, "predicted",
				       why ? NULL : json_object_new_double(seconds));
		put_str(obj, "why_not", why);
		put_bounds(obj, &bounds);
		json_object_array_add(array, obj);
		return;
	}
	if (!why && bounds.best > 0)
		snprintf(ratio, sizeof(ratio), "%.2f", seconds / bounds.best);
	printf("%-16s %-20s %s%12s %12s %8s  %s\n", coll_collective_name(alg->collective),
	       alg->name, exact || why ? "  " : "<=", why ? "-" : human_time(seconds, t1),
	       human_time(bounds.best, t2), ratio, why ? why : alg->formula);
}

/* Counts are of the whole buffer here, so that collectives can be compared. */
static void whole_count(struct coll_args *args, uint64_t count, uint64_t *counts)
{
	uint32_t p = args->nranks;

	args->counts = NULL;
	args->rcounts = NULL;
	args->count = npulink_coll_has_blocks(args->collective) ? count / p : count;
	if (!npulink_coll_is_v(args->collective))
		return;
	for (uint32_t i = 0; i < p; i++)
		counts[i] = args->count;
	args->count = 0;
	args->counts = counts;
	args->rcounts = counts;
}

static int cost_all(struct query *q, struct json_object *array)
{
	const struct coll_algorithm *alg;
	struct coll_args *args = &q->args;
	uint64_t count = args->count, *counts = calloc(args->nranks, sizeof(*counts));
	struct coll_cost_params params;
	int rc = counts ? 0 : fail("not enough memory");

	if (!rc && args->root >= args->nranks)
		rc = usage_error("there is no root %u of %u ranks", args->root, args->nranks);
	if (!rc)
		rc = net_topo(&q->net, args->nranks, &q->topo, &args->topo);
	if (!rc)
		rc = net_params(&q->net, args->nranks, &params);
	if (!rc)
		rc = net_network(&q->net, args, &q->network);
	args->network = &q->network;
	for (uint32_t c = 0; c < NPULINK_COLLS && !rc; c++) {
		if (c == NPULINK_COLL_P2P)
			continue;
		args->collective = c;
		whole_count(args, count, counts);
		rc = query_check(args, "cost");
		for (alg = NULL; !rc && (alg = coll_algorithm_next(c, alg));)
			if (!q->name || !strcmp(q->name, alg->name))
				cost_row(alg, args, &params, array);
	}
	free(counts);
	args->counts = NULL;
	args->rcounts = NULL;
	return rc;
}

static int cost_one(struct query *q, struct json_object *array)
{
	const struct coll_algorithm *alg = NULL;
	struct coll_cost_params params;
	int rc = net_params(&q->net, q->args.nranks, &params);

	while (!rc && (alg = coll_algorithm_next(q->args.collective, alg)))
		if (!q->name || !strcmp(q->name, alg->name))
			cost_row(alg, &q->args, &params, array);
	return rc;
}

/* ---- are they right? */

struct totals {
	uint64_t rows, points, messages, wrong;
	double worst;
	const struct coll_algorithm *alg;
};

static bool is_wrong(const struct coll_algorithm *alg, const struct coll_sim_check *r)
{
	return fabs(r->worst) > COLL_SIM_CLOSE || r->below || r->stuck || !r->points;
}

static struct json_object *check_json(const struct coll_algorithm *alg,
				      const struct coll_sim_check *r)
{
	struct json_object *obj = json_object_new_object();

	put_str(obj, "collective", coll_collective_name(alg->collective));
	put_str(obj, "algorithm", alg->name);
	put_bool(obj, "exact", alg->exact);
	put_u64(obj, "calls", r->points);
	put_u64(obj, "messages", r->messages);
	put_double(obj, "difference", r->worst);
	if (r->worst != 0) {
		put_str(obj, "where", r->where);
		put_double(obj, "form", r->form);
		put_double(obj, "simulated", r->simulated);
	}
	if (!alg->exact)
		put_double(obj, "slack", r->slack);
	put_u64(obj, "below_bound", r->below);
	put_u64(obj, "stuck", r->stuck);
	put_bool(obj, "right", !is_wrong(alg, r));
	return obj;
}

static void check_text(const struct coll_algorithm *alg, const struct coll_sim_check *r)
{
	char t1[16], t2[16];

	printf("%-16s %-20s %6" PRIu64 " %10" PRIu64 " %s %9.2g",
	       coll_collective_name(alg->collective), alg->name, r->points,
	       r->messages, alg->exact ? " =" : "<=", r->worst);
	if (!alg->exact)
		printf("  down to %.2g of it", 1 + r->slack);
	if (fabs(r->worst) > COLL_SIM_CLOSE)
		printf("  WRONG: %s: form %s, simulated %s", r->where, human_time(r->form, t1),
		       human_time(r->simulated, t2));
	if (r->below)
		printf("  WRONG: below the lower bound: %s", r->where_below);
	if (r->stuck)
		printf("  WRONG: %s", r->text);
	if (!r->points)
		printf("  never ran");
	putchar('\n');
}

static int check_row(const struct coll_algorithm *alg, struct totals *t, struct json_object *array)
{
	struct coll_sim_check r;
	int rc = coll_sim_check(alg, 128, false, &r);

	if (rc)
		return fail("cannot simulate %s %s: %s", coll_collective_name(alg->collective),
			    alg->name, coll_strerror(rc));
	t->rows++;
	t->points += r.points;
	t->messages += r.messages;
	t->wrong += is_wrong(alg, &r);
	if (fabs(r.worst) > fabs(t->worst) || !t->alg) {
		t->worst = r.worst;
		t->alg = alg;
	}
	if (array)
		json_object_array_add(array, check_json(alg, &r));
	else
		check_text(alg, &r);
	fflush(stdout);
	return 0;
}

static int check(const struct query *q)
{
	struct json_object *array = opts.json ? json_object_new_array() : NULL, *obj;
	const struct coll_algorithm *alg;
	struct totals t = { 0 };
	int rc = 0;

	if (!array)
		printf("%-16s %-20s %6s %10s %12s\n", "COLLECTIVE", "ALGORITHM", "CALLS",
		       "MESSAGES",
		       "DIFFERENCE");
	for (uint32_t c = 0; c < NPULINK_COLLS && !rc; c++) {
		if (!q->every && c != q->args.collective)
			continue;
		for (alg = NULL; !rc && (alg = coll_algorithm_next(c, alg));)
			if (!q->name || !strcmp(q->name, alg->name))
				rc = check_row(alg, &t, array);
	}
	if (!rc && !t.rows)
		rc = usage_error("there is no algorithm \"%s\"", q->name);
	if (array && !rc) {
		obj = json_object_new_object();
		put_u64(obj, "algorithms", t.rows);
		put_u64(obj, "calls", t.points);
		put_u64(obj, "messages", t.messages);
		put_u64(obj, "wrong", t.wrong);
		put_double(obj, "difference", t.worst);
		json_object_object_add(obj, "rows", array);
		json_print(obj);
	} else if (array) {
		json_object_put(array);
	} else if (!rc) {
		printf("largest relative difference %.2g (%s %s); %" PRIu64 " algorithms, %" PRIu64
		       " calls, %" PRIu64 " messages\n", t.worst,
		       coll_collective_name(t.alg->collective), t.alg->name, t.rows, t.points,
		       t.messages);
	}
	if (!rc && t.wrong)
		rc = fail("%" PRIu64 " of %" PRIu64 " closed forms are wrong", t.wrong, t.rows);
	return rc;
}

static void cost_title(const struct query *q)
{
	const struct coll_args *args = &q->args;
	uint64_t bytes = q->every ? args->count * npulink_dtype_size(args->dtype) :
			 form_bytes(args);

	printf("p = %u ranks, n = %" PRIu64 " bytes%s\n\n", args->nranks, bytes,
	       q->every ? " or the next that p divides below it" : "");
}

int plan_cost(int argc, char **argv)
{
	struct json_object *array = NULL;
	struct query q;
	int rc;

	rc = query_parse(&q, argc, argv, "*a:p:n:d:o:r:i", cost_usage);
	if (rc >= 0)
		goto out;
	if (q.net.check) {
		rc = check(&q);
		goto out;
	}
	if (opts.json) {
		array = json_object_new_array();
	} else {
		cost_title(&q);
		printf("%-16s %-20s   %12s %12s %8s  %s\n", "COLLECTIVE", "ALGORITHM",
		       "PREDICTED", "LOWER BOUND", "RATIO", "CLOSED FORM");
	}
	rc = q.every ? cost_all(&q, array) : cost_one(&q, array);
	if (!rc && !array)
		printf("\n" FORMS_HELP);
	if (!rc && array)
		json_print(array);
	else
		json_object_put(array);
out:
	query_free(&q);
	return rc;
}
