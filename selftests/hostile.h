/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * hostile.h - the far end of a link between machines, played by a program over userspace
 * verbs: it can say what the kernel says, and whatever else it likes.
 */
#ifndef SELFTESTS_HOSTILE_H
#define SELFTESTS_HOSTILE_H

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <openssl/evp.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define __packed __attribute__((packed))
#include <npulink/wire.h>

#define HOSTILE_SLOTS	16

struct hostile {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener, *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char *mem;			/* slots to receive, one to send */
	struct npulink_wire_ends ends;
	uint32_t twist;			/* of our queue pair's number, where we prove who we are */
	struct npulink_wire_hello hello;
	struct npulink_wire_welcome welcome;
	size_t answer_len;
	bool lost;
	bool deaf;			/* nothing is received */
	unsigned int slots;		/* so many messages are received, 0: all that come */
	struct npulink_wire_auth ready;	/* of who was called */
	uint32_t said;			/* messages, of those who count them */
	int nrecv;			/* messages that have come, the last of them: */
	char *last;
	uint32_t last_len;
	const struct npulink_wire_msg *msgs[HOSTILE_SLOTS];	/* the first of them */
};

/* BLAKE2s with a key, as RFC 7693 has it, over a label and what follows. */
static inline bool hostile_hash(const uint8_t *key, size_t len, const char *label,
				const struct iovec *said, int n, uint8_t out[32])
{
	EVP_MAC *mac = EVP_MAC_fetch(NULL, "BLAKE2SMAC", NULL);
	EVP_MAC_CTX *ctx = EVP_MAC_CTX_new(mac);
	size_t size;
	bool ok;

	ok = EVP_MAC_init(ctx, key, len, NULL) &&
	     EVP_MAC_update(ctx, (const void *)label, strlen(label) + 1);
	for (int i = 0; i < n; i++)
		ok = ok && EVP_MAC_update(ctx, said[i].iov_base, said[i].iov_len);
	ok = ok && EVP_MAC_final(ctx, out, &size, 32) && size == 32;
	EVP_MAC_CTX_free(ctx);
	EVP_MAC_free(mac);
	return ok;
}

/* A MAC of who calls, or is called: over this connection, the first bytes of what was said, ... */
static inline void hostile_mac(struct hostile *h, const uint8_t secret[16], bool calls,
			       const char *label, size_t hello, size_t welcome, void *more,
			       size_t len, uint8_t out[32])
{
	const struct iovec ranks[] = {
		{ calls ? &h->hello.rank : &h->hello.peer, 4 },
		{ calls ? &h->hello.peer : &h->hello.rank, 4 },
	}, said[] = {
		{ &h->ends, sizeof(h->ends) }, { &h->hello, hello }, { &h->welcome, welcome },
		{ more, len },
	};
	uint8_t key[32];

	h->ends.caller_qp ^= h->twist;
	if (!hostile_hash(secret, 16, "npulink key", ranks, 2, key) ||
	    !hostile_hash(key, 32, label, said, 4, out))
		abort();
	h->ends.caller_qp ^= h->twist;
}

static inline void hostile_sign_hello(struct hostile *h, const uint8_t secret[16])
{
	uint8_t mac[32];

	hostile_mac(h, secret, true, "npulink hello", offsetof(struct npulink_wire_hello, mac), 0,
		    NULL, 0, mac);
	memcpy(h->hello.mac, mac, sizeof(h->hello.mac));
}

static inline void hostile_sign_welcome(struct hostile *h, const uint8_t secret[16])
{
	hostile_mac(h, secret, false, "npulink welcome", sizeof(h->hello),
		    offsetof(struct npulink_wire_welcome, mac), NULL, 0, h->welcome.mac);
}

static inline void hostile_sign_refusal(struct hostile *h, const uint8_t secret[16],
					struct npulink_wire_refusal *refusal)
{
	uint8_t mac[32];

	hostile_mac(h, secret, false, "npulink refusal", sizeof(h->hello), 0, refusal,
		    offsetof(struct npulink_wire_refusal, mac), mac);
	memcpy(refusal->mac, mac, sizeof(refusal->mac));
}

static inline void hostile_sign_auth(struct hostile *h, const uint8_t secret[16],
				     struct npulink_wire_auth *auth)
{
	hostile_mac(h, secret, true, "npulink auth", sizeof(h->hello),
		    offsetof(struct npulink_wire_welcome, mac), &auth->place,
		    sizeof(auth->place), auth->mac);
}

