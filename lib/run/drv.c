// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * drv.c - the ioctls of /dev/npulink/npuN, one function each.
 *
 * The only file that talks to the kernel module. Each function fills in the
 * structure's size, and gives 0 or -errno. EINTR of calls that do not wait means
 * that nothing was done, so those are simply made again.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <linux/npulink_board.h>
#include "base/base.h"
#include "coll.h"
#include "run/dev.h"
#include "run/drv.h"

static int drv_call(struct coll_drv *drv, unsigned long cmd, void *arg)
{
	atomic_fetch_add_explicit(&drv->calls, 1, memory_order_relaxed);
	return ioctl(drv->fd, cmd, arg) < 0 ? -errno : 0;
}

static int drv_call_again(struct coll_drv *drv, unsigned long cmd, void *arg)
{
	int rc;

	do
		rc = drv_call(drv, cmd, arg);
	while (rc == -EINTR);
	return rc;
}

int coll_drv_open(struct coll_drv *drv, const char *path)
{
	struct stat st;

	do
		drv->fd = open(path, O_RDWR | O_CLOEXEC);
	while (drv->fd < 0 && errno == EINTR);
	if (drv->fd < 0 || fstat(drv->fd, &st))
		return -errno;
	drv->node = st.st_ino;
	drv->node_dev = st.st_dev;
	return 0;
}

/*
 * Whether the descriptor still is what was opened: who closes all that there are, as daemons do,
 * closes it, too, and what is opened next gets its number. That may be the same device: then its
 * arena, of @len bytes, is another one, in which a byte at @mark does not change with ours.
 * @arena is NULL in a forked child, where ours is the one that has none for it.
 */
bool coll_drv_is_ours(const struct coll_drv *drv, unsigned char *arena, size_t len, ptrdiff_t mark)
{
	volatile unsigned char *there;
	bool ours = arena;
	struct stat st;
	void *p;

	if (fstat(drv->fd, &st) || st.st_ino != drv->node || st.st_dev != drv->node_dev)
		return false;
	p = mmap(NULL, len, PROT_READ, MAP_SHARED, drv->fd, NPULINK_MMAP_ARENA);
	if (p == MAP_FAILED)
		return arena ? errno != EPERM && errno != EINVAL : errno != EINVAL;
	there = p;
	if (arena && mark >= 0) {
		arena[mark] = ~there[mark];
		ours = there[mark] == arena[mark];
	}
	munmap(p, len);
	return ours;
}

void coll_drv_close(struct coll_drv *drv)
{
	if (drv->fd >= 0)
		close(drv->fd);
	drv->fd = -1;
}

static int by_number(const void *a, const void *b)
{
	unsigned long x = *(const unsigned long *)a, y = *(const unsigned long *)b;

	return x < y ? -1 : x > y;
}

/*
 * The path of the device that is called name ("npu3", "3", or a path), or else of
 * number index modulo the number of devices there are. -ENOENT: there is none.
 */
int coll_drv_device(const char *name, unsigned int index, char *path, size_t size)
{
	unsigned long *numbers = NULL, *more;
	unsigned int n = 0, cap = 0;
	struct dirent *entry;
	DIR *dir;
	int len;

	if (name && *name) {
		if (strchr(name, '/'))
			len = snprintf(path, size, "%s", name);
		else
			len = snprintf(path, size, COLL_DEV_DIR "/%s%s",
				       isdigit((unsigned char)*name) ? "npu" : "", name);
		return (size_t)len < size ? 0 : -ENAMETOOLONG;
	}
	dir = opendir(COLL_DEV_DIR);
	if (!dir)
		return -errno;
	while ((entry = readdir(dir))) {
		const char *digits = entry->d_name + 3;
		char *end;

		if (strncmp(entry->d_name, "npu", 3) || !isdigit((unsigned char)*digits))
			continue;
		if (n == cap) {
			cap = cap ? 2 * cap : 16;
			more = realloc(numbers, cap * sizeof(*more));
			if (!more) {
				free(numbers);
				closedir(dir);
				return -ENOMEM;
			}
			numbers = more;
		}
		numbers[n] = strtoul(digits, &end, 10);
		n += !*end;
	}
	closedir(dir);
	if (n) {
		qsort(numbers, n, sizeof(*numbers), by_number);
		snprintf(path, size, COLL_DEV_DIR "/npu%lu", numbers[index % n]);
	}
	free(numbers);
	return n ? 0 : -ENOENT;
}

int coll_drv_map(struct coll_drv *drv, uint64_t offset, size_t len, void **addr)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, drv->fd, offset);

	if (p == MAP_FAILED)
		return -errno;
	*addr = p;
	return 0;
}

/* The same, to look at only. */
int coll_drv_map_read(struct coll_drv *drv, uint64_t offset, size_t len, void **addr)
{
	void *p = mmap(NULL, len, PROT_READ, MAP_SHARED, drv->fd, offset);

	if (p == MAP_FAILED)
		return -errno;
	*addr = p;
	return 0;
}

