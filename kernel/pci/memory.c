// SPDX-License-Identifier: GPL-2.0
/*
 * memory.c - a card's own memory: a part of the window, given out by pages.
 */
#include <linux/bitmap.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/sizes.h>
#include "pci.h"

/* @len bytes of the window, at @off. */
int pci_memory_init(struct pci_card *card, u64 off, u64 len)
{
	card->mem_off = off;
	card->mem_pages = len >> PAGE_SHIFT;
	mutex_init(&card->mem_lock);
	card->mem_used = bitmap_zalloc(card->mem_pages, GFP_KERNEL);
	return card->mem_used ? 0 : -ENOMEM;
}

void pci_memory_exit(struct pci_card *card)
{
	bitmap_free(card->mem_used);
}

/* What the user before had there is not for this one. */
static int pci_memory_clear(void *to, u64 len)
{
	u64 n;

	for (; len; to += n, len -= n) {
		if (fatal_signal_pending(current))
			return -EINTR;
		n = min_t(u64, len, SZ_1M);
		memset(to, 0, n);
		cond_resched();
	}
	return 0;
}

int pci_memory_alloc(struct npulink_device *ndev, struct npulink_device_memory *mem)
{
	struct pci_card *card = ndev->priv;
	struct pci_dev *pdev = card->fn->pdev;
	unsigned long n = mem->len >> PAGE_SHIFT, at;
	u64 off;
	int rc;

	mutex_lock(&card->mem_lock);
	at = bitmap_find_next_zero_area(card->mem_used, card->mem_pages, 0, n, 0);
	if (at < card->mem_pages)
		bitmap_set(card->mem_used, at, n);
	mutex_unlock(&card->mem_lock);
	if (at >= card->mem_pages)
		return -ENOMEM;
	off = card->mem_off + ((u64)at << PAGE_SHIFT);
	mem->dma = pci_bus_address(pdev, PCI_WINDOW) + off;
	mem->phys = pci_resource_start(pdev, PCI_WINDOW) + off;
	mem->cached = true;	/* as the driver itself has mapped it */
	rc = pci_memory_clear(card->fn->window + off, mem->len);
	if (rc)
		pci_memory_free(ndev, mem);
	return rc;
}

void pci_memory_free(struct npulink_device *ndev, const struct npulink_device_memory *mem)
{
	struct pci_card *card = ndev->priv;
	u64 off = mem->phys - pci_resource_start(card->fn->pdev, PCI_WINDOW) - card->mem_off;

	mutex_lock(&card->mem_lock);
	bitmap_clear(card->mem_used, off >> PAGE_SHIFT, mem->len >> PAGE_SHIFT);
	mutex_unlock(&card->mem_lock);
}
