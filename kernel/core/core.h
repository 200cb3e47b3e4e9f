/* SPDX-License-Identifier: GPL-2.0 */
/*
 * core.h - objects of npulink.ko and how they hang together.
 *
 *   device  <- file  <- rank (one file's membership in a communicator) <- plan
 *                    <- buf
 *   comm    <- rank, conn (what a rank knows of one peer)
 *   op      one POST of a plan; in its rank's table as long as it is in flight
 *
 * An arrow is a reference. Everything with an id in a file is a struct
 * npulink_object. Memory of buffers has a count of its own (npulink_buf.users).
 *
 * Lock order: npulink_comms_lock > comm.mutex > rank.lock > file.lock, comm.lock,
 * and nothing below those two. npulink_flights_lock is taken inside npulink_comms_lock,
 * nothing below it. Two rank locks are never held at a time. buf.mutex
 * and file.mutex are taken alone, in system calls only. agree.lock > comm.lock.
 */
#ifndef NPULINK_CORE_H
#define NPULINK_CORE_H

#include <linux/moduleparam.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/uidgid.h>
#include <npulink/compat.h>
#include <npulink/device.h>
#include <npulink/verify.h>
#include "account.h"
#include "buf.h"
#include "comm.h"
#include "file.h"
#include "hot.h"
#include "op.h"
#include "plan.h"

#define NPULINK_VERSION		"0.1.0"
#define NPULINK_MAX_DEVICES	1024

/* ---- device.c, link.c -------------------------------------------------- */

extern u8 npulink_node_id[16];

struct npulink_device *npulink_device_next(u32 *id);
struct npulink_device *npulink_device_get_by_minor(unsigned int minor);
int npulink_device_init(void);
void npulink_device_exit(void);

/* Links of @dev for the netlink dump; @id as for npulink_device_next(). */
struct npulink_link *npulink_link_next(struct npulink_device *dev, unsigned long *id);
struct npulink_link *npulink_link_get(struct npulink_device *dev, struct npulink_device *peer,
				      bool create);
void npulink_link_put(struct npulink_link *link);
void npulink_link_fail(struct npulink_link *link);
void npulink_link_set_lost(struct npulink_link *link, bool lost);
void npulink_links_drop(struct npulink_device *dev, struct list_head *dropped);
void npulink_links_close(struct list_head *dropped);

/* ---- board.c ------------------------------------------------------------ */

struct npulink_board;

extern const struct kernel_param_ops npulink_board_param_ops;
extern bool npulink_scripts;

int npulink_board_sync(struct npulink_rank *rank);
u64 npulink_board_next(struct npulink_rank *rank);
bool npulink_board_met(struct npulink_rank *rank, u64 number);
void npulink_board_posted(struct npulink_rank *rank);
void npulink_board_failed(struct npulink_comm *comm);
void npulink_board_free(struct npulink_board *board);
int npulink_board_mmap(struct npulink_file *file, u64 off, struct vm_area_struct *vma);
int npulink_board_wait_ioctl(struct npulink_ucmd *ucmd);
int npulink_board_init(void);
void npulink_board_exit(void);
int npulink_trace_begin(void);
void npulink_trace_end(void);

/* ---- notify.c, slow.c ------------------------------------------------------- */

#define NPULINK_NO_DEV	0xffffffffU

/* What is told to the netlink group "events"; ~0 in a member: does not apply. */
struct npulink_notice {
	u32 type;		/* NPULINK_EVENT_* */
	u32 dev;
	u32 peer_dev;
	u32 comm;
	u32 rank;
	u32 peer;
	u32 step;
	u32 cause;
	u32 code;
	u64 number;
	u64 age_ns;
	u64 limit_ns;
	u64 time_ns;
	u64 serial;
	u64 lost;
	u8 ip[16];		/* as in npulink_cause; 0: does not apply */
	char port[32];
	u64 place_net;		/* the network namespace that may know these, by cookie */
	u64 nets[NPULINK_COMM_NETS];	/* .. and those that may know all the rest */
	u32 nnets;
	kuid_t uid;		/* of the user whose it is; not valid: everybody's in these */
	struct npulink_circle circle;
};

#define NPULINK_NOTICE(_type) ((struct npulink_notice) { \
	.type = _type, .dev = NPULINK_NO_DEV, .peer_dev = NPULINK_NO_DEV, .comm = ~0U, \
	.rank = NPULINK_NO_PEER, .peer = NPULINK_NO_PEER, .step = ~0U, .number = ~0ULL, \
})

/* Totals since the module was loaded. */
struct npulink_totals {
	atomic64_t done;	/* operations of ranks that have left */
	atomic64_t failed;
	atomic64_t slow;
	atomic64_t failures[NPULINK_CAUSE_REMOVED + 1];
	atomic64_t events;
	atomic64_t lost;
};

