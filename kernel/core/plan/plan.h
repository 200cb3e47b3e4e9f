/* SPDX-License-Identifier: GPL-2.0 */
/*
 * plan.h - a verified list of steps, ready to run (plan.c).
 */
#ifndef NPULINK_PLAN_H
#define NPULINK_PLAN_H

#include <npulink/collectives.h>
#include "comm/comm.h"

#define NPULINK_OP_REQS		8	/* requests that one operation has at a time */
#define NPULINK_CHECK_REQS	2	/* the same, if what comes over links is checked */
#define NPULINK_PLAN_SPARES	32	/* operations that a plan keeps at most .. */
#define NPULINK_SPARE_STEPS	16384	/* .. and steps of all of them */
#define NPULINK_STOCK_STEPS	4096	/* one that has more steps keeps but one */

/* A chain of steps, or one step: what is started and finished as a whole. */
struct npulink_unit {
	u32 first;		/* index of its first step */
	u16 nsteps;
	bool engine;		/* needs the engine */
	bool recv;		/* one of its steps receives */
	bool send;		/* its last step sends */
	u8 esize;		/* element size, 1 if it only moves bytes */
	u8 scale;		/* power of two by which inputs are scaled, 0 if none is */
	u32 ndeps;		/* units (and a drain) to wait for */
	u32 out;		/* plan->out[out .. next unit's out): who waits for it */
	u32 drain;		/* plan->drains[drain] is the first behind it */
};

/* Steps that meet those of one peer, one channel, one direction, in list order. */
struct npulink_stream {
	u32 peer;		/* index in plan->peers */
	u16 channel;
	bool send;
	u32 start;		/* plan->stream_steps[start .. start + count) */
	u32 count;
};

struct npulink_plan_peer {
	struct npulink_conn *conn;
	u32 stream;		/* plan->streams[stream .. stream + nstreams) */
	u32 nstreams;
};

/* Where a step is in its streams; valid as its op bits say. */
struct npulink_step_pos {
	u32 recv_stream;
	u32 recv_pos;
	u32 send_stream;
	u32 send_pos;
	u32 unit;
};

/*
 * struct npulink_plan - a verified plan, ready to run
 * @spares: operations kept for the next POSTs, so that these allocate nothing
 * @nspares: how many
 * @graph: it, linked with all other ranks' plans; under comm->lock
 * @graph_tries: how often they were linked
 *
 * Frozen when its id is published, but for those and @inflight.
 */
struct npulink_plan {
	struct npulink_object obj;
	struct npulink_rank *rank;
	struct npulink_call call;
	char algorithm[NPULINK_ALGORITHM_LEN];
	u32 nslots;
	struct npulink_slot slots[NPULINK_MAX_SLOTS];
	u32 align[NPULINK_MAX_SLOTS];	/* of the bound offset */
	u32 offered;		/* slots that peers read, a bit for each */
	u32 nsteps;
	struct npulink_step *steps;
	struct npulink_step_pos *pos;
	u32 nunits;
	struct npulink_unit *units;
	u32 *out;
	u32 npeers;
	struct npulink_plan_peer *peers;
	u32 nstreams;
	struct npulink_stream *streams;
	u32 *stream_steps;
	u32 ndrains;
	u32 *drains;		/* units with DRAIN, ascending */
	u64 bytes;		/* that the engine has to write */
	u32 max_src;		/* inputs of the largest request */
	struct npulink_plan *mirror;	/* what remote peers run, if there are any */
	u64 max_len;		/* bytes of the longest unit for the engine */
	bool check;		/* what comes over links is checked */
	u32 nreqs;
	bool p2p;
	bool p2p_send;
	spinlock_t spare_lock;	/* nspares, spares */
	u32 nspares;
	struct llist_node *spares;
	struct npulink_graph *graph;
	u32 graph_tries;
	atomic_t inflight;
	struct npulink_deferred deferred;
};

/*
 * struct npulink_plan_events - what those who run plans add to one
 * @made: it is whole, and nobody sees it yet. Task context
 * @free: nobody uses it any more. May sleep
 */
struct npulink_plan_events {
	int (*made)(struct npulink_plan *plan);
	void (*free)(struct npulink_plan *plan);
};

void npulink_plan_init(const struct npulink_plan_events *events);

extern const struct npulink_object_type npulink_plan_type;

int npulink_plan_create_ioctl(struct npulink_ucmd *ucmd);

/* Is this collective run as a whole when the last rank has posted? See run/round.c. */
static inline bool npulink_coll_gathers(u32 collective)
{
	return npulink_coll_in(NPULINK_COLLS_ALWAYS, collective);
}

/* The same of much data only. */
static inline bool npulink_coll_gathers_large(u32 collective)
{
	return npulink_coll_in(NPULINK_COLLS_LARGE, collective);
}

static inline size_t npulink_req_size(const struct npulink_plan *plan)
{
	return sizeof(struct npulink_req) + plan->max_src * sizeof(struct npulink_operand);
}

static inline void npulink_plan_put(struct npulink_plan *plan)
{
	npulink_object_put(&plan->obj);
}

#endif /* NPULINK_PLAN_H */
