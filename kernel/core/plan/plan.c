// SPDX-License-Identifier: GPL-2.0
/*
 * plan.c - PLAN_CREATE: copy, verify, and turn a list of steps into what the
 * sequencer runs on: units (chains are one), who waits for whom, and streams (the
 * k-th step that sends to a peer on a channel meets the peer's k-th that receives).
 */
#include <linux/mutex.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <npulink/verify.h>
#include "base/queue.h"
#include "comm/comm.h"
#include "file/account.h"
#include "file/file.h"
#include "plan/plan.h"

static const struct npulink_plan_events *npulink_plan_events;

void npulink_plan_init(const struct npulink_plan_events *events)
{
	npulink_plan_events = events;
}

static void npulink_plan_free(struct npulink_plan *plan)
{
	npulink_plan_events->free(plan);
	kvfree(plan->steps);
	kvfree(plan->pos);
	kvfree(plan->units);
	kvfree(plan->out);
	kvfree(plan->peers);
	kvfree(plan->streams);
	kvfree(plan->stream_steps);
	kvfree(plan->drains);
	if (plan->rank)
		npulink_rank_put(plan->rank);
	kfree(plan);
}

static void npulink_plan_free_later(struct npulink_deferred *d)
{
	struct npulink_plan *plan = container_of(d, struct npulink_plan, deferred);
	struct npulink_quota *q = plan->rank->file->quota;

	npulink_plan_free(plan);
	npulink_quota_returned(q);
}

static void npulink_plan_release(struct kref *kref)
{
	struct npulink_plan *plan = container_of(kref, struct npulink_plan, obj.kref);

	/* Its operations may have memory that is charged. */
	npulink_quota_returning(plan->rank->file->quota);
	/* With the ranks: what it puts may free one, and module removal waits there. */
	npulink_free_later(plan->rank->file->quota, &plan->deferred, npulink_plan_free_later);
}

static bool npulink_plan_busy(struct npulink_object *obj)
{
	return atomic_read(&container_of(obj, struct npulink_plan, obj)->inflight);
}

static void npulink_plan_destroy(struct npulink_object *obj)
{
	struct npulink_plan *plan = container_of(obj, struct npulink_plan, obj);

	mutex_lock(&plan->rank->comm->mutex);
	plan->rank->nplans--;
	mutex_unlock(&plan->rank->comm->mutex);
}

const struct npulink_object_type npulink_plan_type = {
	.busy = npulink_plan_busy,
	.destroy = npulink_plan_destroy,
	.release = npulink_plan_release,
};

/* ---- streams --------------------------------------------------------------- */

struct npulink_plan_meet {
	u32 peer;
	u32 step;
	u16 channel;
	bool send;
};

static bool npulink_meet_after(const struct npulink_plan_meet *a,
			       const struct npulink_plan_meet *b)
{
	if (a->peer != b->peer)
		return a->peer > b->peer;
	if (a->channel != b->channel)
		return a->channel > b->channel;
	if (a->send != b->send)
		return a->send > b->send;
	return a->step > b->step;
}

/* By merging: unlike sort(), it can be killed, and is several times as fast. */
static int npulink_meets_sort(struct npulink_plan_meet *meet, u32 n)
{
	struct npulink_plan_meet *tmp, *from = meet, *to;
	u32 width, i, k, lo, mid, end;
	int rc = 0;

	tmp = kvmalloc_array(n, sizeof(*tmp), GFP_KERNEL_ACCOUNT);
	if (!tmp)
		return -ENOMEM;
	to = tmp;
	for (width = 1; width < n; width *= 2) {
		for (k = 0, end = 0; k < n; k++) {
			if (k == end) {
				lo = k;
				mid = min(lo + width, n);
				end = min(mid + width, n);
				i = mid;
			}
			if (i == end || (lo < mid && !npulink_meet_after(&from[lo], &from[i])))
				to[k] = from[lo++];
			else
				to[k] = from[i++];
			if (!(k & 0xffff)) {
				cond_resched();
				if (fatal_signal_pending(current)) {
					rc = -EINTR;
					goto out;
				}
			}
		}
		swap(from, to);
	}
	if (from != meet)
		memcpy(meet, from, n * sizeof(*meet));
out:
	kvfree(tmp);
	return rc;
}

