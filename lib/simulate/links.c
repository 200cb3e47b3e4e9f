// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * links.c - links that messages share: who has one, who waits, who gets which
 * part of it, and the report of each conflict.
 */
#include <math.h>
#include <stdlib.h>
#include "simulate/state.h"

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
bool way_take(struct sim *s, uint32_t id)
{
	struct msg *m = &s->msgs[id];
	struct msg_more *more = &s->more[id];
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
		if (more->wait_from < 0)
			more->wait_from = s->now;
		more->wait_next = NONE;
		if (l->wait_tail == NONE)
			l->wait_head = id;
		else
			s->more[l->wait_tail].wait_next = id;
		l->wait_tail = id;
		m->queued = true;	/* the link will ask again */
		return false;
	}
	for (i = 0; i < n; i++) {
		s->links[s->way[i]].users++;
		s->links[s->way[i]].holder = id;
	}
	s->changed = s->changed || n;
	if (more->wait_from >= 0)
		s->run->result->waited += (s->now - more->wait_from) * s->tick;
	more->wait_from = -1;
	return true;
}

void way_give(struct sim *s, uint32_t id)
{
	struct msg *m = &s->msgs[id];
	uint32_t n = sim_net_route(s->net, m->src, m->dst, s->way), i, w, next;

	for (i = 0; i < n; i++) {
		struct net_link *l = &s->links[s->way[i]];

		l->users--;
		if (l->holder == id)
			l->holder = NONE;
		for (w = l->wait_head; w != NONE; w = next) {
			next = s->more[w].wait_next;
			s->msgs[w].queued = false;
			msg_todo(s, w);
		}
		l->wait_head = NONE;
		l->wait_tail = NONE;
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

void fair_share(struct sim *s)
{
	uint32_t i;

	s->changed = false;
	for (i = 0; i < s->nmoving; i++) {
		struct msg_more *m = &s->more[s->moving[i]];
		double share = crowd(s, &s->msgs[s->moving[i]]);

		if (share == m->share)
			continue;
		if (m->share > 0)
			m->left -= (s->now - m->since) / m->share;
		if (m->left < 0)
			m->left = 0;
		m->share = share;
		m->since = s->now;
		event_push(s, s->now + llround(m->left * share), EV_MOVED, s->moving[i],
			   ++m->version);
	}
}

void fair_join(struct sim *s, uint32_t id)
{
	struct msg_more *m = &s->more[id];

	way_take(s, id);
	if (!sim_grow(s, &s->moving, &s->moving_cap, s->nmoving + 1, sizeof(*s->moving)))
		return;
	m->active_at = s->nmoving;
	s->moving[s->nmoving++] = id;
	m->share = 0;
	s->changed = true;
}

void fair_leave(struct sim *s, uint32_t id)
{
	uint32_t at = s->more[id].active_at, last = s->moving[--s->nmoving];

	s->moving[at] = last;
	s->more[last].active_at = at;
	way_give(s, id);
}
