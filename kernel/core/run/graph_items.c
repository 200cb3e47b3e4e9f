// SPDX-License-Identifier: GPL-2.0
/*
 * graph_items.c - what of a graph can be run at a time.
 *
 * The requests of a graph of which one copies what the other has written, or reads, are put
 * together: an item has inputs, and places where the result is to be. If no item touches what
 * another one writes, then items can be run in any order, and so can their blocks: memory is read
 * once and written once, and what lies between is in the cache.
 */
#include <linux/moduleparam.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include "run/graph.h"

static unsigned int npulink_nontemporal_kib = 65536;
module_param_named(nontemporal_kib, npulink_nontemporal_kib, uint, 0644);
MODULE_PARM_DESC(nontemporal_kib, "KiB that all requests of a collective of one machine read and write, from which no cache has its results anyway and they are stored past it (65536); taken when it is first run");

#define GRAPH_OPERANDS		16384U		/* of a graph that is looked at */
#define ITEM_BLOCK		(32U << 10)	/* bytes at a time .. */
#define ITEM_BLOCK_MIN		(8U << 10)	/* .. less if there are many inputs .. */
#define ITEM_INPUTS		(128U << 10)	/* .. so that they fit in a cache */
#define ITEM_INLINE		(64U << 10)	/* devices that do less at a time are left out */

/* What a request reads or writes. */
struct item_range {
	struct npulink_graph_operand o;
	u64 len;
	u32 item;		/* index of its first request */
	u32 req;
	bool write;
};

static int items_cmp(const void *a, const void *b)
{
	const struct npulink_graph_operand *x = a, *y = b;

	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	if (x->slot != y->slot)
		return x->slot < y->slot ? -1 : 1;
	return x->off < y->off ? -1 : x->off > y->off;
}

static int items_cmp_reqs(const void *a, const void *b)
{
	const struct item_range *x = a, *y = b;

	return items_cmp(x, y) ?: (x->req < y->req ? -1 : x->req > y->req);
}

