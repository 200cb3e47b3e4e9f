// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * bootstrap_serve.c - what a rank does for those that come to it, until all are there.
 *
 * Whoever comes is a stranger until it has said JOIN with a right MAC; strangers are
 * dropped and only counted. An entry gives it a place by the order of arrival and
 * reports it upwards once it is there, so that rank 0 knows who is missing. What a
 * member gets wrong is reported upwards as well, and rank 0 tells all the same line.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include "bootstrap_tcp.h"

#define STRANGER_NS	5000000000ULL		/* to say JOIN */
#define LINGER_NS	3000000000ULL		/* to tell late ranks of a failure */
#define QUIET_NS	300000000ULL		/* after which no more are expected */

void coll_door_close(struct coll_door *door)
{
	if (door->fd >= 0)
		close(door->fd);
	door->fd = -1;
}

/* ---- failures */

/* @b with little time: it may be up, but these bytes fit into any socket's buffer. */
static struct coll_bootstrap hurried(const struct coll_bootstrap *b)
{
	struct coll_bootstrap quick = *b;

	quick.until_ns = coll_now_ns() + 100000000;
	return quick;
}

static void tell(struct coll_bootstrap *b, struct coll_conn *c, int rc)
{
	struct coll_bootstrap quick = hurried(b);

	coll_frame_send(&quick, c, FRAME_ERROR, rc, b->text, strlen(b->text));
}

/*
 * What this rank has found wrong ends it for all: rank 0 fails, others report it and
 * wait for what rank 0 makes of it. Returns what the caller has to return.
 */
static int blame(struct coll_bootstrap *b, int rc)
{
	struct coll_tcp *t = b->priv;

	if (!b->rank)
		return rc;
	tell(b, &t->parent, rc);
	return 0;
}

/* Rank 0: @rank has its place. */
static int enroll(struct coll_bootstrap *b, uint32_t rank, const char *from)
{
	struct coll_tcp *t = b->priv;

	if (!rank || rank >= b->nranks || t->here[rank])
		return coll_text(b->text, sizeof(b->text), -EEXIST,
				 "rank %u came twice (from %s and %s): each process needs its own RANK, and each job its own port",
				 rank, rank < b->nranks ? t->from[rank] : "?", from);
	t->here[rank] = true;
	memcpy(t->from[rank], from, sizeof(t->from[rank]));
	t->missing--;
	return 0;
}

/* The same on any rank: somebody who came by its doors is there. */
static int report(struct coll_bootstrap *b, const struct coll_conn *c)
{
	struct coll_member m = { .rank = c->rank };
	struct coll_tcp *t = b->priv;

	memcpy(m.from, c->from, sizeof(m.from));
	if (!b->rank)
		return enroll(b, m.rank, m.from);
	/* If that fails, so does reading from there, which has the better text. */
	coll_frame_send(b, &t->parent, FRAME_MEMBER, 0, &m, sizeof(m));
	return 0;
}

/* ---- strangers */

/* A free place, else that of the one that has been silent for longest; or NULL, for now. */
static struct coll_conn *room(struct coll_tcp *t)
{
	struct coll_conn *oldest = NULL;

	for (unsigned int i = 0; i < COLL_STRANGERS; i++) {
		struct coll_conn *c = &t->strangers[i];

		if (c->fd < 0)
			return c;
		if (!c->entering && (!oldest || c->since_ns < oldest->since_ns))
			oldest = c;
	}
	return oldest && coll_now_ns() - oldest->since_ns > STRANGER_NS / 5 ? oldest : NULL;
}