/* What the connection of h->id is between; @qp: of who calls. */
static inline void hostile_ends(struct hostile *h, bool calls, uint32_t qp)
{
	const struct sockaddr_in *ours = (void *)rdma_get_local_addr(h->id);
	const struct sockaddr_in *theirs = (void *)rdma_get_peer_addr(h->id);

	memset(&h->ends, 0, sizeof(h->ends));
	memset(h->ends.caller + 10, 0xff, 2);
	memset(h->ends.called + 10, 0xff, 2);
	memcpy(h->ends.caller + 12, calls ? &ours->sin_addr : &theirs->sin_addr, 4);
	memcpy(h->ends.called + 12, calls ? &theirs->sin_addr : &ours->sin_addr, 4);
	h->ends.caller_qp = qp;
}

/* Still to be signed. */
static inline struct npulink_wire_hello hostile_hello(const uint8_t secret[16], uint32_t rank,
						      uint32_t peer)
{
	struct npulink_wire_hello hello = {
		.magic = NPULINK_WIRE_MAGIC, .version = NPULINK_WIRE_VERSION,
		.rank = rank, .peer = peer,
	};
	struct timespec ts;
	uint8_t mac[32];

	hostile_hash(secret, 16, "npulink tag", NULL, 0, mac);
	memcpy(hello.tag, mac, sizeof(hello.tag));
	memset(hello.nonce, 0x5a, sizeof(hello.nonce));
	clock_gettime(CLOCK_MONOTONIC, &ts);
	hello.when = ts.tv_sec * 1000000000ULL + ts.tv_nsec;
	return hello;
}

static inline int64_t hostile_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000LL + ts.tv_nsec / 1000000;
}

/* The next event of the connection manager, or NULL. To be acknowledged. */
static inline struct rdma_cm_event *hostile_event(struct hostile *h, int ms)
{
	struct pollfd p = { .fd = h->channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	/* The time may be over since it was looked at, and less than none is for ever. */
	if (poll(&p, 1, ms > 0 ? ms : 0) != 1 || rdma_get_cm_event(h->channel, &event))
		return NULL;
	return event;
}

/* Waits for one kind of event; what comes instead is returned. -1: nothing. */
static inline int hostile_expect(struct hostile *h, int ms)
{
	struct rdma_cm_event *event = hostile_event(h, ms);
	int type = event ? (int)event->event : -1;

	if (!event)
		return -1;
	if (type == RDMA_CM_EVENT_ESTABLISHED || type == RDMA_CM_EVENT_REJECTED) {
		h->answer_len = event->param.conn.private_data_len;
		if (h->answer_len > sizeof(h->welcome))
			h->answer_len = sizeof(h->welcome);
		if (!h->listener) {
			memcpy(&h->welcome, event->param.conn.private_data, h->answer_len);
			if (type == RDMA_CM_EVENT_ESTABLISHED)
				h->ends.called_qp = event->param.conn.qp_num;
		}
	}
	rdma_ack_cm_event(event);
	return type;
}

static inline int hostile_init(struct hostile *h)
{
	memset(h, 0, sizeof(*h));
	h->channel = rdma_create_event_channel();
	h->mem = aligned_alloc(4096, (HOSTILE_SLOTS + 1) * NPULINK_WIRE_SLOT);
	return h->channel && h->mem ? 0 : -1;
}

static inline int hostile_repost(struct hostile *h, unsigned int slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)h->mem + slot * NPULINK_WIRE_SLOT,
		.length = NPULINK_WIRE_SLOT, .lkey = h->mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_recv(h->id->qp, &wr, &bad);
}

static inline int hostile_qp(struct hostile *h)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 16, .max_recv_wr = HOSTILE_SLOTS, .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};

	h->pd = ibv_alloc_pd(h->id->verbs);
	h->cq = h->pd ? ibv_create_cq(h->id->verbs, 64, NULL, NULL, 0) : NULL;
	if (!h->cq)
		return -1;
	attr.send_cq = h->cq;
	attr.recv_cq = h->cq;
	h->mr = ibv_reg_mr(h->pd, h->mem, (HOSTILE_SLOTS + 1) * NPULINK_WIRE_SLOT,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!h->mr || rdma_create_qp(h->id, h->pd, &attr))
		return -1;
	for (unsigned int i = 0; i < (h->slots ? h->slots : HOSTILE_SLOTS) && !h->deaf; i++)
		if (hostile_repost(h, i))
			return -1;
	return 0;
}

