// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * sim_models.c - the simulator itself: both engines agree, networks do what they are
 * said to do, conflicts are where theory has them, and what cannot run is refused.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "kselftest.h"
#include "lib/algorithm/algorithms.h"
#include "lib/plan/planner.h"
#include "lib/simulate/sim.h"

static const struct coll_cost_params params = {
	.alpha = 1e-6, .beta = 1 / 64e9, .gamma = 1 / 512e9, .ports = 1,
};

static bool close_to(double a, double b)
{
	bool ok = fabs(a - b) <= 1e-9 * fabs(b);

	if (!ok)
		ksft_print_msg("%.12g instead of %.12g\n", a, b);
	return ok;
}

static const struct coll_algorithm *find(uint32_t collective, const char *name)
{
	const struct coll_algorithm *alg = coll_algorithm_find(collective, name);

	if (!alg)
		ksft_exit_fail_msg("there is no %s %s\n", coll_collective_name(collective), name);
	return alg;
}

/* Simulated on a network by name; the count is of a broadcast or the like. */
static struct coll_sim_result run(uint32_t collective, const char *name, uint32_t p,
				  uint32_t root, const char *network, uint32_t sharing,
				  const struct coll_sim_opts *how)
{
	struct coll_args args = {
		.collective = collective, .nranks = p, .root = root, .count = 1 << 16,
		.dtype = NPULINK_FLOAT32,
	};
	struct coll_net net = coll_net_of(&params, p);
	struct coll_sim_result result;
	struct coll_topo topo = { 0 };
	const char *error;
	int rc;

	if (coll_net_parse(network, p, &net, &error))
		ksft_exit_fail_msg("%s: %s\n", network, error);
	net.sharing = sharing;
	if (net.kind == COLL_NET_MESH) {
		topo.rows = net.rows;
		topo.cols = net.cols;
		args.topo = &topo;
	}
	if (net.server_of) {
		topo.server_of = net.server_of;
		topo.nservers = net.server_of[p - 1] + 1;
		args.topo = &topo;
	}
	rc = coll_sim_algorithm(find(collective, name), &args, &net, how, &result);
	if (rc)
		ksft_exit_fail_msg("%s %s on %s: %d %s\n", coll_collective_name(collective), name,
				   network, rc, result.text);
	free((void *)net.server_of);
	return result;
}

#define MSG	(params.alpha + (4 << 16) * params.beta)

/* ---- engines */

static bool engines_agree(void)
{
	static const struct coll_sim_opts by_events = { .by_events = true };
	const struct coll_algorithm *alg = NULL;
	static uint64_t counts[17 * 17];
	static const uint32_t ps[] = { 2, 5, 8, 17 };
	uint32_t i;
	int rc;

	for (i = 0; i < 17 * 17; i++)
		counts[i] = i * 5 % 7 * 100;
	while ((alg = coll_algorithm_next(~0U, alg))) {
		for (i = 0; i < sizeof(ps) / sizeof(*ps); i++) {
			struct coll_args args = {
				.collective = alg->collective, .nranks = ps[i], .root = 1,
				.count = 12345, .dtype = NPULINK_FLOAT32, .counts = counts,
				.rcounts = counts,
			};
			struct coll_net net = coll_net_of(&params, ps[i]);
			struct coll_sim_result a, b;

			if ((alg->supports && alg->supports(&args)) ||
			    (alg->collective == NPULINK_COLL_P2P && ps[i] != 2))
				continue;
			rc = coll_sim_algorithm(alg, &args, &net, NULL, &a);
			if (!rc)
				rc = coll_sim_algorithm(alg, &args, &net, &by_events, &b);
			if (rc || fabs(a.seconds - b.seconds) > 1e-12 * b.seconds ||
			    a.messages != b.messages || a.bytes != b.bytes) {
				ksft_print_msg("%s %s, %u ranks: %d, %.15g and %.15g\n",
					       coll_collective_name(alg->collective), alg->name,
					       ps[i], rc, a.seconds, b.seconds);
				return false;
			}
		}
	}
	return true;
}

