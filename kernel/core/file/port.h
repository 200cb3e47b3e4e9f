/* SPDX-License-Identifier: GPL-2.0 */
/*
 * port.h - ports of a device, over which other nodes are reached: port.c.
 */
#ifndef NPULINK_PORT_H
#define NPULINK_PORT_H

#include <linux/mutex.h>

struct net;
struct netlink_ext_ack;
struct npulink_device;
struct npulink_file;
struct npulink_port;
struct npulink_ucmd;

extern struct mutex npulink_ports_lock;

int npulink_port_add(struct npulink_device *dev, const char *kind, const char *name,
		     struct net *net, struct netlink_ext_ack *extack);
int npulink_port_del(struct npulink_device *dev, const char *kind, const char *name,
		     struct net *net, struct netlink_ext_ack *extack);
void npulink_ports_drop(struct npulink_device *dev);
int npulink_port_use(struct npulink_file *file, struct net *net);
void npulink_port_unuse(struct npulink_file *file);
int npulink_port_init(void);
void npulink_port_exit(void);
struct npulink_port *npulink_port_at(struct npulink_device *dev, u32 index, struct net *net);
int npulink_port_info_ioctl(struct npulink_ucmd *ucmd);

#endif /* NPULINK_PORT_H */
