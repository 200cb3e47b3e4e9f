/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * topo.h - how ranks are wired.
 */
#ifndef COLL_TUNE_TOPO_H
#define COLL_TUNE_TOPO_H

#include <stddef.h>
#include <stdint.h>
#include "plan/plan.h"

int coll_topo_init(struct coll_topo *topo, const char *wiring, uint32_t nranks, char *text,
		   size_t size);
/* What planners know of a network; its server_of is now the topology's. */
struct coll_net;
struct coll_topo coll_topo_of(const struct coll_net *net);
void coll_topo_free(struct coll_topo *topo);

/* The same from the number of each rank's machine, if there are several and nothing was said. */
int coll_topo_machines(struct coll_topo *topo, const uint32_t *machine, uint32_t nranks);

#endif /* COLL_TUNE_TOPO_H */
