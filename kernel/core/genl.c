// SPDX-License-Identifier: GPL-2.0
/*
 * genl.c - generic netlink family "npulink": devices and links, for people and
 * monitoring (uapi/linux/npulink_genl.h).
 *
 * Everything here only reads, needs no privilege and says the same in every
 * network namespace: devices belong to the node. Dumps resume by id, so they
 * report every device that is there all the time, exactly once.
 */
#include <linux/module.h>
#include <linux/xarray.h>
#include <linux/npulink_genl.h>
#include <net/genetlink.h>
#include "core.h"

static const struct nla_policy npulink_genl_dev_policy[] = {
	[NPULINK_A_DEV_ID] = { .type = NLA_U32 },
};

static const struct nla_policy npulink_genl_link_policy[] = {
	[NPULINK_A_LINK_DEV] = { .type = NLA_U32 },
};

static int npulink_genl_put_u64(struct sk_buff *skb, int attr, const atomic64_t *value, int pad)
{
	return nla_put_u64_64bit(skb, attr, atomic64_read(value), pad);
}

static int npulink_genl_fill_dev(struct sk_buff *skb, struct npulink_device *dev)
{
	const struct npulink_device_stats *stats = &dev->stats;

	if (nla_put_u32(skb, NPULINK_A_DEV_ID, dev->id) ||
	    nla_put_string(skb, NPULINK_A_DEV_NAME, dev_name(&dev->dev)) ||
	    nla_put_string(skb, NPULINK_A_DEV_BACKEND, dev->backend) ||
	    nla_put_string(skb, NPULINK_A_DEV_ENGINE, dev->engine) ||
	    nla_put_u32(skb, NPULINK_A_DEV_DTYPES, dev->dtypes) ||
	    nla_put_u32(skb, NPULINK_A_DEV_REDOPS, dev->redops) ||
	    nla_put_u32(skb, NPULINK_A_DEV_SLICE, dev->slice) ||
	    nla_put_u32(skb, NPULINK_A_DEV_INLINE_MAX, READ_ONCE(dev->inline_max)) ||
	    nla_put_u32(skb, NPULINK_A_DEV_DOORBELLS, dev->ndoorbells) ||
	    npulink_genl_put_u64(skb, NPULINK_A_DEV_REQUESTS, &stats->requests,
				 NPULINK_A_DEV_PAD) ||
	    npulink_genl_put_u64(skb, NPULINK_A_DEV_INLINE_DONE, &stats->inline_done,
				 NPULINK_A_DEV_PAD) ||
	    npulink_genl_put_u64(skb, NPULINK_A_DEV_INTERRUPTS, &stats->interrupts,
				 NPULINK_A_DEV_PAD) ||
	    npulink_genl_put_u64(skb, NPULINK_A_DEV_BYTES_READ, &stats->bytes_read,
				 NPULINK_A_DEV_PAD) ||
	    npulink_genl_put_u64(skb, NPULINK_A_DEV_BYTES_WRITTEN, &stats->bytes_written,
				 NPULINK_A_DEV_PAD))
		return -EMSGSIZE;
	return 0;
}

static int npulink_genl_fill_link(struct sk_buff *skb, struct npulink_link *link)
{
	const struct npulink_link_stats *stats = &link->stats;

	if (nla_put_u32(skb, NPULINK_A_LINK_DEV, link->dev->id) ||
	    nla_put_u32(skb, NPULINK_A_LINK_PEER, link->peer->id) ||
	    npulink_genl_put_u64(skb, NPULINK_A_LINK_STEPS, &stats->steps, NPULINK_A_LINK_PAD) ||
	    npulink_genl_put_u64(skb, NPULINK_A_LINK_BYTES, &stats->bytes, NPULINK_A_LINK_PAD) ||
	    npulink_genl_put_u64(skb, NPULINK_A_LINK_DOORBELLS, &stats->doorbells,
				 NPULINK_A_LINK_PAD) ||
	    npulink_genl_put_u64(skb, NPULINK_A_LINK_INLINE_BELLS, &stats->inline_bells,
				 NPULINK_A_LINK_PAD) ||
	    npulink_genl_put_u64(skb, NPULINK_A_LINK_DAMAGED, &stats->damaged,
				 NPULINK_A_LINK_PAD))
		return -EMSGSIZE;
	return 0;
}

