/* SPDX-License-Identifier: GPL-2.0 */
/*
 * typical.h - who comes late to most collectives, and not only once.
 */
#ifndef TOOL_TYPICAL_H
#define TOOL_TYPICAL_H

#include "trace/flight.h"

#define WORTH	10000000	/* ns lost, below which nobody is accused */

/* Of one recorder. Times in ns: how much later than most others it called. */
struct typical {
	uint64_t runs, later, last;	/* collectives; after most others, and after all */
	uint64_t median, worst;
	uint64_t period;		/* from one call to the next, mostly */
	uint32_t nranks;		/* recorded ranks of its communicator */
};

/* One for each recorder of @log, to be freed; NULL: no memory. */
struct typical *typical_find(const struct flight_log *log);
bool typical_is_late(const struct typical *t);
/* Sorts @v. */
uint64_t median(uint64_t *v, size_t n);

#endif /* TOOL_TYPICAL_H */
