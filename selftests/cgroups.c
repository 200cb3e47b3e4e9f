// SPDX-License-Identifier: GPL-2.0
/*
 * cgroups - processes that are held up or ended by their cgroup: frozen before, in and between
 * collectives; killed while frozen, by themselves or all at once; slowed down because they have
 * too much memory. Those who wait for them end or go on as they do otherwise, nobody else waits,
 * and nothing is left of the killed.
 *
 * npulink-test: timeout=120
 */
#include <sys/stat.h>
#include "nl.h"
#include "team.h"
#include "users.h"
#include "worker.h"
#include "harness.h"

#define N	4	/* ranks, each a process */
#define ODD	2	/* the one that is in the group, if only one is */
#define GROUP	"/sys/fs/cgroup/npulink-cgroups"

static bool slow(void)
{
	return getenv("NPULINK_SLOW");
}

/* ---- the group, and ranks that do as they are told */

static int group_write(const char *file, const char *text)
{
	char path[96];

	snprintf(path, sizeof(path), GROUP "/%s", file);
	return raw_write(path, text);
}

static int group_make(void)
{
	int rc = mkdir(GROUP, 0755) && errno != EEXIST ? -errno : 0;

	return rc ? rc : group_write("cgroup.freeze", "0");
}

/*
 * Not by cgroup.events: in the group there may be a worker, too, which is never frozen, so that
 * this says "frozen 0" as long as it is there.
 */
static bool frozen(pid_t pid)
{
	char path[64], text[64] = "";
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/wchan", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (read(fd, text, sizeof(text) - 1) < 0)
		text[0] = 0;
	close(fd);
	return !strcmp(text, "get_signal") || !strcmp(text, "do_freezer_trap");
}

struct order {
	uint64_t deadline_ns;
	uint32_t rounds;
};

struct answer {
	int rc;			/* of the last round */
	uint32_t interrupted;	/* POSTs that were */
	size_t wrong;
	uint64_t when;
	struct npulink_comm_status st;
};

static void obey(struct member *m, const struct order *order, struct answer *a)
{
	struct npulink_post post;
	uint32_t i;

	memset(a, 0, sizeof(*a));
	for (i = 0; i < order->rounds && !a->rc; i++) {
		member_fill(m, i);
		post = member_post_cmd(m, NPULINK_POST_WAIT);
		post.deadline_ns = order->deadline_ns;
		a->rc = raw_ioctl(m->fd, NPULINK_POST, &post);
		if (a->rc == -EINTR) {
			a->interrupted++;
			a->rc = raw_wait(m->fd, post.out_seq, &post.out_result);
		}
		if (!a->rc)
			a->rc = post.out_result.status;
		if (!a->rc)
			a->wrong += member_wrong(m, i);
	}
	a->when = raw_now();
	RAW_CHECK(!raw_status(m->fd, m->comm, &a->st));
}

static void rank_main(int sk, uint32_t r, unsigned int dev, bool inside, const uint8_t *secret,
		      size_t len)
{
	struct order order;
	struct answer a;
	struct member m;

	RAW_CHECK(!prctl(PR_SET_PDEATHSIG, SIGKILL));
	RAW_CHECK(!inside || !group_write("cgroup.procs", "0"));
	RAW_CHECK(!member_join(&m, dev, secret, r, N, len));
	tell(sk, 0);
	while (recv(sk, &order, sizeof(order), 0) == sizeof(order)) {
		obey(&m, &order, &a);
		RAW_CHECK(send(sk, &a, sizeof(a), 0) == sizeof(a));
	}
	_exit(0);
}

FIXTURE(cgroups) {
	pid_t pid[N];
	int sk[N];
	long pinned;
	int comms;
};

FIXTURE_SETUP(cgroups)
{
	if (getuid() || group_make())
		SKIP_CASE("no cgroups");
	raw_knobs_reset(N);
	self->pinned = raw_pages_pinned();
	self->comms = nl_comms();
}

