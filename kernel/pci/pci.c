// SPDX-License-Identifier: GPL-2.0
/*
 * pci.c - NPU cards behind a PCI function: QEMU's ivshmem-doorbell, where its window has the cards'
 * header (card.h). Anybody else's window is left alone.
 */
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <npulink/compat.h>
#include "pci.h"

#define PCI_VENDOR	0x1af4
#define PCI_DEVICE_IVSHMEM	0x1110
#define PCI_ENTRIES_MAX	4096
#define PCI_SLICE	(1 << 20)

static unsigned int timeout = 10000;
module_param(timeout, uint, 0644);
MODULE_PARM_DESC(timeout, "milliseconds until a card that does not answer is lost; 0: never (10000)");

/* Its bounds, copied once. */
struct pci_layout {
	u32 cards, entries, max_len, dtypes, redops;
	u64 area_off, area_len, sq_off, cq_off;
	u64 mem_off, mem_len;	/* of each card */
};

static bool pci_fits(u64 at, u64 len, u64 all)
{
	return at <= all && len <= all - at && IS_ALIGNED(at, 64);
}

static int pci_read_layout(const struct pci_fn *fn, struct pci_layout *l)
{
	struct card_header header;
	u64 areas;

	memcpy(&header, fn->window, sizeof(header));
	if (le64_to_cpu(header.magic) != CARD_MAGIC)
		return -ENODEV;
	if (le32_to_cpu(header.version) != CARD_VERSION) {
		dev_err(&fn->pdev->dev, "cards of version %u, not %u\n",
			le32_to_cpu(header.version), CARD_VERSION);
		return -ENODEV;
	}
	l->cards = le32_to_cpu(header.cards);
	l->entries = le32_to_cpu(header.entries);
	l->max_len = le32_to_cpu(header.max_len);
	l->dtypes = le32_to_cpu(header.dtypes) & (BIT(NPULINK_DTYPES) - 1);
	l->redops = le32_to_cpu(header.redops) & (BIT(NPULINK_REDOPS) - 1);
	l->area_off = le64_to_cpu(header.area_off);
	l->area_len = le64_to_cpu(header.area_len);
	l->sq_off = le64_to_cpu(header.sq_off);
	l->cq_off = le64_to_cpu(header.cq_off);
	l->mem_off = le64_to_cpu(header.mem_off);
	l->mem_len = le64_to_cpu(header.mem_len);
	if (!l->cards || l->cards > CARD_MAX || !is_power_of_2(l->entries) ||
	    l->entries > PCI_ENTRIES_MAX || l->max_len < PAGE_SIZE ||
	    l->area_len > fn->window_len)
		return -EINVAL;
	areas = l->cards * l->area_len;
	if (l->area_off < sizeof(header) || !pci_fits(l->area_off, areas, fn->window_len) ||
	    !IS_ALIGNED(l->area_len, 64) || l->sq_off < sizeof(struct card_regs) ||
	    !pci_fits(l->sq_off, (u64)l->entries * sizeof(struct card_desc), l->area_len) ||
	    !pci_fits(l->cq_off, (u64)l->entries * sizeof(struct card_done), l->area_len) ||
	    l->cq_off < l->sq_off + (u64)l->entries * sizeof(struct card_desc))
		return -EINVAL;
	if (!pci_fits(l->mem_off, l->mem_len, fn->window_len) || !PAGE_ALIGNED(l->mem_off) ||
	    l->mem_off < l->area_off + areas)
		return -EINVAL;
	l->mem_len = round_down(l->mem_len / l->cards, PAGE_SIZE);
	return 0;
}

static void pci_watchdog(struct work_struct *work)
{
	struct pci_fn *fn = container_of(to_delayed_work(work), struct pci_fn, watchdog);
	unsigned int ms = READ_ONCE(timeout), i;
	const char *gone = NULL;

	if (!pci_device_is_present(fn->pdev))
		gone = "is gone";
	else if (READ_ONCE(fn->isolated))
		gone = "is cut off";
	for (i = 0; i < fn->ncards; i++)
		if (fn->cards[i])
			pci_card_watch(fn->cards[i]->priv, ms, gone);
	schedule_delayed_work(&fn->watchdog, msecs_to_jiffies(clamp(ms / 4, 10U, 1000U)));
}

