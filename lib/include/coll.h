/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * coll.h - libcoll: collective operations that the kernel carries out.
 *
 * The library plans a collective once and hands the plan to npulink.ko; from then
 * on every call is one system call, or none if it is small, and the kernel drives it step by
 * step while the caller sleeps, computes, or is stopped in a debugger.
 */
#ifndef COLL_H
#define COLL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/**
 * DOC: Rules that hold everywhere
 *
 * Functions that return int return 0 or more, or a negative errno. What went wrong,
 * where, and what to do about it is in coll_comm_last_error(), for each thread; where there is
 * no communicator yet, in &coll_config.error_text. The library prints nothing.
 *
 * All functions may be called by several threads at a time, also for one
 * communicator, except that a request belongs to one thread at a time and that
 * nothing may run in a communicator while it is destroyed. All ranks call the
 * collectives of a communicator in the same order, with the same collective,
 * count, type, operation and root; where they do not, they get -EPROTO and a text
 * that names both calls. A rank that has what it needs already (the root of a broadcast,
 * say) may have got 0 before, and learns of it in its next call. Sends and receives are
 * ordered per pair of ranks and direction, independent of the collectives.
 *
 * After a failure that concerns the operation of other ranks as well
 * (-ECANCELED, -ETIMEDOUT, -EOWNERDEAD, -ESHUTDOWN, -EPROTO, -ENOLINK, -EIO,
 * -EBADMSG, -EDEADLK, -ENODEV from an operation), the communicator has failed on
 * all ranks with the first cause (a machine that was not connected with it before gets
 * -ENOLINK, and a text that it had failed there); all that is left to do with it is
 * coll_comm_shrink() and coll_comm_destroy(). Errors that a call is refused with
 * before it starts (-EINVAL, -ENOMEM, -EFAULT, ..) leave it as it was.
 *
 * A call must not be left by longjmp() or by the cancellation of its thread: others would
 * wait for it.
 *
 * Counts are in elements, offsets ("displs") as well. A count of 0 is allowed. Blocks that
 * are written to must not overlap; those that are only read may.
 * Buffers of reductions must be aligned to their type, others need not be.
 * Buffers need no registration: small ones are copied, larger ones are pinned
 * on first use and stay so (see coll_register()). Two kinds are copied whatever their size, by
 * way of as much memory: a shared mapping of a file, which can be sent from, but not received
 * into (-EOPNOTSUPP); and blocks of a v form in a buffer of more than four times their size
 * that is not pinned yet.
 *
 * A communicator must not be used by a process that fork() made: it gets -EPERM.
 * There it may only be destroyed, which does not concern the parent.
 *
 * Structures begin with their size, which their _INIT sets, and grow at the end. So programs
 * go on to work with a library that is newer than the header they were built with, and with an
 * older one as well: of what it has to tell it leaves members that it does not know zero, and
 * asks of it that it does not know, those that are not zero, it refuses with -E2BIG.
 */

#define COLL_VERSION_MAJOR	0
#define COLL_VERSION_MINOR	2
#define COLL_VERSION_PATCH	0
#define COLL_VERSION		((COLL_VERSION_MAJOR << 16) | (COLL_VERSION_MINOR << 8) | \
				 COLL_VERSION_PATCH)
#define COLL_VERSION_STRING	"0.2.0"

/* Version of the library that runs, as COLL_VERSION and COLL_VERSION_STRING. */
unsigned int coll_version(void);
const char *coll_version_string(void);

/* Data types. */
enum coll_dtype {
	COLL_INT8 = 0,
	COLL_UINT8 = 1,
	COLL_INT16 = 2,
	COLL_UINT16 = 3,
	COLL_INT32 = 4,
	COLL_UINT32 = 5,
	COLL_INT64 = 6,
	COLL_UINT64 = 7,
	COLL_FLOAT16 = 8,
	COLL_BFLOAT16 = 9,
	COLL_FLOAT32 = 10,
	COLL_FLOAT64 = 11,
};

/*
 * Reductions. Integers wrap around; floats are rounded to nearest even after
 * each input; MIN and MAX give NaN if either input is NaN. COLL_AVG is the sum
 * divided by the number of ranks. Of integers that is the sum that has wrapped
 * around, divided towards zero; of floats it is finite where the mean is, as each input is
 * multiplied by a power of two, at most 1 / ranks, as it is added. For given algorithm
 * the result is the same bit for bit in every run and on every rank.
 */
enum coll_op {
	COLL_SUM = 0,
	COLL_PROD = 1,
	COLL_MIN = 2,
	COLL_MAX = 3,
	COLL_AVG = 4,
};

/* Size of an element in bytes, 0 if there is no such type. */
size_t coll_dtype_size(enum coll_dtype dtype);

struct coll_comm;
struct coll_request;

/*
 * COLL_IN_PLACE - instead of a send or receive buffer: there is only one
 *
 * For send: the data is in recv already, at its place: all of it for allreduce,
 * reduce, broadcast and alltoall(v); the own shard, at the own rank's place in
 * the large buffer, for gather(v) and allgather(v). For recv of scatter(v), or
 * for either of reduce_scatter(v): the other buffer is the large one, and the own
 * shard is left at its place in it; the rest of the buffer of reduce_scatter(v)
 * is undefined afterwards. Passing the addresses that this describes means the
 * same (send == recv, or send == recv + rank * count, ..).
 */
#define COLL_IN_PLACE	((void *)-1L)

/* ---- Communicators */

#define COLL_UNIQUE_ID_BYTES	128

/**
 * struct coll_unique_id - names a communicator; who has it can join
 * @bytes: opaque, to be sent to the other ranks by a way that others cannot read
 */
