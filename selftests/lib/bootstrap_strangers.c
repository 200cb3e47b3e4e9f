// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * bootstrap_strangers.c - who else may be at the port where ranks meet: strangers, other jobs,
 * other versions, ranks that say half of it or what is not true, or die.
 *
 * npulink-test: timeout=240
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "bootstrap_ranks.h"
#include "lib/base/base.h"

static int connect_stranger(void)
{
	struct sockaddr_in a = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons(atoi(port)),
	};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	for (int i = 0; i < 3000; i++) {
		if (!connect(fd, (struct sockaddr *)&a, sizeof(a)))
			return fd;
		usleep(10000);
	}
	return -1;
}

static void test_strangers(void)
{
	static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: scanner\r\n"
				   "Accept: everything, of any length, as long as it takes\r\n\r\n";
	int silent[100], fd, bad = 0;
	pid_t root, other;

	clean();
	root = start(0, 2);
	for (int i = 0; i < 100; i++)
		silent[i] = connect_stranger();
	fd = connect_stranger();
	bad |= write(fd, http, sizeof(http)) < 0;
	close(connect_stranger());
	other = start(1, 2);
	waitpid(other, NULL, 0);
	waitpid(root, NULL, 0);
	for (int i = 0; i < 100; i++)
		close(silent[i]);
	close(fd);
	ksft_test_result(!bad && !outcomes[0].rc && !outcomes[1].rc && same_secrets(2),
			 "strangers that are silent, talk nonsense, hang up\n");
}

/* More than rank 0 has patience for, if each cost it what a few cost. */
static void test_silent(void)
{
	enum { MANY = 1500 };
	const struct rlimit files = { MANY + 100, MANY + 100 };
	struct rlimit old;
	int silent[MANY];
	pid_t root, other;

	clean();
	getrlimit(RLIMIT_NOFILE, &old);
	if (old.rlim_max < files.rlim_cur) {
		ksft_test_result_skip("%d files are too many here\n", MANY);
		return;
	}
	for (int i = 0; i < 2; i++)
		scratch_env[i][0] = "COLL_TIMEOUT=15";
	/* Another machine, so that it comes by the same door. */
	scratch_env[1][1] = "MASTER_ADDR=127.0.0.01";
	root = start(0, 2);
	setrlimit(RLIMIT_NOFILE, &(struct rlimit){ files.rlim_cur, old.rlim_max });
	for (int i = 0; i < MANY; i++)
		silent[i] = connect_stranger();
	other = start(1, 2);
	waitpid(other, NULL, 0);
	waitpid(root, NULL, 0);
	for (int i = 0; i < MANY; i++)
		close(silent[i]);
	setrlimit(RLIMIT_NOFILE, &old);
	ksft_test_result(!outcomes[0].rc && !outcomes[1].rc && same_secrets(2),
			 "%d silent strangers\n", MANY);
}

/* The name by which ranks of a machine find each other is somebody's who does not listen. */
static void test_squatter(void)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0), n;
	char who[40];
	uint64_t job;

	clean();
	job = coll_hash_add(coll_hash_text(COLL_HASH_INIT, "127.0.0.1"), atoi(port));
	job = coll_hash_add(job, 0);
	n = snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1, "npulink-%u-%016llx", geteuid(),
		     (unsigned long long)job);
	if (bind(fd, (struct sockaddr *)&un, offsetof(struct sockaddr_un, sun_path) + 1 + n))
		abort();
	for (int i = 0; i < 3; i++)
		scratch_env[i][0] = "COLL_TIMEOUT=20";
	ksft_test_result(!run(3, false) && same_secrets(3), "the machine's name is taken\n");
	/* As the first rank would that waits for rank 0. */
	if (listen(fd, 5))
		abort();
	snprintf(who, sizeof(who), "(process %d on ", getpid());
	memset(outcomes, 0, MAX_RANKS * sizeof(*outcomes));
	scratch_env[1][0] = "COLL_TIMEOUT=1";
	waitpid(start(1, 2), NULL, 0);
	ksft_test_result(said(1, -ETIMEDOUT, who), "the first of the machine is not admitted\n");
	close(fd);
}

