// SPDX-License-Identifier: GPL-2.0
/*
 * card - NPU cards (tools/vm/card) against a driver that is hostile: descriptors that lead out of
 * memory, into the rings or nowhere, operations that are none, and indices that cannot be.
 */
#include <stddef.h>
#include <sys/eventfd.h>
#include <linux/npulink_step.h>
#include "kselftest_harness.h"
#include "tools/vm/card/machine.h"

#define RAM	(1 << 20)
#define WINDOW	(1 << 20)
#define DATA	(512 << 10)	/* of the window, where the cards' memory begins */
#define BUS	0xfe00000000ULL
#define ENTRIES	8U
#define MAX_LEN	(64U << 10)

FIXTURE(card) {
	struct memory mem;
	struct card card;
	struct card_desc desc;
};

FIXTURE_SETUP(card)
{
	/* From malloc, so that the address sanitizer knows where it ends. */
	self->mem = (struct memory) {
		.ram = calloc(1, RAM), .ram_len = RAM, .low_len = RAM,
		.window = calloc(1, WINDOW), .window_len = WINDOW, .data_off = DATA,
	};
	((struct card_header *)self->mem.window)->window_bus = BUS;
	self->card = (struct card) {
		.mem = &self->mem, .entries = ENTRIES, .max_len = MAX_LEN,
		.regs = (void *)(self->mem.window + 4096), .sq = (void *)(self->mem.window + 8192),
		.cq = (void *)(self->mem.window + 8192 + ENTRIES * sizeof(struct card_desc)),
		.interrupt = eventfd(0, EFD_NONBLOCK),
	};
	self->card.regs->start = 1;
	self->desc = (struct card_desc) {
		.op = CARD_OP_REDUCE, .dtype = NPULINK_INT32, .redop = NPULINK_SUM, .len = 4096,
		.nsrc = 2, .dst = { .addr = 0, .first = 4096 },
		.src = { { .addr = 4096, .first = 4096 }, { .addr = BUS + DATA, .first = 4096 } },
	};
}

FIXTURE_TEARDOWN(card)
{
	free(self->mem.ram);
	free(self->mem.window);
	close(self->card.interrupt);
}

#define RUN()	card_run(&self->mem, &self->desc)

TEST_F(card, carries_out_what_is_right)
{
	((uint32_t *)self->mem.ram)[1024] = 5;
	((uint32_t *)(self->mem.window + DATA))[0] = 6;
	ASSERT_EQ(RUN(), CARD_OK);
	ASSERT_EQ(*(uint32_t *)self->mem.ram, 11);
}

TEST_F(card, addresses_lead_into_memory)
{
	static const uint64_t bad[] = {
		RAM, RAM - 4095, RAM + 4096, ~0ULL, ~0ULL - 4094, 1ULL << 32, (1ULL << 32) - 1,
		1ULL << 63, BUS, BUS + 4096, BUS + DATA - 1, BUS + WINDOW, BUS + WINDOW - 4095,
		BUS - 1, BUS - 4096,
	};
	struct card_desc good = self->desc;
	unsigned int i;
	bool there;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		self->desc.dst.addr = bad[i];
		EXPECT_EQ(RUN(), CARD_BAD_ADDR);
		self->desc = good;
		self->desc.src[1].addr = bad[i];
		EXPECT_EQ(RUN(), CARD_BAD_ADDR);
		/* An operand in two pieces. */
		self->desc.len = 8;
		self->desc.src[1] = (struct card_operand) { .addr = 0, .first = 1, .next = bad[i] };
		there = bad[i] <= RAM - 8 || (bad[i] >= BUS + DATA && bad[i] <= BUS + WINDOW - 8);
		EXPECT_EQ(RUN(), there ? CARD_OK : CARD_BAD_ADDR);
		self->desc = good;
	}
	/* The last bytes of each are there. */
	self->desc.dst.addr = RAM - 4096;
	self->desc.src[1].addr = BUS + WINDOW - 4096;
	EXPECT_EQ(RUN(), CARD_OK);
}

