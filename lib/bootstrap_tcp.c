// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * bootstrap_tcp.c - the exchange over TCP: all ranks connect to rank 0.
 *
 * Everything is a frame: header, body, and a MAC that is zero without a key. Rank 0
 * says HELLO, the other JOIN; when all have, each gets WELCOME, and then every
 * exchange is a DATA up and a DATA down. What comes from a stranger (no JOIN with
 * a right MAC) is dropped and only counted; what a member gets wrong ends the
 * bootstrap on all ranks with one and the same line, sent as ERROR.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "bootstrap.h"

#define PROTOCOL	2
#define MAGIC		0x6275706eU		/* "npub" */
#define STRANGER_NS	5000000000ULL		/* to say JOIN */
#define STRANGERS	64U
#define LINGER_NS	3000000000ULL		/* to tell late ranks of a failure */
#define BODY_MAX	(64U << 20)

enum frame_type { HELLO, JOIN, WELCOME, DATA, ERROR };

struct frame {
	uint32_t magic;
	uint32_t type;
	int32_t status;
	uint32_t len;
};

/* HELLO and JOIN. */
struct greeting {
	uint32_t protocol;
	uint32_t version;
	uint32_t keyed;
	uint32_t nranks;
	uint32_t rank;
	uint32_t wait_ms;		/* in HELLO: how long rank 0 will still wait */
	uint8_t nonce[16];
};

#define MAC_LEN		32
#define JOIN_LEN	(sizeof(struct frame) + sizeof(struct greeting) + MAC_LEN)

/* A connection; on rank 0, one for each rank, and those who have not said who they are. */
struct conn {
	int fd;
	bool joined;
	uint32_t sent, received;
	uint64_t since_ns;
	size_t have;
	uint8_t join[JOIN_LEN];
	uint8_t nonce[16];
	uint8_t key[32];
	char from[64];
};

struct tcp {
	int listen_fd;
	struct conn *conns;		/* by rank; of others than rank 0 only [0] */
	struct conn strangers[STRANGERS];
	unsigned int other_keys;
	char other_key_from[64];
	int failed;			/* what to tell whoever comes, with b->text */
};

/* ---- bytes */

static int remaining_ms(const struct coll_bootstrap *b)
{
	uint64_t now = coll_now_ns();

	if (now >= b->until_ns)
		return 0;
	return (b->until_ns - now) / 1000000 < 1000000 ? (b->until_ns - now) / 1000000 + 1
						       : 1000000;
}

static int wait_for(const struct coll_bootstrap *b, int fd, short events)
{
	struct pollfd p = { .fd = fd, .events = events };
	int n;

	do {
		n = poll(&p, 1, remaining_ms(b));
	} while ((n < 0 && errno == EINTR) || (!n && remaining_ms(b)));
	return n < 0 ? -errno : n ? 0 : -ETIMEDOUT;
}

