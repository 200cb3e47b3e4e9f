// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * parse.c - read the text form of plans, see text.h for the grammar.
 *
 * The text may come from anybody: whatever is in it, the outcome is a plan or
 * one line that says what is wrong and where.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/base.h"
#include "plan/planner.h"
#include "plan/text.h"

struct word {
	const char *p;
	size_t len;
};

struct label {
	uint64_t number;
	uint32_t step;
};

struct parser {
	const char *p, *end;	/* of the text; p behind the current line */
	struct word rest;	/* of the current line */
	uint32_t line;
	struct coll_text *out;
	struct coll_text_error *error;
	struct label *labels;
	uint32_t nlabels, caplabels;
	bool have_ranks, have_rank, have_slots;
};

static int __printf(2, 3) fail(struct parser *ps, const char *fmt, ...)
{
	va_list ap;
	char *c;

	ps->error->line = ps->line;
	va_start(ap, fmt);
	vsnprintf(ps->error->text, sizeof(ps->error->text), fmt, ap);
	va_end(ap);
	for (c = ps->error->text; *c; c++)	/* one line, whatever was quoted */
		if (*c < ' ' || *c > '~')
			*c = '?';
	return -EINVAL;
}

/* Arguments for "%.*s". */
static int width(struct word w)
{
	return w.len < 40 ? w.len : 40;
}

/* ---- words */

static bool next_line(struct parser *ps)
{
	const char *eol, *hash;

	if (ps->p == ps->end)
		return false;
	eol = memchr(ps->p, '\n', ps->end - ps->p);
	ps->rest.p = ps->p;
	ps->rest.len = (eol ? eol : ps->end) - ps->p;
	ps->p = eol ? eol + 1 : ps->end;
	ps->line++;
	hash = memchr(ps->rest.p, '#', ps->rest.len);
	if (hash)
		ps->rest.len = hash - ps->rest.p;
	return true;
}

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

/* The next word of the line; false if there is none. */
static bool next_word(struct parser *ps, struct word *w)
{
	while (ps->rest.len && is_space(*ps->rest.p)) {
		ps->rest.p++;
		ps->rest.len--;
	}
	w->p = ps->rest.p;
	while (ps->rest.len && !is_space(*ps->rest.p)) {
		ps->rest.p++;
		ps->rest.len--;
	}
	w->len = ps->rest.p - w->p;
	return w->len;
}

static bool is(struct word w, const char *text)
{
	return w.len == strlen(text) && !memcmp(w.p, text, w.len);
}

/* Cut @w at the first @c: what is before it goes to @head. */
static bool split(struct word *w, char c, struct word *head)
{
	const char *at = memchr(w->p, c, w->len);

	if (!at)
		return false;
	head->p = w->p;
	head->len = at - w->p;
	w->len -= head->len + 1;
	w->p = at + 1;
	return true;
}

static bool number(struct word w, uint64_t *value)
{
	unsigned int base = 10, digit;
	uint64_t v = 0;
	size_t i = 0;

	if (w.len > 2 && w.p[0] == '0' && (w.p[1] == 'x' || w.p[1] == 'X')) {
		base = 16;
		i = 2;
	}
	if (i == w.len)
		return false;
	for (; i < w.len; i++) {
		char c = w.p[i];

		if (c >= '0' && c <= '9')
			digit = c - '0';
		else if (base == 16 && c >= 'a' && c <= 'f')
			digit = c - 'a' + 10;
		else if (base == 16 && c >= 'A' && c <= 'F')
			digit = c - 'A' + 10;
		else
			return false;
		if (__builtin_mul_overflow(v, base, &v) || __builtin_add_overflow(v, digit, &v))
			return false;
	}
	*value = v;
	return true;
}

static int get_number(struct parser *ps, struct word w, uint64_t max, uint64_t *value)
{
	if (!number(w, value))
		return fail(ps, "'%.*s' is not a number", width(w), w.p);
	if (*value > max)
		return fail(ps, "%llu is too large, at most %llu", (unsigned long long)*value,
			    (unsigned long long)max);
	return 0;
}

