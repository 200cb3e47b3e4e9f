// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * cache.c - the plans that the kernel has for a communicator.
 *
 * A call that was made before finds its plan by a hash of its arguments; another
 * one is planned and created. Bounded by number and by steps, least recently used
 * first. All functions are called with the lock held.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <npulink/verify.h>
#include "run/board.h"
#include "run/cache.h"
#include "run/comm.h"
#include "run/drv.h"
#include "run/error.h"
#include "run/fpu.h"
#include "run/group_kept.h"
#include "run/repeat.h"
#include "tune/choices.h"

/* Above this the kernel leaves the proof that a plan has no races to us. */
#define KERNEL_RACE_STEPS	4096

static uint64_t mix(uint64_t hash, uint64_t value)
{
	hash ^= value;
	hash *= 0x9e3779b97f4a7c15ULL;
	return hash ^ (hash >> 32);
}

static uint64_t mix_array(uint64_t hash, const uint64_t *v, uint32_t n)
{
	for (uint32_t i = 0; v && i < n; i++)
		hash = mix(hash, v[i]);
	return hash;
}

static uint64_t args_hash(const struct coll_args *a)
{
	uint64_t hash = mix(a->collective, a->count);

	hash = mix(hash, (uint64_t)a->dtype << 32 | a->redop);
	hash = mix(hash, (uint64_t)a->root << 32 | a->peer);
	hash = mix(hash, a->in_place | a->send << 1 | a->packed[0] << 2 | a->packed[1] << 3);
	hash = mix_array(hash, a->counts, a->nranks);
	hash = mix_array(hash, a->displs, a->nranks);
	hash = mix_array(hash, a->rcounts, a->nranks);
	return mix_array(hash, a->rdispls, a->nranks);
}

static bool same_array(const uint64_t *a, const uint64_t *b, uint32_t n)
{
	return !a == !b && (!a || !memcmp(a, b, n * sizeof(*a)));
}

static bool same_args(const struct coll_args *a, const struct coll_args *b)
{
	if (a->collective != b->collective || a->dtype != b->dtype || a->redop != b->redop ||
	    a->root != b->root || a->peer != b->peer || a->send != b->send ||
	    a->in_place != b->in_place || a->count != b->count)
		return false;
	if (!a->counts && !b->counts && !a->rcounts && !b->rcounts)
		return true;	/* those without counts have no displacements */
	return a->packed[0] == b->packed[0] && a->packed[1] == b->packed[1] &&
	       same_array(a->counts, b->counts, a->nranks) &&
	       same_array(a->displs, b->displs, a->nranks) &&
	       same_array(a->rcounts, b->rcounts, a->nranks) &&
	       same_array(a->rdispls, b->rdispls, a->nranks);
}

/* Copies what the args point to into one piece of memory that follows the entry. */
static struct coll_cached *entry_new(const struct coll_args *args)
{
	const uint64_t *from[4] = { args->counts, args->displs, args->rcounts, args->rdispls };
	const uint64_t *to[4] = { };
	size_t bytes = args->nranks * sizeof(uint64_t), n = 0;
	struct coll_cached *e;
	uint64_t *mem;

	for (int i = 0; i < 4; i++)
		n += !!from[i];
	e = calloc(1, sizeof(*e) + n * bytes);
	if (!e)
		return NULL;
	mem = (uint64_t *)(e + 1);
	for (int i = 0; i < 4; i++) {
		if (!from[i])
			continue;
		memcpy(mem, from[i], bytes);
		to[i] = mem;
		mem += args->nranks;
	}
	e->args = *args;
	e->args.counts = to[0];
	e->args.displs = to[1];
	e->args.rcounts = to[2];
	e->args.rdispls = to[3];
	return e;
}

static void lru_remove(struct coll_plans *plans, struct coll_cached *e)
{
	*(e->newer ? &e->newer->older : &plans->newest) = e->older;
	*(e->older ? &e->older->newer : &plans->oldest) = e->newer;
}

