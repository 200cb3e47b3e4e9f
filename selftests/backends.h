/* SPDX-License-Identifier: GPL-2.0 */
/*
 * backends.h - what tests of backends that only copy have in common: two ranks, each on a device
 * of its own, exchange bytes.
 */
#ifndef BACKENDS_H
#define BACKENDS_H

#include <coll.h>
#include "kselftest.h"
#include "raw.h"

#define RANKS	2

static inline int modules(const char *what)
{
	char command[512];

	snprintf(command, sizeof(command), "%s/tools/vm/modules %s", getenv("NPULINK_TREE") ?: ".",
		 what);
	return system(command);
}

static inline int plan_of(int fd, int comm, int rank, size_t len, uint8_t recv)
{
	struct npulink_slot slots[] = {
		{ .min_len = len, .access = NPULINK_SLOT_READ },
		{ .min_len = len, .access = NPULINK_SLOT_WRITE },
	};
	struct npulink_step steps[] = {
		raw_step(NPULINK_STEP_SEND, len),
		raw_step(recv, len),
	};

	steps[0].send_peer = !rank;
	steps[1].recv_peer = !rank;
	steps[1].dst_slot = 1;
	return raw_plan(fd, comm, slots, 2, steps, 2);
}

/* What they send, from byte @off on, is received. */
static inline bool exchange_bufs(const int *fd, const int *plan, int buf[RANKS][2],
				 uint8_t *mem[RANKS][2], size_t off, size_t len)
{
	struct npulink_post post[RANKS];
	struct npulink_result result;
	bool good = true;
	int r, k;

	for (r = 0; good && r < RANKS; r++) {
		post[r] = raw_post_cmd(plan[r], NPULINK_POST_HELD);
		for (k = 0; k < 2; k++)
			raw_bind(&post[r], buf[r][k], off, len);
		good = !raw_ioctl(fd[r], NPULINK_POST, &post[r]);
	}
	for (r = 0; good && r < RANKS; r++)
		good = !raw_wait(fd[r], post[r].out_seq, &result) && !result.status;
	for (r = 0; good && r < RANKS; r++)
		good = !memcmp(mem[r][1] + 1, mem[!r][0] + 1, len) && !mem[r][1][0] &&
		       !mem[r][1][len + 1];
	return good;
}

/* Two ranks exchange @len bytes that begin at an odd address. */
static inline bool exchange(size_t len)
{
	uint8_t secret[16], *mem[RANKS][2];
	int fd[RANKS], comm[RANKS], plan[RANKS], buf[RANKS][2], r, k;
	bool good = true;
	size_t i;

	raw_secret(secret);
	for (r = 0; r < RANKS; r++) {
		fd[r] = raw_open(r);
		comm[r] = raw_comm(fd[r], secret, r, RANKS);
		plan[r] = plan_of(fd[r], comm[r], r, len, NPULINK_STEP_RECV);
		for (k = 0; k < 2; k++) {
			mem[r][k] = mmap(NULL, len + 4096, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			for (i = 0; i < len + 2; i++)
				mem[r][k][i] = k ? 0 : (r + 1) * 7 + i * 13;
			buf[r][k] = raw_register(fd[r], mem[r][k] + 1, len, 0);
			good = good && buf[r][k] > 0;
		}
		good = good && fd[r] >= 0 && comm[r] > 0 && plan[r] > 0;
	}
	good = good && exchange_bufs(fd, plan, buf, mem, 0, len);
	for (r = 0; r < RANKS; r++) {
		close(fd[r]);
		munmap(mem[r][0], len + 4096);
		munmap(mem[r][1], len + 4096);
	}
	return good;
}

/* One rank of a communicator of libcoll's: 0, or what went wrong. */
static inline int member(const struct coll_unique_id *id, int rank)
{
	struct coll_comm *comm;
	int in = 40 + rank, out[RANKS] = { 0 };

	if (coll_comm_init_rank(&comm, RANKS, id, rank, NULL))
		return 1;
	if (coll_allgather(comm, &in, out, 1, COLL_INT32) || out[0] != 40 || out[1] != 41)
		return 2;
	/* The device adds nothing, and libcoll says so. */
	if (coll_allreduce(comm, &in, out, 1, COLL_INT32, COLL_SUM) != -EOPNOTSUPP ||
	    !*coll_comm_last_error(comm))
		return 3;
	coll_comm_destroy(comm);
	return 0;
}

static inline bool libcoll_runs(void)
{
	struct coll_unique_id id;
	int status, rc;
	pid_t child;

	if (coll_get_unique_id(&id))
		return false;
	child = fork();
	if (!child)
		_exit(member(&id, 1));
	rc = member(&id, 0);
	if (waitpid(child, &status, 0) != child || status || rc) {
		ksft_print_msg("rank 0: %d, rank 1: status %#x\n", rc, status);
		return false;
	}
	return true;
}

#endif /* BACKENDS_H */
