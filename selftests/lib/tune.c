// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * tune.c - the choice of algorithm: overrides, calibration files, and that all ranks
 * choose alike.
 */
#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "lib/algorithm/algorithms.h"
#include "lib/run/dev.h"
#include "lib/tune/calibration.h"
#include "lib/tune/choices.h"
#include "lib/tune/topo.h"
#include "lib/tune/tune.h"
#include "kselftest.h"

static char text[512];

static int init(struct coll_tune *tune, const char *file, const char *overrides)
{
	text[0] = 0;
	return coll_tune_init(tune, file, overrides, 8, text, sizeof(text));
}

/* The name that an allreduce of so many bytes gets, or NULL. */
static const char *choice(const struct coll_tune *tune, uint32_t collective, uint64_t count)
{
	struct coll_args args = {
		.collective = collective, .dtype = NPULINK_INT8, .nranks = 8, .count = count,
	};
	const struct coll_algorithm *alg;
	double seconds;

	if (coll_tune_choose(tune, &args, &alg, &seconds, text, sizeof(text)))
		return NULL;
	return alg->name;
}

static void test_overrides(void)
{
	struct coll_tune t;

	ksft_test_result(!init(&t, "", "allreduce:0-4k:mesh;4k-:ring") &&
			 !strcmp(choice(&t, NPULINK_COLL_ALLREDUCE, 0), "mesh") &&
			 !strcmp(choice(&t, NPULINK_COLL_ALLREDUCE, 4095), "mesh") &&
			 !strcmp(choice(&t, NPULINK_COLL_ALLREDUCE, 4096), "ring") &&
			 !strcmp(choice(&t, NPULINK_COLL_ALLREDUCE, 1ULL << 33), "ring"),
			 "override by size\n");
	coll_tune_free(&t);
	ksft_test_result(!init(&t, "",
			       " allgather:ring ; broadcast : 1M-1g:ring;allreduce:ring;") &&
			 !strcmp(choice(&t, NPULINK_COLL_ALLGATHER, 1), "ring") &&
			 !strcmp(choice(&t, NPULINK_COLL_BROADCAST, 1 << 20), "ring"),
			 "override of several collectives\n");
	coll_tune_free(&t);
	/* The payload of allgather is that of all shards. */
	ksft_test_result(!init(&t, "", "allgather:0-64:mesh;64-:ring") &&
			 !strcmp(choice(&t, NPULINK_COLL_ALLGATHER, 7), "mesh") &&
			 !strcmp(choice(&t, NPULINK_COLL_ALLGATHER, 8), "ring"),
			 "override counts all shards\n");
	coll_tune_free(&t);
}

static void test_bad_overrides(void)
{
	static const struct {
		const char *override, *words;
	} bad[] = {
		{ "allreduce:fastest", "it has ring" },
		{ "allredoce:ring", "no collective" },
		{ "0-4k:ring", "must begin with a collective" },
		{ "allreduce:4k:ring", "no range" },
		{ "allreduce:4k-1k:ring", "no range" },
		{ "allreduce:0-4x:ring", "no range" },
		{ "allreduce:0-99999999999g:ring", "no range" },
		{ "allreduce:0-4k:mesh;2k-:ring", "two algorithms" },
		{ "allreduce:0-4k:mesh:ring", "COLLECTIVE:FROM-TO:ALGORITHM" },
		{ "allreduce", "COLLECTIVE:FROM-TO:ALGORITHM" },
		{ "alltoallv:0-4k:pairwise", "differs between ranks" },
		{ "allreduce::ring", "no range" },
		{ "allreduce:ring:", "no range" },
		{ "allreduce:0-4k:ring:", "COLLECTIVE:FROM-TO:ALGORITHM" },
		{ "allreduce:", "no algorithm \"\"" },
		{ ":ring", "no collective" },
	};
	struct coll_tune t;

	for (unsigned int i = 0; i < ARRAY_SIZE(bad); i++) {
		int rc = init(&t, "", bad[i].override);

		if (rc != -EINVAL || !strstr(text, bad[i].words))
			ksft_print_msg("%d: %s\n", rc, text);
		ksft_test_result(rc == -EINVAL && strstr(text, bad[i].words), "\"%s\" is refused\n",
				 bad[i].override);
	}
}

