/* SPDX-License-Identifier: GPL-2.0 */
/*
 * doctor.h - findings of npulink doctor, for the files that look for them.
 */
#ifndef TOOL_DOCTOR_H
#define TOOL_DOCTOR_H

#include "cli/npulink.h"

/* The worst one counts; what was not tested, does not. */
enum severity { UNTESTED, OK, WARNING, ERROR, SEVERITIES };

/* One thing that was looked at. */
struct finding {
	enum severity severity;
	const char *check;
	char text[1000];	/* longer than any CAUSE_TEXT */
	char fix[400];		/* empty if there is nothing to do */
};

__printf(3, 4)
struct finding *found(enum severity severity, const char *check, const char *format, ...);
/* What to do about it. */
__printf(2, 3) void fix(struct finding *finding, const char *format, ...);

/* First line of a file, without its end; false if it cannot be read. */
bool read_line(const char *path, char *buf, size_t size);
/* Of who runs this. */
const char *own_name(void);
/* Here ids and capabilities are those of the machine, not of a container. */
bool in_initial_userns(void);

/* module.c; check_module(): is it loaded? */
void fix_module(void);
bool check_module(void);
void check_backends(void);
void check_signature(void);
void check_library(void);

/* devices.c */
void check_devices(void);
void check_netlink(void);

/* links.c */
void check_links(void);
void check_peers(void);

/* jobs.c */
void check_jobs(void);

/* node.c; @need: bytes that are wanted for buffers */
void check_kernel(void);
void check_iommu(void);
void check_rdma(void);
void check_memlock(uint64_t need);
void check_cgroup(uint64_t need);

#endif /* TOOL_DOCTOR_H */
