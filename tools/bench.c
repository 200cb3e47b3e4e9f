// SPDX-License-Identifier: GPL-2.0
/*
 * bench.c - npulink bench: measures a collective among processes of this node,
 * with the options and the table of nccl-tests, and checks what comes out.
 *
 * The parent forks one process per rank (bench_rank.c), prints rows as they are
 * finished, and when a rank fails gives the others time to notice by themselves,
 * since what they then report is worth knowing; after that it kills them.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <math.h>
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
#include <linux/npulink.h>
#include "bench.h"
#include "npulink.h"
#include "plan.h"
#include "words.h"

#define GRACE		3.0	/* seconds that ranks get to report a peer's failure */
#define MAX_REPORTS	8	/* ranks whose error is printed */

static double factor_one(double n)
{
	return 1;
}

static double factor_shards(double n)
{
	return (n - 1) / n;
}

static double factor_allreduce(double n)
{
	return 2 * (n - 1) / n;
}

static const struct bench_coll colls[] = {
	{ "allreduce", NPULINK_COLL_ALLREDUCE, true, false, false, true, factor_allreduce },
	{ "reduce_scatter", NPULINK_COLL_REDUCE_SCATTER, true, false, true, true, factor_shards },
	{ "allgather", NPULINK_COLL_ALLGATHER, false, false, true, true, factor_shards },
	{ "alltoall", NPULINK_COLL_ALLTOALL, false, false, true, true, factor_shards },
	{ "broadcast", NPULINK_COLL_BROADCAST, false, true, false, true, factor_one },
	{ "reduce", NPULINK_COLL_REDUCE, true, true, false, true, factor_one },
	{ "gather", NPULINK_COLL_GATHER, false, true, true, true, factor_shards },
	{ "scatter", NPULINK_COLL_SCATTER, false, true, true, true, factor_shards },
	{ "sendrecv", BENCH_SENDRECV, false, false, false, false, factor_one },
	{ "barrier", NPULINK_COLL_BARRIER, false, false, false, false, factor_one },
};

static const struct bench_coll *find_coll(const char *text)
{
	uint32_t id = ~0U;
	size_t i;

	parse_collective(text, &id);
	for (i = 0; i < ARRAY_SIZE(colls); i++)
		if (!strcmp(colls[i].name, text) || colls[i].id == id)
			return &colls[i];
	return NULL;
}

static const char usage[] =
	"Usage: npulink [-j] bench COLLECTIVE [OPTION]...\n"
	"\n"
	"Measures a collective among processes of this node and checks the data.\n"
	"COLLECTIVE: allreduce, reduce_scatter, allgather, alltoall, broadcast, reduce,\n"
	"gather, scatter, sendrecv or barrier.\n"
	"\n"
	"  -p, --ranks N            processes (one per device)\n"
	"  -b, --minbytes SIZE      smallest size; SIZE may end in K, M or G (32M)\n"
	"  -e, --maxbytes SIZE      largest size (32M)\n"
	"  -f, --stepfactor N       multiply the size by this from row to row\n"
	"  -i, --stepbytes SIZE     or add this (1M)\n"
	"  -n, --iters N            measured operations per row (20)\n"
	"  -w, --warmup_iters N     operations before that (1)\n"
	"  -c, --check N            checked operations after that, 0: none (1)\n"
	"  -o, --op OP              sum, prod, min, max or avg (sum)\n"
	"  -d, --datatype TYPE      int8 .. uint64, half, bfloat16, float or double (float)\n"
	"  -r, --root RANK          root, where there is one (0)\n"
	"  -a, --algorithm NAME     this one; see: npulink plan list\n"
	"  -I, --iter_timing        also time every operation by itself\n"
	"  -T, --timeout SECONDS    fail if an operation takes longer\n"
	"  -J, --output_file FILE   write the results there, in JSON\n"
	"  -j, --json               JSON instead of the table\n"
	"\n"
	"Exit status: 0; 1 if a rank failed, data was wrong, or the average bus bandwidth\n"
	"is below nine tenths of NCCL_TESTS_MIN_BW from the environment.\n";

