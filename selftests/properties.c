// SPDX-License-Identifier: GPL-2.0
/*
 * properties.c - what the design promises of who does what, where and how often, and no
 * result would show: the kernel is asked by tracepoints, probes, switches and cgroups.
 *
 * npulink-test: probes timeout=180
 */
#include <sys/resource.h>
#include <sys/stat.h>
#include <sched.h>
#include <signal.h>
#include "board.h"
#include "probes.h"
#include "users.h"
#include "worker.h"
#include "harness.h"

#define BIG	(192 << 10)	/* more than the arena: by interrupt, not inline */
#define GROUPS	"/sys/fs/cgroup"
#define TRIES	3	/* of what a busy host may disturb, though not each time */

/* ---- who is who */

/* Sum of the numbers behind the lines of /proc/PID/@file that contain @key. */
static long long proc_sum(pid_t pid, const char *file, const char *key)
{
	char path[64], line[256], *at;
	long long sum = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	f = fopen(path, "re");
	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f)) {
		at = strstr(line, key);
		if (at && strchr(at, ':'))
			sum += atoll(strchr(at, ':') + 1);
	}
	fclose(f);
	return sum;
}

static double cpu_time(void)
{
	struct rusage ru;

	getrusage(RUSAGE_SELF, &ru);
	return ru.ru_utime.tv_sec + ru.ru_stime.tv_sec +
	       (ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6;
}

FIXTURE(properties) {
	struct team t;
};

FIXTURE_SETUP(properties)
{
	raw_knobs_reset(8);
	if (probes_mount())
		SKIP_CASE("this kernel has no tracefs");
	probes_reset();
}

FIXTURE_TEARDOWN(properties)
{
	probes_stop();
	probes_reset();
}

/* ---- where */

/* A large step, which an interrupt completes, and then one of the least that there are. */
static int large_then_tiny(void)
{
	struct npulink_slot slot = {
		.min_len = 2 * BIG, .access = NPULINK_SLOT_READ | NPULINK_SLOT_WRITE,
	};
	struct npulink_step steps[2] = {
		raw_step(NPULINK_STEP_COPY, BIG), raw_step(NPULINK_STEP_COPY, 8),
	};
	int fd = raw_open(0), comm, plan, buf, rc;
	struct npulink_post post;
	uint8_t secret[16];
	uint64_t off;

	steps[0].dst_off = BIG;
	steps[1].dst_off = BIG;
	steps[1].dep[0] = 1;
	raw_secret(secret);
	comm = raw_comm(fd, secret, 0, 1);
	plan = raw_plan(fd, comm, &slot, 1, steps, 2);
	buf = raw_buf_alloc(fd, 2 * BIG, &off);
	post = raw_post_cmd(plan, NPULINK_POST_WAIT);
	raw_bind(&post, buf, 0, 2 * BIG);
	rc = raw_ioctl(fd, NPULINK_POST, &post);
	close(fd);
	return rc ?: post.out_result.status;
}

/*
 * Bytes are copied and reduced by tasks only: that of a caller who waits, or a file's worker,
 * however small the request and whatever interrupt says that it may go on.
 */
TEST_F(properties, payload_is_moved_by_tasks)
{
	static const size_t lens[] = { 64, 4096, BIG };
	unsigned int moves = 0, interrupts = 0, in_interrupt = 0;
	struct probe_hit hit;
	char line[1024];
	uint32_t i, k;
	FILE *f;

	if (!probes_possible())
		SKIP(return, "this kernel has no kprobes");
	ASSERT_EQ(0, probe_add("submit", "soft_submit", ""));
	ASSERT_EQ(0, probe_add("run_now", "soft_run_now", ""));
	ASSERT_EQ(0, probe_add("step_done", "npulink_step_done", ""));
	probes_start();
	for (i = 0; i < ARRAY_SIZE(lens); i++) {
		ASSERT_EQ(0, team_open(&self->t, 4, 4, lens[i]));
		for (k = 0; k < 8; k++)
			EXPECT_EQ(0, team_allreduce(&self->t, k));
		/* The same with all completions by a timer's interrupt, also of what is small. */
		for (k = 0; k < 4; k++)
			ASSERT_EQ(0, raw_knob(k, "delay_ns", 5000000));
		EXPECT_EQ(0, team_allreduce(&self->t, k));
		raw_knobs_reset(4);
		team_close(&self->t);
	}
	for (k = 0; k < 4; k++)
		EXPECT_EQ(0, large_then_tiny());
	probes_stop();
	f = fopen(PROBES "/trace", "re");
	ASSERT_NE(NULL, f);
	while (probe_next(f, line, &hit)) {
		if (!strcmp(hit.name, "step_done")) {
			interrupts += hit.hardirq;
			continue;
		}
		moves++;
		in_interrupt += hit.hardirq || hit.softirq;
	}
	fclose(f);
	TH_LOG("%u requests, %u of them in an interrupt; %u completions in one", moves,
	       in_interrupt, interrupts);
	EXPECT_EQ(0, in_interrupt);
	/* 27 allreduces of 4 ranks, each with 6 receiving steps. */
	EXPECT_GE(moves, 27 * 4 * 6 + 4 * 2);
	/* All that is large, and most of what is not, if it was delayed. */
	EXPECT_GE(interrupts, 9 * 4 * 6 + 4 * 6 + 4);
}

/* ---- for how long */

#define TINY_STEPS	16384U	/* more than a task runs of them at a time */

/*
 * The least requests are carried out with interrupts off, of which only so many: after them there
 * is one that is not, or interrupts are let in. All can begin at once, so that most wait for a
 * request to come back, too.
 */
TEST_F(properties, tiny_requests_let_interrupts_in)
{
	struct npulink_slot slot = {
		.min_len = 16 * TINY_STEPS, .access = NPULINK_SLOT_READ | NPULINK_SLOT_WRITE,
	};
	struct npulink_step *steps = calloc(TINY_STEPS, sizeof(*steps));
	unsigned int moves = 0, run = 0, longest = 0;
	struct npulink_post post;
	struct probe_hit hit;
	uint8_t secret[16];
	char line[1024];
	int fd, comm;
	uint64_t off;
	uint32_t i;
	FILE *f;

	if (!probes_possible())
		SKIP(return, "this kernel has no kprobes");
	ASSERT_NE(NULL, steps);
	for (i = 0; i < TINY_STEPS; i++) {
		steps[i] = raw_step(NPULINK_STEP_COPY, 8);
		steps[i].src_off = 16 * i;
		steps[i].dst_off = 16 * i + 8;
	}
	fd = raw_open(0);
	raw_secret(secret);
	comm = raw_comm(fd, secret, 0, 1);
	post = raw_post_cmd(raw_plan(fd, comm, &slot, 1, steps, TINY_STEPS), NPULINK_POST_WAIT);
	raw_bind(&post, raw_buf_alloc(fd, slot.min_len, &off), 0, slot.min_len);
	ASSERT_EQ(0, probe_add("submit", "soft_submit", ""));
	ASSERT_EQ(0, probe_add("run_now", "soft_run_now", ""));
	ASSERT_EQ(0, probe_add("breathe", "npulink_rank_breathe", ""));
	probes_start();
	EXPECT_EQ(0, raw_ioctl(fd, NPULINK_POST, &post));
	probes_stop();
	EXPECT_EQ(0, post.out_result.status);
	f = fopen(PROBES "/trace", "re");
	ASSERT_NE(NULL, f);
	while (probe_next(f, line, &hit)) {
		moves += strcmp(hit.name, "breathe") != 0;
		run = strcmp(hit.name, "run_now") ? 0 : run + 1;
		longest = run > longest ? run : longest;
	}
	fclose(f);
	TH_LOG("%u requests, at most %u of them without a pause", moves, longest);
	EXPECT_EQ(TINY_STEPS, moves);
	EXPECT_GT(longest, 100);
	/* Twice as many: once the lock is let go of without what the probes see. */
	EXPECT_LE(longest, 2048);
	close(fd);
	free(steps);
}

/* ---- on whose account */

#define ROUNDS	24
#define PIECE	(1 << 20)

static struct npulink_step copy_step(uint32_t rank)
{
	struct npulink_step st = raw_step(rank ? NPULINK_STEP_SEND : NPULINK_STEP_RECV, PIECE);

	st.send_peer = rank ? 0 : NPULINK_NO_PEER;
	st.recv_peer = rank ? NPULINK_NO_PEER : 1;
	return st;
}

/*
 * Rank 0 receives, so its engine moves the bytes; both post, and then only look now and then
 * whether it is over, so that nobody but a worker can.
 */
static void receive_aside(const char *group, const uint8_t *secret, uint32_t rank, int up,
			  int down)
{
	struct npulink_slot slot = {
		.min_len = PIECE, .access = rank ? NPULINK_SLOT_READ : NPULINK_SLOT_WRITE,
	};
	struct npulink_step st = copy_step(rank);
	struct npulink_result res;
	int fd, comm, plan, buf, i;
	double own;
	uint64_t seq[ROUNDS];
	char path[64], c;
	void *mem;

	snprintf(path, sizeof(path), GROUPS "/%s/cgroup.procs", group);
	RAW_CHECK(!raw_write(path, "0"));
	fd = raw_open(rank);
	comm = raw_comm(fd, secret, rank, 2);
	mem = raw_anon(PIECE);
	buf = raw_register(fd, mem, PIECE, 0);
	plan = raw_plan(fd, comm, &slot, 1, &st, 1);
	RAW_CHECK(comm > 0 && buf > 0 && plan > 0);
	RAW_CHECK(write(up, "r", 1) == 1 && read(down, &c, 1) == 1);
	own = cpu_time();
	for (i = 0; i < ROUNDS; i++) {
		struct npulink_post post = raw_post_cmd(plan, NPULINK_POST_HELD);

		raw_bind(&post, buf, 0, PIECE);
		RAW_CHECK(!raw_ioctl(fd, NPULINK_POST, &post));
		seq[i] = post.out_seq;
	}
	for (i = 0; i < ROUNDS; i++) {
		struct npulink_wait wait = { .size = sizeof(wait), .seq = seq[i] };

		while (raw_ioctl(fd, NPULINK_WAIT, &wait) == -ETIME)
			raw_sleep_ms(5);
		res = wait.out_result;
		RAW_CHECK(!res.status);
	}
	own = cpu_time() - own;
	RAW_CHECK(write(up, &own, sizeof(own)) == sizeof(own));
	RAW_CHECK(read(down, &c, 1) == 1);
	_exit(0);
}

/* Microseconds that a cgroup has used. */
static double group_used(const char *group)
{
	char path[64], line[128];
	long long us = -1;
	FILE *f;

	snprintf(path, sizeof(path), GROUPS "/%s/cpu.stat", group);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "usage_usec %lld", &us) == 1)
			break;
	if (f)
		fclose(f);
	return us / 1e6;
}

