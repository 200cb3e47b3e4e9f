// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * dev.c - an open device, and the memory that comes with it: the arena through
 * which small payloads go, and scratch buffers for intermediate results.
 *
 * All functions but open and free are called with the lock held.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include "base/base.h"
#include "coll.h"
#include "run/board.h"
#include "run/cause.h"
#include "run/comm.h"
#include "run/dev.h"
#include "run/drv.h"
#include "run/reg.h"
#include "tune/calibration.h"
#include "tune/tune.h"

/* What this user has just freed may be on its way back: the kernel waits for that elsewhere. */
static int dev_map_arena(struct coll_dev *dev, void **map)
{
	const struct timespec pause = { .tv_nsec = 10000000 };
	unsigned int tries;
	int rc = -EAGAIN;

	for (tries = 0; rc == -EAGAIN && tries < 300; tries++) {
		rc = coll_drv_map(&dev->drv, NPULINK_MMAP_ARENA, dev->arena_size, map);
		if (rc == -EAGAIN)
			nanosleep(&pause, NULL);
	}
	/* That is also what mlockall(MCL_FUTURE) says at the limit. */
	return rc == -EAGAIN ? -ENOMEM : rc;
}

/* A device of the module, with everything that communicators on it will share. */
int coll_dev_open(struct coll_dev **devp, const struct coll_config *config, unsigned int index,
		  char *text, size_t size)
{
	struct coll_dev *dev = calloc(1, sizeof(*dev));
	char path[128] = "/dev/npulink/npu*", what[256];
	size_t words;
	void *map;
	int rc;

	if (!dev)
		return coll_text(text, size, -ENOMEM, "out of memory");
	dev->drv.fd = -1;
	dev->refs = 1;
	dev->idle_max = UINT64_MAX;
	pthread_mutex_init(&dev->lock, NULL);
	rc = coll_drv_device(config->device, index, path, sizeof(path));
	if (!rc)
		rc = coll_drv_open(&dev->drv, path);
	if (rc) {
		coll_cause_open(rc, path, text, size);
		goto err;
	}
	rc = coll_drv_info(&dev->drv, &dev->info);
	if (rc) {
		coll_cause_info(rc, path, text, size);
		goto err;
	}
	if (dev->info.out_abi_version != NPULINK_ABI_VERSION) {
		rc = coll_text(text, size, -EPROTONOSUPPORT,
			       "npulink.ko %.16s has ABI %u, libcoll %s needs ABI %u: install both from one release",
			       dev->info.out_version, dev->info.out_abi_version,
			       COLL_VERSION_STRING, NPULINK_ABI_VERSION);
		goto err;
	}
	dev->process = getpid();
	rc = coll_drv_marker(&dev->marker);
	if (rc) {
		coll_text(text, size, rc, "cannot map a page: %s", strerror(-rc));
		goto err;
	}
	dev->arena_size = config->arena ? config->arena : COLL_ARENA_DEFAULT;
	dev->arena_size = (dev->arena_size + 4095) & ~(size_t)4095;
	if (dev->arena_size > dev->info.out_max_arena) {
		rc = coll_text(text, size, -EINVAL, "arena of %zu bytes: %s allows at most %u",
			       dev->arena_size, path, dev->info.out_max_arena);
		goto err;
	}
	words = (dev->arena_size / COLL_ARENA_GRAIN + 63) / 64;
	dev->arena_used = calloc(words, sizeof(*dev->arena_used));
	if (!dev->arena_used) {
		rc = coll_text(text, size, -ENOMEM, "out of memory");
		goto err;
	}
	rc = dev_map_arena(dev, &map);
	if (rc) {
		snprintf(what, sizeof(what),
			 "the arena of each rank that shares no device (coll_config.share, coll_config.arena), here on %s, ",
			 path);
		coll_cause_memory(rc, dev->arena_size, what, text, size);
		goto err;
	}
	dev->arena = map;
	dev->ring_entries = 1;
	while (dev->ring_entries < (config->inflight ? config->inflight : 256) &&
	       dev->ring_entries < NPULINK_MAX_RING)
		dev->ring_entries *= 2;
	*devp = dev;
	return 0;
err:
	coll_dev_free(dev);
	return rc;
}

/*
 * Nobody uses it any more. In a forked child the shared mappings do not exist;
 * something else may be at their place.
 */
