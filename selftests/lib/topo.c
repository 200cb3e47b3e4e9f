// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * topo.c - what coll_config.topology and COLL_TOPOLOGY may say, what is refused, and
 * what it changes in the choice of algorithm.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "lib/algorithm/algorithms.h"
#include "lib/tune/topo.h"
#include "lib/tune/tune.h"
#include "kselftest.h"

static char text[512];
static struct coll_topo topo;

static int init(const char *wiring, uint32_t nranks)
{
	text[0] = 0;
	return coll_topo_init(&topo, wiring, nranks, text, sizeof(text));
}

/* "0,0,1" */
static bool servers_are(const char *want)
{
	char have[200] = "";
	size_t n = 0;

	for (uint32_t r = 0; topo.server_of && r < strlen(want) / 2 + 1; r++)
		n += snprintf(have + n, sizeof(have) - n, "%s%u", r ? "," : "", topo.server_of[r]);
	return !strcmp(have, want);
}

static void test_good(void)
{
	ksft_test_result(!init("", 6) && !topo.rows && !topo.nservers && !topo.server_of,
			 "nothing said\n");
	ksft_test_result(!init("mesh:2x3", 6) && topo.rows == 2 && topo.cols == 3 &&
			 !topo.nservers, "mesh\n");
	coll_topo_free(&topo);
	ksft_test_result(!init("servers:4", 6) && topo.nservers == 2 && !topo.rows &&
			 servers_are("0,0,0,0,1,1"), "ranks per server\n");
	coll_topo_free(&topo);
	ksft_test_result(!init("servers:1,3,2", 6) && topo.nservers == 3 &&
			 servers_are("0,1,1,1,2,2"), "servers of several sizes\n");
	coll_topo_free(&topo);
	ksft_test_result(!init(" servers:3 ; mesh:2x3 ", 6) && topo.nservers == 2 &&
			 topo.rows == 2 && servers_are("0,0,0,1,1,1"), "both\n");
	coll_topo_free(&topo);
	ksft_test_result(!topo.server_of && !topo.rows, "freed\n");
	ksft_test_result(!init("ring", 6) && topo.ring && !topo.rows, "ring\n");
	coll_topo_free(&topo);
	ksft_test_result(!init("torus:3x2", 6) && topo.torus && topo.rows == 3 && topo.cols == 2,
			 "torus\n");
	coll_topo_free(&topo);
	ksft_test_result(!init("tree:2;servers:2", 6) && topo.group == 2 && topo.uplinks == 2 &&
			 topo.nservers == 3, "tree of servers\n");
	coll_topo_free(&topo);
	ksft_test_result(!init("full", 6) && !coll_topo_known(&topo), "full\n");
}

static void test_bad(void)
{
	static const struct {
		const char *wiring, *words;
	} bad[] = {
		{ "star", "not full, ring, mesh:" },
		{ "tree:", "not like tree:16" },
		{ "mesh:", "not like mesh:4x8" },
		{ "mesh:0x6", "not like mesh:4x8" },
		{ "mesh:2x", "not like mesh:4x8" },
		{ "mesh:2x3x1", "not like mesh:4x8" },
		{ "mesh:2x2", "not as many nodes" },
		{ "mesh:2x99999999999999999999", "not like mesh:4x8" },
		{ "mesh:2x3;mesh:3x2", "said twice" },
		{ "servers:", "not like servers:8" },
		{ "servers:0", "not like servers:8" },
		{ "servers:3,2", "fewer ranks" },
		{ "servers:3,4", "more ranks" },
		{ "servers:3,3,", "not like servers:8" },
		{ "servers:3;servers:3", "said twice" },
		{ "mesh:2x3 servers", "not full, ring, mesh:" },
		{ "ring;torus:2x3", "said twice" },
		{ "torus:2x2", "not as many nodes" },
		{ "tree:2:3", "more uplinks" },
	};

	for (unsigned int i = 0; i < ARRAY_SIZE(bad); i++) {
		int rc = init(bad[i].wiring, 6);

		if (rc != -EINVAL || !strstr(text, bad[i].words))
			ksft_print_msg("%d: %s\n", rc, text);
		ksft_test_result(rc == -EINVAL && strstr(text, bad[i].words) && !topo.rows &&
				 !topo.server_of, "\"%s\" is refused\n", bad[i].wiring);
	}
}

