// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * rdma_pair.c - two machines, joined by RDMA: every collective, random traffic, and ranks
 * that fail, leave, or call different things.
 *
 * npulink-test: machines=2 mem=768 modules=none timeout=300
 */
#include "cases.h"
#include "lib/run/comm.h"
#include "lib/run/request.h"
#include "remote_random.h"

#define NDEV	2

static int all_collectives(struct coll_comm *comm, unsigned int rank)
{
	static const size_t counts[] = { 1, 5, 993, 70000 };
	int bad = 0;

	for (uint32_t coll = 0; coll < ARRAY_SIZE(trial_names); coll++)
		for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
			struct coll_case c = {
				.collective = coll, .count = counts[i],
				.dtype = i % 2 ? COLL_FLOAT32 : COLL_INT32,
				.op = i == 2 ? COLL_MAX : i % 2 ? COLL_AVG : COLL_SUM,
				.root = trial_rooted(coll) ? i % coll_comm_size(comm) : 0,
				.in_place = i == 3, .form = i % CASE_FORMS,
			};

			bad += remote_case(comm, rank, &c);
			if (bad)
				return bad;
		}
	return bad;
}

static unsigned int random_ops;

/* How many of them, or so many in make soak. On a debug kernel each one takes long. */
static unsigned int operations(unsigned int usual, unsigned int soak)
{
	if (getenv("NPULINK_SOAK"))
		return soak;
	return getenv("NPULINK_SLOW") ? usual / 5 : usual;
}

static int random_traffic(struct coll_comm *comm, unsigned int rank)
{
	unsigned int n = coll_comm_size(comm);

	return random_operations(random_ops, rank, n, n / machines, RANDOM_SEED);
}

/* Sends and receives in both directions at a time, also longer than what is granted. */
static int sendrecv(struct coll_comm *comm, unsigned int rank)
{
	static const size_t sizes[] = { 0, 1, 3967, 3968, 3969, 131072, 131073, 3000000 };
	int bad = 0;

	for (size_t i = 0; i < ARRAY_SIZE(sizes) && !bad; i++) {
		uint8_t *out = malloc(sizes[i] + 1), *in = calloc(1, sizes[i] + 1);

		for (size_t k = 0; k < sizes[i]; k++)
			out[k] = k * 7 + k / 251 + rank;
		bad |= remote_check(coll_group_start(comm), comm, rank, "group");
		coll_send(comm, out, sizes[i], COLL_UINT8, !rank);
		coll_recv(comm, in, sizes[i], COLL_UINT8, !rank);
		bad |= remote_check(coll_group_end(comm), comm, rank, "sendrecv");
		for (size_t k = 0; k < sizes[i] && !bad; k++)
			if (in[k] != (uint8_t)(k * 7 + k / 251 + !rank))
				bad = remote_fail("rank %u: %zu bytes: wrong at %zu", rank,
						  sizes[i], k);
		free(out);
		free(in);
	}
	return bad;
}

/* More messages than the receiver has room for, before a call that it has to make first. */
static int sends_ahead(struct coll_comm *comm, unsigned int rank)
{
	struct coll_request *sends[20];
	int out[ARRAY_SIZE(sends)], in, bad = 0;

	for (unsigned int i = 0; i < ARRAY_SIZE(sends) && !rank; i++) {
		out[i] = 100 + i;
		bad |= coll_isend(comm, &out[i], 1, COLL_INT32, 1, &sends[i]);
	}
	/* It has no bytes, so there is nothing that could be granted for it. */
	bad |= remote_check(coll_barrier(comm), comm, rank, "barrier");
	for (unsigned int i = 0; i < ARRAY_SIZE(sends) && rank && !bad; i++) {
		bad = remote_check(coll_recv(comm, &in, 1, COLL_INT32, 0), comm, rank, "receive");
		if (!bad && in != 100 + (int)i)
			bad = remote_fail("received %d as number %u", in, i);
	}
	if (!rank && !bad)
		bad = remote_check(coll_waitall(ARRAY_SIZE(sends), sends), comm, rank, "sends");
	return bad;
}

