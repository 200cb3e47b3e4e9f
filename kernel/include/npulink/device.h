/* SPDX-License-Identifier: GPL-2.0 */
/*
 * device.h - what a backend module implements and calls.
 *
 * The core sequences steps and never touches a payload byte. It breaks every
 * step into: wait until bytes have ARRIVED from the peer (link), have the ENGINE
 * of the own device move or reduce them (npulink_device_ops.queue or submit), PUBLISH
 * them to the next rank (link). A backend provides devices, links or both, and
 * reports back through exactly three calls, all safe in hard interrupt context:
 * npulink_step_done(), npulink_link_event(), npulink_fault().
 */
#ifndef NPULINK_DEVICE_H
#define NPULINK_DEVICE_H

#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/idr.h>
#include <linux/llist.h>
#include <linux/mm_types.h>
#include <linux/percpu-refcount.h>
#include <linux/refcount.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <linux/npulink.h>

struct module;
struct npulink_buf;
struct npulink_check;
struct npulink_device;
struct npulink_link;
struct npulink_req;

/**
 * struct npulink_event - something that a rank has to look at
 * @node: on the lists of whoever delivers it: first the backend's, then the
 *	  rank's inbox. Only its present owner may touch it.
 * @kind: the core's
 * @pending: the core's
 */
struct npulink_event {
	struct llist_node node;
	u32 kind;
	atomic_t pending;
};

/**
 * struct npulink_operand - bytes of a buffer
 * @buf: buffer; somebody holds a reference as long as the request runs
 * @off: offset of the first byte
 * @held: that is the request itself, not its operation (for the core)
 * @scaled: multiplied by 2^-&npulink_req.scale, if that is not 0, before it is added up, or copied
 */
struct npulink_operand {
	struct npulink_buf *buf;
	u64 off;
	bool held;
	bool scaled;
};

/**
 * struct npulink_req - one piece of work for a device's engine
 * @ev: used by the backend to queue the request, then by the core
 * @dev: the device
 * @link: link over which src[@remote] comes, NULL if all are local
 * @dst: result
 * @len: bytes, of each operand
 * @nsrc: inputs, at least 1
 * @remote: index of the first input that is a peer's
 * @dtype: data type, only with @nsrc > 1 or @scale
 * @redop: reduction, only with @nsrc > 1
 * @div: divide the result by this; 0 or 1: do not
 * @scale: power of two by which inputs may be scaled, 0 if none is
 * @rest: the divisor is @div / 2^@scale; only with @scale
 * @step: index of the step in its plan (for fault knobs and traces)
 * @nontemporal: nobody looks at the result as long as a cache would have it, so that stores
 *		 past the cache are better, where there are any
 * @small: at most npulink_device.inline_max bytes
 * @cancelled: set before npulink_device_ops.cancel is called, which may be earlier
 *	       than submit: a cancelled request must come back without delay
 * @priv: for the backend, zero before the first submit
 * @core: for the core
 * @src: inputs: dst = src[0] (+) src[1] (+) .. , rounded after each
 *
 * dst may be the same range as src[0]; other operands do not overlap it.
 */
struct npulink_req {
	struct npulink_event ev;
	struct npulink_device *dev;
	struct npulink_link *link;
	struct npulink_operand dst;
	u64 len;
	u16 nsrc;
	u16 remote;
	u8 dtype;
	u8 redop;
	bool nontemporal;
	bool small;
	bool cancelled;
	bool rest;
	u8 scale;
	u32 div;
	u32 step;
	unsigned long priv[8];
	struct {
		struct list_head node;
		struct npulink_req *next;
		struct npulink_op *op;
		u32 unit;
		int status;
		u8 state;
		u64 start_ns;
		struct npulink_check *check;
	} core;
	struct npulink_operand src[];
};

/**
 * struct npulink_device_memory - a piece of a device's own memory
 * @dma: where it is for the device, and for all of the same fabric
 * @phys: where it is for the host's processors, 0: nowhere
 * @len: bytes, whole pages
 * @cached: @phys may be mapped as memory is, not as registers are
 */
struct npulink_device_memory {
	dma_addr_t dma;
	phys_addr_t phys;
	u64 len;
	bool cached;
};

/* For so few bytes, letting go of locks and taking them again takes longer than the work. */
#define NPULINK_DIRECT_BYTES	512U

/**
 * struct npulink_device_ops - a device, as its backend implements it
 *
 * An engine of its own has @queue; one that is the host's processor has @submit instead, and may
 * have @run. All others may be NULL. Where the bytes of an operand are, an engine of its own asks
 * npulink_buf_dma(), a processor npulink_buf_mem().
 */
