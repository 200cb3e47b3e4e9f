/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * core.h - what the files of the simulator share: lists of steps that are lowered
 * to what matters for time, and the networks' ways.
 */
#ifndef COLL_SIM_CORE_H
#define COLL_SIM_CORE_H

#include "plan/planner.h"
#include "simulate/sim.h"

/* ---- list.c: lists, and ranks that share one */

/**
 * struct sim_list - a lowered list of steps
 * @next: of the same hash bucket
 * @hash: of @shape
 * @rank: whose it is
 * @nshape: length of @shape
 * @npeers: length of @peers and @lens
 * @shape: all but peers and lengths, as the engine likes it
 * @peers: ranks, or NPULINK_NO_PEER, as seen by @rank
 * @lens: bytes
 * @index: hash table of entries, once the event engine looks for one
 * @index_mask: its size less 1
 */
struct sim_list {
	struct sim_list *next;
	uint64_t hash;
	uint32_t rank, nshape, npeers;
	uint32_t *shape, *peers;
	uint64_t *lens;
	uint32_t *index, index_mask;
};

/**
 * struct sim_view - a rank's list: another rank's, seen from here
 * @list: the list
 * @lens: own lengths, or those of @list
 * @delta: added to the list's peers modulo the number of ranks, or, if @xor, xored
 * @xor: which
 */
struct sim_view {
	struct sim_list *list;
	uint64_t *lens;
	uint32_t delta;
	bool xor;
};

#define SIM_BUCKETS	1024

struct sim_store {
	uint32_t nranks;
	struct sim_view *views;
	struct sim_list *buckets[SIM_BUCKETS], *latest;
	uint32_t nlists;
	uint64_t memory;
};

/* Growing arrays that are filled anew for each rank. */
struct sim_draft {
	uint32_t *shape, *peers;
	uint64_t *lens;
	uint32_t nshape, shape_cap, npeers, peers_cap;
};

int sim_store_init(struct sim_store *store, uint32_t nranks);
void sim_store_free(struct sim_store *store);
int sim_store_add(struct sim_store *store, uint32_t rank, const struct sim_draft *draft);
bool sim_store_fill(struct sim_store *store, uint32_t *known);

bool sim_draft_size(struct sim_draft *draft, uint32_t nshape, uint32_t npeers);
void sim_draft_free(struct sim_draft *draft);

static inline uint32_t sim_peer(const struct sim_view *v, uint32_t i, uint32_t p)
{
	uint32_t peer = v->list->peers[i];

	return v->xor ? peer ^ v->delta : mod_add(peer, v->delta, p);
}

/* ---- net.c */

bool sim_net_near(const struct coll_net *net, uint32_t a, uint32_t b);

/* Links from @src to @dst into @links, which has room for sim_net_hops() of them. */
uint32_t sim_net_route(const struct coll_net *net, uint32_t src, uint32_t dst, uint32_t *links);
uint32_t sim_net_hops(const struct coll_net *net);

/* Messages that a link carries side by side. */
uint32_t sim_net_width(const struct coll_net *net);

/* ---- the engines */

/**
 * struct sim_run - one simulation
 * @net: network
 * @opts: options, never NULL
 * @result: to be filled in
 * @store: lists
 * @work: seconds that all messages and reductions would take one after the other
 */
struct sim_run {
	const struct coll_net *net;
	const struct coll_sim_opts *opts;
	struct coll_sim_result *result;
	struct sim_store store;
	double work;
};

/* flow.c: the cost rule without links, one port. */
int sim_flow_lower(const struct coll_plan *plan, struct sim_draft *draft);
int sim_flow_run(struct sim_run *run);

/* lower.c, event.c: everything. */
struct sim_lowerer;
struct sim_lowerer *sim_lowerer_make(const struct sim_run *run);
void sim_lowerer_free(struct sim_lowerer *lowerer);
int sim_event_lower(struct sim_lowerer *lowerer, const struct coll_plan *plan,
		    struct sim_draft *draft);
int sim_event_run(struct sim_run *run);

int sim_fail(struct sim_run *run, int rc, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif /* COLL_SIM_CORE_H */
