/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * base.h - what all files of libcoll may use.
 */
#ifndef COLL_BASE_BASE_H
#define COLL_BASE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef ARRAY_SIZE
#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
#endif
/* Kept together: what calls run that are met on the board, see hot.h in kernel/core. */
#define COLL_HOT	__attribute__((hot))
#define COLL_TEXT	1024
#define COLL_NEVER	UINT64_MAX

_Static_assert(sizeof(size_t) == sizeof(uint64_t), "libcoll is for 64-bit machines");

uint64_t coll_now_ns(void);

int coll_text(char *text, size_t size, int rc, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
bool coll_is_failure(int rc);
const char *coll_words(int rc, char *buf, size_t size);

#endif /* COLL_BASE_BASE_H */
