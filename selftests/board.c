// SPDX-License-Identifier: GPL-2.0
/*
 * board - memory that ranks share: who may map what, what the kernel says beside it, the numbers
 * of collectives that ranks have done by themselves, and that nobody else is harmed by what a
 * rank writes.
 *
 * npulink-test: timeout=120
 */
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include "board.h"
#include "harness.h"
#include "nl.h"

#define PARAM	"/sys/module/npulink/parameters/boards"
#define GRAPHS	"/sys/module/npulink/parameters/graphs"
#define GROUP	"/sys/fs/cgroup/npulink-board"

#define DENIED(error, addr) do { \
	EXPECT_EQ(MAP_FAILED, addr); \
	EXPECT_EQ(error, errno); \
} while (0)

FIXTURE(board) {
	struct team t;
	unsigned char *shared[2], *told;
	const struct npulink_board_machine *machine;
	const struct npulink_board_comm *comm;
};

FIXTURE_SETUP(board)
{
	int r;

	ASSERT_EQ(0, team_open(&self->t, 2, 2, 64));
	for (r = 0; r < 2; r++) {
		self->shared[r] = map_shared(&self->t.m[r]);
		ASSERT_NE(MAP_FAILED, self->shared[r]);
	}
	self->told = map_told(&self->t.m[0]);
	ASSERT_NE(MAP_FAILED, self->told);
	self->machine = (void *)self->told;
	self->comm = (void *)(self->told + getpagesize());
}

FIXTURE_TEARDOWN(board)
{
	int r;

	team_close(&self->t);
	/* It is there as long as somebody has it. */
	self->shared[0][shared_len(2) - 1] = 7;
	EXPECT_EQ(7, self->shared[1][shared_len(2) - 1]);
	for (r = 0; r < 2; r++)
		EXPECT_EQ(0, munmap(self->shared[r], shared_len(2)));
	EXPECT_EQ(0, munmap(self->told, told_len()));
}

/* ---- who may map what */

TEST(maps)
{
	const uint64_t page = getpagesize();
	unsigned char *told, *one, *two;
	struct member *m;
	struct team t;
	pid_t pid;

	ASSERT_EQ(0, team_open(&t, 3, 3, 64));
	m = t.m;
	DENIED(EINVAL, mmap(NULL, shared_len(3) - page, PROT_WRITE, MAP_SHARED, m->fd,
			    NPULINK_MMAP_BOARD_SHARED(m->comm)));
	DENIED(EINVAL, mmap(NULL, shared_len(3) + page, PROT_WRITE, MAP_SHARED, m->fd,
			    NPULINK_MMAP_BOARD_SHARED(m->comm)));
	DENIED(EINVAL, mmap(NULL, shared_len(3), PROT_WRITE, MAP_PRIVATE, m->fd,
			    NPULINK_MMAP_BOARD_SHARED(m->comm)));
	DENIED(EINVAL, mmap(NULL, shared_len(3), PROT_WRITE, MAP_SHARED, m->fd,
			    NPULINK_MMAP_BOARD_SHARED(m->comm) + page));
	DENIED(EINVAL, mmap(NULL, page, PROT_READ, MAP_SHARED, m->fd,
			    NPULINK_MMAP_BOARD(m->comm) + page));
	DENIED(EINVAL, mmap(NULL, page, PROT_READ, MAP_SHARED, m->fd,
			    NPULINK_MMAP_BOARD(m->comm)));
	DENIED(ENOENT, mmap(NULL, shared_len(3), PROT_WRITE, MAP_SHARED, m->fd,
			    NPULINK_MMAP_BOARD_SHARED(m->buf)));
	DENIED(ENOENT, mmap(NULL, shared_len(3), PROT_WRITE, MAP_SHARED, m->fd,
			    NPULINK_MMAP_BOARD_SHARED(0)));
	DENIED(ENOENT, mmap(NULL, told_len(), PROT_READ, MAP_SHARED, m->fd,
			    NPULINK_MMAP_BOARD(0x1ffff)));
	DENIED(EACCES, mmap(NULL, told_len(), PROT_READ | PROT_WRITE, MAP_SHARED, m->fd,
			    NPULINK_MMAP_BOARD(m->comm)));
	pid = fork();
	if (!pid)
		_exit(map_shared(m) != MAP_FAILED || errno != EPERM);
	EXPECT_EQ(0, raw_reap(pid));

	/* One rank alone, then another one, later: it is the same memory, and at first 0. */
	one = map_shared(&m[0]);
	ASSERT_NE(MAP_FAILED, one);
	EXPECT_EQ(0, one[0]);
	one[0] = 77;
	one[shared_len(3) - 1] = 78;
	EXPECT_EQ(0, team_allreduce(&t, 0));
	two = map_shared(&m[2]);
	ASSERT_NE(MAP_FAILED, two);
	EXPECT_EQ(77, two[0]);
	EXPECT_EQ(78, two[shared_len(3) - 1]);
	/* Its size stays. */
	EXPECT_EQ(MAP_FAILED, mremap(two, shared_len(3), 2 * shared_len(3), MREMAP_MAYMOVE));
	told = map_told(&m[1]);
	ASSERT_NE(MAP_FAILED, told);
	EXPECT_EQ(-1, mprotect(told, page, PROT_READ | PROT_WRITE));
	EXPECT_EQ(EACCES, errno);
	/* A child has none of it. */
	pid = fork();
	if (!pid) {
		signal(SIGSEGV, SIG_DFL);
		_exit(((volatile unsigned char *)one)[0]);
	}
	EXPECT_EQ(-SIGSEGV, raw_reap(pid));
	/* The rank that has made it leaves; the file of one that has mapped it can be closed. */
	EXPECT_EQ(0, munmap(one, shared_len(3)));
	EXPECT_EQ(0, munmap(told, told_len()));
	team_close(&t);
	EXPECT_EQ(77, two[0]);
	EXPECT_EQ(0, munmap(two, shared_len(3)));
}

