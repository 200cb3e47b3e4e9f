// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * rotation.c - the proof for plans that are all one plan, turned.
 *
 * First every rank's plan is compared with rank 0's: peers are so many ranks
 * further, and ranges of a large buffer so many shards. If that holds, so do the
 * contents of buffers: what rank r has in shard c is what rank 0 has in shard
 * c - r, with ranks and places turned by r. So the steps of rank 0 alone are
 * executed, and what they receive is what rank 0 sends at that step, turned.
 * That needs the memory of one rank, not of all. A cycle of steps of all ranks
 * would be one of rank 0's steps, hence no deadlock here is none there.
 *
 * Sums of random numbers do not turn. Here a sum has to be of neighbouring ranks,
 * counted around, which are then known by the first and their number.
 *
 * Plans of 2^d ranks that exchange with rank XOR k are all one plan in the same way,
 * with XOR for addition; there, nothing may be added up.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "verify/run.h"

#define NONE	(~0U)

struct turn {
	uint32_t p;
	bool flip;		/* XOR */
	uint64_t m;		/* bytes of a shard */
	bool large[2];		/* the slot holds all shards */
};

uint32_t verify_turned(const struct verify_run *run, uint32_t rank, uint32_t by)
{
	return run->flips ? rank ^ by : mod_add(rank, by, run->nranks);
}

static uint32_t turned_by(const struct turn *t, uint32_t rank, uint32_t by)
{
	return t->flip ? rank ^ by : mod_add(rank, by, t->p);
}

/* Shards of one size, one after another, or it cannot be turned. */
static bool turn_of(const struct verify_rank *r, bool flip, struct turn *t)
{
	struct plan_shards s = plan_shards(&r->args);
	uint64_t size[2];
	uint32_t i;

	memset(t, 0, sizeof(*t));
	t->p = r->args.nranks;
	t->m = shard_len(&s, 0);
	t->flip = flip;
	if (flip && (npulink_coll_reduces(r->args.collective) || (t->p & (t->p - 1))))
		return false;
	if (npulink_coll_has_root(r->args.collective) || !t->m || t->p < 2 ||
	    r->args.collective >= NPULINK_COLL_BARRIER)
		return false;
	for (i = 0; i < t->p; i++) {
		if (shard_len(&s, i) != t->m || shard_off(&s, i) != i * t->m)
			return false;
		if (r->args.collective == NPULINK_COLL_ALLTOALLV &&
		    (r->args.rcounts[i] * s.esize != t->m ||
		     r->args.rdispls[i] * s.esize != i * t->m))
			return false;
	}
	if (plan_buffers(&r->args, &size[0], &size[1]))
		return false;
	for (i = 0; i < 2; i++)
		t->large[i] = size[i] == t->p * t->m;
	return true;
}

/* Is [b, b + len) of the slot what [a, a + len) is for the rank @by before? */
static bool turned(const struct turn *t, uint32_t slot, uint64_t a, uint64_t b, uint64_t len,
		   uint32_t by)
{
	if (!len || slot >= 2 || !t->large[slot])
		return a == b;
	return a % t->m + len <= t->m && a % t->m == b % t->m &&
	       turned_by(t, a / t->m, by) == b / t->m;
}

static bool peer_turned(const struct turn *t, uint32_t a, uint32_t b, uint32_t by)
{
	return a == NPULINK_NO_PEER ? b == a : turned_by(t, a, by) == b;
}

