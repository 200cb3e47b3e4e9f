/* SPDX-License-Identifier: GPL-2.0 */
/*
 * rdma.h - links between machines over RDMA devices, by kernel verbs.
 *
 * One reliable connection (queue pair, completion queue, protection domain) for each pair
 * of ranks, made by the RDMA connection manager. A domain of its own means that a
 * key given to one peer is of no use to any other.
 *
 * Locks: rdma_lock > rdma_conn.setup; the rank's lock (core) > rdma_conn.lock. Nothing
 * is destroyed under any of them, since that waits for handlers that take them.
 */
#ifndef NPULINK_RDMA_H
#define NPULINK_RDMA_H

#include <linux/kref.h>
#include <linux/mutex.h>
#include <linux/scatterlist.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>
#include <npulink/compat.h>
#include <npulink/transport.h>

/* Pieces of the largest grant: its pages, if it begins within one. */
#define RDMA_PAGES	(NPULINK_WIRE_CHUNK / PAGE_SIZE + 1)
#define RDMA_WRITES	8	/* that are under way at a time */
#define RDMA_PROBES	8	/* the same */
#define RDMA_SGE	16	/* of one work request, if the device has as many .. */
#define RDMA_SGE_MIN	4	/* .. and it must have these */
#define RDMA_RESOLVE_MS	2000	/* for an address, and for a route */
#define RDMA_WRITE_WRS	DIV_ROUND_UP(RDMA_PAGES, RDMA_SGE_MIN)

struct rdma_device {
	struct list_head node;
	struct ib_device *ibdev;
};

struct rdma_listener {
	struct list_head node;
	struct net *net;
	struct rdma_cm_id *id;
	unsigned int ports;
};

/* What npulink_port.priv points to. */
struct rdma_port {
	struct list_head node;
	struct npulink_port *port;
	struct rdma_listener *listener;
	struct ib_device *ibdev;	/* NULL while it has gone */
	char device[IB_DEVICE_NAME_MAX];
	u32 num;
};

enum rdma_conn_state {
	RDMA_CONN_IDLE,		/* has nothing; waits for a timer, or to be called */
	RDMA_CONN_TRYING,	/* calling */
	RDMA_CONN_OPEN,		/* connected, or nearly */
	RDMA_CONN_RESET,	/* being taken down, then idle */
	RDMA_CONN_FAILED,	/* being taken down, or down, for good */
	RDMA_CONN_CLOSED,	/* the core is done with it */
};

struct rdma_rx {
	struct ib_cqe cqe;
	u64 dma;
};

struct rdma_tx {
	struct ib_cqe cqe;
	u64 dma;
	bool last;
};

/* A key: its registration, and what is mapped for it. */
struct rdma_key {
	struct ib_cqe cqe;
	struct ib_mr *mr;
	struct scatterlist sg[RDMA_PAGES];
	int nents;		/* mapped; 0: not in use */
};

struct rdma_write {
	struct ib_cqe cqe;
	void *cookie;
	u32 len;
	u32 n;
	struct ib_sge sge[RDMA_PAGES];
	struct ib_rdma_wr wr[RDMA_WRITE_WRS];
};

/*
 * struct rdma_conn - npulink_put.priv
 * @setup: changes of state that set something up; taken by CM handlers
 * @lock: what is free of tx and writes, @starved, @failing, @status
 * @active: we call the peer
 * @final: do not try again; with @lock, but for rdma_shut()
 * @status: why it failed
 * @tried: when the present try to connect began
 * @patience: how long it may take, in ms
 * @heard_of: when the peer's machine was last heard of, as long as it is not up
 * @absent: what that machine has said last, or 0 if the rank may still connect
 * @knock: a call that only asks whether that machine is alive, see alive.c
 * @knocked: when it began
 * @knock_over: it has been answered, or has failed
 * @up: the peer has proved that it knows the secret
 */
struct rdma_conn {
	struct kref kref;
	struct npulink_put *put;
	struct list_head node;		/* rdma_conns */
	struct mutex setup;		/* see above */
	u8 state;
	bool active;
	bool final;
	bool failing;
	bool shutting;			/* its last message is under way */
	bool told;			/* npulink_put_down() was called */
	struct delayed_work work;
	struct delayed_work watch;
	int status;
	unsigned int delay;
	unsigned long tried;
	unsigned int patience;
	unsigned long heard_of;
	int absent;
	struct rdma_cm_id *knock;
	unsigned long knocked;
	bool knock_over;
	struct npulink_wire_hello hello;
	struct npulink_wire_welcome welcome;

	struct rdma_cm_id *id;
	struct ib_device *ibdev;
	struct ib_pd *pd;
	struct ib_cq *cq;
	u32 sge;

