// SPDX-License-Identifier: GPL-2.0
/*
 * deadlock_stuck.c - which steps are stuck if certain processes never post again, and so, who
 * of these processes waits for what is stuck; see deadlock.c.
 */
#include <linux/slab.h>
#include "comm/comm.h"
#include "file/file.h"
#include "observe/deadlock.h"
#include "plan/plan.h"
#include "run/op.h"

/* Of one part: give up rather than search for long, and keep others' circles from being found. */
#define DL_MAX_MARKS	BIT(20)
#define DL_MAX_LOOKS	BIT(22)		/* streams, units, operations, processes */

#define DL_LOCKED	1024		/* streams looked at with interrupts off */

/* So many have been looked at. */
static int dl_looked(struct dl *dl, u32 n)
{
	dl->looks += n;
	return dl->looks > DL_MAX_LOOKS ? -E2BIG : 0;
}

static struct dl_op *dl_find(struct dl *dl, struct npulink_op *op)
{
	return xa_load(&dl->ops, (unsigned long)op / sizeof(void *));
}

static struct dl_op *dl_op(struct dl *dl, struct npulink_op *op)
{
	struct dl_op *o = dl_find(dl, op);

	if (o)
		return o;
	o = kvzalloc(struct_size(o, stuck, BITS_TO_LONGS(op->plan->nunits)), GFP_KERNEL);
	if (!o)
		return NULL;
	o->op = op;
	if (xa_err(xa_store(&dl->ops, (unsigned long)op / sizeof(void *), o, GFP_KERNEL))) {
		kvfree(o);
		return NULL;
	}
	npulink_op_get(op);
	return o;
}

/* Another part is next. */
void dl_forget(struct dl *dl)
{
	unsigned long i;
	struct dl_op *o;

	xa_for_each(&dl->ops, i, o) {
		npulink_op_put(o->op);
		kvfree(o);
	}
	xa_destroy(&dl->ops);
	dl->nmarks = 0;
	dl->looks = 0;
}

static int dl_room_for_marks(struct dl *dl, u32 more)
{
	if (dl->nmarks + more > DL_MAX_MARKS)
		return -E2BIG;
	return dl_room((void **)&dl->marks, dl->nmarks, &dl->max_marks, more,
		       sizeof(*dl->marks)) ? 0 : -ENOMEM;
}

/* The rank at the end of stream @i of @op, referenced, if its process is supposed not to post. */
static struct npulink_rank *dl_stream_rank(const struct dl *dl, const struct npulink_op *op, u32 i)
{
	const struct npulink_stream *s = &op->plan->streams[i];
	const struct dl_proc *proc = NULL;
	struct npulink_rank *peer;

	lockdep_assert_held(&op->rank->lock);
	/* One that is raw was posted a moment ago. */
	if (op->state != NPULINK_OP_RUNNING || op->raw || op->streams[i].peer)
		return NULL;
	rcu_read_lock();
	peer = rcu_dereference(op->rank->comm->ranks[op->plan->peers[s->peer].conn->rank]);
	if (peer)
		proc = dl_proc(dl, READ_ONCE(peer->file)->mm);
	if (!proc || !proc->in || !kref_get_unless_zero(&peer->obj.kref))
		peer = NULL;
	rcu_read_unlock();
	return peer;
}

/*
 * From stream @i of @op on, the first that waits for what such a rank has not posted;
 * plan->nstreams: none, or a negative number.
 */
static int dl_starving(struct dl *dl, struct npulink_op *op, u32 i)
{
	const u32 n = op->plan->nstreams;

	while (i < n) {
		u32 first = i, end = min(n, i + DL_LOCKED);
		struct npulink_rank *peer = NULL;
		bool starves;
		int rc;

		spin_lock_irq(&op->rank->lock);
		for (; !peer && i < end; i++)
			peer = dl_stream_rank(dl, op, i);
		spin_unlock_irq(&op->rank->lock);
		starves = peer && !npulink_peer_has_called(peer, op);
		if (peer)
			npulink_rank_put(peer);
		rc = dl_looked(dl, i - first);
		if (rc)
			return rc;
		if (starves)
			return i - 1;
		cond_resched();
	}
	return n;
}