struct coll_unique_id {
	unsigned char bytes[COLL_UNIQUE_ID_BYTES];
};

#define COLL_DEADLINE_AUTO	UINT64_MAX

#define COLL_ANY_UID		(1U << 0)
#define COLL_CHECKSUM		(1U << 1)
#define COLL_MINORITY		(1U << 2)

/**
 * struct coll_config - optional properties of a communicator
 * @size: sizeof(struct coll_config); set by COLL_CONFIG_INIT, as all else
 * @flags: COLL_ANY_UID: ranks of other users may join; COLL_CHECKSUM: what comes over
 *	   links is checked (CRC32C) before it is used, and sent once more if it
 *	   was damaged and the sender still has it, else -EBADMSG; also set by
 *	   COLL_CHECKSUM=1 in the environment (0: not). Each is needed from all ranks.
 *	   COLL_MINORITY: of coll_comm_shrink() only, from any rank
 * @inflight: how many requests may be in flight at a time; 0: 256
 * @device: "npu3" or "3"; NULL: COLL_DEVICE from the environment, else number
 *	    rank modulo the number of devices, where coll_comm_init_env() takes
 *	    LOCAL_RANK if it is set
 * @algorithm: algorithms to use instead of the cheapest, such as
 *	       "allreduce:0-4k:mesh;4k-:ring", equal on all ranks; one that cannot
 *	       be honoured is an error. NULL: COLL_ALGORITHM from the environment
 * @calibration: file with what the network costs, see libcoll(3); NULL:
 *		 COLL_CALIBRATION from the environment, else
 *		 /etc/npulink/calibration if it exists. Equal on all ranks;
 *		 with coll_comm_init_env() that of rank 0 holds for all
 * @deadline_ns: how long an operation may take, counted from its call on this
 *		 rank; 0: for ever. COLL_DEADLINE_AUTO: COLL_DEADLINE (in seconds)
 *		 from the environment, else one minute and 1000 times the
 *		 predicted time, times the ranks per processor of this machine;
 *		 of coll_alltoallv() the time for what this rank sends and receives
 * @bootstrap_ns: how long to wait for the other ranks, where joining does;
 *		  0: COLL_TIMEOUT (in seconds) from the environment, else 2 minutes
 * @arena: bytes of memory shared with the kernel through which small payloads go;
 *	   0: 64 KiB
 * @copy_max: largest payload, send and receive buffer together, that is copied
 *	      through that memory; larger ones are pinned. 0: half of @arena;
 *	      never more than @arena
 * @share: use this communicator's open device, pinned buffers and memory instead
 *	   of new ones, or NULL. It may be destroyed first. Ignores @device,
 *	   @inflight, @arena. The two cannot be ranks of one communicator
 * @error_text: where to leave the text if making the communicator fails, or NULL
 * @error_size: bytes there
 * @topology: how the ranks are wired, for algorithms that make use of it, and for the
 *	      choice among all: "mesh:4x8" (rows and columns of a 2-D mesh, ranks numbered
 *	      row by row), "torus:4x8" (the same with lines that are rings), "ring",
 *	      "tree:16:4" (ranks, and links upwards, of each leaf switch), "servers:8"
 *	      (ranks per server; the last may have fewer), "servers:8,8,4" (those of each
 *	      server), or one of the others and servers with a semicolon between them.
 *	      Equal on all ranks. NULL: COLL_TOPOLOGY from
 *	      the environment, else nothing is known
 * @peer_timeout_ns: how long a machine that does not answer is waited for, 0.1 second to
 *		     one hour; then operations end with -ENOLINK. 0: COLL_PEER_TIMEOUT
 *		     (in seconds) from the environment, else as the administrator has set
 *		     it, see npulink-link(8). Each rank goes by its own
 */
struct coll_config {
	size_t size;
	unsigned int flags;
	unsigned int inflight;
	const char *device;
	const char *algorithm;
	const char *calibration;
	uint64_t deadline_ns;
	uint64_t bootstrap_ns;
	size_t arena;
	size_t copy_max;
	struct coll_comm *share;
	char *error_text;
	size_t error_size;
	const char *topology;
	uint64_t peer_timeout_ns;
};

/* All members, in their order: C++ before C++20 has no names there. */
#define COLL_CONFIG_INIT	{ sizeof(struct coll_config), 0, 0, NULL, NULL, NULL,		\
				  COLL_DEADLINE_AUTO, 0, 0, 0, NULL, NULL, 0, NULL, 0 }

/**
 * coll_get_unique_id() - make up a communicator
 * @id: result, for coll_comm_init_rank() of all ranks
 *
 * All ranks are on this machine, unless COLL_COMM_ID in the environment has an
 * address: then this is coll_get_unique_id_at().
 *
 * Return: 0, or the -errno of getrandom(); -EINVAL: COLL_COMM_ID is no address.
 */
int coll_get_unique_id(struct coll_unique_id *id);

/**
 * coll_get_unique_id_at() - make up a communicator of ranks on several machines
 * @id: result, for coll_comm_init_rank() of all ranks
 * @address: "HOST" or "HOST:PORT": where rank 0 is, as the others reach it, or will
 *	     be; an IPv6 address with a port in brackets. Without a port, one
 *	     that is free on this machine now. NULL: all ranks are on this one
 *
 * The ranks prove to each other that they have the same id; nothing that could be
 * used to join crosses the network.
 *
 * Return: 0, or the -errno of getrandom(); -EINVAL: no such form of address.
 */
int coll_get_unique_id_at(struct coll_unique_id *id, const char *address);