/* The same, and the rank that they are for has others to receive before: of a rank beside it. */
static int sends_behind_others(struct coll_comm *comm, unsigned int rank)
{
	struct coll_request *sends[20], *receives[6];
	int out[ARRAY_SIZE(sends)] = { 0 }, in[ARRAY_SIZE(sends)], bad = 0;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(receives) && !rank; i++)
		bad |= coll_irecv(comm, &in[i], 1, COLL_INT32, 1, &receives[i]);
	for (i = 0; i < ARRAY_SIZE(sends) && rank == 2; i++) {
		out[i] = 100 + i;
		bad |= coll_isend(comm, &out[i], 1, COLL_INT32, 0, &sends[i]);
	}
	bad |= remote_check(coll_barrier(comm), comm, rank, "barrier");
	for (i = 0; i < ARRAY_SIZE(receives) && rank == 1 && !bad; i++)
		bad = remote_check(coll_send(comm, &out[i], 1, COLL_INT32, 0), comm, rank, "send");
	if (!rank && !bad)
		bad = remote_check(coll_waitall(ARRAY_SIZE(receives), receives), comm, rank,
				   "receives");
	for (i = 0; i < ARRAY_SIZE(sends) && !rank && !bad; i++) {
		bad = remote_check(coll_recv(comm, &in[i], 1, COLL_INT32, 2), comm, rank, "receive");
		if (!bad && in[i] != 100 + (int)i)
			bad = remote_fail("received %d as number %u", in[i], i);
	}
	if (rank == 2 && !bad)
		bad = remote_check(coll_waitall(ARRAY_SIZE(sends), sends), comm, rank, "sends");
	return bad;
}

/*
 * Rings, not in place, so that each rank waits for all from the beginning: what is passed on comes
 * back over the same connection, beside another one.
 */
static int rings(struct coll_comm *comm, unsigned int rank)
{
	const size_t count = 2 << 20;
	struct coll_request *reqs[2];
	int *in[2], *out[2], bad = 0;

	for (int i = 0; i < 2; i++) {
		in[i] = malloc(count * sizeof(int));
		out[i] = calloc(count, sizeof(int));
		for (size_t k = 0; k < count; k++)
			in[i][k] = k * (i + 1) + rank;
	}
	for (int i = 0; i < 2 && !bad; i++)
		bad = remote_check(coll_iallreduce(comm, in[i], out[i], count, COLL_INT32, COLL_SUM,
						   &reqs[i]), comm, rank, "ring");
	bad = bad || remote_check(coll_waitall(2, reqs), comm, rank, "rings");
	for (int i = 0; i < 2 && !bad; i++) {
		int n = coll_comm_size(comm);

		for (size_t k = 0; k < count && !bad; k++)
			if (out[i][k] != n * (int)k * (i + 1) + n * (n - 1) / 2)
				bad = remote_fail("rank %u: element %zu of ring %d: %d", rank, k, i,
						  out[i][k]);
		free(in[i]);
		free(out[i]);
	}
	return bad;
}

/*
 * Rank 1 comes to an allreduce only when it has heard from rank 0, which waits for a message of
 * rank 2 before that: what has come for the allreduce already may not keep that message out.
 */
static int meshes(struct coll_comm *comm, unsigned int rank)
{
	const size_t count = 4 << 20, len = 1 << 20;
	uint8_t *in = malloc(count), *out = calloc(count, 1), *message = calloc(len, 1);
	struct coll_request *req;
	int bad = 0, n = coll_comm_size(comm);

	for (size_t k = 0; k < count; k++)
		in[k] = k / 4096 + rank;
	if (rank == 1)
		bad = remote_check(coll_recv(comm, message, 1, COLL_UINT8, 0), comm, rank, "word");
	bad = bad || remote_check(coll_iallreduce(comm, in, out, count, COLL_UINT8, COLL_SUM, &req),
				  comm, rank, "mesh");
	if (rank == 2) {
		/* What it has sent of the allreduce is there. */
		usleep(300000);
		bad = bad || remote_check(coll_send(comm, in, len, COLL_UINT8, 0), comm, rank, "send");
	}
	if (!rank) {
		bad = bad || remote_check(coll_recv(comm, message, len, COLL_UINT8, 2), comm, rank,
					  "message");
		bad = bad || remote_check(coll_send(comm, message, 1, COLL_UINT8, 1), comm, rank,
					  "word");
	}
	bad = bad || remote_check(coll_wait(&req), comm, rank, "mesh");
	for (size_t k = 0; k < count && !bad; k++)
		if (out[k] != (uint8_t)(n * (k / 4096) + n * (n - 1) / 2))
			bad = remote_fail("rank %u: element %zu: %d", rank, k, out[k]);
	free(in);
	free(out);
	free(message);
	return bad;
}

