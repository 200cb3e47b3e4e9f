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
 * and file.mutex are taken alone, in system calls only.
 */
#ifndef NPULINK_CORE_H
#define NPULINK_CORE_H

#include <linux/cred.h>
#include <linux/kref.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/sched/clock.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/timer.h>
#include <linux/workqueue.h>
#include <npulink/compat.h>
#include <npulink/device.h>
#include <npulink/verify.h>

#define NPULINK_VERSION		"0.1.0"
#define NPULINK_MAX_DEVICES	1024
#define NPULINK_MAX_INFLIGHT	512	/* operations of one file; a power of two */
#define NPULINK_MAX_ARENA	(1024 * 1024)
#define NPULINK_HISTORY		32	/* finished calls that a rank remembers */
#define NPULINK_OP_REQS		8	/* requests that one operation has at a time */
#define NPULINK_PLAN_SPARES	4	/* operations that a plan keeps */
#define NPULINK_CHECK_REQS	2	/* the same, if what comes over links is checked */
#define NPULINK_MAX_OBJECTS	65536	/* of one file */

struct npulink_cause;
struct npulink_comm;
struct npulink_file;
struct npulink_flight;
struct npulink_flight_peer;
struct npulink_op;
struct npulink_rank;
struct npulink_script;

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

/* ---- account.c ---------------------------------------------------------- */

struct npulink_charge {
	struct mm_struct *mm;		/* grabbed */
	struct user_struct *user;
	unsigned long npages;
};

extern atomic64_t npulink_pinned;	/* pages charged on this node */

int npulink_charge(struct npulink_charge *c, struct npulink_file *file, unsigned long npages);
void npulink_uncharge(struct npulink_charge *c);

/* ---- quota.c ------------------------------------------------------------ */

/* A user with open files. */
struct npulink_quota {
	struct hlist_node node;
	kuid_t uid;
	unsigned int files;
	atomic_t objects;	/* files among them */
};

struct npulink_quota *npulink_quota_open(void);
void npulink_quota_close(struct npulink_quota *q);
int npulink_quota_take(struct npulink_quota *q);
void npulink_quota_give(struct npulink_quota *q);

/* ---- objects ------------------------------------------------------------ */

enum npulink_object_type {
	NPULINK_OBJ_ANY,
	NPULINK_OBJ_BUF,
	NPULINK_OBJ_RANK,
	NPULINK_OBJ_PLAN,
	NPULINK_OBJ_TYPES,
};

/* What a file's id stands for. The id holds one reference. */
struct npulink_object {
	struct kref kref;
	u32 id;
	u8 type;
};

/* What is done with objects, by type. */
struct npulink_object_type_ops {
	/* May the id be taken away? May sleep. */
	bool (*busy)(struct npulink_object *obj);
	/* The id has gone: stop using whatever others see of it. May sleep. */
	void (*destroy)(struct npulink_object *obj);
	/* The last reference has gone. Any context but NMI. */
	void (*release)(struct kref *kref);
};

int npulink_object_reserve(struct npulink_file *file, struct npulink_object *obj, u8 type);
void npulink_object_publish(struct npulink_file *file, struct npulink_object *obj);
void npulink_object_abort(struct npulink_file *file, struct npulink_object *obj);
struct npulink_object *npulink_object_get(struct npulink_file *file, u32 id, u8 type);
struct npulink_object *npulink_object_next(struct npulink_file *file, unsigned long *id, u8 type);
void npulink_object_put(struct npulink_object *obj);
int npulink_object_destroy(struct npulink_file *file, u32 id);

/* ---- file (cdev.c) ------------------------------------------------------ */

/* A task that sleeps in POST or WAIT; on npulink_file.waiters. */
struct npulink_waiter {
	struct list_head node;
	struct task_struct *task;
	struct mm_struct *mm;	/* the task's; only compared */
	struct npulink_op *op;
	u64 id;			/* of this wait, in its file */
	unsigned long since;	/* jiffies */
	bool helper;		/* owner: may be woken to run ready requests */
	bool woken;
	bool forever;		/* no limit but the operation's deadline */
};

