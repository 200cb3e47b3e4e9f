// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * op.c - one operation: find its plan, give the kernel its buffers, post it, and
 * take care of what can come in between.
 *
 * A blocking call with a cached plan is one system call, POST that waits. A
 * small payload is copied through the arena, so nothing is pinned for it; a
 * large one is bound to pinned memory, or staged in memory of our own where that
 * cannot be pinned, or mostly in vain.
 */
#include <errno.h>
#include <string.h>
#include <time.h>
#include <npulink/verify.h>
#include "base/base.h"
#include "coll.h"
#include "run/board.h"
#include "run/cache.h"
#include "run/comm.h"
#include "run/dev.h"
#include "run/drv.h"
#include "run/error.h"
#include "run/fresh.h"
#include "run/op.h"
#include "run/reg.h"
#include "run/repeat.h"
#include "run/request.h"

static size_t slot_len(const struct coll_operation *op, unsigned int slot)
{
	return op->plan->len[slot];
}

/* A buffer that is so many times as large as the blocks in it is not worth pinning. */
#define SPARSE		4

/*
 * How far the blocks of a v form reach in the caller's buffer, in bytes. Those of a sparse one,
 * unless it is pinned already, are packed into memory of our own.
 */
static size_t op_pack(struct coll_operation *op, unsigned int slot)
{
	const uint64_t *counts, *displs;
	uint64_t end, span = 0, sum = 0, size = npulink_dtype_size(op->args.dtype);

	if (!op->args.displs && !op->args.rdispls)
		return 0;
	if (!op->buf[slot] || !coll_args_blocks(&op->args, slot, &counts, &displs) || !counts ||
	    !displs)
		return 0;
	for (uint32_t i = 0; i < op->args.nranks; i++) {
		if (!counts[i])
			continue;
		if (__builtin_add_overflow(displs[i], counts[i], &end) ||
		    __builtin_mul_overflow(end, size, &end))
			return 0;
		span = end > span ? end : span;
		if (__builtin_add_overflow(sum, counts[i] * size, &sum))
			return 0;
	}
	op->args.packed[slot] = span / SPARSE > sum &&
				!coll_reg_has(op->comm->dev, op->buf[slot], span) &&
				!coll_reg_touch(op->comm->dev, op->buf[slot]);
	return span;
}

/* Finds or makes the plan. From here on the caller's arrays are not needed any more. */
int coll_op_plan(struct coll_operation *op)
{
	size_t len[2] = { op_pack(op, NPULINK_SLOT_SEND), op_pack(op, NPULINK_SLOT_RECV) };
	int rc = coll_plan_get(op->comm, &op->args, &op->plan);

	if (rc)
		return rc;
	op->args.counts = op->plan->args.counts;
	op->args.displs = op->plan->args.displs;
	op->args.rcounts = op->plan->args.rcounts;
	op->args.rdispls = op->plan->args.rdispls;
	op->post.plan_id = op->plan->id;
	op->post.nbinds = op->plan->nslots;
	op->post.deadline_ns = op->comm->deadline_ns == COLL_DEADLINE_AUTO ?
			       op->plan->deadline_ns : op->comm->deadline_ns;
	op->post.slow_ns = op->plan->slow_ns;
	op->post.in_fence = -1;
	op->post.out_fence = -1;
	for (unsigned int i = 0; i < 2; i++)
		if (!op->args.packed[i])
			len[i] = slot_len(op, i);
	rc = coll_buffers_check(op, len[NPULINK_SLOT_SEND], len[NPULINK_SLOT_RECV]);
	if (rc)
		coll_op_unplan(op);
	return rc;
}

void coll_op_unplan(struct coll_operation *op)
{
	if (op->plan)
		op->plan->refs--;
	op->plan = NULL;
}

/* Whose plan stays, for coll_op_is_call(). An array may hold something else in the next call. */
bool coll_op_may_repeat(const struct coll_operation *op)
{
	return op->plan && !op->args.counts && !op->args.rcounts;
}

/* ---- buffers */

static size_t grains(size_t len)
{
	return (len + COLL_ARENA_GRAIN - 1) & ~(size_t)(COLL_ARENA_GRAIN - 1);
}

