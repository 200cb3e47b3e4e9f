// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * comm.c - communicators: joining, leaving, and questions about them.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <npulink/verify.h>
#include "api/group.h"
#include "api/join.h"
#include "base/base.h"
#include "coll.h"
#include "run/board.h"
#include "run/cache.h"
#include "run/comm.h"
#include "run/dev.h"
#include "run/drv.h"
#include "run/error.h"
#include "run/group_kept.h"
#include "run/repeat.h"
#include "run/request.h"
#include "tune/calibration.h"
#include "tune/topo.h"
#include "tune/tune.h"

unsigned int coll_version(void)
{
	return COLL_VERSION;
}

const char *coll_version_string(void)
{
	return COLL_VERSION_STRING;
}

/* ---- structures of programs that were built with another version */

/* No version of a structure is larger: that is no size, but what has been left unset. */
#define STRUCT_MAX	4096

static bool is_zero(const char *from, const char *to)
{
	while (from < to && !*from)
		from++;
	return from == to;
}

/* A copy with all members that this version knows. */
int coll_config_get(struct coll_config *out, const struct coll_config *config, char *text,
		    size_t size)
{
	const struct coll_config defaults = COLL_CONFIG_INIT;

	*out = defaults;
	if (!config)
		return 0;
	if (config->size < offsetof(struct coll_config, device) || config->size > STRUCT_MAX)
		return coll_text(text, size, config->size > STRUCT_MAX ? -E2BIG : -EINVAL,
				 "coll_config.size is %zu: begin with COLL_CONFIG_INIT",
				 config->size);
	memcpy(out, config, config->size < sizeof(*out) ? config->size : sizeof(*out));
	if (config->size > sizeof(*out) &&
	    !is_zero((const char *)(config + 1), (const char *)config + config->size))
		return coll_text(text, size, -E2BIG,
				 "struct coll_config has a member that is set and that libcoll %s does not know: the program needs a newer libcoll",
				 COLL_VERSION_STRING);
	if (out->flags & ~(COLL_ANY_UID | COLL_CHECKSUM | COLL_MINORITY))
		return coll_text(text, size, -EINVAL, "coll_config.flags has unknown bits: 0x%x",
				 out->flags & ~(COLL_ANY_UID | COLL_CHECKSUM | COLL_MINORITY));
	return 0;
}

/*
 * Gives the caller @from, a structure of @known bytes, for @to, which begins with how many it has:
 * members that one of the two versions does not know are left out, or zero.
 */
static int give(struct coll_comm *comm, const char *who, void *to, const void *from, size_t known)
{
	size_t has = *(size_t *)to;

	if (has <= sizeof(has) || has > STRUCT_MAX)
		return coll_fail(comm, -EINVAL,
				 "%s: the structure's size is %zu: begin with its _INIT", who, has);
	memset(to, 0, has);
	memcpy(to, from, has < known ? has : known);
	*(size_t *)to = has;
	return 0;
}

/* ---- configuration */

/* What the environment adds to it. */
int coll_config_env(struct coll_config *config, char *text, size_t size)
{
	const char *checksum = secure_getenv("COLL_CHECKSUM");

	if (!checksum || !*checksum || !strcmp(checksum, "0"))
		return 0;
	if (strcmp(checksum, "1"))
		return coll_text(text, size, -EINVAL, "COLL_CHECKSUM=\"%s\" is neither 0 nor 1",
				 checksum);
	config->flags |= COLL_CHECKSUM;
	return 0;
}

int coll_config_fail(const struct coll_config *config, unsigned int rank, int rc,
		     const char *text)
{
	return coll_text(config->error_text, config->error_size, rc, "rank %u: %s", rank, text);
}

/* An open device: that of config->share, or a new one. */
int coll_config_dev(const struct coll_config *config, unsigned int index,
		    struct coll_dev **dev, char *text, size_t size)
{
	struct coll_config open = *config;

	if (config->share) {
		if (coll_dev_is_child(config->share->dev))
			return coll_text(text, size, -EPERM,
					 "coll_config.share belongs to the process that this one was forked from");
		*dev = config->share->dev;
		pthread_mutex_lock(&(*dev)->lock);
		(*dev)->refs++;
		pthread_mutex_unlock(&(*dev)->lock);
		return 0;
	}
	if (!open.device)
		open.device = secure_getenv("COLL_DEVICE");
	return coll_dev_open(dev, &open, index, text, size);
}

