// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * any.c - requests of which any may end first, and callers who have something else to do
 * meanwhile.
 */
#include <errno.h>
#include "base/base.h"
#include "coll.h"
#include "run/comm.h"
#include "run/request.h"

/* For how long one of them is waited for until the others are looked at: more and more. */
#define NAP_FIRST_NS	20000ULL
#define NAP_MAX_NS	1000000ULL

/* Will coll_test() say more of it than that there is nothing? */
static bool is_active(const struct coll_request *req)
{
	return req && atomic_load_explicit(&req->state, memory_order_acquire) != COLL_REQ_IDLE;
}

/* It waits for another call of its own process. */
static bool is_stuck(const struct coll_request *req)
{
	int state = atomic_load_explicit(&req->state, memory_order_acquire);

	return state == COLL_REQ_QUEUED || state == COLL_REQ_SELF;
}

int coll_testany(unsigned int n, struct coll_request **requests, unsigned int *index)
{
	bool some = false;
	int rc;

	for (unsigned int i = 0; i < n; i++) {
		if (!is_active(requests[i]))
			continue;
		some = true;
		rc = coll_test(&requests[i]);
		*index = i;
		if (rc != -EINPROGRESS)
			return rc;
	}
	*index = n;
	return some ? -EINPROGRESS : 0;
}

/* One to wait for: rather one that can end. There is one. */
static unsigned int pick(unsigned int n, struct coll_request **requests)
{
	unsigned int found = n;

	for (unsigned int i = 0; i < n; i++) {
		if (!is_active(requests[i]))
			continue;
		if (!is_stuck(requests[i]))
			return i;
		found = found < n ? found : i;
	}
	return found;
}

int coll_waitany(unsigned int n, struct coll_request **requests, unsigned int *index)
{
	uint64_t nap = NAP_FIRST_NS;
	int rc;

	for (;;) {
		rc = coll_testany(n, requests, index);
		if (rc != -EINPROGRESS)
			return rc;
		*index = pick(n, requests);
		rc = coll_wait_deadline(&requests[*index], coll_now_ns() + nap);
		if (rc != -EINPROGRESS)
			return rc;
		nap = nap < NAP_MAX_NS / 2 ? 2 * nap : NAP_MAX_NS;
	}
}

int coll_waitsome(unsigned int n, struct coll_request **requests, unsigned int *ndone,
		  unsigned int *indices)
{
	unsigned int first;
	int rc = coll_waitany(n, requests, &first), one;

	*ndone = 0;
	if (first == n)
		return rc;
	for (unsigned int i = 0; i < n; i++) {
		if (i != first && !is_active(requests[i]))
			continue;
		one = i == first ? rc : coll_test(&requests[i]);
		if (one == -EINPROGRESS)
			continue;
		rc = rc ? rc : one;
		indices[(*ndone)++] = i;
	}
	return rc;
}

int coll_wait_idle(struct coll_request **request, int (*idle)(void *arg), void *arg)
{
	int rc;

	for (;;) {
		rc = coll_test(request);
		if (rc == -EINPROGRESS && !idle(arg))
			rc = coll_wait_deadline(request, coll_now_ns() + NAP_MAX_NS);
		if (rc != -EINPROGRESS)
			return rc;
	}
}
