/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * twolevel.h - what two-level planners share: who is in which server, and how
 * a vector is cut into chunks and parts. See twolevel.c.
 */
#ifndef COLL_PLAN_SERVERS_H
#define COLL_PLAN_SERVERS_H

#include "plan/planner.h"

struct servers {
	const struct coll_args *args;
	uint32_t m;			/* servers */
	uint32_t *first;		/* [m + 1] first rank of each */
	uint32_t rails, fewest;		/* most, fewest ranks of a server */
	uint32_t server, local;		/* the own rank's */
	uint32_t n, base;		/* size and first rank of its server */
};

/* 0 or -ENOMEM; @s->first is to be freed. */
int servers_of(const struct coll_args *args, struct servers *s);

static inline uint32_t size_of(const struct servers *s, uint32_t server)
{
	return s->first[server + 1] - s->first[server];
}

/* The rank that rail @j visits in @server. */
static inline uint32_t on_rail(const struct servers *s, uint32_t server, uint32_t j)
{
	return s->first[server] + j % size_of(s, server);
}

/*
 * Each server's first ranks, as many as the smallest server has, sum up a part
 * each. One part of one chunk: bytes [off, off + len), of which shard i of the
 * ring between servers is at shard_off(ring, i).
 */
struct part {
	uint64_t off, len;
	struct plan_shards ring;
};

/* Part @i of @parts of chunk @c, for so many servers. */
struct part part_of(const struct plan_shards *chunks, uint32_t c, uint32_t parts, uint32_t i,
		    uint32_t servers);

/*
 * Add what the others of the server send to @src, into @dst; returns the last
 * step, PLAN_NONE if there are no others.
 */
uint32_t sum_inside(const struct servers *s, struct coll_plan *plan, struct plan_at src,
		    struct plan_at dst, uint64_t len);

/* Seconds of one message within a server, and of one between two. */
static inline double message_near(const struct coll_cost_params *c, double bytes)
{
	return c->alpha + bytes * c->beta;
}

static inline double message_far(const struct coll_cost_params *c, double bytes)
{
	return (c->far_alpha > 0 ? c->far_alpha : c->alpha) +
	       bytes * (c->far_beta > 0 ? c->far_beta : c->beta);
}

static inline bool levels_known(const struct coll_cost_params *c)
{
	return c->far_alpha > 0 || c->far_beta > 0;
}

static inline double larger(double a, double b)
{
	return a > b ? a : b;
}

/* Ranks of the largest and of the smallest server. */
void server_sizes(const struct coll_args *args, uint32_t *most, uint32_t *fewest);

/* Chunks so large that as many of them as there are ranks pay for their latency. */
uint32_t servers_chunks(const struct coll_args *args, const struct coll_cost_params *c);

/* twolevel_root.c: in chunks. */
int two_level_broadcast(const struct coll_args *args, struct coll_plan *plan);
int two_level_reduce(const struct coll_args *args, struct coll_plan *plan);
double two_level_cost_broadcast(const struct coll_args *args, const struct coll_cost_params *c);
double two_level_cost_reduce(const struct coll_args *args, const struct coll_cost_params *c);

/* twolevel_packed.c */
int two_level_scatter(const struct coll_args *args, struct coll_plan *plan);
int two_level_gather(const struct coll_args *args, struct coll_plan *plan);
double two_level_cost_packed(const struct coll_args *args, const struct coll_cost_params *c);

/* twolevel_alltoall.c */
int two_level_alltoall(const struct coll_args *args, struct coll_plan *plan);
double two_level_cost_alltoall(const struct coll_args *args, const struct coll_cost_params *c);

/* twolevel_leaders.c: what is small. */
int leaders_allreduce(const struct coll_args *args, struct coll_plan *plan);
int leaders_barrier(const struct coll_args *args, struct coll_plan *plan);
double leaders_cost_allreduce(const struct coll_args *args, const struct coll_cost_params *c);
double leaders_cost_barrier(const struct coll_args *args, const struct coll_cost_params *c);

#endif /* COLL_PLAN_SERVERS_H */
