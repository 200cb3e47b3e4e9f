// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * flow.c - the proof for very many steps: plans are dropped as soon as they
 * have been checked, and what is left of them takes next to no memory.
 *
 * run.c may execute steps in any order that they allow, and any one will do.
 * This file takes one in which each rank sends in the order of its list, receives
 * and reduces in that order, and copies in that order. Then all that a step waits
 * for comes down to three numbers (so many sends, receives and copies before it
 * have ended), nothing has to be kept for each step while it runs, and lists are read
 * from one end to the other. So they can be kept as series of steps in which every
 * number grows evenly (peers by one, offsets by a shard, ..), of which only what is new
 * in each is written down.
 *
 * If that order leads to the end, the set is proved as by run.c. If it gets
 * stuck, nothing is known, and run.c has to look at it.
 *
 * A chain takes its messages one after another here, though the device gets all at
 * a time. So that no rank is led out of a wait that it would not get out of, a chain
 * begins only when all of them are on offer: from then on the device could have run it
 * as a whole, and what ran earlier because of that may run now.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "verify/run.h"

#define NONE	(~0U)

/* The order is kept within each of these. Reductions of local ranges count as receives. */
enum { SENDS, RECVS, COPIES, CLASSES };

/* So many entries of each class have ended. */
struct mark {
	uint32_t of[CLASSES];
};

/* What is the same throughout a series. */
struct kind {
	uint8_t op, flags;
	uint8_t src_slot, src2_slot, dst_slot;
	bool head;		/* of a chain */
	uint16_t channel;
};

/* One end of a message, or something local. A send offers what is at src. */
enum { LEN, SRC, SRC2, DST, STEP, PEER, NEEDS, FIELDS = NEEDS + CLASSES };

struct entry {
	uint64_t of[FIELDS];
};

/* Where one is in a stream: at @now, and there are @left more that each add @by. */
struct cursor {
	struct entry now, by;
	struct kind kind;
	uint32_t left, done;
	uint32_t at;		/* of the bytes of the next series */
};

/*
 * A series is its length, a mask of what is new, and that: the kind, and by how much
 * the numbers grow, as the difference to how much they grew in the one before.
 */
struct stream {
	uint8_t *bytes;
	uint32_t nbytes, cap;
	uint32_t n;		/* entries */
	struct cursor c;
};

#define NEW_KIND	(1U << FIELDS)

struct flow_rank {
	struct stream streams[CLASSES];
	bool queued;
};

struct flow {
	struct verify_run run;
	struct flow_rank *ranks;
	struct mark *marks;	/* of each step of the plan at hand */
	uint32_t nmarks;
	uint32_t *queue, head, count;
	bool moved;
	int rc;
};

/* ---- series */

static int put_byte(struct stream *st, uint8_t byte)
{
	if (st->nbytes == st->cap) {
		uint32_t cap = st->cap ? 2 * st->cap : 64;
		uint8_t *more = realloc(st->bytes, cap);

		if (!more)
			return -ENOMEM;
		st->bytes = more;
		st->cap = cap;
	}
	st->bytes[st->nbytes++] = byte;
	return 0;
}

static int put_number(struct stream *st, uint64_t n)
{
	int rc = 0;

	for (; n >= 0x80 && !rc; n >>= 7)
		rc = put_byte(st, n | 0x80);
	return rc ? rc : put_byte(st, n);
}

static uint64_t get_number(const struct stream *st, uint32_t *at)
{
	uint64_t n = 0;
	uint32_t shift = 0;
	uint8_t byte;

	do {
		byte = st->bytes[(*at)++];
		n |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80);
	return n;
}

/* Small numbers of either sign as small numbers. */
static uint64_t fold(uint64_t n)
{
	return n << 1 ^ -(n >> 63);
}

static uint64_t unfold(uint64_t n)
{
	return n >> 1 ^ -(n & 1);
}

