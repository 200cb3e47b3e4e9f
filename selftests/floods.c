// SPDX-License-Identifier: GPL-2.0
/*
 * floods - a user who does as much as possible of something, and another who runs small
 * allreduces on the same devices: their median stays below a bound, which is asserted for
 * each kind of flood. On the debug kernel they are only run.
 *
 * npulink-test: timeout=170
 */
#include "nl.h"
#include "team.h"
#include "users.h"
#include "harness.h"

#define FLOODS	2	/* processes at a time */
#define TRIES	10	/* until so many are good: the host has other work, too */
#define GOOD	3
#define MANY	64	/* allreduces that are measured */

/* Big allreduces: all processors, engines and links have their hands full. */
static void flood_of_bytes(int sk)
{
	struct team t;

	RAW_CHECK(!team_open(&t, 2, 2, 4 << 20));
	tell(sk, 1);
	for (;;)
		RAW_CHECK(!team_start(&t, 0) && !team_finish(&t));
}

static void flood_of_communicators(int sk)
{
	int fd = raw_open(0), comm;
	uint8_t secret[16];

	tell(sk, 1);
	for (;;) {
		raw_secret(secret);
		comm = raw_comm(fd, secret, 0, 1024);
		RAW_CHECK(comm > 0 && !raw_destroy(fd, comm));
	}
}

static void flood_of_buffers(int sk)
{
	size_t len = 1 << 20;
	char *mem = raw_anon(len);
	int fd = raw_open(0), buf;

	tell(sk, 1);
	for (;;) {
		buf = raw_register(fd, mem, len, 0);
		RAW_CHECK(buf > 0 && !raw_destroy(fd, buf));
	}
}

/* Each failure is told to ranks, workers and listeners, and the survivors go on. */
static void flood_of_failures(int sk)
{
	struct npulink_comm_shrink shr[2];
	uint8_t secret[16];
	int fd[2], comm[2], r;

	for (r = 0; r < 2; r++)
		fd[r] = raw_open(r);
	tell(sk, 1);
	for (;;) {
		raw_secret(secret);
		for (r = 0; r < 2; r++) {
			comm[r] = raw_comm(fd[r], secret, r, 2);
			RAW_CHECK(comm[r] > 0);
		}
		RAW_CHECK(!raw_abort(fd[0], comm[0], 1));
		for (r = 0; r < 2; r++) {
			shr[r] = (struct npulink_comm_shrink) {
				.size = sizeof(shr[r]), .comm_id = comm[r],
			};
			RAW_CHECK(!raw_ioctl(fd[r], NPULINK_COMM_SHRINK, &shr[r]));
		}
		for (r = 0; r < 2; r++)
			RAW_CHECK(!raw_destroy(fd[r], shr[r].out_id) &&
				  !raw_destroy(fd[r], comm[r]));
	}
}

static void flood_of_dumps(int sk)
{
	static const int cmds[] = {
		NPULINK_GENL_CMD_RANK_GET, NPULINK_GENL_CMD_OP_GET, NPULINK_GENL_CMD_BUF_GET,
		NPULINK_GENL_CMD_LINK_GET, NPULINK_GENL_CMD_FLIGHT_GET,
	};
	int sock = nl_open(), family = nl_family(sock, NULL);
	unsigned int i;

	RAW_CHECK(family > 0);
	tell(sk, 1);
	for (i = 0;; i++)
		RAW_CHECK(nl_count(family, cmds[i % ARRAY_SIZE(cmds)]) >= 0);
}

static void flood_of_plans(int sk)
{
	static struct npulink_step steps[4000];
	int fd = raw_open(0), comm, plan;
	uint8_t secret[16];
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(steps); i++)
		steps[i] = raw_step(0, 0);
	raw_secret(secret);
	comm = raw_comm(fd, secret, 0, 1);
	RAW_CHECK(comm > 0);
	tell(sk, 1);
	for (;;) {
		plan = raw_plan(fd, comm, NULL, 0, steps, ARRAY_SIZE(steps));
		RAW_CHECK(plan > 0 && !raw_destroy(fd, plan));
	}
}

