/* SPDX-License-Identifier: GPL-2.0 */
/*
 * machine.h - what the parts of the card's process share.
 */
#ifndef TOOLS_VM_CARD_MACHINE_H
#define TOOLS_VM_CARD_MACHINE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
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

enum knob { KNOB_NONE, KNOB_HANG, KNOB_TAG, KNOB_INDEX, KNOB_STATUS, KNOB_SILENT, KNOB_NOISE };

struct card {
	unsigned int index;
	const struct memory *mem;
	struct card_header *header;
	struct card_regs *regs;
	struct card_desc *sq;
	struct card_done *cq;
	uint32_t entries;
	int doorbell;		/* eventfd */
	int interrupt;		/* eventfd of the machine, -1 before it is there */
	_Atomic int knob;
	pthread_t thread;
	uint32_t start, head, tail;
	uint64_t doorbells, interrupts, requests, bytes;
};

void *card_engine(void *card);

/* Carry out a request that was copied from the ring: CARD_OK or why not. */
uint32_t card_run(const struct memory *mem, const struct card_desc *desc);

/* dst = src[0] (+) ..; the request's own checks were done. */
void card_reduce(const struct card_desc *desc, void *dst, void *const *src);
uint32_t card_shift(unsigned int dtype);
uint32_t card_dtypes(void);
uint32_t card_redops(void);

/* ivshmem: sends a machine what it needs. */
int server_listen(const char *path);
int server_welcome(int sock, int id, int window, const int *own, const int *its,
		   unsigned int vectors);

#endif /* TOOLS_VM_CARD_MACHINE_H */
