/* SPDX-License-Identifier: GPL-2.0 */
/*
 * cause.h - causes as other nodes hear them, and what all sessions with them share: cause.c.
 */
#ifndef NPULINK_CAUSE_H
#define NPULINK_CAUSE_H

#include <npulink/transport.h>
#include "comm/comm.h"

#define NPULINK_TICK_MS		250	/* what takes longer is looked after */
#define NPULINK_MESSAGE_BYTES	((NPULINK_PUT_RX + NPULINK_PUT_TX) * NPULINK_WIRE_SLOT)

void npulink_call_to_wire(struct npulink_wire_call *w, const struct npulink_call *c);
void npulink_call_from_wire(struct npulink_call *c, const struct npulink_wire_call *w);
void npulink_cause_to_wire(struct npulink_wire_cause *w, const struct npulink_cause *cause);
const char *npulink_cause_from_wire(struct npulink_cause *cause,
				    const struct npulink_wire_cause *w, u32 nranks);

#endif /* NPULINK_CAUSE_H */
