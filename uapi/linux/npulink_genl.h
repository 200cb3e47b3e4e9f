/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note OR MIT */
/*
 * npulink_genl.h - generic netlink family "npulink": what there is to see.
 *
 * Reading needs no privilege, works in every network namespace, and answers for
 * the whole node. specs/npulink.yaml says the same for programs.
 */
#ifndef _UAPI_LINUX_NPULINK_GENL_H
#define _UAPI_LINUX_NPULINK_GENL_H

#include <linux/types.h>
#include <linux/npulink.h>

#define NPULINK_GENL_NAME		"npulink"
#define NPULINK_GENL_VERSION		1
#define NPULINK_GENL_GROUP_EVENTS	"events"

/**
 * enum npulink_genl_cmd - commands
 * @NPULINK_GENL_CMD_UNSPEC: not used
 * @NPULINK_GENL_CMD_DEV_GET: do: the device with NPULINK_A_DEV_ID. dump: all
 *	devices, no attributes. Errors: ENODEV: no such device
 * @NPULINK_GENL_CMD_LINK_GET: dump: all directed links, or with NPULINK_A_LINK_DEV
 *	those that leave one device
 * @NPULINK_GENL_CMD_FLIGHT_GET: dump: flight recorders: of ranks that are there, and
 *	of the last ones that are not. Those of other users only for CAP_SYS_ADMIN
 * @NPULINK_GENL_CMD_PORT_ADD: do: bind the port NPULINK_A_PORT_NAME of the kind
 *	NPULINK_A_PORT_KIND to the device NPULINK_A_PORT_DEV, for processes in the caller's
 *	network namespace. Needs CAP_NET_ADMIN. Errors: ENODEV: no such device or
 *	port, EEXIST: bound to it already, EOPNOTSUPP: no such kind, or the port is not
 *	fit for it, EADDRNOTAVAIL: the port has no IP address, EACCES: it belongs to
 *	another network namespace
 * @NPULINK_GENL_CMD_PORT_DEL: do: undo that; communicators that use it fail. The same
 *	attributes. Errors: ENODEV, ENOENT: not bound
 * @NPULINK_GENL_CMD_PORT_GET: dump: all ports that are bound in the caller's network
 *	namespace, no attributes
 * @__NPULINK_GENL_CMD_MAX: one more than the last
 * @NPULINK_GENL_CMD_MAX: the last
 */
enum npulink_genl_cmd {
	NPULINK_GENL_CMD_UNSPEC,
	NPULINK_GENL_CMD_DEV_GET,
	NPULINK_GENL_CMD_LINK_GET,
	NPULINK_GENL_CMD_FLIGHT_GET,
	NPULINK_GENL_CMD_PORT_ADD,
	NPULINK_GENL_CMD_PORT_DEL,
	NPULINK_GENL_CMD_PORT_GET,
	__NPULINK_GENL_CMD_MAX,
	NPULINK_GENL_CMD_MAX = __NPULINK_GENL_CMD_MAX - 1,
};

/**
 * enum npulink_genl_dev - attributes of a device
 * @NPULINK_A_DEV_UNSPEC: not used
 * @NPULINK_A_DEV_PAD: aligns the 64-bit ones
 * @NPULINK_A_DEV_ID: u32, N of npuN
 * @NPULINK_A_DEV_NAME: string, "npu0"
 * @NPULINK_A_DEV_BACKEND: string, "soft"
 * @NPULINK_A_DEV_ENGINE: string, what moves and reduces the bytes
 * @NPULINK_A_DEV_DTYPES: u32, mask of data types that it reduces (1 << NPULINK_INT8 ..)
 * @NPULINK_A_DEV_REDOPS: u32, mask of reductions (1 << NPULINK_SUM ..)
 * @NPULINK_A_DEV_SLICE: u32, bytes that it handles at a time
 * @NPULINK_A_DEV_INLINE_MAX: u32, steps up to this many bytes need no interrupt
 * @NPULINK_A_DEV_DOORBELLS: u32, doorbell pages for applications
 * @NPULINK_A_DEV_REQUESTS: u64, requests completed
 * @NPULINK_A_DEV_INLINE_DONE: u64, of these without interrupt
 * @NPULINK_A_DEV_INTERRUPTS: u64, completions and doorbells that came by interrupt
 * @NPULINK_A_DEV_BYTES_READ: u64, bytes read by the engine, all inputs counted
 * @NPULINK_A_DEV_BYTES_WRITTEN: u64, bytes written by the engine
 * @__NPULINK_A_DEV_MAX: one more than the last
 * @NPULINK_A_DEV_MAX: the last
 */
