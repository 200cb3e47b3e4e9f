// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * drv.c - what libcoll does when ioctls fail or are interrupted, and how many it
 * makes: against the mock.
 */
#include <sys/time.h>
#include "mock.h"
#include "coll.h"
#include "internal.h"
#include "kselftest.h"

#define BIG	30000

static struct coll_comm *comms[2];
static int in[2][BIG], out[2][BIG];

static void setup(const struct coll_config *base)
{
	struct coll_config config = COLL_CONFIG_INIT;
	struct coll_unique_id id;

	if (base)
		config = *base;
	config.device = "0";
	coll_get_unique_id(&id);
	for (int i = 0; i < 2; i++)
		if (coll_comm_init_rank(&comms[i], 2, &id, i, &config))
			ksft_exit_fail_msg("cannot make communicators\n");
	for (int r = 0; r < 2; r++)
		for (int i = 0; i < BIG; i++)
			in[r][i] = r + i;
}

static int teardown(void)
{
	return coll_comm_destroy(comms[0]) | coll_comm_destroy(comms[1]);
}

/* Rank 1 by request, rank 0 blocking. */
static int both(size_t count)
{
	struct coll_request *req;
	int rc, other;

	memset(out, 0, sizeof(out));
	rc = coll_iallreduce(comms[1], in[1], out[1], count, COLL_INT32, COLL_SUM, &req);
	if (rc)
		return rc;
	rc = coll_allreduce(comms[0], in[0], out[0], count, COLL_INT32, COLL_SUM);
	other = coll_wait(&req);
	for (size_t i = 0; i < count && !rc && !other; i++)
		if (out[0][i] != (int)(2 * i + 1) || out[1][i] != out[0][i])
			rc = -EILSEQ;
	return rc ? rc : other;
}

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
	struct coll_comm_info before, after;
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