static int with_algorithm(const char *algorithm, unsigned int per, remote_fn fn)
{
	int bad;

	setenv("COLL_ALGORITHM", algorithm, 1);
	bad = remote_ranks(per, fn);
	unsetenv("COLL_ALGORITHM");
	return bad;
}

/* What both ranks see when one of them fails: the same cause. */
static int expect(struct coll_comm *comm, unsigned int rank, int rc, int want, const char *cause)
{
	struct coll_state state = COLL_STATE_INIT;

	if (rc != want)
		return remote_fail("rank %u: %d instead of %d: %s", rank, rc, want,
				   coll_comm_last_error(comm));
	if (coll_comm_status(comm, &state) || strcmp(state.cause, cause))
		return remote_fail("rank %u: cause %s instead of %s", rank, state.cause, cause);
	return 0;
}

static int warm_up(struct coll_comm *comm, unsigned int rank)
{
	int x = 1, y = 0;

	return remote_check(coll_allreduce(comm, &x, &y, 1, COLL_INT32, COLL_SUM), comm, rank,
			    "allreduce") || y != (int)coll_comm_size(comm);
}

static int different_calls(struct coll_comm *comm, unsigned int rank)
{
	int x[100] = { 1 }, y[100], rc;

	if (warm_up(comm, rank))
		return 1;
	if (rank)
		rc = coll_broadcast(comm, x, x, 100, COLL_INT32, 0);
	else
		rc = coll_allreduce(comm, x, y, 100, COLL_INT32, COLL_SUM);
	return expect(comm, rank, rc, -EPROTO, "mismatch");
}

/* Neither sends anything of itself here. */
static int different_receives(struct coll_comm *comm, unsigned int rank)
{
	int x[100] = { 1 };

	if (warm_up(comm, rank))
		return 1;
	return expect(comm, rank, coll_broadcast(comm, x, x, 100, COLL_INT32, !rank), -EPROTO,
		      "mismatch");
}

/* Rank 1 has sent its part, and is through, when rank 0 calls what has no part for rank 1. */
static int different_early(struct coll_comm *comm, unsigned int rank)
{
	int x[100] = { 1 }, y[100];

	if (warm_up(comm, rank))
		return 1;
	if (!rank) {
		usleep(500000);
		return expect(comm, rank, coll_allreduce(comm, x, y, 0, COLL_INT32, COLL_SUM),
			      -EPROTO, "mismatch");
	}
	if (remote_check(coll_reduce(comm, x, NULL, 1, COLL_INT32, COLL_SUM, 0), comm, rank,
			 "reduce"))
		return 1;
	return expect(comm, rank, coll_barrier(comm), -EPROTO, "mismatch");
}

/* Rank 1 is through with more than can be in flight when rank 0 begins, which it must not mind. */
static int far_ahead(struct coll_comm *comm, unsigned int rank)
{
	int x = rank ? 77 : 0, bad = warm_up(comm, rank);

	if (!rank)
		usleep(1000000);
	for (int round = 0; round < 3 && !bad; round++) {
		for (int i = 0; i < 700 && !bad; i++)
			bad = remote_check(coll_allreduce(comm, &x, &x, 0, COLL_INT32, COLL_SUM),
					   comm, rank, "allreduce of nothing");
		/* What it only sends is gone at once. */
		if (!bad)
			bad = remote_check(coll_broadcast(comm, &x, &x, 1, COLL_INT32, 1), comm,
					   rank, "broadcast");
	}
	if (!bad)
		bad = remote_check(coll_barrier(comm), comm, rank, "barrier");
	return bad || x != 77;
}

