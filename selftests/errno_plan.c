// SPDX-License-Identifier: GPL-2.0
/*
 * errno_plan - PLAN_CREATE: every reason for which it refuses a plan, with the step it
 * blames, and its other errors. Each variant spoils a good plan in one way.
 */
#include "raw.h"
#include "harness.h"

#define NONE	0xffffffffU
#define NSTEPS	5

/*
 * Rank 1 of 4: 0 sends, 1 receives and reduces, 2 continues it as a chain and passes it
 * on, 3 passes something on through a window, 4 copies. Slot 2 is written only.
 */
struct good {
	struct npulink_slot slots[3];
	struct npulink_step steps[NSTEPS];
	struct npulink_plan_create cmd;
};

static void good_plan(struct good *g, uint32_t comm)
{
	struct npulink_step *s = g->steps;

	g->slots[0] = (struct npulink_slot) { .min_len = 4096, .access = NPULINK_SLOT_READ };
	g->slots[1] = (struct npulink_slot) {
		.min_len = 8192, .access = NPULINK_SLOT_READ | NPULINK_SLOT_WRITE,
	};
	g->slots[2] = (struct npulink_slot) { .min_len = 4096, .access = NPULINK_SLOT_WRITE };

	s[0] = raw_step(NPULINK_STEP_SEND, 1024);
	s[0].send_peer = 0;
	s[1] = raw_step(NPULINK_STEP_RECV | NPULINK_STEP_REDUCE, 1024);
	s[1].recv_peer = 0;
	s[1].dst_slot = 1;
	s[2] = raw_step(NPULINK_STEP_RECV | NPULINK_STEP_REDUCE | NPULINK_STEP_SEND, 1024);
	s[2].flags = NPULINK_STEP_F_CHAIN;
	s[2].recv_peer = 2;
	s[2].send_peer = 3;
	s[2].src_slot = 1;
	s[2].dst_slot = 1;
	s[3] = raw_step(NPULINK_STEP_RECV | NPULINK_STEP_SEND, 1000);
	s[3].flags = NPULINK_STEP_F_TRANSIENT;
	s[3].recv_peer = 3;
	s[3].send_peer = 2;
	s[3].dst_slot = 1;
	s[3].dst_off = 4096;
	s[3].src2_off = 100;
	s[4] = raw_step(NPULINK_STEP_COPY, 1024);
	s[4].src_slot = 1;
	s[4].dst_slot = 2;
	s[4].dep[0] = 2;
	g->cmd = raw_plan_cmd(comm, g->slots, 3, s, NSTEPS);
	g->cmd.call.count = 256;
}

/* As far as the type goes, the good one would be right for them. */
static void means_of_floats(struct npulink_call *call, struct npulink_step *s)
{
	call->redop = NPULINK_CALL_AVG;
	call->dtype = NPULINK_FLOAT32;
	s[1].dtype = NPULINK_FLOAT32;
	s[2].dtype = NPULINK_FLOAT32;
}

FIXTURE(plan) {
	struct good g;
	int fd, comm;
};

FIXTURE_VARIANT(plan) {
	void (*spoil)(struct good *g);
	uint32_t step, reason;
};

#define BAD(_name, _step, _reason, ...) \
	static void spoil_##_name(struct good *g) \
	{ \
		struct npulink_step *s = g->steps; \
		struct npulink_call *call = &g->cmd.call; \
		(void)s; \
		(void)call; \
		__VA_ARGS__; \
	} \
	FIXTURE_VARIANT_ADD(plan, _name) { \
		.spoil = spoil_##_name, .step = _step, .reason = NPULINK_BAD_##_reason, \
	}