/* The address space that a file belongs to; shared by all its files. */
struct npulink_mm {
	struct mmu_notifier mn;
	spinlock_t lock;		/* files */
	struct list_head files;
	bool dead;
};

/* The completion ring. @ring is written by the user too: never read it back. */
struct npulink_cq {
	struct npulink_ring *ring;
	u32 entries;
	u32 head;
	u32 reserved;		/* operations in flight that will need a record */
	u64 len;
	struct eventfd_ctx *eventfd;
	struct npulink_charge charge;
};

/*
 * struct npulink_file - one open file
 * @lock: ready, waiters, slots, cq
 * @mutex: set-up of arena, ring, worker
 * @slots: operations in flight or held, found by seq % NPULINK_MAX_INFLIGHT
 */
struct npulink_file {
	struct kref kref;
	u32 id;			/* for people, see npulink_file_next() */
	struct npulink_device *dev;
	struct list_head dev_node;
	struct list_head mm_node;
	struct npulink_mm *nmm;
	struct mm_struct *mm;		/* the opener's, grabbed; only compared */
	struct user_struct *user;
	const struct cred *cred;
	struct npulink_quota *quota;
	struct pid *tgid;
	bool dead;
	int doorbell;			/* index of its doorbell page, -1: none yet */
	struct mutex mutex;		/* see above */
	struct xarray objects;
	struct npulink_buf *arena;
	u64 arena_len;		/* for people, who have no reference to it */
	struct task_struct *worker;

	spinlock_t lock ____cacheline_aligned;
	struct list_head ready;
	struct list_head waiters;
	u64 waits;			/* id of the last waiter */
	struct npulink_op **slots;
	u32 slot_hint;
	u32 inflight;
	u64 seq;
	struct npulink_cq cq;
	wait_queue_head_t poll_wq;
	struct timer_list watchdog;
	unsigned long watchdog_at;
	struct work_struct deadline_work;
};

/* A lock that is taken before anything is done: after a signal the call may be made again. */
static inline int npulink_lock(struct mutex *lock)
{
	return mutex_lock_interruptible(lock) ? -ERESTARTSYS : 0;
}

/* The first notifier of a kind takes all locks of a process, and gives up at a signal. */
static inline int npulink_notifier_error(int rc)
{
	return rc == -EINTR ? -ERESTARTSYS : rc;
}

static inline struct npulink_file *npulink_file_get(struct npulink_file *file)
{
	kref_get(&file->kref);
	return file;
}

void npulink_file_put(struct npulink_file *file);
struct npulink_file *npulink_file_next(unsigned long *id);
int npulink_file_start_worker(struct npulink_file *file);
struct npulink_mm *npulink_mm_attach(struct npulink_file *file);
void npulink_mm_detach(struct npulink_file *file);
void npulink_file_kill(struct npulink_file *file, u32 cause);

/* One ioctl in progress. */
struct npulink_ucmd {
	struct npulink_file *file;
	void __user *ubuffer;
	u32 user_size;
	void *cmd;
};

int npulink_ucmd_respond(struct npulink_ucmd *ucmd, size_t len);

int npulink_cdev_init(void);
void npulink_cdev_exit(void);
extern const struct file_operations npulink_fops;
extern dev_t npulink_devt;

/* ---- buf.c, dmabuf.c ---------------------------------------------------- */

enum npulink_buf_kind { NPULINK_BUF_USER, NPULINK_BUF_KERNEL, NPULINK_BUF_DMABUF };

/*
 * struct npulink_buf - memory that plans can be run on
 * @users: who needs the memory: the id, each operation, each request, each
 *	   mapping, each dma-buf made of it. The last one frees it (in a worker)
 * @suspect: the notifier saw an unmap or clear: compare pages before use
 * @mutex: revalidation
 */
