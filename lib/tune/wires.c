// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * wires.c - how much messages that are sent at once are in each other's way.
 *
 * Where all ranks send at once, a round takes as long as the link that most of the messages
 * have to pass needs for these, one after the other. Counted once for a topology, for the
 * patterns that forms ask for.
 */
#include <stdlib.h>
#include "simulate/core.h"
#include "tune/wires.h"

/* Links that all patterns together may visit: more than that, and it is not worth it. */
#define VISITS		(1ULL << 28)
#define SHIFTS		16	/* of all shifts, those that are looked at */

struct count {
	const struct coll_net *net;
	uint32_t *links, *way;
};

static void pass(struct count *c, uint32_t src, uint32_t dst)
{
	uint32_t n = src == dst ? 0 : sim_net_route(c->net, src, dst, c->way);

	while (n--)
		c->links[c->way[n]]++;
}

/* Messages that the busiest link has to pass one after the other; forgets them. */
static double busiest(struct count *c)
{
	uint32_t n = coll_net_links(c->net), width = sim_net_width(c->net), most = 0;

	for (uint32_t i = 0; i < n; i++) {
		most = c->links[i] > most ? c->links[i] : most;
		c->links[i] = 0;
	}
	most = (most + width - 1) / width;
	return most > 1 ? most : 1;
}

/* What is busy every other time only. */
static double half(double load)
{
	return load > 2 ? load / 2 : 1;
}

static double shift(struct count *c, uint32_t d)
{
	uint32_t p = c->net->nranks;

	for (uint32_t r = 0; r < p; r++)
		pass(c, r, mod_add(r, d % p, p));
	return busiest(c);
}

static double exchange(struct count *c, uint32_t d)
{
	for (uint32_t r = 0; r < c->net->nranks; r++)
		if ((r ^ d) < c->net->nranks)
			pass(c, r, r ^ d);
	return busiest(c);
}

/* From each rank to its children in a heap: half of them at a time. */
static double heap(struct count *c)
{
	for (uint32_t r = 1; r < c->net->nranks; r++)
		pass(c, (r - 1) / 2, r);
	return half(busiest(c));
}

/* The same in two trees in which parents stand between their children. */
static double trees(struct count *c)
{
	uint32_t p = c->net->nranks;

	for (uint32_t r = 1; r < p; r++) {
		uint32_t low = r & -r, up = r + low < p && !(r & 2 * low) ? r + low : r - low;

		pass(c, up, r);
		pass(c, mod_add(up, 1 % p, p), mod_add(r, 1 % p, p));
	}
	return half(busiest(c));
}

static void fill(struct coll_wires *w, struct count *c)
{
	uint32_t p = c->net->nranks, step = p > SHIFTS ? p / SHIFTS : 1, n = 0;

	for (uint32_t i = 0; 1U << i < p; i++) {
		w->shift[i] = shift(c, 1U << i);
		w->exchange[i] = exchange(c, 1U << i);
	}
	for (uint32_t d = 1; d < p; d += step, n++)
		w->each += shift(c, d);
	w->each = n ? w->each / n : 1;
	w->heap = heap(c);
	w->trees = trees(c);
}

struct coll_wires *coll_wires_make(const struct coll_net *net)
{
	uint64_t hops = sim_net_hops(net), patterns = 2 * lg_ceil(net->nranks) + SHIFTS + 3;
	struct count c = { .net = net };
	struct coll_wires *w = NULL;

	if (!coll_net_links(net) || hops * net->nranks * patterns > VISITS)
		return NULL;
	c.links = calloc(coll_net_links(net), sizeof(*c.links));
	c.way = calloc(hops, sizeof(*c.way));
	if (c.links && c.way)
		w = calloc(1, sizeof(*w));
	if (w)
		fill(w, &c);
	free(c.links);
	free(c.way);
	return w;
}