/* At rank 0's port. */
static int listen_instead(void)
{
	struct sockaddr_in a = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	clean();
	a.sin_port = htons(atoi(port));
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) || listen(fd, 5))
		abort();
	return fd;
}

/* Something else has the port: on rank 0 it cannot listen, on others it answers nonsense. */
static void test_foreign_port(void)
{
	static const char nonsense[200] = "220 mail.example ESMTP";
	int fd = listen_instead(), peer;
	pid_t pid;

	waitpid(start(0, 2), NULL, 0);
	ksft_test_result(said(0, -EADDRINUSE, "where another program does: set COLL_PORT"),
			 "port in use\n");
	/* Rank 0 asked who that is. */
	close(accept(fd, NULL, NULL));
	pid = start(1, 2);
	peer = accept(fd, NULL, NULL);
	if (write(peer, nonsense, sizeof(nonsense)) < 0)
		abort();
	waitpid(pid, NULL, 0);
	close(peer);
	close(fd);
	ksft_test_result(said(1, -EPROTO, "is not libcoll"), "something else answers\n");
}

/* Jobs whose ports are next to each other, or the same. */
static void test_neighbours(void)
{
	char master[24];
	int fd = listen_instead();
	pid_t pid;
	bool ok;

	snprintf(master, sizeof(master), "MASTER_PORT=%d", atoi(port) - 1);
	for (int i = 0; i < 2; i++) {
		scratch_env[i][0] = "COLL_PORT=";
		scratch_env[i][1] = master;
		scratch_env[i][2] = "COLL_TIMEOUT=20";
	}
	ksft_test_result(!run(2, false) && same_secrets(2), "the port after MASTER_PORT is taken\n");
	close(fd);
	clean();
	scratch_env[1][0] = "TORCHELASTIC_RUN_ID=that";
	pid = start(0, 2);
	waitpid(start(1, 2), NULL, 0);
	ksft_test_result(said(1, -EPROTO, "is another job"), "rank 0 of another job\n");
	scratch_env[2][0] = "RANK=0";
	waitpid(start(2, 2), NULL, 0);
	ok = said(2, -EADDRINUSE, "another rank 0 of this job listens at 127.0.0.1");
	scratch_env[2][1] = "TORCHELASTIC_RUN_ID=that";
	waitpid(start(2, 2), NULL, 0);
	ok = ok && said(2, -EADDRINUSE, "where another job does: set COLL_PORT");
	ksft_test_result(ok, "rank 0 comes twice\n");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* HELLO or JOIN, by hand. */
struct greeting {
	uint32_t magic, type;
	int32_t status;
	uint32_t len;
	uint32_t protocol, version;
	uint16_t keyed, job;
	uint32_t nranks, rank, extra;
	uint8_t nonce[16], mac[32];
};

/* Whoever tries keys at home needs something that was made with one. */
static void test_guess(void)
{
	const struct greeting join = {
		.magic = 0x6275706e, .type = 1, .len = 40, .protocol = 4, .version = COLL_VERSION,
		.keyed = 1, .nranks = 2, .rank = 1, .mac = "made without the key",
	};
	struct greeting hello;
	struct {
		uint32_t magic, type;
		int32_t status;
		uint32_t len;
		uint8_t mac[32];
	} answer;
	static const uint8_t none[32];
	ssize_t n = 0, got;
	char byte;
	pid_t pid;
	int fd;

	clean();
	scratch_env[0][0] = "COLL_KEY=secret";
	pid = start(0, 2);
	fd = connect_stranger();
	if (write(fd, &join, sizeof(join)) != sizeof(join) ||
	    read(fd, &hello, sizeof(hello)) != sizeof(hello))
		abort();
	while ((got = read(fd, (char *)&answer + n, sizeof(answer) - n)) > 0)
		n += got;
	ksft_test_result(n == sizeof(answer) && !answer.len && !memcmp(answer.mac, none, 32) &&
			 !memcmp(hello.mac, none, 32) && read(fd, &byte, 1) <= 0,
			 "a wrong key is answered by nothing that a key was used for\n");
	close(fd);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* Who answers at rank 0's port has not shown the key: nobody repeats what it says. */
static void test_false_error(void)
{
	const struct greeting hello = {
		.magic = 0x6275706e, .len = 40, .protocol = 4, .version = COLL_VERSION,
		.keyed = 1, .nranks = 2, .extra = 1000,
	};
	struct {
		uint32_t magic, type;
		int32_t status;
		uint32_t len;
		char text[16];
		uint8_t mac[32];
	} error = {
		.magic = 0x6275706e, .type = 4, .status = -ENOSPC, .len = 16,
		.text = "run this command",
	};
	struct greeting join;
	int fd = listen_instead(), peer;
	pid_t pid;

	scratch_env[1][0] = "COLL_TIMEOUT=20";
	scratch_env[1][1] = "COLL_KEY=secret";
	pid = start(1, 2);
	peer = accept(fd, NULL, NULL);
	if (write(peer, &hello, sizeof(hello)) < 0 ||
	    recv(peer, &join, sizeof(join), MSG_WAITALL) < 0 ||
	    write(peer, &error, sizeof(error)) < 0)
		abort();
	waitpid(pid, NULL, 0);
	close(peer);
	close(fd);
	ksft_test_result(said(1, -EACCES, "does not know COLL_KEY"), "an error from a stranger\n");
}

/*
 * Whoever has the port can say HELLO, with or without the key, and then nothing. Returns how long
 * a rank that has a second waits for it.
 */
static long held_up(uint32_t extra)
{
	const struct greeting hello = {
		.magic = 0x6275706e, .len = 40, .protocol = 4, .version = COLL_VERSION,
		.keyed = 1, .nranks = 2, .extra = extra,
	};
	int fd = listen_instead(), peer;
	struct timespec from, to;
	bool over;
	pid_t pid;

	scratch_env[1][0] = "COLL_TIMEOUT=1";
	scratch_env[1][1] = "COLL_KEY=secret";
	clock_gettime(CLOCK_MONOTONIC, &from);
	pid = start(1, 2);
	peer = accept(fd, NULL, NULL);
	if (write(peer, &hello, sizeof(hello)) < 0)
		abort();
	do {
		usleep(10000);
		over = waitpid(pid, NULL, WNOHANG) == pid;
		clock_gettime(CLOCK_MONOTONIC, &to);
	} while (!over && to.tv_sec - from.tv_sec < 30);
	if (!over) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	close(peer);
	close(fd);
	return to.tv_sec - from.tv_sec;
}

static void test_hello(void)
{
	long took = held_up(UINT32_MAX);

	ksft_test_result(took < 30 && said(1, -EPROTO, "is not libcoll"),
			 "more time than anybody has\n");
	took = held_up(900000);
	ksft_test_result(took < 30 && said(1, -ETIMEDOUT, "did not answer in time"),
			 "who has not shown the key is not waited for longer\n");
}

/* A rank 0 or member of the other protocol version. */
static void test_versions(void)
{
	struct greeting frame = {
		.magic = 0x6275706e, .type = 1, .len = 40, .protocol = 4,
		.version = 9 << 16 | 8 << 8 | 7, .nranks = 2, .rank = 1,
	};
	char answer[1000];
	pid_t pid;
	int fd;

	clean();
	pid = start(0, 2);
	fd = connect_stranger();
	if (write(fd, &frame, sizeof(frame)) != sizeof(frame) ||
	    read(fd, answer, sizeof(answer)) < 0)
		abort();
	waitpid(pid, NULL, 0);
	close(fd);
	ksft_test_result(said(0, -EPROTONOSUPPORT, "has libcoll 9.8.7, rank 0 has "
			      COLL_VERSION_STRING), "another version\n");
}

/* It is there, begins to say something, and stops: rank 0 hears the others. */
static void test_half_frame(void)
{
	const struct greeting frame = {
		.magic = 0x6275706e, .type = 1, .len = 40, .protocol = 4, .version = COLL_VERSION,
		.nranks = 4, .rank = 2,
	};
	char answer[1000];
	bool ok = false;
	pid_t pid[2];
	int fd;

	for (unsigned int t = 0; timeout_env(t) && !ok; t++) {
		clean();
		scratch_env[0][0] = scratch_env[1][0] = timeout_env(t);
		pid[0] = start(0, 4);
		fd = connect_stranger();
		if (write(fd, &frame, sizeof(frame)) != sizeof(frame) ||
		    read(fd, answer, sizeof(answer)) < 0 || write(fd, &frame, 9) != 9)
			abort();
		pid[1] = start(1, 4);
		for (int i = 0; i < 2; i++)
			waitpid(pid[i], NULL, 0);
		close(fd);
		ok = said(0, -ETIMEDOUT, "rank 3 did not come");
	}
	ksft_test_result(ok, "half a frame\n");
}

/*
 * Two of three ranks, of which @victim dies when they have met: after some time, more each @try.
 * Returns how long the other one lived on, in seconds.
 */
static long one_dies(unsigned int victim, unsigned int try)
{
	struct timespec a, b;
	pid_t pid[2];

	clean();
	pid[0] = start(0, 3);
	pid[1] = start(1, 3);
	usleep(400000 << 2 * try);
	clock_gettime(CLOCK_MONOTONIC, &a);
	kill(pid[victim], SIGKILL);
	waitpid(pid[victim], NULL, 0);
	waitpid(pid[!victim], NULL, 0);
	clock_gettime(CLOCK_MONOTONIC, &b);
	return b.tv_sec - a.tv_sec;
}

#define TRIES	3	/* they may not have met yet if the machine is busy */

static void test_death(void)
{
	bool ok = false;
	long took;

	for (unsigned int try = 0; try < TRIES && !ok; try++) {
		took = one_dies(1, try);
		ok = said(0, -EOWNERDEAD, "rank 1 (") && took < 6;
	}
	ksft_test_result(ok, "a rank that dies while others are awaited\n");
	ok = false;
	for (unsigned int try = 0; try < TRIES && !ok; try++) {
		one_dies(0, try);
		ok = outcomes[1].rc < 0 && strstr(outcomes[1].text, "closed the connection");
	}
	ksft_test_result(ok, "rank 0 dies\n");
}

/* Rank 1 of two, by hand: it meets rank 0 and says @len bytes, or nothing. */
static void meet_and_say(const void *words, size_t len)
{
	struct coll_bootstrap b = {
		.ops = &coll_bootstrap_tcp, .rank = 1, .nranks = 2, .host = "127.0.0.1",
		.port = atoi(port), .key_is = "the key", .host_is = "the address",
		.same_address = "is it right", .other_port = "take another port",
		.until_ns = coll_now_ns() + 20000000000ULL,
	};
	pid_t pid = start(0, 2);
	uint8_t *all = calloc(2, len);

	if (b.ops->open(&b) || (len && b.ops->allgather(&b, words, len, all)))
		ksft_print_msg("%s\n", b.text);
	b.ops->close(&b);
	free(all);
	waitpid(pid, NULL, 0);
}

static void test_bad_members(void)
{
	struct {
		uint32_t version;
		int32_t rc;
		uint32_t flags, reserved;
		uint8_t nonce[16];
		struct npulink_peer where;
		struct npulink_addr more[NPULINK_PEER_ADDRS - 1];
		char host[64], text[208];
	} record = { .version = COLL_VERSION, .rc = 1, .text = "it is odd\033[2J\302\233\n" };

	clean();
	meet_and_say(NULL, 0);
	ksft_test_result(said(0, -EOWNERDEAD, "went away while joining"),
			 "a rank that hangs up while joining\n");
	clean();
	meet_and_say("words", 5);
	ksft_test_result(said(0, -EPROTO, "went away while joining"),
			 "a rank that says something else\n");
	clean();
	meet_and_say(&record, sizeof(record));
	ksft_test_result(said(0, -EPROTO, "rank 1 could not join: it is odd?[2J?\233?"),
			 "a rank that fails with no errno, and talks to terminals\n");
}

int main(void)
{
	ranks_begin();
	ksft_set_plan(2 + 2 + 2 + 2 + 2 + 1 + 1 + 2 + 1 + 1 + 2 + 2);
	test_strangers();
	test_silent();
	test_squatter();
	test_foreign_port();
	test_neighbours();
	test_guess();
	test_false_error();
	test_hello();
	test_versions();
	test_half_frame();
	test_death();
	test_bad_members();
	ksft_finished();
}
