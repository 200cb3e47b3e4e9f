// SPDX-License-Identifier: GPL-2.0
/*
 * net.c - the network that npulink plan is asked to think of. What the command
 * line does not say comes from the calibration, as it does for programs.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "coll.h"
#include "lib/tune/topo.h"
#include "lib/tune/tune.h"
#include "plan/net.h"
#include "state/calibration.h"

static bool positive(const char *text, char **end, double *value)
{
	errno = 0;
	*value = strtod(text, end);
	return *end != text && !errno && *value >= 0 && *value < 1e15;
}

/* "2us", "1.5ms", "2e-6" */
static bool parse_time(const char *text, double *seconds)
{
	static const struct {
		const char *name;
		double factor;
	} units[] = { { "", 1 }, { "s", 1 }, { "ms", 1e-3 }, { "us", 1e-6 }, { "ns", 1e-9 } };
	char *end;

	if (!positive(text, &end, seconds))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		if (strcmp(end, units[i].name))
			continue;
		*seconds *= units[i].factor;
		return true;
	}
	return false;
}

/* "64GB/s", "64G": bytes per second; a bare number: seconds per byte. */
static bool parse_speed(const char *text, double *per_byte)
{
	static const char units[] = "KMGT";
	const char *unit;
	double factor = 1e3;
	char *end;

	if (!positive(text, &end, per_byte))
		return false;
	if (!*end)
		return true;
	unit = strchr(units, *end);
	if (!unit || *per_byte <= 0)
		return false;
	for (; unit > units; unit--)
		factor *= 1e3;
	end++;
	if (*end && strcmp(end, "B/s") && strcmp(end, "B"))
		return false;
	*per_byte = 1 / (*per_byte * factor);
	return true;
}

static bool parse_word(const char *text, const char *const *words, uint32_t n, uint32_t *value)
{
	for (*value = 0; *value < n; ++*value)
		if (!strcmp(text, words[*value]))
			return true;
	return false;
}

bool net_option(struct net_opts *o, int c, const char *arg)
{
	static const char *const sharings[] = { "wait", "fair", "ignore" };
	static const char *const rules[] = { "cost", "exec", "both" };
	uint32_t word;

	switch (c) {
	case NET_NET:
		o->net = arg;
		return true;
	case NET_ALPHA:
		return parse_time(arg, &o->alpha);
	case NET_FAR_ALPHA:
		return parse_time(arg, &o->far_alpha);
	case NET_BETA:
		return parse_speed(arg, &o->beta);
	case NET_FAR_BETA:
		return parse_speed(arg, &o->far_beta);
	case NET_GAMMA:
		return parse_speed(arg, &o->gamma);
	case NET_PORTS:
		o->all_ports = !strcmp(arg, "all");
		o->one_port = !strcmp(arg, "1");
		return o->all_ports || o->one_port;
	case NET_SHARING:
		return parse_word(arg, sharings, ARRAY_SIZE(sharings), &o->sharing);
	case NET_RULE:
		if (!parse_word(arg, rules, ARRAY_SIZE(rules), &word))
			return false;
		o->cost_rule = word != 1;
		o->exec_rule = word != 0;
		return true;
	case NET_SLICE:
		return parse_size(arg, &o->slice) && o->slice;
	case NET_SVG:
		o->svg = arg;
		return true;
	case NET_TRACE:
		o->trace = arg;
		return true;
	case NET_CHECK:
		o->check = true;
		return true;
	case NET_FROM:
		return parse_size(arg, &o->from) && o->from;
	case NET_TO:
		return parse_size(arg, &o->to) && o->to;
	}
	return false;
}

void net_override(const struct net_opts *o, uint32_t nranks, struct coll_cost_params *params)
{
	if (o->alpha >= 0)
		params->alpha = o->alpha;
	if (o->beta >= 0)
		params->beta = o->beta;
	if (o->gamma >= 0)
		params->gamma = o->gamma;
	if (o->all_ports)
		params->ports = nranks > 1 ? nranks - 1 : 1;
	if (o->one_port)
		params->ports = 1;
}

static int net_read(const struct net_opts *o, uint32_t nranks, struct coll_tune *tune)
{
	char text[400] = "";
	int rc = coll_tune_init(tune, NULL, NULL, nranks, text, sizeof(text));

	return rc ? fail("%s", *text ? text : coll_strerror(rc)) : 0;
}

int net_tune(const struct net_opts *o, uint32_t nranks, struct coll_tune *tune)
{
	int rc = net_read(o, nranks, tune);

	if (rc)
		return rc;
	/* Another network than the one that was measured has no such processors. */
	if (o->net || o->alpha >= 0 || o->beta >= 0 || o->gamma >= 0 || o->all_ports ||
	    o->one_port)
		tune->work.processors = 0;
	else
		calibration_guess(tune, nranks);
	net_override(o, nranks, &tune->params);
	for (uint32_t t = 0; o->gamma >= 0 && t < NPULINK_DTYPES; t++)
		tune->gamma[t] = o->gamma;
	return 0;
}

int net_network(const struct net_opts *o, const struct coll_args *args,
		struct coll_cost_params *network)
{
	struct coll_tune tune;
	int rc = net_tune(o, args->nranks, &tune);

	if (rc)
		return rc;
	*network = coll_tune_network(&tune, args);
	coll_tune_free(&tune);
	return 0;
}

int net_params(const struct net_opts *o, uint32_t nranks, struct coll_cost_params *params)
{
	struct coll_tune tune;
	int rc = net_read(o, nranks, &tune);

	if (rc)
		return rc;
	net_override(o, nranks, &tune.params);
	*params = tune.params;
	coll_tune_free(&tune);
	return 0;
}

int net_make(const struct net_opts *o, uint32_t nranks, struct coll_net *net)
{
	struct coll_cost_params params;
	const char *error;
	int rc = net_params(o, nranks, &params);

	if (rc)
		return rc;
	*net = coll_net_of(&params, nranks);
	if (o->net && coll_net_parse(o->net, nranks, net, &error))
		return usage_error("--net %s: %s", o->net, error);
	net->sharing = o->sharing;
	if (o->far_alpha >= 0)
		net->alpha[1] = o->far_alpha;
	if (o->far_beta >= 0)
		net->beta[1] = o->far_beta;
	return 0;
}

int net_topo(const struct net_opts *o, uint32_t nranks, struct coll_topo *topo,
	     const struct coll_topo **use)
{
	struct coll_net net = { 0 };
	const char *error;

	*topo = (struct coll_topo){ 0 };
	*use = NULL;
	if (!o->net)
		return 0;
	if (coll_net_parse(o->net, nranks, &net, &error))
		return usage_error("--net %s: %s", o->net, error);
	*topo = coll_topo_of(&net);
	*use = coll_topo_known(topo) ? topo : NULL;
	return 0;
}

/* ---- output */
