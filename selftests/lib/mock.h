/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * mock.h - a device for tests of libcoll that need no module: open() and ioctl() of
 * the test program.
 *
 * All ranks live in one process. An operation runs when the last of its ranks has
 * posted it, by plain loops over all their steps; a file is a memfd, so the
 * library's mappings are real. Any ioctl can be made to fail, or a waiting one to be
 * interrupted, a number of times.
 */
#ifndef MOCK_H
#define MOCK_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <linux/npulink.h>
#include <npulink/verify.h>

#define MOCK_FILES	64
#define MOCK_IDS	4096
#define MOCK_OPS	4096
#define MOCK_ALLOC_AT	0x300000000ULL
#define MOCK_FILE_LEN	0x400000000ULL

struct mock_buf {
	unsigned char *mem;
	size_t len;
	bool registered, readonly, stale;
	unsigned int users;
};

struct mock_comm {
	uint8_t secret[16];
	uint32_t nranks;
	unsigned int joined;
	struct mock_rank *ranks[64];
	uint32_t cause, rank, peer, code;
	uint32_t step;		/* + 1; 0: none */
	int status;
	uint64_t number;
	struct npulink_call calls[2];
	uint32_t peer_timeout_ms;	/* of who joined last */
	uint8_t ip[16];
	char port[32];
	struct mock_comm *survivors;
	uint32_t map[64];		/* rank of each in the one whose survivors these are */
	struct mock_comm *next;
};

struct mock_rank {
	struct mock_comm *comm;
	struct mock_file *file;
	uint32_t rank;
	uint64_t next;			/* number of the next collective */
	uint64_t p2p[2][64];		/* of the next receive, send; by peer */
	unsigned int plans;
	bool shrunk;
};

struct mock_plan {
	struct mock_rank *rank;
	uint32_t rank_id;
	struct npulink_call call;
	uint32_t nslots, nsteps;
	struct npulink_slot *slots;
	struct npulink_step *steps;
	bool p2p, p2p_send;
	uint32_t peer;
	unsigned int inflight;
};

struct mock_op {
	struct mock_file *file;
	struct mock_plan *plan;
	uint64_t seq, number, cookie;
	unsigned char *slot[NPULINK_MAX_SLOTS];
	struct mock_buf *buf[NPULINK_MAX_SLOTS];
	bool held, done, live;
	int status;
	unsigned char *state;		/* of each step: 0, 1 (offered), 2 (done) */
	unsigned char **out;
};

enum { MOCK_BUF = 1, MOCK_RANK, MOCK_PLAN };

struct mock_file {
	int fd;
	pid_t pid;
	unsigned char *arena, *alloc;
	size_t alloc_used;
	struct npulink_ring *ring;
	size_t ring_len;
	unsigned int inflight;
	uint64_t seq;
	struct { int type; void *object; } id[MOCK_IDS];
	uint32_t next_id;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct mock_file files[MOCK_FILES];
	struct mock_comm *comms;
	struct mock_op ops[MOCK_OPS];
	unsigned int calls[32];
	/* What to do with the next calls of an ioctl. */
	struct { int rc; unsigned int skip, times; bool after; } fail[32];
	unsigned int max_inflight;
	size_t memlock, locked;
	uint32_t abi;
	uint64_t deadline_ns, slow_ns;	/* of the last post that was accepted */
} mock = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.cond = PTHREAD_COND_INITIALIZER,
	.max_inflight = 256,
	.memlock = SIZE_MAX,
	.abi = NPULINK_ABI_VERSION,
};

/* The next @times calls after @skip give -rc; @after: they are done all the same. */
static inline void mock_fail(unsigned long cmd, int rc, unsigned int skip, unsigned int times,
			     bool after)
{
	unsigned int nr = _IOC_NR(cmd);

	mock.fail[nr].rc = rc;
	mock.fail[nr].skip = skip;
	mock.fail[nr].times = times;
	mock.fail[nr].after = after;
}

static inline unsigned int mock_calls(unsigned long cmd)
{
	return mock.calls[_IOC_NR(cmd)];
}

/* ---- steps */