/**
 * coll_comm_init_rank() - join a communicator as a rank
 * @comm: result, NULL on failure
 * @nranks: number of ranks, at least 1
 * @id: equal on all ranks
 * @rank: own rank, below @nranks
 * @config: or NULL
 *
 * Does not wait for the other ranks (the first operation does), so one thread
 * can make several ranks. With an id for several machines it waits for all of them, as
 * coll_comm_init_env() does, and fails as that does.
 *
 * Return: 0; -EINVAL: bad arguments, or other ranks gave another @nranks; -E2BIG: @config has
 * members that this version does not know, and that are not zero; -EEXIST: the rank is taken;
 * -EACCES: made by another user; -ENOENT, -ENODEV, -EACCES, -EMFILE and whatever open() may say:
 * the device cannot be opened; -EPROTONOSUPPORT: the module's ABI is another one; -ENOMEM; or
 * how the communicator failed before.
 */
int coll_comm_init_rank(struct coll_comm **comm, unsigned int nranks,
			const struct coll_unique_id *id, unsigned int rank,
			const struct coll_config *config);

/**
 * coll_comm_init_env() - join the communicator of all processes of a job
 * @comm: result, NULL on failure
 * @config: or NULL
 *
 * Takes the rank, and the way to the others, from what started this process. If RANK
 * and WORLD_SIZE are set, that is torchrun or another that sets its variables: the
 * ranks meet at TCP port COLL_PORT (default 61000 + MASTER_PORT % 4536) of rank 0's address
 * MASTER_ADDR. Rank 0 listens there only, if that is an address, localhost, or a name that has
 * one address besides loopback, and if that is its machine's own; by another name, such as one
 * that is 127.0.1.1 in its own /etc/hosts, at all addresses of its machine; at 127.0.0.1 if
 * LOCAL_WORLD_SIZE says that all ranks are there. If COLL_KEY or COLL_KEY_FILE is set, the same
 * secret text or random bytes for all, they prove to each other that they have it, and the
 * communicator's secret does not travel. Between machines one of them has to be set; COLL_KEY=none
 * does without a key, and coll_comm_warning() says so. Otherwise, if
 * PMIX_RANK is set (Open MPI's mpirun, prterun, srun --mpi=pmix), they meet by PMIx, which
 * the launcher authenticates. Waits for all ranks.
 *
 * Return: as coll_comm_init_rank(); -EINVAL: a variable is missing or wrong;
 * -ETIMEDOUT: ranks did not come (the text says which); -EACCES: another key; -ENOKEY: none,
 * between machines; -EMFILE: rank 0 needs more files (RLIMIT_NOFILE);
 * -EEXIST: a rank came twice; -EPROTO: another number of ranks, another job, or not libcoll;
 * -EPROTONOSUPPORT: another version of libcoll (the text says both); -EOWNERDEAD: a
 * rank exited; -EHOSTUNREACH: ranks on several machines, and a device without an RDMA port;
 * -EADDRINUSE: something else listens there; -ELIBACC: PMIx's library is missing; -ENOTCONN: its
 * server is.
 */
int coll_comm_init_env(struct coll_comm **comm, const struct coll_config *config);

/**
 * coll_comm_destroy() - leave a communicator
 * @comm: communicator, or NULL
 *
 * No failure for the others unless they still need this rank. A process that ends without
 * it has died, as far as they are concerned: also what it has finished and they have not
 * fails then. Requests that are not persistent must have been waited for, also if they are done:
 * -EBUSY otherwise, and nothing is done (after a failure or coll_comm_abort() they are freed).
 * Frees persistent requests, but not the memory of coll_mem_alloc(), which must be freed before.
 *
 * Return: 0, or -EBUSY.
 */
int coll_comm_destroy(struct coll_comm *comm);

/**
 * coll_comm_abort() - end all operations on all ranks, now and later
 * @comm: communicator
 * @code: told to all ranks in &coll_state.code
 *
 * They end with -ECANCELED. May be called while other threads wait.
 *
 * Return: 0, also if it has failed already.
 */
int coll_comm_abort(struct coll_comm *comm, unsigned int code);

/**
 * coll_comm_shrink() - go on without the ranks that have died or left
 * @comm: communicator that has failed; stays what it is, and is still to be destroyed
 * @shrunk: communicator of the survivors, in their old order; NULL on failure
 * @config: as for coll_comm_init_rank(), or NULL; device, share and calibration are not
 *	    looked at: the device file and the numbers of @comm are used. COLL_TOPOLOGY was
 *	    said of all ranks and is not looked at, either
 *
 * Every survivor has to call it, at its own time; it does not wait for the others.
 * One that dies before it has is noticed like any death: @shrunk fails, and can be
 * shrunk again. After a failure that killed nobody (an abort, a deadline) all
 * ranks survive.
 *
 * If ranks are on several machines, it waits until these have agreed on who survives: a
 * machine that does not answer is waited for as long as coll_config.peer_timeout_ns said
 * when @comm was made. As many go on as all reach each other, if these are more than half of
 * the machines of @comm, or half with that of rank 0; a machine whose only rank has died, which
 * is why @comm has failed, does not count. So however the network falls apart, at most one part
 * goes on. The others get -ESHUTDOWN if they hear of it, else -ENOLINK, and can call it again.
 * With COLL_MINORITY in &coll_config.flags half or fewer go on, too, as is needed after half of
 * the machines were lost at a time; then parts that reach none of the others each go on by
 * themselves.
 *
 * If it fails, because of @config for one thing, it can be called again until @comm is destroyed.
 *
 * Return: 0; -EINVAL: @comm has not failed, or bad @config; -EEXIST: called before, with success;
 * -ESHUTDOWN: the others go on without this rank; -ENOLINK: too few machines reach each other;
 * -EPERM, -ENOMEM, -ENODEV, -EHOSTUNREACH: see
 * coll_comm_last_error() of @comm.
 */
