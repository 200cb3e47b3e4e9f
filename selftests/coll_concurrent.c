// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * coll_concurrent.c - a lot at the same time: groups, persistent requests, many
 * communicators, threads, requests in flight, and a storm of signals.
 */
#include <poll.h>
#include <sys/time.h>
#include "coll_ranks.h"
#include "lib/run/comm.h"
#include "lib/run/request.h"

#define RANKS	4

/* On a debug kernel, a third of @n rounds. */
static int some(int n)
{
	return getenv("NPULINK_SLOW") ? n / 3 : n;
}

/* ---- groups */

static int ring_group(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm), n = coll_comm_size(comm);
	int rc = 0;

	for (int i = 0; i < some(60) && !rc; i++) {
		/* Every third round is too large for the arena. */
		size_t count = i % 3 ? 5 : 30000;
		static int64_t out[30000], in[30000], self[2];

		out[0] = 1000 * rank + i;
		out[count - 1] = -out[0];
		self[0] = i;
		rc = coll_group_start(comm);
		rc |= coll_send(comm, out, count, COLL_INT64, (rank + 1) % n);
		rc |= coll_send(comm, &self[0], 1, COLL_INT64, rank);
		rc |= coll_recv(comm, in, count, COLL_INT64, (rank + n - 1) % n);
		rc |= coll_recv(comm, &self[1], 1, COLL_INT64, rank);
		rc = rc ? rc : coll_group_end(comm);
		if (!rc && (in[0] != 1000 * ((rank + n - 1) % n) + i || in[count - 1] != -in[0] ||
			    self[1] != i))
			return rank_fail(ranks, rank, "round %d: wrong data", i);
	}
	return rc;
}

/* Everybody with everybody, collectives in between: like an alltoall by hand. */
static int exchange_group(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm), n = coll_comm_size(comm);
	int out[RANKS], in[RANKS], sum = 0, one = 1, rc = 0;

	for (int i = 0; i < some(40) && !rc; i++) {
		rc = coll_group_start(comm);
		for (unsigned int p = 0; p < n; p++) {
			out[p] = 100 * rank + p + i;
			rc |= coll_recv(comm, &in[p], 1, COLL_INT32, p);
			rc |= coll_send(comm, &out[p], 1, COLL_INT32, p);
		}
		rc |= coll_allreduce(comm, &one, &sum, 1, COLL_INT32, COLL_SUM);
		rc = rc ? rc : coll_group_end(comm);
		for (unsigned int p = 0; p < n && !rc; p++)
			if (in[p] != (int)(100 * p + rank + i) || sum != (int)n)
				return rank_fail(ranks, rank, "round %d: wrong data", i);
	}
	return rc;
}

/* Messages without content arrive, and keep their order among others. */
static int empty_messages(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	int rc = 0, i;

	for (i = 0; i < 10 && !rc; i++) {
		int in = -1;

		if (rank == 0) {
			rc = coll_send(comm, NULL, 0, COLL_INT32, 1);
			rc = rc ? rc : coll_send(comm, &i, 1, COLL_INT32, 1);
		} else if (rank == 1) {
			rc = coll_recv(comm, NULL, 0, COLL_INT32, 0);
			rc = rc ? rc : coll_recv(comm, &in, 1, COLL_INT32, 0);
			if (!rc && in != i)
				return rank_fail(ranks, rank, "%d instead of %d", in, i);
		}
	}
	return rc ? rc : coll_barrier(comm);
}

/* ---- requests */

static int persistent(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	struct coll_request *req[3];
	int in[3][2000], out[3][2000], rc = 0;

	for (int k = 0; k < 3 && !rc; k++)
		rc = coll_allreduce_init(comm, in[k], out[k], k ? 2000 : 3, COLL_INT32, COLL_SUM,
					 &req[k]);
	for (int i = 0; i < some(40) && !rc; i++) {
		for (int k = 0; k < 3; k++)
			in[k][2] = rank + i + k;
		rc = i % 2 ? coll_startall(3, req) : 0;
		for (int k = 0; k < 3 && !(i % 2) && !rc; k++)
			rc = coll_start(req[k]);
		rc = rc ? rc : coll_waitall(3, req);
		for (int k = 0; k < 3 && !rc; k++)
			if (out[k][2] != 6 + RANKS * (i + k))
				return rank_fail(ranks, rank, "round %d: wrong data", i);
	}
	for (int k = 0; k < 3 && !rc; k++)
		rc = coll_request_free(&req[k]);
	return rc;
}

/* As many in flight as the library allows, finished in the opposite order. */
static int many_requests(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	static int in[200], out[200];
	struct coll_request *req[200];
	struct pollfd p = { .fd = coll_comm_fd(comm), .events = POLLIN };
	int rc = 0, done = 0;

	for (int i = 0; i < 200 && !rc; i++) {
		in[i] = rank + i;
		rc = coll_iallreduce(comm, &in[i], &out[i], 1, COLL_INT32, COLL_MAX, &req[i]);
	}
	for (int i = 199; i >= 100 && !rc; i--)
		rc = coll_wait(&req[i]);
	/* The others as an event loop would do it. */
	while (done < 100 && !rc) {
		done = 0;
		for (int i = 0; i < 100 && !rc; i++) {
			rc = coll_test(&req[i]);
			if (rc == -EINPROGRESS)
				rc = 0;
			done += !req[i];
		}
		if (done < 100 && poll(&p, 1, 60000) != 1)
			return rank_fail(ranks, rank, "poll: nothing comes");
	}
	for (int i = 0; i < 200 && !rc; i++)
		if (out[i] != RANKS - 1 + i)
			return rank_fail(ranks, rank, "request %d: wrong data", i);
	return rc;
}

