// SPDX-License-Identifier: GPL-2.0
/*
 * tune.c - npulink tune: what messages, bytes and reductions cost on the links that are
 * there, written as the calibration file by which libcoll chooses algorithms.
 *
 * Messages to and fro between two ranks give alpha and beta, reductions of each
 * type next to broadcasts gamma. Software NPUs work on the processors of their
 * ranks; what that costs comes from all algorithms of several collectives among
 * more ranks than there are processors. See tune_work.c in the library.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <coll.h>
#include <npulink/verify.h>
#include "cli/npulink.h"
#include "lib/algorithm/algorithms.h"
#include "lib/tune/tune.h"
#include "plan/net.h"
#include "tune/job.h"

#define DEFAULT_FILE	"/etc/npulink/calibration"
#define TYPED_BYTES	(256 * 1024)
#define MAX_JOBS	1024
#define WORK_COLS	5

static const char usage[] =
	"Usage: npulink [-j] tune [OPTION]...\n"
	"       npulink [-j] tune far --node_rank 0|1 --master_addr HOST [OPTION]...\n"
	"       npulink [-j] tune sweep [OPTION]...\n"
	"\n"
	"Measures what messages, bytes and reductions cost among the devices of this machine,\n"
	"and writes the calibration file by which libcoll chooses algorithms. \"tune far\" adds\n"
	"what they cost between machines, \"tune sweep\" finds out how good the choice is: see\n"
	"npulink tune far --help, npulink tune sweep --help.\n"
	"\n"
	"  -o, --output FILE  write there; - is standard output (COLL_CALIBRATION, or\n"
	"                     /etc/npulink/calibration)\n"
	"  -p, --ranks N      ranks that share the processors (4 per processor, 8 to 16)\n"
	"      --rounds N     measure each thing so often, in turn; the best counts (5)\n"
	"      --time SECONDS for each time (0.01)\n"
	"  -j, --json         print what was found as JSON\n";

struct tuning {
	const char *path;
	uint32_t ranks;
	struct tune_opts opts;
	bool shares;		/* devices need the processors */
	struct coll_tune found;
	double fit[2];		/* median error of messages, of work */
};

/* ---- two ranks: alpha, beta, gamma */

static struct tune_job job_of(uint32_t collective, const char *name, uint32_t dtype,
			      uint64_t bytes, uint32_t nranks)
{
	return (struct tune_job) {
		.alg = coll_algorithm_find(collective, name), .dtype = dtype,
		.count = tune_count(collective, dtype, bytes, nranks),
	};
}

static int tune_messages(struct tuning *t)
{
	static const uint32_t sizes[] = {
		1, 64, 512, 4096, 16384, 65536, 262144, 1 << 20,
	};
	enum { N = ARRAY_SIZE(sizes), TYPED = N + 1, JOBS = TYPED + NPULINK_DTYPES };
	struct tune_job jobs[JOBS];
	double x[N][2], y[N], coef[2];
	int rc;

	for (uint32_t i = 0; i < N; i++)
		jobs[i] = job_of(NPULINK_COLL_P2P, "direct", NPULINK_INT8, sizes[i], 2);
	jobs[N] = job_of(NPULINK_COLL_BROADCAST, "binomial", NPULINK_INT8, TYPED_BYTES, 2);
	for (uint32_t type = 0; type < NPULINK_DTYPES; type++)
		jobs[TYPED + type] = job_of(NPULINK_COLL_REDUCE, "binomial", type, TYPED_BYTES, 2);
	rc = tune_team(2, jobs, JOBS, &t->opts);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < N; i++) {
		x[i][0] = 1;
		x[i][1] = sizes[i];
		y[i] = jobs[i].seconds;
	}
	tune_fit(x[0], y, N, 2, coef);
	t->fit[0] = tune_error(x[0], y, N, 2, coef);
	t->found.params.alpha = coef[0];
	t->found.params.beta = coef[1];
	for (uint32_t type = 0; type < NPULINK_DTYPES; type++) {
		double more = jobs[TYPED + type].seconds - jobs[N].seconds;

		t->found.gamma[type] = more > 0 ? more / TYPED_BYTES : 0;
	}
	t->found.params.gamma = t->found.gamma[NPULINK_FLOAT32];
	return 0;
}

