// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * coll_board_rooted.c - small collectives with a root that ranks carry out by themselves: the same
 * bits as by their plans; the root is ahead of the others as far as there is room, whatever form
 * they call it in; and who calls something else, dies or leaves is noticed.
 *
 * npulink-test: timeout=240
 */
#include "cases.h"
#include "coll_board.h"
#include "coll_ranks.h"
#include "lib/run/comm.h"

#define BYTES	8192
#define AHEAD	12	/* fewer than there are slots */

enum what { BROADCAST, SCATTER, REDUCE, GATHER, WHATS };

static int run(unsigned int n, int (*fn)(struct ranks *, struct coll_comm *), int tell[64])
{
	struct ranks *ranks = ranks_new(n);
	pid_t pid[RANKS_MAX];
	int bad = 0;

	memcpy(ranks->number, tell, sizeof(ranks->number));
	for (unsigned int i = 0; i < n; i++)
		pid[i] = rank_start(ranks, i, fn);
	for (unsigned int i = 0; i < n; i++)
		bad += rank_join_end(ranks, i, pid[i]);
	memcpy(tell, ranks->number, sizeof(ranks->number));
	ranks_free(ranks);
	return bad;
}

static void tell_others(struct ranks *ranks, unsigned int i)
{
	__atomic_store_n(&ranks->number[i], 1, __ATOMIC_SEQ_CST);
}

static void wait_told(struct ranks *ranks, unsigned int i)
{
	while (!__atomic_load_n(&ranks->number[i], __ATOMIC_SEQ_CST))
		pause_us(500);
}

/* ---- the calls */

struct call {
	enum what what;
	size_t count;		/* of a block */
	unsigned int type, op, root;
	bool in_place;		/* at the root */
};

enum form { BLOCKING, REQUEST, GROUP, FORMS };

static int end_request(struct coll_request **req, int rc)
{
	return rc ? rc : coll_wait(req);
}

/* @in is what the rank gives, and where the root's result is if it is in place. */
static int call(struct coll_comm *comm, const struct call *c, enum form form, void *in, void *out)
{
	bool in_place = c->in_place && coll_comm_rank(comm) == c->root;
	size_t own = c->root * c->count * coll_dtype_size(c->type);
	struct coll_request *req = NULL;
	const void *send = in;
	void *recv = out;
	int rc = 0;

	if (in_place && c->what == SCATTER)
		recv = COLL_IN_PLACE;
	else if (in_place)
		send = COLL_IN_PLACE;
	if (in_place && c->what != SCATTER)
		recv = in;
	if (in_place && c->what == GATHER)
		memmove((char *)in + own, in, c->count * coll_dtype_size(c->type));
	/* A request of a group is posted always. */
	if (form != BLOCKING)
		rc = coll_group_start(comm);
	if (form == GROUP || form == BLOCKING) {
		if (c->what == BROADCAST)
			rc |= coll_broadcast(comm, send, recv, c->count, c->type, c->root);
		else if (c->what == SCATTER)
			rc |= coll_scatter(comm, send, recv, c->count, c->type, c->root);
		else if (c->what == REDUCE)
			rc |= coll_reduce(comm, send, recv, c->count, c->type, c->op, c->root);
		else
			rc |= coll_gather(comm, send, recv, c->count, c->type, c->root);
		return form == GROUP ? rc | coll_group_end(comm) : rc;
	}
	if (c->what == BROADCAST)
		rc |= coll_ibroadcast(comm, send, recv, c->count, c->type, c->root, &req);
	else if (c->what == SCATTER)
		rc |= coll_iscatter(comm, send, recv, c->count, c->type, c->root, &req);
	else if (c->what == REDUCE)
		rc |= coll_ireduce(comm, send, recv, c->count, c->type, c->op, c->root, &req);
	else
		rc |= coll_igather(comm, send, recv, c->count, c->type, c->root, &req);
	rc |= coll_group_end(comm);
	return end_request(&req, rc);
}

/* Any bits; of floats, some that are no number. */
static void fill(unsigned char *buf, size_t len, unsigned int rank, unsigned int salt)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = mix(mix(i, salt), rank) >> 3;
}

