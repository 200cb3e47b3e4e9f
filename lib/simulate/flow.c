// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * flow.c - the cost rule where no links are contended for: fast.
 *
 * With one send and one receive port per rank, each taken in list order, nothing
 * is left to chance: a message starts at the maximum of a few times that are
 * known once the messages before it are. So there is no queue of events; ranks
 * are visited in turn and do what they can. A port finishes its steps in order,
 * hence any set of dependencies comes down to two numbers: so many receives and
 * so many sends of the list must have ended. The first is implied for a receive,
 * the second for a send, which leaves one number for each.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "simulate/core.h"

/* A word of the list: how many entries of the other port must have ended, and */
#define NEED		0x1fffffU
#define CHANNEL_SHIFT	21
#define CHANNEL		(0x3fU << CHANNEL_SHIFT)
#define REDUCE		(1U << 30)
#define LOCAL		(1U << 31)	/* no message: holds the receive port all the same */

/* ---- from steps to two queues */

/* So many entries of each port have ended when a step has. */
struct mark {
	uint32_t recvs, sends;
};

static void mark_max(struct mark *a, struct mark b)
{
	a->recvs = a->recvs > b.recvs ? a->recvs : b.recvs;
	a->sends = a->sends > b.sends ? a->sends : b.sends;
}

/*
 * What step @i waits for. The first of a chain waits for all its members, which
 * then need not wait themselves: they come after it on the same port.
 */
static struct mark waits_for(const struct coll_plan *plan, const struct mark *done, uint32_t i,
			     struct mark now)
{
	const struct npulink_step *s = &plan->steps[i];
	struct mark m = { 0 };
	uint32_t j = i, d;

	if (s->flags & NPULINK_STEP_F_CHAIN)
		return m;
	do {
		if (s->flags & NPULINK_STEP_F_DRAIN)
			mark_max(&m, now);
		for (d = 0; d < NPULINK_STEP_DEPS; d++)
			if (s->dep[d] && j - s->dep[d] < i)
				mark_max(&m, done[j - s->dep[d]]);
		s++;
		j++;
	} while (j < plan->nsteps && s->flags & NPULINK_STEP_F_CHAIN);
	return m;
}

static bool uses_recv_port(const struct npulink_step *s)
{
	return s->op & (NPULINK_STEP_RECV | NPULINK_STEP_REDUCE);
}

int sim_flow_lower(const struct coll_plan *plan, struct sim_draft *draft)
{
	uint32_t i, r = 0, s = 0, nsend = 0, nrecv = 0, *send, *recv;
	struct mark *done = malloc((plan->nsteps + 1) * sizeof(*done));

	for (i = 0; i < plan->nsteps; i++) {
		nsend += !!(plan->steps[i].op & NPULINK_STEP_SEND);
		nrecv += uses_recv_port(&plan->steps[i]);
	}
	if (!done || !sim_draft_size(draft, 2 + nsend + nrecv, nsend + nrecv)) {
		free(done);
		return -ENOMEM;
	}
	draft->shape[0] = nsend;
	draft->shape[1] = nrecv;
	send = draft->shape + 2;
	recv = send + nsend;

	for (i = 0; i < plan->nsteps; i++) {
		const struct npulink_step *step = &plan->steps[i];
		uint32_t channel = (uint32_t)step->channel << CHANNEL_SHIFT;
		struct mark m = waits_for(plan, done, i, (struct mark){ r, s });
		uint32_t before;

		if (uses_recv_port(step)) {
			/* Nothing starts before the entry in front of it. */
			before = r ? recv[r - 1] & NEED : 0;
			recv[r] = (m.sends > before ? m.sends : before) |
				  (step->op & NPULINK_STEP_REDUCE ? REDUCE : 0) |
				  (step->op & NPULINK_STEP_RECV ? channel : LOCAL);
			draft->peers[nsend + r] = step->op & NPULINK_STEP_RECV ?
						  step->recv_peer : NPULINK_NO_PEER;
			draft->lens[nsend + r] = step->len;
			m.recvs = ++r;
		}
		if (step->op & NPULINK_STEP_SEND) {
			before = s ? send[s - 1] & NEED : 0;
			send[s] = (m.recvs > before ? m.recvs : before) | channel;
			draft->peers[s] = step->send_peer;
			draft->lens[s] = step->len;
			m.sends = ++s;
		}
		done[i] = m;
	}
	free(done);
	return 0;
}

