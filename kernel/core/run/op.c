// SPDX-License-Identifier: GPL-2.0
/*
 * op.c - the life of an operation: made by POST or taken over from the one before, ended
 * by the sequencer when its last unit is done, or when its communicator has failed and
 * the engine has let go of it.
 */
#include <linux/slab.h>
#include "base/number.h"
#include "base/queue.h"
#include "comm/comm.h"
#include "file/buf.h"
#include "file/file.h"
#include "observe/trace.h"
#include "plan/plan.h"
#include "run/checksum.h"
#include "run/event.h"
#include "run/flight_record.h"
#include "run/op.h"
#include "run/round.h"
#include "run/run.h"
#include "run/seq.h"
#include "run/slow.h"

#define NONE	0xffffffffU

/* Operations whose last reference went away where memory cannot be freed. */
static LLIST_HEAD(npulink_dead_ops);

static void npulink_op_destroy(struct npulink_op *op)
{
	u32 i;

	if (op->far)
		npulink_remote_ops->free(op);
	for (i = 0; i < ARRAY_SIZE(op->checks) && op->checks[i]; i++)
		npulink_check_free(op->checks[i]);
	kvfree(op->reqs);
	kvfree(op->units);
	kvfree(op->streams);
	kvfree(op->drain_left);
	kvfree(op);
}

static void npulink_dead_ops_free(struct work_struct *work)
{
	struct llist_node *list = llist_del_all(&npulink_dead_ops);
	struct npulink_op *op, *next;

	llist_for_each_entry_safe(op, next, list, free_node) {
		npulink_op_destroy(op);
		cond_resched();
	}
}

static DECLARE_WORK(npulink_dead_ops_work, npulink_dead_ops_free);

void npulink_ops_exit(void)
{
	flush_work(&npulink_dead_ops_work);
}

/*
 * Set up what its steps need; nobody looks at them before NPULINK_OP_RUNNING. It may be a lot: in
 * a task, no locks held.
 */
void npulink_op_reset(struct npulink_op *op)
{
	const struct npulink_plan *plan = op->plan;
	u32 i;

	op->units_left = plan->nunits;
	op->starting = NONE;
	op->releasing = NONE;
	op->starved_first = NONE;
	op->starved_last = NONE;
	op->drain = 0;
	for (i = 0; i < plan->nsteps; i++) {
		op->cells[i].avail = 0;
		op->cells[i].taken = 0;
		atomic_set(&op->cells[i].ev.pending, 0);
		if (!(i & 0xfff))
			cond_resched();
	}
	for (i = 0; i < plan->nunits; i++) {
		struct npulink_unit_state *us = &op->units[i];

		us->done = 0;
		us->waits = 0;
		us->missing = false;
		us->deps = plan->units[i].ndeps;
		us->phase = NPULINK_UNIT_BLOCKED;
		if (!(i & 0xfff))
			cond_resched();
	}
	for (i = 0; i < plan->ndrains; i++)
		op->drain_left[i] = plan->drains[i] - (i ? plan->drains[i - 1] : 0);
	if (op->far)
		npulink_remote_ops->reset(op);
}

static void npulink_op_end_work(struct work_struct *work);

/* What does not change from one run to the next. */
static struct npulink_op *npulink_op_new(struct npulink_plan *plan)
{
	struct npulink_op *op = kvzalloc(npulink_op_size(plan), GFP_KERNEL_ACCOUNT);
	u32 i;

	if (!op)
		return NULL;
	op->units = kvcalloc(plan->nunits, sizeof(*op->units), GFP_KERNEL_ACCOUNT);
	op->streams = kvcalloc(plan->nstreams, sizeof(*op->streams), GFP_KERNEL_ACCOUNT);
	op->drain_left = kvcalloc(plan->ndrains, sizeof(u32), GFP_KERNEL_ACCOUNT);
	op->reqs = kvcalloc(plan->nreqs, npulink_req_size(plan), GFP_KERNEL_ACCOUNT);
	if ((plan->nunits && !op->units) || (plan->nstreams && !op->streams) ||
	    (plan->ndrains && !op->drain_left) || (plan->nreqs && !op->reqs) ||
	    (plan->mirror && npulink_remote_ops->alloc(op, plan))) {
		npulink_op_destroy(op);
		return NULL;
	}
	op->plan = plan;
	for (i = 0; plan->check && i < plan->nreqs; i++) {
		op->checks[i] = npulink_check_alloc(plan);
		if (!op->checks[i]) {
			npulink_op_destroy(op);
			return NULL;
		}
		npulink_op_req(op, i)->core.check = op->checks[i];
	}
	for (i = 0; i < plan->nsteps; i++)
		op->cells[i].ev.kind = i;
	INIT_LIST_HEAD(&op->node);
	INIT_LIST_HEAD(&op->p2p_node);
	INIT_LIST_HEAD(&op->resume_node);
	INIT_WORK(&op->end_work, npulink_op_end_work);
	for (i = plan->nreqs; i--; ) {
		struct npulink_req *req = npulink_op_req(op, i);

		req->ev.kind = NPULINK_EV_REQ;
		req->core.op = op;
		npulink_req_give(op, req);
	}
	return op;
}

