// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * verify_mutants.c - is the set verifier worth its name? Plans of every algorithm
 * are damaged at random. A damaged set that the verifier accepts is executed on
 * real numbers, slice by slice in many random orders, by an interpreter that shares
 * no code with the verifier: it must never deadlock nor give a wrong result.
 *
 * Arguments: [MUTANTS [SEED]]
 *
 * npulink-test: san-soak
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kselftest.h"
#include "lib/algorithm/algorithms.h"
#include "lib/plan/plan.h"
#include "lib/verify/set.h"

#if defined(__SANITIZE_ADDRESS__)
#define MUTANTS	32
#else
#define MUTANTS	128
#endif

#define P_MAX	16
#define ES	8	/* int64 */
#define WORDS	4096	/* of a slot, at most */

struct set {
	struct coll_args args[P_MAX];
	struct coll_plan plans[P_MAX];
	uint64_t counts[P_MAX][P_MAX], rcounts[P_MAX][P_MAX];
	uint32_t p;
};

/* Columns of a mesh: 6 is 2 x 3; servers of unequal size. */
static struct coll_topo topo;
static uint32_t server_of[P_MAX];

static void wire(uint32_t p)
{
	uint32_t i;

	topo.cols = p % 3 ? p % 2 ? p : 2 : 3;
	topo.rows = p / topo.cols;
	for (i = 0; i < p; i++)
		server_of[i] = i < 2 ? 0 : 1 + (i - 2) / 3;
	topo.nservers = server_of[p - 1] + 1;
	topo.server_of = server_of;
}

/* ---- making and copying sets */

static void set_free(struct set *set)
{
	uint32_t r;

	for (r = 0; r < set->p; r++)
		coll_plan_free(&set->plans[r]);
}

static bool set_make(struct set *set, const struct coll_algorithm *alg, uint32_t p, bool in_place)
{
	uint32_t r, q;

	memset(set, 0, sizeof(*set));
	if (alg->collective == NPULINK_COLL_P2P)
		p = 2;
	set->p = p;
	wire(p);
	for (r = 0; r < p; r++)
		for (q = 0; q < p; q++) {
			set->counts[r][q] = alg->collective == NPULINK_COLL_ALLTOALLV ?
					    (r + q) % 4 : (q + 1) % 4;
			set->rcounts[q][r] = set->counts[r][q];
		}
	for (r = 0; r < p; r++) {
		struct coll_args *args = &set->args[r];

		*args = (struct coll_args){
			.collective = alg->collective, .dtype = NPULINK_INT64,
			.redop = NPULINK_CALL_AVG, .root = p / 3, .nranks = p, .rank = r,
			.count = coll_splits(alg->collective) ? 2 * p + 1 : 2,
			.counts = set->counts[r], .rcounts = set->rcounts[r],
			.in_place = in_place, .peer = 1 - r, .send = !r, .chunks = 3,
			.topo = &topo,
		};
		if (alg->collective != NPULINK_COLL_ALLTOALLV)
			args->rcounts = NULL;
		if (!npulink_coll_is_v(alg->collective))
			args->counts = NULL;
		if ((alg->supports && alg->supports(args)) ||
		    coll_plan_make(alg, args, &set->plans[r])) {
			set_free(set);
			return false;
		}
	}
	return true;
}

static void set_copy(struct set *to, const struct set *from)
{
	uint32_t r;

	*to = *from;
	for (r = 0; r < to->p; r++) {
		size_t n = to->plans[r].nsteps * sizeof(struct npulink_step);

		to->plans[r].steps = malloc(n + 1);
		if (n)
			memcpy(to->plans[r].steps, from->plans[r].steps, n);
	}
}

/* The verifier wants plans of its own. */
static int set_get(void *ctx, uint32_t rank, struct coll_args *args, struct coll_plan *plan)
{
	const struct set *set = ctx;
	size_t n = set->plans[rank].nsteps * sizeof(struct npulink_step);

	*args = set->args[rank];
	*plan = set->plans[rank];
	plan->steps = malloc(n + 1);
	if (n)
		memcpy(plan->steps, set->plans[rank].steps, n);
	return 0;
}

/* ---- the collectives on real numbers */

static int64_t input(uint32_t rank, uint64_t i)
{
	uint64_t x = (rank + 1) * 0x9e3779b97f4a7c15ULL + i * 0xbf58476d1ce4e5b9ULL;

	return (x ^ x >> 31) * 0x94d049bb133111ebULL >> 40;
}

static uint64_t shard(const struct coll_args *a, const uint64_t *counts, uint32_t i, uint64_t *off)
{
	uint32_t k;

	for (*off = 0, k = 0; k < i; k++)
		*off += counts ? counts[k] : a->count;
	return counts ? counts[i] : a->count;
}

