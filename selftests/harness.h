/* SPDX-License-Identifier: GPL-2.0 */
/*
 * harness.h - the kselftest harness, with time for emulated machines: on the debug
 * kernel they are a hundred times slower than what its 30 seconds were meant for, and in
 * make soak there is more to do. selftests/run gives whole programs as much more.
 */
#ifndef SELFTESTS_HARNESS_H
#define SELFTESTS_HARNESS_H

#include "kselftest_harness.h"

#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT 240

static int test_harness_run(int argc, char **argv);

static inline int harness_run(int argc, char **argv)
{
	int times = (getenv("NPULINK_SLOW") ? 6 : 1) * (getenv("NPULINK_SOAK") ? 15 : 1);
	struct __fixture_metadata *f;
	struct __test_metadata *t;

	for (f = __fixture_list; f; f = f->next)
		for (t = f->tests; t; t = t->next)
			t->timeout *= times;
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
