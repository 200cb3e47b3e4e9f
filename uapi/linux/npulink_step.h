/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note OR MIT */
/*
 * npulink_step.h - one step of a plan: 64 bytes, shared by kernel and library.
 *
 * A plan is what one rank does in one collective: a list of steps.  A step
 * receives, reduces, sends, or does any combination of the three, and it may
 * start when the (at most three) earlier steps it names are done.  Since steps
 * only ever name earlier steps, a list cannot contain a cycle.
 */
#ifndef _UAPI_LINUX_NPULINK_STEP_H
#define _UAPI_LINUX_NPULINK_STEP_H

#include <linux/types.h>

/**
 * DOC: what a step does
 *
 * ====================  ==================================================
 * ``op``                meaning (``in`` is what arrives from recv_peer)
 * ====================  ==================================================
 * 0                     nothing (nop): a point for dependencies to meet
 * COPY                  dst = src
 * REDUCE                dst = src (+) src2
 * SEND                  offer src to send_peer
 * RECV                  dst = in
 * RECV|REDUCE           dst = src (+) in
 * RECV|SEND             dst = in, offer dst to send_peer
 * RECV|REDUCE|SEND      dst = src (+) in, offer dst to send_peer
 * COPY|SEND             dst = src, offer dst to send_peer
 * REDUCE|SEND           dst = src (+) src2, offer dst to send_peer
 * ====================  ==================================================
 *
 * Everything else is refused.  All operands of a step have the same length.
 * src may be the same range as dst; any other overlap is refused.
 *
 * A step that sends is done when its peer has taken all of it, so from then on
 * the offered range may be overwritten.  No plan may rely on buffering.
 *
 * The k-th step of rank A that sends to B on channel C meets the k-th step of
 * B that receives from A on C, counted in list order; their lengths must be
 * equal.  A length of 0 is a message without payload (a barrier is made of
 * them).
 */
#define NPULINK_STEP_RECV	(1 << 0)
#define NPULINK_STEP_REDUCE	(1 << 1)
#define NPULINK_STEP_SEND	(1 << 2)
#define NPULINK_STEP_COPY	(1 << 3)
#define NPULINK_STEP_OPS	0x0f

/**
 * DOC: step flags
 *
 * NPULINK_STEP_F_DRAIN: also waits until all earlier steps of the list are done.
 *
 * NPULINK_STEP_F_CHAIN: continues the step before it.  Both have the same dst,
 * length, data type and reduction; this one has REDUCE, and its src is that
 * dst.  The device gets the whole chain as one request and goes through it
 * cache block by cache block, rounding to the data type after every input, so
 * the result is bit for bit that of the steps one by one.  A chain starts when
 * the dependencies of all its members are met; members may not depend on each
 * other otherwise.  Only the last member may have SEND, TRANSIENT or DIV, only the
 * first may have DRAIN or SCALE.  At most NPULINK_CHAIN_MAX members.
 *
 * NPULINK_STEP_F_DIV: after the reduction the result is divided by the number
 * of ranks (AVG is SUM with DIV on the step that makes the final value);
 * integers are rounded towards zero.
 *
 * NPULINK_STEP_F_SCALE, NPULINK_STEP_F_SCALE2, NPULINK_STEP_F_REST: for the mean of
 * floats, whose sum may be infinite where the mean is not. SCALE multiplies src by 2^-k,
 * the largest such power that is at most 1 / ranks, SCALE2 what is received, or
 * src2. What enters a sum is not rounded before that. A copy may have SCALE as well; it
 * has a data type then. REST goes with DIV: the divisor is ranks / 2^k. A rank's input is
 * scaled once, when it is first added up or copied.
 *
 * NPULINK_STEP_F_TRANSIENT: only on a step that receives and sends: dst need
 * not survive the step.  src2_off then is the size of a window (0: len): byte x
 * of the step lies at dst_off + x % window, and is overwritten only after the
 * next rank has taken it.
 */
#define NPULINK_STEP_F_DRAIN		(1 << 0)
#define NPULINK_STEP_F_CHAIN		(1 << 1)
#define NPULINK_STEP_F_DIV		(1 << 2)
#define NPULINK_STEP_F_TRANSIENT	(1 << 3)
#define NPULINK_STEP_F_SCALE		(1 << 4)
#define NPULINK_STEP_F_SCALE2		(1 << 5)
#define NPULINK_STEP_F_REST		(1 << 6)
#define NPULINK_STEP_F_SCALES		0x70	/* the three of them */
#define NPULINK_STEP_FLAGS		0x7f

#define NPULINK_CHAIN_MAX	64
#define NPULINK_NO_PEER		0xffffffffU
#define NPULINK_STEP_DEPS	3

/* Data types. Sizes: npulink_dtype_size(). */
#define NPULINK_INT8		0
#define NPULINK_UINT8		1
#define NPULINK_INT16		2
#define NPULINK_UINT16		3
#define NPULINK_INT32		4
#define NPULINK_UINT32		5
#define NPULINK_INT64		6
#define NPULINK_UINT64		7
#define NPULINK_FLOAT16		8
#define NPULINK_BFLOAT16	9
#define NPULINK_FLOAT32		10
#define NPULINK_FLOAT64		11
#define NPULINK_DTYPES		12

