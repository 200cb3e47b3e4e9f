// SPDX-License-Identifier: GPL-2.0
/*
 * mpi.c - measure.c's adaptor for MPI, whichever it is compiled with.
 */
#include <mpi.h>
#include <stdlib.h>
#include "measure.h"

const bool lib_forks;
const bool lib_binds_buffers;

static MPI_Request request;
static int *counts;	/* by rank, with setting "vector": which has other algorithms */
static int nranks;

void lib_prepare(unsigned char id[BENCH_ID_MAX], int size)
{
}

void lib_init(const unsigned char id[BENCH_ID_MAX], int *rank, int *size)
{
	MPI_Init(NULL, NULL);
	MPI_Comm_rank(MPI_COMM_WORLD, rank);
	MPI_Comm_size(MPI_COMM_WORLD, size);
	nranks = *size;
}

void lib_setup(const struct bench_call *c)
{
	if (c->kind != BENCH_REDUCE_SCATTER || !bench_has("vector"))
		return;
	counts = realloc(counts, nranks * sizeof(*counts));
	if (!counts)
		bench_die("no memory");
	for (int r = 0; r < nranks; r++)
		counts[r] = c->count;
}

bool lib_keeps_input(const struct bench_call *call)
{
	return true;
}

void lib_run(const struct bench_call *c)
{
	MPI_Datatype type = c->is_float ? MPI_FLOAT : MPI_INT;

	switch (c->kind) {
	case BENCH_ALLREDUCE:
		MPI_Allreduce(c->send, c->recv, c->count, type, MPI_SUM, MPI_COMM_WORLD);
		break;
	case BENCH_REDUCE_SCATTER:
		if (counts)
			MPI_Reduce_scatter(c->send, c->recv, counts, type, MPI_SUM, MPI_COMM_WORLD);
		else
			MPI_Reduce_scatter_block(c->send, c->recv, c->count, type, MPI_SUM,
						 MPI_COMM_WORLD);
		break;
	case BENCH_ALLGATHER:
		MPI_Allgather(c->send, c->count, type, c->recv, c->count, type, MPI_COMM_WORLD);
		break;
	case BENCH_ALLTOALL:
		MPI_Alltoall(c->send, c->count, type, c->recv, c->count, type, MPI_COMM_WORLD);
		break;
	case BENCH_BROADCAST:
		MPI_Bcast(c->recv, c->count, type, 0, MPI_COMM_WORLD);
		break;
	default:
		MPI_Barrier(MPI_COMM_WORLD);
	}
}

/* As requests (each with a buffer of its own) they take 2 to 3.5 times as long: see README.md. */
void lib_run_batch(const struct bench_call *c)
{
	for (int i = 0; i < BATCH; i++)
		lib_run(c);
}

bool lib_start(const struct bench_call *c)
{
	if (c)
		MPI_Iallreduce(c->send, c->recv, c->count, c->is_float ? MPI_FLOAT : MPI_INT,
			       MPI_SUM, MPI_COMM_WORLD, &request);
	return true;
}

void lib_wait(void)
{
	MPI_Wait(&request, MPI_STATUS_IGNORE);
}

bool lib_start_again(const struct bench_call *call)
{
	return false;
}

void lib_wait_again(void)
{
}

void lib_exit(void)
{
	MPI_Finalize();
}
