// SPDX-License-Identifier: GPL-2.0
/*
 * board - the memory where ranks meet without a system call: who may map what, when POST says that
 * an operation was met there and when it does not, who is woken by what, and that nobody
 * is harmed by what a rank writes.
 *
 * npulink-test: timeout=120
 */
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include "board.h"
#include "harness.h"
#include "nl.h"

#define PARAM	"/sys/module/npulink/parameters/boards"
#define SCRIPTS	"/sys/module/npulink/parameters/scripts"

#define DENIED(error, addr) do { \
	EXPECT_EQ(MAP_FAILED, addr); \
	EXPECT_EQ(error, errno); \
} while (0)

FIXTURE(board) {
	struct team t;
	struct npulink_board_rank *own[2];
	unsigned char *all[2];
	const struct npulink_board_machine *machine;
	const struct npulink_board_comm *comm;
};

FIXTURE_SETUP(board)
{
	int r;

	ASSERT_EQ(0, team_open(&self->t, 2, 2, 64));
	for (r = 0; r < 2; r++) {
		self->own[r] = map_own(&self->t.m[r]);
		ASSERT_NE(MAP_FAILED, self->own[r]);
	}
	for (r = 0; r < 2; r++) {
		self->all[r] = map_all(&self->t.m[r]);
		ASSERT_NE(MAP_FAILED, self->all[r]);
	}
	self->machine = (void *)self->all[0];
	self->comm = (void *)(self->all[0] + getpagesize());
}

FIXTURE_TEARDOWN(board)
{
	int r;

	team_close(&self->t);
	/* It is there as long as somebody has it. */
	for (r = 0; r < 2; r++) {
		self->own[r]->next = 0;
		EXPECT_EQ(0, munmap(self->own[r], own_len()));
		EXPECT_EQ(0, self->all[r][all_len(2) - 1]);
		EXPECT_EQ(0, munmap(self->all[r], all_len(2)));
	}
}

/* ---- who may map what */

