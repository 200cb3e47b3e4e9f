// SPDX-License-Identifier: GPL-2.0
/*
 * output.c - files that a command writes: whole, or as they were before. On a full disk, or if the
 * command is interrupted, half of one would be taken for what it should have become.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cli/npulink.h"

/* What @path is written as first; NULL: as itself, because it is no file, or a link. */
static char *temp_name(const char *path)
{
	struct stat st;
	char *temp;

	if (!lstat(path, &st) && !S_ISREG(st.st_mode))
		return NULL;
	return asprintf(&temp, "%s.new", path) < 0 ? NULL : temp;
}

/* "-", and no path at all, are standard output. NULL after a complaint. */
FILE *output_open(const char *path)
{
	char *temp;
	FILE *f;

	if (!path || !strcmp(path, "-"))
		return stdout;
	temp = temp_name(path);
	/* What must not be written is not replaced either. */
	if (temp && access(path, W_OK) && errno != ENOENT)
		f = NULL;
	else
		f = fopen(temp ? temp : path, "we");
	free(temp);
	if (!f)
		fail("cannot write %s: %s", path, strerror(errno));
	return f;
}

/* @bad: what was written is not worth keeping. 0, or EXIT_FAILURE after a complaint. */
int output_close(FILE *f, const char *path, bool bad)
{
	int error = errno ? errno : EIO;	/* of what has failed before, if that did */
	struct stat st, old;
	char *temp;

	if (fflush(f)) {
		bad = true;
		error = errno;
	}
	bad |= ferror(f);
	if (f == stdout)
		return bad ? fail("cannot write standard output: %s", strerror(error)) : 0;
	temp = temp_name(path);
	if (temp && !stat(path, &old) && !fstat(fileno(f), &st)) {
		fchmod(fileno(f), old.st_mode & 07777);
		if (old.st_uid != st.st_uid || old.st_gid != st.st_gid)
			bad |= fchown(fileno(f), old.st_uid, old.st_gid) && errno != EPERM;
	}
	if (fclose(f) && !bad) {
		bad = true;
		error = errno;
	}
	if (temp && !bad && rename(temp, path)) {
		bad = true;
		error = errno;
	}
	if (temp && bad)
		unlink(temp);
	free(temp);
	return bad ? fail("cannot write %s: %s", path, strerror(error)) : 0;
}
