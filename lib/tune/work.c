// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * work.c - what a call should take, by a calibration.
 *
 * The closed forms are about devices that work beside each other. Software NPUs
 * work on processors that their ranks share, so there a call takes at least as long
 * as the processors together need for all messages, requests and bytes of all
 * ranks. These are counted in the plans themselves; of what the last rank to call carries out
 * for all, or all of them together (struct npulink_device_info), only the bytes.
 *
 * Between machines another cost holds, if the calibration has one. No form knows which
 * of an algorithm's messages go there, but the plans do: a call takes at least as long as
 * the rank with most such messages needs for these, one after the other, and the
 * machine with most bytes for its port.
 */
#include <errno.h>
#include <stdlib.h>
#include <npulink/verify.h>
#include "tune/tune.h"

/* A share of what one task may touch for all that none has. */
#define NO_GRAPH	1e300

/* Above this the plans of some ranks stand for all. */
#define COUNT_ALL	64
#define COUNT_SOME	32

/* What goes between machines, of one rank, and of each machine so far. */
struct far {
	const uint32_t *server_of;	/* NULL: there is one */
	double *out, *in;		/* bytes, by machine */
};

static void count_far(const struct coll_plan *plan, const struct far *far, struct coll_work *work)
{
	uint32_t own = far->server_of[plan->rank];
	double out = 0, in = 0;

	for (uint32_t i = 0; i < plan->nsteps; i++) {
		const struct npulink_step *s = &plan->steps[i];

		if (s->op & NPULINK_STEP_SEND && far->server_of[s->send_peer] != own) {
			out++;
			far->out[own] += s->len;
		}
		if (s->op & NPULINK_STEP_RECV && far->server_of[s->recv_peer] != own) {
			in++;
			far->in[own] += s->len;
		}
	}
	out = in > out ? in : out;
	work->far_messages = out > work->far_messages ? out : work->far_messages;
}

static void count_plan(const struct coll_plan *plan, struct coll_work *work)
{
	const struct npulink_step *s = plan->steps;

	for (uint32_t i = 0; i < plan->nsteps; i++, s++) {
		work->messages += !!(s->op & NPULINK_STEP_SEND);
		if (!s->op || s->op == NPULINK_STEP_SEND)
			continue;
		/* A chain is read once and written once, but for the inputs of its members. */
		if (!(s->flags & NPULINK_STEP_F_CHAIN)) {
			work->requests++;
			work->touched += 2.0 * s->len;
		}
		if (s->op & NPULINK_STEP_REDUCE) {
			work->reduced += s->len;
			work->touched += s->len;
		} else {
			work->copied += s->len;
		}
	}
}

static int count_rank(const struct coll_algorithm *alg, struct coll_args *args, uint32_t rank,
		      const struct far *far, struct coll_work *work)
{
	struct coll_plan plan;
	int rc;

	args->rank = rank;
	if (args->collective == NPULINK_COLL_P2P) {
		args->peer = !rank;
		args->send = !rank;
	}
	rc = coll_plan_make(alg, args, &plan);
	if (!rc) {
		count_plan(&plan, work);
		if (far->server_of)
			count_far(&plan, far, work);
		coll_plan_free(&plan);
	}
	return rc;
}

int coll_work_count(const struct coll_algorithm *alg, const struct coll_args *call,
		    struct coll_work *work)
{
	struct coll_args args = *call;
	bool pair = args.collective == NPULINK_COLL_P2P;
	uint32_t p = pair ? 2 : args.nranks, n = p <= COUNT_ALL ? p : COUNT_SOME;
	const struct coll_topo *topo = pair ? NULL : args.topo;
	uint32_t servers = topo && topo->nservers > 1 ? topo->nservers : 0;
	uint64_t random = 1;
	struct far far = { };
	double all;
	int rc = 0;

	*work = (struct coll_work) { };
	args.nranks = p;
	if (servers) {
		far.server_of = topo->server_of;
		far.out = calloc(2 * servers, sizeof(*far.out));
		far.in = far.out + servers;
		if (!far.out)
			return -ENOMEM;
	}
	for (uint32_t i = 0; i < n && !rc; i++) {
		random = random * 6364136223846793005ULL + 1442695040888963407ULL;
		rc = count_rank(alg, &args, n == p ? i : (random >> 33) % p, &far, work);
	}
	all = (double)p / n;
	for (uint32_t i = 0; i < servers; i++) {
		work->far_bytes = far.out[i] > work->far_bytes ? far.out[i] : work->far_bytes;
		work->far_bytes = far.in[i] > work->far_bytes ? far.in[i] : work->far_bytes;
	}
	free(far.out);
	work->far_bytes *= all;
	work->messages *= all;
	work->requests *= all;
	work->copied *= all;
	work->touched *= all;
	work->reduced *= all;
	return rc;
}

/* Of the ranks, those in the largest server: they are at one machine's processors. */
static double share_of(const struct coll_args *args)
{
	const struct coll_topo *t = args->topo;
	uint32_t most = 0, n = 0;

	if (!t || t->nservers <= 1)
		return 1;
	for (uint32_t r = 0; r < args->nranks; r++) {
		n = r && t->server_of[r] == t->server_of[r - 1] ? n + 1 : 1;
		most = n > most ? n : most;
	}
	return (double)most / args->nranks;
}

