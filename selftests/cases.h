/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * cases.h - some of a program's cases only, those that selftests/run --case names: for who looks
 * into one of them, and for selftests/mutants.
 */
#ifndef SELFTESTS_CASES_H
#define SELFTESTS_CASES_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Is it one of them? Without NPULINK_CASES, all are. */
static inline bool case_chosen(const char *name)
{
	const char *words = getenv("NPULINK_CASES");
	char copy[4096], *word, *rest;

	if (!words)
		return true;
	snprintf(copy, sizeof(copy), "%s", words);
	for (word = strtok_r(copy, "|", &rest); word; word = strtok_r(NULL, "|", &rest))
		if (strstr(name, word))
			return true;
	return false;
}

/* The result of a case that is chosen; of others, @ok is not even looked at. */
#define chosen_result(ok, ...) do { \
	char name_[256]; \
	snprintf(name_, sizeof(name_), __VA_ARGS__); \
	if (case_chosen(name_)) \
		ksft_test_result(ok, "%s", name_); \
	else \
		ksft_test_result_skip("%s", name_); \
} while (0)

#endif /* SELFTESTS_CASES_H */
