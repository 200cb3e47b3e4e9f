// SPDX-License-Identifier: GPL-2.0
/*
 * killed - a process is killed in the midst of a call that takes long: a plan of a million
 * steps, a gigabyte of memory, a million peers, a batch of long plans. It is gone long before
 * the call would have ended, and nothing of it stays pinned or charged.
 *
 * npulink-test: timeout=170 nodebug
 */
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include "team.h"
#include "harness.h"

#define MILLION	(1U << 20)
#define KILLS	2	/* in a call without stages; in make soak SOAK_KILLS */
#define SOAK_KILLS	3
#define TRIES	4	/* of one moment: a busy machine holds up a death, but not each */
#define PATIENCE_MS	6000

/* What a child has made before the call. */
struct long_call {
	int fd, comm;
	void *arg;
	size_t len;
};

static void make_comm(struct long_call *c, uint32_t nranks)
{
	uint8_t secret[16];

	c->fd = raw_open(0);
	raw_secret(secret);
	c->comm = raw_comm(c->fd, secret, 0, nranks);
	RAW_CHECK(c->comm > 0);
}

/* A quarter of what is free, a gigabyte at most. */
static size_t much_memory(void)
{
	size_t len = (size_t)sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE) / 4;

	return len < 1UL << 30 ? len & ~0xfffUL : 1UL << 30;
}

static void prepare_plan(struct long_call *c)
{
	struct npulink_step *steps = calloc(MILLION, sizeof(*steps));
	unsigned int i;

	make_comm(c, 2);
	RAW_CHECK(steps);
	for (i = 0; i < MILLION; i++) {
		/* Sends to one peer, each of them after another one. */
		steps[i] = raw_step(NPULINK_STEP_SEND, 4);
		steps[i].send_peer = 1;
		steps[i].src_off = i % 1000 * 4;
		steps[i].dep[0] = i ? 1 + i % 7 % i : 0;
	}
	c->arg = steps;
}

static int call_plan(struct long_call *c)
{
	struct npulink_slot slot = { .min_len = 4000, .access = NPULINK_SLOT_READ };
	struct npulink_plan_create cmd = raw_plan_cmd(c->comm, &slot, 1, c->arg, MILLION);

	return raw_ioctl(c->fd, NPULINK_PLAN_CREATE, &cmd);
}

/* Copies whose places overlap unless they are ordered, which they are by a chain of deps. */
static void prepare_races(struct long_call *c)
{
	struct npulink_step *steps = calloc(MILLION, sizeof(*steps));
	unsigned int i;

	make_comm(c, 1);
	RAW_CHECK(steps);
	for (i = 0; i < MILLION; i++) {
		steps[i] = raw_step(NPULINK_STEP_COPY, 4);
		steps[i].src_off = i % 1000 * 4;
		steps[i].dst_slot = 1;
		steps[i].dst_off = i % 1000 * 4;
		steps[i].dep[0] = i ? 1 : 0;
	}
	c->arg = steps;
}

static int call_races(struct long_call *c)
{
	struct npulink_slot slots[2] = {
		{ .min_len = 4000, .access = NPULINK_SLOT_READ },
		{ .min_len = 4000, .access = NPULINK_SLOT_WRITE },
	};
	struct npulink_plan_create cmd = raw_plan_cmd(c->comm, slots, 2, c->arg, MILLION);

	cmd.flags = NPULINK_PLAN_CHECK_RACES;
	return raw_ioctl(c->fd, NPULINK_PLAN_CREATE, &cmd);
}

/* Memory that has yet to be made. */
static void prepare_register(struct long_call *c)
{
	c->fd = raw_open(0);
	c->len = much_memory();
	c->arg = raw_anon(c->len);
	RAW_CHECK(c->arg != MAP_FAILED && !madvise(c->arg, c->len, MADV_NOHUGEPAGE));
}

static int call_register(struct long_call *c)
{
	int rc = raw_register(c->fd, c->arg, c->len, 0);

	return rc < 0 ? rc : 0;
}

static void prepare_alloc(struct long_call *c)
{
	c->fd = raw_open(0);
	c->len = much_memory();
}

static int call_alloc(struct long_call *c)
{
	uint64_t off;
	int rc = raw_buf_alloc(c->fd, c->len, &off);

	return rc < 0 ? rc : 0;
}

