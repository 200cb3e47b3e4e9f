// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * event.c - the engine that knows both rules and all networks.
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
#include "simulate/state.h"

#define SLICE	(128 * 1024)

/* ---- entries */

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

static void over(struct sim *s, uint32_t rank, uint32_t at);

/* A reduction takes the rank's unit when it is free. */
static int64_t reduce_until(struct sim *s, uint32_t rank, uint64_t len)
{
	int64_t start = s->now > s->reduce_free[rank] ? s->now : s->reduce_free[rank];

	s->reduce_free[rank] = start + sim_ticks(s, len * s->net->gamma);
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
	event_push(s, reduce_until(s, rank, view_of(s, rank)->lens[at]), EV_REDUCED, id, 0);
}

/* A step that passes on what it receives, and nothing of that is here. */
static bool dry(const struct sim *s, uint32_t rank, uint32_t at)
{
	uint32_t from = s->state[rank][at - 1];

	return from != OVER && (!(from & MOVING_MSG) || !s->msgs[from & ~MOVING_MSG].ready);
}

static void entry_due(struct sim *s, uint32_t rank, uint32_t at)
{
	const struct sim_entry *e = entry_of(s, rank, at);
	const struct sim_view *v = view_of(s, rank);
	bool send = e->flags & SIM_SEND;
	uint32_t peer, other, id;
	struct msg *m;

	if (!(e->flags & (SIM_SEND | SIM_RECV))) {
		entry_local(s, rank, at, e);
		return;
	}
	if (send && e->flags & SIM_FUSED && dry(s, rank, at)) {
		s->state[rank][at] = DRY;
		return;
	}
	s->state[rank][at] = WAITING;
	peer = sim_peer(v, at, s->p);
	other = other_end(s, rank, at, peer);
	if (other == NONE || s->state[peer][other] != WAITING || s->rc)
		return;
	id = msg_make(s);
	if (id == NONE)
		return;
	m = &s->msgs[id];
	m->src = send ? rank : peer;
	m->dst = send ? peer : rank;
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
	m->far = s->net->kind == COLL_NET_SERVERS && !sim_net_near(s->net, rank, peer);
	m->shared = ports_shared(s, m->far);
	msg_todo(s, id);
}

static void due_later(struct sim *s, uint32_t rank, uint32_t at)
{
	if (sim_grow(s, &s->due, &s->due_cap, s->ndue + 1, sizeof(*s->due)))
		s->due[s->ndue++] = (struct due){ rank, at };
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
		if (!--s->state[rank][targets[i]])
			due_later(s, rank, targets[i]);
	}
}

static void run_due(struct sim *s)
{
	while (s->ndue && !s->rc) {
		struct due d = s->due[--s->ndue];

		entry_due(s, d.rank, d.at);
	}
}

/* ---- moving */

static double slowness(const struct coll_net *net, uint32_t src, uint32_t dst)
{
	uint32_t i;

	for (i = 0; i < net->nslow; i++)
		if (net->slow[i].src == src && net->slow[i].dst == dst)
			return net->slow[i].factor;
	return 1;
}

static void try_start(struct sim *s, uint32_t id)
{
	struct msg *m = &s->msgs[id];
	uint64_t n;
	double work, left, factor;

	if (m->active || (m->len ? m->given == m->len : m->given))
		return;
	n = msg_offered(s, m) - m->given;
	if (m->len && !n)
		return;
	msg_list(s, id, true);
	if (m->shared && (out_port(s, m)->busy || in_port(s, m)->busy))
		return;
	if (!s->fair && s->nlinks && !way_take(s, id))
		return;
	if (s->exec && n > s->slice)
		n = s->slice;
	if (m->shared) {
		out_port(s, m)->busy = true;
		in_port(s, m)->busy = true;
	}
	if (m->given + n == msg_offered(s, m))
		msg_list(s, id, false);
	m->active = true;
	if (!m->given && s->wants_more)
		s->more[id].start = s->now;
	factor = slowness(s->net, m->src, m->dst);
	work = m->given ? 0 : factor;
	work = work * s->net->alpha[!sim_net_near(s->net, m->src, m->dst)];
	left = n * factor * s->net->beta[!sim_net_near(s->net, m->src, m->dst)];
	s->run->result->busy += work + left;
	m->given += n;
	/* An empty message is on its way as well. */
	if (!m->len)
		m->given = 1;
	if (s->fair) {
		s->more[id].left = sim_ticks(s, left);
		event_push(s, s->now + sim_ticks(s, work), EV_JOIN, id, 0);
	} else {
		event_push(s, s->now + sim_ticks(s, work + left), EV_MOVED, id, 0);
	}
}

