// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * mesh.c - the Mesh family: every rank talks to every other one directly.
 *
 * A reduction of p inputs is one chain of steps, which the device carries out
 * in one pass: it reads each input once and writes the result once. See "Mesh"
 * in ALGORITHMS.md; with all p - 1 links at once the forms are those of HCCL.
 */
#include <errno.h>
#include <stdlib.h>
#include "algorithm/algorithms.h"
#include "plan/planner.h"

struct mesh {
	uint32_t p, rank;
	struct plan_shards s;
};

static struct mesh mesh_of(const struct coll_args *args)
{
	return (struct mesh){ .p = args->nranks, .rank = args->rank, .s = plan_shards(args) };
}

static uint32_t to_peer(const struct mesh *m, uint32_t k)
{
	return mod_add(m->rank, k, m->p);
}

static uint32_t from_peer(const struct mesh *m, uint32_t k)
{
	return mod_sub(m->rank, k, m->p);
}

/*
 * dst = src + what all others send, in the order rank - 1, rank - 2, ..; returns
 * the last step. The last one also offers dst to @to, if that is a rank.
 */
static uint32_t mesh_chain(const struct mesh *m, struct coll_plan *plan, struct plan_at src,
			   struct plan_at dst, uint64_t len, uint32_t to)
{
	uint32_t k, step = PLAN_NONE;

	for (k = 1; k < m->p; k++) {
		bool begin = (k - 1) % NPULINK_CHAIN_MAX == 0;

		if (begin)
			plan_after(plan, step);
		if (k == m->p - 1 && to != NPULINK_NO_PEER)
			step = plan_recv_reduce_send(plan, from_peer(m, k), to, src, dst, len);
		else
			step = plan_recv_reduce(plan, from_peer(m, k), src, dst, len);
		plan_recv_plain(plan, step, true);
		if (!begin)
			plan_chain(plan, step);
		src = dst;
	}
	plan_final(plan, step);
	return step;
}

static int mesh_reduce_scatter(const struct coll_args *args, struct coll_plan *plan)
{
	struct mesh m = mesh_of(args);
	uint64_t own = shard_off(&m.s, m.rank);
	uint32_t k, to;

	for (k = 1; k < m.p; k++) {
		to = to_peer(&m, k);
		plan_send(plan, to, plan_input(args, shard_off(&m.s, to)),
			  shard_len(&m.s, to));
	}
	mesh_chain(&m, plan, plan_input(args, own), at_recv(plan_in_place(args) ? own : 0),
		   shard_len(&m.s, m.rank), NPULINK_NO_PEER);
	return 0;
}

static int mesh_allgather(const struct coll_args *args, struct coll_plan *plan)
{
	struct mesh m = mesh_of(args);
	uint64_t own = shard_off(&m.s, m.rank), len = shard_len(&m.s, m.rank);
	bool in_place = plan_in_place(args);
	uint32_t k, from;

	for (k = 1; k < m.p; k++)
		plan_send(plan, to_peer(&m, k), in_place ? at_recv(own) : at_send(0), len);
	if (!in_place)
		plan_copy(plan, at_send(0), at_recv(own), len);
	for (k = 1; k < m.p; k++) {
		from = from_peer(&m, k);
		plan_recv(plan, from, at_recv(shard_off(&m.s, from)), shard_len(&m.s, from));
	}
	return 0;
}

/*
 * reduce_scatter into the own shard of the receive buffer, then allgather. In
 * place, a shard may be overwritten only when its owner has read it.
 */
static int mesh_allreduce(const struct coll_args *args, struct coll_plan *plan)
{
	struct mesh m = mesh_of(args);
	uint64_t own = shard_off(&m.s, m.rank), len = shard_len(&m.s, m.rank);
	uint32_t *left = malloc(m.p * sizeof(*left));
	bool in_place = plan_in_place(args);
	uint32_t k, peer, sum;

	if (!left)
		return -ENOMEM;
	for (k = 1; k < m.p; k++) {
		peer = to_peer(&m, k);
		left[peer] = plan_send(plan, peer, plan_input(args, shard_off(&m.s, peer)),
				       shard_len(&m.s, peer));
		if (!in_place)
			left[peer] = PLAN_NONE;
	}
	/* With one peer only, it can have the sum slice by slice. */
	sum = mesh_chain(&m, plan, plan_input(args, own), at_recv(own), len,
			 m.p == 2 ? 1 - m.rank : NPULINK_NO_PEER);
	for (k = 1; k < m.p && m.p > 2; k++) {
		plan_after(plan, sum);
		plan_send(plan, to_peer(&m, k), at_recv(own), len);
	}
	for (k = 1; k < m.p; k++) {
		peer = from_peer(&m, k);
		plan_after(plan, left[peer]);
		plan_recv(plan, peer, at_recv(shard_off(&m.s, peer)), shard_len(&m.s, peer));
	}
	free(left);
	return 0;
}

