// SPDX-License-Identifier: GPL-2.0
/*
 * graph.c - the plans of all ranks of a collective, linked.
 *
 * When all ranks of a communicator on one node have posted a collective, all steps are known, and
 * so is an order in which to run them. It is found by going through them as the sequencer
 * (seq.c) would: what is left are requests to the engine, none of which has to wait for anything
 * but those before it. A graph that moves much data is divided into items that do not depend on
 * each other (graph_items.c). round.c says when a graph is run, and by whom.
 */
#include <linux/slab.h>
#include "base/number.h"
#include "comm/comm.h"
#include "plan/plan.h"
#include "run/op.h"
#include "run/graph.h"

#define NONE		0xffffffffU
#define GRAPH_UNITS	32768U		/* of all ranks */

static void npulink_graph_release(struct kref *kref)
{
	struct npulink_graph *g = container_of(kref, struct npulink_graph, kref);

	kvfree(g->reqs);
	kvfree(g->operands);
	kvfree(g->links);
	kvfree(g->items);
	kvfree(g);
}

/* May sleep. */
void npulink_graph_put(struct npulink_graph *g)
{
	if (g)
		kref_put(&g->kref, npulink_graph_release);
}

/* ---- linking ------------------------------------------------------------------ */

#define UNIT_ACTIVE	1
#define UNIT_OFFERED	2	/* sends: the receiver may read it */
#define UNIT_TAKEN	4	/* sends: the receiver has read it */
#define UNIT_DONE	8

struct maker_unit {
	u32 deps;
	u8 flags;
};

/* The streams of one rank: those of its peers that they meet. */
struct maker_rank {
	struct npulink_plan *plan;
	u32 base;		/* of its units in maker.units */
	u32 drain;
	u32 *drain_left;
	u32 *peer_stream;
	u32 *link;		/* by peer: index in graph->links + 1 */
};

struct maker {
	struct npulink_graph *g;
	struct maker_rank *ranks;
	struct maker_unit *units;
	u32 *stack;		/* units to look at, each at most once */
	unsigned long *stacked;
	u32 nstack;
	u32 nunits;
	u32 ndone;
	u64 bytes;		/* that the requests read and write */
	bool bad;
};

static void maker_look(struct maker *m, u32 rank, u32 unit)
{
	u32 i = m->ranks[rank].base + unit;

	if (!test_and_set_bit(i, m->stacked))
		m->stack[m->nstack++] = i;
}

static void maker_less(struct maker *m, u32 rank, u32 unit)
{
	struct maker_unit *mu = &m->units[m->ranks[rank].base + unit];

	if (--mu->deps)
		return;
	mu->flags |= UNIT_ACTIVE;
	maker_look(m, rank, unit);
}

static void maker_drains(struct maker *m, u32 rank)
{
	struct maker_rank *mr = &m->ranks[rank];

	while (mr->drain < mr->plan->ndrains && !mr->drain_left[mr->drain])
		maker_less(m, rank, mr->plan->drains[mr->drain++]);
}

static void maker_done(struct maker *m, u32 rank, u32 unit)
{
	struct maker_rank *mr = &m->ranks[rank];
	const struct npulink_plan *plan = mr->plan;
	u32 i, d = plan->units[unit].drain;

	m->units[mr->base + unit].flags |= UNIT_DONE;
	m->ndone++;
	for (i = plan->units[unit].out; i < plan->units[unit + 1].out; i++)
		maker_less(m, rank, plan->out[i]);
	if (d < plan->ndrains)
		mr->drain_left[d]--;
	maker_drains(m, rank);
}

/* The peer's step that meets one of ours. */
static u32 maker_peer_step(const struct maker *m, u32 rank, u32 stream, u32 pos, u32 *peer)
{
	const struct maker_rank *mr = &m->ranks[rank], *pr;
	const struct npulink_plan *plan = mr->plan;

	*peer = plan->peers[plan->streams[stream].peer].conn->rank;
	pr = &m->ranks[*peer];
	return pr->plan->stream_steps[pr->plan->streams[mr->peer_stream[stream]].start + pos];
}

/* The unit of rank *peer that sends what step @step of ours receives. */
static u32 maker_sender(const struct maker *m, u32 rank, u32 step, u32 *peer)
{
	const struct npulink_step_pos *pos = &m->ranks[rank].plan->pos[step];
	u32 ps = maker_peer_step(m, rank, pos->recv_stream, pos->recv_pos, peer);

	return m->ranks[*peer].plan->pos[ps].unit;
}

