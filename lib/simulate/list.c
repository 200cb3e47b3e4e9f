// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * list.c - keeps the lowered lists of all ranks, each different one once.
 *
 * Most ranks of a collective do the same with other peers: those of rank r0 plus
 * (r - r0), as in a ring, or xor (r ^ r0), as in a hypercube. Then one list serves
 * for all, which is what makes 4,096 lists of 8,191 steps fit into a cache. It is
 * found out by comparing, so nothing is taken on trust.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "simulate/core.h"

/* Lists of one shape that are compared before a rank gets its own. */
#define MAX_TRIES	8

int sim_store_init(struct sim_store *store, uint32_t nranks)
{
	memset(store, 0, sizeof(*store));
	store->nranks = nranks;
	store->views = calloc(nranks, sizeof(*store->views));
	store->memory = nranks * sizeof(*store->views);
	return store->views ? 0 : -ENOMEM;
}

static void list_free(struct sim_list *list)
{
	free(list->shape);
	free(list->peers);
	free(list->lens);
	free(list->index);
	free(list);
}

void sim_store_free(struct sim_store *store)
{
	struct sim_list *list, *next;
	uint32_t i;

	for (i = 0; i < store->nranks && store->views; i++)
		if (store->views[i].list && store->views[i].lens != store->views[i].list->lens)
			free(store->views[i].lens);
	free(store->views);
	store->views = NULL;
	for (i = 0; i < SIM_BUCKETS; i++) {
		for (list = store->buckets[i]; list; list = next) {
			next = list->next;
			list_free(list);
		}
		store->buckets[i] = NULL;
	}
}

static uint64_t hash_words(const uint32_t *words, uint32_t n)
{
	uint64_t h = 0x9e3779b97f4a7c15ULL ^ n;
	uint32_t i;

	for (i = 0; i < n; i++) {
		h = (h ^ words[i]) * 0xff51afd7ed558ccdULL;
		h ^= h >> 32;
	}
	return h;
}

static void *copy_of(struct sim_store *store, const void *data, size_t size)
{
	void *copy = malloc(size ? size : 1);

	if (copy && size)
		memcpy(copy, data, size);
	store->memory += size;
	return copy;
}

static bool peers_fit(const struct sim_list *list, const struct sim_draft *draft,
		      uint32_t delta, bool xor, uint32_t p)
{
	uint32_t i, peer;

	for (i = 0; i < list->npeers; i++) {
		peer = list->peers[i];
		if (peer == NPULINK_NO_PEER || draft->peers[i] == NPULINK_NO_PEER) {
			if (peer != draft->peers[i])
				return false;
			continue;
		}
		if (draft->peers[i] != (xor ? peer ^ delta : mod_add(peer, delta, p)))
			return false;
	}
	return true;
}

static bool same_list(const struct sim_store *store, const struct sim_list *list,
		      const struct sim_draft *draft, uint32_t rank, struct sim_view *view)
{
	if (list->nshape != draft->nshape || list->npeers != draft->npeers ||
	    memcmp(list->shape, draft->shape, draft->nshape * sizeof(*draft->shape)))
		return false;
	view->delta = mod_sub(rank, list->rank, store->nranks);
	view->xor = false;
	if (peers_fit(list, draft, view->delta, false, store->nranks))
		return true;
	view->delta = rank ^ list->rank;
	view->xor = true;
	return peers_fit(list, draft, view->delta, true, store->nranks);
}

int sim_store_add(struct sim_store *store, uint32_t rank, const struct sim_draft *draft)
{
	struct sim_view *view = &store->views[rank];
	size_t lens = draft->npeers * sizeof(*draft->lens);
	/* Often it is that of the rank before; then no hash is needed. */
	struct sim_list *list = store->latest, **bucket = NULL;
	bool found = list && same_list(store, list, draft, rank, view);
	uint64_t hash = found ? 0 : hash_words(draft->shape, draft->nshape);
	uint32_t tries = 0;

	if (!found) {
		bucket = &store->buckets[hash % SIM_BUCKETS];
		list = *bucket;
	}
	for (; !found && list && tries < MAX_TRIES; list = list->next) {
		if (list->hash != hash)
			continue;
		tries++;
		found = same_list(store, list, draft, rank, view);
		if (found)
			break;
	}
	if (!found) {
		list = calloc(1, sizeof(*list));
		if (!list)
			return -ENOMEM;
		list->hash = hash;
		list->rank = rank;
		list->nshape = draft->nshape;
		list->npeers = draft->npeers;
		list->next = *bucket;
		*bucket = list;
		store->nlists++;
		store->memory += sizeof(*list);
		list->shape = copy_of(store, draft->shape, draft->nshape * sizeof(*draft->shape));
		list->peers = copy_of(store, draft->peers, draft->npeers * sizeof(*draft->peers));
		list->lens = copy_of(store, draft->lens, lens);
		if (!list->shape || !list->peers || !list->lens)
			return -ENOMEM;
		view->delta = 0;
		view->xor = false;
	}
	store->latest = list;
	view->list = list;
	view->lens = list->lens;
	if (lens && memcmp(list->lens, draft->lens, lens)) {
		view->lens = copy_of(store, draft->lens, lens);
		if (!view->lens) {
			view->lens = list->lens;
			return -ENOMEM;
		}
	}
	return 0;
}

/*
 * If all views so far are of one list, in the same way, so are the others from now
 * on. *known is how many there were.
 */
bool sim_store_fill(struct sim_store *store, uint32_t *known)
{
	struct sim_list *list = store->views[0].list;
	uint32_t i, xored = 0;
	struct sim_view *v;

	*known = 0;
	for (i = 0; i < store->nranks; i++) {
		v = &store->views[i];
		if (!v->list)
			continue;
		++*known;
		if (v->list != list || v->lens != list->lens)
			return false;
		xored += v->xor;
	}
	/* Rank 0's own is neither; xor leads out of what is no power of two. */
	if (xored && (xored != *known - 1 || store->nranks & (store->nranks - 1)))
		return false;
	for (i = 0; i < store->nranks; i++) {
		v = &store->views[i];
		v->list = list;
		v->lens = list->lens;
		v->xor = xored;
		v->delta = i;
	}
	return true;
}

/* ---- drafts */

static bool grow(void *array, uint32_t *cap, uint32_t n, size_t size)
{
	void **mem = array, *more;

	if (n <= *cap)
		return true;
	more = realloc(*mem, 2 * (size_t)n * size);
	if (!more)
		return false;
	*mem = more;
	*cap = 2 * n;
	return true;
}

/* Make it that large; what it holds stays. */
bool sim_draft_size(struct sim_draft *draft, uint32_t nshape, uint32_t npeers)
{
	uint32_t cap = draft->peers_cap;

	if (!grow(&draft->shape, &draft->shape_cap, nshape, sizeof(*draft->shape)) ||
	    !grow(&draft->lens, &cap, npeers, sizeof(*draft->lens)) ||
	    !grow(&draft->peers, &draft->peers_cap, npeers, sizeof(*draft->peers)))
		return false;
	draft->nshape = nshape;
	draft->npeers = npeers;
	return true;
}

void sim_draft_free(struct sim_draft *draft)
{
	free(draft->shape);
	free(draft->peers);
	free(draft->lens);
}
