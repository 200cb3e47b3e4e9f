// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Several threads in one communicator, against the mock. lib-tsan/threads is the same with what
 * they share looked at by the thread sanitizer; threads.sh runs that.
 */
#include "lib/run/request.h"
#include "mock_pair.h"

#define FAILURES	500
#define CALLS	50

/* The text that a thread has got is its own for as long as its calls do not fail. */
static _Atomic int stage;

static void await(int at)
{
	while (atomic_load(&stage) < at)
		sched_yield();
}

static void *fails(void *arg)
{
	long bad = !!*coll_comm_last_error(comms[0]);

	for (int i = 0; i < FAILURES; i++) {
		bad |= !coll_broadcast(comms[0], in[0], out[0], 4, COLL_INT32, 90 + i % 9);
		bad |= !strstr(coll_comm_last_error(comms[0]), "root");
		if (!i)
			atomic_store(&stage, 1);
	}
	return (void *)bad;
}

static void test_error_texts(void)
{
	const char *text;
	char before[256];
	bool bad = false;
	pthread_t thread;
	void *other;

	setup(NULL);
	coll_allreduce(comms[0], in[0], out[0], 4, 99, COLL_SUM);
	text = coll_comm_last_error(comms[0]);
	snprintf(before, sizeof(before), "%s", text);
	ksft_test_result(strstr(before, "type 99") && !*coll_comm_last_error(comms[1]),
			 "error: of the communicator in which it was\n");
	pthread_create(&thread, NULL, fails, NULL);
	await(1);
	/* While the other one fails. */
	for (int i = 0; i < FAILURES; i++)
		bad |= strcmp(text, before) || coll_comm_last_error(comms[0]) != text;
	pthread_join(thread, &other);
	ksft_test_result(!bad && !other && !strcmp(text, before),
			 "error: a thread's text stays while another one's calls fail\n");
	coll_allreduce(comms[0], in[0], out[0], 4, COLL_INT32, 77);
	ksft_test_result(strstr(coll_comm_last_error(comms[0]), "reduction 77") &&
			 strstr(coll_comm_last_error(NULL), "no communicator"),
			 "error: the last one's, also without a communicator\n");
	teardown();
}

/* Collectives by one thread, messages, questions and refusals by another, on each of two ranks. */
static void *collectives(void *arg)
{
	size_t r = (size_t)arg;
	long bad = 0;

	for (size_t i = 0; i < CALLS && !bad; i++)
		bad = coll_allreduce(comms[r], in[r], out[r], 16 + i % 5, COLL_INT32, COLL_SUM);
	return (void *)bad;
}

static void *messages(void *arg)
{
	static int from[2][32], to[2][32];
	size_t r = (size_t)arg;
	long bad = 0;

	for (int i = 0; i < CALLS && !bad; i++) {
		struct coll_comm_info info = COLL_COMM_INFO_INIT;
		struct coll_state state = COLL_STATE_INIT;
		struct coll_request *req[4];

		for (int k = 0; k < 4; k++)
			bad |= coll_isend(comms[r], from[r] + k * 8, 8, COLL_INT32, !r, &req[k]);
		for (int k = 0; k < 4; k++)
			bad |= coll_recv(comms[r], to[r] + k * 8, 8, COLL_INT32, !r);
		bad |= coll_waitall(4, req);
		bad |= coll_comm_info(comms[r], &info) | coll_comm_status(comms[r], &state);
		bad |= coll_barrier(NULL) != -EINVAL;
		bad |= coll_broadcast(comms[r], in[r], out[r], 4, COLL_INT32, 99) != -EINVAL;
		bad |= !strstr(coll_comm_last_error(comms[r]), "root");
	}
	return (void *)bad;
}

static void test_calls(void)
{
	pthread_t threads[4];
	long bad = 0;
	void *one;

	setup(NULL);
	for (size_t i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, i < 2 ? collectives : messages, (void *)(i % 2));
	for (size_t i = 0; i < 4; i++) {
		pthread_join(threads[i], &one);
		bad |= (long)one;
	}
	ksft_test_result(!bad, "calls: collectives, messages and questions at a time\n");
	teardown();
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(4);
	test_error_texts();
	test_calls();
	ksft_finished();
}
