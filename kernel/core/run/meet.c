// SPDX-License-Identifier: GPL-2.0
/*
 * meet.c - collectives in one go, when the last rank has posted.
 *
 * When all ranks of a communicator have posted one collective, the steps of all their plans
 * are known, and so is an order in which to run them. It is found once, by going through
 * them as the sequencer would, and kept: a script, the list of all ranks' requests. When
 * the same plans meet again, ranks that come early only register; the last one runs the
 * script in its own system call and ends all the operations. No bell is rung, no rank
 * looks at its steps, and each process sleeps and is woken once. If it is about much data
 * (npulink/meet.h), all ranks' tasks run it together (share.c).
 *
 * This is done only for collectives whose ranks all depend on each other, among ranks of one
 * machine, while no device does anything special and
 * nobody traces steps or checks what comes over links. Until the last one comes, any rank
 * may come with another plan, or somebody may want to see which step waits for what: then
 * the meeting is dissolved, and its operations start the usual way. The flight recorder
 * has such operations, and who was waited for, but no steps.
 */
#include <linux/moduleparam.h>
#include <linux/mutex.h>
#include <npulink/meet.h>
#include <npulink/verify.h>
#include "base/number.h"
#include "base/pass.h"
#include "comm/comm.h"
#include "file/file.h"
#include "observe/trace.h"
#include "run/board.h"
#include "run/flight_record.h"
#include "run/meet.h"
#include "run/op.h"
#include "run/run.h"
#include "run/script.h"

bool npulink_scripts = true;
module_param_cb(scripts, &npulink_board_param_ops, &npulink_scripts, 0644);
MODULE_PARM_DESC(scripts, "small collectives are run by the last rank to post, for all of them");

#define SCRIPT_TRIES	4		/* scripts that are made for one plan */
#define SCRIPT_REQ		4	/* times inline_max that a request may read */
#define MEET_WAKES	64		/* ends, and then somebody else may go on */

/* Not to be changed later: all ranks' libraries go by it. */
unsigned int npulink_script_bytes = 256 << 10;
module_param_named(script_bytes, npulink_script_bytes, uint, 0444);
MODULE_PARM_DESC(script_bytes, "that a script may read and write, for all ranks; more if they share processors (262144)");

/* ---- running a script ------------------------------------------------------- */

static bool npulink_script_run(const struct npulink_script *s)
{
	u32 i;
	int rc;

	for (i = 0; i < s->nreqs; i++) {
		const struct npulink_script_req *sr = &s->reqs[i];

		rc = npulink_script_req_run(s, sr, npulink_op_req(s->ops[sr->rank], 0), 0, sr->len);
		if (rc) {
			npulink_script_fail(s, sr, rc);
			return false;
		}
		if (i % 64 == 63)
			cond_resched();
	}
	npulink_script_count(s);
	return true;
}

/* ---- meeting --------------------------------------------------------------- */

/* The same on all ranks. */
static bool npulink_call_meets(const struct npulink_call *call)
{
	if (!npulink_script_bytes)
		return false;
	if (npulink_coll_meets_large(call->collective))
		return call->dtype < NPULINK_DTYPES &&
		       call->count >= npulink_script_bytes / npulink_dtype_size(call->dtype);
	return npulink_coll_meets(call->collective) &&
	       (call->count || call->collective == NPULINK_COLL_BARRIER);
}

static bool npulink_op_fits(const struct npulink_op *op, const struct npulink_script *s)
{
	const struct npulink_device *dev = op->rank->dev;

	return READ_ONCE(npulink_scripts) && !trace_npulink_step_enabled() &&
	       !trace_npulink_issue_enabled() && READ_ONCE(dev->direct) &&
	       s->max_req <= (u64)SCRIPT_REQ * READ_ONCE(dev->inline_max) &&
	       s->max_req <= dev->slice;
}

/*
 * There will be no meeting. Who has waited for it has to start the usual way: returned,
 * linked by meet.other, with a reference each. comm->lock held.
 */
static struct npulink_op *npulink_meet_break(struct npulink_meet *m)
{
	struct npulink_op *others = NULL, *op;

	m->broken = true;
	for (op = m->first; op; op = op->meet.next) {
		if (op->meet.state != NPULINK_MEET_GATHERED)
			continue;
		op->meet.state = NPULINK_MEET_LISTED;
		npulink_op_get(op);
		op->meet.other = others;
		others = op;
	}
	return others;
}

