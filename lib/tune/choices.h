/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * choices.h - what coll_tune_choose() has said, for calls that differ in their counts.
 */
#ifndef COLL_TUNE_CHOICES_H
#define COLL_TUNE_CHOICES_H

#include <stdint.h>
#include "tune/tune.h"

#define COLL_CHOICES	64

/**
 * struct coll_choice - the algorithm of calls that are much alike
 * @call: one of them, with the count of its class and without arrays
 * @alg: the choice; NULL: none is known
 * @seconds: that it should take
 */
struct coll_choice {
	struct coll_args call;
	const struct coll_algorithm *alg;
	double seconds;
};

/* A later choice takes the place of an earlier one. All zeroes: there is none. */
struct coll_choices {
	struct coll_choice v[COLL_CHOICES];
};

int coll_choices_get(struct coll_choices *choices, const struct coll_tune *tune,
		     const struct coll_args *args, const struct coll_algorithm **alg,
		     double *seconds, char *text, size_t size);

#endif /* COLL_TUNE_CHOICES_H */
