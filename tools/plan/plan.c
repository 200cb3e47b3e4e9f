// SPDX-License-Identifier: GPL-2.0
/*
 * plan.c - npulink plan: the algorithms that libcoll knows. What they do, what that
 * costs and whether it is right, is the matter of plan_*.c. None of this needs a
 * module or a device.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/aliases.h"
#include "lib/algorithm/algorithms.h"
#include "plan/options.h"

/* ---- list */

static const char list_usage[] =
	"Usage: npulink [-j] plan list [COLLECTIVE]\n"
	"\n"
	"Lists the algorithms that libcoll knows, and what they cost. lg is the logarithm to\n"
	"base 2.\n"
	"\n"
	FORMS_HELP
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

static const struct cmd cmds[] = {
	{ "list",	plan_list,	"[COLLECTIVE]: algorithms and what they cost" },
	{ "explain",	plan_explain,	"COLLECTIVE: candidates, cost, choice" },
	{ "cost",	plan_cost,	"[COLLECTIVE]: closed forms and lower bounds; --check" },
	{ "show",	plan_show,	"COLLECTIVE: the steps of one rank" },
	{ "simulate",	plan_simulate,	"COLLECTIVE: run all ranks on a model of a network" },
	{ "plot",	plan_plot,	"COLLECTIVE: predicted time against size, as SVG" },
	{ "verify",	plan_verify,	"COLLECTIVE: prove the plans of all ranks right" },
	{ }
};

int plan_cmd(int argc, char **argv)
{
	return cmd_run("plan", cmds, argc, argv);
}
