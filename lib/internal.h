/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * internal.h - what the files of libcoll share.
 *
 * A call goes down: coll.c (what is meant) -> group.c (collect, if a group is
 * open) -> op.c (plan, buffers, post, result), with cache.c, tune.c and reg.c
 * asked on the way and drv.c at the bottom. One that comes again goes from coll.c
 * to the end of op.c: repeat.c has the rest.
 *
 * Locking: coll_dev.lock protects everything below a coll_dev, its
 * communicators and requests included. It is never held while an operation is
 * waited for. Calls that are kept (coll_comm.repeats) belong to who has made them busy, in
 * addition to the lock where they come or go. coll_comm.error_lock protects the error texts
 * only, and is taken inside.
 */
#ifndef COLL_INTERNAL_H
#define COLL_INTERNAL_H

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <linux/npulink.h>
#include "coll.h"
#include "plan.h"

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
/* Kept together: what calls run that are met on the board, see hot.h in kernel/core. */
#define COLL_HOT	__attribute__((hot))
#define COLL_SLOTS	3
#define COLL_TEXT	1024
#define COLL_NEVER	UINT64_MAX
#define COLL_DEV_DIR	"/dev/npulink"

_Static_assert(sizeof(size_t) == sizeof(uint64_t), "libcoll is for 64-bit machines");

uint64_t coll_now_ns(void);

/* ---- drv.c: the ioctls */

/**
 * struct coll_drv - the open file
 * @fd: descriptor, or -1
 * @node: inode of what was opened
 * @node_dev: where that is
 * @calls: ioctls made
 */
struct coll_drv {
	int fd;
	ino_t node;
	dev_t node_dev;
	_Atomic uint64_t calls;
};

int coll_drv_open(struct coll_drv *drv, const char *path);
bool coll_drv_is_ours(const struct coll_drv *drv, unsigned char *arena, size_t len,
		      ptrdiff_t mark);
void coll_drv_close(struct coll_drv *drv);
int coll_drv_device(const char *name, unsigned int index, char *path, size_t size);
int coll_drv_map(struct coll_drv *drv, uint64_t offset, size_t len, void **addr);
int coll_drv_map_read(struct coll_drv *drv, uint64_t offset, size_t len, void **addr);
void coll_drv_unmap(void *addr, size_t len);
int coll_drv_marker(unsigned char **marker);
void coll_drv_marker_free(unsigned char *marker);
int coll_drv_info(struct coll_drv *drv, struct npulink_device_info *info);
int coll_drv_buf_register(struct coll_drv *drv, uintptr_t addr, size_t len, bool readonly,
			  uint32_t *id);
int coll_drv_buf_alloc(struct coll_drv *drv, size_t len, uint32_t *id, uint64_t *offset);
int coll_drv_comm_create(struct coll_drv *drv, const uint8_t *secret, uint32_t rank,
			 uint32_t nranks, uint32_t flags, uint32_t peer_timeout_ms, uint32_t *id);
int coll_drv_port(struct coll_drv *drv, uint32_t index, struct npulink_port_info *port);
int coll_drv_comm_peers(struct coll_drv *drv, uint32_t id, const struct npulink_peer *peers,
			uint32_t n, const struct npulink_addr *more, uint32_t nmore);
int coll_drv_comm_abort(struct coll_drv *drv, uint32_t id, uint32_t code);
int coll_drv_comm_shrink(struct coll_drv *drv, uint32_t id, uint32_t flags, uint32_t *map,
			 struct npulink_comm_shrink *out);
int coll_drv_comm_status(struct coll_drv *drv, uint32_t id, struct npulink_comm_status *st);
int coll_drv_plan_create(struct coll_drv *drv, uint32_t comm_id, const struct coll_plan *plan,
			 struct npulink_plan_create *out);
int coll_drv_post(struct coll_drv *drv, struct npulink_post *post);
int coll_drv_post_batch(struct coll_drv *drv, struct npulink_post *posts, uint32_t n,
			uint32_t flags, uint32_t *posted);
int coll_drv_wait(struct coll_drv *drv, uint64_t seq, uint64_t until_ns,
		  struct npulink_result *result);
