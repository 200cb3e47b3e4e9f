// SPDX-License-Identifier: GPL-2.0
/*
 * genl_flight.c - flight recorders over generic netlink: NPULINK_GENL_CMD_FLIGHT_GET.
 *
 * Who sees a recorder is as with its rank's file, as far as that can be told without it. Reading
 * takes no lock of a rank, but for a moment to see what is in flight, and holds up nobody.
 */
#include <linux/ktime.h>
#include <linux/pid.h>
#include <linux/sched/signal.h>
#include <npulink/compat.h>
#include "base/clock.h"
#include "comm/comm.h"
#include "comm/flight.h"
#include "observe/genl.h"
#include "run/flight_record.h"
#include "run/op.h"

const struct nla_policy npulink_genl_flight_policy[] = {
	[NPULINK_A_FLIGHT_WHAT] = NLA_POLICY_MASK(NLA_U32, NPULINK_FLIGHT_ALL),
};

/* What a recorder consists of, in the order in which it is dumped. */
enum {
	FLIGHT_HEAD,
	FLIGHT_PEERS,
	FLIGHT_OPS,
	FLIGHT_INFLIGHT,
	FLIGHT_STEPS,
	FLIGHT_PARTS,
};

/* Where a dump is: in cb->args[]. */
struct npulink_flight_dump {
	unsigned long id;	/* of the recorder */
	unsigned long part;
	unsigned long pos;	/* in that part: next peer, or number of an entry */
	unsigned long end;	/* of a ring, when the dump came to it */
	unsigned long what;
};

static struct npulink_flight_dump *npulink_flight_dump(struct netlink_callback *cb)
{
	BUILD_BUG_ON(sizeof(struct npulink_flight_dump) > sizeof(cb->args));
	return (struct npulink_flight_dump *)cb->args;
}

int npulink_genl_flight_start(struct netlink_callback *cb)
{
	struct nlattr **attrs = npulink_genl_dump_attrs(cb);
	struct npulink_flight_dump *d = npulink_flight_dump(cb);

	d->id = 1;
	d->what = NPULINK_FLIGHT_ALL;
	if (attrs[NPULINK_A_FLIGHT_WHAT])
		d->what = nla_get_u32(attrs[NPULINK_A_FLIGHT_WHAT]);
	return 0;
}

static int npulink_flight_put_u64(struct sk_buff *skb, int attr, u64 value)
{
	return nla_put_u64_64bit(skb, attr, value, NPULINK_A_FLIGHT_PAD);
}

static int npulink_flight_put_head(struct sk_buff *skb, const struct npulink_flight *flight)
{
	if (nla_put_u32(skb, NPULINK_A_FLIGHT_COMM, flight->comm) ||
	    nla_put_u32(skb, NPULINK_A_FLIGHT_RANK, flight->number) ||
	    nla_put_u32(skb, NPULINK_A_FLIGHT_NRANKS, flight->nranks) ||
	    nla_put_u32(skb, NPULINK_A_FLIGHT_DEV, flight->dev) ||
	    nla_put_u32(skb, NPULINK_A_FLIGHT_PID, npulink_flight_pid(flight)) ||
	    nla_put_string(skb, NPULINK_A_FLIGHT_TASK, flight->task) ||
	    nla_put_u32(skb, NPULINK_A_FLIGHT_UID, npulink_genl_uid(flight->euid)) ||
	    npulink_flight_put_u64(skb, NPULINK_A_FLIGHT_JOINED, flight->joined_ns) ||
	    (flight->left_ns &&
	     npulink_flight_put_u64(skb, NPULINK_A_FLIGHT_LEFT, flight->left_ns)) ||
	    npulink_flight_put_u64(skb, NPULINK_A_FLIGHT_OPS_DONE, READ_ONCE(flight->nops)) ||
	    npulink_flight_put_u64(skb, NPULINK_A_FLIGHT_STEPS_DONE,
				   READ_ONCE(flight->nsteps)) ||
	    npulink_flight_put_u64(skb, NPULINK_A_FLIGHT_NOW, npulink_clock()) ||
	    npulink_flight_put_u64(skb, NPULINK_A_FLIGHT_NOW_MONOTONIC,
				   ktime_get_ns() + npulink_clock_offset()) ||
	    npulink_flight_put_u64(skb, NPULINK_A_FLIGHT_NOW_REAL, ktime_get_real_ns()))
		return -EMSGSIZE;
	return 0;
}

