// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * coll_engine - one pass over the bytes per step, by the devices' own counters: in a
 * ring allreduce each rank reads 3(p-1)/p n bytes and writes 2(p-1)/p n; in a mesh
 * reduce_scatter each rank reads n and writes n/p. There is no other copy.
 */
#include "coll_ranks.h"
#include "lib/run/comm.h"

#define ROUNDS	3

struct counters {
	long long read, written;
};

/* Of npu0 .. npu(n - 1). */
static int read_counters(unsigned int n, struct counters *c)
{
	char command[300];
	unsigned int i;
	FILE *f;

	snprintf(command, sizeof(command),
		 "%s/build/tools/npulink -j dev show | jq -r '.[] | \"\\(.bytes_read) \\(.bytes_written)\"'",
		 getenv("NPULINK_TREE") ?: ".");
	f = popen(command, "r");
	if (!f)
		return -1;
	for (i = 0; i < n; i++)
		if (fscanf(f, "%lld %lld", &c[i].read, &c[i].written) != 2)
			break;
	pclose(f);
	return i == n ? 0 : -1;
}

/* The differing parts of the runs: what is called, and with how many bytes. */
static size_t bytes;
static bool scatter;

static int run(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int p = ranks->n;
	size_t count = bytes / sizeof(int);
	int *in = calloc(count, sizeof(int)), *out = calloc(count, sizeof(int));
	int i, rc = 0;

	for (i = 0; !rc && i < ROUNDS; i++) {
		if (scatter)
			rc = coll_reduce_scatter(comm, in, out, count / p, COLL_INT32, COLL_SUM);
		else
			rc = coll_allreduce(comm, in, out, count, COLL_INT32, COLL_SUM);
	}
	free(in);
	free(out);
	return rc;
}

static bool near(const char *what, unsigned int device, double got, double want)
{
	if (got > want * 0.999 && got < want * 1.001)
		return true;
	ksft_print_msg("npu%u %s %.0f bytes, not %.0f\n", device, what, got, want);
	return false;
}

/* @reads and @writes: of each rank, as multiples of n. */
static bool measure(unsigned int p, const char *algorithm, double reads, double writes)
{
	struct counters before[RANKS_MAX], after[RANKS_MAX];
	struct ranks *ranks = ranks_new(p);
	unsigned int i;
	bool ok;

	ranks->config.algorithm = algorithm;
	ok = !read_counters(p, before) && !ranks_run(ranks, run) && !read_counters(p, after);
	for (i = 0; ok && i < p; i++) {
		ok &= near("read", i, after[i].read - before[i].read, reads * bytes * ROUNDS);
		ok &= near("wrote", i, after[i].written - before[i].written,
			   writes * bytes * ROUNDS);
	}
	ranks_free(ranks);
	return ok;
}

int main(void)
{
	static const unsigned int sizes[] = { 2, 3, 5, 8 };
	struct counters c;
	unsigned int i;

	ksft_print_header();
	if (!have_device())
		ksft_exit_skip("no device\n");
	if (read_counters(1, &c))
		ksft_exit_skip("no counters: is jq installed?\n");
	ksft_set_plan(2 * sizeof(sizes) / sizeof(sizes[0]));
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		double p = sizes[i];

		bytes = (4 << 20) / sizes[i] / 4 * 4 * sizes[i];
		scatter = false;
		ksft_test_result(measure(sizes[i], "allreduce:ring", 3 * (p - 1) / p,
					 2 * (p - 1) / p),
				 "ring allreduce, %u ranks\n", sizes[i]);
		scatter = true;
		ksft_test_result(measure(sizes[i], "reduce_scatter:mesh", 1, 1 / p),
				 "mesh reduce_scatter, %u ranks\n", sizes[i]);
	}
	ksft_exit(ksft_get_pass_cnt() == (int)ksft_plan);
}