static int word_number(struct parser *ps, uint64_t max, uint64_t *value)
{
	struct word w;

	if (!next_word(ps, &w))
		return fail(ps, "a number is missing");
	return get_number(ps, w, max, value);
}

static int get_name(struct parser *ps, struct word w, int (*parse)(const char *),
		    const char *what, int *value)
{
	char text[32];

	*value = -1;
	if (w.len < sizeof(text)) {
		memcpy(text, w.p, w.len);
		text[w.len] = 0;
		if (strlen(text) == w.len)
			*value = parse(text);
	}
	if (*value < 0)
		return fail(ps, "'%.*s' is no %s", width(w), w.p, what);
	return 0;
}

static int get_slot(struct parser *ps, struct word w, uint32_t *slot)
{
	uint64_t value;

	if (is(w, "send"))
		value = NPULINK_SLOT_SEND;
	else if (is(w, "recv"))
		value = NPULINK_SLOT_RECV;
	else if (is(w, "scratch"))
		value = NPULINK_SLOT_SCRATCH;
	else if (!number(w, &value) || value >= NPULINK_MAX_SLOTS)
		return fail(ps, "'%.*s' is no slot: send, recv, scratch, or below %u",
			    width(w), w.p, NPULINK_MAX_SLOTS);
	*slot = value;
	return 0;
}

/* ---- steps */

static const struct {
	const char *name;
	uint8_t op;
} step_names[] = {
	{ "nop", 0 },
	{ "copy", NPULINK_STEP_COPY },
	{ "reduce", NPULINK_STEP_REDUCE },
	{ "send", NPULINK_STEP_SEND },
	{ "recv", NPULINK_STEP_RECV },
	{ "recvReduce", NPULINK_STEP_RECV | NPULINK_STEP_REDUCE },
	{ "recvCopySend", NPULINK_STEP_RECV | NPULINK_STEP_SEND },
	{ "recvSend", NPULINK_STEP_RECV | NPULINK_STEP_SEND },
	{ "recvReduceSend", NPULINK_STEP_RECV | NPULINK_STEP_REDUCE | NPULINK_STEP_SEND },
	{ "recvReduceCopySend", NPULINK_STEP_RECV | NPULINK_STEP_REDUCE | NPULINK_STEP_SEND },
	{ "copySend", NPULINK_STEP_COPY | NPULINK_STEP_SEND },
	{ "reduceSend", NPULINK_STEP_REDUCE | NPULINK_STEP_SEND },
};

static int find_step_name(struct word w)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(step_names); i++)
		if (is(w, step_names[i].name))
			return step_names[i].op;
	return -1;
}

static int parse_after(struct parser *ps, struct word w, struct npulink_step *s)
{
	const struct coll_plan *plan = &ps->out->plan;
	bool more = true;
	uint32_t n = 0;

	while (more) {
		uint32_t lo = 0, hi = ps->nlabels;
		struct word one = w;
		uint64_t value;
		int rc;

		more = split(&w, ',', &one);
		rc = get_number(ps, one, UINT64_MAX, &value);
		if (rc)
			return rc;
		while (lo < hi) {
			uint32_t mid = (lo + hi) / 2;

			if (ps->labels[mid].number < value)
				lo = mid + 1;
			else
				hi = mid;
		}
		if (lo == ps->nlabels || ps->labels[lo].number != value)
			return fail(ps, "after=%llu: there is no step of that number above",
				    (unsigned long long)value);
		if (n == NPULINK_STEP_DEPS)
			return fail(ps, "more than %u numbers in after=; let some meet in a nop",
				    NPULINK_STEP_DEPS);
		s->dep[n++] = plan->nsteps - ps->labels[lo].step;
	}
	return 0;
}

static int parse_operand(struct parser *ps, struct word w, uint32_t *slot, uint64_t *off)
{
	struct word name = w;
	int rc;

	*off = 0;
	if (split(&w, '+', &name)) {
		rc = get_number(ps, w, UINT64_MAX, off);
		if (rc)
			return rc;
	}
	return get_slot(ps, name, slot);
}

/* Which words a step has had. */
enum { FROM = 1, TO = 2, SRC = 4, SRC2 = 8, DST = 16, WINDOW = 32, CHANNEL = 64, TYPE = 128 };

