/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * scripts.h - collectives in one go, on ("Y") and off ("N").
 */
#ifndef SELFTESTS_SCRIPTS_H
#define SELFTESTS_SCRIPTS_H

#include <fcntl.h>
#include <unistd.h>

#define SCRIPTS	"/sys/module/npulink/parameters/scripts"

static inline int set_scripts(const char *value)
{
	int fd = open(SCRIPTS, O_WRONLY | O_CLOEXEC), rc;

	if (fd < 0)
		return -1;
	rc = write(fd, value, 1) == 1 ? 0 : -1;
	close(fd);
	return rc;
}

#endif /* SELFTESTS_SCRIPTS_H */
