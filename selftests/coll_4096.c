// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * coll_4096.c - 4,096 ranks in one process, one open file each, on eight devices, do
 * allreduces by recursive halving and doubling and by NHR.
 *
 * npulink-test: soak mem=8192 timeout=600 nodebug
 */
#include <sys/resource.h>
#include "coll_ranks.h"
#include "lib/run/comm.h"
#include "lib/run/request.h"

#define RANKS	4096
#define COUNT	4096

static struct coll_comm *file[RANKS], *comm[RANKS];
static struct coll_request *req[RANKS];
static int in[RANKS][COUNT], out[RANKS][COUNT];

/* Ranks of a new communicator; the first one opens the files. */
static int join(const char *algorithm, struct coll_comm **made)
{
	struct coll_config config = COLL_CONFIG_INIT;
	uint64_t start = now_ms();
	struct coll_unique_id id;
	char text[400] = "";
	int rc = coll_get_unique_id(&id);

	config.algorithm = algorithm;
	config.calibration = "";		/* no file to look for */
	config.arena = 4096;
	config.inflight = 4;
	config.deadline_ns = 0;		/* an emulated machine may be very slow */
	config.error_text = text;
	config.error_size = sizeof(text);
	for (int r = 0; r < RANKS && !rc; r++) {
		config.share = made == file ? NULL : file[r];
		rc = coll_comm_init_rank(&made[r], RANKS, &id, r, &config);
		if (rc)
			ksft_print_msg("rank %d: %d: %s\n", r, rc, text);
	}
	ksft_print_msg("joined in %u ms\n", (unsigned int)(now_ms() - start));
	return rc;
}

static int allreduce(struct coll_comm **made)
{
	uint64_t start = now_ms();
	int rc = 0;

	for (int r = 0; r < RANKS; r++)
		for (int i = 0; i < COUNT; i++)
			in[r][i] = r + i;
	memset(out, 0xff, sizeof(out));
	start = now_ms();
	for (int r = 0; r < RANKS && !rc; r++) {
		rc = coll_iallreduce(made[r], in[r], out[r], COUNT, COLL_INT32, COLL_SUM, &req[r]);
		if (rc)
			ksft_print_msg("rank %d: %s\n", r, coll_comm_last_error(made[r]));
	}
	ksft_print_msg("called after %u ms\n", (unsigned int)(now_ms() - start));
	for (int r = 0; r < RANKS && !rc; r++) {
		rc = coll_wait(&req[r]);
		if (rc)
			ksft_print_msg("rank %d: %s\n", r, coll_comm_last_error(made[r]));
	}
	ksft_print_msg("done after %u ms\n", (unsigned int)(now_ms() - start));
	for (int r = 0; r < RANKS && !rc; r++)
		for (int i = 0; i < COUNT && !rc; i++)
			rc = out[r][i] != RANKS * (RANKS - 1) / 2 + RANKS * i;
	return rc;
}

/* Twice: the second time the plans are there already. */
static void test(const char *algorithm, struct coll_comm **made)
{
	int rc = join(algorithm, made);

	ksft_test_result(!rc, "%d ranks join for %s\n", RANKS, algorithm);
	for (int i = 0; i < 2; i++) {
		if (!rc)
			rc = allreduce(made);
		ksft_test_result(!rc, "%s, %s time\n", algorithm, i ? "second" : "first");
	}
}

static int leave(struct coll_comm **made)
{
	int rc = 0;

	for (int r = 0; r < RANKS; r++)
		rc |= coll_comm_destroy(made[r]);
	return rc;
}

int main(void)
{
	struct rlimit files = { RANKS + 100, RANKS + 100 };
	int rc;

	setlinebuf(stdout);
	ksft_print_header();
	if (!have_device())
		ksft_exit_skip("no /dev/npulink/npu0\n");
	if (setrlimit(RLIMIT_NOFILE, &files))
		ksft_exit_skip("cannot open so many files\n");
	ksft_set_plan(2 * 3 + 1);
	test("allreduce:rhd", file);
	test("allreduce:nhr", comm);
	rc = leave(comm);
	rc |= leave(file);
	ksft_test_result(!rc, "all leave\n");
	ksft_finished();
}
