/* SPDX-License-Identifier: GPL-2.0 */
/*
 * rdma.h - links between machines over RDMA devices, by kernel verbs.
 *
 * Each pair of ranks has a session (struct rdma_conn), which goes over one reliable connection
 * (struct rdma_lane: queue pair, completion queue, protection domain), made by the RDMA connection
 * manager. A domain of its own means that a key given to one peer is of no use to any other,
 * nor one of an earlier connection. If there are several pairs of ports that it could go over,
 * and the connection is lost, it is followed by another one, see lane.c.
 *
 * Locks: rdma_lock > rdma_conn.setup > the rank's lock (core) > rdma_conn.lock. Nothing
 * is destroyed under any of them, since that waits for handlers that take them.
 */
#ifndef NPULINK_RDMA_H
#define NPULINK_RDMA_H

#include <linux/hashtable.h>
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
#define RDMA_WRITES	NPULINK_PUT_WRITES
#define RDMA_PROBES	8	/* the same */
#define RDMA_QUIET	(NPULINK_PUT_TX / 2)	/* messages for one completion */
#define RDMA_SGE	16	/* of one work request, if the device has as many .. */
#define RDMA_SGE_MIN	4	/* .. and it must have these */
#define RDMA_RESOLVE_MS	2000	/* for an address, and for a route */
#define RDMA_SHUT_MIN	200	/* ms for the last message of what has failed; half of .. */
#define RDMA_SHUT_MAX	1000	/* .. what a peer may take to answer, within these */
#define RDMA_SHUT_WAIT	msecs_to_jiffies(RDMA_SHUT_MAX + 100)	/* and until it was given up */
#define RDMA_CALLED_BITS	12
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
	struct rdma_listener *listener;	/* NULL: it takes no calls */
	struct ib_device *ibdev;	/* NULL while it has gone */
	char device[IB_DEVICE_NAME_MAX];
	u32 num;
};

enum rdma_conn_state {
	RDMA_CONN_IDLE,		/* has nothing; waits for a timer, or to be called */
	RDMA_CONN_TRYING,	/* calling */
	RDMA_CONN_OPEN,		/* connected, or nearly */
	RDMA_CONN_RESET,	/* being taken down, then idle, or there is another one */
	RDMA_CONN_FAILED,	/* being taken down, or down, for good */
	RDMA_CONN_CLOSED,	/* the core is done with it */
};

struct rdma_slot {
	struct ib_cqe cqe;
	u64 dma;
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

#define RDMA_FIRST_LEN	64	/* a first message, which is a struct npulink_wire_auth */

/*
 * struct rdma_lane - one connection
 * @used: of one that is not its session's: somebody has called
 * @failing: the same: it goes no further
 * @since: when the peer was called, or has called, or that got on
 * @proved: the peer has proved that it knows the secret, and is at @theirs
 * @first: the peer's first message, and ours behind it
 * @tx_quiet: slots whose messages' completions are not asked for, since the last that was
 * @tx_before: what @tx_quiet was when that slot's was asked for
 * @heard: of the last sign of life, jiffies
 * @probes: that were not acknowledged
 */
struct rdma_lane {
	struct rdma_conn *conn;
	struct rdma_cm_id *id;
	struct ib_device *ibdev;
	u32 port;
	struct ib_pd *pd;
	struct ib_cq *cq;
	u32 sge;
	bool used;
	bool failing;
	bool proved;
	unsigned long since;
	struct npulink_wire_ends ends;
	struct npulink_wire_hello hello;
	struct npulink_wire_welcome welcome;
	struct npulink_wire_place theirs;
	u8 *first;
	u64 first_dma;
	struct ib_cqe first_cqe;
	struct ib_cqe said_cqe;
	unsigned long writes_free;
	unsigned long tx_quiet;
	unsigned long tx_before[NPULINK_PUT_TX];
	atomic_t probes;
	unsigned long heard;
	struct ib_cqe probe_cqe;
	struct rdma_slot rx[NPULINK_PUT_RX];
	struct rdma_slot tx[NPULINK_PUT_TX];
	struct rdma_key keys[NPULINK_WIRE_GRANTS];
	struct rdma_write writes[RDMA_WRITES];
};

struct rdma_cgroup;

/* What is charged for a session on one device: to each cgroup one object. */
struct rdma_charge {
	struct ib_device *ibdev;
	u32 n;
	struct rdma_cgroup *cgroups[3 + NPULINK_WIRE_GRANTS];
};

/*
 * struct rdma_conn - npulink_put.priv
 * @setup: changes of state that set something up; taken by CM handlers
 * @lock: what is free of tx and writes, @starved, @failing, @status, @rx_kept, @rx_live, @tx_live,
 *	and which is @lane
 * @active: we call the peer
 * @several: there is more than one pair of ports that it could go over
 * @final: do not try again; with @lock, but for rdma_shut()
 * @resuming: it was up, and shall be again
 * @was_up: until its connection has been taken down
 * @status: why it failed
 * @lost: why it was resumed
 * @target: the pair of ports that is tried next, see rdma_aim()
 * @patience: how long a try may take, in ms
 * @heard_of: when the peer's machine was last heard of, as long as it is not up
 * @absent: what that machine has said last, or 0 if the rank may still connect
 * @suspect: the peer's machine says that the connection is lost
 * @suspected: and it has been probed since
 * @their_when: of the peer's last hello, under rdma_lock
 * @knock: a call that only asks whether that machine is alive, see alive.c
 * @knocked: when it began
 * @knocks: how many there were
 * @knock_over: it has been answered, or has failed
 * @lane: the session's connection, one of @lanes; the other one is of who calls meanwhile
 * @up: @lane stands, and the core may use it
 * @rx_kept: slots whose message the core keeps
 * @rx_live: the others are posted to @lane
 * @tx_live: what has to be sent again over @lane has been
 * @tx_last: slots that hold a last message
 * @tx_len: bytes in them
 * @charged: on the list of those that are, with @charges, by device; under rdma_lock
 */
struct rdma_conn {
	struct kref kref;
	struct npulink_put *put;
	struct list_head node;		/* rdma_conns */
	struct hlist_node hash;		/* rdma_called, by whom it leads to */
	struct mutex setup;		/* see above */
	u8 state;
	bool active;
	bool several;
	bool final;
	bool failing;
	bool resuming;
	bool was_up;
	bool shutting;			/* its last message is under way */
	bool leaving;			/* the same, and it has not failed */
	unsigned long leave_end;	/* how long that is waited for */
	bool told;			/* npulink_put_down() was called */
	struct delayed_work work;
	struct delayed_work watch;
	int status;
	int lost;
	u32 target;
	unsigned int delay;
	unsigned int patience;
	unsigned long heard_of;
	int absent;
	bool suspect;
	bool suspected;
	u64 their_when;
	struct rdma_cm_id *knock;
	struct npulink_wire_ends knock_ends;
	struct npulink_wire_hello knock_hello;
	unsigned long knocked;
	u32 knocks;
	bool knock_over;