int coll_comm_shrink(struct coll_comm *comm, struct coll_comm **shrunk,
		     const struct coll_config *config);

#define COLL_NO_RANK	UINT32_MAX

/**
 * struct coll_state - how a communicator is
 * @size: sizeof(struct coll_state); set by COLL_STATE_INIT
 * @status: 0, or the -errno that it failed with
 * @cause: the kernel's word for it: "none", "abort", "deadline", "death", "left",
 *	   "mismatch", "link", "device", "checksum", "deadlock", "removed"
 * @rank: rank where the failure arose
 * @peer: rank that it is about (the dead one, the late one), or COLL_NO_RANK
 * @step: step of @rank's plan, or UINT32_MAX
 * @code: of coll_comm_abort(); the signal that killed a dead rank, 0 if unknown; the errno
 *	  of a device's fault; the device from which a link brought damaged data; with
 *	  "link" between machines an errno, see struct npulink_comm_status
 * @joined: ranks of this node that have joined and not left; one that died is counted until
 *	    its process has ended
 * @number: number of the failed operation, or UINT64_MAX
 * @next: number of this rank's next collective
 * @machine: where @peer is, if on another machine than this rank: its host name, or its
 *	     address; else ""
 * @port: with "link" and "checksum" between machines, the port of @rank's machine that
 *	  leads to @peer's, such as "rxe0/1"; "" if none was found
 */
struct coll_state {
	size_t size;
	int status;
	const char *cause;
	uint32_t rank;
	uint32_t peer;
	uint32_t step;
	uint32_t code;
	uint32_t joined;
	uint64_t number;
	uint64_t next;
	char machine[64];
	char port[32];
};

#define COLL_STATE_INIT	{ sizeof(struct coll_state), 0, NULL, 0, 0, 0, 0, 0, 0, 0, "", "" }

/* Returns 0 with @state filled in; -EINVAL: its size is none; -errno: it cannot be asked. */
int coll_comm_status(struct coll_comm *comm, struct coll_state *state);

/**
 * struct coll_comm_info - what a communicator uses
 * @size: sizeof(struct coll_comm_info); set by COLL_COMM_INFO_INIT
 * @rank: own rank
 * @nranks: number of ranks
 * @device: "npu0"
 * @backend: "soft"
 * @engine: what moves and reduces the bytes
 * @arena_bytes: shared memory for small payloads
 * @scratch_bytes: buffers for intermediate results, and for copies of what is not pinned
 * @pinned_bytes: caller's memory that is pinned at present
 * @plans: plans in the cache
 * @plan_hits: calls that found their plan there
 * @plan_misses: calls for which one was made
 * @registrations: pinned ranges
 * @reg_hits: buffers that were found pinned
 * @reg_misses: buffers that were not
 * @stale: buffers whose memory had been unmapped and was pinned again
 * @copied: calls whose payload was copied
 * @syscalls: ioctls made, all in all
 * @met: calls for which none was needed, or only to sleep, see libcoll(3)
 *
 * With &coll_config.share, what concerns memory is that of all that share.
 */
struct coll_comm_info {
	size_t size;
	uint32_t rank;
	uint32_t nranks;
	char device[16];
	char backend[16];
	char engine[32];
	uint64_t arena_bytes;
	uint64_t scratch_bytes;
	uint64_t pinned_bytes;
	uint64_t plans;
	uint64_t plan_hits;
	uint64_t plan_misses;
	uint64_t registrations;
	uint64_t reg_hits;
	uint64_t reg_misses;
	uint64_t stale;
	uint64_t copied;
	uint64_t syscalls;
	uint64_t met;
};

#define COLL_COMM_INFO_INIT	{ sizeof(struct coll_comm_info), 0, 0, "", "", "", 0, 0, 0, 0,	\
				  0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Returns 0 with @info filled in, or -EINVAL: its size is none. */
int coll_comm_info(struct coll_comm *comm, struct coll_comm_info *info);

unsigned int coll_comm_rank(const struct coll_comm *comm);
unsigned int coll_comm_size(const struct coll_comm *comm);

/**
 * coll_comm_fd() - for poll() and epoll
 * @comm: communicator
 *
 * Readable (POLLIN) when a request may have completed: call coll_test() then. From the first call
 * of this function on, all requests of the device file are posted, as others end without it.
 * Belongs to the library; do not read, write or close it.
 *
 * Return: the file descriptor.
 */
int coll_comm_fd(struct coll_comm *comm);

/**
 * coll_comm_last_error() - why this thread's last call that failed in a communicator did
 * @comm: communicator
 *
 * Return: what, where, and what to do about it; "" if no call of this thread, or of one that
 * has ended and whose pthread_t it has, has failed in @comm. Stays as it is, whatever other
 * threads do, until the next call of this thread that fails in @comm, or coll_comm_destroy().
 */
const char *coll_comm_last_error(struct coll_comm *comm);

/* One line about something that works but should not stay so, or NULL. */
const char *coll_comm_warning(struct coll_comm *comm);

/* A few words for an error number, with or without the minus sign. */
const char *coll_strerror(int error);

