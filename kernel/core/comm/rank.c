// SPDX-License-Identifier: GPL-2.0
/*
 * rank.c - ranks: how a file's membership in a communicator begins and ends.
 *
 * A rank joins by the communicator's secret, which the first to come brings along, or
 * without one what its old communicator was shrunk to (shrink.c). One that leaves fails
 * it if others wait for what it has never posted; those who come later learn of it (tombstone.c).
 */
#include <crypto/algapi.h>
#include <linux/hashtable.h>
#include <linux/mutex.h>
#include <linux/random.h>
#include <linux/siphash.h>
#include <linux/slab.h>
#include <linux/uidgid.h>
#include <linux/user_namespace.h>
#include <npulink/verify.h>
#include "base/clock.h"
#include "base/hot.h"
#include "base/notify.h"
#include "base/number.h"
#include "base/queue.h"
#include "comm/agree.h"
#include "comm/comm.h"
#include "comm/flight.h"
#include "comm/tombstone.h"
#include "file/file.h"

static DEFINE_HASHTABLE(npulink_comms, 8);	/* under npulink_comms_lock */
static siphash_key_t npulink_comms_key;

void npulink_ranks_init(void)
{
	get_random_bytes(&npulink_comms_key, sizeof(npulink_comms_key));
}

/* ---- joining by a secret ---------------------------------------------------------- */

static struct npulink_comm *npulink_comm_find(const u8 *secret)
{
	u64 key = siphash(secret, 16, &npulink_comms_key);
	struct npulink_comm *comm;

	lockdep_assert_held(&npulink_comms_lock);
	hash_for_each_possible(npulink_comms, comm, hash, key)
		if (!crypto_memneq(comm->secret, secret, 16))
			return comm;
	return NULL;
}

static int npulink_comm_may_join(const struct npulink_comm *comm,
				 const struct npulink_comm_create *cmd)
{
	bool any = cmd->flags & NPULINK_COMM_ANY_UID;

	if (comm->any_uid != any)
		return -EACCES;
	if (!any && (!uid_eq(comm->uid, current_fsuid()) || comm->userns != current_user_ns()))
		return -EACCES;
	if (comm->nranks != cmd->nranks ||
	    comm->checksum != !!(cmd->flags & NPULINK_COMM_CHECKSUM))
		return -EINVAL;
	return 0;
}

/* What a rank joins by a secret. */
struct npulink_comm_arg {
	const struct npulink_comm_create *cmd;
	struct npulink_comm *fresh;	/* if it is the first; NULL: used */
};

/* The ranks of a file by communicator: it may have many, and all users wait for the lock. */
static int npulink_rank_cmp_key(const void *key, const struct rb_node *node)
{
	const struct npulink_rank *rank = rb_entry(node, struct npulink_rank, file_node);
	const struct npulink_comm *comm = key;

	return comm < rank->comm ? -1 : comm > rank->comm;
}

static bool npulink_rank_less(struct rb_node *node, const struct rb_node *than)
{
	const struct npulink_rank *rank = rb_entry(node, struct npulink_rank, file_node);

	return npulink_rank_cmp_key(rank->comm, than) < 0;
}

static void npulink_rank_unlist(struct npulink_rank *rank)
{
	lockdep_assert_held(&npulink_comms_lock);
	/* Not that of one that has joined without a secret: nobody can join there otherwise. */
	if (!RB_EMPTY_NODE(&rank->file_node))
		rb_erase(&rank->file_node, &rank->file->ranks);
}

/* Called with npulink_comms_lock held. */
static int npulink_comm_join(struct npulink_rank *rank, void *data)
{
	struct npulink_comm_arg *arg = data;
	const struct npulink_comm_create *cmd = arg->cmd;
	struct npulink_comm *comm = npulink_comm_find(cmd->secret);
	int rc = 0;

	if (!comm) {
		comm = arg->fresh;
		rc = npulink_tombstone_read(comm, cmd->rank);
		if (rc)
			return rc;
		arg->fresh = NULL;
		hash_add(npulink_comms, &comm->hash,
			 siphash(comm->secret, 16, &npulink_comms_key));
		npulink_comm_publish(comm);
	} else {
		rc = npulink_comm_may_join(comm, cmd);
		if (rc)
			return rc;
		kref_get(&comm->kref);
	}
	rank->comm = comm;
	if (rb_find(comm, &rank->file->ranks, npulink_rank_cmp_key))
		return -EEXIST;
	mutex_lock(&comm->mutex);
	if (comm->failed)
		rc = comm->cause.status;
	else if (rcu_access_pointer(comm->ranks[cmd->rank]) || test_bit(cmd->rank, comm->left))
		rc = -EEXIST;
	if (!rc) {
		comm->joined++;
		__set_bit(cmd->rank, comm->here);
		rcu_assign_pointer(comm->ranks[cmd->rank], rank);
		rb_add(&rank->file_node, &rank->file->ranks, npulink_rank_less);
	}
	mutex_unlock(&comm->mutex);
	if (rc && !comm->joined && hash_hashed(&comm->hash))
		hash_del(&comm->hash);
	return rc;
}