static bool accept_one(struct coll_bootstrap *b, struct coll_door *door, struct coll_conn *c)
{
	struct coll_greeting g = {
		.protocol = COLL_PROTOCOL, .version = COLL_VERSION, .keyed = !!*b->key,
		.nranks = b->nranks, .rank = b->rank, .extra = coll_remaining_ms(b),
	};
	struct sockaddr_storage addr = { };
	socklen_t len = sizeof(addr);
	int fd;

	fd = accept4(door->fd, (struct sockaddr *)&addr, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return false;
	coll_conn_close(c);
	c->fd = fd;
	c->door = door;
	c->since_ns = coll_now_ns();
	if (!door->local)
		coll_name_of(&addr, len, c->from, sizeof(c->from));
	else if (!coll_is_same_user(fd, c->from, sizeof(c->from)))
		coll_conn_close(c);
	if (c->fd < 0)
		return true;
	if (getrandom(c->nonce, sizeof(c->nonce), 0) != sizeof(c->nonce)) {
		coll_conn_close(c);
		return true;
	}
	memcpy(g.nonce, c->nonce, sizeof(g.nonce));
	if (coll_frame_send(b, c, FRAME_HELLO, 0, &g, sizeof(g)))
		coll_conn_close(c);
	return true;
}

/* It stays: from now on its failures are everybody's. */
static int adopt(struct coll_bootstrap *b, struct coll_conn *c)
{
	const struct coll_place here = { .rank = b->rank };
	struct coll_tcp *t = b->priv;
	struct coll_conn *children;
	struct pollfd *polls;

	children = realloc(t->children, (t->nchildren + 1) * sizeof(*children));
	if (children)
		t->children = children;
	polls = realloc(t->polls, (t->nchildren + 4 + COLL_STRANGERS) * sizeof(*polls));
	if (polls)
		t->polls = polls;
	if (!children || !polls)
		return blame(b, coll_text(b->text, sizeof(b->text), -ENOMEM, "out of memory"));
	/* If it has gone, that will be seen when it is read from. */
	coll_frame_send(b, c, FRAME_PLACE, 0, &here, sizeof(here));
	c->entering = false;
	t->children[t->nchildren++] = *c;
	c->fd = -1;
	return 0;
}

/* At an entry: it stays. */
static int settle(struct coll_bootstrap *b, struct coll_conn *c)
{
	int rc = report(b, c);

	if (rc) {
		tell(b, c, rc);
		return rc;
	}
	return adopt(b, c);
}

/* At an entry: the next place, at the parent whose child it is by the order of arrival. */
static int assign(struct coll_bootstrap *b, struct coll_conn *c, const struct coll_greeting *g)
{
	struct coll_door *door = c->door;
	struct coll_place own = { .rank = c->rank }, *at;
	uint32_t parent;

	if (!coll_address_of(c->fd, door->local, g->extra, &own))
		own.len = 0;
	if (!door->nplaces || !(door->nplaces & (door->nplaces - 1))) {
		at = realloc(door->places, (2 * door->nplaces + 2) * sizeof(*at));
		if (!at)
			return blame(b, coll_text(b->text, sizeof(b->text), -ENOMEM,
						  "out of memory"));
		door->places = at;
	}
	if (!door->nplaces)
		door->places[door->nplaces++] = (struct coll_place) { };
	parent = (door->nplaces - 1) / COLL_FANOUT;
	door->places[door->nplaces++] = own;
	at = &door->places[parent];
	/* Loopback addresses of one machine are of no use on another one. */
	if (!at->len ||
	    (!door->local && coll_is_loopback(&at->addr) != coll_is_loopback(&own.addr)))
		return settle(b, c);
	c->entering = true;
	coll_frame_send(b, c, FRAME_PLACE, 0, at, sizeof(*at));
	return 0;
}

static int check(struct coll_bootstrap *b, const struct coll_conn *c,
		 const struct coll_greeting *g)
{
	if (g->protocol != COLL_PROTOCOL || g->version >> 8 != COLL_VERSION >> 8)
		return coll_text(b->text, sizeof(b->text), -EPROTONOSUPPORT,
				 "rank %u (%s) has libcoll %u.%u.%u, rank 0 has "
				 COLL_VERSION_STRING ": use one version on all ranks",
				 g->rank, c->from, g->version >> 16, g->version >> 8 & 255,
				 g->version & 255);
	if (g->nranks != b->nranks)
		return coll_text(b->text, sizeof(b->text), -EPROTO,
				 "rank %u (%s) has WORLD_SIZE=%u, rank 0 has WORLD_SIZE=%u",
				 g->rank, c->from, g->nranks, b->nranks);
	return 0;
}

/* A whole JOIN has come. Negative: the bootstrap has failed. */
static int join(struct coll_bootstrap *b, struct coll_conn *c)
{
	struct coll_tcp *t = b->priv;
	struct coll_greeting g;
	char text[160];
	int rc;

	if (!coll_join_is_right(b, c, &g)) {
		if (g.protocol) {
			snprintf(text, sizeof(text),
				 "%s is not that of rank 0: set it to the same on all ranks",
				 b->key_is);
			/* Whoever is refused by an entry of its machine comes to rank 0 yet. */
			t->other_keys += !c->door->local;
			snprintf(t->other_key_from, sizeof(t->other_key_from), "%s", c->from);
			coll_frame_send(b, c, FRAME_ERROR, -EACCES, text, strlen(text));
		}
		coll_conn_close(c);
		return 0;
	}
	c->rank = g.rank;
	if (t->failed) {
		tell(b, c, t->failed);
		coll_conn_close(c);
		t->told++;
		return 0;
	}
	rc = check(b, c, &g);
	if (rc) {
		tell(b, c, rc);
		coll_conn_close(c);
		t->told++;
		return blame(b, rc);
	}
	return c->door->entry ? assign(b, c, &g) : adopt(b, c);
}

/* Reads what a stranger says. */
static int hear(struct coll_bootstrap *b, struct coll_conn *c)
{
	ssize_t n = recv(c->fd, c->join + c->have, sizeof(c->join) - c->have, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0) {
		struct coll_tcp *t = b->priv;

		/* Who leaves an entry of its machine comes to rank 0 yet. */
		t->hung_up += !c->door->local;
		coll_conn_close(c);
		return 0;
	}
	c->have += n;
	return c->have < sizeof(c->join) ? 0 : join(b, c);
}

/* ---- members */

static int lost(struct coll_bootstrap *b, struct coll_conn *c)
{
	coll_text(b->text, sizeof(b->text), 0,
		  "rank %u (%s) exited while others were still awaited: look for its own error message",
		  c->rank, c->from);
	coll_conn_close(c);
	return blame(b, -EOWNERDEAD);
}

/* On its way to its place: it is there, or cannot get there. */
static int hear_entering(struct coll_bootstrap *b, struct coll_conn *c)
{
	struct coll_frame f;
	int rc;

	if (coll_frame_get(b, c, &f, NULL, 0) || f.type != FRAME_PLACED)
		return lost(b, c);
	if (f.status)
		return settle(b, c);
	rc = report(b, c);
	coll_conn_close(c);
	return rc;
}

/* Somebody below @c is there: for rank 0 to know. */
int coll_hear_member(struct coll_bootstrap *b, const struct coll_frame *f, const void *body)
{
	struct coll_tcp *t = b->priv;
	struct coll_member m;

	if (f->type != FRAME_MEMBER || f->len != sizeof(m))
		return -EBADMSG;
	memcpy(&m, body, sizeof(m));
	m.from[sizeof(m.from) - 1] = 0;
	if (!b->rank)
		return enroll(b, m.rank, m.from);
	coll_frame_send(b, &t->parent, FRAME_MEMBER, 0, &m, sizeof(m));
	return 0;
}

/* What a child has to say is for rank 0. */
static int hear_child(struct coll_bootstrap *b, struct coll_conn *c)
{
	struct coll_frame f;
	char body[COLL_TEXT];
	int rc;

	if (coll_frame_get(b, c, &f, body, sizeof(body) - 1))
		return lost(b, c);
	if (f.type == FRAME_ERROR && f.status < 0 && f.status > -4096) {
		body[f.len] = 0;
		return blame(b, coll_text(b->text, sizeof(b->text), f.status, "%s", body));
	}
	rc = coll_hear_member(b, &f, body);
	return rc == -EBADMSG ? lost(b, c) : rc;
}

static int hear_parent(struct coll_bootstrap *b)
{
	struct coll_tcp *t = b->priv;
	int rc, status = 0;

	rc = coll_frame_recv(b, &t->parent, FRAME_WELCOME, NULL, 0, &status);
	if (rc)
		return coll_parent_failed(b, &t->parent, rc, status);
	t->welcome = true;
	b->open_network |= status;
	return 0;
}

/* ---- waiting for all of them */

enum {
	POLL_DOORS,
	POLL_PARENT = 2,
	POLL_STRANGERS,
	POLL_CHILDREN = POLL_STRANGERS + COLL_STRANGERS,
};

/* Who is to be listened to. Once it has failed, only those who come. */
static uint32_t watch(struct coll_tcp *t)
{
	uint32_t n = t->failed ? 0 : t->nchildren;
	bool space = room(t);

	for (unsigned int i = 0; i < ARRAY_SIZE(t->doors); i++)
		t->polls[POLL_DOORS + i].fd = space ? t->doors[i].fd : -1;
	t->polls[POLL_PARENT].fd = t->failed ? -1 : t->parent.fd;
	for (unsigned int i = 0; i < COLL_STRANGERS; i++) {
		struct coll_conn *c = &t->strangers[i];

		if (c->fd >= 0 && !c->entering && coll_now_ns() - c->since_ns > STRANGER_NS)
			coll_conn_close(c);
		t->polls[POLL_STRANGERS + i].fd = c->fd;
	}
	for (uint32_t i = 0; i < n; i++)
		t->polls[POLL_CHILDREN + i].fd = t->children[i].fd;
	for (uint32_t i = 0; i < POLL_CHILDREN + n; i++) {
		t->polls[i].events = POLLIN;
		t->polls[i].revents = 0;
	}
	return n;
}

/* Waits a little for somebody to say something, and does what it says. */
static int serve_some(struct coll_bootstrap *b, int ms)
{
	struct coll_tcp *t = b->priv;
	uint32_t n = watch(t);
	int rc = 0;

	if (poll(t->polls, POLL_CHILDREN + n, ms < 200 ? ms : 200) < 0 && errno != EINTR)
		return coll_text(b->text, sizeof(b->text), -errno, "poll: %s", strerror(errno));
	/* Places of children may move when there are more. */
	for (uint32_t i = 0; i < n && !rc; i++)
		if (t->polls[POLL_CHILDREN + i].revents)
			rc = hear_child(b, &t->children[i]);
	for (unsigned int i = 0; i < COLL_STRANGERS && !rc; i++) {
		struct coll_conn *c = &t->strangers[i];

		if (c->fd >= 0 && t->polls[POLL_STRANGERS + i].revents)
			rc = c->entering ? hear_entering(b, c) : hear(b, c);
	}
	if (!rc && t->polls[POLL_PARENT].revents)
		rc = hear_parent(b);
	for (unsigned int i = 0; i < ARRAY_SIZE(t->doors) && !rc; i++) {
		struct coll_conn *c;

		if (!t->polls[POLL_DOORS + i].revents)
			continue;
		do {
			c = room(t);
		} while (c && accept_one(b, &t->doors[i], c));
	}
	return rc;
}

/*
 * It has failed: tell those who are there, and for a while those who are only coming.
 * Rank 0 knows how many that can be.
 */
int coll_give_up(struct coll_bootstrap *b, int rc)
{
	struct coll_tcp *t = b->priv;
	struct coll_bootstrap quick = *b;
	uint64_t heard_ns = coll_now_ns();
	uint32_t told;

	t->failed = rc;
	for (uint32_t i = 0; i < t->nchildren; i++)
		if (t->children[i].fd >= 0)
			tell(b, &t->children[i], rc);
	for (unsigned int i = 0; i < COLL_STRANGERS; i++) {
		if (t->strangers[i].fd < 0 || !t->strangers[i].entering)
			continue;
		tell(b, &t->strangers[i], rc);
		coll_conn_close(&t->strangers[i]);
		t->told++;
	}
	if (!t->doors[DOOR_LOCAL].entry && b->rank)
		return rc;
	quick.until_ns = heard_ns + LINGER_NS;
	while (coll_remaining_ms(&quick) && (b->rank || t->told < t->missing)) {
		told = t->told;
		if (serve_some(&quick, QUIET_NS / 1000000))
			break;
		if (told != t->told)
			heard_ns = coll_now_ns();
		if (b->rank && coll_now_ns() - heard_ns > QUIET_NS)
			break;
	}
	return rc;
}

static int fail_missing(struct coll_bootstrap *b)
{
	struct coll_tcp *t = b->priv;
	char missing[160] = "", keys[128] = "", hung_up[128] = "";

	coll_bootstrap_missing(t->here, b->nranks, missing, sizeof(missing));
	if (t->other_keys)
		snprintf(keys, sizeof(keys), "; %u connections had another %s, the last from %s",
			 t->other_keys, b->key_is, t->other_key_from);
	if (t->hung_up)
		snprintf(hung_up, sizeof(hung_up),
			 "; %u came and hung up at once: if they were ranks, they say why (as if %s is set %s only)",
			 t->hung_up, b->key_is, *b->key ? "here" : "there");
	return coll_text(b->text, sizeof(b->text), -ETIMEDOUT,
			 "rank %s did not come to %s port %u within %.3g s%s%s%s%s", missing,
			 b->host, b->port, b->patience_ns / 1e9,
			 t->elsewhere ? ", which is no address of rank 0's machine" : "", keys,
			 hung_up, t->elsewhere || t->other_keys || t->hung_up ? "" :
			 ": does it run, with the same address and port, and is nothing in between that filters them?");
}

int coll_serve(struct coll_bootstrap *b)
{
	struct coll_tcp *t = b->priv;
	int rc;

	while (b->rank ? !t->welcome : t->missing) {
		if (coll_remaining_ms(b))
			rc = serve_some(b, coll_remaining_ms(b));
		else if (b->rank)
			rc = coll_parent_failed(b, &t->parent, -ETIMEDOUT, 0);
		else
			rc = fail_missing(b);
		if (rc)
			return coll_give_up(b, rc);
	}
	/* Before anybody can come back for the next communicator. */
	for (unsigned int i = 0; i < ARRAY_SIZE(t->doors); i++) {
		coll_door_close(&t->doors[i]);
		t->doors[i].entry = false;
	}
	/* A child that has gone is noticed when its data is missing. */
	for (uint32_t i = 0; i < t->nchildren; i++)
		coll_frame_send(b, &t->children[i], FRAME_WELCOME, b->open_network, NULL, 0);
	return 0;
}
