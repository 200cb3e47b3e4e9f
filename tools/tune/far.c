// SPDX-License-Identifier: GPL-2.0
/*
 * far.c - npulink tune far: what a message and a byte cost between two machines. One
 * rank on each of them sends messages of several sizes to and fro; the line through
 * their times goes into the calibration file, as far.alpha and far.beta.
 */
#include <coll.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "cli/npulink.h"
#include "cli/peers_join.h"
#include "lib/run/comm.h"
#include "plan/net.h"
#include "tune/job.h"

#define MAX_ITERS	4000

static const char usage[] =
	"Usage: npulink [-j] tune far --node_rank 0|1 --master_addr HOST [OPTION]...\n"
	"\n"
	"Measures what messages cost between this machine and another one, where the same\n"
	"command has to be started with the other number. Number 0 writes it to its calibration\n"
	"file, beside what is there; with coll_comm_init_env() that of rank 0 holds for all.\n"
	"Set COLL_KEY or COLL_KEY_FILE to the same secret on both, see coll_comm_init_env(3).\n"
	"\n"
	"      --node_rank I      this is number 0, or 1\n"
	"      --master_addr HOST where number 0 is\n"
	"      --master_port PORT a free TCP port there (29500)\n"
	"  -o, --output FILE      the calibration (COLL_CALIBRATION, or\n"
	"                         /etc/npulink/calibration)\n"
	"      --rounds N         measure each size so often, in turn; the best counts (5)\n"
	"      --time SECONDS     for each time (0.01)\n"
	"  -j, --json             print what was found as JSON\n";

#define LARGEST	(1 << 20)

static const uint32_t sizes[] = { 1, 512, 4096, 16384, 65536, 262144, LARGEST };

#define NSIZES	ARRAY_SIZE(sizes)

struct far {
	const char *path;
	struct meeting at;
	uint64_t node;
	struct tune_opts opts;
	struct coll_comm *comm;
	void *send, *recv;
	double alpha, beta, error;
	char *old;	/* lines of the file that stay */
};

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static int complain(const struct far *f)
{
	return fail("%s", coll_comm_last_error(f->comm));
}

static int join(struct far *f)
{
	struct coll_config config = COLL_CONFIG_INIT;
	char text[400] = "";
	int rc;

	config.error_text = text;
	config.error_size = sizeof(text);
	/* Nothing is to be chosen, and the two files may differ. */
	config.calibration = "";
	rc = meet_as(&f->comm, f->node, 2, &f->at, &config);
	return rc ? fail("%s", *text ? text : coll_strerror(rc)) : 0;
}

/* @iters messages each way; seconds of one. */
static int there_and_back(struct far *f, uint32_t bytes, uint32_t iters, double *seconds)
{
	double start = now();
	int rc = 0;

	for (uint32_t i = 0; i < 2 * iters && !rc; i++)
		rc = i % 2 == f->node ?
		     coll_send(f->comm, f->send, bytes, COLL_UINT8, !f->node) :
		     coll_recv(f->comm, f->recv, bytes, COLL_UINT8, !f->node);
	*seconds = (now() - start) / iters / 2;
	return rc ? complain(f) : 0;
}

/* How often in the time that is given: number 0 says so. */
static int agree(struct far *f, double one, uint32_t *iters)
{
	double n = f->opts.budget / one / 2;

	*iters = n < 1 ? 1 : n > MAX_ITERS ? MAX_ITERS : n;
	return coll_broadcast(f->comm, iters, iters, 1, COLL_UINT32, 0) ? complain(f) : 0;
}

static int measure(struct far *f)
{
	double x[NSIZES][2], y[NSIZES], coef[2], seconds;
	uint32_t iters[NSIZES];
	int rc = 0;

	for (uint32_t i = 0; i < NSIZES && !rc; i++) {
		/* The first one connects, and pins. */
		rc = there_and_back(f, sizes[i], 1, &seconds);
		rc = rc ? rc : there_and_back(f, sizes[i], 1, &seconds);
		rc = rc ? rc : agree(f, seconds, &iters[i]);
		x[i][0] = 1;
		x[i][1] = sizes[i];
		y[i] = 1e9;
	}
	for (uint32_t round = 0; round < f->opts.rounds && !rc; round++) {
		for (uint32_t i = 0; i < NSIZES && !rc; i++) {
			rc = there_and_back(f, sizes[i], iters[i], &seconds);
			y[i] = seconds < y[i] ? seconds : y[i];
		}
	}
	if (rc)
		return rc;
	tune_fit(x[0], y, NSIZES, 2, coef);
	f->alpha = coef[0];
	f->beta = coef[1];
	f->error = tune_error(x[0], y, NSIZES, 2, coef);
	return 0;
}

