// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * twolevel_alltoall.c - two levels: alltoall.
 *
 * What the ranks of a server have for one rank elsewhere is brought together inside, by
 * the rank of the server that is on the other one's rail, and goes there in one message,
 * which lands where it belongs, since ranks of a server are neighbours. So a rank sends and
 * gets one message for each other server, not one for each rank of it. The ranks
 * of the own server get theirs directly.
 *
 * Not for alltoallv: who brings blocks together would have to know how long they are.
 */
#include <stdlib.h>
#include "algorithm/twolevel.h"

struct exchange {
	struct servers s;
	struct coll_plan *plan;
	uint64_t m;		/* bytes of a block */
	struct plan_at src;	/* of the block for rank 0 */
	uint32_t saved;		/* in place: the step that copies the blocks away */
};

static struct plan_at block_for(const struct exchange *x, uint32_t r)
{
	plan_after(x->plan, x->saved);
	return at_plus(x->src, r * x->m);
}

/*
 * Own blocks for the ranks of @server, to who carries them: all begin with another one, and in
 * the order in which these take them, so that no port waits for one that waits.
 */
static void hand_over(const struct exchange *x, uint32_t server)
{
	for (uint32_t lap = 0; lap < size_of(&x->s, server); lap += x->s.n)
		for (uint32_t k = 1; k < x->s.n; k++) {
			uint32_t to = mod_add(x->s.local, k, x->s.n);

			if (lap + to < size_of(&x->s, server))
				plan_send(x->plan, x->s.base + to,
					  block_for(x, x->s.first[server] + lap + to), x->m);
		}
}

/* All blocks for one rank, from the own server. */
static void carry(const struct exchange *x, uint32_t r)
{
	struct plan_at at;
	uint32_t begin, k;

	if (x->s.n == 1) {
		plan_send(x->plan, r, block_for(x, r), x->m);
		return;
	}
	at = plan_scratch(x->plan, x->s.n * x->m);
	begin = x->plan->nsteps;
	plan_copy(x->plan, block_for(x, r), at_plus(at, x->s.local * x->m), x->m);
	for (k = 1; k < x->s.n; k++) {
		uint32_t from = mod_sub(x->s.local, k, x->s.n);

		plan_recv(x->plan, x->s.base + from, at_plus(at, from * x->m), x->m);
	}
	plan_after_since(x->plan, begin);
	plan_send(x->plan, r, at, x->s.n * x->m);
}

/* The blocks of all ranks of @server. */
static void take(const struct exchange *x, uint32_t server)
{
	plan_after(x->plan, x->saved);
	plan_recv(x->plan, on_rail(&x->s, server, x->s.local), at_recv(x->s.first[server] * x->m),
		  size_of(&x->s, server) * x->m);
}

static void inside(const struct exchange *x)
{
	uint32_t k;

	for (k = 1; k < x->s.n; k++) {
		uint32_t to = x->s.base + mod_add(x->s.local, k, x->s.n);

		plan_send(x->plan, to, block_for(x, to), x->m);
	}
	for (k = 1; k < x->s.n; k++) {
		uint32_t from = x->s.base + mod_sub(x->s.local, k, x->s.n);

		plan_after(x->plan, x->saved);
		plan_recv(x->plan, from, at_recv(from * x->m), x->m);
	}
}

int two_level_alltoall(const struct coll_args *args, struct coll_plan *plan)
{
	struct exchange x = {
		.plan = plan, .m = args->count * npulink_dtype_size(args->dtype),
		.src = at_send(0), .saved = PLAN_NONE,
	};
	uint64_t own = args->rank * x.m;
	int rc;

	rc = servers_of(args, &x.s);
	if (rc)
		return rc;
	if (plan_in_place(args)) {
		x.src = plan_scratch(plan, args->nranks * x.m);
		x.saved = plan_copy(plan, at_recv(0), x.src, args->nranks * x.m);
	} else {
		plan_copy(plan, at_send(own), at_recv(own), x.m);
	}
	for (uint32_t t = 1; t < x.s.m; t++) {
		uint32_t to = mod_add(x.s.server, t, x.s.m);

		hand_over(&x, to);
		for (uint32_t r = x.s.first[to] + x.s.local; r < x.s.first[to + 1]; r += x.s.n)
			carry(&x, r);
		take(&x, mod_sub(x.s.server, t, x.s.m));
	}
	inside(&x);
	free(x.s.first);
	return 0;
}

/* Everything of the rank with most to do, one message at a time: an upper bound. */
/*
 * The rank that has most to send to other servers: a message for each rank there, of what all of
 * its own server have for that one. Seconds, and how many.
 */
static double carried_by(const struct coll_args *args, const struct coll_cost_params *c, double m,
			 uint32_t *most_messages)
{
	struct servers s;
	double longest = 0;

	*most_messages = 0;
	if (servers_of(args, &s))
		return 0;
	for (uint32_t i = 0; i < s.m; i++) {
		uint32_t n = size_of(&s, i), messages = 0;

		for (uint32_t t = 0; t < s.m; t++)
			messages += t == i ? 0 : (size_of(&s, t) + n - 1) / n;
		longest = larger(longest, messages * message_far(c, n * m));
		*most_messages = messages > *most_messages ? messages : *most_messages;
	}
	free(s.first);
	return longest;
}

double two_level_cost_alltoall(const struct coll_args *args, const struct coll_cost_params *c)
{
	double m = (double)args->count * npulink_dtype_size(args->dtype), near, far;
	uint32_t most, fewest, p = args->nranks, carried;

	if (p == 1)
		return 0;
	server_sizes(args, &most, &fewest);
	/* The only rank of a small server carries for all of a large one. */
	far = carried_by(args, c, m, &carried);
	if (c->ports > 1)
		return (carried + 2) * message_near(c, m) + far;
	near = ((most == fewest ? 0 : p - fewest) + (carried + 1.0) * (most - 1)) *
	       message_near(c, m);
	if (levels_known(c))
		return larger(near, far) + message_near(c, m);
	return near + far;
}