struct npulink_device_ops {
	/**
	 * @queue: start @req: put it on the device's ring, or, if that is full, on a list of the
	 * backend's. Any context but NMI, also with the rank's lock held and interrupts off, and
	 * in the interrupt that reports the request before it: no task comes between two steps.
	 * It must not call the core.
	 *
	 * Return: -EINPROGRESS: npulink_step_done() will be called, maybe before this
	 * returns, by somebody else; other: it failed.
	 */
	int (*queue)(struct npulink_device *dev, struct npulink_req *req);
	/**
	 * @submit: start @req. Task context, no locks held, may sleep, but is
	 * expected to be short: it may run in the system call of any rank of
	 * the same node if req->small.
	 *
	 * Return: 0: done, and npulink_step_done() will not be called;
	 * -EINPROGRESS: npulink_step_done() will be called, maybe before
	 * this returns; other: it failed.
	 */
	int (*submit)(struct npulink_device *dev, struct npulink_req *req);
	/**
	 * @run: carry out @req, which is small, here and now. Task context, no
	 * locks held; but if it reads no more than NPULINK_DIRECT_BYTES, that
	 * may be with the rank's lock held and interrupts off. It may be in the
	 * system call of another rank; there is no npulink_step_done() afterwards.
	 * Not called while &npulink_device.special is set.
	 *
	 * Return: 0; -EAGAIN: nothing was done, as that cannot be done with
	 * interrupts off; other: it failed.
	 */
	int (*run)(struct npulink_device *dev, struct npulink_req *req);
	/**
	 * @cancel: the operation has failed, do not go on with @req. Any context
	 * but NMI, called with the rank's lock held.
	 *
	 * Return: true: it is out of the device, and npulink_step_done() was not
	 * called and will not be; false: it was called, or will be soon.
	 */
	bool (*cancel)(struct npulink_device *dev, struct npulink_req *req);
	/**
	 * @doorbell: physical address of a page that rings for one file only.
	 * Task context. 0: no more pages.
	 */
	phys_addr_t (*doorbell)(struct npulink_device *dev, unsigned int index);
	/**
	 * @memory_alloc: @mem->len bytes of the device's memory, zeroed, in one piece. Task
	 * context, may sleep.
	 */
	int (*memory_alloc)(struct npulink_device *dev, struct npulink_device_memory *mem);
	/**
	 * @memory_free: nobody uses it any more. Task context, may sleep. What is not freed when
	 * the device is unregistered never will be.
	 */
	void (*memory_free)(struct npulink_device *dev, const struct npulink_device_memory *mem);
	/**
	 * @quiesce: stop raising interrupts and wait for handlers. Called
	 * by npulink_device_unregister() when nothing is in flight. May sleep.
	 */
	void (*quiesce)(struct npulink_device *dev);
	/**
	 * @release: called last by npulink_device_unregister(): undo what the
	 * backend did to its part of the structure. May sleep.
	 */
	void (*release)(struct npulink_device *dev);
};

/**
 * struct npulink_link_ops - the way from one device to another
 *
 * All may be NULL. Without @publish and @credit the core itself delivers events to the far end.
 */
struct npulink_link_ops {
	/** @open: first plan that uses the link. May sleep. */
	int (*open)(struct npulink_link *link);
	/** @close: the link goes away, nothing uses it. May sleep. */
	void (*close)(struct npulink_link *link);
	/**
	 * @publish: bytes of the near end can be fetched by the far end: ring
	 * the far end's doorbell with @ev. Any context but NMI; called with
	 * the near rank's lock held.
	 *
	 * Return: 0: the core delivers @ev itself; -EINPROGRESS: the
	 * backend calls npulink_link_event(link, NPULINK_LINK_BELL, ev); other:
	 * the link has failed.
	 */
	int (*publish)(struct npulink_link *link, struct npulink_event *ev, u64 bytes);
	/**
	 * @credit: the near end has taken bytes that the far end had published.
	 * Context and result as for @publish.
	 */
	int (*credit)(struct npulink_link *link, struct npulink_event *ev, u64 bytes);
};

/**
 * struct npulink_link_stats - counters of one direction of a link
 * @doorbells: times the far end's doorbell was rung (bells that were still
 *	       pending are not rung again)
 * @inline_bells: events that were delivered without a doorbell
 * @steps: steps that received over it, counted by the core when they are complete
 * @bytes: payload bytes that came in over it, counted by the core
 * @damaged: times that bytes came in with a wrong checksum
 * @errors: times it was lost
 * @moves: requests of one step whose time the flight recorder has taken, ..
 * @move_bytes: .. the bytes that they moved over it, ..
 * @move_ns: .. and how long the far end's engine worked on them
 */
