// SPDX-License-Identifier: GPL-2.0
/*
 * simulate.c - npulink plan simulate: runs the plans of all ranks on a model of
 * a network, and says how long that takes and who gets in whose way.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <coll.h>
#include "plan/sim_log.h"

static const char simulate_usage[] =
	"Usage: npulink [-j] plan simulate COLLECTIVE [OPTION]...\n"
	"       npulink [-j] plan simulate --file FILE [OPTION]...\n"
	"\n"
	"Runs the plans of all ranks on a model of a network. The cost rule is that of the\n"
	"closed forms: steps in list order, one message at a time in each direction. The exec\n"
	"rule is what the kernel does: slices, no order but dependencies, reductions while the\n"
	"next slice arrives. Where links are shared, a message takes its whole way at once;\n"
	"if a part of it is taken that is a conflict.\n"
	"\n"
	OPTIONS_HELP
	"  -f, --file FILE       the plans of all ranks, as \"plan show --all --text\" prints\n"
	"                        them; - is standard input\n"
	NET_SHAPE_HELP
	NET_COST_HELP
	"      --far-alpha TIME, --far-beta SPEED\n"
	"                        between servers, or between leaf switches\n"
	"      --sharing HOW     a message that finds a link taken may wait, get its fair share,\n"
	"                        or ignore that (wait)\n"
	"      --rule RULE       cost, exec or both (both)\n"
	"      --slice BYTES     of the exec rule (128K)\n"
	"      --svg FILE        a picture: ranks against time, with conflicts\n"
	"      --trace FILE      a trace for ui.perfetto.dev\n"
	"  -j, --json            JSON\n"
	"\n"
	"Picture and trace show the cost rule unless --rule exec is given.\n";

const char *rule_name(uint32_t rule)
{
	return rule == COLL_RULE_COST ? "cost" : "exec";
}

/* ---- writing down */

static void *more(void *array, size_t n, size_t *cap, size_t size)
{
	if (n < *cap)
		return array;
	*cap = *cap ? 2 * *cap : 256;
	array = reallocarray(array, *cap, size);
	if (!array)
		exit(fail("not enough memory"));
	return array;
}

static void on_message(void *ctx, const struct coll_sim_message *message)
{
	struct sim_log *log = ctx;

	log->messages = more(log->messages, log->nmessages, &log->messages_cap,
			     sizeof(*log->messages));
	log->messages[log->nmessages++] = *message;
}

/* Counted by the simulator; of very many only the first are kept. */
static void on_conflict(void *ctx, const struct coll_sim_conflict *conflict)
{
	struct sim_log *log = ctx;

	if (log->nconflicts >= 1 << 20)
		return;
	log->conflicts = more(log->conflicts, log->nconflicts, &log->conflicts_cap,
			      sizeof(*log->conflicts));
	log->conflicts[log->nconflicts++] = *conflict;
}

static void log_free(struct sim_log *log)
{
	free(log->messages);
	free(log->conflicts);
}

/* alltoallv: every rank sends the same, row by row. */
static uint64_t *all_rows(const struct query *q)
{
	uint32_t n = q->args.nranks;
	uint64_t *rows = calloc((size_t)n * n, sizeof(*rows));

	for (uint32_t i = 0; rows && i < n; i++)
		memcpy(rows + (size_t)i * n, q->counts, n * sizeof(*rows));
	return rows;
}

static int run(const struct query *q, const struct plan_file *file, struct sim_log *log)
{
	struct coll_sim_opts how = {
		.rule = log->rule, .slice = q->net.slice, .conflict = on_conflict, .ctx = log,
	};
	struct coll_args args = q->args;
	uint64_t *rows = NULL;
	int rc;

	if (log->with_messages)
		how.message = on_message;
	if (file) {
		rc = coll_sim_run(&file->set, &log->net, &how, &log->result);
	} else {
		if (args.collective == NPULINK_COLL_ALLTOALLV) {
			rows = all_rows(q);
			if (!rows)
				return fail("not enough memory");
			args.counts = rows;
		}
		rc = coll_sim_algorithm(q->alg, &args, &log->net, &how, &log->result);
		free(rows);
	}
	if (rc)
		return fail("%s rule: %s", rule_name(log->rule),
			    *log->result.text ? log->result.text : coll_strerror(rc));
	return 0;
}

/* ---- output */

struct outcome {
	struct sim_log logs[2];
	uint32_t nlogs;
	struct coll_bounds bounds;
	double form;		/* negative: there is none */
	bool exact;
	double took;
};