/* ---- running them */

/*
 * When the last entries of a port ended, for those on the other port that have to
 * know; entry i is at [i & mask]. What ended before the other port is free says
 * nothing to anybody, so only messages in flight are kept: entries from @low on.
 */
struct history {
	double *ends;
	uint32_t mask;		/* 0: nothing allocated */
	uint32_t low;
};

struct flow_rank {
	const uint32_t *send, *recv;
	const struct sim_view *view;
	uint32_t nsend, nrecv, sent, received;
	uint32_t keep_sends, keep_recvs;	/* none that come later are asked for */
	double send_free, recv_free;
	struct history sends, recvs;
	bool queued;
};

struct flow {
	struct sim_run *run;
	uint32_t p;
	double alpha, beta, gamma;
	struct flow_rank *ranks;
	uint32_t *queue, head, count;
	uint64_t messages, bytes;
	double busy;
	uint64_t memory;
	int rc;
};

/* Room for entry @i while those from @h->low on are kept. */
static bool history_grow(struct flow *f, struct history *h, uint32_t i)
{
	uint32_t mask = h->mask ? h->mask : 3, k;
	double *ends;

	while (i - h->low > mask)
		mask = 2 * mask + 1;
	ends = malloc((mask + 1) * sizeof(*ends));
	if (!ends) {
		f->rc = -ENOMEM;
		return false;
	}
	for (k = h->low; h->mask && k != i; k++)
		ends[k & mask] = h->ends[k & h->mask];
	f->memory += (mask - h->mask) * sizeof(*ends);
	free(h->ends);
	h->ends = ends;
	h->mask = mask;
	return true;
}

/*
 * Entry @i ended at @end; the next entry of the other port, free at @other, wants
 * to know of @need entries.
 */
static void history_put(struct flow *f, struct history *h, uint32_t need, double other,
			uint32_t i, double end)
{
	if (need && need - 1 > h->low)
		h->low = need - 1 < i ? need - 1 : i;
	while (h->low < i && h->ends[h->low & h->mask] <= other)
		h->low++;
	if ((!h->mask || i - h->low > h->mask) && !history_grow(f, h, i))
		return;
	h->ends[i & h->mask] = end;
}

/* When entry @i ended, if that still matters. */
static double history_get(const struct history *h, uint32_t i)
{
	return i < h->low ? 0 : h->ends[i & h->mask];
}

static void recv_done(struct flow *f, struct flow_rank *r, double end)
{
	uint32_t i = r->received++;

	r->recv_free = end;
	if (i < r->keep_recvs && r->sent < r->nsend)
		history_put(f, &r->recvs, r->send[r->sent] & NEED, r->send_free, i, end);
}

static void send_done(struct flow *f, struct flow_rank *r, double end)
{
	uint32_t i = r->sent++;

	r->send_free = end;
	if (i < r->keep_sends && r->received < r->nrecv)
		history_put(f, &r->sends, r->recv[r->received] & NEED, r->recv_free, i, end);
}

static double later(double a, double b)
{
	return a > b ? a : b;
}

/* Reductions of what is already here. */
static void run_local(struct flow *f, struct flow_rank *r)
{
	while (r->received < r->nrecv && r->recv[r->received] & LOCAL) {
		uint32_t need = r->recv[r->received] & NEED;
		double start = r->recv_free;

		if (need > r->sent)
			return;
		if (need)
			start = later(start, need == r->sent ? r->send_free :
				      history_get(&r->sends, need - 1));
		recv_done(f, r, start + r->view->lens[r->nsend + r->received] * f->gamma);
	}
}

static void visit_later(struct flow *f, uint32_t rank)
{
	if (f->ranks[rank].queued)
		return;
	f->ranks[rank].queued = true;
	f->queue[f->head + f->count < f->p ? f->head + f->count : f->head + f->count - f->p] = rank;
	f->count++;
}

