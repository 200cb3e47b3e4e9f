// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * coll_board.c - small collectives that ranks carry out by themselves: the same bits as by
 * their plans, in any order with calls of other kinds, whoever comes late; and what takes
 * long, fails, or is called differently is noticed as ever.
 *
 * npulink-test: timeout=240
 */
#include <fcntl.h>
#include <math.h>
#include <sys/syscall.h>
#include <linux/npulink_board.h>
#include <pthread.h>
#include "cases.h"
#include "coll_board.h"
#include "coll_ranks.h"
#include "lib/run/comm.h"
#include "lib/run/request.h"
#include "graphs.h"

#define SMALL	1024	/* that fits into a slot */
#define WIDE	8192	/* beside it, if it is reduced */

static int run(unsigned int n, int (*fn)(struct ranks *, struct coll_comm *), int tell[64])
{
	struct ranks *ranks = ranks_new(n);
	pid_t pid[RANKS_MAX];
	int bad = 0;

	if (tell)
		memcpy(ranks->number, tell, sizeof(ranks->number));
	for (unsigned int i = 0; i < n; i++)
		pid[i] = rank_start(ranks, i, fn);
	for (unsigned int i = 0; i < n; i++)
		bad += rank_join_end(ranks, i, pid[i]);
	if (tell)
		memcpy(tell, ranks->number, sizeof(ranks->number));
	ranks_free(ranks);
	return bad;
}

/* ---- the same bits ---- */

union value {
	float f;
	double d;
	uint32_t u;
	uint64_t v;
	unsigned char b[8];
};

static const uint32_t odd32[] = {
	0, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc12345, 0x7f812345, 1, 0x80000001,
	0x3f800000, 0xbf800000, 0x7f7fffff, 0x00800000, 0x3eaaaaab, 0x4b7fffff, 0x33800000,
};

static const uint64_t odd64[] = {
	0, 1ULL << 63, 0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000,
	0xfff8123456789abc, 0x7ff0123456789abc, 1, 1ULL << 63 | 1, 0x3ff0000000000000,
	0xbff0000000000000, 0x7fefffffffffffff, 0x0010000000000000, 0x3fd5555555555555,
	0x433fffffffffffff, 0x3ca0000000000000,
};

static void fill(unsigned char *buf, size_t len, size_t size, unsigned int rank, unsigned int salt)
{
	for (size_t i = 0; i < len / size; i++) {
		unsigned int x = mix(mix(i, salt), rank);
		union value v = { .v = 0x9e3779b97f4a7c15ULL * (x + 1) };

		if (x % 3 == 0 && size == 4)
			v.u = odd32[x / 3 % 16];
		else if (x % 3 == 0 && size == 8)
			v.v = odd64[x / 3 % 16];
		else if (x % 3 == 1 && size == 4)
			v.f = (float)x / 7;
		else if (x % 3 == 1 && size == 8)
			v.d = (double)x / 7;
		memcpy(buf + i * size, &v, size);
	}
}

static const char *const types[] = {
	"int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16",
	"bfloat16", "float32", "float64",
};

/* Collective @what of @count elements for each rank, in place or not. */
static int call(struct coll_comm *comm, int what, bool in_place, unsigned char *in,
		unsigned char *out, size_t count, unsigned int type, unsigned int op)
{
	unsigned int rank = coll_comm_rank(comm);
	size_t own = rank * count * coll_dtype_size(type);

	switch (what) {
	case 0:
		return coll_allreduce(comm, in_place ? COLL_IN_PLACE : in, out, count, type, op);
	case 1:
		if (in_place)
			return coll_reduce_scatter(comm, out, COLL_IN_PLACE, count, type, op);
		return coll_reduce_scatter(comm, in, out, count, type, op);
	case 2:
		return coll_allgather(comm, in_place ? COLL_IN_PLACE : in + own, out, count, type);
	default:
		return coll_alltoall(comm, in_place ? COLL_IN_PLACE : in, out, count, type);
	}
}

/* The same as a request of a group, which is posted always. */
static int planned(struct coll_comm *comm, int what, bool in_place, unsigned char *in,
		   unsigned char *out, size_t count, unsigned int type, unsigned int op)
{
	const unsigned char *send = in_place ? COLL_IN_PLACE : in;
	size_t own = coll_comm_rank(comm) * count * coll_dtype_size(type);
	struct coll_request *req = NULL;
	uint64_t before = met(comm);
	int rc = coll_group_start(comm);

	if (rc)
		return rc;
	if (what == 0)
		rc = coll_iallreduce(comm, send, out, count, type, op, &req);
	else if (what == 1 && in_place)
		rc = coll_ireduce_scatter(comm, out, COLL_IN_PLACE, count, type, op, &req);
	else if (what == 1)
		rc = coll_ireduce_scatter(comm, in, out, count, type, op, &req);
	else if (what == 2)
		rc = coll_iallgather(comm, in_place ? send : in + own, out, count, type, &req);
	else
		rc = coll_ialltoall(comm, send, out, count, type, &req);
	rc |= coll_group_end(comm);
	if (!rc)
		rc = coll_wait(&req);
	return rc ? rc : met(comm) == before ? 0 : -EPROTO;
}

