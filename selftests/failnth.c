// SPDX-License-Identifier: GPL-2.0
/*
 * failnth - failures injected into calls that make and look at objects: files, buffers,
 * communicators, plans. See failnth.h.
 *
 * npulink-test: debug timeout=90
 */
#include <linux/npulink_board.h>
#include "failnth_fixture.h"

/* What a rank writes, where a page has 4 KiB. */

static void post_peer_large(struct scene *s)
{
	post_peer(s, false);
}

static int run_open(struct scene *s)
{
	s->fd[0] = raw_open(0);
	return s->fd[0] < 0 ? -errno : 0;
}

static int run_close(struct scene *s)
{
	int fd = s->fd[0];

	/* Closed even if it fails, which it must not. */
	s->fd[0] = -1;
	return fd >= 0 && close(fd) ? -errno : 0;
}

static int run_info(struct scene *s)
{
	struct npulink_device_info info;

	return raw_info(s->fd[0], &info);
}

static int run_mmap_arena(struct scene *s)
{
	return map(s, 256 << 10, NPULINK_MMAP_ARENA);
}

static void check_map(struct scene *s)
{
	size_t i;

	for (i = 0; i < s->map_len; i += PAGE)
		((volatile char *)s->map)[i] = 1;
}

static int run_register(struct scene *s)
{
	s->id = raw_register(s->fd[0], s->mem[0] + 5, 2 * LEN - 5, 0);
	return s->id < 0 ? s->id : 0;
}

/* Pages that the kernel has to make first. */
static void prepare_untouched(struct scene *s)
{
	RAW_CHECK(!madvise(s->mem[0], 2 * LEN, MADV_DONTNEED));
}

static int run_register_readonly(struct scene *s)
{
	s->id = raw_register(s->fd[0], s->mem[0], 2 * LEN, NPULINK_BUF_READONLY);
	return s->id < 0 ? s->id : 0;
}

static void check_destroy(struct scene *s)
{
	RAW_CHECK(!raw_destroy(s->fd[0], s->id));
}

/* Pages of a file that have to be read, or copied, first. */
static void map_file(struct scene *s, int flags)
{
	s->file = memfd_create("failnth", MFD_CLOEXEC);
	RAW_CHECK(s->file >= 0 && !ftruncate(s->file, 2 * LEN));
	s->map = mmap(NULL, 2 * LEN, PROT_READ | PROT_WRITE, flags, s->file, 0);
	RAW_CHECK(s->map != MAP_FAILED);
	s->map_len = 2 * LEN;
}

static void prepare_shared_file(struct scene *s)
{
	map_file(s, MAP_SHARED);
}

static void prepare_private_file(struct scene *s)
{
	map_file(s, MAP_PRIVATE);
}

static int run_register_file(struct scene *s)
{
	s->id = raw_register(s->fd[0], s->map, s->map_len, 0);
	return s->id < 0 ? s->id : 0;
}

static int run_alloc(struct scene *s)
{
	s->id = raw_buf_alloc(s->fd[0], 3 * LEN, &s->off);
	return s->id < 0 ? s->id : 0;
}

static void prepare_alloc(struct scene *s)
{
	RAW_CHECK(!run_alloc(s));
}

static int run_mmap_buf(struct scene *s)
{
	return map(s, 3 * LEN, s->off);
}

static int run_export(struct scene *s)
{
	struct npulink_buf_export cmd = { .size = sizeof(cmd), .id = s->id };
	int rc = raw_ioctl(s->fd[0], NPULINK_BUF_EXPORT, &cmd);

	if (!rc)
		s->dmabuf = cmd.out_fd;
	return rc;
}

static void prepare_import(struct scene *s)
{
	prepare_alloc(s);
	RAW_CHECK(!run_export(s));
}

static int run_import(struct scene *s)
{
	struct npulink_buf_import cmd = { .size = sizeof(cmd), .fd = s->dmabuf };
	int rc = raw_ioctl(s->fd[1], NPULINK_BUF_IMPORT, &cmd);

	s->id = cmd.out_id;
	return rc;
}

static void check_import(struct scene *s)
{
	RAW_CHECK(!raw_destroy(s->fd[1], s->id));
}