/* The units of @op that wait for what they have not posted. */
static int dl_seed(struct dl *dl, struct npulink_op *op)
{
	const struct npulink_plan *plan = op->plan;
	struct dl_op *o = NULL;
	int i, rc;
	u32 k;

	for (i = 0; (i = dl_starving(dl, op, i)) >= 0 && i < plan->nstreams; i++) {
		const struct npulink_stream *s = &plan->streams[i];

		o = o ?: dl_op(dl, op);
		if (!o)
			return -ENOMEM;
		rc = dl_room_for_marks(dl, s->count) ?: dl_looked(dl, s->count + 1);
		if (rc)
			return rc;
		for (k = s->start; k < s->start + s->count; k++)
			dl->marks[dl->nmarks++] = (struct dl_mark) {
				o, plan->pos[plan->stream_steps[k]].unit,
			};
	}
	return min(i, 0);
}

/* All of it that concerns operations of one rank; there are no more than slots in a file. */
static int dl_seed_rank(struct dl *dl, struct npulink_rank *rank)
{
	struct npulink_op *op;
	u32 n = 0, i;
	int rc;

	spin_lock_irq(&rank->lock);
	list_for_each_entry(op, &rank->ops, node) {
		if (n == ARRAY_SIZE(dl->rank_ops))
			break;
		npulink_op_get(op);
		dl->rank_ops[n++] = op;
	}
	spin_unlock_irq(&rank->lock);
	rc = dl_looked(dl, n + 1);
	for (i = 0; i < n; i++) {
		rc = rc ?: dl_seed(dl, dl->rank_ops[i]);
		npulink_op_put(dl->rank_ops[i]);
	}
	return rc;
}

static int dl_seed_all(struct dl *dl)
{
	struct npulink_rank *rank;
	u32 i, k;
	int rc = 0;

	/* What an operation hangs on is in its own communicator. */
	for (i = dl->procs[dl->now].comms; i != DL_NONE; i = dl->comms[i].next) {
		for (k = 0; !rc && (rank = npulink_comm_get_next_rank(dl->comms[i].comm, &k));) {
			rc = dl_seed_rank(dl, rank);
			npulink_rank_put(rank);
			cond_resched();
		}
	}
	return rc;
}

/* A mirror is no operation: what ranks on other machines wait for is not known here. */
static bool dl_has_peer(const struct npulink_op *op, u32 stream)
{
	const struct npulink_op *peer = op->streams[stream].peer;

	return peer && !peer->is_mirror;
}

