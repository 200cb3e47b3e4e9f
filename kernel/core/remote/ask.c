// SPDX-License-Identifier: GPL-2.0
/*
 * ask.c - what is the other one doing? A rank that has waited for long asks those of
 * its peers that are on other machines, whose kernels answer for them, also when
 * their processes do not run. For people: npulink hang.
 */
#include <linux/ctype.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/npulink_genl.h>
#include "base/clock.h"
#include "base/number.h"
#include "comm/comm.h"
#include "comm/cause.h"
#include "file/file.h"
#include "remote/remote.h"
#include "run/op.h"

/* ---- asking --------------------------------------------------------------------------- */

/* How is the peer, and has it called what @op belongs to? If there is no room, another time. */
void npulink_remote_ask(struct npulink_remote *remote, const struct npulink_op *op)
{
	struct npulink_wire_msg msg;

	lockdep_assert_held(&remote->rank->lock);
	npulink_remote_msg(remote, &msg, NPULINK_WIRE_ASK, NULL, false);
	msg.number = npulink_number_to_wire(op->number);
	msg.status.since = cpu_to_le64(max_t(s64, npulink_clock() - op->start_ns, 0));
	if (op->plan->p2p)
		msg.flags = NPULINK_WIRE_P2P | (op->plan->p2p_send ? NPULINK_WIRE_SENDS : 0);
	npulink_remote_post(remote, &msg, NULL, 0);
}

/*
 * What the peer's kernel has said is true for so long, if it does not say so again: it is asked
 * each tick.
 */
#define NPULINK_SAID_NS	(4ULL * NPULINK_TICK_MS * NSEC_PER_MSEC)

/* Has the peer's kernel ever said how it is with what @op belongs to? */
static bool npulink_remote_has_said(const struct npulink_remote *remote,
				    const struct npulink_op *op)
{
	u8 flags = remote->answer.flags;
	bool p2p = op->plan->p2p;

	return remote->answered_ns && remote->answer.number == npulink_number_to_wire(op->number) &&
	       !(flags & NPULINK_WIRE_P2P) == !p2p &&
	       (!p2p || !(flags & NPULINK_WIRE_SENDS) == !op->plan->p2p_send);
}

/* Is it known that the peer of @conn has called what @op belongs to? Under the rank's lock. */
bool npulink_remote_has_called(const struct npulink_op *op, const struct npulink_conn *conn)
{
	const struct npulink_remote *remote = conn->remote;
	bool p2p = op->plan->p2p;

	lockdep_assert_held(&op->rank->lock);
	if (!remote)
		return false;
	if (npulink_marks_have(&remote->opened[p2p], op->number))
		return true;
	return npulink_remote_has_said(remote, op) &&
	       remote->answer.status.called != NPULINK_WIRE_NOT_CALLED;
}

/*
 * Whom does rank *peer, on another machine, wait for in what @op belongs to, and in which step?
 * False if that is not known, or nobody. Under the rank's lock.
 */
bool npulink_remote_waits_for(const struct npulink_op *op, u32 *peer, u32 *step)
{
	u32 at = npulink_find_peer(op->plan, *peer);
	const struct npulink_remote *remote;
	const struct npulink_wire_status *st;

	lockdep_assert_held(&op->rank->lock);
	remote = at == ~0U ? NULL : op->plan->peers[at].conn->remote;
	if (!remote || !npulink_remote_has_said(remote, op) ||
	    npulink_clock() - remote->answered_ns > NPULINK_SAID_NS)
		return false;
	st = &remote->answer.status;
	if (st->called != NPULINK_WIRE_RUNNING || le32_to_cpu(st->peer) == NPULINK_NO_PEER)
		return false;
	*peer = le32_to_cpu(st->peer);
	*step = le32_to_cpu(st->step);
	return true;
}

/* ---- answering ------------------------------------------------------------------------- */

/* The operation of ours that the peer asks for, or NULL with *called set. */
static struct npulink_op *npulink_asked_op(const struct npulink_remote *remote,
					   const struct npulink_wire_msg *msg, u8 *called)
{
	struct npulink_rank *rank = remote->rank;
	u64 number = npulink_number_from_wire(msg->number), next = rank->next;
	struct npulink_op *op = NULL, *p;

	if (msg->flags & NPULINK_WIRE_P2P) {
		bool send = !(msg->flags & NPULINK_WIRE_SENDS);

		next = remote->conn->p2p_next[send];
		list_for_each_entry(p, &remote->conn->p2p[send], p2p_node)
			if (p->number == number)
				op = p;
	} else {
		op = rank->table[number % NPULINK_MAX_INFLIGHT];
		if (op && op->number != number)
			op = NULL;
	}
	*called = op ? NPULINK_WIRE_RUNNING : npulink_number_before(number, next) ?
		  NPULINK_WIRE_OVER : NPULINK_WIRE_NOT_CALLED;
	return op && op->state == NPULINK_OP_RUNNING ? op : NULL;
}

