/* SPDX-License-Identifier: GPL-2.0 */
/*
 * see.h - what the processes of fuzz_netlink.c share: who makes traffic and who looks at it.
 *
 * Whose a communicator is shows in all that is told of it: in its number of ranks, the lengths of
 * its buffers, and the call and the algorithm of its plans.
 */
#ifndef FUZZ_SEE_H
#define FUZZ_SEE_H

#include "exec.h"

enum owner {
	OF_A,			/* two users .. */
	OF_B,
	OF_ROOT,
	OF_BOTH,		/* .. and ranks of both in one communicator */
	OWNERS,
};

#define USER_A		60011
#define USER_B		60012
#define SEE_RANKS(o)	(2U + (o))	/* ranks of a communicator of @o */
#define SEE_CALL	0x5ee00000ULL	/* set_id of its calls, + @o */
#define SEE_MARKS	8		/* elements of its buffers: @o, modulo that */
#define SEE_DEVICES	4		/* of the first ones, others make use */

/* What all of them write. */
struct see_world {
	uint32_t epoch;			/* of the communicator of both users */
	uint64_t seed;
	uint64_t right, failed, parts, aborts, deaths;
	uint64_t sent, said, held, refused, reads, writes;
	uint64_t told[2][EXEC_GENL];	/* by user and command: what is his was seen */
	char wrong[160];		/* the first that was */
};

extern struct see_world *see;

static inline void see_count(uint64_t *what)
{
	__atomic_fetch_add(what, 1, __ATOMIC_RELAXED);
}

/* Something is wrong: for the one who has started it, and the end of this process. */
void see_complain(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/* One communicator of @who, with @ranks from @first on in this process. */
void traffic(struct rnd *r, enum owner who, uint32_t first, uint32_t ranks);

/* Look at everything, and try to change it: as user @who, or as root. */
void see_all(struct rnd *r, enum owner who, const struct exec_env *env);

/* Files of npulink in /sys, @n of them at most; how many there are. */
uint32_t see_files(char paths[][256], uint32_t n);
void see_nonsense(struct rnd *r, char *text, size_t size);

#endif /* FUZZ_SEE_H */
