// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * twolevel.c - two levels: all links inside a server, a ring between servers.
 *
 * Rails run through all servers: rail j visits one rank of each, its j-th or, if
 * a server has fewer ranks, the j-th counted around. Between servers only ranks of
 * the same rail talk; inside, everybody does. What a rail brings is given to the
 * others of the server while the next is on its way, so both levels are busy.
 * See "Two levels" in ALGORITHMS.md.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include "algorithm/algorithms.h"
#include "algorithm/twolevel.h"

int servers_of(const struct coll_args *args, struct servers *s)
{
	const struct coll_topo *t = args->topo;
	uint32_t r, i;

	*s = (struct servers){ .args = args, .m = t->nservers, .fewest = args->nranks };
	s->first = calloc(s->m + 1, sizeof(*s->first));
	if (!s->first)
		return -ENOMEM;
	for (r = 0; r < args->nranks; r++)
		s->first[t->server_of[r] + 1] = r + 1;
	for (i = 0; i < s->m; i++) {
		uint32_t n = s->first[i + 1] - s->first[i];

		if (n > s->rails)
			s->rails = n;
		s->fewest = min_u32(s->fewest, n);
	}
	s->server = t->server_of[args->rank];
	s->base = s->first[s->server];
	s->n = s->first[s->server + 1] - s->base;
	s->local = args->rank - s->base;
	return 0;
}

/* ---- allgather: each rail carries the shards of its own ranks */

/* The shard that rail @j has from @server, if any: it is rank *r's. */
static bool rail_shard(const struct servers *s, uint32_t server, uint32_t j, uint32_t *r)
{
	*r = s->first[server] + j;
	return j < size_of(s, server);
}

struct gather {
	const struct servers *s;
	struct coll_plan *plan;
	struct plan_at own;
	struct plan_shards shards;
	uint32_t *got;		/* by rail: the step that brought its last shard */
};

/* Rank @r's shard, on its way: the own one comes from where it was. */
static struct plan_at gather_at(const struct gather *g, uint32_t r)
{
	return r == g->s->args->rank ? g->own : at_recv(shard_off(&g->shards, r));
}

/* The own rails' rings: what server - t has. */
static void gather_between(struct gather *g, uint32_t t)
{
	const struct servers *s = g->s;
	uint32_t from = mod_sub(s->server, t, s->m), n = s->n, j, r;

	for (j = s->local; j < s->rails; j += n) {
		uint32_t next = on_rail(s, mod_add(s->server, 1, s->m), j);
		uint32_t prev = on_rail(s, mod_sub(s->server, 1, s->m), j);

		g->got[j] = PLAN_NONE;
		if (!rail_shard(s, from, j, &r))
			continue;
		/* Passing on and giving inside need not wait for each other. */
		if (t)
			g->got[j] = plan_recv(g->plan, prev, gather_at(g, r),
					      shard_len(&g->shards, r));
		if (t + 1 == s->m)
			continue;
		plan_after(g->plan, g->got[j]);
		plan_send(g->plan, next, gather_at(g, r), shard_len(&g->shards, r));
	}
}

/* What came by the own rails, for the others of the server. */
static void give_inside(struct gather *g, uint32_t t)
{
	const struct servers *s = g->s;
	uint32_t from = mod_sub(s->server, t, s->m), n = s->n, j, k, r;

	for (k = 1; k < n; k++) {
		uint32_t to = s->base + mod_add(s->local, k, n);

		for (j = s->local; j < s->rails; j += n) {
			if (!rail_shard(s, from, j, &r))
				continue;
			plan_after(g->plan, g->got[j]);
			plan_send(g->plan, to, gather_at(g, r), shard_len(&g->shards, r));
		}
	}
}

/* And what came by theirs. */
static void take_inside(struct gather *g, uint32_t t)
{
	const struct servers *s = g->s;
	uint32_t from = mod_sub(s->server, t, s->m), n = s->n, j, k, r;

	for (k = 1; k < n; k++) {
		uint32_t peer = mod_sub(s->local, k, n);

		for (j = peer; j < s->rails; j += n)
			if (rail_shard(s, from, j, &r))
				plan_recv(g->plan, s->base + peer,
					  gather_at(g, r), shard_len(&g->shards, r));
	}
}

