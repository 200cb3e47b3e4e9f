/* SPDX-License-Identifier: GPL-2.0 */
/*
 * genl.h - what the files of the netlink family share: one of them for each kind of
 * object, genl.c for the family, devices and links.
 */
#ifndef NPULINK_GENL_H
#define NPULINK_GENL_H

#include <linux/npulink_genl.h>
#include <net/genetlink.h>
#include "core.h"

#define NPULINK_GENL_END	LONG_MAX	/* in cb->args[0]: the dump is over */

/* Begin one message of a dump, or NULL. */
void *npulink_genl_put(struct sk_buff *skb, struct netlink_callback *cb, u8 cmd);
/* The message is complete, or with @rc is taken back. */
void npulink_genl_done(struct sk_buff *skb, void *header, int rc);

/* May the reader see what belongs to @uid and was made in @ns? */
bool npulink_genl_sees(const struct sk_buff *skb, kuid_t uid, struct user_namespace *ns);
bool npulink_genl_sees_file(const struct sk_buff *skb, const struct npulink_file *file);
bool npulink_genl_sees_comm(const struct sk_buff *skb, struct npulink_comm *comm);

/* As the reader knows them. */
u32 npulink_genl_pid(const struct npulink_file *file);
u32 npulink_genl_uid(kuid_t uid);

/* The communicator with that serial, referenced, if the reader may see it. */
struct npulink_comm *npulink_genl_comm(const struct sk_buff *skb, u32 serial);
/* The rank of @comm from *i on that is here, referenced; sets *i. */
struct npulink_rank *npulink_genl_rank(struct npulink_comm *comm, unsigned long *i);

int npulink_genl_put_call(struct sk_buff *skb, int attr, const struct npulink_call *call);

int npulink_genl_comm_dumpit(struct sk_buff *skb, struct netlink_callback *cb);
int npulink_genl_rank_start(struct netlink_callback *cb);
int npulink_genl_rank_dumpit(struct sk_buff *skb, struct netlink_callback *cb);
int npulink_genl_op_start(struct netlink_callback *cb);
int npulink_genl_op_dumpit(struct sk_buff *skb, struct netlink_callback *cb);
int npulink_genl_file_dumpit(struct sk_buff *skb, struct netlink_callback *cb);
int npulink_genl_buf_start(struct netlink_callback *cb);
int npulink_genl_buf_dumpit(struct sk_buff *skb, struct netlink_callback *cb);
int npulink_genl_stat_doit(struct sk_buff *skb, struct genl_info *info);

#endif /* NPULINK_GENL_H */
