/* SPDX-License-Identifier: GPL-2.0 */
/*
 * net.h - the network that npulink plan is asked to think of: options, and
 * what comes of them.
 */
#ifndef TOOL_PLAN_NET_H
#define TOOL_PLAN_NET_H

#include "cli/npulink.h"
#include "lib/simulate/sim.h"
#include "lib/tune/tune.h"

/* What the command line says; negative numbers and 0: nothing. */
struct net_opts {
	const char *net;		/* name, as coll_net_parse() takes it */
	double alpha, beta, gamma, far_alpha, far_beta;
	bool all_ports, one_port;
	uint32_t sharing;
	uint64_t slice;
	bool cost_rule, exec_rule;
	const char *svg, *trace;
	bool check;
	uint64_t from, to;
};

/* Values of options without a letter: beyond all letters. */
enum {
	NET_FIRST = 0x100, NET_NET = NET_FIRST, NET_ALPHA, NET_BETA, NET_GAMMA, NET_FAR_ALPHA,
	NET_FAR_BETA, NET_PORTS, NET_SHARING, NET_SLICE, NET_RULE, NET_SVG, NET_TRACE,
	NET_CHECK, NET_FROM, NET_TO,
};

#define NET_LONG_OPTIONS \
	{ "net", required_argument, NULL, NET_NET }, \
	{ "alpha", required_argument, NULL, NET_ALPHA }, \
	{ "beta", required_argument, NULL, NET_BETA }, \
	{ "gamma", required_argument, NULL, NET_GAMMA }, \
	{ "far-alpha", required_argument, NULL, NET_FAR_ALPHA }, \
	{ "far-beta", required_argument, NULL, NET_FAR_BETA }, \
	{ "ports", required_argument, NULL, NET_PORTS }, \
	{ "sharing", required_argument, NULL, NET_SHARING }, \
	{ "slice", required_argument, NULL, NET_SLICE }, \
	{ "rule", required_argument, NULL, NET_RULE }, \
	{ "svg", required_argument, NULL, NET_SVG }, \
	{ "trace", required_argument, NULL, NET_TRACE }, \
	{ "check", no_argument, NULL, NET_CHECK }, \
	{ "from", required_argument, NULL, NET_FROM }, \
	{ "to", required_argument, NULL, NET_TO }

#define NET_SHAPE_HELP \
	"      --net NET         full, ring, mesh:ROWSxCOLS, torus:ROWSxCOLS,\n" \
	"                        servers:RANKS[,RANKS...] or tree:RANKS[:UPLINKS], ranks\n" \
	"                        being those per leaf switch or server (full)\n"

#define NET_COST_HELP \
	"      --alpha TIME      per message: 2us, 1e-6\n" \
	"      --beta SPEED      of moving: 64GB/s, or seconds per byte: 1.5e-11\n" \
	"      --gamma SPEED     of reducing, in the same way\n" \
	"      --ports 1|all     one port per rank, or one for each peer\n"

#define NET_OPTS_NONE \
	{ .alpha = -1, .beta = -1, .gamma = -1, .far_alpha = -1, .far_beta = -1 }

/* For options.c: one option; false if its value makes no sense. */
bool net_option(struct net_opts *o, int c, const char *arg);

/*
 * The parameters of the closed forms: those of the calibration but for what the
 * command line says. 0, or EXIT_FAILURE after a complaint.
 */
int net_params(const struct net_opts *o, uint32_t nranks, struct coll_cost_params *params);

struct coll_tune;

/* All that the choice goes by, in the same way; to be undone with coll_tune_free(). */
int net_tune(const struct net_opts *o, uint32_t nranks, struct coll_tune *tune);

/* What pipelines count their chunks for in such a call. 0 or EXIT_FAILURE. */
int net_network(const struct net_opts *o, const struct coll_args *args,
		struct coll_cost_params *network);

/* The part of it that the command line says. */
void net_override(const struct net_opts *o, uint32_t nranks, struct coll_cost_params *params);

/* The network; @net->server_of is to be freed. 0 or EXIT_FAILURE. */
int net_make(const struct net_opts *o, uint32_t nranks, struct coll_net *net);

/*
 * What planners get to know of --net: filled into @topo, whose server_of is to be
 * freed. NULL in *@use if it is nothing. 0 or EXIT_FAILURE.
 */
int net_topo(const struct net_opts *o, uint32_t nranks, struct coll_topo *topo,
	     const struct coll_topo **use);

#endif /* TOOL_PLAN_NET_H */