/*
 * In the list, a rail's receive comes before the receives inside of the round
 * before, and its send behind their sends: so no port waits for one that waits.
 */
static int two_level_allgather(const struct coll_args *args, struct coll_plan *plan)
{
	struct servers s;
	struct gather g = { .s = &s, .plan = plan, .shards = plan_shards(args) };
	uint64_t own = shard_off(&g.shards, args->rank);
	uint32_t t;
	int rc;

	g.own = plan_in_place(args) ? at_recv(own) : at_send(0);
	rc = servers_of(args, &s);
	if (rc)
		return rc;
	g.got = malloc(s.rails * sizeof(*g.got));
	if (!g.got) {
		free(s.first);
		return -ENOMEM;
	}
	gather_between(&g, 0);
	for (t = 1; t <= s.m; t++) {
		give_inside(&g, t - 1);
		if (t < s.m)
			gather_between(&g, t);
		take_inside(&g, t - 1);
	}
	if (!plan_in_place(args))
		plan_copy(plan, g.own, at_recv(own), shard_len(&g.shards, args->rank));
	free(g.got);
	free(s.first);
	return 0;
}

/* ---- reduce_scatter, its mirror image */

struct scatter {
	const struct servers *s;
	struct coll_plan *plan;
	struct plan_shards shards;
};

/* The server whose shards are added up in round @t: the own one comes last. */
static uint32_t target(const struct servers *s, uint32_t t)
{
	return mod_sub(s->server, t + 1 < s->m ? t + 1 : 0, s->m);
}

/* What others of the server add up: each its rails' shards. */
static void give_summands(struct scatter *g, uint32_t t)
{
	const struct servers *s = g->s;
	uint32_t to = target(s, t), n = s->n, lap, k, r;

	/* Rail by rail, as they are added up. */
	for (lap = 0; lap < s->rails; lap += n) {
		for (k = 1; k < n; k++) {
			uint32_t peer = mod_add(s->local, k, n);

			if (rail_shard(s, to, lap + peer, &r))
				plan_send(g->plan, s->base + peer,
					  plan_input(s->args, shard_off(&g->shards, r)),
					  shard_len(&g->shards, r));
		}
	}
}

/* Add up inside, add what the server before has, and pass it on. */
static void scatter_between(struct scatter *g, uint32_t t, bool give_next)
{
	const struct servers *s = g->s;
	uint32_t to = target(s, t), n = s->n, j, r;
	struct plan_at result = at_recv(plan_in_place(s->args) ?
					shard_off(&g->shards, s->args->rank) : 0);
	struct plan_at *acc = malloc(s->rails * sizeof(*acc));
	uint32_t *ready = malloc(s->rails * sizeof(*ready));

	if (!acc || !ready) {
		g->plan->build.rc = -ENOMEM;
		goto out;
	}
	for (j = s->local; j < s->rails; j += n) {
		struct plan_at sum;

		if (!rail_shard(s, to, j, &r))
			continue;
		acc[j] = plan_input(s->args, shard_off(&g->shards, r));
		ready[j] = PLAN_NONE;
		if (n == 1)
			continue;
		sum = plan_scratch(g->plan, shard_len(&g->shards, r));
		ready[j] = sum_inside(s, g->plan, acc[j], sum, shard_len(&g->shards, r));
		acc[j] = sum;
	}
	for (j = s->local; t && j < s->rails; j += n) {
		struct plan_at sum = acc[j];

		if (!rail_shard(s, to, j, &r))
			continue;
		if (t + 1 == s->m)
			sum = result;
		else if (n == 1)
			sum = plan_scratch(g->plan, shard_len(&g->shards, r));
		plan_after(g->plan, ready[j]);
		ready[j] = plan_recv_reduce(g->plan, on_rail(s, mod_sub(s->server, 1, s->m), j),
					    acc[j], sum, shard_len(&g->shards, r));
		plan_recv_plain(g->plan, ready[j],
				t == 1 && size_of(s, mod_sub(s->server, 1, s->m)) == 1);
		acc[j] = sum;
		if (t + 1 == s->m)
			plan_final(g->plan, ready[j]);
	}
	if (give_next)
		give_summands(g, t + 1);
	for (j = s->local; j < s->rails && t + 1 < s->m; j += n) {
		if (!rail_shard(s, to, j, &r))
			continue;
		plan_after(g->plan, ready[j]);
		plan_send(g->plan, on_rail(s, mod_add(s->server, 1, s->m), j), acc[j],
			  shard_len(&g->shards, r));
	}
out:
	free(acc);
	free(ready);
}

