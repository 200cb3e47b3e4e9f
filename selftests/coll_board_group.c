// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * coll_board_group.c - groups of small collectives that ranks carry out by themselves: what is
 * left of one in the next, what becomes of those that are refused, and other threads of the
 * communicator.
 *
 * npulink-test: timeout=240
 */
#include "cases.h"
#include "coll_board.h"
#include "coll_ranks.h"
#include "lib/run/comm.h"
#include "lib/run/request.h"

#define ROUNDS	300	/* of which the first make the board */
#define LATE_US	300000	/* for that long nobody looks for the others */

static int run(unsigned int n, int (*fn)(struct ranks *, struct coll_comm *), size_t copy_max)
{
	struct ranks *ranks = ranks_new(n);
	pid_t pid[RANKS_MAX];
	int bad = 0;

	if (copy_max)
		ranks->config.copy_max = copy_max;
	for (unsigned int i = 0; i < n; i++)
		pid[i] = rank_start(ranks, i, fn);
	for (unsigned int i = 0; i < n; i++)
		bad += rank_join_end(ranks, i, pid[i]);
	ranks_free(ranks);
	return bad;
}

/* Sums of four numbers each, in one group. */
static int group(struct coll_comm *comm, int *in, int *out, unsigned int calls)
{
	int rc = coll_group_start(comm);

	for (unsigned int i = 0; i < calls && !rc; i++)
		rc = coll_allreduce(comm, in + 4 * i, out + 4 * i, 4, COLL_INT32, COLL_SUM);
	return rc ? rc : coll_group_end(comm);
}

/* So many groups of two that ranks have the board. */
static int meet_often(struct ranks *ranks, struct coll_comm *comm, int *in, int *out)
{
	int rc = 0;

	for (int i = 0; i < ROUNDS && !rc; i++)
		rc = group(comm, in, out, 2);
	if (!rc && !met(comm))
		rc = rank_fail(ranks, coll_comm_rank(comm), "nothing was met");
	return rc;
}

/*
 * The last rank is so late for the last one that the others post it. What they have of it for the
 * next group must not say that it is still on the board: that one is refused on all ranks alike.
 */
static int refused(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm), n = coll_comm_size(comm);
	void *none = mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	static int in[4], out[4];
	struct coll_request *req;
	int rc = 0, all = 0;

	for (int i = 0; i < ROUNDS && !rc; i++) {
		if (i == ROUNDS - 1 && rank == n - 1)
			pause_us(LATE_US);
		rc = group(comm, in, out, 1);
	}
	if (rc)
		return rc;
	if (!met(comm))
		return rank_fail(ranks, rank, "nothing was met");
	rc = coll_group_start(comm);
	rc = rc ? rc : coll_allreduce(comm, in, out, 4, COLL_INT32, COLL_SUM);
	rc = rc ? rc : coll_iallreduce(comm, COLL_IN_PLACE, none, 1 << 18, COLL_INT32, COLL_SUM,
				       &req);
	if (rc)
		return rc;
	rc = coll_group_end(comm);
	if (rc != -EFAULT || coll_wait(&req) != -EFAULT)
		return rank_fail(ranks, rank, "%d, not EFAULT", rc);
	pthread_barrier_wait(&ranks->barrier);
	rc = coll_allreduce(comm, &(int){ 1 }, &all, 1, COLL_INT32, COLL_SUM);
	if (rc || all != (int)n)
		return rank_fail(ranks, rank, "then %d, sum %d", rc, all);
	return 0;
}

/*
 * Rank 0's memory is such that nothing can be pinned, which it finds out when it posts what the
 * others have posted by then. It is as without a board: the call has not been made, and when it is
 * made again, it is that one.
 */