int coll_drv_sleep(struct coll_drv *drv, const uint32_t *word, uint32_t value, uint64_t ns);
uint32_t coll_drv_wake(struct coll_drv *drv, const uint32_t *word, uint32_t n);
int coll_drv_ring_setup(struct coll_drv *drv, uint32_t entries, size_t *len);
int coll_drv_destroy(struct coll_drv *drv, uint32_t id);

/* ---- reg.c: buffers that the kernel knows */

/**
 * struct coll_reg - a range of memory that is a buffer of the file
 * @start: first byte, page aligned
 * @end: byte after the last
 * @id: buffer id
 * @refs: operations that use it
 * @pins: ranges that coll_register() was called for and that lie in it: not to be dropped
 * @readonly: no step may write to it
 * @alloc: made by coll_mem_alloc(): not to be dropped, either
 * @listed: in the index; if not, it goes with its last reference
 * @used: for LRU
 */
struct coll_reg {
	uintptr_t start, end;
	uint32_t id;
	uint32_t refs;
	uint32_t pins;
	bool readonly, alloc, listed;
	uint64_t used;
};

/* A range that coll_register() was called for, @calls times, pinned or not. */
struct coll_asked {
	uintptr_t start, end;
	unsigned int calls;
};

/**
 * struct coll_regs - the ranges of a file
 * @v: sorted, without overlaps
 * @asked: by start, then by end
 */
struct coll_regs {
	struct coll_reg **v;
	unsigned int n, cap;
	struct coll_asked *asked;
	unsigned int nasked, asked_cap;
	uint64_t clock, bytes;
	uint64_t hits, misses, stale;
};

/* A buffer for intermediate results, or for a copy of what cannot be pinned; then @map is its. */
struct coll_scratch {
	struct coll_scratch *next;
	uint32_t id;
	size_t len;
	uint64_t offset;
	void *map;
};

/* ---- dev.c: an open device */

#define COLL_ARENA_DEFAULT	65536
#define COLL_ARENA_GRAIN	64

/**
 * struct coll_dev - an open file of a device, shared by communicators
 * @lock: protects all of it, and all that belongs to its communicators
 * @refs: communicators
 * @marker: a byte that is 1 here and 0 in a forked child
 * @process: that opened it
 * @arena: shared memory, buffer 0
 * @arena_used: one bit per grain
 * @idle_max: how much memory may stay pinned that no operation uses
 * @ring: completion ring, NULL until the first request
 * @chunks: all requests ever made, so that a cookie can be looked up
 * @free: requests not in use
 * @inflight: requests in flight, oldest first
 * @kept: bytes of the arena that calls have which may come again
 * @copied: operations whose payload went through the arena
 */
struct coll_dev {
	struct coll_drv drv;
	pthread_mutex_t lock;
	unsigned int refs;
	unsigned char *marker;
	pid_t process;
	struct npulink_device_info info;
	unsigned char *arena;
	size_t arena_size;
	uint64_t *arena_used;
	struct coll_regs regs;
	struct coll_scratch *scratch;
	uint64_t scratch_bytes, scratch_idle;
	uint64_t idle_max;
	struct npulink_ring *ring;
	size_t ring_len;
	unsigned int ring_entries;
	struct coll_request **chunks;
	unsigned int nchunks;
	struct coll_request *free;
	struct coll_request *inflight_first, *inflight_last;
	unsigned int inflight;
	size_t kept;
	_Atomic uint64_t copied;
};

int coll_dev_open(struct coll_dev **dev, const struct coll_config *config, unsigned int index,
		  char *text, size_t size);
void coll_dev_free(struct coll_dev *dev);
void coll_dev_check(struct coll_dev *dev);
void coll_dev_put(struct coll_dev *dev);
void coll_dev_limit(struct coll_dev *dev, unsigned int nranks);
bool coll_dev_is_child(const struct coll_dev *dev);
ptrdiff_t coll_arena_get(struct coll_dev *dev, size_t len);
void coll_arena_put(struct coll_dev *dev, size_t off, size_t len);
int coll_scratch_get(struct coll_dev *dev, size_t len, struct coll_scratch **scratch);
int coll_scratch_map(struct coll_dev *dev, struct coll_scratch *scratch);
void coll_scratch_put(struct coll_dev *dev, struct coll_scratch *scratch);
bool coll_scratch_trim(struct coll_dev *dev);

