/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * check.h - compares closed forms with the simulator.
 */
#ifndef COLL_SIM_CHECK_H
#define COLL_SIM_CHECK_H

#include "simulate/sim.h"

/* How far a form that is called exact may be off, relatively. */
#define COLL_SIM_CLOSE	(1 / 1e9)

/**
 * struct coll_sim_check - what became of one algorithm
 * @points: calls that were simulated
 * @messages: in them
 * @worst: largest relative difference, simulated less form; of an upper bound only
 *	   if above it
 * @slack: upper bounds: how far below the simulation came at most
 * @form: of the worst one
 * @simulated: of the worst one
 * @where: of the worst one
 * @below: calls that were faster than a lower bound
 * @where_below: one of them
 * @stuck: calls that do not end if steps are taken in list order
 * @text: one of them
 */
struct coll_sim_check {
	uint64_t points, messages;
	double worst, slack, form, simulated;
	char where[120];
	uint64_t below, stuck;
	char where_below[120], text[200];
};

/**
 * coll_sim_check() - check an algorithm
 * @alg: algorithm
 * @max_ranks: leave out larger ones; 128 for everything
 * @brief: fewer roots and sizes
 * @report: result
 *
 * Return: 0 or -errno; look at the report for what is wrong.
 */
int coll_sim_check(const struct coll_algorithm *alg, uint32_t max_ranks, bool brief,
		   struct coll_sim_check *report);

#endif /* COLL_SIM_CHECK_H */
