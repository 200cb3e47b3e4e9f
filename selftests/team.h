/* SPDX-License-Identifier: GPL-2.0 */
/*
 * team.h - ranks with a ring allreduce of int32 sums, for tests that need some
 * collective to disturb. A rank has one buffer: what it sends, then what it receives.
 * All ranks may be in one process, or each in one of its own.
 */
#ifndef SELFTESTS_TEAM_H
#define SELFTESTS_TEAM_H

#include "raw.h"

#define TEAM_MAX	16

struct member {
	int fd, comm, plan, buf;
	uint32_t rank, nranks;
	size_t len;
	int32_t *send, *recv;
};

static inline uint64_t ring_chunk(uint64_t len, uint32_t n, uint32_t i)
{
	return len / 4 * (i % n) / n * 4;
}

static inline uint64_t ring_chunk_len(uint64_t len, uint32_t n, uint32_t i)
{
	return len / 4 * (i % n + 1) / n * 4 - ring_chunk(len, n, i);
}

/*
 * The steps of rank @r of @n (at least 2): reduce-scatter and allgather, the last step
 * of the one being the first of the other. 2n - 1 steps. Step n - 1 + k overwrites the
 * chunk of step k - 1.
 */
static inline void ring_steps(struct npulink_step *st, uint32_t r, uint32_t n, uint64_t len)
{
	uint32_t i;

	for (i = 0; i < 2 * n - 1; i++) {
		uint32_t chunk = i < n ? r + n - i : r + 2 * n - i;
		uint8_t op = 0;
		uint64_t off;

		if (i)
			op |= NPULINK_STEP_RECV;
		if (i && i < n)
			op |= NPULINK_STEP_REDUCE;
		if (i < 2 * n - 2)
			op |= NPULINK_STEP_SEND;
		st[i] = raw_step(op, ring_chunk_len(len, n, chunk));
		if (op & NPULINK_STEP_RECV)
			st[i].recv_peer = (r + n - 1) % n;
		if (op & NPULINK_STEP_SEND)
			st[i].send_peer = (r + 1) % n;
		if (i >= n)
			st[i].dep[0] = n;
		if (!st[i].len)
			continue;
		off = ring_chunk(len, n, chunk);
		if (i < n)
			st[i].src_off = off;
		if (i) {
			st[i].dst_slot = 1;
			st[i].dst_off = off;
		}
	}
}

/* 0 or -errno. */
static inline int member_plan(struct member *m)
{
	struct npulink_slot slots[2] = {
		{ .min_len = m->len, .access = NPULINK_SLOT_READ },
		{ .min_len = m->len, .access = NPULINK_SLOT_READ | NPULINK_SLOT_WRITE },
	};
	uint32_t nsteps = m->nranks > 1 ? 2 * m->nranks - 1 : 0;
	struct npulink_step *steps = calloc(nsteps + 1, sizeof(*steps));
	struct npulink_plan_create cmd;
	int rc;

	if (!steps)
		return -ENOMEM;
	if (nsteps)
		ring_steps(steps, m->rank, m->nranks, m->len);
	cmd = raw_plan_cmd(m->comm, slots, 2, steps, nsteps);
	cmd.call.count = m->len / 4;
	rc = raw_ioctl(m->fd, NPULINK_PLAN_CREATE, &cmd);
	free(steps);
	m->plan = cmd.out_id;
	return rc;
}

/* 0 or -errno. */
static inline int member_join(struct member *m, unsigned int dev, const uint8_t secret[16],
			      uint32_t rank, uint32_t nranks, size_t len)
{
	*m = (struct member) { .rank = rank, .nranks = nranks, .len = len };
	m->send = raw_anon(2 * len + 1);
	if (m->send == MAP_FAILED)
		return -ENOMEM;
	m->recv = m->send + len / 4;
	m->fd = raw_open(dev);
	if (m->fd < 0)
		return -errno;
	m->comm = raw_comm(m->fd, secret, rank, nranks);
	if (m->comm < 0)
		return m->comm;
	m->buf = raw_register(m->fd, m->send, 2 * len + 1, 0);
	if (m->buf < 0)
		return m->buf;
	return member_plan(m);
}

