/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * coll_cases.h - one call of any collective with known data, checked on this rank
 * against a plain reference: every byte of both buffers and around them.
 *
 * Used natively against the mock and in the virtual machine against the module.
 */
#ifndef SELFTESTS_COLL_CASES_H
#define SELFTESTS_COLL_CASES_H

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/npulink.h>
#include <npulink/collectives.h>
#include "coll.h"
#include "lib/run/comm.h"
#include "lib/run/request.h"

#define CASE_GUARD	64
#define CASE_FILL	0xa5

enum trial_form { CASE_BLOCKING, CASE_REQUEST, CASE_PERSISTENT, CASE_FORMS };

struct coll_case {
	uint32_t collective;
	size_t count;
	enum coll_dtype dtype;
	enum coll_op op;
	unsigned int root;
	bool in_place;
	enum trial_form form;
};

static const char * const trial_names[] = {
	"allreduce", "reduce", "broadcast", "scatter", "scatterv", "gather", "gatherv",
	"allgather", "allgatherv", "reduce_scatter", "reduce_scatterv", "alltoall", "alltoallv",
	"barrier",
};

static inline bool trial_reduces(uint32_t collective)
{
	return npulink_coll_reduces(collective);
}

static inline bool trial_rooted(uint32_t collective)
{
	return npulink_coll_has_root(collective);
}

/*
 * ---- values: small whole numbers, so that every type can hold every result; for means of floats
 * times a power of two so large that sums of all ranks are infinite
 */

static inline bool trial_signed(enum coll_dtype t)
{
	return t != COLL_UINT8 && t != COLL_UINT16 && t != COLL_UINT32 && t != COLL_UINT64;
}

static inline bool trial_is_huge(const struct coll_case *c)
{
	return trial_reduces(c->collective) && c->op == COLL_AVG && c->dtype >= COLL_FLOAT16;
}

static inline double trial_unit(const struct coll_case *c)
{
	static const int powers[] = {
		[COLL_FLOAT16] = 13, [COLL_BFLOAT16] = 125, [COLL_FLOAT32] = 125,
		[COLL_FLOAT64] = 1021,
	};

	return trial_is_huge(c) ? ldexp(1, powers[c->dtype]) : 1;
}

static inline int trial_value(const struct coll_case *c, unsigned int rank, size_t i)
{
	if (trial_reduces(c->collective) && c->op == COLL_PROD)
		return (rank + i) % 4 ? 1 : 2;
	return (int)((rank * 7 + i * 3) % 5) + 1 -
	       (trial_signed(c->dtype) && !trial_is_huge(c) ? 3 : 0);
}

/* Round to nearest even at @bits of mantissa, as the engine does for 16-bit floats. */
static inline void trial_store(void *at, enum coll_dtype t, double v)
{
	float f = v;
	uint32_t u;

	switch (t) {
	case COLL_INT8:
	case COLL_UINT8:
		*(uint8_t *)at = (int64_t)v;
		break;
	case COLL_INT16:
	case COLL_UINT16:
		*(uint16_t *)at = (int64_t)v;
		break;
	case COLL_INT32:
	case COLL_UINT32:
		*(uint32_t *)at = (int64_t)v;
		break;
	case COLL_INT64:
	case COLL_UINT64:
		*(uint64_t *)at = (int64_t)v;
		break;
	case COLL_FLOAT16:
		*(_Float16 *)at = f;
		break;
	case COLL_BFLOAT16:
		memcpy(&u, &f, sizeof(u));
		u += 0x7fff + (u >> 16 & 1);
		*(uint16_t *)at = u >> 16;
		break;
	case COLL_FLOAT32:
		*(float *)at = f;
		break;
	case COLL_FLOAT64:
		*(double *)at = v;
		break;
	}
}

/* What the reduction of element i over all ranks gives, in trial_unit(). */
static inline double trial_reduced(const struct coll_case *c, unsigned int nranks, size_t i)
{
	double v = trial_value(c, 0, i);

	for (unsigned int r = 1; r < nranks; r++) {
		double x = trial_value(c, r, i);

		switch (c->op) {
		case COLL_SUM:
		case COLL_AVG:
			v += x;
			break;
		case COLL_PROD:
			v *= x;
			break;
		case COLL_MIN:
			v = fmin(v, x);
			break;
		case COLL_MAX:
			v = fmax(v, x);
			break;
		}
	}
	if (c->op != COLL_AVG)
		return v;
	return c->dtype < COLL_FLOAT16 ? trunc(v / nranks) : v / nranks;
}

/* ---- sizes of the v forms: some are 0, and there are gaps */

