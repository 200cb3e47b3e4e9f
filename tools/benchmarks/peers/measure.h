/* SPDX-License-Identifier: GPL-2.0 */
/*
 * measure.h - what measure.c asks of a library. One adaptor per library, linked
 * with measure.c into one program each: npulink.c, mpi.c, gloo.cc.
 */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BATCH		8	/* operations posted at once in mode "batch" */
#define BENCH_ID_MAX	128

enum bench_kind {
	BENCH_ALLREDUCE,
	BENCH_REDUCE_SCATTER,
	BENCH_ALLGATHER,
	BENCH_ALLTOALL,
	BENCH_BROADCAST,
	BENCH_BARRIER,
	BENCH_KINDS
};

/**
 * struct bench_call - one operation
 * @kind: which
 * @is_float: float32, else int32
 * @count: elements, as the function has it: of the whole buffer, or of one
 *	   rank's share of it for allgather, alltoall and reduce_scatter
 * @bytes: of the whole buffer
 * @send: this rank's input
 * @recv: where the result goes
 */
struct bench_call {
	enum bench_kind kind;
	bool is_float;
	size_t count;
	size_t bytes;
	void *send, *recv;
};

/* Who launches the ranks: measure.c by fork(), or a launcher of the library's own. */
extern const bool lib_forks;
/* lib_run() uses the buffers that lib_setup() was given, whatever its call says. */
extern const bool lib_binds_buffers;

/* Before ranks are forked; @id is shared by all of them. */
void lib_prepare(unsigned char id[BENCH_ID_MAX], int size);
/* *rank and *size are set if the ranks were forked, else to be found out. */
void lib_init(const unsigned char id[BENCH_ID_MAX], int *rank, int *size);
/* A new point: its buffers hold the input, or do so again. */
void lib_setup(const struct bench_call *call);
/* Whether the input is still there after the call, so that the next one has the same result. */
bool lib_keeps_input(const struct bench_call *call);
void lib_run(const struct bench_call *call);
/* BATCH operations, as fast as the library can have it. */
void lib_run_batch(const struct bench_call *call);
/* Where there are operations that go on while the caller computes. */
bool lib_start(const struct bench_call *call);
void lib_wait(void);
/* The same, of what is prepared once for each buffer and count, if there is that. */
bool lib_start_again(const struct bench_call *call);
void lib_wait_again(void);
void lib_exit(void);

/* Whether the setting that is measured has this among its words. */
bool bench_has(const char *word);
void bench_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#ifdef __cplusplus
}
#endif

#endif /* BENCH_MEASURE_H */