static const char *refuse(const struct coll_args *args)
{
	return args->count > 5 ? "it is a test" : NULL;
}

static void test_override_not_honoured(void)
{
	struct coll_algorithm alg;
	struct coll_tune t;

	init(&t, "", "allreduce:ring");
	alg = *t.overrides[0].alg;
	alg.supports = refuse;
	t.overrides[0].alg = &alg;
	ksft_test_result(choice(&t, NPULINK_COLL_ALLREDUCE, 5) &&
			 !choice(&t, NPULINK_COLL_ALLREDUCE, 6) &&
			 strstr(text, "ring, which cannot do it: it is a test"),
			 "an override that cannot be honoured is an error\n");
	coll_tune_free(&t);
}

static void test_environment(void)
{
	struct coll_tune t;

	setenv("COLL_ALGORITHM", "allreduce:ring", 1);
	ksft_test_result(!init(&t, "", NULL) && t.noverrides == 1, "COLL_ALGORITHM\n");
	coll_tune_free(&t);
	ksft_test_result(!init(&t, "", "") && !t.noverrides, "the caller's word goes first\n");
	coll_tune_free(&t);
	unsetenv("COLL_ALGORITHM");
	setenv("COLL_CALIBRATION", "/nonexistent", 1);
	ksft_test_result(init(&t, NULL, "") == -ENOENT && strstr(text, "/nonexistent"),
			 "COLL_CALIBRATION that does not exist\n");
	unsetenv("COLL_CALIBRATION");
}

static int with_bytes(struct coll_tune *t, const char *content, size_t len)
{
	char path[] = "/tmp/npulink-calibration-XXXXXX";
	int fd = mkstemp(path), rc;

	if (write(fd, content, len) < 0)
		return -EIO;
	close(fd);
	rc = init(t, path, "");
	unlink(path);
	return rc;
}

static int with_file(struct coll_tune *t, const char *content)
{
	return with_bytes(t, content, strlen(content));
}

/* Refused, with the path, @why and, if it is not 0, the line. */
static bool refused(int rc, unsigned int line, const char *why)
{
	char at[32];

	snprintf(at, sizeof(at), ", line %u: ", line);
	if (rc == -EINVAL && strstr(text, "npulink-calibration-") && strstr(text, at) &&
	    strstr(text, why))
		return true;
	ksft_print_msg("%d: %s\n", rc, text);
	return false;
}

/* What is not understood counts for nothing, so it is an error, and says where. */
static void test_strict(void)
{
	static const char *const none[] = {
		"aplha = 1e-6\n", "Alpha = 1e-6\n", "far.aplha = 1e-6\n", "far = 1\n", " = 1\n",
		"gamma. = 1e-10\n", "gammas = 1\n", "cpu.reduce.float = 1\n", "alpha.int8 = 1\n",
		"alpha\302\240= 1e-6\n",
	};
	static const char *const no_number[] = {
		"alpha =\n", "alpha = 1e-6s\n", "alpha = 1,5e-6\n", "alpha = nan\n",
		"alpha = inf\n", "alpha = 1e-6 1e-6\n", "alpha = = 1\n", "ports = 2\n",
		"ports =\n", "processors = 4294967296\n",
	};
	char huge[10000];
	struct coll_tune t;
	bool ok = true;

	for (size_t i = 0; i < ARRAY_SIZE(none); i++)
		ok &= refused(with_file(&t, none[i]), 1, "there is no \"");
	ksft_test_result(ok, "calibration: names that are none\n");
	ok = true;
	for (size_t i = 0; i < ARRAY_SIZE(no_number); i++)
		ok &= refused(with_file(&t, no_number[i]), 1, "is not ");
	ksft_test_result(ok, "calibration: numbers that are none\n");
	ksft_test_result(refused(with_file(&t, "# two\nalpha = 1\nbeta = 1\nalpha = 1\n"), 4,
				 "before") &&
			 refused(with_file(&t, "gamma.int8 = 1\ngamma.int8 = 1\n"), 2, "before"),
			 "calibration: the same twice\n");
	ksft_test_result(refused(with_file(&t, "\357\273\277alpha = 1e-6\n"), 1,
				 "byte order mark"), "calibration: byte order mark\n");
	memset(huge, ' ', sizeof(huge));
	ksft_test_result(refused(with_bytes(&t, "#\na\0=1\n", 8), 2, "byte 0") &&
			 refused(with_bytes(&t, huge, sizeof(huge)), 1, "too long") &&
			 init(&t, "/dev/zero", "") == -EINVAL, "calibration: no text\n");
	ksft_test_result(init(&t, "/", "") == -EISDIR && strstr(text, "/: Is a directory"),
			 "calibration: a directory\n");
	/* Of no length: read() is what fails, as that of a disk does. */
	ksft_test_result(init(&t, "/proc/self/mem", "") == -EIO &&
			 strstr(text, "/proc/self/mem, line 1: Input/output error"),
			 "calibration: an error of reading\n");
	ksft_test_result(!init(&t, "/dev/null", "") && t.calibrated, "calibration: an empty file\n");
	/* The usual one need not be there, which is nothing to speak of. */
	if (access("/etc/npulink/calibration", F_OK))
		ksft_test_result(!init(&t, NULL, "") && !t.calibrated && !*text,
				 "calibration: no usual file\n");
	else
		ksft_test_result_skip("calibration: there is the usual file\n");
	coll_tune_free(&t);
}

