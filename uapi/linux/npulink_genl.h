/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note OR MIT */
/*
 * npulink_genl.h - generic netlink family "npulink": what there is to see.
 *
 * Reading needs no privilege, works in every network namespace, and answers for the whole
 * node. Devices, links, totals and events are for everybody. Communicators, ranks,
 * operations, files, buffers and flight recorders are shown to their user, and to a reader
 * who has CAP_SYS_PTRACE in the user namespace that they were made in; others see them only
 * counted in the totals. Members of a communicator with ranks of several users see all of
 * it, but neither pid nor uid of each other.
 *
 * Dumps go on by id, so whatever is there all the time is reported exactly once. The
 * attributes of a rank have no pid, uid and file if it is another user's. A flight recorder
 * begins with a message that has all but its arrays, which follow in as many messages as
 * they need; all its times are nanoseconds.
 *
 * Written by "make specs" from specs/npulink.yaml: do not edit.
 */
#ifndef _UAPI_LINUX_NPULINK_GENL_H
#define _UAPI_LINUX_NPULINK_GENL_H

#include <linux/types.h>
#include <linux/npulink.h>
#include <linux/npulink_flight.h>

#define NPULINK_GENL_NAME		"npulink"
#define NPULINK_GENL_VERSION		1
#define NPULINK_GENL_GROUP_EVENTS	"events"

/**
 * enum npulink_genl_cmd - commands
 * @NPULINK_GENL_CMD_UNSPEC: not used
 * @NPULINK_GENL_CMD_DEV_GET: do: the device with NPULINK_A_DEV_ID. dump: all devices,
 *	no attributes. Errors: ENODEV: no such device
 * @NPULINK_GENL_CMD_LINK_GET: dump: all directed links, or with NPULINK_A_LINK_DEV
 *	those that leave one device
 * @NPULINK_GENL_CMD_FLIGHT_GET: dump: flight recorders: of ranks that are there, and of
 *	the last ones that are not
 * @NPULINK_GENL_CMD_PORT_ADD: do: bind the port NPULINK_A_PORT_NAME of the kind
 *	NPULINK_A_PORT_KIND to the device NPULINK_A_PORT_DEV, for processes in the caller's
 *	network namespace. Needs CAP_NET_ADMIN. Errors: ENODEV: no such device or port, EEXIST:
 *	bound to it already, EOPNOTSUPP: no such kind, or the port is not fit for it,
 *	EADDRNOTAVAIL: the port has no IP address, EACCES: it belongs to another network
 *	namespace
 * @NPULINK_GENL_CMD_PORT_DEL: do: undo that; communicators that use it fail. The same
 *	attributes. Errors: ENODEV, ENOENT: not bound
 * @NPULINK_GENL_CMD_PORT_GET: dump: all ports that are bound in the caller's network
 *	namespace, no attributes
 * @NPULINK_GENL_CMD_COMM_GET: dump: communicators
 * @NPULINK_GENL_CMD_RANK_GET: dump: ranks of this node, or with NPULINK_A_RANK_COMM
 *	those of one communicator. Errors: ENOENT: no such communicator
 * @NPULINK_GENL_CMD_OP_GET: dump: operations in flight, or with NPULINK_A_OP_COMM those
 *	of one communicator. Errors: ENOENT: no such communicator
 * @NPULINK_GENL_CMD_FILE_GET: dump: open files and what they have pinned
 * @NPULINK_GENL_CMD_BUF_GET: dump: buffers, or with NPULINK_A_BUF_FILE those of one
 *	open file. Errors: ENOENT: no such file
 * @NPULINK_GENL_CMD_STAT_GET: do: the whole node, no attributes
 * @NPULINK_GENL_CMD_EVENT: sent to the group "events", never asked for. Names neither
 *	processes nor users. In network namespaces other than the first one and those of a
 *	communicator's processes, only its type and cause are told; addresses and ports only
 *	where the port is. From Linux 6.8 on, that is also all that is told of a communicator of
 *	one user to others without CAP_NET_ADMIN in their network namespace; before, a kernel
 *	cannot choose among its listeners
 * @NPULINK_GENL_CMD_CONN_GET: dump: what ranks of this node have got from each of their
 *	peers, or with NPULINK_A_CONN_COMM those of one communicator. Errors: ENOENT: no such
 *	communicator
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
	NPULINK_GENL_CMD_COMM_GET,
	NPULINK_GENL_CMD_RANK_GET,
	NPULINK_GENL_CMD_OP_GET,
	NPULINK_GENL_CMD_FILE_GET,
	NPULINK_GENL_CMD_BUF_GET,
	NPULINK_GENL_CMD_STAT_GET,
	NPULINK_GENL_CMD_EVENT,
	NPULINK_GENL_CMD_CONN_GET,
	__NPULINK_GENL_CMD_MAX,
	NPULINK_GENL_CMD_MAX = __NPULINK_GENL_CMD_MAX - 1,
};

/* State of a link. */
#define NPULINK_LINK_STATE_UP	1
#define NPULINK_LINK_STATE_DOWN	2	/* lost: what is sent over it fails */

