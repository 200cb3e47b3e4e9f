// SPDX-License-Identifier: GPL-2.0
/*
 * calibration.c - what npulink tune has measured, for those who show it or compare with it.
 */
#include <stdlib.h>
#include <unistd.h>
#include "internal.h"
#include "plan_net.h"

#define DEFAULT_FILE	"/etc/npulink/calibration"

/* As libcoll would find it. */
void calibration_get(struct calibration *cal)
{
	const char *file = getenv("COLL_CALIBRATION") ?: DEFAULT_FILE;
	struct coll_tune tune = { };
	char text[400];

	*cal = (struct calibration) { };
	if (!*file || access(file, R_OK) ||
	    coll_calibration_read(&tune, file, 2, text, sizeof(text)))
		return;
	cal->file = file;
	cal->alpha = tune.params.alpha;
	cal->beta = tune.params.beta;
}
