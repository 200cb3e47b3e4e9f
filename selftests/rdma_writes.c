// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * rdma_writes.c - a member of a communicator between machines who has to do with memory: it writes
 * where it may not, or no more, grants its own for what it does not want, or leaves while one of
 * the two may still write. It is cut off, or what was true stays true, and no byte of ours
 * changes, while others on the same device go on.
 *
 * npulink-test: cpus=1 modules=none timeout=240
 */
#include "insider.h"

#define LEN_GRANT	(8U << 10)	/* is granted */

/* ---- what it writes -------------------------------------------------------------------- */

enum { WRITE_IMM, WRITE_GUESS, WRITE_BEYOND, WRITE_LATE, WRITES };

static const char *const writes[] = {
	"an immediate for what was not granted", "a write with a guessed key",
	"a write beyond its grant", "a write after its grant was used",
};

static bool write_caught(unsigned int kind)
{
	const uint32_t none = 5;
	struct npulink_wire_msg grant;
	struct npulink_result res;
	struct victim v;
	struct hostile h;
	uint32_t imm;
	bool ok;

	if (victim_init(&v, 1, 0, LEN_GRANT))
		return false;
	ok = let_in(&h, &v, false);
	if (ok)
		hostile_poll(&h, 20000, 1);
	/* On a slow machine it may have asked already what became of it. */
	ok = ok && h.nrecv >= 1;
	memset(&grant, 0, sizeof(grant));
	if (ok)
		grant = *h.msgs[0];
	ok = ok && grant.type == NPULINK_WIRE_GRANT && grant.size == LEN_GRANT;
	memset(h.mem + HOSTILE_SLOTS * NPULINK_WIRE_SLOT, 0x42, NPULINK_WIRE_SLOT);
	imm = grant.imm;
	switch (kind) {
	case WRITE_IMM:
		ok = ok && !hostile_write(&h, 0, 0, 0, &none) && cut_off(&h, &v);
		break;
	case WRITE_GUESS:
		ok = ok && !hostile_write(&h, grant.addr, grant.rkey ^ 0x100, 64, NULL) &&
		     hostile_dropped(&h, 20000);
		break;
	case WRITE_BEYOND:
		ok = ok && !hostile_write(&h, grant.addr + LEN_GRANT - 32, grant.rkey, 64, NULL) &&
		     hostile_dropped(&h, 20000);
		break;
	case WRITE_LATE:
		for (unsigned int i = 0; ok && i < LEN_GRANT; i += NPULINK_WIRE_SLOT)
			ok = !hostile_write(&h, grant.addr + i, grant.rkey, NPULINK_WIRE_SLOT,
					    i + NPULINK_WIRE_SLOT == LEN_GRANT ? &imm : NULL);
		ok = ok && !raw_wait(v.fd, v.seq, &res) && !res.status &&
		     v.mem[LEN_GRANT - 1] == 0x42;
		/* The operation is over, so the key is worth nothing. */
		memset(v.mem, 0, LEN_GRANT);
		ok = ok && !hostile_write(&h, grant.addr, grant.rkey, 64, NULL) &&
		     hostile_dropped(&h, 20000);
		break;
	}
	/* Whatever it did, the memory is as it was. */
	for (unsigned int i = 0; ok && i < VICTIM_BYTES; i++)
		ok = !v.mem[i];
	ok = ok && others_go_on();
	hostile_end(&h);
	victim_end(&v);
	return ok;
}

#define LEN_SKIP	(2 * NPULINK_WIRE_CHUNK)