static int parse_value(struct parser *ps, struct word key, struct word w, struct npulink_step *s,
		       uint32_t *had)
{
	uint64_t value = 0;
	uint32_t slot = 0;
	int rc, name = 0;

	if (is(key, "from") || is(key, "to")) {
		rc = get_number(ps, w, NPULINK_NO_PEER - 1, &value);
		*(is(key, "to") ? &s->send_peer : &s->recv_peer) = value;
		*had |= is(key, "to") ? TO : FROM;
	} else if (is(key, "channel")) {
		rc = get_number(ps, w, UINT16_MAX, &value);
		s->channel = value;
		*had |= CHANNEL;
	} else if (is(key, "src")) {
		rc = parse_operand(ps, w, &slot, &value);
		s->src_slot = slot;
		s->src_off = value;
		*had |= SRC;
	} else if (is(key, "src2")) {
		rc = parse_operand(ps, w, &slot, &value);
		s->src2_slot = slot;
		s->src2_off = value;
		*had |= SRC2;
	} else if (is(key, "dst")) {
		rc = parse_operand(ps, w, &slot, &value);
		s->dst_slot = slot;
		s->dst_off = value;
		*had |= DST;
	} else if (is(key, "len")) {
		rc = get_number(ps, w, UINT64_MAX, &value);
		s->len = value;
	} else if (is(key, "window")) {
		rc = get_number(ps, w, UINT64_MAX, &value);
		s->src2_off = value;
		s->flags |= NPULINK_STEP_F_TRANSIENT;
		*had |= WINDOW;
	} else if (is(key, "dtype")) {
		rc = get_name(ps, w, coll_dtype_parse, "data type", &name);
		s->dtype = name;
		*had |= TYPE;
	} else if (is(key, "redop")) {
		rc = get_name(ps, w, coll_redop_parse, "reduction", &name);
		s->redop = name;
		*had |= TYPE;
	} else if (is(key, "after")) {
		rc = parse_after(ps, w, s);
	} else {
		rc = fail(ps, "unknown word '%.*s='", width(key), key.p);
	}
	return rc;
}

/* Everything that the operation needs, and nothing else. */
static int check_words(struct parser *ps, const struct npulink_step *s, uint32_t had)
{
	static const char * const names[] = {
		"from=", "to=", "src=", "src2=", "dst=", "window=", "channel=", "dtype= or redop=",
	};
	bool recv = s->op & NPULINK_STEP_RECV, reduce = s->op & NPULINK_STEP_REDUCE;
	uint32_t needs = 0, may = 0, i;

	if (s->len && !s->op)
		return fail(ps, "nop takes no len=");
	if (recv)
		needs |= FROM;
	if (s->op & NPULINK_STEP_SEND)
		needs |= TO;
	may = needs ? CHANNEL : 0;
	if (recv && (s->op & NPULINK_STEP_SEND))
		may |= WINDOW;
	if (reduce)
		may |= TYPE;
	if (s->len) {
		if (reduce || (s->op & NPULINK_STEP_COPY) || s->op == NPULINK_STEP_SEND)
			needs |= SRC;
		if (reduce && !recv)
			needs |= SRC2;
		if (s->op && s->op != NPULINK_STEP_SEND)
			needs |= DST;
	}
	for (i = 0; i < ARRAY_SIZE(names); i++) {
		if ((needs & ~had) >> i & 1)
			return fail(ps, "%s needs %s", coll_step_name(s), names[i]);
		if ((had & ~(needs | may)) >> i & 1)
			return fail(ps, "%s%s takes no %s", coll_step_name(s),
				    s->len ? "" : " without len=", names[i]);
	}
	return 0;
}

static int add_label(struct parser *ps, uint64_t value)
{
	if (ps->nlabels && ps->labels[ps->nlabels - 1].number >= value)
		return fail(ps, "steps must be numbered upwards");
	if (ps->nlabels == ps->caplabels) {
		uint32_t cap = ps->caplabels ? 2 * ps->caplabels : 64;
		void *labels = realloc(ps->labels, cap * sizeof(*ps->labels));

		if (!labels)
			return -ENOMEM;
		ps->labels = labels;
		ps->caplabels = cap;
	}
	ps->labels[ps->nlabels++] = (struct label){ value, ps->out->plan.nsteps };
	return 0;
}

