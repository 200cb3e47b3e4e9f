/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * comms.h - all ranks of a communicator in this process, on the mock's device.
 */
#ifndef SELFTESTS_LIB_COMMS_H
#define SELFTESTS_LIB_COMMS_H

#include "coll.h"
#include "kselftest.h"
#include "lib/run/comm.h"

/* Makes @n ranks, as @config has it otherwise; 0 or -errno, which it says why. */
static inline int comms_make(struct coll_comm **comms, unsigned int n, struct coll_config config)
{
	struct coll_unique_id id;
	char text[512] = "";
	int rc = coll_get_unique_id(&id);

	config.device = "0";
	config.error_text = text;
	config.error_size = sizeof(text);
	for (unsigned int i = 0; i < n && !rc; i++)
		rc = coll_comm_init_rank(&comms[i], n, &id, i, &config);
	if (rc)
		ksft_print_msg("init: %d %s\n", rc, text);
	return rc;
}

static inline int comms_free(struct coll_comm **comms, unsigned int n)
{
	int rc = 0;

	for (unsigned int i = 0; i < n; i++)
		rc |= coll_comm_destroy(comms[i]);
	return rc;
}

#endif /* SELFTESTS_LIB_COMMS_H */