static inline void hostile_close(struct hostile *h)
{
	if (h->id && h->id->qp) {
		rdma_disconnect(h->id);
		rdma_destroy_qp(h->id);
	}
	if (h->mr)
		ibv_dereg_mr(h->mr);
	if (h->cq)
		ibv_destroy_cq(h->cq);
	if (h->pd)
		ibv_dealloc_pd(h->pd);
	if (h->id)
		rdma_destroy_id(h->id);
	h->id = NULL;
	h->pd = NULL;
	h->cq = NULL;
	h->mr = NULL;
}

static inline void hostile_end(struct hostile *h)
{
	hostile_close(h);
	if (h->listener)
		rdma_destroy_id(h->listener);
	if (h->channel)
		rdma_destroy_event_channel(h->channel);
	free(h->mem);
}

/*
 * Refuse whoever calls for so long, with @reason, 0: without one; NULL: without a proof. Returns
 * how many came.
 */
static inline int hostile_refuse(struct hostile *h, int ms, const uint8_t *secret, uint8_t reason,
				 bool *knocks)
{
	int64_t until = hostile_ms() + ms;
	int n = 0;

	while (hostile_ms() < until) {
		struct rdma_cm_event *event = hostile_event(h, until - hostile_ms());
		struct npulink_wire_refusal refusal = { .reason = reason };

		if (!event)
			break;
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			h->id = event->id;
			memcpy(&h->hello, event->param.conn.private_data, sizeof(h->hello));
			*knocks |= h->hello.flags & NPULINK_WIRE_KNOCK;
			hostile_ends(h, false, event->param.conn.qp_num);
			if (secret)
				hostile_sign_refusal(h, secret, &refusal);
			rdma_reject(h->id, &refusal, reason ? sizeof(refusal) : 0);
			n++;
			rdma_ack_cm_event(event);
			rdma_destroy_id(h->id);
			h->id = NULL;
		} else {
			rdma_ack_cm_event(event);
		}
	}
	return n;
}

/*
 * Call, and say the first bytes of @hello, signed if there is a secret. Returns the last event;
 * ESTABLISHED if the other end accepts.
 */
