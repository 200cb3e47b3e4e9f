// SPDX-License-Identifier: GPL-2.0
/*
 * comm.c - communicators: what a rank knows of its peers, and how a failure reaches all
 * ranks of the node. Ranks come and go in rank.c.
 *
 * A communicator fails once, for one cause. The cause is recorded under comm->lock
 * by whoever notices it, in any context; telling the ranks takes comm->mutex and is
 * done at once by a caller that can sleep, by a worker otherwise.
 */
#include <linux/mutex.h>
#include <linux/nsproxy.h>
#include <linux/slab.h>
#include <linux/uidgid.h>
#include <linux/user_namespace.h>
#include <net/net_namespace.h>
#include "base/notify.h"
#include "base/number.h"
#include "base/queue.h"
#include "comm/agree.h"
#include "comm/comm.h"
#include "comm/flight.h"
#include "device/device_core.h"
#include "file/account.h"
#include "file/file.h"
#include "observe/trace.h"

static DEFINE_XARRAY_ALLOC1(npulink_comms_by_serial);	/* and those that none can join */
const struct npulink_comm_events *npulink_comm_events;
const struct npulink_conn_events *npulink_conn_events;
DEFINE_MUTEX(npulink_comms_lock);	/* npulink_comms, who is in it, and comm->child */

int npulink_cause_errno(u32 cause)
{
	static const int errnos[] = {
		[NPULINK_CAUSE_ABORT] = -ECANCELED,
		[NPULINK_CAUSE_DEADLINE] = -ETIMEDOUT,
		[NPULINK_CAUSE_DEATH] = -EOWNERDEAD,
		[NPULINK_CAUSE_LEFT] = -ESHUTDOWN,
		[NPULINK_CAUSE_MISMATCH] = -EPROTO,
		[NPULINK_CAUSE_LINK] = -ENOLINK,
		[NPULINK_CAUSE_DEVICE] = -EIO,
		[NPULINK_CAUSE_CHECKSUM] = -EBADMSG,
		[NPULINK_CAUSE_DEADLOCK] = -EDEADLK,
		[NPULINK_CAUSE_REMOVED] = -ENODEV,
	};

	return errnos[cause];
}

/* ---- failure ---------------------------------------------------------------------- */

/* About something of @comm. Any context but NMI. */
void npulink_comm_notify(const struct npulink_comm *comm, struct npulink_notice *notice)
{
	if (!comm->any_uid)
		notice->uid = comm->uid;
	/* Pairs with npulink_comm_note_net(). */
	npulink_notify(notice, comm->whose, comm->nets, smp_load_acquire(&comm->nnets));
}

static void npulink_comm_notify_cause(const struct npulink_comm *comm,
				      const struct npulink_cause *cause)
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
		notice.place_net = npulink_rank_net(rank);
	rcu_read_unlock();
	if (cause->cause == NPULINK_CAUSE_DEADLOCK)
		notice.circle = comm->circle;
	npulink_comm_notify(comm, &notice);
}

/* Record the first cause. Any context but NMI. */
static bool npulink_comm_record(struct npulink_comm *comm, const struct npulink_cause *cause)
{
	unsigned long flags;
	bool first;

	spin_lock_irqsave(&comm->lock, flags);
	first = !comm->failed;
	if (first) {
		comm->cause = *cause;
		comm->cause.status = npulink_cause_errno(cause->cause);
		/* Whoever sees it sees the cause. */
		smp_store_release(&comm->failed, true);
		npulink_comm_events->failed(comm);
	}
	spin_unlock_irqrestore(&comm->lock, flags);
	if (first) {
		trace_npulink_abort(comm, cause);
		npulink_comm_notify_cause(comm, cause);
	}
	return first;
}

/* The first one from *@i on; referenced. */
struct npulink_rank *npulink_comm_get_next_rank(struct npulink_comm *comm, u32 *i)
{
	struct npulink_rank *rank = NULL;
	u32 end;

	while (!rank && *i < comm->nranks) {
		end = min(*i + 0x10000, comm->nranks);
		rcu_read_lock();
		for (; !rank && *i < end; ++*i) {
			rank = rcu_dereference(comm->ranks[*i]);
			if (rank && !kref_get_unless_zero(&rank->obj.kref))
				rank = NULL;
		}
		rcu_read_unlock();
		cond_resched();
	}
	return rank;
}

