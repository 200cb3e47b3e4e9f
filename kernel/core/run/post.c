// SPDX-License-Identifier: GPL-2.0
/*
 * post.c - POST, POST_BATCH and WAIT: from a plan and buffers to an operation that
 * runs, and back to its result.
 */
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include "base/clock.h"
#include "base/number.h"
#include "comm/comm.h"
#include "file/buf.h"
#include "file/file.h"
#include "file/mapping.h"
#include "observe/trace.h"
#include "plan/plan.h"
#include "run/event.h"
#include "run/op.h"
#include "run/round.h"
#include "run/run.h"
#include "run/wait.h"

#define NPULINK_BATCH_FEW	16	/* operations of a batch that need no allocation */

/*
 * Access to the user's memory may take as long as the user likes. What a batch has begun
 * must not wait for it: peers would, even to fail. So it is tried first, and when that
 * would have to wait, @run is done before.
 */
static int npulink_copy_post(struct npulink_post *post, const struct npulink_post __user *user,
			     struct npulink_run *run)
{
	unsigned long left;

	pagefault_disable();
	left = copy_from_user(post, user, sizeof(*post));
	pagefault_enable();
	if (!left)
		return 0;
	npulink_run(run);
	return copy_from_user(post, user, sizeof(*post)) ? -EFAULT : 0;
}

static int npulink_put_seq(u64 seq, struct npulink_post __user *user, struct npulink_run *run)
{
	int rc;

	if (!list_empty(&run->ranks)) {
		pagefault_disable();
		rc = put_user(seq, &user->out_seq);
		pagefault_enable();
		if (!rc)
			return 0;
		npulink_run(run);
	}
	return put_user(seq, &user->out_seq);
}

/*
 * For the devices that will read or write it, as far as they are known: then no task is needed
 * when they do. Peers' may go, or come later: whoever runs a request maps what is missing then.
 */
static noinline int npulink_bind_dma(struct npulink_op *op, u32 slot, struct npulink_buf *buf)
{
	struct npulink_device *dev = op->rank->dev;
	const struct npulink_plan *plan = op->plan;
	int rc = npulink_buf_map_dma(buf, dev);
	u32 i;

	if (!(plan->offered & 1U << slot))
		return rc;
	for (i = 0; !rc && i < plan->npeers; i++) {
		struct npulink_link *link;
		struct npulink_device *peer = NULL;

		rcu_read_lock();
		link = READ_ONCE(plan->peers[i].conn->link);
		if (link && !READ_ONCE(link->down) && link->peer != dev) {
			peer = link->peer;
			get_device(&peer->dev);
		}
		rcu_read_unlock();
		if (!peer)
			continue;
		rc = npulink_buf_map_dma(buf, peer);
		put_device(&peer->dev);
		if (rc == -ENODEV)
			rc = 0;
	}
	return rc;
}

/* Memory that only devices can touch: not if a processor would have to. */
static int npulink_check_opaque(const struct npulink_plan *plan, const struct npulink_buf *buf)
{
	if (plan->mirror || plan->check)
		return -EOPNOTSUPP;
	return buf->memory_of && READ_ONCE(buf->memory_of->gone) ? -ESTALE : 0;
}

static int npulink_bind_one(struct npulink_file *file, struct npulink_op *op, u32 slot,
			    const struct npulink_bind *bind, struct npulink_run *run)
{
	const struct npulink_slot *s = &op->plan->slots[slot];
	struct npulink_object *obj = NULL;
	struct npulink_buf *buf;
	int rc;

	if (bind->reserved)
		return -EOPNOTSUPP;
	if (!s->access)
		return 0;	/* no step uses it */
	if (bind->buf_id) {
		obj = npulink_object_get(file, bind->buf_id, &npulink_buf_type);
		if (IS_ERR(obj))
			return PTR_ERR(obj);
		buf = container_of(obj, struct npulink_buf, obj);
	} else {
		/* Pairs with npulink_arena_mmap(). */
		buf = smp_load_acquire(&file->arena);
		if (!buf)
			return -ENOENT;
	}
	rc = -ERANGE;
	if (bind->len < s->min_len || bind->off > buf->mem.len ||
	    bind->len > buf->mem.len - bind->off)
		goto out;
	rc = -EACCES;
	if (buf->readonly && s->access & NPULINK_SLOT_WRITE)
		goto out;
	rc = -EINVAL;
	if (op->plan->align[slot] && bind->off & (op->plan->align[slot] - 1))
		goto out;
	if (unlikely(buf->opaque)) {
		rc = npulink_check_opaque(op->plan, buf);
		if (rc)
			goto out;
	}
	rc = npulink_buf_use(buf);
	if (rc < 0)
		goto out;
	if (unlikely(rc)) {
		npulink_run(run);
		rc = npulink_buf_check(buf);
		if (rc) {
			npulink_buf_unuse(buf);
			goto out;
		}
	}
	if (unlikely(npulink_buf_is_foreign(buf))) {
		/* It may take long. */
		npulink_run(run);
		rc = npulink_buf_begin_cpu(buf, s->access);
		if (rc) {
			npulink_buf_unuse(buf);
			goto out;
		}
		op->foreign = true;
	}
	if (unlikely(file->dev->dma_dev)) {
		/* It may take long. */
		npulink_run(run);
		rc = npulink_bind_dma(op, slot, buf);
		if (rc) {
			npulink_buf_unuse(buf);
			goto out;
		}
	}
	op->binds[slot].off = bind->off;
	WRITE_ONCE(op->binds[slot].buf, buf);
out:
	if (obj)
		npulink_object_put(obj);
	return rc;
}

