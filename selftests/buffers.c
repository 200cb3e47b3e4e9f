// SPDX-License-Identifier: GPL-2.0
/*
 * buffers - memory that an application registers, allocates and shares: what may be
 * registered, and what it costs. What it changes afterwards: buffers_changed.c.
 */
#include <pthread.h>
#include <sys/mount.h>
#include "copier.h"
#include "smaps.h"
#include "vgem.h"

/* ---- what may be registered --------------------------------------------------- */

TEST_F(bufs, any_address_and_length)
{
	static const size_t at[] = { 0, 1, 7, 64, 4095, 4096, 5000 };
	static const size_t more[] = { 0, 1, 4095, 4096, 4097 };
	char *mem = raw_anon(LEN + 4 * PAGE);
	unsigned int i, k;
	long before = pinned();

	for (i = 0; i < ARRAY_SIZE(at); i++) {
		for (k = 0; k < ARRAY_SIZE(more); k++) {
			size_t len = LEN + more[k];
			long pages = (at[i] % PAGE + len + PAGE - 1) / PAGE;
			int buf = raw_register(self->fd, mem + at[i], len, 0);

			ASSERT_GT(buf, 0);
			EXPECT_EQ(before + pages, pinned());
			pattern(mem + at[i] + more[k], LEN, i + k);
			memset(self->out, 0, LEN);
			EXPECT_EQ(0, copy_between(self, buf, more[k], self->dst, 0));
			EXPECT_EQ(0, differs(self->out, LEN, i + k));
			EXPECT_EQ(-ERANGE, copy_between(self, buf, more[k] + 1, self->dst, 0));
			/* And the other way: not a byte beside it is written. */
			memset(mem, 0x55, LEN + 4 * PAGE);
			EXPECT_EQ(0, copy_between(self, self->dst, 0, buf, more[k]));
			EXPECT_EQ(0, differs(mem + at[i] + more[k], LEN, i + k));
			if (at[i] + more[k])
				EXPECT_EQ(0x55, mem[at[i] + more[k] - 1]);
			EXPECT_EQ(0x55, mem[at[i] + more[k] + LEN]);
			EXPECT_EQ(0, raw_destroy(self->fd, buf));
			EXPECT_TRUE(RAW_EVENTUALLY(pinned() == before));
		}
	}
}

TEST_F(bufs, err_not_a_range)
{
	char *mem = raw_anon(LEN);

	EXPECT_EQ(-EINVAL, raw_register(self->fd, mem, 0, 0));
	EXPECT_EQ(-EINVAL, raw_register(self->fd, mem, 1ULL << 41, 0));
	EXPECT_EQ(-EINVAL, raw_register(self->fd, (void *)-PAGE, PAGE + 1, 0));
	EXPECT_EQ(-EINVAL, raw_register(self->fd, (void *)-PAGE, PAGE - 1, 0));
	EXPECT_EQ(-EINVAL, raw_register(self->fd, (void *)0xffff800000000000, PAGE, 0));
	EXPECT_EQ(-EFAULT, raw_register(self->fd, NULL, PAGE, 0));
	EXPECT_EQ(-EFAULT, raw_register(self->fd, (void *)1, 1, 0));
}

TEST_F(bufs, err_half_mapped)
{
	char *mem = raw_anon(LEN);
	long before = pinned();

	munmap(mem + LEN / 2, PAGE);
	EXPECT_EQ(-EFAULT, raw_register(self->fd, mem, LEN, 0));
	EXPECT_EQ(-EFAULT, raw_register(self->fd, mem + LEN / 2, LEN / 2, 0));
	EXPECT_EQ(-EFAULT, raw_register(self->fd, mem, LEN / 2 + 1, 0));
	munmap(mem, PAGE);
	EXPECT_EQ(-EFAULT, raw_register(self->fd, mem + PAGE - 1, 2, 0));
	EXPECT_TRUE(RAW_EVENTUALLY(pinned() == before));
}