static u32 npulink_plan_meets(const struct npulink_plan *plan, struct npulink_plan_meet *meet)
{
	u32 i, n = 0;

	for (i = 0; i < plan->nsteps; i++) {
		const struct npulink_step *st = &plan->steps[i];

		if (st->op & NPULINK_STEP_RECV) {
			if (meet)
				meet[n] = (struct npulink_plan_meet) {
					st->recv_peer, i, st->channel, false };
			n++;
		}
		if (st->op & NPULINK_STEP_SEND) {
			if (meet)
				meet[n] = (struct npulink_plan_meet) {
					st->send_peer, i, st->channel, true };
			n++;
		}
	}
	return n;
}

static int npulink_plan_make_streams(struct npulink_plan *plan, u32 *reason)
{
	u32 n = npulink_plan_meets(plan, NULL);
	struct npulink_plan_meet *meet;
	u32 i, p, s;
	int rc = -ENOMEM;

	if (!n)
		return 0;
	meet = kvcalloc(n, sizeof(*meet), GFP_KERNEL_ACCOUNT);
	plan->stream_steps = kvcalloc(n, sizeof(u32), GFP_KERNEL_ACCOUNT);
	if (!meet || !plan->stream_steps)
		goto out;
	npulink_plan_meets(plan, meet);
	rc = npulink_meets_sort(meet, n);
	if (rc)
		goto out;
	rc = -ENOMEM;
	for (i = 0; i < n; i++) {
		bool peer = !i || meet[i].peer != meet[i - 1].peer;

		plan->npeers += peer;
		plan->nstreams += peer || meet[i].channel != meet[i - 1].channel ||
				  meet[i].send != meet[i - 1].send;
	}
	if (plan->nstreams > NPULINK_MAX_STREAMS) {
		*reason = NPULINK_BAD_CHANNEL;
		rc = -EINVAL;
		goto out;
	}
	plan->peers = kvcalloc(plan->npeers, sizeof(*plan->peers), GFP_KERNEL_ACCOUNT);
	plan->streams = kvcalloc(plan->nstreams, sizeof(*plan->streams), GFP_KERNEL_ACCOUNT);
	if (!plan->peers || !plan->streams)
		goto out;
	for (i = 0, p = ~0U, s = ~0U; i < n; i++) {
		const struct npulink_plan_meet *m = &meet[i];
		struct npulink_step_pos *pos = &plan->pos[m->step];
		bool peer = !i || m->peer != m[-1].peer;

		if (peer) {
			struct npulink_conn *conn = npulink_conn_get(plan->rank,
								     m->peer, NULL);

			if (IS_ERR(conn)) {
				rc = PTR_ERR(conn);
				goto out;
			}
			p++;
			plan->peers[p].conn = conn;
			plan->peers[p].stream = s + 1;
			rc = npulink_conn_resolve(plan->rank, conn);
			if (rc == -ENOMEM || (rc && conn->far))
				goto out;
		}
		if (peer || m->channel != m[-1].channel || m->send != m[-1].send) {
			s++;
			plan->peers[p].nstreams++;
			plan->streams[s] = (struct npulink_stream) {
				.peer = p, .channel = m->channel, .send = m->send, .start = i,
			};
		}
		plan->stream_steps[i] = m->step;
		if (m->send) {
			pos->send_stream = s;
			pos->send_pos = i - plan->streams[s].start;
		} else {
			pos->recv_stream = s;
			pos->recv_pos = i - plan->streams[s].start;
		}
		plan->streams[s].count++;
		if (!(i & 0xfff)) {
			cond_resched();
			if (fatal_signal_pending(current)) {
				rc = -EINTR;
				goto out;
			}
		}
	}
	rc = 0;
out:
	kvfree(meet);
	return rc;
}

/* ---- units -------------------------------------------------------------------- */