static int send_all(const struct coll_bootstrap *b, int fd, const void *data, size_t len)
{
	while (len) {
		ssize_t n = send(fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
		int rc;

		if (n >= 0) {
			data = (const char *)data + n;
			len -= n;
			continue;
		}
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		rc = wait_for(b, fd, POLLOUT);
		if (rc)
			return rc;
	}
	return 0;
}

static int recv_all(const struct coll_bootstrap *b, int fd, void *data, size_t len)
{
	while (len) {
		ssize_t n = recv(fd, data, len, MSG_DONTWAIT);
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
		rc = wait_for(b, fd, POLLIN);
		if (rc)
			return rc;
	}
	return 0;
}

/* ---- frames */

/* upward: from a rank to rank 0. The number keeps frames from being replayed. */
static void frame_mac(const struct coll_bootstrap *b, const struct conn *c, bool upward,
		      uint32_t number, const struct frame *f, const void *body,
		      uint8_t mac[MAC_LEN])
{
	const uint32_t place[2] = { upward, number };
	struct coll_hmac h;

	memset(mac, 0, MAC_LEN);
	if (!*b->key)
		return;
	coll_hmac_init(&h, c->key, sizeof(c->key));
	coll_sha256_add(&h.inner, place, sizeof(place));
	coll_sha256_add(&h.inner, f, sizeof(*f));
	coll_sha256_add(&h.inner, body, f->len);
	coll_hmac_end(&h, mac);
}

static void session_key(const struct coll_bootstrap *b, struct conn *c,
			const uint8_t server[16], const uint8_t client[16])
{
	struct coll_hmac h;

	coll_hmac_init(&h, b->key, strlen(b->key));
	coll_sha256_add(&h.inner, "npulink session", 16);
	coll_sha256_add(&h.inner, server, 16);
	coll_sha256_add(&h.inner, client, 16);
	coll_hmac_end(&h, c->key);
}

static bool same_mac(const uint8_t *a, const uint8_t *b)
{
	uint8_t diff = 0;

	for (int i = 0; i < MAC_LEN; i++)
		diff |= a[i] ^ b[i];
	return !diff;
}

static int frame_send(const struct coll_bootstrap *b, struct conn *c, enum frame_type type,
		      int status, const void *body, size_t len)
{
	struct frame f = { .magic = MAGIC, .type = type, .status = status, .len = len };
	uint8_t mac[MAC_LEN];
	int rc;

	frame_mac(b, c, b->rank, c->sent++, &f, body, mac);
	rc = send_all(b, c->fd, &f, sizeof(f));
	if (!rc)
		rc = send_all(b, c->fd, body, len);
	return rc ? rc : send_all(b, c->fd, mac, sizeof(mac));
}

/* -EBADMSG: not a frame; -EACCES: wrong MAC; -EREMOTEIO: an ERROR, its text is in b. */
static int frame_recv(struct coll_bootstrap *b, struct conn *c, enum frame_type type, void *body,
		      size_t len, int *status)
{
	uint8_t mac[MAC_LEN], right[MAC_LEN];
	char text[COLL_TEXT];
	struct frame f;
	int rc;

	rc = recv_all(b, c->fd, &f, sizeof(f));
	if (rc)
		return rc;
	if (f.magic != MAGIC || (f.type != type && f.type != ERROR) ||
	    (f.type == type && f.len != len) || (f.type == ERROR && f.len >= sizeof(text)))
		return -EBADMSG;
	if (f.type == ERROR)
		body = text;
	rc = recv_all(b, c->fd, body, f.len);
	if (!rc)
		rc = recv_all(b, c->fd, mac, sizeof(mac));
	if (rc)
		return rc;
	/* HELLO comes before there is a key, and so may ERROR. */
	frame_mac(b, c, !b->rank, c->received, &f, body, right);
	if (f.type != HELLO && f.type != ERROR && !same_mac(mac, right))
		return -EACCES;
	c->received += f.type != HELLO;
	if (f.type != ERROR)
		return 0;
	text[f.len] = 0;
	*status = f.status < 0 && f.status > -4096 ? f.status : -EPROTO;
	return coll_text(b->text, sizeof(b->text), -EREMOTEIO, "%s", text);
}

/* ---- addresses */

static bool is_loopback(const struct sockaddr *addr)
{
	if (addr->sa_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)addr)->sin_addr.s_addr) >> 24 == 127;
	return addr->sa_family == AF_INET6 &&
	       IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)addr)->sin6_addr);
}

static void name_of(const struct sockaddr *addr, socklen_t len, char *name, size_t size)
{
	char host[46], port[8];

	if (getnameinfo(addr, len, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV))
		snprintf(name, size, "?");
	else
		snprintf(name, size, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
}

static int resolve(const struct coll_bootstrap *b, struct addrinfo **list, const char **why)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	char port[8];
	int rc;

	snprintf(port, sizeof(port), "%u", b->port);
	rc = getaddrinfo(b->host, port, &hints, list);
	*why = rc ? gai_strerror(rc) : NULL;
	return rc ? -EHOSTUNREACH : 0;
}

