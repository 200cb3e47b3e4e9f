// SPDX-License-Identifier: GPL-2.0
/*
 * run.c - the processes of npulink bench: forks one per rank (rank.c) and
 * prints rows as they are finished. When a rank fails, the others get time to
 * notice by themselves, since what they then report is worth knowing; after
 * that they are killed.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "bench/bench.h"
#include "cli/npulink.h"

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
	interrupted = sig;
}

/* Every rank writes one byte when it has joined and one after each row. */
static void read_progress(struct bench_run *run)
{
	char buf[4096];
	ssize_t n = read(run->fds[0].fd, buf, sizeof(buf));
	const struct bench *b = run->b;

	if (n <= 0) {
		run->fds[0].fd = -1;
		return;
	}
	/*
	 * Ranks may be a row apart, but none can be two rows ahead of another,
	 * since all must come to a row's barriers.
	 */
	for (ssize_t i = 0; i < n; i++) {
		if (++run->bytes_in % b->local)
			continue;
		if (run->bytes_in / b->local == 1) {
			if (!opts.json && !b->node)
				bench_show_header(b, &run->map);
		} else if (run->rows_shown < b->nrows) {
			bench_show_row(run, run->rows_shown++);
		}
	}
}

static void stop_all(struct bench_run *run)
{
	atomic_store(&run->map.shared->stop, 1);
	syscall(SYS_futex, &run->map.shared->round, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void kill_all(struct bench_run *run)
{
	for (uint32_t i = 0; i < run->b->local; i++)
		if (run->fds[1 + i].fd >= 0)
			kill(run->map.shared->ranks[run->b->first + i].pid, SIGKILL);
}

static void reap(struct bench_run *run, uint32_t i)
{
	int status;

	if (waitpid(run->map.shared->ranks[run->b->first + i].pid, &status, 0) < 0)
		return;
	run->status[i] = status;
	close(run->fds[1 + i].fd);
	run->fds[1 + i].fd = -1;
	run->alive--;
	if (!status)
		return;
	run->nfailed++;
	if (!run->kill_at) {
		run->kill_at = now() + BENCH_GRACE;
		stop_all(run);
	}
}

static int start_rank(struct bench_run *run, uint32_t i, int pipe_fds[2])
{
	uint32_t rank = run->b->first + i;
	pid_t parent = getpid(), pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		return -errno;
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(EXIT_FAILURE);
		signal(SIGINT, SIG_IGN);	/* the parent sees to it */
		signal(SIGTERM, SIG_DFL);
		signal(SIGPIPE, SIG_IGN);
		close(pipe_fds[0]);
		_exit(bench_rank_run(run->b, &run->map, rank, pipe_fds[1]) ? EXIT_FAILURE :
		      EXIT_SUCCESS);
	}
	run->map.shared->ranks[rank].pid = pid;
	run->alive++;
	run->fds[1 + i].fd = syscall(SYS_pidfd_open, pid, 0);
	if (run->fds[1 + i].fd < 0) {
		int rc = -errno;

		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		run->alive--;
		return rc;
	}
	return 0;
}

static void watch(struct bench_run *run)
{
	const struct bench *b = run->b;
	bool killed = false;

	while (run->alive || run->fds[0].fd >= 0) {
		int timeout = -1;

		if (interrupted && !killed) {
			kill_all(run);
			killed = true;
		}
		if (run->kill_at && !killed) {
			double left = run->kill_at - now();

			if (left <= 0) {
				kill_all(run);
				killed = true;
				run->impatient = true;
			} else {
				timeout = left * 1000 + 1;
			}
		}
		if (poll(run->fds, 1 + b->local, timeout) <= 0)
			continue;
		if (run->fds[0].revents)
			read_progress(run);
		for (uint32_t i = 0; i < b->local; i++)
			if (run->fds[1 + i].fd >= 0 && run->fds[1 + i].revents)
				reap(run, i);
	}
}

static int map_shared(const struct bench *b, struct bench_map *map)
{
	size_t nresults = (size_t)b->nrows * BENCH_MODES * b->nranks;
	size_t choices = (sizeof(struct bench_shared) + 63) & ~(size_t)63;
	size_t results = choices + b->nrows * sizeof(*map->choices);
	size_t times = results + nresults * sizeof(*map->results);
	size_t len = times + (b->per_iter ? nresults * b->iters * sizeof(*map->times) : 0);
	uint8_t *addr = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (addr == MAP_FAILED)
		return -errno;
	map->shared = (void *)addr;
	map->choices = (void *)(addr + choices);
	map->results = (void *)(addr + results);
	map->times = b->per_iter ? (void *)(addr + times) : NULL;
	return 0;
}

static void catch_signals(void)
{
	struct sigaction action = { .sa_handler = on_signal };

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

int bench_start(const struct bench *b, struct json_object *root)
{
	struct rlimit files = { };
	struct bench_run run = { .b = b };
	int pipe_fds[2], rc;
	uint32_t i;

	/* One descriptor per rank. */
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);

	run.json_rows = json_object_new_array();
	run.fds = calloc(1 + b->local, sizeof(*run.fds));
	run.status = calloc(b->local, sizeof(*run.status));
	rc = map_shared(b, &run.map);
	if (rc || !run.fds || !run.status)
		return fail("not enough memory");
	rc = coll_get_unique_id(&run.map.shared->id);
	if (rc)
		return fail("cannot make a unique id: %s", coll_strerror(rc));
	if (pipe2(pipe_fds, O_CLOEXEC))
		return fail("cannot make a pipe: %m");
	for (i = 0; i <= b->local; i++) {
		run.fds[i].fd = -1;
		run.fds[i].events = POLLIN;
	}
	run.fds[0].fd = pipe_fds[0];
	catch_signals();

	for (i = 0; i < b->local; i++) {
		rc = start_rank(&run, i, pipe_fds);
		if (rc) {
			fail("cannot start rank %u: %s", b->first + i, strerror(-rc));
			run.nfailed++;
			run.kill_at = now();
			stop_all(&run);
			break;
		}
	}
	close(pipe_fds[1]);
	watch(&run);

	run.interrupted = interrupted;
	rc = bench_conclude(&run, root);
	if (interrupted)
		rc = 128 + interrupted;
	json_object_put(run.json_rows);
	free(run.fds);
	free(run.status);
	return rc;
}
