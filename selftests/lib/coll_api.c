// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * coll_api.c - libcoll's calls against the mock: all collectives in all forms against a
 * reference, groups, persistent requests, messages to oneself, bad arguments.
 */
#include "mock.h"
#include "../coll_cases.h"
#include "lib/run/comm.h"
#include "lib/run/request.h"
#include "comms.h"
#include "kselftest.h"

#define MAX_RANKS	8

static struct coll_comm *comms[MAX_RANKS];

static int make_comms(unsigned int n, const char *algorithm)
{
	struct coll_config config = COLL_CONFIG_INIT;

	config.algorithm = algorithm;
	return comms_make(comms, n, config);
}

/* ---- collectives, one thread per rank */

static struct coll_case job;
static char texts[MAX_RANKS][600];

static void *job_main(void *arg)
{
	size_t i = (size_t)arg;

	return (void *)(size_t)trial_run(comms[i], &job, texts[i], sizeof(texts[i]));
}

static int run_job(unsigned int n)
{
	pthread_t thread[MAX_RANKS];
	void *rc;
	int bad = 0;

	for (size_t i = 0; i < n; i++)
		pthread_create(&thread[i], NULL, job_main, (void *)i);
	for (size_t i = 0; i < n; i++) {
		pthread_join(thread[i], &rc);
		if (rc && bad++ < 2)
			ksft_print_msg("%s\n", texts[i]);
	}
	return bad;
}

static int test_collective(uint32_t collective, unsigned int n)
{
	static const enum coll_dtype dtypes[] = { COLL_UINT8, COLL_INT32, COLL_FLOAT64 };
	size_t counts[] = { 0, 1, n - 1, 17, 20011 / (n > 4 ? n : 1) };
	int bad = 0;

	for (unsigned int k = 0; k < sizeof(counts) / sizeof(*counts); k++) {
		for (unsigned int t = 0; t < 3; t++) {
			for (unsigned int in = 0; in < 2; in++) {
				unsigned int ops = trial_reduces(collective) ? 5 : 1;

				for (unsigned int op = 0; op < ops; op++) {
					job = (struct coll_case) {
						.collective = collective, .count = counts[k],
						.dtype = dtypes[t], .op = op, .in_place = in,
						.root = trial_rooted(collective) ? (k + t) % n : 0,
						.form = (k + t + op) % CASE_FORMS,
					};
					bad += run_job(n);
				}
			}
		}
	}
	return bad;
}

static void test_collectives(void)
{
	static const unsigned int sizes[] = { 1, 2, 3, 4, 5, 8 };

	for (uint32_t c = 0; c < NPULINK_COLL_P2P; c++) {
		int bad = 0;

		for (unsigned int i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
			bad += !!make_comms(sizes[i], NULL);
			bad += test_collective(c, sizes[i]);
			bad += !!comms_free(comms, sizes[i]);
		}
		ksft_test_result(!bad, "%s\n", trial_names[c]);
	}
}

/* ---- addresses that mean in place */

static void test_in_place_by_address(void)
{
	struct coll_request *req[4];
	int buf[4][8], bad = make_comms(4, NULL);

	for (int r = 0; r < 4; r++)
		for (int i = 0; i < 8; i++)
			buf[r][i] = r + i;
	for (int r = 0; r < 4; r++)
		bad |= coll_iallreduce(comms[r], buf[r], buf[r], 8, COLL_INT32, COLL_SUM, &req[r]);
	bad |= coll_waitall(4, req);
	for (int r = 0; r < 4; r++)
		for (int i = 0; i < 8; i++)
			bad |= buf[r][i] != 6 + 4 * i;
	ksft_test_result(!bad, "equal addresses: allreduce\n");

	for (int r = 0; r < 4; r++)
		for (int i = 0; i < 8; i++)
			buf[r][i] = i / 2 == r ? 100 * r + i : -1;
	bad = 0;
	for (int r = 0; r < 4; r++)
		bad |= coll_iallgather(comms[r], &buf[r][2 * r], buf[r], 2, COLL_INT32, &req[r]);
	bad |= coll_waitall(4, req);
	for (int r = 0; r < 4; r++)
		for (int i = 0; i < 8; i++)
			bad |= buf[r][i] != 100 * (i / 2) + i;
	ksft_test_result(!bad, "own shard's address: allgather\n");

	for (int r = 0; r < 4; r++)
		for (int i = 0; i < 8; i++)
			buf[r][i] = r + i;
	bad = 0;
	for (int r = 0; r < 4; r++)
		bad |= coll_ireduce_scatter(comms[r], buf[r], &buf[r][2 * r], 2, COLL_INT32,
					    COLL_SUM, &req[r]);
	bad |= coll_waitall(4, req);
	for (int r = 0; r < 4; r++)
		for (int i = 2 * r; i < 2 * r + 2; i++)
			bad |= buf[r][i] != 6 + 4 * i;
	ksft_test_result(!bad, "own shard's address: reduce_scatter\n");
	comms_free(comms, 4);
}

/* ---- groups */