/* ---- rank 0 */

static int listen_on(const struct sockaddr *addr, socklen_t len)
{
	int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int one = 1, zero = 0, rc;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (addr->sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
	if (!bind(fd, addr, len) && !listen(fd, SOMAXCONN))
		return fd;
	rc = -errno;
	close(fd);
	return rc;
}

/* At the address that was given; at all of them if that is not this machine's own. */
static int start_listening(struct coll_bootstrap *b)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(b->port) };
	struct tcp *t = b->priv;
	struct addrinfo *list, *a;
	const char *why;
	int rc;

	rc = resolve(b, &list, &why);
	if (rc)
		return coll_text(b->text, sizeof(b->text), rc, "MASTER_ADDR=\"%s\": %s", b->host,
				 why);
	rc = -EADDRNOTAVAIL;
	for (a = list; a && rc < 0 && rc != -EADDRINUSE; a = a->ai_next) {
		rc = listen_on(a->ai_addr, a->ai_addrlen);
		b->open_network = !is_loopback(a->ai_addr);
	}
	freeaddrinfo(list);
	if (rc == -EADDRNOTAVAIL) {
		rc = listen_on((struct sockaddr *)&any, sizeof(any));
		b->open_network = true;
	}
	if (rc == -EADDRINUSE || rc == -EACCES)
		return coll_text(b->text, sizeof(b->text), rc,
				 "cannot listen at %s port %u: %s; set COLL_PORT to a free port on all ranks",
				 b->host, b->port, strerror(-rc));
	if (rc < 0)
		return coll_text(b->text, sizeof(b->text), rc, "cannot listen at %s port %u: %s",
				 b->host, b->port, strerror(-rc));
	t->listen_fd = rc;
	return 0;
}

static void conn_close(struct conn *c)
{
	if (c->fd >= 0)
		close(c->fd);
	explicit_bzero(c, sizeof(*c));
	c->fd = -1;
}

/* Tells everybody who is there, and the one it is about; returns rc. */
static int fail_members(struct coll_bootstrap *b, struct conn *about, int rc)
{
	struct tcp *t = b->priv;
	struct coll_bootstrap quick = *b;

	/* The time may be up, but these bytes fit into any socket's buffer. */
	quick.until_ns = coll_now_ns() + 100000000;
	t->failed = rc;
	for (uint32_t i = 1; i < b->nranks; i++)
		if (t->conns[i].joined)
			frame_send(&quick, &t->conns[i], ERROR, rc, b->text, strlen(b->text));
	if (about)
		frame_send(&quick, about, ERROR, rc, b->text, strlen(b->text));
	return rc;
}

/* A free place, else that of the one that has been silent for longest; or NULL, for now. */
static struct conn *place(struct tcp *t)
{
	struct conn *oldest = &t->strangers[0];

	for (unsigned int i = 0; i < STRANGERS; i++) {
		struct conn *c = &t->strangers[i];

		if (c->fd < 0)
			return c;
		if (c->since_ns < oldest->since_ns)
			oldest = c;
	}
	return coll_now_ns() - oldest->since_ns > STRANGER_NS / 5 ? oldest : NULL;
}

