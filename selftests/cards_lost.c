// SPDX-License-Identifier: GPL-2.0
/*
 * cards_lost - NPU cards that hang, die or go mad (kernel/pci, tools/vm/card): memory that a
 * request named is its owner's again when the request has failed, and not before the card
 * writes nowhere any more; after a reset of the function, new files work.
 *
 * npulink-test: cards=4 modules=none mem=1024 timeout=240
 */
#include "cards.h"

#define LEN	(64 << 10)

static const char *const module = "insert npulink_pci timeout=5000";

/* Two ranks that exchange bytes. */
struct call {
	uint8_t *mem[RANKS][2];
	int fd[RANKS], comm[RANKS];
	struct npulink_post post[RANKS];
};

static bool call_begin(struct call *call)
{
	uint8_t secret[16];
	int r, k, plan, buf;

	raw_secret(secret);
	for (r = 0; r < RANKS; r++) {
		call->fd[r] = raw_open(r);
		call->comm[r] = raw_comm(call->fd[r], secret, r, RANKS);
		plan = plan_of(call->fd[r], call->comm[r], r, LEN, NPULINK_STEP_RECV);
		call->post[r] = raw_post_cmd(plan, NPULINK_POST_HELD);
		for (k = 0; k < 2; k++) {
			call->mem[r][k] = raw_anon(LEN);
			memset(call->mem[r][k], k ? 0 : 0xaa, LEN);
			buf = raw_register(call->fd[r], call->mem[r][k], LEN, 0);
			if (buf < 0)
				return false;
			raw_bind(&call->post[r], buf, 0, LEN);
		}
		if (plan < 0)
			return false;
	}
	for (r = 0; r < RANKS; r++)
		if (raw_ioctl(call->fd[r], NPULINK_POST, &call->post[r]))
			return false;
	return true;
}

/* It fails, on both ranks, with the device as the cause. */
static bool call_fails(struct call *call)
{
	struct npulink_comm_status st;
	struct npulink_result result;
	bool good = true;
	int r;

	for (r = 0; r < RANKS; r++) {
		raw_wait(call->fd[r], call->post[r].out_seq, &result);
		good = !raw_status(call->fd[r], call->comm[r], &st) && good;
		ksft_print_msg("rank %d: status %d, cause %u\n", r, result.status, st.out_cause);
		good = good && result.status == -EIO && st.out_cause == NPULINK_CAUSE_DEVICE;
	}
	return good;
}

static void call_end(struct call *call)
{
	int r;

	for (r = 0; r < RANKS; r++) {
		close(call->fd[r]);
		munmap(call->mem[r][0], LEN);
		munmap(call->mem[r][1], LEN);
	}
}

static bool all(const uint8_t *mem, uint8_t value)
{
	return mem[0] == value && !memcmp(mem, mem + 1, LEN - 1);
}

/* A card that has a request, and would carry it out later. */
static bool late(void)
{
	struct call call;
	bool good;

	if (!card_order("late 1") || !call_begin(&call))
		return false;
	good = call_fails(&call);
	memset(call.mem[1][1], 0x55, LEN);
	/* If it is still there, it writes now. */
	good = card_order("none 1") && good;
	raw_sleep_ms(500);
	good = all(call.mem[1][1], 0x55) && good;
	call_end(&call);
	return good;
}

static bool ill(const char *order)
{
	struct call call;
	bool good;

	if (!card_order("late 1") || !call_begin(&call) || !card_order(order))
		return false;
	good = call_fails(&call);
	call_end(&call);
	return card_order("none 1") && good;
}

/* A collective that a reset interrupts. */
static bool interrupted(void)
{
	struct call call;
	bool good;

	if (!card_order("late 1") || !call_begin(&call) || !card_reset())
		return false;
	good = call_fails(&call);
	call_end(&call);
	return card_order("none 1") && good;
}

int main(void)
{
	if (!card_order("none 0")) {
		printf("1..0 # SKIP no cards\n");
		return KSFT_SKIP;
	}
	ksft_set_plan(11);
	ksft_test_result(!modules(module) && exchange(LEN), "cards work\n");
	ksft_test_result(late(), "late_writes_are_none\n");
	ksft_test_result(!exchange(LEN), "who comes meanwhile is refused\n");
	ksft_test_result(card_reset() && exchange(LEN), "reset\n");
	ksft_test_result(ill("die 1"), "a card dies\n");
	ksft_test_result(card_reset() && exchange(LEN), "another process, after a reset\n");
	ksft_test_result(ill("mad 1"), "a card goes mad\n");
	ksft_test_result(card_reset() && exchange(LEN), "a sane one, after a reset\n");
	ksft_test_result(interrupted() && exchange(LEN), "reset during a call\n");
	ksft_test_result(card_reset() && card_reset() && exchange(LEN), "resets of idle cards\n");
	ksft_test_result(!modules("unload"), "the core goes\n");
	ksft_finished();
}