TEST_F(bufs, err_not_accessible)
{
	char *mem = raw_anon(LEN);
	long before = pinned();
	int buf;

	mprotect(mem + PAGE, PAGE, PROT_READ);
	EXPECT_EQ(-EFAULT, raw_register(self->fd, mem, LEN, 0));
	buf = raw_register(self->fd, mem, LEN, NPULINK_BUF_READONLY);
	EXPECT_GT(buf, 0);
	EXPECT_EQ(0, raw_destroy(self->fd, buf));
	mprotect(mem + PAGE, PAGE, PROT_NONE);
	EXPECT_EQ(-EFAULT, raw_register(self->fd, mem, LEN, 0));
	EXPECT_TRUE(RAW_EVENTUALLY(pinned() == before));
}

/* A read-only pin of the zero page would send zeros whatever is written later. */
TEST_F(bufs, readonly_memory_that_was_never_touched)
{
	char *mem = raw_anon(LEN);
	int buf = raw_register(self->fd, mem, LEN, NPULINK_BUF_READONLY);

	ASSERT_GT(buf, 0);
	ASSERT_EQ(0, copy_out(self, buf));
	EXPECT_EQ(0, self->out[LEN - 1]);
	pattern(mem, LEN, 1);
	ASSERT_EQ(0, copy_out(self, buf));
	EXPECT_EQ(0, differs(self->out, LEN, 1));
}

TEST_F(bufs, readonly_constant_data)
{
	static const char text[LEN + PAGE] = "constant";
	int buf = raw_register(self->fd, (void *)text, LEN, NPULINK_BUF_READONLY);

	ASSERT_GT(buf, 0);
	EXPECT_EQ(-EFAULT, raw_register(self->fd, (void *)text, LEN, 0));
	ASSERT_EQ(0, copy_out(self, buf));
	EXPECT_STREQ("constant", self->out);
	EXPECT_EQ(-EACCES, copy_between(self, self->dst, 0, buf, 0));
}

/* Who only reads a file gets no copy of it; what he has written to it is sent all the same. */
static void private_mapping(struct __test_metadata *_metadata, struct _test_data_bufs *self,
			    int fd, size_t len, int prot)
{
	char *mem = mmap(NULL, len, PROT_READ | prot, MAP_PRIVATE, fd, 0);
	int buf;

	ASSERT_NE(MAP_FAILED, mem);
	buf = raw_register(self->fd, mem, len, NPULINK_BUF_READONLY);
	ASSERT_GT(buf, 0);
	EXPECT_EQ(0, copy_out(self, buf));
	EXPECT_EQ(0, memcmp(mem, self->out, LEN));
	EXPECT_EQ(0, anonymous_kb(mem));
	if (prot & PROT_WRITE) {
		pattern(mem, LEN, 5);
		EXPECT_EQ(-ESTALE, copy_out(self, buf));
		EXPECT_EQ(0, raw_destroy(self->fd, buf));
		buf = raw_register(self->fd, mem, len, NPULINK_BUF_READONLY);
		ASSERT_GT(buf, 0);
		EXPECT_EQ(0, copy_out(self, buf));
		EXPECT_EQ(0, differs(self->out, LEN, 5));
		pattern(mem, LEN, 6);
		EXPECT_EQ(0, copy_out(self, buf));
		EXPECT_EQ(0, differs(self->out, LEN, 6));
		EXPECT_EQ(LEN / 1024, anonymous_kb(mem));
	}
	EXPECT_EQ(0, raw_destroy(self->fd, buf));
	munmap(mem, len);
}

TEST_F(bufs, readonly_private_mapping_of_a_file)
{
	int exe = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), fd = memory_file("bufs", 0);

	ASSERT_GE(exe, 0);
	ASSERT_GE(fd, 0);
	private_mapping(_metadata, self, exe, 2 * LEN, 0);
	private_mapping(_metadata, self, exe, 2 * LEN, PROT_WRITE);
	private_mapping(_metadata, self, fd, LEN, 0);
	private_mapping(_metadata, self, fd, LEN, PROT_WRITE);
	close(exe);
	close(fd);
}

static bool file_copies(struct _test_data_bufs *self, int fd, int how, size_t len)
{
	char *mem = mmap(NULL, len, PROT_READ | PROT_WRITE, how, fd, 0);
	int buf;
	bool ok;

	if (mem == MAP_FAILED)
		return false;
	pattern(mem, LEN, 9);
	buf = raw_register(self->fd, mem, LEN, 0);
	ok = buf > 0 && !copy_out(self, buf) && !differs(self->out, LEN, 9);
	/* What is written arrives in the file. */
	pattern(self->out, LEN, 10);
	ok = ok && !copy_between(self, self->dst, 0, buf, 0) && !differs(mem, LEN, 10);
	if (!ok)
		fprintf(stderr, "# buf %d\n", buf);
	munmap(mem, len);
	return ok;
}

