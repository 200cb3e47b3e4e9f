// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * plan.c - the list of steps: appending to it, and what every plan needs
 * before and after its planner has run: checked arguments, slots, the call.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "plan/planner.h"

/* ---- appending steps */

static struct npulink_step *step_append(struct coll_plan *plan)
{
	if (plan->build.rc)
		return NULL;
	if (plan->nsteps == NPULINK_MAX_STEPS) {
		plan->build.rc = -EOVERFLOW;
		return NULL;
	}
	if (plan->nsteps == plan->cap) {
		uint32_t cap = plan->cap ? 2 * plan->cap : 16;
		void *steps = realloc(plan->steps, cap * sizeof(*plan->steps));

		if (!steps) {
			plan->build.rc = -ENOMEM;
			return NULL;
		}
		plan->steps = steps;
		plan->cap = cap;
	}
	return &plan->steps[plan->nsteps];
}

/* Append @step with the dependencies that plan_after() has collected. */
static uint32_t step_add(struct coll_plan *plan, const struct npulink_step *step)
{
	struct npulink_step *s = step_append(plan);
	uint32_t i;

	if (s) {
		*s = *step;
		for (i = 0; i < plan->build.nafter; i++)
			s->dep[i] = plan->nsteps - plan->build.after[i];
		if (plan->build.drain)
			s->flags |= NPULINK_STEP_F_DRAIN;
		plan->nsteps++;
	}
	plan->build.nafter = 0;
	plan->build.drain = false;
	return s ? plan->nsteps - 1 : PLAN_NONE;
}

uint32_t plan_nop(struct coll_plan *plan)
{
	struct npulink_step s = {
		.recv_peer = NPULINK_NO_PEER, .send_peer = NPULINK_NO_PEER,
	};

	return step_add(plan, &s);
}

void plan_after(struct coll_plan *plan, uint32_t on)
{
	uint32_t i;

	if (on == PLAN_NONE)
		return;
	for (i = 0; i < plan->build.nafter; i++)
		if (plan->build.after[i] == on)
			return;
	if (plan->build.nafter == NPULINK_STEP_DEPS) {
		bool drain = plan->build.drain;
		uint32_t nop;

		plan->build.drain = false;
		nop = plan_nop(plan);
		plan->build.drain = drain;
		if (nop == PLAN_NONE)
			return;
		plan->build.after[plan->build.nafter++] = nop;
	}
	plan->build.after[plan->build.nafter++] = on;
}

void plan_after_all(struct coll_plan *plan)
{
	plan->build.nafter = 0;
	plan->build.drain = true;
}

void plan_after_since(struct coll_plan *plan, uint32_t first)
{
	uint32_t end = plan->nsteps;

	for (; first < end; first++)
		plan_after(plan, first);
}

bool plan_scales(const struct coll_plan *plan)
{
	return plan->call.redop == NPULINK_CALL_AVG && plan->nranks > 1 &&
	       npulink_dtype_is_float(plan->call.dtype);
}

static uint32_t op_add(struct coll_plan *plan, uint8_t op, uint32_t from, uint32_t to,
		       struct plan_at src, struct plan_at src2, struct plan_at dst,
		       uint64_t len)
{
	struct npulink_step s = {
		.op = op,
		.recv_peer = from, .send_peer = to,
		.src_slot = src.slot, .src_off = src.off,
		.src2_slot = src2.slot, .src2_off = src2.off,
		.dst_slot = dst.slot, .dst_off = dst.off,
		.len = len,
	};

	if (!len) {
		plan->build.nafter = 0;
		plan->build.drain = false;
		return PLAN_NONE;
	}
	if (op & NPULINK_STEP_REDUCE) {
		s.dtype = plan->call.dtype;
		s.redop = plan->call.redop == NPULINK_CALL_AVG ?
			  NPULINK_SUM : plan->call.redop;
		if (plan_scales(plan))
			s.flags |= (src.plain ? NPULINK_STEP_F_SCALE : 0) |
				   (src2.plain ? NPULINK_STEP_F_SCALE2 : 0);
	}
	return step_add(plan, &s);
}

