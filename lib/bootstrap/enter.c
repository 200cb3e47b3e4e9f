// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * enter.c - how a rank other than 0 finds its place in the tree.
 *
 * It goes to the first rank of its machine; if it is that itself, or that one is of no
 * use, to rank 0. There it says HELLO and JOIN, and is told its place: to stay, or whose
 * child to be. If it cannot get there, it comes back and stays. Until it has its place,
 * who sent it knows of it and waits for it.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include "base/base.h"
#include "bootstrap/tcp.h"
#include "coll.h"

#define VERDICT_NS	2000000000ULL	/* rank 0 knows who is missing: wait for its words */
#define WAY_NS		5000000000ULL	/* to connect to a parent */
#define BOUND_NS	1000000000ULL	/* from the first rank's bind() to its listen() */
#define QUEUE_NS	5000000000ULL	/* for its full queue to get shorter */
#define ASK_NS		1000000000ULL	/* who has the port */
#define PAUSE_MS	20

/* Own results of a door, besides 0: stay, and -errno. */
#define GO_ON		1		/* to the place that was said */
#define NO_ENTRY	2		/* go to rank 0 instead */
#define IS_FIRST	3		/* of this machine */
#define AGAIN		4		/* it hung up before it had given a place */

/* What a failed exchange with the way to rank 0 means. */
int coll_parent_failed(struct coll_bootstrap *b, const struct coll_conn *c, int rc, int status)
{
	char who[96];

	if (c->rank)
		snprintf(who, sizeof(who), "rank %u, by which this rank reaches rank 0,", c->rank);
	else
		snprintf(who, sizeof(who), "rank 0 at %.60s port %u", b->host, b->port);
	switch (rc) {
	case -EREMOTEIO:
		return status;		/* its own words */
	case -EBADMSG:
		return coll_text(b->text, sizeof(b->text), -EPROTO,
				 "what answers at %s port %u is not libcoll: another program has the port; %s",
				 b->host, b->port, b->other_port);
	case -EACCES:
		return coll_text(b->text, sizeof(b->text), rc,
				 "what answers at %s port %u does not know %s", b->host,
				 b->port, b->key_is);
	case -ETIMEDOUT:
		return coll_text(b->text, sizeof(b->text), rc, "%s did not answer in time", who);
	default:
		return coll_text(b->text, sizeof(b->text), coll_conn_error(rc),
				 "%s has closed the connection: look for its own error message",
				 who);
	}
}

/* @extra: where this rank listens. 0: to stay here, GO_ON: elsewhere. */
static int knock(struct coll_bootstrap *b, struct coll_conn *c, uint32_t extra,
		 struct coll_place *place, int *status)
{
	struct coll_greeting hello, g = {
		.protocol = COLL_PROTOCOL, .version = COLL_VERSION, .keyed = !!b->key,
		.job = b->job, .nranks = b->nranks, .rank = b->rank, .extra = extra,
	};
	struct coll_bootstrap patient = *b;
	uint64_t now, until_ns;
	int rc;

	/* Who is first on the machine may itself be waiting for rank 0. */
	patient.until_ns = coll_later(patient.until_ns, VERDICT_NS);
	rc = coll_frame_recv(&patient, c, FRAME_HELLO, &hello, sizeof(hello), status);
	if (!rc && hello.extra > COLL_LEFT_MS)
		rc = -EBADMSG;
	if (rc)
		goto out;
	c->rank = hello.rank;
	if (hello.protocol != COLL_PROTOCOL) {
		*status = coll_text(b->text, sizeof(b->text), -EPROTONOSUPPORT,
				    "what answers at %s port %u has libcoll %u.%u.%u, this rank has "
				    COLL_VERSION_STRING ": use one version on all ranks", b->host,
				    b->port, hello.version >> 16, hello.version >> 8 & 255,
				    hello.version & 255);
		return -EREMOTEIO;
	}
	if (hello.job != g.job) {
		*status = coll_text(b->text, sizeof(b->text), -EPROTO,
				    "what answers at %s port %u is another job: %s, and are MASTER_PORT and TORCHELASTIC_RUN_ID the same for all ranks of this one?",
				    b->host, b->port, b->other_port);
		return -EREMOTEIO;
	}
	if (hello.keyed != g.keyed) {
		*status = coll_text(b->text, sizeof(b->text), -EACCES,
				    "%s is set on %s and not on %s: set it to the same text on all ranks",
				    b->key_is, g.keyed ? "this rank" : "rank 0",
				    g.keyed ? "rank 0" : "this rank");
		return -EREMOTEIO;
	}
	if (getrandom(g.nonce, sizeof(g.nonce), 0) != sizeof(g.nonce))
		return -EIO;
	coll_session_key(b, c, hello.nonce, g.nonce);
	/* Anybody can say HELLO: only whoever has the key may make this rank wait longer. */
	now = coll_now_ns();
	patient.until_ns = coll_later(b->until_ns > now ? b->until_ns : now, VERDICT_NS);
	rc = coll_frame_send(&patient, c, FRAME_JOIN, 0, &g, sizeof(g));
	if (!rc)
		rc = coll_frame_recv(&patient, c, FRAME_PLACE, place, sizeof(*place), status);
	if (rc)
		goto out;
	until_ns = now + hello.extra * 1000000ULL + VERDICT_NS;
	if (b->until_ns < until_ns)
		b->until_ns = until_ns;
	return place->len ? GO_ON : 0;
out:
	memcpy(b->text, patient.text, sizeof(b->text));
	return rc;
}

