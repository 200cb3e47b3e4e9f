// SPDX-License-Identifier: GPL-2.0
/*
 * checksum.c - for communicators that ask for it: what comes over a link lands in memory
 * of our own first and is compared by CRC32C with what was sent, and is fetched once more
 * if it differs; only then it is reduced, or copied to where it belongs.
 *
 * On links whose far end reads (HCCS) the reader's processor computes both sums: that of
 * the bytes at their source, and that of the bytes that the engine brought. A request goes
 * to the engine once for each such input, then as it was meant, and in between it waits
 * in file->ready for a task, since sums take too long for an interrupt.
 */
#include <linux/crc32c.h>
#include <linux/slab.h>
#include "comm/comm.h"
#include "file/buf.h"
#include "file/file.h"
#include "plan/plan.h"
#include "run/checksum.h"
#include "run/run.h"

/* An input as it was before the request was turned into its landing. */
struct npulink_check_src {
	struct npulink_operand o;
	struct npulink_link *link;	/* NULL: local, need not land */
	u32 step;
};

/*
 * struct npulink_check - what a checked request was meant to be
 * @at: input that lands, or landed
 * @active: the request stands for its landings now; else it is what it is
 * @brought: the engine has brought input @at
 * @again: it did so for the second time
 * @bad: input @at was damaged twice
 */
struct npulink_check {
	struct npulink_buf *landing;
	u64 room;		/* of @landing, for each input */
	struct npulink_operand dst;
	u16 nsrc;
	u16 remote;
	u16 at;
	u8 dtype;
	u8 redop;
	u32 div;
	u32 crc;
	bool active;
	bool brought;
	bool again;
	bool bad;
	struct npulink_check_src src[];
};

/* For one request of @plan. By the owner of its file. */
struct npulink_check *npulink_check_alloc(struct npulink_plan *plan)
{
	struct npulink_check *ck;

	ck = kvzalloc(struct_size(ck, src, plan->max_src), GFP_KERNEL_ACCOUNT);
	if (!ck)
		return NULL;
	ck->room = min_t(u64, plan->max_len, plan->rank->dev->slice);
	ck->landing = npulink_buf_alloc_pages(plan->rank->file, ck->room * plan->max_src, true);
	if (IS_ERR(ck->landing)) {
		kvfree(ck);
		return NULL;
	}
	return ck;
}

void npulink_check_free(struct npulink_check *ck)
{
	npulink_buf_drop_base(ck->landing);
	npulink_object_put(&ck->landing->obj);
	kvfree(ck);
}

/* Before a request is filled in: all inputs are local ... */
void npulink_check_reset(struct npulink_req *req)
{
	struct npulink_check *ck = req->core.check;
	u32 i;

	for (i = 0; i < req->core.op->plan->max_src; i++)
		ck->src[i].link = NULL;
}

/* ... but @i, which is of @step and comes over @link. */
void npulink_check_input(struct npulink_req *req, u32 i, struct npulink_link *link, u32 step)
{
	struct npulink_check *ck = req->core.check;

	ck->src[i].link = link;
	ck->src[i].step = step;
}

/* Go on with the sum of what came before. */
u32 npulink_operand_crc_add(u32 crc, const struct npulink_operand *o, u64 len)
{
	const struct npulink_buf_mem *mem;
	u64 at = o->off, end = at + len;
	u32 i;

	/* Steps without bytes have no buffer. */
	if (!len)
		return crc;
	mem = &o->buf->mem;
	for (i = npulink_mem_range(mem, at); at < end; i++) {
		const struct npulink_range *r = &mem->ranges[i];
		u64 n = min(end, r[1].off) - at;

		crc = crc32c(crc, r->va + (at - r->off), n);
		at += n;
	}
	return crc;
}

static void npulink_check_begin(struct npulink_check *ck, const struct npulink_req *req)
{
	u32 i;

	ck->dst = req->dst;
	ck->nsrc = req->nsrc;
	ck->remote = req->remote;
	ck->dtype = req->dtype;
	ck->redop = req->redop;
	ck->div = req->div;
	for (i = 0; i < req->nsrc; i++)
		ck->src[i].o = req->src[i];
	ck->at = 0;
	ck->brought = false;
	ck->again = false;
	ck->bad = false;
	/* From here on npulink_check_put_bufs() knows what it holds. */
	ck->active = true;
}