/* ---- more ranks than processors: processor time */

static const uint32_t work_collectives[] = {
	NPULINK_COLL_ALLREDUCE, NPULINK_COLL_BROADCAST, NPULINK_COLL_REDUCE,
	NPULINK_COLL_ALLGATHER, NPULINK_COLL_REDUCE_SCATTER, NPULINK_COLL_ALLTOALL,
};

static const uint32_t work_sizes[] = { 64, 16384, 262144 };

static struct coll_args args_of(const struct tune_job *job, uint32_t nranks)
{
	return (struct coll_args) {
		.collective = job->alg->collective, .dtype = job->dtype, .nranks = nranks,
		.count = job->count,
	};
}

static uint32_t list_work(struct tune_job *jobs, uint32_t nranks)
{
	uint32_t n = 0;

	for (uint32_t c = 0; c < ARRAY_SIZE(work_collectives); c++) {
		const struct coll_algorithm *alg = NULL;

		while ((alg = coll_algorithm_next(work_collectives[c], alg))) {
			for (uint32_t i = 0; i < ARRAY_SIZE(work_sizes) && n < MAX_JOBS; i++) {
				struct coll_args args;

				jobs[n] = job_of(work_collectives[c], alg->name, NPULINK_FLOAT32,
						 work_sizes[i], nranks);
				args = args_of(&jobs[n], nranks);
				n += !alg->supports || !alg->supports(&args);
			}
		}
	}
	return n;
}

static int count_work(const struct tune_job *job, uint32_t nranks, double row[WORK_COLS])
{
	const struct coll_args args = args_of(job, nranks);
	struct coll_work work;
	int rc = coll_work_count(job->alg, &args, &work);

	row[0] = nranks;
	row[1] = work.messages;
	row[2] = work.requests;
	row[3] = work.copied;
	row[4] = work.reduced;
	return rc;
}

/* From the jobs behind the others, one for each type, what reducing it takes. */
static int fit_types(struct tuning *t, const struct tune_job *typed, const double *coef)
{
	double row[WORK_COLS];

	for (uint32_t type = 0; type < NPULINK_DTYPES; type++) {
		double left = typed[type].seconds * t->found.work.processors;

		if (count_work(&typed[type], t->ranks, row))
			return fail("not enough memory");
		for (uint32_t i = 0; i < WORK_COLS - 1; i++)
			left -= coef[i] * row[i];
		t->found.work.reduces[type] = left > 0 ? left / row[WORK_COLS - 1] : 0;
	}
	return 0;
}

static int fit_work(struct tuning *t, const struct tune_job *jobs, uint32_t n)
{
	struct coll_work_costs *work = &t->found.work;
	double *x = calloc((size_t)n * WORK_COLS, sizeof(*x)), *y = calloc(n, sizeof(*y));
	double coef[WORK_COLS];
	int rc = x && y ? 0 : fail("not enough memory");

	for (uint32_t i = 0; i < n && !rc; i++) {
		if (count_work(&jobs[i], t->ranks, x + (size_t)i * WORK_COLS))
			rc = fail("not enough memory");
		y[i] = jobs[i].seconds * work->processors;
	}
	if (!rc) {
		tune_fit(x, y, n, WORK_COLS, coef);
		t->fit[1] = tune_error(x, y, n, WORK_COLS, coef);
		work->call = coef[0];
		work->message = coef[1];
		work->request = coef[2];
		work->copy = coef[3];
		work->reduce = coef[4];
		rc = fit_types(t, jobs + n, coef);
	}
	free(x);
	free(y);
	return rc;
}

static int tune_work(struct tuning *t)
{
	struct tune_job *jobs = calloc(MAX_JOBS + NPULINK_DTYPES, sizeof(*jobs));
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	uint32_t n;
	int rc;

	if (!jobs)
		return fail("not enough memory");
	t->found.work.processors = cpus > 0 ? cpus : 1;
	n = list_work(jobs, t->ranks);
	for (uint32_t type = 0; type < NPULINK_DTYPES; type++)
		jobs[n + type] = job_of(NPULINK_COLL_REDUCE, "binomial", type, TYPED_BYTES,
					t->ranks);
	rc = tune_team(t->ranks, jobs, n + NPULINK_DTYPES, &t->opts);
	if (!rc)
		rc = fit_work(t, jobs, n);
	free(jobs);
	return rc;
}

