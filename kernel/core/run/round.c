// SPDX-License-Identifier: GPL-2.0
/*
 * round.c - the operations of all ranks of a node under one number, run as a whole.
 *
 * Once the plans of a collective have been linked (graph.c), ranks that post them again only
 * arrive; when the last one has, the graph is run: if it is small, by the last rank's task, in its
 * own system call; if it is large, by the tasks of all ranks, block by block. No bell is rung, no
 * rank looks at its steps, and each process sleeps and is woken once. To a large run each operation
 * lends a request, its part: the waiter of its file, or the worker, takes part with it as it would
 * run any other request (run.c). A task that is to do something else puts the part back, and who
 * gets it goes on.
 *
 * This is done for collectives whose ranks all depend on each other, among ranks of one node,
 * while no device does anything special and nobody traces steps or checks what comes over links.
 * "Has not posted" is an empty place in round->ops: who looks at an operation reads there for whom
 * it waits. If a rank comes with another plan, the round falls apart: its operations are run each
 * by itself (seq.c). The flight recorder has operations of a round, and who was waited for, but no
 * steps.
 */
#include <linux/moduleparam.h>
#include <linux/sched/signal.h>
#include <npulink/verify.h>
#include "base/number.h"
#include "comm/comm.h"
#include "file/file.h"
#include "observe/trace.h"
#include "run/board.h"
#include "run/flight_record.h"
#include "run/graph.h"
#include "run/op.h"
#include "run/round.h"
#include "run/run.h"
#include "run/seq.h"

bool npulink_graphs = true;
module_param_cb(graphs, &npulink_board_param_ops, &npulink_graphs, 0644);
MODULE_PARM_DESC(graphs, "collectives of one node are run as a whole when the last rank has posted");

#define ROUND_LINKS	4	/* times that a plan is linked with others */
#define ROUND_REQ	4	/* times inline_max that a request may read */
#define ROUND_JIFFIES	2	/* that a task takes part, then it looks at what else there is */

/* Not to be changed later: all ranks' libraries go by it. */
unsigned int npulink_graph_bytes = 256 << 10;
module_param_named(graph_bytes, npulink_graph_bytes, uint, 0444);
MODULE_PARM_DESC(graph_bytes, "that one task may read and write for all ranks; more if they share processors (262144)");

static struct npulink_round *npulink_round_of(const struct npulink_op *op)
{
	struct npulink_comm *comm = op->rank->comm;

	return op->plan->p2p || !comm->rounds ? NULL :
	       &comm->rounds[op->number % NPULINK_MAX_INFLIGHT];
}

/* ---- arriving ----------------------------------------------------------------- */

/* The same on all ranks. */
static bool npulink_call_gathers(const struct npulink_call *call)
{
	if (!npulink_graph_bytes)
		return false;
	if (npulink_coll_gathers_large(call->collective))
		return call->dtype < NPULINK_DTYPES &&
		       call->count >= npulink_graph_bytes / npulink_dtype_size(call->dtype);
	return npulink_coll_gathers(call->collective) &&
	       (call->count || call->collective == NPULINK_COLL_BARRIER);
}

static bool npulink_op_fits(const struct npulink_op *op, const struct npulink_graph *g)
{
	const struct npulink_device *dev = op->rank->dev;

	return READ_ONCE(npulink_graphs) && !trace_npulink_step_enabled() &&
	       !trace_npulink_issue_enabled() && npulink_device_runs(dev) &&
	       g->max_req <= (u64)ROUND_REQ * READ_ONCE(dev->inline_max) &&
	       g->max_req <= dev->slice;
}

/* Is @r the round of @op, or free, and then begun? */
static bool npulink_round_begin(struct npulink_round *r, const struct npulink_op *op,
				struct npulink_graph *graph)
{
	const struct npulink_comm *comm = op->rank->comm;
	bool apart;

	/* Equal, or ranks have called different things, which it is not for us to find out. */
	if (r->used && !npulink_number_before(r->number, op->number))
		return r->number == op->number;
	if (r->count) {
		/* An older one is still here: then this one will not be. */
		if (!r->skips || npulink_number_before(r->skipped, op->number)) {
			r->skips = true;
			r->skipped = op->number;
		}
		return false;
	}
	r->used = true;
	r->number = op->number;
	r->serial = graph ? graph->serial : 0;
	/* One that has gone past it will not come, which is seen when operations look for peers. */
	apart = !graph || (r->skips && !npulink_number_before(r->skipped, op->number)) ||
		(comm->skips && npulink_number_before(op->number, comm->skipped));
	r->state = apart ? NPULINK_ROUND_APART : NPULINK_ROUND_GATHERS;
	return true;
}

