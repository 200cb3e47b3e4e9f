// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * coll_board_requests.c - requests that ranks carry out by themselves: started and waited for in
 * any order, beside other calls and other forms of the same call; and what takes long, fails or is
 * called differently is noticed as ever.
 *
 * npulink-test: timeout=240
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/syscall.h>
#include "cases.h"
#include "coll_board.h"
#include "coll_ranks.h"
#include "lib/run/comm.h"
#include "lib/run/request.h"

#define PATIENCE	4000	/* calls, each of them by all ranks, until some are met */
#define COUNT		8

static int run(unsigned int n, int (*fn)(struct ranks *, struct coll_comm *), int number)
{
	struct ranks *ranks = ranks_new(n);
	int bad;

	ranks->number[0] = number;
	bad = ranks_run(ranks, fn);
	ranks_free(ranks);
	return bad;
}

static int add(struct coll_comm *comm, const int *in, int *out, struct coll_request **req)
{
	return coll_iallreduce(comm, in, out, COUNT, COLL_INT32, COLL_SUM, req);
}

/* Of what each rank brings: @seed, plus its number. */
static int sum_of(unsigned int n, int seed)
{
	return n * seed + n * (n - 1) / 2;
}

static void set_all(int v[COUNT], int value)
{
	for (int i = 0; i < COUNT; i++)
		v[i] = value;
}

/* ---- each collective ---- */

enum what {
	ALLREDUCE, REDUCE_SCATTER, ALLGATHER, ALLTOALL, REDUCE, GATHER, BROADCAST, SCATTER,
	BARRIER, WHATS,
};

/* What it makes of @in: a request that is started, or one that is only prepared. */
static int request_of(struct coll_comm *comm, enum what what, bool prepared, const int *in,
		      int *out, struct coll_request **req)
{
	const enum coll_dtype t = COLL_INT32;

	switch (what) {
	case ALLREDUCE:
		return (prepared ? coll_allreduce_init : coll_iallreduce)
			(comm, in, out, COUNT, t, COLL_SUM, req);
	case REDUCE_SCATTER:
		return (prepared ? coll_reduce_scatter_init : coll_ireduce_scatter)
			(comm, in, out, COUNT, t, COLL_SUM, req);
	case ALLGATHER:
		return (prepared ? coll_allgather_init : coll_iallgather)
			(comm, in, out, COUNT, t, req);
	case ALLTOALL:
		return (prepared ? coll_alltoall_init : coll_ialltoall)
			(comm, in, out, COUNT, t, req);
	case REDUCE:
		return (prepared ? coll_reduce_init : coll_ireduce)
			(comm, in, out, COUNT, t, COLL_SUM, 1, req);
	case GATHER:
		return (prepared ? coll_gather_init : coll_igather)
			(comm, in, out, COUNT, t, 1, req);
	case BROADCAST:
		return (prepared ? coll_broadcast_init : coll_ibroadcast)
			(comm, in, out, COUNT, t, 1, req);
	case SCATTER:
		return (prepared ? coll_scatter_init : coll_iscatter)
			(comm, in, out, COUNT, t, 1, req);
	default:
		return (prepared ? coll_barrier_init : coll_ibarrier)(comm, req);
	}
}

/* Element @i of rank @r's input in round @k. */
static int value(int r, int i, int k)
{
	return 1000 * r + i + 7 * k;
}

/* Which block of whose input is in block @b of rank @rank's output; of sums, of all ranks. */
static bool is_right(enum what what, unsigned int rank, unsigned int n, const int *out, int k)
{
	bool sums = what == ALLREDUCE || what == REDUCE || what == REDUCE_SCATTER;
	bool blocks = what == ALLGATHER || what == GATHER || what == ALLTOALL;

	if (what == BARRIER || ((what == REDUCE || what == GATHER) && rank != 1))
		return true;
	for (unsigned int b = 0; b < (blocks ? n : 1); b++) {
		for (int i = 0; i < COUNT; i++) {
			int at = what == REDUCE_SCATTER || what == ALLTOALL || what == SCATTER ?
				 (int)rank * COUNT + i : i;
			int want = 0;

			for (unsigned int r = 0; sums && r < n; r++)
				want += value(r, at, k);
			if (!sums)
				want = value(blocks ? b : 1, at, k);
			if (out[b * COUNT + i] != want)
				return false;
		}
	}
	return true;
}

