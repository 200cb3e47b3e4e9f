/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * mock_ranks.h - the ranks of the mock device: who they are, their plans, and how the steps of an
 * operation run when the last of them has posted it.
 */
#ifndef MOCK_RANKS_H
#define MOCK_RANKS_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <npulink/verify.h>
#include "mock_files.h"

/* ---- steps */

static inline void mock_reduce(void *dst, const void *a, const void *b, size_t len, int dtype,
			       int op)
{
#define MOCK_LOOP(type)								\
	for (size_t i = 0; i < len / sizeof(type); i++) {			\
		type x = ((const type *)a)[i], y = ((const type *)b)[i];	\
										\
		((type *)dst)[i] = op == NPULINK_SUM ? x + y :			\
				   op == NPULINK_PROD ? x * y :			\
				   op == NPULINK_MIN ? (x < y ? x : y) :	\
				   (x > y ? x : y);				\
	}
	switch (dtype) {
	case NPULINK_UINT8:
		MOCK_LOOP(uint8_t);
		break;
	case NPULINK_UINT32:
		MOCK_LOOP(uint32_t);
		break;
	case NPULINK_INT32:
		MOCK_LOOP(int32_t);
		break;
	case NPULINK_INT64:
		MOCK_LOOP(int64_t);
		break;
	case NPULINK_FLOAT32:
		MOCK_LOOP(float);
		break;
	case NPULINK_FLOAT64:
		MOCK_LOOP(double);
		break;
	default:
		abort();
	}
}

static inline void mock_divide(void *dst, size_t len, int dtype, double n)
{
#define MOCK_DIV(type)								\
	for (size_t i = 0; i < len / sizeof(type); i++)				\
		((type *)dst)[i] /= (type)n
	switch (dtype) {
	case NPULINK_UINT8:
		MOCK_DIV(uint8_t);
		break;
	case NPULINK_UINT32:
		MOCK_DIV(uint32_t);
		break;
	case NPULINK_INT32:
		MOCK_DIV(int32_t);
		break;
	case NPULINK_INT64:
		MOCK_DIV(int64_t);
		break;
	case NPULINK_FLOAT32:
		MOCK_DIV(float);
		break;
	case NPULINK_FLOAT64:
		MOCK_DIV(double);
		break;
	default:
		abort();
	}
}

/* The power of two that is not below so many ranks. */
static inline double mock_power(uint32_t nranks)
{
	uint32_t n = 1;

	while (n < nranks)
		n *= 2;
	return n;
}

/* An input as it is added, or copied: a copy in @mem, to be freed, if it is scaled. */
static inline const void *mock_input(const void *from, size_t len, int dtype, double by, void **mem)
{
	if (!by || !len)
		return from;
	*mem = malloc(len);
	memcpy(*mem, from, len);
	mock_divide(*mem, len, dtype, by);
	return *mem;
}

static inline bool mock_ready(const struct mock_op *op, uint32_t i)
{
	const struct npulink_step *s = &op->plan->steps[i];

	if (s->flags & NPULINK_STEP_F_CHAIN && op->state[i - 1] != 2)
		return false;
	for (int d = 0; d < NPULINK_STEP_DEPS; d++)
		if (s->dep[d] && op->state[i - s->dep[d]] != 2)
			return false;
	for (uint32_t k = 0; s->flags & NPULINK_STEP_F_DRAIN && k < i; k++)
		if (op->state[k] != 2)
			return false;
	return true;
}

/* The step of the sender that meets step i of op. */
static inline uint32_t mock_match(const struct mock_op *op, uint32_t i, const struct mock_op *from)
{
	const struct npulink_step *s = &op->plan->steps[i];
	uint32_t k = 0;

	for (uint32_t j = 0; j < i; j++) {
		const struct npulink_step *e = &op->plan->steps[j];

		k += e->op & NPULINK_STEP_RECV && e->recv_peer == s->recv_peer &&
		     e->channel == s->channel;
	}
	for (uint32_t j = 0; j < from->plan->nsteps; j++) {
		const struct npulink_step *e = &from->plan->steps[j];

		if (e->op & NPULINK_STEP_SEND && e->send_peer == op->plan->rank->rank &&
		    e->channel == s->channel && !k--) {
			if (e->len != s->len)
				abort();
			return j;
		}
	}
	abort();
}