/* Operations. */
BAD(op_unknown_bit, 4, OP, s[4].op = 0x10);
BAD(op_copy_and_reduce, 4, OP, s[4].op = NPULINK_STEP_COPY | NPULINK_STEP_REDUCE);
BAD(op_copy_and_recv, 4, OP, s[4].op = NPULINK_STEP_COPY | NPULINK_STEP_RECV);
BAD(op_all, 4, OP, s[4].op = NPULINK_STEP_OPS);
/* Flags. */
BAD(flag_unknown, 0, FLAGS, s[0].flags = 0x80);
BAD(flag_all, 0, FLAGS, s[0].flags = 0xff);
BAD(flag_window_of_a_sender, 0, FLAGS, s[0].flags = NPULINK_STEP_F_TRANSIENT);
BAD(flag_window_of_a_receiver, 3, FLAGS, s[3].op = NPULINK_STEP_RECV; s[3].send_peer = NONE);
BAD(flag_div_without_reduction, 4, FLAGS, call->redop = NPULINK_CALL_AVG;
	s[4].flags = NPULINK_STEP_F_DIV);
BAD(flag_div_without_average, 2, FLAGS, s[2].flags |= NPULINK_STEP_F_DIV);
BAD(flag_scale_without_average, 1, FLAGS, means_of_floats(call, s);
	call->redop = NPULINK_SUM; s[1].flags = NPULINK_STEP_F_SCALE);
BAD(flag_scale_of_integers, 1, FLAGS, call->redop = NPULINK_CALL_AVG;
	s[1].flags = NPULINK_STEP_F_SCALE);
BAD(flag_scale_of_a_message, 0, FLAGS, means_of_floats(call, s);
	s[0].flags = NPULINK_STEP_F_SCALE);
BAD(flag_scale2_of_a_copy, 4, FLAGS, means_of_floats(call, s);
	s[4].flags = NPULINK_STEP_F_SCALE2);
BAD(flag_rest_without_div, 1, FLAGS, means_of_floats(call, s); s[1].flags = NPULINK_STEP_F_REST);
BAD(scaled_copy_without_type, 4, CALL, means_of_floats(call, s);
	s[4].flags = NPULINK_STEP_F_SCALE);
BAD(scaled_copy_of_part_of_an_element, 4, ALIGN, means_of_floats(call, s);
	s[4].flags = NPULINK_STEP_F_SCALE; s[4].dtype = NPULINK_FLOAT32; s[4].len = 1022);
