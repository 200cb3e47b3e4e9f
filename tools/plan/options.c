// SPDX-License-Identifier: GPL-2.0
/*
 * options.c - the command line of npulink plan: which collective, how many ranks, of
 * what, by which algorithm.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/aliases.h"
#include "coll.h"
#include "lib/algorithm/algorithms.h"
#include "lib/plan/planner.h"
#include "lib/tune/topo.h"
#include "lib/tune/tune.h"
#include "plan/options.h"

#define MAX_RANKS	NPULINK_MAX_RANKS

static const struct option long_opts[] = {
	{ "algorithm", required_argument, NULL, 'a' },
	{ "ranks", required_argument, NULL, 'p' },
	{ "rank", required_argument, NULL, 'k' },
	{ "count", required_argument, NULL, 'n' },
	{ "counts", required_argument, NULL, 'v' },
	{ "datatype", required_argument, NULL, 'd' },
	{ "op", required_argument, NULL, 'o' },
	{ "root", required_argument, NULL, 'r' },
	{ "in-place", no_argument, NULL, 'i' },
	{ "chunks", required_argument, NULL, 'C' },
	{ "all", no_argument, NULL, 'A' },
	{ "text", no_argument, NULL, 't' },
	{ "file", required_argument, NULL, 'f' },
	NET_LONG_OPTIONS,
	CMD_OPTION_END
};

static bool parse_counts(struct query *q, const char *text)
{
	char *copy = strdup(text), *rest = copy, *word;
	bool ok = copy;

	while (ok && (word = strsep(&rest, ","))) {
		uint64_t *counts = reallocarray(q->counts, q->ncounts + 1, sizeof(*counts));

		if (!counts)
			exit(fail("not enough memory"));
		q->counts = counts;
		ok = parse_u64(word, UINT64_MAX, &counts[q->ncounts++]);
	}
	free(copy);
	return ok && q->ncounts;
}

static bool parse_u32(const char *text, uint32_t max, uint32_t *value)
{
	uint64_t v;

	if (!parse_u64(text, max, &v))
		return false;
	*value = v;
	return true;
}

static bool set_option(struct query *q, const char **algorithm, int c, const char *arg)
{
	struct coll_args *args = &q->args;

	switch (c) {
	case 'a':
		*algorithm = arg;
		return true;
	case 'p':
		return parse_u32(arg, MAX_RANKS, &args->nranks) && args->nranks;
	case 'k':
		return parse_u32(arg, MAX_RANKS - 1, &args->rank);
	case 'n':
		return parse_size(arg, &args->count);
	case 'v':
		return parse_counts(q, arg);
	case 'd':
		return parse_dtype(arg, &args->dtype);
	case 'o':
		return parse_redop(arg, &args->redop);
	case 'r':
		return parse_u32(arg, MAX_RANKS - 1, &args->root);
	case 'i':
		args->in_place = true;
		return true;
	case 'C':
		return parse_u32(arg, 1 << 20, &args->chunks) && args->chunks;
	case 'A':
		q->all = true;
		return true;
	case 't':
		q->text = true;
		return true;
	case 'f':
		q->file = arg;
		return true;
	}
	return c >= NET_FIRST && net_option(&q->net, c, arg);
}

static const char *option_name(int c)
{
	for (size_t i = 0; long_opts[i].name; i++)
		if (long_opts[i].val == c)
			return long_opts[i].name;
	return "?";
}

/* alltoallv: every rank sends counts[i] to rank i, so rank i gets that from each. */
void query_set_rank(struct query *q, uint32_t rank)
{
	q->args.rank = rank;
	for (uint32_t i = 0; q->args.rcounts && i < q->args.nranks; i++)
		((uint64_t *)q->args.rcounts)[i] = q->counts[rank];
}

/* Complete the arguments of the v forms: equal shards unless --counts says otherwise. */
static int fill_counts(struct query *q)
{
	struct coll_args *args = &q->args;
	uint64_t *rcounts;

	if (!npulink_coll_is_v(args->collective)) {
		if (q->ncounts)
			return usage_error("%s takes --count, not --counts",
					   coll_collective_name(args->collective));
		return 0;
	}
	if (!q->ncounts) {
		q->counts = calloc(args->nranks, sizeof(*q->counts));
		if (!q->counts)
			return fail("not enough memory");
		for (; q->ncounts < args->nranks; q->ncounts++)
			q->counts[q->ncounts] = args->count;
	}
	if (q->ncounts != args->nranks)
		return usage_error("--counts has %zu numbers, but there are %u ranks", q->ncounts,
				   args->nranks);
	args->count = 0;
	args->counts = q->counts;
	if (args->collective != NPULINK_COLL_ALLTOALLV)
		return 0;
	rcounts = calloc(args->nranks, sizeof(*rcounts));
	if (!rcounts)
		return fail("not enough memory");
	args->rcounts = rcounts;
	query_set_rank(q, args->rank);
	return 0;
}

static int choose(struct query *q, const char *algorithm)
{
	const char *collective = coll_collective_name(q->args.collective), *why;
	char text[400] = "";
	struct coll_tune tune;
	double seconds;
	int rc;

	q->asked = algorithm;
	if (algorithm) {
		q->alg = coll_algorithm_find(q->args.collective, algorithm);
		if (!q->alg)
			return usage_error("%s has no algorithm \"%s\"; see: npulink plan list %s",
					   collective, algorithm, collective);
		why = q->alg->supports ? q->alg->supports(&q->args) : NULL;
		if (why)
			return usage_error("%s cannot do it: %s", algorithm, why);
		return 0;
	}
	rc = net_tune(&q->net, q->args.nranks, &tune);
	if (rc)
		return rc;
	q->asked = coll_tune_asked(&tune, &q->args);
	rc = coll_tune_choose(&tune, &q->args, &q->alg, &seconds, text, sizeof(text));
	coll_tune_free(&tune);
	if (rc)
		return fail("%s", *text ? text : coll_strerror(rc));
	return 0;
}

