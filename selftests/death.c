// SPDX-License-Identifier: GPL-2.0
/*
 * death - one of 8 processes is killed while a knob holds its device at some step of an
 * allreduce, at random or at each in turn. The other seven get EOWNERDEAD naming it in less
 * than a second, also if a child of it still has its file, or if one of them is stopped by a
 * debugger: that one reads it when it goes on. Nothing of the dead stays pinned.
 *
 * npulink-test: timeout=170
 */
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include "team.h"
#include "harness.h"

#define RANKS	8
#define LEN	(512 << 10)
#define STEPS	(2 * RANKS - 1)
#define TRIES	4	/* of one round: a busy machine may hold up a peer, though not each time */

/* How the victim is found, and how it dies. */
FIXTURE(death) {
	pid_t pid[RANKS];
	int up[RANKS], down[RANKS];
	int rounds;
	unsigned int seed;
	/* From the death to the peers' return, over all rounds. */
	unsigned int told;
	uint64_t worst_ns, sum_ns;
	int exact;	/* rounds in which the step that was held is named */
};

FIXTURE_VARIANT(death) {
	bool child;	/* a forked child has the file */
	bool shares;	/* .. and its memory, too, as after vfork() */
	bool stopped;	/* killed while stopped */
	bool exits;	/* returns from main, without closing anything */
	bool closes;	/* only closes its file, and lives on */
	bool execs;
	bool oom;	/* takes more memory than its cgroup may have */
	bool traced;	/* a peer of it is stopped by a debugger */
	bool swept;	/* at each step in turn */
	int rounds;
};

FIXTURE_VARIANT_ADD(death, killed) { .rounds = 10 };
FIXTURE_VARIANT_ADD(death, killed_with_child) { .child = true, .rounds = 5 };
FIXTURE_VARIANT_ADD(death, killed_with_memory_shared) { .shares = true, .rounds = 3 };
FIXTURE_VARIANT_ADD(death, killed_while_stopped) { .stopped = true, .rounds = 3 };
FIXTURE_VARIANT_ADD(death, exits) { .exits = true, .rounds = 2 };
FIXTURE_VARIANT_ADD(death, closes) { .closes = true, .rounds = 2 };
FIXTURE_VARIANT_ADD(death, execs) { .execs = true, .rounds = 2 };
FIXTURE_VARIANT_ADD(death, out_of_memory) { .oom = true, .rounds = 2 };
FIXTURE_VARIANT_ADD(death, peer_traced) { .traced = true, .rounds = 3 };
FIXTURE_VARIANT_ADD(death, at_each_step) { .swept = true, .rounds = STEPS - 1 };

#define GROUP	"/sys/fs/cgroup/npulink-death"

/* Into a cgroup that may have little, and take all of it and more. */
static void take_too_much(void)
{
	char *mem = mmap(NULL, 256 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0);

	RAW_CHECK(mem != MAP_FAILED);
	RAW_CHECK(!raw_write(GROUP "/cgroup.procs", "0"));
	memset(mem, 1, 256 << 20);
}

FIXTURE_SETUP(death)
{
	raw_knobs_reset(RANKS);
	if (variant->oom &&
	    (raw_write("/sys/fs/cgroup/cgroup.subtree_control", "+memory") ||
	     (mkdir(GROUP, 0755) && errno != EEXIST) ||
	     raw_write(GROUP "/memory.max", "16777216")))
		SKIP_CASE("no memory cgroup");
	self->seed = raw_now() / 1000;
	self->rounds = variant->rounds;
	if (getenv("NPULINK_SOAK"))
		self->rounds *= getenv("NPULINK_SLOW") ? 10 : 40;	/* then a thousand in all */
	TH_LOG("seed %u", self->seed);
}

FIXTURE_TEARDOWN(death)
{
	rmdir(GROUP);
	raw_knobs_reset(RANKS);
}

/* What a rank tells its parent. */
struct report {
	int rc;
	size_t wrong;
	bool early;		/* was through with the operation; @rc is that of the next one */
	uint64_t when;
	struct npulink_comm_status st;
};

/* A wait that goes on by itself when a debugger has let go. */
static int run_through(const struct member *m)
{
	struct npulink_result res;
	uint64_t seq;
	int rc = member_start(m, 0, &seq);

	if (!rc)
		rc = raw_wait(m->fd, seq, &res);
	return rc ? rc : res.status;
}

/* A child that ends with the test. */
static int stay(void *arg)
{
	char c;

	while (read(*(int *)arg, &c, 1) == 1)
		;
	_exit(0);
}

