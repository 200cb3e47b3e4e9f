/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * victim.h - a rank here whose peer is said to be on another machine, for programs that play that
 * peer, or anybody else (hostile.h).
 */
#ifndef SELFTESTS_VICTIM_H
#define SELFTESTS_VICTIM_H

#include "rxe.h"

#define IP		"10.87.0.1"	/* ours */
#define VICTIM_BYTES	(64U << 10)	/* of its memory; a part is used */

struct victim {
	int fd, comm;
	uint8_t secret[16];
	uint32_t rank;
	uint64_t seq;
	struct npulink_post post;
	char *mem;
};

/*
 * A rank of two that sends or receives, as @op says; its peer is said to be on another machine, at
 * @ip, which is taken for lost after @ms.
 */
static inline int victim_plan(struct victim *v, uint8_t op, uint32_t rank, const char *ip,
			      uint16_t peer_port, uint32_t len, uint32_t ms)
{
	bool sends = op == NPULINK_STEP_SEND;
	struct npulink_slot slot = {
		.min_len = len, .access = sends ? NPULINK_SLOT_READ : NPULINK_SLOT_WRITE,
	};
	struct npulink_step step = raw_step(op, len);
	struct npulink_peer peer;
	struct npulink_comm_peers peers = {
		.size = sizeof(peers), .first = 1 - rank, .npeers = 1, .peers = (uintptr_t)&peer,
	};
	int plan, buf, rc;

	memset(v, 0, sizeof(*v));
	raw_secret(v->secret);
	memset(v->secret + 8, 0x77, 8);
	v->rank = rank;
	v->fd = raw_open(0);
	v->mem = raw_anon(VICTIM_BYTES);
	v->comm = raw_comm_timeout(v->fd, v->secret, rank, 2, ms);
	if (v->comm < 0 || rxe_peer(&peer, v->fd, ip, peer_port ? peer_port : htons(1)))
		return -1;
	peers.comm_id = v->comm;
	rc = raw_ioctl(v->fd, NPULINK_COMM_PEERS, &peers);
	if (rc)
		return rc;
	*(sends ? &step.send_peer : &step.recv_peer) = 1 - rank;
	plan = raw_plan(v->fd, v->comm, &slot, 1, &step, 1);
	buf = raw_register(v->fd, v->mem, VICTIM_BYTES, 0);
	if (plan < 0 || buf < 0)
		return plan < 0 ? plan : buf;
	v->post = raw_post_cmd(plan, NPULINK_POST_HELD);
	raw_bind(&v->post, buf, 0, len);
	return 0;
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
