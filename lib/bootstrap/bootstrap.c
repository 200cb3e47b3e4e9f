// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * bootstrap.c - joining by what a launcher sets in the environment, or by an id that
 * works across machines.
 *
 * Two exchanges between all ranks, whatever carries them (struct coll_bootstrap_ops):
 * first who is where, and rank 0's nonce of which the communicator's secret is made; then
 * whether everybody has joined. A rank that cannot go on says so in the exchange
 * instead of leaving the others to their timeout.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include "api/join.h"
#include "base/base.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/sha256.h"
#include "coll.h"
#include "run/comm.h"
#include "run/dev.h"
#include "run/drv.h"
#include "tune/calibration.h"
#include "tune/topo.h"
#include "tune/tune.h"

#define DEFAULT_TIMEOUT_NS	120000000000ULL
#define MORE			(NPULINK_PEER_ADDRS - 1)

/* What every rank tells all others first; of one byte order, as all of npulink is. */
struct record {
	uint32_t version;
	int32_t rc;
	uint32_t flags;
	uint32_t reserved;
	uint8_t nonce[16];
	struct npulink_peer where;	/* kind LOCAL: not to be reached from elsewhere */
	struct npulink_addr more[MORE];	/* zeros where there is none */
	char host[64];
	char text[208];
};

/* And when it has joined, or could not. Costs are rank 0's, whose numbers all go by. */
struct outcome {
	uint64_t choice;		/* of what the user says about algorithms and wiring */
	uint8_t proof[16];		/* that it has the same key */
	int32_t rc;
	float costs[COLL_COSTS];
	char host[64];
	char text[208];
};

/* "2, 5-7" */
void coll_bootstrap_missing(const bool *here, uint32_t nranks, char *text, size_t size)
{
	size_t n = 0;

	for (uint32_t i = 0; i < nranks && n + 30 < size; i++) {
		uint32_t from = i;

		if (here[i])
			continue;
		while (i + 1 < nranks && !here[i + 1])
			i++;
		n += snprintf(text + n, size - n, "%s%u", n ? ", " : "", from);
		if (i > from)
			n += snprintf(text + n, size - n, "-%u", i);
	}
}

static int env_number(const char *name, unsigned long max, unsigned long *value, char *text,
		      size_t size)
{
	const char *s = secure_getenv(name);
	char *end;

	if (!s || !*s)
		return coll_text(text, size, -ENOENT,
				 "%s is not set: start the program with torchrun, Open MPI's mpirun or srun --mpi=pmix, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
				 name);
	errno = 0;
	*value = strtoul(s, &end, 10);
	if (!isdigit((unsigned char)*s) || *end || errno || *value > max)
		return coll_text(text, size, -EINVAL, "%s=\"%s\" is no number from 0 to %lu", name,
				 s, max);
	return 0;
}

static bool is_set(const char *name)
{
	const char *s = secure_getenv(name);

	return s && *s;
}

/*
 * Away from the ports of other jobs, which are often next to this one's, and from those that
 * connections get. A number of which two differ says that the jobs do.
 */
#define FIRST_PORT	61000
#define PORTS		(65536 - FIRST_PORT)

static int read_port(struct coll_bootstrap *b)
{
	const char *run = secure_getenv("TORCHELASTIC_RUN_ID");
	uint64_t job = run ? coll_hash_text(COLL_HASH_INIT, run) : 0;
	unsigned long port;
	int rc;

	rc = env_number("COLL_PORT", 65535, &port, b->text, sizeof(b->text));
	if (!rc && !port)
		return coll_text(b->text, sizeof(b->text), -EINVAL,
				 "COLL_PORT=0 is no port to meet at: 1 to 65535");
	if (rc == -ENOENT) {
		rc = env_number("MASTER_PORT", 65535, &port, b->text, sizeof(b->text));
		job = coll_hash_add(job, port);
		port = FIRST_PORT + port % PORTS;
	}
	b->port = port;
	b->job = job ^ job >> 16 ^ job >> 32 ^ job >> 48;
	return rc ? -EINVAL : 0;
}

static int read_host(struct coll_bootstrap *b)
{
	const char *host = secure_getenv("MASTER_ADDR");
	size_t len = host ? strlen(host) : 0;

	if (!len)
		return coll_text(b->text, sizeof(b->text), -EINVAL,
				 "MASTER_ADDR is not set: give rank 0's host name or address there");
	for (size_t i = 0; i < len; i++)
		if (isspace((unsigned char)host[i]))
			return coll_text(b->text, sizeof(b->text), -EINVAL,
					 "MASTER_ADDR=\"%s\" has a blank in it", host);
	b->host = host;
	if (*host != '[')
		return 0;
	/* As an IPv6 address is written before a port. */
	if (host[len - 1] != ']' || len - 2 >= sizeof(b->bare))
		return coll_text(b->text, sizeof(b->text), -EINVAL,
				 "MASTER_ADDR=\"%s\" is no address in brackets", host);
	memcpy(b->bare, host + 1, len - 2);
	b->host = b->bare;
	return 0;
}