static int pinned(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm), n = coll_comm_size(comm);
	int *in = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int *out = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (int i = 0; i < ROUNDS + 4; i++) {
		int rc, want = i * n;

		in[0] = i;
		if (i == ROUNDS && !met(comm))
			return rank_fail(ranks, rank, "nothing was met");
		if (rank == 0 && i == ROUNDS)
			mmap(out, 8192, PROT_READ, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (rank == n - 1 && (i == ROUNDS || i == ROUNDS - 2))
			pause_us(LATE_US);
		rc = group(comm, in, out, 1);
		if (rank == 0 && i == ROUNDS) {
			if (rc != -EFAULT)
				return rank_fail(ranks, rank, "%d, not EFAULT", rc);
			mmap(out, 8192, PROT_READ | PROT_WRITE,
			     MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			rc = group(comm, in, out, 1);
		}
		if (rc || out[0] != want)
			return rank_fail(ranks, rank, "group %d: %d, sum %d, not %d", i, rc, out[0],
					 want);
	}
	return 0;
}

/*
 * The same with two calls in a group: if all ranks have met the second one, what rank 0 cannot post
 * any more is the end for all.
 */
static int gap(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm), n = coll_comm_size(comm);
	int *in = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int *out = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool failed = false;

	for (int i = 0; i < ROUNDS + 4; i++) {
		int rc;

		for (int k = 0; k < 8; k++)
			in[k] = i + k;
		if (rank == 0 && i == ROUNDS)
			mmap(out, 8192, PROT_READ, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (rank == n - 1 && i == ROUNDS)
			pause_us(LATE_US);
		rc = group(comm, in, out, 2);
		if (rank == 0 && i == ROUNDS) {
			mmap(out, 8192, PROT_READ | PROT_WRITE,
			     MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			rc = rc == -EFAULT ? group(comm, in, out, 2) : rc;
		}
		failed |= rc;
		for (int k = 0; k < 8 && !rc; k++)
			if (failed || out[k] != (int)n * (i + k))
				return rank_fail(ranks, rank, "group %d: %d", i, out[k]);
	}
	return 0;
}

/* ---- two threads, nothing but barriers: any order is the same order ---- */

#define BARRIERS	150	/* groups, of three */

struct threads {
	struct coll_comm *comm;
	unsigned int seed;
	int rc;
};

static void nap(unsigned int *seed)
{
	if (rand_r(seed) % 12 == 0)
		pause_us(rand_r(seed) % 16000);
}

static void *in_groups(void *arg)
{
	struct threads *t = arg;

	for (int i = 0; i < BARRIERS && !t->rc; i++) {
		nap(&t->seed);
		t->rc = coll_group_start(t->comm);
		for (int k = 0; k < 3 && !t->rc; k++)
			t->rc = coll_barrier(t->comm);
		t->rc = t->rc ? t->rc : coll_group_end(t->comm);
	}
	return NULL;
}

static int threads(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm), seed = rank * 99 + 5;
	struct threads other = { .comm = comm, .seed = rank * 77 + 1 };
	pthread_t thread;
	int rc = 0;

	for (int i = 0; i < ROUNDS && !rc; i++)
		rc = coll_barrier(comm);
	if (rc)
		return rc;
	pthread_create(&thread, NULL, in_groups, &other);
	for (int i = 0; i < 3 * BARRIERS && !rc; i++) {
		struct coll_request *req;

		nap(&seed);
		rc = i % 4 ? coll_barrier(comm) : coll_ibarrier(comm, &req);
		if (!rc && i % 4 == 0)
			rc = coll_wait(&req);
	}
	pthread_join(thread, NULL);
	if (rc || other.rc)
		return rank_fail(ranks, rank, "%d and %d", rc, other.rc);
	if (!met(comm))
		return rank_fail(ranks, rank, "nothing was met");
	return 0;
}

/*
 * The other thread's message is not behind the group: its receiver calls what the group does only
 * when it has that.
 */
static void *send_late(void *arg)
{
	struct threads *t = arg;
	int one = 1;

	pause_us(50000);
	t->rc = coll_send(t->comm, &one, 1, COLL_INT32, 1);
	return NULL;
}

static int message(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	struct threads other = { .comm = comm };
	static int in[8], out[8];
	pthread_t thread;
	int rc, got = 0;

	rc = meet_often(ranks, comm, in, out);
	if (rc)
		return rc;
	if (rank == 0)
		pthread_create(&thread, NULL, send_late, &other);
	else
		rc = coll_recv(comm, &got, 1, COLL_INT32, 0);
	rc = rc ? rc : group(comm, in, out, 2);
	if (rank == 0)
		pthread_join(thread, NULL);
	if (rc || other.rc || got != (int)rank)
		return rank_fail(ranks, rank, "%d, %d, got %d", rc, other.rc, got);
	return 0;
}

/*
 * Nor is one behind a request that was started during the group: that starts, though the group is
 * far from its end.
 */
static void *start_and_send(void *arg)
{
	struct threads *t = arg;
	struct coll_request *req;
	int one = 1;

	pause_us(LATE_US);
	t->rc = coll_ibarrier(t->comm, &req);
	if (t->rc)
		return NULL;
	t->rc = coll_send(t->comm, &one, 1, COLL_INT32, 1);
	t->rc = t->rc ? t->rc : coll_wait(&req);
	return NULL;
}

static int barriers(struct coll_comm *comm, unsigned int n)
{
	int rc = coll_group_start(comm);

	for (unsigned int i = 0; i < n && !rc; i++)
		rc = coll_barrier(comm);
	return rc ? rc : coll_group_end(comm);
}

static int request(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	struct threads other = { .comm = comm };
	pthread_t thread;
	int rc = 0, got = 0;

	for (int i = 0; i < ROUNDS && !rc; i++)
		rc = barriers(comm, 3);
	if (rc)
		return rc;
	if (!met(comm))
		return rank_fail(ranks, rank, "nothing was met");
	if (rank == 0)
		pthread_create(&thread, NULL, start_and_send, &other);
	else
		rc = coll_recv(comm, &got, 1, COLL_INT32, 0);
	rc = rc ? rc : barriers(comm, rank ? 4 : 3);
	if (rank == 0)
		pthread_join(thread, NULL);
	if (rc || other.rc || got != (int)rank)
		return rank_fail(ranks, rank, "%d, %d, got %d", rc, other.rc, got);
	return 0;
}

static uint64_t syscalls(struct coll_comm *comm)
{
	struct coll_comm_info info = COLL_COMM_INFO_INIT;

	coll_comm_info(comm, &info);
	return info.syscalls;
}

/*
 * A message of the group does not wait for what others call only when they have it: the group is
 * posted, and nobody sleeps at the board first.
 */
static int with_message(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm), calls = 100;
	static int in[8] = { 1, 2 }, out[8];
	int rc, got = 0, wrong = 0;
	uint64_t before, made;

	rc = meet_often(ranks, comm, in, out);
	if (rc)
		return rc;
	before = syscalls(comm);
	for (unsigned int i = 0; i < calls && !rc; i++) {
		int number = i;

		if (rank == 0) {
			rc = coll_group_start(comm);
			rc = rc ? rc : coll_allreduce(comm, in, out, 4, COLL_INT32, COLL_SUM);
			rc = rc ? rc : coll_send(comm, &number, 1, COLL_INT32, 1);
			rc = rc ? rc : coll_group_end(comm);
		} else {
			rc = coll_recv(comm, &got, 1, COLL_INT32, 0);
			rc = rc ? rc : coll_allreduce(comm, in, out, 4, COLL_INT32, COLL_SUM);
			wrong += got != number;
		}
		wrong += out[0] != 2 || out[1] != 4;
	}
	made = syscalls(comm) - before;
	if (rc || wrong)
		return rank_fail(ranks, rank, "%d, %d wrong", rc, wrong);
	/* One to post both, and sometimes one more to wait for the message. */
	if (rank == 0 && made > calls * 5 / 2)
		return rank_fail(ranks, rank, "%llu system calls for %u groups",
				 (unsigned long long)made, calls);
	return 0;
}

