// SPDX-License-Identifier: GPL-2.0
/*
 * limits.c - what this machine can do: the rates and latencies that figures of
 * collectives are held against. One line of JSON. Latencies are no better than what collectives
 * get, which are given by their means: the time of a switch varies by half in an emulator.
 *
 * Rates are bytes of result per second, of all processors working at the same time
 * (and of one), out of cache. switch: a process wakes another one of the same processor
 * and goes to sleep, until that one runs: what every rank costs that has to run, where there are
 * more ranks than processors. wake: the same with a process on another processor. ipi: an
 * interrupt sent to another processor and answered. meet: a barrier of so many processes, by a
 * counter and one futex on which all but the last sleep: the least that can be done where each
 * has to run, with everything that the scheduler has to say to it.
 */
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BUF	(16UL << 20)
#define REPEAT	7	/* of everything: of rates the best counts, of latencies the median */

struct shared {
	_Atomic unsigned int ready, go, turn, arrived, round;
	double seconds[256];
};

static struct shared *shared;
static long ncpus;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static int compare_times(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *times)
{
	qsort(times, REPEAT, sizeof(*times), compare_times);
	return times[REPEAT / 2] * 1e6;
}

static void bind_to(long cpu)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
}

/* ---- rates */

enum what { COPY, REDUCE_INT, REDUCE_FLOAT };

static void copy(void *dst, const void *a, const void *b, size_t len)
{
	memcpy(dst, a, len);
}

/* Two integers at a time, where the processor has no better way. */
__attribute__((optimize("no-tree-vectorize")))
static void reduce_swar(void *dst, const void *a, const void *b, size_t len)
{
	const uint64_t low = 0x7fffffff7fffffffULL, *x = a, *y = b;
	uint64_t *d = dst;

	for (size_t i = 0; i < len / 8; i++)
		d[i] = ((x[i] & low) + (y[i] & low)) ^ ((x[i] ^ y[i]) & ~low);
}

__attribute__((optimize("tree-vectorize")))
static void reduce_int(void *dst, const void *a, const void *b, size_t len)
{
	const int32_t *x = a, *y = b;
	int32_t *d = dst;

#pragma GCC ivdep
	for (size_t i = 0; i < len / 4; i++)
		d[i] = x[i] + y[i];
}

__attribute__((optimize("tree-vectorize")))
static void reduce_float(void *dst, const void *a, const void *b, size_t len)
{
	const float *x = a, *y = b;
	float *d = dst;

#pragma GCC ivdep
	for (size_t i = 0; i < len / 4; i++)
		d[i] = x[i] + y[i];
}

__attribute__((target("avx2"), optimize("tree-vectorize")))
static void reduce_int_avx2(void *dst, const void *a, const void *b, size_t len)
{
	const int32_t *x = a, *y = b;
	int32_t *d = dst;

#pragma GCC ivdep
	for (size_t i = 0; i < len / 4; i++)
		d[i] = x[i] + y[i];
}

__attribute__((target("avx2"), optimize("tree-vectorize")))
static void reduce_float_avx2(void *dst, const void *a, const void *b, size_t len)
{
	const float *x = a, *y = b;
	float *d = dst;

#pragma GCC ivdep
	for (size_t i = 0; i < len / 4; i++)
		d[i] = x[i] + y[i];
}

typedef void loop_fn(void *dst, const void *a, const void *b, size_t len);

static loop_fn * const loops[][4] = {
	[COPY] = { copy },
	[REDUCE_INT] = { reduce_swar, reduce_int, reduce_int_avx2 },
	[REDUCE_FLOAT] = { reduce_float, reduce_float_avx2 },
};

