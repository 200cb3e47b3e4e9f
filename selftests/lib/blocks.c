// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * blocks.c - the blocks of v forms, displacements of them that are wrong or far apart, and memory
 * that can only be copied: against the mock, which has the kernel's verifier.
 */
#include <sys/mman.h>
#include "lib/algorithm/algorithms.h"
#include "lib/run/comm.h"
#include "lib/run/dev.h"
#include "lib/run/reg.h"
#include "lib/run/request.h"
#include "mock_pair.h"

static bool refused(int rc, int want, const char *words)
{
	const char *text = coll_comm_last_error(comms[0]);

	if (rc == want && strstr(text, words))
		return true;
	ksft_print_msg("%d, not %d: \"%s\" has no \"%s\"\n", rc, want, text, words);
	return false;
}

/* ---- blocks that overlap */

static void test_overlap(void)
{
	const size_t two[2] = { 2, 2 }, apart[2] = { 0, 2 }, over[2] = { 1, 0 };
	const char *words = "the blocks of ranks 0 and 1 in recv overlap (displs)";
	struct coll_comm *c;
	int *s = in[0], *r = out[0];

	setup(NULL);
	c = comms[0];
	ksft_test_result(refused(coll_allgatherv(c, s, r, two, over, COLL_INT32), -EINVAL, words),
			 "overlap: allgatherv\n");
	ksft_test_result(refused(coll_gatherv(c, s, r, two, over, COLL_INT32, 0), -EINVAL, words) &&
			 refused(coll_gatherv(c, COLL_IN_PLACE, r, two, over, COLL_INT32, 0),
				 -EINVAL, words), "overlap: gatherv\n");
	ksft_test_result(refused(coll_alltoallv(c, s, two, apart, r, two, over, COLL_INT32),
				 -EINVAL, "ranks 0 and 1 in recv overlap (rdispls)") &&
			 refused(coll_alltoallv(c, COLL_IN_PLACE, NULL, NULL, r, two, over,
						COLL_INT32),
				 -EINVAL, "ranks 0 and 1 in recv overlap (rdispls)"),
			 "overlap: alltoallv\n");
	ksft_test_result(refused(coll_reduce_scatterv(c, s, COLL_IN_PLACE, two, over, COLL_INT32,
						      COLL_SUM),
				 -EINVAL, "ranks 0 and 1 in the buffer overlap (displs)"),
			 "overlap: reduce_scatterv in place\n");
	ksft_test_result(!teardown(), "overlap: the communicator is as it was\n");
}

/* Rank 1 by request. What is only read may be read twice. */
static void test_read_twice(void)
{
	const size_t two[2] = { 2, 2 }, over[2] = { 1, 0 };
	struct coll_request *req;
	int bad;

	setup(NULL);
	memset(out, 0, sizeof(out));
	bad = coll_iscatterv(comms[1], NULL, out[1], two, over, COLL_INT32, 0, &req);
	bad |= coll_scatterv(comms[0], in[0], out[0], two, over, COLL_INT32, 0);
	bad |= coll_wait(&req);
	ksft_test_result(!bad && out[0][0] == 1 && out[0][1] == 2 && out[1][0] == 0 &&
			 out[1][1] == 1, "read twice: scatterv\n");
	bad = coll_ireduce_scatterv(comms[1], in[1], out[1], two, over, COLL_INT32, COLL_SUM, &req);
	bad |= coll_reduce_scatterv(comms[0], in[0], out[0], two, over, COLL_INT32, COLL_SUM);
	bad |= coll_wait(&req);
	ksft_test_result(!bad && out[0][0] == 3 && out[0][1] == 5 && out[1][0] == 1 &&
			 out[1][1] == 3, "read twice: reduce_scatterv\n");
	bad = coll_ialltoallv(comms[1], in[1], two, over, out[1], two, NULL, COLL_INT32, &req);
	bad |= coll_alltoallv(comms[0], in[0], two, over, out[0], two, NULL, COLL_INT32);
	bad |= coll_wait(&req);
	ksft_test_result(!bad && out[0][0] == 1 && out[0][1] == 2 && out[0][2] == 2 &&
			 out[0][3] == 3 && out[1][0] == 0 && out[1][1] == 1 && !teardown(),
			 "read twice: alltoallv\n");
}

