// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * net.c - networks: which links a message takes, and what they are called.
 *
 * A network without links that messages share (FULL, SERVERS) is all ports. Of the
 * others, a RING sends the shorter way (upwards if both are as long), a MESH along
 * the row first and then the column, each link having two directions, a TORUS the same
 * with the shorter way around in each; in a TREE a message goes up from its leaf switch on
 * any of its uplinks and down to another one, as if the crossbar in the middle never were
 * in the way.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "simulate/core.h"

struct coll_net coll_net_of(const struct coll_cost_params *params, uint32_t nranks)
{
	return (struct coll_net){
		.kind = COLL_NET_FULL, .nranks = nranks, .ports = params->ports,
		.alpha = { params->alpha, params->alpha },
		.beta = { params->beta, params->beta }, .gamma = params->gamma,
	};
}

static uint32_t group_of(const struct coll_net *net, uint32_t rank)
{
	if (net->kind == COLL_NET_TREE)
		return rank / net->group;
	return net->kind == COLL_NET_SERVERS ? net->server_of[rank] : 0;
}

bool sim_net_near(const struct coll_net *net, uint32_t a, uint32_t b)
{
	return group_of(net, a) == group_of(net, b);
}

uint32_t coll_net_links(const struct coll_net *net)
{
	switch (net->kind) {
	case COLL_NET_RING:
		return 2 * net->nranks;
	case COLL_NET_MESH:
	case COLL_NET_TORUS:
		return 4 * net->nranks;
	case COLL_NET_TREE:
		return 2 * (group_of(net, net->nranks - 1) + 1);
	}
	return 0;
}

uint32_t sim_net_width(const struct coll_net *net)
{
	return net->kind == COLL_NET_TREE ? net->uplinks : 1;
}

uint32_t sim_net_hops(const struct coll_net *net)
{
	switch (net->kind) {
	case COLL_NET_RING:
		return net->nranks / 2 + 1;
	case COLL_NET_MESH:
	case COLL_NET_TORUS:
		return net->rows + net->cols;
	}
	return 2;
}

enum { EAST, WEST, SOUTH, NORTH };

static uint32_t mesh_route(const struct coll_net *net, uint32_t src, uint32_t dst, uint32_t *links)
{
	uint32_t c = net->cols, at = src, n = 0;

	while (at % c != dst % c) {
		bool east = at % c < dst % c;

		links[n++] = 4 * at + (east ? EAST : WEST);
		at += east ? 1 : -1;
	}
	while (at != dst) {
		bool south = at < dst;

		links[n++] = 4 * at + (south ? SOUTH : NORTH);
		at += south ? c : -c;
	}
	return n;
}

static uint32_t torus_route(const struct coll_net *net, uint32_t src, uint32_t dst,
			    uint32_t *links)
{
	uint32_t r = net->rows, c = net->cols, n = 0;
	uint32_t i = src / c, j = src % c, down = mod_sub(dst / c, i, r);
	uint32_t right = mod_sub(dst % c, j, c);

	for (; right && right <= c / 2 && j != dst % c; j = mod_add(j, 1, c))
		links[n++] = 4 * (i * c + j) + EAST;
	for (; j != dst % c; j = mod_sub(j, 1, c))
		links[n++] = 4 * (i * c + j) + WEST;
	for (; down && down <= r / 2 && i != dst / c; i = mod_add(i, 1, r))
		links[n++] = 4 * (i * c + j) + SOUTH;
	for (; i != dst / c; i = mod_sub(i, 1, r))
		links[n++] = 4 * (i * c + j) + NORTH;
	return n;
}

uint32_t sim_net_route(const struct coll_net *net, uint32_t src, uint32_t dst, uint32_t *links)
{
	uint32_t p = net->nranks, n = 0, up;

	switch (net->kind) {
	case COLL_NET_RING:
		up = mod_sub(dst, src, p);
		for (; src != dst && up <= p / 2; src = mod_add(src, 1, p))
			links[n++] = 2 * src;
		for (; src != dst; src = mod_sub(src, 1, p))
			links[n++] = 2 * src + 1;
		break;
	case COLL_NET_MESH:
		return mesh_route(net, src, dst, links);
	case COLL_NET_TORUS:
		return torus_route(net, src, dst, links);
	case COLL_NET_TREE:
		if (!sim_net_near(net, src, dst)) {
			links[n++] = 2 * group_of(net, src);
			links[n++] = 2 * group_of(net, dst) + 1;
		}
	}
	return n;
}