BAD(chain_scale, 2, CHAIN, means_of_floats(call, s); s[2].flags |= NPULINK_STEP_F_SCALE);
/* Members that must be 0. */
BAD(reserved_first, 0, RESERVED, s[0].reserved[0] = 1);
BAD(reserved_last, 0, RESERVED, s[0].reserved[2] = 0x80);
BAD(reserved_slot, NONE, RESERVED, g->slots[1].reserved = 1);
BAD(unused_recv_peer, 0, RESERVED, s[0].recv_peer = 2);
BAD(unused_recv_peer_zero, 0, RESERVED, s[0].recv_peer = 0);
BAD(unused_send_peer, 4, RESERVED, s[4].send_peer = 2);
BAD(unused_dtype, 0, RESERVED, s[0].dtype = NPULINK_INT32);
BAD(unused_redop, 0, RESERVED, s[0].redop = NPULINK_MAX);
BAD(unused_src, 3, RESERVED, s[3].src_slot = 1);
BAD(unused_src_off, 3, RESERVED, s[3].src_off = 8);
BAD(unused_dst, 0, RESERVED, s[0].dst_slot = 1);
BAD(unused_dst_off, 0, RESERVED, s[0].dst_off = 1);
BAD(unused_src2, 4, RESERVED, s[4].src2_slot = 1);
BAD(unused_src2_off, 4, RESERVED, s[4].src2_off = 4);
BAD(unused_channel, 4, RESERVED, s[4].channel = 1);
BAD(unused_len, 4, RESERVED, s[4] = raw_step(0, 8));
BAD(empty_step_with_src, 4, RESERVED, s[4].len = 0);
/* Types. */
BAD(dtype_unknown, 1, DTYPE, s[1].dtype = NPULINK_DTYPES);
BAD(redop_unknown, 1, DTYPE, s[1].redop = NPULINK_REDOPS);
BAD(redop_average, 1, DTYPE, s[1].redop = NPULINK_CALL_AVG);
BAD(call_dtype_unknown, NONE, DTYPE, call->dtype = NPULINK_DTYPES);
BAD(call_redop_unknown, NONE, DTYPE, call->redop = NPULINK_CALL_AVG + 1);
BAD(call_redop_unused, NONE, DTYPE, call->collective = NPULINK_COLL_ALLGATHER; call->redop = 1);
/* Peers. */
BAD(peer_out_of_range, 0, PEER, s[0].send_peer = 4);
BAD(peer_missing, 0, PEER, s[0].send_peer = NONE);
BAD(peer_is_self, 0, PEER, s[0].send_peer = 1);
BAD(peer_recv_out_of_range, 1, PEER, s[1].recv_peer = 0x80000000);
BAD(peer_recv_is_self, 1, PEER, s[1].recv_peer = 1);
BAD(channel_out_of_range, 0, CHANNEL, s[0].channel = 0xffff);
/* Operands. */
BAD(slot_out_of_range, 4, SLOT, s[4].src_slot = 3);
BAD(slot_far_out_of_range, 4, SLOT, s[4].dst_slot = 255);
BAD(slot_not_readable, 0, SLOT, s[0].src_slot = 2);
BAD(slot_not_writable, 4, SLOT, s[4].dst_slot = 0);
BAD(slot_not_readable_to_the_peer, 3, SLOT, s[3].dst_slot = 2; s[3].dst_off = 0);
BAD(slot_access_unknown, NONE, SLOT, g->slots[0].access = 4);
BAD(range_len, 4, RANGE, s[4].len = 4097);
BAD(range_off, 0, RANGE, s[0].src_off = 4096 - 1023);
BAD(range_wraps, 0, RANGE, s[0].src_off = -8ULL);
BAD(range_both_wrap, 0, RANGE, s[0].src_off = -512ULL; s[0].len = 1024);
BAD(range_too_long, 0, RANGE, s[0].len = 1ULL << 41);
BAD(range_slot_too_long, NONE, RANGE, g->slots[0].min_len = -1ULL);
BAD(range_window, 3, RANGE, s[3].dst_off = 8192 - 99);
BAD(align_len, 1, ALIGN, s[1].len = 1022);
BAD(align_dst, 1, ALIGN, s[1].dst_off = 2);
BAD(align_src, 1, ALIGN, s[1].src_off = 1);
BAD(overlap_src_dst, 4, OVERLAP, s[4].dst_slot = 1; s[4].dst_off = 1023);
BAD(overlap_src2_dst, 4, OVERLAP, s[4] = raw_step(NPULINK_STEP_REDUCE, 1024);
	s[4].dst_slot = 1; s[4].src2_slot = 1);
BAD(overlap_src_src2, 4, OVERLAP, s[4] = raw_step(NPULINK_STEP_REDUCE, 1024);
	s[4].dst_slot = 2; s[4].src2_off = 1020);
/* Dependencies, chains, windows. */
BAD(dep_before_the_first, 0, DEP, s[0].dep[0] = 1);
BAD(dep_far_before_the_first, 4, DEP, s[4].dep[2] = 5);
BAD(dep_wraps, 4, DEP, s[4].dep[1] = NONE);
BAD(chain_of_the_first, 0, CHAIN, s[0].flags = NPULINK_STEP_F_CHAIN);
BAD(chain_to_a_sender, 1, CHAIN, s[1].flags = NPULINK_STEP_F_CHAIN);
BAD(chain_other_dst, 2, CHAIN, s[2].dst_off = 1024; s[2].src_off = 1024);
BAD(chain_other_src, 2, CHAIN, s[2].src_slot = 0);
BAD(chain_other_len, 2, CHAIN, s[2].len = 512);
BAD(chain_drain, 2, CHAIN, s[2].flags |= NPULINK_STEP_F_DRAIN);
BAD(chain_of_a_copy, 4, CHAIN, s[4].flags = NPULINK_STEP_F_CHAIN);
BAD(chain_dep_within, 2, CHAIN, s[2].dep[0] = 1);
BAD(chain_after_div, 2, CHAIN, call->redop = NPULINK_CALL_AVG; s[1].flags = NPULINK_STEP_F_DIV);
BAD(window_larger_than_len, 3, WINDOW, s[3].src2_off = 1001);
BAD(window_divides_elements, 2, WINDOW, s[2].flags = NPULINK_STEP_F_TRANSIENT;
	s[2].src2_off = 6; s[2].src_slot = 0; s[2].dst_off = 2048);