static inline void mock_reduce(void *dst, const void *a, const void *b, size_t len, int dtype,
			       int op)
{
#define MOCK_LOOP(type)								\
	for (size_t i = 0; i < len / sizeof(type); i++) {			\
		type x = ((const type *)a)[i], y = ((const type *)b)[i];	\
										\
		((type *)dst)[i] = op == NPULINK_SUM ? x + y :			\
				   op == NPULINK_PROD ? x * y :			\
				   op == NPULINK_MIN ? (x < y ? x : y) :	\
				   (x > y ? x : y);				\
	}
	switch (dtype) {
	case NPULINK_UINT8:
		MOCK_LOOP(uint8_t);
		break;
	case NPULINK_UINT32:
		MOCK_LOOP(uint32_t);
		break;
	case NPULINK_INT32:
		MOCK_LOOP(int32_t);
		break;
	case NPULINK_INT64:
		MOCK_LOOP(int64_t);
		break;
	case NPULINK_FLOAT32:
		MOCK_LOOP(float);
		break;
	case NPULINK_FLOAT64:
		MOCK_LOOP(double);
		break;
	default:
		abort();
	}
}

static inline void mock_divide(void *dst, size_t len, int dtype, uint32_t n)
{
#define MOCK_DIV(type)								\
	for (size_t i = 0; i < len / sizeof(type); i++)				\
		((type *)dst)[i] /= (type)n
	switch (dtype) {
	case NPULINK_UINT8:
		MOCK_DIV(uint8_t);
		break;
	case NPULINK_UINT32:
		MOCK_DIV(uint32_t);
		break;
	case NPULINK_INT32:
		MOCK_DIV(int32_t);
		break;
	case NPULINK_INT64:
		MOCK_DIV(int64_t);
		break;
	case NPULINK_FLOAT32:
		MOCK_DIV(float);
		break;
	case NPULINK_FLOAT64:
		MOCK_DIV(double);
		break;
	default:
		abort();
	}
}

static inline bool mock_ready(const struct mock_op *op, uint32_t i)
{
	const struct npulink_step *s = &op->plan->steps[i];

	if (s->flags & NPULINK_STEP_F_CHAIN && op->state[i - 1] != 2)
		return false;
	for (int d = 0; d < NPULINK_STEP_DEPS; d++)
		if (s->dep[d] && op->state[i - s->dep[d]] != 2)
			return false;
	for (uint32_t k = 0; s->flags & NPULINK_STEP_F_DRAIN && k < i; k++)
		if (op->state[k] != 2)
			return false;
	return true;
}

/* The step of the sender that meets step i of op. */
static inline uint32_t mock_match(const struct mock_op *op, uint32_t i, const struct mock_op *from)
{
	const struct npulink_step *s = &op->plan->steps[i];
	uint32_t k = 0;

	for (uint32_t j = 0; j < i; j++) {
		const struct npulink_step *e = &op->plan->steps[j];

		k += e->op & NPULINK_STEP_RECV && e->recv_peer == s->recv_peer &&
		     e->channel == s->channel;
	}
	for (uint32_t j = 0; j < from->plan->nsteps; j++) {
		const struct npulink_step *e = &from->plan->steps[j];

		if (e->op & NPULINK_STEP_SEND && e->send_peer == op->plan->rank->rank &&
		    e->channel == s->channel && !k--) {
			if (e->len != s->len)
				abort();
			return j;
		}
	}
	abort();
}

static inline bool mock_step(struct mock_op **set, struct mock_op *op, uint32_t i)
{
	const struct npulink_step *s = &op->plan->steps[i];
	const unsigned char *in = NULL, *src = op->slot[s->src_slot] + s->src_off;
	struct mock_op *from = NULL;
	unsigned char *result;
	uint32_t match = 0;

	if (op->state[i] || !mock_ready(op, i))
		return false;
	if (s->op & NPULINK_STEP_RECV) {
		from = set[s->recv_peer];
		match = mock_match(op, i, from);
		if (from->state[match] != 1)
			return false;
		in = from->out[match];
	}
	result = malloc(s->len + 1);
	if (!s->len)
		;	/* a message without payload has no buffers */
	else if (s->op == NPULINK_STEP_SEND || s->op & NPULINK_STEP_COPY)
		memcpy(result, src, s->len);
	else if (s->op & NPULINK_STEP_REDUCE)
		mock_reduce(result, src, in ? in : op->slot[s->src2_slot] + s->src2_off, s->len,
			    s->dtype, s->redop);
	else if (in)
		memcpy(result, in, s->len);
	if (s->flags & NPULINK_STEP_F_DIV)
		mock_divide(result, s->len, s->dtype, op->plan->rank->comm->nranks);
	if (s->len && s->op && s->op != NPULINK_STEP_SEND && !(s->flags & NPULINK_STEP_F_TRANSIENT))
		memcpy(op->slot[s->dst_slot] + s->dst_off, result, s->len);
	if (from) {
		free(from->out[match]);
		from->out[match] = NULL;
		from->state[match] = 2;
	}
	if (s->op & NPULINK_STEP_SEND) {
		op->out[i] = result;
		op->state[i] = 1;
	} else {
		free(result);
		op->state[i] = 2;
	}
	return true;
}