static const struct option long_opts[] = {
	{ "ranks", required_argument, NULL, 'p' },
	{ "minbytes", required_argument, NULL, 'b' },
	{ "maxbytes", required_argument, NULL, 'e' },
	{ "stepfactor", required_argument, NULL, 'f' },
	{ "stepbytes", required_argument, NULL, 'i' },
	{ "iters", required_argument, NULL, 'n' },
	{ "warmup_iters", required_argument, NULL, 'w' },
	{ "check", required_argument, NULL, 'c' },
	{ "op", required_argument, NULL, 'o' },
	{ "datatype", required_argument, NULL, 'd' },
	{ "root", required_argument, NULL, 'r' },
	{ "algorithm", required_argument, NULL, 'a' },
	{ "iter_timing", no_argument, NULL, 'I' },
	{ "timeout", required_argument, NULL, 'T' },
	{ "output_file", required_argument, NULL, 'J' },
	CMD_OPTION_END
};

static bool get_u32(const char *text, uint32_t max, uint32_t *value)
{
	uint64_t v;

	if (!parse_u64(text, max, &v))
		return false;
	*value = v;
	return true;
}

/* One option; returns false if its value makes no sense. */
static bool set_option(struct bench *b, int c, const char *arg)
{
	uint32_t word = 0;
	char *end;
	bool ok;

	switch (c) {
	case 'p':
		return get_u32(arg, BENCH_MAX_RANKS, &b->nranks) && b->nranks;
	case 'b':
		return parse_size(arg, &b->min_bytes);
	case 'e':
		return parse_size(arg, &b->max_bytes);
	case 'f':
		return parse_u64(arg, 1 << 20, &b->step_factor);
	case 'i':
		return parse_size(arg, &b->step_bytes);
	case 'n':
		return get_u32(arg, 100000000, &b->iters) && b->iters;
	case 'w':
		return get_u32(arg, 100000000, &b->warmup);
	case 'c':
		return get_u32(arg, 1000000, &b->check);
	case 'o':
		ok = parse_redop(arg, &word);
		b->op = word;
		return ok;
	case 'd':
		ok = parse_dtype(arg, &word);
		b->dtype = word;
		return ok;
	case 'r':
		return get_u32(arg, BENCH_MAX_RANKS - 1, &b->root);
	case 'a':
		b->algorithm = arg;
		return *arg;
	case 'I':
		b->per_iter = true;
		return true;
	case 'T':
		b->timeout = strtod(arg, &end);
		return end != arg && !*end && b->timeout >= 0 && b->timeout < 1e9;
	case 'J':
		b->json_path = arg;
		return *arg;
	}
	return false;
}

static const char *option_name(int c)
{
	for (size_t i = 0; long_opts[i].name; i++)
		if (long_opts[i].val == c)
			return long_opts[i].name;
	return "?";
}

/* Turn sizes into rows. A size too small for one element each is rounded up. */
static int make_rows(struct bench *b)
{
	size_t size = coll_dtype_size(b->dtype), cap = 0;
	uint64_t unit = size * (b->coll->shards ? b->nranks : 1);
	uint64_t bytes = b->min_bytes, next;

	if (b->coll->id == NPULINK_COLL_BARRIER) {
		b->rows = calloc(1, sizeof(*b->rows));
		b->nrows = 1;
		return b->rows ? 0 : -ENOMEM;
	}
	for (;;) {
		struct bench_row row;

		row.count = bytes / unit;
		if (!row.count && bytes)
			row.count = 1;
		row.bytes = row.count * unit;
		if (!b->nrows || b->rows[b->nrows - 1].count != row.count) {
			if (b->nrows == cap) {
				cap = cap ? 2 * cap : 32;
				b->rows = reallocarray(b->rows, cap, sizeof(*b->rows));
				if (!b->rows)
					return -ENOMEM;
			}
			b->rows[b->nrows++] = row;
		}
		if (b->step_factor > 1)
			next = __builtin_mul_overflow(bytes ?: 1, b->step_factor, &next) ?
			       UINT64_MAX : (bytes ?: 1) * b->step_factor;
		else
			next = bytes + b->step_bytes;
		if (next <= bytes || next > b->max_bytes)
			return 0;
		bytes = next;
	}
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

/* The parent's side of a running benchmark. */
struct run {
	const struct bench *b;
	struct bench_map map;
	struct pollfd *fds;	/* [0] the pipe, [1 + rank] pidfds */
	uint32_t alive;
	uint32_t nfailed;
	int *status;		/* of waitpid(), [rank] */
	double kill_at;		/* 0: nobody has failed */
	uint64_t bytes_in;	/* from the pipe */
	uint32_t rows_shown;
	uint64_t wrong;
	double busbw_sum;
	uint32_t nbusbw;
	struct json_object *json_rows;
};

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
	interrupted = sig;
}