static bool step_turned(const struct turn *t, const struct npulink_step *a,
			const struct npulink_step *b, uint32_t by)
{
	bool src = a->op & (NPULINK_STEP_COPY | NPULINK_STEP_REDUCE) || a->op == NPULINK_STEP_SEND;
	bool src2 = (a->op & NPULINK_STEP_REDUCE) && !(a->op & NPULINK_STEP_RECV);
	bool dst = a->op && a->op != NPULINK_STEP_SEND;
	struct npulink_step same = *b;

	if (a->src_slot != b->src_slot || a->src2_slot != b->src2_slot ||
	    a->dst_slot != b->dst_slot || a->len != b->len)
		return false;
	/* What is not an operand is zero, or a window, and stays that. */
	if (!turned(t, src ? a->src_slot : NONE, a->src_off, b->src_off, a->len, by) ||
	    !turned(t, src2 ? a->src2_slot : NONE, a->src2_off, b->src2_off, a->len, by) ||
	    !turned(t, dst ? a->dst_slot : NONE, a->dst_off, b->dst_off, a->len, by) ||
	    !peer_turned(t, a->send_peer, b->send_peer, by) ||
	    !peer_turned(t, a->recv_peer, b->recv_peer, by))
		return false;
	same.src_off = a->src_off;
	same.src2_off = a->src2_off;
	same.dst_off = a->dst_off;
	same.send_peer = a->send_peer;
	same.recv_peer = a->recv_peer;
	return !memcmp(a, &same, sizeof(same));
}

/* Is the plan of @rank that of rank 0, turned? */
static int compare(struct verify_run *run, uint32_t rank, const struct turn *t)
{
	struct verify_rank r = { 0 };
	const struct coll_plan *zero = &run->ranks[0].plan;
	struct coll_args args;
	struct turn own;
	uint32_t i;
	int rc;

	memset(&args, 0, sizeof(args));
	rc = run->set->get(run->set->ctx, rank, &args, &r.plan);
	if (rc)
		return rc;
	if (coll_args_check(&args)) {
		coll_plan_free(&r.plan);
		return -EOPNOTSUPP;
	}
	rc = plan_args_fill(&args, &r.args, &r.mem);
	if (!rc)
		rc = -EOPNOTSUPP;
	if (rc != -EOPNOTSUPP || args.rank != rank || args.nranks != t->p ||
	    !turn_of(&r, t->flip, &own) || memcmp(&own, t, sizeof(own)) ||
	    args.in_place != run->ranks[0].args.in_place ||
	    r.plan.rank != rank || r.plan.nranks != t->p || r.plan.nsteps != zero->nsteps ||
	    memcmp(&r.plan.call, &zero->call, sizeof(zero->call)) ||
	    r.plan.nslots != zero->nslots ||
	    memcmp(r.plan.slots, zero->slots, sizeof(zero->slots)))
		goto out;
	for (i = 0; i < zero->nsteps; i++)
		if (!step_turned(t, &zero->steps[i], &r.plan.steps[i], rank))
			goto out;
	rc = 0;
out:
	coll_plan_free(&r.plan);
	free(r.mem);
	return rc;
}

/*
 * The rank that rank 0 receives from, q, sends to it at the step at which rank 0
 * sends to p - q, or, with XOR, to q.
 */
static int match(struct verify_run *run)
{
	const struct verify_rank *r = &run->ranks[0];
	uint32_t p = run->nranks, i, *place = calloc(p * NPULINK_MAX_CHANNELS, sizeof(*place));
	uint64_t sends = 0, recvs = 0, bytes = 0;
	int rc = 0;

	if (!place)
		return -ENOMEM;
	for (i = 0; i < r->plan.nsteps && !rc; i++) {
		const struct npulink_step *s = &r->plan.steps[i], *o;
		uint32_t *at, from;

		if (s->op & NPULINK_STEP_SEND) {
			sends++;
			bytes += s->len;
		}
		if (!(s->op & NPULINK_STEP_RECV))
			continue;
		recvs++;
		from = run->flips ? s->recv_peer : p - s->recv_peer;
		at = &place[(size_t)s->recv_peer * NPULINK_MAX_CHANNELS + s->channel];
		for (; *at < r->plan.nsteps; ++*at) {
			o = &r->plan.steps[*at];
			if ((o->op & NPULINK_STEP_SEND) && o->send_peer == from &&
			    o->channel == s->channel)
				break;
		}
		if (*at == r->plan.nsteps)
			rc = verify_fail(run, 0, i, NONE, 0, 0,
					 "receives from rank %u, which sends fewer messages",
					 s->recv_peer);
		else if (r->plan.steps[*at].len != s->len)
			rc = verify_fail(run, 0, i, NONE, 0, 0,
					 "receives another number of bytes than rank %u sends",
					 s->recv_peer);
		if (rc)
			break;
		run->from[i] = *at;
		run->to[*at] = i;
		++*at;
	}
	if (!rc && sends != recvs)
		rc = verify_fail(run, 0, NONE, NONE, 0, 0, "sends more messages than are received");
	run->report->messages = sends * p;
	run->report->bytes = bytes * p;
	free(place);
	return rc;
}