static void maker_operand(struct maker *m, u32 rank, u8 slot, u64 off, bool scaled)
{
	m->g->operands[m->g->noperands++] = (struct npulink_graph_operand) {
		.rank = rank, .slot = slot, .scaled = scaled, .off = off,
	};
}

/* A window that is smaller than what goes through it is not for us. */
static bool maker_windowed(const struct npulink_step *st)
{
	return st->flags & NPULINK_STEP_F_TRANSIENT && st->src2_off && st->src2_off < st->len;
}

static void maker_count(struct maker *m, u32 rank, u32 peer, u64 len)
{
	u32 *link = &m->ranks[rank].link[peer];
	struct npulink_graph *g = m->g;

	if (!*link) {
		g->links[g->nlinks] = (struct npulink_graph_link) { .rank = rank, .peer = peer };
		*link = ++g->nlinks;
	}
	g->links[*link - 1].steps++;
	g->links[*link - 1].bytes += len;
}

/* The request of a unit whose inputs have all arrived, as npulink_req_fill() makes it. */
static void maker_request(struct maker *m, u32 rank, u32 unit)
{
	const struct npulink_plan *plan = m->ranks[rank].plan;
	const struct npulink_unit *un = &plan->units[unit];
	const struct npulink_step *steps = &plan->steps[un->first];
	const struct npulink_step *last = &steps[un->nsteps - 1];
	struct npulink_graph *g = m->g;
	struct npulink_graph_req req = {
		.rank = rank, .unit = unit, .operand = g->noperands,
		.dtype = last->dtype, .redop = last->redop,
		.div = last->flags & NPULINK_STEP_F_DIV,
		.rest = last->flags & NPULINK_STEP_F_REST, .scale = un->scale, .len = last->len,
	};
	u32 i;

	maker_operand(m, rank, last->dst_slot, last->dst_off, false);
	for (i = 0; i < un->nsteps; i++) {
		const struct npulink_step *st = &steps[i], *from;
		const struct npulink_step_pos *pos = &plan->pos[un->first + i];
		bool scaled = st->flags & NPULINK_STEP_F_SCALE2;
		u32 peer, ps;

		if (!i && st->op & (NPULINK_STEP_REDUCE | NPULINK_STEP_COPY))
			maker_operand(m, rank, st->src_slot, st->src_off,
				      st->flags & NPULINK_STEP_F_SCALE);
		if (st->op & NPULINK_STEP_RECV) {
			ps = maker_peer_step(m, rank, pos->recv_stream, pos->recv_pos, &peer);
			from = &m->ranks[peer].plan->steps[ps];
			m->bad |= from->len != st->len || maker_windowed(from);
			if (from->op == NPULINK_STEP_SEND)
				maker_operand(m, peer, from->src_slot, from->src_off, scaled);
			else
				maker_operand(m, peer, from->dst_slot, from->dst_off, scaled);
			maker_count(m, rank, plan->streams[pos->recv_stream].peer, st->len);
		} else if (st->op & NPULINK_STEP_REDUCE) {
			maker_operand(m, rank, st->src2_slot, st->src2_off, scaled);
		}
	}
	req.nsrc = g->noperands - req.operand - 1;
	m->bad |= maker_windowed(last);
	if (!req.len) {
		g->noperands = req.operand;
		return;
	}
	g->max_req = max(g->max_req, req.len * req.nsrc);
	m->bytes += req.len * (req.nsrc + 1);
	g->reqs[g->nreqs++] = req;
}

static bool maker_arrived(const struct maker *m, u32 rank, const struct npulink_unit *un)
{
	const struct npulink_plan *plan = m->ranks[rank].plan;
	u32 i, peer, sender;

	for (i = un->first; i < un->first + un->nsteps; i++) {
		if (!(plan->steps[i].op & NPULINK_STEP_RECV))
			continue;
		sender = maker_sender(m, rank, i, &peer);
		if (!(m->units[m->ranks[peer].base + sender].flags & UNIT_OFFERED))
			return false;
	}
	return true;
}