static bool is_in_group(pid_t pid, const char *group)
{
	char path[64], text[256] = "";
	int fd, n;

	snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	return n > 0 && strstr(text, group);
}

/* What the groups of both have paid for, beside what the processes did themselves. */
static void bill(struct __test_metadata *_metadata, const char * const groups[2], double paid[2])
{
	int up[2][2], down[2][2];
	double own[2], used[2];
	uint8_t secret[16];
	pid_t pid[2];
	uint32_t r;
	char c;

	raw_secret(secret);
	for (r = 0; r < 2; r++) {
		ASSERT_EQ(0, pipe(up[r]) | pipe(down[r]));
		pid[r] = fork();
		if (!pid[r])
			receive_aside(groups[r], secret, r, up[r][1], down[r][0]);
	}
	for (r = 0; r < 2; r++)
		ASSERT_EQ(1, read(up[r][0], &c, 1));
	/* Both sleep, and have been billed for what they did before. */
	raw_sleep_ms(100);
	for (r = 0; r < 2; r++)
		used[r] = group_used(groups[r]);
	for (r = 0; r < 2; r++)
		ASSERT_EQ(1, write(down[r][1], "g", 1));
	for (r = 0; r < 2; r++)
		ASSERT_EQ(sizeof(own[r]), read(up[r][0], &own[r], sizeof(own[r])));
	for (r = 0; r < 2; r++) {
		used[r] = group_used(groups[r]) - used[r];
		/* Who only sends need not have one. */
		EXPECT_TRUE(r || worker_of(pid[r]));
		EXPECT_TRUE(!worker_of(pid[r]) || is_in_group(worker_of(pid[r]), groups[r]));
		ASSERT_EQ(1, write(down[r][1], "g", 1));
	}
	TH_LOG("receiver: %.1f ms of its own, %.1f ms of its group; sender: %.1f ms, %.1f ms",
	       own[0] * 1e3, used[0] * 1e3, own[1] * 1e3, used[1] * 1e3);
	for (r = 0; r < 2; r++) {
		EXPECT_EQ(0, raw_reap(pid[r]));
		paid[r] = used[r] - own[r];
		close(up[r][0]);
		close(up[r][1]);
		close(down[r][0]);
		close(down[r][1]);
	}
}

