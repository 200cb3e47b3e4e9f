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
#include "flight.h"

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

/* What belongs to a rank comes after the event that names it. */
static void load_event(struct flight_log *log, struct json_object *e)
{
	static const char *const kinds[] = { "operation", "step" };
	struct json_object *args;
	const char *category;

	if (!json_object_object_get_ex(e, "args", &args) ||
	    !json_object_is_type(args, json_type_object))
		return;
	if (!strcmp(word(e, "name"), "npulink_rank")) {
		log->v = grown(log->v, log->n, sizeof(*log->v));
		memset(&log->v[log->n], 0, sizeof(*log->v));
		log->v[log->n].id = log->n;
		load_rank(&log->v[log->n++], args);
		return;
	}
	category = word(e, "cat");
	if (!log->n || strcmp(word(e, "ph"), "X"))
		return;
	if (!strcmp(category, kinds[0]))
		load_op(&log->v[log->n - 1], e, args);
	else if (!strcmp(category, kinds[1]))
		load_step(&log->v[log->n - 1], e, args);
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
	for (size_t i = 0; i < json_object_array_length(events); i++)
		load_event(log, json_object_array_get_idx(events, i));
	json_object_put(file);
	for (size_t i = 0; i < log->n; i++)
		flight_match(&log->v[i]);
	rc = flight_index(log);
	if (!rc && !log->n)
		rc = fail("%s: npulink trace has not written this", path);
	if (rc)
		flight_free(log);
	return rc;
}
