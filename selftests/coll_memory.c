// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * coll_memory.c - the caller's memory: pinned on first use, found again, noticed when it
 * has changed, within the limit; and memory of all kinds. As an ordinary user.
 *
 * npulink-test: unprivileged
 */
#include <fcntl.h>
#include <sys/resource.h>
#include "coll_ranks.h"
#include "lib/run/comm.h"
#include "lib/run/request.h"
#include "smaps.h"

#define LEN	(512UL << 10)

static char *map(void *at, size_t len)
{
	char *p = mmap(at, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* Both ranks send a pattern to the other, out of @out into @in. */
static int swap(struct ranks *ranks, struct coll_comm *comm, char *out, char *in, size_t len,
		int round)
{
	unsigned int rank = coll_comm_rank(comm);
	int rc;

	memset(out, 'a' + rank + 2 * round, len);
	memset(in, 0, len);
	rc = coll_group_start(comm);
	rc |= coll_send(comm, out, len, COLL_INT8, !rank);
	rc |= coll_recv(comm, in, len, COLL_INT8, !rank);
	rc = rc ? rc : coll_group_end(comm);
	for (size_t i = 0; i < len && !rc; i++)
		if (in[i] != (char)('a' + !rank + 2 * round))
			return rank_fail(ranks, rank, "round %d: byte %zu is %d", round, i, in[i]);
	return rc;
}

static int found_again(struct ranks *ranks, struct coll_comm *comm)
{
	char *a = map(NULL, LEN), *b = map(NULL, LEN);
	struct coll_comm_info info = COLL_COMM_INFO_INIT;
	int rc = 0;

	for (int i = 0; i < 5 && !rc; i++)
		rc = swap(ranks, comm, a + 4096 * i, b + 8192 * i, LEN - 8192 * i, i);
	coll_comm_info(comm, &info);
	if (!rc && (info.reg_hits != 8 || info.reg_misses != 2))
		return rank_fail(ranks, coll_comm_rank(comm), "%d hits", (int)info.reg_hits);
	return rc;
}

/* What malloc does all the time: unmapped, and mapped again at the same address. */
static int mapped_again(struct ranks *ranks, struct coll_comm *comm)
{
	char *a = map(NULL, LEN), *b = map(NULL, LEN);
	struct coll_comm_info info = COLL_COMM_INFO_INIT;
	int rc = 0;

	for (int i = 0; i < 8 && !rc; i++) {
		rc = swap(ranks, comm, a, b, LEN, i);
		munmap(a, LEN);
		map(a, LEN);
		if (i % 2) {
			/* Only a part of it, and not unmapped before. */
			map(b + LEN / 2, 4096);
			madvise(b + LEN / 4, 8192, MADV_DONTNEED);
		}
	}
	coll_comm_info(comm, &info);
	if (!rc && info.stale < 4)
		return rank_fail(ranks, coll_comm_rank(comm), "noticed %d times", (int)info.stale);
	return rc;
}

static int forked(struct ranks *ranks, struct coll_comm *comm)
{
	char *a = map(NULL, LEN), *b = map(NULL, LEN);
	int rc = swap(ranks, comm, a, b, LEN, 0), status;
	pid_t pid;

	if (rc)
		return rc;
	/* The child writes to copies; the parent's pinned pages must remain its own. */
	pid = fork();
	if (!pid) {
		memset(a, 1, LEN);
		memset(b, 1, LEN);
		usleep(200000);
		_exit(0);
	}
	for (int i = 1; i < 4 && !rc; i++)
		rc = swap(ranks, comm, a, b, LEN, i);
	waitpid(pid, &status, 0);
	return rc;
}

/* Ranges that overlap, of all sizes: one buffer in the end. */
static int overlapping(struct ranks *ranks, struct coll_comm *comm)
{
	char *a = map(NULL, LEN), *b = map(NULL, LEN);
	struct coll_comm_info info = COLL_COMM_INFO_INIT;
	int rc = 0;

	for (int i = 0; i < 12 && !rc; i++)
		rc = swap(ranks, comm, a + 5000 * i, b + 5000 * (11 - i), 90000 + 1000 * i, i);
	coll_comm_info(comm, &info);
	if (!rc && info.registrations != 2)
		return rank_fail(ranks, coll_comm_rank(comm), "%d registrations",
				 (int)info.registrations);
	return rc;
}

/* More memory than may be locked, one buffer after the other. */
static int beyond_the_limit(struct ranks *ranks, struct coll_comm *comm)
{
	struct rlimit limit;
	char *all;
	int rc = 0;

	getrlimit(RLIMIT_MEMLOCK, &limit);
	if (!geteuid() || limit.rlim_cur > 16UL << 20) {
		ranks->number[0] = 1;
		return 0;
	}
	all = map(NULL, 24UL << 20);
	for (int i = 0; i < 12 && !rc; i++)
		rc = swap(ranks, comm, all + (2UL << 20) * i, all + (2UL << 20) * i + (1UL << 20),
			  1UL << 20, i);
	if (rc)
		return rc;
	/* A single one that does not fit is refused, and says what to do. */
	rc = coll_allreduce(comm, COLL_IN_PLACE, all, 24UL << 20, COLL_INT8, COLL_MAX);
	if (rc != -ENOMEM || !strstr(coll_comm_last_error(comm), "24576 KiB of pinned memory") ||
	    !strstr(coll_comm_last_error(comm), "ulimit -l"))
		return rank_fail(ranks, coll_comm_rank(comm), "%d: %s", rc,
				 coll_comm_last_error(comm));
	/* And has done no harm. */
	return coll_barrier(comm);
}

static void test_limit(void)
{
	struct ranks *ranks = ranks_new(2);
	int bad = ranks_run(ranks, beyond_the_limit);

	if (ranks->number[0])
		ksft_test_result_skip("the limit on locked memory is too high to test\n");
	else
		ksft_test_result(!bad, "the limit on locked memory\n");
	ranks_free(ranks);
}

/* ---- kinds of memory */

static int read_only(struct ranks *ranks, struct coll_comm *comm)
{
	char *a = map(NULL, LEN), *b = map(NULL, LEN);
	unsigned int rank = coll_comm_rank(comm);
	int rc;

	memset(a, 5, LEN);
	mprotect(a, LEN, PROT_READ);
	rc = coll_allgather(comm, a, b, LEN / 2, COLL_INT8);
	if (!rc && (b[0] != 5 || b[LEN - 1] != 5))
		return rank_fail(ranks, rank, "wrong data");
	rc = rc ? rc : coll_barrier(comm);
	if (rc)
		return rc;
	rc = coll_recv(comm, a, LEN, COLL_INT8, !rank);
	if (rc != -EFAULT || !strstr(coll_comm_last_error(comm), "access"))
		return rank_fail(ranks, rank, "received into read-only memory: %d %s", rc,
				 coll_comm_last_error(comm));
	return 0;
}

/* Made read-only when it is pinned already: what is pinned is written, see coll_mem_alloc(3). */
static int read_only_later(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	char *a = map(NULL, LEN), *b = map(NULL, LEN);
	int rc = swap(ranks, comm, a, b, LEN, 0);

	if (rc)
		return rc;
	memset(a, 'x' + rank, LEN);
	if (mprotect(b, LEN, PROT_READ))
		return rank_fail(ranks, rank, "mprotect: %m");
	rc = coll_group_start(comm);
	rc |= coll_send(comm, a, LEN, COLL_INT8, !rank);
	rc |= coll_recv(comm, b, LEN, COLL_INT8, !rank);
	rc = rc ? rc : coll_group_end(comm);
	for (size_t i = 0; i < LEN && !rc; i++)
		if (b[i] != 'x' + !rank)
			return rank_fail(ranks, rank, "byte %zu is %d", i, b[i]);
	return rc;
}

static int shared(struct ranks *ranks, struct coll_comm *comm)
{
	int fd = memfd_create("test", 0), rc;
	char *a, *b = map(NULL, LEN);

	if (ftruncate(fd, LEN))
		return -errno;
	a = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	rc = swap(ranks, comm, a, b, LEN, 0);
	return rc ? rc : swap(ranks, comm, b, a, LEN, 1);
}

static int untouched(struct ranks *ranks, struct coll_comm *comm)
{
	char *a = map(NULL, LEN), *b = map(NULL, LEN), *c = map(NULL, LEN);
	int rc;

	/* Pinned while it is all one page of zeros, then written. */
	mprotect(a, LEN, PROT_READ);
	rc = coll_allgather(comm, a, b, LEN / 2, COLL_INT8);
	mprotect(a, LEN, PROT_READ | PROT_WRITE);
	return rc ? rc : swap(ranks, comm, a, c, LEN, 2);
}

static int allocated(struct ranks *ranks, struct coll_comm *comm)
{
	struct coll_comm_info before = COLL_COMM_INFO_INIT, after = COLL_COMM_INFO_INIT;
	void *a, *b, *c;
	int rc = coll_mem_alloc(comm, COLL_MEMORY_HOST, LEN, &a);

	rc = rc ? rc : coll_mem_alloc(comm, COLL_MEMORY_HOST, LEN, &b);
	if (rc)
		return rc;
	coll_comm_info(comm, &before);
	for (int i = 0; i < 3 && !rc; i++)
		rc = swap(ranks, comm, a, b, LEN, i);
	coll_comm_info(comm, &after);
	if (!rc && after.registrations != before.registrations)
		return rank_fail(ranks, coll_comm_rank(comm), "was pinned");
	rc = rc ? rc : coll_mem_free(comm, a);
	rc = rc ? rc : coll_mem_alloc(comm, COLL_MEMORY_HOST, 4096, &c);
	rc = rc ? rc : swap(ranks, comm, c, b, 4096, 4);
	rc = rc ? rc : coll_mem_free(comm, c);
	return rc ? rc : coll_mem_free(comm, b);
}

static int registered(struct ranks *ranks, struct coll_comm *comm)
{
	char *a = map(NULL, LEN), *b = map(NULL, LEN);
	struct coll_comm_info info = COLL_COMM_INFO_INIT;
	int rc = coll_register(comm, a, LEN);

	rc = rc ? rc : coll_register(comm, b, LEN);
	rc = rc ? rc : swap(ranks, comm, a, b, LEN, 0);
	coll_comm_info(comm, &info);
	if (!rc && info.reg_misses != 2)
		return rank_fail(ranks, coll_comm_rank(comm), "%d misses", (int)info.reg_misses);
	/* Remapped behind the library's back. */
	map(a, LEN);
	rc = rc ? rc : swap(ranks, comm, a, b, LEN, 1);
	rc = rc ? rc : coll_deregister(comm, a, LEN);
	return rc ? rc : coll_deregister(comm, b, LEN);
}

/* What is left of it keeps other memory out, and the text says what to do. */
static int registered_and_unmapped(struct ranks *ranks, struct coll_comm *comm)
{
	char *a = map(NULL, 2 * LEN), *b = a + LEN / 2;
	int rc = coll_register(comm, a, LEN);

	if (rc)
		return rc;
	munmap(a, LEN / 2);
	rc = coll_register(comm, b, LEN);
	if (rc != -EOPNOTSUPP || !strstr(coll_comm_last_error(comm), "deregister that first"))
		return rank_fail(ranks, coll_comm_rank(comm), "%d: %s", rc,
				 coll_comm_last_error(comm));
	rc = coll_deregister(comm, a, LEN);
	rc = rc ? rc : coll_register(comm, b, LEN);
	return rc ? rc : coll_deregister(comm, b, LEN);
}

static int not_mapped(struct ranks *ranks, struct coll_comm *comm)
{
	char *a = map(NULL, LEN);
	int rc;

	munmap(a + LEN / 2, 4096);
	rc = coll_send(comm, a, LEN, COLL_INT8, !coll_comm_rank(comm));
	if (rc != -EFAULT || !strstr(coll_comm_last_error(comm), "not all of the 524288 bytes"))
		return rank_fail(ranks, coll_comm_rank(comm), "%d: %s", rc,
				 coll_comm_last_error(comm));
	return coll_barrier(comm);
}

/* Unmapped while the operation runs: what arrives is lost, nothing else happens. */
static int unmapped_in_flight(struct ranks *ranks, struct coll_comm *comm)
{
	struct coll_request *req[2];
	int rc = 0;

	for (int i = 0; i < 5 && !rc; i++) {
		char *a = map(NULL, LEN), *b = map(NULL, LEN);

		memset(a, i, LEN);
		rc = coll_isend(comm, a, LEN, COLL_INT8, !coll_comm_rank(comm), &req[0]);
		rc = rc ? rc : coll_irecv(comm, b, LEN, COLL_INT8, !coll_comm_rank(comm), &req[1]);
		munmap(a, LEN);
		munmap(b, LEN);
		rc = rc ? rc : coll_waitall(2, req);
	}
	return rc;
}

/* Blocks that are far apart cost what they hold: nothing between them is touched, or pinned. */
static int far_apart(struct ranks *ranks, struct coll_comm *comm)
{
	const size_t gap = 1UL << 30, counts[2] = { 200000, 200000 }, displs[2] = { gap, 0 };
	unsigned int rank = coll_comm_rank(comm);
	static unsigned char pages[(1UL << 30) / 4096];
	char *recv = mmap(NULL, 2 * gap, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *send = map(NULL, counts[0]);
	size_t resident = 0;
	int rc;

	/* Huge pages are no concern of ours. */
	madvise(recv, 2 * gap, MADV_NOHUGEPAGE);
	memset(send, 'a' + rank, counts[0]);
	rc = coll_allgatherv(comm, send, recv, counts, displs, COLL_INT8);
	if (rc)
		return rank_fail(ranks, rank, "%d: %s", rc, coll_comm_last_error(comm));
	for (size_t i = 0; i < counts[0]; i++)
		if (recv[i] != 'b' || recv[gap + i] != 'a')
			return rank_fail(ranks, rank, "byte %zu is wrong", i);
	if (mincore(recv, gap, pages))
		return rank_fail(ranks, rank, "mincore: %s", strerror(errno));
	for (size_t i = 0; i < sizeof(pages); i++)
		resident += pages[i] & 1;
	return resident > 64 ? rank_fail(ranks, rank, "%zu pages", resident) : 0;
}

/* The file of this program, which cannot be pinned. */
static int mapped_file(struct ranks *ranks, struct coll_comm *comm)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), rc;
	unsigned int rank = coll_comm_rank(comm);
	char *file = mmap(NULL, LEN, PROT_READ, MAP_SHARED, fd, 0), *recv = map(NULL, LEN);
	size_t len = lseek(fd, 0, SEEK_END);

	close(fd);
	if (file == MAP_FAILED)
		return rank_fail(ranks, rank, "cannot map it: %s", strerror(errno));
	len = len < LEN ? len : LEN;
	if (len < 65536)
		return rank_fail(ranks, rank, "%zu bytes go through the arena", len);
	rc = coll_broadcast(comm, file, recv, len, COLL_INT8, 0);
	if (rc)
		return rank_fail(ranks, rank, "%d: %s", rc, coll_comm_last_error(comm));
	if (memcmp(recv, file, len))
		return rank_fail(ranks, rank, "not what is in the file");
	return 0;
}

/* A private mapping of it, which is only sent: nothing of it is copied until it is written to. */
static int private_file(struct ranks *ranks, struct coll_comm *comm)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), rc = 0;
	unsigned int rank = coll_comm_rank(comm);
	char *file = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	char *recv = map(NULL, LEN);
	size_t len = lseek(fd, 0, SEEK_END);

	close(fd);
	len = len < LEN ? len : LEN;
	if (file == MAP_FAILED || len < 65536)
		return rank_fail(ranks, rank, "cannot map it: %s", strerror(errno));
	for (int i = 0; i < 2 && !rc; i++) {
		/* At each rank, but only rank 0's is sent. */
		if (i)
			file[0] = 77;
		rc = coll_broadcast(comm, file, recv, len, COLL_INT8, 0);
		if (!rc && memcmp(recv, file, len))
			return rank_fail(ranks, rank, "not what is in the file");
		if (!rc && anonymous_kb(file) != 4 * i)
			return rank_fail(ranks, rank, "%ld KiB are copied", anonymous_kb(file));
	}
	if (!rc)
		rc = coll_broadcast(comm, COLL_IN_PLACE, file, len, COLL_INT8, 1);
	return rc ? rank_fail(ranks, rank, "%d: %s", rc, coll_comm_last_error(comm)) : 0;
}

