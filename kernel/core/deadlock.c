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
 * read first, then threads, then steps, then the waits once more. Those that are there
 * at both ends were there all the time between, so when the threads were counted,
 * everything that was found was true at once.
 *
 * If some of the processes have threads that are at something else, nobody is accused:
 * those may be about to post. An event says what it looks like.
 */
#include <linux/bsearch.h>
#include <linux/hash.h>
#include <linux/moduleparam.h>
#include <linux/npulink_genl.h>
#include <linux/sched/signal.h>
#include <linux/sort.h>
#include "core.h"

static unsigned int npulink_deadlock_ms = 500;
module_param_named(deadlock_ms, npulink_deadlock_ms, uint, 0644);
MODULE_PARM_DESC(deadlock_ms, "search for processes that wait for each other every so many milliseconds, among those that wait twice as long (0: never)");

#define DL_MAX_MARKS	BIT(20)		/* give up rather than search for long */

/* A thread that waits without limit. */
struct dl_wait {
	struct mm_struct *mm;		/* only compared */
	struct npulink_file *file;	/* referenced */
	struct npulink_op *op;		/* referenced */
	u64 id;
};

/* A process that has such threads: waits[first .. first + nwaits). */
struct dl_proc {
	struct mm_struct *mm;
	u32 first;
	u32 nwaits;
	u32 threads;
	bool in;		/* supposed never to post again */
	bool suspect;		/* would be in a circle if all its threads waited */
};

struct dl_op {
	struct npulink_op *op;	/* referenced */
	u32 nstuck;
	unsigned long stuck[];	/* units */
};

struct dl_mark {
	struct dl_op *o;
	u32 unit;
};

struct dl {
	struct dl_wait *waits;
	u32 nwaits;
	u32 max_waits;
	bool young;			/* others began to wait too lately to be looked at */
	struct dl_proc *procs;
	u32 nprocs;
	struct npulink_file **files;	/* all, referenced */
	u32 nfiles;
	u32 max_files;
	struct xarray ops;
	struct dl_mark *marks;		/* a stack: units to be called stuck */
	u32 nmarks;
	u32 max_marks;
	struct npulink_op *rank_ops[NPULINK_MAX_INFLIGHT];
};

/* Make room for @more elements of a growing array. */
static bool dl_room(void **array, u32 n, u32 *max, u32 more, size_t size)
{
	void *bigger;
	u32 want;

	if (n + more <= *max)
		return true;
	want = max(n + more, *max * 2);
	bigger = kvcalloc(want, size, GFP_KERNEL);
	if (!bigger)
		return false;
	if (n)
		memcpy(bigger, *array, n * size);
	kvfree(*array);
	*array = bigger;
	*max = want;
	return true;
}

/* ---- who waits ----------------------------------------------------------------------- */

static int dl_add_waits(struct dl *dl, struct npulink_file *file, unsigned long before)
{
	struct npulink_waiter *w;
	u32 n;

	for (;;) {
		n = 0;
		spin_lock_irq(&file->lock);
		list_for_each_entry(w, &file->waiters, node)
			n += w->forever;
		if (n <= dl->max_waits - dl->nwaits)
			break;
		spin_unlock_irq(&file->lock);
		if (!dl_room((void **)&dl->waits, dl->nwaits, &dl->max_waits, n,
			     sizeof(*dl->waits)))
			return -ENOMEM;
	}
	list_for_each_entry(w, &file->waiters, node) {
		if (!w->forever)
			continue;
		if (time_after(w->since, before)) {
			dl->young = true;
			continue;
		}
		npulink_op_get(w->op);
		dl->waits[dl->nwaits++] = (struct dl_wait) {
			.mm = w->mm, .file = npulink_file_get(file), .op = w->op, .id = w->id,
		};
	}
	spin_unlock_irq(&file->lock);
	return 0;
}