static int append(struct coll_plan *plan, const struct npulink_step *s)
{
	if (plan->nsteps == plan->cap) {
		uint32_t cap = plan->cap ? 2 * plan->cap : 64;
		void *steps = realloc(plan->steps, cap * sizeof(*plan->steps));

		if (!steps)
			return -ENOMEM;
		plan->steps = steps;
		plan->cap = cap;
	}
	plan->steps[plan->nsteps++] = *s;
	return 0;
}

static int parse_step(struct parser *ps, struct word w)
{
	const struct coll_args *args = &ps->out->args;
	struct npulink_step s = {
		.recv_peer = NPULINK_NO_PEER, .send_peer = NPULINK_NO_PEER,
	};
	uint64_t label = 0;
	bool labelled = number(w, &label);
	uint32_t had = 0;
	int rc = 0, op;

	if (labelled && !next_word(ps, &w))
		return fail(ps, "the step is missing");
	op = find_step_name(w);
	if (op < 0)
		return fail(ps, "unknown word '%.*s'", width(w), w.p);
	if (ps->out->plan.nsteps == NPULINK_MAX_STEPS)
		return fail(ps, "too many steps");
	s.op = op;
	if (op & NPULINK_STEP_REDUCE) {
		s.dtype = args->dtype;
		s.redop = args->redop == NPULINK_CALL_AVG ? NPULINK_SUM : args->redop;
	}
	while (!rc && next_word(ps, &w)) {
		struct word key;

		if (split(&w, '=', &key))
			rc = parse_value(ps, key, w, &s, &had);
		else if (is(w, "transient"))
			s.flags |= NPULINK_STEP_F_TRANSIENT;
		else if (is(w, "div"))
			s.flags |= NPULINK_STEP_F_DIV;
		else if (is(w, "scale"))
			s.flags |= NPULINK_STEP_F_SCALE;
		else if (is(w, "scale2"))
			s.flags |= NPULINK_STEP_F_SCALE2;
		else if (is(w, "rest"))
			s.flags |= NPULINK_STEP_F_REST;
		else if (is(w, "chain"))
			s.flags |= NPULINK_STEP_F_CHAIN;
		else if (is(w, "drain"))
			s.flags |= NPULINK_STEP_F_DRAIN;
		else
			rc = fail(ps, "unknown word '%.*s'", width(w), w.p);
	}
	if (s.flags & NPULINK_STEP_F_SCALE && op & NPULINK_STEP_COPY)
		s.dtype = args->dtype;
	if (!rc)
		rc = check_words(ps, &s, had);
	if (!rc && labelled)
		rc = add_label(ps, label);
	return rc ? rc : append(&ps->out->plan, &s);
}

/* ---- statements before the steps */

static int parse_array(struct parser *ps, uint32_t which)
{
	struct coll_args *args = &ps->out->args;
	const uint64_t **member[] = {
		&args->counts, &args->displs, &args->rcounts, &args->rdispls,
	};
	uint64_t *a;
	uint32_t i;
	int rc;

	if (!ps->have_ranks)
		return fail(ps, "the number of ranks must come first");
	if (!ps->out->mem) {
		ps->out->mem = calloc(4 * (size_t)args->nranks, sizeof(*a));
		if (!ps->out->mem)
			return -ENOMEM;
	}
	a = ps->out->mem + (size_t)which * args->nranks;
	for (i = 0; i < args->nranks; i++) {
		rc = word_number(ps, NPULINK_MAX_LEN, &a[i]);
		if (rc)
			return rc;
	}
	*member[which] = a;
	return 0;
}