/* The same calls each time, but with other buffers, some in place. */
static int moving(struct ranks *ranks, struct coll_comm *comm)
{
	static int in[64][8], out[64][8];
	unsigned int rank = coll_comm_rank(comm), n = coll_comm_size(comm);
	uint64_t before;
	int rc = meet_often(ranks, comm, in[0], out[0]);

	before = met(comm);
	for (int i = 0; i < ROUNDS && !rc; i++) {
		int *a = in[i * 7 % 64], *b = out[i * 11 % 64];
		bool in_place = i / 32 % 3 == 2;

		for (int k = 0; k < 8; k++)
			a[k] = b[k] = i * (k + 1) + rank;
		rc = group(comm, in_place ? b : a, b, 2);
		for (int k = 0; k < 8 && !rc; k++)
			if (b[k] != (int)(n * i * (k + 1) + n * (n - 1) / 2))
				return rank_fail(ranks, rank, "group %d: %d", i, b[k]);
	}
	if (!rc && met(comm) - before < ROUNDS)
		return rank_fail(ranks, rank, "%d were met", (int)(met(comm) - before));
	return rc;
}

int main(void)
{
	ksft_print_header();
	if (!have_device())
		ksft_exit_skip("no device\n");
	ksft_set_plan(11);
	chosen_result(!run(2, refused, 0), "2 ranks: after one that was late, one is refused\n");
	chosen_result(!run(4, refused, 0), "4 ranks: after one that was late, one is refused\n");
	chosen_result(!run(2, pinned, 1), "2 ranks: on the board, and cannot be pinned\n");
	chosen_result(!run(3, gap, 1), "3 ranks: two on the board, which cannot be pinned\n");
	chosen_result(!run(2, threads, 0), "2 ranks: two threads and groups of barriers\n");
	chosen_result(!run(3, threads, 0), "3 ranks: two threads and groups of barriers\n");
	chosen_result(!run(2, message, 0), "2 ranks: a message that they wait for first\n");
	chosen_result(!run(2, request, 0), "2 ranks: a request that is started meanwhile\n");
	chosen_result(!run(2, with_message, 0), "2 ranks: a message in the group\n");
	chosen_result(!run(2, moving, 0), "2 ranks: other buffers each time\n");
	chosen_result(!run(4, moving, 0), "4 ranks: other buffers each time\n");
	ksft_finished();
}