TEST_F(bufs, memory_that_is_a_file)
{
	int fd = memory_file("bufs", 0);
	char first;

	ASSERT_GE(fd, 0);
	EXPECT_TRUE(file_copies(self, fd, MAP_SHARED, LEN));
	ASSERT_EQ(1, pread(fd, &first, 1, 0));
	EXPECT_EQ(10, first);
	EXPECT_TRUE(file_copies(self, fd, MAP_PRIVATE, LEN));
	EXPECT_TRUE(file_copies(self, -1, MAP_SHARED | MAP_ANONYMOUS, LEN));
	close(fd);
	/* /dev/shm is shmem, too. */
	fd = open("/dev/shm/npulink-buffers", O_RDWR | O_CREAT | O_EXCL, 0600);
	ASSERT_GE(fd, 0);
	unlink("/dev/shm/npulink-buffers");
	ASSERT_EQ(0, ftruncate(fd, LEN));
	EXPECT_TRUE(file_copies(self, fd, MAP_SHARED, LEN));
	close(fd);
}

TEST_F(bufs, readonly_mapping_of_shared_memory)
{
	int fd = memory_file("bufs", 0), buf;
	char *rw, *ro;

	ASSERT_GE(fd, 0);
	rw = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ro = mmap(NULL, LEN, PROT_READ, MAP_SHARED, fd, 0);
	ASSERT_NE(MAP_FAILED, ro);
	EXPECT_EQ(-EFAULT, raw_register(self->fd, ro, LEN, 0));
	buf = raw_register(self->fd, ro, LEN, NPULINK_BUF_READONLY);
	ASSERT_GT(buf, 0);
	pattern(rw, LEN, 3);
	EXPECT_EQ(0, copy_out(self, buf));
	EXPECT_EQ(0, differs(self->out, LEN, 3));
	close(fd);
}

TEST_F(bufs, huge_pages)
{
	int fd;

	raw_write("/proc/sys/vm/nr_hugepages", "4");
	fd = memory_file("huge", MFD_HUGETLB);
	if (fd < 0 || raw_read("/proc/sys/vm/nr_hugepages") < 1)
		SKIP(return, "no huge pages");
	EXPECT_TRUE(file_copies(self, fd, MAP_SHARED, 2 << 20));
	EXPECT_TRUE(file_copies(self, -1, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, 2 << 20));
	close(fd);
	close(self->fd);
	self->fd = raw_open(0);
	raw_write("/proc/sys/vm/nr_hugepages", "0");
	/* All have come back, none is pinned. */
	EXPECT_TRUE(RAW_EVENTUALLY(raw_read("/proc/sys/vm/nr_hugepages") == 0));
}

/* Pages that a file system writes back, or cuts off, are not for devices. */
TEST_F(bufs, err_shared_mapping_of_a_file)
{
	int fd = open("/proc/self/exe", O_RDONLY);
	char *mem, *priv;

	ASSERT_GE(fd, 0);
	mem = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	if (mem == MAP_FAILED)
		SKIP(return, "this file system cannot be mapped shared");
	EXPECT_EQ(-EOPNOTSUPP, raw_register(self->fd, mem, PAGE, NPULINK_BUF_READONLY));
	priv = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
	EXPECT_GT(raw_register(self->fd, priv, PAGE, NPULINK_BUF_READONLY), 0);
	/* Next to memory that would do. */
	mem = raw_anon(3 * PAGE);
	ASSERT_NE(MAP_FAILED, mmap(mem + PAGE, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0));
	EXPECT_EQ(-EOPNOTSUPP, raw_register(self->fd, mem, 3 * PAGE, NPULINK_BUF_READONLY));
	close(fd);
}

/* devtmpfs calls itself a tmpfs; what is mapped there is no memory of tmpfs. */
struct exchange {
	char *at;
	int file;
	int go;		/* 1: now, 0: done, -1: no more */
	int latest;	/* when, in turns of a loop */
};

