// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * kept.c - what libcoll keeps of a call that comes again, when it may be used, and when it goes:
 * against the mock.
 */
#include "lib/run/dev.h"
#include "lib/run/repeat.h"
#include "lib/run/request.h"
#include "mock_pair.h"

/* The last element of what rank 0 gets, or -1. */
static int four(const void *send, int *recv, enum coll_op op)
{
	struct coll_request *req;
	int rc = coll_iallreduce(comms[1], in[1], out[1], 4, COLL_INT32, op, &req);

	if (!rc)
		rc = coll_allreduce(comms[0], send, recv, 4, COLL_INT32, op) | coll_wait(&req);
	return rc ? -1 : recv[3];
}

static void *again(void *arg)
{
	for (int i = 0; i < 200; i++)
		if (coll_barrier(arg))
			return arg;
	return NULL;
}

/* @n calls in turn, ten times, each of other elements, or with another buffer. -1: wrong. */
static long in_turn(unsigned int n, bool buffers)
{
	long hits = -1;
	int bad = 0;

	setup(NULL);
	in[0][3] = 3;
	in[1][3] = 4;
	for (unsigned int i = 0; i < 10 * n; i++) {
		if (buffers)
			bad |= four(in[0], out[0] + 100 * (i % n), COLL_SUM) != 7;
		else
			bad |= both(1 + i % n);
	}
	if (!bad)
		hits = comms[0]->repeats.hits;
	teardown();
	return hits;
}

static void test_in_turn(void)
{
	long hits;

	ksft_test_result(in_turn(2, true) == 18, "repeat: two buffers in turn\n");
	ksft_test_result(in_turn(100, true) == 998, "repeat: buffers that come rarely\n");
	ksft_test_result(in_turn(COLL_KEPT, false) == 8 * COLL_KEPT,
			 "repeat: as many calls as are kept in turn\n");
	hits = in_turn(COLL_PATIENCE / 2, false);
	ksft_print_msg("%ld of %d\n", hits, 5 * COLL_PATIENCE);
	ksft_test_result(hits >= 4 * COLL_KEPT, "repeat: of more, some are kept\n");
}

/* One that is kept, with buffers that are wrong: as any other. The other rank waits for it. */
static bool refuses(const void *send, int *recv, const char *why)
{
	uint64_t hits = comms[0]->repeats.hits;
	struct coll_request *req;
	bool ok;
	int rc;

	if (coll_iallreduce(comms[1], in[1], out[1], 4, COLL_INT32, COLL_SUM, &req))
		return false;
	rc = coll_allreduce(comms[0], send, recv, 4, COLL_INT32, COLL_SUM);
	ok = rc == -EINVAL && strstr(coll_comm_last_error(comms[0]), why) &&
	     comms[0]->repeats.hits == hits;
	if (rc)
		rc = coll_allreduce(comms[0], in[0], out[0], 4, COLL_INT32, COLL_SUM);
	return !rc && !coll_wait(&req) && ok;
}

static void test_repeat_of_wrong_buffers(void)
{
	struct coll_repeats *r = &comms[0]->repeats;
	bool ok = refuses((char *)in[0] + 2, out[0], "not aligned") &&
		  refuses(in[0], in[0] + 3, "overlap") &&
		  refuses(NULL, out[0], "send buffer is NULL") &&
		  refuses(in[0], NULL, "receive buffer is NULL") &&
		  refuses(in[0], (int *)COLL_IN_PLACE, "COLL_IN_PLACE is not for") &&
		  refuses(COLL_IN_PLACE, NULL, "receive buffer is NULL");

	ok = ok && r->n == 1 && r->v[0].op.buf[0] == in[0] && r->v[0].op.buf[1] == out[0] &&
	     !r->v[0].op.args.in_place && !both(4);
	ksft_test_result(ok, "repeat: wrong buffers are refused\n");
}

/* What is kept is a plan, and in place is another one. */
static void test_repeat_in_place(void)
{
	struct coll_repeats *r;
	int bad = 0;

	setup(NULL);
	r = &comms[0]->repeats;
	for (int i = 0; i < 4; i++) {
		out[0][3] = 7 + i;
		bad |= four(COLL_IN_PLACE, out[0], COLL_MAX) != 7 + i;
	}
	in[0][3] = 20;
	bad |= four(in[0], out[0] + 100, COLL_MAX) != 20;
	bad |= four(in[0], out[0] + 200, COLL_MAX) != 20;
	out[0][303] = 30;
	bad |= four(out[0] + 300, out[0] + 300, COLL_MAX) != 30;
	bad |= four(in[0], out[0] + 400, COLL_MAX) != 20;
	ksft_test_result(!bad && r->n == 2 && r->hits == 4, "repeat: in place or not\n");
	teardown();
}