static size_t payload_len(const struct coll_operation *op)
{
	return grains(slot_len(op, NPULINK_SLOT_SEND)) + grains(slot_len(op, NPULINK_SLOT_RECV));
}

/* Nothing would be pinned for its payload. */
bool coll_op_is_small(const struct coll_operation *op)
{
	return payload_len(op) <= op->comm->copy_max;
}

void coll_op_unbind(struct coll_operation *op)
{
	struct coll_dev *dev = op->comm->dev;

	for (unsigned int i = 0; i < 2; i++) {
		if (op->reg[i])
			coll_reg_put(dev, op->reg[i]);
		op->reg[i] = NULL;
		if (op->staged[i])
			coll_scratch_put(dev, op->staged[i]);
		op->staged[i] = NULL;
	}
	if (op->scratch)
		coll_scratch_put(dev, op->scratch);
	op->scratch = NULL;
	if (op->arena_len)
		coll_arena_put(dev, op->arena_off, op->arena_len);
	op->arena_len = 0;
	op->copied = false;
	op->scratched = false;
}

static void bind_set(struct coll_operation *op, unsigned int slot, uint32_t id, uint64_t off)
{
	op->post.inline_binds[slot] = (struct npulink_bind) {
		.buf_id = id, .off = off, .len = slot_len(op, slot),
	};
}

/* Is one of the buffers for devices only? Then no processor is to work on any. */
static bool on_device(const struct coll_operation *op)
{
	for (unsigned int i = 0; i < 2; i++)
		if (slot_len(op, i) && coll_reg_touch(op->comm->dev, op->buf[i]))
			return true;
	return false;
}

/* Room in the arena for payload and scratch, for one of them, or for none. */
static void bind_arena(struct coll_operation *op)
{
	struct coll_comm *comm = op->comm;
	size_t send = grains(slot_len(op, NPULINK_SLOT_SEND));
	size_t payload = payload_len(op);
	size_t scratch = grains(slot_len(op, NPULINK_SLOT_SCRATCH));
	bool copy = payload && payload <= comm->copy_max;
	bool temp = scratch && scratch <= comm->copy_max;
	size_t len = (copy ? payload : 0) + (temp ? scratch : 0);
	ptrdiff_t off = len ? coll_arena_get(comm->dev, len) : -1;

	if (off < 0 && len && coll_repeats_drop(comm))
		off = coll_arena_get(comm->dev, len);
	if (off < 0 && copy && temp) {
		temp = false;
		len = payload;
		off = coll_arena_get(comm->dev, len);
	}
	if (off < 0)
		return;
	op->arena_off = off;
	op->arena_len = len;
	op->copied = copy;
	op->scratched = temp;
	op->slot_off[NPULINK_SLOT_SEND] = off;
	op->slot_off[NPULINK_SLOT_RECV] = off + send;
	if (copy) {
		bind_set(op, NPULINK_SLOT_SEND, 0, off);
		bind_set(op, NPULINK_SLOT_RECV, 0, off + send);
	}
	if (temp)
		bind_set(op, NPULINK_SLOT_SCRATCH, 0, off + (copy ? payload : 0));
}

/* Memory of our own in place of the caller's. */
static int bind_staged(struct coll_operation *op, unsigned int slot)
{
	struct coll_dev *dev = op->comm->dev;
	size_t len = slot_len(op, slot);
	int rc = coll_scratch_get(dev, len, false, &op->staged[slot]);

	if (!rc)
		rc = coll_scratch_map(dev, op->staged[slot]);
	if (rc)
		return coll_fail_pin(op->comm, &op->args, NULL, len, rc);
	bind_set(op, slot, op->staged[slot]->id, 0);
	return 0;
}

static int bind_pinned(struct coll_operation *op, unsigned int slot)
{
	size_t len = slot_len(op, slot);
	bool write = len && op->plan->slots[slot].access & NPULINK_SLOT_WRITE;
	int rc;

	bind_set(op, slot, 0, 0);
	if (!len)
		return 0;
	if (op->args.packed[slot])
		return bind_staged(op, slot);
	rc = coll_reg_get(op->comm->dev, op->buf[slot], len, write, &op->reg[slot]);
	/* Of a file, say, that others may cut off: it can be read. */
	if (rc == -EOPNOTSUPP && !write)
		return bind_staged(op, slot);
	if (rc)
		return coll_fail_pin(op->comm, &op->args, op->buf[slot], len, rc);
	bind_set(op, slot, op->reg[slot]->id, (uintptr_t)op->buf[slot] - op->reg[slot]->start);
	return 0;
}

