// SPDX-License-Identifier: GPL-2.0
/*
 * genl_comm.c - communicators and their ranks over netlink. Nothing that a collective
 * needs is held for longer than it takes to copy a few numbers of one rank.
 */
#include <linux/cred.h>
#include <linux/pid_namespace.h>
#include <linux/sched/signal.h>
#include "base/clock.h"
#include "base/notify.h"
#include "base/number.h"
#include "comm/comm.h"
#include "file/file.h"
#include "observe/genl.h"
#include "run/op.h"

/* ---- who sees what -------------------------------------------------------------- */

static bool npulink_genl_capable(const struct sk_buff *asked, struct user_namespace *ns)
{
	return netlink_ns_capable(asked, ns, CAP_SYS_PTRACE);
}

static bool npulink_genl_is(const struct sk_buff *asked, kuid_t uid, kuid_t euid, kuid_t suid)
{
	kuid_t asker = NETLINK_CREDS(asked)->uid;

	return uid_eq(asker, uid) && uid_eq(asker, euid) && uid_eq(asker, suid);
}

/* What belongs to a process: its user, but not if it has changed user, as with ptrace(). */
bool npulink_genl_sees_cred(const struct sk_buff *asked, const struct cred *cred)
{
	return npulink_genl_is(asked, cred->uid, cred->euid, cred->suid) ||
	       npulink_genl_capable(asked, cred->user_ns);
}

/*
 * The same of a process that may have gone, with its user namespace: who may see all of those
 * that the asker's one knows, as with the owners of inodes.
 */
bool npulink_genl_sees_uids(const struct sk_buff *asked, kuid_t uid, kuid_t euid, kuid_t suid)
{
	struct user_namespace *ns = current_user_ns();

	return npulink_genl_is(asked, uid, euid, suid) ||
	       (kuid_has_mapping(ns, uid) && kuid_has_mapping(ns, euid) &&
		kuid_has_mapping(ns, suid) && npulink_genl_capable(asked, ns));
}

/* Its creator's user, and root of the user namespace that it was made in. */
static bool npulink_genl_owns_comm(const struct sk_buff *asked, const struct npulink_comm *comm)
{
	return uid_eq(NETLINK_CREDS(asked)->uid, comm->uid) ||
	       npulink_genl_capable(asked, comm->userns);
}

/* Those, and who has a rank in it. */
bool npulink_genl_sees_comm(const struct sk_buff *asked, struct npulink_comm *comm)
{
	bool sees = npulink_genl_owns_comm(asked, comm);
	struct npulink_rank *rank;
	unsigned long i = 0;

	for (; !sees && comm->any_uid && (rank = npulink_genl_rank(comm, &i)); i++) {
		sees = npulink_genl_sees_cred(asked, rank->file->cred);
		npulink_rank_put(rank);
	}
	return sees;
}

u32 npulink_genl_pid(const struct npulink_file *file)
{
	return pid_nr_ns(file->tgid, task_active_pid_ns(current));
}

u32 npulink_genl_uid(kuid_t uid)
{
	return from_kuid_munged(current_user_ns(), uid);
}

struct npulink_rank *npulink_genl_rank(struct npulink_comm *comm, unsigned long *i)
{
	struct npulink_rank *rank = NULL;

	for (; !rank && *i < comm->nranks; ++*i) {
		rcu_read_lock();
		rank = rcu_dereference(comm->ranks[*i]);
		if (rank && !kref_get_unless_zero(&rank->obj.kref))
			rank = NULL;
		rcu_read_unlock();
		if (rank)
			break;
		if (!(*i & 0xfff)) {
			cond_resched();
			/* Then nobody reads the rest. */
			if (fatal_signal_pending(current)) {
				*i = comm->nranks;
				break;
			}
		}
	}
	return rank;
}

/* ---- communicators -------------------------------------------------------------- */