/* Calls fn for each dependency of unit u on another unit. */
static void npulink_plan_edges(const struct npulink_plan *plan, u32 u,
			       void (*fn)(struct npulink_plan *plan, u32 from, u32 to))
{
	const struct npulink_unit *un = &plan->units[u];
	u32 i, k;

	for (i = un->first; i < un->first + un->nsteps; i++) {
		for (k = 0; k < NPULINK_STEP_DEPS; k++) {
			u32 dep = plan->steps[i].dep[k];
			u32 from;

			if (!dep)
				continue;
			from = plan->pos[i - dep].unit;
			if (from != u)
				fn((struct npulink_plan *)plan, from, u);
		}
	}
}

static void npulink_edge_count(struct npulink_plan *plan, u32 from, u32 to)
{
	plan->units[to].ndeps++;
	plan->units[from + 1].out++;
}

/* units[from].out is used as a cursor, and is right again when all are filled. */
static void npulink_edge_fill(struct npulink_plan *plan, u32 from, u32 to)
{
	plan->out[plan->units[from].out++] = to;
}

static u32 npulink_unit_inputs(const struct npulink_plan *plan, const struct npulink_unit *un)
{
	u32 i, n = 0;

	for (i = un->first; i < un->first + un->nsteps; i++) {
		u8 op = plan->steps[i].op;

		if (i == un->first && op & (NPULINK_STEP_REDUCE | NPULINK_STEP_COPY))
			n++;
		if (op & (NPULINK_STEP_RECV | NPULINK_STEP_REDUCE))
			n++;
	}
	return n;
}

/* What @st asks of the slots. */
static void npulink_plan_use_slots(struct npulink_plan *plan, const struct npulink_step *st)
{
	u32 size = npulink_dtype_size(st->dtype);

	if (st->op & NPULINK_STEP_SEND)
		plan->offered |= 1U << (st->op == NPULINK_STEP_SEND ? st->src_slot : st->dst_slot);
	if (!(st->op & NPULINK_STEP_REDUCE))
		return;
	plan->align[st->src_slot] = max(plan->align[st->src_slot], size);
	plan->align[st->dst_slot] = max(plan->align[st->dst_slot], size);
	if (!(st->op & NPULINK_STEP_RECV))
		plan->align[st->src2_slot] = max(plan->align[st->src2_slot], size);
}