static inline void member_leave(struct member *m)
{
	close(m->fd);
	munmap(m->send, 2 * m->len + 1);
}

static inline struct npulink_post member_post_cmd(const struct member *m, uint32_t flags)
{
	struct npulink_post post = raw_post_cmd(m->plan, flags);

	raw_bind(&post, m->buf, 0, m->len);
	raw_bind(&post, m->buf, m->len, m->len);
	return post;
}

static inline void member_fill(struct member *m, uint32_t round)
{
	size_t i;

	for (i = 0; i < m->len / 4; i++) {
		m->send[i] = (m->rank + 1) * (i + round);
		m->recv[i] = -1;
	}
}

/* Elements that are wrong. */
static inline size_t member_wrong(const struct member *m, uint32_t round)
{
	uint32_t sum = m->nranks * (m->nranks + 1) / 2;
	size_t i, bad = 0;

	for (i = 0; i < m->len / 4; i++)
		bad += (uint32_t)m->recv[i] != sum * (uint32_t)(i + round);
	return bad;
}

/* Start it; *seq for WAIT. */
static inline int member_start(const struct member *m, uint64_t deadline_ns, uint64_t *seq)
{
	struct npulink_post post = member_post_cmd(m, NPULINK_POST_HELD);
	int rc;

	post.deadline_ns = deadline_ns;
	rc = raw_ioctl(m->fd, NPULINK_POST, &post);
	*seq = post.out_seq;
	return rc;
}

/* Start and wait; 0 or -errno, also of the operation. */
static inline int member_run(const struct member *m, struct npulink_result *res)
{
	struct npulink_post post = member_post_cmd(m, NPULINK_POST_WAIT);
	int rc = raw_ioctl(m->fd, NPULINK_POST, &post);

	if (res)
		*res = post.out_result;
	return rc ? rc : post.out_result.status;
}

/* ---- all ranks in this process */

struct team {
	uint32_t n;
	struct member m[TEAM_MAX];
	uint64_t seq[TEAM_MAX];
};

static inline int team_open(struct team *t, uint32_t n, unsigned int ndev, size_t len)
{
	uint8_t secret[16];
	uint32_t r;
	int rc = 0;

	raw_secret(secret);
	t->n = n;
	for (r = 0; !rc && r < n; r++)
		rc = member_join(&t->m[r], r % ndev, secret, r, n, len);
	return rc;
}

static inline void team_close(struct team *t)
{
	uint32_t r;

	for (r = 0; r < t->n; r++)
		member_leave(&t->m[r]);
}

static inline int team_start(struct team *t, uint64_t deadline_ns)
{
	uint32_t r;
	int rc = 0;

	for (r = 0; !rc && r < t->n; r++)
		rc = member_start(&t->m[r], deadline_ns, &t->seq[r]);
	return rc;
}

/* The first error, of a call or of an operation. */
static inline int team_finish(struct team *t)
{
	struct npulink_result res;
	uint32_t r;
	int rc = 0;

	for (r = 0; r < t->n; r++) {
		int one = raw_wait(t->m[r].fd, t->seq[r], &res);

		rc = rc ? rc : one ? one : res.status;
	}
	return rc;
}

/* One allreduce: 0, -errno, or the number of wrong elements. */
static inline long team_allreduce(struct team *t, uint32_t round)
{
	uint32_t r;
	long rc, bad = 0;

	for (r = 0; r < t->n; r++)
		member_fill(&t->m[r], round);
	rc = team_start(t, 0);
	if (!rc)
		rc = team_finish(t);
	for (r = 0; !rc && r < t->n; r++)
		bad += member_wrong(&t->m[r], round);
	return rc ? rc : bad;
}

#endif /* SELFTESTS_TEAM_H */