/* RANK, WORLD_SIZE, and where to meet, as torchrun says it. */
static int read_torchrun(struct coll_bootstrap *b)
{
	unsigned long rank, nranks, local, here;
	char *text = b->text;
	size_t size = sizeof(b->text);
	int rc;

	rc = env_number("RANK", UINT32_MAX - 1, &rank, text, size);
	if (!rc)
		rc = env_number("WORLD_SIZE", UINT32_MAX - 1, &nranks, text, size);
	if (rc)
		return -EINVAL;
	b->rank = rank;
	b->nranks = nranks;
	if (rank >= nranks)
		return coll_text(text, size, -EINVAL, "RANK=%lu is not below WORLD_SIZE=%lu", rank,
				 nranks);
	rc = env_number("LOCAL_RANK", UINT32_MAX, &local, text, size);
	if (rc == -EINVAL)
		return rc;
	b->local = rc ? rank : local;
	rc = env_number("LOCAL_WORLD_SIZE", UINT32_MAX, &here, text, size);
	if (rc == -EINVAL)
		return rc;
	if (nranks == 1)
		return 0;
	b->host_is = "MASTER_ADDR";
	/* Who has not set COLL_PORT has not heard of it. */
	b->same_address = is_set("COLL_PORT") ?
			  "are MASTER_ADDR and COLL_PORT the same for all ranks" :
			  "are MASTER_ADDR and MASTER_PORT the same for all ranks";
	b->other_port = "set COLL_PORT to a free port on all ranks";
	if (!rc && here == nranks)
		b->host = "127.0.0.1";
	else if (read_host(b))
		return -EINVAL;
	return read_port(b);
}

/*
 * torchrun may itself have been started by mpirun or srun, whose variables its
 * processes inherit: its own come first.
 */
static int read_launcher(struct coll_bootstrap *b)
{
	unsigned long rank;
	int rc;

	if ((is_set("RANK") && is_set("WORLD_SIZE")) || !is_set("PMIX_NAMESPACE") ||
	    !is_set("PMIX_RANK")) {
		b->ops = &coll_bootstrap_tcp;
		return read_torchrun(b);
	}
	b->ops = &coll_bootstrap_pmix;
	rc = env_number("PMIX_RANK", UINT32_MAX - 1, &rank, b->text, sizeof(b->text));
	if (rc)
		return rc;
	b->rank = rank;
	return 0;
}

/* How long to wait for the others. */
int coll_bootstrap_time(struct coll_bootstrap *b, const struct coll_config *config)
{
	unsigned long seconds;
	int rc;

	b->patience_ns = config->bootstrap_ns;
	if (b->patience_ns) {
		b->until_ns = coll_later(coll_now_ns(), b->patience_ns);
		return 0;
	}
	rc = env_number("COLL_TIMEOUT", 1000000, &seconds, b->text, sizeof(b->text));
	if (rc == -EINVAL)
		return rc;
	b->patience_ns = rc ? DEFAULT_TIMEOUT_NS : seconds * 1000000000ULL;
	b->until_ns = coll_now_ns() + b->patience_ns;
	return 0;
}

/* What another rank says that it failed with: a caller is to get -errno whatever that was. */
static int failure_of(int32_t rc)
{
	return rc < 0 && rc > -4096 ? rc : -EPROTO;
}

/* The first rank that could not go on, if it is not this one. */
static int others_failed(struct coll_bootstrap *b, const struct record *all)
{
	for (uint32_t i = 0; i < b->nranks; i++) {
		if (!all[i].rc)
			continue;
		return coll_text(b->text, sizeof(b->text), failure_of(all[i].rc),
				 "rank %u could not join: %.200s", i, all[i].text);
	}
	return 0;
}

static bool same_machine(const struct record *a, const struct record *b)
{
	return !memcmp(a->where.node_id, b->where.node_id, sizeof(a->where.node_id));
}