static int pci_card_add(struct pci_fn *fn, const struct pci_layout *l, unsigned int index)
{
	void *area = fn->window + l->area_off + index * l->area_len;
	int irq = pci_irq_vector(fn->pdev, index), rc;
	struct npulink_device *ndev;
	struct pci_card *card;

	ndev = npulink_device_alloc(THIS_MODULE, &pci_device_ops, &fn->pdev->dev, sizeof(*card));
	if (IS_ERR(ndev))
		return PTR_ERR(ndev);
	card = ndev->priv;
	card->ndev = ndev;
	card->fn = fn;
	card->index = index;
	card->regs = area;
	card->sq = area + l->sq_off;
	card->cq = area + l->cq_off;
	card->entries = l->entries;
	card->max_len = l->max_len;
	pci_card_init(card);
	card->slots = kcalloc(l->entries, sizeof(*card->slots), GFP_KERNEL);
	if (!card->slots) {
		rc = -ENOMEM;
		goto err_put;
	}
	rc = pci_memory_init(card, l->mem_off + index * l->mem_len, l->mem_len);
	if (rc)
		goto err_slots;
	rc = pci_card_start(card);
	if (rc)
		goto err_memory;
	rc = request_irq(irq, pci_card_irq, 0, "npulink_pci", card);
	if (rc)
		goto err_stop;
	irq_set_affinity_and_hint(irq, cpumask_of(cpumask_local_spread(index % num_online_cpus(),
								dev_to_node(&fn->pdev->dev))));
	ndev->fabric = fn;
	ndev->dma_dev = &fn->pdev->dev;
	strscpy(ndev->backend, "pci", sizeof(ndev->backend));
	snprintf(ndev->engine, sizeof(ndev->engine), "card %s.%u", pci_name(fn->pdev), index);
	ndev->dtypes = l->dtypes;
	ndev->redops = l->redops;
	ndev->slice = PCI_SLICE;
	ndev->memory = l->mem_len;
	fn->cards[index] = ndev;
	rc = npulink_device_register(ndev);
	if (!rc)
		return 0;
	fn->cards[index] = NULL;
	irq_update_affinity_hint(irq, NULL);
	free_irq(irq, card);
err_stop:
	cancel_work_sync(&card->lost);
	pci_card_stop(card);
err_memory:
	pci_memory_exit(card);
err_slots:
	kfree(card->slots);
err_put:
	npulink_device_put(ndev);
	return rc;
}

/* First all are unregistered: until then, the watchdog ends what a card does not. */
static void pci_del_cards(struct pci_fn *fn)
{
	unsigned int i;

	for (i = 0; i < fn->ncards && fn->cards[i]; i++)
		npulink_device_unregister(fn->cards[i]);
	cancel_delayed_work_sync(&fn->watchdog);
	for (i = 0; i < fn->ncards && fn->cards[i]; i++) {
		struct pci_card *card = fn->cards[i]->priv;
		int irq = pci_irq_vector(fn->pdev, i);

		irq_update_affinity_hint(irq, NULL);
		free_irq(irq, card);
		cancel_work_sync(&card->lost);
		pci_card_stop(card);
		pci_memory_exit(card);
		kfree(card->slots);
		npulink_device_put(fn->cards[i]);
		fn->cards[i] = NULL;
	}
}

static ssize_t doorbells_show(struct device *dev, struct device_attribute *attr, char *text)
{
	struct pci_fn *fn = dev_get_drvdata(dev);
	unsigned int i;
	int n = 0;

	for (i = 0; i < fn->ncards && fn->cards[i]; i++)
		n += sysfs_emit_at(text, n, "%llu\n",
				   ((struct pci_card *)fn->cards[i]->priv)->doorbells);
	return n;
}

static DEVICE_ATTR_RO(doorbells);

static struct attribute *pci_attrs[] = {
	&dev_attr_doorbells.attr,
	NULL
};

ATTRIBUTE_GROUPS(pci);