int npulink_genl_put_call(struct sk_buff *skb, int attr, const struct npulink_call *call)
{
	struct nlattr *nest = nla_nest_start(skb, attr);

	if (!nest || nla_put_u32(skb, NPULINK_A_CALL_COLLECTIVE, call->collective) ||
	    nla_put_u32(skb, NPULINK_A_CALL_DTYPE, call->dtype) ||
	    nla_put_u32(skb, NPULINK_A_CALL_REDOP, call->redop) ||
	    nla_put_u32(skb, NPULINK_A_CALL_ROOT, call->root) ||
	    nla_put_u64_64bit(skb, NPULINK_A_CALL_COUNT, call->count, NPULINK_A_CALL_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_CALL_SET_ID, call->set_id, NPULINK_A_CALL_PAD))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

int npulink_genl_put_circle(struct sk_buff *skb, int attr, const struct npulink_circle *circle)
{
	u32 i;

	for (i = 0; i < circle->n && i < NPULINK_CIRCLE_MAX; i++) {
		const struct npulink_circle_wait *w = &circle->waits[i];
		struct nlattr *nest = nla_nest_start(skb, attr);

		if (!nest || nla_put_u32(skb, NPULINK_A_CIRCLE_COMM, w->comm) ||
		    nla_put_u32(skb, NPULINK_A_CIRCLE_RANK, w->rank) ||
		    nla_put_u32(skb, NPULINK_A_CIRCLE_PEER, w->peer) ||
		    (w->number != ~0ULL &&
		     nla_put_u64_64bit(skb, NPULINK_A_CIRCLE_NUMBER, w->number,
				       NPULINK_A_CIRCLE_PAD)))
			return -EMSGSIZE;
		nla_nest_end(skb, nest);
	}
	return 0;
}

/* A machine, and the port of ours that leads to it; none of it if there is none. */
int npulink_genl_put_place(struct sk_buff *skb, int ip_attr, const u8 *ip, int port_attr,
			   const char *port)
{
	if (!memchr_inv(ip, 0, 16))
		return 0;
	if (nla_put(skb, ip_attr, 16, ip) || (*port && nla_put_string(skb, port_attr, port)))
		return -EMSGSIZE;
	return 0;
}

static int npulink_genl_put_cause(struct sk_buff *skb, const struct npulink_comm *comm)
{
	const struct npulink_cause *c = &comm->cause;
	struct nlattr *nest = nla_nest_start(skb, NPULINK_A_COMM_CAUSE);

	if (!nest || nla_put_u32(skb, NPULINK_A_CAUSE_CAUSE, c->cause) ||
	    nla_put_u32(skb, NPULINK_A_CAUSE_ERRNO, -c->status) ||
	    nla_put_u32(skb, NPULINK_A_CAUSE_RANK, c->rank) ||
	    (c->peer != NPULINK_NO_PEER && nla_put_u32(skb, NPULINK_A_CAUSE_PEER, c->peer)) ||
	    (c->step != ~0U && nla_put_u32(skb, NPULINK_A_CAUSE_STEP, c->step)) ||
	    (c->number != ~0ULL && nla_put_u64_64bit(skb, NPULINK_A_CAUSE_NUMBER, c->number,
						     NPULINK_A_CAUSE_PAD)) ||
	    nla_put_u32(skb, NPULINK_A_CAUSE_CODE, c->code) ||
	    npulink_genl_put_place(skb, NPULINK_A_CAUSE_IP, c->ip, NPULINK_A_CAUSE_PORT,
				   c->port) ||
	    ((c->cause == NPULINK_CAUSE_MISMATCH || c->cause == NPULINK_CAUSE_DEADLOCK) &&
	     (npulink_genl_put_call(skb, NPULINK_A_CAUSE_CALLS, &c->calls[0]) ||
	      npulink_genl_put_call(skb, NPULINK_A_CAUSE_CALLS, &c->calls[1]))) ||
	    (c->cause == NPULINK_CAUSE_DEADLOCK &&
	     (nla_put_u32(skb, NPULINK_A_CAUSE_NCIRCLE, comm->circle.n) ||
	      npulink_genl_put_circle(skb, NPULINK_A_CAUSE_CIRCLE, &comm->circle))))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

static int npulink_genl_fill_comm(struct sk_buff *skb, const struct sk_buff *asked,
				  struct npulink_comm *comm)
{
	u32 parent = READ_ONCE(comm->parent_serial);

	if (nla_put_u32(skb, NPULINK_A_COMM_ID, comm->serial) ||
	    nla_put_u32(skb, NPULINK_A_COMM_NRANKS, comm->nranks) ||
	    nla_put_u32(skb, NPULINK_A_COMM_JOINED, READ_ONCE(comm->joined)) ||
	    nla_put_u32(skb, NPULINK_A_COMM_LEFT, READ_ONCE(comm->nleft)) ||
	    (npulink_genl_owns_comm(asked, comm) &&
	     nla_put_u32(skb, NPULINK_A_COMM_UID, npulink_genl_uid(comm->uid))) ||
	    (comm->any_uid && nla_put_flag(skb, NPULINK_A_COMM_ANY_UID)) ||
	    (parent && nla_put_u32(skb, NPULINK_A_COMM_PARENT, parent)))
		return -EMSGSIZE;
	/* Pairs with npulink_comm_record(). */
	if (smp_load_acquire(&comm->failed))
		return npulink_genl_put_cause(skb, comm);
	return 0;
}

static int npulink_genl_dump_comm(struct sk_buff *skb, struct netlink_callback *cb, void *obj)
{
	void *header = npulink_genl_put(skb, cb, NPULINK_GENL_CMD_COMM_GET);
	int rc = header ? npulink_genl_fill_comm(skb, cb->skb, obj) : -EMSGSIZE;

	npulink_genl_done(skb, header, rc);
	return rc;
}

int npulink_genl_comm_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	return npulink_genl_dump(skb, cb, &npulink_genl_comms, 0, npulink_genl_dump_comm);
}

/* ---- ranks ---------------------------------------------------------------------- */

/* The thread that has posted last, if it is there yet: its number may be another one's by now. */
static u32 npulink_genl_tid(const struct npulink_rank *rank)
{
	struct task_struct *task;
	struct pid *pid;
	u32 tid = 0;

	rcu_read_lock();
	pid = find_pid_ns(READ_ONCE(rank->caller), &init_pid_ns);
	task = pid_task(pid, PIDTYPE_PID);
	if (task && task_tgid(task) == rank->file->tgid)
		tid = pid_nr_ns(pid, task_active_pid_ns(current));
	rcu_read_unlock();
	return tid;
}

static int npulink_genl_fill_process(struct sk_buff *skb, const struct sk_buff *asked,
				     const struct npulink_rank *rank)
{
	const struct npulink_file *file = rank->file;
	u32 tid;

	if (!npulink_genl_sees_cred(asked, file->cred))
		return 0;
	tid = npulink_genl_tid(rank);
	if (nla_put_u32(skb, NPULINK_A_RANK_PID, npulink_genl_pid(file)) ||
	    nla_put_u32(skb, NPULINK_A_RANK_UID, npulink_genl_uid(file->cred->euid)) ||
	    nla_put_u32(skb, NPULINK_A_RANK_FILE, file->id) ||
	    (tid && nla_put_u32(skb, NPULINK_A_RANK_TID, tid)))
		return -EMSGSIZE;
	return 0;
}

static int npulink_genl_fill_rank(struct sk_buff *skb, const struct sk_buff *asked,
				  struct npulink_rank *rank)
{
	struct npulink_file *file = rank->file;
	struct npulink_rank_stats stats;
	const struct npulink_op *oldest;
	u64 next, met, age = 0;

	spin_lock_irq(&rank->lock);
	stats = rank->stats;
	next = npulink_told(rank->next);
	met = rank->met;
	oldest = list_first_entry_or_null(&rank->ops, struct npulink_op, node);
	if (oldest)
		age = max_t(s64, npulink_clock() - oldest->start_ns, 0);
	spin_unlock_irq(&rank->lock);

	if (nla_put_u32(skb, NPULINK_A_RANK_COMM, rank->comm->serial) ||
	    nla_put_u32(skb, NPULINK_A_RANK_RANK, rank->rank) ||
	    nla_put_u32(skb, NPULINK_A_RANK_STATE, READ_ONCE(file->dead) ?
			NPULINK_RANK_STATE_DEAD : NPULINK_RANK_STATE_JOINED) ||
	    nla_put_u32(skb, NPULINK_A_RANK_DEV, rank->dev->id) ||
	    nla_put_u64_64bit(skb, NPULINK_A_RANK_NEXT, next, NPULINK_A_RANK_PAD) ||
	    nla_put_u32(skb, NPULINK_A_RANK_OPS, stats.inflight) ||
	    (oldest && nla_put_u64_64bit(skb, NPULINK_A_RANK_OLDEST, age, NPULINK_A_RANK_PAD)) ||
	    nla_put_u64_64bit(skb, NPULINK_A_RANK_DONE, stats.done, NPULINK_A_RANK_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_RANK_FAILED, stats.failed, NPULINK_A_RANK_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_RANK_BYTES, stats.bytes, NPULINK_A_RANK_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_RANK_BUSY, stats.busy_ns, NPULINK_A_RANK_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_RANK_MET, met, NPULINK_A_RANK_PAD))
		return -EMSGSIZE;
	return npulink_genl_fill_process(skb, asked, rank);
}

/* A member of one before, which is rank @i of @comm, and has not come to it. */
static int npulink_genl_fill_awaited(struct sk_buff *skb, const struct sk_buff *asked,
				     const struct npulink_comm *comm, u32 i,
				     const struct npulink_rank *before)
{
	if (nla_put_u32(skb, NPULINK_A_RANK_COMM, comm->serial) ||
	    nla_put_u32(skb, NPULINK_A_RANK_RANK, i) ||
	    nla_put_u32(skb, NPULINK_A_RANK_STATE, NPULINK_RANK_STATE_AWAITED) ||
	    nla_put_u32(skb, NPULINK_A_RANK_DEV, before->dev->id) ||
	    nla_put_u32(skb, NPULINK_A_RANK_BEFORE, before->rank) ||
	    nla_put_u32(skb, NPULINK_A_RANK_BEFORE_COMM, before->comm->serial))
		return -EMSGSIZE;
	return npulink_genl_fill_process(skb, asked, before);
}

static int npulink_genl_fill_left(struct sk_buff *skb, const struct npulink_comm *comm, u32 rank)
{
	if (nla_put_u32(skb, NPULINK_A_RANK_COMM, comm->serial) ||
	    nla_put_u32(skb, NPULINK_A_RANK_RANK, rank) ||
	    nla_put_u32(skb, NPULINK_A_RANK_STATE, test_bit(rank, comm->died) ?
			NPULINK_RANK_STATE_DEAD : NPULINK_RANK_STATE_LEFT))
		return -EMSGSIZE;
	return 0;
}

/*
 * The first rank from *i on that there is something to tell of; sets *i, to the number of ranks if
 * there is none. *rank, referenced: it, or if *awaited what it is in the communicator before; NULL:
 * it has left.
 */
static void npulink_genl_next_rank(struct npulink_comm *comm, unsigned long *i,
				   struct npulink_rank **rank, bool *awaited)
{
	unsigned long member = *i, end;

	*rank = npulink_genl_rank(comm, &member);
	*awaited = false;
	end = find_next_bit(comm->left, member, *i);
	for (; READ_ONCE(comm->awaited) && *i < end; ++*i) {
		struct npulink_rank *before = npulink_comm_awaited(comm, *i);

		cond_resched();
		/* Then nobody reads the rest. */
		if (!before && fatal_signal_pending(current)) {
			end = comm->nranks;
			break;
		}
		if (!before)
			continue;
		if (*rank)
			npulink_rank_put(*rank);
		*rank = before;
		*awaited = true;
		return;
	}
	*i = end;
	if (end != member && *rank) {
		npulink_rank_put(*rank);
		*rank = NULL;
	}
}

/* Goes on with rank args[1]. */
static int npulink_genl_dump_ranks(struct sk_buff *skb, struct netlink_callback *cb, void *obj)
{
	struct npulink_comm *comm = obj;
	struct npulink_rank *rank;
	unsigned long i;
	bool awaited;

	for (i = cb->args[1]; ; i++) {
		void *header;
		int rc;

		npulink_genl_next_rank(comm, &i, &rank, &awaited);
		if (i >= comm->nranks)
			return 0;
		header = npulink_genl_put(skb, cb, NPULINK_GENL_CMD_RANK_GET);
		rc = -EMSGSIZE;
		if (header && !rank)
			rc = npulink_genl_fill_left(skb, comm, i);
		else if (header && awaited)
			rc = npulink_genl_fill_awaited(skb, cb->skb, comm, i, rank);
		else if (header)
			rc = npulink_genl_fill_rank(skb, cb->skb, rank);
		if (rank)
			npulink_rank_put(rank);
		npulink_genl_done(skb, header, rc);
		if (rc) {
			cb->args[1] = i;
			return rc;
		}
	}
}

int npulink_genl_rank_start(struct netlink_callback *cb)
{
	return npulink_genl_start(cb, &npulink_genl_comms, NPULINK_A_RANK_COMM);
}

int npulink_genl_rank_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	return npulink_genl_dump(skb, cb, &npulink_genl_comms, NPULINK_A_RANK_COMM,
				 npulink_genl_dump_ranks);
}
