/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * wires.h - how much messages that are sent at once are in each other's way.
 */
#ifndef COLL_TUNE_WIRES_H
#define COLL_TUNE_WIRES_H

#include "plan/plan.h"
#include "simulate/sim.h"

/* To be freed; NULL: messages share no links, there are too many of these, or no memory. */
struct coll_wires *coll_wires_make(const struct coll_net *net);

#endif /* COLL_TUNE_WIRES_H */