/*
 * Reductions. Integers wrap around. Floats round to nearest even after each
 * input, without fused multiply-add; MIN and MAX give NaN if either is NaN, and
 * take -0 as smaller than +0.
 */
#define NPULINK_SUM		0
#define NPULINK_PROD		1
#define NPULINK_MIN		2
#define NPULINK_MAX		3
#define NPULINK_REDOPS		4

/**
 * struct npulink_step - one step of a plan
 * @op: NPULINK_STEP_RECV, REDUCE, SEND, COPY: see the table above
 * @flags: NPULINK_STEP_F_*
 * @dtype: NPULINK_INT8 ..; looked at only with REDUCE or SCALE, else 0
 * @redop: NPULINK_SUM ..; looked at only with REDUCE, else 0
 * @channel: streams of one pair of ranks that are matched independently
 * @src_slot: slot of src
 * @dst_slot: slot of dst
 * @recv_peer: rank it receives from, NPULINK_NO_PEER without RECV
 * @send_peer: rank it sends to, NPULINK_NO_PEER without SEND
 * @len: bytes; a multiple of the data type's size with REDUCE
 * @src_off: byte offset of src in its slot
 * @dst_off: byte offset of dst in its slot
 * @src2_off: byte offset of src2 in its slot; window size with TRANSIENT
 * @dep: distance backwards to a step that must be done before, 0 = none
 * @src2_slot: slot of src2
 * @reserved: 0
 *
 * Operands that a step does not use have slot and offset 0.
 */
struct npulink_step {
	__u8 op;
	__u8 flags;
	__u8 dtype;
	__u8 redop;
	__u16 channel;
	__u8 src_slot;
	__u8 dst_slot;
	__u32 recv_peer;
	__u32 send_peer;
	__aligned_u64 len;
	__aligned_u64 src_off;
	__aligned_u64 dst_off;
	__aligned_u64 src2_off;
	__u32 dep[NPULINK_STEP_DEPS];
	__u8 src2_slot;
	__u8 reserved[3];
};

/**
 * struct npulink_slot - one operand buffer of a plan, bound to a buffer by POST
 * @min_len: bytes that the bound range must at least have
 * @access: NPULINK_SLOT_READ, NPULINK_SLOT_WRITE
 * @reserved: 0
 *
 * Two slots of one POST may overlap in one buffer only if neither is written.
 * In place is therefore one slot, not two.
 */
struct npulink_slot {
	__aligned_u64 min_len;
	__u32 access;
	__u32 reserved;
};

#define NPULINK_SLOT_READ	(1 << 0)	/* steps read it (or offer it) */
#define NPULINK_SLOT_WRITE	(1 << 1)	/* steps write it */
#define NPULINK_MAX_SLOTS	16

/* What libcoll means by the slots; to the kernel they are just numbers. */
#define NPULINK_SLOT_SEND	0
#define NPULINK_SLOT_RECV	1
#define NPULINK_SLOT_SCRATCH	2

/* Collectives, in struct npulink_call. */
#define NPULINK_COLL_ALLREDUCE		0
#define NPULINK_COLL_REDUCE		1
#define NPULINK_COLL_BROADCAST		2
#define NPULINK_COLL_SCATTER		3
#define NPULINK_COLL_SCATTERV		4
#define NPULINK_COLL_GATHER		5
#define NPULINK_COLL_GATHERV		6
#define NPULINK_COLL_ALLGATHER		7
#define NPULINK_COLL_ALLGATHERV		8
#define NPULINK_COLL_REDUCE_SCATTER	9
#define NPULINK_COLL_REDUCE_SCATTERV	10
#define NPULINK_COLL_ALLTOALL		11
#define NPULINK_COLL_ALLTOALLV		12
#define NPULINK_COLL_BARRIER		13
#define NPULINK_COLL_P2P		14
#define NPULINK_COLLS			15

/**
 * struct npulink_call - what the application called; equal on all ranks
 * @collective: NPULINK_COLL_*
 * @dtype: data type
 * @redop: NPULINK_SUM .., or NPULINK_CALL_AVG; 0 where nothing is reduced
 * @root: root rank, 0 where there is none
 * @count: elements as the collective defines them, 0 for the v forms
 * @set_id: hash of what else must be equal for the plans of all ranks to fit
 *	    together (algorithm, planner version, ranks, topology)
 *
 * Ranks whose calls differ get -EPROTO before a byte moves between them.
 */
struct npulink_call {
	__u32 collective;
	__u32 dtype;
	__u32 redop;
	__u32 root;
	__aligned_u64 count;
	__aligned_u64 set_id;
};

#define NPULINK_CALL_AVG	4	/* redop of a call: SUM, then DIV */

#endif /* _UAPI_LINUX_NPULINK_STEP_H */