static inline int hostile_call(struct hostile *h, struct sockaddr_in *to, const uint8_t *secret,
			       const struct npulink_wire_hello *hello, size_t len)
{
	struct rdma_conn_param param = {
		.private_data = &h->hello, .private_data_len = len, .responder_resources = 1,
		.initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7,
	};
	int type;

	if (rdma_create_id(h->channel, &h->id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(h->id, NULL, (struct sockaddr *)to, 10000))
		return -1;
	type = hostile_expect(h, 20000);
	if (type != RDMA_CM_EVENT_ADDR_RESOLVED || rdma_resolve_route(h->id, 10000))
		return type;
	type = hostile_expect(h, 20000);
	if (type != RDMA_CM_EVENT_ROUTE_RESOLVED || hostile_qp(h))
		return type;
	h->hello = *hello;
	hostile_ends(h, true, h->id->qp->qp_num);
	if (secret)
		hostile_sign_hello(h, secret);
	if (rdma_connect(h->id, &param))
		return -1;
	return hostile_expect(h, 20000);
}

static inline int hostile_listen(struct hostile *h, const char *ip, uint16_t *port)
{
	struct sockaddr_in sin = { .sin_family = AF_INET };

	inet_pton(AF_INET, ip, &sin.sin_addr);
	if (rdma_create_id(h->channel, &h->listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(h->listener, (struct sockaddr *)&sin) || rdma_listen(h->listener, 8))
		return -1;
	*port = rdma_get_src_port(h->listener);
	return 0;
}

/* Wait to be called; the hello is kept. Other events of earlier calls are passed over. */
static inline int hostile_called(struct hostile *h, int ms)
{
	int64_t until = hostile_ms() + ms;
	struct rdma_cm_event *event;

	while (hostile_ms() < until) {
		event = hostile_event(h, until - hostile_ms());
		if (!event)
			break;
		if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
			rdma_ack_cm_event(event);
			continue;
		}
		h->id = event->id;
		memcpy(&h->hello, event->param.conn.private_data, sizeof(h->hello));
		hostile_ends(h, false, event->param.conn.qp_num);
		rdma_ack_cm_event(event);
		return 0;
	}
	return -1;
}

/* With the first bytes of h->welcome, signed if there is a secret. */
static inline int hostile_answer(struct hostile *h, const uint8_t *secret, size_t len)
{
	struct rdma_conn_param param = {
		.private_data = &h->welcome, .private_data_len = len, .responder_resources = 1,
		.initiator_depth = 1, .rnr_retry_count = 7,
	};

	if (hostile_qp(h))
		return -1;
	h->ends.called_qp = h->id->qp->qp_num;
	if (secret)
		hostile_sign_welcome(h, secret);
	return rdma_accept(h->id, &param) ? -1 : 0;
}

/* Take what has come, for so long, or until @enough messages. */
static inline void hostile_poll(struct hostile *h, int ms, int enough)
{
	int64_t until = hostile_ms() + ms;
	struct ibv_wc wc;

	do {
		while (ibv_poll_cq(h->cq, 1, &wc) == 1) {
			if (wc.status != IBV_WC_SUCCESS) {
				h->lost = true;
				continue;
			}
			if (wc.opcode != IBV_WC_RECV)
				continue;
			/* Who was called says so before anything else. */
			if (!h->listener && wc.byte_len == sizeof(struct npulink_wire_auth)) {
				h->ready = *(struct npulink_wire_auth *)
					   (h->mem + wc.wr_id * NPULINK_WIRE_SLOT);
				continue;
			}
			if (h->nrecv < HOSTILE_SLOTS)
				h->msgs[h->nrecv] = (void *)(h->mem + wc.wr_id * NPULINK_WIRE_SLOT);
			h->nrecv++;
			h->last = h->mem + wc.wr_id * NPULINK_WIRE_SLOT;
			h->last_len = wc.byte_len;
		}
		if (h->lost || (enough && h->nrecv >= enough))
			return;
		usleep(2000);
	} while (hostile_ms() < until);
}

/* Has the other end broken the connection? */
static inline bool hostile_dropped(struct hostile *h, int ms)
{
	int64_t until = hostile_ms() + ms;

	while (hostile_ms() < until) {
		hostile_poll(h, 50, 0);
		if (h->lost || hostile_expect(h, 0) == RDMA_CM_EVENT_DISCONNECTED)
			return true;
	}
	return false;
}

/* From byte @at of the memory for sending: until it has gone, others are sent from elsewhere. */
static inline int hostile_send_at(struct hostile *h, size_t at, const void *data, size_t len)
{
	char *slot = h->mem + HOSTILE_SLOTS * NPULINK_WIRE_SLOT + at;
	struct ibv_sge sge = { .addr = (uintptr_t)slot, .length = len, .lkey = h->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
	}, *bad;

	memcpy(slot, data, len);
	return ibv_post_send(h->id->qp, &wr, &bad);
}

static inline int hostile_send(struct hostile *h, const void *data, size_t len)
{
	return hostile_send_at(h, 0, data, len);
}

/* Write @len bytes of what was sent last; with @imm not NULL, the other end is told. */
static inline int hostile_write(struct hostile *h, uint64_t addr, uint32_t rkey, uint32_t len,
				const uint32_t *imm)
{
	char *slot = h->mem + HOSTILE_SLOTS * NPULINK_WIRE_SLOT;
	struct ibv_sge sge = { .addr = (uintptr_t)slot, .length = len, .lkey = h->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = len ? 1 : 0, .opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = { .remote_addr = addr, .rkey = rkey },
	}, *bad;

	if (imm) {
		wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr.imm_data = htonl(*imm);
	}
	return ibv_post_send(h->id->qp, &wr, &bad);
}

/* Prove that we know the secret, after ESTABLISHED, and be at @seq. */
static inline int hostile_prove_at(struct hostile *h, const uint8_t secret[16], uint32_t seq)
{
	struct npulink_wire_auth auth = { .place.seq = seq };

	hostile_sign_auth(h, secret, &auth);
	return hostile_send(h, &auth, sizeof(auth));
}

static inline int hostile_prove(struct hostile *h, const uint8_t secret[16])
{
	return hostile_prove_at(h, secret, 0);
}

#endif /* SELFTESTS_HOSTILE_H */