/* The ranks in @inside, one bit each, are in the group; the odd one is on @dev. */
static void start(struct __test_metadata *_metadata, FIXTURE_DATA(cgroups) *self,
		  unsigned int inside, unsigned int dev, size_t len)
{
	struct timeval tv = { .tv_sec = slow() ? 100 : 20 };
	uint8_t secret[16];
	uint32_t r;
	int sk[2];

	raw_secret(secret);
	for (r = 0; r < N; r++) {
		ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sk));
		ASSERT_EQ(0, setsockopt(sk[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
		self->sk[r] = sk[0];
		self->pid[r] = fork();
		if (!self->pid[r])
			rank_main(sk[1], r, r == ODD ? dev : r, inside & 1 << r, secret, len);
		close(sk[1]);
	}
	for (r = 0; r < N; r++)
		ASSERT_EQ(0, hear(self->sk[r]));
}

FIXTURE_TEARDOWN(cgroups)
{
	uint32_t r;

	for (r = 0; r < N; r++)
		if (self->pid[r] > 0) {
			kill(self->pid[r], SIGKILL);
			raw_reap(self->pid[r]);
		}
	raw_knobs_reset(N);
	EXPECT_TRUE(RAW_EVENTUALLY(raw_pages_pinned() <= self->pinned));
	EXPECT_TRUE(RAW_EVENTUALLY(nl_comms() <= self->comms));
	/* Their workers have gone, too. */
	EXPECT_TRUE(RAW_EVENTUALLY(!rmdir(GROUP) || errno == ENOENT));
}

static bool give(FIXTURE_DATA(cgroups) *self, uint32_t r, uint64_t deadline_ns, uint32_t rounds)
{
	struct order order = { .deadline_ns = deadline_ns, .rounds = rounds };

	return send(self->sk[r], &order, sizeof(order), 0) == sizeof(order);
}

static bool take(FIXTURE_DATA(cgroups) *self, uint32_t r, struct answer *a)
{
	memset(a, 0xff, sizeof(*a));
	return recv(self->sk[r], a, sizeof(*a), 0) == sizeof(*a);
}

static bool silent(FIXTURE_DATA(cgroups) *self, uint32_t r)
{
	char c;

	return recv(self->sk[r], &c, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
}

#define FREEZE(pid_) do { \
	ASSERT_EQ(0, group_write("cgroup.freeze", "1")); \
	ASSERT_TRUE(RAW_EVENTUALLY(frozen(pid_))); \
} while (0)

#define THAW()	ASSERT_EQ(0, group_write("cgroup.freeze", "0"))

/* ---- frozen */

/* Its peers have a deadline, and say who it was; it does so, too, when it goes on. */
TEST_F(cgroups, deadline_names_the_frozen)
{
	/* By then all have called, and done what they can. */
	uint64_t deadline_ns = (slow() ? 5 : 1) * 1000000000ULL;
	struct answer a;
	uint32_t r;

	start(_metadata, self, 1 << ODD, ODD, 4096);
	FREEZE(self->pid[ODD]);
	for (r = 0; r < N; r++)
		ASSERT_TRUE(give(self, r, deadline_ns, 1));
	for (r = 0; r < N; r++) {
		if (r == ODD)
			continue;
		ASSERT_TRUE(take(self, r, &a));
		EXPECT_EQ(-ETIMEDOUT, a.rc);
		EXPECT_EQ(NPULINK_CAUSE_DEADLINE, a.st.out_cause);
		EXPECT_EQ(ODD, a.st.out_peer);
	}
	EXPECT_TRUE(silent(self, ODD));
	THAW();
	ASSERT_TRUE(take(self, ODD, &a));
	EXPECT_EQ(-ETIMEDOUT, a.rc);
	EXPECT_EQ(NPULINK_CAUSE_DEADLINE, a.st.out_cause);
	EXPECT_EQ(ODD, a.st.out_peer);
	EXPECT_EQ(0, a.interrupted);
}

/* Without one they wait, npulink hang says for whom, and it ends well. */
TEST_F(cgroups, late_when_thawed)
{
	const char *hang = "npulink -j hang -t 0 | jq -e '.[-1] | .state == \"hangs\" and"
			   " ([.culprits[].rank] == [2]) and .culprits[0].why == \"frozen\" and"
			   " .culprits[0].process_state == \"F\" and"
			   " .culprits[0].frozen == \"/npulink-cgroups\"'"
			   " >/dev/null";
	const char *comm = "npulink -j comm show | jq -e '.[-1].ranks |"
			   " ([.[] | select(.process_state == \"F\").rank] == [2])' >/dev/null";
	struct answer a;
	uint32_t r;

	start(_metadata, self, 1 << ODD, ODD, 4096);
	FREEZE(self->pid[ODD]);
	for (r = 0; r < N; r++)
		ASSERT_TRUE(give(self, r, 0, 1));
	EXPECT_TRUE(RAW_EVENTUALLY(!system(hang)));
	EXPECT_EQ(0, system(comm));
	for (r = 0; r < N; r++)
		EXPECT_TRUE(silent(self, r));
	THAW();
	for (r = 0; r < N; r++) {
		ASSERT_TRUE(take(self, r, &a));
		EXPECT_EQ(0, a.rc);
		EXPECT_EQ(0, a.wrong);
	}
}

/* Five that end well, so that all have met, and then one whose first caller is frozen in it. */
static void goes_on_without(struct __test_metadata *_metadata, FIXTURE_DATA(cgroups) *self,
			    size_t len)
{
	struct answer a;
	uint32_t r;

	start(_metadata, self, 1 << ODD, ODD, len);
	for (r = 0; r < N; r++)
		ASSERT_TRUE(give(self, r, 0, 5));
	for (r = 0; r < N; r++) {
		ASSERT_TRUE(take(self, r, &a));
		ASSERT_EQ(0, a.rc);
	}
	ASSERT_TRUE(give(self, ODD, 0, 1) && raw_comes_to_wait(self->pid[ODD]));
	FREEZE(self->pid[ODD]);
	for (r = 0; r < N; r++)
		ASSERT_TRUE(r == ODD || give(self, r, 0, 1));
	/* The worker does what the task that is frozen would have done. */
	for (r = 0; r < N; r++) {
		if (r == ODD)
			continue;
		ASSERT_TRUE(take(self, r, &a));
		EXPECT_EQ(0, a.rc);
		EXPECT_EQ(0, a.wrong);
	}
	EXPECT_TRUE(frozen(self->pid[ODD]));
	EXPECT_TRUE(silent(self, ODD));
	THAW();
	ASSERT_TRUE(take(self, ODD, &a));
	EXPECT_EQ(0, a.rc);
	EXPECT_EQ(0, a.wrong);
	/* As by a signal. */
	EXPECT_EQ(1, a.interrupted);
}

TEST_F(cgroups, goes_on_without_the_frozen)
{
	goes_on_without(_metadata, self, 4096);
}

/* So much that it would be shared out among the tasks of all ranks. */
TEST_F(cgroups, goes_on_without_the_frozen_large)
{
	goes_on_without(_metadata, self, 2 << 20);
}

/* At any moment, many times. */
TEST_F(cgroups, frozen_again_and_again)
{
	unsigned int seed = raw_now() / 1000, times = 0;
	struct answer a[N];
	uint32_t r;

	start(_metadata, self, 3 << 1, ODD, 65536);
	TH_LOG("seed %u", seed);
	for (r = 0; r < N; r++)
		ASSERT_TRUE(give(self, r, 0, slow() ? 50 : 1000));
	while (silent(self, 0)) {
		ASSERT_EQ(0, group_write("cgroup.freeze", times++ & 1 ? "0" : "1"));
		raw_sleep_ms(rand_r(&seed) % 8);
		ASSERT_LT(times, 20000);
	}
	THAW();
	for (r = 0; r < N; r++) {
		ASSERT_TRUE(take(self, r, &a[r]));
		EXPECT_EQ(0, a[r].rc);
		EXPECT_EQ(0, a[r].wrong);
	}
	TH_LOG("frozen %u times, calls interrupted: %u and %u", times / 2, a[1].interrupted,
	       a[2].interrupted);
}

/* ---- killed while frozen */

/*
 * Of those in @calls, the ones @inside the group are frozen in the call and then killed, one by a
 * signal or, if they are several, all by their group. Who has not called keeps it from ending.
 */
static void others_are_told(struct __test_metadata *_metadata, FIXTURE_DATA(cgroups) *self,
			    unsigned int inside, unsigned int calls)
{
	uint64_t killed, worst = 0;
	struct answer a;
	uint32_t r;

	start(_metadata, self, inside, ODD, 65536);
	for (r = 0; r < N; r++)
		if (inside & calls & 1 << r)
			ASSERT_TRUE(give(self, r, 0, 1) && raw_comes_to_wait(self->pid[r]));
	for (r = 0; r < N; r++)
		if (inside & 1 << r)
			FREEZE(self->pid[r]);
	for (r = 0; r < N; r++)
		if (~inside & calls & 1 << r)
			ASSERT_TRUE(give(self, r, 0, 1) && raw_comes_to_wait(self->pid[r]));
	killed = raw_now();
	ASSERT_EQ(0, inside == 1 << ODD ? kill(self->pid[ODD], SIGKILL) :
					  group_write("cgroup.kill", "1"));
	for (r = 0; r < N; r++)
		if (inside & 1 << r) {
			EXPECT_EQ(-SIGKILL, raw_reap(self->pid[r]));
			self->pid[r] = 0;
		}
	for (r = 0; r < N; r++) {
		if (inside & 1 << r)
			continue;
		if (~calls & 1 << r)
			ASSERT_TRUE(give(self, r, 0, 1));
		ASSERT_TRUE(take(self, r, &a));
		EXPECT_EQ(-EOWNERDEAD, a.rc);
		EXPECT_EQ(NPULINK_CAUSE_DEATH, a.st.out_cause);
		EXPECT_TRUE(a.st.out_rank < N && inside & 1 << a.st.out_rank);
		EXPECT_EQ(a.st.out_rank, a.st.out_peer);
		EXPECT_EQ(SIGKILL, a.st.out_code);
		if (calls & 1 << r && a.when - killed > worst)
			worst = a.when - killed;
	}
	TH_LOG("told after %.1f ms at worst", worst * 1e-6);
	EXPECT_LT(worst, (slow() ? 20 : 5) * 1000000000ULL);
	/* Nobody has to thaw it. */
	EXPECT_TRUE(RAW_EVENTUALLY(!rmdir(GROUP)));
}

TEST_F(cgroups, killed_before_its_call)
{
	others_are_told(_metadata, self, 1 << ODD, 0xb);
}

TEST_F(cgroups, killed_in_its_call)
{
	others_are_told(_metadata, self, 1 << ODD, 0x7);
}

TEST_F(cgroups, two_killed_at_once)
{
	others_are_told(_metadata, self, 0x6, 0xb);
}

TEST_F(cgroups, all_but_one_killed_at_once)
{
	others_are_told(_metadata, self, 0xe, 0x7);
}

TEST_F(cgroups, all_killed_at_once)
{
	others_are_told(_metadata, self, 0xf, 0x7);
}

/* Exit status of a child that ends in time. */
static int reap_in(pid_t pid, unsigned int ms)
{
	int status, rc = 0;

	while (!rc && ms--) {
		raw_sleep_ms(1);
		rc = waitpid(pid, &status, WNOHANG);
	}
	if (rc == pid)
		return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
	kill(pid, SIGKILL);
	return -ETIME;
}

/* In a child, for the case that it does not end. */
static int remove_device(const char *name)
{
	pid_t pid = fork();

	if (!pid)
		_exit(raw_write(RAW_SOFT "/del_device", name) ? 1 : 0);
	return reap_in(pid, slow() ? 60000 : 10000);
}

/* A device on which a frozen rank has work goes; its peers are told, and it, when it can hear. */
TEST_F(cgroups, device_of_the_frozen_goes)
{
	struct answer a;
	uint32_t r;

	ASSERT_EQ(0, raw_write(RAW_SOFT "/new_device", "1"));
	start(_metadata, self, 1 << ODD, 8, 65536);
	ASSERT_EQ(0, raw_knob(8, "hold", 2));
	for (r = 0; r < N; r++)
		ASSERT_TRUE(give(self, r, 0, 1));
	ASSERT_TRUE(RAW_EVENTUALLY(raw_knob_get(8, "held") > 0));
	FREEZE(self->pid[ODD]);
	EXPECT_EQ(0, remove_device("npu8"));
	for (r = 0; r < N; r++) {
		if (r == ODD) {
			EXPECT_TRUE(silent(self, r));
			THAW();
		}
		ASSERT_TRUE(take(self, r, &a));
		EXPECT_EQ(-ENODEV, a.rc);
		EXPECT_EQ(NPULINK_CAUSE_REMOVED, a.st.out_cause);
		EXPECT_EQ(ODD, a.st.out_rank);
	}
}

/* ---- moved */

/* Moves from the group to the root's when it is told to, with a worker that is busy or idle. */
static void mover_main(int sk, bool busy)
{
	struct aside a;

	RAW_CHECK(!prctl(PR_SET_PDEATHSIG, SIGKILL));
	unlimit_memlock();
	RAW_CHECK(!group_write("cgroup.procs", "0"));
	RAW_CHECK(!aside_open(&a, 0));
	do {
		RAW_CHECK(!aside_post(&a));
		RAW_CHECK(RAW_EVENTUALLY(aside_done(&a)));
	} while (!worker_of(getpid()));
	RAW_CHECK(!raw_write("/sys/fs/cgroup/cgroup.procs", "0"));
	tell(sk, 1);
	while (busy) {
		RAW_CHECK(!aside_post(&a));
		RAW_CHECK(RAW_EVENTUALLY(aside_done(&a)));
	}
	for (;;)
		pause();
}

/* Nothing of it stays in the group that it has left. */
TEST_F(cgroups, moved_process_leaves_its_group)
{
	int sk[2], busy;
	pid_t pid;

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sk));
	for (busy = 0; busy < 2; busy++) {
		ASSERT_EQ(0, group_make());
		pid = fork();
		if (!pid)
			mover_main(sk[1], busy);
		EXPECT_EQ(1, hear(sk[0]));
		EXPECT_TRUE(RAW_EVENTUALLY(!rmdir(GROUP)))
			TH_LOG("busy: %d", busy);
		kill(pid, SIGKILL);
		raw_reap(pid);
	}
	close(sk[0]);
	close(sk[1]);
}