static void prepare_peers(struct long_call *c)
{
	struct npulink_peer *peers = calloc(MILLION, sizeof(*peers));
	struct npulink_device_info info;
	unsigned int i;

	make_comm(c, MILLION);
	RAW_CHECK(peers && !raw_info(c->fd, &info));
	for (i = 0; i < MILLION; i++)
		memcpy(peers[i].node_id, info.out_node_id, sizeof(peers[i].node_id));
	c->arg = peers;
}

static int call_peers(struct long_call *c)
{
	struct npulink_comm_peers cmd = {
		.size = sizeof(cmd), .comm_id = c->comm, .npeers = MILLION,
		.peers = (uintptr_t)c->arg,
	};

	return raw_ioctl(c->fd, NPULINK_COMM_PEERS, &cmd);
}

#define BATCH		64	/* a power of two */
#define BATCH_STEPS	(MILLION / 8)

/* Very many steps that do nothing: they run while the batch is being posted. */
static void prepare_batch(struct long_call *c)
{
	struct npulink_ring_setup ring = { .size = sizeof(ring), .entries = BATCH, .eventfd = -1 };
	struct npulink_step *steps = calloc(BATCH_STEPS, sizeof(*steps));
	struct npulink_post *posts = calloc(BATCH, sizeof(*posts));
	unsigned int i;
	int plan;

	make_comm(c, 1);
	RAW_CHECK(steps && posts && !raw_ioctl(c->fd, NPULINK_RING_SETUP, &ring));
	for (i = 0; i < BATCH_STEPS; i++)
		steps[i] = raw_step(0, 0);
	plan = raw_plan(c->fd, c->comm, NULL, 0, steps, BATCH_STEPS);
	RAW_CHECK(plan > 0);
	free(steps);
	for (i = 0; i < BATCH; i++)
		posts[i] = raw_post_cmd(plan, 0);
	c->arg = posts;
}

static int call_batch(struct long_call *c)
{
	struct npulink_post_batch cmd = {
		.size = sizeof(cmd), .nposts = BATCH, .posts = (uintptr_t)c->arg,
	};

	return raw_ioctl(c->fd, NPULINK_POST_BATCH, &cmd);
}

FIXTURE(killed) {
	long pinned;
};

FIXTURE_VARIANT(killed) {
	void (*prepare)(struct long_call *c);
	int (*call)(struct long_call *c);
	/*
	 * It does one thing after the other: kill it so often that each of them is hit, and let it
	 * go on for half of the time between two kills at most.
	 */
	unsigned int stages;
};

FIXTURE_VARIANT_ADD(killed, plan) {
	.prepare = prepare_plan, .call = call_plan, .stages = 10,
};
FIXTURE_VARIANT_ADD(killed, races) { .prepare = prepare_races, .call = call_races };
FIXTURE_VARIANT_ADD(killed, register) { .prepare = prepare_register, .call = call_register };
FIXTURE_VARIANT_ADD(killed, alloc) { .prepare = prepare_alloc, .call = call_alloc };
FIXTURE_VARIANT_ADD(killed, peers) { .prepare = prepare_peers, .call = call_peers };
FIXTURE_VARIANT_ADD(killed, batch) {
	.prepare = prepare_batch, .call = call_batch, .stages = 5,
};

FIXTURE_SETUP(killed)
{
	if (getuid())
		SKIP_CASE("root has no limit of locked memory");
	raw_knobs_reset(8);
	self->pinned = raw_pages_pinned();
}

FIXTURE_TEARDOWN(killed)
{
}

/* A child that says when it makes the call, unless it is @idle, and when that has ended. */
static pid_t begin(const struct _fixture_variant_killed *variant, int *up, bool idle)
{
	int p[2];
	pid_t pid;
	uint64_t now;

	RAW_CHECK(!pipe(p));
	pid = fork();
	if (!pid) {
		struct long_call c = {};

		RAW_CHECK(!prctl(PR_SET_PDEATHSIG, SIGKILL));
		variant->prepare(&c);
		now = raw_now();
		RAW_CHECK(write(p[1], &now, sizeof(now)) == sizeof(now));
		if (idle)
			pause();
		RAW_CHECK(!variant->call(&c));
		now = raw_now();
		RAW_CHECK(write(p[1], &now, sizeof(now)) == sizeof(now));
		pause();
	}
	close(p[1]);
	*up = p[0];
	return pid;
}

