/* SPDX-License-Identifier: GPL-2.0 */
/*
 * soft.h - objects of npulink_soft.ko.
 *
 * A request's life: soft_submit() (engine.c) moves the bytes in the caller's
 * context and answers at once if it is small, else the completion interrupt
 * (irq.c) reports it. A knob (fault.c) or the timing model (timing.c) may
 * park it before that, on one of the lists of struct soft_dev.
 *
 * Lock order: soft_devices_lock > soft_dev.lock. The core calls cancel, publish
 * and credit with locks of its own held, therefore nothing here calls the core
 * with soft_dev.lock held, nor from within those three.
 */
#ifndef NPULINK_SOFT_H
#define NPULINK_SOFT_H

#include <linux/hrtimer.h>
#include <linux/irq_work.h>
#include <linux/irqdomain.h>
#include <linux/llist.h>
#include <linux/mutex.h>
#include <linux/timerqueue.h>
#include <linux/workqueue.h>
#include <npulink/compat.h>
#include <npulink/device.h>
#include "reduce.h"

#define SOFT_MAX_DEVICES	64
#define SOFT_MAX_SRC		(NPULINK_CHAIN_MAX + 1)

struct seq_file;
struct soft_dev;

/**
 * struct soft_vector - an interrupt of a device
 * @sd: the device
 * @events: what is to be reported; npulink_event.node
 * @polled: the worker reports, and takes @events by itself: the handler has had enough
 * @rest: what the handler has left of what it took, the oldest first; the worker's if @polled
 * @work: raises it
 * @poll: the worker
 * @hwirq: number in the device's interrupt domain
 * @virq: number in the kernel
 * @name: in /proc/interrupts
 */
struct soft_vector {
	struct soft_dev *sd;
	struct llist_head events;
	bool polled;
	struct llist_node *rest;
	struct irq_work work;
	struct work_struct poll;
	unsigned int hwirq;
	unsigned int virq;
	char name[32];
};

#define SOFT_VECTOR_DONE	0
#define SOFT_VECTOR_BELL	1
#define SOFT_VECTORS		2

/*
 * After so long in interrupts a worker goes on: many times what the events of a device at work
 * take, and what nobody notices who waits for the processor. The event that is being reported
 * is ended first; the core bounds what it does for one.
 */
#define SOFT_IRQ_NS	100000

/**
 * struct soft_model - how fast the way from one peer is; all 0: no model
 * @alpha_ns: latency
 * @beta_ps: time that a byte occupies the link
 * @gamma_ps: time to reduce a byte
 * @busy: when the link is free again
 */
struct soft_model {
	u64 alpha_ns;
	u64 beta_ps;
	u64 gamma_ps;
	ktime_t busy;
};

/* Faults to inject. Counts count down to 0, but not before SOFT_SKIP has. */
enum soft_knob {
	SOFT_DROP_IRQ,		/* completions that raise no interrupt */
	SOFT_DUP_IRQ,		/* interrupts that come twice */
	SOFT_FAIL_POST,		/* requests that are refused with EIO */
	SOFT_CORRUPT,		/* results with a bit flipped */
	SOFT_CORRUPT_LINK,	/* the same, of requests with an input from a link */
	SOFT_DELAY_NS,		/* added to completions; no count */
	SOFT_DELAY,		/* completions that it is added to, SOFT_DELAY_ALL: all */
	SOFT_SKIP,		/* what could have had a fault and is let pass first */
	SOFT_HOLD,		/* requests to let through before all are held */
	SOFT_KNOBS
};

#define SOFT_HOLD_OFF	U32_MAX
#define SOFT_HIT_LOCAL	U32_MAX
#define SOFT_DELAY_ALL	U32_MAX

/* Why a request is parked in the device, and on which list it is. */
enum soft_parked {
	SOFT_NOT_PARKED,
	SOFT_PARKED_HELD,
	SOFT_PARKED_LOST,
	SOFT_PARKED_TIMED,
};

/**
 * struct soft_req - the backend's part of a request, at npulink_req.priv
 * @node: soft_dev.held or .lost
 * @timer: soft_dev.queue
 * @parked: where it is; under soft_dev.lock
 */
struct soft_req {
	union {
		struct list_head node;
		struct timerqueue_node timer;
	};
	u8 parked;
};

static_assert(sizeof(struct soft_req) <= sizeof_field(struct npulink_req, priv));

