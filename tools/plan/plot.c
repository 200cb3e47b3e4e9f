// SPDX-License-Identifier: GPL-2.0
/*
 * plot.c - npulink plan plot: predicted time against message size, every
 * algorithm of a collective in one picture with logarithmic axes, and the lower
 * bound below them. Shows at a glance where one takes over from another.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/svg.h"
#include "lib/algorithm/algorithms.h"
#include "plan/options.h"

static const char plot_usage[] =
	"Usage: npulink [-j] plan plot COLLECTIVE [OPTION]...\n"
	"\n"
	"Draws the predicted time of every algorithm against the size of the whole buffer, as\n"
	"SVG on standard output.\n"
	"\n"
	"  -a, --algorithm NAME  only this one\n"
	"  -p, --ranks N         number of ranks (8)\n"
	"  -r, --root RANK       root, where there is one (0)\n"
	"      --from BYTES      smallest size (64)\n"
	"      --to BYTES        largest size (1G)\n"
	"      --chunks N        chunks of algorithms that work in a pipeline (the best number)\n"
	"      --svg FILE        write it there\n"
	NET_SHAPE_HELP
	NET_COST_HELP
	"  -j, --json            the points, as JSON\n";

#define POINTS_PER_DOUBLING	2
#define MAX_POINTS		(64 * POINTS_PER_DOUBLING)

struct curve {
	const struct coll_algorithm *alg;	/* NULL: the lower bound */
	double seconds[MAX_POINTS];		/* negative: cannot do it */
	bool any;
	double label_y;
	char label[160];			/* empty: the same as one before */
};

struct plot {
	const struct query *q;
	struct coll_cost_params params;
	uint64_t bytes[MAX_POINTS];
	uint32_t npoints;
	struct curve *curves;
	uint32_t ncurves;
	double least, most;
};

/* A call with that many bytes in the whole buffer, of whole elements and shards. */
static struct coll_args args_of(const struct query *q, uint64_t bytes, uint64_t *counts)
{
	struct coll_args args = q->args;
	uint32_t p = args.nranks;

	args.dtype = NPULINK_INT8;
	args.count = npulink_coll_has_blocks(args.collective) ? (bytes + p - 1) / p : bytes;
	args.counts = args.rcounts = NULL;
	if (!npulink_coll_is_v(args.collective))
		return args;
	for (uint32_t i = 0; i < p; i++)
		counts[i] = args.count;
	args.count = 0;
	args.counts = args.rcounts = counts;
	return args;
}

static void compute(struct plot *plot, struct curve *curve, uint64_t *counts)
{
	for (uint32_t i = 0; i < plot->npoints; i++) {
		struct coll_args args = args_of(plot->q, plot->bytes[i], counts);
		double t;

		if (!curve->alg)
			t = coll_bounds(&args, &plot->params).best;
		else if (curve->alg->supports && curve->alg->supports(&args))
			t = -1;
		else
			t = curve->alg->cost(&args, &plot->params);
		curve->seconds[i] = t > 0 ? t : -1;
		if (!(t > 0))
			continue;
		curve->any = true;
		if (t < plot->least || plot->least <= 0)
			plot->least = t;
		if (t > plot->most)
			plot->most = t;
	}
}

static int fill(struct plot *plot)
{
	const struct query *q = plot->q;
	uint64_t from = q->net.from ?: 64, to = q->net.to ?: 1ULL << 30, last = 0, bytes;
	uint64_t *counts = calloc(q->args.nranks, sizeof(*counts));
	const struct coll_algorithm *alg = NULL;
	uint32_t n = 1, i;

	if (from >= to || to > NPULINK_MAX_LEN) {
		free(counts);
		return usage_error("--from must be less than --to, and that no more than 1T");
	}
	for (i = 0; plot->npoints < MAX_POINTS; i++) {
		bytes = llround(from * pow(2, (double)i / POINTS_PER_DOUBLING));
		if (bytes > to)
			break;
		if (bytes != last)
			plot->bytes[plot->npoints++] = bytes;
		last = bytes;
	}
	while ((alg = coll_algorithm_next(q->args.collective, alg)))
		n++;
	plot->curves = calloc(n, sizeof(*plot->curves));
	if (!counts || !plot->curves) {
		free(counts);
		return fail("not enough memory");
	}
	while ((alg = coll_algorithm_next(q->args.collective, alg))) {
		struct curve *curve = &plot->curves[plot->ncurves];

		if (q->name && strcmp(q->name, alg->name))
			continue;
		curve->alg = alg;
		compute(plot, curve, counts);
		if (curve->any)
			plot->ncurves++;
	}
	if (!plot->ncurves) {
		free(counts);
		return fail("no algorithm has a form for that");
	}
	plot->curves[plot->ncurves].alg = NULL;
	compute(plot, &plot->curves[plot->ncurves], counts);
	if (plot->curves[plot->ncurves].any)
		plot->ncurves++;
	free(counts);
	return 0;
}

#define LABEL	36	/* characters that there is room for */