struct npulink_link_stats {
	atomic64_t doorbells;
	atomic64_t inline_bells;
	atomic64_t steps;
	atomic64_t bytes;
	atomic64_t damaged;
	atomic64_t errors;
	atomic64_t moves;
	atomic64_t move_bytes;
	atomic64_t move_ns;
};

/**
 * struct npulink_link - one direction between two devices of this node
 * @ops: the backend's, NULL after @close
 * @down: the core rings no more
 * @lost: it failed, or its backend said so, and has not said since that it is up
 * @lost_ns: when that was, on the clock of the core
 * @dev: near end: rings
 * @peer: far end: is rung
 * @stats: see there
 * @refs: plans that use it, and the table of @dev
 * @dropped: the core's, when one of its devices goes
 * @fail_work: the core's
 * @priv: for the backend
 *
 * Exists from the first plan that uses it until one of its devices goes.
 */
struct npulink_link {
	const struct npulink_link_ops *ops;
	bool down;
	bool lost;
	u64 lost_ns;
	struct npulink_device *dev;
	struct npulink_device *peer;
	struct npulink_link_stats stats;
	refcount_t refs;
	struct list_head dropped;
	struct work_struct fail_work;
	void *priv;
};

/**
 * struct npulink_device_stats - what an engine did
 * @requests: requests completed
 * @bytes_read: bytes read, all inputs counted
 * @bytes_written: bytes written
 * @interrupts: completions and doorbells that came by interrupt, or from whatever goes on
 *		where an interrupt would take too long
 * @inline_done: requests completed without interrupt
 */
struct npulink_device_stats {
	atomic64_t requests;
	atomic64_t bytes_read;
	atomic64_t bytes_written;
	atomic64_t interrupts;
	atomic64_t inline_done;
};

/**
 * struct npulink_device - one NPU
 * @dev: class device, /dev/npulink/npuN; owns the memory
 * @cdev: its node
 * @id: N
 * @ops: the backend's, NULL once it has gone; read under @users
 * @link_ops: links between devices of equal @fabric; NULL: as if all of its members were
 * @fabric: devices with the same fabric are linked to each other
 * @owner: the backend's module
 * @dma_dev: reads and writes memory for it, by addresses of the DMA API; its masks are set. NULL:
 *	     the host's processor does, by kernel addresses
 * @backend: name of the backend
 * @engine: what does the work, set by the backend
 * @dtypes: mask of data types that it reduces
 * @redops: mask of reductions
 * @slice: largest request in bytes
 * @inline_max: requests and doorbells up to this size are not worth an
 *		interrupt; the backend may change it at any time
 * @special: requests are to be seen one by one, by @submit; changed at any time by
 *	     npulink_device_set_special()
 * @ndoorbells: doorbell pages, 0 if it has none
 * @memory: bytes of its own, for &npulink_device_ops.memory_alloc
 * @processors: of the host, which do the work of all devices of this backend; 0: each has
 *		an engine of its own
 * @stats: kept by the backend
 * @priv: the backend's part, priv_size bytes
 *
 * Members above @stats are set between alloc and register, what is private is the
 * core's.
 */
struct npulink_device {
	struct device dev;
	struct cdev cdev;
	u32 id;
	const struct npulink_device_ops *ops;
	const struct npulink_link_ops *link_ops;
	const void *fabric;
	struct module *owner;
	struct device *dma_dev;
	char backend[16];
	char engine[32];
	u32 dtypes;
	u32 redops;
	u32 slice;
	u32 inline_max;
	bool special;
	u32 ndoorbells;
	u64 memory;
	u32 processors;
	struct npulink_device_stats stats;
	void *priv;
	/* private: */
	bool closes_boards;		/* as it is @special */
	struct percpu_ref users;
	struct completion drained;
	bool gone;
	atomic64_t failure;		/* cause << 32 | errno */
	struct work_struct fail_work;
	struct mutex lock;		/* files, adding links */
	struct list_head files;
	struct mutex mappings_lock;	/* mappings */
	struct list_head mappings;	/* buffers as it sees them */
	bool dma_sync;			/* some of them want to know who uses the bytes */
	atomic64_t memory_used;
	struct ida doorbells;		/* pages given out */
	struct xarray links;		/* by id of the peer device */
	struct list_head ports;		/* to other machines; npulink_ports_lock */
};