/* In the list, what is sent between servers is behind what the next round needs inside. */
static int two_level_reduce_scatter(const struct coll_args *args, struct coll_plan *plan)
{
	struct servers s;
	struct scatter g = { .s = &s, .plan = plan, .shards = plan_shards(args) };
	uint32_t t;
	int rc;

	rc = servers_of(args, &s);
	if (rc)
		return rc;
	give_summands(&g, 0);
	for (t = 0; t < s.m; t++)
		scatter_between(&g, t, t + 1 < s.m);
	free(s.first);
	return 0;
}

/* ---- allreduce: reduce inside, ring between, and give to all inside */

struct part part_of(const struct plan_shards *chunks, uint32_t c, uint32_t parts, uint32_t i,
		    uint32_t servers)
{
	struct plan_shards p = plan_split(shard_len(chunks, c) / chunks->esize, parts,
					  chunks->esize);

	return (struct part){
		.off = shard_off(chunks, c) + shard_off(&p, i), .len = shard_len(&p, i),
		.ring = plan_split(shard_len(&p, i) / chunks->esize, servers, chunks->esize),
	};
}

uint32_t sum_inside(const struct servers *s, struct coll_plan *plan, struct plan_at src,
		    struct plan_at dst, uint64_t len)
{
	uint32_t n = s->n, k, step = PLAN_NONE;

	for (k = 1; k < n; k++) {
		bool begin = (k - 1) % NPULINK_CHAIN_MAX == 0;

		if (begin)
			plan_after(plan, step);
		step = plan_recv_reduce(plan, s->base + mod_sub(s->local, k, n),
					src, dst, len);
		plan_recv_plain(plan, step, true);
		if (!begin)
			plan_chain(plan, step);
		src = dst;
	}
	return step;
}

/*
 * Ring allreduce of the part between the servers, after step @sum. The steps that
 * leave a shard complete go to done[], of which there are as many as servers.
 */
static void ring_between(const struct servers *s, struct coll_plan *plan,
			 const struct part *part, uint32_t sum, uint32_t *done)
{
	uint32_t m = s->m, next = s->first[mod_add(s->server, 1, m)] + s->local, i, c;
	uint32_t prev = s->first[mod_sub(s->server, 1, m)] + s->local;
	bool alone = s->n == 1;
	/* With nobody to sum with, the input is still in its place. */
	struct plan_at in = alone ? plan_input(s->args, part->off) : at_recv(part->off);
	struct plan_at out = at_recv(part->off);
	bool moves = in.slot != out.slot;

	c = s->server;
	plan_after(plan, sum);
	done[c] = plan_send(plan, next, at_plus(in, shard_off(&part->ring, c)),
			    shard_len(&part->ring, c));
	if (moves)
		done[c] = PLAN_NONE;
	for (i = 1; i < m; i++) {
		uint64_t off;

		c = mod_sub(s->server, i, m);
		off = shard_off(&part->ring, c);
		plan_after(plan, sum);
		done[c] = plan_recv_reduce_send(plan, prev, next, at_plus(in, off),
						at_plus(out, off), shard_len(&part->ring, c));
		plan_recv_plain(plan, done[c],
				i == 1 && size_of(s, mod_sub(s->server, 1, m)) == 1);
		if (i == m - 1)
			plan_final(plan, done[c]);
	}
	for (i = 0; i + 1 < m; i++) {
		uint64_t off;

		c = mod_sub(s->server, i, m);
		off = shard_off(&part->ring, c);
		plan_after(plan, done[c]);
		plan_after(plan, sum);
		if (i + 2 < m)
			done[c] = plan_recv_send(plan, prev, next, at_plus(out, off),
						 shard_len(&part->ring, c));
		else
			done[c] = plan_recv(plan, prev, at_plus(out, off),
					    shard_len(&part->ring, c));
	}
}