/* First as requests, which are posted; then on the board. */
static int same_bits(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm), n = coll_comm_size(comm), missed = 0;
	static _Alignas(8) unsigned char in[2][BYTES], out[2][BYTES];
	int rc = warm_up(comm);

	for (unsigned int i = 0; i < (n == 2 ? 4 * 60 : 4 * 20) && !rc; i++) {
		struct call c = {
			.what = i % WHATS, .type = i / 4 % 12, .op = i / 4 % 5, .root = i / 4 % n,
			.in_place = i / 8 % 2,
		};
		size_t size = coll_dtype_size(c.type), len = i % 7 ? 16 + i % 5 * 200 : BYTES;
		uint64_t before = 0;

		c.count = len / size / (c.what == SCATTER || c.what == GATHER ? n : 1);
		if (i % 23 == 0)
			c.count = 0;
		for (int k = 0; k < 6 && !rc; k++) {
			fill(in[!!k], BYTES, rank, i);
			memset(out[!!k], 0xa5, BYTES);
			if (k == 3)
				before = met(comm);
			rc = call(comm, &c, k ? BLOCKING : REQUEST, in[!!k], out[!!k]);
			if (!rc && (memcmp(in[0], in[1], k ? BYTES : 0) ||
				    memcmp(out[0], out[1], k ? BYTES : 0)))
				return rank_fail(ranks, rank, "call %u, time %d: other bits", i, k);
		}
		/* Those that the board has for any number of ranks. */
		if (c.count && (c.what != REDUCE || (c.type < COLL_FLOAT16 && c.op <= COLL_MAX)))
			missed += met(comm) == before;
	}
	if (rank == 0)
		ranks->number[0] = missed;
	return rc;
}

static bool do_same_bits(unsigned int n)
{
	int tell[64] = { 0 }, bad = run(n, same_bits, tell);

	ksft_print_msg("%d calls not met among %u\n", tell[0], n);
	return !bad && tell[0] < 40;
}

/* ---- ahead of the others */

/* The root is through with all before any other rank has called one; then it ends. */
static int ahead(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm), n = coll_comm_size(comm);
	int in[8 * RANKS_MAX], out[8], rc = warm_up(comm);
	uint64_t before = met(comm);

	if (rank)
		wait_told(ranks, 0);
	for (int i = 0; i < AHEAD && !rc; i++) {
		struct call c = { i % 2 ? SCATTER : BROADCAST, 8, COLL_INT32, 0, 0, i % 3 };

		for (unsigned int k = 0; k < 8 * n; k++)
			in[k] = i * 1000 + k;
		memset(out, 0, sizeof(out));
		/* One of them may be in the way of those who post. */
		rc = call(comm, &c, rank == 1 ? i % FORMS : BLOCKING, in, out);
		for (unsigned int k = 0; k < 8 && rank && !rc; k++)
			if (out[k] != (int)(i * 1000 + k + (i % 2 ? 8 * rank : 0)))
				return rank_fail(ranks, rank, "call %d: %d", i, out[k]);
	}
	if (!rc && met(comm) - before != AHEAD)
		rc = rank_fail(ranks, rank, "%d were met", (int)(met(comm) - before));
	if (!rank)
		tell_others(ranks, 0);
	return rc;
}

/* ---- in any form and order, whoever comes late */

static int mixed(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm), n = coll_comm_size(comm);
	static _Alignas(8) int in[RANKS_MAX * 64], out[RANKS_MAX * 64];
	unsigned int rounds = getenv("NPULINK_SOAK") ? 1500 : getenv("NPULINK_SLOW") ? 100 : 300;
	int rc = warm_up(comm), one = 1, sum;
	uint64_t before = met(comm);

	for (unsigned int i = 0; i < rounds && !rc; i++) {
		unsigned int late = mix(mix(i, 5), rank) % 256, how = mix(mix(i, 9), rank);
		struct call c = { mix(i / 20, 3) % WHATS, 1 + mix(i, 1) % 64, COLL_INT32, COLL_SUM,
				  mix(i / 20, 4) % n, mix(i, 6) % 2 };
		const int *got = c.in_place && rank == c.root && c.what != SCATTER ? in : out;
		unsigned int blocks = c.what == GATHER ? n : 1;

		if (late < 2)
			pause_us(12000);
		else if (late < 20)
			pause_us(late * 20);
		/* Block k of rank r is r + k, and so on. */
		for (unsigned int k = 0; k < n * c.count; k++)
			in[k] = i + k + (c.what < REDUCE ? 0 : rank);
		rc = call(comm, &c, how % 16 < FORMS ? how % 16 : BLOCKING, in, out);
		if ((c.what >= REDUCE && rank != c.root) ||
		    (c.what == SCATTER && rank == c.root && c.in_place))
			blocks = 0;
		for (unsigned int k = 0; k < blocks * c.count && !rc; k++) {
			unsigned int want = c.what == BROADCAST ? i + k :
					    c.what == SCATTER ? i + k + rank * c.count :
					    c.what == REDUCE ? n * (i + k) + n * (n - 1) / 2 :
					    i + k % c.count + k / c.count;

			if (got[k] != (int)want)
				return rank_fail(ranks, rank, "round %u, %u of %zu from %u: number %u is %d, not %u",
						 i, c.what, c.count, c.root, k, got[k], want);
		}
		if (!rc && mix(i, 11) % 32 == 0)
			rc = coll_allreduce(comm, &one, &sum, 1, COLL_INT32, COLL_SUM);
	}
	if (!rc && rank == 0)
		ranks->number[0] = met(comm) - before;
	return rc;
}