/* A worker's time is that of the opener's cgroup, and nobody else pays for it. */
TEST_F(properties, worker_is_on_the_openers_account)
{
	static const char * const groups[] = { "npulink-mover", "npulink-giver" };
	double paid[2], engine = ROUNDS * PIECE / 10e9;
	bool right = false;
	char path[64];
	uint32_t r, try;

	for (r = 0; r < 2; r++) {
		snprintf(path, sizeof(path), GROUPS "/%s", groups[r]);
		if (mkdir(path, 0755) && errno != EEXIST)
			SKIP(return, "no cgroups");
		if (group_used(groups[r]) < 0)
			SKIP(return, "cgroups do not count processor time");
	}
	/*
	 * No memory is copied at more than 10 GB/s here; the sender's group pays for calls. If
	 * the host takes a processor away, that is billed to whoever runs, if not each time.
	 */
	for (try = 0; try < TRIES && !right; try++) {
		bill(_metadata, groups, paid);
		right = paid[0] >= engine && paid[1] <= paid[0] / 4;
	}
	EXPECT_TRUE(right);
	for (r = 0; r < 2; r++) {
		snprintf(path, sizeof(path), GROUPS "/%s", groups[r]);
		rmdir(path);
	}
}

/* The processors, the class and the niceness of a thread, and whose it is. */
struct schedule {
	cpu_set_t cpus;
	int policy, nice;
	uid_t uid;
};