static int two_level_allreduce(const struct coll_args *args, struct coll_plan *plan)
{
	struct plan_shards chunks = plan_split(args->count, args->chunks,
					       npulink_dtype_size(args->dtype));
	uint32_t c, i, k, sum, *done, *left;
	bool in_place = plan_in_place(args);
	struct servers s;
	int rc;

	rc = servers_of(args, &s);
	if (rc)
		return rc;
	done = malloc((s.m + (size_t)args->chunks * s.fewest) * sizeof(*done));
	if (!done) {
		free(s.first);
		return -ENOMEM;
	}
	left = done + s.m;
	for (c = 0; c < args->chunks; c++) {
		/* To each summing rank its part, .. */
		for (k = 1; k < s.n; k++) {
			struct part part;

			i = mod_add(s.local, k, s.n);
			if (i >= s.fewest)
				continue;
			part = part_of(&chunks, c, s.fewest, i, s.m);
			sum = plan_send(plan, s.base + i, plan_input(args, part.off), part.len);
			left[c * s.fewest + i] = in_place ? sum : PLAN_NONE;
		}
		/* .. the own part through all servers and back to all, .. */
		if (s.local < s.fewest) {
			struct part part = part_of(&chunks, c, s.fewest, s.local, s.m);
			uint32_t join = PLAN_NONE;

			sum = sum_inside(&s, plan, plan_input(args, part.off), at_recv(part.off),
					 part.len);
			ring_between(&s, plan, &part, sum, done);
			if (s.n > 1) {
				for (i = 0; i < s.m; i++)
					plan_after(plan, done[i]);
				join = plan_nop(plan);
			}
			for (k = 1; k < s.n; k++) {
				plan_after(plan, join);
				plan_send(plan, s.base + mod_add(s.local, k, s.n),
					  at_recv(part.off), part.len);
			}
		}
		/* .. and the parts of the others. */
		for (k = 1; k < s.n; k++) {
			struct part part;

			i = mod_sub(s.local, k, s.n);
			if (i >= s.fewest)
				continue;
			part = part_of(&chunks, c, s.fewest, i, s.m);
			plan_after(plan, left[c * s.fewest + i]);
			plan_recv(plan, s.base + i, at_recv(part.off), part.len);
		}
	}
	free(done);
	free(s.first);
	return 0;
}

/* ---- which calls they are for, and forms */

static const char *has_servers(const struct coll_args *args)
{
	if (args->topo && args->topo->nservers > 1)
		return NULL;
	return args->topo && args->topo->scattered ?
	       "the ranks of a server are not one after the other: number them so" :
	       "the ranks are not in several servers";
}

void server_sizes(const struct coll_args *args, uint32_t *most, uint32_t *fewest)
{
	const struct coll_topo *t = args->topo;
	uint32_t r, n = 0;

	*most = 0;
	*fewest = args->nranks;
	for (r = 0; r < args->nranks; r++) {
		n++;
		if (r + 1 < args->nranks && t->server_of[r + 1] == t->server_of[r])
			continue;
		if (n > *most)
			*most = n;
		*fewest = min_u32(*fewest, n);
		n = 0;
	}
}

/* T is one message of one shard; the ranks of a small server carry several rails each. */
static double cost_allgather(const struct coll_args *args, const struct coll_cost_params *c)
{
	struct plan_shards s = plan_shards(args);
	double near = message_near(c, shard_max(&s)), far = message_far(c, shard_max(&s));
	uint32_t q, fewest, m, rails;

	if (args->nranks == 1)
		return 0;
	server_sizes(args, &q, &fewest);
	m = args->topo->nservers;
	rails = (q + fewest - 1) / fewest;
	if (c->ports > 1)
		return rails * ((m - 1) * larger(near, far) + near) +
		       (rails > 1 ? rails * near : 0);
	if (levels_known(c))
		return rails * (q - 1) * near + (m - 1) * rails * larger((q - 1) * near, far);
	if (rails == 1)
		return (q - 1) * m * near + (m - 1) * far;
	return q * m * near + rails * (m - 1) * (near + far) + rails * q * near;
}

