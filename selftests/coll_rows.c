// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * coll_rows.c - every row of the planners' tables, run by the kernel: right results for
 * many numbers of ranks, and as many messages and bytes, counted on the links, as its
 * form says. All ranks are in this process, one open file each.
 *
 * Every sixth row, on a debug kernel every twelfth, others each time. NPULINK_SOAK=1, as in
 * make soak: all rows, all numbers of ranks from 2 to 17, 32 and 64, and more shapes of
 * meshes and servers for rows that look at them.
 *
 * npulink-test: timeout=240
 */
#include "lib/algorithm/algorithms.h"
#include "lib/run/comm.h"
#include "lib/run/request.h"
#include "lib/tune/topo.h"
#include "lib/plan/planner.h"
#include "coll_ranks.h"
#include "coll_cases.h"
#include "links.h"

#define MOST		64
#define COUNTED		8		/* ranks, and devices */
#define LARGE		70000		/* bytes: more than the arena takes, several chunks */

static struct coll_comm *base[MOST];	/* holds the open file */
static bool soak;
static int wrong;

/* ---- communicators of one algorithm */

struct wired {
	uint32_t n;
	const struct coll_algorithm *alg;
	char topology[80], override[80];
	struct coll_topo topo;
	struct coll_comm *comm[MOST];
};

static struct coll_config config_new(char *text, size_t size)
{
	struct coll_config config = COLL_CONFIG_INIT;

	config.inflight = 4;
	config.topology = "";
	config.error_text = text;
	config.error_size = size;
	return config;
}

static int open_files(void)
{
	char text[400] = "", device[12];
	struct coll_config config = config_new(text, sizeof(text));
	struct coll_unique_id id;
	int rc = 0;

	config.device = device;
	for (int r = 0; r < MOST && !rc; r++) {
		snprintf(device, sizeof(device), "%d", r % COUNTED);
		coll_get_unique_id(&id);
		rc = coll_comm_init_rank(&base[r], 1, &id, 0, &config);
	}
	if (rc)
		ksft_print_msg("%d: %s\n", rc, text);
	return rc;
}

/* A call of it with the given number of elements, of one byte each. */
static struct coll_args args_of(const struct wired *w, uint64_t count, const uint64_t *counts)
{
	return (struct coll_args) {
		.collective = w->alg->collective, .nranks = w->n, .count = count,
		.dtype = NPULINK_INT8, .counts = counts, .rcounts = counts,
		.root = npulink_coll_has_root(w->alg->collective) ? w->n / 2 : 0,
		.topo = &w->topo,
	};
}

static bool can(const struct wired *w)
{
	static const uint64_t counts[MOST];
	const struct coll_args args = args_of(w, 1, counts);

	return !w->alg->supports || !w->alg->supports(&args);
}

static bool fail_here(const char *what, const struct wired *w, const char *why)
{
	ksft_print_msg("%s with %u ranks, %s: %s: %s\n", w->override, w->n, w->topology, what, why);
	wrong++;
	return false;
}

static bool join(struct wired *w)
{
	char text[400] = "";
	struct coll_config config = config_new(text, sizeof(text));
	struct coll_unique_id id;

	coll_get_unique_id(&id);
	config.algorithm = w->override;
	config.topology = w->topology;
	for (uint32_t r = 0; r < w->n; r++) {
		config.share = base[r];
		if (coll_comm_init_rank(&w->comm[r], w->n, &id, r, &config))
			return fail_here("join", w, text);
	}
	return true;
}

static void leave(struct wired *w)
{
	for (uint32_t r = 0; r < w->n; r++) {
		coll_comm_destroy(w->comm[r]);
		w->comm[r] = NULL;
	}
}