static bool is_scheduled(pid_t tid, const struct schedule *s)
{
	cpu_set_t cpus;

	return tid && !sched_getaffinity(tid, sizeof(cpus), &cpus) && CPU_EQUAL(&cpus, &s->cpus) &&
	       sched_getscheduler(tid) == s->policy && getpriority(PRIO_PROCESS, tid) == s->nice &&
	       proc_sum(tid, "status", "Uid") == s->uid;
}

/* The first, or the last, of those that we may run on. */
static int choose(struct schedule *s, const cpu_set_t *all, bool last, int policy, int nice)
{
	struct sched_param none = {};
	int cpu, found = -1;

	for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, all) && (found < 0 || last))
			found = cpu;
	CPU_ZERO(&s->cpus);
	CPU_SET(found, &s->cpus);
	s->policy = policy;
	s->nice = nice;
	s->uid = getuid();
	return sched_setaffinity(0, sizeof(s->cpus), &s->cpus) ||
	       sched_setscheduler(0, policy, &none) || setpriority(PRIO_PROCESS, 0, nice);
}

static bool works_as(struct aside *a, const struct schedule *s)
{
	if (aside_done(a))
		aside_post(a);
	return is_scheduled(worker_of(getpid()), s);
}

/* A worker is scheduled as its process is, from the first, and also if that changes. */
TEST_F(properties, worker_is_scheduled_as_its_process)
{
	pid_t pid = fork();

	if (!pid) {
		struct schedule s;
		struct aside a;
		cpu_set_t all;

		RAW_CHECK(!sched_getaffinity(0, sizeof(all), &all));
		unlimit_memlock();
		become(BOB);
		RAW_CHECK(!aside_open(&a, 0));
		RAW_CHECK(!choose(&s, &all, true, SCHED_BATCH, 3));
		RAW_CHECK(!aside_post(&a));
		RAW_CHECK(RAW_EVENTUALLY(works_as(&a, &s)));
		RAW_CHECK(!choose(&s, &all, false, SCHED_OTHER, 5));
		RAW_CHECK(RAW_EVENTUALLY(works_as(&a, &s)));
		_exit(0);
	}
	EXPECT_EQ(0, raw_reap(pid));
}

