// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * choices.c - what coll_tune_choose() has said, for calls that differ in their counts.
 *
 * A choice takes a hundred times as long as a plan: it counts the work of each algorithm in the
 * plans of all ranks. Counts of one class have one choice, see coll_tune_class(), so a program
 * whose counts change all the time makes few.
 */
#include <npulink/verify.h>
#include "tune/choices.h"

/* Does the choice go by nothing but what is compared here? */
static bool is_plain(const struct coll_tune *tune, const struct coll_args *args)
{
	bool by_counts = npulink_coll_is_v(args->collective) &&
			 args->collective != NPULINK_COLL_ALLTOALLV;

	return !by_counts && !tune->noverrides;
}

static bool is_alike(const struct coll_args *a, const struct coll_args *b, uint64_t count)
{
	return a->count == count && a->collective == b->collective && a->dtype == b->dtype &&
	       a->redop == b->redop && a->root == b->root && a->peer == b->peer &&
	       a->send == b->send && a->topo == b->topo;
}

/* As coll_tune_choose(), of one communicator. */
int coll_choices_get(struct coll_choices *choices, const struct coll_tune *tune,
		     const struct coll_args *args, const struct coll_algorithm **alg,
		     double *seconds, char *text, size_t size)
{
	uint64_t count = coll_tune_class(args->count), hash;
	struct coll_choice *c;
	int rc;

	if (!is_plain(tune, args))
		return coll_tune_choose(tune, args, alg, seconds, text, size);
	hash = coll_hash_add(COLL_HASH_INIT, count);
	hash = coll_hash_add(hash, args->collective << 16 | args->dtype << 8 | args->redop);
	c = &choices->v[coll_hash_add(hash, args->root ^ args->peer) % COLL_CHOICES];
	if (!c->alg || !is_alike(&c->call, args, count)) {
		rc = coll_tune_choose(tune, args, &c->alg, &c->seconds, text, size);
		if (rc) {
			c->alg = NULL;
			return rc;
		}
		c->call = *args;
		c->call.count = count;
		c->call.counts = NULL;
		c->call.displs = NULL;
		c->call.rcounts = NULL;
		c->call.rdispls = NULL;
	}
	*alg = c->alg;
	*seconds = c->seconds;
	return 0;
}