/* Until some are met; persistent if so told. */
static int each(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm), n = coll_comm_size(comm);
	bool prepared = ranks->number[0];
	static int in[4 * COUNT], out[4 * COUNT];
	int rc = warm_up(comm);

	for (enum what what = 0; what < WHATS && !rc; what++) {
		struct coll_request *req = NULL;
		uint64_t before, some = 0;
		int k;

		if (prepared)
			rc = request_of(comm, what, true, in, out, &req);
		for (k = 0; k < PATIENCE && !rc && some < 8; k++) {
			for (unsigned int i = 0; i < n * COUNT; i++)
				in[i] = value(rank, i, k);
			memset(out, 0xa5, sizeof(out));
			before = met(comm);
			rc = prepared ? coll_start(req) :
			     request_of(comm, what, false, in, out, &req);
			rc = rc ? rc : coll_wait(&req);
			some += met(comm) - before;
			if (!rc && !is_right(what, rank, n, out, k))
				return rank_fail(ranks, rank, "collective %d, round %d", what, k);
		}
		if (!rc && k == PATIENCE)
			return rank_fail(ranks, rank, "collective %d: %d met", what, (int)some);
		rc = rc ? rc : coll_request_free(&req);
	}
	return rc;
}

/* Several at a time, among them one that is too large, until some are met. */
static int together(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm), n = coll_comm_size(comm);
	static int in[4][20000], out[4][20000];
	struct coll_request *req[4] = { };
	int rc = warm_up(comm), k;
	uint64_t before = met(comm);

	for (int i = 0; i < 4 && !rc; i++)
		rc = coll_allreduce_init(comm, in[i], out[i], i == 2 ? 20000 : COUNT, COLL_INT32,
					 COLL_SUM, &req[i]);
	for (k = 0; k < PATIENCE && !rc && met(comm) - before < 8; k++) {
		for (int i = 0; i < 4; i++)
			set_all(in[i], k + i + rank);
		rc = coll_startall(k % 2 ? 4 : 2, req);
		rc = rc ? rc : coll_waitall(4, req);
		for (int i = 0; i < (k % 2 ? 4 : 2) && !rc; i++)
			if (out[i][3] != sum_of(n, k + i))
				return rank_fail(ranks, rank, "round %d: %d", k, i);
	}
	if (!rc && k == PATIENCE)
		return rank_fail(ranks, rank, "%d met", (int)(met(comm) - before));
	for (int i = 0; i < 4 && !rc; i++)
		rc = coll_request_free(&req[i]);
	return rc;
}

/* ---- while the caller computes ---- */

/*
 * Rank 0 starts one, and looks at nothing of the library until the others say that they have its
 * result. Now and then a rank is so late on a slow host that it is posted: not each time.
 */
static int computing(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm), n = coll_comm_size(comm), ended = 0;
	int in[COUNT], out[COUNT], rc = warm_up(comm);
	struct coll_request *req = NULL;

	for (int i = 0; i < 10 && !rc; i++) {
		set_all(in, i + rank);
		rc = coll_barrier(comm);
		if (rank == 0) {
			uint64_t began = now_ms();

			rc = rc ? rc : add(comm, in, out, &req);
			while (!rc && now_ms() - began < 3000 &&
			       __atomic_load_n(&ranks->number[1 + i], __ATOMIC_SEQ_CST) <
			       (int)n - 1)
				pause_us(100);
			ended += now_ms() - began < 3000;
			rc = rc ? rc : coll_wait(&req);
		} else {
			if (rank == 1)
				pause_us(60000);	/* longer than the others would wait */
			rc = rc ? rc : coll_allreduce(comm, in, out, COUNT, COLL_INT32, COLL_SUM);
			__atomic_fetch_add(&ranks->number[1 + i], 1, __ATOMIC_SEQ_CST);
		}
		if (!rc && out[3] != sum_of(n, i))
			return rank_fail(ranks, rank, "round %d: %d", i, out[3]);
	}
	return rc || rank || ended > 2 ? rc : rank_fail(ranks, rank, "%u of 10 ended", ended);
}