/* The same messages the other way, each added up. */
static double cost_reduce_scatter(const struct coll_args *args, const struct coll_cost_params *c)
{
	struct plan_shards s = plan_shards(args);
	double n = shard_max(&s), sum = n * c->gamma;
	double near = message_near(c, n), far = message_far(c, n) + sum;
	uint32_t q, fewest, m, rails;

	if (args->nranks == 1)
		return 0;
	server_sizes(args, &q, &fewest);
	m = args->topo->nservers;
	rails = (q + fewest - 1) / fewest;
	/* Each peer inside has a port of its own, all other servers have one. */
	if (c->ports > 1 && levels_known(c))
		return larger(m * (near + rails * fewest * sum) + rails * (m - 1) * far,
			      m * (near + q * sum) + (m - 1) * far);
	/* Few ranks carry many rails, and many ranks add up much. */
	if (c->ports > 1)
		return larger(rails * (m * (near + fewest * sum) + (m - 1) * far),
			      m * (near + q * sum) + (m - 1) * far) + (rails > 1 ? q * sum : 0);
	if (levels_known(c))
		return rails * (q - 1) * (near + sum) +
		       (m - 1) * rails * larger((q - 1) * (near + sum), far);
	if (rails == 1)
		return (q - 1) * m * (near + sum) + (m - 1) * far;
	return q * m * (near + sum) + rails * (m - 1) * (near + far) + rails * q * (near + sum);
}

uint32_t servers_chunks(const struct coll_args *args, const struct coll_cost_params *c)
{
	double n = (double)args->count * npulink_dtype_size(args->dtype);

	/* Three phases overlap as soon as there is more than one chunk. */
	return chunks_of(sqrt(n * c->beta / (args->nranks * c->alpha)), args);
}

static double cost_allreduce(const struct coll_args *args, const struct coll_cost_params *c)
{
	uint32_t k = plan_chunks(args, servers_chunks), q, m, fewest;
	struct plan_shards chunks, part, ring;
	double inside, between, sum;

	if (args->nranks == 1)
		return 0;
	server_sizes(args, &q, &fewest);
	m = args->topo->nservers;
	chunks = plan_split(args->count, k, npulink_dtype_size(args->dtype));
	part = plan_split(shard_len(&chunks, 0) / chunks.esize, fewest, chunks.esize);
	ring = plan_split(shard_len(&part, 0) / chunks.esize, m, chunks.esize);
	inside = message_near(c, shard_len(&part, 0));
	sum = shard_len(&part, 0) * c->gamma;
	between = message_far(c, shard_len(&ring, 0));
	between = 2 * (m - 1) * between + (m - 1) * shard_len(&ring, 0) * c->gamma;
	if (c->ports > 1)
		return k * (2 * inside + q * sum + between);
	return k * (q * (2 * inside + sum) + between);
}

#define FORM_REDUCE_SCATTER							\
	"one port: (q-1) m (T_inside + n gamma/p) + (m-1) T_between; p-1 ports: "	\
	"m (T_inside + q n gamma/p) + (m-1) T_between, T = alpha + n beta/p of its level"
#define FORM_GATHER							\
	"one port: (q-1) m T_inside + (m-1) T_between; p-1 ports: "		\
	"(m-1) max(T_between, T_inside) + T_inside, T = alpha + n beta/p of its level"

#define FORM_REDUCE_SCATTER_V	"as reduce_scatter, T of the largest shard"
#define FORM_GATHER_V		"as allgather, T of the largest shard"