static inline size_t trial_shard(const struct coll_case *c, unsigned int r)
{
	return r % 3 == 1 ? 0 : c->count + r % 2;
}

static inline size_t trial_block(const struct coll_case *c, unsigned int from, unsigned int to)
{
	return (from + 2 * to) % 4 == 1 ? 0 : c->count + (from + to) % 3;
}

/* ---- buffers */

struct trial_buf {
	unsigned char *mem, *want, *p;
	size_t len;
	bool device;
};

/* @device: in the memory of @comm's device. */
static inline void trial_buf_new(struct coll_comm *comm, struct trial_buf *b, size_t len,
				 bool device)
{
	b->len = len + 2 * CASE_GUARD;
	b->device = device;
	b->mem = NULL;
	if (!device)
		b->mem = malloc(b->len);
	else if (coll_mem_alloc(comm, COLL_MEMORY_DEVICE, b->len, (void **)&b->mem))
		fprintf(stderr, "# %s\n", coll_comm_last_error(comm));
	b->want = malloc(b->len);
	b->p = b->mem + CASE_GUARD;
	memset(b->mem, CASE_FILL, b->len);
}

static inline void trial_buf_free(struct coll_comm *comm, struct trial_buf *b)
{
	if (b->device)
		coll_mem_free(comm, b->mem);
	else
		free(b->mem);
	free(b->want);
}

static inline size_t trial_buf_check(const struct trial_buf *b)
{
	if (!memcmp(b->mem, b->want, b->len))
		return 0;
	for (size_t i = 0; i < b->len; i++)
		if (b->mem[i] != b->want[i])
			return i + 1;
	return 0;
}

/* One call on this rank, as it is being put together. */
struct trial_run {
	const struct coll_case *c;
	unsigned int rank, nranks;
	size_t esize;
	struct trial_buf send, recv;
	size_t *scounts, *sdispls, *rcounts, *rdispls;
	struct coll_request *req;
	/* Elements as they are stored: everything repeats itself after 20 of them. */
	uint64_t reduced[20], value[8];
};

static inline void trial_encode(struct trial_run *r)
{
	for (int i = 0; i < 8; i++)
		trial_store(&r->value[i], r->c->dtype, (i - 2) * trial_unit(r->c));
	for (size_t i = 0; trial_reduces(r->c->collective) && i < 20; i++)
		trial_store(&r->reduced[i], r->c->dtype,
			    trial_reduced(r->c, r->nranks, i) * trial_unit(r->c));
}

/* Element @at of a buffer: what @rank has as its element @i. */
static inline void trial_put(struct trial_run *r, struct trial_buf *b, bool want, size_t at,
			     unsigned int rank, size_t i)
{
	unsigned char *base = want ? b->want + CASE_GUARD : b->p;

	memcpy(base + at * r->esize, &r->value[trial_value(r->c, rank, i) + 2], r->esize);
}

/* The same: what the reduction of element @i gives. */
static inline void trial_put_reduced(struct trial_run *r, size_t at, size_t i)
{
	memcpy(r->recv.want + CASE_GUARD + at * r->esize, &r->reduced[i % 20], r->esize);
}

static inline bool trial_has_v(uint32_t collective)
{
	return npulink_coll_is_v(collective);
}

/* Shards or blocks, their places, and the size of the large buffers in elements. */
static inline void trial_layout(struct trial_run *r, size_t *large_send, size_t *large_recv)
{
	const struct coll_case *c = r->c;
	bool v = trial_has_v(c->collective);
	size_t s = 0, t = 0;

	for (unsigned int i = 0; i < r->nranks; i++) {
		bool a2av = c->collective == NPULINK_COLL_ALLTOALLV;

		r->scounts[i] = v ? trial_shard(c, i) : c->count;
		if (a2av)
			r->scounts[i] = trial_block(c, r->rank, i);
		r->rcounts[i] = a2av ? trial_block(c, i, r->rank) : r->scounts[i];
		/* In place as much goes out as comes in. */
		if (a2av && c->in_place)
			r->scounts[i] = r->rcounts[i] = trial_block(c, r->rank < i ? r->rank : i,
								   r->rank < i ? i : r->rank);
		r->sdispls[i] = s;
		r->rdispls[i] = t;
		s += r->scounts[i] + (v ? 1 : 0);
		t += r->rcounts[i] + (v ? 1 : 0);
	}
	*large_send = s;
	*large_recv = t;
}

/* Where the data of the one buffer of a call in place is. */
static inline struct trial_buf *trial_source(struct trial_run *r)
{
	return r->c->in_place ? &r->recv : &r->send;
}