/* @rows x (n / @rows), and servers of @size; 0 rows: the mesh nearest to a square */
static bool wire(struct wired *w, const struct coll_algorithm *alg, uint32_t n, uint32_t rows,
		 uint32_t size)
{
	bool square = !rows;
	char text[200];

	for (uint32_t r = 1; square && r * r <= n; r++)
		if (n % r == 0)
			rows = r;
	*w = (struct wired) { .n = n, .alg = alg };
	snprintf(w->topology, sizeof(w->topology), "mesh:%ux%u;servers:%u", rows, n / rows, size);
	snprintf(w->override, sizeof(w->override), "%s:%s", coll_collective_name(alg->collective),
		 alg->name);
	return !coll_topo_init(&w->topo, w->topology, n, text, sizeof(text));
}

static void unwire(struct wired *w)
{
	coll_topo_free(&w->topo);
}

/* ---- right results */

/* One call on all ranks. */
static bool run(struct wired *w, const struct coll_case *c)
{
	struct trial_run trial[MOST];
	int rc[MOST];
	char text[800];
	bool ok = true;

	for (uint32_t r = 0; r < w->n; r++)
		rc[r] = trial_begin(w->comm[r], c, &trial[r]);
	for (uint32_t r = 0; r < w->n; r++)
		if (trial_end(w->comm[r], &trial[r], rc[r], text, sizeof(text)) && ok)
			ok = fail_here("result", w, text);
	return ok;
}

static size_t elements(const struct wired *w, size_t bytes, enum coll_dtype dtype)
{
	size_t n = bytes / coll_dtype_size(dtype);

	return coll_splits(w->alg->collective) ? n : n / w->n + 1;
}

/*
 * Two types, in and out of place, small and large, one element and none; the first
 * algorithm of a collective gets all types.
 */
static bool row_runs(struct wired *w, bool large, bool all_types)
{
	uint32_t c = w->alg->collective, n = w->n;
	struct coll_case calls[] = {
		{ .count = 2 * n + 3, .dtype = COLL_INT32, .op = COLL_SUM },
		{ .count = n + 1, .dtype = COLL_FLOAT32, .op = COLL_AVG, .in_place = true },
		{ .count = 1, .dtype = COLL_INT32, .op = COLL_MAX, .in_place = true },
		{ .count = 0, .dtype = COLL_FLOAT32, .op = COLL_SUM },
		{ .count = elements(w, LARGE, COLL_FLOAT32), .dtype = COLL_FLOAT32,
		  .op = COLL_AVG },
	};
	unsigned int ncalls = ARRAY_SIZE(calls) - !large;
	bool ok = true;

	if (!join(w))
		ok = false;
	for (unsigned int i = 0; i < ncalls && ok; i++) {
		calls[i].collective = c;
		calls[i].form = CASE_REQUEST;
		calls[i].root = trial_rooted(c) ? (i * 5 + n - 1) % n : 0;
		ok = run(w, &calls[i]);
	}
	for (unsigned int t = COLL_INT8; t <= COLL_FLOAT64 && all_types && ok; t++) {
		struct coll_case typed = calls[0];

		typed.dtype = t;
		typed.op = t < COLL_FLOAT16 ? COLL_SUM : COLL_AVG;
		typed.form = CASE_PERSISTENT;
		ok = run(w, &typed);
	}
	leave(w);
	return ok;
}

/* With one way of wiring; how many it can do are added to *ran. */
static bool row_wired(const struct coll_algorithm *alg, uint32_t n, uint32_t rows, uint32_t size,
		      bool first, int *ran)
{
	struct wired w;
	bool ok = true;

	if (!wire(&w, alg, n, rows, size))
		return fail_here("topology", &w, "malformed");
	if (can(&w)) {
		ok = row_runs(&w, n == 5 || n == 8 || n == 9 || (soak && n <= 17),
			      first && (n == 5 || n == 8));
		++*ran;
	}
	unwire(&w);
	return ok;
}

/* Others plan the same whatever the shape. */
static bool looks_at_wiring(const struct coll_algorithm *alg)
{
	const struct wired w = { .n = 4, .alg = alg };
	static const uint64_t counts[4];
	struct coll_args args = args_of(&w, 1, counts);

	args.topo = NULL;
	return alg->supports && alg->supports(&args);
}