/* 7 or 6 characters wide, with as many digits as fit: nccl-tests' way. */
static void print_number(double value, int width)
{
	int digits = 0;

	for (double limit = 1; value >= limit && digits < 300; limit *= 10)
		digits++;
	if (digits < width - 2)
		printf("  %*.2f", width, value);
	else if (digits < width - 1)
		printf("  %*.1f", width, value);
	else if (digits < width + 1)
		printf("  %*.0f", width, value);
	else
		printf("  %*.1e", width, value);
}

static void print_header(const struct bench *b, const struct bench_map *map)
{
	const struct bench_rank *ranks = map->shared->ranks;
	char host[65];

	gethostname(host, sizeof(host));
	host[sizeof(host) - 1] = 0;
	printf("# npulink bench version %s libcoll=%s\n", NPULINK_VERSION, coll_version_string());
	printf("# Collective test starting: %s\n", b->coll->name);
	printf("# nRanks %u minBytes %" PRIu64 " maxBytes %" PRIu64 " step: %" PRIu64
	       "(%s) warmup iters: %u iters: %u validation: %u algorithm: %s\n",
	       b->nranks, b->min_bytes, b->max_bytes,
	       b->step_factor > 1 ? b->step_factor : b->step_bytes,
	       b->step_factor > 1 ? "factor" : "bytes", b->warmup, b->iters, b->check,
	       b->algorithm ?: "cheapest");
	printf("#\n# Using devices\n");
	for (uint32_t rank = 0; rank < b->nranks; rank++)
		printf("#  Rank %2u Group  0 Pid %6d on %10s device %2u [npu%u] %s %s\n", rank,
		       ranks[rank].pid, host, b->devices[rank], b->devices[rank],
		       ranks[rank].backend, ranks[rank].engine);

	printf("#\n");
	if (b->per_iter) {
		printf("# %10s  %12s  %8s  %6s  %6s%14s%s%32s%s\n", "", "", "", "", "", "",
		       "out-of-place (+ per-iteration)", "", "in-place (+ per-iteration)");
	} else {
		printf("# %10s  %12s  %8s  %6s  %6s%11s%s%23s%s\n", "", "", "", "", "", "",
		       "out-of-place", "", "in-place");
	}
	printf("# %10s  %12s  %8s  %6s  %6s", "size", "count", "type", "redop", "root");
	for (int mode = 0; mode < BENCH_MODES; mode++) {
		printf("  %7s  %6s  %6s  %6s", "time", "algbw", "busbw", "#wrong");
		if (b->per_iter)
			printf("  %7s  %7s  %7s  %7s", "i_min", "i_max", "i_p99", "i_cv%");
	}
	printf("\n# %10s  %12s  %8s  %6s  %6s", "(B)", "(elements)", "", "", "");
	for (int mode = 0; mode < BENCH_MODES; mode++) {
		printf("  %7s  %6s  %6s  %6s", "(us)", "(GB/s)", "(GB/s)", "");
		if (b->per_iter)
			printf("  %7s  %7s  %7s  %7s", "(us)", "(us)", "(us)", "(%)");
	}
	putchar('\n');
	fflush(stdout);
}

static int cmp_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Spread over iterations of the slowest rank's time. */
static struct json_object *per_iter(const struct run *run, uint32_t row, uint32_t mode)
{
	const struct bench *b = run->b;
	double *max = calloc(b->iters, sizeof(*max)), sum = 0, squares = 0, mean;
	struct json_object *obj = NULL, *times;
	double p99, deviation;

