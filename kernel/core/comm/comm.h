/* SPDX-License-Identifier: GPL-2.0 */
/*
 * comm.h - communicators, their ranks, and what a rank knows of its peers (comm.c, rank.c).
 */
#ifndef NPULINK_COMM_H
#define NPULINK_COMM_H

#include <net/net_namespace.h>
#include "base/notify.h"
#include "base/number.h"
#include "file/file.h"
#include "file/free.h"

#define NPULINK_HISTORY		32	/* finished calls that a rank remembers */
#define NPULINK_CALL_TABLE	64
#define NPULINK_MAX_DEPTH	32	/* communicators, each shrunk before all had joined it */

struct npulink_agree;
struct npulink_flight;
struct npulink_flight_peer;
struct npulink_graph;
struct npulink_op;

/*
 * Why a communicator failed; written once. If that was between machines: @ip, that of
 * @peer's, as @rank's knows it, and @port, of @rank's, over which the two were connected.
 */
struct npulink_cause {
	u32 cause;
	int status;
	u32 rank;
	u32 peer;
	u32 step;
	u32 code;
	u64 number;
	struct npulink_call calls[2];
	u8 ip[16];
	char port[32];
};

/* What the first rank called under a number. */
struct npulink_called {
	u64 number;
	bool used;
	u32 rank;
	struct npulink_call call;
};

/*
 * struct npulink_round - the operations of all ranks of this node under one number (run/round.c)
 * @number: of the collective
 * @used: there has been one, of @number
 * @skips: a later number was posted, the last one @skipped, while an older one was still here
 * @state: enum npulink_round_state
 * @count: operations in @ops; 0: the next number may have this place
 * @serial: of the graph of which all their plans are a part
 * @graph: it, referenced, from when the last rank has come
 * @ops: by rank, referenced; NULL: not posted yet, or over
 * @last: the rank that posted last, at @met
 * @bad: some blocks were not run
 * @nblocks: of the graph
 * @next: the block that is taken next
 * @left: blocks that are not done; one more while tasks are being asked
 *
 * Under the communicator's lock, but for what is behind @ops, which belongs to those who run it.
 */
struct npulink_round {
	u64 number;
	u64 skipped;
	bool used;
	bool skips;
	u8 state;
	u32 count;
	u64 serial;
	struct npulink_graph *graph;
	struct npulink_op **ops;
	u32 last;
	u64 met;
	bool bad;
	u32 nblocks;
	atomic_t next;
	atomic_t left;
};

#define NPULINK_ROUND_RANKS	1024	/* ranks of larger communicators each run by themselves */

/* What other machines call a communicator (expect.c). */
struct npulink_tag {
	struct hlist_node node;
	struct npulink_comm *comm;
	u8 tag[8];
};

void npulink_tag_set(struct npulink_tag *t, struct npulink_comm *comm, const u8 *tag);
void npulink_tag_del(struct npulink_tag *t);
void npulink_comm_name(struct npulink_comm *comm);

extern struct mutex npulink_comms_lock;

/*
 * struct npulink_comm - a communicator, as far as it is on this node
 * @mutex: join, leave, abort; not for long, see npulink_comms_lock
 * @flood: whoever tells all ranks of a failure; before mutex
 * @lock: calls, cause, rounds
 * @ranks: members of this node by rank, RCU
 * @here: those members; changed under npulink_comms_lock, as @ranks
 * @left: ranks that were members
 * @died: those of them that left because their process died, or had its file closed
 * @failed: set once, after cause was filled in
 * @flooded: all ranks have been told; under mutex
 */
struct npulink_comm {
	struct kref kref;
	struct hlist_node hash;
	u8 secret[16];
	u32 nranks;
	bool any_uid;
	bool far;		/* has ranks on other machines */
	bool checksum;
	kuid_t uid;
	kuid_t whose;		/* the user with whose limits it counts, see quota.c */
	struct user_namespace *userns;
	u32 joined;
	u32 nleft;		/* bits set in left */
	u32 serial;		/* for people: never the secret */
	u8 tag[8];		/* for other machines: the same; with far */
	u8 agree_secret[16];	/* for agreements with them, see npulink/wire.h */
	u8 agree_tag[8];
	struct npulink_tag tags[2];	/* both */
	struct npulink_agree *agree;	/* set once, under mutex */
	int agree_call;			/* 1: somebody has called for one; -errno: in vain .. */
	const struct net *agree_called_net;	/* .. from there, and then */
	unsigned long agree_called_at;
	struct mutex mutex;		/* see above */
	struct mutex flood;
	struct npulink_rank __rcu **ranks;
	unsigned long *here;
	unsigned long *left;
	unsigned long *died;
	spinlock_t lock;		/* calls, cause, rounds */
	bool failed;
	bool flooded;
	struct npulink_cause cause;
	struct npulink_circle circle;	/* with DEADLOCK; like suspected, deadlock.c's */
	u64 suspected;			/* which waits it was last told of */
	struct work_struct abort_work;
	/* Of one that another one was shrunk to, under npulink_comms_lock, see shrink.c. */
	struct npulink_comm *parent;	/* referenced while @awaited */
	u32 parent_serial;		/* for people, 0: none */
	u32 awaited;			/* ranks of this machine that have not joined yet */
	u32 depth;			/* how many parents hold on to each other */
	u32 *map;			/* what its ranks have been there */
	struct npulink_comm *child;	/* what it was shrunk to, as long as that is there */
	struct npulink_called calls[NPULINK_CALL_TABLE];
	bool skips;			/* a rank has left numbers out, the last before @skipped */
	u64 skipped;
	struct npulink_round *rounds;	/* by number % NPULINK_MAX_INFLIGHT, or NULL */
	struct npulink_op **round_ops;	/* those of all rounds */
	u64 nets[NPULINK_NOTICE_NETS];	/* network namespaces, by cookie, that hear of it in full */
	u32 nnets;
	struct npulink_board *board;	/* set once, under lock; or NULL */
};

