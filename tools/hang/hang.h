/* SPDX-License-Identifier: GPL-2.0 */
/*
 * hang.h - what npulink hang has read and found out.
 *
 * hang.c finds it, processes.c what has other reasons than npulink, report.c says it.
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
	struct starve *starve;	/* NULL: not looked at */
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

/* A process that has open what a dead one had opened. */
struct holder {
	uint32_t pid;
	const struct state_file *file;
};

/* All that was read. */
struct seen {
	struct state_comm *comms;
	struct state_rank *ranks;
	struct state_op *ops;
	struct state_conn *conns;
	struct state_file *files;
	size_t ncomms, nranks, nops, nconns, nfiles;
	struct starve *looks;
	struct holder holders[MAX_CULPRITS];
	size_t nholders;
	uint32_t hidden_comms, hidden_files;	/* that others own */
};

extern struct seen all;

const char *why_held(char state);
const struct state_rank *ranks_of(const struct report *rep, size_t *n);
const struct state_rank *rank_of_file(const struct state_file *f);
bool is_joining(const struct state_file *f);
const struct state_wait *root_wait(const struct hop *hop);

void report_text(const struct report *rep);
struct json_object *report_json(const struct report *rep);
/* processes.c */
void find_starved(struct report *reps, size_t n);
void find_holders(void);

/* What belongs to no communicator: who joins, who holds devices, and what is hidden. */
void others_text(void);
void others_json(struct json_object *array);

#endif /* TOOL_HANG_H */