/* Races. */
BAD(race_write_read, 4, RACE, s[4].dep[0] = 0);
BAD(race_write_write, 3, RACE, s[3].dst_off = 512);
BAD(race_offered, 4, RACE, s[4].src_slot = 0; s[4].dst_slot = 1; s[4].dst_off = 4096 + 99;
	s[4].dep[0] = 0);
/* Calls. */
BAD(call_unknown, NONE, CALL, call->collective = NPULINK_COLLS);
BAD(call_root_out_of_range, NONE, CALL, call->collective = NPULINK_COLL_BROADCAST;
	call->root = 4);
BAD(call_root_unused, NONE, CALL, call->root = 1);
BAD(call_count_unused, NONE, CALL, call->collective = NPULINK_COLL_ALLGATHERV);
BAD(call_does_not_reduce, 1, CALL, call->collective = NPULINK_COLL_ALLGATHER);
BAD(call_other_dtype, 1, CALL, call->dtype = NPULINK_FLOAT32);
BAD(call_other_redop, 1, CALL, call->redop = NPULINK_MAX);
BAD(p2p_both_directions, 1, SELF, call->collective = NPULINK_COLL_P2P;
	s[1] = s[3]; s[1].dst_off = 0);
BAD(p2p_two_peers, 1, SELF, call->collective = NPULINK_COLL_P2P; s[1] = s[0];
	s[1].send_peer = 2);
BAD(p2p_nobody, NONE, SELF, call->collective = NPULINK_COLL_P2P; s[0] = s[4];
	s[0].dep[0] = 0; g->cmd.nsteps = 1);
BAD(p2p_empty, NONE, SELF, call->collective = NPULINK_COLL_P2P; g->cmd.nsteps = 0);

FIXTURE_SETUP(plan)
{
	uint8_t secret[16];

	self->fd = raw_open(0);
	ASSERT_GE(self->fd, 0);
	raw_secret(secret);
	self->comm = raw_comm(self->fd, secret, 1, 4);
	ASSERT_GT(self->comm, 0);
	good_plan(&self->g, self->comm);
}

FIXTURE_TEARDOWN(plan)
{
	close(self->fd);
}

TEST_F(plan, err_refused)
{
	struct npulink_plan_create *cmd = &self->g.cmd;

	/* What it was made from is good. */
	ASSERT_EQ(0, raw_ioctl(self->fd, NPULINK_PLAN_CREATE, cmd));
	EXPECT_EQ(NPULINK_BAD_NONE, cmd->out_reason);
	EXPECT_EQ(NONE, cmd->out_bad_step);
	ASSERT_EQ(0, raw_destroy(self->fd, cmd->out_id));

	variant->spoil(&self->g);
	cmd->out_reason = 4711;
	cmd->out_bad_step = 4711;
	EXPECT_EQ(-EINVAL, raw_ioctl(self->fd, NPULINK_PLAN_CREATE, cmd));
	EXPECT_EQ(variant->reason, cmd->out_reason);
	EXPECT_EQ(variant->step, cmd->out_bad_step);
	/* Nothing of it stays. */
	EXPECT_EQ(0, raw_destroy(self->fd, self->comm));
}

static int plan_file(struct good *g)
{
	uint8_t secret[16];
	int fd = raw_open(0);

	if (fd < 0)
		return -errno;
	raw_secret(secret);
	good_plan(g, raw_comm(fd, secret, 1, 4));
	return fd;
}