/**
 * coll_comm_algorithm() - which algorithm a call takes
 * @comm: communicator
 * @collective: "allreduce"
 * @bytes: size of the payload: of the whole buffer for allreduce, reduce, broadcast;
 *	   of all shards together for scatter, gather, allgather, reduce_scatter;
 *	   of all blocks that one rank sends for alltoall
 * @dtype: of the elements: floats restrict the choice to algorithms whose sums are the same bits
 *	   on all ranks and in all runs
 * @op: of the reduction, if it is one
 * @name: result, valid as long as the library is loaded
 * @seconds: predicted time, or NULL
 *
 * Return: 0; -EINVAL: no such collective, type or reduction; -EOPNOTSUPP: an override that
 * cannot be honoured.
 */
int coll_comm_algorithm(struct coll_comm *comm, const char *collective, size_t bytes,
			enum coll_dtype dtype, enum coll_op op, const char **name, double *seconds);

/* ---- Memory */

/**
 * enum coll_memory - where memory is
 * @COLL_MEMORY_HOST: in the machine's memory; counts against RLIMIT_MEMLOCK
 * @COLL_MEMORY_DEVICE: in the memory of an NPU that has its own
 */
enum coll_memory { COLL_MEMORY_HOST, COLL_MEMORY_DEVICE };

/**
 * coll_mem_alloc() - memory that never has to be pinned
 * @comm: communicator; memory is for it and for those that share its device
 * @kind: where it is to be
 * @len: bytes, rounded up to pages
 * @addr: result, page aligned, zeroed
 *
 * Not inherited by fork(). All calls take memory of both kinds, and both in one call. What is in
 * the device's memory is moved by devices alone, however little it is, so ranks have to be
 * on one machine, and without COLL_CHECKSUM. Where a processor can see that memory, it is mapped,
 * and each look goes over the bus; otherwise a look at @addr is SIGSEGV. When the device is taken
 * away, a look is SIGBUS.
 *
 * Return: 0, -EINVAL, -ENOMEM; -EOPNOTSUPP: the device has no memory of its own.
 */
int coll_mem_alloc(struct coll_comm *comm, enum coll_memory kind, size_t len, void **addr);

/**
 * coll_mem_import() - memory of another driver
 * @comm: communicator; memory is for it and for those that share its device
 * @fd: a dma-buf, of which a reference is taken
 * @readonly: not 0: nothing is to be received there
 * @addr: result, stands for the first byte in all calls
 * @len: result, bytes, unless NULL
 *
 * As with the device's memory, libcoll has no processor look at the bytes. Where the other driver
 * lets a process map them, they are mapped at @addr, for looks between DMA_BUF_IOCTL_SYNC.
 *
 * Return: 0; -EBADF, -EINVAL: @fd is no dma-buf; -EOPNOTSUPP: its driver cannot give the device
 * access; -ENOMEM.
 */
int coll_mem_import(struct coll_comm *comm, int fd, int readonly, void **addr, size_t *len);

/*
 * Returns 0; -EINVAL: not from coll_mem_alloc() or coll_mem_import(); -EBUSY: used by a request.
 */
int coll_mem_free(struct coll_comm *comm, void *addr);

/**
 * coll_register() - pin memory now, and keep it so
 * @comm: communicator
 * @addr: first byte, any alignment
 * @len: bytes
 *
 * Never necessary, least of all for memory of coll_mem_alloc(). Saves the first call with this
 * memory the time, and exempts it from the cache's limits. Unmapping registered memory is safe at
 * any time: the library notices when it is used again.
 *
 * Return: 0; -EFAULT: not all of it is mapped and writable; -ENOMEM: over
 * RLIMIT_MEMLOCK; -EOPNOTSUPP: a shared mapping of a file, which that of coll_mem_alloc() of
 * another device is, or it overlaps what is registered, and both together cannot be.
 */
int coll_register(struct coll_comm *comm, void *addr, size_t len);

/*
 * Undoes one coll_register() of the same range: the same @addr, and the same @len. -ENOENT: there
 * was none. What else was registered stays so, also what overlaps it.
 */
int coll_deregister(struct coll_comm *comm, void *addr, size_t len);

/* ---- Requests: the forms coll_i*() and coll_*_init() */

/**
 * coll_test() - has it completed?
 * @request: request; if it is done and not persistent, it is freed and set to
 *	     NULL. NULL counts as done
 *
 * Makes no system call, unless a small one has to be posted now, see coll_wait(3).
 *
 * Return: -EINPROGRESS: not yet. Else how the operation ended: 0, -errno.
 */
int coll_test(struct coll_request **request);

/* Sleeps until it is done. Otherwise as coll_test(). */
int coll_wait(struct coll_request **request);

/**
 * coll_wait_deadline() - coll_wait() that may give up
 * @request: request
 * @until_ns: time in nanoseconds, on the CLOCK_MONOTONIC that the caller reads, also in a
 *	      time namespace
 *
 * Return: as coll_wait(); -EINPROGRESS: not done at @until_ns, the operation
 * goes on.
 */
int coll_wait_deadline(struct coll_request **request, uint64_t until_ns);

/* Waits for all of them. Returns the first error in the order of the array. */
int coll_waitall(unsigned int n, struct coll_request **requests);

/**
 * coll_testany() - has one of them completed?
 * @n: how many
 * @requests: those that are NULL, or persistent and not started, are passed over
 * @index: which one; @n: none, or all are passed over
 *
 * Return: -EINPROGRESS: none yet; 0 if all are passed over. Else as coll_test() of that one.
 */
int coll_testany(unsigned int n, struct coll_request **requests, unsigned int *index);

/* Sleeps until one is done; -EDEADLK: none can be before another call. Else as coll_testany(). */
int coll_waitany(unsigned int n, struct coll_request **requests, unsigned int *index);

