// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * board.c - small collectives without a system call: ranks of one node meet in memory that they
 * share. See linux/npulink_board.h for what the kernel has to do with it, board_layout.h for what
 * is in it; board_reduce.c adds up.
 *
 * It is an attempt: a rank that has waited a little for the others posts the operation, and then it
 * goes its usual way on all ranks. So whatever takes long is in the kernel, and what is
 * slow, hangs or fails is found there. Only the same bits come out as would have by the plan.
 *
 * A rank
 *
 *  1. looks whether it can use the slot of the number, and posts if not;
 *  2. writes what it brings and the code of its call, and then adds itself to the slot's word. The
 *     first rank moves the word from the number that was there, once all ranks are done with that;
 *  3. if it is the last, compares all codes, and says in the word that all have met;
 *  4. else waits for that. A rank that does not wait any longer says in the word that it
 *     fell, unless all have met by then. All ranks post what fell;
 *  5. reads what it needs, and says that it is done with the number.
 *
 * If only the root brings anything, its coming is enough: it binds the call to the board, and goes
 * on. Who would post what is bound takes it from there instead. So the root is as far ahead as
 * there are slots that the others have done with; if there is none, it posts.
 *
 * One call, or group of calls, of one thread at a time: claim(). No other thread posts a
 * collective meanwhile, which has the next number.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/base.h"
#include "run/board.h"
#include "run/board_layout.h"
#include "run/board_meet.h"
#include "run/cache.h"
#include "run/comm.h"
#include "run/drv.h"
#include "run/op.h"
#include "run/request.h"

/* How long a rank looks for the others before it sleeps: about what that would cost it. */
#define SPIN_NS		20000
#define SPIN_LOOKS	64	/* looks at the word per look at the clock */
/* And per relax(), which takes as long as many of them. */
#define RELAX_LOOKS	16
/* After so many times in vain, it sleeps at once for PAUSE_FIRST calls, then for twice as many. */
#define MISSES		4
#define PAUSE_FIRST	64
#define PAUSE_MAX	4096
/* How long it sleeps, in all; and how long at first if it may have to wake by itself. */
#define SLEEP_NS	10000000
#define BACKSTOP_NS	400000
/* Ranks that had to do that are woken at once so often, then twice as often and a little more. */
#define REST_FIRST	8
#define REST_MAX	512
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

/* ---- opening it */

unsigned int coll_board_longer(unsigned int *pause)
{
	*pause = *pause ? *pause * 2 : PAUSE_FIRST;
	if (*pause > PAUSE_MAX)
		*pause = PAUSE_MAX;
	return *pause;
}

/* The others are too late for us to look for them. */
static void rest(struct coll_board *b)
{
	b->rest = coll_board_longer(&b->pause);
	b->misses = 0;
}

static size_t told_len(void)
{
	return 2 * sysconf(_SC_PAGESIZE);
}

