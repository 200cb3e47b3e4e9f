/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * fresh.h - blocking calls that have not come before, and may not come again.
 */
#ifndef COLL_RUN_FRESH_H
#define COLL_RUN_FRESH_H

#include <stdbool.h>
#include <stdint.h>

struct coll_operation;

#define COLL_FRESH_SEEN	64

/**
 * struct coll_fresh - what a communicator knows of them
 * @seen: hashes of calls that were fresh, each in its place: the next one makes a plan
 */
struct coll_fresh {
	uint64_t seen[COLL_FRESH_SEEN];
};

enum coll_fresh_is {
	COLL_FRESH_NOT,		/* nothing was tried */
	COLL_FRESH_AGAIN,	/* nothing was tried: it has come before, and may be kept */
	COLL_FRESH_FELL,	/* it has to be posted */
	COLL_FRESH_MET,
};

enum coll_fresh_is coll_fresh_try(struct coll_operation *op);

#endif /* COLL_RUN_FRESH_H */
