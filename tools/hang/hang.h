/* SPDX-License-Identifier: GPL-2.0 */
/*
 * hang.h - what npulink hang has read and found out.
 *
 * hang.c finds it, report.c says it.
 */
#ifndef TOOL_HANG_H
#define TOOL_HANG_H

#include "state/state.h"

#define MAX_CULPRITS	16

struct culprit {
	uint32_t rank;
	const char *why;
	const struct state_rank *at;	/* NULL: not on this machine */
	const struct state_conn *far;	/* on another one */
	const struct state_wait *wait;	/* that nothing else explains */
	const struct state_op *elsewhere;
};

/* A rank that waits, and what for. */
struct hop {
	uint32_t rank, steps;
	const struct state_wait *waits;
	unsigned int nwaits, lead;	/* the one that is followed */
	const struct state_conn *far;	/* it is on another machine */
};

/* One communicator, and what was found out. */
struct report {
	const struct state_comm *comm;
	const char *state;
	bool *missing;			/* by rank, who has not joined; NULL: nobody */
	const struct state_op *op;	/* the oldest one */
	const struct state_conn *asked;	/* without: who waits on another machine */
	uint64_t number;
	struct culprit culprits[MAX_CULPRITS];
	size_t nculprits;		/* may be more than there is room for */
	struct hop *chain;
	size_t nchain;
	bool circle;
};

/* All that was read. */
struct seen {
	struct state_comm *comms;
	struct state_rank *ranks;
	struct state_op *ops;
	struct state_conn *conns;
	struct state_file *files;
	size_t ncomms, nranks, nops, nconns, nfiles;
};

extern struct seen all;

const char *why_held(char state);
const struct state_rank *ranks_of(const struct report *rep, size_t *n);
bool is_joining(const struct state_file *f);
const struct state_wait *root_wait(const struct hop *hop);

void report_text(const struct report *rep);
struct json_object *report_json(const struct report *rep);
void joining_text(void);
struct json_object *joining_json(void);

#endif /* TOOL_HANG_H */
