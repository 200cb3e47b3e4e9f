// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * coll_device - what libcoll does with memory of the cards' own, and of another driver: no
 * processor touches it, however small the call. coll_collectives has all collectives on it (cards.sh).
 *
 * npulink-test: cards=2 modules=none mem=1024 timeout=300
 */
#include "coll_ranks.h"
#include "vgem.h"

#define LEN	(1 << 20)

static int modules(const char *what)
{
	char command[512];

	snprintf(command, sizeof(command), "%s/tools/vm/modules %s", getenv("NPULINK_TREE") ?: ".",
		 what);
	return system(command);
}

static uint64_t copied(struct coll_comm *comm)
{
	struct coll_comm_info info = COLL_COMM_INFO_INIT;

	coll_comm_info(comm, &info);
	return info.copied + info.met;
}

#define FAIL(...)	rank_fail(ranks, coll_comm_rank(comm), __VA_ARGS__)

/* Two buffers of the device's. */
static int two(struct coll_comm *comm, int32_t **a, int32_t **b)
{
	int rc = coll_mem_alloc(comm, COLL_MEMORY_DEVICE, LEN, (void **)a);

	return rc ? rc : coll_mem_alloc(comm, COLL_MEMORY_DEVICE, LEN, (void **)b);
}

static int put_back(struct coll_comm *comm, int32_t *a, int32_t *b)
{
	int rc = coll_mem_free(comm, a);

	return rc ? rc : coll_mem_free(comm, b);
}

/* The same small call with host memory, device memory, and host memory again, several times. */
static int small_calls(struct ranks *ranks, struct coll_comm *comm)
{
	int32_t *a, *b, c, d, want = coll_comm_size(comm) * (coll_comm_size(comm) + 1) / 2;
	int rc = two(comm, &a, &b);
	struct coll_request *req;
	uint64_t before;

	if (rc)
		return rc;
	a[0] = c = coll_comm_rank(comm) + 1;
	for (int turn = 0; turn < 3; turn++) {
		for (int i = 0; i < 4; i++) {
			d = 0;
			rc = coll_allreduce(comm, &c, &d, 1, COLL_INT32, COLL_SUM);
			if (rc || d != want)
				return FAIL("host memory: %d, %d", rc, d);
		}
		before = copied(comm);
		for (int i = 0; i < 4; i++) {
			b[0] = 0;
			rc = coll_allreduce(comm, a, b, 1, COLL_INT32, COLL_SUM);
			if (rc || b[0] != want)
				return FAIL("device memory: %d, %d", rc, b[0]);
		}
		/* Another count each time, and requests. */
		for (int i = 1; i < 4; i++) {
			b[i] = 0;
			a[i] = a[0];
			rc = coll_iallreduce(comm, a, b, i + 1, COLL_INT32, COLL_SUM, &req);
			rc = rc ? rc : coll_wait(&req);
			if (rc || b[i] != want)
				return FAIL("request: %d, %d", rc, b[i]);
			rc = coll_allgather(comm, a, b + 16, 10 * turn + i, COLL_INT32);
			if (rc)
				return FAIL("allgather: %d", rc);
		}
		if (copied(comm) != before)
			return FAIL("a processor copied it");
	}
	return put_back(comm, a, b);
}

/* One rank's is the device's, the other's is the host's; the call is the same. */
static int mixed(struct ranks *ranks, struct coll_comm *comm)
{
	int32_t *a, *b, c[2] = { 3, 4 }, d[2] = { 0 };
	bool device = coll_comm_rank(comm);
	int rc = two(comm, &a, &b);

	if (rc)
		return rc;
	a[0] = 30;
	a[1] = 40;
	for (int i = 0; i < 4 && !rc; i++)
		rc = coll_allreduce(comm, device ? a : c, device ? b : d, 2, COLL_INT32, COLL_SUM);
	if (rc || (device ? b : d)[0] != 33 || (device ? b : d)[1] != 44)
		return FAIL("%d: %d", rc, (device ? b : d)[0]);
	return put_back(comm, a, b);
}

static int messages(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int me = coll_comm_rank(comm);
	int32_t *a, *b;
	int rc = two(comm, &a, &b);

	if (rc)
		return rc;
	for (unsigned int to = 0; to < 2; to++) {
		/* To the other one, then to oneself. */
		unsigned int peer = to ? me : !me;
		int32_t want = 10 * to + peer;

		a[5] = 10 * to + me;
		b[5] = -1;
		rc = coll_group_start(comm);
		rc = rc ? rc : coll_send(comm, a, 6, COLL_INT32, peer);
		rc = rc ? rc : coll_recv(comm, b, 6, COLL_INT32, peer);
		rc = rc ? rc : coll_group_end(comm);
		if (rc || b[5] != want)
			return FAIL("to %u: %d, %d instead of %d", peer, rc, b[5], want);
	}
	return put_back(comm, a, b);
}