/* ---- how deep */

/* Bytes of stack between the deepest and the flattest end of a step, and how many there were. */
static long stack_range(unsigned int *steps)
{
	unsigned long long low = ~0ULL, high = 0, sp;
	struct probe_hit hit;
	char line[1024];
	FILE *f = fopen(PROBES "/trace", "re");

	*steps = 0;
	while (f && probe_next(f, line, &hit)) {
		if (hit.pid != getpid() || strcmp(hit.name, "step"))
			continue;
		sp = probe_field(&hit, "sp=");
		low = sp < low ? sp : low;
		high = sp > high ? sp : high;
		++*steps;
	}
	if (f)
		fclose(f);
	return high - low;
}

static struct npulink_step chained(uint8_t op, uint64_t len, uint32_t i)
{
	struct npulink_step st = raw_step(op, len);

	st.dep[0] = i ? 1 : 0;
	st.dst_off = op & NPULINK_STEP_COPY ? 8 : 0;
	return st;
}

/* Ranks whose steps come one after the other, of no bytes, of 8, or back and forth. */
static int run_chain(uint32_t nsteps, int kind)
{
	struct npulink_slot slot = {
		.min_len = 16, .access = NPULINK_SLOT_READ | NPULINK_SLOT_WRITE,
	};
	struct npulink_step *steps = calloc(nsteps, sizeof(*steps));
	uint32_t nranks = kind == 2 ? 2 : 1, r, i;
	struct npulink_result res;
	int fd[2], comm, plan, rc = 0;
	uint64_t seq[2], off;
	uint8_t secret[16];

	raw_secret(secret);
	for (r = 0; !rc && r < nranks; r++) {
		struct npulink_post post;

		for (i = 0; i < nsteps; i++) {
			bool sends = (i + r) % 2 == 0;

			steps[i] = chained(kind < 2 ? kind * NPULINK_STEP_COPY :
					   sends ? NPULINK_STEP_SEND : NPULINK_STEP_RECV,
					   kind * 8 / nranks, i);
			if (kind == 2 && sends)
				steps[i].send_peer = !r;
			else if (kind == 2)
				steps[i].recv_peer = !r;
		}
		fd[r] = raw_open(r);
		comm = raw_comm(fd[r], secret, r, nranks);
		plan = raw_plan(fd[r], comm, &slot, 1, steps, nsteps);
		post = raw_post_cmd(plan, NPULINK_POST_HELD);
		raw_bind(&post, raw_buf_alloc(fd[r], 16, &off), 0, 16);
		rc = comm < 0 ? comm : plan < 0 ? plan : raw_ioctl(fd[r], NPULINK_POST, &post);
		seq[r] = post.out_seq;
	}
	for (i = 0; i < r; i++) {
		if (!rc)
			rc = raw_wait(fd[i], seq[i], &res) ?: res.status;
		close(fd[i]);
	}
	free(steps);
	return rc;
}

#define CHAIN	30

/*
 * A chain of tiny steps is a loop of whoever ends the first one, not a recursion: 4,000 of them
 * take no more stack than one. So few that a kernel which recurses has room for all of them come
 * first, and tell by how much the stack grows.
 */
TEST_F(properties, chains_do_not_recurse)
{
	static const char * const kinds[] = { "no bytes", "8 bytes", "there and back" };
	unsigned int steps;
	long range;
	int kind;

	for (kind = 0; kind < 3; kind++) {
		if (probes_possible()) {
			ASSERT_EQ(0, probe_add("step", "npulink_flight_step", "sp=%sp"));
			probes_start();
			ASSERT_EQ(0, run_chain(CHAIN, kind));
			probes_stop();
			range = stack_range(&steps);
			TH_LOG("%s: %ld bytes of stack between any of %u steps", kinds[kind],
			       range, steps);
			EXPECT_GE(steps, CHAIN);
			/* They end where different tasks began; a recursion would take far more. */
			ASSERT_LT(range, 1024);
			probes_reset();
		}
		EXPECT_EQ(0, run_chain(4000, kind));
	}
}

/* ---- how often */

/* Switches of a rank's task and of its worker in so many collectives. */
struct switches {
	long long own, worker;
};

