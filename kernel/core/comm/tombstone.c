// SPDX-License-Identifier: GPL-2.0
/*
 * tombstone.c - ranks that left before others had come.
 *
 * A communicator ends with its last rank. If others had never come, they would make it anew by
 * its secret, and wait there for ranks that have left. So a tombstone stays, for a minute: who
 * comes late finds there which ranks have left, and why the communicator failed, if it did.
 *
 * A rank joins a communicator once. One that comes again is the beginning of another communicator
 * with the same secret, and the tombstone goes: secrets are random, so only a program that tries
 * again has the same one, and it shall not be hindered by its first try.
 *
 * A tombstone holds no reference, on nothing: not on namespaces, cgroups, devices or files. It is
 * not charged, either, as the cgroup would stay with it; each user has a few of them, and beyond
 * that the oldest of his goes.
 */
#include <crypto/algapi.h>
#include <linux/bitmap.h>
#include <linux/list.h>
#include <linux/moduleparam.h>
#include <linux/slab.h>
#include <linux/uidgid.h>
#include <linux/user_namespace.h>
#include <linux/workqueue.h>
#include "comm/comm.h"
#include "comm/tombstone.h"

#define NPULINK_TOMBSTONES	1024	/* in all */
#define NPULINK_TOMBSTONE_SHARE	64	/* of one user */
#define NPULINK_TOMBSTONE_RUNS	32	/* of ranks that have left, of one communicator */

static unsigned int npulink_tombstone_ms = 60000;
module_param_named(tombstone_ms, npulink_tombstone_ms, uint, 0644);
MODULE_PARM_DESC(tombstone_ms, "milliseconds for which ranks that come late are told that others have left (0: they are not)");

/*
 * struct npulink_tombstone - a communicator that has ended
 * @whose: the user that has a share of them
 * @uid: who may join, in the user namespace number @userns
 * @status: why it failed, 0: it did not
 * @left: ranks that have been there, from @first to before @end; the first @nleft runs of them
 */
struct npulink_tombstone {
	struct list_head node;
	unsigned long expires;
	kuid_t whose;
	kuid_t uid;
	unsigned int userns;
	u8 secret[16];
	u32 flags;
	u32 nranks;
	int status;
	u32 nleft;
	struct {
		u32 first;
		u32 end;
	} left[NPULINK_TOMBSTONE_RUNS];
};

static LIST_HEAD(npulink_tombstones);	/* oldest first */
static u32 npulink_ntombstones;

static void npulink_tombstones_expire(struct work_struct *work);
static DECLARE_DELAYED_WORK(npulink_tombstones_work, npulink_tombstones_expire);

static void npulink_tombstone_remove(struct npulink_tombstone *t)
{
	lockdep_assert_held(&npulink_comms_lock);
	list_del(&t->node);
	npulink_ntombstones--;
	kfree_sensitive(t);
}

static void npulink_tombstones_expire(struct work_struct *work)
{
	struct npulink_tombstone *t, *next;

	mutex_lock(&npulink_comms_lock);
	list_for_each_entry_safe(t, next, &npulink_tombstones, node) {
		if (time_before(jiffies, t->expires)) {
			queue_delayed_work(system_wq, &npulink_tombstones_work,
					   t->expires - jiffies);
			break;
		}
		npulink_tombstone_remove(t);
	}
	mutex_unlock(&npulink_comms_lock);
}

/* Room for one, before the lock; NULL: then there will be none. kfree() if it is not needed. */
struct npulink_tombstone *npulink_tombstone_new(void)
{
	return READ_ONCE(npulink_tombstone_ms) ?
	       kmalloc(sizeof(struct npulink_tombstone), GFP_KERNEL | __GFP_NOWARN) : NULL;
}

