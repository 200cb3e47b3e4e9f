// SPDX-License-Identifier: GPL-2.0
/*
 * reduce.c - the software NPU's reduction loops on the real processor, from the module's own
 * sources: the fastest variant of each type and reduction, beside the fastest loop with two
 * reads and one write that the compiler makes for this processor; and in place, beside Open
 * MPI's MPI_Reduce_local(), which can only do that, if it was built with it. One line of JSON
 * each, in GB/s of result.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "soft_loops.h"

#ifdef HAVE_MPI
#include <mpi.h>
#endif

#define IN_CACHE	(8UL << 10)
#define OUT_OF_CACHE	(64UL << 20)
#define ROUNDS		7

static const char *const types[NPULINK_DTYPES] = {
	"int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
	"float16", "bfloat16", "float32", "float64",
};

static const char *const ops[NPULINK_REDOPS] = { "sum", "prod", "min", "max" };

static const struct soft_variant *const variants[] = {
	&soft_int_scalar, &soft_int_swar, &soft_fp_scalar,
#ifdef __x86_64__
	&soft_fp_sse2, &soft_fp_avx2, &soft_fp_avx512,
#endif
};

static char *dst, *a, *b;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

typedef void reduce_fn(void *dst, const void *a, const void *b, size_t n);

/* Bytes of result per second, the best of several rounds. */
static double rate(reduce_fn *fn, void *to, size_t len, size_t size)
{
	unsigned int calls = len < OUT_OF_CACHE ? 4000 : 1;
	double best = 0;

	for (int round = 0; round < ROUNDS; round++) {
		double t = now();

		for (unsigned int i = 0; i < calls; i++)
			fn(to, a, b, len / size);
		t = len * calls / (now() - t);
		best = t > best ? t : best;
	}
	return best;
}

#pragma GCC push_options
#pragma GCC optimize("O3")
#ifdef __x86_64__
__attribute__((target_clones("default", "avx2", "avx512f")))
#endif
static void stream(void *d, const void *x, const void *y, size_t n)
{
	const int64_t *p = x, *q = y;
	int64_t *r = d;

#pragma GCC ivdep
	for (size_t i = 0; i < n; i++)
		r[i] = p[i] + q[i];
}

#pragma GCC pop_options

#ifdef __x86_64__
/* Without reading what it is going to overwrite. */
__attribute__((target("avx2")))
static void stream_past_cache(void *d, const void *x, const void *y, size_t n)
{
	const __m256i *p = x, *q = y;
	__m256i *r = d;

	for (size_t i = 0; i < n / 4; i++)
		_mm256_stream_si256(r + i, _mm256_add_epi64(_mm256_loadu_si256(p + i),
							    _mm256_loadu_si256(q + i)));
	_mm_sfence();
}
#endif

static double best_stream(size_t len)
{
	double best = rate(stream, dst, len, 8);

#ifdef __x86_64__
	if (__builtin_cpu_supports("avx2")) {
		double past = rate(stream_past_cache, dst, len, 8);

		best = past > best ? past : best;
	}
#endif
	return best;
}

#ifdef HAVE_MPI
static MPI_Datatype mpi_type;
static MPI_Op mpi_op;

static void mpi_reduce(void *d, const void *x, const void *y, size_t n)
{
	MPI_Reduce_local(y, d, n, mpi_type, mpi_op);
}

static double mpi_rate(unsigned int type, unsigned int op, size_t len)
{
	const MPI_Datatype mpi_types[NPULINK_DTYPES] = {
		MPI_INT8_T, MPI_UINT8_T, MPI_INT16_T, MPI_UINT16_T, MPI_INT32_T, MPI_UINT32_T,
		MPI_INT64_T, MPI_UINT64_T, MPI_DATATYPE_NULL, MPI_DATATYPE_NULL, MPI_FLOAT,
		MPI_DOUBLE,
	};
	const MPI_Op mpi_ops[NPULINK_REDOPS] = { MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX };

	mpi_type = mpi_types[type];
	mpi_op = mpi_ops[op];
	if (mpi_type == MPI_DATATYPE_NULL)
		return 0;
	return rate(mpi_reduce, a, len, 1UL << soft_dtype_shift(type));
}
#else
static double mpi_rate(unsigned int type, unsigned int op, size_t len)
{
	return 0;
}
#endif