/* It will not be run as a whole. Those that have waited for that, by op->chain, referenced. */
static struct npulink_op *npulink_round_break(struct npulink_round *r, u32 nranks)
{
	struct npulink_op *others = NULL, *op;
	u32 i;

	r->state = NPULINK_ROUND_APART;
	for (i = 0; i < nranks; i++) {
		op = r->ops[i];
		/* One that fails meanwhile is looked at again, under its lock. */
		if (!op || READ_ONCE(op->state) != NPULINK_OP_GATHERED)
			continue;
		npulink_op_get(op);
		op->chain = others;
		others = op;
	}
	return others;
}

/* It is run by itself; if nothing of it has been set up yet, npulink_op_set_up() sees to that. */
static void npulink_op_set_alone(struct npulink_op *op)
{
	npulink_op_set_state(op, op->state == NPULINK_OP_READY ? NPULINK_OP_RUNNING :
								 NPULINK_OP_STARTING);
}

/* @op has got its number. Under its rank's lock; npulink_round_go() does the rest without it. */
void npulink_round_arrive(struct npulink_op *op, struct npulink_arrival *a)
{
	struct npulink_round *r = npulink_round_of(op);
	struct npulink_comm *comm = op->rank->comm;
	struct npulink_graph *graph;
	bool gathers;

	lockdep_assert_held(&op->rank->lock);
	*a = (struct npulink_arrival) { .kind = NPULINK_ARRIVAL_ALONE };
	if (!r) {
		npulink_op_set_alone(op);
		return;
	}
	/* Whose processor time it takes is nothing that users have to trust each other with. */
	gathers = !comm->far && !comm->checksum && !comm->any_uid &&
		  npulink_call_gathers(&op->plan->call);
	spin_lock(&comm->lock);
	graph = gathers ? op->plan->graph : NULL;
	if (!npulink_round_begin(r, op, graph))
		goto set;
	/* If somebody has left, who has steps with him is to find out. */
	if (r->state == NPULINK_ROUND_GATHERS &&
	    (!graph || graph->serial != r->serial || READ_ONCE(comm->nleft) ||
	     !npulink_op_fits(op, graph)))
		a->others = npulink_round_break(r, comm->nranks);
	if (!gathers)
		goto set;
	npulink_op_get(op);
	r->ops[op->rank->rank] = op;
	if (++r->count == comm->nranks) {
		a->kind = NPULINK_ARRIVAL_LINKS;
		if (r->state == NPULINK_ROUND_GATHERS) {
			kref_get(&graph->kref);
			r->graph = graph;
			r->last = op->rank->rank;
			a->kind = NPULINK_ARRIVAL_RUNS;
		}
		r->state = NPULINK_ROUND_FULL;
	} else if (r->state == NPULINK_ROUND_GATHERS) {
		a->kind = NPULINK_ARRIVAL_WAITS;
	}
set:
	/* Before somebody else can look who is gathered. */
	if (a->kind == NPULINK_ARRIVAL_WAITS || a->kind == NPULINK_ARRIVAL_RUNS) {
		npulink_op_set_state(op, NPULINK_OP_GATHERED);
		op->inflight++;		/* until the round has ended, or is left */
	} else {
		npulink_op_set_alone(op);
	}
	spin_unlock(&comm->lock);
}

/*
 * @op ends, or is to be run by itself: it is not found in its round any more. False if it was not
 * there, or if the round has begun to be run. Under its rank's lock.
 */
bool npulink_round_leave(struct npulink_op *op)
{
	struct npulink_round *r = npulink_round_of(op);
	struct npulink_comm *comm = op->rank->comm;
	bool left = false;

	lockdep_assert_held(&op->rank->lock);
	if (!r || READ_ONCE(r->ops[op->rank->rank]) != op)
		return false;
	spin_lock(&comm->lock);
	if (r->ops[op->rank->rank] == op && r->state != NPULINK_ROUND_FULL) {
		WRITE_ONCE(r->ops[op->rank->rank], NULL);
		r->count--;
		left = true;
	}
	spin_unlock(&comm->lock);
	if (left)
		npulink_op_put(op);
	return left;
}

