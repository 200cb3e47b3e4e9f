// SPDX-License-Identifier: GPL-2.0
/*
 * deadlock.c - processes that wait for each other through several communicators, or by
 * receives alone: each would post what another one waits for, if it did not wait itself.
 *
 * Suppose that certain processes never post again. A step that waits for what they have
 * not posted is stuck then; so is what depends on a stuck step, in its own operation or
 * at its peers; and an operation with a stuck step. A process that waits for one that is
 * not stuck is taken out of the supposition, until nothing changes. Those who are left
 * wait for nothing but each other.
 *
 * The parts of this are read one after the other while the machine goes on, but all of
 * them only change one way: a wait that has ended does not come back (it has a number), and
 * neither does a step that is not done, or an operation that is not posted. Waits are
 * read first, each with how many threads its process has, then steps, then the waits once
 * more. Those that are there at both ends were there all the time between, so when the
 * threads were counted, everything that was found was true at once.
 *
 * If some of the processes have threads that are at something else, nobody is accused:
 * those may be about to post. An event says what it looks like.
 */
#include <linux/hash.h>
#include <linux/moduleparam.h>
#include <linux/slab.h>
#include <linux/npulink_genl.h>
#include "base/notify.h"
#include "base/number.h"
#include "comm/comm.h"
#include "observe/deadlock.h"
#include "run/op.h"

static unsigned int npulink_deadlock_ms = 500;
module_param_named(deadlock_ms, npulink_deadlock_ms, uint, 0644);
MODULE_PARM_DESC(deadlock_ms, "search for processes that wait for each other every so many milliseconds, among those that wait twice as long (0: never)");

/* A process of the circle: what it waits for, and the rank that has not called it. */
struct dl_edge {
	const struct dl_wait *wait;
	u32 peer;
};

/* ---- the circle --------------------------------------------------------------------------- */

/* Of several threads, the one in the youngest communicator: see dl_first(). */
static bool dl_edge(struct dl *dl, const struct dl_proc *proc, struct dl_edge *edge)
{
	u32 k, peer;

	edge->wait = NULL;
	for (k = proc->first; k < proc->first + proc->nwaits; k++) {
		struct npulink_op *op = dl->waits[k].op;

		if (!dl_missing_rank(dl, op, &peer) ||
		    (edge->wait && edge->wait->op->rank->comm->serial > op->rank->comm->serial))
			continue;
		edge->wait = &dl->waits[k];
		edge->peer = peer;
	}
	return edge->wait;
}

/* The process that the edge leads to, if it is supposed not to post. */
static const struct dl_proc *dl_edge_end(struct dl *dl, const struct dl_edge *edge)
{
	const struct dl_proc *proc = NULL;
	struct npulink_rank *rank;

	rcu_read_lock();
	rank = rcu_dereference(edge->wait->op->rank->comm->ranks[edge->peer]);
	if (rank)
		proc = dl_proc(dl, READ_ONCE(rank->file)->mm);
	rcu_read_unlock();
	return proc && proc->in ? proc : NULL;
}

/*
 * Some of those who are left only wait for a circle, without being in it. After as many
 * steps as there are processes one is in it. Returns its length, 0: it is no more.
 */
static u32 dl_walk(struct dl *dl, struct dl_edge *edges)
{
	const struct dl_proc *proc = NULL, *start;
	u32 i, left = 0, n = 0;

	for (i = 0; i < dl->nprocs; i++) {
		if (!dl->procs[i].in)
			continue;
		proc = proc ?: &dl->procs[i];
		left++;
	}
	for (i = 0; proc && i < left; i++) {
		cond_resched();
		proc = dl_edge(dl, proc, edges) ? dl_edge_end(dl, edges) : NULL;
	}
	start = proc;
	while (proc && n < left) {
		cond_resched();
		proc = dl_edge(dl, proc, &edges[n]) ? dl_edge_end(dl, &edges[n]) : NULL;
		n++;
		if (proc == start)
			return n;
	}
	return 0;
}

/* Its youngest communicator, where the circle begins: fewer can be used to it than to an older. */
static u32 dl_first(const struct dl_edge *edges, u32 n)
{
	u32 i, first = 0;

	for (i = 1; i < n; i++) {
		const struct npulink_rank *a = edges[i].wait->op->rank;
		const struct npulink_rank *b = edges[first].wait->op->rank;

		if (a->comm->serial > b->comm->serial || (a->comm == b->comm && a->rank < b->rank))
			first = i;
	}
	return first;
}

/* Returns the operation whose communicator is to be blamed, or NULL. */
static struct npulink_op *dl_describe(struct dl *dl, struct npulink_cause *cause,
				      struct npulink_circle *circle)
{
	struct dl_edge *edges = kvcalloc(dl->nprocs, sizeof(*edges), GFP_KERNEL);
	struct npulink_op *op = NULL, *next;
	u32 n, i, first;