/*
 * How many operations a plan may keep for its next POSTs: as many as a batch is likely to
 * have. One that is large, or whose operations have memory charged to the user, keeps a
 * single one, once it was posted.
 */
static u32 npulink_plan_stock(const struct npulink_plan *plan)
{
	if (plan->check || plan->nsteps > NPULINK_STOCK_STEPS)
		return 1;
	return min(NPULINK_SPARE_STEPS / (plan->nsteps + 1), NPULINK_PLAN_SPARES);
}

/* Keep @op for the next POST; false if there are enough. Any context. */
static bool npulink_op_keep(struct npulink_plan *plan, struct npulink_op *op)
{
	unsigned long flags;
	bool keep;

	spin_lock_irqsave(&plan->spare_lock, flags);
	keep = plan->nspares < npulink_plan_stock(plan);
	if (keep) {
		op->free_node.next = plan->spares;
		plan->spares = &op->free_node;
		plan->nspares++;
	}
	spin_unlock_irqrestore(&plan->spare_lock, flags);
	return keep;
}

/* The one that was kept last: its memory is the most likely to be in a cache. */
static struct npulink_op *npulink_op_take(struct npulink_plan *plan)
{
	struct npulink_op *op = NULL;
	unsigned long flags;

	spin_lock_irqsave(&plan->spare_lock, flags);
	if (plan->spares) {
		op = llist_entry(plan->spares, struct npulink_op, free_node);
		plan->spares = op->free_node.next;
		plan->nspares--;
	}
	spin_unlock_irqrestore(&plan->spare_lock, flags);
	return op;
}

/*
 * What ranks need that post @plan, wait, and post it again: a peer that is not done yet
 * may still look at the first operation, but no longer when the second is done, as that
 * takes the peer's second one. Whoever reports on operations may hold one longer.
 */
int npulink_plan_make_spares(struct npulink_plan *plan)
{
	struct npulink_op *op;
	u32 i;

	if (npulink_plan_stock(plan) == 1)
		return 0;
	for (i = 0; i < 2; i++) {
		op = npulink_op_new(plan);
		if (!op)
			return -ENOMEM;
		npulink_op_keep(plan, op);
	}
	return 0;
}

void npulink_plan_free_spares(struct npulink_plan *plan)
{
	struct npulink_op *op;

	while ((op = npulink_op_take(plan)))
		npulink_op_destroy(op);
}

/*
 * A fresh operation of @plan, with a reference to plan and rank. May sleep, and if it has to, @run
 * is done before: a memory cgroup may make us wait for long, and peers would. One that has run
 * before has let go of buffers, peers and requests.
 */
struct npulink_op *npulink_op_alloc(struct npulink_plan *plan, struct npulink_run *run)
{
	struct npulink_op *op = npulink_op_take(plan);

	if (!op) {
		npulink_run(run);
		op = npulink_op_new(plan);
	}
	if (!op)
		return NULL;
	kref_get(&plan->obj.kref);
	op->rank = npulink_rank_get(plan->rank);
	refcount_set(&op->refs, 1);
	op->state = NPULINK_OP_NEW;
	op->done = false;
	op->held = false;
	op->has_deadline = false;
	op->slow = false;
	op->slow_ns = 0;
	op->bytes = 0;
	op->inflight = 0;
	op->part = NULL;
	op->wait_ns = 0;
	op->queue_ns = 0;
	op->engine_ns = 0;
	op->take_ns = 0;
	memset(&op->result, 0, sizeof(op->result));
	op->result.step = NONE;
	op->result.peer = NPULINK_NO_PEER;
	op->result.number = ~0ULL;
	/* One that is likely to be run as a whole needs no more. */
	if (!READ_ONCE(plan->graph)) {
		npulink_op_reset(op);
		op->state = NPULINK_OP_READY;
	}
	return op;
}

