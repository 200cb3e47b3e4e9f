/* SPDX-License-Identifier: GPL-2.0 */
/*
 * op.h - one POST of a plan, and what drives it: op.c, connect.c, seq.c, run.c, post.c.
 */
#ifndef NPULINK_OP_H
#define NPULINK_OP_H

#include <linux/sched/clock.h>
#include <linux/time_namespace.h>
#include "buf.h"
#include "plan.h"

enum npulink_op_state {
	NPULINK_OP_NEW,
	NPULINK_OP_RUNNING,
	NPULINK_OP_FAILING,	/* waits until its requests have come back */
	NPULINK_OP_DONE,
};

enum npulink_req_state {
	NPULINK_REQ_FREE,
	NPULINK_REQ_TODO,	/* rank->todo */
	NPULINK_REQ_READY,	/* file->ready */
	NPULINK_REQ_RUNNING,	/* with the device */
};

enum npulink_unit_phase {
	NPULINK_UNIT_BLOCKED,	/* dependencies */
	NPULINK_UNIT_ACTIVE,	/* waits for arrivals */
	NPULINK_UNIT_BUSY,	/* a request is with the engine, or waits for one */
	NPULINK_UNIT_SENT,	/* waits until the peer has taken it */
	NPULINK_UNIT_DONE,
};

struct npulink_unit_state {
	u64 done;		/* bytes through the engine */
	u32 deps;		/* that it waits for; in op->releasing: that were told of it */
	u32 next;		/* in op->starting, op->releasing or op->starved; ~0 ends */
	u16 waits;		/* of a chain: members before it have arrived .. */
	bool missing;		/* .. and this one has not */
	u8 phase;
	/* flight.h: since it may start, since its last transition, where the time went */
	u64 start, mark, wait, queue, engine;
	u32 since;		/* jiffies of the last progress */
};

/*
 * struct npulink_cell - where a step meets its peers
 * @ev: rings this step; ev.kind is its index
 * @avail: 1 + bytes offered to the send peer, 0: not offered. Own rank writes
 * @taken: bytes that the send peer has taken, 1 + len when it has all. It writes
 */
struct npulink_cell {
	struct npulink_event ev;
	u64 avail;
	u64 taken;
};

#define NPULINK_EV_REQ	0xffffffffU	/* kind of a request's event */

struct npulink_op_stream {
	struct npulink_op *peer;	/* referenced; NULL: not posted yet */
	u32 stream;			/* the peer's stream */
};

enum npulink_meet_state {
	NPULINK_MEET_NOT,
	NPULINK_MEET_LISTED,	/* has started the usual way */
	NPULINK_MEET_GATHERED,	/* waits for the others; counts as in flight */
};

enum npulink_meet_verdict {
	NPULINK_MEET_START,	/* the usual way */
	NPULINK_MEET_MAKE,	/* a script for next time, then as above */
	NPULINK_MEET_WAIT,	/* for the last to come */
	NPULINK_MEET_RUN,	/* this one is the last */
};

/* An operation's part in a meeting; under comm->lock until the meeting is over. */
struct npulink_op_meet {
	struct npulink_op *next;
	struct npulink_op **pprev;	/* what points to it in the meeting's list */
	struct npulink_op *other;
	struct npulink_script *script;
	struct npulink_pass_group *turns;	/* who waits may have to wait for a processor */
	struct npulink_req *part;	/* its task's, while it runs a script with others' */
	u32 run;			/* of that script */
	u64 met;			/* of the last to post: when that was */
	u8 state;
	u8 verdict;
	bool restart;
	bool over;			/* all is done, but @part is not back */
};

struct npulink_bound {
	struct npulink_buf *buf;
	u64 off;
};

/*
 * struct npulink_op - one run of a plan
 *
 * All of it is protected by rank->lock, but for what is constant from POST on,
 * @refs, the cells (see there) and @done, which is set last.
 */