static inline void mock_end(struct mock_op *op, int status)
{
	struct mock_file *file = op->file;

	op->status = status;
	op->done = true;
	op->plan->inflight--;
	file->inflight--;
	for (uint32_t i = 0; i < op->plan->nslots; i++)
		if (op->buf[i])
			op->buf[i]->users--;
	if (!op->held) {
		struct npulink_ring *ring = file->ring;

		ring->records[ring->head & (ring->entries - 1)] = (struct npulink_result) {
			.seq = op->seq, .cookie = op->cookie, .status = status,
		};
		__atomic_store_n(&ring->head, ring->head + 1, __ATOMIC_RELEASE);
		op->live = false;
	}
	pthread_cond_broadcast(&mock.cond);
}

/* All ranks of the set have posted: run them against each other. */
static inline void mock_run_set(struct mock_op **set, uint32_t nranks)
{
	bool progress = true, left = false;

	for (uint32_t r = 0; r < nranks; r++) {
		if (!set[r])
			continue;
		set[r]->state = calloc(set[r]->plan->nsteps + 1, 1);
		set[r]->out = calloc(set[r]->plan->nsteps + 1, sizeof(void *));
	}
	while (progress) {
		progress = false;
		left = false;
		for (uint32_t r = 0; r < nranks; r++) {
			for (uint32_t i = 0; set[r] && i < set[r]->plan->nsteps; i++) {
				progress |= mock_step(set, set[r], i);
				left |= set[r]->state[i] != 2;
			}
		}
	}
	if (left) {
		fprintf(stderr, "# mock: the plans wait for each other\n");
		abort();
	}
	for (uint32_t r = 0; r < nranks; r++) {
		if (!set[r])
			continue;
		free(set[r]->state);
		free(set[r]->out);
		mock_end(set[r], 0);
	}
}

static inline void mock_comm_fail(struct mock_comm *comm, uint32_t cause, int status,
				  uint32_t rank, uint32_t peer, uint64_t number)
{
	if (comm->cause)
		return;
	comm->cause = cause;
	comm->status = status;
	comm->rank = rank;
	comm->peer = peer;
	comm->number = number;
	for (int i = 0; i < MOCK_OPS; i++) {
		struct mock_op *op = &mock.ops[i];

		if (op->live && !op->done && op->plan->rank->comm == comm)
			mock_end(op, status);
	}
}

static inline struct mock_op *mock_posted(struct mock_rank *rank, uint64_t number, bool p2p,
					  bool send, uint32_t peer)
{
	for (int i = 0; rank && i < MOCK_OPS; i++) {
		struct mock_op *op = &mock.ops[i];

		if (op->live && !op->done && op->plan->rank == rank && op->number == number &&
		    op->plan->p2p == p2p &&
		    (!p2p || (op->plan->p2p_send == send && op->plan->peer == peer)))
			return op;
	}
	return NULL;
}

/* Runs the operation if this was the last rank that it needed. */
static inline void mock_try(struct mock_op *op)
{
	struct mock_comm *comm = op->plan->rank->comm;
	uint32_t me = op->plan->rank->rank;
	struct mock_op *set[64] = { };

	if (op->plan->p2p) {
		set[me] = op;
		set[op->plan->peer] = mock_posted(comm->ranks[op->plan->peer], op->number, true,
						  !op->plan->p2p_send, me);
		if (!set[op->plan->peer])
			return;
	} else {
		for (uint32_t r = 0; r < comm->nranks; r++)
			set[r] = mock_posted(comm->ranks[r], op->number, false, false, 0);
	}
	for (uint32_t r = 0; r < comm->nranks; r++) {
		if (!set[r] || r == me ||
		    !memcmp(&set[r]->plan->call, &op->plan->call, sizeof(op->plan->call)))
			continue;
		comm->calls[0] = op->plan->call;
		comm->calls[1] = set[r]->plan->call;
		mock_comm_fail(comm, NPULINK_CAUSE_MISMATCH, -EPROTO, me, r, op->number);
		return;
	}
	for (uint32_t r = 0; r < comm->nranks; r++)
		if (!set[r] && !op->plan->p2p)
			return;
	mock_run_set(set, comm->nranks);
}