static void npulink_comm_abort_work(struct work_struct *work)
{
	struct npulink_comm *comm = container_of(work, struct npulink_comm, abort_work);

	npulink_comm_events->flood(comm);
	npulink_comm_put(comm);
}

/* Any context but NMI. */
void npulink_comm_fail(struct npulink_comm *comm, const struct npulink_cause *cause)
{
	if (!npulink_comm_record(comm, cause))
		return;
	kref_get(&comm->kref);
	npulink_queue(&comm->abort_work);
}

/* Task context, no locks held: when it returns, all ranks have been told. */
void npulink_comm_fail_now(struct npulink_comm *comm, const struct npulink_cause *cause)
{
	npulink_comm_record(comm, cause);
	npulink_comm_events->flood(comm);
}

/* ---- calls -------------------------------------------------------------------------- */

/*
 * Compare a collective with what the first rank called under that number. The table
 * is as long as ranks usually are apart; those who are further apart compare
 * when they meet.
 */
int npulink_comm_check_call(struct npulink_comm *comm, struct npulink_rank *rank, u64 number,
			    const struct npulink_call *call, struct npulink_cause *cause)
{
	struct npulink_called *e = &comm->calls[number % NPULINK_CALL_TABLE];
	int rc = 0;

	lockdep_assert_held(&rank->lock);
	spin_lock(&comm->lock);
	if (npulink_number_before(rank->next, number) &&
	    (!comm->skips || npulink_number_before(comm->skipped, number))) {
		comm->skips = true;
		comm->skipped = number;
	}
	if (!e->used || npulink_number_before(e->number, number)) {
		e->used = true;
		e->number = number;
		e->rank = rank->rank;
		e->call = *call;
	} else if (e->number == number && memcmp(&e->call, call, sizeof(*call))) {
		if (cause)
			*cause = (struct npulink_cause) {
				.cause = NPULINK_CAUSE_MISMATCH, .rank = rank->rank,
				.peer = e->rank, .step = ~0U, .number = npulink_told(number),
				.calls[0] = *call, .calls[1] = e->call,
			};
		rc = -EPROTO;
	}
	spin_unlock(&comm->lock);
	return rc;
}

/* ---- life ----------------------------------------------------------------------------- */

/* The first communicator with a serial of at least *serial, referenced; sets *serial. */
struct npulink_comm *npulink_comm_next(unsigned long *serial)
{
	struct npulink_comm *comm;

	xa_lock(&npulink_comms_by_serial);
	for (comm = xa_find(&npulink_comms_by_serial, serial, ULONG_MAX, XA_PRESENT); comm;
	     comm = xa_find_after(&npulink_comms_by_serial, serial, ULONG_MAX, XA_PRESENT))
		if (kref_get_unless_zero(&comm->kref))
			break;
	xa_unlock(&npulink_comms_by_serial);
	return comm;
}

static void npulink_comm_free(struct npulink_comm *comm)
{
	if (comm->serial)
		xa_erase(&npulink_comms_by_serial, comm->serial);
	npulink_tag_del(&comm->tags[0]);
	npulink_tag_del(&comm->tags[1]);
	npulink_agree_free(comm->agree);
	put_user_ns(comm->userns);
	bitmap_free(comm->here);
	bitmap_free(comm->left);
	bitmap_free(comm->died);
	kvfree(comm->ranks);
	kvfree(comm->round_ops);
	kvfree(comm->rounds);
	npulink_comm_events->free(comm);
	kvfree(comm->map);
	memzero_explicit(comm->secret, sizeof(comm->secret));
	memzero_explicit(comm->agree_secret, sizeof(comm->agree_secret));
	kfree(comm);
}

/* May sleep. A loop: each may have held the last reference of the one that it came from. */
void npulink_comm_put(struct npulink_comm *comm)
{
	while (comm && refcount_dec_and_mutex_lock(&comm->kref.refcount, &npulink_comms_lock)) {
		struct npulink_comm *parent = comm->parent, *child = comm->child;

		if (parent && parent->child == comm)
			parent->child = NULL;
		if (child && child->parent == comm)
			child->parent = NULL;
		mutex_unlock(&npulink_comms_lock);
		if (!comm->awaited)
			parent = NULL;
		npulink_comm_free(comm);
		comm = parent;
	}
}