struct record {
	uint64_t hash, messages, conflicts;
};

static void mix(struct record *r, const void *data, size_t size)
{
	const unsigned char *c = data;

	for (; size; size--)
		r->hash = (r->hash ^ *c++) * 0x100000001b3ULL;
}

static void on_message(void *ctx, const struct coll_sim_message *m)
{
	struct record *r = ctx;
	double times[] = { m->due, m->start, m->end, m->done };
	uint32_t ids[] = { m->src, m->dst, m->src_step, m->dst_step };

	r->messages++;
	mix(r, times, sizeof(times));
	mix(r, ids, sizeof(ids));
}

static void on_conflict(void *ctx, const struct coll_sim_conflict *c)
{
	struct record *r = ctx;
	uint32_t ids[] = { c->link, c->src, c->dst, c->src_step, c->by_src, c->by_dst, c->by_step };

	r->conflicts++;
	mix(r, ids, sizeof(ids));
}

static bool deterministic(uint32_t rule, uint32_t sharing)
{
	struct record a = { 0 }, b = { 0 };
	struct coll_sim_opts how = {
		.rule = rule, .slice = 8192, .message = on_message, .conflict = on_conflict,
	};
	struct coll_sim_result first, second;

	how.ctx = &a;
	first = run(NPULINK_COLL_ALLTOALL, "isend-irecv", 24, 0, "mesh:4x6", sharing, &how);
	how.ctx = &b;
	second = run(NPULINK_COLL_ALLTOALL, "isend-irecv", 24, 0, "mesh:4x6", sharing, &how);
	return first.seconds == second.seconds && a.hash == b.hash && a.messages == 24 * 23 &&
	       a.messages == first.messages && a.conflicts == first.conflicts && a.conflicts;
}

/* ---- conflicts on meshes */

static uint64_t conflicts(const char *name, uint32_t rows, uint32_t cols, uint32_t root)
{
	char net[32];

	snprintf(net, sizeof(net), "mesh:%ux%u", rows, cols);
	return run(NPULINK_COLL_BROADCAST, name, rows * cols, root, net, COLL_SHARE_IGNORE,
		   NULL).conflicts;
}

/* From how many roots do messages get in each other's way? */
static uint32_t bad_roots(const char *name, uint32_t rows, uint32_t cols)
{
	uint32_t root, bad = 0;

	for (root = 0; root < rows * cols; root++)
		bad += conflicts(name, rows, cols, root) > 0;
	return bad;
}

static uint32_t bad_roots_up_to(const char *name, uint32_t most)
{
	uint32_t r, c, bad = 0;

	for (r = 1; r <= most; r++)
		for (c = 1; c <= most; c++)
			bad += bad_roots(name, r, c);
	return bad;
}

/* All messages in the way of others in one step: 2^i of them share a link in step i. */
static bool fair_hypercube(void)
{
	struct coll_sim_result r = run(NPULINK_COLL_BROADCAST, "hypercube-naive", 512, 0,
				       "mesh:16x32", COLL_SHARE_FAIR, NULL);

	return close_to(r.seconds, 9 * params.alpha + (16 + 32 - 2) * (4 << 16) * params.beta);
}

/* ---- other networks */

static bool ring_is_a_ring(void)
{
	struct coll_sim_result near = run(NPULINK_COLL_ALLGATHER, "ring", 12, 0, "ring",
					  COLL_SHARE_WAIT, NULL);
	struct coll_sim_result far = run(NPULINK_COLL_ALLGATHER, "mesh", 12, 0, "ring",
					 COLL_SHARE_WAIT, NULL);

	return !near.conflicts && close_to(near.seconds, 11 * MSG) && far.conflicts &&
	       far.seconds > near.seconds && far.waited > 0;
}