/* Seconds that the processors need for all of it. */
static double work_seconds(const struct coll_tune *tune, const struct coll_work *work,
			   const struct coll_args *args, double share)
{
	const struct coll_work_costs *c = &tune->work;

	return share / c->processors *
	       (args->nranks * c->call + work->messages * c->message +
		work->requests * c->request + work->copied * c->copy +
		work->reduced * c->reduces[args->dtype]);
}

/* Bytes that the last rank to call may read and write for all, as the device says. */
static double graph_most(const struct coll_tune *tune, uint32_t nranks)
{
	uint32_t processors = tune->work.processors;

	if (!processors || nranks <= processors)
		return tune->graph_bytes;
	return 2. * nranks * (tune->graph_bytes / processors);
}

/*
 * The last rank to call carries out what is little, for all: nobody waits for messages. This is
 * what it touches, of what it may; more than 1: each rank works for itself.
 */
static double graph_share(const struct coll_tune *tune, const struct coll_work *work,
			  const struct coll_args *args)
{
	double most = graph_most(tune, args->nranks);
	bool large = npulink_coll_in(tune->gathers_large, args->collective) &&
		     args->count * npulink_dtype_size(args->dtype) >= tune->graph_bytes &&
		     work->touched > most;

	if (!(npulink_coll_in(tune->gathers, args->collective) || large) || args->nranks < 2 ||
	    !most || (args->topo && args->topo->nservers > 1))
		return NO_GRAPH;
	return work->touched / most;
}

/* All ranks run once. */
static double calls_seconds(const struct coll_tune *tune, const struct coll_args *args)
{
	const struct coll_work_costs *c = &tune->work;
	uint32_t n = args->nranks > c->processors ? args->nranks : c->processors;

	return c->call * n / c->processors;
}

/* And one of them works. A request without interrupt is like a message. */
static double graph_seconds(const struct coll_tune *tune, const struct coll_work *work,
			    const struct coll_args *args)
{
	const struct coll_work_costs *c = &tune->work;
	double add = c->reduces[args->dtype] - c->copy;

	return calls_seconds(tune, args) + work->requests * c->message +
	       work->touched * c->copy / 2 + (add > 0 ? work->reduced * add : 0);
}

/* All ranks run once, and work together until all is done. */
static double together_seconds(const struct coll_tune *tune, const struct coll_work *work,
			       const struct coll_args *args)
{
	const struct coll_work_costs *c = &tune->work;
	double add = c->reduces[args->dtype] - c->copy;

	return (args->nranks * c->call + work->requests * c->message +
		work->touched * c->copy / 2 + (add > 0 ? work->reduced * add : 0)) / c->processors;
}

/*
 * Little more than a graph that one task runs is for, and it counts that ranks which share
 * processors take turns.
 */
static double turn_seconds(const struct coll_tune *tune, const struct coll_algorithm *alg,
			   const struct coll_args *args)
{
	const struct coll_cost_params rounds = { .alpha = 1, .ports = args->nranks - 1 };
	double turns = alg->cost(args, &rounds) - 1;

	return turns > 0 ? turns * args->nranks * tune->work.call / tune->work.processors : 0;
}

/* Whether machines matter, and there is a number for what they cost. */
static bool knows_far(const struct coll_tune *tune, const struct coll_args *args)
{
	return tune->far_alpha >= 0 && tune->far_beta >= 0 && args->topo &&
	       args->topo->nservers > 1 && args->collective != NPULINK_COLL_P2P;
}

static double predict(const struct coll_tune *tune, const struct coll_algorithm *alg,
		      const struct coll_args *args)
{
	const struct coll_work_costs *c = &tune->work;
	struct coll_cost_params params = tune->params;
	double path, work, share, whole, far = 0, reduce = c->reduces[args->dtype];
	struct coll_work counted = { };

	params.gamma = tune->gamma[args->dtype];
	if (c->processors || knows_far(tune, args))
		coll_work_count(alg, args, &counted);
	if (knows_far(tune, args))
		far = counted.far_messages * tune->far_alpha + counted.far_bytes * tune->far_beta;
	if (!c->processors) {
		path = alg->cost(args, &params);
		return path > far ? path + far / 100 : far + path / 100;
	}
	whole = graph_share(tune, &counted, args);
	if (tune->board && args->nranks > 1 && tune->board(alg, args))
		return calls_seconds(tune, args) + graph_seconds(tune, &counted, args) / 100;
	if (whole <= 1)
		return graph_seconds(tune, &counted, args);
	if (whole < NO_GRAPH && alg->together && args->nranks <= NPULINK_CHAIN_MAX)
		return together_seconds(tune, &counted, args);
	share = share_of(args);
	work = work_seconds(tune, &counted, args, share);
	if (whole <= 2 && args->nranks > c->processors)
		work += turn_seconds(tune, alg, args);
	if (far > work)
		work = far;
	/* Who waits for a message finds another rank's work to do, not an idle processor. */
	if (args->nranks * share > c->processors) {
		params.alpha = c->message + c->request;
		params.beta = c->copy;
		params.gamma = reduce > c->copy ? reduce - c->copy : 0;
		/* Nor does a link wait for another. */
		params.ports = args->nranks - 1;
	}
	path = alg->cost(args, &params);
	/* Where processors decide, of those that give them equal work the shorter way. */
	return path > work ? path + work / 100 : work + path / 100;
}

double coll_tune_predict(const struct coll_tune *tune, const struct coll_algorithm *alg,
			 const struct coll_args *args)
{
	struct coll_cost_params network = coll_tune_network(tune, args);
	struct coll_args call = *args;

	call.network = &network;
	return predict(tune, alg, &call);
}