static int npulink_genl_dev_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct npulink_device *dev;
	struct sk_buff *reply;
	void *header;
	u32 id;
	int rc;

	if (GENL_REQ_ATTR_CHECK(info, NPULINK_A_DEV_ID))
		return -EINVAL;
	id = nla_get_u32(info->attrs[NPULINK_A_DEV_ID]);
	dev = npulink_device_get_by_minor(id);
	if (!dev) {
		NL_SET_ERR_MSG_ATTR(info->extack, info->attrs[NPULINK_A_DEV_ID],
				    "no such device");
		return -ENODEV;
	}

	reply = genlmsg_new(GENLMSG_DEFAULT_SIZE, GFP_KERNEL);
	if (!reply) {
		rc = -ENOMEM;
		goto err_put;
	}
	header = genlmsg_put_reply(reply, info, &npulink_genl_family, 0,
				   NPULINK_GENL_CMD_DEV_GET);
	if (!header) {
		rc = -EMSGSIZE;
		goto err_free;
	}
	rc = npulink_genl_fill_dev(reply, dev);
	if (rc)
		goto err_free;
	genlmsg_end(reply, header);
	put_device(&dev->dev);
	return genlmsg_reply(reply, info);

err_free:
	nlmsg_free(reply);
err_put:
	put_device(&dev->dev);
	return rc;
}

static int npulink_genl_dev_start(struct netlink_callback *cb)
{
	struct nlattr **attrs = npulink_genl_dump_attrs(cb);

	if (attrs[NPULINK_A_DEV_ID]) {
		NL_SET_ERR_MSG_ATTR(cb->extack, attrs[NPULINK_A_DEV_ID],
				    "a dump is of all devices");
		return -EINVAL;
	}
	return 0;
}

/* A dump goes on with the device args[0]. */
static int npulink_genl_dev_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	u32 id = cb->args[0];
	struct npulink_device *dev;
	void *header;
	int rc;

	while ((dev = npulink_device_next(&id))) {
		id = dev->id;
		header = genlmsg_put(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq,
				     &npulink_genl_family, NLM_F_MULTI, NPULINK_GENL_CMD_DEV_GET);
		rc = header ? npulink_genl_fill_dev(skb, dev) : -EMSGSIZE;
		put_device(&dev->dev);
		if (rc) {
			genlmsg_cancel(skb, header);
			cb->args[0] = id;
			return skb->len ?: rc;
		}
		genlmsg_end(skb, header);
		id++;
	}
	cb->args[0] = NPULINK_MAX_DEVICES;
	return skb->len;
}

static int npulink_genl_link_start(struct netlink_callback *cb)
{
	struct nlattr *attr = npulink_genl_dump_attrs(cb)[NPULINK_A_LINK_DEV];
	struct npulink_device *dev;

	if (!attr)
		return 0;
	dev = npulink_device_get_by_minor(nla_get_u32(attr));
	if (!dev) {
		NL_SET_ERR_MSG_ATTR(cb->extack, attr, "no such device");
		return -ENODEV;
	}
	cb->args[0] = dev->id;
	put_device(&dev->dev);
	return 0;
}

/* Links of @dev to devices from *@peer on; with an error, *@peer is the first left. */
static int npulink_genl_dump_links(struct sk_buff *skb, struct netlink_callback *cb,
				   struct npulink_device *dev, unsigned long *peer)
{
	struct npulink_link *link;
	void *header;
	int rc;

