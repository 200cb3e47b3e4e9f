/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * smaps.h - what the kernel says of the caller's mappings.
 */
#ifndef SELFTESTS_SMAPS_H
#define SELFTESTS_SMAPS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* How much of the mapping at @mem is not the file's but the process's own. */
static inline long anonymous_kb(const void *mem)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	unsigned long from, to;
	char line[512];
	long kb = -1;
	bool in = false;

	while (f && kb < 0 && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			in = from <= (uintptr_t)mem && (uintptr_t)mem < to;
		else if (in)
			sscanf(line, "Anonymous: %ld kB", &kb);
	}
	if (f)
		fclose(f);
	return kb;
}

#endif /* SELFTESTS_SMAPS_H */
