// SPDX-License-Identifier: GPL-2.0
/*
 * port.c - ports to other machines: an administrator binds them to devices (npulink
 * link add), and only processes in the network namespace where that was done use them.
 *
 * A port does not hold its namespace, which takes the port with it when it ends. What takes calls
 * there does hold it, so calls are taken only as long as a file is open that wants them.
 */
#include <linux/mutex.h>
#include <linux/nsproxy.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <net/netns/generic.h>
#include <npulink/compat.h>
#include <npulink/transport.h>
#include "device/device_core.h"
#include "file/file.h"
#include "file/port.h"

/* A network namespace. @files: that are open, and may be called there. */
struct npulink_net {
	u32 files;
};

DEFINE_MUTEX(npulink_ports_lock);	/* transports, npulink_device.ports, npulink_net */
static LIST_HEAD(npulink_transports);
static unsigned int npulink_net_id;

static struct npulink_net *npulink_net_of(const struct net *net)
{
	lockdep_assert_held(&npulink_ports_lock);
	return net_generic(net, npulink_net_id);
}

int npulink_transport_register(struct npulink_transport *transport)
{
	mutex_lock(&npulink_ports_lock);
	list_add_tail(&transport->node, &npulink_transports);
	mutex_unlock(&npulink_ports_lock);
	return 0;
}
EXPORT_SYMBOL_NPULINK(npulink_transport_register);

/* Its module goes, so no port or connection of it is left. */
void npulink_transport_unregister(struct npulink_transport *transport)
{
	mutex_lock(&npulink_ports_lock);
	list_del(&transport->node);
	mutex_unlock(&npulink_ports_lock);
}
EXPORT_SYMBOL_NPULINK(npulink_transport_unregister);

static struct npulink_transport *npulink_transport_get(const char *kind)
{
	struct npulink_transport *t, *found = NULL;

	mutex_lock(&npulink_ports_lock);
	list_for_each_entry(t, &npulink_transports, node)
		if (!strcmp(t->name, kind) && try_module_get(t->owner))
			found = t;
	mutex_unlock(&npulink_ports_lock);
	return found;
}

/* The port number @index of those that processes in @net may use. */
struct npulink_port *npulink_port_at(struct npulink_device *dev, u32 index, struct net *net)
{
	struct npulink_port *port;

	lockdep_assert_held(&npulink_ports_lock);
	list_for_each_entry(port, &dev->ports, node)
		if (port->net == net && !index--)
			return port;
	return NULL;
}

static struct npulink_port *npulink_port_find(struct npulink_device *dev, const char *kind,
					      const char *name, struct net *net)
{
	struct npulink_port *port;

	lockdep_assert_held(&npulink_ports_lock);
	list_for_each_entry(port, &dev->ports, node)
		if (port->net == net && !strcmp(port->name, name) &&
		    !strcmp(port->transport->name, kind))
			return port;
	return NULL;
}

int npulink_port_add(struct npulink_device *dev, const char *kind, const char *name,
		     struct net *net, struct netlink_ext_ack *extack)
{
	struct npulink_transport *transport = npulink_transport_get(kind);
	struct npulink_port *port;
	int rc;

	if (!transport) {
		request_module("npulink-transport-%s", kind);
		transport = npulink_transport_get(kind);
	}
	if (!transport) {
		NL_SET_ERR_MSG(extack, "no module is loaded for links of this kind");
		return -EOPNOTSUPP;
	}
	port = kzalloc(sizeof(*port), GFP_KERNEL);
	if (!port) {
		rc = -ENOMEM;
		goto err_module;
	}
	port->dev = dev;
	port->transport = transport;
	port->net = net;
	strscpy(port->name, name, sizeof(port->name));
	mutex_lock(&npulink_ports_lock);
	rc = -EEXIST;
	if (npulink_port_find(dev, kind, name, net)) {
		NL_SET_ERR_MSG(extack, "the port is bound to the device already");
		goto err_unlock;
	}
	rc = -ENODEV;
	if (READ_ONCE(dev->gone))
		goto err_unlock;
	rc = transport->bind(port, extack);
	if (rc)
		goto err_unlock;
	rc = npulink_net_of(net)->files ? transport->listen(port) : 0;
	if (rc) {
		NL_SET_ERR_MSG(extack, "the port cannot take calls");
		goto err_bind;
	}
	list_add_tail(&port->node, &dev->ports);
	mutex_unlock(&npulink_ports_lock);
	return 0;

err_bind:
	mutex_unlock(&npulink_ports_lock);
	transport->unbind(port);
	kfree(port);
	goto err_module;
err_unlock:
	mutex_unlock(&npulink_ports_lock);
	kfree(port);
err_module:
	module_put(transport->owner);
	return rc;
}

/* It is on no list any more. */
static void npulink_port_release(struct npulink_port *port)
{
	port->transport->unbind(port);
	module_put(port->transport->owner);
	kfree(port);
}

int npulink_port_del(struct npulink_device *dev, const char *kind, const char *name,
		     struct net *net, struct netlink_ext_ack *extack)
{
	struct npulink_port *port;

