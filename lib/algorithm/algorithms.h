/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * algorithms.h - all algorithms there are.
 */
#ifndef COLL_ALGORITHM_ALGORITHMS_H
#define COLL_ALGORITHM_ALGORITHMS_H

#include <stdint.h>
#include "plan/plan.h"

/* A family's table; ends with a row whose name is NULL. */
extern const struct coll_algorithm coll_ring_algorithms[];
extern const struct coll_algorithm coll_mesh_algorithms[];
extern const struct coll_algorithm coll_pairwise_algorithms[];
extern const struct coll_algorithm coll_tree_algorithms[];
extern const struct coll_algorithm coll_rhd_algorithms[];
extern const struct coll_algorithm coll_bruck_algorithms[];
extern const struct coll_algorithm coll_nhr_algorithms[];
extern const struct coll_algorithm coll_pipe_algorithms[];
extern const struct coll_algorithm coll_double_algorithms[];
extern const struct coll_algorithm coll_grid_algorithms[];
extern const struct coll_algorithm coll_servers_algorithms[];

/**
 * coll_algorithm_next() - walk over all algorithms of a collective
 * @collective: NPULINK_COLL_*, or ~0 for all
 * @prev: the one before, NULL to begin
 *
 * Return: the next one, NULL at the end.
 */
const struct coll_algorithm *coll_algorithm_next(uint32_t collective,
						 const struct coll_algorithm *prev);

/* Find by name; NULL if there is none. */
const struct coll_algorithm *coll_algorithm_find(uint32_t collective, const char *name);

#endif /* COLL_ALGORITHM_ALGORITHMS_H */
