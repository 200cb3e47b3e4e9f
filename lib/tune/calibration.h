/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * calibration.h - what the network costs.
 */
#ifndef COLL_TUNE_CALIBRATION_H
#define COLL_TUNE_CALIBRATION_H

#include <stddef.h>
#include <stdint.h>
#include <linux/npulink.h>
#include "tune/tune.h"

int coll_calibration_read(struct coll_tune *tune, const char *path, uint32_t nranks, char *text,
			  size_t size);
void coll_calibration_device(struct coll_tune *tune, const struct npulink_device_info *info,
			     uint32_t nranks);
double coll_strtod(const char *s, char **end);

/* All numbers of a calibration, as one rank tells the others. */
#define COLL_COSTS	(14 + 2 * NPULINK_DTYPES)

void coll_calibration_pack(const struct coll_tune *tune, float *costs);
void coll_calibration_unpack(struct coll_tune *tune, const float *costs, uint32_t nranks);

#endif /* COLL_TUNE_CALIBRATION_H */
