// SPDX-License-Identifier: GPL-2.0
/*
 * jobs.c - npulink doctor: has a communicator failed, or does one hang?
 */
#include <stdlib.h>
#include <string.h>
#include "doctor/doctor.h"
#include "state/state.h"

#define LONG		5000000000ULL	/* ns in flight, from which on an operation is told of */

/* Has somebody gone on with the ranks that were left of it? */
static bool is_shrunk(const struct state_comm *comm, const struct state_comm *comms, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (comms[i].parent == comm->id)
			return true;
	return false;
}

/* Their processes are there yet, whether they know it or not. How many. */
static size_t check_failed(const struct state_comm *comms, size_t n)
{
	char text[CAUSE_TEXT];
	struct finding *f;
	size_t bad = 0;

	for (size_t i = 0; i < n; i++) {
		if (!comms[i].failed || is_shrunk(&comms[i], comms, n))
			continue;
		bad++;
		f = found(WARNING, "jobs", "communicator %u (%u ranks) has failed: %s",
			  comms[i].id, comms[i].nranks,
			  cause_text(&comms[i].cause, text, sizeof(text)));
		fix(f, "npulink comm show %u", comms[i].id);
	}
	return bad;
}

/* What goes on now: the oldest operation of each communicator, if it is old. How many. */
static size_t check_old(const struct state_op *ops, size_t n)
{
	struct finding *f;
	size_t bad = 0, k;
	char age[24];

	/* They come ordered by communicator. */
	for (size_t i = 0; i < n; i = k) {
		const struct state_op *old = &ops[i];

		for (k = i + 1; k < n && ops[k].comm == old->comm; k++)
			if (ops[k].age > old->age)
				old = &ops[k];
		if (old->age < LONG)
			continue;
		bad++;
		f = found(WARNING, "jobs", "an operation of communicator %u is in flight for %s",
			  old->comm, human_ns(old->age, age));
		fix(f, "npulink hang %u", old->comm);
	}
	return bad;
}

void check_jobs(void)
{
	struct state_comm *comms = NULL;
	struct state_op *ops = NULL;
	size_t n = 0, nops = 0, bad;
	int rc = state_comms(&comms, &n);
	int rc_ops = state_ops(ANY_DEV, &ops, &nops);

	bad = check_failed(comms, n) + check_old(ops, nops);
	if (rc || rc_ops)
		found(UNTESTED, "jobs", "netlink does not tell of all: %s",
		      strerror(rc ? -rc : -rc_ops));
	else if (!n)
		found(UNTESTED, "jobs", "there are no communicators that you may see");
	else if (!bad)
		found(OK, "jobs", "%zu communicator%s; none waits for long, or failed and was not shrunk",
		      n, n > 1 ? "s" : "");
	free(ops);
	free(comms);
}
