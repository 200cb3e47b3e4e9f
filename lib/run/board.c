// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * board.c - small collectives without a system call: ranks of one machine
 * meet in memory that all of them can read. See linux/npulink_board.h, which has the
 * rules; board_reduce.c adds up.
 *
 * It is an attempt: who has waited a little for the others posts the operation, and then it
 * goes its usual way on all ranks. So whatever takes long is in the kernel, and what is
 * slow, hangs or fails is found there. Only the same bits come out as would have by the plan.
 *
 * One call, or group of calls, at a time, for which repeat.c sees.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/base.h"
#include "run/board.h"
#include "run/board_reduce.h"
#include "run/cache.h"
#include "run/comm.h"
#include "run/drv.h"
#include "run/op.h"
#include "run/request.h"

/* How long a rank looks for the others before it sleeps: about what that would cost it. */
#define SPIN_NS		20000
#define SPIN_LOOKS	64	/* looks at the flags per look at the clock */
/* And per relax(), which takes as long as many of them. */
#define RELAX_LOOKS	16
/* After so many times in vain, it sleeps at once for PAUSE_FIRST calls, then for twice as many. */
#define MISSES		4
#define PAUSE_FIRST	64
#define PAUSE_MAX	4096
/* Bytes of all ranks together that one of them, or each, adds up or copies. */
#define BYTES_MAX	16384
#define INTEGERS_MAX	65536
/* Times, a millisecond apart, that a call which is there is posted in vain for want of memory. */
#define PAUSES_MAX	10000
/* So often what cannot be posted until another thread is done is posted again at once. */
#define UNMET_LOOKS	16
/* Calls before the memory is made. */
#define WARM_UP		16

static inline void relax(void)
{
#ifdef __x86_64__
	__builtin_ia32_pause();
#else
	__asm__ volatile("" ::: "memory");
#endif
}