/* Any context. */
void npulink_op_put(struct npulink_op *op)
{
	struct npulink_plan *plan = op->plan;
	struct npulink_rank *rank = op->rank;

	if (!refcount_dec_and_test(&op->refs))
		return;
	if (!npulink_op_keep(plan, op)) {
		if (llist_add(&op->free_node, &npulink_dead_ops))
			schedule_work(&npulink_dead_ops_work);
	}
	npulink_plan_put(plan);
	npulink_rank_put(rank);
}

/* The only place that changes op->state. */
void npulink_op_set_state(struct npulink_op *op, enum npulink_op_state state)
{
	bool ok = false;

	lockdep_assert_held(&op->rank->lock);
	switch (state) {
	case NPULINK_OP_NEW:
	case NPULINK_OP_READY:
		break;
	case NPULINK_OP_GATHERED:
		ok = op->state <= NPULINK_OP_READY;
		break;
	case NPULINK_OP_STARTING:
		ok = op->state == NPULINK_OP_NEW || op->state == NPULINK_OP_GATHERED;
		break;
	case NPULINK_OP_RUNNING:
		ok = op->state == NPULINK_OP_READY || op->state == NPULINK_OP_STARTING;
		break;
	case NPULINK_OP_FAILING:
		ok = op->state >= NPULINK_OP_GATHERED && op->state <= NPULINK_OP_RUNNING;
		break;
	case NPULINK_OP_DONE:
		ok = op->state == NPULINK_OP_GATHERED || op->state == NPULINK_OP_RUNNING ||
		     op->state == NPULINK_OP_FAILING;
		break;
	}
	WARN_ON_ONCE(!ok);
	/* For those who look without the lock. */
	WRITE_ONCE(op->state, state);
}

static void npulink_op_unlist(struct npulink_op *op)
{
	struct npulink_rank *rank = op->rank;
	u32 i;

	list_del_init(&op->node);
	rank->stats.inflight--;
	if (op->plan->p2p) {
		list_del_init(&op->p2p_node);
	} else {
		rank->table[op->number % NPULINK_MAX_INFLIGHT] = NULL;
		i = op->number % NPULINK_HISTORY;
		rank->history[i].used = true;
		rank->history[i].number = op->number;
		rank->history[i].call = op->plan->call;
	}
}

/* May sleep. */
void npulink_op_end_foreign(struct npulink_op *op)
{
	u32 i;

	for (i = 0; i < op->plan->nslots; i++)
		if (op->binds[i].buf && npulink_buf_is_foreign(op->binds[i].buf))
			npulink_buf_end_cpu(op->binds[i].buf, op->plan->slots[i].access);
}

static void npulink_op_end_work(struct work_struct *work)
{
	struct npulink_op *op = container_of(work, struct npulink_op, end_work);
	struct npulink_rank *rank = npulink_rank_get(op->rank);
	NPULINK_DEFINE_RUN_TASK(run);

	npulink_op_end_foreign(op);
	spin_lock_irq(&rank->lock);
	/* A failure may have queued it once more while this ran. */
	if (op->foreign) {
		op->foreign = false;
		npulink_op_finish(op, &run);
	}
	spin_unlock_irq(&rank->lock);
	npulink_op_put(op);
	npulink_run(&run);
	npulink_rank_put(rank);
}

/* It is over, one way or the other: let go of everything and deliver the result. */
void npulink_op_finish(struct npulink_op *op, struct npulink_run *run)
{
	struct npulink_rank *rank = op->rank;
	struct npulink_device *dev = rank->dev;
	u32 i;

	lockdep_assert_held(&rank->lock);
	if (unlikely(op->foreign)) {
		/* Its driver sleeps. Whoever comes here meanwhile finds it queued. */
		npulink_op_get(op);
		if (!npulink_queue(&op->end_work))
			npulink_op_put(op);
		return;
	}
	if (op->state == NPULINK_OP_FAILING) {
		const struct npulink_cause *c = &rank->comm->cause;

		op->result.status = c->status;
		op->result.cause = c->cause;
		op->result.rank = c->rank;
		op->result.peer = c->peer;
		op->result.step = c->step;
		op->result.number = c->number;
	} else {
		op->result.rank = rank->rank;
		op->result.number = op->plan->p2p ? ~0ULL : npulink_told(op->number);
	}
	if (op->far)
		npulink_remote_ops->finish(op, run);
	/* Who waits for it is woken, and there may be many; and each peer is let go of. */
	run->room -= NPULINK_HOLD_END + op->plan->nstreams / NPULINK_HOLD_OUT;
	npulink_op_set_state(op, NPULINK_OP_DONE);
	/* Its plan may be such that it need not wait for everybody. */
	npulink_round_leave(op);
	npulink_op_unlist(op);
	for (i = 0; i < op->plan->nslots; i++) {
		struct npulink_buf *buf = op->binds[i].buf;

		WRITE_ONCE(op->binds[i].buf, NULL);
		if (buf)
			npulink_buf_unuse(buf);
	}
	for (i = 0; i < op->plan->nstreams; i++) {
		struct npulink_op *peer = op->streams[i].peer;

		op->streams[i].peer = NULL;
		if (peer)
			npulink_op_put(peer);
	}
	op->result.seq = op->seq;
	op->result.cookie = op->cookie;
	op->result.comm_id = rank->obj.id;
	op->result.ns = max_t(s64, npulink_run_now(run) - op->start_ns, 0);
	if (rank->flight)
		npulink_flight_op(op, run);
	trace_npulink_done(op);
	if (op->result.status)
		rank->stats.failed++;
	else
		rank->stats.done++;
	rank->stats.bytes += op->bytes;
	rank->stats.busy_ns += op->result.ns;
	if (unlikely(op->slow_ns && op->result.ns > op->slow_ns))
		npulink_slow_told(op, op->result.ns);
	atomic_dec(&op->plan->inflight);
	npulink_op_deliver(op);
	npulink_op_put(op);	/* the rank's reference */
	percpu_ref_put(&dev->users);
}

