// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * sim.c - the simulator's front: makes each rank's plan, boils it down, drops it,
 * and has one of two engines run them all.
 *
 * The cost rule (COLL_RULE_COST), in full. A step that receives is an entry of its
 * rank's receive port, one that sends an entry of the send port; a fused step is
 * both. A reduction of two local ranges is an entry of the receive port, too:
 * whoever reduces does not receive meanwhile. Copies and nops take no time.
 * An entry is due when
 *	- the entry before it on the same port has ended (list order),
 *	- the steps that its step depends on have ended, for a member of a chain those
 *	  that any member depends on, and
 *	- if it is the send of a fused step, its receive has ended.
 * A message starts when both its entries are due. Its send entry ends alpha + n beta
 * later, its receive entry n gamma after that if it reduces; a step ends when its
 * entries have. With a port for each peer, that is all the same, but for
 * reductions: a rank has one unit for them, which takes what has arrived first.
 *
 * The executor's rule (COLL_RULE_EXEC). There is no list order: entries are due when
 * dependencies are done, and a port takes what was due first (of several at one time,
 * what is first in its sender's list). Messages are moved in slices of some KiB; only
 * the first costs alpha. A fused step passes slices on as they come, a slice is
 * reduced while the next one arrives, and ports are free between slices. What a chain
 * of reductions makes is passed on when the chain is complete.
 *
 * With links that are shared, a message needs its whole way from end to end at once
 * (wormhole); struct coll_net says what happens if it cannot have it.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sim_core.h"

int sim_fail(struct sim_run *run, int rc, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(run->result->text, sizeof(run->result->text), format, args);
	va_end(args);
	return rc;
}

/* Peers that do not exist would lead the engines astray. */
static int add_work(struct sim_run *run, const struct coll_plan *plan, uint32_t rank)
{
	const struct coll_net *net = run->net;
	double alpha = net->alpha[0] > net->alpha[1] ? net->alpha[0] : net->alpha[1];
	double beta = net->beta[0] > net->beta[1] ? net->beta[0] : net->beta[1];
	uint32_t i, p = run->store.nranks;

	for (i = 0; i < plan->nsteps; i++) {
		const struct npulink_step *s = &plan->steps[i];

		if ((s->op & NPULINK_STEP_SEND && (s->send_peer >= p || s->send_peer == rank)) ||
		    (s->op & NPULINK_STEP_RECV && (s->recv_peer >= p || s->recv_peer == rank)))
			return sim_fail(run, -EINVAL, "rank %u, step %u: there is no such peer",
					rank, i);
		if (s->op & NPULINK_STEP_SEND)
			run->work += alpha + s->len * beta;
		if (s->op & NPULINK_STEP_REDUCE)
			run->work += s->len * net->gamma;
	}
	run->result->steps += plan->nsteps;
	return 0;
}

static int load(struct sim_run *run, const struct coll_set *set, struct sim_boiler *boiler)
{
	struct sim_draft draft = { 0 };
	struct coll_plan plan;
	struct coll_args args;
	uint32_t r;
	int rc = 0;

	for (r = 0; r < set->nranks && !rc; r++) {
		rc = set->get(set->ctx, r, &args, &plan);
		if (rc)
			break;
		rc = add_work(run, &plan, r);
		if (!rc)
			rc = boiler ? sim_event_boil(boiler, &plan, &draft) :
				      sim_flow_boil(&plan, &draft);
		if (!rc)
			rc = sim_store_add(&run->store, r, &draft);
		coll_plan_free(&plan);
	}
	sim_draft_free(&draft);
	return rc;
}

int coll_sim_run(const struct coll_set *set, const struct coll_net *net,
		 const struct coll_sim_opts *opts, struct coll_sim_result *result)
{
	static const struct coll_sim_opts none;
	struct sim_run run = { .net = net, .opts = opts ? opts : &none, .result = result };
	struct sim_boiler *boiler = NULL;
	bool fast;
	int rc;

	memset(result, 0, sizeof(*result));
	if (!set->nranks || set->nranks > NPULINK_MAX_RANKS || net->nranks != set->nranks)
		return sim_fail(&run, -EINVAL, "the network has not as many nodes as there are ranks");
	fast = run.opts->rule == COLL_RULE_COST && net->kind == COLL_NET_FULL &&
	       net->ports <= 1 && !run.opts->by_events && !run.opts->message;
	rc = sim_store_init(&run.store, set->nranks);
	if (!rc && !fast) {
		boiler = sim_boiler_make(&run);
		rc = boiler ? 0 : -ENOMEM;
	}
	if (!rc)
		rc = load(&run, set, boiler);
	sim_boiler_free(boiler);
	if (!rc)
		rc = fast ? sim_flow_run(&run) : sim_event_run(&run);
	result->lists = run.store.nlists;
	sim_store_free(&run.store);
	return rc;
}

/* ---- what an algorithm plans */

struct planned {
	const struct coll_algorithm *alg;
	struct coll_args args;
	uint64_t *rcounts;	/* alltoallv: the counts transposed */
};

static int get_planned(void *ctx, uint32_t rank, struct coll_args *args, struct coll_plan *plan)
{
	const struct planned *p = ctx;

	*args = p->args;
	args->rank = rank;
	if (args->collective == NPULINK_COLL_P2P) {
		args->peer = 1 - rank;
		args->send = !rank;
	}
	if (args->collective == NPULINK_COLL_ALLTOALLV) {
		args->counts += (size_t)rank * args->nranks;
		args->rcounts = p->rcounts + (size_t)rank * args->nranks;
	}
	return coll_plan_make(p->alg, args, plan);
}

int coll_sim_algorithm(const struct coll_algorithm *alg, const struct coll_args *args,
		       const struct coll_net *net, const struct coll_sim_opts *opts,
		       struct coll_sim_result *result)
{
	struct planned p = { .alg = alg, .args = *args };
	struct coll_set set = { .nranks = args->nranks, .get = get_planned, .ctx = &p };
	size_t i, j, n = args->nranks;
	int rc;

	memset(result, 0, sizeof(*result));
	if (args->collective == NPULINK_COLL_P2P && n != 2)
		return -EOPNOTSUPP;
	if (args->collective == NPULINK_COLL_ALLTOALLV) {
		p.rcounts = malloc(n * n * sizeof(*p.rcounts));
		if (!p.rcounts)
			return -ENOMEM;
		for (i = 0; i < n; i++)
			for (j = 0; j < n; j++)
				p.rcounts[i * n + j] = args->counts[j * n + i];
	}
	rc = coll_sim_run(&set, net, opts, result);
	free(p.rcounts);
	return rc;
}
