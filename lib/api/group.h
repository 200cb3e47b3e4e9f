/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * group.h - calls that are collected.
 */
#ifndef COLL_API_GROUP_H
#define COLL_API_GROUP_H

#include "run/group_kept.h"

int coll_group_refuse(struct coll_comm *comm, int rc);
struct coll_group *coll_group_mine(const struct coll_comm *comm);
int coll_group_add(struct coll_comm *comm, struct coll_request *req);
void coll_group_free_all(struct coll_comm *comm);
int coll_group_start_all(struct coll_comm *comm, unsigned int n, struct coll_request **requests);

#endif /* COLL_API_GROUP_H */