/* ---- objects */

static inline uint32_t mock_id(struct mock_file *file, int type, void *object)
{
	for (uint32_t n = 0; n < MOCK_IDS; n++) {
		uint32_t id = file->next_id++ % (MOCK_IDS - 1) + 1;

		if (!file->id[id].type) {
			file->id[id].type = type;
			file->id[id].object = object;
			return id;
		}
	}
	abort();
}

static inline void *mock_object(struct mock_file *file, uint32_t id, int type)
{
	return id < MOCK_IDS && file->id[id].type == type ? file->id[id].object : NULL;
}

/* Is any of it mapped from the device? The kernel refuses that, as other files' mappings. */
static inline bool mock_mapped(uint64_t from, uint64_t to)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned long start, end;
	bool mapped = false;
	char line[512];

	while (maps && !mapped && fgets(line, sizeof(line), maps))
		mapped = sscanf(line, "%lx-%lx", &start, &end) == 2 && start < to && end > from &&
			 strstr(line, "/memfd:npu ");
	if (maps)
		fclose(maps);
	return mapped;
}

static inline int mock_buf_register(struct mock_file *file, struct npulink_buf_register *arg)
{
	struct mock_buf *buf;
	unsigned char vec[1];

	if (!arg->len)
		return -EINVAL;
	if (mincore((void *)(arg->addr & ~4095ULL), 1, vec))
		return -EFAULT;
	if (mock_mapped(arg->addr, arg->addr + arg->len))
		return -EOPNOTSUPP;
	if (mock.locked + arg->len > mock.memlock)
		return -ENOMEM;
	mock.locked += arg->len;
	buf = calloc(1, sizeof(*buf));
	buf->mem = (unsigned char *)arg->addr;
	buf->len = arg->len;
	buf->registered = true;
	buf->readonly = arg->flags & NPULINK_BUF_READONLY;
	arg->out_id = mock_id(file, MOCK_BUF, buf);
	return 0;
}

static inline int mock_buf_alloc(struct mock_file *file, struct npulink_buf_alloc *arg)
{
	size_t len = (arg->len + 4095) & ~4095ULL;
	struct mock_buf *buf = calloc(1, sizeof(*buf));

	if (!file->alloc)
		file->alloc = mmap(NULL, 1UL << 30, PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_NORESERVE, file->fd, MOCK_ALLOC_AT);
	buf->mem = file->alloc + file->alloc_used;
	buf->len = len;
	arg->out_mmap_offset = MOCK_ALLOC_AT + file->alloc_used;
	file->alloc_used += len;
	arg->out_id = mock_id(file, MOCK_BUF, buf);
	return 0;
}

static inline int mock_comm_create(struct mock_file *file, struct npulink_comm_create *arg)
{
	struct mock_comm *comm;
	struct mock_rank *rank;

	for (comm = mock.comms; comm; comm = comm->next)
		if (!memcmp(comm->secret, arg->secret, 16))
			break;
	if (!comm) {
		comm = calloc(1, sizeof(*comm));
		memcpy(comm->secret, arg->secret, 16);
		comm->nranks = arg->nranks;
		comm->next = mock.comms;
		mock.comms = comm;
	}
	if (comm->nranks != arg->nranks)
		return -EINVAL;
	if (comm->ranks[arg->rank])
		return -EEXIST;
	if (comm->cause)
		return comm->status;
	rank = calloc(1, sizeof(*rank));
	rank->comm = comm;
	rank->file = file;
	rank->rank = arg->rank;
	comm->ranks[arg->rank] = rank;
	comm->peer_timeout_ms = arg->peer_timeout_ms;
	comm->joined++;
	arg->out_id = mock_id(file, MOCK_RANK, rank);
	return 0;
}

