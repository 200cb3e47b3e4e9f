// SPDX-License-Identifier: GPL-2.0
/*
 * exec_remote.c - calls of a program about other machines: which ports there are, and
 * where ranks are said to be. There is none: they are given the addresses of this one,
 * whose own listener then answers that it has no such rank.
 */
#include <arpa/inet.h>
#include "exec.h"
#include "raw.h"

void exec_port_info(struct rnd *r, uint8_t bend)
{
	struct npulink_port_info cmd = {
		.size = sizeof(cmd), .index = rnd_one_in(r, 4) ? rnd_odd(r) : rnd_below(r, 3),
	};

	CALL(r, exec_file(r), NPULINK_PORT_INFO, cmd, bend);
}

/* Where a rank on another machine could be reached: right, or nearly so. */
static struct npulink_peer remote_peer(struct rnd *r, int fd, const uint8_t node_id[16])
{
	struct npulink_port_info info = { .size = sizeof(info) };
	struct npulink_peer peer = { .kind = NPULINK_PEER_RDMA };

	memcpy(peer.node_id, node_id, sizeof(peer.node_id));
	peer.node_id[rnd_below(r, 16)] ^= 1;
	if (!raw_ioctl(fd, NPULINK_PORT_INFO, &info)) {
		peer.addr = info.out_addr;
	} else {
		memset(peer.addr.ip + 10, 0xff, 2);
		peer.addr.ip[12] = 127;
		peer.addr.ip[15] = 1;
		peer.addr.port = htons(4711);
	}
	switch (rnd_below(r, 16)) {
	case 0:
		peer.addr.ip[rnd_below(r, 16)] ^= 1;
		break;
	case 1:
		peer.addr.port = htons(rnd_odd(r));
		break;
	case 2:
		memset(&peer.addr, 0, sizeof(peer.addr));
	}
	return peer;
}

int exec_describe(struct rnd *r, int fd, uint32_t comm, uint32_t first, uint32_t nranks)
{
	struct npulink_peer peers[TEAM];
	struct npulink_comm_peers cmd = {
		.size = sizeof(cmd), .comm_id = comm, .first = first, .npeers = nranks - first,
		.peers = (uintptr_t)peers,
	};
	struct npulink_device_info info;
	uint32_t i;

	if (raw_info(fd, &info))
		return -1;
	for (i = 0; i < cmd.npeers; i++)
		peers[i] = remote_peer(r, fd, info.out_node_id);
	return CALL(r, fd, NPULINK_COMM_PEERS, cmd, 0);
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
		if (rnd_one_in(r, 2))
			peers[i] = remote_peer(r, comm.fd, info.out_node_id);
		else
			memcpy(peers[i].node_id, info.out_node_id, 16);
		if (bend & 1 && rnd_one_in(r, 3))
			gen_bend_bytes(r, &peers[i], sizeof(peers[i]));
	}
	CALL(r, comm.fd, NPULINK_COMM_PEERS, cmd, bend & 2 ? bend : 0);
}