#ifdef __x86_64__
static const struct soft_variant *streaming;
static reduce_fn *streaming_reduce;
static unsigned int streaming_shift;

/* As walk.c stores results that no cache will have. */
static void reduce_past_cache(void *d, const void *x, const void *y, size_t n)
{
	static char scratch[SOFT_SCRATCH] __attribute__((aligned(SOFT_LINE)));
	size_t bytes = n << streaming_shift;

	for (size_t i = 0; i < bytes; i += sizeof(scratch)) {
		streaming_reduce(scratch, x + i, y + i, sizeof(scratch) >> streaming_shift);
		streaming->stream(d + i, scratch, sizeof(scratch));
		/* After a block of two inputs, see engine.c. */
		if (i / sizeof(scratch) % 4 == 3)
			soft_stream_fence();
	}
	soft_stream_fence();
}

/* Is memory what the loop waits for? Otherwise select.c leaves results in the cache. */
static bool streams(const struct soft_variant *v, unsigned int type, unsigned int op)
{
	streaming = v;
	streaming_reduce = v->reduce[type][op];
	streaming_shift = soft_dtype_shift(type);
	return v->stream && rate(streaming_reduce, dst, SOFT_SCRATCH, 1UL << streaming_shift) >=
			    SOFT_STREAM_RATE * 1e6;
}
#else
static bool streams(const struct soft_variant *v, unsigned int type, unsigned int op)
{
	return false;
}

static void reduce_past_cache(void *d, const void *x, const void *y, size_t n)
{
}
#endif

static bool runs(const struct soft_variant *v)
{
#ifdef __x86_64__
	if (v == &soft_fp_avx2)
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
	if (v == &soft_fp_avx512)
		return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
#endif
	return true;
}

/* The one that is fastest in cache, as select.c chooses. */
static const struct soft_variant *choose(unsigned int type, unsigned int op)
{
	const struct soft_variant *best = NULL;
	double most = 0;

	for (size_t v = 0; v < sizeof(variants) / sizeof(variants[0]); v++) {
		double r;

		if (!variants[v]->reduce[type][op] || !runs(variants[v]))
			continue;
		r = rate(variants[v]->reduce[type][op], dst, SOFT_SCRATCH,
			 1UL << soft_dtype_shift(type));
		if (r > most) {
			most = r;
			best = variants[v];
		}
	}
	return best;
}

int main(void)
{
	size_t all = 3 * (OUT_OF_CACHE + 3 * 4096);
	double in, out;

#ifdef HAVE_MPI
	MPI_Init(NULL, NULL);
#endif
	dst = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (dst == MAP_FAILED)
		return 1;
	memset(dst, 0, all);
	a = dst + OUT_OF_CACHE + 4096 + 64;
	b = a + OUT_OF_CACHE + 4096 + 64;
	for (unsigned int type = 0; type < NPULINK_DTYPES; type++) {
		for (unsigned int op = 0; op < NPULINK_REDOPS; op++) {
			const struct soft_variant *v = choose(type, op);
			reduce_fn *fn = v->reduce[type][op];
			reduce_fn *past = streams(v, type, op) ? reduce_past_cache : fn;
			size_t size = 1UL << soft_dtype_shift(type);

			/* Beside each figure, so that both see the same machine. */
			in = best_stream(IN_CACHE);
			out = best_stream(OUT_OF_CACHE);
			printf("{\"type\":\"%s\",\"op\":\"%s\",", types[type], ops[op]);
			printf("\"best_in\":%.3f,\"best_out\":%.3f,", in / 1e9, out / 1e9);
			printf("\"in\":%.3f,", rate(fn, dst, IN_CACHE, size) / 1e9);
			printf("\"out\":%.3f,", rate(past, dst, OUT_OF_CACHE, size) / 1e9);
			printf("\"place_in\":%.3f,", rate(fn, a, IN_CACHE, size) / 1e9);
			printf("\"place_out\":%.3f,", rate(fn, a, OUT_OF_CACHE, size) / 1e9);
			printf("\"mpi_in\":%.3f,", mpi_rate(type, op, IN_CACHE) / 1e9);
			printf("\"mpi_out\":%.3f}\n", mpi_rate(type, op, OUT_OF_CACHE) / 1e9);
		}
	}
#ifdef HAVE_MPI
	MPI_Finalize();
#endif
	return 0;
}
