// SPDX-License-Identifier: GPL-2.0
/*
 * abi - the layout of every structure, and what the head of npulink.h promises for
 * every ioctl alike: sizes, unknown flags, bad pointers, ids, processes that do not own
 * the file, devices that have gone. One fixture, one variant for each ioctl.
 */
#include <stddef.h>
#include <linux/npulink_board.h>
#include "raw.h"
#include "harness.h"

#define LAYOUT(type, member, at) \
	_Static_assert(offsetof(struct type, member) == (at), #type "." #member)
#define SIZE(type, size)	_Static_assert(sizeof(struct type) == (size), #type)

SIZE(npulink_step, 64);
LAYOUT(npulink_step, op, 0);
LAYOUT(npulink_step, flags, 1);
LAYOUT(npulink_step, dtype, 2);
LAYOUT(npulink_step, redop, 3);
LAYOUT(npulink_step, channel, 4);
LAYOUT(npulink_step, src_slot, 6);
LAYOUT(npulink_step, dst_slot, 7);
LAYOUT(npulink_step, recv_peer, 8);
LAYOUT(npulink_step, send_peer, 12);
LAYOUT(npulink_step, len, 16);
LAYOUT(npulink_step, src_off, 24);
LAYOUT(npulink_step, dst_off, 32);
LAYOUT(npulink_step, src2_off, 40);
LAYOUT(npulink_step, dep, 48);
LAYOUT(npulink_step, src2_slot, 60);
LAYOUT(npulink_step, reserved, 61);
SIZE(npulink_slot, 16);
LAYOUT(npulink_slot, access, 8);
SIZE(npulink_call, 32);
LAYOUT(npulink_call, root, 12);
LAYOUT(npulink_call, count, 16);
LAYOUT(npulink_call, set_id, 24);
SIZE(npulink_device_info, 176);
LAYOUT(npulink_device_info, out_node_id, 16);
LAYOUT(npulink_device_info, out_max_steps, 32);
LAYOUT(npulink_device_info, out_caps, 64);
LAYOUT(npulink_device_info, out_name, 72);
LAYOUT(npulink_device_info, out_version, 136);
LAYOUT(npulink_device_info, out_processors, 152);
LAYOUT(npulink_device_info, out_gathers, 160);
LAYOUT(npulink_device_info, out_memory, 168);
SIZE(npulink_buf_register, 32);
LAYOUT(npulink_buf_register, addr, 8);
LAYOUT(npulink_buf_register, out_id, 24);
SIZE(npulink_buf_alloc, 32);
LAYOUT(npulink_buf_alloc, out_mmap_offset, 16);
SIZE(npulink_buf_import, 24);
LAYOUT(npulink_buf_import, out_len, 16);
SIZE(npulink_buf_export, 16);
SIZE(npulink_comm_create, 40);
LAYOUT(npulink_comm_create, secret, 8);
LAYOUT(npulink_comm_create, rank, 24);
LAYOUT(npulink_comm_create, out_id, 32);
LAYOUT(npulink_comm_create, peer_timeout_ms, 36);
SIZE(npulink_peer, 64);
LAYOUT(npulink_peer, addr, 24);
SIZE(npulink_addr, 40);
LAYOUT(npulink_addr, port, 16);
SIZE(npulink_board_machine, 64);
SIZE(npulink_board_comm, 64);
SIZE(npulink_port_info, 88);
LAYOUT(npulink_port_info, out_name, 16);
LAYOUT(npulink_port_info, out_addr, 48);
SIZE(npulink_comm_peers, 48);
LAYOUT(npulink_comm_peers, peers, 24);
LAYOUT(npulink_comm_peers, nmore, 32);
LAYOUT(npulink_comm_peers, more, 40);
SIZE(npulink_result, 64);
LAYOUT(npulink_result, status, 16);
LAYOUT(npulink_result, step, 36);
LAYOUT(npulink_result, number, 40);
LAYOUT(npulink_result, ns, 48);
SIZE(npulink_comm_abort, 16);
SIZE(npulink_comm_shrink, 32);
LAYOUT(npulink_comm_shrink, map, 24);
SIZE(npulink_comm_status, 368);
SIZE(npulink_circle_wait, 24);
LAYOUT(npulink_comm_status, out_number, 40);
LAYOUT(npulink_comm_status, out_calls, 56);
LAYOUT(npulink_comm_status, out_circle, 128);
LAYOUT(npulink_comm_status, out_peer_ip, 320);
LAYOUT(npulink_comm_status, out_port, 336);
SIZE(npulink_plan_create, 104);
LAYOUT(npulink_plan_create, slots, 24);
LAYOUT(npulink_plan_create, call, 40);
LAYOUT(npulink_plan_create, out_reason, 76);
LAYOUT(npulink_plan_create, algorithm, 80);
SIZE(npulink_bind, 24);
SIZE(npulink_post, 216);
LAYOUT(npulink_post, cookie, 16);
LAYOUT(npulink_post, binds, 40);
LAYOUT(npulink_post, in_fence, 48);
LAYOUT(npulink_post, inline_binds, 56);
LAYOUT(npulink_post, out_seq, 128);
LAYOUT(npulink_post, out_result, 136);
LAYOUT(npulink_post, slow_ns, 200);
LAYOUT(npulink_post, number, 208);
SIZE(npulink_post_batch, 32);
LAYOUT(npulink_post_batch, posts, 16);
SIZE(npulink_wait, 88);
LAYOUT(npulink_wait, out_result, 24);
SIZE(npulink_ring, 192);
LAYOUT(npulink_ring, tail, 64);
LAYOUT(npulink_ring, entries, 128);
LAYOUT(npulink_ring, records, 192);
SIZE(npulink_ring_setup, 24);
LAYOUT(npulink_ring_setup, out_len, 16);
SIZE(npulink_destroy, 8);

/* What the arguments of the ioctls refer to. */
FIXTURE(abi) {
	int fd, comm, plan, buf, dmabuf;
	int failed;		/* a communicator that has, and can be shrunk */
	uint64_t seq;
	char *mem;
	char *page;		/* followed by one that is not mapped */
	size_t page_size;
	struct npulink_post post;
	struct npulink_peer peer;
};

struct _test_data_abi;	/* what FIXTURE() declares */

#define ANYONE	1	/* allowed for processes that do not own the file */
#define GONE	2	/* works after the device has gone */
#define NOFLAGS	4	/* has no member flags */
#define OUTPUT	8	/* writes */
#define NOTHING	16	/* finds nothing here, which it says last */

FIXTURE_VARIANT(abi) {
	unsigned long cmd;
	size_t size;
	size_t first;		/* of its first version, 0: it has not grown */
	unsigned int is;
	size_t id_at;		/* offset of the id it takes, 0: none */
	size_t reserved_at;	/* offset of a reserved member, 0: none */
	void (*fill)(struct _test_data_abi *self, void *arg);
};

static void fill_nothing(struct _test_data_abi *self, void *arg)
{
}

static void fill_register(struct _test_data_abi *self, void *arg)
{
	struct npulink_buf_register *cmd = arg;

	cmd->addr = (uintptr_t)self->mem;
	cmd->len = 1;
}

static void fill_alloc(struct _test_data_abi *self, void *arg)
{
	((struct npulink_buf_alloc *)arg)->len = 1;
}

static void fill_import(struct _test_data_abi *self, void *arg)
{
	((struct npulink_buf_import *)arg)->fd = self->dmabuf;
}

static void fill_export(struct _test_data_abi *self, void *arg)
{
	((struct npulink_buf_export *)arg)->id = self->buf;
}

static void fill_comm_create(struct _test_data_abi *self, void *arg)
{
	struct npulink_comm_create *cmd = arg;

	raw_secret(cmd->secret);
	cmd->nranks = 1;
}

static void fill_comm_peers(struct _test_data_abi *self, void *arg)
{
	struct npulink_comm_peers *cmd = arg;

	cmd->comm_id = self->comm;
	cmd->npeers = 1;
	cmd->peers = (uintptr_t)&self->peer;
}

static void fill_comm_abort(struct _test_data_abi *self, void *arg)
{
	((struct npulink_comm_abort *)arg)->comm_id = self->comm;
}

static void fill_comm_status(struct _test_data_abi *self, void *arg)
{
	((struct npulink_comm_status *)arg)->comm_id = self->comm;
}

/* There are no survivors to join, nor a need for them, until something has failed. */
static void fill_comm_shrink(struct _test_data_abi *self, void *arg)
{
	int comm;

	if (!self->failed) {
		uint8_t secret[16];

		raw_secret(secret);
		comm = raw_comm(self->fd, secret, 0, 1);
		if (comm > 0 && !raw_abort(self->fd, comm, 1))
			self->failed = comm;
	}
	((struct npulink_comm_shrink *)arg)->comm_id = self->failed;
}

static void fill_plan_create(struct _test_data_abi *self, void *arg)
{
	*(struct npulink_plan_create *)arg = raw_plan_cmd(self->comm, NULL, 0, NULL, 0);
}

static void fill_post(struct _test_data_abi *self, void *arg)
{
	*(struct npulink_post *)arg = raw_post_cmd(self->plan, NPULINK_POST_WAIT);
}

static void fill_post_batch(struct _test_data_abi *self, void *arg)
{
	struct npulink_post_batch *cmd = arg;

	self->post = raw_post_cmd(self->plan, 0);
	cmd->flags = NPULINK_POST_WAIT;
	cmd->nposts = 1;
	cmd->posts = (uintptr_t)&self->post;
	cmd->wait_until_ns = RAW_FOREVER;
}

/* A held result can be looked at once, so there is a new one each time. */
static void fill_wait(struct _test_data_abi *self, void *arg)
{
	struct npulink_post post = raw_post_cmd(self->plan, NPULINK_POST_HELD);

	if (!raw_ioctl(self->fd, NPULINK_POST, &post))
		self->seq = post.out_seq;
	((struct npulink_wait *)arg)->seq = self->seq;
}

static void fill_ring(struct _test_data_abi *self, void *arg)
{
	struct npulink_ring_setup *cmd = arg;

	cmd->entries = 8;
	cmd->eventfd = -1;
}

static void fill_destroy(struct _test_data_abi *self, void *arg)
{
	uint64_t off;
	int id = raw_buf_alloc(self->fd, 1, &off);

	if (id > 0)
		self->buf = id;
	((struct npulink_destroy *)arg)->id = self->buf;
}

#define IOCTL(_cmd, _struct, _fill, _is, _id, _reserved) \
	.cmd = _cmd, .size = sizeof(struct _struct), .fill = _fill, .is = _is, \
	.id_at = _id, .reserved_at = _reserved

FIXTURE_VARIANT_ADD(abi, device_info) {
	IOCTL(NPULINK_DEVICE_INFO, npulink_device_info, fill_nothing,
	      ANYONE | OUTPUT, 0, 0),
	.first = offsetof(struct npulink_device_info, out_processors)
};

FIXTURE_VARIANT_ADD(abi, buf_register) {
	IOCTL(NPULINK_BUF_REGISTER, npulink_buf_register, fill_register, OUTPUT, 0,
	      offsetof(struct npulink_buf_register, reserved))
};

FIXTURE_VARIANT_ADD(abi, buf_alloc) {
	IOCTL(NPULINK_BUF_ALLOC, npulink_buf_alloc, fill_alloc, OUTPUT, 0,
	      offsetof(struct npulink_buf_alloc, reserved))
};

FIXTURE_VARIANT_ADD(abi, buf_import) {
	IOCTL(NPULINK_BUF_IMPORT, npulink_buf_import, fill_import, OUTPUT, 0, 0)
};

FIXTURE_VARIANT_ADD(abi, buf_export) {
	IOCTL(NPULINK_BUF_EXPORT, npulink_buf_export, fill_export, OUTPUT,
	      offsetof(struct npulink_buf_export, id), 0)
};

FIXTURE_VARIANT_ADD(abi, comm_create) {
	IOCTL(NPULINK_COMM_CREATE, npulink_comm_create, fill_comm_create, OUTPUT, 0, 0)
};

FIXTURE_VARIANT_ADD(abi, comm_peers) {
	IOCTL(NPULINK_COMM_PEERS, npulink_comm_peers, fill_comm_peers, 0,
	      offsetof(struct npulink_comm_peers, comm_id),
	      offsetof(struct npulink_comm_peers, reserved)),
	.first = offsetof(struct npulink_comm_peers, nmore)
};

FIXTURE_VARIANT_ADD(abi, comm_abort) {
	IOCTL(NPULINK_COMM_ABORT, npulink_comm_abort, fill_comm_abort, GONE,
	      offsetof(struct npulink_comm_abort, comm_id), 0)
};

FIXTURE_VARIANT_ADD(abi, comm_status) {
	IOCTL(NPULINK_COMM_STATUS, npulink_comm_status, fill_comm_status,
	      GONE | OUTPUT, offsetof(struct npulink_comm_status, comm_id), 0),
	.first = offsetof(struct npulink_comm_status, out_ncircle)
};

FIXTURE_VARIANT_ADD(abi, plan_create) {
	IOCTL(NPULINK_PLAN_CREATE, npulink_plan_create, fill_plan_create, OUTPUT,
	      offsetof(struct npulink_plan_create, comm_id), 0),
	.first = offsetof(struct npulink_plan_create, algorithm)
};

FIXTURE_VARIANT_ADD(abi, post) {
	IOCTL(NPULINK_POST, npulink_post, fill_post, OUTPUT,
	      offsetof(struct npulink_post, plan_id), 0),
	.first = offsetof(struct npulink_post, slow_ns)
};

FIXTURE_VARIANT_ADD(abi, post_batch) {
	IOCTL(NPULINK_POST_BATCH, npulink_post_batch, fill_post_batch, OUTPUT, 0, 0)
};

FIXTURE_VARIANT_ADD(abi, wait) {
	IOCTL(NPULINK_WAIT, npulink_wait, fill_wait, ANYONE | GONE | OUTPUT, 0, 0)
};

FIXTURE_VARIANT_ADD(abi, ring_setup) {
	IOCTL(NPULINK_RING_SETUP, npulink_ring_setup, fill_ring, OUTPUT, 0, 0)
};

FIXTURE_VARIANT_ADD(abi, destroy) {
	IOCTL(NPULINK_DESTROY, npulink_destroy, fill_destroy, GONE | NOFLAGS,
	      offsetof(struct npulink_destroy, id), 0)
};

FIXTURE_VARIANT_ADD(abi, comm_shrink) {
	IOCTL(NPULINK_COMM_SHRINK, npulink_comm_shrink, fill_comm_shrink, OUTPUT,
	      offsetof(struct npulink_comm_shrink, comm_id), 0),
	.first = offsetof(struct npulink_comm_shrink, map)
};

/* No port is bound to the device; one is in rdma_hostile and failnth. */
FIXTURE_VARIANT_ADD(abi, port_info) {
	IOCTL(NPULINK_PORT_INFO, npulink_port_info, fill_nothing, NOTHING, 0, 0)
};

FIXTURE_SETUP(abi)
{
	struct npulink_buf_export ex = { .size = sizeof(ex) };
	struct npulink_device_info info;
	uint8_t secret[16];
	uint64_t off;

	self->page_size = getpagesize();
	self->fd = raw_open(0);
	ASSERT_GE(self->fd, 0);
	raw_secret(secret);
	self->comm = raw_comm(self->fd, secret, 0, 1);
	ASSERT_GT(self->comm, 0);
	self->plan = raw_plan(self->fd, self->comm, NULL, 0, NULL, 0);
	ASSERT_GT(self->plan, 0);
	self->buf = raw_buf_alloc(self->fd, 1, &off);
	ASSERT_GT(self->buf, 0);
	ex.id = self->buf;
	ASSERT_EQ(0, raw_ioctl(self->fd, NPULINK_BUF_EXPORT, &ex));
	self->dmabuf = ex.out_fd;
	ASSERT_EQ(0, raw_info(self->fd, &info));
	memcpy(self->peer.node_id, info.out_node_id, sizeof(self->peer.node_id));
	self->mem = raw_anon(self->page_size);
	self->page = raw_anon(2 * self->page_size);
	ASSERT_NE(MAP_FAILED, self->page);
	munmap(self->page + self->page_size, self->page_size);
}

FIXTURE_TEARDOWN(abi)
{
	close(self->dmabuf);
	close(self->fd);
}

/* What a call gives that is as it should be. */
static int good(const struct _fixture_variant_abi *variant)
{
	return variant->is & NOTHING ? -ENOENT : 0;
}

/* The argument at the end of a page after which nothing is mapped. */
static void *abi_arg(struct _test_data_abi *self, const struct _fixture_variant_abi *variant,
		     size_t size)
{
	char *arg = self->page + self->page_size - size;

	memset(arg, 0, size);
	variant->fill(self, arg);
	*(uint32_t *)arg = size;
	return arg;
}

TEST_F(abi, accepts_its_own_size)
{
	void *arg = abi_arg(self, variant, variant->size);

	EXPECT_EQ(good(variant), raw_ioctl(self->fd, variant->cmd, arg));
	EXPECT_EQ(variant->size, *(uint32_t *)arg);
}

TEST_F(abi, accepts_zeros_behind)
{
	EXPECT_EQ(good(variant), raw_ioctl(self->fd, variant->cmd,
					   abi_arg(self, variant, variant->size + 64)));
}

TEST_F(abi, err_other_bytes_behind)
{
	char *arg = abi_arg(self, variant, variant->size + 64);

	arg[variant->size + 63] = 1;
	EXPECT_EQ(-E2BIG, raw_ioctl(self->fd, variant->cmd, arg));
	arg[variant->size + 63] = 0;
	arg[variant->size] = 1;
	EXPECT_EQ(-E2BIG, raw_ioctl(self->fd, variant->cmd, arg));
}

/* More than a page is never an extension: what is behind it is not even looked at. */
TEST_F(abi, err_more_than_a_page)
{
	char *arg = abi_arg(self, variant, variant->size);

	*(uint32_t *)arg = self->page_size + 1;
	EXPECT_EQ(-E2BIG, raw_ioctl(self->fd, variant->cmd, arg));
	*(uint32_t *)arg = -1;
	EXPECT_EQ(-E2BIG, raw_ioctl(self->fd, variant->cmd, arg));
	/* A page is one. */
	arg = raw_anon(self->page_size);
	variant->fill(self, (void *)arg);
	*(uint32_t *)arg = self->page_size;
	EXPECT_EQ(good(variant), raw_ioctl(self->fd, variant->cmd, arg));
	munmap(arg, self->page_size);
}

#ifdef __x86_64__
/* A system call as programs of 32 bits make it; its numbers are theirs. */
static long call_32(long nr, long a, long b, long c, long d, long e)
{
	long rc;

	asm volatile("int $0x80" : "=a"(rc)
		     : "a"(nr), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e)
		     : "memory", "r8", "r9", "r10", "r11");
	return (int)rc;
}