/* Call a unit stuck; what hangs on it goes onto the stack. */
static int dl_mark(struct dl *dl, struct dl_op *o, u32 unit)
{
	struct npulink_op *op = o->op, *peers[NPULINK_CHAIN_MAX + 1];
	const struct npulink_plan *plan = op->plan;
	const struct npulink_unit *un = &plan->units[unit];
	u32 steps[NPULINK_CHAIN_MAX + 1], n = 0, more, i;
	u8 phase;
	int rc;

	if (test_bit(unit, o->stuck))
		return 0;
	if (WARN_ON_ONCE(un->nsteps > NPULINK_CHAIN_MAX))
		return -EINVAL;
	spin_lock_irq(&op->rank->lock);
	phase = op->units[unit].phase;
	if (op->state != NPULINK_OP_RUNNING || phase == NPULINK_UNIT_DONE) {
		spin_unlock_irq(&op->rank->lock);
		return 0;
	}
	for (i = 0; i < un->nsteps; i++) {
		const struct npulink_step_pos *pos = &plan->pos[un->first + i];
		const struct npulink_step *st = &plan->steps[un->first + i];

		/* A sender waits until all of it has been taken ... */
		if (st->op & NPULINK_STEP_RECV && dl_has_peer(op, pos->recv_stream)) {
			steps[n] = npulink_peer_step(op, pos->recv_stream, pos->recv_pos);
			peers[n++] = op->streams[pos->recv_stream].peer;
		}
		/* ... and a receiver until all of it has been offered. */
		if (i == un->nsteps - 1U && un->send && phase != NPULINK_UNIT_SENT &&
		    dl_has_peer(op, pos->send_stream)) {
			steps[n] = npulink_peer_step(op, pos->send_stream, pos->send_pos);
			peers[n++] = op->streams[pos->send_stream].peer;
		}
	}
	for (i = 0; i < n; i++)
		npulink_op_get(peers[i]);
	spin_unlock_irq(&op->rank->lock);

	__set_bit(unit, o->stuck);
	o->nstuck++;
	more = n + plan->units[unit + 1].out - un->out + 1;
	rc = dl_room_for_marks(dl, more) ?: dl_looked(dl, more);
	for (i = 0; i < n; i++) {
		struct dl_op *po = rc ? NULL : dl_op(dl, peers[i]);

		if (po)
			dl->marks[dl->nmarks++] = (struct dl_mark) {
				po, peers[i]->plan->pos[steps[i]].unit,
			};
		else
			rc = rc ?: -ENOMEM;
		npulink_op_put(peers[i]);
	}
	if (rc)
		return rc;
	for (i = un->out; i < plan->units[unit + 1].out; i++)
		dl->marks[dl->nmarks++] = (struct dl_mark) { o, plan->out[i] };
	if (un->drain < plan->ndrains)
		dl->marks[dl->nmarks++] = (struct dl_mark) { o, plan->drains[un->drain] };
	return 0;
}

static void dl_forget_marks(struct dl *dl)
{
	unsigned long i;
	struct dl_op *o;

	dl->nmarks = 0;
	xa_for_each(&dl->ops, i, o) {
		bitmap_zero(o->stuck, o->op->plan->nunits);
		o->nstuck = 0;
		dl->looks += 1 + o->op->plan->nunits / DL_LOCKED;
		cond_resched();
	}
}

/*
 * Take processes that wait for something else out of the supposition. Returns how many are left, or
 * a negative number. It begins anew until nothing changes, and each time looks at those at least
 * that are left: so DL_MAX_LOOKS ends that, too.
 */
int dl_solve(struct dl *dl)
{
	u32 i, k, left;
	bool changed;
	int rc;

	do {
		dl_forget_marks(dl);
		rc = dl_seed_all(dl);
		while (!rc && dl->nmarks) {
			struct dl_mark mark = dl->marks[--dl->nmarks];

			rc = dl_mark(dl, mark.o, mark.unit);
			cond_resched();
		}
		if (rc)
			return rc;
		changed = false;
		left = 0;
		for (i = dl->now; i != DL_NONE; i = dl->procs[i].next) {
			struct dl_proc *proc = &dl->procs[i];

			if (!proc->in)
				continue;
			for (k = proc->first; proc->in && k < proc->first + proc->nwaits; k++) {
				const struct dl_op *o = dl_find(dl, dl->waits[k].op);

				proc->in = o && o->nstuck;
				dl->looks++;
			}
			changed |= !proc->in;
			left += proc->in;
		}
	} while (changed && left);
	return left;
}

/*
 * The rank that an operation waits for, directly or not, and whose process is in the circle; false
 * also if too much has been looked at.
 */
bool dl_missing_rank(struct dl *dl, struct npulink_op *op, u32 *peer)
{
	struct npulink_comm *comm = op->rank->comm;
	struct dl_op *o;
	unsigned long i;
	int k;

	xa_for_each(&dl->ops, i, o) {
		struct npulink_op *it = o->op;

		cond_resched();
		if (dl_looked(dl, 1))
			return false;
		/* Of the same call: its own operation, or another rank's. */
		if (!o->nstuck || it->rank->comm != comm ||
		    (it != op && (it->plan->p2p || op->plan->p2p || it->number != op->number)))
			continue;
		k = dl_starving(dl, it, 0);
		if (k < 0)
			return false;
		if (k == it->plan->nstreams)
			continue;
		*peer = it->plan->peers[it->plan->streams[k].peer].conn->rank;
		return true;
	}
	return false;
}