static uint64_t heard(int up)
{
	uint64_t when = 0;

	return read(up, &when, sizeof(when)) == sizeof(when) ? when : 0;
}

/* From kill() to the end of the process, with all that is freed then. */
static uint64_t killed_after(struct __test_metadata *_metadata, pid_t pid)
{
	uint64_t from = raw_now();

	kill(pid, SIGKILL);
	EXPECT_EQ(-SIGKILL, raw_reap(pid));
	return raw_now() - from;
}

/*
 * How long the call takes, and to end when it has all; of one that goes on for too long, with what
 * it was made with.
 */
static void measure_once(struct __test_metadata *_metadata,
			 const struct _fixture_variant_killed *variant,
			 uint64_t *full, uint64_t *after)
{
	struct pollfd p = { .events = POLLIN };
	uint64_t from, to;
	bool ended;
	pid_t pid;

	pid = begin(variant, &p.fd, false);
	from = heard(p.fd);
	ASSERT_NE(0, from);
	ended = poll(&p, 1, PATIENCE_MS) == 1;
	to = ended ? heard(p.fd) : raw_now();
	ASSERT_NE(0, to);
	*full = to - from;
	*after = killed_after(_metadata, pid);
	close(p.fd);
	if (ended)
		return;
	pid = begin(variant, &p.fd, true);
	ASSERT_NE(0, heard(p.fd));
	*after = killed_after(_metadata, pid);
	close(p.fd);
}

/* The first call makes much for the first time, and others are disturbed: the least of some. */
static void measure(struct __test_metadata *_metadata,
		    const struct _fixture_variant_killed *variant, uint64_t *full, uint64_t *after)
{
	unsigned int again = getenv("NPULINK_SOAK") ? 2 : 1, i;
	uint64_t full_now, after_now;

	measure_once(_metadata, variant, full, after);
	for (i = 0; i < again && *full < PATIENCE_MS * 1000000ULL; i++) {
		measure_once(_metadata, variant, &full_now, &after_now);
		*full = full_now < *full ? full_now : *full;
		*after = after_now < *after ? after_now : *after;
	}
}

/* Less than the call still has before it at most of the moments when it is killed. */
static uint64_t may_take(const struct _fixture_variant_killed *variant, uint64_t full,
			 uint64_t after)
{
	return after + full / (variant->stages ? 2 * variant->stages : 3) + 25000000;
}

TEST_F(killed, in_the_midst)
{
	unsigned int i, kills = KILLS, try, caught = 0;
	uint64_t from, full, full_now, at, after, gone, worst = 0, bound;
	pid_t pid;
	int up;

	/* All in make soak, otherwise in every third one. */
	if (variant->stages)
		kills = getenv("NPULINK_SOAK") ? variant->stages : (variant->stages + 2) / 3;
	else if (getenv("NPULINK_SOAK"))
		kills = SOAK_KILLS;
	measure(_metadata, variant, &full, &after);
	bound = may_take(variant, full, after);
	for (i = 0; i < kills; i++) {
		/* Always the same moment: a stage that is not left is met again. */
		at = full * (2 * i + 1) / kills / (variant->stages ? 2 : 4);
		gone = bound;
		for (try = 0; try < TRIES && gone >= bound; try++) {
			if (try) {
				/* The machine may be slower than it was. */
				measure_once(_metadata, variant, &full_now, &after);
				bound = may_take(variant, full_now, after);
			}
			pid = begin(variant, &up, false);
			from = heard(up);
			ASSERT_NE(0, from);
			raw_sleep_ms(at / 1000000);
			gone = killed_after(_metadata, pid);
			/* Else the call had ended before. */
			caught += !heard(up);
			close(up);
			TH_LOG("killed after %.1f ms, gone after %.1f ms more", at * 1e-6,
			       gone * 1e-6);
		}
		ASSERT_GT(bound, gone);
		worst = gone > worst ? gone : worst;
	}
	TH_LOG("the call takes %.1f ms; killed in it %u times, gone after %.1f ms at worst, killed after it %.1f ms",
	       full * 1e-6, caught, worst * 1e-6, after * 1e-6);
	EXPECT_LT(0, caught);
	EXPECT_TRUE(RAW_EVENTUALLY(raw_pages_pinned() <= self->pinned))
		TH_LOG("%ld pages pinned, not %ld", raw_pages_pinned(), self->pinned);
}

TEST_HARNESS_MAIN