/* Four ranks at each switch want to get out; two can, or all get half. */
static bool tree_is_oversubscribed(void)
{
	struct coll_sim_result all, half, fair;

	all = run(NPULINK_COLL_ALLTOALL, "isend-irecv", 8, 0, "tree:4:4", COLL_SHARE_WAIT, NULL);
	half = run(NPULINK_COLL_ALLTOALL, "isend-irecv", 8, 0, "tree:4:2", COLL_SHARE_WAIT, NULL);
	fair = run(NPULINK_COLL_ALLTOALL, "isend-irecv", 8, 0, "tree:4:2", COLL_SHARE_FAIR, NULL);
	return !all.conflicts && close_to(all.seconds, 7 * MSG) && half.conflicts &&
	       half.seconds > all.seconds && fair.conflicts && fair.seconds > all.seconds;
}

/* (m-1) max(T_inter, T_intra) + T_intra, for a slower and a faster network between. */
static bool servers_overlap(double far_alpha, double far_beta)
{
	struct coll_args args = {
		.collective = NPULINK_COLL_ALLGATHER, .nranks = 12, .count = 1 << 16,
		.dtype = NPULINK_FLOAT32,
	};
	struct coll_net net = coll_net_of(&params, 12);
	struct coll_sim_result result;
	struct coll_topo topo = { 0 };
	double inter = far_alpha + (4 << 16) * far_beta, intra = MSG;
	const char *error;
	int rc;

	if (coll_net_parse("servers:4", 12, &net, &error))
		return false;
	net.ports = 11;
	net.alpha[1] = far_alpha;
	net.beta[1] = far_beta;
	topo.server_of = net.server_of;
	topo.nservers = 3;
	args.topo = &topo;
	rc = coll_sim_algorithm(find(NPULINK_COLL_ALLGATHER, "two-level"), &args, &net, NULL,
				&result);
	free((void *)net.server_of);
	return !rc && close_to(result.seconds, 2 * (inter > intra ? inter : intra) + intra);
}

static bool names_of_networks(void)
{
	static const struct {
		const char *text;
		uint32_t p;
		bool good;
	} tries[] = {
		{ "full", 7, true }, { "ring", 7, true }, { "mesh:2x4", 8, true },
		{ "mesh:8x1", 8, true }, { "tree:4", 9, true }, { "tree:4:1", 8, true },
		{ "servers:4", 10, true }, { "servers:4,3,1", 8, true }, { "servers:8", 8, true },
		{ "", 8, false }, { "teapot", 8, false }, { "mesh", 8, false },
		{ "mesh:", 8, false }, { "mesh:0x8", 8, false }, { "mesh:2x5", 8, false },
		{ "mesh:2x4x1", 8, false }, { "mesh:99999999999x1", 8, false },
		{ "mesh:-2x-4", 8, false }, { "tree:0", 8, false }, { "tree:4:5", 8, false },
		{ "tree:4:", 8, false }, { "servers:", 8, false }, { "servers:0", 8, false },
		{ "servers:4,", 8, false }, { "servers:4,3", 8, false },
		{ "servers:4,5", 8, false }, { "servers:4;4", 8, false },
		{ "servers:4,4,", 8, false }, { "fullish", 8, false },
	};
	struct coll_net net;
	const char *error;
	size_t i;
	int rc;

	for (i = 0; i < sizeof(tries) / sizeof(*tries); i++) {
		net = (struct coll_net){ 0 };
		rc = coll_net_parse(tries[i].text, tries[i].p, &net, &error);
		if (!rc != tries[i].good || !error != tries[i].good) {
			ksft_print_msg("\"%s\": %d\n", tries[i].text, rc);
			return false;
		}
		free((void *)net.server_of);
	}
	return true;
}

/* ---- the executor's rule */

/* A chain passes slices on: the last one arrives p - 2 slices after the first way. */
static bool chain_is_pipelined(void)
{
	struct coll_sim_opts how = { .rule = COLL_RULE_EXEC, .slice = 1 << 14 };
	struct coll_sim_result r = run(NPULINK_COLL_BROADCAST, "ring", 9, 0, "full",
				       COLL_SHARE_WAIT, &how);
	double slice = (1 << 14) * params.beta, all = (4 << 16) * params.beta;

	return close_to(r.seconds, 8 * params.alpha + 7 * slice + all);
}