TEST(maps)
{
	struct team t;
	void *own[3], *all;
	pid_t pid;
	int r;

	ASSERT_EQ(0, team_open(&t, 3, 3, 64));
	DENIED(EINVAL, mmap(NULL, own_len() - getpagesize(), PROT_WRITE, MAP_SHARED, t.m[0].fd,
			    NPULINK_MMAP_BOARD_OWN(t.m[0].comm)));
	DENIED(EINVAL, mmap(NULL, own_len() + getpagesize(), PROT_WRITE, MAP_SHARED, t.m[0].fd,
			    NPULINK_MMAP_BOARD_OWN(t.m[0].comm)));
	DENIED(EINVAL, mmap(NULL, own_len(), PROT_WRITE, MAP_PRIVATE, t.m[0].fd,
			    NPULINK_MMAP_BOARD_OWN(t.m[0].comm)));
	DENIED(EINVAL, mmap(NULL, own_len(), PROT_WRITE, MAP_SHARED, t.m[0].fd,
			    NPULINK_MMAP_BOARD_OWN(t.m[0].comm) + getpagesize()));
	DENIED(EINVAL, mmap(NULL, getpagesize(), PROT_READ, MAP_SHARED, t.m[0].fd,
			    NPULINK_MMAP_BOARD(t.m[0].comm) + getpagesize()));
	DENIED(ENOENT, mmap(NULL, own_len(), PROT_WRITE, MAP_SHARED, t.m[0].fd,
			    NPULINK_MMAP_BOARD_OWN(t.m[0].buf)));
	DENIED(ENOENT, mmap(NULL, own_len(), PROT_WRITE, MAP_SHARED, t.m[0].fd,
			    NPULINK_MMAP_BOARD_OWN(0)));
	DENIED(ENOENT, mmap(NULL, own_len(), PROT_WRITE, MAP_SHARED, t.m[0].fd,
			    NPULINK_MMAP_BOARD_OWN(0x1ffff)));
	pid = fork();
	if (!pid)
		_exit(map_own(&t.m[0]) != MAP_FAILED || errno != EPERM);
	EXPECT_EQ(0, raw_reap(pid));

	/* Not before the last one has its own. */
	for (r = 0; r < 3; r++) {
		DENIED(EAGAIN, map_all(&t.m[0]));
		EXPECT_EQ(-ENOTCONN, board_wait(t.m[0].fd, t.m[0].comm, 0, 0));
		EXPECT_EQ(0, team_allreduce(&t, r));
		own[r] = map_own(&t.m[r]);
		ASSERT_NE(MAP_FAILED, own[r]);
	}
	all = map_all(&t.m[0]);
	ASSERT_NE(MAP_FAILED, all);
	EXPECT_EQ(-1, mprotect(all, getpagesize(), PROT_READ | PROT_WRITE));
	EXPECT_EQ(EACCES, errno);
	DENIED(EACCES, mmap(NULL, all_len(3), PROT_READ | PROT_WRITE, MAP_SHARED, t.m[0].fd,
			    NPULINK_MMAP_BOARD(t.m[0].comm)));
	DENIED(EINVAL, mmap(NULL, all_len(2), PROT_READ, MAP_SHARED, t.m[0].fd,
			    NPULINK_MMAP_BOARD(t.m[0].comm)));
	/* Once more is the same memory. */
	EXPECT_EQ(0, munmap(own[1], own_len()));
	own[1] = map_own(&t.m[1]);
	ASSERT_NE(MAP_FAILED, own[1]);
	((struct npulink_board_rank *)own[1])->reserved[6] = 77;
	EXPECT_EQ(77, ((struct npulink_board_rank *)((char *)all + all_len(3) - 2 * own_len()))
		      ->reserved[6]);
	/* What was posted before is known. */
	EXPECT_EQ(3, ((struct npulink_board_comm *)((char *)all + getpagesize()))->posted[2]);
	/* A child has none of it. */
	pid = fork();
	if (!pid) {
		signal(SIGSEGV, SIG_DFL);
		_exit(((volatile char *)all)[0]);
	}
	EXPECT_EQ(-SIGSEGV, raw_reap(pid));
	for (r = 0; r < 3; r++)
		munmap(own[r], own_len());
	munmap(all, all_len(3));
	team_close(&t);
}

TEST(err_no_board)
{
	static const uint32_t flags[] = { NPULINK_COMM_ANY_UID, NPULINK_COMM_CHECKSUM, 0 };
	struct npulink_comm_create cmd;
	unsigned int i;
	int fd;

	for (i = 0; i < ARRAY_SIZE(flags); i++) {
		cmd = (struct npulink_comm_create) {
			.size = sizeof(cmd), .flags = flags[i],
			.nranks = flags[i] ? 1 : NPULINK_BOARD_RANKS + 1,
		};
		raw_secret(cmd.secret);
		fd = raw_open(0);
		ASSERT_GE(fd, 0);
		ASSERT_EQ(0, raw_ioctl(fd, NPULINK_COMM_CREATE, &cmd));
		DENIED(EOPNOTSUPP, mmap(NULL, own_len(), PROT_WRITE, MAP_SHARED, fd,
					NPULINK_MMAP_BOARD_OWN(cmd.out_id)));
		DENIED(EOPNOTSUPP, mmap(NULL, all_len(cmd.nranks), PROT_READ, MAP_SHARED, fd,
					NPULINK_MMAP_BOARD(cmd.out_id)));
		EXPECT_EQ(-ENOTCONN, board_wait(fd, cmd.out_id, 0, 0));
		close(fd);
	}
}

