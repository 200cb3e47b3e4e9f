// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * coll_collectives.c - all collectives, for several numbers of ranks that are processes, all
 * data types and reductions, in and out of place, small, empty and larger than the
 * arena, against a plain reference; and every algorithm that the planners know.
 *
 * npulink-test: timeout=300
 */
#include "lib/algorithm/algorithms.h"
#include "lib/run/comm.h"
#include "lib/tune/topo.h"
#include "coll_ranks.h"
#include "coll_cases.h"

static const unsigned int sizes[] = { 2, 3, 8, 5, 16, 4, 7 };

#define NSIZES		(sizeof(sizes) / sizeof(*sizes))
#define LARGE		80000		/* bytes, more than the arena holds */

static int one(struct ranks *ranks, struct coll_comm *comm, const struct coll_case *c)
{
	char text[700];

	if (!trial_run(comm, c, text, sizeof(text)))
		return 0;
	__atomic_fetch_add(&ranks->number[c->collective], 1, __ATOMIC_RELAXED);
	rank_fail(ranks, coll_comm_rank(comm), "%s", text);
	return -1;
}

static size_t large(struct coll_comm *comm, uint32_t collective, enum coll_dtype dtype)
{
	size_t n = LARGE / coll_dtype_size(dtype);

	if (collective == NPULINK_COLL_ALLREDUCE || collective == NPULINK_COLL_REDUCE ||
	    collective == NPULINK_COLL_BROADCAST)
		return n + 3;
	return n / coll_comm_size(comm) + 3;
}

/* Sizes and places, with types of all sizes in turn. */
static int by_size(struct ranks *ranks, struct coll_comm *comm, uint32_t collective)
{
	static const enum coll_dtype dtypes[] = {
		COLL_INT8, COLL_FLOAT32, COLL_INT16, COLL_FLOAT64,
	};
	unsigned int nranks = coll_comm_size(comm);

	for (unsigned int n = 0; n < 20; n++) {
		enum coll_dtype t = dtypes[(n + n / 5) % 4];
		size_t counts[] = { 0, 1, nranks - 1, 37, large(comm, collective, t) };
		const struct coll_case c = {
			.collective = collective, .count = counts[n % 5], .dtype = t,
			.op = COLL_SUM, .in_place = n / 5 % 2, .form = n % CASE_FORMS,
			.root = trial_rooted(collective) ? n % nranks : 0,
		};

		if (one(ranks, comm, &c))
			return -1;
	}
	return 0;
}

/* All types, in and out of place; with all reductions, or with one after the other. */
static int by_type(struct ranks *ranks, struct coll_comm *comm, uint32_t collective)
{
	unsigned int nranks = coll_comm_size(comm);
	unsigned int ops = nranks == 3 || nranks == 8 ? 5 : 2;

	for (unsigned int n = 0; n < 12 * ops; n++) {
		const struct coll_case c = {
			.collective = collective, .count = 41, .dtype = n / ops, .op = n % 5,
			.in_place = n % 2, .form = n % CASE_FORMS,
			.root = trial_rooted(collective) ? n % nranks : 0,
		};

		if (one(ranks, comm, &c))
			return -1;
	}
	return 0;
}

static int all_of_them(struct ranks *ranks, struct coll_comm *comm)
{
	int rc = 0;

	for (uint32_t c = 0; c < NPULINK_COLL_P2P && !rc; c++) {
		rc = by_size(ranks, comm, c);
		if (!rc && trial_reduces(c))
			rc = by_type(ranks, comm, c);
		/* Not reached on the ranks that fail: what comes later is not known good. */
		if (!rc)
			__atomic_fetch_add(&ranks->number[32 + c], 1, __ATOMIC_RELAXED);
	}
	return rc;
}

static void test_size(unsigned int n)
{
	struct ranks *ranks = ranks_new(n);

	ranks_run(ranks, all_of_them);
	for (uint32_t c = 0; c < NPULINK_COLL_P2P; c++)
		ksft_test_result(!ranks->number[c] && ranks->number[32 + c] == (int)n,
				 "%s, %u ranks\n", trial_names[c], n);
	ranks_free(ranks);
}

/* ---- every algorithm, chosen by override */

static const struct coll_algorithm *algorithm;

static const char *unsupported(unsigned int nranks, const char *wiring)
{
	static const uint64_t zero[RANKS_MAX];
	struct coll_topo topo;
	const struct coll_args args = {
		.collective = algorithm->collective, .nranks = nranks, .counts = zero,
		.rcounts = zero, .displs = zero, .rdispls = zero, .count = 100, .topo = &topo,
	};
	const char *why = NULL;
	char text[200];

	if (coll_topo_init(&topo, wiring, nranks, text, sizeof(text)))
		ksft_exit_fail_msg("%s\n", text);
	if (algorithm->supports)
		why = algorithm->supports(&args);
	coll_topo_free(&topo);
	return why;
}

static int one_algorithm(struct ranks *ranks, struct coll_comm *comm)
{
	return by_size(ranks, comm, algorithm->collective);
}

/* With the first number of ranks that it can do. */
static void test_algorithm(void)
{
	static const unsigned int try[] = { 5, 8, 9, 4 };
	static const char *const wiring[] = {
		"mesh:1x5;servers:2", "mesh:2x4;servers:3", "mesh:3x3;servers:4",
		"mesh:2x2;servers:2",
	};
	struct ranks *ranks;
	const char *why = "";
	char override[100];
	unsigned int n = 0, t = 0;

	snprintf(override, sizeof(override), "%s:%s", trial_names[algorithm->collective],
		 algorithm->name);
	for (unsigned int i = 0; i < 4 && why; i++) {
		t = i;
		n = try[t];
		why = unsupported(n, wiring[t]);
	}
	if (why) {
		ksft_test_result_fail("%s: %s\n", override, why);
		return;
	}
	ranks = ranks_new(n);
	ranks->config.algorithm = override;
	ranks->config.topology = wiring[t];
	ksft_test_result(!ranks_run(ranks, one_algorithm), "%s, %u ranks\n", override, n);
	ranks_free(ranks);
}

int main(void)
{
	unsigned int algorithms = 0, nsizes = NSIZES;

	ksft_print_header();
	if (!have_device())
		ksft_exit_skip("no /dev/npulink/npu0\n");
	while ((algorithm = coll_algorithm_next(~0U, algorithm)))
		algorithms += algorithm->collective < NPULINK_COLL_P2P;
	/* coll_rows runs them, too. */
	if (!getenv("NPULINK_SOAK")) {
		algorithms = 0;
		nsizes = getenv("NPULINK_MEMORY") ? 2 : getenv("NPULINK_SLOW") ? 3 : 4;
	}
	ksft_set_plan(nsizes * NPULINK_COLL_P2P + algorithms);
	for (unsigned int i = 0; i < nsizes; i++)
		test_size(sizes[i]);
	while (algorithms && (algorithm = coll_algorithm_next(~0U, algorithm))) {
		if (algorithm->collective < NPULINK_COLL_P2P)
			test_algorithm();
	}
	ksft_finished();
}