/* Of a message of 16 slices all but the last are reduced while others arrive. */
static bool reductions_overlap(void)
{
	struct coll_sim_opts how = { .rule = COLL_RULE_EXEC, .slice = 1 << 14 };
	struct coll_sim_result r = run(NPULINK_COLL_REDUCE, "binomial", 2, 0, "full",
				       COLL_SHARE_WAIT, &how);

	return close_to(r.seconds, MSG + (1 << 14) * params.gamma);
}

/* It never loses to the cost rule by more than what interleaving costs. */
static bool executor_is_sane(void)
{
	const struct coll_algorithm *alg = NULL;
	struct coll_sim_opts how = { .rule = COLL_RULE_EXEC };

	while ((alg = coll_algorithm_next(~0U, alg))) {
		struct coll_args args = {
			.collective = alg->collective, .nranks = 13, .root = 5,
			.count = 1 << 20, .dtype = NPULINK_FLOAT32, .chunks = 4,
		};
		struct coll_net net = coll_net_of(&params, 13);
		struct coll_sim_result cost, exec;
		struct coll_bounds bounds = { 0 };
		static uint64_t counts[13 * 13];
		int rc;

		for (size_t i = 0; i < 13 * 13; i++)
			counts[i] = 1 << 20;
		if (alg->collective == NPULINK_COLL_P2P)
			continue;
		args.counts = args.rcounts = counts;
		if (alg->supports && alg->supports(&args))
			continue;
		rc = coll_sim_algorithm(alg, &args, &net, NULL, &cost);
		if (!rc)
			rc = coll_sim_algorithm(alg, &args, &net, &how, &exec);
		if (!rc)
			bounds = coll_bounds(&args, &params);
		if (rc || exec.seconds < bounds.best * (1 - 1e-9) ||
		    exec.seconds > 1.6 * cost.seconds || exec.bytes != cost.bytes ||
		    exec.messages != cost.messages) {
			ksft_print_msg("%s %s: %d, cost rule %g, exec rule %g, bound %g\n",
				       coll_collective_name(alg->collective), alg->name, rc,
				       cost.seconds, exec.seconds, bounds.best);
			return false;
		}
	}
	return true;
}

/* ---- plans that cannot run */

enum fault { CROSSED, UNMET, LENGTHS, NO_PEER };

/* Two ranks that both receive first, or worse. */
static int get_faulty(void *ctx, uint32_t rank, struct coll_args *args, struct coll_plan *plan)
{
	enum fault fault = *(enum fault *)ctx;
	uint32_t got;

	memset(plan, 0, sizeof(*plan));
	*args = (struct coll_args){ .nranks = 2, .rank = rank };
	plan->nranks = 2;
	plan->rank = rank;
	switch (fault) {
	case CROSSED:
		got = plan_recv(plan, 1 - rank, at_recv(0), 8);
		plan_after(plan, got);
		plan_send(plan, 1 - rank, at_send(0), 8);
		break;
	case UNMET:
		if (rank)
			plan_recv(plan, 0, at_recv(0), 8);
		break;
	case LENGTHS:
		if (rank)
			plan_recv(plan, 0, at_recv(0), 8);
		else
			plan_send(plan, 1, at_send(0), 9);
		break;
	case NO_PEER:
		plan_send(plan, 2, at_send(0), 8);
	}
	return 0;
}

static bool refused(enum fault fault, bool by_events, uint32_t rule, int want)
{
	struct coll_set set = { .nranks = 2, .get = get_faulty, .ctx = &fault };
	struct coll_sim_opts how = { .by_events = by_events, .rule = rule };
	struct coll_net net = coll_net_of(&params, 2);
	struct coll_sim_result result;
	int rc = coll_sim_run(&set, &net, &how, &result);

	if (rc == want && *result.text)
		return true;
	ksft_print_msg("fault %d: %d, \"%s\"\n", fault, rc, result.text);
	return false;
}

