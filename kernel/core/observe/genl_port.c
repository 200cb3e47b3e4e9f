// SPDX-License-Identifier: GPL-2.0
/*
 * genl_port.c - binding ports to devices, and looking at them, over generic netlink
 * (npulink link add, del, ports).
 */
#include <linux/mutex.h>
#include <net/sock.h>
#include <npulink/transport.h>
#include "device/device_core.h"
#include "file/port.h"
#include "observe/genl.h"

const struct nla_policy npulink_genl_port_policy[NPULINK_A_PORT_NAME + 1] = {
	[NPULINK_A_PORT_DEV] = { .type = NLA_U32 },
	[NPULINK_A_PORT_KIND] = { .type = NLA_NUL_STRING, .len = 15 },
	[NPULINK_A_PORT_NAME] = { .type = NLA_NUL_STRING,
				  .len = sizeof_field(struct npulink_port, name) - 1 },
};

static int npulink_genl_port_do(struct genl_info *info,
				int (*fn)(struct npulink_device *dev, const char *kind,
					  const char *name, struct net *net,
					  struct netlink_ext_ack *extack))
{
	struct npulink_device *dev;
	int rc;

	if (GENL_REQ_ATTR_CHECK(info, NPULINK_A_PORT_DEV) ||
	    GENL_REQ_ATTR_CHECK(info, NPULINK_A_PORT_KIND) ||
	    GENL_REQ_ATTR_CHECK(info, NPULINK_A_PORT_NAME))
		return -EINVAL;
	dev = npulink_device_get_by_minor(nla_get_u32(info->attrs[NPULINK_A_PORT_DEV]));
	if (!dev) {
		NL_SET_ERR_MSG_ATTR(info->extack, info->attrs[NPULINK_A_PORT_DEV],
				    "no such device");
		return -ENODEV;
	}
	rc = fn(dev, nla_data(info->attrs[NPULINK_A_PORT_KIND]),
		nla_data(info->attrs[NPULINK_A_PORT_NAME]), genl_info_net(info), info->extack);
	put_device(&dev->dev);
	return rc;
}

int npulink_genl_port_add(struct sk_buff *skb, struct genl_info *info)
{
	return npulink_genl_port_do(info, npulink_port_add);
}

int npulink_genl_port_del(struct sk_buff *skb, struct genl_info *info)
{
	return npulink_genl_port_do(info, npulink_port_del);
}

static int npulink_genl_fill_port(struct sk_buff *skb, const struct npulink_port *port)
{
	if (nla_put_u32(skb, NPULINK_A_PORT_DEV, port->dev->id) ||
	    nla_put_string(skb, NPULINK_A_PORT_KIND, port->transport->name) ||
	    nla_put_string(skb, NPULINK_A_PORT_NAME, port->name) ||
	    nla_put(skb, NPULINK_A_PORT_IP, sizeof(port->addr.ip), port->addr.ip) ||
	    nla_put_u16(skb, NPULINK_A_PORT_CM, be16_to_cpu(port->addr.port)))
		return -EMSGSIZE;
	return 0;
}

/* Goes on with port args[1]. */
static int npulink_genl_dump_ports(struct sk_buff *skb, struct netlink_callback *cb, void *obj)
{
	struct net *net = sock_net(cb->skb->sk);
	const struct npulink_port *port;
	void *header;
	int rc = 0;

	mutex_lock(&npulink_ports_lock);
	for (; !rc && (port = npulink_port_at(obj, cb->args[1], net)); cb->args[1] += !rc) {
		header = npulink_genl_put(skb, cb, NPULINK_GENL_CMD_PORT_GET);
		rc = header ? npulink_genl_fill_port(skb, port) : -EMSGSIZE;
		npulink_genl_done(skb, header, rc);
	}
	mutex_unlock(&npulink_ports_lock);
	return rc;
}

int npulink_genl_port_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	return npulink_genl_dump(skb, cb, &npulink_genl_devs, 0, npulink_genl_dump_ports);
}