int coll_reg_get(struct coll_dev *dev, const void *addr, size_t len, bool write,
		 struct coll_reg **reg);
bool coll_reg_has(const struct coll_dev *dev, const void *addr, size_t len);
void coll_reg_put(struct coll_dev *dev, struct coll_reg *reg);
void coll_reg_stale(struct coll_dev *dev, struct coll_reg *reg);
bool coll_reg_evict(struct coll_dev *dev);
bool coll_reg_reclaim(struct coll_dev *dev, unsigned int *tries);
void coll_reg_free_all(struct coll_dev *dev, bool unmap);

/* ---- topo.c: how ranks are wired */

int coll_topo_init(struct coll_topo *topo, const char *wiring, uint32_t nranks, char *text,
		   size_t size);
void coll_topo_free(struct coll_topo *topo);

/* The same from the number of each rank's machine, if there are several and nothing was said. */
int coll_topo_machines(struct coll_topo *topo, const uint32_t *machine, uint32_t nranks);

/* ---- tune.c: which algorithm */

struct coll_override {
	uint32_t collective;
	uint64_t from, to;
	const struct coll_algorithm *alg;
};

/**
 * struct coll_work_costs - seconds of a processor's time, where devices are software
 * @processors: that ranks of one machine share; 0: devices need none
 * @call: per rank and call
 * @message: per message
 * @request: per request to an engine
 * @copy: per byte that it copies
 * @reduce: per byte that it adds up
 * @reduces: the same by data type
 */
struct coll_work_costs {
	uint32_t processors;
	double call, message, request, copy, reduce, reduces[NPULINK_DTYPES];
};

/**
 * struct coll_tune - what the choice goes by
 * @params: of the closed forms
 * @gamma: of each data type
 * @work: the same things in processor time
 * @calibrated: these are a file's
 * @script_bytes: as the device says, see npulink_meet_bytes(); 0: no rank works for all
 * @board: ranks of one machine can do without the device what coll_board_takes()
 * @far_alpha: seconds per message between machines; negative: as within one
 * @far_beta: seconds per byte between machines, through all ports of one together
 * @overrides: what the user says
 * @noverrides: how many
 */
struct coll_tune {
	struct coll_cost_params params;
	double gamma[NPULINK_DTYPES];
	struct coll_work_costs work;
	bool calibrated;
	uint32_t script_bytes;
	bool board;
	double far_alpha, far_beta;
	struct coll_override *overrides;
	unsigned int noverrides;
};

/**
 * struct coll_work - what all ranks of a call do; counted in plans
 * @touched: bytes read and written
 * @messages: sent
 * @requests: to engines
 * @copied: bytes
 * @reduced: bytes
 * @far_messages: to another machine, by the rank that sends or receives most of them
 * @far_bytes: into or out of the machine that has most of them
 */
struct coll_work {
	double messages, requests, copied, reduced, touched;
	double far_messages, far_bytes;
};

int coll_tune_init(struct coll_tune *tune, const char *calibration, const char *overrides,
		   uint32_t nranks, char *text, size_t size);
void coll_tune_free(struct coll_tune *tune);
uint64_t coll_args_bytes(const struct coll_args *args);
const struct coll_algorithm *coll_tune_asked(const struct coll_tune *tune,
					     const struct coll_args *args);
int coll_tune_choose(const struct coll_tune *tune, const struct coll_args *args,
		     const struct coll_algorithm **alg, double *seconds, char *text, size_t size);
double coll_tune_own_part(const struct coll_tune *tune, const struct coll_algorithm *alg,
			  const struct coll_args *args);

/* ---- cause.c: why a device cannot be had; all give back @rc */

int coll_cause_open(int rc, const char *path, char *text, size_t size);
int coll_cause_info(int rc, const char *path, char *text, size_t size);
int coll_cause_memory(int rc, size_t len, const char *what, char *text, size_t size);

/* ---- lines.c: files that people write */