static struct npulink_operand npulink_check_landing(const struct npulink_check *ck, u32 i)
{
	return (struct npulink_operand) { ck->landing, i * ck->room };
}

/* Make the request one that brings input ck->at. */
static void npulink_check_fetch(struct npulink_check *ck, struct npulink_req *req)
{
	const struct npulink_check_src *src = &ck->src[ck->at];

	req->dst = npulink_check_landing(ck, ck->at);
	req->src[0] = src->o;
	req->src[0].scaled = false;
	req->nsrc = 1;
	req->remote = 0;
	req->link = src->link;
	req->dtype = 0;
	req->redop = 0;
	req->div = 0;
	ck->crc = npulink_operand_crc(&src->o, req->len);
}

/* All are here: make it what it was meant to be, on what has landed. */
static void npulink_check_finish(struct npulink_check *ck, struct npulink_req *req)
{
	u32 i;

	for (i = 0; i < ck->nsrc; i++) {
		req->src[i] = ck->src[i].link ? npulink_check_landing(ck, i) : ck->src[i].o;
		req->src[i].scaled = ck->src[i].o.scaled;
	}
	req->dst = ck->dst;
	req->nsrc = ck->nsrc;
	req->remote = ck->nsrc;
	req->link = NULL;
	req->dtype = ck->dtype;
	req->redop = ck->redop;
	req->div = ck->div;
}

/* Did the engine bring what is there? Returns 0: go on, -EAGAIN: once more, -EBADMSG. */
static int npulink_check_verify(struct npulink_check *ck, struct npulink_req *req)
{
	ck->brought = false;
	if (npulink_operand_crc(&req->dst, req->len) == ck->crc) {
		ck->again = false;
		return 0;
	}
	atomic64_inc(&ck->src[ck->at].link->stats.damaged);
	if (ck->again) {
		ck->bad = true;
		return -EBADMSG;
	}
	ck->again = true;
	return -EAGAIN;
}

/* Instead of npulink_device_ops.submit; with the same results. Task context. */
int npulink_check_submit(struct npulink_req *req)
{
	struct npulink_check *ck = req->core.check;
	int rc;

	if (!req->link && !ck->active)
		return npulink_engine_submit(req);
	if (!ck->active)
		npulink_check_begin(ck, req);
	for (;;) {
		if (ck->brought) {
			rc = npulink_check_verify(ck, req);
			if (rc == -EBADMSG)
				return rc;
			ck->at += !rc;
		}
		while (ck->at < ck->nsrc && !ck->src[ck->at].link)
			ck->at++;
		if (READ_ONCE(req->cancelled))
			return -ECANCELED;
		if (ck->at == ck->nsrc)
			break;
		npulink_check_fetch(ck, req);
		rc = npulink_engine_submit(req);
		if (rc)
			return rc;
		ck->brought = true;
	}
	npulink_check_finish(ck, req);
	return npulink_engine_submit(req);
}

/*
 * The engine is done with a request, by interrupt: was that a landing? Then it has to go
 * on in a task. Under the rank's lock.
 */
bool npulink_check_landed(struct npulink_req *req)
{
	struct npulink_check *ck = req->core.check;

	if (!ck->active || ck->at == ck->nsrc)
		return false;
	ck->brought = true;
	return true;
}

/* The cause of -EBADMSG, if it is ours. */
void npulink_check_cause(const struct npulink_req *req, struct npulink_cause *cause)
{
	const struct npulink_check *ck = req->core.check;
	const struct npulink_check_src *src = &ck->src[ck->at];

	if (!ck->bad)
		return;
	cause->cause = NPULINK_CAUSE_CHECKSUM;
	cause->step = src->step;
	cause->peer = req->core.op->plan->steps[src->step].recv_peer;
	cause->code = src->link->dev->id;
}

/* Let go of the buffers that the request was given. False: it has what it was given. */
bool npulink_check_put_bufs(struct npulink_req *req)
{
	struct npulink_check *ck = req->core.check;
	u32 i;

	if (!ck->active)
		return false;
	for (i = 0; i < ck->nsrc; i++)
		npulink_operand_put(&ck->src[i].o);
	ck->active = false;
	return true;
}
