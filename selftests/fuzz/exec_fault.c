// SPDX-License-Identifier: GPL-2.0
/*
 * exec_fault.c - calls of a program that make devices and allocations fail.
 */
#include "exec.h"
#include "raw.h"

void exec_knob(struct rnd *r, uint8_t bend)
{
	static const char * const knobs[] = { "drop_irq", "dup_irq", "fail_post", "delay_ns" };
	uint32_t k = rnd_below(r, 4);

	if (ex.env->root)
		raw_knob(rnd_below(r, ex.env->ndev), knobs[k],
			 k == 3 ? rnd_below(r, 2000000) : 1 + rnd_below(r, 8));
}

void exec_fail_nth(struct rnd *r, uint8_t bend)
{
	char n[8];

	snprintf(n, sizeof(n), "%u", 1 + rnd_below(r, rnd_one_in(r, 4) ? 40 : 8));
	if (ex.env->root)
		raw_write("/proc/thread-self/fail-nth", n);
}