static void count_switches(const uint8_t *secret, uint32_t rank, size_t len, uint32_t rounds,
			   int up, int down)
{
	struct switches n, before = {};
	struct member m;
	pid_t w = 0, now;
	uint32_t i;
	char c;

	RAW_CHECK(!member_join(&m, rank, secret, rank, 2, len));
	member_fill(&m, 0);
	for (i = 0; i <= rounds; i++) {
		/* The first is to warm up, and have the worker sleep. */
		if (i == 1) {
			raw_sleep_ms(20);
			RAW_CHECK(write(up, "r", 1) == 1 && read(down, &c, 1) == 1);
			before.own = proc_sum(getpid(), "status", "voluntary_ctxt_switches");
			w = worker_of(getpid());
			before.worker = w ? proc_sum(w, "status", "ctxt_switches") : 0;
		}
		RAW_CHECK(!member_run(&m, NULL));
	}
	n.own = proc_sum(getpid(), "status", "voluntary_ctxt_switches") - before.own;
	/* It may have begun or ended meanwhile. */
	now = worker_of(getpid());
	n.worker = now ? proc_sum(now, "status", "ctxt_switches") : 0;
	n.worker -= now == w ? before.worker : 0;
	RAW_CHECK(!member_wrong(&m, 0));
	RAW_CHECK(write(up, &n, sizeof(n)) == sizeof(n) && read(down, &c, 1) == 1);
	_exit(0);
}

struct blocking {
	size_t len;
	uint32_t rounds;
};

/* Do both ranks of so many collectives sleep no more than they need, and alone? */
static bool do_it_themselves(struct __test_metadata *_metadata, const struct blocking *b)
{
	int up[2][2], down[2][2];
	struct switches n[2];
	uint8_t secret[16];
	bool well = true;
	pid_t pid[2];
	uint32_t r;
	char c;

	raw_secret(secret);
	for (r = 0; r < 2; r++) {
		ASSERT_EQ(0, pipe(up[r]) | pipe(down[r]));
		pid[r] = fork();
		if (!pid[r])
			count_switches(secret, r, b->len, b->rounds, up[r][1], down[r][0]);
	}
	for (r = 0; r < 2; r++)
		ASSERT_EQ(1, read(up[r][0], &c, 1));
	for (r = 0; r < 2; r++)
		ASSERT_EQ(1, write(down[r][1], "g", 1));
	for (r = 0; r < 2; r++)
		ASSERT_EQ(sizeof(n[r]), read(up[r][0], &n[r], sizeof(n[r])));
	for (r = 0; r < 2; r++) {
		ASSERT_EQ(1, write(down[r][1], "g", 1));
		EXPECT_EQ(0, raw_reap(pid[r]));
		TH_LOG("rank %u, %zu bytes: %u allreduces, slept %lld times, its worker ran %lld times",
		       r, b->len, b->rounds, n[r].own, n[r].worker);
		/* It may be woken by what comes between POST's start and its wait. */
		well &= n[r].worker <= b->rounds / 3;
		/* Of 64 bytes all is done when one is woken; more of the others. */
		well &= b->len != 64 || n[r].own <= b->rounds * 21 / 20 + 5;
		close(up[r][0]);
		close(up[r][1]);
		close(down[r][0]);
		close(down[r][1]);
	}
	return well;
}

/* Who waits does the work: a blocking collective switches to nobody for it. */
TEST_F(properties, blocking_collective_needs_no_worker)
{
	static const struct blocking sizes[] = { { 64, 500 }, { BIG, 60 } };
	uint32_t i, try;
	bool well;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		well = false;
		for (try = 0; try < TRIES && !well; try++)
			well = do_it_themselves(_metadata, &sizes[i]);
		ASSERT_TRUE(well);
	}
}

