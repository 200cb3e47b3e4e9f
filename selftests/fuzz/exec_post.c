// SPDX-License-Identifier: GPL-2.0
/*
 * exec_post.c - calls of a program that start operations and wait for them.
 */
#include <poll.h>
#include <sys/eventfd.h>
#include "exec.h"
#include "raw.h"

#define CONNECTIONS	"/sys/module/npulink_rdma/parameters/connections"

/* From when on it is said to be slow. */
static uint64_t slow(struct rnd *r)
{
	if (rnd_one_in(r, 16))
		return rnd_odd(r);
	return rnd_one_in(r, 3) ? 1000ULL * rnd_below(r, 20000) : 0;
}

static struct npulink_post team_post(uint32_t k, struct npulink_bind *binds)
{
	struct npulink_post post = raw_post_cmd(ex.team_plan[k], NPULINK_POST_HELD);
	uint64_t off = 0;
	uint32_t i;

	for (i = 0; i < ex.team_nslots; i++) {
		binds[i] = (struct npulink_bind) {
			.buf_id = ex.team_buf[k], .off = off, .len = ex.team_len[k][i],
		};
		off += (ex.team_len[k][i] + 63) / 64 * 64;
	}
	post.nbinds = ex.team_nslots;
	if (ex.team_nslots > NPULINK_POST_BINDS)
		post.binds = (uintptr_t)binds;
	else
		memcpy(post.inline_binds, binds, ex.team_nslots * sizeof(*binds));
	return post;
}

/* One that is far, or where counters end: those of numbers, and the kernel's on a debug kernel. */
static uint64_t jump(struct rnd *r, uint64_t there)
{
	static const uint8_t bits[] = { 8, 16, 31, 32, 40, 40, 48, 56, 63 };

	switch (rnd_below(r, 8)) {
	case 0:
		return ~0ULL - rnd_below(r, rnd_one_in(r, 2) ? 40 : 2);
	case 1:
		return 17 + rnd_below(r, 4);
	case 2:
		return there + (1ULL << bits[rnd_below(r, sizeof(bits))]) - 4 + rnd_below(r, 8);
	case 3:
		return (1ULL << bits[rnd_below(r, sizeof(bits))]) - 4 + rnd_below(r, 8);
	default:
		return there + rnd_below(r, 40);
	}
}

/* No rank has come further than POST lets it. */
static uint64_t next_of(int fd, uint32_t comm)
{
	struct npulink_comm_status st;

	if (raw_status(fd, comm, &st))
		return 0;
	if (st.out_next > NPULINK_MAX_NUMBER + 1000000)
		exec_complain("a rank has come to collective %llu",
			      (unsigned long long)st.out_next);
	return st.out_next;
}

void exec_team_post(struct rnd *r, uint8_t bend)
{
	struct npulink_bind binds[TEAM][NPULINK_MAX_SLOTS];
	struct npulink_post post;
	uint32_t n = ex.n, first = rnd_below(r, n), k, i;
	uint64_t number = 0;
	uint64_t seq[TEAM] = {};
	bool wait;

	if (!n)
		return exec_post(r, bend);
	wait = !rnd_one_in(r, 3);
	if (rnd_one_in(r, 3))
		number = jump(r, next_of(ex.team_fd[first], ex.team_comm[first]));
	for (i = 0; i < n; i++) {
		k = (first + i) % n;
		post = team_post(k, binds[k]);
		post.number = number + (number && rnd_one_in(r, 12));
		if (rnd_one_in(r, 4))
			post.deadline_ns = 1000000ULL * rnd_below(r, 50);
		if (rnd_one_in(r, 4))
			post.flags = 0;
		if (i == n - 1 && rnd_one_in(r, 2))
			post.flags = NPULINK_POST_WAIT;
		post.flags |= number ? NPULINK_POST_NUMBER : 0;
		post.wait_until_ns = raw_now() + 50000000;
		post.slow_ns = slow(r);
		CALL(r, ex.team_fd[k], NPULINK_POST, post,
		     bend && rnd_one_in(r, n) ? bend : 0);
		seq[k] = post.out_seq;
		exec_add(ex.seqs, &ex.nseqs, ex.team_fd[k], post.out_seq);
	}
	if (ex.far && raw_read(CONNECTIONS) > 0)
		ex.env->shared->connected++;
	for (k = 0; wait && k < n; k++) {
		struct npulink_wait cmd = {
			.size = sizeof(cmd), .seq = seq[k], .wait_until_ns = raw_now() + 50000000,
		};

		CALL(r, ex.team_fd[k], NPULINK_WAIT, cmd, 0);
	}
}

static struct npulink_post some_post(struct rnd *r, const struct thing *plan,
				     struct npulink_bind *binds)
{
	struct npulink_post post = raw_post_cmd(plan->id, rnd_below(r, 4));
	uint64_t off = 0, sum = 0;
	struct thing buf;
	uint32_t i;

