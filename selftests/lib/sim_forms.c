// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * sim_forms.c - every closed form against the simulator: what is called exact is met
 * to 1e-9, upper bounds and lower bounds hold. One test per (collective, algorithm).
 *
 * Arguments: [COLLECTIVE [ALGORITHM]]
 *
 * npulink-test: timeout=300 san-soak
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "kselftest.h"
#include "lib/algorithm/algorithms.h"
#include "lib/simulate/check.h"

#if defined(__SANITIZE_ADDRESS__)
#define MAX_RANKS	33
#define SOAK_RANKS	33
#else
#define MAX_RANKS	64
#define SOAK_RANKS	128	/* in make soak */
#endif

int main(int argc, char **argv)
{
	const struct coll_algorithm *alg = NULL;
	uint32_t most = getenv("NPULINK_SOAK") ? SOAK_RANKS : MAX_RANKS, n = 0;

	while ((alg = coll_algorithm_next(~0U, alg)))
		n++;
	ksft_print_header();
	if (argc == 1)
		ksft_set_plan(n);
	while ((alg = coll_algorithm_next(~0U, alg))) {
		const char *collective = coll_collective_name(alg->collective);
		struct coll_sim_check r;
		bool ok;
		int rc;

		if ((argc > 1 && strcmp(argv[1], collective)) ||
		    (argc > 2 && strcmp(argv[2], alg->name)))
			continue;
		rc = coll_sim_check(alg, most, false, &r);
		ok = !rc && r.points && fabs(r.worst) <= COLL_SIM_CLOSE && !r.below && !r.stuck;
		if (!ok)
			ksft_print_msg("%d: %s: form %.9g, simulated %.9g; below the bound: %llu %s; stuck: %llu %s\n",
				       rc, r.where, r.form, r.simulated,
				       (unsigned long long)r.below, r.where_below,
				       (unsigned long long)r.stuck, r.text);
		ksft_test_result(ok, "%s %s: %llu calls, largest difference %.1e\n", collective,
				 alg->name, (unsigned long long)r.points, r.worst);
	}
	if (argc > 1)
		return ksft_get_fail_cnt() ? KSFT_FAIL : KSFT_PASS;
	ksft_finished();
}
