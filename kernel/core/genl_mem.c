// SPDX-License-Identifier: GPL-2.0
/*
 * genl_mem.c - memory over netlink: open files, with what their processes have pinned,
 * and buffers; and the totals of the node.
 */
#include "genl.h"

/* ---- open files -------------------------------------------------------------------- */

static int npulink_genl_fill_file(struct sk_buff *skb, struct npulink_file *file)
{
	u64 pinned = READ_ONCE(file->arena_len), arena = pinned, ring, len[3] = {};
	struct npulink_object *obj;
	unsigned long id;
	u32 n = 0, ops;

	spin_lock_irq(&file->lock);
	ring = file->cq.len;
	ops = file->inflight;
	spin_unlock_irq(&file->lock);
	pinned += ring;
	for (id = 0; (obj = npulink_object_next(file, &id, NPULINK_OBJ_BUF)); id++) {
		const struct npulink_buf *buf = container_of(obj, struct npulink_buf, obj);

		n++;
		len[buf->kind] += buf->mem.len;
		pinned += (u64)READ_ONCE(buf->charge.npages) << PAGE_SHIFT;
		npulink_object_put(obj);
		if (!(n & 0xff))
			cond_resched();
	}
	if (nla_put_u32(skb, NPULINK_A_FILE_ID, file->id) ||
	    nla_put_u32(skb, NPULINK_A_FILE_DEV, file->dev->id) ||
	    nla_put_u32(skb, NPULINK_A_FILE_PID, npulink_genl_pid(file)) ||
	    nla_put_u32(skb, NPULINK_A_FILE_UID, npulink_genl_uid(file->cred->euid)) ||
	    nla_put_u32(skb, NPULINK_A_FILE_OPS, ops) ||
	    nla_put_u32(skb, NPULINK_A_FILE_BUFS, n) ||
	    nla_put_u64_64bit(skb, NPULINK_A_FILE_REGISTERED, len[NPULINK_BUF_USER],
			      NPULINK_A_FILE_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_FILE_ALLOCATED, len[NPULINK_BUF_KERNEL],
			      NPULINK_A_FILE_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_FILE_IMPORTED, len[NPULINK_BUF_DMABUF],
			      NPULINK_A_FILE_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_FILE_ARENA, arena, NPULINK_A_FILE_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_FILE_RING, ring, NPULINK_A_FILE_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_FILE_PINNED, pinned, NPULINK_A_FILE_PAD))
		return -EMSGSIZE;
	return 0;
}

/* A dump goes on with the file args[0]. */
int npulink_genl_file_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	unsigned long id = cb->args[0];
	struct npulink_file *file;
	void *header;
	int rc;

	for (; (file = npulink_file_next(&id)); id++) {
		if (!npulink_genl_sees_file(cb->skb, file)) {
			npulink_file_put(file);
			continue;
		}
		header = npulink_genl_put(skb, cb, NPULINK_GENL_CMD_FILE_GET);
		rc = header ? npulink_genl_fill_file(skb, file) : -EMSGSIZE;
		npulink_file_put(file);
		npulink_genl_done(skb, header, rc);
		if (rc) {
			cb->args[0] = id;
			return skb->len ?: rc;
		}
	}
	cb->args[0] = NPULINK_GENL_END;
	return skb->len;
}

/* ---- buffers ------------------------------------------------------------------------ */

static int npulink_genl_fill_buf(struct sk_buff *skb, u32 file, const struct npulink_buf *buf)
{
	static const u8 kinds[] = {
		[NPULINK_BUF_USER] = NPULINK_BUF_KIND_USER,
		[NPULINK_BUF_KERNEL] = NPULINK_BUF_KIND_KERNEL,
		[NPULINK_BUF_DMABUF] = NPULINK_BUF_KIND_DMABUF,
	};

	if (nla_put_u32(skb, NPULINK_A_BUF_FILE, file) ||
	    nla_put_u32(skb, NPULINK_A_BUF_ID, buf->obj.id) ||
	    nla_put_u32(skb, NPULINK_A_BUF_KIND, kinds[buf->kind]) ||
	    nla_put_u64_64bit(skb, NPULINK_A_BUF_LEN, buf->mem.len, NPULINK_A_BUF_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_BUF_PINNED,
			      (u64)READ_ONCE(buf->charge.npages) << PAGE_SHIFT,
			      NPULINK_A_BUF_PAD) ||
	    nla_put_u32(skb, NPULINK_A_BUF_USERS, refcount_read(&buf->users)) ||
	    (buf->readonly && nla_put_flag(skb, NPULINK_A_BUF_READONLY)) ||
	    (READ_ONCE(buf->unmapped) && nla_put_flag(skb, NPULINK_A_BUF_UNMAPPED)))
		return -EMSGSIZE;
	return 0;
}

/* Buffers of @file from *i on; with an error, *i is the first left. */
static int npulink_genl_dump_bufs(struct sk_buff *skb, struct netlink_callback *cb,
				  struct npulink_file *file, unsigned long *i)
{
	struct npulink_object *obj;
	void *header;
	int rc;

	for (; (obj = npulink_object_next(file, i, NPULINK_OBJ_BUF)); ++*i) {
		header = npulink_genl_put(skb, cb, NPULINK_GENL_CMD_BUF_GET);
		rc = -EMSGSIZE;
		if (header)
			rc = npulink_genl_fill_buf(skb, file->id,
						   container_of(obj, struct npulink_buf, obj));
		npulink_object_put(obj);
		npulink_genl_done(skb, header, rc);
		if (rc)
			return rc;
	}
	return 0;
}

