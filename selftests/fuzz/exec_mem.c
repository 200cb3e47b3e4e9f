// SPDX-License-Identifier: GPL-2.0
/*
 * exec_mem.c - calls of a program on memory: buffers of all kinds, mappings of the
 * device, and what is done to memory that may be registered.
 */
#include <linux/dma-buf.h>
#include <linux/udmabuf.h>
#include <sys/mman.h>
#include <linux/npulink_board.h>
#include "exec.h"
#include "raw.h"

void exec_register(struct rnd *r, uint8_t bend)
{
	struct npulink_buf_register cmd = {
		.size = sizeof(cmd), .flags = rnd_one_in(r, 4) ? NPULINK_BUF_READONLY : 0,
		.addr = (uintptr_t)ex.areas[rnd_below(r, AREAS + MAPPED)] + rnd_below(r, AREA),
		.len = 1 + rnd_below(r, AREA),
	};
	int fd = exec_file(r);

	if (!CALL(r, fd, NPULINK_BUF_REGISTER, cmd, bend))
		exec_add(ex.bufs, &ex.nbufs, fd, cmd.out_id)->len = cmd.len;
}

void exec_alloc(struct rnd *r, uint8_t bend)
{
	struct npulink_buf_alloc cmd = { .size = sizeof(cmd), .len = 1 + rnd_below(r, AREA) };
	int fd = exec_file(r);

	if (!CALL(r, fd, NPULINK_BUF_ALLOC, cmd, bend))
		exec_add(ex.bufs, &ex.nbufs, fd, cmd.out_id)->len = (cmd.len + 4095) / 4096 * 4096;
}

static int own_dmabuf(struct rnd *r)
{
	struct npulink_buf_export cmd = { .size = sizeof(cmd) };
	int fd = exec_file(r), id;
	uint64_t off;

	id = raw_buf_alloc(fd, 4096 * (1 + rnd_below(r, 8)), &off);
	cmd.id = id;
	return id < 0 || CALL(r, fd, NPULINK_BUF_EXPORT, cmd, 0) ? -1 : cmd.out_fd;
}

/* From another npulink file, from udmabuf, or no dma-buf at all. */
static int some_dmabuf(struct rnd *r)
{
	struct udmabuf_create create = { .size = 8192 };
	int dev, fd = -1;

	if (ex.ndmabufs && rnd_one_in(r, 2))
		return dup(ex.dmabufs[rnd_below(r, ex.ndmabufs < 4 ? ex.ndmabufs : 4)]);
	if (rnd_one_in(r, 6))
		return dup(rnd_below(r, 12));
	if (rnd_one_in(r, 2))
		return own_dmabuf(r);
	dev = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
	create.memfd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (dev >= 0 && !ftruncate(create.memfd, 65536) &&
	    !fcntl(create.memfd, F_ADD_SEALS, F_SEAL_SHRINK))
		fd = ioctl(dev, UDMABUF_CREATE, &create);
	close(create.memfd);
	if (dev >= 0)
		close(dev);
	return fd;
}

void exec_import(struct rnd *r, uint8_t bend)
{
	struct npulink_buf_import cmd = {
		.size = sizeof(cmd), .flags = rnd_one_in(r, 4) ? NPULINK_BUF_READONLY : 0,
		.fd = some_dmabuf(r),
	};
	int fd = exec_file(r), dmabuf = cmd.fd;

	if (!CALL(r, fd, NPULINK_BUF_IMPORT, cmd, bend))
		exec_add(ex.bufs, &ex.nbufs, fd, cmd.out_id)->len = cmd.out_len;
	if (dmabuf >= 0)
		close(dmabuf);
}

void exec_export(struct rnd *r, uint8_t bend)
{
	struct thing buf = exec_pick(r, ex.bufs, ex.nbufs);
	struct npulink_buf_export cmd = { .size = sizeof(cmd), .id = buf.id };

	if (!CALL(r, buf.fd, NPULINK_BUF_EXPORT, cmd, bend)) {
		ex.dmabufs[ex.ndmabufs++ % 4] = cmd.out_fd;
		if (rnd_one_in(r, 2))
			mmap(NULL, 4096 * (1 + rnd_below(r, 4)), PROT_READ | PROT_WRITE,
			     MAP_SHARED, cmd.out_fd, 0);
		if (rnd_one_in(r, 2)) {
			struct dma_buf_sync sync = { .flags = rnd_below(r, 8) };

			ioctl(cmd.out_fd, DMA_BUF_IOCTL_SYNC, &sync);
		}
	}
}

static void exec_map(char *addr, size_t len)
{
	uint32_t i = __atomic_fetch_add(&ex.nmaps, 1, __ATOMIC_RELAXED) % MAPS;

	ex.maps[i].addr = addr;
	ex.maps[i].len = len;
}

/* The shared memory by all ranks, and then what the kernel says, which may not be written. */
void exec_board(struct rnd *r, uint8_t bend)
{
	uint32_t i, n = ex.n < TEAM ? ex.n : TEAM;
	char *p;

	for (i = 0; i < n; i++) {
		p = mmap(NULL, n * NPULINK_BOARD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
			 ex.team_fd[i], NPULINK_MMAP_BOARD_SHARED((uint64_t)ex.team_comm[i]));
		if (p != MAP_FAILED)
			exec_map(p, n * NPULINK_BOARD_BYTES);
	}
	if (n && rnd_one_in(r, 2))
		mmap(NULL, 8192, PROT_READ, MAP_SHARED, ex.team_fd[0],
		     NPULINK_MMAP_BOARD((uint64_t)ex.team_comm[0]));
}

