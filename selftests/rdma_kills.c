// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * rdma_kills.c - four machines with two ranks each, of which one after the other loses its power
 * at a random moment of random collectives. Those who are left notice in time, say which machine
 * it was, go on without it and compute what is right, until one machine is left. NPULINK_SEED
 * sets the seed, which is printed.
 *
 * Of other memory than rdma_machines, so that the machines that it kills are not theirs, too.
 *
 * npulink-test: machines=4 mem=384 modules=none timeout=300 soak soak-times=34
 */
#include <sys/mman.h>
#include "lib/run/comm.h"
#include "remote_deaths.h"
#include "remote_random.h"

#define MACHINES	4
#define PER		2
#define LONG		240000000000ULL

static volatile double *killed;		/* when each machine was, 0: not yet */

/* Each draws the same numbers from here on, whatever it was at before. */
static int agree_on_seed(struct coll_comm *comm, unsigned int rank, unsigned int *seed)
{
	return remote_check(coll_broadcast(comm, seed, seed, 1, COLL_UINT32, 0), comm, rank,
			    "broadcast of the seed");
}

/* Right results until a call fails; returns its error. */
static int until_lost(struct coll_comm *comm, unsigned int rank, unsigned int *seed)
{
	char text[800];
	int rc = 0;

	for (unsigned int i = 0; !rc; i++) {
		struct coll_case c = random_case(seed, coll_comm_size(comm), i % 16 == 0);

		rc = trial_run(comm, &c, text, sizeof(text));
	}
	/* What fails on a machine that is killed would be forgotten. */
	if (rc == -EILSEQ) {
		remote_fail("%s", text);
		coll_comm_abort(comm, 1);
	}
	return rc;
}

/* Some time from now. */
static void kill_later(unsigned int which, unsigned int rank, unsigned int seed)
{
	if (rank % PER == 0)
		remote_watch_kill(which, &killed[which]);
	if (rank || fork())
		return;
	usleep(100000 + rand_r(&seed) % 2000000);
	_exit(!!remote_kill(which));
}

/* Take number @dead of the machines that are left out of the list of them. */
static unsigned int take_out(unsigned int *left, unsigned int n, unsigned int dead)
{
	unsigned int which = left[dead];

	for (unsigned int i = dead; i + 1 < n; i++)
		left[i] = left[i + 1];
	return which;
}

/* One of @n machines dies, and the others go on. NULL: something was wrong. */
static struct coll_comm *lose_one(struct coll_comm *comm, unsigned int *left, unsigned int n,
				  unsigned int *seed)
{
	unsigned int rank = coll_comm_rank(comm), dead, which, gone, all = (1U << n * PER) - 1;
	struct coll_comm *shrunk;
	int rc;

	if (agree_on_seed(comm, rank, seed))
		return NULL;
	dead = rand_r(seed) % n;
	which = take_out(left, n, dead);
	gone = ((1U << PER) - 1) << dead * PER;
	kill_later(which, rank, *seed);
	rc = until_lost(comm, rank, seed);
	if (remote_check_death(comm, rank, rc, dead * PER, PER, which, &killed[which]))
		return NULL;
	shrunk = remote_go_on(comm, rank, all & ~gone, n == 2 ? COLL_MINORITY : 0, LONG,
			      remote_latest());
	if (shrunk && remote_collectives(shrunk, coll_comm_rank(shrunk))) {
		coll_comm_destroy(shrunk);
		return NULL;
	}
	return shrunk;
}

static int one_after_the_other(struct coll_comm *world, unsigned int rank)
{
	unsigned int left[MACHINES] = { 0, 1, 2, 3 }, seed = now() * 1e6;
	struct coll_comm *comm = world, *next;

	if (getenv("NPULINK_SEED"))
		seed = atoi(getenv("NPULINK_SEED"));
	if (agree_on_seed(world, rank, &seed))
		return 1;
	if (!rank)
		ksft_print_msg("NPULINK_SEED=%u\n", seed);
	for (unsigned int n = MACHINES; n > 1 && comm; n--) {
		next = lose_one(comm, left, n, &seed);
		if (comm != world)
			coll_comm_destroy(comm);
		comm = next;
	}
	return !comm || coll_comm_destroy(comm);
}

int main(void)
{
	remote_setup(2, 20000);
	killed = mmap(NULL, MACHINES * sizeof(*killed), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ksft_print_header();
	ksft_set_plan(3);
	setenv("COLL_PEER_TIMEOUT", remote_bound(), 1);
	ksft_test_result(!remote_ranks(PER, one_after_the_other), "three machines are killed\n");
	ksft_test_result(remote_clean(), "no key, no connection and no memory is left\n");
	ksft_test_result(remote_teardown(), "the modules can be removed\n");
	ksft_finished();
}