static uint64_t get(const __u64 *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static void set(__u64 *p, uint64_t value)
{
	__atomic_store_n(p, value, __ATOMIC_RELEASE);
}

/* ---- opening it */

static size_t page_align(size_t len)
{
	size_t page = sysconf(_SC_PAGESIZE);

	return (len + page - 1) & ~(page - 1);
}

static const struct npulink_board_rank *rank_of(const struct coll_board *b, uint32_t rank)
{
	return (const void *)(b->ranks + rank * b->stride);
}

static unsigned int longer(unsigned int *pause)
{
	*pause = *pause ? *pause * 2 : PAUSE_FIRST;
	if (*pause > PAUSE_MAX)
		*pause = PAUSE_MAX;
	return *pause;
}

/* The others are too late for us to look for them. */
static void rest(struct coll_board *b)
{
	b->rest = longer(&b->pause);
	b->misses = 0;
}

void coll_board_close(struct coll_board *b)
{
	if (b->all)
		coll_drv_unmap((void *)b->all, b->len);
	if (b->own)
		coll_drv_unmap(b->own, b->stride);
	*b = (struct coll_board) { .never = true };
}

/* That the ranks have. One that is bound to a single one does not know about the others. */
static unsigned int processors(uint32_t online)
{
	cpu_set_t set;
	unsigned int own;

	/* That is a system call, or a file to read. */
	if (!online)
		online = sysconf(_SC_NPROCESSORS_ONLN);
	own = sched_getaffinity(0, sizeof(set), &set) ? 0 : CPU_COUNT(&set);
	return own > 1 && own < online ? own : online;
}

/*
 * The memory; the last rank to come here is the first that can have all of it. Out of the way of
 * those that are flattened: all that they call is one function with them, as returns cost.
 */
static __attribute__((noinline)) bool board_open(struct coll_comm *comm)
{
	const struct npulink_device_info *info = &comm->dev->info;
	struct coll_board *b = &comm->board;
	size_t page = sysconf(_SC_PAGESIZE), head = page_align(sizeof(*b->comm));
	void *map;
	int rc = 0;

	if (!(info->out_caps & NPULINK_CAP_BOARD) || comm->nranks > NPULINK_BOARD_RANKS ||
	    comm->machine) {
		b->never = true;
		return false;
	}
	b->stride = page_align(sizeof(*b->own));
	b->len = page + head + comm->nranks * b->stride;
	if (!b->own) {
		rc = coll_drv_map(&comm->dev->drv, NPULINK_MMAP_BOARD_OWN(comm->id), b->stride,
				  &map);
		if (!rc)
			b->own = map;
	}
	if (!rc)
		rc = coll_drv_map_read(&comm->dev->drv, NPULINK_MMAP_BOARD(comm->id), b->len,
				       &map);
	if (rc == -EAGAIN) {
		b->skip = longer(&b->pause);
		return false;
	}
	if (rc) {
		coll_board_close(b);
		return false;
	}
	b->all = map;
	b->machine = map;
	b->comm = (const void *)(b->all + page);
	b->ranks = b->all + page + head;
	b->pause = 0;
	b->spins = processors(info->out_processors) >= comm->nranks;
	return true;
}

/* ---- one operation */

static bool has_failed(const struct coll_board *b)
{
	return __atomic_load_n(&b->comm->failed, __ATOMIC_RELAXED);
}

/* Mostly a number or two, for which a call takes longer than to copy them. */
static inline void copy(void *to, const void *from, size_t len)
{
	if (len == 8)
		memcpy(to, from, 8);
	else if (len == 4)
		memcpy(to, from, 4);
	else if (len)
		memcpy(to, from, len);
}

static uint64_t flag_of(const struct coll_board_call *call, uint64_t number)
{
	return NPULINK_BOARD_FLAG(number, call->code);
}

static bool posted(const struct coll_board *b, uint64_t number)
{
	return get(&b->comm->off[number % NPULINK_BOARD_SLOTS]) > number;
}

/* Does it not fit into slots? The same on all ranks. */
static bool is_wide(const struct coll_board_call *call)
{
	return call->len > NPULINK_BOARD_BYTES;
}

/* Where a rank puts what it brings. */
static const unsigned char *data_of(const struct npulink_board_rank *rank,
				    const struct coll_board_call *call, uint64_t number)
{
	return is_wide(call) ? rank->wide[number % NPULINK_BOARD_WIDES] :
	       rank->slots[number % NPULINK_BOARD_SLOTS].data;
}

/* And a result for all. */
static const unsigned char *result_of(const struct npulink_board_rank *rank,
				      const struct coll_board_call *call, uint64_t number)
{
	return is_wide(call) ? rank->wide_results[number % NPULINK_BOARD_WIDES] :
	       rank->results[number % NPULINK_BOARD_SLOTS].data;
}

/* Is everybody done with what was there before? */
static bool is_free(struct coll_board *b, const struct coll_comm *comm,
		    const struct coll_board_call *call, uint64_t number)
{
	uint64_t last = b->used[number % NPULINK_BOARD_SLOTS], done = UINT64_MAX;

	if (is_wide(call) && last < b->used_wide[number % NPULINK_BOARD_WIDES])
		last = b->used_wide[number % NPULINK_BOARD_WIDES];
	if (b->done >= last)
		return true;
	for (uint32_t r = 0; r < comm->nranks; r++) {
		uint64_t next = get(&rank_of(b, r)->next), posted = get(&b->comm->posted[r]);

		if (next < posted)
			next = posted;
		if (next < done)
			done = next;
	}
	b->done = done;
	return done >= last;
}

/* With that of the kernel, which first says that something was posted, and then looks at flags. */
static inline void fence(void)
{
	atomic_thread_fence(memory_order_seq_cst);
}

/* False: it has to be posted, as if there were no board. Then a fence(). */
static COLL_HOT bool put(struct coll_comm *comm, const struct coll_board_call *call,
			 uint64_t number)
{
	struct coll_board *b = &comm->board;
	struct npulink_board_slot *slot = &b->own->slots[number % NPULINK_BOARD_SLOTS];

	if (posted(b, number) || !is_free(b, comm, call, number))
		return false;
	copy((void *)data_of(b->own, call, number), call->in, call->len);
	b->used[number % NPULINK_BOARD_SLOTS] = number + 1;
	if (is_wide(call))
		b->used_wide[number % NPULINK_BOARD_WIDES] = number + 1;
	set(&slot->flag, flag_of(call, number));
	return true;
}

/* The @n th rank that is looked at: first the one that most likely is not there yet. */
static uint32_t nth(const struct coll_comm *comm, uint32_t n)
{
	uint32_t r = comm->board.late + n;

	return r < comm->nranks ? r : r - comm->nranks;
}

/* Of how many ranks the flags are there, as far as those of @n are. */
static COLL_HOT uint32_t look(const struct coll_comm *comm, uint64_t number, uint64_t flag,
			      uint32_t n)
{
	const struct coll_board *b = &comm->board;
	const unsigned int slot = number % NPULINK_BOARD_SLOTS;

	while (n < comm->nranks && get(&rank_of(b, nth(comm, n))->slots[slot].flag) == flag)
		n++;
	return n;
}

/* Looks for a little while. */
static uint32_t spin(struct coll_comm *comm, uint64_t number, uint64_t flag, uint32_t n)
{
	struct coll_board *b = &comm->board;
	unsigned int looks = SPIN_LOOKS;
	uint64_t until = 0, now;

	for (;;) {
		n = look(comm, number, flag, n);
		if (n == comm->nranks)
			break;
		if (--looks % RELAX_LOOKS == 0)
			relax();
		if (looks)
			continue;
		looks = SPIN_LOOKS;
		if (posted(b, number) || has_failed(b))
			break;
		now = coll_now_ns();
		if (!until)
			until = now + SPIN_NS;
		if (now < until)
			continue;
		if (++b->misses == MISSES)
			rest(b);
		return n;
	}
	b->misses = 0;
	b->pause = 0;
	return n;
}

/* Has rank @r worked out the result for all? Then all flags were there. */
static bool is_result(const struct coll_board *b, uint64_t number, uint64_t flag, uint32_t r)
{
	return get(&rank_of(b, r)->results[number % NPULINK_BOARD_SLOTS].flag) == flag;
}

/*
 * Until all have put the same: true, and *@by is 1 + who has worked out the result, or 0; it
 * comes with that of the operation before. False: it has to be posted, as somebody has done or
 * we do.
 */
static COLL_HOT bool meet(struct coll_comm *comm, const struct coll_board_call *call,
			  uint64_t number, uint32_t *by)
{
	const uint64_t flag = flag_of(call, number);
	struct coll_board *b = &comm->board;
	uint32_t n, late;
	int rc;

	if (*by && is_result(b, number, flag, *by - 1))
		return !posted(b, number);
	*by = 0;
	n = look(comm, number, flag, 0);
	late = nth(comm, n);
	if (n < comm->nranks && b->rest)
		b->rest--;
	else if (n < comm->nranks && b->spins)
		n = spin(comm, number, flag, n);
	while (n < comm->nranks) {
		if (posted(b, number) || has_failed(b))
			return false;
		rc = coll_drv_board_wait(&comm->dev->drv, comm->id, number, nth(comm, n));
		if (rc < 0)
			return false;
		if (rc && is_result(b, number, flag, rc - 1)) {
			*by = rc;
			break;
		}
		n = look(comm, number, flag, n);
	}
	b->late = late;
	return !posted(b, number);
}

static void done(struct coll_board *b, uint64_t number)
{
	set(&b->own->next, number + 1);
	atomic_store_explicit(&b->met, b->met + 1, memory_order_relaxed);
}

/* What rank @r brings, of which this rank needs what is at @from. */
static const unsigned char *brought(const struct coll_comm *comm,
				    const struct coll_board_call *call, uint64_t number,
				    uint32_t from, uint32_t r)
{
	return data_of(rank_of(&comm->board, r), call, number) + from;
}

/* What all ranks bring, one after the other, into @out. */
static COLL_HOT void combine(const struct coll_comm *comm, const struct coll_board_call *call,
			     uint64_t number, void *out, uint32_t from, uint32_t len, size_t count)
{
	const void *x = brought(comm, call, number, from, 0);

	if (!call->reduce || comm->nranks == 1) {
		for (uint32_t r = 0; r < comm->nranks && len; r++)
			copy((char *)out + r * len, brought(comm, call, number, from, r), len);
		return;
	}
	for (uint32_t r = 1; r < comm->nranks; r++) {
		call->reduce(out, x, brought(comm, call, number, from, r), count);
		x = out;
	}
}

/* It is met: the result. */
static void take(struct coll_comm *comm, const struct coll_board_call *call, uint64_t number)
{
	combine(comm, call, number, call->out, call->from, call->part, call->count);
	done(&comm->board, number);
}

/* The same, if @by is not 0 from what rank @by - 1 has worked out. */
static COLL_HOT void take_from(struct coll_comm *comm, const struct coll_board_call *call,
			       uint64_t number, uint32_t by)
{
	const unsigned char *result;

	if (!by || !call->shared)
		return take(comm, call, number);
	result = result_of(rank_of(&comm->board, by - 1), call, number);
	copy(call->out, result + call->from, call->reduce ? call->part : call->shared);
	done(&comm->board, number);
}

/*
 * If all flags are there, works the result out for all: those who sleep need not read what all
 * ranks have written.
 */
static COLL_HOT bool share(struct coll_comm *comm, const struct coll_board_call *call,
			   uint64_t number)
{
	struct coll_board *b = &comm->board;
	struct npulink_board_slot *result = &b->own->results[number % NPULINK_BOARD_SLOTS];
	const uint64_t flag = flag_of(call, number);

	if (look(comm, number, flag, 0) < comm->nranks || posted(b, number))
		return false;
	if (call->shared)
		combine(comm, call, number, (void *)result_of(b->own, call, number), 0,
			call->reduce ? call->shared : call->part, call->elements);
	set(&result->flag, flag);
	take_from(comm, call, number, comm->rank + 1);
	return true;
}

/* Does anybody sleep? Perhaps for us. */
static bool anybody(const struct coll_comm *comm)
{
	return __atomic_load_n(&comm->board.comm->waiting, __ATOMIC_RELAXED);
}

static COLL_HOT bool is_open(struct coll_comm *comm)
{
	struct coll_board *b = &comm->board;

	if (b->never)
		return false;
	if (b->skip) {
		b->skip--;
		return false;
	}
	if (!b->all && (b->warm++ < WARM_UP || !board_open(comm)))
		return false;
	return !__atomic_load_n(&b->machine->closed, __ATOMIC_RELAXED) && !has_failed(b);
}

/* Of the next collective. What was before it has ended, or is not on the board. */
static uint64_t next_number(struct coll_comm *comm)
{
	struct coll_board *b = &comm->board;
	uint64_t number = b->own->next, posted = get(&b->comm->posted[comm->rank]);

	if (number < posted) {
		number = posted;
		set(&b->own->next, number);
	}
	return number;
}

/*
 * Tries it on the board: COLL_BOARD_MET: done. Else it has to be posted, after which
 * COLL_BOARD_PUT may turn out to be done, see coll_board_end().
 */
COLL_HOT __attribute__((flatten))
enum coll_board_state coll_board_try(struct coll_comm *comm, const struct coll_board_call *call)
{
	uint64_t number;
	uint32_t by = 0;

	if (!call->code || !is_open(comm))
		return COLL_BOARD_NOT;
	number = next_number(comm);
	if (!put(comm, call, number))
		return COLL_BOARD_NOT;
	fence();
	comm->board.number = number;
	if (anybody(comm) && share(comm, call, number)) {
		coll_drv_board_wake(&comm->dev->drv, comm->id);
		return COLL_BOARD_MET;
	}
	if (!meet(comm, call, number, &by))
		return COLL_BOARD_PUT;
	take_from(comm, call, number, by);
	return COLL_BOARD_MET;
}

/* POST says that what was COLL_BOARD_PUT has been met. */
void coll_board_end(struct coll_comm *comm, const struct coll_board_call *call)
{
	take(comm, call, comm->board.number);
}

/*
 * Flags of a group say which numbers its calls have. If another thread's call got one of them,
 * others would take the flag of one for that of another. One call alone has no such need: what
 * it was put for is then that one's.
 */
bool coll_board_claim(struct coll_comm *comm)
{
	int none = 0;

	/* Who makes one group after the other would not let them in. */
	if (atomic_load_explicit(&comm->posters, memory_order_relaxed))
		return false;
	return atomic_compare_exchange_strong_explicit(&comm->posting, &none, -1,
						       memory_order_acquire, memory_order_relaxed);
}

void coll_board_let_go(struct coll_comm *comm)
{
	atomic_store_explicit(&comm->posting, 0, memory_order_release);
}

static bool begin_post(struct coll_comm *comm)
{
	int n = atomic_load_explicit(&comm->posting, memory_order_relaxed);

	while (n >= 0)
		if (atomic_compare_exchange_weak_explicit(&comm->posting, &n, n + 1,
							  memory_order_acquire,
							  memory_order_relaxed))
			return true;
	return false;
}

/*
 * Waits until another thread's group has met, or has its numbers; its calls come before this one
 * then. NULL: a message, for which others may wait before they call what the group does.
 * Without the lock.
 */
void coll_board_begin_post(struct coll_comm *comm)
{
	const struct timespec pause = { .tv_nsec = 50000 };

	if (!comm || begin_post(comm))
		return;
	atomic_fetch_add_explicit(&comm->posters, 1, memory_order_relaxed);
	do
		nanosleep(&pause, NULL);
	while (!begin_post(comm));
	atomic_fetch_sub_explicit(&comm->posters, 1, memory_order_relaxed);
}

void coll_board_end_post(struct coll_comm *comm)
{
	if (comm)
		atomic_fetch_sub_explicit(&comm->posting, 1, memory_order_release);
}

/*
 * The same for blocking calls of a group, in their order: puts as many as it can, and gives the
 * number of those that are done. The others are to be posted, and those with put set may then
 * turn out to be done, see coll_board_end_request().
 */
COLL_HOT __attribute__((flatten))
unsigned int coll_board_group(struct coll_comm *comm, struct coll_request **v, unsigned int n)
{
	unsigned int nput, met = 0;
	uint64_t number;
	uint32_t by = 0;

	for (nput = 0; nput < n && nput < NPULINK_BOARD_SLOTS / 2; nput++) {
		if (!v[nput]->prepared)
			coll_board_prepare(&v[nput]->op, &v[nput]->board);
		v[nput]->prepared = true;
		if (!v[nput]->board.code)
			break;
	}
	if (!nput || !is_open(comm))
		return 0;
	n = nput;
	number = next_number(comm);
	for (nput = 0; nput < n && put(comm, &v[nput]->board, number + nput); nput++)
		v[nput]->put = number + nput + 1;
	fence();
	if (nput && anybody(comm)) {
		while (met < nput && share(comm, &v[met]->board, number + met))
			v[met++]->put = 0;
		if (met)
			coll_drv_board_wake(&comm->dev->drv, comm->id);
	}
	for (; met < nput && meet(comm, &v[met]->board, number + met, &by); met++) {
		take_from(comm, &v[met]->board, number + met, by);
		v[met]->put = 0;
	}
	return met;
}

/* POST says that a request that was put has been met; false if it was not put. */
bool coll_board_end_request(struct coll_request *req)
{
	if (!req->put)
		return false;
	take(req->op.comm, &req->board, req->put - 1);
	req->put = 0;
	return true;
}

/*
 * Sleeps a little before a call that was put, and for which there was no memory, is posted again.
 * False: that has taken so long that it will not pass. Perhaps nobody has posted it, and then no
 * deadline runs.
 */
bool coll_board_patience(unsigned int *pauses)
{
	const struct timespec pause = { .tv_nsec = 1000000 };

	if (++*pauses > PAUSES_MAX)
		return false;
	nanosleep(&pause, NULL);
	return true;
}

/*
 * What was not put cannot be posted, as the next number is that of a call which another thread has
 * put and all have met. That thread has only to read what it needs, but may not be running, and
 * perhaps not before this one sleeps. Without the lock.
 */
void coll_board_unmet(unsigned int *looks)
{
	const struct timespec pause = { .tv_nsec = 50000 };

	if (++*looks > UNMET_LOOKS)
		nanosleep(&pause, NULL);
}

/*
 * Requests that cannot be posted, for want of something. Those that were put may have been met by
 * all others: then this rank would have another idea of what comes next, so that is the end.
 */
void coll_board_withdraw(struct coll_comm *comm, struct coll_request **v, unsigned int n, int rc)
{
	bool any = false;

	for (unsigned int i = 0; i < n; i++) {
		any |= v[i]->put;
		v[i]->put = 0;
	}
	if (any && !coll_is_failure(rc))
		coll_drv_comm_abort(&comm->dev->drv, comm->id, -rc);
}

/* ---- which */

/*
 * What all ranks have to agree in, for calls that coll_board_takes(): other calls have other
 * codes, as nothing else would notice that they differ. Never 0.
 */
static uint32_t code(const struct coll_args *args)
{
	static const uint8_t kinds[] = {
		[NPULINK_COLL_BARRIER] = 1,
		[NPULINK_COLL_ALLREDUCE] = 2,
		[NPULINK_COLL_REDUCE_SCATTER] = 3,
		[NPULINK_COLL_ALLGATHER] = 4,
		[NPULINK_COLL_ALLTOALL] = 5,
	};

	_Static_assert(NPULINK_BOARD_WIDE < 1 << 14 && NPULINK_DTYPES <= 1 << 4 &&
		       NPULINK_REDOPS <= 1 << 2, "3 bits are left for the collective");
	return ((kinds[args->collective] << 2 | args->redop) << 4 | args->dtype) << 14 |
	       args->count;
}

/* How much each rank brings, and what of it is for whom; false if it is nothing for us. */
static bool layout(const struct coll_args *a, struct coll_board_call *call)
{
	call->part = a->count * npulink_dtype_size(a->dtype);
	call->len = call->part;
	switch (a->collective) {
	case NPULINK_COLL_ALLREDUCE:
	case NPULINK_COLL_ALLGATHER:
		return true;
	case NPULINK_COLL_REDUCE_SCATTER:
	case NPULINK_COLL_ALLTOALL:
		call->from = a->rank * call->part;
		call->len *= a->nranks;
		return true;
	default:
		return false;
	}
}

/* There is the large buffer only, with the own part at its place. */
static void set_in_place(const struct coll_args *a, struct coll_board_call *call)
{
	if (a->collective == NPULINK_COLL_ALLGATHER)
		call->in = (const char *)call->out + a->rank * call->part;
	else
		call->in = call->out;
	if (a->collective == NPULINK_COLL_REDUCE_SCATTER)
		call->out = (char *)call->out + call->from;
}

/*
 * Is it for the board, if the ranks have one? Only collectives whose ranks all need each other
 * anyway; more than fits into a slot only if it is reduced, as what is only copied is copied
 * once by a script, and twice here. Sums of floats depend on the order: here it is that of
 * ranks, and of two, all are the same. Equal on all ranks.
 */
bool coll_board_takes(const struct coll_algorithm *alg, const struct coll_args *a,
		      struct coll_board_call *call)
{
	bool reduces = a->collective == NPULINK_COLL_ALLREDUCE ||
		       a->collective == NPULINK_COLL_REDUCE_SCATTER;

	if (a->nranks > NPULINK_BOARD_RANKS || (a->topo && a->topo->nservers > 1))
		return false;
	if (a->collective == NPULINK_COLL_BARRIER)
		return true;
	/* Before anything is multiplied. */
	if (!a->count || a->count > NPULINK_BOARD_WIDE || !layout(a, call) ||
	    call->len > (reduces ? NPULINK_BOARD_WIDE : NPULINK_BOARD_BYTES) ||
	    (reduces ? call->len : call->part) * a->nranks >
	    (reduces && !coll_board_is_float(a->dtype) ? INTEGERS_MAX : BYTES_MAX))
		return false;
	if (reduces) {
		call->reduce = coll_board_reduce(a->dtype, a->redop,
						 a->nranks == 2 || alg->ordered);
		call->shared = call->len;
		call->elements = call->len / call->part * a->count;
		return call->reduce;
	}
	if (a->collective == NPULINK_COLL_ALLGATHER &&
	    call->part * a->nranks <= NPULINK_BOARD_BYTES)
		call->shared = call->part * a->nranks;
	return true;
}

/* What the board has to know of all calls with this plan. */
void coll_board_plan(struct coll_cached *plan)
{
	plan->board = (struct coll_board_call) { .count = plan->args.count };
	if (coll_board_takes(plan->alg, &plan->args, &plan->board))
		plan->board.code = code(&plan->args);
}

/* And of @op, which has one. */
void coll_board_prepare(const struct coll_operation *op, struct coll_board_call *call)
{
	*call = op->plan->board;
	if (!call->code)
		return;
	call->in = op->buf[NPULINK_SLOT_SEND];
	call->out = op->buf[NPULINK_SLOT_RECV];
	if (op->args.in_place && op->args.collective != NPULINK_COLL_BARRIER)
		set_in_place(&op->args, call);
}
