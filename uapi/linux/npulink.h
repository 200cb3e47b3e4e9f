/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note OR MIT */
/*
 * npulink.h - the ioctl interface of /dev/npulink/npuN.
 */
#ifndef _UAPI_LINUX_NPULINK_H
#define _UAPI_LINUX_NPULINK_H

#include <linux/ioctl.h>
#include <linux/types.h>
#include <linux/npulink_step.h>

#define NPULINK_ABI_VERSION	2
#define NPULINK_TYPE		0xdc

/**
 * DOC: General ioctl format
 *
 * Every ioctl takes one structure that begins with its own size. Newer programs
 * may pass a larger one as long as what the kernel does not know is zero, older
 * ones a shorter one down to the first version of that ioctl. Members named
 * out_* are written by the kernel, all others only read. Reserved members and
 * unknown flags must be zero. Ids belong to the open file, and 0 is never the id
 * of an object that was created (as a buffer, 0 is the file's arena).
 *
 * An open file belongs to the address space that opened it. Another process
 * that has got hold of it may poll, read, WAIT and close it. Everything else
 * is -EPERM.
 *
 * Programs of 32 bits are refused by a kernel of 64: open(), mmap() and every ioctl are
 * EOPNOTSUPP. Their mmap2() could not say where buffers and boards are.
 *
 * What an ioctl itself returns says whether the call was accepted. How an
 * operation ended is in struct npulink_result.
 *
 * Errors that every ioctl may return:
 *
 *  - ENOTTY: no such ioctl
 *  - EINVAL: the structure is too small, or a value is out of its range
 *  - E2BIG: the structure is larger than known and the rest is not zero, or it is larger
 *    than a page
 *  - EOPNOTSUPP: a flag or reserved member is set that this kernel does not know,
 *    or the device cannot do this
 *  - EFAULT: memory of the caller could not be read or written
 *  - ENOENT: no such object in this file
 *  - EPERM: the file belongs to another process
 *  - ENODEV: the device has gone
 *  - ENOMEM: out of memory, or over a limit (RLIMIT_MEMLOCK for pinned memory)
 *  - EDQUOT: the user has as many open files and objects as max_user_objects allows, or, at
 *    the first COMM_CREATE of a file, as many files with communicators as max_user_workers, or, at
 *    the first plan with a rank on another node, as many such connections as max_user_sessions, or
 *    as the cgroup's rdma.max allows (hca_object, 11 of each network device for each of them);
 *    all uids of a user namespace, unless it is root's, count as the user who made it
 *  - EINTR: a signal arrived while waiting for a lock, and its handler was installed
 *    without SA_RESTART; nothing was done
 *
 * Others are listed at each ioctl.
 */
enum {
	NPULINK_CMD_DEVICE_INFO = 0x00,
	NPULINK_CMD_BUF_REGISTER,
	NPULINK_CMD_BUF_ALLOC,
	NPULINK_CMD_BUF_IMPORT,
	NPULINK_CMD_BUF_EXPORT,
	NPULINK_CMD_COMM_CREATE,
	NPULINK_CMD_COMM_PEERS,
	NPULINK_CMD_COMM_ABORT,
	NPULINK_CMD_COMM_STATUS,
	NPULINK_CMD_PLAN_CREATE,
	NPULINK_CMD_POST,
	NPULINK_CMD_POST_BATCH,
	NPULINK_CMD_WAIT,
	NPULINK_CMD_RING_SETUP,
	NPULINK_CMD_DESTROY,
	NPULINK_CMD_COMM_SHRINK,
	NPULINK_CMD_PORT_INFO,
};

/*
 * Where to mmap() what; buffers of BUF_ALLOC at their out_mmap_offset. The first mmap() of the
 * arena makes it; EAGAIN: what this user has freed is on its way back, or another thread sets up
 * something of this file, and mmap() waits for neither.
 */
#define NPULINK_MMAP_ARENA	0x000000000ULL
#define NPULINK_MMAP_RING	0x100000000ULL
#define NPULINK_MMAP_DOORBELL	0x200000000ULL