static void test_calibration(void)
{
	struct coll_tune t;

	ksft_test_result(!with_file(&t, "# measured\nalpha = 1e-5\n beta=2e-10 # s/B\n\n"
				    "gamma\t=\t3e-11\r\nports = all") &&
			 t.params.alpha == 1 / 1e5 && t.params.beta == 2 / 1e10 &&
			 t.params.gamma == 3 / 1e11 && t.params.ports == 7, "calibration file\n");
	ksft_test_result(with_file(&t, "alpha = 1e-5\nbeta = fast\n") == -EINVAL &&
			 strstr(text, "line 2"), "calibration: not a number\n");
	ksft_test_result(with_file(&t, "alpha = -1\n") == -EINVAL, "calibration: negative\n");
	ksft_test_result(with_file(&t, "hello\n") == -EINVAL, "calibration: no assignment\n");
	ksft_test_result(with_file(&t, "ports = 3\n") == -EINVAL, "calibration: ports\n");
}

static void test_calibration_by_type(void)
{
	struct coll_tune t;

	ksft_test_result(!with_file(&t, "gamma = 1e-10\ngamma.float16 = 7e-10\n") &&
			 t.gamma[NPULINK_FLOAT16] == 7 / 1e10 && t.gamma[NPULINK_INT8] == 1 / 1e10,
			 "calibration: gamma of a type\n");
	ksft_test_result(!with_file(&t, "processors = 2\ncpu.call = 1e-5\ncpu.message = 2e-6\n"
				    "cpu.request = 3e-6\ncpu.copy = 4e-10\ncpu.reduce = 5e-10\n"
				    "cpu.reduce.int32 = 6e-10\n") &&
			 t.work.processors == 2 && t.work.call == 1 / 1e5 &&
			 t.work.message == 2 / 1e6 && t.work.request == 3 / 1e6 &&
			 t.work.copy == 4 / 1e10 &&
			 t.work.reduces[NPULINK_INT8] == 5 / 1e10 &&
			 t.work.reduces[NPULINK_INT32] == 6 / 1e10, "calibration: processors\n");
	ksft_test_result(with_file(&t, "gamma.int7 = 1e-10\n") == -EINVAL &&
			 with_file(&t, "gamma.int8 = x\n") == -EINVAL &&
			 with_file(&t, "cpu.reduce.int8 =\n") == -EINVAL &&
			 with_file(&t, "cpu.copy = -1\n") == -EINVAL &&
			 with_file(&t, "processors = 1.5\n") == -EINVAL &&
			 with_file(&t, "processors = -1\n") == -EINVAL,
			 "calibration: numbers and types that are none\n");
}