static void entry_add(struct entry *e, const struct entry *by, uint64_t times)
{
	uint32_t i;

	for (i = 0; i < FIELDS; i++)
		e->of[i] += times * by->of[i];
}

/* Write down the series at hand, which is @grew away from the one before. */
static int stream_flush(struct stream *st, const struct entry *grew, uint32_t mask)
{
	const uint8_t *kind = (const uint8_t *)&st->c.kind;
	uint32_t i;
	int rc;

	rc = put_number(st, st->c.left);
	if (!rc)
		rc = put_number(st, mask);
	for (i = 0; mask & NEW_KIND && i < sizeof(st->c.kind) && !rc; i++)
		rc = put_byte(st, kind[i]);
	for (i = 0; i < FIELDS && !rc; i++)
		if (mask >> i & 1)
			rc = put_number(st, fold(grew->of[i]));
	return rc;
}

/*
 * While a stream is made, its cursor is at the last entry, and @left is the length of the
 * series at hand; this is what is new in that.
 */
struct maker {
	struct entry grew;
	uint32_t mask;
};

static int stream_append(struct stream *st, struct maker *m, const struct kind *kind,
			 const struct entry *e)
{
	bool same = st->n && !memcmp(&st->c.kind, kind, sizeof(*kind));
	uint32_t i, mask = same ? 0 : NEW_KIND;
	struct entry grew;
	int rc = 0;

	for (i = 0; i < FIELDS; i++) {
		grew.of[i] = e->of[i] - st->c.now.of[i] - st->c.by.of[i];
		mask |= (uint32_t)!!grew.of[i] << i;
	}
	if (mask || !st->n) {
		if (st->n)
			rc = stream_flush(st, &m->grew, m->mask);
		m->grew = grew;
		m->mask = mask;
		st->c.kind = *kind;
		st->c.left = 0;
		entry_add(&st->c.by, &grew, 1);
	}
	st->c.now = *e;
	st->c.left++;
	st->n++;
	return rc;
}

/* The next entry; there is one. */
static void cursor_next(const struct stream *st, struct cursor *c)
{
	uint32_t mask, i;

	if (!c->left) {
		c->left = get_number(st, &c->at);
		mask = get_number(st, &c->at);
		if (mask & NEW_KIND) {
			memcpy(&c->kind, st->bytes + c->at, sizeof(c->kind));
			c->at += sizeof(c->kind);
		}
		for (i = 0; mask & (NEW_KIND - 1) && i < FIELDS; i++)
			if (mask >> i & 1)
				c->by.of[i] += unfold(get_number(st, &c->at));
	}
	entry_add(&c->now, &c->by, 1);
	c->left--;
}

static int stream_begin(struct stream *st, const struct maker *m)
{
	uint8_t *bytes;
	int rc;

	if (!st->n)
		return 0;
	rc = stream_flush(st, &m->grew, m->mask);
	if (rc)
		return rc;
	/* Half of what has been allocated may be left over. */
	bytes = realloc(st->bytes, st->nbytes);
	if (bytes)
		st->bytes = bytes;
	memset(&st->c, 0, sizeof(st->c));
	cursor_next(st, &st->c);
	return 0;
}

static bool stream_over(const struct stream *st)
{
	return st->c.done == st->n;
}

static void stream_next(struct stream *st)
{
	if (++st->c.done < st->n)
		cursor_next(st, &st->c);
}

/* ---- from a plan to streams */

static bool windowed(const struct npulink_step *s)
{
	return (s->flags & NPULINK_STEP_F_TRANSIENT) && s->src2_off && s->src2_off < s->len;
}

static void mark_max(struct mark *a, const struct mark *b)
{
	uint32_t k;

	for (k = 0; k < CLASSES; k++)
		a->of[k] = a->of[k] > b->of[k] ? a->of[k] : b->of[k];
}