/* @number: of the line that was read last; @text, @size: where to say what is wrong. */
struct coll_lines {
	const char *path;
	FILE *file;
	char *line;
	unsigned int number;
	char *text;
	size_t size;
};

int coll_lines_open(struct coll_lines *lines, const char *path, char *text, size_t size);
void coll_lines_close(struct coll_lines *lines);
int coll_lines_next(struct coll_lines *lines, char **line);
__attribute__((format(printf, 2, 3)))
int coll_lines_bad(struct coll_lines *lines, const char *fmt, ...);
char *coll_trim(char *s);

/* ---- calibration.c: what the network costs */

int coll_calibration_read(struct coll_tune *tune, const char *path, uint32_t nranks, char *text,
			  size_t size);
void coll_calibration_device(struct coll_tune *tune, const struct npulink_device_info *info,
			     uint32_t nranks);
double coll_strtod(const char *s, char **end);

/* All numbers of a calibration, as one rank tells the others. */
#define COLL_COSTS	(12 + 2 * NPULINK_DTYPES)

void coll_calibration_pack(const struct coll_tune *tune, float *costs);
void coll_calibration_unpack(struct coll_tune *tune, const float *costs, uint32_t nranks);

/* ---- tune_work.c: what a call should take */

/* 0 or -errno. */
int coll_work_count(const struct coll_algorithm *alg, const struct coll_args *call,
		    struct coll_work *work);
double coll_tune_predict(const struct coll_tune *tune, const struct coll_algorithm *alg,
			 const struct coll_args *args);

/* ---- cache.c: plans that the kernel has */

/**
 * struct coll_board_call - what is done on the board, see board.c
 * @code: of the call; 0: nothing
 * @len: bytes that each rank brings; 0: it only comes
 * @from: where in these those are that this rank needs
 * @part: how many
 * @in: the own
 * @out: result
 * @count: elements
 * @shared: bytes of the result that all ranks need, or parts of them; 0: each its own, or none
 * @elements: of these
 * @reduce: adds one more rank's to the result; NULL: they are put one after the other
 */
struct coll_board_call {
	uint32_t code;
	uint32_t len, from, part;
	const void *in;
	void *out;
	size_t count;
	uint32_t shared, elements;
	void (*reduce)(void *out, const void *x, const void *y, size_t n);
};

/**
 * struct coll_cached - a plan of the communicator
 * @args: what it is for; the arrays are owned by the entry
 * @hash: of @args
 * @chain: next with the same hash bucket
 * @newer: LRU list
 * @older: LRU list
 * @refs: operations that use it
 * @id: of the kernel
 * @nslots: slots
 * @slots: their sizes
 * @len: bytes of each that are used
 * @nsteps: for the limit of the cache
 * @deadline_ns: predicted generously
 * @slow_ns: predicted, with an allowance for other work
 * @alg: algorithm
 * @board: calls that need not be posted, but for their buffers
 * @blocked: a blocking call had it
 */
struct coll_cached {
	struct coll_args args;
	uint64_t hash;
	struct coll_cached *chain, *newer, *older;
	unsigned int refs;
	uint32_t id;
	uint32_t nslots;
	struct npulink_slot slots[COLL_SLOTS];
	size_t len[COLL_SLOTS];
	uint32_t nsteps;
	uint64_t deadline_ns;
	uint64_t slow_ns;
	const struct coll_algorithm *alg;
	struct coll_board_call board;
	bool blocked;
};

#define COLL_PLAN_BUCKETS	64
#define COLL_PLANS_MAX		256
#define COLL_PLAN_STEPS_MAX	(1U << 20)

struct coll_plans {
	struct coll_cached *bucket[COLL_PLAN_BUCKETS];
	struct coll_cached *newest, *oldest;
	unsigned int n;
	uint64_t nsteps;
	uint64_t hits, misses;
};

int coll_plan_get(struct coll_comm *comm, const struct coll_args *args,
		  struct coll_cached **cached);
void coll_plan_free_all(struct coll_comm *comm, bool destroy);

/* ---- op.c: one operation */

