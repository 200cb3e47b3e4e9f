// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * drv.c - what libcoll does when ioctls fail or are interrupted, and how many it
 * makes: against the mock.
 */
#include "lib/run/cache.h"
#include "lib/run/dev.h"
#include "lib/run/request.h"
#include "mock_pair.h"

static unsigned int total(void)
{
	unsigned int n = 0;

	for (int i = 0; i < 31; i++)
		n += mock.calls[i];
	return n;
}

/* The same in the other direction, so that rank 0 has nothing but its one call. */
static void *late(void *arg)
{
	usleep(20000);
	return (void *)(long)coll_allreduce(comms[1], in[1], out[1], (size_t)arg, COLL_INT32,
					    COLL_SUM);
}

static void test_one_call(size_t count, const char *what)
{
	pthread_t thread;
	void *rc;
	int bad = both(count) | both(count);
	unsigned int before = total();

	pthread_create(&thread, NULL, late, (void *)count);
	bad |= coll_allreduce(comms[0], in[0], out[0], count, COLL_INT32, COLL_SUM);
	pthread_join(thread, &rc);
	ksft_test_result(!bad && !rc && total() - before == 2,
			 "%s: one ioctl for each rank\n", what);
}

static void test_signals(void)
{
	unsigned int posts, waits;
	pthread_t thread;
	void *rc;
	int bad;

	/* Refused before anything was done: made again. */
	mock_fail(NPULINK_POST, -EINTR, 1, 3, false);
	posts = mock_calls(NPULINK_POST);
	bad = both(4);
	ksft_test_result(!bad && mock_calls(NPULINK_POST) - posts == 5, "EINTR, nothing done\n");

	/* Accepted and then interrupted: never posted again. */
	posts = mock_calls(NPULINK_POST);
	waits = mock_calls(NPULINK_WAIT);
	mock_fail(NPULINK_POST, -EINTR, 0, 1, true);
	mock_fail(NPULINK_WAIT, -EINTR, 0, 2, false);
	pthread_create(&thread, NULL, late, (void *)4);
	bad = coll_allreduce(comms[0], in[0], out[0], 4, COLL_INT32, COLL_SUM);
	pthread_join(thread, &rc);
	ksft_test_result(!bad && !rc && mock_calls(NPULINK_POST) - posts == 2 &&
			 mock_calls(NPULINK_WAIT) - waits == 3 && out[0][3] == 7,
			 "EINTR while waiting: WAIT goes on, no second POST\n");

	/* The request form, interrupted while it waits. */
	mock_fail(NPULINK_WAIT, -EINTR, 0, 5, false);
	ksft_test_result(!both(4), "EINTR in coll_wait\n");
}

static void test_busy(void)
{
	struct coll_request *req[600] = { };
	int bad = 0, rc = 0;
	unsigned int n;

	mock_fail(NPULINK_POST, -EBUSY, 1, 3, false);
	ksft_test_result(!both(4), "EBUSY: a blocking call waits for room\n");

	for (n = 0; n < 600 && !rc; n++)
		rc = coll_irecv(comms[0], &out[0][n], 1, COLL_INT32, 1, &req[n]);
	n--;
	bad = rc != -EBUSY || !strstr(coll_comm_last_error(comms[0]), "in flight") ||
	      n != mock.max_inflight;
	ksft_test_result(!bad, "EBUSY: a request says so (%u)\n", n);
	for (unsigned int i = 0; i < n; i++)
		bad |= coll_send(comms[1], &in[1][i], 1, COLL_INT32, 0);
	bad |= coll_waitall(n, req);
	for (unsigned int i = 0; i < n; i++)
		bad |= out[0][i] != in[1][i];
	ksft_test_result(!bad, "EBUSY: all others arrive\n");

	/* The ring holds results that nobody has looked at: starting more takes them. */
	bad = 0;
	for (unsigned int i = 0; i < 600; i++) {
		bad |= coll_irecv(comms[0], &out[0][i], 1, COLL_INT32, 1, &req[i]);
		bad |= coll_send(comms[1], &in[1][i], 1, COLL_INT32, 0);
	}
	bad |= coll_waitall(600, req);
	for (unsigned int i = 0; i < 600; i++)
		bad |= out[0][i] != in[1][i];
	ksft_test_result(!bad, "ring: more results than it has room for\n");
}

static void test_stale(void)
{
	struct coll_comm_info before = COLL_COMM_INFO_INIT, after = COLL_COMM_INFO_INIT;
	unsigned int registered;
	int bad = both(BIG);

	coll_comm_info(comms[0], &before);
	registered = mock_calls(NPULINK_BUF_REGISTER);
	ksft_test_result(!bad && !both(BIG) && mock_calls(NPULINK_BUF_REGISTER) == registered,
			 "pinned memory is found again\n");

	mock_fail(NPULINK_POST, -ESTALE, 1, 1, false);
	bad = both(BIG);
	coll_comm_info(comms[0], &after);
	ksft_test_result(!bad && after.stale > before.stale &&
			 mock_calls(NPULINK_BUF_REGISTER) > registered, "ESTALE: pinned again\n");

	mock_fail(NPULINK_POST, -ESTALE, 0, 1, false);
	ksft_test_result(!both(BIG), "ESTALE: of a request\n");

	mock_fail(NPULINK_POST, -ESTALE, 0, 2, false);
	bad = coll_allreduce(comms[0], in[0], out[0], BIG, COLL_INT32, COLL_SUM);
	ksft_test_result(bad == -ESTALE && strstr(coll_comm_last_error(comms[0]), "changes"),
			 "ESTALE twice is an error\n");
}

