/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * loopback.h - for what meets over sockets of this machine.
 */
#ifndef SELFTESTS_LOOPBACK_H
#define SELFTESTS_LOOPBACK_H

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A TCP port that nobody listens at, now. */
static inline unsigned int loopback_port(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) ||
	    getsockname(fd, (struct sockaddr *)&a, &len))
		abort();
	close(fd);
	return ntohs(a.sin_port);
}

/* How many sockets this process has. */
static inline unsigned int open_sockets(void)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	unsigned int n = 0;
	char target[64];

	while (dir && (entry = readdir(dir))) {
		ssize_t len = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target));

		n += len > 7 && !memcmp(target, "socket:", 7);
	}
	if (dir)
		closedir(dir);
	return n;
}

#endif /* SELFTESTS_LOOPBACK_H */
