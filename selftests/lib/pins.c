// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * pins.c - which memory libcoll has pinned and for how long, and its arena: against the mock.
 */
#include <sys/mman.h>
#include "lib/run/dev.h"
#include "lib/run/reg.h"
#include "mock_pair.h"

/* A call with memory of coll_mem_alloc() and some more, whether it can be pinned or not. */
static void test_beyond_alloc(void)
{
	struct coll_reg *reg = NULL;
	struct coll_dev *dev;
	void *mem;
	int bad;

	setup(NULL);
	dev = comms[0]->dev;
	bad = coll_mem_alloc(comms[0], COLL_MEMORY_HOST, 8192, &mem);
	bad |= coll_reg_get(dev, (char *)mem + 4096, 8192, true, &reg) != -EOPNOTSUPP;
	bad |= coll_register(comms[0], (char *)mem + 4096, 8192) != -EOPNOTSUPP;
	ksft_test_result(!bad && dev->regs.n == 1 && dev->regs.v[0]->alloc &&
			 !coll_mem_free(comms[0], mem), "alloc: kept when a call reaches beyond\n");
	teardown();
}

/* What coll_register() was called for stays, whatever comes after. */
static void test_register_stays(void)
{
	char *mem = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct coll_reg *reg, *other;
	struct coll_dev *dev;
	int bad;

	setup(NULL);
	dev = comms[0]->dev;
	mock.memlock = mock.locked + 32768;
	bad = coll_register(comms[0], mem, 20480);
	bad |= coll_reg_get(dev, mem, 24576, true, &reg);
	coll_reg_put(dev, reg);
	ksft_test_result(!bad && dev->regs.n == 1 && reg->pins == 1 &&
			 reg->end - reg->start == 24576,
			 "register: grows where there is no room for both\n");
	bad = coll_reg_get(dev, mem, 65536, true, &other) != -ENOMEM;
	ksft_test_result(!bad && dev->regs.n == 1 && dev->regs.v[0]->pins == 1 &&
			 !coll_deregister(comms[0], mem, 20480),
			 "register: kept where there is no room for more\n");
	mock.memlock = SIZE_MAX;
	bad = coll_register(comms[0], mem + 4096, 8192);
	/* The union is refused, then it is pinned by itself. */
	mock_fail(NPULINK_BUF_REGISTER, -EFAULT, 0, 1, false);
	bad |= coll_reg_get(dev, mem + 8192, 8192, true, &reg);
	if (!bad)
		coll_reg_put(dev, reg);
	ksft_test_result(!bad && !coll_deregister(comms[0], mem + 4096, 8192),
			 "register: kept beside\n");
	munmap(mem, 1 << 20);
	teardown();
}

/* Drops all that may be dropped. */
static unsigned int left(struct coll_dev *dev)
{
	while (coll_reg_evict(dev))
		;
	return dev->regs.n;
}

