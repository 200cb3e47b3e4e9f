// SPDX-License-Identifier: GPL-2.0
/*
 * genl_dump.c - what all dumps share: they go through the objects of one kind by id, leave
 * out what the reader may not see, and go on with the id, and the place inside, where the
 * buffer was full.
 */
#include <linux/sched/signal.h>
#include <npulink/compat.h>
#include "comm/comm.h"
#include "device/device_core.h"
#include "file/file.h"
#include "observe/genl.h"

void *npulink_genl_put(struct sk_buff *skb, struct netlink_callback *cb, u8 cmd)
{
	return genlmsg_put(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq,
			   &npulink_genl_family, NLM_F_MULTI, cmd);
}

void npulink_genl_done(struct sk_buff *skb, void *header, int rc)
{
	if (rc)
		genlmsg_cancel(skb, header);
	else
		genlmsg_end(skb, header);
}

/* If the request names an object by attribute @only: is it there? Begin with it. */
int npulink_genl_start(struct netlink_callback *cb, const struct npulink_genl_kind *kind, int only)
{
	const struct nlattr *attr = npulink_genl_dump_attrs(cb)[only];
	unsigned long id;
	bool found;
	void *obj;

	if (!attr)
		return 0;
	id = nla_get_u32(attr);
	obj = kind->next(&id);
	found = obj && id == nla_get_u32(attr) && kind->sees(cb->skb, obj);
	if (obj)
		kind->put(obj);
	if (found) {
		cb->args[0] = id;
		return 0;
	}
	if (cb->extack)
		cb->extack->_msg = kind->missing;
	NL_SET_BAD_ATTR(cb->extack, attr);
	return kind->error;
}

/*
 * All objects of a kind, or the one that attribute @only names (0: there is none). cb->args[0]
 * is the id to go on with, args[1] and those behind it are @dump's.
 */
int npulink_genl_dump(struct sk_buff *skb, struct netlink_callback *cb,
		      const struct npulink_genl_kind *kind, int only, npulink_genl_dump_fn dump)
{
	const struct nlattr *attr = only ? npulink_genl_dump_attrs(cb)[only] : NULL;
	unsigned long id = cb->args[0];
	int rc = 0;
	void *obj;

	for (; (obj = kind->next(&id)); id++) {
		if (id != cb->args[0])
			memset(&cb->args[1], 0, sizeof(cb->args) - sizeof(cb->args[0]));
		cb->args[0] = id;
		if (!attr || id == nla_get_u32(attr))
			rc = kind->sees(cb->skb, obj) ? dump(skb, cb, obj) : 0;
		kind->put(obj);
		if (rc)
			return skb->len ?: rc;
		if (attr)
			break;
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	cb->args[0] = NPULINK_GENL_END;
	return skb->len;
}

/* ---- kinds --------------------------------------------------------------------------- */

static void *npulink_genl_next_dev(unsigned long *id)
{
	struct npulink_device *dev;
	u32 minor = min_t(unsigned long, *id, NPULINK_MAX_DEVICES);

	dev = npulink_device_next(&minor);
	if (dev)
		*id = dev->id;
	return dev;
}

static void npulink_genl_put_dev(void *obj)
{
	struct npulink_device *dev = obj;

	put_device(&dev->dev);
}

static bool npulink_genl_sees_dev(const struct sk_buff *asked, void *obj)
{
	return true;
}

const struct npulink_genl_kind npulink_genl_devs = {
	.next = npulink_genl_next_dev,
	.put = npulink_genl_put_dev,
	.sees = npulink_genl_sees_dev,
	.error = -ENODEV,
	.missing = "no such device",
};

static void *npulink_genl_next_comm(unsigned long *id)
{
	return npulink_comm_next(id);
}

static void npulink_genl_put_comm(void *obj)
{
	npulink_comm_put(obj);
}

static bool npulink_genl_sees_one_comm(const struct sk_buff *asked, void *obj)
{
	return npulink_genl_sees_comm(asked, obj);
}

const struct npulink_genl_kind npulink_genl_comms = {
	.next = npulink_genl_next_comm,
	.put = npulink_genl_put_comm,
	.sees = npulink_genl_sees_one_comm,
	.error = -ENOENT,
	.missing = "no such communicator",
};

static void *npulink_genl_next_file(unsigned long *id)
{
	return npulink_file_next(id);
}

static void npulink_genl_put_file(void *obj)
{
	npulink_file_put(obj);
}

static bool npulink_genl_sees_one_file(const struct sk_buff *asked, void *obj)
{
	const struct npulink_file *file = obj;

	return npulink_genl_sees_cred(asked, file->cred);
}

const struct npulink_genl_kind npulink_genl_files = {
	.next = npulink_genl_next_file,
	.put = npulink_genl_put_file,
	.sees = npulink_genl_sees_one_file,
	.error = -ENOENT,
	.missing = "no such file",
};
