// SPDX-License-Identifier: GPL-2.0
/*
 * libfail.c - for LD_PRELOAD: FAIL="CALL N ERRNO" makes the Nth call and all later ones fail,
 * of socket, sendmsg, recvmsg, ioctl (of npulink's devices), open (of their nodes), or fopen
 * (of FAIL_PATH).
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <linux/npulink.h>

#define REAL(name)	((__typeof__(name) *)dlsym(RTLD_NEXT, #name))

static bool fails(const char *call)
{
	const char *text = getenv("FAIL");
	static unsigned int calls;
	char which[16];
	unsigned int n;
	int error;

	if (!text || sscanf(text, "%15s %u %d", which, &n, &error) != 3 || strcmp(which, call) ||
	    ++calls < n)
		return false;
	errno = error;
	return true;
}

int socket(int domain, int type, int protocol)
{
	return fails("socket") ? -1 : REAL(socket)(domain, type, protocol);
}

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	return fails("sendmsg") ? -1 : REAL(sendmsg)(fd, msg, flags);
}

ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	return fails("recvmsg") ? -1 : REAL(recvmsg)(fd, msg, flags);
}

int open(const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list ap;

	va_start(ap, flags);
	if (flags & O_CREAT)
		mode = va_arg(ap, mode_t);
	va_end(ap);
	return !strncmp(path, "/dev/npulink/", 13) && fails("open") ? -1 :
	       REAL(open)(path, flags, mode);
}

int ioctl(int fd, unsigned long cmd, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	return _IOC_TYPE(cmd) == NPULINK_TYPE && fails("ioctl") ? -1 : REAL(ioctl)(fd, cmd, arg);
}

FILE *fopen(const char *path, const char *mode)
{
	const char *which = getenv("FAIL_PATH");

	return which && !strcmp(which, path) && fails("fopen") ? NULL : REAL(fopen)(path, mode);
}