#define OPEN_32		5
#define GETPID_32	20
#define IOCTL_32	54
#define MMAP2_32	192

/* Has this kernel such calls? */
static bool has_calls_32(void)
{
	pid_t pid = fork();

	if (!pid)
		_exit(call_32(GETPID_32, 0, 0, 0, 0, 0) != getpid());
	return !raw_reap(pid);
}

/* Where they can point to. */
static void *low_page(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT,
		    -1, 0);
}

TEST_F(abi, err_32_bits)
{
	char *arg = low_page();

	if (!has_calls_32())
		SKIP(return, "no calls of 32 bits");
	ASSERT_NE(MAP_FAILED, (void *)arg);
	variant->fill(self, (void *)arg);
	*(uint32_t *)arg = variant->size;
	EXPECT_EQ(-EOPNOTSUPP, call_32(IOCTL_32, self->fd, variant->cmd, (long)arg, 0, 0));
	EXPECT_EQ(good(variant), raw_ioctl(self->fd, variant->cmd, arg));
	munmap(arg, 4096);
}

TEST(err_32_bits_open_and_mmap)
{
	char *path = low_page();
	int fd = raw_open(0);

	if (!has_calls_32())
		SKIP(return, "no calls of 32 bits");
	ASSERT_NE(MAP_FAILED, (void *)path);
	strcpy(path, "/dev/npulink/npu0");
	EXPECT_EQ(-EOPNOTSUPP, call_32(OPEN_32, (long)path, O_RDWR, 0, 0, 0));
	EXPECT_EQ(-EOPNOTSUPP, call_32(MMAP2_32, 0, 4096, PROT_READ, MAP_SHARED, fd));
	close(fd);
	munmap(path, 4096);
}
#endif

