// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * tune.c - which algorithm a call takes.
 *
 * The cheapest by what the network costs, which a calibration file says
 * (calibration.c, work.c); or what the user's override says. Ranks decide without
 * talking to each other, so only what is equal on all of them may count: never
 * the own rank, whether this rank is in place, or alltoallv's counts.
 */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <npulink/verify.h>
#include "algorithm/algorithms.h"
#include "base/base.h"
#include "base/lines.h"
#include "tune/calibration.h"
#include "tune/tune.h"

/* "4k" -> 4096; returns what follows the number, NULL if there is none. */
static const char *parse_size(const char *s, uint64_t *size)
{
	static const char units[] = "kmg";
	unsigned int shift = 0;
	const char *unit;
	char *end;

	if (!isdigit((unsigned char)*s))
		return NULL;
	errno = 0;
	*size = strtoull(s, &end, 10);
	unit = *end ? strchr(units, tolower((unsigned char)*end)) : NULL;
	if (unit) {
		shift = 10 * (unit - units + 1);
		end++;
	}
	if (errno || *size > UINT64_MAX >> shift)
		return NULL;
	*size <<= shift;
	return end;
}

static void list_algorithms(uint32_t collective, char *text, size_t size)
{
	const struct coll_algorithm *alg = NULL;
	size_t n = 0;

	while ((alg = coll_algorithm_next(collective, alg)) && n < size)
		n += snprintf(text + n, size - n, "%s%s", n ? ", " : "", alg->name);
}

static int add_override(struct coll_tune *tune, const struct coll_override *o)
{
	struct coll_override *v = realloc(tune->overrides, (tune->noverrides + 1) * sizeof(*v));

	if (!v)
		return -ENOMEM;
	v[tune->noverrides++] = *o;
	tune->overrides = v;
	return 0;
}

/* NULL: there are no more. One may be empty, which is nothing's name. */
static char *next_field(char **rest)
{
	char *field = strsep(rest, ":");

	return field ? coll_trim(field) : NULL;
}

/* One of "allreduce:0-4k:mesh", "4k-:ring" (of the same collective), "allreduce:ring". */
static int parse_item(struct coll_tune *tune, char *item, int *collective, char *text, size_t size)
{
	struct coll_override o = { .from = 0, .to = UINT64_MAX };
	char *range, *name, names[128] = "";
	const char *p;

	range = next_field(&item);
	if (range && !isdigit((unsigned char)*range)) {
		*collective = coll_collective_parse(range);
		if (*collective < 0)
			return coll_text(text, size, -EINVAL,
					 "algorithm override (COLL_ALGORITHM): \"%s\" is no collective",
					 range);
		range = next_field(&item);
	}
	if (*collective < 0)
		return coll_text(text, size, -EINVAL,
				 "algorithm override (COLL_ALGORITHM): it must begin with a collective, as in \"allreduce:0-4k:mesh;4k-:ring\"");
	name = next_field(&item);
	if (!name) {
		name = range;
		range = NULL;
	}
	if (!name || item)
		return coll_text(text, size, -EINVAL,
				 "algorithm override (COLL_ALGORITHM): an item must be COLLECTIVE:FROM-TO:ALGORITHM, FROM-TO:ALGORITHM or COLLECTIVE:ALGORITHM");
	if (range) {
		p = parse_size(range, &o.from);
		if (p && *p == '-') {
			p++;
			p = *p ? parse_size(p, &o.to) : p;
		} else {
			p = NULL;
		}
		if (!p || *p || o.to <= o.from)
			return coll_text(text, size, -EINVAL,
					 "algorithm override (COLL_ALGORITHM): \"%s\" is no range of sizes such as 0-4k or 4k-",
					 range);
	}
	o.collective = *collective;
	o.alg = coll_algorithm_find(o.collective, name);
	if (!o.alg) {
		list_algorithms(o.collective, names, sizeof(names));
		return coll_text(text, size, -EINVAL,
				 "algorithm override (COLL_ALGORITHM): %s has no algorithm \"%s\"; it has %s",
				 coll_collective_name(o.collective), name, names);
	}
	if (o.collective == NPULINK_COLL_ALLTOALLV && (o.from || o.to != UINT64_MAX))
		return coll_text(text, size, -EINVAL,
				 "algorithm override (COLL_ALGORITHM): alltoallv cannot depend on the size, which differs between ranks");
	for (unsigned int i = 0; i < tune->noverrides; i++) {
		const struct coll_override *other = &tune->overrides[i];

		if (other->collective == o.collective && other->from < o.to && o.from < other->to)
			return coll_text(text, size, -EINVAL,
					 "algorithm override (COLL_ALGORITHM): %s has two algorithms for one size",
					 coll_collective_name(o.collective));
	}
	if (add_override(tune, &o))
		return coll_text(text, size, -ENOMEM, "out of memory");
	return 0;
}