TEST_F(card, lengths_have_an_end)
{
	self->desc.len = RAM + 4;
	self->desc.dst.first = RAM + 4;
	EXPECT_EQ(RUN(), CARD_BAD_DESC);	/* inputs in two pieces, and so long */
	self->desc.src[0].first = ~0U;
	self->desc.src[1].first = ~0U;
	EXPECT_EQ(RUN(), CARD_BAD_ADDR);
	self->desc.len = ~0U & ~3;
	self->desc.dst.first = ~0U;
	EXPECT_EQ(RUN(), CARD_BAD_ADDR);
	self->desc.len = 4095;
	EXPECT_EQ(RUN(), CARD_BAD_DESC);
	self->desc.len = 4096;
	self->desc.dst.first = 4095;
	EXPECT_EQ(RUN(), CARD_BAD_DESC);
}

TEST_F(card, operations_exist)
{
	struct card_desc good = self->desc;

#define BAD(member, value) do { \
	self->desc = good; \
	self->desc.member = value; \
	EXPECT_EQ(RUN(), CARD_BAD_DESC); \
} while (0)
	BAD(op, 2);
	BAD(op, 255);
	BAD(op, CARD_OP_COPY);			/* of two inputs */
	BAD(dtype, NPULINK_DTYPES);
	BAD(dtype, 255);
	BAD(redop, NPULINK_REDOPS);
	BAD(redop, 255);
	BAD(nsrc, 0);
	BAD(nsrc, CARD_MAX_SRC + 1);
	BAD(nsrc, 0xffff);
	BAD(div, 0x1000000);
	BAD(scale, 25);
}

/* Whatever stands in a descriptor: nothing but memory is touched, which the sanitizer sees. */
TEST_F(card, random_descriptors)
{
	struct card_desc good = self->desc;
	unsigned int i, k, done = 0;

	srandom(1);
	for (i = 0; i < 20000; i++) {
		self->desc = good;
		for (k = random() % 3 + 1; k; k--) {
			size_t at = random() % offsetof(struct card_desc, src[2]);

			((uint8_t *)&self->desc)[at] ^= 1 << random() % 8;
		}
		done += RUN() == CARD_OK;
	}
	EXPECT_GT(done, 0);
	EXPECT_LT(done, i);
}

/* Put a request on the ring as entry @at. */
static void ask(struct card *card, const struct card_desc *desc, uint32_t at, uint32_t tag)
{
	struct card_desc *to = &card->sq[at % ENTRIES];

	*to = *desc;
	to->tag = tag;
	card->regs->sq_tail = at + 1;
	card_take(card);
}

TEST_F(card, tags_and_lengths_on_the_ring)
{
	ask(&self->card, &self->desc, 0, 0);
	EXPECT_EQ(self->card.regs->started, 1);
	EXPECT_EQ(self->card.regs->cq_tail, 1);
	EXPECT_EQ(self->card.cq[0].status, CARD_OK);
	ask(&self->card, &self->desc, 1, 7);
	EXPECT_EQ(self->card.cq[1].status, CARD_BAD_DESC);
	self->desc.len = MAX_LEN + 4;
	self->desc.dst.first = ~0U;
	self->desc.src[0].first = ~0U;
	self->desc.src[1].first = ~0U;
	ask(&self->card, &self->desc, 2, 2);
	EXPECT_EQ(self->card.cq[2].status, CARD_BAD_DESC);
	EXPECT_EQ(self->card.regs->error, 0);
}

/* A card stops, and stays so, when its rings cannot be as the driver says. */
TEST_F(card, requests_fit_the_ring)
{
	self->card.regs->sq_tail = ENTRIES + 1;
	card_take(&self->card);
	EXPECT_EQ(self->card.regs->error, CARD_ERR_INDEX);
	EXPECT_EQ(self->card.regs->cq_tail, 0);
	self->card.regs->sq_tail = 1;
	card_take(&self->card);
	EXPECT_EQ(self->card.regs->cq_tail, 0);
}

TEST_F(card, completions_fit_the_ring)
{
	uint32_t i;

	/* Nobody takes them off. */
	for (i = 0; i <= ENTRIES; i++)
		ask(&self->card, &self->desc, i, i);
	EXPECT_EQ(self->card.regs->error, CARD_ERR_INDEX);
	EXPECT_EQ(self->card.regs->cq_tail, ENTRIES);
}

TEST_F(card, completions_are_taken_once)
{
	self->card.regs->cq_head = 5;
	ask(&self->card, &self->desc, 0, 0);
	EXPECT_EQ(self->card.regs->error, CARD_ERR_INDEX);
}

TEST_HARNESS_MAIN
