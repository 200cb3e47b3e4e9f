/* SPDX-License-Identifier: GPL-2.0 */
/*
 * clock.h - what time it is.
 */
#ifndef NPULINK_CLOCK_H
#define NPULINK_CLOCK_H

#include <linux/sched/clock.h>
#include <linux/time_namespace.h>

/* All times of operations and steps are on this clock. */
static inline u64 npulink_clock(void)
{
	return local_clock();
}

/* What CLOCK_MONOTONIC of this task, which may be in a time namespace, is ahead of the kernel's. */
static inline s64 npulink_clock_offset(void)
{
	struct timespec64 offset = {};

	timens_add_monotonic(&offset);
	return timespec64_to_ns(&offset);
}

#endif /* NPULINK_CLOCK_H */