struct npulink_buf {
	struct npulink_object obj;
	struct npulink_buf_mem mem;
	refcount_t users;
	u8 kind;
	bool readonly;
	bool suspect;
	bool unmapped;
	struct npulink_device *dev;
	struct list_head dev_node;	/* dev->bufs, if mapped */
	struct npulink_charge charge;
	struct mutex mutex;		/* see above */
	unsigned long uaddr;
	struct mmu_interval_notifier mn;
	struct work_struct work;
	struct work_struct unmap_work;
	atomic_t base;		/* 1 while the id's user reference is held */
	struct dma_buf *dmabuf;
	void *dmabuf_va;
	struct rcu_head rcu;
};

#define NPULINK_MMAP_BUF(id)	(0x1000000000000ULL + ((id) << 41))

struct npulink_buf *npulink_buf_alloc_pages(struct npulink_file *file, u64 len);
int npulink_buf_use(struct npulink_file *file, struct npulink_buf *buf);
static inline bool npulink_buf_tryget(struct npulink_buf *buf)
{
	return refcount_inc_not_zero(&buf->users);
}

void npulink_buf_unuse(struct npulink_buf *buf);
void npulink_buf_drop_base(struct npulink_buf *buf);
struct npulink_buf *npulink_buf_new(struct npulink_file *file, u8 kind);
int npulink_buf_map(struct npulink_buf *buf);
void npulink_bufs_unmap(struct npulink_device *dev);
int npulink_buf_mmap(struct npulink_buf *buf, struct vm_area_struct *vma);
int npulink_buf_from_va(struct npulink_buf *buf, void *va, u64 len);
int npulink_buf_from_buf(struct npulink_buf *buf, const struct npulink_buf *from);
void npulink_buf_dmabuf_release(struct npulink_buf *buf);
void npulink_buf_destroy(struct npulink_object *obj);
void npulink_buf_release(struct kref *kref);
int npulink_buf_register_ioctl(struct npulink_ucmd *ucmd);
int npulink_buf_alloc_ioctl(struct npulink_ucmd *ucmd);
int npulink_buf_import_ioctl(struct npulink_ucmd *ucmd);
int npulink_buf_export_ioctl(struct npulink_ucmd *ucmd);
void npulink_buf_flush(void);
int npulink_buf_init(void);
void npulink_buf_exit(void);

/* ---- comm.c -------------------------------------------------------------- */

/* Why a communicator failed; written once. */
struct npulink_cause {
	u32 cause;
	int status;
	u32 rank;
	u32 peer;
	u32 step;
	u32 code;
	u64 number;
	struct npulink_call calls[2];
};

#define NPULINK_CALL_TABLE	64

/* What the first rank called under a number. */
struct npulink_called {
	u64 number;		/* + 1; 0: free */
	u32 rank;
	struct npulink_call call;
};

/*
 * struct npulink_meet - ranks that wait for all others to post a small collective (meet.c)
 * @number: of the collective, + 1
 * @count: ranks that have posted it
 * @broken: each starts for itself
 * @script: what they have in common
 * @first: their operations, the latest first
 */
struct npulink_meet {
	u64 number;
	u32 count;
	bool broken;
	struct npulink_script *script;
	struct npulink_op *first;
};

extern struct mutex npulink_comms_lock;

/*
 * struct npulink_comm - a communicator, as far as it is on this node
 * @mutex: join, leave, abort
 * @lock: calls, cause, meets
 * @ranks: members of this node by rank, RCU
 * @left: ranks that left in good order
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
	struct user_namespace *userns;
	u32 joined;
	u32 nleft;		/* bits set in left */
	u32 serial;		/* for people: never the secret */
	struct mutex mutex;		/* see above */
	struct npulink_rank __rcu **ranks;
	unsigned long *left;
	spinlock_t lock;		/* calls, cause, meets */
	bool failed;
	bool flooded;
	struct npulink_cause cause;
	struct work_struct abort_work;
	struct npulink_comm *parent;
	u32 *map;
	struct npulink_comm *child;
	struct npulink_called calls[NPULINK_CALL_TABLE];
	struct npulink_meet *meets;	/* by number % NPULINK_MAX_INFLIGHT */
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
 * @far: the peer is on another machine, at @addr
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
	struct npulink_addr addr;
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
 * @todo: small requests, run by whoever runs the rank
 * @ops: operations in flight, oldest first
 * @table: collective operations by number % NPULINK_MAX_INFLIGHT
 * @flight: its flight recorder, or NULL
 */