/* What was in the memory of one communicator is not in that of another one. */
TEST(of_each_its_own)
{
	struct team t[2];
	unsigned char *p[2];
	int i;

	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, team_open(&t[i], 2, 2, 64));
		p[i] = map_shared(&t[i].m[0]);
		ASSERT_NE(MAP_FAILED, p[i]);
		EXPECT_EQ(0, p[i][4096]);
		memset(p[i], 0xff, shared_len(2));
	}
	for (i = 0; i < 2; i++) {
		EXPECT_EQ(0, team_allreduce(&t[i], i));
		munmap(p[i], shared_len(2));
		team_close(&t[i]);
	}
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
		DENIED(EOPNOTSUPP, mmap(NULL, shared_len(cmd.nranks), PROT_WRITE, MAP_SHARED, fd,
					NPULINK_MMAP_BOARD_SHARED(cmd.out_id)));
		DENIED(EOPNOTSUPP, mmap(NULL, told_len(), PROT_READ, MAP_SHARED, fd,
					NPULINK_MMAP_BOARD(cmd.out_id)));
		close(fd);
	}
}

static long long group_stat(const char *name)
{
	char text[4096] = "", *p;
	int fd = open(GROUP "/memory.stat", O_RDONLY | O_CLOEXEC);

	if (read(fd, text, sizeof(text) - 1) < 0)
		text[0] = 0;
	close(fd);
	p = strstr(text, name);
	return p ? atoll(p + strlen(name)) : -1;
}

/* Pages belong to the cgroup of whoever touches them first. */
TEST(charged)
{
	struct team t;
	char pid[16];
	void *p;

	if (raw_write("/sys/fs/cgroup/cgroup.subtree_control", "+memory") ||
	    (mkdir(GROUP, 0755) && errno != EEXIST))
		SKIP(return, "no memory cgroups");
	snprintf(pid, sizeof(pid), "%d", getpid());
	ASSERT_EQ(0, raw_write(GROUP "/cgroup.procs", pid));
	ASSERT_EQ(0, team_open(&t, 16, 2, 64));
	p = map_shared(&t.m[0]);
	ASSERT_NE(MAP_FAILED, p);
	memset(p, 1, shared_len(16));
	EXPECT_LE(shared_len(16) / 2, group_stat("\nshmem "));
	munmap(p, shared_len(16));
	team_close(&t);
	EXPECT_TRUE(RAW_EVENTUALLY(group_stat("\nshmem ") < (long long)shared_len(16) / 2));
	EXPECT_EQ(0, raw_write("/sys/fs/cgroup/cgroup.procs", pid));
	rmdir(GROUP);
}

/* ---- numbers */

static uint64_t next_of(const struct member *m)
{
	struct npulink_comm_status st;

	return raw_status(m->fd, m->comm, &st) ? ~0ULL : st.out_next;
}