static void *ring_main(void *arg)
{
	size_t r = (size_t)arg;
	long out = r, in = -1;
	int bad = 0;

	for (int i = 0; i < 50; i++) {
		bad |= coll_group_start(comms[r]);
		bad |= coll_send(comms[r], &out, 1, COLL_INT64, (r + 1) % 4);
		bad |= coll_recv(comms[r], &in, 1, COLL_INT64, (r + 3) % 4);
		bad |= coll_group_end(comms[r]);
		bad |= in != (long)(r + 3) % 4;
	}
	return (void *)(size_t)bad;
}

static void test_groups(void)
{
	unsigned int before = mock_calls(NPULINK_POST_BATCH);
	unsigned int posts = mock_calls(NPULINK_POST), waits = mock_calls(NPULINK_WAIT);
	struct coll_request *req[2];
	pthread_t thread[4];
	int bad = make_comms(4, NULL), one = 1, sum[4] = { }, x = 5, y = 0;
	void *rc;

	for (size_t i = 0; i < 4; i++)
		pthread_create(&thread[i], NULL, ring_main, (void *)i);
	for (size_t i = 0; i < 4; i++) {
		pthread_join(thread[i], &rc);
		bad |= !!rc;
	}
	ksft_test_result(!bad, "group: a ring of blocking sends and receives\n");
	ksft_test_result(mock_calls(NPULINK_POST_BATCH) - before == 200 &&
			 mock_calls(NPULINK_POST) == posts && mock_calls(NPULINK_WAIT) == waits,
			 "group: one system call each\n");

	bad = coll_group_start(comms[0]);
	bad |= coll_isend(comms[0], &one, 1, COLL_INT32, 1, &req[0]);
	bad |= coll_test(&req[0]) != -EINPROGRESS || coll_wait(&req[0]) != -EDEADLK;
	bad |= coll_irecv(comms[0], &y, 1, COLL_INT32, 1, &req[1]);
	bad |= coll_group_end(comms[0]);
	bad |= coll_test(&req[0]) != -EINPROGRESS;
	bad |= coll_group_start(comms[1]);
	bad |= coll_send(comms[1], &x, 1, COLL_INT32, 0);
	bad |= coll_recv(comms[1], &sum[1], 1, COLL_INT32, 0);
	bad |= coll_group_end(comms[1]);
	bad |= coll_waitall(2, req);
	ksft_test_result(!bad && sum[1] == 1 && y == 5 && !req[0] && !req[1],
			 "group: requests go on after its end\n");

	bad = coll_irecv(comms[0], NULL, 0, COLL_INT32, 1, &req[0]);
	bad |= coll_send(comms[1], NULL, 0, COLL_INT32, 0);
	bad |= coll_wait(&req[0]);
	ksft_test_result(!bad, "a message without content\n");

	bad = coll_group_start(comms[2]) || coll_group_end(comms[2]) ||
	      coll_group_end(comms[2]) != -EINVAL;
	ksft_test_result(!bad, "group: empty, none\n");

	/* Refused part of the way: what comes before runs, the rest is posted again. */
	mock.fail[31].rc = -EINTR;
	mock.fail[31].skip = 1;
	mock.fail[31].times = 1;
	bad = coll_group_start(comms[0]);
	bad |= coll_isend(comms[0], &one, 1, COLL_INT32, 1, &req[0]);
	bad |= coll_irecv(comms[0], &y, 1, COLL_INT32, 1, &req[1]);
	bad |= coll_group_end(comms[0]);
	bad |= coll_group_start(comms[1]);
	x = 6;
	bad |= coll_recv(comms[1], &sum[1], 1, COLL_INT32, 0);
	bad |= coll_send(comms[1], &x, 1, COLL_INT32, 0);
	mock.fail[31].rc = -EBUSY;
	mock.fail[31].skip = 1;
	mock.fail[31].times = 1;
	bad |= coll_group_end(comms[1]);
	bad |= coll_waitall(2, req);
	ksft_test_result(!bad && y == 6, "group: refused part of the way\n");

	/* The wait is interrupted: results are fetched one by one, nothing posted twice. */
	before = mock_calls(NPULINK_POST_BATCH);
	mock_fail(NPULINK_POST_BATCH, -EINTR, 0, 1, true);
	bad = coll_group_start(comms[0]);
	bad |= coll_isend(comms[1], &x, 1, COLL_INT32, 0, &req[0]);
	bad |= coll_irecv(comms[1], &sum[1], 1, COLL_INT32, 0, &req[1]);
	x = 7;
	one = 8;
	bad |= coll_recv(comms[0], &y, 1, COLL_INT32, 1);
	bad |= coll_send(comms[0], &one, 1, COLL_INT32, 1);
	bad |= coll_group_end(comms[0]);
	bad |= coll_waitall(2, req);
	ksft_test_result(!bad && y == 6 && sum[1] == 8 &&
			 mock_calls(NPULINK_POST_BATCH) == before + 1,
			 "group: interrupted by a signal\n");
	comms_free(comms, 4);
}

/* ---- to oneself */