TEST(err_too_many)
{
	struct good g;
	int fd = plan_file(&g);

	ASSERT_GE(fd, 0);
	g.cmd.nslots = NPULINK_MAX_SLOTS + 1;
	EXPECT_EQ(-EINVAL, raw_ioctl(fd, NPULINK_PLAN_CREATE, &g.cmd));
	g.cmd.nslots = 3;
	g.cmd.nsteps = (1U << 20) + 1;
	EXPECT_EQ(-EINVAL, raw_ioctl(fd, NPULINK_PLAN_CREATE, &g.cmd));
	g.cmd.nsteps = NONE;
	EXPECT_EQ(-EINVAL, raw_ioctl(fd, NPULINK_PLAN_CREATE, &g.cmd));
	close(fd);
}

/* A stream for each peer, channel and direction. */
TEST(err_too_many_streams)
{
	enum { PEERS = 512, CHANNELS = 64, N = PEERS * CHANNELS * 2 };
	struct npulink_slot slot = { .min_len = 8, .access = NPULINK_SLOT_READ };
	struct npulink_step *steps = calloc(N + 1, sizeof(*steps));
	struct npulink_plan_create cmd;
	int fd = raw_open(0), comm;
	uint8_t secret[16];
	uint32_t i;

	ASSERT_GE(fd, 0);
	ASSERT_NE(NULL, steps);
	raw_secret(secret);
	comm = raw_comm(fd, secret, 0, PEERS + 2);
	ASSERT_GT(comm, 0);
	for (i = 0; i <= N; i++) {
		steps[i] = raw_step(i % 2 ? NPULINK_STEP_RECV : NPULINK_STEP_SEND, 0);
		steps[i].channel = i / 2 % CHANNELS;
		*(i % 2 ? &steps[i].recv_peer : &steps[i].send_peer) = 1 + i / 2 / CHANNELS;
	}
	cmd = raw_plan_cmd(comm, &slot, 1, steps, N + 1);
	EXPECT_EQ(-EINVAL, raw_ioctl(fd, NPULINK_PLAN_CREATE, &cmd));
	EXPECT_EQ(NPULINK_BAD_CHANNEL, cmd.out_reason);
	EXPECT_EQ(NONE, cmd.out_bad_step);
	cmd = raw_plan_cmd(comm, &slot, 1, steps, N);
	EXPECT_EQ(0, raw_ioctl(fd, NPULINK_PLAN_CREATE, &cmd));
	EXPECT_EQ(NPULINK_BAD_NONE, cmd.out_reason);
	free(steps);
	close(fd);
}

TEST(err_name_of_algorithm)
{
	static const char *const bad[] = { "two words", "tab\t", "new\nline", "\x1b[31m", "\x7f",
					   "gr\xc3\xbcn", "gap\0x" };
	struct good g;
	int fd = plan_file(&g);

	ASSERT_GE(fd, 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		memset(g.cmd.algorithm, 0, sizeof(g.cmd.algorithm));
		memcpy(g.cmd.algorithm, bad[i], i == 6 ? 5 : strlen(bad[i]));
		EXPECT_EQ(-EINVAL, raw_ioctl(fd, NPULINK_PLAN_CREATE, &g.cmd));
	}
	memset(g.cmd.algorithm, 'a', sizeof(g.cmd.algorithm));
	EXPECT_EQ(-EINVAL, raw_ioctl(fd, NPULINK_PLAN_CREATE, &g.cmd));
	g.cmd.algorithm[NPULINK_ALGORITHM_LEN - 1] = '\0';
	EXPECT_EQ(0, raw_ioctl(fd, NPULINK_PLAN_CREATE, &g.cmd));
	close(fd);
}

TEST(err_steps_not_readable)
{
	struct good g;
	int fd = plan_file(&g);

	ASSERT_GE(fd, 0);
	g.cmd.steps = 0;
	EXPECT_EQ(-EFAULT, raw_ioctl(fd, NPULINK_PLAN_CREATE, &g.cmd));
	g.cmd.steps = -64ULL;
	EXPECT_EQ(-EFAULT, raw_ioctl(fd, NPULINK_PLAN_CREATE, &g.cmd));
	g.cmd.steps = (uintptr_t)g.steps;
	g.cmd.slots = 8;
	EXPECT_EQ(-EFAULT, raw_ioctl(fd, NPULINK_PLAN_CREATE, &g.cmd));
	close(fd);
}