/* ---- slowed down */

#define MEMORY	(2 << 20)	/* all that the group may have without being slowed down */

/* Calls that take memory, again and again. */
enum hungry { OPENS, JOINS, ALLOCATES, PLANS, POSTS, HUNGRY };

static const char * const hungry_names[] = {
	"open", "COMM_CREATE", "BUF_ALLOC", "PLAN_CREATE", "POST",
};

#define LONG_PLAN	20000

static int long_plan(int fd, int comm, unsigned int n)
{
	static struct npulink_step steps[LONG_PLAN];
	unsigned int i;

	for (i = 0; i < n; i++)
		steps[i] = raw_step(0, 0);
	return raw_plan(fd, comm, NULL, 0, steps, n);
}

/* Returns 0 or less when there is nothing to be had any more: its device has gone. */
static int hungry_call(enum hungry what, const struct member *m, struct npulink_post *post)
{
	static unsigned int turn;
	uint8_t secret[16];
	uint64_t off;

	/* Of all sizes: it is after so many pages that one sleeps, wherever that is. */
	turn++;
	switch (what) {
	case OPENS:
		return raw_open(8);
	case JOINS:
		raw_secret(secret);
		return raw_comm(m->fd, secret, 0, 1 << (13 + turn % 8));
	case ALLOCATES:
		return raw_buf_alloc(m->fd, (8 << 20) >> turn % 8, &off);
	case PLANS:
		return long_plan(m->fd, m->comm, LONG_PLAN >> turn % 6);
	default:
		/* Whose result nobody fetches, so that it keeps its memory. */
		return !raw_ioctl(m->fd, NPULINK_POST, post);
	}
}