TEST_F(board, err_wait)
{
	struct member *m = self->t.m;
	static const uint32_t none[] = { 2, NPULINK_BOARD_RANKS, 1U << 31, ~0U };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(none); i++)
		EXPECT_EQ(-EINVAL, board_wait_for(m->fd, m->comm, 0, 0, none[i]));
	EXPECT_EQ(-EINVAL, board_wait_for(m->fd, m->comm, NPULINK_BOARD_WAKE, 0, 1));
	EXPECT_EQ(-EOPNOTSUPP, board_wait(m->fd, m->comm, 2, 0));
	EXPECT_EQ(-EINVAL, board_wait(m->fd, m->comm, NPULINK_BOARD_WAKE, 1));
	EXPECT_EQ(-ENOENT, board_wait(m->fd, m->buf, 0, 0));
	EXPECT_EQ(-ENOENT, board_wait(m->fd, 0, NPULINK_BOARD_WAKE, 0));
	EXPECT_EQ(0, board_wait(m->fd, m->comm, NPULINK_BOARD_WAKE, 0));
	EXPECT_EQ(-ETIME, board_wait(m->fd, m->comm, 0, 0));
	EXPECT_EQ(-ETIME, board_wait(m->fd, m->comm, 0, ~0ULL));
	EXPECT_EQ(0, self->comm->waiting);
}

/* ---- the verdict of POST */

static uint64_t next_of(const struct member *m)
{
	struct npulink_comm_status st;

	return raw_status(m->fd, m->comm, &st) ? ~0ULL : st.out_next;
}

TEST_F(board, met)
{
	struct member *m = self->t.m;
	uint64_t seq;
	int i, r;

	/* All slots, twice, with one that is posted in between. */
	for (i = 0; i < 40; i++) {
		if (i % 3 == 1) {
			EXPECT_EQ(0, team_allreduce(&self->t, i));
			EXPECT_EQ(i + 1, self->comm->posted[0]);
			EXPECT_EQ(i + 1, self->comm->posted[1]);
			EXPECT_EQ(i + 1, self->comm->off[i % NPULINK_BOARD_SLOTS]);
			continue;
		}
		for (r = 0; r < 2; r++)
			self->own[r]->next = i;
		for (r = 0; r < 2; r++)
			put_flag(self->own[r], i, HASH);
		/* Rank 1 has to be told the same, however often it asks; rank 0 need not ask. */
		EXPECT_EQ(-EALREADY, member_start(&m[1], 0, &seq));
		EXPECT_EQ(-EALREADY, member_start(&m[1], 0, &seq));
		EXPECT_EQ(i + 1, self->comm->off[i % NPULINK_BOARD_SLOTS]);
		for (r = 0; r < 2; r++)
			self->own[r]->next = i + 1;
		EXPECT_EQ(i + 1, next_of(&m[0]));
		EXPECT_EQ(i + 1, next_of(&m[1]));
	}
	EXPECT_EQ(0, self->comm->waiting);
	EXPECT_EQ(0, self->comm->failed);
}

/* The flag comes after the verdict: that stays. */
TEST_F(board, posted)
{
	struct member *m = self->t.m;
	int i;

	for (i = 0; i < 40; i++) {
		member_fill(&m[0], i);
		member_fill(&m[1], i);
		self->own[i % 2]->next = i;
		put_flag(self->own[i % 2], i, HASH);
		EXPECT_EQ(0, member_start(&m[i / 2 % 2], 0, &self->t.seq[i / 2 % 2]));
		put_flag(self->own[!(i % 2)], i, HASH);
		EXPECT_EQ(0, member_start(&m[!(i / 2 % 2)], 0, &self->t.seq[!(i / 2 % 2)]));
		EXPECT_EQ(0, team_finish(&self->t));
		EXPECT_EQ(0, member_wrong(&m[0], i));
		EXPECT_EQ(0, member_wrong(&m[1], i));
	}
}