static int run_comm_first(struct scene *s)
{
	s->comm[0] = raw_comm(s->fd[0], s->secret, 0, 2);
	return s->comm[0] < 0 ? s->comm[0] : 0;
}

static void check_comm_first(struct scene *s)
{
	s->comm[1] = raw_comm(s->fd[1], s->secret, 1, 2);
	RAW_CHECK(s->comm[1] > 0);
}

static void prepare_comm_second(struct scene *s)
{
	check_comm_first(s);
}

static int run_comm_checked(struct scene *s)
{
	struct npulink_comm_create cmd = {
		.size = sizeof(cmd), .flags = NPULINK_COMM_CHECKSUM, .nranks = 2,
	};

	memcpy(cmd.secret, s->secret, sizeof(cmd.secret));
	return raw_ioctl(s->fd[0], NPULINK_COMM_CREATE, &cmd);
}

static void prepare_comms_checked(struct scene *s)
{
	scene_comms(s, NPULINK_COMM_CHECKSUM);
}

static int run_peers(struct scene *s)
{
	struct npulink_comm_peers cmd = {
		.size = sizeof(cmd), .comm_id = s->comm[0], .npeers = 2,
		.peers = (uintptr_t)s->mem[0],
	};

	return raw_ioctl(s->fd[0], NPULINK_COMM_PEERS, &cmd);
}

static void prepare_peers(struct scene *s)
{
	struct npulink_peer *peers = (void *)s->mem[0];
	struct npulink_device_info info;
	int r;

	RAW_CHECK(!raw_info(s->fd[0], &info));
	for (r = 0; r < 2; r++) {
		peers[r] = (struct npulink_peer) { .kind = NPULINK_PEER_LOCAL };
		memcpy(peers[r].node_id, info.out_node_id, sizeof(info.out_node_id));
	}
}

static int run_status(struct scene *s)
{
	struct npulink_comm_status st;

	return raw_status(s->fd[0], s->comm[0], &st);
}

static int run_board(struct scene *s)
{
	return map(s, 2 * NPULINK_BOARD_BYTES, NPULINK_MMAP_BOARD_SHARED(s->comm[0]));
}

/* It was made by the other rank; a mapping would hold the file. */
static void prepare_board_told(struct scene *s)
{
	RAW_CHECK(!run_board(s));
	munmap(s->map, s->map_len);
	s->map = NULL;
}

static int run_board_told(struct scene *s)
{
	size_t len = 2 * getpagesize();
	void *p = mmap(NULL, len, PROT_READ, MAP_SHARED, s->fd[1],
		       NPULINK_MMAP_BOARD(s->comm[1]));

	if (p == MAP_FAILED)
		return -errno;
	s->map = p;
	s->map_len = len;
	return 0;
}

static int run_plan(struct scene *s)
{
	s->plan[0] = plan_exchange(s->fd[0], s->comm[0], 0, LEN);
	return s->plan[0] < 0 ? s->plan[0] : 0;
}

static void prepare_plan_second(struct scene *s)
{
	s->plan[1] = plan_exchange(s->fd[1], s->comm[1], 1, LEN);
	RAW_CHECK(s->plan[1] > 0);
}

/* A chain of 32 reductions with scratch in a third slot, a window, 2 channels. */
static int run_plan_large(struct scene *s)
{
	struct npulink_slot three[3] = { slots[0], slots[1], slots[1] };
	struct npulink_step steps[300];
	struct npulink_plan_create cmd;
	unsigned int i;
	int rc;

	for (i = 0; i < 300; i++) {
		bool send = i % 2;

		steps[i] = raw_step(send ? NPULINK_STEP_SEND : NPULINK_STEP_RECV, 4);
		steps[i].channel = i % 4 / 2;
		if (send) {
			steps[i].send_peer = 1;
		} else {
			steps[i].recv_peer = 1;
			steps[i].dst_slot = 1;
			steps[i].dst_off = 4 * i;
		}
		if (i % 50 == 49)
			steps[i].flags = NPULINK_STEP_F_DRAIN;
		else if (i)
			steps[i].dep[0] = 1;
	}
	three[0].min_len = 4;
	three[1].min_len = 4 * 300;
	cmd = raw_plan_cmd(s->comm[0], three, 3, steps, 300);
	cmd.call.count = 1;
	rc = raw_ioctl(s->fd[0], NPULINK_PLAN_CREATE, &cmd);
	s->id = cmd.out_id;
	return rc;
}