/* State of a connection to a rank on another node. */
#define NPULINK_CONN_STATE_CONNECTING	1
#define NPULINK_CONN_STATE_UP		2
#define NPULINK_CONN_STATE_LEFT		3	/* the peer has left in good order */
#define NPULINK_CONN_STATE_DOWN		4
#define NPULINK_CONN_STATE_RESUMING	5	/* a port was lost; goes on over another one */

/* Whether a rank on another node has called the operation that it was asked about. */
#define NPULINK_CALLED_NOT	0
#define NPULINK_CALLED_RUNNING	1
#define NPULINK_CALLED_OVER	2

/* State of a rank. */
#define NPULINK_RANK_STATE_JOINED	1
/*
 * Its process is gone, or has closed the device; with a device: others hold the file open yet.
 */
#define NPULINK_RANK_STATE_DEAD		2
#define NPULINK_RANK_STATE_LEFT		3	/* in good order */
#define NPULINK_RANK_STATE_AWAITED	4	/* of a shrunk one: is in one before it yet */

/* State of an operation. */
#define NPULINK_OP_STATE_RUNNING	1
#define NPULINK_OP_STATE_FAILING	2	/* until its engine has let go of it */

/* What a unit of an operation waits for. */
#define NPULINK_WAIT_RECV	1	/* bytes of the peer have not arrived */
#define NPULINK_WAIT_SEND	2	/* the peer has not taken what is offered */
#define NPULINK_WAIT_ENGINE	3	/* the engine is at it */
#define NPULINK_WAIT_WORKER	4	/* nobody has handed it to the engine yet */

/* Whose memory a buffer is. */
#define NPULINK_BUF_KIND_USER	1	/* memory of the process */
#define NPULINK_BUF_KIND_KERNEL	2	/* memory of the kernel */
#define NPULINK_BUF_KIND_DMABUF	3	/* of another driver */
#define NPULINK_BUF_KIND_DEVICE	4	/* the device's own */

/* What has happened. */
#define NPULINK_EVENT_DEV_ADD	1
#define NPULINK_EVENT_DEV_DEL	2
#define NPULINK_EVENT_LINK_UP	3
#define NPULINK_EVENT_LINK_DOWN	4
#define NPULINK_EVENT_FAIL	5	/* a communicator failed, see its cause */
#define NPULINK_EVENT_SLOW	6	/* an operation takes longer than expected */
#define NPULINK_EVENT_SUSPECT	7	/* processes may wait for each other, see cause */
#define NPULINK_EVENT_PORT_LOST	8	/* a connection over it; others are tried */
#define NPULINK_EVENT_PORT_NEXT	9	/* that goes on over this port */
#define NPULINK_EVENT_SLOW_END	10	/* one that was told of as slow has ended */

/* What of a flight recorder is wanted. */
#define NPULINK_FLIGHT_PEERS	(1 << 0)
#define NPULINK_FLIGHT_OPS	(1 << 1)
#define NPULINK_FLIGHT_STEPS	(1 << 2)

#define NPULINK_FLIGHT_ALL	7	/* all of flight-what */

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
 * @NPULINK_A_DEV_MEMORY: u64, bytes that it has of its own, ..
 * @NPULINK_A_DEV_MEMORY_USED: u64, .. and how many of them are in buffers
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
	NPULINK_A_DEV_MEMORY,
	NPULINK_A_DEV_MEMORY_USED,
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
 * @NPULINK_A_LINK_TYPE: string, what it is: the name of the backend
 * @NPULINK_A_LINK_STATE: u32, NPULINK_LINK_STATE_*
 * @NPULINK_A_LINK_ERRORS: u64, times it was lost
 * @NPULINK_A_LINK_MOVES: u64, requests of one step whose time was taken (none without
 *	flight recorder), ..
 * @NPULINK_A_LINK_MOVE_BYTES: u64, .. the bytes that they moved over it, ..
 * @NPULINK_A_LINK_MOVE_NS: u64, .. and the ns that they took
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
	NPULINK_A_LINK_TYPE,
	NPULINK_A_LINK_STATE,
	NPULINK_A_LINK_ERRORS,
	NPULINK_A_LINK_MOVES,
	NPULINK_A_LINK_MOVE_BYTES,
	NPULINK_A_LINK_MOVE_NS,
	__NPULINK_A_LINK_MAX,
	NPULINK_A_LINK_MAX = __NPULINK_A_LINK_MAX - 1,
};

/**
 * enum npulink_genl_call - what a rank called, struct npulink_call
 * @NPULINK_A_CALL_UNSPEC: not used
 * @NPULINK_A_CALL_PAD: aligns the 64-bit ones
 * @NPULINK_A_CALL_COLLECTIVE: u32, NPULINK_COLL_*
 * @NPULINK_A_CALL_DTYPE: u32, data type
 * @NPULINK_A_CALL_REDOP: u32, reduction
 * @NPULINK_A_CALL_ROOT: u32, root rank
 * @NPULINK_A_CALL_COUNT: u64, elements
 * @NPULINK_A_CALL_SET_ID: u64, hash of algorithm, planner version, ranks, topology
 * @__NPULINK_A_CALL_MAX: one more than the last
 * @NPULINK_A_CALL_MAX: the last
 */