/* It had too many strangers at a time, is still there from the last meeting, or has died. */
static bool hung_up(int rc)
{
	return rc == -ECONNRESET || rc == -EPIPE;
}

static void stay(struct coll_bootstrap *b, struct coll_conn *c)
{
	struct coll_tcp *t = b->priv;

	t->parent = *c;
	c->fd = -1;
}

/* Makes @parent a connection to @place, where this rank is to stay. */
static int go_to(struct coll_bootstrap *b, const struct coll_place *place,
		 struct coll_conn *parent, uint32_t extra)
{
	struct coll_bootstrap quick = *b;
	struct coll_place there;
	int status;

	quick.until_ns = coll_now_ns() + WAY_NS;
	if (quick.until_ns > b->until_ns)
		quick.until_ns = b->until_ns;
	*parent = (struct coll_conn) { .up = true };
	do {
		parent->fd = coll_connect_place(&quick, place);
		/* Its queue is full. */
		if (parent->fd == -EAGAIN)
			poll(NULL, 0, 10);
	} while (parent->fd == -EAGAIN && coll_remaining_ms(&quick));
	if (parent->fd < 0)
		return parent->fd;
	/* Its name, too, may be another's by now. */
	if (place->addr.ss_family == AF_UNIX &&
	    !coll_is_same_user(parent->fd, parent->from, sizeof(parent->from)))
		return -EACCES;
	return knock(b, parent, extra, &there, &status);
}

/* From the entry, @c, to where it said. Back to it if that does not work. */
static int follow(struct coll_bootstrap *b, struct coll_conn *c, struct coll_place *place,
		  uint32_t extra)
{
	struct coll_conn parent = { .fd = -1 };
	const struct coll_tcp *t = b->priv;
	int rc, status = 0;

	for (;;) {
		rc = go_to(b, place, &parent, extra);
		if (!rc)
			break;
		coll_conn_close(&parent);
		rc = coll_frame_send(b, c, FRAME_PLACED, rc, NULL, 0);
		if (!rc)
			rc = coll_frame_recv(b, c, FRAME_PLACE, place, sizeof(*place), &status);
		if (rc)
			return coll_parent_failed(b, c, rc, status);
		if (!place->len) {
			stay(b, c);
			return 0;
		}
	}
	stay(b, &parent);
	coll_conn_close(&parent);
	rc = coll_frame_send(b, c, FRAME_PLACED, 0, NULL, 0);
	/* It reads this before it sees that the connection is closed. */
	coll_conn_close(c);
	return rc ? coll_parent_failed(b, &t->parent, rc, status) : 0;
}

/* ---- by way of this machine */

/*
 * A connection to the first rank of this machine; or this is it. Anybody can have taken the name,
 * and neither listen nor accept: then there is none.
 */
static int find_first(struct coll_bootstrap *b)
{
	struct coll_tcp *t = b->priv;
	uint64_t from = coll_now_ns(), spent;
	int rc;

	while (coll_remaining_ms(b)) {
		spent = coll_now_ns() - from;
		rc = coll_connect_machine(b);
		if (rc == -ECONNREFUSED) {
			rc = coll_listen_machine(b, &t->doors[DOOR_LOCAL]);
			if (!rc) {
				t->doors[DOOR_LOCAL].entry = true;
				return -EALREADY;
			}
			if (rc != -EADDRINUSE || spent > BOUND_NS)
				return rc;
		} else if (rc != -EAGAIN || spent > QUEUE_NS) {
			return rc;
		}
		/* It has the name, and listens in a moment; or its queue is full. */
		poll(NULL, 0, 1 + b->rank % 8);
	}
	return -ETIMEDOUT;
}