static int dl_read_device(struct dl *dl, struct npulink_device *dev, unsigned long before)
{
	struct npulink_file *file;
	int rc = 0;

	mutex_lock(&dev->lock);
	list_for_each_entry(file, &dev->files, dev_node) {
		if (!kref_get_unless_zero(&file->kref))
			continue;
		if (!dl_room((void **)&dl->files, dl->nfiles, &dl->max_files, 1,
			     sizeof(*dl->files))) {
			npulink_file_put(file);
			rc = -ENOMEM;
			break;
		}
		dl->files[dl->nfiles++] = file;
		rc = dl_add_waits(dl, file, before);
		if (rc)
			break;
	}
	mutex_unlock(&dev->lock);
	return rc;
}

static int dl_cmp_waits(const void *a, const void *b)
{
	const struct dl_wait *x = a, *y = b;

	return x->mm < y->mm ? -1 : x->mm > y->mm;
}

static int dl_cmp_procs(const void *key, const void *elem)
{
	const struct mm_struct *mm = key;
	const struct dl_proc *proc = elem;

	return mm < proc->mm ? -1 : mm > proc->mm;
}

static struct dl_proc *dl_proc(const struct dl *dl, const struct mm_struct *mm)
{
	return bsearch(mm, dl->procs, dl->nprocs, sizeof(*dl->procs), dl_cmp_procs);
}

static int dl_read_procs(struct dl *dl)
{
	u32 i;

	sort(dl->waits, dl->nwaits, sizeof(*dl->waits), dl_cmp_waits, NULL);
	dl->procs = kvcalloc(dl->nwaits, sizeof(*dl->procs), GFP_KERNEL);
	if (!dl->procs)
		return -ENOMEM;
	for (i = 0; i < dl->nwaits; i++) {
		struct dl_proc *proc = &dl->procs[dl->nprocs];

		if (i && dl->waits[i].mm == proc[-1].mm) {
			proc[-1].nwaits++;
			continue;
		}
		*proc = (struct dl_proc) { .mm = dl->waits[i].mm, .first = i, .nwaits = 1 };
		dl->nprocs++;
	}
	return 0;
}

/* How many threads there are that could post, in whatever process has the memory. */
static void dl_count_threads(struct dl *dl)
{
	struct task_struct *p, *t;

	rcu_read_lock();
	for_each_process_thread(p, t) {
		const struct mm_struct *mm = READ_ONCE(t->mm);
		struct dl_proc *proc = mm ? dl_proc(dl, mm) : NULL;

		if (proc)
			proc->threads++;
	}
	rcu_read_unlock();
}

/* Does everybody who is left still wait, undisturbed? */
static bool dl_still_wait(struct dl *dl)
{
	bool all = true;
	u32 i;

	for (i = 0; all && i < dl->nwaits; i++) {
		const struct dl_wait *wait = &dl->waits[i];
		struct npulink_waiter *w;

		if (!dl_proc(dl, wait->mm)->in)
			continue;
		all = false;
		spin_lock_irq(&wait->file->lock);
		list_for_each_entry(w, &wait->file->waiters, node)
			if (w->id == wait->id && !signal_pending(w->task))
				all = true;
		spin_unlock_irq(&wait->file->lock);
	}
	return all;
}

/* ---- what is stuck ---------------------------------------------------------------------- */

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

static bool dl_room_for_marks(struct dl *dl, u32 more)
{
	return dl->nmarks + more <= DL_MAX_MARKS &&
	       dl_room((void **)&dl->marks, dl->nmarks, &dl->max_marks, more, sizeof(*dl->marks));
}

/* Is stream @i of @op one to a rank whose process is supposed not to post? */
static bool dl_stream_starves(const struct dl *dl, const struct npulink_op *op, u32 i)
{
	const struct npulink_stream *s = &op->plan->streams[i];
	const struct dl_proc *proc = NULL;
	struct npulink_rank *peer;

	lockdep_assert_held(&op->rank->lock);
	/* One that is raw was posted a moment ago. */
	if (op->raw || op->streams[i].peer)
		return false;
	rcu_read_lock();
	peer = rcu_dereference(op->rank->comm->ranks[op->plan->peers[s->peer].conn->rank]);
	if (peer)
		proc = dl_proc(dl, READ_ONCE(peer->file)->mm);
	rcu_read_unlock();
	return proc && proc->in;
}