/* So it does when there have been more than there are slots since then. */
TEST_F(board, posted_many)
{
	struct member *m = self->t.m;
	uint64_t seq[2][NPULINK_BOARD_SLOTS + 3];
	struct npulink_result res;
	int i, r, round, first = 0;

	for (round = 0; round < 40; round++, first += ARRAY_SIZE(seq[0])) {
		member_fill(&m[0], round);
		member_fill(&m[1], round);
		put_flag(self->own[round % 2], first, HASH);
		for (i = 0; i < (int)ARRAY_SIZE(seq[0]); i++)
			EXPECT_EQ(0, member_start(&m[round % 2], 0, &seq[round % 2][i]));
		for (i = 0; i < (int)ARRAY_SIZE(seq[0]); i++) {
			/* They have seen neither that it was posted, nor what came after it. */
			if (i < (int)ARRAY_SIZE(seq[0]) - NPULINK_BOARD_SLOTS)
				put_flag(self->own[!(round % 2)], first + i, HASH);
			EXPECT_EQ(0, member_start(&m[!(round % 2)], 0, &seq[!(round % 2)][i]));
		}
		for (r = 0; r < 2; r++) {
			for (i = 0; i < (int)ARRAY_SIZE(seq[0]); i++) {
				ASSERT_EQ(0, raw_wait(m[r].fd, seq[r][i], &res));
				EXPECT_EQ(0, res.status);
			}
			EXPECT_EQ(0, member_wrong(&m[r], round));
		}
	}
}

/* Of another call, of another number, of an earlier round of the slot. */
TEST_F(board, not_the_same)
{
	struct member *m = self->t.m;
	int i;

	for (i = 0; i < 60; i++) {
		const uint64_t wrong[] = { i + NPULINK_BOARD_SLOTS, i - NPULINK_BOARD_SLOTS };

		member_fill(&m[0], i);
		member_fill(&m[1], i);
		put_flag(self->own[0], i, HASH);
		put_flag(self->own[1], i % 3 < 2 ? wrong[i % 3] : (uint64_t)i,
			 i % 3 < 2 ? HASH : HASH + 1);
		if (i % 4 == 3)
			put_flag(self->own[0], wrong[i % 3 == 1], HASH);
		EXPECT_EQ(0, team_start(&self->t, 0));
		EXPECT_EQ(0, team_finish(&self->t));
		EXPECT_EQ(0, member_wrong(&m[0], i) + member_wrong(&m[1], i));
	}
}

/* A rank has met no more than one in a nanosecond, and numbers only grow. */
TEST_F(board, wild_numbers)
{
	static const uint64_t wild[] = {
		~0ULL, ~0ULL - 1, 1ULL << 63, 1ULL << 56,
	};
	struct member *m = self->t.m;
	struct npulink_post post = member_post_cmd(&m[0], NPULINK_POST_HELD);
	unsigned int i;

	EXPECT_EQ(0, team_allreduce(&self->t, 0));
	for (i = 0; i < ARRAY_SIZE(wild); i++) {
		self->own[0]->next = wild[i];
		EXPECT_EQ(1 + i, next_of(&m[0]));
		EXPECT_EQ(-EOVERFLOW, raw_ioctl(m[0].fd, NPULINK_POST, &post));
		EXPECT_EQ(1 + i, next_of(&m[0]));
		self->own[0]->next = 0;
		EXPECT_EQ(0, team_allreduce(&self->t, i));
	}
	EXPECT_EQ(1 + i, next_of(&m[0]));
	EXPECT_EQ(0, team_allreduce(&self->t, i));
	/* That is far, but may be. Then the other waits for what never comes. */
	self->own[0]->next = 1000000;
	EXPECT_EQ(1000000, next_of(&m[0]));
	EXPECT_EQ(2 + i, next_of(&m[1]));
	EXPECT_EQ(0, team_start(&self->t, 50000000));
	EXPECT_NE(0, team_finish(&self->t));
	EXPECT_EQ(1, self->comm->failed);
}

