// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * run.c - execute the plans of all ranks on symbolic buffers.
 *
 * A unit (a step, or a chain) runs when its dependencies have ended and all
 * messages it receives are on offer. What a step may do never depends on timing,
 * so if one order of execution gets to the end, all do, and, races having been
 * excluded before, all leave the same bytes. One order is therefore enough.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "verify/run.h"

#define NONE	(~0U)

static const struct npulink_step *step_at(const struct verify_run *run, uint32_t i,
					  struct verify_rank **rank)
{
	struct verify_rank *r = &run->ranks[run->owner[i]];

	if (rank)
		*rank = r;
	return &r->plan.steps[i - r->base];
}

/* ---- which send meets which receive */

struct end {
	uint64_t key;	/* sender, channel */
	uint32_t step;
};

static int end_cmp(const void *a, const void *b)
{
	const struct end *x = a, *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return x->step < y->step ? -1 : x->step > y->step;
}

#define END_KEY(rank, channel)	((uint64_t)(rank) << 16 | (channel))
#define END_RANK(key)		((uint32_t)((key) >> 16))
#define END_CHANNEL(key)	((uint32_t)(key) & 0xffff)

/* All sends to @to are in sends[0 .. n), all receives of @to in recvs[0 .. m). */
static int match_rank(struct verify_run *run, uint32_t to, struct end *sends, uint32_t n,
		      struct end *recvs, uint32_t m)
{
	uint32_t i;

	qsort(sends, n, sizeof(*sends), end_cmp);
	qsort(recvs, m, sizeof(*recvs), end_cmp);
	for (i = 0; i < n || i < m; i++) {
		const struct npulink_step *s, *r;

		if (i == m || (i < n && sends[i].key < recvs[i].key)) {
			uint32_t from = END_RANK(sends[i].key);

			return verify_fail(run, from, sends[i].step - run->ranks[from].base,
					   NONE, 0, 0,
					   "sends to rank %u on channel %u, which receives fewer messages",
					   to, END_CHANNEL(sends[i].key));
		}
		if (i == n || recvs[i].key < sends[i].key)
			return verify_fail(run, to, recvs[i].step - run->ranks[to].base, NONE, 0, 0,
					   "receives from rank %u on channel %u, which sends fewer messages",
					   END_RANK(recvs[i].key), END_CHANNEL(recvs[i].key));
		s = step_at(run, sends[i].step, NULL);
		r = step_at(run, recvs[i].step, NULL);
		if (s->len != r->len)
			return verify_fail(run, to, recvs[i].step - run->ranks[to].base, NONE, 0, 0,
					   "receives %llu bytes from rank %u, which sends %llu in its step %u",
					   r->len, END_RANK(sends[i].key), s->len, sends[i].step -
					   run->ranks[END_RANK(sends[i].key)].base);
		run->to[sends[i].step] = recvs[i].step;
		run->from[recvs[i].step] = sends[i].step;
		run->report->messages++;
		run->report->bytes += s->len;
	}
	return 0;
}

int verify_match(struct verify_run *run)
{
	uint32_t *start = calloc(run->nranks + 2, sizeof(*start));
	struct end *sends = NULL, *recvs = NULL;
	uint32_t r, i, total = 0, most = 0;
	int rc = -ENOMEM;

	if (!start)
		return rc;
	for (r = 0; r < run->nranks; r++) {
		const struct coll_plan *plan = &run->ranks[r].plan;

		for (i = 0; i < plan->nsteps; i++) {
			if (!(plan->steps[i].op & NPULINK_STEP_SEND))
				continue;
			start[plan->steps[i].send_peer + 2]++;
			total++;
		}
		if (plan->nsteps > most)
			most = plan->nsteps;
	}
	for (r = 2; r < run->nranks + 2; r++)
		start[r] += start[r - 1];
	sends = malloc((total + 1) * sizeof(*sends));
	recvs = malloc((most + 1) * sizeof(*recvs));
	if (!sends || !recvs)
		goto out;
	for (r = 0; r < run->nranks; r++) {
		const struct coll_plan *plan = &run->ranks[r].plan;

		for (i = 0; i < plan->nsteps; i++) {
			const struct npulink_step *s = &plan->steps[i];

			if (s->op & NPULINK_STEP_SEND)
				sends[start[s->send_peer + 1]++] = (struct end){
					END_KEY(r, s->channel), run->ranks[r].base + i,
				};
		}
	}
	for (r = 0, rc = 0; r < run->nranks && !rc; r++) {
		const struct coll_plan *plan = &run->ranks[r].plan;
		uint32_t m = 0;

		for (i = 0; i < plan->nsteps; i++) {
			const struct npulink_step *s = &plan->steps[i];

			if (s->op & NPULINK_STEP_RECV)
				recvs[m++] = (struct end){
					END_KEY(s->recv_peer, s->channel), run->ranks[r].base + i,
				};
		}
		rc = match_rank(run, r, sends + start[r], start[r + 1] - start[r], recvs, m);
	}
out:
	free(start);
	free(sends);
	free(recvs);
	return rc;
}