/* A rank of two; the other one is outside. */
static void hungry_main(int sk, enum hungry what, const uint8_t *secret)
{
	struct npulink_post post;
	struct member m;
	int plan;

	RAW_CHECK(!prctl(PR_SET_PDEATHSIG, SIGKILL));
	unlimit_memlock();
	RAW_CHECK(!group_write("cgroup.procs", "0"));
	RAW_CHECK(!member_join(&m, 8, secret, 0, 2, 4096));
	plan = long_plan(m.fd, m.comm, LONG_PLAN);
	RAW_CHECK(plan > 0);
	post = raw_post_cmd(plan, NPULINK_POST_HELD);
	/* So that it has too much, whatever it calls. */
	memset(raw_anon(4 * MEMORY), 1, 4 * MEMORY);
	tell(sk, 1);
	hear(sk);
	while (hungry_call(what, &m, &post) > 0)
		;
	for (;;)
		pause();
}

/* Does it sleep for having too much memory, and in a call to us? */
static bool slowed_down(pid_t pid)
{
	char path[64], text[4096] = "";
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stack", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (read(fd, text, sizeof(text) - 1) < 0)
		text[0] = 0;
	close(fd);
	return strstr(text, "mem_cgroup_handle_over_high") && strstr(text, "[npulink]");
}

