// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * calibration.c - the file with what the network costs, as npulink tune writes it, see
 * libcoll(3). Lines "NAME = NUMBER"; names that are not known are of a newer version.
 */
#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "internal.h"

/* Without a file: 2 us per message, 4 GB/s, as software NPUs have it. */
#define DEFAULT_ALPHA	(2 / 1e6)
#define DEFAULT_BETA	(2.5 / 1e10)
#define DEFAULT_GAMMA	(2.5 / 1e10)

/*
 * The same in processor time. What counts is how they compare: a message is worth 2 KB that are
 * copied, a request with its interrupt 16 KB, a call with its process switch 40 KB. Chosen so
 * that the algorithms which are the fastest in tools/bench/TUNE.md come out.
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
static bool parse_typed(const char *name, const char *word, const char *value, double *all,
			double *each, bool *ok)
{
	size_t n = strlen(word);
	int type;

	if (strncmp(name, word, n) || (name[n] && name[n] != '.'))
		return false;
	if (!name[n]) {
		*ok = parse_cost(value, all);
		return true;
	}
	type = coll_dtype_parse(name + n + 1);
	*ok = type >= 0 && parse_cost(value, &each[type]);
	return true;
}

static bool parse_line(struct coll_tune *tune, const char *name, const char *value,
		       uint32_t nranks)
{
	const struct {
		const char *name;
		double *cost;
	} costs[] = {
		{ "alpha", &tune->params.alpha },
		{ "beta", &tune->params.beta },
		{ "far.alpha", &tune->far_alpha },
		{ "far.beta", &tune->far_beta },
		{ "cpu.call", &tune->work.call },
		{ "cpu.message", &tune->work.message },
		{ "cpu.request", &tune->work.request },
		{ "cpu.copy", &tune->work.copy },
	};
	bool ok = false;

	for (size_t i = 0; i < ARRAY_SIZE(costs); i++)
		if (!strcmp(name, costs[i].name))
			return parse_cost(value, costs[i].cost);
	if (!strcmp(name, "ports"))
		return parse_ports(value, tune, nranks);
	if (!strcmp(name, "processors"))
		return parse_processors(value, tune);
	if (parse_typed(name, "gamma", value, &tune->params.gamma, tune->gamma, &ok) ||
	    parse_typed(name, "cpu.reduce", value, &tune->work.reduce, tune->work.reduces, &ok))
		return ok;
	return true;
}

static int read_file(struct coll_tune *tune, const char *path, uint32_t nranks, char *text,
		     size_t size)
{
	unsigned int n = 0;
	char *line = NULL;
	size_t cap = 0;
	FILE *file;
	int rc = 0;

	file = fopen(path, "re");
	if (!file)
		return coll_text(text, size, -errno, "cannot read the calibration file %s: %s",
				 path, strerror(errno));
	while (!rc && getline(&line, &cap, file) >= 0) {
		char *name = coll_trim(line), *value = strchr(name, '=');

		n++;
		if (!*name)
			continue;
		if (value)
			*value++ = 0;
		if (!value || !parse_line(tune, coll_trim(name), coll_trim(value), nranks))
			rc = coll_text(text, size, -EINVAL,
				       "%s, line %u: not a line like \"alpha = 2e-6\" (see libcoll(3))",
				       path, n);
	}
	free(line);
	fclose(file);
	return rc;
}

/* Strips blanks at both ends; the comment goes, too. */
char *coll_trim(char *s)
{
	char *end;

	s[strcspn(s, "#\n")] = 0;
	while (isspace((unsigned char)*s))
		s++;
	end = s + strlen(s);
	while (end > s && isspace((unsigned char)end[-1]))
		*--end = 0;
	return s;
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
			rc = 0;
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
	tune->script_bytes = info->out_script_bytes;
	tune->board = info->out_caps & NPULINK_CAP_BOARD;
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
#define WHOLE	3

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
	costs[2] = tune->script_bytes;
	for (unsigned int i = WHOLE; i < COLL_COSTS; i++)
		costs[i] = *at[i - WHOLE];
}

void coll_calibration_unpack(struct coll_tune *tune, const float *costs, uint32_t nranks)
{
	double *at[COLL_COSTS];

	costs_of(tune, at);
	tune->params.ports = costs[0] > 1 && nranks > 1 ? nranks - 1 : 1;
	tune->work.processors = costs[1];
	tune->script_bytes = costs[2];
	for (unsigned int i = WHOLE; i < COLL_COSTS; i++)
		*at[i - WHOLE] = costs[i];
}