/* Calls of @function while rank 1 sends @nsteps steps one after the other to rank 0. */
static long calls_per_steps(struct __test_metadata *_metadata, const char *function,
			    uint32_t nsteps)
{
	struct npulink_slot slot = {
		.min_len = 16, .access = NPULINK_SLOT_READ | NPULINK_SLOT_WRITE,
	};
	struct npulink_step *steps = calloc(nsteps, sizeof(*steps));
	struct npulink_result res;
	struct probe_hit hit;
	uint8_t secret[16];
	int fd[2], comm, plan;
	uint64_t seq[2], off;
	char line[1024];
	long calls = 0;
	uint32_t r, i;
	FILE *f;

	raw_secret(secret);
	probes_start();
	for (r = 0; r < 2; r++) {
		struct npulink_post post;

		for (i = 0; i < nsteps; i++) {
			/* All receives wait at a time; a send begins when the last was taken. */
			steps[i] = raw_step(r ? NPULINK_STEP_SEND : NPULINK_STEP_RECV, 0);
			steps[i].dep[0] = r && i ? 1 : 0;
			if (r)
				steps[i].send_peer = 0;
			else
				steps[i].recv_peer = 1;
		}
		fd[r] = raw_open(r);
		comm = raw_comm(fd[r], secret, r, 2);
		plan = raw_plan(fd[r], comm, &slot, 1, steps, nsteps);
		post = raw_post_cmd(plan, NPULINK_POST_HELD);
		raw_bind(&post, raw_buf_alloc(fd[r], 16, &off), 0, 16);
		ASSERT_LT(0, plan);
		ASSERT_EQ(0, raw_ioctl(fd[r], NPULINK_POST, &post));
		seq[r] = post.out_seq;
	}
	for (r = 0; r < 2; r++) {
		EXPECT_EQ(0, raw_wait(fd[r], seq[r], &res) ?: res.status);
		close(fd[r]);
	}
	probes_stop();
	free(steps);
	f = fopen(PROBES "/trace", "re");
	while (f && probe_next(f, line, &hit))
		calls += !strcmp(hit.name, function);
	if (f)
		fclose(f);
	return calls;
}

/*
 * When a step is done, only those that it lets go on are looked at, however many others wait:
 * with a thousand of them that wait, each costs as much as with a hundred.
 */
TEST_F(properties, a_completion_costs_what_it_unblocks)
{
	static const char * const functions[] = {
		"npulink_unit_advance", "npulink_member_arrived",
	};
	long few, many;
	uint32_t i;

	if (!probes_possible())
		SKIP(return, "this kernel has no kprobes");
	for (i = 0; i < ARRAY_SIZE(functions); i++) {
		ASSERT_EQ(0, probe_add("calls", functions[i], ""));
		few = calls_per_steps(_metadata, "calls", 100);
		EXPECT_GE(few, 200);
		/* Start, arrival, credit of either end. */
		ASSERT_LE(few, 100 * 2 * 3);
		many = calls_per_steps(_metadata, "calls", 1000);
		probes_reset();
		TH_LOG("%s: %ld calls for 100 steps, %ld for 1,000", functions[i], few, many);
		/* Who comes between may cost some; to look at all that wait, a hundred times. */
		EXPECT_LE(many, 15 * few);
	}
}

/* ---- when */

#define RANKS	8

static void rank_that_waits(const uint8_t *secret, uint32_t rank, int up)
{
	struct npulink_comm_status st;
	struct member m;
	int rc;

	RAW_CHECK(!member_join(&m, rank, secret, rank, RANKS, 4096));
	member_fill(&m, 0);
	RAW_CHECK(write(up, "r", 1) == 1);
	if (!rank)
		pause();
	rc = member_run(&m, NULL);
	RAW_CHECK(!raw_status(m.fd, m.comm, &st));
	_exit(rc == -EOWNERDEAD && !st.out_rank && !st.out_peer ? 0 : 1);
}

/*
 * A death is told by the dying task, or by a worker that it has set to it: they end what all its
 * peers wait for and wake each of them, when that is so and not before; no timer and no other
 * process has to come by. Not within the end of the address space: everybody's waits for that.
 */