enum npulink_genl_call {
	NPULINK_A_CALL_UNSPEC,
	NPULINK_A_CALL_PAD,
	NPULINK_A_CALL_COLLECTIVE,
	NPULINK_A_CALL_DTYPE,
	NPULINK_A_CALL_REDOP,
	NPULINK_A_CALL_ROOT,
	NPULINK_A_CALL_COUNT,
	NPULINK_A_CALL_SET_ID,
	__NPULINK_A_CALL_MAX,
	NPULINK_A_CALL_MAX = __NPULINK_A_CALL_MAX - 1,
};

/**
 * enum npulink_genl_circle - a wait of processes that wait for each other
 * @NPULINK_A_CIRCLE_UNSPEC: not used
 * @NPULINK_A_CIRCLE_PAD: aligns the 64-bit ones
 * @NPULINK_A_CIRCLE_COMM: u32, id of the communicator
 * @NPULINK_A_CIRCLE_RANK: u32, who waits
 * @NPULINK_A_CIRCLE_PEER: u32, for whom, whose process is in the next wait
 * @NPULINK_A_CIRCLE_NUMBER: u64, operation that rank waits in; absent: point-to-point
 * @__NPULINK_A_CIRCLE_MAX: one more than the last
 * @NPULINK_A_CIRCLE_MAX: the last
 */
enum npulink_genl_circle {
	NPULINK_A_CIRCLE_UNSPEC,
	NPULINK_A_CIRCLE_PAD,
	NPULINK_A_CIRCLE_COMM,
	NPULINK_A_CIRCLE_RANK,
	NPULINK_A_CIRCLE_PEER,
	NPULINK_A_CIRCLE_NUMBER,
	__NPULINK_A_CIRCLE_MAX,
	NPULINK_A_CIRCLE_MAX = __NPULINK_A_CIRCLE_MAX - 1,
};

/**
 * enum npulink_genl_cause - why a communicator failed
 * @NPULINK_A_CAUSE_UNSPEC: not used
 * @NPULINK_A_CAUSE_PAD: aligns the 64-bit ones
 * @NPULINK_A_CAUSE_CAUSE: u32, NPULINK_CAUSE_*
 * @NPULINK_A_CAUSE_ERRNO: u32, what operations end with
 * @NPULINK_A_CAUSE_RANK: u32, rank where it arose
 * @NPULINK_A_CAUSE_PEER: u32, rank that it was about; absent: none
 * @NPULINK_A_CAUSE_STEP: u32, step of rank's plan; absent: none
 * @NPULINK_A_CAUSE_NUMBER: u64, operation; absent: none
 * @NPULINK_A_CAUSE_CODE: u32, as in struct npulink_comm_status
 * @NPULINK_A_CAUSE_CALLS: nest of enum npulink_genl_call, with MISMATCH and DEADLOCK,
 *	twice: see struct npulink_comm_status
 * @NPULINK_A_CAUSE_NCIRCLE: u32, with DEADLOCK, how many processes wait for each other
 * @NPULINK_A_CAUSE_CIRCLE: nest of enum npulink_genl_circle, with DEADLOCK, once for
 *	each of the first NPULINK_CIRCLE_MAX of them
 * @NPULINK_A_CAUSE_IP: binary, 16 bytes: with LINK and CHECKSUM between nodes, address
 *	of peer's node, IPv4 in its mapped form
 * @NPULINK_A_CAUSE_PORT: string, port of rank's node that leads there, "rxe0/1";
 *	absent: none was found
 * @__NPULINK_A_CAUSE_MAX: one more than the last
 * @NPULINK_A_CAUSE_MAX: the last
 */
enum npulink_genl_cause {
	NPULINK_A_CAUSE_UNSPEC,
	NPULINK_A_CAUSE_PAD,
	NPULINK_A_CAUSE_CAUSE,
	NPULINK_A_CAUSE_ERRNO,
	NPULINK_A_CAUSE_RANK,
	NPULINK_A_CAUSE_PEER,
	NPULINK_A_CAUSE_STEP,
	NPULINK_A_CAUSE_NUMBER,
	NPULINK_A_CAUSE_CODE,
	NPULINK_A_CAUSE_CALLS,
	NPULINK_A_CAUSE_NCIRCLE,
	NPULINK_A_CAUSE_CIRCLE,
	NPULINK_A_CAUSE_IP,
	NPULINK_A_CAUSE_PORT,
	__NPULINK_A_CAUSE_MAX,
	NPULINK_A_CAUSE_MAX = __NPULINK_A_CAUSE_MAX - 1,
};

/**
 * enum npulink_genl_comm - attributes of a communicator, as far as it is on this node
 * @NPULINK_A_COMM_UNSPEC: not used
 * @NPULINK_A_COMM_PAD: aligns the 64-bit ones
 * @NPULINK_A_COMM_ID: u32, number of it on this node, never used again
 * @NPULINK_A_COMM_NRANKS: u32, ranks that it has
 * @NPULINK_A_COMM_JOINED: u32, of these here now
 * @NPULINK_A_COMM_LEFT: u32, of these have left
 * @NPULINK_A_COMM_UID: u32, user who created it; absent for members who are other users
 * @NPULINK_A_COMM_ANY_UID: flag, ranks of other users may join
 * @NPULINK_A_COMM_PARENT: u32, communicator that it was shrunk from; absent: none
 * @NPULINK_A_COMM_CAUSE: nest of enum npulink_genl_cause, why it failed; absent: it has
 *	not
 * @__NPULINK_A_COMM_MAX: one more than the last
 * @NPULINK_A_COMM_MAX: the last
 */
