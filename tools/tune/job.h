/* SPDX-License-Identifier: GPL-2.0 */
/*
 * job.h - the parts of npulink tune: tune.c (what is measured, and the calibration
 * that comes of it), far.c (what is between machines), fit.c (least squares),
 * sweep.c (is the choice that follows from it the best one?), team.c (the ranks,
 * which are processes).
 */
#ifndef TOOL_TUNE_H
#define TOOL_TUNE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "lib/plan/plan.h"

#define TUNE_MAX_RANKS	64
#define TUNE_MAX_COLS	8

/**
 * struct tune_job - something to be measured
 * @alg: algorithm; its collective is what is called. NPULINK_COLL_P2P: messages to and
 *	 fro between ranks 0 and 1
 * @dtype: NPULINK_INT8 ..
 * @count: elements, as libcoll counts them
 * @seconds: result: of one operation (one way), the shortest mean of all rounds
 */
struct tune_job {
	const struct coll_algorithm *alg;
	uint32_t dtype;
	uint64_t count;
	double seconds;
};

/* What the command line says of how to measure. */
#define TUNE_OPTS_DEFAULT	{ .rounds = 5, .budget = 0.01 }

struct tune_opts {
	uint32_t rounds;	/* each job is measured so often, in turn with the others */
	double budget;		/* seconds for each time */
	const char *topology;	/* as in struct coll_config */
};

/*
 * Measure with so many ranks on the devices that there are. 0, or EXIT_FAILURE after a
 * complaint.
 */
int tune_team(uint32_t nranks, struct tune_job *jobs, uint32_t njobs,
	      const struct tune_opts *opts);

/* Elements of a call of so many bytes, as coll_comm_algorithm() counts them; at least 1. */
uint64_t tune_count(uint32_t collective, uint32_t dtype, uint64_t bytes, uint32_t nranks);

/**
 * tune_fit() - least squares with weights, no coefficient below 0
 * @x: nrows rows of ncols numbers
 * @y: what they should add up to
 * @nrows: rows
 * @ncols: coefficients, at most TUNE_MAX_COLS
 * @coef: result
 *
 * Relative errors count: each row is divided by its @y. Coefficients that come out
 * negative are taken to be 0, and the others are fitted without them.
 */
void tune_fit(const double *x, const double *y, uint32_t nrows, uint32_t ncols, double *coef);

/* The median of how far what was fitted is from what was measured, in parts of that. */
double tune_error(const double *x, const double *y, uint32_t nrows, uint32_t ncols,
		  const double *coef);

/* tune.c: --rounds ('R') and --time ('T'); false if the value makes no sense. */
bool tune_option(struct tune_opts *opts, int c, const char *arg);
/* Where the calibration is if nobody says so. */
const char *tune_default_file(void);
/* Whole or not at all: programs may be reading it. "-" is standard output. */
int tune_write(const char *path, void (*put)(FILE *out, const void *data), const void *data);

/* far.c */
int tune_far(int argc, char **argv);

/* sweep.c */
int tune_sweep(int argc, char **argv);

#endif /* TOOL_TUNE_H */