/* The units of @op that wait for what they have not posted. */
static int dl_seed(struct dl *dl, struct npulink_op *op)
{
	const struct npulink_plan *plan = op->plan;
	struct dl_op *o = NULL;
	u32 i, k;

	for (i = 0; i < plan->nstreams; i++) {
		const struct npulink_stream *s = &plan->streams[i];
		bool starves;

		spin_lock_irq(&op->rank->lock);
		starves = op->state == NPULINK_OP_RUNNING && dl_stream_starves(dl, op, i);
		spin_unlock_irq(&op->rank->lock);
		if (!starves)
			continue;
		o = o ?: dl_op(dl, op);
		if (!o || !dl_room_for_marks(dl, s->count))
			return -ENOMEM;
		for (k = s->start; k < s->start + s->count; k++)
			dl->marks[dl->nmarks++] = (struct dl_mark) {
				o, plan->pos[plan->stream_steps[k]].unit,
			};
	}
	return 0;
}

/* All of it that concerns operations of one rank; there are no more than slots in a file. */
static int dl_seed_rank(struct dl *dl, struct npulink_rank *rank)
{
	struct npulink_op *op;
	u32 n = 0, i;
	int rc = 0;

	spin_lock_irq(&rank->lock);
	list_for_each_entry(op, &rank->ops, node) {
		bool starves = false;

		for (i = 0; !starves && i < op->plan->nstreams; i++)
			starves = dl_stream_starves(dl, op, i);
		if (!starves || n == ARRAY_SIZE(dl->rank_ops))
			continue;
		npulink_op_get(op);
		dl->rank_ops[n++] = op;
	}
	spin_unlock_irq(&rank->lock);
	for (i = 0; i < n; i++) {
		rc = rc ?: dl_seed(dl, dl->rank_ops[i]);
		npulink_op_put(dl->rank_ops[i]);
	}
	return rc;
}

static int dl_seed_all(struct dl *dl)
{
	u32 i;
	int rc = 0;

	for (i = 0; !rc && i < dl->nfiles; i++) {
		struct npulink_object *obj;
		unsigned long id = 0;

		for (; !rc && (obj = npulink_object_next(dl->files[i], &id, NPULINK_OBJ_RANK));
		     id++) {
			rc = dl_seed_rank(dl, container_of(obj, struct npulink_rank, obj));
			npulink_object_put(obj);
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
	u32 steps[NPULINK_CHAIN_MAX + 1], n = 0, i, d;
	u8 phase;
	int rc = 0;

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
	if (!dl_room_for_marks(dl, n + plan->units[unit + 1].out - un->out + 1))
		rc = -ENOMEM;
	for (i = 0; i < n; i++) {
		struct dl_op *po = rc ? NULL : dl_op(dl, peers[i]);

		if (po)
			dl->marks[dl->nmarks++] = (struct dl_mark) {
				po, peers[i]->plan->pos[steps[i]].unit,
			};
		else
			rc = -ENOMEM;
		npulink_op_put(peers[i]);
	}
	if (rc)
		return rc;
	for (i = un->out; i < plan->units[unit + 1].out; i++)
		dl->marks[dl->nmarks++] = (struct dl_mark) { o, plan->out[i] };
	for (d = 0; d < plan->ndrains && plan->drains[d] <= unit; d++)
		;
	if (d < plan->ndrains)
		dl->marks[dl->nmarks++] = (struct dl_mark) { o, plan->drains[d] };
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
	}
}

/* Take processes that wait for something else out of the supposition. Returns how many are left. */
static int dl_solve(struct dl *dl)
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
		for (i = 0; i < dl->nprocs; i++) {
			struct dl_proc *proc = &dl->procs[i];

			if (!proc->in)
				continue;
			for (k = proc->first; proc->in && k < proc->first + proc->nwaits; k++) {
				const struct dl_op *o = dl_find(dl, dl->waits[k].op);

				proc->in = o && o->nstuck;
			}
			changed |= !proc->in;
			left += proc->in;
		}
	} while (changed && left);
	return left;
}

