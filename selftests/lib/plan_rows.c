// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * plan_rows.c - the tables of algorithms against those of the design: each row is
 * there, costs what it should by a form that is written down here once more, with
 * one port per rank and, where that is said, with one per peer, and is called
 * exact if it is. Nothing is there that is not in a table, but for what is listed here.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kselftest.h"
#include "lib/algorithm/algorithms.h"
#include "lib/plan/planner.h"

#define MOST		256

/* One row of the design, over all calls. */
struct row {
	uint32_t collective;
	const char *name;
	bool exact;
	const struct coll_algorithm *alg;
	uint32_t calls;
	char bad[300];
};

static struct row rows[200];
static uint32_t nrows;

/* Rows that are in no table: the reason why is their description. */
static const struct {
	uint32_t collective;
	const char *name;
} extra[] = {
	{ NPULINK_COLL_ALLREDUCE, "one-shot-chain" },
	{ NPULINK_COLL_P2P, "direct" },
	{ NPULINK_COLL_ALLTOALLV, "isend-irecv" },
	{ NPULINK_COLL_ALLGATHERV, "ring" },
	{ NPULINK_COLL_ALLGATHERV, "mesh" },
	{ NPULINK_COLL_REDUCE_SCATTERV, "ring" },
	{ NPULINK_COLL_REDUCE_SCATTERV, "mesh" },
	{ NPULINK_COLL_REDUCE_SCATTERV, "pairwise" },
	{ NPULINK_COLL_SCATTERV, "ring" },
	{ NPULINK_COLL_SCATTERV, "mesh" },
	{ NPULINK_COLL_GATHERV, "ring" },
	{ NPULINK_COLL_GATHERV, "mesh" },
	/* "Derive the others", and their bounds are what is derived. */
	{ NPULINK_COLL_ALLREDUCE, "two-level" },
	{ NPULINK_COLL_REDUCE_SCATTER, "two-level" },
	{ NPULINK_COLL_BROADCAST, "two-level" },
	{ NPULINK_COLL_REDUCE, "two-level" },
	{ NPULINK_COLL_ALLGATHERV, "two-level" },
	{ NPULINK_COLL_REDUCE_SCATTERV, "two-level" },
	{ NPULINK_COLL_SCATTER, "two-level" },
	{ NPULINK_COLL_SCATTERV, "two-level" },
	{ NPULINK_COLL_GATHER, "two-level" },
	{ NPULINK_COLL_GATHERV, "two-level" },
	{ NPULINK_COLL_ALLTOALL, "two-level" },
	{ NPULINK_COLL_ALLREDUCE, "two-level-leaders" },
	{ NPULINK_COLL_BARRIER, "two-level-leaders" },
};

/* One call of every algorithm, and what is written about it with these letters. */
struct call {
	uint32_t p, cols, chunks, servers;
	const struct coll_topo *topo;
	uint64_t shard;		/* elements, of one byte each */
	const uint64_t *counts;
};

static struct row *find_row(uint32_t collective, const char *name, bool exact)
{
	for (uint32_t i = 0; i < nrows; i++)
		if (rows[i].collective == collective && !strcmp(rows[i].name, name))
			return &rows[i];
	rows[nrows] = (struct row){
		.collective = collective, .name = name, .exact = exact,
		.alg = coll_algorithm_find(collective, name),
	};
	return &rows[nrows++];
}

static void compare(struct row *row, const struct coll_args *args, uint32_t ports, double a,
		    double b, double g, double form)
{
	const struct coll_cost_params params = {
		.alpha = a, .beta = b, .gamma = g, .ports = ports,
	};
	double cost = row->alg->cost(args, &params);

	row->calls++;
	if (fabs(cost - form) <= 1 / 1e12 * fabs(form) || *row->bad)
		return;
	snprintf(row->bad, sizeof(row->bad),
		 "%u ranks, %u ports, %u chunks: %.12g instead of %.12g", args->nranks, ports,
		 args->chunks, cost, form);
}