/* Buffers that could not be: closed forms would not notice. */
int query_check(const struct coll_args *args, const char *verb)
{
	const char *why = coll_args_check(args);
	struct coll_args filled;
	uint64_t *mem, send, recv;
	int rc;

	if (why)
		return usage_error("plan %s: %s", verb, why);
	if (plan_args_fill(args, &filled, &mem))
		return fail("not enough memory");
	rc = plan_buffers(&filled, &send, &recv);
	free(mem);
	return rc ? usage_error("plan %s: so many elements are too large for a buffer", verb) : 0;
}

int query_parse(struct query *q, int argc, char **argv, const char *letters, const char *usage)
{
	const char *algorithm = NULL;
	bool may_be_all = false;
	int c, rc;

	*q = (struct query){
		.args = { .nranks = 8, .count = 1024, .dtype = NPULINK_FLOAT32 },
		.net = NET_OPTS_NONE,
	};
	if (*letters == '*') {
		may_be_all = true;
		letters++;
	}
	while ((c = cmd_option(argc, argv, letters, long_opts, usage)) != -1) {
		if (c == 'h')
			return EXIT_SUCCESS;
		if (c == ':')
			return EXIT_USAGE;
		if (!set_option(q, &algorithm, c, optarg))
			return usage_error("plan %s: \"%s\" makes no sense for --%s, see: npulink plan %s --help",
					   argv[0], optarg, option_name(c), argv[0]);
	}
	argc -= optind;
	if (q->file)
		return argc ? usage_error("plan %s: unknown word \"%s\"", argv[0],
					  argv[optind]) : -1;
	if (may_be_all && (!argc || (argc == 1 && !strcmp(argv[optind], "all")))) {
		q->every = true;
		q->name = algorithm;
		return -1;
	}
	if (!argc)
		return usage_error("plan %s: which collective? see: npulink plan %s --help",
				   argv[0], argv[0]);
	if (!parse_collective(argv[optind], &q->args.collective))
		return usage_error("plan %s: unknown collective \"%s\", see: npulink plan list",
				   argv[0], argv[optind]);
	if (argc > 1)
		return usage_error("plan %s: unknown word \"%s\"", argv[0], argv[optind + 1]);
	if (q->args.collective == NPULINK_COLL_P2P)
		return usage_error("send and receive are plans of one step; there is nothing to choose");
	if (q->args.rank >= q->args.nranks)
		return usage_error("there is no rank %u of %u", q->args.rank, q->args.nranks);
	if (q->args.root >= q->args.nranks)
		return usage_error("there is no root %u of %u ranks", q->args.root, q->args.nranks);
	rc = fill_counts(q);
	if (!rc)
		rc = net_topo(&q->net, q->args.nranks, &q->topo, &q->args.topo);
	if (rc)
		return rc;
	q->name = algorithm;
	rc = query_check(&q->args, argv[0]);
	if (!rc)
		rc = net_network(&q->net, &q->args, &q->network);
	q->args.network = &q->network;
	if (!rc)
		rc = choose(q, algorithm);
	return rc ? rc : -1;
}

void query_free(struct query *q)
{
	coll_topo_free(&q->topo);
	free((void *)q->args.rcounts);
	free(q->counts);
}

/* "allreduce, algorithm ring: 8 ranks, 1024 float, sum" */
void query_title(const struct query *q, char *text, size_t size)
{
	const struct coll_args *args = &q->args;
	size_t n;

	n = snprintf(text, size, "%s, algorithm %s: %u ranks",
		     coll_collective_name(args->collective), q->alg->name, args->nranks);
	if (args->counts)
		n += snprintf(text + n, size - n, ", uneven shards of %s",
			      dtype_label(args->dtype));
	else if (args->collective != NPULINK_COLL_BARRIER)
		n += snprintf(text + n, size - n, ", %" PRIu64 " %s", args->count,
			      dtype_label(args->dtype));
	if (npulink_coll_reduces(args->collective))
		n += snprintf(text + n, size - n, ", %s", coll_redop_name(args->redop));
	if (npulink_coll_has_root(args->collective))
		n += snprintf(text + n, size - n, ", root %u", args->root);
	if (args->in_place)
		snprintf(text + n, size - n, ", in place");
}

void query_print(const struct query *q)
{
	char title[240];

	query_title(q, title, sizeof(title));
	puts(title);
}

struct json_object *query_json(const struct query *q)
{
	const struct coll_args *args = &q->args;
	struct json_object *obj = json_object_new_object(), *counts;

	put_str(obj, "collective", coll_collective_name(args->collective));
	put_str(obj, "algorithm", q->alg->name);
	put_u64(obj, "ranks", args->nranks);
	put_str(obj, "datatype", coll_dtype_name(args->dtype));
	put_str(obj, "op", coll_redop_name(args->redop));
	put_u64(obj, "root", args->root);
	put_bool(obj, "in_place", args->in_place);
	if (args->counts) {
		counts = json_object_new_array();
		for (uint32_t i = 0; i < args->nranks; i++)
			json_object_array_add(counts, json_object_new_uint64(args->counts[i]));
		json_object_object_add(obj, "counts", counts);
	} else {
		put_u64(obj, "count", args->count);
	}
	return obj;
}

const char *slot_name(uint32_t slot, char buf[16])
{
	static const char *const names[] = { "send", "recv", "scratch" };

	if (slot < ARRAY_SIZE(names))
		return names[slot];
	snprintf(buf, 16, "slot%u", slot);
	return buf;
}
