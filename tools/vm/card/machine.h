/* SPDX-License-Identifier: GPL-2.0 */
/*
 * machine.h - what the parts of the card's process share.
 */
#ifndef TOOLS_VM_CARD_MACHINE_H
#define TOOLS_VM_CARD_MACHINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "kernel/pci/card.h"

/* Bytes that addresses lead to: the machine's memory, and the window. */
struct memory {
	uint8_t *ram;
	uint64_t ram_len;
	uint64_t low_len;	/* of it, what lies below 4 GiB */
	uint8_t *window;
	uint64_t window_len;
	uint64_t data_off;	/* of the window, where the cards' memory begins */
};

/* NULL if not all of it is there. */
void *memory_at(const struct memory *mem, uint64_t addr, uint64_t len);

enum knob {
	KNOB_NONE,
	KNOB_HANG,	/* takes no request */
	KNOB_LATE,	/* takes one, and writes its result when the knob is turned back */
	KNOB_TAG, KNOB_INDEX, KNOB_STATUS, KNOB_NOISE,	/* nonsense in the completion ring */
	KNOB_MAD,	/* nonsense everywhere in the window */
	KNOB_SILENT,	/* no interrupts */
	KNOBS
};

/* A card, in memory that it shares with its slot. */
struct card {
	unsigned int index;
	const struct memory *mem;
	struct card_regs *regs;
	struct card_desc *sq;
	struct card_done *cq;
	uint32_t entries;
	uint32_t max_len;
	int doorbell;		/* eventfd */
	int interrupt;		/* eventfd of the machine */
	_Atomic int knob;
	pid_t process;		/* 0: it has none */
	uint32_t quiet;		/* the slot's: the last reset */
	/* The process's. */
	bool running;
	uint32_t head, tail;
	uint64_t doorbells, interrupts, requests, bytes;
};

/* Both sides are little-endian here: the loads and stores only have to be whole. */
#define load(p)		__atomic_load_n(p, __ATOMIC_ACQUIRE)
#define store(p, v)	__atomic_store_n(p, v, __ATOMIC_RELEASE)

/* The card's process: serves doorbells for good. */
void card_engine(struct card *card);

/* Its doorbell has been rung: do what there is to do. */
void card_take(struct card *card);

void card_interrupt(struct card *card);

/* What resets cards, and sees to it that they have a process. */
void slot_look(struct card *card);
void slot_kill(struct card *card);

/* The window's, anew: whatever was written over it. */
void header_write(void);

/* Carry out a request that was copied from the ring: CARD_OK or why not. */
uint32_t card_run(const struct memory *mem, const struct card_desc *desc);

/* dst = src[0] (+) ..; the request's own checks were done. */
void card_reduce(const struct card_desc *desc, void *dst, void *const *src);
uint32_t card_shift(unsigned int dtype);
uint32_t card_dtypes(void);
uint32_t card_redops(void);

/* ivshmem: sends a machine what it needs. */
int server_listen(const char *path);
int server_welcome(int sock, int id, int window, const struct card *cards, unsigned int ncards,
		   int reset);

#endif /* TOOLS_VM_CARD_MACHINE_H */