static void lru_add(struct coll_plans *plans, struct coll_cached *e)
{
	e->newer = NULL;
	e->older = plans->newest;
	*(plans->newest ? &plans->newest->newer : &plans->oldest) = e;
	plans->newest = e;
}

static void entry_drop(struct coll_comm *comm, struct coll_cached *e, bool destroy)
{
	struct coll_plans *plans = &comm->plans;
	struct coll_cached **p = &plans->bucket[e->hash % COLL_PLAN_BUCKETS];

	while (*p != e)
		p = &(*p)->chain;
	*p = e->chain;
	lru_remove(plans, e);
	plans->n--;
	plans->nsteps -= e->nsteps;
	if (destroy)
		coll_drv_destroy(&comm->dev->drv, e->id);
	free(e);
}

/* Drops the oldest plan that no operation uses; false if there is none. */
static bool evict(struct coll_comm *comm)
{
	do {
		for (struct coll_cached *e = comm->plans.oldest; e; e = e->newer) {
			if (!e->refs) {
				entry_drop(comm, e, true);
				return true;
			}
		}
	} while (coll_group_forget(comm) || coll_repeats_drop(comm));
	return false;
}

/* The prediction is for ranks that run side by side; here they may share processors. */
static uint64_t deadline_of(double seconds, unsigned int nranks)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	double share = cpus > 0 && nranks > cpus ? (double)nranks / cpus : 1;
	double ns = 60e9 + seconds * share * 1000e9;

	return ns < 1e18 ? (uint64_t)ns : 0;
}

/* From when on the kernel tells that it is slow: sooner than an error, and no error. */
static uint64_t slow_of(double seconds, unsigned int nranks)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	double share = cpus > 0 && nranks > cpus ? (double)nranks / cpus : 1;
	double ns = 1e9 + seconds * share * 20e9;

	return ns < 1e18 ? (uint64_t)ns : 0;
}

static int check_races(struct coll_comm *comm, const struct coll_args *args,
		       const struct coll_plan *plan)
{
	const struct npulink_plan_desc desc = {
		.call = &plan->call,
		.nranks = plan->nranks,
		.rank = plan->rank,
		.nslots = plan->nslots,
		.slots = plan->slots,
		.nsteps = plan->nsteps,
		.steps = plan->steps,
	};
	struct npulink_plan_create refused = { };
	struct npulink_verdict verdict;
	int rc = npulink_verify_races(&desc, &verdict);

	refused.out_bad_step = verdict.step;
	refused.out_reason = verdict.reason;
	return rc ? coll_fail_plan(comm, args, rc, &refused) : 0;
}

/* To the kernel it would be a plan that races with itself. Leaves an error text. */
static int check_blocks(struct coll_comm *comm, const struct coll_args *args)
{
	bool either = args->collective == NPULINK_COLL_REDUCE_SCATTERV;
	bool alltoall = args->collective == NPULINK_COLL_ALLTOALLV;
	uint32_t ranks[2];
	int rc = coll_args_overlap(args, ranks);
	char what[128];

	if (rc != -EINVAL)
		return rc ? coll_fail(comm, rc, "out of memory") : 0;
	coll_describe(args, what, sizeof(what));
	return coll_fail(comm, rc, "%s: the blocks of ranks %u and %u in %s overlap (%s)", what,
			 ranks[0], ranks[1], either ? "the buffer" : "recv",
			 alltoall ? "rdispls" : "displs");
}

