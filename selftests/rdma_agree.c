// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * rdma_agree.c - a rank that wants to go on after a failure agrees about that with another
 * machine, which is played here: one that does as it should, that dies at each step, says
 * nothing, or lies. A liar is cut off, and the rank goes on without it; into a communicator with
 * a secret that it was not meant to have, or with ranks that there are not, it gets nobody.
 *
 * npulink-test: cpus=1 modules=none timeout=240
 */
#include <grp.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "hostile.h"
#include "raw.h"
#include "kselftest.h"
#include "rxe.h"

#define IP		"10.87.0.1"
#define BOUND		20000		/* ms until a machine that does not answer is lost */
#define SHORT		600
#define LONG		4000
#define GROUP		"/sys/fs/cgroup/npulink-agree"
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

static void *ask(void *arg)
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
static bool survivor_init(struct survivor *s, uint32_t ms, bool fails, bool asks)
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
static bool survivor_is(const struct survivor *s, int want)
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

static bool survivor_end(struct survivor *s, int want)
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

static void derive(const uint8_t secret[16], const char *label, uint8_t out[16])
{
	uint8_t mac[32];

	hostile_hash(secret, 16, label, NULL, 0, mac);
	memcpy(out, mac, 16);
}

static struct sockaddr_in listener(void)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = port };

	inet_pton(AF_INET, IP, &sin.sin_addr);
	return sin;
}

/* The next message. */
static bool hear(struct agreer *a)
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
static bool meet_as(struct agreer *a, const struct survivor *s, uint32_t rank, uint32_t peer)
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

static bool meet(struct agreer *a, const struct survivor *s)
{
	return meet_as(a, s, 0, 1);
}

static struct agree_msg message(struct agreer *a, uint8_t type)
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

static bool say(struct agreer *a, const struct agree_msg *m, size_t len)
{
	static size_t at;

	/* Not where the one before may still be sent from. */
	at = at ? 0 : 1;
	if (at * 2048 + len > NPULINK_WIRE_SLOT)
		at = 0;
	usleep(at ? 0 : 20000);
	return !hostile_send_at(&a->h, at * 2048, m, len);
}

static bool say_right(struct agreer *a, uint8_t type)
{
	struct agree_msg m = message(a, type);

	return say(a, &m, sizeof(m.head) + m.head.agree.size);
}

/* It says who is alive there, and what it says is right. */
static bool hear_alive(struct agreer *a)
{
	return hear(a) && a->heard.type == NPULINK_WIRE_ALIVE && !a->heard.seq &&
	       a->theirs.nplaces == nplaces && a->theirs.nranks == 1 && a->theirs.live[0] == 1 &&
	       !a->theirs.dead[0] && a->theirs.cause.cause == NPULINK_CAUSE_ABORT;
}

static bool offer(struct agreer *a)
{
	return say_right(a, NPULINK_WIRE_OFFER) && hear(a) &&
	       a->heard.type == NPULINK_WIRE_ACCEPT && a->heard.number == 1 &&
	       !a->heard.agree.decider;
}

/* As far as to @type, which is the next thing to be said. */
static bool begin(struct agreer *a, const struct survivor *s, uint8_t type)
{
	if (!meet(a, s) || !hear_alive(a))
		return false;
	if (type == NPULINK_WIRE_ALIVE)
		return true;
	if (!say_right(a, NPULINK_WIRE_ALIVE))
		return false;
	return type == NPULINK_WIRE_OFFER || offer(a);
}

/* ---- as it should be --------------------------------------------------------------------- */

/* BLAKE2s over what those who go on are; the kernel's npulink_heir_secret(). */
static void heir_secret(const struct survivor *s, uint8_t nonce, uint8_t out[16])
{
	struct npulink_wire_offer offer = { .places = { 3 } };
	EVP_MAC *mac = EVP_MAC_fetch(NULL, "BLAKE2SMAC", NULL);
	EVP_MAC_CTX *ctx = EVP_MAC_CTX_new(mac);
	const uint8_t live[2] = { 1, 1 };
	uint8_t hash[32], nonces[16];
	size_t len;

	memset(nonces, nonce, sizeof(nonces));
	if (!EVP_MAC_init(ctx, s->secret, 16, NULL) ||
	    !EVP_MAC_update(ctx, (const void *)"npulink heir", 13) ||
	    !EVP_MAC_update(ctx, nonces, sizeof(nonces)) ||
	    !EVP_MAC_update(ctx, offer.places, sizeof(offer.places)) ||
	    !EVP_MAC_update(ctx, live, sizeof(live)) || !EVP_MAC_final(ctx, hash, &len, 32))
		ksft_exit_fail_msg("no BLAKE2s\n");
	EVP_MAC_CTX_free(ctx);
	EVP_MAC_free(mac);
	memcpy(out, hash, 16);
}

