// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * coll_shrink - ranks are killed one after the other in the middle of collectives; those
 * who are left shrink the communicator and go on, until one is alone. Or one of them does not.
 */
#include "coll_ranks.h"
#include "lib/run/comm.h"

#define COUNT 1000

/* Allreduce until it fails; the sum proves that just the members took part. */
static int reduce_until_failure(struct ranks *ranks, struct coll_comm *comm, unsigned int self)
{
	unsigned int n = coll_comm_size(comm), i;
	static int in[COUNT], out[COUNT];
	int rc;

	for (;;) {
		for (i = 0; i < COUNT; i++)
			in[i] = (int)i + 1;
		rc = coll_allreduce(comm, in, out, COUNT, COLL_INT32, COLL_SUM);
		if (rc)
			return rc;
		for (i = 0; i < COUNT; i++)
			if (out[i] != (int)(n * (i + 1)))
				return rank_fail(ranks, self, "%u ranks: element %u is %d", n, i,
						 out[i]);
		__atomic_add_fetch(&ranks->number[0], 1, __ATOMIC_SEQ_CST);
	}
}

static int survive(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int self = coll_comm_rank(comm), n = ranks->n, place = self;
	struct coll_comm *old = NULL, *new;
	int rc;

	while (n > 1) {
		rc = reduce_until_failure(ranks, old ? old : comm, self);
		if (rc != -EOWNERDEAD)
			return rc;
		rc = coll_comm_shrink(old ? old : comm, &new, NULL);
		if (rc)
			return rank_fail(ranks, self, "shrink: %s",
					 coll_comm_last_error(old ? old : comm));
		coll_comm_destroy(old);
		old = new;
		/* The highest rank is always the one that is killed. */
		n = coll_comm_size(new);
		if (coll_comm_rank(new) != place)
			return rank_fail(ranks, self, "is rank %u now, was %u",
					 coll_comm_rank(new), place);
		__atomic_add_fetch(&ranks->number[1], 1, __ATOMIC_SEQ_CST);
	}
	coll_comm_destroy(old);
	return 0;
}

/* Wait until @n more operations, counted on all ranks, have been done. */
static bool progress(struct ranks *ranks, int n)
{
	uint64_t end = now_ms() + 60000;
	int from = __atomic_load_n(&ranks->number[0], __ATOMIC_SEQ_CST);

	while (__atomic_load_n(&ranks->number[0], __ATOMIC_SEQ_CST) - from < n) {
		if (now_ms() > end)
			return false;
		usleep(1000);
	}
	return true;
}

static int one_after_the_other(unsigned int n)
{
	struct ranks *ranks = ranks_new(n);
	pid_t pid[RANKS_MAX];
	unsigned int i, bad = 0;

	for (i = 0; i < n; i++)
		pid[i] = rank_start(ranks, i, survive);
	for (i = n - 1; i > 0; i--) {
		if (!progress(ranks, 20)) {
			ksft_print_msg("no progress with %u ranks\n", i + 1);
			bad++;
		}
		kill(pid[i], SIGKILL);
		waitpid(pid[i], NULL, 0);
	}
	bad += rank_join_end(ranks, 0, pid[0]);
	if (ranks->number[1] < (int)n - 1)
		bad++;
	ranks_free(ranks);
	return bad;
}

/*
 * One is killed, and of the others rank 2 leaves instead of shrinking, when they have: what they
 * shrank to fails, says why, and is shrunk once more.
 */
static int shrink_twice(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int self = coll_comm_rank(comm);
	struct coll_comm *old = comm, *new;
	const char *text;
	int rc;

	rc = reduce_until_failure(ranks, comm, self);
	if (rc != -EOWNERDEAD)
		return rc;
	if (self == 2) {
		usleep(300000);
		return 0;
	}
	do {
		if (coll_comm_shrink(old, &new, NULL))
			return rank_fail(ranks, self, "shrink: %s", coll_comm_last_error(old));
		if (old != comm)
			coll_comm_destroy(old);
		old = new;
		rc = coll_barrier(new);
		text = coll_comm_last_error(new);
		if (rc == -ESHUTDOWN && !strstr(text, "left without joining this communicator"))
			return rank_fail(ranks, self, "text: %s", text);
		if (rc == -ESHUTDOWN)
			__atomic_add_fetch(&ranks->number[1], 1, __ATOMIC_SEQ_CST);
	} while (rc == -ESHUTDOWN);
	if (!rc && coll_comm_size(new) != 2)
		return rank_fail(ranks, self, "%u ranks are left", coll_comm_size(new));
	coll_comm_destroy(new);
	return rc;
}

static int one_does_not_shrink(void)
{
	struct ranks *ranks = ranks_new(4);
	pid_t pid[4];
	unsigned int i, bad = 0;

	for (i = 0; i < 4; i++)
		pid[i] = rank_start(ranks, i, shrink_twice);
	bad += !progress(ranks, 20);
	kill(pid[3], SIGKILL);
	waitpid(pid[3], NULL, 0);
	for (i = 0; i < 3; i++)
		bad += rank_join_end(ranks, i, pid[i]);
	/* On a busy machine it may have left before they shrank. */
	ksft_print_msg("%d times in what was shrunk\n", ranks->number[1]);
	ranks_free(ranks);
	return bad;
}

static int refuse_healthy(struct ranks *ranks, struct coll_comm *comm)
{
	struct coll_comm *new = comm;

	if (coll_comm_shrink(comm, &new, NULL) != -EINVAL || new)
		return rank_fail(ranks, coll_comm_rank(comm), "shrunk without a failure");
	if (!strstr(coll_comm_last_error(comm), "has not failed"))
		return rank_fail(ranks, coll_comm_rank(comm), "text: %s",
				 coll_comm_last_error(comm));
	return coll_barrier(comm);
}

int main(void)
{
	ksft_print_header();
	if (!have_device())
		ksft_exit_skip("no device\n");
	ksft_set_plan(3);
	ksft_test_result(!ranks_of(2, refuse_healthy), "a healthy communicator is not shrunk\n");
	ksft_test_result(!one_after_the_other(5), "five ranks, killed one after the other\n");
	ksft_test_result(!one_does_not_shrink(), "one leaves instead of shrinking\n");
	ksft_exit(ksft_get_pass_cnt() == 3);
}