static inline int mock_comm_status(struct mock_file *file, struct npulink_comm_status *arg)
{
	struct mock_rank *rank = mock_object(file, arg->comm_id, MOCK_RANK);

	if (!rank)
		return -ENOENT;
	arg->out_joined = rank->comm->joined;
	arg->out_cause = rank->comm->cause;
	arg->out_status = rank->comm->status;
	arg->out_rank = rank->comm->rank;
	arg->out_peer = rank->comm->peer;
	arg->out_code = rank->comm->code;
	arg->out_step = rank->comm->step - 1;
	arg->out_number = rank->comm->number;
	arg->out_next = rank->next;
	memcpy(arg->out_calls, rank->comm->calls, sizeof(arg->out_calls));
	memcpy(arg->out_peer_ip, rank->comm->ip, sizeof(arg->out_peer_ip));
	memcpy(arg->out_port, rank->comm->port, sizeof(arg->out_port));
	return 0;
}

/* Who had not left when the first of them asked. */
static inline struct mock_comm *mock_survivors(struct mock_comm *comm)
{
	struct mock_comm *new = comm->survivors;

	if (new)
		return new;
	new = calloc(1, sizeof(*new));
	memcpy(new->secret, &new, sizeof(new));
	for (uint32_t i = 0; i < comm->nranks; i++)
		if (comm->ranks[i])
			new->map[new->nranks++] = i;
	new->next = mock.comms;
	mock.comms = new;
	comm->survivors = new;
	return new;
}

static inline int mock_comm_shrink(struct mock_file *file, struct npulink_comm_shrink *arg)
{
	struct mock_rank *old = mock_object(file, arg->comm_id, MOCK_RANK), *rank;
	struct mock_comm *new;

	if (!old)
		return -ENOENT;
	if (!old->comm->cause)
		return -EINVAL;
	if (old->shrunk)
		return -EEXIST;
	old->shrunk = true;
	new = mock_survivors(old->comm);
	rank = calloc(1, sizeof(*rank));
	rank->comm = new;
	rank->file = file;
	while (new->map[rank->rank] != old->rank)
		rank->rank++;
	new->ranks[rank->rank] = rank;
	new->joined++;
	memcpy((void *)arg->map, new->map, new->nranks * sizeof(*new->map));
	arg->out_rank = rank->rank;
	arg->out_nranks = new->nranks;
	arg->out_id = mock_id(file, MOCK_RANK, rank);
	return 0;
}

static inline void *mock_copy(uint64_t from, size_t len)
{
	void *p = malloc(len + 1);

	if (len)
		memcpy(p, (void *)from, len);
	return p;
}

static inline int mock_plan_create(struct mock_file *file, struct npulink_plan_create *arg)
{
	struct mock_rank *rank = mock_object(file, arg->comm_id, MOCK_RANK);
	struct npulink_plan_desc desc;
	struct npulink_verdict verdict;
	struct mock_plan *plan;

	if (!rank)
		return -ENOENT;
	desc = (struct npulink_plan_desc) {
		.call = &arg->call, .nranks = rank->comm->nranks, .rank = rank->rank,
		.nslots = arg->nslots, .slots = (void *)arg->slots,
		.nsteps = arg->nsteps, .steps = (void *)arg->steps,
	};
	if (npulink_verify(&desc, &verdict) || npulink_verify_races(&desc, &verdict)) {
		arg->out_bad_step = verdict.step;
		arg->out_reason = verdict.reason;
		return -EINVAL;
	}
	plan = calloc(1, sizeof(*plan));
	plan->rank = rank;
	plan->rank_id = arg->comm_id;
	plan->call = arg->call;
	plan->nslots = arg->nslots;
	plan->nsteps = arg->nsteps;
	plan->slots = mock_copy(arg->slots, arg->nslots * sizeof(*plan->slots));
	plan->steps = mock_copy(arg->steps, arg->nsteps * sizeof(*plan->steps));
	plan->p2p = arg->call.collective == NPULINK_COLL_P2P;
	plan->p2p_send = plan->p2p && plan->nsteps && plan->steps[0].op & NPULINK_STEP_SEND;
	if (plan->p2p && plan->nsteps)
		plan->peer = plan->p2p_send ? plan->steps[0].send_peer : plan->steps[0].recv_peer;
	rank->plans++;
	arg->out_id = mock_id(file, MOCK_PLAN, plan);
	return 0;
}