static const char *curve_name(const struct curve *curve)
{
	return curve->alg ? curve->alg->name : "lower bound";
}

/* Curves that lie on each other are drawn once, with all their names. */
static void merge(struct plot *plot)
{
	for (uint32_t n = 0; n < plot->ncurves; n++) {
		struct curve *c = &plot->curves[n], *same = NULL;
		size_t used;

		for (uint32_t k = 0; k < n && !same; k++) {
			uint32_t i = 0;

			while (i < plot->npoints &&
			       fabs(c->seconds[i] / plot->curves[k].seconds[i] - 1) < 1e-3)
				i++;
			if (i == plot->npoints && *plot->curves[k].label)
				same = &plot->curves[k];
		}
		if (same) {
			used = strlen(same->label);
			if (used + strlen(curve_name(c)) <= LABEL)
				snprintf(same->label + used, sizeof(same->label) - used, ", %s",
					 curve_name(c));
			else if (strcmp(same->label + used - 2, ".."))
				snprintf(same->label + used, sizeof(same->label) - used, ", ..");
		} else {
			snprintf(c->label, sizeof(c->label), "%s%s", curve_name(c),
				 c->alg && !c->alg->exact ? " (at most)" : "");
		}
	}
}

/* ---- the picture */

#define WIDTH	1240.
#define HEIGHT	720.
#define LEFT	84.
#define RIGHT	310.
#define TOP	84.
#define BOTTOM	64.

static double x_of(const struct plot *plot, double bytes)
{
	double lo = log(plot->bytes[0]), hi = log(plot->bytes[plot->npoints - 1]);

	return LEFT + (log(bytes) - lo) / (hi - lo) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct plot *plot, double seconds)
{
	double lo = log(plot->least) - .1, hi = log(plot->most) + .1;

	return HEIGHT - BOTTOM - (log(seconds) - lo) / (hi - lo) * (HEIGHT - TOP - BOTTOM);
}

static void short_bytes(double bytes, char buf[16])
{
	static const char *const units[] = { "", "K", "M", "G", "T" };
	unsigned int u = 0;

	for (; bytes >= 1024 && u < 4; u++)
		bytes /= 1024;
	snprintf(buf, 16, "%g%s", bytes, units[u]);
}

static void short_time(double seconds, char buf[16])
{
	static const char *const units[] = { "ns", "us", "ms", "s" };
	unsigned int u = 0;

	for (seconds *= 1e9; seconds >= 999.9 && u < 3; u++)
		seconds /= 1e3;
	snprintf(buf, 16, "%.3g %s", seconds, units[u]);
}

static void axes(const struct plot *plot, FILE *svg)
{
	double first = plot->bytes[0], last = plot->bytes[plot->npoints - 1], b, t;
	double right = WIDTH - RIGHT, bottom = HEIGHT - BOTTOM, every;
	char text[16];
	int digit;

	every = last / first > 1 << 14 ? 16 : last / first > 1 << 7 ? 4 : 2;
	for (b = exp2(ceil(log2(first))); b <= last; b *= every) {
		svg_line(svg, x_of(plot, b), TOP, x_of(plot, b), bottom, SVG_GRID, 1);
		short_bytes(b, text);
		svg_text(svg, x_of(plot, b), bottom + 19, "middle", 12, SVG_FAINT, "%s", text);
	}
	for (t = pow(10, floor(log10(plot->least))); t < plot->most * 1.2; t *= 10) {
		for (digit = 1; digit < 10; digit++) {
			double y = y_of(plot, t * digit);
			bool named = digit == 1 || (plot->most / plot->least < 100 &&
						    (digit == 2 || digit == 5));

			if (y > bottom || y < TOP)
				continue;
			svg_line(svg, LEFT, y, right, y, digit == 1 ? "#cbd2d9" : "#f0f2f4", 1);
			short_time(t * digit, text);
			if (named)
				svg_text(svg, LEFT - 9, y + 4, "end", 12, SVG_FAINT, "%s", text);
		}
	}
	svg_line(svg, LEFT, TOP, LEFT, bottom, SVG_FAINT, 1);
	svg_line(svg, LEFT, bottom, right, bottom, SVG_FAINT, 1);
	svg_text(svg, (LEFT + right) / 2, bottom + 44, "middle", 13, SVG_INK,
		 "bytes in the whole buffer");
	svg_text(svg, LEFT - 9, TOP - 12, "end", 13, SVG_INK, "time");
}

static void draw_curve(const struct plot *plot, FILE *svg, uint32_t n)
{
	const struct curve *curve = &plot->curves[n];
	bool bound = !curve->alg, down = false;

	fprintf(svg, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"%s\" stroke-dasharray=\"%s\" "
		"stroke-linejoin=\"round\" d=\"", bound ? SVG_INK : svg_colour(n),
		bound ? "1.4" : "2.2", bound ? "3 4" : svg_dash(n));
	for (uint32_t i = 0; i < plot->npoints; i++) {
		if (curve->seconds[i] > 0)
			fprintf(svg, "%c%.2f %.2f", down ? 'L' : 'M', x_of(plot, plot->bytes[i]),
				y_of(plot, curve->seconds[i]));
		down = curve->seconds[i] > 0;
	}
	fprintf(svg, "\"><title>%s</title></path>\n", curve_name(curve));
}

