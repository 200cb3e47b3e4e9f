// SPDX-License-Identifier: GPL-2.0
/*
 * report.c - the results of npulink bench: nccl-tests' table, and JSON with
 * nccl-tests' keys.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "bench/bench.h"
#include "cli/aliases.h"
#include "cli/npulink.h"
#include "lib/plan/plan.h"

#define MAX_REPORTS	8	/* ranks whose error is printed */

/* The first machine has the table; others say only what went wrong there. */
static bool shown(const struct bench *b)
{
	return !opts.json && !b->node;
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

void bench_show_header(const struct bench *b, const struct bench_map *map)
{
	const struct bench_rank *ranks = map->shared->ranks;

	printf("# npulink bench version %s libcoll=%s\n", NPULINK_VERSION, coll_version_string());
	printf("# Collective test starting: %s\n", b->coll->name);
	printf("# nRanks %u minBytes %" PRIu64 " maxBytes %" PRIu64 " step: %" PRIu64
	       "(%s) warmup iters: %u iters: %u validation: %u algorithm: %s\n",
	       b->nranks, b->min_bytes, b->max_bytes,
	       b->step_factor > 1 ? b->step_factor : b->step_bytes,
	       b->step_factor > 1 ? "factor" : "bytes", b->warmup, b->iters, b->check,
	       b->algorithm ?: "cheapest");
	printf("#\n# Using devices\n");
	for (uint32_t rank = 0; rank < b->nranks; rank++) {
		const struct bench_who *who = &ranks[rank].who;

		printf("#  Rank %2u Group  0 Pid %6d on %10s device %2u [npu%u] %s %s\n", rank,
		       who->pid, who->host, who->device, who->device, who->backend, who->engine);
	}

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
static struct json_object *per_iter(const struct bench_run *run, uint32_t row, uint32_t mode)
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

	if (shown(b)) {
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

static void show_mode(struct bench_run *run, uint32_t row, uint32_t mode, struct json_object *json)
{
	const struct bench *b = run->b;
	struct json_object *obj;
	double seconds = 0, algbw, busbw;
	uint64_t wrong = 0;

	if (mode && !b->coll->in_place) {
		if (shown(b))
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

	if (shown(b)) {
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

void bench_show_row(struct bench_run *run, uint32_t row)
{
	const struct bench *b = run->b;
	const char *op = b->coll->reduces ? coll_redop_name(b->op) : "none";
	int root = b->coll->rooted ? (int)b->root : -1;
	const struct bench_choice *choice = &run->map.choices[row];
	struct json_object *json = json_object_new_object();

	if (shown(b))
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
	if (shown(b)) {
		putchar('\n');
		fflush(stdout);
	}
}

static const char *mode_name(uint32_t mode)
{
	return mode ? "in place" : "out of place";
}

/* Who failed, most telling first: those that died, then the typed errors. */
static void report(const struct bench_run *run)
{
	const struct bench *b = run->b;
	char size[16], prefix[32];
	uint32_t shown = 0;

	if (run->interrupted) {
		fail("interrupted");
		return;
	}
	for (uint32_t i = 0; i < b->local; i++) {
		uint32_t rank = b->first + i;
		const struct bench_rank *r = &run->map.shared->ranks[rank];
		int status = run->status[i];

		if (!WIFSIGNALED(status))
			continue;
		if (WTERMSIG(status) == SIGKILL && run->impatient)
			fail("rank %u (pid %d) did not end by itself within %g s and was killed",
			     rank, r->pid, BENCH_GRACE);
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
struct json_object *bench_json(const struct bench *b, int argc, char **argv)
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
	put_u64(config, "nnodes", b->nnodes);
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
	put_str(config, "memory", b->device ? "device" : "host");
	json_object_object_add(root, "config", config);
	return root;
}

static struct json_object *json_devices(const struct bench_run *run)
{
	struct json_object *array = json_object_new_array();
	char name[16], info[64];

	for (uint32_t rank = 0; rank < run->b->nranks; rank++) {
		const struct bench_who *who = &run->map.shared->ranks[rank].who;
		struct json_object *obj = json_object_new_object();

		snprintf(name, sizeof(name), "npu%u", who->device);
		snprintf(info, sizeof(info), "%s %s", who->backend, who->engine);
		put_u64(obj, "rank", rank);
		put_u64(obj, "group", 0);
		put_u64(obj, "pid", who->pid);
		put_str(obj, "hostname", who->host);
		put_u64(obj, "device", who->device);
		put_str(obj, "device_name", name);
		put_str(obj, "device_info", info);
		json_object_array_add(array, obj);
	}
	return array;
}

static struct json_object *json_errors(const struct bench_run *run)
{
	struct json_object *array = json_object_new_array(), *obj;

	for (uint32_t i = 0; i < run->b->local; i++) {
		uint32_t rank = run->b->first + i;
		const struct bench_rank *r = &run->map.shared->ranks[rank];
		int status = run->status[i];

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
static void print_algorithms(const struct bench_run *run)
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

static int write_json(const char *path, struct json_object *root)
{
	FILE *f = output_open(path);

	if (!f)
		return EXIT_FAILURE;
	fputs(json_object_to_json_string_ext(root, JSON_C_TO_STRING_PRETTY |
					     JSON_C_TO_STRING_SPACED |
					     JSON_C_TO_STRING_NOSLASHESCAPE), f);
	return output_close(f, path, false);
}

/* Prints the footer, writes the JSON, and says how it went. */
int bench_conclude(struct bench_run *run, struct json_object *root)
{
	const struct bench *b = run->b;
	const char *min_text = getenv("NCCL_TESTS_MIN_BW");
	double busbw = run->nbusbw ? run->busbw_sum / run->nbusbw : 0;
	double min = min_text ? strtod(min_text, NULL) : -1;
	bool slow = !b->node && min > 0 && busbw < 0.9 * min;
	bool complete = run->rows_shown == b->nrows;
	struct json_object *obj;
	int rc = EXIT_SUCCESS;

	if (shown(b) && run->rows_shown) {
		printf("# %-20s : %" PRIu64 " %s\n", "Out of bounds values", run->wrong,
		       run->wrong ? "FAILED" : "OK");
		printf("# %-20s : %g %s\n", "Avg bus bandwidth", busbw,
		       min <= 0 ? "" : slow ? "FAILED" : "OK");
		print_algorithms(run);
		if (!complete)
			printf("# %-20s : %u of %u FAILED\n", "Sizes measured", run->rows_shown,
			       b->nrows);
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
	if (b->json_path && !b->node && write_json(b->json_path, root))
		rc = EXIT_FAILURE;
	if (opts.json && !b->node)
		json_print(json_object_get(root));
	return rc;
}