static inline int mock_destroy(struct mock_file *file, struct npulink_destroy *arg)
{
	void *object = arg->id && arg->id < MOCK_IDS ? file->id[arg->id].object : NULL;

	if (!object)
		return -ENOENT;
	switch (file->id[arg->id].type) {
	case MOCK_BUF: {
		struct mock_buf *buf = object;

		if (buf->registered)
			mock.locked -= buf->len;
		break;	/* leaked if in use */
	}
	case MOCK_PLAN: {
		struct mock_plan *plan = object;

		if (plan->inflight)
			return -EBUSY;
		plan->rank->plans--;
		free(plan->slots);
		free(plan->steps);
		break;
	}
	case MOCK_RANK: {
		struct mock_rank *rank = object;

		if (rank->plans)
			return -EBUSY;
		rank->comm->ranks[rank->rank] = NULL;
		rank->comm->joined--;
		break;
	}
	}
	file->id[arg->id].type = 0;
	file->id[arg->id].object = NULL;
	free(object);
	return 0;
}

/* ---- operations */

static inline int mock_bind(struct mock_file *file, struct mock_op *op,
			    const struct npulink_post *post)
{
	for (uint32_t i = 0; i < post->nbinds; i++) {
		const struct npulink_bind *b = &post->inline_binds[i];
		const struct npulink_slot *s = &op->plan->slots[i];
		struct mock_buf *buf = NULL;

		if (!s->access)
			continue;
		if (b->buf_id) {
			buf = mock_object(file, b->buf_id, MOCK_BUF);
			if (!buf)
				return -ENOENT;
			if (b->len < s->min_len || b->off + b->len > buf->len)
				return -ERANGE;
			if (buf->stale)
				return -ESTALE;
			if (buf->readonly && s->access & NPULINK_SLOT_WRITE)
				return -EACCES;
			op->slot[i] = buf->mem + b->off;
			op->buf[i] = buf;
		} else {
			op->slot[i] = file->arena + b->off;
		}
	}
	return 0;
}

static inline int mock_post(struct mock_file *file, struct npulink_post *post, bool held,
			    struct mock_op **opp)
{
	struct mock_plan *plan = mock_object(file, post->plan_id, MOCK_PLAN);
	struct mock_op *op = NULL;
	int rc;

	if (!plan)
		return -ENOENT;
	if (post->size != sizeof(*post) || post->nbinds != plan->nslots || post->in_fence != -1 ||
	    post->out_fence != -1 || (post->nbinds <= 3 && post->binds))
		return -EINVAL;
	if (plan->rank->comm->cause)
		return plan->rank->comm->status;
	if (!held && !file->ring)
		return -ENOTCONN;
	if (file->inflight >= mock.max_inflight)
		return -EBUSY;
	if (!held && file->inflight + file->ring->head - file->ring->tail >= file->ring->entries)
		return -EBUSY;
	for (int i = 0; i < MOCK_OPS && !op; i++)
		if (!mock.ops[i].live)
			op = &mock.ops[i];
	if (!op)
		return -EBUSY;
	*op = (struct mock_op) { .file = file, .plan = plan, .cookie = post->cookie, .held = held };
	rc = mock_bind(file, op, post);
	if (rc)
		return rc;
	op->live = true;
	for (uint32_t i = 0; i < plan->nslots; i++)
		if (op->buf[i])
			op->buf[i]->users++;
	op->seq = ++file->seq;
	post->out_seq = op->seq;
	mock.deadline_ns = post->deadline_ns;
	mock.slow_ns = post->slow_ns;
	op->number = plan->p2p ? plan->rank->p2p[plan->p2p_send][plan->peer]++ : plan->rank->next++;
	plan->inflight++;
	file->inflight++;
	mock_try(op);
	*opp = op;
	return 0;
}

static inline void mock_result(struct mock_op *op, struct npulink_result *result)
{
	*result = (struct npulink_result) {
		.seq = op->seq, .cookie = op->cookie, .status = op->status,
	};
	if (op->held)
		op->live = false;
}

