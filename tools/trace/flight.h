/* SPDX-License-Identifier: GPL-2.0 */
/*
 * flight.h - flight recorders in memory: read from the kernel, or from a file that
 * npulink trace has written.
 */
#ifndef TOOL_FLIGHT_H
#define TOOL_FLIGHT_H

#include <stdio.h>
#include <linux/npulink_genl.h>
#include "cli/npulink.h"

/**
 * struct flight_op - an operation; times are ns of CLOCK_MONOTONIC
 * @k: what the kernel tells of it, with times converted
 * @run: index in flight_log.runs, or NO_RUN
 */
struct flight_op {
	struct npulink_flight_op k;
	uint32_t run;
};

#define NO_RUN	0xffffffffU

/* A step; times as above. Its pieces follow each other from @start on. */
struct flight_step {
	uint64_t start, len;
	uint32_t op;			/* index in flight.ops */
	uint32_t step, nsteps, recv_peer, send_peer, channel;
	uint8_t what;			/* NPULINK_STEP_* */
	uint64_t wait, queue, engine, take;
};

static inline uint64_t flight_step_end(const struct flight_step *s)
{
	return s->start + s->wait + s->queue + s->engine + s->take;
}

/* What was recorded of one rank. */
struct flight {
	uint32_t id, comm, rank, nranks, dev, pid, uid;
	char task[20];
	bool left;
	uint64_t joined, left_at, now;
	uint64_t ops_done, steps_done;
	int64_t to_monotonic;
	struct npulink_flight_peer *peers;
	size_t npeers;
	struct flight_op *ops;
	size_t nops;
	struct flight_step *steps;
	size_t nsteps;
};

/*
 * One collective of one communicator, over all its ranks of which something is known.
 * @nranks of them were recorded.
 */
struct flight_run {
	uint32_t comm, nranks;
	uint64_t number;
	uint64_t first_start, last_start, end;	/* end 0: not over on all of them */
	const struct flight_op *op;		/* of the lowest rank */
};

/* All recorders, ordered by communicator, rank and age. */
struct flight_log {
	struct flight *v;
	size_t n;
	struct flight_run *runs;	/* in the order of the first post */
	size_t nruns;
	int64_t to_real;		/* from CLOCK_MONOTONIC */
};

#define ANY_COMM	0xffffffffU

/*
 * @what: NPULINK_FLIGHT_*; @comm: only of that communicator. 0, or EXIT_FAILURE after
 * a complaint.
 */
int flight_read(struct flight_log *log, uint32_t what, uint32_t comm);
int flight_load(struct flight_log *log, const char *path);
/*
 * Give steps the index of their operation, in place of the kernel's serial, and drop those
 * whose operation is forgotten.
 */
void flight_match(struct flight *f);
/* Drop what npulink doctor and link test did to look at links; how many recorders. */
size_t flight_drop_probes(struct flight_log *log);
/* Bring it in order and find runs. */
int flight_index(struct flight_log *log);
/* Drop all operations but those of the last so many runs. */
void flight_keep_last(struct flight_log *log, uint32_t last);
/* Leave what has happened since @before was read. */
void flight_subtract(struct flight_log *log, const struct flight_log *before);
/* Leave collectives of the last so many ns, and no steps. */
void flight_keep_since(struct flight_log *log, uint64_t ns);
void flight_free(struct flight_log *log);

uint64_t flight_op_bytes(const struct npulink_flight_op *op);
/* "allreduce 4.0K ring" */
const char *flight_op_name(const struct npulink_flight_op *op, char *buf, size_t size);

int trace_write_json(const struct flight_log *log, FILE *f);
int trace_write_svg(const struct flight_log *log, const char *path);

#endif /* TOOL_FLIGHT_H */