/* Seconds from the environment; *ns stays as it is if there are none. */
static int read_seconds(const char *name, double min, double max, const char *hint, uint64_t *ns,
			char *text, size_t size)
{
	const char *env = secure_getenv(name);
	double seconds;
	char *end;

	if (!env || !*env)
		return 0;
	seconds = coll_strtod(env, &end);
	if (*end || !(seconds >= min && seconds <= max))
		return coll_text(text, size, -EINVAL, "%s=\"%s\" is no number of seconds (%s)",
				 name, env, hint);
	*ns = seconds * 1e9;
	return 0;
}

static int read_deadline(const struct coll_config *config, uint64_t *deadline, char *text,
			 size_t size)
{
	*deadline = config->deadline_ns;
	if (*deadline != COLL_DEADLINE_AUTO)
		return 0;
	return read_seconds("COLL_DEADLINE", 0, 1e9, "0: no deadline", deadline, text, size);
}

static int read_peer_timeout(const struct coll_config *config, uint32_t *ms, char *text,
			     size_t size)
{
	const double min = NPULINK_PEER_TIMEOUT_MIN / 1e3, max = NPULINK_PEER_TIMEOUT_MAX / 1e3;
	uint64_t ns = config->peer_timeout_ns;
	char hint[32];
	int rc = 0;

	snprintf(hint, sizeof(hint), "%g to %g", min, max);
	if (!ns)
		rc = read_seconds("COLL_PEER_TIMEOUT", min, max, hint, &ns, text, size);
	else if (ns < min * 1e9 || ns > max * 1e9)
		rc = coll_text(text, size, -EINVAL,
			       "coll_config.peer_timeout_ns is %g seconds, and not %s", ns / 1e9,
			       hint);
	*ms = ns / 1000000;
	return rc;
}

/* ---- joining */

static int create_text(int rc, unsigned int nranks, char *text, size_t size)
{
	char words[128];

	switch (rc) {
	case -EEXIST:
		return coll_text(text, size, rc,
				 "the rank is taken: another process has joined as this rank, or this device file already has a rank in the communicator");
	case -EINVAL:
		return coll_text(text, size, rc,
				 "other ranks have joined with another number of ranks than %u",
				 nranks);
	case -EACCES:
		return coll_text(text, size, rc,
				 "the communicator was made by another user: run all ranks as one, or set COLL_ANY_UID on all of them");
	case -ENODEV:
		break;
	default:
		if (coll_is_failure(rc))
			return coll_text(text, size, rc,
					 "the communicator had failed before this rank joined: %s",
					 coll_words(rc, words, sizeof(words)));
	}
	return coll_text(text, size, rc, "cannot join: %s",
			 coll_words(rc, words, sizeof(words)));
}

/* The opposite of coll_comm_new(). */
void coll_comm_discard(struct coll_comm *comm)
{
	coll_board_close(&comm->board);
	coll_tune_free(&comm->tune);
	coll_topo_free(&comm->topo);
	free(comm->survivors);
	free(comm->machine);
	free(comm->hosts);
	coll_group_free_all(comm);
	coll_errors_free(comm);
	pthread_mutex_destroy(&comm->error_lock);
	free(comm);
}

/* All of it but the kernel's side. Does not take over the reference to dev. */
int coll_comm_new(struct coll_comm **commp, struct coll_dev *dev, unsigned int nranks,
		  unsigned int rank, const struct coll_config *config, char *text, size_t size)
{
	struct coll_comm *comm = calloc(1, sizeof(*comm));
	int rc;

	if (!comm)
		return coll_text(text, size, -ENOMEM, "out of memory");
	comm->dev = dev;
	comm->rank = rank;
	comm->nranks = nranks;
	comm->copy_max = config->copy_max ? config->copy_max : dev->arena_size / 2;
	if (comm->copy_max > dev->arena_size)
		comm->copy_max = dev->arena_size;
	pthread_mutex_init(&comm->error_lock, NULL);
	rc = read_deadline(config, &comm->deadline_ns, text, size);
	if (!rc && nranks > dev->info.out_max_ranks)
		rc = coll_text(text, size, -EINVAL, "%u ranks: the device allows at most %u",
			       nranks, dev->info.out_max_ranks);
	if (!rc)
		rc = coll_tune_init(&comm->tune, config->calibration, config->algorithm, nranks,
				    text, size);
	if (!rc)
		coll_dev_costs(&dev->info, &comm->tune, nranks);
	if (!rc)
		rc = coll_topo_init(&comm->topo, config->topology, nranks, text, size);
	if (rc) {
		coll_comm_discard(comm);
		return rc;
	}
	coll_dev_limit(dev, nranks);
	*commp = comm;
	return 0;
}

