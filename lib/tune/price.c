// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * price.c - what each row should take for a call, where ranks are wired so that it matters.
 *
 * Forms are about messages that do not meet. Where they share links, or some of them are
 * dearer, the rows that seem cheapest are simulated on the wires that there are. What that
 * takes is bounded by a number of steps, about a millisecond of work, and not by time:
 * ranks choose without talking to each other, and all must come to the same.
 */
#include <math.h>
#include <stdlib.h>
#include "algorithm/algorithms.h"
#include "simulate/sim.h"
#include "tune/tune.h"

/*
 * Steps of all ranks that one choice may simulate, of how many ranks, and how far from the
 * cheapest form a row may be.
 */
#define STEPS		1000
#define RANKS		64
#define FAR_OFF		4

/* The network that a topology and a calibration are about; false: forms know all of it. */
static bool net_of(const struct coll_tune *tune, const struct coll_args *args,
		   struct coll_net *net)
{
	const struct coll_topo *t = args->topo;
	bool far = tune->far_alpha >= 0 && tune->far_beta >= 0;

	if (!t || tune->work.processors || args->nranks < 2 ||
	    args->collective == NPULINK_COLL_P2P)
		return false;
	*net = coll_net_of(args->network, args->nranks);
	if (t->nservers > 1 && far) {
		net->kind = COLL_NET_SERVERS;
		net->server_of = t->server_of;
		net->alpha[1] = tune->far_alpha;
		net->beta[1] = tune->far_beta * args->nranks / t->nservers;
	} else if (t->rows) {
		net->kind = t->torus ? COLL_NET_TORUS : COLL_NET_MESH;
		net->rows = t->rows;
		net->cols = t->cols;
	} else if (t->group) {
		net->kind = COLL_NET_TREE;
		net->group = t->group;
		net->uplinks = t->uplinks;
	} else if (t->ring) {
		net->kind = COLL_NET_RING;
	}
	return net->kind != COLL_NET_FULL;
}

/*
 * Forms of rows that were not made for servers do not know which messages go between them: in most
 * rounds some do.
 */
static double estimate(const struct coll_tune *tune, const struct coll_algorithm *alg,
		       const struct coll_args *args, const struct coll_net *net)
{
	struct coll_cost_params params = *args->network;
	struct coll_args unwired = *args;

	if (net->kind == COLL_NET_FULL)
		return coll_tune_predict(tune, alg, args);
	params.wires = args->topo->wires;
	if (net->kind != COLL_NET_SERVERS)
		return alg->cost(args, &params);
	params.wires = NULL;
	unwired.topo = NULL;
	if (alg->supports && alg->supports(&unwired)) {
		params.far_alpha = net->alpha[1];
		params.far_beta = net->beta[1];
	} else {
		params.alpha = fmax(params.alpha, net->alpha[1]);
		params.beta = fmax(params.beta, net->beta[1]);
		params.ports = 1;
	}
	return alg->cost(args, &params);
}

/* Steps of all ranks, as if each had as many as the root, or as the next one: one may be folded. */
static uint64_t count_steps(const struct coll_algorithm *alg, const struct coll_args *args)
{
	struct coll_args one = *args;
	struct coll_plan plan;
	uint64_t most = 0;

	if (alg->chunks && (uint64_t)alg->chunks(args, args->network) * args->nranks > STEPS)
		return UINT64_MAX;
	for (uint32_t i = 0; i < 2; i++) {
		one.rank = (args->root + i) % args->nranks;
		if (coll_plan_make(alg, &one, &plan))
			return UINT64_MAX;
		most = plan.nsteps > most ? plan.nsteps : most;
		coll_plan_free(&plan);
	}
	return most * args->nranks;
}

/* Cheapest first; equals in the order in which libcoll knows them; last what cannot be. */
int coll_price_compare(const void *a, const void *b)
{
	const struct coll_price *x = a, *y = b;

	if (!x->why != !y->why)
		return x->why ? 1 : -1;
	if (x->seconds != y->seconds)
		return x->seconds > y->seconds ? 1 : -1;
	return (x->order > y->order) - (x->order < y->order);
}

static int by_order(const void *a, const void *b)
{
	const struct coll_price *x = a, *y = b;

	return (x->order > y->order) - (x->order < y->order);
}

/* Those that seem cheapest first, while there are steps left. */
static void simulate(const struct coll_args *args, const struct coll_net *net,
		     struct coll_price *prices, unsigned int n)
{
	uint64_t left = STEPS, steps;
	struct coll_sim_result result;

	qsort(prices, n, sizeof(*prices), coll_price_compare);
	for (unsigned int i = 0; i < n && !prices[i].why; i++) {
		if (prices[i].seconds > FAR_OFF * prices[0].seconds)
			break;
		steps = count_steps(prices[i].alg, args);
		if (steps > left || coll_sim_algorithm(prices[i].alg, args, net, NULL, &result))
			continue;
		left -= steps;
		prices[i].seconds = result.seconds;
		prices[i].simulated = true;
	}
	qsort(prices, n, sizeof(*prices), by_order);
}

unsigned int coll_tune_prices(const struct coll_tune *tune, const struct coll_args *call,
			      struct coll_price prices[COLL_PRICES])
{
	struct coll_cost_params network = coll_tune_network(tune, call);
	const struct coll_algorithm *alg = NULL;
	struct coll_args args = *call;
	struct coll_net net = { };
	unsigned int n = 0;
	bool wired;

	args.network = &network;
	/* Of alltoallv the counts are another on each rank. */
	wired = !coll_has_rcounts(args.collective) && net_of(tune, &args, &net);
	while (n < COLL_PRICES && (alg = coll_algorithm_next(args.collective, alg))) {
		struct coll_price *p = &prices[n];

		*p = (struct coll_price) { .alg = alg, .order = n++ };
		p->why = alg->supports ? alg->supports(&args) : NULL;
		if (!p->why)
			p->seconds = estimate(tune, alg, &args, &net);
	}
	if (wired && args.nranks <= RANKS)
		simulate(&args, &net, prices, n);
	return n;
}