/*
 * As warm_up(); when rank 1 returns, rank 0 is through with it, whom an abort of what rank 1
 * has done could still meet otherwise.
 */
static int warm_up_both(struct coll_comm *comm, unsigned int rank)
{
	int x = 1;

	if (warm_up(comm, rank))
		return 1;
	if (!rank)
		coll_send(comm, &x, 1, COLL_INT32, 1);
	return rank && remote_check(coll_recv(comm, &x, 1, COLL_INT32, 0), comm, rank, "receive");
}

static int abort_other(struct coll_comm *comm, unsigned int rank)
{
	static char in[1 << 20], out[1 << 20];
	struct coll_state state = COLL_STATE_INIT;
	int rc;

	if (warm_up_both(comm, rank))
		return 1;
	if (rank) {
		usleep(200000);
		return coll_comm_abort(comm, 42);
	}
	rc = coll_allreduce(comm, in, out, sizeof(in), COLL_INT8, COLL_SUM);
	if (expect(comm, rank, rc, -ECANCELED, "abort"))
		return 1;
	coll_comm_status(comm, &state);
	return state.rank == 1 && state.code == 42 ? 0 :
	       remote_fail("abort of rank %u with code %u", state.rank, state.code);
}

static int leave(struct coll_comm *comm, unsigned int rank)
{
	static char in[1 << 20], out[1 << 20];
	int rc;

	if (warm_up(comm, rank))
		return 1;
	if (rank) {
		usleep(200000);
		return 0;
	}
	rc = coll_allreduce(comm, in, out, sizeof(in), COLL_INT8, COLL_SUM);
	return expect(comm, rank, rc, -ESHUTDOWN, "left");
}

/* Rank 0 has done its part, and has left, when rank 1 comes. */
static int leave_early(struct coll_comm *comm, unsigned int rank)
{
	int x = rank ? 0 : 77;

	if (warm_up(comm, rank))
		return 1;
	if (rank)
		usleep(1000000);
	if (remote_check(coll_broadcast(comm, &x, &x, 1, COLL_INT32, 0), comm, rank, "broadcast"))
		return 1;
	return x != 77;
}

static unsigned int leave_us;

/* Rank 0 calls rank 1, and leaves while they are being connected, which nobody needs. */
static int leave_connecting(struct coll_comm *comm, unsigned int rank)
{
	static int x[1000], y[1000];
	struct coll_request *req;
	struct coll_state state = COLL_STATE_INIT;

	if (remote_check(coll_allreduce_init(comm, x, y, 1000, COLL_INT32, COLL_SUM, &req), comm,
			 rank, "allreduce_init") ||
	    remote_check(coll_request_free(&req), comm, rank, "free"))
		return 1;
	usleep(rank ? 200000 : leave_us);
	if (coll_comm_status(comm, &state) || state.status)
		return remote_fail("rank %u: %s, left after %u us", rank, state.cause, leave_us);
	return 0;
}

static int leaves_connecting(void)
{
	unsigned int n = operations(15, 500);
	int bad = 0;

	/* All of them, or the other machine waits for this one. */
	for (unsigned int i = 0; i < n; i++) {
		leave_us = i * 613 % 8000;
		bad += remote_ranks(1, leave_connecting);
	}
	return bad;
}

/* After an abort, all of both machines go on. */
static int shrink(struct coll_comm *comm, unsigned int rank)
{
	struct coll_comm *shrunk;
	int x = 1, y, rc = 0;

	if (warm_up_both(comm, rank))
		return 1;
	if (rank)
		coll_comm_abort(comm, 1);
	while (!rc)
		rc = coll_allreduce(comm, &x, &y, 1, COLL_INT32, COLL_SUM);
	rc = coll_comm_shrink(comm, &shrunk, NULL);
	if (rc)
		return remote_check(rc, comm, rank, "shrink");
	rc = coll_allreduce(shrunk, &x, &y, 1, COLL_INT32, COLL_SUM);
	if (rc || coll_comm_rank(shrunk) != rank || y != 2)
		return remote_check(rc ?: 1, shrunk, rank, "what it was shrunk to");
	return !!coll_comm_destroy(shrunk);
}