static void test_environment(void)
{
	setenv("COLL_TOPOLOGY", "mesh:3x2", 1);
	ksft_test_result(!init(NULL, 6) && topo.rows == 3, "COLL_TOPOLOGY\n");
	coll_topo_free(&topo);
	ksft_test_result(!init("", 6) && !topo.rows, "the caller's word goes first\n");
	setenv("COLL_TOPOLOGY", "mesh:3x3", 1);
	ksft_test_result(init(NULL, 6) == -EINVAL && strstr(text, "mesh:3x3"),
			 "COLL_TOPOLOGY that does not fit\n");
	unsetenv("COLL_TOPOLOGY");
	ksft_test_result(!init(NULL, 6) && !topo.rows && !topo.nservers, "no COLL_TOPOLOGY\n");
}

static const char *choice(const struct coll_topo *wiring, uint32_t nranks, uint64_t count)
{
	struct coll_args args = {
		.collective = NPULINK_COLL_BROADCAST, .dtype = NPULINK_INT8, .nranks = nranks,
		.root = 1, .count = count, .topo = wiring,
	};
	const struct coll_algorithm *alg;
	struct coll_tune tune;
	double seconds;
	int rc;

	if (coll_tune_init(&tune, "", "", nranks, text, sizeof(text)))
		return "";
	rc = coll_tune_choose(&tune, &args, &alg, &seconds, text, sizeof(text));
	coll_tune_free(&tune);
	return rc ? "" : alg->name;
}

/* On a mesh a tree that meets itself on no link goes before one of the same cost. */
static void test_choice(void)
{
	ksft_test_result(!strcmp(choice(NULL, 12, 8), "binomial"), "without a mesh: binomial\n");
	init("mesh:3x4", 12);
	ksft_test_result(!strcmp(choice(&topo, 12, 8), "rsbcast"), "3 x 4: rsbcast\n");
	coll_topo_free(&topo);
	init("mesh:4x4", 16);
	ksft_test_result(!strcmp(choice(&topo, 16, 8), "hypercube-reversed"),
			 "4 x 4: hypercube-reversed\n");
	coll_topo_free(&topo);
}

static const char *allreduce(const char *wiring, uint32_t nranks)
{
	struct coll_args args = {
		.collective = NPULINK_COLL_ALLREDUCE, .dtype = NPULINK_INT8, .nranks = nranks,
		.count = 16000000, .topo = &topo,
	};
	const struct coll_algorithm *alg;
	struct coll_tune tune;
	double seconds;

	if (init(wiring, nranks) || coll_tune_init(&tune, "", "", nranks, text, sizeof(text)))
		return "";
	if (coll_tune_choose(&tune, &args, &alg, &seconds, text, sizeof(text)))
		return "";
	coll_tune_free(&tune);
	coll_topo_free(&topo);
	return alg->name;
}

/* What meets itself on links loses, though its form is the cheapest. */
static void test_contention(void)
{
	const char *name = allreduce("mesh:12x17", 204);

	ksft_test_result(!strcmp(name, "ring"), "12 x 17, 16 MB: ring (%s)\n", name);
	name = allreduce("mesh:8x8", 64);
	ksft_test_result(!strcmp(name, "ring"), "8 x 8, 16 MB: ring (%s)\n", name);
	name = allreduce("full", 204);
	ksft_test_result(!strcmp(name, "nb"), "204 ranks with links between all: nb (%s)\n", name);
}

/* Ranks of a server that are not one after the other. */
static void test_scattered(void)
{
	const uint32_t machine[] = { 0, 1, 0, 1 };
	struct coll_args args = {
		.collective = NPULINK_COLL_ALLREDUCE, .nranks = 4, .count = 4, .topo = &topo,
	};
	const char *why;

	topo = (struct coll_topo) { };
	coll_topo_machines(&topo, machine, 4);
	why = coll_algorithm_find(NPULINK_COLL_ALLREDUCE, "two-level")->supports(&args);
	ksft_test_result(why && strstr(why, "not one after the other"),
			 "by node: says why not two levels\n");
	coll_topo_free(&topo);
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(6 + 4 + 19 + 4 + 3 + 3 + 1);
	test_good();
	test_bad();
	test_environment();
	test_choice();
	test_contention();
	test_scattered();
	ksft_finished();
}