static int64_t total(const struct set *set, uint64_t i)
{
	int64_t sum = 0;
	uint32_t r;

	for (r = 0; r < set->p; r++)
		sum += input(r, i);
	return set->p > 1 ? sum / set->p : sum;
}

/* Is element @i of @rank's receive buffer what it should be? */
static bool right(const struct set *set, uint32_t rank, const int64_t *recv)
{
	const struct coll_args *a = &set->args[rank];
	bool root = rank == a->root;
	uint64_t i, n, off, from;
	uint32_t q;

	switch (a->collective) {
	case NPULINK_COLL_REDUCE:
	case NPULINK_COLL_ALLREDUCE:
		for (i = 0; i < a->count && (root || a->collective == NPULINK_COLL_ALLREDUCE); i++)
			if (recv[i] != total(set, i))
				return false;
		return true;
	case NPULINK_COLL_BROADCAST:
		for (i = 0; i < a->count; i++)
			if (recv[i] != input(a->root, i))
				return false;
		return true;
	case NPULINK_COLL_P2P:
		for (i = 0; i < a->count && !a->send; i++)
			if (recv[i] != input(a->peer, i))
				return false;
		return true;
	case NPULINK_COLL_SCATTER:
	case NPULINK_COLL_SCATTERV:
		n = shard(a, a->counts, rank, &off);
		for (i = 0; i < n; i++)
			if (recv[root && a->in_place ? off + i : i] != input(a->root, off + i))
				return false;
		return true;
	case NPULINK_COLL_GATHER:
	case NPULINK_COLL_GATHERV:
		if (!root)
			return true;
		/* fall through */
	case NPULINK_COLL_ALLGATHER:
	case NPULINK_COLL_ALLGATHERV:
		for (q = 0; q < set->p; q++) {
			bool all = a->collective >= NPULINK_COLL_ALLGATHER;

			n = shard(a, a->counts, q, &off);
			from = a->in_place && (all || q == a->root) ? off : 0;
			for (i = 0; i < n; i++)
				if (recv[off + i] != input(q, from + i))
					return false;
		}
		return true;
	case NPULINK_COLL_REDUCE_SCATTER:
	case NPULINK_COLL_REDUCE_SCATTERV:
		n = shard(a, a->counts, rank, &off);
		for (i = 0; i < n; i++)
			if (recv[a->in_place ? off + i : i] != total(set, off + i))
				return false;
		return true;
	case NPULINK_COLL_ALLTOALL:
	case NPULINK_COLL_ALLTOALLV:
		for (q = 0; q < set->p; q++) {
			const struct coll_args *b = &set->args[q];

			shard(b, b->in_place ? b->rcounts : b->counts, rank, &from);
			n = shard(a, a->rcounts, q, &off);
			for (i = 0; i < n; i++)
				if (recv[off + i] != input(q, from + i))
					return false;
		}
		return true;
	}
	return true;
}

/* ---- an interpreter: every step moves on by any number of elements */

struct active {
	uint64_t in, out;	/* bytes that came in; that the next rank took */
	uint32_t rank, step;
	struct active *from, *to;
	bool running, done;
};

struct machine {
	const struct set *set;
	struct active *steps[P_MAX];
	int64_t *mem[P_MAX][NPULINK_MAX_SLOTS];
};

static const struct npulink_step *def(const struct machine *m, const struct active *a)
{
	return &m->set->plans[a->rank].steps[a->step];
}

static uint64_t window_of(const struct npulink_step *s)
{
	return (s->flags & NPULINK_STEP_F_TRANSIENT) && s->src2_off ? s->src2_off : s->len;
}

static int64_t *cell(struct machine *m, const struct active *a, uint32_t slot, uint64_t off)
{
	return &m->mem[a->rank][slot][off / ES];
}

static uint32_t chain_end(const struct machine *m, uint32_t rank, uint32_t i)
{
	const struct coll_plan *plan = &m->set->plans[rank];

	do {
		i++;
	} while (i < plan->nsteps && (plan->steps[i].flags & NPULINK_STEP_F_CHAIN));
	return i;
}

/* A chain ends as a whole. */
static bool is_done(const struct machine *m, uint32_t rank, uint32_t i)
{
	return m->steps[rank][chain_end(m, rank, i) - 1].done;
}