/* ---- in any order ---- */

#define MANY	20	/* more than there is room for */

/* Started one after the other, and waited for the other way round, or tested for. */
static int reversed(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm), n = coll_comm_size(comm);
	static int in[MANY][COUNT], out[MANY][COUNT];
	struct coll_request *req[MANY];
	int rc = warm_up(comm), one;

	for (int round = 0; round < 60 && !rc; round++) {
		int many = 2 + mix(round, 3) % (MANY - 1);

		for (int i = 0; i < many && !rc; i++) {
			set_all(in[i], round + i + rank);
			rc = add(comm, in[i], out[i], &req[i]);
			if (mix(mix(i, round), rank) % 64 == 0)
				pause_us(mix(round, rank) % 2 ? 300 : 15000);
		}
		for (int i = many; i-- && !rc;) {
			if (mix(mix(i, rank), round) % 2) {
				do
					one = coll_test(&req[i]);
				while (one == -EINPROGRESS);
			} else if (mix(mix(i, rank), round) % 4) {
				do
					one = coll_wait_deadline(&req[i], now_ms() * 1000000 +
								 100000);
				while (one == -EINPROGRESS);
			} else {
				one = coll_wait(&req[i]);
			}
			rc = one;
			if (!rc && out[i][1] != sum_of(n, round + i))
				return rank_fail(ranks, rank, "round %d, %d of %d: %d", round, i,
						 many, out[i][1]);
		}
	}
	return rc;
}

#define SOME	6

static int is_idle(void *arg)
{
	return ++*(int *)arg % 2;
}

/* Each of them ends once, whoever is late; what is not there is passed over. */
static int any(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm), n = coll_comm_size(comm), done, at[SOME];
	static int in[SOME][COUNT], out[SOME][COUNT];
	struct coll_request *req[SOME] = { };
	int rc = warm_up(comm), idles = 0;

	rc = rc ? rc : coll_allreduce_init(comm, in[3], out[3], COUNT, COLL_INT32, COLL_SUM,
					   &req[3]);
	for (int round = 0; round < 60 && !rc; round++) {
		unsigned int left = 0, ended[SOME] = { };

		if (mix(round, rank) % 16 == 0)
			pause_us(mix(rank, round) % 2 ? 300 : 15000);
		for (unsigned int i = 0; i < SOME && !rc; i++) {
			if (i == 1 || (i == 3 && round % 2))
				continue;
			set_all(in[i], round + i + rank);
			rc = i == 3 ? coll_start(req[i]) : add(comm, in[i], out[i], &req[i]);
			left++;
		}
		if (round % 4 == 3 && !rc) {
			rc = coll_wait_idle(&req[SOME - 1], is_idle, &idles);
			ended[SOME - 1] = 1;
			left--;
		}
		while (left && !rc) {
			done = 1;
			if (round % 4 == 1) {
				rc = coll_waitsome(SOME, req, &done, at);
			} else if (round % 4 == 2) {
				while ((rc = coll_testany(SOME, req, at)) == -EINPROGRESS)
					if (at[0] != SOME)
						return rank_fail(ranks, rank, "one, but none");
			} else {
				rc = coll_waitany(SOME, req, at);
			}
			if (!rc && (!done || done > left))
				return rank_fail(ranks, rank, "%u of %u", done, left);
			left -= done;
			while (done-- && !rc)
				if (at[done] >= SOME || ended[at[done]]++ ||
				    out[at[done]][1] != sum_of(n, round + at[done]))
					return rank_fail(ranks, rank, "round %d: %u", round,
							 at[done]);
		}
		if (!rc && (coll_waitany(SOME, req, at) || at[0] != SOME ||
			    coll_waitsome(SOME, req, &done, at) || done))
			return rank_fail(ranks, rank, "round %d: there is one more", round);
	}
	return rc ? rc : coll_request_free(&req[3]);
}

#define BIG	20000

/*
 * The same calls, whose forms and delays are each rank's own: blocking, requests, persistent ones,
 * groups; between them messages, and large ones.
 */