static double rate(loop_fn *fn, long n)
{
	double best = 0;

	shared->ready = 0;
	shared->go = 0;
	for (long cpu = 0; cpu < n; cpu++) {
		char *buf;

		if (fork())
			continue;
		bind_to(cpu);
		buf = mmap(NULL, 3 * BUF + 3 * 4096, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (buf == MAP_FAILED)
			_exit(1);
		memset(buf, 1, 3 * BUF + 3 * 4096);
		for (int i = 0; i < REPEAT; i++) {
			double start;

			atomic_fetch_add(&shared->ready, 1);
			while (atomic_load(&shared->ready) < n * (i + 1U))
				sched_yield();
			start = now();
			fn(buf, buf + BUF + 4096, buf + 2 * BUF + 3 * 4096, BUF);
			start = now() - start;
			if (!i || start < shared->seconds[cpu])
				shared->seconds[cpu] = start;
		}
		_exit(0);
	}
	while (wait(NULL) > 0)
		;
	for (long cpu = 0; cpu < n; cpu++)
		best += BUF / shared->seconds[cpu];
	return best;
}

static double best_rate(enum what what, long n)
{
	double best = 0, r;

	for (int i = 0; i < 4 && loops[what][i]; i++) {
		if ((loops[what][i] == reduce_int_avx2 || loops[what][i] == reduce_float_avx2) &&
		    !__builtin_cpu_supports("avx2"))
			continue;
		r = rate(loops[what][i], n);
		best = r > best ? r : best;
	}
	return best;
}

/* ---- latencies, in microseconds */

static double system_call(void)
{
	double t[REPEAT];

	for (int r = 0; r < REPEAT; r++) {
		t[r] = now();
		for (int i = 0; i < 2000; i++)
			syscall(SYS_getppid);
		t[r] = (now() - t[r]) / 2000;
	}
	return median(t);
}

static void pass(unsigned int mine)
{
	while (atomic_load(&shared->turn) != mine)
		syscall(SYS_futex, &shared->turn, FUTEX_WAIT, !mine, NULL, NULL, 0);
	atomic_store(&shared->turn, !mine);
	syscall(SYS_futex, &shared->turn, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* Two processes that wake each other, one of them on processor @cpu. */
static double ping_pong(int cpu)
{
	double t[REPEAT];
	pid_t pid;

	if (cpu >= ncpus)
		return 0;
	shared->turn = 0;
	bind_to(0);
	pid = fork();
	if (!pid) {
		bind_to(cpu);
		for (;;)
			pass(1);
	}
	for (int r = 0; r < REPEAT; r++) {
		t[r] = now();
		for (int i = 0; i < 300; i++)
			pass(0);
		t[r] = (now() - t[r]) / 600;
	}
	kill(pid, SIGKILL);
	wait(NULL);
	return median(t);
}

static void arrive(unsigned int n)
{
	unsigned int round = atomic_load(&shared->round);

	if (atomic_fetch_add(&shared->arrived, 1) + 1 == n) {
		atomic_store(&shared->arrived, 0);
		atomic_store(&shared->round, round + 1);
		syscall(SYS_futex, &shared->round, FUTEX_WAKE, n, NULL, NULL, 0);
		return;
	}
	while (atomic_load(&shared->round) == round)
		syscall(SYS_futex, &shared->round, FUTEX_WAIT, round, NULL, NULL, 0);
}

/* Processes that wait for each other again and again, on whatever processors. */
static double meet(unsigned int n)
{
	double t[REPEAT];
	pid_t pids[16];

	shared->arrived = 0;
	for (unsigned int i = 1; i < n; i++) {
		pids[i] = fork();
		if (!pids[i])
			for (;;)
				arrive(n);
	}
	for (int r = 0; r < REPEAT; r++) {
		t[r] = now();
		for (int i = 0; i < 300; i++)
			arrive(n);
		t[r] = (now() - t[r]) / 300;
	}
	for (unsigned int i = 1; i < n; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	return median(t);
}

static void *spin(void *arg)
{
	bind_to(1);
	atomic_store(&shared->ready, 1);
	while (!atomic_load(&shared->go))
		;
	return NULL;
}

static double ipi(void)
{
	double t[REPEAT];
	pthread_t thread;

	if (ncpus < 2 ||
	    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0))
		return 0;
	shared->ready = 0;
	shared->go = 0;
	bind_to(0);
	pthread_create(&thread, NULL, spin, NULL);
	while (!atomic_load(&shared->ready))
		sched_yield();
	for (int r = 0; r < REPEAT; r++) {
		t[r] = now();
		for (int i = 0; i < 300; i++)
			syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
		t[r] = (now() - t[r]) / 300;
	}
	atomic_store(&shared->go, 1);
	pthread_join(thread, NULL);
	return median(t);
}

int main(void)
{
	cpu_set_t all;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		return 1;
	ncpus = sysconf(_SC_NPROCESSORS_ONLN);
	if (ncpus > 256)
		ncpus = 256;
	sched_getaffinity(0, sizeof(all), &all);
	printf("{\"lib\":\"limits\",\"cpus\":%ld,\"syscall_us\":%.3f,", ncpus, system_call());
	printf("\"switch_us\":%.3f,\"wake_us\":%.3f,\"ipi_us\":%.3f,", ping_pong(0), ping_pong(1),
	       ipi());
	sched_setaffinity(0, sizeof(all), &all);
	printf("\"meet4_us\":%.3f,\"meet8_us\":%.3f,\"meet16_us\":%.3f,", meet(4), meet(8),
	       meet(16));
	printf("\"copy\":%.0f,\"copy_all\":%.0f,", best_rate(COPY, 1), best_rate(COPY, ncpus));
	printf("\"reduce_int32\":%.0f,\"reduce_int32_all\":%.0f,", best_rate(REDUCE_INT, 1),
	       best_rate(REDUCE_INT, ncpus));
	printf("\"reduce_float32\":%.0f,\"reduce_float32_all\":%.0f}\n", best_rate(REDUCE_FLOAT, 1),
	       best_rate(REDUCE_FLOAT, ncpus));
	return 0;
}