/*
 * @op has got its number. Under its rank's lock; what remains to be done without it, and what
 * npulink_meet_go() needs for that, is in op->meet.
 */
void npulink_meet_arrive(struct npulink_op *op)
{
	struct npulink_comm *comm = op->rank->comm;
	/* Whose processor time it takes is nothing that users have to trust each other with. */
	bool meets = !comm->far && !comm->checksum && !comm->any_uid &&
		     npulink_call_meets(&op->plan->call);
	struct npulink_meet *m;
	struct npulink_op *o;
	bool later;

	lockdep_assert_held(&op->rank->lock);
	m = &comm->meets[op->number % NPULINK_MAX_INFLIGHT];
	op->meet.next = NULL;
	op->meet.turns = NULL;
	op->meet.other = NULL;
	op->meet.verdict = NPULINK_MEET_START;
	spin_lock(&comm->lock);
	op->meet.script = meets ? op->plan->script : NULL;
	later = !m->used || npulink_number_before(m->number, op->number);
	if (later && !m->first) {
		m->used = true;
		m->number = op->number;
		m->count = 0;
		m->broken = !op->meet.script ||
			    (m->skips && !npulink_number_before(m->skipped, op->number));
		m->script = op->meet.script;
	} else if (later && (!m->skips || npulink_number_before(m->skipped, op->number))) {
		/* An older meeting is there yet: then this one will not be. */
		m->skips = true;
		m->skipped = op->number;
	}
	/* Otherwise ranks have called different things, which it is not for us to find out. */
	if (m->used && m->number == op->number) {
		/* If somebody has left, who has steps with him is to find out. */
		if (!m->broken && (op->meet.script != m->script || READ_ONCE(comm->nleft) ||
				   !npulink_op_fits(op, op->meet.script)))
			op->meet.other = npulink_meet_break(m);
		if (meets) {
			op->meet.state = m->broken ? NPULINK_MEET_LISTED : NPULINK_MEET_GATHERED;
			op->meet.next = m->first;
			op->meet.pprev = &m->first;
			if (m->first)
				m->first->meet.pprev = &op->meet.next;
			m->first = op;
			m->count++;
		}
	}
	if (op->meet.state == NPULINK_MEET_GATHERED) {
		op->meet.verdict = NPULINK_MEET_WAIT;
		op->raw = true;
		op->inflight++;		/* until the meeting has ended */
	}
	if (op->meet.state != NPULINK_MEET_NOT && m->count == comm->nranks) {
		op->meet.verdict = m->broken ? NPULINK_MEET_MAKE : NPULINK_MEET_RUN;
		if (!m->broken)
			kref_get(&op->meet.script->kref);
		m->first = NULL;
		for (o = op; o; o = o->meet.next) {
			npulink_op_get(o);
			o->meet.state = NPULINK_MEET_NOT;
		}
	}
	spin_unlock(&comm->lock);
}

/*
 * @op ends: it must not be found at the meeting any more. True if it has waited for that,
 * and for nothing else. Under its rank's lock.
 */
bool npulink_meet_leave(struct npulink_op *op)
{
	struct npulink_comm *comm = op->rank->comm;
	bool gathered = false;

	lockdep_assert_held(&op->rank->lock);
	spin_lock(&comm->lock);
	if (op->meet.state != NPULINK_MEET_NOT) {
		gathered = op->meet.state == NPULINK_MEET_GATHERED;
		op->meet.state = NPULINK_MEET_NOT;
		*op->meet.pprev = op->meet.next;
		if (op->meet.next)
			op->meet.next->meet.pprev = op->meet.pprev;
	}
	spin_unlock(&comm->lock);
	return gathered;
}

/* @op was reset. Nobody has looked at it before. */
static void npulink_meet_is_set_up(struct npulink_op *op)
{
	lockdep_assert_held(&op->rank->lock);
	/* Pairs with READ_ONCE() in genl_op.c, which holds no lock. */
	smp_store_release(&op->raw, false);
}

/* The meeting lets go of @op, in vain. True if it has to be started now. */
static bool npulink_meet_release(struct npulink_op *op, struct npulink_run *run)
{
	struct npulink_script *s = op->meet.script;
	bool start = false, held;
	unsigned long flags;

	npulink_op_reset(op);
	spin_lock_irqsave(&op->rank->lock, flags);
	op->inflight--;
	held = npulink_share_withdraw(op);
	/* What was run in part must not be started once more. Pairs with npulink_comm_record(). */
	if (smp_load_acquire(&op->rank->comm->failed))
		npulink_op_fail(op, run);
	else
		start = op->state == NPULINK_OP_RUNNING;
	if (start)
		npulink_meet_is_set_up(op);
	else if (op->state == NPULINK_OP_FAILING && !op->inflight)
		npulink_op_finish(op, run);
	spin_unlock_irqrestore(&op->rank->lock, flags);
	if (held)
		npulink_script_put(s);
	return start;
}