/* Takes over the reference to dev, also when it fails. */
int coll_comm_make(struct coll_comm **commp, struct coll_dev *dev, unsigned int nranks,
		   const uint8_t *secret, unsigned int rank, const struct coll_config *config,
		   char *text, size_t size)
{
	uint32_t peer_timeout_ms;
	struct coll_comm *comm;
	int rc;

	rc = read_peer_timeout(config, &peer_timeout_ms, text, size);
	if (!rc)
		rc = coll_comm_new(&comm, dev, nranks, rank, config, text, size);
	if (rc)
		goto err;
	rc = coll_drv_comm_create(&dev->drv, secret, rank, nranks, config->flags,
				  peer_timeout_ms, &comm->id);
	if (rc) {
		create_text(rc, nranks, text, size);
		coll_comm_discard(comm);
		goto err;
	}
	*commp = comm;
	return 0;
err:
	coll_dev_put(dev);
	return rc;
}

/* ---- leaving */

/*
 * A forked child has copies of everything, but the locks may be held by threads
 * that it does not have, and the kernel's side is not its own.
 */
static void leave_in_child(struct coll_comm *comm)
{
	struct coll_dev *dev = comm->dev;

	coll_dev_check(dev);
	coll_plan_free_all(comm, false);
	/* Nor are the mappings. */
	comm->board = (struct coll_board) { };
	coll_comm_discard(comm);
	if (!--dev->refs)
		coll_dev_free(dev);
}

int coll_comm_destroy(struct coll_comm *comm)
{
	struct npulink_comm_status st;
	struct coll_dev *dev;
	bool failed;
	int rc;

	if (!comm)
		return 0;
	dev = comm->dev;
	if (coll_dev_is_child(dev)) {
		leave_in_child(comm);
		return 0;
	}
	pthread_mutex_lock(&dev->lock);
	coll_dev_check(dev);
	pthread_mutex_unlock(&dev->lock);
	rc = coll_drv_comm_status(&dev->drv, comm->id, &st);
	/* Without its descriptor, nothing that is in flight can be waited for. */
	failed = rc == -EBADF || (!rc && st.out_cause);
	pthread_mutex_lock(&dev->lock);
	rc = coll_requests_leave(comm, failed);
	if (!rc) {
		coll_repeats_drop(comm);
		coll_plan_free_all(comm, true);
		coll_drv_destroy(&dev->drv, comm->id);
		/* Nobody is going to use that any more: the others need not wait for this rank. */
		if (comm->survivors)
			coll_drv_destroy(&dev->drv, comm->survivors->id);
	}
	pthread_mutex_unlock(&dev->lock);
	if (rc)
		return coll_fail(comm, rc,
				 "%s: there are requests that were not waited for: call coll_wait, coll_group_end, or coll_comm_abort first",
				 __func__);
	coll_comm_discard(comm);
	coll_dev_put(dev);
	return 0;
}

int coll_comm_abort(struct coll_comm *comm, unsigned int code)
{
	int rc = coll_comm_enter(comm);
	char words[128];

	if (rc)
		return rc;
	rc = coll_drv_comm_abort(&comm->dev->drv, comm->id, code);
	if (rc)
		return coll_fail(comm, rc, "%s: %s", __func__,
				 coll_words(rc, words, sizeof(words)));
	if (!atomic_load(&comm->failed))
		atomic_store(&comm->failed, -ECANCELED);
	return 0;
}

/* ---- questions */

int coll_comm_status(struct coll_comm *comm, struct coll_state *state)
{
	static const char * const cause[] = {
		"none", "abort", "deadline", "death", "left", "mismatch", "link", "device",
		"checksum", "deadlock", "removed",
	};
	struct npulink_comm_status st;
	struct coll_state known;
	int rc = coll_comm_enter(comm);
	char words[128];

	if (rc)
		return rc;
	rc = coll_drv_comm_status(&comm->dev->drv, comm->id, &st);
	if (rc)
		return coll_fail(comm, rc, "%s: %s", __func__,
				 coll_words(rc, words, sizeof(words)));
	known = (struct coll_state) {
		.status = st.out_status,
		.cause = st.out_cause < ARRAY_SIZE(cause) ? cause[st.out_cause] : "unknown",
		.rank = st.out_rank,
		.peer = st.out_peer,
		.step = st.out_step,
		.code = st.out_code,
		.joined = st.out_joined,
		.number = st.out_number,
		.next = st.out_next,
	};
	/* The kernel does not know of those that have been met since. */
	if (known.next < coll_board_next(comm))
		known.next = coll_board_next(comm);
	coll_machine_name(comm, &st, known.machine, sizeof(known.machine));
	memcpy(known.port, st.out_port, sizeof(known.port) - 1);
	return give(comm, __func__, state, &known, sizeof(known));
}