static bool ready(const struct machine *m, uint32_t rank, uint32_t i)
{
	const struct npulink_step *s = &m->set->plans[rank].steps[i];
	uint32_t k;

	for (k = 0; k < NPULINK_STEP_DEPS; k++)
		if (s->dep[k] && !is_done(m, rank, i - s->dep[k]))
			return false;
	for (k = 0; (s->flags & NPULINK_STEP_F_DRAIN) && k < i; k++)
		if (!m->steps[rank][k].done)
			return false;
	return true;
}

/* A chain starts as a whole, and then its steps go one after the other. */
static bool started(const struct machine *m, const struct active *a)
{
	uint32_t i;

	if (a->running)
		return true;
	if (def(m, a)->flags & NPULINK_STEP_F_CHAIN)
		return m->steps[a->rank][a->step - 1].done;
	for (i = a->step; i < chain_end(m, a->rank, a->step); i++)
		if (!ready(m, a->rank, i))
			return false;
	return true;
}

/* Bytes that the receiver of @a may have by now. */
static uint64_t offered(const struct machine *m, const struct active *a)
{
	if (!started(m, a))
		return 0;
	return def(m, a)->op == NPULINK_STEP_SEND ? def(m, a)->len : a->in;
}

/* Let one element through @a; false if it has to wait. */
static bool element(struct machine *m, struct active *a)
{
	const struct npulink_step *s = def(m, a);
	bool reduce = s->op & NPULINK_STEP_REDUCE;
	int64_t v = 0;

	if (s->op == NPULINK_STEP_SEND || a->in >= s->len)
		return false;
	if ((s->op & NPULINK_STEP_SEND) && a->in - a->out >= window_of(s))
		return false;
	if (s->op & NPULINK_STEP_RECV) {
		const struct npulink_step *t = def(m, a->from);
		uint64_t at = a->in;

		if (offered(m, a->from) <= at)
			return false;
		if (t->op == NPULINK_STEP_SEND)
			v = *cell(m, a->from, t->src_slot, t->src_off + at);
		else
			v = *cell(m, a->from, t->dst_slot, t->dst_off + at % window_of(t));
		a->from->out += ES;
	} else if (reduce) {
		v = *cell(m, a, s->src2_slot, s->src2_off + a->in);
	} else {
		v = *cell(m, a, s->src_slot, s->src_off + a->in);
	}
	if (reduce)
		v += *cell(m, a, s->src_slot, s->src_off + a->in);
	if (s->flags & NPULINK_STEP_F_DIV)
		v /= (int64_t)m->set->p;
	*cell(m, a, s->dst_slot, s->dst_off + a->in % window_of(s)) = v;
	a->in += ES;
	return true;
}

static bool ended(const struct machine *m, const struct active *a)
{
	const struct npulink_step *s = def(m, a);

	if (!s->len && (s->op & NPULINK_STEP_RECV))
		return started(m, a->from);
	if (!s->len && (s->op & NPULINK_STEP_SEND))
		return started(m, a->to);
	if (s->op & NPULINK_STEP_SEND)
		return a->out == s->len;
	return a->in == s->len || !s->op;
}

static bool machine_match(struct machine *m)
{
	uint32_t r, q, i, j;

	for (r = 0; r < m->set->p; r++)
		for (i = 0; i < m->set->plans[r].nsteps; i++) {
			const struct npulink_step *s = &m->set->plans[r].steps[i], *t;

			if (!(s->op & NPULINK_STEP_SEND))
				continue;
			q = s->send_peer;
			for (j = 0; j < m->set->plans[q].nsteps; j++) {
				t = &m->set->plans[q].steps[j];
				if ((t->op & NPULINK_STEP_RECV) && t->recv_peer == r &&
				    t->channel == s->channel && !m->steps[q][j].from)
					break;
			}
			if (j == m->set->plans[q].nsteps)
				return false;
			m->steps[q][j].from = &m->steps[r][i];
			m->steps[r][i].to = &m->steps[q][j];
		}
	return true;
}

static bool machine_run(struct machine *m)
{
	uint32_t total = 0, left, idle = 0, r, i, k;
	struct active **all, *a;

	for (r = 0; r < m->set->p; r++)
		total += m->set->plans[r].nsteps;
	all = malloc((total + 1) * sizeof(*all));
	for (r = 0, k = 0; r < m->set->p; r++)
		for (i = 0; i < m->set->plans[r].nsteps; i++)
			all[k++] = &m->steps[r][i];
	left = total;
	/* Looking at random until nothing moved for long, then at everything. */
	while (left && idle < 2) {
		bool moved = false;

		for (k = 0; k < 4 * left || (idle && k < left); k++) {
			uint32_t at = idle ? k : random() % left;

			if (at >= left)
				break;
			a = all[at];
			if (!started(m, a))
				continue;
			a->running = true;
			for (i = 1 + random() % 4; i && element(m, a); i--)
				moved = true;
			if (ended(m, a)) {
				a->done = true;
				all[at] = all[--left];
				moved = true;
			}
		}
		idle = moved ? 0 : idle + 1;
	}
	free(all);
	return !left;
}