	struct rdma_lane *lane;
	struct rdma_lane lanes[2];

	spinlock_t lock;		/* see above */
	bool up;
	bool starved;
	bool rx_live;
	bool tx_live;
	unsigned long rx_kept;
	unsigned long tx_last;
	u16 tx_len[NPULINK_PUT_TX];
	struct completion last_sent;
	struct list_head charged;
	struct rdma_charge charges[NPULINK_PEER_ADDRS];
};

/* Where to call, and from which of our addresses, if @bound. */
struct rdma_aim {
	struct npulink_addr to;
	u8 from[16];
	bool bound;
};

extern struct mutex rdma_lock;		/* devices, listeners, ports, connections */
extern struct list_head rdma_conns;
extern DECLARE_HASHTABLE(rdma_called, RDMA_CALLED_BITS);
extern struct workqueue_struct *rdma_wq;
extern unsigned int rdma_peer_timeout;
extern atomic_t rdma_keys;
extern atomic_t rdma_nconns;

/* main.c */
bool rdma_port_allowed(const struct npulink_device *dev, const struct net *net,
		       const struct ib_device *ibdev, u32 num);
u32 rdma_own_addr(const struct npulink_device *dev, const struct net *net, u32 index, u8 *ip);

u32 rdma_own_devices(const struct npulink_device *dev, const struct net *net,
		     struct ib_device **ibdevs, u32 max);

/* charge.c */
int rdma_charge(struct rdma_conn *conn);
void rdma_uncharge(struct rdma_conn *conn);
void rdma_uncharge_device(const struct ib_device *ibdev);

/* cm.c */
int rdma_open(struct npulink_put *put);
void rdma_leave(struct npulink_put *put, const struct npulink_wire_msg *msg);
void rdma_close(struct npulink_put *put);
void rdma_aim(const struct rdma_conn *conn, u32 target, struct rdma_aim *aim);
int rdma_conn_resolve(struct rdma_cm_id *id, const struct rdma_aim *aim);
void rdma_conn_param(struct rdma_conn_param *param, const void *data, u8 len);
void rdma_conn_timeouts(const struct rdma_conn *conn, struct rdma_cm_id *id);
int rdma_conn_event(struct rdma_cm_id *id, struct rdma_cm_event *event);
void rdma_conn_fail(struct rdma_conn *conn, int status);
void rdma_conn_give_up(struct rdma_conn *conn, int status);
void rdma_conn_drained(struct rdma_conn *conn);
void rdma_conn_ended(struct rdma_conn *conn);
void rdma_conns_break(const struct ib_device *ibdev, int status);
void rdma_conns_give_up(const struct npulink_device *dev, const struct net *net, int status);

/* answer.c */
u64 rdma_called_hash(const u8 *tag, u32 rank, u32 peer);
void rdma_answer_addr(struct rdma_conn *conn, const struct rdma_cm_id *id);
int rdma_conn_request(const struct rdma_listener *listener, struct rdma_cm_id *id,
		      struct rdma_cm_event *event);

/* lane.c */
void rdma_lane_fail(struct rdma_lane *lane, int status);
int rdma_lane_say(struct rdma_lane *lane);
void rdma_lane_first_done(struct ib_cq *cq, struct ib_wc *wc);
void rdma_lane_said_done(struct ib_cq *cq, struct ib_wc *wc);
int rdma_lane_up(struct rdma_lane *lane);
struct rdma_lane *rdma_lane_other(struct rdma_conn *conn);
bool rdma_lane_next(struct rdma_conn *conn);
void rdma_resend(struct npulink_put *put, u32 seq);

/* alive.c */
void rdma_alive_watch(struct work_struct *work);
void rdma_alive_refused(struct rdma_conn *conn, struct rdma_cm_id *id, struct rdma_cm_event *event,
			const struct npulink_wire_ends *ends,
			const struct npulink_wire_hello *hello);
void rdma_alive_suspect(struct rdma_conn *conn);
void rdma_alive_end(struct rdma_conn *conn);

/* qp.c */
void rdma_conn_name(struct rdma_conn *conn, const struct rdma_cm_id *id);
int rdma_lane_setup(struct rdma_lane *lane, struct rdma_cm_id *id);
int rdma_lane_slots(struct rdma_lane *lane);
void rdma_lane_teardown(struct rdma_lane *lane);

/* data.c */
int rdma_send(struct npulink_put *put, const struct npulink_wire_msg *msg,
	      const struct npulink_operand *from, u32 len);
int rdma_send_last(struct rdma_conn *conn, const struct npulink_wire_msg *msg,
		   const void *payload, u32 len);
int rdma_grant(struct npulink_put *put, u32 grant, const struct npulink_operand *to, u32 len,
	       struct npulink_wire_msg *msg);
void rdma_revoke(struct npulink_put *put, u32 grant);
int rdma_write(struct npulink_put *put, void *cookie, const struct npulink_operand *from, u32 len,
	       u64 addr, u32 rkey, bool last, u32 imm);
void rdma_recycle(struct npulink_put *put, u32 slot);
void rdma_probe(struct npulink_put *put);
void rdma_shut(struct npulink_put *put, const struct npulink_wire_msg *msg, const void *payload,
	       u32 len);
int rdma_rx_post(struct rdma_lane *lane, u32 slot);
int rdma_tx_post(struct rdma_conn *conn, u32 slot, struct ib_send_wr *first,
		 struct ib_send_wr *last);
void *rdma_tx_va(struct rdma_conn *conn, u32 slot);
void rdma_recv_done(struct ib_cq *cq, struct ib_wc *wc);
void rdma_tx_done(struct ib_cq *cq, struct ib_wc *wc);
void rdma_revoke_done(struct ib_cq *cq, struct ib_wc *wc);
void rdma_write_done(struct ib_cq *cq, struct ib_wc *wc);
void rdma_probe_done(struct ib_cq *cq, struct ib_wc *wc);
void rdma_key_unmap(struct rdma_lane *lane, struct rdma_key *key);
void rdma_write_unmap(struct rdma_lane *lane, struct rdma_write *w);

/* auth.c */
void rdma_auth_tag(const u8 *secret, u8 *tag);
void rdma_auth_ends(struct npulink_wire_ends *ends, struct rdma_cm_id *id, bool caller, u32 qp);
void rdma_auth_hello(const struct rdma_conn *conn, const struct npulink_wire_ends *ends, u16 flags,
		     struct npulink_wire_hello *hello);
bool rdma_auth_version(const struct npulink_wire_hello *hello);
bool rdma_auth_means(const struct rdma_conn *conn, const struct npulink_wire_hello *hello);
bool rdma_auth_check_hello(const u8 *secret, const struct npulink_wire_ends *ends,
			   const struct npulink_wire_hello *hello);
void rdma_auth_welcome(struct rdma_lane *lane);
bool rdma_auth_check_welcome(const struct rdma_lane *lane);
void rdma_auth_refusal(const u8 *secret, const struct npulink_wire_ends *ends,
		       const struct npulink_wire_hello *hello,
		       struct npulink_wire_refusal *refusal);
bool rdma_auth_check_refusal(const u8 *secret, const struct npulink_wire_ends *ends,
			     const struct npulink_wire_hello *hello,
			     const struct npulink_wire_refusal *refusal);
void rdma_auth_make(const struct rdma_lane *lane, struct npulink_wire_auth *auth);
bool rdma_auth_check(const struct rdma_lane *lane, const struct npulink_wire_auth *auth);

static inline void *rdma_slot_va(const struct npulink_put *put, u32 slot)
{
	const struct npulink_buf_mem *mem = npulink_buf_mem(put->buf);
	u64 off = slot * NPULINK_WIRE_SLOT;
	const struct npulink_range *r = &mem->ranges[npulink_mem_range(mem, off)];

	return r->va + (off - r->off);
}

#endif /* NPULINK_RDMA_H */