static int mixed(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm), n = coll_comm_size(comm), open = 0;
	static int in[4][COUNT], out[4][COUNT], big_in[BIG], big_out[BIG];
	struct coll_request *req[4] = { }, *big = NULL, *again;
	int seeds[4], in_again[COUNT], out_again[COUNT], word = 0;
	int rc = warm_up(comm);

	rc = rc ? rc : coll_allreduce_init(comm, in_again, out_again, COUNT, COLL_INT32, COLL_SUM,
					   &again);
	for (unsigned int i = 0; i < 400 && !rc; i++) {
		unsigned int what = mix(i, 9) % 16, mine = mix(mix(i, 4), rank);

		if (mine % 128 < 2)
			pause_us(mine % 2 ? 15000 : 200);
		if (what < 10) {
			set_all(in[open], i + rank);
			set_all(in_again, i + rank);
			seeds[open] = i;
			if (mine % 4 == 0) {
				rc = coll_allreduce(comm, in[open], out[open], COUNT, COLL_INT32,
						    COLL_SUM);
			} else if (mine % 4 == 1) {
				rc = coll_start(again);
				rc = rc ? rc : coll_wait(&again);
				memcpy(out[open], out_again, sizeof(out_again));
			} else if (mine % 16 == 2) {
				rc = coll_group_start(comm);
				rc = rc ? rc : coll_allreduce(comm, in[open], out[open], COUNT,
							      COLL_INT32, COLL_SUM);
				rc = rc ? rc : coll_group_end(comm);
			} else {
				rc = add(comm, in[open], out[open], &req[open]);
			}
			open++;
		} else if (what < 12) {
			rc = coll_wait(&big);
			rc = rc ? rc : coll_iallreduce(comm, big_in, big_out, BIG, COLL_INT32,
						       COLL_SUM, &big);
		} else if (what < 14 && rank < 2) {
			word = i;
			rc = rank ? coll_send(comm, &word, 1, COLL_INT32, 0) :
				    coll_recv(comm, &word, 1, COLL_INT32, 1);
			if (!rc && word != (int)i)
				return rank_fail(ranks, rank, "round %u: the word", i);
		} else if (what == 14) {
			rc = coll_wait(&big);
		}
		if (open == 4 || what == 15) {
			for (unsigned int k = 0; k < open && !rc; k++) {
				rc = coll_wait(&req[k]);
				if (!rc && out[k][2] != sum_of(n, seeds[k]))
					return rank_fail(ranks, rank, "round %u, %u: %d", i, k,
							 out[k][2]);
			}
			open = 0;
		}
	}
	rc = rc ? rc : coll_waitall(4, req);
	rc = rc ? rc : coll_wait(&big);
	return rc ? rc : coll_request_free(&again);
}

struct pair {
	struct coll_comm *comm;
	int rc;
};

static void *adder(void *arg)
{
	struct pair *p = arg;
	int in[COUNT], out[COUNT];
	struct coll_request *req;

	set_all(in, 1);
	for (int i = 0; i < 150 && !p->rc; i++) {
		p->rc = add(p->comm, in, out, &req);
		p->rc = p->rc ? p->rc : coll_wait(&req);
		if (!p->rc && out[0] != (int)coll_comm_size(p->comm))
			p->rc = -EIO;
	}
	return NULL;
}

/* Each of which may meet the calls of either of the other rank. */
static int threads(struct ranks *ranks, struct coll_comm *comm)
{
	struct pair a = { comm, 0 }, b = { comm, 0 };
	pthread_t thread;
	int rc = warm_up(comm);

	if (rc || pthread_create(&thread, NULL, adder, &a))
		return rc ? rc : -1;
	adder(&b);
	pthread_join(thread, NULL);
	return a.rc ? a.rc : b.rc;
}

/* ---- what is noticed as ever ---- */

/* Rank 0 waits for a message of rank 1, and that for a request, for which rank 2 is late. */
static int circle(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	int in[COUNT] = { 1 }, out[COUNT], word = 5, rc = warm_up(comm);
	struct coll_request *req = NULL;

	if (rank == 2)
		pause_us(1500000);
	rc = rc ? rc : add(comm, in, out, &req);
	if (rank == 0)
		rc = rc ? rc : coll_recv(comm, &word, 1, COLL_INT32, 1);
	rc = rc ? rc : coll_wait(&req);
	if (rank == 1)
		rc = rc ? rc : coll_send(comm, &word, 1, COLL_INT32, 0);
	return rc ? rc : out[0] != 3;
}