static bool all_refused(void)
{
	static const int want[] = { -EDEADLK, -EDEADLK, -EINVAL, -EINVAL };
	uint32_t f;

	for (f = CROSSED; f <= NO_PEER; f++)
		if (!refused(f, false, COLL_RULE_COST, want[f]) ||
		    !refused(f, true, COLL_RULE_COST, want[f]) ||
		    !refused(f, true, COLL_RULE_EXEC, want[f]))
			return false;
	return true;
}

/* ---- size */

static bool lists_are_shared(void)
{
	struct coll_args args = {
		.collective = NPULINK_COLL_ALLREDUCE, .nranks = 512, .count = 512 * 64,
		.dtype = NPULINK_FLOAT32,
	};
	struct coll_net net = coll_net_of(&params, 512);
	struct coll_sim_result ring, rhd;

	if (coll_sim_algorithm(find(NPULINK_COLL_ALLREDUCE, "ring"), &args, &net, NULL, &ring) ||
	    coll_sim_algorithm(find(NPULINK_COLL_ALLREDUCE, "rhd"), &args, &net, NULL, &rhd))
		return false;
	ksft_print_msg("ring %u lists, %llu bytes; rhd %u lists\n", ring.lists,
		       (unsigned long long)ring.memory, rhd.lists);
	return ring.lists == 1 && rhd.lists == 1 && ring.messages == 512 * 2 * 511 &&
	       ring.memory < 2 << 20;
}

/* Very many steps: only some ranks are planned, and it comes out the same. */
static bool very_many_are_sampled(void)
{
	struct coll_args args = {
		.collective = NPULINK_COLL_ALLREDUCE, .nranks = 16385, .count = 16385,
		.dtype = NPULINK_FLOAT32,
	};
	const struct coll_algorithm *nhr = find(NPULINK_COLL_ALLREDUCE, "nhr");
	struct coll_net net = coll_net_of(&params, args.nranks);
	struct coll_sim_result r;

	return !coll_sim_algorithm(nhr, &args, &net, NULL, &r) && r.sampled && r.lists == 1 &&
	       r.messages == 16385 * 30 && close_to(r.seconds, nhr->cost(&args, &params));
}

static bool one_rank_takes_no_time(void)
{
	const struct coll_algorithm *alg = NULL;
	uint64_t count = 5;

	while ((alg = coll_algorithm_next(~0U, alg))) {
		struct coll_args args = {
			.collective = alg->collective, .nranks = 1, .count = 100,
			.dtype = NPULINK_FLOAT32, .counts = &count, .rcounts = &count,
		};
		struct coll_net net = coll_net_of(&params, 1);
		struct coll_sim_result r;

		if (alg->collective == NPULINK_COLL_P2P || (alg->supports && alg->supports(&args)))
			continue;
		if (coll_sim_algorithm(alg, &args, &net, NULL, &r) || r.seconds != 0 ||
		    r.messages || coll_bounds(&args, &params).best != 0)
			return false;
	}
	return true;
}

#if defined(__SANITIZE_ADDRESS__)
#define MESHES	4
#else
#define MESHES	9
#endif

/* A torus of one row or column is a ring. */
static bool torus_is_a_torus(void)
{
	static const char *const lines[] = { "torus:1x12", "torus:12x1" };
	struct coll_sim_result ring = run(NPULINK_COLL_ALLTOALL, "pairwise", 12, 0, "ring",
					  COLL_SHARE_WAIT, NULL), torus;
	bool ok = ring.conflicts > 0;

	for (uint32_t i = 0; i < 2; i++) {
		torus = run(NPULINK_COLL_ALLTOALL, "pairwise", 12, 0, lines[i], COLL_SHARE_WAIT,
			    NULL);
		ok &= torus.conflicts == ring.conflicts && torus.seconds == ring.seconds;
	}
	torus = run(NPULINK_COLL_ALLGATHER, "ring", 12, 0, "torus:3x4", COLL_SHARE_WAIT, NULL);
	return ok && !torus.conflicts;
}