/* ---- life ------------------------------------------------------------------------- */

/* Everything of a rank but the memory; worker context. */
static void npulink_rank_free(struct npulink_deferred *d)
{
	struct npulink_rank *rank = container_of(d, struct npulink_rank, deferred);
	struct npulink_conn *conn;
	unsigned long i;

	/* Who found us by a pointer that has been cleared since looks no further. */
	spin_lock_irq(&rank->lock);
	rank->gone = true;
	spin_unlock_irq(&rank->lock);
	xa_for_each(&rank->conns, i, conn) {
		npulink_conn_drop(conn);
		npulink_conn_events->free(conn);
		kfree(conn);
	}
	if (rank->net)
		put_net(rank->net);
	xa_destroy(&rank->conns);
	npulink_flight_left(rank);
	if (rank->comm)
		npulink_comm_put(rank->comm);
	npulink_file_put(rank->file);
	kvfree_rcu(rank, rcu);
}

static void npulink_rank_release(struct kref *kref)
{
	struct npulink_rank *rank = container_of(kref, struct npulink_rank, obj.kref);

	npulink_free_later(rank->file->quota, &rank->deferred, npulink_rank_free);
}

npulink_hot void npulink_rank_put(struct npulink_rank *rank)
{
	kref_put(&rank->obj.kref, npulink_rank_release);
}

/* A rank that is in no communicator yet, and whose id is only reserved. */
struct npulink_rank *npulink_rank_new(struct npulink_file *file)
{
	struct npulink_rank *rank;
	int rc;

	rank = kvzalloc(sizeof(*rank), GFP_KERNEL_ACCOUNT);
	if (!rank)
		return ERR_PTR(-ENOMEM);
	kref_init(&rank->obj.kref);
	rank->file = npulink_file_get(file);
	rank->dev = file->dev;
	rank->born = npulink_clock();
	rank->next = NPULINK_FIRST_NUMBER;
	rank->nposted = NPULINK_FIRST_SERIAL;
	xa_init(&rank->conns);
	spin_lock_init(&rank->lock);
	init_llist_head(&rank->inbox);
	INIT_LIST_HEAD(&rank->todo);
	INIT_LIST_HEAD(&rank->resume);
	INIT_LIST_HEAD(&rank->ops);
	RB_CLEAR_NODE(&rank->file_node);
	npulink_comm_events->rank_new(rank);
	rank->flight = npulink_flight_new(file);
	if (IS_ERR(rank->flight)) {
		rc = PTR_ERR(rank->flight);
		rank->flight = NULL;
		npulink_rank_put(rank);
		return ERR_PTR(rc);
	}
	rc = npulink_object_reserve(file, &rank->obj, &npulink_rank_type);
	if (rc) {
		npulink_rank_put(rank);
		return ERR_PTR(rc);
	}
	return rank;
}

npulink_hot struct npulink_rank *npulink_rank_lookup(struct npulink_file *file, u32 id)
{
	struct npulink_object *obj = npulink_object_get(file, id, &npulink_rank_type);

	if (IS_ERR(obj))
		return ERR_CAST(obj);
	return container_of(obj, struct npulink_rank, obj);
}

/* The number of its next collective, as users know it. Task context. */
u64 npulink_rank_next(struct npulink_rank *rank)
{
	u64 next;

	spin_lock_irq(&rank->lock);
	next = npulink_told(rank->next);
	spin_unlock_irq(&rank->lock);
	return next;
}

/* ---- leaving ---------------------------------------------------------------------- */

/* If not, it is closed at once, so that nobody makes it busy before it has left. */
static bool npulink_rank_busy(struct npulink_object *obj)
{
	struct npulink_rank *rank = container_of(obj, struct npulink_rank, obj);
	bool busy;

	mutex_lock(&rank->comm->mutex);
	spin_lock_irq(&rank->lock);
	busy = rank->nplans || !list_empty(&rank->ops);
	if (!busy)
		rank->closed = true;
	spin_unlock_irq(&rank->lock);
	mutex_unlock(&rank->comm->mutex);
	return busy;
}