/* Nothing but the processors' time counts if all ranks are on one. */
static void test_work(void)
{
	const struct coll_algorithm *alg = coll_algorithm_find(NPULINK_COLL_ALLREDUCE, "ring");
	struct coll_args args = {
		.collective = NPULINK_COLL_ALLREDUCE, .dtype = NPULINK_INT8, .nranks = 8,
		.count = 8000,
	};
	struct coll_work work;
	struct coll_tune t;
	double want, got;

	ksft_test_result(!coll_work_count(alg, &args, &work) && work.messages == 8 * 14 &&
			 work.requests == 8 * 14 && work.reduced == 8 * 7000 &&
			 work.copied == 8 * 7000, "what a ring does\n");
	init(&t, "", "");
	ksft_test_result(coll_tune_predict(&t, alg, &args) == alg->cost(&args, &t.params),
			 "without processors the form counts\n");
	t.work = (struct coll_work_costs) {
		.processors = 1, .call = 1, .message = 10, .request = 100, .copy = 0.5,
	};
	t.work.reduces[NPULINK_INT8] = 2;
	want = 8 + 10 * 112 + 100 * 112 + 0.5 * 56000 + 2 * 56000;
	got = coll_tune_predict(&t, alg, &args);
	ksft_test_result(got >= want && got <= 1.01 * want, "one processor does it all\n");
	args.collective = NPULINK_COLL_REDUCE;
	got = coll_tune_predict(&t, coll_algorithm_find(args.collective, "ring"), &args);
	want = coll_tune_predict(&t, coll_algorithm_find(args.collective, "binomial"), &args);
	ksft_test_result(want < got && got <= 1.01 * want, "of equal work, the shorter way\n");
	args.collective = NPULINK_COLL_ALLREDUCE;
	/* 64 are few enough to do with half of them, but not to wait for nobody. */
	t.work.processors = 64;
	t.params.alpha = 1000;
	ksft_test_result(coll_tune_predict(&t, alg, &args) >= 14 * 1000,
			 "with a processor for each rank the form counts\n");
	coll_tune_free(&t);
	args.nranks = 1000;
	args.count = 1000;
	ksft_test_result(!coll_work_count(alg, &args, &work) && work.messages == 1000 * 1998,
			 "a thousand ranks, some of them counted\n");
}

/* What the last rank to call does for all takes no turns, and no path. */
static void test_script(void)
{
	static const uint32_t servers[8] = { 0, 0, 0, 0, 1, 1, 1, 1 };
	const struct coll_topo two = { .nservers = 2, .server_of = (uint32_t *)servers };
	const struct npulink_device_info info = {
		.out_processors = 2, .out_graph_bytes = 256 << 10,
		.out_gathers = 1 << NPULINK_COLL_ALLREDUCE,
	};
	struct coll_args args = {
		.collective = NPULINK_COLL_ALLREDUCE, .dtype = NPULINK_INT32, .nranks = 8,
		.count = 16384,
	};
	const struct coll_algorithm *mesh = coll_algorithm_find(args.collective, "mesh");
	const struct coll_algorithm *rhd = coll_algorithm_find(args.collective, "rhd");
	const uint64_t n = 65536;
	struct coll_work work;
	struct coll_tune t, other;
	float costs[COLL_COSTS];
	double cost, want;

	init(&t, "", "");
	coll_dev_costs(&info, &t, 8);
	/* p inputs of each shard and the sum, then the sums of p - 1 others, read and written. */
	ksft_test_result(!coll_work_count(mesh, &args, &work) && work.touched == 9 * n + 14 * n,
			 "what a mesh touches\n");
	want = 4 * t.work.call + work.requests * t.work.message + 23 * n * t.work.copy / 2 +
	       work.reduced * (t.work.reduces[NPULINK_INT32] - t.work.copy);
	cost = coll_tune_predict(&t, mesh, &args);
	ksft_test_result(cost > 0.999 * want && cost < 1.001 * want, "one rank does it for all\n");
	ksft_test_result(coll_tune_predict(&t, rhd, &args) > cost,
			 "what touches more than it may takes turns\n");
	init(&other, "", "");
	coll_calibration_pack(&t, costs);
	coll_calibration_unpack(&other, costs, 8);
	want = coll_tune_predict(&other, mesh, &args);
	ksft_test_result(cost > 0.999 * want && cost < 1.001 * want, "other ranks count on it, too\n");
	coll_tune_free(&other);
	args.topo = &two;
	ksft_test_result(coll_tune_predict(&t, mesh, &args) != cost, "not on two machines\n");
	args.topo = NULL;
	t.gathers = 0;
	ksft_test_result(coll_tune_predict(&t, mesh, &args) != cost, "not in other collectives\n");
	t.gathers = info.out_gathers;
	t.graph_bytes = 0;
	ksft_test_result(coll_tune_predict(&t, mesh, &args) != cost, "not if the device says no\n");
	t.calibrated = true;
	t.work.processors = 0;
	coll_dev_costs(&info, &t, 8);
	ksft_test_result(!t.work.processors, "what was measured is not guessed\n");
	coll_tune_free(&t);
}