	if (!max)
		return NULL;
	for (uint32_t rank = 0; rank < b->nranks; rank++) {
		const double *t = bench_times(b, &run->map, row, mode, rank);

		for (uint32_t i = 0; i < b->iters; i++)
			max[i] = fmax(max[i], t[i]);
	}
	times = json_object_new_array();
	for (uint32_t i = 0; i < b->iters; i++)
		json_object_array_add(times, json_object_new_double(max[i] * 1e6));
	qsort(max, b->iters, sizeof(*max), cmp_double);
	for (uint32_t i = 0; i < b->iters; i++)
		sum += max[i];
	mean = sum / b->iters;
	for (uint32_t i = 0; i < b->iters; i++)
		squares += (max[i] - mean) * (max[i] - mean);
	deviation = sqrt(squares / b->iters);
	p99 = max[((uint64_t)b->iters * 99 + 99) / 100 - 1];

	if (!opts.json) {
		print_number(max[0] * 1e6, 7);
		print_number(max[b->iters - 1] * 1e6, 7);
		print_number(p99 * 1e6, 7);
		print_number(mean > 0 ? deviation / mean * 100 : 0, 7);
	}
	obj = json_object_new_object();
	json_object_object_add(obj, "min_us", json_object_new_double(max[0] * 1e6));
	json_object_object_add(obj, "max_us", json_object_new_double(max[b->iters - 1] * 1e6));
	json_object_object_add(obj, "avg_us", json_object_new_double(mean * 1e6));
	json_object_object_add(obj, "p50_us", json_object_new_double(max[b->iters / 2] * 1e6));
	json_object_object_add(obj, "p99_us", json_object_new_double(p99 * 1e6));
	json_object_object_add(obj, "stdev_us", json_object_new_double(deviation * 1e6));
	json_object_object_add(obj, "times_us", times);
	free(max);
	return obj;
}

static void show_mode(struct run *run, uint32_t row, uint32_t mode, struct json_object *json)
{
	const struct bench *b = run->b;
	struct json_object *obj;
	double seconds = 0, algbw, busbw;
	uint64_t wrong = 0;

	if (mode && !b->coll->in_place) {
		if (!opts.json)
			printf("  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
		json_object_object_add(json, "in_place", NULL);
		return;
	}
	for (uint32_t rank = 0; rank < b->nranks; rank++) {
		const struct bench_result *result = bench_result(b, &run->map, row, mode, rank);

		seconds += result->seconds / b->nranks;
		wrong += result->wrong;
	}
	algbw = seconds > 0 ? b->rows[row].bytes / 1e9 / seconds : 0;
	busbw = algbw * b->coll->factor(b->nranks);
	run->wrong += wrong;
	run->busbw_sum += busbw;
	run->nbusbw++;

	if (!opts.json) {
		print_number(seconds * 1e6, 7);
		print_number(algbw, 6);
		print_number(busbw, 6);
		if (b->check)
			printf("  %6g", (double)wrong);
		else
			printf("  %6s", "N/A");
	}
	obj = json_object_new_object();
	json_object_object_add(obj, "time", json_object_new_double(seconds * 1e6));
	json_object_object_add(obj, "alg_bw", json_object_new_double(algbw));
	json_object_object_add(obj, "bus_bw", json_object_new_double(busbw));
	json_object_object_add(obj, "nwrong", b->check ? json_object_new_uint64(wrong) : NULL);
	json_object_object_add(json, mode ? "in_place" : "out_of_place", obj);
	if (b->per_iter)
		json_object_object_add(json, mode ? "in_place_per_iter" : "out_of_place_per_iter",
				       per_iter(run, row, mode));
}

static void show_row(struct run *run, uint32_t row)
{
	const struct bench *b = run->b;
	const char *op = b->coll->reduces ? coll_redop_name(b->op) : "none";
	int root = b->coll->rooted ? (int)b->root : -1;
	const struct bench_choice *choice = &run->map.choices[row];
	struct json_object *json = json_object_new_object();

	if (!opts.json)
		printf("%12" PRIu64 "  %12" PRIu64 "  %8s  %6s  %6d", b->rows[row].bytes,
		       b->rows[row].count, dtype_label(b->dtype), op, root);
	put_u64(json, "size", b->rows[row].bytes);
	put_u64(json, "count", b->rows[row].count);
	put_str(json, "type", dtype_label(b->dtype));
	put_str(json, "redop", op);
	json_object_object_add(json, "root", json_object_new_int(root));
	if (*choice->algorithm) {
		put_str(json, "algorithm", choice->algorithm);
		json_object_object_add(json, "predicted",
				       json_object_new_double(choice->predicted * 1e6));
	}
	for (uint32_t mode = 0; mode < BENCH_MODES; mode++)
		show_mode(run, row, mode, json);
	json_object_array_add(run->json_rows, json);
	if (!opts.json) {
		putchar('\n');
		fflush(stdout);
	}
}

/* Every rank writes one byte when it has joined and one after each row. */
static void read_progress(struct run *run)
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
		if (++run->bytes_in % b->nranks)
			continue;
		if (run->bytes_in / b->nranks == 1) {
			if (!opts.json)
				print_header(b, &run->map);
		} else if (run->rows_shown < b->nrows) {
			show_row(run, run->rows_shown++);
		}
	}
}