/* Of reduce_scatter, what is not the own shard is undefined if it was in place. */
static bool differs(int what, bool in_place, unsigned int rank, size_t part,
		    const unsigned char *a, const unsigned char *b, size_t size)
{
	if (what == 1 && in_place)
		return memcmp(a + rank * part, b + rank * part, part);
	return memcmp(a, b, size);
}

/* Each of four collectives, first posted, then met. */
static int same_calls(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm), n = coll_comm_size(comm), missed = 0;
	static _Alignas(8) unsigned char in[WIDE], first[WIDE], out[WIDE];
	int rc = warm_up(comm);

	for (unsigned int i = 0; i < 64 && !rc; i++) {
		static const unsigned int some[] = {
			COLL_INT32, COLL_UINT64, COLL_FLOAT64, COLL_INT8,
		};
		unsigned int type = some[i / 8 % 4], op = i / 32 ? COLL_MAX : COLL_SUM;
		int what = i % 4;
		size_t len = what < 2 && i % 3 ? WIDE : SMALL, size = coll_dtype_size(type);
		size_t part = (len / n / (1 + i % 3)) / size * size;
		bool in_place = i / 4 % 2;
		uint64_t before = 0;

		for (int k = 0; k < 12 && !rc; k++) {
			fill(in, sizeof(in), size, rank, i);
			memset(out, 0xa5, sizeof(out));
			if (in_place)
				memcpy(out, in, sizeof(out));
			if (k == 9)
				before = met(comm);
			rc = (k ? call : planned)(comm, what, in_place, in, out, part / size,
						  type, op);
			if (!k)
				memcpy(first, out, sizeof(out));
			if (!rc && differs(what, in_place, rank, part, first, out, sizeof(out)))
				return rank_fail(ranks, rank, "collective %d, %s, in place %d, call %d differs",
						 what, types[type], in_place, k);
		}
		missed += met(comm) == before;
	}
	if (rank == 0)
		ranks->number[0] = missed;
	return rc;
}

static bool do_same_calls(unsigned int n)
{
	int tell[64] = { 0 }, bad = run(n, same_calls, tell);

	ksft_print_msg("%d calls not met among %u\n", tell[0], n);
	/* Sums of floats among more than two are formed in another order. */
	return !bad && tell[0] < 16;
}

/*
 * As a caller may have set its own arithmetic: denormals flushed, rounded up, and what is invalid,
 * too large or too small signalled. Gives what it was.
 */
#define STRANGE		(0x1000 | 0x8040 | 0x4000)	/* inexact is not signalled */

static uint32_t set_strange(bool strange)
{
	uint32_t had = 0;
#ifdef __x86_64__
	const uint32_t mxcsr = STRANGE;

	__asm__ volatile("stmxcsr %0" : "=m" (had) : : "memory");
	if (strange)
		__asm__ volatile("ldmxcsr %0" : : "m" (mxcsr) : "memory");
#endif
	return had;
}

/* Again as it was; whether the call has left what was set. */
static bool unset_strange(bool strange, uint32_t had)
{
	bool same = true;
#ifdef __x86_64__
	uint32_t now;

	__asm__ volatile("stmxcsr %0" : "=m" (now) : : "memory");
	__asm__ volatile("ldmxcsr %0" : : "m" (had) : "memory");
	same = !strange || (now & ~0x3f) == STRANGE;
#endif
	return same;
}