/* The next send of @from, if it and its receiver are ready. Returns success. */
static bool run_send(struct flow *f, uint32_t from)
{
	struct flow_rank *a = &f->ranks[from], *b;
	uint32_t word, other, need, to;
	uint64_t len;
	double start;

	if (a->sent == a->nsend)
		return false;
	word = a->send[a->sent];
	need = word & NEED;
	if (need > a->received)
		return false;
	to = sim_peer(a->view, a->sent, f->p);
	b = &f->ranks[to];
	if (b->received == b->nrecv)
		return false;
	other = b->recv[b->received];
	if (other & LOCAL || (other & NEED) > b->sent || (other ^ word) & CHANNEL ||
	    sim_peer(b->view, b->nsend + b->received, f->p) != from)
		return false;
	len = b->view->lens[b->nsend + b->received];
	if (a->view->lens[a->sent] != len) {
		f->rc = sim_fail(f->run, -EINVAL,
				 "rank %u sends %llu bytes to rank %u, which takes %llu", from,
				 (unsigned long long)a->view->lens[a->sent], to,
				 (unsigned long long)len);
		return false;
	}

	start = later(a->send_free, b->recv_free);
	if (need)
		start = later(start, need == a->received ? a->recv_free :
				     history_get(&a->recvs, need - 1));
	need = other & NEED;
	if (need)
		start = later(start, need == b->sent ? b->send_free :
				     history_get(&b->sends, need - 1));
	f->messages++;
	f->bytes += len;
	f->busy += f->alpha + len * f->beta;
	start += f->alpha + len * f->beta;
	send_done(f, a, start);
	recv_done(f, b, other & REDUCE ? start + len * f->gamma : start);
	visit_later(f, from);
	visit_later(f, to);
	return true;
}

static void flow_visit(struct flow *f, uint32_t rank)
{
	struct flow_rank *r = &f->ranks[rank];

	run_local(f, r);
	run_send(f, rank);
	run_local(f, r);
	if (r->received < r->nrecv)
		run_send(f, sim_peer(r->view, r->nsend + r->received, f->p));
}

/* Who waits for whom, as far as one line tells. */
static int flow_stuck(struct flow *f)
{
	uint32_t i;

	for (i = 0; i < f->p; i++) {
		const struct flow_rank *r = &f->ranks[i];

		if (r->sent < r->nsend)
			return sim_fail(f->run, -EDEADLK,
					"taken in list order, rank %u never gets to send number %u, to rank %u",
					i, r->sent, sim_peer(r->view, r->sent, f->p));
		if (r->received < r->nrecv)
			return sim_fail(f->run, -EDEADLK,
					"taken in list order, rank %u never gets to receive number %u, from rank %u",
					i, r->received,
					sim_peer(r->view, r->nsend + r->received, f->p));
	}
	return 0;
}

static int flow_init(struct flow *f)
{
	uint32_t i;

	f->ranks = calloc(f->p, sizeof(*f->ranks));
	f->queue = malloc(f->p * sizeof(*f->queue));
	f->memory = f->p * (sizeof(*f->ranks) + sizeof(*f->queue));
	if (!f->ranks || !f->queue)
		return -ENOMEM;
	for (i = 0; i < f->p; i++) {
		struct flow_rank *r = &f->ranks[i];

		r->view = &f->run->store.views[i];
		r->nsend = r->view->list->shape[0];
		r->nrecv = r->view->list->shape[1];
		r->send = r->view->list->shape + 2;
		r->recv = r->send + r->nsend;
		r->keep_recvs = r->nsend ? r->send[r->nsend - 1] & NEED : 0;
		r->keep_sends = r->nrecv ? r->recv[r->nrecv - 1] & NEED : 0;
		visit_later(f, i);
	}
	return 0;
}

int sim_flow_run(struct sim_run *run)
{
	const struct coll_net *net = run->net;
	struct coll_sim_result *result = run->result;
	struct flow f = {
		.run = run, .p = run->store.nranks,
		.alpha = net->alpha[0], .beta = net->beta[0], .gamma = net->gamma,
	};
	uint32_t i, rank;

	f.rc = flow_init(&f);
	while (f.count && !f.rc) {
		rank = f.queue[f.head];
		f.head = f.head + 1 < f.p ? f.head + 1 : 0;
		f.count--;
		f.ranks[rank].queued = false;
		flow_visit(&f, rank);
	}
	if (!f.rc)
		f.rc = flow_stuck(&f);
	for (i = 0; i < f.p && f.ranks; i++) {
		result->seconds = later(result->seconds, later(f.ranks[i].send_free,
							       f.ranks[i].recv_free));
		free(f.ranks[i].sends.ends);
		free(f.ranks[i].recvs.ends);
	}
	result->messages = f.messages;
	result->bytes = f.bytes;
	result->busy = f.busy;
	result->memory = run->store.memory + f.memory;
	free(f.ranks);
	free(f.queue);
	return f.rc;
}