/* Out of the communicator; the id has gone, nothing is in flight. */
void npulink_rank_leave(struct npulink_rank *rank)
{
	struct npulink_comm *comm = rank->comm;
	struct npulink_cause cause = { .step = ~0U };
	struct npulink_tombstone *tombstone = NULL;
	struct npulink_rank *other;
	struct npulink_conn *conn;
	unsigned long id;
	bool last;
	u32 i = 0;

	/* Alone it was waited for by nobody, and what one was shrunk to has all of its ranks. */
	if (comm->nranks > 1 && !comm->map)
		tombstone = npulink_tombstone_new();
	mutex_lock(&npulink_comms_lock);
	mutex_lock(&comm->mutex);
	spin_lock_irq(&rank->lock);
	rank->closed = true;
	spin_unlock_irq(&rank->lock);
	RCU_INIT_POINTER(comm->ranks[rank->rank], NULL);
	__clear_bit(rank->rank, comm->here);
	if (READ_ONCE(rank->file->dead))
		set_bit(rank->rank, comm->died);
	set_bit(rank->rank, comm->left);
	/* Pairs with npulink_round_arrive(), by the ranks' locks below. */
	WRITE_ONCE(comm->nleft, comm->nleft + 1);
	atomic64_add(rank->stats.done, &npulink_totals.done);
	atomic64_add(rank->stats.failed, &npulink_totals.failed);
	last = !--comm->joined;
	if (last)
		hash_del(&comm->hash);
	if (last && tombstone && comm->nleft < comm->nranks) {
		npulink_tombstone_put_up(tombstone, comm, rank->file->quota);
		tombstone = NULL;
	}
	npulink_rank_unlist(rank);
	mutex_unlock(&comm->mutex);
	mutex_unlock(&npulink_comms_lock);
	kfree(tombstone);
	/*
	 * Without locks that others want: there may be a million, and whoever holds the one wants
	 * the other. Those who join or post from now on see that we have left.
	 */
	while (!READ_ONCE(comm->failed) && !cause.cause &&
	       (other = npulink_comm_get_next_rank(comm, &i))) {
		npulink_comm_events->missed(other, rank->rank, &cause);
		npulink_rank_put(other);
	}
	if (cause.cause)
		npulink_comm_fail_now(comm, &cause);
	cause.cause = NPULINK_CAUSE_LEFT;
	npulink_comm_fail_heirs(comm, rank->rank, &cause);
	if (last)
		npulink_agree_left(comm);
	xa_for_each(&rank->conns, id, conn)
		npulink_conn_events->leave(conn);
	/* Ranks point at each other: let go, or none would ever be freed. */
	xa_for_each(&rank->conns, id, conn)
		npulink_conn_drop(conn);
}

static void npulink_rank_destroy(struct npulink_object *obj)
{
	npulink_rank_leave(container_of(obj, struct npulink_rank, obj));
}

static int npulink_rank_reserve(struct npulink_file *file)
{
	return npulink_comm_events->rank_reserve(file);
}

static void npulink_rank_abort(struct npulink_file *file)
{
	npulink_comm_events->rank_abort(file);
}

const struct npulink_object_type npulink_rank_type = {
	.reserve = npulink_rank_reserve,
	.abort = npulink_rank_abort,
	.busy = npulink_rank_busy,
	.destroy = npulink_rank_destroy,
	.release = npulink_rank_release,
};

/* ---- COMM_CREATE ------------------------------------------------------------------ */

/* Put a new rank into the communicator that @join finds for it, and publish it. */
int npulink_rank_join(struct npulink_rank *rank,
		      int (*join)(struct npulink_rank *rank, void *arg), void *arg)
{
	struct npulink_file *file = rank->file;
	int rc;

	/* Either the removal of the device finds the rank, or the rank finds it gone. */
	if (!percpu_ref_tryget_live(&file->dev->users))
		return -ENODEV;
	rc = npulink_lock(&npulink_comms_lock);
	if (rc)
		goto out;
	rc = join(rank, arg);
	/* Visible to the file's other threads before the lock is dropped. */
	if (!rc) {
		npulink_comm_note_net(rank->comm);
		npulink_flight_joined(rank);
		npulink_object_publish(file, &rank->obj);
	}
	mutex_unlock(&npulink_comms_lock);
out:
	percpu_ref_put(&file->dev->users);
	return rc;
}

int npulink_comm_create_ioctl(struct npulink_ucmd *ucmd)
{
	struct npulink_comm_create *cmd = ucmd->cmd;
	struct npulink_comm_arg arg = { .cmd = cmd };
	struct npulink_file *file = ucmd->file;
	struct npulink_rank *rank;
	int rc;

	if (cmd->flags & ~(NPULINK_COMM_ANY_UID | NPULINK_COMM_CHECKSUM))
		return -EOPNOTSUPP;
	if (!cmd->nranks || cmd->nranks > NPULINK_MAX_RANKS || cmd->rank >= cmd->nranks)
		return -EINVAL;
	if (cmd->peer_timeout_ms && (cmd->peer_timeout_ms < NPULINK_PEER_TIMEOUT_MIN ||
				     cmd->peer_timeout_ms > NPULINK_PEER_TIMEOUT_MAX))
		return -EINVAL;
	rank = npulink_rank_new(file);
	if (IS_ERR(rank))
		return PTR_ERR(rank);
	rank->rank = cmd->rank;
	rank->peer_timeout_ms = cmd->peer_timeout_ms;
	/* Before the lock: a page fault may take as long as the user likes. */
	cmd->out_id = rank->obj.id;
	rc = npulink_ucmd_respond(ucmd, sizeof(*cmd));
	if (rc)
		goto out;
	rc = -ENOMEM;
	/* Before the lock, too: its memory cgroup may have to reclaim first. */
	arg.fresh = npulink_comm_new(cmd->secret, cmd->nranks, cmd->flags);
	if (!arg.fresh)
		goto out;
	rc = npulink_rank_join(rank, npulink_comm_join, &arg);
	if (arg.fresh)
		npulink_comm_put(arg.fresh);
out:
	if (rc)
		npulink_object_abort(file, &rank->obj);
	return rc;
}
