// SPDX-License-Identifier: GPL-2.0
/*
 * chaos - everything at once for a bounded time: communicators under load while ranks
 * are killed and stopped, files closed, memory unmapped, communicators aborted and shrunk,
 * devices removed and added. Every result that says success is right, every error is one
 * that is documented, nobody hangs, and nothing is left. Its seed is printed; NPULINK_SEED
 * sets it, NPULINK_SECONDS the time.
 *
 * npulink-test: timeout=60
 */
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include "team.h"
#include "harness.h"

#define GROUPS	3
#define RANKS	4
#define DEVICES	4
#define LEN_MAX	(300 << 10)

/* Shared by all processes. */
struct world {
	bool stop;
	uint32_t epoch[GROUPS];		/* names a group's present communicator */
	uint64_t good, failed, refused;
	uint64_t errors[135];
	uint64_t beat[GROUPS][RANKS];	/* when a rank last did something */
	uint64_t aborts, closes, unmaps, shrinks, forks;
};

static struct world *w;

static void count(uint64_t *counter)
{
	__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* How operations and joining may end while the world is like this. */
static const int allowed[] = {
	ECANCELED, ETIMEDOUT, EOWNERDEAD, ESHUTDOWN, ENODEV, EIO, ENOLINK,
	ENOENT, EEXIST, ESTALE, EBADF, EPROTO,
};

static bool is_allowed(int rc)
{
	unsigned int i;

	for (i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++)
		if (rc == -allowed[i])
			return true;
	return false;
}

/* What a thread of the rank does to it while it is in a call. */
struct trouble {
	struct member *m;
	unsigned int kind;
	unsigned int us;
};

static void *make_trouble(void *arg)
{
	struct trouble *t = arg;

	usleep(t->us);
	switch (t->kind) {
	case 0:
		count(&w->aborts);
		raw_abort(t->m->fd, t->m->comm, 5);
		break;
	case 1:
		count(&w->closes);
		close(t->m->fd);
		break;
	case 2:
		count(&w->unmaps);
		/* Not what this test writes its own notes to. */
		munmap(t->m->send, 2 * t->m->len + 1);
		break;
	}
	return NULL;
}

/* The survivors of a failed communicator run one more operation. */
static void go_on(struct member *m)
{
	struct npulink_comm_shrink cmd = { .size = sizeof(cmd), .comm_id = m->comm };
	struct member s = *m;
	struct npulink_post post;
	int rc;

	if (raw_ioctl(m->fd, NPULINK_COMM_SHRINK, &cmd))
		return;
	s.comm = cmd.out_id;
	s.rank = cmd.out_rank;
	s.nranks = cmd.out_nranks;
	rc = s.nranks > 1 && s.nranks <= RANKS ? member_plan(&s) : -EINVAL;
	if (!rc) {
		member_fill(&s, 9);
		post = member_post_cmd(&s, NPULINK_POST_WAIT);
		post.deadline_ns = 300000000;
		rc = raw_ioctl(s.fd, NPULINK_POST, &post);
		if (!rc && !post.out_result.status) {
			count(&w->shrinks);
			RAW_CHECK(!member_wrong(&s, 9));
		}
		rc = raw_destroy(s.fd, s.plan);
		RAW_CHECK(!rc || is_allowed(rc) || rc == -EBUSY);
	}
	raw_destroy(s.fd, s.comm);
}

static void one_communicator(uint32_t g, uint32_t r, unsigned int *seed)
{
	uint32_t epoch = __atomic_load_n(&w->epoch[g], __ATOMIC_ACQUIRE), round;
	uint32_t lens[] = { 64, 4096, 70000 / 4 * 4, LEN_MAX }, len = lens[epoch % 4];
	uint8_t secret[16] = { 0xc4, g };
	struct trouble trouble;
	bool troubled = false;
	struct member m;
	pthread_t thread;
	int rc;

	memcpy(secret + 4, &epoch, sizeof(epoch));
	rc = member_join(&m, (r + epoch) % DEVICES, secret, r, RANKS, len);
	for (round = 0; !rc && round < 50; round++) {
		if (__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE))
			break;
		struct npulink_post post;

		w->beat[g][r] = raw_now();
		member_fill(&m, round);
		post = member_post_cmd(&m, NPULINK_POST_WAIT);
		post.deadline_ns = 2000000000;
		if (!troubled && !(rand_r(seed) % 60)) {
			trouble = (struct trouble) { &m, rand_r(seed) % 3, rand_r(seed) % 2000 };
			troubled = !pthread_create(&thread, NULL, make_trouble, &trouble);
		}
		rc = raw_ioctl(m.fd, NPULINK_POST, &post);
		while (rc == -EINTR && post.out_seq)
			rc = raw_wait(m.fd, post.out_seq, &post.out_result);
		if (!rc)
			rc = post.out_result.status;
		if (troubled) {
			pthread_join(thread, NULL);
			break;
		}
		if (!rc) {
			count(&w->good);
			RAW_CHECK(!member_wrong(&m, round));
		}
	}
	if (rc) {
		if (rc > -135)
			count(&w->errors[-rc]);
		count(&w->failed);
		if (!is_allowed(rc))
			fprintf(stderr, "# group %u, rank %u, epoch %u: error %d\n",
				g, r, epoch, rc);
		RAW_CHECK(is_allowed(rc));
	}
	if (!troubled && m.plan > 0 && rand_r(seed) % 2)
		go_on(&m);
	/* The next one; who is first says so. */
	__atomic_compare_exchange_n(&w->epoch[g], &epoch, epoch + 1, false, __ATOMIC_ACQ_REL,
				    __ATOMIC_ACQUIRE);
	if (!(troubled && trouble.kind == 1) && m.fd >= 0)
		close(m.fd);
	if (m.send != MAP_FAILED && !(troubled && trouble.kind == 2))
		munmap(m.send, 2 * m.len + 1);
}

