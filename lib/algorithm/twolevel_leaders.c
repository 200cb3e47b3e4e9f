// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * twolevel_leaders.c - two levels for what is small: only the first rank of each server,
 * its leader, talks to other servers, and but once to each.
 */
#include <errno.h>
#include <stdlib.h>
#include "algorithm/twolevel.h"

/* ---- barrier: await all inside, a dissemination between leaders, release all inside */

int leaders_barrier(const struct coll_args *args, struct coll_plan *plan)
{
	uint32_t got = PLAN_NONE, d, k;
	struct servers s;
	int rc;

	rc = servers_of(args, &s);
	if (rc)
		return rc;
	if (s.local) {
		plan_signal(plan, s.base);
		plan_await(plan, s.base);
		goto out;
	}
	for (k = 1; k < s.n; k++)
		plan_await(plan, s.base + k);
	if (s.n > 1) {
		plan_after_all(plan);
		got = plan_nop(plan);
	}
	for (d = 1; d < s.m; d *= 2) {
		plan_after(plan, got);
		plan_signal(plan, s.first[mod_add(s.server, d, s.m)]);
		plan_after(plan, got);
		got = plan_await(plan, s.first[mod_sub(s.server, d, s.m)]);
	}
	for (k = 1; k < s.n; k++) {
		plan_after(plan, got);
		plan_signal(plan, s.base + k);
	}
out:
	free(s.first);
	return 0;
}

double leaders_cost_barrier(const struct coll_args *args, const struct coll_cost_params *c)
{
	uint32_t most, fewest;

	if (args->nranks == 1)
		return 0;
	server_sizes(args, &most, &fewest);
	return 2.0 * (most - 1) * c->alpha + lg_ceil(args->topo->nservers) * message_far(c, 0);
}

/* ---- allreduce */

/* The sums of all servers in the same order everywhere, so that all have the same bits. */
static uint32_t sum_of_servers(const struct servers *s, struct coll_plan *plan,
			       struct plan_at own, uint32_t ready, struct plan_at *sums,
			       uint64_t len)
{
	uint32_t step = PLAN_NONE, t, *got;

	got = malloc(s->m * sizeof(*got));
	if (!got) {
		plan->build.rc = -ENOMEM;
		return PLAN_NONE;
	}
	for (t = 1; t < s->m; t++) {
		plan_after(plan, ready);
		plan_send(plan, s->first[mod_add(s->server, t, s->m)], own, len);
	}
	sums[s->server] = own;
	got[s->server] = ready;
	for (t = 1; t < s->m; t++) {
		uint32_t from = mod_sub(s->server, t, s->m);

		sums[from] = plan_scratch(plan, len);
		sums[from].plain = size_of(s, from) == 1;
		got[from] = plan_recv(plan, s->first[from], sums[from], len);
	}
	/* In place, the own sum was copied from where the result will be. */
	plan_after(plan, ready);
	for (t = 1; t < s->m; t++) {
		plan_after(plan, t == 1 ? got[0] : step);
		plan_after(plan, got[t]);
		step = plan_reduce(plan, t == 1 ? sums[0] : at_recv(0), sums[t], at_recv(0), len);
	}
	free(got);
	return step;
}

int leaders_allreduce(const struct coll_args *args, struct coll_plan *plan)
{
	uint64_t len = args->count * npulink_dtype_size(args->dtype);
	struct plan_at own = plan_input(args, 0), *sums;
	uint32_t step = PLAN_NONE, k;
	struct servers s;
	int rc;

	rc = servers_of(args, &s);
	if (rc)
		return rc;
	if (s.local) {
		step = plan_send(plan, s.base, own, len);
		if (plan_in_place(args))
			plan_after(plan, step);
		plan_recv(plan, s.base, at_recv(0), len);
		free(s.first);
		return 0;
	}
	sums = malloc(s.m * sizeof(*sums));
	if (!sums) {
		free(s.first);
		return -ENOMEM;
	}
	/* What is sent to the others must not be where the result will be. */
	if (s.n > 1 || plan_in_place(args)) {
		struct plan_at at = plan_scratch(plan, len);

		at.plain = s.n == 1;
		step = s.n > 1 ? sum_inside(&s, plan, own, at, len) : plan_copy(plan, own, at, len);
		own = at;
	}
	step = sum_of_servers(&s, plan, own, step, sums, len);
	plan_final(plan, step);
	for (k = 1; k < s.n; k++) {
		plan_after(plan, step);
		plan_send(plan, s.base + k, at_recv(0), len);
	}
	free(sums);
	free(s.first);
	return 0;
}

double leaders_cost_allreduce(const struct coll_args *args, const struct coll_cost_params *c)
{
	double n = (double)args->count * npulink_dtype_size(args->dtype);
	uint32_t most, fewest;

	if (args->nranks == 1)
		return 0;
	server_sizes(args, &most, &fewest);
	return 2 * (most - 1) * message_near(c, n) +
	       (args->topo->nservers - 1) * message_far(c, n) +
	       (most + args->topo->nservers - 2) * n * c->gamma;
}
