// SPDX-License-Identifier: GPL-2.0
/*
 * traffic.c - what there is to be seen while netlink is asked: communicators whose collectives are
 * right, wait for a part of their ranks, are aborted, or end with their process.
 */
#include <signal.h>
#include <stdarg.h>
#include "see.h"
#include "team.h"

/* How operations, and what precedes them, may end while root changes everything. */
static const int allowed[] = {
	ECANCELED, ETIMEDOUT, EOWNERDEAD, ESHUTDOWN, ENODEV, EIO, ENOLINK, ENOENT, EEXIST,
	EPROTO, EDQUOT, EACCES, ENOMEM, EAGAIN, EBUSY, ENXIO, EDEADLK,
};

static void check(int rc, const char *what)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(allowed); i++)
		if (rc == -allowed[i])
			return;
	see_complain("%s: %d", what, rc);
}

/* A plan that says whose it is. */
static int marked_plan(struct member *m, enum owner who)
{
	struct npulink_slot slots[2] = {
		{ .min_len = m->len, .access = NPULINK_SLOT_READ },
		{ .min_len = m->len, .access = NPULINK_SLOT_READ | NPULINK_SLOT_WRITE },
	};
	struct npulink_step steps[2 * SEE_RANKS(OWNERS)];
	struct npulink_plan_create cmd;
	int rc;

	ring_steps(steps, m->rank, m->nranks, m->len);
	cmd = raw_plan_cmd(m->comm, slots, 2, steps, 2 * m->nranks - 1);
	cmd.call.count = m->len / 4;
	cmd.call.set_id = SEE_CALL + who;
	snprintf(cmd.algorithm, sizeof(cmd.algorithm), "see-%u", who);
	rc = raw_ioctl(m->fd, NPULINK_PLAN_CREATE, &cmd);
	m->plan = cmd.out_id;
	return rc;
}

static int join(struct member *m, enum owner who, const uint8_t secret[16], uint32_t rank,
		size_t len)
{
	struct npulink_comm_create cmd = {
		.size = sizeof(cmd), .rank = rank, .nranks = SEE_RANKS(who),
		.flags = who == OF_BOTH ? NPULINK_COMM_ANY_UID : 0,
	};
	int rc;

	*m = (struct member) { .rank = rank, .nranks = SEE_RANKS(who), .len = len };
	m->send = raw_anon(2 * len + 1);
	m->recv = m->send + len / 4;
	m->fd = raw_open(SEE_DEVICES + rank % SEE_DEVICES);
	if (m->fd < 0)
		return -errno;
	memcpy(cmd.secret, secret, 16);
	rc = raw_ioctl(m->fd, NPULINK_COMM_CREATE, &cmd);
	m->comm = cmd.out_id;
	m->buf = rc ? 0 : raw_register(m->fd, m->send, 2 * len + 1, 0);
	if (m->buf < 0)
		rc = m->buf;
	return rc ? rc : marked_plan(m, who);
}

/* Posts of ranks from @first to @last. */
static int start(struct team *t, uint32_t first, uint32_t last, uint32_t round)
{
	int rc = 0;

	for (; !rc && first < last; first++) {
		member_fill(&t->m[first], round);
		rc = member_start(&t->m[first], 3000000000ULL, &t->seq[first]);
	}
	return rc;
}

/* One collective of all ranks that are here, most often at once. False: it was the last. */
static bool collective(struct rnd *r, struct team *t, uint32_t round)
{
	uint32_t part = rnd_one_in(r, 3) ? rnd_below(r, t->n) : 0, i;
	int rc = start(t, 0, part, round);
	long wrong = 0;

	if (!rc && part) {
		see_count(&see->parts);
		usleep(rnd_below(r, 30000));
		switch (rnd_below(r, 8)) {
		case 0:
			see_count(&see->aborts);
			raw_abort(t->m[part].fd, t->m[part].comm, rnd_next(r));
			break;
		case 1:
			see_count(&see->deaths);
			kill(getpid(), SIGKILL);
			break;
		case 2:
			close(t->m[part].fd);
			return false;
		}
	}
	if (!rc)
		rc = start(t, part, t->n, round);
	if (!rc)
		rc = team_finish(t);
	for (i = 0; !rc && i < t->n; i++)
		wrong += member_wrong(&t->m[i], round);
	if (wrong)
		see_complain("%ld elements are wrong", wrong);
	if (rc) {
		see_count(&see->failed);
		check(rc, "operation");
		return false;
	}
	see_count(&see->right);
	return true;
}

void traffic(struct rnd *r, enum owner who, uint32_t first, uint32_t ranks)
{
	uint32_t epoch = __atomic_load_n(&see->epoch, __ATOMIC_ACQUIRE);
	uint32_t times = rnd_below(r, 30), i;
	uint8_t secret[16] = { 0x5e, who };
	struct rnd same = { epoch };
	struct team t = { .n = ranks };
	size_t len;
	int rc = 0;

	/* Those of both have to agree. */
	if (who == OF_BOTH)
		memcpy(secret + 4, &epoch, sizeof(epoch));
	else
		raw_secret(secret);
	len = rnd_one_in(&same, 6) ? 4000 : rnd_below(&same, 100);
	len = 4 * (SEE_MARKS * (1 + len) + who);
	for (i = 0; !rc && i < ranks; i++)
		rc = join(&t.m[i], who, secret, first + i, len);
	if (rc)
		check(rc, "joining");
	for (i = 0; !rc && i < times; i++)
		if (!collective(r, &t, i))
			break;
	usleep(rnd_below(r, 20000));
	if (who == OF_BOTH)
		__atomic_compare_exchange_n(&see->epoch, &epoch, epoch + 1, false,
					    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}
