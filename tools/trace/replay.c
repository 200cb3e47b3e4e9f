// SPDX-License-Identifier: GPL-2.0
/*
 * replay.c - npulink replay: what would have been if. Takes collectives from a trace, has
 * libcoll plan them again, and runs the very same plans through its simulator, on a
 * network that costs what the trace shows; first as it was, so that people see how far
 * the prediction can be trusted, then with changes.
 *
 * Costs are fitted to the steps: how long the engine took (and how long it was waited
 * for) against bytes, alpha being what no byte explains. That ranks came at different
 * times is taken from the trace, too.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "coll.h"
#include "lib/algorithm/algorithms.h"
#include "lib/plan/plan.h"
#include "lib/simulate/sim.h"
#include "lib/tune/topo.h"
#include "plan/net.h"
#include "trace/flight.h"

/* ---- what steps cost */

struct sample {
	uint64_t len;
	double seconds;
};

struct fit {
	double alpha, beta, gamma;
	size_t nsteps;
};

static int by_len(const void *a, const void *b)
{
	const struct sample *x = a, *y = b;

	if (x->len != y->len)
		return x->len < y->len ? -1 : 1;
	return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

/* A line through the medians of each length; with one length, or a slope below 0, through 0. */
static void fit_line(struct sample *v, size_t n, double *offset, double *slope)
{
	double sx = 0, sy = 0, sxx = 0, sxy = 0, count = 0, x, y;
	size_t i, k;

	*offset = 0;
	*slope = 0;
	if (!n)
		return;
	qsort(v, n, sizeof(*v), by_len);
	for (i = 0; i < n; i = k) {
		for (k = i; k < n && v[k].len == v[i].len; k++)
			;
		x = v[i].len;
		y = v[i + (k - i) / 2].seconds;
		count++;
		sx += x;
		sy += y;
		sxx += x * x;
		sxy += x * y;
	}
	if (count > 1 && count * sxx > sx * sx) {
		*slope = (count * sxy - sx * sy) / (count * sxx - sx * sx);
		*offset = (sy - *slope * sx) / count;
	}
	if (*slope <= 0 || *offset < 0) {
		*offset = sxx > 0 ? 0 : sy / count;
		*slope = sxx > 0 ? sxy / sxx : 0;
	}
}

/* From all steps of one input that comes from a peer. 0 or EXIT_FAILURE. */
static int fit_costs(const struct flight_log *log, struct fit *fit)
{
	struct sample *moves, *reduces;
	size_t n = 0, nmoves = 0, nreduces = 0;
	double offset, slope;

	*fit = (struct fit){ };
	for (size_t i = 0; i < log->n; i++)
		n += log->v[i].nsteps;
	moves = calloc(n + 1, sizeof(*moves));
	reduces = calloc(n + 1, sizeof(*reduces));
	if (!moves || !reduces) {
		free(moves);
		free(reduces);
		return fail("not enough memory");
	}
	for (size_t i = 0; i < log->n; i++) {
		for (size_t k = 0; k < log->v[i].nsteps; k++) {
			const struct flight_step *s = &log->v[i].steps[k];
			struct sample sample = { s->len, (s->engine + s->queue) / 1e9 };

			if (!(s->what & NPULINK_STEP_RECV) || s->nsteps > 1 || !s->len)
				continue;
			if (s->what & NPULINK_STEP_REDUCE)
				reduces[nreduces++] = sample;
			else
				moves[nmoves++] = sample;
		}
	}
	fit->nsteps = nmoves + nreduces;
	fit_line(moves, nmoves, &fit->alpha, &fit->beta);
	fit_line(reduces, nreduces, &offset, &slope);
	if (!nmoves) {
		fit->alpha = offset;
		fit->beta = slope;
	} else if (nreduces && slope > fit->beta) {
		fit->gamma = slope - fit->beta;
	}
	free(moves);
	free(reduces);
	return fit->nsteps ? 0 : fail("no step that received anything is in the trace");
}

/* ---- scenarios */

#define MAX_SLOW	64

struct scenario {
	const char *text;		/* of --with; NULL: as it was */
	struct net_opts net;
	const char *algorithm;
	bool together;			/* skew=0 */
	struct coll_sim_slow slow[MAX_SLOW];
	uint32_t nslow;
	char *words;			/* to be freed; algorithm points into it */
};

/* "2-3:10": from 2 to 3 and back, 10 times as slow. */
static bool parse_slow(struct scenario *s, const char *text)
{
	unsigned int a, b;
	double factor;
	char more;

	if (sscanf(text, "%u-%u:%lf%c", &a, &b, &factor, &more) != 3 || !(factor > 0) ||
	    factor > 1e6 || a == b || s->nslow + 2 > MAX_SLOW)
		return false;
	s->slow[s->nslow++] = (struct coll_sim_slow){ a, b, factor };
	s->slow[s->nslow++] = (struct coll_sim_slow){ b, a, factor };
	return true;
}

static bool parse_change(struct scenario *s, const char *key, const char *value)
{
	if (!strcmp(key, "alpha"))
		return net_option(&s->net, NET_ALPHA, value);
	if (!strcmp(key, "beta"))
		return net_option(&s->net, NET_BETA, value);
	if (!strcmp(key, "gamma"))
		return net_option(&s->net, NET_GAMMA, value);
	if (!strcmp(key, "ports"))
		return net_option(&s->net, NET_PORTS, value);
	if (!strcmp(key, "slow-link"))
		return parse_slow(s, value);
	if (!strcmp(key, "skew")) {
		s->together = true;
		return !strcmp(value, "0");
	}
	if (strcmp(key, "algorithm") || !*value)
		return false;
	s->algorithm = value;
	return true;
}

/* 0 or EXIT_USAGE. */
static int parse_with(struct scenario *s, const char *text)
{
	char *word, *save = NULL, *value;

	*s = (struct scenario){ .text = text, .net = NET_OPTS_NONE };
	s->words = strdup(text);
	if (!s->words)
		exit(fail("not enough memory"));
	word = strtok_r(s->words, ",", &save);
	if (!word)
		return usage_error("replay: --with what? see: npulink replay --help");
	for (; word; word = strtok_r(NULL, ",", &save)) {
		value = strchr(word, '=');
		if (value)
			*value++ = '\0';
		if (!value || !parse_change(s, word, value))
			return usage_error("replay: \"%s%s%s\" makes no sense, see --help", word,
					   value ? "=" : "", value ?: "");
	}
	return 0;
}

/* ---- one kind of collective: the same call, on the same ranks, by the same algorithm */

struct kind {
	const struct flight_run **runs;	/* by duration */
	size_t nruns;
};

static uint64_t run_ns(const struct flight_run *run)
{
	return run->end - run->first_start;
}

static int by_duration(const void *a, const void *b)
{
	const struct flight_run *x = *(const struct flight_run **)a;
	const struct flight_run *y = *(const struct flight_run **)b;

	return (run_ns(x) > run_ns(y)) - (run_ns(x) < run_ns(y));
}

/* All ranks of a run are on record, and it went well on all of them. */
static bool run_is_whole(const struct flight_log *log, const struct flight_run *run)
{
	for (size_t i = 0; i < log->n; i++) {
		const struct flight *f = &log->v[i];

		if (f->comm != run->comm)
			continue;
		if (f->nranks != run->nranks || f->rank >= f->nranks)
			return false;
		for (size_t k = 0; k < f->nops; k++)
			if (f->ops[k].run == (size_t)(run - log->runs) && f->ops[k].k.status)
				return false;
	}
	return run->end > run->first_start;
}

static bool same_kind(const struct flight_run *a, const struct flight_run *b)
{
	const struct npulink_flight_op *x = &a->op->k, *y = &b->op->k;

	return a->comm == b->comm && !memcmp(&x->call, &y->call, sizeof(x->call)) &&
	       !strcmp(x->algorithm, y->algorithm) && x->nsteps == y->nsteps;
}

static const char *v_form(uint32_t collective)
{
	return npulink_coll_is_v(collective) ?
	       "a trace does not tell the counts of each rank" : NULL;
}

/* What was called, so that planning it again gives the same plan. NULL, or why not. */
static const char *kind_args(const struct flight_run *run, const struct coll_topo *topo,
			     const struct net_opts *net, struct coll_cost_params *network,
			     struct coll_args *args, const struct coll_algorithm **alg)
{
	const struct npulink_flight_op *op = &run->op->k;
	const char *why = v_form(op->call.collective);
	struct coll_plan plan;
	bool same;

	if (why)
		return why;
	*args = (struct coll_args){
		.collective = op->call.collective, .dtype = op->call.dtype,
		.redop = op->call.redop, .root = op->call.root, .nranks = run->nranks,
		.count = op->call.count, .topo = topo,
	};
	why = coll_args_check(args);
	if (why)
		return why;
	if (net_network(net, args, network))
		return "what the network costs cannot be read";
	args->network = network;
	*alg = coll_algorithm_find(op->call.collective, op->algorithm);
	if (!*alg)
		return "its algorithm is not one of libcoll's";
	/* Whether it was in place shows only in its length. */
	for (int in_place = 0; in_place < 2; in_place++) {
		args->in_place = in_place;
		if (coll_plan_make(*alg, args, &plan))
			continue;
		same = plan.nsteps == op->nsteps && plan.call.set_id == op->call.set_id;
		coll_plan_free(&plan);
		if (same)
			return NULL;
	}
	return "planned again it is not the same: give --net as the ranks were wired, and COLL_CALIBRATION as they had it";
}

/* When each rank came, after the first one. */
static void fill_starts(const struct flight_log *log, const struct flight_run *run, double *starts)
{
	for (size_t i = 0; i < log->n; i++)
		for (size_t k = 0; k < log->v[i].nops; k++)
			if (log->v[i].ops[k].run == (size_t)(run - log->runs))
				starts[log->v[i].rank] = (log->v[i].ops[k].k.start -
							  run->first_start) / 1e9;
}

/* 0 or EXIT_FAILURE. */
static int simulate(const struct scenario *s, const struct fit *fit, const struct coll_args *as_was,
		    const struct coll_algorithm *alg, const double *starts, double *seconds)
{
	struct coll_cost_params params = {
		.alpha = fit->alpha, .beta = fit->beta, .gamma = fit->gamma,
		.ports = as_was->nranks,
	};
	struct coll_sim_opts how = { .rule = COLL_RULE_EXEC };
	struct coll_args args = *as_was;
	struct coll_sim_result result;
	struct coll_net net;
	const char *why;
	int rc;

	if (s->algorithm) {
		alg = coll_algorithm_find(args.collective, s->algorithm);
		if (!alg)
			return fail("%s has no algorithm \"%s\"; see: npulink plan list",
				    coll_collective_name(args.collective), s->algorithm);
		why = alg->supports ? alg->supports(&args) : NULL;
		if (why)
			return fail("%s cannot do it: %s", s->algorithm, why);
	}
	net_override(&s->net, args.nranks, &params);
	net = coll_net_of(&params, args.nranks);
	net.slow = s->slow;
	net.nslow = s->nslow;
	for (uint32_t i = 0; i < s->nslow; i++)
		if (s->slow[i].src >= args.nranks)
			return fail("slow-link: there is no rank %u of %u", s->slow[i].src,
				    args.nranks);
	if (!s->together)
		net.start = starts;
	rc = coll_sim_algorithm(alg, &args, &net, &how, &result);
	if (rc)
		return fail("simulation: %s", *result.text ? result.text : coll_strerror(rc));
	*seconds = result.seconds;
	return 0;
}

/* ---- telling */

struct outcome {
	const struct flight_run *run;	/* the one of median duration */
	size_t nruns;
	bool in_place;
	double recorded, skew, predicted;
	double *what_if;
};

static void print_outcome(const struct outcome *o, const struct scenario *with, size_t nwith)
{
	char name[100], t[16], skew[16];

	printf("\n%s%s, %u ranks of communicator %u, %zu time%s\n",
	       flight_op_name(&o->run->op->k, name, sizeof(name)),
	       o->in_place ? " in place" : "", o->run->nranks, o->run->comm, o->nruns,
	       o->nruns == 1 ? "" : "s");
	printf("  recorded   %12s  the median; the last rank came %s after the first\n",
	       human_time(o->recorded, t), human_time(o->skew, skew));
	printf("  predicted  %12s  %+.1f %%\n", human_time(o->predicted, t),
	       100 * (o->predicted / o->recorded - 1));
	for (size_t i = 0; i < nwith; i++)
		printf("  with       %12s  %.3g times as long as predicted: %s\n",
		       human_time(o->what_if[i], t),
		       o->predicted > 0 ? o->what_if[i] / o->predicted : 0, with[i].text);
}

static struct json_object *json_outcome(const struct outcome *o, const struct scenario *with,
					size_t nwith)
{
	struct json_object *obj = json_object_new_object(), *array = json_object_new_array(), *w;
	const struct npulink_flight_op *op = &o->run->op->k;

	put_str(obj, "collective", coll_collective_name(op->call.collective));
	put_str(obj, "algorithm", op->algorithm);
	put_u64(obj, "comm", o->run->comm);
	put_u64(obj, "ranks", o->run->nranks);
	put_u64(obj, "bytes", flight_op_bytes(op));
	json_object_object_add(obj, "in_place", json_object_new_boolean(o->in_place));
	put_u64(obj, "runs", o->nruns);
	put_double(obj, "recorded", o->recorded);
	put_double(obj, "skew", o->skew);
	put_double(obj, "predicted", o->predicted);
	for (size_t i = 0; i < nwith; i++) {
		w = json_object_new_object();
		put_str(w, "with", with[i].text);
		put_double(w, "seconds", o->what_if[i]);
		json_object_array_add(array, w);
	}
	json_object_object_add(obj, "what_if", array);
	return obj;
}

/*
 * One kind: simulate it as it was, and with each change, and count it in *done; or say why
 * that cannot be done. 0, or EXIT_FAILURE.
 */
static int replay(const struct flight_log *log, const struct kind *kind, const struct fit *fit,
		  const struct net_opts *net, const struct scenario *with, size_t nwith,
		  struct json_object *array, size_t *done)
{
	struct outcome o = { .run = kind->runs[kind->nruns / 2], .nruns = kind->nruns };
	struct scenario as_was = { .net = NET_OPTS_NONE };
	const struct coll_algorithm *alg;
	const struct coll_topo *use;
	struct coll_cost_params network;
	struct coll_topo topo;
	struct coll_args args;
	const char *why;
	double *starts;
	char name[100];
	int rc;

	rc = net_topo(net, o.run->nranks, &topo, &use);
	if (rc)
		return rc;
	starts = calloc(o.run->nranks, sizeof(*starts));
	o.what_if = calloc(nwith + 1, sizeof(*o.what_if));
	if (!starts || !o.what_if) {
		rc = fail("not enough memory");
		goto out;
	}
	why = kind_args(o.run, use, net, &network, &args, &alg);
	if (why) {
		fprintf(stderr, "npulink: %s cannot be replayed: %s\n",
			flight_op_name(&o.run->op->k, name, sizeof(name)), why);
		goto out;
	}
	o.in_place = args.in_place;
	fill_starts(log, o.run, starts);
	o.recorded = run_ns(o.run) / 1e9;
	o.skew = (o.run->last_start - o.run->first_start) / 1e9;
	rc = simulate(&as_was, fit, &args, alg, starts, &o.predicted);
	for (size_t i = 0; i < nwith && !rc; i++)
		rc = simulate(&with[i], fit, &args, alg, starts, &o.what_if[i]);
	if (!rc && array)
		json_object_array_add(array, json_outcome(&o, with, nwith));
	else if (!rc)
		print_outcome(&o, with, nwith);
	*done += !rc;
out:
	coll_topo_free(&topo);
	free(starts);
	free(o.what_if);
	return rc;
}

/* All kinds in the order in which they came first. 0 or EXIT_FAILURE. */
static int replay_all(const struct flight_log *log, const struct fit *fit,
		      const struct net_opts *net, const struct scenario *with, size_t nwith,
		      struct json_object *array)
{
	bool *seen = calloc(log->nruns + 1, sizeof(*seen));
	struct kind kind = { calloc(log->nruns + 1, sizeof(*kind.runs)), 0 };
	size_t nkinds = 0, done = 0;
	int rc = 0;

	if (!seen || !kind.runs) {
		free(seen);
		free(kind.runs);
		return fail("not enough memory");
	}
	for (size_t i = 0; i < log->nruns && !rc; i++) {
		if (seen[i] || !run_is_whole(log, &log->runs[i]))
			continue;
		kind.nruns = 0;
		for (size_t k = i; k < log->nruns; k++) {
			if (seen[k] || !same_kind(&log->runs[i], &log->runs[k]) ||
			    !run_is_whole(log, &log->runs[k]))
				continue;
			seen[k] = true;
			kind.runs[kind.nruns++] = &log->runs[k];
		}
		qsort(kind.runs, kind.nruns, sizeof(*kind.runs), by_duration);
		nkinds++;
		rc = replay(log, &kind, fit, net, with, nwith, array, &done);
	}
	free(seen);
	free(kind.runs);
	if (!rc && !nkinds)
		rc = fail("no collective is in the trace of which all ranks are known");
	/* If none could be replayed it has been said why. */
	return rc || done ? rc : EXIT_FAILURE;
}

static const char usage[] =
	"Usage: npulink [-j] replay [OPTION]... TRACE\n"
	"\n"
	"Takes the collectives of TRACE, which npulink trace has written, plans them again, and\n"
	"simulates them: first as they were, beside what was recorded, then with changes.\n"
	"\n"
	"  -w, --with CHANGE[,CHANGE]...  may be given several times\n"
	"        alpha=TIME         per message: 2us\n"
	"        beta=SPEED         of moving: 64GB/s\n"
	"        gamma=SPEED        of reducing\n"
	"        ports=1|all        one port per rank, or one for each peer (as it was)\n"
	"        algorithm=NAME     another one, see npulink plan list\n"
	"        slow-link=A-B:F    between ranks A and B all takes F times as long\n"
	"        skew=0             all ranks come at once\n"
	"      --net NET            how the ranks were wired, if the algorithm cares: as for\n"
	"                           npulink plan\n"
	"  -j, --json               JSON\n";

int replay_cmd(int argc, char **argv)
{
	static const struct option own[] = {
		{ "with", required_argument, NULL, 'w' },
		{ "net", required_argument, NULL, NET_NET },
		CMD_OPTION_END
	};
	struct net_opts net = NET_OPTS_NONE;
	struct scenario *with = calloc(argc + 1, sizeof(*with));
	struct json_object *obj = NULL, *array = NULL;
	struct flight_log log = { };
	char *words[argc + 2], alpha[16], beta[24], gamma[24];
	size_t nwith = 0;
	struct fit fit;
	int c, rc = 0;

	if (!with)
		return fail("not enough memory");
	words[0] = (char *)"replay";
	memcpy(words + 1, argv, argc * sizeof(*argv));
	words[argc + 1] = NULL;
	while (!rc && (c = cmd_option(argc + 1, words, "w:", own, usage)) != -1) {
		if (c == 'h')
			goto out;
		if (c == 'w')
			rc = parse_with(&with[nwith++], optarg);
		else if (c != NET_NET || !net_option(&net, c, optarg))
			rc = EXIT_USAGE;
	}
	if (!rc && (!words[optind] || words[optind + 1]))
		rc = usage_error("replay: give it one TRACE, which npulink trace has written");
	if (!rc)
		rc = flight_load(&log, words[optind]);
	if (!rc)
		rc = fit_costs(&log, &fit);
	if (rc)
		goto out;
	if (opts.json) {
		obj = json_object_new_object();
		array = json_object_new_array();
		put_double(obj, "alpha", fit.alpha);
		put_double(obj, "beta", fit.beta);
		put_double(obj, "gamma", fit.gamma);
		put_u64(obj, "steps", fit.nsteps);
		json_object_object_add(obj, "collectives", array);
	} else {
		printf("%zu steps fit alpha %s per message, beta %s moved, gamma %s reduced\n",
		       fit.nsteps, human_time(fit.alpha, alpha), human_speed(fit.beta, beta),
		       human_speed(fit.gamma, gamma));
	}
	rc = replay_all(&log, &fit, &net, with, nwith, array);
	if (obj && !rc)
		json_print(obj);
	else
		json_object_put(obj);
out:
	for (size_t i = 0; i < nwith; i++)
		free(with[i].words);
	free(with);
	flight_free(&log);
	return rc;
}