/* A buffer for every slot of the plan. */
int coll_op_bind(struct coll_operation *op)
{
	size_t scratch = slot_len(op, NPULINK_SLOT_SCRATCH);
	bool device = on_device(op);
	int rc = 0;

	if (!device)
		bind_arena(op);
	if (!op->copied) {
		rc = bind_pinned(op, NPULINK_SLOT_SEND);
		if (!rc)
			rc = bind_pinned(op, NPULINK_SLOT_RECV);
	}
	if (!rc && !op->scratched) {
		bind_set(op, NPULINK_SLOT_SCRATCH, 0, 0);
		if (scratch) {
			rc = coll_scratch_get(op->comm->dev, scratch,
					      device && op->comm->dev->info.out_memory,
					      &op->scratch);
			/* The host's will do. */
			if (rc == -ENOMEM && device)
				rc = coll_scratch_get(op->comm->dev, scratch, false, &op->scratch);
			if (rc)
				coll_fail_pin(op->comm, &op->args, NULL, scratch, rc);
			else
				bind_set(op, NPULINK_SLOT_SCRATCH, op->scratch->id, 0);
		}
	}
	if (rc)
		coll_op_unbind(op);
	return rc;
}

/* The kernel has found that memory is not what was pinned: pin it anew. Then coll_op_copy_in(). */
int coll_op_rebind(struct coll_operation *op)
{
	for (unsigned int i = 0; i < 2; i++)
		if (op->reg[i] && !op->reg[i]->alloc)
			coll_reg_stale(op->comm->dev, op->reg[i]);
	coll_op_unbind(op);
	return coll_op_bind(op);
}

/* Where the payload of a slot is copied to or from; NULL: it is where the caller has it. */
static unsigned char *own_memory(const struct coll_operation *op, unsigned int slot)
{
	if (op->staged[slot])
		return op->staged[slot]->map;
	return op->copied ? op->comm->dev->arena + op->slot_off[slot] : NULL;
}

/* Only data is copied: what lies between shards may be another thread's. */
static void op_copy(const struct coll_operation *op, unsigned int slot, bool in)
{
	unsigned char *own = own_memory(op, slot), *user = op->buf[slot];
	size_t len = slot_len(op, slot), size;
	const uint64_t *counts, *displs;
	uint64_t next = 0;

	if (!len || !own)
		return;
	if (!coll_args_blocks(&op->args, slot, &counts, &displs)) {
		memcpy(in ? own : user, in ? user : own, len);
		return;
	}
	size = npulink_dtype_size(op->args.dtype);
	for (uint32_t i = 0; i < op->args.nranks; i++) {
		unsigned char *theirs = user + (displs ? displs[i] : next) * size;
		unsigned char *ours = own + (displs && !op->args.packed[slot] ? displs[i] : next) *
					    size;

		memcpy(in ? ours : theirs, in ? theirs : ours, counts[i] * size);
		next += counts[i];
	}
}

void coll_op_copy_in(struct coll_operation *op)
{
	op_copy(op, op->args.in_place ? NPULINK_SLOT_RECV : NPULINK_SLOT_SEND, true);
}

static bool has_results(const struct coll_operation *op)
{
	return own_memory(op, NPULINK_SLOT_RECV) && op->plan->nslots > NPULINK_SLOT_RECV &&
	       op->plan->slots[NPULINK_SLOT_RECV].access & NPULINK_SLOT_WRITE;
}

/* Are there so many results to copy out that others should not wait for that? */
bool coll_op_is_staged(const struct coll_operation *op)
{
	return op->staged[NPULINK_SLOT_RECV] && has_results(op);
}

static void count_copied(const struct coll_operation *op)
{
	if (op->copied)
		atomic_fetch_add_explicit(&op->comm->dev->copied, 1, memory_order_relaxed);
}