/* One more of @whose: may he, and if not, does an older one of his go? */
static bool npulink_tombstone_share(kuid_t whose)
{
	struct npulink_tombstone *t, *oldest = NULL;
	u32 n = 0;

	list_for_each_entry(t, &npulink_tombstones, node) {
		if (!uid_eq(t->whose, whose))
			continue;
		oldest = oldest ?: t;
		n++;
	}
	if (oldest && (n >= NPULINK_TOMBSTONE_SHARE || npulink_ntombstones >= NPULINK_TOMBSTONES))
		npulink_tombstone_remove(oldest);
	return npulink_ntombstones < NPULINK_TOMBSTONES;
}

/* The last rank of @comm has left, and others have never come. Takes @t. */
void npulink_tombstone_put_up(struct npulink_tombstone *t, const struct npulink_comm *comm,
			      const struct npulink_quota *whose)
{
	unsigned long hold = msecs_to_jiffies(READ_ONCE(npulink_tombstone_ms));
	u32 first, end;

	lockdep_assert_held(&npulink_comms_lock);
	if (!npulink_tombstone_share(whose->uid)) {
		kfree(t);
		return;
	}
	*t = (struct npulink_tombstone) {
		.expires = jiffies + hold, .whose = whose->uid, .uid = comm->uid,
		.userns = comm->userns->ns.inum, .flags = npulink_comm_flags(comm),
		.nranks = comm->nranks,
	};
	memcpy(t->secret, comm->secret, sizeof(t->secret));
	/* Pairs with npulink_comm_record(). */
	if (smp_load_acquire(&comm->failed))
		t->status = comm->cause.status;
	for_each_set_bitrange(first, end, comm->left, comm->nranks) {
		t->left[t->nleft].first = first;
		t->left[t->nleft].end = end;
		if (++t->nleft == NPULINK_TOMBSTONE_RUNS)
			break;
	}
	list_add_tail(&t->node, &npulink_tombstones);
	npulink_ntombstones++;
	queue_delayed_work(system_wq, &npulink_tombstones_work, hold);
}

/* Is @fresh what its ranks would have joined? If it is not, they learn nothing. */
static bool npulink_tombstone_fits(const struct npulink_tombstone *t,
				   const struct npulink_comm *fresh)
{
	if (t->nranks != fresh->nranks || t->flags != npulink_comm_flags(fresh))
		return false;
	return fresh->any_uid || (uid_eq(t->uid, fresh->uid) &&
				  t->userns == fresh->userns->ns.inum);
}

static struct npulink_tombstone *npulink_tombstone_find(const struct npulink_comm *fresh)
{
	struct npulink_tombstone *t;

	list_for_each_entry(t, &npulink_tombstones, node)
		if (!crypto_memneq(t->secret, fresh->secret, sizeof(t->secret)) &&
		    npulink_tombstone_fits(t, fresh) && time_before(jiffies, t->expires))
			return t;
	return NULL;
}

/*
 * The first rank of @fresh is about to join. Were there others that have left? If the communicator
 * has failed, returns why, for all who come late; else @fresh learns who is missed.
 */
int npulink_tombstone_read(struct npulink_comm *fresh, u32 rank)
{
	struct npulink_tombstone *t;
	bool again = false;
	u32 i;

	lockdep_assert_held(&npulink_comms_lock);
	t = npulink_tombstone_find(fresh);
	if (!t)
		return 0;
	for (i = 0; i < t->nleft; i++)
		again |= rank >= t->left[i].first && rank < t->left[i].end;
	if (!again && t->status)
		return t->status;
	for (i = 0; i < t->nleft && !again; i++) {
		u32 n = t->left[i].end - t->left[i].first;

		bitmap_set(fresh->left, t->left[i].first, n);
		fresh->nleft += n;
	}
	npulink_tombstone_remove(t);
	return 0;
}

/* Nobody joins or leaves any more. */
void npulink_tombstone_exit(void)
{
	struct npulink_tombstone *t, *next;

	cancel_delayed_work_sync(&npulink_tombstones_work);
	mutex_lock(&npulink_comms_lock);
	list_for_each_entry_safe(t, next, &npulink_tombstones, node)
		npulink_tombstone_remove(t);
	mutex_unlock(&npulink_comms_lock);
}
