// SPDX-License-Identifier: GPL-2.0
/*
 * share.c - large collectives in one go: the tasks of all ranks run them together.
 *
 * The requests of a script (script.c) of which one copies what the other has written, or reads,
 * are put together: an item has inputs, and places where the result is to be. If no item touches
 * what another one writes, then items can be run in any order, and so can their blocks. All tasks
 * that wait for the operations take one block after the other, until there are none left: memory
 * is read once and written once, what lies between is in the cache, no bell is rung, and nobody
 * waits for anybody as long as there is work.
 *
 * What each operation gives its file for that is a request, as any other (run.c): its waiter or
 * its worker takes part with it. A task that is to do something else puts it back, and who gets it
 * goes on. If the communicator fails, blocks are still taken, but not run.
 */
#include <linux/moduleparam.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include "comm/comm.h"
#include "file/file.h"
#include "run/meet.h"
#include "run/op.h"
#include "run/run.h"
#include "run/script.h"
#include "run/seq.h"

static unsigned int npulink_nontemporal_kib = 65536;
module_param_named(nontemporal_kib, npulink_nontemporal_kib, uint, 0644);
MODULE_PARM_DESC(nontemporal_kib, "KiB that all requests of a collective of one machine read and write, from which no cache has its results anyway and they are stored past it (65536); taken when it is first run");

#define SHARE_OPERANDS		16384U		/* of a script that is looked at */
#define SHARE_BLOCK		(32U << 10)	/* bytes at a time .. */
#define SHARE_BLOCK_MIN		(8U << 10)	/* .. less if there are many inputs .. */
#define SHARE_INPUTS		(128U << 10)	/* .. so that they fit in a cache */
#define SHARE_INLINE		(64U << 10)	/* devices that do less at a time are left out */
#define SHARE_JIFFIES		2		/* then a task looks at what else there is */

struct npulink_share_item {
	u32 first;		/* script->reqs[first ..]: one, then copies of the same */
	u32 nreqs;
	u32 at;			/* number of its first block */
	u32 block;		/* bytes of a block */
	u64 len;
};

/*
 * struct npulink_share - how a script is divided
 * @lock: @list, @first, @last
 * @list: the operations that are being run, the last to post first; NULL: none
 * @first: the last to post of whole meetings that come after it, by meet.other
 * @last: of them
 * @run: number of the run
 * @next: @run << 32 | block that is the next to be taken
 * @left: blocks that are not done; one more while tasks are being asked
 * @bad: some were not run
 * @met: when all had posted
 */
struct npulink_share {
	u32 nitems;
	u32 nblocks;
	struct npulink_share_item *items;
	spinlock_t lock;	/* see above */
	struct npulink_op *list;
	struct npulink_op *first, *last;
	u32 run;
	atomic64_t next;
	atomic_t left;
	bool bad;
	u64 met;
};

/* ---- dividing a script ------------------------------------------------------- */

/* What a request reads or writes. */
struct share_range {
	struct npulink_script_operand o;
	u64 len;
	u32 item;		/* index of its first request */
	u32 req;
	bool write;
};

static int share_cmp(const void *a, const void *b)
{
	const struct npulink_script_operand *x = a, *y = b;

	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	if (x->slot != y->slot)
		return x->slot < y->slot ? -1 : 1;
	return x->off < y->off ? -1 : x->off > y->off;
}

static int share_cmp_reqs(const void *a, const void *b)
{
	const struct share_range *x = a, *y = b;

	return share_cmp(x, y) ?: (x->req < y->req ? -1 : x->req > y->req);
}