/* The first request before @req that has @o, of @n in order; NULL if there is none. */
static const struct item_range *items_find(const struct item_range *ranges, u32 n,
					   const struct npulink_graph_operand *o, u64 len,
					   u32 req)
{
	u32 lo = 0, hi = n;

	while (lo < hi) {
		u32 mid = lo + (hi - lo) / 2;

		if (items_cmp(&ranges[mid], o) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo == n || items_cmp(&ranges[lo], o) || ranges[lo].len != len || ranges[lo].req >= req)
		return NULL;
	return &ranges[lo];
}

/* Which item each request belongs to. False if two write the same. */
static bool items_find_all(const struct npulink_graph *g, struct item_range *ranges, u32 *item)
{
	struct item_range *written = ranges, *copied = ranges + g->nreqs;
	u32 i, ncopied = 0;

	for (i = 0; i < g->nreqs; i++) {
		const struct npulink_graph_req *gr = &g->reqs[i];
		const struct npulink_graph_operand *o = &g->operands[gr->operand];

		written[i] = (struct item_range) { .o = o[0], .len = gr->len, .req = i };
		if (gr->nsrc == 1)
			copied[ncopied++] = (struct item_range) {
				.o = o[1], .len = gr->len, .req = i,
			};
	}
	sort(written, g->nreqs, sizeof(*written), items_cmp_reqs, NULL);
	cond_resched();
	sort(copied, ncopied, sizeof(*copied), items_cmp_reqs, NULL);
	cond_resched();
	for (i = 1; i < g->nreqs; i++)
		if (!items_cmp(&written[i - 1], &written[i]))
			return false;
	for (i = 0; i < g->nreqs; i++) {
		const struct npulink_graph_req *gr = &g->reqs[i];
		const struct npulink_graph_operand *src = &g->operands[gr->operand + 1];
		const struct item_range *with = NULL;

		if (gr->nsrc == 1)
			with = items_find(written, g->nreqs, src, gr->len, i) ?:
			       items_find(copied, ncopied, src, gr->len, i);
		item[i] = with ? item[with->req] : i;
	}
	return true;
}

/* Does no item touch what another one writes, nor itself but where it writes? */
static bool items_independent(const struct npulink_graph *g, struct item_range *ranges,
			      const u32 *item)
{
	u32 i, k, n = 0, writes;

	for (i = 0; i < g->nreqs; i++) {
		const struct npulink_graph_req *gr = &g->reqs[i];

		for (k = 0; k <= gr->nsrc; k++)
			ranges[n++] = (struct item_range) {
				.o = g->operands[gr->operand + k], .len = gr->len,
				.item = item[i], .req = i, .write = !k,
			};
	}
	sort(ranges, n, sizeof(*ranges), items_cmp, NULL);
	cond_resched();
	/* Of ranges that hang together, all are the same one, or none is written. */
	for (i = 0; i < n; i = k) {
		const struct item_range *r = &ranges[i];
		u64 end = r->o.off + r->len;
		bool same = true;

		writes = r->write;
		for (k = i + 1; k < n; k++) {
			const struct item_range *q = &ranges[k];

			if (q->o.rank != r->o.rank || q->o.slot != r->o.slot || q->o.off >= end)
				break;
			end = max(end, q->o.off + q->len);
			same &= q->o.off == r->o.off && q->len == r->len && q->item == r->item;
			writes += q->write;
		}
		if (writes && (!same || writes > 1))
			return false;
	}
	return true;
}

struct item_key {
	u32 item;
	u32 req;
};

static int items_cmp_keys(const void *a, const void *b)
{
	const struct item_key *x = a, *y = b;

	if (x->item != y->item)
		return x->item < y->item ? -1 : 1;
	return x->req < y->req ? -1 : x->req > y->req;
}

static void items_add(struct npulink_graph *g, u32 first)
{
	const struct npulink_graph_req *gr = &g->reqs[first];
	struct npulink_graph_item *it = &g->items[g->nitems++];
	u32 most = clamp(ITEM_INPUTS / gr->nsrc, ITEM_BLOCK_MIN, ITEM_BLOCK);
	u64 n = DIV_ROUND_UP_ULL(gr->len, most);

	*it = (struct npulink_graph_item) {
		.first = first, .at = g->nblocks, .len = gr->len,
		/* Whole elements, and nothing that two processors write to. */
		.block = round_up(DIV_ROUND_UP_ULL(gr->len, n), 64),
	};
	g->nblocks += DIV_ROUND_UP_ULL(it->len, it->block);
}

/* Bring the requests of each item together. */
static bool items_order(struct npulink_graph *g, const struct item_key *keys)
{
	struct npulink_graph_req *reqs;
	u64 blocks = 0;
	u32 i;

	reqs = kvmalloc_array(g->nreqs, sizeof(*reqs), GFP_KERNEL_ACCOUNT);
	if (!reqs)
		return false;
	for (i = 0; i < g->nreqs; i++)
		reqs[i] = g->reqs[keys[i].req];
	kvfree(g->reqs);
	g->reqs = reqs;
	for (i = 0; i < g->nreqs; i++)
		blocks += reqs[i].len / ITEM_BLOCK_MIN + 2;
	if (blocks > S32_MAX)
		return false;
	for (i = 0; i < g->nreqs; i++) {
		if (!i || keys[i].item != keys[i - 1].item)
			items_add(g, i);
		g->items[g->nitems - 1].nreqs++;
	}
	return true;
}

/* Of more data than a cache has, results that are not copied afterwards need not go through it. */
static void items_nontemporal(struct npulink_graph *g, u64 bytes)
{
	u32 i;

	if (bytes >> 10 < READ_ONCE(npulink_nontemporal_kib))
		return;
	for (i = 0; i < g->nitems; i++)
		g->reqs[g->items[i].first].nontemporal =
			g->items[i].nreqs == 1 && g->reqs[g->items[i].first].nsrc > 1;
}

/*
 * Divide @g, of whose ranks each has a request with room for @max_src inputs, and whose requests
 * read and write @bytes. False if that is not possible. May sleep.
 */
bool npulink_graph_divide(struct npulink_graph *g, u32 max_src, u64 bytes)
{
	struct item_range *ranges;
	struct item_key *keys;
	bool ok = false;
	u32 *item, i;

	if (!g->nreqs || g->noperands > GRAPH_OPERANDS)
		return false;
	for (i = 0; i < g->nreqs; i++)
		if (g->reqs[i].nsrc > max_src)
			return false;
	g->max_req = ITEM_INLINE;
	g->items = kvmalloc_array(g->nreqs, sizeof(*g->items), GFP_KERNEL_ACCOUNT);
	ranges = kvmalloc_array(g->noperands, sizeof(*ranges), GFP_KERNEL);
	item = kvmalloc_array(g->nreqs, sizeof(*item), GFP_KERNEL);
	keys = kvmalloc_array(g->nreqs, sizeof(*keys), GFP_KERNEL);
	if (g->items && ranges && item && keys &&
	    items_find_all(g, ranges, item) && items_independent(g, ranges, item)) {
		for (i = 0; i < g->nreqs; i++)
			keys[i] = (struct item_key) { .item = item[i], .req = i };
		sort(keys, g->nreqs, sizeof(*keys), items_cmp_keys, NULL);
		cond_resched();
		ok = items_order(g, keys);
		if (ok)
			items_nontemporal(g, bytes);
	}
	kvfree(ranges);
	kvfree(item);
	kvfree(keys);
	return ok;
}