/* Frees the port; @at is its place in both lists of ports. */
static void port_free(struct sim *s, struct port *port, uint32_t at)
{
	port->busy = false;
	if (port->scan)
		return;
	port->scan = true;
	s->scan[s->nscan++] = at;
}

static struct port *scanned(struct sim *s, uint32_t at)
{
	return at < 2 * s->p ? &s->out[at] : &s->in[at - 2 * s->p];
}

/* The oldest message that wants a port that has become free, and can have it. */
static void scan_ports(struct sim *s)
{
	uint32_t i, id, next;

	for (i = 0; i < s->nscan; i++) {
		bool out = s->scan[i] < 2 * s->p;
		struct port *port = scanned(s, s->scan[i]);

		if (i + AHEAD < s->nscan)
			__builtin_prefetch(scanned(s, s->scan[i + AHEAD]));
		if (i + AHEAD / 2 < s->nscan) {
			next = scanned(s, s->scan[i + AHEAD / 2])->head;
			if (next != NONE) {
				__builtin_prefetch(&s->msgs[next]);
				__builtin_prefetch(&s->msg_links[next]);
			}
		}
		port->scan = false;
		for (id = port->head; id != NONE && !port->busy; id = next) {
			next = out ? s->msg_links[id].out.next : s->msg_links[id].in.next;
			if (!s->msgs[id].queued)
				try_start(s, id);
		}
	}
	s->nscan = 0;
}

static void report_message(struct sim *s, uint32_t id)
{
	const struct msg *m = &s->msgs[id];
	const struct msg_more *more = &s->more[id];
	struct coll_sim_message out = {
		.src = m->src, .dst = m->dst, .len = m->len, .reduce = m->reduce,
		.src_step = entry_of(s, m->src, m->src_at)->step,
		.dst_step = entry_of(s, m->dst, m->dst_at)->step,
		.due = m->due * s->tick, .start = more->start * s->tick,
		.end = more->end * s->tick, .done = s->now * s->tick,
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
		if (down == DRY)
			due_later(s, m->dst, m->dst_at + 1);
		else if (down != OVER && down & MOVING_MSG)
			msg_todo(s, down & ~MOVING_MSG);
	}
	if (m->ready < m->len)
		return;
	over(s, m->dst, m->dst_at);
	if (s->run->opts->message)
		report_message(s, id);
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
	if (m->shared) {
		port_free(s, out_port(s, m), out_port(s, m) - s->out);
		port_free(s, in_port(s, m), in_port(s, m) - s->in + 2 * s->p);
	}
	if (m->moved == m->len) {
		if (s->wants_more)
			s->more[id].end = s->now;
		s->run->result->messages++;
		s->run->result->bytes += m->len;
		over(s, m->src, m->src_at);
	} else if (!m->listed) {
		msg_todo(s, id);
	}
	if (m->reduce)
		event_push(s, reduce_until(s, m->dst, n), EV_REDUCED, id, n);
	else
		msg_ready(s, id, n);
}

/*
 * What waits for nothing is due when the rank begins. Backwards, as they are taken from
 * the end: the first in the list first.
 */
static void begin(struct sim *s, uint32_t rank)
{
	uint32_t k;

	for (k = view_of(s, rank)->list->shape[0]; k-- > 0;) {
		if (!s->state[rank][k])
			due_later(s, rank, k);
	}
}

