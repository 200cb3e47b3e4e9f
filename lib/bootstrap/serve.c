// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * serve.c - what a rank does for those that come to it, until all are there.
 *
 * Whoever comes is a stranger until it has said JOIN with a right MAC; strangers are
 * dropped and only counted, and nobody waits for what one of them has not said. An entry
 * gives it a place by the order of arrival and reports it upwards once it is there, so that
 * rank 0 knows who is missing. What a member gets wrong is reported upwards as well, and
 * rank 0 tells all the same line.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/base.h"
#include "bootstrap/tcp.h"
#include "coll.h"

#define STRANGER_NS	5000000000ULL		/* to say JOIN .. */
#define ANSWER_NS	50000000ULL		/* .. if others want to come in */
#define MIN_STRANGERS	8U			/* at a time */
#define MAX_STRANGERS	512U
#define PAUSE_MS	200
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

/* ---- connections */

static bool add(struct coll_conns *list, struct coll_conn *c)
{
	uint32_t max = list->max ? 2 * list->max : COLL_FANOUT;
	struct coll_conn **at = list->at;

	if (list->n == list->max) {
		at = realloc(at, max * sizeof(*at));
		if (!at)
			return false;
		list->at = at;
		list->max = max;
	}
	at[list->n++] = c;
	return true;
}

/* Those behind it move up. */
static void take_out(struct coll_conns *list, uint32_t i)
{
	memmove(&list->at[i], &list->at[i + 1], (--list->n - i) * sizeof(*list->at));
}

static void drop(struct coll_conns *list, uint32_t i)
{
	struct coll_conn *c = list->at[i];

	take_out(list, i);
	coll_conn_close(c);
	free(c);
}

void coll_conns_close(struct coll_conns *list)
{
	while (list->n)
		drop(list, list->n - 1);
	free(list->at);
}

static int no_memory(struct coll_bootstrap *b)
{
	return blame(b, coll_text(b->text, sizeof(b->text), -ENOMEM, "out of memory"));
}

/* ---- strangers */

/* Most of a process's files are not for them. */
uint32_t coll_most_strangers(void)
{
	struct rlimit files = { .rlim_cur = 1024 };

	getrlimit(RLIMIT_NOFILE, &files);
	if (files.rlim_cur / 4 < MIN_STRANGERS)
		return MIN_STRANGERS;
	return files.rlim_cur / 4 < MAX_STRANGERS ? files.rlim_cur / 4 : MAX_STRANGERS;
}

/* When one more can be let in: if there are too many, the one that is silent for longest goes. */
static uint64_t room_ns(const struct coll_tcp *t)
{
	uint64_t ns = t->rest_ns;

	if (t->strangers.n >= t->max_strangers && t->strangers.at[0]->since_ns + ANSWER_NS > ns)
		ns = t->strangers.at[0]->since_ns + ANSWER_NS;
	return ns;
}

static bool greet(struct coll_bootstrap *b, struct coll_conn *c,
		  const struct sockaddr_storage *addr, socklen_t len)
{
	struct coll_greeting g = {
		.protocol = COLL_PROTOCOL, .version = COLL_VERSION, .keyed = !!b->key,
		.job = b->job, .nranks = b->nranks, .rank = b->rank, .extra = coll_remaining_ms(b),
	};

	if (!c->door->local)
		coll_name_of(addr, len, c->from, sizeof(c->from));
	else if (!coll_is_same_user(c->fd, c->from, sizeof(c->from)))
		return false;
	if (getrandom(c->nonce, sizeof(c->nonce), 0) != sizeof(c->nonce))
		return false;
	memcpy(g.nonce, c->nonce, sizeof(g.nonce));
	return !coll_frame_send(b, c, FRAME_HELLO, 0, &g, sizeof(g));
}

/* There is nothing left to let somebody in with, but what somebody else will give back. */
static int full(struct coll_bootstrap *b, int rc)
{
	struct coll_tcp *t = b->priv;

	if (t->strangers.n) {
		drop(&t->strangers, 0);
		return 0;
	}
	t->rest_ns = coll_now_ns() + ANSWER_NS;
	if (rc != -EMFILE || t->entering.n)
		return -EAGAIN;
	coll_no_files(b);
	return t->failed ? rc : blame(b, rc);
}