static const struct plan_at nowhere;

uint32_t plan_copy(struct coll_plan *plan, struct plan_at src, struct plan_at dst, uint64_t len)
{
	return op_add(plan, NPULINK_STEP_COPY, NPULINK_NO_PEER, NPULINK_NO_PEER,
		      src, nowhere, dst, len);
}

uint32_t plan_copy_scaled(struct coll_plan *plan, struct plan_at src, struct plan_at dst,
			  uint64_t len)
{
	uint32_t step = plan_copy(plan, src, dst, len);

	if (step != PLAN_NONE && plan_scales(plan)) {
		plan->steps[step].flags |= NPULINK_STEP_F_SCALE;
		plan->steps[step].dtype = plan->call.dtype;
	}
	return step;
}

uint32_t plan_copy_send(struct coll_plan *plan, uint32_t to, struct plan_at src,
			struct plan_at dst, uint64_t len)
{
	return op_add(plan, NPULINK_STEP_COPY | NPULINK_STEP_SEND, NPULINK_NO_PEER, to,
		      src, nowhere, dst, len);
}

uint32_t plan_reduce(struct coll_plan *plan, struct plan_at src, struct plan_at src2,
		     struct plan_at dst, uint64_t len)
{
	return op_add(plan, NPULINK_STEP_REDUCE, NPULINK_NO_PEER, NPULINK_NO_PEER,
		      src, src2, dst, len);
}

uint32_t plan_send(struct coll_plan *plan, uint32_t to, struct plan_at src, uint64_t len)
{
	return op_add(plan, NPULINK_STEP_SEND, NPULINK_NO_PEER, to, src, nowhere, nowhere, len);
}

uint32_t plan_recv(struct coll_plan *plan, uint32_t from, struct plan_at dst, uint64_t len)
{
	return op_add(plan, NPULINK_STEP_RECV, from, NPULINK_NO_PEER,
		      nowhere, nowhere, dst, len);
}

uint32_t plan_recv_send(struct coll_plan *plan, uint32_t from, uint32_t to,
			struct plan_at dst, uint64_t len)
{
	return op_add(plan, NPULINK_STEP_RECV | NPULINK_STEP_SEND, from, to,
		      nowhere, nowhere, dst, len);
}

uint32_t plan_recv_reduce(struct coll_plan *plan, uint32_t from, struct plan_at src,
			  struct plan_at dst, uint64_t len)
{
	return op_add(plan, NPULINK_STEP_RECV | NPULINK_STEP_REDUCE, from, NPULINK_NO_PEER,
		      src, nowhere, dst, len);
}

uint32_t plan_recv_reduce_send(struct coll_plan *plan, uint32_t from, uint32_t to,
			       struct plan_at src, struct plan_at dst, uint64_t len)
{
	return op_add(plan, NPULINK_STEP_RECV | NPULINK_STEP_REDUCE | NPULINK_STEP_SEND,
		      from, to, src, nowhere, dst, len);
}

uint32_t plan_signal(struct coll_plan *plan, uint32_t to)
{
	struct npulink_step s = {
		.op = NPULINK_STEP_SEND, .recv_peer = NPULINK_NO_PEER, .send_peer = to,
	};

	return step_add(plan, &s);
}

uint32_t plan_await(struct coll_plan *plan, uint32_t from)
{
	struct npulink_step s = {
		.op = NPULINK_STEP_RECV, .recv_peer = from, .send_peer = NPULINK_NO_PEER,
	};

	return step_add(plan, &s);
}

void plan_transient(struct coll_plan *plan, uint32_t step, uint64_t window)
{
	struct npulink_step *s = &plan->steps[step];

	if (step == PLAN_NONE)
		return;
	s->flags |= NPULINK_STEP_F_TRANSIENT;
	if (window < s->len)
		s->src2_off = window;
}

void plan_final(struct coll_plan *plan, uint32_t step)
{
	if (step == PLAN_NONE || plan->call.redop != NPULINK_CALL_AVG)
		return;
	plan->steps[step].flags |= NPULINK_STEP_F_DIV;
	if (plan_scales(plan))
		plan->steps[step].flags |= NPULINK_STEP_F_REST;
}