/* An array of up to n entries: how many fit, and where they go. */
static void *npulink_flight_reserve(struct sk_buff *skb, int attr, size_t size, u32 *n)
{
	int room = min_t(int, skb_tailroom(skb), U16_MAX - 8) - nla_total_size_64bit(0);
	struct nlattr *nla;

	if (room < (int)size)
		return NULL;
	*n = min_t(u32, *n, room / size);
	nla = nla_reserve_64bit(skb, attr, *n * size, NPULINK_A_FLIGHT_PAD);
	return nla ? nla_data(nla) : NULL;
}

/* Give back what of an array was not needed; without any entry, all of it. */
static void npulink_flight_trim(struct sk_buff *skb, void *data, size_t used)
{
	struct nlattr *nla = data - NLA_HDRLEN;

	if (used) {
		nla->nla_len = nla_attr_size(used);
		nlmsg_trim(skb, data + nla_padlen(used) + used);
	} else {
		nlmsg_trim(skb, nla);
	}
}

/* -EMSGSIZE: there are more. */
static int npulink_flight_put_peers(struct sk_buff *skb, struct npulink_flight *flight,
				    unsigned long *pos)
{
	size_t size = sizeof(struct npulink_flight_peer);
	struct npulink_flight_peer *peer, *to;
	u32 max = U32_MAX, n = 0;
	int rc = 0;

	if (!xa_find(&flight->peers, pos, ULONG_MAX, XA_PRESENT))
		return 0;
	to = npulink_flight_reserve(skb, NPULINK_A_FLIGHT_PEERS, size, &max);
	if (!to)
		return -EMSGSIZE;
	/* They stay as long as the recorder. */
	xa_for_each_start(&flight->peers, *pos, peer, *pos) {
		if (n == max) {
			rc = -EMSGSIZE;
			break;
		}
		memcpy(&to[n++], peer, size);
	}
	npulink_flight_trim(skb, to, n * size);
	return rc;
}

static int npulink_flight_put_ring(struct sk_buff *skb, int attr, const void *ring, u32 mask,
				   const u64 *written, size_t size,
				   struct npulink_flight_dump *d)
{
	u64 next = d->pos;
	u32 max, n;
	void *to;

	/* What is written meanwhile is for the next dump. */
	if (!next)
		d->end = READ_ONCE(*written);
	if (next >= d->end)
		return 0;
	max = min_t(u64, d->end - next, mask + 1);
	to = npulink_flight_reserve(skb, attr, size, &max);
	if (!to)
		return -EMSGSIZE;
	n = npulink_flight_read(ring, mask, written, size, &next, to, max);
	npulink_flight_trim(skb, to, n * size);
	d->pos = next + n;
	return d->pos < d->end ? -EMSGSIZE : 0;
}

#define NPULINK_FLIGHT_INFLIGHT	16	/* operations shown that have not ended */

static int npulink_flight_put_inflight(struct sk_buff *skb, struct npulink_flight *flight)
{
	struct npulink_rank *rank = npulink_flight_rank(flight);
	u32 max = NPULINK_FLIGHT_INFLIGHT, n = 0;
	struct npulink_flight_op *to;
	struct npulink_op *op;
	int rc = 0;

	if (!rank)
		return 0;
	if (list_empty_careful(&rank->ops))
		goto out;
	to = npulink_flight_reserve(skb, NPULINK_A_FLIGHT_OPS, sizeof(*to), &max);
	if (!to || max < NPULINK_FLIGHT_INFLIGHT) {
		if (to)
			npulink_flight_trim(skb, to, 0);
		rc = -EMSGSIZE;
		goto out;
	}
	spin_lock_irq(&rank->lock);
	list_for_each_entry(op, &rank->ops, node) {
		if (n == max)
			break;
		npulink_flight_fill(op, &to[n]);
		to[n++].end = 0;
	}
	spin_unlock_irq(&rank->lock);
	npulink_flight_trim(skb, to, n * sizeof(*to));
out:
	npulink_rank_put(rank);
	return rc;
}