/* The meeting has carried @op out. */
static void npulink_meet_end(struct npulink_op *op, u32 last, u64 met, u64 engine,
			     struct npulink_pass_group *turns, struct npulink_run *run)
{
	struct npulink_script *s = op->meet.script;
	unsigned long flags;
	bool held;

	spin_lock_irqsave(&op->rank->lock, flags);
	op->bytes = op->plan->bytes;
	op->meet.turns = turns;
	op->inflight--;
	held = npulink_share_withdraw(op);
	if (op->state == NPULINK_OP_RUNNING && op->rank->flight)
		npulink_flight_met(op, last, met, engine);
	/* The task that has its part is about to see that nothing is left of it. */
	if (op->inflight)
		op->meet.over = true;
	else
		npulink_op_finish(op, run);
	spin_unlock_irqrestore(&op->rank->lock, flags);
	if (held)
		npulink_script_put(s);
}

static void npulink_meet_start(struct npulink_op *op, struct npulink_run *run)
{
	struct npulink_cause cause = {};

	if (npulink_op_connect(op, &cause))
		npulink_comm_fail_now(op->rank->comm, &cause);
	npulink_op_start(op, run);
}

/* Those of npulink_meet_break(). */
static void npulink_meet_start_others(struct npulink_op *others, struct npulink_run *run)
{
	while (others) {
		struct npulink_op *op = others;

		others = op->meet.other;
		if (npulink_meet_release(op, run))
			npulink_meet_start(op, run);
		npulink_op_put(op);
	}
}

/* @awake tasks are, but for those that are held. */
static void npulink_meet_wake(struct npulink_pass_group *turns, u32 awake, u32 processors)
{
	u32 held = READ_ONCE(turns->held);

	awake -= min(held, awake - 1);
	if (awake < processors)
		npulink_pass_some(turns, processors - awake);
}

/*
 * A meeting, of which @list was the last to come, at @met, is over: it has carried all out,
 * or, if not @done, nobody knows how much. May sleep.
 */
void npulink_meet_close(struct npulink_op *list, bool done, u64 met, struct npulink_run *run)
{
	u32 rank = list->rank->rank, processors = npulink_pass_processors(), awake = 1;
	struct npulink_pass_group *turns = NULL;
	struct npulink_op *op, *next;
	u64 engine;

	run->now = 0;
	engine = max_t(s64, npulink_run_now(run) - met, 0);
	if (done && list->rank->comm->nranks > processors &&
	    npulink_pass_may_hold(&list->rank->comm->turns))
		turns = &list->rank->comm->turns;
	/* All can be found by each other before the first one starts. */
	for (op = list; op && !done; op = op->meet.next)
		op->meet.restart = npulink_meet_release(op, run);
	/* Who sleeps comes before who is awake: its wake-up takes a while. */
	for (op = list->meet.next ?: list; op; op = next) {
		next = op == list ? NULL : op->meet.next ?: list;
		if (done)
			npulink_meet_end(op, rank, met, engine, turns, run);
		else if (op->meet.restart)
			npulink_meet_start(op, run);
		/* Of several some ran elsewhere; but it may be long until all are done. */
		if (turns && (op == list || !(++awake % MEET_WAKES)))
			npulink_meet_wake(turns, awake, processors);
		npulink_op_put(op);
	}
}

/* All have met, @list the last: carry it out, here, or by all of them. */
static void npulink_meet_run(struct npulink_op *list, struct npulink_run *run)
{
	struct npulink_script *s = list->meet.script;
	struct npulink_comm *comm = list->rank->comm;
	u64 met = npulink_run_now(run);
	bool fits = true, done = false;
	struct npulink_op *op;
	u32 n = 0;

	/*
	 * The script that an operation came with may be gone, and this one lie in its place, made
	 * for other plans. But it is referenced: who has it now was part of its making.
	 */
	for (op = list; op; op = op->meet.next, n++)
		fits &= npulink_op_fits(op, s) && READ_ONCE(op->plan->script) == s;
	/* Less if one has failed, and then all will. */
	fits &= n == comm->nranks;
	if (fits && s->share) {
		npulink_share_post(list, run);
		return;
	}
	/* Two threads of a rank may each have posted the last of a meeting. */
	if (fits && !test_and_set_bit_lock(0, &s->busy)) {
		for (op = list; op; op = op->meet.next)
			s->ops[op->rank->rank] = op;
		/* Pairs with npulink_comm_record(). */
		if (!smp_load_acquire(&comm->failed))
			done = npulink_script_run(s);
		clear_bit_unlock(0, &s->busy);
	}
	npulink_meet_close(list, done, met, run);
	npulink_script_put(s);
}

