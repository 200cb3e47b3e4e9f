/* SPDX-License-Identifier: GPL-2.0 */
/*
 * link_probe.h - messages over links, for npulink link test and npulink doctor.
 */
#ifndef TOOL_LINK_TEST_H
#define TOOL_LINK_TEST_H

#include "cli/npulink.h"

/* Name of a process while it tests links. */
#define PROBE_TASK	"npulink-probe"

/**
 * struct link_result - one direction of one link
 * @from: device that sent
 * @to: device that received
 * @error: 0, or the -errno that it failed with, ..
 * @text: .. in words
 * @wrong: bytes that did not arrive as they were sent
 * @alpha: seconds that the quickest message of 8 bytes took
 * @beta: seconds per byte of large ones, beyond that
 */
struct link_result {
	uint32_t from, to;
	int error;
	char text[300];
	uint64_t wrong;
	double alpha, beta;
};

/* Those of device @only, or ANY_DEV, that the user may open. -errno; *results to be freed. */
int link_test(uint32_t only, struct link_result **results, size_t *nresults);

#endif /* TOOL_LINK_TEST_H */
