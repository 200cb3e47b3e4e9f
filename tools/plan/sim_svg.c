// SPDX-License-Identifier: GPL-2.0
/*
 * sim_svg.c - a simulation as a picture: time from left to right, a row for each
 * rank, in it what the rank sends (above) and what it receives and reduces (below).
 * Messages that had to wait for a link have a red line up to their start, and a red
 * mark where they found it taken. The pointer over a bar tells what it is.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cli/svg.h"
#include "plan/sim_log.h"

#define MAX_BARS	100000
#define WIDTH		1280.
#define LEFT		74.
#define RIGHT		24.
#define TOP		96.
#define BOTTOM		54.

#define MAX_TRACKS	8

/* Messages that a rank has at a time, one below the other. */
struct tracks {
	double free[MAX_TRACKS];
};

struct frame {
	const struct sim_log *log;
	FILE *svg;
	double seconds, row, height;
	bool reduces;
	struct tracks *out, *in;	/* of each rank */
	uint32_t ntracks;
};

static double x_of(const struct frame *f, double seconds)
{
	return LEFT + (f->seconds > 0 ? seconds / f->seconds : 0) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct frame *f, uint32_t rank)
{
	return TOP + rank * f->row;
}

/* Time in one unit for the whole axis. */
static const char *unit_of(double seconds, double *factor)
{
	*factor = seconds < 1e-6 ? 1e9 : seconds < 1e-3 ? 1e6 : seconds < 1 ? 1e3 : 1;
	return seconds < 1e-6 ? "ns" : seconds < 1e-3 ? "us" : seconds < 1 ? "ms" : "s";
}

static void draw_frame(const struct frame *f)
{
	uint32_t p = f->log->net.nranks, every = 1, i;
	double bottom = y_of(f, p), factor, step, t;
	const char *unit = unit_of(f->seconds, &factor);

	while (every * f->row < 13)
		every *= 2;
	for (i = 0; i < p; i++) {
		if (i % 2 && f->row >= 6)
			svg_rect(f->svg, LEFT, y_of(f, i), WIDTH - LEFT - RIGHT, f->row,
				 "#f7f9fb", NULL);
		if (i % every == 0)
			svg_text(f->svg, LEFT - 8, y_of(f, i) + f->row * .5 + 3.5, "end",
				 f->row < 16 ? 9 : 11, SVG_INK, "%u", i);
	}
	svg_text(f->svg, LEFT - 8, TOP - 10, "end", 11, SVG_FAINT, "rank");
	step = svg_step(f->seconds * factor, 10);
	for (t = 0; f->seconds > 0 && t <= f->seconds * factor * (1 + 1e-9); t += step) {
		double x = x_of(f, t / factor);

		svg_line(f->svg, x, TOP, x, bottom, SVG_GRID, 1);
		svg_text(f->svg, x, bottom + 17, "middle", 11, SVG_FAINT, "%.6g",
			 t);
	}
	svg_text(f->svg, (LEFT + WIDTH - RIGHT) / 2, bottom + 38, "middle", 12, SVG_INK,
		 "time (%s)", unit);
	svg_line(f->svg, LEFT, TOP, LEFT, bottom, SVG_FAINT, 1);
	svg_line(f->svg, LEFT, bottom, WIDTH - RIGHT, bottom, SVG_FAINT, 1);
}

static void legend(const struct frame *f)
{
	static const struct {
		const char *fill, *text;
		bool reduces, conflict;
	} items[] = {
		{ SVG_PALE, "sends to", false, false },
		{ SVG_BLUE, "receives from", false, false },
		{ SVG_ORANGE, "reduces", true, false },
		{ SVG_RED, "waits for a link that another message has", false, true },
	};
	double x = LEFT;

	for (size_t i = 0; i < ARRAY_SIZE(items); i++) {
		if (items[i].conflict && !coll_net_links(&f->log->net))
			continue;
		if (items[i].reduces && !f->reduces)
			continue;
		if (items[i].conflict)
			svg_rect(f->svg, x, 71.5, 12, 3, items[i].fill, NULL);
		else
			svg_rect(f->svg, x, 67, 12, 12, items[i].fill, NULL);
		svg_text(f->svg, x + 18, 77, "start", 12, SVG_INK, "%s", items[i].text);
		x += 44 + 6.6 * strlen(items[i].text);
	}
}