static void test_self(void)
{
	struct coll_request *req;
	int a = 3, b = 0, bad = make_comms(2, NULL);

	bad |= coll_group_start(comms[1]);
	bad |= coll_recv(comms[1], &b, 1, COLL_INT32, 1);
	bad |= coll_send(comms[1], &a, 1, COLL_INT32, 1);
	bad |= coll_group_end(comms[1]);
	ksft_test_result(!bad && b == 3, "self: in a group\n");

	a = 4;
	bad = coll_isend(comms[1], &a, 1, COLL_INT32, 1, &req);
	bad |= coll_test(&req) != -EINPROGRESS || coll_wait(&req) != -EDEADLK;
	bad |= coll_recv(comms[1], &b, 1, COLL_INT32, 1);
	bad |= coll_wait(&req);
	ksft_test_result(!bad && b == 4 && !req, "self: with a request\n");

	bad = coll_send(comms[1], &a, 1, COLL_INT32, 1) != -EDEADLK;
	bad |= !strstr(coll_comm_last_error(comms[1]), "group");
	bad |= coll_group_start(comms[1]);
	bad |= coll_send(comms[1], &a, 1, COLL_INT32, 1);
	bad |= coll_group_end(comms[1]) != -EDEADLK;
	ksft_test_result(!bad, "self: without counterpart it is an error\n");

	bad = coll_isend(comms[1], &a, 1, COLL_INT32, 1, &req);
	bad |= coll_recv(comms[1], &b, 1, COLL_UINT32, 1) != -EPROTO;
	bad |= coll_wait(&req) != -EPROTO;
	bad |= coll_send(comms[1], NULL, 1, COLL_INT32, 1) != -EINVAL;
	ksft_test_result(!bad, "self: different types are an error\n");
	comms_free(comms, 2);
}

/* ---- persistent requests */

static void test_persistent(void)
{
	struct coll_request *req[2], *all[2];
	int in[2][4], out[2][4], bad = make_comms(2, NULL);
	unsigned int plans;

	for (int r = 0; r < 2; r++)
		bad |= coll_allreduce_init(comms[r], in[r], out[r], 4, COLL_INT32, COLL_MAX,
					   &req[r]);
	bad |= coll_test(&req[0]);
	plans = mock_calls(NPULINK_PLAN_CREATE);
	for (int k = 0; k < 10; k++) {
		for (int r = 0; r < 2; r++) {
			for (int i = 0; i < 4; i++)
				in[r][i] = k * 10 + r + i;
			bad |= coll_start(req[r]);
		}
		bad |= coll_start(req[0]) != -EBUSY;
		for (int r = 0; r < 2; r++)
			bad |= coll_wait(&req[r]) || !req[r] || out[r][3] != k * 10 + 4;
	}
	ksft_test_result(plans == mock_calls(NPULINK_PLAN_CREATE), "persistent: plans are kept\n");
	for (int r = 0; r < 2; r++)
		bad |= req[r] ? coll_request_free(&req[r]) : 0;
	ksft_test_result(!req[0] && !req[1], "persistent: freed\n");
	comms_free(comms, 2);

	bad = make_comms(2, NULL);
	for (int r = 0; r < 2; r++) {
		in[r][0] = r + 1;
		in[r][1] = r + 11;
	}
	for (int r = 0; r < 2; r++) {
		all[0] = NULL;
		bad |= coll_allreduce_init(comms[r], &in[r][0], &out[r][0], 1, COLL_INT32, COLL_SUM,
					   &all[0]);
		bad |= coll_allreduce_init(comms[r], &in[r][1], &out[r][1], 1, COLL_INT32, COLL_SUM,
					   &all[1]);
		bad |= coll_startall(2, all);
		if (r)
			bad |= coll_waitall(2, all);
		req[r] = all[0];
	}
	bad |= out[1][0] != 3 || out[1][1] != 23;
	/* Left in flight by rank 0, done by now: leaving frees them. */
	bad |= comms_free(comms, 2);
	ksft_test_result(!bad, "persistent: several with one call, freed with the communicator\n");
}

static pthread_barrier_t opened, started;

/* Has a group of its own open while others start requests. */
static void *group_main(void *arg)
{
	long bad = coll_group_start(comms[0]);

	pthread_barrier_wait(&opened);
	pthread_barrier_wait(&started);
	bad |= coll_group_end(comms[0]);
	return (void *)bad;
}