/* NPULINK_MEMORY: of "s" and "r", which buffer is to be in the memory of the device. */
static inline void trial_setup(struct coll_comm *comm, struct trial_run *r)
{
	const char *memory = getenv("NPULINK_MEMORY");
	const struct coll_case *c = r->c;
	bool root = r->rank == c->root, in = c->in_place;
	size_t large_send, large_recv, own, ns = 0, nr = 0, i;
	unsigned int q;

	trial_layout(r, &large_send, &large_recv);
	own = r->scounts[r->rank];
	switch (c->collective) {
	case NPULINK_COLL_ALLREDUCE:
		ns = in ? 0 : c->count;
		nr = c->count;
		break;
	case NPULINK_COLL_REDUCE:
		ns = in ? 0 : c->count;
		nr = root || in ? c->count : 0;
		break;
	case NPULINK_COLL_BROADCAST:
		ns = root && !in ? c->count : 0;
		nr = c->count;
		break;
	case NPULINK_COLL_SCATTER:
	case NPULINK_COLL_SCATTERV:
		ns = root ? large_send : 0;
		nr = root && in ? 0 : own;
		break;
	case NPULINK_COLL_GATHER:
	case NPULINK_COLL_GATHERV:
		ns = root && in ? 0 : own;
		nr = root ? large_recv : 0;
		break;
	case NPULINK_COLL_ALLGATHER:
	case NPULINK_COLL_ALLGATHERV:
		ns = in ? 0 : own;
		nr = large_recv;
		break;
	case NPULINK_COLL_REDUCE_SCATTER:
	case NPULINK_COLL_REDUCE_SCATTERV:
		ns = in ? 0 : large_send;
		nr = in ? large_send : own;
		break;
	case NPULINK_COLL_ALLTOALL:
	case NPULINK_COLL_ALLTOALLV:
		ns = in ? 0 : large_send;
		nr = large_recv;
		break;
	}
	trial_buf_new(comm, &r->send, ns * r->esize, memory && strchr(memory, 's'));
	trial_buf_new(comm, &r->recv, nr * r->esize, memory && strchr(memory, 'r'));

	/* Input. */
	switch (c->collective) {
	case NPULINK_COLL_ALLREDUCE:
	case NPULINK_COLL_REDUCE:
		for (i = 0; i < c->count; i++)
			trial_put(r, trial_source(r), false, i, r->rank, i);
		break;
	case NPULINK_COLL_BROADCAST:
		for (i = 0; root && i < c->count; i++)
			trial_put(r, trial_source(r), false, i, r->rank, i);
		break;
	case NPULINK_COLL_SCATTER:
	case NPULINK_COLL_SCATTERV:
		for (q = 0; root && q < r->nranks; q++)
			for (i = 0; i < r->scounts[q]; i++)
				trial_put(r, &r->send, false, r->sdispls[q] + i,
					  q, i);
		break;
	case NPULINK_COLL_GATHER:
	case NPULINK_COLL_GATHERV:
		in = in && root;
		/* fallthrough */
	case NPULINK_COLL_ALLGATHER:
	case NPULINK_COLL_ALLGATHERV:
		for (i = 0; i < own; i++)
			trial_put(r, in ? &r->recv : &r->send, false,
				  (in ? r->rdispls[r->rank] : 0) + i, r->rank, i);
		break;
	case NPULINK_COLL_REDUCE_SCATTER:
	case NPULINK_COLL_REDUCE_SCATTERV:
		for (q = 0; q < r->nranks; q++)
			for (i = 0; i < r->scounts[q]; i++)
				trial_put(r, trial_source(r), false, r->sdispls[q] + i,
					  r->rank, q + i);
		break;
	case NPULINK_COLL_ALLTOALL:
	case NPULINK_COLL_ALLTOALLV:
		for (q = 0; q < r->nranks; q++)
			for (i = 0; i < r->scounts[q]; i++)
				trial_put(r, trial_source(r), false, r->sdispls[q] + i,
					  r->rank, 11 * q + i);
		break;
	}
}