/* The kernel uses its copy: what is done to the user's steps afterwards is nothing. */
TEST(steps_are_copied)
{
	struct npulink_slot slots[2] = {
		{ .min_len = 8, .access = NPULINK_SLOT_READ },
		{ .min_len = 8, .access = NPULINK_SLOT_WRITE },
	};
	struct npulink_step step = raw_step(NPULINK_STEP_COPY, 8);
	uint64_t *mem = raw_anon(16);
	struct npulink_post post;
	uint8_t secret[16];
	int fd = raw_open(0), comm, plan, buf;

	ASSERT_GE(fd, 0);
	raw_secret(secret);
	comm = raw_comm(fd, secret, 0, 1);
	step.dst_slot = 1;
	plan = raw_plan(fd, comm, slots, 2, &step, 1);
	ASSERT_GT(plan, 0);
	memset(&step, 0xff, sizeof(step));
	memset(slots, 0xff, sizeof(slots));
	mem[0] = 0x1234567890abcdef;
	buf = raw_register(fd, mem, 16, 0);
	post = raw_post_cmd(plan, NPULINK_POST_WAIT);
	raw_bind(&post, buf, 0, 8);
	raw_bind(&post, buf, 8, 8);
	ASSERT_EQ(0, raw_ioctl(fd, NPULINK_POST, &post));
	EXPECT_EQ(0, post.out_result.status);
	EXPECT_EQ(0x1234567890abcdef, mem[1]);
	close(fd);
}

static int many_steps(int fd, uint32_t comm, uint32_t n, bool race, uint32_t flags,
		      struct npulink_plan_create *cmd)
{
	struct npulink_slot slot = {
		.min_len = 8ULL * (n + 1), .access = NPULINK_SLOT_READ | NPULINK_SLOT_WRITE,
	};
	struct npulink_step *steps = calloc(n, sizeof(*steps));
	uint32_t i;
	int rc;

	for (i = 0; i < n; i++) {
		steps[i] = raw_step(NPULINK_STEP_COPY, 8);
		steps[i].src_off = 8 * i;
		steps[i].dst_off = 8 * (i + 1);
		steps[i].dep[0] = i && !(race && i == n / 2);
	}
	*cmd = raw_plan_cmd(comm, &slot, 1, steps, n);
	cmd->flags = flags;
	rc = raw_ioctl(fd, NPULINK_PLAN_CREATE, cmd);
	free(steps);
	return rc;
}

TEST(races_of_large_plans_are_looked_for_on_request)
{
	struct npulink_plan_create cmd;
	struct good g;
	int fd = plan_file(&g), comm;

	ASSERT_GE(fd, 0);
	comm = g.cmd.comm_id;
	EXPECT_EQ(-EINVAL, many_steps(fd, comm, 4096, true, 0, &cmd));
	EXPECT_EQ(NPULINK_BAD_RACE, cmd.out_reason);
	EXPECT_EQ(2048, cmd.out_bad_step);
	EXPECT_EQ(0, many_steps(fd, comm, 4096, false, 0, &cmd));
	EXPECT_EQ(0, many_steps(fd, comm, 5000, true, 0, &cmd));
	EXPECT_EQ(-EINVAL, many_steps(fd, comm, 5000, true, NPULINK_PLAN_CHECK_RACES, &cmd));
	EXPECT_EQ(NPULINK_BAD_RACE, cmd.out_reason);
	EXPECT_EQ(2500, cmd.out_bad_step);
	EXPECT_EQ(0, many_steps(fd, comm, 5000, false, NPULINK_PLAN_CHECK_RACES, &cmd));
	close(fd);
}

TEST_HARNESS_MAIN