static size_t arena_bytes(const struct coll_dev *dev)
{
	size_t n = 0;

	for (size_t i = 0; i < dev->arena_size / COLL_ARENA_GRAIN / 64; i++)
		n += __builtin_popcountll(dev->arena_used[i]);
	return n * COLL_ARENA_GRAIN;
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

/* ---- calls that are kept, since they come again */

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
	struct coll_comm_info before, after;
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

struct grouped {
	unsigned int n;
	struct {
		size_t count, at;
		uint32_t op;
	} calls[COLL_GROUP_KEPT + 2];
};

static long run_group(int rank, const struct grouped *g)
{
	long bad = coll_group_start(comms[rank]);

	for (unsigned int i = 0; i < g->n; i++)
		bad |= coll_allreduce(comms[rank], in[rank] + g->calls[i].at,
				      out[rank] + g->calls[i].at, g->calls[i].count, COLL_INT32,
				      g->calls[i].op);
	return bad | coll_group_end(comms[rank]);
}

static void *other_group(void *arg)
{
	return (void *)run_group(1, arg);
}

/* By both ranks. Of how many calls rank 0 had the plan from its last group; -1: wrong. */
static int group(const struct grouped *g)
{
	uint64_t before = comms[0]->group.hits;
	pthread_t thread;
	void *failed;
	long bad;

	memset(out, 0, sizeof(out));
	pthread_create(&thread, NULL, other_group, (void *)g);
	bad = run_group(0, g);
	pthread_join(thread, &failed);
	for (unsigned int i = 0; i < g->n; i++) {
		size_t end = g->calls[i].at + g->calls[i].count;

		for (size_t k = g->calls[i].at; k < end; k++) {
			int a = in[0][k], b = in[1][k];
			int want = g->calls[i].op == COLL_SUM ? a + b : a > b ? a : b;

			bad |= out[0][k] != want || out[1][k] != want;
		}
		bad |= out[0][end] || out[1][end];
	}
	return bad || failed ? -1 : (int)(comms[0]->group.hits - before);
}

/* The calls of a group that were in the last one, at the same place. */
static void test_groups_again(void)
{
	struct grouped g = { .n = 4, .calls = {
		{ 4, 0, COLL_SUM }, { 3, 100, COLL_MAX }, { 9000, 1000, COLL_SUM },
		{ 4, 200, COLL_SUM },
	} }, other;
	struct coll_comm_info before, after;
	unsigned int free_before = 0;
	int hits;

	setup(NULL);
	ksft_test_result(!group(&g) && group(&g) == 4, "groups: the second one is there\n");
	coll_comm_info(comms[0], &before);
	in[0][1] = 77;
	in[1][102] = -5;
	hits = group(&g);
	coll_comm_info(comms[0], &after);
	ksft_test_result(hits == 4 && after.plan_hits - before.plan_hits == 4 &&
			 after.plan_misses == before.plan_misses, "groups: new data\n");
	in[0][1] = 1;
	in[1][102] = 103;

	/* One thing is another, then the same again; only a buffer is. */
	other = g;
	other.calls[0].count = 3;
	hits = group(&other);
	other.calls[1].op = COLL_SUM;
	hits = hits == 3 && group(&other) == 3 ? 3 : -1;
	other.calls[3].at = 300;
	ksft_test_result(hits == 3 && group(&other) == 4, "groups: others are not taken for it\n");
	other.n = 2;
	ksft_test_result(group(&other) == 2 && group(&g) == 0 && group(&g) == 4,
			 "groups: shorter and longer\n");

	/* The kernel has no room for plans, of which it hears from rank 1 first: then they go. */
	hits = comms[1]->group.nkept;
	mock_fail(NPULINK_PLAN_CREATE, -ENOMEM, 0, 3, false);
	hits = !both(1000) && hits == 4 && !comms[1]->group.nkept;
	ksft_test_result(hits && group(&g) == 4 && comms[1]->group.nkept == 4 && group(&g) == 4,
			 "groups: give their plans back\n");

	/* More than are kept. */
	other.n = COLL_GROUP_KEPT + 2;
	for (unsigned int i = 0; i < other.n; i++) {
		other.calls[i].count = 2;
		other.calls[i].at = 10 * i;
		other.calls[i].op = COLL_SUM;
	}
	group(&other);
	ksft_test_result(group(&other) == COLL_GROUP_KEPT, "groups: some of a long one are kept\n");

	/* What they have goes with the communicator. */
	for (const struct coll_request *r = comms[0]->dev->free; r; r = r->next)
		free_before++;
	ksft_test_result(free_before + comms[0]->group.nkept == comms[0]->dev->nchunks * 32 &&
			 !teardown(), "groups: gone with its communicator\n");
}

/* A call of a group that is refused: then none of it is carried out, and all who ask are told. */
static void test_group_refused(void)
{
	struct grouped g = { .n = 2, .calls = { { 4, 0, COLL_SUM }, { 3, 100, COLL_MAX } } };
	struct coll_request *req[3] = { };
	unsigned int posts, bad = 0;

	setup(NULL);
	bad |= group(&g) || group(&g) != 2;
	bad |= coll_allreduce_init(comms[0], in[0], out[0], 4, COLL_INT32, COLL_SUM, &req[1]);
	posts = mock_calls(NPULINK_POST) + mock_calls(NPULINK_POST_BATCH);
	for (int what = 0; what < 5; what++) {
		int want = what == 3 ? -EBUSY : -EINVAL, refused = 0;
		int rc = coll_group_start(comms[0]);

		rc |= coll_allreduce(comms[0], in[0], out[0], 4, COLL_INT32, COLL_SUM);
		rc |= coll_iallreduce(comms[0], in[0], out[0], 4, COLL_INT32, COLL_SUM, &req[0]);
		rc |= coll_start(req[1]);
		switch (what) {
		case 0:
			refused = coll_allreduce(comms[0], NULL, out[0], 3, COLL_INT32, COLL_SUM);
			break;
		case 1:
			refused = coll_iallreduce(comms[0], in[0], NULL, 3, COLL_INT32, COLL_SUM,
						  &req[2]);
			break;
		case 2:
			refused = coll_iallreduce(comms[0], in[0], out[0], 3, COLL_INT32, COLL_SUM,
						  NULL);
			break;
		case 3:
			refused = coll_start(req[1]);
			break;
		case 4:
			refused = coll_start(req[0]);
			break;
		}
		rc |= coll_barrier(comms[0]);
		rc |= coll_group_end(comms[0]) != want;
		rc |= coll_wait(&req[0]) != want || req[0] || coll_wait(&req[1]) != want ||
		      !req[1] || req[2];
		ksft_test_result(!rc && refused == want, "group: with a refused call (%d)\n",
				 what);
	}
	bad |= mock_calls(NPULINK_POST) + mock_calls(NPULINK_POST_BATCH) != posts;
	ksft_test_result(!bad && !group(&g) && group(&g) == 2,
			 "group: nothing was posted, and the next one is as any other\n");
	bad = coll_request_free(&req[1]);
	ksft_test_result(!bad && !teardown(), "group: nothing is left\n");
}

/*
 * Whose calls take all the room that there is, as several groups may do together: what has ended
 * makes room for the rest. And what is refused for want of room leaves nothing behind.
 */
static void test_group_room(void)
{
	struct coll_request *req[300] = { }, *self[2] = { };
	unsigned int most = mock.max_inflight, n = 40;
	int bad = 0, rc, x = 7, a = 1, b = 2;

	setup(NULL);
	memset(out, 0, sizeof(out));
	for (unsigned int i = 0; i < n; i++)
		bad |= coll_isend(comms[1], &in[1][i], 1, COLL_INT32, 0, &req[i]);
	mock.max_inflight = n / 2;
	bad |= coll_group_start(comms[0]);
	for (unsigned int i = 0; i < n; i++)
		bad |= coll_recv(comms[0], &out[0][i], 1, COLL_INT32, 1);
	bad |= coll_group_end(comms[0]);
	mock.max_inflight = most;
	bad |= coll_waitall(n, req);
	ksft_test_result(!bad && !memcmp(out[0], in[1], n * sizeof(out[0][0])),
			 "group: what has ended makes room\n");

	bad = coll_group_start(comms[0]);
	bad |= coll_irecv(comms[0], &a, 1, COLL_INT32, 0, &self[0]);
	for (unsigned int i = 0; i <= most; i++)
		bad |= coll_irecv(comms[0], &out[0][i], 1, COLL_INT32, 1, &req[i]);
	rc = coll_group_end(comms[0]);
	bad |= coll_wait(&self[0]) != -EBUSY;
	for (unsigned int i = 0; i <= most; i++)
		bad |= coll_wait(&req[i]) != -EBUSY;
	ksft_test_result(!bad && rc == -EBUSY, "group: too many, all are told\n");
	bad = coll_group_start(comms[0]);
	bad |= coll_irecv(comms[0], &b, 1, COLL_INT32, 0, &self[0]);
	bad |= coll_isend(comms[0], &x, 1, COLL_INT32, 0, &self[1]);
	bad |= coll_group_end(comms[0]) | coll_waitall(2, self);
	ksft_test_result(!bad && a == 1 && b == 7 && !teardown(),
			 "group: too many, the own rank's were not received\n");
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

/* A call with memory of coll_mem_alloc() and some more, whether it can be pinned or not. */
static void test_beyond_alloc(void)
{
	struct coll_reg *reg = NULL;
	struct coll_dev *dev;
	void *mem;
	int bad;

	setup(NULL);
	dev = comms[0]->dev;
	bad = coll_mem_alloc(comms[0], 8192, &mem);
	bad |= coll_reg_get(dev, (char *)mem + 4096, 8192, true, &reg) != -EOPNOTSUPP;
	bad |= coll_register(comms[0], (char *)mem + 4096, 8192) != -EOPNOTSUPP;
	ksft_test_result(!bad && dev->regs.n == 1 && dev->regs.v[0]->alloc &&
			 !coll_mem_free(comms[0], mem), "alloc: kept when a call reaches beyond\n");
	teardown();
}

/* What coll_register() was called for stays, whatever comes after. */
static void test_register_stays(void)
{
	char *mem = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct coll_reg *reg, *other;
	struct coll_dev *dev;
	int bad;

	setup(NULL);
	dev = comms[0]->dev;
	mock.memlock = mock.locked + 32768;
	bad = coll_register(comms[0], mem, 20480);
	bad |= coll_reg_get(dev, mem, 24576, true, &reg);
	coll_reg_put(dev, reg);
	ksft_test_result(!bad && dev->regs.n == 1 && reg->pins == 1 &&
			 reg->end - reg->start == 24576,
			 "register: grows where there is no room for both\n");
	bad = coll_reg_get(dev, mem, 65536, true, &other) != -ENOMEM;
	ksft_test_result(!bad && dev->regs.n == 1 && dev->regs.v[0]->pins == 1 &&
			 !coll_deregister(comms[0], mem, 20480),
			 "register: kept where there is no room for more\n");
	mock.memlock = SIZE_MAX;
	bad = coll_register(comms[0], mem + 4096, 8192);
	/* The union is refused, then it is pinned by itself. */
	mock_fail(NPULINK_BUF_REGISTER, -EFAULT, 0, 1, false);
	bad |= coll_reg_get(dev, mem + 8192, 8192, true, &reg);
	if (!bad)
		coll_reg_put(dev, reg);
	ksft_test_result(!bad && !coll_deregister(comms[0], mem + 4096, 8192),
			 "register: kept beside\n");
	munmap(mem, 1 << 20);
	teardown();
}

static void test_registrations(void)
{
	struct coll_config config = COLL_CONFIG_INIT;
	struct coll_comm_info info;
	char *mem = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct coll_reg *a, *b, *c;
	struct coll_dev *dev;
	void *alloc;
	int bad;

	setup(&config);
	dev = comms[0]->dev;
	bad = coll_reg_get(dev, mem + 100, 5000, true, &a);
	bad |= coll_reg_get(dev, mem + 200, 100, false, &b);
	ksft_test_result(!bad && a == b && a->start % 4096 == 0 && a->end - a->start == 8192,
			 "cache: a part of a range is found\n");
	bad = coll_reg_get(dev, mem + 8000, 1000, true, &c);
	ksft_test_result(!bad && c != a && !a->listed && c->listed &&
			 c->start == a->start && c->end == a->start + 12288,
			 "cache: a range that overlaps replaces by the union\n");
	coll_reg_put(dev, a);
	ksft_test_result(dev->regs.bytes == 12288 + 8192, "cache: in use, so it stays pinned\n");
	coll_reg_put(dev, b);
	ksft_test_result(dev->regs.bytes == 12288, "cache: unpinned with its last user\n");
	coll_reg_put(dev, c);

	mock.memlock = mock.locked + 4096;
	bad = coll_reg_get(dev, mem + 65536, 8192, true, &a);
	coll_comm_info(comms[0], &info);
	ksft_test_result(!bad && info.registrations == 1, "cache: room is made at the limit\n");
	coll_reg_put(dev, a);
	mock.memlock = SIZE_MAX;

	for (int i = 0; i < 100; i++) {
		bad |= coll_reg_get(dev, mem + 8192 * i, 4096, true, &a);
		coll_reg_put(dev, a);
	}
	ksft_test_result(!bad && dev->regs.n == 100, "cache: ranges that do not touch\n");
	for (int i = 99; i >= 0; i--) {
		bad |= coll_reg_get(dev, mem + 8192 * i, 4096, true, &a);
		coll_reg_put(dev, a);
	}
	bad |= coll_reg_get(dev, mem, 100 * 8192 - 4096, true, &a);
	ksft_test_result(!bad && dev->regs.n == 1, "cache: one range that holds all of them\n");
	coll_reg_put(dev, a);

	bad = coll_register(comms[0], mem, 4096);
	while (coll_reg_evict(dev))
		;
	ksft_test_result(!bad && dev->regs.n == 1, "register: stays when others go\n");
	ksft_test_result(!coll_deregister(comms[0], mem, 4096) && !dev->regs.n &&
			 coll_deregister(comms[0], mem, 4096) == -ENOENT, "register: undone\n");

	bad = coll_mem_alloc(comms[0], 50000, &alloc);
	ksft_test_result(!bad && alloc && !((uintptr_t)alloc & 4095), "mem_alloc\n");
	bad = coll_reg_get(dev, (char *)alloc + 1000, 40000, true, &a);
	ksft_test_result(!bad && a->alloc && coll_mem_free(comms[0], alloc) == -EBUSY,
			 "mem_alloc: is not pinned again, not freed while used\n");
	coll_reg_put(dev, a);
	ksft_test_result(coll_mem_free(comms[0], (char *)alloc + 4096) == -EINVAL &&
			 !coll_mem_free(comms[0], alloc) && !dev->regs.n, "mem_free\n");
	munmap(mem, 1 << 20);
	teardown();
}

static void test_arena(void)
{
	struct coll_config config = COLL_CONFIG_INIT;
	struct coll_dev *dev;
	ptrdiff_t a, b, c;

	config.arena = 8192;
	setup(&config);
	dev = comms[0]->dev;
	a = coll_arena_get(dev, 1);
	b = coll_arena_get(dev, 4096);
	c = coll_arena_get(dev, 4033);
	ksft_test_result(a == 0 && b == 64 && c == -1, "arena: first fit\n");
	c = coll_arena_get(dev, 4032);
	ksft_test_result(c == 4160 && coll_arena_get(dev, 1) == -1, "arena: full\n");
	coll_arena_put(dev, b, 4096);
	ksft_test_result(coll_arena_get(dev, 4097) == -1 && coll_arena_get(dev, 4096) == 64,
			 "arena: a hole\n");
	coll_arena_put(dev, 0, 8192);
	ksft_test_result(coll_arena_get(dev, 8192) == 0 && coll_arena_get(dev, 8193) == -1,
			 "arena: all of it\n");
	ksft_test_result(!both(16) && !dev->copied, "arena: full, so memory is pinned\n");
	coll_arena_put(dev, 0, 8192);
	ksft_test_result(!both(16) && dev->copied == 1, "arena: free again\n");
	teardown();
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

static void test_plans(void)
{
	struct coll_comm_info info;
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
	ksft_set_plan(2 + 3 + 4 + 4 + 1 + 4 + 16 + 7 + 6 + 1 + 2 + 14 + 6 + 6 + 1 + 4);
	setup(NULL);
	test_one_call(4, "copied");
	test_one_call(BIG, "pinned");
	test_signals();
	test_busy();
	test_stale();
	test_stale_in_a_group();
	teardown();
	test_in_turn();
	test_repeat_in_place();
	test_repeat();
	test_groups_again();
	test_group_refused();
	test_group_room();
	test_room();
	test_beyond_alloc();
	test_register_stays();
	test_registrations();
	test_arena();
	test_plans();
	test_plans_of_kept_calls();
	test_device_gone();
	ksft_finished();
}
