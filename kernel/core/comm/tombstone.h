/* SPDX-License-Identifier: GPL-2.0 */
/*
 * tombstone.h - what is left of a communicator that ended before all its ranks had come
 * (tombstone.c). All of it under npulink_comms_lock.
 */
#ifndef NPULINK_TOMBSTONE_H
#define NPULINK_TOMBSTONE_H

#include <linux/types.h>

struct npulink_comm;
struct npulink_quota;
struct npulink_tombstone;

struct npulink_tombstone *npulink_tombstone_new(void);
void npulink_tombstone_put_up(struct npulink_tombstone *t, const struct npulink_comm *comm,
			      const struct npulink_quota *whose);
int npulink_tombstone_read(struct npulink_comm *fresh, u32 rank);
void npulink_tombstone_exit(void);

#endif /* NPULINK_TOMBSTONE_H */