static void *exchange_run(void *arg)
{
	struct exchange *x = arg;
	unsigned int seed = 1;
	int go;

	while ((go = __atomic_load_n(&x->go, __ATOMIC_SEQ_CST)) >= 0) {
		if (!go)
			continue;
		for (volatile int i = rand_r(&seed) % x->latest; i > 0; i--)
			;
		mmap(x->at, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, x->file, 0);
		__atomic_store_n(&x->go, 0, __ATOMIC_SEQ_CST);
	}
	return NULL;
}

/* Looked at, then a file's, then pinned: the file is not written to behind its back. */
TEST_F(bufs, err_exchanged_while_it_is_registered)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
	unsigned int tries, taken = 0, refused = 0;
	uint64_t end = raw_now() + 4000000000ULL, last = end + 30000000000ULL;
	struct exchange x = { .at = raw_anon(LEN), .latest = 400 };
	char dir[] = "/tmp/npulink.XXXXXX", path[64];
	pthread_t thread;

	ASSERT_NE(NULL, mkdtemp(dir));
	ASSERT_EQ(0, mount("none", dir, "ramfs", 0, NULL));
	snprintf(path, sizeof(path), "%s/file", dir);
	x.file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	EXPECT_LE(0, x.file);
	EXPECT_EQ(0, ftruncate(x.file, PAGE));
	pthread_create(&thread, NULL, exchange_run, &x);
	for (tries = 0; raw_now() < (taken ? end : last); tries++) {
		int id;

		/* On a slow machine it takes longer to register, and it is always too early. */
		if (!taken && tries % 100 == 99 && x.latest < 1 << 24)
			x.latest *= 2;
		RAW_CHECK(mmap(x.at, LEN, PROT_READ | PROT_WRITE, flags, -1, 0) == x.at);
		x.at[0] = 1;
		__atomic_store_n(&x.go, 1, __ATOMIC_SEQ_CST);
		id = raw_register(self->fd, x.at, LEN, 0);
		while (__atomic_load_n(&x.go, __ATOMIC_SEQ_CST))
			;
		if (id < 0) {
			/* Or the page went while it was pinned. */
			EXPECT_TRUE(id == -EOPNOTSUPP || id == -EFAULT);
			refused++;
			continue;
		}
		/* Exchanged later, which is noticed. */
		EXPECT_EQ(-ESTALE, copy_between(self, self->dst, 0, id, 0));
		taken++;
		raw_destroy(self->fd, id);
	}
	__atomic_store_n(&x.go, -1, __ATOMIC_SEQ_CST);
	pthread_join(thread, NULL);
	TH_LOG("%u tries: %u registered, %u refused", tries, taken, refused);
	EXPECT_LT(0, taken);
	munmap(x.at, LEN);
	close(x.file);
	EXPECT_EQ(0, umount2(dir, MNT_DETACH));
	rmdir(dir);
}

TEST_F(bufs, err_shared_mapping_of_a_device)
{
	uint64_t off;
	int id = raw_buf_alloc(self->fd, LEN, &off);
	char *mem = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, self->fd, off);

	ASSERT_GT(id, 0);
	ASSERT_NE(MAP_FAILED, mem);
	EXPECT_EQ(-EOPNOTSUPP, raw_register(self->fd, mem, LEN, 0));
}

TEST_F(bufs, as_often_as_one_likes)
{
	char *mem = raw_anon(LEN);
	long before = pinned();
	int buf[50], i;

	for (i = 0; i < 50; i++) {
		buf[i] = raw_register(self->fd, mem, LEN, i & 1 ? NPULINK_BUF_READONLY : 0);
		ASSERT_GT(buf[i], 0);
	}
	EXPECT_EQ(before + 50 * 8, pinned());
	pattern(mem, LEN, 4);
	for (i = 0; i < 50; i++) {
		if (i == 25)
			munmap(mem, LEN);
		EXPECT_EQ(i < 25 ? 0 : -ESTALE, copy_out(self, buf[i]));
	}
	/* Those that no operation uses are let go by the munmap itself. */
	EXPECT_TRUE(RAW_EVENTUALLY(pinned() == before));
	for (i = 0; i < 50; i++)
		EXPECT_EQ(0, raw_destroy(self->fd, buf[i]));
}