static void test_startall(void)
{
	struct coll_request *req[2], *twice[2];
	int in[2] = { 1, 2 }, out[2] = { }, bad = make_comms(2, NULL), rc;
	pthread_t thread;
	void *failed;

	for (int r = 0; r < 2; r++)
		bad |= coll_allreduce_init(comms[r], &in[r], &out[r], 1, COLL_INT32, COLL_SUM,
					   &req[r]);
	twice[0] = req[0];
	twice[1] = req[0];
	rc = coll_startall(2, twice);
	if (!rc)
		ksft_exit_fail_msg("persistent: one request runs twice\n");
	bad |= rc != -EBUSY || coll_group_start(comms[0]) ||
	       coll_startall(2, twice) != -EBUSY || coll_group_end(comms[0]) != -EBUSY;
	bad |= coll_startall(1, &req[0]) || coll_startall(1, &req[1]) || coll_waitall(2, req);
	ksft_test_result(!bad && out[0] == 3 && out[1] == 3,
			 "persistent: one request twice is none\n");

	/* Whichever is lacking, the group that it was to be in must not go without it. */
	bad = coll_startall(2, NULL) != -EINVAL;
	for (int lacking = 0; lacking < 2; lacking++) {
		twice[lacking] = NULL;
		twice[!lacking] = req[0];
		bad |= coll_startall(2, twice) != -EINVAL || coll_group_start(comms[0]) ||
		       coll_startall(2, twice) != -EINVAL || coll_group_end(comms[0]) != -EINVAL;
	}
	bad |= coll_startall(1, &req[0]) || coll_startall(1, &req[1]) || coll_waitall(2, req);
	ksft_test_result(!bad, "persistent: several of which one is lacking are none\n");

	in[0] = 5;
	pthread_barrier_init(&opened, NULL, 2);
	pthread_barrier_init(&started, NULL, 2);
	pthread_create(&thread, NULL, group_main, NULL);
	pthread_barrier_wait(&opened);
	bad = coll_startall(1, &req[0]);
	pthread_barrier_wait(&started);
	pthread_join(thread, &failed);
	bad |= failed || coll_startall(1, &req[1]) || coll_waitall(2, req);
	ksft_test_result(!bad && out[0] == 7 && out[1] == 7,
			 "persistent: several while another thread has a group open\n");
	pthread_barrier_destroy(&opened);
	pthread_barrier_destroy(&started);
	comms_free(comms, 2);
}

/* Whether one of rank 0's requests is in flight; if not, it is now. */
static bool in_flight(struct coll_request *req)
{
	int rc = coll_start(req);

	if (rc && rc != -EBUSY)
		ksft_exit_fail_msg("start: %d\n", rc);
	return rc;
}

/* What could not be started is as before; what was goes on. */
static void test_startall_fails(void)
{
	static int in[2][2][40000], out[2][2][40000];
	struct coll_config config = COLL_CONFIG_INIT;
	struct coll_request *req[2][2];
	int bad;

	config.inflight = 1;
	bad = comms_make(comms, 2, config);
	for (int r = 0; r < 2; r++) {
		for (int i = 0; i < 2; i++) {
			in[r][i][0] = 1 + r + 10 * i;
			bad |= coll_allreduce_init(comms[r], in[r][i], out[r][i], i ? 40000 : 1,
						   COLL_INT32, COLL_SUM, &req[r][i]);
		}
	}
	bad |= coll_startall(2, req[0]) != -EBUSY || coll_waitall(2, req[0]);
	bad |= in_flight(req[0][0]) || coll_start(req[1][0]) || coll_wait(&req[0][0]) ||
	       coll_wait(&req[1][0]);
	ksft_test_result(!bad && out[0][0][0] == 3,
			 "persistent: too many are idle again\n");
	comms_free(comms, 2);

	bad = make_comms(2, NULL);
	for (int r = 0; r < 2; r++)
		for (int i = 0; i < 2; i++)
			bad |= coll_allreduce_init(comms[r], in[r][i], out[r][i], i ? 40000 : 1,
						   COLL_INT32, COLL_SUM, &req[r][i]);
	mock_fail(NPULINK_BUF_REGISTER, -EFAULT, 0, 99, false);
	bad |= coll_startall(2, req[0]) != -EFAULT;
	mock_fail(NPULINK_BUF_REGISTER, 0, 0, 0, false);
	bad |= in_flight(req[0][0]) || in_flight(req[0][1]) || coll_startall(2, req[1]) ||
	       coll_waitall(2, req[0]) || coll_waitall(2, req[1]);
	ksft_test_result(!bad && out[0][0][0] == 3 && out[1][1][0] == 23,
			 "persistent: those of which one has bad buffers are idle again\n");

	/* The first is posted, the second is not. */
	mock.fail[31].rc = -ENOMEM;
	mock.fail[31].skip = 1;
	mock.fail[31].times = 1;
	bad = coll_startall(2, req[0]) != -ENOMEM;
	bad |= !in_flight(req[0][0]) || in_flight(req[0][1]);
	bad |= coll_startall(2, req[1]) || coll_waitall(2, req[0]) || coll_waitall(2, req[1]);
	ksft_test_result(!bad, "persistent: what was started before one that fails goes on\n");
	bad = coll_comm_abort(comms[1], 1);
	bad |= coll_startall(2, req[0]) != -ECANCELED || coll_waitall(2, req[0]) ||
	       coll_request_free(&req[0][0]) || coll_request_free(&req[0][1]);
	ksft_test_result(!bad, "persistent: idle again after the communicator has failed\n");
	comms_free(comms, 2);
}

/* ---- what is refused, and with which words */

static bool refused(struct coll_comm *comm, int rc, int want, const char *words)
{
	const char *text = coll_comm_last_error(comm);

	if (rc == want && strstr(text, words))
		return true;
	ksft_print_msg("%d, not %d: \"%s\" has no \"%s\"\n", rc, want, text, words);
	return false;
}