/* Is it there, and does it cost that? Less than 0: nothing is said. */
static void expect(const struct call *c, uint32_t collective, const char *name, bool exact,
		   double a, double b, double g, double one, double all)
{
	struct row *row = find_row(collective, name, exact);
	struct coll_args args = {
		.collective = collective, .dtype = NPULINK_INT8, .nranks = c->p,
		.count = c->shard, .counts = c->counts, .rcounts = c->counts,
		.chunks = c->chunks, .topo = c->topo, .root = c->p / 3,
	};

	if (!row->alg) {
		snprintf(row->bad, sizeof(row->bad), "is missing");
		return;
	}
	if (row->alg->exact != exact)
		snprintf(row->bad, sizeof(row->bad), "is %scalled exact", exact ? "not " : "");
	if (coll_splits(collective))
		args.count *= c->p;
	if (collective == NPULINK_COLL_BARRIER)
		args.count = 0;
	if (!npulink_coll_has_root(collective))
		args.root = 0;
	if (row->alg->supports && row->alg->supports(&args))
		return;
	if (one >= 0)
		compare(row, &args, 1, a, b, g, c->p > 1 ? one : 0);
	if (all >= 0 && c->p > 2)
		compare(row, &args, c->p - 1, a, b, g, all);
}

/* ---- the letters */

static double sum_s(uint32_t p, uint32_t k, bool hccl)
{
	uint32_t block = 1U << k, r = p - block;
	double s = 0;

	for (uint32_t i = 1; i <= k; i++)
		s += hccl ? (block >> i) + min_u32(r, block >> i) : ceil(p / (double)(1U << i));
	return s;
}

static double bruck_blocks(uint32_t p, uint32_t b)
{
	double n = floor(p / (double)(2U << b)) * (1U << b);
	uint32_t rest = p % (2U << b);

	return n + (rest > 1U << b ? rest - (1U << b) : 0);
}

static double bruck(uint32_t p, uint32_t levels, double a, double block)
{
	double t = 0;

	for (uint32_t b = 0; b < levels; b++)
		t += a + bruck_blocks(p, b) * block;
	return t;
}

/* D of the binary tree, m of the binomial one. */
static double tree_depth(uint32_t p)
{
	double d = 0;

	for (uint32_t i = 1; i <= p; i++)
		d = fmax(d, lg_floor(i) + __builtin_popcount(i) - 1);
	return d;
}

static double most_bits(uint32_t p)
{
	double m = 0;

	for (uint32_t v = 0; v < p; v++)
		m = fmax(m, __builtin_popcount(v));
	return m;
}

/* reduce_scatter by recursive doubling, folded: all sums that are still needed travel. */
static double doubling_s(uint32_t p, uint32_t k)
{
	double s = 0;

	for (uint32_t i = 0; i < k; i++)
		s += p - floor((double)p * (1U << i) / (1U << k));
	return s;
}

/* Steps until a chunk of the fence is everywhere, after it has left the root. */
static double fence_delay(double r, double c, uint32_t chunk)
{
	return r + c + 1 - ((uint32_t)(chunk % 2 ? r : c) % 2);
}

static double fence_steps(double r, double c, uint32_t k, uint32_t p)
{
	double last = k - 1 + fence_delay(r, c, k - 1);

	if (r < 2 || c < 2)
		return p + k - 2.0;
	return k > 1 ? fmax(last, k - 2 + fence_delay(r, c, k - 2)) : last;
}

/* ---- the tables */

