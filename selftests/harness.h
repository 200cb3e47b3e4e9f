/* SPDX-License-Identifier: GPL-2.0 */
/*
 * harness.h - the kselftest harness, with time for emulated machines: on the debug
 * kernel they are a hundred times slower than what its 30 seconds were meant for, and in
 * make soak there is more to do. selftests/run gives whole programs as much more. And a choice
 * of cases, see cases.h.
 */
#ifndef SELFTESTS_HARNESS_H
#define SELFTESTS_HARNESS_H

#include "cases.h"
#include "kselftest_harness.h"

#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT 240

/* For FIXTURE_SETUP: after a return from there, 6.1's harness runs the case all the same. */
#define SKIP_CASE(...) SKIP(longjmp(_metadata->env, 1), __VA_ARGS__)

static int test_harness_run(int argc, char **argv);

static inline bool harness_chosen(const struct __fixture_metadata *f,
				  const struct __fixture_variant_metadata *v,
				  const struct __test_metadata *t)
{
	char name[256];

	snprintf(name, sizeof(name), "%s%s%s.%s", f->name, v && *v->name ? "." : "",
		 v ? v->name : "", t->name);
	return case_chosen(name);
}

/* Leave out what selftests/run --case does not name. False: that is all there is. */
static inline bool harness_choose(struct __fixture_metadata *f)
{
	struct __fixture_variant_metadata *v, **vp;
	struct __test_metadata *t, **tp;
	bool wanted;

	for (tp = &f->tests; (t = *tp); ) {
		v = f->variant;
		do {
			wanted = harness_chosen(f, v, t);
			v = v ? v->next : NULL;
		} while (v && !wanted);
		if (wanted)
			tp = &t->next;
		else
			*tp = t->next;
	}
	for (vp = &f->variant; (v = *vp); ) {
		wanted = false;
		for (t = f->tests; t && !wanted; t = t->next)
			wanted = harness_chosen(f, v, t);
		if (wanted)
			vp = &v->next;
		else
			*vp = v->next;
	}
	return f->tests;
}

static inline int harness_run(int argc, char **argv)
{
	int times = (getenv("NPULINK_SLOW") ? 6 : 1) * (getenv("NPULINK_SOAK") ? 15 : 1);
	const char *limit = getenv("NPULINK_LIMIT");
	struct __fixture_metadata *f;
	struct __test_metadata *t;
	bool any = false;

	for (f = __fixture_list; f; f = f->next) {
		any |= harness_choose(f);
		/* One that hangs is to be named, which it is not if the whole program is ended. */
		for (t = f->tests; t; t = t->next)
			t->timeout = limit ? atoi(limit) * 3 / 4 : t->timeout * times;
	}
	if (!any)
		ksft_exit_fail_msg("no such case\n");
	return test_harness_run(argc, argv);
}

#undef TEST_HARNESS_MAIN
#define TEST_HARNESS_MAIN \
	static void __attribute__((constructor)) __constructor_order_last(void) \
	{ \
		if (!__constructor_order) \
			__constructor_order = _CONSTRUCTOR_ORDER_BACKWARD; \
	} \
	int main(int argc, char **argv) \
	{ \
		exit(harness_run(argc, argv)); \
	}

#endif /* SELFTESTS_HARNESS_H */