/* Step by step it comes no further, however often it is asked. */
TEST_F(board, numbers_do_not_wrap)
{
	struct member *m = self->t.m;
	uint64_t next = 0, before = 0;
	unsigned int i;

	for (i = 0; i < 100000 && next < 1ULL << 56; i++, before = next) {
		self->own[0]->next = before + (1ULL << 40);
		next = next_of(&m[0]);
	}
	EXPECT_GT(1ULL << 56, next);
}

/* Who counts for everybody counts what the kernel has carried out. */
TEST_F(board, claims_count_for_nobody)
{
	uint64_t done[2] = {}, met = 0;
	struct nlattr *a[NL_ATTRS];
	struct nl_reply reply;
	struct nl_request rq;
	int sock = nl_open(), family, i;
	size_t off;

	family = nl_family(sock, NULL);
	ASSERT_GT(family, 0);
	ASSERT_EQ(0, team_allreduce(&self->t, 0));
	for (i = 0; i < 2; i++) {
		nl_begin(&rq, family, NPULINK_GENL_CMD_RANK_GET, NLM_F_DUMP);
		ASSERT_EQ(0, nl_talk(sock, &rq, &reply, 32768));
		for (off = 0, met = 0; nl_next(&reply, &off, a); ) {
			done[i] += nl_u64(a[NPULINK_A_RANK_DONE]);
			met += nl_u64(a[NPULINK_A_RANK_MET]);
		}
		self->own[0]->next = 1000000;
	}
	EXPECT_EQ(done[0], done[1]);
	EXPECT_EQ(1000000 - 1, met);
	close(sock);
}

/* ---- who is woken by what */

struct sleeper {
	pthread_t thread;
	const struct member *m;
	uint64_t number;
	int rc, once;
	_Atomic int done;
};

static void *sleep_fn(void *arg)
{
	struct sleeper *s = arg;

	do
		s->rc = board_wait(s->m->fd, s->m->comm, 0, s->number);
	while (s->rc == -ETIME && !s->once);
	s->done = 1;
	return NULL;
}

static bool sleeps(const struct npulink_board_comm *comm, unsigned int n)
{
	return RAW_EVENTUALLY(__atomic_load_n(&comm->waiting, __ATOMIC_SEQ_CST) == n);
}

static int woken(struct sleeper *s)
{
	pthread_join(s->thread, NULL);
	return s->rc;
}

#define SLEEPS(s, nth, num) do { \
	(s)->m = &self->t.m[nth]; \
	(s)->number = num; \
	ASSERT_EQ(0, pthread_create(&(s)->thread, NULL, sleep_fn, s)); \
} while (0)

/* The rank that woke @s, or -1 if it had looked by itself, as it does after each 10 ms. */
static int woken_by(struct sleeper *s)
{
	return woken(s) - 1;
}

/* By flags, but not without them, and not by those of another number. */
static void woken_alone(struct __test_metadata *_metadata, FIXTURE_DATA(board) *self, uint64_t n,
			int *by)
{
	struct member *m = self->t.m;
	struct sleeper s = {};
	int i;

	SLEEPS(&s, 0, n);
	ASSERT_TRUE(sleeps(self->comm, 1));
	put_flag(self->own[0], n, HASH);
	for (i = 0; i < 20; i++)
		EXPECT_EQ(0, board_wait(m[1].fd, m[1].comm, NPULINK_BOARD_WAKE, 0));
	put_flag(self->own[1], n + NPULINK_BOARD_SLOTS, HASH);
	EXPECT_EQ(0, board_wait(m[1].fd, m[1].comm, NPULINK_BOARD_WAKE, 0));
	raw_sleep_ms(30);
	EXPECT_FALSE(s.done);
	put_flag(self->own[1], n, HASH);
	EXPECT_EQ(0, board_wait(m[1].fd, m[1].comm, NPULINK_BOARD_WAKE, 0));
	*by = woken_by(&s);
	EXPECT_EQ(0, self->comm->waiting);
	/* At once if they are there. */
	for (i = 0; i < 2; i++)
		EXPECT_EQ(0, board_wait_for(m[0].fd, m[0].comm, 0, n, i));
}