static int one_rank(struct ranks *ranks, struct coll_comm *comm)
{
	struct coll_request *req;
	int32_t *a, *b;
	int rc = two(comm, &a, &b);

	if (rc)
		return rc;
	a[0] = 7;
	a[LEN / 4 - 1] = 8;
	rc = coll_allreduce(comm, a, b, LEN / 4, COLL_INT32, COLL_SUM);
	rc = rc ? rc : coll_allgather(comm, COLL_IN_PLACE, b, LEN / 4, COLL_INT32);
	rc = rc ? rc : coll_ialltoall(comm, b, a, LEN / 4, COLL_INT32, &req);
	rc = rc ? rc : coll_wait(&req);
	if (rc || b[0] != 7 || a[LEN / 4 - 1] != 8)
		return FAIL("%d: %d, %d", rc, b[0], a[LEN / 4 - 1]);
	return put_back(comm, a, b);
}

static int refusals(struct ranks *ranks, struct coll_comm *comm)
{
	int32_t *a, *b;
	void *p = comm;
	int rc;

	if (coll_mem_alloc(comm, COLL_MEMORY_DEVICE, 1ULL << 40, &p) != -ENOMEM || p ||
	    !strstr(coll_comm_last_error(comm), "in the memory of npu"))
		return FAIL("too much: %s", coll_comm_last_error(comm));
	if (coll_mem_alloc(comm, 7, LEN, &p) != -EINVAL)
		return FAIL("no such kind: %s", coll_comm_last_error(comm));
	if (coll_mem_import(comm, -1, 0, &p, NULL) != -EBADF ||
	    coll_mem_import(comm, STDIN_FILENO, 0, &p, NULL) != -EINVAL || p)
		return FAIL("no dma-buf: %s", coll_comm_last_error(comm));
	rc = two(comm, &a, &b);
	if (rc)
		return rc;
	if (coll_mem_free(comm, a + 1) != -EINVAL)
		return FAIL("its middle is freed");
	/* Beyond its end. */
	rc = coll_allreduce(comm, COLL_IN_PLACE, a, LEN, COLL_INT32, COLL_SUM);
	if (rc != -EFAULT && rc != -EOPNOTSUPP)
		return FAIL("beyond the end: %d: %s", rc, coll_comm_last_error(comm));
	return put_back(comm, a, b);
}

static int imported(struct ranks *ranks, struct coll_comm *comm)
{
	void *in, *out;
	struct vgem v;
	uint64_t before;
	size_t len;
	int32_t *p;
	int rc;

	if (!vgem_open(&v, LEN))
		return 0;
	rc = coll_mem_import(comm, v.fd, 0, &in, &len);
	rc = rc ? rc : coll_mem_alloc(comm, COLL_MEMORY_HOST, LEN, &out);
	close(v.fd);
	if (rc || len != LEN)
		return rc ? rc : FAIL("%zu bytes", len);
	p = in;
	p[0] = coll_comm_rank(comm) + 1;
	before = copied(comm);
	for (int i = 0; i < 3 && !rc; i++)
		rc = coll_allreduce(comm, in, out, 1, COLL_INT32, COLL_SUM);
	if (rc || *(int32_t *)out != 3 || copied(comm) != before)
		return FAIL("%d: %d", rc, *(int32_t *)out);
	close(v.card);
	rc = coll_mem_free(comm, in);
	return rc ? rc : coll_mem_free(comm, out);
}

/* Its processors' memory is all that a software NPU has. */
static int software(struct ranks *ranks, struct coll_comm *comm)
{
	void *p = comm;

	if (coll_mem_alloc(comm, COLL_MEMORY_DEVICE, LEN, &p) != -EOPNOTSUPP || p ||
	    !strstr(coll_comm_last_error(comm), "has no memory of its own"))
		return FAIL("%s", coll_comm_last_error(comm));
	return imported(ranks, comm);
}

int main(void)
{
	ksft_print_header();
	if (modules("insert npulink_pci timeout=120000"))
		ksft_exit_skip("no cards\n");
	ksft_set_plan(8);
	ksft_test_result(!ranks_of(2, small_calls), "small calls\n");
	ksft_test_result(!ranks_of(2, mixed), "memory of both kinds in one call\n");
	ksft_test_result(!ranks_of(2, messages), "messages, also to oneself\n");
	ksft_test_result(!ranks_of(1, one_rank), "one rank\n");
	ksft_test_result(!ranks_of(2, refusals), "refusals\n");
	ksft_test_result(!ranks_of(2, imported), "memory of another driver\n");
	modules("unload");
	ksft_test_result(!modules("insert npulink_soft ndev=2") && !ranks_of(2, software),
			 "software NPUs\n");
	ksft_test_result(!modules("unload"), "all goes\n");
	ksft_finished();
}
