// SPDX-License-Identifier: GPL-2.0
/*
 * trace.c - npulink trace: what the flight recorders of all ranks hold, as a file for
 * ui.perfetto.dev (and Chrome's about:tracing), or as a picture.
 *
 * In the file each rank is a process. Its first threads are its operations, the others
 * its steps; of several at a time each has a thread of its own. In a step are its pieces:
 * waiting for the peer, waiting for the engine, moving or reducing, waiting until the peer
 * has taken what was sent. The recorder sums them up, so of a step that went slice by
 * slice they are drawn one after the other. Arrows go from a step that sends to the one
 * that received. flight_file.c reads all of it back.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "lib/plan/plan.h"
#include "lib/plan/text.h"
#include "trace/flight.h"

/* ---- as JSON */

#define STEP_LANES	100	/* thread ids of steps begin here */

struct writer {
	FILE *f;
	uint32_t pid;
	bool any;
};

static void event(struct writer *w, char phase, const char *category, unsigned int tid)
{
	fprintf(w->f, "%s{\"ph\":\"%c\",\"pid\":%u,\"tid\":%u", w->any ? ",\n" : "", phase, w->pid,
		tid);
	if (category)
		fprintf(w->f, ",\"cat\":\"%s\"", category);
	w->any = true;
}

/* Perfetto wants microseconds. */
static void time_at(struct writer *w, const char *key, uint64_t ns)
{
	fprintf(w->f, ",\"%s\":%" PRIu64 ".%03u", key, ns / 1000, (unsigned int)(ns % 1000));
}