/* ---- what comes of it */

static void put_types(FILE *f, const char *name, const double *each)
{
	for (uint32_t type = 0; type < NPULINK_DTYPES; type++)
		fprintf(f, "%s.%s = %.4g\n", name, coll_dtype_name(type), each[type]);
}

static void put_file(FILE *f, const void *data)
{
	const struct tuning *t = data;
	const struct coll_tune *c = &t->found;
	time_t now = time(NULL);
	char host[64] = "", date[40];

	gethostname(host, sizeof(host) - 1);
	strftime(date, sizeof(date), "%F %T", localtime(&now));
	fprintf(f, "# Written by npulink tune on %s, %s. See libcoll(3).\n", host, date);
	fprintf(f, "# Seconds per message, per byte moved, per byte reduced.\n");
	fprintf(f, "alpha = %.4g\nbeta = %.4g\ngamma = %.4g\n", c->params.alpha, c->params.beta,
		c->params.gamma);
	put_types(f, "gamma", c->gamma);
	fprintf(f, "ports = 1\n");
	if (!t->shares)
		return;
	fprintf(f,
		"\n# Software NPUs: processors, and seconds of their time per rank and call,\n"
		"# per message, per request to an engine, per byte copied, per byte reduced.\n");
	fprintf(f, "processors = %u\n", c->work.processors);
	fprintf(f, "cpu.call = %.4g\ncpu.message = %.4g\ncpu.request = %.4g\ncpu.copy = %.4g\n",
		c->work.call, c->work.message, c->work.request, c->work.copy);
	fprintf(f, "cpu.reduce = %.4g\n", c->work.reduce);
	put_types(f, "cpu.reduce", c->work.reduces);
}

int tune_write(const char *path, void (*put)(FILE *out, const void *data), const void *data)
{
	char *temp;
	FILE *f;
	int rc = 0;

	if (!strcmp(path, "-")) {
		put(stdout, data);
		return 0;
	}
	if (!strcmp(path, DEFAULT_FILE))
		mkdir("/etc/npulink", 0755);
	if (asprintf(&temp, "%s.new", path) < 0)
		return fail("not enough memory");
	f = fopen(temp, "we");
	if (f)
		put(f, data);
	if (!f || ferror(f) || fclose(f) || rename(temp, path)) {
		rc = fail("cannot write %s: %m", path);
		unlink(temp);
	}
	free(temp);
	return rc;
}

static void put_json_types(struct json_object *obj, const char *key, const double *each)
{
	struct json_object *types = json_object_new_object();

	for (uint32_t type = 0; type < NPULINK_DTYPES; type++)
		put_double(types, coll_dtype_name(type), each[type]);
	json_object_object_add(obj, key, types);
}

static void report_json(const struct tuning *t)
{
	struct json_object *obj = json_object_new_object(), *work;
	const struct coll_tune *c = &t->found;

	put_str(obj, "file", t->path);
	put_double(obj, "alpha", c->params.alpha);
	put_double(obj, "beta", c->params.beta);
	put_json_types(obj, "gamma", c->gamma);
	put_double(obj, "median_error", t->fit[0]);
	if (t->shares) {
		work = json_object_new_object();
		put_u64(work, "processors", c->work.processors);
		put_u64(work, "ranks", t->ranks);
		put_double(work, "call", c->work.call);
		put_double(work, "message", c->work.message);
		put_double(work, "request", c->work.request);
		put_double(work, "copy", c->work.copy);
		put_json_types(work, "reduce", c->work.reduces);
		put_double(work, "median_error", t->fit[1]);
		json_object_object_add(obj, "cpu", work);
	}
	json_print(obj);
}