struct npulink_op {
	refcount_t refs;
	u32 serial;			/* of the rank's operations, see flight.h */
	struct npulink_plan *plan;
	struct npulink_rank *rank;
	struct list_head node;		/* rank->ops */
	struct list_head p2p_node;	/* conn->p2p[] */
	struct list_head resume_node;	/* rank->resume */
	struct llist_node free_node;
	u64 number;
	u64 seq;
	u64 cookie;
	u64 start_ns;			/* npulink_clock() */
	struct work_struct end_work;
	bool foreign;			/* memory of another driver is to be given back first */
	u64 wait_ns, queue_ns, engine_ns, take_ns;	/* of its units, see flight.h */
	u64 slow_ns;			/* 0: never slow */
	u64 bytes;			/* written so far */
	unsigned long deadline;		/* jiffies, if has_deadline */
	bool has_deadline;
	bool slow;			/* and that has been told */
	u8 state;
	bool held;
	bool done;
	bool is_mirror;
	bool raw;			/* units and cells are not set up: no peer may look */
	u32 units_left;
	u32 inflight;			/* requests that are not free, a meeting */
	u32 starting, releasing, starved_first, starved_last;
	u32 drain;			/* next of plan->drains */
	struct npulink_result result;
	struct npulink_req *free_req;	/* the first, by core.next */
	struct npulink_bound binds[NPULINK_MAX_SLOTS];
	struct npulink_op_meet meet;
	struct npulink_unit_state *units;
	struct npulink_op_stream *streams;
	u32 *drain_left;
	void *reqs;
	struct npulink_far *far;	/* if the plan has remote peers */
	struct npulink_check *checks[NPULINK_CHECK_REQS];
	struct npulink_cell cells[];
};

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

/* All times of operations and steps are on this clock. */
static inline u64 npulink_clock(void)
{
	return local_clock();
}

/* What CLOCK_MONOTONIC of this task, which may be in a time namespace, is ahead of the kernel's. */
static inline s64 npulink_clock_offset(void)
{
	struct timespec64 offset = {};

	timens_add_monotonic(&offset);
	return timespec64_to_ns(&offset);
}

/* The time. What a run does between two pieces of work takes none. */
static inline u64 npulink_run_now(struct npulink_run *run)
{
	if (!run->now)
		run->now = npulink_clock();
	return run->now;
}

static inline void npulink_op_get(struct npulink_op *op)
{
	refcount_inc(&op->refs);
}

static inline struct npulink_req *npulink_op_req(struct npulink_op *op, u32 i)
{
	return op->reqs + i * npulink_req_size(op->plan);
}

static inline void npulink_req_give(struct npulink_op *op, struct npulink_req *req)
{
	req->core.state = NPULINK_REQ_FREE;
	req->core.next = op->free_req;
	op->free_req = req;
}

/* The peer's step that meets step @pos of our stream; its index in peer_op. */
static inline u32 npulink_peer_step(const struct npulink_op *op, u32 stream, u32 pos)
{
	const struct npulink_op_stream *os = &op->streams[stream];
	const struct npulink_plan *pp = os->peer->plan;

	return pp->stream_steps[pp->streams[os->stream].start + pos];
}

struct npulink_op *npulink_op_alloc(struct npulink_plan *plan, struct npulink_run *run);
int npulink_plan_make_spares(struct npulink_plan *plan);
void npulink_plan_free_spares(struct npulink_plan *plan);
void npulink_op_reset(struct npulink_op *op);
void npulink_op_end_foreign(struct npulink_op *op);
void npulink_op_finish(struct npulink_op *op, struct npulink_run *run);
void npulink_op_put(struct npulink_op *op);
void npulink_op_set_state(struct npulink_op *op, enum npulink_op_state state);
u32 npulink_find_stream(const struct npulink_plan *plan, u32 index, u16 channel, bool send);
u32 npulink_find_peer(const struct npulink_plan *plan, u32 rank);
int npulink_op_connect(struct npulink_op *op, struct npulink_cause *cause);
bool npulink_peer_has_called(struct npulink_rank *peer, struct npulink_op *op);
void npulink_op_fail(struct npulink_op *op, struct npulink_run *run);

/* Steps that are looked at for somebody to blame, with interrupts off. */
#define NPULINK_BLAME_UNITS	BIT(16)
bool npulink_op_waits_for(struct npulink_op *op, u32 *peer, u32 *step);
void npulink_blame_step_locked(struct npulink_rank *rank, u32 peer, struct npulink_cause *cause);
void npulink_blame_step(struct npulink_rank *rank, u32 peer, struct npulink_cause *cause);
void npulink_ops_exit(void);