/**
 * struct npulink_device_info - ioctl(NPULINK_DEVICE_INFO)
 * @size: sizeof(struct npulink_device_info)
 * @flags: 0
 * @out_abi_version: NPULINK_ABI_VERSION of the module
 * @out_device_id: N of npuN
 * @out_node_id: random, equal for all devices of one boot of one machine: ranks
 *		 with equal node ids meet in the kernel
 * @out_max_steps: steps of one plan
 * @out_max_ranks: ranks of one communicator
 * @out_max_channels: channels are 0 .. out_max_channels - 1
 * @out_max_inflight: operations of one rank that are posted and not done
 * @out_max_arena: largest arena in bytes
 * @out_slice: bytes that the device handles at a time
 * @out_dtypes: bit mask of data types that the device can reduce
 * @out_redops: bit mask of reductions
 * @out_caps: NPULINK_CAP_*
 * @out_inline_max: steps up to this many bytes are completed without interrupt
 * @out_name: name of the device, "npu0"
 * @out_backend: name of the backend, "soft"
 * @out_engine: what moves and reduces the bytes, "sse2"
 * @out_version: version of the module
 * @out_processors: processors of the host, which do the work of all devices of this backend;
 *		    0: each has an engine of its own
 * @out_graph_bytes: that ranks of one machine read and write in a collective which the last of
 *		      them to post carries out; of more ranks than processors
 *		      2 * ranks * (out_graph_bytes / out_processors); 0: there are none
 * @out_gathers: bit mask of collectives that are carried out so: bit NPULINK_COLL_*. Of more bytes
 *		 all ranks carry them out together, if their plans allow that
 * @out_gathers_large: the same of collectives of which all ranks carry out those of more bytes
 *		       together, if the call's count comes to out_graph_bytes, too, and nobody
 *		       carries out less for others
 * @out_memory: bytes that the device has of its own, for NPULINK_BUF_DEVICE
 *
 * May be called by a process that does not own the file.
 */
struct npulink_device_info {
	__u32 size;
	__u32 flags;
	__u32 out_abi_version;
	__u32 out_device_id;
	__u8 out_node_id[16];
	__u32 out_max_steps;
	__u32 out_max_ranks;
	__u32 out_max_channels;
	__u32 out_max_inflight;
	__u32 out_max_arena;
	__u32 out_slice;
	__u32 out_dtypes;
	__u32 out_redops;
	__u32 out_caps;
	__u32 out_inline_max;
	char out_name[16];
	char out_backend[16];
	char out_engine[32];
	char out_version[16];
	__u32 out_processors;
	__u32 out_graph_bytes;
	__u32 out_gathers;
	__u32 out_gathers_large;
	__aligned_u64 out_memory;
};
#define NPULINK_DEVICE_INFO _IO(NPULINK_TYPE, NPULINK_CMD_DEVICE_INFO)

#define NPULINK_CAP_DOORBELL	(1 << 0)	/* has a doorbell page per file */
#define NPULINK_CAP_BOARD	(1 << 1)	/* communicators have one: npulink_board.h */

/**
 * struct npulink_buf_register - ioctl(NPULINK_BUF_REGISTER)
 * @size: sizeof(struct npulink_buf_register)
 * @flags: NPULINK_BUF_READONLY: no step may write to it
 * @addr: first byte, any alignment
 * @len: bytes, not 0
 * @out_id: buffer id
 * @reserved: 0
 *
 * Pins memory of the caller. Unmapping it is allowed at any time: an operation
 * in flight keeps its pages, a later POST of the buffer gives -ESTALE.
 *
 * With READONLY a private mapping of a file is not copied: the file's pages are pinned where
 * the caller has not written yet. If it does so later, a later POST gives -ESTALE, too.
 *
 *  - EFAULT: not all of the range is mapped with the needed access
 *  - EOPNOTSUPP: a shared mapping of a file other than shmem, memfd, hugetlbfs
 */
struct npulink_buf_register {
	__u32 size;
	__u32 flags;
	__aligned_u64 addr;
	__aligned_u64 len;
	__u32 out_id;
	__u32 reserved;
};
#define NPULINK_BUF_REGISTER _IO(NPULINK_TYPE, NPULINK_CMD_BUF_REGISTER)

#define NPULINK_BUF_READONLY	(1 << 0)
#define NPULINK_BUF_DEVICE	(1 << 1)

/**
 * struct npulink_buf_alloc - ioctl(NPULINK_BUF_ALLOC)
 * @size: sizeof(struct npulink_buf_alloc)
 * @flags: NPULINK_BUF_DEVICE: memory of the device's own
 * @len: bytes, rounded up to pages
 * @out_mmap_offset: offset to mmap() it, whole
 * @out_id: buffer id
 * @reserved: 0
 *
 * Zeroed. Memory of the device counts against no limit of the user's but that of objects: there is
 * as much as DEVICE_INFO says, for whoever comes first. Its mapping is for a processor's few looks,
 * as each goes over the bus; when the device goes, it raises SIGBUS.
 *
 *  - EOPNOTSUPP: the device has no memory of its own; from mmap(): processors cannot see it. From
 *    POST: other nodes have a part in the plan, or the communicator has checksums: processors
 *    would have to touch the bytes
 *  - ESTALE, from POST: the device whose memory it is has gone
 *  - ENOMEM: it has not as much that is free, in one piece
 */
struct npulink_buf_alloc {
	__u32 size;
	__u32 flags;
	__aligned_u64 len;
	__aligned_u64 out_mmap_offset;
	__u32 out_id;
	__u32 reserved;
};
#define NPULINK_BUF_ALLOC _IO(NPULINK_TYPE, NPULINK_CMD_BUF_ALLOC)