/* Of one type and operation; the first call is posted. To be met, and not: *@missed. */
static int same_bits_of(struct ranks *ranks, struct coll_comm *comm, unsigned int type,
			unsigned int op, size_t len, int *missed)
{
	unsigned int rank = coll_comm_rank(comm), n = coll_comm_size(comm);
	static _Alignas(8) unsigned char in[WIDE], first[WIDE], out[WIDE];
	size_t size = coll_dtype_size(type);
	uint64_t before = 0;
	uint32_t had;
	int rc = 0;

	len = len / size * size;
	fill(in, len, size, rank, type * 8 + op);
	for (int i = 0; i < 12 && !rc; i++) {
		memset(out, 0xa5, sizeof(out));
		if (i == 9)
			before = met(comm);
		had = set_strange(rank % 2);
		rc = (i ? call : planned)(comm, 0, false, in, out, len / size, type, op);
		if (!unset_strange(rank % 2, had))
			return rank_fail(ranks, rank, "%s, reduction %u: the caller's arithmetic was changed",
					 types[type], op);
		if (!i)
			memcpy(first, out, sizeof(out));
		if (!rc && memcmp(first, out, sizeof(out)))
			return rank_fail(ranks, rank, "%s, reduction %u, %zu bytes, call %d differs",
					 types[type], op, len, i);
		/* Whoever comes late must not matter. */
		if (mix(rank, mix(type, op)) % 7 == 0 && i == 10)
			pause_us(mix(op, rank) % 2 ? 300 : 30000);
	}
	if (op <= COLL_MAX && type != COLL_FLOAT16 && type != COLL_BFLOAT16 &&
	    (n == 2 || type < COLL_FLOAT16))
		*missed += met(comm) == before;
	else if (op == COLL_AVG || type == COLL_FLOAT16)
		*missed += 1000 * (met(comm) != before);
	return rc;
}

/* In slots, and beside them. */
static int same_bits(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm), n = coll_comm_size(comm);
	int rc = warm_up(comm), small = 0, wide = 0;

	if (!rc && rank == 0)
		ranks->number[0] = met(comm) > 0;
	for (unsigned int type = COLL_INT8; type <= COLL_FLOAT64; type++) {
		for (unsigned int op = COLL_SUM; op <= COLL_AVG && !rc; op++) {
			rc = same_bits_of(ranks, comm, type, op,
					  mix(type, op) % 2 ? SMALL / n : 40, &small);
			if (!rc)
				rc = same_bits_of(ranks, comm, type, op, WIDE, &wide);
		}
	}
	if (rank == 0) {
		ranks->number[1] = small;
		ranks->number[2] = wide;
	}
	return rc;
}

static bool do_same_bits(unsigned int n)
{
	int tell[64] = { 0 }, bad = run(n, same_bits, tell);

	ksft_print_msg("%d and %d combinations not met among %u\n", tell[1], tell[2], n);
	/* One or the other comes late in all three calls, but not most of them. */
	return !bad && tell[0] && tell[1] < 16 && tell[2] < 16;
}

/* Calls until some are met, each of them by all ranks, so that all make as many. */
#define PATIENCE	4000

/* What is a little too large is posted. In place, as the library keeps no larger calls else. */
static int bounds(struct ranks *ranks, struct coll_comm *comm)
{
	static const struct {
		unsigned int ranks;
		int what;
		unsigned int count, type, op;	/* for each rank */
		bool met;
	} calls[] = {
		{ 2, 0, SMALL, COLL_INT8, COLL_SUM, true },
		{ 2, 0, SMALL + 1, COLL_INT8, COLL_SUM, true },
		{ 2, 0, WIDE, COLL_INT8, COLL_SUM, true },
		{ 2, 0, WIDE + 1, COLL_INT8, COLL_SUM, false },
		{ 2, 0, WIDE / 8, COLL_FLOAT64, COLL_SUM, true },
		{ 2, 0, WIDE / 8 + 1, COLL_FLOAT64, COLL_SUM, false },
		{ 2, 1, WIDE / 8, COLL_INT32, COLL_MAX, true },
		{ 2, 1, WIDE / 8 + 1, COLL_INT32, COLL_MAX, false },
		{ 2, 2, SMALL, COLL_INT8, 0, true },
		{ 2, 2, SMALL + 1, COLL_INT8, 0, false },
		{ 2, 3, SMALL / 2, COLL_INT8, 0, true },
		{ 2, 3, SMALL / 2 + 1, COLL_INT8, 0, false },
		{ 4, 0, WIDE / 8, COLL_FLOAT32, COLL_MAX, true },
		{ 4, 0, WIDE / 8 + 1, COLL_FLOAT32, COLL_MAX, false },
		{ 4, 0, WIDE / 4, COLL_INT32, COLL_MAX, true },
		{ 4, 1, WIDE / 32, COLL_FLOAT32, COLL_MAX, true },
		{ 4, 1, WIDE / 32 + 1, COLL_FLOAT32, COLL_MAX, false },
		{ 9, 0, 65536 / 9, COLL_INT8, COLL_SUM, true },
		{ 9, 0, 65536 / 9 + 1, COLL_INT8, COLL_SUM, false },
	};
	unsigned int rank = coll_comm_rank(comm), n = coll_comm_size(comm);
	static _Alignas(8) unsigned char in[2 * WIDE + 64], out[2 * WIDE + 64];
	int rc = warm_up(comm);

	for (unsigned int i = 0; i < sizeof(calls) / sizeof(*calls) && !rc; i++) {
		uint64_t before = met(comm);

		/* On a slow host a rank is often too late; but none is met that is too large. */
		for (int k = 0; !rc && calls[i].ranks == n &&
		     (k < 20 || (k < PATIENCE && calls[i].met && met(comm) == before)); k++)
			rc = call(comm, calls[i].what, true, in, out, calls[i].count,
				  calls[i].type, calls[i].op);
		if (!rc && calls[i].ranks == n && calls[i].met != (met(comm) != before))
			return rank_fail(ranks, rank, "call %u: %d were met", i,
					 (int)(met(comm) - before));
	}
	return rc;
}

