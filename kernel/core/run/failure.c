// SPDX-License-Identifier: GPL-2.0
/*
 * failure.c - a process dies, a device breaks or goes, a link is lost: which communicators fail
 * by that, and who is named for it.
 */
#include <linux/mutex.h>
#include "base/number.h"
#include "comm/comm.h"
#include "device/device_core.h"
#include "file/file.h"
#include "plan/plan.h"
#include "run/failure.h"
#include "run/op.h"
#include "run/round.h"
#include "run/run.h"

/* ---- a communicator ---------------------------------------------------------------- */

/*
 * @comm has failed: end what is in flight on all ranks. What is posted later sees comm->failed.
 * That may take long, and comm->mutex is wanted by those who hold the lock of all communicators.
 */
void npulink_comm_flood(struct npulink_comm *comm)
{
	NPULINK_DEFINE_RUN_TASK(run);
	struct npulink_rank *rank;
	u32 i = 0;

	/* It ends what others have begun, and carries out none of it. */
	run.anyones = true;
	run.budget = 0;
	mutex_lock(&comm->flood);
	/* Who joins has done so by now, or sees that we have failed. */
	mutex_lock(&comm->mutex);
	/* Nobody joins or posts after a failure, so once is enough. */
	if (comm->flooded)
		i = comm->nranks;
	comm->flooded = true;
	mutex_unlock(&comm->mutex);
	while ((rank = npulink_comm_get_next_rank(comm, &i))) {
		struct npulink_op *op;
		bool more;

		npulink_conn_events->abort(rank);
		/* Interrupts may come in between: a large one takes a while to let go of all. */
		do {
			spin_lock_irq(&rank->lock);
			more = false;
			list_for_each_entry(op, &rank->ops, node) {
				more = npulink_op_fail(op, &run);
				if (more)
					break;
			}
			spin_unlock_irq(&rank->lock);
			cond_resched();
		} while (more);
		npulink_rank_put(rank);
	}
	mutex_unlock(&comm->flood);
	npulink_run(&run);
}

/* Does @op have steps with rank @gone, which has not posted its part? */
static bool npulink_op_lacks(const struct npulink_op *op, u32 gone)
{
	const struct npulink_plan_peer *p;
	u32 i, k = npulink_find_peer(op->plan, gone);

	/* One that is starting finds out by itself. */
	if (k == NPULINK_NO_INDEX || op->state == NPULINK_OP_STARTING)
		return false;
	if (op->state == NPULINK_OP_GATHERED)
		return npulink_round_missing(op, gone) == gone;
	p = &op->plan->peers[k];
	for (i = p->stream; i < p->stream + p->nstreams; i++)
		if (!op->streams[i].peer)
			return true;
	return false;
}

/* Others that wait for an operation that rank @gone never posted, wait in vain. */
bool npulink_rank_is_missed(struct npulink_rank *by, u32 gone, struct npulink_cause *cause)
{
	struct npulink_op *op;
	bool missed = false;

	spin_lock_irq(&by->lock);
	list_for_each_entry(op, &by->ops, node) {
		missed = npulink_op_lacks(op, gone);
		if (missed) {
			*cause = (struct npulink_cause) {
				.cause = NPULINK_CAUSE_LEFT, .rank = by->rank, .peer = gone,
				.step = ~0U, .number = npulink_told(op->number),
			};
			break;
		}
	}
	spin_unlock_irq(&by->lock);
	return missed;
}

/* ---- a process --------------------------------------------------------------------- */

/*
 * The process has died, or the file was closed: what its ranks take part in fails, on
 * all ranks. A second call finds nothing left to fail.
 */
static void npulink_file_fail(struct npulink_file *file, u32 cause,
			      void (*fail)(struct npulink_comm *comm,
					   const struct npulink_cause *cause))
{
	struct npulink_object *obj;
	struct npulink_rank *rank;
	unsigned long id;
	struct npulink_cause c = {
		.cause = cause,
		.code = READ_ONCE(file->death_code),
	};

	smp_mb();	/* after @dead was set; pairs with npulink_comm_make_child() */
	for (id = 0; (obj = npulink_object_next(file, &id, &npulink_rank_type)); id++) {
		rank = container_of(obj, struct npulink_rank, obj);
		c.rank = rank->rank;
		c.peer = rank->rank;
		c.step = ~0U;
		c.number = npulink_rank_next(rank);
		npulink_blame_step(rank, NPULINK_NO_PEER, &c);
		fail(rank->comm, &c);
		npulink_object_put(obj);
		cond_resched();
	}
	/* These want the lock of all communicators: last. */
	c.step = ~0U;
	for (id = 0; (obj = npulink_object_next(file, &id, &npulink_rank_type)); id++) {
		rank = container_of(obj, struct npulink_rank, obj);
		npulink_comm_fail_heirs(rank->comm, rank->rank, &c);
		npulink_object_put(obj);
	}
}