static int npulink_comm_make_rounds(struct npulink_comm *comm)
{
	const size_t n = NPULINK_MAX_INFLIGHT;
	u32 i;

	if (comm->nranks > NPULINK_ROUND_RANKS)
		return 0;
	comm->rounds = kvcalloc(n, sizeof(*comm->rounds), GFP_KERNEL_ACCOUNT);
	comm->round_ops = kvcalloc(n * comm->nranks, sizeof(*comm->round_ops), GFP_KERNEL_ACCOUNT);
	if (!comm->rounds || !comm->round_ops)
		return -ENOMEM;
	for (i = 0; i < n; i++)
		comm->rounds[i].ops = comm->round_ops + (size_t)i * comm->nranks;
	return 0;
}

/* With one reference. */
struct npulink_comm *npulink_comm_new(const u8 *secret, u32 nranks, u32 flags)
{
	static u32 next_serial = NPULINK_FIRST_OF(u32, 50) >> 1;	/* under the table's lock */
	u32 serial;
	struct npulink_comm *comm = kzalloc(sizeof(*comm), GFP_KERNEL_ACCOUNT);

	if (!comm)
		return NULL;
	kref_init(&comm->kref);
	comm->userns = get_user_ns(current_user_ns());
	comm->ranks = kvcalloc(nranks, sizeof(*comm->ranks), GFP_KERNEL_ACCOUNT);
	comm->here = bitmap_zalloc(nranks, GFP_KERNEL_ACCOUNT);
	comm->left = bitmap_zalloc(nranks, GFP_KERNEL_ACCOUNT);
	comm->died = bitmap_zalloc(nranks, GFP_KERNEL_ACCOUNT);
	memcpy(comm->secret, secret, sizeof(comm->secret));
	comm->nranks = nranks;
	comm->any_uid = flags & NPULINK_COMM_ANY_UID;
	comm->checksum = flags & NPULINK_COMM_CHECKSUM;
	comm->uid = current_fsuid();
	comm->whose = npulink_quota_uid();
	mutex_init(&comm->mutex);
	mutex_init(&comm->flood);
	spin_lock_init(&comm->lock);
	INIT_WORK(&comm->abort_work, npulink_comm_abort_work);
	/* Whoever sees it by its serial sees all of it. */
	if (!comm->ranks || !comm->here || !comm->left || !comm->died ||
	    npulink_comm_make_rounds(comm) ||
	    xa_alloc_cyclic(&npulink_comms_by_serial, &serial, NULL, xa_limit_31b, &next_serial,
			    GFP_KERNEL_ACCOUNT) < 0) {
		npulink_comm_free(comm);
		return NULL;
	}
	comm->serial = serial;
	return comm;
}

/* It will be used. Its place in the table is there already. */
void npulink_comm_publish(struct npulink_comm *comm)
{
	xa_store(&npulink_comms_by_serial, comm->serial, comm, GFP_KERNEL_ACCOUNT);
}

/* Whoever is in the caller's network namespace may hear of it. Under npulink_comms_lock. */
void npulink_comm_note_net(struct npulink_comm *comm)
{
	u64 cookie = current->nsproxy->net_ns->net_cookie;
	u32 i;

	lockdep_assert_held(&npulink_comms_lock);
	for (i = 0; i < comm->nnets; i++)
		if (comm->nets[i] == cookie)
			return;
	if (i == NPULINK_NOTICE_NETS)
		return;
	comm->nets[i] = cookie;
	/* Pairs with npulink_comm_notify(). */
	smp_store_release(&comm->nnets, i + 1);
}

/* ---- peers ------------------------------------------------------------------------------ */