static void rank_main(uint32_t g, uint32_t r, unsigned int seed)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (!__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE)) {
		w->beat[g][r] = raw_now();
		one_communicator(g, r, &seed);
		if (!(rand_r(&seed) % 20)) {
			/* A child that has nothing of ours, but was made while we had it. */
			pid_t pid = fork();

			if (!pid)
				_exit(0);
			count(&w->forks);
			waitpid(pid, NULL, 0);
		}
	}
	_exit(0);
}

static int list_devices(int *ids)
{
	char path[32];
	int i, n = 0;

	for (i = 0; i < 256 && n < 64; i++) {
		snprintf(path, sizeof(path), "/dev/npulink/npu%d", i);
		if (!access(path, F_OK))
			ids[n++] = i;
	}
	return n;
}

/* One of the four devices goes, with all that goes on there, and comes again. */
static void replace_device(unsigned int id)
{
	char name[16];

	snprintf(name, sizeof(name), "npu%u", id);
	RAW_CHECK(!raw_write(RAW_SOFT "/del_device", name));
	usleep(1000);
	/* Takes the lowest number that is free: this one. */
	RAW_CHECK(!raw_write(RAW_SOFT "/new_device", "1"));
}

FIXTURE(chaos) {
	pid_t pid[GROUPS][RANKS];
	unsigned int seed;
	long pinned;
};

FIXTURE_SETUP(chaos)
{
	if (access(RAW_SOFT "/del_device", W_OK))
		SKIP_CASE("not allowed to remove devices");
	raw_knobs_reset(DEVICES);
	raw_sleep_ms(500);
	raw_write("/proc/sys/vm/stat_refresh", "1");
	self->pinned = raw_pages_pinned();
	self->seed = getenv("NPULINK_SEED") ? strtoul(getenv("NPULINK_SEED"), NULL, 0) :
		     (unsigned int)(raw_now() / 1000);
	w = mmap(NULL, sizeof(*w), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, w);
}

FIXTURE_TEARDOWN(chaos)
{
	raw_knobs_reset(DEVICES);
}

#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT 4000