/* With nobody else, the buffers have to be as right as with others. */
static void test_alone(void)
{
	int x[8] = { 1, 2, 3, 4 };
	struct coll_comm *c;

	make_comms(1, NULL);
	c = comms[0];
	ksft_test_result(refused(c, coll_allreduce(c, NULL, x, 1, COLL_INT32, COLL_SUM), -EINVAL,
				 "send buffer is NULL") &&
			 refused(c, coll_broadcast(c, x, NULL, 1, COLL_INT32, 0), -EINVAL,
				 "receive buffer is NULL") &&
			 refused(c, coll_allreduce(c, (char *)x + 1, x + 4, 1, COLL_INT32,
						   COLL_SUM), -EINVAL, "aligned") &&
			 refused(c, coll_allgather(c, x, x + 1, 4, COLL_INT32), -EINVAL, "overlap"),
			 "alone: bad buffers\n");
	ksft_test_result(!coll_alltoall(c, x, x + 4, 4, COLL_INT32) && x[4] == 1 && x[7] == 4 &&
			 !coll_allreduce(c, COLL_IN_PLACE, x, 4, COLL_INT32, COLL_SUM) &&
			 !coll_allreduce(c, x, x, 4, COLL_INT32, COLL_SUM) && x[3] == 4,
			 "alone: good ones\n");
	coll_comm_destroy(c);
}

static void test_bad_arguments(void)
{
	static char memory[100000];
	size_t counts[2] = { 1, 1 };
	struct coll_comm *c;
	int x[8] = { };

	make_comms(2, NULL);
	c = comms[1];
	ksft_test_result(refused(c, coll_allreduce(c, NULL, x, 1, COLL_INT32, COLL_SUM), -EINVAL,
				 "send buffer is NULL"), "bad: no send buffer\n");
	ksft_test_result(refused(c, coll_allreduce(c, x, NULL, 1, COLL_INT32, COLL_SUM), -EINVAL,
				 "receive buffer is NULL"), "bad: no receive buffer\n");
	ksft_test_result(refused(c, coll_allreduce(c, x, x + 4, 1, 99, COLL_SUM), -EINVAL,
				 "allreduce of 1 type 99 (sum): no such data type"), "bad: data type\n");
	ksft_test_result(refused(c, coll_allreduce(c, x, x + 4, 1, COLL_INT32, 9), -EINVAL,
				 "(reduction 9): no such reduction"), "bad: reduction\n");
	ksft_test_result(refused(c, coll_broadcast(c, x, x + 4, 1, COLL_INT32, 2), -EINVAL, "root"),
			 "bad: root\n");
	ksft_test_result(refused(c, coll_send(c, x, 1, COLL_INT32, 2), -EINVAL, "peer"),
			 "bad: peer\n");
	ksft_test_result(refused(c, coll_allreduce(c, x, x + 1, 4, COLL_INT32, COLL_SUM), -EINVAL,
				 "overlap"), "bad: overlap\n");
	ksft_test_result(refused(c, coll_allreduce(c, (char *)x + 1, x + 4, 1, COLL_INT32,
						   COLL_SUM), -EINVAL, "aligned"), "bad: alignment\n");
	ksft_test_result(refused(c, coll_allreduce(c, x, x + 4, SIZE_MAX / 2, COLL_INT32, COLL_SUM),
				 -EOVERFLOW, "too large: at most"), "bad: too large\n");
	ksft_test_result(refused(c, coll_allgatherv(c, x, x + 4, NULL, NULL, COLL_INT32), -EINVAL,
				 "counts"), "bad: no counts\n");
	ksft_test_result(refused(c, coll_alltoallv(c, x, NULL, NULL, x + 4, counts, NULL,
						   COLL_INT32), -EINVAL, "counts"), "bad: no counts to send\n");
	ksft_test_result(refused(c, coll_allreduce(c, x, COLL_IN_PLACE, 1, COLL_INT32, COLL_SUM),
				 -EINVAL, "COLL_IN_PLACE"), "bad: in place in the wrong place\n");
	ksft_test_result(refused(c, coll_gather(c, COLL_IN_PLACE, x, 1, COLL_INT32, 0), -EINVAL,
				 "COLL_IN_PLACE"), "bad: in place at the wrong rank\n");
	ksft_test_result(refused(c, coll_allreduce(c, memory, (void *)8, 10000, COLL_INT64,
						   COLL_SUM), -EFAULT, "not all of the"), "bad: memory that is not mapped\n");
	mock.memlock = 4096;
	ksft_test_result(refused(c, coll_allreduce(c, memory, COLL_IN_PLACE, 1, COLL_INT8,
						   COLL_SUM), -EINVAL, "COLL_IN_PLACE"), "bad: in place for recv\n");
	ksft_test_result(refused(c, coll_allgather(c, memory, memory + 40000, 30000, COLL_INT8),
				 -ENOMEM, "needs"), "bad: over the limit on locked memory\n");
	mock.memlock = SIZE_MAX;
	ksft_test_result(coll_allreduce(NULL, x, x, 1, COLL_INT32, COLL_SUM) == -EINVAL &&
			 refused(c, coll_iallreduce(c, x, x, 1, COLL_INT32, COLL_SUM, NULL),
				 -EINVAL, "request pointer is NULL") &&
			 refused(c, coll_allreduce_init(c, x, x, 1, COLL_INT32, COLL_SUM, NULL),
				 -EINVAL, "request pointer is NULL"), "bad: no communicator, no request\n");
	comms_free(comms, 2);
}

