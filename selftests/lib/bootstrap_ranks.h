/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * bootstrap_ranks.h - ranks that are processes of their own and meet over loopback, and what each
 * of them was told.
 */
#ifndef SELFTESTS_LIB_BOOTSTRAP_RANKS_H
#define SELFTESTS_LIB_BOOTSTRAP_RANKS_H

#include <signal.h>
#include "coll.h"
#include "mock.h"
#include "lib/bootstrap/bootstrap.h"
#include "lib/run/comm.h"
#include "kselftest.h"
#include "loopback.h"

#define MAX_RANKS	16

/* What a rank's process leaves behind. */
struct outcome {
	int rc;
	char text[600];
	char warning[300];
	uint8_t secret[16];
	double seconds;			/* that a call should take */
};

static struct outcome *outcomes;
static char port[8];
static uint64_t bootstrap_ns;
static const char *scratch_env[MAX_RANKS][3];	/* for one rank each: NAME=VALUE */

/* The next one is for a machine that was too busy for the one before; NULL: no more. */
static inline const char *timeout_env(unsigned int nth)
{
	static const char * const env[] = {
		"COLL_TIMEOUT=1", "COLL_TIMEOUT=5", "COLL_TIMEOUT=20",
	};

	return nth < ARRAY_SIZE(env) ? env[nth] : NULL;
}

static inline void set_number(const char *name, unsigned int value)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", value);
	setenv(name, text, 1);
}

static inline void join(unsigned int rank, unsigned int nranks)
{
	struct coll_config config = COLL_CONFIG_INIT;
	struct outcome *o = &outcomes[rank];
	struct coll_comm *comm;
	const char *name;

	set_number("RANK", rank);
	set_number("WORLD_SIZE", nranks);
	setenv("MASTER_ADDR", "127.0.0.1", 0);
	setenv("COLL_PORT", port, 0);
	setenv("COLL_DEVICE", "0", 0);
	for (int i = 0; i < 3; i++)
		if (scratch_env[rank][i])
			putenv((char *)scratch_env[rank][i]);
	config.error_text = o->text;
	config.error_size = sizeof(o->text);
	config.bootstrap_ns = bootstrap_ns;
	for (int i = getenv("TIMES") ? atoi(getenv("TIMES")) : 1; i > 1; i--)
		if (!coll_comm_init_env(&comm, &config))
			coll_comm_destroy(comm);
	o->rc = coll_comm_init_env(&comm, &config);
	if (!o->rc) {
		memcpy(o->secret, mock.comms->secret, 16);
		coll_comm_algorithm(comm, "allreduce", 1 << 20, COLL_INT8, COLL_SUM, &name,
				    &o->seconds);
		if (coll_comm_warning(comm))
			snprintf(o->warning, sizeof(o->warning), "%s", coll_comm_warning(comm));
		coll_comm_destroy(comm);
	}
}

static inline pid_t start(unsigned int rank, unsigned int nranks)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		join(rank, nranks);
		_exit(0);
	}
	return pid;
}

static inline void clean(void)
{
	memset(outcomes, 0, MAX_RANKS * sizeof(*outcomes));
	memset(scratch_env, 0, sizeof(scratch_env));
	snprintf(port, sizeof(port), "%d", loopback_port());
}

/* All ranks, rank 0 last if @late. Returns how many failed. */
static inline int run(unsigned int nranks, bool late)
{
	pid_t pid[MAX_RANKS];
	int bad = 0;

	for (unsigned int i = late; i < nranks; i++)
		pid[i] = start(i, nranks);
	if (late) {
		usleep(300000);
		pid[0] = start(0, nranks);
	}
	for (unsigned int i = 0; i < nranks; i++) {
		waitpid(pid[i], NULL, 0);
		bad += !!outcomes[i].rc;
	}
	return bad;
}

static inline bool said(unsigned int rank, int rc, const char *words)
{
	const struct outcome *o = &outcomes[rank];

	if (o->rc == rc && strstr(o->text, words))
		return true;
	ksft_print_msg("rank %u: %d, not %d: \"%s\" has no \"%s\"\n", rank, o->rc, rc, o->text,
		       words);
	return false;
}

static inline bool same_secrets(unsigned int n)
{
	static const uint8_t zero[16];

	for (unsigned int i = 0; i < n; i++)
		if (memcmp(outcomes[i].secret, outcomes[0].secret, 16))
			return false;
	return memcmp(outcomes[0].secret, zero, 16);
}

/* Once, before all else. */
static inline void ranks_begin(void)
{
	outcomes = mmap(NULL, MAX_RANKS * sizeof(*outcomes), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	signal(SIGPIPE, SIG_IGN);
	ksft_print_header();
}

#endif /* SELFTESTS_LIB_BOOTSTRAP_RANKS_H */