/**
 * struct npulink_buf_import - ioctl(NPULINK_BUF_IMPORT)
 * @size: sizeof(struct npulink_buf_import)
 * @flags: NPULINK_BUF_READONLY
 * @fd: a dma-buf
 * @out_id: buffer id
 * @out_len: bytes
 *
 * Each POST waits until devices of other drivers have done what they do with it (its
 * fences), and gives it back to them before its result is told.
 *
 *  - EBADF: not an open file; EINVAL: not a dma-buf
 *  - EOPNOTSUPP: its exporter cannot give the device access, or it is memory of a device that has
 *    no link to this one
 */
struct npulink_buf_import {
	__u32 size;
	__u32 flags;
	__s32 fd;
	__u32 out_id;
	__aligned_u64 out_len;
};
#define NPULINK_BUF_IMPORT _IO(NPULINK_TYPE, NPULINK_CMD_BUF_IMPORT)

/**
 * struct npulink_buf_export - ioctl(NPULINK_BUF_EXPORT)
 * @size: sizeof(struct npulink_buf_export)
 * @flags: 0
 * @id: a buffer made by BUF_ALLOC
 * @out_fd: a dma-buf, close on exec; of memory of the device, for BUF_IMPORT alone
 *
 *  - EOPNOTSUPP: not made by BUF_ALLOC
 *  - EMFILE: too many open files
 */
struct npulink_buf_export {
	__u32 size;
	__u32 flags;
	__u32 id;
	__s32 out_fd;
};
#define NPULINK_BUF_EXPORT _IO(NPULINK_TYPE, NPULINK_CMD_BUF_EXPORT)

/**
 * struct npulink_comm_create - ioctl(NPULINK_COMM_CREATE)
 * @size: sizeof(struct npulink_comm_create)
 * @flags: NPULINK_COMM_ANY_UID: ranks of other users may join; needed from all.
 *	NPULINK_COMM_CHECKSUM: what comes over links is checked by CRC32C before it is
 *	used, and fetched or sent once more if it was damaged (unless it comes from
 *	another node and its sender has overwritten it: EBADMSG); takes memory for up to
 *	twice DEVICE_INFO's out_slice for each input of a step, which is charged;
 *	needed from all
 * @secret: 128 random bits that the members share and nobody else knows
 * @rank: own rank
 * @nranks: number of ranks
 * @out_id: communicator id
 * @peer_timeout_ms: how long this rank waits for a machine that does not answer, before
 *	the communicator fails (NPULINK_CAUSE_LINK): NPULINK_PEER_TIMEOUT_MIN to _MAX; 0:
 *	as the administrator has set it (peer_timeout of npulink_rdma)
 *
 * Joins, or creates, the communicator of that secret. If all who were there have left before
 * others had come, those are told so for a minute (tombstone_ms): COMM_CREATE says why it failed,
 * or operations that need who has left fail at once (NPULINK_CAUSE_LEFT). When a rank comes that
 * had been there, that is the beginning of a new one.
 *
 *  - EEXIST: the rank is taken, or this file already has a rank in it
 *  - EINVAL: others gave another number of ranks, or CHECKSUM differs; peer_timeout_ms is
 *    out of its range
 *  - EACCES: another user's, or another user namespace's, without ANY_UID
 *  - EOWNERDEAD, ...: the communicator has failed already (COMM_STATUS's errno)
 */
struct npulink_comm_create {
	__u32 size;
	__u32 flags;
	__u8 secret[16];
	__u32 rank;
	__u32 nranks;
	__u32 out_id;
	__u32 peer_timeout_ms;
};
#define NPULINK_COMM_CREATE _IO(NPULINK_TYPE, NPULINK_CMD_COMM_CREATE)

#define NPULINK_COMM_ANY_UID	(1 << 0)
#define NPULINK_COMM_CHECKSUM	(1 << 1)

#define NPULINK_PEER_TIMEOUT_MIN	100
#define NPULINK_PEER_TIMEOUT_MAX	3600000

/**
 * struct npulink_addr - where a device can be reached from other machines
 * @ip: IPv6 address, or IPv4 in its mapped form
 * @port: port of the RDMA connection manager, big endian
 * @reserved: 0
 */
struct npulink_addr {
	__u8 ip[16];
	__be16 port;
	__u8 reserved[22];
};

/**
 * struct npulink_peer - where a rank is
 * @node_id: out_node_id of its device
 * @kind: NPULINK_PEER_LOCAL, NPULINK_PEER_RDMA
 * @reserved: 0
 * @addr: address, as PORT_INFO of its device gave it; 0 for LOCAL
 */
struct npulink_peer {
	__u8 node_id[16];
	__u32 kind;
	__u32 reserved;
	struct npulink_addr addr;
};

#define NPULINK_PEER_LOCAL	0	/* same node: they meet in the kernel */
#define NPULINK_PEER_RDMA	1	/* another node: RDMA connections between ranks */