/* Commands to a rank: go, and to the victim: one of these. */
static void rank_main(int up, int down, uint32_t rank, const uint8_t *secret,
		      const struct _fixture_variant_death *variant, bool victim)
{
	static char stack[65536] __attribute__((aligned(16)));
	struct report rep = {};
	struct member m;
	uint64_t seq;
	int i;
	char c;

	RAW_CHECK(!member_join(&m, rank, secret, rank, RANKS, LEN));
	member_fill(&m, 1);
	if (variant->execs)
		fcntl(m.fd, F_SETFD, 0);
	RAW_CHECK(write(up, "j", 1) == 1);
	/* First one that works, then the one that does not. */
	for (i = 0; i < 2; i++) {
		RAW_CHECK(read(down, &c, 1) == 1);
		if (victim && i) {
			RAW_CHECK(!member_start(&m, 0, &seq));
			if (variant->child && !fork())
				stay(&down);
			if (variant->shares)
				RAW_CHECK(clone(stay, stack + sizeof(stack), CLONE_VM, &down) > 0);
			RAW_CHECK(write(up, "s", 1) == 1);
			if (variant->exits || variant->closes || variant->execs || variant->oom)
				RAW_CHECK(read(down, &c, 1) == 1);
			if (variant->exits)
				exit(3);
			if (variant->execs)
				execl("/bin/sleep", "sleep", "1000", NULL);
			if (variant->closes)
				close(m.fd);
			if (variant->oom)
				take_too_much();
			pause();
		}
		rep.rc = run_through(&m);
		rep.wrong = member_wrong(&m, 1);
		/* Who needed no more of it is told when it does. */
		rep.early = i && !rep.rc;
		if (rep.early)
			rep.rc = run_through(&m);
		rep.when = raw_now();
		/* Not from the result: who comes late is told by POST itself. */
		RAW_CHECK(!raw_status(m.fd, m.comm, &rep.st));
		if (!i) {
			RAW_CHECK(!rep.rc && !rep.wrong);
			member_fill(&m, 1);
			RAW_CHECK(write(up, "1", 1) == 1);
		}
	}
	RAW_CHECK(write(up, &rep, sizeof(rep)) == sizeof(rep));
	/* Alive until told, so that nobody else's death is seen. */
	RAW_CHECK(read(down, &c, 1) == 1);
	_exit(0);
}

/* Wherever it is: in the kernel, waiting. */
static void trace_stop(struct __test_metadata *_metadata, pid_t pid)
{
	int status;

	ASSERT_EQ(0, ptrace(PTRACE_SEIZE, pid, 0, 0));
	ASSERT_EQ(0, ptrace(PTRACE_INTERRUPT, pid, 0, 0));
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	ASSERT_TRUE(WIFSTOPPED(status));
}

/* It has said nothing yet, and says it once it runs again. Returns when that was. */
static uint64_t trace_resume(struct __test_metadata *_metadata, pid_t pid, int up)
{
	struct pollfd p = { .fd = up, .events = POLLIN };
	uint64_t now;

	EXPECT_EQ(0, poll(&p, 1, 50));
	now = raw_now();
	EXPECT_EQ(0, ptrace(PTRACE_DETACH, pid, 0, 0));
	return now;
}

