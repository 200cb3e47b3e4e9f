// SPDX-License-Identifier: GPL-2.0
/*
 * genl.c - generic netlink family "npulink", for people and monitoring
 * (uapi/linux/npulink_genl.h); devices, links and events by themselves.
 *
 * Everything here only reads, needs no privilege and says the same in every
 * network namespace: devices belong to the node. Dumps resume by id, so they
 * report every object that is there all the time, exactly once.
 */
#include <linux/capability.h>
#include <linux/module.h>
#include <linux/xarray.h>
#include <net/sock.h>
#include <npulink/compat.h>
#include "base/notify.h"
#include "device/device_core.h"
#include "observe/genl.h"

static const struct nla_policy npulink_genl_dev_policy[] = {
	[NPULINK_A_DEV_ID] = { .type = NLA_U32 },
};

static const struct nla_policy npulink_genl_link_policy[] = {
	[NPULINK_A_LINK_DEV] = { .type = NLA_U32 },
};

static const struct nla_policy npulink_genl_rank_policy[] = {
	[NPULINK_A_RANK_COMM] = { .type = NLA_U32 },
};

static const struct nla_policy npulink_genl_op_policy[] = {
	[NPULINK_A_OP_COMM] = { .type = NLA_U32 },
};

static const struct nla_policy npulink_genl_conn_policy[] = {
	[NPULINK_A_CONN_COMM] = { .type = NLA_U32 },
};

static const struct nla_policy npulink_genl_buf_policy[] = {
	[NPULINK_A_BUF_FILE] = { .type = NLA_U32 },
};

/* Of requests that take no attribute; with none at all, any would be ignored. */
static const struct nla_policy npulink_genl_no_policy[] = {
	[1] = { .type = NLA_REJECT },
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
	    nla_put_u64_64bit(skb, NPULINK_A_DEV_MEMORY, dev->memory, NPULINK_A_DEV_PAD) ||
	    npulink_genl_put_u64(skb, NPULINK_A_DEV_MEMORY_USED, &dev->memory_used,
				 NPULINK_A_DEV_PAD) ||
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
				 NPULINK_A_LINK_PAD) ||
	    nla_put_string(skb, NPULINK_A_LINK_TYPE, link->dev->backend) ||
	    nla_put_u32(skb, NPULINK_A_LINK_STATE, READ_ONCE(link->lost) ?
			NPULINK_LINK_STATE_DOWN : NPULINK_LINK_STATE_UP) ||
	    npulink_genl_put_u64(skb, NPULINK_A_LINK_ERRORS, &stats->errors, NPULINK_A_LINK_PAD) ||
	    npulink_genl_put_u64(skb, NPULINK_A_LINK_MOVES, &stats->moves, NPULINK_A_LINK_PAD) ||
	    npulink_genl_put_u64(skb, NPULINK_A_LINK_MOVE_BYTES, &stats->move_bytes,
				 NPULINK_A_LINK_PAD) ||
	    npulink_genl_put_u64(skb, NPULINK_A_LINK_MOVE_NS, &stats->move_ns,
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

static int npulink_genl_dump_dev(struct sk_buff *skb, struct netlink_callback *cb, void *obj)
{
	void *header = npulink_genl_put(skb, cb, NPULINK_GENL_CMD_DEV_GET);
	int rc = header ? npulink_genl_fill_dev(skb, obj) : -EMSGSIZE;

	npulink_genl_done(skb, header, rc);
	return rc;
}

static int npulink_genl_dev_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	return npulink_genl_dump(skb, cb, &npulink_genl_devs, 0, npulink_genl_dump_dev);
}

static int npulink_genl_link_start(struct netlink_callback *cb)
{
	return npulink_genl_start(cb, &npulink_genl_devs, NPULINK_A_LINK_DEV);
}

/* Goes on with the link to device args[1]. */
static int npulink_genl_dump_links(struct sk_buff *skb, struct netlink_callback *cb, void *obj)
{
	unsigned long peer = cb->args[1];
	struct npulink_link *link;
	void *header;
	int rc;

	for (; (link = npulink_link_next(obj, &peer)); peer++) {
		header = npulink_genl_put(skb, cb, NPULINK_GENL_CMD_LINK_GET);
		rc = header ? npulink_genl_fill_link(skb, link) : -EMSGSIZE;
		npulink_link_put(link);
		npulink_genl_done(skb, header, rc);
		if (rc) {
			cb->args[1] = peer;
			return rc;
		}
	}
	return 0;
}

static int npulink_genl_link_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	return npulink_genl_dump(skb, cb, &npulink_genl_devs, NPULINK_A_LINK_DEV,
				 npulink_genl_dump_links);
}

