/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * graphs.h - collectives in one go, and without the kernel, on ("Y") and off ("N").
 */
#ifndef SELFTESTS_GRAPHS_H
#define SELFTESTS_GRAPHS_H

#include <fcntl.h>
#include <unistd.h>

#define GRAPHS	"/sys/module/npulink/parameters/graphs"
#define BOARDS	"/sys/module/npulink/parameters/boards"

static inline int set_parameter(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), rc;

	if (fd < 0)
		return -1;
	rc = write(fd, value, 1) == 1 ? 0 : -1;
	close(fd);
	return rc;
}

static inline int set_graphs(const char *value)
{
	return set_parameter(GRAPHS, value);
}

static inline int set_boards(const char *value)
{
	return set_parameter(BOARDS, value);
}

#endif /* SELFTESTS_GRAPHS_H */
