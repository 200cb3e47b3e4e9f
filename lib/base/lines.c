// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * lines.c - files of lines that people write. Whatever is not text is an error: a directory,
 * a file that cannot be read to its end, and what editors of other systems put in.
 */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/base.h"
#include "base/lines.h"

/* No line that makes sense is longer; /dev/zero is one without an end. */
#define LONGEST_LINE	4096

int coll_lines_open(struct coll_lines *lines, const char *path, char *text, size_t size)
{
	struct stat st;
	int rc = 0;

	*lines = (struct coll_lines) { .path = path, .text = text, .size = size };
	lines->line = malloc(LONGEST_LINE);
	lines->file = lines->line ? fopen(path, "re") : NULL;
	if (!lines->line)
		rc = -ENOMEM;
	else if (!lines->file || fstat(fileno(lines->file), &st))
		rc = -errno;
	else if (S_ISDIR(st.st_mode))
		rc = -EISDIR;
	if (!rc)
		return 0;
	coll_lines_close(lines);
	return coll_text(text, size, rc, "cannot read %s: %s", path, strerror(-rc));
}

void coll_lines_close(struct coll_lines *lines)
{
	if (lines->file)
		fclose(lines->file);
	free(lines->line);
	lines->file = NULL;
	lines->line = NULL;
}

/* The line that was read last makes no sense. */
int coll_lines_bad(struct coll_lines *lines, const char *fmt, ...)
{
	char what[300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	return coll_text(lines->text, lines->size, -EINVAL, "%s, line %u: %s", lines->path,
			 lines->number, what);
}

/* What is wrong with the next line, or NULL; *more: there is one. */
static const char *read_line(struct coll_lines *lines, bool *more)
{
	size_t n = 0;
	int c;

	while ((c = getc_unlocked(lines->file)) != EOF && c != '\n') {
		if (!c)
			return "there is a byte 0 in it, so this is no text, or not UTF-8";
		if (n == LONGEST_LINE - 1)
			return "it is too long";
		lines->line[n++] = c;
	}
	lines->line[n] = 0;
	*more = n || c != EOF;
	return NULL;
}

/* 1: the next line that says something, without comment and blanks around it; 0: the end. */
int coll_lines_next(struct coll_lines *lines, char **line)
{
	const char *bad;
	bool more;

	do {
		lines->number++;
		errno = 0;
		bad = read_line(lines, &more);
		if (ferror(lines->file))
			return coll_text(lines->text, lines->size, errno ? -errno : -EIO,
					 "cannot read %s, line %u: %s", lines->path,
					 lines->number, strerror(errno ? errno : EIO));
		if (!bad && lines->number == 1 && !strncmp(lines->line, "\xef\xbb\xbf", 3))
			bad = "it begins with a byte order mark: save it as UTF-8 without that";
		if (bad)
			return coll_lines_bad(lines, "%s", bad);
		*line = coll_trim(lines->line);
	} while (more && !**line);
	return more;
}

/* Strips blanks at both ends; the comment goes, too. */
char *coll_trim(char *s)
{
	char *end;

	s[strcspn(s, "#\n")] = 0;
	while (isspace((unsigned char)*s))
		s++;
	end = s + strlen(s);
	while (end > s && isspace((unsigned char)end[-1]))
		*--end = 0;
	return s;
}
