// SPDX-License-Identifier: GPL-2.0
/*
 * flight_file.c - reads back what npulink trace has written. The file may come from
 * anywhere, so nothing in it is believed.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "trace/flight.h"

static uint64_t number(struct json_object *obj, const char *key)
{
	struct json_object *value;

	if (!json_object_object_get_ex(obj, key, &value))
		return 0;
	return json_object_get_uint64(value);
}

static int64_t integer(struct json_object *obj, const char *key)
{
	struct json_object *value;

	if (!json_object_object_get_ex(obj, key, &value))
		return 0;
	return json_object_get_int64(value);
}

static const char *word(struct json_object *obj, const char *key)
{
	struct json_object *value;

	if (!json_object_object_get_ex(obj, key, &value))
		return "";
	return json_object_get_string(value) ?: "";
}

static bool truth(struct json_object *obj, const char *key)
{
	struct json_object *value;

	return json_object_object_get_ex(obj, key, &value) && json_object_get_boolean(value);
}

/* Microseconds with three places, in which a double is exact for a hundred days. */
static uint64_t nanoseconds(struct json_object *obj, const char *key)
{
	struct json_object *value;
	double us;

	if (!json_object_object_get_ex(obj, key, &value))
		return 0;
	us = json_object_get_double(value);
	return us > 0 && us < 1e15 ? (uint64_t)llround(us * 1000) : 0;
}

static void *grown(void *array, size_t n, size_t size)
{
	/* Twice as long whenever it is full. */
	if (n & (n - 1))
		return array;
	array = reallocarray(array, n ? 2 * n : 1, size);
	if (!array)
		exit(fail("not enough memory"));
	return array;
}

static void load_rank(struct flight *f, struct json_object *args)
{
	f->comm = number(args, "comm");
	f->rank = number(args, "rank");
	f->nranks = number(args, "nranks");
	f->dev = number(args, "dev");
	f->pid = number(args, "pid");
	f->uid = number(args, "uid");
	f->left = truth(args, "left");
	f->joined = number(args, "joined");
	f->now = number(args, "now");
	f->ops_done = number(args, "ops_done");
	f->steps_done = number(args, "steps_done");
	snprintf(f->task, sizeof(f->task), "%s", word(args, "task"));
}

static void load_op(struct flight *f, struct json_object *e, struct json_object *args)
{
	struct npulink_flight_op *op;

	f->ops = grown(f->ops, f->nops, sizeof(*f->ops));
	memset(&f->ops[f->nops], 0, sizeof(*f->ops));
	op = &f->ops[f->nops++].k;
	op->start = nanoseconds(e, "ts");
	if (truth(args, "ended"))
		op->end = op->start + nanoseconds(e, "dur");
	op->serial = number(args, "serial");
	op->number = number(args, "number");
	op->call.collective = number(args, "collective");
	op->call.dtype = number(args, "dtype");
	op->call.redop = number(args, "redop");
	op->call.root = number(args, "root");
	op->call.count = number(args, "count");
	op->call.set_id = strtoull(word(args, "set_id"), NULL, 16);
	op->nsteps = number(args, "steps");
	op->status = integer(args, "status");
	op->cause = number(args, "cause");
	op->wait = number(args, "wait");
	op->queue = number(args, "queue");
	op->engine = number(args, "engine");
	op->take = number(args, "take");
	snprintf(op->algorithm, sizeof(op->algorithm), "%s", word(args, "algorithm"));
}

static void load_step(struct flight *f, struct json_object *e, struct json_object *args)
{
	struct flight_step *s;

	f->steps = grown(f->steps, f->nsteps, sizeof(*f->steps));
	s = &f->steps[f->nsteps++];
	*s = (struct flight_step) {
		.start = nanoseconds(e, "ts"), .len = number(args, "bytes"),
		.op = number(args, "serial"),
		.step = number(args, "step"), .nsteps = number(args, "chain"),
		.what = number(args, "what"), .channel = number(args, "channel"),
		.recv_peer = NPULINK_NO_PEER, .send_peer = NPULINK_NO_PEER,
		.wait = number(args, "wait"), .queue = number(args, "queue"),
		.engine = number(args, "engine"), .take = number(args, "take"),
	};
	if (s->what & NPULINK_STEP_RECV)
		s->recv_peer = number(args, "from");
	if (s->what & NPULINK_STEP_SEND)
		s->send_peer = number(args, "to");
}

/* ---- what is not as npulink trace writes it */

enum { TIME, NUMBER, NUMBER32, STATUS, TRUTH, WORD, NEEDED = 8 };

struct field {
	const char *key;
	unsigned int kind;
};

static const struct field event_fields[] = {
	{ "ts", NEEDED | TIME }, { "dur", TIME }, { NULL, 0 }
};

static const struct field rank_fields[] = {
	{ "comm", NEEDED | NUMBER32 }, { "rank", NEEDED | NUMBER32 },
	{ "nranks", NEEDED | NUMBER32 }, { "dev", NUMBER32 }, { "pid", NUMBER32 },
	{ "uid", NUMBER32 }, { "left", TRUTH }, { "joined", NUMBER }, { "now", NUMBER },
	{ "ops_done", NUMBER }, { "steps_done", NUMBER }, { "task", WORD }, { NULL, 0 }
};

