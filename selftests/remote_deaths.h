/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * remote_deaths.h - what is to be said of a machine that has died, and when, and that the ranks
 * of the others go on.
 */
#ifndef SELFTESTS_REMOTE_DEATHS_H
#define SELFTESTS_REMOTE_DEATHS_H

#include "lib/run/comm.h"
#include "remote.h"

/*
 * What a rank, and npulink, have to say when machine number @where has died, which had rank @dead
 * and all that are the same divided by @per. *killed: when that was.
 */
static inline int remote_check_death(struct coll_comm *comm, unsigned int rank, int rc,
				     unsigned int dead, unsigned int per, unsigned int where,
				     volatile double *killed)
{
	const char *text = coll_comm_last_error(comm);
	double noticed = now(), took;
	struct coll_state state = COLL_STATE_INIT;
	char host[16];

	snprintf(host, sizeof(host), "vm%u", where);

	if (rc != -ENOLINK || coll_comm_status(comm, &state) || strcmp(state.cause, "link"))
		return remote_fail("rank %u: %d: %s", rank, rc, text);
	if (state.peer / per != dead / per || strcmp(state.machine, host) ||
	    strncmp(state.port, "rxe", 3) || state.code != EHOSTDOWN)
		return remote_fail("rank %u: rank %u on \"%s\" over \"%s\", error %u", rank,
				   state.peer, state.machine, state.port, state.code);
	if (state.step == UINT32_MAX || state.number == UINT64_MAX)
		return remote_fail("rank %u: no operation and step", rank);
	if (!strstr(text, host) || !strstr(text, "over port rxe") || !strstr(text, ", step "))
		return remote_fail("rank %u: %s", rank, text);
	/* That comes by another way, and on a host that has much to do later. */
	for (int i = 0; i < 1000 && !*killed; i++)
		usleep(20000);
	if (!*killed)
		return remote_fail("rank %u: lost %s, which was not killed", rank, host);
	took = noticed - *killed;
	if (!remote_in_time(took))
		return remote_fail("rank %u: noticed after %.2f s", rank, took);
	if (run("build/tools/npulink -j comm show | jq -e 'any(.[].cause; .cause == \"link\" and "
		".peer == %u and .machine == \"10.77.0.%u\" and (.port | startswith(\"rxe\")) and "
		".number >= 0 and .step >= 0 and (.text | contains(\" on 10.77.0.%u over port \")))' "
		">/dev/null", state.peer, where + 1, where + 1))
		return remote_fail("rank %u: npulink comm does not say where", rank);
	ksft_print_msg("rank %u: noticed after %.2f s\n", rank, took);
	return 0;
}

/* The cable between two machines, at our end. */
static inline int remote_cable(unsigned int to, bool cut)
{
	return run("tc qdisc %s dev eth%u root netem loss 100%%", cut ? "add" : "del",
		   to < machine ? to : to - 1);
}

/*
 * Go on with those in @left, a mask of ranks, of which we have been @rank, within so many
 * @seconds; @flags: COLL_MINORITY. NULL: it failed.
 */
static inline struct coll_comm *remote_go_on(struct coll_comm *comm, unsigned int rank,
					     unsigned int left, unsigned int flags,
					     uint64_t deadline_ns, double seconds)
{
	struct coll_config config = COLL_CONFIG_INIT;
	unsigned int n = __builtin_popcount(left);
	unsigned int place = __builtin_popcount(left & ((1U << rank) - 1));
	struct coll_comm *shrunk, *again;
	double start = now();
	int rc;

	config.deadline_ns = deadline_ns;
	config.flags = flags;
	rc = coll_comm_shrink(comm, &shrunk, &config);
	if (rc) {
		remote_fail("rank %u: shrink: %d: %s", rank, rc, coll_comm_last_error(comm));
		return NULL;
	}
	ksft_print_msg("rank %u: %u of %u after %.2f s\n", rank, coll_comm_rank(shrunk),
		       coll_comm_size(shrunk), now() - start);
	if (now() - start > seconds)
		remote_fail("rank %u: that is too late", rank);
	else if (coll_comm_size(shrunk) != n || coll_comm_rank(shrunk) != place)
		remote_fail("rank %u: not %u of %u", rank, place, n);
	else if (coll_comm_shrink(comm, &again, NULL) != -EEXIST)
		remote_fail("rank %u: there are two places for it", rank);
	else
		return shrunk;
	coll_comm_destroy(shrunk);
	return NULL;
}

#endif /* SELFTESTS_REMOTE_DEATHS_H */