/* Where a rank of another machine is: its node, and the addresses of the ports that lead there. */
struct npulink_where {
	u8 node[16];
	u32 naddrs;
	struct npulink_addr addrs[NPULINK_PEER_ADDRS];
};

/*
 * struct npulink_conn - what a rank knows of one peer
 * @peer: the peer's rank structure, referenced, once it has joined
 * @link: to the peer's device
 * @back: from the peer's device
 * @dev: id of the peer's device, NPULINK_NO_DEV until it has joined, and if it is elsewhere
 * @steps: steps whose payload came from the peer
 * @bytes: its bytes
 * @ledger: how long was waited for it, NULL without flight recorder
 * @p2p: point-to-point operations in flight, [0] receive, [1] send
 * @p2p_next: number of the next one
 * @far: the peer is on another machine, @at
 * @remote: the connection to it, from the first plan that needs it
 */
struct npulink_conn {
	u32 rank;
	struct npulink_rank *peer;
	struct npulink_link *link;
	struct npulink_link *back;
	u32 dev;
	atomic64_t steps;
	atomic64_t bytes;
	struct npulink_flight_peer *ledger;
	struct list_head p2p[2];
	u64 p2p_next[2];
	bool far;
	struct npulink_where at;
	struct npulink_remote *remote;
};

/* What became of a rank's operations; under rank->lock. */
struct npulink_rank_stats {
	u32 inflight;
	u64 done;
	u64 failed;
	u64 bytes;		/* that its engine wrote */
	u64 busy_ns;
};

/*
 * struct npulink_rank - one file's membership in a communicator
 * @lock: operations of this rank and all their state; taken with interrupts off
 * @inbox: events for it; whoever sets RANK_SCHED in @flags has to run it
 * @left: events that were taken out of it, and not handled yet
 * @todo: small requests, run by whoever runs the rank
 * @resume: operations that have more to start than was good to do at once
 * @ops: operations in flight, oldest first
 * @table: collective operations by number % NPULINK_MAX_INFLIGHT
 * @early: numbers (likewise) of which a peer elsewhere has said something before we posted them
 * @flight: its flight recorder, or NULL
 */
struct npulink_rank {
	struct npulink_object obj;
	struct npulink_comm *comm;
	struct npulink_file *file;
	struct rb_node file_node;	/* in file->ranks */
	struct npulink_device *dev;
	u32 rank;
	u32 nplans;		/* under comm->mutex */
	u64 born;		/* npulink_clock() */
	struct npulink_flight *flight;
	struct net *net;	/* where its remote peers are; set once */
	u32 peer_timeout_ms;	/* how long it waits for them to answer; 0: as is usual */
	struct xarray conns;
	struct rcu_head rcu;
	struct npulink_deferred deferred;
	struct work_struct resume_work;	/* for @left, @todo and @resume */

	spinlock_t lock ____cacheline_aligned;
	unsigned long flags;
	struct llist_head inbox;
	struct llist_node *left;
	struct list_head run_node;
	struct list_head todo;
	struct list_head resume;
	struct list_head ops;
	u64 next;
	u64 met;		/* of those before it: not posted, as the rank itself says */
	u32 nposted;		/* collectives and point-to-point */
	pid_t caller;		/* the thread that has posted last, in the first pid namespace */
	struct npulink_rank_stats stats;
	bool closed;
	bool gone;		/* being freed: conns and table are not to be looked at */
	struct npulink_op *table[NPULINK_MAX_INFLIGHT];
	DECLARE_BITMAP(early, NPULINK_MAX_INFLIGHT);
	struct {
		u64 number;
		bool used;
		struct npulink_call call;
	} history[NPULINK_HISTORY];
};

#define RANK_SCHED	0

static inline struct npulink_rank *npulink_rank_get(struct npulink_rank *rank)
{
	kref_get(&rank->obj.kref);
	return rank;
}

/*
 * struct npulink_comm_events - what those who run operations do when ranks come, go and fail
 * @rank_reserve: a file is about to get a rank. Task context
 * @rank_abort: it got none, or has lost it
 * @rank_new: nobody sees the rank yet. Task context
 * @missed: does an operation of @by wait for one that rank @gone has never posted? Names it
 * @failed: nothing new begins. Under comm->lock
 * @flood: end what is in flight on all ranks, and return when that is done. Task context
 * @free: the last reference has gone. May sleep
 */
