// SPDX-License-Identifier: GPL-2.0
/*
 * gen.c - random plans. They are small and crowded: few slots of few bytes, so that
 * steps overlap, and dependencies that are there half of the time, so that both
 * answers of the race proof are common.
 */
#include <string.h>
#include <npulink/verify.h>
#include "gen.h"

uint64_t rnd_odd(struct rnd *r)
{
	static const uint64_t odd[] = {
		0, 1, 2, 3, 7, 8, 15, 16, 63, 64, 255, 4095, 4096, 4097, 65535, 65536,
		0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff, 0x100000000,
		NPULINK_MAX_LEN - 1, NPULINK_MAX_LEN, NPULINK_MAX_LEN + 1,
		0x7fffffffffffffff, 0x8000000000000000, 0xfffffffffffff000, ~1ULL, ~0ULL,
	};

	if (rnd_one_in(r, 8))
		return rnd_next(r);
	if (rnd_one_in(r, 4))
		return 1ULL << rnd_below(r, 64);
	return odd[rnd_below(r, sizeof(odd) / sizeof(odd[0]))];
}

static const uint8_t reducing[] = {
	NPULINK_COLL_ALLREDUCE, NPULINK_COLL_REDUCE, NPULINK_COLL_REDUCE_SCATTER,
	NPULINK_COLL_REDUCE_SCATTERV,
};

static bool call_reduces(const struct npulink_call *call)
{
	return memchr(reducing, (int)call->collective, sizeof(reducing)) &&
	       call->collective < NPULINK_COLLS;
}

void gen_call(struct rnd *r, struct npulink_call *call, uint32_t nranks)
{
	memset(call, 0, sizeof(*call));
	call->collective = rnd_one_in(r, 3) ? rnd_below(r, NPULINK_COLLS) :
			   reducing[rnd_below(r, sizeof(reducing))];
	call->dtype = rnd_below(r, NPULINK_DTYPES);
	if (call_reduces(call))
		call->redop = rnd_below(r, NPULINK_CALL_AVG + 1);
	if (call->collective >= NPULINK_COLL_REDUCE && call->collective <= NPULINK_COLL_GATHERV)
		call->root = rnd_below(r, nranks);
	if (call->collective == NPULINK_COLL_ALLREDUCE)
		call->count = rnd_below(r, 4);
}

void gen_slots(struct rnd *r, struct npulink_slot *slots, uint32_t nslots)
{
	uint32_t i;

	for (i = 0; i < nslots; i++)
		slots[i] = (struct npulink_slot) {
			.min_len = 8 * rnd_below(r, 17),
			.access = rnd_one_in(r, 8) ? rnd_below(r, 4) :
				  NPULINK_SLOT_READ | NPULINK_SLOT_WRITE,
		};
}

static uint32_t gen_peer(struct rnd *r, uint32_t nranks, uint32_t rank)
{
	uint32_t peer = rnd_below(r, nranks - 1);

	return peer + (peer >= rank);
}