/* alltoallv: in each step the largest message of any rank counts, and the busiest rank bounds. */
static bool skewed_counts_are_bounded(uint32_t p)
{
	const struct coll_algorithm *alg = find(NPULINK_COLL_ALLTOALLV, "pairwise");
	uint64_t *rows = calloc((size_t)p * p, sizeof(*rows));
	struct coll_args args = {
		.collective = NPULINK_COLL_ALLTOALLV, .nranks = p, .dtype = NPULINK_FLOAT32,
		.counts = rows,
	};
	struct coll_net net = coll_net_of(&params, p);
	double right = (p - 1) * (params.alpha + 4e5 * params.beta), form, bound;
	struct coll_sim_result result;

	if (!rows)
		return false;
	for (uint32_t i = 0; i < p; i++)
		rows[i * p + 1] = 100000;
	if (coll_sim_algorithm(alg, &args, &net, NULL, &result))
		return false;
	form = coll_form(alg, &args, &params);
	bound = coll_bounds_on(&args, &net).best;
	free(rows);
	return fabs(form - right) < 1e-12 && result.seconds <= form * (1 + 1e-9) &&
	       bound <= result.seconds && bound > 0.8 * form &&
	       !coll_form_exact(alg, &args, &params);
}

/* Servers have a port more, to the network between them: nothing is below that bound. */
static bool two_ports_bound(double far)
{
	struct coll_net net = coll_net_of(&params, 12);
	const struct coll_algorithm *alg = NULL;
	struct coll_sim_result result;
	struct coll_topo topo;
	const char *error;
	bool ok = true;

	if (coll_net_parse("servers:3", 12, &net, &error))
		return false;
	net.alpha[1] = net.alpha[0] / far;
	net.beta[1] = net.beta[0] * far;
	topo = (struct coll_topo) { .nservers = 4, .server_of = net.server_of };
	while ((alg = coll_algorithm_next(~0U, alg))) {
		struct coll_args args = {
			.collective = alg->collective, .nranks = 12, .dtype = NPULINK_FLOAT32,
			.count = 12 * 4096, .topo = &topo,
		};

		if (npulink_coll_is_v(alg->collective) || alg->collective == NPULINK_COLL_P2P ||
		    (alg->supports && alg->supports(&args)))
			continue;
		ok &= !coll_sim_algorithm(alg, &args, &net, NULL, &result) &&
		      coll_bounds_on(&args, &net).best <= result.seconds * (1 + 1e-9);
	}
	free((void *)net.server_of);
	return ok;
}

static bool is_exact(const char *name, uint32_t collective, uint32_t p, uint64_t count,
		     uint32_t ports)
{
	struct coll_args args = {
		.collective = collective, .nranks = p, .dtype = NPULINK_FLOAT32, .count = count,
	};
	struct coll_cost_params all = params;

	all.ports = ports;
	return coll_form_exact(find(collective, name), &args, &all);
}

static bool exact_where_it_is(void)
{
	return is_exact("rhd", NPULINK_COLL_BROADCAST, 6, 1000, 1) &&
	       !is_exact("rhd", NPULINK_COLL_BROADCAST, 6, 1000, 5) &&
	       is_exact("ring", NPULINK_COLL_ALLREDUCE, 6, 1200, 1) &&
	       !is_exact("ring", NPULINK_COLL_ALLREDUCE, 6, 1201, 1) &&
	       is_exact("mesh", NPULINK_COLL_ALLREDUCE, 6, 1200, 5) &&
	       is_exact("binomial", NPULINK_COLL_BROADCAST, 6, 1001, 1) &&
	       !is_exact("nhr", NPULINK_COLL_BROADCAST, 6, 1001, 1);
}