/* What has grown since takes what it was at first. */
static uint32_t first_size(const struct _fixture_variant_abi *variant)
{
	return variant->first ?: variant->size;
}

TEST_F(abi, accepts_its_first_size)
{
	uint32_t *arg = abi_arg(self, variant, variant->size);

	*arg = first_size(variant);
	EXPECT_EQ(good(variant), raw_ioctl(self->fd, variant->cmd, arg));
}

TEST_F(abi, err_too_small)
{
	uint32_t *arg = abi_arg(self, variant, variant->size), size;

	for (size = 0; size < first_size(variant); size += size < 8 ? 1 : 4) {
		*arg = size;
		EXPECT_EQ(-EINVAL, raw_ioctl(self->fd, variant->cmd, arg));
	}
}

TEST_F(abi, err_unknown_flag)
{
	uint32_t *arg = abi_arg(self, variant, variant->size);
	unsigned int bit;

	if (variant->is & NOFLAGS)
		return;
	for (bit = variant->cmd == NPULINK_POST ? 3 : 2; bit < 32; bit++) {
		variant->fill(self, arg);
		arg[0] = variant->size;
		arg[1] |= 1U << bit;
		EXPECT_EQ(-EOPNOTSUPP, raw_ioctl(self->fd, variant->cmd, arg));
		arg[1] = 0;
	}
}

