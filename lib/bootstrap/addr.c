// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * addr.c - where ranks listen, and how they are reached: rank 0 at the address
 * that all were told, or wherever others may find it by the name, the first rank of a machine
 * at an abstract name made of it, and others at a port or name that the kernel chose, which
 * is handed on.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include "base/base.h"
#include "bootstrap/tcp.h"

/* The length of an abstract name counts. */
#define UNNAMED_LEN	(offsetof(struct sockaddr_un, sun_path) + 6)

bool coll_is_loopback(const struct sockaddr_storage *addr)
{
	const struct in6_addr *in6 = &((const struct sockaddr_in6 *)addr)->sin6_addr;

	if (addr->ss_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)addr)->sin_addr.s_addr) >> 24 == 127;
	return addr->ss_family == AF_INET6 &&
	       (IN6_IS_ADDR_LOOPBACK(in6) ||
		(IN6_IS_ADDR_V4MAPPED(in6) && in6->s6_addr[12] == 127));
}

/* What came by IPv4 to a socket of IPv6, as it is elsewhere: there may be no IPv6 there. */
static void unmap(struct sockaddr_storage *addr, socklen_t *len)
{
	const struct sockaddr_in6 in6 = *(const struct sockaddr_in6 *)addr;
	struct sockaddr_in *in = (struct sockaddr_in *)addr;

	if (addr->ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr))
		return;
	memset(addr, 0, sizeof(*addr));
	in->sin_family = AF_INET;
	in->sin_port = in6.sin6_port;
	memcpy(&in->sin_addr, &in6.sin6_addr.s6_addr[12], sizeof(in->sin_addr));
	*len = sizeof(*in);
}