/* Waits until it is done, or until the time. */
static inline int mock_wait_op(struct mock_op *op, uint64_t seq, uint64_t until_ns)
{
	struct timespec ts;

	while (op->seq == seq && op->live && !op->done) {
		if (!until_ns)
			return -ETIME;
		if (until_ns == ~0ULL) {
			pthread_cond_wait(&mock.cond, &mock.lock);
			continue;
		}
		clock_gettime(CLOCK_MONOTONIC, &ts);
		if (ts.tv_sec * 1000000000ULL + ts.tv_nsec >= until_ns)
			return -ETIME;
		pthread_mutex_unlock(&mock.lock);
		usleep(1000);
		pthread_mutex_lock(&mock.lock);
	}
	return 0;
}

static inline int mock_wait(struct mock_file *file, struct npulink_wait *arg)
{
	struct mock_op *op = NULL;
	int rc;

	for (int i = 0; i < MOCK_OPS; i++)
		if (mock.ops[i].live && mock.ops[i].file == file && mock.ops[i].seq == arg->seq)
			op = &mock.ops[i];
	if (!op)
		return -ENOENT;
	rc = mock_wait_op(op, arg->seq, arg->wait_until_ns);
	if (!rc)
		mock_result(op, &arg->out_result);
	return rc;
}

static inline int mock_post_ioctl(struct mock_file *file, struct npulink_post *post,
				  int interrupt)
{
	bool wait = post->flags & NPULINK_POST_WAIT;
	struct mock_op *op;
	int rc = mock_post(file, post, post->flags & (NPULINK_POST_WAIT | NPULINK_POST_HELD), &op);

	if (rc || !wait)
		return rc;
	if (interrupt)
		return interrupt;
	rc = mock_wait_op(op, post->out_seq, post->wait_until_ns);
	if (!rc)
		mock_result(op, &post->out_result);
	return rc;
}

static inline int mock_batch_ioctl(struct mock_file *file, struct npulink_post_batch *arg,
				   int interrupt)
{
	struct npulink_post *posts = (void *)arg->posts;
	bool wait = arg->flags & NPULINK_POST_WAIT;
	struct mock_op *ops[NPULINK_MAX_BATCH];
	int rc = 0;
	uint32_t i;

	for (i = 0; i < arg->nposts; i++) {
		/* Scripted refusals of single posts count as well. */
		if (mock.fail[31].times && !mock.fail[31].skip--) {
			mock.fail[31].times--;
			rc = mock.fail[31].rc;
			break;
		}
		rc = mock_post(file, &posts[i], wait || posts[i].flags & NPULINK_POST_HELD,
			       &ops[i]);
		if (rc)
			break;
	}
	arg->out_posted = i;
	if (rc || !wait)
		return rc;
	if (interrupt)
		return interrupt;
	for (i = 0; i < arg->nposts; i++) {
		mock_wait_op(ops[i], posts[i].out_seq, ~0ULL);
		mock_result(ops[i], &posts[i].out_result);
	}
	return 0;
}

static inline int mock_ring_setup(struct mock_file *file, struct npulink_ring_setup *arg)
{
	size_t len = sizeof(struct npulink_ring) + arg->entries * sizeof(struct npulink_result);

	if (file->ring)
		return -EEXIST;
	len = (len + 4095) & ~4095UL;
	file->ring = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd,
			  NPULINK_MMAP_RING);
	file->ring->entries = arg->entries;
	file->ring_len = len;
	arg->out_len = len;
	return 0;
}

static inline int mock_abort(struct mock_file *file, struct npulink_comm_abort *arg)
{
	struct mock_rank *rank = mock_object(file, arg->comm_id, MOCK_RANK);

	if (!rank)
		return -ENOENT;
	rank->comm->code = arg->code;
	mock_comm_fail(rank->comm, NPULINK_CAUSE_ABORT, -ECANCELED, rank->rank, NPULINK_NO_PEER,
		       ~0ULL);
	return 0;
}