/*
 * The communicator has failed: end @op as soon as the engine has let go of it. False if that is
 * under way, or for the round that runs it.
 */
bool npulink_op_fail(struct npulink_op *op, struct npulink_run *run)
{
	struct npulink_file *file = op->rank->file;
	u32 i;

	lockdep_assert_held(&op->rank->lock);
	if (op->state > NPULINK_OP_RUNNING)
		return false;
	if (op->state == NPULINK_OP_GATHERED) {
		if (!npulink_round_leave(op))
			return false;
		op->inflight--;
	}
	npulink_op_set_state(op, NPULINK_OP_FAILING);
	for (i = 0; i < op->plan->nreqs; i++) {
		struct npulink_req *req = npulink_op_req(op, i);
		bool mine = false;

		/* It is others' work, too: whoever has it, or gets it, sees to its end. */
		if (req == op->part)
			continue;
		spin_lock(&file->lock);
		if (req->core.state == NPULINK_REQ_TODO || req->core.state == NPULINK_REQ_READY) {
			list_del(&req->core.node);
			mine = true;
		}
		spin_unlock(&file->lock);
		if (!mine && req->core.state == NPULINK_REQ_RUNNING) {
			WRITE_ONCE(req->cancelled, true);
			if (req->dev->ops->cancel)
				mine = req->dev->ops->cancel(req->dev, req);
		}
		if (mine)
			npulink_req_free(req);
	}
	if (!op->inflight)
		npulink_op_finish(op, run);
	return true;
}

/*
 * How likely it is that an operation hangs on who is at the other end of @stream, rather than that
 * this one waits for others, too: it has not called it, or, of one on another machine, is not
 * known to have. Who has to send comes before who has to take.
 */
enum npulink_guilt {
	NPULINK_GUILT_NONE,
	NPULINK_GUILT_TAKES,
	NPULINK_GUILT_SENDS,
	NPULINK_GUILT_FAR_TAKES,
	NPULINK_GUILT_FAR_SENDS,
	NPULINK_GUILT_ABSENT,
};

static enum npulink_guilt npulink_op_guilt(const struct npulink_op *op, u32 stream, bool sends)
{
	const struct npulink_plan *plan = op->plan;
	const struct npulink_conn *conn = plan->peers[plan->streams[stream].peer].conn;

	if (conn->far && !npulink_remote_ops->has_called(op, conn))
		return sends ? NPULINK_GUILT_FAR_SENDS : NPULINK_GUILT_FAR_TAKES;
	if (!conn->far && !op->streams[stream].peer)
		return NPULINK_GUILT_ABSENT;
	return sends ? NPULINK_GUILT_SENDS : NPULINK_GUILT_TAKES;
}

/* The first step of @op with @peer, one that receives if there is one; or else its first. */
u32 npulink_op_first_with(const struct npulink_op *op, u32 peer)
{
	const struct npulink_plan *plan = op->plan;
	u32 i, k = npulink_find_peer(plan, peer);
	const struct npulink_plan_peer *p;

	if (k == NONE)
		return 0;
	p = &plan->peers[k];
	for (i = p->stream; i + 1 < p->stream + p->nstreams && plan->streams[i].send; i++)
		;
	return plan->stream_steps[plan->streams[i].start];
}

/* One that is gathered waits for whoever has not posted it. */
static bool npulink_op_misses(const struct npulink_op *op, u32 *peer, u32 *step)
{
	u32 missing = npulink_round_missing(op, 0);

	if (missing == op->rank->comm->nranks)
		return false;
	*peer = missing;
	*step = npulink_op_first_with(op, missing);
	return true;
}