/* ---- threads */

struct thread_arg {
	struct ranks *ranks;
	struct coll_comm *comm;
	int id, rc;
};

/* Each thread has its own conversation with the same thread of the neighbours. */
static void *thread_main(void *arg)
{
	struct thread_arg *a = arg;
	unsigned int n = coll_comm_size(a->comm), rank = coll_comm_rank(a->comm);
	unsigned int peer = (rank + a->id + 1) % n, from = (rank + 2 * n - a->id - 1) % n;
	int out, in;

	for (int i = 0; i < some(60) && !a->rc; i++) {
		out = 10000 * a->id + 100 * rank + i;
		a->rc = coll_group_start(a->comm);
		a->rc |= coll_send(a->comm, &out, 1, COLL_INT32, peer);
		a->rc |= coll_recv(a->comm, &in, 1, COLL_INT32, from);
		a->rc = a->rc ? a->rc : coll_group_end(a->comm);
		if (!a->rc && in != (int)(10000 * a->id + 100 * from + i))
			a->rc = rank_fail(a->ranks, rank, "thread %d, round %d: %d", a->id, i, in);
	}
	return NULL;
}

/* Three threads talk to three different peers of one communicator. */
static int threads(struct ranks *ranks, struct coll_comm *comm)
{
	struct thread_arg arg[3];
	pthread_t thread[3];
	int rc = 0;

	for (int i = 0; i < 3; i++) {
		arg[i] = (struct thread_arg) { .ranks = ranks, .comm = comm, .id = i };
		pthread_create(&thread[i], NULL, thread_main, &arg[i]);
	}
	for (int i = 0; i < 3; i++) {
		pthread_join(thread[i], NULL);
		rc |= arg[i].rc;
	}
	return rc;
}

/* ---- many communicators */

#define COMMS	12

static int many_comms(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	struct coll_comm *c[COMMS] = { };
	struct coll_request *req[COMMS];
	struct coll_unique_id id[COMMS];
	int in[COMMS], out[COMMS], rc = 0;

	if (!rank)
		for (int k = 0; k < COMMS; k++)
			coll_get_unique_id(&id[k]);
	rc = coll_broadcast(comm, COLL_IN_PLACE, id, sizeof(id), COLL_UINT8, 0);
	for (int k = 0; k < COMMS && !rc; k++) {
		struct coll_config config = COLL_CONFIG_INIT;

		/* Half of them share one device file. Ranks in another order in each. */
		config.share = k % 2 ? comm : NULL;
		rc = coll_comm_init_rank(&c[k], RANKS, &id[k], (rank + k) % RANKS, &config);
	}
	for (int i = 0; i < some(20) && !rc; i++) {
		for (int k = 0; k < COMMS && !rc; k++) {
			in[k] = rank + k + i;
			rc = coll_iallreduce(c[k], &in[k], &out[k], 1, COLL_INT32, COLL_SUM,
					     &req[k]);
		}
		for (int k = COMMS - 1; k >= 0 && !rc; k--)
			rc = coll_wait(&req[k]);
		for (int k = 0; k < COMMS && !rc; k++)
			if (out[k] != 6 + RANKS * (k + i))
				return rank_fail(ranks, rank, "communicator %d: wrong data", k);
	}
	for (int k = 0; k < COMMS; k++)
		rc |= coll_comm_destroy(c[k]);
	return rc;
}

/*
 * All ranks in one process, one thread: nothing that a call does may need another call. By
 * requests, or by blocking calls in a group of all of them.
 */
static void test_one_thread(bool grouped)
{
	struct coll_comm *c[8];
	struct coll_request *req[8];
	struct coll_unique_id id;
	static int in[8][30000], out[8][30000];
	int rc = coll_get_unique_id(&id);

	for (int r = 0; r < 8 && !rc; r++)
		rc = coll_comm_init_rank(&c[r], 8, &id, r, NULL);
	for (int i = 0; i < 6 && !rc; i++) {
		size_t count = i % 2 ? 30000 : 10;

		for (int r = 0; r < 8 && grouped; r++)
			rc |= coll_group_start(c[r]);
		for (int r = 0; r < 8 && !rc; r++) {
			for (size_t k = 0; k < count; k++)
				in[r][k] = r + k + i;
			if (grouped)
				rc = coll_allreduce(c[r], in[r], out[r], count, COLL_INT32,
						    COLL_SUM);
			else
				rc = coll_iallreduce(c[r], in[r], out[r], count, COLL_INT32,
						     COLL_SUM, &req[r]);
		}
		for (int r = 0; r < 8 && grouped; r++)
			rc |= coll_group_end(c[r]);
		rc = rc || grouped ? rc : coll_waitall(8, req);
		for (int r = 0; r < 8 && !rc; r++)
			for (size_t k = 0; k < count && !rc; k++)
				rc = out[r][k] != (int)(28 + 8 * (k + i));
	}
	for (int r = 0; r < 8 && !rc; r++)
		rc = coll_comm_destroy(c[r]);
	ksft_test_result(!rc, "eight ranks in one thread%s\n", grouped ? ", as a group" : "");
}