/**
 * struct npulink_comm_peers - ioctl(NPULINK_COMM_PEERS)
 * @size: sizeof(struct npulink_comm_peers)
 * @flags: 0
 * @comm_id: communicator
 * @first: first rank described
 * @npeers: number of ranks described
 * @reserved: 0
 * @peers: address of struct npulink_peer [npeers]
 * @nmore: how many more addresses each peer may have, at most NPULINK_PEER_ADDRS - 1
 * @reserved2: 0
 * @more: address of struct npulink_addr [npeers][nmore], zeros where there is none
 *
 * Says where ranks are. A rank that was not described is on this node. One that is elsewhere
 * is called at its addresses in turn, as long as it cannot be reached; if the connection is lost
 * and there are several addresses, or several ports here, it is followed by another one, and
 * operations go on. Up to @peers, the structure is as it was before there was @nmore.
 *
 *  - EADDRNOTAVAIL: LOCAL with the id of another node, RDMA with that of this one
 *  - EINVAL: RDMA without address, the own rank is not LOCAL, @nmore is too large, or one is RDMA
 *    of a communicator that was shrunk and has all its ranks on this node
 *  - EOPNOTSUPP: no such kind, or further addresses of a rank that is LOCAL
 *  - EHOSTUNREACH: no port for that kind is bound to the device in this network
 *    namespace, or the file belongs to another one, see PORT_INFO
 *  - EBUSY: described otherwise before
 */
struct npulink_comm_peers {
	__u32 size;
	__u32 flags;
	__u32 comm_id;
	__u32 first;
	__u32 npeers;
	__u32 reserved;
	__aligned_u64 peers;
	__u32 nmore;
	__u32 reserved2;
	__aligned_u64 more;
};

#define NPULINK_PEER_ADDRS	4

#define NPULINK_COMM_PEERS _IO(NPULINK_TYPE, NPULINK_CMD_COMM_PEERS)

/**
 * struct npulink_port_info - ioctl(NPULINK_PORT_INFO)
 * @size: sizeof(struct npulink_port_info)
 * @flags: 0
 * @index: which of the ports that are bound to the device in the caller's network
 *	   namespace, from 0
 * @out_kind: NPULINK_PEER_RDMA
 * @out_name: name of the port, "rxe0/1"
 * @out_addr: for COMM_PEERS on other nodes
 *
 * Calls from other nodes are taken as long as a file is open that has asked for a port, or has said
 * with COMM_PEERS that a rank is on another node. Such a file belongs to the network namespace
 * where that was first done.
 *
 *  - ENOENT: no more ports
 *  - EHOSTUNREACH: the file belongs to another network namespace
 */
struct npulink_port_info {
	__u32 size;
	__u32 flags;
	__u32 index;
	__u32 out_kind;
	char out_name[32];
	struct npulink_addr out_addr;
};
#define NPULINK_PORT_INFO _IO(NPULINK_TYPE, NPULINK_CMD_PORT_INFO)

/*
 * Why a communicator failed, and the errno that operations then end with.
 * The first cause wins, and stays until the communicator is destroyed.
 */
#define NPULINK_CAUSE_NONE	0
#define NPULINK_CAUSE_ABORT	1	/* ECANCELED: a rank called COMM_ABORT */
#define NPULINK_CAUSE_DEADLINE	2	/* ETIMEDOUT: an operation took too long */
#define NPULINK_CAUSE_DEATH	3	/* EOWNERDEAD: a rank exited or was killed */
#define NPULINK_CAUSE_LEFT	4	/* ESHUTDOWN: a rank left that is needed */
#define NPULINK_CAUSE_MISMATCH	5	/* EPROTO: ranks called different things */
#define NPULINK_CAUSE_LINK	6	/* ENOLINK: a link was lost */
#define NPULINK_CAUSE_DEVICE	7	/* EIO: a device reported a fault */
#define NPULINK_CAUSE_CHECKSUM	8	/* EBADMSG: data arrived damaged */
#define NPULINK_CAUSE_DEADLOCK	9	/* EDEADLK: processes wait for each other */
#define NPULINK_CAUSE_REMOVED	10	/* ENODEV: a device was removed */

/**
 * struct npulink_result - how an operation ended
 * @seq: the operation: out_seq of its POST
 * @cookie: as given to POST
 * @status: 0, or -errno
 * @cause: NPULINK_CAUSE_*
 * @comm_id: communicator
 * @rank: rank where the cause arose
 * @peer: rank that it was about (the dead one, the late one), or NPULINK_NO_PEER
 * @step: step of @rank's plan, or ~0
 * @number: operation number in the communicator where the cause arose, or ~0
 * @ns: nanoseconds from POST to the end
 * @reserved: 0
 *
 * This is also the record in the completion ring.
 */
