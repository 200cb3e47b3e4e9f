// SPDX-License-Identifier: GPL-2.0
/*
 * exec_comm.c - calls of a program on communicators.
 */
#include "exec.h"
#include "raw.h"

void exec_comm(struct rnd *r, uint8_t bend)
{
	struct npulink_comm_create cmd = {
		.size = sizeof(cmd), .nranks = 1 + rnd_below(r, 4),
		.flags = rnd_one_in(r, 4) ? NPULINK_COMM_ANY_UID : 0,
	};
	int fd = exec_file(r);

	cmd.rank = rnd_below(r, cmd.nranks);
	if (rnd_one_in(r, 32))
		cmd.nranks = rnd_odd(r) % 70000;
	*(uint32_t *)cmd.secret = ex.pid;
	cmd.secret[8] = rnd_below(r, 2);
	if (!CALL(r, fd, NPULINK_COMM_CREATE, cmd, bend))
		exec_add(ex.comms, &ex.ncomms, fd, cmd.out_id)->comm = cmd.nranks << 16 | cmd.rank;
}

void exec_peers(struct rnd *r, uint8_t bend)
{
	struct thing comm = exec_pick(r, ex.comms, ex.ncomms);
	struct npulink_peer peers[TEAM] = {};
	struct npulink_comm_peers cmd = {
		.size = sizeof(cmd), .comm_id = comm.id, .first = rnd_below(r, 3),
		.npeers = rnd_below(r, TEAM + 1), .peers = (uintptr_t)peers,
	};
	struct npulink_device_info info;
	uint32_t i;

	raw_info(comm.fd, &info);
	for (i = 0; i < TEAM; i++) {
		memcpy(peers[i].node_id, info.out_node_id, 16);
		if (bend & 1 && rnd_one_in(r, 3))
			gen_bend_bytes(r, &peers[i], sizeof(peers[i]));
	}
	CALL(r, comm.fd, NPULINK_COMM_PEERS, cmd, bend & 2 ? bend : 0);
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
