// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * reg.c - which of the caller's memory the kernel has pinned.
 *
 * An index of ranges, by address, that never overlap: a new range that overlaps
 * old ones replaces them by their union. Beside it, a list of what coll_register() was called
 * for, as it was called: a range that holds such memory stays. Dropping an entry that an operation
 * still uses only unlists it. It is safe to keep memory pinned that the caller
 * unmaps: the kernel answers the next POST of it with -ESTALE, and op.c then drops the
 * entry and registers anew.
 *
 * All functions but the public ones are called with the lock held.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "coll.h"
#include "run/comm.h"
#include "run/dev.h"
#include "run/drv.h"
#include "run/error.h"
#include "run/reg.h"
#include "run/request.h"

#define PAGE		4096UL
#define REGS_MAX	1024

static uintptr_t page_down(uintptr_t addr)
{
	return addr & ~(PAGE - 1);
}

static uintptr_t page_up(uintptr_t addr)
{
	return page_down(addr + PAGE - 1);
}

/* Index of the first entry that ends after addr. */
static unsigned int reg_find(const struct coll_regs *regs, uintptr_t addr)
{
	unsigned int lo = 0, hi = regs->n;

	while (lo < hi) {
		unsigned int mid = (lo + hi) / 2;

		if (regs->v[mid]->end <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* ---- what coll_register() was called for */

/* Index of the first that does not come before. */
static unsigned int asked_find(const struct coll_regs *regs, uintptr_t start, uintptr_t end)
{
	unsigned int lo = 0, hi = regs->nasked;

	while (lo < hi) {
		unsigned int mid = (lo + hi) / 2;
		const struct coll_asked *a = &regs->asked[mid];

		if (a->start < start || (a->start == start && a->end < end))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Exactly that one, or NULL. */
static struct coll_asked *asked_get(const struct coll_regs *regs, uintptr_t start, uintptr_t end)
{
	unsigned int i = asked_find(regs, start, end);

	return i < regs->nasked && regs->asked[i].start == start && regs->asked[i].end == end ?
	       &regs->asked[i] : NULL;
}

/* Room for one more. */
static int asked_grow(struct coll_regs *regs)
{
	unsigned int cap = regs->asked_cap ? 2 * regs->asked_cap : 16;
	struct coll_asked *asked;

	if (regs->nasked < regs->asked_cap)
		return 0;
	asked = realloc(regs->asked, cap * sizeof(*asked));
	if (!asked)
		return -ENOMEM;
	regs->asked = asked;
	regs->asked_cap = cap;
	return 0;
}

/* There is room. True if it is new. */
static bool asked_add(struct coll_regs *regs, uintptr_t start, uintptr_t end)
{
	struct coll_asked *asked = asked_get(regs, start, end);
	unsigned int i = asked_find(regs, start, end);

	if (asked) {
		asked->calls++;
		return false;
	}
	memmove(&regs->asked[i + 1], &regs->asked[i],
		(regs->nasked++ - i) * sizeof(*regs->asked));
	regs->asked[i] = (struct coll_asked) { .start = start, .end = end, .calls = 1 };
	return true;
}

static void asked_drop(struct coll_regs *regs, struct coll_asked *asked)
{
	memmove(asked, asked + 1, (regs->asked + --regs->nasked - asked) * sizeof(*asked));
}

/* How many lie in that range. */
static uint32_t asked_in(const struct coll_regs *regs, uintptr_t start, uintptr_t end)
{
	uint32_t n = 0;

	for (unsigned int i = asked_find(regs, start, 0);
	     i < regs->nasked && regs->asked[i].start < end; i++)
		n += regs->asked[i].end <= end;
	return n;
}

/* ---- ranges */

static void reg_free(struct coll_dev *dev, struct coll_reg *reg)
{
	coll_drv_destroy(&dev->drv, reg->id);
	dev->regs.bytes -= reg->end - reg->start;
	free(reg);
}

static void reg_unlist(struct coll_dev *dev, unsigned int i)
{
	struct coll_regs *regs = &dev->regs;
	struct coll_reg *reg = regs->v[i];

	regs->ndevice -= reg->device;
	memmove(&regs->v[i], &regs->v[i + 1], (--regs->n - i) * sizeof(*regs->v));
	reg->listed = false;
	if (!reg->refs)
		reg_free(dev, reg);
}

int coll_reg_list(struct coll_dev *dev, struct coll_reg *reg)
{
	struct coll_regs *regs = &dev->regs;
	unsigned int i;

	if (regs->n == regs->cap) {
		unsigned int cap = regs->cap ? 2 * regs->cap : 16;
		struct coll_reg **v = realloc(regs->v, cap * sizeof(*v));

		if (!v)
			return -ENOMEM;
		regs->v = v;
		regs->cap = cap;
	}
	i = reg_find(regs, reg->start);
	memmove(&regs->v[i + 1], &regs->v[i], (regs->n++ - i) * sizeof(*regs->v));
	regs->v[i] = reg;
	reg->listed = true;
	regs->ndevice += reg->device;
	reg->pins = asked_in(regs, reg->start, reg->end);
	reg->used = ++regs->clock;
	regs->bytes += reg->end - reg->start;
	return 0;
}

/* Drops the entry that has not been used for longest; false if there is none. */
bool coll_reg_evict(struct coll_dev *dev)
{
	struct coll_regs *regs = &dev->regs;
	unsigned int oldest = regs->n;

	for (unsigned int i = 0; i < regs->n; i++)
		if (!regs->v[i]->refs && !regs->v[i]->pins && !regs->v[i]->alloc &&
		    (oldest == regs->n || regs->v[i]->used < regs->v[oldest]->used))
			oldest = i;
	if (oldest == regs->n)
		return false;
	reg_unlist(dev, oldest);
	return true;
}

/*
 * The limit on locked memory is reached: give something back. What was given back, by
 * us or by another process of the user, takes the kernel a moment to unpin, so at
 * the end a few times only time passes. False: there is no hope.
 */
bool coll_reg_reclaim(struct coll_dev *dev, unsigned int *tries)
{
	const struct timespec pause = { .tv_nsec = 10000000 };

	if (coll_reg_evict(dev) || coll_scratch_trim(dev) || coll_requests_settle(dev))
		return true;
	if (++*tries > 30)
		return false;
	nanosleep(&pause, NULL);
	return true;
}

/*
 * Registers for writing only what is written to: a private mapping of a file would be copied. It
 * is registered anew if it is written to later. With @keep, part of it was for writing, and all
 * of it is if that is possible. Makes room if the limit is reached.
 */
static int reg_pin(struct coll_dev *dev, uintptr_t start, uintptr_t end, bool write, bool keep,
		   struct coll_reg **regp)
{
	struct coll_reg *reg = calloc(1, sizeof(*reg));
	unsigned int tries = 0;
	int rc;

	if (!reg)
		return -ENOMEM;
	reg->start = start;
	reg->end = end;
	reg->readonly = !write && !keep;
	for (;;) {
		rc = coll_drv_buf_register(&dev->drv, start, end - start, reg->readonly, &reg->id);
		if (rc == -EFAULT && !write && !reg->readonly)
			reg->readonly = true;
		else if (rc != -ENOMEM || !coll_reg_reclaim(dev, &tries))
			break;
	}
	if (rc) {
		free(reg);
		return rc;
	}
	*regp = reg;
	return 0;
}

/* Drops all that overlap. */
void coll_reg_clear(struct coll_dev *dev, uintptr_t start, uintptr_t end)
{
	struct coll_regs *regs = &dev->regs;
	unsigned int i = reg_find(regs, start);

	while (i < regs->n && regs->v[i]->start < end)
		reg_unlist(dev, i);
}

/* Does @reg not take the place of what is to stay: memory to free, or what somebody asked for? */
static bool reg_beside(const struct coll_dev *dev, const struct coll_reg *reg)
{
	const struct coll_regs *regs = &dev->regs;
	bool beside = false;

	for (unsigned int i = reg_find(regs, reg->start);
	     i < regs->n && regs->v[i]->start < reg->end; i++)
		beside |= regs->v[i]->alloc ||
			  (regs->v[i]->pins && (regs->v[i]->start < reg->start ||
						regs->v[i]->end > reg->end));
	return beside;
}

/* Lists what was pinned in place of all that it overlaps, or has it for one call only. */
static int reg_replace(struct coll_dev *dev, struct coll_reg *reg)
{
	int rc = 0;

	if (reg_beside(dev, reg)) {
		dev->regs.bytes += reg->end - reg->start;
	} else {
		coll_reg_clear(dev, reg->start, reg->end);
		rc = coll_reg_list(dev, reg);
	}
	if (rc) {
		coll_drv_destroy(&dev->drv, reg->id);
		free(reg);
	}
	return rc;
}

/*
 * The limit does not allow a range beside @old, which it contains, and which somebody asked for:
 * give up that one first. It comes back if that was in vain.
 */
static int reg_pin_instead(struct coll_dev *dev, const struct coll_reg *old, uintptr_t start,
			   uintptr_t end, bool write, bool keep, struct coll_reg **regp)
{
	struct coll_reg was = *old, *back;
	int rc;

	reg_unlist(dev, reg_find(&dev->regs, was.start));
	rc = reg_pin(dev, start, end, write, keep, regp);
	if (rc && !reg_pin(dev, was.start, was.end, !was.readonly, false, &back))
		reg_replace(dev, back);
	return rc;
}

/*
 * A reference to a registered range that holds len bytes at addr, for writing if
 * so. Release it with coll_reg_put().
 */
int coll_reg_get(struct coll_dev *dev, const void *addr, size_t len, bool write,
		 struct coll_reg **regp)
{
	struct coll_regs *regs = &dev->regs;
	uintptr_t start = (uintptr_t)addr, end, from, to;
	struct coll_reg *reg, *asked = NULL;
	unsigned int nasked = 0, i;
	bool keep = false;
	int rc;

	if (__builtin_add_overflow(start, len, &end) || end > UINTPTR_MAX - PAGE)
		return -EFAULT;
	i = reg_find(regs, start);
	reg = i < regs->n ? regs->v[i] : NULL;
	if (reg && reg->start <= start && reg->end >= end && !(write && reg->readonly)) {
		regs->hits++;
		reg->used = ++regs->clock;
		goto found;
	}
	regs->misses++;

	/* Whole pages: that is what gets pinned, and neighbours come in one go. */
	start = page_down(start);
	end = page_up(end);
	from = start;
	to = end;
	for (i = reg_find(regs, start); i < regs->n && regs->v[i]->start < end; i++) {
		from = from < regs->v[i]->start ? from : regs->v[i]->start;
		to = to > regs->v[i]->end ? to : regs->v[i]->end;
		keep |= !regs->v[i]->readonly;
		if (regs->v[i]->pins) {
			asked = regs->v[i];
			nasked++;
		}
	}
	/* What was asked for comes back as a whole. */
	for (i = 0; i < regs->nasked && regs->asked[i].start < end; i++) {
		if (regs->asked[i].end <= start)
			continue;
		from = from < regs->asked[i].start ? from : page_down(regs->asked[i].start);
		to = to > regs->asked[i].end ? to : page_up(regs->asked[i].end);
		keep = true;
	}
	while (regs->n >= REGS_MAX && coll_reg_evict(dev))
		;
	/* What is there is given up when this has succeeded. */
	rc = reg_pin(dev, from, to, write, keep, &reg);
	if (rc && (from < start || to > end))
		rc = reg_pin(dev, start, end, write, keep, &reg);
	if (rc == -ENOMEM && nasked == 1 && !asked->refs && !asked->alloc)
		rc = reg_pin_instead(dev, asked, from, to, write, keep, &reg);
	if (!rc)
		rc = reg_replace(dev, reg);
	if (rc)
		return rc;
found:
	reg->refs++;
	*regp = reg;
	return 0;
}

/* Is all of it pinned already? */
bool coll_reg_has(const struct coll_dev *dev, const void *addr, size_t len)
{
	unsigned int i = reg_find(&dev->regs, (uintptr_t)addr);
	const struct coll_reg *reg = i < dev->regs.n ? dev->regs.v[i] : NULL;

	return reg && reg->start <= (uintptr_t)addr && reg->end - (uintptr_t)addr >= len;
}

enum coll_touch coll_reg_touch(const struct coll_dev *dev, const void *addr)
{
	const struct coll_reg *reg;
	unsigned int i;

	if (!atomic_load_explicit(&dev->regs.ndevice, memory_order_relaxed))
		return COLL_TOUCH_FREELY;
	i = reg_find(&dev->regs, (uintptr_t)addr);
	reg = i < dev->regs.n ? dev->regs.v[i] : NULL;
	if (!reg || reg->start > (uintptr_t)addr || !reg->device)
		return COLL_TOUCH_FREELY;
	return reg->hidden ? COLL_TOUCH_NEVER : COLL_TOUCH_SLOWLY;
}

/* Is one of two buffers, each of which may be NULL, for devices only? Without the lock. */
bool coll_reg_is_device(struct coll_dev *dev, const void *send, const void *recv)
{
	bool device;

	pthread_mutex_lock(&dev->lock);
	device = coll_reg_touch(dev, send) || coll_reg_touch(dev, recv);
	pthread_mutex_unlock(&dev->lock);
	return device;
}

void coll_reg_put(struct coll_dev *dev, struct coll_reg *reg)
{
	if (--reg->refs)
		return;
	if (!reg->listed)
		reg_free(dev, reg);
	/* Other ranks of this user live on the same limit. */
	while (dev->regs.bytes > dev->idle_max && coll_reg_evict(dev))
		;
}

/* The memory is not what was pinned: forget it, but for those who use it now. */
void coll_reg_stale(struct coll_dev *dev, struct coll_reg *reg)
{
	unsigned int i = reg_find(&dev->regs, reg->start);

	dev->regs.stale++;
	if (reg->listed && i < dev->regs.n && dev->regs.v[i] == reg)
		reg_unlist(dev, i);
}

/* Takes what was allocated at @addr away. -EINVAL: nothing was. -EBUSY: it is in use. */
int coll_reg_free(struct coll_dev *dev, void *addr)
{
	unsigned int i = reg_find(&dev->regs, (uintptr_t)addr);
	struct coll_reg *reg = i < dev->regs.n ? dev->regs.v[i] : NULL;

	if (!reg || !reg->alloc || reg->start != (uintptr_t)addr)
		return -EINVAL;
	if (reg->refs)
		return -EBUSY;
	coll_drv_unmap(addr, reg->end - reg->start);
	reg_unlist(dev, i);
	return 0;
}

/* When the file is closed: the kernel frees its side. */
void coll_reg_free_all(struct coll_dev *dev, bool unmap)
{
	for (unsigned int i = 0; i < dev->regs.n; i++) {
		struct coll_reg *reg = dev->regs.v[i];

		if (reg->alloc && unmap)
			coll_drv_unmap((void *)reg->start, reg->end - reg->start);
		free(reg);
	}
	free(dev->regs.v);
	free(dev->regs.asked);
	dev->regs = (struct coll_regs) { };
}

int coll_register(struct coll_comm *comm, void *addr, size_t len)
{
	uintptr_t start = (uintptr_t)addr;
	struct coll_dev *dev;
	struct coll_reg *reg = NULL;
	bool beside = false;
	int rc = coll_comm_enter(comm);

	if (rc)
		return rc;
	dev = comm->dev;
	if (!addr || !len)
		return coll_fail(comm, -EINVAL, "%s: no memory given", __func__);
	pthread_mutex_lock(&dev->lock);
	rc = asked_grow(&dev->regs);
	if (!rc)
		rc = coll_reg_get(dev, addr, len, true, &reg);
	if (!rc) {
		/* Beside what is there it does not stay. */
		beside = !reg->listed;
		if (!beside)
			reg->pins += asked_add(&dev->regs, start, start + len);
		coll_reg_put(dev, reg);
	}
	pthread_mutex_unlock(&dev->lock);
	if (beside)
		return coll_fail(comm, -EOPNOTSUPP,
				 "the %zu bytes at %p overlap memory that is registered, and cannot be pinned together with it: deregister that first, also if it has been unmapped",
				 len, addr);
	return rc ? coll_fail_pin(comm, NULL, addr, len, rc) : 0;
}

int coll_deregister(struct coll_comm *comm, void *addr, size_t len)
{
	uintptr_t start = (uintptr_t)addr, end = start + len;
	struct coll_asked *asked;
	struct coll_dev *dev;
	struct coll_reg *reg;
	unsigned int i;
	int rc = coll_comm_enter(comm);

	if (rc)
		return rc;
	dev = comm->dev;
	pthread_mutex_lock(&dev->lock);
	asked = asked_get(&dev->regs, start, end);
	if (!asked) {
		rc = -ENOENT;
	} else if (!--asked->calls) {
		asked_drop(&dev->regs, asked);
		/* It may have gone before, as what was pinned was unmapped. */
		i = reg_find(&dev->regs, start);
		reg = i < dev->regs.n ? dev->regs.v[i] : NULL;
		if (reg && reg->start <= start && reg->end >= end && !--reg->pins && !reg->alloc)
			reg_unlist(dev, i);
	}
	pthread_mutex_unlock(&dev->lock);
	return rc ? coll_fail(comm, rc,
			      "%s: coll_register() was not called for these %zu bytes at %p, or that was undone",
			      __func__, len, addr) : 0;
}