/* Of more calls in turn than are kept, some are met; and later, those that come then. */
static int many_calls(struct ranks *ranks, struct coll_comm *comm)
{
	static int in[WIDE / sizeof(int)], out[WIDE / sizeof(int)];
	unsigned int rank = coll_comm_rank(comm);
	int rc = warm_up(comm);
	uint64_t before = met(comm);

	for (int i = 0; i < 100 && !rc; i++)
		for (int k = 0; k < 5 && !rc; k++)
			rc = coll_allreduce(comm, in, out, WIDE / sizeof(int) - k, COLL_INT32,
					    COLL_SUM);
	if (!rc && met(comm) - before < 50)
		return rank_fail(ranks, rank, "of large ones %d were met",
				 (int)(met(comm) - before));
	before = met(comm);
	for (int i = 0; i < 200 && !rc; i++)
		rc = coll_allreduce(comm, in, out, 1 + i % 2, COLL_INT32, COLL_SUM);
	if (!rc && met(comm) - before < 50)
		return rank_fail(ranks, rank, "of small ones %d were met",
				 (int)(met(comm) - before));
	return rc;
}

/*
 * Calls whose buffers never come again are met as well. Between them, one rank's come again, and
 * those of the others do not; and somebody is late. So are calls that come once: only what is not
 * met there needs a plan.
 */
static int fresh(struct ranks *ranks, struct coll_comm *comm)
{
	static const unsigned int types[] = {
		COLL_UINT64, COLL_INT64, COLL_UINT32, COLL_INT32, COLL_UINT16, COLL_INT16,
		COLL_UINT8, COLL_INT8, COLL_FLOAT64, COLL_FLOAT32,
	};
	const unsigned int ntypes = sizeof(types) / sizeof(*types);
	static uint64_t in[64][64], out[64][64];
	unsigned int rank = coll_comm_rank(comm), n = coll_comm_size(comm);
	struct coll_comm_info planned = COLL_COMM_INFO_INIT, info = COLL_COMM_INFO_INIT;
	int rc = warm_up(comm);
	uint64_t before = met(comm);
	unsigned int calls = 0;

	for (unsigned int i = 0;
	     !rc && (i < 640 || (i < PATIENCE && met(comm) - before < 400)); i++) {
		unsigned int at = i / 128 % 2 && rank == 0 ? 0 : i % 64;
		uint64_t *a = in[at], *b = out[at];

		for (unsigned int k = 0; k < 64; k++)
			a[k] = (uint64_t)i * (k + 1) << rank;
		if (mix(i, rank) % 64 == 0)
			pause_us(mix(rank, i) % 2 ? 300 : 30000);
		rc = coll_allreduce(comm, a, b, 64, COLL_UINT64, COLL_SUM);
		for (unsigned int k = 0; k < 64 && !rc; k++)
			if (b[k] != (uint64_t)i * (k + 1) * ((1 << n) - 1))
				return rank_fail(ranks, rank, "call %u: %llu", i,
						 (unsigned long long)b[k]);
	}
	if (!rc && met(comm) - before < 400)
		return rank_fail(ranks, rank, "%d were met", (int)(met(comm) - before));
	/* Those of each type and operation are others. On a slow host many come late. */
	before = met(comm);
	coll_comm_info(comm, &planned);
	for (unsigned int t = 0; t < 2 * ntypes && !rc && met(comm) - before < 32; t++)
		for (unsigned int count = 1; count < 64 && !rc; count++, calls++)
			rc = coll_allreduce(comm, in[0], out[0], count, types[t / 2],
					    t % 2 ? COLL_MIN : COLL_MAX);
	coll_comm_info(comm, &info);
	if (!rc && info.plan_misses - planned.plan_misses + info.met - before > calls)
		return rank_fail(ranks, rank, "%u calls: %d plans, though %d were met", calls,
				 (int)(info.plan_misses - planned.plan_misses),
				 (int)(info.met - before));
	if (!rc && met(comm) - before < 32)
		return rank_fail(ranks, rank, "of those that come once %d were met",
				 (int)(met(comm) - before));
	return rc;
}