struct npulink_rank {
	struct npulink_object obj;
	struct npulink_comm *comm;
	struct npulink_file *file;
	struct npulink_device *dev;
	u32 rank;
	u32 nplans;		/* under comm->mutex */
	struct npulink_flight *flight;
	struct net *net;	/* where its remote peers are; set once */
	struct xarray conns;
	struct rcu_head rcu;
	struct work_struct release_work;

	spinlock_t lock ____cacheline_aligned;
	unsigned long flags;
	struct llist_head inbox;
	struct list_head run_node;
	struct list_head todo;
	struct list_head ops;
	u64 next;
	u32 nposted;		/* collectives and point-to-point */
	struct npulink_rank_stats stats;
	bool closed;
	struct npulink_op *table[NPULINK_MAX_INFLIGHT];
	struct {
		u64 number;	/* + 1; 0: free */
		struct npulink_call call;
	} history[NPULINK_HISTORY];
};

#define RANK_SCHED	0

static inline struct npulink_rank *npulink_rank_get(struct npulink_rank *rank)
{
	kref_get(&rank->obj.kref);
	return rank;
}

void npulink_rank_put(struct npulink_rank *rank);
struct npulink_conn *npulink_conn_get(struct npulink_rank *rank, u32 peer,
				      const struct npulink_addr *far);
int npulink_conn_resolve(struct npulink_rank *rank, struct npulink_conn *conn);
struct npulink_rank *npulink_rank_new(struct npulink_file *file);
int npulink_rank_join(struct npulink_rank *rank,
		      int (*join)(struct npulink_rank *rank, void *arg), void *arg);
struct npulink_rank *npulink_rank_lookup(struct npulink_file *file, u32 id);
struct npulink_comm *npulink_comm_new(const u8 *secret, u32 nranks, u32 flags);
void npulink_comm_put(struct npulink_comm *comm);
static inline u32 npulink_comm_flags(const struct npulink_comm *comm)
{
	return (comm->any_uid ? NPULINK_COMM_ANY_UID : 0) |
	       (comm->checksum ? NPULINK_COMM_CHECKSUM : 0);
}

struct npulink_comm *npulink_comm_next(unsigned long *serial);
void npulink_comm_fail_heirs(struct npulink_comm *comm, u32 rank,
			     const struct npulink_cause *cause);
void npulink_comm_fail(struct npulink_comm *comm, const struct npulink_cause *cause);
void npulink_comm_fail_now(struct npulink_comm *comm, const struct npulink_cause *cause);
int npulink_comm_check_call(struct npulink_comm *comm, struct npulink_rank *rank, u64 number,
			    const struct npulink_call *call, struct npulink_cause *cause);
int npulink_cause_errno(u32 cause);
bool npulink_rank_busy(struct npulink_object *obj);
void npulink_rank_destroy(struct npulink_object *obj);
void npulink_rank_release(struct kref *kref);
void npulink_rank_leave(struct npulink_rank *rank);
int npulink_comm_create_ioctl(struct npulink_ucmd *ucmd);
int npulink_comm_peers_ioctl(struct npulink_ucmd *ucmd);
int npulink_comm_abort_ioctl(struct npulink_ucmd *ucmd);
int npulink_comm_status_ioctl(struct npulink_ucmd *ucmd);
int npulink_comm_shrink_ioctl(struct npulink_ucmd *ucmd);
void npulink_device_fail(struct npulink_device *dev, u32 cause, int status);
void npulink_device_fail_work(struct work_struct *work);
bool npulink_comm_queue(struct work_struct *work);
void npulink_comm_flush(void);
int npulink_comm_init(void);
void npulink_comm_exit(void);

/* ---- plan.c -------------------------------------------------------------- */