	if (!edges)
		return NULL;
	dl->looks = 0;		/* there is one: that is worth as much again */
	n = dl_walk(dl, edges);
	if (!n)
		goto out;
	first = dl_first(edges, n);
	*circle = (struct npulink_circle) { .n = n };
	for (i = 0; i < n && i < NPULINK_CIRCLE_MAX; i++) {
		const struct dl_edge *edge = &edges[(first + i) % n];

		op = edge->wait->op;
		circle->waits[i] = (struct npulink_circle_wait) {
			.comm = op->rank->comm->serial, .rank = op->rank->rank,
			.peer = edge->peer, .number = op->plan->p2p ?
				~0ULL : npulink_told(op->number),
		};
	}
	op = edges[first].wait->op;
	next = edges[(first + 1) % n].wait->op;
	*cause = (struct npulink_cause) {
		.cause = NPULINK_CAUSE_DEADLOCK, .rank = op->rank->rank, .peer = edges[first].peer,
		.step = ~0U, .number = npulink_told(op->number),
		.code = next->rank->comm != op->rank->comm,
		.calls = { op->plan->call, next->plan->call },
	};
out:
	kvfree(edges);
	return op;
}

/* ---- the verdict --------------------------------------------------------------------------- */

/* There is no doubt: end the communicator. */
static void dl_break(struct dl *dl)
{
	struct npulink_circle circle;
	struct npulink_cause cause;
	struct npulink_op *op = dl_describe(dl, &cause, &circle);
	struct npulink_comm *comm;

	if (!op)
		return;
	comm = op->rank->comm;
	/* Who reads the cause reads it, too; there is one search at a time. */
	if (!READ_ONCE(comm->failed))
		comm->circle = circle;
	npulink_comm_fail_now(comm, &cause);
}

/* Some have threads that may post yet: tell who listens, once for the same waits. */
static void dl_suspect(struct dl *dl)
{
	struct npulink_notice notice = NPULINK_NOTICE(NPULINK_EVENT_SUSPECT);
	struct npulink_cause cause;
	struct npulink_op *op;
	u64 waits = 0;
	u32 i;

	for (i = dl->now; i != DL_NONE; i = dl->procs[i].next)
		dl->procs[i].in = dl->procs[i].suspect;
	if (dl_solve(dl) <= 0)
		return;
	for (i = 0; i < dl->nwaits; i++) {
		if (dl_proc(dl, dl->waits[i].mm)->in)
			waits += hash_ptr(dl->waits[i].file, 64) * dl->waits[i].id;
	}
	op = dl_describe(dl, &cause, &notice.circle);
	if (!op || op->rank->comm->suspected == waits)
		return;
	op->rank->comm->suspected = waits;
	notice.comm = op->rank->comm->serial;
	notice.rank = cause.rank;
	notice.peer = cause.peer;
	notice.number = cause.number;
	notice.cause = cause.cause;
	notice.code = cause.code;
	npulink_comm_notify(op->rank->comm, &notice);
}

static void dl_search_part(struct dl *dl)
{
	u32 i;
	int rc;

	/* First as if those that have other threads did not, since mostly there is nothing. */
	for (i = dl->now; i != DL_NONE; i = dl->procs[i].next)
		dl->procs[i].in = true;
	if (dl_solve(dl) <= 0)
		return;
	for (i = dl->now; i != DL_NONE; i = dl->procs[i].next) {
		struct dl_proc *proc = &dl->procs[i];

		proc->suspect = proc->in;
		proc->in &= proc->threads == proc->nwaits;
	}
	rc = dl_solve(dl);
	if (rc > 0 && dl_still_wait(dl))
		dl_break(dl);
	else if (!rc)
		dl_suspect(dl);
}

/* Returns whether anybody waits at all. */
static bool npulink_deadlock_search(void)
{
	unsigned long before = jiffies - 2 * msecs_to_jiffies(READ_ONCE(npulink_deadlock_ms));
	struct dl *dl = kvzalloc(sizeof(*dl), GFP_KERNEL);
	bool any = true;
	u32 i, k;

	if (!dl)
		return true;
	xa_init(&dl->ops);
	if (dl_read(dl, before))
		goto out;
	any = dl->nwaits || dl->young;
	if (!dl->nwaits || dl_read_procs(dl))
		goto out;
	for (i = 0; i < dl->nprocs; i++) {
		if (dl->procs[i].part != i)
			continue;
		dl->now = i;
		dl_search_part(dl);
		dl_forget(dl);
		for (k = i; k != DL_NONE; k = dl->procs[k].next)
			dl->procs[k].in = false;
		cond_resched();
	}
out:
	dl_free(dl);
	return any;
}

static void npulink_deadlock_work_fn(struct work_struct *work);
static DECLARE_DELAYED_WORK(npulink_deadlock_work, npulink_deadlock_work_fn);
static bool npulink_deadlock_armed;

static void npulink_deadlock_arm(void)
{
	unsigned int ms = READ_ONCE(npulink_deadlock_ms);

	if (READ_ONCE(npulink_deadlock_armed) || !ms)
		return;
	WRITE_ONCE(npulink_deadlock_armed, true);
	queue_delayed_work(system_unbound_wq, &npulink_deadlock_work, msecs_to_jiffies(ms));
}

static void npulink_deadlock_work_fn(struct work_struct *work)
{
	WRITE_ONCE(npulink_deadlock_armed, false);
	/* Pairs with npulink_deadlock_arm(): who does not see it cleared is seen here. */
	smp_mb();
	if (npulink_deadlock_search())
		npulink_deadlock_arm();
}

/* A waiter without limit, which is on the list of @file, is about to sleep. */
void npulink_deadlock_waits(struct npulink_file *file)
{
	if (!READ_ONCE(npulink_deadlock_ms))
		return;
	dl_watch(file);
	npulink_deadlock_arm();
}

void npulink_deadlock_exit(void)
{
	cancel_delayed_work_sync(&npulink_deadlock_work);
}
