// SPDX-License-Identifier: GPL-2.0
/*
 * mpi.c - what npulink bench does, with MPI: the same loop, the same mean over ranks.
 *
 * Usage: net-mpi POINT..., POINT is COLLECTIVE:BYTES:ITERATIONS, allreduce (float32, SUM) or
 * broadcast. Rank 0 prints a line of JSON for each.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

static void run(int broadcast, const float *in, float *out, int count)
{
	if (broadcast)
		MPI_Bcast(out, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
	else
		MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

/* Small numbers, so that sums are exact. */
static long count_wrong(int broadcast, const float *out, int count)
{
	long wrong = 0;

	for (int i = 0; i < count; i++) {
		float want = i % 61;

		if (!broadcast)
			want = size * want + size * (size - 1) / 2;
		wrong += out[i] != want;
	}
	return wrong;
}

static int point(const char *text)
{
	float *in, *out;
	char coll[32];
	int bytes, iters, count, broadcast;
	long wrong, all_wrong;
	double t, mean;

	if (sscanf(text, "%31[a-z]:%d:%d", coll, &bytes, &iters) != 3)
		return 1;
	broadcast = !strcmp(coll, "broadcast");
	count = bytes / 4;
	in = malloc(bytes);
	out = malloc(bytes);
	if (!in || !out)
		return 1;
	for (int i = 0; i < count; i++) {
		in[i] = i % 61 + rank;
		out[i] = rank ? -1 : i % 61;
	}
	for (int i = 0; i < iters / 10 + 1; i++)
		run(broadcast, in, out, count);
	wrong = count_wrong(broadcast, out, count);
	MPI_Barrier(MPI_COMM_WORLD);
	t = MPI_Wtime();
	for (int i = 0; i < iters; i++)
		run(broadcast, in, out, count);
	t = (MPI_Wtime() - t) / iters;
	MPI_Reduce(&t, &mean, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	MPI_Reduce(&wrong, &all_wrong, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	if (!rank)
		printf("{\"who\":\"openmpi\",\"what\":\"%s\",\"bytes\":%d,"
		       "\"us\":%.3f,\"wrong\":%ld}\n",
		       coll, bytes, mean / size * 1e6, all_wrong);
	fflush(stdout);
	free(in);
	free(out);
	return 0;
}

int main(int argc, char **argv)
{
	int bad = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (int i = 1; i < argc; i++)
		bad |= point(argv[i]);
	MPI_Finalize();
	return bad;
}
