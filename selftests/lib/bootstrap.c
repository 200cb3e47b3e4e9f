// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * bootstrap.c - ranks that are processes meet over loopback: with and without key, by
 * variables and by an id, and everything that can go wrong, each with its one line.
 *
 *	bootstrap join [TIMES]		be a rank that a launcher has started
 *
 * npulink-test: timeout=240
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "mock.h"
#include "bootstrap.h"
#include "kselftest.h"
#include "loopback.h"

#define MAX_RANKS	16

/* What a rank's process leaves behind. */
struct outcome {
	int rc;
	char text[600];
	char warning[300];
	uint8_t secret[16];
	double seconds;			/* that a call should take */
};

static struct outcome *outcomes;
static char port[8];
static uint64_t bootstrap_ns;
static const char *scratch_env[MAX_RANKS][3];	/* for one rank each: NAME=VALUE */

static void set_number(const char *name, unsigned int value)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", value);
	setenv(name, text, 1);
}

static void join(unsigned int rank, unsigned int nranks)
{
	struct coll_config config = COLL_CONFIG_INIT;
	struct outcome *o = &outcomes[rank];
	struct coll_comm *comm;
	const char *name;

	set_number("RANK", rank);
	set_number("WORLD_SIZE", nranks);
	setenv("MASTER_ADDR", "127.0.0.1", 0);
	setenv("COLL_PORT", port, 0);
	setenv("COLL_DEVICE", "0", 0);
	for (int i = 0; i < 3; i++)
		if (scratch_env[rank][i])
			putenv((char *)scratch_env[rank][i]);
	config.error_text = o->text;
	config.error_size = sizeof(o->text);
	config.bootstrap_ns = bootstrap_ns;
	for (int i = getenv("TIMES") ? atoi(getenv("TIMES")) : 1; i > 1; i--)
		if (!coll_comm_init_env(&comm, &config))
			coll_comm_destroy(comm);
	o->rc = coll_comm_init_env(&comm, &config);
	if (!o->rc) {
		memcpy(o->secret, mock.comms->secret, 16);
		coll_comm_algorithm(comm, "allreduce", 1 << 20, COLL_INT8, COLL_SUM, &name,
				    &o->seconds);
		if (coll_comm_warning(comm))
			snprintf(o->warning, sizeof(o->warning), "%s", coll_comm_warning(comm));
		coll_comm_destroy(comm);
	}
}

static pid_t start(unsigned int rank, unsigned int nranks)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		join(rank, nranks);
		_exit(0);
	}
	return pid;
}

static void clean(void)
{
	memset(outcomes, 0, MAX_RANKS * sizeof(*outcomes));
	memset(scratch_env, 0, sizeof(scratch_env));
	snprintf(port, sizeof(port), "%d", loopback_port());
}

/* All ranks, rank 0 last if @late. Returns how many failed. */
static int run(unsigned int nranks, bool late)
{
	pid_t pid[MAX_RANKS];
	int bad = 0;

	for (unsigned int i = late; i < nranks; i++)
		pid[i] = start(i, nranks);
	if (late) {
		usleep(300000);
		pid[0] = start(0, nranks);
	}
	for (unsigned int i = 0; i < nranks; i++) {
		waitpid(pid[i], NULL, 0);
		bad += !!outcomes[i].rc;
	}
	return bad;
}

static bool said(unsigned int rank, int rc, const char *words)
{
	const struct outcome *o = &outcomes[rank];

	if (o->rc == rc && strstr(o->text, words))
		return true;
	ksft_print_msg("rank %u: %d, not %d: \"%s\" has no \"%s\"\n", rank, o->rc, rc, o->text,
		       words);
	return false;
}

static bool same_secrets(unsigned int n)
{
	static const uint8_t zero[16];

	for (unsigned int i = 0; i < n; i++)
		if (memcmp(outcomes[i].secret, outcomes[0].secret, 16))
			return false;
	return memcmp(outcomes[0].secret, zero, 16);
}

