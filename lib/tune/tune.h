/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * tune.h - which algorithm a call takes, and what it should take.
 */
#ifndef COLL_TUNE_TUNE_H
#define COLL_TUNE_TUNE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/npulink.h>
#include "plan/plan.h"

struct coll_override {
	uint32_t collective;
	uint64_t from, to;
	const struct coll_algorithm *alg;
};

/**
 * struct coll_work_costs - seconds of a processor's time, where devices are software
 * @processors: that ranks of one machine share; 0: devices need none
 * @call: per rank and call
 * @message: per message
 * @request: per request to an engine
 * @copy: per byte that it copies
 * @reduce: per byte that it adds up
 * @reduces: the same by data type
 */
struct coll_work_costs {
	uint32_t processors;
	double call, message, request, copy, reduce, reduces[NPULINK_DTYPES];
};

/**
 * struct coll_tune - what the choice goes by
 * @params: of the closed forms
 * @gamma: of each data type
 * @work: the same things in processor time
 * @calibrated: these are a file's
 * @graph_bytes: as the device says, see struct npulink_device_info; 0: no rank works for all
 * @gathers: the same: collectives in which the last rank to call works for all
 * @gathers_large: the same: collectives in which all work together if they are large
 * @board: what ranks of one machine do without the device; NULL: nothing
 * @far_alpha: seconds per message between machines; negative: as within one
 * @far_beta: seconds per byte between machines, through all ports of one together
 * @overrides: what the user says
 * @noverrides: how many
 */
struct coll_tune {
	struct coll_cost_params params;
	double gamma[NPULINK_DTYPES];
	struct coll_work_costs work;
	bool calibrated;
	uint32_t graph_bytes, gathers, gathers_large;
	bool (*board)(const struct coll_algorithm *alg, const struct coll_args *args);
	double far_alpha, far_beta;
	struct coll_override *overrides;
	unsigned int noverrides;
};

/**
 * struct coll_work - what all ranks of a call do; counted in plans
 * @touched: bytes read and written
 * @messages: sent
 * @requests: to engines
 * @copied: bytes
 * @reduced: bytes
 * @far_messages: to another machine, by the rank that sends or receives most of them
 * @far_bytes: into or out of the machine that has most of them
 */
struct coll_work {
	double messages, requests, copied, reduced, touched;
	double far_messages, far_bytes;
};

int coll_tune_init(struct coll_tune *tune, const char *calibration, const char *overrides,
		   uint32_t nranks, char *text, size_t size);
void coll_tune_free(struct coll_tune *tune);
uint64_t coll_tune_class(uint64_t count);
uint64_t coll_args_bytes(const struct coll_args *args);
const struct coll_algorithm *coll_tune_asked(const struct coll_tune *tune,
					     const struct coll_args *args);
int coll_tune_choose(const struct coll_tune *tune, const struct coll_args *args,
		     const struct coll_algorithm **alg, double *seconds, char *text, size_t size);
struct coll_cost_params coll_tune_network(const struct coll_tune *tune,
					  const struct coll_args *args);

/**
 * struct coll_price - what one row should take for a call
 * @alg: the row
 * @why: it cannot do the call, or NULL
 * @seconds: predicted
 * @simulated: not by its form, but on the wires that there are
 * @order: in which rows are known
 */
struct coll_price {
	const struct coll_algorithm *alg;
	const char *why;
	double seconds;
	bool simulated;
	unsigned int order;
};

#define COLL_PRICES	32	/* more than any collective has rows */

/* All rows of the collective, in order; returns how many. The own rank must not matter. */
unsigned int coll_tune_prices(const struct coll_tune *tune, const struct coll_args *args,
			      struct coll_price prices[COLL_PRICES]);
int coll_price_compare(const void *a, const void *b);
double coll_tune_own_part(const struct coll_tune *tune, const struct coll_algorithm *alg,
			  const struct coll_args *args);

/* What a call should take, see work.c. */

/* 0 or -errno. */
int coll_work_count(const struct coll_algorithm *alg, const struct coll_args *call,
		    struct coll_work *work);
double coll_tune_predict(const struct coll_tune *tune, const struct coll_algorithm *alg,
			 const struct coll_args *args);

#endif /* COLL_TUNE_TUNE_H */