/* ---- in any order with other calls ---- */

#define ROUNDS	1500	/* in make soak */
#define BIG	20000
#define MANY	600	/* more than fits into a slot */

static int big_in[BIG], big_out[BIG];

static int mixed(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm), n = coll_comm_size(comm);
	unsigned int rounds = getenv("NPULINK_SOAK") ? ROUNDS :
			      getenv("NPULINK_SLOW") ? ROUNDS / 3 : ROUNDS / 2;
	struct coll_request *req = NULL;
	static int many[8][MANY], sums[8][MANY];
	static uint64_t a[WIDE / 8], b[WIDE / 8];
	int in[8], out[8], rc = warm_up(comm);
	uint64_t warm = met(comm);
	unsigned int began = 0;

	for (unsigned int i = 0; i < rounds && !rc; i++) {
		unsigned int what = mix(i, 77) % 16, late = mix(mix(i, 5), rank) % 256;

		if (late < 2)
			pause_us(15000);
		else if (late < 20)
			pause_us(late * 20);
		for (int k = 0; k < 8; k++)
			in[k] = i * (k + 1) + rank;
		memset(out, 0, sizeof(out));
		if (what < 5) {
			rc = coll_allreduce(comm, in, out, 8, COLL_INT32, COLL_SUM);
			for (int k = 0; k < 8 && !rc; k++)
				if (out[k] != (int)(n * i * (k + 1) + n * (n - 1) / 2))
					return rank_fail(ranks, rank, "round %u: sum", i);
		} else if (what < 7) {
			rc = coll_allreduce(comm, COLL_IN_PLACE, in, 8, COLL_INT32, COLL_MAX);
			for (int k = 0; k < 8 && !rc; k++)
				if (in[k] != (int)(i * (k + 1) + n - 1))
					return rank_fail(ranks, rank, "round %u: in place", i);
		} else if (what < 9) {
			rc = coll_barrier(comm);
		} else if (what < 11) {
			int count = i % 3 ? 4 : MANY;

			for (int k = 0; k < 8; k++)
				for (int j = 0; j < count; j++)
					many[k][j] = i + k * j + rank;
			rc = coll_group_start(comm);
			for (unsigned int k = 0; k < 2 + what % 2 * 6; k++)
				rc |= coll_allreduce(comm, many[k], sums[k], count, COLL_INT32,
						     COLL_SUM);
			rc |= coll_group_end(comm);
			for (unsigned int k = 0; k < 2 + what % 2 * 6 && !rc; k++)
				for (int j = 0; j < count; j++)
					if (sums[k][j] != (int)(n * (i + k * j) + n * (n - 1) / 2))
						return rank_fail(ranks, rank, "round %u: group", i);
		} else if (what == 11) {
			rc = coll_broadcast(comm, COLL_IN_PLACE, rank == i % n ? in : out, 8,
					    COLL_INT32, i % n);
			for (int k = 0; k < 8 && !rc && rank != i % n; k++)
				if (out[k] != (int)(i * (k + 1) + i % n))
					return rank_fail(ranks, rank, "round %u: broadcast", i);
		} else if (what < 14 && !req) {
			for (int k = 0; k < BIG; k++)
				big_in[k] = i + k + rank;
			began = i;
			rc = coll_iallreduce(comm, big_in, big_out, BIG, COLL_INT32, COLL_SUM,
					     &req);
		} else if (what == 14 && req) {
			rc = coll_wait(&req);
			for (int k = 0; k < BIG && !rc; k++)
				if (big_out[k] != (int)(n * (began + k) + n * (n - 1) / 2))
					return rank_fail(ranks, rank, "round %u: request", i);
			req = NULL;
		} else {
			unsigned int count = i % 3 ? 1 + i % 16 : WIDE / 8;

			for (unsigned int k = 0; k < count; k++)
				a[k] = (uint64_t)i * (k + 1) << rank;
			rc = coll_allreduce(comm, a, b, count, COLL_UINT64, COLL_SUM);
			for (unsigned int k = 0; k < count && !rc; k++)
				if (b[k] != (uint64_t)i * (k + 1) * ((1 << n) - 1))
					return rank_fail(ranks, rank, "round %u: 64 bits", i);
		}
	}
	if (!rc && req)
		rc = coll_wait(&req);
	if (rank == 0)
		ranks->number[0] = met(comm) - warm;
	return rc;
}