void plan_recv_plain(struct coll_plan *plan, uint32_t step, bool plain)
{
	if (step != PLAN_NONE && plain && plan_scales(plan))
		plan->steps[step].flags |= NPULINK_STEP_F_SCALE2;
}

void plan_chain(struct coll_plan *plan, uint32_t step)
{
	if (step != PLAN_NONE)
		plan->steps[step].flags |= NPULINK_STEP_F_CHAIN;
}

void plan_channel(struct coll_plan *plan, uint32_t step, uint32_t channel)
{
	if (step != PLAN_NONE)
		plan->steps[step].channel = channel;
}

struct plan_at plan_scratch(struct coll_plan *plan, uint64_t len)
{
	struct npulink_slot *slot = &plan->slots[NPULINK_SLOT_SCRATCH];
	struct plan_at at = {
		.slot = NPULINK_SLOT_SCRATCH, .off = (slot->min_len + 63) & ~63ULL,
	};

	/* Both are at most 2^40 as long as this check holds. */
	if (len > NPULINK_MAX_LEN || at.off + len > NPULINK_MAX_LEN)
		plan->build.rc = plan->build.rc ? : -EOVERFLOW;
	else if (len)
		slot->min_len = at.off + len;
	return at;
}

/* ---- making a plan */

/* One rank: nothing but its own input to its own output. */
static void plan_single(const struct coll_args *args, struct coll_plan *plan)
{
	const struct coll_kind *k = coll_kind(args->collective);
	struct plan_shards s = plan_shards(args);
	uint64_t from = 0, to = 0;

	if (args->collective == NPULINK_COLL_BARRIER || plan_in_place(args))
		return;
	if (coll_has_rcounts(args->collective))
		to = args->rdispls[0] * s.esize;
	else if (k->gets == NPULINK_PART_BLOCKS)
		to = shard_off(&s, 0);
	if (k->gives == NPULINK_PART_BLOCKS)
		from = shard_off(&s, 0);
	plan_copy(plan, at_send(from), at_recv(to), shard_len(&s, 0));
}

static void slot_access(struct coll_plan *plan, uint32_t slot, uint32_t access, uint64_t len)
{
	if (len)
		plan->slots[slot].access |= access;
}

void plan_fill_slots(struct coll_plan *plan)
{
	uint32_t i;

	for (i = 0; i < plan->nsteps; i++) {
		const struct npulink_step *s = &plan->steps[i];
		bool reduce = s->op & NPULINK_STEP_REDUCE;

		if (reduce || (s->op & NPULINK_STEP_COPY) || s->op == NPULINK_STEP_SEND)
			slot_access(plan, s->src_slot, NPULINK_SLOT_READ, s->len);
		if (reduce && !(s->op & NPULINK_STEP_RECV))
			slot_access(plan, s->src2_slot, NPULINK_SLOT_READ, s->len);
		if (s->op && s->op != NPULINK_STEP_SEND)
			slot_access(plan, s->dst_slot, NPULINK_SLOT_WRITE |
				    (s->op & NPULINK_STEP_SEND ? NPULINK_SLOT_READ : 0), s->len);
	}
	for (i = 0; i < NPULINK_MAX_SLOTS; i++) {
		if (plan->slots[i].access)
			plan->nslots = i + 1;
		else
			plan->slots[i].min_len = 0;
	}
}

/* FNV-1a over words, with a final mix so that all bits depend on all words. */
uint64_t coll_hash_add(uint64_t h, uint64_t word)
{
	h = (h ^ word) * 0x100000001b3ULL;
	return h ^ h >> 32;
}

uint64_t coll_hash_text(uint64_t h, const char *text)
{
	while (*text)
		h = coll_hash_add(h, (unsigned char)*text++);
	return h;
}