/* What is who calls with that secret told? 0: something else. */
static uint8_t refusal(const uint8_t secret[16])
{
	struct npulink_wire_hello hello = hostile_hello(secret, 0, 1);
	struct sockaddr_in sin = listener();
	struct hostile h;
	uint8_t reason = 0;

	if (hostile_init(&h))
		return 0;
	if (hostile_call(&h, &sin, secret, &hello, sizeof(hello)) == RDMA_CM_EVENT_REJECTED &&
	    h.answer_len)
		memcpy(&reason, &h.welcome, 1);
	hostile_end(&h);
	return reason;
}

/* @asks: there, too; else it learns from us that there has been a failure, and asks later. */
static bool agrees(bool asks)
{
	uint8_t right[16], wrong[16];
	struct survivor s;
	struct agreer a;
	bool ok;

	if (!survivor_init(&s, BOUND, asks, asks))
		return false;
	if (asks)
		ok = begin(&a, &s, NPULINK_WIRE_COMMIT);
	else
		ok = meet(&a, &s) && say_right(&a, NPULINK_WIRE_ALIVE) && hear_alive(&a) &&
		     offer(&a);
	ok = ok && say_right(&a, NPULINK_WIRE_COMMIT);
	/* It passes it on, to us, too, and hangs up. */
	ok = ok && hear(&a) && a.heard.type == NPULINK_WIRE_COMMIT && a.heard.number == 1 &&
	     hostile_dropped(&a.h, 10000);
	if (!asks && pthread_create(&s.thread, NULL, ask, &s))
		return false;
	pthread_join(s.thread, NULL);
	ok = ok && !s.rc && s.out.out_rank == 1 && s.out.out_nranks == 2 && s.map[1] == 1;
	heir_secret(&s, 0x6e, right);
	heir_secret(&s, 0x6f, wrong);
	/* Who knows it may call, and is told to come later, since nothing needs him yet. */
	ok = ok && refusal(right) == NPULINK_WIRE_LATER && refusal(wrong) == NPULINK_WIRE_NOBODY;
	hostile_end(&a.h);
	if (pthread_create(&s.thread, NULL, ask, &s))
		return false;
	return survivor_end(&s, -EEXIST) && ok;
}

static volatile sig_atomic_t signals;

static void on_signal(int sig)
{
	(void)sig;
	signals++;
}

/* Wait until it sleeps in that, until others have answered. */
static bool sleeps(const struct survivor *s)
{
	char path[64], line[256];

	for (int i = 0; i < 2000; i++) {
		bool in = false;
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%d/stack", s->tid);
		f = s->tid ? fopen(path, "re") : NULL;
		while (f && fgets(line, sizeof(line), f))
			in |= !!strstr(line, "npulink_agree_ask");
		if (f)
			fclose(f);
		if (in)
			return true;
		raw_sleep_ms(10);
	}
	return false;
}

/* A signal ends a SHRINK that waits for others, or does not, as its handler wants. */
static bool interrupted(void)
{
	struct sigaction act = { .sa_handler = on_signal };
	struct survivor s;
	struct agreer a;
	bool ok;

	if (sigaction(SIGUSR1, &act, NULL) || !survivor_init(&s, BOUND, true, true))
		return false;
	ok = sleeps(&s) && !pthread_kill(s.thread, SIGUSR1);
	pthread_join(s.thread, NULL);
	ok = ok && s.rc == -EINTR && signals == 1;
	act.sa_flags = SA_RESTART;
	s.tid = 0;
	if (sigaction(SIGUSR1, &act, NULL) || pthread_create(&s.thread, NULL, ask, &s))
		return false;
	for (int i = 2; i <= 4 && ok; i++) {
		ok = sleeps(&s) && !pthread_kill(s.thread, SIGUSR1);
		for (int k = 0; k < 2000 && signals < i; k++)
			raw_sleep_ms(10);
	}
	ok = ok && sleeps(&s) && signals == 4;
	ok = begin(&a, &s, NPULINK_WIRE_COMMIT) && say_right(&a, NPULINK_WIRE_COMMIT) &&
	     hostile_dropped(&a.h, 10000) && ok;
	hostile_end(&a.h);
	return survivor_end(&s, 2) && ok;
}

/* It dies when it has come so far. */
static bool dies_before(uint8_t type)
{
	struct survivor s;
	struct agreer a;
	bool ok;

	if (!survivor_init(&s, BOUND, true, true))
		return false;
	ok = begin(&a, &s, type);
	hostile_end(&a.h);
	return survivor_end(&s, 1) && ok;
}