/* How full the ports were: one second of moving takes a port at either end. */
static double port_use(const struct sim_log *log)
{
	double all = log->result.seconds * log->net.nranks *
		     (log->net.ports > 1 ? log->net.ports : 1);

	return all > 0 ? log->result.busy / all : 0;
}

#define SHOW_CONFLICTS	5

static void print_conflicts(const struct sim_log *log)
{
	char link[COLL_NET_LINK_NAME], t[16];

	for (size_t i = 0; i < log->nconflicts && i < SHOW_CONFLICTS; i++) {
		const struct coll_sim_conflict *c = &log->conflicts[i];

		printf("  at %s link %s: %u -> %u (step %u) meets %u -> %u (step %u)\n",
		       human_time(c->time, t),
		       coll_net_link_name(&log->net, c->link, link), c->src, c->dst, c->src_step,
		       c->by_src, c->by_dst, c->by_step);
	}
	if (log->result.conflicts > SHOW_CONFLICTS)
		printf("  and %" PRIu64 " more\n", log->result.conflicts - SHOW_CONFLICTS);
}

static void print_ratio(const char *what, double seconds, double simulated, const char *more)
{
	char t[16];

	printf("%-14s %12s", what, human_time(seconds, t));
	if (seconds > 0)
		printf("  simulated is %.6g times that", simulated / seconds);
	printf("%s\n", more);
}

static void print_outcome(const struct query *q, const struct outcome *o)
{
	const struct coll_net *net = &o->logs[0].net;
	const struct coll_sim_result *r = &o->logs[0].result;
	char t[16], s1[24], s2[24], b[16], m[16];

	query_print(q);
	printf("on %s, alpha %s per message, beta %s moved, gamma %s reduced, %s\n",
	       q->net.net ? q->net.net : "a full mesh of links", human_time(net->alpha[0], t),
	       human_speed(net->beta[0], s1), human_speed(net->gamma, s2),
	       net->ports > 1 ? "a port for each peer" : "one port");
	for (uint32_t i = 0; i < o->nlogs; i++) {
		const struct sim_log *log = &o->logs[i];

		printf("%s rule %*s %12s  ports are busy %.0f %%", rule_name(log->rule), 4, "",
		       human_time(log->result.seconds, t), 100 * port_use(log));
		if (coll_net_links(&log->net))
			printf("; %" PRIu64 " conflict%s", log->result.conflicts,
			       log->result.conflicts == 1 ? "" : "s");
		if (log->result.waited > 0)
			printf(", %s lost", human_time(log->result.waited, t));
		putchar('\n');
		print_conflicts(log);
	}
	if (o->form >= 0)
		print_ratio("closed form", o->form, r->seconds,
			    o->exact ? "" : " (an upper bound)");
	if (o->bounds.best > 0)
		print_ratio("lower bound", o->bounds.best, r->seconds, "");
	printf("%" PRIu64 " steps, %" PRIu64 " messages, %s bytes", r->steps, r->messages,
	       human_bytes(r->bytes, b));
	printf("; %u different list%s, %s bytes of memory, %s\n", r->lists,
	       r->lists == 1 ? "" : "s", human_bytes(r->memory, m), human_time(o->took, t));
	if (r->sampled)
		printf("planned %u ranks only; they do the same with other peers\n", r->sampled);
}

static struct json_object *json_log(const struct sim_log *log)
{
	struct json_object *obj = json_object_new_object(), *array = json_object_new_array(), *c;
	const struct coll_sim_result *r = &log->result;
	char link[COLL_NET_LINK_NAME], pair[32];

	put_double(obj, "seconds", r->seconds);
	put_double(obj, "port_use", port_use(log));
	put_u64(obj, "conflicts", r->conflicts);
	put_double(obj, "waited", r->waited);
	for (size_t i = 0; i < log->nconflicts && i < 100; i++) {
		const struct coll_sim_conflict *conflict = &log->conflicts[i];

		c = json_object_new_object();
		put_double(c, "time", conflict->time);
		put_str(c, "link", coll_net_link_name(&log->net, conflict->link, link));
		snprintf(pair, sizeof(pair), "%u -> %u", conflict->src, conflict->dst);
		put_str(c, "message", pair);
		put_u64(c, "step", conflict->src_step);
		snprintf(pair, sizeof(pair), "%u -> %u", conflict->by_src, conflict->by_dst);
		put_str(c, "taken_by", pair);
		put_u64(c, "taken_by_step", conflict->by_step);
		json_object_array_add(array, c);
	}
	json_object_object_add(obj, "first_conflicts", array);
	return obj;
}

