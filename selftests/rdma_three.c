// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * rdma_three.c - three machines: every collective, with one rank on each and with two, and
 * what two machines tell the third.
 *
 * npulink-test: machines=3 mem=640 modules=none timeout=300 soak
 */
#include "remote.h"

static int all_collectives(struct coll_comm *comm, unsigned int rank)
{
	static const size_t counts[] = { 3, 40000 };
	int bad = 0;

	for (uint32_t coll = 0; coll < ARRAY_SIZE(trial_names) && !bad; coll++)
		for (size_t i = 0; i < ARRAY_SIZE(counts) && !bad; i++) {
			struct coll_case c = {
				.collective = coll, .count = counts[i], .dtype = COLL_INT32,
				.op = COLL_SUM, .root = trial_rooted(coll) ? 1 : 0,
				.in_place = i,
			};

			bad = remote_case(comm, rank, &c);
		}
	return bad;
}

/* Rank 2 gives up; 0 and 1 may have nothing to do with it at that moment. */
static int abort_reaches_all(struct coll_comm *comm, unsigned int rank)
{
	static char in[200000], out[200000];
	struct coll_state state;
	int rc = 0;

	while (!rc) {
		rc = coll_allreduce(comm, in, out, sizeof(in), COLL_INT8, COLL_SUM);
		if (rank == 2 && !rc)
			rc = coll_comm_abort(comm, 7) ? 1 : -ECANCELED;
	}
	if (rc != -ECANCELED || coll_comm_status(comm, &state) || state.rank != 2 ||
	    state.code != 7)
		return remote_fail("rank %u: %d: %s", rank, rc, coll_comm_last_error(comm));
	return 0;
}

int main(void)
{
	remote_setup(2, 20000);
	ksft_print_header();
	ksft_set_plan(5);
	ksft_test_result(!remote_ranks(1, all_collectives), "all collectives, 3 x 1\n");
	ksft_test_result(!remote_ranks(2, all_collectives), "all collectives, 3 x 2\n");
	ksft_test_result(!remote_ranks(1, abort_reaches_all), "an abort reaches all\n");
	ksft_test_result(remote_idle(), "no key and no connection is left\n");
	ksft_test_result(remote_teardown(), "the modules can be removed\n");
	ksft_finished();
}