TEST_F(abi, err_reserved)
{
	char *arg = abi_arg(self, variant, variant->size);

	if (!variant->reserved_at)
		return;
	arg[variant->reserved_at] = 1;
	EXPECT_EQ(-EOPNOTSUPP, raw_ioctl(self->fd, variant->cmd, arg));
}

TEST_F(abi, err_bad_pointer)
{
	char *arg = abi_arg(self, variant, variant->size);

	EXPECT_EQ(-EFAULT, raw_ioctl(self->fd, variant->cmd, NULL));
	EXPECT_EQ(-EFAULT, raw_ioctl(self->fd, variant->cmd, self->page + self->page_size));
	/* The size can be read, the rest cannot. */
	memmove(arg + 4, arg, variant->size - 4);
	EXPECT_EQ(-EFAULT, raw_ioctl(self->fd, variant->cmd, arg + 4));
}

/* Results that cannot be written: nothing stays behind, not even an operation. */
TEST_F(abi, err_output_not_writable)
{
	void *arg = abi_arg(self, variant, variant->size);

	if (!(variant->is & OUTPUT))
		return;
	ASSERT_EQ(0, mprotect(self->page, self->page_size, PROT_READ));
	EXPECT_EQ(-EFAULT, raw_ioctl(self->fd, variant->cmd, arg));
	ASSERT_EQ(0, mprotect(self->page, self->page_size, PROT_READ | PROT_WRITE));
	if (variant->cmd == NPULINK_POST_BATCH)
		return;		/* the posts were accepted and have run */
	EXPECT_EQ(good(variant), raw_ioctl(self->fd, variant->cmd, arg));
}