/* Is a member of its communicator in @net? */
static bool npulink_genl_has_member(const struct net *net, const struct npulink_notice *n)
{
	u32 i;

	for (i = 0; i < n->nnets; i++)
		if (net->net_cookie == n->nets[i])
			return true;
	return false;
}

/* Does @net hear more of it than that there was one? What is nobody's is for all. */
static bool npulink_genl_hears(const struct net *net, const struct npulink_notice *n)
{
	return npulink_genl_has_member(net, n) || n->comm == ~0U || net_eq(net, &init_net);
}

static int npulink_genl_put_event_place(struct sk_buff *skb, const struct net *net,
					const struct npulink_notice *n)
{
	/* The place of a rank on another node is known where members here have heard of it. */
	if (n->place_net ? net->net_cookie != n->place_net : !npulink_genl_has_member(net, n))
		return 0;
	return npulink_genl_put_place(skb, NPULINK_A_EVENT_IP, n->ip, NPULINK_A_EVENT_PORT,
				      n->port);
}

/* As it is told in @net, in full or not. */
static int npulink_genl_fill_event(struct sk_buff *skb, const struct net *net,
				   const struct npulink_notice *n, bool full)
{
	const struct {
		int attr;
		u32 value;
	} numbers[] = {
		{ NPULINK_A_EVENT_DEV, n->dev },
		{ NPULINK_A_EVENT_PEER_DEV, n->peer_dev },
		{ NPULINK_A_EVENT_COMM, n->comm },
		{ NPULINK_A_EVENT_RANK, n->rank },
		{ NPULINK_A_EVENT_PEER, n->peer },
		{ NPULINK_A_EVENT_STEP, n->step },
	};
	u32 i;

	if (nla_put_u32(skb, NPULINK_A_EVENT_TYPE, n->type) ||
	    nla_put_u64_64bit(skb, NPULINK_A_EVENT_SERIAL, n->serial, NPULINK_A_EVENT_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_EVENT_TIME, n->time_ns, NPULINK_A_EVENT_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_EVENT_LOST, n->lost, NPULINK_A_EVENT_PAD))
		return -EMSGSIZE;
	if (!full)
		return n->cause ? nla_put_u32(skb, NPULINK_A_EVENT_CAUSE, n->cause) : 0;
	for (i = 0; i < ARRAY_SIZE(numbers); i++)
		if (numbers[i].value != ~0U && nla_put_u32(skb, numbers[i].attr, numbers[i].value))
			return -EMSGSIZE;
	if (n->number != ~0ULL && nla_put_u64_64bit(skb, NPULINK_A_EVENT_NUMBER, n->number,
						    NPULINK_A_EVENT_PAD))
		return -EMSGSIZE;
	switch (n->type) {
	case NPULINK_EVENT_FAIL:
	case NPULINK_EVENT_SUSPECT:
		if (nla_put_u32(skb, NPULINK_A_EVENT_CAUSE, n->cause) ||
		    nla_put_u32(skb, NPULINK_A_EVENT_CODE, n->code) ||
		    npulink_genl_put_event_place(skb, net, n) ||
		    (n->circle.n && nla_put_u32(skb, NPULINK_A_EVENT_NCIRCLE, n->circle.n)) ||
		    npulink_genl_put_circle(skb, NPULINK_A_EVENT_CIRCLE, &n->circle))
			return -EMSGSIZE;
		break;
	case NPULINK_EVENT_PORT_LOST:
	case NPULINK_EVENT_PORT_NEXT:
		if (npulink_genl_put_event_place(skb, net, n))
			return -EMSGSIZE;
		break;
	case NPULINK_EVENT_SLOW:
	case NPULINK_EVENT_SLOW_END:
		if (nla_put_u64_64bit(skb, NPULINK_A_EVENT_AGE, n->age_ns, NPULINK_A_EVENT_PAD) ||
		    nla_put_u64_64bit(skb, NPULINK_A_EVENT_LIMIT, n->limit_ns,
				      NPULINK_A_EVENT_PAD))
			return -EMSGSIZE;
		break;
	}
	return 0;
}

/* The user whose it is, and who administers the network namespace, or with @others all others. */
struct npulink_listeners {
	kuid_t uid;
	bool others;
};

static int npulink_genl_skips(struct sock *sk, struct sk_buff *skb, void *data)
{
	const struct npulink_listeners *to = data;
	struct user_namespace *ns = sock_net(sk)->user_ns;

	/* It is in the group, so its file is there. */
	return to->others == (uid_eq(sk->sk_uid, to->uid) ||
			      file_ns_capable(sk->sk_socket->file, ns, CAP_NET_ADMIN));
}