static void accept_one(struct coll_bootstrap *b, struct conn *c)
{
	const struct greeting hello = {
		.protocol = PROTOCOL, .version = COLL_VERSION, .keyed = !!*b->key,
		.nranks = b->nranks,
	};
	struct sockaddr_storage addr;
	socklen_t len = sizeof(addr);
	struct tcp *t = b->priv;
	struct greeting g = hello;
	int fd;

	g.wait_ms = remaining_ms(b);

	fd = accept4(t->listen_fd, (struct sockaddr *)&addr, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return;
	conn_close(c);
	c->fd = fd;
	c->since_ns = coll_now_ns();
	name_of((struct sockaddr *)&addr, len, c->from, sizeof(c->from));
	if (getrandom(c->nonce, sizeof(c->nonce), 0) != sizeof(c->nonce)) {
		conn_close(c);
		return;
	}
	memcpy(g.nonce, c->nonce, sizeof(g.nonce));
	if (frame_send(b, c, HELLO, 0, &g, sizeof(g)))
		conn_close(c);
	c->sent = 0;
}

/* A whole JOIN has come. Negative: the bootstrap has failed. */
static int join(struct coll_bootstrap *b, struct conn *c)
{
	struct tcp *t = b->priv;
	const char *first = "rank 0";
	struct greeting g;
	struct frame f;
	uint8_t right[MAC_LEN];
	int rc = 0;

	memcpy(&f, c->join, sizeof(f));
	memcpy(&g, c->join + sizeof(f), sizeof(g));
	if (f.magic != MAGIC || f.type != JOIN || f.len != sizeof(g)) {
		conn_close(c);
		return 0;
	}
	session_key(b, c, c->nonce, g.nonce);
	frame_mac(b, c, true, 0, &f, &g, right);
	if (!same_mac(c->join + sizeof(f) + sizeof(g), right)) {
		static const char text[] =
			"COLL_KEY is not that of rank 0: set it to the same text on all ranks";

		t->other_keys++;
		snprintf(t->other_key_from, sizeof(t->other_key_from), "%s", c->from);
		frame_send(b, c, ERROR, -EACCES, text, strlen(text));
		conn_close(c);
		return 0;
	}
	c->received = 1;
	if (t->failed) {
		frame_send(b, c, ERROR, t->failed, b->text, strlen(b->text));
		conn_close(c);
		return 1;
	}
	if (g.rank && g.rank < b->nranks)
		first = t->conns[g.rank].from;
	if (g.protocol != PROTOCOL || g.version >> 8 != COLL_VERSION >> 8)
		rc = coll_text(b->text, sizeof(b->text), -EPROTONOSUPPORT,
			       "rank %u (%s) has libcoll %u.%u.%u, rank 0 has " COLL_VERSION_STRING
			       ": use one version on all ranks",
			       g.rank, c->from, g.version >> 16, g.version >> 8 & 255,
			       g.version & 255);
	else if (g.nranks != b->nranks)
		rc = coll_text(b->text, sizeof(b->text), -EPROTO,
			       "rank %u (%s) has WORLD_SIZE=%u, rank 0 has WORLD_SIZE=%u", g.rank,
			       c->from, g.nranks, b->nranks);
	else if (!g.rank || g.rank >= b->nranks || t->conns[g.rank].joined)
		rc = coll_text(b->text, sizeof(b->text), -EEXIST,
			       "rank %u came twice (from %s and %s): each process needs its own RANK, and each job its own port",
			       g.rank, first, c->from);
	if (rc)
		return fail_members(b, c, rc);
	t->conns[g.rank] = *c;
	t->conns[g.rank].joined = true;
	c->fd = -1;
	return 1;
}

/* Reads what a stranger says. Returns 1 if it has become a member. */
static int hear(struct coll_bootstrap *b, struct conn *c)
{
	ssize_t n = recv(c->fd, c->join + c->have, sizeof(c->join) - c->have, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0) {
		conn_close(c);
		return 0;
	}
	c->have += n;
	if (c->have < sizeof(c->join))
		return 0;
	return join(b, c);
}

/* "ranks 2, 5-7" */
static void list_missing(const struct coll_bootstrap *b, char *text, size_t size)
{
	const struct tcp *t = b->priv;
	size_t n = 0;

	for (uint32_t i = 1; i < b->nranks && n + 30 < size; i++) {
		uint32_t from = i;

		if (t->conns[i].joined)
			continue;
		while (i + 1 < b->nranks && !t->conns[i + 1].joined)
			i++;
		n += snprintf(text + n, size - n, "%s%u", n ? ", " : "", from);
		if (i > from)
			n += snprintf(text + n, size - n, "-%u", i);
	}
}

static int fail_missing(struct coll_bootstrap *b)
{
	struct tcp *t = b->priv;
	char missing[160] = "", keys[128] = "";

	list_missing(b, missing, sizeof(missing));
	if (t->other_keys)
		snprintf(keys, sizeof(keys),
			 "; %u connections had another COLL_KEY, the last from %s", t->other_keys,
			 t->other_key_from);
	coll_text(b->text, sizeof(b->text), 0,
		  "rank %s did not come to %s port %u in time%s", missing, b->host, b->port, keys);
	return fail_members(b, NULL, -ETIMEDOUT);
}

/* A member that closes its connection has died. */
static int check_members(struct coll_bootstrap *b)
{
	struct tcp *t = b->priv;
	char byte;

	for (uint32_t i = 1; i < b->nranks; i++) {
		struct conn *c = &t->conns[i];
		ssize_t n = c->joined ? recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) : 1;

		if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
			continue;
		coll_text(b->text, sizeof(b->text), 0,
			  "rank %u (%s) exited while others were still awaited: look for its own error message",
			  i, c->from);
		conn_close(c);
		return fail_members(b, NULL, -EOWNERDEAD);
	}
	return 0;
}

