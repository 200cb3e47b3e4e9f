// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * topo.c - how the ranks of a communicator are wired, as its configuration or the
 * environment says: "mesh:4x8", "servers:8", "servers:8,8,4", or two of these
 * with a semicolon between them. Nothing said means one server without a mesh.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/base.h"
#include "simulate/sim.h"
#include "tune/topo.h"

static int parse_item(struct coll_topo *topo, const char *item, uint32_t nranks, char *text,
		      size_t size)
{
	struct coll_net net = { };
	const char *why = NULL;
	bool mesh = !strncmp(item, "mesh:", 5);

	if (!mesh && strncmp(item, "servers:", 8))
		why = "not mesh:ROWSxCOLS or servers:RANKS[,RANKS]..";
	else if (mesh ? topo->rows : topo->nservers)
		why = "said twice";
	if (why || coll_net_parse(item, nranks, &net, &why))
		return coll_text(text, size, -EINVAL,
				 "topology (COLL_TOPOLOGY) \"%.40s\" of %u ranks: %s", item, nranks,
				 why);
	if (mesh) {
		topo->rows = net.rows;
		topo->cols = net.cols;
	} else {
		topo->nservers = net.server_of[nranks - 1] + 1;
		topo->server_of = net.server_of;
	}
	return 0;
}

/* NULL: what COLL_TOPOLOGY says. */
int coll_topo_init(struct coll_topo *topo, const char *wiring, uint32_t nranks, char *text,
		   size_t size)
{
	char *copy, *item, *save;
	int rc = 0;

	*topo = (struct coll_topo) { };
	if (!wiring)
		wiring = secure_getenv("COLL_TOPOLOGY");
	if (!wiring)
		return 0;
	copy = strdup(wiring);
	if (!copy)
		return coll_text(text, size, -ENOMEM, "out of memory");
	for (item = strtok_r(copy, "; ", &save); item && !rc; item = strtok_r(NULL, "; ", &save))
		rc = parse_item(topo, item, nranks, text, size);
	free(copy);
	if (rc)
		coll_topo_free(topo);
	return rc;
}

int coll_topo_machines(struct coll_topo *topo, const uint32_t *machine, uint32_t nranks)
{
	uint32_t *server_of;

	if (topo->nservers)
		return 0;
	/* Planners expect the ranks of a server one after the other. */
	for (uint32_t i = 1; i < nranks; i++)
		if (machine[i] != machine[i - 1] && machine[i] != machine[i - 1] + 1)
			return 0;
	server_of = malloc(nranks * sizeof(*server_of));
	if (!server_of)
		return -ENOMEM;
	topo->nservers = 0;
	for (uint32_t i = 0; i < nranks; i++) {
		server_of[i] = machine[i];
		if (machine[i] >= topo->nservers)
			topo->nservers = machine[i] + 1;
	}
	topo->server_of = server_of;
	return 0;
}

void coll_topo_free(struct coll_topo *topo)
{
	free((void *)topo->server_of);
	*topo = (struct coll_topo) { };
}