TEST_F(abi, err_no_such_id)
{
	char *arg = abi_arg(self, variant, variant->size);
	const uint32_t wrong[] = { 0, 4711, 65537, 0x80000000, 0xffffffff };
	unsigned int i;

	if (!variant->id_at)
		return;
	for (i = 0; i < ARRAY_SIZE(wrong); i++) {
		memcpy(arg + variant->id_at, &wrong[i], 4);
		EXPECT_EQ(-ENOENT, raw_ioctl(self->fd, variant->cmd, arg));
	}
}

TEST_F(abi, err_id_of_another_type)
{
	char *arg = abi_arg(self, variant, variant->size);
	const int ids[] = { self->comm, self->plan, self->buf };
	unsigned int i;
	uint32_t good;

	if (!variant->id_at || variant->cmd == NPULINK_DESTROY)
		return;
	memcpy(&good, arg + variant->id_at, 4);
	for (i = 0; i < 3; i++) {
		if (ids[i] == (int)good)
			continue;
		memcpy(arg + variant->id_at, &ids[i], 4);
		/* One communicator has failed, this one has not. */
		EXPECT_EQ(variant->cmd == NPULINK_COMM_SHRINK && !i ? -EINVAL : -ENOENT,
			  raw_ioctl(self->fd, variant->cmd, arg));
	}
}