static int plan_create(struct coll_comm *comm, const struct coll_args *call, struct coll_cached *e)
{
	struct coll_cost_params network;
	struct coll_args wired = *call, *args = &wired;
	struct npulink_plan_create arg = { };
	struct coll_plan plan = { };
	char what[128], why[320];
	const char *bad;
	double seconds;
	int rc;

	wired.topo = coll_comm_topo(comm);
	bad = coll_args_check(args);
	coll_describe(args, what, sizeof(what));
	if (bad)
		return coll_fail(comm, -EINVAL, "%s: %s", what, bad);
	network = coll_tune_network(&comm->tune, args);
	wired.network = &network;
	rc = check_blocks(comm, args);
	if (rc)
		return rc;
	rc = coll_choices_get(&comm->choices, &comm->tune, args, &e->alg, &seconds, why,
			      sizeof(why));
	if (rc)
		return coll_fail(comm, rc, "%s: %s", what, why);
	/* The choice went by nothing that ranks differ in, but how long it takes goes by that. */
	if (args->collective == NPULINK_COLL_ALLTOALLV)
		seconds = fmax(seconds, coll_tune_own_part(&comm->tune, e->alg, args));
	rc = coll_plan_make(e->alg, args, &plan);
	if (rc)
		return coll_fail_plan(comm, args, rc, NULL);
	if (plan.nsteps > KERNEL_RACE_STEPS)
		rc = check_races(comm, args, &plan);
	if (!rc) {
		do
			rc = coll_drv_plan_create(&comm->dev->drv, comm->id, &plan, &arg);
		while (rc == -ENOMEM && evict(comm));
		if (rc)
			coll_fail_plan(comm, args, rc, &arg);
	}
	if (!rc) {
		e->id = arg.out_id;
		e->nsteps = plan.nsteps;
		e->nslots = plan.nslots;
		for (uint32_t i = 0; i < plan.nslots && i < COLL_SLOTS; i++)
			e->slots[i] = plan.slots[i];
		for (uint32_t i = 0; i < plan.nslots && i < COLL_SLOTS; i++)
			e->len[i] = plan.slots[i].access ? plan.slots[i].min_len : 0;
		e->deadline_ns = deadline_of(seconds, comm->nranks);
		e->slow_ns = slow_of(seconds, comm->nranks);
		coll_board_describe(e->alg, &e->args, &e->board);
	}
	coll_plan_free(&plan);
	return rc;
}

/* The plan for args, with a reference; made if need be. Leaves an error text. */
int coll_plan_get(struct coll_comm *comm, const struct coll_args *args,
		  struct coll_cached **cached)
{
	struct coll_plans *plans = &comm->plans;
	struct coll_cached *e = plans->newest, **bucket;
	struct coll_fpu had;
	uint64_t hash;
	int rc;

	/* The same call as last time is what programs do most. */
	if (e && same_args(&e->args, args)) {
		plans->hits++;
		goto found;
	}
	hash = args_hash(args);
	bucket = &plans->bucket[hash % COLL_PLAN_BUCKETS];
	for (e = *bucket; e; e = e->chain) {
		if (e->hash == hash && same_args(&e->args, args)) {
			plans->hits++;
			if (plans->newest != e) {
				lru_remove(plans, e);
				lru_add(plans, e);
			}
			goto found;
		}
	}
	plans->misses++;
	e = entry_new(args);
	if (!e)
		return coll_fail(comm, -ENOMEM, "out of memory");
	/* What costs least, by arithmetic, is to be the same on all ranks. */
	had = coll_fpu_begin();
	rc = plan_create(comm, args, e);
	coll_fpu_end(had);
	if (rc) {
		free(e);
		return rc;
	}
	e->hash = hash;
	e->chain = *bucket;
	*bucket = e;
	lru_add(plans, e);
	plans->n++;
	plans->nsteps += e->nsteps;
	e->refs++;
	while ((plans->n > COLL_PLANS_MAX || plans->nsteps > COLL_PLAN_STEPS_MAX) && evict(comm))
		;
	*cached = e;
	return 0;
found:
	e->refs++;
	*cached = e;
	return 0;
}

/* When the communicator goes; nothing is in flight. */
void coll_plan_free_all(struct coll_comm *comm, bool destroy)
{
	while (comm->plans.newest)
		entry_drop(comm, comm->plans.newest, destroy);
}
