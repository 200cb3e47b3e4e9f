// SPDX-License-Identifier: GPL-2.0
/*
 * measure.c - times collectives of one library; the same code for each of them, so that
 * what is measured and what is checked is the same.
 *
 * Usage: measure-LIB RANKS FILE BUDGET LIB SETTING POINT...
 *
 * FILE holds what the ranks share; it is made anew by whoever starts them. BUDGET: milliseconds
 * for each point. LIB and SETTING go to the output unchanged. A POINT is
 * COLLECTIVE:BYTES:TYPE[:MODE[:ITERATIONS]]; MODE is plain, batch, overlap, request: started and
 * waited for, persist: the same, prepared once, or fresh: no call has the buffers of one of the
 * FRESH calls before it. Rank 0 prints one line of JSON per point.
 *
 * SETTING is a word or several, joined by "-", which adaptors may look for: see bench_has(). With
 * "pin", rank i has processor i modulo their number, also if there are more ranks than processors.
 *
 * Ranks begin together, by a barrier of our own, and an operation's time is that
 * from the first rank's start to the last rank's end, divided by the iterations.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "measure.h"

#define MAX_RANKS	1100
#define MAX_ITERS	200000
#define POISON		0xa5
/* Calls before the first that counts, of messages up to SMALL bytes: as many as in OSU's. */
#define WARM_UP		200
#define SMALL		8192
/* Buffers that calls of mode "fresh" use in turn. */
#define FRESH		64

static const char *const kind_names[BENCH_KINDS] = {
	"allreduce", "reduce_scatter", "allgather", "alltoall", "broadcast", "barrier",
};

/* What a rank leaves after a loop. */
struct outcome {
	double start, end, cpu;
	uint64_t wrong;
};

struct shared {
	_Atomic unsigned int arrived;
	_Atomic unsigned int round;
	_Atomic unsigned int iters;
	_Atomic unsigned int units;	/* of computing */
	unsigned char id[BENCH_ID_MAX];
	struct outcome outcomes[MAX_RANKS];
};

enum mode { PLAIN, BATCHED, OVERLAP, AFRESH, REQUEST, PERSIST, MODES };

static const char *const mode_names[] = {
	"plain", "batch", "overlap", "fresh", "request", "persist",
};

struct point {
	enum mode mode;
	struct bench_call call;
	unsigned int iters;	/* 0: by the budget */
	unsigned int units;	/* of computing, in mode OVERLAP */
	const char *text;
};

static struct shared *shared;
static const char *setting;
static int rank, size;