/* What step @i waits for; the first of a chain waits for all its members. */
static struct mark waits_for(const struct flow *f, const struct coll_plan *plan, uint32_t i,
			     const struct mark *now)
{
	const struct npulink_step *s = &plan->steps[i];
	struct mark m = { };
	uint32_t j = i, d;

	if (s->flags & NPULINK_STEP_F_CHAIN)
		return m;
	do {
		if (s->flags & NPULINK_STEP_F_DRAIN)
			mark_max(&m, now);
		for (d = 0; d < NPULINK_STEP_DEPS; d++)
			if (s->dep[d] && j - s->dep[d] < i)
				mark_max(&m, &f->marks[j - s->dep[d]]);
		s++;
		j++;
	} while (j < plan->nsteps && s->flags & NPULINK_STEP_F_CHAIN);
	return m;
}

static int add_entry(struct flow_rank *fr, struct maker *makers, uint32_t class,
		     const struct npulink_step *s, uint32_t step, struct mark *m,
		     struct mark *now, bool head)
{
	bool offers_dst = class == SENDS && s->op != NPULINK_STEP_SEND;
	struct kind kind = {
		.op = s->op, .flags = s->flags & ~NPULINK_STEP_F_DRAIN,
		.src_slot = offers_dst ? s->dst_slot : s->src_slot, .src2_slot = s->src2_slot,
		.dst_slot = s->dst_slot, .head = head, .channel = s->channel,
	};
	struct entry e = { .of = {
		[LEN] = s->len, [SRC] = offers_dst ? s->dst_off : s->src_off,
		[SRC2] = s->src2_off, [DST] = s->dst_off, [STEP] = step,
		[PEER] = class == SENDS ? s->send_peer : s->recv_peer,
		[NEEDS + SENDS] = m->of[SENDS], [NEEDS + RECVS] = m->of[RECVS],
		[NEEDS + COPIES] = m->of[COPIES],
	} };

	m->of[class] = ++now->of[class];
	return stream_append(&fr->streams[class], &makers[class], &kind, &e);
}

static int lower(struct flow *f, struct flow_rank *fr, const struct coll_plan *plan)
{
	struct maker makers[CLASSES] = { };
	struct mark now = { };
	uint32_t i, j;
	int rc = 0;

	if (f->nmarks < plan->nsteps) {
		free(f->marks);
		f->nmarks = plan->nsteps;
		f->marks = malloc(f->nmarks * sizeof(*f->marks));
		if (!f->marks)
			return -ENOMEM;
	}
	for (i = 0; i < plan->nsteps && !rc; i++) {
		const struct npulink_step *s = &plan->steps[i];
		struct mark m = waits_for(f, plan, i, &now);
		bool goes_on = i + 1 < plan->nsteps && s[1].flags & NPULINK_STEP_F_CHAIN;
		bool head = goes_on && !(s->flags & NPULINK_STEP_F_CHAIN);

		if (windowed(s))
			return -EOPNOTSUPP;
		if (s->op & (NPULINK_STEP_RECV | NPULINK_STEP_REDUCE))
			rc = add_entry(fr, makers, RECVS, s, i, &m, &now, head);
		else if (s->op & NPULINK_STEP_COPY)
			rc = add_entry(fr, makers, COPIES, s, i, &m, &now, false);
		if (!rc && s->op & NPULINK_STEP_SEND)
			rc = add_entry(fr, makers, SENDS, s, i, &m, &now, false);
		f->marks[i] = m;
		/* Who waits for a member waits for the chain. */
		if (s->flags & NPULINK_STEP_F_CHAIN && !goes_on)
			for (j = i; plan->steps[j].flags & NPULINK_STEP_F_CHAIN; j--)
				f->marks[j - 1] = m;
	}
	for (i = 0; i < CLASSES && !rc; i++)
		rc = stream_begin(&fr->streams[i], &makers[i]);
	return rc;
}