	while ((link = npulink_link_next(dev, peer))) {
		*peer = link->peer->id;
		header = genlmsg_put(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq,
				     &npulink_genl_family, NLM_F_MULTI, NPULINK_GENL_CMD_LINK_GET);
		rc = header ? npulink_genl_fill_link(skb, link) : -EMSGSIZE;
		npulink_link_put(link);
		if (rc) {
			genlmsg_cancel(skb, header);
			return rc;
		}
		genlmsg_end(skb, header);
		++*peer;
	}
	return 0;
}

/* A dump goes on with the link from device args[0] to device args[1]. */
static int npulink_genl_link_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct nlattr *only = npulink_genl_dump_attrs(cb)[NPULINK_A_LINK_DEV];
	u32 id = cb->args[0], resumed = id;
	struct npulink_device *dev;
	unsigned long peer;
	int rc;

	while ((dev = npulink_device_next(&id))) {
		id = dev->id;
		if (only && id != nla_get_u32(only)) {
			put_device(&dev->dev);
			break;
		}
		peer = id == resumed ? cb->args[1] : 0;
		rc = npulink_genl_dump_links(skb, cb, dev, &peer);
		put_device(&dev->dev);
		if (rc) {
			cb->args[0] = id;
			cb->args[1] = peer;
			return skb->len ?: rc;
		}
		id++;
	}
	cb->args[0] = NPULINK_MAX_DEVICES;
	return skb->len;
}

static const struct genl_ops npulink_genl_ops[] = {
	{
		.cmd = NPULINK_GENL_CMD_DEV_GET,
		.doit = npulink_genl_dev_doit,
		.start = npulink_genl_dev_start,
		.dumpit = npulink_genl_dev_dumpit,
		.policy = npulink_genl_dev_policy,
		.maxattr = ARRAY_SIZE(npulink_genl_dev_policy) - 1,
	},
	{
		.cmd = NPULINK_GENL_CMD_LINK_GET,
		.start = npulink_genl_link_start,
		.dumpit = npulink_genl_link_dumpit,
		.policy = npulink_genl_link_policy,
		.maxattr = ARRAY_SIZE(npulink_genl_link_policy) - 1,
	},
	{
		.cmd = NPULINK_GENL_CMD_FLIGHT_GET,
		.start = npulink_genl_flight_start,
		.dumpit = npulink_genl_flight_dumpit,
		.policy = npulink_genl_flight_policy,
		.maxattr = NPULINK_GENL_FLIGHT_MAXATTR,
	},
	{
		.cmd = NPULINK_GENL_CMD_PORT_ADD,
		.doit = npulink_genl_port_add,
		.flags = GENL_ADMIN_PERM,
		.policy = npulink_genl_port_policy,
		.maxattr = NPULINK_A_PORT_NAME,
	},
	{
		.cmd = NPULINK_GENL_CMD_PORT_DEL,
		.doit = npulink_genl_port_del,
		.flags = GENL_ADMIN_PERM,
		.policy = npulink_genl_port_policy,
		.maxattr = NPULINK_A_PORT_NAME,
	},
	{
		.cmd = NPULINK_GENL_CMD_PORT_GET,
		.dumpit = npulink_genl_port_dumpit,
		.policy = npulink_genl_no_policy,
		.maxattr = 0,
	},
};

static const struct genl_multicast_group npulink_genl_groups[] = {
	{ .name = NPULINK_GENL_GROUP_EVENTS },
};

struct genl_family npulink_genl_family __ro_after_init = {
	.name = NPULINK_GENL_NAME,
	.version = NPULINK_GENL_VERSION,
	.netnsok = true,
	.parallel_ops = true,
	.module = THIS_MODULE,
	.ops = npulink_genl_ops,
	.n_ops = ARRAY_SIZE(npulink_genl_ops),
	.mcgrps = npulink_genl_groups,
	.n_mcgrps = ARRAY_SIZE(npulink_genl_groups),
};

int __init npulink_genl_init(void)
{
	return genl_register_family(&npulink_genl_family);
}

void npulink_genl_exit(void)
{
	genl_unregister_family(&npulink_genl_family);
}

MODULE_ALIAS_GENL_FAMILY(NPULINK_GENL_NAME);
