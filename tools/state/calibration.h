/* SPDX-License-Identifier: GPL-2.0 */
/*
 * calibration.h - what npulink tune has measured.
 */
#ifndef TOOL_CALIBRATION_H
#define TOOL_CALIBRATION_H

#include <stdint.h>

struct coll_tune;

/* The file that libcoll would use, NULL if there is none, or it cannot. */
struct calibration {
	const char *file;
	double alpha, beta;	/* seconds, seconds per byte */
	char bad[400];		/* why it cannot, or empty */
};

void calibration_get(struct calibration *cal);
void calibration_guess(struct coll_tune *tune, uint32_t nranks);

#endif /* TOOL_CALIBRATION_H */