extern struct npulink_totals npulink_totals;

void npulink_notify(const struct npulink_notice *notice, const struct npulink_comm *comm);
void npulink_notify_cause(const struct npulink_comm *comm, const struct npulink_cause *cause);
void npulink_notify_dev(const struct npulink_device *dev, bool added);
void npulink_notify_link(const struct npulink_link *link, bool up);
void npulink_notify_port(const struct npulink_rank *rank, u32 peer, const u8 *ip, const char *port,
			 bool lost);
void npulink_notify_exit(void);
void npulink_slow_told(struct npulink_op *op, u64 ns);
void npulink_slow_init(void);
void npulink_slow_exit(void);

extern struct genl_family npulink_genl_family;

/* ---- remote*.c, port.c -------------------------------------------------------- */

int npulink_remote_resolve(struct npulink_rank *rank, struct npulink_conn *conn);
void npulink_remote_leave(struct npulink_conn *conn);
void npulink_remote_close(struct npulink_conn *conn);
void npulink_remote_free(struct npulink_conn *conn);
int npulink_remote_plan(struct npulink_plan *plan);
void npulink_remote_plan_free(struct npulink_plan *plan);
int npulink_remote_op_alloc(struct npulink_op *op, const struct npulink_plan *plan);
void npulink_remote_op_reset(struct npulink_op *op);
void npulink_remote_op_free(struct npulink_op *op);
int npulink_remote_op_connect(struct npulink_op *op, u32 index, struct npulink_cause *cause);
int npulink_remote_op_strangers(struct npulink_op *op, struct npulink_cause *cause);
bool npulink_remote_has_called(const struct npulink_op *op, const struct npulink_conn *conn);
bool npulink_remote_waits_for(const struct npulink_op *op, u32 *peer, u32 *step);
void npulink_remote_op_finish(struct npulink_op *op, struct npulink_run *run);
void npulink_remote_abort(struct npulink_rank *rank);
void npulink_remote_bell(struct npulink_op *op, u32 step, bool credit, struct npulink_run *run);
void npulink_remote_want(struct npulink_op *op, u32 unit, struct npulink_run *run);
void npulink_remote_want_next(struct npulink_op *op, u32 unit, struct npulink_run *run);
bool npulink_remote_landed(const struct npulink_op *op, u32 unit);
bool npulink_remote_operand(struct npulink_op *op, u32 step, u64 done,
			    struct npulink_operand *o);
int npulink_remote_describe(struct npulink_rank *rank, u32 peer, const struct npulink_where *at);

/* ---- agree*.c */

int npulink_agree_ask(struct npulink_rank *rank, bool minority);
int npulink_agree_init(void);
void npulink_agree_exit(void);
void npulink_agree_flush(void);
void npulink_agree_left(struct npulink_comm *comm);
void npulink_agree_free(struct npulink_agree *agree);
int npulink_agree_introduce(struct npulink_rank *rank, struct npulink_rank *old);

struct npulink_port;

extern struct mutex npulink_ports_lock;

int npulink_port_add(struct npulink_device *dev, const char *kind, const char *name,
		     struct net *net, struct netlink_ext_ack *extack);
int npulink_port_del(struct npulink_device *dev, const char *kind, const char *name,
		     struct net *net, struct netlink_ext_ack *extack);
void npulink_ports_drop(struct npulink_device *dev);
int npulink_port_use(struct npulink_file *file, struct net *net);
void npulink_port_unuse(struct npulink_file *file);
int npulink_port_init(void);
void npulink_port_exit(void);
struct npulink_port *npulink_port_at(struct npulink_device *dev, u32 index, struct net *net);
int npulink_port_info_ioctl(struct npulink_ucmd *ucmd);

struct genl_info;
struct netlink_callback;
struct nla_policy;
struct sk_buff;

extern const struct nla_policy npulink_genl_port_policy[];

int npulink_genl_port_add(struct sk_buff *skb, struct genl_info *info);
int npulink_genl_port_del(struct sk_buff *skb, struct genl_info *info);
int npulink_genl_port_dumpit(struct sk_buff *skb, struct netlink_callback *cb);

/* ---- genl.c, genl_*.c ---------------------------------------------------------- */

int npulink_genl_multicast(const struct npulink_notice *notice);
int npulink_genl_init(void);
void npulink_genl_exit(void);

/* ---- genl_flight.c */

int npulink_genl_flight_start(struct netlink_callback *cb);
int npulink_genl_flight_dumpit(struct sk_buff *skb, struct netlink_callback *cb);
extern const struct nla_policy npulink_genl_flight_policy[];
#define NPULINK_GENL_FLIGHT_MAXATTR	NPULINK_A_FLIGHT_WHAT

#endif /* NPULINK_CORE_H */
