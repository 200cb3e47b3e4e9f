/* SPDX-License-Identifier: GPL-2.0 */
/*
 * notify.h - what is told to whoever listens to the netlink group "events", and totals: notify.c.
 */
#ifndef NPULINK_NOTIFY_H
#define NPULINK_NOTIFY_H

#include <linux/atomic.h>
#include <linux/uidgid.h>
#include <linux/npulink.h>
#include <linux/npulink_genl.h>
#include <npulink/device.h>

#define NPULINK_NO_DEV		0xffffffffU
#define NPULINK_NOTICE_NETS	8	/* network namespaces that may know all of it */

/* Processes that wait for each other: the first of @n waits. */
struct npulink_circle {
	u32 n;
	struct npulink_circle_wait waits[NPULINK_CIRCLE_MAX];
};

/* What is told to the netlink group "events"; ~0 in a member: does not apply. */
struct npulink_notice {
	u32 type;		/* NPULINK_EVENT_* */
	u32 dev;
	u32 peer_dev;
	u32 comm;
	u32 rank;
	u32 peer;
	u32 step;
	u32 cause;
	u32 code;
	u64 number;
	u64 age_ns;
	u64 limit_ns;
	u64 time_ns;
	u64 serial;
	u64 lost;
	u8 ip[16];		/* as in npulink_cause; 0: does not apply */
	char port[32];
	u64 place_net;		/* the network namespace that may know these, by cookie */
	u64 nets[NPULINK_NOTICE_NETS];	/* .. and those that may know all the rest */
	u32 nnets;
	kuid_t uid;		/* of the user whose it is; not valid: everybody's in these */
	struct npulink_circle circle;
};

#define NPULINK_NOTICE(_type) ((struct npulink_notice) { \
	.type = _type, .uid = INVALID_UID, .dev = NPULINK_NO_DEV, .peer_dev = NPULINK_NO_DEV, \
	.comm = ~0U, .rank = NPULINK_NO_PEER, .peer = NPULINK_NO_PEER, \
	.step = ~0U, .number = ~0ULL, \
})

/* Totals since the module was loaded. */
struct npulink_totals {
	atomic64_t done;	/* operations of ranks that have left */
	atomic64_t failed;
	atomic64_t slow;
	atomic64_t failures[NPULINK_CAUSE_REMOVED + 1];
	atomic64_t events;
	atomic64_t lost;
};

extern struct npulink_totals npulink_totals;

void npulink_notify(const struct npulink_notice *notice, kuid_t uid, const u64 *nets, u32 nnets);
void npulink_notify_dev(const struct npulink_device *dev, bool added);
void npulink_notify_link(const struct npulink_link *link, bool up);
void npulink_notify_init(int (*send)(const struct npulink_notice *notice));
void npulink_notify_exit(void);

#endif /* NPULINK_NOTIFY_H */