/* Whoever it is that wakes, and whatever else he is asked about. */
static void woken_in_turn(struct __test_metadata *_metadata, FIXTURE_DATA(board) *self, uint64_t n,
			  int by[2])
{
	struct member *m = self->t.m;
	struct sleeper s[2] = {};
	int i;

	SLEEPS(&s[0], 0, n);
	SLEEPS(&s[1], 1, n + 1);
	ASSERT_TRUE(sleeps(self->comm, 2));
	for (i = 0; i < 2; i++) {
		EXPECT_FALSE(s[i].done);
		put_flag(self->own[1], n + i, HASH);
		put_flag(self->own[0], n + i, HASH);
		EXPECT_EQ(0, board_wait(m[0].fd, m[0].comm, NPULINK_BOARD_WAKE, 0));
		by[i] = woken_by(&s[i]);
	}
}

TEST_F(board, woken)
{
	int told[2] = {}, by[2], i, round;

	/* Not each time, as a sleeper may just be looking by itself. */
	for (round = 0; round < 50 && !told[0]; round++) {
		woken_alone(_metadata, self, 5 + 100 * round, by);
		ASSERT_TRUE(by[0] == 1 || by[0] == -1);
		told[0] = by[0] == 1;
	}
	EXPECT_TRUE(told[0]);
	memset(told, 0, sizeof(told));
	for (round = 0; round < 50 && !(told[0] && told[1]); round++) {
		woken_in_turn(_metadata, self, 6 + 100 * round, by);
		for (i = 0; i < 2; i++) {
			ASSERT_TRUE(by[i] == 0 || by[i] == -1);
			told[i] |= by[i] == 0;
		}
	}
	EXPECT_TRUE(told[0] && told[1]);
}

/* Begins to sleep for 10 ms at the most; when this comes back, it sleeps, or has. */
#define SLEEPS_ONCE(s, m_, comm_, num) do { \
	*(s) = (struct sleeper) { .m = m_, .number = num, .once = 1 }; \
	ASSERT_EQ(0, pthread_create(&(s)->thread, NULL, sleep_fn, s)); \
	ASSERT_TRUE(RAW_EVENTUALLY((comm_)->waiting || (s)->done)); \
} while (0)

TEST_F(board, woken_by_post)
{
	struct member *m = self->t.m;
	struct sleeper s;
	int i;

	/* Not each time, as 10 ms may be over before the POST. */
	do {
		i = self->comm->posted[1];
		SLEEPS_ONCE(&s, &m[0], self->comm, i);
		EXPECT_EQ(0, member_start(&m[1], 0, &self->t.seq[1]));
		EXPECT_EQ(i + 1, self->comm->off[i % NPULINK_BOARD_SLOTS]);
		EXPECT_EQ(0, board_wait(m[0].fd, m[0].comm, 0, i));
		EXPECT_EQ(0, member_start(&m[0], 0, &self->t.seq[0]));
		EXPECT_EQ(0, team_finish(&self->t));
	} while (woken(&s) == -ETIME && i < 50);
	EXPECT_EQ(0, s.rc);
}

TEST(woken_by_failure)
{
	const struct npulink_board_comm *comm;
	struct sleeper s;
	struct team t;
	int i = 0, r;
	char *all;

	do {
		ASSERT_EQ(0, team_open(&t, 2, 2, 64));
		for (r = 0; r < 2; r++)
			ASSERT_NE(MAP_FAILED, map_own(&t.m[r]));
		all = map_all(&t.m[0]);
		ASSERT_NE(MAP_FAILED, all);
		comm = (void *)(all + getpagesize());
		SLEEPS_ONCE(&s, &t.m[i % 2], comm, i);
		EXPECT_EQ(0, raw_abort(t.m[0].fd, t.m[0].comm, 1));
		EXPECT_EQ(1, comm->failed);
		EXPECT_EQ(0, board_wait(t.m[0].fd, t.m[0].comm, 0, 9));
		woken(&s);
		team_close(&t);
	} while (s.rc == -ETIME && ++i < 50);
	EXPECT_EQ(0, s.rc);
}