int coll_comm_info(struct coll_comm *comm, struct coll_comm_info *info)
{
	struct coll_comm_info known = { };
	struct coll_dev *dev;
	int rc = coll_comm_enter(comm);

	if (rc)
		return rc;
	dev = comm->dev;
	known.rank = comm->rank;
	known.nranks = comm->nranks;
	memcpy(known.device, dev->info.out_name, sizeof(known.device) - 1);
	memcpy(known.backend, dev->info.out_backend, sizeof(known.backend) - 1);
	memcpy(known.engine, dev->info.out_engine, sizeof(known.engine) - 1);
	pthread_mutex_lock(&dev->lock);
	known.arena_bytes = dev->arena_size;
	known.scratch_bytes = dev->scratch_bytes;
	known.pinned_bytes = dev->regs.bytes;
	known.plans = comm->plans.n;
	known.plan_hits = comm->plans.hits +
			  atomic_load_explicit(&comm->repeats.hits, memory_order_relaxed) +
			  coll_group_hits(comm);
	known.plan_misses = comm->plans.misses;
	known.registrations = dev->regs.n;
	known.reg_hits = dev->regs.hits;
	known.reg_misses = dev->regs.misses;
	known.stale = dev->regs.stale;
	known.copied = atomic_load(&dev->copied);
	known.syscalls = atomic_load(&dev->drv.calls);
	known.met = atomic_load_explicit(&comm->board.met, memory_order_relaxed);
	pthread_mutex_unlock(&dev->lock);
	return give(comm, __func__, info, &known, sizeof(known));
}

int coll_comm_algorithm(struct coll_comm *comm, const char *collective, size_t bytes,
			enum coll_dtype dtype, enum coll_op op, const char **name, double *seconds)
{
	struct coll_args args = {
		.dtype = dtype, .redop = op,
		.nranks = comm->nranks, .peer = !comm->rank, .rank = comm->rank,
		.topo = coll_comm_topo(comm),
	};
	const struct coll_algorithm *alg;
	uint64_t *counts = NULL;
	char text[256];
	double cost;
	int rc = coll_collective_parse(collective);

	if (rc < 0)
		return coll_fail(comm, -EINVAL, "\"%s\" is no collective", collective);
	args.collective = rc;
	if (args.dtype >= NPULINK_DTYPES || args.redop > NPULINK_CALL_AVG)
		return coll_fail(comm, -EINVAL, "no such data type, or no such reduction");
	coll_set_whole(&args, bytes / npulink_dtype_size(dtype));
	if (npulink_coll_is_v(args.collective) && !coll_has_rcounts(args.collective)) {
		counts = calloc(args.nranks, sizeof(*counts));
		if (!counts)
			return coll_fail(comm, -ENOMEM, "out of memory");
		for (uint32_t i = 0; i < args.nranks; i++)
			counts[i] = bytes / npulink_dtype_size(dtype) / args.nranks;
		args.count = 0;
		args.counts = counts;
	}
	rc = coll_tune_choose(&comm->tune, &args, &alg, &cost, text, sizeof(text));
	free(counts);
	if (rc)
		return coll_fail(comm, rc, "%s of %zu bytes: %s", collective, bytes, text);
	*name = alg->name;
	if (seconds)
		*seconds = cost;
	return 0;
}

unsigned int coll_comm_rank(const struct coll_comm *comm)
{
	return comm->rank;
}

unsigned int coll_comm_size(const struct coll_comm *comm)
{
	return comm->nranks;
}

int coll_comm_fd(struct coll_comm *comm)
{
	struct coll_dev *dev = comm->dev;

	/* Only what the kernel ends makes it readable. */
	if (!atomic_exchange(&dev->polled, true) && !coll_dev_is_child(dev))
		coll_board_flush_all(dev);
	return dev->drv.fd;
}