void coll_board_close(struct coll_board *b)
{
	if (b->memory)
		coll_drv_unmap(b->memory, b->len);
	if (b->machine)
		coll_drv_unmap((void *)b->machine, told_len());
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

static int map_all(struct coll_comm *comm)
{
	struct coll_board *b = &comm->board;
	void *told, *memory;
	int rc;

	rc = coll_drv_map_read(&comm->dev->drv, NPULINK_MMAP_BOARD(comm->id), told_len(), &told);
	if (rc)
		return rc;
	b->machine = told;
	b->comm = (const void *)((const char *)told + told_len() / 2);
	b->len = comm->nranks * NPULINK_BOARD_BYTES;
	rc = coll_drv_map(&comm->dev->drv, NPULINK_MMAP_BOARD_SHARED(comm->id), b->len, &memory);
	if (rc)
		return rc;
	b->memory = memory;
	b->own = rank_of(b, comm->rank);
	set(&b->memory->layout[comm->rank], BOARD_LAYOUT);
	return 0;
}

/*
 * The memory; it is used once every rank has said that it knows what is where. Out of the way of
 * those that are flattened: all that they call is one function with them, as returns cost.
 */
static __attribute__((noinline)) bool board_open(struct coll_comm *comm)
{
	const struct npulink_device_info *info = &comm->dev->info;
	struct coll_board *b = &comm->board;
	struct npulink_comm_status st;
	uint64_t layout;
	int rc = 0;

	if (!(info->out_caps & NPULINK_CAP_BOARD) || comm->nranks > NPULINK_BOARD_RANKS ||
	    comm->machine) {
		b->never = true;
		return false;
	}
	if (!b->memory)
		rc = map_all(comm);
	for (uint32_t r = 0; !rc && r < comm->nranks; r++) {
		layout = get(&b->memory->layout[r]);
		rc = !layout ? -EAGAIN : layout != BOARD_LAYOUT ? -EPROTO : 0;
	}
	if (rc == -EAGAIN) {
		b->skip = coll_board_longer(&b->pause);
		return false;
	}
	/* What was posted before has a number, too. None is being posted now. */
	if (!rc)
		rc = coll_drv_comm_status(&comm->dev->drv, comm->id, &st);
	if (rc) {
		coll_board_close(b);
		return false;
	}
	keep(&b->next, st.out_next);
	keep(&b->swept, st.out_next);
	b->processors = processors(info->out_processors);
	b->crowded = b->processors < comm->nranks;
	b->pause = 0;
	b->open = true;
	return true;
}

/* ---- numbers */

uint64_t coll_board_next(const struct coll_comm *comm)
{
	return kept(&comm->board.next);
}

/* ---- the word of a slot */

/* What @word says about @number, for which this rank has come. */
static enum state state_of(uint64_t word, uint64_t number, uint32_t nranks)
{
	if (word >> BOARD_SHIFT != number + 1 || word & BOARD_FELL)
		return FALLEN;
	if (word & BOARD_BOUND)
		return BOUND;
	return (word & BOARD_COUNT) > nranks ? MET : OPEN;
}

/* The same for one that waits: for its root, the word may still be an older number's. */
static enum state look(const struct board_slot *slot, uint64_t word, uint64_t number,
		       uint32_t nranks)
{
	if (word >> BOARD_SHIFT > number)
		return state_of(word, number, nranks);
	return __atomic_load_n(&slot->fell, __ATOMIC_SEQ_CST) > number ? FALLEN : OPEN;
}

enum state coll_board_look(const struct coll_comm *comm, uint64_t number)
{
	const struct board_slot *slot = slot_of(&comm->board, number);

	return look(slot, get(&slot->word), number, comm->nranks);
}

/* The half of it that changes when ranks come. */
static const uint32_t *futex_of(const struct board_slot *slot)
{
	return (const uint32_t *)&slot->word + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
}

/* Up to @n of those who sleep, whose word has changed. Gives how many there were. */
static uint32_t wake(struct coll_comm *comm, struct board_slot *slot, uint32_t n)
{
	/* After the barrier of who has changed the word; with that of sleep_once(). */
	const uint32_t asleep = peek(&slot->sleepers);
	const uint64_t number = get(&slot->word) >> BOARD_SHIFT;
	uint32_t woken;

	/* Who is counted and does not sleep yet sees that the word has changed. */
	if (!n || !asleep || get(&slot->swept) == number)
		return 0;
	/* Before they run, which may be at once, and look for others. */
	if (n >= asleep)
		set(&slot->swept, number);
	woken = coll_drv_wake(&comm->dev->drv, futex_of(slot), n);
	if (woken)
		__atomic_fetch_sub(&slot->sleepers, woken, __ATOMIC_RELAXED);
	return woken;
}

/* Who does not wait any longer: FALLEN, or MET or BOUND if that was faster. */
static enum state decide(struct coll_comm *comm, uint64_t number)
{
	struct board_slot *slot = slot_of(&comm->board, number);
	uint64_t word = get(&slot->word);
	enum state state;

	while ((state = state_of(word, number, comm->nranks)) == OPEN) {
		if (!__atomic_compare_exchange_n(&slot->word, &word, word | BOARD_FELL, false,
						 __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE))
			continue;
		wake(comm, slot, UINT32_MAX);
		return FALLEN;
	}
	return state;
}

/* Collectives of lower numbers are those that all ranks have done with. */
static uint64_t all_done(const struct coll_comm *comm)
{
	uint64_t done = UINT64_MAX;

	for (uint32_t r = 0; r < comm->nranks; r++) {
		uint64_t next = get(&rank_of(&comm->board, r)->done);

		if (next < done)
			done = next;
	}
	return done;
}

/*
 * This rank posts @number, for which it has not come: the others need not wait for it. Unless it
 * is BOUND.
 */
enum state coll_board_leave(struct coll_comm *comm, uint64_t number)
{
	struct coll_board *b = &comm->board;
	struct board_slot *slot = slot_of(b, number);
	uint64_t fell = get(&slot->fell), word;
	enum state state;

	while (fell < number + 1 &&
	       !__atomic_compare_exchange_n(&slot->fell, &fell, number + 1, true,
					    __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		;
	/* With the barrier of begin(): it sees that, or we see its word. */
	atomic_thread_fence(memory_order_seq_cst);
	/* Who sleeps until the word changes has looked before. The last one can change it. */
	word = get(&slot->word);
	if (word >> BOARD_SHIFT <= number && peek(&slot->sleepers) &&
	    word >> BOARD_SHIFT <= all_done(comm) &&
	    __atomic_compare_exchange_n(&slot->word, &word,
					(number + 1) << BOARD_SHIFT | BOARD_FELL, false,
					__ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE))
		wake(comm, slot, UINT32_MAX);
	state = decide(comm, number);
	if (state == FALLEN)
		keep(&b->left, number + 1);
	return state;
}

/* ---- one operation */

/* And a result for all. */
static unsigned char *result_of(struct board_rank *rank, const struct coll_board_call *call,
				uint64_t number)
{
	return is_wide(call) ? rank->wide_results[number % COLL_BOARD_WIDES] :
	       rank->results[number % COLL_BOARD_SLOTS].data;
}

/* Is everybody done with what was there before, and with what the word says? */
static bool is_free(struct coll_board *b, const struct coll_comm *comm,
		    const struct coll_board_call *call, uint64_t number, uint64_t word)
{
	uint64_t last = b->used[number % COLL_BOARD_SLOTS];

	/* Nobody is done with anything who does not use it yet. */
	if (call->led && !last)
		last = 1;
	if (is_wide(call) && last < b->used_wide[number % COLL_BOARD_WIDES])
		last = b->used_wide[number % COLL_BOARD_WIDES];
	if (word >> BOARD_SHIFT <= number && last < word >> BOARD_SHIFT)
		last = word >> BOARD_SHIFT;
	if (b->done >= last)
		return true;
	b->done = all_done(comm);
	return b->done >= last;
}

/* The same, for who waits for a little while: the others may be behind. */
static COLL_HOT bool has_room(struct coll_board *b, const struct coll_comm *comm,
			      const struct coll_board_call *call, uint64_t number, uint64_t word)
{
	uint64_t until = 0, now;

	while (!is_free(b, comm, call, number, word)) {
		/* Of one's own requests, nobody else gets rid. */
		if (b->crowded || b->oldest)
			return false;
		now = coll_now_ns();
		if (!until)
			until = now + SPIN_NS;
		if (now >= until)
			return false;
		relax();
	}
	return true;
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

/*
 * All ranks have come: have they called the same? If somebody sleeps, the result is worked out for
 * all, as those who are woken need not read then what all ranks have written.
 */
static COLL_HOT bool is_same(struct coll_comm *comm, const struct coll_board_call *call,
			     uint64_t number)
{
	struct coll_board *b = &comm->board;
	struct board_slot *slot = slot_of(b, number);

	for (uint32_t r = 0; r < comm->nranks; r++)
		if (__atomic_load_n(&rank_of(b, r)->slots[number % COLL_BOARD_SLOTS].code,
				    __ATOMIC_RELAXED) != call->code)
			return false;
	if (!call->shared || !peek(&slot->sleepers))
		return true;
	combine(comm, call, number, result_of(b->own, call, number), 0,
		call->reduce ? call->shared : call->part, call->elements);
	set(&slot->result, (number + 1) << BOARD_SHIFT | (comm->rank + 1));
	return true;
}

/* All have met. Ranks that share processors wake each other later, but for as many as have one. */
static COLL_HOT void wake_met(struct coll_comm *comm, struct board_slot *slot)
{
	struct coll_board *b = &comm->board;
	uint32_t asleep = peek(&slot->sleepers), awake = comm->nranks - asleep, left;

	if (!asleep)
		return;
	if (!b->crowded || asleep > comm->nranks) {
		wake(comm, slot, UINT32_MAX);
		return;
	}
	left = peek(&b->memory->rest);
	if (left) {
		hint(&b->memory->rest, left - 1);
		wake(comm, slot, UINT32_MAX);
	} else if (awake < b->processors) {
		wake(comm, slot, b->processors - awake);
	}
}

/* This rank comes to @word, which says @number; what it brings is there. */
static COLL_HOT enum state arrive(struct coll_comm *comm, const struct coll_board_call *call,
				  uint64_t number, uint64_t word)
{
	struct board_slot *slot = slot_of(&comm->board, number);
	const uint32_t n = comm->nranks;
	enum state state;

	if ((word & BOARD_COUNT) + 1 < n) {
		word = __atomic_fetch_add(&slot->word, 1, __ATOMIC_SEQ_CST);
		state = state_of(word, number, n);
		if (state != OPEN || (word & BOARD_COUNT) + 1 < n)
			return state;
		/* Others have come meanwhile, and it is the last. */
		if (!is_same(comm, call, number))
			return decide(comm, number);
		word = __atomic_fetch_add(&slot->word, 1, __ATOMIC_SEQ_CST);
		state = state_of(word + 1, number, n);
	} else {
		if (!is_same(comm, call, number))
			return decide(comm, number);
		state = MET;
		if (!__atomic_compare_exchange_n(&slot->word, &word, word + 2, false,
						 __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE))
			state = decide(comm, number);
	}
	if (state == MET)
		wake_met(comm, slot);
	return state;
}

/*
 * This rank is the first: the slot is @number's from here on. False: another one was faster, and
 * *@word is what it says.
 */
static COLL_HOT bool begin(struct coll_comm *comm, uint64_t number, uint64_t *word,
			   enum state *state)
{
	struct board_slot *slot = slot_of(&comm->board, number);

	if (!__atomic_compare_exchange_n(&slot->word, word, (number + 1) << BOARD_SHIFT | 1,
					 false, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE))
		return false;
	/* With the barrier of leave(). */
	*state = OPEN;
	if (__atomic_load_n(&slot->fell, __ATOMIC_SEQ_CST) > number)
		*state = decide(comm, number);
	return true;
}

/* What this rank brings, as the root, is there for all. */
static COLL_HOT enum state bind(struct coll_comm *comm, const struct coll_board_call *call,
				uint64_t number)
{
	struct board_slot *slot = slot_of(&comm->board, number);
	uint64_t word = (number + 1) << BOARD_SHIFT | 1;

	__atomic_store_n(&slot->code, call->code, __ATOMIC_RELAXED);
	if (!__atomic_compare_exchange_n(&slot->word, &word, word | BOARD_BOUND, false,
					 __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE))
		return decide(comm, number);
	wake_met(comm, slot);
	return BOUND;
}

/* FALLEN: it has to be posted, as if there were no board. */
COLL_HOT enum state coll_board_put(struct coll_comm *comm, const struct coll_board_call *call,
				   uint64_t number)
{
	struct coll_board *b = &comm->board;
	struct board_slot *slot = slot_of(b, number);
	uint64_t word = get(&slot->word);
	enum state state = FALLEN;

	if (word >> BOARD_SHIFT == number + 1 && word & BOARD_BOUND)
		return BOUND;
	if (call->led && call->root != comm->rank)
		return look(slot, word, number, comm->nranks);
	if (word >> BOARD_SHIFT > number + 1 || get(&slot->fell) > number ||
	    !has_room(b, comm, call, number, word))
		goto fallen;
	if (word >> BOARD_SHIFT == number + 1 && word & BOARD_FELL)
		goto fallen;
	copy(data_of(b->own, call, number), call->in, call->len);
	__atomic_store_n(&b->own->slots[number % COLL_BOARD_SLOTS].code, call->code,
			 __ATOMIC_RELAXED);
	b->used[number % COLL_BOARD_SLOTS] = number + 1;
	if (is_wide(call))
		b->used_wide[number % COLL_BOARD_WIDES] = number + 1;
	if (word >> BOARD_SHIFT <= number && begin(comm, number, &word, &state))
		return call->led && state == OPEN ? bind(comm, call, number) : state;
	/* If the word has an older number by now, its rank has not done with it. */
	if (!call->led && word >> BOARD_SHIFT == number + 1 && !(word & BOARD_FELL))
		return arrive(comm, call, number, word);
fallen:
	return coll_board_leave(comm, number);
}

/* Looks for a little while. */
static enum state spin(struct coll_comm *comm, const struct board_slot *slot, uint64_t number)
{
	struct coll_board *b = &comm->board;
	unsigned int looks = SPIN_LOOKS;
	uint64_t until = 0, now;
	enum state state;

	for (;;) {
		state = look(slot, get(&slot->word), number, comm->nranks);
		if (state != OPEN)
			break;
		if (--looks % RELAX_LOOKS == 0)
			relax();
		if (looks)
			continue;
		looks = SPIN_LOOKS;
		now = coll_now_ns();
		if (!until)
			until = now + SPIN_NS;
		if (now < until)
			continue;
		if (++b->misses == MISSES)
			rest(b);
		return OPEN;
	}
	b->misses = 0;
	b->pause = 0;
	return state;
}

/*
 * Wakes some of those who have met and were left asleep, before this rank sleeps or posts: so they
 * have a processor. Together all ranks wake all of them.
 */
COLL_HOT void coll_board_make_way(struct coll_comm *comm, uint64_t number, uint32_t share)
{
	struct coll_board *b = &comm->board;
	uint64_t i = kept(&b->swept);
	uint32_t wanted = share, pause;

	if (i + COLL_BOARD_SLOTS < number)
		i = number - COLL_BOARD_SLOTS;
	/* Slots of the oldest may be those of a group by now, whose ranks sleep for good reason. */
	for (; i < number && share; i++)
		if (get(&slot_of(b, i)->word) >> BOARD_SHIFT == i + 1)
			share -= wake(comm, slot_of(b, i), share);
	/* Where the last ones were there may be more. */
	keep(&b->swept, share ? i : i - 1);
	pause = peek(&b->memory->pause);
	if (share < wanted && pause)
		hint(&b->memory->pause, pause - 1);
}

static uint32_t share_of(const struct coll_comm *comm)
{
	uint32_t each = (comm->nranks + comm->board.processors - 1) / comm->board.processors;

	return each > 2 ? each - 1 : 1;
}

/* Nobody has woken this rank though all had met: it does not pay to let ranks sleep on. */
static void woken_by_nobody(struct coll_comm *comm, struct board_slot *slot)
{
	struct board_memory *m = comm->board.memory;
	uint32_t pause = peek(&m->pause);

	wake(comm, slot, UINT32_MAX);
	if (peek(&m->rest))
		return;
	pause = 2 * pause + REST_FIRST;
	pause = pause > REST_MAX ? REST_MAX : pause;
	hint(&m->pause, pause);
	hint(&m->rest, pause);
}

/* Until the word is not @word any more and we are woken: 0; or for *@ns at most, or -errno. */
static COLL_HOT int sleep_once(struct coll_comm *comm, struct board_slot *slot, uint64_t number,
			       uint64_t word, uint64_t *ns)
{
	/* With the barrier of who changes the word and looks for us. The kernel looks again. */
	uint32_t before = __atomic_fetch_add(&slot->sleepers, 1, __ATOMIC_SEQ_CST);
	int rc;

	/*
	 * They are woken in this order, and all at a time by who leaves a processor to them: with
	 * one processor the first sees to it that all are.
	 */
	if (comm->board.crowded && (!before || comm->board.processors > 1) && *ns == SLEEP_NS)
		*ns = BACKSTOP_NS;
	/* With that of leave(), which need not change the word. */
	rc = -EAGAIN;
	if (look(slot, word, number, comm->nranks) == OPEN)
		rc = coll_drv_sleep(&comm->dev->drv, futex_of(slot), word, *ns);
	/* Who wakes us does it for us. */
	if (rc)
		__atomic_fetch_sub(&slot->sleepers, 1, __ATOMIC_RELAXED);
	return rc;
}

/* For a while, or until @end: OPEN. */
COLL_HOT enum state coll_board_sleep(struct coll_comm *comm, uint64_t number, uint64_t end)
{
	struct coll_board *b = &comm->board;
	struct board_slot *slot = slot_of(b, number);
	uint64_t ns = SLEEP_NS, until = 0, now, word;
	enum state state;
	bool late;

	if (end != COLL_NEVER) {
		now = coll_now_ns();
		until = end < now + SLEEP_NS ? end : now + SLEEP_NS;
		ns = until > now ? until - now : 0;
	}
	if (b->crowded)
		coll_board_make_way(comm, number, share_of(comm));
	for (;;) {
		word = get(&slot->word);
		state = look(slot, word, number, comm->nranks);
		if (state != OPEN)
			return state;
		late = sleep_once(comm, slot, number, word, &ns) == -ETIMEDOUT;
		state = look(slot, get(&slot->word), number, comm->nranks);
		if (state >= MET && late && b->crowded)
			woken_by_nobody(comm, slot);
		if (state != OPEN || has_failed(b))
			return state;
		/* Somebody came, or a signal; or time is over. */
		now = coll_now_ns();
		if (!until)
			until = now + SLEEP_NS - (late ? ns : 0);
		if (now >= until)
			return OPEN;
		if (late)
			ns *= 2;
		if (ns > until - now)
			ns = until - now;
	}
}

/* Until all have come: MET, or FALLEN; or OPEN: it has taken long, or it is @until. */
COLL_HOT enum state coll_board_meet(struct coll_comm *comm, uint64_t number, uint64_t until)
{
	struct coll_board *b = &comm->board;
	enum state state = OPEN;

	if (b->rest)
		b->rest--;
	else if (!b->crowded)
		state = spin(comm, slot_of(b, number), number);
	if (state == OPEN)
		state = coll_board_sleep(comm, number, until);
	return state == OPEN ? coll_board_await(comm, number, until) : state;
}

/* MET, or FALLEN: it has to be posted, as somebody does, or we do. */
static COLL_HOT enum state meet(struct coll_comm *comm, uint64_t number)
{
	enum state state = coll_board_meet(comm, number, COLL_NEVER);

	return state == OPEN ? coll_board_leave(comm, number) : state;
}

/*
 * This rank has read what it needs, or needs nothing as it fell. Others read that as what came
 * before being done as well, which requests are not that are there.
 */
static void done(struct coll_board *b, uint64_t number)
{
	uint64_t all = number + 1;

	if (b->oldest && b->oldest->number < all)
		all = b->oldest->number;
	set(&b->own->done, all);
}

/* It is met or bound: the result, which perhaps somebody has worked out. */
static COLL_HOT void take(struct coll_comm *comm, const struct coll_board_call *call,
			  uint64_t number)
{
	struct coll_board *b = &comm->board;
	uint64_t result = call->shared ? get(&slot_of(b, number)->result) : 0;
	uint32_t by = (result & ((1 << BOARD_SHIFT) - 1)) - 1;

	if (call->led && call->out)
		copy(call->out, data_of(rank_of(b, call->root), call, number) + call->from,
		     call->part);
	/* It is others who say that. */
	else if (!call->led && result >> BOARD_SHIFT == number + 1 && by < comm->nranks)
		copy(call->out, result_of(rank_of(b, by), call, number) + call->from,
		     call->reduce ? call->part : call->shared);
	else if (!call->led && call->out)
		combine(comm, call, number, call->out, call->from, call->part, call->count);
	done(b, number);
	raise_next(b, number + 1);
	atomic_store_explicit(&b->met, b->met + 1, memory_order_relaxed);
}

/* With a claim. What was before it has ended, or is not on the board. */
COLL_HOT bool coll_board_is_open(struct coll_comm *comm)
{
	struct coll_board *b = &comm->board;
	uint64_t next;

	if (b->skip) {
		b->skip--;
		return false;
	}
	if (!b->open && (b->warm++ < WARM_UP || !board_open(comm)))
		return false;
	if (__atomic_load_n(&b->machine->closed, __ATOMIC_RELAXED) || has_failed(b))
		return false;
	next = coll_board_next(comm);
	if (b->own->done < next && !b->oldest)
		set(&b->own->done, next);
	return true;
}

/* False: it has to be posted, or another one is bound, which coll_board_follow() sees. */
COLL_HOT bool coll_board_end(struct coll_comm *comm, const struct coll_board_call *call,
			     uint64_t number, enum state state)
{
	struct coll_board *b = &comm->board;

	if (state == MET || (state == BOUND && is_bound(b, call, number))) {
		take(comm, call, number);
		return true;
	}
	if (state != BOUND) {
		keep(&b->left, number + 1);
		done(b, number);
	}
	return false;
}

/* With a claim. */
static COLL_HOT bool attempt(struct coll_comm *comm, const struct coll_board_call *call)
{
	uint64_t number = coll_board_next(comm);
	enum state state = coll_board_put(comm, call, number);

	if (state == OPEN)
		state = meet(comm, number);
	return coll_board_end(comm, call, number, state);
}

/* Tries it on the board. False: it has to be posted. */
COLL_HOT __attribute__((flatten))
bool coll_board_try(struct coll_comm *comm, const struct coll_board_call *call)
{
	bool met;

	if (!call->code || comm->board.never || !claim(comm))
		return false;
	met = coll_board_is_open(comm) && (comm->board.oldest ? coll_board_try_beside(comm, call) :
					   attempt(comm, call));
	let_go(comm);
	return met;
}

/* ---- groups */

/*
 * The same for calls of a group, in their order and with a claim: puts as many as it can. Sets met
 * of those that all ranks have met, and number of all. Gives how many were not tried.
 */
COLL_HOT __attribute__((flatten))
unsigned int coll_board_group(struct coll_comm *comm, struct coll_request **v, unsigned int n)
{
	struct coll_board *b = &comm->board;
	enum state state[COLL_BOARD_SLOTS / 2];
	unsigned int nput = 0, i;
	bool fell = false, open = !b->never && coll_board_is_open(comm);
	uint64_t first = coll_board_next(comm);

	for (i = 0; i < n; i++)
		v[i]->number = first + i;
	if (!open)
		return n;
	while (nput < n && nput < COLL_BOARD_SLOTS / 2 && !fell) {
		if (!v[nput]->prepared)
			coll_board_prepare(&v[nput]->op, &v[nput]->board);
		v[nput]->prepared = true;
		if (!v[nput]->board.code)
			break;
		state[nput] = coll_board_put(comm, &v[nput]->board, first + nput);
		fell = state[nput] == FALLEN;
		nput++;
	}
	fell = false;
	for (i = 0; i < nput; i++) {
		/* Who has to post one does not wait for the others any more. */
		if (state[i] == OPEN && fell)
			state[i] = coll_board_leave(comm, first + i);
		else if (state[i] == OPEN)
			state[i] = meet(comm, first + i);
		v[i]->met = coll_board_end(comm, &v[i]->board, first + i, state[i]);
		fell |= !v[i]->met;
	}
	return n - nput;
}