TEST_F(abi, err_id_of_another_file)
{
	char *arg = abi_arg(self, variant, variant->size);
	int fd = raw_open(0);

	if (!variant->id_at)
		return;
	ASSERT_GE(fd, 0);
	EXPECT_EQ(-ENOENT, raw_ioctl(fd, variant->cmd, arg));
	close(fd);
}

TEST_F(abi, err_other_process)
{
	void *arg = abi_arg(self, variant, variant->size);
	int want = variant->is & ANYONE ? 0 : -EPERM;
	pid_t pid = fork();

	ASSERT_GE(pid, 0);
	if (!pid) {
		int rc = raw_ioctl(self->fd, variant->cmd, arg);

		if (rc != want)
			fprintf(stderr, "# rc %d, not %d\n", rc, want);
		_exit(rc != want);
	}
	EXPECT_EQ(0, raw_reap(pid));
	/* To the owner nothing has happened. */
	EXPECT_EQ(good(variant), raw_ioctl(self->fd, variant->cmd, arg));
}

TEST_F(abi, err_no_such_command)
{
	void *arg = abi_arg(self, variant, variant->size);
	unsigned int nr = _IOC_NR(variant->cmd);

	EXPECT_EQ(-ENOTTY, raw_ioctl(self->fd, _IOWR(NPULINK_TYPE, nr, uint32_t), arg));
	EXPECT_EQ(-ENOTTY, raw_ioctl(self->fd, _IO(NPULINK_TYPE - 1, nr), arg));
	EXPECT_EQ(-ENOTTY, raw_ioctl(self->fd, variant->cmd | 1U << 16, arg));
}