/* One part of a recorder, from d->pos on, as far as there is room. */
static int npulink_flight_put_part(struct sk_buff *skb, struct npulink_flight *flight,
				   struct npulink_flight_dump *d)
{
	switch (d->part) {
	case FLIGHT_HEAD:
		return npulink_flight_put_head(skb, flight);
	case FLIGHT_PEERS:
		return npulink_flight_put_peers(skb, flight, &d->pos);
	case FLIGHT_OPS:
		return npulink_flight_put_ring(skb, NPULINK_A_FLIGHT_OPS, flight->ops,
					       flight->ops_mask, &flight->nops,
					       sizeof(*flight->ops), d);
	case FLIGHT_INFLIGHT:
		return npulink_flight_put_inflight(skb, flight);
	case FLIGHT_STEPS:
		return npulink_flight_put_ring(skb, NPULINK_A_FLIGHT_STEPS, flight->steps,
					       flight->steps_mask, &flight->nsteps,
					       sizeof(*flight->steps), d);
	}
	return 0;
}

static bool npulink_flight_wanted(const struct npulink_flight_dump *d)
{
	switch (d->part) {
	case FLIGHT_PEERS:
		return d->what & NPULINK_FLIGHT_PEERS;
	case FLIGHT_OPS:
	case FLIGHT_INFLIGHT:
		return d->what & NPULINK_FLIGHT_OPS;
	case FLIGHT_STEPS:
		return d->what & NPULINK_FLIGHT_STEPS;
	}
	return true;
}

/* A message for each part; -EMSGSIZE: goes on with the next buffer. */
static int npulink_flight_put_parts(struct sk_buff *skb, struct netlink_callback *cb,
				    struct npulink_flight *flight)
{
	struct npulink_flight_dump *d = npulink_flight_dump(cb);
	void *header, *begin;
	int rc = 0;

	while (d->part < FLIGHT_PARTS) {
		if (npulink_flight_wanted(d)) {
			header = npulink_genl_put(skb, cb, NPULINK_GENL_CMD_FLIGHT_GET);
			if (!header)
				return -EMSGSIZE;
			if (nla_put_u32(skb, NPULINK_A_FLIGHT_ID, flight->id)) {
				genlmsg_cancel(skb, header);
				return -EMSGSIZE;
			}
			begin = skb_tail_pointer(skb);
			rc = npulink_flight_put_part(skb, flight, d);
			/* Half a head is none; of an array that is what there was room for. */
			if (skb_tail_pointer(skb) == begin || (rc && d->part == FLIGHT_HEAD))
				genlmsg_cancel(skb, header);
			else
				genlmsg_end(skb, header);
			if (rc)
				return rc;
		}
		d->part++;
		d->pos = 0;
	}
	return 0;
}

int npulink_genl_flight_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct npulink_flight_dump *d = npulink_flight_dump(cb);
	struct npulink_flight *flight;
	unsigned long id;
	int rc = 0;

	while (!rc) {
		id = d->id;
		flight = npulink_flight_next(&d->id);
		if (!flight)
			break;
		/* The one that it was at has gone meanwhile: this one is told from its beginning. */
		if (d->id != id) {
			d->part = FLIGHT_HEAD;
			d->pos = 0;
		}
		if (npulink_genl_sees_uids(cb->skb, flight->uid, flight->euid, flight->suid))
			rc = npulink_flight_put_parts(skb, cb, flight);
		npulink_flight_put(flight);
		if (!rc) {
			d->id++;
			d->part = FLIGHT_HEAD;
			d->pos = 0;
		}
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	return skb->len ?: rc;
}
