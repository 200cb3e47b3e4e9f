/* SPDX-License-Identifier: GPL-2.0 */
/*
 * harness.h - the kselftest harness, with time for emulated machines: on the debug
 * kernel they are a hundred times slower than what its 30 seconds were meant for.
 */
#ifndef SELFTESTS_HARNESS_H
#define SELFTESTS_HARNESS_H

#include "kselftest_harness.h"

#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT 240

#endif /* SELFTESTS_HARNESS_H */
