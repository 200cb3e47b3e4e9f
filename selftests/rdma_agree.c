// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * rdma_agree.c - a rank that wants to go on after a failure agrees about that with another
 * machine, which is played here: one that does as it should, that dies at each step, or says
 * nothing. Of one that lies: rdma_agree_lies.c.
 *
 * npulink-test: cpus=1 modules=none timeout=240
 */
#include "agree_member.h"

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

int main(void)
{
	rxe_apart();
	setvbuf(stdout, NULL, _IOLBF, 0);
	ksft_print_header();
	set_up();
	ksft_set_plan(16 + !!getenv("NPULINK_SOAK") + 2);
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
	all_left();
}
