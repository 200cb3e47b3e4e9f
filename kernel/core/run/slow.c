// SPDX-License-Identifier: GPL-2.0
/*
 * slow.c - operations that take longer than their poster expected are told to the
 * netlink group "events", once each: when they end, or, if they do not end, by a look
 * around that is taken every second; then, if they end well, that is told, too. POST pays
 * nothing for it.
 */
#include <linux/npulink_genl.h>
#include "base/clock.h"
#include "base/notify.h"
#include "base/number.h"
#include "comm/comm.h"
#include "file/file.h"
#include "run/event.h"
#include "run/op.h"
#include "run/slow.h"

static void npulink_slow_look(struct work_struct *work);
static DECLARE_DELAYED_WORK(npulink_slow_work, npulink_slow_look);

static void npulink_slow_notify(const struct npulink_op *op, u32 type, u64 ns,
				const struct npulink_cause *blame)
{
	struct npulink_notice notice = NPULINK_NOTICE(type);

	if (type == NPULINK_EVENT_SLOW)
		atomic64_inc(&npulink_totals.slow);
	notice.comm = op->rank->comm->serial;
	notice.rank = op->rank->rank;
	notice.number = npulink_told(op->number);
	notice.age_ns = ns;
	notice.limit_ns = op->slow_ns;
	if (blame) {
		notice.peer = blame->peer;
		notice.step = blame->step;
	}
	npulink_comm_notify(op->rank->comm, &notice);
}

/* @op has ended, late. Under rank->lock. */
void npulink_slow_told(struct npulink_op *op, u64 ns)
{
	lockdep_assert_held(&op->rank->lock);
	if (!op->slow)
		npulink_slow_notify(op, NPULINK_EVENT_SLOW, ns, NULL);
	else if (!op->result.status)
		npulink_slow_notify(op, NPULINK_EVENT_SLOW_END, ns, NULL);
	op->slow = true;
}

/* An operation of @file that is late and has not been told, referenced. */
static struct npulink_op *npulink_slow_find(struct npulink_file *file, u64 now, u32 *slot)
{
	struct npulink_op *op = NULL;

	spin_lock_irq(&file->lock);
	for (; file->slots && file->inflight && *slot < NPULINK_MAX_INFLIGHT; ++*slot) {
		op = file->slots[*slot];
		if (op && !op->done && op->slow_ns && !op->slow && now > op->start_ns &&
		    now - op->start_ns > op->slow_ns) {
			refcount_inc(&op->refs);
			break;
		}
		op = NULL;
	}
	spin_unlock_irq(&file->lock);
	return op;
}

static void npulink_slow_look(struct work_struct *work)
{
	struct npulink_file *file;
	unsigned long id;

	for (id = 0; (file = npulink_file_next(&id)); id++) {
		u64 now = npulink_clock();
		struct npulink_op *op;
		u32 slot = 0;

		while ((op = npulink_slow_find(file, now, &slot))) {
			struct npulink_cause blame = {
				.peer = NPULINK_NO_PEER, .step = ~0U,
			};
			bool mine;

			spin_lock_irq(&op->rank->lock);
			mine = op->state <= NPULINK_OP_RUNNING && !op->slow;
			op->slow = true;
			spin_unlock_irq(&op->rank->lock);
			if (mine) {
				npulink_blame(op, &blame);
				npulink_slow_notify(op, NPULINK_EVENT_SLOW, now - op->start_ns,
						    &blame);
			}
			npulink_op_put(op);
			slot++;
		}
		npulink_file_put(file);
		cond_resched();
	}
	queue_delayed_work(system_unbound_wq, &npulink_slow_work, HZ);
}

void npulink_slow_init(void)
{
	queue_delayed_work(system_unbound_wq, &npulink_slow_work, HZ);
}

void npulink_slow_exit(void)
{
	cancel_delayed_work_sync(&npulink_slow_work);
}