/* ---- the verdict --------------------------------------------------------------------------- */

/* The rank that an operation waits for, directly or not, and whose process is in the circle. */
static bool dl_missing_rank(struct dl *dl, struct npulink_op *op, u32 *peer)
{
	struct npulink_comm *comm = op->rank->comm;
	struct dl_op *o;
	unsigned long i;
	bool found = false;
	u32 k;

	xa_for_each(&dl->ops, i, o) {
		struct npulink_op *it = o->op;

		/* Of the same call: its own operation, or another rank's. */
		if (!o->nstuck || it->rank->comm != comm ||
		    (it != op && (it->plan->p2p || op->plan->p2p || it->number != op->number)))
			continue;
		spin_lock_irq(&it->rank->lock);
		for (k = 0; it->state == NPULINK_OP_RUNNING && k < it->plan->nstreams; k++) {
			if (dl_stream_starves(dl, it, k)) {
				*peer = it->plan->peers[it->plan->streams[k].peer].conn->rank;
				found = true;
				break;
			}
		}
		spin_unlock_irq(&it->rank->lock);
		if (found)
			break;
	}
	return found;
}

/* What the process of rank @peer waits for, instead of posting. */
static struct npulink_op *dl_wait_of(struct dl *dl, struct npulink_comm *comm, u32 peer)
{
	const struct dl_proc *proc = NULL;
	struct npulink_rank *rank;

	rcu_read_lock();
	rank = rcu_dereference(comm->ranks[peer]);
	if (rank)
		proc = dl_proc(dl, READ_ONCE(rank->file)->mm);
	rcu_read_unlock();
	return proc && proc->in ? dl->waits[proc->first].op : NULL;
}

/*
 * Describe the circle by its youngest communicator, which fewer can be used to than
 * to an older one. Returns the wait in it, or NULL.
 */
static struct npulink_op *dl_describe(struct dl *dl, struct npulink_cause *cause)
{
	struct npulink_op *op = NULL, *other;
	u32 i, peer;

	*cause = (struct npulink_cause) {
		.cause = NPULINK_CAUSE_DEADLOCK, .peer = NPULINK_NO_PEER, .step = ~0U,
	};

	for (i = 0; i < dl->nwaits; i++) {
		struct npulink_op *it = dl->waits[i].op;

		if (!dl_proc(dl, dl->waits[i].mm)->in || !dl_missing_rank(dl, it, &peer))
			continue;
		if (op && (op->rank->comm->serial > it->rank->comm->serial ||
			   (op->rank->comm == it->rank->comm && op->rank->rank <= it->rank->rank)))
			continue;
		op = it;
		cause->peer = peer;
	}
	if (!op)
		return NULL;
	cause->rank = op->rank->rank;
	cause->number = op->number;
	cause->calls[0] = op->plan->call;
	other = dl_wait_of(dl, op->rank->comm, cause->peer);
	if (other) {
		cause->calls[1] = other->plan->call;
		cause->code = other->rank->comm != op->rank->comm;
	}
	return op;
}

/* There is no doubt: end the communicator. */
static void dl_break(struct dl *dl)
{
	struct npulink_cause cause;
	struct npulink_op *op = dl_describe(dl, &cause);

	if (op)
		npulink_comm_fail_now(op->rank->comm, &cause);
}

/* Some have threads that may post yet: tell who listens, once for the same waits. */
static void dl_suspect(struct dl *dl)
{
	struct npulink_notice notice = NPULINK_NOTICE(NPULINK_EVENT_SUSPECT);
	static u64 last;		/* only one search runs at a time */
	struct npulink_cause cause;
	struct npulink_op *op;
	u64 waits = 0;
	u32 i;

	for (i = 0; i < dl->nprocs; i++)
		dl->procs[i].in = dl->procs[i].suspect;
	if (dl_solve(dl) <= 0)
		return;
	for (i = 0; i < dl->nwaits; i++) {
		if (dl_proc(dl, dl->waits[i].mm)->in)
			waits += hash_ptr(dl->waits[i].file, 64) * dl->waits[i].id;
	}
	op = dl_describe(dl, &cause);
	if (!op || waits == last)
		return;
	last = waits;
	notice.comm = op->rank->comm->serial;
	notice.rank = cause.rank;
	notice.peer = cause.peer;
	notice.number = cause.number;
	notice.cause = cause.cause;
	notice.code = cause.code;
	npulink_notify(&notice, op->rank->comm->uid);
}