/* All that a unit received may be overwritten by those who sent it. */
static void maker_take(struct maker *m, u32 rank, const struct npulink_unit *un)
{
	const struct npulink_plan *plan = m->ranks[rank].plan;
	u32 i, peer, sender;

	for (i = un->first; i < un->first + un->nsteps; i++) {
		if (!(plan->steps[i].op & NPULINK_STEP_RECV))
			continue;
		sender = maker_sender(m, rank, i, &peer);
		m->units[m->ranks[peer].base + sender].flags |= UNIT_TAKEN;
		maker_look(m, peer, sender);
	}
}

/* Go on with a unit as far as it goes, as npulink_unit_advance() does. */
static void maker_advance(struct maker *m, u32 rank, u32 unit)
{
	const struct npulink_plan *plan = m->ranks[rank].plan;
	struct maker_unit *mu = &m->units[m->ranks[rank].base + unit];
	const struct npulink_unit *un = &plan->units[unit];
	u32 last = un->first + un->nsteps - 1, peer, ps;

	if (!(mu->flags & UNIT_ACTIVE) || mu->flags & UNIT_DONE)
		return;
	if (!(mu->flags & UNIT_OFFERED)) {
		if (un->engine) {
			if (!maker_arrived(m, rank, un))
				return;
			maker_request(m, rank, unit);
			maker_take(m, rank, un);
		}
		mu->flags |= UNIT_OFFERED;
		if (un->send) {
			ps = maker_peer_step(m, rank, plan->pos[last].send_stream,
					     plan->pos[last].send_pos, &peer);
			maker_look(m, peer, m->ranks[peer].plan->pos[ps].unit);
		}
	}
	if (!un->send || mu->flags & UNIT_TAKEN)
		maker_done(m, rank, unit);
}

/* Which streams of two plans meet; false if they do not fit together. */
static bool maker_streams(struct maker *m, u32 rank)
{
	struct maker_rank *mr = &m->ranks[rank];
	const struct npulink_plan *plan = mr->plan;
	u32 i, k;

	for (i = 0; i < plan->npeers; i++) {
		const struct npulink_plan_peer *me = &plan->peers[i];
		const struct npulink_plan *pp = m->ranks[me->conn->rank].plan;
		u32 other = npulink_find_peer(pp, rank);

		if (!me->conn->back || other == NONE || pp->peers[other].nstreams != me->nstreams)
			return false;
		for (k = me->stream; k < me->stream + me->nstreams; k++) {
			const struct npulink_stream *st = &plan->streams[k];

			mr->peer_stream[k] = npulink_find_stream(pp, other, st->channel, !st->send);
			if (mr->peer_stream[k] == NONE ||
			    pp->streams[mr->peer_stream[k]].count != st->count)
				return false;
		}
	}
	return true;
}

static bool maker_run(struct maker *m)
{
	u32 r, u, i;

	for (r = 0; r < m->g->nranks; r++)
		if (!maker_streams(m, r))
			return false;
	for (r = 0; r < m->g->nranks; r++) {
		struct maker_rank *mr = &m->ranks[r];
		const struct npulink_plan *plan = mr->plan;

		for (u = 0; u < plan->nunits; u++) {
			m->units[mr->base + u].deps = plan->units[u].ndeps;
			if (plan->units[u].ndeps)
				continue;
			m->units[mr->base + u].flags = UNIT_ACTIVE;
			maker_look(m, r, u);
		}
		for (i = 0; i < plan->ndrains; i++)
			mr->drain_left[i] = plan->drains[i] - (i ? plan->drains[i - 1] : 0);
		maker_drains(m, r);
	}
	/* Who is it? Ranks are few, and the units of each are in one piece. */
	for (r = 0; m->nstack && !m->bad; ) {
		u = m->stack[--m->nstack];
		clear_bit(u, m->stacked);
		while (u < m->ranks[r].base)
			r--;
		while (u >= m->ranks[r].base + m->ranks[r].plan->nunits)
			r++;
		maker_advance(m, r, u - m->ranks[r].base);
		if (!(m->ndone & 0xff))
			cond_resched();
	}
	return !m->bad && m->ndone == m->nunits;
}