/* ---- data */

static bool windowed(const struct npulink_step *s)
{
	return (s->flags & NPULINK_STEP_F_TRANSIENT) && s->src2_off && s->src2_off < s->len;
}

int verify_read(struct verify_run *run, struct verify_rank *r, uint32_t step, uint32_t slot,
		uint64_t off, uint64_t len, struct image *out)
{
	uint64_t bad = 0;
	int rc = image_read(&r->slots[slot], off, len, out, &bad);

	if (rc == -ENODATA)
		return verify_fail(run, r->plan.rank, step, slot, bad, off + len - bad,
				   "reads bytes that were never written");
	return rc;
}

int verify_write(struct verify_run *run, struct verify_rank *r, uint32_t step, uint32_t slot,
		 uint64_t off, uint64_t len, struct image *in)
{
	uint32_t k;

	if (slot == NPULINK_SLOT_SEND && len)
		return verify_fail(run, r->plan.rank, step, slot, off, len,
				   "writes to the send buffer");
	for (k = 0; in && k < in->n; k++)
		in->p[k].step = step;
	return image_write(&r->slots[slot], off, len, in);
}

int verify_add(struct verify_run *run, struct verify_rank *r, uint32_t step, uint32_t slot,
	       uint64_t off, uint64_t len, uint32_t flags)
{
	struct image t;
	int rc = verify_read(run, r, step, slot, off, len, &run->src);

	if (!rc && flags & NPULINK_STEP_F_SCALE)
		rc = image_scale(&run->src, false);
	if (!rc && flags & NPULINK_STEP_F_SCALE2)
		rc = image_scale(&run->value, false);
	if (!rc)
		rc = image_sum(&run->src, &run->value, flags, &run->sum);
	image_clear(&run->src);
	image_clear(&run->value);
	t = run->value;
	run->value = run->sum;
	run->sum = t;
	return rc;
}

static int read_slot(struct verify_run *run, uint32_t i, uint32_t slot, uint64_t off,
		     uint64_t len, struct image *out)
{
	struct verify_rank *r;

	step_at(run, i, &r);
	return verify_read(run, r, i - r->base, slot, off, len, out);
}

static int write_slot(struct verify_run *run, uint32_t i, uint32_t slot, uint64_t off,
		      struct image *in, uint64_t len)
{
	struct verify_rank *r;

	step_at(run, i, &r);
	return verify_write(run, r, i - r->base, slot, off, len, in);
}

/*
 * What a step that receives or works locally makes of its operands: run->value goes in
 * as what arrived (if anything) and comes out as the result.
 */
static int compute(struct verify_run *run, uint32_t i)
{
	struct verify_rank *r;
	const struct npulink_step *s = step_at(run, i, &r);
	int rc = 0;

	if (s->op & NPULINK_STEP_COPY) {
		rc = read_slot(run, i, s->src_slot, s->src_off, s->len, &run->value);
		if (!rc && s->flags & NPULINK_STEP_F_SCALE)
			rc = image_scale(&run->value, true);
		return rc;
	}
	if (!(s->op & NPULINK_STEP_REDUCE))
		return 0;
	if (!(s->op & NPULINK_STEP_RECV))
		rc = read_slot(run, i, s->src2_slot, s->src2_off, s->len, &run->value);
	return rc ? rc : verify_add(run, r, i - r->base, s->src_slot, s->src_off, s->len,
				    s->flags);
}

/* ---- progress */

static void ready(struct verify_run *run, uint32_t unit)
{
	if (!--run->need[unit])
		run->stack[run->top++] = unit;
}

static void know(struct verify_run *run, uint32_t unit, uint32_t from)
{
	uint64_t *a = run->knows + (size_t)unit * run->knows_words;
	const uint64_t *b = run->knows + (size_t)from * run->knows_words;
	uint32_t w;

	for (w = 0; w < run->knows_words; w++)
		a[w] |= b[w];
}