/* A chain of steps, or one step: what is started and finished as a whole. */
struct npulink_unit {
	u32 first;		/* index of its first step */
	u16 nsteps;
	bool engine;		/* needs the engine */
	bool send;		/* its last step sends */
	u8 esize;		/* element size, 1 without reduction */
	u32 ndeps;		/* units (and a drain) to wait for */
	u32 out;		/* plan->out[out .. next unit's out): who waits for it */
};

/* Steps that meet those of one peer, one channel, one direction, in list order. */
struct npulink_stream {
	u32 peer;		/* index in plan->peers */
	u16 channel;
	bool send;
	u32 start;		/* plan->stream_steps[start .. start + count) */
	u32 count;
};

struct npulink_plan_peer {
	struct npulink_conn *conn;
	u32 stream;		/* plan->streams[stream .. stream + nstreams) */
	u32 nstreams;
};

/* Where a step is in its streams; valid as its op bits say. */
struct npulink_step_pos {
	u32 recv_stream;
	u32 recv_pos;
	u32 send_stream;
	u32 send_pos;
	u32 unit;
};

/*
 * struct npulink_plan - a verified plan, ready to run
 * @spares: operations kept for the next POSTs, so that these allocate nothing
 * @script: how it is run together with all other ranks' plans; under comm->lock
 * @script_tries: how often that was found out
 *
 * Frozen when its id is published, but for those and @inflight.
 */
struct npulink_plan {
	struct npulink_object obj;
	struct npulink_rank *rank;
	struct npulink_call call;
	char algorithm[NPULINK_ALGORITHM_LEN];
	u32 nslots;
	struct npulink_slot slots[NPULINK_MAX_SLOTS];
	u32 align[NPULINK_MAX_SLOTS];	/* of the bound offset */
	u32 nsteps;
	struct npulink_step *steps;
	struct npulink_step_pos *pos;
	u32 nunits;
	struct npulink_unit *units;
	u32 *out;
	u32 npeers;
	struct npulink_plan_peer *peers;
	u32 nstreams;
	struct npulink_stream *streams;
	u32 *stream_steps;
	u32 ndrains;
	u32 *drains;		/* units with DRAIN, ascending */
	u64 bytes;		/* that the engine has to write */
	u32 max_src;		/* inputs of the largest request */
	struct npulink_plan *mirror;	/* what remote peers run, if there are any */
	u64 max_len;		/* bytes of the longest unit for the engine */
	bool check;		/* what comes over links is checked */
	u32 nreqs;
	bool p2p;
	bool p2p_send;
	size_t op_size;
	struct npulink_op *spares[NPULINK_PLAN_SPARES];
	struct npulink_script *script;
	u32 script_tries;
	atomic_t inflight;
	struct work_struct release_work;
};

int npulink_plan_create_ioctl(struct npulink_ucmd *ucmd);
bool npulink_plan_busy(struct npulink_object *obj);
void npulink_plan_destroy(struct npulink_object *obj);
void npulink_plan_release(struct kref *kref);
static inline size_t npulink_req_size(const struct npulink_plan *plan)
{
	return sizeof(struct npulink_req) + plan->max_src * sizeof(struct npulink_operand);
}

static inline void npulink_plan_put(struct npulink_plan *plan)
{
	npulink_object_put(&plan->obj);
}

/* ---- op.c, connect.c, seq.c, post.c ------------------------------------------------------- */

enum npulink_op_state {
	NPULINK_OP_NEW,
	NPULINK_OP_RUNNING,
	NPULINK_OP_FAILING,	/* waits until its requests have come back */
	NPULINK_OP_DONE,
};

enum npulink_req_state {
	NPULINK_REQ_FREE,
	NPULINK_REQ_TODO,	/* rank->todo */
	NPULINK_REQ_READY,	/* file->ready */
	NPULINK_REQ_RUNNING,	/* with the device */
};

enum npulink_unit_phase {
	NPULINK_UNIT_BLOCKED,	/* dependencies */
	NPULINK_UNIT_ACTIVE,	/* waits for arrivals */
	NPULINK_UNIT_BUSY,	/* a request is with the engine, or waits for one */
	NPULINK_UNIT_SENT,	/* waits until the peer has taken it */
	NPULINK_UNIT_DONE,
};