/* ---- signals */

static volatile sig_atomic_t signals;

static void on_signal(int sig)
{
	signals++;
}

/* Without SA_RESTART: the library has to cope, not the kernel. */
static void signals_every(unsigned int us)
{
	const struct itimerval timer = { { 0, us }, { 0, us } };
	struct sigaction sa = { .sa_handler = on_signal };

	sigaction(SIGPROF, &sa, NULL);
	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_PROF, &timer, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
}

static int storm(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	static long in[40000], out[40000];
	struct coll_state state = COLL_STATE_INIT;
	int rc = 0, i;

	signals_every(1000);
	for (i = 0; i < 150 && !rc; i++) {
		size_t count = i % 5 ? 1 + i : 40000;

		for (size_t k = 0; k < count; k++)
			in[k] = rank + k + i;
		/* One is late, so that the others are interrupted while they wait. */
		if (rank == (unsigned int)i % RANKS)
			for (int k = 0; k < 3; k++)
				usleep(2000);
		if (i % 3)
			rc = coll_allreduce(comm, in, out, count, COLL_INT64, COLL_SUM);
		else
			rc = ring_group(ranks, comm) ? -1 :
			     coll_allreduce(comm, in, out, count, COLL_INT64, COLL_SUM);
		for (size_t k = 0; k < count && !rc; k++)
			if (out[k] != (long)(6 + RANKS * (k + i)))
				rc = rank_fail(ranks, rank, "round %d, element %zu: %ld", i, k,
					       out[k]);
		if (i == 3)
			i += 60;	/* groups take long enough */
	}
	signals_every(0);
	if (rc)
		return rc;
	/* None lost, none twice: the kernel has counted as many as we have made. */
	rc = coll_comm_status(comm, &state);
	if (!rc && state.next != 90)
		return rank_fail(ranks, rank, "the kernel has counted %llu collectives",
				 (unsigned long long)state.next);
	__atomic_fetch_add(&ranks->number[0], signals, __ATOMIC_RELAXED);
	return rc;
}

static void test_storm(void)
{
	struct ranks *ranks = ranks_new(RANKS);
	int bad = ranks_run(ranks, storm);

	ksft_print_msg("%d signals\n", ranks->number[0]);
	ksft_test_result(!bad && ranks->number[0] > 100, "a signal every millisecond\n");
	ranks_free(ranks);
}

/* To open a device and to register memory takes long, and is interrupted. */
static void test_begin_in_storm(void)
{
	struct coll_request *req[2];
	struct coll_unique_id id;
	struct coll_comm *c[2];
	int in[2] = { 1, 2 }, out[2], rc = 0, before = signals;

	signals_every(400);
	for (int i = 0; i < some(40) && !rc; i++) {
		rc = coll_get_unique_id(&id);
		for (int r = 0; r < 2 && !rc; r++)
			rc = coll_comm_init_rank(&c[r], 2, &id, r, NULL);
		for (int r = 0; r < 2 && !rc; r++)
			rc = coll_iallreduce(c[r], &in[r], &out[r], 1, COLL_INT32, COLL_SUM,
					     &req[r]);
		rc = rc ? rc : coll_waitall(2, req);
		rc = rc ? rc : out[0] != 3 || out[1] != 3;
		for (int r = 0; r < 2 && !rc; r++)
			rc = coll_comm_destroy(c[r]);
	}
	signals_every(0);
	ksft_print_msg("%d signals: %s\n", signals - before, coll_strerror(rc));
	ksft_test_result(!rc && signals - before > 20, "communicators come and go meanwhile\n");
}

int main(void)
{
	ksft_print_header();
	if (!have_device())
		ksft_exit_skip("no /dev/npulink/npu0\n");
	ksft_set_plan(11);
	ksft_test_result(!ranks_of(RANKS, ring_group), "group: a ring, also to itself\n");
	ksft_test_result(!ranks_of(RANKS, exchange_group), "group: everybody with everybody\n");
	ksft_test_result(!ranks_of(RANKS, empty_messages), "messages without content\n");
	ksft_test_result(!ranks_of(RANKS, persistent), "persistent requests\n");
	ksft_test_result(!ranks_of(RANKS, many_requests), "200 requests, poll\n");
	ksft_test_result(!ranks_of(RANKS, threads), "threads of one communicator\n");
	ksft_test_result(!ranks_of(RANKS, many_comms), "communicators, some share a file\n");
	test_one_thread(false);
	test_one_thread(true);
	test_storm();
	test_begin_in_storm();
	ksft_finished();
}