/* ---- the file: what it had, but for what is new */

/* Before anything is measured: what cannot be read would be lost. */
static int read_old(struct far *f)
{
	FILE *file = strcmp(f->path, "-") ? fopen(f->path, "re") : NULL, *kept;
	size_t len, size = 0;
	char *line = NULL;
	int rc = 0;

	if (!file && strcmp(f->path, "-") && errno != ENOENT)
		return fail("cannot read %s: %m", f->path);
	kept = open_memstream(&f->old, &len);
	errno = 0;
	while (kept && file && getline(&line, &size, file) >= 0)
		if (strncmp(line + strspn(line, " \t"), "far.", 4) &&
		    strncmp(line, "# Between machines", 18))
			fputs(line, kept);
	if (file && ferror(file))
		rc = fail("cannot read %s: %m", f->path);
	if (!kept || fclose(kept))
		rc = rc ?: fail("not enough memory");
	free(line);
	if (file)
		fclose(file);
	return rc;
}

static void put_far(FILE *out, const void *data)
{
	const struct far *f = data;
	char host[64] = "", date[40];
	time_t t = time(NULL);

	fputs(f->old, out);
	gethostname(host, sizeof(host) - 1);
	strftime(date, sizeof(date), "%F %T", localtime(&t));
	fprintf(out, "# Between machines: npulink tune far on %s, %s.\n", host, date);
	fprintf(out, "far.alpha = %.4g\nfar.beta = %.4g\n", f->alpha, f->beta);
}

static void report(const struct far *f)
{
	char one[24], two[24];

	if (opts.json) {
		struct json_object *obj = json_object_new_object();

		put_str(obj, "file", f->path);
		put_double(obj, "alpha", f->alpha);
		put_double(obj, "beta", f->beta);
		put_double(obj, "median_error", f->error);
		json_print(obj);
		return;
	}
	printf("A message between the machines takes %s and moves %s\n"
	       "(measurements are %.0f %% off that).\nWritten to %s.\n", human_time(f->alpha, one),
	       human_speed(f->beta, two), 100 * f->error, f->path);
}

/* ---- the command */

enum { OPT_NODE = 256, OPT_MASTER, OPT_PORT };

static bool set_option(struct far *f, int c, const char *arg)
{
	uint64_t port;

	switch (c) {
	case OPT_NODE:
		return parse_u64(arg, 1, &f->node);
	case OPT_MASTER:
		f->at.host = arg;
		return *arg;
	case OPT_PORT:
		if (!parse_u64(arg, 65535, &port))
			return false;
		f->at.port = port;
		return port;
	case 'o':
		f->path = arg;
		return *arg;
	}
	return tune_option(&f->opts, c, arg);
}

static int parse(struct far *f, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "node_rank", required_argument, NULL, OPT_NODE },
		{ "master_addr", required_argument, NULL, OPT_MASTER },
		{ "master_port", required_argument, NULL, OPT_PORT },
		{ "output", required_argument, NULL, 'o' },
		{ "rounds", required_argument, NULL, 'R' },
		{ "time", required_argument, NULL, 'T' },
		CMD_OPTION_END
	};
	int c;

	*f = (struct far) {
		.path = tune_default_file(), .node = ~0ULL, .at.port = MEET_PORT,
		.opts = TUNE_OPTS_DEFAULT,
	};
	while ((c = cmd_option(argc, argv, "o:", longs, usage)) != -1) {
		if (c == 'h')
			return EXIT_SUCCESS;
		if (c == ':')
			return EXIT_USAGE;
		if (!set_option(f, c, optarg))
			return usage_error("tune far: \"%s\" makes no sense there, see --help",
					   optarg);
	}
	if (optind < argc)
		return usage_error("tune far: unknown word \"%s\"", argv[optind]);
	if (f->node == ~0ULL || !f->at.host)
		return usage_error("tune far: needs --node_rank and --master_addr, see --help");
	return -1;
}

int tune_far(int argc, char **argv)
{
	struct far f;
	int rc = parse(&f, argc, argv);

	if (rc >= 0)
		return rc;
	rc = f.node ? 0 : read_old(&f);
	if (rc) {
		free(f.old);
		return rc;
	}
	f.send = calloc(1, LARGEST);
	f.recv = calloc(1, LARGEST);
	rc = f.send && f.recv ? join(&f) : fail("not enough memory");
	if (!rc) {
		rc = measure(&f);
		if (coll_comm_destroy(f.comm) && !rc)
			rc = fail("cannot leave");
	}
	free(f.send);
	free(f.recv);
	if (!rc && !f.node)
		rc = tune_write(f.path, put_far, &f);
	if (!rc && !f.node && strcmp(f.path, "-"))
		report(&f);
	free(f.old);
	return rc;
}