/* It lives, and says nothing more. @late: it was given up later than that. */
static bool given_up(uint8_t type, bool *late)
{
	int64_t start = hostile_ms(), took;
	struct survivor s;
	struct agreer a;
	bool ok;

	if (!survivor_init(&s, SHORT, true, true))
		return false;
	ok = begin(&a, &s, type) && hostile_dropped(&a.h, 10 * DECIDE * SHORT);
	took = hostile_ms() - start;
	hostile_end(&a.h);
	ksft_print_msg("%d ms\n", (int)took);
	ok = ok && took > (DECIDE - 1) * SHORT;
	*late = took >= 3 * DECIDE * SHORT;
	return survivor_end(&s, 1) && ok;
}

/* A busy host may hold it up, though not each time. */
static bool says_nothing(uint8_t type)
{
	bool ok = true, late = true;

	for (int i = 0; i < 4 && ok && late; i++)
		ok = given_up(type, &late);
	return ok && !late;
}

/*
 * Somebody of ours has joined as the rank that is said to be elsewhere. That one goes on, and he
 * does not, whether he asks before the rank that is waited for, or after.
 */
static bool takes_a_place(bool before)
{
	uint32_t map[2];
	struct npulink_comm_shrink cmd = { .size = sizeof(cmd), .map = (uintptr_t)map };
	struct sigaction act = { .sa_handler = on_signal };
	struct survivor s;
	struct agreer a;
	int fd, rc;
	bool ok;

	if (sigaction(SIGUSR1, &act, NULL) || !survivor_init(&s, BOUND, false, false))
		return false;
	fd = raw_open(1);
	cmd.comm_id = raw_comm_timeout(fd, s.secret, 0, 2, BOUND);
	if ((int)cmd.comm_id < 0 || raw_abort(s.fd, s.comm, 1))
		return false;
	if (pthread_create(&s.thread, NULL, ask, &s))
		return false;
	ok = sleeps(&s);
	/* A call that is interrupted has begun it. */
	if (before) {
		pthread_kill(s.thread, SIGUSR1);
		pthread_join(s.thread, NULL);
		ok = ok && s.rc == -EINTR;
	}
	ok = begin(&a, &s, NPULINK_WIRE_COMMIT) && say_right(&a, NPULINK_WIRE_COMMIT) &&
	     hostile_dropped(&a.h, 10000) && ok;
	hostile_end(&a.h);
	if (!before)
		pthread_join(s.thread, NULL);
	rc = raw_ioctl(fd, NPULINK_COMM_SHRINK, &cmd);
	if (rc != -ESHUTDOWN)
		ksft_print_msg("who is not waited for: %d\n", rc);
	if (before)
		ask(&s);
	ok = survivor_is(&s, 2) && rc == -ESHUTDOWN && ok;
	close(s.fd);
	close(fd);
	return ok;
}

/* A chain needs room for each of its receives at a time: two from one machine are refused. */
static bool chains(void)
{
	struct npulink_slot slots[2] = {
		{ .min_len = 8192, .access = NPULINK_SLOT_READ },
		{ .min_len = 8192, .access = NPULINK_SLOT_READ | NPULINK_SLOT_WRITE },
	};
	struct npulink_step steps[2];
	struct survivor s;
	int once, twice;

	if (!survivor_init(&s, BOUND, false, false))
		return false;
	for (int i = 0; i < 2; i++) {
		steps[i] = raw_step(NPULINK_STEP_RECV | NPULINK_STEP_REDUCE, 8192);
		steps[i].recv_peer = 0;
		steps[i].src_slot = i;
		steps[i].dst_slot = 1;
	}
	steps[1].flags = NPULINK_STEP_F_CHAIN;
	once = raw_plan(s.fd, s.comm, slots, 2, steps, 1);
	twice = raw_plan(s.fd, s.comm, slots, 2, steps, 2);
	close(s.fd);
	if (once <= 0 || twice != -EOPNOTSUPP)
		ksft_print_msg("once %d, twice %d\n", once, twice);
	return once > 0 && twice == -EOPNOTSUPP;
}

/* The others have agreed without it. */
static bool left_out(void)
{
	struct survivor s;
	struct agreer a;
	bool ok;

	if (!survivor_init(&s, BOUND, true, true))
		return false;
	ok = begin(&a, &s, NPULINK_WIRE_OFFER) && say_right(&a, NPULINK_WIRE_WITHOUT) &&
	     hostile_dropped(&a.h, 10000);
	hostile_end(&a.h);
	return survivor_end(&s, -ESHUTDOWN) && ok;
}

