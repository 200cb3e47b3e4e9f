// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * frame.c - frames of the exchange over sockets: header, body, MAC.
 *
 * With a key, each connection has its own, made of the shared one and of a nonce of each
 * end; a frame's MAC covers its direction and number as well. Nobody gets to see a MAC by
 * rank 0 who has not shown one, as keys can be tried with it; who joins has to show the first.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/base.h"
#include "bootstrap/sha256.h"
#include "bootstrap/tcp.h"

#define MAGIC		0x6275706eU		/* "npub" */

/* ---- bytes */

int coll_remaining_ms(const struct coll_bootstrap *b)
{
	uint64_t now = coll_now_ns(), ms;

	if (now >= b->until_ns)
		return 0;
	ms = (b->until_ns - now) / 1000000;
	return ms < COLL_LEFT_MS ? ms + 1 : COLL_LEFT_MS;
}

int coll_wait_for(const struct coll_bootstrap *b, int fd, short events)
{
	struct pollfd p = { .fd = fd, .events = events };
	int n;

	do {
		n = poll(&p, 1, coll_remaining_ms(b));
	} while ((n < 0 && errno == EINTR) || (!n && coll_remaining_ms(b)));
	return n < 0 ? -errno : n ? 0 : -ETIMEDOUT;
}

/* @more: or 0. What belongs together is one segment: the rest of it would wait for an answer. */
static int send_all(const struct coll_bootstrap *b, int fd, const void *data, size_t len, int more)
{
	while (len) {
		ssize_t n = send(fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT | more);
		int rc;

		if (n >= 0) {
			data = (const char *)data + n;
			len -= n;
			continue;
		}
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		rc = coll_wait_for(b, fd, POLLOUT);
		if (rc)
			return rc;
	}
	return 0;
}

/* Begins with what has come of a frame already. */
static int recv_all(const struct coll_bootstrap *b, struct coll_conn *c, void *data, size_t len)
{
	size_t had = c->have < len ? c->have : len;

	if (had) {
		memcpy(data, c->in, had);
		memmove(c->in, c->in + had, c->have - had);
		c->have -= had;
		data = (char *)data + had;
		len -= had;
	}
	while (len) {
		ssize_t n = recv(c->fd, data, len, MSG_DONTWAIT);
		int rc;

		if (n > 0) {
			data = (char *)data + n;
			len -= n;
			continue;
		}
		if (!n)
			return -ECONNRESET;
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		rc = coll_wait_for(b, c->fd, POLLIN);
		if (rc)
			return rc;
	}
	return 0;
}

/* ---- authentication */

static void frame_mac(const struct coll_bootstrap *b, const struct coll_conn *c, bool upward,
		      uint32_t number, const struct coll_frame *f, const void *body,
		      uint8_t mac[COLL_MAC_LEN])
{
	const uint32_t place[2] = { upward, number };
	struct coll_hmac h;

	memset(mac, 0, COLL_MAC_LEN);
	if (!b->key || f->type == FRAME_HELLO || f->type == FRAME_REFUSED)
		return;
	coll_hmac_init(&h, c->key, sizeof(c->key));
	coll_sha256_add(&h.inner, place, sizeof(place));
	coll_sha256_add(&h.inner, f, sizeof(*f));
	coll_sha256_add(&h.inner, body, f->len);
	coll_hmac_end(&h, mac);
}

void coll_session_key(const struct coll_bootstrap *b, struct coll_conn *c,
		      const uint8_t server[16], const uint8_t client[16])
{
	struct coll_hmac h;

	coll_hmac_init(&h, b->key, b->key ? COLL_KEY_LEN : 0);
	coll_sha256_add(&h.inner, "npulink session", 16);
	coll_sha256_add(&h.inner, server, 16);
	coll_sha256_add(&h.inner, client, 16);
	coll_hmac_end(&h, c->key);
}

static bool same_mac(const uint8_t *a, const uint8_t *b)
{
	uint8_t diff = 0;

	for (int i = 0; i < COLL_MAC_LEN; i++)
		diff |= a[i] ^ b[i];
	return !diff;
}

/* ---- frames */

int coll_frame_send(const struct coll_bootstrap *b, struct coll_conn *c,
		    enum coll_frame_type type, int status, const void *body, size_t len)
{
	struct coll_frame f = { .magic = MAGIC, .type = type, .status = status, .len = len };
	uint8_t mac[COLL_MAC_LEN];
	int rc;

	frame_mac(b, c, c->up, c->sent, &f, body, mac);
	c->sent += type != FRAME_HELLO;
	rc = send_all(b, c->fd, &f, sizeof(f), MSG_MORE);
	if (!rc)
		rc = send_all(b, c->fd, body, len, MSG_MORE);
	return rc ? rc : send_all(b, c->fd, mac, sizeof(mac), 0);
}

/* Has it the MAC that it needs? */
static int check_mac(const struct coll_bootstrap *b, struct coll_conn *c,
		     const struct coll_frame *f, const void *body, const uint8_t *mac)
{
	uint8_t right[COLL_MAC_LEN];

	frame_mac(b, c, !c->up, c->received, f, body, right);
	if (!same_mac(mac, right))
		return -EACCES;
	c->received += f->type != FRAME_HELLO;
	return 0;
}

