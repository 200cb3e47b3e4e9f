/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * victim.h - a rank here whose peer is said to be on another machine, for programs that play that
 * peer, or anybody else (hostile.h).
 */
#ifndef SELFTESTS_VICTIM_H
#define SELFTESTS_VICTIM_H

#include "rxe.h"

#define IP		"10.87.0.1"	/* ours */
#define VICTIM_BYTES	(256U << 10)	/* of its memory; a part is used */

struct victim {
	int fd, comm, buf;
	uint8_t secret[16];
	uint32_t rank;
	uint64_t seq;
	struct npulink_post post;
	char *mem;
};

/*
 * A rank of two, whose communicator has these flags; its peer is said to be on another machine, at
 * @ip, which is taken for lost after @ms.
 */
static inline int victim_join(struct victim *v, uint32_t flags, uint32_t rank, const char *ip,
			      uint16_t peer_port, uint32_t ms)
{
	struct npulink_comm_create create = {
		.size = sizeof(create), .flags = flags, .rank = rank, .nranks = 2,
		.peer_timeout_ms = ms,
	};
	struct npulink_peer peer;
	struct npulink_comm_peers peers = {
		.size = sizeof(peers), .first = 1 - rank, .npeers = 1, .peers = (uintptr_t)&peer,
	};
	int rc;

	memset(v, 0, sizeof(*v));
	raw_secret(v->secret);
	memset(v->secret + 8, 0x77, 8);
	memcpy(create.secret, v->secret, sizeof(v->secret));
	v->rank = rank;
	v->fd = raw_open(0);
	v->mem = raw_anon(VICTIM_BYTES);
	rc = raw_ioctl(v->fd, NPULINK_COMM_CREATE, &create);
	if (rc || rxe_peer(&peer, v->fd, ip, peer_port ? peer_port : htons(1)))
		return -1;
	peers.comm_id = create.out_id;
	/* From now on others may look at it. */
	__atomic_store_n(&v->comm, (int)create.out_id, __ATOMIC_RELEASE);
	rc = raw_ioctl(v->fd, NPULINK_COMM_PEERS, &peers);
	if (rc)
		return rc;
	v->buf = raw_register(v->fd, v->mem, VICTIM_BYTES, 0);
	return v->buf < 0 ? v->buf : 0;
}

/* What it posts next: these steps, with its peer, from or into its memory. */
static inline int victim_steps(struct victim *v, struct npulink_step *steps, uint32_t n)
{
	struct npulink_slot slot = { };
	int plan;

	for (uint32_t i = 0; i < n; i++) {
		bool sends = steps[i].op == NPULINK_STEP_SEND;

		*(sends ? &steps[i].send_peer : &steps[i].recv_peer) = 1 - v->rank;
		slot.access |= sends ? NPULINK_SLOT_READ : NPULINK_SLOT_WRITE;
		if (slot.min_len < steps[i].len)
			slot.min_len = steps[i].len;
	}
	plan = raw_plan(v->fd, v->comm, &slot, 1, steps, n);
	if (plan < 0)
		return plan;
	v->post = raw_post_cmd(plan, NPULINK_POST_HELD);
	raw_bind(&v->post, v->buf, 0, slot.min_len);
	return 0;
}

/* One that sends or receives, as @op says. */
static inline int victim_plan(struct victim *v, uint8_t op, uint32_t rank, const char *ip,
			      uint16_t peer_port, uint32_t len, uint32_t ms)
{
	struct npulink_step step = raw_step(op, len);
	int rc = victim_join(v, 0, rank, ip, peer_port, ms);

	return rc ? rc : victim_steps(v, &step, 1);
}

static inline int victim_post(struct victim *v)
{
	int rc = raw_ioctl(v->fd, NPULINK_POST, &v->post);

	v->seq = v->post.out_seq;
	return rc;
}

static inline int victim_init_at(struct victim *v, uint32_t rank, const char *ip,
				 uint16_t peer_port, uint32_t len, uint32_t ms)
{
	int rc = victim_plan(v, NPULINK_STEP_RECV, rank, ip, peer_port, len, ms);

	return rc ? rc : victim_post(v);
}

/* As long as it takes, and the peer at @peer_port of ours, where nobody is if that is 0. */
static inline int victim_init(struct victim *v, uint32_t rank, uint16_t peer_port, uint32_t len)
{
	return victim_init_at(v, rank, IP, peer_port, len, 0);
}

static inline int victim_cause(const struct victim *v)
{
	struct npulink_comm_status st;

	return raw_status(v->fd, v->comm, &st) ? -1 : (int)st.out_cause;
}

static inline void victim_end(struct victim *v)
{
	close(v->fd);
	munmap(v->mem, VICTIM_BYTES);
}

#endif /* SELFTESTS_VICTIM_H */