/* Half of the machines, and not the first, are too few, unless the user says otherwise. */
static bool too_few(void)
{
	struct survivor s;
	struct agreer a;
	bool ok;

	if (!survivor_init(&s, BOUND, true, false))
		return false;
	s.flags = 0;
	if (pthread_create(&s.thread, NULL, ask, &s))
		return false;
	ok = begin(&a, &s, NPULINK_WIRE_COMMIT);
	hostile_end(&a.h);
	pthread_join(s.thread, NULL);
	ok = survivor_is(&s, -ENOLINK) && ok;
	s.flags = NPULINK_SHRINK_MINORITY;
	if (pthread_create(&s.thread, NULL, ask, &s))
		return false;
	return survivor_end(&s, 1) && ok;
}

/* What was offered is taken back, and offered anew; only what holds in the end is gone on with. */
static bool taken_back(void)
{
	struct agree_msg m;
	struct survivor s;
	struct agreer a;
	bool ok;

	if (!survivor_init(&s, BOUND, true, true))
		return false;
	ok = begin(&a, &s, NPULINK_WIRE_COMMIT);
	m = message(&a, NPULINK_WIRE_OFFER);
	m.head.number = 2;
	m.offer.places[0] = 0;
	ok = ok && say(&a, &m, sizeof(m.head) + m.head.agree.size);
	m = message(&a, NPULINK_WIRE_OFFER);
	m.head.number = 3;
	ok = ok && say(&a, &m, sizeof(m.head) + m.head.agree.size) && hear(&a) &&
	     a.heard.type == NPULINK_WIRE_ACCEPT && a.heard.number == 3;
	m = message(&a, NPULINK_WIRE_COMMIT);
	m.head.number = 3;
	ok = ok && say(&a, &m, sizeof(m.head)) && hear(&a) &&
	     a.heard.type == NPULINK_WIRE_COMMIT && a.heard.number == 3 &&
	     hostile_dropped(&a.h, 10000);
	hostile_end(&a.h);
	return survivor_end(&s, 2) && ok;
}

/* It says that an offer holds which it has taken back. */
static bool holds_nothing(void)
{
	struct agree_msg m;
	struct survivor s;
	struct agreer a;
	bool ok;

	if (!survivor_init(&s, BOUND, true, true))
		return false;
	ok = begin(&a, &s, NPULINK_WIRE_COMMIT);
	m = message(&a, NPULINK_WIRE_OFFER);
	m.head.number = 2;
	m.offer.places[0] = 1;
	ok = ok && say(&a, &m, sizeof(m.head) + m.head.agree.size) &&
	     say_right(&a, NPULINK_WIRE_COMMIT) && hostile_dropped(&a.h, 10000);
	hostile_end(&a.h);
	return survivor_end(&s, 1) && ok;
}

/* Rank 2 of three asks, each on a machine of its own; both others call it. */
static bool third_init(struct survivor *s, struct agreer *zero, struct agreer *one)
{
	struct npulink_peer peers[2];
	struct npulink_comm_peers cmd = {
		.size = sizeof(cmd), .npeers = 2, .peers = (uintptr_t)peers,
	};

	memset(s, 0, sizeof(*s));
	raw_secret(s->secret);
	s->fd = raw_open(0);
	s->comm = raw_comm_timeout(s->fd, s->secret, 2, 3, BOUND);
	if (s->comm < 0 || rxe_peer(&peers[0], s->fd, IP, htons(1)))
		return false;
	peers[1] = peers[0];
	peers[1].node_id[4] ^= 0x55;
	cmd.comm_id = s->comm;
	return !raw_ioctl(s->fd, NPULINK_COMM_PEERS, &cmd) && !raw_abort(s->fd, s->comm, 1) &&
	       !pthread_create(&s->thread, NULL, ask, s) &&
	       meet_as(zero, s, 0, 2) && meet_as(one, s, 1, 2) && hear_alive(zero) &&
	       hear_alive(one) && say_right(zero, NPULINK_WIRE_ALIVE) &&
	       say_right(one, NPULINK_WIRE_ALIVE);
}

/* One of two others says that it is left out, and has gone; the other one goes on with it. */
static bool lies_that_left_out(void)
{
	struct agreer zero, one;
	struct survivor s;
	struct agree_msg m;
	bool ok;

	nplaces = 3;
	ok = third_init(&s, &zero, &one) && say_right(&one, NPULINK_WIRE_WITHOUT);
	hostile_poll(&one.h, 100, 0);
	hostile_end(&one.h);
	/* It has heard that, once it says so. */
	ok = ok && hear(&zero) && zero.heard.type == NPULINK_WIRE_ALIVE &&
	     zero.theirs.dead[0] == 2;
	m = message(&zero, NPULINK_WIRE_OFFER);
	m.offer.places[0] = 5;
	ok = ok && say(&zero, &m, sizeof(m.head) + m.head.agree.size) && hear(&zero) &&
	     zero.heard.type == NPULINK_WIRE_ACCEPT && say_right(&zero, NPULINK_WIRE_COMMIT) &&
	     hear(&zero) && zero.heard.type == NPULINK_WIRE_COMMIT &&
	     hostile_dropped(&zero.h, 10000);
	hostile_end(&zero.h);
	nplaces = 2;
	pthread_join(s.thread, NULL);
	if (s.rc)
		ksft_print_msg("%d\n", s.rc);
	ok = ok && !s.rc && s.out.out_nranks == 2 && s.out.out_rank == 1 && s.map[0] == 0 &&
	     s.map[1] == 2;
	close(s.fd);
	return ok;
}