enum npulink_genl_comm {
	NPULINK_A_COMM_UNSPEC,
	NPULINK_A_COMM_PAD,
	NPULINK_A_COMM_ID,
	NPULINK_A_COMM_NRANKS,
	NPULINK_A_COMM_JOINED,
	NPULINK_A_COMM_LEFT,
	NPULINK_A_COMM_UID,
	NPULINK_A_COMM_ANY_UID,
	NPULINK_A_COMM_PARENT,
	NPULINK_A_COMM_CAUSE,
	__NPULINK_A_COMM_MAX,
	NPULINK_A_COMM_MAX = __NPULINK_A_COMM_MAX - 1,
};

/**
 * enum npulink_genl_rank - attributes of a rank of this node; another user's has no
 *	pid, uid, file, tid
 * @NPULINK_A_RANK_UNSPEC: not used
 * @NPULINK_A_RANK_PAD: aligns the 64-bit ones
 * @NPULINK_A_RANK_COMM: u32, id of the communicator
 * @NPULINK_A_RANK_RANK: u32, rank
 * @NPULINK_A_RANK_STATE: u32, NPULINK_RANK_STATE_*; of one that is no member any more
 *	there is nothing else
 * @NPULINK_A_RANK_PID: u32, process that opened the device; 0: not in the reader's
 *	namespace
 * @NPULINK_A_RANK_UID: u32, its user
 * @NPULINK_A_RANK_FILE: u32, open file
 * @NPULINK_A_RANK_DEV: u32, id of the device
 * @NPULINK_A_RANK_NEXT: u64, number of its next collective: so many it has called
 * @NPULINK_A_RANK_OPS: u32, operations in flight
 * @NPULINK_A_RANK_OLDEST: u64, age of the oldest of these, ns
 * @NPULINK_A_RANK_DONE: u64, posted operations that ended well
 * @NPULINK_A_RANK_FAILED: u64, operations that failed
 * @NPULINK_A_RANK_BYTES: u64, bytes that its engine moved for it
 * @NPULINK_A_RANK_BUSY: u64, ns that operations took, one after the other
 * @NPULINK_A_RANK_BEFORE: u32, with AWAITED: rank in the communicator where it is yet
 * @NPULINK_A_RANK_BEFORE_COMM: u32, id of that
 * @NPULINK_A_RANK_MET: u64, operations that were met on the board without a system
 *	call, as its process says
 * @NPULINK_A_RANK_TID: u32, thread of the process that has posted last; absent: none,
 *	or it has ended
 * @__NPULINK_A_RANK_MAX: one more than the last
 * @NPULINK_A_RANK_MAX: the last
 */
enum npulink_genl_rank {
	NPULINK_A_RANK_UNSPEC,
	NPULINK_A_RANK_PAD,
	NPULINK_A_RANK_COMM,
	NPULINK_A_RANK_RANK,
	NPULINK_A_RANK_STATE,
	NPULINK_A_RANK_PID,
	NPULINK_A_RANK_UID,
	NPULINK_A_RANK_FILE,
	NPULINK_A_RANK_DEV,
	NPULINK_A_RANK_NEXT,
	NPULINK_A_RANK_OPS,
	NPULINK_A_RANK_OLDEST,
	NPULINK_A_RANK_DONE,
	NPULINK_A_RANK_FAILED,
	NPULINK_A_RANK_BYTES,
	NPULINK_A_RANK_BUSY,
	NPULINK_A_RANK_BEFORE,
	NPULINK_A_RANK_BEFORE_COMM,
	NPULINK_A_RANK_MET,
	NPULINK_A_RANK_TID,
	__NPULINK_A_RANK_MAX,
	NPULINK_A_RANK_MAX = __NPULINK_A_RANK_MAX - 1,
};

/**
 * enum npulink_genl_op - attributes of an operation in flight
 * @NPULINK_A_OP_UNSPEC: not used
 * @NPULINK_A_OP_PAD: aligns the 64-bit ones
 * @NPULINK_A_OP_COMM: u32, id of the communicator
 * @NPULINK_A_OP_RANK: u32, rank
 * @NPULINK_A_OP_NUMBER: u64, of the collective in the communicator, or of the message
 *	between the two ranks
 * @NPULINK_A_OP_SEQ: u64, out_seq of its POST
 * @NPULINK_A_OP_CALL: nest of enum npulink_genl_call, what was called
 * @NPULINK_A_OP_P2P: flag, it is a message, not a collective
 * @NPULINK_A_OP_STATE: u32, NPULINK_OP_STATE_*
 * @NPULINK_A_OP_STEPS: u32, steps of its plan
 * @NPULINK_A_OP_UNITS: u32, steps and chains of steps: what is started as a whole
 * @NPULINK_A_OP_UNITS_LEFT: u32, of these not done
 * @NPULINK_A_OP_BYTES: u64, bytes that its engine has to write
 * @NPULINK_A_OP_BYTES_DONE: u64, of these written
 * @NPULINK_A_OP_AGE: u64, ns since POST
 * @NPULINK_A_OP_LEFT: u64, ns until its deadline; absent: it has none
 * @NPULINK_A_OP_SLOW: u64, ns from which on it counts as slow; absent: never
 * @NPULINK_A_OP_WAIT: nest of enum npulink_genl_wait, several: what the first units
 *	that are neither done nor blocked wait for
 * @NPULINK_A_OP_ALGORITHM: string, name of the algorithm; absent: it has none
 * @__NPULINK_A_OP_MAX: one more than the last
 * @NPULINK_A_OP_MAX: the last
 */