struct npulink_comm_events {
	int (*rank_reserve)(struct npulink_file *file);
	void (*rank_abort)(struct npulink_file *file);
	void (*rank_new)(struct npulink_rank *rank);
	bool (*missed)(struct npulink_rank *by, u32 gone, struct npulink_cause *cause);
	void (*failed)(struct npulink_comm *comm);
	void (*flood)(struct npulink_comm *comm);
	void (*free)(struct npulink_comm *comm);
};

/*
 * struct npulink_conn_events - the same of those who know ranks on other nodes
 * @describe: a peer is there. Task context, may sleep, as all
 * @resolve: a session is needed
 * @abort: the rank's communicator has failed
 * @leave: the rank has left
 * @close: its connections are to end
 * @free: nobody uses them any more
 */
struct npulink_conn_events {
	int (*describe)(struct npulink_rank *rank, u32 peer, const struct npulink_where *at);
	int (*resolve)(struct npulink_rank *rank, struct npulink_conn *conn);
	void (*abort)(struct npulink_rank *rank);
	void (*leave)(struct npulink_conn *conn);
	void (*close)(struct npulink_conn *conn);
	void (*free)(struct npulink_conn *conn);
};

extern const struct npulink_comm_events *npulink_comm_events;
extern const struct npulink_conn_events *npulink_conn_events;

/* The network namespace, by cookie, whose ports its peers are reached by; 0: none. */
static inline u64 npulink_rank_net(const struct npulink_rank *rank)
{
	const struct net *net = READ_ONCE(rank->net);

	return net ? net->net_cookie : 0;
}

void npulink_comm_notify(const struct npulink_comm *comm, struct npulink_notice *notice);
struct npulink_conn *npulink_conn_get(struct npulink_rank *rank, u32 peer,
				      const struct npulink_where *far);
int npulink_conn_resolve(struct npulink_rank *rank, struct npulink_conn *conn);
void npulink_conn_drop(struct npulink_conn *conn);
struct npulink_comm *npulink_comm_new(const u8 *secret, u32 nranks, u32 flags);
void npulink_comm_publish(struct npulink_comm *comm);
void npulink_comm_put(struct npulink_comm *comm);
void npulink_comm_note_net(struct npulink_comm *comm);
static inline u32 npulink_comm_flags(const struct npulink_comm *comm)
{
	return (comm->any_uid ? NPULINK_COMM_ANY_UID : 0) |
	       (comm->checksum ? NPULINK_COMM_CHECKSUM : 0);
}

struct npulink_comm *npulink_comm_next(unsigned long *serial);
struct npulink_rank *npulink_comm_get_next_rank(struct npulink_comm *comm, u32 *i);
bool npulink_comm_alive(struct npulink_comm *comm, u32 i);
struct npulink_rank *npulink_comm_awaited(struct npulink_comm *comm, u32 i);
struct npulink_rank *npulink_comm_survivor(struct npulink_comm *comm);
int npulink_comm_make_heir(struct npulink_comm *comm, const u8 *secret, u32 *map, u32 n);
void npulink_comm_fail_heirs(struct npulink_comm *comm, u32 rank,
			     const struct npulink_cause *cause);
void npulink_comm_fail(struct npulink_comm *comm, const struct npulink_cause *cause);
void npulink_comm_fail_now(struct npulink_comm *comm, const struct npulink_cause *cause);
int npulink_comm_check_call(struct npulink_comm *comm, struct npulink_rank *rank, u64 number,
			    const struct npulink_call *call, struct npulink_cause *cause);
int npulink_cause_errno(u32 cause);
int npulink_comm_peers_ioctl(struct npulink_ucmd *ucmd);
int npulink_comm_abort_ioctl(struct npulink_ucmd *ucmd);
int npulink_comm_status_ioctl(struct npulink_ucmd *ucmd);
int npulink_comm_shrink_ioctl(struct npulink_ucmd *ucmd);
void npulink_comm_init(const struct npulink_comm_events *comm_events,
		       const struct npulink_conn_events *conn_events);
void npulink_comm_exit(void);

/* ---- rank.c ---------------------------------------------------------------- */

extern const struct npulink_object_type npulink_rank_type;

void npulink_rank_put(struct npulink_rank *rank);
u64 npulink_rank_next(struct npulink_rank *rank);
struct npulink_rank *npulink_rank_new(struct npulink_file *file);
int npulink_rank_join(struct npulink_rank *rank,
		      int (*join)(struct npulink_rank *rank, void *arg), void *arg);
struct npulink_rank *npulink_rank_lookup(struct npulink_file *file, u32 id);
void npulink_rank_leave(struct npulink_rank *rank);
int npulink_comm_create_ioctl(struct npulink_ucmd *ucmd);
void npulink_ranks_init(void);

#endif /* NPULINK_COMM_H */