static void handle(struct sim *s, const struct event *e)
{
	struct msg *m = e->kind == EV_BEGIN ? NULL : &s->msgs[e->id];

	switch (e->kind) {
	case EV_BEGIN:
		begin(s, e->id);
		break;
	case EV_JOIN:
		fair_join(s, e->id);
		break;
	case EV_MOVED:
		if (!s->fair || e->version == s->more[e->id].version)
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

/*
 * Messages that may start at one time come in the order of the senders' lists. They are
 * found in the order in which something ended, so there are long runs of them, upwards
 * or downwards, that only have to be merged.
 */
static bool starts_before(const struct start *a, const struct start *b)
{
	return a->due != b->due ? a->due < b->due : a->place < b->place;
}

/* The end of the run that begins at @i, which is made to go upwards. */
static uint32_t run_end(struct start *a, uint32_t i, uint32_t n)
{
	uint32_t end = i + 1, k;

	if (end < n && starts_before(&a[end], &a[i])) {
		while (end < n && starts_before(&a[end], &a[end - 1]))
			end++;
		for (k = 0; k < (end - i) / 2; k++) {
			struct start t = a[i + k];

			a[i + k] = a[end - 1 - k];
			a[end - 1 - k] = t;
		}
		return end;
	}
	while (end < n && !starts_before(&a[end], &a[end - 1]))
		end++;
	return end;
}

static void merge(struct start *out, const struct start *a, uint32_t mid, uint32_t n)
{
	uint32_t i = 0, j = mid, k;

	for (k = 0; k < n; k++)
		out[k] = i < mid && (j == n || !starts_before(&a[j], &a[i])) ? a[i++] : a[j++];
}

static void sort_todo(struct sim *s)
{
	uint32_t n = s->ntodo, i, mid, end, runs;
	struct start *a, *b, *t;

	if (!sim_grow(s, &s->starts, &s->starts_cap, 2 * n, sizeof(*s->starts)))
		return;
	a = s->starts;
	b = a + n;
	for (i = 0; i < n; i++) {
		const struct msg *m = &s->msgs[s->todo[i]];

		if (i + AHEAD < n)
			__builtin_prefetch(&s->msgs[s->todo[i + AHEAD]]);
		a[i] = (struct start){
			m->due, (uint64_t)m->src_at << 32 | m->src, s->todo[i],
		};
	}
	do {
		for (i = 0, runs = 0; i < n; i = end, runs++) {
			mid = run_end(a, i, n);
			end = mid < n ? run_end(a, mid, n) : n;
			if (i || end < n || mid < n)
				merge(b + i, a + i, mid - i, end - i);
		}
		if (runs > 1 || mid < n) {
			t = a;
			a = b;
			b = t;
		}
	} while (runs > 1);
	for (i = 0; i < n; i++)
		s->todo[i] = a[i].id;
}

static void run_starts(struct sim *s)
{
	uint32_t i;

	scan_ports(s);
	if (s->exec && s->ntodo > 1)
		sort_todo(s);
	for (i = 0; i < s->ntodo && !s->rc; i++) {
		if (i + AHEAD < s->ntodo)
			__builtin_prefetch(&s->msgs[s->todo[i + AHEAD]]);
		s->msgs[s->todo[i]].queued = false;
		try_start(s, s->todo[i]);
	}
	s->ntodo = 0;
	if (s->fair && s->changed)
		fair_share(s);
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
			struct event e = event_pop(s);

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
	s->wants_more = s->nlinks || s->run->opts->message;
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
	for (i = 0; s->exec && i < 2 * s->p; i++) {
		s->out[i] = (struct port){ .head = NONE, .tail = NONE };
		s->in[i] = s->out[i];
	}
	for (i = 0; i < s->p; i++) {
		s->state[i] = s->states + at;
		for (k = 0; k < view_of(s, i)->list->shape[0]; k++, at++)
			s->states[at] = entry_of(s, i, k)->waits;
	}
	for (i = s->p; i-- > 0 && !s->rc;) {
		if (s->net->start && s->net->start[i] > 0)
			event_push(s, sim_ticks(s, s->net->start[i]), EV_BEGIN, i, 0);
		else
			begin(s, i);
	}
	if (s->rc)
		return s->rc;
	s->run->result->memory = total * sizeof(*s->states) +
		s->p * (sizeof(*s->state) + sizeof(*s->reduce_free)) +
		s->nlinks * sizeof(*s->links) +
		(s->exec ? 4 * s->p * (sizeof(*s->out) + sizeof(*s->scan)) : 0);
	return 0;
}

static void sim_free(struct sim *s)
{
	s->run->result->memory += s->run->store.memory + s->heap_cap * sizeof(*s->heap) +
		s->events_cap * sizeof(*s->events) +
		s->msgs_cap * sizeof(*s->msgs) + s->msg_links_cap * sizeof(*s->msg_links) +
		s->more_cap * sizeof(*s->more) + s->free_cap * sizeof(*s->free_msgs) +
		s->due_cap * sizeof(*s->due) +
		s->todo_cap * sizeof(*s->todo) + s->starts_cap * sizeof(*s->starts);
	free(s->state);
	free(s->states);
	free(s->reduce_free);
	free(s->way);
	free(s->links);
	free(s->out);
	free(s->in);
	free(s->scan);
	free(s->heap);
	free(s->events);
	free(s->msgs);
	free(s->msg_links);
	free(s->more);
	free(s->free_msgs);
	free(s->due);
	free(s->todo);
	free(s->starts);
	free(s->moving);
}

int sim_event_run(struct sim_run *run)
{
	struct sim s = {
		.run = run, .net = run->net, .p = run->store.nranks,
		.exec = run->opts->rule == COLL_RULE_EXEC,
		.free_event = NONE, .latest = NONE, .ahead = NONE,
		.slice = run->opts->slice ? run->opts->slice : SLICE,
		/* Nothing takes longer than all in turn, four times over. */
		.tick = run->work > 0 ? ldexp(1, ilogb(run->work) - 59) : 1,
	};

	s.per_tick = 1 / s.tick;
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