/* In the order of the curves' right ends, pushed apart so that names can be read. */
static void legend(const struct plot *plot, FILE *svg)
{
	uint32_t order[128], n = 0, i, j;
	double x = WIDTH - RIGHT, gap = 19, y, total;

	for (i = 0; i < plot->ncurves && n < ARRAY_SIZE(order); i++) {
		struct curve *c = &plot->curves[i];

		if (!*c->label)
			continue;
		for (j = plot->npoints - 1; j && c->seconds[j] < 0;)
			j--;
		c->label_y = y_of(plot, c->seconds[j]);
		for (j = n++; j && plot->curves[order[j - 1]].label_y > c->label_y; j--)
			order[j] = order[j - 1];
		order[j] = i;
	}
	total = n * gap;
	if (total > HEIGHT - TOP - BOTTOM)
		gap = (HEIGHT - TOP - BOTTOM) / n;
	for (y = TOP - gap / 2, i = 0; i < n; i++) {
		struct curve *c = &plot->curves[order[i]];
		double want = c->label_y, last = HEIGHT - BOTTOM - (n - 1 - i) * gap;

		y = want > y + gap ? want : y + gap;
		y = y < last ? y : last;
		svg_line(svg, x + 2, c->label_y, x + 20, y, SVG_GRID, 1);
		fprintf(svg, "<path d=\"M%.1f %.1fh24\" fill=\"none\" stroke=\"%s\" stroke-width=\"2.5\" "
			"stroke-dasharray=\"%s\"/>\n", x + 22, y,
			c->alg ? svg_colour(order[i]) : SVG_INK,
			c->alg ? svg_dash(order[i]) : "3 4");
		svg_text(svg, x + 53, y + 4, "start", 12.5, SVG_INK, "%s", c->label);
	}
}

static int draw(const struct plot *plot)
{
	const struct query *q = plot->q;
	const char *path = q->net.svg ? q->net.svg : "-";
	char title[160], t[16], s1[24], s2[24];
	FILE *svg;

	snprintf(title, sizeof(title), "%s on %u ranks", coll_collective_name(q->args.collective),
		 q->args.nranks);
	svg = svg_open(path, WIDTH, HEIGHT, title);
	if (!svg)
		return EXIT_FAILURE;
	svg_text(svg, LEFT, 32, "start", 19, SVG_INK, "%s", title);
	svg_text(svg, LEFT, 53, "start", 12.5, SVG_FAINT,
		 "predicted by the closed forms: alpha %s per message, beta %s moved, gamma %s reduced, %s",
		 human_time(plot->params.alpha, t), human_speed(plot->params.beta, s1),
		 human_speed(plot->params.gamma, s2),
		 plot->params.ports > 1 ? "a port for each peer" : "one port");
	axes(plot, svg);
	for (uint32_t i = plot->ncurves; i-- > 0;)
		if (*plot->curves[i].label)
			draw_curve(plot, svg, i);
	legend(plot, svg);
	return svg_close(svg, path);
}

static void points(const struct plot *plot)
{
	struct json_object *obj = json_object_new_object(), *array, *curves, *curve;

	put_str(obj, "collective", coll_collective_name(plot->q->args.collective));
	put_u64(obj, "ranks", plot->q->args.nranks);
	array = json_object_new_array();
	for (uint32_t i = 0; i < plot->npoints; i++)
		json_object_array_add(array, json_object_new_uint64(plot->bytes[i]));
	json_object_object_add(obj, "bytes", array);
	curves = json_object_new_array();
	for (uint32_t n = 0; n < plot->ncurves; n++) {
		curve = json_object_new_object();
		put_str(curve, "algorithm",
			plot->curves[n].alg ? plot->curves[n].alg->name : NULL);
		array = json_object_new_array();
		for (uint32_t i = 0; i < plot->npoints; i++)
			json_object_array_add(array, plot->curves[n].seconds[i] < 0 ? NULL :
				json_object_new_double(plot->curves[n].seconds[i]));
		json_object_object_add(curve, "seconds", array);
		json_object_array_add(curves, curve);
	}
	json_object_object_add(obj, "curves", curves);
	json_print(obj);
}

int plan_plot(int argc, char **argv)
{
	struct plot plot = { };
	struct query q;
	int rc;

	rc = query_parse(&q, argc, argv, "a:p:r:", plot_usage);
	if (rc < 0) {
		plot.q = &q;
		rc = net_params(&q.net, q.args.nranks, &plot.params);
		if (!rc && q.args.collective == NPULINK_COLL_BARRIER)
			rc = usage_error("a barrier has no size to plot against");
		if (!rc)
			rc = fill(&plot);
		if (!rc && opts.json) {
			points(&plot);
		} else if (!rc) {
			merge(&plot);
			rc = draw(&plot);
		}
		free(plot.curves);
	}
	query_free(&q);
	return rc;
}