/* ---- what it costs ----------------------------------------------------------------- */

/* Everything that a file makes the kernel keep is given back at the latest by close. */
TEST_F(bufs, charges_are_given_back)
{
	struct npulink_ring_setup ring = { .size = sizeof(ring), .entries = 1024, .eventfd = -1 };
	long before = pinned(), after;
	char *mem = raw_anon(LEN);
	uint64_t off;
	int fd = raw_open(1), id;

	ASSERT_GE(fd, 0);
	ASSERT_GT(raw_register(fd, mem, LEN, 0), 0);
	EXPECT_EQ(before + 8, pinned());
	id = raw_buf_alloc(fd, 100 * PAGE + 1, &off);
	ASSERT_GT(id, 0);
	EXPECT_EQ(before + 8 + 101, pinned());
	ASSERT_EQ(0, raw_ioctl(fd, NPULINK_RING_SETUP, &ring));
	EXPECT_EQ(before + 8 + 101 + (long)(ring.out_len / PAGE), pinned());
	ASSERT_EQ(0, raw_destroy(fd, id));
	EXPECT_TRUE(RAW_EVENTUALLY(pinned() == before + 8 + (long)(ring.out_len / PAGE)));
	ASSERT_NE(MAP_FAILED, mmap(NULL, 16 * PAGE, PROT_READ, MAP_SHARED, fd,
				   NPULINK_MMAP_ARENA));
	after = pinned();
	EXPECT_EQ(before + 8 + 16 + (long)(ring.out_len / PAGE), after);
	/* A file that is mapped is not closed yet; when it is, all is given back. */
	close(fd);
	EXPECT_EQ(after, pinned());
	EXPECT_EQ(0, raw_write("/proc/self/clear_refs", "1"));
}

TEST_F(bufs, err_failed_calls_cost_nothing)
{
	struct npulink_buf_register *reg;
	char *mem = raw_anon(LEN), *page = raw_anon(PAGE);
	long before = pinned();

	reg = (void *)page;
	*reg = (struct npulink_buf_register) {
		.size = sizeof(*reg), .addr = (uintptr_t)mem, .len = LEN,
	};
	mprotect(page, PAGE, PROT_READ);
	EXPECT_EQ(-EFAULT, raw_ioctl(self->fd, NPULINK_BUF_REGISTER, reg));
	mprotect(page, PAGE, PROT_READ | PROT_WRITE);
	*(struct npulink_buf_alloc *)page = (struct npulink_buf_alloc) {
		.size = sizeof(struct npulink_buf_alloc), .len = LEN,
	};
	mprotect(page, PAGE, PROT_READ);
	EXPECT_EQ(-EFAULT, raw_ioctl(self->fd, NPULINK_BUF_ALLOC, page));
	EXPECT_TRUE(RAW_EVENTUALLY(pinned() == before));
}

/* What it was charged, too: see memlock.c. */
TEST_F(bufs, pages_of_a_dead_process_are_given_back)
{
	long before = raw_pages_pinned();
	int status, pipefd[2];
	char c;
	pid_t pid;

	ASSERT_EQ(0, pipe(pipefd));
	pid = fork();
	if (!pid) {
		int fd = raw_open(0);

		RAW_CHECK(fd >= 0);
		RAW_CHECK(raw_register(fd, raw_anon(LEN), LEN, 0) > 0);
		RAW_CHECK(write(pipefd[1], "x", 1) == 1);
		pause();
		_exit(0);
	}
	ASSERT_EQ(1, read(pipefd[0], &c, 1));
	EXPECT_EQ(8 * 4, raw_pinned_kb(pid));
	kill(pid, SIGKILL);
	status = raw_reap(pid);
	EXPECT_EQ(-SIGKILL, status);
	EXPECT_TRUE(RAW_EVENTUALLY(raw_pages_pinned() <= before));
}

/* ---- memory of the kernel ------------------------------------------------------------------ */

