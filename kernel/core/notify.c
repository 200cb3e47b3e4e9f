// SPDX-License-Identifier: GPL-2.0
/*
 * notify.c - what the netlink group "events" is told. Failures are decided in any
 * context, so a notice is only put into a ring there, and sent by a worker. The ring is
 * bounded, and so is what one kind of notice may put into it in a second, so that links
 * that flap do not drown the death of a rank; what is left out is counted. Each user has
 * a bound of its own, so that nobody's failures are hidden by those of somebody else.
 */
#include <linux/npulink_genl.h>
#include <linux/uidgid.h>
#include <net/net_namespace.h>
#include "core.h"

#define NPULINK_NOTICES		512	/* in the ring; a power of two */
#define NPULINK_NOTICE_SHARE	128	/* of one user, in the ring */
#define NPULINK_NOTICE_RATE	128	/* of one user and type, in a second */
#define NPULINK_NOTICE_TYPES	(NPULINK_EVENT_SLOW_END + 1)
#define NPULINK_NOTICE_USERS	64

/*
 * struct npulink_notice_user - what a user has told in a second
 * @uid: the user; the first entry is for devices and links, which are nobody's
 * @pending: in the ring
 */
struct npulink_notice_user {
	kuid_t uid;
	unsigned long start;
	u32 pending;
	u32 count[NPULINK_NOTICE_TYPES];
};

struct npulink_totals npulink_totals;

static DEFINE_SPINLOCK(npulink_notices_lock);	/* all below */
static struct {
	struct npulink_notice notice;
	struct npulink_notice_user *user;
} npulink_notices[NPULINK_NOTICES];
static u32 npulink_notices_head, npulink_notices_tail;
static struct npulink_notice_user npulink_notice_users[NPULINK_NOTICE_USERS];

static bool npulink_notice_take(struct npulink_notice *notice)
{
	bool any;
	u32 i;

	spin_lock_irq(&npulink_notices_lock);
	any = npulink_notices_tail != npulink_notices_head;
	if (any) {
		i = npulink_notices_tail++ % NPULINK_NOTICES;
		*notice = npulink_notices[i].notice;
		npulink_notices[i].user->pending--;
	}
	spin_unlock_irq(&npulink_notices_lock);
	return any;
}

static void npulink_notices_send(struct work_struct *work)
{
	struct npulink_notice notice;

	while (npulink_notice_take(&notice)) {
		if (npulink_genl_multicast(&notice))
			atomic64_inc(&npulink_totals.lost);
		cond_resched();
	}
}

static DECLARE_WORK(npulink_notices_work, npulink_notices_send);

/*
 * The entry of a user; one of who has been quiet for a second is anybody's, and if there
 * is none, the last one is for all the others.
 */
static struct npulink_notice_user *npulink_notice_user(kuid_t uid, unsigned long now)
{
	struct npulink_notice_user *u, *spare = NULL;
	u32 i;

	lockdep_assert_held(&npulink_notices_lock);
	if (!uid_valid(uid))
		return &npulink_notice_users[0];
	for (i = 1; i < NPULINK_NOTICE_USERS; i++) {
		u = &npulink_notice_users[i];
		if (u->start && uid_eq(u->uid, uid))
			return u;
		if (!spare && !u->pending &&
		    (!u->start || time_after_eq(now, u->start + HZ)))
			spare = u;
	}
	if (!spare)
		return &npulink_notice_users[NPULINK_NOTICE_USERS - 1];
	memset(spare, 0, sizeof(*spare));
	spare->uid = uid;
	return spare;
}

static bool npulink_notice_allowed(struct npulink_notice_user *u, u32 type, unsigned long now)
{
	lockdep_assert_held(&npulink_notices_lock);
	if (npulink_notices_head - npulink_notices_tail >= NPULINK_NOTICES ||
	    u->pending >= NPULINK_NOTICE_SHARE)
		return false;
	if (!u->start || time_after_eq(now, u->start + HZ)) {
		u->start = now ?: 1;	/* 0: unused */
		memset(u->count, 0, sizeof(u->count));
	}
	return ++u->count[type] <= NPULINK_NOTICE_RATE;
}