static void test_row(const struct coll_algorithm *alg, bool first)
{
	static const uint32_t some[] = { 2, 3, 5, 8, 9, 13, 17 };
	static const uint32_t all[] = {
		2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 32, 64,
	};
	const uint32_t *n = soak ? all : some;
	unsigned int ns = soak ? ARRAY_SIZE(all) : ARRAY_SIZE(some);
	uint64_t start = now_ms();
	bool ok = true;
	int ran = 0;

	for (unsigned int i = 0; i < ns && ok; i++) {
		/* Servers of 3 (the last one smaller), in the long form also of 1 and n - 1. */
		ok = row_wired(alg, n[i], 0, n[i] > 3 ? 3 : 1, first, &ran);
		if (!soak || !ok || !looks_at_wiring(alg))
			continue;
		ok = row_wired(alg, n[i], 1, n[i] - 1, first, &ran) &&
		     row_wired(alg, n[i], n[i], 1, first, &ran);
	}
	ksft_test_result(ok && ran, "%s %s runs: %d shapes, %u ms\n",
			 coll_collective_name(alg->collective), alg->name, ran,
			 (unsigned int)(now_ms() - start));
}

/* ---- as many messages and bytes as the form says */

struct traffic {
	uint64_t steps, bytes;		/* of all ranks */
	uint64_t busiest_steps, busiest_bytes;	/* the most that one rank sends or receives */
	uint64_t got;			/* the most steps that one rank receives */
	uint64_t gave;			/* the most that one sends */
};

