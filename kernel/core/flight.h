/* SPDX-License-Identifier: GPL-2.0 */
/*
 * flight.h - the flight recorder of a rank: its last operations and steps, and where
 * their time went, always on. What the sequencer calls is here and is a few
 * instructions; flight.c has the rest.
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
#ifndef NPULINK_FLIGHT_H
#define NPULINK_FLIGHT_H

#include <linux/npulink_genl.h>
#include "core.h"

/*
 * struct npulink_flight - what is recorded of one rank. No references but to memory: it is kept when
 * its process has gone, and its namespaces and cgroups have to be able to go, too
 * @uid: of its process when it opened the device, as are @euid and @suid
 * @pids: its process, and the inodes of the namespaces where that is its number
 * @rank: the rank, NULL once it has gone; under npulink_flights_lock, as is
 * @kept: on the list of those whose rank has gone
 * @number: the rank's
 * @joined_ns: when it joined; 0: it has not, and nobody sees the recorder
 * @left_ns: when it went
 * @peers: struct npulink_flight_peer by rank, made with the conn
 * @ops: ring of operations that have ended, oldest overwritten
 * @steps: ring of steps that are done
 * @nops: written to @ops so far; the rings are written under rank->lock, and read without,
 *	  see npulink_flight_read()
 * @nsteps: the same for @steps
 */
struct npulink_flight {
	struct kref kref;
	u32 id;
	struct npulink_rank *rank;
	struct list_head kept;
	kuid_t uid;
	kuid_t euid;
	kuid_t suid;
	char task[16];
	u32 comm;
	u32 nranks;
	u32 number;
	u32 dev;
	u64 joined_ns;
	u64 left_ns;
	size_t bytes;
	struct xarray peers;

	u32 ops_mask;
	u32 steps_mask;
	u64 nops ____cacheline_aligned;
	u64 nsteps;
	struct npulink_flight_op *ops;
	struct npulink_flight_step *steps;
	u32 npids;
	struct npulink_flight_pid {
		unsigned int ns;
		pid_t nr;
	} pids[];
};

struct npulink_flight *npulink_flight_new(struct npulink_file *file);
void npulink_flight_joined(struct npulink_rank *rank);
void npulink_flight_put(struct npulink_flight *flight);
struct npulink_flight *npulink_flight_next(unsigned long *id);
pid_t npulink_flight_pid(const struct npulink_flight *flight);
struct npulink_rank *npulink_flight_rank(struct npulink_flight *flight);
void npulink_flight_fill(const struct npulink_op *op, struct npulink_flight_op *e);
u32 npulink_flight_read(const void *ring, u32 mask, const u64 *written, size_t size, u64 *pos,
			void *to, u32 n);
void npulink_flight_left(struct npulink_rank *rank);
struct npulink_flight_peer *npulink_flight_peer(struct npulink_flight *flight, u32 peer);
void npulink_flight_exit(void);

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

#endif /* NPULINK_FLIGHT_H */
