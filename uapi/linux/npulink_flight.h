/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note OR MIT */
/*
 * npulink_flight.h - what a flight recorder tells, as arrays in binary attributes of the generic
 * netlink family "npulink" (npulink_genl.h, NPULINK_GENL_CMD_FLIGHT_GET).
 */
#ifndef _UAPI_LINUX_NPULINK_FLIGHT_H
#define _UAPI_LINUX_NPULINK_FLIGHT_H

#include <linux/types.h>
#include <linux/npulink.h>

/**
 * struct npulink_flight_op - an operation
 * @start: when it was posted
 * @end: when it ended, 0: it has not
 * @number: collective number in the communicator, or with the peer
 * @wait: its steps waited for peers to offer bytes
 * @queue: they waited for the engine, or for somebody to run it
 * @engine: bytes were moved or reduced
 * @take: they waited for peers to take bytes
 * @call: what was called
 * @algorithm: how
 * @serial: number in this recorder, see struct npulink_flight_step
 * @nsteps: steps of the plan
 * @status: 0 or -errno
 * @cause: NPULINK_CAUSE_*
 *
 * Steps of one operation run side by side, so the sums may be more than the time from
 * start to end.
 */
struct npulink_flight_op {
	__aligned_u64 start;
	__aligned_u64 end;
	__aligned_u64 number;
	__aligned_u64 wait;
	__aligned_u64 queue;
	__aligned_u64 engine;
	__aligned_u64 take;
	struct npulink_call call;
	char algorithm[NPULINK_ALGORITHM_LEN];
	__u32 serial;
	__u32 nsteps;
	__s32 status;
	__u32 cause;
};

/**
 * struct npulink_flight_step - a step, or a chain of them
 * @start: when it could start
 * @len: bytes
 * @serial: of its operation
 * @step: index in the plan, of the first of a chain
 * @nsteps: length of the chain, 1 for a single step
 * @op: NPULINK_STEP_*, of all in the chain
 * @flags: NPULINK_STEP_F_*, of the last of a chain
 * @recv_peer: NPULINK_NO_PEER: receives nothing; of a chain that of the first that does
 * @send_peer: NPULINK_NO_PEER: sends nothing
 * @wait: for the peer to offer the bytes
 * @queue: for the engine, or for somebody to run it
 * @engine: moving or reducing them (reducing if @op has NPULINK_STEP_REDUCE)
 * @take: for the peer to take them
 * @channel: of the first of a chain
 * @reserved: 0
 *
 * It ended when the four times after @start were over. They are written as
 * npulink_flight_ns() reads them.
 */
struct npulink_flight_step {
	__aligned_u64 start;
	__aligned_u64 len;
	__u32 serial;
	__u32 step;
	__u16 nsteps;
	__u8 op;
	__u8 flags;
	__u32 recv_peer;
	__u32 send_peer;
	__u32 wait;
	__u32 queue;
	__u32 engine;
	__u32 take;
	__u16 channel;
	__u16 reserved;
};

#define NPULINK_FLIGHT_BUCKETS	20

/**
 * struct npulink_flight_peer - what a rank had to wait for, with one of its peers
 * @peer: rank
 * @dev: its device, NPULINK_NO_PEER if not met yet
 * @waits: steps that received from it
 * @wait_ns: time that they waited
 * @takes: steps that sent to it
 * @take_ns: time until it had taken the bytes
 * @moves: requests that moved or reduced bytes of it and nobody else, without those
 *	   that are too small for an interrupt
 * @move_ns: time they took
 * @move_bytes: their bytes
 * @late: steps by how much later than this rank the peer was: bucket 0 less than 1,024 ns,
 *	  bucket i less than 1,024 << i, the last one all others
 * @slow: requests as in @moves, by ns for 1,024 bytes: bucket 0 less than 1,
 *	  bucket i less than about 1 << i, the last one all others
 */
struct npulink_flight_peer {
	__u32 peer;
	__u32 dev;
	__aligned_u64 waits;
	__aligned_u64 wait_ns;
	__aligned_u64 takes;
	__aligned_u64 take_ns;
	__aligned_u64 moves;
	__aligned_u64 move_ns;
	__aligned_u64 move_bytes;
	__u32 late[NPULINK_FLIGHT_BUCKETS];
	__u32 slow[NPULINK_FLIGHT_BUCKETS];
};

/* 28 bits, shifted left by the upper four: exact up to a quarter of a second. */
static inline __u64 npulink_flight_ns(__u32 time)
{
	return (__u64)(time & 0xfffffff) << (time >> 28);
}

#endif /* _UAPI_LINUX_NPULINK_FLIGHT_H */