static int parse_overrides(struct coll_tune *tune, const char *overrides, char *text, size_t size)
{
	char *copy = strdup(overrides), *save, *item;
	int collective = -1, rc = 0;

	if (!copy)
		return coll_text(text, size, -ENOMEM, "out of memory");
	for (item = strtok_r(copy, ";", &save); item && !rc; item = strtok_r(NULL, ";", &save)) {
		item = coll_trim(item);
		if (*item)
			rc = parse_item(tune, item, &collective, text, size);
	}
	free(copy);
	return rc;
}

/* Both texts may be NULL: then the environment is asked. */
int coll_tune_init(struct coll_tune *tune, const char *calibration, const char *overrides,
		   uint32_t nranks, char *text, size_t size)
{
	int rc;

	*tune = (struct coll_tune) { };
	rc = coll_calibration_read(tune, calibration, nranks, text, size);
	if (!overrides)
		overrides = secure_getenv("COLL_ALGORITHM");
	if (!rc && overrides)
		rc = parse_overrides(tune, overrides, text, size);
	if (rc)
		coll_tune_free(tune);
	return rc;
}

void coll_tune_free(struct coll_tune *tune)
{
	free(tune->overrides);
	tune->overrides = NULL;
	tune->noverrides = 0;
}

/* The payload that overrides go by; 0 for alltoallv, where ranks would differ. */
uint64_t coll_args_bytes(const struct coll_args *args)
{
	uint64_t n = args->count, size = npulink_dtype_size(args->dtype);

	if (coll_has_rcounts(args->collective) || args->collective == NPULINK_COLL_BARRIER)
		return 0;
	if (npulink_coll_is_v(args->collective)) {
		n = 0;
		for (uint32_t i = 0; i < args->nranks; i++)
			if (__builtin_add_overflow(n, args->counts[i], &n))
				return UINT64_MAX;
	} else if (npulink_coll_has_blocks(args->collective)) {
		if (__builtin_mul_overflow(n, args->nranks, &n))
			return UINT64_MAX;
	}
	return __builtin_mul_overflow(n, size, &n) ? UINT64_MAX : n;
}

/*
 * The count that stands for @count when an algorithm is chosen: itself if it has at most four
 * significant bits, else the middle between those that have. So limits that are powers of two
 * hold for it if and only if they hold for @count.
 */
uint64_t coll_tune_class(uint64_t count)
{
	unsigned int shift;

	if (count < 16)
		return count;
	shift = 60 - __builtin_clzll(count);
	if (count & ((1ULL << shift) - 1))
		return (count >> shift << shift) + (1ULL << shift) / 2;
	return count;
}

/* What all ranks have in common. zero: nranks zeroes, for alltoallv. */
static struct coll_args common_args(const struct coll_args *args, const uint64_t *zero)
{
	struct coll_args common = *args;

	common.rank = 0;
	common.in_place = false;
	common.count = coll_tune_class(args->count);
	if (args->collective == NPULINK_COLL_ALLTOALLV) {
		common.counts = zero;
		common.displs = zero;
		common.rcounts = zero;
		common.rdispls = zero;
	}
	if (args->collective == NPULINK_COLL_P2P) {
		common.rank = args->send ? args->rank : args->peer;
		common.peer = args->send ? args->peer : args->rank;
		common.send = true;
	}
	return common;
}