static const struct field op_fields[] = {
	{ "serial", NEEDED | NUMBER }, { "number", NEEDED | NUMBER },
	{ "collective", NEEDED | NUMBER32 }, { "dtype", NEEDED | NUMBER32 },
	{ "redop", NUMBER32 }, { "root", NUMBER32 }, { "count", NEEDED | NUMBER },
	{ "set_id", NEEDED | WORD }, { "steps", NEEDED | NUMBER32 }, { "status", STATUS },
	{ "cause", NUMBER32 }, { "ended", NEEDED | TRUTH }, { "wait", NUMBER },
	{ "queue", NUMBER }, { "engine", NUMBER }, { "take", NUMBER },
	{ "algorithm", NEEDED | WORD }, { NULL, 0 }
};

static const struct field step_fields[] = {
	{ "serial", NEEDED | NUMBER }, { "step", NEEDED | NUMBER32 },
	{ "chain", NEEDED | NUMBER32 }, { "what", NEEDED | NUMBER32 },
	{ "bytes", NEEDED | NUMBER }, { "from", NUMBER32 }, { "to", NUMBER32 },
	{ "channel", NUMBER32 }, { "wait", NUMBER }, { "queue", NUMBER }, { "engine", NUMBER },
	{ "take", NUMBER }, { NULL, 0 }
};

static bool is_kind(struct json_object *value, unsigned int kind)
{
	bool whole = json_object_is_type(value, json_type_int);

	switch (kind) {
	case TIME:
		return (whole || json_object_is_type(value, json_type_double)) &&
		       json_object_get_double(value) >= 0 && json_object_get_double(value) < 1e15;
	case NUMBER:
		return whole && json_object_get_int64(value) >= 0;
	case NUMBER32:
		return whole && json_object_get_int64(value) >= 0 &&
		       json_object_get_int64(value) <= UINT32_MAX;
	case STATUS:
		return whole && json_object_get_int64(value) >= INT32_MIN &&
		       json_object_get_int64(value) <= 0;
	case TRUTH:
		return json_object_is_type(value, json_type_boolean);
	case WORD:
		return json_object_is_type(value, json_type_string);
	}
	return false;
}

/* The name of a field that is missing, or is not what it should be; NULL: there is none. */
static const char *odd_field(struct json_object *obj, const struct field *fields)
{
	struct json_object *value;

	for (; fields->key; fields++) {
		bool there = json_object_object_get_ex(obj, fields->key, &value);

		if (there ? !is_kind(value, fields->kind & ~NEEDED) : fields->kind & NEEDED)
			return fields->key;
	}
	return NULL;
}

/* What belongs to a rank comes after the event that names it. What is odd, or NULL. */
static const char *load_event(struct flight_log *log, struct json_object *e)
{
	static const char *const kinds[] = { "operation", "step" };
	struct json_object *args;
	const char *category, *odd;

	if (!json_object_object_get_ex(e, "args", &args) ||
	    !json_object_is_type(args, json_type_object))
		return NULL;
	if (!strcmp(word(e, "name"), "npulink_rank")) {
		odd = odd_field(args, rank_fields);
		if (odd)
			return odd;
		log->v = grown(log->v, log->n, sizeof(*log->v));
		memset(&log->v[log->n], 0, sizeof(*log->v));
		log->v[log->n].id = log->n;
		load_rank(&log->v[log->n++], args);
		return NULL;
	}
	category = word(e, "cat");
	if (!log->n || strcmp(word(e, "ph"), "X"))
		return NULL;
	if (!strcmp(category, kinds[0])) {
		odd = odd_field(e, event_fields) ?: odd_field(args, op_fields);
		if (!odd)
			load_op(&log->v[log->n - 1], e, args);
		return odd;
	}
	if (!strcmp(category, kinds[1])) {
		odd = odd_field(e, event_fields) ?: odd_field(args, step_fields);
		if (!odd)
			load_step(&log->v[log->n - 1], e, args);
		return odd;
	}
	return NULL;
}

/* 0 or EXIT_FAILURE. */
static int load_events(struct flight_log *log, const char *path, struct json_object *events)
{
	const char *odd;

	for (size_t i = 0; i < json_object_array_length(events); i++) {
		odd = load_event(log, json_object_array_get_idx(events, i));
		if (odd)
			return fail("%s: in event %zu, \"%s\" is missing, or not what npulink trace writes",
				    path, i, odd);
	}
	return 0;
}

int flight_load(struct flight_log *log, const char *path)
{
	struct json_object *file, *events, *other;
	int rc;

	*log = (struct flight_log){ };
	errno = 0;
	if (strcmp(path, "-"))
		file = json_object_from_file(path);
	else
		file = json_object_from_fd(STDIN_FILENO);
	if (!file)
		return fail("cannot read %s: %s", path, errno ? strerror(errno) : "this is no JSON");
	if (!json_object_object_get_ex(file, "traceEvents", &events) ||
	    !json_object_is_type(events, json_type_array)) {
		json_object_put(file);
		return fail("%s: this is no trace", path);
	}
	if (json_object_object_get_ex(file, "otherData", &other))
		log->to_real = integer(other, "to_real");
	rc = load_events(log, path, events);
	json_object_put(file);
	if (rc) {
		flight_free(log);
		return rc;
	}
	for (size_t i = 0; i < log->n; i++)
		flight_match(&log->v[i]);
	rc = flight_index(log);
	if (!rc && !log->n)
		rc = fail("%s: npulink trace has not written this", path);
	if (rc)
		flight_free(log);
	return rc;
}
