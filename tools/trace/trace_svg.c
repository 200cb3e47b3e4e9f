// SPDX-License-Identifier: GPL-2.0
/*
 * trace_svg.c - recorded collectives as a picture: time from left to right, a row for
 * each rank, in it its steps, cut into what their time was spent on. A line under them
 * is the operation itself, from the post to its end. The pointer over a bar tells more.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "cli/svg.h"
#include "lib/plan/plan.h"
#include "plan/net.h"
#include "trace/flight.h"

#define MAX_BARS	60000
#define WIDTH		1280.
#define LEFT		150.
#define RIGHT		24.
#define TOP		100.
#define BOTTOM		54.
#define MAX_LANES	12

#define SVG_GREEN	"#2a9d6f"
#define SVG_WAIT	"#d9dee4"
#define SVG_QUEUE	"#b39ddb"

enum { WAIT, QUEUE, MOVE, REDUCE, TAKE, PIECES };

static const struct {
	const char *fill, *text, *name;
} pieces[PIECES] = {
	[WAIT] = { SVG_WAIT, "waits for the peer's bytes", "waits" },
	[QUEUE] = { SVG_QUEUE, "waits for the engine", "queues" },
	[MOVE] = { SVG_BLUE, "moves", "moves" },
	[REDUCE] = { SVG_ORANGE, "reduces", "reduces" },
	[TAKE] = { SVG_PALE, "waits until the peer has taken it", "is taken" },
};

struct chart {
	const struct flight_log *log;
	FILE *svg;
	uint64_t from, to;
	double row;
	unsigned int lanes;
	bool tips;
};

static double x_of(const struct chart *c, uint64_t ns)
{
	double t = ns > c->from ? ns - c->from : 0;

	return LEFT + t / (c->to - c->from) * (WIDTH - LEFT - RIGHT);
}

/* Time in one unit for the whole axis. */
static const char *unit_of(uint64_t ns, double *factor)
{
	*factor = 1 / (ns < 10000 ? 1 : ns < 10000000 ? 1e3 : ns < 10000000000 ? 1e6 : 1e9);
	return ns < 10000 ? "ns" : ns < 10000000 ? "us" : ns < 10000000000 ? "ms" : "s";
}

static void draw_frame(const struct chart *c)
{
	double bottom = TOP + c->log->n * c->row, factor, step, range, t;
	const char *unit = unit_of(c->to - c->from, &factor);
	unsigned int every = 1;

	while (every * c->row < 13)
		every *= 2;
	for (size_t i = 0; i < c->log->n; i++) {
		const struct flight *f = &c->log->v[i];
		double y = TOP + i * c->row;
		char who[64];

		if (i % 2 && c->row >= 6)
			svg_rect(c->svg, LEFT, y, WIDTH - LEFT - RIGHT, c->row, "#f7f9fb", NULL);
		if (i % every)
			continue;
		snprintf(who, sizeof(who), "rank %u", f->rank);
		if (c->row >= 26) {
			svg_text(c->svg, LEFT - 8, y + c->row / 2 - 2, "end", 12, SVG_INK, "%s",
				 who);
			svg_text(c->svg, LEFT - 8, y + c->row / 2 + 11, "end", 9.5, SVG_FAINT,
				 "npu%u  %.15s %u%s", f->dev, f->task, f->pid,
				 f->left ? " \xe2\x80\xa0" : "");
		} else {
			svg_text(c->svg, LEFT - 8, y + c->row / 2 + 3.5, "end", 9.5, SVG_INK, "%s",
				 who);
		}
	}
	range = (c->to - c->from) * factor;
	step = svg_step(range, 10);
	for (t = 0; t <= range * 1.000001; t += step) {
		double x = LEFT + t / range * (WIDTH - LEFT - RIGHT);

		svg_line(c->svg, x, TOP, x, bottom, SVG_GRID, 1);
		svg_text(c->svg, x, bottom + 17, "middle", 11, SVG_FAINT, "%.6g", t);
	}
	svg_text(c->svg, (LEFT + WIDTH - RIGHT) / 2, bottom + 38, "middle", 12, SVG_INK,
		 "time (%s)", unit);
	svg_line(c->svg, LEFT, TOP, LEFT, bottom, SVG_FAINT, 1);
	svg_line(c->svg, LEFT, bottom, WIDTH - RIGHT, bottom, SVG_FAINT, 1);
}