/* One message, of a stream of its own. */
static int plan_message(struct scene *s, int r)
{
	struct npulink_slot slot = {
		.min_len = LEN, .access = r ? NPULINK_SLOT_READ : NPULINK_SLOT_WRITE,
	};
	struct npulink_step step = raw_step(r ? NPULINK_STEP_SEND : NPULINK_STEP_RECV, LEN);
	struct npulink_plan_create cmd = raw_plan_cmd(s->comm[r], &slot, 1, &step, 1);
	int rc;

	*(r ? &step.send_peer : &step.recv_peer) = !r;
	cmd.call = (struct npulink_call) {
		.collective = NPULINK_COLL_P2P, .dtype = NPULINK_INT8, .count = LEN,
	};
	rc = raw_ioctl(s->fd[r], NPULINK_PLAN_CREATE, &cmd);
	return rc ? rc : (int)cmd.out_id;
}

static void prepare_p2p(struct scene *s)
{
	s->plan[1] = plan_message(s, 1);
	RAW_CHECK(s->plan[1] > 0);
}

static int run_p2p(struct scene *s)
{
	s->plan[0] = plan_message(s, 0);
	return s->plan[0] < 0 ? s->plan[0] : 0;
}

static void check_p2p(struct scene *s)
{
	struct npulink_result res;
	size_t i;
	int r;

	for (r = 0; r < 2; r++) {
		s->post[r] = raw_post_cmd(s->plan[r], NPULINK_POST_HELD);
		s->buf[r] = raw_register(s->fd[r], s->mem[r], LEN, 0);
		RAW_CHECK(s->buf[r] > 0);
		raw_bind(&s->post[r], s->buf[r], 0, LEN);
		RAW_CHECK(!raw_ioctl(s->fd[r], NPULINK_POST, &s->post[r]));
	}
	for (r = 0; r < 2; r++)
		RAW_CHECK(!raw_wait(s->fd[r], s->post[r].out_seq, &res) && !res.status);
	for (i = 0; i < LEN; i++)
		RAW_CHECK(s->mem[0][i] == 2);
}

/* More steps than a plan may have and keep operations in stock. */
static int plan_huge(struct scene *s, uint32_t flags)
{
	struct npulink_slot two[2] = { slots[0], slots[1] };
	static struct npulink_step steps[4200];
	struct npulink_plan_create cmd;
	unsigned int i;
	int rc;

	two[0].min_len = 4;
	two[1].min_len = 4 * ARRAY_SIZE(steps);
	for (i = 0; i < ARRAY_SIZE(steps); i++) {
		steps[i] = raw_step(NPULINK_STEP_COPY, 4);
		steps[i].dst_slot = 1;
		steps[i].dst_off = 4 * i;
		steps[i].dep[0] = i % 8 ? 1 : 0;
	}
	cmd = raw_plan_cmd(s->comm[0], two, 2, steps, ARRAY_SIZE(steps));
	cmd.flags = flags;
	rc = raw_ioctl(s->fd[0], NPULINK_PLAN_CREATE, &cmd);
	s->id = cmd.out_id;
	return rc;
}

static int run_plan_huge(struct scene *s)
{
	return plan_huge(s, 0);
}

static int run_plan_races(struct scene *s)
{
	return plan_huge(s, NPULINK_PLAN_CHECK_RACES);
}

