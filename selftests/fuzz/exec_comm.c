// SPDX-License-Identifier: GPL-2.0
/*
 * exec_comm.c - calls of a program on communicators; exec_remote.c has those about where
 * their ranks are.
 */
#include "exec.h"
#include "raw.h"

void exec_comm(struct rnd *r, uint8_t bend)
{
	struct npulink_comm_create cmd = {
		.size = sizeof(cmd), .nranks = 1 + rnd_below(r, 4),
		.flags = rnd_one_in(r, 4) ? NPULINK_COMM_ANY_UID : 0,
	};
	uint32_t which = rnd_below(r, 3);
	int fd = exec_file(r);

	cmd.rank = rnd_below(r, cmd.nranks);
	if (rnd_one_in(r, 32))
		cmd.nranks = rnd_odd(r) % 70000;
	if (rnd_one_in(r, 4))
		cmd.peer_timeout_ms = rnd_odd(r) % 5000;
	*(uint32_t *)cmd.secret = ex.pid;
	cmd.secret[8] = which;
	/* Members must agree, and nearly do. */
	if (which == 2 || rnd_one_in(r, 16))
		cmd.flags |= NPULINK_COMM_CHECKSUM;
	if (!CALL(r, fd, NPULINK_COMM_CREATE, cmd, bend))
		exec_add(ex.comms, &ex.ncomms, fd, cmd.out_id)->comm = cmd.nranks << 16 | cmd.rank;
}

void exec_abort(struct rnd *r, uint8_t bend)
{
	struct thing comm = exec_pick(r, ex.comms, ex.ncomms);
	struct npulink_comm_abort cmd = {
		.size = sizeof(cmd), .comm_id = comm.id, .code = rnd_next(r),
	};

	CALL(r, comm.fd, NPULINK_COMM_ABORT, cmd, bend);
}

void exec_status(struct rnd *r, uint8_t bend)
{
	struct thing comm = exec_pick(r, ex.comms, ex.ncomms);
	struct npulink_comm_status cmd = { .size = sizeof(cmd), .comm_id = comm.id };

	CALL(r, comm.fd, NPULINK_COMM_STATUS, cmd, bend);
}

void exec_shrink(struct rnd *r, uint8_t bend)
{
	struct thing comm = exec_pick(r, ex.comms, ex.ncomms);
	struct npulink_comm_shrink cmd = { .size = sizeof(cmd), .comm_id = comm.id };

	if (rnd_one_in(r, 2))
		raw_abort(comm.fd, comm.id, 1);
	if (!CALL(r, comm.fd, NPULINK_COMM_SHRINK, cmd, bend))
		exec_add(ex.comms, &ex.ncomms, comm.fd, cmd.out_id)->comm =
			cmd.out_nranks << 16 | cmd.out_rank;
}