/* A call alone, by whoever knows the tag, does nothing to a communicator that is well. */
static bool healthy_goes_on(void)
{
	struct npulink_comm_status st;
	struct survivor s;
	struct agreer a;
	bool ok;

	if (!survivor_init(&s, BOUND, false, false))
		return false;
	ok = meet(&a, &s);
	if (ok)
		hostile_poll(&a.h, 300, 0);
	ok = ok && !a.h.nrecv && !raw_status(s.fd, s.comm, &st) && !st.out_cause;
	/* Nor does one who may say something, but not this first. */
	ok = ok && say_right(&a, NPULINK_WIRE_WITHOUT) && hostile_dropped(&a.h, 10000) &&
	     !raw_status(s.fd, s.comm, &st) && !st.out_cause;
	hostile_end(&a.h);
	close(s.fd);
	return ok;
}

/* ---- lies ---------------------------------------------------------------------------------- */

struct agree_lie {
	const char *what;
	uint8_t instead;		/* of what */
	void (*make)(struct agree_msg *m);
	size_t len;			/* if it is not that of the message */
	bool first_right;		/* what it is instead of has been said before */
};

#define LIE(name, body) static void name(struct agree_msg *m) { body; }

LIE(lie_none, (void)m)
LIE(lie_type, m->head.type = NPULINK_WIRE_AGREES)
LIE(lie_bye, memset(&m->head, 0, sizeof(m->head)); m->head.type = NPULINK_WIRE_BYE)
LIE(lie_seq, m->head.seq++)
LIE(lie_flags, m->head.flags = 1)
LIE(lie_credits, m->head.credits = 1)
LIE(lie_reserved, m->head.agree.reserved[83] = 1)
LIE(lie_agree_flags, m->head.agree.flags = 2)
LIE(lie_unreached, m->alive.dead[0] = 2)
LIE(lie_offer_flags, m->head.agree.flags = NPULINK_WIRE_MINORITY)
LIE(lie_nonce, m->head.agree.nonce[0] = 1)
LIE(lie_size, m->head.agree.size--)
LIE(lie_cause, m->alive.cause.cause = 99)
LIE(lie_cause_rank, m->alive.cause.rank = 2)
LIE(lie_port, m->alive.cause.port[0] = 1)
LIE(lie_hash, m->alive.places ^= 1)
LIE(lie_nplaces, m->alive.nplaces = 3)
LIE(lie_nranks, m->alive.nranks = 2)
LIE(lie_dead, m->alive.dead[0] = 4)
LIE(lie_dead_far, m->alive.dead[1023] = 0x80)
LIE(lie_live, m->alive.live[0] = 3)
LIE(lie_live_far, m->alive.live[1023] = 0x80)
LIE(lie_fewer, m->alive.live[0] = 0)
LIE(lie_unused, m->head.number = 1)
LIE(lie_as_offer, m->head.type = NPULINK_WIRE_OFFER; m->head.number = 1;
	m->head.agree.size = sizeof(m->offer); m->offer.places[0] = 3)
LIE(lie_number, m->head.number = 0)
LIE(lie_huge, m->head.number = 1ULL << 32)
LIE(lie_decider, m->head.agree.decider = 1)
LIE(lie_beyond, m->offer.places[0] = 7)
LIE(lie_without_us, m->offer.places[0] = 1)
LIE(lie_without_him, m->offer.places[0] = 2)
LIE(lie_commit_early, m->head.type = NPULINK_WIRE_COMMIT; m->head.number = 1;
	m->head.agree.size = 0; memset(m->head.agree.nonce, 0, 16))
LIE(lie_accept, m->head.type = NPULINK_WIRE_ACCEPT; m->head.number = 1;
	m->head.agree.decider = 1; m->head.agree.size = 0; memset(m->head.agree.nonce, 0, 16))
LIE(lie_other, m->head.number = 2)
LIE(lie_whose, m->head.agree.decider = 1)
LIE(lie_nobodys, m->head.agree.decider = 8192)

#define ALIVE(text, fn)		{ .what = text, .instead = NPULINK_WIRE_ALIVE, .make = fn }
#define OFFER(text, fn)		{ .what = text, .instead = NPULINK_WIRE_OFFER, .make = fn }
#define COMMIT(text, fn)	{ .what = text, .instead = NPULINK_WIRE_COMMIT, .make = fn }
#define HEADER			sizeof(struct npulink_wire_msg)