#define ROW(coll, name, ...) \
	expect(c, NPULINK_COLL_##coll, name, true, a, b, g, __VA_ARGS__)
#define BOUND(coll, name, ...) \
	expect(c, NPULINK_COLL_##coll, name, false, a, b, g, __VA_ARGS__)
#define NONE	(-1.0)

static void ring_and_mesh(const struct call *c, double a, double b, double g)
{
	double p = c->p, n = c->shard * p, f = (p - 1) / p, once;

	ROW(SCATTER, "ring", (p - 1) * a + f * n * b, NONE);
	ROW(GATHER, "ring", (p - 1) * a + f * n * b, NONE);
	ROW(ALLGATHER, "ring", (p - 1) * a + f * n * b, NONE);
	ROW(BROADCAST, "ring", (p - 1) * (a + n * b), NONE);
	ROW(REDUCE, "ring", (p - 1) * (a + n * b + n * g), NONE);
	ROW(REDUCE_SCATTER, "ring", (p - 1) * a + f * n * (b + g), NONE);
	ROW(ALLREDUCE, "ring", 2 * (p - 1) * a + 2 * f * n * b + f * n * g, NONE);

	ROW(SCATTER, "mesh", (p - 1) * a + f * n * b, a + n * b / p);
	ROW(GATHER, "mesh", (p - 1) * a + f * n * b, a + n * b / p);
	ROW(ALLGATHER, "mesh", (p - 1) * a + f * n * b, a + n * b / p);
	/* The kernel adds up so many at a time; up to 65 ranks that is all. */
	once = ceil((p - 1) / NPULINK_CHAIN_MAX) * (a + n * b / p);
	ROW(REDUCE_SCATTER, "mesh", (p - 1) * a + f * n * (b + g), once + f * n * g);
	ROW(BROADCAST, "mesh", 2 * ((p - 1) * a + f * n * b), 2 * a + 2 * n * b / p);
	ROW(ALLREDUCE, "mesh", 2 * (p - 1) * a + 2 * f * n * b + f * n * g,
	    once + a + n * b / p + f * n * g);
	ROW(REDUCE, "mesh", 2 * (p - 1) * a + 2 * f * n * b + f * n * g,
	    once + a + n * b / p + f * n * g);
	ROW(ALLREDUCE, "one-shot", (p - 1) * (a + n * b + n * g), a + n * b + (p - 1) * n * g);
}

static void pairwise_and_classic(const struct call *c, double a, double b, double g)
{
	double p = c->p, n = c->shard * p, f = (p - 1) / p, pp = 1U << lg_floor(c->p);
	double k = lg_floor(c->p), l = lg_ceil(c->p);
	bool power = p == pp;

	ROW(ALLTOALL, "pairwise", (p - 1) * a + f * n * b, NONE);
	ROW(ALLTOALL, "pairwise-xor", (p - 1) * a + f * n * b, NONE);
	BOUND(ALLTOALLV, "pairwise", (p - 1) * a + f * n * b, NONE);
	BOUND(ALLTOALLV, "pairwise-xor", (p - 1) * a + f * n * b, NONE);
	ROW(ALLTOALL, "isend-irecv", (p - 1) * a + f * n * b, a + n * b / p);
	ROW(ALLTOALL, "bruck", bruck(c->p, l, a, n * b / p), NONE);
	if (power)
		ROW(ALLTOALL, "bruck", l * (a + n * b / 2), NONE);
	ROW(ALLGATHER, "recursive-doubling", l * a + f * n * b, NONE);
	ROW(ALLGATHER, "bruck", l * a + f * n * b, NONE);
	ROW(BROADCAST, "van-de-geijn", (l + p - 1) * a + 2 * f * n * b, NONE);
	ROW(REDUCE_SCATTER, "recursive-halving",
	    power ? l * a + f * n * (b + g) :
	    a + n * b + n * g + k * a + sum_s(c->p, k, false) * n * (b + g) / p + a + n * b / p,
	    NONE);
	/* Exact for powers of 2 only. */
	BOUND(REDUCE_SCATTER, "recursive-doubling",
	      power ? l * a + (l - f) * n * (b + g) :
	      a + n * b + n * g + k * a + doubling_s(c->p, k) * n * (b + g) / p + a + n * b / p,
	      NONE);
	ROW(REDUCE_SCATTER, "pairwise", (p - 1) * a + f * n * (b + g), NONE);
	ROW(ALLREDUCE, "recursive-doubling",
	    k * (a + n * b + n * g) + (power ? 0 : 2 * a + 2 * n * b + n * g), NONE);
}

static void halving_and_doubling(const struct call *c, double a, double b, double g)
{
	double p = c->p, n = c->shard * p, f = (p - 1) / p, pp = 1U << lg_floor(c->p);
	double k = lg_floor(c->p), l = lg_ceil(c->p), fp = (pp - 1) / pp;
	bool power = p == pp;

	ROW(BROADCAST, "rhd", l * (a + n * b), NONE);
	for (int hccl = 0; hccl < 2; hccl++) {
		const char *name = hccl ? "rhd-hccl" : "rhd";
		double s = sum_s(c->p, k, hccl);

		ROW(REDUCE_SCATTER, name, power ? k * a + f * n * (b + g) :
		    (a + n * b + n * g) + (k * a + s * n * (b + g) / p) + (a + n * b / p), NONE);
		ROW(ALLGATHER, name, power ? k * a + f * n * b :
		    (a + n * b / p) + (k * a + s * n * b / p) + (a + n * b), NONE);
		ROW(ALLREDUCE, name, power ? 2 * k * a + 2 * f * n * b + f * n * g :
		    (2 * k + 2) * a + (2 * fp + 2) * n * b + (fp + 1) * n * g, NONE);
	}
	ROW(REDUCE, "rhd", power ? 2 * k * a + 2 * f * n * b + f * n * g :
	    (2 * k + 1) * a + (2 * fp + 1) * n * b + (fp + 1) * n * g, NONE);
}

static void trees(const struct call *c, double a, double b, double g)
{
	double p = c->p, n = c->shard * p, f = (p - 1) / p, l = lg_ceil(c->p), k = c->chunks;
	double low = lg_floor(c->p), d = p > 2 ? 2 * (k - 1) + tree_depth(c->p) : k;

	ROW(BROADCAST, "chain", (p - 1) * (a + n * b), NONE);
	ROW(REDUCE, "chain", (p - 1) * (a + n * (b + g)), NONE);
	ROW(BROADCAST, "binomial", l * (a + n * b), NONE);
	ROW(REDUCE, "binomial", l * (a + n * (b + g)), NONE);
	ROW(BROADCAST, "chain-pipelined", (p + k - 2) * (a + n * b / k), NONE);
	ROW(REDUCE, "chain-pipelined", (p + k - 2) * (a + n * (b + g) / k), NONE);
	ROW(BROADCAST, "binary-pipelined", d * (a + n * b / k), (k + low - 1) * (a + n * b / k));
	ROW(REDUCE, "binary-pipelined", d * (a + n * (b + g) / k), NONE);
	ROW(BROADCAST, "binomial-pipelined", k * l * (a + n * b / k),
	    (k + most_bits(c->p) - 1) * (a + n * b / k));
	ROW(REDUCE, "binomial-pipelined", k * l * (a + n * (b + g) / k), NONE);
	ROW(SCATTER, "binomial", l * a + f * n * b, NONE);
	ROW(GATHER, "binomial", l * a + f * n * b, NONE);
	ROW(SCATTERV, "binomial", l * a + f * n * b, NONE);
	ROW(GATHERV, "binomial", l * a + f * n * b, NONE);
	ROW(SCATTERV, "linear", (p - 1) * a + f * n * b, NONE);
	ROW(GATHERV, "linear", (p - 1) * a + f * n * b, NONE);
	ROW(BARRIER, "dissemination", l * a, NONE);
	BOUND(BROADCAST, "double-binary", NONE, NONE);
	BOUND(ALLREDUCE, "double-binary", NONE, NONE);
}

static void grids(const struct call *c, double a, double b, double g)
{
	double p = c->p, n = c->shard * p, f = (p - 1) / p, l = lg_ceil(c->p), k = c->chunks;
	double cols = c->cols, r = p / cols, levels = lg_ceil(r) + lg_ceil(c->cols);

	ROW(BROADCAST, "hypercube-naive", l * (a + n * b), NONE);
	ROW(BROADCAST, "hypercube-reversed", l * (a + n * b), NONE);
	ROW(BROADCAST, "halving", l * (a + n * b), NONE);
	ROW(BROADCAST, "dimensions", levels * (a + n * b), NONE);
	ROW(BROADCAST, "rsbcast", l * (a + n * b), NONE);
	BOUND(BROADCAST, "fence", fence_steps(r, cols, k, c->p) * (a + n * b / k), NONE);
	ROW(BROADCAST, "scatter-collect-1d", (p - 1 + l) * a + 2 * f * n * b, NONE);
	ROW(BROADCAST, "scatter-collect-2d", (levels + r + cols - 2) * a + 2 * f * n * b, NONE);
}

static void beyond(const struct call *c, double a, double b, double g)
{
	double p = c->p, n = c->shard * p, f = (p - 1) / p, l = lg_ceil(c->p);

	for (int nb = 0; nb < 2; nb++) {
		const char *name = nb ? "nb" : "nhr";

		ROW(REDUCE_SCATTER, name, l * a + f * n * (b + g), NONE);
		ROW(ALLREDUCE, name, 2 * l * a + 2 * f * n * b + f * n * g, NONE);
	}
	ROW(ALLGATHER, "nhr", l * a + f * n * b, NONE);
	ROW(SCATTER, "nhr", l * a + f * n * b, NONE);
	ROW(BROADCAST, "nhr", 2 * l * a + 2 * f * n * b, NONE);
	/* Both levels cost the same in a closed form: (m-1) max(T, T) + T. */
	BOUND(ALLGATHER, "two-level", NONE,
	      c->servers ? c->servers * (a + n * b / p) : NONE);
}

/* ---- calls */

static void all_tables(uint32_t p, uint32_t cols, uint32_t size, uint32_t chunks)
{
	static uint64_t counts[MOST];
	static uint32_t server_of[MOST];
	double a = 3 / 1e6, b = 7 / 1e11, g = 11 / 1e12;
	struct coll_topo topo = {
		.rows = p / cols, .cols = cols, .nservers = (p + size - 1) / size,
		.server_of = server_of,
	};
	struct call c = {
		.p = p, .cols = cols, .topo = &topo, .counts = counts, .chunks = chunks,
		/* p' and the chunks divide the vector, for any type. */
		.shard = (1ULL << lg_floor(p)) * chunks * 8,
	};

	for (uint32_t i = 0; i < p; i++) {
		counts[i] = c.shard;
		server_of[i] = i / size;
	}
	c.servers = p % size == 0 ? p / size : 0;
	ring_and_mesh(&c, a, b, g);
	pairwise_and_classic(&c, a, b, g);
	halving_and_doubling(&c, a, b, g);
	trees(&c, a, b, g);
	grids(&c, a, b, g);
	beyond(&c, a, b, g);
}

static bool is_extra(const struct coll_algorithm *alg)
{
	for (size_t i = 0; i < ARRAY_SIZE(extra); i++)
		if (extra[i].collective == alg->collective && !strcmp(extra[i].name, alg->name))
			return true;
	return false;
}

static bool in_table(const struct coll_algorithm *alg)
{
	for (uint32_t i = 0; i < nrows; i++)
		if (rows[i].alg == alg)
			return true;
	return false;
}

int main(void)
{
	const struct coll_algorithm *alg = NULL;
	uint32_t unknown = 0, gone = 0;

	for (uint32_t p = 1; p <= MOST; p = p < 40 ? p + 1 : p * 2 - 17)
		for (uint32_t cols = 1; cols <= p; cols++)
			if (p % cols == 0)
				all_tables(p, cols, 1 + (p + cols) % 7, 1 + (p + 2 * cols) % 5);
	ksft_print_header();
	ksft_set_plan(nrows + 2);
	for (uint32_t i = 0; i < nrows; i++) {
		const struct row *row = &rows[i];

		if (*row->bad)
			ksft_print_msg("%s\n", row->bad);
		ksft_test_result(!*row->bad, "%s %s: %u calls\n",
				 coll_collective_name(row->collective), row->name, row->calls);
	}
	while ((alg = coll_algorithm_next(~0U, alg))) {
		if (in_table(alg) || is_extra(alg))
			continue;
		ksft_print_msg("%s %s\n", coll_collective_name(alg->collective), alg->name);
		unknown++;
	}
	ksft_test_result(!unknown, "nothing else is there\n");
	for (size_t i = 0; i < ARRAY_SIZE(extra); i++)
		gone += !coll_algorithm_find(extra[i].collective, extra[i].name);
	ksft_test_result(!gone, "what is there beyond the tables\n");
	ksft_finished();
}
