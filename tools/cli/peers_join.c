// SPDX-License-Identifier: GPL-2.0
/*
 * peers_join.c - commands that measure between machines: they are started on each of them, and
 * meet as processes do that a launcher has started.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include "cli/peers_join.h"
#include "lib/run/comm.h"

int meet_as(struct coll_comm **comm, uint32_t rank, uint32_t nranks, const struct meeting *at,
	    const struct coll_config *config)
{
	const struct {
		const char *name;
		uint32_t value;
	} numbers[] = { { "RANK", rank }, { "WORLD_SIZE", nranks }, { "COLL_PORT", at->port } };
	char text[12];

	*comm = NULL;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		snprintf(text, sizeof(text), "%u", numbers[i].value);
		if (setenv(numbers[i].name, text, 1))
			return -ENOMEM;
	}
	if (setenv("MASTER_ADDR", at->host, 1))
		return -ENOMEM;
	return coll_comm_init_env(comm, config);
}
