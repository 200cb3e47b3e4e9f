/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * error.h - what went wrong, where, and what to do about it.
 */
#ifndef COLL_RUN_ERROR_H
#define COLL_RUN_ERROR_H

#include <stddef.h>
#include <stdint.h>
#include <linux/npulink.h>
#include "plan/plan.h"

struct coll_comm;
struct coll_operation;

void coll_errors_free(struct coll_comm *comm);
int coll_fail(struct coll_comm *comm, int rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int coll_fail_op(const struct coll_operation *op, int rc);
int coll_fail_plan(struct coll_comm *comm, const struct coll_args *args, int rc,
		   const struct npulink_plan_create *refused);
int coll_fail_pin(struct coll_comm *comm, const struct coll_args *args, const void *addr,
		  size_t len, int rc);
void coll_describe(const struct coll_args *args, char *text, size_t size);
/* Why a connection between machines was lost, by the code of the cause. */
const char *coll_lost_text(uint32_t error);
void coll_machine_name(const struct coll_comm *comm, const struct npulink_comm_status *st,
		       char *name, size_t size);

#endif /* COLL_RUN_ERROR_H */