static const struct agree_lie agree_lies[] = {
	ALIVE("an unknown type", lie_type),
	ALIVE("what belongs to another kind of connection", lie_bye),
	ALIVE("a number too far", lie_seq),
	ALIVE("flags", lie_flags),
	ALIVE("credits", lie_credits),
	ALIVE("reserved bytes", lie_reserved),
	ALIVE("another flag than there is", lie_agree_flags),
	ALIVE("a nonce that is not one", lie_nonce),
	ALIVE("another size than it has", lie_size),
	{ "half a header", NPULINK_WIRE_ALIVE, lie_none, 60, false },
	{ "half of who is alive", NPULINK_WIRE_ALIVE, lie_none, HEADER + 500, false },
	ALIVE("an unknown cause", lie_cause),
	ALIVE("a cause at a rank that is not there", lie_cause_rank),
	ALIVE("a port that cannot be printed", lie_port),
	ALIVE("that ranks are elsewhere", lie_hash),
	ALIVE("that there are more machines", lie_nplaces),
	ALIVE("that there are more ranks", lie_nranks),
	ALIVE("that a machine is dead that there is not", lie_dead),
	ALIVE("the same of the last of all", lie_dead_far),
	ALIVE("that a rank lives that there is not", lie_live),
	ALIVE("the same of the last of all", lie_live_far),
	ALIVE("that it cannot reach whom it tells so", lie_unreached),
	ALIVE("the number of an offer", lie_unused),
	ALIVE("an offer before it says who is alive", lie_as_offer),
	{ "that a rank has died since", NPULINK_WIRE_ALIVE, lie_fewer, 0, true },
	OFFER("an offer without number", lie_number),
	OFFER("an offer with the flag of something else", lie_offer_flags),
	OFFER("an offer with a huge number", lie_huge),
	OFFER("another one's offer", lie_decider),
	OFFER("an offer with a machine that there is not", lie_beyond),
	OFFER("an offer without the rank", lie_without_us),
	OFFER("an offer without itself", lie_without_him),
	{ "half an offer", NPULINK_WIRE_OFFER, lie_none, HEADER + 100, false },
	OFFER("that an offer holds that there was not", lie_commit_early),
	OFFER("that it accepts what it was not offered", lie_accept),
	{ "the same offer again", NPULINK_WIRE_OFFER, lie_none, 0, true },
	COMMIT("that another offer holds", lie_other),
	COMMIT("that the rank's own offer holds, which it has not made", lie_whose),
	COMMIT("that an offer of a machine holds that there is not", lie_nobodys),
	{ "more than that it holds", NPULINK_WIRE_COMMIT, lie_none, HEADER + 1, false },
};

/* It is cut off, and the rank goes on alone. */
static bool caught(const struct agree_lie *lie)
{
	struct agree_msg m;
	struct survivor s;
	struct agreer a;
	bool ok;

	if (!survivor_init(&s, BOUND, true, true))
		return false;
	ok = begin(&a, &s, lie->instead);
	if (ok && lie->first_right)
		ok = lie->instead == NPULINK_WIRE_OFFER ? offer(&a) : say_right(&a, lie->instead);
	m = message(&a, lie->instead);
	lie->make(&m);
	ok = ok && say(&a, &m, lie->len ?: sizeof(m.head) + m.head.agree.size) &&
	     hostile_dropped(&a.h, 10000);
	hostile_end(&a.h);
	return survivor_end(&s, 1) && ok;
}

/* It cannot reach a machine, and then it can. */
static bool is_back(void)
{
	struct agree_msg m;
	struct survivor s;
	struct agreer a;
	bool ok;

	if (!survivor_init(&s, BOUND, true, true))
		return false;
	ok = begin(&a, &s, NPULINK_WIRE_ALIVE);
	m = message(&a, NPULINK_WIRE_ALIVE);
	m.alive.dead[0] = 1;
	ok = ok && say(&a, &m, sizeof(m.head) + m.head.agree.size) &&
	     say_right(&a, NPULINK_WIRE_ALIVE) && hostile_dropped(&a.h, 10000);
	hostile_end(&a.h);
	return survivor_end(&s, 1) && ok;
}

/* Memory is not granted in an agreement, so nothing can have arrived. */
static bool writes(void)
{
	const uint32_t imm = 0;
	struct survivor s;
	struct agreer a;
	bool ok;

	if (!survivor_init(&s, BOUND, true, true))
		return false;
	ok = begin(&a, &s, NPULINK_WIRE_OFFER) && !hostile_write(&a.h, 0, 0, 0, &imm) &&
	     hostile_dropped(&a.h, 10000);
	hostile_end(&a.h);
	return survivor_end(&s, 1) && ok;
}