int npulink_genl_buf_start(struct netlink_callback *cb)
{
	const struct nlattr *attr = npulink_genl_dump_attrs(cb)[NPULINK_A_BUF_FILE];
	struct npulink_file *file;
	unsigned long id;
	bool sees = false;

	if (!attr)
		return 0;
	id = nla_get_u32(attr);
	file = npulink_file_next(&id);
	if (file) {
		sees = id == nla_get_u32(attr) && npulink_genl_sees_file(cb->skb, file);
		npulink_file_put(file);
	}
	if (!sees) {
		NL_SET_ERR_MSG_ATTR(cb->extack, attr, "no such file");
		return -ENOENT;
	}
	cb->args[0] = id;
	return 0;
}

/* A dump goes on with the buffer args[1] of the file args[0]. */
int npulink_genl_buf_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	const struct nlattr *only = npulink_genl_dump_attrs(cb)[NPULINK_A_BUF_FILE];
	unsigned long id = cb->args[0], i = cb->args[1], resumed = id;
	struct npulink_file *file;
	int rc = 0;

	for (; (file = npulink_file_next(&id)); id++) {
		if (id != resumed)
			i = 0;
		if (only && id != nla_get_u32(only)) {
			npulink_file_put(file);
			break;
		}
		if (npulink_genl_sees_file(cb->skb, file))
			rc = npulink_genl_dump_bufs(skb, cb, file, &i);
		npulink_file_put(file);
		if (rc) {
			cb->args[0] = id;
			cb->args[1] = i;
			return skb->len ?: rc;
		}
	}
	cb->args[0] = NPULINK_GENL_END;
	return skb->len;
}

/* ---- totals -------------------------------------------------------------------------- */

struct npulink_counts {
	u32 devs;
	u32 files;
	u32 comms;
	u32 ranks;
	u32 ops;
	u64 done;
	u64 failed;
};

static void npulink_count(struct npulink_counts *c)
{
	struct npulink_device *dev;
	struct npulink_file *file;
	struct npulink_comm *comm;
	struct npulink_rank *rank;
	unsigned long id, i;
	u32 minor;

	*c = (struct npulink_counts) {
		.done = atomic64_read(&npulink_totals.done),
		.failed = atomic64_read(&npulink_totals.failed),
	};
	for (minor = 0; (dev = npulink_device_next(&minor)); minor++) {
		c->devs++;
		put_device(&dev->dev);
	}
	for (id = 0; (file = npulink_file_next(&id)); id++) {
		c->files++;
		npulink_file_put(file);
		cond_resched();
	}
	for (id = 0; (comm = npulink_comm_next(&id)); id++) {
		c->comms++;
		for (i = 0; (rank = npulink_genl_rank(comm, &i)); i++) {
			c->ranks++;
			c->ops += READ_ONCE(rank->stats.inflight);
			c->done += READ_ONCE(rank->stats.done);
			c->failed += READ_ONCE(rank->stats.failed);
			npulink_rank_put(rank);
			cond_resched();
		}
		npulink_comm_put(comm);
	}
}

static int npulink_genl_put_failures(struct sk_buff *skb)
{
	struct nlattr *nest;
	u32 i;

	for (i = 1; i < ARRAY_SIZE(npulink_totals.failures); i++) {
		nest = nla_nest_start(skb, NPULINK_A_STAT_FAILURES);
		if (!nest || nla_put_u32(skb, NPULINK_A_FAILURE_CAUSE, i) ||
		    nla_put_u64_64bit(skb, NPULINK_A_FAILURE_COUNT,
				      atomic64_read(&npulink_totals.failures[i]),
				      NPULINK_A_FAILURE_PAD))
			return -EMSGSIZE;
		nla_nest_end(skb, nest);
	}
	return 0;
}

static int npulink_genl_fill_stat(struct sk_buff *skb, const struct npulink_counts *c)
{
	if (nla_put_u32(skb, NPULINK_A_STAT_DEVS, c->devs) ||
	    nla_put_u32(skb, NPULINK_A_STAT_FILES, c->files) ||
	    nla_put_u32(skb, NPULINK_A_STAT_COMMS, c->comms) ||
	    nla_put_u32(skb, NPULINK_A_STAT_RANKS, c->ranks) ||
	    nla_put_u32(skb, NPULINK_A_STAT_OPS, c->ops) ||
	    nla_put_u64_64bit(skb, NPULINK_A_STAT_PINNED,
			      (u64)atomic64_read(&npulink_pinned) << PAGE_SHIFT,
			      NPULINK_A_STAT_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_STAT_OPS_DONE, c->done, NPULINK_A_STAT_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_STAT_OPS_FAILED, c->failed, NPULINK_A_STAT_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_STAT_SLOW, atomic64_read(&npulink_totals.slow),
			      NPULINK_A_STAT_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_STAT_EVENTS, atomic64_read(&npulink_totals.events),
			      NPULINK_A_STAT_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_STAT_EVENTS_LOST,
			      atomic64_read(&npulink_totals.lost), NPULINK_A_STAT_PAD))
		return -EMSGSIZE;
	return npulink_genl_put_failures(skb);
}

int npulink_genl_stat_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct npulink_counts counts;
	struct sk_buff *reply;
	void *header;
	int rc;

	npulink_count(&counts);
	reply = genlmsg_new(GENLMSG_DEFAULT_SIZE, GFP_KERNEL);
	if (!reply)
		return -ENOMEM;
	header = genlmsg_put_reply(reply, info, &npulink_genl_family, 0,
				   NPULINK_GENL_CMD_STAT_GET);
	rc = header ? npulink_genl_fill_stat(reply, &counts) : -EMSGSIZE;
	if (rc) {
		nlmsg_free(reply);
		return rc;
	}
	genlmsg_end(reply, header);
	return genlmsg_reply(reply, info);
}