void gen_step(struct rnd *r, const struct npulink_call *call, uint32_t nranks, uint32_t rank,
	      const struct npulink_slot *slots, uint32_t nslots, uint32_t i,
	      const struct npulink_step *prev, struct npulink_step *s)
{
	static const uint8_t ops[] = {
		NPULINK_STEP_COPY, NPULINK_STEP_SEND, NPULINK_STEP_RECV,
		NPULINK_STEP_RECV | NPULINK_STEP_SEND, NPULINK_STEP_COPY | NPULINK_STEP_SEND,
		NPULINK_STEP_REDUCE, NPULINK_STEP_RECV | NPULINK_STEP_REDUCE,
		NPULINK_STEP_RECV | NPULINK_STEP_REDUCE | NPULINK_STEP_SEND,
		NPULINK_STEP_REDUCE | NPULINK_STEP_SEND, 0,
	};
	uint32_t size = npulink_dtype_size(call->dtype), k;
	uint32_t src, src2, dst;
	uint64_t len;

	memset(s, 0, sizeof(*s));
	s->recv_peer = s->send_peer = NPULINK_NO_PEER;
	s->op = ops[rnd_below(r, sizeof(ops))];
	if (!nslots || (nranks < 2 && s->op & (NPULINK_STEP_RECV | NPULINK_STEP_SEND)))
		s->op = 0;
	if (s->op & NPULINK_STEP_REDUCE && !call_reduces(call))
		s->op = NPULINK_STEP_COPY;
	for (k = 0; k < NPULINK_STEP_DEPS && i; k++)
		if (rnd_one_in(r, 2))
			s->dep[k] = 1 + rnd_below(r, i < 4 || rnd_one_in(r, 4) ? i : 4);
	if (rnd_one_in(r, 24))
		s->flags |= NPULINK_STEP_F_DRAIN;
	if (!s->op)
		return;

	if (s->op & NPULINK_STEP_RECV)
		s->recv_peer = gen_peer(r, nranks, rank);
	if (s->op & NPULINK_STEP_SEND)
		s->send_peer = gen_peer(r, nranks, rank);
	if (s->op & (NPULINK_STEP_RECV | NPULINK_STEP_SEND))
		s->channel = rnd_one_in(r, 3) ? rnd_below(r, 3) : 0;
	src = rnd_below(r, nslots);
	src2 = rnd_below(r, nslots);
	dst = rnd_below(r, nslots);
	len = slots[src].min_len;
	if (len > slots[dst].min_len)
		len = slots[dst].min_len;
	if (len > slots[src2].min_len)
		len = slots[src2].min_len;
	if (!len)
		return;
	s->len = size * (1 + rnd_below(r, len / size / (1 + rnd_below(r, 4))));
	if (!len || s->len > len)
		s->len = size <= len ? size : 0;
	if (s->op & NPULINK_STEP_REDUCE) {
		s->dtype = call->dtype;
		s->redop = call->redop == NPULINK_CALL_AVG ? NPULINK_SUM : call->redop;
	}
	if (!s->len)
		return;
	if ((s->op & (NPULINK_STEP_REDUCE | NPULINK_STEP_COPY)) || s->op == NPULINK_STEP_SEND) {
		s->src_slot = src;
		s->src_off = size * rnd_below(r, (slots[src].min_len - s->len) / size + 1);
	}
	if ((s->op & NPULINK_STEP_REDUCE) && !(s->op & NPULINK_STEP_RECV)) {
		s->src2_slot = src2;
		s->src2_off = size * rnd_below(r, (slots[src2].min_len - s->len) / size + 1);
	}
	if (s->op != NPULINK_STEP_SEND) {
		s->dst_slot = dst;
		s->dst_off = size * rnd_below(r, (slots[dst].min_len - s->len) / size + 1);
		if (rnd_one_in(r, 3) && s->op & NPULINK_STEP_REDUCE) {
			s->dst_slot = s->src_slot;
			s->dst_off = s->src_off;
		}
	}
	if ((s->op & NPULINK_STEP_RECV) && (s->op & NPULINK_STEP_SEND) && rnd_one_in(r, 2)) {
		s->flags |= NPULINK_STEP_F_TRANSIENT;
		s->src2_off = size * rnd_below(r, s->len / size + 1);
	}
	if (call->redop == NPULINK_CALL_AVG && s->op & NPULINK_STEP_REDUCE && rnd_one_in(r, 3))
		s->flags |= NPULINK_STEP_F_DIV;
	if (call->redop == NPULINK_CALL_AVG && call->dtype >= NPULINK_FLOAT16 && rnd_one_in(r, 2)) {
		if (s->op & (NPULINK_STEP_REDUCE | NPULINK_STEP_COPY)) {
			s->flags |= NPULINK_STEP_F_SCALE;
			s->dtype = call->dtype;
		}
		if (s->op & NPULINK_STEP_REDUCE)
			s->flags |= NPULINK_STEP_F_SCALE2;
		if (s->flags & NPULINK_STEP_F_DIV)
			s->flags |= NPULINK_STEP_F_REST;
	}
	if (prev && prev->op & NPULINK_STEP_REDUCE && s->op & NPULINK_STEP_REDUCE &&
	    rnd_one_in(r, 2)) {
		s->flags = NPULINK_STEP_F_CHAIN;
		s->src_slot = s->dst_slot = prev->dst_slot;
		s->src_off = s->dst_off = prev->dst_off;
		s->len = prev->len;
		if (s->op & NPULINK_STEP_RECV)
			s->src2_off = 0;
		memset(s->dep, 0, sizeof(s->dep));
	}
}

