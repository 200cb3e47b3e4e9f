/* SPDX-License-Identifier: GPL-2.0 */
/*
 * flight.h - the flight recorder of a rank: its last operations and steps, and where their time
 * went, always on. What is written there: flight_record.h.
 */
#ifndef NPULINK_FLIGHT_H
#define NPULINK_FLIGHT_H

#include <linux/npulink_genl.h>
#include "comm/comm.h"

/*
 * struct npulink_flight - what is recorded of one rank. No references but to memory: it is kept
 * when its process has gone, and its namespaces and cgroups have to be able to go, too
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
u32 npulink_flight_read(const void *ring, u32 mask, const u64 *written, size_t size, u64 *pos,
			void *to, u32 n);
void npulink_flight_left(struct npulink_rank *rank);
struct npulink_flight_peer *npulink_flight_peer(struct npulink_flight *flight, u32 peer);
void npulink_flight_exit(void);

#endif /* NPULINK_FLIGHT_H */