/* Those that ranks say they have done by themselves, and others that they have not. */
TEST_F(board, numbers)
{
	struct member *m = self->t.m;
	uint64_t number = 0;
	int i, r;

	for (i = 0; i < 300; i++) {
		for (r = 0; r < 2; r++)
			member_fill(&m[r], i);
		if (i % 3 == 1) {
			ASSERT_EQ(0, team_start(&self->t, 0));
		} else {
			number += i % 7 == 6 ? 1ULL << (i / 8) : (uint64_t)i % 5;
			for (r = 0; r < 2; r++)
				ASSERT_EQ(0, member_start_as(&m[r], number, 0, &self->t.seq[r]));
		}
		number++;
		ASSERT_EQ(0, team_finish(&self->t));
		for (r = 0; r < 2; r++) {
			EXPECT_EQ(0, member_wrong(&m[r], i));
			EXPECT_EQ(number, next_of(&m[r]));
		}
	}
	EXPECT_EQ(0, self->comm->failed);
}

TEST_F(board, err_numbers)
{
	struct member *m = self->t.m;
	struct npulink_post post = member_post_cmd(m, NPULINK_POST_HELD);
	uint64_t seq;
	int r;

	post.number = 1;
	EXPECT_EQ(-EINVAL, raw_ioctl(m->fd, NPULINK_POST, &post));
	for (r = 0; r < 2; r++)
		EXPECT_EQ(0, member_start_as(&m[r], 9, 0, &self->t.seq[r]));
	EXPECT_EQ(0, team_finish(&self->t));
	/* Taken, by it or by one that was left out. */
	EXPECT_EQ(-EALREADY, member_start_as(m, 9, 0, &seq));
	EXPECT_EQ(-EALREADY, member_start_as(m, 8, 0, &seq));
	EXPECT_EQ(-EALREADY, member_start_as(m, 0, 0, &seq));
	EXPECT_EQ(-EOVERFLOW, member_start_as(m, NPULINK_MAX_NUMBER, 0, &seq));
	EXPECT_EQ(-EOVERFLOW, member_start_as(m, 1ULL << 63, 0, &seq));
	EXPECT_EQ(-EOVERFLOW, member_start_as(m, ~0ULL, 0, &seq));
	EXPECT_EQ(10, next_of(m));
	EXPECT_EQ(0, team_allreduce(&self->t, 1));
	EXPECT_EQ(11, next_of(m));
	/* The last one; after that there is no other that could be said. */
	for (r = 0; r < 2; r++)
		EXPECT_EQ(0, member_start_as(&m[r], NPULINK_MAX_NUMBER - 1, 0, &self->t.seq[r]));
	EXPECT_EQ(0, team_finish(&self->t));
	EXPECT_EQ(-EOVERFLOW, member_start_as(m, NPULINK_MAX_NUMBER, 0, &seq));
	EXPECT_EQ(-EALREADY, member_start_as(m, 12, 0, &seq));
}

TEST_F(board, batch)
{
	struct npulink_post posts[2][4];
	struct npulink_post_batch cmd;
	struct member *m = self->t.m;
	int i, r;

	for (r = 0; r < 2; r++) {
		for (i = 0; i < 4; i++) {
			posts[r][i] = member_post_cmd(&m[r], NPULINK_POST_HELD |
						      NPULINK_POST_NUMBER);
			posts[r][i].number = i < 3 ? 10 * i : 5;
		}
		cmd = (struct npulink_post_batch) {
			.size = sizeof(cmd), .nposts = 4, .posts = (uintptr_t)posts[r],
		};
		EXPECT_EQ(-EALREADY, raw_ioctl(m[r].fd, NPULINK_POST_BATCH, &cmd));
		EXPECT_EQ(3, cmd.out_posted);
		EXPECT_EQ(21, next_of(&m[r]));
	}
	for (i = 0; i < 3; i++) {
		for (r = 0; r < 2; r++)
			self->t.seq[r] = posts[r][i].out_seq;
		EXPECT_EQ(0, team_finish(&self->t));
	}
}

