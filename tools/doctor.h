/* SPDX-License-Identifier: GPL-2.0 */
/*
 * doctor.h - findings of npulink doctor, for the files that look for them.
 */
#ifndef TOOL_DOCTOR_H
#define TOOL_DOCTOR_H

#include "npulink.h"

/* The worst one counts; what was not tested, does not. */
enum severity { UNTESTED, OK, WARNING, ERROR, SEVERITIES };

/* One thing that was looked at. */
struct finding {
	enum severity severity;
	const char *check;
	char text[400];
	char fix[400];		/* empty if there is nothing to do */
};

__printf(3, 4)
struct finding *found(enum severity severity, const char *check, const char *format, ...);
/* What to do about it. */
__printf(2, 3) void fix(struct finding *finding, const char *format, ...);

/* doctor_links.c */
void check_links(void);
void check_peers(void);

#endif /* TOOL_DOCTOR_H */