/*
 * What an agreement needs is the user's to pay, although a worker takes it: not without room in
 * RLIMIT_MEMLOCK, and with it, at the next try.
 */
static int limited(void)
{
	struct rlimit limit = { 64 << 10, 4 << 20 };
	struct survivor s;
	struct stat st;

	if (stat("/dev/npulink/npu0", &st) || setrlimit(RLIMIT_MEMLOCK, &limit) ||
	    setgroups(0, NULL) || setresgid(st.st_gid, st.st_gid, st.st_gid) ||
	    setresuid(60001, 60001, 60001))
		return 1;
	if (!survivor_init(&s, SHORT, true, true))
		return 2;
	pthread_join(s.thread, NULL);
	if (s.rc != -ENOMEM) {
		ksft_print_msg("%d\n", s.rc);
		return 3;
	}
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_MEMLOCK, &limit) || pthread_create(&s.thread, NULL, ask, &s))
		return 4;
	return survivor_end(&s, 1) ? 0 : 5;
}

static bool pays(void)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(limited());
	if (waitpid(pid, &status, 0) != pid || status)
		ksft_print_msg("status %#x\n", status);
	return !status;
}

/* Bytes of kernel memory that the group has. */
static long group_kernel(void)
{
	char line[128];
	long n = -1;
	FILE *f = fopen(GROUP "/memory.stat", "re");

	while (f && n < 0 && fgets(line, sizeof(line), f))
		if (!strncmp(line, "kernel ", 7))
			n = atol(line + 7);
	if (f)
		fclose(f);
	return n;
}

static int grouped(void)
{
	struct survivor s;
	bool grew, shrank;
	long base;

	if (raw_write(GROUP "/cgroup.procs", "0") || !survivor_init(&s, LONG, true, false))
		return 1;
	base = group_kernel();
	if (base < 0 || pthread_create(&s.thread, NULL, ask, &s))
		return 2;
	/* Nobody answers at the other end; what there is to talk to him is there. */
	grew = RAW_EVENTUALLY(group_kernel() > base + (256 << 10));
	if (!survivor_end(&s, 1))
		return 3;
	shrank = RAW_EVENTUALLY(group_kernel() < base + (128 << 10));
	if (!grew || !shrank)
		ksft_print_msg("kernel memory of its group: %ld before, %ld after\n", base,
			       group_kernel());
	return grew && shrank ? 0 : 4;
}

/* The same of its memory cgroup. */
static bool pays_in_group(void)
{
	int status = 0;
	pid_t pid;

	if (raw_write("/sys/fs/cgroup/cgroup.subtree_control", "+memory") ||
	    (mkdir(GROUP, 0755) && errno != EEXIST)) {
		ksft_print_msg("no memory cgroup\n");
		return false;
	}
	pid = fork();
	if (!pid)
		_exit(grouped());
	if (waitpid(pid, &status, 0) != pid || status)
		ksft_print_msg("status %#x\n", status);
	rmdir(GROUP);
	return !status;
}

/* ---- very many machines ---------------------------------------------------------------- */

#define MANY_RANKS	(1U << 16)
#define MANY_IDS	8000U		/* ids of machines, and then the last of them again */
#define MANY_AGAIN	16U
#define MANY_MS		10000		/* it was some minutes */

/* Where they are, one after the other, is quickly found out. What for, there is no memory. */
static int asks_with_many(int out)
{
	struct npulink_peer *peers = calloc(MANY_RANKS, sizeof(*peers));
	struct npulink_comm_peers cmd = {
		.size = sizeof(cmd), .first = 1, .npeers = MANY_RANKS - 1,
		.peers = (uintptr_t)(peers + 1),
	};
	struct npulink_comm_shrink shrink = { .size = sizeof(shrink) };
	struct rlimit limit = { 1 << 20, 1 << 20 };
	uint8_t secret[16];
	struct stat st;
	int fd;

	if (!peers || stat("/dev/npulink/npu0", &st) || setrlimit(RLIMIT_MEMLOCK, &limit) ||
	    setgroups(0, NULL) || setresgid(st.st_gid, st.st_gid, st.st_gid) ||
	    setresuid(60001, 60001, 60001))
		return 1;
	raw_secret(secret);
	fd = raw_open(0);
	cmd.comm_id = raw_comm_timeout(fd, secret, 0, MANY_RANKS, SHORT);
	for (uint32_t i = 1; i < MANY_RANKS; i++) {
		uint32_t id = i < MANY_IDS ? i : MANY_IDS - 1 - i % MANY_AGAIN;

		if (i == 1 && rxe_peer(&peers[1], fd, IP, htons(1)))
			return 2;
		peers[i] = peers[1];
		memcpy(peers[i].node_id + 4, &id, sizeof(id));
	}
	if (raw_ioctl(fd, NPULINK_COMM_PEERS, &cmd) || raw_abort(fd, cmd.comm_id, 1) ||
	    write(out, "a", 1) != 1)
		return 3;
	shrink.comm_id = cmd.comm_id;
	if (raw_ioctl(fd, NPULINK_COMM_SHRINK, &shrink) != -ENOMEM || write(out, "b", 1) != 1)
		return 4;
	return 0;
}

