// SPDX-License-Identifier: GPL-2.0
/*
 * engine.c - a card, which is a process: takes requests off its ring when its doorbell rings,
 * carries them out in their order, and reports. Whatever the driver has written is copied
 * once, then checked.
 */
#include <stddef.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>
#include <linux/npulink_step.h>
#include "machine.h"

#define FOUR_GIB	(4ULL << 30)
#define DIV_MAX		0xffffff
#define SCALE_MAX	24

static bool inside(uint64_t at, uint64_t len, uint64_t all)
{
	return at <= all && len <= all - at;
}

void *memory_at(const struct memory *mem, uint64_t addr, uint64_t len)
{
	uint64_t bus = load(&((struct card_header *)mem->window)->window_bus);

	if (inside(addr, len, mem->low_len))
		return mem->ram + addr;
	if (addr >= FOUR_GIB && inside(addr - FOUR_GIB, len, mem->ram_len - mem->low_len))
		return mem->ram + mem->low_len + (addr - FOUR_GIB);
	if (bus && addr >= bus) {
		uint64_t at = addr - bus;

		/* The rings are not for data. */
		if (at >= mem->data_off && inside(at, len, mem->window_len))
			return mem->window + at;
	}
	return NULL;
}

static bool sane(const struct card_desc *desc)
{
	if (!desc->nsrc || desc->nsrc > CARD_MAX_SRC)
		return false;
	if (desc->op == CARD_OP_COPY)
		return desc->nsrc == 1;
	return desc->op == CARD_OP_REDUCE && desc->dtype < NPULINK_DTYPES &&
	       desc->redop < NPULINK_REDOPS && desc->div <= DIV_MAX && desc->scale <= SCALE_MAX &&
	       !(desc->len & ((1U << card_shift(desc->dtype)) - 1));
}

/* The bytes of an operand in two pieces, from them to @bounce or back. */
static bool gather(const struct memory *mem, const struct card_operand *o, uint32_t len,
		   uint8_t *bounce, bool back)
{
	uint8_t *a = memory_at(mem, o->addr, o->first);
	uint8_t *b = memory_at(mem, o->next, len - o->first);

	if (!a || !b)
		return false;
	if (back) {
		memcpy(a, bounce, o->first);
		memcpy(b, bounce + o->first, len - o->first);
	} else {
		memcpy(bounce, a, o->first);
		memcpy(bounce + o->first, b, len - o->first);
	}
	return true;
}

uint32_t card_run(const struct memory *mem, const struct card_desc *desc)
{
	uint8_t bounce[CARD_MAX_SRC + 1][CARD_SPLIT_MAX] __attribute__((aligned(8)));
	void *src[CARD_MAX_SRC], *dst;
	bool split = desc->dst.first < desc->len;
	unsigned int i;

	if (!sane(desc))
		return CARD_BAD_DESC;
	if (split && desc->len > CARD_SPLIT_MAX)
		return CARD_BAD_DESC;
	for (i = 0; i < desc->nsrc; i++) {
		const struct card_operand *o = &desc->src[i];

		if (o->first >= desc->len) {
			src[i] = memory_at(mem, o->addr, desc->len);
			if (!src[i])
				return CARD_BAD_ADDR;
			continue;
		}
		if (desc->len > CARD_SPLIT_MAX)
			return CARD_BAD_DESC;
		src[i] = bounce[i];
		if (!gather(mem, o, desc->len, src[i], false))
			return CARD_BAD_ADDR;
	}
	dst = split ? bounce[CARD_MAX_SRC] : memory_at(mem, desc->dst.addr, desc->len);
	if (!dst)
		return CARD_BAD_ADDR;
	if (desc->op == CARD_OP_REDUCE)
		card_reduce(desc, dst, src);
	else
		memmove(dst, src[0], desc->len);
	if (split && !gather(mem, &desc->dst, desc->len, dst, true))
		return CARD_BAD_ADDR;
	return CARD_OK;
}

