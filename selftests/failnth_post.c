// SPDX-License-Identifier: GPL-2.0
/*
 * failnth_post - failures injected into operations, their end, and the end of objects.
 * See failnth.h.
 *
 * npulink-test: debug timeout=90
 */
#include "failnth_fixture.h"

/*
 * A post that fails may have been accepted: out_seq says so. Then its result can still
 * be had, and a second post would be one too many.
 */
static int post_or_wait(struct scene *s, struct npulink_post *post)
{
	struct npulink_result res;
	int rc;

	if (post->out_seq) {
		rc = raw_wait(s->fd[0], post->out_seq, &res);
		if (rc != -ENOENT)
			return rc ? rc : res.status;
		post->out_seq = 0;
	}
	rc = raw_ioctl(s->fd[0], NPULINK_POST, post);
	return rc ? rc : post->flags & NPULINK_POST_WAIT ? post->out_result.status : 0;
}

static int run_post(struct scene *s)
{
	return post_or_wait(s, &s->post[0]);
}

static void prepare_post_wait(struct scene *s)
{
	post_peer(s, false);
	s->post[0] = exchange_cmd(s, 0, false, NPULINK_POST_WAIT);
}

static void check_post_wait(struct scene *s)
{
	wait_peer(s, false);
	check_sum(s, 0, false);
}

static void prepare_post_tiny(struct scene *s)
{
	post_peer(s, true);
	s->post[0] = exchange_cmd(s, 0, true, NPULINK_POST_WAIT);
}

static void check_post_tiny(struct scene *s)
{
	wait_peer(s, true);
	check_sum(s, 0, true);
}

static void prepare_post_held(struct scene *s)
{
	s->post[0] = exchange_cmd(s, 0, false, NPULINK_POST_HELD);
}

static void check_post_held(struct scene *s)
{
	struct npulink_result res;

	post_peer(s, false);
	wait_peer(s, false);
	RAW_CHECK(!raw_wait(s->fd[0], s->post[0].out_seq, &res) && !res.status);
	check_sum(s, 0, false);
}

