/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * insider.h - a member of a communicator between machines who is let in and may lie then, and the
 * others on the victim's machine, who must notice nothing of it.
 */
#ifndef SELFTESTS_INSIDER_H
#define SELFTESTS_INSIDER_H

#include "hostile.h"
#include "team.h"
#include "kselftest.h"
#include "cases.h"
#include "rxe.h"
#include "victim.h"

#define LEN		64		/* goes as a message */

static uint16_t port;			/* of the kernel's listener, big endian */
static struct member bystander[2];

/* Others on the same machine, one of them on the same device, notice nothing. */
static inline bool others_go_on(void)
{
	uint64_t seq;
	struct npulink_result res;

	return !member_start(&bystander[0], 0, &seq) && !member_run(&bystander[1], NULL) &&
	       !raw_wait(bystander[0].fd, seq, &res) && !res.status;
}

static inline struct sockaddr_in listener(void)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = port };

	inet_pton(AF_INET, IP, &sin.sin_addr);
	return sin;
}

/* A member that is let in, with so many slots for messages: -1: none, 0: as many as it likes. */
static inline bool let_in_with(struct hostile *h, const struct victim *v, int slots, uint32_t flags)
{
	struct sockaddr_in sin = listener();
	struct npulink_wire_hello hello = hostile_hello(v->secret, 0, 1);
	bool ok = !hostile_init(h);

	h->deaf = slots < 0;
	h->slots = slots > 0 ? slots : 0;
	hello.flags = flags;
	ok = ok && hostile_call(h, &sin, v->secret, &hello,
				sizeof(hello)) == RDMA_CM_EVENT_ESTABLISHED &&
	     !hostile_prove(h, v->secret);
	if (ok)
		hostile_poll(h, 100, 0);
	return ok && !h->lost;
}

static inline bool let_in(struct hostile *h, const struct victim *v, bool deaf)
{
	return let_in_with(h, v, deaf ? -1 : 0, 0);
}

/* How operation @seq has ended, if it has within 10 s. */
static inline bool ended(const struct victim *v, uint64_t seq, struct npulink_result *res)
{
	struct npulink_wait wait = {
		.size = sizeof(wait), .seq = seq, .wait_until_ns = raw_now() + 10000000000ULL,
	};
	int rc = raw_ioctl(v->fd, NPULINK_WAIT, &wait);

	*res = wait.out_result;
	return !rc;
}

/* The victim's communicator ends, by the link or by the difference, and the liar is out. */
static inline bool cut_off(struct hostile *h, struct victim *v)
{
	struct npulink_result res;
	bool ok;

	ok = ended(v, v->seq, &res) && (res.status == -ENOLINK || res.status == -EPROTO);
	if (!ok)
		ksft_print_msg("status %d, cause %d\n", res.status, res.cause);
	return ok && hostile_dropped(h, 20000) && others_go_on();
}

static inline struct npulink_wire_msg step_msg(uint32_t len)
{
	return (struct npulink_wire_msg) {
		.type = NPULINK_WIRE_DATA, .len = len, .size = len,
		.call = { .collective = NPULINK_COLL_ALLREDUCE, .dtype = NPULINK_INT32 },
	};
}

static inline void set_up(void)
{
	const char *why = rxe_set_up_port(IP, &port);
	uint8_t secret[16];

	if (why)
		ksft_exit_fail_msg("%s\n", why);
	raw_secret(secret);
	for (unsigned int i = 0; i < 2; i++)
		if (member_join(&bystander[i], i, secret, i, 2, 4096))
			ksft_exit_fail_msg("no bystanders\n");
}

/* The last cases: what they all leave behind. */
static inline void tear_down(void)
{
	chosen_result(rxe_nothing_left(), "no key and no connection is left\n");
	for (unsigned int i = 0; i < 2; i++)
		member_leave(&bystander[i]);
	ksft_test_result(!sh("tools/vm/modules unload"), "the modules can be removed\n");
}

#endif /* SELFTESTS_INSIDER_H */
