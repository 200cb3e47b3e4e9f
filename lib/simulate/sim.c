// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * sim.c - the simulator's front: makes each rank's plan, lowers it, drops it,
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
 * dependencies are done (the send of a fused step also waits for its first bytes), and
 * a port takes what was due first (of several at one time, what is first in its
 * sender's list). Messages are moved in slices of some KiB; only
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
#include "simulate/core.h"

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

/* Nothing must take longer than run->work. */
static void add_slowness(struct sim_run *run)
{
	const struct coll_net *net = run->net;
	double factor = 1, start = 0;
	uint32_t i;

	for (i = 0; i < net->nslow; i++)
		factor = net->slow[i].factor > factor ? net->slow[i].factor : factor;
	for (i = 0; net->start && i < net->nranks; i++)
		start = net->start[i] > start ? net->start[i] : start;
	run->work = run->work * factor + start;
}

static int load_rank(struct sim_run *run, const struct coll_set *set, struct sim_lowerer *lowerer,
		     struct sim_draft *draft, uint32_t rank, uint32_t *nsteps)
{
	struct coll_plan plan;
	struct coll_args args;
	int rc = set->get(set->ctx, rank, &args, &plan);

	if (rc)
		return rc;
	*nsteps = plan.nsteps;
	rc = add_work(run, &plan, rank);
	if (!rc)
		rc = lowerer ? sim_event_lower(lowerer, &plan, draft) :
			       sim_flow_lower(&plan, draft);
	if (!rc)
		rc = sim_store_add(&run->store, rank, draft);
	coll_plan_free(&plan);
	return rc;
}

/*
 * Planning each rank of very many, with very many local copies (NHR moves each shard,
 * unless there are 2^L), would take hours, for lists that are all alike in the end. So
 * if those of some ranks are, the others' are taken to be.
 */
#define SAMPLE_ABOVE	(1ULL << 28)	/* steps of all ranks */
#define SAMPLES		32

static int load_sample(struct sim_run *run, const struct coll_set *set, struct sim_lowerer *lowerer,
		       struct sim_draft *draft)
{
	uint32_t p = set->nranks, i, rank, nsteps;
	const uint32_t some[] = { 1, 2, 3, p / 3, p / 2, p - 2, p - 1 };
	uint64_t random = 1;
	int rc = 0;

	for (i = 0; i < SAMPLES && !rc; i++) {
		random = random * 6364136223846793005ULL + 1442695040888963407ULL;
		rank = i < sizeof(some) / sizeof(*some) ? some[i] : (random >> 33) % p;
		if (!run->store.views[rank].list)
			rc = load_rank(run, set, lowerer, draft, rank, &nsteps);
	}
	if (rc || !sim_store_fill(&run->store, &i))
		return rc;
	run->work *= (double)p / i;
	run->result->steps = run->result->steps / i * p;
	run->result->sampled = i;
	return 0;
}

static int load(struct sim_run *run, const struct coll_set *set, struct sim_lowerer *lowerer)
{
	struct sim_draft draft = { 0 };
	uint32_t r, nsteps = 0;
	int rc;

	rc = load_rank(run, set, lowerer, &draft, 0, &nsteps);
	if (!rc && (uint64_t)nsteps * set->nranks > SAMPLE_ABOVE)
		rc = load_sample(run, set, lowerer, &draft);
	for (r = 1; r < set->nranks && !rc; r++)
		if (!run->store.views[r].list)
			rc = load_rank(run, set, lowerer, &draft, r, &nsteps);
	sim_draft_free(&draft);
	return rc;
}

int coll_sim_run(const struct coll_set *set, const struct coll_net *net,
		 const struct coll_sim_opts *opts, struct coll_sim_result *result)
{
	static const struct coll_sim_opts none;
	struct sim_run run = { .net = net, .opts = opts ? opts : &none, .result = result };
	struct sim_lowerer *lowerer = NULL;
	bool fast;
	int rc;

	memset(result, 0, sizeof(*result));
	if (!set->nranks || set->nranks > NPULINK_MAX_RANKS || net->nranks != set->nranks)
		return sim_fail(&run, -EINVAL, "the network has another number of ranks");
	fast = run.opts->rule == COLL_RULE_COST && net->kind == COLL_NET_FULL &&
	       net->ports <= 1 && !run.opts->by_events && !run.opts->message && !net->nslow &&
	       !net->start;
	rc = sim_store_init(&run.store, set->nranks);
	if (!rc && !fast) {
		lowerer = sim_lowerer_make(&run);
		rc = lowerer ? 0 : -ENOMEM;
	}
	if (!rc)
		rc = load(&run, set, lowerer);
	sim_lowerer_free(lowerer);
	add_slowness(&run);
	if (!rc)
		rc = fast ? sim_flow_run(&run) : sim_event_run(&run);
	result->lists = run.store.nlists;
	sim_store_free(&run.store);
	return rc;
}

/* ---- what an algorithm plans */

int coll_sim_algorithm(const struct coll_algorithm *alg, const struct coll_args *args,
		       const struct coll_net *net, const struct coll_sim_opts *opts,
		       struct coll_sim_result *result)
{
	struct coll_planned planned;
	struct coll_set set;
	int rc;

	memset(result, 0, sizeof(*result));
	rc = coll_planned_init(&planned, alg, args, &set);
	if (!rc)
		rc = coll_sim_run(&set, net, opts, result);
	coll_planned_free(&planned);
	return rc;
}