static void bar(const struct frame *f, double from, double to, double y, double h,
		const char *fill, const char *tip)
{
	double x = x_of(f, from), w = x_of(f, to) - x;

	/* A gap shows where one ends and the next begins. */
	svg_rect(f->svg, x, y, w > 3 ? w - 0.7 : w > 0.5 ? w : 0.5, h, fill,
		 f->log->nmessages <= 20000 ? tip : NULL);
}

/* Whom it is with, if there is room. */
static void name_peer(const struct frame *f, double from, double to, double y, double lane,
		      uint32_t peer, const char *fill)
{
	double x = x_of(f, from), w = x_of(f, to) - x;

	if (lane >= 8 && w >= (peer < 10 ? 10 : peer < 100 ? 15 : 21))
		svg_text(f->svg, x + w / 2, y + lane / 2 + 3.1, "middle", lane < 10 ? 8 : 9, fill,
			 "%u", peer);
}

/* The first track that is free from @from on, taken until @to. */
static uint32_t track(struct tracks *t, double from, double to)
{
	uint32_t i = 0;

	while (i + 1 < MAX_TRACKS && t->free[i] > from + 1e-9 * to)
		i++;
	t->free[i] = to;
	return i;
}

static void tracks_reset(struct frame *f)
{
	memset(f->out, 0, f->log->net.nranks * sizeof(*f->out));
	memset(f->in, 0, f->log->net.nranks * sizeof(*f->in));
}

static void count_tracks(struct frame *f)
{
	tracks_reset(f);
	f->ntracks = 1;
	for (size_t i = 0; i < f->log->nmessages; i++) {
		const struct coll_sim_message *m = &f->log->messages[i];
		uint32_t a = track(&f->out[m->src], m->start, m->end);
		uint32_t b = track(&f->in[m->dst], m->start, m->done);

		a = a > b ? a : b;
		f->ntracks = a >= f->ntracks ? a + 1 : f->ntracks;
	}
	tracks_reset(f);
}

static void draw_message(const struct frame *f, const struct coll_sim_message *m)
{
	double pad = f->row >= 12 ? f->row * .1 : f->row * .03;
	double lane = (f->row / 2 - pad) / f->ntracks, factor;
	double up = y_of(f, m->src) + pad + lane * track(&f->out[m->src], m->start, m->end);
	double down = y_of(f, m->dst) + f->row / 2 +
		      lane * track(&f->in[m->dst], m->start, m->done);
	const char *unit = unit_of(f->seconds, &factor);
	char tip[200];

	snprintf(tip, sizeof(tip),
		 "rank %u, step %u -> rank %u, step %u: %" PRIu64 " bytes, %.6g to %.6g %s",
		 m->src, m->src_step, m->dst, m->dst_step, m->len, m->start * factor,
		 m->end * factor, unit);
	if (f->ntracks > 1 && lane > 3)
		lane -= .6;
	bar(f, m->start, m->end, up, lane, SVG_PALE, tip);
	bar(f, m->start, m->end, down, lane, SVG_BLUE, tip);
	name_peer(f, m->start, m->end, up, lane, m->dst, SVG_INK);
	name_peer(f, m->start, m->end, down, lane, m->src, "#ffffff");
	if (m->done > m->end)
		bar(f, m->end, m->done, down, lane, SVG_ORANGE, "reduces");
}

static void draw_conflict(const struct frame *f, const struct coll_sim_conflict *c)
{
	char tip[240], link[COLL_NET_LINK_NAME];
	double y = y_of(f, c->src) + f->row * .28, r = f->row < 8 ? 1.6 : 3;

	snprintf(tip, sizeof(tip), "rank %u -> %u finds link %s taken by %u -> %u", c->src, c->dst,
		 coll_net_link_name(&f->log->net, c->link, link), c->by_src, c->by_dst);
	svg_dot(f->svg, x_of(f, c->time), y, r, SVG_RED, tip);
}