static void stop_all(struct run *run)
{
	atomic_store(&run->map.shared->stop, 1);
	syscall(SYS_futex, &run->map.shared->round, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void kill_all(struct run *run)
{
	for (uint32_t rank = 0; rank < run->b->nranks; rank++)
		if (run->fds[1 + rank].fd >= 0)
			kill(run->map.shared->ranks[rank].pid, SIGKILL);
}

static void reap(struct run *run, uint32_t rank)
{
	int status;

	if (waitpid(run->map.shared->ranks[rank].pid, &status, 0) < 0)
		return;
	run->status[rank] = status;
	close(run->fds[1 + rank].fd);
	run->fds[1 + rank].fd = -1;
	run->alive--;
	if (!status)
		return;
	run->nfailed++;
	if (!run->kill_at) {
		run->kill_at = now() + GRACE;
		stop_all(run);
	}
}

static int start_rank(struct run *run, uint32_t rank, int pipe_fds[2])
{
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
	run->fds[1 + rank].fd = syscall(SYS_pidfd_open, pid, 0);
	if (run->fds[1 + rank].fd < 0) {
		int rc = -errno;

		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		run->alive--;
		return rc;
	}
	return 0;
}

static void watch(struct run *run)
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
			} else {
				timeout = left * 1000 + 1;
			}
		}
		if (poll(run->fds, 1 + b->nranks, timeout) <= 0)
			continue;
		if (run->fds[0].revents)
			read_progress(run);
		for (uint32_t rank = 0; rank < b->nranks; rank++)
			if (run->fds[1 + rank].fd >= 0 && run->fds[1 + rank].revents)
				reap(run, rank);
	}
}

static const char *mode_name(uint32_t mode)
{
	return mode ? "in place" : "out of place";
}

/* Who failed, most telling first: those that died, then the typed errors. */
static void report(const struct run *run)
{
	const struct bench *b = run->b;
	char size[16], prefix[32];
	uint32_t shown = 0;

	if (interrupted) {
		fail("interrupted");
		return;
	}
	for (uint32_t rank = 0; rank < b->nranks; rank++) {
		const struct bench_rank *r = &run->map.shared->ranks[rank];
		int status = run->status[rank];

		if (!WIFSIGNALED(status))
			continue;
		if (WTERMSIG(status) == SIGKILL && run->kill_at && now() >= run->kill_at)
			fail("rank %u (pid %d) did not end by itself within %g s and was killed",
			     rank, r->pid, GRACE);
		else
			fail("rank %u (pid %d) was killed by signal %d (%s)", rank, r->pid,
			     WTERMSIG(status), strsignal(WTERMSIG(status)));
	}
	for (uint32_t rank = 0; rank < b->nranks; rank++) {
		const struct bench_rank *r = &run->map.shared->ranks[rank];

		if (!r->failed)
			continue;
		if (shown++ == MAX_REPORTS) {
			fail("... and more ranks");
			break;
		}
		/* libcoll's own texts say that already. */
		snprintf(prefix, sizeof(prefix), "rank %u:", rank);
		if (!strncmp(r->text, prefix, strlen(prefix)))
			fail("%s", r->text);
		else
			fail("rank %u: %s of %s %s: %s", rank, b->coll->name,
			     human_bytes(b->rows[r->row].bytes, size), mode_name(r->mode), r->text);
	}
}