/* Two machines of four ranks: what goes between them is counted, and costs. */
static void test_far(void)
{
	const struct coll_algorithm *ring = coll_algorithm_find(NPULINK_COLL_ALLREDUCE, "ring");
	const struct coll_algorithm *two, *near, *far;
	struct coll_args args = {
		.collective = NPULINK_COLL_ALLREDUCE, .dtype = NPULINK_INT8, .nranks = 8,
		.count = 8000,
	};
	struct coll_work work, less;
	struct coll_topo topo;
	struct coll_tune t, other;
	float costs[COLL_COSTS], again[COLL_COSTS];
	double a, b, seconds;

	two = coll_algorithm_find(NPULINK_COLL_ALLREDUCE, "two-level");
	if (coll_topo_init(&topo, "servers:4", 8, text, sizeof(text)))
		ksft_exit_fail_msg("%s\n", text);
	args.topo = &topo;
	/* One rank of each machine sends all that goes out: 14 messages of 1000 bytes. */
	ksft_test_result(!coll_work_count(ring, &args, &work) && work.far_messages == 14 &&
			 work.far_bytes == 14000, "far: what a ring does\n");
	with_file(&t, "alpha = 1\nbeta = 0.001\nfar.alpha = 100\nfar.beta = 0.5\n");
	a = coll_tune_predict(&t, ring, &args);
	ksft_test_result(a >= 14 * 100 + 0.5 * 14000 && a <= 1.01 * (14 * 100 + 0.5 * 14000),
			 "far: what it takes\n");
	args.topo = NULL;
	b = coll_tune_predict(&t, ring, &args);
	args.topo = &topo;
	ksft_test_result(b == ring->cost(&args, &t.params), "far: not on one machine\n");
	coll_topo_free(&topo);
	/* Three machines of three; halving, which would do for two of four, is no use. */
	if (coll_topo_init(&topo, "servers:3", 9, text, sizeof(text)))
		ksft_exit_fail_msg("%s\n", text);
	args.nranks = 9;
	args.count = 90000;
	coll_tune_choose(&t, &args, &far, &seconds, text, sizeof(text));
	coll_work_count(far, &args, &less);
	init(&other, "", "");
	coll_tune_choose(&other, &args, &near, &seconds, text, sizeof(text));
	coll_work_count(near, &args, &work);
	ksft_test_result(far == two && near != two && less.far_bytes < work.far_bytes,
			 "far: %s, %g bytes, instead of %s, %g bytes\n", far->name, less.far_bytes,
			 near->name, work.far_bytes);
	args.nranks = 8;
	args.count = 8000;
	coll_topo_free(&topo);
	coll_topo_init(&topo, "servers:4", 8, text, sizeof(text));
	/* As a rank that has another file learns them. */
	coll_calibration_pack(&t, costs);
	coll_calibration_unpack(&other, costs, 8);
	coll_calibration_pack(&other, again);
	ksft_test_result(!memcmp(costs, again, sizeof(costs)) && other.far_beta == 0.5 &&
			 coll_tune_predict(&other, ring, &args) > 0.999 * a, "far: told to others\n");
	coll_tune_free(&t);
	coll_tune_free(&other);
	coll_topo_free(&topo);
}

