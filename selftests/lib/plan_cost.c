// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * plan_cost.c - the closed forms against the plans: every algorithm's plans are
 * timed under the cost rule of ALGORITHMS.md, with one port per rank and with one
 * per peer, and what the devices read and write is counted.
 *
 * A transfer starts when both its steps are due and both ports are free; ports take
 * transfers in list order. It lasts alpha + n beta; a receive that reduces holds
 * its port (with a port per peer: the compute unit) n gamma longer.
 *
 * Arguments: [COLLECTIVE [ALGORITHM]]
 *
 * npulink-test: san-soak
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kselftest.h"
#include "lib/algorithm/algorithms.h"
#include "lib/plan/planner.h"

struct cell {
	double done, taken;	/* when the step, and what it receives, is complete */
	uint32_t from, to;
	uint32_t sport, rport, unit;	/* the step before it at the same port */
	bool timed, busy;
};

struct timing {
	const struct coll_cost_params *c;
	struct coll_plan *plans;
	uint32_t *base, *owner;
	struct cell *cells;
	uint32_t p;
	bool deadlock;
};

#define NONE	(~0U)

static const struct npulink_step *step_of(const struct timing *t, uint32_t i)
{
	return &t->plans[t->owner[i]].steps[i - t->base[t->owner[i]]];
}

static double done(struct timing *t, uint32_t i);
static double take(struct timing *t, uint32_t r);

/* When the compute unit has done with step @i. */
static double reduced(struct timing *t, uint32_t i)
{
	return step_of(t, i)->op & NPULINK_STEP_RECV ? take(t, i) : done(t, i);
}

static double later(double a, double b)
{
	return a > b ? a : b;
}

/* When the dependencies of step @i are met; a chain waits for those of all. */
static double due(struct timing *t, uint32_t i)
{
	uint32_t base = t->base[t->owner[i]], end = base + t->plans[t->owner[i]].nsteps, k;
	double when = 0;

	while (step_of(t, i)->flags & NPULINK_STEP_F_CHAIN)
		i--;
	do {
		const struct npulink_step *s = step_of(t, i);

		for (k = 0; k < NPULINK_STEP_DEPS; k++) {
			uint32_t on = i - s->dep[k];

			/* A chain ends as a whole. */
			while (s->dep[k] && on + 1 < end &&
			       (step_of(t, on + 1)->flags & NPULINK_STEP_F_CHAIN))
				on++;
			if (s->dep[k])
				when = later(when, done(t, on));
		}
		for (k = base; k < i && (s->flags & NPULINK_STEP_F_DRAIN); k++)
			when = later(when, done(t, k));
		i++;
	} while (i < end && (step_of(t, i)->flags & NPULINK_STEP_F_CHAIN));
	return when;
}

/* Time the transfer that ends in receive step @r. */
static double take(struct timing *t, uint32_t r)
{
	struct cell *c = &t->cells[r], *sender = &t->cells[c->from];
	const struct npulink_step *s = step_of(t, r), *from = step_of(t, c->from);
	double when, work = 0;

	if (c->timed)
		return c->taken;
	if (c->busy) {
		t->deadlock = true;
		return 0;
	}
	c->busy = true;
	when = later(due(t, r), due(t, c->from));
	if (from->op & NPULINK_STEP_RECV)
		when = later(when, take(t, c->from));
	if (sender->sport != NONE) {
		const struct cell *before = &t->cells[sender->sport];

		take(t, before->to);
		when = later(when, before->done);
	}
	if (c->rport != NONE)
		when = later(when, take(t, c->rport));
	when += t->c->alpha + s->len * t->c->beta;
	sender->done = when;
	if (s->op & NPULINK_STEP_REDUCE)
		work = s->len * t->c->gamma;
	if (work > 0 && t->c->ports > 1 && c->unit != NONE)
		when = later(when, reduced(t, c->unit));
	c->taken = when + work;
	if (!(s->op & NPULINK_STEP_SEND))
		c->done = c->taken;
	c->timed = true;
	return c->taken;
}

