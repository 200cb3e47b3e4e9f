// SPDX-License-Identifier: GPL-2.0
/*
 * engine.c - runs a request: dst = src[0] (+) src[1] (+) ..., or a copy.
 *
 * A request goes block by block through all its inputs, each block of the result
 * small enough to stay in the first-level cache meanwhile: every input is read from
 * memory once and the result written once. Between blocks the task may be
 * preempted, and the floating point unit is given back, so a block is also what
 * bounds latency.
 */
#include <linux/sched.h>
#include "fpu.h"
#include "soft.h"

#define SOFT_COPY_BLOCK		65536
#define SOFT_BLOCK_INPUT	32768	/* bytes of all inputs of a block */
#define SOFT_BLOCK_MIN		1024

/* What every block has in common. */
struct soft_run {
	struct soft_kernel k;
	bool fpu;
	u32 block;
};

/* Nothing but bytes, of no type. */
static inline bool soft_copies(const struct npulink_req *req)
{
	return req->nsrc == 1 && !(req->scale && req->src[0].scaled);
}

/* What the result is divided by: what is only scaled, by the power of two. */
static inline u32 soft_divisor(const struct npulink_req *req)
{
	if (likely(!req->scale))
		return req->div;
	if (req->nsrc == 1)
		return 1U << req->scale;
	if (!req->rest)
		return req->div;
	return req->div == 1U << req->scale ? 0 : SOFT_DIV_BY(req->div, req->scale);
}

/* Is the result to be stored past the cache? In place, that has what is overwritten. */
static bool soft_past(const struct npulink_req *req)
{
	return req->nontemporal &&
	       (req->dst.buf != req->src[0].buf || req->dst.off != req->src[0].off);
}

static void soft_run_init(struct soft_run *run, const struct npulink_req *req)
{
	if (soft_copies(req)) {
		run->fpu = false;
		run->block = SOFT_COPY_BLOCK;
		return;
	}
	run->fpu = soft_select(&run->k, req->dtype, req->redop, soft_divisor(req), req->scale,
			       req->len, soft_past(req));
	run->block = max_t(u32, rounddown(SOFT_BLOCK_INPUT / req->nsrc, 64), SOFT_BLOCK_MIN);
}

static void soft_run_block(struct soft_run *run, const struct npulink_req *req,
			   u64 at, u32 n, u32 *hint)
{
	if (soft_copies(req)) {
		soft_walk_copy(&req->dst, req->src, at, n, hint);
		return;
	}
	if (run->fpu)
		soft_fpu_begin();
	/* This processor's, for as long as it has lent its unit. */
	if (run->k.stream)
		run->k.scratch = this_cpu_ptr(soft_scratch);
	soft_walk_reduce(&run->k, &req->dst, req->src, req->nsrc, at, n, hint);
	if (run->k.stream) {
		soft_stream_fence();
		soft_select_streamed();
	}
	if (run->fpu)
		soft_fpu_end();
}

/* Where the @len bytes of an operand are, if they are in one piece; else NULL. */
static void *soft_contiguous(const struct npulink_operand *o, u64 len)
{
	const struct npulink_buf_mem *mem = npulink_buf_mem(o->buf);
	const struct npulink_range *r = mem->ranges;

	if (mem->nranges > 1)
		r += npulink_mem_range(mem, o->off);
	return r[1].off - o->off >= len ? r->va + (o->off - r->off) : NULL;
}

/*
 * Little data, all operands in one piece each: no blocks, no walk, no preparations that cost
 * more than the work. False, with nothing done, if it is not like that.
 */
static bool soft_copy_small(const struct npulink_req *req)
{
	void *dst = soft_contiguous(&req->dst, req->len);
	const void *a = soft_contiguous(&req->src[0], req->len);

	if (!dst || !a)
		return false;
	if (dst != a)
		memcpy(dst, a, req->len);
	return true;
}

static noinline bool soft_reduce_small(const struct npulink_req *req)
{
	void *dst = soft_contiguous(&req->dst, req->len);
	const void *a = soft_contiguous(&req->src[0], req->len);
	struct soft_kernel k;
	unsigned int i;
	bool fpu;

	if (!dst || !a)
		return false;
	for (i = 1; i < req->nsrc; i++)
		if (!soft_contiguous(&req->src[i], req->len))
			return false;
	fpu = soft_select(&k, req->dtype, req->redop, soft_divisor(req), req->scale, req->len,
			  soft_past(req));
	if (k.stream)
		return false;
	if (fpu) {
		if (!soft_fpu_usable())
			return false;
		soft_fpu_begin();
	}
	if (req->nsrc == 1 && dst != a)
		memcpy(dst, a, req->len);
	for (i = 1; i < req->nsrc; i++) {
		soft_add(&k, req->src, i, dst, a, soft_contiguous(&req->src[i], req->len),
			 req->len >> k.shift);
		a = dst;
	}
	if (k.by > 1)
		k.div(dst, req->len >> k.shift, k.by);
	if (fpu)
		soft_fpu_end();
	return true;
}