const char *coll_net_link_name(const struct coll_net *net, uint32_t link, char *buf)
{
	uint32_t p = net->nranks, node, c = net->cols, to, way;

	switch (net->kind) {
	case COLL_NET_RING:
		node = link / 2;
		snprintf(buf, COLL_NET_LINK_NAME, "%u->%u", node,
			 link % 2 ? mod_sub(node, 1, p) : mod_add(node, 1 % p, p));
		break;
	case COLL_NET_MESH:
	case COLL_NET_TORUS:
		node = link / 4;
		way = link % 4;
		to = way == EAST ? node - node % c + mod_add(node % c, 1 % c, c) :
		     way == WEST ? node - node % c + mod_sub(node % c, 1 % c, c) :
		     way == SOUTH ? mod_add(node, c % p, p) : mod_sub(node, c % p, p);
		snprintf(buf, COLL_NET_LINK_NAME, "(%u,%u)->(%u,%u)", node / c, node % c, to / c,
			 to % c);
		break;
	default:
		snprintf(buf, COLL_NET_LINK_NAME, "switch %u %s", link / 2,
			 link % 2 ? "down" : "up");
	}
	return buf;
}

/* ---- names */

/* A number from 1 to @max at *@text, which moves behind it. */
static bool number(const char **text, uint32_t max, uint32_t *value)
{
	unsigned long long v;
	char *end;

	if (**text < '1' || **text > '9')
		return false;
	errno = 0;
	v = strtoull(*text, &end, 10);
	if (errno || v > max)
		return false;
	*value = v;
	*text = end;
	return true;
}

/* One size for all servers (the last may have fewer ranks), or that of each. */
static const char *parse_servers(const char *text, struct coll_net *net)
{
	uint32_t p = net->nranks, r = 0, size, server = 0;
	uint32_t *of = malloc(p * sizeof(*of));

	net->server_of = of;
	if (!of)
		return "out of memory";
	if (!number(&text, NPULINK_MAX_RANKS, &size))
		return "not like servers:8 or servers:8,8,4";
	if (!*text) {
		for (; r < p; r++)
			of[r] = r / size;
		return NULL;
	}
	for (;; server++) {
		if (size > p - r)
			return "the servers have more ranks than there are";
		while (size--)
			of[r++] = server;
		if (!*text)
			return r < p ? "the servers have fewer ranks than there are" : NULL;
		if (*text++ != ',' || !number(&text, NPULINK_MAX_RANKS, &size))
			return "not like servers:8 or servers:8,8,4";
	}
}

static const char *parse_grid(const char *text, struct coll_net *net)
{
	if (!number(&text, net->nranks, &net->rows) || *text++ != 'x' ||
	    !number(&text, net->nranks, &net->cols) || *text)
		return net->kind == COLL_NET_MESH ?
		       "not like mesh:4x8, or larger than there are ranks" :
		       "not like torus:4x8, or larger than there are ranks";
	return (uint64_t)net->rows * net->cols == net->nranks ? NULL :
	       net->kind == COLL_NET_MESH ?
	       "the mesh has not as many nodes as there are ranks" :
	       "the torus has not as many nodes as there are ranks";
}

int coll_net_parse(const char *text, uint32_t nranks, struct coll_net *net, const char **error)
{
	net->nranks = nranks;
	net->server_of = NULL;
	*error = NULL;
	if (!strcmp(text, "full")) {
		net->kind = COLL_NET_FULL;
	} else if (!strcmp(text, "ring")) {
		net->kind = COLL_NET_RING;
	} else if (!strncmp(text, "mesh:", 5)) {
		net->kind = COLL_NET_MESH;
		*error = parse_grid(text + 5, net);
	} else if (!strncmp(text, "torus:", 6)) {
		net->kind = COLL_NET_TORUS;
		*error = parse_grid(text + 6, net);
	} else if (!strncmp(text, "tree:", 5)) {
		text += 5;
		net->kind = COLL_NET_TREE;
		if (!number(&text, NPULINK_MAX_RANKS, &net->group) ||
		    (*text && *text != ':')) {
			*error = "not like tree:16 or tree:16:4";
		} else {
			net->uplinks = net->group;
			if (*text && (text++, !number(&text, net->group, &net->uplinks) || *text))
				*error = "not like tree:16:4, or more uplinks than ranks";
		}
	} else if (!strncmp(text, "servers:", 8)) {
		net->kind = COLL_NET_SERVERS;
		*error = parse_servers(text + 8, net);
	} else {
		*error = "not full, ring, mesh:RxC, torus:RxC, tree:N[:M] or servers:N[,N]..";
	}
	if (!*error)
		return 0;
	free((void *)net->server_of);
	net->server_of = NULL;
	return -EINVAL;
}