/**
 * struct coll_operation - one call, from its arguments to its result
 * @comm: communicator
 * @args: as the planner wants them; the arrays are the plan's once it is there
 * @called: the buffers as the caller gave them
 * @buf: the caller's send and receive buffer, by slot
 * @plan: the plan, a reference held
 * @reg: pinned ranges bound to the slots
 * @staged: buffers bound to the slots in place of the caller's, to copy by
 * @scratch: buffer bound to the scratch slot, if it is not in the arena
 * @arena_off: place in the arena, if @arena_len
 * @arena_len: bytes there
 * @copied: the payload is in the arena
 * @scratched: so is scratch
 * @slot_off: where in the arena the payload of each slot is
 * @post: what the kernel gets
 * @status: result
 *
 * plan -> bind -> copy_in -> post -> finish -> unplan; a persistent request goes
 * from bind to finish any number of times.
 */
struct coll_operation {
	struct coll_comm *comm;
	struct coll_args args;
	const void *called[2];
	void *buf[2];
	struct coll_cached *plan;
	struct coll_reg *reg[2];
	struct coll_scratch *staged[2], *scratch;
	size_t arena_off, arena_len;
	bool copied, scratched;
	size_t slot_off[2];
	struct npulink_post post;
	int status;
};

/* ---- buffers.c: which one is which, and what can be wrong with them */

void coll_buffers_sort(struct coll_operation *op, const void *send, void *recv);
int coll_buffers_check(const struct coll_operation *op, size_t nsend, size_t nrecv);
bool coll_buffers_replace(struct coll_operation *op, const void *send, const void *recv);

/* Is the same called again, but for buffers? For those that coll_op_may_repeat(). */
static inline bool coll_op_is_call(const struct coll_operation *op, const struct coll_args *args)
{
	const struct coll_args *a = &op->args;

	return a->count == args->count && a->collective == args->collective &&
	       a->dtype == args->dtype && a->redop == args->redop && a->root == args->root &&
	       a->peer == args->peer && a->send == args->send;
}

static inline bool coll_op_has(const struct coll_operation *op, const void *send,
			       const void *recv)
{
	return op->called[0] == send && op->called[1] == recv;
}

/*
 * For coll_board_begin_post(): collectives have numbers, by which those of all ranks meet. Asked
 * before it is posted, as then it may be another thread's.
 */
static inline struct coll_comm *coll_op_numbered(const struct coll_operation *op)
{
	return op->args.collective == NPULINK_COLL_P2P ? NULL : op->comm;
}

/* One of no bytes is none. */
struct coll_copy {
	void *to;
	const void *from;
	size_t len;
};

struct coll_repeat;

/* Nothing that it has bound lies outside of the arena. */
static inline bool coll_op_in_arena(const struct coll_operation *op)
{
	return !op->reg[0] && !op->reg[1] && !op->staged[0] && !op->staged[1] && !op->scratch;
}

int coll_op_plan(struct coll_operation *op);
void coll_op_unplan(struct coll_operation *op);
bool coll_op_may_repeat(const struct coll_operation *op);
int coll_op_bind(struct coll_operation *op);
int coll_op_rebind(struct coll_operation *op);
void coll_op_copy_in(struct coll_operation *op);
void coll_op_unbind(struct coll_operation *op);
void coll_op_copies(const struct coll_operation *op, struct coll_copy *in, struct coll_copy *out);
bool coll_op_is_staged(const struct coll_operation *op);
void coll_op_copy_out(const struct coll_operation *op, int status);
void coll_op_end(struct coll_operation *op, int status);
void coll_op_finish(struct coll_operation *op, int status);
int coll_op_run_again(struct coll_repeat *repeat);
int coll_op_run(struct coll_operation *op);
int coll_op_local(struct coll_operation *op);
bool coll_op_is_local(const struct coll_operation *op);
bool coll_make_room(struct coll_dev *dev, bool wait);

/* ---- board.c: ranks of one node meet without a system call */

#define COLL_BOARD_SLOTS	16
#define COLL_BOARD_WIDES	4

struct board_memory;
struct board_rank;