/* About something of @comm, or NULL of nobody. Any context but NMI. */
void npulink_notify(const struct npulink_notice *notice, const struct npulink_comm *comm)
{
	kuid_t uid = comm ? comm->uid : INVALID_UID;
	struct npulink_notice_user *user;
	unsigned long flags, now = jiffies;
	bool allowed;

	spin_lock_irqsave(&npulink_notices_lock, flags);
	user = npulink_notice_user(uid, now);
	allowed = npulink_notice_allowed(user, notice->type, now);
	if (allowed) {
		u32 i = npulink_notices_head++ % NPULINK_NOTICES;
		struct npulink_notice *n = &npulink_notices[i].notice;

		npulink_notices[i].user = user;
		user->pending++;
		*n = *notice;
		/* Pairs with npulink_comm_note_net(). */
		n->uid = comm && !comm->any_uid ? uid : INVALID_UID;
		n->nnets = comm ? smp_load_acquire(&comm->nnets) : 0;
		if (n->nnets)
			memcpy(n->nets, comm->nets, sizeof(n->nets));
		n->time_ns = ktime_get_real_ns();
		n->serial = atomic64_inc_return(&npulink_totals.events);
		n->lost = atomic64_read(&npulink_totals.lost);
	} else {
		atomic64_inc(&npulink_totals.lost);
	}
	spin_unlock_irqrestore(&npulink_notices_lock, flags);
	if (allowed)
		schedule_work(&npulink_notices_work);
}

/* Whose ports its peers are reached by, 0: nobody's. */
static u64 npulink_notice_place_net(const struct npulink_rank *rank)
{
	const struct net *net = READ_ONCE(rank->net);

	return net ? net->net_cookie : 0;
}

/* @comm has failed. Any context but NMI. */
void npulink_notify_cause(const struct npulink_comm *comm, const struct npulink_cause *cause)
{
	struct npulink_notice notice = NPULINK_NOTICE(NPULINK_EVENT_FAIL);
	const struct npulink_rank *rank;

	atomic64_inc(&npulink_totals.failures[cause->cause]);
	notice.comm = comm->serial;
	notice.rank = cause->rank;
	notice.peer = cause->peer;
	notice.step = cause->step;
	notice.number = cause->number;
	notice.cause = cause->cause;
	notice.code = cause->code;
	memcpy(notice.ip, cause->ip, sizeof(notice.ip));
	memcpy(notice.port, cause->port, sizeof(notice.port));
	rcu_read_lock();
	rank = cause->rank < comm->nranks ? rcu_dereference(comm->ranks[cause->rank]) : NULL;
	if (rank)
		notice.place_net = npulink_notice_place_net(rank);
	rcu_read_unlock();
	if (cause->cause == NPULINK_CAUSE_DEADLOCK)
		notice.circle = comm->circle;
	npulink_notify(&notice, comm);
}

void npulink_notify_dev(const struct npulink_device *dev, bool added)
{
	struct npulink_notice notice = NPULINK_NOTICE(added ? NPULINK_EVENT_DEV_ADD :
							      NPULINK_EVENT_DEV_DEL);

	notice.dev = dev->id;
	npulink_notify(&notice, NULL);
}

/* Any context but NMI. */
void npulink_notify_link(const struct npulink_link *link, bool up)
{
	struct npulink_notice notice = NPULINK_NOTICE(up ? NPULINK_EVENT_LINK_UP :
							   NPULINK_EVENT_LINK_DOWN);

	notice.dev = link->dev->id;
	notice.peer_dev = link->peer->id;
	npulink_notify(&notice, NULL);
}

/*
 * The connection of @rank and @peer at @ip over @port is lost, and another one is looked for, or
 * it was found there. Any context but NMI.
 */
void npulink_notify_port(const struct npulink_rank *rank, u32 peer, const u8 *ip, const char *port,
			 bool lost)
{
	struct npulink_notice notice = NPULINK_NOTICE(lost ? NPULINK_EVENT_PORT_LOST :
							     NPULINK_EVENT_PORT_NEXT);

	notice.dev = rank->dev->id;
	notice.comm = rank->comm->serial;
	notice.rank = rank->rank;
	notice.peer = peer;
	memcpy(notice.ip, ip, sizeof(notice.ip));
	strscpy(notice.port, port, sizeof(notice.port));
	notice.place_net = npulink_notice_place_net(rank);
	npulink_notify(&notice, rank->comm);
}

/* Nobody notifies any more. */
void npulink_notify_exit(void)
{
	flush_work(&npulink_notices_work);
}
