// SPDX-License-Identifier: GPL-2.0
/*
 * text.c - fuzz targets: everything in the library that reads what people write.
 *
 * Plans as text and as bytes come back the same when written and read again. All
 * others answer with success or with one printable line, and leak nothing.
 */
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "fuzz.h"
#include "lib/base/base.h"
#include "lib/tune/tune.h"
#include "lib/plan/text.h"
#include "lib/simulate/sim.h"

static void check_line(const char *text, size_t size)
{
	size_t len = strnlen(text, size), i;

	FUZZ_ASSERT(len && len < size, "length %zu", len);
	for (i = 0; i < len; i++)
		FUZZ_ASSERT(text[i] != '\n', "two lines: %s", text);
}

static void check_verifiers(const struct coll_plan *plan)
{
	struct npulink_plan_desc d = coll_plan_desc(plan);
	struct npulink_verdict v;

	if (!npulink_verify(&d, &v))
		npulink_verify_races(&d, &v);
}

/* ---- plans as text */

static bool same_array(const uint64_t *a, const uint64_t *b, uint32_t n)
{
	return !a == !b && (!a || !memcmp(a, b, n * sizeof(*a)));
}

static bool same_text(const struct coll_text *a, const struct coll_text *b)
{
	const struct coll_args *x = &a->args, *y = &b->args;
	uint32_t n = x->nranks;

	return !memcmp(&a->plan.call, &b->plan.call, sizeof(a->plan.call)) &&
	       a->plan.nranks == b->plan.nranks && a->plan.rank == b->plan.rank &&
	       a->plan.nslots == b->plan.nslots && a->plan.nsteps == b->plan.nsteps &&
	       !memcmp(a->plan.slots, b->plan.slots, sizeof(a->plan.slots)) &&
	       (!a->plan.nsteps || !memcmp(a->plan.steps, b->plan.steps,
					   a->plan.nsteps * sizeof(*a->plan.steps))) &&
	       !strcmp(a->algorithm, b->algorithm) &&
	       x->collective == y->collective && n == y->nranks && x->rank == y->rank &&
	       x->in_place == y->in_place &&
	       (x->collective != NPULINK_COLL_P2P ||
		(x->peer == y->peer && x->send == y->send));
}

/* Arrays that the collective does not have are not written. */
static bool same_arrays(const struct coll_args *x, const struct coll_args *y)
{
	uint32_t n = x->nranks;
	bool v = false;

	switch (x->collective) {
	case NPULINK_COLL_SCATTERV:
	case NPULINK_COLL_GATHERV:
	case NPULINK_COLL_ALLGATHERV:
	case NPULINK_COLL_REDUCE_SCATTERV:
	case NPULINK_COLL_ALLTOALLV:
		v = true;
	}
	if (v && !(same_array(x->counts, y->counts, n) && same_array(x->displs, y->displs, n)))
		return false;
	return x->collective != NPULINK_COLL_ALLTOALLV ||
	       (same_array(x->rcounts, y->rcounts, n) && same_array(x->rdispls, y->rdispls, n));
}

static void check_text(const struct coll_text *t)
{
	struct coll_text_error error;
	struct coll_text again;
	uint32_t line = 0;
	const char *at;
	char *text, *twice;
	size_t len;
	int rc;

	rc = coll_plan_format(&t->args, t->algorithm[0] ? t->algorithm : NULL, &t->plan, &text);
	FUZZ_ASSERT(!rc, "rc %d", rc);
	at = text;
	len = strlen(text);
	rc = coll_plan_parse(&at, &len, &line, &again, &error);
	FUZZ_ASSERT(!rc && !len, "rc %d, line %u: %s\n%s", rc, error.line, error.text, text);
	rc = coll_plan_format(&again.args, again.algorithm[0] ? again.algorithm : NULL,
			      &again.plan, &twice);
	FUZZ_ASSERT(!rc && !strcmp(text, twice), "differ:\n%s---\n%s", text, twice);
	FUZZ_ASSERT(same_text(t, &again) && same_arrays(&t->args, &again.args),
		    "not the same:\n%s", text);
	free(text);
	free(twice);
	coll_text_free(&again);
	check_verifiers(&t->plan);
}

void fuzz_plan_text(const uint8_t *data, size_t size)
{
	const char *at = (const char *)data;
	struct coll_text_error error;
	struct coll_text text;
	size_t len = size;
	uint32_t line = 0;
	int rc;

	do {
		rc = coll_plan_parse(&at, &len, &line, &text, &error);
		if (rc == -EINVAL)
			check_line(error.text, sizeof(error.text));
		FUZZ_ASSERT(!rc || rc == -EINVAL || rc == -ENOENT, "rc %d", rc);
		if (!rc)
			check_text(&text);
		coll_text_free(&text);
	} while (!rc);
}

/* ---- plans as bytes */

