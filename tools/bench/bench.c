// SPDX-License-Identifier: GPL-2.0
/*
 * bench.c - npulink bench: measures a collective among processes of this node or of several,
 * with the options and the table of nccl-tests, and checks what comes out.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>
#include <linux/npulink.h>
#include "bench/bench.h"
#include "cli/aliases.h"
#include "cli/npulink.h"
#include "lib/algorithm/algorithms.h"
#include "lib/plan/plan.h"
#include "lib/tune/calibration.h"

static double factor_one(double n)
{
	return 1;
}

static double factor_shards(double n)
{
	return (n - 1) / n;
}

static double factor_allreduce(double n)
{
	return 2 * (n - 1) / n;
}

static const struct bench_coll colls[] = {
	{ "allreduce", NPULINK_COLL_ALLREDUCE, true, false, false, true, factor_allreduce },
	{ "reduce_scatter", NPULINK_COLL_REDUCE_SCATTER, true, false, true, true, factor_shards },
	{ "allgather", NPULINK_COLL_ALLGATHER, false, false, true, true, factor_shards },
	{ "alltoall", NPULINK_COLL_ALLTOALL, false, false, true, true, factor_shards },
	{ "broadcast", NPULINK_COLL_BROADCAST, false, true, false, true, factor_one },
	{ "reduce", NPULINK_COLL_REDUCE, true, true, false, true, factor_one },
	{ "gather", NPULINK_COLL_GATHER, false, true, true, true, factor_shards },
	{ "scatter", NPULINK_COLL_SCATTER, false, true, true, true, factor_shards },
	{ "sendrecv", BENCH_SENDRECV, false, false, false, false, factor_one },
	{ "barrier", NPULINK_COLL_BARRIER, false, false, false, false, factor_one },
};

static const struct bench_coll *find_coll(const char *text)
{
	uint32_t id = ~0U;
	size_t i;

	parse_collective(text, &id);
	for (i = 0; i < ARRAY_SIZE(colls); i++)
		if (!strcmp(colls[i].name, text) || colls[i].id == id)
			return &colls[i];
	return NULL;
}

static const char usage[] =
	"Usage: npulink [-j] bench COLLECTIVE [OPTION]...\n"
	"\n"
	"Measures a collective among processes of this node, or several, and checks the data.\n"
	"COLLECTIVE: allreduce, reduce_scatter, allgather, alltoall, broadcast, reduce,\n"
	"gather, scatter, sendrecv or barrier.\n"
	"\n"
	"  -p, --ranks N            processes (one per device); of each node, if there are several\n"
	"  -b, --minbytes SIZE      smallest size; SIZE may end in K, M or G (32M)\n"
	"  -e, --maxbytes SIZE      largest size (32M)\n"
	"  -f, --stepfactor N       multiply the size by this from row to row\n"
	"  -i, --stepbytes SIZE     or add this (1M)\n"
	"  -n, --iters N            measured operations per row (20)\n"
	"  -w, --warmup_iters N     operations before that (1)\n"
	"  -c, --check N            checked operations after that, 0: none (1)\n"
	"  -o, --op OP              sum, prod, min, max or avg (sum)\n"
	"  -d, --datatype TYPE      int8 .. uint64, half, bfloat16, float or double (float)\n"
	"  -r, --root RANK          root, where there is one (0)\n"
	"  -a, --algorithm NAME     this one; see: npulink plan list\n"
	"  -m, --memory KIND        buffers in host memory, or device memory (host)\n"
	"  -I, --iter_timing        also time every operation by itself\n"
	"  -T, --timeout SECONDS    fail if an operation takes longer\n"
	"  -J, --output_file FILE   write the results there, in JSON\n"
	"  -j, --json               JSON instead of the table\n"
	"\n"
	"On several nodes: start the same command on each of them. Node 0 prints the table.\n"
	"Set COLL_KEY or COLL_KEY_FILE to the same secret on all, see coll_comm_init_env(3).\n"
	"  --nnodes N               so many\n"
	"  --node_rank I            this is number I, from 0\n"
	"  --master_addr HOST       where node 0 is\n"
	"  --master_port PORT       a free TCP port there (29500)\n"
	"\n"
	"Exit status: 0; 1 if a rank failed, data was wrong, or the average bus bandwidth\n"
	"is below nine tenths of NCCL_TESTS_MIN_BW from the environment.\n";

/* These have no short form; torchrun has their names. */
enum { OPT_NNODES = 256, OPT_NODE, OPT_MASTER, OPT_PORT };