static void dl_free(struct dl *dl)
{
	unsigned long i;
	struct dl_op *o;
	u32 k;

	xa_for_each(&dl->ops, i, o) {
		npulink_op_put(o->op);
		kvfree(o);
	}
	xa_destroy(&dl->ops);
	for (k = 0; k < dl->nwaits; k++) {
		npulink_op_put(dl->waits[k].op);
		npulink_file_put(dl->waits[k].file);
	}
	for (k = 0; k < dl->nfiles; k++)
		npulink_file_put(dl->files[k]);
	kvfree(dl->waits);
	kvfree(dl->procs);
	kvfree(dl->files);
	kvfree(dl->marks);
	kvfree(dl);
}

/* Returns whether anybody waits at all. */
static bool npulink_deadlock_search(void)
{
	unsigned long before = jiffies - 2 * msecs_to_jiffies(READ_ONCE(npulink_deadlock_ms));
	struct npulink_device *dev;
	struct dl *dl;
	bool any = true;
	u32 id, i;
	int rc = 0;

	dl = kvzalloc(sizeof(*dl), GFP_KERNEL);
	if (!dl)
		return true;
	xa_init(&dl->ops);
	for (id = 0; !rc && (dev = npulink_device_next(&id)); id++) {
		rc = dl_read_device(dl, dev, before);
		put_device(&dev->dev);
	}
	if (rc)
		goto out;
	any = dl->nwaits || dl->young;
	/* Who has waited for so long may as well have steps that say for what. */
	for (i = 0; i < dl->nwaits; i++)
		npulink_meet_dissolve(dl->waits[i].op);
	if (!dl->nwaits || dl_read_procs(dl))
		goto out;
	dl_count_threads(dl);
	/* First as if those that have other threads did not, since mostly there is nothing. */
	for (i = 0; i < dl->nprocs; i++)
		dl->procs[i].in = true;
	if (dl_solve(dl) <= 0)
		goto out;
	for (i = 0; i < dl->nprocs; i++) {
		struct dl_proc *proc = &dl->procs[i];

		proc->suspect = proc->in;
		proc->in &= proc->threads == proc->nwaits;
	}
	rc = dl_solve(dl);
	if (rc > 0 && dl_still_wait(dl))
		dl_break(dl);
	else if (!rc)
		dl_suspect(dl);
out:
	dl_free(dl);
	return any;
}

static void npulink_deadlock_work_fn(struct work_struct *work);
static DECLARE_DELAYED_WORK(npulink_deadlock_work, npulink_deadlock_work_fn);
static bool npulink_deadlock_armed;

static void npulink_deadlock_work_fn(struct work_struct *work)
{
	WRITE_ONCE(npulink_deadlock_armed, false);
	/* Pairs with npulink_deadlock_arm(): who does not see it cleared is seen here. */
	smp_mb();
	if (npulink_deadlock_search())
		npulink_deadlock_arm();
}

/* A waiter without limit is about to sleep. */
void npulink_deadlock_arm(void)
{
	unsigned int ms = READ_ONCE(npulink_deadlock_ms);

	if (READ_ONCE(npulink_deadlock_armed) || !ms)
		return;
	WRITE_ONCE(npulink_deadlock_armed, true);
	queue_delayed_work(system_unbound_wq, &npulink_deadlock_work, msecs_to_jiffies(ms));
}

void npulink_deadlock_exit(void)
{
	cancel_delayed_work_sync(&npulink_deadlock_work);
}
