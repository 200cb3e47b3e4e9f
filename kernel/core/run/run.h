/* SPDX-License-Identifier: GPL-2.0 */
/*
 * run.h - who runs ranks, and for how long: run.c.
 */
#ifndef NPULINK_RUN_H
#define NPULINK_RUN_H

#include "file/mapping.h"
#include "run/op.h"

/* Ranks that the present context has to run, and what it may do. */
struct npulink_run {
	struct list_head ranks;
	int budget;		/* small requests that it may still run; 0 in interrupts */
	int room;		/* units and events until interrupts are let in */
	bool task;		/* it can let them in, and others run .. */
	bool anyones;		/* a worker's, on whose account is whatever has no other */
	unsigned long until;	/* .. but from then on a worker goes on, jiffies */
	u32 turns;		/* ranks that were run */
	u64 now;		/* what the clock said after the last work was done; 0: look */
	struct npulink_file *waits;	/* its task is about to run what is ready there */
};

#define NPULINK_HOLD_UNITS	4096	/* run.room, each time that they have been let in */
#define NPULINK_HOLD_IRQ	1024	/* the same in an interrupt: others may follow */
#define NPULINK_HOLD_OUT	16	/* units that wait for one count as one */
#define NPULINK_HOLD_OUTS	1024	/* of those are told, then it is others' turn */
#define NPULINK_HOLD_END	32	/* as which the end of an operation counts */
#define NPULINK_HOLD_DIRECT	3	/* and a request that is carried out meanwhile */
#define NPULINK_RUN_JIFFIES	(HZ / 4)	/* that a task runs others for at a time */
#define NPULINK_RUN_TURNS	64	/* after which it looks at the time */
#define NPULINK_WORK_JIFFIES	2	/* that a worker does, before it is others' turn */
#define NPULINK_NO_INDEX	0xffffffffU

#define NPULINK_DEFINE_RUN_TASK(name) \
	struct npulink_run name = { LIST_HEAD_INIT(name.ranks), 8192, NPULINK_HOLD_UNITS, true, \
				    false, jiffies + NPULINK_RUN_JIFFIES }
#define NPULINK_DEFINE_RUN_IRQ(name) \
	struct npulink_run name = { LIST_HEAD_INIT(name.ranks), 0, NPULINK_HOLD_IRQ, false }

/* The time. What a run does between two pieces of work takes none. */
static inline u64 npulink_run_now(struct npulink_run *run)
{
	if (!run->now)
		run->now = npulink_clock();
	return run->now;
}

void npulink_rank_kick(struct npulink_rank *rank, struct npulink_run *run);

/*
 * Put an event, whose @pending is set and holds @op, into its rank's inbox. From then
 * on only RCU, which the caller has to hold, keeps the rank's memory.
 */
static inline void npulink_deliver(struct npulink_event *ev, struct npulink_op *op,
				   struct npulink_run *run)
{
	struct npulink_rank *rank = op->rank;

	llist_add(&ev->node, &rank->inbox);
	npulink_rank_kick(rank, run);
}

static inline struct npulink_op *npulink_event_op(struct npulink_event *ev)
{
	struct npulink_cell *cell;

	if (ev->kind == NPULINK_EV_REQ)
		return container_of(ev, struct npulink_req, ev)->core.op;
	cell = container_of(ev, struct npulink_cell, ev);
	return container_of(cell - ev->kind, struct npulink_op, cells[0]);
}

void npulink_run(struct npulink_run *run);
bool npulink_file_run_handed(struct npulink_file *file, u64 until_ns);
void npulink_run_limit(struct npulink_run *run, u64 until_ns);
bool npulink_run_lasts(const struct npulink_run *run);

/* It has run one more of its small requests. */
static inline void npulink_run_spent(struct npulink_run *run)
{
	if (!(--run->budget % NPULINK_RUN_TURNS) && !npulink_run_lasts(run))
		run->budget = 0;
}

/* For the engine, by a task. */
static inline int npulink_engine_submit(struct npulink_req *req)
{
	const struct npulink_device_ops *ops = req->dev->ops;
	int rc;

	if (likely(ops->submit))
		return ops->submit(req->dev, req);
	rc = npulink_req_map(req);
	if (rc)
		return rc;
	npulink_req_sync_for_device(req);
	return ops->queue(req->dev, req);
}

void npulink_run_rank_new(struct npulink_rank *rank);
void npulink_op_start(struct npulink_op *op, struct npulink_run *run);
void npulink_req_run(struct npulink_req *req, const struct npulink_op *waits, u64 until_ns);
struct npulink_req *npulink_ready_pop(struct npulink_file *file);
int npulink_run_init(const struct npulink_remote_ops *remote_ops,
		     void (*waiting)(struct npulink_file *file));
extern void (*npulink_waiting)(struct npulink_file *file);
void npulink_run_flush(void);
void npulink_run_exit(void);

#endif /* NPULINK_RUN_H */