/* Two bindings may share bytes only if nobody writes them. */
static bool npulink_binds_overlap(const struct npulink_op *op)
{
	const struct npulink_plan *plan = op->plan;
	u32 i, k;

	for (i = 0; i < plan->nslots; i++) {
		for (k = 0; k < i; k++) {
			const struct npulink_bound *a = &op->binds[i], *b = &op->binds[k];

			if (!a->buf || a->buf != b->buf ||
			    !((plan->slots[i].access | plan->slots[k].access) &
			      NPULINK_SLOT_WRITE))
				continue;
			if (a->off < b->off + plan->slots[k].min_len &&
			    b->off < a->off + plan->slots[i].min_len)
				return true;
		}
	}
	return false;
}

static int npulink_bind_all(struct npulink_file *file, struct npulink_op *op, u32 n,
			    const struct npulink_bind *binds, struct npulink_run *run)
{
	u32 i;
	int rc;

	for (i = 0; i < n; i++) {
		rc = npulink_bind_one(file, op, i, &binds[i], run);
		if (rc)
			return rc;
	}
	return npulink_binds_overlap(op) ? -ENOTUNIQ : 0;
}

/* Out of the way of the others, who would have to clear that much stack. */
static noinline int npulink_bind_many(struct npulink_file *file, struct npulink_op *op,
				      const struct npulink_post *post, struct npulink_run *run)
{
	struct npulink_bind binds[NPULINK_MAX_SLOTS];

	npulink_run(run);
	if (copy_from_user(binds, u64_to_user_ptr(post->binds), post->nbinds * sizeof(*binds)))
		return -EFAULT;
	return npulink_bind_all(file, op, post->nbinds, binds, run);
}

static int npulink_bind(struct npulink_file *file, struct npulink_op *op,
			const struct npulink_post *post, struct npulink_run *run)
{
	if (post->nbinds > NPULINK_POST_BINDS)
		return npulink_bind_many(file, op, post, run);
	if (post->binds)
		return -EINVAL;
	return npulink_bind_all(file, op, post->nbinds, post->inline_binds, run);
}

static void npulink_unbind(struct npulink_op *op)
{
	u32 i;

	if (unlikely(op->foreign))
		npulink_op_end_foreign(op);
	op->foreign = false;
	for (i = 0; i < op->plan->nslots; i++) {
		if (op->binds[i].buf)
			npulink_buf_unuse(op->binds[i].buf);
		op->binds[i].buf = NULL;
	}
}

/*
 * That of a collective of @rank. It may leave some out, whose ranks have met without us; that many
 * never come near the wrap. Under its lock.
 */
static int npulink_post_number(const struct npulink_rank *rank, const struct npulink_post *post,
			       u64 *number)
{
	u64 next = npulink_told(rank->next);

	lockdep_assert_held(&rank->lock);
	*number = rank->next;
	if (!(post->flags & NPULINK_POST_NUMBER))
		return 0;
	if (post->number < next)
		return -EALREADY;
	if (post->number >= NPULINK_MAX_NUMBER)
		return -EOVERFLOW;
	if (post->number > next && READ_ONCE(rank->comm->far))
		return -EOPNOTSUPP;
	*number = npulink_number(post->number);
	return 0;
}

/*
 * From here on peers can find it, and a failure of the communicator ends it. @differs: what has
 * its number already is another call.
 */
static int npulink_op_publish(struct npulink_op *op, const struct npulink_post *post,
			      struct npulink_arrival *arrival, bool *differs)
{
	struct npulink_rank *rank = op->rank;
	struct npulink_plan *plan = op->plan;
	unsigned long flags;
	u64 number;
	int rc;

