/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * cache.h - plans that the kernel has.
 */
#ifndef COLL_RUN_CACHE_H
#define COLL_RUN_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/npulink.h>
#include "plan/plan.h"
#include "run/board.h"

struct coll_comm;

#define COLL_SLOTS	3

/**
 * struct coll_cached - a plan of the communicator
 * @args: what it is for; the arrays are owned by the entry
 * @hash: of @args
 * @chain: next with the same hash bucket
 * @newer: LRU list
 * @older: LRU list
 * @refs: operations that use it
 * @id: of the kernel
 * @nslots: slots
 * @slots: their sizes
 * @len: bytes of each that are used
 * @nsteps: for the limit of the cache
 * @deadline_ns: predicted generously
 * @slow_ns: predicted, with an allowance for other work
 * @alg: algorithm
 * @board: calls that need not be posted, but for their buffers
 * @blocked: a blocking call had it
 */
struct coll_cached {
	struct coll_args args;
	uint64_t hash;
	struct coll_cached *chain, *newer, *older;
	unsigned int refs;
	uint32_t id;
	uint32_t nslots;
	struct npulink_slot slots[COLL_SLOTS];
	size_t len[COLL_SLOTS];
	uint32_t nsteps;
	uint64_t deadline_ns;
	uint64_t slow_ns;
	const struct coll_algorithm *alg;
	struct coll_board_call board;
	bool blocked;
};

#define COLL_PLAN_BUCKETS	64
#define COLL_PLANS_MAX		256
#define COLL_PLAN_STEPS_MAX	(1U << 20)

struct coll_plans {
	struct coll_cached *bucket[COLL_PLAN_BUCKETS];
	struct coll_cached *newest, *oldest;
	unsigned int n;
	uint64_t nsteps;
	uint64_t hits, misses;
};

int coll_plan_get(struct coll_comm *comm, const struct coll_args *args,
		  struct coll_cached **cached);
void coll_plan_free_all(struct coll_comm *comm, bool destroy);

#endif /* COLL_RUN_CACHE_H */