static inline bool mock_step(struct mock_op **set, struct mock_op *op, uint32_t i)
{
	const struct npulink_step *s = &op->plan->steps[i];
	const unsigned char *in = NULL, *src = op->slot[s->src_slot] + s->src_off;
	struct mock_op *from = NULL;
	double power = mock_power(op->plan->rank->comm->nranks);
	double scale = s->flags & NPULINK_STEP_F_SCALE ? power : 0;
	double scale2 = s->flags & NPULINK_STEP_F_SCALE2 ? power : 0;
	void *first = NULL, *second = NULL;
	unsigned char *result;
	uint32_t match = 0;

	if (op->state[i] || !mock_ready(op, i))
		return false;
	if (s->op & NPULINK_STEP_RECV) {
		from = set[s->recv_peer];
		match = mock_match(op, i, from);
		if (from->state[match] != 1)
			return false;
		in = from->out[match];
	}
	result = malloc(s->len + 1);
	if (!s->len)
		;	/* a message without payload has no buffers */
	else if (s->op == NPULINK_STEP_SEND || s->op & NPULINK_STEP_COPY)
		memcpy(result, mock_input(src, s->len, s->dtype, scale, &first), s->len);
	else if (s->op & NPULINK_STEP_REDUCE)
		mock_reduce(result, mock_input(src, s->len, s->dtype, scale, &first),
			    mock_input(in ? in : op->slot[s->src2_slot] + s->src2_off, s->len,
				       s->dtype, scale2, &second), s->len, s->dtype, s->redop);
	else if (in)
		memcpy(result, in, s->len);
	if (s->flags & NPULINK_STEP_F_DIV)
		mock_divide(result, s->len, s->dtype, op->plan->rank->comm->nranks /
			    (s->flags & NPULINK_STEP_F_REST ? power : 1));
	free(first);
	free(second);
	if (s->len && s->op && s->op != NPULINK_STEP_SEND && !(s->flags & NPULINK_STEP_F_TRANSIENT))
		memcpy(op->slot[s->dst_slot] + s->dst_off, result, s->len);
	if (from) {
		free(from->out[match]);
		from->out[match] = NULL;
		from->state[match] = 2;
	}
	if (s->op & NPULINK_STEP_SEND) {
		op->out[i] = result;
		op->state[i] = 1;
	} else {
		free(result);
		op->state[i] = 2;
	}
	return true;
}

static inline void mock_end(struct mock_op *op, int status)
{
	struct mock_file *file = op->file;

	op->status = status;
	op->done = true;
	op->plan->inflight--;
	/* A held one has its place until it is fetched. */
	file->inflight -= !op->held;
	for (uint32_t i = 0; i < op->plan->nslots; i++)
		if (op->buf[i])
			op->buf[i]->users--;
	if (!op->held) {
		struct npulink_ring *ring = file->ring;

		ring->records[ring->head & (ring->entries - 1)] = (struct npulink_result) {
			.seq = op->seq, .cookie = op->cookie, .status = status,
		};
		__atomic_store_n(&ring->head, ring->head + 1, __ATOMIC_RELEASE);
		op->live = false;
	}
	pthread_cond_broadcast(&mock.cond);
}

/* All ranks of the set have posted: run them against each other. */
static inline void mock_run_set(struct mock_op **set, uint32_t nranks)
{
	bool progress = true, left = false;

	for (uint32_t r = 0; r < nranks; r++) {
		if (!set[r])
			continue;
		set[r]->state = calloc(set[r]->plan->nsteps + 1, 1);
		set[r]->out = calloc(set[r]->plan->nsteps + 1, sizeof(void *));
	}
	while (progress) {
		progress = false;
		left = false;
		for (uint32_t r = 0; r < nranks; r++) {
			for (uint32_t i = 0; set[r] && i < set[r]->plan->nsteps; i++) {
				progress |= mock_step(set, set[r], i);
				left |= set[r]->state[i] != 2;
			}
		}
	}
	if (left) {
		fprintf(stderr, "# mock: the plans wait for each other\n");
		abort();
	}
	for (uint32_t r = 0; r < nranks; r++) {
		if (!set[r])
			continue;
		free(set[r]->state);
		free(set[r]->out);
		mock_end(set[r], 0);
	}
}

