// SPDX-License-Identifier: GPL-2.0
/*
 * tsc.c - prints how fast this processor's time stamp counter runs, in kHz, or fails
 *
 * An emulated guest reads the host's counter. It would find out the rate by a timer that is
 * emulated, too, and be wrong by a factor whenever the host was busy at that moment: then its
 * clock is wrong for as long as it runs.
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#if defined(__x86_64__)
#include <x86intrin.h>

struct sample {
	uint64_t ticks;
	double ns;
};

/* Both clocks at the same moment: of several readings the one that took the least time. */
static struct sample sample(void)
{
	struct sample best = {};
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < 100; i++) {
		struct timespec now;
		uint64_t before = __rdtsc();

		clock_gettime(CLOCK_MONOTONIC_RAW, &now);
		uint64_t took = __rdtsc() - before;

		if (took < least) {
			least = took;
			best.ticks = before + took / 2;
			best.ns = now.tv_sec * 1e9 + now.tv_nsec;
		}
	}
	return best;
}

int main(void)
{
	const struct timespec pause = { .tv_nsec = 100000000 };
	struct sample from = sample(), to;

	nanosleep(&pause, NULL);
	to = sample();
	printf("%.0f\n", (to.ticks - from.ticks) / (to.ns - from.ns) * 1e6);
	return 0;
}
#else
int main(void)
{
	return 1;
}
#endif