void coll_dev_free(struct coll_dev *dev)
{
	bool child = dev->marker && coll_dev_is_child(dev);
	struct coll_scratch *s;

	coll_reg_free_all(dev, !child);
	while ((s = dev->scratch)) {
		dev->scratch = s->next;
		if (s->map && !child)
			coll_drv_unmap(s->map, s->len);
		free(s);
	}
	if (dev->arena && !child)
		coll_drv_unmap(dev->arena, dev->arena_size);
	if (dev->ring && !child)
		coll_drv_unmap(dev->ring, dev->ring_len);
	coll_drv_close(&dev->drv);
	coll_drv_marker_free(dev->marker);
	for (unsigned int i = 0; i < dev->nchunks; i++)
		free(dev->chunks[i]);
	free(dev->chunks);
	free(dev->arena_used);
	pthread_mutex_destroy(&dev->lock);
	free(dev);
}

void coll_dev_put(struct coll_dev *dev)
{
	bool last;

	pthread_mutex_lock(&dev->lock);
	last = !--dev->refs;
	pthread_mutex_unlock(&dev->lock);
	if (last)
		coll_dev_free(dev);
}

/*
 * Before it is used once more without need: is it still open? If not, nothing is done with the
 * descriptor any more, which is somebody else's now. Lock held, if it is not a child.
 */
void coll_dev_check(struct coll_dev *dev)
{
	bool child = coll_dev_is_child(dev);
	ptrdiff_t mark = child ? -1 : coll_arena_get(dev, 1);

	if (!coll_drv_is_ours(&dev->drv, child ? NULL : dev->arena, dev->arena_size, mark))
		dev->drv.fd = -1;
	if (mark >= 0)
		coll_arena_put(dev, mark, 1);
}

static bool board_takes(const struct coll_algorithm *alg, const struct coll_args *args)
{
	struct coll_board_call call = { };

	return coll_board_takes(alg, args, &call);
}

/* What the choice of algorithms has to know of the device. */
void coll_dev_costs(const struct npulink_device_info *info, struct coll_tune *tune,
		    uint32_t nranks)
{
	coll_calibration_device(tune, info, nranks);
	tune->board = info->out_caps & NPULINK_CAP_BOARD ? board_takes : NULL;
}

/*
 * A communicator of nranks is made. The limit on locked memory is for all processes
 * of a user, so each of its ranks may keep only a part of it pinned for later; what
 * operations in flight use does not count. No limit for root, who has CAP_IPC_LOCK.
 */
void coll_dev_limit(struct coll_dev *dev, unsigned int nranks)
{
	struct rlimit limit;
	uint64_t max;

	if (!geteuid() || getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_cur == RLIM_INFINITY)
		return;
	max = limit.rlim_cur / (4ULL * nranks);
	pthread_mutex_lock(&dev->lock);
	if (max < dev->idle_max)
		dev->idle_max = max;
	pthread_mutex_unlock(&dev->lock);
}

/* Is this a process that fork() made after the device was opened? */
COLL_HOT bool coll_dev_is_child(const struct coll_dev *dev)
{
	return !*(volatile unsigned char *)dev->marker;
}

/* First of all in every call: is this the process that made it? */
COLL_HOT int coll_comm_enter(struct coll_comm *comm)
{
	if (!comm)
		return -EINVAL;
	return coll_dev_is_child(comm->dev) ? -EPERM : 0;
}

/* ---- arena */

static uint64_t word_mask(size_t from, size_t n)
{
	return (n == 64 ? ~0ULL : (1ULL << n) - 1) << from;
}

/* Sets or clears n bits, or finds one that is set: the index after it, else 0. */
static size_t arena_bits(uint64_t *bits, size_t from, size_t n, int set)
{
	while (n) {
		size_t at = from % 64, len = n < 64 - at ? n : 64 - at;
		uint64_t mask = word_mask(at, len);
		uint64_t *word = &bits[from / 64];

		if (set < 0 && *word & mask)
			return from - at + 64 - __builtin_clzll(*word & mask);
		if (set > 0)
			*word |= mask;
		else if (!set)
			*word &= ~mask;
		from += len;
		n -= len;
	}
	return 0;
}