static uint64_t largest(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* What the kernel has counted between two readings. */
static struct traffic traffic_of(const struct links *before, const struct links *after, uint32_t n)
{
	struct traffic t = { };

	for (uint32_t r = 0; r < n; r++) {
		uint64_t out = 0, in = 0, bytes_out = 0, bytes_in = 0;

		for (uint32_t q = 0; q < n; q++) {
			out += after->steps[r][q] - before->steps[r][q];
			in += after->steps[q][r] - before->steps[q][r];
			bytes_out += after->bytes[r][q] - before->bytes[r][q];
			bytes_in += after->bytes[q][r] - before->bytes[q][r];
		}
		t.steps += out;
		t.bytes += bytes_out;
		t.got = largest(t.got, in);
		t.gave = largest(t.gave, out);
		t.busiest_steps = largest(t.busiest_steps, largest(in, out));
		t.busiest_bytes = largest(t.busiest_bytes, largest(bytes_in, bytes_out));
	}
	return t;
}

/* And what the plans have, link by link. */
static bool as_planned(const struct wired *w, struct coll_args *args, const struct links *before,
		       const struct links *after)
{
	uint64_t steps[COUNTED][COUNTED] = { }, bytes[COUNTED][COUNTED] = { };
	bool ok = true;

	for (uint32_t r = 0; r < w->n; r++) {
		struct coll_plan plan;

		args->rank = r;
		if (coll_plan_make(w->alg, args, &plan))
			return false;
		for (uint32_t i = 0; i < plan.nsteps; i++) {
			const struct npulink_step *s = &plan.steps[i];

			if (!(s->op & NPULINK_STEP_SEND))
				continue;
			steps[r][s->send_peer]++;
			bytes[r][s->send_peer] += s->len;
		}
		coll_plan_free(&plan);
	}
	for (uint32_t r = 0; r < w->n; r++)
		for (uint32_t q = 0; q < w->n; q++)
			ok &= after->steps[r][q] - before->steps[r][q] == steps[r][q] &&
			      after->bytes[r][q] - before->bytes[r][q] == bytes[r][q];
	return ok;
}

static bool named(const struct wired *w, const char *name)
{
	return !strcmp(w->alg->name, name);
}

/* D of the pipelined binary tree. */
static uint32_t binary_depth(uint32_t n)
{
	uint32_t d = 0;

	for (uint32_t i = 1; i <= n; i++)
		d = largest(d, lg_floor(i) + __builtin_popcount(i) - 1);
	return d;
}

/*
 * The form's alpha and beta with one port are rounds, and bytes in them. Mostly, for
 * 8 ranks always, some port is busy in each of them; where a message is passed on
 * from rank to rank, the rounds are the ranks that it passes and the chunks behind it.
 */
static bool as_formed(const struct wired *w, struct coll_args *args, const struct traffic *t)
{
	const struct coll_cost_params alpha = { .alpha = 1, .ports = 1 };
	const struct coll_cost_params beta = { .beta = 1, .ports = 1 };
	uint32_t c = args->collective;
	bool rooted = c == NPULINK_COLL_REDUCE || c == NPULINK_COLL_BROADCAST;
	uint64_t k = c == NPULINK_COLL_REDUCE ? t->gave : t->got;
	double rounds, bytes;
	uint64_t chunk;

	args->rank = 0;
	rounds = w->alg->cost(args, &alpha);
	bytes = w->alg->cost(args, &beta);
	if (!w->alg->exact || w->n != 8)
		return t->busiest_steps <= rounds && t->busiest_bytes <= bytes;
	if (rooted && (named(w, "ring") || named(w, "chain")))
		return t->steps == rounds && t->bytes == bytes;
	/* The largest chunk counts. */
	chunk = rooted && k ? (args->count + k - 1) / k : 0;
	if (named(w, "chain-pipelined"))
		return k + w->n - 2 == rounds && rounds * chunk == bytes;
	if (named(w, "binary-pipelined"))
		return 2 * (k - 1) + binary_depth(w->n) == rounds && rounds * chunk == bytes;
	return t->busiest_steps == rounds && t->busiest_bytes == bytes;
}

/* One call of n ranks on n devices, in messages that any number of chunks divides. */
static bool count_row(struct wired *w)
{
	const size_t shard = 840 * 12;
	uint64_t counts[COUNTED];
	size_t displs[COUNTED];
	static unsigned char send[COUNTED][COUNTED * 840 * 12], recv[COUNTED][COUNTED * 840 * 12];
	struct coll_request *req[COUNTED];
	struct links before, after;
	struct traffic t;
	struct coll_args args;
	uint32_t c = w->alg->collective, root;
	int rc = 0;

	for (uint32_t r = 0; r < w->n; r++) {
		counts[r] = shard;
		displs[r] = r * shard;
	}
	args = args_of(w, c == NPULINK_COLL_BARRIER ? 0 :
		       coll_splits(c) ? shard * w->n : shard, counts);
	args.displs = displs;
	args.rdispls = displs;
	root = args.root;
	if (!join(w))
		return false;
	if (links_read(&before))
		return fail_here("counters", w, "cannot be read");
	for (uint32_t r = 0; r < w->n && !rc; r++) {
		struct coll_comm *comm = w->comm[r];
		void *s = send[r], *d = recv[r];
		enum coll_dtype t8 = COLL_INT8;

		switch (c) {
		case NPULINK_COLL_ALLREDUCE:
			rc = coll_iallreduce(comm, s, d, args.count, t8, COLL_SUM, &req[r]);
			break;
		case NPULINK_COLL_REDUCE:
			rc = coll_ireduce(comm, s, d, args.count, t8, COLL_SUM, root, &req[r]);
			break;
		case NPULINK_COLL_BROADCAST:
			rc = coll_ibroadcast(comm, s, d, args.count, t8, root, &req[r]);
			break;
		case NPULINK_COLL_SCATTER:
			rc = coll_iscatter(comm, s, d, shard, t8, root, &req[r]);
			break;
		case NPULINK_COLL_SCATTERV:
			rc = coll_iscatterv(comm, s, d, counts, displs, t8, root, &req[r]);
			break;
		case NPULINK_COLL_GATHER:
			rc = coll_igather(comm, s, d, shard, t8, root, &req[r]);
			break;
		case NPULINK_COLL_GATHERV:
			rc = coll_igatherv(comm, s, d, counts, displs, t8, root, &req[r]);
			break;
		case NPULINK_COLL_ALLGATHER:
			rc = coll_iallgather(comm, s, d, shard, t8, &req[r]);
			break;
		case NPULINK_COLL_ALLGATHERV:
			rc = coll_iallgatherv(comm, s, d, counts, displs, t8, &req[r]);
			break;
		case NPULINK_COLL_REDUCE_SCATTER:
			rc = coll_ireduce_scatter(comm, s, d, shard, t8, COLL_SUM, &req[r]);
			break;
		case NPULINK_COLL_REDUCE_SCATTERV:
			rc = coll_ireduce_scatterv(comm, s, d, counts, displs, t8, COLL_SUM,
						   &req[r]);
			break;
		case NPULINK_COLL_ALLTOALL:
			rc = coll_ialltoall(comm, s, d, shard, t8, &req[r]);
			break;
		case NPULINK_COLL_ALLTOALLV:
			rc = coll_ialltoallv(comm, s, counts, displs, d, counts, displs, t8,
					     &req[r]);
			break;
		default:
			rc = coll_ibarrier(comm, &req[r]);
		}
		if (rc)
			return fail_here("call", w, coll_comm_last_error(comm));
	}
	for (uint32_t r = 0; r < w->n; r++)
		if (coll_wait(&req[r]))
			return fail_here("wait", w, coll_comm_last_error(w->comm[r]));
	leave(w);
	if (links_read(&after))
		return fail_here("counters", w, "cannot be read");
	if (!as_planned(w, &args, &before, &after))
		return fail_here("counted", w, "something else than the plan has");
	t = traffic_of(&before, &after, w->n);
	if (!as_formed(w, &args, &t)) {
		ksft_print_msg("all: %llu messages, %llu bytes; busiest rank: %llu, %llu\n",
			       (unsigned long long)t.steps, (unsigned long long)t.bytes,
			       (unsigned long long)t.busiest_steps,
			       (unsigned long long)t.busiest_bytes);
		return fail_here("counted", w, "something else than the form says");
	}
	return true;
}

static void test_counts(const struct coll_algorithm *alg)
{
	static const uint32_t try[] = { 8, 7, 5 };
	int counted = 0;
	bool ok = true;

	for (unsigned int i = 0; i < ARRAY_SIZE(try) && ok; i++) {
		struct wired w;

		if (!wire(&w, alg, try[i], 0, 3))
			ok = fail_here("topology", &w, "malformed");
		if (ok && can(&w)) {
			ok = count_row(&w);
			counted++;
		}
		unwire(&w);
	}
	ksft_test_result(ok && counted, "%s %s moves what its form says\n",
			 coll_collective_name(alg->collective), alg->name);
}

/* Rows that are run this time. */
static const struct coll_algorithm *next_row(const struct coll_algorithm *alg, unsigned int *i)
{
	const unsigned int part = soak ? 1 : getenv("NPULINK_SLOW") ? 12 : 6;
	static unsigned int first = ~0U;

	if (first == ~0U) {
		first = time(NULL) % part;
		if (part > 1)
			ksft_print_msg("rows number %u, %u, ...\n", first, first + part);
	}
	while ((alg = coll_algorithm_next(~0U, alg)))
		if (alg->collective != NPULINK_COLL_P2P &&
		    (*i)++ % part == first)
			break;
	return alg;
}

int main(void)
{
	const struct coll_algorithm *alg = NULL;
	uint32_t seen = 0;
	unsigned int rows = 0, i = 0;

	soak = getenv("NPULINK_SOAK");
	setlinebuf(stdout);
	ksft_print_header();
	if (!have_device())
		ksft_exit_skip("no /dev/npulink/npu0\n");
	while ((alg = next_row(alg, &i)))
		rows++;
	ksft_set_plan(2 * rows);
	if (open_files())
		ksft_exit_fail_msg("cannot open %d files\n", MOST);
	for (i = 0; (alg = next_row(alg, &i));)
		test_counts(alg);
	for (i = 0; (alg = next_row(alg, &i));) {
		test_row(alg, !(seen >> alg->collective & 1));
		seen |= 1U << alg->collective;
	}
	for (int r = 0; r < MOST; r++)
		wrong += !!coll_comm_destroy(base[r]);
	if (wrong)
		ksft_print_msg("%d failures\n", wrong);
	ksft_finished();
}
