/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * agree_member.h - a rank that wants to go on after a failure, and the other machine with which it
 * agrees about that, and which is played here.
 */
#ifndef SELFTESTS_AGREE_MEMBER_H
#define SELFTESTS_AGREE_MEMBER_H

#include <pthread.h>
#include <sys/wait.h>
#include "hostile.h"
#include "raw.h"
#include "kselftest.h"
#include "rxe.h"

#define IP		"10.87.0.1"
#define BOUND		20000		/* ms until a machine that does not answer is lost */
#define SHORT		600
#define LONG		4000
#define DECIDE		8		/* times that: until one that does not decide is */

static uint16_t port;			/* of the kernel's listener, big endian */
static uint64_t places;			/* the hash of who is where, as was said to us before */
static uint32_t nplaces = 2;

/* ---- the rank that goes on ------------------------------------------------------------ */

struct survivor {
	int fd, comm;
	uint32_t flags;
	uint8_t secret[16];
	pthread_t thread;
	volatile pid_t tid;		/* the thread, once it runs */
	int rc;
	struct npulink_comm_shrink out;
	uint32_t map[2];
};

static inline void *ask(void *arg)
{
	struct survivor *s = arg;

	s->out = (struct npulink_comm_shrink) {
		.size = sizeof(s->out), .flags = s->flags, .comm_id = s->comm,
		.map = (uintptr_t)s->map,
	};
	s->tid = gettid();
	s->rc = raw_ioctl(s->fd, NPULINK_COMM_SHRINK, &s->out);
	return NULL;
}

/*
 * Rank 1 of two, of a communicator that has failed; @asks, else it is left to the other one. It
 * goes on alone if it has to.
 */
static inline bool survivor_init(struct survivor *s, uint32_t ms, bool fails, bool asks)
{
	struct npulink_peer peer;
	struct npulink_comm_peers peers = {
		.size = sizeof(peers), .npeers = 1, .peers = (uintptr_t)&peer,
	};

	memset(s, 0, sizeof(*s));
	s->flags = NPULINK_SHRINK_MINORITY;
	raw_secret(s->secret);
	memset(s->secret + 8, 0x55, 8);
	s->fd = raw_open(0);
	s->comm = raw_comm_timeout(s->fd, s->secret, 1, 2, ms);
	if (s->comm < 0 || rxe_peer(&peer, s->fd, IP, htons(1)))
		return false;
	peers.comm_id = s->comm;
	if (raw_ioctl(s->fd, NPULINK_COMM_PEERS, &peers) ||
	    (fails && raw_abort(s->fd, s->comm, 1)))
		return false;
	return !asks || !pthread_create(&s->thread, NULL, ask, s);
}

/* What its call has come to: so many ranks that are well, or an error. */
static inline bool survivor_is(const struct survivor *s, int want)
{
	struct npulink_comm_status st = { };
	bool ok;

	if (want < 0) {
		ok = s->rc == want;
	} else {
		ok = !s->rc && (int)s->out.out_nranks == want &&
		     (int)s->out.out_rank == want - 1 && s->map[want - 1] == 1 &&
		     !raw_status(s->fd, s->out.out_id, &st) && !st.out_cause;
	}
	if (!ok)
		ksft_print_msg("%d: rank %u of %u, cause %u\n", s->rc, s->out.out_rank,
			       s->out.out_nranks, st.out_cause);
	return ok;
}

static inline bool survivor_end(struct survivor *s, int want)
{
	bool ok;

	pthread_join(s->thread, NULL);
	ok = survivor_is(s, want);
	close(s->fd);
	return ok;
}

/* ---- the other machine ------------------------------------------------------------------ */

struct agreer {
	struct hostile h;
	uint32_t seq;
	struct npulink_wire_msg heard;
	struct npulink_wire_alive theirs;
};

/* A message of an agreement, with the payload that its type has. */
struct agree_msg {
	struct npulink_wire_msg head;
	union {
		struct npulink_wire_alive alive;
		struct npulink_wire_offer offer;
	};
} __packed;

static inline void derive(const uint8_t secret[16], const char *label, uint8_t out[16])
{
	uint8_t mac[32];

	hostile_hash(secret, 16, label, NULL, 0, mac);
	memcpy(out, mac, 16);
}

static inline struct sockaddr_in listener(void)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = port };

	inet_pton(AF_INET, IP, &sin.sin_addr);
	return sin;
}

/* The next message. */
static inline bool hear(struct agreer *a)
{
	int had = a->h.nrecv;

	hostile_poll(&a->h, 10000, had + 1);
	if (a->h.nrecv == had)
		return false;
	memcpy(&a->heard, a->h.last, sizeof(a->heard));
	if (a->heard.type == NPULINK_WIRE_ALIVE &&
	    a->h.last_len == sizeof(a->heard) + sizeof(a->theirs)) {
		memcpy(&a->theirs, a->h.last + sizeof(a->heard), sizeof(a->theirs));
		places = a->theirs.places;
	}
	return true;
}

