// SPDX-License-Identifier: GPL-2.0
/*
 * plan.c - npulink plan: the algorithms that libcoll knows, and why it takes which.
 * What they do is shown by plan_show.c and proved by plan_verify.c. None of this needs
 * a module or a device.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "internal.h"
#include "query.h"
#include "words.h"

/* ---- list */

static const char list_usage[] =
	"Usage: npulink [-j] plan list [COLLECTIVE]\n"
	"\n"
	"Lists the algorithms that libcoll knows: p ranks, n bytes, alpha seconds per\n"
	"message, beta per byte moved, gamma per byte reduced; lg is the logarithm to\n"
	"base 2. \"<=\" marks an upper bound, else the cost is exact.\n"
	"\n"
	"  -j, --json  JSON\n";

static struct json_object *list_json(const struct coll_algorithm *alg)
{
	struct json_object *obj = json_object_new_object();

	put_str(obj, "collective", coll_collective_name(alg->collective));
	put_str(obj, "algorithm", alg->name);
	put_str(obj, "description", alg->desc);
	put_str(obj, "cost", alg->formula);
	put_bool(obj, "exact", alg->exact);
	put_bool(obj, "reorders", alg->commutative);
	return obj;
}

/* Formulas for one port and for many are parted by a semicolon: a line for each. */
static void list_text(const struct coll_algorithm *alg)
{
	const char *form = alg->formula, *end;

	printf("%-16s %-16s %s\n", coll_collective_name(alg->collective), alg->name, alg->desc);
	for (;;) {
		end = strstr(form, "; ");
		printf("%36s%s%.*s\n", "", alg->exact ? "" : "<= ",
		       end ? (int)(end - form) : (int)strlen(form), form);
		if (!end)
			break;
		form = end + 2;
	}
}

static int plan_list(int argc, char **argv)
{
	const struct coll_algorithm *alg = NULL;
	struct json_object *array;
	uint32_t collective = ~0U;
	int c;

	while ((c = cmd_option(argc, argv, "", NULL, list_usage)) != -1)
		return c == 'h' ? EXIT_SUCCESS : EXIT_USAGE;
	argc -= optind;
	argv += optind;
	if (argc && !parse_collective(argv[0], &collective))
		return usage_error("plan list: unknown collective \"%s\"", argv[0]);
	if (argc > 1)
		return usage_error("plan list: unknown word \"%s\"", argv[1]);

	array = json_object_new_array();
	if (!opts.json)
		printf("%-16s %-16s %s\n", "COLLECTIVE", "ALGORITHM", "WHAT IT DOES AND COSTS");
	for (uint32_t i = 0; i < NPULINK_COLLS; i++) {
		if (collective != ~0U && i != collective)
			continue;
		while ((alg = coll_algorithm_next(i, alg))) {
			if (opts.json)
				json_object_array_add(array, list_json(alg));
			else
				list_text(alg);
		}
	}
	if (opts.json)
		json_print(array);
	else
		json_object_put(array);
	return EXIT_SUCCESS;
}

/* ---- explain */

/* One candidate: what it would cost, or why it cannot do it. */
struct candidate {
	const struct coll_algorithm *alg;
	const char *why;
	double seconds;
	size_t order;
};

/* Of equals libcoll takes the first that it knows. */
static int by_cost(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	if (!x->why != !y->why)
		return x->why ? 1 : -1;
	if (x->seconds != y->seconds)
		return x->seconds > y->seconds ? 1 : -1;
	return (x->order > y->order) - (x->order < y->order);
}

static const char *human_time(double seconds, char buf[16])
{
	if (seconds * 1e3 < 1)
		snprintf(buf, 16, "%.2f us", seconds * 1e6);
	else if (seconds < 1)
		snprintf(buf, 16, "%.2f ms", seconds * 1e3);
	else
		snprintf(buf, 16, "%.2f s", seconds);
	return buf;
}

