/* SPDX-License-Identifier: GPL-2.0 */
/*
 * number.h - numbers of operations: where they begin, how they compare, what users see.
 *
 * The number of a collective counts those of its rank, that of a point-to-point operation those
 * of its pair of ranks. A process can name any number to the kernel, in POST or over a
 * network, so none of them stands for "none", and all comparisons hold across the wrap. On a
 * kernel with lockdep all numbers begin just below it, as jiffies do, so that the tests pass it.
 * Users and other nodes see numbers that begin with 0: npulink_told().
 */
#ifndef NPULINK_NUMBER_H
#define NPULINK_NUMBER_H

#include <linux/kconfig.h>
#include <linux/types.h>

/* What a counter of type @type begins with, if it need not begin with 0. */
#define NPULINK_FIRST_OF(type, before_wrap) \
	((type)(IS_ENABLED(CONFIG_PROVE_LOCKING) ? -(type)(before_wrap) : 0))

#define NPULINK_FIRST_NUMBER	NPULINK_FIRST_OF(u64, 20)
#define NPULINK_FIRST_SERIAL	NPULINK_FIRST_OF(u32, 20)	/* of a rank's operations */

/* As users and other nodes know it. */
static inline u64 npulink_told(u64 number)
{
	return number - NPULINK_FIRST_NUMBER;
}

static inline u32 npulink_told_serial(u32 serial)
{
	return serial - NPULINK_FIRST_SERIAL;
}

/* As we do. */
static inline u64 npulink_number(u64 told)
{
	return told + NPULINK_FIRST_NUMBER;
}

static inline bool npulink_number_before(u64 a, u64 b)
{
	return (s64)(a - b) < 0;
}

#endif /* NPULINK_NUMBER_H */