TEST_F(properties, a_death_is_told_and_holds_up_nobody)
{
	bool within = false, kprobes = probes_possible();
	unsigned int releases = 0, held = 0;
	unsigned int ended = 0, elsewhere = 0, woken[RANKS] = {}, early[RANKS] = {}, r;
	bool over[RANKS] = {};
	double died = 0, last = 0;
	struct probe_hit hit;
	pid_t pid[RANKS];
	uint8_t secret[16];
	char line[1024], c;
	int up[2];
	FILE *f;

	raw_secret(secret);
	ASSERT_EQ(0, pipe(up));
	for (r = 0; r < RANKS; r++) {
		pid[r] = fork();
		if (!pid[r])
			rank_that_waits(secret, r, up[1]);
	}
	for (r = 0; r < RANKS; r++)
		ASSERT_EQ(1, read(up[0], &c, 1));
	/* Until all are asleep. */
	for (r = 1; r < RANKS; r++)
		ASSERT_TRUE(raw_comes_to_wait(pid[r]));
	ASSERT_EQ(0, probe_event("npulink/npulink_abort", "1"));
	ASSERT_EQ(0, probe_event("npulink/npulink_done", "1"));
	ASSERT_EQ(0, probe_event("sched/sched_waking", "1"));
	if (kprobes) {
		ASSERT_EQ(0, probe_add("release", "npulink_mm_release", ""));
		ASSERT_EQ(0, probe_add_at('r', "released", "npulink_mm_release", ""));
	}
	probes_start();
	kill(pid[0], SIGKILL);
	EXPECT_EQ(-SIGKILL, raw_reap(pid[0]));
	for (r = 1; r < RANKS; r++)
		EXPECT_EQ(0, raw_reap(pid[r]));
	probes_stop();
	f = fopen(PROBES "/trace", "re");
	ASSERT_NE(NULL, f);
	while (probe_next(f, line, &hit)) {
		bool worker = !strncmp(hit.task, "kworker/", 8);

		held += within && hit.pid == pid[0] && !strncmp(hit.name, "npulink_", 8);
		if (!strncmp(hit.name, "release", 7)) {
			if (hit.pid == pid[0]) {
				within = !strcmp(hit.name, "release");
				releases += within;
			}
		} else if (!strcmp(hit.name, "npulink_abort")) {
			EXPECT_TRUE(hit.pid == pid[0] || worker);
			EXPECT_EQ(0, died);
			died = hit.at;
		} else if (!strcmp(hit.name, "npulink_done")) {
			EXPECT_EQ(-EOWNERDEAD, probe_field(&hit, "status="));
			EXPECT_NE(0, died);
			elsewhere += !(hit.pid == pid[0] || worker) || hit.hardirq || hit.softirq;
			r = probe_field(&hit, "rank=");
			ASSERT_LT(r, RANKS);
			over[r] = true;
			ended++;
			last = hit.at;
		} else if (died && (hit.pid == pid[0] || worker)) {
			/* Who is up again may wait for a lock of theirs: not counted. */
			for (r = 1; r < RANKS; r++)
				if (probe_field(&hit, " pid=") == pid[r])
					++*(over[r] ? &woken[r] : &early[r]);
		}
	}
	fclose(f);
	TH_LOG("%u operations ended, %u of them by somebody else, within %.0f us", ended, elsewhere,
	       (last - died) * 1e6);
	EXPECT_EQ(kprobes, releases);
	EXPECT_EQ(0, held);
	EXPECT_EQ(RANKS - 1, ended);
	EXPECT_EQ(0, elsewhere);
	for (r = 1; r < RANKS; r++) {
		if (!woken[r] || early[r])
			TH_LOG("rank %u was woken %u times, %u of them too early", r,
			       woken[r] + early[r], early[r]);
		EXPECT_NE(0, woken[r]);
		EXPECT_EQ(0, early[r]);
	}
}

/* Who wants to see what is done does not want to see nothing: boards are closed as long. */
TEST_F(properties, who_traces_sees_all)
{
	const struct npulink_board_machine *machine;

	ASSERT_EQ(0, team_open(&self->t, 2, 2, 64));
	machine = map_told(&self->t.m[0]);
	ASSERT_NE(MAP_FAILED, machine);
	EXPECT_EQ(0, machine->closed);
	ASSERT_EQ(0, probe_event("npulink/npulink_done", "1"));
	EXPECT_EQ(1, machine->closed);
	ASSERT_EQ(0, probe_event("npulink/npulink_done", "0"));
	EXPECT_EQ(0, machine->closed);
	EXPECT_EQ(0, munmap((void *)machine, told_len()));
	team_close(&self->t);
}

TEST_HARNESS_MAIN