void bench_die(const char *format, ...)
{
	va_list args;

	fprintf(stderr, "rank %d: ", rank);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

bool bench_has(const char *word)
{
	size_t len = strlen(word);

	for (const char *at = setting; (at = strstr(at, word)); at++)
		if ((at == setting || at[-1] == '-') && (!at[len] || at[len] == '-'))
			return true;
	return false;
}

static double now(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

/* Not the library's, which is to be measured. Sleeps, so that nobody is disturbed. */
static void meet(void)
{
	unsigned int round = atomic_load(&shared->round);

	if (atomic_fetch_add(&shared->arrived, 1) + 1 == (unsigned int)size) {
		atomic_store(&shared->arrived, 0);
		atomic_store(&shared->round, round + 1);
		syscall(SYS_futex, &shared->round, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
		return;
	}
	while (atomic_load(&shared->round) == round)
		syscall(SYS_futex, &shared->round, FUTEX_WAIT, round, NULL, NULL, 0);
}

/* ---- data: small numbers, so that sums are exact in any type and any order */

static int32_t value(int from, size_t i)
{
	return (i * 7 + from * 13 + 1) % 61;
}

static int32_t get(const struct bench_call *c, const void *buf, size_t i)
{
	return c->is_float ? (int32_t)((const float *)buf)[i] : ((const int32_t *)buf)[i];
}

static void fill(const struct bench_call *c)
{
	size_t n = c->bytes / 4;

	for (size_t i = 0; i < n; i++) {
		if (c->is_float)
			((float *)c->send)[i] = value(rank, i);
		else
			((int32_t *)c->send)[i] = value(rank, i);
	}
	memset(c->recv, POISON, c->bytes);
	/* Everybody has one buffer there, and the root's is the input. */
	if (c->kind == BENCH_BROADCAST && !rank)
		memcpy(c->recv, c->send, c->bytes);
}

static int32_t sum(size_t i)
{
	int32_t s = 0;

	for (int r = 0; r < size; r++)
		s += value(r, i);
	return s;
}

static uint64_t count_wrong(const struct bench_call *c)
{
	uint64_t wrong = 0;
	int32_t sums[61];

	/* Values repeat. */
	for (size_t i = 0; i < 61; i++)
		sums[i] = sum(i);
	for (size_t i = 0; i < c->count; i++) {
		switch (c->kind) {
		case BENCH_ALLREDUCE:
			wrong += get(c, c->recv, i) != sums[i % 61];
			break;
		case BENCH_REDUCE_SCATTER:
			wrong += get(c, c->recv, i) != sums[(rank * c->count + i) % 61];
			break;
		case BENCH_BROADCAST:
			wrong += get(c, c->recv, i) != value(0, i);
			break;
		case BENCH_ALLGATHER:
			for (int r = 0; r < size; r++)
				wrong += get(c, c->recv, r * c->count + i) != value(r, i);
			break;
		case BENCH_ALLTOALL:
			for (int r = 0; r < size; r++)
				wrong += get(c, c->recv, r * c->count + i) !=
					 value(r, rank * c->count + i);
			break;
		default:
			break;
		}
	}
	return wrong;
}

static unsigned int buffers(const struct point *pt)
{
	return pt->mode == AFRESH ? FRESH : 1;
}

/* The call of iteration i. */
static struct bench_call call_of(const struct point *pt, unsigned int i)
{
	struct bench_call call = pt->call;
	/* The first is that of other modes, whose calls are known already. */
	size_t at = pt->mode == AFRESH ? (1 + i % FRESH) * call.bytes : 0;

	call.send = (char *)call.send + at;
	call.recv = (char *)call.recv + at;
	return call;
}

/* The input, and where the result goes nothing that could be taken for one. */
static void begin(const struct point *pt)
{
	for (unsigned int i = 0; i < buffers(pt); i++) {
		struct bench_call call = call_of(pt, i);

		fill(&call);
	}
	lib_setup(&pt->call);
}

/* What this many calls, each of which had its input, have left. */
static uint64_t all_wrong(const struct point *pt, unsigned int iters)
{
	uint64_t wrong = 0;

	for (unsigned int i = 0; i < buffers(pt) && i < iters; i++) {
		struct bench_call call = call_of(pt, i);

		wrong += count_wrong(&call);
	}
	return wrong;
}

static uint64_t checked(const struct point *pt)
{
	struct bench_call call = call_of(pt, 0);

	begin(pt);
	lib_run(&call);
	return all_wrong(pt, 1);
}

/* ---- processor time of kernel threads: nobody's own, but spent for somebody */

#define KTHREADS	4096

struct kthread {
	unsigned int pid;
	unsigned long long ns;
};

static unsigned int kthreads_read(struct kthread *v)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	unsigned int n = 0;

	while (proc && n < KTHREADS && (entry = readdir(proc))) {
		char path[300], stat[512], *after;
		unsigned int flags;
		FILE *file;

		if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%s/stat", entry->d_name);
		file = fopen(path, "re");
		if (!file)
			continue;
		after = fgets(stat, sizeof(stat), file) ? strrchr(stat, ')') : NULL;
		fclose(file);
		/* The ninth field, PF_KTHREAD. */
		if (!after || sscanf(after, ") %*c %*d %*d %*d %*d %*d %u", &flags) != 1 ||
		    !(flags & 0x200000))
			continue;
		snprintf(path, sizeof(path), "/proc/%s/schedstat", entry->d_name);
		file = fopen(path, "re");
		if (!file)
			continue;
		v[n].pid = atoi(entry->d_name);
		n += fscanf(file, "%llu", &v[n].ns) == 1;
		fclose(file);
	}
	if (proc)
		closedir(proc);
	return n;
}

static struct kthread kthreads[KTHREADS];
static unsigned int nkthreads;

static void kthreads_begin(void)
{
	nkthreads = kthreads_read(kthreads);
}

/* Seconds since then. One that has ended meanwhile is gone with what it took. */
static double kthreads_end(void)
{
	static struct kthread later[KTHREADS];
	unsigned int n = kthreads_read(later);
	unsigned long long ns = 0;

	for (unsigned int i = 0; i < n; i++) {
		ns += later[i].ns;
		for (unsigned int k = 0; k < nkthreads; k++)
			if (kthreads[k].pid == later[i].pid && kthreads[k].ns <= later[i].ns)
				ns -= kthreads[k].ns;
	}
	return ns / 1e9;
}

/* ---- loops */

/* About a microsecond each, without memory. */
static void compute(unsigned int units)
{
	static volatile uint64_t sink;
	uint64_t x = sink;

	for (unsigned int i = 0; i < units * 200; i++)
		x = x * 6364136223846793005ULL + 1442695040888963407ULL;
	sink = x;
}

static void loop(const struct point *pt, unsigned int iters, bool communicate, unsigned int units)
{
	for (unsigned int i = 0; i < iters; i++) {
		if (pt->mode == OVERLAP) {
			if (communicate)
				lib_start(&pt->call);
			if (units)
				compute(units);
			if (communicate)
				lib_wait();
		} else if (pt->mode == BATCHED) {
			lib_run_batch(&pt->call);
		} else if (pt->mode == REQUEST) {
			lib_start(&pt->call);
			lib_wait();
		} else if (pt->mode == PERSIST) {
			lib_start_again(&pt->call);
			lib_wait_again();
		} else if (pt->mode == AFRESH) {
			struct bench_call call = call_of(pt, i);

			lib_run(&call);
		} else {
			lib_run(&pt->call);
		}
	}
}

/* Seconds per iteration, the same on all ranks. */
static double timed(const struct point *pt, unsigned int iters, bool communicate,
		    unsigned int units, double *cpu)
{
	struct outcome *mine = &shared->outcomes[rank];
	double start = 1e300, end = 0, total = 0;

	if (!rank)
		kthreads_begin();
	meet();
	mine->cpu = -now(CLOCK_PROCESS_CPUTIME_ID);
	mine->start = now(CLOCK_MONOTONIC);
	loop(pt, iters, communicate, units);
	mine->end = now(CLOCK_MONOTONIC);
	mine->cpu += now(CLOCK_PROCESS_CPUTIME_ID);
	meet();
	for (int r = 0; r < size; r++) {
		const struct outcome *o = &shared->outcomes[r];

		start = o->start < start ? o->start : start;
		end = o->end > end ? o->end : end;
		total += o->cpu;
	}
	if (!rank)
		total += kthreads_end();
	if (cpu)
		*cpu = total / iters;
	meet();
	return (end - start) / iters;
}

static unsigned int agree(_Atomic unsigned int *where, double mine)
{
	if (!rank)
		atomic_store(where, mine < 1 ? 1 : mine > MAX_ITERS ? MAX_ITERS : mine);
	meet();
	return atomic_load(where);
}

/*
 * Libraries learn from the first calls: they make plans, pin, open what they share, and none of it
 * says anything about those that follow. Of large messages few are enough.
 */
static unsigned int warm_up_calls(const struct point *pt)
{
	return pt->call.bytes > SMALL ? 1 : WARM_UP;
}

/* And of slow ones as many as there is time for. Gives the seconds of a call. */
static double warm_up(const struct point *pt, double budget)
{
	unsigned int wanted = warm_up_calls(pt), calls = 0;
	double one, spent = 0;

	for (unsigned int n = 1; ; n *= 4) {
		one = timed(pt, n, true, 0, NULL);
		calls += n;
		spent += one * n;
		/* The last loop is what the number of repetitions is guessed from. */
		if (agree(&shared->units, one * n < budget / 20 ||
			  (calls < wanted && spent < budget * 4) ? 2 : 1) == 1)
			return one;
	}
}

/*
 * How much to compute so that it takes about as long as the collective, with all ranks computing.
 * Both are measured again until they agree: a host that did something else meanwhile would have
 * one of them hide behind the other.
 */
static void balance(const struct point *pt, unsigned int iters, unsigned int *units, double *pure,
		    double *computing)
{
	double one = timed(pt, 1, false, 1000, NULL) / 1000, ratio;

	for (int tries = 0; tries < 5; tries++) {
		*pure = timed(pt, iters, true, 0, NULL);
		*units = agree(&shared->units, *pure / one);
		*computing = timed(pt, iters, false, *units, NULL);
		ratio = *computing / *pure;
		if (agree(&shared->units, ratio > 0.9 && ratio < 1.1 ? 2 : 1) == 2)
			return;
		one = *computing / *units;
	}
}

static void run_point(const struct point *pt, double budget, const char *lib)
{
	double one, cpu, t, pure = 0, computing = 0;
	unsigned int iters = pt->iters, units = 0;
	uint64_t wrong = 0;
	int per = pt->mode == BATCHED ? BATCH : 1;

	shared->outcomes[rank].wrong = checked(pt);
	if (!iters) {
		one = warm_up(pt, budget);
		iters = agree(&shared->iters, budget / one < 2 ? 2 : budget / one);
	} else {
		timed(pt, warm_up_calls(pt) + iters / 10, true, 0, NULL);
	}
	for (int tries = 0; ; tries++) {
		if (pt->mode == OVERLAP)
			balance(pt, iters, &units, &pure, &computing);
		begin(pt);
		t = timed(pt, iters, true, units, &cpu);
		/*
		 * If the host did something else while the number of repetitions was
		 * guessed, the loop is so short that the next such moment is all of it.
		 */
		if (pt->iters || tries == 3 || t * iters >= budget / 2)
			break;
		iters = agree(&shared->iters, budget / t);
	}
	/* What the calls that were timed have left, where their input is still there. */
	shared->outcomes[rank].wrong += lib_keeps_input(&pt->call) ? all_wrong(pt, iters) :
								      checked(pt);
	meet();
	if (rank)
		return;
	for (int r = 0; r < size; r++)
		wrong += shared->outcomes[r].wrong;
	printf("{\"lib\":\"%s\",\"setting\":\"%s\",\"ranks\":%d,", lib, setting, size);
	printf("\"coll\":\"%s\",\"bytes\":%zu,", kind_names[pt->call.kind], pt->call.bytes);
	printf("\"type\":\"%s\",", pt->call.is_float ? "float32" : "int32");
	printf("\"mode\":\"%s\",\"iters\":%u,", mode_names[pt->mode], iters);
	printf("\"us\":%.3f,\"cpu_us\":%.3f,", t * 1e6 / per, cpu * 1e6 / per);
	printf("\"wrong\":%llu", (unsigned long long)wrong);
	if (pt->mode == OVERLAP)
		printf(",\"pure_us\":%.3f,\"compute_us\":%.3f", pure * 1e6, computing * 1e6);
	printf("}\n");
	fflush(stdout);
}

static void parse(const char *text, struct point *pt)
{
	char kind[32], type[16], mode[16] = "plain";
	struct bench_call *c = &pt->call;
	int i;

	*pt = (struct point) { .text = text };
	if (sscanf(text, "%31[a-z_]:%zu:%15[a-z0-9]:%15[a-z]:%u", kind, &c->bytes, type, mode,
		   &pt->iters) < 3)
		bench_die("%s: no point", text);
	for (i = 0; i < BENCH_KINDS && strcmp(kind, kind_names[i]); i++)
		;
	c->kind = i;
	for (i = 0; i < MODES && strcmp(mode, mode_names[i]); i++)
		;
	pt->mode = i;
	c->is_float = !strcmp(type, "float32");
	if (c->kind == BENCH_KINDS || pt->mode == MODES)
		bench_die("%s: no point", text);
	c->count = c->bytes / 4;
	if (c->kind == BENCH_ALLGATHER || c->kind == BENCH_ALLTOALL ||
	    c->kind == BENCH_REDUCE_SCATTER) {
		c->count = c->count / size ?: 1;
		c->bytes = c->count * 4 * size;
	}
}

/*
 * Pages of different buffers that share a place in a cache that maps directly (that of
 * the emulator for addresses, for one) would be an artefact: an odd number between them.
 */
static void *buf_alloc(size_t len, int which)
{
	size_t lead = 4096 * (2 * (rank % 16) + 31 * which + 1);
	char *p = mmap(NULL, len + lead, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);

	if (p == MAP_FAILED)
		bench_die("no memory for %zu bytes", len);
	return p + lead;
}

static void run_rank(int argc, char **argv)
{
	int online = sysconf(_SC_NPROCESSORS_ONLN);
	double budget = atof(argv[3]) / 1e3;
	size_t most = 4096, need;
	struct point pt;
	void *send, *recv;
	cpu_set_t cpus;

	lib_init(shared->id, &rank, &size);
	if (size > MAX_RANKS)
		bench_die("too many ranks");
	/* Where every rank can have a processor, it has one, with every library. */
	if (size <= online || bench_has("pin")) {
		CPU_ZERO(&cpus);
		CPU_SET(rank % online, &cpus);
		sched_setaffinity(0, sizeof(cpus), &cpus);
	}
	for (int i = 6; i < argc; i++) {
		parse(argv[i], &pt);
		need = pt.call.bytes * (pt.mode == AFRESH ? 1 + FRESH : 1);
		most = need > most ? need : most;
	}
	send = buf_alloc(most, 0);
	recv = buf_alloc(most, 1);
	for (int i = 6; i < argc; i++) {
		parse(argv[i], &pt);
		pt.call.send = send;
		pt.call.recv = recv;
		if (((pt.mode == OVERLAP || pt.mode == REQUEST) && !lib_start(NULL)) ||
		    (pt.mode == PERSIST && !lib_start_again(NULL)) ||
		    (pt.mode == AFRESH && lib_binds_buffers))
			continue;
		run_point(&pt, budget, argv[4]);
	}
	meet();
	lib_exit();
}

int main(int argc, char **argv)
{
	int fd, status, worst = 0;

	if (argc < 7)
		bench_die("usage: measure-LIB RANKS FILE BUDGET LIB SETTING POINT...");
	size = atoi(argv[1]);
	setting = argv[5];
	fd = open(argv[2], O_RDWR);
	shared = fd < 0 ? MAP_FAILED :
		 mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (shared == MAP_FAILED)
		bench_die("%s: %s", argv[2], strerror(errno));
	if (!lib_forks) {
		run_rank(argc, argv);
		return 0;
	}
	lib_prepare(shared->id, size);
	for (rank = 0; rank < size; rank++) {
		pid_t pid = fork();

		if (pid < 0)
			bench_die("fork: %s", strerror(errno));
		if (!pid) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			run_rank(argc, argv);
			exit(0);
		}
	}
	while (wait(&status) > 0)
		worst |= status;
	return !!worst;
}