static void test_repeat(void)
{
	struct coll_comm_info before = COLL_COMM_INFO_INIT, after = COLL_COMM_INFO_INIT;
	struct coll_repeats *r;
	struct coll_dev *dev;
	pthread_t threads[4];
	unsigned int posts;
	size_t kept, copied;
	ptrdiff_t other;
	void *failed;
	int bad = 0;

	setup(NULL);
	dev = comms[0]->dev;
	r = &comms[0]->repeats;
	bad |= both(4);
	ksft_test_result(!bad && !r->n && !arena_bytes(dev), "repeat: one call is not kept\n");
	bad |= both(4);
	kept = arena_bytes(dev);
	ksft_test_result(!bad && r->n == 1 && kept && kept == dev->kept,
			 "repeat: the second one is\n");
	coll_comm_info(comms[0], &before);
	posts = mock_calls(NPULINK_POST);
	for (int i = 0; i < 10; i++) {
		in[0][3] = 1000 + i;
		in[1][3] = 7 - i;
		bad |= four(in[0], out[0], COLL_SUM) != 1007;
	}
	coll_comm_info(comms[0], &after);
	ksft_test_result(!bad && r->hits == 10 && mock_calls(NPULINK_POST) - posts == 20 &&
			 after.plan_hits - before.plan_hits == 10 &&
			 after.copied - before.copied == 10,
			 "repeat: new data each time, counted as any other\n");

	/* The same but for one thing. */
	in[0][3] = 3;
	in[1][3] = 4;
	bad |= both(3) | both(4);
	bad |= four(in[0], out[0], COLL_MAX) != 4;
	memcpy(out[0], in[0], 16);
	bad |= four(COLL_IN_PLACE, out[0], COLL_SUM) != 7;
	ksft_test_result(!bad && r->n == 1 && r->hits == 11,
			 "repeat: others are not taken for it\n");
	for (int i = 0; i < 10; i++) {
		in[0][3 + i] = 5 + i;
		in[1][3] = i;
		bad |= four(in[0] + i, out[0] + 100 + i, COLL_SUM) != 5 + 2 * i ||
		       out[0][104 + i];
	}
	ksft_test_result(!bad && r->n == 1 && r->hits == 21 && dev->kept == kept,
			 "repeat: with other buffers\n");
	for (int i = 3; i < 13; i++) {
		in[0][i] = i;
		in[1][i] = i + 1;
	}
	bad |= both(4);
	test_repeat_of_wrong_buffers();

	/* Refused, it is as any other, also if its memory was not what it was; and kept again. */
	mock_fail(NPULINK_POST, -EBUSY, 1, 2, false);
	bad |= both(4);
	mock_fail(NPULINK_POST, -ESTALE, 1, 1, false);
	bad |= both(4);
	bad |= both(4) | both(4);
	ksft_test_result(!bad && r->n == 1 && arena_bytes(dev) == dev->kept && dev->kept == kept,
			 "repeat: refused once, and right\n");

	/* Those that were first stay, until others have been refused often. */
	for (size_t n = 1; n <= COLL_KEPT + 4; n++)
		bad |= both(n) | both(n) | both(n);
	ksft_test_result(!bad && r->n == COLL_KEPT && r->v[0].op.args.count == 4 &&
			 r->v[COLL_KEPT - 1].op.args.count == COLL_KEPT &&
			 arena_bytes(dev) == dev->kept,
			 "repeat: only so many\n");
	for (int i = 0; i < COLL_PATIENCE; i++)
		bad |= both(4) | both(9);
	ksft_test_result(!bad && r->n == COLL_KEPT && r->v[0].op.args.count == 4 &&
			 r->v[1].op.args.count == 2 && r->v[COLL_KEPT - 1].op.args.count == 9 &&
			 arena_bytes(dev) == dev->kept,
			 "repeat: what has not come for long makes room\n");
	coll_repeats_drop(comms[0]);
	for (size_t n = 1000; n < 2000; n += 200)
		bad |= both(n) | both(n) | both(n);
	ksft_test_result(!bad && r->n > 1 && dev->kept <= dev->arena_size / 2 &&
			 arena_bytes(dev) == dev->kept, "repeat: only so much of the arena\n");
	copied = dev->copied;
	other = coll_arena_get(dev, 30000);
	bad |= both(3000);
	ksft_test_result(!bad && other > 24000 && dev->copied == copied + 1 && !r->n && !dev->kept,
			 "repeat: gone when its room is needed\n");
	coll_arena_put(dev, other, 30000);
	bad |= both(4) | both(4);

	/* Two threads of each rank, all with the same call: one at a time has it. */
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, again, comms[i % 2]);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], &failed);
		bad |= !!failed;
	}
	ksft_test_result(!bad && !r->busy && arena_bytes(dev) == dev->kept,
			 "repeat: by several threads\n");

	/* One that fails is not kept, and says so as any other. */
	bad |= both(4) | both(4);
	bad |= coll_comm_abort(comms[1], 5);
	bad |= coll_allreduce(comms[0], in[0], out[0], 4, COLL_INT32, COLL_SUM) != -ECANCELED;
	ksft_test_result(!bad && strstr(coll_comm_last_error(comms[0]), "allreduce") &&
			 arena_bytes(dev) == dev->kept && !r->busy, "repeat: fails\n");
	ksft_test_result(!teardown(), "repeat: gone with its communicator\n");
}

/* Those of calls that are kept, too. */
static void test_plans_of_kept_calls(void)
{
	struct coll_request *req;
	int bad = 0, rc;

	setup(NULL);
	for (size_t n = 1; n <= COLL_KEPT; n++)
		bad |= both(n) | both(n);
	bad |= comms[0]->repeats.n != COLL_KEPT;
	bad |= coll_iallreduce(comms[1], in[1], out[1], 100, COLL_INT32, COLL_SUM, &req);
	mock_fail(NPULINK_PLAN_CREATE, -ENOMEM, 0, 3, false);
	rc = coll_allreduce(comms[0], in[0], out[0], 100, COLL_INT32, COLL_SUM);
	mock_fail(NPULINK_PLAN_CREATE, 0, 0, 0, false);
	if (rc)
		coll_allreduce(comms[0], in[0], out[0], 100, COLL_INT32, COLL_SUM);
	bad |= coll_wait(&req);
	ksft_test_result(!bad && !rc && !comms[0]->repeats.n &&
			 comms[0]->plans.n == COLL_KEPT - 2,
			 "plans: dropped with the calls that are kept\n");
	teardown();
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(4 + 1 + 14 + 1);
	test_in_turn();
	test_repeat_in_place();
	test_repeat();
	test_plans_of_kept_calls();
	ksft_finished();
}