/* When step @i has ended; for steps that pass on, when it has received. */
static double done(struct timing *t, uint32_t i)
{
	const struct npulink_step *s = step_of(t, i);
	struct cell *c = &t->cells[i];

	if (s->op & NPULINK_STEP_SEND) {
		take(t, c->to);
		return c->done;
	}
	if (s->op & NPULINK_STEP_RECV)
		return take(t, i);
	if (!c->timed) {
		c->done = due(t, i);
		if (s->op & NPULINK_STEP_REDUCE) {
			if (c->unit != NONE)
				c->done = later(c->done, reduced(t, c->unit));
			c->done += s->len * t->c->gamma;
		}
		c->timed = true;
	}
	return c->done;
}

static void match(struct timing *t)
{
	uint32_t *last_send = malloc(4 * (t->p + 1) * sizeof(*last_send)), r, i, q, n;
	uint32_t *last_recv = last_send + t->p;

	for (r = 0; r < t->p; r++) {
		uint32_t unit = NONE;

		memset(last_send, 0xff, 2 * t->p * sizeof(*last_send));
		for (i = 0; i < t->plans[r].nsteps; i++) {
			struct npulink_step *s = &t->plans[r].steps[i];
			struct cell *c = &t->cells[t->base[r] + i];

			c->from = c->to = c->sport = c->rport = NONE;
			c->unit = unit;
			t->owner[t->base[r] + i] = r;
			if (s->op & NPULINK_STEP_SEND) {
				n = t->c->ports > 1 ? s->send_peer : 0;
				c->sport = last_send[n];
				last_send[n] = t->base[r] + i;
			}
			if (s->op & NPULINK_STEP_RECV) {
				n = t->c->ports > 1 ? s->recv_peer : 0;
				c->rport = last_recv[n];
				last_recv[n] = t->base[r] + i;
			}
			if (s->op & NPULINK_STEP_REDUCE)
				unit = t->base[r] + i;
		}
	}
	free(last_send);

	/* Sends of r in order; the receivers' places are kept per sender. */
	for (r = 0; r < t->p; r++) {
		uint32_t *place = calloc(t->p * NPULINK_MAX_CHANNELS, sizeof(*place));

		for (i = 0; i < t->plans[r].nsteps; i++) {
			const struct npulink_step *s = &t->plans[r].steps[i], *o;
			uint32_t *at;

			if (!(s->op & NPULINK_STEP_SEND))
				continue;
			q = s->send_peer;
			at = &place[q * NPULINK_MAX_CHANNELS + s->channel];
			for (;; ++*at) {
				o = &t->plans[q].steps[*at];
				if ((o->op & NPULINK_STEP_RECV) && o->recv_peer == r &&
				    o->channel == s->channel)
					break;
			}
			t->cells[t->base[q] + *at].from = t->base[r] + i;
			t->cells[t->base[r] + i].to = t->base[q] + *at;
			++*at;
		}
		free(place);
	}
}

static double time_set(const struct coll_algorithm *alg, struct coll_args *args,
		       const struct coll_cost_params *c)
{
	struct timing t = { .c = c, .p = args->nranks };
	double end = 0;
	uint32_t r, i, n = 0;

	t.plans = calloc(t.p, sizeof(*t.plans));
	t.base = calloc(t.p + 1, sizeof(*t.base));
	for (r = 0; r < t.p; r++) {
		args->rank = r;
		args->peer = 1 - r;
		args->send = !r;
		t.base[r] = n;
		if (coll_plan_make(alg, args, &t.plans[r]))
			t.deadlock = true;
		n += t.plans[r].nsteps;
	}
	t.cells = calloc(n + 1, sizeof(*t.cells));
	t.owner = calloc(n + 1, sizeof(*t.owner));
	if (!t.deadlock)
		match(&t);
	for (i = 0; i < n && !t.deadlock; i++) {
		end = later(end, done(&t, i));
		if (step_of(&t, i)->op & NPULINK_STEP_RECV)
			end = later(end, take(&t, i));
	}
	for (r = 0; r < t.p; r++)
		coll_plan_free(&t.plans[r]);
	free(t.plans);
	free(t.base);
	free(t.cells);
	free(t.owner);
	args->rank = 0;
	return t.deadlock ? -1 : end;
}

