// SPDX-License-Identifier: GPL-2.0
/*
 * null_backend - the smallest backend (kernel/null): what only copies runs on it, with libcoll and
 * without, and no task comes between two steps; reductions are refused, and it can go while its
 * files are open.
 *
 * npulink-test: modules=none
 */
#include <glob.h>
#include "backends.h"

#define TURNS	500
#define ODD	4097	/* no multiple of anything, and more than a page */

static const size_t lens[] = { 1, 8, ODD, (3 << 20) + 5 };

/* Is there a thread of the kernel that works for this process? */
static bool has_worker(void)
{
	char name[32], comm[32];
	bool found = false;
	glob_t tasks;
	size_t i;

	snprintf(name, sizeof(name), "npulink-%d\n", getpid());
	if (glob("/proc/[0-9]*/comm", 0, NULL, &tasks))
		return true;
	for (i = 0; i < tasks.gl_pathc && !found; i++) {
		FILE *file = fopen(tasks.gl_pathv[i], "r");

		found = file && fgets(comm, sizeof(comm), file) && !strcmp(comm, name);
		if (file)
			fclose(file);
	}
	globfree(&tasks);
	return found;
}

/* Steps in turn: one rank sends what it has received last, the other one receives it. */
static int turns_plan(int fd, int comm, int rank, size_t len)
{
	struct npulink_slot slot = {
		.min_len = len, .access = NPULINK_SLOT_READ | NPULINK_SLOT_WRITE,
	};
	struct npulink_step steps[TURNS];
	int i;

	for (i = 0; i < TURNS; i++) {
		bool sends = i % 2 == rank;

		steps[i] = raw_step(sends ? NPULINK_STEP_SEND : NPULINK_STEP_RECV, len);
		steps[i].dep[0] = !!i;
		if (sends)
			steps[i].send_peer = !rank;
		else
			steps[i].recv_peer = !rank;
	}
	return raw_plan(fd, comm, &slot, 1, steps, TURNS);
}

/* The process only posts: the interrupt of a step's end begins the next one. */
static bool no_task_is_needed(size_t len)
{
	uint8_t secret[16], *mem[RANKS];
	int fd[RANKS], comm[RANKS], plan[RANKS], buf[RANKS], r, looks, rc = -ETIME;
	struct npulink_post post[RANKS];
	struct npulink_result result;
	bool good = true;

	raw_secret(secret);
	for (r = 0; r < RANKS; r++) {
		fd[r] = raw_open(r);
		comm[r] = raw_comm(fd[r], secret, r, RANKS);
		plan[r] = turns_plan(fd[r], comm[r], r, len);
		mem[r] = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			      0);
		memset(mem[r], 17 + r, len);
		buf[r] = raw_register(fd[r], mem[r], len, 0);
		good = good && plan[r] > 0 && buf[r] > 0;
	}
	for (r = 0; good && r < RANKS; r++) {
		post[r] = raw_post_cmd(plan[r], NPULINK_POST_HELD);
		raw_bind(&post[r], buf[r], 0, len);
		good = !raw_ioctl(fd[r], NPULINK_POST, &post[r]);
	}
	for (r = 0; good && r < RANKS; r++) {
		for (looks = 0; looks < 20000; looks++) {
			struct npulink_wait look = {
				.size = sizeof(look), .seq = post[r].out_seq,
			};

			/* This gives the kernel no time: a worker would be needed, and stay. */
			rc = raw_ioctl(fd[r], NPULINK_WAIT, &look);
			result = look.out_result;
			if (rc != -ETIME)
				break;
			usleep(1000);
		}
		good = !rc && !result.status;
	}
	good = good && !has_worker() && mem[0][0] == 17 && !memcmp(mem[0], mem[1], len);
	for (r = 0; r < RANKS; r++) {
		close(fd[r]);
		munmap(mem[r], len);
	}
	return good;
}

static bool reduction_is_refused(void)
{
	uint8_t secret[16];
	int fd = raw_open(0), comm, rc;

	raw_secret(secret);
	comm = raw_comm(fd, secret, 0, RANKS);
	rc = plan_of(fd, comm, 0, 64, NPULINK_STEP_RECV | NPULINK_STEP_REDUCE);
	close(fd);
	return comm > 0 && rc == -EOPNOTSUPP;
}

static bool goes_while_open(void)
{
	struct npulink_device_info info = { .size = sizeof(info) };
	int fd = raw_open(0), rc;

	rc = raw_ioctl(fd, NPULINK_DEVICE_INFO, &info);
	if (rc || strcmp((char *)info.out_backend, "null"))
		return false;
	/* The file holds the core, not the backend. */
	if (system("rmmod npulink_null"))
		return false;
	rc = raw_ioctl(fd, NPULINK_DEVICE_INFO, &info);
	close(fd);
	return rc == -ENODEV;
}

int main(void)
{
	size_t i;

	ksft_print_header();
	ksft_set_plan(ARRAY_SIZE(lens) + 6);
	ksft_test_result(!modules("insert npulink_null"), "it is loaded\n");
	for (i = 0; i < ARRAY_SIZE(lens); i++)
		ksft_test_result(exchange(lens[i]), "%zu bytes are exchanged\n", lens[i]);
	ksft_test_result(no_task_is_needed(ODD), "no task comes between %d steps\n", TURNS);
	ksft_test_result(reduction_is_refused(), "a reduction is refused\n");
	ksft_test_result(libcoll_runs(), "libcoll runs on it\n");
	ksft_test_result(goes_while_open(), "it goes while a file is open\n");
	ksft_test_result(!modules("unload"), "the core goes\n");
	ksft_finished();
}
