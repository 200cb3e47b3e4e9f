// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * bootstrap.c - ranks that are processes meet over loopback, by variables and by an id, and what
 * can be wrong with those, each with its one line. Of keys and strangers: bootstrap_keys.c,
 * bootstrap_strangers.c.
 *
 *	bootstrap join [TIMES]		be a rank that a launcher has started
 *
 * npulink-test: timeout=240 san-soak
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "bootstrap_ranks.h"
#include "lib/run/comm.h"

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

static void test_late_ranks(void)
{
	bool ok = false;

	/* Those who come need time for that, too. */
	for (unsigned int t = 0; timeout_env(t) && !ok; t++) {
		clean();
		for (int i = 0; i < 6; i++)
			scratch_env[i][0] = timeout_env(t);
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
	for (unsigned int t = 0; timeout_env(t) && !ok; t++) {
		clean();
		for (int i = 0; i < 3; i++)
			scratch_env[i][1] = timeout_env(t);
		scratch_env[0][0] = scratch_env[1][0] = "COLL_KEY=one";
		scratch_env[2][0] = "COLL_KEY=two";
		run(3, false);
		ok = said(2, -EACCES, "COLL_KEY is not that of rank 0") &&
		     said(0, -ETIMEDOUT, "rank 2 did not come") &&
		     said(1, -ETIMEDOUT, "1 connections had another COLL_KEY");
	}
	ksft_test_result(ok, "another key\n");
	ok = false;
	for (unsigned int t = 0; timeout_env(t) && !ok; t++) {
		clean();
		for (int i = 0; i < 2; i++)
			scratch_env[i][1] = timeout_env(t);
		scratch_env[0][0] = "COLL_KEY=one";
		run(2, false);
		ok = said(1, -EACCES, "set on rank 0 and not on this rank");
	}
	ok = ok && said(0, -ETIMEDOUT, "1 came and hung up at once") &&
	     said(0, -ETIMEDOUT, "as if COLL_KEY is set here only");
	ksft_test_result(ok, "key on rank 0 only\n");
	ok = false;
	for (unsigned int t = 0; timeout_env(t) && !ok; t++) {
		clean();
		for (int i = 0; i < 2; i++)
			scratch_env[i][1] = timeout_env(t);
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
	ranks_begin();
	ksft_set_plan(7 + 1 + 8 + 2 + 8 + 3 + 6);
	test_meeting();
	test_network_warning();
	test_environment();
	test_late_ranks();
	test_disagreement();
	test_choice();
	test_ids();
	ksft_finished();
}