/* What planners make of the wiring. */
uint64_t coll_hash_topo(uint64_t h, const struct coll_topo *t, uint32_t nranks)
{
	h = coll_hash_add(h, (uint64_t)t->rows << 32 | t->cols);
	if (t->torus || t->ring || t->group)
		h = coll_hash_add(h, (uint64_t)t->group << 32 | t->uplinks << 2 | t->torus << 1 |
				  t->ring);
	if (t->nservers > 1) {
		h = coll_hash_add(h, t->nservers);
		for (uint32_t i = 0; i < nranks; i++)
			h = coll_hash_add(h, t->server_of[i]);
	}
	return h;
}

/* What must be equal on all ranks, and is not in struct npulink_call anyway. */
static uint64_t plan_set_id(const struct coll_algorithm *alg, const struct coll_args *args)
{
	uint64_t h = coll_hash_text(COLL_HASH_INIT, alg->name);
	uint32_t i;

	h = coll_hash_add(h, PLANNER_VERSION);
	h = coll_hash_add(h, args->nranks);
	h = coll_hash_add(h, args->chunks);
	if (args->topo)
		h = coll_hash_topo(h, args->topo, args->nranks);
	/* In alltoallv they are another on each rank. */
	if (args->counts && !coll_has_rcounts(args->collective))
		for (i = 0; i < args->nranks; i++)
			h = coll_hash_add(h, args->counts[i]);
	h *= 0x9e3779b97f4a7c15ULL;
	return h ^ h >> 29;
}

int coll_plan_make(const struct coll_algorithm *alg, const struct coll_args *in,
		   struct coll_plan *plan)
{
	struct coll_args args;
	uint64_t *mem = NULL, send, recv;
	int rc;

	memset(plan, 0, sizeof(*plan));
	if (alg->collective != in->collective || coll_args_check(in))
		return -EINVAL;
	rc = plan_args_fill(in, &args, &mem);
	if (rc)
		return rc;
	rc = plan_buffers(&args, &send, &recv);
	if (!rc && alg->supports && alg->supports(&args))
		rc = -EOPNOTSUPP;
	if (rc)
		goto out;

	if (alg->chunks)
		args.chunks = plan_chunks(&args, alg->chunks);
	plan->slots[NPULINK_SLOT_SEND].min_len = send;
	plan->slots[NPULINK_SLOT_RECV].min_len = recv;
	plan->nranks = args.nranks;
	plan->rank = args.rank;
	plan->call.collective = args.collective;
	plan->call.dtype = args.dtype;
	plan->call.redop = args.redop;
	plan->call.root = args.root;
	plan->call.count = args.count;
	plan->call.set_id = plan_set_id(alg, &args);
	plan->algorithm = alg->name;
	if (args.nranks == 1)
		plan_single(&args, plan);
	else
		rc = alg->plan(&args, plan);
	rc = rc ? : plan->build.rc;
	if (!rc)
		plan_fill_slots(plan);
	else
		coll_plan_free(plan);
out:
	free(mem);
	return rc;
}

void coll_plan_free(struct coll_plan *plan)
{
	free(plan->steps);
	memset(plan, 0, sizeof(*plan));
}

void coll_plan_stats(const struct coll_plan *plan, struct coll_plan_stats *stats)
{
	const struct npulink_step *s = plan->steps;
	uint32_t i;

	memset(stats, 0, sizeof(*stats));
	for (i = 0; i < plan->nsteps; i++, s++) {
		bool chain = s->flags & NPULINK_STEP_F_CHAIN;

		if (s->op & NPULINK_STEP_SEND) {
			stats->sends++;
			stats->sent += s->len;
		}
		if (s->op & NPULINK_STEP_RECV) {
			stats->recvs++;
			stats->received += s->len;
		}
		if (!s->op || s->op == NPULINK_STEP_SEND)
			continue;
		stats->read += (s->op & NPULINK_STEP_REDUCE) && !chain ? 2 * s->len : s->len;
		if (!chain)
			stats->written += s->len;
	}
}

struct npulink_plan_desc coll_plan_desc(const struct coll_plan *plan)
{
	return (struct npulink_plan_desc){
		.call = &plan->call,
		.nranks = plan->nranks, .rank = plan->rank,
		.nslots = plan->nslots, .slots = plan->slots,
		.nsteps = plan->nsteps, .steps = plan->steps,
	};
}