static void test_meeting(void)
{
	uint8_t first[16];

	clean();
	ksft_test_result(!run(1, false) && same_secrets(1), "one rank\n");
	clean();
	ksft_test_result(!run(2, false) && same_secrets(2), "two ranks\n");
	memcpy(first, outcomes[0].secret, 16);
	clean();
	ksft_test_result(!run(16, true) && same_secrets(16) &&
			 memcmp(first, outcomes[0].secret, 16), "sixteen ranks, rank 0 last\n");
	clean();
	setenv("COLL_KEY", "a secret that all ranks know", 1);
	ksft_test_result(!run(5, false) && same_secrets(5) && !outcomes[1].warning[0],
			 "with a key\n");
	unsetenv("COLL_KEY");
	clean();
	for (int i = 0; i < 2; i++)
		scratch_env[i][0] = "MASTER_ADDR=localhost";
	ksft_test_result(!run(2, false) && !outcomes[0].warning[0] && !outcomes[1].warning[0],
			 "by name; loopback needs no warning\n");
	clean();
	bootstrap_ns = UINT64_MAX;
	ksft_test_result(!run(3, false) && same_secrets(3), "all the time there is\n");
	bootstrap_ns = 0;
	/* Whoever is first to come back must not meet those who are still leaving. */
	clean();
	setenv("TIMES", "20", 1);
	ksft_test_result(!run(6, false) && same_secrets(6), "twenty times in a row\n");
	unsetenv("TIMES");
}

static void test_network_warning(void)
{
	char host[80] = "MASTER_ADDR=";

	clean();
	if (gethostname(host + 12, sizeof(host) - 13)) {
		ksft_test_result_skip("no host name\n");
		return;
	}
	for (int i = 0; i < 2; i++) {
		scratch_env[i][0] = host;
		scratch_env[i][1] = "COLL_TIMEOUT=5";
		scratch_env[i][2] = "COLL_KEY=none";
	}
	if (run(2, false))
		ksft_test_result_skip("cannot meet at %s: %s\n", host, outcomes[1].text);
	else if (!outcomes[0].warning[0])
		ksft_test_result_skip("%s is loopback\n", host);
	else
		ksft_test_result(strstr(outcomes[0].warning, "COLL_KEY") &&
				 strstr(outcomes[1].warning, "COLL_KEY"),
				 "without key over the network: a warning\n");
}

static void test_environment(void)
{
	clean();
	scratch_env[0][0] = "WORLD_SIZE=";
	run(1, false);
	ksft_test_result(said(0, -EINVAL, "WORLD_SIZE is not set: start the program with torchrun"),
			 "a variable is missing\n");
	clean();
	scratch_env[0][0] = "RANK=2x";
	run(1, false);
	ksft_test_result(said(0, -EINVAL, "RANK=\"2x\""), "a variable is no number\n");
	clean();
	scratch_env[0][0] = "RANK=7";
	scratch_env[0][1] = "WORLD_SIZE=7";
	run(1, false);
	ksft_test_result(said(0, -EINVAL, "RANK=7 is not below WORLD_SIZE=7"), "rank too large\n");
	clean();
	scratch_env[0][0] = "WORLD_SIZE=2";
	scratch_env[0][1] = "COLL_PORT=";
	run(1, false);
	ksft_test_result(said(0, -EINVAL, "MASTER_PORT is not set"), "no port\n");
	clean();
	scratch_env[0][0] = "WORLD_SIZE=2";
	scratch_env[0][1] = "COLL_PORT=0";
	run(1, false);
	ksft_test_result(said(0, -EINVAL, "COLL_PORT=0 is no port"), "a port that is none\n");
	clean();
	scratch_env[0][0] = "WORLD_SIZE=2";
	scratch_env[0][1] = "MASTER_ADDR=no-such-host.invalid";
	scratch_env[0][2] = "COLL_KEY=none";
	run(1, false);
	ksft_test_result(said(0, -EHOSTUNREACH, "MASTER_ADDR=\"no-such-host.invalid\""),
			 "no such host\n");
	clean();
	scratch_env[0][0] = scratch_env[1][0] = "MASTER_ADDR=[127.0.0.1]";
	ksft_test_result(!run(2, false) && same_secrets(2), "an address in brackets\n");
	clean();
	scratch_env[0][0] = "MASTER_ADDR=[::1";
	scratch_env[1][0] = "MASTER_ADDR=127.0.0.1 ";
	run(2, false);
	ksft_test_result(said(0, -EINVAL, "MASTER_ADDR=\"[::1\" is no address in brackets") &&
			 said(1, -EINVAL, "MASTER_ADDR=\"127.0.0.1 \" has a blank in it"),
			 "a bracket too few, a blank too many\n");
}

/*
 * Two ranks 1 of 2, at once: the second one may find everything over, or those it comes to are
 * told of it. Nothing else may be said to be wrong.
 */