/* Limits that are powers of two hold for a class as for each count in it. */
static void test_classes(void)
{
	bool good = coll_tune_class(UINT64_MAX) > UINT64_MAX / 16 * 15;

	for (uint64_t count = 0; count < 1 << 17; count++) {
		uint64_t class = coll_tune_class(count);

		good &= coll_tune_class(class) == class && (count & (count - 1) || class == count);
		for (uint64_t limit = 1; limit < 1 << 18; limit *= 2)
			good &= (count > limit) == (class > limit) &&
				(count < limit) == (class < limit);
	}
	ksft_test_result(good, "classes of counts\n");
}

/* What is remembered is what would be chosen, whatever came between. */
static void test_choices(const struct coll_tune *t)
{
	const uint64_t some[8] = { 1, 0, 5, 0, 9, 2, 2, 2 };
	static struct coll_choices choices;
	const struct coll_algorithm *alg[2];
	double seconds[2];
	bool good = true;
	char text[200];

	for (uint32_t c = 0; c < NPULINK_COLL_P2P; c++) {
		for (uint64_t count = 1; count < 5000; count += 1 + count / 3) {
			struct coll_args args = {
				.collective = c, .dtype = count % 3 ? NPULINK_FLOAT32 : NPULINK_INT8,
				.redop = count % 2, .nranks = 8, .root = count % 8,
				.count = count, .counts = some, .rcounts = some,
			};

			for (int i = 0; i < 3; i++)
				good &= !coll_choices_get(&choices, t, &args, &alg[0], &seconds[0],
							  text, sizeof(text));
			good &= !coll_tune_choose(t, &args, &alg[1], &seconds[1], text,
						  sizeof(text)) &&
				alg[0] == alg[1] && seconds[0] == seconds[1];
		}
	}
	ksft_test_result(good, "choices are remembered\n");
}

/* Whatever differs between ranks must not count. */
static void test_ranks_agree(void)
{
	uint64_t some[8] = { 1, 0, 5, 0, 9, 2, 2, 2 }, others[8] = { 7, 7, 1, 0, 0, 0, 3, 3 };
	const struct coll_algorithm *first, *alg;
	struct coll_tune t;
	double seconds, cost;
	bool agree = true;

	init(&t, "", "");
	for (uint32_t c = 0; c < NPULINK_COLL_P2P; c++) {
		for (uint64_t count = 0; count < 1 << 22; count = 3 * count + 1) {
			for (uint32_t rank = 0; rank < 8; rank++) {
				struct coll_args args = {
					.collective = c, .dtype = NPULINK_FLOAT32, .nranks = 8,
					.root = 3, .rank = rank, .count = count,
					.in_place = rank % 2, .counts = some,
				};

				if (c == NPULINK_COLL_ALLTOALLV) {
					args.counts = rank % 2 ? NULL : some;
					args.rcounts = rank % 3 ? some : others;
				}
				if (coll_tune_choose(&t, &args, &alg, &cost, text, sizeof(text))) {
					ksft_print_msg("%s\n", text);
					agree = false;
					continue;
				}
				if (!rank) {
					first = alg;
					seconds = cost;
				}
				agree &= alg == first && cost == seconds;
			}
		}
	}
	ksft_test_result(agree, "all ranks choose alike\n");
	test_classes();
	test_choices(&t);
	coll_tune_free(&t);
}

/* A program may speak a language that writes 1,5: files and variables do not. */
static void test_language(void)
{
	char dir[] = "/tmp/npulink-tune-XXXXXX", command[200], file[60], number[8] = "";
	struct coll_tune t;
	FILE *f;
	int rc;

	if (!mkdtemp(dir))
		ksft_exit_fail_msg("cannot make %s\n", dir);
	snprintf(command, sizeof(command),
		 "localedef --no-archive -c -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1", dir);
	rc = system(command);
	setenv("LOCPATH", dir, 1);
	if (setlocale(LC_ALL, "de_DE.UTF-8"))
		snprintf(number, sizeof(number), "%.1f", 1.5);
	if (strcmp(number, "1,5")) {
		ksft_test_result_skip("no German here (localedef: %d)\n", rc);
		goto out;
	}
	snprintf(file, sizeof(file), "%s/calibration", dir);
	f = fopen(file, "we");
	if (!f || fputs("alpha = 1.5e-6\n", f) < 0 || fclose(f))
		ksft_exit_fail_msg("cannot write %s\n", file);
	rc = init(&t, file, NULL);
	ksft_test_result(!rc && t.params.alpha == 1.5e-6, "numbers in a language with a comma\n");
	if (!rc)
		coll_tune_free(&t);
out:
	setlocale(LC_ALL, "C");
	unsetenv("LOCPATH");
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	if (system(command))
		ksft_print_msg("cannot remove %s\n", dir);
}