static int npulink_genl_tell_some(struct net *net, const struct npulink_notice *notice, bool full,
				  struct npulink_listeners *to)
{
	struct sk_buff *skb = genlmsg_new(GENLMSG_DEFAULT_SIZE, GFP_ATOMIC);
	void *header;
	int rc;

	if (!skb)
		return -ENOMEM;
	header = genlmsg_put(skb, 0, 0, &npulink_genl_family, 0, NPULINK_GENL_CMD_EVENT);
	rc = header ? npulink_genl_fill_event(skb, net, notice, full) : -EMSGSIZE;
	if (rc) {
		nlmsg_free(skb);
		return rc;
	}
	genlmsg_end(skb, header);
	return npulink_genl_multicast_to(&npulink_genl_family, net, skb, GFP_ATOMIC,
					 to ? npulink_genl_skips : NULL, to);
}

/* Where the kernel can choose, users of one network namespace hear little of each other. */
static int npulink_genl_tell(struct net *net, const struct npulink_notice *notice)
{
	struct npulink_listeners to = { .uid = notice->uid };
	bool full = npulink_genl_hears(net, notice);
	int rc, some;

	if (!NPULINK_GENL_CHOOSES || !full || !uid_valid(notice->uid))
		return npulink_genl_tell_some(net, notice, full, NULL);
	rc = npulink_genl_tell_some(net, notice, true, &to);
	to.others = true;
	some = npulink_genl_tell_some(net, notice, false, &to);
	/* That nobody was there is told if it is true of both. */
	return rc == -ESRCH || (some && some != -ESRCH) ? some : rc;
}

/*
 * Tell the group "events" in all network namespaces, each of them by itself: one hears more than
 * another, and genlmsg_multicast_allns() ends with the first one that has a listener who is too
 * slow and wants senders to know it (NETLINK_BROADCAST_ERROR). Task context.
 */
int npulink_genl_multicast(const struct npulink_notice *notice)
{
	struct net *net;
	int rc = 0, one;

	rcu_read_lock();
	for_each_net_rcu(net) {
		if (!genl_has_listeners(&npulink_genl_family, net, 0))
			continue;
		one = npulink_genl_tell(net, notice);
		/* Who has listened has gone, or was too slow, which it sees itself. */
		if (one && one != -ESRCH && one != -ENOBUFS)
			rc = one;
	}
	rcu_read_unlock();
	return rc;
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
		.maxattr = ARRAY_SIZE(npulink_genl_no_policy) - 1,
	},
	{
		.cmd = NPULINK_GENL_CMD_COMM_GET,
		.dumpit = npulink_genl_comm_dumpit,
		.policy = npulink_genl_no_policy,
		.maxattr = ARRAY_SIZE(npulink_genl_no_policy) - 1,
	},
	{
		.cmd = NPULINK_GENL_CMD_RANK_GET,
		.start = npulink_genl_rank_start,
		.dumpit = npulink_genl_rank_dumpit,
		.policy = npulink_genl_rank_policy,
		.maxattr = ARRAY_SIZE(npulink_genl_rank_policy) - 1,
	},
	{
		.cmd = NPULINK_GENL_CMD_OP_GET,
		.start = npulink_genl_op_start,
		.dumpit = npulink_genl_op_dumpit,
		.policy = npulink_genl_op_policy,
		.maxattr = ARRAY_SIZE(npulink_genl_op_policy) - 1,
	},
	{
		.cmd = NPULINK_GENL_CMD_FILE_GET,
		.dumpit = npulink_genl_file_dumpit,
		.policy = npulink_genl_no_policy,
		.maxattr = ARRAY_SIZE(npulink_genl_no_policy) - 1,
	},
	{
		.cmd = NPULINK_GENL_CMD_BUF_GET,
		.start = npulink_genl_buf_start,
		.dumpit = npulink_genl_buf_dumpit,
		.policy = npulink_genl_buf_policy,
		.maxattr = ARRAY_SIZE(npulink_genl_buf_policy) - 1,
	},
	{
		.cmd = NPULINK_GENL_CMD_CONN_GET,
		.start = npulink_genl_conn_start,
		.dumpit = npulink_genl_conn_dumpit,
		.policy = npulink_genl_conn_policy,
		.maxattr = ARRAY_SIZE(npulink_genl_conn_policy) - 1,
	},
	{
		.cmd = NPULINK_GENL_CMD_STAT_GET,
		.doit = npulink_genl_stat_doit,
		.policy = npulink_genl_no_policy,
		.maxattr = ARRAY_SIZE(npulink_genl_no_policy) - 1,
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