enum npulink_genl_dev {
	NPULINK_A_DEV_UNSPEC,
	NPULINK_A_DEV_PAD,
	NPULINK_A_DEV_ID,
	NPULINK_A_DEV_NAME,
	NPULINK_A_DEV_BACKEND,
	NPULINK_A_DEV_ENGINE,
	NPULINK_A_DEV_DTYPES,
	NPULINK_A_DEV_REDOPS,
	NPULINK_A_DEV_SLICE,
	NPULINK_A_DEV_INLINE_MAX,
	NPULINK_A_DEV_DOORBELLS,
	NPULINK_A_DEV_REQUESTS,
	NPULINK_A_DEV_INLINE_DONE,
	NPULINK_A_DEV_INTERRUPTS,
	NPULINK_A_DEV_BYTES_READ,
	NPULINK_A_DEV_BYTES_WRITTEN,
	__NPULINK_A_DEV_MAX,
	NPULINK_A_DEV_MAX = __NPULINK_A_DEV_MAX - 1,
};

/**
 * enum npulink_genl_link - attributes of one direction of a link
 * @NPULINK_A_LINK_UNSPEC: not used
 * @NPULINK_A_LINK_PAD: aligns the 64-bit ones
 * @NPULINK_A_LINK_DEV: u32, id of the device that it leaves
 * @NPULINK_A_LINK_PEER: u32, id of the device that it leads to
 * @NPULINK_A_LINK_STEPS: u64, steps whose payload came over it
 * @NPULINK_A_LINK_BYTES: u64, payload bytes that came over it
 * @NPULINK_A_LINK_DOORBELLS: u64, times the peer's doorbell was rung
 * @NPULINK_A_LINK_INLINE_BELLS: u64, events delivered without a doorbell
 * @NPULINK_A_LINK_DAMAGED: u64, times that bytes came in with a wrong checksum
 * @__NPULINK_A_LINK_MAX: one more than the last
 * @NPULINK_A_LINK_MAX: the last
 */
enum npulink_genl_link {
	NPULINK_A_LINK_UNSPEC,
	NPULINK_A_LINK_PAD,
	NPULINK_A_LINK_DEV,
	NPULINK_A_LINK_PEER,
	NPULINK_A_LINK_STEPS,
	NPULINK_A_LINK_BYTES,
	NPULINK_A_LINK_DOORBELLS,
	NPULINK_A_LINK_INLINE_BELLS,
	NPULINK_A_LINK_DAMAGED,
	__NPULINK_A_LINK_MAX,
	NPULINK_A_LINK_MAX = __NPULINK_A_LINK_MAX - 1,
};