/* Waits a little for somebody to say something. Returns how many have joined. */
static int serve_some(struct coll_bootstrap *b, int ms)
{
	struct tcp *t = b->priv;
	struct conn *next = place(t);
	struct pollfd p[STRANGERS + 1];
	int rc, joined = 0;

	p[0] = (struct pollfd) { .fd = next ? t->listen_fd : -1, .events = POLLIN };
	for (unsigned int i = 0; i < STRANGERS; i++) {
		struct conn *c = &t->strangers[i];

		if (c->fd >= 0 && coll_now_ns() - c->since_ns > STRANGER_NS)
			conn_close(c);
		p[i + 1] = (struct pollfd) { .fd = c->fd, .events = POLLIN };
	}
	if (poll(p, STRANGERS + 1, ms < 200 ? ms : 200) < 0 && errno != EINTR)
		return coll_text(b->text, sizeof(b->text), -errno, "poll: %s", strerror(errno));
	for (unsigned int i = 0; i < STRANGERS; i++) {
		if (p[i + 1].fd < 0 || !p[i + 1].revents)
			continue;
		rc = hear(b, &t->strangers[i]);
		if (rc < 0)
			return rc;
		joined += rc;
	}
	if (p[0].revents & POLLIN)
		accept_one(b, next);
	return joined;
}

/* It has failed; ranks that are only now coming get to know why, for a while. */
static int linger(struct coll_bootstrap *b, uint32_t missing, int rc)
{
	struct coll_bootstrap quick = *b;
	int told;

	quick.until_ns = coll_now_ns() + LINGER_NS;
	while (missing && remaining_ms(&quick)) {
		told = serve_some(&quick, remaining_ms(&quick));
		if (told < 0)
			break;
		missing -= (uint32_t)told < missing ? (uint32_t)told : missing;
	}
	return rc;
}

static int serve(struct coll_bootstrap *b)
{
	struct tcp *t = b->priv;
	uint32_t missing = b->nranks - 1;
	int rc = 0;

	while (missing) {
		if (!remaining_ms(b))
			return fail_missing(b);
		rc = serve_some(b, remaining_ms(b));
		if (rc >= 0) {
			missing -= rc;
			rc = check_members(b);
		}
		if (rc)
			return linger(b, missing, rc);
	}
	for (uint32_t i = 1; i < b->nranks && !rc; i++) {
		rc = frame_send(b, &t->conns[i], WELCOME, 0, NULL, 0);
		if (rc)
			coll_text(b->text, sizeof(b->text), 0, "rank %u (%s) went away: %s", i,
				  t->conns[i].from, strerror(-rc));
	}
	return rc ? fail_members(b, NULL, rc) : 0;
}

/* ---- other ranks */

/*
 * A port of the range that connections get their own from: while nobody listens
 * there, a connection can end up with both ends the same.
 */