TEST_F(bufs, allocated)
{
	uint64_t off;
	int id = raw_buf_alloc(self->fd, LEN - 5, &off), dst;
	char *mem = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, self->fd, off);
	char *again = mmap(NULL, LEN, PROT_READ, MAP_SHARED, self->fd, off);
	size_t i;

	ASSERT_GT(id, 0);
	ASSERT_NE(MAP_FAILED, mem);
	ASSERT_NE(MAP_FAILED, again);
	for (i = 0; i < LEN; i++)
		ASSERT_EQ(0, mem[i]);	/* nobody's old data */
	pattern(mem, LEN, 6);
	EXPECT_EQ(0, copy_out(self, id));
	EXPECT_EQ(0, differs(self->out, LEN, 6));
	dst = raw_buf_alloc(self->fd, 3 << 20, &off);
	ASSERT_GT(dst, 0);
	mem = mmap(NULL, 3 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, self->fd, off);
	EXPECT_EQ(0, copy_between(self, id, 0, dst, (3 << 20) - LEN));
	EXPECT_EQ(0, differs(mem + (3 << 20) - LEN, LEN, 6));
	/* The mapping outlives the id, but not the other way: the name has gone. */
	EXPECT_EQ(0, raw_destroy(self->fd, id));
	EXPECT_EQ(0, differs(again, LEN, 6));
	EXPECT_EQ(-ENOENT, copy_out(self, id));
}

TEST_F(bufs, err_alloc)
{
	uint64_t off;

	EXPECT_EQ(-EINVAL, raw_buf_alloc(self->fd, 0, &off));
	EXPECT_EQ(-EINVAL, raw_buf_alloc(self->fd, (1ULL << 40) + 1, &off));
	EXPECT_EQ(-EINVAL, raw_buf_alloc(self->fd, -1ULL, &off));
}

TEST_F(bufs, err_mmap)
{
	uint64_t off;
	int id = raw_buf_alloc(self->fd, LEN, &off);
	int other = raw_open(0);
	struct {
		int fd, prot, flags, want;
		uint64_t off;
		size_t len;
	} bad[] = {
		{ self->fd, 3, MAP_SHARED, EINVAL, off, LEN - PAGE },
		{ self->fd, 3, MAP_SHARED, EINVAL, off, LEN + PAGE },
		{ self->fd, 3, MAP_SHARED, EINVAL, off, PAGE },
		{ self->fd, 3, MAP_SHARED, EINVAL, off + PAGE, LEN },
		{ self->fd, 3, MAP_SHARED, EINVAL, off - PAGE, LEN },
		{ self->fd, 3, MAP_PRIVATE, EINVAL, off, LEN },
		{ self->fd, 1, MAP_PRIVATE, EINVAL, off, LEN },
		{ self->fd, 3, MAP_SHARED, ENOENT, off + (1ULL << 41), LEN },
		{ self->fd, 3, MAP_SHARED, EINVAL, PAGE, LEN },
		{ self->fd, 3, MAP_SHARED, EINVAL, NPULINK_MMAP_RING + PAGE, LEN },
		{ self->fd, 3, MAP_SHARED, ENOENT, NPULINK_MMAP_RING, LEN },
		{ other, 3, MAP_SHARED, ENOENT, off, LEN },
	};
	unsigned int i;

	ASSERT_GT(id, 0);
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		errno = 0;
		EXPECT_EQ(MAP_FAILED, mmap(NULL, bad[i].len, bad[i].prot, bad[i].flags,
					   bad[i].fd, bad[i].off));
		EXPECT_EQ(bad[i].want, errno) TH_LOG("case %u", i);
	}
	/* Memory of the application is where the application has it. */
	EXPECT_EQ(MAP_FAILED, mmap(NULL, LEN, 3, MAP_SHARED, self->fd,
				   off + ((uint64_t)(self->dst - id) << 41)));
	EXPECT_EQ(EOPNOTSUPP, errno);
	close(other);
}

TEST_F(bufs, mappings_are_not_inherited)
{
	uint64_t off;
	int id = raw_buf_alloc(self->fd, LEN, &off);
	char *mem = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, self->fd, off);
	unsigned char vec[LEN / PAGE];
	pid_t pid;

	ASSERT_GT(id, 0);
	ASSERT_NE(MAP_FAILED, mem);
	pid = fork();
	if (!pid) {
		RAW_CHECK(mincore(mem, LEN, vec) < 0 && errno == ENOMEM);
		RAW_CHECK(mmap(NULL, LEN, PROT_READ, MAP_SHARED, self->fd, off) == MAP_FAILED &&
			  errno == EPERM);
		_exit(0);
	}
	EXPECT_EQ(0, raw_reap(pid));
}