/**
 * struct coll_board - a rank's part in it
 * @never: there is none
 * @open: there is one, which all ranks know
 * @crowded: ranks share processors
 * @processors: that they have
 * @skip: calls that are not to be tried
 * @rest: calls that are not to spin
 * @pause: how many were not, last time
 * @misses: times that a rank has spun in vain, one after the other
 * @warm: calls that came before there was one
 * @machine: what the kernel says of all communicators, and ..
 * @comm: .. of this one
 * @memory: what all ranks share, @len bytes
 * @own: what only this rank writes of it
 * @done: all ranks have done with collectives of lower numbers
 * @used: 1 + the number that each slot was last used for
 * @used_wide: the same of what is beside slots
 * @next: the number of the next collective
 * @left: 1 + the last number of which the others know that this rank posts it
 * @swept: nobody was left asleep under lower numbers
 * @met: operations
 *
 * @next, @left and @swept belong to those who post as well, the rest to who has a claim.
 */
struct coll_board {
	bool never, open, crowded;
	unsigned int processors, skip, rest, pause, misses, warm;
	const struct npulink_board_machine *machine;
	const struct npulink_board_comm *comm;
	struct board_memory *memory;
	struct board_rank *own;
	size_t len;
	uint64_t done, used[COLL_BOARD_SLOTS], used_wide[COLL_BOARD_WIDES];
	_Atomic uint64_t next, left, swept, met;
};

struct coll_request;

void coll_board_close(struct coll_board *board);
bool coll_board_takes(const struct coll_algorithm *alg, const struct coll_args *args,
		      struct coll_board_call *call);
void coll_board_plan(struct coll_cached *plan);
void coll_board_prepare(const struct coll_operation *op, struct coll_board_call *call);
bool coll_board_try(struct coll_comm *comm, const struct coll_board_call *call);
unsigned int coll_board_group(struct coll_comm *comm, struct coll_request **v, unsigned int n);
bool coll_board_claim(struct coll_comm *comm);
void coll_board_let_go(struct coll_comm *comm);
void coll_board_begin_post(struct coll_comm *comm);
void coll_board_end_post(struct coll_comm *comm);
uint64_t coll_board_next(const struct coll_comm *comm);
void coll_board_number(const struct coll_operation *op, struct npulink_post *post, uint64_t number);
bool coll_board_posted(struct coll_comm *comm, const struct npulink_post *post, int rc);
void coll_board_withdraw(struct coll_comm *comm, uint64_t number, int rc);

/* ---- repeat.c: blocking calls that come again */

#define COLL_KEPT	8	/* that are: of a loop over more calls, some */
/* Calls that are not kept for want of room until those go that have not come meanwhile. */
#define COLL_PATIENCE	256

/**
 * struct coll_repeat - a call that is ready to be posted
 * @op: planned and bound
 * @in: into the arena
 * @out: out of it
 * @board: if it need not be posted
 * @seen: what coll_repeats.refused was when it last came
 */
struct coll_repeat {
	struct coll_operation op;
	struct coll_copy in, out;
	struct coll_board_call board;
	unsigned int seen;
};

/**
 * struct coll_repeats - those of a communicator
 * @busy: somebody runs or changes one; who does that holds all of them
 * @hits: calls that were there
 * @refused: calls for which there was no room
 * @n: how many there are
 * @v: oldest first
 */
struct coll_repeats {
	_Atomic bool busy;
	_Atomic uint64_t hits;
	unsigned int refused, n;
	struct coll_repeat v[COLL_KEPT];
};

struct coll_repeat *coll_repeat_get(struct coll_comm *comm, const struct coll_args *args,
				    const void *send, const void *recv);
void coll_repeat_end(struct coll_repeat *repeat);
void coll_repeat_give(struct coll_repeat *repeat, struct coll_operation *op);
bool coll_repeat_keep(const struct coll_operation *op);
bool coll_repeats_drop(struct coll_comm *comm);

/* ---- request.c, group.c */

enum coll_request_state {
	COLL_REQ_FREE,		/* in the pool */
	COLL_REQ_IDLE,		/* persistent, not started */
	COLL_REQ_QUEUED,	/* collected by a group */
	COLL_REQ_SELF,		/* to or from the own rank, not matched yet */
	COLL_REQ_INFLIGHT,	/* posted */
	COLL_REQ_LANDED,	/* has ended, but its results are in memory of our own */
	COLL_REQ_DONE,		/* has a result that was not fetched */
};

