// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * calibration.c - the file with what the network costs, as npulink tune writes it, see
 * libcoll(3). Lines "NAME = NUMBER", each name once.
 */
#include <errno.h>
#include <float.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include "base/base.h"
#include "base/lines.h"
#include "tune/calibration.h"
#include "tune/tune.h"

/* Without a file: 2 us per message, 4 GB/s, as software NPUs have it. */
#define DEFAULT_ALPHA	(2 / 1e6)
#define DEFAULT_BETA	(2.5 / 1e10)
#define DEFAULT_GAMMA	(2.5 / 1e10)

/*
 * The same in processor time. What counts is how they compare: a message is worth 2 KB that are
 * copied, a request with its interrupt 16 KB, a call with its process switch 40 KB. Chosen so
 * that the algorithms which are the fastest in tools/benchmarks/TUNE.md come out.
 */
static const struct coll_work_costs default_work = {
	.call = 10 / 1e6, .message = 0.5 / 1e6, .request = 4 / 1e6, .copy = DEFAULT_BETA,
	.reduce = 3.5 / 1e10,
};

#define DEFAULT_FILE	"/etc/npulink/calibration"

/* As strtod(), but the language may want a comma where files and variables have a point. */
double coll_strtod(const char *s, char **end)
{
	locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
	double value;

	if (!c) {
		*end = (char *)s;
		return 0;
	}
	value = strtod_l(s, end, c);
	freelocale(c);
	return value;
}

static bool parse_cost(const char *value, double *cost)
{
	char *end;

	*cost = coll_strtod(value, &end);
	return end != value && !*end && *cost >= 0 && *cost < 1e9;
}

static bool parse_ports(const char *value, struct coll_tune *tune, uint32_t nranks)
{
	tune->params.ports = *value == '1' || nranks < 2 ? 1 : nranks - 1;
	return !strcmp(value, "1") || !strcmp(value, "all");
}

static bool parse_processors(const char *value, struct coll_tune *tune)
{
	double n;

	if (!parse_cost(value, &n) || n != (uint32_t)n)
		return false;
	tune->work.processors = n;
	return true;
}

/* "gamma": of all types that do not have their own; "gamma.half": of one. */
static double *find_typed(const char *name, const char *word, double *all, double *each)
{
	size_t n = strlen(word);
	int type;

	if (strncmp(name, word, n))
		return NULL;
	if (!name[n])
		return all;
	type = name[n] == '.' ? coll_dtype_parse(name + n + 1) : -1;
	return type >= 0 ? &each[type] : NULL;
}

/* What a line of that name is about; NULL: there is no such name. */
static void *find_name(struct coll_tune *tune, const char *name)
{
	const struct {
		const char *name;
		void *value;
	} names[] = {
		{ "alpha", &tune->params.alpha },
		{ "beta", &tune->params.beta },
		{ "ports", &tune->params.ports },
		{ "far.alpha", &tune->far_alpha },
		{ "far.beta", &tune->far_beta },
		{ "processors", &tune->work.processors },
		{ "cpu.call", &tune->work.call },
		{ "cpu.message", &tune->work.message },
		{ "cpu.request", &tune->work.request },
		{ "cpu.copy", &tune->work.copy },
	};
	void *value;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(name, names[i].name))
			return names[i].value;
	value = find_typed(name, "gamma", &tune->params.gamma, tune->gamma);
	return value ?: find_typed(name, "cpu.reduce", &tune->work.reduce, tune->work.reduces);
}

/* The lines of a file, and which names it has had. */
struct reading {
	struct coll_lines lines;
	const void *had[COLL_COSTS];
	unsigned int nhad;
};

static int parse_line(struct reading *r, struct coll_tune *tune, char *line, uint32_t nranks)
{
	char *name = line, *value = strchr(line, '=');
	void *what;
	bool ok;

	if (!value)
		return coll_lines_bad(&r->lines, "not a line like \"alpha = 2e-6\"");
	*value++ = 0;
	name = coll_trim(name);
	value = coll_trim(value);
	what = find_name(tune, name);
	if (!what)
		return coll_lines_bad(&r->lines,
				      "there is no \"%.40s\", see libcoll(3): it is misspelt, or of a newer npulink",
				      name);
	for (unsigned int i = 0; i < r->nhad; i++)
		if (r->had[i] == what)
			return coll_lines_bad(&r->lines, "%s was said before", name);
	r->had[r->nhad++] = what;
	if (what == &tune->params.ports)
		ok = parse_ports(value, tune, nranks);
	else if (what == &tune->work.processors)
		ok = parse_processors(value, tune);
	else
		ok = parse_cost(value, what);
	return ok ? 0 : coll_lines_bad(&r->lines, "%s: \"%.40s\" is not %s", name, value,
				       what == &tune->params.ports ? "1 or all" :
				       what == &tune->work.processors ? "a number of processors" :
				       "a number of seconds");
}

