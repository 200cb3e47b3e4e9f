// SPDX-License-Identifier: GPL-2.0
/*
 * port_genl.c - binding ports to devices, and looking at them, over generic netlink
 * (npulink link add, del, ports).
 */
#include <linux/npulink_genl.h>
#include <net/genetlink.h>
#include <net/sock.h>
#include "remote.h"

const struct nla_policy npulink_genl_port_policy[NPULINK_A_PORT_NAME + 1] = {
	[NPULINK_A_PORT_DEV] = { .type = NLA_U32 },
	[NPULINK_A_PORT_KIND] = { .type = NLA_NUL_STRING, .len = 15 },
	[NPULINK_A_PORT_NAME] = { .type = NLA_NUL_STRING,
				  .len = sizeof_field(struct npulink_port, name) - 1 },
};

const struct nla_policy npulink_genl_no_policy[1] = {};

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

/* A dump goes on with port args[1] of device args[0]. */
int npulink_genl_port_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct net *net = sock_net(cb->skb->sk);
	u32 id = cb->args[0], index = cb->args[1];
	struct npulink_device *dev;
	int rc = 0;

	while (!rc && (dev = npulink_device_next(&id))) {
		const struct npulink_port *port;

		if (id != cb->args[0])
			index = 0;
		cb->args[0] = id;
		mutex_lock(&npulink_ports_lock);
		while (!rc && (port = npulink_port_at(dev, index, net))) {
			void *header = genlmsg_put(skb, NETLINK_CB(cb->skb).portid,
						   cb->nlh->nlmsg_seq, &npulink_genl_family,
						   NLM_F_MULTI, NPULINK_GENL_CMD_PORT_GET);

			rc = header ? npulink_genl_fill_port(skb, port) : -EMSGSIZE;
			if (rc) {
				genlmsg_cancel(skb, header);
			} else {
				genlmsg_end(skb, header);
				index++;
			}
		}
		mutex_unlock(&npulink_ports_lock);
		cb->args[1] = index;
		put_device(&dev->dev);
		if (!rc)
			id++;
	}
	if (!rc)
		cb->args[0] = NPULINK_MAX_DEVICES;
	return skb->len ?: rc;
}