/**
 * struct coll_request - an operation that outlives its call
 * @op: the operation
 * @dev: whose pool it is from
 * @state: written under the lock, read without
 * @index: in the pool
 * @generation: counts its uses, so that an old record of the ring is not taken for a new one
 * @seq: the kernel's name for it
 * @persistent: started by coll_start(), freed by coll_request_free()
 * @blocking: made by a blocking call in a group
 * @settling: its results are being copied to where they belong, without the lock
 * @prepared: @board says what it is on the board
 * @board: that
 * @met: it was done there
 * @number: its number, if it was not, and others of the group were tried
 * @next: of the pool, of the list in flight, or of the self list
 * @prev: of the list in flight
 */
struct coll_request {
	struct coll_operation op;
	struct coll_dev *dev;
	_Atomic int state;
	uint32_t index;
	uint32_t generation;
	uint64_t seq;
	bool persistent, blocking, settling, prepared, met;
	struct coll_board_call board;
	uint64_t number;
	struct coll_request *next, *prev;
};

struct coll_request *coll_request_get(struct coll_dev *dev);
void coll_request_put(struct coll_request *req);
uint64_t coll_request_cookie(const struct coll_request *req);
void coll_request_launch(struct coll_request *req);
void coll_request_land(struct coll_request *req, int state);
void coll_request_done(struct coll_request *req, int status);
void coll_request_settle(struct coll_request *req);
bool coll_requests_settle(struct coll_dev *dev);
int coll_request_start(struct coll_request *req);
int coll_ring_setup(struct coll_dev *dev);
unsigned int coll_ring_drain(struct coll_dev *dev);
int coll_requests_leave(struct coll_comm *comm, bool force);

#define COLL_GROUP_KEPT	32	/* calls of a group */

/**
 * struct coll_group - calls of a communicator that a thread collects
 * @comm: whose; NULL: it has gone
 * @next: another one of @comm
 * @later: another communicator's that the thread has opened since
 * @depth: how often it has been opened and not ended
 * @open: calls by @owner are collected
 * @running: closed, but not yet at its end
 * @owner: thread
 * @v: the calls; only @owner touches them, or whose own group it is
 * @kernels: those of them that the kernel gets
 * @nkernels: how many these are, where the group runs beside others
 * @posts: the batch
 * @n: how many calls
 * @cap: for how many there is room
 * @kept: calls of the last group, by their place in it; NULL: it cannot be kept, or has come again
 * @nkept: places that have one, or had
 * @hits: calls that were there
 * @refused: 0, or why a call of the open group was, and so all of it will be
 */
struct coll_group {
	struct coll_comm *_Atomic comm;
	struct coll_group *next, *later;
	unsigned int depth;
	bool open, running;
	pthread_t owner;
	pid_t process;
	struct coll_request **v, **kernels;
	struct npulink_post *posts;
	unsigned int n, nkernels, cap;
	struct coll_request *kept[COLL_GROUP_KEPT];
	unsigned int nkept;
	_Atomic uint64_t hits;
	int refused;
};

int coll_group_refuse(struct coll_comm *comm, int rc);
struct coll_group *coll_group_mine(const struct coll_comm *comm);
int coll_group_add(struct coll_comm *comm, struct coll_request *req);
bool coll_group_again(struct coll_group *g, const struct coll_args *args, const void *send,
		      const void *recv);
bool coll_group_forget(struct coll_comm *comm);
uint64_t coll_group_hits(const struct coll_comm *comm);
void coll_group_free_all(struct coll_comm *comm);
int coll_group_start_all(struct coll_comm *comm, unsigned int n, struct coll_request **requests);
void coll_self_start(struct coll_request *req);
void coll_self_cancel(struct coll_request *req, int status);

/* ---- comm.c */

/**
 * struct coll_survivors - a communicator of the kernel that coll_comm_shrink() has joined
 * @id: of the kernel
 * @rank: own rank in it
 * @nranks: ranks
 * @map: the rank of each in the one that has failed
 */
struct coll_survivors {
	uint32_t id;
	uint32_t rank, nranks;
	uint32_t map[];
};

