// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * board_code.c - calls that the board takes and that differ have other codes, all of them: ranks
 * whose flags are equal are taken to have called the same.
 */
#include <stdint.h>
#include <stdlib.h>
#include "lib/run/board.h"
#include "lib/run/cache.h"
#include "lib/run/board_layout.h"
#include "kselftest.h"

#define CODES	(1U << 30)

static unsigned char *seen;	/* a bit each */
static const struct coll_algorithm algorithm = { .ordered = true };

/* How many of one kind the board takes; those whose code is another's, too, or nothing, are bad. */
static unsigned int all_of(struct coll_cached *plan, unsigned int *bad)
{
	bool counts = plan->args.collective != NPULINK_COLL_BARRIER;
	size_t most = counts ? 2 * BOARD_WIDE : 0;
	unsigned int taken = 0;
	uint32_t code;

	for (size_t count = 0; count <= most; count++) {
		plan->args.count = count;
		coll_board_describe(plan->alg, &plan->args, &plan->board);
		code = plan->board.code;
		if (!code)
			continue;
		taken++;
		if (code >= CODES || seen[code / 8] & 1 << code % 8)
			++*bad;
		else
			seen[code / 8] |= 1 << code % 8;
	}
	return taken;
}

static void test_ranks(uint32_t nranks)
{
	struct coll_cached plan = { .alg = &algorithm, .args.nranks = nranks };
	unsigned int taken = 0, bad = 0;

	seen = calloc(CODES / 8, 1);
	if (!seen)
		ksft_exit_fail_msg("no memory\n");
	for (uint32_t c = 0; c < NPULINK_COLLS; c++) {
		bool reduces = npulink_coll_reduces(c), typed = c != NPULINK_COLL_BARRIER;
		bool rooted = npulink_coll_has_root(c);

		plan.args.collective = c;
		for (uint32_t t = 0; t < (typed ? NPULINK_DTYPES : 1); t++) {
			plan.args.dtype = t;
			for (uint32_t op = 0; op <= (reduces ? NPULINK_CALL_AVG : 0); op++) {
				plan.args.redop = op;
				for (uint32_t r = 0; r < (rooted ? nranks : 1); r++) {
					plan.args.root = r;
					taken += all_of(&plan, &bad);
				}
			}
		}
	}
	ksft_print_msg("%u ranks: %u calls\n", nranks, taken);
	ksft_test_result(!bad && taken > 10000, "%u ranks: as many codes as calls\n", nranks);
	free(seen);
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(2);
	test_ranks(2);
	test_ranks(5);
	ksft_finished();
}
