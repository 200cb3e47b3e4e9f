// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * plan_proof.c - every algorithm is proved correct, with all its ranks together,
 * for each number of ranks up to 33 and some above, in make soak up to 64, over counts,
 * roots, in place and not. One test per (collective, algorithm).
 *
 * Arguments: [COLLECTIVE [ALGORITHM [RANKS]]] to prove a part only.
 *
 * npulink-test: timeout=300 san-soak
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kselftest.h"
#include "lib/algorithm/algorithms.h"
#include "lib/plan/planner.h"
#include "lib/verify/set.h"

#if defined(__SANITIZE_ADDRESS__)
#define ALL_UP_TO	17
#define ALL_IN_SOAK	17
static const uint32_t some[] = { 32, 33, 64 };
#else
#define ALL_UP_TO	33
#define ALL_IN_SOAK	64
static const uint32_t some[] = { 48, 63, 64, 100, 127, 128 };
#endif

#define MAX_RANKS	128

struct sweep {
	const struct coll_algorithm *alg;
	uint64_t calls, steps, messages;
	bool out_of_order;
	char bad[400];
};

static uint64_t counts[MAX_RANKS * MAX_RANKS], displs[MAX_RANKS];

/* Uneven shards with empty ones among them; kind 1: one rank has everything. */
static uint64_t v_count(uint32_t kind, uint32_t i, uint32_t j, uint64_t count)
{
	switch (kind) {
	case 0:
		return (i * 7 + j * 3) % 5 * count / 2;
	case 1:
		return i == j + 1 ? count : 0;
	default:
		return count;
	}
}

static uint32_t server_of[MAX_RANKS];

/* Any way to wire p ranks as a mesh, and in servers: with the call, another one. */
static struct coll_topo wire(uint32_t p, uint32_t which)
{
	uint32_t r = 1 + which % p, i, n = 0;

	while (p % r)
		r = r % p + 1;
	/* Servers of 1, 2, 3, .. ranks, or all of one size. */
	for (i = 0; i < p; i++) {
		if (which % 3)
			server_of[i] = i / (1 + which % 9);
		else
			server_of[i] = i ? server_of[i - 1] + (++n > server_of[i - 1] % 4) : 0;
		if (i && server_of[i] != server_of[i - 1])
			n = 0;
	}
	return (struct coll_topo){
		.rows = r, .cols = p / r,
		.nservers = server_of[p - 1] + 1, .server_of = server_of,
	};
}

static bool prove(struct sweep *sweep, struct coll_args *args, uint32_t kind)
{
	struct coll_topo topo = wire(args->nranks, args->root + args->count);
	struct coll_verify_report report;
	uint32_t p = args->nranks, i, j;
	uint64_t off = 0;
	int rc;

	args->topo = &topo;

	args->counts = NULL;
	args->displs = NULL;
	args->chunks = args->root % 4 * 2;
	switch (args->collective) {
	case NPULINK_COLL_ALLTOALLV:
		for (i = 0; i < p; i++)
			for (j = 0; j < p; j++)
				counts[i * p + j] = args->in_place && i > j ?
					counts[j * p + i] : v_count(kind, i, j, args->count);
		args->counts = counts;
		break;
	case NPULINK_COLL_SCATTERV:
	case NPULINK_COLL_GATHERV:
	case NPULINK_COLL_ALLGATHERV:
	case NPULINK_COLL_REDUCE_SCATTERV:
		/* Backwards and with gaps, so that nothing hangs on the order. */
		for (i = p; i-- > 0;) {
			counts[i] = v_count(kind, i, 1, args->count);
			displs[i] = off;
			off += counts[i] + i % 3;
		}
		args->counts = counts;
		if (kind != 2)
			args->displs = displs;
	}
	if (sweep->alg->supports && sweep->alg->supports(args))
		return true;

	rc = coll_verify_algorithm(sweep->alg, args, &report);
	sweep->calls++;
	sweep->steps += report.steps;
	sweep->messages += report.messages;
	if (!report.in_order)
		sweep->out_of_order = true;
	if (!rc)
		return true;
	snprintf(sweep->bad, sizeof(sweep->bad),
		 "%u ranks, count %llu, kind %u, root %u%s: rank %u step %d slot %d bytes %llu+%llu: %s (%d)",
		 p, (unsigned long long)args->count, kind, args->root,
		 args->in_place ? ", in place" : "", report.rank, (int)report.step,
		 (int)report.slot, (unsigned long long)report.off,
		 (unsigned long long)report.len, report.reason, rc);
	return false;
}