/* coll_deregister() undoes what was asked for, not what it has become in the cache. */
static void test_deregister(void)
{
	char *mem = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const struct { size_t at, len; } others[] = {
		{ 0, 0 }, { 0, 4096 }, { 0, 65535 }, { 0, 65537 }, { 4096, 0 }, { 100, 7 },
		{ 4096, 61440 }, { 0, SIZE_MAX }, { 65536, 4096 },
	};
	struct coll_reg *reg;
	struct coll_dev *dev;
	void *alloc;
	int bad;

	setup(NULL);
	dev = comms[0]->dev;
	bad = coll_register(comms[0], mem, 65536);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		bad |= coll_deregister(comms[0], mem + others[i].at, others[i].len) != -ENOENT ||
		       !strstr(coll_comm_last_error(comms[0]), "was not called for these");
	ksft_test_result(!bad && left(dev) == 1 && !coll_deregister(comms[0], mem, 65536) &&
			 !dev->regs.n, "deregister: not by a part of it, nor by more\n");

	bad = coll_register(comms[0], mem, 65536) || coll_register(comms[0], mem + 4096, 10) ||
	      coll_register(comms[0], mem + 61440, 8192) || coll_register(comms[0], mem, 65536);
	bad |= coll_deregister(comms[0], mem + 4096, 10) || left(dev) != 1;
	bad |= coll_deregister(comms[0], mem, 65536) || left(dev) != 1;
	bad |= coll_deregister(comms[0], mem, 65536) || left(dev) != 1;
	bad |= coll_deregister(comms[0], mem, 65536) != -ENOENT;
	ksft_test_result(!bad && !coll_deregister(comms[0], mem + 61440, 8192) && !left(dev),
			 "deregister: what overlaps stays, and what was asked for twice\n");

	bad = coll_register(comms[0], mem, 65536) || left(dev) != 1;
	coll_reg_stale(dev, dev->regs.v[0]);
	bad |= dev->regs.n || coll_reg_get(dev, mem + 8192, 4096, true, &reg);
	if (!bad)
		coll_reg_put(dev, reg);
	bad |= left(dev) != 1 || dev->regs.v[0]->end - dev->regs.v[0]->start != 65536;
	coll_reg_stale(dev, dev->regs.v[0]);
	ksft_test_result(!bad && !coll_deregister(comms[0], mem, 65536) && !dev->regs.nasked,
			 "deregister: comes back as a whole after it was unmapped, until then\n");

	bad = coll_mem_alloc(comms[0], COLL_MEMORY_HOST, 8192, &alloc) ||
	      coll_register(comms[0], alloc, 8192) ||
	      coll_deregister(comms[0], alloc, 8192) || left(dev) != 1;
	bad |= coll_deregister(comms[0], alloc, 8192) != -ENOENT;
	bad |= coll_register(comms[0], alloc, 100) || coll_mem_free(comms[0], alloc);
	ksft_test_result(!bad && !coll_deregister(comms[0], alloc, 100) && !dev->regs.n,
			 "deregister: memory of coll_mem_alloc()\n");
	munmap(mem, 1 << 20);
	teardown();
}

static void test_registrations(void)
{
	struct coll_config config = COLL_CONFIG_INIT;
	struct coll_comm_info info = COLL_COMM_INFO_INIT;
	char *mem = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct coll_reg *a, *b, *c;
	struct coll_dev *dev;
	void *alloc;
	int bad;

	setup(&config);
	dev = comms[0]->dev;
	bad = coll_reg_get(dev, mem + 100, 5000, true, &a);
	bad |= coll_reg_get(dev, mem + 200, 100, false, &b);
	ksft_test_result(!bad && a == b && a->start % 4096 == 0 && a->end - a->start == 8192,
			 "cache: a part of a range is found\n");
	bad = coll_reg_get(dev, mem + 8000, 1000, true, &c);
	ksft_test_result(!bad && c != a && !a->listed && c->listed &&
			 c->start == a->start && c->end == a->start + 12288,
			 "cache: a range that overlaps replaces by the union\n");
	coll_reg_put(dev, a);
	ksft_test_result(dev->regs.bytes == 12288 + 8192, "cache: in use, so it stays pinned\n");
	coll_reg_put(dev, b);
	ksft_test_result(dev->regs.bytes == 12288, "cache: unpinned with its last user\n");
	coll_reg_put(dev, c);

	mock.memlock = mock.locked + 4096;
	bad = coll_reg_get(dev, mem + 65536, 8192, true, &a);
	coll_comm_info(comms[0], &info);
	ksft_test_result(!bad && info.registrations == 1, "cache: room is made at the limit\n");
	coll_reg_put(dev, a);
	mock.memlock = SIZE_MAX;

	for (int i = 0; i < 100; i++) {
		bad |= coll_reg_get(dev, mem + 8192 * i, 4096, true, &a);
		coll_reg_put(dev, a);
	}
	ksft_test_result(!bad && dev->regs.n == 100, "cache: ranges that do not touch\n");
	for (int i = 99; i >= 0; i--) {
		bad |= coll_reg_get(dev, mem + 8192 * i, 4096, true, &a);
		coll_reg_put(dev, a);
	}
	bad |= coll_reg_get(dev, mem, 100 * 8192 - 4096, true, &a);
	ksft_test_result(!bad && dev->regs.n == 1, "cache: one range that holds all of them\n");
	coll_reg_put(dev, a);

	bad = coll_register(comms[0], mem, 4096);
	while (coll_reg_evict(dev))
		;
	ksft_test_result(!bad && dev->regs.n == 1, "register: stays when others go\n");
	ksft_test_result(!coll_deregister(comms[0], mem, 4096) && !dev->regs.n &&
			 coll_deregister(comms[0], mem, 4096) == -ENOENT, "register: undone\n");

	bad = coll_mem_alloc(comms[0], COLL_MEMORY_HOST, 50000, &alloc);
	ksft_test_result(!bad && alloc && !((uintptr_t)alloc & 4095), "mem_alloc\n");
	bad = coll_reg_get(dev, (char *)alloc + 1000, 40000, true, &a);
	ksft_test_result(!bad && a->alloc && coll_mem_free(comms[0], alloc) == -EBUSY,
			 "mem_alloc: is not pinned again, not freed while used\n");
	coll_reg_put(dev, a);
	ksft_test_result(coll_mem_free(comms[0], (char *)alloc + 4096) == -EINVAL &&
			 !coll_mem_free(comms[0], alloc) && !dev->regs.n, "mem_free\n");
	munmap(mem, 1 << 20);
	teardown();
}