int main(void)
{
	ksft_print_header();
	if (!have_device())
		ksft_exit_skip("no /dev/npulink/npu0\n");
	ksft_set_plan(17);
	ksft_test_result(!ranks_of(2, found_again), "pinned once, found again\n");
	ksft_test_result(!ranks_of(2, mapped_again), "unmapped and mapped again\n");
	ksft_test_result(!ranks_of(2, forked), "fork while pinned\n");
	ksft_test_result(!ranks_of(2, overlapping), "ranges that overlap\n");
	test_limit();
	ksft_test_result(!ranks_of(2, read_only), "read-only memory\n");
	ksft_test_result(!ranks_of(2, read_only_later), "read-only once it is pinned\n");
	ksft_test_result(!ranks_of(2, shared), "a memfd\n");
	ksft_test_result(!ranks_of(2, untouched), "memory that was never written\n");
	ksft_test_result(!ranks_of(2, allocated), "coll_mem_alloc\n");
	ksft_test_result(!ranks_of(2, registered), "coll_register\n");
	ksft_test_result(!ranks_of(2, registered_and_unmapped), "coll_register and munmap\n");
	ksft_test_result(!ranks_of(2, not_mapped), "a hole\n");
	ksft_test_result(!ranks_of(2, unmapped_in_flight), "unmapped in flight\n");
	ksft_test_result(!ranks_of(2, far_apart), "blocks that are far apart\n");
	ksft_test_result(!ranks_of(2, mapped_file), "a file that is mapped\n");
	ksft_test_result(!ranks_of(2, private_file), "a file that is mapped for itself\n");
	ksft_finished();
}