/* Of two pieces of a step it fills the second one only, and keeps the first one's key. */
static bool skips_a_piece(void)
{
	struct npulink_wire_msg first = { }, second = { };
	struct victim v;
	struct hostile h;
	uint32_t imm;
	bool ok;

	if (victim_init(&v, 1, 0, LEN_SKIP))
		return false;
	ok = let_in(&h, &v, false);
	if (ok)
		hostile_poll(&h, 5000, 2);
	ok = ok && h.nrecv >= 2;
	if (ok) {
		first = *h.msgs[0];
		second = *h.msgs[1];
	}
	ok = ok && first.type == NPULINK_WIRE_GRANT && !first.off &&
	     second.type == NPULINK_WIRE_GRANT && second.off == NPULINK_WIRE_CHUNK;
	memset(h.mem + HOSTILE_SLOTS * NPULINK_WIRE_SLOT, 0x42, NPULINK_WIRE_SLOT);
	imm = second.imm;
	ok = ok && !hostile_write(&h, second.addr, second.rkey, NPULINK_WIRE_SLOT, &imm);
	if (ok)
		hostile_poll(&h, 100, 0);
	ok = ok && cut_off(&h, &v);
	/* The operation is over, and the memory somebody else's. */
	memset(v.mem, 0, VICTIM_BYTES);
	ok = ok && RAW_EVENTUALLY(raw_read(RXE_PARAMETERS "keys") == 0);
	/* Nobody is there any more who could refuse it. */
	if (ok && !hostile_write(&h, first.addr, first.rkey, 64, NULL))
		hostile_poll(&h, 500, 0);
	for (unsigned int i = 0; ok && i < VICTIM_BYTES; i++)
		ok = !v.mem[i];
	hostile_end(&h);
	victim_end(&v);
	return ok;
}

/* ---- one who takes nothing ------------------------------------------------------------ */

/* Between two questions, so that each is answered; of which there are more than it has slots. */
#define OPEN_MS	(getenv("NPULINK_SLOW") ? 200 : 100)
#define OPENS	40
#define TAKEN	3	/* its first message, the end of a write, and the sum of that */
#define MEM_AT	9	/* the slot from which on its memory is that which it grants */

/* What member 0 says next. */
static bool say(struct hostile *h, struct npulink_wire_msg *msg)
{
	bool ok;

	msg->seq = h->said++;
	ok = !hostile_send_at(h, msg->seq % 16 * sizeof(*msg), msg, sizeof(*msg));
	/* It has gone before its place is used again. */
	hostile_poll(h, 0, 0);
	return ok && !h->lost;
}

static struct npulink_wire_msg about(uint8_t type, uint64_t number, uint64_t len)
{
	struct npulink_wire_msg msg = step_msg(len);

	msg.type = type;
	msg.number = number;
	msg.size = 0;
	return msg;
}

/* All of a step may be put into our memory. */
static bool say_grant(struct hostile *h, uint8_t flags, uint32_t imm, uint32_t len)
{
	struct npulink_wire_msg grant = about(NPULINK_WIRE_GRANT, 0, len);

	grant.flags = flags;
	grant.size = len;
	grant.imm = imm << 16;
	grant.addr = (uintptr_t)h->mem + MEM_AT * NPULINK_WIRE_SLOT;
	grant.rkey = h->mr->rkey;
	return say(h, &grant);
}

static bool granted_is(const struct hostile *h, char byte)
{
	for (unsigned int i = 0; i < LEN_GRANT; i++)
		if (h->mem[MEM_AT * NPULINK_WIRE_SLOT + i] != byte)
			return false;
	return true;
}

/*
 * The victim sends a step of @len bytes and receives an empty one, operation 0, then sends another
 * one, operation 1, which it is asked for until it cannot say anything more: nothing that it says
 * is taken after the first message.
 */
static bool stuff(struct hostile *h, struct victim *v, struct npulink_post *post, uint32_t len,
		  uint64_t *seq, bool check)
{
	struct npulink_step steps[2] = {
		raw_step(NPULINK_STEP_SEND, len), raw_step(NPULINK_STEP_RECV, 0),
	};
	struct npulink_wire_msg open;
	bool ok;

	if (victim_join(v, check ? NPULINK_COMM_CHECKSUM : 0, 1, IP, 0, 0))
		return false;
	memset(v->mem, 0x42, len);
	ok = !victim_steps(v, steps, 2) && !victim_post(v);
	*post = v->post;
	*seq = v->seq;
	steps[0].len = LEN_GRANT;
	ok = ok && !victim_steps(v, steps, 1) && !victim_post(v) &&
	     let_in_with(h, v, check ? TAKEN : TAKEN - 1, check ? NPULINK_WIRE_CHECKSUM : 0);
	if (!ok)
		return false;
	if (check)
		ok = say_grant(h, 0, 1, len);
	hostile_poll(h, 5000, 1);
	ok = ok && h->nrecv >= 1 &&
	     h->msgs[0]->type == (check ? NPULINK_WIRE_SUM : NPULINK_WIRE_DATA);
	for (int i = 0; ok && i < OPENS; i++) {
		open = about(NPULINK_WIRE_OPEN, 1, 0);
		ok = say(h, &open);
		raw_sleep_ms(OPEN_MS);
	}
	hostile_poll(h, 200, 0);
	return ok;
}

