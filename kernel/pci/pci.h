/* SPDX-License-Identifier: GPL-2.0 */
/*
 * pci.h - what the parts of npulink_pci.ko share.
 */
#ifndef NPULINK_PCI_H
#define NPULINK_PCI_H

#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <npulink/device.h>
#include "card.h"

#define PCI_REGS	0	/* BARs */
#define PCI_WINDOW	2
#define PCI_POSITION	8	/* register: our number among the peers */
#define PCI_DOORBELL	12	/* register: peer << 16 | vector */

/**
 * struct pci_card - a card, at npulink_device.priv
 * @ndev: the device
 * @fn: its PCI function
 * @regs: its registers in the window
 * @sq: ring of requests
 * @cq: ring of completions
 * @slots: whose each entry of @sq is
 * @entries: of the rings
 * @max_len: bytes of a request to the card
 * @index: number of the card in its function
 * @order: starting and stopping it
 * @resets: times that it was reset
 * @lost: stops it
 * @lock: all that follows, and what the driver writes of the rings. Innermost
 * @waiting: requests that are not, or not wholly, on the ring
 * @sq_tail: entries that were put on the ring
 * @cq_head: those that were reported
 * @dead: nothing is asked of it until it is started anew
 * @held: nothing is asked of it for now
 * @seen: @cq_head, when the watchdog looked last
 * @since: jiffies, when that changed last
 * @doorbells: times that it was rung
 * @mem_lock: @mem_used
 * @mem_off: where its memory is in the window
 * @mem_pages: of it
 * @mem_used: pages that are given out, a bit for each
 */
struct pci_card {
	struct npulink_device *ndev;
	struct pci_fn *fn;
	struct card_regs *regs;
	struct card_desc *sq;
	struct card_done *cq;
	struct npulink_req **slots;
	u32 entries;
	u32 max_len;
	unsigned int index;
	struct mutex order;		/* see above */
	u32 resets;
	struct work_struct lost;
	spinlock_t lock;		/* see above */
	struct list_head waiting;
	u32 sq_tail;
	u32 cq_head;
	bool dead;
	bool held;
	u32 seen;
	unsigned long since;
	u64 doorbells;
	struct mutex mem_lock;		/* @mem_used */
	u64 mem_off;
	unsigned long mem_pages;
	unsigned long *mem_used;
};

/**
 * struct pci_fn - a PCI function with cards
 * @pdev: the function
 * @bar: its doorbell registers
 * @window: header, rings and memory of the cards
 * @window_len: bytes of that
 * @ncards: how many cards
 * @isolated: it masters the bus no more, since a card did not obey
 * @watchdog: looks for cards that do not answer
 * @cards: those that are registered
 */
struct pci_fn {
	struct pci_dev *pdev;
	void __iomem *bar;
	void *window;
	u64 window_len;
	u32 ncards;
	bool isolated;
	struct delayed_work watchdog;
	struct npulink_device *cards[CARD_MAX];
};

extern const struct npulink_device_ops pci_device_ops;

void pci_card_init(struct pci_card *card);
int pci_card_start(struct pci_card *card);
void pci_card_stop(struct pci_card *card);
void pci_card_fail(struct pci_card *card, const char *why);
void pci_card_hold(struct pci_card *card);

void pci_card_ring(struct pci_card *card);
void pci_card_open(struct pci_card *card, int rc);
void pci_card_close(struct pci_card *card);
void pci_card_end(struct pci_card *card);
bool pci_card_pause(struct pci_card *card);
irqreturn_t pci_card_irq(int irq, void *arg);
void pci_card_watch(struct pci_card *card, unsigned int ms, const char *gone);

int pci_memory_init(struct pci_card *card, u64 off, u64 len);
void pci_memory_exit(struct pci_card *card);
int pci_memory_alloc(struct npulink_device *ndev, struct npulink_device_memory *mem);
void pci_memory_free(struct npulink_device *ndev, const struct npulink_device_memory *mem);

#endif /* NPULINK_PCI_H */
