// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * clock.c - the clock that deadlines are of.
 */
#include <time.h>
#include "base/base.h"

uint64_t coll_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}
