// SPDX-License-Identifier: GPL-2.0
/*
 * doctor_jobs.c - npulink doctor: has a communicator failed, or does one hang?
 */
#include <stdlib.h>
#include "doctor.h"
#include "see.h"

#define LONG		5000000000ULL	/* ns in flight, from which on an operation is told of */

/* Has somebody gone on with the ranks that were left of it? */
static bool is_shrunk(const struct see_comm *comm, const struct see_comm *comms, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (comms[i].parent == comm->id)
			return true;
	return false;
}

/* Its processes are there yet, whether they know it or not. */
static void check_failed(void)
{
	struct see_comm *comms = NULL;
	char text[CAUSE_TEXT];
	struct finding *f;
	size_t n = 0;

	if (see_comms(&comms, &n))
		return;
	for (size_t i = 0; i < n; i++) {
		if (!comms[i].failed || is_shrunk(&comms[i], comms, n))
			continue;
		f = found(WARNING, "jobs", "communicator %u (%u ranks) has failed: %s",
			  comms[i].id, comms[i].nranks,
			  cause_text(&comms[i].cause, text, sizeof(text)));
		fix(f, "npulink comm show %u", comms[i].id);
	}
	free(comms);
}

/* What goes on now: the oldest operation of each communicator, if it is old. */
static void check_old(void)
{
	struct see_op *ops = NULL;
	struct finding *f;
	size_t n = 0, k;
	char age[24];

	/* They come ordered by communicator. */
	if (see_ops(ANY_DEV, &ops, &n))
		return;
	for (size_t i = 0; i < n; i = k) {
		const struct see_op *old = &ops[i];

		for (k = i + 1; k < n && ops[k].comm == old->comm; k++)
			if (ops[k].age > old->age)
				old = &ops[k];
		if (old->age < LONG)
			continue;
		f = found(WARNING, "jobs", "an operation of communicator %u is in flight for %s",
			  old->comm, human_ns(old->age, age));
		fix(f, "npulink hang %u", old->comm);
	}
	free(ops);
}

void check_jobs(void)
{
	check_failed();
	check_old();
}