static bool do_mixed(unsigned int n)
{
	int tell[64] = { 0 }, bad = run(n, mixed, tell);

	ksft_print_msg("%u ranks: %d met\n", n, tell[0]);
	return !bad && tell[0] > 100;
}

/* ---- what is noticed as ever ---- */

/* Rank 1 brings more numbers: two counts that a hash of 24 bits had been the same for. */
static int longer(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	static signed char in[3354], out[3354];
	int rc = warm_up(comm);

	for (int i = 0; i < HOT && !rc; i++) {
		rc = coll_allreduce(comm, in, out, 2594, COLL_INT8, COLL_MIN);
		rc = rc ? rc : coll_allreduce(comm, in, out, 3354, COLL_INT8, COLL_MIN);
	}
	if (rc)
		return rc;
	rc = coll_allreduce(comm, in, out, rank == 1 ? 3354 : 2594, COLL_INT8, COLL_MIN);
	return rc == -EPROTO ? 0 : rank_fail(ranks, rank, "%d, not EPROTO", rc);
}

/* Rank 1 calls something else. */
static int mismatch(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	int in[4] = { 1 }, out[4], rc = warm_up(comm);

	for (int i = 0; i < HOT && !rc; i++) {
		rc = coll_allreduce(comm, in, out, 2, COLL_INT32, COLL_SUM);
		rc = rc ? rc : coll_allreduce(comm, in, out, 2, COLL_INT32, COLL_MAX);
	}
	if (rc)
		return rc;
	rc = coll_allreduce(comm, in, out, 2, COLL_INT32, rank == 1 ? COLL_MAX : COLL_SUM);
	if (rc != -EPROTO)
		return rank_fail(ranks, rank, "%d, not EPROTO", rc);
	rc = coll_barrier(comm);
	return rc == -EPROTO ? 0 : rank_fail(ranks, rank, "then %d, not EPROTO", rc);
}

/* Rank 1 dies, and the others know soon, whatever they did to wait. */
static int death(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	uint64_t began;
	int rc = warm_up(comm);

	if (rc)
		return rc;
	if (rank == 1) {
		pause_us(ranks->number[0]);
		_exit(0);
	}
	began = now_ms();
	rc = coll_barrier(comm);
	if (rc != -EOWNERDEAD)
		return rank_fail(ranks, rank, "%d, not EOWNERDEAD", rc);
	if (now_ms() - began > 20000)
		return rank_fail(ranks, rank, "only after %d ms", (int)(now_ms() - began));
	return 0;
}

/* Rank 1 leaves in an orderly way, which the others find out when they wait for it. */
static int leaving(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	int rc = warm_up(comm);

	if (rc || rank == 1)
		return rc;
	rc = coll_barrier(comm);
	return rc == -ESHUTDOWN ? 0 : rank_fail(ranks, rank, "%d, not ESHUTDOWN", rc);
}

/* A deadline, which nobody would look at without the kernel. */
static int deadline(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	int rc = warm_up(comm);

	if (rc)
		return rc;
	if (rank == 1)
		pause_us(ranks->number[0] * 1000);
	rc = coll_barrier(comm);
	return rc == -ETIMEDOUT ? 0 : rank_fail(ranks, rank, "%d, not ETIMEDOUT", rc);
}

static bool do_deadline(void)
{
	struct ranks *ranks = ranks_new(2);
	int bad = 0, slow = getenv("NPULINK_SLOW") ? 10 : 1;
	pid_t pid[2];

	ranks->config.deadline_ns = 500000000ULL * slow;
	ranks->number[0] = 1000 * slow;
	for (unsigned int i = 0; i < 2; i++)
		pid[i] = rank_start(ranks, i, deadline);
	for (unsigned int i = 0; i < 2; i++)
		bad += rank_join_end(ranks, i, pid[i]);
	ranks_free(ranks);
	return !bad;
}

static int late(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	int rc = warm_up(comm);

	ranks->number[rank + 1] = 1;
	while (!rc && rank == 1 && !__atomic_load_n(&ranks->number[0], __ATOMIC_SEQ_CST))
		pause_us(1000);
	return rc ? rc : coll_barrier(comm);
}

/* ---- what another rank writes ---- */

/* The memory that the library shares with other ranks, mapped once more. */
static unsigned char *board_of(const struct coll_comm *comm)
{
	size_t len = coll_comm_size(comm) * NPULINK_BOARD_BYTES;
	char path[64], name[64];
	unsigned char *p;
	ssize_t n;

	for (int fd = 0; fd < 64; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, name, sizeof(name));
		if (n < 13 || memcmp(name, "/dev/npulink/", 13))
			continue;
		for (int id = 1; id < 16; id++) {
			p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
				 NPULINK_MMAP_BOARD_SHARED(id));
			if (p != MAP_FAILED)
				return p;
		}
	}
	return NULL;
}