static void test_failures(void)
{
	struct coll_request *req = NULL;
	struct coll_state state = COLL_STATE_INIT;
	int x[12] = { }, rc;

	make_comms(2, NULL);
	rc = coll_iallreduce(comms[0], x, x + 4, 4, COLL_INT32, COLL_SUM, &req);
	if (!rc)
		rc = coll_broadcast(comms[1], x, x + 4, 3, COLL_FLOAT32, 1);
	ksft_test_result(refused(comms[1], rc, -EPROTO,
				 "rank 1 broadcast of 3 float32, root 1, "
				 "rank 0 allreduce of 4 int32 (sum)"),
			 "mismatch: names both calls\n");
	ksft_test_result(refused(comms[0], coll_wait(&req), -EPROTO, "rank 0 allreduce of 4 int32"),
			 "mismatch: on the other rank, too\n");
	ksft_test_result(!coll_comm_status(comms[0], &state) && state.status == -EPROTO &&
			 !strcmp(state.cause, "mismatch"), "mismatch: status\n");
	comms_free(comms, 2);

	make_comms(2, NULL);
	rc = coll_iallreduce(comms[0], x, x + 4, 4, COLL_INT32, COLL_SUM, &req);
	rc = rc ? rc : coll_comm_destroy(comms[0]) != -EBUSY;
	ksft_test_result(!rc && !coll_comm_abort(comms[1], 77) &&
			 refused(comms[0], coll_wait(&req), -ECANCELED, "code 77") &&
			 refused(comms[0], coll_barrier(comms[0]), -ECANCELED, "rank 1 aborted"),
			 "abort: names the rank and its code\n");
	comms_free(comms, 2);

	/* Whether it is done is a matter of time, which no program may depend on. */
	make_comms(2, NULL);
	rc = coll_iallreduce(comms[0], x, x + 4, 4, COLL_INT32, COLL_SUM, &req);
	rc = rc ? rc : coll_allreduce(comms[1], x, x + 8, 4, COLL_INT32, COLL_SUM);
	ksft_test_result(!rc && coll_comm_destroy(comms[0]) == -EBUSY &&
			 strstr(coll_comm_last_error(comms[0]), "not waited for") &&
			 !coll_wait(&req) && !req,
			 "leaving: refused until what is done was waited for\n");
	comms_free(comms, 2);

	make_comms(2, NULL);
	rc = coll_iallreduce(comms[0], x, x + 4, 4, COLL_INT32, COLL_SUM, &req);
	coll_comm_abort(comms[1], 0);
	ksft_test_result(!rc && !coll_comm_destroy(comms[0]) && !coll_comm_destroy(comms[1]),
			 "abort: then a communicator can be left with requests\n");

	make_comms(3, NULL);
	pthread_mutex_lock(&mock.lock);
	mock.comms->code = 9;
	mock_comm_fail(mock.comms, NPULINK_CAUSE_DEATH, -EOWNERDEAD, 1, 2, 5);
	pthread_mutex_unlock(&mock.lock);
	ksft_test_result(refused(comms[0], coll_barrier(comms[0]), -EOWNERDEAD,
				 "rank 2 was killed by signal 9"), "death: names rank and signal\n");
	comms_free(comms, 3);
}

/* ---- going on without some ranks */

/* Three ranks, of which the last has gone and taken the communicator with it. */
static void make_survivors(void)
{
	make_comms(3, NULL);
	coll_comm_destroy(comms[2]);
	pthread_mutex_lock(&mock.lock);
	mock_comm_fail(mock.comms, NPULINK_CAUSE_DEATH, -EOWNERDEAD, 0, 2, 0);
	pthread_mutex_unlock(&mock.lock);
}

static void test_shrink(void)
{
	struct coll_config config = COLL_CONFIG_INIT;
	struct coll_request *req[2];
	struct coll_comm *new[2] = { }, *none;
	int x[2] = { 1, 2 }, bad;
	unsigned int calls;
	const char *name;
	double seconds;

	make_survivors();
	calls = mock_calls(NPULINK_COMM_SHRINK);
	config.algorithm = "allreduce:best";
	bad = !refused(comms[0], coll_comm_shrink(comms[0], &none, &config), -EINVAL, "best");
	bad |= mock_calls(NPULINK_COMM_SHRINK) != calls;
	ksft_test_result(!bad, "shrink: a wrong configuration is told before anything is joined\n");

	/* Nobody can know before who survives. */
	config.algorithm = NULL;
	config.topology = "servers:2,1";
	bad = !refused(comms[0], coll_comm_shrink(comms[0], &none, &config), -EINVAL, "of 2 ranks");
	for (int r = 0; r < 2; r++)
		bad |= coll_comm_shrink(comms[r], &new[r], NULL);
	ksft_test_result(!bad, "shrink: again after a topology that does not fit\n");
	for (int r = 0; r < 2 && !bad; r++)
		bad |= coll_iallreduce(new[r], COLL_IN_PLACE, &x[r], 1, COLL_INT32, COLL_SUM,
				       &req[r]);
	bad = bad || coll_waitall(2, req) || x[0] != 3 || x[1] != 3;
	bad = bad || !refused(comms[1], coll_comm_shrink(comms[1], &none, NULL), -EEXIST, "before");
	ksft_test_result(!bad, "shrink: and go on\n");
	comms_free(new, 2);
	comms_free(comms, 2);

	make_survivors();
	bad = coll_comm_shrink(comms[0], &none, &config) != -EINVAL ||
	      mock.comms->joined != 1 || coll_comm_destroy(comms[0]) || mock.comms->joined;
	ksft_test_result(!bad, "shrink: who gives it up leaves\n");
	coll_comm_destroy(comms[1]);

	/* As if they had met: rank 0's numbers hold, whatever is in the file of each. */
	make_survivors();
	bad = 0;
	for (int r = 0; r < 2; r++) {
		comms[r]->tune.params.alpha = 7;
		bad |= coll_comm_shrink(comms[r], &new[r], NULL);
	}
	for (int r = 0; r < 2 && !bad; r++)
		bad |= coll_comm_algorithm(new[r], "allreduce", 4, COLL_INT32, COLL_SUM, &name,
					   &seconds) || seconds < 7;
	ksft_test_result(!bad, "shrink: the costs that all went by go on to hold\n");
	bad = coll_comm_algorithm(new[0], "teapot", 4, COLL_INT8, COLL_SUM, &name, NULL) != -EINVAL;
	bad |= coll_comm_algorithm(new[0], "allreduce", 4, 99, COLL_SUM, &name, NULL) != -EINVAL;
	bad |= coll_comm_algorithm(new[0], "allreduce", 4, COLL_INT32, 99, &name, NULL) != -EINVAL;
	ksft_test_result(!bad, "algorithm: no such collective, type, reduction\n");
	comms_free(new, 2);
	comms_free(comms, 2);
}