enum npulink_genl_op {
	NPULINK_A_OP_UNSPEC,
	NPULINK_A_OP_PAD,
	NPULINK_A_OP_COMM,
	NPULINK_A_OP_RANK,
	NPULINK_A_OP_NUMBER,
	NPULINK_A_OP_SEQ,
	NPULINK_A_OP_CALL,
	NPULINK_A_OP_P2P,
	NPULINK_A_OP_STATE,
	NPULINK_A_OP_STEPS,
	NPULINK_A_OP_UNITS,
	NPULINK_A_OP_UNITS_LEFT,
	NPULINK_A_OP_BYTES,
	NPULINK_A_OP_BYTES_DONE,
	NPULINK_A_OP_AGE,
	NPULINK_A_OP_LEFT,
	NPULINK_A_OP_SLOW,
	NPULINK_A_OP_WAIT,
	NPULINK_A_OP_ALGORITHM,
	__NPULINK_A_OP_MAX,
	NPULINK_A_OP_MAX = __NPULINK_A_OP_MAX - 1,
};

/**
 * enum npulink_genl_wait - what a unit of an operation waits for
 * @NPULINK_A_WAIT_UNSPEC: not used
 * @NPULINK_A_WAIT_PAD: aligns the 64-bit ones
 * @NPULINK_A_WAIT_KIND: u32, NPULINK_WAIT_*
 * @NPULINK_A_WAIT_STEP: u32, step of its plan
 * @NPULINK_A_WAIT_PEER: u32, rank that it waits for, or whose bytes are moved; absent:
 *	none
 * @NPULINK_A_WAIT_SINCE: u64, ns, to the tick
 * @NPULINK_A_WAIT_DONE: u64, bytes of the unit that are done
 * @NPULINK_A_WAIT_LEN: u64, bytes of the unit
 * @NPULINK_A_WAIT_DEV: u32, device that the bytes come from
 * @NPULINK_A_WAIT_PEER_DEV: u32, device that they go to
 * @NPULINK_A_WAIT_MET: flag, the peer has posted its operation
 * @NPULINK_A_WAIT_REMOTE: flag, the peer is on another machine
 * @__NPULINK_A_WAIT_MAX: one more than the last
 * @NPULINK_A_WAIT_MAX: the last
 */
enum npulink_genl_wait {
	NPULINK_A_WAIT_UNSPEC,
	NPULINK_A_WAIT_PAD,
	NPULINK_A_WAIT_KIND,
	NPULINK_A_WAIT_STEP,
	NPULINK_A_WAIT_PEER,
	NPULINK_A_WAIT_SINCE,
	NPULINK_A_WAIT_DONE,
	NPULINK_A_WAIT_LEN,
	NPULINK_A_WAIT_DEV,
	NPULINK_A_WAIT_PEER_DEV,
	NPULINK_A_WAIT_MET,
	NPULINK_A_WAIT_REMOTE,
	__NPULINK_A_WAIT_MAX,
	NPULINK_A_WAIT_MAX = __NPULINK_A_WAIT_MAX - 1,
};

/**
 * enum npulink_genl_file - attributes of an open file: what a process has pinned
 * @NPULINK_A_FILE_UNSPEC: not used
 * @NPULINK_A_FILE_PAD: aligns the 64-bit ones
 * @NPULINK_A_FILE_ID: u32, number of it on this node, never used again soon
 * @NPULINK_A_FILE_DEV: u32, id of the device
 * @NPULINK_A_FILE_PID: u32, process that opened it; 0: not in the reader's namespace
 * @NPULINK_A_FILE_UID: u32, its user
 * @NPULINK_A_FILE_OPS: u32, operations in flight
 * @NPULINK_A_FILE_BUFS: u32, buffers, without the arena
 * @NPULINK_A_FILE_REGISTERED: u64, bytes of its memory that are pinned
 * @NPULINK_A_FILE_ALLOCATED: u64, bytes in buffers of the kernel
 * @NPULINK_A_FILE_IMPORTED: u64, bytes in dma-bufs of others
 * @NPULINK_A_FILE_ARENA: u64, bytes of the arena
 * @NPULINK_A_FILE_RING: u64, bytes of the completion ring
 * @NPULINK_A_FILE_PINNED: u64, bytes charged against RLIMIT_MEMLOCK for all of these
 * @NPULINK_A_FILE_DEVICE: u64, bytes in buffers of the device's own memory, which are
 *	not charged
 * @__NPULINK_A_FILE_MAX: one more than the last
 * @NPULINK_A_FILE_MAX: the last
 */
