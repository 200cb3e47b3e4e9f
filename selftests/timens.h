/* SPDX-License-Identifier: GPL-2.0 */
/*
 * timens.h - processes whose clock is not the machine's.
 */
#ifndef SELFTESTS_TIMENS_H
#define SELFTESTS_TIMENS_H

#include <sched.h>
#include "raw.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME	0x80
#endif

#define NO_TIME_NAMESPACES	77	/* exit status */

/* fork(), and the child's CLOCK_MONOTONIC is so many seconds ahead of ours. */
static inline pid_t fork_in_time(int ahead)
{
	pid_t pid = fork();
	char line[64];

	if (pid)
		return pid;
	if (unshare(CLONE_NEWTIME))
		_exit(NO_TIME_NAMESPACES);
	snprintf(line, sizeof(line), "monotonic %d 0", ahead);
	RAW_CHECK(!raw_write("/proc/self/timens_offsets", line));
	/* Only children are in it. */
	pid = fork();
	if (pid)
		_exit(raw_reap(pid) != 0);
	return 0;
}

#endif /* SELFTESTS_TIMENS_H */
