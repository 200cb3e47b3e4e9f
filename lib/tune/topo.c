// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * topo.c - how the ranks of a communicator are wired, as its configuration or the
 * environment says: "ring", "mesh:4x8", "torus:4x8", "tree:16:4", "servers:8", "servers:8,8,4",
 * or one of the first four and one of the others with a semicolon between them. Nothing said,
 * or "full", means one server in which messages share no links.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/base.h"
#include "simulate/sim.h"
#include "tune/topo.h"
#include "tune/wires.h"

/* What a network means to planners, and to the choice among them. */
static void add_net(struct coll_topo *topo, const struct coll_net *net)
{
	switch (net->kind) {
	case COLL_NET_SERVERS:
		topo->nservers = net->server_of[net->nranks - 1] + 1;
		topo->server_of = net->server_of;
		break;
	case COLL_NET_TREE:
		topo->group = net->group;
		topo->uplinks = net->uplinks;
		break;
	case COLL_NET_MESH:
	case COLL_NET_TORUS:
		topo->rows = net->rows;
		topo->cols = net->cols;
		topo->torus = net->kind == COLL_NET_TORUS;
		break;
	case COLL_NET_RING:
		topo->ring = true;
	}
	if (coll_net_links(net))
		topo->wires = coll_wires_make(net);
}

struct coll_topo coll_topo_of(const struct coll_net *net)
{
	struct coll_topo topo = { };

	add_net(&topo, net);
	return topo;
}

static int parse_item(struct coll_topo *topo, const char *item, uint32_t nranks, char *text,
		      size_t size)
{
	struct coll_net net = { };
	const char *why = NULL;

	if (!coll_net_parse(item, nranks, &net, &why) &&
	    (net.server_of ? topo->nservers : topo->rows || topo->ring || topo->group))
		why = "said twice";
	if (why)
		free((void *)net.server_of);
	if (why)
		return coll_text(text, size, -EINVAL,
				 "topology (COLL_TOPOLOGY) \"%.40s\" of %u ranks: %s", item, nranks,
				 why);
	add_net(topo, &net);
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
	for (uint32_t i = 1; i < nranks; i++) {
		if (machine[i] != machine[i - 1] && machine[i] != machine[i - 1] + 1) {
			topo->scattered = true;
			return 0;
		}
	}
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
	free((void *)topo->wires);
	*topo = (struct coll_topo) { };
}