static bool has_variant(unsigned int nr)
{
	const struct __fixture_variant_metadata *v;

	for (v = _abi_fixture_object.variant; v; v = v->next)
		if (_IOC_NR(((const struct _fixture_variant_abi *)v->data)->cmd) == nr)
			return true;
	return false;
}

/* The kernel knows those that are tested here, and no others. */
TEST(every_ioctl_is_here)
{
	uint32_t arg[64] = { 1 };	/* too small for any */
	int fd = raw_open(0);
	unsigned int nr;

	ASSERT_GE(fd, 0);
	for (nr = 0; nr < 256; nr++)
		EXPECT_EQ(has_variant(nr) ? -EINVAL : -ENOTTY,
			  raw_ioctl(fd, _IO(NPULINK_TYPE, nr), arg))
			TH_LOG("ioctl %u", nr);
	close(fd);
}

TEST_F(abi, err_device_has_gone)
{
	void *arg;
	int rc, fd;

	/* A device of its own, which can be taken away. */
	ASSERT_EQ(0, raw_write(RAW_SOFT "/new_device", "1"));
	fd = raw_open(8);
	if (fd < 0) {
		raw_write(RAW_SOFT "/del_device", "npu8");
		SKIP(return, "the new device is not npu8");
	}
	close(self->fd);
	self->fd = fd;
	raw_secret(self->peer.addr.ip);
	self->comm = raw_comm(fd, self->peer.addr.ip, 0, 1);
	memset(&self->peer.addr, 0, sizeof(self->peer.addr));
	ASSERT_GT(self->comm, 0);
	self->plan = raw_plan(fd, self->comm, NULL, 0, NULL, 0);
	ASSERT_GT(self->plan, 0);
	arg = abi_arg(self, variant, variant->size);
	ASSERT_EQ(0, raw_write(RAW_SOFT "/del_device", "npu8"));
	rc = raw_ioctl(fd, variant->cmd, arg);
	EXPECT_EQ(variant->is & GONE ? 0 : -ENODEV, rc);
}