struct npulink_result {
	__aligned_u64 seq;
	__aligned_u64 cookie;
	__s32 status;
	__u32 cause;
	__u32 comm_id;
	__u32 rank;
	__u32 peer;
	__u32 step;
	__aligned_u64 number;
	__aligned_u64 ns;
	__aligned_u64 reserved;
};

/**
 * struct npulink_comm_abort - ioctl(NPULINK_COMM_ABORT)
 * @size: sizeof(struct npulink_comm_abort)
 * @flags: 0
 * @comm_id: communicator
 * @code: reported to all ranks in COMM_STATUS
 *
 * Ends all operations of the communicator on all ranks, now and later.
 * Returns 0 also if it had failed already.
 */
struct npulink_comm_abort {
	__u32 size;
	__u32 flags;
	__u32 comm_id;
	__u32 code;
};
#define NPULINK_COMM_ABORT _IO(NPULINK_TYPE, NPULINK_CMD_COMM_ABORT)

#define NPULINK_CIRCLE_MAX	8

/**
 * struct npulink_circle_wait - a wait of processes that wait for each other
 * @comm: number of the communicator on this node, as tools show it
 * @rank: who waits
 * @peer: for whom, whose process is in the next wait
 * @reserved: 0
 * @number: operation that @rank waits in and @peer has not called, ~0: point-to-point
 */
struct npulink_circle_wait {
	__u32 comm;
	__u32 rank;
	__u32 peer;
	__u32 reserved;
	__aligned_u64 number;
};

/**
 * struct npulink_comm_status - ioctl(NPULINK_COMM_STATUS)
 * @size: sizeof(struct npulink_comm_status)
 * @flags: 0
 * @comm_id: communicator
 * @out_joined: ranks of this node that are in it
 * @out_cause: NPULINK_CAUSE_*: why it failed
 * @out_status: 0, or the -errno of out_cause
 * @out_rank: rank where the cause arose
 * @out_peer: rank that it was about, or NPULINK_NO_PEER
 * @out_step: step of out_rank's plan, or ~0
 * @out_code: code of COMM_ABORT; the signal that killed a dead rank, if known; with
 *	DEVICE, the errno that the device gave; with LINK between nodes, an errno: EHOSTDOWN,
 *	out_peer's node does not answer; ESRCH, it does, but the rank has gone; ECONNABORTED,
 *	the communicator has failed there; ENODEV, a port or its device was taken away; with
 *	CHECKSUM, the device at the far end of the link, or ~0 if that is on another machine;
 *	with DEADLOCK, whether out_peer's process waits in another communicator
 * @out_number: operation number where the cause arose, or ~0
 * @out_next: number of the next collective of the own rank
 * @out_calls: with MISMATCH, what out_rank and out_peer called; collective ~0: the latter
 *	is forgotten, as out_peer is far ahead, with count collectives called by now. With
 *	DEADLOCK, what out_rank waits for, and what the process of out_peer waits for
 *	instead of calling it
 * @out_ncircle: with DEADLOCK, how many processes wait for each other
 * @out_reserved: 0
 * @out_circle: their waits, from that of out_rank on; the first NPULINK_CIRCLE_MAX
 * @out_peer_ip: with LINK and CHECKSUM between nodes, address of out_peer's node as
 *	out_rank's knows it, IPv4 in its mapped form; else 0
 * @out_port: port of out_rank's node over which the two are connected, "rxe0/1"; empty if
 *	there is none, or none was found
 */
struct npulink_comm_status {
	__u32 size;
	__u32 flags;
	__u32 comm_id;
	__u32 out_joined;
	__u32 out_cause;
	__s32 out_status;
	__u32 out_rank;
	__u32 out_peer;
	__u32 out_step;
	__u32 out_code;
	__aligned_u64 out_number;
	__aligned_u64 out_next;
	struct npulink_call out_calls[2];
	__u32 out_ncircle;
	__u32 out_reserved;
	struct npulink_circle_wait out_circle[NPULINK_CIRCLE_MAX];
	__u8 out_peer_ip[16];
	char out_port[32];
};
#define NPULINK_COMM_STATUS _IO(NPULINK_TYPE, NPULINK_CMD_COMM_STATUS)