/**
 * enum npulink_genl_flight - attributes of a flight recorder
 * @NPULINK_A_FLIGHT_UNSPEC: not used
 * @NPULINK_A_FLIGHT_PAD: aligns the 64-bit ones
 * @NPULINK_A_FLIGHT_WHAT: u32, request: what is wanted, NPULINK_FLIGHT_*; all if absent
 * @NPULINK_A_FLIGHT_ID: u32, of the recorder, in every message
 * @NPULINK_A_FLIGHT_COMM: u32, serial number of the communicator
 * @NPULINK_A_FLIGHT_RANK: u32
 * @NPULINK_A_FLIGHT_NRANKS: u32
 * @NPULINK_A_FLIGHT_DEV: u32, id of its device
 * @NPULINK_A_FLIGHT_PID: u32, of the process, as the reader sees it, or 0
 * @NPULINK_A_FLIGHT_TASK: string, name of the process
 * @NPULINK_A_FLIGHT_UID: u32, of its owner, as the reader sees it
 * @NPULINK_A_FLIGHT_JOINED: u64, when the rank joined, on the recorder's clock
 * @NPULINK_A_FLIGHT_LEFT: u64, when it left, absent if it is there
 * @NPULINK_A_FLIGHT_OPS_DONE: u64, operations recorded so far, the oldest forgotten
 * @NPULINK_A_FLIGHT_STEPS_DONE: u64, steps recorded so far, the oldest forgotten
 * @NPULINK_A_FLIGHT_NOW: u64, the recorder's clock when the dump began ..
 * @NPULINK_A_FLIGHT_NOW_MONOTONIC: u64, .. and CLOCK_MONOTONIC ..
 * @NPULINK_A_FLIGHT_NOW_REAL: u64, .. and CLOCK_REALTIME at that time
 * @NPULINK_A_FLIGHT_PEERS: struct npulink_flight_peer []
 * @NPULINK_A_FLIGHT_OPS: struct npulink_flight_op [], in the order in which they ended,
 *	those in flight last
 * @NPULINK_A_FLIGHT_STEPS: struct npulink_flight_step [], in the order in which they ended
 * @__NPULINK_A_FLIGHT_MAX: one more than the last
 * @NPULINK_A_FLIGHT_MAX: the last
 *
 * A recorder begins with a message that has all but the arrays, which follow in as many
 * messages as they need. All times are nanoseconds.
 */
enum npulink_genl_flight {
	NPULINK_A_FLIGHT_UNSPEC,
	NPULINK_A_FLIGHT_PAD,
	NPULINK_A_FLIGHT_WHAT,
	NPULINK_A_FLIGHT_ID,
	NPULINK_A_FLIGHT_COMM,
	NPULINK_A_FLIGHT_RANK,
	NPULINK_A_FLIGHT_NRANKS,
	NPULINK_A_FLIGHT_DEV,
	NPULINK_A_FLIGHT_PID,
	NPULINK_A_FLIGHT_TASK,
	NPULINK_A_FLIGHT_UID,
	NPULINK_A_FLIGHT_JOINED,
	NPULINK_A_FLIGHT_LEFT,
	NPULINK_A_FLIGHT_OPS_DONE,
	NPULINK_A_FLIGHT_STEPS_DONE,
	NPULINK_A_FLIGHT_NOW,
	NPULINK_A_FLIGHT_NOW_MONOTONIC,
	NPULINK_A_FLIGHT_NOW_REAL,
	NPULINK_A_FLIGHT_PEERS,
	NPULINK_A_FLIGHT_OPS,
	NPULINK_A_FLIGHT_STEPS,
	__NPULINK_A_FLIGHT_MAX,
	NPULINK_A_FLIGHT_MAX = __NPULINK_A_FLIGHT_MAX - 1,
};

#define NPULINK_FLIGHT_PEERS	(1 << 0)
#define NPULINK_FLIGHT_OPS	(1 << 1)
#define NPULINK_FLIGHT_STEPS	(1 << 2)
#define NPULINK_FLIGHT_ALL	0x07

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

/**
 * enum npulink_genl_port - attributes of a port that is bound to a device
 * @NPULINK_A_PORT_UNSPEC: not used
 * @NPULINK_A_PORT_DEV: u32, id of the device
 * @NPULINK_A_PORT_KIND: string, "rdma"
 * @NPULINK_A_PORT_NAME: string, "rxe0/1"
 * @NPULINK_A_PORT_IP: binary, 16 bytes: the address that peers use, IPv4 in its mapped form
 * @NPULINK_A_PORT_CM: u16, port of the RDMA connection manager
 * @__NPULINK_A_PORT_MAX: one more than the last
 * @NPULINK_A_PORT_MAX: the last
 */
enum npulink_genl_port {
	NPULINK_A_PORT_UNSPEC,
	NPULINK_A_PORT_DEV,
	NPULINK_A_PORT_KIND,
	NPULINK_A_PORT_NAME,
	NPULINK_A_PORT_IP,
	NPULINK_A_PORT_CM,
	__NPULINK_A_PORT_MAX,
	NPULINK_A_PORT_MAX = __NPULINK_A_PORT_MAX - 1,
};

#endif /* _UAPI_LINUX_NPULINK_GENL_H */