/**
 * coll_waitsome() - coll_waitany(), and take the others that are done as well
 * @n: how many
 * @requests: as for coll_testany()
 * @ndone: how many are done; 0: all are passed over, or -EDEADLK
 * @indices: which ones, room for @n
 *
 * Return: 0, or the error of one of them.
 */
int coll_waitsome(unsigned int n, struct coll_request **requests, unsigned int *ndone,
		  unsigned int *indices);

/**
 * coll_wait_idle() - coll_wait() of who has something else to drive
 * @request: request
 * @idle: does a part of that, and may call the library. 0: there was nothing to do, so the
 *	  caller sleeps for up to a millisecond
 * @arg: for @idle
 *
 * Return: as coll_wait().
 */
int coll_wait_idle(struct coll_request **request, int (*idle)(void *arg), void *arg);

/**
 * coll_start() - start a persistent request
 * @request: made by one of coll_*_init(), not in flight
 *
 * Then coll_test() or coll_wait() for it; they do not free it.
 *
 * Return: 0; -EBUSY: it is in flight, or too much else is; others as the
 * call itself.
 */
int coll_start(struct coll_request *request);

/**
 * coll_startall() - start several persistent requests with one system call or none
 * @n: how many
 * @requests: different ones, of one communicator
 *
 * Return: 0, or why one could not be started, as coll_start(). Then those before it may have been
 * started, and are to be waited for; it and those behind it are not in flight, as after a
 * coll_start() that fails. coll_waitall() of all of them is right in any case.
 */
int coll_startall(unsigned int n, struct coll_request **requests);

/* Frees a persistent request, and sets it to NULL. -EBUSY: it is in flight. */
int coll_request_free(struct coll_request **request);

/* ---- Groups */

/**
 * coll_group_start() - collect the calls that follow
 * @comm: communicator
 *
 * Until coll_group_end(), calls that this thread makes in @comm are only
 * collected; other threads' are not, and each may have a group of its own open. Groups
 * may be opened in groups, and of several communicators at a time: until the last of them has
 * been ended, all of them stay open, and then all of their calls start together. So one thread
 * can make the calls of several ranks. Their buffers must not be touched, their requests not be
 * waited
 * for. They run side by side: what one writes, no other may read or write.
 * Ranks need the same calls in the same order, but may group them differently. Needed
 * where blocking calls would wait for each other in a circle: all ranks send to the right
 * and receive from the left.
 *
 * Return: 0, -ENOMEM.
 */
int coll_group_start(struct coll_comm *comm);

/**
 * coll_group_end() - start all that was collected, with one system call or none
 * @comm: communicator
 *
 * Returns 0 at once while this thread has another group open, or this one once more. Else it
 * returns when the blocking ones are done; coll_i*() and coll_start() among them
 * are then in flight.
 *
 * If a call was refused while they were collected, or there are too many, nothing is
 * started, and coll_wait() of the group's requests returns the same error. If a buffer cannot
 * be pinned (-EFAULT, -ENOMEM), small collectives before it and messages to the own rank may be
 * done (or, if it was pinned once and has changed since, all calls before it started), the rest
 * is not. The other ranks wait for those calls then: make them, or
 * coll_comm_abort(). That has been called already if others may have met this rank in some of
 * them, or if calls in another communicator were started and would be waited for here.
 *
 * Return: 0, or the first error in the order of the calls, which is that of the communicators
 * first; @comm has the text of it. -EINVAL: no group is open in this thread; -EBUSY: more calls
 * than can be in flight, nothing is started.
 */
int coll_group_end(struct coll_comm *comm);

/* ---- Collectives. Errors: see "Rules that hold everywhere". */

/**
 * coll_allreduce() - reduce, and give all ranks the result
 * @comm: communicator
 * @send: @count elements, or COLL_IN_PLACE
 * @recv: @count elements
 * @count: elements
 * @dtype: data type
 * @op: reduction
 */
int coll_allreduce(struct coll_comm *comm, const void *send, void *recv, size_t count,
		   enum coll_dtype dtype, enum coll_op op);
int coll_iallreduce(struct coll_comm *comm, const void *send, void *recv, size_t count,
		    enum coll_dtype dtype, enum coll_op op, struct coll_request **request);
int coll_allreduce_init(struct coll_comm *comm, const void *send, void *recv, size_t count,
			enum coll_dtype dtype, enum coll_op op, struct coll_request **request);

/**
 * coll_reduce() - reduce, and give the root the result
 * @comm: communicator
 * @send: @count elements, or COLL_IN_PLACE
 * @recv: @count elements; used only at the root, or with COLL_IN_PLACE
 * @count: elements
 * @dtype: data type
 * @op: reduction
 * @root: rank
 */
int coll_reduce(struct coll_comm *comm, const void *send, void *recv, size_t count,
		enum coll_dtype dtype, enum coll_op op, unsigned int root);
int coll_ireduce(struct coll_comm *comm, const void *send, void *recv, size_t count,
		 enum coll_dtype dtype, enum coll_op op, unsigned int root,
		 struct coll_request **request);
int coll_reduce_init(struct coll_comm *comm, const void *send, void *recv, size_t count,
		     enum coll_dtype dtype, enum coll_op op, unsigned int root,
		     struct coll_request **request);

/**
 * coll_broadcast() - give all ranks what the root has
 * @comm: communicator
 * @send: @count elements, or COLL_IN_PLACE; used only at the root
 * @recv: @count elements
 * @count: elements
 * @dtype: data type
 * @root: rank
 */