/* Whoever waits at @door, but not so many that others are not heard. */
static int let_in(struct coll_bootstrap *b, struct coll_door *door)
{
	struct coll_tcp *t = b->priv;

	for (unsigned int i = 0; i < t->max_strangers / 2 && coll_now_ns() >= room_ns(t); i++) {
		struct sockaddr_storage addr = { };
		socklen_t len = sizeof(addr);
		struct coll_conn *c;
		int fd, rc;

		fd = accept4(door->fd, (struct sockaddr *)&addr, &len,
			     SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
			       errno == ENOBUFS)) {
			rc = full(b, -errno);
			if (rc)
				return rc == -EAGAIN ? 0 : rc;
			continue;
		}
		if (fd < 0)
			break;
		if (t->strangers.n >= t->max_strangers)
			drop(&t->strangers, 0);
		c = malloc(sizeof(*c));
		if (!c || !add(&t->strangers, c)) {
			free(c);
			close(fd);
			return no_memory(b);
		}
		*c = (struct coll_conn) { .fd = fd, .door = door, .since_ns = coll_now_ns() };
		if (!greet(b, c, &addr, len))
			drop(&t->strangers, t->strangers.n - 1);
	}
	return 0;
}

/* ---- places */

/* It stays: from now on its failures are everybody's. */
static int adopt(struct coll_bootstrap *b, struct coll_conns *list, uint32_t i)
{
	const struct coll_place here = { .rank = b->rank };
	struct coll_tcp *t = b->priv;

	if (!add(&t->children, list->at[i]))
		return no_memory(b);
	/* If it has gone, that will be seen when it is read from. */
	coll_frame_send(b, list->at[i], FRAME_PLACE, 0, &here, sizeof(here));
	take_out(list, i);
	return 0;
}

/* At an entry: it stays. */
static int settle(struct coll_bootstrap *b, struct coll_conns *list, uint32_t i)
{
	int rc = report(b, list->at[i]);

	if (rc) {
		tell(b, list->at[i], rc);
		drop(list, i);
		return rc;
	}
	return adopt(b, list, i);
}

/* The one that takes the next child, by the order of arrival; 0 if there is none. */
static uint32_t next_seat(struct coll_door *door)
{
	while (door->next < door->nseats &&
	       (door->seats[door->next].shut || door->seats[door->next].children >= COLL_FANOUT))
		door->next++;
	return door->next < door->nseats ? door->next : 0;
}

/*
 * For who did not get to the first one: where others got to, else the next one if others got
 * anywhere. It is before its own, so nobody is sent to who waits for it.
 */
static uint32_t second_seat(struct coll_door *door, uint32_t own)
{
	bool any = false;
	uint32_t next;

	for (uint32_t i = 1; i < own; i++) {
		const struct coll_seat *s = &door->seats[i];

		if (s->reached && !s->shut && s->children < COLL_FANOUT)
			return i;
		any |= s->reached;
	}
	next = any ? next_seat(door) : 0;
	return next < own ? next : 0;
}

static void send_to(struct coll_bootstrap *b, struct coll_conn *c, uint32_t seat)
{
	struct coll_seat *s = &c->door->seats[seat];

	c->seat = seat;
	s->children++;
	coll_frame_send(b, c, FRAME_PLACE, 0, &s->place, sizeof(s->place));
}

