/* SPDX-License-Identifier: GPL-2.0 */
/*
 * failnth_fixture.h - for sweeps of failnth.h that are tests of the harness.
 */
#ifndef SELFTESTS_FAILNTH_FIXTURE_H
#define SELFTESTS_FAILNTH_FIXTURE_H

#include "failnth.h"
#include "harness.h"

FIXTURE(failnth) {
};

FIXTURE_SETUP(failnth)
{
	if (nth_init())
		SKIP_CASE("the kernel cannot inject failures");
	raw_knobs_reset(2);
}

FIXTURE_TEARDOWN(failnth)
{
}

#endif /* SELFTESTS_FAILNTH_FIXTURE_H */