/* ---- the kernel refuses none that was not refused before */

#define MAX_RANKS	9

static uint64_t seed = 88172645463325252ULL;

static uint64_t below(uint64_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed % n;
}

/* Some are 0, some overlap, some are much too large. */
static void any(uint64_t *v, uint32_t n, uint64_t usual)
{
	uint64_t end = below(16) ? usual : 1ULL << below(64);

	for (uint32_t i = 0; i < n; i++)
		v[i] = below(4) ? below(end) : 0;
}

static bool accepted(const struct coll_algorithm *alg, const struct coll_args *args)
{
	struct npulink_verdict verdict;
	struct npulink_plan_desc desc;
	struct coll_plan plan;
	bool ok;

	if (coll_plan_make(alg, args, &plan))
		return true;
	desc = coll_plan_desc(&plan);
	ok = !npulink_verify(&desc, &verdict) && !npulink_verify_races(&desc, &verdict);
	if (!ok)
		ksft_print_msg("%s: %s\n", alg->name, npulink_bad_reason(verdict.reason));
	coll_plan_free(&plan);
	return ok;
}

static void test_never_the_kernel(void)
{
	uint64_t v[4][MAX_RANKS];
	unsigned int tried = 0, found = 0, bad = 0;
	uint32_t ranks[2];

	while (tried < 20000 || found < 2000) {
		uint32_t n = 2 + below(MAX_RANKS - 1);
		struct coll_args a = {
			.collective = below(NPULINK_COLLS), .dtype = below(NPULINK_DTYPES),
			.redop = below(NPULINK_CALL_AVG + 1), .root = below(n), .nranks = n,
			.rank = below(n), .count = below(100), .counts = v[0], .displs = v[1],
			.rcounts = v[2], .rdispls = v[3], .peer = below(n), .send = below(2),
			.in_place = below(2),
		};

		for (int i = 0; i < 4; i++)
			any(v[i], n, i % 2 ? 200 : 20);
		v[2][a.rank] = v[0][a.rank];
		if (coll_args_check(&a))
			continue;
		if (coll_args_overlap(&a, ranks)) {
			found++;
			continue;
		}
		tried++;
		for (const struct coll_algorithm *alg = NULL;
		     (alg = coll_algorithm_next(a.collective, alg));)
			bad += !accepted(alg, &a);
	}
	ksft_test_result(!bad, "no plan is refused whose arguments were not (%u, %u overlap)\n",
			 tried, found);
}

/* ---- gaps */

#define GAP	(256UL << 20)	/* elements */

/* Buffers of a rank; @displs of the large one, NULL: dense. */
struct side {
	int *send, *recv;
	const size_t *displs;
};

enum form { ALLGATHERV, GATHERV, SCATTERV, ALLTOALLV, REDUCE_SCATTERV, FORMS };

static const char *const form_names[] = {
	"allgatherv", "gatherv", "scatterv", "alltoallv", "reduce_scatterv",
};

static int make(enum form form, int r, const struct side *s, const size_t *counts, bool in_place,
		struct coll_request **req)
{
	void *own = in_place ? COLL_IN_PLACE : NULL;
	struct coll_comm *c = comms[r];

	switch (form) {
	case ALLGATHERV:
		return coll_allgatherv_init(c, own ?: s->send, s->recv, counts, s->displs,
					    COLL_INT32, req);
	case GATHERV:
		return coll_gatherv_init(c, own && r ? own : s->send, s->recv, counts, s->displs,
					 COLL_INT32, 1, req);
	case SCATTERV:
		return coll_scatterv_init(c, s->send, own && r ? own : s->recv, counts, s->displs,
					  COLL_INT32, 1, req);
	case ALLTOALLV:
		return coll_alltoallv_init(c, own ?: s->send, counts, s->displs, s->recv, counts,
					   s->displs, COLL_INT32, req);
	default:
		return coll_reduce_scatterv_init(c, s->send, own ?: s->recv, counts, s->displs,
						 COLL_INT32, COLL_SUM, req);
	}
}