/* Not inherited by fork(), as our own mappings. */
int coll_drv_map_dmabuf(int fd, size_t len, bool readonly, void **addr)
{
	void *p = mmap(NULL, len, PROT_READ | (readonly ? 0 : PROT_WRITE), MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return -errno;
	madvise(p, len, MADV_DONTFORK);
	*addr = p;
	return 0;
}

/* Addresses for what no processor can see. */
int coll_drv_reserve(size_t len, void **addr)
{
	void *p = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return -errno;
	madvise(p, len, MADV_DONTFORK);
	*addr = p;
	return 0;
}

void coll_drv_unmap(void *addr, size_t len)
{
	munmap(addr, len);
}

/*
 * A byte that fork() clears in the child: whether this is the process that
 * opened the device can then be seen without a system call.
 */
int coll_drv_marker(unsigned char **marker)
{
	size_t page = sysconf(_SC_PAGESIZE);
	void *p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return -errno;
	/* Without it (before Linux 4.14) the kernel still says -EPERM. */
	madvise(p, page, MADV_WIPEONFORK);
	*marker = p;
	**marker = 1;
	return 0;
}

void coll_drv_marker_free(unsigned char *marker)
{
	if (marker)
		munmap(marker, sysconf(_SC_PAGESIZE));
}

int coll_drv_info(struct coll_drv *drv, struct npulink_device_info *info)
{
	*info = (struct npulink_device_info) { .size = sizeof(*info) };
	return drv_call_again(drv, NPULINK_DEVICE_INFO, info);
}

int coll_drv_buf_register(struct coll_drv *drv, uintptr_t addr, size_t len, bool readonly,
			  uint32_t *id)
{
	struct npulink_buf_register arg = {
		.size = sizeof(arg),
		.flags = readonly ? NPULINK_BUF_READONLY : 0,
		.addr = addr,
		.len = len,
	};
	int rc = drv_call_again(drv, NPULINK_BUF_REGISTER, &arg);

	*id = arg.out_id;
	return rc;
}

int coll_drv_buf_alloc(struct coll_drv *drv, uint32_t flags, size_t len, uint32_t *id,
		       uint64_t *offset)
{
	struct npulink_buf_alloc arg = { .size = sizeof(arg), .flags = flags, .len = len };
	int rc = drv_call_again(drv, NPULINK_BUF_ALLOC, &arg);

	*id = arg.out_id;
	*offset = arg.out_mmap_offset;
	return rc;
}

int coll_drv_buf_import(struct coll_drv *drv, uint32_t flags, int fd, uint32_t *id, size_t *len)
{
	struct npulink_buf_import arg = { .size = sizeof(arg), .flags = flags, .fd = fd };
	int rc = drv_call_again(drv, NPULINK_BUF_IMPORT, &arg);

	*id = arg.out_id;
	*len = arg.out_len;
	return rc;
}

int coll_drv_comm_create(struct coll_drv *drv, const uint8_t *secret, uint32_t rank,
			 uint32_t nranks, uint32_t flags, uint32_t peer_timeout_ms, uint32_t *id)
{
	struct npulink_comm_create arg = {
		.size = sizeof(arg),
		.flags = (flags & COLL_ANY_UID ? NPULINK_COMM_ANY_UID : 0) |
			 (flags & COLL_CHECKSUM ? NPULINK_COMM_CHECKSUM : 0),
		.rank = rank,
		.nranks = nranks,
		.peer_timeout_ms = peer_timeout_ms,
	};
	int rc;

	memcpy(arg.secret, secret, sizeof(arg.secret));
	rc = drv_call_again(drv, NPULINK_COMM_CREATE, &arg);
	*id = arg.out_id;
	explicit_bzero(arg.secret, sizeof(arg.secret));
	return rc;
}

/* Where this device can be reached from other machines, over its port @index; -ENOENT: nowhere. */
int coll_drv_port(struct coll_drv *drv, uint32_t index, struct npulink_port_info *port)
{
	*port = (struct npulink_port_info) { .size = sizeof(*port), .index = index };
	return drv_call_again(drv, NPULINK_PORT_INFO, port);
}

/* With @nmore more addresses of each. */
int coll_drv_comm_peers(struct coll_drv *drv, uint32_t id, const struct npulink_peer *peers,
			uint32_t n, const struct npulink_addr *more, uint32_t nmore)
{
	struct npulink_comm_peers arg = {
		.size = sizeof(arg),
		.comm_id = id,
		.npeers = n,
		.peers = (uintptr_t)peers,
		.nmore = nmore,
		.more = (uintptr_t)more,
	};

	return drv_call_again(drv, NPULINK_COMM_PEERS, &arg);
}

int coll_drv_comm_abort(struct coll_drv *drv, uint32_t id, uint32_t code)
{
	struct npulink_comm_abort arg = { .size = sizeof(arg), .comm_id = id, .code = code };

	return drv_call_again(drv, NPULINK_COMM_ABORT, &arg);
}

/* @map: for the rank in @id of each rank of the new one. */
int coll_drv_comm_shrink(struct coll_drv *drv, uint32_t id, uint32_t flags, uint32_t *map,
			 struct npulink_comm_shrink *out)
{
	*out = (struct npulink_comm_shrink) {
		.size = sizeof(*out), .comm_id = id, .map = (uintptr_t)map,
		.flags = flags & COLL_MINORITY ? NPULINK_SHRINK_MINORITY : 0,
	};
	return drv_call_again(drv, NPULINK_COMM_SHRINK, out);
}

int coll_drv_comm_status(struct coll_drv *drv, uint32_t id, struct npulink_comm_status *st)
{
	*st = (struct npulink_comm_status) { .size = sizeof(*st), .comm_id = id };
	return drv_call_again(drv, NPULINK_COMM_STATUS, st);
}

int coll_drv_plan_create(struct coll_drv *drv, uint32_t comm_id, const struct coll_plan *plan,
			 struct npulink_plan_create *out)
{
	*out = (struct npulink_plan_create) {
		.size = sizeof(*out),
		.comm_id = comm_id,
		.nslots = plan->nslots,
		.nsteps = plan->nsteps,
		.slots = (uintptr_t)plan->slots,
		.steps = (uintptr_t)plan->steps,
		.call = plan->call,
	};
	if (plan->algorithm)
		strncpy(out->algorithm, plan->algorithm, sizeof(out->algorithm) - 1);
	return drv_call_again(drv, NPULINK_PLAN_CREATE, out);
}

/* EINTR is the caller's to understand: see out_seq. */
int coll_drv_post(struct coll_drv *drv, struct npulink_post *post)
{
	post->size = sizeof(*post);
	post->out_seq = 0;
	return drv_call(drv, NPULINK_POST, post);
}

int coll_drv_post_batch(struct coll_drv *drv, struct npulink_post *posts, uint32_t n,
			uint32_t flags, uint32_t *posted)
{
	struct npulink_post_batch arg = {
		.size = sizeof(arg),
		.flags = flags,
		.nposts = n,
		.posts = (uintptr_t)posts,
		.wait_until_ns = flags & NPULINK_POST_WAIT ? COLL_NEVER : 0,
	};
	int rc;

	for (uint32_t i = 0; i < n; i++) {
		posts[i].size = sizeof(posts[i]);
		posts[i].out_seq = 0;
		posts[i].out_result.seq = 0;
	}
	rc = drv_call(drv, NPULINK_POST_BATCH, &arg);
	*posted = arg.out_posted;
	return rc;
}

int coll_drv_wait(struct coll_drv *drv, uint64_t seq, uint64_t until_ns,
		  struct npulink_result *result)
{
	struct npulink_wait arg = { .size = sizeof(arg), .seq = seq, .wait_until_ns = until_ns };
	int rc = drv_call_again(drv, NPULINK_WAIT, &arg);

	*result = arg.out_result;
	return rc;
}

/* Sleeps while @word, that others share, is @value, for @ns at most. 0: somebody has woken us. */
COLL_HOT int coll_drv_sleep(struct coll_drv *drv, const uint32_t *word, uint32_t value, uint64_t ns)
{
	const struct timespec timeout = { .tv_nsec = ns };

	atomic_fetch_add_explicit(&drv->calls, 1, memory_order_relaxed);
	return syscall(SYS_futex, word, FUTEX_WAIT, value, &timeout, NULL, 0) ? -errno : 0;
}

/* Wakes @n of those at most. Gives how many there were. */
COLL_HOT uint32_t coll_drv_wake(struct coll_drv *drv, const uint32_t *word, uint32_t n)
{
	long woken;

	atomic_fetch_add_explicit(&drv->calls, 1, memory_order_relaxed);
	woken = syscall(SYS_futex, word, FUTEX_WAKE, n < INT_MAX ? n : INT_MAX, NULL, NULL,
			0);
	return woken > 0 ? woken : 0;
}

int coll_drv_ring_setup(struct coll_drv *drv, uint32_t entries, size_t *len)
{
	struct npulink_ring_setup arg = { .size = sizeof(arg), .entries = entries, .eventfd = -1 };
	int rc = drv_call_again(drv, NPULINK_RING_SETUP, &arg);

	*len = arg.out_len;
	return rc;
}

int coll_drv_destroy(struct coll_drv *drv, uint32_t id)
{
	struct npulink_destroy arg = { .size = sizeof(arg), .id = id };

	return drv_call_again(drv, NPULINK_DESTROY, &arg);
}