static int pci_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct pci_layout layout;
	struct pci_fn *fn;
	unsigned int i;
	int rc;

	rc = pcim_enable_device(pdev);
	if (rc)
		return rc;
	fn = devm_kzalloc(&pdev->dev, sizeof(*fn), GFP_KERNEL);
	if (!fn)
		return -ENOMEM;
	fn->pdev = pdev;
	fn->window_len = pci_resource_len(pdev, PCI_WINDOW);
	if (fn->window_len < sizeof(struct card_header) || pci_resource_len(pdev, PCI_REGS) < 16)
		return -ENODEV;
	rc = pcim_iomap_regions(pdev, BIT(PCI_REGS), "npulink_pci");
	if (rc)
		return rc;
	fn->bar = pcim_iomap_table(pdev)[PCI_REGS];
	fn->window = devm_memremap(&pdev->dev, pci_resource_start(pdev, PCI_WINDOW),
				   fn->window_len, MEMREMAP_WB);
	if (IS_ERR(fn->window))
		return PTR_ERR(fn->window);
	rc = pci_read_layout(fn, &layout);
	if (rc)
		return rc;
	rc = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (rc)
		return rc;
	pci_set_master(pdev);
	rc = pci_alloc_irq_vectors(pdev, layout.cards, layout.cards, PCI_IRQ_MSIX);
	if (rc < 0)
		return rc;
	fn->ncards = layout.cards;
	INIT_DELAYED_WORK(&fn->watchdog, pci_watchdog);
	pci_set_drvdata(pdev, fn);
	for (i = 0; i < fn->ncards; i++) {
		rc = pci_card_add(fn, &layout, i);
		if (rc) {
			/* Somebody may use those that are there by now. */
			schedule_delayed_work(&fn->watchdog, 0);
			pci_del_cards(fn);
			pci_free_irq_vectors(pdev);
			return rc;
		}
	}
	schedule_delayed_work(&fn->watchdog, 0);
	return 0;
}

static void pci_remove(struct pci_dev *pdev)
{
	pci_del_cards(pci_get_drvdata(pdev));
	pci_free_irq_vectors(pdev);
	pci_clear_master(pdev);
}

/* kexec: whoever comes next owns the memory. */
static void pci_shutdown(struct pci_dev *pdev)
{
	struct pci_fn *fn = pci_get_drvdata(pdev);
	unsigned int i;

	cancel_delayed_work_sync(&fn->watchdog);
	for (i = 0; i < fn->ncards; i++)
		pci_card_stop(fn->cards[i]->priv);
	pci_clear_master(pdev);
}

/* Whoever has a rank on one of the cards is told, also if it is idle. */
static void pci_reset_prepare(struct pci_dev *pdev)
{
	struct pci_fn *fn = pci_get_drvdata(pdev);
	unsigned int i;

	cancel_delayed_work_sync(&fn->watchdog);
	for (i = 0; i < fn->ncards; i++) {
		npulink_fault(fn->cards[i], -EIO);
		pci_card_stop(fn->cards[i]->priv);
	}
}

static void pci_start_cards(struct pci_fn *fn)
{
	unsigned int i;

	for (i = 0; i < fn->ncards; i++) {
		struct pci_card *card = fn->cards[i]->priv;
		int rc = pci_card_start(card);

		if (rc)
			pci_card_fail(card, "does not start");
	}
	schedule_delayed_work(&fn->watchdog, 0);
}

static void pci_reset_done(struct pci_dev *pdev)
{
	struct pci_fn *fn = pci_get_drvdata(pdev);

	pci_set_master(pdev);
	WRITE_ONCE(fn->isolated, false);
	pci_start_cards(fn);
}

static const struct pci_error_handlers pci_error_handlers = {
	.reset_prepare = pci_reset_prepare,
	.reset_done = pci_reset_done,
};

static int pci_suspend(struct device *dev)
{
	struct pci_fn *fn = dev_get_drvdata(dev);
	unsigned int i;

	for (i = 0; i < fn->ncards; i++)
		pci_card_hold(fn->cards[i]->priv);
	cancel_delayed_work_sync(&fn->watchdog);
	return 0;
}

static int pci_resume(struct device *dev)
{
	pci_start_cards(dev_get_drvdata(dev));
	return 0;
}

static DEFINE_SIMPLE_DEV_PM_OPS(pci_pm_ops, pci_suspend, pci_resume);

static const struct pci_device_id pci_ids[] = {
	{ PCI_DEVICE(PCI_VENDOR, PCI_DEVICE_IVSHMEM) },
	{ }
};
MODULE_DEVICE_TABLE(pci, pci_ids);

static struct pci_driver pci_driver = {
	.name = "npulink_pci",
	.id_table = pci_ids,
	.probe = pci_probe,
	.remove = pci_remove,
	.shutdown = pci_shutdown,
	.err_handler = &pci_error_handlers,
	.driver.pm = pm_sleep_ptr(&pci_pm_ops),
	.dev_groups = pci_groups,
};

module_pci_driver(pci_driver);
MODULE_DESCRIPTION("npulink NPU cards");
MODULE_LICENSE("GPL");
NPULINK_IMPORT_NS(NPULINK);
