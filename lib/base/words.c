// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * words.c - words for error numbers, and texts that say what was wrong.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/base.h"
#include "coll.h"

const char *coll_strerror(int error)
{
	switch (error < 0 ? -error : error) {
	case 0:
		return "success";
	case EINPROGRESS:
		return "not done yet";
	case ECANCELED:
		return "the communicator was aborted";
	case ETIMEDOUT:
		return "timed out";
	case EOWNERDEAD:
		return "a rank has died";
	case ESHUTDOWN:
		return "a rank has left that is needed";
	case EPROTO:
		return "ranks called different things";
	case ENOLINK:
		return "a link was lost";
	case EIO:
		return "a device reported a fault";
	case EBADMSG:
		return "data arrived damaged";
	case EDEADLK:
		return "operations wait for each other in a circle";
	case ENODEV:
		return "the device has gone";
	case EADDRINUSE:
		return "the port is in use by another program";
	case EPROTONOSUPPORT:
		return "versions that do not fit together";
	case EPERM:
		return "not the process that made the communicator";
	case EBUSY:
		return "in use, or too much in flight";
	case EINVAL:
		return "invalid argument";
	case ENOMEM:
		return "out of memory, or over the limit on locked memory";
	case EFAULT:
		return "a buffer is not mapped, or not writable";
	case EOPNOTSUPP:
		return "not supported";
	case ENOENT:
		return "there is no such thing";
	case EEXIST:
		return "there is one already";
	case EACCES:
		return "no permission";
	case ESTALE:
		return "a buffer's memory has changed";
	case EDQUOT:
		return "too many files, objects, communicators or connections of this user, "
		       "or of its cgroup (rdma.max)";
	case EOVERFLOW:
		return "too large";
	default:
		return strerror(error < 0 ? -error : error);
	}
}

/* What it means here, and what the system calls it, by which one can look further. */
const char *coll_words(int rc, char *buf, size_t size)
{
	const char *here = coll_strerror(rc), *system = strerror(-rc);

	if (!strcmp(here, system))
		return here;
	snprintf(buf, size, "%s (%s)", here, system);
	return buf;
}

/* Failures of the communicator, as opposed to calls that were refused. */
bool coll_is_failure(int rc)
{
	switch (rc) {
	case -ECANCELED:
	case -ETIMEDOUT:
	case -EOWNERDEAD:
	case -ESHUTDOWN:
	case -EPROTO:
	case -ENOLINK:
	case -EIO:
	case -EBADMSG:
	case -EDEADLK:
	case -ENODEV:
		return true;
	default:
		return false;
	}
}

/* What others said goes to a terminal: no control characters, of ASCII or of UTF-8. */
static void make_plain(char *text)
{
	for (unsigned char *s = (unsigned char *)text; *s; s++)
		if (*s < ' ' || *s == 0x7f || (*s == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0))
			*s = '?';
}

/* Writes the text, if there is room for one. Gives back @rc. */
int coll_text(char *text, size_t size, int rc, const char *fmt, ...)
{
	va_list ap;

	if (text && size) {
		va_start(ap, fmt);
		vsnprintf(text, size, fmt, ap);
		va_end(ap);
		make_plain(text);
	}
	return rc;
}