FIXTURE(floods) {
	int sk[2];
};

/* @bound: of the median, in tenths of what it is alone. */
FIXTURE_VARIANT(floods) {
	void (*flood)(int sk);
	unsigned int bound;
};

FIXTURE_VARIANT_ADD(floods, bytes) { .flood = flood_of_bytes, .bound = 20 };
FIXTURE_VARIANT_ADD(floods, communicators) { .flood = flood_of_communicators, .bound = 20 };
FIXTURE_VARIANT_ADD(floods, buffers) { .flood = flood_of_buffers, .bound = 20 };
FIXTURE_VARIANT_ADD(floods, failures) { .flood = flood_of_failures, .bound = 20 };
FIXTURE_VARIANT_ADD(floods, dumps) { .flood = flood_of_dumps, .bound = 20 };
FIXTURE_VARIANT_ADD(floods, plans) { .flood = flood_of_plans, .bound = 20 };

FIXTURE_SETUP(floods)
{
	if (getuid())
		SKIP_CASE("only root can be two users");
	raw_knobs_reset(4);
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_SEQPACKET, 0, self->sk));
}

FIXTURE_TEARDOWN(floods)
{
	close(self->sk[0]);
	close(self->sk[1]);
}

/* Of some small allreduces, in ns. */
struct latency {
	uint64_t median, worst;
};

static struct latency latency(struct team *t, unsigned int n)
{
	uint64_t ns[MANY], from, tmp;
	unsigned int i, k;

	for (i = 0; i < n; i++) {
		from = raw_now();
		RAW_CHECK(!team_allreduce(t, i));
		ns[i] = raw_now() - from;
		for (k = i; k && ns[k] < ns[k - 1]; k--) {
			tmp = ns[k];
			ns[k] = ns[k - 1];
			ns[k - 1] = tmp;
		}
	}
	return (struct latency) { ns[n / 2], ns[n - 1] };
}

static struct latency beside(struct __test_metadata *_metadata, struct _test_data_floods *self,
			     const struct _fixture_variant_floods *variant, struct team *t,
			     unsigned int n)
{
	struct latency l;
	pid_t pid[FLOODS];
	unsigned int i;

	for (i = 0; i < FLOODS; i++) {
		pid[i] = fork();
		if (!pid[i]) {
			unlimit_memlock();
			become(BOB);
			variant->flood(self->sk[1]);
		}
		hear(self->sk[0]);
	}
	l = latency(t, n);
	for (i = 0; i < FLOODS; i++) {
		kill(pid[i], SIGKILL);
		/* It has flooded to the end. */
		EXPECT_EQ(-SIGKILL, raw_reap(pid[i]));
	}
	return l;
}

TEST_F(floods, median_stays)
{
	bool slow = getenv("NPULINK_SLOW");
	unsigned int n = slow ? 10 : MANY, good = 0, try;
	struct latency alone, flooded;
	struct team t;

	ASSERT_EQ(0, team_open(&t, 2, 2, 64));
	latency(&t, n);		/* plans become scripts, caches warm */
	for (try = 0; try < (slow ? 1 : TRIES) && good < GOOD; try++) {
		alone = latency(&t, n);
		flooded = beside(_metadata, self, variant, &t, n);
		TH_LOG("64 B, 2 ranks: median %.1f us, beside the flood %.1f us; worst %.1f, %.1f us",
		       alone.median * 1e-3, flooded.median * 1e-3, alone.worst * 1e-3,
		       flooded.worst * 1e-3);
		good += flooded.median * 10 < alone.median * variant->bound;
		/* The scheduler's, and that of the host. */
		EXPECT_GT(20000000000ULL, flooded.worst);
	}
	if (!slow)
		EXPECT_EQ(GOOD, good);
	team_close(&t);
}

TEST_HARNESS_MAIN