static inline int mock_dispatch(struct mock_file *file, unsigned long cmd, void *arg, int interrupt)
{
	if (file->pid != getpid() && cmd != NPULINK_WAIT && cmd != NPULINK_DEVICE_INFO)
		return -EPERM;
	switch (cmd) {
	case NPULINK_DEVICE_INFO:
		*(struct npulink_device_info *)arg = (struct npulink_device_info) {
			.size = sizeof(struct npulink_device_info),
			.out_abi_version = mock.abi,
			.out_max_steps = NPULINK_MAX_STEPS,
			.out_max_ranks = 64,
			.out_max_channels = 64,
			.out_max_inflight = mock.max_inflight,
			.out_max_arena = 1 << 20,
			.out_dtypes = (1 << NPULINK_DTYPES) - 1,
			.out_redops = (1 << NPULINK_REDOPS) - 1,
			.out_name = "npu0",
			.out_backend = "mock",
			.out_version = "0.0.1",
		};
		return 0;
	case NPULINK_BUF_REGISTER:
		return mock_buf_register(file, arg);
	case NPULINK_BUF_ALLOC:
		return mock_buf_alloc(file, arg);
	case NPULINK_COMM_CREATE:
		return mock_comm_create(file, arg);
	case NPULINK_COMM_ABORT:
		return mock_abort(file, arg);
	case NPULINK_COMM_SHRINK:
		return mock_comm_shrink(file, arg);
	case NPULINK_COMM_STATUS:
		return mock_comm_status(file, arg);
	case NPULINK_PLAN_CREATE:
		return mock_plan_create(file, arg);
	case NPULINK_POST:
		return mock_post_ioctl(file, arg, interrupt);
	case NPULINK_POST_BATCH:
		return mock_batch_ioctl(file, arg, interrupt);
	case NPULINK_WAIT:
		return mock_wait(file, arg);
	case NPULINK_RING_SETUP:
		return mock_ring_setup(file, arg);
	case NPULINK_DESTROY:
		return mock_destroy(file, arg);
	default:
		return -ENOTTY;
	}
}

/* ---- what the library calls */

int open(const char *path, int flags, ...)
{
	struct mock_file *file = NULL;
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
	va_end(ap);
	if (strncmp(path, "/dev/npulink/npu", 16))
		return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
	pthread_mutex_lock(&mock.lock);
	for (int i = 0; i < MOCK_FILES && !file; i++)
		if (!mock.files[i].pid)
			file = &mock.files[i];
	memset(file, 0, sizeof(*file));
	file->fd = memfd_create("npu", MFD_CLOEXEC);
	file->pid = getpid();
	if (ftruncate(file->fd, MOCK_FILE_LEN))
		abort();
	file->arena = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
	pthread_mutex_unlock(&mock.lock);
	return file->fd;
}

/* What the kernel does when a file goes. */
int close(int fd)
{
	pthread_mutex_lock(&mock.lock);
	for (int i = 0; i < MOCK_FILES; i++) {
		struct mock_file *file = &mock.files[i];

		if (!file->pid || file->fd != fd || file->pid != getpid())
			continue;
		for (uint32_t type = MOCK_PLAN; type; type--) {
			for (uint32_t id = 1; id < MOCK_IDS; id++) {
				struct npulink_destroy arg = { .id = id };

				if (file->id[id].type == (int)type)
					mock_destroy(file, &arg);
			}
		}
		munmap(file->arena, 1 << 20);
		if (file->alloc)
			munmap(file->alloc, 1UL << 30);
		if (file->ring)
			munmap(file->ring, file->ring_len);
		memset(file, 0, sizeof(*file));
	}
	pthread_mutex_unlock(&mock.lock);
	return syscall(SYS_close, fd);
}

int ioctl(int fd, unsigned long cmd, ...)
{
	unsigned int nr = _IOC_NR(cmd);
	struct mock_file *file = NULL;
	int rc = 0, interrupt = 0;
	va_list ap;
	void *arg;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	/* Other libraries are in the program, too. */
	if (_IOC_TYPE(cmd) != NPULINK_TYPE)
		return syscall(SYS_ioctl, fd, cmd, arg);
	pthread_mutex_lock(&mock.lock);
	mock.calls[nr]++;
	for (int i = 0; i < MOCK_FILES; i++)
		if (mock.files[i].pid && mock.files[i].fd == fd)
			file = &mock.files[i];
	if (mock.fail[nr].times && (!mock.fail[nr].skip || !mock.fail[nr].skip--)) {
		mock.fail[nr].times--;
		if (mock.fail[nr].after)
			interrupt = mock.fail[nr].rc;
		else
			rc = mock.fail[nr].rc;
	}
	if (!rc)
		rc = file ? mock_dispatch(file, cmd, arg, interrupt) : -EBADF;
	pthread_mutex_unlock(&mock.lock);
	errno = -rc;
	return rc ? -1 : 0;
}

#endif /* MOCK_H */
