// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * algorithms.c - all algorithm families, in the order in which they are listed.
 */
#include <string.h>
#include "algorithm/algorithms.h"
#include "base/base.h"
#include "plan/planner.h"

static const struct coll_algorithm * const families[] = {
	coll_ring_algorithms,
	coll_mesh_algorithms,
	coll_pairwise_algorithms,
	coll_tree_algorithms,
	coll_rhd_algorithms,
	coll_bruck_algorithms,
	coll_nhr_algorithms,
	coll_pipe_algorithms,
	coll_double_algorithms,
	coll_grid_algorithms,
	coll_servers_algorithms,
};

/* Which table @alg is in: rows are found again by their address. */
static size_t family_of(const struct coll_algorithm *alg)
{
	const struct coll_algorithm *row;
	size_t f;

	for (f = 0; f < ARRAY_SIZE(families); f++)
		for (row = families[f]; row->name; row++)
			if (row == alg)
				return f;
	return ARRAY_SIZE(families);
}

const struct coll_algorithm *coll_algorithm_next(uint32_t collective,
						 const struct coll_algorithm *prev)
{
	size_t f = prev ? family_of(prev) : 0;
	const struct coll_algorithm *row = prev ? prev + 1 : families[0];

	while (f < ARRAY_SIZE(families)) {
		for (; row->name; row++)
			if (collective == ~0U || row->collective == collective)
				return row;
		if (++f < ARRAY_SIZE(families))
			row = families[f];
	}
	return NULL;
}

const struct coll_algorithm *coll_algorithm_find(uint32_t collective, const char *name)
{
	const struct coll_algorithm *row = NULL;

	while ((row = coll_algorithm_next(collective, row)))
		if (!strcmp(row->name, name))
			return row;
	return NULL;
}