TEST_F(chaos, everything_at_once)
{
	uint64_t kills = 0, stops = 0, devices = 0, late = 0, now, until, patience;
	unsigned int seconds = getenv("NPULINK_SECONDS") ? atoi(getenv("NPULINK_SECONDS")) :
			       getenv("NPULINK_SOAK") ? 600 : 8;
	uint32_t g, r;
	int ids[64], before, i;

	TH_LOG("NPULINK_SEED=%u, %u s", self->seed, seconds);
	before = list_devices(ids);
	patience = getenv("NPULINK_SLOW") ? 90000000000ULL : 20000000000ULL;
	for (g = 0; g < GROUPS; g++) {
		for (r = 0; r < RANKS; r++) {
			w->beat[g][r] = raw_now();
			self->pid[g][r] = fork();
			if (!self->pid[g][r])
				rank_main(g, r, self->seed + 97 * (g * RANKS + r));
		}
	}
	until = raw_now() + seconds * 1000000000ULL;
	while ((now = raw_now()) < until) {
		int status;
		pid_t pid;

		usleep(rand_r(&self->seed) % 60000);
		g = rand_r(&self->seed) % GROUPS;
		r = rand_r(&self->seed) % RANKS;
		switch (rand_r(&self->seed) % 9) {
		case 0:
		case 1:
		case 2:
			kill(self->pid[g][r], SIGKILL);
			kills++;
			break;
		case 3:
			kill(self->pid[g][r], SIGSTOP);
			usleep(20000);
			kill(self->pid[g][r], SIGCONT);
			stops++;
			break;
		case 4:
			replace_device(rand_r(&self->seed) % DEVICES);
			devices++;
			break;
		case 5:
			raw_knob(rand_r(&self->seed) % DEVICES, "delay_ns",
				 rand_r(&self->seed) % 2 * 300000);
			break;
		case 6:
			raw_knob(rand_r(&self->seed) % DEVICES, "dup_irq", 5);
			break;
		case 7:
			raw_knob(rand_r(&self->seed) % DEVICES, "fail_post",
				 rand_r(&self->seed) % 4 == 0);
			break;
		case 8:
			raw_knob(rand_r(&self->seed) % DEVICES, "irq_ns",
				 rand_r(&self->seed) % 2 * RAW_IRQ_NS);
			break;
		}
		/* Who was killed comes again; who found something wrong has said so. */
		while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
			for (g = 0; g < GROUPS; g++)
				for (r = 0; r < RANKS; r++)
					if (self->pid[g][r] == pid)
						goto found;
			continue;
found:
			if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
				EXPECT_TRUE(false)
					TH_LOG("group %u, rank %u: status %#x", g, r, status);
				until = 0;
			}
			w->beat[g][r] = raw_now();
			self->pid[g][r] = fork();
			if (!self->pid[g][r])
				rank_main(g, r, rand_r(&self->seed));
		}
		for (g = 0; g < GROUPS; g++) {
			for (r = 0; r < RANKS; r++) {
				uint64_t beat = w->beat[g][r];

				if (now < beat + patience)
					continue;
				TH_LOG("group %u, rank %u, process %d hangs", g, r,
				       self->pid[g][r]);
				late++;
				until = 0;
			}
		}
	}
	EXPECT_EQ(0ULL, late);
	__atomic_store_n(&w->stop, true, __ATOMIC_RELEASE);
	raw_knobs_reset(DEVICES);
	for (g = 0; g < GROUPS; g++) {
		for (r = 0; r < RANKS; r++) {
			if (late)
				kill(self->pid[g][r], SIGKILL);
			i = raw_reap(self->pid[g][r]);
			EXPECT_TRUE(i == 0 || i == -SIGKILL)
				TH_LOG("group %u, rank %u: %d", g, r, i);
		}
	}
	TH_LOG("%llu operations went well, %llu communicators failed, %llu went on shrunk",
	       (unsigned long long)w->good, (unsigned long long)w->failed,
	       (unsigned long long)w->shrinks);
	TH_LOG("%llu kills, %llu stops, %llu devices replaced, %llu aborts, %llu closes, %llu munmaps, %llu forks",
	       (unsigned long long)kills, (unsigned long long)stops, (unsigned long long)devices,
	       (unsigned long long)w->aborts, (unsigned long long)w->closes,
	       (unsigned long long)w->unmaps, (unsigned long long)w->forks);
	for (i = 0; i < 135; i++)
		if (w->errors[i])
			TH_LOG("%6llu times %s", (unsigned long long)w->errors[i],
			       strerrorname_np(i));
	EXPECT_LT(0ULL, w->good);
	/* All as it was. */
	EXPECT_EQ(before, list_devices(ids));
	EXPECT_TRUE(RAW_EVENTUALLY(!raw_write("/proc/sys/vm/stat_refresh", "1") &&
				   raw_pages_pinned() <= self->pinned))
		TH_LOG("%ld pages pinned before, %ld after", self->pinned, raw_pages_pinned());
	for (i = 0; i < 2; i++) {
		struct team t;

		ASSERT_EQ(0, team_open(&t, RANKS, DEVICES, i ? LEN_MAX : 64));
		EXPECT_EQ(0, team_allreduce(&t, 3));
		team_close(&t);
	}
}

TEST_HARNESS_MAIN