/* Messages that rank 3 sends of so many bytes by this row, as programs plan it; its form too. */
static uint64_t chunks_sent(const struct coll_tune *t, const struct coll_algorithm *alg,
			    const struct coll_topo *topo, uint32_t nranks, double *seconds)
{
	struct coll_args args = {
		.collective = alg->collective, .dtype = NPULINK_FLOAT32, .nranks = nranks,
		.rank = 3, .count = 25000000, .topo = topo,
	};
	struct coll_cost_params network = coll_tune_network(t, &args);
	struct coll_plan_stats stats = { };
	struct coll_plan plan;

	*seconds = coll_tune_predict(t, alg, &args);
	args.network = &network;
	if (coll_plan_make(alg, &args, &plan))
		return 0;
	coll_plan_stats(&plan, &stats);
	coll_plan_free(&plan);
	return stats.sends;
}

/* Pipelines take the best number of chunks for the network at hand: k* of their forms. */
static void test_chunks(void)
{
	const struct coll_algorithm *chain = coll_algorithm_find(NPULINK_COLL_BROADCAST,
								 "chain-pipelined");
	const struct coll_algorithm *fence = coll_algorithm_find(NPULINK_COLL_BROADCAST, "fence");
	const struct coll_algorithm *two = coll_algorithm_find(NPULINK_COLL_ALLREDUCE,
							       "two-level");
	float costs[COLL_COSTS];
	struct coll_tune t, other;
	struct coll_topo topo;
	double s, form;
	uint64_t k;

	init(&t, "", "");
	k = chunks_sent(&t, chain, NULL, 8, &s);
	ksft_test_result(k == 274, "chain of 8, 2 us, 4 GB/s: 274 chunks (%u)\n",
			 (unsigned int)k);
	t.params.alpha = 10 / 1e6;
	t.params.beta = 1 / 1e11;
	k = chunks_sent(&t, chain, NULL, 8, &s);
	ksft_test_result(k == 24 && s > 1.54e-3 && s < 1.56e-3,
			 "chain of 8, 10 us, 100 GB/s: 24 chunks (%u), 1.55 ms (%g)\n",
			 (unsigned int)k, s);
	coll_topo_init(&topo, "mesh:8x8", 64, text, sizeof(text));
	chunks_sent(&t, fence, &topo, 64, &s);
	ksft_test_result(s > 1.95e-3 && s < 1.97e-3, "fence of 8x8: 1.96 ms (%g)\n", s);
	coll_topo_free(&topo);
	/* 64 MB in 64 ranks: one chunk, where there were eight. */
	coll_topo_init(&topo, "servers:8", 64, text, sizeof(text));
	k = chunks_sent(&t, two, &topo, 64, &s);
	ksft_test_result(k == 2 * 7 + 2 * 7 || k == 2 * (2 * 7 + 2 * 7),
			 "two levels: one chunk or two (%u messages)\n", (unsigned int)k);
	coll_topo_free(&topo);
	/* Ranks whose files differ go by the numbers of one. */
	init(&other, "", "");
	coll_calibration_pack(&t, costs);
	coll_calibration_unpack(&other, costs, 8);
	coll_calibration_unpack(&t, costs, 8);
	k = chunks_sent(&t, chain, NULL, 8, &form);
	ksft_test_result(chunks_sent(&other, chain, NULL, 8, &s) == k && s == form,
			 "all ranks take the same number\n");
	coll_tune_free(&other);
	coll_tune_free(&t);
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(3 + 16 + 1 + 3 + 5 + 9 + 3 + 8 + 6 + 5 + 1 + 3 + 5);
	test_overrides();
	test_bad_overrides();
	test_override_not_honoured();
	test_environment();
	test_calibration();
	test_strict();
	test_calibration_by_type();
	test_work();
	test_script();
	test_far();
	test_ranks_agree();
	test_language();
	test_chunks();
	ksft_finished();
}
