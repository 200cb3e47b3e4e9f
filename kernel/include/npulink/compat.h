/* SPDX-License-Identifier: GPL-2.0 */
/*
 * compat.h - the differences between kernel versions, as inlines. Everything here
 * can be deleted when the old kernels are; nothing else looks at the version.
 */
#ifndef NPULINK_COMPAT_H
#define NPULINK_COMPAT_H

#include <linux/device/class.h>
#include <linux/dma-buf.h>
#include <linux/eventfd.h>
#include <linux/hrtimer.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/version.h>
#include <net/genetlink.h>

static inline void npulink_eventfd_signal(struct eventfd_ctx *ctx)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 8, 0)
	eventfd_signal(ctx);
#else
	eventfd_signal(ctx, 1);
#endif
}

static inline void npulink_vma_flags_set(struct vm_area_struct *vma, unsigned long flags)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_set(vma, flags);
#else
	vma->vm_flags |= flags;
#endif
}

static inline void npulink_vma_flags_clear(struct vm_area_struct *vma, unsigned long flags)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_clear(vma, flags);
#else
	vma->vm_flags &= ~flags;
#endif
}

static inline struct class *npulink_class_create(const char *name)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
	return class_create(name);
#else
	return class_create(THIS_MODULE, name);
#endif
}

/*
 * Pins of private memory that is only read. Since 6.2 FOLL_LONGTERM gives it pages of its own,
 * where it has none: good for anonymous memory, while of a mapped file it would make a copy.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
#define NPULINK_PIN_ANON	FOLL_LONGTERM
#define NPULINK_PIN_FILE	0
#else
#define NPULINK_PIN_ANON	(FOLL_LONGTERM | FOLL_WRITE | FOLL_FORCE)
#define NPULINK_PIN_FILE	FOLL_LONGTERM
#endif

/* The devnode callback's argument became const. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
#define NPULINK_DEVNODE_CONST const
#else
#define NPULINK_DEVNODE_CONST
#endif

/* Namespaces of symbols became strings. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
#define NPULINK_IMPORT_NS(ns) MODULE_IMPORT_NS(#ns)
#define EXPORT_SYMBOL_NPULINK(sym) EXPORT_SYMBOL_NS_GPL(sym, "NPULINK")
#else
#define NPULINK_IMPORT_NS(ns) MODULE_IMPORT_NS(ns)
#define EXPORT_SYMBOL_NPULINK(sym) EXPORT_SYMBOL_NS_GPL(sym, NPULINK)
#endif

/* Mapping without the reservation lock held got a name of its own. */
static inline int npulink_dma_buf_vmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
	return dma_buf_vmap_unlocked(dmabuf, map);
#else
	return dma_buf_vmap(dmabuf, map);
#endif
}

static inline void npulink_dma_buf_vunmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
	dma_buf_vunmap_unlocked(dmabuf, map);
#else
	dma_buf_vunmap(dmabuf, map);
#endif
}

/* Attributes of a dump's request. */
static inline struct nlattr **npulink_genl_dump_attrs(struct netlink_callback *cb)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 7, 0)
	return genl_dumpit_info(cb)->info.attrs;
#else
	return genl_dumpit_info(cb)->attrs;
#endif
}

/*
 * Multicast to those whom @skip does not leave out. Before 6.8 a kernel cannot choose: then all get
 * what it is called for, and NPULINK_GENL_CHOOSES is 0.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 8, 0)
#define NPULINK_GENL_CHOOSES	1
#else
#define NPULINK_GENL_CHOOSES	0
#endif

static inline int npulink_genl_multicast_to(const struct genl_family *family, struct net *net,
					    struct sk_buff *skb, gfp_t flags,
					    int (*skip)(struct sock *sk, struct sk_buff *skb,
							void *data),
					    void *data)
{
#if NPULINK_GENL_CHOOSES
	return genlmsg_multicast_netns_filtered(family, net, skb, 0, 0, flags, skip, data);
#else
	return genlmsg_multicast_netns(family, net, skb, 0, 0, flags);
#endif
}

static inline void npulink_hrtimer_setup(struct hrtimer *timer,
					 enum hrtimer_restart (*fn)(struct hrtimer *),
					 clockid_t clock, enum hrtimer_mode mode)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	hrtimer_setup(timer, fn, clock, mode);
#else
	hrtimer_init(timer, clock, mode);
	timer->function = fn;
#endif
}

#endif /* NPULINK_COMPAT_H */
