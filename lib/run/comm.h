/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * comm.h - a rank of a communicator.
 *
 * Locking: coll_dev.lock protects everything below a coll_dev, its
 * communicators and requests included. It is never held while an operation is
 * waited for. Calls that are kept (coll_comm.repeats) belong to who has made them busy, in
 * addition to the lock where they come or go. coll_comm.error_lock protects the error texts
 * only, and is taken inside.
 */
#ifndef COLL_RUN_COMM_H
#define COLL_RUN_COMM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include "base/base.h"
#include "plan/plan.h"
#include "run/board.h"
#include "run/cache.h"
#include "run/dev.h"
#include "run/fresh.h"
#include "run/repeat.h"
#include "tune/choices.h"
#include "tune/tune.h"

struct coll_error;
struct coll_group;
struct coll_request;

/**
 * struct coll_survivors - a communicator of the kernel that coll_comm_shrink() has joined
 * @id: of the kernel
 * @rank: own rank in it
 * @nranks: ranks
 * @map: the rank of each in the one that has failed
 */
struct coll_survivors {
	uint32_t id;
	uint32_t rank, nranks;
	uint32_t map[];
};

/**
 * struct coll_comm - a rank of a communicator
 * @dev: its open file
 * @id: of the kernel
 * @failed: 0, or the -errno of all further operations
 * @posting: threads that post; -1: one has calls on the board, so that none may
 * @posters: threads that wait for that one
 * @collecting: groups that are open
 * @groups: one of each thread that has one open, and those of earlier ones
 * @topo: how the ranks are wired
 * @self_sends: sends to the own rank that no receive has met yet, oldest first
 * @self_recvs: the same for receives
 * @survivors: joined by a coll_comm_shrink() that failed then
 *
 * What every call looks at comes first, within a page or two: where ranks share processors, each
 * comes to what others have driven out of the caches.
 */
struct coll_comm {
	struct coll_dev *dev;
	uint32_t id;
	uint32_t rank, nranks;
	uint64_t deadline_ns;
	size_t copy_max;
	_Atomic int failed;
	_Atomic int posting;
	_Atomic unsigned int posters;
	_Atomic unsigned int collecting;
	struct coll_board board;
	struct coll_group *groups;
	struct coll_repeats repeats;
	struct coll_fresh fresh;
	struct coll_plans plans;
	struct coll_topo topo;
	struct coll_tune tune;
	struct coll_choices choices;
	struct coll_request *self_sends, *self_recvs;
	struct coll_survivors *survivors;
	uint32_t *machine;		/* by rank, NULL: all are on one */
	char (*hosts)[64];		/* by machine: its name, or "" */
	pthread_mutex_t error_lock;
	struct coll_error *errors;
	char warning[COLL_TEXT];
};

/* As planners want it: NULL if nothing is known. */
static inline const struct coll_topo *coll_comm_topo(const struct coll_comm *comm)
{
	return coll_topo_known(&comm->topo) ? &comm->topo : NULL;
}

int coll_comm_enter(struct coll_comm *comm);

#endif /* COLL_RUN_COMM_H */