/*
 * Which peer and step an operation waits for, of several the one that it is most likely to hang
 * on; false if for none (it computes), or only after many units that do not wait.
 */
bool npulink_op_waits_for(struct npulink_op *op, u32 *peer, u32 *step)
{
	enum npulink_guilt worst = NPULINK_GUILT_NONE, guilt;
	const struct npulink_plan *plan = op->plan;
	s32 left = NPULINK_BLAME_UNITS;
	u32 i, k;

	lockdep_assert_held(&op->rank->lock);
	if (op->state == NPULINK_OP_GATHERED)
		return npulink_op_misses(op, peer, step);
	if (op->state < NPULINK_OP_RUNNING)
		return false;
	for (i = 0; i < plan->nunits && left > 0 && worst < NPULINK_GUILT_ABSENT; i++) {
		const struct npulink_unit *un = &plan->units[i];
		u8 phase = op->units[i].phase;

		left -= un->nsteps;
		if (phase == NPULINK_UNIT_SENT) {
			k = un->first + un->nsteps - 1;
			guilt = npulink_op_guilt(op, plan->pos[k].send_stream, false);
			if (guilt > worst) {
				worst = guilt;
				*step = k;
				*peer = plan->steps[k].send_peer;
			}
			continue;
		}
		if (phase != NPULINK_UNIT_ACTIVE)
			continue;
		for (k = un->first; k < un->first + un->nsteps; k++) {
			const struct npulink_op_stream *os;
			u64 avail = 0;
			u32 ps;

			if (!(plan->steps[k].op & NPULINK_STEP_RECV))
				continue;
			os = &op->streams[plan->pos[k].recv_stream];
			if (os->peer) {
				ps = npulink_peer_step(op, plan->pos[k].recv_stream,
						       plan->pos[k].recv_pos);
				avail = READ_ONCE(os->peer->cells[ps].avail);
			}
			if (avail > op->units[i].done + 1)
				continue;
			guilt = npulink_op_guilt(op, plan->pos[k].recv_stream, true);
			if (guilt > worst) {
				worst = guilt;
				*step = k;
				*peer = plan->steps[k].recv_peer;
			}
		}
	}
	return worst != NPULINK_GUILT_NONE;
}

/* A step of @op that is not done, and meets @peer; see npulink_blame_step(). */
static bool npulink_op_step_with(const struct npulink_op *op, u32 peer, u32 *step, s32 *left)
{
	const struct npulink_plan *plan = op->plan;
	bool found = false;
	u32 i, k;

	for (i = 0; i < plan->nunits && *left > 0; i++) {
		const struct npulink_unit *un = &plan->units[i];
		u8 phase = op->state < NPULINK_OP_RUNNING ? NPULINK_UNIT_BLOCKED :
							    op->units[i].phase;

		*left -= un->nsteps;
		if (phase == NPULINK_UNIT_DONE || (found && phase == NPULINK_UNIT_BLOCKED))
			continue;
		for (k = un->first; k < un->first + un->nsteps; k++) {
			const struct npulink_step *st = &plan->steps[k];

			if (peer != NPULINK_NO_PEER &&
			    !(st->op & NPULINK_STEP_RECV && st->recv_peer == peer) &&
			    !(st->op & NPULINK_STEP_SEND && st->send_peer == peer))
				continue;
			*step = k;
			if (phase != NPULINK_UNIT_BLOCKED)
				return true;
			found = true;
			break;
		}
	}
	return found;
}

/*
 * Name in @cause the oldest operation of @rank that still has steps with @peer, or with
 * NPULINK_NO_PEER any, and of these steps the first that has begun, or else the first
 * that is to come. The cause stays as it is if there is none, or only after many others.
 */
void npulink_blame_step_locked(struct npulink_rank *rank, u32 peer, struct npulink_cause *cause)
{
	s32 left = NPULINK_BLAME_UNITS;
	struct npulink_op *op;

	lockdep_assert_held(&rank->lock);
	list_for_each_entry(op, &rank->ops, node) {
		if (op->state <= NPULINK_OP_RUNNING &&
		    npulink_op_step_with(op, peer, &cause->step, &left)) {
			cause->number = npulink_told(op->number);
			break;
		}
	}
}

void npulink_blame_step(struct npulink_rank *rank, u32 peer, struct npulink_cause *cause)
{
	spin_lock_irq(&rank->lock);
	npulink_blame_step_locked(rank, peer, cause);
	spin_unlock_irq(&rank->lock);
}