static bool one_too_many(int tries)
{
	time_t until = time(NULL) + 40;
	unsigned int found = 0;
	bool ok = true;

	while (tries-- && ok && time(NULL) < until) {
		clean();
		scratch_env[2][1] = "RANK=1";
		for (int i = 0; i < 3; i++) {
			scratch_env[i][0] = "WORLD_SIZE=2";
			scratch_env[i][2] = i ? "COLL_TIMEOUT=5" : "COLL_TIMEOUT=10";
		}
		run(3, true);
		/* It was too late, and waits for nobody; or the machine is too busy for all. */
		if (!outcomes[0].rc || outcomes[0].rc == -ETIMEDOUT)
			continue;
		found++;
		ok = said(0, -EEXIST, "rank 1 came twice");
		for (int i = 1; i < 3; i++)
			ok = ok && outcomes[i].rc && !strstr(outcomes[i].text, "version");
	}
	ksft_print_msg("%u times it was in time to be noticed\n", found);
	return ok;
}

/* The next one is for a machine that was too busy for the one before. */
static const char * const timeouts[] = { "COLL_TIMEOUT=1", "COLL_TIMEOUT=5", "COLL_TIMEOUT=20" };

static void test_late_ranks(void)
{
	bool ok = false;

	/* Those who come need time for that, too. */
	for (unsigned int t = 0; t < ARRAY_SIZE(timeouts) && !ok; t++) {
		clean();
		for (int i = 0; i < 6; i++)
			scratch_env[i][0] = timeouts[t];
		for (int i = 0; i < 6; i++)
			scratch_env[i][1] = "WORLD_SIZE=9";
		run(3, false);
		ok = said(0, -ETIMEDOUT, "rank 3-8 did not come") &&
		     said(2, -ETIMEDOUT, "rank 3-8 did not come") &&
		     said(0, -ETIMEDOUT, " s: does it run");
	}
	ksft_test_result(ok, "ranks that do not come are named on all others\n");
	clean();
	scratch_env[1][0] = "COLL_TIMEOUT=1";
	waitpid(start(1, 2), NULL, 0);
	ksft_test_result(said(1, -ETIMEDOUT, "rank 0 was not to be reached at 127.0.0.1 port"),
			 "rank 0 does not come\n");
}

static void test_disagreement(void)
{
	bool ok = false;

	clean();
	scratch_env[2][0] = "WORLD_SIZE=4";
	run(3, false);
	ksft_test_result(said(0, -EPROTO, "WORLD_SIZE=4, rank 0 has WORLD_SIZE=3") &&
			 said(1, -EPROTO, "WORLD_SIZE=4, rank 0 has WORLD_SIZE=3") &&
			 said(2, -EPROTO, "WORLD_SIZE=4, rank 0 has WORLD_SIZE=3"),
			 "another number of ranks\n");
	clean();
	scratch_env[2][0] = "RANK=1";
	for (int i = 0; i < 3; i++)
		scratch_env[i][1] = "COLL_TIMEOUT=20";
	run(3, false);
	ksft_test_result(said(0, -EEXIST, "rank 1 came twice") &&
			 said(1, -EEXIST, "rank 1 came twice"), "a rank comes twice\n");
	ksft_test_result(one_too_many(20), "a rank comes twice when all are there\n");
	for (unsigned int t = 0; t < ARRAY_SIZE(timeouts) && !ok; t++) {
		clean();
		for (int i = 0; i < 3; i++)
			scratch_env[i][1] = timeouts[t];
		scratch_env[0][0] = scratch_env[1][0] = "COLL_KEY=one";
		scratch_env[2][0] = "COLL_KEY=two";
		run(3, false);
		ok = said(2, -EACCES, "COLL_KEY is not that of rank 0") &&
		     said(0, -ETIMEDOUT, "rank 2 did not come") &&
		     said(1, -ETIMEDOUT, "1 connections had another COLL_KEY");
	}
	ksft_test_result(ok, "another key\n");
	ok = false;
	for (unsigned int t = 0; t < ARRAY_SIZE(timeouts) && !ok; t++) {
		clean();
		for (int i = 0; i < 2; i++)
			scratch_env[i][1] = timeouts[t];
		scratch_env[0][0] = "COLL_KEY=one";
		run(2, false);
		ok = said(1, -EACCES, "set on rank 0 and not on this rank");
	}
	ok = ok && said(0, -ETIMEDOUT, "1 came and hung up at once") &&
	     said(0, -ETIMEDOUT, "as if COLL_KEY is set here only");
	ksft_test_result(ok, "key on rank 0 only\n");
	ok = false;
	for (unsigned int t = 0; t < ARRAY_SIZE(timeouts) && !ok; t++) {
		clean();
		for (int i = 0; i < 2; i++)
			scratch_env[i][1] = timeouts[t];
		scratch_env[1][0] = "COLL_KEY=one";
		run(2, false);
		ok = said(1, -EACCES, "set on this rank and not on rank 0") &&
		     said(0, -ETIMEDOUT, "as if COLL_KEY is set there only");
	}
	ksft_test_result(ok, "key on another rank only\n");
	clean();
	scratch_env[0][0] = "MASTER_ADDR=192.0.2.77";
	scratch_env[0][1] = "COLL_TIMEOUT=1";
	scratch_env[0][2] = "COLL_KEY=none";
	waitpid(start(0, 2), NULL, 0);
	ksft_test_result(said(0, -ETIMEDOUT, " s, which is no address of rank 0's machine"),
			 "an address of no machine\n");
	clean();
	scratch_env[1][0] = "COLL_DEVICE=/nonexistent/npu7";
	run(3, false);
	ksft_test_result(said(0, -ENOENT, "rank 1 could not join: there is no /nonexistent/npu7") &&
			 said(1, -ENOENT, "there is no /nonexistent/npu7") &&
			 said(2, -ENOENT, "rank 1 could not join"), "a rank has no device\n");
}