void gen_bend_bytes(struct rnd *r, void *p, size_t n)
{
	uint8_t *b = p;

	if (n)
		b[rnd_below(r, n)] ^= 1U << rnd_below(r, 8);
}

void gen_bend_call(struct rnd *r, struct npulink_call *call)
{
	switch (rnd_below(r, 6)) {
	case 0:
		call->collective = rnd_below(r, NPULINK_COLLS + 1);
		break;
	case 1:
		call->dtype = rnd_below(r, NPULINK_DTYPES + 1);
		break;
	case 2:
		call->redop = rnd_below(r, NPULINK_CALL_AVG + 2);
		break;
	case 3:
		call->root = rnd_odd(r);
		break;
	case 4:
		call->count = rnd_odd(r);
		break;
	default:
		call->set_id = rnd_odd(r);
	}
}

void gen_bend_step(struct rnd *r, struct npulink_step *s)
{
	static const uint8_t size_deltas[] = { 1, 2, 4, 8, 16 };
	uint64_t delta = size_deltas[rnd_below(r, sizeof(size_deltas))];

	if (rnd_one_in(r, 2))
		delta = -delta;
	switch (rnd_below(r, 16)) {
	case 0:
		s->op = rnd_below(r, 17);
		break;
	case 1:
		s->flags ^= 1U << rnd_below(r, 5);
		break;
	case 2:
		s->dtype = rnd_below(r, NPULINK_DTYPES + 1);
		break;
	case 3:
		s->redop = rnd_below(r, NPULINK_REDOPS + 1);
		break;
	case 4:
		s->channel = rnd_one_in(r, 2) ? rnd_below(r, 66) : rnd_odd(r);
		break;
	case 5:
		*(rnd_one_in(r, 2) ? &s->recv_peer : &s->send_peer) =
			rnd_one_in(r, 2) ? rnd_below(r, 6) : rnd_odd(r);
		break;
	case 6:
		s->src_slot = rnd_below(r, NPULINK_MAX_SLOTS + 1);
		break;
	case 7:
		s->dst_slot = rnd_below(r, NPULINK_MAX_SLOTS + 1);
		break;
	case 8:
		s->src2_slot = rnd_below(r, NPULINK_MAX_SLOTS + 1);
		break;
	case 9:
		s->len = rnd_one_in(r, 2) ? s->len + delta : rnd_odd(r);
		break;
	case 10:
		s->src_off = rnd_one_in(r, 2) ? s->src_off + delta : rnd_odd(r);
		break;
	case 11:
		s->dst_off = rnd_one_in(r, 2) ? s->dst_off + delta : rnd_odd(r);
		break;
	case 12:
		s->src2_off = rnd_one_in(r, 2) ? s->src2_off + delta : rnd_odd(r);
		break;
	case 13:
	case 14:
		s->dep[rnd_below(r, NPULINK_STEP_DEPS)] =
			rnd_one_in(r, 8) ? rnd_odd(r) : rnd_below(r, 8);
		break;
	default:
		gen_bend_bytes(r, s, sizeof(*s));
	}
}
