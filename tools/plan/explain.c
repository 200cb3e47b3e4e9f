// SPDX-License-Identifier: GPL-2.0
/*
 * explain.c - npulink plan explain: every algorithm that could do a call, what
 * it would cost, why it lost or cannot; and what HCCL would take.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lib/algorithm/algorithms.h"
#include "lib/tune/tune.h"
#include "plan/options.h"

static const char explain_usage[] =
	"Usage: npulink [-j] plan explain COLLECTIVE [OPTION]...\n"
	"\n"
	"Shows every algorithm that could do it, what it would cost, and which one libcoll\n"
	"takes (*). COLL_ALGORITHM and COLL_CALIBRATION count as they do for programs. BOUND\n"
	"is how many times longer it takes than the lower bound, which no algorithm can beat.\n"
	"Where messages share links, or some are dearer, the cheapest are simulated.\n"
	"What HCCL would take follows its published rules, for servers of 8 ranks unless\n"
	"--net servers:.. says otherwise.\n"
	"\n"
	OPTIONS_HELP
	NET_SHAPE_HELP
	NET_COST_HELP
	"  -j, --json            JSON\n";

/* ---- HCCL's choice: see the end of lib/ALGORITHMS.md */

/**
 * struct hccl - what HCCL's rules say
 * @servers: between which
 * @inside: within a server
 * @between: between servers, NULL if there is one only
 * @why: the rule
 * @newer: between servers on newer parts, if that is another
 * @row: libcoll's algorithm that is most like it, for all ranks together
 */
struct hccl {
	uint32_t servers;
	const char *inside, *between, *why, *newer;
	const struct coll_algorithm *row;
};

#define HCCL_SERVER	8	/* ranks in a server */

static bool power_of_two(uint32_t n)
{
	return !(n & (n - 1));
}

/* The first of these names that the collective has. */
static const struct coll_algorithm *first_of(const struct query *q, const char *const *names)
{
	const struct coll_algorithm *alg = NULL;

	for (; *names && !alg; names++) {
		alg = coll_algorithm_find(q->args.collective, *names);
		if (alg && alg->supports && alg->supports(&q->args))
			alg = NULL;
	}
	return alg;
}

static struct hccl hccl_choice(const struct query *q)
{
	static const char *const mesh[] = { "mesh", "isend-irecv", "ring", NULL };
	static const char *const ring[] = { "ring", NULL };
	static const char *const rhd[] = { "rhd-hccl", "rhd", NULL };
	static const char *const pairwise[] = { "pairwise", NULL };
	uint32_t p = q->args.nranks;
	uint64_t bytes = coll_args_bytes(&q->args);
	struct hccl h = { .inside = "Mesh" };

	h.servers = q->topo.nservers ? q->topo.nservers : (p + HCCL_SERVER - 1) / HCCL_SERVER;
	if (q->args.collective == NPULINK_COLL_ALLTOALL && bytes <= (1ULL << 20) * p) {
		h.inside = h.between = "Pairwise";
		h.why = "alltoall of at most 1 MiB for each rank";
		h.row = first_of(q, pairwise);
	} else if (h.servers == 1) {
		h.why = "one server: by its topology alone";
		h.row = first_of(q, mesh);
	} else if (power_of_two(h.servers)) {
		h.between = "RHD";
		h.why = "the number of servers is a power of two";
	} else if (h.servers < 8) {
		h.between = "Ring";
		h.why = "fewer than 8 servers, not a power of two";
	} else if (h.servers < 32 && bytes >= 256ULL << 20) {
		h.between = "Ring";
		h.why = "fewer than 32 servers, not a power of two, at least 256 MiB";
	} else {
		h.between = "RHD";
		h.why = "at least 8 servers";
	}
	if (h.between && !strcmp(h.between, "RHD")) {
		h.newer = h.servers >= 4 ? "NHR" : NULL;
		h.row = first_of(q, rhd);
	} else if (!h.row) {
		h.row = first_of(q, ring);
	}
	return h;
}

/* ---- output */

/* So close are equals: sums of the same terms in another order differ by that. */
#define CLOSE	(1 + 1e-9)

/* Equals come behind the one that libcoll takes of them. */
static void sort_candidates(const struct query *q, struct coll_price *list, size_t n)
{
	struct coll_price chosen;
	size_t i = 0;

	qsort(list, n, sizeof(*list), coll_price_compare);
	while (list[i].alg != q->alg)
		i++;
	if (q->asked || list[i].seconds > list[0].seconds * CLOSE)
		return;
	chosen = list[i];
	memmove(list + 1, list, i * sizeof(*list));
	list[0] = chosen;
}

static void print_why(const struct query *q, const struct coll_price *c,
		      const struct coll_price *first)
{
	bool chosen = c->alg == q->alg;

	if (c->why)
		printf("cannot do it: %s", c->why);
	else if (c == first)
		printf("cheapest");
	else if (chosen && q->asked)
		printf("asked for");
	else if (chosen)
		printf("cheapest by what all ranks know, which the counts are not");
	else if (c->seconds <= first->seconds * CLOSE)
		printf("not cheaper");
	else if (first->seconds > 0)
		printf("%.2f times the cheapest", c->seconds / first->seconds);
	else
		printf("not free");
}