int npulink_post_ioctl(struct npulink_ucmd *ucmd);
int npulink_post_batch_ioctl(struct npulink_ucmd *ucmd);
int npulink_wait_ioctl(struct npulink_ucmd *ucmd);

/* ---- seq.c ----------------------------------------------------------------- */

void npulink_req_free(struct npulink_req *req);
void npulink_req_ready(struct npulink_req *req, const struct npulink_run *run);
void npulink_req_complete(struct npulink_req *req, int status, struct npulink_run *run);
void npulink_event_handle(struct npulink_event *ev, struct npulink_run *run);
void npulink_unit_blocked_less(struct npulink_op *op, u32 unit);
void npulink_op_advance(struct npulink_op *op, struct npulink_run *run);

/* ---- run.c ----------------------------------------------------------------- */

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

void npulink_rank_resume_work(struct work_struct *work);
void npulink_op_start(struct npulink_op *op, struct npulink_run *run);
void npulink_req_run(struct npulink_req *req, const struct npulink_op *waits, u64 until_ns);
struct npulink_req *npulink_ready_pop(struct npulink_file *file);
int npulink_run_init(void);
void npulink_run_flush(void);
void npulink_run_exit(void);

/* ---- checksum.c ---------------------------------------------------------- */

#define NPULINK_CRC_INIT	(~0U)
u32 npulink_operand_crc_add(u32 crc, const struct npulink_operand *o, u64 len);
static inline u32 npulink_operand_crc(const struct npulink_operand *o, u64 len)
{
	return npulink_operand_crc_add(NPULINK_CRC_INIT, o, len);
}

struct npulink_check *npulink_check_alloc(struct npulink_plan *plan);
void npulink_check_free(struct npulink_check *ck);
void npulink_check_reset(struct npulink_req *req);
void npulink_check_input(struct npulink_req *req, u32 i, struct npulink_link *link, u32 step);
int npulink_check_submit(struct npulink_req *req);
bool npulink_check_landed(struct npulink_req *req);
void npulink_check_cause(const struct npulink_req *req, struct npulink_cause *cause);
bool npulink_check_put_bufs(struct npulink_req *req);

/* ---- meet.c ---------------------------------------------------------------- */

extern unsigned int npulink_script_bytes;

void npulink_script_put(struct npulink_script *s);
void npulink_meet_arrive(struct npulink_op *op);
bool npulink_meet_leave(struct npulink_op *op);
void npulink_meet_go(struct npulink_op *op, struct npulink_run *run);
void npulink_meet_dissolve(struct npulink_op *op);

/* ---- share.c --------------------------------------------------------------- */

void npulink_share_part(struct npulink_req *req, const struct npulink_op *waits, u64 until_ns);

/* ---- wait.c, event.c ------------------------------------------------------- */

int npulink_op_wait(struct npulink_file *file, struct npulink_op *op, u64 until_ns);
int npulink_ring_setup_ioctl(struct npulink_ucmd *ucmd);
int npulink_ring_mmap(struct npulink_file *file, struct vm_area_struct *vma);
void npulink_ring_free(struct npulink_file *file);
bool npulink_ring_pending(struct npulink_file *file);
int npulink_slot_take(struct npulink_file *file, struct npulink_op *op, bool held);
void npulink_slot_give(struct npulink_file *file, struct npulink_op *op);
struct npulink_op *npulink_slot_find(struct npulink_file *file, u64 seq);
void npulink_slots_free(struct npulink_file *file);
void npulink_op_deliver(struct npulink_op *op);
void npulink_file_wake_ready(struct npulink_file *file, bool waits);
void npulink_watchdog_arm(struct npulink_file *file, struct npulink_op *op);
void npulink_watchdog_init(struct npulink_file *file);
void npulink_watchdog_stop(struct npulink_file *file);
void npulink_blame(struct npulink_op *op, struct npulink_cause *cause);

extern unsigned int npulink_spin_ns;

/* ---- deadlock.c ------------------------------------------------------------ */

void npulink_deadlock_waits(struct npulink_file *file);
void npulink_deadlock_forget(struct npulink_file *file);
void npulink_deadlock_exit(void);

#endif /* NPULINK_OP_H */