/* One execution in a random order. */
static bool execute(const struct set *set)
{
	struct machine m = { .set = set };
	uint32_t r, s, i;
	bool ok;

	for (r = 0; r < set->p; r++) {
		m.steps[r] = calloc(set->plans[r].nsteps + 1, sizeof(*m.steps[r]));
		for (i = 0; i < set->plans[r].nsteps; i++) {
			m.steps[r][i].rank = r;
			m.steps[r][i].step = i;
		}
		for (s = 0; s < set->plans[r].nslots; s++) {
			const struct coll_args *a = &set->args[r];
			bool rooted = a->collective >= NPULINK_COLL_BROADCAST &&
				      a->collective <= NPULINK_COLL_GATHERV;
			bool in_place = a->in_place && (!rooted || r == a->root) &&
					a->collective != NPULINK_COLL_P2P;

			m.mem[r][s] = malloc(WORDS * ES);
			for (i = 0; i < WORDS; i++)
				m.mem[r][s][i] = s == (in_place ? NPULINK_SLOT_RECV :
						       NPULINK_SLOT_SEND) ?
						 input(r, i) : random();
		}
	}
	ok = machine_match(&m) && machine_run(&m);
	for (r = 0; r < set->p && ok; r++)
		if (set->plans[r].nslots > NPULINK_SLOT_RECV)
			ok = right(set, r, m.mem[r][NPULINK_SLOT_RECV]);
	for (r = 0; r < set->p; r++) {
		free(m.steps[r]);
		for (s = 0; s < NPULINK_MAX_SLOTS; s++)
			free(m.mem[r][s]);
	}
	return ok;
}

static bool execute_often(const struct set *set, uint32_t times)
{
	uint32_t i;

	for (i = 0; i < times; i++)
		if (!execute(set))
			return false;
	return true;
}

/* ---- damage */

static const char * const kinds[] = {
	"peer", "offset", "dependency", "step", "reduction", "slot", "flag", "length", "order",
	"swap offsets", "channel",
};

static void drop_step(struct coll_plan *plan, uint32_t at)
{
	uint32_t i, k;

	for (i = at + 1; i < plan->nsteps; i++) {
		for (k = 0; k < NPULINK_STEP_DEPS; k++) {
			uint32_t *dep = &plan->steps[i].dep[k];

			if (*dep == i - at)
				*dep = 0;
			else if (*dep > i - at)
				--*dep;
		}
		plan->steps[i - 1] = plan->steps[i];
	}
	plan->nsteps--;
}

/* Returns false if that kind does not apply there. */
static bool damage(struct set *set, uint32_t kind)
{
	struct coll_plan *plan = &set->plans[random() % set->p];
	struct npulink_step *s, *t;
	uint64_t off;
	uint32_t k;

	if (!plan->nsteps)
		return false;
	s = &plan->steps[random() % plan->nsteps];
	t = &plan->steps[random() % plan->nsteps];
	switch (kind) {
	case 0:
		if (s->op & NPULINK_STEP_SEND)
			s->send_peer = random() % set->p;
		else if (s->op & NPULINK_STEP_RECV)
			s->recv_peer = random() % set->p;
		else
			return false;
		return true;
	case 1:
		k = random() % 2 ? ES : -ES;
		if (random() % 2)
			s->src_off += (int32_t)k;
		else
			s->dst_off += (int32_t)k;
		return true;
	case 2:
		k = random() % NPULINK_STEP_DEPS;
		if (!s->dep[k])
			return false;
		s->dep[k] = random() % 2 ? 0 : 1 + random() % (s - plan->steps);
		return true;
	case 3:
		drop_step(plan, s - plan->steps);
		return true;
	case 4:
		s->op ^= random() % 2 ? NPULINK_STEP_REDUCE : NPULINK_STEP_COPY;
		s->dtype = s->op & NPULINK_STEP_REDUCE ? NPULINK_INT64 : 0;
		if (!(s->op & NPULINK_STEP_REDUCE))
			s->flags &= ~(NPULINK_STEP_F_DIV | NPULINK_STEP_F_CHAIN);
		if ((s->op & ~NPULINK_STEP_SEND) == NPULINK_STEP_RECV) {
			s->src_slot = 0;
			s->src_off = 0;
		}
		return true;
	case 5:
		if (random() % 2)
			s->src_slot = random() % 3;
		else
			s->dst_slot = random() % 3;
		return true;
	case 6:
		s->flags ^= 1 << random() % 4;
		return true;
	case 7:
		s->len += random() % 2 ? ES : -ES;
		return true;
	case 8: {
		struct npulink_step swap = *s;

		memcpy(swap.dep, t->dep, sizeof(swap.dep));
		memcpy(t->dep, s->dep, sizeof(swap.dep));
		*s = *t;
		*t = swap;
		return s != t;
	}
	case 9:
		off = s->dst_off;
		s->dst_off = t->dst_off;
		t->dst_off = off;
		return s->dst_off != off;
	default:
		if (!(s->op & (NPULINK_STEP_SEND | NPULINK_STEP_RECV)))
			return false;
		s->channel++;
		return true;
	}
}