	mutex_lock(&npulink_ports_lock);
	port = npulink_port_find(dev, kind, name, net);
	if (port)
		list_del(&port->node);
	mutex_unlock(&npulink_ports_lock);
	if (!port) {
		NL_SET_ERR_MSG(extack, "no such port is bound to the device");
		return -ENOENT;
	}
	npulink_port_release(port);
	return 0;
}

static void npulink_ports_release(struct list_head *ports)
{
	struct npulink_port *port, *next;

	list_for_each_entry_safe(port, next, ports, node)
		npulink_port_release(port);
}

/* The device is going. */
void npulink_ports_drop(struct npulink_device *dev)
{
	LIST_HEAD(ports);

	mutex_lock(&npulink_ports_lock);
	list_splice_init(&dev->ports, &ports);
	mutex_unlock(&npulink_ports_lock);
	npulink_ports_release(&ports);
}

/* ---- network namespaces --------------------------------------------------------------------- */

static void npulink_net_unlisten(const struct net *net)
{
	struct npulink_device *dev;
	struct npulink_port *port;
	u32 id;

	lockdep_assert_held(&npulink_ports_lock);
	for (id = 0; (dev = npulink_device_next(&id)); id++) {
		list_for_each_entry(port, &dev->ports, node)
			if (port->net == net)
				port->transport->unlisten(port);
		put_device(&dev->dev);
	}
}

static int npulink_net_listen(const struct net *net)
{
	struct npulink_device *dev;
	struct npulink_port *port;
	int rc = 0;
	u32 id;

	lockdep_assert_held(&npulink_ports_lock);
	for (id = 0; (dev = npulink_device_next(&id)); id++) {
		list_for_each_entry(port, &dev->ports, node)
			if (!rc && port->net == net)
				rc = port->transport->listen(port);
		put_device(&dev->dev);
	}
	if (rc)
		npulink_net_unlisten(net);
	return rc;
}

/* Until it is closed, @file may be called in @net, and in no other one. May sleep. */
static int npulink_port_use_locked(struct npulink_file *file, struct net *net)
{
	int rc = 0;

	lockdep_assert_held(&npulink_ports_lock);
	if (file->net)
		return file->net == net ? 0 : -EHOSTUNREACH;
	if (!npulink_net_of(net)->files)
		rc = npulink_net_listen(net);
	if (rc)
		return rc;
	npulink_net_of(net)->files++;
	file->net = get_net(net);
	return 0;
}

int npulink_port_use(struct npulink_file *file, struct net *net)
{
	int rc;

	mutex_lock(&npulink_ports_lock);
	rc = npulink_port_use_locked(file, net);
	mutex_unlock(&npulink_ports_lock);
	return rc;
}

/* @file is being closed. May sleep. */
void npulink_port_unuse(struct npulink_file *file)
{
	if (!file->net)
		return;
	mutex_lock(&npulink_ports_lock);
	if (!--npulink_net_of(file->net)->files)
		npulink_net_unlisten(file->net);
	mutex_unlock(&npulink_ports_lock);
	put_net(file->net);
	file->net = NULL;
}

/* No file is left in @net. Before anything else of it goes, whoever has registered first. */
static void npulink_net_pre_exit(struct net *net)
{
	struct npulink_port *port, *next;
	struct npulink_device *dev;
	LIST_HEAD(ports);
	u32 id;

	mutex_lock(&npulink_ports_lock);
	for (id = 0; (dev = npulink_device_next(&id)); id++) {
		list_for_each_entry_safe(port, next, &dev->ports, node)
			if (port->net == net)
				list_move(&port->node, &ports);
		put_device(&dev->dev);
	}
	mutex_unlock(&npulink_ports_lock);
	npulink_ports_release(&ports);
}

static struct pernet_operations npulink_net_ops = {
	.pre_exit = npulink_net_pre_exit,
	.id = &npulink_net_id,
	.size = sizeof(struct npulink_net),
};

int npulink_port_init(void)
{
	return register_pernet_subsys(&npulink_net_ops);
}

void npulink_port_exit(void)
{
	unregister_pernet_subsys(&npulink_net_ops);
}

/* ---- what a process asks --------------------------------------------------------------------- */

int npulink_port_info_ioctl(struct npulink_ucmd *ucmd)
{
	struct npulink_port_info *cmd = ucmd->cmd;
	struct net *net = current->nsproxy->net_ns;
	const struct npulink_port *port;
	int rc = -ENOENT;

	if (cmd->flags)
		return -EOPNOTSUPP;
	mutex_lock(&npulink_ports_lock);
	port = npulink_port_at(ucmd->file->dev, cmd->index, net);
	if (port)
		rc = npulink_port_use_locked(ucmd->file, net);
	if (!rc) {
		cmd->out_kind = port->transport->kind;
		memcpy(cmd->out_name, port->name, sizeof(cmd->out_name));
		cmd->out_addr = port->addr;
	}
	mutex_unlock(&npulink_ports_lock);
	return rc ?: npulink_ucmd_respond(ucmd, sizeof(*cmd));
}
