// SPDX-License-Identifier: GPL-2.0
/*
 * port.c - ports to other machines: an administrator binds them to devices (npulink
 * link add), and only processes in the network namespace where that was done use them.
 */
#include <linux/nsproxy.h>
#include <linux/uaccess.h>
#include "remote.h"

DEFINE_MUTEX(npulink_ports_lock);	/* transports, and npulink_device.ports */
static LIST_HEAD(npulink_transports);

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
	port->net = get_net(net);
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
	list_add_tail(&port->node, &dev->ports);
	mutex_unlock(&npulink_ports_lock);
	return 0;

err_unlock:
	mutex_unlock(&npulink_ports_lock);
	put_net(port->net);
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
	put_net(port->net);
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

/* The device is going. */
void npulink_ports_drop(struct npulink_device *dev)
{
	struct npulink_port *port, *next;
	LIST_HEAD(ports);

	mutex_lock(&npulink_ports_lock);
	list_splice_init(&dev->ports, &ports);
	mutex_unlock(&npulink_ports_lock);
	list_for_each_entry_safe(port, next, &ports, node)
		npulink_port_release(port);
}

int npulink_port_info_ioctl(struct npulink_ucmd *ucmd)
{
	struct npulink_port_info *cmd = ucmd->cmd;
	const struct npulink_port *port;

	if (cmd->flags)
		return -EOPNOTSUPP;
	mutex_lock(&npulink_ports_lock);
	port = npulink_port_at(ucmd->file->dev, cmd->index, current->nsproxy->net_ns);
	if (port) {
		cmd->out_kind = port->transport->kind;
		memcpy(cmd->out_name, port->name, sizeof(cmd->out_name));
		cmd->out_addr = port->addr;
	}
	mutex_unlock(&npulink_ports_lock);
	return port ? npulink_ucmd_respond(ucmd, sizeof(*cmd)) : -ENOENT;
}
