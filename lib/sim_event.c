// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * sim_event.c - the engine that knows both rules and all networks.
 *
 * Entries become due as those before them end; where two that make up a message
 * are due, the message may move as soon as it gets what it needs: its ports (only
 * the executor's rule has to ask; list order leaves no choice) and its links. Time
 * is a whole number of ticks, so that what should happen at one time does: all that
 * ends at a time gives back what it held before anything starts. Then ties are
 * taken in the order in which messages met, and nothing depends on chance.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "sim_core.h"
#include "sim_event.h"

#define NONE		0xffffffffU
#define MOVING_MSG	0x80000000U	/* state of an entry: its message, or over */
#define OVER		0xffffffffU
#define SLICE		(128 * 1024)

enum event_kind { EV_MOVED, EV_JOIN, EV_REDUCED };

struct event {
	int64_t time;
	uint64_t seq;
	uint32_t kind, id;
	uint64_t version;	/* of the message; REDUCED: bytes */
};

/* Neighbours in a list of messages. */
struct links {
	uint32_t prev, next;
};

/*
 * A message whose two ends are due, or a reduction at one rank. While it has bytes
 * to be moved it is in the lists of its two ports (EXEC); it may wait for a link.
 */
struct msg {
	uint32_t src, dst, src_at, dst_at;
	uint32_t src_port, dst_port;	/* NONE: nobody else wants it */
	uint64_t len, given, moved, ready;	/* bytes: on their way, arrived, reduced */
	int64_t due, start, end, wait_from;
	struct links out, in;
	uint32_t wait_next;
	uint32_t version;
	bool active, local, reduce, queued, listed;
	/* COLL_SHARE_FAIR */
	double left, share;
	int64_t since;
	uint32_t active_at;
};

struct port {
	uint32_t head, tail;		/* messages that want it */
	bool busy, scan;
};

struct net_link {
	uint32_t users, holder;		/* the last one that took it */
	uint32_t wait_head, wait_tail;
};

/* Where one end of a message waits for the other. */
struct meeting {
	uint32_t src, dst, turn, at;	/* at: entry + 1; 0: empty */
	uint32_t channel;
};

struct due {
	uint32_t rank, at;
};

struct sim {
	struct sim_run *run;
	const struct coll_net *net;
	uint32_t p;
	bool exec, fair;
	double tick;
	uint64_t slice;
	uint32_t **state;		/* of each rank's entries: edges missing, or message */
	uint32_t *states;
	uint64_t left;			/* entries that are not over */
	int64_t now, last;
	uint64_t seq;
	struct event *heap;
	uint32_t nheap, heap_cap;
	struct msg *msgs;
	uint32_t nmsgs, msgs_cap, free_msg;
	struct meeting *meetings;
	uint32_t nmeetings, meet_mask;
	struct due *due;
	uint32_t ndue, due_cap;
	uint32_t *todo, ntodo, todo_cap;	/* messages that may start now */
	struct port *out, *in;
	uint32_t *scan, nscan;
	struct net_link *links;
	uint32_t nlinks, width;
	uint32_t *way;
	uint32_t *moving, nmoving, moving_cap;
	bool changed;			/* some link has other users now */
	int64_t *reduce_free;
	int rc;
};

static const struct sim_view *view_of(const struct sim *s, uint32_t rank)
{
	return &s->run->store.views[rank];
}

static const struct sim_entry *entry_of(const struct sim *s, uint32_t rank, uint32_t at)
{
	return (const struct sim_entry *)(view_of(s, rank)->list->shape + 2) + at;
}

static bool grow(struct sim *s, void *array, uint32_t *cap, uint32_t n, size_t size)
{
	void **mem = array, *more;
	uint32_t want = *cap ? *cap : 64;

	if (n <= *cap)
		return true;
	while (want < n)
		want *= 2;
	more = realloc(*mem, want * size);
	if (!more) {
		s->rc = -ENOMEM;
		return false;
	}
	*mem = more;
	*cap = want;
	return true;
}

static int64_t ticks(const struct sim *s, double seconds)
{
	return llround(seconds / s->tick);
}

/* ---- the queue of events: a heap */

static bool before(const struct event *a, const struct event *b)
{
	return a->time != b->time ? a->time < b->time : a->seq < b->seq;
}

static void push(struct sim *s, int64_t time, enum event_kind kind, uint32_t id, uint64_t version)
{
	struct event e = { time, s->seq++, kind, id, version };
	uint32_t i = s->nheap, up;

	if (!grow(s, &s->heap, &s->heap_cap, i + 1, sizeof(*s->heap)))
		return;
	s->nheap++;
	for (; i; i = up) {
		up = (i - 1) / 2;
		if (!before(&e, &s->heap[up]))
			break;
		s->heap[i] = s->heap[up];
	}
	s->heap[i] = e;
}

static struct event pop(struct sim *s)
{
	struct event top = s->heap[0], e = s->heap[--s->nheap];
	uint32_t i = 0, down;

	for (;; i = down) {
		down = 2 * i + 1;
		if (down >= s->nheap)
			break;
		if (down + 1 < s->nheap && before(&s->heap[down + 1], &s->heap[down]))
			down++;
		if (!before(&s->heap[down], &e))
			break;
		s->heap[i] = s->heap[down];
	}
	s->heap[i] = e;
	return top;
}

/* ---- messages */

static uint32_t msg_make(struct sim *s)
{
	uint32_t id = s->free_msg;

	if (id != NONE) {
		s->free_msg = s->msgs[id].wait_next;
	} else {
		if (!grow(s, &s->msgs, &s->msgs_cap, s->nmsgs + 1, sizeof(*s->msgs)))
			return NONE;
		id = s->nmsgs++;
		s->msgs[id].version = 0;
	}
	s->msgs[id] = (struct msg){
		.src_port = NONE, .dst_port = NONE, .due = s->now, .wait_from = -1,
		.wait_next = NONE, .version = s->msgs[id].version + 1,
	};
	return id;
}

static void msg_free(struct sim *s, uint32_t id)
{
	s->msgs[id].wait_next = s->free_msg;
	s->free_msg = id;
}

static void todo(struct sim *s, uint32_t id)
{
	if (s->msgs[id].queued ||
	    !grow(s, &s->todo, &s->todo_cap, s->ntodo + 1, sizeof(*s->todo)))
		return;
	s->msgs[id].queued = true;
	s->todo[s->ntodo++] = id;
}

static void port_append(struct sim *s, struct port *port, uint32_t id, bool out)
{
	struct msg *m = &s->msgs[id];
	struct links *l = out ? &m->out : &m->in;

	l->next = NONE;
	l->prev = port->tail;
	if (port->tail == NONE)
		port->head = id;
	else if (out)
		s->msgs[port->tail].out.next = id;
	else
		s->msgs[port->tail].in.next = id;
	port->tail = id;
}

static void port_remove(struct sim *s, struct port *port, uint32_t id, bool out)
{
	struct links l = out ? s->msgs[id].out : s->msgs[id].in;

	if (l.prev == NONE)
		port->head = l.next;
	else
		*(out ? &s->msgs[l.prev].out.next : &s->msgs[l.prev].in.next) = l.next;
	if (l.next == NONE)
		port->tail = l.prev;
	else
		*(out ? &s->msgs[l.next].out.prev : &s->msgs[l.next].in.prev) = l.prev;
}

/* A message that shares one of its ports shares the other as well. */
static void msg_list(struct sim *s, uint32_t id, bool listed)
{
	struct msg *m = &s->msgs[id];

	if (m->src_port == NONE || m->listed == listed)
		return;
	m->listed = listed;
	if (listed) {
		port_append(s, &s->out[m->src_port], id, true);
		port_append(s, &s->in[m->dst_port], id, false);
	} else {
		port_remove(s, &s->out[m->src_port], id, true);
		port_remove(s, &s->in[m->dst_port], id, false);
	}
}

/* Which port a message takes, if anybody else may want it at the time. */
static uint32_t shared_port(const struct sim *s, uint32_t rank, uint32_t peer)
{
	if (!s->exec)
		return NONE;
	if (s->net->kind == COLL_NET_SERVERS && !sim_net_near(s->net, rank, peer))
		return 2 * rank + 1;
	return s->net->ports > 1 ? NONE : 2 * rank;
}

/* Bytes that could be moved now: those that the one in front has here. */
static uint64_t msg_offered(const struct sim *s, const struct msg *m)
{
	uint32_t from;

	if (!s->exec || !(entry_of(s, m->src, m->src_at)->flags & SIM_FUSED))
		return m->len;
	from = s->state[m->src][m->src_at - 1];
	if (from == OVER)
		return m->len;
	return from & MOVING_MSG ? s->msgs[from & ~MOVING_MSG].ready : 0;
}

/* An empty message passed on: has the one in front come? */
static bool msg_offered_empty(const struct sim *s, const struct msg *m)
{
	return !s->exec || !(entry_of(s, m->src, m->src_at)->flags & SIM_FUSED) ||
	       s->state[m->src][m->src_at - 1] == OVER;
}

/* ---- meeting of the two ends */

static uint32_t meet_hash(const struct sim *s, const struct meeting *m)
{
	uint64_t h = ((uint64_t)m->src << 32 | m->dst) * 0x9e3779b97f4a7c15ULL;

	h ^= ((uint64_t)m->channel << 32 | m->turn) * 0xff51afd7ed558ccdULL;
	return (h ^ h >> 29) >> 7 & s->meet_mask;
}

static bool meet_same(const struct meeting *a, const struct meeting *b)
{
	return a->src == b->src && a->dst == b->dst && a->turn == b->turn &&
	       a->channel == b->channel;
}

static void meet_insert(struct sim *s, const struct meeting *m)
{
	uint32_t i = meet_hash(s, m);

	while (s->meetings[i].at)
		i = (i + 1) & s->meet_mask;
	s->meetings[i] = *m;
}

static bool meet_grow(struct sim *s)
{
	struct meeting *old = s->meetings;
	uint32_t i, n = old ? s->meet_mask + 1 : 0, cap = n ? 2 * n : 1024;

	if (old && 2 * (s->nmeetings + 1) < n)
		return true;
	s->meetings = calloc(cap, sizeof(*old));
	if (!s->meetings) {
		s->meetings = old;
		s->rc = -ENOMEM;
		return false;
	}
	s->meet_mask = cap - 1;
	for (i = 0; i < n; i++)
		if (old[i].at)
			meet_insert(s, &old[i]);
	free(old);
	return true;
}

/* Entry of the other end if that waits (then it no longer does), else NONE. */
static uint32_t meet(struct sim *s, const struct meeting *m)
{
	uint32_t i, hole, at;

	if (!meet_grow(s))
		return NONE;
	for (i = meet_hash(s, m); s->meetings[i].at; i = (i + 1) & s->meet_mask)
		if (meet_same(&s->meetings[i], m))
			break;
	at = s->meetings[i].at;
	if (!at) {
		s->meetings[i] = *m;
		s->nmeetings++;
		return NONE;
	}
	/* Close the gap. */
	s->nmeetings--;
	for (hole = i;;) {
		uint32_t home;

		i = (i + 1) & s->meet_mask;
		if (!s->meetings[i].at)
			break;
		home = meet_hash(s, &s->meetings[i]);
		if (((i - home) & s->meet_mask) < ((i - hole) & s->meet_mask))
			continue;
		s->meetings[hole] = s->meetings[i];
		hole = i;
	}
	s->meetings[hole].at = 0;
	return at - 1;
}

/* ---- entries */

static void over(struct sim *s, uint32_t rank, uint32_t at);

/* A reduction takes the rank's unit when it is free. */
static int64_t reduce_until(struct sim *s, uint32_t rank, uint64_t len)
{
	int64_t start = s->now > s->reduce_free[rank] ? s->now : s->reduce_free[rank];

	s->reduce_free[rank] = start + ticks(s, len * s->net->gamma);
	return s->reduce_free[rank];
}

static void entry_local(struct sim *s, uint32_t rank, uint32_t at, const struct sim_entry *e)
{
	uint32_t id;

	if (!(e->flags & SIM_REDUCE)) {
		over(s, rank, at);
		return;
	}
	id = msg_make(s);
	if (id == NONE)
		return;
	s->msgs[id].local = true;
	s->msgs[id].dst = rank;
	s->msgs[id].dst_at = at;
	push(s, reduce_until(s, rank, view_of(s, rank)->lens[at]), EV_REDUCED, id, 0);
}

static void entry_due(struct sim *s, uint32_t rank, uint32_t at)
{
	const struct sim_entry *e = entry_of(s, rank, at);
	const struct sim_view *v = view_of(s, rank);
	bool send = e->flags & SIM_SEND;
	uint32_t peer, other, id;
	struct meeting key;
	struct msg *m;

	if (!(e->flags & (SIM_SEND | SIM_RECV))) {
		entry_local(s, rank, at, e);
		return;
	}
	peer = sim_peer(v, at, s->p);
	key = (struct meeting){
		.src = send ? rank : peer, .dst = send ? peer : rank,
		.turn = e->turn, .channel = e->flags >> 8, .at = at + 1,
	};
	other = meet(s, &key);
	if (other == NONE || s->rc)
		return;
	id = msg_make(s);
	if (id == NONE)
		return;
	m = &s->msgs[id];
	m->src = key.src;
	m->dst = key.dst;
	m->src_at = send ? at : other;
	m->dst_at = send ? other : at;
	m->len = v->lens[at];
	m->reduce = entry_of(s, m->dst, m->dst_at)->flags & SIM_REDUCE;
	if (view_of(s, peer)->lens[other] != m->len) {
		s->rc = sim_fail(s->run, -EINVAL,
				 "rank %u sends %llu bytes to rank %u, which takes %llu", m->src,
				 (unsigned long long)view_of(s, m->src)->lens[m->src_at], m->dst,
				 (unsigned long long)view_of(s, m->dst)->lens[m->dst_at]);
		return;
	}
	s->state[m->src][m->src_at] = MOVING_MSG | id;
	s->state[m->dst][m->dst_at] = MOVING_MSG | id;
	m->src_port = shared_port(s, m->src, m->dst);
	m->dst_port = shared_port(s, m->dst, m->src);
	todo(s, id);
}

static void over(struct sim *s, uint32_t rank, uint32_t at)
{
	const struct sim_list *list = view_of(s, rank)->list;
	const struct sim_entry *e = entry_of(s, rank, at);
	const uint32_t *targets = list->shape + 2 + list->shape[0] * SIM_ENTRY_WORDS;
	uint32_t i, end = at + 1 < list->shape[0] ? e[1].first : list->shape[1];

	s->state[rank][at] = OVER;
	s->left--;
	s->last = s->now;
	for (i = e->first; i < end; i++) {
		if (--s->state[rank][targets[i]])
			continue;
		if (grow(s, &s->due, &s->due_cap, s->ndue + 1, sizeof(*s->due)))
			s->due[s->ndue++] = (struct due){ rank, targets[i] };
	}
}

static void run_due(struct sim *s)
{
	while (s->ndue && !s->rc) {
		struct due d = s->due[--s->ndue];

		entry_due(s, d.rank, d.at);
	}
}

/* ---- links */

static bool is_on(struct sim *s, const struct msg *m, uint32_t link)
{
	uint32_t n = sim_net_route(s->net, m->src, m->dst, s->way), i;

	for (i = 0; i < n; i++)
		if (s->way[i] == link)
			return true;
	return false;
}

/* Some message that has the link, which is not the last one that came. */
static uint32_t any_holder(struct sim *s, uint32_t link, uint32_t but)
{
	uint32_t i;

	for (i = 0; i < s->nmsgs; i++)
		if (s->msgs[i].active && !s->msgs[i].local && i != but &&
		    is_on(s, &s->msgs[i], link))
			break;
	return i;
}

static void report_conflict(struct sim *s, uint32_t id, uint32_t link)
{
	uint32_t holder = s->links[link].holder;
	const struct msg *m = &s->msgs[id];
	const struct msg *by = &s->msgs[holder != NONE ? holder : any_holder(s, link, id)];
	struct coll_sim_conflict c = {
		.time = s->now * s->tick, .link = link,
		.src = m->src, .dst = m->dst, .by_src = by->src, .by_dst = by->dst,
		.src_step = entry_of(s, m->src, m->src_at)->step,
		.by_step = entry_of(s, by->src, by->src_at)->step,
	};

	s->run->result->conflicts++;
	if (s->run->opts->conflict)
		s->run->opts->conflict(s->run->opts->ctx, &c);
}

/* Takes the whole way; false if the message has to wait for a part of it. */
static bool way_take(struct sim *s, uint32_t id)
{
	struct msg *m = &s->msgs[id];
	uint32_t n = sim_net_route(s->net, m->src, m->dst, s->way), i;

	for (i = 0; i < n; i++) {
		struct net_link *l = &s->links[s->way[i]];

		if (l->users < s->width)
			continue;
		report_conflict(s, id, s->way[i]);
		/* Which may have looked at other ways. */
		sim_net_route(s->net, m->src, m->dst, s->way);
		if (s->net->sharing != COLL_SHARE_WAIT)
			continue;
		if (m->wait_from < 0)
			m->wait_from = s->now;
		m->wait_next = NONE;
		if (l->wait_tail == NONE)
			l->wait_head = id;
		else
			s->msgs[l->wait_tail].wait_next = id;
		l->wait_tail = id;
		m->queued = true;	/* the link will ask again */
		return false;
	}
	for (i = 0; i < n; i++) {
		s->links[s->way[i]].users++;
		s->links[s->way[i]].holder = id;
	}
	s->changed = s->changed || n;
	if (m->wait_from >= 0)
		s->run->result->waited += (s->now - m->wait_from) * s->tick;
	m->wait_from = -1;
	return true;
}

static void way_give(struct sim *s, uint32_t id)
{
	struct msg *m = &s->msgs[id];
	uint32_t n = sim_net_route(s->net, m->src, m->dst, s->way), i, w, next;

	for (i = 0; i < n; i++) {
		struct net_link *l = &s->links[s->way[i]];

		l->users--;
		if (l->holder == id)
			l->holder = NONE;
		for (w = l->wait_head; w != NONE; w = next) {
			next = s->msgs[w].wait_next;
			s->msgs[w].queued = false;
			todo(s, w);
		}
		l->wait_head = l->wait_tail = NONE;
	}
	s->changed = s->changed || n;
}

/* FAIR: how many times slower than alone is it? */
static double crowd(struct sim *s, const struct msg *m)
{
	uint32_t n = sim_net_route(s->net, m->src, m->dst, s->way), i, most = s->width;

	for (i = 0; i < n; i++)
		if (s->links[s->way[i]].users > most)
			most = s->links[s->way[i]].users;
	return (double)most / s->width;
}

static void share_anew(struct sim *s)
{
	uint32_t i;

	s->changed = false;
	for (i = 0; i < s->nmoving; i++) {
		struct msg *m = &s->msgs[s->moving[i]];
		double share = crowd(s, m);

		if (share == m->share)
			continue;
		if (m->share > 0)
			m->left -= (s->now - m->since) / m->share;
		if (m->left < 0)
			m->left = 0;
		m->share = share;
		m->since = s->now;
		push(s, s->now + llround(m->left * share), EV_MOVED, s->moving[i], ++m->version);
	}
}

static void fair_join(struct sim *s, uint32_t id)
{
	struct msg *m = &s->msgs[id];

	way_take(s, id);
	if (!grow(s, &s->moving, &s->moving_cap, s->nmoving + 1, sizeof(*s->moving)))
		return;
	m->active_at = s->nmoving;
	s->moving[s->nmoving++] = id;
	m->share = 0;
	s->changed = true;
}

static void fair_leave(struct sim *s, uint32_t id)
{
	uint32_t at = s->msgs[id].active_at, last = s->moving[--s->nmoving];

	s->moving[at] = last;
	s->msgs[last].active_at = at;
	way_give(s, id);
}

/* ---- moving */

static void try_start(struct sim *s, uint32_t id)
{
	struct msg *m = &s->msgs[id];
	uint64_t n;
	double work;

	if (m->active || (m->len ? m->given == m->len : m->given))
		return;
	n = msg_offered(s, m) - m->given;
	if (m->len ? !n : !msg_offered_empty(s, m))
		return;
	msg_list(s, id, true);
	if (m->src_port != NONE && (s->out[m->src_port].busy || s->in[m->dst_port].busy))
		return;
	if (!s->fair && s->nlinks && !way_take(s, id))
		return;
	if (s->exec && n > s->slice)
		n = s->slice;
	if (m->src_port != NONE)
		s->out[m->src_port].busy = s->in[m->dst_port].busy = true;
	if (m->given + n == msg_offered(s, m))
		msg_list(s, id, false);
	m->active = true;
	if (!m->given)
		m->start = s->now;
	work = (m->given ? 0 : 1);
	work = work * s->net->alpha[!sim_net_near(s->net, m->src, m->dst)];
	m->left = n * s->net->beta[!sim_net_near(s->net, m->src, m->dst)];
	s->run->result->busy += work + m->left;
	m->given += n;
	/* An empty message is on its way as well. */
	if (!m->len)
		m->given = 1;
	if (s->fair) {
		m->left = ticks(s, m->left);
		push(s, s->now + ticks(s, work), EV_JOIN, id, m->version);
	} else {
		push(s, s->now + ticks(s, work + m->left), EV_MOVED, id, m->version);
	}
}

static void scan_later(struct sim *s, struct port *port, uint32_t id)
{
	if (port->scan)
		return;
	port->scan = true;
	s->scan[s->nscan++] = id;
}

/* The oldest message that wants a port that has become free, and can have it. */
static void scan_ports(struct sim *s)
{
	uint32_t i, id, next;

	for (i = 0; i < s->nscan; i++) {
		bool out = s->scan[i] < 2 * s->p;
		struct port *port = out ? &s->out[s->scan[i]] : &s->in[s->scan[i] - 2 * s->p];

		port->scan = false;
		for (id = port->head; id != NONE && !port->busy; id = next) {
			next = out ? s->msgs[id].out.next : s->msgs[id].in.next;
			if (!s->msgs[id].queued)
				try_start(s, id);
		}
	}
	s->nscan = 0;
}

static void report_message(struct sim *s, const struct msg *m)
{
	struct coll_sim_message out = {
		.src = m->src, .dst = m->dst, .len = m->len, .reduce = m->reduce,
		.src_step = entry_of(s, m->src, m->src_at)->step,
		.dst_step = entry_of(s, m->dst, m->dst_at)->step,
		.due = m->due * s->tick, .start = m->start * s->tick,
		.end = m->end * s->tick, .done = s->now * s->tick,
	};

	s->run->opts->message(s->run->opts->ctx, &out);
}

/* Bytes of the message are here for good: who passes them on may go ahead. */
static void msg_ready(struct sim *s, uint32_t id, uint64_t n)
{
	struct msg *m = &s->msgs[id];
	uint32_t down;

	m->ready += n;
	if (s->exec && entry_of(s, m->dst, m->dst_at)->flags & SIM_FUSED) {
		down = s->state[m->dst][m->dst_at + 1];
		if (down != OVER && down & MOVING_MSG)
			todo(s, down & ~MOVING_MSG);
	}
	if (m->ready < m->len)
		return;
	over(s, m->dst, m->dst_at);
	if (s->run->opts->message)
		report_message(s, m);
	msg_free(s, id);
}

static void moved(struct sim *s, uint32_t id)
{
	struct msg *m = &s->msgs[id];
	uint64_t n = m->len ? m->given - m->moved : 0;

	m->active = false;
	m->moved += n;
	if (s->fair)
		fair_leave(s, id);
	else if (s->nlinks)
		way_give(s, id);
	m = &s->msgs[id];
	if (m->src_port != NONE) {
		s->out[m->src_port].busy = false;
		scan_later(s, &s->out[m->src_port], m->src_port);
		s->in[m->dst_port].busy = false;
		scan_later(s, &s->in[m->dst_port], m->dst_port + 2 * s->p);
	}
	if (m->moved == m->len) {
		m->end = s->now;
		s->run->result->messages++;
		s->run->result->bytes += m->len;
		over(s, m->src, m->src_at);
	} else if (!m->listed) {
		todo(s, id);
	}
	if (m->reduce)
		push(s, reduce_until(s, m->dst, n), EV_REDUCED, id, n);
	else
		msg_ready(s, id, n);
}

static void handle(struct sim *s, const struct event *e)
{
	struct msg *m = &s->msgs[e->id];

	switch (e->kind) {
	case EV_JOIN:
		fair_join(s, e->id);
		break;
	case EV_MOVED:
		if (e->version == m->version)
			moved(s, e->id);
		break;
	case EV_REDUCED:
		if (!m->local) {
			msg_ready(s, e->id, e->version);
			break;
		}
		over(s, m->dst, m->dst_at);
		msg_free(s, e->id);
	}
}

/* ---- the run */

/* Messages that may start at one time come in the order of the senders' lists. */
static int by_step(const void *a, const void *b, void *ctx)
{
	const struct sim *s = ctx;
	const struct msg *x = &s->msgs[*(const uint32_t *)a], *y = &s->msgs[*(const uint32_t *)b];

	if (x->due != y->due)
		return x->due > y->due ? 1 : -1;
	if (x->src_at != y->src_at)
		return x->src_at > y->src_at ? 1 : -1;
	return (x->src > y->src) - (x->src < y->src);
}

static void run_starts(struct sim *s)
{
	uint32_t i;

	scan_ports(s);
	if (s->exec && s->ntodo > 1)
		qsort_r(s->todo, s->ntodo, sizeof(*s->todo), by_step, s);
	for (i = 0; i < s->ntodo && !s->rc; i++) {
		s->msgs[s->todo[i]].queued = false;
		try_start(s, s->todo[i]);
	}
	s->ntodo = 0;
	if (s->fair && s->changed)
		share_anew(s);
}

static void run_events(struct sim *s)
{
	for (;;) {
		run_due(s);
		run_starts(s);
		if (s->rc || !s->nheap)
			return;
		s->now = s->heap[0].time;
		while (s->nheap && s->heap[0].time == s->now && !s->rc) {
			struct event e = pop(s);

			handle(s, &e);
		}
	}
}

static int stuck(struct sim *s)
{
	uint32_t r, i;

	for (r = 0; r < s->p; r++) {
		const struct sim_list *list = view_of(s, r)->list;

		for (i = 0; i < list->shape[0]; i++) {
			const struct sim_entry *e = entry_of(s, r, i);

			if (s->state[r][i] == OVER || !(e->flags & (SIM_SEND | SIM_RECV)))
				continue;
			return sim_fail(s->run, -EDEADLK,
					"rank %u never gets over step %u: it %s rank %u", r,
					e->step, e->flags & SIM_SEND ? "sends to" : "receives from",
					sim_peer(view_of(s, r), i, s->p));
		}
	}
	return sim_fail(s->run, -EDEADLK, "ranks wait for each other");
}

static int sim_init(struct sim *s)
{
	uint64_t total = 0, at = 0;
	uint32_t i, k;

	for (i = 0; i < s->p; i++)
		total += view_of(s, i)->list->shape[0];
	s->left = total;
	s->nlinks = coll_net_links(s->net);
	s->width = sim_net_width(s->net);
	s->state = malloc(s->p * sizeof(*s->state));
	s->states = malloc((total + 1) * sizeof(*s->states));
	s->reduce_free = calloc(s->p, sizeof(*s->reduce_free));
	s->way = malloc(sim_net_hops(s->net) * sizeof(*s->way));
	s->links = malloc((s->nlinks + 1) * sizeof(*s->links));
	if (s->exec) {
		s->out = malloc(2 * s->p * sizeof(*s->out));
		s->in = malloc(2 * s->p * sizeof(*s->in));
		s->scan = malloc(4 * s->p * sizeof(*s->scan));
	}
	if (!s->state || !s->states || !s->reduce_free || !s->way || !s->links ||
	    (s->exec && (!s->out || !s->in || !s->scan)))
		return -ENOMEM;
	for (i = 0; i < s->nlinks; i++)
		s->links[i] = (struct net_link){ .wait_head = NONE, .wait_tail = NONE };
	for (i = 0; s->exec && i < 2 * s->p; i++)
		s->out[i] = s->in[i] = (struct port){ .head = NONE, .tail = NONE };
	for (i = 0; i < s->p; i++) {
		s->state[i] = s->states + at;
		for (k = 0; k < view_of(s, i)->list->shape[0]; k++, at++)
			s->states[at] = entry_of(s, i, k)->waits;
	}
	/* Backwards, as they are taken from the end: the first in the list first. */
	for (i = s->p; i-- > 0;) {
		for (k = view_of(s, i)->list->shape[0]; k-- > 0;) {
			if (s->state[i][k])
				continue;
			if (!grow(s, &s->due, &s->due_cap, s->ndue + 1, sizeof(*s->due)))
				return -ENOMEM;
			s->due[s->ndue++] = (struct due){ i, k };
		}
	}
	s->run->result->memory = total * sizeof(*s->states) +
		s->p * (sizeof(*s->state) + sizeof(*s->reduce_free)) +
		s->nlinks * sizeof(*s->links) +
		(s->exec ? 4 * s->p * (sizeof(*s->out) + sizeof(*s->scan)) : 0);
	return 0;
}

static void sim_free(struct sim *s)
{
	s->run->result->memory += s->run->store.memory + s->heap_cap * sizeof(*s->heap) +
		s->msgs_cap * sizeof(*s->msgs) + s->due_cap * sizeof(*s->due) +
		s->todo_cap * sizeof(*s->todo) +
		(s->meetings ? (s->meet_mask + 1ULL) * sizeof(*s->meetings) : 0);
	free(s->state);
	free(s->states);
	free(s->reduce_free);
	free(s->way);
	free(s->links);
	free(s->out);
	free(s->in);
	free(s->scan);
	free(s->heap);
	free(s->msgs);
	free(s->meetings);
	free(s->due);
	free(s->todo);
	free(s->moving);
}

int sim_event_run(struct sim_run *run)
{
	struct sim s = {
		.run = run, .net = run->net, .p = run->store.nranks,
		.exec = run->opts->rule == COLL_RULE_EXEC, .free_msg = NONE,
		.slice = run->opts->slice ? run->opts->slice : SLICE,
		/* Nothing takes longer than all in turn, four times over. */
		.tick = run->work > 0 ? ldexp(1, ilogb(run->work) - 59) : 1,
	};

	s.rc = sim_init(&s);
	s.fair = s.nlinks && run->net->sharing == COLL_SHARE_FAIR;
	if (!s.rc)
		run_events(&s);
	if (!s.rc && s.left)
		s.rc = stuck(&s);
	run->result->seconds = s.last * s.tick;
	sim_free(&s);
	return s.rc;
}