static int npulink_plan_make_units(struct npulink_plan *plan)
{
	u32 i, u, nengine = 0;

	for (i = 0; i < plan->nsteps; i++) {
		plan->nunits += !(plan->steps[i].flags & NPULINK_STEP_F_CHAIN);
		plan->ndrains += !!(plan->steps[i].flags & NPULINK_STEP_F_DRAIN);
	}
	plan->units = kvcalloc(plan->nunits + 2, sizeof(*plan->units), GFP_KERNEL_ACCOUNT);
	plan->drains = kvcalloc(plan->ndrains, sizeof(u32), GFP_KERNEL_ACCOUNT);
	if (!plan->units || (plan->ndrains && !plan->drains))
		return -ENOMEM;
	plan->ndrains = 0;
	plan->max_src = 1;
	for (i = 0, u = ~0U; i < plan->nsteps; i++) {
		const struct npulink_step *st = &plan->steps[i];
		struct npulink_unit *un;

		if (!(st->flags & NPULINK_STEP_F_CHAIN)) {
			u++;
			plan->units[u].first = i;
			plan->units[u].esize = 1;
		}
		un = &plan->units[u];
		plan->pos[i].unit = u;
		un->nsteps++;
		un->engine = st->op & ~NPULINK_STEP_SEND;
		un->recv |= st->op & NPULINK_STEP_RECV;
		un->send = st->op & NPULINK_STEP_SEND;
		if (st->op & NPULINK_STEP_REDUCE || st->flags & NPULINK_STEP_F_SCALES)
			un->esize = npulink_dtype_size(st->dtype);
		if (st->flags & NPULINK_STEP_F_SCALES)
			un->scale = order_base_2(plan->rank->comm->nranks);
		if (st->flags & NPULINK_STEP_F_DRAIN) {
			plan->drains[plan->ndrains++] = u;
			un->ndeps++;
		}
		un->drain = plan->ndrains;
		npulink_plan_use_slots(plan, st);
	}
	for (u = 0; u < plan->nunits; u++) {
		npulink_plan_edges(plan, u, npulink_edge_count);
		plan->max_src = max(plan->max_src, npulink_unit_inputs(plan, &plan->units[u]));
		nengine += plan->units[u].engine;
		if (plan->units[u].engine) {
			plan->max_len = max(plan->max_len,
					    plan->steps[plan->units[u].first].len);
			plan->bytes += plan->steps[plan->units[u].first].len;
		}
		if (!(u & 0xfff)) {
			cond_resched();
			if (fatal_signal_pending(current))
				return -EINTR;
		}
	}
	for (u = 0; u <= plan->nunits; u++)
		plan->units[u + 1].out += plan->units[u].out;
	plan->out = kvcalloc(plan->units[plan->nunits].out, sizeof(u32), GFP_KERNEL_ACCOUNT);
	if (plan->units[plan->nunits].out && !plan->out)
		return -ENOMEM;
	for (u = 0; u < plan->nunits; u++)
		npulink_plan_edges(plan, u, npulink_edge_fill);
	/* Each cursor now stands where the next unit's began: shift them back. */
	for (u = plan->nunits; u > 0; u--)
		plan->units[u].out = plan->units[u - 1].out;
	plan->units[0].out = 0;
	plan->check = plan->rank->comm->checksum && plan->max_len;
	plan->nreqs = min_t(u32, nengine, plan->check ? NPULINK_CHECK_REQS : NPULINK_OP_REQS);
	/* A root that only sends may take part in others' copies, see round.c. */
	if (!nengine && npulink_coll_gathers_large(plan->call.collective))
		plan->nreqs = 1;
	return 0;
}

/* It is shown to people, by this and by other programs. */
static int npulink_plan_name(struct npulink_plan *plan, const struct npulink_plan_create *cmd)
{
	size_t len = strnlen(cmd->algorithm, sizeof(cmd->algorithm)), i;

	if (len == sizeof(cmd->algorithm) ||
	    memchr_inv(cmd->algorithm + len, 0, sizeof(cmd->algorithm) - len))
		return -EINVAL;
	for (i = 0; i < len; i++)
		if (cmd->algorithm[i] <= ' ' || cmd->algorithm[i] > '~')
			return -EINVAL;
	memcpy(plan->algorithm, cmd->algorithm, sizeof(plan->algorithm));
	return 0;
}

static int npulink_plan_copy(struct npulink_plan *plan, const struct npulink_plan_create *cmd)
{
	plan->nslots = cmd->nslots;
	plan->nsteps = cmd->nsteps;
	plan->call = cmd->call;
	if (copy_from_user(plan->slots, u64_to_user_ptr(cmd->slots),
			   array_size(cmd->nslots, sizeof(plan->slots[0]))))
		return -EFAULT;
	if (!cmd->nsteps)
		return 0;
	plan->steps = kvmalloc_array(cmd->nsteps, sizeof(*plan->steps), GFP_KERNEL_ACCOUNT);
	plan->pos = kvcalloc(cmd->nsteps, sizeof(*plan->pos), GFP_KERNEL_ACCOUNT);
	if (!plan->steps || !plan->pos)
		return -ENOMEM;
	if (copy_from_user(plan->steps, u64_to_user_ptr(cmd->steps),
			   array_size(cmd->nsteps, sizeof(*plan->steps))))
		return -EFAULT;
	return 0;
}

static int npulink_plan_verify(const struct npulink_plan *plan, struct npulink_plan_create *cmd)
{
	struct npulink_plan_desc desc = {
		.call = &plan->call,
		.nranks = plan->rank->comm->nranks,
		.rank = plan->rank->rank,
		.nslots = plan->nslots,
		.nsteps = plan->nsteps,
		.slots = plan->slots,
		.steps = plan->steps,
	};
	struct npulink_verdict v;
	int rc;

	rc = npulink_verify(&desc, &v);
	if (!rc && (plan->nsteps <= 4096 || cmd->flags & NPULINK_PLAN_CHECK_RACES))
		rc = npulink_verify_races(&desc, &v);
	cmd->out_bad_step = v.step;
	cmd->out_reason = v.reason;
	return rc;
}

