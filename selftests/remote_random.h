/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * remote_random.h - random operations over random communicators of ranks on several
 * machines. All processes draw the same numbers, so each knows what the others do.
 */
#ifndef SELFTESTS_REMOTE_RANDOM_H
#define SELFTESTS_REMOTE_RANDOM_H

#include "lib/run/comm.h"
#include "remote.h"

#define RANDOM_COMMS	3	/* at a time */
#define RANDOM_LIFE	50	/* operations; then one of them is replaced */
#define RANDOM_RANKS	16
#define RANDOM_SEED	20261122

struct random_comm {
	struct coll_comm *comm;		/* NULL: we are not in it */
	unsigned int rank, n;
};

/* Of at least two of @total processes, @per on each machine, in any order. We are number @me. */
static inline int random_comm_new(struct random_comm *c, unsigned int me, unsigned int total,
				  unsigned int per, unsigned int *seed, unsigned int port)
{
	unsigned int order[RANDOM_RANKS], k, swap;

	*c = (struct random_comm) { .n = 2 + rand_r(seed) % (total - 1) };
	for (unsigned int i = 0; i < total; i++)
		order[i] = i;
	for (unsigned int i = 0; i < c->n; i++) {
		k = i + rand_r(seed) % (total - i);
		swap = order[i];
		order[i] = order[k];
		order[k] = swap;
	}
	for (c->rank = 0; c->rank < c->n && order[c->rank] != me; c->rank++)
		;
	if (c->rank == c->n)
		return 0;
	c->comm = remote_join_at(c->rank, c->n, port, order[0] / per);
	return !c->comm;
}

/* The next call of @n ranks. */
static inline struct coll_case random_case(unsigned int *seed, unsigned int n, bool large)
{
	struct coll_case c = {
		.collective = rand_r(seed) % ARRAY_SIZE(trial_names),
		.dtype = rand_r(seed) % 2 ? COLL_INT32 : COLL_FLOAT64,
		.op = rand_r(seed) % 2 ? COLL_SUM : COLL_MIN,
		.in_place = rand_r(seed) % 2, .form = rand_r(seed) % CASE_FORMS,
	};
	unsigned int bits = rand_r(seed) % (large ? 17 : 11);

	c.count = rand_r(seed) % (1U << bits) + 1;
	c.root = rand_r(seed) % n;
	if (!trial_rooted(c.collective))
		c.root = 0;
	return c;
}

/* The first of so many ports for those who join at present; others take it over in the end. */
#define RANDOM_PORTS	500

static inline unsigned int random_port(void)
{
	return 10000 + remote_port / 2 % 40 * RANDOM_PORTS;
}

/* So many of them, in a process that is number @me of @total. */
static inline int random_operations(unsigned int ops, unsigned int me, unsigned int total,
				    unsigned int per, unsigned int seed)
{
	unsigned int port = random_port();
	struct random_comm comms[RANDOM_COMMS] = { };
	int bad = 0;

	for (unsigned int i = 0; i < ops && !bad; i++) {
		struct random_comm *at = &comms[i / RANDOM_LIFE % RANDOM_COMMS];
		struct coll_case c;

		if (i % RANDOM_LIFE == 0) {
			for (unsigned int k = 0; k < RANDOM_COMMS && !bad; k++) {
				if (i && &comms[k] != at)
					continue;
				bad = !!coll_comm_destroy(comms[k].comm);
				port += 2;
				bad |= random_comm_new(&comms[k], me, total, per, &seed, port);
			}
			if (bad)
				break;
		}
		at = &comms[rand_r(&seed) % RANDOM_COMMS];
		c = random_case(&seed, at->n, i % 16 == 0);
		if (at->comm)
			bad = remote_case(at->comm, at->rank, &c);
	}
	for (unsigned int k = 0; k < RANDOM_COMMS; k++)
		bad |= !!coll_comm_destroy(comms[k].comm);
	return bad;
}

#endif /* SELFTESTS_REMOTE_RANDOM_H */
