/* SPDX-License-Identifier: GPL-2.0 */
/*
 * ioctl.h - the system calls on an open device: ioctl.c.
 */
#ifndef NPULINK_IOCTL_H
#define NPULINK_IOCTL_H

#include <linux/fs.h>

#define NPULINK_VERSION	"0.2.0"

extern const struct file_operations npulink_fops;

#endif /* NPULINK_IOCTL_H */