static bool npulink_device_can(const struct npulink_device *dev, const struct npulink_plan *plan)
{
	u32 i;

	for (i = 0; i < plan->nsteps; i++) {
		const struct npulink_step *st = &plan->steps[i];

		if (st->op & NPULINK_STEP_REDUCE &&
		    (!(dev->dtypes & BIT(st->dtype)) || !(dev->redops & BIT(st->redop))))
			return false;
	}
	return true;
}

int npulink_plan_create_ioctl(struct npulink_ucmd *ucmd)
{
	struct npulink_plan_create *cmd = ucmd->cmd;
	struct npulink_object *obj;
	struct npulink_plan *plan;
	int rc;

	if (cmd->flags & ~NPULINK_PLAN_CHECK_RACES)
		return -EOPNOTSUPP;
	if (cmd->nslots > NPULINK_MAX_SLOTS || cmd->nsteps > NPULINK_MAX_STEPS)
		return -EINVAL;
	obj = npulink_object_get(ucmd->file, cmd->comm_id, &npulink_rank_type);
	if (IS_ERR(obj))
		return PTR_ERR(obj);
	plan = kzalloc(sizeof(*plan), GFP_KERNEL_ACCOUNT);
	if (!plan) {
		npulink_object_put(obj);
		return -ENOMEM;
	}
	kref_init(&plan->obj.kref);
	spin_lock_init(&plan->spare_lock);
	plan->rank = container_of(obj, struct npulink_rank, obj);
	cmd->out_bad_step = ~0U;
	cmd->out_reason = NPULINK_BAD_NONE;
	rc = npulink_object_reserve(ucmd->file, &plan->obj, &npulink_plan_type);
	if (rc) {
		npulink_plan_free(plan);
		return rc;
	}
	rc = npulink_plan_name(plan, cmd);
	if (rc)
		goto err_abort;
	rc = npulink_plan_copy(plan, cmd);
	if (rc)
		goto err_abort;
	rc = npulink_plan_verify(plan, cmd);
	if (rc) {
		/* Say why, even though it is an error. */
		if (npulink_ucmd_respond(ucmd, sizeof(*cmd)))
			rc = -EFAULT;
		goto err_abort;
	}
	rc = -EOPNOTSUPP;
	if (!npulink_device_can(plan->rank->dev, plan))
		goto err_abort;
	plan->p2p = plan->call.collective == NPULINK_COLL_P2P;
	rc = npulink_plan_make_units(plan);
	if (rc)
		goto err_abort;
	rc = npulink_plan_make_streams(plan, &cmd->out_reason);
	if (rc) {
		if (cmd->out_reason && npulink_ucmd_respond(ucmd, sizeof(*cmd)))
			rc = -EFAULT;
		goto err_abort;
	}
	if (plan->p2p && plan->npeers != 1) {
		rc = -EINVAL;
		goto err_abort;
	}
	/* One direction only: that of any of its streams. */
	plan->p2p_send = plan->p2p && plan->streams[0].send;
	rc = npulink_plan_events->made(plan);
	if (rc)
		goto err_abort;
	cmd->out_id = plan->obj.id;
	rc = npulink_ucmd_respond(ucmd, sizeof(*cmd));
	if (rc)
		goto err_abort;
	mutex_lock(&plan->rank->comm->mutex);
	rc = plan->rank->closed ? -ENOENT : 0;
	plan->rank->nplans += !rc;
	mutex_unlock(&plan->rank->comm->mutex);
	if (rc)
		goto err_abort;
	npulink_object_publish(ucmd->file, &plan->obj);
	return 0;

err_abort:
	npulink_object_abort(ucmd->file, &plan->obj);
	return rc;
}