/*
 * The first rank from @first on that has not posted what @op, which is gathered, waits for; or the
 * number of ranks.
 */
u32 npulink_round_missing(const struct npulink_op *op, u32 first)
{
	const struct npulink_round *r = npulink_round_of(op);
	struct npulink_comm *comm = op->rank->comm;
	u32 i = comm->nranks;

	spin_lock(&comm->lock);
	if (r && r->number == op->number && r->state == NPULINK_ROUND_GATHERS)
		for (i = first; i < comm->nranks && r->ops[i]; i++)
			;
	spin_unlock(&comm->lock);
	return i;
}

/* ---- apart ------------------------------------------------------------------- */

/* Take back the part of @op, unless a task has it. */
static void npulink_part_withdraw(struct npulink_op *op)
{
	struct npulink_file *file = op->rank->file;
	bool mine = false;

	lockdep_assert_held(&op->rank->lock);
	if (!op->part)
		return;
	spin_lock(&file->lock);
	if (op->part->core.state == NPULINK_REQ_READY) {
		list_del(&op->part->core.node);
		mine = true;
	}
	spin_unlock(&file->lock);
	if (!mine)
		return;
	npulink_req_give(op, op->part);
	WRITE_ONCE(op->part, NULL);
	op->inflight--;
}

/* Have @op, which was gathered or has just been posted, set up. False if it is over. */
static bool npulink_op_set_up(struct npulink_op *op, struct npulink_run *run)
{
	unsigned long flags;
	bool starts;

	spin_lock_irqsave(&op->rank->lock, flags);
	if (op->state == NPULINK_OP_GATHERED) {
		npulink_op_set_state(op, NPULINK_OP_STARTING);
		op->inflight--;
		npulink_part_withdraw(op);
		/* What was run in part must not be once more. Pairs with npulink_comm_record(). */
		if (smp_load_acquire(&op->rank->comm->failed))
			npulink_op_fail(op, run);
	}
	if (op->state == NPULINK_OP_STARTING) {
		spin_unlock_irqrestore(&op->rank->lock, flags);
		npulink_op_reset(op);
		spin_lock_irqsave(&op->rank->lock, flags);
		if (op->state == NPULINK_OP_STARTING)
			npulink_op_set_state(op, NPULINK_OP_RUNNING);
	}
	starts = op->state == NPULINK_OP_RUNNING;
	spin_unlock_irqrestore(&op->rank->lock, flags);
	return starts;
}

static void npulink_op_connect_and_start(struct npulink_op *op, struct npulink_run *run)
{
	struct npulink_cause cause = {};

	if (npulink_op_connect(op, &cause))
		npulink_comm_fail_now(op->rank->comm, &cause);
	npulink_op_start(op, run);
}

/* By op->chain, with a reference of each. All can be found by each other before one starts. */
static void npulink_ops_start(struct npulink_op *chain, struct npulink_run *run)
{
	struct npulink_op *op, **at = &chain;

	while ((op = *at)) {
		if (npulink_op_set_up(op, run)) {
			at = &op->chain;
		} else {
			*at = op->chain;
			npulink_op_put(op);
		}
	}
	while ((op = chain)) {
		chain = op->chain;
		npulink_op_connect_and_start(op, run);
		npulink_op_put(op);
	}
}

/* ---- as a whole --------------------------------------------------------------- */

/* The round has carried @op out. */
static void npulink_op_end(struct npulink_op *op, const struct npulink_round *r, u64 engine,
			   struct npulink_run *run)
{
	unsigned long flags;

	spin_lock_irqsave(&op->rank->lock, flags);
	op->bytes = op->plan->bytes;
	op->inflight--;
	npulink_part_withdraw(op);
	if (op->rank->flight)
		npulink_flight_met(op, r->last, r->met, engine);
	/* A task that still has its part is about to see that nothing is left. */
	if (!op->inflight)
		npulink_op_finish(op, run);
	spin_unlock_irqrestore(&op->rank->lock, flags);
}

/* The next number may have its place. Then @r may be gone, if nobody else has the communicator. */
static void npulink_round_free(struct npulink_round *r, struct npulink_comm *comm)
{
	unsigned long flags;

	spin_lock_irqsave(&comm->lock, flags);
	r->count = 0;
	spin_unlock_irqrestore(&comm->lock, flags);
}