/* Some rows can do a call only because of how the ranks are wired. */
static bool made_for_wiring(const struct coll_algorithm *alg, const struct coll_args *common)
{
	struct coll_args unwired = *common;

	unwired.topo = NULL;
	return common->topo && alg->supports && alg->supports(&unwired);
}

/* Where the forms are equal, what was made for the wiring meets no contention there. */
static bool better(const struct coll_algorithm *alg, double cost,
		   const struct coll_algorithm *best, double seconds,
		   const struct coll_args *common)
{
	const double close = seconds / 1e9;

	if (!best || cost < seconds - close)
		return true;
	return cost <= seconds + close && made_for_wiring(alg, common) &&
	       !made_for_wiring(best, common);
}

/* What an override asks for in such a call; NULL: the cheapest. */
const struct coll_algorithm *coll_tune_asked(const struct coll_tune *tune,
					     const struct coll_args *args)
{
	uint64_t bytes = coll_args_bytes(args);

	for (unsigned int i = 0; i < tune->noverrides; i++) {
		const struct coll_override *o = &tune->overrides[i];

		if (o->collective == args->collective && bytes >= o->from && bytes < o->to)
			return o->alg;
	}
	return NULL;
}

static int choose(const struct coll_tune *tune, const struct coll_args *args,
		  const struct coll_args *common, const struct coll_algorithm **algp,
		  double *seconds, char *text, size_t size)
{
	const struct coll_algorithm *alg = coll_tune_asked(tune, args);
	struct coll_price prices[COLL_PRICES];
	const char *why = "there is none";
	unsigned int n;

	if (alg) {
		why = alg->supports ? alg->supports(common) : NULL;
		if (why)
			return coll_text(text, size, -EOPNOTSUPP,
					 "the override asks for algorithm %s, which cannot do it: %s",
					 alg->name, why);
		*algp = alg;
		*seconds = coll_tune_predict(tune, alg, common);
		return 0;
	}
	*algp = NULL;
	n = coll_tune_prices(tune, common, prices);
	for (unsigned int i = 0; i < n; i++) {
		const struct coll_price *p = &prices[i];

		if (p->why) {
			why = p->why;
		} else if (better(p->alg, p->seconds, *algp, *seconds, common)) {
			*algp = p->alg;
			*seconds = p->seconds;
		}
	}
	return *algp ? 0 : coll_text(text, size, -EOPNOTSUPP, "no algorithm can do it: %s", why);
}

/* The algorithm for a call, and the time that one of its class should take. */
int coll_tune_choose(const struct coll_tune *tune, const struct coll_args *args,
		     const struct coll_algorithm **alg, double *seconds, char *text, size_t size)
{
	uint64_t *zero = NULL;
	struct coll_args common;
	int rc;

	if (args->collective == NPULINK_COLL_ALLTOALLV) {
		zero = calloc(args->nranks, sizeof(*zero));
		if (!zero)
			return coll_text(text, size, -ENOMEM, "out of memory");
	}
	common = common_args(args, zero);
	rc = choose(tune, args, &common, alg, seconds, text, size);
	free(zero);
	return rc;
}

/*
 * What pipelines count their chunks for: the numbers of a calibration, which all ranks have of
 * one. Where processors do the copying, one does it for a rank at a time.
 */
struct coll_cost_params coll_tune_network(const struct coll_tune *tune,
					  const struct coll_args *args)
{
	struct coll_cost_params network = tune->params;

	network.gamma = tune->gamma[args->dtype];
	if (tune->work.processors)
		network.ports = 1;
	return network;
}

/*
 * How long a rank should take for its own part, where coll_tune_choose() could not look at that:
 * not for the choice.
 */
double coll_tune_own_part(const struct coll_tune *tune, const struct coll_algorithm *alg,
			  const struct coll_args *args)
{
	struct coll_cost_params params = tune->params;

	/* All of it, and not only the largest block. */
	params.ports = 1;
	if (args->topo && args->topo->nservers > 1) {
		params.alpha = fmax(params.alpha, tune->far_alpha);
		params.beta = fmax(params.beta, tune->far_beta);
	}
	return alg->cost(args, &params);
}