static struct json_object *time_now(void)
{
	time_t t = time(NULL);
	char text[32];

	strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", localtime(&t));
	return json_object_new_string(text);
}

/* nccl-tests' keys, where it has them. */
static struct json_object *json_start(const struct bench *b, int argc, char **argv)
{
	struct json_object *root = json_object_new_object(), *args = json_object_new_array();
	struct json_object *config = json_object_new_object();

	put_u64(root, "version", 2);
	json_object_object_add(root, "start_time", time_now());
	for (int i = 0; i < argc; i++)
		json_object_array_add(args, json_object_new_string(argv[i]));
	json_object_object_add(root, "args", args);
	put_str(root, "npulink_version", NPULINK_VERSION);
	put_str(root, "libcoll_version", coll_version_string());
	put_str(root, "collective", b->coll->name);
	put_u64(config, "nranks", b->nranks);
	put_u64(config, "minimum_bytes", b->min_bytes);
	put_u64(config, "maximum_bytes", b->max_bytes);
	if (b->step_factor > 1)
		put_u64(config, "step_factor", b->step_factor);
	else
		put_u64(config, "step_bytes", b->step_bytes);
	put_u64(config, "warmup_iters", b->warmup);
	put_u64(config, "iterations", b->iters);
	put_u64(config, "validation", b->check);
	put_str(config, "algorithm", b->algorithm);
	put_bool(config, "per_iter_timing", b->per_iter);
	json_object_object_add(root, "config", config);
	return root;
}

static struct json_object *json_devices(const struct run *run)
{
	struct json_object *array = json_object_new_array();
	char host[65], name[16], info[64];

	gethostname(host, sizeof(host));
	host[sizeof(host) - 1] = 0;
	for (uint32_t rank = 0; rank < run->b->nranks; rank++) {
		const struct bench_rank *r = &run->map.shared->ranks[rank];
		struct json_object *obj = json_object_new_object();

		snprintf(name, sizeof(name), "npu%u", run->b->devices[rank]);
		snprintf(info, sizeof(info), "%s %s", r->backend, r->engine);
		put_u64(obj, "rank", rank);
		put_u64(obj, "group", 0);
		put_u64(obj, "pid", r->pid);
		put_str(obj, "hostname", host);
		put_u64(obj, "device", run->b->devices[rank]);
		put_str(obj, "device_name", name);
		put_str(obj, "device_info", info);
		json_object_array_add(array, obj);
	}
	return array;
}

static struct json_object *json_errors(const struct run *run)
{
	struct json_object *array = json_object_new_array(), *obj;

	for (uint32_t rank = 0; rank < run->b->nranks; rank++) {
		const struct bench_rank *r = &run->map.shared->ranks[rank];
		int status = run->status[rank];

		if (!r->failed && !WIFSIGNALED(status))
			continue;
		obj = json_object_new_object();
		put_u64(obj, "rank", rank);
		if (r->failed) {
			json_object_object_add(obj, "errno", json_object_new_int(-r->error));
			put_str(obj, "text", r->text);
		}
		if (WIFSIGNALED(status))
			put_u64(obj, "signal", WTERMSIG(status));
		json_object_array_add(array, obj);
	}
	return array;
}

/* "# Algorithms : one-shot 8-512, ring 4096-16777216" */
static void print_algorithms(const struct run *run)
{
	const struct bench_choice *choices = run->map.choices;
	const struct bench *b = run->b;
	uint32_t first = 0, row;

	if (!b->nrows || !*choices[0].algorithm)
		return;
	printf("# %-20s :", "Algorithms");
	for (row = 1; row <= b->nrows; row++) {
		if (row < b->nrows && !strcmp(choices[row].algorithm, choices[first].algorithm))
			continue;
		printf("%s %s", first ? "," : "", choices[first].algorithm);
		if (b->rows[row - 1].bytes)
			printf(" %" PRIu64, b->rows[first].bytes);
		if (row - 1 > first)
			printf("-%" PRIu64, b->rows[row - 1].bytes);
		first = row;
	}
	putchar('\n');
}