enum npulink_genl_file {
	NPULINK_A_FILE_UNSPEC,
	NPULINK_A_FILE_PAD,
	NPULINK_A_FILE_ID,
	NPULINK_A_FILE_DEV,
	NPULINK_A_FILE_PID,
	NPULINK_A_FILE_UID,
	NPULINK_A_FILE_OPS,
	NPULINK_A_FILE_BUFS,
	NPULINK_A_FILE_REGISTERED,
	NPULINK_A_FILE_ALLOCATED,
	NPULINK_A_FILE_IMPORTED,
	NPULINK_A_FILE_ARENA,
	NPULINK_A_FILE_RING,
	NPULINK_A_FILE_PINNED,
	NPULINK_A_FILE_DEVICE,
	__NPULINK_A_FILE_MAX,
	NPULINK_A_FILE_MAX = __NPULINK_A_FILE_MAX - 1,
};

/**
 * enum npulink_genl_buf - attributes of a buffer
 * @NPULINK_A_BUF_UNSPEC: not used
 * @NPULINK_A_BUF_PAD: aligns the 64-bit ones
 * @NPULINK_A_BUF_FILE: u32, id of the open file
 * @NPULINK_A_BUF_ID: u32, id in that file
 * @NPULINK_A_BUF_KIND: u32, NPULINK_BUF_KIND_*
 * @NPULINK_A_BUF_LEN: u64, bytes
 * @NPULINK_A_BUF_PINNED: u64, bytes charged
 * @NPULINK_A_BUF_USERS: u32, who keeps it: its id, operations, mappings, dma-bufs
 * @NPULINK_A_BUF_READONLY: flag, no step may write to it
 * @NPULINK_A_BUF_UNMAPPED: flag, its memory has been unmapped
 * @NPULINK_A_BUF_DEVICES: u32, that it is mapped for, by addresses of their own
 * @__NPULINK_A_BUF_MAX: one more than the last
 * @NPULINK_A_BUF_MAX: the last
 */
enum npulink_genl_buf {
	NPULINK_A_BUF_UNSPEC,
	NPULINK_A_BUF_PAD,
	NPULINK_A_BUF_FILE,
	NPULINK_A_BUF_ID,
	NPULINK_A_BUF_KIND,
	NPULINK_A_BUF_LEN,
	NPULINK_A_BUF_PINNED,
	NPULINK_A_BUF_USERS,
	NPULINK_A_BUF_READONLY,
	NPULINK_A_BUF_UNMAPPED,
	NPULINK_A_BUF_DEVICES,
	__NPULINK_A_BUF_MAX,
	NPULINK_A_BUF_MAX = __NPULINK_A_BUF_MAX - 1,
};

/**
 * enum npulink_genl_failure - communicators that failed for one cause
 * @NPULINK_A_FAILURE_UNSPEC: not used
 * @NPULINK_A_FAILURE_PAD: aligns the 64-bit ones
 * @NPULINK_A_FAILURE_CAUSE: u32, NPULINK_CAUSE_*
 * @NPULINK_A_FAILURE_COUNT: u64, since the module was loaded
 * @__NPULINK_A_FAILURE_MAX: one more than the last
 * @NPULINK_A_FAILURE_MAX: the last
 */
enum npulink_genl_failure {
	NPULINK_A_FAILURE_UNSPEC,
	NPULINK_A_FAILURE_PAD,
	NPULINK_A_FAILURE_CAUSE,
	NPULINK_A_FAILURE_COUNT,
	__NPULINK_A_FAILURE_MAX,
	NPULINK_A_FAILURE_MAX = __NPULINK_A_FAILURE_MAX - 1,
};

/**
 * enum npulink_genl_stat - the whole node, all users
 * @NPULINK_A_STAT_UNSPEC: not used
 * @NPULINK_A_STAT_PAD: aligns the 64-bit ones
 * @NPULINK_A_STAT_DEVS: u32, devices
 * @NPULINK_A_STAT_FILES: u32, open files
 * @NPULINK_A_STAT_COMMS: u32, communicators
 * @NPULINK_A_STAT_RANKS: u32, ranks
 * @NPULINK_A_STAT_OPS: u32, operations in flight
 * @NPULINK_A_STAT_PINNED: u64, bytes charged against RLIMIT_MEMLOCK
 * @NPULINK_A_STAT_OPS_DONE: u64, operations that ended well since the module was loaded
 * @NPULINK_A_STAT_OPS_FAILED: u64, operations that failed
 * @NPULINK_A_STAT_SLOW: u64, operations that were slow
 * @NPULINK_A_STAT_EVENTS: u64, events that were sent
 * @NPULINK_A_STAT_EVENTS_LOST: u64, events that were not, because there were too many
 * @NPULINK_A_STAT_FAILURES: nest of enum npulink_genl_failure, several
 * @__NPULINK_A_STAT_MAX: one more than the last
 * @NPULINK_A_STAT_MAX: the last
 */
enum npulink_genl_stat {
	NPULINK_A_STAT_UNSPEC,
	NPULINK_A_STAT_PAD,
	NPULINK_A_STAT_DEVS,
	NPULINK_A_STAT_FILES,
	NPULINK_A_STAT_COMMS,
	NPULINK_A_STAT_RANKS,
	NPULINK_A_STAT_OPS,
	NPULINK_A_STAT_PINNED,
	NPULINK_A_STAT_OPS_DONE,
	NPULINK_A_STAT_OPS_FAILED,
	NPULINK_A_STAT_SLOW,
	NPULINK_A_STAT_EVENTS,
	NPULINK_A_STAT_EVENTS_LOST,
	NPULINK_A_STAT_FAILURES,
	__NPULINK_A_STAT_MAX,
	NPULINK_A_STAT_MAX = __NPULINK_A_STAT_MAX - 1,
};