#define FORM_ROOT(per_byte)						\
	"one port: (m-1) T + (f + 2 q) T + (k-1)(f + q + 1) T; p-1 ports: "	\
	"(m-1) T + 2 T + (k-1) 2 T, T = alpha + n " per_byte "/(k f), f = q of the smallest"

#define FORM_PACKED							\
	"(q-1) T + (m-1) (alpha + q n beta/p), T = alpha + n beta/p, and (q-1) T of a leader"
#define FORM_ALLTOALL							\
	"one port: m (q-1) T + (m-1) (alpha + q n beta/p); p-1 ports: "		\
	"(m+1) T + (m-1) (alpha + q n beta/p), T = alpha + n beta/p"

#define NAMED(name_, coll, exact_, form, plan_, cost_, ...)			\
	{ .collective = NPULINK_COLL_##coll, .name = name_, .exact = exact_,	\
	  .formula = form, .plan = plan_, .cost = cost_, .supports = has_servers, \
	  __VA_ARGS__ }
#define ROW(...)	NAMED("two-level", __VA_ARGS__)
#define LEADERS(...)	NAMED("two-level-leaders", __VA_ARGS__)

const struct coll_algorithm coll_servers_algorithms[] = {
	ROW(ALLREDUCE, false, "k chunks in turn: k (2 q T_inside + 2 (m-1) T_between)",
	    two_level_allreduce, cost_allreduce, .commutative = true, .chunks = servers_chunks,
	    .desc = "reduce inside each server, rings between them, and give to all inside"),
	ROW(ALLGATHER, false, FORM_GATHER,
	    two_level_allgather, cost_allgather,
	    .desc = "rings between servers; what comes is given to all inside"),
	ROW(REDUCE_SCATTER, false, FORM_REDUCE_SCATTER,
	    two_level_reduce_scatter, cost_reduce_scatter, .commutative = true,
	    .desc = "add up inside each server while sums go around the servers"),
	ROW(ALLGATHERV, false, FORM_GATHER_V, two_level_allgather, cost_allgather,
	    .desc = "the same with shards of any size"),
	ROW(REDUCE_SCATTERV, false, FORM_REDUCE_SCATTER_V,
	    two_level_reduce_scatter, cost_reduce_scatter, .commutative = true,
	    .desc = "the same with shards of any size"),
	ROW(BROADCAST, false, FORM_ROOT("beta"), two_level_broadcast, two_level_cost_broadcast,
	    .chunks = servers_chunks,
	    .desc = "each chunk in parts through a chain of servers; inside, all get all parts"),
	ROW(REDUCE, false, FORM_ROOT("(beta + gamma)"), two_level_reduce,
	    two_level_cost_reduce, .commutative = true, .chunks = servers_chunks,
	    .desc = "each chunk in parts: added up inside, then along a chain of servers"),
	ROW(SCATTER, false, FORM_PACKED, two_level_scatter, two_level_cost_packed,
	    .desc = "one message to each other server, whose leader deals it out"),
	ROW(SCATTERV, false, FORM_PACKED, two_level_scatter, two_level_cost_packed,
	    .desc = "the same with shards of any size"),
	ROW(GATHER, false, FORM_PACKED, two_level_gather, two_level_cost_packed,
	    .desc = "one message from each other server, whose leader brings it together"),
	ROW(GATHERV, false, FORM_PACKED, two_level_gather, two_level_cost_packed,
	    .desc = "the same with shards of any size"),
	ROW(ALLTOALL, false, FORM_ALLTOALL, two_level_alltoall, two_level_cost_alltoall,
	    .desc = "what a server has for one rank elsewhere goes there in one message"),
	LEADERS(ALLREDUCE, false,
		"2 (q-1)(alpha + n beta) + (m-1)(alpha + n beta) + (q+m-2) n gamma",
		leaders_allreduce, leaders_cost_allreduce, .commutative = true,
		.desc = "one rank of each server adds up, exchanges sums with the others, gives"),
	LEADERS(BARRIER, false, "(2 (q-1) + ceil(lg m)) alpha", leaders_barrier,
		leaders_cost_barrier,
		.desc = "one rank of each server awaits all, then the others like it"),
	{ .name = NULL },
};
