// SPDX-License-Identifier: GPL-2.0
/*
 * svg.c - writing pictures. What is written is XML that any browser shows and that
 * compresses well; numbers have two places, which is finer than a pixel.
 */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "cli/npulink.h"
#include "cli/svg.h"

static void escaped(FILE *svg, const char *text)
{
	for (; *text; text++) {
		switch (*text) {
		case '&':
			fputs("&amp;", svg);
			break;
		case '<':
			fputs("&lt;", svg);
			break;
		case '>':
			fputs("&gt;", svg);
			break;
		case '"':
			fputs("&quot;", svg);
			break;
		default:
			fputc(*text, svg);
		}
	}
}

FILE *svg_open(const char *path, double width, double height, const char *title)
{
	FILE *svg = output_open(path);

	if (!svg)
		return NULL;
	fprintf(svg, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
		"viewBox=\"0 0 %.0f %.0f\" font-family=\"Helvetica,Arial,sans-serif\">\n<title>",
		width, height, width, height);
	escaped(svg, title);
	fprintf(svg, "</title>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n");
	return svg;
}

int svg_close(FILE *svg, const char *path)
{
	fprintf(svg, "</svg>\n");
	return output_close(svg, path, false);
}

void svg_text(FILE *svg, double x, double y, const char *anchor, double size, const char *fill,
	      const char *format, ...)
{
	char text[400];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fprintf(svg, "<text x=\"%.2f\" y=\"%.2f\" text-anchor=\"%s\" font-size=\"%.1f\" fill=\"%s\">",
		x, y, anchor, size, fill);
	escaped(svg, text);
	fprintf(svg, "</text>\n");
}

void svg_line(FILE *svg, double x1, double y1, double x2, double y2, const char *stroke,
	      double width)
{
	fprintf(svg, "<path d=\"M%.2f %.2fL%.2f %.2f\" stroke=\"%s\" stroke-width=\"%.2f\"/>\n", x1,
		y1, x2, y2, stroke, width);
}

/* Closes a shape whose attributes are written, with a text for the pointer. */
static void close_shape(FILE *svg, const char *shape, const char *tip)
{
	if (!tip) {
		fprintf(svg, "/>\n");
		return;
	}
	fprintf(svg, "><title>");
	escaped(svg, tip);
	fprintf(svg, "</title></%s>\n", shape);
}

void svg_rect(FILE *svg, double x, double y, double w, double h, const char *fill,
	      const char *tip)
{
	fprintf(svg, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"", x, y,
		w, h, fill);
	close_shape(svg, "rect", tip);
}

void svg_dot(FILE *svg, double x, double y, double r, const char *fill, const char *tip)
{
	fprintf(svg, "<circle cx=\"%.2f\" cy=\"%.2f\" r=\"%.2f\" fill=\"%s\"", x, y, r, fill);
	close_shape(svg, "circle", tip);
}

const char *svg_colour(unsigned int n)
{
	static const char *const colours[] = {
		"#3b7dd8", "#f0932b", "#2a9d6f", "#d7263d", "#8e5bd0", "#8c6d46", "#d667a8",
		"#5b6770", "#17a2b8", "#b5a100",
	};

	return colours[n % ARRAY_SIZE(colours)];
}

const char *svg_dash(unsigned int n)
{
	static const char *const dashes[] = { "none", "7 3", "2 3", "9 3 2 3" };

	return dashes[n / 10 % ARRAY_SIZE(dashes)];
}

double svg_step(double range, unsigned int n)
{
	double rough = range / n, power, digit;

	if (!(rough > 0))
		return 1;
	power = pow(10, floor(log10(rough)));
	digit = rough / power;
	return power * (digit < 1.5 ? 1 : digit < 3.5 ? 2 : digit < 7.5 ? 5 : 10);
}