static int parse_slot(struct parser *ps)
{
	struct coll_plan *plan = &ps->out->plan;
	struct word w;
	uint32_t slot, access = 0;
	uint64_t len;
	int rc;

	if (!next_word(ps, &w))
		return fail(ps, "the slot is missing");
	rc = get_slot(ps, w, &slot);
	if (!rc)
		rc = word_number(ps, NPULINK_MAX_LEN, &len);
	while (!rc && next_word(ps, &w)) {
		if (is(w, "read"))
			access |= NPULINK_SLOT_READ;
		else if (is(w, "write"))
			access |= NPULINK_SLOT_WRITE;
		else
			rc = fail(ps, "'%.*s' is no access: read, write", width(w), w.p);
	}
	if (rc)
		return rc;
	plan->slots[slot] = (struct npulink_slot){ .min_len = len, .access = access };
	if (plan->nslots <= slot)
		plan->nslots = slot + 1;
	ps->have_slots = true;
	return 0;
}

static int parse_peer(struct parser *ps)
{
	struct coll_args *args = &ps->out->args;
	uint64_t value;
	struct word w;
	int rc = word_number(ps, NPULINK_MAX_RANKS - 1, &value);

	if (rc)
		return rc;
	args->peer = value;
	if (!next_word(ps, &w) || !(is(w, "send") || is(w, "recv")))
		return fail(ps, "send or recv must follow");
	args->send = is(w, "send");
	return 0;
}

static int parse_number_of(struct parser *ps, struct word w)
{
	struct coll_args *args = &ps->out->args;
	uint64_t value;
	int rc;

	if (is(w, "count")) {
		rc = word_number(ps, UINT64_MAX, &args->count);
	} else if (is(w, "set")) {
		rc = word_number(ps, UINT64_MAX, &value);
		ps->out->plan.call.set_id = rc ? 0 : value;
	} else if (is(w, "ranks")) {
		if (ps->have_ranks)
			return fail(ps, "the number of ranks was given before");
		rc = word_number(ps, NPULINK_MAX_RANKS, &value);
		args->nranks = rc ? 0 : value;
		ps->have_ranks = true;
	} else if (is(w, "rank")) {
		rc = word_number(ps, NPULINK_MAX_RANKS - 1, &value);
		args->rank = rc ? 0 : value;
		ps->have_rank = true;
	} else {
		rc = word_number(ps, NPULINK_MAX_RANKS - 1, &value);
		args->root = rc ? 0 : value;
	}
	return rc;
}

static int parse_statement(struct parser *ps, struct word w)
{
	static const char * const numbers[] = { "ranks", "rank", "root", "count", "set" };
	static const char * const arrays[] = { "counts", "displs", "rcounts", "rdispls" };
	struct coll_args *args = &ps->out->args;
	struct word value;
	int rc, name;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(numbers); i++)
		if (is(w, numbers[i]))
			return parse_number_of(ps, w);
	for (i = 0; i < ARRAY_SIZE(arrays); i++)
		if (is(w, arrays[i]))
			return parse_array(ps, i);
	if (is(w, "slot"))
		return parse_slot(ps);
	if (is(w, "peer"))
		return parse_peer(ps);
	if (is(w, "in-place")) {
		args->in_place = true;
		return 0;
	}
	if (is(w, "dtype") || is(w, "redop")) {
		bool dtype = is(w, "dtype");

		if (!next_word(ps, &value))
			return fail(ps, "the name is missing");
		rc = get_name(ps, value, dtype ? coll_dtype_parse : coll_redop_parse,
			      dtype ? "data type" : "reduction", &name);
		if (rc)
			return rc;
		*(dtype ? &args->dtype : &args->redop) = name;
		return 0;
	}
	return fail(ps, "unknown word '%.*s'", width(w), w.p);
}

static int parse_begin(struct parser *ps)
{
	struct word w;
	int rc, name;

	if (!next_word(ps, &w) || !is(w, "plan"))
		return fail(ps, "a plan must begin with 'plan COLLECTIVE'");
	if (!next_word(ps, &w))
		return fail(ps, "the collective is missing");
	rc = get_name(ps, w, coll_collective_parse, "collective", &name);
	if (rc)
		return rc;
	ps->out->args.collective = name;
	if (next_word(ps, &w)) {
		if (w.len >= sizeof(ps->out->algorithm) || memchr(w.p, 0, w.len))
			return fail(ps, "'%.*s' is no algorithm", width(w), w.p);
		memcpy(ps->out->algorithm, w.p, w.len);
	}
	return 0;
}