	/* Without a ring it is refused. */
	if (!post.flags && rnd_one_in(r, 2))
		post.flags = NPULINK_POST_HELD;
	post.nbinds = plan->len <= NPULINK_MAX_SLOTS ? plan->len : 0;
	if (rnd_one_in(r, 16))
		post.nbinds = rnd_below(r, NPULINK_MAX_SLOTS + 1);
	for (i = 0; i < post.nbinds; i++)
		sum += (plan->min_len[i] + 63) / 64 * 64;
	buf = exec_pick_buf(r, plan->fd, sum);
	for (i = 0; i < post.nbinds; i++) {
		if (rnd_one_in(r, 8)) {
			buf = exec_pick_buf(r, plan->fd, off + plan->min_len[i]);
			off = rnd_below(r, 4096);
		}
		binds[i] = (struct npulink_bind) {
			.buf_id = buf.id, .off = off, .len = plan->min_len[i],
		};
		off += (plan->min_len[i] + 63) / 64 * 64;
		if (rnd_one_in(r, 24))
			gen_bend_bytes(r, &binds[i], sizeof(binds[i]));
	}
	if (post.nbinds > NPULINK_POST_BINDS)
		post.binds = (uintptr_t)binds;
	else
		memcpy(post.inline_binds, binds, post.nbinds * sizeof(*binds));
	post.cookie = rnd_next(r);
	post.deadline_ns = rnd_one_in(r, 2) ? 0 : 1000000ULL * rnd_below(r, 30);
	if (rnd_one_in(r, 32))
		post.deadline_ns = rnd_odd(r);
	post.wait_until_ns = exec_soon(r);
	post.slow_ns = slow(r);
	if (rnd_one_in(r, 4)) {
		post.flags |= NPULINK_POST_NUMBER;
		post.number = jump(r, 0);
	}
	if (rnd_one_in(r, 32))
		*(rnd_one_in(r, 2) ? &post.in_fence : &post.out_fence) = rnd_below(r, 12) - 2;
	return post;
}

void exec_post(struct rnd *r, uint8_t bend)
{
	struct thing plan = exec_pick(r, ex.plans, ex.nplans);
	struct npulink_bind binds[NPULINK_MAX_SLOTS];
	struct npulink_post post = some_post(r, &plan, binds);

	CALL(r, plan.fd, NPULINK_POST, post, bend);
	exec_add(ex.seqs, &ex.nseqs, plan.fd, post.out_seq);
}

void exec_batch(struct rnd *r, uint8_t bend)
{
	struct thing plan = exec_pick(r, ex.plans, ex.nplans);
	struct npulink_bind binds[6][NPULINK_MAX_SLOTS];
	struct npulink_post posts[6];
	struct npulink_post_batch cmd = {
		.size = sizeof(cmd), .flags = rnd_below(r, 2), .nposts = 1 + rnd_below(r, 6),
		.posts = (uintptr_t)posts, .wait_until_ns = exec_soon(r),
	};
	uint32_t i;

	for (i = 0; i < 6; i++) {
		struct thing one = rnd_one_in(r, 3) ? exec_pick(r, ex.plans, ex.nplans) : plan;

		posts[i] = some_post(r, &one, binds[i]);
		posts[i].flags &= ~NPULINK_POST_WAIT;
		if (bend & 1 && rnd_one_in(r, 4))
			gen_bend_bytes(r, &posts[i], sizeof(posts[i]));
	}
	CALL(r, plan.fd, NPULINK_POST_BATCH, cmd, bend & 2 ? bend : 0);
	for (i = 0; i < cmd.out_posted && i < 6; i++)
		exec_add(ex.seqs, &ex.nseqs, plan.fd, posts[i].out_seq);
}

void exec_wait(struct rnd *r, uint8_t bend)
{
	struct thing seq = exec_pick(r, ex.seqs, ex.nseqs);
	struct npulink_wait cmd = {
		.size = sizeof(cmd), .seq = seq.id + (rnd_one_in(r, 8) ? rnd_below(r, 3) : 0),
		.wait_until_ns = exec_soon(r),
	};

	CALL(r, seq.fd, NPULINK_WAIT, cmd, bend);
}

void exec_ring(struct rnd *r, uint8_t bend)
{
	struct npulink_ring_setup cmd = {
		.size = sizeof(cmd), .entries = 1U << rnd_below(r, 8), .eventfd = -1,
	};
	int fd = exec_file(r);

	if (rnd_one_in(r, 2))
		cmd.eventfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (CALL(r, fd, NPULINK_RING_SETUP, cmd, bend))
		return;
	ex.ring_len = cmd.out_len;
	ex.ring = mmap(NULL, cmd.out_len, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		       NPULINK_MMAP_RING);
	if (ex.ring == MAP_FAILED)
		ex.ring = NULL;
}

void exec_tail(struct rnd *r, uint8_t bend)
{
	struct npulink_ring *ring = ex.ring;

	if (!ring)
		return;
	switch (rnd_below(r, 3)) {
	case 0:
		ring->tail = ring->head;
		break;
	case 1:
		ring->tail = rnd_odd(r);
		break;
	default:
		ring->head = rnd_odd(r);
		ring->entries = rnd_odd(r);
	}
}

void exec_poll(struct rnd *r, uint8_t bend)
{
	struct pollfd fds[2] = { { exec_file(r), POLLIN, 0 }, { exec_file(r), rnd_next(r), 0 } };
	char c;

	poll(fds, 2, rnd_below(r, 5));
	if (rnd_one_in(r, 4) && read(fds[0].fd, &c, 1) == 1)
		fds[0].fd = write(fds[0].fd, &c, 1);
}