/* From when it was due to its start, for those that found a link taken. */
static void draw_waits(const struct frame *f, const bool *waited)
{
	for (size_t i = 0; i < f->log->nmessages; i++) {
		const struct coll_sim_message *m = &f->log->messages[i];

		if (waited[i] && m->start > m->due)
			svg_rect(f->svg, x_of(f, m->due), y_of(f, m->src) + f->row * .28 - 1,
				 x_of(f, m->start) - x_of(f, m->due), f->row < 8 ? 1 : 2, SVG_RED,
				 NULL);
	}
}

static int by_step(const void *a, const void *b)
{
	const struct coll_sim_conflict *x = a, *y = b;

	if (x->src != y->src)
		return x->src > y->src ? 1 : -1;
	return (x->src_step > y->src_step) - (x->src_step < y->src_step);
}

static int by_start(const void *a, const void *b)
{
	const struct coll_sim_message *x = a, *y = b;

	if (x->start != y->start)
		return x->start > y->start ? 1 : -1;
	if (x->src != y->src)
		return x->src > y->src ? 1 : -1;
	return (x->src_step > y->src_step) - (x->src_step < y->src_step);
}

static bool *find_waits(const struct sim_log *log)
{
	struct coll_sim_conflict *sorted = malloc((log->nconflicts + 1) * sizeof(*sorted));
	bool *waited = calloc(log->nmessages + 1, sizeof(*waited));

	if (sorted && waited) {
		if (log->nconflicts)
			memcpy(sorted, log->conflicts, log->nconflicts * sizeof(*sorted));
		qsort(sorted, log->nconflicts, sizeof(*sorted), by_step);
		for (size_t i = 0; i < log->nmessages; i++) {
			struct coll_sim_conflict key = {
				.src = log->messages[i].src, .src_step = log->messages[i].src_step,
			};

			waited[i] = bsearch(&key, sorted, log->nconflicts, sizeof(key), by_step);
		}
	}
	free(sorted);
	return waited;
}

int sim_log_svg(const struct sim_log *log, const struct query *q, const char *path)
{
	uint32_t p = log->net.nranks;
	struct frame f = {
		.log = log, .seconds = log->result.seconds,
		.reduces = npulink_coll_reduces(q->args.collective),
	};
	char title[240], time[16], detail[240];
	bool *waited = NULL;
	int rc;

	if (2 * log->nmessages + log->nconflicts > MAX_BARS)
		return fail("%zu messages are too many for a picture; try fewer ranks, or --trace",
			    log->nmessages);
	f.out = calloc(p, sizeof(*f.out));
	f.in = calloc(p, sizeof(*f.in));
	if (log->nmessages)
		qsort(log->messages, log->nmessages, sizeof(*log->messages), by_start);
	waited = find_waits(log);
	if (!f.out || !f.in || !waited) {
		rc = fail("not enough memory");
		goto out;
	}
	count_tracks(&f);
	f.row = p <= 16 ? 34 : p <= 64 ? 22 : p <= 128 ? 9 : 4;
	if (f.ntracks > 1 && p <= 32)
		f.row = f.ntracks > 4 ? 64 : 48;
	f.height = TOP + p * f.row + BOTTOM;
	query_title(q, title, sizeof(title));
	f.svg = svg_open(path, WIDTH, f.height, title);
	if (!f.svg) {
		rc = EXIT_FAILURE;
		goto out;
	}
	snprintf(detail, sizeof(detail), "%s on %s, %s rule; %" PRIu64 " messages",
		 human_time(f.seconds, time), q->net.net ? q->net.net : "a full mesh of links",
		 rule_name(log->rule), log->result.messages);
	if (coll_net_links(&log->net))
		snprintf(detail + strlen(detail), sizeof(detail) - strlen(detail),
			 "; %" PRIu64 " conflict%s", log->result.conflicts,
			 log->result.conflicts == 1 ? "" : "s");
	svg_text(f.svg, LEFT, 30, "start", 18, SVG_INK, "%s", title);
	svg_text(f.svg, LEFT, 50, "start", 12.5, SVG_FAINT, "%s", detail);
	draw_frame(&f);
	legend(&f);
	for (size_t i = 0; i < log->nmessages; i++)
		draw_message(&f, &log->messages[i]);
	draw_waits(&f, waited);
	for (size_t i = 0; i < log->nconflicts; i++)
		draw_conflict(&f, &log->conflicts[i]);
	rc = svg_close(f.svg, path);
out:
	free(f.out);
	free(f.in);
	free(waited);
	return rc;
}