void fuzz_plan_file(const uint8_t *data, size_t size)
{
	struct coll_text_error error;
	struct coll_plan plan;
	void *again;
	size_t len;
	int rc;

	rc = coll_plan_load(data, size, &plan, &error);
	if (rc) {
		FUZZ_ASSERT(rc == -EINVAL, "rc %d", rc);
		check_line(error.text, sizeof(error.text));
		return;
	}
	check_verifiers(&plan);
	rc = coll_plan_save(&plan, &again, &len);
	FUZZ_ASSERT(!rc && len == size && !memcmp(data, again, size), "rc %d, %zu of %zu bytes",
		    rc, len, size);
	free(again);
	coll_plan_free(&plan);
}

/* ---- which algorithm, and what the network costs */

static char *string(const uint8_t *data, size_t size)
{
	char *s = malloc(size + 1);

	FUZZ_ASSERT(s, "out of memory");
	memcpy(s, data, size);
	s[size] = 0;
	return s;
}

static void check_tune(int rc, struct coll_tune *tune, const char *text)
{
	struct coll_args args = { .nranks = 8, .dtype = NPULINK_FLOAT32, .count = 1000, .peer = 1 };
	const struct coll_algorithm *alg;
	uint64_t counts[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	double seconds;
	char why[COLL_TEXT];
	unsigned int i, k;

	if (rc) {
		check_line(text, COLL_TEXT);
		FUZZ_ASSERT(!tune->overrides && !tune->noverrides, "not empty");
		return;
	}
	FUZZ_ASSERT(tune->params.alpha >= 0 && tune->params.beta >= 0 &&
		    tune->params.gamma >= 0 && tune->params.ports, "costs");
	for (i = 0; i < tune->noverrides; i++) {
		const struct coll_override *a = &tune->overrides[i];

		FUZZ_ASSERT(a->from < a->to && a->alg && a->alg->collective == a->collective,
			    "override %u", i);
		for (k = 0; k < i; k++) {
			const struct coll_override *b = &tune->overrides[k];

			FUZZ_ASSERT(a->collective != b->collective || a->to <= b->from ||
				    b->to <= a->from, "overrides %u and %u", k, i);
		}
	}
	args.counts = counts;
	args.rcounts = counts;
	for (args.collective = 0; args.collective < NPULINK_COLLS; args.collective++) {
		rc = coll_tune_choose(tune, &args, &alg, &seconds, why, sizeof(why));
		FUZZ_ASSERT(rc == -EOPNOTSUPP || (!rc && seconds >= 0), "rc %d, %g seconds", rc,
			    seconds);
		if (rc)
			check_line(why, sizeof(why));
	}
	coll_tune_free(tune);
}

void fuzz_override(const uint8_t *data, size_t size)
{
	char *s = string(data, size), text[COLL_TEXT] = "";
	struct coll_tune tune;

	check_tune(coll_tune_init(&tune, "", s, 8, text, sizeof(text)), &tune, text);
	free(s);
}

static int calibrate(int fd, const void *data, size_t size, size_t at)
{
	char path[32], text[COLL_TEXT] = "";
	struct coll_tune tune;
	int rc;

	FUZZ_ASSERT(!ftruncate(fd, at) && pwrite(fd, data, size, at) == (ssize_t)size,
		    "errno %d", errno);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	rc = coll_tune_init(&tune, path, "", 8, text, sizeof(text));
	check_tune(rc, &tune, text);
	return rc;
}

/* However long a comment in front of it is, the file says the same. */
void fuzz_calibration(const uint8_t *data, size_t size)
{
	static int fd = -1;
	char comment[400];
	int rc;

	if (fd < 0)
		fd = memfd_create("calibration", MFD_CLOEXEC);
	FUZZ_ASSERT(fd >= 0, "errno %d", errno);
	rc = calibrate(fd, data, size, 0);
	memset(comment, 'x', sizeof(comment));
	comment[0] = '#';
	comment[sizeof(comment) - 1] = '\n';
	FUZZ_ASSERT(pwrite(fd, comment, sizeof(comment), 0) == sizeof(comment), "errno %d", errno);
	FUZZ_ASSERT(rc == calibrate(fd, data, size, sizeof(comment)), "rc %d", rc);
}

/* ---- networks of the simulator */

void fuzz_network(const uint8_t *data, size_t size)
{
	static const uint32_t ranks[] = { 1, 2, 6, 8, 17, 64 };
	char *s = string(data, size), name[COLL_NET_LINK_NAME];
	const char *error;
	uint32_t i, k, n;
	int rc;

	for (i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
		struct coll_net net = { .nranks = ranks[i] };

		rc = coll_net_parse(s, ranks[i], &net, &error);
		FUZZ_ASSERT(!rc == !error && (!rc || rc == -EINVAL), "rc %d", rc);
		if (rc)
			continue;
		if (net.kind == COLL_NET_SERVERS)
			for (k = 0; k < ranks[i]; k++)
				FUZZ_ASSERT(net.server_of[k] == (k ? net.server_of[k - 1] : 0) ||
					    net.server_of[k] == net.server_of[k - 1] + 1,
					    "server of rank %u", k);
		n = coll_net_links(&net);
		if (n)
			coll_net_link_name(&net, n - 1, name);
		free((void *)net.server_of);
	}
	free(s);
}
