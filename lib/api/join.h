/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * join.h - how communicators are made, by those who find the other ranks.
 */
#ifndef COLL_API_JOIN_H
#define COLL_API_JOIN_H

#include <stddef.h>
#include <stdint.h>
#include "coll.h"

struct coll_dev;

int coll_comm_new(struct coll_comm **comm, struct coll_dev *dev, unsigned int nranks,
		  unsigned int rank, const struct coll_config *config, char *text, size_t size);
void coll_comm_discard(struct coll_comm *comm);
int coll_comm_make(struct coll_comm **comm, struct coll_dev *dev, unsigned int nranks,
		   const uint8_t *secret, unsigned int rank, const struct coll_config *config,
		   char *text, size_t size);
int coll_config_get(struct coll_config *out, const struct coll_config *config, char *text,
		    size_t size);
int coll_config_env(struct coll_config *config, char *text, size_t size);
int coll_config_fail(const struct coll_config *config, unsigned int rank, int rc,
		     const char *text);
int coll_config_dev(const struct coll_config *config, unsigned int index,
		    struct coll_dev **dev, char *text, size_t size);

#endif /* COLL_API_JOIN_H */