/**
 * enum npulink_genl_event - something happened; what does not apply is absent
 * @NPULINK_A_EVENT_UNSPEC: not used
 * @NPULINK_A_EVENT_PAD: aligns the 64-bit ones
 * @NPULINK_A_EVENT_TYPE: u32, NPULINK_EVENT_*
 * @NPULINK_A_EVENT_SERIAL: u64, counts events: a gap means that the reader was too slow
 * @NPULINK_A_EVENT_TIME: u64, ns since 1970
 * @NPULINK_A_EVENT_LOST: u64, events that were never sent, up to here
 * @NPULINK_A_EVENT_DEV: u32, device, or where the link begins
 * @NPULINK_A_EVENT_PEER_DEV: u32, where the link ends
 * @NPULINK_A_EVENT_COMM: u32, id of the communicator
 * @NPULINK_A_EVENT_RANK: u32, rank where it arose
 * @NPULINK_A_EVENT_PEER: u32, rank that it was about
 * @NPULINK_A_EVENT_STEP: u32, step of rank's plan
 * @NPULINK_A_EVENT_NUMBER: u64, operation
 * @NPULINK_A_EVENT_CAUSE: u32, NPULINK_CAUSE_*
 * @NPULINK_A_EVENT_CODE: u32, as in cause
 * @NPULINK_A_EVENT_AGE: u64, with SLOW, SLOW_END: ns that it has taken so far
 * @NPULINK_A_EVENT_LIMIT: u64, with SLOW, SLOW_END: ns that it was expected to take at
 *	most
 * @NPULINK_A_EVENT_NCIRCLE: u32, with SUSPECT or a deadlock, how many processes wait
 *	for each other
 * @NPULINK_A_EVENT_CIRCLE: nest of enum npulink_genl_circle, as in cause
 * @NPULINK_A_EVENT_IP: binary, as in cause; with PORT_LOST and PORT_NEXT: the peer's
 *	address
 * @NPULINK_A_EVENT_PORT: string, as in cause; with PORT_LOST and PORT_NEXT: ours
 * @__NPULINK_A_EVENT_MAX: one more than the last
 * @NPULINK_A_EVENT_MAX: the last
 */