static int read_file(struct coll_tune *tune, const char *path, uint32_t nranks, char *text,
		     size_t size)
{
	struct reading r = { };
	char *line;
	int rc = coll_lines_open(&r.lines, path, text, size);

	if (rc)
		return rc;
	while ((rc = coll_lines_next(&r.lines, &line)) > 0) {
		rc = parse_line(&r, tune, line, nranks);
		if (rc)
			break;
	}
	coll_lines_close(&r.lines);
	return rc;
}

/* NULL: the environment's, or the usual file if there is one. */
int coll_calibration_read(struct coll_tune *tune, const char *path, uint32_t nranks, char *text,
			  size_t size)
{
	int rc = 0;

	tune->params = (struct coll_cost_params) {
		.alpha = DEFAULT_ALPHA, .beta = DEFAULT_BETA, .gamma = DEFAULT_GAMMA, .ports = 1,
	};
	tune->work = (struct coll_work_costs) { };
	tune->far_alpha = -1;
	tune->far_beta = -1;
	for (uint32_t t = 0; t < NPULINK_DTYPES; t++) {
		tune->gamma[t] = -1;
		tune->work.reduces[t] = -1;
	}
	if (!path)
		path = secure_getenv("COLL_CALIBRATION");
	if (!path || *path) {
		rc = read_file(tune, path ? path : DEFAULT_FILE, nranks, text, size);
		tune->calibrated = !rc;
		if (!path && rc == -ENOENT)
			rc = coll_text(text, size, 0, "%s", "");
	}
	for (uint32_t t = 0; t < NPULINK_DTYPES; t++) {
		if (tune->gamma[t] < 0)
			tune->gamma[t] = tune->params.gamma;
		if (tune->work.reduces[t] < 0)
			tune->work.reduces[t] = tune->work.reduce;
	}
	return rc;
}

/*
 * What the device says. If processors do its work and that of its like, and nobody has measured
 * what they need for it, that is better than forms about devices that work by themselves.
 */
void coll_calibration_device(struct coll_tune *tune, const struct npulink_device_info *info,
			     uint32_t nranks)
{
	tune->graph_bytes = info->out_graph_bytes;
	tune->gathers = info->out_gathers;
	tune->gathers_large = info->out_gathers_large;
	if (tune->calibrated || !info->out_processors)
		return;
	tune->work = default_work;
	tune->work.processors = info->out_processors;
	for (uint32_t t = 0; t < NPULINK_DTYPES; t++)
		tune->work.reduces[t] = default_work.reduce;
	/* Each receiver copies for itself. */
	tune->params.ports = nranks > 2 ? nranks - 1 : 1;
}

/* Those that are whole numbers come first. */
#define WHOLE	5

_Static_assert(NPULINK_COLLS <= FLT_MANT_DIG, "a mask of collectives goes through a float");

static void costs_of(struct coll_tune *tune, double **at)
{
	double *const single[COLL_COSTS - WHOLE - 2 * NPULINK_DTYPES] = {
		&tune->params.alpha, &tune->params.beta, &tune->params.gamma, &tune->work.call,
		&tune->work.message, &tune->work.request, &tune->work.copy, &tune->far_alpha,
		&tune->far_beta,
	};

	memcpy(at, single, sizeof(single));
	at += ARRAY_SIZE(single);
	for (uint32_t t = 0; t < NPULINK_DTYPES; t++) {
		*at++ = &tune->gamma[t];
		*at++ = &tune->work.reduces[t];
	}
}

/*
 * Ranks choose without talking to each other, so all of them go by the numbers of one:
 * files of different machines differ.
 */
void coll_calibration_pack(const struct coll_tune *tune, float *costs)
{
	struct coll_tune copy = *tune;
	double *at[COLL_COSTS];

	costs_of(&copy, at);
	costs[0] = tune->params.ports;
	costs[1] = tune->work.processors;
	costs[2] = tune->graph_bytes;
	costs[3] = tune->gathers;
	costs[4] = tune->gathers_large;
	for (unsigned int i = WHOLE; i < COLL_COSTS; i++)
		costs[i] = *at[i - WHOLE];
}

void coll_calibration_unpack(struct coll_tune *tune, const float *costs, uint32_t nranks)
{
	double *at[COLL_COSTS];

	costs_of(tune, at);
	tune->params.ports = costs[0] > 1 && nranks > 1 ? nranks - 1 : 1;
	tune->work.processors = costs[1];
	tune->graph_bytes = costs[2];
	tune->gathers = costs[3];
	tune->gathers_large = costs[4];
	for (unsigned int i = WHOLE; i < COLL_COSTS; i++)
		*at[i - WHOLE] = costs[i];
}