/**
 * struct coll_comm - a rank of a communicator
 * @dev: its open file
 * @id: of the kernel
 * @failed: 0, or the -errno of all further operations
 * @posting: threads that post; -1: one has calls on the board, so that none may
 * @posters: threads that wait for that one
 * @collecting: groups that are open
 * @groups: one of each thread that has one open, and those of earlier ones
 * @topo: how the ranks are wired
 * @self_sends: sends to the own rank that no receive has met yet, oldest first
 * @self_recvs: the same for receives
 * @survivors: joined by a coll_comm_shrink() that failed then
 *
 * What every call looks at comes first, within a page or two: where ranks share processors, each
 * comes to what others have driven out of the caches.
 */
struct coll_comm {
	struct coll_dev *dev;
	uint32_t id;
	uint32_t rank, nranks;
	uint64_t deadline_ns;
	size_t copy_max;
	_Atomic int failed;
	_Atomic int posting;
	_Atomic unsigned int posters;
	_Atomic unsigned int collecting;
	struct coll_board board;
	struct coll_group *groups;
	struct coll_repeats repeats;
	struct coll_plans plans;
	struct coll_topo topo;
	struct coll_tune tune;
	struct coll_request *self_sends, *self_recvs;
	struct coll_survivors *survivors;
	uint32_t *machine;		/* by rank, NULL: all are on one */
	char (*hosts)[64];		/* by machine: its name, or "" */
	pthread_mutex_t error_lock;
	struct coll_error *errors;
	char warning[COLL_TEXT];
};

/* As planners want it: NULL if nothing is known. */
static inline const struct coll_topo *coll_comm_topo(const struct coll_comm *comm)
{
	return comm->topo.rows || comm->topo.nservers > 1 ? &comm->topo : NULL;
}

int coll_comm_enter(struct coll_comm *comm);
int coll_comm_new(struct coll_comm **comm, struct coll_dev *dev, unsigned int nranks,
		  unsigned int rank, const struct coll_config *config, char *text, size_t size);
void coll_comm_discard(struct coll_comm *comm);
int coll_comm_make(struct coll_comm **comm, struct coll_dev *dev, unsigned int nranks,
		   const uint8_t *secret, unsigned int rank, const struct coll_config *config,
		   char *text, size_t size);
int coll_config_get(struct coll_config *out, const struct coll_config *config, char *text,
		    size_t size);
int coll_config_env(struct coll_config *config, char *text, size_t size);
int coll_config_fail(const struct coll_config *config, unsigned int rank, int rc,
		     const char *text);
int coll_config_dev(const struct coll_config *config, unsigned int index,
		    struct coll_dev **dev, char *text, size_t size);

/* ---- error.c */

struct coll_error;

void coll_errors_free(struct coll_comm *comm);
int coll_fail(struct coll_comm *comm, int rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int coll_text(char *text, size_t size, int rc, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
int coll_fail_op(const struct coll_operation *op, int rc);
int coll_fail_plan(struct coll_comm *comm, const struct coll_args *args, int rc,
		   const struct npulink_plan_create *refused);
int coll_fail_pin(struct coll_comm *comm, const struct coll_args *args, const void *addr,
		  size_t len, int rc);
void coll_describe(const struct coll_args *args, char *text, size_t size);
/* Why a connection between machines was lost, by the code of the cause. */
const char *coll_lost_text(uint32_t error);
void coll_machine_name(const struct coll_comm *comm, const struct npulink_comm_status *st,
		       char *name, size_t size);
bool coll_is_failure(int rc);
const char *coll_words(int rc, char *buf, size_t size);

/* ---- sha256.c */

struct coll_sha256 {
	uint32_t state[8];
	uint64_t len;
	uint8_t block[64];
};

void coll_sha256_init(struct coll_sha256 *s);
void coll_sha256_add(struct coll_sha256 *s, const void *data, size_t len);
void coll_sha256_end(struct coll_sha256 *s, uint8_t out[32]);

struct coll_hmac {
	struct coll_sha256 inner, outer;
};

void coll_hmac_init(struct coll_hmac *h, const void *key, size_t len);
void coll_hmac_end(struct coll_hmac *h, uint8_t out[32]);

#endif /* COLL_INTERNAL_H */