/* If there are several, each rank needs an address. All ranks find the same. */
static int check_machines(struct coll_bootstrap *b, const struct record *all)
{
	for (uint32_t i = 1; i < b->nranks; i++) {
		if (same_machine(&all[i], &all[0]))
			continue;
		for (uint32_t k = 0; k < b->nranks; k++)
			if (all[k].where.kind != NPULINK_PEER_RDMA)
				return coll_text(b->text, sizeof(b->text), -EHOSTUNREACH,
						 "ranks are on several machines (0 on %.60s, %u on %.60s), and the device of rank %u on %.60s has no port to others: bind one there with npulink link add",
						 all[0].host, i, all[i].host, k, all[k].host);
	}
	return 0;
}

static int check_records(struct coll_bootstrap *b, const struct record *all)
{
	for (uint32_t i = 1; i < b->nranks; i++) {
		if (all[i].version >> 8 != all[0].version >> 8)
			return coll_text(b->text, sizeof(b->text), -EPROTONOSUPPORT,
					 "rank %u has libcoll %u.%u.%u, rank 0 has %u.%u.%u: use one version on all ranks",
					 i, all[i].version >> 16, all[i].version >> 8 & 255,
					 all[i].version & 255, all[0].version >> 16,
					 all[0].version >> 8 & 255, all[0].version & 255);
		if (all[i].flags != all[0].flags)
			return coll_text(b->text, sizeof(b->text), -EINVAL,
					 "rank %u has flags %#x and rank 0 %#x: set COLL_ANY_UID and COLL_CHECKSUM on all ranks or on none",
					 i, all[i].flags, all[0].flags);
	}
	return check_machines(b, all);
}

static int exchange(struct coll_bootstrap *b, struct record *mine, struct record *all)
{
	memcpy(mine->text, b->text, sizeof(mine->text) - 1);
	mine->text[sizeof(mine->text) - 1] = 0;
	return b->ops->allgather(b, mine, sizeof(*mine), all);
}

/* The next one of @n, unless it is known: several ports may have one address. */
static bool add_address(struct record *mine, uint32_t n, const struct npulink_addr *addr)
{
	if (!memcmp(&mine->where.addr, addr, sizeof(*addr)))
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (!memcmp(&mine->more[i], addr, sizeof(*addr)))
			return false;
	mine->more[n] = *addr;
	return true;
}

/* Where this rank is. */
static void describe(struct record *mine, struct coll_dev *dev)
{
	struct npulink_port_info port;
	uint32_t n = 0;

	memcpy(mine->where.node_id, dev->info.out_node_id, sizeof(mine->where.node_id));
	gethostname(mine->host, sizeof(mine->host) - 1);
	if (coll_drv_port(&dev->drv, 0, &port))
		return;
	mine->where.kind = port.out_kind;
	mine->where.addr = port.out_addr;
	for (uint32_t i = 1; n < MORE && !coll_drv_port(&dev->drv, i, &port); i++)
		if (add_address(mine, n, &port.out_addr))
			n++;
}

/* What the machines are called, for the texts of failures. Takes over @machine. */
static int name_machines(struct coll_comm *comm, const struct record *all, uint32_t *machine,
			 uint32_t nranks, uint32_t nmachines)
{
	comm->hosts = calloc(nmachines, sizeof(*comm->hosts));
	if (!comm->hosts)
		return -ENOMEM;
	for (uint32_t i = 0; i < nranks; i++)
		coll_text(comm->hosts[machine[i]], sizeof(comm->hosts[0]), 0, "%.63s", all[i].host);
	comm->machine = machine;
	return 0;
}

/* Tell the kernel where the others are, and the planners who is with whom. */
static int introduce(struct coll_bootstrap *b, struct coll_comm *comm, const struct record *all)
{
	struct npulink_peer *peers = calloc(b->nranks, sizeof(*peers));
	struct npulink_addr (*more)[MORE] = calloc(b->nranks, sizeof(*more));
	uint32_t *machine = calloc(b->nranks, sizeof(*machine));
	uint32_t nmachines = 0;
	int rc = 0;

	if (!peers || !machine || !more) {
		rc = coll_text(b->text, sizeof(b->text), -ENOMEM, "out of memory");
		goto out;
	}
	for (uint32_t i = 0; i < b->nranks; i++) {
		uint32_t k = 0;

		while (k < i && !same_machine(&all[k], &all[i]))
			k++;
		machine[i] = k < i ? machine[k] : nmachines++;
		peers[i] = all[i].where;
		if (same_machine(&all[i], &all[b->rank])) {
			peers[i].kind = NPULINK_PEER_LOCAL;
			peers[i].addr = (struct npulink_addr) { };
		} else {
			memcpy(more[i], all[i].more, sizeof(more[i]));
		}
	}
	if (nmachines == 1)
		goto out;
	rc = coll_drv_comm_peers(&comm->dev->drv, comm->id, peers, b->nranks, *more, MORE);
	if (!rc)
		rc = coll_topo_machines(&comm->topo, machine, b->nranks);
	if (!rc)
		rc = name_machines(comm, all, machine, b->nranks, nmachines);
	if (rc)
		coll_text(b->text, sizeof(b->text), rc,
			  "cannot use ranks on other machines: %s", strerror(-rc));
	else
		machine = NULL;
out:
	free(peers);
	free(more);
	free(machine);
	return rc;
}