struct npulink_unit_state {
	u64 done;		/* bytes through the engine */
	u32 deps;
	u32 next;		/* in op->starting or op->starved; ~0 ends */
	u16 waits;		/* of a chain: members before it have arrived .. */
	bool missing;		/* .. and this one has not */
	u8 phase;
	/* flight.h: since it may start, since its last transition, where the time went */
	u64 start, mark, wait, queue, engine;
	u32 since;		/* jiffies of the last progress */
};

/*
 * struct npulink_cell - where a step meets its peers
 * @ev: rings this step; ev.kind is its index
 * @avail: 1 + bytes offered to the send peer, 0: not offered. Own rank writes
 * @taken: bytes that the send peer has taken, 1 + len when it has all. It writes
 */
struct npulink_cell {
	struct npulink_event ev;
	u64 avail;
	u64 taken;
};

#define NPULINK_EV_REQ	0xffffffffU	/* kind of a request's event */

struct npulink_op_stream {
	struct npulink_op *peer;	/* referenced; NULL: not posted yet */
	u32 stream;			/* the peer's stream */
};

enum npulink_meet_state {
	NPULINK_MEET_NOT,
	NPULINK_MEET_LISTED,	/* has started the usual way */
	NPULINK_MEET_GATHERED,	/* waits for the others; counts as in flight */
};

enum npulink_meet_verdict {
	NPULINK_MEET_START,	/* the usual way */
	NPULINK_MEET_MAKE,	/* a script for next time, then as above */
	NPULINK_MEET_WAIT,	/* for the last to come */
	NPULINK_MEET_RUN,	/* this one is the last */
};

/* An operation's part in a meeting; under comm->lock until the meeting is over. */
struct npulink_op_meet {
	struct npulink_op *next;
	struct npulink_op *other;
	struct npulink_script *script;
	u8 state;
	u8 verdict;
	bool restart;
};

struct npulink_bound {
	struct npulink_buf *buf;
	u64 off;
};

/*
 * struct npulink_op - one run of a plan
 *
 * All of it is protected by rank->lock, but for what is constant from POST on,
 * @refs, the cells (see there) and @done, which is set last.
 */
struct npulink_op {
	refcount_t refs;
	u32 serial;			/* of the rank's operations, see flight.h */
	struct npulink_plan *plan;
	struct npulink_rank *rank;
	struct list_head node;		/* rank->ops */
	struct list_head p2p_node;	/* conn->p2p[] */
	struct llist_node free_node;
	u64 number;
	u64 seq;
	u64 cookie;
	u64 start_ns;			/* npulink_clock() */
	u64 wait_ns, queue_ns, engine_ns, take_ns;	/* of its units, see flight.h */
	u64 slow_ns;			/* 0: never slow */
	u64 bytes;			/* written so far */
	unsigned long deadline;		/* jiffies, if has_deadline */
	bool has_deadline;
	bool slow;			/* and that has been told */
	u8 state;
	bool held;
	bool done;
	bool is_mirror;
	bool raw;			/* units and cells are not set up: no peer may look */
	u32 units_left;
	u32 inflight;			/* requests that are not in free_reqs, a meeting */
	u32 starting, starved_first, starved_last;
	u32 drain;			/* next of plan->drains */
	struct npulink_result result;
	struct list_head free_reqs;
	struct npulink_bound binds[NPULINK_MAX_SLOTS];
	struct npulink_op_meet meet;
	struct npulink_unit_state *units;
	struct npulink_op_stream *streams;
	u32 *drain_left;
	void *reqs;
	struct npulink_far *far;	/* if the plan has remote peers */
	struct npulink_check *checks[NPULINK_CHECK_REQS];
	struct npulink_cell cells[];
};

/* Ranks that the present context has to run, and what it may do. */
struct npulink_run {
	struct list_head ranks;
	int budget;		/* small requests that it may still run; 0 in interrupts */
	u64 now;		/* what the clock said after the last work was done; 0: look */
};