static void legend(const struct chart *c)
{
	double x = LEFT;

	for (size_t i = 0; i < PIECES; i++) {
		svg_rect(c->svg, x, 69, 12, 12, pieces[i].fill, NULL);
		svg_text(c->svg, x + 18, 79, "start", 12, SVG_INK, "%s", pieces[i].text);
		x += 42 + 6.2 * strlen(pieces[i].text);
	}
}

static void bar(const struct chart *c, uint64_t from, uint64_t to, double y, double h, int piece,
		const char *tip)
{
	double x = x_of(c, from), w = x_of(c, to) - x;

	if (to > from)
		svg_rect(c->svg, x, y, w > 0.4 ? w : 0.4, h, pieces[piece].fill,
			 c->tips ? tip : NULL);
}

static void draw_step(const struct chart *c, const struct flight *f, const struct flight_step *s,
		      double y, double h)
{
	bool reduces = s->what & NPULINK_STEP_REDUCE;
	const uint64_t ns[PIECES] = {
		[WAIT] = s->wait, [QUEUE] = s->queue, [MOVE] = reduces ? 0 : s->engine,
		[REDUCE] = reduces ? s->engine : 0, [TAKE] = s->take,
	};
	uint64_t at = s->start, end = flight_step_end(s);
	double x = x_of(c, s->start), w = x_of(c, end) - x;
	char tip[200], with[40] = "", time[16];

	if (s->nsteps > 1)
		snprintf(with, sizeof(with), ", %u inputs", s->nsteps + 1);
	else if (s->what & NPULINK_STEP_RECV)
		snprintf(with, sizeof(with), " from %u", s->recv_peer);
	if (s->what & NPULINK_STEP_SEND)
		snprintf(with + strlen(with), sizeof(with) - strlen(with), " to %u", s->send_peer);
	for (int i = 0; i < PIECES; i++) {
		snprintf(tip, sizeof(tip), "rank %u, step %u%s, %" PRIu64 " bytes: %s %s", f->rank,
			 s->step, with, s->len, pieces[i].name, human_time(ns[i] / 1e9, time));
		bar(c, at, at + ns[i], y, h, i, tip);
		at += ns[i];
	}
	/* Whom it is with, if there is room. */
	if (h >= 9 && w >= 16 && s->nsteps == 1 &&
	    s->what & (NPULINK_STEP_RECV | NPULINK_STEP_SEND)) {
		bool recv = s->what & NPULINK_STEP_RECV;

		svg_text(c->svg, x + 3, y + h / 2 + 3, "start", h < 11 ? 8 : 9, SVG_INK, "%s%u",
			 recv ? "\xe2\x86\x90" : "\xe2\x86\x92",
			 recv ? s->recv_peer : s->send_peer);
	}
}

/* The first lane that is free at @start, taken until @end; at the last one they overlap. */
static unsigned int lane(uint64_t lanes[MAX_LANES], uint64_t start, uint64_t end)
{
	unsigned int i = 0;

	while (i + 1 < MAX_LANES && lanes[i] > start)
		i++;
	lanes[i] = end;
	return i;
}

/* Steps that take no time need no place. */
static bool visible(const struct flight_step *s)
{
	return flight_step_end(s) > s->start;
}

static unsigned int count_lanes(const struct flight_log *log)
{
	unsigned int most = 1;

	for (size_t i = 0; i < log->n; i++) {
		uint64_t lanes[MAX_LANES] = { };

		for (size_t k = 0; k < log->v[i].nsteps; k++) {
			const struct flight_step *s = &log->v[i].steps[k];
			unsigned int at;

			if (!visible(s))
				continue;
			at = lane(lanes, s->start, flight_step_end(s)) + 1;
			most = at > most ? at : most;
		}
	}
	return most;
}

static void draw_rank(const struct chart *c, const struct flight *f, double y)
{
	double pad = c->row > 14 ? 3 : c->row * .1, foot = c->row > 14 ? 4 : 0;
	double h = (c->row - 2 * pad - foot) / c->lanes;
	uint64_t lanes[MAX_LANES] = { };
	char tip[160], name[100], time[16];

	for (size_t i = 0; i < f->nops && foot; i++) {
		const struct npulink_flight_op *op = &f->ops[i].k;
		uint64_t end = op->end ? op->end : c->to;

		snprintf(tip, sizeof(tip), "rank %u: %s, %s%s", f->rank,
			 flight_op_name(op, name, sizeof(name)),
			 human_time((end > op->start ? end - op->start : 0) / 1e9, time),
			 !op->end ? ", in flight" : op->status ? ", failed" : "");
		svg_rect(c->svg, x_of(c, op->start), y + c->row - pad - foot + 1.5,
			 x_of(c, end) - x_of(c, op->start), 2,
			 op->end && !op->status ? SVG_FAINT : SVG_RED, c->tips ? tip : NULL);
	}
	for (size_t i = 0; i < f->nsteps; i++) {
		const struct flight_step *s = &f->steps[i];

		if (visible(s))
			draw_step(c, f, s, y + pad + h * lane(lanes, s->start, flight_step_end(s)),
				  h > 3 ? h - 1 : h);
	}
}