/* The rank's record of @peer, made on first use, if it is not NULL @far there. May sleep. */
struct npulink_conn *npulink_conn_get(struct npulink_rank *rank, u32 peer,
				      const struct npulink_where *far)
{
	struct npulink_conn *conn = xa_load(&rank->conns, peer), *old;

	if (conn)
		return conn;
	conn = kzalloc(sizeof(*conn), GFP_KERNEL_ACCOUNT);
	if (!conn)
		return ERR_PTR(-ENOMEM);
	conn->rank = peer;
	conn->dev = NPULINK_NO_DEV;
	if (far) {
		conn->far = true;
		conn->at = *far;
	}
	INIT_LIST_HEAD(&conn->p2p[0]);
	INIT_LIST_HEAD(&conn->p2p[1]);
	conn->p2p_next[0] = NPULINK_FIRST_NUMBER;
	conn->p2p_next[1] = NPULINK_FIRST_NUMBER;
	if (rank->flight) {
		conn->ledger = npulink_flight_peer(rank->flight, peer);
		if (IS_ERR(conn->ledger)) {
			old = ERR_CAST(conn->ledger);
			kfree(conn);
			return old;
		}
	}
	old = xa_cmpxchg(&rank->conns, peer, NULL, conn, GFP_KERNEL_ACCOUNT);
	if (old) {
		kfree(conn);
		return xa_is_err(old) ? ERR_PTR(xa_err(old)) : old;
	}
	return conn;
}

/* The links between @rank's device and that of @peer, for @rank's @conn. May sleep. */
static int npulink_conn_make_links(struct npulink_rank *rank, struct npulink_conn *conn,
				   struct npulink_rank *peer)
{
	struct npulink_link *link = npulink_link_get(rank->dev, peer->dev, true);
	struct npulink_link *back = npulink_link_get(peer->dev, rank->dev, true);

	if (IS_ERR(link) || IS_ERR(back)) {
		int rc = IS_ERR(link) ? PTR_ERR(link) : PTR_ERR(back);

		npulink_link_put(link);
		npulink_link_put(back);
		return rc;
	}
	if (cmpxchg(&conn->link, NULL, link))
		npulink_link_put(link);
	if (cmpxchg(&conn->back, NULL, back))
		npulink_link_put(back);
	WRITE_ONCE(conn->dev, peer->dev->id);
	if (conn->ledger)
		WRITE_ONCE(conn->ledger->dev, peer->dev->id);
	return 0;
}

/* @rank's @conn, which has links, leads to @peer: unless @rank has left and let go of all. */
static int npulink_conn_meet(struct npulink_rank *rank, struct npulink_conn *conn,
			     struct npulink_rank *peer)
{
	unsigned long flags;
	int rc = 0;

	spin_lock_irqsave(&rank->lock, flags);
	if (rank->closed)
		rc = -ESHUTDOWN;
	else if (!conn->peer)
		/* Whoever sees it sees the links. */
		smp_store_release(&conn->peer, npulink_rank_get(peer));
	spin_unlock_irqrestore(&rank->lock, flags);
	return rc;
}

/*
 * Find the peer's rank structure and the links to and from its device. -ENOENT: it has
 * not joined yet, -ESHUTDOWN: it has left. Links are made when the plan of the later
 * of the two is created, so that POST has nothing to allocate.
 */
int npulink_conn_resolve(struct npulink_rank *rank, struct npulink_conn *conn)
{
	struct npulink_comm *comm = rank->comm;
	struct npulink_conn *other;
	struct npulink_rank *peer;
	int rc;

	if (conn->far)
		return npulink_conn_events->resolve(rank, conn);
	/* Pairs with npulink_conn_meet(). */
	if (smp_load_acquire(&conn->peer))
		return 0;
	/* Either we find the peer, or it finds @conn: each is published before it looks. */
	smp_mb();
	rcu_read_lock();
	peer = rcu_dereference(comm->ranks[conn->rank]);
	if (peer && !kref_get_unless_zero(&peer->obj.kref))
		peer = NULL;
	rcu_read_unlock();
	if (!peer)
		return test_bit(conn->rank, comm->left) ? -ESHUTDOWN : -ENOENT;
	rc = npulink_conn_make_links(rank, conn, peer);
	/*
	 * If the peer was here first, it has asked in vain, and may have posted already. Both
	 * sides have links before either is seen to know the other, as that may run both.
	 */
	other = rc ? NULL : xa_load(&peer->conns, rank->rank);
	if (other && !other->far) {
		rc = npulink_conn_make_links(peer, other, rank);
		if (!rc)
			rc = npulink_conn_meet(peer, other, rank);
	}
	if (!rc)
		rc = npulink_conn_meet(rank, conn, peer);
	npulink_rank_put(peer);
	return rc;
}