/* Take what it has said meanwhile, so that it goes on. */
static bool unstuff(struct hostile *h)
{
	for (int round = 0; round < 3; round++) {
		int before = h->nrecv;

		for (unsigned int i = TAKEN; i < MEM_AT; i++)
			if (hostile_repost(h, i))
				return false;
		hostile_poll(h, 5000, before + MEM_AT - TAKEN);
		/* The last ones are its questions, which come when they come. */
		if (h->nrecv < before + MEM_AT - TAKEN)
			break;
	}
	hostile_poll(h, 300, 0);
	return h->nrecv > 8 && !h->lost;
}

static bool grants_what_it_has(void)
{
	struct npulink_post post;
	struct hostile h = { };
	struct victim v;
	uint64_t seq;
	bool ok;

	ok = stuff(&h, &v, &post, LEN, &seq, false) && say_grant(&h, 0, 1, LEN) &&
	     cut_off(&h, &v);
	hostile_end(&h);
	victim_end(&v);
	return ok;
}

/*
 * What it calls good it has asked for once more before, and that is not sent: not when there is
 * room again, nor, @over, when the operation is over, and begun anew.
 */
static bool has_what_it_wants_again(bool over)
{
	struct npulink_wire_msg good = about(NPULINK_WIRE_GOOD, 0, LEN_GRANT);
	struct npulink_wire_msg empty = about(NPULINK_WIRE_REQ, 0, 0);
	struct npulink_post post;
	struct npulink_result res;
	struct hostile h = { };
	struct victim v;
	uint64_t seq;
	int stuffed;
	bool ok;

	good.off = LEN_GRANT;
	ok = stuff(&h, &v, &post, LEN_GRANT, &seq, true) && granted_is(&h, 0x42);
	stuffed = ok ? h.nrecv : -1;
	ok = ok && say_grant(&h, NPULINK_WIRE_TWICE, 2, LEN_GRANT) && say(&h, &good);
	if (ok)
		memset(h.mem + MEM_AT * NPULINK_WIRE_SLOT, 0, LEN_GRANT);
	if (over)
		ok = ok && say(&h, &empty) && ended(&v, seq, &res) && !res.status &&
		     !raw_ioctl(v.fd, NPULINK_POST, &post);
	ok = ok && unstuff(&h) && granted_is(&h, 0);
	if (!over)
		ok = ok && say(&h, &empty) && ended(&v, seq, &res) && !res.status;
	ok = ok && !victim_cause(&v) && others_go_on();
	if (!ok)
		ksft_print_msg("%d messages, then %d; %s, cause %u, nothing written: %d\n", stuffed,
			       h.nrecv, h.lost ? "cut off" : "connected", victim_cause(&v),
			       h.mem && granted_is(&h, 0));
	hostile_end(&h);
	victim_end(&v);
	return ok;
}

/* ---- one who goes --------------------------------------------------------------------- */

/* With memory that it may write to, and without hanging up: nobody waits until it does. */
static bool leaves_with_a_grant(void)
{
	struct npulink_wire_msg bye = { .type = NPULINK_WIRE_BYE };
	struct npulink_wait wait = { .size = sizeof(wait) };
	struct victim v;
	struct hostile h;
	bool ok;

	if (victim_init(&v, 1, 0, LEN_GRANT))
		return false;
	ok = let_in(&h, &v, false);
	if (ok)
		hostile_poll(&h, 20000, 1);
	ok = ok && h.nrecv >= 1 && !hostile_send(&h, &bye, sizeof(bye));
	wait.seq = v.seq;
	wait.wait_until_ns = raw_now() + 20000000000ULL;
	ok = ok && !raw_ioctl(v.fd, NPULINK_WAIT, &wait) && wait.out_result.status == -ESHUTDOWN &&
	     victim_cause(&v) == NPULINK_CAUSE_LEFT && hostile_dropped(&h, 20000) &&
	     others_go_on();
	hostile_end(&h);
	victim_end(&v);
	return ok;
}