static int *block(const struct side *s, int *buf, const size_t *counts, int i)
{
	return buf + (s->displs ? s->displs[i] : i * counts[0]);
}

static void fill(enum form form, const struct side *s, const size_t *counts, int r)
{
	for (int i = 0; i < 2; i++)
		for (size_t k = 0; k < counts[i]; k++) {
			block(s, s->send, counts, i)[k] = 1000000 * r + 100000 * i + k;
			block(s, s->recv, counts, i)[k] = 1000000 * r + 100000 * i + k;
		}
	for (size_t k = 0; form <= GATHERV && k < counts[r]; k++)
		s->send[k] = 2000000 + 100000 * r + k;
}

/* Is what a rank has got the same, wherever it lies? */
static bool same(enum form form, const struct side *a, const struct side *b, const size_t *counts,
		 int r, bool in_place)
{
	bool all = form == ALLGATHERV || form == ALLTOALLV || (form == GATHERV && r);
	bool large = in_place && (form == REDUCE_SCATTERV || (form == SCATTERV && r));
	bool ok = true;

	if (form == GATHERV && !r)
		return true;
	for (int i = 0; i < 2; i++)
		if (all)
			ok &= !memcmp(block(a, a->recv, counts, i), block(b, b->recv, counts, i),
				      counts[i] * sizeof(int));
	if (large)
		ok &= !memcmp(block(a, a->send, counts, r), block(b, b->send, counts, r),
			      counts[r] * sizeof(int));
	else if (!all)
		ok &= !memcmp(a->recv, b->recv, counts[r] * sizeof(int));
	return ok;
}

/* A call of both ranks, twice. */
static int call(enum form form, const struct side *s, const size_t *counts, bool in_place)
{
	struct coll_request *req[2] = { };
	int bad = 0;

	for (int r = 0; r < 2; r++)
		bad |= make(form, r, &s[r], counts, in_place, &req[r]);
	for (int k = 0; k < 2 && !bad; k++) {
		for (int r = 0; r < 2; r++) {
			fill(form, &s[r], counts, r);
			bad |= coll_start(req[r]);
		}
		bad |= coll_waitall(2, req);
	}
	for (int r = 0; r < 2; r++) {
		bad |= coll_request_free(&req[r]);
		if (bad)
			ksft_print_msg("rank %d: %s\n", r, coll_comm_last_error(comms[r]));
	}
	return bad;
}