/* Prints the footer, writes the JSON, and says how it went. */
static int conclude(struct run *run, struct json_object *root)
{
	const struct bench *b = run->b;
	const char *min_text = getenv("NCCL_TESTS_MIN_BW");
	double busbw = run->nbusbw ? run->busbw_sum / run->nbusbw : 0;
	double min = min_text ? strtod(min_text, NULL) : -1;
	bool slow = min > 0 && busbw < 0.9 * min, complete = run->rows_shown == b->nrows;
	struct json_object *obj;
	int rc = EXIT_SUCCESS;

	if (!opts.json && run->rows_shown) {
		printf("# %-20s : %" PRIu64 " %s\n", "Out of bounds values", run->wrong,
		       run->wrong ? "FAILED" : "OK");
		printf("# %-20s : %g %s\n", "Avg bus bandwidth", busbw,
		       min <= 0 ? "" : slow ? "FAILED" : "OK");
		print_algorithms(run);
		printf("#\n# Collective test concluded: %s\n", b->coll->name);
		fflush(stdout);
	}
	json_object_object_add(root, "devices", json_devices(run));
	json_object_object_add(root, "results", json_object_get(run->json_rows));
	obj = json_object_new_object();
	put_u64(obj, "count", run->wrong);
	put_bool(obj, "okay", !run->wrong);
	json_object_object_add(root, "out_of_bounds", obj);
	obj = json_object_new_object();
	json_object_object_add(obj, "bandwidth", json_object_new_double(busbw));
	json_object_object_add(obj, "okay", min <= 0 ? json_object_new_string("unchecked") :
			       json_object_new_boolean(!slow));
	json_object_object_add(root, "average_bus_bandwidth", obj);
	json_object_object_add(root, "errors", json_errors(run));
	json_object_object_add(root, "end_time", time_now());

	if (run->wrong || slow || run->nfailed || !complete)
		rc = EXIT_FAILURE;
	if (run->wrong)
		fail("%" PRIu64 " elements were wrong", run->wrong);
	report(run);
	if (b->json_path &&
	    json_object_to_file_ext(b->json_path, root, JSON_C_TO_STRING_PRETTY |
				    JSON_C_TO_STRING_SPACED | JSON_C_TO_STRING_NOSLASHESCAPE))
		rc = fail("cannot write %s: %m", b->json_path);
	if (opts.json)
		json_print(json_object_get(root));
	return rc;
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

static int bench_run(const struct bench *b, struct json_object *root)
{
	struct rlimit files = { };
	struct run run = { .b = b };
	int pipe_fds[2], rc;
	uint32_t rank;

	/* One descriptor per rank. */
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);

	run.json_rows = json_object_new_array();
	run.fds = calloc(1 + b->nranks, sizeof(*run.fds));
	run.status = calloc(b->nranks, sizeof(*run.status));
	rc = map_shared(b, &run.map);
	if (rc || !run.fds || !run.status)
		return fail("not enough memory");
	rc = coll_get_unique_id(&run.map.shared->id);
	if (rc)
		return fail("cannot make a unique id: %s", coll_strerror(rc));
	if (pipe2(pipe_fds, O_CLOEXEC))
		return fail("cannot make a pipe: %m");
	for (rank = 0; rank <= b->nranks; rank++) {
		run.fds[rank].fd = -1;
		run.fds[rank].events = POLLIN;
	}
	run.fds[0].fd = pipe_fds[0];
	catch_signals();

	for (rank = 0; rank < b->nranks; rank++) {
		rc = start_rank(&run, rank, pipe_fds);
		if (rc) {
			fail("cannot start rank %u: %s", rank, strerror(-rc));
			run.nfailed++;
			run.kill_at = now();
			stop_all(&run);
			break;
		}
	}
	close(pipe_fds[1]);
	watch(&run);

	rc = conclude(&run, root);
	if (interrupted)
		rc = 128 + interrupted;
	json_object_put(run.json_rows);
	free(run.fds);
	free(run.status);
	return rc;
}