/* The first request before @req that has @o, of @n in order; NULL if there is none. */
static const struct share_range *share_find(const struct share_range *ranges, u32 n,
					    const struct npulink_script_operand *o, u64 len,
					    u32 req)
{
	u32 lo = 0, hi = n;

	while (lo < hi) {
		u32 mid = lo + (hi - lo) / 2;

		if (share_cmp(&ranges[mid], o) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo == n || share_cmp(&ranges[lo], o) || ranges[lo].len != len || ranges[lo].req >= req)
		return NULL;
	return &ranges[lo];
}

/* Which item each request belongs to. False if two write the same. */
static bool share_items(const struct npulink_script *s, struct share_range *ranges, u32 *item)
{
	struct share_range *written = ranges, *copied = ranges + s->nreqs;
	u32 i, ncopied = 0;

	for (i = 0; i < s->nreqs; i++) {
		const struct npulink_script_req *sr = &s->reqs[i];
		const struct npulink_script_operand *o = &s->operands[sr->operand];

		written[i] = (struct share_range) { .o = o[0], .len = sr->len, .req = i };
		if (sr->nsrc == 1)
			copied[ncopied++] = (struct share_range) {
				.o = o[1], .len = sr->len, .req = i,
			};
	}
	sort(written, s->nreqs, sizeof(*written), share_cmp_reqs, NULL);
	cond_resched();
	sort(copied, ncopied, sizeof(*copied), share_cmp_reqs, NULL);
	cond_resched();
	for (i = 1; i < s->nreqs; i++)
		if (!share_cmp(&written[i - 1], &written[i]))
			return false;
	for (i = 0; i < s->nreqs; i++) {
		const struct npulink_script_req *sr = &s->reqs[i];
		const struct npulink_script_operand *src = &s->operands[sr->operand + 1];
		const struct share_range *with = NULL;

		if (sr->nsrc == 1)
			with = share_find(written, s->nreqs, src, sr->len, i) ?:
			       share_find(copied, ncopied, src, sr->len, i);
		item[i] = with ? item[with->req] : i;
	}
	return true;
}

/* Does no item touch what another one writes, nor itself but where it writes? */
static bool share_independent(const struct npulink_script *s, struct share_range *ranges,
			      const u32 *item)
{
	u32 i, k, n = 0, writes;

	for (i = 0; i < s->nreqs; i++) {
		const struct npulink_script_req *sr = &s->reqs[i];

		for (k = 0; k <= sr->nsrc; k++)
			ranges[n++] = (struct share_range) {
				.o = s->operands[sr->operand + k], .len = sr->len,
				.item = item[i], .req = i, .write = !k,
			};
	}
	sort(ranges, n, sizeof(*ranges), share_cmp, NULL);
	cond_resched();
	/* Of ranges that hang together, all are the same one, or none is written. */
	for (i = 0; i < n; i = k) {
		const struct share_range *r = &ranges[i];
		u64 end = r->o.off + r->len;
		bool same = true;

		writes = r->write;
		for (k = i + 1; k < n; k++) {
			const struct share_range *q = &ranges[k];

			if (q->o.rank != r->o.rank || q->o.slot != r->o.slot || q->o.off >= end)
				break;
			end = max(end, q->o.off + q->len);
			same &= q->o.off == r->o.off && q->len == r->len && q->item == r->item;
			writes += q->write;
		}
		if (writes && (!same || writes > 1))
			return false;
	}
	return true;
}

struct share_key {
	u32 item;
	u32 req;
};

static int share_cmp_keys(const void *a, const void *b)
{
	const struct share_key *x = a, *y = b;

	if (x->item != y->item)
		return x->item < y->item ? -1 : 1;
	return x->req < y->req ? -1 : x->req > y->req;
}

static void share_item(struct npulink_share *sh, const struct npulink_script *s, u32 first)
{
	const struct npulink_script_req *sr = &s->reqs[first];
	struct npulink_share_item *it = &sh->items[sh->nitems++];
	u32 most = clamp(SHARE_INPUTS / sr->nsrc, SHARE_BLOCK_MIN, SHARE_BLOCK);
	u64 n = DIV_ROUND_UP_ULL(sr->len, most);

	*it = (struct npulink_share_item) {
		.first = first, .at = sh->nblocks, .len = sr->len,
		/* Whole elements, and nothing that two processors write to. */
		.block = round_up(DIV_ROUND_UP_ULL(sr->len, n), 64),
	};
	sh->nblocks += DIV_ROUND_UP_ULL(it->len, it->block);
}

/* Bring the requests of each item together. */
static bool share_order(struct npulink_script *s, struct npulink_share *sh,
			const struct share_key *keys)
{
	struct npulink_script_req *reqs;
	u64 blocks = 0;
	u32 i;

	reqs = kvmalloc_array(s->nreqs, sizeof(*reqs), GFP_KERNEL_ACCOUNT);
	if (!reqs)
		return false;
	for (i = 0; i < s->nreqs; i++)
		reqs[i] = s->reqs[keys[i].req];
	kvfree(s->reqs);
	s->reqs = reqs;
	for (i = 0; i < s->nreqs; i++)
		blocks += reqs[i].len / SHARE_BLOCK_MIN + 2;
	if (blocks > S32_MAX)
		return false;
	for (i = 0; i < s->nreqs; i++) {
		if (!i || keys[i].item != keys[i - 1].item)
			share_item(sh, s, i);
		sh->items[sh->nitems - 1].nreqs++;
	}
	return true;
}

/* Of more data than a cache has, results that are not copied afterwards need not go through it. */
static void share_nontemporal(struct npulink_script *s, u64 bytes)
{
	const struct npulink_share *sh = s->share;
	u32 i;

	if (bytes >> 10 < READ_ONCE(npulink_nontemporal_kib))
		return;
	for (i = 0; i < sh->nitems; i++)
		s->reqs[sh->items[i].first].nontemporal =
			sh->items[i].nreqs == 1 && s->reqs[sh->items[i].first].nsrc > 1;
}

/*
 * Divide @s, of whose ranks each has a request with room for @max_src inputs, and whose requests
 * read and write @bytes. False if that is not possible. May sleep.
 */
bool npulink_share_make(struct npulink_script *s, u32 max_src, u64 bytes)
{
	struct share_range *ranges;
	struct npulink_share *sh;
	struct share_key *keys;
	bool ok = false;
	u32 *item, i;

	if (!s->nreqs || s->noperands > SHARE_OPERANDS)
		return false;
	for (i = 0; i < s->nreqs; i++)
		if (s->reqs[i].nsrc > max_src)
			return false;
	sh = kzalloc(sizeof(*sh), GFP_KERNEL_ACCOUNT);
	if (!sh)
		return false;
	s->share = sh;
	s->max_req = SHARE_INLINE;
	spin_lock_init(&sh->lock);
	sh->items = kvmalloc_array(s->nreqs, sizeof(*sh->items), GFP_KERNEL_ACCOUNT);
	ranges = kvmalloc_array(s->noperands, sizeof(*ranges), GFP_KERNEL);
	item = kvmalloc_array(s->nreqs, sizeof(*item), GFP_KERNEL);
	keys = kvmalloc_array(s->nreqs, sizeof(*keys), GFP_KERNEL);
	if (sh->items && ranges && item && keys &&
	    share_items(s, ranges, item) && share_independent(s, ranges, item)) {
		for (i = 0; i < s->nreqs; i++)
			keys[i] = (struct share_key) { .item = item[i], .req = i };
		sort(keys, s->nreqs, sizeof(*keys), share_cmp_keys, NULL);
		cond_resched();
		ok = share_order(s, sh, keys);
		if (ok)
			share_nontemporal(s, bytes);
	}
	kvfree(ranges);
	kvfree(item);
	kvfree(keys);
	return ok;
}

void npulink_share_free(struct npulink_script *s)
{
	if (s->share)
		kvfree(s->share->items);
	kfree(s->share);
}

/* ---- taking part ----------------------------------------------------------- */

/* The next block of a run, if it has any left. */
static bool npulink_share_take(struct npulink_share *sh, u32 run, u32 *block)
{
	/* Pairs with npulink_share_start(). */
	s64 next = atomic64_read_acquire(&sh->next);

	do {
		if ((u64)next >> 32 != run || (u32)next >= sh->nblocks)
			return false;
	} while (!atomic64_try_cmpxchg_acquire(&sh->next, &next, next + 1));
	*block = (u32)next;
	return true;
}

static const struct npulink_share_item *npulink_share_item(const struct npulink_share *sh,
							   u32 block)
{
	u32 lo = 0, hi = sh->nitems;

	while (hi - lo > 1) {
		u32 mid = lo + (hi - lo) / 2;

		if (sh->items[mid].at <= block)
			lo = mid;
		else
			hi = mid;
	}
	return &sh->items[lo];
}

/* Run a block by way of @req. Returns the bytes that were written. */
static u64 npulink_share_block(const struct npulink_script *s, u32 block, struct npulink_req *req)
{
	const struct npulink_share_item *it = npulink_share_item(s->share, block);
	u64 at = (u64)(block - it->at) * it->block, n = min_t(u64, it->len - at, it->block);
	struct npulink_comm *comm = s->ops[0]->rank->comm;
	u32 i;
	int rc;

	for (i = it->first; i < it->first + it->nreqs; i++) {
		/* Thousands may copy the same block. */
		cond_resched();
		/* Pairs with npulink_comm_record(). */
		if (smp_load_acquire(&comm->failed)) {
			WRITE_ONCE(s->share->bad, true);
			return 0;
		}
		rc = npulink_script_req_run(s, &s->reqs[i], req, at, n);
		if (rc) {
			WRITE_ONCE(s->share->bad, true);
			npulink_script_fail(s, &s->reqs[i], rc);
			return 0;
		}
	}
	return n * it->nreqs;
}

/* Ask for the task of an operation. False if there is no work for it any more. */
static bool npulink_share_ask(struct npulink_script *s, struct npulink_op *op,
			      struct npulink_run *run)
{
	struct npulink_req *req;
	unsigned long flags;
	bool asked = false;

	spin_lock_irqsave(&op->rank->lock, flags);
	if (op->state == NPULINK_OP_RUNNING) {
		req = op->free_req;
		op->free_req = req->core.next;
		op->inflight++;
		op->meet.run = s->share->run;
		WRITE_ONCE(op->meet.part, req);
		kref_get(&s->kref);
		npulink_req_ready(req, run);
		asked = true;
	}
	spin_unlock_irqrestore(&op->rank->lock, flags);
	return asked;
}

/* Begin with the operations of @list. True if it is over already. */
static bool npulink_share_start(struct npulink_script *s, struct npulink_op *list,
				struct npulink_run *run)
{
	struct npulink_share *sh = s->share;
	struct npulink_op *op;
	bool asked = false;

	sh->met = list->meet.met;
	sh->bad = false;
	sh->run++;
	for (op = list; op; op = op->meet.next)
		s->ops[op->rank->rank] = op;
	atomic_set(&sh->left, sh->nblocks + 1);
	/* Pairs with npulink_share_take(). */
	atomic64_set_release(&sh->next, (s64)((u64)sh->run << 32));
	/* Our own comes last: we are awake. */
	for (op = list->meet.next ?: list; op; op = op == list ? NULL : op->meet.next ?: list)
		asked |= npulink_share_ask(s, op, run);
	if (!asked) {
		/* All have failed. */
		sh->bad = true;
		atomic_set(&sh->left, 1);
	}
	return atomic_dec_and_test(&sh->left);
}

/* A run is over. Go on with the next one, if all have met for it meanwhile. */
static void npulink_share_end(struct npulink_script *s, struct npulink_run *run)
{
	struct npulink_share *sh = s->share;
	struct npulink_op *next;

	do {
		if (!sh->bad)
			npulink_script_count(s);
		npulink_meet_close(sh->list, !sh->bad, sh->met, run);
		spin_lock(&sh->lock);
		next = sh->first;
		if (next)
			sh->first = next->meet.other;
		sh->list = next;
		spin_unlock(&sh->lock);
		/* That of the meeting; the next one has its own. */
		npulink_script_put(s);
	} while (next && npulink_share_start(s, next, run));
}

/* All have met, @list the last, whose reference to the script is the meeting's. */
void npulink_share_post(struct npulink_op *list, struct npulink_run *run)
{
	struct npulink_script *s = list->meet.script;
	struct npulink_share *sh = s->share;
	bool busy;

	list->meet.met = npulink_run_now(run);
	spin_lock(&sh->lock);
	busy = sh->list;
	if (!busy) {
		sh->list = list;
	} else {
		list->meet.other = NULL;
		if (sh->first)
			sh->last->meet.other = list;
		else
			sh->first = list;
		sh->last = list;
	}
	spin_unlock(&sh->lock);
	if (!busy && npulink_share_start(s, list, run))
		npulink_share_end(s, run);
}

static void npulink_share_return(struct npulink_op *op)
{
	struct npulink_req *req = op->meet.part;

	lockdep_assert_held(&op->rank->lock);
	WRITE_ONCE(op->meet.part, NULL);
	npulink_req_give(op, req);
	op->inflight--;
}

/*
 * The run is over: take back the part of @op, unless a task has it. True if so; the caller lets go
 * of a reference to the script. Under the rank's lock.
 */
bool npulink_share_withdraw(struct npulink_op *op)
{
	struct npulink_file *file = op->rank->file;
	bool mine = false;

	lockdep_assert_held(&op->rank->lock);
	if (!op->meet.part)
		return false;
	spin_lock(&file->lock);
	if (op->meet.part->core.state == NPULINK_REQ_READY) {
		list_del(&op->meet.part->core.node);
		mine = true;
	}
	spin_unlock(&file->lock);
	if (mine)
		npulink_share_return(op);
	return mine;
}

/* Is there something that a task should rather do? */
static bool npulink_share_enough(const struct npulink_file *file, const struct npulink_op *waits,
				 unsigned long until)
{
	if (signal_pending(current) || time_after(jiffies, until))
		return true;
	/* Pairs with npulink_op_wake(). */
	return !list_empty_careful(&file->ready) || (waits && smp_load_acquire(&waits->done));
}

/*
 * What the task does that was asked for, by @req, for as long as it may; it waits for @waits, if
 * that is not NULL. No locks held.
 */
void npulink_share_part(struct npulink_req *req, const struct npulink_op *waits, u64 until_ns)
{
	unsigned long until = jiffies + SHARE_JIFFIES, flags;
	struct npulink_op *op = req->core.op;
	struct npulink_script *s = op->meet.script;
	struct npulink_rank *rank = op->rank;
	bool enough = false, last = false;
	NPULINK_DEFINE_RUN_TASK(run);
	u32 nth = op->meet.run, block;
	u64 bytes = 0;

	npulink_run_limit(&run, until_ns);
	if (time_before(run.until, until))
		until = run.until;
	while (!enough && !last && npulink_share_take(s->share, nth, &block)) {
		bytes += npulink_share_block(s, block, req);
		last = atomic_dec_and_test(&s->share->left);
		enough = npulink_share_enough(rank->file, waits, until);
		if (!last)
			cond_resched();
	}
	spin_lock_irqsave(&rank->lock, flags);
	op->bytes = min(op->bytes + bytes, op->plan->bytes);
	enough &= !last && !op->meet.over;
	if (enough) {
		npulink_req_ready(req, &run);
	} else {
		npulink_share_return(op);
		if (!op->inflight && (op->meet.over || op->state == NPULINK_OP_FAILING))
			npulink_op_finish(op, &run);
	}
	spin_unlock_irqrestore(&rank->lock, flags);
	if (last)
		npulink_share_end(s, &run);
	if (!enough)
		npulink_script_put(s);
	npulink_run(&run);
}
