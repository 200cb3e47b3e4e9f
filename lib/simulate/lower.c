// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * lower.c - from a plan to entries of ports and edges between them: an entry is
 * due when those from which edges lead to it have ended. All of the two rules that
 * does not depend on time is put into edges here; see sim.c for what they say.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "simulate/core.h"
#include "simulate/event.h"

#define NONE	0xffffffffU

/* Which entry was the last of a port, or a stream; emptied by changing the age. */
struct slot {
	uint64_t key;
	uint32_t age, value;
};

struct edge {
	uint32_t from, to;
};

struct sim_lowerer {
	const struct coll_net *net;
	bool exec;
	struct slot *slots;
	uint32_t mask, age;
	struct sim_entry *entries;
	uint64_t *lens;
	uint32_t *peers;
	uint32_t nentries, entries_cap;
	struct edge *edges;
	uint32_t nedges, edges_cap;
	uint32_t *last;			/* of each step: the entry that ends last */
	uint32_t steps_cap;
	uint32_t drained;		/* the last step that waited for all before it */
	uint32_t chain_from, chain_to;	/* edges to the first of the last chain */
	int rc;
};

struct sim_lowerer *sim_lowerer_make(const struct sim_run *run)
{
	struct sim_lowerer *b = calloc(1, sizeof(*b));

	if (b) {
		b->net = run->net;
		b->exec = run->opts->rule == COLL_RULE_EXEC;
	}
	return b;
}

void sim_lowerer_free(struct sim_lowerer *b)
{
	if (!b)
		return;
	free(b->slots);
	free(b->entries);
	free(b->lens);
	free(b->peers);
	free(b->edges);
	free(b->last);
	free(b);
}

static bool room(struct sim_lowerer *b, const struct coll_plan *plan)
{
	uint32_t n = plan->nsteps, cap = 1;

	if (b->steps_cap < n || !b->slots) {
		while (cap < 8 * n + 16)
			cap *= 2;
		free(b->slots);
			free(b->last);
		free(b->entries);
		free(b->lens);
		free(b->peers);
		b->slots = calloc(cap, sizeof(*b->slots));
		b->last = malloc((n + 1) * sizeof(*b->last));
		b->entries = malloc((3 * n + 1) * sizeof(*b->entries));
		b->lens = malloc((3 * n + 1) * sizeof(*b->lens));
		b->peers = malloc((3 * n + 1) * sizeof(*b->peers));
		b->mask = cap - 1;
		b->age = 0;
		b->steps_cap = n;
	}
	return b->slots && b->last && b->entries && b->lens && b->peers;
}

/* The value kept for a key, NONE at first. */
static uint32_t *lookup(struct sim_lowerer *b, uint64_t key)
{
	uint32_t i = (key * 0x9e3779b97f4a7c15ULL) >> 32;

	for (;; i++) {
		struct slot *s = &b->slots[i & b->mask];

		if (s->age != b->age) {
			*s = (struct slot){ key, b->age, NONE };
			return &s->value;
		}
		if (s->key == key)
			return &s->value;
	}
}

static void edge(struct sim_lowerer *b, uint32_t from, uint32_t to)
{
	if (b->nedges == b->edges_cap) {
		uint32_t cap = b->edges_cap ? 2 * b->edges_cap : 256;
		struct edge *edges = realloc(b->edges, cap * sizeof(*edges));

		if (!edges) {
			b->rc = -ENOMEM;
			return;
		}
		b->edges = edges;
		b->edges_cap = cap;
	}
	b->edges[b->nedges++] = (struct edge){ from, to };
	b->entries[to].waits++;
}

#define PORT_ONLY	0xfffffffeU
#define PORT_FAR	0xfffffffdU

/* Which of its ports rank @a uses for @peer. */
static uint32_t port_to(const struct coll_net *net, uint32_t a, uint32_t peer)
{
	if (net->kind == COLL_NET_SERVERS && !sim_net_near(net, a, peer))
		return PORT_FAR;
	return net->ports > 1 ? peer : PORT_ONLY;
}

/*
 * List order: after the one before on the same port. The executor knows none, but
 * with a port for each peer its streams do not overtake themselves.
 */
static void in_order(struct sim_lowerer *b, uint32_t at, uint32_t dir, uint32_t port,
		     uint32_t channel)
{
	uint32_t *last;

	if (b->exec && port >= PORT_FAR)
		return;
	last = lookup(b, 1ULL << 63 | (uint64_t)(b->exec ? channel : 0) << 40 |
		      (uint64_t)dir << 36 | port);
	if (*last != NONE)
		edge(b, *last, at);
	*last = at;
}

static uint32_t entry(struct sim_lowerer *b, uint32_t flags, uint32_t step, uint32_t rank,
		      uint32_t peer, uint32_t channel, uint64_t len)
{
	uint32_t at = b->nentries++, dir = flags & SIM_SEND;
	struct sim_entry *e = &b->entries[at];
	uint32_t *turn;

	*e = (struct sim_entry){ .flags = flags | channel << 8, .step = step };
	b->peers[at] = peer;
	b->lens[at] = len;
	if (flags & (SIM_SEND | SIM_RECV)) {
		turn = lookup(b, (uint64_t)channel << 40 | (uint64_t)dir << 36 | peer);
		e->turn = *turn == NONE ? 0 : *turn;
		*turn = e->turn + 1;
		in_order(b, at, dir, port_to(b->net, rank, peer), channel);
	} else if (flags & SIM_REDUCE && b->net->ports <= 1 &&
		   b->net->kind != COLL_NET_SERVERS) {
		in_order(b, at, dir, PORT_ONLY, 0);
	}
	return at;
}