/**
 * struct npulink_comm_shrink - ioctl(NPULINK_COMM_SHRINK)
 * @size: sizeof(struct npulink_comm_shrink)
 * @flags: NPULINK_SHRINK_MINORITY: half of the nodes, or fewer, may go on
 * @comm_id: communicator that has failed
 * @out_id: id of the new communicator
 * @out_rank: own rank in it
 * @out_nranks: number of its ranks
 * @map: address of __u32 [number of ranks of comm_id], or 0: the rank in comm_id of each of
 *	its ranks is written there
 *
 * Joins the communicator of the survivors: the ranks whose process lived, and that had
 * not left, when the first of them asked. They keep their order. Each survivor
 * has to ask; if one dies or leaves instead, the new communicator fails as any other
 * does, and can be shrunk in turn, also by those who find it failed when they join.
 *
 * If there are ranks on other nodes, the nodes agree on who survives, and whoever asks before
 * that waits: as long as it takes to hear from all nodes, and for those that do not answer as
 * long as peer_timeout_ms of COMM_CREATE says; a few times that if nodes die meanwhile, or do
 * not do their part. A signal ends the wait, not the agreement. Ranks survive on other nodes,
 * too, without having asked.
 *
 * Only nodes that all reach each other go on together: as many as can be, so that one that
 * cannot reach some of the others, or says so, is left out, and not these; of as many, those with
 * the lower ranks. They have to be more than half of the nodes that the failed communicator had
 * ranks on, or half with that of rank 0; a node whose only rank has died and has failed it
 * thereby does not count. So there is at most one such group, however the network has fallen
 * apart. Others get ESHUTDOWN if they hear of it, else ENOLINK; then it may be asked for again.
 *
 * With NPULINK_SHRINK_MINORITY from a rank of any node, half or fewer may go on, too: also after
 * more than half of the nodes were lost at a time, which is not to be told from a network that has
 * fallen apart. Where it has, each part that reaches none of the others goes on by itself. No
 * rank is in two groups.
 *
 * A node that is cut off at the moment at which all have agreed may count among the survivors
 * some that have gone on without it; what they have is their own, and its communicator fails
 * (NPULINK_CAUSE_LINK) when it needs them.
 *
 *  - EINVAL: the communicator has not failed
 *  - EEXIST: asked before
 *  - ESHUTDOWN: the others go on without this rank
 *  - ENOLINK: too few nodes reach each other
 *  - EMLINK: it is the 32nd of communicators each of which was shrunk before all had joined it
 *  - EOPNOTSUPP: it has ranks on more than 8,192 nodes, or besides others more ranks than that
 *    on one
 *  - EHOSTUNREACH: it has ranks on other nodes, and no port is bound to the device any more
 *  - EINTR: a signal arrived while waiting for other nodes
 */
struct npulink_comm_shrink {
	__u32 size;
	__u32 flags;
	__u32 comm_id;
	__u32 out_id;
	__u32 out_rank;
	__u32 out_nranks;
	__aligned_u64 map;
};
#define NPULINK_COMM_SHRINK _IO(NPULINK_TYPE, NPULINK_CMD_COMM_SHRINK)

#define NPULINK_SHRINK_MINORITY	(1U << 0)

/* Why PLAN_CREATE (or libcoll's verifier) refused a plan. */
#define NPULINK_BAD_NONE	0
#define NPULINK_BAD_OP		1	/* no such combination of op bits */
#define NPULINK_BAD_FLAGS	2	/* unknown flag, or one that does not fit op */
#define NPULINK_BAD_RESERVED	3	/* an unused member is not zero */
#define NPULINK_BAD_DTYPE	4	/* data type or reduction unknown */
#define NPULINK_BAD_PEER	5	/* peer out of range, or the own rank */
#define NPULINK_BAD_CHANNEL	6	/* channel out of range; without a step: too many */
#define NPULINK_BAD_SLOT	7	/* slot out of range, or without the access */
#define NPULINK_BAD_RANGE	8	/* operand exceeds its slot's min_len */
#define NPULINK_BAD_ALIGN	9	/* offset or length not a multiple of the type */
#define NPULINK_BAD_OVERLAP	10	/* operands of the step overlap */
#define NPULINK_BAD_DEP		11	/* a dependency before the list's begin */
#define NPULINK_BAD_CHAIN	12	/* cannot continue the step before it */
#define NPULINK_BAD_WINDOW	13	/* window of size 0, or larger than len */
#define NPULINK_BAD_RACE	14	/* unordered with an earlier step on same bytes */
#define NPULINK_BAD_CALL	15	/* the call is malformed, or the plan not its kind */
#define NPULINK_BAD_SELF	16	/* a point-to-point plan with more than one peer or
					 * direction
					 */

#define NPULINK_ALGORITHM_LEN	24

/**
 * struct npulink_plan_create - ioctl(NPULINK_PLAN_CREATE)
 * @size: sizeof(struct npulink_plan_create)
 * @flags: NPULINK_PLAN_CHECK_RACES: prove also plans of more than 4,096 steps free
 *	   of races (smaller ones always are)
 * @comm_id: communicator
 * @nslots: number of slots, up to NPULINK_MAX_SLOTS
 * @nsteps: number of steps
 * @out_id: plan id
 * @slots: address of struct npulink_slot [nslots]
 * @steps: address of struct npulink_step [nsteps]
 * @call: what the application called
 * @out_bad_step: with -EINVAL, index of the offending step; ~0 if not a step
 * @out_reason: with -EINVAL, NPULINK_BAD_*
 * @algorithm: name of the algorithm, for people: printable, without blanks, padded with
 *	       zeros, at least one; empty if it has none
 *
 * Copies the plan, checks it, and freezes it. out_bad_step and out_reason are
 * also written when the plan is refused.
 *
 * Errors, besides those of all ioctls:
 *  - EINVAL: see out_reason; with NPULINK_BAD_CHANNEL and no step, the plan has more than
 *    65,536 streams: every channel of every peer is one, in each direction
 *  - EOPNOTSUPP: a chain receives more than once from one rank on another node
 */