static const struct call files_and_memory[] = {
	{ "open", 0, NOTHING, NULL, run_open, NULL },
	{ "close", 0, PLANS, NULL, run_close, NULL },
	{ "close in flight", 0, PLANS, post_peer_large, run_close, NULL },
	{ "DEVICE_INFO", NPULINK_DEVICE_INFO, FILES, NULL, run_info, NULL },
	{ "mmap arena", 0, FILES, NULL, run_mmap_arena, check_map },
	{ "BUF_REGISTER", NPULINK_BUF_REGISTER, FILES, NULL, run_register, check_destroy },
	{ "BUF_REGISTER untouched", NPULINK_BUF_REGISTER, FILES, prepare_untouched, run_register,
	  check_destroy },
	{ "BUF_REGISTER read-only", NPULINK_BUF_REGISTER, FILES, prepare_untouched,
	  run_register_readonly, check_destroy },
	{ "BUF_REGISTER shared file", NPULINK_BUF_REGISTER, FILES, prepare_shared_file,
	  run_register_file, check_destroy },
	{ "BUF_REGISTER private file", NPULINK_BUF_REGISTER, FILES, prepare_private_file,
	  run_register_file, check_destroy },
	{ "BUF_ALLOC", NPULINK_BUF_ALLOC, FILES, NULL, run_alloc, check_destroy },
	{ "mmap buffer", 0, FILES, prepare_alloc, run_mmap_buf, check_map },
	{ "BUF_EXPORT", NPULINK_BUF_EXPORT, FILES, prepare_alloc, run_export, NULL },
	{ "BUF_IMPORT", NPULINK_BUF_IMPORT, FILES, prepare_import, run_import, check_import },
	{ "RING_SETUP", NPULINK_RING_SETUP, FILES, prepare_ring, run_ring, NULL },
	{ "mmap ring", 0, FILES, prepare_mmap_ring, run_mmap_ring, check_map },
};

static const struct call communicators[] = {
	{ "COMM_CREATE first", NPULINK_COMM_CREATE, FILES, NULL, run_comm_first, check_comm_first },
	{ "COMM_CREATE second", NPULINK_COMM_CREATE, FILES, prepare_comm_second, run_comm_first,
	  NULL },
	{ "COMM_CREATE checked", NPULINK_COMM_CREATE, FILES, NULL, run_comm_checked, NULL },
	{ "COMM_PEERS", NPULINK_COMM_PEERS, COMMS, prepare_peers, run_peers, NULL },
	{ "COMM_STATUS", NPULINK_COMM_STATUS, COMMS, NULL, run_status, NULL },
	{ "mmap board", 0, COMMS, NULL, run_board, check_map },
	{ "mmap board, what is told", 0, COMMS, prepare_board_told, run_board_told, NULL },
};

static const struct call plans[] = {
	{ "PLAN_CREATE first", NPULINK_PLAN_CREATE, COMMS, NULL, run_plan, check_plan },
	{ "PLAN_CREATE second", NPULINK_PLAN_CREATE, COMMS, prepare_plan_second, run_plan,
	  check_plan },
	{ "PLAN_CREATE checked", NPULINK_PLAN_CREATE, FILES, prepare_comms_checked, run_plan,
	  check_plan },
	{ "PLAN_CREATE p2p", NPULINK_PLAN_CREATE, COMMS, prepare_p2p, run_p2p, check_p2p },
	{ "PLAN_CREATE of 300 steps", NPULINK_PLAN_CREATE, COMMS, NULL, run_plan_large,
	  check_destroy },
	{ "PLAN_CREATE of 4,200 steps", NPULINK_PLAN_CREATE, COMMS, NULL, run_plan_huge,
	  check_destroy },
	{ "PLAN_CREATE the same, races", NPULINK_PLAN_CREATE, COMMS, NULL, run_plan_races,
	  check_destroy },
};

TEST_F(failnth, files_and_memory)
{
	SWEEP(files_and_memory);
}

TEST_F(failnth, communicators)
{
	SWEEP(communicators);
}

TEST_F(failnth, plans)
{
	SWEEP(plans);
}

/* What of the kernel's ioctls is to be here is here, and none is nowhere. */
TEST_F(failnth, every_ioctl_is_somewhere)
{
	unsigned int nr, n;
	int fd = raw_open(0);

	for (nr = 0; nr < 256; nr++) {
		EXPECT_EQ(is_ioctl(fd, nr), where[nr] != NOWHERE)
			TH_LOG("ioctl %u", nr);
		n = HAS(files_and_memory, nr) + HAS(communicators, nr) + HAS(plans, nr);
		EXPECT_EQ(where[nr] == OBJECTS, n > 0)
			TH_LOG("ioctl %u", nr);
	}
	close(fd);
}

TEST_HARNESS_MAIN
