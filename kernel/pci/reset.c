// SPDX-License-Identifier: GPL-2.0
/*
 * reset.c - a card is started, stopped and reset.
 *
 * A card that does not answer may still write where it was told to. So its requests come back to
 * the core when it can write no more: its slot has reset it, or, where that does not answer
 * either, its function masters the bus no more, or is gone.
 */
#include <linux/delay.h>
#include <linux/io.h>
#include "pci.h"

#define PCI_TRIES	50
#define PCI_TRY_MS	100

static void pci_isolate(struct pci_fn *fn)
{
	u16 command;

	pci_clear_master(fn->pdev);
	/* What it had sent before it answers has arrived. */
	pci_read_config_word(fn->pdev, PCI_COMMAND, &command);
	WRITE_ONCE(fn->isolated, true);
	dev_err(&fn->pdev->dev, "a card cannot be reset: bus mastering is taken away\n");
}

static bool pci_becomes(const __le32 *word, u32 value)
{
	unsigned int ms;

	for (ms = 0; ms < PCI_TRY_MS; ms++) {
		/* What it wrote before is there. */
		if (le32_to_cpu(smp_load_acquire(word)) == value)
			return true;
		usleep_range(1000, 2000);
	}
	return false;
}

/*
 * When it returns, the card writes nowhere any more. False: nor can it be used. A card that
 * writes nonsense may have overwritten the number: it gets another one.
 */
static bool pci_quiet(struct pci_card *card)
{
	struct card_regs *regs = card->regs;
	struct pci_fn *fn = card->fn;
	unsigned int tries;

	lockdep_assert_held(&card->order);
	for (tries = 0; tries < PCI_TRIES; tries++) {
		if (READ_ONCE(fn->isolated) || !pci_device_is_present(fn->pdev))
			return false;
		WRITE_ONCE(regs->start, 0);
		WRITE_ONCE(regs->sq_tail, 0);
		WRITE_ONCE(regs->cq_head, 0);
		WRITE_ONCE(regs->reset, cpu_to_le32(++card->resets));
		writel(CARD_PEER << 16 | CARD_BELL_RESET(fn->ncards), fn->bar + PCI_DOORBELL);
		if (pci_becomes(&regs->quiet, card->resets))
			return true;
	}
	pci_isolate(fn);
	return false;
}

static void pci_lost(struct work_struct *work)
{
	pci_card_stop(container_of(work, struct pci_card, lost));
}

void pci_card_init(struct pci_card *card)
{
	spin_lock_init(&card->lock);
	INIT_LIST_HEAD(&card->waiting);
	mutex_init(&card->order);
	INIT_WORK(&card->lost, pci_lost);
	card->dead = true;
	/* Who had it before may have left any number. */
	card->resets = le32_to_cpu(READ_ONCE(card->regs->quiet));
}

/* It need not have been stopped: who had it before may have crashed. */
int pci_card_start(struct pci_card *card)
{
	struct card_header *header = card->fn->window;
	int rc = -EIO;

	flush_work(&card->lost);
	mutex_lock(&card->order);
	if (pci_quiet(card)) {
		WRITE_ONCE(header->window_bus,
			   cpu_to_le64(pci_bus_address(card->fn->pdev, PCI_WINDOW)));
		WRITE_ONCE(header->driver_peer,
			   cpu_to_le32(readl(card->fn->bar + PCI_POSITION)));
		/* After the header. */
		smp_store_release(&card->regs->start, cpu_to_le32(1));
		pci_card_ring(card);
		rc = pci_becomes(&card->regs->started, 1) ? 0 : -ETIMEDOUT;
	}
	pci_card_open(card, rc);
	mutex_unlock(&card->order);
	return rc;
}

/* Its requests, if it has some, fail. */
void pci_card_stop(struct pci_card *card)
{
	mutex_lock(&card->order);
	pci_card_close(card);
	pci_quiet(card);
	pci_card_end(card);
	mutex_unlock(&card->order);
}

/* It is of no use any more. Any context. */
void pci_card_fail(struct pci_card *card, const char *why)
{
	dev_err(&card->ndev->dev, "card %u %s\n", card->index, why);
	npulink_fault(card->ndev, -EIO);
	schedule_work(&card->lost);
}

/* It ends what it has begun, and is then quiet; requests that come meanwhile wait for its start. */
void pci_card_hold(struct pci_card *card)
{
	bool idle = false;
	unsigned int tries;

	for (tries = 0; tries < PCI_TRIES && !idle; tries++) {
		idle = pci_card_pause(card);
		if (!idle)
			msleep(PCI_TRY_MS);
	}
	if (!idle) {
		pci_card_fail(card, "does not come to rest");
		flush_work(&card->lost);
		return;
	}
	mutex_lock(&card->order);
	pci_quiet(card);
	mutex_unlock(&card->order);
}