static bool prove_ranks(struct sweep *sweep, uint32_t p)
{
	const uint64_t many[] = { 0, 1, p - 1, p, p + 1, 2 * p + 1, 1000 };
	const uint32_t roots[] = { 0, 1, p / 2, p - 1 };
	uint32_t ncounts = p <= 9 ? 7 : p <= 20 ? 4 : 2, c, r, kind;
	uint32_t collective = sweep->alg->collective;
	struct coll_args args = {
		.collective = collective, .nranks = p, .dtype = NPULINK_FLOAT32,
		.redop = NPULINK_CALL_AVG,
	};

	if (collective == NPULINK_COLL_P2P && p != 2)
		return true;
	for (c = 0; c < ncounts; c++) {
		/* Larger p: another few counts each. */
		args.count = many[(c * (p <= 9 ? 1 : 3) + (p <= 9 ? 0 : p)) % 7];
		for (r = 0; r < 4; r++) {
			args.root = roots[(r + p) % 4];
			if (!npulink_coll_has_root(collective))
				args.root = 0;
			if (args.root >= p || (p > 20 && r > 1))
				continue;
			for (kind = npulink_coll_is_v(collective) ? 0 : 2; kind < 3; kind++) {
				args.in_place = false;
				if (!prove(sweep, &args, kind))
					return false;
				args.in_place = true;
				if (!prove(sweep, &args, kind))
					return false;
			}
			if (!npulink_coll_has_root(collective))
				break;
		}
	}
	return true;
}

int main(int argc, char **argv)
{
	const struct coll_algorithm *alg = NULL;
	uint32_t only = argc > 3 ? atoi(argv[3]) : 0, p, n = 0;
	uint32_t last = getenv("NPULINK_SOAK") ? ALL_IN_SOAK : ALL_UP_TO;

	while ((alg = coll_algorithm_next(~0U, alg)))
		n++;
	ksft_print_header();
	if (argc == 1)
		ksft_set_plan(n);
	while ((alg = coll_algorithm_next(~0U, alg))) {
		const char *collective = coll_collective_name(alg->collective);
		struct sweep sweep = { .alg = alg };
		bool ok = true;
		size_t i;

		if ((argc > 1 && strcmp(argv[1], collective)) ||
		    (argc > 2 && strcmp(argv[2], alg->name)))
			continue;
		for (p = only ? only : 1; ok && p <= (only ? only : last); p++)
			ok = prove_ranks(&sweep, p);
		for (i = 0; ok && !only && i < ARRAY_SIZE(some); i++)
			ok = some[i] <= last || prove_ranks(&sweep, some[i]);
		if (!ok)
			ksft_print_msg("%s\n", sweep.bad);
		if (ok && !alg->commutative && sweep.out_of_order) {
			ksft_print_msg("changes the order of operands, and does not say so\n");
			ok = false;
		}
		ksft_test_result(ok, "%s %s: %llu sets, %llu steps, %llu messages\n", collective,
				 alg->name, (unsigned long long)sweep.calls,
				 (unsigned long long)sweep.steps,
				 (unsigned long long)sweep.messages);
	}
	if (argc > 1)
		return ksft_get_fail_cnt() ? KSFT_FAIL : KSFT_PASS;
	ksft_finished();
}