/* Milliseconds that the kernel is told, or what the library says to it. */
static int peer_timeout(struct coll_config *config, uint64_t ns, const char *seconds)
{
	struct coll_unique_id id;
	struct coll_comm *comm;
	int rc;

	coll_get_unique_id(&id);
	config->peer_timeout_ns = ns;
	if (seconds)
		setenv("COLL_PEER_TIMEOUT", seconds, 1);
	rc = coll_comm_init_rank(&comm, 2, &id, 1, config);
	unsetenv("COLL_PEER_TIMEOUT");
	config->peer_timeout_ns = 0;
	if (rc)
		return rc;
	rc = mock.comms->peer_timeout_ms;
	coll_comm_destroy(comm);
	return rc;
}

static void test_peer_timeout(struct coll_config *config)
{
	static const char * const bad[] = {
		"soon", "0", "-1", "0.09", "3600.1", "1e300", "nan", "5s",
	};
	bool ok;

	ok = peer_timeout(config, 0, NULL) == 0 && peer_timeout(config, 0, "") == 0;
	ksft_test_result(ok, "peer timeout: the module's if nothing is said\n");
	ok = peer_timeout(config, 0, "2.5") == 2500 && peer_timeout(config, 0, "0.1") == 100 &&
	     peer_timeout(config, 0, "3600") == 3600000;
	ksft_test_result(ok, "peer timeout: from the environment\n");
	ok = peer_timeout(config, 700000000, "2.5") == 700 &&
	     peer_timeout(config, 3600000000000ULL, NULL) == 3600000;
	ksft_test_result(ok, "peer timeout: from the configuration\n");
	ok = peer_timeout(config, 99999999, NULL) == -EINVAL &&
	     strstr(config->error_text, "peer_timeout_ns is 0.1 seconds") &&
	     peer_timeout(config, 3600000000001ULL, NULL) == -EINVAL &&
	     peer_timeout(config, UINT64_MAX, NULL) == -EINVAL;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ok &= peer_timeout(config, 0, bad[i]) == -EINVAL &&
		      strstr(config->error_text, "COLL_PEER_TIMEOUT");
	ksft_test_result(ok, "peer timeout: bad values\n");
}

/* The flags that the kernel is told, or what the library says to COLL_CHECKSUM. */
static int checksum_flags(const struct coll_config *config, const char *value)
{
	struct coll_unique_id id;
	struct coll_comm *comm;
	int rc;

	coll_get_unique_id(&id);
	setenv("COLL_CHECKSUM", value, 1);
	rc = coll_comm_init_rank(&comm, 2, &id, 1, config);
	unsetenv("COLL_CHECKSUM");
	if (rc)
		return rc;
	rc = mock.comms->flags;
	coll_comm_destroy(comm);
	return rc;
}

static void test_checksum(const struct coll_config *config)
{
	static const char * const bad[] = { "yes", "2", "01", " 1", "1 " };
	bool ok;

	ok = checksum_flags(config, "1") == NPULINK_COMM_CHECKSUM &&
	     !checksum_flags(config, "0") && !checksum_flags(config, "");
	ksft_test_result(ok, "checksums: from the environment\n");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ok &= checksum_flags(config, bad[i]) == -EINVAL &&
		      strstr(config->error_text, "COLL_CHECKSUM");
	ksft_test_result(ok, "checksums: bad values\n");
}