/* When it returns, all ranks have been told. */
void npulink_file_kill(struct npulink_file *file, u32 cause)
{
	npulink_file_note_death(file);
	npulink_file_fail(file, cause, npulink_comm_fail_now);
}

/* The address space of a process has gone, see mm.c. */
void npulink_file_death_work(struct work_struct *work)
{
	struct npulink_file *file = container_of(work, struct npulink_file, death_work);

	npulink_file_fail(file, NPULINK_CAUSE_DEATH, npulink_comm_fail);
	npulink_file_put(file);
}

/* ---- a device, a link ---------------------------------------------------------------- */

/* The ranks of @file that were there @then fail for @why, see npulink_device_fail(). */
static void npulink_device_fail_file(struct npulink_file *file, u64 why, u64 then)
{
	struct npulink_object *obj;
	unsigned long id;

	for (id = 0; (obj = npulink_object_next(file, &id, &npulink_rank_type)); id++) {
		struct npulink_rank *rank = container_of(obj, struct npulink_rank, obj);
		struct npulink_cause cause = {
			.cause = why >> 32, .rank = rank->rank, .peer = NPULINK_NO_PEER,
			.step = ~0U, .number = ~0ULL, .code = (u32)why,
		};

		if (rank->born <= then) {
			npulink_blame_step(rank, NPULINK_NO_PEER, &cause);
			npulink_comm_fail_now(rank->comm, &cause);
		}
		npulink_object_put(obj);
		cond_resched();
	}
}

/*
 * Without the device's lock: that may take long, and whoever opens or closes it wants the lock.
 * Files that are opened meanwhile find it gone, or have ranks that begin after the failure; those
 * that are closed fail by themselves.
 */
void npulink_device_fail_work(struct work_struct *work)
{
	struct npulink_device *dev = container_of(work, struct npulink_device, fail_work);
	u64 why = atomic64_xchg(&dev->failure, 0), then = npulink_clock();
	struct npulink_file *file;
	unsigned long id;

	for (id = 0; (file = npulink_file_next(&id)); id++) {
		if (file->dev == dev) {
			wake_up(&file->poll_wq);
			/* why is 0 if an earlier run has taken two failures at once. */
			if (why)
				npulink_device_fail_file(file, why, then);
		}
		npulink_file_put(file);
	}
	put_device(&dev->dev);
}

/* End what goes over @link: communicators of whose ranks one is at its near end. */
void npulink_link_fail_work(struct work_struct *work)
{
	struct npulink_link *link = container_of(work, struct npulink_link, fail_work);
	struct npulink_object *obj;
	struct npulink_file *file;
	struct npulink_conn *conn;
	unsigned long id, i;

	mutex_lock(&link->dev->lock);
	list_for_each_entry(file, &link->dev->files, dev_node) {
		for (id = 0; (obj = npulink_object_next(file, &id, &npulink_rank_type)); id++) {
			struct npulink_rank *rank = container_of(obj, struct npulink_rank, obj);
			struct npulink_cause cause = {
				.cause = NPULINK_CAUSE_LINK, .rank = rank->rank, .step = ~0U,
				.number = ~0ULL,
			};

			xa_for_each(&rank->conns, i, conn) {
				/* Who has come since then learns it by using the link. */
				if (READ_ONCE(conn->link) != link ||
				    rank->born > READ_ONCE(link->lost_ns))
					continue;
				cause.peer = conn->rank;
				npulink_blame_step(rank, conn->rank, &cause);
				npulink_comm_fail_now(rank->comm, &cause);
				break;
			}
			npulink_object_put(obj);
		}
	}
	mutex_unlock(&link->dev->lock);
	npulink_link_put(link);
}