static bool soft_run_small(const struct npulink_req *req)
{
	return soft_copies(req) ? soft_copy_small(req) : soft_reduce_small(req);
}

static noinline int soft_run_blocks(struct npulink_req *req)
{
	u32 hint[SOFT_MAX_SRC + 1];
	struct soft_run run;
	u64 at;
	u32 n;

	soft_run_init(&run, req);
	/* On some processors it is not with interrupts off, and there is no other way. */
	if (run.fpu && !soft_fpu_usable())
		return -EAGAIN;
	memset(hint, 0, (req->nsrc + 1) * sizeof(hint[0]));
	for (at = 0; at < req->len; at += n) {
		if (at)
			cond_resched();
		if (READ_ONCE(req->cancelled))
			return -ECANCELED;
		n = min_t(u64, req->len - at, run.block);
		soft_run_block(&run, req, at, n, hint);
	}
	return 0;
}

static int soft_run(struct npulink_req *req)
{
	if (WARN_ON_ONCE(!req->nsrc || req->nsrc > SOFT_MAX_SRC))
		return -EINVAL;
	if (WARN_ON_ONCE(!soft_copies(req) &&
			 (req->dtype >= NPULINK_DTYPES || req->redop >= NPULINK_REDOPS ||
			  !(req->dev->dtypes & BIT(req->dtype)) || req->div > SOFT_DIV_MAX)))
		return -EINVAL;
	if (req->len * req->nsrc <= SOFT_BLOCK_INPUT && !READ_ONCE(req->cancelled) &&
	    soft_run_small(req))
		return 0;
	return soft_run_blocks(req);
}

/* The corrupt knob: one bit in the middle of the result. */
static void soft_flip_bit(const struct npulink_req *req)
{
	const struct npulink_buf_mem *mem = npulink_buf_mem(req->dst.buf);
	u64 at = req->dst.off + req->len / 2;
	const struct npulink_range *r = mem->ranges + npulink_mem_range(mem, at);

	if (req->len)
		((u8 *)r->va)[at - r->off] ^= 1;
}

static void soft_account(struct npulink_device *dev, const struct npulink_req *req)
{
	atomic64_inc(&dev->stats.requests);
	atomic64_add(req->len * req->nsrc, &dev->stats.bytes_read);
	atomic64_add(req->len, &dev->stats.bytes_written);
}

/**
 * soft_submit() - npulink_device_ops.submit
 * @dev: device
 * @req: request
 */
int soft_submit(struct npulink_device *dev, struct npulink_req *req)
{
	struct soft_dev *sd = to_soft_dev(dev);
	bool special = READ_ONCE(sd->special);
	bool corrupt = false;
	ktime_t start = 0;
	int rc;

	if (WARN_ON_ONCE(READ_ONCE(sd->quiesced)))
		return -ENODEV;
	if (unlikely(special)) {
		start = ktime_get();
		rc = soft_fault_submit(sd, req, &corrupt);
		if (rc)
			return rc;
	}
	rc = soft_run(req);
	if (WARN_ON_ONCE(rc == -EAGAIN))
		return -EIO;
	if (rc)
		return rc;
	if (unlikely(corrupt))
		soft_flip_bit(req);
	soft_account(dev, req);
	if (unlikely(special)) {
		rc = soft_fault_finish(sd, req, start);
		if (rc)
			return rc;
	}
	if (req->small) {
		atomic64_inc(&dev->stats.inline_done);
		return 0;
	}
	/* From here on it may be reported and used again. */
	soft_irq_raise(sd, SOFT_VECTOR_DONE, &req->ev);
	return -EINPROGRESS;
}

/**
 * soft_run_now() - npulink_device_ops.run
 * @dev: device
 * @req: request
 *
 * Not called while knobs or the timing model are in use, see soft_fault_update().
 */
int soft_run_now(struct npulink_device *dev, struct npulink_req *req)
{
	int rc;

	if (WARN_ON_ONCE(READ_ONCE(to_soft_dev(dev)->quiesced)))
		return -ENODEV;
	rc = soft_run(req);
	if (rc)
		return rc;
	soft_account(dev, req);
	atomic64_inc(&dev->stats.inline_done);
	return 0;
}