static const struct option long_opts[] = {
	{ "ranks", required_argument, NULL, 'p' },
	{ "minbytes", required_argument, NULL, 'b' },
	{ "maxbytes", required_argument, NULL, 'e' },
	{ "stepfactor", required_argument, NULL, 'f' },
	{ "stepbytes", required_argument, NULL, 'i' },
	{ "iters", required_argument, NULL, 'n' },
	{ "warmup_iters", required_argument, NULL, 'w' },
	{ "check", required_argument, NULL, 'c' },
	{ "op", required_argument, NULL, 'o' },
	{ "datatype", required_argument, NULL, 'd' },
	{ "root", required_argument, NULL, 'r' },
	{ "algorithm", required_argument, NULL, 'a' },
	{ "memory", required_argument, NULL, 'm' },
	{ "iter_timing", no_argument, NULL, 'I' },
	{ "timeout", required_argument, NULL, 'T' },
	{ "output_file", required_argument, NULL, 'J' },
	{ "nnodes", required_argument, NULL, OPT_NNODES },
	{ "node_rank", required_argument, NULL, OPT_NODE },
	{ "master_addr", required_argument, NULL, OPT_MASTER },
	{ "master_port", required_argument, NULL, OPT_PORT },
	CMD_OPTION_END
};

static bool get_u32(const char *text, uint32_t max, uint32_t *value)
{
	uint64_t v;

	if (!parse_u64(text, max, &v))
		return false;
	*value = v;
	return true;
}

/* One option; returns false if its value makes no sense. */
static bool set_option(struct bench *b, int c, const char *arg)
{
	uint32_t word = 0;
	char *end;
	bool ok;

	switch (c) {
	case 'p':
		return get_u32(arg, BENCH_MAX_RANKS, &b->local) && b->local;
	case 'b':
		return parse_size(arg, &b->min_bytes);
	case 'e':
		return parse_size(arg, &b->max_bytes);
	case 'f':
		/* 0, as without it: sizes are added up. */
		return parse_u64(arg, 1 << 20, &b->step_factor) && b->step_factor != 1;
	case 'i':
		return parse_size(arg, &b->step_bytes);
	case 'n':
		return get_u32(arg, 100000000, &b->iters) && b->iters;
	case 'w':
		return get_u32(arg, 100000000, &b->warmup);
	case 'c':
		return get_u32(arg, 1000000, &b->check);
	case 'o':
		ok = parse_redop(arg, &word);
		b->op = word;
		return ok;
	case 'd':
		ok = parse_dtype(arg, &word);
		b->dtype = word;
		return ok;
	case 'r':
		return get_u32(arg, BENCH_MAX_RANKS - 1, &b->root);
	case 'a':
		b->algorithm = arg;
		return *arg;
	case 'm':
		b->device = !strcmp(arg, "device");
		return b->device || !strcmp(arg, "host");
	case 'I':
		b->per_iter = true;
		return true;
	case 'T':
		b->timeout = strtod(arg, &end);
		return end != arg && !*end && b->timeout >= 0 && b->timeout < 1e9;
	case 'J':
		b->json_path = arg;
		return *arg;
	case OPT_NNODES:
		return get_u32(arg, BENCH_MAX_RANKS, &b->nnodes) && b->nnodes;
	case OPT_NODE:
		return get_u32(arg, BENCH_MAX_RANKS - 1, &b->node);
	case OPT_MASTER:
		b->at.host = arg;
		return *arg;
	case OPT_PORT:
		return get_u32(arg, 65535, &b->at.port) && b->at.port;
	}
	return false;
}

static const char *option_name(int c)
{
	for (size_t i = 0; long_opts[i].name; i++)
		if (long_opts[i].val == c)
			return long_opts[i].name;
	return "?";
}

/* Turn sizes into rows. A size too small for one element each is rounded up. */
static int make_rows(struct bench *b)
{
	size_t size = coll_dtype_size(b->dtype), cap = 0;
	uint64_t unit = size * (b->coll->shards ? b->nranks : 1);
	uint64_t bytes = b->min_bytes, next;

	if (b->coll->id == NPULINK_COLL_BARRIER) {
		b->rows = calloc(1, sizeof(*b->rows));
		b->nrows = 1;
		return b->rows ? 0 : -ENOMEM;
	}
	for (;;) {
		struct bench_row row;

		row.count = bytes / unit;
		if (!row.count && bytes)
			row.count = 1;
		row.bytes = row.count * unit;
		if (!b->nrows || b->rows[b->nrows - 1].count != row.count) {
			if (b->nrows == cap) {
				cap = cap ? 2 * cap : 32;
				b->rows = reallocarray(b->rows, cap, sizeof(*b->rows));
				if (!b->rows)
					return -ENOMEM;
			}
			b->rows[b->nrows++] = row;
		}
		if (b->step_factor > 1)
			next = __builtin_mul_overflow(bytes ?: 1, b->step_factor, &next) ?
			       UINT64_MAX : (bytes ?: 1) * b->step_factor;
		else
			next = bytes + b->step_bytes;
		if (next <= bytes || next > b->max_bytes)
			return 0;
		bytes = next;
	}
}

/* Ranks go to devices in turn. */
static int choose_devices(struct bench *b)
{
	struct dev *devs = NULL;
	size_t ndevs = 0;
	int rc;

	rc = nl_devs(ANY_DEV, &devs, &ndevs);
	if (rc)
		return nl_fail(rc, 0);
	if (!ndevs)
		return fail("there are no devices; try: modprobe npulink_soft, or: npulink doctor");
	if (!b->local)
		b->local = ndevs;
	b->devices = calloc(b->local, sizeof(*b->devices));
	if (!b->devices)
		return fail("not enough memory");
	for (uint32_t i = 0; i < b->local; i++)
		b->devices[i] = devs[i % ndevs].id;
	free(devs);
	b->first = b->node * b->local;
	b->nranks = b->nnodes * b->local;
	if (b->nranks > BENCH_MAX_RANKS)
		return usage_error("bench: at most %u ranks", BENCH_MAX_RANKS);
	return 0;
}