void coll_op_copy_out(const struct coll_operation *op, int status)
{
	if (!status && has_results(op))
		op_copy(op, NPULINK_SLOT_RECV, false);
	count_copied(op);
}

/* What coll_op_copy_in() and coll_op_finish() copy for one that is all in one piece. */
void coll_op_copies(const struct coll_operation *op, struct coll_copy *in, struct coll_copy *out)
{
	unsigned int from = op->args.in_place ? NPULINK_SLOT_RECV : NPULINK_SLOT_SEND;
	unsigned char *arena = op->comm->dev->arena;

	*in = (struct coll_copy) { };
	*out = (struct coll_copy) { };
	if (op->copied)
		*in = (struct coll_copy) {
			arena + op->slot_off[from], op->buf[from], slot_len(op, from)
		};
	if (has_results(op))
		*out = (struct coll_copy) {
			op->buf[NPULINK_SLOT_RECV], arena + op->slot_off[NPULINK_SLOT_RECV],
			slot_len(op, NPULINK_SLOT_RECV)
		};
}

/* The operation has ended, or was refused, and its results are out: buffers back. */
void coll_op_end(struct coll_operation *op, int status)
{
	coll_op_unbind(op);
	op->status = status;
	if (coll_is_failure(status))
		atomic_store_explicit(&op->comm->failed, status, memory_order_relaxed);
}

/* The same, and the results come out first. */
void coll_op_finish(struct coll_operation *op, int status)
{
	coll_op_copy_out(op, status);
	coll_op_end(op, status);
}

/* ---- posting */

/* Any operation may be the next to end, but only one can be waited for. */
#define ROOM_NS		1000000ULL

/*
 * The kernel takes no more operations. True if that may have changed: a record of the
 * ring was taken, or (wait) an operation has ended, or may have. Lock held; dropped meanwhile.
 */
bool coll_make_room(struct coll_dev *dev, bool wait)
{
	const struct timespec pause = { .tv_nsec = 200000 };
	struct npulink_result result;
	uint64_t seq;

	if (coll_ring_drain(dev))
		return true;
	if (!wait)
		return false;
	seq = dev->inflight_first ? dev->inflight_first->seq : 0;
	pthread_mutex_unlock(&dev->lock);
	/* Its result comes by the ring as well, which is where it is taken from. */
	if (seq)
		coll_drv_wait(&dev->drv, seq, coll_now_ns() + ROOM_NS, &result);
	else
		nanosleep(&pause, NULL);	/* blocking calls of other threads */
	pthread_mutex_lock(&dev->lock);
	coll_ring_drain(dev);
	return true;
}

/* One system call, unless a signal comes. Returns how the operation ended. */
static int post_and_wait(struct coll_operation *op, bool *refused)
{
	struct coll_drv *drv = &op->comm->dev->drv;
	struct npulink_result result;
	bool runs;
	int rc;

	coll_board_flush_all(op->comm->dev);
	rc = coll_board_post(op);
	runs = !rc || ((rc == -EINTR || rc == -ETIME) && op->post.out_seq);

	*refused = !runs;
	if (!rc)
		return op->post.out_result.status;
	if (!runs)
		return rc;
	/* Never post it again, only go on waiting. */
	rc = coll_drv_wait(drv, op->post.out_seq, COLL_NEVER, &result);
	return rc ? rc : result.status;
}

/* Posted once, with this outcome: see it to its end. Leaves an error text. */
static int run_to_end(struct coll_operation *op, int rc, bool refused)
{
	struct coll_dev *dev = op->comm->dev;
	bool stale = false;

	while (refused && (rc == -EINTR || rc == -EBUSY || (rc == -ESTALE && !stale))) {
		if (rc == -EBUSY || rc == -ESTALE) {
			pthread_mutex_lock(&dev->lock);
			if (rc == -EBUSY) {
				coll_make_room(dev, true);
			} else {
				stale = true;
				rc = coll_op_rebind(op);
				if (rc) {
					coll_op_unplan(op);
					pthread_mutex_unlock(&dev->lock);
					return rc;
				}
			}
			pthread_mutex_unlock(&dev->lock);
			if (rc != -EBUSY)
				coll_op_copy_in(op);
		}
		rc = post_and_wait(op, &refused);
	}
	/* Once it is kept, another thread may have its place in the arena, without the lock. */
	coll_op_copy_out(op, rc);
	pthread_mutex_lock(&dev->lock);
	if (rc || !coll_repeat_keep(op)) {
		coll_op_end(op, rc);
		coll_op_unplan(op);
	}
	pthread_mutex_unlock(&dev->lock);
	return rc ? coll_fail_op(op, rc) : 0;
}