/* What somebody else does; how long it took, in ns, or -errno. */
static long long life_of_another(int family)
{
	uint64_t from = raw_now();
	struct team t;
	int i;
	long rc;

	rc = team_open(&t, 2, 2, 4096);
	if (!rc)
		rc = team_allreduce(&t, 1);
	if (!rc)
		rc = raw_abort(t.m[0].fd, t.m[0].comm, 1);
	team_close(&t);
	for (i = NPULINK_GENL_CMD_COMM_GET; i <= NPULINK_GENL_CMD_OP_GET && rc >= 0; i++)
		rc = nl_count(family, i);
	return rc < 0 ? rc : (long long)(raw_now() - from);
}

/*
 * Who has more memory than memory.high sleeps for seconds where it asks for more, in a call to us,
 * too. It holds nothing there that others want, not even those of its communicator, nor the device.
 */
TEST_F(cgroups, slowed_down_keep_nobody)
{
	unsigned int i, lives = 0, seen[HUNGRY] = {};
	int sock = nl_open(), family = nl_family(sock, NULL);
	struct npulink_comm_status st;
	int sk[HUNGRY][2];
	uint8_t secret[16];
	pid_t pid[HUNGRY];
	struct member m[HUNGRY];
	uint64_t until, span = (slow() ? 20 : 5) * 1000000000ULL;
	long long ns, late = 0, longest = 0;

	close(sock);
	if (raw_write("/sys/fs/cgroup/cgroup.subtree_control", "+memory") ||
	    group_write("memory.high", "max"))
		SKIP(return, "no memory cgroup");
	ASSERT_EQ(0, raw_write(RAW_SOFT "/new_device", "1"));
	for (i = 0; i < HUNGRY; i++) {
		ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sk[i]));
		raw_secret(secret);
		pid[i] = fork();
		if (!pid[i])
			hungry_main(sk[i][1], i, secret);
		ASSERT_EQ(1, hear(sk[i][0]));
		ASSERT_EQ(0, member_join(&m[i], 1, secret, 1, 2, 4096));
	}
	snprintf((char *)secret, sizeof(secret), "%u", MEMORY);
	ASSERT_EQ(0, group_write("memory.high", (char *)secret));
	for (i = 0; i < HUNGRY; i++)
		tell(sk[i][0], 1);
	until = raw_now() + span;
	while (raw_now() < until) {
		for (i = 0; i < HUNGRY; i++)
			seen[i] += slowed_down(pid[i]);
		ns = life_of_another(family);
		ASSERT_LT(0, ns);
		lives++;
		/* Half of what one of them sleeps at a time. */
		late += ns > 1000000000LL ? ns : 0;
		longest = ns > longest ? ns : longest;
		raw_sleep_ms(20);
	}
	/* What is had in small pieces may be paid for on the way out. */
	for (i = 0; i < HUNGRY; i++) {
		EXPECT_LE(i >= ALLOCATES, seen[i]);
		TH_LOG("%s was found asleep %u times", hungry_names[i], seen[i]);
	}
	TH_LOG("%u lives of others, %.1f s in those that took long, %.1f s at worst", lives,
	       late * 1e-9, longest * 1e-9);
	/* The host may stand still for once. On a debug kernel each of them takes long enough. */
	if (!slow())
		EXPECT_LT(late - longest, (long long)span / 4);
	/* Their peers, and the device. */
	for (i = 0; i < HUNGRY; i++) {
		until = raw_now();
		EXPECT_EQ(0, raw_abort(m[i].fd, m[i].comm, 1));
		EXPECT_EQ(0, raw_status(m[i].fd, m[i].comm, &st));
		EXPECT_EQ(NPULINK_CAUSE_ABORT, st.out_cause);
		member_leave(&m[i]);
		EXPECT_LT(raw_now() - until, (slow() ? 20 : 10) * 1000000000ULL)
			TH_LOG("%s", hungry_names[i]);
	}
	EXPECT_EQ(0, remove_device("npu8"));
	ASSERT_EQ(0, group_write("cgroup.kill", "1"));
	for (i = 0; i < HUNGRY; i++) {
		EXPECT_EQ(-SIGKILL, reap_in(pid[i], slow() ? 60000 : 10000))
			TH_LOG("%s", hungry_names[i]);
		close(sk[i][0]);
		close(sk[i][1]);
	}
}

TEST_HARNESS_MAIN