struct scribbler {
	pthread_t thread;
	uint64_t *words;
	size_t from, n;		/* which it writes */
	uint64_t value;		/* what, or 0: anything */
	_Atomic int stop;
};

static void *scribble(void *arg)
{
	struct scribbler *s = arg;
	uint64_t x = 88172645463325252ULL;

	while (!s->stop) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		__atomic_store_n(&s->words[s->from + x % s->n], s->value ? s->value : x,
				 __ATOMIC_RELAXED);
	}
	return NULL;
}

static int scribble_begin(struct scribbler *s, const struct coll_comm *comm)
{
	s->words = (uint64_t *)board_of(comm);
	return s->words ? pthread_create(&s->thread, NULL, scribble, s) : -1;
}

static void scribble_end(struct scribbler *s)
{
	s->stop = 1;
	pthread_join(s->thread, NULL);
}

/* Rank 1 has a library that knows another layout: nobody meets, and all goes well. */
static int another_layout(struct ranks *ranks, struct coll_comm *comm)
{
	struct scribbler s = { .from = 1, .n = 1, .value = 0x6e70756c626fffffULL };
	unsigned int rank = coll_comm_rank(comm), n = coll_comm_size(comm);
	int in = 1, out = 0, rc = 0;

	if (rank == 1 && scribble_begin(&s, comm))
		return rank_fail(ranks, rank, "no board");
	pthread_barrier_wait(&ranks->barrier);
	for (int i = 0; i < HOT && !rc; i++) {
		rc = coll_allreduce(comm, &in, &out, 1, COLL_INT32, COLL_SUM);
		if (!rc && out != (int)n)
			rc = rank_fail(ranks, rank, "call %d: %d", i, out);
	}
	if (rank == 1)
		scribble_end(&s);
	return rc ? rc : met(comm) ? rank_fail(ranks, rank, "some were met") : 0;
}

/*
 * Rank 1 writes what it likes all over the board. What the ranks have of that is theirs: calls are
 * wrong, late or fail, but they come back, and another communicator does as ever.
 */
static int vandal(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm), n = coll_comm_size(comm);
	struct scribbler s = { .n = n * NPULINK_BOARD_BYTES / 8 };
	int in[8] = { 1 }, out[8], rc = warm_up(comm);

	if (rc)
		return rc;
	if (rank == 1) {
		s.n = 256;	/* layouts and slots; the rest is data */
		if (scribble_begin(&s, comm))
			return rank_fail(ranks, rank, "no board");
	}
	for (int i = 0; i < HOT && !rc; i++)
		rc = coll_allreduce(comm, in, out, 8, COLL_INT32, COLL_SUM);
	if (rank == 1)
		scribble_end(&s);
	/* They may post other numbers, which the kernel finds to be a circle. */
	return rc && rc != -ETIMEDOUT && rc != -EPROTO && rc != -ESHUTDOWN &&
	       rc != -EOWNERDEAD && rc != -EDEADLK ?
	       rank_fail(ranks, rank, "%d", rc) : 0;
}

static bool do_vandal(void)
{
	struct ranks *ranks = ranks_new(3);
	int bad = 0;
	pid_t pid[3];

	ranks->config.deadline_ns = 2000000000ULL;
	for (unsigned int i = 0; i < 3; i++)
		pid[i] = rank_start(ranks, i, vandal);
	/* The others have a communicator of their own, at the same time. */
	bad += run(2, many_calls, NULL);
	for (unsigned int i = 0; i < 3; i++)
		bad += rank_join_end(ranks, i, pid[i]);
	ranks_free(ranks);
	return !bad;
}

/* ---- forked, switched off, shrunk ---- */

/* A child lets go of what it has not, and the parent goes on. */
static int forked(struct ranks *ranks, struct coll_comm *comm)
{
	int in = 1, out, status, rc = warm_up(comm);
	pid_t pid;

	if (rc)
		return rc;
	pid = fork();
	if (!pid) {
		rc = coll_barrier(comm) != -EPERM;
		rc |= coll_comm_destroy(comm);
		_exit(rc);
	}
	if (waitpid(pid, &status, 0) != pid || status)
		return rank_fail(ranks, coll_comm_rank(comm), "the child: %x", status);
	for (int i = 0; i < 20 && !rc; i++)
		rc = coll_allreduce(comm, &in, &out, 1, COLL_INT32, COLL_SUM);
	return rc ? rc : out != (int)coll_comm_size(comm);
}

