/* SPDX-License-Identifier: GPL-2.0 */
/*
 * peers_join.h - see peers_join.c.
 */
#ifndef TOOL_MEET_H
#define TOOL_MEET_H

#include <coll.h>

#define MEET_PORT	29500	/* torchrun's */

/* Where rank 0 is: --master_addr and --master_port. */
struct meeting {
	const char *host;
	uint32_t port;
};

/* As coll_comm_init_env(), with the secret of COLL_KEY or COLL_KEY_FILE, by the environment. */
int meet_as(struct coll_comm **comm, uint32_t rank, uint32_t nranks, const struct meeting *at,
	    const struct coll_config *config);

#endif /* TOOL_MEET_H */
