/* SPDX-License-Identifier: GPL-2.0 */
/*
 * flight_record.h - what the sequencer writes into a rank's flight recorder. The most frequent is
 * here and is a few instructions; flight_record.c has the rest. All of it under rank->lock.
 *
 * A unit's time is cut at its transitions, and each piece goes to what it was spent on:
 *
 *	wait	until the peer had offered bytes
 *	queue	until the engine, or somebody to run it, was free
 *	engine	moving or reducing them
 *	take	until the peer had taken what was sent
 *
 * The clock is read when an operation is posted and after each piece of work; what is done
 * between two such points takes no time (struct npulink_run.now).
 */
#ifndef NPULINK_FLIGHT_RECORD_H
#define NPULINK_FLIGHT_RECORD_H

#include "comm/flight.h"
#include "run/run.h"

void npulink_flight_fill(const struct npulink_op *op, struct npulink_flight_op *e);
void npulink_flight_step(struct npulink_op *op, const struct npulink_unit *un,
			 struct npulink_unit_state *us, struct npulink_run *run);
void npulink_flight_op(struct npulink_op *op, struct npulink_run *run);
void npulink_flight_arrived(struct npulink_op *op, u32 unit, u32 i, struct npulink_run *run);
void npulink_flight_worked(struct npulink_op *op, struct npulink_req *req,
			   struct npulink_run *run);

/* A unit may start. */
static inline void npulink_flight_start(struct npulink_op *op, struct npulink_unit_state *us,
					struct npulink_run *run)
{
	if (!op->rank->flight)
		return;
	us->start = npulink_run_now(run);
	us->mark = us->start;
	us->wait = 0;
	us->queue = 0;
	us->engine = 0;
}

/* Time since the last mark. Clocks of two processors may differ a little. */
static inline u64 npulink_flight_lap(struct npulink_unit_state *us, u64 now)
{
	u64 lap = now > us->mark ? now - us->mark : 0;

	us->mark += lap;
	return lap;
}

/* A unit has waited for its peer up to now. */
static inline void npulink_flight_waited(struct npulink_op *op, struct npulink_unit_state *us,
					 struct npulink_run *run)
{
	if (op->rank->flight)
		us->wait += npulink_flight_lap(us, npulink_run_now(run));
}

/* A unit has waited for its engine up to now. */
static inline void npulink_flight_queued(struct npulink_op *op, struct npulink_unit_state *us,
					 struct npulink_run *run)
{
	if (op->rank->flight)
		us->queue += npulink_flight_lap(us, npulink_run_now(run));
}

/* The engine has worked for a unit up to now. */
static inline void npulink_flight_engine(struct npulink_op *op, struct npulink_unit_state *us,
					 struct npulink_run *run)
{
	if (op->rank->flight)
		us->engine += npulink_flight_lap(us, npulink_run_now(run));
}

/*
 * All ranks have met at time @met, rank @last after all others, and in the @engine ns since
 * then it has done the work of all.
 */
static inline void npulink_flight_met(struct npulink_op *op, u32 last, u64 met, u64 engine)
{
	u64 late = met > op->start_ns ? met - op->start_ns : 0;
	struct npulink_flight_peer *peer;
	u32 i;

	op->wait_ns = late;
	op->engine_ns = engine;
	if (last == op->rank->rank)
		return;
	i = npulink_find_peer(op->plan, last);
	if (i == ~0U)
		return;		/* one that it has no steps with */
	peer = op->plan->peers[i].conn->ledger;
	peer->wait_ns += late;
	peer->waits++;
	peer->late[min_t(u32, fls64(late >> 10), NPULINK_FLIGHT_BUCKETS - 1)]++;
}

#endif /* NPULINK_FLIGHT_RECORD_H */