/* From one call to the next, and nobody need notice. */
static int switched(struct ranks *ranks, struct coll_comm *comm)
{
	enum { LONGS = WIDE / 8 };
	static int64_t many[LONGS], sums[LONGS];
	unsigned int rank = coll_comm_rank(comm);
	int in = 1, out = 0, rc = warm_up(comm);
	uint64_t before, after;

	for (int i = 0; i < 40 && !rc; i++) {
		if (rank == 0)
			rc = set_boards(i % 2 ? "Y" : "N");
		for (int k = 0; k < 20 && !rc; k++) {
			rc = coll_allreduce(comm, &in, &out, 1, COLL_INT32, COLL_SUM);
			if (!rc && out != (int)coll_comm_size(comm))
				return rank_fail(ranks, rank, "round %d: %d", i, out);
			for (int j = 0; j < LONGS; j++)
				many[j] = i + j * k;
			rc = rc ? rc : coll_allreduce(comm, many, sums, LONGS, COLL_INT64,
						      COLL_SUM);
			for (int j = 0; j < LONGS && !rc; j++)
				if (sums[j] != many[j] * coll_comm_size(comm))
					return rank_fail(ranks, rank, "round %d: many", i);
		}
	}
	if (!rc && rank == 0)
		rc = set_boards("N");
	rc = rc ? rc : coll_barrier(comm);
	rc = rc ? rc : coll_barrier(comm);
	before = met(comm);
	for (int k = 0; k < 20 && !rc; k++)
		rc = coll_barrier(comm);
	after = met(comm);
	if (!rc && rank == 0)
		rc = set_boards("Y");
	if (!rc && before != after)
		return rank_fail(ranks, rank, "%d were met", (int)(after - before));
	return rc;
}

/* The survivors have a board of their own. */
static int shrunk(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	struct coll_comm *rest;
	int rc = warm_up(comm);

	if (rc)
		return rc;
	if (rank == 1)
		_exit(0);
	rc = coll_barrier(comm);
	if (rc != -EOWNERDEAD)
		return rank_fail(ranks, rank, "%d, not EOWNERDEAD", rc);
	rc = coll_comm_shrink(comm, &rest, NULL);
	if (rc)
		return rc;
	rc = warm_up(rest);
	if (!rc && !met(rest))
		rc = rank_fail(ranks, rank, "nothing was met");
	return rc ? rc : coll_comm_destroy(rest);
}

static void test(unsigned int n, int (*fn)(struct ranks *, struct coll_comm *), int number,
		 const char *what)
{
	int tell[64] = { number };

	chosen_result(!run(n, fn, tell), "%u ranks: %s\n", n, what);
}

int main(void)
{
	ksft_print_header();
	if (!have_device() || access(BOARDS, W_OK))
		ksft_exit_skip("no device, or not root\n");
	ksft_set_plan(32);
	for (unsigned int n = 2; n <= 4; n += 2)
		chosen_result(do_same_bits(n), "%u ranks: the same bits as by the plan\n", n);
	for (unsigned int n = 2; n <= 4; n++)
		chosen_result(do_same_calls(n), "%u ranks: four collectives\n", n);
	test(2, bounds, 0, "what is too large is posted");
	test(4, bounds, 0, "what is too large is posted");
	test(9, bounds, 0, "what is too large is posted");
	test(2, many_calls, 0, "more calls than are kept");
	test(2, fresh, 0, "calls that never come again");
	test(4, fresh, 0, "calls that never come again");
	for (unsigned int n = 2; n <= 5; n += n - 1)
		chosen_result(do_mixed(n), "%u ranks: in any order with other calls\n", n);
	test(2, mismatch, 0, "another call");
	test(4, mismatch, 0, "another call");
	test(2, longer, 0, "more numbers, by a hash the same call");
	test(2, death, 0, "a rank dies at once");
	test(2, death, 3000, "a rank dies after 3 ms");
	test(4, death, 3000, "a rank dies after 3 ms");
	test(4, death, 100000, "a rank dies after 100 ms");
	test(2, leaving, 0, "a rank leaves");
	test(3, leaving, 0, "a rank leaves");
	chosen_result(do_deadline(), "who comes too late for the deadline\n");
	chosen_result(waits_in(late, NPULINK_POST), "who waits for long has posted\n");
	test(2, another_layout, 0, "another layout");
	test(3, another_layout, 0, "another layout");
	chosen_result(do_vandal(), "3 ranks: one writes all over the board\n");
	test(2, forked, 0, "forked");
	test(2, switched, 0, "switched off and on");
	test(4, switched, 0, "switched off and on");
	test(3, shrunk, 0, "shrunk");
	ksft_finished();
}