static void test_init_errors(void)
{
	struct coll_config config = COLL_CONFIG_INIT;
	struct coll_comm *a, *b;
	struct coll_unique_id id, other = { };
	char text[400];
	int rc;

	coll_get_unique_id(&id);
	config.device = "0";
	config.error_text = text;
	config.error_size = sizeof(text);
	rc = coll_comm_init_rank(&a, 2, &other, 0, &config);
	ksft_test_result(rc == -EINVAL && strstr(text, "unique id") && !a, "init: not an id\n");
	rc = coll_comm_init_rank(&a, 2, &id, 2, &config);
	ksft_test_result(rc == -EINVAL && !strncmp(text, "rank 2: ", 8), "init: rank too large\n");
	coll_comm_init_rank(&a, 2, &id, 0, &config);
	rc = coll_comm_init_rank(&b, 2, &id, 0, &config);
	ksft_test_result(rc == -EEXIST && strstr(text, "taken"), "init: rank taken\n");
	rc = coll_comm_init_rank(&b, 3, &id, 1, &config);
	ksft_test_result(rc == -EINVAL && strstr(text, "number of ranks"), "init: another size\n");
	coll_comm_destroy(a);
	mock.abi = 7;
	rc = coll_comm_init_rank(&b, 2, &id, 1, &config);
	ksft_test_result(rc == -EPROTONOSUPPORT && strstr(text, "0.0.1 has ABI 7") &&
			 strstr(text, "libcoll " COLL_VERSION_STRING), "init: another ABI\n");
	mock.abi = NPULINK_ABI_VERSION;
	config.algorithm = "allreduce:best";
	rc = coll_comm_init_rank(&b, 2, &id, 1, &config);
	ksft_test_result(rc == -EINVAL && strstr(text, "ring"), "init: unknown algorithm\n");
	config.algorithm = NULL;
	config.device = "/nonexistent/npu0";
	rc = coll_comm_init_rank(&b, 2, &id, 1, &config);
	ksft_test_result(rc == -ENOENT && strstr(text, "modprobe"), "init: no device\n");
	config.device = NULL;
	config.arena = 1 << 30;
	setenv("COLL_DEVICE", "0", 1);
	rc = coll_comm_init_rank(&b, 2, &id, 1, &config);
	ksft_test_result(rc == -EINVAL && strstr(text, "arena"), "init: arena too large\n");
	config.arena = 0;
	setenv("COLL_DEADLINE", "soon", 1);
	rc = coll_comm_init_rank(&b, 2, &id, 1, &config);
	ksft_test_result(rc == -EINVAL && strstr(text, "COLL_DEADLINE"), "init: bad deadline\n");
	unsetenv("COLL_DEADLINE");
	test_peer_timeout(&config);
	test_checksum(&config);
	config.size = 3;
	rc = coll_comm_init_rank(&b, 2, &id, 1, &config);
	ksft_test_result(rc == -EINVAL, "init: bad configuration\n");
}

static void test_fork(void)
{
	int x = 0, status = 1, rc;
	pid_t pid;

	make_comms(2, NULL);
	fflush(stdout);
	pid = fork();
	if (!pid) {
		rc = coll_barrier(comms[0]) != -EPERM ||
		     !strstr(coll_comm_last_error(comms[0]), "forked") ||
		     coll_send(comms[0], &x, 1, COLL_INT32, 1) != -EPERM ||
		     coll_comm_destroy(comms[0]);
		_exit(rc);
	}
	waitpid(pid, &status, 0);
	ksft_test_result(!status, "fork: the child may only destroy\n");
	ksft_test_result(!comms_free(comms, 2), "fork: the parent is not concerned\n");
}

static void test_share(void)
{
	struct coll_config config = COLL_CONFIG_INIT;
	struct coll_comm *a[2], *b[2];
	struct coll_request *req[2];
	struct coll_unique_id id;
	int x[2] = { 1, 2 }, y[2] = { }, bad = 0;

	config.device = "0";
	coll_get_unique_id(&id);
	for (int i = 0; i < 2; i++)
		bad |= coll_comm_init_rank(&a[i], 2, &id, i, &config);
	coll_get_unique_id(&id);
	for (int i = 0; i < 2; i++) {
		config.share = a[i];
		bad |= coll_comm_init_rank(&b[i], 2, &id, 1 - i, &config);
		bad |= coll_comm_fd(a[i]) != coll_comm_fd(b[i]);
	}
	for (int i = 0; i < 2; i++)
		bad |= coll_comm_destroy(a[i]);
	for (int i = 0; i < 2; i++)
		bad |= coll_iallreduce(b[i], &x[i], &y[i], 1, COLL_INT32, COLL_SUM, &req[i]);
	bad |= coll_waitall(2, req) || y[0] != 3 || y[1] != 3;
	for (int i = 0; i < 2; i++)
		bad |= coll_comm_destroy(b[i]);
	ksft_test_result(!bad, "share: one device for two communicators\n");
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(NPULINK_COLL_P2P + 3 + 7 + 4 + 3 + 2 + 20 + 2 + 6 + 5 + 10 + 2 + 1 + 4 +
		      2 + 4);
	test_collectives();
	test_in_place_by_address();
	test_groups();
	test_self();
	test_persistent();
	test_startall();
	test_startall_fails();
	test_bad_arguments();
	test_alone();
	test_failures();
	test_shrink();
	test_init_errors();
	test_fork();
	test_share();
	ksft_finished();
}