/* Machines have files of their own; ranks that went by them would plan different things. */
static void test_choice(void)
{
	static char file[3][64], env[3][96];
	bool same = true;

	clean();
	for (int i = 0; i < 3; i++) {
		FILE *f;

		snprintf(file[i], sizeof(file[i]), "/tmp/npulink-bootstrap-%d-%d", getpid(), i);
		snprintf(env[i], sizeof(env[i]), "COLL_CALIBRATION=%s", file[i]);
		scratch_env[i][0] = env[i];
		f = fopen(file[i], "we");
		if (!f)
			ksft_exit_fail_msg("cannot write %s\n", file[i]);
		fprintf(f, "alpha = %d.3\nbeta = 1e-%d\n", 10 + i, 9 - i);
		fclose(f);
	}
	run(3, false);
	for (int i = 0; i < 3; i++) {
		same &= !outcomes[i].rc && outcomes[i].seconds == outcomes[0].seconds;
		unlink(file[i]);
	}
	ksft_test_result(same && outcomes[0].seconds > 10 && outcomes[0].seconds < 50,
			 "all go by rank 0's calibration\n");
	clean();
	scratch_env[2][0] = "COLL_ALGORITHM=allreduce:ring";
	run(3, false);
	ksft_test_result(said(0, -EINVAL, "rank 2 on") && said(1, -EINVAL, "COLL_ALGORITHM") &&
			 said(2, -EINVAL, "make COLL_ALGORITHM and COLL_TOPOLOGY equal"),
			 "another algorithm\n");
	clean();
	scratch_env[0][0] = scratch_env[1][0] = "COLL_TOPOLOGY=servers:2";
	run(3, false);
	ksft_test_result(said(2, -EINVAL, "rank 2 on"), "another topology\n");
}

/* ---- ids */

/* As join(), by an id that all have. */
static int run_id(unsigned int nranks, const struct coll_unique_id *ids)
{
	pid_t pid[MAX_RANKS];
	int bad = 0;

	fflush(stdout);
	for (unsigned int i = 0; i < nranks; i++) {
		struct coll_config config = COLL_CONFIG_INIT;
		struct outcome *o = &outcomes[i];
		struct coll_comm *comm;

		pid[i] = fork();
		if (pid[i])
			continue;
		config.device = "0";
		config.bootstrap_ns = 1000000000;
		config.error_text = o->text;
		config.error_size = sizeof(o->text);
		o->rc = coll_comm_init_rank(&comm, nranks, &ids[i], i, &config);
		if (!o->rc) {
			memcpy(o->secret, mock.comms->secret, 16);
			coll_comm_destroy(comm);
		}
		_exit(0);
	}
	for (unsigned int i = 0; i < nranks; i++) {
		waitpid(pid[i], NULL, 0);
		bad += !!outcomes[i].rc;
	}
	return bad;
}

