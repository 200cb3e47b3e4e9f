// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * unique_id.c - ids of communicators, which the application hands to all ranks.
 *
 * An id is a secret. On one machine that is enough: the kernel brings together who has
 * the same. If ranks are on several machines, it also says where they meet: at rank 0,
 * which listens there; they prove to each other that they have the secret, and it does not travel.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>
#include "api/join.h"
#include "base/base.h"
#include "bootstrap/bootstrap.h"
#include "coll.h"
#include "run/comm.h"
#include "run/dev.h"

#define ID_MAGIC	"npucoll"

struct unique_id {
	char magic[8];
	uint32_t version;
	uint16_t port;
	uint16_t reserved;
	uint8_t secret[16];
	char host[COLL_UNIQUE_ID_BYTES - 32];	/* "": all ranks are on one machine */
};

_Static_assert(sizeof(struct unique_id) == COLL_UNIQUE_ID_BYTES, "");

/* One that nobody has now; rank 0 takes it a moment later. */
static int free_port(uint16_t *port)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	socklen_t len = sizeof(a);
	int fd, rc = 0;

	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) ||
	    getsockname(fd, (struct sockaddr *)&a, &len))
		rc = -errno;
	close(fd);
	*port = ntohs(a.sin_port);
	return rc;
}

/* HOST, HOST:PORT, [ADDRESS] or [ADDRESS]:PORT; more than one colon is an IPv6 address. */
static int parse_address(struct unique_id *id, const char *address)
{
	const char *from = address, *to = address + strlen(address), *port = NULL;
	unsigned long number;
	char *end;

	if (*address == '[') {
		from++;
		to = strchr(from, ']');
		if (!to || (to[1] && to[1] != ':'))
			return -EINVAL;
		port = to[1] ? to + 2 : NULL;
	} else if (strchr(address, ':') && strchr(address, ':') == strrchr(address, ':')) {
		to = strchr(address, ':');
		port = to + 1;
	}
	if (from == to || (size_t)(to - from) >= sizeof(id->host))
		return -EINVAL;
	memcpy(id->host, from, to - from);
	if (!port)
		return free_port(&id->port);
	number = strtoul(port, &end, 10);
	if (*port < '0' || *port > '9' || *end || !number || number > 65535)
		return -EINVAL;
	id->port = number;
	return 0;
}

int coll_get_unique_id_at(struct coll_unique_id *out, const char *address)
{
	struct unique_id id = { .magic = ID_MAGIC, .version = COLL_VERSION };
	int rc = 0;

	if (getrandom(id.secret, sizeof(id.secret), 0) != sizeof(id.secret))
		return -errno;
	if (address)
		rc = parse_address(&id, address);
	if (!rc)
		memcpy(out, &id, sizeof(id));
	explicit_bzero(&id, sizeof(id));
	return rc;
}

int coll_get_unique_id(struct coll_unique_id *out)
{
	const char *address = secure_getenv("COLL_COMM_ID");

	return coll_get_unique_id_at(out, address && *address ? address : NULL);
}

static int check_id(const struct unique_id *id, char *text, size_t size)
{
	if (memcmp(id->magic, ID_MAGIC, sizeof(id->magic)) ||
	    !memchr(id->host, 0, sizeof(id->host)))
		return coll_text(text, size, -EINVAL,
				 "the unique id is not from coll_get_unique_id: was it passed on whole?");
	/* Minor versions add; majors change what ranks must agree on. */
	if (id->version >> 16 != COLL_VERSION_MAJOR)
		return coll_text(text, size, -EPROTONOSUPPORT,
				 "the unique id is from libcoll %u.%u.%u, this is libcoll "
				 COLL_VERSION_STRING ": use one version on all ranks",
				 id->version >> 16, id->version >> 8 & 255, id->version & 255);
	return 0;
}

/* All ranks are here, or will be: nobody has to be waited for. */
static int join_here(struct coll_comm **comm, unsigned int nranks, const struct unique_id *id,
		     unsigned int rank, const struct coll_config *config, char *text, size_t size)
{
	struct coll_dev *dev;
	int rc;

	rc = coll_config_dev(config, rank, &dev, text, size);
	if (rc)
		return rc;
	return coll_comm_make(comm, dev, nranks, id->secret, rank, config, text, size);
}

static int meet_at(struct coll_comm **comm, unsigned int nranks, const struct unique_id *id,
		   unsigned int rank, const struct coll_config *config, char *text, size_t size)
{
	uint8_t key[COLL_KEY_LEN];
	struct coll_bootstrap b = {
		.ops = &coll_bootstrap_tcp, .rank = rank, .nranks = nranks, .local = rank,
		.host = id->host, .port = id->port, .key = key,
		.host_is = "the unique id's address", .key_is = "the unique id",
		.same_address = "does it run where coll_get_unique_id_at said",
		.other_port = "give coll_get_unique_id_at another port",
	};
	int rc;

	coll_key_of(id->secret, sizeof(id->secret), key);
	rc = coll_bootstrap_time(&b, config);
	if (!rc)
		rc = coll_bootstrap_join(&b, config, comm);
	explicit_bzero(key, sizeof(key));
	return rc ? coll_text(text, size, rc, "%s", b.text) : 0;
}

int coll_comm_init_rank(struct coll_comm **comm, unsigned int nranks,
			const struct coll_unique_id *unique, unsigned int rank,
			const struct coll_config *user)
{
	char text[COLL_TEXT] = "";
	struct coll_config config;
	struct unique_id id;
	int rc;

	if (!comm)
		return -EINVAL;
	*comm = NULL;
	rc = coll_config_get(&config, user, text, sizeof(text));
	if (rc)
		return coll_config_fail(&config, rank, rc, text);
	if (!unique) {
		rc = coll_text(text, sizeof(text), -EINVAL, "no unique id given");
	} else if (!nranks || rank >= nranks) {
		rc = coll_text(text, sizeof(text), -EINVAL,
			       "ranks are 0 to %d: the number of ranks is %u", (int)nranks - 1,
			       nranks);
	} else {
		memcpy(&id, unique, sizeof(id));
		rc = check_id(&id, text, sizeof(text));
		if (!rc)
			rc = coll_config_env(&config, text, sizeof(text));
		if (!rc)
			rc = (*id.host ? meet_at : join_here)(comm, nranks, &id, rank, &config,
							     text, sizeof(text));
		explicit_bzero(&id, sizeof(id));
	}
	return rc ? coll_config_fail(&config, rank, rc, text) : 0;
}