/* Filled-in displacements are as long as there are ranks, and needed twice only. */
static void forget_displs(struct verify_rank *rank)
{
	uint64_t *mem = rank->mem;

	if (!mem)
		return;
	if (rank->args.displs == mem)
		rank->args.displs = NULL;
	if (rank->args.rdispls == mem + rank->args.nranks)
		rank->args.rdispls = NULL;
	free(mem);
	rank->mem = NULL;
}

static int load(struct flow *f)
{
	struct verify_run *run = &f->run;
	uint32_t r;
	int rc = 0;

	for (r = 0; r < run->nranks && !rc; r++) {
		struct verify_rank *rank = &run->ranks[r];

		rc = verify_load(run, r);
		if (rc)
			return rc;
		run->report->steps += rank->plan.nsteps;
		rc = lower(f, &f->ranks[r], &rank->plan);
		if (!rc)
			rc = verify_put_inputs(run, r);
		free(rank->plan.steps);
		rank->plan.steps = NULL;
		rank->plan.nsteps = 0;
		rank->plan.cap = 0;
		forget_displs(rank);
	}
	return rc;
}

/* ---- what they do */

static bool due(const struct flow_rank *fr, const struct entry *e)
{
	uint32_t k;

	for (k = 0; k < CLASSES; k++)
		if (e->of[NEEDS + k] > fr->streams[k].c.done)
			return false;
	return true;
}

static void visit_later(struct flow *f, uint32_t rank)
{
	uint32_t p = f->run.nranks;

	if (f->ranks[rank].queued)
		return;
	f->ranks[rank].queued = true;
	f->queue[f->head + f->count < p ? f->head + f->count : f->head + f->count - p] = rank;
	f->count++;
}

/* What has come, or a second operand, is in run->value: the step's result is to follow. */
static int finish(struct verify_run *run, uint32_t rank, const struct cursor *c)
{
	struct verify_rank *r = &run->ranks[rank];
	const uint64_t *e = c->now.of;
	int rc = 0;

	if (c->kind.op & NPULINK_STEP_REDUCE)
		rc = verify_add(run, r, e[STEP], c->kind.src_slot, e[SRC], e[LEN],
				c->kind.flags);
	else if (c->kind.flags & NPULINK_STEP_F_SCALE)
		rc = image_scale(&run->value, true);
	if (!rc && e[LEN])
		rc = verify_write(run, r, e[STEP], c->kind.dst_slot, e[DST], e[LEN],
				  &run->value);
	image_clear(&run->value);
	return rc;
}

static bool run_local(struct flow *f, uint32_t rank, struct stream *st, uint32_t slot,
		      uint32_t src)
{
	struct verify_run *run = &f->run;
	const uint64_t *e = st->c.now.of;

	f->rc = verify_read(run, &run->ranks[rank], e[STEP], slot, e[src], e[LEN], &run->value);
	if (!f->rc)
		f->rc = finish(run, rank, &st->c);
	stream_next(st);
	return !f->rc;
}

static bool run_copy(struct flow *f, uint32_t rank)
{
	struct stream *st = &f->ranks[rank].streams[COPIES];

	return !stream_over(st) && due(&f->ranks[rank], &st->c.now) &&
	       run_local(f, rank, st, st->c.kind.src_slot, SRC);
}

/* Is there a message to @to among the next @n, of which @e is the first? Which one? */
static bool sends_to(const struct entry *e, const struct entry *by, uint32_t n, uint32_t to,
		     uint32_t *which, uint32_t *howmany)
{
	int64_t far = to - e->of[PEER], step = by->of[PEER];

	*which = 0;
	*howmany = n;
	if (!step)
		return !far;
	if (far % step || far / step < 0 || far / step >= n)
		return false;
	*which = far / step;
	*howmany = 1;
	return true;
}

/*
 * Is a message from @from to @to on offer? After @skip others on that channel, which are
 * taken before.
 */