/* Shared memory whose pages have been taken out of the page table: they are the same ones. */
static void prepare_post_suspect(struct scene *s)
{
	char *mem = mmap(NULL, 2 * LEN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	RAW_CHECK(mem != MAP_FAILED && !munmap(s->mem[0], 2 * LEN));
	s->mem[0] = mem;
	memset(mem, 1, LEN);
	s->buf[0] = raw_register(s->fd[0], mem, 2 * LEN, 0);
	RAW_CHECK(s->buf[0] > 0 && !madvise(mem, 2 * LEN, MADV_DONTNEED));
	prepare_post_wait(s);
}

static void prepare_post_ring(struct scene *s)
{
	prepare_mmap_ring(s);
	RAW_CHECK(!run_mmap_ring(s));
	s->post[0] = exchange_cmd(s, 0, false, 0);
}

static void check_post_ring(struct scene *s)
{
	struct npulink_ring *ring = s->map;

	post_peer(s, false);
	wait_peer(s, false);
	RAW_CHECK(RAW_EVENTUALLY(__atomic_load_n(&ring->head, __ATOMIC_ACQUIRE) == 1));
	RAW_CHECK(!ring->records[0].status && ring->records[0].seq == s->post[0].out_seq);
	check_sum(s, 0, false);
}

/* All in flight at a time, so each has a result of its own. */
static void prepare_batch(struct scene *s)
{
	struct npulink_post post;
	unsigned int i;

	for (i = 0; i < 3; i++) {
		s->many[i] = exchange_cmd(s, 0, true, NPULINK_POST_HELD);
		s->many[i].inline_binds[1] = (struct npulink_bind) {
			.buf_id = s->buf[0], .off = LEN + i * SMALL, .len = SMALL,
		};
		post = exchange_cmd(s, 1, true, NPULINK_POST_HELD);
		post.inline_binds[1] = (struct npulink_bind) {
			.buf_id = s->buf[1], .off = LEN + i * SMALL, .len = SMALL,
		};
		RAW_CHECK(!raw_ioctl(s->fd[1], NPULINK_POST, &post));
		s->post[1] = post;
	}
}

/* What was posted is not posted again, what has ended is fetched. */
static int run_batch(struct scene *s)
{
	struct npulink_post_batch cmd = {
		.size = sizeof(cmd), .flags = NPULINK_POST_WAIT, .wait_until_ns = RAW_FOREVER,
	};
	struct npulink_result res;
	unsigned int i;
	int rc;

	for (i = 0; i < 3 && s->many[i].out_seq; i++) {
		if (s->many[i].out_result.seq)
			continue;
		rc = raw_wait(s->fd[0], s->many[i].out_seq, &res);
		/* Its result was fetched by the call that failed at something later. */
		if (rc == -ENOENT)
			break;
		if (rc || res.status)
			return rc ? rc : res.status;
	}
	if (i == 3)
		return 0;
	s->many[i].out_seq = 0;
	cmd.nposts = 3 - i;
	cmd.posts = (uintptr_t)&s->many[i];
	return raw_ioctl(s->fd[0], NPULINK_POST_BATCH, &cmd);
}

static void check_batch(struct scene *s)
{
	unsigned int i;

	wait_peer(s, true);
	for (i = 0; i < 3 * SMALL; i++)
		RAW_CHECK(s->mem[0][LEN + i] == 4 && s->mem[1][LEN + i] == 5);
}

/* With checksums: memory to land in is made when a plan is posted first. */
static void prepare_post_checked(struct scene *s)
{
	scene_comms(s, NPULINK_COMM_CHECKSUM);
	scene_plans(s);
	prepare_post_wait(s);
}

/* A plan that is too large to keep operations, so that one is made now. */
static void prepare_post_huge(struct scene *s)
{
	static struct npulink_step steps[4200];
	struct npulink_slot two[2] = { slots[0], slots[1] };
	struct npulink_post *post = &s->post[0];
	unsigned int i;

	two[0].min_len = 4;
	two[1].min_len = 4 * ARRAY_SIZE(steps);
	for (i = 0; i < ARRAY_SIZE(steps); i++) {
		steps[i] = raw_step(NPULINK_STEP_COPY, 4);
		steps[i].dst_slot = 1;
		steps[i].dst_off = 4 * i;
	}
	s->id = raw_plan(s->fd[0], s->comm[0], two, 2, steps, ARRAY_SIZE(steps));
	RAW_CHECK(s->id > 0);
	*post = raw_post_cmd(s->id, NPULINK_POST_WAIT);
	raw_bind(post, s->buf[0], 0, 4);
	raw_bind(post, s->buf[0], LEN, 4 * ARRAY_SIZE(steps));
}

static void check_post_huge(struct scene *s)
{
	size_t i;

	for (i = 0; i < 4 * 4200; i++)
		RAW_CHECK(s->mem[0][LEN + i] == 1);
}

/* More bindings than there is room for in POST; those in the middle are not used. */
static void prepare_post_binds(struct scene *s)
{
	static struct npulink_bind binds[5];
	struct npulink_slot five[5] = {
		[0] = { .min_len = 4, .access = NPULINK_SLOT_READ },
		[4] = { .min_len = 4, .access = NPULINK_SLOT_WRITE },
	};
	struct npulink_step step = raw_step(NPULINK_STEP_COPY, 4);

	step.dst_slot = 4;
	s->id = raw_plan(s->fd[0], s->comm[0], five, 5, &step, 1);
	RAW_CHECK(s->id > 0);
	binds[0] = (struct npulink_bind) { .buf_id = s->buf[0], .len = 4 };
	binds[4] = (struct npulink_bind) { .buf_id = s->buf[0], .off = LEN, .len = 4 };
	s->post[0] = raw_post_cmd(s->id, NPULINK_POST_WAIT);
	s->post[0].nbinds = 5;
	s->post[0].binds = (uintptr_t)binds;
}

static void check_post_binds(struct scene *s)
{
	RAW_CHECK(s->mem[0][LEN] == 1 && s->mem[0][LEN + 3] == 1 && !s->mem[0][LEN + 4]);
}

/* What WAIT says without waiting, and without taking a result: from another process. */
static int look(int fd, uint64_t seq)
{
	struct npulink_wait cmd = { .size = sizeof(cmd), .seq = seq };
	pid_t pid = fork();

	if (!pid)
		_exit(raw_ioctl(fd, NPULINK_WAIT, &cmd) == -ENOENT);
	return raw_reap(pid) ? -ENOENT : 0;
}

/* Held: fetched afterwards. */
static int run_batch_held(struct scene *s)
{
	struct npulink_post_batch cmd = { .size = sizeof(cmd) };
	unsigned int i;

	for (i = 0; i < 3 && s->many[i].out_seq; i++) {
		/* Named, but refused thereafter: it is posted again. */
		if (look(s->fd[0], s->many[i].out_seq) == -ENOENT)
			break;
	}
	if (i == 3)
		return 0;
	s->many[i].out_seq = 0;
	cmd.nposts = 3 - i;
	cmd.posts = (uintptr_t)&s->many[i];
	return raw_ioctl(s->fd[0], NPULINK_POST_BATCH, &cmd);
}

static void check_batch_held(struct scene *s)
{
	struct npulink_result res;
	unsigned int i;

	check_batch(s);
	for (i = 0; i < 3; i++)
		RAW_CHECK(!raw_wait(s->fd[0], s->many[i].out_seq, &res) && !res.status);
}

static void prepare_wait(struct scene *s)
{
	prepare_post_held(s);
	RAW_CHECK(!run_post(s));
	post_peer(s, false);
	wait_peer(s, false);
}

static int run_wait(struct scene *s)
{
	struct npulink_result res;
	int rc = raw_wait(s->fd[0], s->post[0].out_seq, &res);

	return rc ? rc : res.status;
}

static int run_abort(struct scene *s)
{
	return raw_abort(s->fd[0], s->comm[0], 7);
}

/* In flight on both ranks. */
static void prepare_abort(struct scene *s)
{
	post_peer(s, false);
}

static void check_abort(struct scene *s)
{
	struct npulink_result res;

	RAW_CHECK(!raw_wait(s->fd[1], s->post[1].out_seq, &res));
	RAW_CHECK(res.status == -ECANCELED && res.cause == NPULINK_CAUSE_ABORT);
}

static void prepare_shrink_first(struct scene *s)
{
	RAW_CHECK(!raw_abort(s->fd[0], s->comm[0], 7));
}

static int shrink(struct scene *s, int r)
{
	s->shrunk = (struct npulink_comm_shrink) {
		.size = sizeof(s->shrunk), .comm_id = s->comm[r],
	};
	return raw_ioctl(s->fd[r], NPULINK_COMM_SHRINK, &s->shrunk);
}

static int run_shrink(struct scene *s)
{
	return shrink(s, 0);
}

/* The new communicator works on both. */
static void check_shrink_first(struct scene *s)
{
	int id = s->shrunk.out_id;

	RAW_CHECK(s->shrunk.out_rank == 0 && s->shrunk.out_nranks == 2);
	if (!s->id) {
		RAW_CHECK(!shrink(s, 1));
		s->id = s->shrunk.out_id;
	}
	RAW_CHECK(s->id > 0);
	s->comm[0] = id;
	s->comm[1] = s->id;
	s->plan[0] = 0;
	s->plan[1] = 0;
	check_plan(s);
}

static void prepare_shrink_second(struct scene *s)
{
	prepare_shrink_first(s);
	RAW_CHECK(!shrink(s, 1));
	s->id = s->shrunk.out_id;
}

static int run_destroy_plan(struct scene *s)
{
	int rc = s->tiny[0] ? raw_destroy(s->fd[0], s->tiny[0]) : 0;

	s->tiny[0] = rc ? s->tiny[0] : 0;
	return rc ? rc : raw_destroy(s->fd[0], s->plan[0]);
}

static int run_destroy_buf(struct scene *s)
{
	return raw_destroy(s->fd[0], s->buf[0]);
}

static int run_destroy_comm(struct scene *s)
{
	return raw_destroy(s->fd[0], s->comm[0]);
}

static const struct call operations[] = {
	{ "POST held", NPULINK_POST, PLANS, prepare_post_held, run_post, check_post_held },
	{ "POST ring", NPULINK_POST, PLANS, prepare_post_ring, run_post, check_post_ring },
	{ "POST wait", NPULINK_POST, PLANS, prepare_post_wait, run_post, check_post_wait },
	{ "POST wait inline", NPULINK_POST, PLANS, prepare_post_tiny, run_post, check_post_tiny },
	{ "POST wait suspect", NPULINK_POST, PLANS, prepare_post_suspect, run_post,
	  check_post_wait },
	{ "POST checked", NPULINK_POST, FILES, prepare_post_checked, run_post, check_post_wait },
	{ "POST of 4,200 steps", NPULINK_POST, PLANS, prepare_post_huge, run_post,
	  check_post_huge },
	{ "POST with 5 bindings", NPULINK_POST, PLANS, prepare_post_binds, run_post,
	  check_post_binds },
	{ "POST_BATCH wait", NPULINK_POST_BATCH, PLANS, prepare_batch, run_batch, check_batch },
	{ "POST_BATCH held", NPULINK_POST_BATCH, PLANS, prepare_batch, run_batch_held,
	  check_batch_held },
	{ "WAIT", NPULINK_WAIT, PLANS, prepare_wait, run_wait, NULL },
};

static const struct call ends[] = {
	{ "COMM_ABORT", NPULINK_COMM_ABORT, PLANS, prepare_abort, run_abort, check_abort },
	{ "COMM_SHRINK first", NPULINK_COMM_SHRINK, COMMS, prepare_shrink_first, run_shrink,
	  check_shrink_first },
	{ "COMM_SHRINK second", NPULINK_COMM_SHRINK, COMMS, prepare_shrink_second, run_shrink,
	  check_shrink_first },
	{ "DESTROY plan", NPULINK_DESTROY, PLANS, NULL, run_destroy_plan, NULL },
	{ "DESTROY buffer", NPULINK_DESTROY, PLANS, NULL, run_destroy_buf, NULL },
	{ "DESTROY communicator", NPULINK_DESTROY, COMMS, NULL, run_destroy_comm, NULL },
};

TEST_F(failnth, operations)
{
	SWEEP(operations);
}

TEST_F(failnth, failure_and_destruction)
{
	SWEEP(ends);
}

TEST_F(failnth, every_ioctl_of_these_is_here)
{
	unsigned int nr;

	for (nr = 0; nr < 256; nr++)
		EXPECT_EQ(where[nr] == OPERATIONS, HAS(operations, nr) + HAS(ends, nr) > 0)
			TH_LOG("ioctl %u", nr);
}

TEST_HARNESS_MAIN