void coll_name_of(const struct sockaddr_storage *addr, socklen_t len, char *name, size_t size)
{
	struct sockaddr_storage plain = *addr;
	char host[46], port[8];

	unmap(&plain, &len);
	if (getnameinfo((struct sockaddr *)&plain, len, host, sizeof(host), port, sizeof(port),
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

/* The same name for all ranks of one user and job that are to meet at one address. */
static socklen_t machine_name(const struct coll_bootstrap *b, struct sockaddr_un *un)
{
	uint64_t job = coll_hash_add(coll_hash_text(COLL_HASH_INIT, b->host), b->port);
	int n;

	job = coll_hash_add(job, b->job);
	*un = (struct sockaddr_un) { .sun_family = AF_UNIX };
	n = snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1, "npulink-%u-%016llx", geteuid(),
		     (unsigned long long)job);
	return offsetof(struct sockaddr_un, sun_path) + 1 + n;
}

/* ---- listening */

static int listen_on(const void *addr, socklen_t len)
{
	int family = ((const struct sockaddr *)addr)->sa_family, one = 1, zero = 0, rc, fd;

	fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (family != AF_UNIX)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
	if (!bind(fd, addr, len) && !listen(fd, SOMAXCONN))
		return fd;
	rc = -errno;
	close(fd);
	return rc;
}

static int listen_everywhere(uint16_t port)
{
	const struct sockaddr_in6 any6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	const struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(port) };
	int rc = listen_on(&any6, sizeof(any6));

	return rc < 0 && rc != -EADDRINUSE && rc != -EACCES ? listen_on(&any, sizeof(any)) : rc;
}

static bool is_literal(const char *host)
{
	const struct addrinfo hints = { .ai_flags = AI_NUMERICHOST };
	struct addrinfo *list;

	if (getaddrinfo(host, NULL, &hints, &list))
		return false;
	freeaddrinfo(list);
	return true;
}

/* Loopback on any machine: by RFC 6761, or in Debian's /etc/hosts. */
static bool is_localhost(const char *host)
{
	static const char * const names[] = {
		"localhost", "localhost.", "localhost.localdomain", "ip6-localhost", "ip6-loopback",
	};
	const char *end = strrchr(host, '.');

	for (unsigned int i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcasecmp(host, names[i]))
			return true;
	return end && !strcasecmp(end, ".localhost");
}

/* The only one by which other machines can know this one. */
static const struct addrinfo *sole_address(const struct addrinfo *list)
{
	const struct addrinfo *sole = NULL;

	for (; list; list = list->ai_next) {
		if (coll_is_loopback((struct sockaddr_storage *)list->ai_addr))
			continue;
		if (sole && (sole->ai_addrlen != list->ai_addrlen ||
			     memcmp(sole->ai_addr, list->ai_addr, list->ai_addrlen)))
			return NULL;
		sole = list;
	}
	return sole;
}

/* Do other machines get to it never? The same on all ranks that were told the same. */
bool coll_host_is_local(const char *host)
{
	const struct addrinfo hints = { .ai_flags = AI_NUMERICHOST };
	struct addrinfo *list;
	bool local;

	if (getaddrinfo(host, NULL, &hints, &list))
		return is_localhost(host);
	local = coll_is_loopback((struct sockaddr_storage *)list->ai_addr);
	freeaddrinfo(list);
	return local;
}

/*
 * At the address that was given; at all of them if that is not this machine's own. A name may be
 * another address elsewhere: in its own /etc/hosts a machine is often 127.0.1.1, and who
 * has no IPv6 comes to another of several. If it does not say which one, then at all of them.
 */
int coll_listen_root(struct coll_bootstrap *b, struct coll_door *door)
{
	const struct addrinfo *a;
	struct addrinfo *list;
	const char *why;
	int rc;

	rc = resolve(b, &list, &why);
	if (rc)
		return coll_text(b->text, sizeof(b->text), rc, "%s=\"%s\": %s", b->host_is,
				 b->host, why);
	rc = -EADDRNOTAVAIL;
	if (is_literal(b->host) || is_localhost(b->host)) {
		for (a = list; a && rc < 0 && rc != -EADDRINUSE; a = a->ai_next) {
			rc = listen_on(a->ai_addr, a->ai_addrlen);
			b->open_network = !coll_is_loopback((struct sockaddr_storage *)a->ai_addr);
		}
	} else {
		a = sole_address(list);
		if (a)
			rc = listen_on(a->ai_addr, a->ai_addrlen);
		b->open_network = true;
	}
	freeaddrinfo(list);
	if (rc == -EADDRNOTAVAIL) {
		struct coll_tcp *t = b->priv;

		t->elsewhere = true;
		rc = listen_everywhere(b->port);
		b->open_network = true;
	}
	if (rc == -EADDRINUSE)
		return coll_port_taken(b);
	if (rc == -EACCES)
		return coll_text(b->text, sizeof(b->text), rc,
				 "cannot listen at %s port %u: %s; %s", b->host, b->port,
				 strerror(-rc), b->other_port);
	if (rc < 0)
		return coll_text(b->text, sizeof(b->text), rc, "cannot listen at %s port %u: %s",
				 b->host, b->port, strerror(-rc));
	door->fd = rc;
	return 0;
}

/* At the address by which @fd is connected, so at no other interface; any port. */
int coll_listen_beside(int fd, struct coll_door *door, uint32_t *port)
{
	struct sockaddr_storage own;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&own;
	struct sockaddr_in *in = (struct sockaddr_in *)&own;
	socklen_t len = sizeof(own);
	int rc;

	if (getsockname(fd, (struct sockaddr *)&own, &len))
		return -errno;
	if (own.ss_family == AF_INET6)
		in6->sin6_port = 0;
	else
		in->sin_port = 0;
	rc = listen_on(&own, len);
	if (rc < 0)
		return rc;
	door->fd = rc;
	len = sizeof(own);
	if (getsockname(rc, (struct sockaddr *)&own, &len))
		return -errno;
	*port = ntohs(own.ss_family == AF_INET6 ? in6->sin6_port : in->sin_port);
	return 0;
}

/* As the first of this machine. */
int coll_listen_machine(const struct coll_bootstrap *b, struct coll_door *door)
{
	struct sockaddr_un un;
	socklen_t len = machine_name(b, &un);
	int rc = listen_on(&un, len);

	if (rc < 0)
		return rc;
	door->fd = rc;
	return 0;
}

/* By a name that the kernel chooses: five digits. */
int coll_listen_unnamed(struct coll_door *door, uint32_t *name)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(un);
	char digits[6] = "";
	int rc = listen_on(&un, sizeof(sa_family_t));

	if (rc < 0)
		return rc;
	door->fd = rc;
	if (getsockname(rc, (struct sockaddr *)&un, &len) || len != UNNAMED_LEN)
		return -EPROTO;
	memcpy(digits, un.sun_path + 1, 5);
	*name = strtoul(digits, NULL, 16);
	return 0;
}

/* ---- connecting */

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
	       own.ss_family != AF_UNIX && len == peer_len && !memcmp(&own, &peer, len);
}