int main(void)
{
	uint32_t bad;

	ksft_print_header();
	ksft_set_plan(29 + 4);
	ksft_test_result(engines_agree(), "both engines agree on all algorithms\n");
	ksft_test_result(deterministic(COLL_RULE_COST, COLL_SHARE_WAIT), "same run twice\n");
	ksft_test_result(deterministic(COLL_RULE_COST, COLL_SHARE_FAIR), "twice, fair shares\n");
	ksft_test_result(deterministic(COLL_RULE_EXEC, COLL_SHARE_WAIT), "twice, executor\n");
	ksft_test_result(deterministic(COLL_RULE_EXEC, COLL_SHARE_FAIR),
			 "twice, executor and fair shares\n");

	ksft_test_result(conflicts("hypercube-naive", 16, 32, 0) > 0,
			 "16 x 32: naive hypercube order has conflicts\n");
	ksft_test_result(conflicts("hypercube-reversed", 16, 32, 0) == 0,
			 "16 x 32: reversed order has none\n");
	ksft_test_result(fair_hypercube(), "16 x 32: with fair shares lg p alpha + (r+c-2) n beta\n");
	bad = bad_roots("halving", 12, 17);
	ksft_test_result(bad > 102, "12 x 17: halving has conflicts from %u of 204 roots\n", bad);
	ksft_test_result(!bad_roots("rsbcast", 12, 17), "12 x 17: rsbcast has none\n");
	ksft_test_result(!bad_roots("fence", 12, 17), "12 x 17: the fence has none\n");
	ksft_test_result(!bad_roots("dimensions", 12, 17), "12 x 17: dimensions have none\n");
	ksft_test_result(!bad_roots_up_to("rsbcast", MESHES),
			 "rsbcast has none up to %u x %u, all roots\n", MESHES, MESHES);
	ksft_test_result(!bad_roots_up_to("fence", MESHES),
			 "the fence has none up to %u x %u, all roots\n", MESHES, MESHES);
	bad = bad_roots_up_to("halving", MESHES);
	ksft_test_result(MESHES == 9 ? bad == 464 : bad > 0,
			 "halving has them in %u cases up to %u x %u\n", bad, MESHES, MESHES);
	ksft_test_result(!conflicts("halving", 3, 3, 0) && !conflicts("halving", 3, 3, 1) &&
			 conflicts("halving", 3, 3, 2),
			 "3 x 3: halving has them from root 2 on\n");
	ksft_test_result(!bad_roots("halving", 4, 8), "4 x 8: halving has none\n");
	ksft_test_result(!bad_roots("scatter-collect-1d", 4, 8) &&
			 !bad_roots("scatter-collect-2d", 4, 8),
			 "4 x 8: scatter-collect has none\n");

	ksft_test_result(ring_is_a_ring(), "ring\n");
	ksft_test_result(tree_is_oversubscribed(), "tree with oversubscription\n");
	ksft_test_result(servers_overlap(5e-6, 1 / 25e9), "servers: both levels are busy\n");
	ksft_test_result(servers_overlap(0.5e-6, 1 / 200e9), "servers, fast network between\n");
	ksft_test_result(names_of_networks(), "names of networks\n");
	ksft_test_result(torus_is_a_torus(), "torus\n");
	ksft_test_result(skewed_counts_are_bounded(4) && skewed_counts_are_bounded(16),
			 "alltoallv: bounds of all ranks, skewed counts\n");
	ksft_test_result(two_ports_bound(1) && two_ports_bound(0.5), "servers: no row beats the bound of two ports\n");
	ksft_test_result(exact_where_it_is(), "forms are exact where they are\n");

	ksft_test_result(chain_is_pipelined(), "executor: fused steps pass slices on\n");
	ksft_test_result(reductions_overlap(), "executor: reductions overlap arrivals\n");
	ksft_test_result(executor_is_sane(), "executor: between the bounds and the cost rule\n");
	ksft_test_result(all_refused(), "plans that cannot run are refused\n");
	ksft_test_result(very_many_are_sampled(), "very many ranks\n");
	ksft_test_result(lists_are_shared() && one_rank_takes_no_time(), "sizes\n");
	ksft_finished();
}