/* Any frame. -EBADMSG: it is none, or longer than @max; -EACCES: wrong MAC. */
int coll_frame_get(struct coll_bootstrap *b, struct coll_conn *c, struct coll_frame *f,
		   void *body, size_t max)
{
	uint8_t mac[COLL_MAC_LEN];
	int rc;

	rc = recv_all(b, c, f, sizeof(*f));
	if (rc)
		return rc;
	if (f->magic != MAGIC || f->len > max)
		return -EBADMSG;
	rc = recv_all(b, c, body, f->len);
	if (!rc)
		rc = recv_all(b, c, mac, sizeof(mac));
	return rc ? rc : check_mac(b, c, f, body, mac);
}

/* As far as it has come: c->in has the whole frame, unless this is -EAGAIN or another error. */
static int take_in(struct coll_conn *c, struct coll_frame *f, size_t max)
{
	size_t want = sizeof(*f);
	ssize_t n;

	for (;;) {
		if (c->have >= sizeof(*f)) {
			memcpy(f, c->in, sizeof(*f));
			if (f->magic != MAGIC || f->len > max)
				return -EBADMSG;
			want = sizeof(*f) + f->len + COLL_MAC_LEN;
		}
		if (c->have == want)
			break;
		n = recv(c->fd, c->in + c->have, want - c->have, MSG_DONTWAIT);
		if (!n)
			return -ECONNRESET;
		if (n < 0)
			return errno == EINTR ? -EAGAIN : -errno;
		c->have += n;
	}
	c->have = 0;
	return 0;
}

/*
 * A frame of up to COLL_TEXT bytes, without waiting for the rest of it (-EAGAIN): nobody who
 * stops in the middle of one stops this rank.
 */
int coll_frame_hear(const struct coll_bootstrap *b, struct coll_conn *c, struct coll_frame *f,
		    void *body)
{
	int rc = take_in(c, f, COLL_TEXT);

	if (rc)
		return rc;
	memcpy(body, c->in + sizeof(*f), f->len);
	return check_mac(b, c, f, body, c->in + sizeof(*f) + f->len);
}

/* The same of a stranger's JOIN: @c has its key from then on. -EACCES: it has another one. */
int coll_join_hear(const struct coll_bootstrap *b, struct coll_conn *c, struct coll_greeting *g)
{
	struct coll_frame f;
	int rc = take_in(c, &f, sizeof(*g));

	if (rc)
		return rc;
	if (f.type != FRAME_JOIN || f.len != sizeof(*g))
		return -EBADMSG;
	memcpy(g, c->in + sizeof(f), sizeof(*g));
	coll_session_key(b, c, c->nonce, g->nonce);
	return check_mac(b, c, &f, g, c->in + sizeof(f) + sizeof(*g));
}

/* This frame of this length. -EREMOTEIO: an ERROR or REFUSED instead, its text is in b. */
int coll_frame_recv(struct coll_bootstrap *b, struct coll_conn *c, enum coll_frame_type type,
		    void *body, size_t len, int *status)
{
	char *buf = malloc(len + COLL_TEXT);
	struct coll_frame f;
	int rc;

	if (!buf)
		return -ENOMEM;
	rc = coll_frame_get(b, c, &f, buf, len + COLL_TEXT - 1);
	if (rc)
		goto out;
	if (f.type == type && f.len == len) {
		if (len)
			memcpy(body, buf, len);
		*status = f.status;
	} else if (f.type == FRAME_ERROR && type != FRAME_HELLO && f.len < COLL_TEXT) {
		buf[f.len] = 0;
		*status = f.status < 0 && f.status > -4096 ? f.status : -EPROTO;
		rc = coll_text(b->text, sizeof(b->text), -EREMOTEIO, "%s", buf);
	} else if (f.type == FRAME_REFUSED && type == FRAME_PLACE && c->received == 1) {
		*status = coll_text(b->text, sizeof(b->text), -EACCES,
				    "%s is not that of rank 0: set it to the same on all ranks",
				    b->key_is);
		rc = -EREMOTEIO;
	} else {
		rc = -EBADMSG;
	}
out:
	explicit_bzero(buf, len + COLL_TEXT);
	free(buf);
	return rc;
}

/* Every connection is a file. */
int coll_no_files(struct coll_bootstrap *b)
{
	struct rlimit files = { };

	getrlimit(RLIMIT_NOFILE, &files);
	return coll_text(b->text, sizeof(b->text), -EMFILE,
			 "rank %u can open no more connections: its process may have %llu files (RLIMIT_NOFILE), raise that with ulimit -n",
			 b->rank, (unsigned long long)files.rlim_cur);
}

void coll_conn_close(struct coll_conn *c)
{
	if (c->fd >= 0)
		close(c->fd);
	explicit_bzero(c, sizeof(*c));
	c->fd = -1;
}