/* Ranks that do not agree wait for each other: by the number it is seen who is where. */
TEST_F(board, other_numbers)
{
	struct member *m = self->t.m;
	struct npulink_comm_status st;

	EXPECT_EQ(0, member_start_as(&m[0], 5, 50000000, &self->t.seq[0]));
	EXPECT_EQ(0, member_start_as(&m[1], 6, 0, &self->t.seq[1]));
	EXPECT_NE(0, team_finish(&self->t));
	EXPECT_EQ(1, self->comm->failed);
	ASSERT_EQ(0, raw_status(m[0].fd, m[0].comm, &st));
	EXPECT_EQ(-ETIMEDOUT, st.out_status);
	EXPECT_EQ(5, st.out_number);
}

/*
 * Of a rank that has left a number out, with the graph as without: who posts it later learns that
 * the other one has gone on.
 */
TEST_F(board, passed)
{
	struct member *m = self->t.m;
	struct npulink_comm_status st;
	int i;

	for (i = 0; i < 6; i++)
		ASSERT_EQ(0, team_allreduce(&self->t, i));
	EXPECT_EQ(0, member_start_as(&m[1], 8, 0, &self->t.seq[1]));
	EXPECT_EQ(0, member_start_as(&m[0], 6, 5000000000, &self->t.seq[0]));
	EXPECT_EQ(-EPROTO, team_finish(&self->t));
	ASSERT_EQ(0, raw_status(m[0].fd, m[0].comm, &st));
	EXPECT_EQ(-EPROTO, st.out_status);
	EXPECT_EQ(6, st.out_number);
	EXPECT_EQ(0, st.out_rank);
	EXPECT_EQ(1, st.out_peer);
}

/* Who counts for everybody counts what the kernel has carried out. */
TEST_F(board, claims_count_for_nobody)
{
	uint64_t done[2] = {}, met = 0;
	struct nlattr *a[NL_ATTRS];
	struct nl_reply reply;
	struct nl_request rq;
	int sock = nl_open(), family, i, r;
	size_t off;

	family = nl_family(sock, NULL);
	ASSERT_GT(family, 0);
	for (i = 0; i < 2; i++) {
		for (r = 0; r < 2; r++)
			ASSERT_EQ(0, member_start_as(&self->t.m[r], 1000000 * i, 0,
						     &self->t.seq[r]));
		ASSERT_EQ(0, team_finish(&self->t));
		nl_begin(&rq, family, NPULINK_GENL_CMD_RANK_GET, NLM_F_DUMP);
		ASSERT_EQ(0, nl_talk(sock, &rq, &reply, 32768));
		for (off = 0, met = 0; nl_next(&reply, &off, a); ) {
			done[i] += nl_u64(a[NPULINK_A_RANK_DONE]);
			met += nl_u64(a[NPULINK_A_RANK_MET]);
		}
	}
	EXPECT_EQ(done[0] + 2, done[1]);
	EXPECT_EQ(2 * (1000000 - 1), met);
	close(sock);
}

/* ---- open and closed */

TEST_F(board, closed)
{
	EXPECT_EQ(0, self->machine->closed);
	ASSERT_EQ(0, raw_write(PARAM, "0"));
	EXPECT_EQ(1, self->machine->closed);
	/* Who wants to see steps does not want to see nothing. */
	ASSERT_EQ(0, raw_write(GRAPHS, "0"));
	ASSERT_EQ(0, raw_write(PARAM, "1"));
	EXPECT_EQ(1, self->machine->closed);
	ASSERT_EQ(0, raw_write(GRAPHS, "1"));
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

TEST_F(board, failed)
{
	EXPECT_EQ(0, self->comm->failed);
	EXPECT_EQ(0, raw_abort(self->t.m[1].fd, self->t.m[1].comm, 1));
	EXPECT_EQ(1, self->comm->failed);
}

/* ---- a rank that writes what it likes, while others work */

struct vandal {
	unsigned char *shared;
	_Atomic int stop;
};

static void *vandal_fn(void *arg)
{
	struct vandal *v = arg;
	uint64_t x = 88172645463325252ULL;

	while (!v->stop) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		*(volatile uint64_t *)(v->shared + x % (shared_len(2) / 8) * 8) = x;
	}
	return NULL;
}

/* What is posted ends well, with the right result. */
TEST_F(board, vandal)
{
	struct vandal v = { .shared = self->shared[1] };
	pthread_t thread;
	int i;

	ASSERT_EQ(0, pthread_create(&thread, NULL, vandal_fn, &v));
	for (i = 0; i < 1000; i++)
		ASSERT_EQ(0, team_allreduce(&self->t, i));
	v.stop = 1;
	pthread_join(thread, NULL);
}

TEST_HARNESS_MAIN