static void test_ids(void)
{
	static const char * const bad[] = {
		"", ":", "host:", "host:0", "host:65536", "host:1x", "[::1", "[::1]x", "[::1]:",
	};
	struct coll_unique_id id[4], local;
	struct coll_comm *comm;
	char address[32];
	bool ok = true;

	clean();
	snprintf(address, sizeof(address), "127.0.0.1:%s", port);
	for (int i = 0; i < 4; i++) {
		ok &= !coll_get_unique_id_at(&id[i], address);
		id[i] = id[0];
	}
	ksft_test_result(ok && !run_id(4, id) && same_secrets(4) &&
			 !memmem(&id[0], sizeof(id[0]), outcomes[0].secret, 16),
			 "by an id; its secret is not the communicator's\n");
	clean();
	ok = !coll_get_unique_id_at(&id[0], "localhost");
	for (int i = 1; i < 4; i++)
		id[i] = id[0];
	ksft_test_result(ok && !run_id(4, id) && same_secrets(4), "any port\n");
	clean();
	setenv("COLL_COMM_ID", "[::ffff:127.0.0.1]", 1);
	ok = !coll_get_unique_id(&id[0]);
	unsetenv("COLL_COMM_ID");
	id[1] = id[0];
	ksft_test_result(ok && !run_id(2, id) && same_secrets(2), "COLL_COMM_ID\n");
	clean();
	snprintf(address, sizeof(address), "127.0.0.1:%s", port);
	ok = !coll_get_unique_id_at(&id[0], address) && !coll_get_unique_id_at(&id[1], address);
	run_id(2, id);
	ksft_test_result(ok && said(1, -EACCES, "the unique id is not that of rank 0") &&
			 said(0, -ETIMEDOUT, "rank 1 did not come"), "another id\n");
	ok = true;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ok &= coll_get_unique_id_at(&id[0], bad[i]) == -EINVAL;
	ksft_test_result(ok, "addresses that are none\n");
	/* No rank 1 will ever be there. */
	setenv("COLL_DEVICE", "0", 1);
	ok = !coll_get_unique_id(&local) && !coll_comm_init_rank(&comm, 2, &local, 0, NULL) &&
	     !coll_comm_destroy(comm);
	unsetenv("COLL_DEVICE");
	ksft_test_result(ok, "an id for one machine waits for nobody\n");
}

/* ---- SHA-256 and HMAC: FIPS 180-4's and RFC 4231's examples */

static bool is_hex(const uint8_t digest[32], const char *hex)
{
	char text[65];

	for (int i = 0; i < 32; i++)
		sprintf(text + 2 * i, "%02x", digest[i]);
	return !strcmp(text, hex);
}

/* ---- strangers */

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

/* ---- keys */

/* Does rank 0 of two, with this file or text, or both, say this? */
static bool key_says(const char *file, const char *key, int rc, const char *words)
{
	static char env[100];

	clean();
	scratch_env[0][0] = "MASTER_ADDR=192.0.2.77";
	snprintf(env, sizeof(env), "COLL_KEY_FILE=%s", file);
	scratch_env[0][1] = env;
	scratch_env[0][2] = key;
	waitpid(start(0, 2), NULL, 0);
	return said(0, rc, words);
}

