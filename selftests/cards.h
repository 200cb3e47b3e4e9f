/* SPDX-License-Identifier: GPL-2.0 */
/*
 * cards.h - what tests in C do with NPU cards: orders for their process (tools/vm/card/README.md),
 * and resets.
 */
#ifndef CARDS_H
#define CARDS_H

#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include "backends.h"

/* False: no answer. */
static inline bool card_order(const char *text)
{
	const char *results = getenv("NPULINK_RESULTS") ?: "/nowhere";
	char part[PATH_MAX], path[PATH_MAX], done[PATH_MAX];
	FILE *file;

	snprintf(part, sizeof(part), "%s/order", results);
	snprintf(path, sizeof(path), "%s/card.do", results);
	snprintf(done, sizeof(done), "%s/card.done", results);
	unlink(done);
	file = fopen(part, "w");
	if (!file)
		return false;
	fprintf(file, "%s\n", text);
	return !fclose(file) && !rename(part, path) && RAW_EVENTUALLY(!access(done, F_OK));
}

/* Attribute @name of the cards' PCI function, found anew. */
static inline bool card_sysfs(const char *name, const char *text)
{
	char path[256];
	bool good = false;
	glob_t found;
	int fd;

	snprintf(path, sizeof(path), "/sys/bus/pci/drivers/npulink_pci/0*/%s", name);
	if (glob(path, 0, NULL, &found))
		return false;
	fd = open(found.gl_pathv[0], O_WRONLY);
	if (fd >= 0) {
		good = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
		close(fd);
	}
	globfree(&found);
	return good;
}

static inline bool card_reset(void)
{
	return card_sysfs("reset", "1");
}

#endif /* CARDS_H */