#define NPULINK_DEFINE_RUN_TASK(name) \
	struct npulink_run name = { LIST_HEAD_INIT(name.ranks), 8192 }
#define NPULINK_DEFINE_RUN_IRQ(name) \
	struct npulink_run name = { LIST_HEAD_INIT(name.ranks), 0 }

/* All times of operations and steps are on this clock. */
static inline u64 npulink_clock(void)
{
	return local_clock();
}

/* The time. What a run does between two pieces of work takes none. */
static inline u64 npulink_run_now(struct npulink_run *run)
{
	if (!run->now)
		run->now = npulink_clock();
	return run->now;
}

static inline void npulink_op_get(struct npulink_op *op)
{
	refcount_inc(&op->refs);
}

static inline struct npulink_req *npulink_op_req(struct npulink_op *op, u32 i)
{
	return op->reqs + i * npulink_req_size(op->plan);
}

/* The peer's step that meets step @pos of our stream; its index in peer_op. */
static inline u32 npulink_peer_step(const struct npulink_op *op, u32 stream, u32 pos)
{
	const struct npulink_op_stream *os = &op->streams[stream];
	const struct npulink_plan *pp = os->peer->plan;

	return pp->stream_steps[pp->streams[os->stream].start + pos];
}

struct npulink_op *npulink_op_alloc(struct npulink_plan *plan);
int npulink_plan_make_spares(struct npulink_plan *plan);
void npulink_plan_free_spares(struct npulink_plan *plan);
void npulink_op_reset(struct npulink_op *op);
void npulink_op_finish(struct npulink_op *op, struct npulink_run *run);
void npulink_req_free(struct npulink_req *req);
void npulink_op_put(struct npulink_op *op);
void npulink_op_set_state(struct npulink_op *op, enum npulink_op_state state);
void npulink_op_start(struct npulink_op *op, struct npulink_run *run);
u32 npulink_find_stream(const struct npulink_plan *plan, u32 index, u16 channel, bool send);
u32 npulink_find_peer(const struct npulink_plan *plan, u32 rank);
int npulink_op_connect(struct npulink_op *op, struct npulink_cause *cause);
void npulink_op_fail(struct npulink_op *op, struct npulink_run *run);
void npulink_rank_kick(struct npulink_rank *rank, struct npulink_run *run);
void npulink_run(struct npulink_run *run);
void npulink_req_run(struct npulink_req *req);
struct npulink_req *npulink_ready_pop(struct npulink_file *file);
bool npulink_op_waits_for(struct npulink_op *op, u32 *peer, u32 *step);
void npulink_deliver(struct npulink_event *ev, struct npulink_op *op, struct npulink_run *run);
bool npulink_operand(struct npulink_op *op, struct npulink_operand *o, u8 slot, u64 off);
void npulink_seq_exit(void);

int npulink_post_ioctl(struct npulink_ucmd *ucmd);
int npulink_post_batch_ioctl(struct npulink_ucmd *ucmd);
int npulink_wait_ioctl(struct npulink_ucmd *ucmd);

/* ---- checksum.c ---------------------------------------------------------- */

#define NPULINK_CRC_INIT	(~0U)
u32 npulink_operand_crc_add(u32 crc, const struct npulink_operand *o, u64 len);
static inline u32 npulink_operand_crc(const struct npulink_operand *o, u64 len)
{
	return npulink_operand_crc_add(NPULINK_CRC_INIT, o, len);
}

struct npulink_check *npulink_check_alloc(struct npulink_plan *plan);
void npulink_check_free(struct npulink_check *ck);
void npulink_check_reset(struct npulink_req *req);
void npulink_check_input(struct npulink_req *req, u32 i, struct npulink_link *link, u32 step);
int npulink_check_submit(struct npulink_req *req);
bool npulink_check_landed(struct npulink_req *req);
void npulink_check_cause(const struct npulink_req *req, struct npulink_cause *cause);
bool npulink_check_put_bufs(struct npulink_req *req);