/* The first n free bits, taken, of less than 64 that are all in this word; or -1. */
static int arena_word(uint64_t *word, size_t n)
{
	uint64_t begins = ~*word;
	int at;

	/* A bit stays if the next ones are free, too: twice as many each time. */
	for (size_t have = 1; have < n; have += have < n - have ? have : n - have)
		begins &= begins >> (have < n - have ? have : n - have);
	if (!begins)
		return -1;
	at = __builtin_ctzll(begins);
	*word |= word_mask(at, n);
	return at;
}

/* First fit, rather within a word: offset of len bytes, or -1. There are few at a time. */
ptrdiff_t coll_arena_get(struct coll_dev *dev, size_t len)
{
	size_t n = (len + COLL_ARENA_GRAIN - 1) / COLL_ARENA_GRAIN;
	size_t all = dev->arena_size / COLL_ARENA_GRAIN, next;
	int bit;

	for (size_t word = 0; n < 64 && word < all / 64; word++) {
		if (dev->arena_used[word] == UINT64_MAX)
			continue;
		bit = arena_word(&dev->arena_used[word], n);
		if (bit >= 0)
			return (word * 64 + bit) * COLL_ARENA_GRAIN;
	}
	for (size_t at = 0; n <= all && at <= all - n; at = next) {
		next = arena_bits(dev->arena_used, at, n, -1);
		if (!next) {
			arena_bits(dev->arena_used, at, n, 1);
			return at * COLL_ARENA_GRAIN;
		}
	}
	return -1;
}

void coll_arena_put(struct coll_dev *dev, size_t off, size_t len)
{
	arena_bits(dev->arena_used, off / COLL_ARENA_GRAIN,
		   (len + COLL_ARENA_GRAIN - 1) / COLL_ARENA_GRAIN, 0);
}

/* ---- scratch */

/* Idle buffers beyond this are given back. */
#define SCRATCH_IDLE_MAX	(64ULL << 20)

/* The smallest idle buffer that is large enough but not wastefully so, or a new one. */
int coll_scratch_get(struct coll_dev *dev, size_t len, bool device, struct coll_scratch **scratch)
{
	struct coll_scratch **p, **best = NULL, *s;
	uint64_t offset;
	unsigned int tries = 0;
	size_t size = 4096;
	int rc;

	while (size < len)
		size *= 2;
	for (p = &dev->scratch; *p; p = &(*p)->next)
		if ((*p)->device == device && (*p)->len >= len && (*p)->len / 4 <= size &&
		    (!best || (*p)->len < (*best)->len))
			best = p;
	if (best) {
		s = *best;
		*best = s->next;
		dev->scratch_idle -= s->len;
		*scratch = s;
		return 0;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->len = size;
	s->device = device;
	do
		rc = coll_drv_buf_alloc(&dev->drv, device ? NPULINK_BUF_DEVICE : 0, size, &s->id,
					&offset);
	while (rc == -ENOMEM && (device ? coll_scratch_trim(dev) : coll_reg_reclaim(dev, &tries)));
	if (rc) {
		free(s);
		return rc;
	}
	s->offset = offset;
	dev->scratch_bytes += s->len;
	*scratch = s;
	return 0;
}

/* Makes it memory of this process, too. */
int coll_scratch_map(struct coll_dev *dev, struct coll_scratch *s)
{
	return s->map ? 0 : coll_drv_map(&dev->drv, s->offset, s->len, &s->map);
}

static void scratch_free(struct coll_dev *dev, struct coll_scratch *s)
{
	if (s->map)
		coll_drv_unmap(s->map, s->len);
	coll_drv_destroy(&dev->drv, s->id);
	dev->scratch_bytes -= s->len;
	free(s);
}

void coll_scratch_put(struct coll_dev *dev, struct coll_scratch *s)
{
	uint64_t max = dev->idle_max < SCRATCH_IDLE_MAX ? dev->idle_max : SCRATCH_IDLE_MAX;

	/* Always one, or every operation would have to get its own anew; not of copies. */
	if (dev->scratch_idle + s->len > max && (dev->scratch || s->map)) {
		scratch_free(dev, s);
		return;
	}
	s->next = dev->scratch;
	dev->scratch = s;
	dev->scratch_idle += s->len;
}

/* Gives an idle buffer back; false if there is none. */
bool coll_scratch_trim(struct coll_dev *dev)
{
	struct coll_scratch *s = dev->scratch;

	if (!s)
		return false;
	dev->scratch = s->next;
	dev->scratch_idle -= s->len;
	scratch_free(dev, s);
	return true;
}