/*
 * It has granted memory, and leaves as one who has got all that it needs, but has no slot left for
 * the end of the last write: what the sender hears of that is that the connection has gone.
 */
static bool leaves_unacknowledged(void)
{
	struct npulink_wire_msg grant = step_msg(LEN_GRANT);
	struct npulink_wire_msg bye = { .type = NPULINK_WIRE_BYE, .seq = 1 };
	struct npulink_wait wait = { .size = sizeof(wait) };
	struct hostile h = {};
	struct victim v;
	bool ok;

	if (victim_plan(&v, NPULINK_STEP_SEND, 1, IP, 0, LEN_GRANT, 0) || victim_post(&v))
		return false;
	ok = let_in(&h, &v, true);
	grant.type = NPULINK_WIRE_GRANT;
	grant.imm = 1 << 16;
	if (ok) {
		grant.addr = (uintptr_t)h.mem;
		grant.rkey = h.mr->rkey;
	}
	ok = ok && !hostile_send_at(&h, 512, &grant, sizeof(grant)) &&
	     !hostile_send_at(&h, 1024, &bye, sizeof(bye));
	if (ok)
		hostile_poll(&h, 300, 0);
	hostile_end(&h);
	wait.seq = v.seq;
	wait.wait_until_ns = raw_now() + 20000000000ULL;
	ok = ok && !raw_ioctl(v.fd, NPULINK_WAIT, &wait) && !wait.out_result.status &&
	     !victim_cause(&v) && others_go_on();
	victim_end(&v);
	return ok;
}

/*
 * It fills what it was granted, and leaves, without having taken what the other one said last: that
 * one's own revocation of the key is behind that, and is not known to have ended.
 */
static bool leaves_before_the_key_is_back(void)
{
	struct npulink_wire_msg bye = { .type = NPULINK_WIRE_BYE };
	struct npulink_result res;
	struct hostile h = {};
	struct victim v;
	bool ok;

	if (victim_init(&v, 1, 0, LEN_GRANT))
		return false;
	ok = let_in_with(&h, &v, 2, 0);
	if (ok)
		hostile_poll(&h, 5000, 1);
	ok = ok && h.nrecv >= 1 && h.msgs[0]->type == NPULINK_WIRE_GRANT;
	/* Until it asks why that takes so long. */
	raw_sleep_ms(800);
	memset(h.mem + HOSTILE_SLOTS * NPULINK_WIRE_SLOT, 0x42, NPULINK_WIRE_SLOT);
	for (unsigned int i = 0; ok && i < LEN_GRANT; i += NPULINK_WIRE_SLOT) {
		uint32_t imm = h.msgs[0]->imm;

		ok = !hostile_write(&h, h.msgs[0]->addr + i, h.msgs[0]->rkey, NPULINK_WIRE_SLOT,
				    i + NPULINK_WIRE_SLOT == LEN_GRANT ? &imm : NULL);
	}
	if (ok)
		hostile_poll(&h, 300, 0);
	ok = ok && say(&h, &bye);
	if (ok)
		hostile_poll(&h, 300, 0);
	hostile_end(&h);
	ok = ok && ended(&v, v.seq, &res) && !res.status && v.mem[LEN_GRANT - 1] == 0x42 &&
	     !victim_cause(&v) && others_go_on();
	victim_end(&v);
	return ok;
}

int main(void)
{
	rxe_apart();
	setvbuf(stdout, NULL, _IOLBF, 0);
	ksft_print_header();
	set_up();
	ksft_set_plan(WRITES + 9);
	for (unsigned int i = 0; i < WRITES; i++)
		chosen_result(write_caught(i), "a member sends %s\n", writes[i]);
	chosen_result(skips_a_piece(), "a member fills the second piece of two only\n");
	chosen_result(grants_what_it_has(), "a member that takes nothing grants what it has\n");
	for (unsigned int i = 0; i < 2; i++)
		chosen_result(has_what_it_wants_again(i),
			      "a member that takes nothing has what it wants again%s\n",
			      i ? ", until that is over" : "");
	chosen_result(leaves_with_a_grant(), "a member leaves with a grant, and stays connected\n");
	chosen_result(leaves_unacknowledged(), "a member leaves without acknowledging what it got\n");
	chosen_result(leaves_before_the_key_is_back(),
		      "a member leaves before its key is known to be back\n");
	tear_down();
	ksft_finished();
}
