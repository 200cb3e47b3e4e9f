// SPDX-License-Identifier: GPL-2.0
/*
 * genl_mem.c - memory over netlink: open files, with what their processes have pinned,
 * and buffers; and the totals of the node.
 */
#include <linux/sched/signal.h>
#include "base/notify.h"
#include "comm/comm.h"
#include "device/device_core.h"
#include "file/account.h"
#include "file/buf.h"
#include "file/file.h"
#include "file/mapping.h"
#include "observe/genl.h"

/* ---- open files -------------------------------------------------------------------- */

static int npulink_genl_fill_file(struct sk_buff *skb, struct npulink_file *file)
{
	u64 pinned = READ_ONCE(file->arena_len), arena = pinned, ring, len[NPULINK_BUF_KINDS] = {};
	struct npulink_object *obj;
	unsigned long id;
	u32 n = 0, ops;

	spin_lock_irq(&file->lock);
	ring = file->cq.len;
	ops = file->inflight;
	spin_unlock_irq(&file->lock);
	pinned += ring;
	for (id = 0; (obj = npulink_object_next(file, &id, &npulink_buf_type)); id++) {
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
	    nla_put_u64_64bit(skb, NPULINK_A_FILE_DEVICE, len[NPULINK_BUF_DEVMEM],
			      NPULINK_A_FILE_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_FILE_ARENA, arena, NPULINK_A_FILE_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_FILE_RING, ring, NPULINK_A_FILE_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_FILE_PINNED, pinned, NPULINK_A_FILE_PAD))
		return -EMSGSIZE;
	return 0;
}

static int npulink_genl_dump_file(struct sk_buff *skb, struct netlink_callback *cb, void *obj)
{
	void *header = npulink_genl_put(skb, cb, NPULINK_GENL_CMD_FILE_GET);
	int rc = header ? npulink_genl_fill_file(skb, obj) : -EMSGSIZE;

	npulink_genl_done(skb, header, rc);
	return rc;
}

int npulink_genl_file_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	return npulink_genl_dump(skb, cb, &npulink_genl_files, 0, npulink_genl_dump_file);
}

/* ---- buffers ------------------------------------------------------------------------ */

static int npulink_genl_fill_buf(struct sk_buff *skb, u32 file, const struct npulink_buf *buf)
{
	static const u8 kinds[] = {
		[NPULINK_BUF_USER] = NPULINK_BUF_KIND_USER,
		[NPULINK_BUF_KERNEL] = NPULINK_BUF_KIND_KERNEL,
		[NPULINK_BUF_DMABUF] = NPULINK_BUF_KIND_DMABUF,
		[NPULINK_BUF_DEVMEM] = NPULINK_BUF_KIND_DEVICE,
	};

	if (nla_put_u32(skb, NPULINK_A_BUF_FILE, file) ||
	    nla_put_u32(skb, NPULINK_A_BUF_ID, buf->obj.id) ||
	    nla_put_u32(skb, NPULINK_A_BUF_KIND, kinds[buf->kind]) ||
	    nla_put_u64_64bit(skb, NPULINK_A_BUF_LEN, buf->mem.len, NPULINK_A_BUF_PAD) ||
	    nla_put_u64_64bit(skb, NPULINK_A_BUF_PINNED,
			      (u64)READ_ONCE(buf->charge.npages) << PAGE_SHIFT,
			      NPULINK_A_BUF_PAD) ||
	    nla_put_u32(skb, NPULINK_A_BUF_USERS, refcount_read(&buf->users)) ||
	    nla_put_u32(skb, NPULINK_A_BUF_DEVICES, npulink_buf_count_dma(buf)) ||
	    (buf->readonly && nla_put_flag(skb, NPULINK_A_BUF_READONLY)) ||
	    (READ_ONCE(buf->unmapped) && nla_put_flag(skb, NPULINK_A_BUF_UNMAPPED)))
		return -EMSGSIZE;
	return 0;
}

/* Goes on with buffer args[1]. */
static int npulink_genl_dump_bufs(struct sk_buff *skb, struct netlink_callback *cb, void *obj)
{
	struct npulink_file *file = obj;
	struct npulink_object *found;
	unsigned long i = cb->args[1];
	void *header;
	int rc;

	for (; (found = npulink_object_next(file, &i, &npulink_buf_type)); i++) {
		header = npulink_genl_put(skb, cb, NPULINK_GENL_CMD_BUF_GET);
		rc = -EMSGSIZE;
		if (header)
			rc = npulink_genl_fill_buf(skb, file->id,
						   container_of(found, struct npulink_buf, obj));
		npulink_object_put(found);
		npulink_genl_done(skb, header, rc);
		if (rc) {
			cb->args[1] = i;
			return rc;
		}
	}
	return 0;
}

int npulink_genl_buf_start(struct netlink_callback *cb)
{
	return npulink_genl_start(cb, &npulink_genl_files, NPULINK_A_BUF_FILE);
}

int npulink_genl_buf_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	return npulink_genl_dump(skb, cb, &npulink_genl_files, NPULINK_A_BUF_FILE,
				 npulink_genl_dump_bufs);
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
		if (fatal_signal_pending(current))
			return;
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
		/* Then nobody reads them. */
		if (fatal_signal_pending(current))
			break;
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