static int enter_machine(struct coll_bootstrap *b)
{
	struct coll_tcp *t = b->priv;
	struct coll_conn c = { .fd = find_first(b), .up = true };
	struct coll_place place;
	int rc, status = 0;
	uint32_t extra;

	if (c.fd < 0)
		return c.fd == -EALREADY ? IS_FIRST : NO_ENTRY;
	if (!coll_is_same_user(c.fd, c.from, sizeof(c.from)) ||
	    coll_listen_unnamed(&t->doors[DOOR_LOCAL], &extra)) {
		coll_conn_close(&c);
		return NO_ENTRY;
	}
	rc = knock(b, &c, extra, &place, &status);
	if (rc == GO_ON)
		rc = follow(b, &c, &place, extra);
	else if (!rc)
		stay(b, &c);
	else if (rc == -EREMOTEIO && status != -EACCES)
		rc = status;
	else if (hung_up(rc) && coll_remaining_ms(b))
		rc = AGAIN;
	else if (rc == -ETIMEDOUT)
		/* Which rank it is, it may not have said. */
		coll_text(b->text, sizeof(b->text), rc,
			  "the first rank of this machine (%s) was not admitted to rank 0 at %s port %u in time",
			  c.from, b->host, b->port);
	else
		rc = NO_ENTRY;
	coll_conn_close(&c);
	return rc;
}

/* ---- by way of rank 0 */

/* To rank 0, that cannot listen at its port: who does? */
int coll_port_taken(struct coll_bootstrap *b)
{
	struct coll_bootstrap quick = *b;
	struct coll_conn c = { .up = true };
	struct coll_greeting hello;
	const char *who = "another program";
	int status;

	quick.until_ns = coll_now_ns() + ASK_NS;
	c.fd = coll_connect_root(&quick);
	if (c.fd >= 0 &&
	    !coll_frame_recv(&quick, &c, FRAME_HELLO, &hello, sizeof(hello), &status) &&
	    hello.protocol == COLL_PROTOCOL)
		who = hello.job != b->job || hello.rank ? "another job" : NULL;
	coll_conn_close(&c);
	if (!who)
		return coll_text(b->text, sizeof(b->text), -EADDRINUSE,
				 "another rank 0 of this job listens at %s port %u already: was it started twice, or is one left of an earlier run? If it is another job, %s",
				 b->host, b->port, b->other_port);
	return coll_text(b->text, sizeof(b->text), -EADDRINUSE,
			 "cannot listen at %s port %u, where %s does: %s", b->host, b->port, who,
			 b->other_port);
}

static int enter_root(struct coll_bootstrap *b)
{
	struct coll_tcp *t = b->priv;
	struct coll_conn c = { .fd = coll_connect_root(b), .up = true };
	struct coll_place place;
	int rc, status = 0;
	uint32_t extra;

	if (c.fd < 0)
		return c.fd;
	rc = coll_listen_beside(c.fd, &t->doors[DOOR_NET], &extra);
	if (rc) {
		coll_text(b->text, sizeof(b->text), rc, "cannot listen for other ranks: %s",
			  strerror(-rc));
		goto out;
	}
	rc = knock(b, &c, extra, &place, &status);
	if (rc == GO_ON)
		rc = follow(b, &c, &place, extra);
	else if (!rc)
		stay(b, &c);
	else if (hung_up(rc) && coll_remaining_ms(b))
		rc = AGAIN;
	else
		rc = coll_parent_failed(b, &c, rc, status);
out:
	coll_conn_close(&c);
	return rc;
}

int coll_enter(struct coll_bootstrap *b)
{
	struct coll_tcp *t = b->priv;
	int rc;

	while ((rc = enter_machine(b)) == AGAIN) {
		coll_door_close(&t->doors[DOOR_LOCAL]);
		poll(NULL, 0, PAUSE_MS);
	}
	/* Nobody was told of this door. */
	if (rc == NO_ENTRY)
		coll_door_close(&t->doors[DOOR_LOCAL]);
	if (rc == NO_ENTRY || rc == IS_FIRST) {
		while ((rc = enter_root(b)) == AGAIN) {
			coll_door_close(&t->doors[DOOR_NET]);
			poll(NULL, 0, PAUSE_MS);
		}
	}
	return rc < 0 ? coll_give_up(b, rc) : rc;
}
