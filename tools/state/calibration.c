// SPDX-License-Identifier: GPL-2.0
/*
 * calibration.c - what npulink tune has measured, for those who show it or compare with it.
 */
#include <stdlib.h>
#include "lib/run/dev.h"
#include "lib/run/drv.h"
#include "lib/tune/calibration.h"
#include "lib/tune/tune.h"
#include "state/calibration.h"

#define DEFAULT_FILE	"/etc/npulink/calibration"

/* As libcoll would find it. */
void calibration_get(struct calibration *cal)
{
	struct coll_tune tune = { };

	*cal = (struct calibration) { };
	if (coll_calibration_read(&tune, NULL, 2, cal->bad, sizeof(cal->bad)) || !tune.calibrated)
		return;
	cal->file = getenv("COLL_CALIBRATION") ?: DEFAULT_FILE;
	cal->alpha = tune.params.alpha;
	cal->beta = tune.params.beta;
}

/* As libcoll would guess it, if there is a device here that a program would open. */
void calibration_guess(struct coll_tune *tune, uint32_t nranks)
{
	struct npulink_device_info info;
	struct coll_drv drv = { .fd = -1 };
	char path[128];

	if (!coll_drv_device(getenv("COLL_DEVICE"), 0, path, sizeof(path)) &&
	    !coll_drv_open(&drv, path) && !coll_drv_info(&drv, &info))
		coll_dev_costs(&info, tune, nranks);
	coll_drv_close(&drv);
}