/* Room for what the plans of @m need at most. */
static bool maker_alloc(struct maker *m)
{
	struct npulink_graph *g = m->g;
	u64 reqs = 0, operands = 0, links = 0, words = 0;
	u32 r, i, *word;

	for (r = 0; r < g->nranks; r++) {
		const struct npulink_plan *plan = m->ranks[r].plan;

		m->ranks[r].base = m->nunits;
		m->nunits += plan->nunits;
		links += plan->npeers;
		words += plan->ndrains + plan->nstreams + plan->npeers;
		if (m->nunits > GRAPH_UNITS)
			return false;
		for (i = 0; i < plan->nunits; i++) {
			reqs += plan->units[i].engine;
			operands += plan->units[i].engine ? plan->units[i].nsteps + 2 : 0;
		}
		if (operands > 8 * GRAPH_UNITS)
			return false;
	}
	g->reqs = kvmalloc_array(reqs, sizeof(*g->reqs), GFP_KERNEL_ACCOUNT);
	g->operands = kvmalloc_array(operands, sizeof(*g->operands), GFP_KERNEL_ACCOUNT);
	g->links = kvmalloc_array(links, sizeof(*g->links), GFP_KERNEL_ACCOUNT);
	m->units = kvcalloc(m->nunits, sizeof(*m->units), GFP_KERNEL);
	/* Nothing is on it twice. */
	m->stack = kvmalloc_array(m->nunits, sizeof(*m->stack), GFP_KERNEL);
	m->stacked = kvcalloc(BITS_TO_LONGS(m->nunits), sizeof(long), GFP_KERNEL);
	word = kvcalloc(words, sizeof(*word), GFP_KERNEL);
	m->ranks[0].drain_left = word;
	if (!g->reqs || !g->operands || !g->links || !m->units || !m->stack || !m->stacked || !word)
		return false;
	for (r = 0; r < g->nranks; r++) {
		m->ranks[r].drain_left = word;
		word += m->ranks[r].plan->ndrains;
		m->ranks[r].peer_stream = word;
		word += m->ranks[r].plan->nstreams;
		m->ranks[r].link = word;
		word += m->ranks[r].plan->npeers;
	}
	return true;
}

/*
 * Bytes that one task may read and write for all ranks, as struct npulink_device_info tells. It is
 * one processor that works, where there could be several; but where ranks share processors, each
 * round of messages that is not needed saves a process switch of each rank, and the others would
 * not have worked much sooner.
 */
static u64 npulink_graph_most(u32 nranks, u32 processors)
{
	if (!processors || nranks <= processors)
		return npulink_graph_bytes;
	return 2ULL * nranks * (npulink_graph_bytes / processors);
}

/* The graph of the plans of @ops, one of each rank, or NULL. Task context, may sleep. */
struct npulink_graph *npulink_graph_make(struct npulink_op *const *ops, u32 nranks)
{
	static atomic64_t serial = ATOMIC64_INIT(0);
	u32 max_src = ~0U;	/* of the rank that has room for the fewest */
	struct maker m = {};
	bool ok = false;
	u32 i;

	m.ranks = kvcalloc(nranks, sizeof(*m.ranks), GFP_KERNEL);
	m.g = kzalloc(sizeof(*m.g), GFP_KERNEL_ACCOUNT);
	if (m.ranks && m.g) {
		kref_init(&m.g->kref);
		m.g->serial = atomic64_inc_return(&serial);
		m.g->nranks = nranks;
		for (i = 0; i < nranks; i++) {
			m.ranks[i].plan = ops[i]->plan;
			max_src = min(max_src, ops[i]->plan->nreqs ? ops[i]->plan->max_src : 0);
		}
		ok = maker_alloc(&m) && maker_run(&m);
	}
	if (ok && m.bytes > npulink_graph_most(nranks, ops[0]->rank->dev->processors))
		ok = npulink_graph_divide(m.g, max_src, m.bytes);
	else
		ok = ok && npulink_coll_gathers(ops[0]->plan->call.collective);
	if (m.ranks)
		kvfree(m.ranks[0].drain_left);
	kvfree(m.ranks);
	kvfree(m.units);
	kvfree(m.stack);
	kvfree(m.stacked);
	if (ok)
		return m.g;
	if (m.g)
		npulink_graph_release(&m.g->kref);
	return NULL;
}

/* ---- running it ------------------------------------------------------------ */

static void npulink_graph_bind(struct npulink_op *const *ops,
			       const struct npulink_graph_operand *go, u64 at,
			       struct npulink_operand *o)
{
	const struct npulink_bound *b = &ops[go->rank]->binds[go->slot];

	o->buf = b->buf;
	o->off = b->off + go->off + at;
}

