// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * rdma_soak.c - half an hour of mixed traffic between two machines whose memory is short: random
 * collectives over random communicators, messages, many requests at a time, large memory that is
 * registered and released, and communicators that fail and are shrunk. Every result is right, and
 * at each pause nothing is pinned and no key is valid; from the first fifth on, what the kernel has
 * for itself does not grow. NPULINK_SECONDS says how long, NPULINK_SEED is printed.
 *
 * npulink-test: machines=2 mem=512 modules=none timeout=240 soak nodebug
 */
#include "lib/run/comm.h"
#include "lib/run/request.h"
#include "pressure.h"
#include "remote_random.h"

#define PER		2
#define PAUSES		400

static unsigned int seconds;
static pid_t pressure[2];

/* ---- what the kernel has, at pauses ------------------------------------------------- */

enum { SLAB, UNRECLAIM, STACKS, TABLES, PERCPU, VMALLOC, KMALLOC, FIGURES };

/*
 * KiB by which each may grow: what one pause differs by from the next one. Of Slab, what is not
 * in SUnreclaim is what the kernel knows of files, also those that programs run at pauses.
 */
static const struct {
	const char *name;
	long bound;
} figures[FIGURES] = {
	[SLAB] = { "Slab", 4096 },
	[UNRECLAIM] = { "SUnreclaim", 1024 },
	[STACKS] = { "KernelStack", 256 },
	[TABLES] = { "PageTables", 512 },
	[PERCPU] = { "Percpu", 256 },
	[VMALLOC] = { "VmallocUsed", 512 },
	[KMALLOC] = { "kmalloc-*", 512 },
};

/* Made by one rank of each machine, judged by their parent. */
static struct {
	unsigned int n, bad;
	char held[64];		/* what npulink has for those who wait at a pause */
	struct {
		long kib[FIGURES], scanned, killed;
	} at[PAUSES];
} *pauses;

/*
 * Nothing of the callers is pinned, and the communicator of all has what it had at the first
 * pause: buffers of npulink's own count as pinned, too.
 */
static bool nothing_held(void)
{
	char held[64] = "";
	FILE *f;

	for (int i = 0; i < 100; i++) {
		pressure_write("/proc/sys/vm/stat_refresh", "1");
		f = popen("build/tools/npulink -j stat show | "
			  "jq -r '[.files, .comms, .ranks, .pinned] | join(\" \")'", "r");
		if (f && (!fgets(held, sizeof(held), f) || pclose(f)))
			*held = 0;
		if (!pauses->n)
			strcpy(pauses->held, held);
		if (*held && !strcmp(held, pauses->held) && !remote_count("keys") &&
		    !pressure_pinned())
			return true;
		usleep(100000);
	}
	ksft_print_msg("%d keys, %ld pages pinned; files, communicators, ranks, bytes: %s",
		       remote_count("keys"), pressure_pinned(), held);
	return false;
}

static void look(void)
{
	unsigned int n = pauses->n;

	pauses->bad += !nothing_held();
	if (n == PAUSES)
		return;
	pressure_signal(pressure, SIGSTOP);
	pressure_settle();
	for (unsigned int i = 0; i < FIGURES; i++)
		pauses->at[n].kib[i] = i == KMALLOC ? pressure_slab("kmalloc") :
				       pressure_count("/proc/meminfo", figures[i].name);
	pauses->at[n].scanned = pressure_scanned();
	pauses->at[n].killed = pressure_count("/proc/vmstat", "oom_kill");
	pressure_signal(pressure, SIGCONT);
	pauses->n++;
}

/* The least in a fifth of all pauses: what is there for a moment only adds to it. */
static long least(unsigned int figure, unsigned int fifth)
{
	unsigned int from = pauses->n * fifth / 5, to = pauses->n * (fifth + 1) / 5;
	long min = pauses->at[from].kib[figure];

	for (unsigned int i = from; i < to; i++)
		if (pauses->at[i].kib[figure] < min)
			min = pauses->at[i].kib[figure];
	return min;
}

static bool no_growth(void)
{
	bool ok = pauses->n >= 5;

	for (unsigned int i = 0; i < FIGURES && pauses->n >= 5; i++) {
		long before = least(i, 1), after = least(i, 4);

		ksft_print_msg("%s: %ld, %ld, %ld, %ld KiB, in the end %ld KiB\n", figures[i].name,
			       least(i, 0), before, least(i, 2), least(i, 3), after);
		if (after - before > figures[i].bound)
			ok = !remote_fail("%s has grown by more than %ld KiB", figures[i].name,
					  figures[i].bound);
	}
	return ok;
}

/* Did the kernel have to look for memory before most pauses, each of which leaves it some? */
static bool was_short(void)
{
	unsigned int n = pauses->n, idle = 0;

	for (unsigned int i = 1; i < n; i++)
		idle += pauses->at[i].scanned == pauses->at[i - 1].scanned;
	if (n)
		ksft_print_msg("%u pauses, %u without want; %ld pages looked at, %ld processes killed\n",
			       n, idle, pauses->at[n - 1].scanned, pauses->at[n - 1].killed);
	return n > 1 && idle <= n / 2;
}