	spinlock_t lock;		/* see above */
	bool up;
	bool starved;
	unsigned long tx_free;
	unsigned long writes_free;
	atomic_t probes;		/* that were not acknowledged */
	unsigned long heard;		/* jiffies, of the last sign of life */
	struct ib_cqe probe_cqe;
	struct completion last_sent;
	struct rdma_rx rx[NPULINK_PUT_RX];
	struct rdma_tx tx[NPULINK_PUT_TX];
	struct rdma_key keys[NPULINK_WIRE_GRANTS];
	struct rdma_write writes[RDMA_WRITES];
};

extern struct mutex rdma_lock;		/* devices, listeners, ports, connections */
extern struct list_head rdma_conns;
extern struct workqueue_struct *rdma_wq;
extern unsigned int rdma_peer_timeout;
extern atomic_t rdma_keys;
extern atomic_t rdma_nconns;

/* main.c */
bool rdma_port_allowed(const struct npulink_device *dev, const struct net *net,
		       const struct ib_device *ibdev, u32 num);

/* cm.c */
int rdma_open(struct npulink_put *put);
void rdma_close(struct npulink_put *put, const struct npulink_wire_msg *msg);
int rdma_conn_request(const struct rdma_listener *listener, struct rdma_cm_id *id,
		      struct rdma_cm_event *event);
int rdma_conn_resolve(struct rdma_conn *conn, struct rdma_cm_id *id);
void rdma_conn_param(struct rdma_conn_param *param, const void *data, u8 len);
void rdma_conn_fail(struct rdma_conn *conn, int status);
void rdma_conn_lost(struct rdma_conn *conn);
void rdma_conn_give_up(struct rdma_conn *conn, int status);
void rdma_conn_tell(struct rdma_conn *conn);
void rdma_conn_authenticated(struct rdma_conn *conn, const void *msg, u32 len);
void rdma_conns_break(const struct npulink_device *dev, const struct ib_device *ibdev,
		      int status);

/* alive.c */
void rdma_alive_watch(struct work_struct *work);
void rdma_alive_answer(struct rdma_conn *conn, u8 reason);
void rdma_alive_end(struct rdma_conn *conn);

/* qp.c */
void rdma_conn_name(struct rdma_conn *conn, const struct rdma_cm_id *id);
int rdma_conn_setup(struct rdma_conn *conn, struct rdma_cm_id *id);
void rdma_conn_teardown(struct rdma_conn *conn);
int rdma_send_auth(struct rdma_conn *conn, const struct npulink_wire_auth *auth);
int rdma_send_last(struct rdma_conn *conn, const struct npulink_wire_msg *msg,
		   const void *payload, u32 len);

/* data.c */
int rdma_send(struct npulink_put *put, const struct npulink_wire_msg *msg,
	      const struct npulink_operand *from, u32 len);
int rdma_grant(struct npulink_put *put, u32 grant, const struct npulink_operand *to, u32 len,
	       struct npulink_wire_msg *msg);
void rdma_revoke(struct npulink_put *put, u32 grant);
int rdma_write(struct npulink_put *put, void *cookie, const struct npulink_operand *from, u32 len,
	       u64 addr, u32 rkey, bool last, u32 imm);
void rdma_recycle(struct npulink_put *put, u32 slot);
void rdma_probe(struct npulink_put *put);
void rdma_shut(struct npulink_put *put, const struct npulink_wire_msg *msg, const void *payload,
	       u32 len);
int rdma_rx_post(struct rdma_conn *conn, u32 slot);
void rdma_recv_done(struct ib_cq *cq, struct ib_wc *wc);
void rdma_tx_done(struct ib_cq *cq, struct ib_wc *wc);
void rdma_revoke_done(struct ib_cq *cq, struct ib_wc *wc);
void rdma_write_done(struct ib_cq *cq, struct ib_wc *wc);
void rdma_probe_done(struct ib_cq *cq, struct ib_wc *wc);
void rdma_key_unmap(struct rdma_conn *conn, struct rdma_key *key);
void rdma_write_unmap(struct rdma_conn *conn, struct rdma_write *w);

/* auth.c */
void rdma_auth_tag(const u8 *secret, u8 *tag);
void rdma_auth_hello(const struct rdma_conn *conn, struct npulink_wire_hello *hello);
bool rdma_auth_check_hello(const struct rdma_conn *conn, const struct npulink_wire_hello *hello);
bool rdma_auth_limits(const struct npulink_wire_hello *hello);
void rdma_auth_welcome(struct rdma_conn *conn);
bool rdma_auth_check_welcome(const struct rdma_conn *conn);
void rdma_auth_make(const struct rdma_conn *conn, struct npulink_wire_auth *auth);
bool rdma_auth_check(const struct rdma_conn *conn, const struct npulink_wire_auth *auth);

static inline void *rdma_slot_va(const struct npulink_put *put, u32 slot)
{
	const struct npulink_buf_mem *mem = npulink_buf_mem(put->buf);
	u64 off = slot * NPULINK_WIRE_SLOT;
	const struct npulink_range *r = &mem->ranges[npulink_mem_range(mem, off)];

	return r->va + (off - r->off);
}

#endif /* NPULINK_RDMA_H */