static bool on_offer(const struct flow *f, uint32_t from, uint32_t to, uint32_t channel,
		     uint32_t skip)
{
	const struct flow_rank *fr = &f->ranks[from];
	const struct stream *st = &fr->streams[SENDS];
	uint32_t seen = st->c.done, n, which, howmany;
	struct cursor c = st->c;

	while (seen < st->n) {
		/* From c.now on, as far as its series goes. */
		n = c.left + 1;
		if (c.kind.channel == channel &&
		    sends_to(&c.now, &c.by, n, to, &which, &howmany)) {
			if (skip < howmany) {
				entry_add(&c.now, &c.by, which + skip);
				return due(fr, &c.now);
			}
			skip -= howmany;
		}
		seen += n;
		if (seen == st->n)
			break;
		entry_add(&c.now, &c.by, c.left);
		c.left = 0;
		cursor_next(st, &c);
	}
	return false;
}

/* The chain that is next: are all its messages on offer? */
static bool chain_on_offer(const struct flow *f, uint32_t rank)
{
	const struct stream *st = &f->ranks[rank].streams[RECVS];
	uint32_t peers[NPULINK_CHAIN_MAX], channels[NPULINK_CHAIN_MAX];
	uint32_t seen = st->c.done, n = 0, k, before;
	struct cursor c = st->c;

	do {
		uint32_t peer = c.now.of[PEER];

		if (c.kind.op & NPULINK_STEP_RECV) {
			for (k = before = 0; k < n; k++)
				before += peers[k] == peer && channels[k] == c.kind.channel;
			if (!on_offer(f, peer, rank, c.kind.channel, before))
				return false;
			peers[n] = peer;
			channels[n++] = c.kind.channel;
		}
		if (++seen == st->n)
			break;
		cursor_next(st, &c);
	} while (c.kind.flags & NPULINK_STEP_F_CHAIN);
	return true;
}

/* May the next receive of a rank begin? */
static bool recv_due(const struct flow *f, uint32_t rank)
{
	const struct flow_rank *fr = &f->ranks[rank];
	const struct stream *st = &fr->streams[RECVS];

	return !stream_over(st) && due(fr, &st->c.now) &&
	       (!st->c.kind.head || chain_on_offer(f, rank));
}

/* A reduction of what is already here. */
static bool run_reduce(struct flow *f, uint32_t rank)
{
	struct stream *st = &f->ranks[rank].streams[RECVS];

	return !stream_over(st) && !(st->c.kind.op & NPULINK_STEP_RECV) && recv_due(f, rank) &&
	       run_local(f, rank, st, st->c.kind.src2_slot, SRC2);
}

static int move(struct flow *f, uint32_t from, const struct cursor *out, uint32_t to,
		const struct cursor *in)
{
	const uint64_t *e = out->now.of, *t = in->now.of;
	struct verify_run *run = &f->run;
	struct verify_rank *r = &run->ranks[from];
	uint32_t slot = out->kind.src_slot;
	int rc;

	if (e[LEN] != t[LEN])
		return verify_fail(run, to, t[STEP], NONE, 0, 0,
				   "receives %llu bytes from rank %u, which sends %llu in its step %u",
				   (unsigned long long)t[LEN], from, (unsigned long long)e[LEN],
				   (uint32_t)e[STEP]);
	run->report->messages++;
	run->report->bytes += e[LEN];
	rc = verify_read(run, r, e[STEP], slot, e[SRC], e[LEN], &run->value);
	if (!rc && out->kind.flags & NPULINK_STEP_F_TRANSIENT && e[LEN])
		rc = image_erase(&r->slots[slot], e[SRC], e[LEN]);
	return rc ? rc : finish(run, to, in);
}