/* Overrides and wiring, which have to be the same everywhere. */
static uint64_t choice_of(const struct coll_comm *comm)
{
	uint64_t h = COLL_HASH_INIT;

	for (unsigned int i = 0; i < comm->tune.noverrides; i++) {
		const struct coll_override *o = &comm->tune.overrides[i];

		h = coll_hash_add(h, o->collective);
		h = coll_hash_add(h, o->from);
		h = coll_hash_add(h, o->to);
		h = coll_hash_text(h, o->alg->name);
	}
	return coll_hash_topo(h, &comm->topo, comm->nranks);
}

/* What only who has the key can make of rank 0's nonce. */
static void digest(const struct coll_bootstrap *b, const char *what, const uint8_t nonce[16],
		   uint8_t out[16])
{
	struct coll_hmac h;
	uint8_t full[32];

	coll_hmac_init(&h, b->key, b->key ? COLL_KEY_LEN : 0);
	coll_sha256_add(&h.inner, what, strlen(what));
	coll_sha256_add(&h.inner, nonce, 16);
	coll_hmac_end(&h, full);
	memcpy(out, full, 16);
	explicit_bzero(full, sizeof(full));
}

/* The communicator's secret. With a key it never travels. */
static void make_secret(const struct coll_bootstrap *b, const uint8_t nonce[16],
			uint8_t secret[16])
{
	if (b->key)
		digest(b, "npulink secret", nonce, secret);
	else
		memcpy(secret, nonce, 16);
}

/* Has everybody joined, and will all choose alike? @comm is NULL if this rank could not. */
static int conclude(struct coll_bootstrap *b, struct coll_comm *comm, int rc,
		    const struct record *first, const char *host)
{
	struct outcome mine = { .rc = rc }, *all = calloc(b->nranks, sizeof(*all));
	char own[COLL_TEXT];
	int gathered;

	if (!all)
		return coll_text(b->text, sizeof(b->text), -ENOMEM, "out of memory");
	memcpy(own, b->text, sizeof(own));
	memcpy(mine.text, b->text, sizeof(mine.text) - 1);
	memcpy(mine.host, host, sizeof(mine.host));
	digest(b, "npulink proof", first->nonce, mine.proof);
	if (comm) {
		mine.choice = choice_of(comm);
		coll_calibration_pack(&comm->tune, mine.costs);
	}
	gathered = b->ops->allgather(b, &mine, sizeof(mine), all);
	if (gathered) {
		if (rc)
			memcpy(b->text, own, sizeof(own));
		else
			rc = gathered;
		goto out;
	}
	for (uint32_t i = 0; i < b->nranks && !rc; i++)
		if (all[i].rc)
			rc = coll_text(b->text, sizeof(b->text), failure_of(all[i].rc),
				       "rank %u could not join: %.200s", i, all[i].text);
	for (uint32_t i = 1; i < b->nranks && !rc; i++)
		if (memcmp(all[i].proof, all[0].proof, sizeof(all[i].proof)))
			rc = coll_text(b->text, sizeof(b->text), -EACCES,
				       "rank %u on %.60s has another COLL_KEY than rank 0 on %.60s: set it to the same text on all ranks",
				       i, all[i].host, all[0].host);
	for (uint32_t i = 1; i < b->nranks && !rc; i++)
		if (all[i].choice != all[0].choice)
			rc = coll_text(b->text, sizeof(b->text), -EINVAL,
				       "rank %u on %.60s was given other algorithms or another topology than rank 0 on %.60s: make COLL_ALGORITHM and COLL_TOPOLOGY equal everywhere",
				       i, all[i].host, all[0].host);
	if (mine.rc)
		memcpy(b->text, own, sizeof(own));
	else if (!rc)
		coll_calibration_unpack(&comm->tune, all[0].costs, b->nranks);
out:
	free(all);
	return rc;
}