/* reduce_scatter, each rank passing its shard of the sum on to the root. */
static int mesh_reduce(const struct coll_args *args, struct coll_plan *plan)
{
	struct mesh m = mesh_of(args);
	uint64_t own = shard_off(&m.s, m.rank), len = shard_len(&m.s, m.rank);
	bool is_root = m.rank == args->root, in_place = plan_in_place(args);
	uint32_t *left = malloc(m.p * sizeof(*left));
	uint32_t k, peer, step;

	if (!left)
		return -ENOMEM;
	for (k = 1; k < m.p; k++) {
		peer = to_peer(&m, k);
		left[peer] = plan_send(plan, peer, plan_input(args, shard_off(&m.s, peer)),
				       shard_len(&m.s, peer));
		if (!in_place)
			left[peer] = PLAN_NONE;
	}
	if (is_root) {
		mesh_chain(&m, plan, plan_input(args, own), at_recv(own), len,
			   NPULINK_NO_PEER);
	} else {
		step = mesh_chain(&m, plan, plan_input(args, own), plan_scratch(plan, len),
				  len, args->root);
		plan_transient(plan, step, UINT64_MAX);
	}
	for (k = 1; k < m.p && is_root; k++) {
		peer = from_peer(&m, k);
		plan_after(plan, left[peer]);
		plan_recv(plan, peer, at_recv(shard_off(&m.s, peer)), shard_len(&m.s, peer));
	}
	free(left);
	return 0;
}

/* scatter, then allgather; the root takes part in the second as a sender only. */
static int mesh_broadcast(const struct coll_args *args, struct coll_plan *plan)
{
	struct mesh m = mesh_of(args);
	uint64_t n = args->count * m.s.esize;
	uint64_t own = shard_off(&m.s, m.rank), len = shard_len(&m.s, m.rank);
	uint32_t k, peer, got;

	if (m.rank == args->root) {
		for (k = 1; k < m.p; k++) {
			peer = to_peer(&m, k);
			plan_send(plan, peer, plan_input(args, shard_off(&m.s, peer)),
				  shard_len(&m.s, peer));
		}
		for (k = 1; k < m.p; k++)
			plan_send(plan, to_peer(&m, k), plan_input(args, own), len);
		if (!plan_in_place(args))
			plan_copy(plan, at_send(0), at_recv(0), n);
		return 0;
	}
	got = plan_recv(plan, args->root, at_recv(own), len);
	for (k = 1; k < m.p; k++) {
		peer = to_peer(&m, k);
		if (peer == args->root)
			continue;
		plan_after(plan, got);
		plan_send(plan, peer, at_recv(own), len);
	}
	for (k = 1; k < m.p; k++) {
		peer = from_peer(&m, k);
		plan_recv(plan, peer, at_recv(shard_off(&m.s, peer)), shard_len(&m.s, peer));
	}
	return 0;
}

static int mesh_scatter(const struct coll_args *args, struct coll_plan *plan)
{
	struct mesh m = mesh_of(args);
	uint64_t own = shard_off(&m.s, m.rank), len = shard_len(&m.s, m.rank);
	uint32_t k, peer;

	if (m.rank != args->root) {
		plan_recv(plan, args->root, at_recv(0), len);
		return 0;
	}
	for (k = 1; k < m.p; k++) {
		peer = to_peer(&m, k);
		plan_send(plan, peer, plan_input(args, shard_off(&m.s, peer)),
			  shard_len(&m.s, peer));
	}
	if (!plan_in_place(args))
		plan_copy(plan, at_send(own), at_recv(0), len);
	return 0;
}

