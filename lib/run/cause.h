/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * cause.h - why a device cannot be had.
 */
#ifndef COLL_RUN_CAUSE_H
#define COLL_RUN_CAUSE_H

#include <stddef.h>

/* All give back @rc. */

int coll_cause_open(int rc, const char *path, char *text, size_t size);
int coll_cause_info(int rc, const char *path, char *text, size_t size);
int coll_cause_memory(int rc, size_t len, const char *what, char *text, size_t size);

#endif /* COLL_RUN_CAUSE_H */