/* Ranks go to devices in turn. */
static int choose_devices(struct bench *b)
{
	struct dev *devs = NULL;
	size_t ndevs = 0;
	int rc;

	rc = nl_devs(ANY_DEV, &devs, &ndevs);
	if (rc)
		return nl_fail(rc, 0);
	if (!ndevs)
		return fail("there are no devices; try: modprobe npulink_soft, or: npulink doctor");
	if (!b->nranks)
		b->nranks = ndevs;
	b->devices = calloc(b->nranks, sizeof(*b->devices));
	if (!b->devices)
		return fail("not enough memory");
	for (uint32_t rank = 0; rank < b->nranks; rank++)
		b->devices[rank] = devs[rank % ndevs].id;
	free(devs);
	return 0;
}

static int check_options(struct bench *b)
{
	const struct coll_algorithm *alg;

	if (b->max_bytes < b->min_bytes)
		return usage_error("bench: --maxbytes is smaller than --minbytes");
	if (b->step_factor <= 1 && !b->step_bytes)
		return usage_error("bench: the step must not be 0");
	if (b->nranks && b->root >= b->nranks)
		return usage_error("bench: there is no rank %u", b->root);
	if (!b->algorithm)
		return 0;
	if (b->coll->id == BENCH_SENDRECV)
		return usage_error("bench: sendrecv has no algorithms");
	alg = coll_algorithm_find(b->coll->id, b->algorithm);
	if (!alg)
		return usage_error("bench: %s has no algorithm \"%s\"; see: npulink plan list %s",
				   b->coll->name, b->algorithm, b->coll->name);
	return 0;
}

int bench_cmd(int argc, char **argv)
{
	struct bench b = {
		.min_bytes = 32 << 20, .max_bytes = 32 << 20, .step_bytes = 1 << 20,
		.iters = 20, .warmup = 1, .check = 1,
		.dtype = COLL_FLOAT32, .op = COLL_SUM, .timeout = -1,
	};
	bool have_min = false, have_max = false;
	char override[128], *words[argc + 2];
	struct json_object *root;
	int c, rc;

	/* getopt_long() starts after the first word. */
	words[0] = "bench";
	memcpy(words + 1, argv, argc * sizeof(*argv));
	words[argc + 1] = NULL;
	if (argc && !strcmp(argv[0], "help")) {
		fputs(usage, stdout);
		return EXIT_SUCCESS;
	}
	while ((c = cmd_option(argc + 1, words, "p:b:e:f:i:n:w:c:o:d:r:a:IT:J:", long_opts,
			       usage)) != -1) {
		if (c == 'h')
			return EXIT_SUCCESS;
		if (c == ':')
			return EXIT_USAGE;
		if (!set_option(&b, c, optarg))
			return usage_error("bench: \"%s\" makes no sense for --%s", optarg,
					   option_name(c));
		have_min |= c == 'b';
		have_max |= c == 'e';
	}
	if (optind == argc + 1)
		return usage_error("bench: which collective? see: npulink bench --help");
	b.coll = find_coll(words[optind]);
	if (!b.coll)
		return usage_error("bench: unknown collective \"%s\", see: npulink bench --help",
				   words[optind]);
	if (optind + 1 < argc + 1)
		return usage_error("bench: unknown word \"%s\"", words[optind + 1]);
	/* A single limit is meant for both. */
	if (have_min && !have_max && b.max_bytes < b.min_bytes)
		b.max_bytes = b.min_bytes;
	if (have_max && !have_min && b.min_bytes > b.max_bytes)
		b.min_bytes = b.max_bytes;
	rc = check_options(&b);
	if (rc)
		return rc;
	if (b.algorithm) {
		snprintf(override, sizeof(override), "%s:%s", b.coll->name, b.algorithm);
		b.override = override;
	}
	rc = choose_devices(&b);
	if (rc)
		return rc;
	if (b.root >= b.nranks)
		return usage_error("bench: there is no rank %u of %u", b.root, b.nranks);
	if (make_rows(&b))
		return fail("not enough memory");
	root = json_start(&b, argc + 1, words);
	rc = bench_run(&b, root);
	json_object_put(root);
	free(b.rows);
	free(b.devices);
	return rc;
}