/* Takes over dev, which is NULL if it could not be opened (rc, text in b). */
static int meet(struct coll_bootstrap *b, struct coll_dev *dev, int rc,
		const struct coll_config *config, struct coll_comm **comm)
{
	struct record mine = { .version = COLL_VERSION, .flags = config->flags & ~COLL_MINORITY };
	struct record *all = calloc(b->nranks, sizeof(*all));
	char own[COLL_TEXT];
	uint8_t secret[16];
	int gathered;

	if (!all) {
		if (dev)
			coll_dev_put(dev);
		return coll_text(b->text, sizeof(b->text), -ENOMEM, "out of memory");
	}
	if (dev)
		describe(&mine, dev);
	if (!rc && !b->rank &&
	    getrandom(mine.nonce, sizeof(mine.nonce), 0) != sizeof(mine.nonce))
		rc = coll_text(b->text, sizeof(b->text), -EIO, "no random numbers");
	mine.rc = rc;
	memcpy(own, b->text, sizeof(own));
	gathered = exchange(b, &mine, all);
	if (rc)
		memcpy(b->text, own, sizeof(own));
	else
		rc = gathered ? gathered : others_failed(b, all);
	if (!rc)
		rc = check_records(b, all);
	if (rc) {
		if (dev)
			coll_dev_put(dev);
		goto out;
	}
	make_secret(b, all[0].nonce, secret);
	rc = coll_comm_make(comm, dev, b->nranks, secret, b->rank, config, b->text,
			    sizeof(b->text));
	explicit_bzero(secret, sizeof(secret));
	if (!rc)
		rc = introduce(b, *comm, all);
	rc = conclude(b, rc ? NULL : *comm, rc, &all[0], mine.host);
	if (rc && *comm) {
		coll_comm_destroy(*comm);
		*comm = NULL;
	}
out:
	/* Without a key, that was the secret. */
	explicit_bzero(mine.nonce, sizeof(mine.nonce));
	explicit_bzero(all[0].nonce, sizeof(all[0].nonce));
	free(all);
	return rc;
}

/* All of it, once it is known how; with a text in @b if it fails. */
int coll_bootstrap_join(struct coll_bootstrap *b, const struct coll_config *config,
			struct coll_comm **comm)
{
	struct coll_dev *dev = NULL;
	char text[COLL_TEXT] = "";
	int rc = 0, dev_rc;

	/*
	 * The device comes before others are waited for: by a device that is open without a
	 * communicator, npulink hang knows who waits for a rank that does not come.
	 */
	if (b->ops->numbers)
		rc = b->ops->open(b);
	if (!rc) {
		dev_rc = coll_config_dev(config, b->local, &dev, text, sizeof(text));
		if (!b->ops->numbers)
			rc = b->ops->open(b);
		if (rc && !dev_rc)
			coll_dev_put(dev);
	}
	if (!rc) {
		memcpy(b->text, text, sizeof(text));
		rc = meet(b, dev_rc ? NULL : dev, dev_rc, config, comm);
	}
	b->ops->close(b);
	if (!rc && b->open_network && !b->key)
		snprintf((*comm)->warning, sizeof((*comm)->warning),
			 "COLL_KEY is \"none\": whoever reached %s while the ranks joined could be one of them, and the communicator's secret was sent unprotected; set COLL_KEY to the same secret text on all ranks",
			 b->host);
	return rc;
}

/* Between machines there is one, unless somebody says that there is none. */
static int need_key(struct coll_bootstrap *b, uint8_t key[COLL_KEY_LEN])
{
	int rc = coll_key_read(b, key);

	if (rc || b->key || b->no_key || b->ops != &coll_bootstrap_tcp ||
	    coll_host_is_local(b->host))
		return rc;
	return coll_text(b->text, sizeof(b->text), -ENOKEY,
			 "MASTER_ADDR=\"%s\" is for ranks of several machines, and there is no key: set COLL_KEY to the same secret text on all ranks, or COLL_KEY_FILE to the same 32 random bytes (COLL_KEY=none: whoever gets there can be a rank); if all are on one machine, set MASTER_ADDR=localhost",
			 b->host);
}

int coll_comm_init_env(struct coll_comm **comm, const struct coll_config *user)
{
	uint8_t key[COLL_KEY_LEN];
	struct coll_bootstrap b = { };
	struct coll_config config;
	int rc;

	if (!comm)
		return -EINVAL;
	*comm = NULL;
	rc = coll_config_get(&config, user, b.text, sizeof(b.text));
	if (!rc)
		rc = read_launcher(&b);
	if (!rc)
		rc = coll_config_env(&config, b.text, sizeof(b.text));
	if (!rc && b.nranks != 1)
		rc = need_key(&b, key);
	if (!rc)
		rc = coll_bootstrap_time(&b, &config);
	if (!rc)
		rc = coll_bootstrap_join(&b, &config, comm);
	explicit_bzero(key, sizeof(key));
	return rc ? coll_config_fail(&config, b.rank, rc, b.text) : 0;
}