/**
 * npulink_device_alloc() - make a device that nobody sees yet
 * @owner: THIS_MODULE
 * @ops: backend callbacks
 * @parent: parent in the device tree, or NULL
 * @priv_size: bytes at npulink_device.priv, zeroed
 *
 * Its id and name are known from here on. Task context. Undone by
 * npulink_device_put().
 *
 * Return: the device or ERR_PTR.
 */
struct npulink_device *npulink_device_alloc(struct module *owner,
					    const struct npulink_device_ops *ops,
					    struct device *parent, size_t priv_size);

/**
 * npulink_device_register() - publish it as /dev/npulink/npuN
 * @dev: device
 *
 * Return: 0 or -errno; the caller still has to put it after an error.
 */
int npulink_device_register(struct npulink_device *dev);

/**
 * npulink_device_unregister() - take it away
 * @dev: device
 *
 * Refuses new work, fails all communicators with a rank on it (REMOVED), waits
 * until nothing is in flight, calls quiesce, and forgets ops. Files stay open and
 * answer -ENODEV. May sleep. Followed by npulink_device_put().
 */
void npulink_device_unregister(struct npulink_device *dev);

void npulink_device_set_special(struct npulink_device *dev, bool special);

/* Can whoever runs a rank carry out its small requests? */
static inline bool npulink_device_runs(const struct npulink_device *dev)
{
	return dev->ops->run && !READ_ONCE(dev->special);
}

/**
 * npulink_device_put() - drop the reference of npulink_device_alloc()
 * @dev: device
 */
void npulink_device_put(struct npulink_device *dev);

/**
 * npulink_step_done() - a request has ended that queue or submit answered -EINPROGRESS
 * @req: request
 * @status: 0 or -errno, which fails the communicator
 *
 * Any context but NMI. The request must not be touched any more.
 */
void npulink_step_done(struct npulink_req *req, int status);

#define NPULINK_LINK_BELL	0	/* @ev of publish or credit has arrived */
#define NPULINK_LINK_DOWN	1	/* fails all communicators that use it */
#define NPULINK_LINK_UP		2	/* can be used again */

/**
 * npulink_link_event() - something happened on a link
 * @link: link
 * @event: NPULINK_LINK_*
 * @ev: with BELL, the event of publish or credit, not to be touched any more
 *
 * Any context but NMI.
 */
void npulink_link_event(struct npulink_link *link, int event, struct npulink_event *ev);

/**
 * npulink_fault() - the device is broken
 * @dev: device
 * @status: -errno to report
 *
 * Fails all communicators that have a rank on it. Any context but NMI.
 */
void npulink_fault(struct npulink_device *dev, int status);

/**
 * struct npulink_range - piece of a buffer without gaps
 * @va: kernel address, for processors
 * @dma: address of the DMA API, for a device
 * @off: offset in the buffer
 */
struct npulink_range {
	union {
		void *va;
		dma_addr_t dma;
	};
	u64 off;
};

/**
 * struct npulink_buf_mem - the memory of a buffer, as engines see it
 * @len: bytes
 * @nranges: entries of @ranges
 * @ranges: ascending by offset, no gaps; ranges[nranges].off is @len
 */
struct npulink_buf_mem {
	u64 len;
	u32 nranges;
	struct npulink_range *ranges;
};

/**
 * npulink_buf_mem() - where a buffer's bytes are for the host's processors
 * @buf: buffer
 *
 * Return: ranges with &npulink_range.va.
 */
const struct npulink_buf_mem *npulink_buf_mem(const struct npulink_buf *buf);

/**
 * npulink_buf_dma() - where a buffer's bytes are for a device
 * @buf: buffer of an operand
 * @dev: the request's device, which has a &npulink_device.dma_dev
 *
 * Any context. The core has the bytes synchronised (dma_sync_single_for_device() and its like)
 * before a request is queued and after it is done; a backend does not.
 *
 * Return: ranges with &npulink_range.dma. Never NULL for an operand of a request that was
 * queued, as long as it runs.
 */
const struct npulink_buf_mem *npulink_buf_dma(const struct npulink_buf *buf,
					      const struct npulink_device *dev);

/**
 * npulink_mem_range() - find the range that holds a byte
 * @mem: memory
 * @off: offset below mem->len
 *
 * Return: index of the range. O(log nranges).
 */
static inline u32 npulink_mem_range(const struct npulink_buf_mem *mem, u64 off)
{
	u32 lo = 0, hi = mem->nranges;

	while (hi - lo > 1) {
		u32 mid = lo + (hi - lo) / 2;

		if (mem->ranges[mid].off <= off)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

#endif /* NPULINK_DEVICE_H */