static inline void trial_expect(struct trial_run *r)
{
	const struct coll_case *c = r->c;
	bool root = r->rank == c->root, in = c->in_place;
	size_t own = r->scounts[r->rank], i;
	unsigned int q;

	memcpy(r->send.want, r->send.mem, r->send.len);
	memcpy(r->recv.want, r->recv.mem, r->recv.len);
	switch (c->collective) {
	case NPULINK_COLL_ALLREDUCE:
	case NPULINK_COLL_REDUCE:
		for (i = 0; (root || c->collective == NPULINK_COLL_ALLREDUCE) && i < c->count; i++)
			trial_put_reduced(r, i, i);
		break;
	case NPULINK_COLL_BROADCAST:
		for (i = 0; i < c->count; i++)
			trial_put(r, &r->recv, true, i, c->root, i);
		break;
	case NPULINK_COLL_SCATTER:
	case NPULINK_COLL_SCATTERV:
		for (i = 0; !(root && in) && i < own; i++)
			trial_put(r, &r->recv, true, i, r->rank, i);
		break;
	case NPULINK_COLL_GATHER:
	case NPULINK_COLL_GATHERV:
		if (!root)
			break;
		/* fallthrough */
	case NPULINK_COLL_ALLGATHER:
	case NPULINK_COLL_ALLGATHERV:
		for (q = 0; q < r->nranks; q++)
			for (i = 0; i < r->rcounts[q]; i++)
				trial_put(r, &r->recv, true, r->rdispls[q] + i, q, i);
		break;
	case NPULINK_COLL_REDUCE_SCATTER:
	case NPULINK_COLL_REDUCE_SCATTERV:
		for (i = 0; i < own; i++)
			trial_put_reduced(r, (in ? r->sdispls[r->rank] : 0) + i, r->rank + i);
		break;
	case NPULINK_COLL_ALLTOALL:
	case NPULINK_COLL_ALLTOALLV:
		for (q = 0; q < r->nranks; q++)
			for (i = 0; i < r->rcounts[q]; i++)
				trial_put(r, &r->recv, true, r->rdispls[q] + i,
					  q, 11 * r->rank + i);
		break;
	}
}

/* What is undefined after reduce_scatter in place is taken as it is. */
static inline void trial_forgive(struct trial_run *r)
{
	size_t from = r->sdispls[r->rank] * r->esize + CASE_GUARD;
	size_t to = from + r->scounts[r->rank] * r->esize;

	if (!r->c->in_place || (r->c->collective != NPULINK_COLL_REDUCE_SCATTER &&
				r->c->collective != NPULINK_COLL_REDUCE_SCATTERV))
		return;
	for (size_t i = CASE_GUARD; i < r->recv.len - CASE_GUARD; i++)
		if (i < from || i >= to)
			r->recv.want[i] = r->recv.mem[i];
}