static int mesh_gather(const struct coll_args *args, struct coll_plan *plan)
{
	struct mesh m = mesh_of(args);
	uint64_t own = shard_off(&m.s, m.rank), len = shard_len(&m.s, m.rank);
	uint32_t k, peer;

	if (m.rank != args->root) {
		plan_send(plan, args->root, at_send(0), len);
		return 0;
	}
	for (k = 1; k < m.p; k++) {
		peer = from_peer(&m, k);
		plan_recv(plan, peer, at_recv(shard_off(&m.s, peer)), shard_len(&m.s, peer));
	}
	if (!plan_in_place(args))
		plan_copy(plan, at_send(0), at_recv(own), len);
	return 0;
}

/*
 * Everybody reads everybody, and all ranks add up in the order of ranks, so that
 * all get the same bits: ((x0 + x1) + x2) + ..  In IEEE arithmetic a + b = b + a, so
 * rank 1 may begin with its own. In place, the input must outlive the result.
 */
static struct plan_at shot_input(const struct coll_args *args, struct coll_plan *plan,
				 uint64_t n, uint32_t *saved)
{
	struct plan_at own = plan_input(args, 0);

	*saved = PLAN_NONE;
	if (plan_in_place(args)) {
		own = plan_scratch(plan, n);
		own.plain = true;
		*saved = plan_copy(plan, at_recv(0), own, n);
	}
	return own;
}

/*
 * Messages come in the order in which they are sent, into scratch memory, and
 * are added up when all are there: no rank waits for another's turn.
 */
static int one_shot_allreduce(const struct coll_args *args, struct coll_plan *plan)
{
	struct mesh m = mesh_of(args);
	uint64_t n = args->count * m.s.esize;
	uint32_t k, saved, step = PLAN_NONE;
	struct plan_at own = shot_input(args, plan, n, &saved), dst = at_recv(0);
	struct plan_at *in = malloc(m.p * sizeof(*in));

	if (!in)
		return -ENOMEM;
	for (k = 1; k < m.p; k++) {
		plan_after(plan, saved);
		plan_send(plan, to_peer(&m, k), own, n);
	}
	in[m.rank] = own;
	for (k = 1; k < m.p; k++) {
		in[from_peer(&m, k)] = plan_scratch(plan, n);
		in[from_peer(&m, k)].plain = true;
		plan_recv(plan, from_peer(&m, k), in[from_peer(&m, k)], n);
	}
	for (k = 1; k < m.p; k++) {
		bool begin = (k - 1) % NPULINK_CHAIN_MAX == 0;

		if (k == 1)
			plan_after_all(plan);
		else if (begin)
			plan_after(plan, step);
		step = plan_reduce(plan, k == 1 ? in[0] : dst, in[k], dst, n);
		if (!begin)
			plan_chain(plan, step);
	}
	plan_final(plan, step);
	free(in);
	return 0;
}

/*
 * The device takes the inputs where they are, in one pass. With one port per rank
 * this is slower than the above, since all begin with rank 0's: sends go in the
 * order in which the receivers ask.
 */
static int one_shot_chain_allreduce(const struct coll_args *args, struct coll_plan *plan)
{
	struct mesh m = mesh_of(args);
	uint64_t n = args->count * m.s.esize;
	uint32_t k, members = 0, saved, step;
	struct plan_at own = shot_input(args, plan, n, &saved), dst = at_recv(0);

	for (k = 0; k < m.p; k++) {
		if (k == m.rank)
			continue;
		plan_after(plan, saved);
		plan_send(plan, k, own, n);
	}
	plan_after(plan, saved);
	if (m.rank < 2) {
		step = plan_recv_reduce(plan, 1 - m.rank, own, dst, n);
		plan_recv_plain(plan, step, true);
		members = 1;
	} else {
		step = plan_recv(plan, 0, dst, n);
		dst.plain = true;
	}
	for (k = m.rank < 2 ? 2 : 1; k < m.p; k++) {
		bool begin = members % NPULINK_CHAIN_MAX == 0;

		if (begin)
			plan_after(plan, step);
		if (k == m.rank)
			step = plan_reduce(plan, dst, own, dst, n);
		else
			step = plan_recv_reduce(plan, k, dst, dst, n);
		if (k != m.rank)
			plan_recv_plain(plan, step, true);
		if (!begin)
			plan_chain(plan, step);
		dst.plain = false;
		members++;
	}
	plan_final(plan, step);
	return 0;
}