/*
 * All that step @i depends on, to entry @at. A chain waits together: the first of
 * it collects, the others get the same edges.
 */
static void wait_edges(struct sim_lowerer *b, const struct coll_plan *plan, uint32_t i, uint32_t at)
{
	const struct npulink_step *s = &plan->steps[i];
	uint32_t d, j = i, k;
	bool drain = false;

	if (s->flags & NPULINK_STEP_F_CHAIN) {
		for (k = b->chain_from; k < b->chain_to; k++)
			edge(b, b->edges[k].from, at);
		return;
	}
	b->chain_from = b->nedges;
	do {
		drain |= s->flags & NPULINK_STEP_F_DRAIN;
		for (d = 0; d < NPULINK_STEP_DEPS; d++)
			if (s->dep[d] && j - s->dep[d] < i)
				edge(b, b->last[j - s->dep[d]], at);
		s++;
		j++;
	} while (j < plan->nsteps && s->flags & NPULINK_STEP_F_CHAIN);
	/* What was before the last one that drained is over since then. */
	for (j = b->drained; drain && j < i; j++)
		edge(b, b->last[j], at);
	b->chain_to = b->nedges;
}

/* Is step @i the last of a chain? */
static bool ends_chain(const struct coll_plan *plan, uint32_t i)
{
	return plan->steps[i].flags & NPULINK_STEP_F_CHAIN &&
	       (i + 1 == plan->nsteps || !(plan->steps[i + 1].flags & NPULINK_STEP_F_CHAIN));
}

/* What a chain makes is there when all its members are over, and that is what counts. */
static void end_chain(struct sim_lowerer *b, const struct coll_plan *plan, uint32_t i)
{
	uint32_t at = entry(b, 0, i, plan->rank, NPULINK_NO_PEER, 0, 0), j = i;

	for (;; j--) {
		edge(b, b->last[j], at);
		b->last[j] = at;
		if (!(plan->steps[j].flags & NPULINK_STEP_F_CHAIN))
			return;
	}
}

static void lower_step(struct sim_lowerer *b, const struct coll_plan *plan, uint32_t i)
{
	const struct npulink_step *s = &plan->steps[i];
	uint32_t flags = s->op & NPULINK_STEP_REDUCE ? SIM_REDUCE : 0, at;
	bool send = s->op & NPULINK_STEP_SEND, chain = ends_chain(plan, i), fused;

	if (s->op == NPULINK_STEP_SEND || s->op == (NPULINK_STEP_COPY | NPULINK_STEP_SEND)) {
		at = entry(b, SIM_SEND, i, plan->rank, s->send_peer, s->channel, s->len);
		wait_edges(b, plan, i, at);
		b->last[i] = at;
		return;
	}
	/* The executor offers what is there, slice by slice. */
	fused = send && s->op & NPULINK_STEP_RECV && b->exec && !chain;
	if (s->op & NPULINK_STEP_RECV)
		at = entry(b, flags | SIM_RECV | (fused ? SIM_FUSED : 0), i, plan->rank,
			   s->recv_peer, s->channel, s->len);
	else
		at = entry(b, flags, i, plan->rank, NPULINK_NO_PEER, 0, s->len);
	wait_edges(b, plan, i, at);
	b->last[i] = at;
	if (chain)
		end_chain(b, plan, i);
	if (!send)
		return;
	at = entry(b, SIM_SEND | (fused ? SIM_FUSED : 0), i, plan->rank, s->send_peer,
		   s->channel, s->len);
	if (fused)
		wait_edges(b, plan, i, at);
	else
		edge(b, b->last[i], at);
	b->last[i] = at;
}

static int put(struct sim_lowerer *b, struct sim_draft *draft)
{
	uint32_t n = b->nentries, i, sum = 0, *targets;
	struct sim_entry *e = b->entries;

	if (!sim_draft_size(draft, 2 + n * SIM_ENTRY_WORDS + b->nedges, n))
		return -ENOMEM;
	for (i = 0; i < b->nedges; i++)
		e[b->edges[i].from].first++;
	for (i = 0; i < n; i++) {
		sum += e[i].first;
		e[i].first = sum;
	}
	draft->shape[0] = n;
	draft->shape[1] = b->nedges;
	targets = draft->shape + 2 + n * SIM_ENTRY_WORDS;
	for (i = b->nedges; i-- > 0;)
		targets[--e[b->edges[i].from].first] = b->edges[i].to;
	if (!n)
		return 0;
	memcpy(draft->shape + 2, e, n * sizeof(*e));
	memcpy(draft->peers, b->peers, n * sizeof(*b->peers));
	memcpy(draft->lens, b->lens, n * sizeof(*b->lens));
	return 0;
}

int sim_event_lower(struct sim_lowerer *b, const struct coll_plan *plan, struct sim_draft *draft)
{
	uint32_t i;

	if (!room(b, plan))
		return -ENOMEM;
	b->age++;
	b->nentries = 0;
	b->nedges = 0;
	b->drained = 0;
	for (i = 0; i < plan->nsteps && !b->rc; i++) {
		lower_step(b, plan, i);
		if (plan->steps[i].flags & NPULINK_STEP_F_DRAIN)
			b->drained = i;
	}
	return b->rc ? b->rc : put(b, draft);
}