static bool do_mixed(unsigned int n)
{
	int tell[64] = { 0 }, bad = run(n, mixed, tell);

	ksft_print_msg("%d met among %u\n", tell[0], n);
	return !bad && tell[0] > 20;
}

/* ---- what is noticed */

/* Rank 1 calls what the root has not called, when that has gone on, or before. */
static int mismatch(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	static int in[100000], out[100000];
	int how = ranks->number[0], rc = warm_up(comm);

	if (rc)
		return rc;
	if (rank && how < 4)
		wait_told(ranks, 1);
	if (rank == 1 && how % 4 == 3)
		rc = coll_allreduce(comm, in, out, 100000, COLL_INT32, COLL_SUM);
	else if (rank == 1 && how % 4 == 2)
		rc = coll_barrier(comm);
	else
		rc = coll_broadcast(comm, in, out, 2 + (rank == 1 && how % 4 == 0), COLL_INT32,
				    rank == 1 && how % 4 == 1);
	if (!rank)
		tell_others(ranks, 1);
	if (rc && (rc != -EPROTO || !strstr(coll_comm_last_error(comm), "rank 1")))
		return rank_fail(ranks, rank, "%d, %s", rc, coll_comm_last_error(comm));
	/* Who is a root itself goes on. */
	if (!rc && rank == 1 && how != 5)
		return rank_fail(ranks, rank, "nothing was noticed");
	rc = coll_barrier(comm);
	if (rc != -EPROTO || !strstr(coll_comm_last_error(comm), "rank 1"))
		return rank_fail(ranks, rank, "then %d, %s", rc, coll_comm_last_error(comm));
	return 0;
}

/* The root dies while the others wait for it, and they know soon. */
static int death(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	int value = 0, rc = warm_up(comm);
	uint64_t began = now_ms();

	if (rc)
		return rc;
	if (!rank) {
		pause_us(ranks->number[0]);
		_exit(0);
	}
	rc = coll_broadcast(comm, &value, &value, 1, COLL_INT32, 0);
	if (rc != -EOWNERDEAD)
		return rank_fail(ranks, rank, "%d, not EOWNERDEAD", rc);
	if (now_ms() - began > 20000)
		return rank_fail(ranks, rank, "only after %d ms", (int)(now_ms() - began));
	return 0;
}

static void test(unsigned int n, int (*fn)(struct ranks *, struct coll_comm *), int number,
		 const char *what)
{
	int tell[64] = { number };

	chosen_result(!run(n, fn, tell), "%u ranks: %s\n", n, what);
}

int main(void)
{
	static const char *const calls[] = {
		"another count", "another root", "a barrier", "a large allreduce",
	};
	char text[64];

	ksft_print_header();
	if (!have_device())
		ksft_exit_skip("no device\n");
	ksft_set_plan(21);
	for (unsigned int n = 2; n <= 4; n += 2)
		chosen_result(do_same_bits(n), "%u ranks: the same bits as by the plan\n", n);
	for (unsigned int n = 2; n <= 5; n++)
		test(n, ahead, 0, "the root is ahead of the others, and ends");
	for (unsigned int n = 2; n <= 5; n += n - 1)
		chosen_result(do_mixed(n), "%u ranks: in any form\n", n);
	for (int i = 0; i < 8; i++) {
		snprintf(text, sizeof(text), "%s than the root's, %s", calls[i % 4],
			 i < 4 ? "which has gone on" : "at any time");
		test(2 + i % 2, mismatch, i, text);
	}
	for (unsigned int n = 2; n <= 3; n++) {
		test(n, death, 0, "the root dies at once");
		test(n, death, 30000, "the root dies after 30 ms");
	}
	ksft_finished();
}