static int *reserve(void)
{
	return mmap(NULL, 3 * GAP * sizeof(int), PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

/* Blocks that are far apart: what lies between them is neither pinned nor touched. */
static void test_gaps(void)
{
	static const size_t displs[2] = { 2 * GAP + 5, GAP + 3 };
	static const size_t sizes[] = { 3, 9000 };
	static int dense[2][2][BIG];
	struct side near[2], far[2];
	int bad = 0;

	setup(NULL);
	for (int r = 0; r < 2; r++) {
		near[r] = (struct side) { dense[r][0], dense[r][1], NULL };
		far[r] = (struct side) { reserve(), reserve(), displs };
	}
	for (enum form form = 0; form < FORMS; form++) {
		for (unsigned int k = 0; k < 4; k++) {
			size_t counts[2] = { sizes[k % 2], sizes[k % 2] };

			counts[0] += form != ALLTOALLV;
			bad |= call(form, near, counts, k / 2) || call(form, far, counts, k / 2);
			for (int r = 0; r < 2; r++)
				bad |= !same(form, &near[r], &far[r], counts, r, k / 2);
			for (int r = 0; r < 2; r++)
				bad |= comms[r]->dev->regs.bytes > 1 << 20;
		}
		ksft_test_result(!bad, "gaps: %s\n", form_names[form]);
		bad = 0;
	}
	for (int r = 0; r < 2; r++) {
		munmap(far[r].send, 3 * GAP * sizeof(int));
		munmap(far[r].recv, 3 * GAP * sizeof(int));
	}
	ksft_test_result(!teardown(), "gaps: nothing is left\n");
}

/* Memory that is pinned as a whole has no gaps to save. */
static void test_gaps_pinned(void)
{
	const size_t counts[2] = { 9000, 9000 }, displs[2] = { 100000, 0 };
	struct side s[2];
	int bad = 0;

	setup(NULL);
	for (int r = 0; r < 2; r++) {
		s[r] = (struct side) { reserve(), reserve(), displs };
		bad |= coll_register(comms[r], s[r].recv, 1 << 20);
	}
	bad |= call(ALLGATHERV, s, counts, true);
	for (int r = 0; r < 2; r++)
		bad |= comms[r]->dev->scratch_bytes != 0 || s[r].recv[100000] != 0 ||
		       s[r].recv[1] != 1100001;
	ksft_test_result(!bad, "gaps: in memory that is pinned\n");
	teardown();
	for (int r = 0; r < 2; r++) {
		munmap(s[r].send, 3 * GAP * sizeof(int));
		munmap(s[r].recv, 3 * GAP * sizeof(int));
	}
}

/* ---- memory that cannot be pinned */

/* Rank 1 does not wait for what rank 0 could not call. */
static int ended(int rc)
{
	if (rc)
		coll_comm_abort(comms[0], 0);
	return rc;
}

/* What the mock refuses to pin, as the kernel does files. */
static void test_file(void)
{
	const size_t len = BIG * sizeof(int);
	int fd = memfd_create("npu", MFD_CLOEXEC), bad, rc;
	struct coll_request *req;
	int *file;

	setup(NULL);
	bad = write(fd, in[0], len) != (ssize_t)len;
	file = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
	memset(out, 0, sizeof(out));
	bad |= coll_iallreduce(comms[1], in[1], out[1], BIG, COLL_INT32, COLL_SUM, &req);
	bad |= ended(coll_allreduce(comms[0], file, out[0], BIG, COLL_INT32, COLL_SUM));
	bad |= coll_wait(&req) || out[0][BIG - 1] != 2 * BIG - 1 || memcmp(out[0], out[1], len);
	ksft_test_result(!bad, "file: is sent from\n");
	for (int i = 0; i < 4; i++) {
		memset(out, 0, sizeof(out));
		bad |= coll_ibroadcast(comms[1], NULL, out[1], BIG, COLL_INT32, 0, &req);
		bad |= ended(coll_broadcast(comms[0], COLL_IN_PLACE, file, BIG, COLL_INT32, 0));
		bad |= coll_wait(&req) || memcmp(out[1], in[0], len);
		/* Copied each time. */
		in[0][7] = 100 + i;
		bad |= pwrite(fd, in[0], len, 0) != (ssize_t)len;
	}
	ksft_test_result(!bad, "file: is sent from in place\n");
	rc = coll_allreduce(comms[0], in[0], file, BIG, COLL_INT32, COLL_SUM);
	ksft_test_result(refused(rc, -EOPNOTSUPP, "a shared mapping of a file"),
			 "file: is not received into\n");
	mock_fail(NPULINK_BUF_ALLOC, -ENOMEM, 0, 1000, false);
	while (coll_scratch_trim(comms[0]->dev))
		;
	rc = coll_allreduce(comms[0], file, out[0], BIG, COLL_INT32, COLL_SUM);
	mock_fail(NPULINK_BUF_ALLOC, 0, 0, 0, false);
	while (coll_reg_evict(comms[0]->dev))
		;
	ksft_test_result(refused(rc, -ENOMEM, "needs 118 KiB of memory") &&
			 !comms[0]->dev->regs.n && !teardown(),
			 "file: no memory for a copy\n");
	munmap(file, len);
	close(fd);
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(5 + 3 + 1 + 6 + 1 + 4);
	test_overlap();
	test_read_twice();
	test_never_the_kernel();
	test_gaps();
	test_gaps_pinned();
	test_file();
	ksft_finished();
}