static void test_keys(void)
{
	/* As Argon2's own library makes it. */
	static const char known[] =
		"1586d81be0e7fbe33bfc742d721e82a78edc798aba03ab29e522b46a386e35cd";
	struct coll_bootstrap b = { .port = 29501 };
	uint8_t random[4097] = "not as random as it should be";
	uint8_t key[COLL_KEY_LEN], *first = key;
	char file[64], env[100];
	bool ok;
	FILE *f;

	setenv("COLL_KEY", "correct horse battery staple", 1);
	ok = !coll_key_read(&b, key) && b.key == first && is_hex(key, known);
	unsetenv("COLL_KEY");
	ksft_test_result(ok, "a text is stretched (%s)\n", b.text);
	ksft_test_result(key_says("", "COLL_KEY=", -ENOKEY, "set COLL_KEY to the same secret text") &&
			 key_says("/", "COLL_KEY=a", -EINVAL, "are both set"),
			 "no key between machines, or two\n");
	snprintf(file, sizeof(file), "/tmp/npulink-key-%d", getpid());
	f = fopen(file, "we");
	if (!f || fwrite(random, 1, 31, f) != 31 || fflush(f) || chmod(file, 0600))
		abort();
	ok = key_says(file, NULL, -EINVAL, "less bytes than 32");
	if (fwrite(random, 1, sizeof(random) - 31, f) != sizeof(random) - 31 || fflush(f))
		abort();
	ok = ok && key_says(file, NULL, -EINVAL, "more bytes than 4096");
	if (ftruncate(fileno(f), 32) || chmod(file, 0640))
		abort();
	ok = ok && key_says(file, NULL, -EACCES, "has mode 0640");
	ok = ok && key_says("/tmp", NULL, -EINVAL, "no regular file");
	ok = ok && key_says("/nonexistent/key", NULL, -ENOENT, "No such file");
	ok = ok && !chmod(file, 0600);
	if (ok && !geteuid())
		ok = !chown(file, 65534, 65534) &&
		     key_says(file, NULL, -EACCES, "belongs to user 65534") && !chown(file, 0, 0);
	ksft_test_result(ok, "key files that are none, or others' too\n");
	clean();
	snprintf(env, sizeof(env), "COLL_KEY_FILE=%s", file);
	for (int i = 0; i < 3; i++)
		scratch_env[i][0] = env;
	ksft_test_result(!run(3, false) && same_secrets(3), "by a key file\n");
	fclose(f);
	unlink(file);
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

	for (unsigned int t = 0; t < ARRAY_SIZE(timeouts) && !ok; t++) {
		clean();
		scratch_env[0][0] = scratch_env[1][0] = timeouts[t];
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

static void test_sha256(void)
{
	struct coll_sha256 s;
	struct coll_hmac h;
	uint8_t digest[32], key[131];
	bool ok;

	coll_sha256_init(&s);
	coll_sha256_add(&s, "abc", 3);
	coll_sha256_end(&s, digest);
	ok = is_hex(digest,
		    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	ksft_test_result(ok, "sha256\n");
	coll_sha256_init(&s);
	for (int i = 0; i < 1000000; i += 100)
		for (int k = 0; k < 4; k++)
			coll_sha256_add(&s, "aaaaaaaaaaaaaaaaaaaaaaaaa", 25);
	coll_sha256_end(&s, digest);
	ok = is_hex(digest,
		    "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
	ksft_test_result(ok, "sha256 of a million\n");
	coll_hmac_init(&h, "Jefe", 4);
	coll_sha256_add(&h.inner, "what do ya want for nothing?", 28);
	coll_hmac_end(&h, digest);
	ok = is_hex(digest,
		    "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
	ksft_test_result(ok, "hmac\n");
	memset(key, 0xaa, sizeof(key));
	coll_hmac_init(&h, key, sizeof(key));
	coll_sha256_add(&h.inner, "Test Using Larger Than Block-Size Key - Hash Key First", 54);
	coll_hmac_end(&h, digest);
	ok = is_hex(digest,
		    "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
	ksft_test_result(ok, "hmac with a long key\n");
}

/* ---- what launchers start */

static int launched(int times)
{
	struct coll_config config = COLL_CONFIG_INIT;
	char text[600] = "", secret[33] = "", host[64] = "";
	struct coll_comm_info info = COLL_COMM_INFO_INIT;
	struct coll_comm *comm;

	setenv("COLL_DEVICE", "0", 0);
	config.error_text = text;
	config.error_size = sizeof(text);
	for (int i = 0; i < times; i++) {
		int rc = coll_comm_init_env(&comm, &config);

		if (rc) {
			printf("%d: %s\n", rc, text);
			return 1;
		}
		coll_comm_info(comm, &info);
		for (int k = 0; k < 16; k++)
			sprintf(secret + 2 * k, "%02x", mock.comms->secret[k]);
		gethostname(host, sizeof(host) - 1);
		coll_comm_destroy(comm);
	}
	/* In one piece, whoever else writes there. */
	snprintf(text, sizeof(text), "rank %u of %u , %s secret %s\n", info.rank, info.nranks, host,
		 secret);
	return write(1, text, strlen(text)) < 0;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return launched(argc > 2 ? atoi(argv[2]) : 1);
	outcomes = mmap(NULL, MAX_RANKS * sizeof(*outcomes), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	signal(SIGPIPE, SIG_IGN);
	ksft_print_header();
	ksft_set_plan(4 + 8 + 1 + 5 + 2 + 8 + 3 + 6 + 2 + 2 + 2 + 2 + 2 + 3 + 4 + 2 + 2 + 2 + 3);
	test_sha256();
	test_meeting();
	test_network_warning();
	test_environment();
	test_late_ranks();
	test_disagreement();
	test_choice();
	test_ids();
	test_strangers();
	test_silent();
	test_squatter();
	test_foreign_port();
	test_neighbours();
	test_guess();
	test_false_error();
	test_keys();
	test_hello();
	test_versions();
	test_half_frame();
	test_death();
	test_bad_members();
	ksft_finished();
}
