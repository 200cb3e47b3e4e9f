// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * coll_env.c - processes that find each other by torchrun's variables, with and without
 * a key, and do collectives on the devices that fall to them.
 */
#include "coll_ranks.h"
#include "lib/run/comm.h"
#include "loopback.h"

#define RANKS	5

static char port[8];

static void free_port(void)
{
	/* One less: the library takes the port after torchrun's. */
	snprintf(port, sizeof(port), "%u", loopback_port() - 1);
}

static int rank_main(unsigned int rank, const char *key)
{
	struct coll_config config = COLL_CONFIG_INIT;
	char text[500] = "", number[12];
	struct coll_comm_info info = COLL_COMM_INFO_INIT;
	struct coll_comm *comm;
	int in = rank + 1, out, rc;

	snprintf(number, sizeof(number), "%u", rank);
	setenv("RANK", number, 1);
	snprintf(number, sizeof(number), "%u", RANKS);
	setenv("WORLD_SIZE", number, 1);
	setenv("MASTER_ADDR", "127.0.0.1", 1);
	setenv("MASTER_PORT", port, 1);
	if (key)
		setenv("COLL_KEY", key, 1);
	config.error_text = text;
	config.error_size = sizeof(text);
	rc = coll_comm_init_env(&comm, &config);
	if (rc) {
		ksft_print_msg("%d: %s\n", rc, text);
		return 1;
	}
	coll_comm_info(comm, &info);
	for (int i = 0; i < 20 && !rc; i++) {
		out = 0;
		rc = coll_allreduce(comm, &in, &out, 1, COLL_INT32, COLL_SUM);
		rc = rc ? rc : out != RANKS * (RANKS + 1) / 2;
	}
	if (rc)
		ksft_print_msg("%d: %s\n", rc, coll_comm_last_error(comm));
	/* Each to its own device, as long as there are enough. */
	if (!access("/dev/npulink/npu4", F_OK) && strcmp(info.device + 3, getenv("RANK"))) {
		ksft_print_msg("rank %u got %s\n", rank, info.device);
		rc = 1;
	}
	return rc || coll_comm_destroy(comm);
}

static int run(const char *key)
{
	pid_t pid[RANKS];
	int bad = 0, status;

	free_port();
	fflush(stdout);
	for (unsigned int i = 0; i < RANKS; i++) {
		pid[i] = fork();
		if (!pid[i]) {
			status = rank_main(i, key);
			fflush(stdout);
			_exit(status);
		}
	}
	for (unsigned int i = 0; i < RANKS; i++) {
		waitpid(pid[i], &status, 0);
		bad += !!status;
	}
	return bad;
}

int main(void)
{
	ksft_print_header();
	if (!have_device())
		ksft_exit_skip("no /dev/npulink/npu0\n");
	ksft_set_plan(2);
	ksft_test_result(!run(NULL), "without key\n");
	ksft_test_result(!run("the same for all"), "with a key\n");
	ksft_finished();
}
