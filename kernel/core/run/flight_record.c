// SPDX-License-Identifier: GPL-2.0
/*
 * flight_record.c - an operation, a step, or a piece of one is over: it goes into the rank's flight
 * recorder.
 */
#include "base/number.h"
#include "comm/flight.h"
#include "plan/plan.h"
#include "run/flight_record.h"
#include "run/op.h"
#include "run/run.h"

/* See npulink_flight_ns(). */
static u32 npulink_flight_time(u64 ns)
{
	u32 shift;

	if (likely(!(ns >> 28)))
		return ns;
	shift = fls64(ns) - 28;
	return shift > 15 ? ~0U : (u32)(ns >> shift) | shift << 28;
}

static struct npulink_flight_peer *npulink_flight_source(struct npulink_op *op, u32 step)
{
	const struct npulink_plan *plan = op->plan;

	return plan->peers[plan->streams[plan->pos[step].recv_stream].peer].conn->ledger;
}

/* The peer of a unit's member @i has offered what the unit waited for. */
void npulink_flight_arrived(struct npulink_op *op, u32 unit, u32 i, struct npulink_run *run)
{
	struct npulink_unit_state *us = &op->units[unit];
	u32 step = op->plan->units[unit].first + i;
	struct npulink_flight_peer *peer;
	u64 late;

	if (!(op->plan->steps[step].op & NPULINK_STEP_RECV))
		return;
	peer = npulink_flight_source(op, step);
	late = npulink_flight_lap(us, npulink_run_now(run));
	us->wait += late;
	peer->wait_ns += late;
	if (!us->done) {
		peer->waits++;
		peer->late[min_t(u32, fls64(late >> 10), NPULINK_FLIGHT_BUCKETS - 1)]++;
	}
}

/* The engine has done a request. */
void npulink_flight_worked(struct npulink_op *op, struct npulink_req *req,
			   struct npulink_run *run)
{
	const struct npulink_unit *un = &op->plan->units[req->core.unit];
	struct npulink_unit_state *us = &op->units[req->core.unit];
	u64 engine;

	us->queue += npulink_flight_lap(us, req->core.start_ns);
	engine = npulink_flight_lap(us, npulink_run_now(run));
	us->engine += engine;
	if (!req->small && req->link && un->nsteps == 1) {
		struct npulink_flight_peer *peer = npulink_flight_source(op, un->first);
		int slow = fls64(engine) - fls64(req->len) + 11;

		peer->moves++;
		peer->move_ns += engine;
		peer->move_bytes += req->len;
		peer->slow[clamp(slow, 0, NPULINK_FLIGHT_BUCKETS - 1)]++;
		atomic64_inc(&req->link->stats.moves);
		atomic64_add(req->len, &req->link->stats.move_bytes);
		atomic64_add(engine, &req->link->stats.move_ns);
	}
}

/* A unit is done. */
void npulink_flight_step(struct npulink_op *op, const struct npulink_unit *un,
			 struct npulink_unit_state *us, struct npulink_run *run)
{
	const struct npulink_step *first = &op->plan->steps[un->first];
	const struct npulink_step *last = first + un->nsteps - 1;
	struct npulink_flight *flight = op->rank->flight;
	struct npulink_flight_step *e = &flight->steps[flight->nsteps & flight->steps_mask];
	u64 take = npulink_flight_lap(us, npulink_run_now(run));

	if (un->send) {
		const struct npulink_stream *s =
			&op->plan->streams[op->plan->pos[last - op->plan->steps].send_stream];
		struct npulink_flight_peer *peer = op->plan->peers[s->peer].conn->ledger;

		peer->takes++;
		peer->take_ns += take;
	}
	op->wait_ns += us->wait;
	op->queue_ns += us->queue;
	op->engine_ns += us->engine;
	op->take_ns += take;
	/* Readers that see any of it see that the old entry has gone. */
	smp_wmb();
	e->start = us->start;
	e->len = first->len;
	e->serial = npulink_told_serial(op->serial);
	e->step = un->first;
	e->nsteps = un->nsteps;
	e->op = first->op | last->op;
	e->flags = last->flags;
	e->recv_peer = first->recv_peer;
	e->send_peer = last->send_peer;
	e->wait = npulink_flight_time(us->wait);
	e->queue = npulink_flight_time(us->queue);
	e->engine = npulink_flight_time(us->engine);
	e->take = npulink_flight_time(take);
	e->channel = first->channel;
	/* Readers that count it see all of it. */
	smp_store_release(&flight->nsteps, flight->nsteps + 1);
}

static inline void flight_fill(const struct npulink_op *op, struct npulink_flight_op *e)
{
	e->start = op->start_ns;
	e->number = npulink_told(op->number);
	e->wait = op->wait_ns;
	e->queue = op->queue_ns;
	e->engine = op->engine_ns;
	e->take = op->take_ns;
	e->call = op->plan->call;
	memcpy(e->algorithm, op->plan->algorithm, sizeof(e->algorithm));
	e->serial = npulink_told_serial(op->serial);
	e->nsteps = op->plan->nsteps;
	e->status = op->result.status;
	e->cause = op->result.cause;
}

/* All but the end. */
void npulink_flight_fill(const struct npulink_op *op, struct npulink_flight_op *e)
{
	flight_fill(op, e);
}

/* An operation has ended. */
void npulink_flight_op(struct npulink_op *op, struct npulink_run *run)
{
	struct npulink_flight *flight = op->rank->flight;
	struct npulink_flight_op *e = &flight->ops[flight->nops & flight->ops_mask];

	/* As in npulink_flight_step(). */
	smp_wmb();
	flight_fill(op, e);
	e->end = op->start_ns + op->result.ns;
	/* As in npulink_flight_step(). */
	smp_store_release(&flight->nops, flight->nops + 1);
}