/* ---- traffic -------------------------------------------------------------------------- */

static uint8_t byte_of(unsigned int rank, size_t i)
{
	return i / 5 + 3 * rank;
}

static void fill(uint8_t *p, size_t len, unsigned int rank)
{
	for (size_t i = 0; i < len; i++)
		p[i] = byte_of(rank, i);
}

/* Is it what @rank has filled it with? */
static int check_filled(const uint8_t *p, size_t len, unsigned int rank)
{
	for (size_t i = 0; i < len; i++)
		if (p[i] != byte_of(rank, i))
			return remote_fail("byte %zu of %zu of rank %u: %d", i, len, rank, p[i]);
	return 0;
}

/* Is it the sum of what all of @n ranks have? */
static int check_summed(const uint8_t *p, size_t len, unsigned int n)
{
	for (size_t i = 0; i < len; i++)
		if (p[i] != (uint8_t)(n * (i / 5) + 3 * (n * (n - 1) / 2)))
			return remote_fail("byte %zu of %zu of a sum: %d", i, len, p[i]);
	return 0;
}

/* To all others at once, and from them. */
static int messages(struct coll_comm *comm, unsigned int rank, unsigned int *seed)
{
	unsigned int n = coll_comm_size(comm), i, k = 0;
	size_t len = rand_r(seed) % (1U << rand_r(seed) % 18) + 1;
	bool grouped = rand_r(seed) % 2;
	struct coll_request *reqs[2 * RANDOM_RANKS];
	uint8_t *out = malloc(len), *in = malloc(n * len);
	int bad = grouped ? coll_group_start(comm) : 0;

	fill(out, len, rank);
	for (i = 0; i < n && !bad; i++) {
		if (i == rank)
			continue;
		bad |= coll_irecv(comm, in + i * len, len, COLL_UINT8, i, &reqs[k++]);
		bad |= coll_isend(comm, out, len, COLL_UINT8, i, &reqs[k++]);
	}
	if (grouped && !bad)
		bad = coll_group_end(comm);
	bad = remote_check(bad ?: coll_waitall(k, reqs), comm, rank, "messages");
	for (i = 0; i < n && !bad; i++)
		if (i != rank)
			bad = check_filled(in + i * len, len, i);
	free(out);
	free(in);
	return bad;
}

/* Memory of its own, registered or not, in use once or twice and then gone. */
static int large(struct coll_comm *comm, unsigned int rank, unsigned int *seed)
{
	size_t len = 300000 + rand_r(seed) % 2000000;
	unsigned int times = 1 + rand_r(seed) % 2;
	bool registered = rand_r(seed) % 2;
	uint8_t *p = mmap(NULL, 2 * len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			  0);
	int bad = 0;

	if (p == MAP_FAILED)
		return remote_fail("rank %u: no memory", rank);
	fill(p, len, rank);
	if (registered)
		bad = remote_check(coll_register(comm, p, 2 * len), comm, rank, "register");
	for (unsigned int i = 0; i < times && !bad; i++) {
		memset(p + len, 0, len);
		bad = remote_check(coll_allreduce(comm, p, p + len, len, COLL_UINT8, COLL_SUM),
				   comm, rank, "large allreduce");
		bad = bad || check_summed(p + len, len, coll_comm_size(comm));
	}
	if (registered && !bad)
		bad = remote_check(coll_deregister(comm, p, 2 * len), comm, rank, "deregister");
	munmap(p, 2 * len);
	return bad;
}

static int many(struct coll_comm *comm, unsigned int rank, unsigned int *seed)
{
	enum { MANY = 12 };
	size_t len = rand_r(seed) % 60000 + 1;
	struct coll_request *reqs[MANY];
	uint8_t *in = malloc(len), *out = calloc(MANY, len);
	int bad = 0;

	fill(in, len, rank);
	for (int i = 0; i < MANY && !bad; i++)
		bad = remote_check(coll_iallreduce(comm, in, out + i * len, len, COLL_UINT8,
						   COLL_SUM, &reqs[i]), comm, rank, "one of many");
	bad = bad || remote_check(coll_waitall(MANY, reqs), comm, rank, "many");
	for (int i = 0; i < MANY && !bad; i++)
		bad = check_summed(out + i * len, len, coll_comm_size(comm));
	free(in);
	free(out);
	return bad;
}