static int die(struct coll_comm *comm, unsigned int rank)
{
	static char in[4 << 20], out[4 << 20];
	double start;
	int rc = 0;

	if (warm_up(comm, rank))
		return 1;
	start = now();
	if (rank) {
		if (!fork()) {
			usleep(300000);
			kill(getppid(), SIGKILL);
			_exit(0);
		}
	}
	while (!rc)
		rc = coll_allreduce(comm, in, out, sizeof(in), COLL_INT8, COLL_SUM);
	if (expect(comm, rank, rc, -EOWNERDEAD, "death"))
		return 1;
	return now() - start < 30 ? 0 : remote_fail("took %.1f s", now() - start);
}

static int death(void)
{
	int bad = remote_ranks(1, die);

	/* Ours was killed, and that was right. */
	return machine ? bad != 1 : bad;
}

#define CORRUPT_FAR	"/sys/module/npulink/parameters/corrupt_far"

static int corrupt_far(unsigned int n)
{
	return run("echo %u >" CORRUPT_FAR, n);
}

/* One message, or chunk, arrives damaged on each machine, and is sent again. */
static int damaged_once(struct coll_comm *comm, unsigned int rank)
{
	static const size_t counts[] = { 1, 900, 5000, 200000 };
	static const uint32_t colls[] = {
		NPULINK_COLL_ALLREDUCE, NPULINK_COLL_ALLTOALL, NPULINK_COLL_ALLGATHER,
	};

	for (size_t i = 0; i < ARRAY_SIZE(counts) * ARRAY_SIZE(colls); i++) {
		struct coll_case c = {
			.collective = colls[i % ARRAY_SIZE(colls)],
			.count = counts[i / ARRAY_SIZE(colls)],
			.dtype = COLL_INT32, .op = COLL_SUM,
		};

		/* Nobody sends before all are ready; a barrier has no payload. */
		if (corrupt_far(1) || coll_barrier(comm) || remote_case(comm, rank, &c))
			return 1;
		if (run("grep -qx 0 " CORRUPT_FAR))
			return remote_fail("rank %u: nothing was damaged", rank);
	}
	return 0;
}

static int damaged_twice(struct coll_comm *comm, unsigned int rank)
{
	static char in[1 << 20], out[1 << 20];
	static const size_t sizes[] = { 64, sizeof(in) };
	struct coll_comm *own = comm;
	int bad = 0;

	for (unsigned int i = 0; i < ARRAY_SIZE(sizes) && !bad; i++) {
		int rc;

		if (i) {
			own = remote_join_at(rank, coll_comm_size(comm), remote_port + 1000, 0);
			if (!own)
				return 1;
		}
		bad = warm_up(own, rank);
		/* Only what comes to rank 1 is damaged. */
		if (!bad && rank)
			bad = corrupt_far(1000);
		bad |= coll_barrier(own);
		rc = coll_allreduce(own, in, out, sizes[i], COLL_INT8, COLL_SUM);
		bad = bad || expect(own, rank, rc, -EBADMSG, "checksum");
		/* Nor is a plan to be had that was not there before. */
		rc = coll_allreduce(own, in, out, sizes[i] - 1, COLL_INT8, COLL_SUM);
		bad = bad || expect(own, rank, rc, -EBADMSG, "checksum");
		if (rank)
			bad |= corrupt_far(0);
	}
	if (own != comm)
		coll_comm_destroy(own);
	return bad;
}

static int checksummed(unsigned int per, remote_fn fn)
{
	int bad;

	setenv("COLL_CHECKSUM", "1", 1);
	bad = remote_ranks(per, fn);
	unsetenv("COLL_CHECKSUM");
	return bad;
}

/* The example of npulink-bench(8). */
static bool tool_bench(void)
{
	return !run("COLL_KEY=\"of this test\" build/tools/npulink bench allreduce -p 2 -b 8 -e 64K "
		    "-f 32 -n 2 -I --nnodes 2 --node_rank %u --master_addr vm0", machine);
}

