/* SPDX-License-Identifier: GPL-2.0 */
/*
 * svg.h - writing pictures: a few shapes, and axes.
 */
#ifndef TOOL_SVG_H
#define TOOL_SVG_H

#include <stdio.h>

/* Colours that go together, also for those who do not tell red from green. */
#define SVG_INK		"#1f2933"
#define SVG_FAINT	"#7b8794"
#define SVG_GRID	"#e4e7eb"
#define SVG_BLUE	"#3b7dd8"
#define SVG_PALE	"#a9c7ef"
#define SVG_ORANGE	"#f0932b"
#define SVG_RED		"#d7263d"

/* NULL after a complaint. "-" is standard output. */
FILE *svg_open(const char *path, double width, double height, const char *title);
/* 0 or EXIT_FAILURE. */
int svg_close(FILE *svg, const char *path);

/* @anchor: "start", "middle", "end"; the text is escaped. */
void svg_text(FILE *svg, double x, double y, const char *anchor, double size, const char *fill,
	      const char *format, ...) __attribute__((format(printf, 7, 8)));
void svg_line(FILE *svg, double x1, double y1, double x2, double y2, const char *stroke,
	      double width);
/* Text that shows when the pointer is over it, or NULL. */
void svg_rect(FILE *svg, double x, double y, double w, double h, const char *fill,
	      const char *tip);
void svg_dot(FILE *svg, double x, double y, double r, const char *fill, const char *tip);

/* The nth of a number of well distinguishable colours, and how to dash its line. */
const char *svg_colour(unsigned int n);
const char *svg_dash(unsigned int n);

/* A round step for an axis that is to have about @n marks. */
double svg_step(double range, unsigned int n);

#endif /* TOOL_SVG_H */