/* ---- what is compared */

static uint64_t counts[128];

static struct coll_topo topo;
static uint32_t server_of[128];

/* The mesh nearest to a square; its rows are servers. */
static void wire(uint32_t p)
{
	uint32_t i;

	for (topo.rows = sqrt(p); p % topo.rows; topo.rows--)
		;
	topo.cols = p / topo.rows;
	for (i = 0; i < p; i++)
		server_of[i] = i / topo.cols;
	topo.nservers = topo.rows;
	topo.server_of = server_of;
}

static struct coll_args call_of(const struct coll_algorithm *alg, uint32_t p, bool divisible)
{
	uint64_t block = 1 << lg_ceil(p);
	struct coll_args args = {
		.collective = alg->collective, .dtype = NPULINK_FLOAT32, .nranks = p,
		.count = coll_splits(alg->collective) ?
			 (divisible ? 60 * p * block : 30 * p + 7) : 32,
		.counts = counts, .rcounts = counts, .topo = &topo, .chunks = divisible ? 5 : 0,
	};
	uint32_t i;

	wire(p);
	for (i = 0; i < p; i++)
		counts[i] = divisible ? 48 : 1 + i * 7 % 40;
	if (alg->collective == NPULINK_COLL_ALLTOALLV)
		for (i = 0; i < p; i++)
			counts[i] = 16;
	if (alg->collective == NPULINK_COLL_BARRIER)
		args.count = 0;
	return args;
}

static bool compare(const struct coll_algorithm *alg, struct coll_args *args,
		    const struct coll_cost_params *c, bool exact, double *worst)
{
	double form, real, off;

	if (alg->supports && alg->supports(args))
		return true;
	form = args->nranks > 1 ? alg->cost(args, c) : 0;
	real = time_set(alg, args, c);
	off = form > 0 ? (real - form) / form : real;
	if (exact && fabs(off) > *worst)
		*worst = fabs(off);
	if (exact ? fabs(off) < 1e-9 : real >= 0 && off < 1e-9)
		return true;
	ksft_print_msg("%u ranks, root %u, count %llu, %u ports, alpha %g beta %g gamma %g: form %.12g, plans %.12g (%s)\n",
		       args->nranks, args->root, (unsigned long long)args->count, c->ports,
		       c->alpha, c->beta, c->gamma, form, real, exact ? "exact" : "bound");
	return false;
}

/* With more ports, only forms that speak of them are exact. */
static bool is_exact(const struct coll_algorithm *alg, const struct coll_cost_params *c)
{
	return alg->exact && (c->ports == 1 || strstr(alg->formula, "p-1 ports"));
}

#define COSTS(a, b, g, p)	{ .alpha = a, .beta = b, .gamma = g, .ports = p }

static bool compare_ranks(const struct coll_algorithm *alg, uint32_t p, double *worst)
{
	static const struct coll_cost_params nets[] = {
		COSTS(1, 0, 0, 1), COSTS(0, 1, 0, 1), COSTS(0, 0, 1, 1), COSTS(100, 1, 3, 1),
		COSTS(3, 1, 0.2, 1),
		COSTS(1, 0, 0, 2), COSTS(0, 1, 0, 2), COSTS(100, 1, 0.5, 2),
	};
	struct coll_args args;
	uint32_t i, root;

	if (alg->collective == NPULINK_COLL_P2P && p != 2)
		return true;
	for (i = 0; i < ARRAY_SIZE(nets); i++) {
		struct coll_cost_params c = nets[i];

		if (c.ports > 1)
			c.ports = p - 1;
		if (p < 3 && nets[i].ports > 1)
			continue;
		args = call_of(alg, p, true);
		for (root = 0; root < p; root += 1 + p / 3) {
			args.root = npulink_coll_has_root(alg->collective) ? root : 0;
			if (!compare(alg, &args, &c, is_exact(alg, &c), worst))
				return false;
			if (args.root != root)
				break;
		}
		/* With counts that do not divide, the largest shard makes a bound. */
		args = call_of(alg, p, false);
		if (coll_splits(alg->collective) &&
		    !compare(alg, &args, &c, false, worst))
			return false;
	}
	return true;
}