	*differs = false;
	spin_lock_irqsave(&rank->lock, flags);
	rc = plan->p2p ? 0 : npulink_post_number(rank, post, &number);
	/* Pairs with npulink_comm_record(). */
	if (smp_load_acquire(&rank->comm->failed)) {
		rc = rank->comm->cause.status;
	} else if (rank->closed) {
		rc = -ENOENT;
	} else if (rc) {
		/* It cannot have that number. */
	} else if (plan->p2p) {
		struct npulink_conn *conn = plan->peers[0].conn;

		op->number = conn->p2p_next[plan->p2p_send]++;
		list_add_tail(&op->p2p_node, &conn->p2p[plan->p2p_send]);
	} else {
		struct npulink_op **entry;

		entry = &rank->table[number % NPULINK_MAX_INFLIGHT];
		op->number = number;
		if (*entry)
			rc = -EBUSY;
		else
			rc = npulink_comm_check_call(rank->comm, rank, number, &plan->call, NULL);
		*differs = rc == -EPROTO;
		if (!rc) {
			*entry = op;
			rank->met += number - rank->next;
			rank->next = number + 1;
		}
	}
	if (!rc) {
		npulink_round_arrive(op, arrival);
		op->serial = rank->nposted++;
		WRITE_ONCE(rank->caller, task_pid_nr(current));
		list_add_tail(&op->node, &rank->ops);
		rank->stats.inflight++;
		atomic_inc(&plan->inflight);
		refcount_inc(&op->refs);	/* the rank's, until it has finished */
	}
	spin_unlock_irqrestore(&rank->lock, flags);
	return rc;
}

/* Another rank has called something else under the same number. */
static noinline void npulink_op_fail_call(struct npulink_op *op)
{
	struct npulink_rank *rank = op->rank;
	struct npulink_cause cause = {};
	unsigned long flags;
	int rc;

	spin_lock_irqsave(&rank->lock, flags);
	rc = npulink_comm_check_call(rank->comm, rank, op->number, &op->plan->call, &cause);
	spin_unlock_irqrestore(&rank->lock, flags);
	if (rc)
		npulink_comm_fail_now(rank->comm, &cause);
}

/*
 * Everything that can be refused, then start it. Returns the operation with a
 * reference for the caller.
 */
static struct npulink_op *npulink_post_one(struct npulink_file *file,
					   const struct npulink_post *post, bool held,
					   struct npulink_post __user *user,
					   struct npulink_run *run)
{
	struct npulink_device *dev = file->dev;
	struct npulink_arrival arrival;
	struct npulink_object *obj;
	struct npulink_plan *plan;
	struct npulink_op *op;
	bool differs;
	int rc;

	if (post->flags & ~(NPULINK_POST_WAIT | NPULINK_POST_HELD | NPULINK_POST_NUMBER) ||
	    post->in_fence != -1 || post->out_fence != -1)
		return ERR_PTR(-EOPNOTSUPP);
	obj = npulink_object_get(file, post->plan_id, &npulink_plan_type);
	if (IS_ERR(obj))
		return ERR_CAST(obj);
	plan = container_of(obj, struct npulink_plan, obj);
	rc = -EINVAL;
	if (post->nbinds != plan->nslots ||
	    (post->flags & NPULINK_POST_NUMBER ? plan->p2p : post->number))
		goto err_plan;
	/* Pairs with npulink_comm_record(). */
	if (smp_load_acquire(&plan->rank->comm->failed)) {
		rc = plan->rank->comm->cause.status;
		goto err_plan;
	}
	rc = -ENOMEM;
	op = npulink_op_alloc(plan, run);
	if (!op)
		goto err_plan;
	rc = npulink_bind(file, op, post, run);
	if (rc)
		goto err_op;
	op->cookie = post->cookie;
	run->now = npulink_clock();
	op->start_ns = run->now;
	op->slow_ns = post->slow_ns;
	if (post->deadline_ns) {
		/* Complete before the watchdog can see it. */
		op->deadline = jiffies + 1 + nsecs_to_jiffies(post->deadline_ns);
		op->has_deadline = true;
	}
	rc = npulink_slot_take(file, op, held);
	if (rc)
		goto err_op;
	rc = npulink_put_seq(op->seq, user, run);
	if (rc)
		goto err_slot;
	/*
	 * Not before the last access to the user's memory: a page fault takes as long as
	 * the user likes, and the removal of a device waits for its users.
	 */
	rc = -ENODEV;
	if (!percpu_ref_tryget_live(&dev->users))
		goto err_slot;
	rc = npulink_op_publish(op, post, &arrival, &differs);
	if (rc) {
		if (differs)
			npulink_op_fail_call(op);
		goto err_users;
	}
	trace_npulink_post(op);
	if (op->has_deadline)
		npulink_watchdog_arm(file, op);
	npulink_round_go(op, &arrival, run);
	npulink_plan_put(plan);
	return op;

err_users:
	percpu_ref_put(&dev->users);
err_slot:
	npulink_slot_give(file, op);
err_op:
	npulink_unbind(op);
	npulink_op_put(op);
err_plan:
	npulink_plan_put(plan);
	return ERR_PTR(rc);
}