/* ---- closed forms: "Mesh" in ALGORITHMS.md */

/* One message with a shard to or from each other rank. */
static double cost_exchange(const struct coll_args *args, const struct coll_cost_params *c)
{
	struct plan_shards s = plan_shards(args);
	double one = c->alpha + shard_max(&s) * c->beta;

	return c->ports > 1 && !c->wires ? one : (args->nranks - 1) * crowd_each(c) * one;
}

/*
 * With a port for each rank, a chain of 64 is taken at once; what is left begins
 * when that is done.
 */
static double chains(const struct coll_args *args)
{
	return (args->nranks - 1 + NPULINK_CHAIN_MAX - 1) / NPULINK_CHAIN_MAX;
}

static double cost_chains(const struct coll_args *args, const struct coll_cost_params *c)
{
	return c->ports > 1 ? chains(args) * cost_exchange(args, c) : cost_exchange(args, c);
}

static double cost_gamma(const struct coll_args *args, const struct coll_cost_params *c)
{
	struct plan_shards s = plan_shards(args);

	return (args->nranks - 1) * (double)shard_max(&s) * c->gamma;
}

static double cost_shards(const struct coll_args *args, const struct coll_cost_params *c)
{
	return args->nranks > 1 ? cost_exchange(args, c) : 0;
}

static double cost_reduce_scatter(const struct coll_args *args, const struct coll_cost_params *c)
{
	return args->nranks > 1 ? cost_chains(args, c) + cost_gamma(args, c) : 0;
}

static double cost_broadcast(const struct coll_args *args, const struct coll_cost_params *c)
{
	return 2 * cost_shards(args, c);
}

static double cost_allreduce(const struct coll_args *args, const struct coll_cost_params *c)
{
	return cost_shards(args, c) + cost_reduce_scatter(args, c);
}

static double cost_one_shot(const struct coll_args *args, const struct coll_cost_params *c)
{
	double n = (double)args->count * npulink_dtype_size(args->dtype);
	double p1 = args->nranks - 1;

	if (c->ports > 1 && args->nranks > 1 && !c->wires)
		return c->alpha + n * c->beta + p1 * n * c->gamma;
	return p1 * (crowd_each(c) * (c->alpha + n * c->beta) + n * c->gamma);
}

static double cost_one_shot_chain(const struct coll_args *args, const struct coll_cost_params *c)
{
	double n = (double)args->count * npulink_dtype_size(args->dtype);

	/* The first input has to be there before a chain can begin. */
	if (c->ports > 1 && args->nranks > 2)
		return (1 + chains(args)) * (c->alpha + n * c->beta) +
		       (args->nranks - 1) * n * c->gamma;
	if (args->nranks < 2)
		return 0;
	return (2.0 * args->nranks - 3) * (c->alpha + n * (c->beta + c->gamma));
}

/* Scatterv and gatherv, all messages over the root's one port. */
static double cost_linear(const struct coll_args *args, const struct coll_cost_params *c)
{
	struct plan_shards s = plan_shards(args);
	double bytes = 0, messages = 0, largest = 0;
	uint32_t i;

	for (i = 0; i < args->nranks; i++) {
		uint64_t len = shard_len(&s, i);

		if (i == args->root || !len)
			continue;
		bytes += len;
		messages++;
		largest = len > largest ? len : largest;
	}
	if (c->ports > 1)
		return messages > 0 ? c->alpha + largest * c->beta : 0;
	return messages * c->alpha + bytes * c->beta;
}

#define FORM_LINEAR	"(p-1) alpha + (bytes not the root's own) beta"
#define FORM_SHARDS	"one port: (p-1) alpha + (p-1)/p n beta; " \
			"p-1 ports: alpha + n beta/p"
/* One message is issued after the other, and then the links work side by side. */
#define FORM_STREAMS	FORM_SHARDS \
			"; as p-1 streams: (p-1) alpha + n beta/p, alpha to issue one"