static inline void mock_comm_fail(struct mock_comm *comm, uint32_t cause, int status,
				  uint32_t rank, uint32_t peer, uint64_t number)
{
	if (comm->cause)
		return;
	comm->cause = cause;
	comm->status = status;
	comm->rank = rank;
	comm->peer = peer;
	comm->number = number;
	for (int i = 0; i < MOCK_OPS; i++) {
		struct mock_op *op = &mock.ops[i];

		if (op->live && !op->done && op->plan->rank->comm == comm)
			mock_end(op, status);
	}
}

static inline struct mock_op *mock_posted(struct mock_rank *rank, uint64_t number, bool p2p,
					  bool send, uint32_t peer)
{
	for (int i = 0; rank && i < MOCK_OPS; i++) {
		struct mock_op *op = &mock.ops[i];

		if (op->live && !op->done && op->plan->rank == rank && op->number == number &&
		    op->plan->p2p == p2p &&
		    (!p2p || (op->plan->p2p_send == send && op->plan->peer == peer)))
			return op;
	}
	return NULL;
}

/* Runs the operation if this was the last rank that it needed. */
static inline void mock_try(struct mock_op *op)
{
	struct mock_comm *comm = op->plan->rank->comm;
	uint32_t me = op->plan->rank->rank;
	struct mock_op *set[64] = { };

	if (op->plan->p2p) {
		set[me] = op;
		set[op->plan->peer] = mock_posted(comm->ranks[op->plan->peer], op->number, true,
						  !op->plan->p2p_send, me);
		if (!set[op->plan->peer])
			return;
	} else {
		for (uint32_t r = 0; r < comm->nranks; r++)
			set[r] = mock_posted(comm->ranks[r], op->number, false, false, 0);
	}
	for (uint32_t r = 0; r < comm->nranks; r++) {
		if (!set[r] || r == me ||
		    !memcmp(&set[r]->plan->call, &op->plan->call, sizeof(op->plan->call)))
			continue;
		comm->calls[0] = op->plan->call;
		comm->calls[1] = set[r]->plan->call;
		mock_comm_fail(comm, NPULINK_CAUSE_MISMATCH, -EPROTO, me, r, op->number);
		return;
	}
	for (uint32_t r = 0; r < comm->nranks; r++)
		if (!set[r] && !op->plan->p2p)
			return;
	mock_run_set(set, comm->nranks);
}

/* ---- communicators */

static inline int mock_comm_create(struct mock_file *file, struct npulink_comm_create *arg)
{
	struct mock_comm *comm;
	struct mock_rank *rank;

	for (comm = mock.comms; comm; comm = comm->next)
		if (!memcmp(comm->secret, arg->secret, 16))
			break;
	if (!comm) {
		comm = calloc(1, sizeof(*comm));
		memcpy(comm->secret, arg->secret, 16);
		comm->nranks = arg->nranks;
		comm->next = mock.comms;
		mock.comms = comm;
	}
	if (comm->nranks != arg->nranks)
		return -EINVAL;
	if (comm->ranks[arg->rank])
		return -EEXIST;
	if (comm->cause)
		return comm->status;
	rank = calloc(1, sizeof(*rank));
	rank->comm = comm;
	rank->file = file;
	rank->rank = arg->rank;
	comm->ranks[arg->rank] = rank;
	comm->peer_timeout_ms = arg->peer_timeout_ms;
	comm->flags = arg->flags;
	comm->joined++;
	arg->out_id = mock_id(file, MOCK_RANK, rank);
	return 0;
}

static inline int mock_comm_status(struct mock_file *file, struct npulink_comm_status *arg)
{
	struct mock_rank *rank = mock_object(file, arg->comm_id, MOCK_RANK);

	if (!rank)
		return -ENOENT;
	arg->out_joined = rank->comm->joined;
	arg->out_cause = rank->comm->cause;
	arg->out_status = rank->comm->status;
	arg->out_rank = rank->comm->rank;
	arg->out_peer = rank->comm->peer;
	arg->out_code = rank->comm->code;
	arg->out_step = rank->comm->step - 1;
	arg->out_number = rank->comm->number;
	arg->out_next = rank->next;
	memcpy(arg->out_calls, rank->comm->calls, sizeof(arg->out_calls));
	memcpy(arg->out_peer_ip, rank->comm->ip, sizeof(arg->out_peer_ip));
	memcpy(arg->out_port, rank->comm->port, sizeof(arg->out_port));
	return 0;
}