/* A word near the one that is there, a small one, or anything. */
static uint64_t word(struct rnd *r, uint64_t there)
{
	switch (rnd_below(r, 6)) {
	case 0:
		return there + rnd_below(r, 4);
	case 1:
		return there + (1ULL << rnd_below(r, 64));
	case 2:
		return rnd_below(r, 64);
	case 3:
		return there ^ 1ULL << rnd_below(r, 64);
	case 4:
		return ~0ULL - rnd_below(r, 4);
	default:
		return rnd_odd(r);
	}
}

/*
 * What has been unmapped since is read and written by the kernel, which says so instead of ending
 * the process. False if it is not there.
 */
static bool get_word(const char *addr, uint64_t *value)
{
	return pwrite(ex.words, addr, 8, 0) == 8 && pread(ex.words, value, 8, 0) == 8;
}

static bool put_word(char *addr, uint64_t value)
{
	return pwrite(ex.words, &value, 8, 0) == 8 && pread(ex.words, addr, 8, 0) == 8;
}

/* A few words or many, most of them where structures begin. */
void exec_scribble(struct rnd *r, uint8_t bend)
{
	uint32_t i = rnd_below(r, ex.nmaps < MAPS ? ex.nmaps : MAPS);
	uint32_t times = 1 + rnd_below(r, rnd_one_in(r, 3) ? 500 : 4);
	char *addr = ex.maps[i].addr;
	size_t len = ex.maps[i].len;
	uint64_t value = 0, off;

	if (ex.words <= 0)
		return;
	while (addr && times--) {
		off = rnd_one_in(r, 3) ? 8 * rnd_below(r, 8) : 8ULL * rnd_below(r, len / 8);
		if (!get_word(addr + off, &value) || !put_word(addr + off, word(r, value)))
			return;
	}
}

void exec_mmap(struct rnd *r, uint8_t bend)
{
	struct thing buf = exec_pick(r, ex.bufs, ex.nbufs);
	uint64_t off = 0x1000000000ULL * rnd_below(r, 3), len = 4096 * (1 + rnd_below(r, 17));
	int prot = PROT_READ | PROT_WRITE, flags = MAP_SHARED;
	char *p;

	switch (rnd_below(r, 7)) {
	case 5:
		buf = exec_pick(r, ex.comms, ex.ncomms);
		off = NPULINK_MMAP_BOARD_SHARED((uint64_t)buf.id);
		len = NPULINK_BOARD_BYTES * (buf.comm >> 16);
		break;
	case 6:
		buf = exec_pick(r, ex.comms, ex.ncomms);
		off = NPULINK_MMAP_BOARD((uint64_t)buf.id);
		len = 8192;
		prot = PROT_READ;
		break;
	case 0:
		off = NPULINK_MMAP_ARENA;
		break;
	case 1:
		off = NPULINK_MMAP_RING;
		break;
	case 2:
		off = NPULINK_MMAP_DOORBELL;
		break;
	default:	/* where BUF_ALLOC says: found out with a small one */
		{
			int id = raw_buf_alloc(buf.fd, 4096, &off);

			if (id > 0) {
				exec_add(ex.bufs, &ex.nbufs, buf.fd, id)->len = 4096;
				len = 4096;
			}
		}
	}
	if (bend & 1)
		off = rnd_odd(r) & ~4095ULL;
	if (bend & 2)
		len = 4096ULL * (1 + rnd_below(r, 70));
	if (bend & 4)
		flags = MAP_PRIVATE;
	if (bend & 8)
		prot = rnd_below(r, 8);
	p = mmap(NULL, len, prot, flags, buf.fd, off);
	if (p == MAP_FAILED)
		return;
	exec_map(p, len);
	if (rnd_one_in(r, 3))
		madvise(p, len, rnd_one_in(r, 2) ? MADV_DOFORK : MADV_DONTNEED);
	if (rnd_one_in(r, 4))
		mremap(p, len, len + 4096, MREMAP_MAYMOVE);
	else if (rnd_one_in(r, 4))	/* split it */
		mprotect(p, 4096, PROT_READ);
	else if (rnd_one_in(r, 2))
		munmap(p, rnd_one_in(r, 2) ? len : 4096);
	else			/* it may be registered in turn */
		ex.areas[AREAS + rnd_below(r, MAPPED)] = p;
}

static void map_memfd(char *area)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (fd < 0)
		return;
	if (!ftruncate(fd, AREA))
		mmap(area, AREA, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	close(fd);
}

void exec_memory(struct rnd *r, uint8_t bend)
{
	char *area = ex.areas[rnd_below(r, AREAS)];
	char *p = area + 4096 * rnd_below(r, AREA / 4096);
	size_t len = 4096 * (1 + rnd_below(r, 8));

	switch (rnd_below(r, 11)) {
	case 0:
		munmap(p, len);
		break;
	case 1:
		mmap(area, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		     -1, 0);
		break;
	case 2:
		madvise(p, len, MADV_DONTNEED);
		break;
	case 3:
		mprotect(p, len, rnd_one_in(r, 2) ? PROT_READ : PROT_READ | PROT_WRITE);
		break;
	case 4:
		mremap(p, 4096, 8192, MREMAP_MAYMOVE);
		break;
	case 5:
		madvise(area, AREA, MADV_HUGEPAGE);
		break;
	case 6:
		mlock(p, len);
		break;
	case 7:
		map_memfd(area);
		break;
	case 8:		/* a file that may not be pinned, unless privately */
		mmap(area, AREA, PROT_READ, MAP_SHARED | MAP_FIXED, ex.env->disk, 0);
		break;
	case 9:
		madvise(p, len, MADV_DONTFORK);
		break;
	default:
		mmap(area, AREA, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED,
		     -1, 0);
	}
}
