/* SPDX-License-Identifier: GPL-2.0 */
/*
 * hang.h - what npulink hang has read and found out.
 *
 * hang.c finds it, hang_report.c says it.
 */
#ifndef TOOL_HANG_H
#define TOOL_HANG_H

#include "see.h"

#define MAX_CULPRITS	16

struct culprit {
	uint32_t rank;
	const char *why;
	const struct see_rank *at;	/* NULL: not on this machine */
	const struct see_conn *far;	/* on another one */
	const struct see_wait *wait;	/* that nothing else explains */
	const struct see_op *elsewhere;
};

/* A rank that waits, and what for. */
struct hop {
	uint32_t rank, steps;
	const struct see_wait *waits;
	unsigned int nwaits, lead;	/* the one that is followed */
	const struct see_conn *far;	/* it is on another machine */
};

/* One communicator, and what was found out. */
struct report {
	const struct see_comm *comm;
	const char *state;
	bool *missing;			/* by rank, who has not joined; NULL: nobody */
	const struct see_op *op;	/* the oldest one */
	const struct see_conn *asked;	/* without: who waits on another machine */
	uint64_t number;
	struct culprit culprits[MAX_CULPRITS];
	size_t nculprits;		/* may be more than there is room for */
	struct hop *chain;
	size_t nchain;
	bool circle;
};

/* All that was read. */
struct seen {
	struct see_comm *comms;
	struct see_rank *ranks;
	struct see_op *ops;
	struct see_conn *conns;
	struct see_file *files;
	size_t ncomms, nranks, nops, nconns, nfiles;
};

extern struct seen all;

const char *why_held(char state);
const struct see_rank *ranks_of(const struct report *rep, size_t *n);
bool is_joining(const struct see_file *f);
const struct see_wait *root_wait(const struct hop *hop);

void report_text(const struct report *rep);
struct json_object *report_json(const struct report *rep);
void joining_text(void);
struct json_object *joining_json(void);

#endif /* TOOL_HANG_H */