static bool is_self_connected(int fd)
{
	struct sockaddr_storage own, peer;
	socklen_t len = sizeof(own), peer_len = sizeof(peer);

	return !getsockname(fd, (struct sockaddr *)&own, &len) &&
	       !getpeername(fd, (struct sockaddr *)&peer, &peer_len) &&
	       len == peer_len && !memcmp(&own, &peer, len);
}

static int connect_once(struct coll_bootstrap *b, const struct addrinfo *a)
{
	int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	socklen_t len = sizeof(int);
	int rc = 0;

	if (fd < 0)
		return -errno;
	if (connect(fd, a->ai_addr, a->ai_addrlen)) {
		rc = errno == EINPROGRESS ? wait_for(b, fd, POLLOUT) : -errno;
		if (!rc) {
			getsockopt(fd, SOL_SOCKET, SO_ERROR, &rc, &len);
			rc = -rc;
		}
	}
	if (!rc && is_self_connected(fd))
		rc = -ECONNREFUSED;
	if (rc) {
		close(fd);
		return rc;
	}
	b->open_network = !is_loopback(a->ai_addr);
	return fd;
}

/* Rank 0 may start later than this one: try until the time is up. */
static int connect_to_root(struct coll_bootstrap *b, struct conn *c)
{
	struct timespec pause = { .tv_nsec = 10000000 };
	struct addrinfo *list, *a;
	const char *why;
	int rc;

	for (;;) {
		rc = resolve(b, &list, &why);
		if (!rc) {
			rc = -EHOSTUNREACH;
			for (a = list; a && rc < 0; a = a->ai_next)
				rc = connect_once(b, a);
			freeaddrinfo(list);
			if (rc >= 0)
				break;
			why = strerror(-rc);
		}
		if (!remaining_ms(b))
			return coll_text(b->text, sizeof(b->text), -ETIMEDOUT,
					 "rank 0 was not to be reached at %s port %u in time (%s): is it running, and are MASTER_ADDR and COLL_PORT the same for all ranks?",
					 b->host, b->port, why);
		nanosleep(&pause, NULL);
		if (pause.tv_nsec < 300000000)
			pause.tv_nsec *= 2;
	}
	c->fd = rc;
	return 0;
}

/* What a failed exchange with rank 0 means. */
static int root_failed(struct coll_bootstrap *b, int rc, int status)
{
	switch (rc) {
	case -EREMOTEIO:
		return status;		/* its own words */
	case -EBADMSG:
		return coll_text(b->text, sizeof(b->text), -EPROTO,
				 "what answers at %s port %u is not libcoll: another program has the port; set COLL_PORT to a free one on all ranks",
				 b->host, b->port);
	case -EACCES:
		return coll_text(b->text, sizeof(b->text), rc,
				 "what answers at %s port %u does not know COLL_KEY", b->host,
				 b->port);
	case -ETIMEDOUT:
		return coll_text(b->text, sizeof(b->text), rc,
				 "rank 0 at %s port %u did not answer in time", b->host, b->port);
	default:
		return coll_text(b->text, sizeof(b->text), rc,
				 "rank 0 at %s port %u has closed the connection: look for its own error message",
				 b->host, b->port);
	}
}

static int greet(struct coll_bootstrap *b, struct conn *c)
{
	struct greeting hello, g = {
		.protocol = PROTOCOL, .version = COLL_VERSION, .keyed = !!*b->key,
		.nranks = b->nranks, .rank = b->rank,
	};
	uint64_t until_ns;
	int rc, status = 0;

	rc = frame_recv(b, c, HELLO, &hello, sizeof(hello), &status);
	if (rc)
		return root_failed(b, rc, status);
	if (hello.keyed != g.keyed)
		return coll_text(b->text, sizeof(b->text), -EACCES,
				 "COLL_KEY is set on %s and not on %s: set it to the same text on all ranks",
				 g.keyed ? "this rank" : "rank 0",
				 g.keyed ? "rank 0" : "this rank");
	if (getrandom(g.nonce, sizeof(g.nonce), 0) != sizeof(g.nonce))
		return coll_text(b->text, sizeof(b->text), -EIO, "no random numbers");
	session_key(b, c, hello.nonce, g.nonce);
	/* Only rank 0 knows who is missing: wait for its verdict. */
	until_ns = coll_now_ns() + (hello.wait_ms + 2000ULL) * 1000000;
	if (b->until_ns < until_ns)
		b->until_ns = until_ns;
	rc = frame_send(b, c, JOIN, 0, &g, sizeof(g));
	if (!rc)
		rc = frame_recv(b, c, WELCOME, NULL, 0, &status);
	return rc ? root_failed(b, rc, status) : 0;
}