/* All have met, @list the last, each for itself: is a script to be made for the next time? */
static bool npulink_meet_wants(struct npulink_op *list)
{
	bool want = true, have = READ_ONCE(list->plan->script);
	struct npulink_op *op;
	u32 n = 0;

	for (op = list; op; op = op->meet.next, n++) {
		want &= READ_ONCE(op->plan->script_tries) < SCRIPT_TRIES &&
			READ_ONCE(op->rank->dev->direct);
		have &= READ_ONCE(op->plan->script) == READ_ONCE(list->plan->script);
	}
	/*
	 * They may have one that could not be used this time. Some may be over already, if
	 * their plans need not wait for everybody.
	 */
	return want && !have && n == list->rank->comm->nranks;
}

/* Make one, if @want, and let go of @list. */
static void npulink_meet_make(struct npulink_op *list, bool want)
{
	struct npulink_comm *comm = list->rank->comm;
	struct npulink_script *s = NULL, *old;
	struct npulink_op *op, *next;

	if (want)
		s = npulink_script_make(list, comm->nranks);
	for (op = list; op; op = next) {
		next = op->meet.next;
		if (want) {
			spin_lock_irq(&comm->lock);
			op->plan->script_tries++;
			old = s ? op->plan->script : NULL;
			if (s) {
				kref_get(&s->kref);
				op->plan->script = s;
			}
			spin_unlock_irq(&comm->lock);
			npulink_script_put(old);
		}
		npulink_op_put(op);
	}
	npulink_script_put(s);
}

/* What npulink_meet_arrive() has found to do. Task context, no locks held. */
void npulink_meet_go(struct npulink_op *op, struct npulink_run *run)
{
	unsigned long flags;
	bool make = false;

	/* It may be on somebody else's list by now: meet.other is not ours. */
	if (op->meet.verdict == NPULINK_MEET_WAIT)
		return;
	npulink_meet_start_others(op->meet.other, run);
	switch (op->meet.verdict) {
	case NPULINK_MEET_WAIT:
		break;
	case NPULINK_MEET_RUN:
		npulink_meet_run(op, run);
		return;
	case NPULINK_MEET_MAKE:
		make = npulink_meet_wants(op);
		if (!make)
			npulink_meet_make(op, false);
		else
			run->waits = NULL;	/* what is ready is for others meanwhile */
		break;
	case NPULINK_MEET_START:
		break;
	}
	if (op->raw) {
		npulink_op_reset(op);
		spin_lock_irqsave(&op->rank->lock, flags);
		if (op->state == NPULINK_OP_RUNNING)
			npulink_meet_is_set_up(op);
		spin_unlock_irqrestore(&op->rank->lock, flags);
	}
	npulink_meet_start(op, run);
	if (make) {
		/* It allocates: nobody is to wait for that. */
		npulink_run(run);
		npulink_meet_make(op, true);
	}
}

/* Whoever has it knows that nobody else is in the middle of starting those of a meeting. */
static DEFINE_MUTEX(npulink_dissolve_lock);

/*
 * Have @op and those who wait with it start the usual way, so that each of their steps
 * can say whom it waits for, when this returns. Task context, no locks held.
 */
void npulink_meet_dissolve(struct npulink_op *op)
{
	struct npulink_comm *comm = op->rank->comm;
	struct npulink_op *others = NULL;
	NPULINK_DEFINE_RUN_TASK(run);

	mutex_lock(&npulink_dissolve_lock);
	spin_lock_irq(&comm->lock);
	if (op->meet.state == NPULINK_MEET_GATHERED)
		others = npulink_meet_break(&comm->meets[op->number % NPULINK_MAX_INFLIGHT]);
	spin_unlock_irq(&comm->lock);
	npulink_meet_start_others(others, &run);
	mutex_unlock(&npulink_dissolve_lock);
	npulink_run(&run);
}
