// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * staged.c - requests whose payload is copied through memory of the library's own, which may be
 * much: other threads need not wait for that. Against the mock.
 */
#include <signal.h>
#include <sys/mman.h>
#include "lib/run/dev.h"
#include "lib/run/request.h"
#include "mock_pair.h"

#define BLOCK	(256UL << 10)			/* bytes of a block, */
#define APART	(16 * BLOCK)			/* and from one to the next: sparse */
#define ALL	(APART + BLOCK)

static char *sends[2], *recvs[2];
static _Atomic int touched, locked;

/* Somebody copies what was protected. Has it the lock? */
static void on_fault(int signal, siginfo_t *info, void *context)
{
	struct coll_dev *dev = comms[1]->dev;

	if (pthread_mutex_trylock(&dev->lock))
		atomic_fetch_add(&locked, 1);
	else
		pthread_mutex_unlock(&dev->lock);
	atomic_fetch_add(&touched, 1);
	if (mprotect((void *)((uintptr_t)info->si_addr & ~(BLOCK - 1)), BLOCK,
		     PROT_READ | PROT_WRITE))
		_exit(1);
}

/* At a multiple of a block. */
static char *memory(void)
{
	char *p = mmap(NULL, ALL + BLOCK, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : (char *)(((uintptr_t)p + BLOCK - 1) & ~(BLOCK - 1));
}

static void protect(char *p)
{
	atomic_store(&touched, 0);
	atomic_store(&locked, 0);
	mprotect(p, BLOCK, PROT_NONE);
}

/* It was copied by somebody who did not have the lock. */
static bool was_free(void)
{
	return atomic_load(&touched) == 1 && !atomic_load(&locked);
}

static const size_t counts[2] = { BLOCK, BLOCK }, displs[2] = { 0, APART };

static int start(struct coll_request **req)
{
	for (int r = 0; r < 2; r++)
		for (int b = 0; b < 2; b++) {
			memset(sends[r] + b * APART, 10 * r + b + 1, BLOCK);
			memset(recvs[r] + b * APART, 0, BLOCK);
		}
	protect(sends[1]);
	return coll_ialltoallv(comms[1], sends[1], counts, displs, recvs[1], counts, displs,
			       COLL_INT8, req);
}

static int other(void)
{
	return coll_alltoallv(comms[0], sends[0], counts, displs, recvs[0], counts, displs,
			      COLL_INT8);
}

static bool right(int rank)
{
	for (int b = 0; b < 2; b++)
		for (size_t i = 0; i < BLOCK; i++)
			if (recvs[rank][b * APART + i] != 10 * b + rank + 1)
				return false;
	return true;
}

static void drain(void)
{
	pthread_mutex_lock(&comms[1]->dev->lock);
	coll_ring_drain(comms[1]->dev);
	pthread_mutex_unlock(&comms[1]->dev->lock);
}

static void test_wait(void)
{
	struct coll_request *req;
	int bad = start(&req);

	ksft_test_result(!bad && was_free(), "start: copied in without the lock\n");
	bad |= other();
	protect(recvs[1]);
	drain();
	ksft_test_result(!bad && !atomic_load(&touched),
			 "drain: not copied by who only takes the records\n");
	bad |= coll_wait(&req);
	ksft_test_result(!bad && was_free() && right(0) && right(1),
			 "wait: copied out without the lock\n");
}

static void test_test(void)
{
	struct coll_request *req;
	int rc, bad = start(&req);

	bad |= coll_test(&req) != -EINPROGRESS || other();
	protect(recvs[1]);
	do
		rc = coll_test(&req);
	while (rc == -EINPROGRESS);
	ksft_test_result(!bad && !rc && !req && was_free() && right(1),
			 "test: copied out without the lock\n");
}

static void test_group(void)
{
	struct coll_request *req;
	int bad = start(&req);

	bad |= coll_wait_deadline(&req, 1) != -EINPROGRESS;
	protect(sends[0]);
	bad |= coll_group_start(comms[0]) || other() || coll_group_end(comms[0]);
	ksft_test_result(!bad && was_free() && right(0), "group: copied in without the lock\n");
	bad |= coll_wait(&req);
	ksft_test_result(!bad && right(1), "group: and the other rank's\n");
}

/* What nobody has waited for yet is given back when there is no other memory. */
static void test_reclaim(void)
{
	struct coll_dev *dev = comms[1]->dev;
	struct coll_request *req;
	int bad = start(&req) || other();
	bool some, twice;

	drain();
	pthread_mutex_lock(&dev->lock);
	some = coll_requests_settle(dev);
	twice = coll_requests_settle(dev);
	pthread_mutex_unlock(&dev->lock);
	ksft_test_result(!bad && some && !twice && right(1) && !coll_wait(&req),
			 "reclaim: results go where they belong\n");
}

int main(void)
{
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };

	ksft_print_header();
	ksft_set_plan(7);
	for (int r = 0; r < 2; r++) {
		sends[r] = memory();
		recvs[r] = memory();
	}
	if (!sends[0] || !sends[1] || !recvs[0] || !recvs[1] || sigaction(SIGSEGV, &action, NULL))
		ksft_exit_fail_msg("no memory\n");
	setup(NULL);
	test_wait();
	test_test();
	test_group();
	test_reclaim();
	teardown();
	ksft_finished();
}