/* One aborts what the others are at, and all go on in what is left: the same ranks. */
static int aborted(struct coll_comm *comm, unsigned int rank, unsigned int *seed)
{
	unsigned int who = rand_r(seed) % coll_comm_size(comm), us = rand_r(seed) % 50000;
	struct coll_config config = COLL_CONFIG_INIT;
	static uint8_t in[100000], out[100000];
	struct coll_comm *shrunk;
	/* Who is not connected yet hears of a lost link instead. */
	int rc = messages(comm, rank, seed);

	if (rc)
		return rc;
	config.deadline_ns = 240000000000ULL;
	/* Who has said something there is through with that, if not with this. */
	rc = coll_gather(comm, in, out, 1, COLL_UINT8, who);
	if (rank == who && !rc) {
		usleep(us);
		coll_comm_abort(comm, 1);
	}
	while (!rc)
		rc = coll_allreduce(comm, in, out, sizeof(in), COLL_UINT8, COLL_SUM);
	if (rc != -ECANCELED)
		return remote_check(rc, comm, rank, "an abort");
	if (remote_check(coll_comm_shrink(comm, &shrunk, &config), comm, rank, "shrink"))
		return 1;
	rc = coll_comm_size(shrunk) != coll_comm_size(comm) || many(shrunk, rank, seed);
	return rc | !!coll_comm_destroy(shrunk);
}

typedef int (*traffic_fn)(struct coll_comm *comm, unsigned int rank, unsigned int *seed);

/* Several things in a communicator of all, which is new each time. */
static int in_one(unsigned int rank, unsigned int n, unsigned int *seed)
{
	static const traffic_fn kinds[] = { messages, large, many };
	struct coll_comm *comm = remote_join_at(rank, n, remote_port, 0);
	unsigned int things = rand_r(seed) % 20;
	int bad = !comm;

	for (unsigned int i = 0; i < things && !bad; i++)
		bad = kinds[rand_r(seed) % ARRAY_SIZE(kinds)](comm, rank, seed);
	if (!bad && rand_r(seed) % 3 == 0)
		bad = aborted(comm, rank, seed);
	return bad | !!coll_comm_destroy(comm);
}

/* ---- half an hour of it --------------------------------------------------------------- */

/* Rank 0 knows what time it is. */
static int ask_first(struct coll_comm *world, unsigned int rank, unsigned int *answer)
{
	return remote_check(coll_broadcast(world, answer, answer, 1, COLL_UINT32, 0), world, rank,
			    "broadcast");
}

static int until_pause(struct coll_comm *world, unsigned int rank, unsigned int *seed)
{
	double until = now() + (seconds / 20 > 30 ? 30 : seconds / 20.0);
	unsigned int n = coll_comm_size(world), more;
	int bad = 0;

	do {
		/* A port is not used again for some minutes. */
		remote_port = 5000 + (remote_port - 5000 + 2) % 4000;
		if (rand_r(seed) % 2)
			bad = in_one(rank, n, seed);
		else
			bad = random_operations(RANDOM_LIFE * 2, rank, n, PER, rand_r(seed));
		more = now() < until;
	} while (!bad && !ask_first(world, rank, &more) && more);
	return bad;
}

static int mixed(struct coll_comm *world, unsigned int rank)
{
	unsigned int seed = now() * 1e6, more = 1;
	double end = now() + seconds;
	int bad;

	if (getenv("NPULINK_SEED"))
		seed = atoi(getenv("NPULINK_SEED"));
	alarm(2 * seconds + 600);
	bad = ask_first(world, rank, &seed);
	if (!rank)
		ksft_print_msg("NPULINK_SEED=%u, %u s\n", seed, seconds);
	while (!bad && more) {
		bad = until_pause(world, rank, &seed) ||
		      remote_check(coll_barrier(world), world, rank, "barrier");
		if (rank % PER == 0 && !bad)
			look();
		more = now() < end;
		bad = bad || ask_first(world, rank, &more) ||
		      remote_check(coll_barrier(world), world, rank, "barrier");
	}
	return bad;
}

int main(void)
{
	/* No machine is lost here; one that has no memory may be silent for long. */
	remote_setup(PER, 120000);
	/* So much of flight recorders is kept when ranks have gone: to be reached soon. */
	pressure_write("/sys/module/npulink/parameters/flight_keep", "256");
	seconds = getenv("NPULINK_SECONDS") ? atoi(getenv("NPULINK_SECONDS")) : 1800;
	pauses = mmap(NULL, sizeof(*pauses), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	ksft_print_header();
	ksft_set_plan(6);
	if (!pressure_start(pressure))
		ksft_exit_fail_msg("memory does not get short\n");
	ksft_test_result(!remote_ranks(PER, mixed), "%u s of mixed traffic\n", seconds);
	pressure_signal(pressure, SIGKILL);
	ksft_test_result(was_short(), "memory was short most of the time\n");
	ksft_test_result(pauses->n && !pauses->bad, "at pauses nothing is pinned and no key valid\n");
	ksft_test_result(no_growth(), "what the kernel has does not grow\n");
	run("build/tools/npulink stat show | sed 's/^/# /'");
	ksft_test_result(remote_clean(), "no key, no connection and no memory is left\n");
	ksft_test_result(remote_teardown(), "the modules can be removed\n");
	ksft_finished();
}