static int check_options(struct bench *b)
{
	const char *min_bw = getenv("NCCL_TESTS_MIN_BW");
	const struct coll_algorithm *alg;
	char *end;

	if (b->max_bytes < b->min_bytes)
		return usage_error("bench: --maxbytes is smaller than --minbytes");
	if (b->step_factor <= 1 && !b->step_bytes)
		return usage_error("bench: the step must not be 0");
	if (b->node >= b->nnodes)
		return usage_error("bench: there is no node %u of %u", b->node, b->nnodes);
	if (b->nnodes > 1 && !b->at.host)
		return usage_error("bench: several nodes need --master_addr, the host of node 0");
	if (b->local && b->root >= (uint64_t)b->nnodes * b->local)
		return usage_error("bench: there is no rank %u", b->root);
	if (min_bw && *min_bw && (coll_strtod(min_bw, &end), end == min_bw || *end))
		return usage_error("bench: NCCL_TESTS_MIN_BW=\"%s\" is no number", min_bw);
	if (!b->algorithm)
		return 0;
	if (b->coll->id == BENCH_SENDRECV)
		return usage_error("bench: sendrecv has no algorithms");
	alg = coll_algorithm_find(b->coll->id, b->algorithm);
	if (!alg)
		return usage_error("bench: %s has no algorithm \"%s\"; see: npulink plan list %s",
				   b->coll->name, b->algorithm, b->coll->name);
	return 0;
}

/*
 * What is not there is not there afterwards either: measuring takes minutes, and may fail. What is
 * no file is left alone, as a look at it may end who reads it.
 */
static bool may_write(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	struct stat st;

	if (fd >= 0) {
		close(fd);
		return !unlink(path);
	}
	if (errno != EEXIST)
		return false;
	/* Else a link to what is not there. */
	if (stat(path, &st))
		return true;
	if (S_ISREG(st.st_mode))
		return !access(path, W_OK);
	errno = EISDIR;
	return !S_ISDIR(st.st_mode);
}

int bench_cmd(int argc, char **argv)
{
	struct bench b = {
		.min_bytes = 32 << 20, .max_bytes = 32 << 20, .step_bytes = 1 << 20,
		.iters = 20, .warmup = 1, .check = 1,
		.dtype = COLL_FLOAT32, .op = COLL_SUM, .timeout = -1,
		.nnodes = 1, .at.port = MEET_PORT,
	};
	bool have_min = false, have_max = false;
	char override[128], *words[argc + 2];
	struct json_object *root;
	int c, rc;

	/* getopt_long() starts after the first word. */
	words[0] = "bench";
	memcpy(words + 1, argv, argc * sizeof(*argv));
	words[argc + 1] = NULL;
	while ((c = cmd_option(argc + 1, words, "p:b:e:f:i:n:w:c:o:d:r:a:m:IT:J:", long_opts,
			       usage)) != -1) {
		if (c == 'h')
			return EXIT_SUCCESS;
		if (c == ':')
			return EXIT_USAGE;
		if (!set_option(&b, c, optarg))
			return usage_error("bench: \"%s\" makes no sense for --%s, see: npulink bench --help",
					   optarg, option_name(c));
		have_min |= c == 'b';
		have_max |= c == 'e';
	}
	if (optind == argc + 1)
		return usage_error("bench: which collective? see: npulink bench --help");
	b.coll = find_coll(words[optind]);
	if (!b.coll)
		return usage_error("bench: unknown collective \"%s\", see: npulink bench --help",
				   words[optind]);
	if (optind + 1 < argc + 1)
		return usage_error("bench: unknown word \"%s\"", words[optind + 1]);
	/* A single limit is meant for both. */
	if (have_min && !have_max && b.max_bytes < b.min_bytes)
		b.max_bytes = b.min_bytes;
	if (have_max && !have_min && b.min_bytes > b.max_bytes)
		b.min_bytes = b.max_bytes;
	rc = check_options(&b);
	if (rc)
		return rc;
	/* Not after minutes of measuring. */
	if (b.json_path && !b.node && !may_write(b.json_path))
		return fail("cannot write %s: %m", b.json_path);
	if (b.algorithm) {
		snprintf(override, sizeof(override), "%s:%s", b.coll->name, b.algorithm);
		b.override = override;
	}
	rc = choose_devices(&b);
	if (rc)
		return rc;
	if (b.root >= b.nranks)
		return usage_error("bench: there is no rank %u of %u", b.root, b.nranks);
	if (make_rows(&b))
		return fail("not enough memory");
	root = bench_json(&b, argc + 1, words);
	rc = bench_start(&b, root);
	json_object_put(root);
	free(b.rows);
	free(b.devices);
	return rc;
}