static int connect_to(const struct coll_bootstrap *b, const void *addr, socklen_t len)
{
	int fd = socket(((const struct sockaddr *)addr)->sa_family,
			SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	socklen_t rc_len = sizeof(int);
	int rc = 0;

	if (fd < 0)
		return -errno;
	if (connect(fd, addr, len)) {
		rc = errno == EINPROGRESS ? coll_wait_for(b, fd, POLLOUT) : -errno;
		if (!rc) {
			getsockopt(fd, SOL_SOCKET, SO_ERROR, &rc, &rc_len);
			rc = -rc;
		}
	}
	if (!rc && is_self_connected(fd))
		rc = -ECONNREFUSED;
	if (!rc)
		return fd;
	close(fd);
	return rc;
}

/* For one of several addresses that gives no answer: at first, and after some rounds. */
#define EACH_MIN_NS	250000000ULL
#define EACH_MAX_NS	4000000000ULL

/* The first address of @list that answers; none takes the time of those after it. */
static int connect_any(const struct coll_bootstrap *b, const struct addrinfo *list,
		       uint64_t each_ns)
{
	struct coll_bootstrap brief = *b;
	int rc = -EHOSTUNREACH;

	for (const struct addrinfo *a = list; a && rc < 0; a = a->ai_next) {
		if (list->ai_next)
			brief.until_ns = coll_later(coll_now_ns(), each_ns);
		if (brief.until_ns > b->until_ns)
			brief.until_ns = b->until_ns;
		rc = connect_to(&brief, a->ai_addr, a->ai_addrlen);
	}
	return rc;
}

/* Rank 0 may start later than this one: try until the time is up. */
int coll_connect_root(struct coll_bootstrap *b)
{
	struct timespec pause = { .tv_nsec = 10000000 };
	uint64_t each_ns = EACH_MIN_NS;
	struct addrinfo *list;
	const char *why;
	int rc;

	for (;;) {
		rc = resolve(b, &list, &why);
		if (!rc) {
			rc = connect_any(b, list, each_ns);
			freeaddrinfo(list);
			if (rc >= 0)
				return rc;
			why = strerror(-rc);
		}
		if (!coll_remaining_ms(b))
			return coll_text(b->text, sizeof(b->text), -ETIMEDOUT,
					 "rank 0 was not to be reached at %s port %u in time (%s): is it running, and %s?",
					 b->host, b->port, why, b->same_address);
		nanosleep(&pause, NULL);
		if (pause.tv_nsec < 300000000)
			pause.tv_nsec *= 2;
		if (each_ns < EACH_MAX_NS)
			each_ns *= 2;
	}
}

/* -ECONNREFUSED: there is no first rank yet. */
int coll_connect_machine(const struct coll_bootstrap *b)
{
	struct sockaddr_un un;
	socklen_t len = machine_name(b, &un);

	return connect_to(b, &un, len);
}

int coll_connect_place(const struct coll_bootstrap *b, const struct coll_place *place)
{
	if (place->len > sizeof(place->addr) ||
	    (place->addr.ss_family != AF_UNIX && place->addr.ss_family != AF_INET &&
	     place->addr.ss_family != AF_INET6))
		return -EPROTO;
	return connect_to(b, &place->addr, place->len);
}

/* ---- who is it */

/* Where the other end of @fd listens, by what it says. */
bool coll_address_of(int fd, bool local, uint32_t extra, struct coll_place *place)
{
	struct sockaddr_un *un = (struct sockaddr_un *)&place->addr;
	socklen_t len = sizeof(place->addr);
	char digits[9];

	memset(&place->addr, 0, sizeof(place->addr));
	if (local) {
		un->sun_family = AF_UNIX;
		snprintf(digits, sizeof(digits), "%05x", extra & 0xfffff);
		memcpy(un->sun_path + 1, digits, 5);
		place->len = UNNAMED_LEN;
		return true;
	}
	if (getpeername(fd, (struct sockaddr *)&place->addr, &len))
		return false;
	unmap(&place->addr, &len);
	if (place->addr.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&place->addr)->sin6_port = htons(extra);
	else
		((struct sockaddr_in *)&place->addr)->sin_port = htons(extra);
	place->len = len;
	return true;
}

/* An abstract name can be taken by anybody. */
bool coll_is_same_user(int fd, char *name, size_t size)
{
	socklen_t len = sizeof(struct ucred);
	char host[40] = "this machine";
	struct ucred peer;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) || peer.uid != geteuid())
		return false;
	gethostname(host, sizeof(host) - 1);
	snprintf(name, size, "process %d on %s", peer.pid, host);
	return true;
}