static int late(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	int in[COUNT] = { 1 }, out[COUNT], rc = warm_up(comm);
	struct coll_request *req = NULL;

	ranks->number[rank + 1] = 1;
	while (!rc && rank == 1 && !__atomic_load_n(&ranks->number[0], __ATOMIC_SEQ_CST))
		pause_us(1000);
	rc = rc ? rc : add(comm, in, out, &req);
	return rc ? rc : coll_wait(&req);
}

/* Rank 0 tests until it is posted: then it is the kernel's, and the ring tells of its end. */
static int tested(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	int in[COUNT] = { 1 }, out[COUNT], rc = warm_up(comm);
	struct coll_request *req = NULL;

	while (!rc && rank == 1 && !__atomic_load_n(&ranks->number[1], __ATOMIC_SEQ_CST))
		pause_us(1000);
	rc = rc ? rc : add(comm, in, out, &req);
	if (rank == 1)
		return rc ? rc : coll_wait(&req);
	while (!rc && req->state != COLL_REQ_INFLIGHT && (rc = coll_test(&req)) == -EINPROGRESS)
		rc = 0;
	__atomic_store_n(&ranks->number[1], 1, __ATOMIC_SEQ_CST);
	if (rc || !req)
		return rank_fail(ranks, rank, "%d before rank 1 had come", rc);
	while ((rc = coll_test(&req)) == -EINPROGRESS)
		;
	return rc;
}

/* Who polls gets what it polls for, whatever was started before. */
static int polled(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	int in[COUNT] = { 1 }, out[COUNT], rc = warm_up(comm);
	struct coll_request *req = NULL;
	struct pollfd p = { .events = POLLIN };

	for (int i = 0; i < 20 && !rc; i++) {
		if (rank == 1)
			pause_us(2000);
		rc = add(comm, in, out, &req);
		p.fd = coll_comm_fd(comm);
		while (!rc && (rc = coll_test(&req)) == -EINPROGRESS)
			rc = poll(&p, 1, 30000) == 1 ? 0 :
			     rank_fail(ranks, rank, "call %d: nothing to read", i);
	}
	return rc;
}

/* Rank 1 dies, having started it (1) or not (0); rank 0 waits for that and for the next one. */
static int death(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	int in[COUNT] = { 1 }, out[COUNT], rc = warm_up(comm);
	struct coll_request *req = NULL, *next = NULL;

	if (rank == 1) {
		if (ranks->number[0])
			rc = add(comm, in, out, &req);
		pause_us(5000);
		_exit(rc);
	}
	rc = rc ? rc : add(comm, in, out, &req);
	rc = rc ? rc : add(comm, in, out, &next);
	/* It may be met, if the dead one has started it. */
	if (!rc) {
		rc = coll_wait(&req);
		if (rc && rc != -EOWNERDEAD)
			return rank_fail(ranks, rank, "%d, not EOWNERDEAD", rc);
		rc = coll_wait(&next);
	}
	return rc == -EOWNERDEAD ? 0 : rank_fail(ranks, rank, "%d, not EOWNERDEAD", rc);
}

/* Rank 1 adds up something else. */
static int mismatch(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	int in[COUNT] = { 1 }, out[COUNT], rc = warm_up(comm);
	struct coll_request *req = NULL;

	rc = rc ? rc : coll_iallreduce(comm, in, out, rank == 1 ? 2 : 1, COLL_INT32, COLL_SUM,
				       &req);
	rc = rc ? rc : coll_wait(&req);
	return rc == -EPROTO ? 0 : rank_fail(ranks, rank, "%d, not EPROTO", rc);
}

/* Rank 1 takes part in what the root has gone on from, and asks for something else. */
static int led_mismatch(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	int in[COUNT] = { 1 }, rc = warm_up(comm);
	struct coll_request *req = NULL;

	rc = rc ? rc : coll_ibroadcast(comm, COLL_IN_PLACE, in, rank == 1 ? 2 : 1, COLL_INT32, 0,
				       &req);
	rc = rc ? rc : coll_wait(&req);
	rc = rc ? rc : coll_barrier(comm);
	return rc == -EPROTO ? 0 : rank_fail(ranks, rank, "%d, not EPROTO", rc);
}