static void npulink_asked_wait(struct npulink_op *op, struct npulink_wire_status *st)
{
	const struct npulink_unit_state *us;
	u32 peer, step;

	if (!npulink_op_waits_for(op, &peer, &step)) {
		st->kind = NPULINK_WAIT_ENGINE;
		return;
	}
	us = &op->units[op->plan->pos[step].unit];
	st->kind = us->phase == NPULINK_UNIT_SENT ? NPULINK_WAIT_SEND : NPULINK_WAIT_RECV;
	st->peer = cpu_to_le32(peer);
	st->step = cpu_to_le32(step);
	st->since = cpu_to_le64(jiffies_to_nsecs((u32)jiffies - us->since));
	st->done = cpu_to_le64(us->done);
	st->len = cpu_to_le64(op->plan->steps[step].len);
}

/* As ps has it, but that F is frozen with its cgroup, which to ps is asleep. */
static char npulink_file_task_state(const struct npulink_file *file)
{
	struct task_struct *task, *thread;
	char state = 'X';

	rcu_read_lock();
	task = pid_task(file->tgid, PIDTYPE_TGID);
	/* The first thread may have ended, and others go on. */
	if (task && READ_ONCE(task->exit_state)) {
		for_each_thread(task, thread) {
			if (READ_ONCE(thread->exit_state))
				continue;
			task = thread;
			break;
		}
	}
	if (task && !READ_ONCE(file->dead))
		state = task_state_to_char(task);
#ifdef CONFIG_CGROUPS
	if (state == 'S' && task->frozen)
		state = 'F';
#endif
	rcu_read_unlock();
	return state;
}

void npulink_remote_asked(struct npulink_remote *remote, const struct npulink_wire_msg *msg)
{
	struct npulink_wire_msg answer;
	struct npulink_wire_status *st = &answer.status;
	struct npulink_op *op;

	/* Looking costs time, so who asks faster than our own kernel does is not answered. */
	if (remote->asked_ns &&
	    npulink_clock() - remote->asked_ns < NPULINK_TICK_MS * NSEC_PER_MSEC / 4)
		return;
	remote->asked = *msg;
	remote->asked_ns = npulink_clock();
	npulink_remote_msg(remote, &answer, NPULINK_WIRE_STATUS, NULL, false);
	answer.flags = msg->flags;
	answer.number = msg->number;
	st->next = npulink_number_to_wire(remote->rank->next);
	st->peer = cpu_to_le32(NPULINK_NO_PEER);
	st->task = npulink_file_task_state(remote->rank->file);
	op = npulink_asked_op(remote, msg, &st->called);
	if (op)
		npulink_asked_wait(op, st);
	npulink_remote_post(remote, &answer, NULL, 0);
}

/* ---- being answered ---------------------------------------------------------------------- */

/* What is wrong with ASK or STATUS, or NULL. */
const char *npulink_remote_check_ask(const struct npulink_remote *remote,
				     const struct npulink_wire_msg *msg)
{
	const struct npulink_wire_status *st = &msg->status;
	u32 peer = le32_to_cpu(st->peer);

	if (msg->flags & NPULINK_WIRE_SENDS && !(msg->flags & NPULINK_WIRE_P2P))
		return "flags";
	if (msg->type == NPULINK_WIRE_ASK)
		return st->next || memchr_inv(&st->done, 0, sizeof(*st) -
					      offsetof(struct npulink_wire_status, done)) ?
		       "unused members" : NULL;
	if (memchr_inv(st->reserved, 0, sizeof(st->reserved)))
		return "reserved bytes";
	if (st->called > NPULINK_WIRE_OVER || st->kind > NPULINK_WAIT_WORKER ||
	    !isalpha(st->task) ||
	    (peer != NPULINK_NO_PEER &&
	     (peer >= remote->rank->comm->nranks || peer == remote->conn->rank)))
		return "status";
	return NULL;
}

void npulink_remote_answered(struct npulink_remote *remote, const struct npulink_wire_msg *msg)
{
	remote->answer = *msg;
	remote->answered_ns = npulink_clock();
}