/* ---- a whole plan */

/* Without slot lines: the caller's buffers, and scratch as far as steps reach. */
static int default_slots(struct parser *ps, const struct coll_args *args)
{
	struct coll_plan *plan = &ps->out->plan;
	uint64_t send, recv;
	uint32_t i;

	if (plan_buffers(args, &send, &recv))
		return fail(ps, "the buffers are too large");
	plan->slots[NPULINK_SLOT_SEND].min_len = send;
	plan->slots[NPULINK_SLOT_RECV].min_len = recv;
	for (i = 0; i < plan->nsteps; i++) {
		const struct npulink_step *s = &plan->steps[i];
		const uint32_t slot[] = { s->src_slot, s->src2_slot, s->dst_slot };
		const uint64_t off[] = { s->src_off, s->src2_off, s->dst_off };
		bool transient = s->flags & NPULINK_STEP_F_TRANSIENT;
		uint32_t k;

		for (k = 0; k < 3; k++) {
			uint64_t end = off[k] + s->len;

			if (k == 2 && transient && s->src2_off)
				end = off[k] + s->src2_off;
			if (slot[k] < NPULINK_SLOT_SCRATCH || (k == 1 && transient))
				continue;
			if (end < off[k] || end > NPULINK_MAX_LEN)
				return fail(ps, "step %u reaches too far", i);
			if (plan->slots[slot[k]].min_len < end)
				plan->slots[slot[k]].min_len = end;
		}
	}
	plan_fill_slots(plan);
	return 0;
}

static int finish(struct parser *ps)
{
	struct coll_plan *plan = &ps->out->plan;
	struct coll_args args;
	const char *why;
	uint64_t *mem;
	int rc;

	if (!ps->have_ranks || !ps->have_rank)
		return fail(ps, "ranks or rank is missing");
	why = coll_args_check(&ps->out->args);
	if (why)
		return fail(ps, "%s", why);
	rc = plan_args_fill(&ps->out->args, &args, &mem);
	if (rc)
		return rc;
	plan->nranks = args.nranks;
	plan->rank = args.rank;
	plan->call.collective = args.collective;
	plan->call.dtype = args.dtype;
	plan->call.redop = args.redop;
	plan->call.root = args.root;
	plan->call.count = args.count;
	if (!ps->have_slots)
		rc = default_slots(ps, &args);
	free(mem);
	return rc;
}

static int parse(struct parser *ps)
{
	bool steps = false;
	struct word w, copy;
	int rc;

	do {
		if (!next_line(ps))
			return -ENOENT;
		copy = ps->rest;
	} while (!next_word(ps, &w));
	ps->rest = copy;
	rc = parse_begin(ps);
	while (!rc) {
		if (next_word(ps, &w))
			return fail(ps, "unexpected word '%.*s'", width(w), w.p);
		do {
			if (!next_line(ps))
				return fail(ps, "'end' is missing");
		} while (!next_word(ps, &w));

		if (is(w, "end"))
			break;
		if (steps || (w.p[0] >= '0' && w.p[0] <= '9') || find_step_name(w) >= 0) {
			steps = true;
			rc = parse_step(ps, w);
		} else {
			rc = parse_statement(ps, w);
		}
	}
	if (rc)
		return rc;
	if (next_word(ps, &w))
		return fail(ps, "unexpected word '%.*s'", width(w), w.p);
	return finish(ps);
}

int coll_plan_parse(const char **text, size_t *len, uint32_t *line, struct coll_text *out,
		    struct coll_text_error *error)
{
	struct parser ps = {
		.p = *text, .end = *text + *len, .line = *line, .out = out, .error = error,
	};
	int rc;

	memset(out, 0, sizeof(*out));
	memset(error, 0, sizeof(*error));
	rc = parse(&ps);
	free(ps.labels);
	if (rc) {
		coll_text_free(out);
		return rc;
	}
	*text = ps.p;
	*len = ps.end - ps.p;
	*line = ps.line;
	return 0;
}

void coll_text_free(struct coll_text *text)
{
	coll_plan_free(&text->plan);
	free(text->mem);
	memset(text, 0, sizeof(*text));
}