/* Returns whether a peer was told later than it may be. */
static bool one_round(struct __test_metadata *_metadata, struct _test_data_death *self,
		      const struct _fixture_variant_death *variant, int round)
{
	uint32_t victim = rand_r(&self->seed) % RANKS, r, i;
	uint32_t hold = variant->swept ? round % (STEPS - 1) : rand_r(&self->seed) % (STEPS - 1);
	uint32_t traced = (victim + 1 + rand_r(&self->seed) % (RANKS - 1)) % RANKS;
	struct report rep;
	uint8_t secret[16];
	uint64_t killed, since, limit;
	bool late = false, exact = false;
	char c;

	raw_secret(secret);
	for (r = 0; r < RANKS; r++) {
		int a[2], b[2];

		ASSERT_EQ(0, pipe(a));
		ASSERT_EQ(0, pipe(b));
		self->pid[r] = fork();
		if (!self->pid[r]) {
			close(a[0]);
			close(b[1]);
			while (r--) {	/* so that ends are seen */
				close(self->up[r]);
				close(self->down[r]);
			}
			for (r = 0; self->pid[r]; r++)
				;
			rank_main(a[1], b[0], r, secret, variant, r == victim);
		}
		close(a[1]);
		close(b[0]);
		self->up[r] = a[0];
		self->down[r] = b[1];
	}
	for (r = 0; r < RANKS; r++)
		ASSERT_EQ(1, read(self->up[r], &c, 1));
	for (r = 0; r < RANKS; r++)
		ASSERT_EQ(1, write(self->down[r], "g", 1));
	for (r = 0; r < RANKS; r++)
		ASSERT_EQ(1, read(self->up[r], &c, 1));

	/* Its device lets so many requests through, then no more. */
	ASSERT_EQ(0, raw_knob(victim, "hold", hold));
	for (r = 0; r < RANKS; r++)
		ASSERT_EQ(1, write(self->down[r], "g", 1));
	ASSERT_EQ(1, read(self->up[victim], &c, 1));
	ASSERT_TRUE(RAW_EVENTUALLY(raw_knob_get(victim, "held") > 0));

	if (variant->stopped) {
		kill(self->pid[victim], SIGSTOP);
		raw_sleep_ms(20);
	}
	if (variant->traced) {
		/* So that it has posted, and waits. */
		raw_sleep_ms(getenv("NPULINK_SLOW") ? 500 : 50);
		trace_stop(_metadata, self->pid[traced]);
	}
	killed = raw_now();
	/* To take too much takes a while itself. */
	limit = getenv("NPULINK_SLOW") ? 20 : variant->oom ? 5 : 1;
	if (variant->exits || variant->closes || variant->execs || variant->oom)
		c = write(self->down[victim], "d", 1);
	else
		c = 1 + kill(self->pid[victim], SIGKILL);
	ASSERT_EQ(1, c);
	/* The traced one last: the others are told while it is stopped. */
	for (i = 1; i <= RANKS; i++) {
		r = (traced + i) % RANKS;
		if (r == victim)
			continue;
		since = killed;
		if (variant->traced && r == traced)
			since = trace_resume(_metadata, self->pid[r], self->up[r]);
		ASSERT_EQ((ssize_t)sizeof(rep), read(self->up[r], &rep, sizeof(rep)));
		/*
		 * The last chunk of the rank that comes j after the victim passes the
		 * victim in its step 2n - 2 - j, the request of that number. Who needed
		 * no more of it may have been through before.
		 */
		if (rep.early) {
			EXPECT_EQ(0, rep.wrong);
			EXPECT_GT(hold + 1, 2 * RANKS - 2 - (r + RANKS - victim) % RANKS);
			EXPECT_NE(victim, (r + 1) % RANKS);
		}
		EXPECT_EQ(-EOWNERDEAD, rep.rc)
			TH_LOG("rank %u, held at %u", r, hold);
		EXPECT_EQ(NPULINK_CAUSE_DEATH, rep.st.out_cause);
		EXPECT_EQ(victim, rep.st.out_peer);
		EXPECT_EQ(victim, rep.st.out_rank);
		/*
		 * Where it stood: at the step whose request is held, or at one before that,
		 * if a peer has yet to take what that sent. Step 0 is no request.
		 */
		EXPECT_EQ(1, rep.st.out_number);
		EXPECT_LE(rep.st.out_step, hold + 1);
		exact |= rep.st.out_step == hold + 1;
		EXPECT_EQ(variant->exits || variant->closes || variant->execs ? 0 : SIGKILL,
			  rep.st.out_code);
		late |= rep.when >= since + 1000000000ULL * limit;
		if (rep.when < since)
			continue;	/* failed before, for another reason */
		self->told++;
		self->sum_ns += rep.when - since;
		if (rep.when - since > self->worst_ns)
			self->worst_ns = rep.when - since;
	}
	self->exact += exact;
	/* Its device lets go of everything, too, if not before all others are told. */
	EXPECT_TRUE(RAW_EVENTUALLY(!raw_knob_get(victim, "held")));
	ASSERT_EQ(0, raw_knob(victim, "hold", RAW_HOLD_OFF));
	if (variant->closes || variant->execs)
		kill(self->pid[victim], SIGKILL);
	EXPECT_EQ(variant->exits ? 3 : -SIGKILL, raw_reap(self->pid[victim]));
	for (r = 0; r < RANKS; r++) {
		if (r != victim) {
			ASSERT_EQ(1, write(self->down[r], "q", 1));
			EXPECT_EQ(0, raw_reap(self->pid[r]));
		}
		close(self->up[r]);
		close(self->down[r]);
	}
	return late;
}

TEST_F(death, others_are_told)
{
	long before = raw_pages_pinned();
	unsigned int seed;
	int round, tries;
	bool late;

	/* Where a machine is busy, the step that is held may not be the first to be told of. */
	for (round = 0; round < self->rounds || (!self->exact && round < 10 * self->rounds);
	     round++) {
		seed = self->seed;
		late = true;
		for (tries = 0; tries < TRIES && late; tries++) {
			/* The same again. */
			self->seed = seed;
			late = one_round(_metadata, self, variant, round % self->rounds);
			if (late)
				TH_LOG("round %d: told after %.1f ms at worst", round,
				       self->worst_ns * 1e-6);
		}
		ASSERT_FALSE(late);
	}
	EXPECT_GT(self->exact, 0);
	EXPECT_TRUE(RAW_EVENTUALLY(raw_pages_pinned() <= before));
	TH_LOG("%d deaths, told after %.1f ms, at worst %.1f ms; %ld pages pinned before, %ld after",
	       round, self->told ? self->sum_ns * 1e-6 / self->told : 0,
	       self->worst_ns * 1e-6, before, raw_pages_pinned());
}

TEST_HARNESS_MAIN