static void text(struct writer *w, const char *key, const char *value)
{
	struct json_object *s = json_object_new_string(value);

	fprintf(w->f, "\"%s\":%s", key,
		json_object_to_json_string_ext(s, JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(s);
}

/* Members of args: what comes last has no comma. */
static void number(struct writer *w, const char *key, uint64_t value)
{
	fprintf(w->f, "\"%s\":%" PRIu64 ",", key, value);
}

static void truth(struct writer *w, const char *key, bool value)
{
	fprintf(w->f, "\"%s\":%s,", key, value ? "true" : "false");
}

static void metadata(struct writer *w, unsigned int tid, const char *name, const char *key,
		     const char *value)
{
	event(w, 'M', NULL, tid);
	fprintf(w->f, ",\"name\":\"%s\",\"args\":{", name);
	text(w, key, value);
	fprintf(w->f, "}}");
}

static void write_head(struct writer *w, const struct flight *f)
{
	char line[120];

	snprintf(line, sizeof(line), "rank %u", f->rank);
	metadata(w, 0, "process_name", "name", line);
	snprintf(line, sizeof(line), "communicator %u, npu%u, pid %u (%s)%s", f->comm, f->dev,
		 f->pid, f->task, f->left ? ", has gone" : "");
	metadata(w, 0, "process_labels", "labels", line);
	event(w, 'M', NULL, 0);
	fprintf(w->f, ",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%u}}", w->pid);
	event(w, 'M', NULL, 0);
	fprintf(w->f, ",\"name\":\"npulink_rank\",\"args\":{");
	number(w, "comm", f->comm);
	number(w, "rank", f->rank);
	number(w, "nranks", f->nranks);
	number(w, "dev", f->dev);
	number(w, "pid", f->pid);
	number(w, "uid", f->uid);
	truth(w, "left", f->left);
	number(w, "joined", f->joined);
	number(w, "now", f->now);
	number(w, "ops_done", f->ops_done);
	number(w, "steps_done", f->steps_done);
	text(w, "task", f->task);
	fprintf(w->f, "}}");
}

/* The first lane that is free at @start, taken until @end. */
static unsigned int lane(uint64_t **lanes, unsigned int *n, uint64_t start, uint64_t end)
{
	unsigned int i;

	for (i = 0; i < *n && (*lanes)[i] > start; i++)
		;
	if (i == *n) {
		*lanes = reallocarray(*lanes, ++*n, sizeof(**lanes));
		if (!*lanes)
			exit(fail("not enough memory"));
	}
	(*lanes)[i] = end;
	return i;
}

static void write_lane_names(struct writer *w, const char *what, unsigned int first, unsigned int n)
{
	char name[40];

	for (unsigned int i = 0; i < n; i++) {
		snprintf(name, sizeof(name), i ? "%s (%u)" : "%s", what, i + 1);
		metadata(w, first + i, "thread_name", "name", name);
	}
}

static void write_op(struct writer *w, const struct flight *f, const struct npulink_flight_op *op,
		     unsigned int tid)
{
	uint64_t end = op->end ? op->end : f->now;
	char name[100];

	event(w, 'X', "operation", tid);
	fputc(',', w->f);
	text(w, "name", flight_op_name(op, name, sizeof(name)));
	time_at(w, "ts", op->start);
	time_at(w, "dur", end > op->start ? end - op->start : 0);
	fprintf(w->f, ",\"args\":{");
	number(w, "serial", op->serial);
	number(w, "number", op->number);
	number(w, "collective", op->call.collective);
	number(w, "dtype", op->call.dtype);
	number(w, "redop", op->call.redop);
	number(w, "root", op->call.root);
	number(w, "count", op->call.count);
	number(w, "bytes", flight_op_bytes(op));
	fprintf(w->f, "\"set_id\":\"%016" PRIx64 "\",", (uint64_t)op->call.set_id);
	number(w, "steps", op->nsteps);
	fprintf(w->f, "\"status\":%d,", op->status);
	number(w, "cause", op->cause);
	truth(w, "ended", op->end);
	number(w, "wait", op->wait);
	number(w, "queue", op->queue);
	number(w, "engine", op->engine);
	number(w, "take", op->take);
	text(w, "algorithm", op->algorithm);
	fprintf(w->f, "}}");
}

static const char *step_name(const struct flight_step *s, char *buf, size_t size)
{
	struct npulink_step step = { .op = s->what, .flags = NPULINK_STEP_F_TRANSIENT };
	int n;

	if (s->nsteps > 1)
		n = snprintf(buf, size, "reduce %u inputs", s->nsteps + 1);
	else
		n = snprintf(buf, size, "%s", coll_step_name(&step));
	if (s->nsteps <= 1 && s->what & NPULINK_STEP_RECV)
		n += snprintf(buf + n, size - n, " from %u", s->recv_peer);
	if (s->what & NPULINK_STEP_SEND)
		snprintf(buf + n, size - n, " to %u", s->send_peer);
	return buf;
}

static void write_piece(struct writer *w, const char *name, unsigned int tid, uint64_t *at,
			uint64_t ns)
{
	if (!ns)
		return;
	event(w, 'X', "piece", tid);
	fprintf(w->f, ",\"name\":\"%s\"", name);
	time_at(w, "ts", *at);
	time_at(w, "dur", ns);
	fputc('}', w->f);
	*at += ns;
}

static void write_step(struct writer *w, const struct flight *f, const struct flight_step *s,
		       unsigned int tid)
{
	const struct npulink_flight_op *op = &f->ops[s->op].k;
	uint64_t at = s->start;
	char name[80];

	event(w, 'X', "step", tid);
	fputc(',', w->f);
	text(w, "name", step_name(s, name, sizeof(name)));
	time_at(w, "ts", s->start);
	time_at(w, "dur", flight_step_end(s) - s->start);
	fprintf(w->f, ",\"args\":{");
	number(w, "serial", op->serial);
	number(w, "number", op->number);
	number(w, "step", s->step);
	number(w, "chain", s->nsteps);
	number(w, "what", s->what);
	number(w, "bytes", s->len);
	if (s->what & NPULINK_STEP_RECV)
		number(w, "from", s->recv_peer);
	if (s->what & NPULINK_STEP_SEND)
		number(w, "to", s->send_peer);
	number(w, "channel", s->channel);
	number(w, "wait", s->wait);
	number(w, "queue", s->queue);
	number(w, "engine", s->engine);
	fprintf(w->f, "\"take\":%" PRIu64 "}}", s->take);
	write_piece(w, "wait", tid, &at, s->wait);
	write_piece(w, "queue", tid, &at, s->queue);
	write_piece(w, s->what & NPULINK_STEP_REDUCE ? "reduce" : "move", tid, &at, s->engine);
	write_piece(w, "take", tid, &at, s->take);
}

/* ---- arrows: who sent what was received */

struct end {
	uint32_t comm, src, dst, channel, step, pid, tid;
	uint64_t number, at;
	bool send;
};

struct ends {
	struct end *v;
	size_t n, cap;
};

static void add_end(struct ends *ends, const struct end *end)
{
	if (ends->n == ends->cap) {
		ends->cap = ends->cap ? 2 * ends->cap : 1024;
		ends->v = reallocarray(ends->v, ends->cap, sizeof(*ends->v));
		if (!ends->v)
			exit(fail("not enough memory"));
	}
	ends->v[ends->n++] = *end;
}

/* Chains are left out: of their receives only the first is recorded. */
static void add_ends(struct ends *ends, const struct flight *f, const struct flight_step *s,
		     uint32_t pid, uint32_t tid)
{
	const struct npulink_flight_op *op = &f->ops[s->op].k;
	struct end end = {
		.comm = f->comm, .channel = s->channel, .step = s->step, .pid = pid, .tid = tid,
		.number = op->number,
	};

	if (op->call.collective == NPULINK_COLL_P2P || s->nsteps > 1)
		return;
	if (s->what & NPULINK_STEP_SEND) {
		end.src = f->rank;
		end.dst = s->send_peer;
		end.send = true;
		end.at = s->start + s->wait + s->queue + s->engine;
		add_end(ends, &end);
	}
	if (s->what & NPULINK_STEP_RECV) {
		end.src = s->recv_peer;
		end.dst = f->rank;
		end.send = false;
		end.at = s->start + s->wait;
		add_end(ends, &end);
	}
}

static int by_pair(const void *a, const void *b)
{
	const struct end *x = a, *y = b;
	const uint64_t xs[] = { x->comm, x->number, x->src, x->dst, x->channel, x->send, x->step };
	const uint64_t ys[] = { y->comm, y->number, y->src, y->dst, y->channel, y->send, y->step };

	for (size_t i = 0; i < ARRAY_SIZE(xs); i++)
		if (xs[i] != ys[i])
			return xs[i] < ys[i] ? -1 : 1;
	return 0;
}

static bool same_pair(const struct end *x, const struct end *y)
{
	return x->comm == y->comm && x->number == y->number && x->src == y->src &&
	       x->dst == y->dst && x->channel == y->channel;
}

/* The k-th send meets the k-th receive; if one end has forgotten some, nobody knows. */
static void write_arrows(struct writer *w, struct ends *ends)
{
	size_t i, k, n, received, id = 0;

	qsort(ends->v, ends->n, sizeof(*ends->v), by_pair);
	for (i = 0; i < ends->n; i += n) {
		received = 0;
		for (n = 0; i + n < ends->n && same_pair(&ends->v[i], &ends->v[i + n]); n++)
			received += !ends->v[i + n].send;
		for (k = 0; 2 * received == n && k < received; k++) {
			const struct end *to = &ends->v[i + k], *from = &ends->v[i + received + k];

			w->pid = from->pid;
			event(w, 's', "message", from->tid);
			fprintf(w->f, ",\"name\":\"message\",\"id\":%zu", id);
			time_at(w, "ts", from->at);
			fputc('}', w->f);
			w->pid = to->pid;
			event(w, 'f', "message", to->tid);
			fprintf(w->f, ",\"bp\":\"e\",\"name\":\"message\",\"id\":%zu", id++);
			time_at(w, "ts", to->at > from->at ? to->at : from->at);
			fputc('}', w->f);
		}
	}
}

static void write_rank(struct writer *w, const struct flight *f, struct ends *ends)
{
	uint64_t *busy = NULL;
	unsigned int n = 0;

	write_head(w, f);
	for (size_t i = 0; i < f->nops; i++) {
		const struct npulink_flight_op *op = &f->ops[i].k;

		write_op(w, f, op, lane(&busy, &n, op->start, op->end ? op->end : UINT64_MAX));
	}
	write_lane_names(w, "operations", 0, n);
	n = 0;
	for (size_t i = 0; i < f->nsteps; i++) {
		const struct flight_step *s = &f->steps[i];
		unsigned int tid = STEP_LANES + lane(&busy, &n, s->start, flight_step_end(s));

		write_step(w, f, s, tid);
		add_ends(ends, f, s, w->pid, tid);
	}
	write_lane_names(w, "steps", STEP_LANES, n);
	free(busy);
}

int trace_write_json(const struct flight_log *log, FILE *f)
{
	struct writer w = { .f = f };
	struct ends ends = { };

	fprintf(f, "{\"displayTimeUnit\":\"ns\",\"otherData\":{");
	fprintf(f, "\"npulink\":\"%s\",", NPULINK_VERSION);
	fprintf(f, "\"clock\":\"CLOCK_MONOTONIC\",\"to_real\":%" PRId64 "},\n", log->to_real);
	fprintf(f, "\"traceEvents\":[\n");
	for (size_t i = 0; i < log->n; i++) {
		w.pid = i + 1;
		write_rank(&w, &log->v[i], &ends);
	}
	write_arrows(&w, &ends);
	fprintf(f, "\n]}\n");
	free(ends.v);
	return fflush(f) || ferror(f) ? EXIT_FAILURE : 0;
}

/* ---- the command */

static const char usage[] =
	"Usage: npulink trace [OPTION]... [FILE]\n"
	"\n"
	"Writes what the flight recorders of all ranks hold, also of those that have died lately,\n"
	"to FILE or standard output, for ui.perfetto.dev or npulink replay: operations, steps, and\n"
	"where their time went. Of other users' processes only root sees anything. What npulink\n"
	"doctor and link test did is left out unless its communicator is asked for.\n"
	"\n"
	"  -c, --comm N      only communicator N\n"
	"  -l, --last N      only its last N collectives\n"
	"      --svg FILE    a picture of the last collective, or of the last N\n"
	"      --from FILE   read FILE, which npulink trace has written, instead of the kernel\n";

enum { OPT_SVG = 0x100, OPT_FROM };

static int write_file(const struct flight_log *log, const char *path)
{
	FILE *f = output_open(path);

	return f ? output_close(f, path, trace_write_json(log, f)) : EXIT_FAILURE;
}

int trace_cmd(int argc, char **argv)
{
	static const struct option own[] = {
		{ "comm", required_argument, NULL, 'c' },
		{ "last", required_argument, NULL, 'l' },
		{ "svg", required_argument, NULL, OPT_SVG },
		{ "from", required_argument, NULL, OPT_FROM },
		CMD_OPTION_END
	};
	const char *svg = NULL, *from = NULL, *path;
	uint64_t comm = ANY_COMM, last = 0;
	char *words[argc + 2];
	struct flight_log log;
	size_t nops = 0;
	int c, rc;

	/* There is no command after it: options may come at once. */
	words[0] = (char *)"trace";
	memcpy(words + 1, argv, argc * sizeof(*argv));
	words[argc + 1] = NULL;
	while ((c = cmd_option(argc + 1, words, "c:l:", own, usage)) != -1) {
		switch (c) {
		case 'c':
			if (!parse_u64(optarg, ANY_COMM - 1, &comm))
				return usage_error("trace: \"%s\" is no communicator", optarg);
			break;
		case 'l':
			if (!parse_u64(optarg, UINT32_MAX, &last) || !last)
				return usage_error("trace: \"%s\" is no number of collectives",
						   optarg);
			break;
		case OPT_SVG:
			svg = optarg;
			break;
		case OPT_FROM:
			from = optarg;
			break;
		default:
			return c == 'h' ? EXIT_SUCCESS : EXIT_USAGE;
		}
	}
	path = words[optind];
	if (path && words[optind + 1])
		return usage_error("trace: unknown word \"%s\"", words[optind + 1]);
	if (!path && !svg && isatty(STDOUT_FILENO))
		return usage_error("trace: give it a FILE for ui.perfetto.dev, or --svg FILE");
	if (from)
		rc = flight_load(&log, from);
	else
		rc = flight_read(&log, NPULINK_FLIGHT_OPS | NPULINK_FLIGHT_STEPS, comm);
	if (rc)
		return rc;
	if (!from && comm == ANY_COMM)
		flight_drop_probes(&log);
	for (size_t i = 0; i < log.n; i++)
		nops += log.v[i].nops;
	flight_keep_last(&log, last);
	if (!nops)
		rc = fail("no operation of yours is on record: root sees those of all users, and small collectives are on record with boards=0 only, see npulink-trace(8)");
	if (!rc && (path || !svg))
		rc = write_file(&log, path);
	if (!rc && svg) {
		if (!last)
			flight_keep_last(&log, 1);
		rc = trace_write_svg(&log, svg);
	}
	flight_free(&log);
	return rc;
}
