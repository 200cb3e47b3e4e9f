// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * collectives.c - what the rows of npulink/collectives.h say about a call: who gives and gets
 * what, and whose it is that must be in the result.
 */
#include "plan/planner.h"

#define ROW(id, name_, v_, givers_, gives_, getters_, gets_, whose_, gathers)	\
	[NPULINK_COLL_##id] = {							\
		.name = name_,							\
		.givers = NPULINK_WHO_##givers_, .gives = NPULINK_PART_##gives_,	\
		.getters = NPULINK_WHO_##getters_, .gets = NPULINK_PART_##gets_,	\
		.whose = NPULINK_WHOSE_##whose_,				\
	},

static const struct coll_kind kinds[NPULINK_COLLS] = { NPULINK_COLLECTIVES(ROW) };

const struct coll_kind *coll_kind(uint32_t collective)
{
	static const struct coll_kind none = { .name = "?" };

	return collective < NPULINK_COLLS ? &kinds[collective] : &none;
}

void coll_set_whole(struct coll_args *args, uint64_t count)
{
	if (coll_kind(args->collective)->gives == NPULINK_PART_NONE)
		count = 0;
	else if (npulink_coll_has_blocks(args->collective))
		count /= args->nranks;
	args->count = count;
}

bool coll_has_rcounts(uint32_t collective)
{
	const struct coll_kind *k = coll_kind(collective);

	return npulink_coll_is_v(collective) && k->gives == NPULINK_PART_BLOCKS &&
	       k->gets == NPULINK_PART_BLOCKS;
}

bool coll_splits(uint32_t collective)
{
	const struct coll_kind *k = coll_kind(collective);

	return k->gives == NPULINK_PART_WHOLE && k->whose != NPULINK_WHOSE_PEER;
}

static struct npulink_place place_of(const struct coll_args *args)
{
	return (struct npulink_place){
		.rank = args->rank, .nranks = args->nranks, .root = args->root,
		.peer = args->peer, .sends = args->send,
	};
}

bool coll_gives(const struct coll_args *args)
{
	struct npulink_place at = place_of(args);

	return npulink_is_one_of(coll_kind(args->collective)->givers, &at);
}

bool coll_gets(const struct coll_args *args)
{
	struct npulink_place at = place_of(args);

	return npulink_is_one_of(coll_kind(args->collective)->getters, &at);
}

uint32_t coll_whose(const struct coll_args *args, uint32_t block)
{
	struct npulink_place at = place_of(args);

	return npulink_whose(coll_kind(args->collective)->whose, &at, block);
}

/*
 * A rank that gets nothing may still name its input by the place of the result, if that
 * has the same length on the ranks that get one.
 */
bool plan_in_place(const struct coll_args *args)
{
	const struct coll_kind *k = coll_kind(args->collective);

	if (!args->in_place || !coll_gives(args) || k->whose == NPULINK_WHOSE_PEER)
		return false;
	return coll_gets(args) || k->gives == k->gets;
}
