// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * sim_state.c - the event engine's containers: a heap of events, a pool of messages,
 * the lists of messages that want a port, and tables that tell one end of a message
 * where the other is.
 */
#include <errno.h>
#include <stdlib.h>
#include "sim_state.h"

bool sim_grow(struct sim *s, void *array, uint32_t *cap, uint32_t n, size_t size)
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

/* ---- the queue of events: a heap */

static bool before(const struct moment *a, const struct moment *b)
{
	return a->time != b->time ? a->time < b->time : a->seq < b->seq;
}

static void heap_push(struct sim *s, const struct moment *e)
{
	uint32_t i = s->nheap, up;

	if (!sim_grow(s, &s->heap, &s->heap_cap, i + 1, sizeof(*s->heap)))
		return;
	s->nheap++;
	for (; i; i = up) {
		up = (i - 1) / 2;
		if (!before(e, &s->heap[up]))
			break;
		s->heap[i] = s->heap[up];
	}
	s->heap[i] = *e;
}

static void heap_pop(struct sim *s)
{
	struct moment e = s->heap[--s->nheap];
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
}

/* Many things end at one time: they need but one place in the heap. */
void event_push(struct sim *s, int64_t time, enum event_kind kind, uint32_t id, uint64_t version)
{
	uint32_t i = s->free_event;

	if (i != NONE) {
		s->free_event = s->events[i].next;
	} else {
		if (!sim_grow(s, &s->events, &s->events_cap, s->nevents + 1, sizeof(*s->events)))
			return;
		i = s->nevents++;
	}
	s->events[i] = (struct event){ kind, id, version, NONE };
	if (s->latest != NONE && s->latest_time == time) {
		s->events[s->latest].next = i;
	} else {
		const struct moment e = { time, s->seq++, i };

		heap_push(s, &e);
	}
	s->latest = i;
	s->latest_time = time;
}

struct event event_pop(struct sim *s)
{
	uint32_t i = s->heap[0].first;
	struct event e = s->events[i];

	if (s->latest == i)
		s->latest = NONE;
	s->events[i].next = s->free_event;
	s->free_event = i;
	if (e.next != NONE) {
		const struct event *next = &s->events[e.next];

		s->heap[0].first = e.next;
		/* The one after it is needed next, and its message soon. */
		if (next->next != NONE && s->nmsgs) {
			__builtin_prefetch(&s->events[next->next]);
			if (next->kind != EV_BEGIN)
				__builtin_prefetch(&s->msgs[next->id]);
		}
	} else {
		heap_pop(s);
	}
	return e;
}

/* ---- messages */

uint32_t msg_make(struct sim *s)
{
	uint32_t id = s->free_msg;

	if (id != NONE) {
		s->free_msg = s->msgs[id].wait_next;
	} else {
		if (!sim_grow(s, &s->msgs, &s->msgs_cap, s->nmsgs + 1, sizeof(*s->msgs)))
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

void msg_free(struct sim *s, uint32_t id)
{
	s->msgs[id].wait_next = s->free_msg;
	s->free_msg = id;
}

void msg_todo(struct sim *s, uint32_t id)
{
	if (s->msgs[id].queued ||
	    !sim_grow(s, &s->todo, &s->todo_cap, s->ntodo + 1, sizeof(*s->todo)))
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
void msg_list(struct sim *s, uint32_t id, bool listed)
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
uint32_t shared_port(const struct sim *s, uint32_t rank, uint32_t peer)
{
	if (!s->exec)
		return NONE;
	if (s->net->kind == COLL_NET_SERVERS && !sim_net_near(s->net, rank, peer))
		return 2 * rank + 1;
	return s->net->ports > 1 ? NONE : 2 * rank;
}

/* ---- meeting of the two ends */

static uint32_t end_hash(uint32_t peer, uint32_t turn, uint32_t flags)
{
	uint64_t h = ((uint64_t)peer << 32 | turn) * 0x9e3779b97f4a7c15ULL;

	h ^= flags * 0xff51afd7ed558ccdULL;
	return (h ^ h >> 29) >> 7;
}

/* What both ends of a message say of it, but for the direction. */
#define END_FLAGS(flags, dir)	(((flags) & ~0xffU) | (dir))

static bool is_end(const struct sim_list *list, uint32_t i, uint32_t peer, uint32_t turn,
		   uint32_t flags)
{
	const struct sim_entry *e = (const struct sim_entry *)(list->shape + 2) + i;

	return i < list->shape[0] && list->peers[i] == peer && e->turn == turn &&
	       END_FLAGS(e->flags, e->flags & (SIM_SEND | SIM_RECV)) == flags;
}

/* All messages of a list by what the other end knows of them. */
static bool list_index(struct sim *s, struct sim_list *list)
{
	const struct sim_entry *e = (const struct sim_entry *)(list->shape + 2);
	uint32_t n = list->shape[0], size = 16, i, at;

	while (size < 2 * n)
		size *= 2;
	list->index = malloc(size * sizeof(*list->index));
	if (!list->index) {
		s->rc = -ENOMEM;
		return false;
	}
	s->run->store.memory += size * sizeof(*list->index);
	list->index_mask = size - 1;
	for (i = 0; i < size; i++)
		list->index[i] = NONE;
	for (i = 0; i < n; i++, e++) {
		uint32_t dir = e->flags & (SIM_SEND | SIM_RECV);

		if (!dir)
			continue;
		at = end_hash(list->peers[i], e->turn, END_FLAGS(e->flags, dir));
		while (list->index[at & list->index_mask] != NONE)
			at++;
		list->index[at & list->index_mask] = i;
	}
	return true;
}

uint32_t other_end(struct sim *s, uint32_t rank, uint32_t at, uint32_t peer)
{
	const struct sim_entry *e = entry_of(s, rank, at);
	const struct sim_view *v = view_of(s, peer);
	struct sim_list *list = v->list;
	uint32_t me = v->xor ? rank ^ v->delta : mod_sub(rank, v->delta, s->p);
	uint32_t flags = END_FLAGS(e->flags, e->flags & SIM_SEND ? SIM_RECV : SIM_SEND);
	uint32_t i = at + s->apart[!!(e->flags & SIM_SEND)], hash;

	/* Mostly it is as far away as the last one was. */
	if (is_end(list, i, me, e->turn, flags))
		return i;
	if (!list->index && !list_index(s, list))
		return NONE;
	hash = end_hash(me, e->turn, flags);
	while ((i = list->index[hash++ & list->index_mask]) != NONE)
		if (is_end(list, i, me, e->turn, flags))
			break;
	s->apart[!!(e->flags & SIM_SEND)] = i - at;
	return i;
}
