// SPDX-License-Identifier: GPL-2.0
/*
 * cause.c - calls, and why a communicator has failed, as other machines are told of
 * them.
 */
#include <linux/ctype.h>
#include "comm/comm.h"
#include "comm/cause.h"

void npulink_call_to_wire(struct npulink_wire_call *w, const struct npulink_call *c)
{
	w->collective = cpu_to_le32(c->collective);
	w->dtype = cpu_to_le32(c->dtype);
	w->redop = cpu_to_le32(c->redop);
	w->root = cpu_to_le32(c->root);
	w->count = cpu_to_le64(c->count);
	w->set_id = cpu_to_le64(c->set_id);
}

void npulink_call_from_wire(struct npulink_call *c, const struct npulink_wire_call *w)
{
	c->collective = le32_to_cpu(w->collective);
	c->dtype = le32_to_cpu(w->dtype);
	c->redop = le32_to_cpu(w->redop);
	c->root = le32_to_cpu(w->root);
	c->count = le64_to_cpu(w->count);
	c->set_id = le64_to_cpu(w->set_id);
}

void npulink_cause_to_wire(struct npulink_wire_cause *w, const struct npulink_cause *cause)
{
	u32 i;

	*w = (struct npulink_wire_cause) {
		.cause = cpu_to_le32(cause->cause), .rank = cpu_to_le32(cause->rank),
		.peer = cpu_to_le32(cause->peer), .step = cpu_to_le32(cause->step),
		.number = cpu_to_le64(cause->number), .code = cpu_to_le32(cause->code),
	};
	for (i = 0; i < 2; i++)
		npulink_call_to_wire(&w->calls[i], &cause->calls[i]);
	memcpy(w->ip, cause->ip, sizeof(w->ip));
	memcpy(w->port, cause->port, sizeof(w->port));
}

/* Printable, and zeros from its end on? */
static bool npulink_wire_name_ok(const u8 *name, size_t size)
{
	size_t i, len = strnlen(name, size);

	for (i = 0; i < len; i++)
		if (!isascii(name[i]) || !isgraph(name[i]))
			return false;
	return len < size && !memchr_inv(name + len, 0, size - len);
}

/* What another machine says of one of @nranks ranks. Returns what is wrong with it, or NULL. */
const char *npulink_cause_from_wire(struct npulink_cause *cause, const struct npulink_wire_cause *w,
				    u32 nranks)
{
	u32 i;

	*cause = (struct npulink_cause) {
		.cause = le32_to_cpu(w->cause), .rank = le32_to_cpu(w->rank),
		.peer = le32_to_cpu(w->peer), .step = le32_to_cpu(w->step),
		.number = le64_to_cpu(w->number), .code = le32_to_cpu(w->code),
	};
	if (cause->cause < NPULINK_CAUSE_ABORT || cause->cause > NPULINK_CAUSE_REMOVED ||
	    cause->rank >= nranks || (cause->peer >= nranks && cause->peer != NPULINK_NO_PEER))
		return "cause of a failure";
	if (!npulink_wire_name_ok(w->port, sizeof(w->port)))
		return "port of a failure";
	for (i = 0; i < 2; i++)
		npulink_call_from_wire(&cause->calls[i], &w->calls[i]);
	memcpy(cause->ip, w->ip, sizeof(cause->ip));
	memcpy(cause->port, w->port, sizeof(cause->port));
	return NULL;
}
