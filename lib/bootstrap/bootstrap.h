/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * bootstrap.h - how ranks that are to be one communicator meet.
 *
 * key.c has the key that they share; bootstrap.c knows what they have to tell
 * each other; a table of operations knows how it gets to the others: over TCP
 * (tcp.c) or by the launcher (pmix.c).
 */
#ifndef COLL_BOOTSTRAP_H
#define COLL_BOOTSTRAP_H

#include "base/base.h"
#include "run/comm.h"

#define COLL_KEY_LEN	32

/**
 * struct coll_bootstrap_ops - a way in which ranks can exchange something once
 * @name: for error texts
 * @numbers: open() finds out rank, number of ranks and local, without waiting for others
 * @open: meet; fills in *@b
 * @allgather: every rank gives @len bytes and gets those of all, by rank
 * @close: part; @b may be what open() left behind when it failed
 *
 * All return 0 or -errno with a text.
 */
struct coll_bootstrap;
struct coll_bootstrap_ops {
	const char *name;
	bool numbers;
	int (*open)(struct coll_bootstrap *b);
	int (*allgather)(struct coll_bootstrap *b, const void *mine, size_t len, void *all);
	void (*close)(struct coll_bootstrap *b);
};

/**
 * struct coll_bootstrap - an exchange under way
 * @ops: how
 * @rank: own rank
 * @nranks: ranks
 * @local: number of this rank among those of its machine, as far as it is known
 * @host: rank 0's address
 * @bare: @host, if it came in brackets
 * @port: rank 0's port
 * @job: of what else the ranks of a job have in common
 * @host_is: where @host was said, for texts
 * @same_address: what to check if rank 0 cannot be reached, for texts
 * @other_port: what to do if the port is in use, for texts
 * @key: shared key, COLL_KEY_LEN bytes, NULL if there is none ..
 * @no_key: .. and that is what somebody wants
 * @key_is: where @key was said, for texts
 * @patience_ns: how long to wait for the others, for texts ..
 * @until_ns: .. and the CLOCK_MONOTONIC time at which to give up
 * @open_network: not loopback only
 * @text: error text
 * @priv: of @ops
 */
struct coll_bootstrap {
	const struct coll_bootstrap_ops *ops;
	uint32_t rank, nranks, local;
	const char *host;
	char bare[64];
	uint16_t port, job;
	const char *host_is, *same_address, *other_port;
	const uint8_t *key;
	const char *key_is;
	uint64_t patience_ns, until_ns;
	bool no_key, open_network;
	char text[COLL_TEXT];
	void *priv;
};

extern const struct coll_bootstrap_ops coll_bootstrap_tcp, coll_bootstrap_pmix;

int coll_key_read(struct coll_bootstrap *b, uint8_t key[COLL_KEY_LEN]);
void coll_key_of(const void *random, size_t len, uint8_t key[COLL_KEY_LEN]);
bool coll_host_is_local(const char *host);
int coll_bootstrap_time(struct coll_bootstrap *b, const struct coll_config *config);
int coll_bootstrap_join(struct coll_bootstrap *b, const struct coll_config *config,
			struct coll_comm **comm);
void coll_bootstrap_missing(const bool *here, uint32_t nranks, char *text, size_t size);

/* Nobody waits past the end of time. */
static inline uint64_t coll_later(uint64_t from_ns, uint64_t ns)
{
	return ns < UINT64_MAX - from_ns ? from_ns + ns : UINT64_MAX;
}

#endif /* COLL_BOOTSTRAP_H */