TEST(device_info_is_complete)
{
	struct npulink_device_info info, other;
	int fd = raw_open(3);
	int fd2 = raw_open(4);

	ASSERT_GE(fd, 0);
	ASSERT_EQ(0, raw_info(fd, &info));
	ASSERT_EQ(0, raw_info(fd2, &other));
	EXPECT_EQ(NPULINK_ABI_VERSION, info.out_abi_version);
	EXPECT_EQ(3, info.out_device_id);
	EXPECT_EQ(4, other.out_device_id);
	EXPECT_EQ(0, memcmp(info.out_node_id, other.out_node_id, 16));
	EXPECT_NE(0, *(uint64_t *)info.out_node_id);
	EXPECT_GE(info.out_max_steps, 1U << 20);
	EXPECT_GE(info.out_max_ranks, 1024);
	EXPECT_GE(info.out_max_channels, 1);
	EXPECT_GE(info.out_max_inflight, 64);
	EXPECT_GE(info.out_max_arena, 65536);
	EXPECT_GE(info.out_slice, 4096);
	EXPECT_EQ((1U << NPULINK_DTYPES) - 1, info.out_dtypes);
	EXPECT_EQ((1U << NPULINK_REDOPS) - 1, info.out_redops);
	EXPECT_EQ(NPULINK_CAP_BOARD, info.out_caps & ~NPULINK_CAP_DOORBELL);
	EXPECT_STREQ("npu3", info.out_name);
	EXPECT_STREQ("soft", info.out_backend);
	EXPECT_NE(0, info.out_engine[0]);
	EXPECT_NE(0, info.out_version[0]);
	EXPECT_NE(NULL, memchr(info.out_engine, 0, sizeof(info.out_engine)));
	EXPECT_NE(NULL, memchr(info.out_version, 0, sizeof(info.out_version)));
	EXPECT_EQ(sysconf(_SC_NPROCESSORS_ONLN), info.out_processors);
	EXPECT_EQ(raw_read("/sys/module/npulink/parameters/graph_bytes"), info.out_graph_bytes);
	EXPECT_EQ(1U << NPULINK_COLL_BARRIER | 1U << NPULINK_COLL_ALLREDUCE |
		  1U << NPULINK_COLL_ALLGATHER | 1U << NPULINK_COLL_ALLTOALL |
		  1U << NPULINK_COLL_REDUCE_SCATTER, info.out_gathers);
	EXPECT_EQ(1U << NPULINK_COLL_BROADCAST | 1U << NPULINK_COLL_REDUCE, info.out_gathers_large);
	close(fd);
	close(fd2);
}

/* soft has no doorbell page, and says so. */
TEST(err_no_doorbell_page)
{
	struct npulink_device_info info;
	int fd = raw_open(0);

	ASSERT_GE(fd, 0);
	ASSERT_EQ(0, raw_info(fd, &info));
	EXPECT_EQ(0, info.out_caps & NPULINK_CAP_DOORBELL);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, getpagesize(), PROT_WRITE, MAP_SHARED, fd,
				   NPULINK_MMAP_DOORBELL));
	EXPECT_EQ(EOPNOTSUPP, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, 2 * getpagesize(), PROT_WRITE, MAP_SHARED, fd,
				   NPULINK_MMAP_DOORBELL));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, getpagesize(), PROT_WRITE, MAP_PRIVATE, fd,
				   NPULINK_MMAP_DOORBELL));
	EXPECT_EQ(EINVAL, errno);
	close(fd);
}

TEST_HARNESS_MAIN
