/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * set.h - proves the plans of all ranks correct together: that they meet,
 * end, race nowhere, and leave in every byte what the collective is defined to.
 */
#ifndef COLL_VERIFY_SET_H
#define COLL_VERIFY_SET_H

#include "plan/plan.h"

/**
 * struct coll_set - the plans of all ranks
 * @nranks: ranks
 * @get: make @rank's plan and say what it was made for. @args may point to memory
 *	 that lives as long as the set. Return 0 or -errno. The plan is freed with
 *	 coll_plan_free()
 * @ctx: for @get
 * @seed: of the random numbers that stand for the ranks' inputs
 */
struct coll_set {
	uint32_t nranks;
	int (*get)(void *ctx, uint32_t rank, struct coll_args *args, struct coll_plan *plan);
	void *ctx;
	uint64_t seed;
};

/**
 * struct coll_verify_report - what was found
 * @rank: where it is wrong
 * @step: step of that rank, ~0 if it is not about one
 * @slot: slot of @off, ~0 if it is not about bytes
 * @off: first byte concerned
 * @len: bytes concerned
 * @reason: one line
 * @steps: steps of all ranks
 * @messages: messages between ranks
 * @bytes: bytes in them
 * @scratch: largest scratch memory of a rank
 * @in_order: every result is added up in the order of ranks (but for swapped
 *	      operands)
 */
struct coll_verify_report {
	uint32_t rank, step, slot;
	uint64_t off, len;
	char reason[200];
	uint64_t steps, messages, bytes, scratch;
	bool in_order;
};

/**
 * coll_verify_set() - prove the plans of a set correct
 * @set: the plans
 * @report: what was found; counts are also valid on success
 *
 * Nothing is assumed about buffering: a send ends only when its receiver has
 * taken it, a windowed step only takes what the next rank takes from it.
 *
 * Return: 0 if proved, -EINVAL if not, with @report; else -errno (-ENOMEM, what
 * @get returned).
 */
int coll_verify_set(const struct coll_set *set, struct coll_verify_report *report);

/**
 * coll_verify_flow() - the same in one order of execution that takes little memory
 * @set: the plans
 * @report: what was found
 *
 * Steps are taken in the order of the lists, and plans are not kept.
 * coll_verify_set() does that itself for many ranks.
 *
 * Return: as coll_verify_set(); -EOPNOTSUPP if that order does not lead to the end, or it
 * is a barrier.
 */
int coll_verify_flow(const struct coll_set *set, struct coll_verify_report *report);

/**
 * coll_verify_rotation() - the same by symmetry, if all plans are rank 0's turned
 * @set: the plans
 * @report: what was found
 *
 * Compares every rank's plan with rank 0's, one at a time, and then executes rank
 * 0's alone: for plan sets with so many messages that they do not fit in memory.
 *
 * Return: as coll_verify_set(); -EOPNOTSUPP if they are not rank 0's turned, or add up
 * ranks that are no neighbours.
 */
int coll_verify_rotation(const struct coll_set *set, struct coll_verify_report *report);

/**
 * struct coll_planned - the set of plans that an algorithm makes for one call
 * @alg: algorithm
 * @args: call; the rest as coll_verify_algorithm() says
 * @rcounts: alltoallv: the counts transposed
 */
struct coll_planned {
	const struct coll_algorithm *alg;
	struct coll_args args;
	uint64_t *rcounts;
};

/*
 * Fill in both; @set refers to @p, to be freed in any case. Return 0, -ENOMEM, or
 * -EOPNOTSUPP for p2p among other than 2 ranks.
 */
int coll_planned_init(struct coll_planned *p, const struct coll_algorithm *alg,
		      const struct coll_args *args, struct coll_set *set);
void coll_planned_free(struct coll_planned *p);

/**
 * coll_verify_algorithm() - prove what an algorithm plans for one call
 * @alg: algorithm
 * @args: call, @args->rank is not looked at. p2p: rank 0 sends to rank 1 of 2.
 *	  alltoallv: @args->counts has nranks * nranks elements, row by sender; both
 *	  displacements are NULL
 * @report: what was found
 */
int coll_verify_algorithm(const struct coll_algorithm *alg, const struct coll_args *args,
			  struct coll_verify_report *report);

#endif /* COLL_VERIFY_SET_H */
