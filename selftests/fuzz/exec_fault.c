// SPDX-License-Identifier: GPL-2.0
/*
 * exec_fault.c - calls of a program that make devices and allocations fail, devices come
 * and go, and modules behave otherwise. Ordinary users try it, too, and must not succeed.
 */
#include <assert.h>
#include "exec.h"
#include "raw.h"

static void privileged(const char *path, const char *text)
{
	if (!raw_write(path, text) && ex.env->root && !ex.root)
		exec_complain("an ordinary user may write %s", path);
}

/* ---- knobs of the software devices, kernel/soft/debugfs.c */

static const struct {
	const char *name;
	enum { COUNT, NS, HOLD, TIMING, LINK } kind;
} knobs[] = {
	{ "drop_irq", COUNT }, { "dup_irq", COUNT }, { "fail_post", COUNT }, { "corrupt", COUNT },
	{ "corrupt_link", COUNT }, { "release", COUNT }, { "delay_ns", NS }, { "hold", HOLD },
	{ "irq_ns", NS }, { "timing", TIMING }, { "link", LINK },
};

static void whom(struct rnd *r, char *text, size_t size)
{
	if (rnd_one_in(r, 3))
		snprintf(text, size, "all");
	else
		snprintf(text, size, "npu%u", rnd_below(r, ex.env->ndev + 1));
}

static void knob_text(struct rnd *r, uint32_t k, uint8_t bend, char *text, size_t size)
{
	char who[16];

	whom(r, who, sizeof(who));
	switch (knobs[k].kind) {
	case COUNT:
		snprintf(text, size, "%u", 1 + rnd_below(r, 8));
		break;
	case NS:
		snprintf(text, size, "%u", rnd_below(r, 2000000));
		break;
	case HOLD:
		snprintf(text, size, "%llu", rnd_one_in(r, 3) ? RAW_HOLD_OFF :
			 (unsigned long long)rnd_below(r, 6));
		break;
	case TIMING:
		snprintf(text, size, "%s %u %u %u", who, rnd_below(r, 200000),
			 rnd_below(r, 20000), rnd_below(r, 20000));
		break;
	case LINK:
		snprintf(text, size, "%s %s", who, rnd_one_in(r, 3) ? "up" : "down");
	}
	if (bend & 1)
		gen_bend_bytes(r, text, strlen(text));
	else if (bend & 2)
		snprintf(text, size, "%s %llu %llu", who, (unsigned long long)rnd_odd(r),
			 (unsigned long long)rnd_odd(r));
	else if (bend & 4)
		memset(text, '7', rnd_below(r, size - 1));
}

#define PARAMETERS	"/sys/module/npulink/parameters/"

const struct exec_param exec_params[] = {
	{ PARAMETERS "corrupt_far", 8 }, { PARAMETERS "deadlock_ms", 200 },
	{ PARAMETERS "flight_keep", 40 }, { PARAMETERS "flight_steps", 5000 },
	{ PARAMETERS "max_user_objects", 60 }, { PARAMETERS "max_user_workers", 20 },
	{ PARAMETERS "max_user_sessions", 10 }, { PARAMETERS "scripts", 2 },
	{ PARAMETERS "spin_ns", 100000 }, { RAW_INLINE_MAX, 200000 },
};
static_assert(ARRAY_SIZE(exec_params) == EXEC_PARAMS, "all can be put back");

static void set_param(struct rnd *r)
{
	const struct exec_param *p = &exec_params[rnd_below(r, EXEC_PARAMS)];
	char text[32];

	snprintf(text, sizeof(text), "%llu", rnd_one_in(r, 16) ?
		 (unsigned long long)rnd_odd(r) : rnd_below(r, p->limit));
	privileged(p->path, text);
	if (rnd_one_in(r, 4))
		raw_read(p->path);
}

void exec_knob(struct rnd *r, uint8_t bend)
{
	static const char * const engines[] = {
		"scalar", "swar", "sse2", "avx2", "avx512", "auto", "none",
	};
	uint32_t k = rnd_below(r, ARRAY_SIZE(knobs) + 4);
	char path[128], text[128] = "";

	if (k > ARRAY_SIZE(knobs))
		return set_param(r);
	if (k == ARRAY_SIZE(knobs)) {
		if (rnd_one_in(r, 4))
			raw_read(RAW_KNOBS "/engine");
		return privileged(RAW_KNOBS "/engine", engines[rnd_below(r, ARRAY_SIZE(engines))]);
	}
	snprintf(path, sizeof(path), RAW_KNOBS "/npu%u/%s", rnd_below(r, ex.env->ndev),
		 knobs[k].name);
	knob_text(r, k, bend, text, sizeof(text));
	privileged(path, text);
	if (rnd_one_in(r, 3))
		raw_read(path);
}

/* ---- devices */

void exec_device(struct rnd *r, uint8_t bend)
{
	static const char * const wrong[] = {
		"0", "65", "-1", "npux", "npu999", "", "99999999999",
	};
	uint32_t what = rnd_below(r, 4);
	char text[32];

	if (bend & 1) {
		const char *one = wrong[rnd_below(r, ARRAY_SIZE(wrong))];

		raw_write(rnd_one_in(r, 2) ? RAW_SOFT "/new_device" : RAW_SOFT "/del_device", one);
		return;
	}
	snprintf(text, sizeof(text), "npu%u", rnd_below(r, ex.env->ndev));
	if (what)
		privileged(RAW_SOFT "/del_device", text);
	if (rnd_one_in(r, 2))
		usleep(rnd_below(r, 2000));
	/* Takes the lowest number that is free, so most often the same. */
	if (what != 1)
		privileged(RAW_SOFT "/new_device", "1");
}

/* ---- allocations */

void exec_fail_nth(struct rnd *r, uint8_t bend)
{
	char n[8];

	snprintf(n, sizeof(n), "%u", 1 + rnd_below(r, rnd_one_in(r, 4) ? 40 : 8));
	raw_write("/proc/thread-self/fail-nth", n);
}
