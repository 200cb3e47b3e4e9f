/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * mock_pair.h - two ranks of this process on the mock's device, and an allreduce of both whose
 * result is looked at.
 */
#ifndef SELFTESTS_LIB_MOCK_PAIR_H
#define SELFTESTS_LIB_MOCK_PAIR_H

#include "mock.h"
#include "lib/run/comm.h"
#include "lib/run/dev.h"
#include "lib/run/request.h"
#include "comms.h"

#define BIG	30000

static struct coll_comm *comms[2];
static int in[2][BIG], out[2][BIG];

/* As @config has it, or by default. */
static inline void setup(const struct coll_config *config)
{
	const struct coll_config base = COLL_CONFIG_INIT;

	if (comms_make(comms, 2, config ? *config : base))
		ksft_exit_fail_msg("cannot make communicators\n");
	for (int r = 0; r < 2; r++)
		for (int i = 0; i < BIG; i++)
			in[r][i] = r + i;
}

static inline int teardown(void)
{
	return comms_free(comms, 2);
}

/* Rank 1 by request, rank 0 blocking. */
static inline int both(size_t count)
{
	struct coll_request *req;
	int rc, other;

	memset(out, 0, sizeof(out));
	rc = coll_iallreduce(comms[1], in[1], out[1], count, COLL_INT32, COLL_SUM, &req);
	if (rc)
		return rc;
	rc = coll_allreduce(comms[0], in[0], out[0], count, COLL_INT32, COLL_SUM);
	other = coll_wait(&req);
	for (size_t i = 0; i < count && !rc && !other; i++)
		if (out[0][i] != (int)(2 * i + 1) || out[1][i] != out[0][i])
			rc = -EILSEQ;
	return rc ? rc : other;
}

/* What is in use of a device's arena. */
static inline size_t arena_bytes(const struct coll_dev *dev)
{
	size_t n = 0;

	for (size_t i = 0; i < dev->arena_size / COLL_ARENA_GRAIN / 64; i++)
		n += __builtin_popcountll(dev->arena_used[i]);
	return n * COLL_ARENA_GRAIN;
}

#endif /* SELFTESTS_LIB_MOCK_PAIR_H */
