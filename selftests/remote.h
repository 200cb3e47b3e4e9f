/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * remote.h - tests on several machines at a time: each runs the same program, makes its
 * RDMA ports out of its network interfaces, and runs some of the ranks.
 */
#ifndef SELFTESTS_REMOTE_H
#define SELFTESTS_REMOTE_H

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "coll.h"
#include "coll_cases.h"
#include "kselftest.h"
#include "lib/run/comm.h"

#define REMOTE_PARAMETERS	"/sys/module/npulink_rdma/parameters/"

static unsigned int machine, machines;
static unsigned int remote_port = 5000;

__attribute__((format(printf, 1, 2)))
static inline int run(const char *fmt, ...)
{
	char command[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(command, sizeof(command), fmt, ap);
	va_end(ap);
	return system(command);
}

static inline double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

/* One of the module's counters. */
static inline int remote_count(const char *name)
{
	char path[128], text[16] = "";
	int fd, n;

	snprintf(path, sizeof(path), REMOTE_PARAMETERS "%s", name);
	fd = open(path, O_RDONLY);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	return n > 0 ? atoi(text) : -1;
}

/* Connections are taken down by workers: give them a moment. */
static inline bool remote_idle(void)
{
	for (int i = 0; i < 300; i++) {
		if (!remote_count("keys") && !remote_count("connections"))
			return true;
		usleep(100000);
	}
	ksft_print_msg("%d keys, %d connections\n", remote_count("keys"),
		       remote_count("connections"));
	return false;
}

/* The same for memory, files, and all else that ranks have. */
static inline bool remote_clean(void)
{
	if (!remote_idle())
		return false;
	for (int i = 0; i < 50; i++) {
		if (!run("build/tools/npulink -j stat show >/tmp/stat.json && jq -e '.pinned == 0 and "
			 ".files == 0 and .comms == 0 and .ranks == 0 and .in_flight == 0' "
			 "/tmp/stat.json >/dev/null"))
			return true;
		usleep(100000);
	}
	run("sed 's/^/# /' /tmp/stat.json");
	return false;
}

/* Have a machine killed, as if its power failed. */
static inline int remote_kill(unsigned int which)
{
	return run("touch %s/../kill-%u", getenv("NPULINK_RESULTS"), which);
}

/* Where all machines see it. */
static inline void remote_shared_path(char path[256], const char *name, unsigned int number)
{
	snprintf(path, 256, "%s/../%s-%u", getenv("NPULINK_RESULTS"), name, number);
}

/* Notes in *when, which is shared, that there is a file of that name. */
static inline void remote_watch(const char *name, unsigned int number, volatile double *when)
{
	char path[256];

	*when = 0;
	if (fork())
		return;
	remote_shared_path(path, name, number);
	for (int i = 0; i < 10000 && access(path, F_OK); i++)
		usleep(20000);
	*when = now();
	_exit(0);
}

/* The same: that a machine was killed. */
static inline void remote_watch_kill(unsigned int which, volatile double *when)
{
	remote_watch("killed", which, when);
}

/* How often to do what is done once in make test. */
static inline unsigned int remote_rounds(unsigned int soak)
{
	const char *rounds = getenv("NPULINK_ROUNDS");

	if (rounds)
		return atoi(rounds);
	return getenv("NPULINK_SOAK") ? soak : 1;
}

static inline void remote_setup(unsigned int ndev, unsigned int timeout_ms)
{
	const char *vm = getenv("NPULINK_VM"), *vms = getenv("NPULINK_VMS");
	int rc;

	setvbuf(stdout, NULL, _IOLBF, 0);
	machine = vm ? atoi(vm) : 0;
	machines = vms ? atoi(vms) : 1;
	if (machines < 2)
		ksft_exit_skip("several machines are needed\n");
	rc = run("tools/vm/rdma %u peer_timeout=%u", ndev, timeout_ms);
	if (rc)
		ksft_exit_fail_msg("cannot set up links\n");
}

static inline bool remote_teardown(void)
{
	return !run("tools/vm/modules unload");
}

/*
 * How long a machine that does not answer is waited for in tests of just that, in seconds: the
 * default. Of debug kernels, up to nine of which share two processors, one that is alive has not
 * answered for 15.
 */
static inline const char *remote_bound(void)
{
	return getenv("NPULINK_SLOW") ? "40" : "3";
}

/*
 * A host that has other things to do may take four times as long, which is less than the 20 seconds
 * of the tests' setup; figures are printed.
 */
static inline double remote_latest(void)
{
	return 4 * atof(remote_bound());
}

static inline bool remote_in_time(double took)
{
	return took <= remote_latest();
}

/* ---- ranks */

struct remote_rank {
	unsigned int rank, nranks;
	char text[800];
};

typedef int (*remote_fn)(struct coll_comm *comm, unsigned int rank);

static inline int remote_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static inline int remote_fail(const char *fmt, ...)
{
	char text[900];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	ksft_print_msg("%s\n", text);
	return 1;
}

/* A file, since a text costs an emulated machine a second. */
static inline void remote_key(void)
{
	static const char key[] = "what the ranks of this test share";
	char path[40];
	int fd;

	if (getenv("COLL_KEY_FILE"))
		return;
	fd = memfd_create("key", 0);
	if (fd < 0 || fchmod(fd, 0600) || write(fd, key, sizeof(key)) != sizeof(key))
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	setenv("COLL_KEY_FILE", path, 1);
}

/* @where: the machine that rank 0 is on. */
static inline struct coll_comm *remote_join_at(unsigned int rank, unsigned int nranks,
					       unsigned int port, unsigned int where)
{
	struct coll_config config = COLL_CONFIG_INIT;
	struct coll_comm *comm;
	char number[16], text[600];

	snprintf(number, sizeof(number), "%u", rank);
	setenv("RANK", number, 1);
	snprintf(number, sizeof(number), "%u", nranks);
	setenv("WORLD_SIZE", number, 1);
	snprintf(number, sizeof(number), "vm%u", where);
	setenv("MASTER_ADDR", number, 1);
	snprintf(number, sizeof(number), "%u", port);
	setenv("MASTER_PORT", number, 1);
	remote_key();
	config.error_text = text;
	config.error_size = sizeof(text);
	/* What is too slow here is the host. */
	config.deadline_ns = 240000000000ULL;
	/* Machines that have nothing to do in a test are here early. */
	config.bootstrap_ns = 240000000000ULL;
	if (coll_comm_init_env(&comm, &config)) {
		remote_fail("%s", text);
		return NULL;
	}
	return comm;
}

/* The end of one that hangs; what the test may take is for all of its cases. */
static inline void remote_alarm(void)
{
	alarm(getenv("NPULINK_SLOW") ? 1500 : 300);
}

/*
 * @fn on each rank, @per of them on each of the first @n machines; those in the mask @victims end
 * by SIGKILL, and are not missed. Returns how many of ours failed.
 */
static inline int remote_ranks_dying(unsigned int n, unsigned int per, unsigned int victims,
				     remote_fn fn)
{
	pid_t pids[32] = { };
	int status, bad = 0;

	remote_port += 2;
	for (unsigned int i = 0; i < per && machine < n; i++) {
		unsigned int rank = machine * per + i;
		struct coll_comm *comm;
		int rc;

		pids[i] = fork();
		if (pids[i])
			continue;
		remote_alarm();
		comm = remote_join_at(rank, n * per, remote_port, 0);
		if (!comm)
			_exit(1);
		rc = fn(comm, rank);
		if (coll_comm_destroy(comm))
			rc = remote_fail("rank %u cannot leave", rank);
		_exit(!!rc);
	}
	for (unsigned int i = 0; i < per && pids[i]; i++) {
		bool victim = victims >> (machine * per + i) & 1;

		waitpid(pids[i], &status, 0);
		bad += victim ? !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL : !!status;
	}
	return bad;
}

static inline int remote_ranks_on(unsigned int n, unsigned int per, remote_fn fn)
{
	return remote_ranks_dying(n, per, 0, fn);
}

static inline int remote_ranks(unsigned int per, remote_fn fn)
{
	return remote_ranks_on(machines, per, fn);
}

static inline int remote_check(int rc, struct coll_comm *comm, unsigned int rank, const char *what)
{
	if (!rc)
		return 0;
	return remote_fail("rank %u: %s: %d: %s", rank, what, rc, coll_comm_last_error(comm));
}

static inline int remote_case(struct coll_comm *comm, unsigned int rank, const struct coll_case *c)
{
	char text[500];

	if (!trial_run(comm, c, text, sizeof(text)))
		return 0;
	return remote_fail("rank %u: %s: %s", rank, trial_names[c->collective], text);
}

/* Every collective, small and in slices. */
static inline int remote_collectives(struct coll_comm *comm, unsigned int rank)
{
	static const size_t counts[] = { 3, 5000 };
	int bad = 0;

	for (uint32_t coll = 0; coll < ARRAY_SIZE(trial_names) && !bad; coll++)
		for (size_t i = 0; i < ARRAY_SIZE(counts) && !bad; i++) {
			struct coll_case c = {
				.collective = coll, .count = counts[i], .dtype = COLL_INT32,
				.op = COLL_SUM, .root = trial_rooted(coll) ?
							coll_comm_size(comm) - 1 : 0,
				.in_place = i,
			};

			bad = remote_case(comm, rank, &c);
		}
	return bad;
}

#endif /* SELFTESTS_REMOTE_H */