/* The call in one of its forms. */
#define CASE_FORMS_OF(name, iname, ...)							\
	(c->form == CASE_BLOCKING ? coll_##name(comm, __VA_ARGS__) :			\
	 c->form == CASE_REQUEST ? coll_##iname(comm, __VA_ARGS__, &r->req) :		\
	 coll_##name##_init(comm, __VA_ARGS__, &r->req))

/* As far as it goes without the other ranks, unless it is a blocking call. */
static inline int trial_call(struct coll_comm *comm, struct trial_run *r)
{
	const struct coll_case *c = r->c;
	bool root = r->rank == c->root;
	void *send = r->send.p, *recv = r->recv.p;
	int rc;

	if (c->in_place && (!trial_rooted(c->collective) || root)) {
		if (c->collective == NPULINK_COLL_SCATTER || c->collective == NPULINK_COLL_SCATTERV)
			recv = COLL_IN_PLACE;
		else
			send = COLL_IN_PLACE;
	}
	if (c->in_place && c->collective == NPULINK_COLL_REDUCE)
		send = COLL_IN_PLACE;
	switch (c->collective) {
	case NPULINK_COLL_ALLREDUCE:
		rc = CASE_FORMS_OF(allreduce, iallreduce, send, recv, c->count, c->dtype, c->op);
		break;
	case NPULINK_COLL_REDUCE:
		rc = CASE_FORMS_OF(reduce, ireduce, send, recv, c->count, c->dtype, c->op, c->root);
		break;
	case NPULINK_COLL_BROADCAST:
		rc = CASE_FORMS_OF(broadcast, ibroadcast, send, recv, c->count, c->dtype, c->root);
		break;
	case NPULINK_COLL_SCATTER:
		rc = CASE_FORMS_OF(scatter, iscatter, send, recv, c->count, c->dtype, c->root);
		break;
	case NPULINK_COLL_SCATTERV:
		rc = CASE_FORMS_OF(scatterv, iscatterv, send, recv, r->scounts, r->sdispls,
				   c->dtype, c->root);
		break;
	case NPULINK_COLL_GATHER:
		rc = CASE_FORMS_OF(gather, igather, send, recv, c->count, c->dtype, c->root);
		break;
	case NPULINK_COLL_GATHERV:
		rc = CASE_FORMS_OF(gatherv, igatherv, send, recv, r->rcounts, r->rdispls, c->dtype,
				   c->root);
		break;
	case NPULINK_COLL_ALLGATHER:
		rc = CASE_FORMS_OF(allgather, iallgather, send, recv, c->count, c->dtype);
		break;
	case NPULINK_COLL_ALLGATHERV:
		rc = CASE_FORMS_OF(allgatherv, iallgatherv, send, recv, r->rcounts, r->rdispls,
				   c->dtype);
		break;
	case NPULINK_COLL_REDUCE_SCATTER:
		rc = CASE_FORMS_OF(reduce_scatter, ireduce_scatter, send, recv, c->count, c->dtype,
				   c->op);
		break;
	case NPULINK_COLL_REDUCE_SCATTERV:
		rc = CASE_FORMS_OF(reduce_scatterv, ireduce_scatterv, send, recv, r->scounts,
				   r->sdispls, c->dtype, c->op);
		break;
	case NPULINK_COLL_ALLTOALL:
		rc = CASE_FORMS_OF(alltoall, ialltoall, send, recv, c->count, c->dtype);
		break;
	case NPULINK_COLL_ALLTOALLV:
		rc = CASE_FORMS_OF(alltoallv, ialltoallv, send, r->scounts, r->sdispls, recv,
				   r->rcounts, r->rdispls, c->dtype);
		break;
	default:
		rc = c->form == CASE_BLOCKING ? coll_barrier(comm) :
		     c->form == CASE_REQUEST ? coll_ibarrier(comm, &r->req) :
		     coll_barrier_init(comm, &r->req);
	}
	if (!rc && c->form == CASE_PERSISTENT)
		rc = coll_start(r->req);
	return rc;
}

static inline int trial_wait(struct trial_run *r)
{
	int rc, freed;

	if (r->c->form == CASE_BLOCKING)
		return 0;
	rc = coll_wait(&r->req);
	freed = r->c->form == CASE_PERSISTENT ? coll_request_free(&r->req) : 0;
	return rc ? rc : freed ? freed : r->req ? -ENOTRECOVERABLE : 0;
}

/* Make buffers and call. */
static inline int trial_begin(struct coll_comm *comm, const struct coll_case *c,
			      struct trial_run *r)
{
	unsigned int nranks = coll_comm_size(comm);
	size_t *v = calloc(4 * nranks, sizeof(*v));

	*r = (struct trial_run) {
		.c = c, .rank = coll_comm_rank(comm), .nranks = nranks,
		.esize = coll_dtype_size(c->dtype),
		.scounts = v, .sdispls = v + nranks, .rcounts = v + 2 * nranks,
		.rdispls = v + 3 * nranks,
	};
	trial_encode(r);
	trial_setup(comm, r);
	trial_expect(r);
	return trial_call(comm, r);
}

/*
 * Wait if it was called (@rc 0), and look at the buffers. 0, or the error of the call, or -EILSEQ
 * for a wrong byte, and a line about it.
 */
static inline int trial_end(struct coll_comm *comm, struct trial_run *r, int rc, char *text,
			    size_t size)
{
	const struct coll_case *c = r->c;
	size_t bad_send, bad_recv;

	if (!rc)
		rc = trial_wait(r);
	trial_forgive(r);
	bad_send = trial_buf_check(&r->send);
	bad_recv = trial_buf_check(&r->recv);
	if (rc || bad_send || bad_recv)
		snprintf(text, size,
			 "rank %u of %u: %s count %zu dtype %d op %d root %u%s form %d: rc %d, first wrong byte: send %zd, receive %zd of %zu; %s",
			 r->rank, r->nranks, trial_names[c->collective], c->count, c->dtype, c->op,
			 c->root, c->in_place ? " in place" : "", c->form, rc,
			 bad_send ? (ssize_t)bad_send - 1 - CASE_GUARD : -1000,
			 bad_recv ? (ssize_t)bad_recv - 1 - CASE_GUARD : -1000,
			 r->recv.len - 2 * CASE_GUARD, rc ? coll_comm_last_error(comm) : "");
	trial_buf_free(comm, &r->send);
	trial_buf_free(comm, &r->recv);
	free(r->scounts);
	return rc ? rc : bad_send || bad_recv ? -EILSEQ : 0;
}

/* The whole of it. */
static inline int trial_run(struct coll_comm *comm, const struct coll_case *c, char *text,
			    size_t size)
{
	struct trial_run r;
	int rc = trial_begin(comm, c, &r);

	return trial_end(comm, &r, rc, text, size);
}

#endif /* SELFTESTS_COLL_CASES_H */
