// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * state.c - the event engine's containers: a heap of events, a pool of messages,
 * the lists of messages that want a port, and tables that tell one end of a message
 * where the other is.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "simulate/state.h"

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

/* The next event is @first; the messages of those after it are needed soon. */
static void fetch_events(struct sim *s, uint32_t first)
{
	uint32_t i = s->ahead, n = 1;

	if (i == NONE) {
		i = first;
		n = AHEAD;
	}
	for (; n && s->events[i].next != NONE; n--) {
		i = s->events[i].next;
		if (s->events[i].kind != EV_BEGIN)
			__builtin_prefetch(&s->msgs[s->events[i].id]);
	}
	s->ahead = i;
}

struct event event_pop(struct sim *s)
{
	uint32_t i = s->heap[0].first;
	struct event e = s->events[i];

	if (s->latest == i)
		s->latest = NONE;
	if (s->ahead == i)
		s->ahead = NONE;
	s->events[i].next = s->free_event;
	s->free_event = i;
	if (e.next != NONE) {
		s->heap[0].first = e.next;
		fetch_events(s, e.next);
	} else {
		heap_pop(s);
		s->ahead = NONE;
	}
	return e;
}

/* ---- messages */

/* Unlike sim_grow(), keeps each message within one line of the cache. */
static bool msgs_grow_aligned(struct sim *s)
{
	uint32_t cap = s->msgs_cap ? 2 * s->msgs_cap : 64;
	struct msg *more;

	if (s->nmsgs < s->msgs_cap)
		return true;
	more = aligned_alloc(sizeof(*more), cap * sizeof(*more));
	if (!more) {
		s->rc = -ENOMEM;
		return false;
	}
	if (s->nmsgs)
		memcpy(more, s->msgs, s->nmsgs * sizeof(*more));
	free(s->msgs);
	s->msgs = more;
	s->msgs_cap = cap;
	return true;
}

static bool msgs_grow(struct sim *s)
{
	uint32_t n = s->nmsgs + 1;

	_Static_assert(sizeof(struct msg) == 64, "a line of the cache");
	if (!msgs_grow_aligned(s))
		return false;
	if (s->exec &&
	    !sim_grow(s, &s->msg_links, &s->msg_links_cap, n, sizeof(*s->msg_links)))
		return false;
	if (!s->wants_more)
		return true;
	if (!sim_grow(s, &s->more, &s->more_cap, n, sizeof(*s->more)))
		return false;
	s->more[s->nmsgs].version = 0;
	return true;
}

uint32_t msg_make(struct sim *s)
{
	uint32_t id;

	if (s->nfree) {
		id = s->free_msgs[--s->nfree];
		if (s->nfree >= AHEAD)
			__builtin_prefetch(&s->msgs[s->free_msgs[s->nfree - AHEAD]], 1);
	} else {
		if (!msgs_grow(s))
			return NONE;
		id = s->nmsgs++;
	}
	s->msgs[id] = (struct msg){ .due = s->now };
	if (s->wants_more)
		s->more[id] = (struct msg_more){
			.wait_from = -1, .wait_next = NONE, .version = s->more[id].version + 1,
		};
	return id;
}

void msg_free(struct sim *s, uint32_t id)
{
	if (sim_grow(s, &s->free_msgs, &s->free_cap, s->nfree + 1, sizeof(*s->free_msgs)))
		s->free_msgs[s->nfree++] = id;
}

void msg_todo(struct sim *s, uint32_t id)
{
	if (s->msgs[id].queued ||
	    !sim_grow(s, &s->todo, &s->todo_cap, s->ntodo + 1, sizeof(*s->todo)))
		return;
	s->msgs[id].queued = true;
	s->todo[s->ntodo++] = id;
}

static struct links *links_of(struct sim *s, uint32_t id, bool out)
{
	return out ? &s->msg_links[id].out : &s->msg_links[id].in;
}

static void port_append(struct sim *s, struct port *port, uint32_t id, bool out)
{
	*links_of(s, id, out) = (struct links){ .prev = port->tail, .next = NONE };
	if (port->tail == NONE)
		port->head = id;
	else
		links_of(s, port->tail, out)->next = id;
	port->tail = id;
}

static void port_remove(struct sim *s, struct port *port, uint32_t id, bool out)
{
	struct links l = *links_of(s, id, out);

	if (l.prev == NONE)
		port->head = l.next;
	else
		links_of(s, l.prev, out)->next = l.next;
	if (l.next == NONE)
		port->tail = l.prev;
	else
		links_of(s, l.next, out)->prev = l.prev;
}

/* A message that shares one of its ports shares the other as well. */
void msg_list(struct sim *s, uint32_t id, bool listed)
{
	struct msg *m = &s->msgs[id];

	if (!m->shared || m->listed == listed)
		return;
	m->listed = listed;
	if (listed) {
		port_append(s, out_port(s, m), id, true);
		port_append(s, in_port(s, m), id, false);
	} else {
		port_remove(s, out_port(s, m), id, true);
		port_remove(s, in_port(s, m), id, false);
	}
}

/* May anybody else want the ports of that message at the time? */
bool ports_shared(const struct sim *s, bool far)
{
	return s->exec && (far || s->net->ports <= 1);
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
