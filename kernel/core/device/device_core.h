/* SPDX-License-Identifier: GPL-2.0 */
/*
 * device_core.h - devices and the links between them, as the core sees them: device.c, link.c.
 */
#ifndef NPULINK_DEVICE_CORE_H
#define NPULINK_DEVICE_CORE_H

#include <linux/fs.h>
#include <npulink/device.h>

#define NPULINK_MAX_DEVICES	1024

/*
 * struct npulink_device_events - what the rest of the core does when devices and links change
 * @fops: what can be done with their nodes
 * @added: a device can be opened. Task context
 * @removed: nobody finds it any more, and nothing new begins on it. Task context
 * @fail: as npulink_device.fail_work: end all communicators that have a rank on it
 * @flush: wait until all failures that were reported have reached everybody
 * @drained: nothing is in flight on it, and its interrupts have ended. Task context
 * @unmap: it is to see no buffer any more, and nobody its memory. Task context
 * @special: see npulink_device_set_special(). Any context but NMI
 * @link_changed: a link is up, or not. Any context but NMI
 * @link_lost: as npulink_link.fail_work, with a reference to the link: end what goes over it
 */
struct npulink_device_events {
	const struct file_operations *fops;
	void (*added)(struct npulink_device *dev);
	void (*removed)(struct npulink_device *dev);
	work_func_t fail;
	void (*flush)(void);
	void (*drained)(void);
	void (*unmap)(struct npulink_device *dev);
	void (*special)(bool special);
	void (*link_changed)(const struct npulink_link *link, bool up);
	work_func_t link_lost;
};

extern const struct npulink_device_events *npulink_device_events;
extern u8 npulink_node_id[16];

struct npulink_device *npulink_device_next(u32 *id);
struct npulink_device *npulink_device_get_by_minor(unsigned int minor);
void npulink_device_fail(struct npulink_device *dev, u32 cause, int status);
int npulink_device_init(const struct npulink_device_events *events);
void npulink_device_exit(void);

/* Links of @dev for the netlink dump; @id as for npulink_device_next(). */
struct npulink_link *npulink_link_next(struct npulink_device *dev, unsigned long *id);
struct npulink_link *npulink_link_get(struct npulink_device *dev, struct npulink_device *peer,
				      bool create);
void npulink_link_put(struct npulink_link *link);
void npulink_link_fail(struct npulink_link *link);
void npulink_link_set_lost(struct npulink_link *link, bool lost);
void npulink_links_drop(struct npulink_device *dev, struct list_head *dropped);
void npulink_links_close(struct list_head *dropped);

#endif /* NPULINK_DEVICE_CORE_H */