/* Who had not left when the first of them asked. */
static inline struct mock_comm *mock_survivors(struct mock_comm *comm)
{
	struct mock_comm *new = comm->survivors;

	if (new)
		return new;
	new = calloc(1, sizeof(*new));
	memcpy(new->secret, &new, sizeof(new));
	for (uint32_t i = 0; i < comm->nranks; i++)
		if (comm->ranks[i])
			new->map[new->nranks++] = i;
	new->next = mock.comms;
	mock.comms = new;
	comm->survivors = new;
	return new;
}

static inline int mock_comm_shrink(struct mock_file *file, struct npulink_comm_shrink *arg)
{
	struct mock_rank *old = mock_object(file, arg->comm_id, MOCK_RANK), *rank;
	struct mock_comm *new;

	if (!old)
		return -ENOENT;
	if (!old->comm->cause)
		return -EINVAL;
	if (old->shrunk)
		return -EEXIST;
	old->shrunk = true;
	new = mock_survivors(old->comm);
	rank = calloc(1, sizeof(*rank));
	rank->comm = new;
	rank->file = file;
	while (new->map[rank->rank] != old->rank)
		rank->rank++;
	new->ranks[rank->rank] = rank;
	new->joined++;
	memcpy((void *)arg->map, new->map, new->nranks * sizeof(*new->map));
	arg->out_rank = rank->rank;
	arg->out_nranks = new->nranks;
	arg->out_id = mock_id(file, MOCK_RANK, rank);
	return 0;
}

static inline int mock_abort(struct mock_file *file, struct npulink_comm_abort *arg)
{
	struct mock_rank *rank = mock_object(file, arg->comm_id, MOCK_RANK);

	if (!rank)
		return -ENOENT;
	rank->comm->code = arg->code;
	mock_comm_fail(rank->comm, NPULINK_CAUSE_ABORT, -ECANCELED, rank->rank, NPULINK_NO_PEER,
		       ~0ULL);
	return 0;
}

/* ---- plans */

static inline void *mock_copy(uint64_t from, size_t len)
{
	void *p = malloc(len + 1);

	if (len)
		memcpy(p, (void *)from, len);
	return p;
}

static inline int mock_plan_create(struct mock_file *file, struct npulink_plan_create *arg)
{
	struct mock_rank *rank = mock_object(file, arg->comm_id, MOCK_RANK);
	struct npulink_plan_desc desc;
	struct npulink_verdict verdict;
	struct mock_plan *plan;

	if (!rank)
		return -ENOENT;
	desc = (struct npulink_plan_desc) {
		.call = &arg->call, .nranks = rank->comm->nranks, .rank = rank->rank,
		.nslots = arg->nslots, .slots = (void *)arg->slots,
		.nsteps = arg->nsteps, .steps = (void *)arg->steps,
	};
	if (npulink_verify(&desc, &verdict) || npulink_verify_races(&desc, &verdict)) {
		arg->out_bad_step = verdict.step;
		arg->out_reason = verdict.reason;
		return -EINVAL;
	}
	plan = calloc(1, sizeof(*plan));
	plan->rank = rank;
	plan->rank_id = arg->comm_id;
	plan->call = arg->call;
	plan->nslots = arg->nslots;
	plan->nsteps = arg->nsteps;
	plan->slots = mock_copy(arg->slots, arg->nslots * sizeof(*plan->slots));
	plan->steps = mock_copy(arg->steps, arg->nsteps * sizeof(*plan->steps));
	plan->p2p = arg->call.collective == NPULINK_COLL_P2P;
	plan->p2p_send = plan->p2p && plan->nsteps && plan->steps[0].op & NPULINK_STEP_SEND;
	if (plan->p2p && plan->nsteps)
		plan->peer = plan->p2p_send ? plan->steps[0].send_peer : plan->steps[0].recv_peer;
	rank->plans++;
	arg->out_id = mock_id(file, MOCK_PLAN, plan);
	return 0;
}

#endif /* MOCK_RANKS_H */