static bool nothing_left(void)
{
	return rxe_nothing_left() &&
	       !sh("build/tools/npulink -j stat show | jq -e '.pinned == 0 and .files == 0 and "
		   ".comms == 0 and .ranks == 0' >/dev/null");
}

static bool many(void)
{
	struct pollfd p = { .events = POLLIN };
	bool asked, ok = false;
	int64_t start;
	int fds[2], status;
	char c;
	pid_t pid;

	if (pipe(fds))
		return false;
	pid = fork();
	if (!pid)
		_exit(asks_with_many(fds[1]));
	close(fds[1]);
	p.fd = fds[0];
	asked = read(fds[0], &c, 1) == 1;
	start = hostile_ms();
	if (asked)
		ok = poll(&p, 1, MANY_MS) == 1 && read(fds[0], &c, 1) == 1;
	if (!ok)
		kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	close(fds[0]);
	if (!ok || status)
		ksft_print_msg("%sasked, status %#x after %d ms\n", asked ? "" : "not ", status,
			       (int)(hostile_ms() - start));
	/* To forget so many takes a while. */
	for (int i = 0; i < 60 && !nothing_left(); i++)
		raw_sleep_ms(1000);
	return ok && !status;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static void set_up(void)
{
	struct npulink_port_info info = { .size = sizeof(info) };
	const char *why = rxe_set_up(IP);
	int fd;

	if (why)
		ksft_exit_fail_msg("%s\n", why);
	fd = raw_open(0);
	if (raw_ioctl(fd, NPULINK_PORT_INFO, &info))
		ksft_exit_fail_msg("no port\n");
	port = info.out_addr.port;
	close(fd);
}

int main(void)
{
	rxe_apart();
	setvbuf(stdout, NULL, _IOLBF, 0);
	ksft_print_header();
	set_up();
	ksft_set_plan(ARRAY_SIZE(agree_lies) + 23 + !!getenv("NPULINK_SOAK"));
	ksft_test_result(agrees(true), "a rank that asks agrees with the other one\n");
	ksft_test_result(agrees(false), "a rank that asks later finds what was agreed on\n");
	ksft_test_result(healthy_goes_on(), "who only calls does no harm\n");
	ksft_test_result(interrupted(), "a rank that waits is interrupted, and asks again\n");
	ksft_test_result(takes_a_place(true), "who takes the place of a rank elsewhere asks first\n");
	ksft_test_result(takes_a_place(false), "he asks when the other one has come\n");
	ksft_test_result(chains(), "a chain that receives twice from one machine\n");
	ksft_test_result(left_out(), "a rank that is left out is told so\n");
	ksft_test_result(lies_that_left_out(), "one says so, and another one goes on with it\n");
	ksft_test_result(too_few(), "half of the machines go on if the user says so\n");
	ksft_test_result(taken_back(), "an offer is taken back\n");
	ksft_test_result(holds_nothing(), "it is said to hold then\n");
	ksft_test_result(dies_before(NPULINK_WIRE_ALIVE),
			 "the other one dies before it has said anything\n");
	ksft_test_result(dies_before(NPULINK_WIRE_OFFER),
			 "it dies before its offer\n");
	ksft_test_result(dies_before(NPULINK_WIRE_COMMIT),
			 "it dies when its offer was accepted\n");
	ksft_test_result(says_nothing(NPULINK_WIRE_OFFER),
			 "it makes no offer\n");
	if (getenv("NPULINK_SOAK"))
		ksft_test_result(says_nothing(NPULINK_WIRE_COMMIT),
				 "it does not say whether its offer holds\n");
	for (unsigned int i = 0; i < ARRAY_SIZE(agree_lies); i++)
		ksft_test_result(caught(&agree_lies[i]), "a member says %s\n", agree_lies[i].what);
	ksft_test_result(is_back(), "a member says that a machine is back\n");
	ksft_test_result(writes(), "a member writes\n");
	ksft_test_result(pays(), "its memory counts for the user who asks\n");
	ksft_test_result(pays_in_group(), "and for the cgroup of the process\n");
	ksft_test_result(many(), "very many machines\n");
	ksft_test_result(nothing_left(), "no key, no connection and no memory is left\n");
	ksft_test_result(!sh("tools/vm/modules unload"), "the modules can be removed\n");
	ksft_finished();
}