/* A step that waits for all before it is the only one that can hold up front. */
static void advance(struct verify_run *run, struct verify_rank *r)
{
	while (r->front < r->plan.nsteps && run->done[run->unit[r->base + r->front]]) {
		r->front++;
		if (r->front < r->plan.nsteps &&
		    (r->plan.steps[r->front].flags & NPULINK_STEP_F_DRAIN)) {
			if (run->knows_words) {
				uint32_t i;

				for (i = 0; i < r->front; i++)
					know(run, r->base + r->front, run->unit[r->base + i]);
			}
			ready(run, r->base + r->front);
		}
	}
}

static void unit_ended(struct verify_run *run, uint32_t unit)
{
	struct verify_rank *r;
	uint32_t i;

	step_at(run, unit, &r);
	run->done[unit] = 1;
	for (i = run->first[unit]; i < run->first[unit + 1]; i++) {
		if (run->knows_words)
			know(run, run->late[i], unit);
		ready(run, run->late[i]);
	}
	advance(run, r);
}

/* The peer has taken all that step @i offers. */
static int step_taken(struct verify_run *run, uint32_t i)
{
	struct verify_rank *r;
	const struct npulink_step *s = step_at(run, i, &r);
	int rc = 0;

	if ((s->flags & NPULINK_STEP_F_TRANSIENT) && s->len)
		rc = image_erase(&r->slots[s->dst_slot], s->dst_off,
				 windowed(s) ? s->src2_off : s->len);
	unit_ended(run, run->unit[i]);
	return rc;
}

/*
 * Take the message that receive step @i waits for. Windowed steps hold nothing
 * back, so the bytes come from the first step before them that is not.
 */
static int take(struct verify_run *run, uint32_t i)
{
	uint32_t from = run->from[i];
	const struct npulink_step *s = step_at(run, from, NULL);
	int rc;

	while (windowed(s)) {
		from = run->from[from];
		s = step_at(run, from, NULL);
	}
	if (s->op == NPULINK_STEP_SEND)
		rc = read_slot(run, from, s->src_slot, s->src_off, s->len, &run->value);
	else
		rc = read_slot(run, from, s->dst_slot, s->dst_off, s->len, &run->value);
	if (!rc)
		rc = step_taken(run, from);
	while (!rc && run->to[from] != i) {
		from = run->to[from];
		if (run->turns)
			rc = verify_turn(run, step_at(run, from, NULL)->recv_peer);
		if (!rc)
			rc = compute(run, from);
		if (!rc)
			rc = step_taken(run, from);
	}
	if (!rc && run->turns)
		rc = verify_turn(run, step_at(run, i, NULL)->recv_peer);
	return rc;
}

/* Everything that a unit waits for is there. */
static int unit_run(struct verify_run *run, uint32_t unit)
{
	struct verify_rank *r;
	const struct npulink_step *s = step_at(run, unit, &r);
	uint32_t i = unit, last;
	int rc = 0;

	if (windowed(s)) {
		if (s->dst_slot == NPULINK_SLOT_SEND)
			return write_slot(run, unit, s->dst_slot, s->dst_off, NULL, s->len);
		ready(run, run->unit[run->to[unit]]);
		return 0;
	}
	do {
		last = i;
		if ((s->op & NPULINK_STEP_RECV) && run->knows_words)
			know(run, unit, run->unit[run->from[i]]);
		if (s->op & NPULINK_STEP_RECV)
			rc = take(run, i);
		if (!rc && s->op != NPULINK_STEP_SEND) {
			rc = compute(run, i);
			if (!rc && s->op && s->len)
				rc = write_slot(run, i, s->dst_slot, s->dst_off, &run->value,
						s->len);
		}
		image_clear(&run->value);
		i++;
		s++;
	} while (!rc && i - r->base < r->plan.nsteps && (s->flags & NPULINK_STEP_F_CHAIN));
	if (rc)
		return rc;

	if (run->to[last] != NONE)
		ready(run, run->unit[run->to[last]]);
	else
		unit_ended(run, unit);
	return 0;
}

/* ---- setting out */