/* Memory that is only sent is not pinned for writing, which would copy what a file has there. */
static void test_access(void)
{
	char *mem = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct coll_reg *a, *b;
	struct coll_dev *dev;
	int bad;

	setup(NULL);
	dev = comms[0]->dev;
	bad = coll_reg_get(dev, mem, 8192, false, &a);
	ksft_test_result(!bad && a->readonly, "access: what is sent is pinned for reading\n");
	bad |= coll_reg_get(dev, mem, 4096, true, &b);
	ksft_test_result(!bad && b != a && !b->readonly && !a->listed &&
			 b->end - b->start == 8192, "access: anew if it is written to\n");
	coll_reg_put(dev, a);
	coll_reg_put(dev, b);
	bad |= coll_reg_get(dev, mem, 16384, false, &a);
	ksft_test_result(!bad && !a->readonly && a->end - a->start == 16384,
			 "access: together with what is written to, for both\n");
	coll_reg_put(dev, a);
	bad |= coll_register(comms[0], mem + 65536, 4096);
	coll_reg_stale(dev, dev->regs.v[1]);
	bad |= coll_reg_get(dev, mem + 65536, 4096, false, &a);
	ksft_test_result(!bad && !a->readonly && !coll_deregister(comms[0], mem + 65536, 4096),
			 "access: what was registered comes back for both\n");
	coll_reg_put(dev, a);
	munmap(mem, 1 << 20);
	teardown();
}

static void test_arena(void)
{
	struct coll_config config = COLL_CONFIG_INIT;
	struct coll_dev *dev;
	ptrdiff_t a, b, c;

	config.arena = 8192;
	setup(&config);
	dev = comms[0]->dev;
	a = coll_arena_get(dev, 1);
	b = coll_arena_get(dev, 4096);
	c = coll_arena_get(dev, 4033);
	ksft_test_result(a == 0 && b == 64 && c == -1, "arena: first fit\n");
	c = coll_arena_get(dev, 4032);
	ksft_test_result(c == 4160 && coll_arena_get(dev, 1) == -1, "arena: full\n");
	coll_arena_put(dev, b, 4096);
	ksft_test_result(coll_arena_get(dev, 4097) == -1 && coll_arena_get(dev, 4096) == 64,
			 "arena: a hole\n");
	coll_arena_put(dev, 0, 8192);
	ksft_test_result(coll_arena_get(dev, 8192) == 0 && coll_arena_get(dev, 8193) == -1,
			 "arena: all of it\n");
	ksft_test_result(!both(16) && !dev->copied, "arena: full, so memory is pinned\n");
	coll_arena_put(dev, 0, 8192);
	ksft_test_result(!both(16) && dev->copied == 1, "arena: free again\n");
	teardown();
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(1 + 3 + 4 + 12 + 4 + 6);
	test_beyond_alloc();
	test_register_stays();
	test_deregister();
	test_registrations();
	test_access();
	test_arena();
	ksft_finished();
}