static int deadline(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	int in[COUNT] = { 1 }, out[COUNT], rc = warm_up(comm);
	struct coll_request *req = NULL;

	if (rank == 1)
		pause_us(ranks->number[0] * 1000);
	rc = rc ? rc : add(comm, in, out, &req);
	rc = rc ? rc : coll_wait(&req);
	return rc == -ETIMEDOUT ? 0 : rank_fail(ranks, rank, "%d, not ETIMEDOUT", rc);
}

static bool do_deadline(void)
{
	int bad, slow = getenv("NPULINK_SLOW") ? 10 : 1;
	struct ranks *ranks = ranks_new(2);

	ranks->config.deadline_ns = 500000000ULL * slow;
	ranks->number[0] = 1000 * slow;
	bad = ranks_run(ranks, deadline);
	ranks_free(ranks);
	return !bad;
}

/* While it goes on, neither it nor its communicator can be freed. */
static int freed(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	int in[COUNT] = { 1 }, out[COUNT], rc = warm_up(comm);
	struct coll_request *req = NULL;

	if (rank == 0) {
		rc = rc ? rc : add(comm, in, out, &req);
		rc = rc ? rc : coll_request_free(&req);
		if (rc != -EBUSY || coll_comm_destroy(comm) != -EBUSY)
			return rank_fail(ranks, rank, "%d, not EBUSY", rc);
		rc = 0;
	}
	__atomic_fetch_add(&ranks->number[1], 1, __ATOMIC_SEQ_CST);
	while (rank == 1 && !rc && __atomic_load_n(&ranks->number[1], __ATOMIC_SEQ_CST) < 2)
		pause_us(1000);
	if (rank == 1)
		rc = rc ? rc : add(comm, in, out, &req);
	return rc ? rc : coll_wait(&req);
}

/* What is on the board goes with a communicator that has failed. */
static int aborted(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	int in[COUNT] = { 1 }, out[COUNT], rc = warm_up(comm);
	struct coll_request *req = NULL;

	if (rank == 0)
		rc = rc ? rc : add(comm, in, out, &req);
	if (rank == 0 && !rc)
		coll_comm_abort(comm, 7);
	return rc;
}

static void test(unsigned int n, int (*fn)(struct ranks *, struct coll_comm *), int number,
		 const char *what)
{
	chosen_result(!run(n, fn, number), "%u ranks: %s\n", n, what);
}

int main(void)
{
	ksft_print_header();
	if (!have_device())
		ksft_exit_skip("no device\n");
	ksft_set_plan(25);
	test(2, each, 0, "requests of each collective");
	test(3, each, 0, "requests of each collective");
	test(2, each, 1, "persistent ones of each collective");
	test(3, each, 1, "persistent ones of each collective");
	test(2, together, 0, "several started together");
	test(2, computing, 0, "while the caller computes");
	test(3, computing, 0, "while the caller computes");
	test(2, reversed, 0, "many, and the last one first");
	test(4, reversed, 0, "many, and the last one first");
	test(2, any, 0, "any of several");
	test(4, any, 0, "any of several");
	test(2, mixed, 0, "beside other calls and forms");
	test(4, mixed, 0, "beside other calls and forms");
	test(2, threads, 0, "two threads");
	test(3, circle, 0, "who sleeps for something else has posted");
	chosen_result(waits_in(late, NPULINK_WAIT), "who waits for long has posted\n");
	test(2, tested, 0, "who tests for long has posted");
	test(2, polled, 0, "who polls");
	test(2, death, 0, "a rank dies before it starts");
	test(2, death, 1, "a rank dies before it waits");
	test(2, mismatch, 0, "another call");
	test(2, led_mismatch, 0, "another call than its root's");
	chosen_result(do_deadline(), "who comes too late for the deadline\n");
	test(2, freed, 0, "freed early");
	test(2, aborted, 0, "aborted");
	ksft_finished();
}