struct npulink_plan_create {
	__u32 size;
	__u32 flags;
	__u32 comm_id;
	__u32 nslots;
	__u32 nsteps;
	__u32 out_id;
	__aligned_u64 slots;
	__aligned_u64 steps;
	struct npulink_call call;
	__u32 out_bad_step;
	__u32 out_reason;
	char algorithm[NPULINK_ALGORITHM_LEN];
};
#define NPULINK_PLAN_CREATE _IO(NPULINK_TYPE, NPULINK_CMD_PLAN_CREATE)

#define NPULINK_PLAN_CHECK_RACES	(1 << 0)

/**
 * struct npulink_bind - what a slot is in one operation
 * @buf_id: buffer, 0 = arena
 * @reserved: 0
 * @off: first byte
 * @len: bytes, at least the slot's min_len
 */
struct npulink_bind {
	__u32 buf_id;
	__u32 reserved;
	__aligned_u64 off;
	__aligned_u64 len;
};

#define NPULINK_POST_BINDS	3

/**
 * struct npulink_post - ioctl(NPULINK_POST)
 * @size: sizeof(struct npulink_post)
 * @flags: NPULINK_POST_WAIT, NPULINK_POST_HELD, NPULINK_POST_NUMBER
 * @plan_id: plan
 * @nbinds: number of slots bound: all that the plan has
 * @cookie: given back in the result
 * @deadline_ns: the operation may take this long; 0: for ever
 * @wait_until_ns: with WAIT, time at which to stop waiting, on the CLOCK_MONOTONIC that
 *		   the caller reads (in its time namespace); ~0: do not stop
 * @binds: address of struct npulink_bind [nbinds] if nbinds > NPULINK_POST_BINDS,
 *	   else 0
 * @in_fence: -1
 * @out_fence: -1
 * @inline_binds: the bindings, if nbinds <= NPULINK_POST_BINDS
 * @out_seq: names the operation in this file
 * @out_result: with WAIT, how it ended
 * @slow_ns: if it takes longer, the netlink group "events" is told; 0: it is not
 * @number: with NUMBER, that of the collective, below NPULINK_MAX_NUMBER; else 0
 *
 * Starts an operation. Where its result is delivered:
 *  - by default: in the completion ring; WAIT also returns it as long as
 *    the operation is in flight;
 *  - HELD: kept until WAIT fetches it;
 *  - WAIT: in out_result. If the wait ends early (a signal, wait_until_ns), the
 *    operation goes on as if it had been posted with HELD.
 *
 * Collectives of a communicator are numbered, from 0: the ranks' operations of one number belong
 * together. NUMBER says that the rank has done all before this one that it has not posted, see
 * npulink_board.h. Without it, an operation gets the next number. Point-to-point
 * operations have other numbers, which cannot be said.
 *
 * out_seq is written before the operation starts, so it is valid whenever the
 * kernel did more than refuse. The call is never restarted.
 *
 *  - EBUSY: too many operations in flight, or the ring is full
 *  - ESTALE: the memory of a registered buffer is no longer what was pinned
 *  - EACCES: a slot is written that is bound to a read-only buffer
 *  - ERANGE: a binding is shorter than the slot needs, or exceeds its buffer
 *  - ENOTUNIQ: two bindings overlap and one of them is written
 *  - EALREADY: this rank has posted a collective with that number, or with a later one
 *  - EOVERFLOW: the number is not below NPULINK_MAX_NUMBER
 *  - EOPNOTSUPP: the number is not the next one, and the communicator has ranks on other nodes
 *  - EINVAL: an offset does not suit the alignment of the plan's data type
 *  - ENOTCONN: no ring was set up, and neither WAIT nor HELD is given
 *  - EINTR, ETIME: accepted, with WAIT: stopped waiting by a signal, or by
 *    wait_until_ns; go on with WAIT of out_seq
 *  - ECANCELED, ETIMEDOUT, EOWNERDEAD, ESHUTDOWN, EPROTO, ENOLINK, EIO, EBADMSG,
 *    EDEADLK: the communicator has failed before (NPULINK_CAUSE_*)
 */
struct npulink_post {
	__u32 size;
	__u32 flags;
	__u32 plan_id;
	__u32 nbinds;
	__aligned_u64 cookie;
	__aligned_u64 deadline_ns;
	__aligned_u64 wait_until_ns;
	__aligned_u64 binds;
	__s32 in_fence;
	__s32 out_fence;
	struct npulink_bind inline_binds[NPULINK_POST_BINDS];
	__aligned_u64 out_seq;
	struct npulink_result out_result;
	__aligned_u64 slow_ns;
	__aligned_u64 number;
};
#define NPULINK_POST _IO(NPULINK_TYPE, NPULINK_CMD_POST)