/* ---- the table */

static int tcp_open(struct coll_bootstrap *b)
{
	struct tcp *t;
	int rc;

	if (b->nranks == 1)
		return 0;
	t = calloc(1, sizeof(*t));
	b->priv = t;
	if (t)
		t->conns = calloc(b->rank ? 1 : b->nranks, sizeof(*t->conns));
	if (!t || !t->conns)
		return coll_text(b->text, sizeof(b->text), -ENOMEM, "out of memory");
	t->listen_fd = -1;
	for (unsigned int i = 0; i < STRANGERS; i++)
		t->strangers[i].fd = -1;
	for (uint32_t i = 0; i < (b->rank ? 1 : b->nranks); i++)
		t->conns[i].fd = -1;
	if (!b->rank) {
		rc = start_listening(b);
		return rc ? rc : serve(b);
	}
	rc = connect_to_root(b, &t->conns[0]);
	return rc ? rc : greet(b, &t->conns[0]);
}

static int gather_and_spread(struct coll_bootstrap *b, size_t len, uint8_t *all)
{
	struct tcp *t = b->priv;
	int rc = 0, status;
	uint32_t i;

	for (i = 1; i < b->nranks && !rc; i++)
		rc = frame_recv(b, &t->conns[i], DATA, all + i * len, len, &status);
	for (i = rc ? i : 1; i < b->nranks && !rc; i++)
		rc = frame_send(b, &t->conns[i], DATA, 0, all, b->nranks * len);
	if (!rc)
		return 0;
	coll_text(b->text, sizeof(b->text), 0,
		  "rank %u (%s) went away while joining (%s): look for its own error message",
		  i - 1, t->conns[i - 1].from, strerror(-rc));
	return fail_members(b, NULL, rc);
}

static int tcp_allgather(struct coll_bootstrap *b, const void *mine, size_t len, void *all)
{
	struct tcp *t = b->priv;
	int rc, status = 0;

	memcpy((uint8_t *)all + b->rank * len, mine, len);
	if (b->nranks == 1)
		return 0;
	if (len > BODY_MAX / b->nranks)
		return coll_text(b->text, sizeof(b->text), -E2BIG, "too many ranks");
	if (!b->rank)
		return gather_and_spread(b, len, all);
	rc = frame_send(b, &t->conns[0], DATA, 0, mine, len);
	if (!rc)
		rc = frame_recv(b, &t->conns[0], DATA, all, b->nranks * len, &status);
	return rc ? root_failed(b, rc, status) : 0;
}

static void tcp_close(struct coll_bootstrap *b)
{
	struct tcp *t = b->priv;

	if (!t)
		return;
	for (uint32_t i = 0; t->conns && i < (b->rank ? 1 : b->nranks); i++)
		conn_close(&t->conns[i]);
	for (unsigned int i = 0; i < STRANGERS; i++)
		conn_close(&t->strangers[i]);
	if (t->listen_fd >= 0)
		close(t->listen_fd);
	free(t->conns);
	free(t);
	b->priv = NULL;
}

const struct coll_bootstrap_ops coll_bootstrap_tcp = {
	.name = "tcp",
	.open = tcp_open,
	.allgather = tcp_allgather,
	.close = tcp_close,
};