/* ---- meet.c ---------------------------------------------------------------- */

void npulink_script_put(struct npulink_script *s);
void npulink_meet_arrive(struct npulink_op *op);
bool npulink_meet_leave(struct npulink_op *op);
void npulink_meet_go(struct npulink_op *op, struct npulink_run *run);
void npulink_meet_dissolve(struct npulink_op *op);

/* ---- wait.c, event.c ------------------------------------------------------- */

int npulink_op_wait(struct npulink_file *file, struct npulink_op *op, u64 until_ns);
int npulink_ring_setup_ioctl(struct npulink_ucmd *ucmd);
int npulink_ring_mmap(struct npulink_file *file, struct vm_area_struct *vma);
void npulink_ring_free(struct npulink_file *file);
bool npulink_ring_pending(struct npulink_file *file);
int npulink_slot_take(struct npulink_file *file, struct npulink_op *op, bool held);
void npulink_slot_give(struct npulink_file *file, struct npulink_op *op);
struct npulink_op *npulink_slot_find(struct npulink_file *file, u64 seq);
void npulink_slots_free(struct npulink_file *file);
void npulink_op_deliver(struct npulink_op *op);
void npulink_file_wake_ready(struct npulink_file *file);
void npulink_watchdog_arm(struct npulink_file *file, struct npulink_op *op);
void npulink_watchdog_init(struct npulink_file *file);
void npulink_watchdog_stop(struct npulink_file *file);
void npulink_blame(struct npulink_op *op, struct npulink_cause *cause);

extern unsigned int npulink_spin_ns;

/* ---- deadlock.c ------------------------------------------------------------ */

void npulink_deadlock_arm(void);
void npulink_deadlock_exit(void);

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

void npulink_notify(const struct npulink_notice *notice);
void npulink_notify_cause(const struct npulink_comm *comm, const struct npulink_cause *cause);
void npulink_notify_dev(const struct npulink_device *dev, bool added);
void npulink_notify_link(const struct npulink_link *link, bool up);
void npulink_notify_exit(void);
void npulink_slow_told(struct npulink_op *op, u64 ns);
void npulink_slow_init(void);
void npulink_slow_exit(void);

extern struct genl_family npulink_genl_family;

/* ---- remote*.c, port.c -------------------------------------------------------- */

int npulink_remote_resolve(struct npulink_rank *rank, struct npulink_conn *conn);
void npulink_remote_close(struct npulink_conn *conn);
void npulink_remote_free(struct npulink_conn *conn);
int npulink_remote_plan(struct npulink_plan *plan);
void npulink_remote_plan_free(struct npulink_plan *plan);
int npulink_remote_op_alloc(struct npulink_op *op, const struct npulink_plan *plan);
void npulink_remote_op_reset(struct npulink_op *op);
void npulink_remote_op_free(struct npulink_op *op);
int npulink_remote_op_connect(struct npulink_op *op, u32 index, struct npulink_cause *cause);
void npulink_remote_op_finish(struct npulink_op *op, struct npulink_run *run);
void npulink_remote_abort(struct npulink_rank *rank);
void npulink_remote_bell(struct npulink_op *op, u32 step, bool credit, struct npulink_run *run);
void npulink_remote_want(struct npulink_op *op, u32 unit, struct npulink_run *run);
bool npulink_remote_landed(const struct npulink_op *op, u32 unit);
bool npulink_remote_operand(struct npulink_op *op, u32 step, u64 done,
			    struct npulink_operand *o);
int npulink_remote_describe(struct npulink_rank *rank, u32 peer, const struct npulink_addr *addr);

struct npulink_port;

extern struct mutex npulink_ports_lock;

int npulink_port_add(struct npulink_device *dev, const char *kind, const char *name,
		     struct net *net, struct netlink_ext_ack *extack);
int npulink_port_del(struct npulink_device *dev, const char *kind, const char *name,
		     struct net *net, struct netlink_ext_ack *extack);
void npulink_ports_drop(struct npulink_device *dev);
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