static void print_params(const struct coll_cost_params *params, const struct coll_bounds *bounds)
{
	char t1[16], t2[16], t3[16], t4[16], s1[24], s2[24];

	printf("alpha %s per message, beta %s moved, gamma %s reduced, %u port%s\n",
	       human_time(params->alpha, t1), human_speed(params->beta, s1),
	       human_speed(params->gamma, s2), params->ports, params->ports == 1 ? "" : "s");
	printf("lower bounds: %s latency, %s bandwidth, %s reductions: no less than %s\n",
	       human_time(bounds->latency, t1), human_time(bounds->bandwidth, t2),
	       human_time(bounds->compute, t3), human_time(bounds->best, t4));
}

static void explain_text(const struct query *q, const struct coll_cost_params *params,
			 const struct coll_price *list, size_t n)
{
	struct coll_bounds bounds = coll_bounds(&q->args, params);
	struct hccl h = hccl_choice(q);
	char time[16], ratio[16];

	query_print(q);
	print_params(params, &bounds);
	printf("  %-20s %12s %8s  %s\n", "ALGORITHM", "PREDICTED", "BOUND", "WHY");
	for (size_t i = 0; i < n; i++) {
		const struct coll_price *c = &list[i];

		snprintf(ratio, sizeof(ratio), "%.2fx", c->seconds / bounds.best);
		printf("%c %-20s %12s %8s  ", c->alg == q->alg ? '*' : ' ', c->alg->name,
		       c->why ? "-" : human_time(c->seconds, time),
		       c->why || bounds.best <= 0 ? "-" : ratio);
		print_why(q, c, list);
		printf("%s%s\n", c->simulated ? "; simulated" : "",
		       c->alg == h.row ? "; most like HCCL's choice" : "");
	}
	if (h.servers == 1)
		printf("HCCL would take %s (%s)\n", h.inside, h.why);
	else
		printf("HCCL would take %s inside each of %u servers, %s%s%s between them (%s)\n",
		       h.inside, h.servers, h.between, h.newer ? ", on newer parts " : "",
		       h.newer ? h.newer : "", h.why);
}

static void explain_json(const struct query *q, const struct coll_cost_params *params,
			 const struct coll_price *list, size_t n)
{
	struct json_object *obj = query_json(q), *array = json_object_new_array(), *item;
	struct coll_bounds bounds = coll_bounds(&q->args, params);
	struct hccl h = hccl_choice(q);

	put_double(obj, "alpha", params->alpha);
	put_double(obj, "beta", params->beta);
	put_double(obj, "gamma", params->gamma);
	put_u64(obj, "ports", params->ports);
	put_double(obj, "bound", bounds.best);
	put_double(obj, "bound_latency", bounds.latency);
	put_double(obj, "bound_bandwidth", bounds.bandwidth);
	put_double(obj, "bound_reductions", bounds.compute);
	for (size_t i = 0; i < n; i++) {
		item = json_object_new_object();
		put_str(item, "algorithm", list[i].alg->name);
		put_bool(item, "chosen", list[i].alg == q->alg);
		put_bool(item, "asked_for", q->asked && list[i].alg == q->alg);
		put_bool(item, "exact", !list[i].why && !list[i].simulated &&
			 coll_form_exact(list[i].alg, &q->args, params));
		put_bool(item, "simulated", list[i].simulated);
		json_object_object_add(item, "predicted", list[i].why ? NULL :
				       json_object_new_double(list[i].seconds));
		put_str(item, "why_not", list[i].why);
		json_object_array_add(array, item);
	}
	json_object_object_add(obj, "candidates", array);
	item = json_object_new_object();
	put_u64(item, "servers", h.servers);
	put_str(item, "inside", h.inside);
	put_str(item, "between", h.between);
	put_str(item, "newer", h.newer);
	put_str(item, "rule", h.why);
	put_str(item, "algorithm", h.row ? h.row->name : NULL);
	json_object_object_add(obj, "hccl", item);
	json_print(obj);
}

int plan_explain(int argc, char **argv)
{
	struct coll_price list[COLL_PRICES];
	struct coll_cost_params params = { };
	struct coll_tune tune = { };
	struct query q;
	size_t n = 0;
	int rc;

	rc = query_parse(&q, argc, argv, "a:p:n:d:o:r:i", explain_usage);
	if (rc >= 0)
		goto out;
	rc = net_tune(&q.net, q.args.nranks, &tune);
	params = tune.params;
	if (!rc)
		n = coll_tune_prices(&tune, &q.args, list);
	if (!rc) {
		sort_candidates(&q, list, n);
		if (opts.json)
			explain_json(&q, &params, list, n);
		else
			explain_text(&q, &params, list, n);
	}
	coll_tune_free(&tune);
out:
	query_free(&q);
	return rc;
}
