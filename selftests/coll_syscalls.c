// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * coll_syscalls.c - what a collective costs in system calls: a rank runs under ptrace,
 * and every system call between two marks is counted.
 */
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include "coll_ranks.h"
#include "lib/run/comm.h"
#include "lib/run/request.h"

#define CALLS	50
#define WARM_UP	200	/* until all that is done once has been done */

static char large[2][200000];
static int small[2][100];

/* Something that libcoll never calls. */
static void mark(void)
{
	syscall(SYS_getpgid, 0);
}

static int blocking_small(struct coll_comm *comm)
{
	return coll_allreduce(comm, small[0], small[1], 100, COLL_INT32, COLL_SUM);
}

static int blocking_large(struct coll_comm *comm)
{
	return coll_allreduce(comm, large[0], large[1], 50000, COLL_INT32, COLL_SUM);
}

static int barrier(struct coll_comm *comm)
{
	return coll_barrier(comm);
}

static int group(struct coll_comm *comm)
{
	unsigned int other = !coll_comm_rank(comm);
	int rc = coll_group_start(comm);

	rc |= coll_send(comm, small[0], 10, COLL_INT32, other);
	rc |= coll_recv(comm, small[1], 10, COLL_INT32, other);
	return rc ? rc : coll_group_end(comm);
}

/* Start, and look until it is done: only the start is a call. */
static int request(struct coll_comm *comm)
{
	struct coll_request *req;
	int rc = coll_iallreduce(comm, small[0], small[1], 100, COLL_INT32, COLL_SUM, &req);

	while (!rc && (rc = coll_test(&req)) == -EINPROGRESS)
		rc = 0;
	return rc;
}

static int (*body)(struct coll_comm *comm);

/* Rank 0 is traced; the other runs beside it. */
static int traced(struct ranks *ranks, struct coll_comm *comm)
{
	int rc = 0;

	for (int i = 0; i < WARM_UP && !rc; i++)
		rc = body(comm);
	if (!coll_comm_rank(comm)) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		mark();
	}
	for (int i = 0; i < CALLS && !rc; i++)
		rc = body(comm);
	if (!coll_comm_rank(comm))
		mark();
	return rc;
}

/* System calls of pid between the marks; *ioctls: how many of them were ioctl, *futexes: futex. */
static int count(pid_t pid, int *ioctls, int *futexes)
{
	struct user_regs_struct regs;
	bool counting = false, entry = true;
	int status, n = 0;

	*ioctls = 0;
	*futexes = 0;
	waitpid(pid, &status, WUNTRACED);
	if (!WIFSTOPPED(status))
		return -1;
	ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD);
	for (;;) {
		ptrace(PTRACE_SYSCALL, pid, NULL, NULL);
		if (waitpid(pid, &status, 0) < 0 || !WIFSTOPPED(status))
			return -1;
		if (WSTOPSIG(status) != (SIGTRAP | 0x80))
			continue;
		if (entry) {
			ptrace(PTRACE_GETREGS, pid, NULL, &regs);
			if (regs.orig_rax == SYS_getpgid) {
				if (counting)
					break;
				counting = true;
			} else if (counting) {
				n++;
				*ioctls += regs.orig_rax == SYS_ioctl;
				*futexes += regs.orig_rax == SYS_futex;
				if (regs.orig_rax != SYS_ioctl && regs.orig_rax != SYS_futex)
					ksft_print_msg("system call %d\n", (int)regs.orig_rax);
			}
		}
		entry = !entry;
	}
	ptrace(PTRACE_DETACH, pid, NULL, NULL);
	return n;
}

/* @fewer: on the board: to sleep, or to wake; or none, if the ranks come at about the same time. */
static bool try(int (*fn)(struct coll_comm *), bool fewer, const char *what)
{
	struct ranks *ranks = ranks_new(2);
	pid_t pid[2];
	int n, ioctls, futexes, bad = 0;

	body = fn;
	for (int i = 0; i < 2; i++)
		pid[i] = rank_start(ranks, i, traced);
	n = count(pid[0], &ioctls, &futexes);
	for (int i = 0; i < 2; i++)
		bad += rank_join_end(ranks, i, pid[i]);
	ksft_print_msg("%s: %d system calls, %d of them ioctl, %d futex, in %d calls\n", what, n,
		       ioctls, futexes, CALLS);
	ranks_free(ranks);
	if (bad || n < 0 || n > CALLS)
		return false;
	return fewer ? ioctls + futexes == n : ioctls == n && n == CALLS;
}

/* A busy host may make a rank 10 ms late, for which the other has a second one; not each time. */
static void test(int (*fn)(struct coll_comm *), bool fewer, const char *what)
{
	bool good = false;

	for (int i = 0; i < 3 && !good; i++)
		good = try(fn, fewer, what);
	ksft_test_result(good, "%s: %sone system call\n", what, fewer ? "at most " : "");
}

int main(void)
{
	ksft_print_header();
	if (!have_device())
		ksft_exit_skip("no /dev/npulink/npu0\n");
	ksft_set_plan(5);
	test(blocking_small, true, "allreduce of 400 bytes");
	test(blocking_large, false, "allreduce of 200000 bytes");
	test(barrier, true, "barrier");
	test(group, false, "group of send and receive");
	test(request, true, "request and coll_test");
	ksft_finished();
}
