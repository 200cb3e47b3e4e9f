/* SPDX-License-Identifier: GPL-2.0 */
/*
 * op.h - one POST of a plan, and what drives it: op.c, connect.c, seq.c, run.c, post.c.
 */
#ifndef NPULINK_OP_H
#define NPULINK_OP_H

#include "file/buf.h"
#include "base/clock.h"
#include "plan/plan.h"

struct npulink_run;

/*
 * What becomes of an operation: npulink_op_set_state() has the ways from one to the next.
 * A round (round.c) carries out those that are gathered as a whole; the others run their units,
 * which nobody looks at before RUNNING.
 */
enum npulink_op_state {
	NPULINK_OP_NEW,		/* being made; its units are not set up */
	NPULINK_OP_READY,	/* the same; they are */
	NPULINK_OP_GATHERED,	/* waits until all ranks have posted theirs, or is run with them */
	NPULINK_OP_STARTING,	/* somebody sets up its units */
	NPULINK_OP_RUNNING,	/* its units run, each as soon as it can */
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
	u32 units_left;
	u32 inflight;			/* requests that are not free, a round */
	u32 starting, releasing, starved_first, starved_last;
	u32 drain;			/* next of plan->drains */
	struct npulink_result result;
	struct npulink_req *free_req;	/* the first, by core.next */
	struct npulink_bound binds[NPULINK_MAX_SLOTS];
	struct npulink_op *chain;	/* the next one that somebody has to start */
	struct npulink_req *part;	/* its task's, while a round runs it with others */
	struct npulink_unit_state *units;
	struct npulink_op_stream *streams;
	u32 *drain_left;
	void *reqs;
	struct npulink_far *far;	/* if the plan has remote peers */
	struct npulink_check *checks[NPULINK_CHECK_REQS];
	struct npulink_cell cells[];
};

static inline size_t npulink_op_size(const struct npulink_plan *plan)
{
	return struct_size((struct npulink_op *)NULL, cells, plan->nsteps);
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

/*
 * struct npulink_remote_ops - the part that remote peers have in an operation; of those whose plan
 * has any, unless it is said otherwise
 * @alloc: with the operation's memory. Task context
 * @free: nobody uses it any more
 * @reset: it is about to be run. Task context
 * @connect: peer @index of its plan. Under rank->lock, as all below
 * @strangers: it has none of those peers, but its communicator has ranks on other nodes
 * @has_called: has that peer posted its part?
 * @waits_for: what *peer waits for, as it has said; may be called without the lock
 * @finish: it has ended
 * @bell: the mirror's cell of @step was offered something, or is taken from
 * @want: a unit waits for bytes of its remote peer
 * @want_next: another one of its members does
 * @landed: what the unit is to take lies in its destination already
 * @operand: where the peer's bytes are
 */
struct npulink_remote_ops {
	int (*alloc)(struct npulink_op *op, const struct npulink_plan *plan);
	void (*free)(struct npulink_op *op);
	void (*reset)(struct npulink_op *op);
	int (*connect)(struct npulink_op *op, u32 index, struct npulink_cause *cause);
	int (*strangers)(struct npulink_op *op, struct npulink_cause *cause);
	bool (*has_called)(const struct npulink_op *op, const struct npulink_conn *conn);
	bool (*waits_for)(const struct npulink_op *op, u32 *peer, u32 *step);
	void (*finish)(struct npulink_op *op, struct npulink_run *run);
	void (*bell)(struct npulink_op *op, u32 step, bool credit, struct npulink_run *run);
	void (*want)(struct npulink_op *op, u32 unit, struct npulink_run *run);
	void (*want_next)(struct npulink_op *op, u32 unit, struct npulink_run *run);
	bool (*landed)(const struct npulink_op *op, u32 unit);
	bool (*operand)(struct npulink_op *op, u32 step, u64 done, struct npulink_operand *o);
};

extern const struct npulink_remote_ops *npulink_remote_ops;

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
bool npulink_op_fail(struct npulink_op *op, struct npulink_run *run);

/* Steps that are looked at for somebody to blame, with interrupts off. */
#define NPULINK_BLAME_UNITS	BIT(16)
u32 npulink_op_first_with(const struct npulink_op *op, u32 peer);
bool npulink_op_waits_for(struct npulink_op *op, u32 *peer, u32 *step);
void npulink_blame_step_locked(struct npulink_rank *rank, u32 peer, struct npulink_cause *cause);
void npulink_blame_step(struct npulink_rank *rank, u32 peer, struct npulink_cause *cause);
void npulink_ops_exit(void);

int npulink_post_ioctl(struct npulink_ucmd *ucmd);
int npulink_post_batch_ioctl(struct npulink_ucmd *ucmd);
int npulink_wait_ioctl(struct npulink_ucmd *ucmd);

#endif /* NPULINK_OP_H */