/* One of a batch cannot be pinned anew: those after it give back what they had. */
static void test_stale_in_a_group(void)
{
	struct coll_dev *dev = comms[0]->dev;
	struct coll_request *req[2] = { };
	int bad = both(BIG), rc;

	mock.fail[31].rc = -ESTALE;
	mock.fail[31].skip = 0;
	mock.fail[31].times = 1;
	mock_fail(NPULINK_BUF_REGISTER, -EFAULT, 0, 100, false);
	bad |= coll_group_start(comms[0]);
	bad |= coll_isend(comms[0], in[0], BIG, COLL_INT32, 1, &req[0]);
	bad |= coll_isend(comms[0], in[0], 1, COLL_INT32, 1, &req[1]);
	rc = coll_group_end(comms[0]);
	mock_fail(NPULINK_BUF_REGISTER, 0, 0, 0, false);
	bad |= coll_wait(&req[0]) != -EFAULT || coll_wait(&req[1]) != -EFAULT;
	bad |= arena_bytes(dev) != dev->kept;
	ksft_test_result(rc == -EFAULT && !bad, "ESTALE: in a group, and pinning fails\n");
}

static void *start_one(void *arg)
{
	long bad = coll_group_start(comms[0]);

	bad |= coll_isend(comms[0], &in[0][3], 1, COLL_INT32, 1, arg);
	bad |= coll_group_end(comms[0]);
	return (void *)bad;
}

/* The ring is full, and its oldest request is not the next to end. */
static void test_room(void)
{
	struct coll_config config = COLL_CONFIG_INIT;
	struct coll_request *req[5] = { };
	unsigned int waits;
	struct timespec ts;
	pthread_t thread;
	void *failed;
	int bad, rc;

	config.inflight = 4;
	setup(&config);
	waits = mock_calls(NPULINK_WAIT);
	bad = coll_irecv(comms[0], &out[0][0], 1, COLL_INT32, 1, &req[0]);
	for (int i = 0; i < 3; i++)
		bad |= coll_isend(comms[0], &in[0][i], 1, COLL_INT32, 1, &req[1 + i]);
	pthread_create(&thread, NULL, start_one, &req[4]);
	/* It has found the ring full once it waits. */
	while (mock_calls(NPULINK_WAIT) == waits)
		usleep(1000);
	bad |= coll_recv(comms[1], &out[1][0], 1, COLL_INT32, 0);
	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec += 20;
	rc = pthread_timedjoin_np(thread, &failed, &ts);
	bad |= coll_send(comms[1], &in[1][0], 1, COLL_INT32, 0);
	if (rc)
		pthread_join(thread, &failed);
	for (int i = 1; i < 4; i++)
		bad |= coll_recv(comms[1], &out[1][i], 1, COLL_INT32, 0);
	bad |= coll_waitall(5, req) || failed;
	for (int i = 0; i < 4; i++)
		bad |= out[1][i] != in[0][i];
	ksft_test_result(!rc && !bad, "ring: full, and the oldest request stays\n");
	teardown();
}

static void test_plans(void)
{
	struct coll_comm_info info = COLL_COMM_INFO_INIT;
	unsigned int created, destroyed;
	int bad = 0;

	setup(NULL);
	created = mock_calls(NPULINK_PLAN_CREATE);
	for (size_t i = 1; i <= 300; i++)
		bad |= both(i);
	coll_comm_info(comms[0], &info);
	ksft_test_result(!bad && info.plans == COLL_PLANS_MAX &&
			 mock_calls(NPULINK_PLAN_CREATE) - created == 600, "plans: bounded\n");
	bad |= both(300);
	ksft_test_result(!bad && mock_calls(NPULINK_PLAN_CREATE) - created == 600,
			 "plans: the latest is still there\n");
	bad |= both(1);
	ksft_test_result(!bad && mock_calls(NPULINK_PLAN_CREATE) - created == 602,
			 "plans: the oldest is not\n");
	mock_fail(NPULINK_PLAN_CREATE, -ENOMEM, 0, 2, false);
	destroyed = mock_calls(NPULINK_DESTROY);
	bad |= both(1000);
	ksft_test_result(!bad && mock_calls(NPULINK_DESTROY) >= destroyed + 2,
			 "plans: dropped when the kernel has no room\n");
	mock_fail(NPULINK_PLAN_CREATE, -EINTR, 0, 2, false);
	ksft_test_result(!both(1001), "plans: EINTR\n");
	ksft_test_result(!teardown(), "plans: all gone when leaving\n");
}

static void test_device_gone(void)
{
	int rc;

	setup(NULL);
	mock_fail(NPULINK_POST, -ENODEV, 0, 1, false);
	rc = coll_barrier(comms[0]);
	ksft_test_result(rc == -ENODEV && strstr(coll_comm_last_error(comms[0]), "npu0 has gone"),
			 "ENODEV: named\n");
	teardown();
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(2 + 3 + 4 + 4 + 1 + 1 + 6 + 1);
	setup(NULL);
	test_one_call(4, "copied");
	test_one_call(BIG, "pinned");
	test_signals();
	test_busy();
	test_stale();
	test_stale_in_a_group();
	teardown();
	test_room();
	test_plans();
	test_device_gone();
	ksft_finished();
}