static void on_signal(int nr)
{
}

TEST_F(board, not_woken)
{
	const struct sigaction sa = { .sa_handler = on_signal };
	struct member *m = self->t.m;
	struct sleeper s = {}, second = { .once = 1 };

	/* After a while nobody sleeps any more. */
	s.once = 1;
	SLEEPS(&s, 0, 0);
	EXPECT_EQ(-ETIME, woken(&s));
	EXPECT_EQ(0, self->comm->waiting);

	/* One for each rank: whichever of them, the other is refused. */
	s.once = 0;
	s.done = 0;
	SLEEPS(&s, 0, 0);
	ASSERT_TRUE(RAW_EVENTUALLY(board_wait(m[0].fd, m[0].comm, 0, 0) == -EBUSY || s.done));

	/* A signal. */
	ASSERT_EQ(0, sigaction(SIGUSR1, &sa, NULL));
	while (!s.done) {
		pthread_kill(s.thread, SIGUSR1);
		raw_sleep_ms(1);
	}
	EXPECT_TRUE(woken(&s) == -EINTR || s.rc == -EBUSY);
	EXPECT_EQ(0, self->comm->waiting);

	/* The rank is closed under it. */
	SLEEPS(&second, 1, 0);
	EXPECT_EQ(0, raw_destroy(m[1].fd, m[1].plan));
	EXPECT_EQ(0, raw_destroy(m[1].fd, m[1].comm));
	EXPECT_EQ(-ETIME, woken(&second) == -ENOENT ? -ETIME : second.rc);
}

struct vandal {
	struct npulink_board_rank *own;
	const volatile struct npulink_board_rank *other;
	_Atomic uint64_t number;
	_Atomic int stop;
};

/* Puts the flag of @number and that of a later one of its slot in turn. */
static void *toggle_fn(void *arg)
{
	struct vandal *v = arg;
	uint64_t number;

	while (!v->stop) {
		number = v->number;
		put_flag(v->own, number + NPULINK_BOARD_SLOTS, HASH);
		put_flag(v->own, number, HASH);
	}
	return NULL;
}

/*
 * A flag that comes while the kernel looks does not make the others' the right ones. There are
 * many others, so that it takes its time.
 */
TEST(flag_changes)
{
	static struct npulink_board_rank *own[16];
	static struct vandal v;
	pthread_t thread;
	struct team t;
	uint64_t i;
	int r;

	ASSERT_EQ(0, team_open(&t, 16, 2, 64));
	for (r = 0; r < 16; r++) {
		own[r] = map_own(&t.m[r]);
		ASSERT_NE(MAP_FAILED, own[r]);
	}
	v.own = own[0];
	ASSERT_EQ(0, pthread_create(&thread, NULL, toggle_fn, &v));
	for (i = 0; i < 3000; i++) {
		v.number = i;
		for (r = 1; r < 16; r++)
			put_flag(own[r], i + NPULINK_BOARD_SLOTS, HASH);
		/* It would say that all have met. */
		ASSERT_EQ(0, team_start(&t, 0));
		ASSERT_EQ(0, team_finish(&t));
	}
	v.stop = 1;
	pthread_join(thread, NULL);
	team_close(&t);
}