/* Its operations in the order in which they are woken: who sleeps before who is awake. */
static struct npulink_op *npulink_round_take_op(struct npulink_round *r, u32 nranks, u32 i)
{
	u32 rank = r->last + 1 + i;
	struct npulink_op *op;

	rank -= rank < nranks ? 0 : nranks;
	op = r->ops[rank];
	WRITE_ONCE(r->ops[rank], NULL);
	return op;
}

/* It has carried all operations out, or, if not @done, nobody knows how much. May sleep. */
static void npulink_round_close(struct npulink_round *r, bool done, struct npulink_run *run)
{
	struct npulink_comm *comm = r->ops[r->last]->rank->comm;
	struct npulink_op *chain = NULL, **at = &chain, *op = NULL;
	struct npulink_graph *graph = r->graph;
	u64 engine;
	u32 i;

	run->now = 0;
	engine = max_t(s64, npulink_run_now(run) - r->met, 0);
	if (done)
		npulink_graph_count(graph, r->ops);
	for (i = 0; i < comm->nranks; i++) {
		if (op && done)
			npulink_op_put(op);
		op = npulink_round_take_op(r, comm->nranks, i);
		if (!done) {
			*at = op;
			at = &op->chain;
			continue;
		}
		npulink_op_end(op, r, engine, run);
	}
	*at = NULL;
	/* The last operation keeps the communicator. */
	npulink_round_free(r, comm);
	if (done)
		npulink_op_put(op);
	else
		npulink_ops_start(chain, run);
	npulink_graph_put(graph);
}

/* The next block, if there are any left. */
static bool npulink_round_take(struct npulink_round *r, u32 *block)
{
	/* Pairs with npulink_round_share(). */
	int next = atomic_read_acquire(&r->next);

	do {
		if ((u32)next >= r->nblocks)
			return false;
	} while (!atomic_try_cmpxchg_acquire(&r->next, &next, next + 1));
	*block = next;
	return true;
}

/* Ask for the task of an operation. */
static void npulink_round_ask(struct npulink_op *op, struct npulink_run *run)
{
	struct npulink_req *req;
	unsigned long flags;

	spin_lock_irqsave(&op->rank->lock, flags);
	req = op->free_req;
	op->free_req = req->core.next;
	op->inflight++;
	WRITE_ONCE(op->part, req);
	npulink_req_ready(req, run);
	spin_unlock_irqrestore(&op->rank->lock, flags);
}

/* Divide it among the tasks of all ranks; the one that finishes the last block ends it. */
static void npulink_round_share(struct npulink_round *r, u32 nranks, struct npulink_run *run)
{
	u32 i, rank = r->last;

	r->bad = false;
	r->nblocks = r->graph->nblocks;
	atomic_set(&r->left, r->nblocks + 1);
	/* Pairs with npulink_round_take(). */
	atomic_set_release(&r->next, 0);
	/* Our own comes last: we are awake. */
	for (i = 0; i < nranks; i++) {
		rank = rank + 1 < nranks ? rank + 1 : 0;
		npulink_round_ask(r->ops[rank], run);
	}
	if (atomic_dec_and_test(&r->left))
		npulink_round_close(r, !r->bad, run);
}

/* All are there: carry them out. */
static void npulink_round_run(struct npulink_round *r, struct npulink_comm *comm,
			      struct npulink_run *run)
{
	bool fits = true, done = false;
	u32 i;

	r->met = npulink_run_now(run);
	for (i = 0; i < comm->nranks; i++)
		fits &= npulink_op_fits(r->ops[i], r->graph);
	if (fits && r->graph->nitems) {
		npulink_round_share(r, comm->nranks, run);
		return;
	}
	/* Pairs with npulink_comm_record(). */
	if (fits && !smp_load_acquire(&comm->failed))
		done = !npulink_graph_run(r->graph, r->ops);
	npulink_round_close(r, done, run);
}

/* Is there something that a task should rather do? */
static bool npulink_part_enough(const struct npulink_file *file, const struct npulink_op *waits,
				unsigned long until)
{
	if (signal_pending(current) || time_after(jiffies, until))
		return true;
	/* Pairs with npulink_op_wake(). */
	return !list_empty_careful(&file->ready) || (waits && smp_load_acquire(&waits->done));
}

/*
 * What the task does that was asked for, by @req, for as long as it may; it waits for @waits, if
 * that is not NULL. The caller has a reference to the rank. No locks held.
 */
