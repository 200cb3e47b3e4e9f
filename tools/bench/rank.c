// SPDX-License-Identifier: GPL-2.0
/*
 * rank.c - one rank of npulink bench: a process that goes through all rows
 * of the table, in both modes, and leaves its results in shared memory.
 *
 * Ranks meet in a barrier of their own, not in libcoll's, so that what is
 * measured does not depend on what is measured. Those of several machines have nothing
 * else than libcoll to meet by, or to tell each other their results.
 */
#include <errno.h>
#include <linux/futex.h>
#include <linux/npulink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "bench/bench.h"
#include "lib/run/comm.h"

#define GUARD	256	/* bytes after a buffer that nobody may touch */
#define POISON	0xa5

/* Both buffers of a rank. */
struct bufs {
	uint8_t *send, *recv;
	size_t send_len, recv_len;	/* without the guard */
};

struct self {
	const struct bench *b;
	const struct bench_map *map;
	struct bench_data *data;
	struct coll_comm *comm;
	uint32_t rank;
	size_t size;		/* of an element */
	struct bufs bufs;
};

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

/* On this machine. Returns false if the parent wants us to end. */
static bool meet(const struct self *self)
{
	static const struct timespec tick = { .tv_nsec = 100 * 1000 * 1000 };
	struct bench_shared *shared = self->map->shared;
	unsigned int round = atomic_load(&shared->round);

	if (atomic_fetch_add(&shared->arrived, 1) + 1 == self->b->local) {
		atomic_store(&shared->arrived, 0);
		atomic_store(&shared->round, round + 1);
		syscall(SYS_futex, &shared->round, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
		return true;
	}
	while (atomic_load(&shared->round) == round) {
		if (atomic_load(&shared->stop))
			return false;
		syscall(SYS_futex, &shared->round, FUTEX_WAIT, round, &tick, NULL, 0);
	}
	return true;
}

/* Of all ranks. */
static bool barrier(const struct self *self)
{
	return meet(self) && (self->b->nnodes == 1 || !coll_barrier(self->comm));
}

/* Have @len bytes of each rank; the first one of each machine leaves them at @all. */
static int gather(const struct self *self, const void *mine, void *all, size_t len)
{
	size_t total = len * self->b->nranks;
	void *got = malloc(total);
	int rc = -ENOMEM;

	if (got)
		rc = coll_allgather(self->comm, mine, got, len, COLL_UINT8);
	if (!rc && self->rank == self->b->first)
		memcpy(all, got, total);
	free(got);
	return rc;
}

static int failed(struct self *self, uint32_t row, uint32_t mode, int error, const char *text)
{
	struct bench_rank *me = &self->map->shared->ranks[self->rank];

	me->row = row;
	me->mode = mode;
	me->error = error;
	snprintf(me->text, sizeof(me->text), "%s", text && *text ? text : coll_strerror(error));
	me->failed = true;
	return error;
}

/* Where in the large buffer the data of the own rank is, or goes. */
static uint8_t *own_shard(const struct self *self, uint8_t *large, uint64_t count)
{
	return large + self->rank * count * self->size;
}

static bool is_root(const struct self *self)
{
	return self->rank == self->b->root;
}

/* One operation. */
static int run(struct self *self, uint64_t count, bool in_place)
{
	const struct bench *b = self->b;
	struct coll_comm *comm = self->comm;
	void *send = self->bufs.send, *recv = self->bufs.recv;
	int rc;

	switch (b->coll->id) {
	case NPULINK_COLL_ALLREDUCE:
		return coll_allreduce(comm, in_place ? COLL_IN_PLACE : send, recv, count, b->dtype,
				      b->op);
	case NPULINK_COLL_REDUCE:
		return coll_reduce(comm, in_place ? COLL_IN_PLACE : send, recv, count, b->dtype,
				   b->op, b->root);
	case NPULINK_COLL_BROADCAST:
		return coll_broadcast(comm, in_place ? COLL_IN_PLACE : send, recv, count, b->dtype,
				      b->root);
	case NPULINK_COLL_ALLGATHER:
		return coll_allgather(comm, in_place ? COLL_IN_PLACE : send, recv, count, b->dtype);
	case NPULINK_COLL_REDUCE_SCATTER:
		return coll_reduce_scatter(comm, send, in_place ? COLL_IN_PLACE : recv, count,
					   b->dtype, b->op);
	case NPULINK_COLL_ALLTOALL:
		return coll_alltoall(comm, in_place ? COLL_IN_PLACE : send, recv, count, b->dtype);
	case NPULINK_COLL_GATHER:
		return coll_gather(comm, in_place && is_root(self) ? COLL_IN_PLACE : send, recv,
				   count, b->dtype, b->root);
	case NPULINK_COLL_SCATTER:
		return coll_scatter(comm, send, in_place && is_root(self) ? COLL_IN_PLACE : recv,
				    count, b->dtype, b->root);
	case NPULINK_COLL_BARRIER:
		return coll_barrier(comm);
	default:
		rc = coll_group_start(comm);
		if (rc)
			return rc;
		coll_send(comm, send, count, b->dtype, (self->rank + 1) % b->nranks);
		coll_recv(comm, recv, count, b->dtype,
			  (self->rank + b->nranks - 1) % b->nranks);
		return coll_group_end(comm);
	}
}

/* Elements of the two buffers that an operation uses. */
static void elements(const struct bench *b, uint64_t count, uint64_t *send, uint64_t *recv)
{
	*send = count;
	*recv = count;
	switch (b->coll->id) {
	case NPULINK_COLL_ALLTOALL:
		*send = count * b->nranks;
		*recv = count * b->nranks;
		break;
	case NPULINK_COLL_REDUCE_SCATTER:
	case NPULINK_COLL_SCATTER:
		*send = count * b->nranks;
		break;
	case NPULINK_COLL_ALLGATHER:
	case NPULINK_COLL_GATHER:
		*recv = count * b->nranks;
		break;
	}
}

/* Input in place, everything else poisoned. */
static void prepare(struct self *self, uint64_t count, bool in_place, uint64_t shift)
{
	const struct bufs *bufs = &self->bufs;
	uint8_t *input = bufs->send;
	uint64_t nsend, nrecv;

	elements(self->b, count, &nsend, &nrecv);
	memset(bufs->send, POISON, nsend * self->size + GUARD);
	memset(bufs->recv, POISON, nrecv * self->size + GUARD);
	if (in_place) {
		switch (self->b->coll->id) {
		case NPULINK_COLL_ALLREDUCE:
		case NPULINK_COLL_REDUCE:
		case NPULINK_COLL_BROADCAST:
		case NPULINK_COLL_ALLTOALL:
			input = bufs->recv;
			break;
		case NPULINK_COLL_ALLGATHER:
			input = own_shard(self, bufs->recv, count);
			break;
		case NPULINK_COLL_GATHER:
			if (is_root(self))
				input = own_shard(self, bufs->recv, count);
			break;
		}
	}
	/* Only the root's input counts there; the others' must not be looked at. */
	if ((self->b->coll->id == NPULINK_COLL_BROADCAST ||
	     self->b->coll->id == NPULINK_COLL_SCATTER) && !is_root(self))
		return;
	bench_data_fill(self->data, self->rank, shift, input, 0, nsend);
}

static uint64_t check_guard(const uint8_t *end)
{
	uint64_t wrong = 0;

	for (int i = 0; i < GUARD; i++)
		wrong += end[i] != POISON;
	return wrong;
}

/* Elements that are wrong after an operation, and bytes that nobody should have touched. */
static uint64_t check(struct self *self, uint64_t count, bool in_place, uint64_t shift)
{
	const struct bench *b = self->b;
	const struct bufs *bufs = &self->bufs;
	struct bench_data *data = self->data;
	uint64_t nsend, nrecv, wrong = 0;
	const uint8_t *out = bufs->recv;
	uint32_t peer;

	elements(b, count, &nsend, &nrecv);
	wrong += check_guard(bufs->send + nsend * self->size);
	wrong += check_guard(bufs->recv + nrecv * self->size);

	switch (b->coll->id) {
	case NPULINK_COLL_ALLREDUCE:
		wrong += bench_data_check_reduced(data, shift, out, 0, count);
		break;
	case NPULINK_COLL_REDUCE:
		if (is_root(self))
			wrong += bench_data_check_reduced(data, shift, out, 0, count);
		break;
	case NPULINK_COLL_REDUCE_SCATTER:
		if (in_place)
			out = own_shard(self, bufs->send, count);
		wrong += bench_data_check_reduced(data, shift, out, self->rank * count, count);
		break;
	case NPULINK_COLL_BROADCAST:
		wrong += bench_data_check(data, b->root, shift, out, 0, count);
		break;
	case NPULINK_COLL_SCATTER:
		if (in_place && is_root(self))
			out = own_shard(self, bufs->send, count);
		wrong += bench_data_check(data, b->root, shift, out, self->rank * count, count);
		break;
	case NPULINK_COLL_GATHER:
		if (!is_root(self))
			break;
		__attribute__((fallthrough));
	case NPULINK_COLL_ALLGATHER:
		for (peer = 0; peer < b->nranks; peer++)
			wrong += bench_data_check(data, peer, shift,
						  out + peer * count * self->size, 0, count);
		break;
	case NPULINK_COLL_ALLTOALL:
		for (peer = 0; peer < b->nranks; peer++)
			wrong += bench_data_check(data, peer, shift,
						  out + peer * count * self->size,
						  self->rank * count, count);
		break;
	case BENCH_SENDRECV:
		peer = (self->rank + b->nranks - 1) % b->nranks;
		wrong += bench_data_check(data, peer, shift, out, 0, count);
		break;
	}
	/* What was to be sent must still be there. */
	if (!in_place && ((b->coll->id != NPULINK_COLL_BROADCAST &&
			   b->coll->id != NPULINK_COLL_SCATTER) || is_root(self)))
		wrong += bench_data_check(data, self->rank, shift, bufs->send, 0, nsend);
	return wrong;
}

static int measure(struct self *self, uint32_t row, uint32_t mode)
{
	const struct bench *b = self->b;
	struct bench_result *result = bench_result(b, self->map, row, mode, self->rank);
	double *times = bench_times(b, self->map, row, mode, self->rank);
	uint64_t count = b->rows[row].count;
	uint64_t shift = 17 * row + 5 * mode;
	double start, last, t;
	uint32_t i;
	int rc;

	prepare(self, count, mode, shift);
	for (i = 0; i < b->warmup; i++) {
		rc = run(self, count, mode);
		if (rc)
			return failed(self, row, mode, rc, coll_comm_last_error(self->comm));
	}
	if (!barrier(self))
		return -ECANCELED;
	start = now();
	last = start;
	for (i = 0; i < b->iters; i++) {
		rc = run(self, count, mode);
		if (rc)
			return failed(self, row, mode, rc, coll_comm_last_error(self->comm));
		if (times) {
			t = now();
			times[i] = t - last;
			last = t;
		}
	}
	result->seconds = (now() - start) / b->iters;
	if (!barrier(self))
		return -ECANCELED;
	/* No barrier: our buffers are ours again as soon as an operation returns. */
	for (i = 0; i < b->check; i++) {
		prepare(self, count, mode, shift + i);
		rc = run(self, count, mode);
		if (rc)
			return failed(self, row, mode, rc, coll_comm_last_error(self->comm));
		result->wrong += check(self, count, mode, shift + i);
	}
	if (b->nnodes == 1)
		return 0;
	rc = gather(self, result, bench_result(b, self->map, row, mode, 0), sizeof(*result));
	if (!rc && times)
		rc = gather(self, times, bench_times(b, self->map, row, mode, 0),
			    b->iters * sizeof(*times));
	return rc ? failed(self, row, mode, rc, coll_comm_last_error(self->comm)) : 0;
}

static void tell_choices(struct self *self)
{
	const struct bench *b = self->b;
	const char *name;

	for (uint32_t row = 0; row < b->nrows; row++) {
		struct bench_choice *choice = &self->map->choices[row];

		if (coll_comm_algorithm(self->comm, b->coll->name, b->rows[row].bytes, b->dtype,
					b->op, &name, &choice->predicted))
			return;
		snprintf(choice->algorithm, sizeof(choice->algorithm), "%s", name);
	}
}

/* In the host's memory; in the device's it takes a communicator. */
static uint8_t *buf_alloc(struct self *self, size_t len)
{
	void *addr;

	if (self->comm)
		return coll_mem_alloc(self->comm, COLL_MEMORY_DEVICE, len + GUARD, &addr) ? NULL :
		       addr;
	addr = mmap(NULL, len + GUARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return addr == MAP_FAILED ? NULL : addr;
}

static bool bufs_alloc(struct self *self)
{
	self->bufs.send = buf_alloc(self, self->bufs.send_len);
	self->bufs.recv = self->bufs.send ? buf_alloc(self, self->bufs.recv_len) : NULL;
	return self->bufs.recv;
}

static int tell_who(struct self *self, const struct bench_who *mine)
{
	uint32_t nranks = self->b->nranks;
	struct bench_who *all = calloc(nranks, sizeof(*all));
	int rc = all ? gather(self, mine, all, sizeof(*all)) : -ENOMEM;

	if (!rc && self->rank == self->b->first)
		for (uint32_t rank = 0; rank < nranks; rank++)
			self->map->shared->ranks[rank].who = all[rank];
	free(all);
	return rc ? failed(self, 0, 0, rc, coll_comm_last_error(self->comm)) : 0;
}

static int init(struct self *self)
{
	const struct bench *b = self->b;
	struct coll_config config = COLL_CONFIG_INIT;
	struct bench_who who = { };
	struct coll_comm_info info = COLL_COMM_INFO_INIT;
	uint64_t nsend, nrecv;
	char device[16], text[400] = "";
	int rc;

	elements(b, b->rows[b->nrows - 1].count, &nsend, &nrecv);
	self->size = coll_dtype_size(b->dtype);
	self->bufs.send_len = nsend * self->size;
	self->bufs.recv_len = nrecv * self->size;
	self->data = bench_data_new(b, self->rank);
	if (!self->data || (!b->device && !bufs_alloc(self)))
		return failed(self, 0, 0, -ENOMEM, "not enough memory for the buffers");

	who.pid = getpid();
	who.device = b->devices[self->rank - b->first];
	gethostname(who.host, sizeof(who.host) - 1);
	snprintf(device, sizeof(device), "npu%u", who.device);
	config.device = device;
	config.algorithm = b->override;
	config.error_text = text;
	config.error_size = sizeof(text);
	if (b->timeout >= 0)
		config.deadline_ns = b->timeout * 1e9;
	if (b->nnodes == 1)
		rc = coll_comm_init_rank(&self->comm, b->nranks, &self->map->shared->id,
					 self->rank, &config);
	else
		rc = meet_as(&self->comm, self->rank, b->nranks, &b->at, &config);
	if (rc)
		return failed(self, 0, 0, rc, text);
	if (b->device && !bufs_alloc(self))
		return failed(self, 0, 0, -ENOMEM, coll_comm_last_error(self->comm));
	coll_comm_info(self->comm, &info);
	memcpy(who.engine, info.engine, sizeof(who.engine));
	memcpy(who.backend, info.backend, sizeof(who.backend));
	self->map->shared->ranks[self->rank].who = who;
	if (!self->rank)
		tell_choices(self);
	return b->nnodes == 1 ? 0 : tell_who(self, &who);
}

int bench_rank_run(const struct bench *b, const struct bench_map *map, uint32_t rank, int fd)
{
	struct self self = { .b = b, .map = map, .rank = rank };
	uint32_t row, mode;
	int rc;

	rc = init(&self);
	if (!rc && !barrier(&self))
		rc = -ECANCELED;
	/* The parent prints who takes part. */
	if (!rc && write(fd, "", 1) != 1)
		rc = -EPIPE;
	for (row = 0; !rc && row < b->nrows; row++) {
		for (mode = 0; !rc && mode < (b->coll->in_place ? BENCH_MODES : 1); mode++)
			rc = measure(&self, row, mode);
		if (!rc && write(fd, "", 1) != 1)
			rc = -EPIPE;
	}
	/* Whoever leaves early is not missed, but it is better style. */
	if (!rc)
		barrier(&self);
	if (self.comm)
		coll_comm_destroy(self.comm);
	bench_data_free(self.data);
	return rc;
}
