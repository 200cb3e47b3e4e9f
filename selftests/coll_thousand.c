// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * coll_thousand.c - a thousand ranks in one process, or half as many where that takes
 * too long, one open file each, on eight devices, do a ring allreduce.
 *
 * npulink-test: timeout=180 nodebug
 */
#include <sys/resource.h>
#include "coll_ranks.h"
#include "lib/run/comm.h"
#include "lib/run/request.h"

#define RANKS	1000
#define COUNT	1000

static int ranks = RANKS;
static struct coll_comm *comm[RANKS];
static struct coll_request *req[RANKS];
static int in[RANKS][COUNT], out[RANKS][COUNT];

static int join(void)
{
	struct coll_config config = COLL_CONFIG_INIT;
	struct coll_unique_id id;
	char text[400] = "";
	int rc = coll_get_unique_id(&id);

	config.algorithm = "allreduce:ring";
	config.arena = 16384;
	config.inflight = 4;
	config.deadline_ns = 0;		/* an emulated machine may be very slow */
	config.error_text = text;
	config.error_size = sizeof(text);
	for (int r = 0; r < ranks && !rc; r++)
		rc = coll_comm_init_rank(&comm[r], ranks, &id, r, &config);
	if (rc)
		ksft_print_msg("%d: %s\n", rc, text);
	return rc;
}

static int allreduce(void)
{
	uint64_t start = now_ms();
	int rc = 0;

	for (int r = 0; r < ranks; r++)
		for (int i = 0; i < COUNT; i++)
			in[r][i] = r + i;
	for (int r = 0; r < ranks && !rc; r++) {
		rc = coll_iallreduce(comm[r], in[r], out[r], COUNT, COLL_INT32, COLL_SUM, &req[r]);
		if (rc)
			ksft_print_msg("rank %d: %s\n", r, coll_comm_last_error(comm[r]));
	}
	for (int r = 0; r < ranks && !rc; r++) {
		rc = coll_wait(&req[r]);
		if (rc)
			ksft_print_msg("rank %d: %s\n", r, coll_comm_last_error(comm[r]));
	}
	for (int r = 0; r < ranks && !rc; r++)
		for (int i = 0; i < COUNT && !rc; i++)
			rc = out[r][i] != ranks * (ranks - 1) / 2 + ranks * i;
	ksft_print_msg("%d ms\n", (int)(now_ms() - start));
	return rc;
}

int main(void)
{
	struct rlimit files = { RANKS + 100, RANKS + 100 };
	int rc;

	ksft_print_header();
	if (!have_device())
		ksft_exit_skip("no /dev/npulink/npu0\n");
	if (setrlimit(RLIMIT_NOFILE, &files))
		ksft_exit_skip("cannot open so many files\n");
	if (!getenv("NPULINK_SOAK"))
		ranks /= 2;
	ksft_set_plan(3);
	rc = join();
	ksft_test_result(!rc, "%d ranks join\n", ranks);
	if (!rc)
		rc = allreduce();
	ksft_test_result(!rc, "ring allreduce\n");
	for (int r = 0; r < ranks; r++)
		rc |= coll_comm_destroy(comm[r]);
	ksft_test_result(!rc, "all leave\n");
	ksft_finished();
}