/* Signals that come more often than that, whose handler says that calls are to go on. */
TEST_F(board, signals)
{
	const struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	const struct itimerval often = { { 0, 2000 }, { 0, 2000 } }, never = {};
	struct member *m = self->t.m;
	int i, rc;

	put_flag(self->own[0], 0, HASH);
	ASSERT_EQ(0, sigaction(SIGALRM, &sa, NULL));
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &often, NULL));
	for (i = 0; i < 20; i++) {
		rc = board_wait(m->fd, m->comm, 0, 0);
		EXPECT_TRUE(rc == -EINTR || rc == -ETIME);
	}
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &never, NULL));
}

/* ---- open and closed */

TEST_F(board, closed)
{
	EXPECT_EQ(0, self->machine->closed);
	ASSERT_EQ(0, raw_write(PARAM, "0"));
	EXPECT_EQ(1, self->machine->closed);
	/* Who wants to see steps does not want to see nothing. */
	ASSERT_EQ(0, raw_write(SCRIPTS, "0"));
	ASSERT_EQ(0, raw_write(PARAM, "1"));
	EXPECT_EQ(1, self->machine->closed);
	ASSERT_EQ(0, raw_write(SCRIPTS, "1"));
	EXPECT_EQ(0, self->machine->closed);
	/* Two devices that are special, one after the other and together. */
	ASSERT_EQ(0, raw_knob(3, "delay_ns", 1000));
	EXPECT_EQ(1, self->machine->closed);
	ASSERT_EQ(0, raw_knob(4, "delay_ns", 1000));
	ASSERT_EQ(0, raw_knob(3, "delay_ns", 2000));
	ASSERT_EQ(0, raw_knob(3, "delay_ns", 0));
	EXPECT_EQ(1, self->machine->closed);
	ASSERT_EQ(0, raw_knob(4, "delay_ns", 0));
	EXPECT_EQ(0, self->machine->closed);
	/* Tracepoints: properties.c. */
}

/* ---- a rank that writes what it likes, while others work */

static void *vandal_fn(void *arg)
{
	struct vandal *v = arg;
	uint64_t x = 88172645463325252ULL;

	while (!v->stop) {
		unsigned int slot;

		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		slot = (v->other->next + (x >> 32 & 1)) % NPULINK_BOARD_SLOTS;
		__atomic_store_n(&v->own->slots[slot].flag,
				 x & 1 ? x : NPULINK_BOARD_FLAG(v->other->next, HASH),
				 __ATOMIC_RELAXED);
		memset(v->own->slots[slot].data, x, NPULINK_BOARD_BYTES);
	}
	return NULL;
}

/* Operations that were accepted end well, with the right result. */
TEST_F(board, vandal)
{
	struct vandal v = { .own = self->own[1], .other = self->own[0] };
	struct member *m = self->t.m;
	unsigned int i, r, met = 0;
	pthread_t thread;
	uint64_t seq;
	int rc;

	ASSERT_EQ(0, pthread_create(&thread, NULL, vandal_fn, &v));
	for (i = 0; i < 3000; i++) {
		bool both = true;

		self->own[0]->next = next_of(&m[0]);
		put_flag(self->own[0], self->own[0]->next, HASH);
		for (r = 0; r < 2; r++)
			member_fill(&m[r], i);
		for (r = 0; r < 2; r++) {
			rc = member_start(&m[r], 0, &seq);
			self->t.seq[r] = seq;
			both &= !rc;
			ASSERT_TRUE(!rc || rc == -EALREADY);
		}
		if (!both) {
			/* Both or neither. */
			EXPECT_EQ(-EALREADY, member_start(&m[0], 0, &seq));
			EXPECT_EQ(-EALREADY, member_start(&m[1], 0, &seq));
			for (r = 0; r < 2; r++)
				self->own[r]->next = next_of(&m[r]) + 1;
			met++;
			continue;
		}
		ASSERT_EQ(0, team_finish(&self->t));
		ASSERT_EQ(0, member_wrong(&m[0], i) + member_wrong(&m[1], i));
	}
	v.stop = 1;
	pthread_join(thread, NULL);
	TH_LOG("%u of %u met", met, i);
}

TEST_HARNESS_MAIN