static int count_needs(struct verify_run *run)
{
	uint32_t r, i, k;

	for (r = 0; r < run->nranks; r++) {
		const struct verify_rank *rank = &run->ranks[r];

		for (i = 0; i < rank->plan.nsteps; i++) {
			const struct npulink_step *s = &rank->plan.steps[i];
			uint32_t me = rank->base + i, unit = run->unit[me];

			for (k = 0; k < NPULINK_STEP_DEPS; k++) {
				if (!s->dep[k])
					continue;
				run->need[unit]++;
				run->first[run->unit[me - s->dep[k]] + 1]++;
			}
			if (s->op & NPULINK_STEP_RECV)
				run->need[unit]++;
			if ((s->flags & NPULINK_STEP_F_DRAIN) && i)
				run->need[unit]++;
		}
	}
	for (i = 0; i < run->nsteps; i++)
		run->first[i + 1] += run->first[i];
	run->late = malloc((run->first[run->nsteps] + 1) * sizeof(*run->late));
	if (!run->late)
		return -ENOMEM;

	/* Filling moves first[] up by one entry; moved back below. */
	for (r = 0; r < run->nranks; r++) {
		const struct verify_rank *rank = &run->ranks[r];

		for (i = 0; i < rank->plan.nsteps; i++) {
			const struct npulink_step *s = &rank->plan.steps[i];
			uint32_t me = rank->base + i;

			for (k = 0; k < NPULINK_STEP_DEPS; k++)
				if (s->dep[k])
					run->late[run->first[run->unit[me - s->dep[k]]]++] =
						run->unit[me];
		}
	}
	for (i = run->nsteps; i; i--)
		run->first[i] = run->first[i - 1];
	run->first[0] = 0;
	return 0;
}

static int stuck(struct verify_run *run, uint32_t i)
{
	struct verify_rank *r, *peer;
	const struct npulink_step *s = step_at(run, i, &r);
	bool recv = s->op & NPULINK_STEP_RECV;
	uint32_t other = recv ? run->from[i] : run->to[i];

	if (other == NONE)
		return verify_fail(run, r->plan.rank, i - r->base, NONE, 0, 0,
				   "deadlock: never starts");
	step_at(run, other, &peer);
	return verify_fail(run, r->plan.rank, i - r->base, NONE, 0, 0,
			   "deadlock: waits for rank %u to %s in its step %u",
			   peer->plan.rank, recv ? "send" : "receive", other - peer->base);
}

/* Is step @i held up by earlier steps of its own rank? */
static bool blocked(const struct verify_run *run, uint32_t i)
{
	struct verify_rank *r;
	const struct npulink_step *s = step_at(run, i, &r);
	uint32_t k;

	for (k = 0; k < NPULINK_STEP_DEPS; k++)
		if (s->dep[k] && !run->done[run->unit[i - s->dep[k]]])
			return true;
	return (s->flags & NPULINK_STEP_F_DRAIN) && r->front < i - r->base;
}

/* Nothing moves any more.  If something has not ended, name a step that could. */
static int explain_deadlock(struct verify_run *run)
{
	uint32_t i, waits = NONE;

	for (i = 0; i < run->nsteps; i++) {
		if (run->done[run->unit[i]])
			continue;
		if (waits == NONE || !blocked(run, i))
			waits = i;
		if (!blocked(run, i) && run->from[i] != NONE)
			break;
	}
	return waits == NONE ? 0 : stuck(run, waits);
}

/* Barrier: before a unit runs, it knows that its own rank has entered. */
static int know_own(struct verify_run *run)
{
	uint32_t i;

	if (run->ranks[0].args.collective != NPULINK_COLL_BARRIER)
		return 0;
	run->knows_words = (run->nranks + 63) / 64;
	run->knows = calloc((size_t)run->nsteps * run->knows_words + 1, sizeof(*run->knows));
	if (!run->knows)
		return -ENOMEM;
	for (i = 0; i < run->nsteps; i++) {
		uint32_t r = run->owner[i];

		run->knows[(size_t)i * run->knows_words + r / 64] |= 1ULL << r % 64;
	}
	return 0;
}

int verify_execute(struct verify_run *run)
{
	uint32_t i;
	int rc;

	rc = count_needs(run);
	if (!rc)
		rc = know_own(run);
	for (i = run->nsteps; i-- > 0 && !rc;)
		if (run->unit[i] == i && !run->need[i])
			run->stack[run->top++] = i;
	while (!rc && run->top)
		rc = unit_run(run, run->stack[--run->top]);
	return rc ? rc : explain_deadlock(run);
}