/* What the order for very many steps finds is what any order finds. */
static struct {
	uint32_t proved, refused, unknown, wrong;
} in_order;

static int verify(struct set *set, struct coll_verify_report *report)
{
	struct coll_set all = { .nranks = set->p, .get = set_get, .ctx = set, .seed = 1 };
	struct coll_verify_report other;
	int rc = coll_verify_set(&all, report), flow = coll_verify_flow(&all, &other);

	if (flow == -EOPNOTSUPP)
		in_order.unknown++;
	else if (flow)
		in_order.refused++;
	else
		in_order.proved++;
	if (flow != -EOPNOTSUPP &&
	    (!rc != !flow || (!rc && memcmp(report, &other, sizeof(other))))) {
		in_order.wrong++;
		ksft_print_msg("p = %u: in any order %d %s; in list order %d %s\n", set->p, rc,
			       report->reason, flow, other.reason);
	}
	return rc;
}

static uint32_t made[ARRAY_SIZE(kinds)], caught[ARRAY_SIZE(kinds)];

/* One mutant of @set: false if it is wrong and was accepted. */
static bool try_mutant(const struct set *set, uint32_t *accepted)
{
	uint32_t kind = random() % ARRAY_SIZE(kinds);
	struct coll_verify_report report;
	struct set mutant;
	bool ok = true;
	int rc;

	set_copy(&mutant, set);
	if (damage(&mutant, kind)) {
		made[kind]++;
		rc = verify(&mutant, &report);
		if (rc) {
			caught[kind]++;
		} else {
			++*accepted;
			ok = execute_often(&mutant, 20);
		}
		if (!ok)
			ksft_print_msg("p = %u: damaged %s not found\n", set->p, kinds[kind]);
	}
	set_free(&mutant);
	return ok;
}

static bool try_set(const struct coll_algorithm *alg, uint32_t p, bool in_place, uint32_t mutants,
		    uint32_t *sets, uint32_t *accepted)
{
	struct coll_verify_report report;
	struct set set;
	bool ok;

	if (!set_make(&set, alg, p, in_place))
		return true;
	++*sets;
	ok = !verify(&set, &report) && execute_often(&set, 5);
	if (!ok)
		ksft_print_msg("p = %u: not even right undamaged\n", p);
	while (ok && mutants--)
		ok = try_mutant(&set, accepted);
	set_free(&set);
	return ok;
}

int main(int argc, char **argv)
{
	uint32_t mutants = argc > 1 ? atoi(argv[1]) : MUTANTS, n = 0, kind;
	const struct coll_algorithm *alg = NULL;

	srandom(argc > 2 ? atoi(argv[2]) : 1);
	while ((alg = coll_algorithm_next(~0U, alg)))
		n++;
	ksft_print_header();
	ksft_set_plan(n + 1);
	while ((alg = coll_algorithm_next(~0U, alg))) {
		uint32_t accepted = 0, sets = 0, p;
		bool ok = true;

		for (p = 2; p <= 9 && ok; p++)
			ok = try_set(alg, p, false, mutants / 16, &sets, &accepted) &&
			     try_set(alg, p, true, mutants / 16, &sets, &accepted);
		ksft_test_result(ok, "%s %s: %u sets, %u harmless mutants accepted\n",
				 coll_collective_name(alg->collective), alg->name, sets, accepted);
	}
	for (kind = 0; kind < ARRAY_SIZE(kinds); kind++)
		ksft_print_msg("damaged %s: %u, of which %u caught\n", kinds[kind], made[kind],
			       caught[kind]);
	ksft_test_result(!in_order.wrong && in_order.refused > in_order.unknown,
			 "in list order: %u proved, %u refused, %u not known, %u not agreed on\n",
			 in_order.proved, in_order.refused, in_order.unknown, in_order.wrong);
	ksft_finished();
}
