// SPDX-License-Identifier: GPL-2.0
/*
 * npulink_canary.c - makes one mistake when it is loaded, for debug_kernel.sh to see that the
 * debug kernel notices. Never installed.
 */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/kthread.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/platform_device.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/timer.h>

static char *canary_mistake = "";
module_param_named(mistake, canary_mistake, charp, 0);
MODULE_PARM_DESC(mistake, "order, atomic, timer, list, leak, overrun, freed, dma or race");

static DEFINE_MUTEX(canary_a);
static DEFINE_MUTEX(canary_b);

/* Two mutexes in both orders: no deadlock here and now. */
static void canary_order(void)
{
	mutex_lock(&canary_a);
	mutex_lock(&canary_b);
	mutex_unlock(&canary_b);
	mutex_unlock(&canary_a);
	mutex_lock(&canary_b);
	mutex_lock(&canary_a);
	mutex_unlock(&canary_a);
	mutex_unlock(&canary_b);
}

static void canary_atomic(void)
{
	static DEFINE_SPINLOCK(lock);

	spin_lock(&lock);
	might_sleep();
	spin_unlock(&lock);
}

struct canary_timer {
	struct timer_list timer;
};

static void canary_tick(struct timer_list *timer)
{
}

/* Freed while it runs; DEBUG_OBJECTS stops it before that does harm. */
static void canary_timer(void)
{
	struct canary_timer *t = kzalloc(sizeof(*t), GFP_KERNEL);

	if (!t)
		return;
	timer_setup(&t->timer, canary_tick, 0);
	mod_timer(&t->timer, jiffies + HZ);
	kfree(t);
}

static void canary_list(void)
{
	static struct list_head node;
	static LIST_HEAD(list);

	list_add(&node, &list);
	list_add(&node, &list);
}

static void canary_leak(void)
{
	int i;

	/* Several, as a stale register or stack slot may hold the last. */
	for (i = 0; i < 16; i++)
		memset(kmalloc(100, GFP_KERNEL | __GFP_NOFAIL), i, 100);
}

/* Reads only: KASAN keeps lists of its own in what was freed. */
static void canary_overrun(bool freed)
{
	char *p = kmalloc(32, GFP_KERNEL);

	if (!p)
		return;
	OPTIMIZER_HIDE_VAR(p);
	if (freed)
		kfree(p);
	(void)READ_ONCE(p[freed ? 0 : 32]);
	if (!freed)
		kfree(p);
}

/* An address that nobody mapped for this device. */
static void canary_dma(void)
{
	struct platform_device *dev;

	dev = platform_device_register_simple("npulink_canary", -1, NULL, 0);
	if (IS_ERR(dev))
		return;
	dma_unmap_single(&dev->dev, 0x1000, 64, DMA_TO_DEVICE);
	platform_device_unregister(dev);
}

static int canary_count;

static int canary_racer(void *arg)
{
	while (!kthread_should_stop()) {
		canary_count++;
		cond_resched();
	}
	return 0;
}

/* Two that count without a lock, until KCSAN has looked at it. */
static void canary_race(void)
{
	struct task_struct *racer[2];
	int i;

	for (i = 0; i < 2; i++)
		racer[i] = kthread_run(canary_racer, NULL, "canary/%d", i);
	msleep(5000);
	for (i = 0; i < 2; i++)
		if (!IS_ERR(racer[i]))
			kthread_stop(racer[i]);
}

static int __init canary_init(void)
{
	if (!strcmp(canary_mistake, "order"))
		canary_order();
	else if (!strcmp(canary_mistake, "atomic"))
		canary_atomic();
	else if (!strcmp(canary_mistake, "timer"))
		canary_timer();
	else if (!strcmp(canary_mistake, "list"))
		canary_list();
	else if (!strcmp(canary_mistake, "leak"))
		canary_leak();
	else if (!strcmp(canary_mistake, "overrun"))
		canary_overrun(false);
	else if (!strcmp(canary_mistake, "freed"))
		canary_overrun(true);
	else if (!strcmp(canary_mistake, "dma"))
		canary_dma();
	else if (!strcmp(canary_mistake, "race"))
		canary_race();
	else
		return -EINVAL;
	return 0;
}

static void __exit canary_exit(void)
{
}

module_init(canary_init);
module_exit(canary_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("npulink: makes the mistakes that a debug kernel has to notice");
