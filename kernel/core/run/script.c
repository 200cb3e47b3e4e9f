// SPDX-License-Identifier: GPL-2.0
/*
 * script.c - the steps of all ranks' plans as one list of requests.
 *
 * When all ranks of a communicator have posted one collective, the steps of all their plans
 * are known, and so is an order in which to run them. It is found by going through
 * them as the sequencer would.
 */
#include <linux/slab.h>
#include <npulink/meet.h>
#include "base/number.h"
#include "comm/comm.h"
#include "plan/plan.h"
#include "run/meet.h"
#include "run/op.h"
#include "run/script.h"

#define NONE		0xffffffffU
#define SCRIPT_UNITS	32768U		/* of all ranks */

static void npulink_script_release(struct kref *kref)
{
	struct npulink_script *s = container_of(kref, struct npulink_script, kref);

	npulink_share_free(s);
	kvfree(s->reqs);
	kvfree(s->operands);
	kvfree(s->links);
	kvfree(s);
}

/* May sleep. */
void npulink_script_put(struct npulink_script *s)
{
	if (s)
		kref_put(&s->kref, npulink_script_release);
}

/* ---- making a script ------------------------------------------------------- */

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
	u32 *link;		/* by peer: index in script->links + 1 */
};

struct maker {
	struct npulink_script *s;
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
	m->s->operands[m->s->noperands++] = (struct npulink_script_operand) {
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
	struct npulink_script *s = m->s;

	if (!*link) {
		s->links[s->nlinks] = (struct npulink_script_link) { .rank = rank, .peer = peer };
		*link = ++s->nlinks;
	}
	s->links[*link - 1].steps++;
	s->links[*link - 1].bytes += len;
}

/* The request of a unit whose inputs have all arrived, as npulink_req_fill() makes it. */
static void maker_request(struct maker *m, u32 rank, u32 unit)
{
	const struct npulink_plan *plan = m->ranks[rank].plan;
	const struct npulink_unit *un = &plan->units[unit];
	const struct npulink_step *steps = &plan->steps[un->first];
	const struct npulink_step *last = &steps[un->nsteps - 1];
	struct npulink_script *s = m->s;
	struct npulink_script_req req = {
		.rank = rank, .unit = unit, .operand = s->noperands,
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
	req.nsrc = s->noperands - req.operand - 1;
	m->bad |= maker_windowed(last);
	if (!req.len) {
		s->noperands = req.operand;
		return;
	}
	s->max_req = max(s->max_req, req.len * req.nsrc);
	m->bytes += req.len * (req.nsrc + 1);
	s->reqs[s->nreqs++] = req;
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

	for (r = 0; r < m->s->nranks; r++)
		if (!maker_streams(m, r))
			return false;
	for (r = 0; r < m->s->nranks; r++) {
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
	struct npulink_script *s = m->s;
	u64 reqs = 0, operands = 0, links = 0, words = 0;
	u32 r, i, *word;

	for (r = 0; r < s->nranks; r++) {
		const struct npulink_plan *plan = m->ranks[r].plan;

		m->ranks[r].base = m->nunits;
		m->nunits += plan->nunits;
		links += plan->npeers;
		words += plan->ndrains + plan->nstreams + plan->npeers;
		if (m->nunits > SCRIPT_UNITS)
			return false;
		for (i = 0; i < plan->nunits; i++) {
			reqs += plan->units[i].engine;
			operands += plan->units[i].engine ? plan->units[i].nsteps + 2 : 0;
		}
		if (operands > 8 * SCRIPT_UNITS)
			return false;
	}
	s->reqs = kvmalloc_array(reqs, sizeof(*s->reqs), GFP_KERNEL_ACCOUNT);
	s->operands = kvmalloc_array(operands, sizeof(*s->operands), GFP_KERNEL_ACCOUNT);
	s->links = kvmalloc_array(links, sizeof(*s->links), GFP_KERNEL_ACCOUNT);
	m->units = kvcalloc(m->nunits, sizeof(*m->units), GFP_KERNEL);
	/* Nothing is on it twice. */
	m->stack = kvmalloc_array(m->nunits, sizeof(*m->stack), GFP_KERNEL);
	m->stacked = kvcalloc(BITS_TO_LONGS(m->nunits), sizeof(long), GFP_KERNEL);
	word = kvcalloc(words, sizeof(*word), GFP_KERNEL);
	m->ranks[0].drain_left = word;
	if (!s->reqs || !s->operands || !s->links || !m->units || !m->stack || !m->stacked || !word)
		return false;
	for (r = 0; r < s->nranks; r++) {
		m->ranks[r].drain_left = word;
		word += m->ranks[r].plan->ndrains;
		m->ranks[r].peer_stream = word;
		word += m->ranks[r].plan->nstreams;
		m->ranks[r].link = word;
		word += m->ranks[r].plan->npeers;
	}
	return true;
}

/* A script for the plans of all ranks' operations, or NULL. Task context, may sleep. */
struct npulink_script *npulink_script_make(struct npulink_op *list, u32 nranks)
{
	struct npulink_script *s = NULL;
	u32 max_src = ~0U;	/* of the rank that has room for the fewest */
	struct maker m = {};
	struct npulink_op *op;
	bool ok = false;

	m.ranks = kvcalloc(nranks, sizeof(*m.ranks), GFP_KERNEL);
	m.s = kvzalloc(struct_size(s, ops, nranks), GFP_KERNEL_ACCOUNT);
	if (m.ranks && m.s) {
		kref_init(&m.s->kref);
		m.s->nranks = nranks;
		for (op = list; op; op = op->meet.next) {
			m.ranks[op->rank->rank].plan = op->plan;
			max_src = min(max_src, op->plan->nreqs ? op->plan->max_src : 0);
		}
		ok = maker_alloc(&m) && maker_run(&m);
	}
	if (ok && m.bytes > npulink_meet_bytes(npulink_script_bytes, nranks,
					       list->rank->dev->processors))
		ok = npulink_share_make(m.s, max_src, m.bytes);
	else
		ok = ok && npulink_coll_meets(list->plan->call.collective);
	if (m.ranks)
		kvfree(m.ranks[0].drain_left);
	kvfree(m.ranks);
	kvfree(m.units);
	kvfree(m.stack);
	kvfree(m.stacked);
	if (ok)
		return m.s;
	if (m.s)
		npulink_script_release(&m.s->kref);
	return NULL;
}

/* ---- running it ------------------------------------------------------------ */

static void npulink_script_bind(const struct npulink_script *s,
				const struct npulink_script_operand *so, u64 at,
				struct npulink_operand *o)
{
	const struct npulink_bound *b = &s->ops[so->rank]->binds[so->slot];

	o->buf = b->buf;
	o->off = b->off + so->off + at;
}

/* Bytes [@at, @at + @n) of a request, by way of @req, which has room for its inputs. */
int npulink_script_req_run(const struct npulink_script *s, const struct npulink_script_req *sr,
			   struct npulink_req *req, u64 at, u64 n)
{
	const struct npulink_script_operand *so = &s->operands[sr->operand];
	const struct npulink_op *op = s->ops[sr->rank];
	struct npulink_device *dev = op->rank->dev;
	u32 i;

	req->dev = dev;
	req->link = NULL;
	npulink_script_bind(s, so, at, &req->dst);
	req->len = n;
	req->nsrc = sr->nsrc;
	req->remote = NPULINK_CHAIN_MAX + 1;
	req->dtype = sr->dtype;
	req->redop = sr->redop;
	req->nontemporal = sr->nontemporal;
	req->small = true;
	req->cancelled = false;
	req->scale = sr->scale;
	req->div = sr->div ? s->nranks : 0;
	req->step = op->plan->units[sr->unit].first;
	for (i = 0; i < sr->nsrc; i++)
		npulink_script_bind(s, so + 1 + i, at, &req->src[i]);
	if (unlikely(sr->scale)) {
		req->rest = sr->rest;
		for (i = 0; i < sr->nsrc; i++)
			req->src[i].scaled = so[1 + i].scaled;
	}
	return dev->ops->run(dev, req);
}

void npulink_script_fail(const struct npulink_script *s, const struct npulink_script_req *sr,
			 int rc)
{
	const struct npulink_op *op = s->ops[sr->rank];
	struct npulink_cause cause = {
		.cause = NPULINK_CAUSE_DEVICE, .rank = sr->rank, .peer = NPULINK_NO_PEER,
		.step = op->plan->units[sr->unit].first, .number = npulink_told(op->number),
		.code = -rc,
	};

	npulink_comm_fail_now(op->rank->comm, &cause);
}

/* What a run of it has moved over each link. */
void npulink_script_count(const struct npulink_script *s)
{
	u32 i;

	for (i = 0; i < s->nlinks; i++) {
		const struct npulink_script_link *sl = &s->links[i];
		struct npulink_conn *conn = s->ops[sl->rank]->plan->peers[sl->peer].conn;

		atomic64_add(sl->steps, &conn->steps);
		atomic64_add(sl->bytes, &conn->bytes);
		atomic64_add(sl->steps, &conn->back->stats.steps);
		atomic64_add(sl->bytes, &conn->back->stats.bytes);
	}
}