/* That of npulink-tune(8): the first machine has the calibration, with what was in it. */
static bool tool_tune(void)
{
	if (run("printf 'alpha = 1e-6\nfar.alpha = 1\n' >/tmp/calibration && "
		"COLL_KEY=\"of this test\" build/tools/npulink tune far -o /tmp/calibration "
		"--time 0.001 --node_rank %u --master_addr vm0", machine))
		return false;
	return machine || !run("cat /tmp/calibration; grep -qx 'alpha = 1e-6' /tmp/calibration && "
			       "[ $(grep -c '^far.alpha = [0-9.e-]*$' /tmp/calibration) = 1 ] && "
			       "grep -q '^far.beta = [0-9.e-]*[1-9]' /tmp/calibration && "
			       "! grep -qx 'far.alpha = 1' /tmp/calibration");
}

int main(void)
{
	remote_setup(NDEV, 20000);
	ksft_print_header();
	ksft_set_plan(31);
	chosen_result(!remote_ranks(1, sendrecv), "send and receive\n");
	chosen_result(!remote_ranks(1, sends_ahead), "sends ahead of a barrier\n");
	chosen_result(!remote_ranks(2, sends_behind_others), "behind other receives\n");
	chosen_result(!with_algorithm("allreduce:ring", 1, rings),
		      "two rings at a time, 2 x 1\n");
	chosen_result(!with_algorithm("allreduce:ring", 2, rings),
		      "two rings at a time, 2 x 2\n");
	chosen_result(!with_algorithm("allreduce:mesh", 2, meshes),
		      "a message beside a mesh that waits\n");
	chosen_result(!remote_ranks(1, all_collectives), "all collectives, 2 x 1\n");
	chosen_result(!remote_ranks(2, all_collectives), "all collectives, 2 x 2\n");
	random_ops = operations(250, 10000);
	chosen_result(!remote_ranks(2, random_traffic), "random traffic, %u operations\n",
		      random_ops);
	chosen_result(remote_clean(), "after it no key, no connection and no memory is left\n");
	chosen_result(!remote_ranks(1, different_calls), "different calls\n");
	chosen_result(!remote_ranks(1, different_receives), "different calls that only receive\n");
	chosen_result(!remote_ranks(1, different_early), "different calls, one of which is over\n");
	chosen_result(!remote_ranks(1, far_ahead), "a rank is far ahead\n");
	chosen_result(!remote_ranks(1, abort_other), "a rank aborts\n");
	chosen_result(!remote_ranks(1, leave), "a rank leaves\n");
	chosen_result(!remote_ranks(1, leave_early), "a rank leaves what it has done\n");
	chosen_result(!leaves_connecting(), "a rank leaves while it is being connected\n");
	chosen_result(!remote_ranks(1, shrink), "all go on after an abort\n");
	chosen_result(tool_bench(), "npulink bench on both machines\n");
	chosen_result(tool_tune(), "npulink tune far\n");
	chosen_result(!death(), "a rank is killed\n");
	chosen_result(!checksummed(2, all_collectives), "checksums: all collectives\n");
	chosen_result(!checksummed(1, sends_ahead), "checksums: sends ahead of a barrier\n");
	chosen_result(!checksummed(1, leave_early), "checksums: a rank leaves\n");
	random_ops = operations(100, 5000);
	chosen_result(!checksummed(2, random_traffic), "checksums: random traffic\n");
	setenv("COLL_CHECKSUM", "1", 1);
	chosen_result(!with_algorithm("allreduce:mesh", 2, meshes),
		      "checksums: a message beside a mesh that waits\n");
	unsetenv("COLL_CHECKSUM");
	if (access(CORRUPT_FAR, F_OK)) {
		/* Modules that are not for tests, with HERE=1. */
		ksft_test_result_skip("checksums: damaged once\n");
		ksft_test_result_skip("checksums: damaged twice\n");
	} else {
		chosen_result(!checksummed(1, damaged_once), "checksums: damaged once\n");
		chosen_result(!checksummed(1, damaged_twice), "checksums: damaged twice\n");
	}
	chosen_result(remote_clean(), "no key and no connection is left\n");
	ksft_test_result(remote_teardown(), "the modules can be removed\n");
	ksft_finished();
}
