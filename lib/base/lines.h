/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * lines.h - files that people write.
 */
#ifndef COLL_BASE_LINES_H
#define COLL_BASE_LINES_H

#include <stddef.h>
#include <stdio.h>

/* @number: of the line that was read last; @text, @size: where to say what is wrong. */
struct coll_lines {
	const char *path;
	FILE *file;
	char *line;
	unsigned int number;
	char *text;
	size_t size;
};

int coll_lines_open(struct coll_lines *lines, const char *path, char *text, size_t size);
void coll_lines_close(struct coll_lines *lines);
int coll_lines_next(struct coll_lines *lines, char **line);
__attribute__((format(printf, 2, 3)))
int coll_lines_bad(struct coll_lines *lines, const char *fmt, ...);
char *coll_trim(char *s);

#endif /* COLL_BASE_LINES_H */