/* The next send of @from, if its receiver is waiting for it. */
static bool run_send(struct flow *f, uint32_t from)
{
	struct stream *out = &f->ranks[from].streams[SENDS], *in;
	uint32_t to = out->c.now.of[PEER];

	if (stream_over(out) || !due(&f->ranks[from], &out->c.now))
		return false;
	in = &f->ranks[to].streams[RECVS];
	if (stream_over(in) || in->c.now.of[PEER] != from ||
	    !(in->c.kind.op & NPULINK_STEP_RECV) ||
	    in->c.kind.channel != out->c.kind.channel || !recv_due(f, to))
		return false;
	f->rc = move(f, from, &out->c, to, &in->c);
	stream_next(out);
	stream_next(in);
	visit_later(f, from);
	visit_later(f, to);
	return !f->rc;
}

static bool run_recv(struct flow *f, uint32_t rank)
{
	const struct stream *st = &f->ranks[rank].streams[RECVS];

	return !stream_over(st) && st->c.kind.op & NPULINK_STEP_RECV &&
	       run_send(f, st->c.now.of[PEER]);
}

static void visit(struct flow *f, uint32_t rank)
{
	while (!f->rc && (run_copy(f, rank) || run_reduce(f, rank) || run_send(f, rank) ||
			  run_recv(f, rank)))
		f->moved = true;
}

/* Does what can be done; a chain may begin long after its rank has been visited. */
static bool run_all(struct flow *f)
{
	uint32_t r, k, rank;

	do {
		f->moved = false;
		for (r = 0; r < f->run.nranks; r++)
			visit_later(f, r);
		while (f->count && !f->rc) {
			rank = f->queue[f->head];
			f->head = f->head + 1 < f->run.nranks ? f->head + 1 : 0;
			f->count--;
			f->ranks[rank].queued = false;
			visit(f, rank);
		}
	} while (f->moved && !f->rc);
	for (r = 0; r < f->run.nranks; r++)
		for (k = 0; k < CLASSES; k++)
			if (!stream_over(&f->ranks[r].streams[k]))
				return false;
	return true;
}

static int check(struct flow *f)
{
	struct verify_run *run = &f->run;
	struct value all = value_all(run->set->seed, run->nranks);
	uint32_t r;
	int rc = 0;

	for (r = 0; r < run->nranks && !rc; r++) {
		struct verify_rank *rank = &run->ranks[r];
		struct coll_args args = rank->args;

		rc = plan_args_fill(&args, &rank->args, &rank->mem);
		if (!rc)
			rc = verify_check_outputs(run, r, &all);
		forget_displs(rank);
	}
	return rc;
}

static void flow_free(struct flow *f)
{
	uint32_t r, k;

	for (r = 0; f->ranks && r < f->run.nranks; r++)
		for (k = 0; k < CLASSES; k++)
			free(f->ranks[r].streams[k].bytes);
	free(f->ranks);
	free(f->marks);
	free(f->queue);
	verify_free(&f->run);
}

int coll_verify_flow(const struct coll_set *set, struct coll_verify_report *report)
{
	struct flow f = { .run = { .set = set, .report = report, .nranks = set->nranks } };

	memset(report, 0, sizeof(*report));
	report->in_order = true;
	if (!set->nranks || set->nranks > NPULINK_MAX_RANKS)
		return -EOPNOTSUPP;
	f.rc = verify_init(&f.run);
	f.ranks = calloc(set->nranks, sizeof(*f.ranks));
	f.queue = malloc(set->nranks * sizeof(*f.queue));
	if (!f.ranks || !f.queue)
		f.rc = -ENOMEM;
	if (!f.rc)
		f.rc = load(&f);
	/* What a rank knows of others is not kept here. */
	if (!f.rc && f.run.ranks[0].args.collective == NPULINK_COLL_BARRIER)
		f.rc = -EOPNOTSUPP;
	if (!f.rc && !run_all(&f) && !f.rc)
		f.rc = -EOPNOTSUPP;
	if (!f.rc)
		f.rc = check(&f);
	flow_free(&f);
	return f.rc;
}