/* With p-1 ports, for p <= 65: see chains(). */
#define FORM_REDUCE	"one port: (p-1) alpha + (p-1)/p n (beta + gamma); " \
			"p-1 ports: alpha + n beta/p + (p-1)/p n gamma"
#define FORM_TWICE	"one port: 2(p-1) alpha + 2(p-1)/p n beta; " \
			"p-1 ports: 2 alpha + 2 n beta/p"
#define FORM_BOTH	"one port: 2(p-1) alpha + 2(p-1)/p n beta + (p-1)/p n gamma; " \
			"p-1 ports: 2 alpha + 2 n beta/p + (p-1)/p n gamma"

#define ROW(coll, name_, exact_, form, plan_, cost_, ...)			\
	{ .collective = NPULINK_COLL_##coll, .name = name_, .exact = exact_,	\
	  .formula = form, .plan = plan_, .cost = cost_, __VA_ARGS__ }

const struct coll_algorithm coll_mesh_algorithms[] = {
	ROW(ALLREDUCE, "mesh", true, FORM_BOTH, mesh_allreduce, cost_allreduce,
	    .commutative = true, .rotation = true, .together = true,
	    .desc = "each rank sums up one shard and gives it to all"),
	ROW(ALLREDUCE, "one-shot", true,
	    "one port: (p-1)(alpha + n beta + n gamma); p-1 ports: alpha + n beta + (p-1) n gamma",
	    one_shot_allreduce, cost_one_shot, .ordered = true,
	    .desc = "everybody gets everybody's input and adds all up; for small n"),
	ROW(ALLREDUCE, "one-shot-chain", false,
	    "one port: (2p-3)(alpha + n beta + n gamma); p-1 ports: 2 (alpha + n beta) + (p-1) n gamma",
	    one_shot_chain_allreduce, cost_one_shot_chain, .ordered = true,
	    .desc = "everybody reads everybody in one pass, in the order of ranks; for small n"),
	ROW(REDUCE, "mesh", true, FORM_BOTH, mesh_reduce, cost_allreduce,
	    .commutative = true, .together = true,
	    .desc = "each rank sums up one shard and gives it to the root"),
	ROW(BROADCAST, "mesh", true, FORM_TWICE, mesh_broadcast, cost_broadcast,
	    .desc = "the root gives each rank a shard, and each rank gives that to all"),
	ROW(SCATTER, "mesh", true, FORM_SHARDS, mesh_scatter, cost_shards,
	    .desc = "the root sends each rank its shard"),
	ROW(SCATTERV, "mesh", false, FORM_SHARDS, mesh_scatter, cost_shards,
	    .desc = "the root sends each rank its shard"),
	ROW(GATHER, "mesh", true, FORM_SHARDS, mesh_gather, cost_shards,
	    .desc = "each rank sends the root its shard"),
	ROW(GATHERV, "mesh", false, FORM_SHARDS, mesh_gather, cost_shards,
	    .desc = "each rank sends the root its shard"),
	ROW(SCATTERV, "linear", true, FORM_LINEAR, mesh_scatter, cost_linear,
	    .desc = "the root sends each rank its shard, one after the other"),
	ROW(GATHERV, "linear", true, FORM_LINEAR, mesh_gather, cost_linear,
	    .desc = "each rank sends the root its shard, one after the other"),
	ROW(ALLGATHER, "mesh", true, FORM_STREAMS, mesh_allgather, cost_shards,
	    .rotation = true, .together = true, .desc = "each rank sends its shard to all"),
	ROW(ALLGATHERV, "mesh", false, FORM_SHARDS, mesh_allgather, cost_shards,
	    .desc = "each rank sends its shard to all"),
	ROW(REDUCE_SCATTER, "mesh", true, FORM_REDUCE, mesh_reduce_scatter,
	    cost_reduce_scatter, .commutative = true, .rotation = true, .together = true,
	    .desc = "each rank reads its shard from all others, in one pass"),
	ROW(REDUCE_SCATTERV, "mesh", false, FORM_REDUCE, mesh_reduce_scatter,
	    cost_reduce_scatter, .commutative = true,
	    .desc = "each rank reads its shard from all others, in one pass"),
	{ .name = NULL },
};