enum npulink_genl_event {
	NPULINK_A_EVENT_UNSPEC,
	NPULINK_A_EVENT_PAD,
	NPULINK_A_EVENT_TYPE,
	NPULINK_A_EVENT_SERIAL,
	NPULINK_A_EVENT_TIME,
	NPULINK_A_EVENT_LOST,
	NPULINK_A_EVENT_DEV,
	NPULINK_A_EVENT_PEER_DEV,
	NPULINK_A_EVENT_COMM,
	NPULINK_A_EVENT_RANK,
	NPULINK_A_EVENT_PEER,
	NPULINK_A_EVENT_STEP,
	NPULINK_A_EVENT_NUMBER,
	NPULINK_A_EVENT_CAUSE,
	NPULINK_A_EVENT_CODE,
	NPULINK_A_EVENT_AGE,
	NPULINK_A_EVENT_LIMIT,
	NPULINK_A_EVENT_NCIRCLE,
	NPULINK_A_EVENT_CIRCLE,
	NPULINK_A_EVENT_IP,
	NPULINK_A_EVENT_PORT,
	__NPULINK_A_EVENT_MAX,
	NPULINK_A_EVENT_MAX = __NPULINK_A_EVENT_MAX - 1,
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
 * @NPULINK_A_FLIGHT_NOW_MONOTONIC: u64, .. and CLOCK_MONOTONIC, as the reader sees it
 *	..
 * @NPULINK_A_FLIGHT_NOW_REAL: u64, .. and CLOCK_REALTIME at that time
 * @NPULINK_A_FLIGHT_PEERS: binary, array of struct npulink_flight_peer
 * @NPULINK_A_FLIGHT_OPS: binary, array of struct npulink_flight_op, in the order in
 *	which they ended, those in flight last
 * @NPULINK_A_FLIGHT_STEPS: binary, array of struct npulink_flight_step, in the order in
 *	which they ended
 * @__NPULINK_A_FLIGHT_MAX: one more than the last
 * @NPULINK_A_FLIGHT_MAX: the last
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

/**
 * enum npulink_genl_conn - what a rank of this node exchanges with a peer
 * @NPULINK_A_CONN_UNSPEC: not used
 * @NPULINK_A_CONN_PAD: aligns the 64-bit ones
 * @NPULINK_A_CONN_COMM: u32, id of the communicator
 * @NPULINK_A_CONN_RANK: u32, rank
 * @NPULINK_A_CONN_PEER: u32, the other rank
 * @NPULINK_A_CONN_DEV: u32, id of the rank's device
 * @NPULINK_A_CONN_PEER_DEV: u32, id of the peer's; absent: it has not joined, or is
 *	elsewhere
 * @NPULINK_A_CONN_STEPS: u64, steps whose payload came from the peer
 * @NPULINK_A_CONN_BYTES: u64, payload bytes that came from the peer
 * @NPULINK_A_CONN_IP: binary, 16 bytes: a peer on another machine: its address there,
 *	of several the one that is in use or was tried last, IPv4 in its mapped form. What
 *	follows is of such peers only
 * @NPULINK_A_CONN_CM: u16, port of the RDMA connection manager there
 * @NPULINK_A_CONN_STATE: u32, NPULINK_CONN_STATE_*; absent: no plan has needed it yet
 * @NPULINK_A_CONN_KIND: string, "rdma"
 * @NPULINK_A_CONN_VIA: string, port that it goes over, "rxe0/1"
 * @NPULINK_A_CONN_SENT_STEPS: u64, steps whose payload was sent to the peer
 * @NPULINK_A_CONN_SENT_BYTES: u64, payload bytes that are in its memory
 * @NPULINK_A_CONN_STATUS: nest of enum npulink_genl_status, what the peer's kernel says
 *	that it does; absent: it has not been asked, as nothing has waited for it for long
 * @NPULINK_A_CONN_ASKED: u64, ns since the peer's kernel has last asked what the rank
 *	does, because the peer waits for it; absent: never. It does so several times a second
 * @NPULINK_A_CONN_ASKED_NUMBER: u64, number of the peer's operation that waits
 * @NPULINK_A_CONN_ASKED_P2P: flag, that is a message between the two
 * @NPULINK_A_CONN_ASKED_SINCE: u64, ns for which it had waited then
 * @NPULINK_A_CONN_SWITCHES: u32, how often it has gone on over another port
 * @__NPULINK_A_CONN_MAX: one more than the last
 * @NPULINK_A_CONN_MAX: the last
 */
enum npulink_genl_conn {
	NPULINK_A_CONN_UNSPEC,
	NPULINK_A_CONN_PAD,
	NPULINK_A_CONN_COMM,
	NPULINK_A_CONN_RANK,
	NPULINK_A_CONN_PEER,
	NPULINK_A_CONN_DEV,
	NPULINK_A_CONN_PEER_DEV,
	NPULINK_A_CONN_STEPS,
	NPULINK_A_CONN_BYTES,
	NPULINK_A_CONN_IP,
	NPULINK_A_CONN_CM,
	NPULINK_A_CONN_STATE,
	NPULINK_A_CONN_KIND,
	NPULINK_A_CONN_VIA,
	NPULINK_A_CONN_SENT_STEPS,
	NPULINK_A_CONN_SENT_BYTES,
	NPULINK_A_CONN_STATUS,
	NPULINK_A_CONN_ASKED,
	NPULINK_A_CONN_ASKED_NUMBER,
	NPULINK_A_CONN_ASKED_P2P,
	NPULINK_A_CONN_ASKED_SINCE,
	NPULINK_A_CONN_SWITCHES,
	__NPULINK_A_CONN_MAX,
	NPULINK_A_CONN_MAX = __NPULINK_A_CONN_MAX - 1,
};

/**
 * enum npulink_genl_status - what a rank on another machine does, as its kernel says
 * @NPULINK_A_STATUS_UNSPEC: not used
 * @NPULINK_A_STATUS_PAD: aligns the 64-bit ones
 * @NPULINK_A_STATUS_AGE: u64, ns since it said so
 * @NPULINK_A_STATUS_NEXT: u64, number of its next collective: so many it has called
 * @NPULINK_A_STATUS_NUMBER: u64, operation that it was asked about
 * @NPULINK_A_STATUS_P2P: flag, that is a message between the two
 * @NPULINK_A_STATUS_CALLED: u32, NPULINK_CALLED_*
 * @NPULINK_A_STATUS_TASK: u32, state of its process, a letter as ps has it
 * @NPULINK_A_STATUS_WAIT: nest of enum npulink_genl_wait, what its operation waits for
 * @__NPULINK_A_STATUS_MAX: one more than the last
 * @NPULINK_A_STATUS_MAX: the last
 */
enum npulink_genl_status {
	NPULINK_A_STATUS_UNSPEC,
	NPULINK_A_STATUS_PAD,
	NPULINK_A_STATUS_AGE,
	NPULINK_A_STATUS_NEXT,
	NPULINK_A_STATUS_NUMBER,
	NPULINK_A_STATUS_P2P,
	NPULINK_A_STATUS_CALLED,
	NPULINK_A_STATUS_TASK,
	NPULINK_A_STATUS_WAIT,
	__NPULINK_A_STATUS_MAX,
	NPULINK_A_STATUS_MAX = __NPULINK_A_STATUS_MAX - 1,
};

/**
 * enum npulink_genl_port - attributes of a port that is bound to a device
 * @NPULINK_A_PORT_UNSPEC: not used
 * @NPULINK_A_PORT_DEV: u32, id of the device
 * @NPULINK_A_PORT_KIND: string, "rdma"
 * @NPULINK_A_PORT_NAME: string, "rxe0/1"
 * @NPULINK_A_PORT_IP: binary, 16 bytes: the address that peers use, IPv4 in its mapped
 *	form
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
