/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * group_kept.h - groups, and those that come again.
 */
#ifndef COLL_RUN_GROUP_KEPT_H
#define COLL_RUN_GROUP_KEPT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <linux/npulink.h>
#include "plan/plan.h"

struct coll_comm;
struct coll_request;

#define COLL_GROUP_KEPT	32	/* calls of a group */

/**
 * struct coll_group - calls of a communicator that a thread collects
 * @comm: whose; NULL: it has gone
 * @next: another one of @comm
 * @later: another communicator's that the thread has opened since
 * @depth: how often it has been opened and not ended
 * @open: calls by @owner are collected
 * @running: closed, but not yet at its end
 * @owner: thread
 * @v: the calls; only @owner touches them, or whose own group it is
 * @kernels: those of them that the kernel gets
 * @nkernels: how many these are, where the group runs beside others
 * @posts: the batch
 * @n: how many calls
 * @cap: for how many there is room
 * @kept: calls of the last group, by their place in it; NULL: it cannot be kept, or has come again
 * @nkept: places that have one, or had
 * @hits: calls that were there
 * @refused: 0, or why a call of the open group was, and so all of it will be
 */
struct coll_group {
	struct coll_comm *_Atomic comm;
	struct coll_group *next, *later;
	unsigned int depth;
	bool open, running;
	pthread_t owner;
	pid_t process;
	struct coll_request **v, **kernels;
	struct npulink_post *posts;
	unsigned int n, nkernels, cap;
	struct coll_request *kept[COLL_GROUP_KEPT];
	unsigned int nkept;
	_Atomic uint64_t hits;
	int refused;
};

bool coll_group_again(struct coll_group *g, const struct coll_args *args, const void *send,
		      const void *recv);
void coll_group_drop(struct coll_group *g, unsigned int i);
void coll_group_keep(struct coll_group *g, unsigned int i, struct coll_request *req);
bool coll_group_forget(struct coll_comm *comm);
uint64_t coll_group_hits(const struct coll_comm *comm);

#endif /* COLL_RUN_GROUP_KEPT_H */
