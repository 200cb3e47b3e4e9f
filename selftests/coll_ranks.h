/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * coll_ranks.h - run a function on every rank of a communicator, each in its own
 * process, and learn what they found wrong.
 */
#ifndef SELFTESTS_COLL_RANKS_H
#define SELFTESTS_COLL_RANKS_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "coll.h"
#include "kselftest.h"
#include "lib/run/comm.h"

#define RANKS_MAX	32

/* Memory that all ranks and the test share. */
struct ranks {
	unsigned int n;
	struct coll_unique_id id;
	struct coll_config config;
	char text[RANKS_MAX][800];
	pthread_barrier_t barrier;
	int number[64];			/* for the test's own use, like this: */
	uint64_t time_ms;
};

static inline uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000ULL + ts.tv_nsec / 1000000;
}

static inline struct ranks *ranks_new(unsigned int n)
{
	struct ranks *ranks = mmap(NULL, sizeof(*ranks), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_barrierattr_t attr;

	ranks->n = n;
	ranks->config = (struct coll_config)COLL_CONFIG_INIT;
	coll_get_unique_id(&ranks->id);
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&ranks->barrier, &attr, n);
	return ranks;
}

static inline void ranks_free(struct ranks *ranks)
{
	munmap(ranks, sizeof(*ranks));
}

/* What a rank has to say when it fails; returns -1. */
__attribute__((format(printf, 3, 4)))
static inline int rank_fail(struct ranks *ranks, unsigned int rank, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (!ranks->text[rank][0])
		vsnprintf(ranks->text[rank], sizeof(ranks->text[rank]), fmt, ap);
	va_end(ap);
	return -1;
}

static inline struct coll_comm *rank_join(struct ranks *ranks, unsigned int rank)
{
	struct coll_config config = ranks->config;
	struct coll_comm *comm;
	char text[400] = "";

	config.error_text = text;
	config.error_size = sizeof(text);
	if (coll_comm_init_rank(&comm, ranks->n, &ranks->id, rank, &config))
		rank_fail(ranks, rank, "join: %s", text);
	return comm;
}

/* The process of one rank; it fails if @fn returns anything but 0. */
static inline pid_t rank_start(struct ranks *ranks, unsigned int rank,
			       int (*fn)(struct ranks *, struct coll_comm *))
{
	struct coll_comm *comm;
	pid_t pid;
	int rc;

	fflush(stdout);
	pid = fork();
	if (pid)
		return pid;
	signal(SIGALRM, SIG_DFL);
	alarm(getenv("NPULINK_SLOW") ? 600 : 100);
	comm = rank_join(ranks, rank);
	if (!comm)
		_exit(1);
	rc = fn(ranks, comm);
	if (rc)
		rank_fail(ranks, rank, "rc %d; %s", rc, coll_comm_last_error(comm));
	rc |= coll_comm_destroy(comm);
	_exit(rc ? 1 : 0);
}

/* Returns 0 if it ended well. */
static inline int rank_join_end(struct ranks *ranks, unsigned int rank, pid_t pid)
{
	int status = 0;

	waitpid(pid, &status, 0);
	if (WIFEXITED(status) && !WEXITSTATUS(status))
		return 0;
	if (WIFSIGNALED(status))
		rank_fail(ranks, rank, "killed by signal %d", WTERMSIG(status));
	ksft_print_msg("rank %u of %u: %s\n", rank, ranks->n, ranks->text[rank]);
	return 1;
}

/* How many ranks failed. */
static inline int ranks_run(struct ranks *ranks, int (*fn)(struct ranks *, struct coll_comm *))
{
	pid_t pid[RANKS_MAX];
	int bad = 0;

	for (unsigned int i = 0; i < ranks->n; i++)
		pid[i] = rank_start(ranks, i, fn);
	for (unsigned int i = 0; i < ranks->n; i++)
		bad += rank_join_end(ranks, i, pid[i]);
	return bad;
}

/* The same in one line: a new communicator of @n ranks. */
static inline int ranks_of(unsigned int n, int (*fn)(struct ranks *, struct coll_comm *))
{
	struct ranks *ranks = ranks_new(n);
	int bad = ranks_run(ranks, fn);

	ranks_free(ranks);
	return bad;
}

static inline bool have_device(void)
{
	return !access("/dev/npulink/npu0", R_OK | W_OK);
}

#endif /* SELFTESTS_COLL_RANKS_H */