/* Tries one that is bound on the board, unless memory is pinned for it. */
static bool try_board(const struct coll_operation *op)
{
	struct coll_board_call call;

	if (!op->plan->board.code || !coll_op_in_arena(op))
		return false;
	coll_board_prepare(op, &call);
	return coll_board_try(op->comm, &call);
}

/* It was met there, so that nothing has to be copied. */
static int end_met(struct coll_operation *op)
{
	struct coll_dev *dev = op->comm->dev;

	pthread_mutex_lock(&dev->lock);
	if (!coll_repeat_keep(op)) {
		coll_op_unbind(op);
		coll_op_unplan(op);
	}
	pthread_mutex_unlock(&dev->lock);
	return 0;
}

/* A blocking call, from its arguments to its result. Leaves an error text. */
int coll_op_run(struct coll_operation *op)
{
	enum coll_fresh_is fresh = coll_fresh_try(op);
	struct coll_dev *dev = op->comm->dev;
	bool refused;
	int rc;

	if (fresh == COLL_FRESH_MET)
		return 0;
	pthread_mutex_lock(&dev->lock);
	rc = coll_op_plan(op);
	if (!rc) {
		op->plan->blocked |= fresh == COLL_FRESH_AGAIN;
		rc = coll_op_bind(op);
		if (rc)
			coll_op_unplan(op);
	}
	pthread_mutex_unlock(&dev->lock);
	if (rc)
		return rc;
	/* Also if it is met: it may be kept, and posted another time. */
	op->post.flags = NPULINK_POST_WAIT;
	op->post.wait_until_ns = COLL_NEVER;
	if (fresh != COLL_FRESH_FELL && try_board(op))
		return end_met(op);
	coll_op_copy_in(op);
	rc = post_and_wait(op, &refused);
	return run_to_end(op, rc, refused);
}

/* The same for one that coll_repeat_get() has found. */
COLL_HOT int coll_op_run_again(struct coll_repeat *repeat)
{
	struct coll_operation *op = &repeat->op, mine;
	struct coll_dev *dev = op->comm->dev;
	bool refused;
	int rc;

	if (coll_board_try(op->comm, &repeat->board)) {
		coll_repeat_end(repeat);
		return 0;
	}
	if (repeat->in.len)
		memcpy(repeat->in.to, repeat->in.from, repeat->in.len);
	rc = post_and_wait(op, &refused);
	if (!rc) {
		if (repeat->out.len)
			memcpy(repeat->out.to, repeat->out.from, repeat->out.len);
		count_copied(op);
		coll_repeat_end(repeat);
		return 0;
	}
	pthread_mutex_lock(&dev->lock);
	coll_repeat_give(repeat, &mine);
	pthread_mutex_unlock(&dev->lock);
	return run_to_end(&mine, rc, refused);
}

/* ---- without the kernel */

int coll_op_local(struct coll_operation *op)
{
	int failed = atomic_load_explicit(&op->comm->failed, memory_order_relaxed), rc;
	size_t len;

	if (failed)
		return coll_fail_op(op, failed);
	if (__builtin_mul_overflow(op->args.count, npulink_dtype_size(op->args.dtype), &len) ||
	    len > NPULINK_MAX_LEN)
		return coll_fail_plan(op->comm, &op->args, -EOVERFLOW, NULL);
	if (!len || op->args.collective == NPULINK_COLL_BARRIER)
		return 0;
	rc = coll_buffers_check(op, op->args.in_place ? 0 : len, len);
	if (!rc && !op->args.in_place)
		memcpy(op->buf[1], op->buf[0], len);
	return rc;
}
