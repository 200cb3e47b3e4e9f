/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * run.h - the parts of the set verifier: matching and execution of all
 * ranks' steps on symbolic buffers (run.c), the definition of the
 * collectives (def.c), and what holds them together (set.c).
 * flow.c is another way to execute them, rotation.c does with one rank.
 */
#ifndef COLL_VERIFY_RUN_H
#define COLL_VERIFY_RUN_H

#include "plan/planner.h"
#include "verify/set.h"
#include "verify/value.h"

struct verify_rank {
	struct coll_args args;		/* filled in: plan_args_fill() */
	uint64_t *mem;			/* of args */
	struct coll_plan plan;
	uint32_t base;			/* number of its first step in the set */
	uint32_t front;			/* first step that has not ended */
	struct image slots[NPULINK_MAX_SLOTS];
};

struct verify_run {
	const struct coll_set *set;
	struct coll_verify_report *report;
	struct verify_rank *ranks;
	uint32_t nranks, nsteps;
	struct values values;
	struct image value, src, sum;	/* of one step, kept for the next */
	bool turns;		/* only rank 0 is there: rotation.c */
	bool flips;		/* .. and the others are it with XOR, not turned */
	bool unsure;		/* and that cannot tell */
	/* For each step of the set: */
	uint32_t *owner;	/* its rank */
	uint32_t *unit;		/* first step of its chain */
	uint32_t *from, *to;	/* the steps that it receives from, sends to */
	uint32_t *need;		/* units: what has to happen before it runs */
	uint8_t *done;		/* units */
	uint32_t *first, *late;	/* units: late[first[i] .. first[i + 1]) wait for i */
	uint32_t *stack;	/* units that have become ready */
	uint32_t top;
	uint32_t knows_words;
	uint64_t *knows;	/* barrier: what a unit knows when it runs */
};

/* Fill in the report; -EINVAL. */
int __printf(7, 8) verify_fail(struct verify_run *run, uint32_t rank, uint32_t step,
			       uint32_t slot, uint64_t off, uint64_t len, const char *fmt, ...);

/*
 * Begin; make and check the plan of one rank; allocate what is kept for each step
 * of those made; free everything but the run itself.
 */
int verify_init(struct verify_run *run);
int verify_load(struct verify_run *run, uint32_t rank);
int verify_alloc_steps(struct verify_run *run);
void verify_free(struct verify_run *run);

/* The rank that is for rank @by what @rank is for rank 0. */
uint32_t verify_turned(const struct verify_run *run, uint32_t rank, uint32_t by);

/* run->value as rank @by has it, as rank 0 would see it if it were that rank. 0 or -ENOMEM. */
int verify_turn(struct verify_run *run, uint32_t by);

/* Pair sends with receives; run everything. 0, -EINVAL with report, -ENOMEM. */
int verify_match(struct verify_run *run);
int verify_execute(struct verify_run *run);

/* What step @step of a rank does to its buffers. */
int verify_read(struct verify_run *run, struct verify_rank *r, uint32_t step, uint32_t slot,
		uint64_t off, uint64_t len, struct image *out);
int verify_write(struct verify_run *run, struct verify_rank *r, uint32_t step, uint32_t slot,
		 uint64_t off, uint64_t len, struct image *in);
/* run->value = what is there + run->value, as @flags of the step say */
int verify_add(struct verify_run *run, struct verify_rank *r, uint32_t step, uint32_t slot,
	       uint64_t off, uint64_t len, uint32_t flags);

/* If all shards have one size: from the place of one to that of the next. */
uint64_t verify_shard(const struct coll_args *args);

/* Put the inputs into a rank's buffers; look at what is in them in the end. */
int verify_put_inputs(struct verify_run *run, uint32_t rank);
int verify_check_outputs(struct verify_run *run, uint32_t rank, const struct value *all);

#endif /* COLL_VERIFY_RUN_H */