int coll_broadcast(struct coll_comm *comm, const void *send, void *recv, size_t count,
		   enum coll_dtype dtype, unsigned int root);
int coll_ibroadcast(struct coll_comm *comm, const void *send, void *recv, size_t count,
		    enum coll_dtype dtype, unsigned int root, struct coll_request **request);
int coll_broadcast_init(struct coll_comm *comm, const void *send, void *recv, size_t count,
			enum coll_dtype dtype, unsigned int root,
			struct coll_request **request);

/**
 * coll_scatter() - give each rank its shard of what the root has
 * @comm: communicator
 * @send: nranks * @count elements; used only at the root
 * @recv: @count elements; at the root, COLL_IN_PLACE leaves its shard in @send
 * @count: elements of one shard
 * @dtype: data type
 * @root: rank
 */
int coll_scatter(struct coll_comm *comm, const void *send, void *recv, size_t count,
		 enum coll_dtype dtype, unsigned int root);
int coll_iscatter(struct coll_comm *comm, const void *send, void *recv, size_t count,
		  enum coll_dtype dtype, unsigned int root, struct coll_request **request);
int coll_scatter_init(struct coll_comm *comm, const void *send, void *recv, size_t count,
		      enum coll_dtype dtype, unsigned int root, struct coll_request **request);

/**
 * coll_scatterv() - coll_scatter() with shards of different sizes
 * @comm: communicator
 * @send: large buffer; used only at the root
 * @recv: @counts[rank] elements, or COLL_IN_PLACE
 * @counts: elements of each rank's shard, equal on all ranks
 * @displs: where each shard begins in @send, used only at the root; NULL: one
 *	    after another
 * @dtype: data type
 * @root: rank
 */
int coll_scatterv(struct coll_comm *comm, const void *send, void *recv, const size_t *counts,
		  const size_t *displs, enum coll_dtype dtype, unsigned int root);
int coll_iscatterv(struct coll_comm *comm, const void *send, void *recv, const size_t *counts,
		   const size_t *displs, enum coll_dtype dtype, unsigned int root,
		   struct coll_request **request);
int coll_scatterv_init(struct coll_comm *comm, const void *send, void *recv,
		       const size_t *counts, const size_t *displs, enum coll_dtype dtype,
		       unsigned int root, struct coll_request **request);

/**
 * coll_gather() - give the root what all ranks have
 * @comm: communicator
 * @send: @count elements, or COLL_IN_PLACE at the root
 * @recv: nranks * @count elements; used only at the root
 * @count: elements of one shard
 * @dtype: data type
 * @root: rank
 */
int coll_gather(struct coll_comm *comm, const void *send, void *recv, size_t count,
		enum coll_dtype dtype, unsigned int root);
int coll_igather(struct coll_comm *comm, const void *send, void *recv, size_t count,
		 enum coll_dtype dtype, unsigned int root, struct coll_request **request);
int coll_gather_init(struct coll_comm *comm, const void *send, void *recv, size_t count,
		     enum coll_dtype dtype, unsigned int root, struct coll_request **request);

/**
 * coll_gatherv() - coll_gather() with shards of different sizes
 * @comm: communicator
 * @send: @counts[rank] elements, or COLL_IN_PLACE at the root
 * @recv: large buffer; used only at the root
 * @counts: elements of each rank's shard, equal on all ranks
 * @displs: where each shard begins in @recv, used only at the root; NULL: one
 *	    after another
 * @dtype: data type
 * @root: rank
 */
int coll_gatherv(struct coll_comm *comm, const void *send, void *recv, const size_t *counts,
		 const size_t *displs, enum coll_dtype dtype, unsigned int root);
int coll_igatherv(struct coll_comm *comm, const void *send, void *recv, const size_t *counts,
		  const size_t *displs, enum coll_dtype dtype, unsigned int root,
		  struct coll_request **request);
int coll_gatherv_init(struct coll_comm *comm, const void *send, void *recv,
		      const size_t *counts, const size_t *displs, enum coll_dtype dtype,
		      unsigned int root, struct coll_request **request);

/**
 * coll_allgather() - give all ranks what all ranks have
 * @comm: communicator
 * @send: @count elements, or COLL_IN_PLACE
 * @recv: nranks * @count elements
 * @count: elements of one shard
 * @dtype: data type
 */
int coll_allgather(struct coll_comm *comm, const void *send, void *recv, size_t count,
		   enum coll_dtype dtype);
int coll_iallgather(struct coll_comm *comm, const void *send, void *recv, size_t count,
		    enum coll_dtype dtype, struct coll_request **request);
int coll_allgather_init(struct coll_comm *comm, const void *send, void *recv, size_t count,
			enum coll_dtype dtype, struct coll_request **request);

/**
 * coll_allgatherv() - coll_allgather() with shards of different sizes
 * @comm: communicator
 * @send: @counts[rank] elements, or COLL_IN_PLACE
 * @recv: large buffer
 * @counts: elements of each rank's shard, equal on all ranks
 * @displs: where each shard begins in @recv; NULL: one after another
 * @dtype: data type
 */
int coll_allgatherv(struct coll_comm *comm, const void *send, void *recv,
		    const size_t *counts, const size_t *displs, enum coll_dtype dtype);
int coll_iallgatherv(struct coll_comm *comm, const void *send, void *recv,
		     const size_t *counts, const size_t *displs, enum coll_dtype dtype,
		     struct coll_request **request);
int coll_allgatherv_init(struct coll_comm *comm, const void *send, void *recv,
			 const size_t *counts, const size_t *displs, enum coll_dtype dtype,
			 struct coll_request **request);