void npulink_round_part(struct npulink_req *req, const struct npulink_op *waits, u64 until_ns)
{
	unsigned long until = jiffies + ROUND_JIFFIES, flags;
	struct npulink_op *op = req->core.op;
	/* It stays as it is until the part has been given back. */
	struct npulink_round *r = npulink_round_of(op);
	struct npulink_rank *rank = op->rank;
	bool enough = false, last = false;
	NPULINK_DEFINE_RUN_TASK(run);
	u64 bytes = 0;
	u32 block;
	s64 n;

	npulink_run_limit(&run, until_ns);
	if (time_before(run.until, until))
		until = run.until;
	while (!enough && !last && npulink_round_take(r, &block)) {
		n = npulink_graph_run_block(r->graph, r->ops, block, req);
		if (n < 0)
			WRITE_ONCE(r->bad, true);
		else
			bytes += n;
		last = atomic_dec_and_test(&r->left);
		enough = npulink_part_enough(rank->file, waits, until);
		if (!last)
			cond_resched();
	}
	spin_lock_irqsave(&rank->lock, flags);
	op->bytes = min(op->bytes + bytes, op->plan->bytes);
	enough &= !last && atomic_read(&r->left);
	if (enough) {
		npulink_req_ready(req, &run);
	} else {
		WRITE_ONCE(op->part, NULL);
		npulink_req_give(op, req);
		op->inflight--;
		/* It has waited for nothing else, unless the round goes on. */
		if (!op->inflight)
			npulink_op_finish(op, &run);
	}
	spin_unlock_irqrestore(&rank->lock, flags);
	if (last)
		npulink_round_close(r, !r->bad, &run);
	npulink_run(&run);
}

/* ---- for the next time ---------------------------------------------------------- */

/* All have arrived, each to be run by itself: are their plans to be linked? */
static bool npulink_round_wants_graph(const struct npulink_round *r, u32 nranks)
{
	const struct npulink_graph *first = READ_ONCE(r->ops[0]->plan->graph);
	bool want = true, have = first;
	u32 i;

	for (i = 0; i < nranks; i++) {
		const struct npulink_plan *plan = r->ops[i]->plan;

		want &= READ_ONCE(plan->graph_tries) < ROUND_LINKS &&
			npulink_device_runs(r->ops[i]->rank->dev);
		have &= READ_ONCE(plan->graph) == first;
	}
	/* They may have one that could not be used this time. */
	return want && !have;
}

/* Link them, if @want, and let go of the operations; the caller has one of them. */
static void npulink_round_link(struct npulink_round *r, struct npulink_comm *comm, bool want)
{
	struct npulink_graph *g = NULL, *old;
	u32 i;

	if (want)
		g = npulink_graph_make(r->ops, comm->nranks);
	for (i = 0; i < comm->nranks; i++) {
		struct npulink_op *op = r->ops[i];
		struct npulink_plan *plan = op->plan;

		if (want) {
			spin_lock_irq(&comm->lock);
			plan->graph_tries++;
			old = g ? plan->graph : NULL;
			if (g) {
				kref_get(&g->kref);
				plan->graph = g;
			}
			spin_unlock_irq(&comm->lock);
			npulink_graph_put(old);
		}
		WRITE_ONCE(r->ops[i], NULL);
		npulink_op_put(op);
	}
	npulink_round_free(r, comm);
	npulink_graph_put(g);
}

/* What npulink_round_arrive() has found to do. Task context, no locks held. */
void npulink_round_go(struct npulink_op *op, const struct npulink_arrival *a,
		      struct npulink_run *run)
{
	struct npulink_comm *comm = op->rank->comm;
	bool link = false;

	if (a->kind == NPULINK_ARRIVAL_WAITS)
		return;
	npulink_ops_start(a->others, run);
	if (a->kind == NPULINK_ARRIVAL_RUNS) {
		npulink_round_run(npulink_round_of(op), comm, run);
		return;
	}
	if (a->kind == NPULINK_ARRIVAL_LINKS) {
		link = npulink_round_wants_graph(npulink_round_of(op), comm->nranks);
		if (link)
			run->waits = NULL;	/* what is ready is for others meanwhile */
		else
			npulink_round_link(npulink_round_of(op), comm, false);
	}
	if (npulink_op_set_up(op, run))
		npulink_op_connect_and_start(op, run);
	if (link) {
		/* It allocates: nobody is to wait for that. */
		npulink_run(run);
		npulink_round_link(npulink_round_of(op), comm, true);
	}
}