/* The result of an operation that is done; a held one is thereby fetched. */
static int npulink_fetch(struct npulink_file *file, struct npulink_op *op,
			 struct npulink_result __user *user)
{
	if (copy_to_user(user, &op->result, sizeof(op->result)))
		return -EFAULT;
	if (op->held && file->mm == current->mm)
		npulink_slot_give(file, op);
	return 0;
}

int npulink_post_ioctl(struct npulink_ucmd *ucmd)
{
	struct npulink_post __user *user = ucmd->ubuffer;
	const struct npulink_post *post = ucmd->cmd;
	bool wait = post->flags & NPULINK_POST_WAIT;
	struct npulink_file *file = ucmd->file;
	NPULINK_DEFINE_RUN_TASK(run);
	struct npulink_op *op;
	int rc = 0;

	if (wait)
		run.waits = file;
	op = npulink_post_one(file, post, post->flags & (NPULINK_POST_WAIT | NPULINK_POST_HELD),
			      user, &run);
	if (IS_ERR(op))
		return PTR_ERR(op);
	if (wait)
		npulink_run_limit(&run, post->wait_until_ns);
	npulink_run(&run);
	if (wait) {
		rc = npulink_op_wait(file, op, post->wait_until_ns);
		if (!rc)
			rc = npulink_fetch(file, op, &user->out_result);
	}
	npulink_op_put(op);
	return rc;
}

int npulink_post_batch_ioctl(struct npulink_ucmd *ucmd)
{
	struct npulink_post_batch *cmd = ucmd->cmd;
	struct npulink_post __user *user = u64_to_user_ptr(cmd->posts);
	bool wait = cmd->flags & NPULINK_POST_WAIT;
	struct npulink_file *file = ucmd->file;
	struct npulink_op *few[NPULINK_BATCH_FEW], **ops = few;
	NPULINK_DEFINE_RUN_TASK(run);
	int rc = 0, wait_rc = 0;
	u32 i;

	if (cmd->flags & ~NPULINK_POST_WAIT)
		return -EOPNOTSUPP;
	if (!cmd->nposts || cmd->nposts > NPULINK_MAX_BATCH)
		return -EINVAL;
	if (wait && cmd->nposts > ARRAY_SIZE(few)) {
		ops = kvcalloc(cmd->nposts, sizeof(*ops), GFP_KERNEL_ACCOUNT);
		if (!ops)
			return -ENOMEM;
	}
	for (i = 0; i < cmd->nposts; i++) {
		struct npulink_post post;
		struct npulink_op *op;

		/* Each may have a million steps, some of which run while it is posted. */
		if (i && fatal_signal_pending(current)) {
			rc = -EINTR;
			break;
		}
		rc = npulink_copy_post(&post, &user[i], &run);
		if (rc)
			break;
		rc = -EINVAL;
		if (post.size != sizeof(post) || post.flags & NPULINK_POST_WAIT)
			break;
		op = npulink_post_one(file, &post, wait || post.flags & NPULINK_POST_HELD,
				      &user[i], &run);
		rc = PTR_ERR_OR_ZERO(op);
		if (rc)
			break;
		if (wait)
			ops[i] = op;
		else
			npulink_op_put(op);
	}
	cmd->out_posted = i;
	npulink_run(&run);
	/* Made again, it would post the first ones once more. */
	if (rc == -ERESTARTSYS && i)
		rc = -EINTR;
	/* What was refused may be what the others wait for: let the caller see to it. */
	wait_rc = rc;
	for (i = 0; wait && i < cmd->out_posted; i++) {
		if (!wait_rc)
			wait_rc = npulink_op_wait(file, ops[i], cmd->wait_until_ns);
		if (!wait_rc)
			wait_rc = npulink_fetch(file, ops[i], &user[i].out_result);
		npulink_op_put(ops[i]);
	}
	if (ops != few)
		kvfree(ops);
	if (npulink_ucmd_respond(ucmd, sizeof(*cmd)))
		return -EFAULT;
	return wait_rc;
}

int npulink_wait_ioctl(struct npulink_ucmd *ucmd)
{
	struct npulink_wait __user *user = ucmd->ubuffer;
	struct npulink_wait *cmd = ucmd->cmd;
	struct npulink_op *op;
	int rc;

	if (cmd->flags)
		return -EOPNOTSUPP;
	op = npulink_slot_find(ucmd->file, cmd->seq);
	if (!op)
		return -ENOENT;
	rc = npulink_op_wait(ucmd->file, op, cmd->wait_until_ns);
	/* The limit is a point in time, so waiting goes on as if nothing had been. */
	if (rc == -EINTR)
		rc = -ERESTARTSYS;
	if (!rc)
		rc = npulink_fetch(ucmd->file, op, &user->out_result);
	npulink_op_put(op);
	return rc;
}