/**
 * coll_reduce_scatter() - reduce, and give each rank its shard of the result
 * @comm: communicator
 * @send: nranks * @count elements, or COLL_IN_PLACE
 * @recv: @count elements, or COLL_IN_PLACE
 * @count: elements of one shard
 * @dtype: data type
 * @op: reduction
 */
int coll_reduce_scatter(struct coll_comm *comm, const void *send, void *recv, size_t count,
			enum coll_dtype dtype, enum coll_op op);
int coll_ireduce_scatter(struct coll_comm *comm, const void *send, void *recv, size_t count,
			 enum coll_dtype dtype, enum coll_op op, struct coll_request **request);
int coll_reduce_scatter_init(struct coll_comm *comm, const void *send, void *recv,
			     size_t count, enum coll_dtype dtype, enum coll_op op,
			     struct coll_request **request);

/**
 * coll_reduce_scatterv() - coll_reduce_scatter() with shards of different sizes
 * @comm: communicator
 * @send: large buffer, or COLL_IN_PLACE
 * @recv: @counts[rank] elements, or COLL_IN_PLACE
 * @counts: elements of each rank's shard, equal on all ranks
 * @displs: where each shard begins in the large buffer; NULL: one after another
 * @dtype: data type
 * @op: reduction
 */
int coll_reduce_scatterv(struct coll_comm *comm, const void *send, void *recv,
			 const size_t *counts, const size_t *displs, enum coll_dtype dtype,
			 enum coll_op op);
int coll_ireduce_scatterv(struct coll_comm *comm, const void *send, void *recv,
			  const size_t *counts, const size_t *displs, enum coll_dtype dtype,
			  enum coll_op op, struct coll_request **request);
int coll_reduce_scatterv_init(struct coll_comm *comm, const void *send, void *recv,
			      const size_t *counts, const size_t *displs,
			      enum coll_dtype dtype, enum coll_op op,
			      struct coll_request **request);

/**
 * coll_alltoall() - each rank has a block for each rank
 * @comm: communicator
 * @send: nranks * @count elements, block i for rank i; or COLL_IN_PLACE
 * @recv: nranks * @count elements, block i from rank i
 * @count: elements of one block
 * @dtype: data type
 */
int coll_alltoall(struct coll_comm *comm, const void *send, void *recv, size_t count,
		  enum coll_dtype dtype);
int coll_ialltoall(struct coll_comm *comm, const void *send, void *recv, size_t count,
		   enum coll_dtype dtype, struct coll_request **request);
int coll_alltoall_init(struct coll_comm *comm, const void *send, void *recv, size_t count,
		       enum coll_dtype dtype, struct coll_request **request);

/**
 * coll_alltoallv() - coll_alltoall() with blocks of different sizes
 * @comm: communicator
 * @send: large buffer, or COLL_IN_PLACE: then @scounts and @sdispls are not used, and
 *	  as much is sent to a rank as is received from it
 * @scounts: elements for each rank
 * @sdispls: where each block begins in @send; NULL: one after another
 * @recv: large buffer
 * @rcounts: elements from each rank; what that rank's @scounts says for this one
 * @rdispls: where each block begins in @recv; NULL: one after another
 * @dtype: data type
 */
int coll_alltoallv(struct coll_comm *comm, const void *send, const size_t *scounts,
		   const size_t *sdispls, void *recv, const size_t *rcounts,
		   const size_t *rdispls, enum coll_dtype dtype);
int coll_ialltoallv(struct coll_comm *comm, const void *send, const size_t *scounts,
		    const size_t *sdispls, void *recv, const size_t *rcounts,
		    const size_t *rdispls, enum coll_dtype dtype, struct coll_request **request);
int coll_alltoallv_init(struct coll_comm *comm, const void *send, const size_t *scounts,
			const size_t *sdispls, void *recv, const size_t *rcounts,
			const size_t *rdispls, enum coll_dtype dtype,
			struct coll_request **request);

/**
 * coll_barrier() - wait until all ranks have called it
 * @comm: communicator
 */
int coll_barrier(struct coll_comm *comm);
int coll_ibarrier(struct coll_comm *comm, struct coll_request **request);
int coll_barrier_init(struct coll_comm *comm, struct coll_request **request);

/**
 * coll_send() - send to one rank
 * @comm: communicator
 * @buf: @count elements
 * @count: elements; equal at the receiver
 * @dtype: data type; equal at the receiver
 * @peer: receiver; may be the own rank, in a group or with a request
 *
 * May wait until the receiver calls coll_recv().
 */
int coll_send(struct coll_comm *comm, const void *buf, size_t count, enum coll_dtype dtype,
	      unsigned int peer);
int coll_isend(struct coll_comm *comm, const void *buf, size_t count, enum coll_dtype dtype,
	       unsigned int peer, struct coll_request **request);
int coll_send_init(struct coll_comm *comm, const void *buf, size_t count,
		   enum coll_dtype dtype, unsigned int peer, struct coll_request **request);

/**
 * coll_recv() - receive from one rank
 * @comm: communicator
 * @buf: @count elements
 * @count: elements; equal at the sender
 * @dtype: data type; equal at the sender
 * @peer: sender
 */
int coll_recv(struct coll_comm *comm, void *buf, size_t count, enum coll_dtype dtype,
	      unsigned int peer);
int coll_irecv(struct coll_comm *comm, void *buf, size_t count, enum coll_dtype dtype,
	       unsigned int peer, struct coll_request **request);
int coll_recv_init(struct coll_comm *comm, void *buf, size_t count, enum coll_dtype dtype,
		   unsigned int peer, struct coll_request **request);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif /* COLL_H */