/* At an entry: the place of a stranger that has said who it is. */
static int assign(struct coll_bootstrap *b, uint32_t i, const struct coll_greeting *g)
{
	struct coll_tcp *t = b->priv;
	struct coll_conn *c = t->strangers.at[i];
	struct coll_door *door = c->door;
	struct coll_place own = { .rank = c->rank };
	struct coll_seat *seats;
	uint32_t parent;

	if (!coll_address_of(c->fd, door->local, g->extra, &own))
		own.len = 0;
	if (!(door->nseats & (door->nseats - 1))) {
		seats = realloc(door->seats, (2 * door->nseats + 2) * sizeof(*seats));
		if (!seats)
			return no_memory(b);
		door->seats = seats;
	}
	if (!door->nseats)
		door->seats[door->nseats++] = (struct coll_seat) { };
	parent = next_seat(door);
	door->seats[door->nseats++] = (struct coll_seat) { .place = own, .shut = !own.len };
	/* Loopback addresses of one machine are of no use on another one. */
	if (parent && !door->local &&
	    coll_is_loopback(&door->seats[parent].place.addr) != coll_is_loopback(&own.addr))
		parent = 0;
	if (!parent) {
		door->seats[0].children++;
		return settle(b, &t->strangers, i);
	}
	if (!add(&t->entering, c))
		return no_memory(b);
	take_out(&t->strangers, i);
	c->own_seat = door->nseats - 1;
	send_to(b, c, parent);
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

/* Somebody has said who it is, and has the key. Negative: the bootstrap has failed. */
static int join(struct coll_bootstrap *b, uint32_t i, const struct coll_greeting *g)
{
	struct coll_tcp *t = b->priv;
	struct coll_conn *c = t->strangers.at[i];
	int rc;

	c->rank = g->rank;
	if (t->failed) {
		tell(b, c, t->failed);
		drop(&t->strangers, i);
		t->told++;
		return 0;
	}
	rc = check(b, c, g);
	if (rc) {
		tell(b, c, rc);
		drop(&t->strangers, i);
		t->told++;
		return blame(b, rc);
	}
	return c->door->entry ? assign(b, i, g) : adopt(b, &t->strangers, i);
}

/* What stranger @i says. */
static int hear(struct coll_bootstrap *b, uint32_t i)
{
	struct coll_tcp *t = b->priv;
	struct coll_conn *c = t->strangers.at[i];
	struct coll_greeting g;
	int rc;

	rc = coll_join_hear(b, c, &g);
	if (!rc && g.job != b->job)
		rc = -EBADMSG;
	if (rc == -EAGAIN)
		return 0;
	if (!rc)
		return join(b, i, &g);
	/* Whoever is refused by an entry of its machine, or leaves it, comes to rank 0 yet. */
	if (rc == -EACCES) {
		t->other_keys += !c->door->local;
		snprintf(t->other_key_from, sizeof(t->other_key_from), "%s", c->from);
		coll_frame_send(b, c, FRAME_REFUSED, 0, NULL, 0);
	} else if (rc != -EBADMSG) {
		t->hung_up += !c->door->local;
	}
	drop(&t->strangers, i);
	return 0;
}

/* ---- members */

static int lost(struct coll_bootstrap *b, struct coll_conns *list, uint32_t i)
{
	coll_text(b->text, sizeof(b->text), 0,
		  "rank %u (%s) exited while others were still awaited: look for its own error message",
		  list->at[i]->rank, list->at[i]->from);
	drop(list, i);
	return blame(b, -EOWNERDEAD);
}

/* It did not get to its place: where others have got to, or here. */
static int place_again(struct coll_bootstrap *b, uint32_t i, int status)
{
	struct coll_tcp *t = b->priv;
	struct coll_conn *c = t->entering.at[i];
	struct coll_seat *s = &c->door->seats[c->seat];
	bool own_fault = status == -EMFILE || status == -ENFILE || status == -ENOMEM;
	uint32_t seat = 0;

	if (own_fault)
		s->children--;
	else
		s->shut = true;
	if (!own_fault && !c->again)
		seat = second_seat(c->door, c->own_seat);
	if (!seat)
		return settle(b, &t->entering, i);
	c->again = true;
	send_to(b, c, seat);
	return 0;
}

/* On its way to its place: it is there, or cannot get there. */
static int hear_entering(struct coll_bootstrap *b, uint32_t i)
{
	struct coll_tcp *t = b->priv;
	struct coll_conn *c = t->entering.at[i];
	uint8_t body[COLL_TEXT];
	struct coll_frame f;
	int rc;

	rc = coll_frame_hear(b, c, &f, body);
	if (rc == -EAGAIN)
		return 0;
	if (rc || f.type != FRAME_PLACED)
		return lost(b, &t->entering, i);
	if (f.status)
		return place_again(b, i, f.status);
	c->door->seats[c->seat].reached = true;
	rc = report(b, c);
	drop(&t->entering, i);
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
static int hear_child(struct coll_bootstrap *b, uint32_t i)
{
	struct coll_tcp *t = b->priv;
	char body[COLL_TEXT + 1];
	struct coll_frame f;
	int rc;

	rc = coll_frame_hear(b, t->children.at[i], &f, body);
	if (rc == -EAGAIN)
		return 0;
	if (rc)
		return lost(b, &t->children, i);
	if (f.type == FRAME_ERROR && f.status < 0 && f.status > -4096) {
		body[f.len] = 0;
		return blame(b, coll_text(b->text, sizeof(b->text), f.status, "%s", body));
	}
	rc = coll_hear_member(b, &f, body);
	return rc == -EBADMSG ? lost(b, &t->children, i) : rc;
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

static struct pollfd *watch(struct pollfd *polls, const struct coll_conns *list, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		polls[i] = (struct pollfd) { .fd = list->at[i]->fd, .events = POLLIN };
	return polls + n;
}

/* @fd is watched if it is not -1; returns where, or NULL. */
static struct pollfd *watch_one(struct pollfd **end, int fd)
{
	if (fd < 0)
		return NULL;
	**end = (struct pollfd) { .fd = fd, .events = POLLIN };
	return (*end)++;
}

/*
 * Waits a little for somebody to say something, and does what it says. Once it has failed, only
 * those who come are listened to. The array has nothing but open files in it: poll() counts
 * them against RLIMIT_NOFILE.
 */
static int serve_some(struct coll_bootstrap *b, int ms)
{
	struct coll_tcp *t = b->priv;
	struct pollfd *children, *strangers, *entering, *parent, *doors[ARRAY_SIZE(t->doors)], *end;
	uint64_t now = coll_now_ns(), room;
	uint32_t nchildren = t->failed ? 0 : t->children.n, nstrangers, nentering = t->entering.n;
	int rc = 0;

	while (t->strangers.n && now - t->strangers.at[0]->since_ns > STRANGER_NS)
		drop(&t->strangers, 0);
	nstrangers = t->strangers.n;
	children = realloc(t->polls, (nchildren + nstrangers + nentering + 1 +
				      ARRAY_SIZE(t->doors)) * sizeof(*t->polls));
	if (!children)
		return no_memory(b);
	t->polls = children;
	strangers = watch(children, &t->children, nchildren);
	entering = watch(strangers, &t->strangers, nstrangers);
	end = watch(entering, &t->entering, nentering);
	parent = watch_one(&end, t->failed ? -1 : t->parent.fd);
	room = room_ns(t);
	for (unsigned int i = 0; i < ARRAY_SIZE(t->doors); i++)
		doors[i] = watch_one(&end, room <= now ? t->doors[i].fd : -1);
	if (ms > PAUSE_MS)
		ms = PAUSE_MS;
	if (room > now && (room - now) / 1000000 < (unsigned int)ms)
		ms = (room - now) / 1000000 + 1;
	if (poll(children, end - children, ms) < 0 && errno != EINTR)
		return coll_text(b->text, sizeof(b->text), -errno, "poll: %s", strerror(errno));
	/* From the end: who is dropped takes none of those that are still to be heard with it. */
	for (uint32_t i = nchildren; i-- && !rc;)
		if (children[i].revents)
			rc = hear_child(b, i);
	for (uint32_t i = nstrangers; i-- && !rc;)
		if (strangers[i].revents)
			rc = hear(b, i);
	for (uint32_t i = nentering; i-- && !rc;)
		if (entering[i].revents)
			rc = hear_entering(b, i);
	if (!rc && parent && parent->revents)
		rc = hear_parent(b);
	for (unsigned int i = 0; i < ARRAY_SIZE(t->doors) && !rc; i++)
		if (doors[i] && doors[i]->revents)
			rc = let_in(b, &t->doors[i]);
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
	for (uint32_t i = 0; i < t->children.n; i++)
		tell(b, t->children.at[i], rc);
	/* Their files are needed to tell the others. */
	while (rc == -EMFILE && t->children.n)
		drop(&t->children, t->children.n - 1);
	while (t->entering.n) {
		tell(b, t->entering.at[0], rc);
		drop(&t->entering, 0);
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
			 t->hung_up, b->key_is, b->key ? "here" : "there");
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
	for (uint32_t i = 0; i < t->children.n; i++)
		coll_frame_send(b, t->children.at[i], FRAME_WELCOME, b->open_network, NULL, 0);
	return 0;
}