static void npulink_graph_fail(const struct npulink_op *op, const struct npulink_graph_req *gr,
			       int rc)
{
	struct npulink_cause cause = {
		.cause = NPULINK_CAUSE_DEVICE, .rank = gr->rank, .peer = NPULINK_NO_PEER,
		.step = op->plan->units[gr->unit].first, .number = npulink_told(op->number),
		.code = -rc,
	};

	npulink_comm_fail_now(op->rank->comm, &cause);
}

/*
 * Bytes [@at, @at + @n) of a request, by way of @req, which has room for its inputs. An error
 * fails the communicator.
 */
static int npulink_graph_run_req(const struct npulink_graph *g, struct npulink_op *const *ops,
				 const struct npulink_graph_req *gr, struct npulink_req *req,
				 u64 at, u64 n)
{
	const struct npulink_graph_operand *go = &g->operands[gr->operand];
	const struct npulink_op *op = ops[gr->rank];
	struct npulink_device *dev = op->rank->dev;
	u32 i;
	int rc;

	req->dev = dev;
	req->link = NULL;
	npulink_graph_bind(ops, go, at, &req->dst);
	req->len = n;
	req->nsrc = gr->nsrc;
	req->remote = NPULINK_CHAIN_MAX + 1;
	req->dtype = gr->dtype;
	req->redop = gr->redop;
	req->nontemporal = gr->nontemporal;
	req->small = true;
	req->cancelled = false;
	req->scale = gr->scale;
	req->div = gr->div ? g->nranks : 0;
	req->step = op->plan->units[gr->unit].first;
	for (i = 0; i < gr->nsrc; i++)
		npulink_graph_bind(ops, go + 1 + i, at, &req->src[i]);
	if (unlikely(gr->scale)) {
		req->rest = gr->rest;
		for (i = 0; i < gr->nsrc; i++)
			req->src[i].scaled = go[1 + i].scaled;
	}
	rc = dev->ops->run(dev, req);
	if (unlikely(rc))
		npulink_graph_fail(op, gr, rc);
	return rc;
}

/* All requests, in their order. @ops: operations of the graph's plans, by rank. Task context. */
int npulink_graph_run(const struct npulink_graph *g, struct npulink_op *const *ops)
{
	u32 i;
	int rc;

	for (i = 0; i < g->nreqs; i++) {
		const struct npulink_graph_req *gr = &g->reqs[i];

		rc = npulink_graph_run_req(g, ops, gr, npulink_op_req(ops[gr->rank], 0), 0,
					   gr->len);
		if (rc)
			return rc;
		if (i % 64 == 63)
			cond_resched();
	}
	return 0;
}

static const struct npulink_graph_item *npulink_graph_item(const struct npulink_graph *g,
							   u32 block)
{
	u32 lo = 0, hi = g->nitems;

	while (hi - lo > 1) {
		u32 mid = lo + (hi - lo) / 2;

		if (g->items[mid].at <= block)
			lo = mid;
		else
			hi = mid;
	}
	return &g->items[lo];
}

/* One block of a graph that has items, by way of @req. Returns the bytes written, or -errno. */
s64 npulink_graph_run_block(const struct npulink_graph *g, struct npulink_op *const *ops,
			    u32 block, struct npulink_req *req)
{
	const struct npulink_graph_item *it = npulink_graph_item(g, block);
	u64 at = (u64)(block - it->at) * it->block, n = min_t(u64, it->len - at, it->block);
	const struct npulink_comm *comm = ops[0]->rank->comm;
	u32 i;
	int rc;

	for (i = it->first; i < it->first + it->nreqs; i++) {
		/* Thousands may copy the same block. */
		cond_resched();
		/* Pairs with npulink_comm_record(). */
		if (smp_load_acquire(&comm->failed))
			return -ECANCELED;
		rc = npulink_graph_run_req(g, ops, &g->reqs[i], req, at, n);
		if (rc)
			return rc;
	}
	return n * it->nreqs;
}

/* What a run has moved over each link. */
void npulink_graph_count(const struct npulink_graph *g, struct npulink_op *const *ops)
{
	u32 i;

	for (i = 0; i < g->nlinks; i++) {
		const struct npulink_graph_link *gl = &g->links[i];
		struct npulink_conn *conn = ops[gl->rank]->plan->peers[gl->peer].conn;

		atomic64_add(gl->steps, &conn->steps);
		atomic64_add(gl->bytes, &conn->bytes);
		atomic64_add(gl->steps, &conn->back->stats.steps);
		atomic64_add(gl->bytes, &conn->back->stats.bytes);
	}
}