/* ---- what the device reads and writes: issue 2 */

static bool engine_bytes(const char *name, uint32_t collective, uint32_t reads_num,
			 bool read_all, uint32_t writes_num)
{
	const struct coll_algorithm *alg = coll_algorithm_find(collective, name);
	struct coll_plan_stats stats;
	struct coll_plan plan;
	uint32_t p, r, in_place;
	bool ok = true;

	for (p = 2; p <= 64; p++) {
		uint64_t n, shard;

		for (r = 0; r < p; r += 1 + p / 7) {
			for (in_place = 0; in_place < 2; in_place++) {
				struct coll_args args = {
					.collective = collective, .dtype = NPULINK_FLOAT32,
					.nranks = p, .rank = r, .in_place = in_place,
					.count = collective == NPULINK_COLL_ALLREDUCE ? 8 * p : 8,
				};

				shard = 8 * 4;
				n = p * shard;
				if (coll_plan_make(alg, &args, &plan))
					return false;
				coll_plan_stats(&plan, &stats);
				if (stats.read != (read_all ? n : reads_num * (p - 1) * shard) ||
				    stats.written != (read_all ? shard :
						      writes_num * (p - 1) * shard)) {
					ksft_print_msg("p = %u: reads %llu, writes %llu, n = %llu\n",
						       p, (unsigned long long)stats.read,
						       (unsigned long long)stats.written,
						       (unsigned long long)n);
					ok = false;
				}
				coll_plan_free(&plan);
			}
		}
	}
	return ok;
}

int main(int argc, char **argv)
{
	const struct coll_algorithm *alg = NULL;
	uint32_t n = 2, p;

	while ((alg = coll_algorithm_next(~0U, alg)))
		n++;
	ksft_print_header();
	if (argc == 1)
		ksft_set_plan(n);
	while ((alg = coll_algorithm_next(~0U, alg))) {
		double worst = 0;
		bool ok = true;

		if ((argc > 1 && strcmp(argv[1], coll_collective_name(alg->collective))) ||
		    (argc > 2 && strcmp(argv[2], alg->name)))
			continue;
		for (p = 1; p <= 33 && ok; p++)
			ok = compare_ranks(alg, p, &worst);
		if (ok && alg->collective != NPULINK_COLL_P2P)
			ok = compare_ranks(alg, 48, &worst) && compare_ranks(alg, 64, &worst) &&
			     compare_ranks(alg, 100, &worst);
		ksft_test_result(ok, "%s %s: %s%s, largest difference %.1e\n",
				 coll_collective_name(alg->collective), alg->name,
				 alg->exact ? "exact: " : "bound: ", alg->formula, worst);
	}
	if (argc > 1)
		return ksft_get_fail_cnt() ? KSFT_FAIL : KSFT_PASS;
	ksft_test_result(engine_bytes("ring", NPULINK_COLL_ALLREDUCE, 3, false, 2),
			 "ring allreduce: each rank reads 3(p-1)/p n and writes 2(p-1)/p n\n");
	ksft_test_result(engine_bytes("mesh", NPULINK_COLL_REDUCE_SCATTER, 0, true, 0),
			 "mesh reduce_scatter: each rank reads n and writes n/p\n");
	ksft_finished();
}
