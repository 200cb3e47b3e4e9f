/* SPDX-License-Identifier: GPL-2.0 */
/*
 * genl.h - what the files of the netlink family share: one of them for each kind of
 * object, genl.c for the family, devices and links.
 */
#ifndef NPULINK_GENL_H
#define NPULINK_GENL_H

#include <linux/npulink_genl.h>
#include <net/genetlink.h>
#include "comm/comm.h"
#include "base/notify.h"

#define NPULINK_GENL_END	LONG_MAX	/* in cb->args[0]: the dump is over */

/*
 * struct npulink_genl_kind - objects that are dumped
 * @next: the first one with an id of at least *id, referenced; sets *id
 * @put: let go of it
 * @sees: may who sent @asked see it?
 * @error: if there is none with the id that was asked for
 * @missing: the same in words
 */
struct npulink_genl_kind {
	void *(*next)(unsigned long *id);
	void (*put)(void *obj);
	bool (*sees)(const struct sk_buff *asked, void *obj);
	int error;
	const char *missing;
};

extern const struct npulink_genl_kind npulink_genl_devs;
extern const struct npulink_genl_kind npulink_genl_comms;
extern const struct npulink_genl_kind npulink_genl_files;

/* What there is to tell of one object, from cb->args[1] on; -EMSGSIZE: there is more. */
typedef int (*npulink_genl_dump_fn)(struct sk_buff *skb, struct netlink_callback *cb, void *obj);

int npulink_genl_start(struct netlink_callback *cb, const struct npulink_genl_kind *kind, int only);
int npulink_genl_dump(struct sk_buff *skb, struct netlink_callback *cb,
		      const struct npulink_genl_kind *kind, int only, npulink_genl_dump_fn dump);

/* Begin one message of a dump, or NULL. */
void *npulink_genl_put(struct sk_buff *skb, struct netlink_callback *cb, u8 cmd);
/* The message is complete, or with @rc is taken back. */
void npulink_genl_done(struct sk_buff *skb, void *header, int rc);

/* Who sees what: the only places that decide it. */
bool npulink_genl_sees_cred(const struct sk_buff *asked, const struct cred *cred);
bool npulink_genl_sees_uids(const struct sk_buff *asked, kuid_t uid, kuid_t euid, kuid_t suid);
bool npulink_genl_sees_comm(const struct sk_buff *asked, struct npulink_comm *comm);

/* As the reader knows them. */
u32 npulink_genl_pid(const struct npulink_file *file);
u32 npulink_genl_uid(kuid_t uid);

/* The rank of @comm from *i on that is here, referenced; sets *i. */
struct npulink_rank *npulink_genl_rank(struct npulink_comm *comm, unsigned long *i);

/* What an operation waits for; struct npulink_genl_wait says the same. */
struct npulink_wait_info {
	u32 kind;
	u32 step;
	u32 peer;
	u32 dev;		/* bytes go from there .. */
	u32 peer_dev;		/* .. to there */
	bool met;
	bool remote;
	u64 since_ns;
	u64 done;
	u64 len;
};

int npulink_genl_put_wait(struct sk_buff *skb, int attr, const struct npulink_wait_info *w);
int npulink_genl_put_call(struct sk_buff *skb, int attr, const struct npulink_call *call);
int npulink_genl_put_place(struct sk_buff *skb, int ip_attr, const u8 *ip, int port_attr,
			   const char *port);
int npulink_genl_put_circle(struct sk_buff *skb, int attr, const struct npulink_circle *circle);

int npulink_genl_comm_dumpit(struct sk_buff *skb, struct netlink_callback *cb);
int npulink_genl_rank_start(struct netlink_callback *cb);
int npulink_genl_rank_dumpit(struct sk_buff *skb, struct netlink_callback *cb);
int npulink_genl_op_start(struct netlink_callback *cb);
int npulink_genl_op_dumpit(struct sk_buff *skb, struct netlink_callback *cb);
int npulink_genl_file_dumpit(struct sk_buff *skb, struct netlink_callback *cb);
int npulink_genl_buf_start(struct netlink_callback *cb);
int npulink_genl_buf_dumpit(struct sk_buff *skb, struct netlink_callback *cb);
int npulink_genl_conn_start(struct netlink_callback *cb);
int npulink_genl_conn_dumpit(struct sk_buff *skb, struct netlink_callback *cb);
int npulink_genl_stat_doit(struct sk_buff *skb, struct genl_info *info);

extern struct genl_family npulink_genl_family;

extern const struct nla_policy npulink_genl_port_policy[];

int npulink_genl_port_add(struct sk_buff *skb, struct genl_info *info);
int npulink_genl_port_del(struct sk_buff *skb, struct genl_info *info);
int npulink_genl_port_dumpit(struct sk_buff *skb, struct netlink_callback *cb);

int npulink_genl_multicast(const struct npulink_notice *notice);
int npulink_genl_init(void);
void npulink_genl_exit(void);

int npulink_genl_flight_start(struct netlink_callback *cb);
int npulink_genl_flight_dumpit(struct sk_buff *skb, struct netlink_callback *cb);
extern const struct nla_policy npulink_genl_flight_policy[];
#define NPULINK_GENL_FLIGHT_MAXATTR	NPULINK_A_FLIGHT_WHAT

#endif /* NPULINK_GENL_H */