#define NPULINK_POST_WAIT	(1 << 0)
#define NPULINK_POST_HELD	(1 << 1)
#define NPULINK_POST_NUMBER	(1 << 2)

#define NPULINK_MAX_NUMBER	(1ULL << 56)

/**
 * struct npulink_post_batch - ioctl(NPULINK_POST_BATCH)
 * @size: sizeof(struct npulink_post_batch)
 * @flags: NPULINK_POST_WAIT: wait until all of them have ended
 * @nposts: number of posts, up to NPULINK_MAX_BATCH
 * @out_posted: how many were started
 * @posts: address of struct npulink_post [nposts], without WAIT in each
 * @wait_until_ns: as in POST
 *
 * Posts in order until one is refused: the call then returns that one's errno,
 * and out_posted is its index. All of them are queued before the first waits.
 * With WAIT every post is HELD and its out_result is written; after EINTR or
 * ETIME, those with out_result.seq still 0 are to be fetched with WAIT. If one is
 * refused, nothing is waited for: those before it may need it.
 */
struct npulink_post_batch {
	__u32 size;
	__u32 flags;
	__u32 nposts;
	__u32 out_posted;
	__aligned_u64 posts;
	__aligned_u64 wait_until_ns;
};
#define NPULINK_POST_BATCH _IO(NPULINK_TYPE, NPULINK_CMD_POST_BATCH)

#define NPULINK_MAX_BATCH	1024

/**
 * struct npulink_wait - ioctl(NPULINK_WAIT)
 * @size: sizeof(struct npulink_wait)
 * @flags: 0
 * @seq: operation
 * @wait_until_ns: time at which to stop waiting, on the caller's CLOCK_MONOTONIC as in
 *		   POST; 0: only look; ~0: do not stop
 * @out_result: how it ended
 *
 * May be called by a process that does not own the file; it then does not fetch
 * a held result, only looks at it.
 *
 *  - ENOENT: never posted, fetched already, or delivered to the ring
 *  - ETIME: still in flight at wait_until_ns
 *  - EINTR: a signal whose handler was installed without SA_RESTART; still in flight
 */
struct npulink_wait {
	__u32 size;
	__u32 flags;
	__aligned_u64 seq;
	__aligned_u64 wait_until_ns;
	struct npulink_result out_result;
};
#define NPULINK_WAIT _IO(NPULINK_TYPE, NPULINK_CMD_WAIT)

/**
 * struct npulink_ring - the completion ring, mapped at NPULINK_MMAP_RING
 * @head: number of records written, by the kernel
 * @tail: number of records consumed, by the user
 * @entries: number of records, a power of two
 * @reserved0: so that each side has cache lines of its own
 * @reserved1: the same
 * @reserved: the same
 * @records: record i is at i % entries
 *
 * Read head with acquire, write tail with release semantics. The kernel trusts
 * tail only as far as to refuse posts whose record would find no room.
 */
struct npulink_ring {
	__u32 head;
	__u32 reserved0[15];
	__u32 tail;
	__u32 reserved1[15];
	__u32 entries;
	__u32 reserved[15];
	struct npulink_result records[];
};

/**
 * struct npulink_ring_setup - ioctl(NPULINK_RING_SETUP)
 * @size: sizeof(struct npulink_ring_setup)
 * @flags: 0
 * @entries: number of records, a power of two from 1 to NPULINK_MAX_RING
 * @eventfd: signalled at each record, or -1
 * @out_len: bytes to mmap() at NPULINK_MMAP_RING
 *
 *  - EEXIST: the file has a ring
 *  - EBADF: not an eventfd
 */
struct npulink_ring_setup {
	__u32 size;
	__u32 flags;
	__u32 entries;
	__s32 eventfd;
	__aligned_u64 out_len;
};
#define NPULINK_RING_SETUP _IO(NPULINK_TYPE, NPULINK_CMD_RING_SETUP)

#define NPULINK_MAX_RING	65536

/**
 * struct npulink_destroy - ioctl(NPULINK_DESTROY)
 * @size: sizeof(struct npulink_destroy)
 * @id: buffer, communicator or plan
 *
 * Destroying a communicator leaves it: it is not a failure for the other ranks
 * unless they need this rank in an operation that it has not done.
 *
 *  - EBUSY: a communicator with plans or operations in flight, a plan with
 *    operations in flight
 */
struct npulink_destroy {
	__u32 size;
	__u32 id;
};
#define NPULINK_DESTROY _IO(NPULINK_TYPE, NPULINK_CMD_DESTROY)

#endif /* _UAPI_LINUX_NPULINK_H */