/* Call @peer as a rank that knows the secret, until there is somebody who has heard of it. */
static inline bool meet_as(struct agreer *a, const struct survivor *s, uint32_t rank, uint32_t peer)
{
	struct npulink_wire_hello hello;
	struct sockaddr_in sin = listener();
	uint8_t secret[16];
	int type = -1;

	memset(a, 0, sizeof(*a));
	derive(s->secret, "npulink agree", secret);
	for (int i = 0; i < 100 && type != RDMA_CM_EVENT_ESTABLISHED; i++) {
		if (i) {
			hostile_end(&a->h);
			usleep(20000);
		}
		if (hostile_init(&a->h))
			return false;
		hello = hostile_hello(secret, rank, peer);
		type = hostile_call(&a->h, &sin, secret, &hello, sizeof(hello));
	}
	return type == RDMA_CM_EVENT_ESTABLISHED && !hostile_prove(&a->h, secret);
}

static inline bool meet(struct agreer *a, const struct survivor *s)
{
	return meet_as(a, s, 0, 1);
}

static inline struct agree_msg message(struct agreer *a, uint8_t type)
{
	struct agree_msg m = { .head = { .type = type, .seq = a->seq++ } };

	switch (type) {
	case NPULINK_WIRE_ALIVE:
		m.head.agree.size = sizeof(m.alive);
		m.alive.cause = (struct npulink_wire_cause) {
			.cause = NPULINK_CAUSE_ABORT, .peer = NPULINK_NO_PEER, .step = ~0U,
			.number = ~0ULL,
		};
		m.alive.places = places;
		m.alive.nplaces = nplaces;
		m.alive.nranks = 1;
		m.alive.live[0] = 1;
		break;
	case NPULINK_WIRE_OFFER:
		m.head.agree.size = sizeof(m.offer);
		m.head.number = 1;
		memset(m.head.agree.nonce, 0x6e, sizeof(m.head.agree.nonce));
		m.offer.places[0] = 3;
		break;
	case NPULINK_WIRE_COMMIT:
		m.head.number = 1;
		break;
	}
	return m;
}

static inline bool say(struct agreer *a, const struct agree_msg *m, size_t len)
{
	static size_t at;

	/* Not where the one before may still be sent from. */
	at = at ? 0 : 1;
	if (at * 2048 + len > NPULINK_WIRE_SLOT)
		at = 0;
	usleep(at ? 0 : 20000);
	return !hostile_send_at(&a->h, at * 2048, m, len);
}

static inline bool say_right(struct agreer *a, uint8_t type)
{
	struct agree_msg m = message(a, type);

	return say(a, &m, sizeof(m.head) + m.head.agree.size);
}

/* It says who is alive there, and what it says is right. */
static inline bool hear_alive(struct agreer *a)
{
	return hear(a) && a->heard.type == NPULINK_WIRE_ALIVE && !a->heard.seq &&
	       a->theirs.nplaces == nplaces && a->theirs.nranks == 1 && a->theirs.live[0] == 1 &&
	       !a->theirs.dead[0] && a->theirs.cause.cause == NPULINK_CAUSE_ABORT;
}

static inline bool offer(struct agreer *a)
{
	return say_right(a, NPULINK_WIRE_OFFER) && hear(a) &&
	       a->heard.type == NPULINK_WIRE_ACCEPT && a->heard.number == 1 &&
	       !a->heard.agree.decider;
}

/* As far as to @type, which is the next thing to be said. */
static inline bool begin(struct agreer *a, const struct survivor *s, uint8_t type)
{
	if (!meet(a, s) || !hear_alive(a))
		return false;
	if (type == NPULINK_WIRE_ALIVE)
		return true;
	if (!say_right(a, NPULINK_WIRE_ALIVE))
		return false;
	return type == NPULINK_WIRE_OFFER || offer(a);
}

/* ---- before and after ------------------------------------------------------------------ */

static inline void set_up(void)
{
	const char *why = rxe_set_up_port(IP, &port);

	if (why)
		ksft_exit_fail_msg("%s\n", why);
}

static inline bool nothing_left(void)
{
	return rxe_nothing_left() &&
	       !sh("build/tools/npulink -j stat show | jq -e '.pinned == 0 and .files == 0 and "
		   ".comms == 0 and .ranks == 0' >/dev/null");
}

/* Two cases more. */
static inline void all_left(void)
{
	ksft_test_result(nothing_left(), "no key, no connection and no memory is left\n");
	ksft_test_result(!sh("tools/vm/modules unload"), "the modules can be removed\n");
	ksft_finished();
}

#endif /* SELFTESTS_AGREE_MEMBER_H */