TEST_F(bufs, mapping_in_parts)
{
	uint64_t off;
	int id = raw_buf_alloc(self->fd, LEN, &off);
	char *mem = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, self->fd, off);
	char *to = raw_anon(LEN);
	long before = pinned();

	ASSERT_NE(MAP_FAILED, mem);
	pattern(mem, LEN, 5);
	EXPECT_EQ(MAP_FAILED, mremap(mem, LEN, 2 * LEN, MREMAP_MAYMOVE));
	munmap(mem + 2 * PAGE, PAGE);
	ASSERT_EQ(to, mremap(mem, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to));
	EXPECT_EQ(0, raw_destroy(self->fd, id));
	EXPECT_EQ(0, differs(to, 2 * PAGE, 5));
	EXPECT_EQ(before, pinned());
	munmap(to, 2 * PAGE);
	EXPECT_EQ(before, pinned());
	munmap(mem + 3 * PAGE, LEN - 3 * PAGE);
	EXPECT_TRUE(RAW_EVENTUALLY(pinned() == before - 8));
}

TEST_F(bufs, arena)
{
	size_t len = 16 * PAGE;
	char *arena, *again;

	EXPECT_EQ(MAP_FAILED, mmap(NULL, (1 << 20) + PAGE, PROT_READ, MAP_SHARED, self->fd,
				   NPULINK_MMAP_ARENA));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-ENOENT, copy_out(self, 0));
	arena = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, self->fd,
		     NPULINK_MMAP_ARENA);
	ASSERT_NE(MAP_FAILED, arena);
	/* Its size is that of its first mapping. */
	EXPECT_EQ(MAP_FAILED, mmap(NULL, 2 * len, PROT_READ, MAP_SHARED, self->fd,
				   NPULINK_MMAP_ARENA));
	EXPECT_EQ(EINVAL, errno);
	again = mmap(NULL, len, PROT_READ, MAP_SHARED, self->fd, NPULINK_MMAP_ARENA);
	ASSERT_NE(MAP_FAILED, again);
	pattern(arena, LEN, 1);
	EXPECT_EQ(0, copy_out(self, 0));
	EXPECT_EQ(0, differs(self->out, LEN, 1));
	pattern(self->out, LEN, 2);
	EXPECT_EQ(0, copy_between(self, self->dst, 0, 0, LEN));
	EXPECT_EQ(0, differs(again + LEN, LEN, 2));
	EXPECT_EQ(-ENOENT, raw_destroy(self->fd, 0));
	munmap(arena, len);
	EXPECT_EQ(0, copy_out(self, 0));
}

/* ---- dma-bufs ----------------------------------------------------------------------- */

TEST_F(bufs, exported_and_imported)
{
	struct npulink_buf_export ex = { .size = sizeof(ex) };
	struct npulink_buf_import im = { .size = sizeof(im) };
	int other = raw_open(1), id;
	long before = pinned();
	uint64_t off;
	char *mem;

	id = raw_buf_alloc(self->fd, LEN, &off);
	ex.id = id;
	ASSERT_EQ(0, raw_ioctl(self->fd, NPULINK_BUF_EXPORT, &ex));
	EXPECT_EQ(FD_CLOEXEC, fcntl(ex.out_fd, F_GETFD));
	mem = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, ex.out_fd, 0);
	ASSERT_NE(MAP_FAILED, mem);
	pattern(mem, LEN, 3);
	im.fd = ex.out_fd;
	ASSERT_EQ(0, raw_ioctl(self->fd, NPULINK_BUF_IMPORT, &im));
	EXPECT_EQ(LEN, im.out_len);
	EXPECT_EQ(0, copy_out(self, im.out_id));
	EXPECT_EQ(0, differs(self->out, LEN, 3));
	/* Imported by another file, it lives as long as that. */
	im.out_id = 0;
	ASSERT_EQ(0, raw_ioctl(other, NPULINK_BUF_IMPORT, &im));
	close(ex.out_fd);
	munmap(mem, LEN);
	EXPECT_EQ(0, raw_destroy(self->fd, id));
	EXPECT_EQ(before + 8, pinned());
	close(self->fd);
	self->fd = -1;
	EXPECT_EQ(0, raw_destroy(other, im.out_id));
	close(other);
	EXPECT_TRUE(RAW_EVENTUALLY(pinned() == 0));
}