void npulink_conn_drop(struct npulink_conn *conn)
{
	struct npulink_rank *peer = xchg(&conn->peer, NULL);

	if (peer)
		npulink_rank_put(peer);
	npulink_conn_events->close(conn);
	/* Elsewhere it has one way, which goes with the session. */
	if (conn->far)
		return;
	npulink_link_put(xchg(&conn->link, NULL));
	npulink_link_put(xchg(&conn->back, NULL));
}

/* ---- ioctls -------------------------------------------------------------------------------- */

int npulink_comm_abort_ioctl(struct npulink_ucmd *ucmd)
{
	struct npulink_comm_abort *cmd = ucmd->cmd;
	struct npulink_cause cause = {
		.cause = NPULINK_CAUSE_ABORT, .peer = NPULINK_NO_PEER, .step = ~0U,
		.number = ~0ULL, .code = cmd->code,
	};
	struct npulink_rank *rank;

	if (cmd->flags)
		return -EOPNOTSUPP;
	rank = npulink_rank_lookup(ucmd->file, cmd->comm_id);
	if (IS_ERR(rank))
		return PTR_ERR(rank);
	cause.rank = rank->rank;
	npulink_comm_fail_now(rank->comm, &cause);
	npulink_rank_put(rank);
	return 0;
}

int npulink_comm_status_ioctl(struct npulink_ucmd *ucmd)
{
	struct npulink_comm_status *cmd = ucmd->cmd;
	struct npulink_comm *comm;
	struct npulink_rank *rank;
	int rc;

	if (cmd->flags)
		return -EOPNOTSUPP;
	rank = npulink_rank_lookup(ucmd->file, cmd->comm_id);
	if (IS_ERR(rank))
		return PTR_ERR(rank);
	comm = rank->comm;
	cmd->out_joined = READ_ONCE(comm->joined);
	cmd->out_next = npulink_rank_next(rank);
	cmd->out_cause = NPULINK_CAUSE_NONE;
	cmd->out_status = 0;
	cmd->out_rank = 0;
	cmd->out_peer = NPULINK_NO_PEER;
	cmd->out_step = ~0U;
	cmd->out_code = 0;
	cmd->out_number = ~0ULL;
	memset(cmd->out_calls, 0, sizeof(cmd->out_calls));
	cmd->out_ncircle = 0;
	cmd->out_reserved = 0;
	memset(cmd->out_circle, 0, sizeof(cmd->out_circle));
	memset(cmd->out_peer_ip, 0, sizeof(cmd->out_peer_ip));
	memset(cmd->out_port, 0, sizeof(cmd->out_port));
	/* Pairs with npulink_comm_record(). */
	if (smp_load_acquire(&comm->failed)) {
		const struct npulink_cause *c = &comm->cause;

		cmd->out_cause = c->cause;
		cmd->out_status = c->status;
		cmd->out_rank = c->rank;
		cmd->out_peer = c->peer;
		cmd->out_step = c->step;
		cmd->out_code = c->code;
		cmd->out_number = c->number;
		memcpy(cmd->out_calls, c->calls, sizeof(c->calls));
		memcpy(cmd->out_peer_ip, c->ip, sizeof(c->ip));
		memcpy(cmd->out_port, c->port, sizeof(c->port));
		if (c->cause == NPULINK_CAUSE_DEADLOCK) {
			cmd->out_ncircle = comm->circle.n;
			memcpy(cmd->out_circle, comm->circle.waits, sizeof(cmd->out_circle));
		}
	}
	npulink_rank_put(rank);
	rc = npulink_ucmd_respond(ucmd, sizeof(*cmd));
	return rc;
}

void npulink_comm_init(const struct npulink_comm_events *comm_events,
		       const struct npulink_conn_events *conn_events)
{
	npulink_comm_events = comm_events;
	npulink_conn_events = conn_events;
	npulink_ranks_init();
}

void npulink_comm_exit(void)
{
	xa_destroy(&npulink_comms_by_serial);
}
