// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * blocks.c - the blocks of v forms, and displacements of them that are wrong: against the mock,
 * which has the kernel's verifier.
 */
#include "mock_pair.h"

static bool refused(int rc, int want, const char *words)
{
	const char *text = coll_comm_last_error(comms[0]);

	if (rc == want && strstr(text, words))
		return true;
	ksft_print_msg("%d, not %d: \"%s\" has no \"%s\"\n", rc, want, text, words);
	return false;
}

/* ---- blocks that overlap */

static void test_overlap(void)
{
	const size_t two[2] = { 2, 2 }, apart[2] = { 0, 2 }, over[2] = { 1, 0 };
	const char *words = "the blocks of ranks 0 and 1 in recv overlap (displs)";
	struct coll_comm *c;
	int *s = in[0], *r = out[0];

	setup(NULL);
	c = comms[0];
	ksft_test_result(refused(coll_allgatherv(c, s, r, two, over, COLL_INT32), -EINVAL, words),
			 "overlap: allgatherv\n");
	ksft_test_result(refused(coll_gatherv(c, s, r, two, over, COLL_INT32, 0), -EINVAL, words) &&
			 refused(coll_gatherv(c, COLL_IN_PLACE, r, two, over, COLL_INT32, 0),
				 -EINVAL, words), "overlap: gatherv\n");
	ksft_test_result(refused(coll_alltoallv(c, s, two, apart, r, two, over, COLL_INT32),
				 -EINVAL, "ranks 0 and 1 in recv overlap (rdispls)") &&
			 refused(coll_alltoallv(c, COLL_IN_PLACE, NULL, NULL, r, two, over,
						COLL_INT32),
				 -EINVAL, "ranks 0 and 1 in recv overlap (rdispls)"),
			 "overlap: alltoallv\n");
	ksft_test_result(refused(coll_reduce_scatterv(c, s, COLL_IN_PLACE, two, over, COLL_INT32,
						      COLL_SUM),
				 -EINVAL, "ranks 0 and 1 in the buffer overlap (displs)"),
			 "overlap: reduce_scatterv in place\n");
	ksft_test_result(!teardown(), "overlap: the communicator is as it was\n");
}

/* Rank 1 by request. What is only read may be read twice. */
static void test_read_twice(void)
{
	const size_t two[2] = { 2, 2 }, over[2] = { 1, 0 };
	struct coll_request *req;
	int bad;

	setup(NULL);
	memset(out, 0, sizeof(out));
	bad = coll_iscatterv(comms[1], NULL, out[1], two, over, COLL_INT32, 0, &req);
	bad |= coll_scatterv(comms[0], in[0], out[0], two, over, COLL_INT32, 0);
	bad |= coll_wait(&req);
	ksft_test_result(!bad && out[0][0] == 1 && out[0][1] == 2 && out[1][0] == 0 &&
			 out[1][1] == 1, "read twice: scatterv\n");
	bad = coll_ireduce_scatterv(comms[1], in[1], out[1], two, over, COLL_INT32, COLL_SUM, &req);
	bad |= coll_reduce_scatterv(comms[0], in[0], out[0], two, over, COLL_INT32, COLL_SUM);
	bad |= coll_wait(&req);
	ksft_test_result(!bad && out[0][0] == 3 && out[0][1] == 5 && out[1][0] == 1 &&
			 out[1][1] == 3, "read twice: reduce_scatterv\n");
	bad = coll_ialltoallv(comms[1], in[1], two, over, out[1], two, NULL, COLL_INT32, &req);
	bad |= coll_alltoallv(comms[0], in[0], two, over, out[0], two, NULL, COLL_INT32);
	bad |= coll_wait(&req);
	ksft_test_result(!bad && out[0][0] == 1 && out[0][1] == 2 && out[0][2] == 2 &&
			 out[0][3] == 3 && out[1][0] == 0 && out[1][1] == 1 && !teardown(),
			 "read twice: alltoallv\n");
}

/* ---- the kernel refuses none that was not refused before */

#define MAX_RANKS	9

static uint64_t seed = 88172645463325252ULL;

static uint64_t below(uint64_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed % n;
}

/* Some are 0, some overlap, some are much too large. */
static void any(uint64_t *v, uint32_t n, uint64_t usual)
{
	uint64_t end = below(16) ? usual : 1ULL << below(64);

	for (uint32_t i = 0; i < n; i++)
		v[i] = below(4) ? below(end) : 0;
}

static bool accepted(const struct coll_algorithm *alg, const struct coll_args *args)
{
	struct npulink_verdict verdict;
	struct npulink_plan_desc desc;
	struct coll_plan plan;
	bool ok;

	if (coll_plan_make(alg, args, &plan))
		return true;
	desc = coll_plan_desc(&plan);
	ok = !npulink_verify(&desc, &verdict) && !npulink_verify_races(&desc, &verdict);
	if (!ok)
		ksft_print_msg("%s: %s\n", alg->name, npulink_bad_reason(verdict.reason));
	coll_plan_free(&plan);
	return ok;
}

static void test_never_the_kernel(void)
{
	uint64_t v[4][MAX_RANKS];
	unsigned int tried = 0, found = 0, bad = 0;
	uint32_t ranks[2];

	while (tried < 20000 || found < 2000) {
		uint32_t n = 2 + below(MAX_RANKS - 1);
		struct coll_args a = {
			.collective = below(NPULINK_COLLS), .dtype = below(NPULINK_DTYPES),
			.redop = below(NPULINK_CALL_AVG + 1), .root = below(n), .nranks = n,
			.rank = below(n), .count = below(100), .counts = v[0], .displs = v[1],
			.rcounts = v[2], .rdispls = v[3], .peer = below(n), .send = below(2),
			.in_place = below(2),
		};

		for (int i = 0; i < 4; i++)
			any(v[i], n, i % 2 ? 200 : 20);
		v[2][a.rank] = v[0][a.rank];
		if (coll_args_check(&a))
			continue;
		if (coll_args_overlap(&a, ranks)) {
			found++;
			continue;
		}
		tried++;
		for (const struct coll_algorithm *alg = NULL;
		     (alg = coll_algorithm_next(a.collective, alg));)
			bad += !accepted(alg, &a);
	}
	ksft_test_result(!bad, "no plan is refused whose arguments were not (%u, %u overlap)\n",
			 tried, found);
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(5 + 3 + 1);
	test_overlap();
	test_read_twice();
	test_never_the_kernel();
	ksft_finished();
}
