// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * groups.c - groups of calls: what is kept of them, what is refused, when there is no room, groups
 * in groups, of several threads, and of several communicators: against the mock.
 */
#include "lib/run/comm.h"
#include "lib/run/group_kept.h"
#include "lib/run/reg.h"
#include "lib/run/request.h"
#include "mock_pair.h"

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
	uint64_t before = coll_group_hits(comms[0]);
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
	return bad || failed ? -1 : (int)(coll_group_hits(comms[0]) - before);
}

/* The calls of a group that were in the last one, at the same place. */
static void test_groups_again(void)
{
	struct grouped g = { .n = 4, .calls = {
		{ 4, 0, COLL_SUM }, { 3, 100, COLL_MAX }, { 9000, 1000, COLL_SUM },
		{ 4, 200, COLL_SUM },
	} }, other;
	struct coll_comm_info before = COLL_COMM_INFO_INIT, after = COLL_COMM_INFO_INIT;
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
	hits = comms[1]->groups->nkept;
	mock_fail(NPULINK_PLAN_CREATE, -ENOMEM, 0, 3, false);
	hits = !both(1000) && hits == 4 && !comms[1]->groups->nkept;
	ksft_test_result(hits && group(&g) == 4 && comms[1]->groups->nkept == 4 && group(&g) == 4,
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
	ksft_test_result(free_before + comms[0]->groups->nkept == comms[0]->dev->nchunks * 32 &&
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

/* ---- groups in groups, of several threads, of several communicators */

/* The outermost end starts all. */
static void *nested(void *arg)
{
	long rank = (long)arg, bad = coll_group_start(comms[rank]);

	bad |= coll_allreduce(comms[rank], in[rank], out[rank], 4, COLL_INT32, COLL_SUM);
	bad |= coll_group_start(comms[rank]);
	bad |= coll_allreduce(comms[rank], in[rank] + 4, out[rank] + 4, 4, COLL_INT32, COLL_SUM);
	bad |= coll_group_end(comms[rank]);
	bad |= out[rank][1] || out[rank][5];
	bad |= coll_allreduce(comms[rank], in[rank] + 8, out[rank] + 8, 4, COLL_INT32, COLL_SUM);
	bad |= coll_group_end(comms[rank]);
	bad |= coll_group_end(comms[rank]) != -EINVAL;
	for (int i = 0; i < 12; i++)
		bad |= out[rank][i] != 2 * i + 1;
	return (void *)bad;
}

static void test_nested(void)
{
	unsigned int before;
	pthread_t thread;
	void *failed;
	long bad;

	setup(NULL);
	memset(out, 0, sizeof(out));
	before = mock_calls(NPULINK_POST_BATCH);
	pthread_create(&thread, NULL, nested, (void *)1);
	bad = (long)nested(NULL);
	pthread_join(thread, &failed);
	ksft_test_result(!bad && !failed && mock_calls(NPULINK_POST_BATCH) == before + 2,
			 "nested: the outermost end starts all\n");

	/* A call that is refused inside: nothing is started, as the last end says. */
	bad = coll_group_start(comms[0]);
	bad |= coll_isend(comms[0], in[0], 1, COLL_INT32, 1, NULL) != -EINVAL;
	bad |= coll_group_start(comms[0]) | coll_group_end(comms[0]);
	bad |= coll_group_end(comms[0]) != -EINVAL;
	ksft_test_result(!bad && !teardown(), "nested: refused\n");
}

static pthread_barrier_t both_open;

/* Has its own group of rank 0 open while the other thread has, too. */
static void *own_group(void *arg)
{
	long id = (long)arg, bad = coll_group_start(comms[0]);

	bad |= coll_recv(comms[0], &out[0][id], 1, COLL_INT32, 1);
	pthread_barrier_wait(&both_open);
	bad |= coll_recv(comms[0], &out[0][id + 2], 1, COLL_INT32, 1);
	bad |= coll_group_end(comms[0]);
	return (void *)bad;
}

/* A group of another thread whose communicator goes is in nobody's way. */
static void *lose_group(void *arg)
{
	long bad = coll_group_start(arg);

	pthread_barrier_wait(&both_open);
	pthread_barrier_wait(&both_open);
	bad |= coll_group_start(comms[0]) | coll_group_end(comms[0]);
	return (void *)bad;
}

static void test_threads(void)
{
	const struct coll_config config = COLL_CONFIG_INIT;
	struct coll_request *req[4] = { };
	struct coll_comm *others[2];
	long bad = 0, sum = 0;
	pthread_t thread;
	void *failed;

	setup(NULL);
	memset(out, 0, sizeof(out));
	for (int i = 0; i < 4; i++)
		bad |= coll_isend(comms[1], &in[1][i], 1, COLL_INT32, 0, &req[i]);
	pthread_barrier_init(&both_open, NULL, 2);
	pthread_create(&thread, NULL, own_group, (void *)1);
	bad |= (long)own_group(NULL);
	pthread_join(thread, &failed);
	bad |= coll_waitall(4, req);
	for (int i = 0; i < 4; i++)
		sum += out[0][i];
	ksft_test_result(!bad && !failed && sum == 1 + 2 + 3 + 4 && out[0][0] < out[0][2] &&
			 out[0][1] < out[0][3], "threads: each has its group open\n");

	bad = comms_make(others, 2, config);
	pthread_create(&thread, NULL, lose_group, others[0]);
	pthread_barrier_wait(&both_open);
	bad |= comms_free(others, 2);
	pthread_barrier_wait(&both_open);
	pthread_join(thread, &failed);
	pthread_barrier_destroy(&both_open);
	ksft_test_result(!bad && !failed && !teardown(), "threads: one loses its group\n");
}

/* A thread has both ranks, and calls that wait for each other. */
static void test_several(void)
{
	const struct coll_config config = COLL_CONFIG_INIT;
	unsigned int most = mock.max_inflight, posts;
	struct coll_request *req[2] = { };
	struct coll_comm *others[2];
	long bad = 0;
	int rc;

	setup(NULL);
	for (int k = 0; k < 3; k++) {
		memset(out, 0, sizeof(out));
		for (int r = 0; r < 2; r++)
			bad |= coll_group_start(comms[r]);
		for (int r = 0; r < 2; r++) {
			/* Pinned in the last round. */
			size_t n = k < 2 ? 4 : 9000;

			bad |= coll_allreduce(comms[r], in[r], out[r], n, COLL_INT32, COLL_SUM);
			bad |= coll_send(comms[r], &in[r][4], 1, COLL_INT32, !r);
			bad |= coll_recv(comms[r], &out[r][BIG - 1], 1, COLL_INT32, !r);
		}
		bad |= coll_group_end(comms[k % 2]);
		bad |= out[0][1] | out[1][1];
		/* Still in it, though its own group was ended. */
		bad |= coll_allreduce(comms[k % 2], in[0], out[0] + 20000, 4, COLL_INT32, COLL_MAX);
		bad |= coll_allreduce(comms[!(k % 2)], in[1], out[1] + 20000, 4, COLL_INT32,
				      COLL_MAX);
		bad |= coll_group_end(comms[!(k % 2)]);
		for (int r = 0; r < 2; r++)
			bad |= out[r][1] != 3 || out[r][BIG - 1] != !r + 4 ||
			       out[r][20001] != 2;
	}
	ksft_test_result(!bad, "several: one thread has all ranks\n");

	/* Of a second communicator, too, and requests. */
	bad = comms_make(others, 2, config);
	memset(out, 0, sizeof(out));
	for (int r = 0; r < 2; r++)
		bad |= coll_group_start(others[r]) | coll_group_start(comms[r]);
	for (int r = 1; r >= 0; r--) {
		bad |= coll_allreduce(comms[r], in[r], out[r], 4, COLL_INT32, COLL_SUM);
		bad |= coll_iallreduce(others[r], in[r], out[r] + 100, 4, COLL_INT32, COLL_SUM,
				       &req[r]);
	}
	for (int r = 0; r < 2; r++)
		bad |= coll_group_end(others[r]) | coll_group_end(comms[r]);
	bad |= coll_waitall(2, req);
	for (int r = 0; r < 2; r++)
		bad |= out[r][1] != 3 || out[r][101] != 3;
	ksft_test_result(!bad, "several: communicators and requests\n");

	/* What one cannot start, none does; whoever is asked has the text. */
	posts = mock_calls(NPULINK_POST_BATCH);
	for (int what = 0; what < 3; what++) {
		static const char *const words[] = { "buffer is NULL", "mapped", "in flight" };
		static const int errors[] = { -EINVAL, -EFAULT, -EBUSY };
		size_t n = what == 1 ? 9000 : 4;

		bad = coll_group_start(comms[0]) | coll_group_start(others[0]);
		bad |= coll_allreduce(others[0], in[0], out[0] + 100, 4, COLL_INT32, COLL_SUM);
		rc = coll_allreduce(comms[0], what ? in[0] : NULL, out[0], n, COLL_INT32, COLL_SUM);
		bad |= rc != (what ? 0 : -EINVAL);
		while (coll_reg_evict(comms[0]->dev))
			;
		if (what == 1)
			mock_fail(NPULINK_BUF_REGISTER, -EFAULT, 0, 9, false);
		if (what == 2)
			comms[0]->dev->info.out_max_inflight = 0;
		bad |= coll_group_end(comms[0]);
		rc = coll_group_end(others[0]);
		mock_fail(NPULINK_BUF_REGISTER, 0, 0, 0, false);
		comms[0]->dev->info.out_max_inflight = most;
		bad |= rc != errors[what] || mock_calls(NPULINK_POST_BATCH) != posts ||
		       !strstr(coll_comm_last_error(others[0]), words[what]);
		ksft_test_result(!bad, "several: refused (%d)\n", what);
	}
	bad = 0;
	for (int r = 0; r < 2; r++)
		bad |= coll_group_start(comms[r]) | coll_group_start(others[r]);
	/* Gone with its communicator. */
	for (int r = 0; r < 2; r++)
		bad |= coll_comm_destroy(others[r]) | coll_group_end(comms[r]);
	ksft_test_result(!bad && !both(16) && !teardown(), "several: one goes while it is open\n");
}

/* One has been started when the next is refused: it is not waited for. */
static void test_several_halfway(void)
{
	const struct coll_config config = COLL_CONFIG_INIT;
	struct coll_comm *others[2];
	struct coll_state state = COLL_STATE_INIT;
	long bad;
	int rc;

	setup(NULL);
	bad = comms_make(others, 2, config);
	bad |= coll_group_start(comms[0]) | coll_group_start(others[0]);
	bad |= coll_allreduce(comms[0], in[0], out[0], 4, COLL_INT32, COLL_SUM);
	bad |= coll_allreduce(others[0], in[0], out[0] + 100, 4, COLL_INT32, COLL_SUM);
	mock.fail[31].rc = -EPERM;
	mock.fail[31].skip = 1;
	mock.fail[31].times = 1;
	bad |= coll_group_end(comms[0]);
	rc = coll_group_end(others[0]);
	bad |= rc != -EPERM || coll_comm_status(comms[0], &state) || state.status != -ECANCELED;
	ksft_test_result(!bad && !comms_free(others, 2) && !teardown(),
			 "several: one is refused when the other was started\n");
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(7 + 7 + 3 + 2 + 2 + 6 + 1);
	test_nested();
	test_threads();
	test_several();
	test_several_halfway();
	test_groups_again();
	test_group_refused();
	test_group_room();
	ksft_finished();
}