static void report_text(const struct tuning *t)
{
	const struct coll_work_costs *w = &t->found.work;
	char one[24], two[24], three[24];

	printf("A message between two ranks takes %s and moves %s\n"
	       "(measurements are %.0f %% off that).\n", human_time(t->found.params.alpha, one),
	       human_speed(t->found.params.beta, two), 100 * t->fit[0]);
	if (t->shares) {
		printf("%u processors do the devices' work: %s for a rank's call, %s for a\n"
		       "message, %s for a request to an engine, ", w->processors,
		       human_time(w->call, one), human_time(w->message, two),
		       human_time(w->request, three));
		printf("%s copied, %s of float\nreduced (%u ranks are %.0f %% off that).\n",
		       human_speed(w->copy, one), human_speed(w->reduces[NPULINK_FLOAT32], two),
		       t->ranks, 100 * t->fit[1]);
	}
	printf("Written to %s.\n", t->path);
}

/* ---- the command */

bool tune_option(struct tune_opts *o, int c, const char *arg)
{
	uint64_t n;
	char *end;

	switch (c) {
	case 'R':
		if (!parse_u64(arg, 1000, &n) || !n)
			return false;
		o->rounds = n;
		return true;
	case 'T':
		o->budget = strtod(arg, &end);
		return end != arg && !*end && o->budget > 0 && o->budget < 1000;
	}
	return false;
}

const char *tune_default_file(void)
{
	const char *path = getenv("COLL_CALIBRATION");

	return path && *path ? path : DEFAULT_FILE;
}

static bool set_option(struct tuning *t, int c, const char *arg)
{
	uint64_t n;

	switch (c) {
	case 'o':
		t->path = arg;
		return *arg;
	case 'p':
		if (!parse_u64(arg, TUNE_MAX_RANKS, &n) || n < 2)
			return false;
		t->ranks = n;
		return true;
	}
	return tune_option(&t->opts, c, arg);
}

static int parse(struct tuning *t, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "output", required_argument, NULL, 'o' },
		{ "ranks", required_argument, NULL, 'p' },
		{ "rounds", required_argument, NULL, 'R' },
		{ "time", required_argument, NULL, 'T' },
		CMD_OPTION_END
	};
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	int c;

	*t = (struct tuning) {
		.path = tune_default_file(), .opts = TUNE_OPTS_DEFAULT,
		.ranks = cpus < 2 ? 8 : cpus > 4 ? 16 : 4 * cpus,
	};
	while ((c = cmd_option(argc, argv, "o:p:", longs, usage)) != -1) {
		if (c == 'h')
			return EXIT_SUCCESS;
		if (c == ':')
			return EXIT_USAGE;
		if (!set_option(t, c, optarg))
			return usage_error("tune: \"%s\" makes no sense there, see --help", optarg);
	}
	if (optind < argc)
		return usage_error("tune: unknown word \"%s\"", argv[optind]);
	return -1;
}

static int tune_measure(int argc, char **argv)
{
	struct dev *devs = NULL;
	size_t ndevs = 0;
	struct tuning t;
	int rc = parse(&t, argc, argv);

	if (rc >= 0)
		return rc;
	rc = nl_devs(ANY_DEV, &devs, &ndevs);
	if (rc)
		return nl_fail(rc, ANY_DEV);
	if (!ndevs)
		return fail("there is no device: is npulink_soft loaded? See: npulink doctor");
	t.shares = !strcmp(devs[0].backend, "soft");
	free(devs);
	rc = tune_messages(&t);
	if (!rc && t.shares)
		rc = tune_work(&t);
	if (!rc)
		rc = tune_write(t.path, put_file, &t);
	if (!rc && opts.json && strcmp(t.path, "-"))
		report_json(&t);
	else if (!rc && strcmp(t.path, "-"))
		report_text(&t);
	return rc;
}

static const struct cmd tune_cmds[] = {
	{ "measure",	tune_measure,	"what links cost; the default" },
	{ "far",	tune_far,	"what messages cost between machines" },
	{ "sweep",	tune_sweep,	"how good the choice of algorithm is" },
	{ }
};

int tune_cmd(int argc, char **argv)
{
	return cmd_run("tune", tune_cmds, argc, argv);
}