/**
 * struct soft_dev - a software NPU
 * @dev: the device of which this is the private part
 * @index: of all software NPUs, below SOFT_MAX_DEVICES
 * @node: soft_devices, under soft_devices_lock
 * @domain: its interrupts
 * @fwnode: names @domain
 * @vec: its interrupts
 * @irq_ns: SOFT_IRQ_NS, or what a test wants instead
 * @polled: events that a worker has reported
 * @quiesced: nothing may be submitted any more
 * @special: a knob or the timing model is in use: leave the fast path. Written
 *	     under @lock
 * @lock: all below; taken in hard interrupt context
 * @held: requests held by SOFT_HOLD, oldest first
 * @nheld: number of them
 * @lost: requests whose interrupt was dropped: the next one reports them too
 * @nlost: number of them
 * @hit_step: step of the last request that a knob acted on
 * @hit_from: device at the far end of the link of its first input from one, or
 *	      SOFT_HIT_LOCAL
 * @queue: requests that wait for @timer
 * @timer: runs at the time of the first of @queue
 * @knobs: faults
 * @models: timing of the ways from other devices (and itself), by index
 * @links: links to other devices, by index; under soft_links_lock
 * @cut: other devices to which the link is down, by index; written under soft_links_lock
 * @debugfs: directory
 */
struct soft_dev {
	struct npulink_device *dev;
	unsigned int index;
	struct list_head node;
	struct irq_domain *domain;
	struct fwnode_handle *fwnode;
	struct soft_vector vec[SOFT_VECTORS];
	u32 irq_ns;
	atomic_t polled;
	bool quiesced;
	bool special;

	raw_spinlock_t lock;
	struct list_head held;
	u32 nheld;
	struct list_head lost;
	u32 nlost;
	u32 hit_step;
	u32 hit_from;
	struct timerqueue_head queue;
	struct hrtimer timer;
	u32 knobs[SOFT_KNOBS];
	struct soft_model models[SOFT_MAX_DEVICES];
	struct npulink_link *links[SOFT_MAX_DEVICES];
	DECLARE_BITMAP(cut, SOFT_MAX_DEVICES);
	struct dentry *debugfs;
};

static inline struct soft_dev *to_soft_dev(struct npulink_device *dev)
{
	return dev->priv;
}

static inline struct soft_req *to_soft_req(struct npulink_req *req)
{
	return (struct soft_req *)req->priv;
}

static inline struct npulink_req *from_soft_req(struct soft_req *sr)
{
	return container_of((void *)sr, struct npulink_req, priv);
}

/* device.c */
extern struct workqueue_struct *soft_wq;
extern struct mutex soft_devices_lock;
extern struct list_head soft_devices;

/* select.c */
extern void __percpu *soft_scratch;	/* SOFT_SCRATCH bytes, whoever has the unit */

int soft_select_init(void);
void soft_select_exit(void);
u32 soft_select_dtypes(void);
void soft_select_describe(char *text, size_t size);
bool soft_select(struct soft_kernel *k, unsigned int dtype, unsigned int redop, u32 by, u32 scale,
		 u64 len, bool past);
int soft_select_force(const char *name);
void soft_select_streamed(void);
void soft_select_show(struct seq_file *m);

/* engine.c */
int soft_submit(struct npulink_device *dev, struct npulink_req *req);
int soft_run_now(struct npulink_device *dev, struct npulink_req *req);

/* irq.c */
int soft_irq_init(struct soft_dev *sd);
void soft_irq_exit(struct soft_dev *sd);
void soft_irq_quiesce(struct soft_dev *sd);
bool soft_irq_raise(struct soft_dev *sd, unsigned int vector, struct npulink_event *ev);

/* link.c */
extern const struct npulink_link_ops soft_link_ops;
void soft_link_cut(struct soft_dev *sd, struct soft_dev *peer, bool down);

/* fault.c */
void soft_fault_init(struct soft_dev *sd);
int soft_fault_submit(struct soft_dev *sd, const struct npulink_req *req, bool *corrupt);
int soft_fault_finish(struct soft_dev *sd, struct npulink_req *req, ktime_t start);
u64 soft_fault_delay(struct soft_dev *sd, const struct npulink_req *req);
bool soft_fault_dup(struct soft_dev *sd);
void soft_fault_take_lost(struct soft_dev *sd, struct list_head *list);
u32 soft_fault_get(struct soft_dev *sd, enum soft_knob knob);
void soft_fault_set(struct soft_dev *sd, enum soft_knob knob, u32 value);
void soft_fault_release(struct soft_dev *sd, u32 n);
void soft_fault_update(struct soft_dev *sd);
bool soft_cancel(struct npulink_device *dev, struct npulink_req *req);

/* timing.c */
void soft_timing_init(struct soft_dev *sd);
void soft_timing_quiesce(struct soft_dev *sd);
bool soft_timing_active(struct soft_dev *sd);
ktime_t soft_timing_end(struct soft_dev *sd, struct npulink_req *req, ktime_t start);
void soft_timing_park(struct soft_dev *sd, struct npulink_req *req, ktime_t end);
void soft_timing_unpark(struct soft_dev *sd, struct npulink_req *req);
void soft_timing_set(struct soft_dev *sd, struct soft_dev *peer, const struct soft_model *model);

/* debugfs.c */
void soft_debugfs_init(void);
void soft_debugfs_exit(void);
void soft_debugfs_add(struct soft_dev *sd);
void soft_debugfs_remove(struct soft_dev *sd);

#endif /* NPULINK_SOFT_H */