int verify_turn(struct verify_run *run, uint32_t by)
{
	const struct coll_args *args = &run->ranks[0].args;
	bool whole = args->collective == NPULINK_COLL_ALLREDUCE;
	uint64_t n = args->count * npulink_dtype_size(args->dtype), m = n / run->nranks;
	uint64_t unit = verify_shard(args);
	struct image *img = &run->value, *out = &run->sum, t;
	uint32_t i;
	int rc = 0;

	for (i = 0; i < img->n && !rc; i++) {
		struct piece p = img->p[i];
		struct value v = *piece_value(img, &p);
		uint64_t len = p.len, first;

		v.lo = verify_turned(run, v.lo, by);
		v.hi = verify_turned(run, v.hi, by);
		if (v.flags & VALUE_FOREIGN) {
			rc = image_append(out, len, p.base, v, p.step);
			continue;
		}
		if (!whole) {
			uint64_t shard = verify_turned(run, p.base / unit, by);

			p.base = shard * unit + p.base % unit;
			rc = image_append(out, len, p.base, v, p.step);
			continue;
		}
		p.base = (p.base + by * m) % n;
		first = min_u64(len, n - p.base);
		rc = image_append(out, first, p.base, v, p.step);
		if (!rc)
			rc = image_append(out, len - first, 0, v, p.step);
	}
	image_clear(img);
	t = *img;
	*img = *out;
	*out = t;
	return rc;
}

static int verify_turning(const struct coll_set *set, bool flips,
			  struct coll_verify_report *report)
{
	struct verify_run run = {
		.set = set, .report = report, .nranks = set->nranks, .turns = true,
		.flips = flips,
	};
	struct value all = { .count = set->nranks };
	struct turn t;
	uint32_t r;
	int rc;

	memset(report, 0, sizeof(*report));
	report->in_order = true;
	if (set->nranks < 2 || set->nranks > NPULINK_MAX_RANKS)
		return -EOPNOTSUPP;
	rc = verify_init(&run);
	if (!rc)
		rc = verify_load(&run, 0);
	if (!rc)
		run.nsteps = run.ranks[0].plan.nsteps;
	if (!rc && !turn_of(&run.ranks[0], flips, &t))
		rc = -EOPNOTSUPP;
	for (r = 1; r < set->nranks && !rc; r++)
		rc = compare(&run, r, &t);
	if (!rc)
		rc = verify_alloc_steps(&run);
	if (!rc)
		rc = match(&run);
	if (!rc)
		rc = verify_put_inputs(&run, 0);
	if (!rc)
		rc = verify_execute(&run);
	if (!rc)
		rc = verify_check_outputs(&run, 0, &all);
	if (rc == -EINVAL && run.unsure)
		rc = -EOPNOTSUPP;
	report->steps = (uint64_t)run.nsteps * set->nranks;
	verify_free(&run);
	return rc;
}

int coll_verify_rotation(const struct coll_set *set, struct coll_verify_report *report)
{
	int rc = verify_turning(set, false, report);

	return rc == -EOPNOTSUPP ? verify_turning(set, true, report) : rc;
}