static void explain_text(const struct query *q, const struct coll_tune *tune,
			 const struct candidate *list, size_t n)
{
	const struct coll_cost_params *params = &tune->params;
	char time[16];

	query_print(q);
	printf("alpha %s per message, beta %.3g GB/s moved, gamma %.3g GB/s reduced, %u port%s\n",
	       human_time(params->alpha, time), params->beta > 0 ? 1 / params->beta / 1e9 : 0,
	       params->gamma > 0 ? 1 / params->gamma / 1e9 : 0, params->ports,
	       params->ports == 1 ? "" : "s");
	printf("  %-16s %12s  %s\n", "ALGORITHM", "PREDICTED", "WHY");
	for (size_t i = 0; i < n; i++) {
		const struct candidate *c = &list[i];

		printf("%c %-16s %12s  ", c->alg == q->alg ? '*' : ' ', c->alg->name,
		       c->why ? "-" : human_time(c->seconds, time));
		if (c->why)
			printf("cannot do it: %s\n", c->why);
		else if (!i)
			printf("cheapest\n");
		else if (c->alg == q->alg)
			printf("asked for\n");
		else if (c->seconds > list[0].seconds && list[0].seconds > 0)
			printf("%.2f times the cheapest\n", c->seconds / list[0].seconds);
		else
			printf("not cheaper\n");
	}
}

static void explain_json(const struct query *q, const struct coll_tune *tune,
			 const struct candidate *list, size_t n)
{
	struct json_object *obj = query_json(q), *array = json_object_new_array(), *item;

	json_object_object_add(obj, "alpha", json_object_new_double(tune->params.alpha));
	json_object_object_add(obj, "beta", json_object_new_double(tune->params.beta));
	json_object_object_add(obj, "gamma", json_object_new_double(tune->params.gamma));
	put_u64(obj, "ports", tune->params.ports);
	for (size_t i = 0; i < n; i++) {
		item = json_object_new_object();
		put_str(item, "algorithm", list[i].alg->name);
		put_bool(item, "chosen", list[i].alg == q->alg);
		json_object_object_add(item, "predicted", list[i].why ? NULL :
				       json_object_new_double(list[i].seconds));
		put_str(item, "why_not", list[i].why);
		json_object_array_add(array, item);
	}
	json_object_object_add(obj, "candidates", array);
	json_print(obj);
}

static const char explain_usage[] =
	"Usage: npulink [-j] plan explain COLLECTIVE [OPTION]...\n"
	"\n"
	"Shows every algorithm that could do it, what it would cost, and which one libcoll\n"
	"takes (*). COLL_ALGORITHM and COLL_CALIBRATION count as they do for programs.\n"
	"\n"
	OPTIONS_HELP
	"  -j, --json            JSON\n";

static int plan_explain(int argc, char **argv)
{
	const struct coll_algorithm *alg = NULL;
	struct candidate *list = NULL;
	char text[400] = "";
	struct coll_tune tune;
	struct query q;
	size_t n = 0;
	int rc;

	rc = query_parse(&q, argc, argv, "a:p:n:d:o:r:i", explain_usage);
	if (rc >= 0)
		goto out;
	rc = coll_tune_init(&tune, NULL, NULL, q.args.nranks, text, sizeof(text));
	if (rc) {
		rc = fail("%s", *text ? text : coll_strerror(rc));
		goto out;
	}
	while ((alg = coll_algorithm_next(q.args.collective, alg))) {
		list = reallocarray(list, n + 1, sizeof(*list));
		if (!list)
			exit(fail("not enough memory"));
		list[n].alg = alg;
		list[n].order = n;
		list[n].why = alg->supports ? alg->supports(&q.args) : NULL;
		list[n].seconds = list[n].why ? 0 : alg->cost(&q.args, &tune.params);
		n++;
	}
	qsort(list, n, sizeof(*list), by_cost);
	if (opts.json)
		explain_json(&q, &tune, list, n);
	else
		explain_text(&q, &tune, list, n);
	coll_tune_free(&tune);
	free(list);
out:
	query_free(&q);
	return rc;
}

static const struct cmd cmds[] = {
	{ "list",	plan_list,	"[COLLECTIVE]: algorithms and what they cost" },
	{ "explain",	plan_explain,	"COLLECTIVE: candidates, cost, choice" },
	{ "show",	plan_show,	"COLLECTIVE: the steps of one rank" },
	{ "verify",	plan_verify,	"COLLECTIVE: prove the plans of all ranks right" },
	{ }
};

int plan_cmd(int argc, char **argv)
{
	return cmd_run("plan", cmds, argc, argv);
}