static void json_outcome(const struct query *q, const struct outcome *o)
{
	const struct coll_net *net = &o->logs[0].net;
	const struct coll_sim_result *r = &o->logs[0].result;
	struct json_object *obj = query_json(q);

	put_str(obj, "net", q->net.net ? q->net.net : "full");
	put_double(obj, "alpha", net->alpha[0]);
	put_double(obj, "beta", net->beta[0]);
	put_double(obj, "gamma", net->gamma);
	put_u64(obj, "ports", net->ports);
	for (uint32_t i = 0; i < o->nlogs; i++)
		json_object_object_add(obj, rule_name(o->logs[i].rule), json_log(&o->logs[i]));
	json_object_object_add(obj, "form",
			       o->form >= 0 ? json_object_new_double(o->form) : NULL);
	put_bool(obj, "exact", o->exact);
	put_double(obj, "bound", o->bounds.best);
	put_u64(obj, "steps", r->steps);
	put_u64(obj, "messages", r->messages);
	put_u64(obj, "bytes", r->bytes);
	put_u64(obj, "lists", r->lists);
	put_u64(obj, "sampled", r->sampled);
	put_u64(obj, "memory", r->memory);
	put_double(obj, "took", o->took);
	json_print(obj);
}

/* Of a call, or of plans that were read. */
static int forms(const struct query *q, const struct coll_net *net,
		 const struct coll_cost_params *params, struct outcome *o)
{
	struct coll_args args = q->args;
	uint64_t *rows = NULL;

	if (args.collective == NPULINK_COLL_ALLTOALLV && q->counts) {
		rows = all_rows(q);
		if (!rows)
			return fail("not enough memory");
		args.counts = rows;
	}
	if (args.collective != NPULINK_COLL_ALLTOALLV || rows) {
		if (q->alg->cost && args.collective != NPULINK_COLL_P2P) {
			o->form = coll_form(q->alg, &args, params);
			o->exact = coll_form_exact(q->alg, &args, params);
		}
		o->bounds = coll_bounds_on(&args, net);
	}
	free(rows);
	return 0;
}

static double clock_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static int simulate(struct query *q, const struct plan_file *file)
{
	bool both = !q->net.cost_rule && !q->net.exec_rule;
	bool drawn = q->net.svg || q->net.trace;
	struct coll_cost_params params;
	struct outcome o = { .form = -1 };
	struct coll_net net;
	int rc = net_make(&q->net, q->args.nranks, &net);

	if (!rc)
		rc = net_params(&q->net, q->args.nranks, &params);
	o.took = clock_now();
	for (uint32_t rule = COLL_RULE_COST; rule <= COLL_RULE_EXEC && !rc; rule++) {
		struct sim_log *log = &o.logs[o.nlogs];

		if (!both && !(rule == COLL_RULE_COST ? q->net.cost_rule : q->net.exec_rule))
			continue;
		log->net = net;
		log->rule = rule;
		log->with_messages = drawn && !o.nlogs;
		o.nlogs++;
		rc = run(q, file, log);
	}
	o.took = clock_now() - o.took;
	if (!rc && q->net.svg)
		rc = sim_log_svg(&o.logs[0], q, q->net.svg);
	if (!rc && q->net.trace)
		rc = sim_log_trace(&o.logs[0], q, q->net.trace);
	if (!rc) {
		rc = forms(q, &net, &params, &o);
	}
	if (!rc) {
		if (opts.json)
			json_outcome(q, &o);
		else if (!(q->net.svg && !strcmp(q->net.svg, "-")) &&
			 !(q->net.trace && !strcmp(q->net.trace, "-")))
			print_outcome(q, &o);
	}
	free((void *)net.server_of);
	log_free(&o.logs[0]);
	log_free(&o.logs[1]);
	return rc;
}

int plan_simulate(int argc, char **argv)
{
	struct plan_file file;
	struct query q;
	int rc;

	rc = query_parse(&q, argc, argv, "a:p:n:d:o:r:if:", simulate_usage);
	if (rc < 0 && q.file) {
		rc = plan_file_read(&file, q.file);
		if (!rc) {
			q.args = file.args;
			q.alg = &file.alg;
			rc = simulate(&q, &file);
			q.args = (struct coll_args){ };
			plan_file_free(&file);
		}
	} else if (rc < 0) {
		rc = simulate(&q, NULL);
	}
	query_free(&q);
	return rc;
}
