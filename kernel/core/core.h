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
#include "device_core.h"
#include "file.h"
#include "hot.h"
#include "notify.h"
#include "op.h"
#include "plan.h"
#include "queue.h"

#define NPULINK_VERSION		"0.1.0"
/* ---- board.c ------------------------------------------------------------ */

struct npulink_board;

extern const struct kernel_param_ops npulink_board_param_ops;
extern bool npulink_scripts;

int npulink_board_sync(struct npulink_rank *rank);
u64 npulink_board_next(struct npulink_rank *rank);
bool npulink_board_met(struct npulink_rank *rank, u64 number);
void npulink_board_posted(struct npulink_rank *rank);
void npulink_board_failed(struct npulink_comm *comm);
void npulink_board_drop(struct npulink_comm *comm);
int npulink_board_mmap(struct npulink_file *file, u64 off, struct vm_area_struct *vma);
int npulink_board_wait_ioctl(struct npulink_ucmd *ucmd);
void npulink_board_direct(bool direct);
int npulink_board_init(void);
void npulink_board_exit(void);
int npulink_trace_begin(void);
void npulink_trace_end(void);

/* ---- slow.c ------------------------------------------------------- */

void npulink_slow_told(struct npulink_op *op, u64 ns);
void npulink_slow_init(void);
void npulink_slow_exit(void);

extern struct genl_family npulink_genl_family;

/* ---- agree*.c, port.c */

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