void card_interrupt(struct card *card)
{
	uint64_t one = 1;

	if (card->knob == KNOB_SILENT)
		return;
	store(&card->regs->interrupts, ++card->interrupts);
	(void)!write(card->interrupt, &one, sizeof(one));
}

static void report(struct card *card, uint32_t tag, uint32_t status, bool tell)
{
	struct card_done *done = &card->cq[card->tail & (card->entries - 1)];
	int knob = card->knob;

	done->tag = knob == KNOB_TAG ? tag + 7 : tag;
	done->status = knob == KNOB_STATUS ? 0xdead : status;
	card->tail++;
	store(&card->regs->cq_tail, knob == KNOB_INDEX ? card->tail + 0x10000 : card->tail);
	if (knob == KNOB_NOISE)
		memset(card->cq, 0xa5, card->entries * sizeof(*card->cq));
	if (tell)
		card_interrupt(card);
}

static void broken(struct card *card)
{
	card->running = false;
	store(&card->regs->error, CARD_ERR_INDEX);
	card_interrupt(card);
}

/* Random numbers for all that the machine reads, and for some of the memory behind it. */
static void go_mad(struct card *card)
{
	uint64_t state = 88172645463325252ULL + getpid();
	uint64_t *window = (void *)card->mem->window, words = (card->mem->data_off + (1 << 20)) / 8, i;

	while (card->knob == KNOB_MAD) {
		for (i = 0; i < 4096; i++) {
			state ^= state << 13, state ^= state >> 7, state ^= state << 17;
			/* More often where it hurts. */
			if (i % 4)
				window[state % words] = state;
			else
				((uint32_t *)card->regs)[state % (sizeof(*card->regs) / 4)] =
					state >> 40;
		}
		card_interrupt(card);
	}
}

static void wait_for_knob(const struct card *card, int knob)
{
	while (card->knob == knob)
		usleep(1000);
}

void card_take(struct card *card)
{
	struct card_desc desc;
	const struct card_desc *slot;
	uint32_t status, nsrc;

	for (;;) {
		if (!card->running) {
			if (load(&card->regs->start) != 1 || load(&card->regs->error))
				return;
			card->running = true;
			store(&card->regs->started, 1);
		}
		if (card->knob == KNOB_HANG)
			return;
		uint32_t n = load(&card->regs->sq_tail) - card->head;

		if (!n)
			return;
		if (n > card->entries || card->tail - load(&card->regs->cq_head) >= card->entries) {
			broken(card);
			return;
		}
		slot = &card->sq[card->head & (card->entries - 1)];
		memcpy(&desc, slot, offsetof(struct card_desc, src));
		nsrc = desc.nsrc < CARD_MAX_SRC ? desc.nsrc : CARD_MAX_SRC;
		memcpy(desc.src, slot->src, nsrc * sizeof(desc.src[0]));
		wait_for_knob(card, KNOB_LATE);
		if (card->knob == KNOB_MAD)
			go_mad(card);
		status = desc.tag == card->head && desc.len <= card->max_len ?
			 card_run(card->mem, &desc) : CARD_BAD_DESC;
		store(&card->regs->requests, ++card->requests);
		card->bytes += desc.len;
		store(&card->regs->bytes, card->bytes);
		report(card, card->head++, status, desc.flags & CARD_F_INTERRUPT);
	}
}

void card_engine(struct card *card)
{
	struct pollfd poller = { .fd = card->doorbell, .events = POLLIN };
	uint64_t rings;

	/* QEMU has the same eventfd, and makes it one that does not wait. */
	for (;;) {
		if (poll(&poller, 1, -1) < 1 ||
		    read(card->doorbell, &rings, sizeof(rings)) != sizeof(rings))
			continue;
		card->doorbells += rings;
		store(&card->regs->doorbells, card->doorbells);
		card_take(card);
	}
}