/* From the first post to the last end. False: nothing ended. */
static bool find_range(struct chart *c, size_t *nbars)
{
	c->from = UINT64_MAX;
	*nbars = 0;
	for (size_t i = 0; i < c->log->n; i++) {
		const struct flight *f = &c->log->v[i];

		for (size_t k = 0; k < f->nops; k++) {
			const struct npulink_flight_op *op = &f->ops[k].k;
			uint64_t end = op->end ? op->end : f->now;

			c->from = op->start < c->from ? op->start : c->from;
			c->to = end > c->to ? end : c->to;
		}
		*nbars += f->nsteps;
	}
	return c->to > c->from;
}

static void headline(const struct chart *c, char *title, size_t size, char *detail, size_t dsize)
{
	const struct flight_log *log = c->log;
	const struct flight_run *run = log->nruns ? &log->runs[0] : NULL;
	char name[100], time[16], late[16];

	if (!run)
		snprintf(title, size, "point-to-point operations of %zu ranks", log->n);
	else if (log->nruns == 1)
		snprintf(title, size, "%s, %u rank%s of communicator %u",
			 flight_op_name(&run->op->k, name, sizeof(name)), run->nranks,
			 run->nranks == 1 ? "" : "s", run->comm);
	else
		snprintf(title, size, "%zu collectives on %zu ranks", log->nruns, log->n);
	snprintf(detail, dsize, "%s from the first post to the last end",
		 human_time((c->to - c->from) / 1e9, time));
	if (run && log->nruns == 1 && run->nranks > 1)
		snprintf(detail + strlen(detail), dsize - strlen(detail),
			 "; the last rank came %s after the first%s",
			 human_time((run->last_start - run->first_start) / 1e9, late),
			 run->end ? "" : "; it has not ended on all of them");
}

/* Ranks of which nothing is left have no row. */
static void drop_empty(struct flight_log *log)
{
	size_t n = 0;

	for (size_t i = 0; i < log->n; i++) {
		struct flight f = log->v[i];

		if (!f.nops)
			continue;
		log->v[i] = log->v[n];
		log->v[n++] = f;
	}
	log->n = n;
}

int trace_write_svg(const struct flight_log *log, const char *path)
{
	struct flight_log rows = *log;
	struct chart c = { .log = &rows };
	char title[200], detail[200];
	double height;
	size_t nbars;
	int rc;

	rows.v = malloc((log->n + 1) * sizeof(*rows.v));
	if (!rows.v)
		return fail("not enough memory");
	memcpy(rows.v, log->v, log->n * sizeof(*rows.v));
	drop_empty(&rows);
	rc = EXIT_FAILURE;
	if (!find_range(&c, &nbars)) {
		fail("nothing that took any time is on record");
		goto out;
	}
	if (nbars > MAX_BARS) {
		fail("%zu steps are too many for a picture; try a smaller --last", nbars);
		goto out;
	}
	c.tips = nbars <= 10000;
	c.lanes = count_lanes(&rows);
	c.row = rows.n > 128 ? 4 : rows.n > 64 ? 9 : rows.n > 16 ? 16 : 34;
	if (rows.n <= 64 && c.row < 12. * c.lanes + 10)
		c.row = rows.n > 16 ? 8 * c.lanes + 8 : 12 * c.lanes + 10;
	headline(&c, title, sizeof(title), detail, sizeof(detail));
	height = TOP + rows.n * c.row + BOTTOM;
	c.svg = svg_open(path, WIDTH, height, title);
	if (!c.svg)
		goto out;
	svg_text(c.svg, LEFT, 32, "start", 18, SVG_INK, "%s", title);
	svg_text(c.svg, LEFT, 52, "start", 12.5, SVG_FAINT, "%s", detail);
	draw_frame(&c);
	legend(&c);
	for (size_t i = 0; i < rows.n; i++)
		draw_rank(&c, &rows.v[i], TOP + i * c.row);
	rc = svg_close(c.svg, path);
out:
	free(rows.v);
	return rc;
}