struct foreign_copy {
	struct _test_data_bufs *self;
	int buf, rc;
	pid_t tid;
};

static void *copy_foreign(void *arg)
{
	struct foreign_copy *c = arg;

	__atomic_store_n(&c->tid, gettid(), __ATOMIC_RELEASE);
	c->rc = copy_out(c->self, c->buf);
	return NULL;
}

/* Memory that a device of another driver is writing is not read before that is done. */
TEST_F(bufs, imported_from_a_driver_at_work)
{
	struct npulink_buf_import im = { .size = sizeof(im) };
	struct foreign_copy c = { .self = self };
	pthread_t thread;
	struct vgem v;
	char *mem;

	if (!vgem_open(&v, LEN))
		SKIP(return, "no vgem");
	mem = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, v.fd, 0);
	ASSERT_NE(MAP_FAILED, mem);
	im.fd = v.fd;
	ASSERT_EQ(0, raw_ioctl(self->fd, NPULINK_BUF_IMPORT, &im));
	c.buf = im.out_id;
	pattern(mem, LEN, 1);
	EXPECT_EQ(0, copy_out(self, c.buf));
	EXPECT_EQ(0, differs(self->out, LEN, 1));
	ASSERT_EQ(0, vgem_begin(&v));
	ASSERT_EQ(0, pthread_create(&thread, NULL, copy_foreign, &c));
	EXPECT_TRUE(RAW_EVENTUALLY(__atomic_load_n(&c.tid, __ATOMIC_ACQUIRE)));
	EXPECT_TRUE(raw_comes_to_wait(c.tid));
	pattern(mem, LEN, 2);
	EXPECT_EQ(0, vgem_end(&v));
	pthread_join(thread, NULL);
	EXPECT_EQ(0, c.rc);
	EXPECT_EQ(0, differs(self->out, LEN, 2));
	/* Written by us, and given back each time. */
	pattern(self->out, LEN, 3);
	EXPECT_EQ(0, copy_between(self, self->dst, 0, c.buf, 0));
	EXPECT_EQ(0, differs(mem, LEN, 3));
	EXPECT_EQ(0, raw_destroy(self->fd, c.buf));
	munmap(mem, LEN);
	close(v.fd);
	close(v.card);
}

TEST_F(bufs, err_export_and_import)
{
	struct npulink_buf_export ex = { .size = sizeof(ex), .id = self->dst };
	struct npulink_buf_import im = { .size = sizeof(im), .fd = -1 };

	EXPECT_EQ(-EOPNOTSUPP, raw_ioctl(self->fd, NPULINK_BUF_EXPORT, &ex));
	EXPECT_EQ(-EBADF, raw_ioctl(self->fd, NPULINK_BUF_IMPORT, &im));
	im.fd = self->fd;
	EXPECT_EQ(-EINVAL, raw_ioctl(self->fd, NPULINK_BUF_IMPORT, &im));
	im.fd = 0x7fffffff;
	EXPECT_EQ(-EBADF, raw_ioctl(self->fd, NPULINK_BUF_IMPORT, &im));
}

TEST_F(bufs, imported_readonly)
{
	struct npulink_buf_export ex = { .size = sizeof(ex) };
	struct npulink_buf_import im = { .size = sizeof(im), .flags = NPULINK_BUF_READONLY };
	uint64_t off;

	ex.id = raw_buf_alloc(self->fd, LEN, &off);
	ASSERT_EQ(0, raw_ioctl(self->fd, NPULINK_BUF_EXPORT, &ex));
	im.fd = ex.out_fd;
	ASSERT_EQ(0, raw_ioctl(self->fd, NPULINK_BUF_IMPORT, &im));
	EXPECT_EQ(0, copy_out(self, im.out_id));
	EXPECT_EQ(-EACCES, copy_between(self, self->dst, 0, im.out_id, 0));
	close(ex.out_fd);
}

TEST_HARNESS_MAIN
