/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * state.h - what the event engine keeps: messages on their way, the queue of
 * events, ports and links.
 */
#ifndef COLL_SIM_STATE_H
#define COLL_SIM_STATE_H

#include "simulate/core.h"
#include "simulate/event.h"

#define NONE		0xffffffffU
/* State of an entry: edges missing, or it waits for the other end, or for the first bytes
 * to pass on, or its message, or over.
 */
#define WAITING		0x7fffffffU
#define DRY		0x7ffffffeU
#define MOVING_MSG	0x80000000U
#define OVER		0xffffffffU

#define AHEAD		8	/* messages are fetched so long before they are needed */

enum event_kind { EV_MOVED, EV_JOIN, EV_REDUCED, EV_BEGIN };

struct event {
	uint32_t kind, id;
	uint64_t version;	/* of the message; REDUCED: bytes */
	uint32_t next;		/* of those at one time, or of those not in use */
};

/* Events that were pushed one after another for one time. */
struct moment {
	int64_t time;
	uint64_t seq;
	uint32_t first;
};

/* Neighbours in a list of messages. */
struct links {
	uint32_t prev, next;
};

/*
 * A message whose two ends are due, or a reduction at one rank: one line of the cache,
 * so what only some runs want is in struct msg_more. While it has bytes to be moved it
 * is in the lists of its two ports (EXEC); it may wait for a link.
 */
struct msg {
	uint32_t src, dst, src_at, dst_at;
	uint64_t len, given, moved, ready;	/* bytes: on their way, arrived, reduced */
	int64_t due;
	bool active, local, reduce, queued, listed;
	bool shared;		/* somebody else may want its ports */
	bool far;
};

/* Its neighbours in the lists of the ports. */
struct msg_links {
	struct links out, in;
};

/* Of links that are contended for, and of what is reported. */
struct msg_more {
	int64_t start, end, wait_from;
	uint32_t wait_next;
	/* COLL_SHARE_FAIR */
	uint32_t version, active_at;
	double left, share;
	int64_t since;
};

struct port {
	uint32_t head, tail;		/* messages that want it */
	bool busy, scan;
};

struct net_link {
	uint32_t users, holder;		/* the last one that took it */
	uint32_t wait_head, wait_tail;
};

/* A message that may start now: when it could, and where it is in its sender's list. */
struct start {
	int64_t due;
	uint64_t place;
	uint32_t id;
};

struct due {
	uint32_t rank, at;
};

struct sim {
	struct sim_run *run;
	const struct coll_net *net;
	uint32_t p;
	bool exec, fair;
	double tick, per_tick;
	uint64_t slice;
	uint32_t **state;		/* of each rank's entries: edges missing, or message */
	uint32_t *states;
	uint64_t left;			/* entries that are not over */
	int64_t now, last;
	uint64_t seq;
	struct moment *heap;
	uint32_t nheap, heap_cap;
	struct event *events;
	uint32_t nevents, events_cap, free_event;
	uint32_t ahead;		/* some events after the first one of this moment, or NONE */
	uint32_t latest;	/* the event pushed last, and for when; NONE: it is over */
	int64_t latest_time;
	struct msg *msgs;
	struct msg_links *msg_links;		/* EXEC */
	struct msg_more *more;			/* if there are links, or reports */
	bool wants_more;
	uint32_t nmsgs, msgs_cap, msg_links_cap, more_cap;
	uint32_t *free_msgs, nfree, free_cap;
	uint32_t apart[2];		/* entries of two ends, when last looked for */
	struct due *due;
	uint32_t ndue, due_cap;
	uint32_t *todo, ntodo, todo_cap;	/* messages that may start now */
	struct start *starts;			/* the same while they are sorted */
	uint32_t starts_cap;
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

static inline const struct sim_view *view_of(const struct sim *s, uint32_t rank)
{
	return &s->run->store.views[rank];
}

static inline struct port *out_port(const struct sim *s, const struct msg *m)
{
	return &s->out[2 * m->src + m->far];
}

static inline struct port *in_port(const struct sim *s, const struct msg *m)
{
	return &s->in[2 * m->dst + m->far];
}

static inline const struct sim_entry *entry_of(const struct sim *s, uint32_t rank, uint32_t at)
{
	return (const struct sim_entry *)(view_of(s, rank)->list->shape + 2) + at;
}

/* ---- state.c */

/* Room for @n elements in a growing array; if there is none, s->rc says so. */
bool sim_grow(struct sim *s, void *array, uint32_t *cap, uint32_t n, size_t size);

/* llround(), of what is not negative. A tick is a power of two, so this is exact. */
static inline int64_t sim_ticks(const struct sim *s, double seconds)
{
	double ticks = seconds * s->per_tick;
	int64_t n = ticks;

	return n + (ticks - n >= 0.5);
}

void event_push(struct sim *s, int64_t time, enum event_kind kind, uint32_t id,
		uint64_t version);
struct event event_pop(struct sim *s);

uint32_t msg_make(struct sim *s);
void msg_free(struct sim *s, uint32_t id);
/* It may start now, or so one hopes. */
void msg_todo(struct sim *s, uint32_t id);
/* Into or out of the lists of its ports. */
void msg_list(struct sim *s, uint32_t id, bool listed);
/* May anybody else want the ports of that message at the time? */
bool ports_shared(const struct sim *s, bool far);
/* Entry of the other end of a message, NONE if there is none. */
uint32_t other_end(struct sim *s, uint32_t rank, uint32_t at, uint32_t peer);

/* ---- links.c */

/* Takes the whole way; false if the message has to wait for a part of it. */
bool way_take(struct sim *s, uint32_t id);
void way_give(struct sim *s, uint32_t id);
/* Fair shares: a message begins to want its links, no longer does; all anew. */
void fair_join(struct sim *s, uint32_t id);
void fair_leave(struct sim *s, uint32_t id);
void fair_share(struct sim *s);

#endif /* COLL_SIM_STATE_H */
